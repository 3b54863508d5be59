package azure

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const (
	fixedSpec = `{"pool":{"mode":"fixed","count":2}}`
	setSpec   = `{"pool":{"mode":"asg","min":1,"desired":2,"max":3}}`
	fixedLB   = `{"pool":{"mode":"fixed","count":2},"loadBalancer":{"type":"http","plainHTTP":true}}`
	setLB     = `{"pool":{"mode":"asg","min":1,"desired":2,"max":3},"loadBalancer":{"type":"http","plainHTTP":true}}`
)

// vms is a rig for a VM job.
func vms(t testing.TB, spec string) *rig {
	t.Helper()
	return newRig(t, sim.Options{}, job.VM, job.ModeCreate, spec)
}

// vmSteps are the steps of a VM job, in both directions.
func (g *rig) vmSteps() (up, down []step) {
	up = []step{g.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureLaunchTemplate, g.bootstrapped}
	down = []step{g.p.RemoveVMs, g.p.RemoveLaunchTemplate, g.p.RemoveIdentity, g.p.RemoveNetwork}
	spec, err := g.job.VMSpec()
	if err != nil {
		g.Fatal(err)
	}
	if spec.LoadBalancer != nil {
		up = append(up, g.p.EnsureLoadBalancer, g.p.EnsureTargetGroup, g.p.EnsureListener, g.p.EnsureRecord)
		down = append([]step{g.p.RemoveRecord, g.p.RemoveListener, g.p.RemoveTargetGroup, g.p.RemoveLoadBalancer}, down...)
	}
	return up, down
}

// bootstrapped makes the VMs and waits for their sentinels, as stepCreateVMs does.
func (g *rig) bootstrapped(ctx context.Context, r *pipeline.Run) error {
	if err := g.p.EnsureVMs(ctx, r); err != nil || r.Mode != pipeline.Apply {
		return err
	}
	var waiting []job.VMInfo
	for _, vm := range r.Job.Config.InfraConfig.VMs {
		if vm.State != job.VMReady {
			waiting = append(waiting, vm)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	probes, err := g.p.Probe(ctx, r, waiting)
	if err != nil {
		return err
	}
	now, pending := r.Now(), ""
	for i := range r.Job.Config.InfraConfig.VMs {
		vm := &r.Job.Config.InfraConfig.VMs[i]
		if vm.State == job.VMReady {
			continue
		}
		switch probe := probes[vm.InstanceID]; probe.State {
		case cloud.ProbeReady:
			vm.State, vm.SentinelSeenAt = job.VMReady, &now
		case cloud.ProbeFailed:
			return pipeline.Fatal("bootstrap-failed", vm.Name+": "+probe.Detail, "Look.")
		default:
			pending = vm.Name + " " + string(probe.State) + " " + probe.Detail
		}
	}
	if pending != "" {
		return pipeline.Wait(10*time.Second, "%s", pending)
	}
	return nil
}

// pools is the pool that the job asks for.
func (g *rig) pools() []job.Pool {
	spec, err := g.job.VMSpec()
	if err != nil {
		g.Fatal(err)
	}
	return []job.Pool{spec.Pool}
}

// read is a resource as the cloud shows it.
func (g *rig) read(id string) map[string]any {
	g.Helper()
	var doc map[string]any
	if err := g.p.get(anything(g.Context()), id, &doc); err != nil {
		g.Fatal(err)
	}
	return doc
}

// nicOf is the interface of the i-th VM.
func (g *rig) nicOf(i int) string {
	g.Helper()
	vm, err := read[armcompute.VirtualMachine](g.Context(), g.p, g.job.Config.InfraConfig.VMs[i].InstanceID)
	if err != nil {
		g.Fatal(err)
	}
	return nicOf(vm.is.Properties.NetworkProfile)
}
