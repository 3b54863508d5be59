package aws

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// The exit code alone tells how far a bootstrap is; what is printed is for people.
func TestOutcome(t *testing.T) {
	t.Parallel()
	answer := func(status ssmtypes.CommandInvocationStatus, code int32, text string) ssmtypes.CommandInvocation {
		return ssmtypes.CommandInvocation{Status: status, StatusDetails: aws.String(string(status)),
			CommandPlugins: []ssmtypes.CommandPlugin{{ResponseCode: code, Output: aws.String(text)}}}
	}
	for _, c := range []struct {
		name  string
		inv   ssmtypes.CommandInvocation
		want  cloud.Probe
		ended bool
	}{
		{"ready", answer("Success", 0, "bootstrap complete"), cloud.Probe{State: cloud.ProbeReady, Detail: "bootstrap complete"}, true},
		{"ready, says the opposite", answer("Success", 0, "bootstrap failed"), cloud.Probe{State: cloud.ProbeReady, Detail: "bootstrap failed"}, true},
		{"ready, says nothing", answer("Success", 0, ""), cloud.Probe{State: cloud.ProbeReady}, true},
		{"failed", answer("Failed", 10, "bootstrap failed: step=docker\nE: no route"), cloud.Probe{State: cloud.ProbeFailed, Detail: "bootstrap failed: step=docker\nE: no route"}, true},
		{"failed, says the opposite", answer("Failed", 10, "bootstrap complete"), cloud.Probe{State: cloud.ProbeFailed, Detail: "bootstrap complete"}, true},
		{"still running", answer("Failed", 11, "bootstrap running: step docker"), cloud.Probe{State: cloud.ProbeRunning, Detail: "bootstrap running: step docker"}, true},
		{"no shell", answer("Failed", 127, ""), cloud.Probe{State: cloud.ProbeRunning, Detail: "the probe could not run: exit code 127, Failed"}, true},
		{"under way", answer("InProgress", -1, ""), cloud.Probe{State: cloud.ProbeRunning}, false},
		{"waiting", answer("Pending", -1, ""), cloud.Probe{State: cloud.ProbeRunning}, false},
		{"timed out", answer("TimedOut", -1, ""), cloud.Probe{State: cloud.ProbeUnknown, Detail: "the last command ended as TimedOut"}, true},
		{"cancelled", answer("Cancelled", -1, ""), cloud.Probe{State: cloud.ProbeUnknown, Detail: "the last command ended as Cancelled"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ended := outcome(c.inv)
			if d := cmp.Diff(c.want, got); d != "" || ended != c.ended {
				t.Errorf("ended %t, want %t\n%s", ended, c.ended, d)
			}
		})
	}
	if got, _ := outcome(answer("Failed", 10, strings.Repeat("line of the log\n", 1000))); len(got.Detail) > 2600 || !strings.HasSuffix(got.Detail, "line of the log") {
		t.Errorf("the log's end is %d long", len(got.Detail))
	}
}

// Guests that do not come up: the job waits for an agent that is late, and ends
// in bounded time with the VM's name and its log where it never will (M7, M10, M11).
func TestGuests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault sim.Fault
		code  string
		says  string
	}{
		{"agent late", sim.Fault{Kind: sim.FaultGuest, Mode: "agent", Seconds: 90, Count: 1}, "", ""},
		{"agent never", sim.Fault{Kind: sim.FaultGuest, Mode: "agent", Count: 1}, "bootstrap-timeout", "ssmmessages"},
		{"cloud-init fails", sim.Fault{Kind: sim.FaultGuest, Mode: "cloud_init", Count: 1, ExitCode: 99, Log: "E: the mirror does not answer"}, "bootstrap-failed", "the mirror does not answer"},
		{"no sentinel", sim.Fault{Kind: sim.FaultGuest, Mode: "sentinel", Count: 1}, "bootstrap-timeout", "the bootstrap to finish"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, fixedSpec)
			before := g.world.Snapshot()
			g.fault(c.fault)
			_, err := g.play(job.PhaseProvision, "")
			if fatalCode(err) != c.code {
				t.Fatalf("ended with %v, want %q\n%s", err, c.code, g.books(20))
			}
			g.hit()
			if err != nil {
				if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "shop-prod-vm-") {
					t.Errorf("%q does not name the VM and say %q", err, c.says)
				}
				ready := 0
				for _, vm := range g.infra().VMs {
					if vm.State == job.VMReady {
						ready++
					}
				}
				if ready != 1 {
					t.Errorf("%d VMs are ready, want the other one: %+v", ready, g.infra().VMs)
				}
			}
			g.teardown()
			g.equal(before)
		})
	}
}

// Clouds that lack calls which are not needed to make anything are lived with.
func TestCloudsWithLess(t *testing.T) {
	t.Parallel()
	forEver := func(service, op, code string, status int) sim.Fault {
		return sim.Fault{Kind: sim.FaultError, Service: service, Operation: op, Code: code, Status: status, Count: -1}
	}
	for _, c := range []struct {
		name, spec string
		faults     []sim.Fault
	}{
		{"no list of agents", fixedSpec, []sim.Fault{forEver("ssm", "DescribeInstanceInformation", "UnknownOperationException", 400)}},
		{"a list of agents that is always empty", fixedSpec, []sim.Fault{
			{Kind: sim.FaultRaw, Service: "ssm", Operation: "DescribeInstanceInformation", Status: 200, Body: `{"InstanceInformationList":[]}`, ContentType: "application/x-amz-json-1.1", Count: -1}}},
		{"no list of answers", fixedSpec, []sim.Fault{forEver("ssm", "ListCommandInvocations", "NotImplemented", 501)}},
		{"a web page for a list of answers", fixedSpec, []sim.Fault{
			{Kind: sim.FaultRaw, Service: "ssm", Operation: "ListCommandInvocations", Status: 500, Body: `<html><title>500 Internal Server Error</title></html>`, ContentType: "text/html", Count: -1}}},
		{"no interfaces", fixedLBSpec, []sim.Fault{forEver("ec2", "DescribeNetworkInterfaces", "InvalidAction", 400)}},
		{"no attributes to set", fixedLBSpec, []sim.Fault{{Kind: sim.FaultError, Operation: "ModifyLoadBalancerAttributes", Match: "drop_invalid", Code: "ValidationError", Status: 400, Count: -1}}},
		{"no activities", groupSpec, []sim.Fault{forEver("autoscaling", "DescribeScalingActivities", "InvalidAction", 400)}},
		{"no change status", fixedDNSSpec, []sim.Fault{forEver("route53", "GetChange", "InvalidAction", 400)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, c.spec)
			if strings.Contains(c.spec, "dns") {
				g.zoned("example.test")
			}
			before := g.world.Snapshot()
			for _, f := range c.faults {
				g.fault(f)
			}
			g.create()
			if _, reads := g.verify(); sum(reads) > 60 {
				t.Errorf("a verify took %v", reads)
			}
			g.teardown()
			g.hit()
			g.equal(before)
		})
	}
}
