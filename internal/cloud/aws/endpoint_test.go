package aws

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

func TestForeignEndpoint(t *testing.T) {
	for endpoint, foreign := range map[string]bool{
		"https://ec2.us-east-1.amazonaws.com":                                      false,
		"https://ec2-fips.us-gov-west-1.amazonaws.com":                             false,
		"https://EC2.us-east-1.amazonaws.com.:443/":                                false,
		"https://vpce-0a1b2c3d-x9y8z7.ec2.us-east-1.vpce.amazonaws.com":            false,
		"https://vpce-0a1b2c3d-x9y8z7-us-east-1a.ec2.us-east-1.vpce.amazonaws.com": false,
		"https://ec2.cn-north-1.amazonaws.com.cn":                                  false,
		"https://ec2.us-east-1.api.aws":                                            false,
		"http://127.0.0.1:5091":                                                    true,
		"http://localhost:4566":                                                    true,
		"http://[::1]:5091":                                                        true,
		"https://aws.example.com":                                                  true,
		"https://notamazonaws.com":                                                 true,
		"https://ec2.amazonaws.com.example.com":                                    true,
		"https://example.com/ec2.amazonaws.com":                                    true,
		"https://ec2.amazonaws.com@example.com":                                    true,
		"https://emulator.aws":                                                     true,
	} {
		if got := at(t, endpoint, Options{}).foreignEndpoint(); got != foreign {
			t.Errorf("%s: foreign %t, want %t", endpoint, got, foreign)
		}
	}
}

// What is still shutting down has not ended, whatever is recorded of it.
func TestEndedVMs(t *testing.T) {
	url, calls := scripted(t, answer(200, `<DescribeInstancesResponse><requestId>r</requestId><reservationSet><item><instancesSet>
		<item><instanceId>i-leaving</instanceId><instanceState><code>32</code><name>shutting-down</name></instanceState></item>
		<item><instanceId>i-removed-leaving</instanceId><instanceState><code>32</code><name>shutting-down</name></instanceState></item>
		<item><instanceId>i-ended</instanceId><instanceState><code>48</code><name>terminated</name></instanceState></item>
	</instancesSet></item></reservationSet></DescribeInstancesResponse>`), ec2Error(400, "UnauthorizedOperation"))
	p := at(t, url, Options{Pace: 1000})
	j := &job.Job{ID: "job_1"}
	j.Config.InfraConfig.VMs = []job.VMInfo{
		{InstanceID: "i-runs", State: job.VMReady}, {InstanceID: "i-leaving", State: job.VMTerminating},
		{InstanceID: "i-ended", State: job.VMTerminating}, {InstanceID: "i-forgotten", State: job.VMTerminated},
	}
	objects := []job.Object{
		{Kind: kindInstance, Key: "vm-1", ID: "i-removed-leaving", State: job.ObjectRemoved},
		{Kind: kindInstance, Key: "vm-2", ID: "i-removed", State: job.ObjectRemoved},
		{Kind: kindInstance, Key: "vm-3", ID: "i-kept", State: job.ObjectCreated},
	}
	r := pipeline.NewRun(j, pipeline.Apply, objects, nil, nil, time.Now, 1)
	got, err := p.endedVMs(anything(t.Context()), r)
	if d := cmp.Diff([]string{"i-removed", "i-ended", "i-forgotten"}, got); d != "" || err != nil {
		t.Errorf("ended: %v %s", err, d)
	}
	if got, err := p.endedVMs(anything(t.Context()), r); err == nil || len(got) > 0 || calls.Load() != 2 {
		t.Errorf("without an answer: %v, %v after %d calls", got, err, calls.Load())
	}
}
