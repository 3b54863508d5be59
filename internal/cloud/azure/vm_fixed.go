package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// setKey is the key of the pool's scale set.
const setKey = "vms"

// scaleSet is the pool's set: a flexible one, without a model, that the VMs are
// put into by name, or a uniform one that makes them.
func (p *Provider) scaleSet(r *pipeline.Run, s shape, flexible bool) object[armcompute.VirtualMachineScaleSet] {
	name := r.Job.ResourceName(setKey, longestScaleSet)
	wanted := armcompute.OrchestrationModeUniform
	if flexible {
		wanted = armcompute.OrchestrationModeFlexible
	}
	return object[armcompute.VirtualMachineScaleSet]{
		p: p, r: r, kind: kindScaleSet, key: setKey, id: p.idIn(r, typeScaleSet, name),
		body: func() any {
			if !flexible {
				return s.setBody(r.Job.ResourceName("vm", longestComputer))
			}
			return armcompute.VirtualMachineScaleSet{
				Location: &p.region, Tags: tagsFor(r.Job, setKey), Zones: to.SliceOfPtrs(r.Job.Config.InfraConfig.Zones...),
				Properties: &armcompute.VirtualMachineScaleSetProperties{OrchestrationMode: &wanted, PlatformFaultDomainCount: new(int32(1)), SinglePlacementGroup: new(false)},
			}
		},
		see: func(_ context.Context, x resource[armcompute.VirtualMachineScaleSet]) ([]pipeline.Aspect, error) {
			return p.setAspects(r, x, wanted), nil
		},
		inside: p.othersInSet,
	}
}

// othersInSet names the VMs of somebody else in a set: deleting it would take
// them along.
func (p *Provider) othersInSet(ctx context.Context, id string) ([]string, error) {
	filter := "%27virtualMachineScaleSet%2Fid%27%20eq%20%27" + strings.ReplaceAll(id, "/", "%2F") + "%27"
	all, err := list[meta](ctx, p, p.groupID(segment(id, "resourceGroups"))+"/providers/"+typeVM+"?$filter="+filter)
	set, rerr := read[armcompute.VirtualMachineScaleSet](ctx, p, id)
	if rerr != nil {
		return nil, rerr
	}
	var names []string
	for _, vm := range all {
		if vm.Tags[job.MarkOwner] != set.Tags[job.MarkOwner] {
			names = append(names, "VM "+vm.Name)
		}
	}
	return names, err
}

// A fleet is the VMs of a fixed pool in one pass.
type fleet struct {
	p     *Provider
	r     *pipeline.Run
	spec  job.VMSpec
	shape shape
}

// ensureFixed makes N VMs by name, spread over the zones.
func (p *Provider) ensureFixed(ctx context.Context, r *pipeline.Run, spec job.VMSpec) error {
	return vmpool.Ensure(ctx, r, &fleet{p: p, r: r, spec: spec})
}

// Rest passes over a pool that this worker has seen running less than a minute
// ago.
func (f *fleet) Rest(context.Context) (done bool, err error) {
	return vmpool.LastSight(f.r, kindVM, kindScaleSet) == vmpool.Fresh, nil
}

// Place gives every VM of the pool a name and a zone.
func (f *fleet) Place() (changed bool, err error) {
	infra := &f.r.Job.Config.InfraConfig
	if len(infra.PrivateSubnetIDs) == 0 && f.r.Mode == pipeline.Apply {
		return false, vmpool.NoSubnet()
	}
	return vmpool.Place(infra, infra.Zones, f.spec.Pool.Count, func(i int) job.VMInfo {
		return job.VMInfo{Name: vmName(f.r, vmpool.Key(i)), State: job.VMPending, ExecMode: job.ExecAzureRunCmd}
	}), nil
}

// Prepare makes the set that the VMs are put into, after it has removed the VMs
// that the spec no longer asks for.
func (f *fleet) Prepare(ctx context.Context) (err error) {
	if f.shape, err = f.p.shape(ctx, f.r, f.spec); err != nil {
		return err
	}
	if f.r.Mode == pipeline.Apply {
		if err := f.p.removeFixed(ctx, f.r, vmpool.Surplus(f.r, kindVM, f.spec.Pool.Count)); err != nil {
			return err
		}
	}
	_, err = f.r.Ensure(ctx, f.p.scaleSet(f.r, f.shape, true).resource())
	return err
}

// Launch makes the VMs side by side. One that its zone has no room for is tried
// in the next zone.
func (f *fleet) Launch(ctx context.Context) error {
	vms := f.r.Job.Config.InfraConfig.VMs
	errs := make([]error, len(vms))
	var parts []func(context.Context) error
	for i := range vms {
		parts = append(parts, func(ctx context.Context) error {
			_, errs[i] = f.r.Ensure(ctx, f.p.vm(f.r, f.shape, vmpool.Key(i), i).resource())
			return nil
		})
	}
	_ = pipeline.All(ctx, parts...) // every part's error is kept in errs
	var refusal error
	zones := f.r.Job.Config.InfraConfig.Zones
	for i := range vms {
		if !noRoom(errs[i]) {
			continue
		}
		refusal = errs[i]
		vms[i].LastError = errs[i].Error()
		if len(zones) > 0 {
			vms[i].Zone = zones[(slices.Index(zones, vms[i].Zone)+1)%len(zones)]
		}
		errs[i] = nil
	}
	if refusal == nil {
		if pipeline.Gravest(errs...) == nil {
			f.r.WaitOver("capacity")
		}
		return pipeline.Gravest(errs...)
	}
	if err := f.r.Save(ctx); err != nil {
		return err
	}
	return pipeline.Gravest(pipeline.Gravest(errs...), noCapacity(f.r, refusal))
}

