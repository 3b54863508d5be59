package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A fleet is the VMs of a fixed pool in one pass.
//
// Each VM is an object of its own. Where it is tried is part of its ID and of its
// token's arguments, so the zone is committed to the ledger before the insert
// leaves: after a crash the same insert is repeated with the same request ID, and
// only a failure that proves that no VM was made moves it on to the next zone
// (failure kinds A1, A14). Stock-outs come late, as the error of an operation
// that was accepted (failure kind G7).
type fleet struct {
	p     *Provider
	r     *pipeline.Run
	count int // of VMs that the spec asks for

	mu   sync.Mutex
	seen map[string]*compute.Instance // by ID, as the cloud has described them in this pass
}

// note keeps what the cloud says of a VM.
func (f *fleet) note(i *compute.Instance) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[rel(i.SelfLink)] = i
}

// ensureFixed makes N VMs by name, spread over the zones.
func (p *Provider) ensureFixed(ctx context.Context, r *pipeline.Run, spec job.VMSpec) error {
	f := &fleet{p: p, r: r, count: spec.Pool.Count, seen: map[string]*compute.Instance{}}
	return vmpool.Ensure(ctx, r, f)
}

// Rest passes over a pool that this worker has seen running less than a minute
// ago: the step is run again every few seconds while the VMs boot.
func (f *fleet) Rest(ctx context.Context) (done bool, err error) {
	if sight := vmpool.LastSight(f.r, kindInstance); sight != vmpool.Stale {
		return sight == vmpool.Fresh, nil
	}
	for i := range f.r.Job.Config.InfraConfig.VMs {
		vm := &f.r.Job.Config.InfraConfig.VMs[i]
		inst, err := f.p.instances("").lookup().Get(ctx, vm.InstanceID)
		if pipeline.Is(err, pipeline.NotFound) {
			return false, nil // somebody deleted it, perhaps: the pipeline finds out
		}
		if err != nil {
			return false, err
		}
		takeIn(vm, inst, false)
		if vm.State == job.VMStopped {
			return false, pipeline.Fatal("vm-stopped", fmt.Sprintf("%s was started and is now stopped: %s", vm.Name, or(vm.LastError, "the cloud gives no reason")),
				"Start it again, then retry.")
		}
	}
	vmpool.Saw(f.r)
	return true, nil
}

// Place gives every VM of the pool a name and a zone.
func (f *fleet) Place() (changed bool, err error) {
	infra := &f.r.Job.Config.InfraConfig
	if f.r.Mode == pipeline.Apply && (len(infra.Zones) == 0 || len(infra.PrivateSubnetIDs) == 0) {
		return false, vmpool.NoSubnet()
	}
	return vmpool.Place(infra, infra.Zones, f.count, func(i int) job.VMInfo {
		return job.VMInfo{Name: name(f.r, vmpool.Key(i)), State: job.VMPending, ExecMode: job.ExecOSConfig}
	}), nil
}

// Prepare removes what an earlier shape of the pool made, before the spec was
// changed.
func (f *fleet) Prepare(ctx context.Context) error {
	if f.r.Mode != pipeline.Apply {
		return nil
	}
	if err := f.p.removeFixed(ctx, f.r, vmpool.Surplus(f.r, kindInstance, f.count)); err != nil {
		return err
	}
	return f.p.removeFormerGroup(ctx, f.r)
}

// Launch starts the VMs side by side. One that its zone has no room for is
// tried in the next one, until every zone has refused it.
func (f *fleet) Launch(ctx context.Context) error {
	vms := f.r.Job.Config.InfraConfig.VMs
	errs := make([]error, len(vms))
	var parts []func(context.Context) error
	for i := range vms {
		x := f.p.instance(f.r, vmpool.Key(i), launch{fleet: f, zone: vms[i].Zone})
		parts = append(parts, func(ctx context.Context) error {
			_, errs[i] = f.p.ensure(ctx, f.r, x)
			return nil
		})
	}
	_ = pipeline.All(ctx, parts...) // every part's error is kept in errs
	moved := false
	for i, err := range errs {
		if !zoneRefuses(err) {
			continue
		}
		moved = true
		if errs[i], err = f.moveOn(&vms[i], err), nil; err != nil {
			return err
		}
	}
	if !moved {
		return visible(f.r, "the VMs", pipeline.Gravest(errs...))
	}
	if err := f.r.Save(ctx); err != nil {
		return err
	}
	return pipeline.Gravest(errs...)
}

