package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A fleet is the VMs of a fixed pool in one pass.
//
// Each VM is an object of its own, with a token of its own. Where it is tried
// is part of the token's arguments, so the zone is committed to the ledger
// before the launch leaves: after a crash the same launch is repeated with the
// same token, and only a refusal that proves that nothing was launched moves
// the VM on to the next zone (failure kinds A1, A14).
type fleet struct {
	p     *Provider
	r     *pipeline.Run
	count int // of VMs that the spec asks for

	mu    sync.Mutex
	seen  map[string]ec2types.Instance // by ID, as the cloud has described them in this pass
	fresh map[string]bool              // by ID: described by the launch itself
}

// note keeps what the cloud says of an instance.
func (f *fleet) note(i ec2types.Instance, fresh bool) {
	if f == nil || i.InstanceId == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[*i.InstanceId] = i
	f.fresh[*i.InstanceId] = fresh
}

func (f *fleet) justLaunched(id string) (ec2types.Instance, bool) {
	if f == nil {
		return ec2types.Instance{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[id], f.fresh[id]
}

// ensureFixed makes N VMs by name, spread over the zones.
func (p *Provider) ensureFixed(ctx context.Context, r *pipeline.Run, spec job.VMSpec) error {
	f := &fleet{p: p, r: r, count: spec.Pool.Count, seen: map[string]ec2types.Instance{}, fresh: map[string]bool{}}
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
		inst, err := f.p.instances().Get(ctx, vm.InstanceID)
		if pipeline.Is(err, pipeline.NotFound) {
			continue // one miss proves nothing
		}
		if err != nil {
			return false, plain(err)
		}
		takeIn(vm, inst, false)
		if err := f.ended(ctx, i, vm); err != nil {
			return false, err
		}
	}
	vmpool.Saw(f.r)
	return true, nil
}

// ended stops the job because a VM ended while it booted. One that is gone is
// struck from the ledger first, so that a retry launches another.
func (f *fleet) ended(ctx context.Context, i int, vm *job.VMInfo) error {
	switch vm.State {
	case job.VMTerminating:
		return pipeline.Wait(5*time.Second, "%s (%s), which is ending: %s", vm.Name, vm.InstanceID, vm.LastError)
	case job.VMTerminated:
		if err := f.r.Remove(ctx, f.p.instance(f.r, vmpool.Key(i), launch{leaving: true})); err != nil {
			return err
		}
		return pipeline.Fatal("vm-ended", fmt.Sprintf("%s (%s) was started and has ended: %s", vm.Name, vm.InstanceID, or(vm.LastError, "the cloud gives no reason")),
			"Put right what the reason names, then retry: a new one is made.")
	case job.VMStopped:
		return pipeline.Fatal("vm-stopped", fmt.Sprintf("%s (%s) was started and is now stopped: %s", vm.Name, vm.InstanceID, or(vm.LastError, "the cloud gives no reason")),
			"Start it again, then retry.")
	}
	return nil
}

// Place gives every VM of the pool a name and a zone.
func (f *fleet) Place() (changed bool, err error) {
	zones := f.zones()
	if len(zones) == 0 && f.r.Mode == pipeline.Apply {
		return false, vmpool.NoSubnet()
	}
	return vmpool.Place(&f.r.Job.Config.InfraConfig, zones, f.count, func(i int) job.VMInfo {
		return job.VMInfo{Name: name(f.r, vmpool.Key(i), 63), State: job.VMPending, ExecMode: job.ExecSSM}
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

// zones are those that have a private subnet, in order.
func (f *fleet) zones() []string {
	infra := f.r.Job.Config.InfraConfig
	return infra.Zones[:min(len(infra.Zones), len(infra.PrivateSubnetIDs))]
}

func (f *fleet) subnet(zone string) string {
	infra := f.r.Job.Config.InfraConfig
	if i := slices.Index(f.zones(), zone); i >= 0 {
		return infra.PrivateSubnetIDs[i]
	}
	return ""
}

// Launch starts the VMs side by side. One that its zone has no room for is
// tried in the next one, until every zone has refused it.
func (f *fleet) Launch(ctx context.Context) error {
	vms := f.r.Job.Config.InfraConfig.VMs
	zones := f.zones()
	errs := make([]error, len(vms))
	todo := make([]int, len(vms))
	for i := range vms {
		todo[i] = i
	}
	for tried := 1; ; tried++ {
		var parts []func(context.Context) error
		for _, i := range todo {
			x := f.p.instance(f.r, vmpool.Key(i), launch{fleet: f, subnet: f.subnet(vms[i].Zone)})
			parts = append(parts, func(ctx context.Context) error {
				_, errs[i] = f.r.Ensure(ctx, x)
				return nil
			})
		}
		_ = pipeline.All(ctx, parts...) // every part's error is kept in errs
		todo = slices.DeleteFunc(todo, func(i int) bool { return !zoneRefuses(errs[i]) })
		if len(todo) == 0 {
			f.r.WaitOver("capacity")
			return visible(f.r, "the VMs", pipeline.Gravest(errs...))
		}
		refusal := errs[todo[0]]
		for _, i := range todo {
			vms[i].LastError = errs[i].Error()
			if len(zones) > 0 {
				vms[i].Zone = zones[(slices.Index(zones, vms[i].Zone)+1)%len(zones)]
			}
			errs[i] = nil
		}
		if err := f.r.Save(ctx); err != nil {
			return err
		}
		if tried >= len(zones) {
			return pipeline.Gravest(pipeline.Gravest(errs...), vmpool.NoRoom(f.r, fmt.Sprintf("no room for %s in %s", f.r.Job.Config.InfraConfig.InstanceType, strings.Join(zones, ", ")), refusal))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// zoneRefuses reports whether a launch was refused for its zone, so that
// another one may do.
func zoneRefuses(err error) bool {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || !strings.HasPrefix(ce.Op, "RunInstances") {
		return false
	}
	return ce.Class == pipeline.Capacity || ce.Code == "Unsupported" && strings.Contains(strings.ToLower(ce.Message), "availability zone")
}

// Report brings InfraConfig.VMs up to what the pass has seen.
func (f *fleet) Report(ctx context.Context) error {
	return vmpool.Made(f.r, kindInstance, func(vm *job.VMInfo, rec job.Object) error {
		if vm.InstanceID != rec.ID {
			*vm = job.VMInfo{Name: vm.Name, Zone: vm.Zone, State: job.VMPending, ExecMode: job.ExecSSM, InstanceID: rec.ID}
		}
		vm.LaunchedAt = rec.CreatedAt
		f.mu.Lock()
		inst, known := f.seen[rec.ID]
		f.mu.Unlock()
		if !known && (vm.PrivateIP == "" || f.r.Mode == pipeline.Verify) {
			var err error
			inst, err = f.p.instances().Get(ctx, rec.ID)
			if err != nil && !pipeline.Is(err, pipeline.NotFound) {
				return plain(err)
			}
			known = err == nil
			if !known && f.r.Mode == pipeline.Verify {
				vm.State = job.VMTerminated
			}
		}
		if known {
			takeIn(vm, inst, false)
		}
		return nil
	})
}

// takeIn brings one VM's record up to what the cloud says of its instance.
func takeIn(vm *job.VMInfo, i ec2types.Instance, adopted bool) {
	if i.Placement != nil && aws.ToString(i.Placement.AvailabilityZone) != "" {
		vm.Zone = *i.Placement.AvailabilityZone
	}
	if ip := aws.ToString(i.PrivateIpAddress); ip != "" {
		vm.PrivateIP = ip
	}
	vm.ExecMode = job.ExecSSM
	switch stateOf(i) {
	case ec2types.InstanceStateNamePending:
		vm.State = job.VMPending
	case ec2types.InstanceStateNameRunning:
		switch {
		case adopted || vm.SentinelSeenAt != nil || vm.State == job.VMReady:
			vm.State, vm.LastError = job.VMReady, ""
		case vm.State != job.VMFailed:
			vm.State = job.VMBootstrapping
		}
	case ec2types.InstanceStateNameStopping, ec2types.InstanceStateNameStopped:
		vm.State, vm.LastError = job.VMStopped, endReason(i)
	case ec2types.InstanceStateNameShuttingDown:
		vm.State, vm.LastError = job.VMTerminating, endReason(i)
	case ec2types.InstanceStateNameTerminated:
		vm.State, vm.LastError = job.VMTerminated, endReason(i)
	}
}
