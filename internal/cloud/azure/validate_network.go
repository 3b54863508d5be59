package azure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// network lays the network out clear of what is in use, or checks the one that
// is named.
func (c *checker) network(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Mode == pipeline.Verify || c.begun() {
		return nil, nil
	}
	if c.r.Job.Mode == job.ModeCreate {
		return c.plan(ctx, nil)
	}
	x, out, err := c.namedNetwork(ctx)
	if err != nil || len(out) > 0 {
		return out, err
	}
	c.ic.NetworkID = x.ID
	switch c.r.Job.ResourceType {
	case job.Network:
		return c.plan(ctx, &x)
	case job.Cluster:
		e, err := c.r.Job.Existing()
		if err != nil {
			return nil, err
		}
		return c.clusterSubnetChecks(ctx, x, e)
	case job.Datastore, job.Cache:
		return c.dataSubnetChecks(x)
	}
	return c.namedSubnetChecks(x)
}

// begun reports whether anything of the network was made: its layout is fixed
// from then on.
func (c *checker) begun() bool {
	if c.ic.NetworkPlan == nil {
		return false
	}
	return slices.ContainsFunc(c.r.Objects(), func(o job.Object) bool {
		return (o.Kind == kindVNet || o.Kind == kindSubnet) && (o.State == job.ObjectCreated || o.State == job.ObjectIntended)
	})
}

// namedNetwork reads the VNet that a create_in_existing job names.
func (c *checker) namedNetwork(ctx context.Context) (vnetResource, []cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.networkId"
	e, err := c.r.Job.Existing()
	if err != nil {
		return vnetResource{}, nil, err
	}
	if e == nil {
		return vnetResource{}, []cloud.Check{fails(check, field, "the request names no network", "Name one.")}, nil
	}
	id, err := c.vnetCalled(ctx, e.NetworkID, e.ResourceGroup)
	var x vnetResource
	if err == nil {
		x, err = read[armnetwork.VirtualNetwork](ctx, c.Provider, id)
	}
	var fatal *pipeline.FatalError
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return x, []cloud.Check{fails(check, field, fmt.Sprintf("VNet %s is not there: %v", e.NetworkID, err), "Name a VNet of this subscription, by its resource ID or by name and resource group.")}, nil
	case errors.As(err, &fatal):
		return x, []cloud.Check{fails(check, field, fatal.Problem.Message, fatal.Problem.Hint)}, nil
	case err != nil:
		return x, nil, err
	case regionName(x.Location) != regionName(c.region):
		return x, []cloud.Check{fails(check, "region", fmt.Sprintf("VNet %s is in %s, and the job in %s", x.Name, x.Location, c.region), "Use the VNet's region.")}, nil
	}
	return x, nil, nil
}

// plan lays the network out: a new one clear of the subscription's other
// networks, or the job's part of one that exists, clear of its subnets.
func (c *checker) plan(ctx context.Context, in *vnetResource) ([]cloud.Check, error) {
	const check = "network range"
	ask := cidr.Request{CIDR: c.net.CIDR, Secondary: c.net.SecondaryCIDRs, Tiers: tiers(c.net)}
	peers, out, err := c.peerRanges(ctx)
	if err != nil {
		return nil, err
	}
	if in == nil {
		ask.InUse = peers
		more, err := c.otherNetworks(ctx, peers)
		if err != nil {
			unread, err := c.or(ctx, "overlap with other networks", "config.spec.network.cidr", err)
			if err != nil {
				return nil, err
			}
			out = append(out, unread...)
		}
		ask.InUse = append(ask.InUse, more...)
	} else {
		ask.Within, ask.InUse = ranges(addressSpace(in.is)), subnetRanges(c.r, *in)
	}
	plan, bad := cidr.Plan(cidr.For(job.Azure), ask)
	if bad != nil {
		return append(out, fails(check, bad.Field, bad.Message, bad.Fix)), nil
	}
	c.ic.NetworkPlan = plan
	for _, note := range plan.Notes {
		if c.net.CIDR != "" {
			out = append(out, warns(check, "config.spec.network.cidr", note, ""))
		}
	}
	return append(out, c.room(*plan)...), nil
}