// moveOn puts a VM that its zone has no room for into the next one, and waits
// once all of them have refused it, for a bounded time.
func (f *fleet) moveOn(vm *job.VMInfo, refusal error) error {
	zones := f.r.Job.Config.InfraConfig.Zones
	tries := "zones tried for " + vm.Name
	n, _ := f.r.Recall(tries).(int)
	n++
	f.r.Remember(tries, n)
	text := fmt.Sprintf("no room for %s in %s: %v", f.r.Job.Config.InfraConfig.InstanceType, vm.Zone, refusal)
	vm.LastError = refusal.Error()
	vm.Zone = zones[(slices.Index(zones, vm.Zone)+1)%len(zones)]
	since := f.r.WaitedFor("capacity")
	switch {
	case n%len(zones) != 0:
		return pipeline.Wait(time.Second, "%s in %s instead; %s", vm.Name, vm.Zone, text)
	case since < vmpool.CapacityPatience:
		return pipeline.Wait(20*time.Second, "%s", text)
	}
	return pipeline.Fatal("no-capacity", fmt.Sprintf("%s; tried in %s for %s", text, strings.Join(zones, ", "), vmpool.CapacityPatience),
		"Retry later, or tear the job down and make it with another instanceType or in another region.").From(refusal)
}

// zoneRefuses reports whether a VM was refused for its zone, so that another one
// may do. That its subnet is full is the same everywhere.
func zoneRefuses(err error) bool {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || !strings.HasPrefix(ce.Op, "instances.insert") {
		return false
	}
	if strings.HasPrefix(folded(ce.Code), "ipspaceexhausted") {
		return false
	}
	return ce.Class == pipeline.Capacity || strings.Contains(ce.Message, "does not exist in zone")
}

// Report brings InfraConfig.VMs up to what the pass has seen.
func (f *fleet) Report(ctx context.Context) error {
	return vmpool.Made(f.r, kindInstance, func(vm *job.VMInfo, rec job.Object) error {
		if vm.InstanceID != rec.ID || replaced(*vm, rec) {
			*vm = job.VMInfo{Name: vm.Name, Zone: zoneOf(rec.ID), State: job.VMPending, ExecMode: job.ExecOSConfig, InstanceID: rec.ID}
		}
		vm.LaunchedAt = rec.CreatedAt
		f.mu.Lock()
		inst := f.seen[rec.ID]
		f.mu.Unlock()
		if inst == nil && (vm.PrivateIP == "" || f.r.Mode == pipeline.Verify) {
			var err error
			inst, err = f.p.instances("").lookup().Get(ctx, rec.ID)
			if pipeline.Unless(err, pipeline.NotFound) != nil {
				return err
			}
			if err != nil && f.r.Mode == pipeline.Verify {
				vm.State = job.VMTerminated
			}
		}
		if inst != nil {
			takeIn(vm, inst, false)
		}
		return nil
	})
}

// replaced reports whether a VM was made anew since: it has its forerunner's ID.
func replaced(vm job.VMInfo, rec job.Object) bool {
	return vm.LaunchedAt != nil && rec.CreatedAt != nil && rec.CreatedAt.Sub(*vm.LaunchedAt) > time.Second
}

// takeIn brings one VM's record up to what the cloud says of it.
func takeIn(vm *job.VMInfo, i *compute.Instance, adopted bool) {
	if z := zoneOf(rel(i.SelfLink)); z != "" {
		vm.Zone = z
	}
	if len(i.NetworkInterfaces) > 0 && i.NetworkInterfaces[0].NetworkIP != "" {
		vm.PrivateIP = i.NetworkInterfaces[0].NetworkIP
	}
	vm.ExecMode = job.ExecOSConfig
	switch i.Status {
	case "RUNNING", "REPAIRING":
		switch {
		case adopted || vm.SentinelSeenAt != nil || vm.State == job.VMReady:
			vm.State, vm.LastError = job.VMReady, ""
		case vm.State != job.VMFailed:
			vm.State = job.VMBootstrapping
		}
	case "STOPPING", "PENDING_STOP", "STOPPED", "TERMINATED", "SUSPENDING", "SUSPENDED":
		vm.State, vm.LastError = job.VMStopped, instanceSeen(i, false).Reason
	case "DEPROVISIONING":
		vm.State, vm.LastError = job.VMTerminating, instanceSeen(i, false).Reason
	default:
		vm.State = job.VMPending
	}
}
