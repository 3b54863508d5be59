package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

type vnetResource = resource[armnetwork.VirtualNetwork]

// allVNets are the VNets of the subscription.
func (p *Provider) allVNets(ctx context.Context) ([]vnetResource, error) {
	return lookup.Once(ctx, "all VNets of "+p.subscription, func(ctx context.Context) ([]vnetResource, error) {
		return list[vnetResource](ctx, p, managementPrefix+p.subscription+"/providers/"+typeVNet)
	})
}

// vnetCalled finds a VNet by its ID, or by its name: in the group that is given,
// or else wherever in the subscription there is one of that name.
func (p *Provider) vnetCalled(ctx context.Context, called, group string) (string, error) {
	switch {
	case strings.HasPrefix(called, managementPrefix):
		return called, nil
	case group != "":
		return p.groupID(group) + "/providers/" + typeVNet + "/" + called, nil
	}
	all, err := p.allVNets(ctx)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, v := range all {
		if same(v.Name, called) {
			ids = append(ids, v.ID)
		}
	}
	switch len(ids) {
	case 0:
		return "", absent("Microsoft.Network", "virtualNetworks/read", "VNet "+called)
	case 1:
		return ids[0], nil
	}
	return "", pipeline.Fatal("ambiguous", fmt.Sprintf("there are %d VNets named %s: %s", len(ids), called, strings.Join(ids, ", ")),
		"Name one by its resource ID, then retry.")
}

// namedVNet is the ID of the VNet that a create_in_existing job names.
func (p *Provider) namedVNet(ctx context.Context, r *pipeline.Run) (string, error) {
	if id := r.Job.Config.InfraConfig.NetworkID; id != "" {
		return id, nil
	}
	e, err := r.Job.Existing()
	if err != nil || e == nil {
		return "", err
	}
	if r.Mode == pipeline.Plan && !strings.HasPrefix(e.NetworkID, managementPrefix) && e.ResourceGroup == "" {
		return e.NetworkID, nil
	}
	return p.vnetCalled(ctx, e.NetworkID, e.ResourceGroup)
}

// named reads the VNet that the job names; an error that it is not there is
// worded for a person.
func (p *Provider) named(ctx context.Context, r *pipeline.Run) (vnetResource, error) {
	id, err := p.namedVNet(ctx, r)
	var x vnetResource
	if err == nil {
		x, err = read[armnetwork.VirtualNetwork](ctx, p, id)
	}
	if err != nil {
		return x, p.missingNamed(r, err, "network", "config.spec.existing.networkId")
	}
	return x, nil
}

// extendNetwork adds the job's own subnets to a network of somebody else, each
// with its security group. The network itself is never written.
func (p *Provider) extendNetwork(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.Network()
	if err != nil {
		return err
	}
	plan, err := planned(r)
	if err != nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	at := layout{plan: plan, nat: wantsNAT(spec, plan), foreign: true}
	if at.vnet, err = p.namedVNet(ctx, r); err != nil {
		return p.missingNamed(r, err, "network", "config.spec.existing.networkId")
	}
	if r.Mode != pipeline.Plan {
		x, err := p.named(ctx, r)
		if err != nil || x.ID == "" {
			return err
		}
		learn(r, &ic.NetworkCIDR, strings.Join(addressSpace(x.is), ", "))
	}
	learn(r, &ic.NetworkID, at.vnet)
	learn(r, &ic.NetworkName, lastName(at.vnet))
	if err := p.makeAround(ctx, r, at); err != nil {
		return err
	}
	return p.makeSubnets(ctx, r, at)
}

// readNetwork records the network and the subnets that a VM or cluster job names,
// and changes nothing.
func (p *Provider) readNetwork(ctx context.Context, r *pipeline.Run) error {
	e, err := r.Job.Existing()
	if err != nil || e == nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	if r.Mode == pipeline.Plan {
		ic.NetworkID = e.NetworkID
		if len(ic.PrivateSubnetIDs) == 0 {
			ic.PrivateSubnetIDs = e.SubnetIDs
		}
		return nil
	}
	x, err := p.named(ctx, r)
	if err != nil || x.ID == "" {
		return err
	}
	names := e.SubnetIDs
	if r.Job.ResourceType == job.Cluster {
		names = clusterSubnetNames(e, x)
	}
	subnets, missing := namedSubnets(x, names)
	if len(missing) > 0 {
		return p.missingNamed(r, absent("Microsoft.Network", "virtualNetworks/subnets/read", strings.Join(missing, ", ")+" in "+x.Name), "subnet", "config.spec.existing.subnetIds")
	}
	if r.Mode == pipeline.Verify {
		return nil
	}
	ic.NetworkID, ic.NetworkName, ic.NetworkCIDR = x.ID, x.Name, strings.Join(addressSpace(x.is), ", ")
	ic.PrivateSubnetIDs, ic.Subnets = nil, nil
	for _, s := range subnets {
		ic.PrivateSubnetIDs = append(ic.PrivateSubnetIDs, value(s.ID))
		ic.Subnets = append(ic.Subnets, subnetInfo(*s))
	}
	return p.readExistingEgress(ctx, ic, subnets)
}

func subnetInfo(s armnetwork.Subnet) job.SubnetInfo {
	return job.SubnetInfo{ID: value(s.ID), Name: value(s.Name), CIDR: prefixesOf(value(s.Properties))}
}

// namedSubnets are the subnets of a VNet that are named, by ID or by name, and
// the names of those that it does not have.
func namedSubnets(x vnetResource, names []string) (found []*armnetwork.Subnet, missing []string) {
	for _, name := range names {
		i := -1
		if x.is.Properties != nil {
			i = slices.IndexFunc(x.is.Properties.Subnets, func(s *armnetwork.Subnet) bool { return same(value(s.ID), name) || same(value(s.Name), name) })
		}
		if i < 0 {
			missing = append(missing, name)
			continue
		}
		found = append(found, x.is.Properties.Subnets[i])
	}
	return found, missing
}

// readExistingEgress records the NAT gateways that the named subnets use; a
// caller that may not see them goes on without.
func (p *Provider) readExistingEgress(ctx context.Context, ic *job.InfraConfig, subnets []*armnetwork.Subnet) error {
	ic.NATGatewayIDs, ic.EgressIPs = nil, nil
	for _, s := range subnets {
		f := value(s.Properties)
		if f.NatGateway == nil || slices.Contains(ic.NATGatewayIDs, value(f.NatGateway.ID)) {
			continue
		}
		ic.NATGatewayIDs = append(ic.NATGatewayIDs, value(f.NatGateway.ID))
		x, err := read[armnetwork.NatGateway](ctx, p, value(f.NatGateway.ID))
		if err != nil || x.is.Properties == nil {
			if err := pipeline.Unless(err, pipeline.Denied, pipeline.NotFound); err != nil {
				return err
			}
			continue
		}
		for _, a := range x.is.Properties.PublicIPAddresses {
			ip, err := read[armnetwork.PublicIPAddress](ctx, p, value(a.ID))
			if err := pipeline.Unless(err, pipeline.Denied, pipeline.NotFound); err != nil {
				return err
			}
			if ip.is.Properties != nil && ip.is.Properties.IPAddress != nil {
				ic.EgressIPs = append(ic.EgressIPs, *ip.is.Properties.IPAddress)
			}
		}
	}
	return nil
}
