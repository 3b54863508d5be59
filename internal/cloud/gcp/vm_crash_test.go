package gcp

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
// before anything happened, or it happens and the answer is lost. Another worker
// goes on. The end is the same objects, each once and all in the ledger, a re-run
// that changes nothing, and after teardown the project as it was.
func TestVMCrashMatrix(t *testing.T) {
	t.Parallel()
	specs := map[string]string{"fixed": fixedDNSSpec, "group": groupLBSpec, "tls": fixedTLSSpec, "internal": internalSpec}
	lost, refused := sim.FaultLostReply, sim.FaultError
	for _, c := range []struct {
		spec, op string
		after    int
		down     bool
		kind     sim.FaultKind
	}{
		{"fixed", "projects.serviceAccounts.create", 0, false, lost},
		{"fixed", "projects.setIamPolicy", 0, false, lost},
		{"fixed", "projects.setIamPolicy", 0, false, refused},
		{"fixed", "firewalls.insert", 1, false, lost},
		{"fixed", "instanceTemplates.insert", 0, false, lost},
		{"fixed", "instances.insert", 1, false, lost},
		{"fixed", "instances.insert", 0, false, refused},
		{"fixed", "globalAddresses.insert", 0, false, lost},
		{"fixed", "globalAddresses.setLabels", 0, false, lost},
		{"fixed", "healthChecks.insert", 0, false, lost},
		{"fixed", "instanceGroups.insert", 0, false, lost},
		{"fixed", "instanceGroups.addInstances", 1, false, lost},
		{"fixed", "instanceGroups.addInstances", 0, false, refused},
		{"fixed", "backendServices.insert", 0, false, lost},
		{"fixed", "backendServices.insert", 0, false, refused},
		{"fixed", "urlMaps.insert", 0, false, lost},
		{"fixed", "targetHttpProxies.insert", 0, false, lost},
		{"fixed", "globalForwardingRules.insert", 0, false, lost},
		{"fixed", "changes.create", 0, false, lost},
		{"fixed", "changes.create", 0, false, refused},
		{"tls", "sslPolicies.insert", 0, false, lost},
		{"tls", "targetHttpsProxies.insert", 0, false, lost},
		{"internal", "subnetworks.insert", 2, false, lost},
		{"internal", "addresses.insert", 1, false, lost},
		{"internal", "regionTargetHttpProxies.insert", 0, false, lost},
		{"internal", "forwardingRules.insert", 0, false, lost},
		{"group", "regionInstanceGroupManagers.insert", 0, false, lost},
		{"group", "regionAutoscalers.insert", 0, false, lost},
		{"group", "regionInstanceGroupManagers.patch", 0, false, lost},
		{"group", "regionInstanceGroupManagers.patch", 1, false, refused},
		{"fixed", "changes.create", 0, true, lost},
		{"fixed", "globalForwardingRules.delete", 0, true, lost},
		{"fixed", "targetHttpProxies.delete", 0, true, lost},
		{"fixed", "urlMaps.delete", 0, true, refused},
		{"fixed", "backendServices.delete", 0, true, lost},
		{"fixed", "instanceGroups.delete", 0, true, lost},
		{"fixed", "healthChecks.delete", 0, true, lost},
		{"fixed", "globalAddresses.delete", 0, true, lost},
		{"fixed", "instances.setDeletionProtection", 0, true, lost},
		{"fixed", "instances.delete", 1, true, lost},
		{"fixed", "instances.delete", 0, true, refused},
		{"fixed", "instanceTemplates.delete", 0, true, lost},
		{"fixed", "firewalls.delete", 1, true, lost},
		{"fixed", "projects.setIamPolicy", 0, true, lost},
		{"fixed", "projects.setIamPolicy", 0, true, refused},
		{"fixed", "projects.serviceAccounts.delete", 0, true, lost},
		{"internal", "subnetworks.delete", 0, true, lost},
		{"group", "regionInstanceGroupManagers.patch", 0, true, lost},
		{"group", "regionAutoscalers.delete", 0, true, lost},
		{"group", "regionInstanceGroupManagers.resize", 0, true, lost},
		{"group", "regionInstanceGroupManagers.delete", 0, true, refused},
	} {
		t.Run(fmt.Sprintf("%s %s %d %s down=%v", c.spec, c.op, c.after, c.kind, c.down), func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, specs[c.spec])
			g.furnish()
			before := g.world.Snapshot()
			fault := sim.Fault{Kind: c.kind, Operation: c.op, After: c.after, Code: "backendError", Status: 503}
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
	machines := 0
	for _, o := range g.world.Residue(g.job.ID) {
		switch o.Kind {
		case "instance":
			machines++
		case "disk": // it comes with its VM
		default:
			if !ledger[o.ID] && g.infra().ScalingGroupID == "" {
				g.Errorf("%s %s is not in the ledger", o.Kind, o.ID)
			}
		}
	}
	if machines != 2 {
		g.Errorf("%d VMs, want 2", machines)
	}
	since := g.mark()
	g.all(false, g.built()...)
	if _, changes := g.calls(since); sum(changes) > 0 {
		g.Errorf("a run of what is there changed %v", changes)
	}
}
