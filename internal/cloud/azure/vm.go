package azure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// EnsureVMs makes the pool, and is done when every VM runs: a fixed pool is VMs
// by name in a flexible scale set, a scaling group is a uniform one.
func (p *Provider) EnsureVMs(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	if r.Mode != pipeline.Verify {
		r.Job.Config.InfraConfig.ExecMode = job.ExecAzureRunCmd
	}
	if spec.Pool.Mode == job.PoolASG {
		return p.ensureSet(ctx, r, spec)
	}
	return p.ensureFixed(ctx, r, spec)
}

// RemoveVMs deletes the VMs and their scale set, and waits until they are gone
// with their disks and interfaces.
func (p *Provider) RemoveVMs(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	for i := range infra.VMs {
		if vm := &infra.VMs[i]; r.Mode == pipeline.Apply && vm.State != job.VMTerminated {
			vm.State, vm.BootstrapNginxReady = job.VMTerminating, false
		}
	}
	if err := p.removeFixed(ctx, r, vmpool.Keys(r, kindVM)); err != nil {
		return err
	}
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	if _, made := r.Object(kindAutoscale, "bounds"); made || spec.Pool.Mode == job.PoolASG {
		if err := r.Remove(ctx, p.autoscale(r, job.Pool{}).resource()); err != nil {
			return err
		}
	}
	return r.Remove(ctx, p.scaleSet(r, shape{}, false).resource())
}

func (p *Provider) removeFixed(ctx context.Context, r *pipeline.Run, keys []string) error {
	var parts []func(context.Context) error
	for _, key := range keys {
		parts = append(parts, func(ctx context.Context) error {
			x := p.vm(r, shape{}, key, 0)
			if err := r.Remove(ctx, x.resource()); err != nil {
				return err
			}
			return p.removeDisk(ctx, r, lastName(x.id))
		})
	}
	return pipeline.All(ctx, parts...)
}

// removeDisk takes away the disk of a VM that did not take it along: that of one
// whose creation failed can be left. It has the exact name that the job gave it.
func (p *Provider) removeDisk(ctx context.Context, r *pipeline.Run, vm string) error {
	gone := "disk gone " + vm
	if r.Mode != pipeline.Apply || r.Recall(gone) != nil {
		return nil
	}
	id := p.idIn(r, typeDisk, diskName(vm))
	x, err := read[armcompute.Disk](ctx, p, id)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		r.Remember(gone, true)
		return nil
	case err != nil:
		return err
	case value(x.is.ManagedBy) != "":
		return nil // somebody has attached it elsewhere: it is theirs now
	}
	if r.WaitedFor("disk "+id+" to go") > diskPatience {
		return pipeline.Fatal("timed-out", fmt.Sprintf("disk %s is still there %s after its deletion was asked for", lastName(id), diskPatience),
			"Look at it in the portal for what holds it; retry asks again.")
	}
	asked := "disk " + id + " asked to go"
	if last, ok := r.Recall(asked).(time.Time); !ok || r.Pace.Cloud(r.Now().Sub(last)) >= askAgain {
		if _, err := p.remove(ctx, id); pipeline.Unless(err, pipeline.NotFound) != nil {
			return err
		}
		r.Remember(asked, r.Now())
	}
	return pipeline.Wait(settling, "disk %s to go", lastName(id))
}

// How long a disk may take to go, and how long before a deletion that had no
// effect is asked for again.
const (
	diskPatience = 30 * time.Minute
	askAgain     = 20 * time.Second
)

const withView = "?$expand=instanceView"

