package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// setAspects compares what of a set does not change by itself: its number of VMs
// does.
func (p *Provider) setAspects(r *pipeline.Run, x resource[armcompute.VirtualMachineScaleSet], mode armcompute.OrchestrationMode) []pipeline.Aspect {
	f := value(x.is.Properties)
	aspects := []pipeline.Aspect{{Name: "orchestration", Wanted: string(mode), Seen: string(value(f.OrchestrationMode))}}
	if mode == armcompute.OrchestrationModeFlexible {
		return aspects
	}
	size := ""
	if x.is.SKU != nil {
		size = value(x.is.SKU.Name)
	}
	return append(aspects, watched(r,
		pipeline.Aspect{Name: "instance type", Wanted: r.Job.Config.InfraConfig.InstanceType, Seen: size},
		pipeline.Aspect{Name: "zones", Wanted: sorted(r.Job.Config.InfraConfig.Zones), Seen: sorted(x.Zones)})...)
}

// ensureSet makes a uniform set, with its least and most in an autoscale setting
// without rules, and is done when its VMs run.
func (p *Provider) ensureSet(ctx context.Context, r *pipeline.Run, spec job.VMSpec) error {
	if vmpool.LastSight(r, kindVM, kindScaleSet) == vmpool.Fresh {
		return nil
	}
	s, err := p.shape(ctx, r, spec)
	if err != nil {
		return err
	}
	x := p.scaleSet(r, s, false)
	if _, err := r.Ensure(ctx, x.resource()); err != nil {
		if noRoom(err) && r.Mode == pipeline.Apply {
			return p.growAgain(ctx, r, x.id, spec, err)
		}
		return err
	}
	r.WaitOver("capacity")
	learn(r, &r.Job.Config.InfraConfig.ScalingGroupID, x.id)
	if _, err := r.Ensure(ctx, p.autoscale(r, spec.Pool).resource()); err != nil {
		return err
	}
	if r.Mode == pipeline.Plan {
		return nil
	}
	members, err := p.members(ctx, x.id)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	if err := p.takeMembers(ctx, r.Job, members); err != nil {
		return err
	}
	if r.Mode == pipeline.Verify {
		return nil
	}
	if err := p.membersRun(r, spec, members); err != nil {
		return err
	}
	for _, m := range members {
		if sp := value(m.is.Properties).StorageProfile; sp != nil && sp.OSDisk != nil && sp.OSDisk.ManagedDisk != nil {
			if err := p.closeDisk(ctx, r, value(sp.OSDisk.ManagedDisk.ID)); err != nil {
				return err
			}
		}
	}
	vmpool.Saw(r)
	return nil
}

// growAgain asks a set that has failed for want of room for its VMs once more:
// what it has made stays.
func (p *Provider) growAgain(ctx context.Context, r *pipeline.Run, id string, spec job.VMSpec, refusal error) error {
	var fatal *pipeline.FatalError
	verdict := noCapacity(r, refusal)
	if !errors.As(refusal, &fatal) || errors.As(verdict, new(*pipeline.FatalError)) {
		return verdict
	}
	_, op, err := send[struct{}](ctx, p, http.MethodPatch, id, armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: new(int64(spec.Pool.VMCount()))}}, nil)
	op.remember(r, id)
	return pipeline.Gravest(err, verdict)
}

// membersPatience is how long a set may take to bring its VMs up, once it says
// itself that it is made.
const membersPatience = 30 * time.Minute

// membersRun waits for the VMs that a set starts with.
func (p *Provider) membersRun(r *pipeline.Run, spec job.VMSpec, members []resource[armcompute.VirtualMachineScaleSetVM]) error {
	running := 0
	var off []string
	for _, vm := range r.Job.Config.InfraConfig.VMs {
		switch vm.State {
		case job.VMStopped:
			off = append(off, vm.Name)
		case job.VMBootstrapping, job.VMReady, job.VMFailed:
			running++
		}
	}
	want := spec.Pool.VMCount()
	if spec.Pool.Min != nil && len(members) > 0 {
		want = min(want, max(len(members), *spec.Pool.Min)) // it may have been scaled since
	}
	switch {
	case len(off) > 0:
		return pipeline.Fatal("vm-stopped", "VMs of the scale set are stopped: "+strings.Join(off, ", "), "Start them again, then retry.")
	case running < want && r.WaitedFor("members of the set") > membersPatience:
		return pipeline.Fatal("timed-out", fmt.Sprintf("%d of %d VMs of the scale set run after %s", running, want, membersPatience),
			"Look at the scale set's instances in the portal for what keeps the others, then retry.")
	case running < want:
		return pipeline.Wait(settling*2, "%d more VMs of the scale set to run", want-running)
	}
	r.WaitOver("members of the set")
	return nil
}

// members are the VMs of a uniform set, with how they are.
func (p *Provider) members(ctx context.Context, set string) ([]resource[armcompute.VirtualMachineScaleSetVM], error) {
	return lookup.Once(ctx, "members "+set, func(ctx context.Context) ([]resource[armcompute.VirtualMachineScaleSetVM], error) {
		return list[resource[armcompute.VirtualMachineScaleSetVM]](ctx, p, set+"/virtualMachines"+withView)
	})
}

