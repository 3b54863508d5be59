package azure

import (
	"context"
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

// keptByAKS are ranges that neither a cluster's network nor its pods nor its
// Services may have ("Plan IP addressing for your AKS cluster", AKS release notes).
var keptByAKS = ranges([]string{"169.254.0.0/16", "172.30.0.0/16", "172.31.0.0/16", "192.0.2.0/24"})

// Where ranges for pods and Services are looked for, best first: what is the custom
// with Kubernetes, then all that is private.
var (
	podSpaces     = ranges([]string{"10.244.0.0/16", "10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"})
	serviceSpaces = ranges([]string{"10.96.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"})
)

// The sizes of a cluster's ranges: a /24 of the pods' for each node, and room for
// a few thousand Services.
const (
	podBits     = 16
	nodeBits    = 24
	serviceBits = 20
)

// clusterNetwork lays the network out, or checks the one that is named, and then
// the ranges of pods and Services beside it.
func (c *checker) clusterNetwork(ctx context.Context) ([]cloud.Check, error) {
	out, err := c.network(ctx)
	if err != nil || c.r.Mode == pipeline.Verify || c.clusterBegun() {
		return out, err
	}
	if slices.ContainsFunc(out, func(x cloud.Check) bool { return x.Status == cloud.CheckFails }) {
		return out, nil
	}
	more, err := c.clusterRanges(ctx)
	return append(out, more...), err
}

// clusterRanges settles the ranges of pods and Services: clear of the network, of
// its peers and of each other, and of the subscription's other networks if they are
// proposed (failure kinds J7, J8).
func (c *checker) clusterRanges(ctx context.Context) ([]cloud.Check, error) {
	const check = "ranges of pods and Services"
	spec, err := c.r.Job.ClusterSpec()
	if err != nil {
		return nil, err
	}
	used, field, err := c.rangesInUse(ctx)
	if err != nil {
		return c.or(ctx, check, "", err)
	}
	for _, u := range used {
		for _, kept := range keptByAKS {
			if u.Hard && u.Prefix.Overlaps(kept) && strings.HasPrefix(u.By, "the network") {
				return []cloud.Check{fails(check, field, fmt.Sprintf("%s of %s overlaps %s, which AKS keeps for itself", u.Prefix, u.By, kept), "Use another range.")}, nil
			}
		}
	}
	for _, kept := range keptByAKS {
		used = append(used, cidr.Used{Prefix: kept, By: "AKS itself", Hard: true})
	}
	var out []cloud.Check
	place := func(name, asked string, spaces []netip.Prefix, bits int) string {
		p, found := c.placeRange(check, "config.spec."+name, asked, spaces, bits, used)
		out = append(out, found...)
		if p.IsValid() {
			used = append(used, cidr.Used{Prefix: p, By: name, Hard: true})
		}
		return p.String()
	}
	for _, asked := range ranges([]string{spec.PodCIDR, spec.ServiceCIDR}) {
		used = append(used, cidr.Used{Prefix: asked, By: "the spec", Hard: false})
	}
	pods := place("podCidr", spec.PodCIDR, podSpaces, podSize(spec.NodePools))
	services := place("serviceCidr", spec.ServiceCIDR, serviceSpaces, serviceBits)
	if slices.ContainsFunc(out, func(x cloud.Check) bool { return x.Status == cloud.CheckFails }) {
		return out, nil
	}
	c.ic.Cluster.PodCIDR, c.ic.Cluster.ServiceCIDR = pods, services
	return append(out, passes(check, "pods %s, Services %s", pods, services)), nil
}

// placeRange takes a range that was asked for, or proposes one.
func (c *checker) placeRange(check, field, asked string, spaces []netip.Prefix, bits int, used []cidr.Used) (netip.Prefix, []cloud.Check) {
	if asked == "" {
		p, ok := cidr.Free(cidr.For(job.Azure), spaces, bits, used)
		if !ok {
			return p, []cloud.Check{fails(check, field, fmt.Sprintf("no /%d is free beside what is in use", bits), "Name a range.")}
		}
		return p, nil
	}
	p, err := netip.ParsePrefix(asked)
	if err != nil {
		return p, []cloud.Check{fails(check, field, err.Error(), "Use a range such as 10.244.0.0/16.")}
	}
	var out []cloud.Check
	for _, u := range used {
		switch {
		case !p.Overlaps(u.Prefix) || u.By == "the spec":
		case u.Hard:
			return p, []cloud.Check{fails(check, field, fmt.Sprintf("%s overlaps %s, which is used by %s", p, u.Prefix, u.By), "Use another range, or leave it out.")}
		default:
			out = append(out, warns(check, field, fmt.Sprintf("%s overlaps %s, which is used by %s: pods will not reach that", p, u.Prefix, u.By), ""))
		}
	}
	return p, out
}

// podSize is the size of the pods' range by the most nodes that there may be, those
// that an upgrade adds for a while among them.
func podSize(pools []job.NodePool) int {
	nodes := 0
	for _, n := range pools {
		nodes += *n.Max + surge(*n.Max)
	}
	bits := podBits
	for 1<<(nodeBits-bits) < nodes {
		bits--
	}
	return bits
}

// surge is how many nodes an upgrade adds to a pool for a while: a tenth, one at
// least ("Upgrade AKS node images").
func surge(nodes int) int { return max(1, (nodes+9)/10) }

// rangesInUse are the ranges of the cluster's network and its peers, which nothing
// may overlap, and of the subscription's other networks; and the field that the
// network's own range comes from.
func (c *checker) rangesInUse(ctx context.Context) ([]cidr.Used, string, error) {
	others, err := c.otherNetworks(ctx, nil)
	if err != nil {
		return nil, "", err
	}
	if c.r.Job.Mode == job.ModeCreate {
		plan := c.ic.NetworkPlan
		for _, p := range ranges(append([]string{plan.CIDR}, plan.SecondaryCIDRs...)) {
			others = append(others, cidr.Used{Prefix: p, By: "the network", Hard: true})
		}
		return others, "config.spec.network.cidr", nil
	}
	x, err := read[armnetwork.VirtualNetwork](ctx, c.Provider, c.ic.NetworkID)
	if err != nil {
		return nil, "", err
	}
	for i := range others {
		if others[i].By == "VNet "+x.Name {
			others[i].Hard, others[i].By = true, "the network "+x.Name
		}
	}
	for _, peer := range value(x.is.Properties).VirtualNetworkPeerings {
		space := value(value(peer.Properties).RemoteAddressSpace)
		for _, p := range ranges(values(space.AddressPrefixes)) {
			others = append(others, cidr.Used{Prefix: p, By: "peer " + value(peer.Name), Hard: true})
		}
	}
	return others, "config.spec.existing.networkId", nil
}

// nodeRoom checks that every subnet holds the nodes that may be in it: pods have
// ranges of their own, so a node takes one address. A private API server takes one.
func (c *checker) nodeRoom(subnets []roomy) []cloud.Check {
	const check = "room for nodes"
	spec, err := c.r.Job.ClusterSpec()
	if err != nil || len(subnets) == 0 {
		return nil
	}
	need := make([]int, len(subnets))
	for i, n := range spec.NodePools {
		need[i%len(subnets)] += *n.Max + surge(*n.Max)
	}
	need[0]++
	for i, s := range subnets {
		if free := 1<<(32-s.prefix.Bits()) - cidr.For(job.Azure).Kept - s.taken; need[i] > free {
			return []cloud.Check{fails(check, s.field, fmt.Sprintf("subnet %s (%s) has %d addresses left, and the pools in it may take %d", s.name, s.prefix, max(free, 0), need[i]), "Use a larger range, or lower max.")}
		}
	}
	return []cloud.Check{passes(check, "%d nodes at most, upgrades included", sumOf(need)-1)}
}

// A roomy is a subnet with what is in it already.
type roomy struct {
	name, field string
	prefix      netip.Prefix
	taken       int
}

func sumOf(all []int) int {
	n := 0
	for _, v := range all {
		n += v
	}
	return n
}

// suitable are the names of the subnets in which a cluster's nodes can stand,
// those of the platform and delegated ones left out, and those without a way out.
func suitable(x vnetResource) []string {
	var out []string
	for _, s := range value(x.is.Properties).Subnets {
		f := value(s.Properties)
		if !slices.Contains(bare, value(s.Name)) && len(f.Delegations) == 0 && (f.NatGateway != nil || f.RouteTable != nil) {
			out = append(out, value(s.Name))
		}
	}
	return out
}

// clusterSubnetNames are the names of the subnets for the nodes: those that the
// job names, or the only one of the network that is suitable.
func clusterSubnetNames(e *job.Existing, x vnetResource) []string {
	if len(e.SubnetIDs) > 0 {
		return e.SubnetIDs
	}
	if found := suitable(x); len(found) == 1 {
		return found
	}
	return nil
}

// clusterSubnetChecks checks the subnets for nodes in somebody's network: that they
// take any, that all of them get out, and by one and the same way (failure kind J11).
func (c *checker) clusterSubnetChecks(ctx context.Context, x vnetResource, e *job.Existing) ([]cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	names := clusterSubnetNames(e, x)
	if len(names) == 0 {
		found := suitable(x)
		if len(found) == 0 {
			return []cloud.Check{fails(check, field, "VNet "+x.Name+" has no subnet with a NAT gateway or a route table, so nodes would not get out", "Give one a NAT gateway, or name another network.")}, nil
		}
		return []cloud.Check{fails(check, field, "several subnets of VNet "+x.Name+" would do: "+strings.Join(found, ", "), "Name one or more of them.")}, nil
	}
	subnets, missing := namedSubnets(x, names)
	if len(missing) > 0 {
		return []cloud.Check{fails(check, field, "VNet "+x.Name+" has no subnet "+strings.Join(missing, ", "), "Name subnets that exist, by name or resource ID.")}, nil
	}
	spec, err := c.r.Job.ClusterSpec()
	if err != nil {
		return nil, err
	}
	var out []cloud.Check
	var rooms []roomy
	for _, s := range subnets {
		found, err := c.nodeSubnet(ctx, *s, spec)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
		if (value(s.Properties).NatGateway == nil) != (value(subnets[0].Properties).NatGateway == nil) {
			out = append(out, fails(check, field, "some of the subnets have a NAT gateway and some do not, and a cluster has one way out", "Name subnets that get out the same way."))
		}
		if all := ranges(both(value(s.Properties).AddressPrefix, value(s.Properties).AddressPrefixes)); len(all) > 0 {
			rooms = append(rooms, roomy{value(s.Name), field, all[0], len(value(s.Properties).IPConfigurations)})
		}
	}
	if len(out) == 0 {
		out = append(out, passes(check, "%s with %d subnets for nodes", x.Name, len(subnets)))
	}
	return append(out, c.nodeRoom(rooms)...), nil
}

// nodeSubnet checks one subnet for nodes.
func (c *checker) nodeSubnet(ctx context.Context, s armnetwork.Subnet, spec job.ClusterSpec) ([]cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	name, f := value(s.Name), value(s.Properties)
	var out []cloud.Check
	for _, d := range f.Delegations {
		out = append(out, fails(check, field, fmt.Sprintf("subnet %s is delegated to %s, so no node can stand in it", name, value(value(d.Properties).ServiceName)), "Name a subnet that is not delegated."))
	}
	if slices.Contains(bare, name) {
		out = append(out, fails(check, field, name+" is the platform's own subnet", "Name another one."))
	}
	if f.NetworkSecurityGroup == nil {
		message := fmt.Sprintf("subnet %s has no network security group", name)
		if waived(spec, "AKS-41") {
			out = append(out, warns(check, field, message, ""))
		} else {
			out = append(out, fails(check, field, message, "Give it one, or waive AKS-41."))
		}
	}
	switch {
	case f.NatGateway != nil:
	case f.RouteTable == nil:
		out = append(out, fails(check, field, fmt.Sprintf("subnet %s has neither a NAT gateway nor a route table, so its nodes cannot join", name), "Give it a NAT gateway, or name another subnet."))
	default:
		found, err := c.defaultRoute(ctx, name, value(f.RouteTable.ID))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// defaultRoute checks that a route table leads out. Where an appliance that it
// leads to comes out is not known, so a public API server may not let nodes in.
func (c *checker) defaultRoute(ctx context.Context, subnet, table string) ([]cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	x, err := read[armnetwork.RouteTable](ctx, c.Provider, table)
	if err != nil {
		return c.or(ctx, "default route of subnet "+subnet, field, err)
	}
	if !slices.ContainsFunc(value(x.is.Properties).Routes, func(r *armnetwork.Route) bool {
		return value(value(r.Properties).AddressPrefix) == "0.0.0.0/0" && value(value(r.Properties).NextHopType) != armnetwork.RouteNextHopTypeNone
	}) {
		return []cloud.Check{fails(check, field, fmt.Sprintf("the route table %s of subnet %s has no route for 0.0.0.0/0, so its nodes cannot join", x.Name, subnet), "Add one, give the subnet a NAT gateway, or name another subnet.")}, nil
	}
	if c.reach.Mode == job.ReachDirect {
		return nil, nil
	}
	return []cloud.Check{warns(check, "config.spec.endpoint.publicCidrs", fmt.Sprintf("nodes in subnet %s go out by the route table %s, and the API server lets them in only if their public address is among the ranges", subnet, x.Name),
		"Name the public address of the firewall that the route leads to.")}, nil
}
