package azure

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// membership puts the VMs into a pool, or takes them out. It is an attribute of
// their interfaces: no VM is restarted, let alone made anew.
func (p *Provider) membership(ctx context.Context, r *pipeline.Run, pool string, in bool) error {
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	if spec.Pool.Mode == job.PoolASG {
		return p.setMembership(ctx, r, pool, in)
	}
	var parts []func(context.Context) error
	for _, key := range vmpool.Keys(r, kindVM) {
		rec, ok := r.Object(kindVM, key)
		if !ok || rec.State != job.ObjectCreated {
			continue
		}
		parts = append(parts, func(ctx context.Context) error { return p.vmMembership(ctx, r, rec.ID, pool, in) })
	}
	return pipeline.All(ctx, parts...)
}

func (p *Provider) vmMembership(ctx context.Context, r *pipeline.Run, vm, pool string, in bool) error {
	x, err := read[armcompute.VirtualMachine](ctx, p, vm+withView)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound) // no VM, no member
	}
	nic := nicOf(value(x.is.Properties).NetworkProfile)
	if nic == "" {
		return nil
	}
	n, err := read[armnetwork.Interface](ctx, p, nic)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	f := value(n.is.Properties)
	isIn := slices.ContainsFunc(f.IPConfigurations, func(c *armnetwork.InterfaceIPConfiguration) bool {
		return slices.ContainsFunc(value(c.Properties).LoadBalancerBackendAddressPools, func(b *armnetwork.BackendAddressPool) bool { return same(value(b.ID), pool) })
	})
	if isIn == in {
		return nil
	}
	if r.Mode == pipeline.Verify {
		r.AddDrift(pipeline.Drift{Kind: kindPool, Key: "pool", ID: pool, Attr: "member " + x.Name, Wanted: onOff(in), Seen: onOff(isIn)})
		return nil
	}
	for _, c := range f.IPConfigurations {
		if c.Properties == nil {
			continue
		}
		pools := slices.DeleteFunc(c.Properties.LoadBalancerBackendAddressPools, func(b *armnetwork.BackendAddressPool) bool { return same(value(b.ID), pool) })
		if in {
			pools = append(pools, &armnetwork.BackendAddressPool{ID: &pool})
		}
		c.Properties.LoadBalancerBackendAddressPools = pools
	}
	return p.update(ctx, r, n.meta, n.is)
}

// setMembership changes the model of a uniform set, and has its VMs take it up:
// a change of the network alone is applied to a VM as it runs ("Modify a Virtual
// Machine Scale Set": properties that are based on the current value).
func (p *Provider) setMembership(ctx context.Context, r *pipeline.Run, pool string, in bool) error {
	set := p.scaleSet(r, shape{}, false).id
	x, err := read[armcompute.VirtualMachineScaleSet](ctx, p, set)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	profile := value(x.is.Properties).VirtualMachineProfile
	if profile == nil || profile.NetworkProfile == nil {
		return nil
	}
	isIn := setIn(profile.NetworkProfile, pool)
	if isIn != in {
		if r.Mode == pipeline.Verify {
			r.AddDrift(pipeline.Drift{Kind: kindPool, Key: "pool", ID: pool, Attr: "scale set", Wanted: onOff(in), Seen: onOff(isIn)})
			return nil
		}
		return p.changeModel(ctx, r, set, profile.NetworkProfile, pool, in)
	}
	if err := p.takeUp(ctx, r, set); err != nil {
		return err
	}
	if state := x.Properties.ProvisioningState; r.Mode == pipeline.Apply && !r.Down && statusOf(state) == pipeline.Pending {
		return pipeline.Wait(settling, "the scale set to take up its model (%s)", state)
	}
	return nil
}

func setIn(f *armcompute.VirtualMachineScaleSetNetworkProfile, pool string) bool {
	for _, n := range f.NetworkInterfaceConfigurations {
		for _, c := range value(n.Properties).IPConfigurations {
			if slices.ContainsFunc(value(c.Properties).LoadBalancerBackendAddressPools, func(b *armcompute.SubResource) bool { return same(value(b.ID), pool) }) {
				return true
			}
		}
	}
	return false
}

// A modelChange is the part of a set's model that names its pools.
type modelChange struct {
	Properties struct {
		Profile struct {
			Network *armcompute.VirtualMachineScaleSetNetworkProfile `json:"networkProfile"`
		} `json:"virtualMachineProfile"`
	} `json:"properties"`
}

func (p *Provider) changeModel(ctx context.Context, r *pipeline.Run, set string, f *armcompute.VirtualMachineScaleSetNetworkProfile, pool string, in bool) error {
	for _, n := range f.NetworkInterfaceConfigurations {
		for _, c := range value(n.Properties).IPConfigurations {
			if c.Properties == nil {
				continue
			}
			pools := slices.DeleteFunc(c.Properties.LoadBalancerBackendAddressPools, func(b *armcompute.SubResource) bool { return same(value(b.ID), pool) })
			if in {
				pools = append(pools, &armcompute.SubResource{ID: &pool})
			}
			c.Properties.LoadBalancerBackendAddressPools = pools
			if len(pools) == 0 {
				c.Properties.LoadBalancerBackendAddressPools = []*armcompute.SubResource{} // said, not left out
			}
		}
	}
	var change modelChange
	change.Properties.Profile.Network = f
	_, op, err := send[struct{}](ctx, p, http.MethodPatch, set, change, nil)
	if err != nil {
		return err
	}
	op.remember(r, set)
	return changed(r, "the scale set's model")
}

// takeUp has those VMs of a set take up its model that have not.
func (p *Provider) takeUp(ctx context.Context, r *pipeline.Run, set string) error {
	members, err := p.members(ctx, set)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	var behind []string
	for _, m := range members {
		if f := value(m.is.Properties); f.LatestModelApplied != nil && !*f.LatestModelApplied && m.Properties.ProvisioningState != "Deleting" {
			behind = append(behind, lastName(m.ID))
		}
	}
	if len(behind) == 0 {
		r.WaitOver("the set's model")
		return nil
	}
	if r.Mode == pipeline.Verify {
		r.AddDrift(pipeline.Drift{Kind: kindScaleSet, Key: setKey, ID: set, Attr: "VMs on the latest model", Wanted: "all", Seen: "not " + sorted(behind)})
		return nil
	}
	if r.WaitedFor("the set's model") > changePatience*2 {
		return pipeline.Fatal("change-lost", fmt.Sprintf("VMs %s of the scale set do not take up its model", sorted(behind)), "Look at them in the portal, or upgrade them there, then retry.")
	}
	if _, err := p.request(ctx, http.MethodPost, set+"/manualupgrade", map[string]any{"instanceIds": behind}, nil); err != nil {
		return err
	}
	return pipeline.Wait(settling, "%d VMs of the scale set to take up its model", len(behind))
}