// noRoom reports whether a VM could not be made for want of room, so that another
// zone or another time may do: refused at once, or accepted and failed. A size
// that is not offered to the subscription at all is neither (failure kind G8).
func noRoom(err error) bool {
	var fatal *pipeline.FatalError
	if errors.As(err, &fatal) {
		text := fatal.Problem.Message
		return fatal.Problem.Code == "object-failed" && (strings.Contains(text, "AllocationFailed") || strings.Contains(text, "Overconstrained"))
	}
	return pipeline.Is(err, pipeline.Capacity)
}

// noCapacity waits for room, for a bounded time. What was accepted and has failed
// is replaced by the next pass.
func noCapacity(r *pipeline.Run, refusal error) error {
	infra := &r.Job.Config.InfraConfig
	where := r.Job.Region
	if len(infra.Zones) > 0 {
		where += ", zones " + strings.Join(infra.Zones, ", ")
	}
	return vmpool.NoRoom(r, fmt.Sprintf("no room for %s in %s", infra.InstanceType, where), refusal)
}

// Report brings InfraConfig.VMs up to what the cloud shows, and shuts the disks.
func (f *fleet) Report(ctx context.Context) error {
	var verdict error
	err := vmpool.Made(f.r, kindVM, func(vm *job.VMInfo, rec job.Object) error {
		if vm.InstanceID != rec.ID || vm.LaunchedAt == nil || !vm.LaunchedAt.Equal(*rec.CreatedAt) {
			*vm = job.VMInfo{Name: vm.Name, Zone: vm.Zone, State: job.VMPending, ExecMode: job.ExecAzureRunCmd, InstanceID: rec.ID, LaunchedAt: rec.CreatedAt}
		}
		x, err := read[armcompute.VirtualMachine](ctx, f.p, rec.ID+withView)
		if pipeline.Is(err, pipeline.NotFound) {
			if f.r.Mode == pipeline.Verify {
				vm.State = job.VMTerminated
			}
			return nil
		}
		if err != nil {
			return err
		}
		if err := f.p.takeIn(ctx, vm, x, false); err != nil {
			return err
		}
		if f.r.Mode == pipeline.Apply && vm.State == job.VMStopped {
			verdict = pipeline.Fatal("vm-stopped", fmt.Sprintf("%s was started and is now stopped (%s)", vm.Name, vm.LastError), "Start it again, then retry.")
			return nil
		}
		if sp := value(x.is.Properties).StorageProfile; sp != nil && sp.OSDisk != nil && sp.OSDisk.ManagedDisk != nil && x.Properties.ProvisioningState == "Succeeded" {
			verdict = pipeline.Gravest(verdict, f.p.closeDisk(ctx, f.r, value(sp.OSDisk.ManagedDisk.ID)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return verdict
}

// takeIn brings one VM's record up to what the cloud says of it.
func (p *Provider) takeIn(ctx context.Context, vm *job.VMInfo, x resource[armcompute.VirtualMachine], adopted bool) error {
	if len(x.Zones) > 0 && vm.Zone == "" { // where it is to be is the fleet's to say
		vm.Zone = x.Zones[0]
	}
	vm.ExecMode = job.ExecAzureRunCmd
	judge(vm, x.Properties.ProvisioningState, power(x.is.Properties), adopted)
	if vm.PrivateIP != "" {
		return nil
	}
	nic := nicOf(value(x.is.Properties).NetworkProfile)
	if nic == "" {
		return nil
	}
	n, err := read[armnetwork.Interface](ctx, p, nic)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound, pipeline.Denied)
	}
	vm.PrivateIP = addressOf(n.is.Properties)
	return nil
}

// judge says where a VM stands by its two states.
func judge(vm *job.VMInfo, provisioning, power string, adopted bool) {
	switch {
	case provisioning == "Deleting":
		vm.State = job.VMTerminating
	case provisioning == "Failed":
		vm.State, vm.LastError = job.VMFailed, "its creation failed"
	case power == "stopped" || power == "stopping" || power == "deallocated" || power == "deallocating":
		vm.State, vm.LastError = job.VMStopped, "VM "+power
	case power != "running" || provisioning == "Creating":
		vm.State = job.VMPending
	case adopted || vm.SentinelSeenAt != nil || vm.State == job.VMReady:
		vm.State, vm.LastError = job.VMReady, ""
	case vm.State != job.VMFailed:
		vm.State = job.VMBootstrapping
	}
}