// interfaces are the interfaces of a set's VMs, by the VM's ID. Compute answers
// this in Network's words of 2018 ("Network Interfaces - List Virtual Machine
// Scale Set Network Interfaces").
func (p *Provider) interfaces(ctx context.Context, set string) (map[string]armnetwork.Interface, error) {
	all, err := lookup.Once(ctx, "interfaces "+set, func(ctx context.Context) ([]armnetwork.Interface, error) {
		return list[armnetwork.Interface](ctx, p, set+"/networkInterfaces?api-version=2018-10-01")
	})
	out := map[string]armnetwork.Interface{}
	for _, n := range all {
		if n.Properties != nil && n.Properties.VirtualMachine != nil {
			out[strings.ToLower(value(n.Properties.VirtualMachine.ID))] = n
		}
	}
	return out, err
}

// takeMembers brings InfraConfig.VMs up to the VMs that a set has now.
func (p *Provider) takeMembers(ctx context.Context, j *job.Job, members []resource[armcompute.VirtualMachineScaleSetVM]) error {
	infra := &j.Config.InfraConfig
	var nics map[string]armnetwork.Interface
	if len(members) > 0 {
		var err error
		nics, err = p.interfaces(ctx, parentOf(members[0].ID))
		if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
			return err
		}
	}
	vms := make([]job.VMInfo, 0, len(members))
	for _, m := range members {
		vm := job.VMInfo{Name: m.Name, InstanceID: m.ID, State: job.VMPending, ExecMode: job.ExecAzureRunCmd}
		if had := infra.VM(m.Name); had != nil && same(had.InstanceID, m.ID) {
			vm = *had
		}
		f := value(m.is.Properties)
		if vm.LaunchedAt == nil {
			vm.LaunchedAt = f.TimeCreated
		}
		if len(m.Zones) > 0 {
			vm.Zone = m.Zones[0]
		}
		if n, ok := nics[strings.ToLower(m.ID)]; ok {
			vm.PrivateIP = addressOf(n.Properties)
		}
		on := ""
		if f.InstanceView != nil {
			on = powerOf(f.InstanceView.Statuses)
		}
		judge(&vm, m.Properties.ProvisioningState, on, !j.Owns())
		if vm.State == job.VMBootstrapping && healthyMember(f) {
			// Nobody looks for the sentinel of a VM that the set has made since the
			// job was done; its health check is only passed by what the bootstrap
			// has started.
			vm.State = job.VMReady
		}
		vms = append(vms, vm)
	}
	slices.SortFunc(vms, func(a, b job.VMInfo) int { return memberNumber(a.InstanceID) - memberNumber(b.InstanceID) })
	infra.VMs = vms
	return nil
}

func healthyMember(f armcompute.VirtualMachineScaleSetVMProperties) bool {
	v := f.InstanceView
	return v != nil && v.VMHealth != nil && v.VMHealth.Status != nil && value(v.VMHealth.Status.Code) == "HealthState/healthy"
}

func memberNumber(id string) int {
	n, err := strconv.Atoi(lastName(id))
	if err != nil {
		return 0
	}
	return n
}

// An autoscaleSetting keeps a set's number of VMs between its least and most. It
// has no rules: the job sets no policy ("Autoscale Settings").
type autoscaleSetting struct {
	Location   string              `json:"location"`
	Tags       map[string]*string  `json:"tags,omitempty"`
	Properties autoscaleProperties `json:"properties"`
}

type autoscaleProperties struct {
	Enabled   bool               `json:"enabled"`
	TargetURI string             `json:"targetResourceUri"`
	Profiles  []autoscaleProfile `json:"profiles"`
}

type autoscaleProfile struct {
	Name     string `json:"name"`
	Capacity struct {
		Minimum string `json:"minimum"`
		Maximum string `json:"maximum"`
		Default string `json:"default"`
	} `json:"capacity"`
	Rules []struct{} `json:"rules"`
}

const typeAutoscale = "Microsoft.Insights/autoscaleSettings"

func (p *Provider) autoscale(r *pipeline.Run, pool job.Pool) object[autoscaleSetting] {
	profile := autoscaleProfile{Name: "bounds", Rules: []struct{}{}}
	profile.Capacity.Minimum, profile.Capacity.Maximum = strconv.Itoa(value(pool.Min)), strconv.Itoa(value(pool.Max))
	profile.Capacity.Default = strconv.Itoa(value(pool.Desired))
	set := p.idIn(r, typeScaleSet, r.Job.ResourceName(setKey, longestScaleSet))
	return object[autoscaleSetting]{
		p: p, r: r, kind: kindAutoscale, key: "bounds", id: p.idIn(r, typeAutoscale, r.Job.ResourceName("scale", longestName)),
		body: func() any {
			return autoscaleSetting{Location: p.region, Tags: tagsFor(r.Job, "bounds"), Properties: autoscaleProperties{Enabled: true, TargetURI: set, Profiles: []autoscaleProfile{profile}}}
		},
		see: func(_ context.Context, x resource[autoscaleSetting]) ([]pipeline.Aspect, error) {
			seen := "none"
			if len(x.is.Properties.Profiles) > 0 {
				c := x.is.Properties.Profiles[0].Capacity
				seen = c.Minimum + " to " + c.Maximum
			}
			return watched(r, pipeline.Aspect{Name: "least and most VMs", Wanted: fmt.Sprintf("%d to %d", value(pool.Min), value(pool.Max)), Seen: seen}), nil
		},
	}
}
