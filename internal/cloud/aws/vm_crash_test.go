package aws

import (
	"fmt"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// until runs steps with one worker until something is no wait.
func (g vmRig) until(down bool, steps ...step) {
	g.Helper()
	ctx := anything(g.Context())
	for _, f := range steps {
		for range 2000 {
			r := g.run(pipeline.Apply)
			r.Down, r.Step = down, "step"
			err := f(ctx, r)
			if err == nil {
				break
			}
			d := pipeline.Judge(err, 0)
			if d.Action != pipeline.Park {
				return
			}
			g.world.Step(d.After)
		}
	}
}

func (g vmRig) all(down bool, steps ...step) {
	g.Helper()
	g.another()
	if err := g.try(down, steps...); err != nil {
		g.Fatalf("%v\n%s", err, g.books(30))
	}
}

// Each change that VMs, load balancer and record need, taken in turn: it fails
// before anything happened, or it happens and the answer is lost. Another
// worker goes on. The end is the same objects, each once and all in the ledger,
// a re-run that changes nothing, and after teardown the account as it was.
func TestVMCrashMatrix(t *testing.T) {
	t.Parallel()
	specs := map[string]string{"fixed": fixedDNSSpec, "group": groupLBSpec}
	lost, refused := sim.FaultLostReply, sim.FaultError
	for _, c := range []struct {
		spec, op string
		after    int
		down     bool
		kind     sim.FaultKind
	}{
		{"fixed", "CreateSecurityGroup", 0, false, lost},
		{"fixed", "CreateSecurityGroup", 1, false, lost},
		{"fixed", "CreateLaunchTemplate", 0, false, lost},
		{"fixed", "RunInstances", 1, false, lost},
		{"fixed", "RunInstances", 0, false, refused},
		{"fixed", "AuthorizeSecurityGroupIngress", 0, false, lost},
		{"fixed", "AuthorizeSecurityGroupIngress", 1, false, refused},
		{"fixed", "AuthorizeSecurityGroupEgress", 0, false, lost},
		{"fixed", "RevokeSecurityGroupEgress", 1, false, lost},
		{"fixed", "CreateLoadBalancer", 0, false, lost},
		{"fixed", "CreateLoadBalancer", 0, false, refused},
		{"fixed", "ModifyLoadBalancerAttributes", 0, false, lost},
		{"fixed", "CreateTargetGroup", 0, false, lost},
		{"fixed", "RegisterTargets", 0, false, refused},
		{"fixed", "CreateListener", 0, false, lost},
		{"fixed", "ChangeResourceRecordSets", 0, false, lost},
		{"group", "CreateAutoScalingGroup", 0, false, lost},
		{"group", "AttachLoadBalancerTargetGroups", 0, false, lost},
		{"group", "UpdateAutoScalingGroup", 0, false, refused},
		{"fixed", "ChangeResourceRecordSets", 0, true, lost},
		{"fixed", "DeleteListener", 0, true, lost},
		{"fixed", "DeleteTargetGroup", 0, true, lost},
		{"fixed", "ModifyLoadBalancerAttributes", 0, true, lost},
		{"fixed", "DeleteLoadBalancer", 0, true, lost},
		{"fixed", "RevokeSecurityGroupIngress", 0, true, refused},
		{"fixed", "DeleteSecurityGroup", 0, true, lost},
		{"fixed", "TerminateInstances", 1, true, lost},
		{"fixed", "DeleteLaunchTemplate", 0, true, lost},
		{"fixed", "DeleteSecurityGroup", 1, true, refused},
		{"group", "UpdateAutoScalingGroup", 0, true, lost},
		{"group", "DetachLoadBalancerTargetGroups", 0, true, lost},
		{"group", "UpdateAutoScalingGroup", 1, true, refused},
		{"group", "DeleteAutoScalingGroup", 0, true, lost},
	} {
		t.Run(fmt.Sprintf("%s %s %d %s", c.spec, c.op, c.after, c.kind), func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, specs[c.spec])
			if c.spec == "fixed" {
				g.zoned("example.test")
			}
			before := g.world.Snapshot()
			fault := sim.Fault{Kind: c.kind, Operation: c.op, After: c.after, Code: "InternalError", Status: 500}
			if c.down {
				g.all(false, g.built()...)
				g.fault(fault)
				g.until(true, g.gone()...)
			} else {
				g.fault(fault)
				g.until(false, g.built()...)
				g.all(false, g.built()...)
				g.onceEach()
			}
			g.hit()
			g.all(true, g.gone()...)
			g.equal(before)
		})
	}
}

// onceEach wants every object of ours to be in the ledger and there once, and a
// further run to change nothing.
func (g vmRig) onceEach() {
	g.Helper()
	ledger := map[string]bool{}
	for _, o := range g.objects {
		if o.State == job.ObjectCreated {
			ledger[o.ID] = true
		}
	}
	instances := 0
	for _, o := range g.world.Residue(g.job.ID) {
		switch o.Kind {
		case "instance":
			instances++
		case "security-group", "launch-template", "load-balancer", "target-group", "listener", "auto-scaling-group":
			if !ledger[o.ID] {
				g.Errorf("%s %s is not in the ledger", o.Kind, o.ID)
			}
		}
	}
	if instances != 2 {
		g.Errorf("%d instances, want 2\n%s", instances, g.books(60))
	}
	since := g.mark()
	g.all(false, g.built()...)
	if _, changes := g.calls(since); sum(changes) > 0 {
		g.Errorf("a run of what is there changed %v", changes)
	}
}
