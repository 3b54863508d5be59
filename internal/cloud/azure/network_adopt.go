package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// AdoptNetwork reads the VNet that an adopt job points at, with its subnets and
// peerings, and records what is risky about it as warnings.
func (p *Provider) AdoptNetwork(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	x, err := p.adopted(ctx, r)
	if err != nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	ic.NetworkID, ic.NetworkName, ic.NetworkCIDR = x.ID, x.Name, strings.Join(addressSpace(x.is), ", ")
	ic.ResourceGroup = segment(x.ID, "resourceGroups")
	ic.Subnets, ic.Peerings = nil, nil
	warn := func(format string, args ...any) {
		if w := fmt.Sprintf(format, args...); !slices.Contains(ic.Warnings, w) {
			ic.Warnings = append(ic.Warnings, w)
		}
	}
	if regionName(x.Location) != regionName(p.region) {
		warn("the network is in %s, and the job names %s", x.Location, p.region)
	}
	f := value(x.is.Properties)
	for _, s := range f.Subnets {
		ic.Subnets = append(ic.Subnets, subnetInfo(*s))
		if err := p.risksOfSubnet(ctx, *s, warn); err != nil {
			return err
		}
	}
	for _, c := range f.VirtualNetworkPeerings {
		ic.Peerings = append(ic.Peerings, peeringInfo(*c))
		risksOfPeering(*c, warn)
	}
	if servers := f.DhcpOptions; servers != nil && len(servers.DNSServers) == 1 {
		warn("NETZ-15: there is a single DNS server, %s", value(servers.DNSServers[0]))
	}
	return nil
}

// adopted is the VNet that an adopt job names.
func (p *Provider) adopted(ctx context.Context, r *pipeline.Run) (vnetResource, error) {
	const field = "config.spec.adopt"
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return vnetResource{}, err
	}
	if spec.Adopt == nil {
		return vnetResource{}, pipeline.Fatal("nothing-to-adopt", "the request does not say what to adopt", "Name a network in adopt, then retry.").On(field)
	}
	called := spec.Adopt.Name
	if len(spec.Adopt.IDs) > 0 {
		called = spec.Adopt.IDs[0]
	}
	id, err := p.vnetCalled(ctx, called, "")
	var x vnetResource
	if err == nil {
		x, err = read[armnetwork.VirtualNetwork](ctx, p, id)
	}
	if pipeline.Is(err, pipeline.NotFound) {
		return x, pipeline.Fatal("not-found", fmt.Sprintf("there is no network %s that these credentials can see: %v", called, err), "Name one that exists, then retry.").On(field).From(err)
	}
	return x, err
}

// bare are the subnets that take no security group: the platform's own.
var bare = []string{"GatewaySubnet", "AzureFirewallSubnet", "AzureFirewallManagementSubnet", "RouteServerSubnet", "AzureBastionSubnet"}

func (p *Provider) risksOfSubnet(ctx context.Context, s armnetwork.Subnet, warn func(string, ...any)) error {
	name, f := value(s.Name), value(s.Properties)
	if slices.Contains(bare, name) {
		return nil
	}
	if f.DefaultOutboundAccess == nil || *f.DefaultOutboundAccess {
		warn("NETZ-02: subnet %s has default outbound access", name)
	}
	if f.NatGateway == nil && f.RouteTable == nil && f.DefaultOutboundAccess != nil && !*f.DefaultOutboundAccess {
		warn("subnet %s has no way out of its own: no NAT gateway, no route table", name)
	}
	if f.NetworkSecurityGroup == nil {
		warn("NETZ-01: subnet %s has no network security group", name)
		return nil
	}
	group, err := read[armnetwork.SecurityGroup](ctx, p, value(f.NetworkSecurityGroup.ID))
	if pipeline.Is(err, pipeline.Denied, pipeline.NotFound) {
		warn("the security group of subnet %s could not be read: %v", name, err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, rule := range openRules(group.is) {
		warn("%s: subnet %s: rule %s", rule.control, name, rule.text)
	}
	return nil
}

func risksOfPeering(c armnetwork.VirtualNetworkPeering, warn func(string, ...any)) {
	name, f := value(c.Name), value(c.Properties)
	if state := value(f.PeeringState); state != armnetwork.VirtualNetworkPeeringStateConnected {
		warn("NETZ-16: peering %s is %s", name, state)
	}
	if value(f.AllowForwardedTraffic) || value(f.AllowGatewayTransit) || value(f.UseRemoteGateways) {
		warn("NETZ-16: peering %s lets forwarded traffic or gateways through", name)
	}
}

func peeringInfo(c armnetwork.VirtualNetworkPeering) job.PeeringInfo {
	f := value(c.Properties)
	info := job.PeeringInfo{ID: value(c.ID), State: string(value(f.PeeringState))}
	if f.RemoteVirtualNetwork != nil {
		info.NetworkID = value(f.RemoteVirtualNetwork.ID)
	}
	if f.RemoteAddressSpace != nil {
		info.CIDRs = values(f.RemoteAddressSpace.AddressPrefixes)
	}
	return info
}
