package aws

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/zopday/provisioner/internal/sim"
)

const minute = time.Minute

// A scaling group says only in its history why it has too few VMs (G5).
func TestGroupWithoutRoom(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, groupSpec)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultCapacity, Match: "t3.medium", Count: -1})
	err := g.launch()
	if fatalCode(err) != "no-capacity" || !strings.Contains(err.Error(), "0 of 2") {
		t.Fatalf("ended with %v\n%s", err, g.books(20))
	}
	g.removed()
	g.equal(before)
}

func TestGroupHistory(t *testing.T) {
	t.Parallel()
	act := func(status asgtypes.ScalingActivityStatusCode, description, cause, message string) asgtypes.Activity {
		return asgtypes.Activity{StatusCode: status, Description: aws.String(description), Cause: aws.String(cause), StatusMessage: aws.String(message)}
	}
	failed := asgtypes.ScalingActivityStatusCodeFailed
	for _, c := range []struct {
		name, code string
		acts       []asgtypes.Activity
	}{
		{"nothing yet", "", nil},
		{"capacity", "no-capacity", []asgtypes.Activity{act(failed, "Launching a new EC2 instance", "", "We currently do not have sufficient t3.medium capacity in the Availability Zone you requested (us-east-1a). Launching EC2 instance failed.")}},
		{"quota", "quota-exceeded", []asgtypes.Activity{act(failed, "Launching a new EC2 instance", "", "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket. Launching EC2 instance failed.")}},
		{"permission", "permission-denied", []asgtypes.Activity{act(failed, "Launching a new EC2 instance", "", "You are not authorized to use launch template: lt-1. Launching EC2 instance failed.")}},
		{"profile not visible yet", "", []asgtypes.Activity{act(failed, "Launching a new EC2 instance", "", "Invalid IAM Instance Profile name. Launching EC2 instance failed.")}},
		{"worked since", "", []asgtypes.Activity{act(asgtypes.ScalingActivityStatusCodeSuccessful, "Launching a new EC2 instance: i-1", "", ""), act(failed, "Launching", "", "no quota")}},
	} {
		why, code := failure(c.acts)
		if code != c.code {
			t.Errorf("%s: %q (%q), want %q", c.name, code, why, c.code)
		}
	}
	if why, _ := failure([]asgtypes.Activity{act(failed, "Launching a new EC2 instance", "", "")}); why == "" {
		t.Error("a failure without a message has no reason")
	}
	loop := act(asgtypes.ScalingActivityStatusCodeSuccessful, "Terminating EC2 instance: i-1", "an instance was taken out of service in response to an ELB system health check failure.", "")
	if n := replacements([]asgtypes.Activity{loop, act(asgtypes.ScalingActivityStatusCodeSuccessful, "Terminating EC2 instance: i-2", "a user request", ""), loop}); n != 2 {
		t.Errorf("%d replacements, want 2", n)
	}
}

// The group that a changed spec no longer asks for goes before its VMs' heirs
// are made, and the other way round.
func TestPoolModeChanges(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, groupSpec)
	before := g.world.Snapshot()
	g.launched()
	for _, spec := range []string{fixedSpec, groupSpec} {
		g.job.Config.Spec = []byte(spec)
		g.another()
		g.launched()
		if n := g.instances()["running"]; n != 2 || len(g.infra().VMs) != 2 {
			t.Errorf("%s: %v run, %d are recorded", spec, g.instances(), len(g.infra().VMs))
		}
		if got, want := g.infra().ScalingGroupID != "", spec == groupSpec; got != want {
			t.Errorf("%s: scaling group %q", spec, g.infra().ScalingGroupID)
		}
	}
	g.removed()
	g.equal(before)
}