// room checks that a VM job's pool, or a cluster's nodes, fit the private subnet.
func (c *checker) room(plan job.NetworkPlan) []cloud.Check {
	const check = "network range"
	if c.r.Job.ResourceType == job.VM {
		spec, err := c.r.Job.VMSpec()
		private := plan.Tier(job.TierPrivate)
		if err != nil || len(private) == 0 {
			return nil
		}
		most := spec.Pool.VMCount()
		if spec.Pool.Max != nil {
			most = max(most, *spec.Pool.Max)
		}
		if hosts := 1<<(32-netip.MustParsePrefix(private[0].CIDR).Bits()) - cidr.For(job.Azure).Kept; most > hosts {
			return []cloud.Check{fails(check, "config.spec.network.cidr", fmt.Sprintf("the private subnet of %s holds %d VMs, and the pool may have %d", plan.CIDR, hosts, most), "Use a larger range or fewer VMs.")}
		}
	}
	var words []string
	for _, s := range plan.Subnets {
		words = append(words, s.Key+" "+s.CIDR)
	}
	out := []cloud.Check{passes(check, "%s: %s", plan.CIDR, strings.Join(words, ", "))}
	if private := plan.Tier(job.TierPrivate); c.r.Job.ResourceType == job.Cluster && len(private) > 0 {
		out = append(out, c.nodeRoom([]roomy{{name: private[0].Key, field: "config.spec.network.cidr", prefix: netip.MustParsePrefix(private[0].CIDR)}})...)
	}
	return out
}

func ranges(all []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range all {
		if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is4() {
			out = append(out, p)
		}
	}
	return out
}

// subnetRanges are the ranges that a network's subnets have, but for the job's own.
func subnetRanges(r *pipeline.Run, x vnetResource) []cidr.Used {
	var out []cidr.Used
	suffix := suffixOf(r.Job.ID)
	for _, s := range value(x.is.Properties).Subnets {
		f := value(s.Properties)
		if strings.HasSuffix(value(s.Name), suffix) {
			continue
		}
		for _, p := range ranges(both(f.AddressPrefix, f.AddressPrefixes)) {
			out = append(out, cidr.Used{Prefix: p, By: "subnet " + value(s.Name), Hard: true})
		}
	}
	return out
}

// peerRanges are the ranges of the networks that the job peers with.
func (c *checker) peerRanges(ctx context.Context) ([]cidr.Used, []cloud.Check, error) {
	if c.r.Job.ResourceType != job.Network {
		return nil, nil, nil
	}
	spec, err := c.r.Job.NetworkJob()
	if err != nil {
		return nil, nil, err
	}
	var used []cidr.Used
	var out []cloud.Check
	for i, peer := range spec.Peerings {
		field := fmt.Sprintf("config.spec.peerings[%d].networkId", i)
		x, err := c.peer(ctx, peer)
		var fatal *pipeline.FatalError
		switch {
		case pipeline.Is(err, pipeline.NotFound):
			out = append(out, fails("peer", field, fmt.Sprintf("VNet %s is not there, or these credentials do not see it", peer.NetworkID), "Name a VNet that exists, by its resource ID if it is in another subscription."))
			continue
		case pipeline.Is(err, pipeline.Denied):
			out = append(out, unchecked("peer", field, err))
			continue
		case errors.As(err, &fatal):
			out = append(out, fails("peer", field, fatal.Problem.Message, fatal.Problem.Hint))
			continue
		case err != nil:
			return nil, nil, err
		}
		for _, p := range ranges(addressSpace(x.is)) {
			used = append(used, cidr.Used{Prefix: p, By: "peer " + x.Name, Hard: true})
		}
	}
	return used, out, nil
}

// peer reads the network to peer with, with the credentials of whoever holds it.
func (c *checker) peer(ctx context.Context, peer job.Peering) (vnetResource, error) {
	other, err := c.holding(ctx, c.r.Job, peer)
	if err != nil {
		return vnetResource{}, err
	}
	id, err := other.vnetCalled(ctx, peer.NetworkID, peer.ResourceGroup)
	if err != nil {
		return vnetResource{}, err
	}
	return read[armnetwork.VirtualNetwork](ctx, other, id)
}

// otherNetworks are the ranges of the subscription's other VNets.
func (c *checker) otherNetworks(ctx context.Context, peers []cidr.Used) ([]cidr.Used, error) {
	all, err := c.allVNets(ctx)
	var used []cidr.Used
	for _, v := range all {
		if v.Tags[job.MarkOwner] == c.r.Job.ID {
			continue
		}
		for _, p := range ranges(addressSpace(v.is)) {
			if !slices.ContainsFunc(peers, func(u cidr.Used) bool { return u.Prefix == p && u.By == "peer "+v.Name }) {
				used = append(used, cidr.Used{Prefix: p, By: "VNet " + v.Name})
			}
		}
	}
	return used, err
}