// vm is one VM of a fixed pool.
func (p *Provider) vm(r *pipeline.Run, s shape, key string, i int) object[armcompute.VirtualMachine] {
	name := vmName(r, key)
	zone := ""
	if had := r.Job.Config.InfraConfig.VM(name); had != nil {
		zone = had.Zone
	}
	return object[armcompute.VirtualMachine]{
		p: p, r: r, kind: kindVM, key: key, id: p.idIn(r, typeVM, name), expand: withView,
		body: func() any { return s.vmBody(key, name, p.scaleSet(r, s, true).id, zone, i) },
		state: func(x resource[armcompute.VirtualMachine]) (pipeline.Status, string) {
			return runs(x.Properties.ProvisioningState, power(x.is.Properties), r.Down)
		},
		see: func(_ context.Context, x resource[armcompute.VirtualMachine]) ([]pipeline.Aspect, error) {
			f := value(x.is.Properties)
			size := ""
			if f.HardwareProfile != nil {
				size = string(value(f.HardwareProfile.VMSize))
			}
			return watched(r, pipeline.Aspect{Name: "instance type", Wanted: r.Job.Config.InfraConfig.InstanceType, Seen: size}), nil
		},
	}
}

// power is the power state of a VM, such as running; "" if it is not shown.
func power(f *armcompute.VirtualMachineProperties) string {
	if f == nil || f.InstanceView == nil {
		return ""
	}
	return powerOf(f.InstanceView.Statuses)
}

func powerOf(statuses []*armcompute.InstanceViewStatus) string {
	for _, s := range statuses {
		if state, ok := strings.CutPrefix(value(s.Code), "PowerState/"); ok {
			return state
		}
	}
	return ""
}

// runs is where a VM stands: made, and on. One that is off is for somebody to
// start again.
func runs(provisioning, power string, leaving bool) (pipeline.Status, string) {
	status := statusOf(provisioning)
	if status != pipeline.Ready || leaving || power == "running" || power == "" {
		return status, provisioning
	}
	return pipeline.Pending, "VM " + power
}

// nicOf is the interface of a VM; "" if it has none yet.
func nicOf(f *armcompute.NetworkProfile) string {
	if f == nil || len(f.NetworkInterfaces) == 0 {
		return ""
	}
	return value(f.NetworkInterfaces[0].ID)
}

// addressOf is the private address of an interface.
func addressOf(f *armnetwork.InterfacePropertiesFormat) string {
	if f == nil {
		return ""
	}
	for _, c := range f.IPConfigurations {
		if c.Properties != nil && c.Properties.PrivateIPAddress != nil {
			return *c.Properties.PrivateIPAddress
		}
	}
	return ""
}

// closeDisk shuts a VM's disk to export and to the network (control VMZ-07): the
// model of a VM has no word for all of it.
func (p *Provider) closeDisk(ctx context.Context, r *pipeline.Run, id string) error {
	if id == "" || r.Mode == pipeline.Plan {
		return nil
	}
	done := "closed " + id
	if r.Recall(done) != nil {
		return nil
	}
	x, err := read[armcompute.Disk](ctx, p, id)
	if pipeline.Is(err, pipeline.NotFound) {
		return pipeline.Unseen(err, "disk "+lastName(id))
	}
	if err != nil {
		return err
	}
	f := value(x.is.Properties)
	open := value(f.NetworkAccessPolicy) != armcompute.NetworkAccessPolicyDenyAll || value(f.PublicNetworkAccess) != armcompute.PublicNetworkAccessDisabled
	switch {
	case !open:
		r.Remember(done, true)
		return nil
	case r.Mode == pipeline.Verify:
		r.AddDrift(pipeline.Drift{Kind: "compute:disk", Key: lastName(id), ID: id, Attr: "network access", Wanted: "none", Seen: string(value(f.NetworkAccessPolicy))})
		return nil
	}
	policy, access := armcompute.NetworkAccessPolicyDenyAll, armcompute.PublicNetworkAccessDisabled
	_, _, err = send[armcompute.Disk](ctx, p, "PATCH", id, armcompute.DiskUpdate{Properties: &armcompute.DiskUpdateProperties{NetworkAccessPolicy: &policy, PublicNetworkAccess: &access}}, nil)
	if pipeline.Is(err, pipeline.Invalid, pipeline.Denied) {
		// It works all the same, and the hardening report says that it is open.
		warnOnce(&r.Job.Config.InfraConfig, fmt.Sprintf("disk %s could not be closed to the network: %v", lastName(id), err))
		r.Remember(done, true)
		return nil
	}
	if err != nil {
		return err
	}
	return changed(r, "disk "+lastName(id))
}
