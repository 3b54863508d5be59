package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// How long a pool is tried again when no zone has room for it (failure kinds
// G4, G5, G8), and how often VMs that run are looked at while they boot.
const (
	capacityPatience = 10 * time.Minute
	lookAgain        = time.Minute
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
	shape shape
}

func fleetSeen(r *pipeline.Run) string { return fmt.Sprintf("fleet seen after %d doubts", r.Doubts()) }

// rested reports whether the worker has seen the pool run less than a minute
// ago: the step is run again every few seconds while the VMs boot.
func rested(r *pipeline.Run) bool {
	seen, ok := r.Recall(fleetSeen(r)).(time.Time)
	if !ok || r.Mode != pipeline.Apply {
		return false
	}
	for _, o := range r.Objects() {
		if (o.Kind == kindVM || o.Kind == kindScaleSet) && o.State == job.ObjectCreated && o.Reason != "" {
			return false // it is being replaced
		}
	}
	return r.Pace.Cloud(r.Now().Sub(seen)) < lookAgain
}

// ensureFixed makes N VMs by name, spread over the zones.
func (p *Provider) ensureFixed(ctx context.Context, r *pipeline.Run, spec job.VMSpec) error {
	if rested(r) {
		return nil
	}
	f := fleet{p: p, r: r, shape: shape{p: p, r: r, spec: spec}}
	moved, err := f.place(spec.Pool.Count)
	if err != nil {
		return err
	}
	if moved {
		if err := r.Save(ctx); err != nil {
			return err
		}
	}
	if f.shape, err = p.shape(ctx, r, spec); err != nil {
		return err
	}
	if r.Mode == pipeline.Apply {
		if err := p.removeFixed(ctx, r, surplusKeys(r, spec.Pool.Count)); err != nil {
			return err
		}
	}
	if _, err := r.Ensure(ctx, p.scaleSet(r, f.shape, true).resource()); err != nil {
		return err
	}
	verdict := f.launch(ctx)
	if r.Mode == pipeline.Plan {
		return verdict
	}
	verdict = pipeline.Gravest(verdict, f.report(ctx))
	if verdict == nil && r.Mode == pipeline.Apply {
		r.Remember(fleetSeen(r), r.Now())
	}
	return verdict
}

// place gives every VM of the pool a name and a zone, keeping those that have
// one.
func (f fleet) place(count int) (changed bool, err error) {
	infra := &f.r.Job.Config.InfraConfig
	if len(infra.PrivateSubnetIDs) == 0 && f.r.Mode == pipeline.Apply {
		return false, pipeline.Fatal("no-subnet", "the network has no private subnet to put VMs in", "Retry from the network's step on, or name subnets in spec.existing.subnetIds.")
	}
	vms := make([]job.VMInfo, 0, count)
	for i := range count {
		vm := job.VMInfo{Name: vmName(f.r, vmKey(i)), State: job.VMPending, ExecMode: job.ExecAzureRunCmd}
		if had := infra.VM(vm.Name); had != nil {
			vm = *had
		}
		if len(infra.Zones) > 0 && !slices.Contains(infra.Zones, vm.Zone) {
			vm.Zone = infra.Zones[i%len(infra.Zones)]
		}
		vms = append(vms, vm)
	}
	changed = !slices.EqualFunc(vms, infra.VMs, func(a, b job.VMInfo) bool { return a.Name == b.Name && a.Zone == b.Zone })
	infra.VMs = vms
	return changed, nil
}

// launch makes the VMs side by side. One that its zone has no room for is tried
// in the next zone.
func (f fleet) launch(ctx context.Context) error {
	vms := f.r.Job.Config.InfraConfig.VMs
	errs := make([]error, len(vms))
	var parts []func(context.Context) error
	for i := range vms {
		parts = append(parts, func(ctx context.Context) error {
			_, errs[i] = f.r.Ensure(ctx, f.p.vm(f.r, f.shape, vmKey(i), i).resource())
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
	text := fmt.Sprintf("no room for %s in %s: %v", infra.InstanceType, where, refusal)
	if r.WaitedFor("capacity") < capacityPatience {
		return pipeline.Wait(20*time.Second, "%s", text)
	}
	return pipeline.Fatal("no-capacity", fmt.Sprintf("%s; tried for %s", text, capacityPatience),
		"Retry later, or tear the job down and make it with another instanceType or in another region.").From(refusal)
}

// report brings InfraConfig.VMs up to what the cloud shows, and shuts the disks.
func (f fleet) report(ctx context.Context) error {
	infra := &f.r.Job.Config.InfraConfig
	var verdict error
	for i := range infra.VMs {
		vm := &infra.VMs[i]
		rec, ok := f.r.Object(kindVM, vmKey(i))
		if !ok || rec.State != job.ObjectCreated {
			if f.r.Mode == pipeline.Verify && vm.InstanceID != "" {
				vm.State = job.VMTerminated
			}
			continue
		}
		if vm.InstanceID != rec.ID || vm.LaunchedAt == nil || !vm.LaunchedAt.Equal(*rec.CreatedAt) {
			*vm = job.VMInfo{Name: vm.Name, Zone: vm.Zone, State: job.VMPending, ExecMode: job.ExecAzureRunCmd, InstanceID: rec.ID, LaunchedAt: rec.CreatedAt}
		}
		x, err := read[armcompute.VirtualMachine](ctx, f.p, rec.ID+withView)
		if pipeline.Is(err, pipeline.NotFound) {
			if f.r.Mode == pipeline.Verify {
				vm.State = job.VMTerminated
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := f.p.takeIn(ctx, vm, x, false); err != nil {
			return err
		}
		if f.r.Mode == pipeline.Apply && vm.State == job.VMStopped {
			verdict = pipeline.Fatal("vm-stopped", fmt.Sprintf("%s was started and is now stopped (%s)", vm.Name, vm.LastError), "Start it again, then retry.")
			continue
		}
		if sp := value(x.is.Properties).StorageProfile; sp != nil && sp.OSDisk != nil && sp.OSDisk.ManagedDisk != nil && x.Properties.ProvisioningState == "Succeeded" {
			verdict = pipeline.Gravest(verdict, f.p.closeDisk(ctx, f.r, value(sp.OSDisk.ManagedDisk.ID)))
		}
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