// peers checks a peering of a network that exists: a new one's range is chosen
// clear of its peers.
func (c *checker) peers(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Job.Mode != job.ModeCreateInExisting || c.r.Job.ResourceType != job.Network || c.r.Mode == pipeline.Verify {
		return nil, nil
	}
	peers, out, err := c.peerRanges(ctx)
	if err != nil || len(peers) == 0 {
		return out, err
	}
	x, more, err := c.namedNetwork(ctx)
	if err != nil || len(more) > 0 {
		return out, err // network says so
	}
	for _, own := range ranges(addressSpace(x.is)) {
		for _, u := range peers {
			if own.Overlaps(u.Prefix) {
				out = append(out, fails("peer", "config.spec.peerings", fmt.Sprintf("%s of VNet %s overlaps %s of %s", own, x.Name, u.Prefix, u.By), "Peer with a network that does not overlap."))
			}
		}
	}
	return out, nil
}

// zones checks that nobody else has a zone of the name in the resource group.
func (c *checker) zones(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Job.ResourceType != job.Network {
		return nil, nil
	}
	spec, err := c.r.Job.NetworkJob()
	if err != nil {
		return nil, err
	}
	var out []cloud.Check
	for i, z := range spec.DNSZones {
		id := c.privateZone(c.r, z.Name).id
		if z.Visibility == job.ZonePublic {
			id = c.publicZone(c.r, z.Name).id
		}
		x, err := read[struct{}](ctx, c.Provider, id)
		switch {
		case pipeline.Is(err, pipeline.NotFound):
		case err != nil:
			return c.or(ctx, "DNS zone", fmt.Sprintf("config.spec.dnsZones[%d].name", i), err)
		case x.Tags[job.MarkOwner] != c.r.Job.ID:
			out = append(out, fails("DNS zone", fmt.Sprintf("config.spec.dnsZones[%d].name", i), "a zone "+z.Name+" exists already in "+groupOf(c.r.Job)+" and is somebody else's", "Use another name or resource group."))
		}
	}
	return out, nil
}

// namedSubnetChecks checks the subnets that a VM job names.
func (c *checker) namedSubnetChecks(x vnetResource) ([]cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	e, err := c.r.Job.Existing()
	if err != nil {
		return nil, err
	}
	subnets, missing := namedSubnets(x, e.SubnetIDs)
	if len(missing) > 0 {
		return []cloud.Check{fails(check, field, "VNet "+x.Name+" has no subnet "+strings.Join(missing, ", "), "Name subnets that exist, by name or resource ID.")}, nil
	}
	if len(subnets) == 0 {
		return []cloud.Check{fails(check, field, "no subnet is named for the VMs", "Name one.")}, nil
	}
	var out []cloud.Check
	for _, s := range subnets {
		out = append(out, subnetCheck(*s)...)
	}
	if len(out) == 0 {
		out = append(out, passes(check, "%s with %d subnets", x.Name, len(subnets)))
	}
	return out, nil
}

// subnetCheck checks one subnet for VMs: that it takes any, and that they get out.
func subnetCheck(s armnetwork.Subnet) []cloud.Check {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	name, f := value(s.Name), value(s.Properties)
	var out []cloud.Check
	for _, d := range f.Delegations {
		out = append(out, fails(check, field, fmt.Sprintf("subnet %s is delegated to %s, so no VM can stand in it", name, value(value(d.Properties).ServiceName)), "Name a subnet that is not delegated."))
	}
	if slices.Contains(bare, name) {
		out = append(out, fails(check, field, name+" is the platform's own subnet", "Name another one."))
	}
	switch {
	case f.NatGateway != nil, f.RouteTable != nil:
	case f.DefaultOutboundAccess == nil || *f.DefaultOutboundAccess:
		out = append(out, warns(check, field, fmt.Sprintf("subnet %s has no NAT gateway and goes out by default outbound access, from addresses that change", name), "Give it a NAT gateway."))
	default:
		out = append(out, fails(check, field, fmt.Sprintf("subnet %s has no way out (no NAT gateway, no route table), so its VMs can install nothing", name), "Give it a NAT gateway, or name another subnet."))
	}
	return out
}
