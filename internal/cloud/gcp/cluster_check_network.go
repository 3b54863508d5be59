package gcp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// nodeBits is the size of the range that each node takes for its 110 pods ("Plan
// IP addresses for GKE").
const nodeBits = 24

// kept is how many addresses of a subnet are not for nodes: Google's own four, the
// control plane's, and some for internal load balancers.
const keptAddresses = 16

// most is how many nodes the pools may have together, with one more each while
// they are upgraded.
func (k *clusterChecker) most() int {
	nodes := 0
	for _, n := range k.spec.NodePools {
		nodes += *n.Max + 1
	}
	return nodes
}

// plan lays the network of a cluster out, with ranges of our own for pods and
// Services: GKE would choose some without seeing the peers of peers (failure kinds
// J5, J7, J10).
func (k *clusterChecker) plan(ctx context.Context) error {
	k.bits = map[string][]int{job.PodRange: podSizes(k.most()), job.ServiceRange: {20, 21, 22, 23, 24}}
	before := len(k.checks)
	if err := k.network(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	for i := before; i < len(k.checks); i++ {
		k.checks[i].Field = k.fieldOf(k.checks[i].Field)
	}
	k.mu.Unlock()
	plan := k.ic.NetworkPlan
	if plan == nil {
		return nil
	}
	ranges := map[string]string{}
	for _, n := range plan.SecondaryRanges {
		ranges[n.Name] = n.CIDR
	}
	if k.r.Mode != pipeline.Verify {
		k.info.PodCIDR, k.info.ServiceCIDR = ranges[job.PodRange], ranges[job.ServiceRange]
	}
	if private := plan.Tier(job.TierPrivate); len(private) > 0 {
		k.fits(private[0].CIDR, k.info.PodCIDR, "config.spec.network.cidr", k.fieldOf("config.spec.network.secondaryRanges[0].cidr"))
	}
	return nil
}

// fieldOf is the field of the request that a secondary range comes from.
func (k *clusterChecker) fieldOf(field string) string {
	for i, n := range k.checker.spec.SecondaryRanges {
		at := fmt.Sprintf("config.spec.network.secondaryRanges[%d]", i)
		if !strings.HasPrefix(field, at) {
			continue
		}
		switch {
		case n.Name == job.PodRange && k.spec.PodCIDR != "":
			return "config.spec.podCidr"
		case n.Name == job.ServiceRange && k.spec.ServiceCIDR != "":
			return "config.spec.serviceCidr"
		}
	}
	return field
}

// podSizes are the sizes of the pods' range, best first: a /16 holds 256 nodes,
// more for more, and less only where there is no room.
func podSizes(nodes int) []int {
	need := nodeBits
	for 1<<(nodeBits-need) < nodes {
		need--
	}
	var out []int
	for bits := min(16, need); bits <= need; bits++ {
		out = append(out, bits)
	}
	return out
}

// fits proves that the ranges have room for all the nodes that the pools may have
// (failure kinds J7, J10).
func (k *clusterChecker) fits(nodes, pods, nodeField, podField string) {
	const check = "room for nodes"
	n, err := netip.ParsePrefix(nodes)
	if err != nil {
		return
	}
	if room := 1<<(32-n.Bits()) - keptAddresses; room < k.most() {
		k.fails(check, nodeField, fmt.Sprintf("the nodes' subnet %s has %d addresses for nodes, and the pools may have %d", nodes, max(room, 0), k.most()), "Use a larger range, or lower max.")
		return
	}
	p, err := netip.ParsePrefix(pods)
	if err != nil {
		return
	}
	if room := 1 << max(nodeBits-p.Bits(), 0); p.Bits() > nodeBits || room < k.most() {
		k.fails(check, podField, fmt.Sprintf("the pods' range %s has room for %d nodes of 110 pods, and the pools may have %d with one each for upgrades", pods, room, k.most()), "Use a larger range, or lower max.")
		return
	}
	k.ok(check, "%d nodes in %s, their pods in %s", k.most(), nodes, pods)
}

// named proves that what the job builds in is there, and has what nodes need.
func (k *clusterChecker) named(ctx context.Context) error {
	const check, field = "named network", "config.spec.existing"
	named, err := k.r.Job.Existing()
	if err != nil {
		return err
	}
	if id := k.p.networkID(named.NetworkID); projectOf(id) != k.p.project {
		k.fails(check, field+".networkId", fmt.Sprintf("%s is in project %s, and the job is in %s", named.NetworkID, projectOf(id), k.p.project), "Make the job in the project that holds the network.")
		return nil
	}
	net, err := k.p.existing(ctx, named.NetworkID)
	if pipeline.Is(err, pipeline.NotFound) {
		k.fails(check, field+".networkId", fmt.Sprintf("network %s does not exist in project %s", named.NetworkID, k.p.project), "Name a network that exists.")
		return nil
	}
	if err != nil {
		return k.unchecked(ctx, check, field, err)
	}
	subnet, ok := k.subnetOf(net, named.SubnetIDs)
	if !ok {
		return nil
	}
	if k.r.Mode != pipeline.Verify && !k.settled() {
		k.ic.PrivateSubnetIDs = []string{rel(subnet.SelfLink)}
	}
	k.wayOut(net, subnet)
	return k.side(ctx,
		func(ctx context.Context) error { return k.ranges(ctx, subnet) },
		func(ctx context.Context) error { return k.defaultRoute(ctx, rel(net.network.SelfLink)) })
}

// subnetOf is the one subnet of the nodes: the one that is named, or the only one
// that has ranges for pods and Services.
func (k *clusterChecker) subnetOf(net existingNetwork, names []string) (*compute.Subnetwork, bool) {
	const check, field = "named network", "config.spec.existing.subnetIds"
	var found []*compute.Subnetwork
	if len(names) > 0 {
		subnets, faults := net.named(k.p, names)
		for _, f := range faults {
			k.fails(check, field, f, "Name a subnet of that network in "+k.p.region+".")
		}
		if len(faults) > 0 {
			return nil, false
		}
		found = subnets
	} else {
		for _, s := range net.subnets {
			if _, ok := rangesIn(s, k.spec); ok && base(s.Region) == k.p.region {
				found = append(found, s)
			}
		}
	}
	if len(found) != 1 {
		k.fails(check, field, fmt.Sprintf("a GKE cluster has its nodes in one subnet, which spans the zones of %s; %d are named or fit", k.p.region, len(found)), "Name one, with secondary ranges for pods and Services.")
		return nil, false
	}
	k.ok(check, "%s with subnet %s (%s)", net.network.Name, found[0].Name, found[0].IpCidrRange)
	return found[0], true
}

// rangesIn finds the secondary ranges for pods and Services in a subnet: those of
// the ranges that the spec gives, or those named so.
func rangesIn(s *compute.Subnetwork, spec job.ClusterSpec) (job.ClusterInfo, bool) {
	var info job.ClusterInfo
	pick := func(asked string, words ...string) string {
		for _, x := range s.SecondaryIpRanges {
			if asked != "" && x.IpCidrRange == asked {
				return asked
			}
		}
		if asked != "" {
			return ""
		}
		for _, word := range words {
			for _, x := range s.SecondaryIpRanges {
				if x.RangeName == word || strings.Contains(x.RangeName, strings.TrimSuffix(word, "s")) {
					return x.IpCidrRange
				}
			}
		}
		return ""
	}
	info.PodCIDR = pick(spec.PodCIDR, job.PodRange)
	info.ServiceCIDR = pick(spec.ServiceCIDR, job.ServiceRange, "svc")
	return info, info.PodCIDR != "" && info.ServiceCIDR != "" && info.PodCIDR != info.ServiceCIDR
}

// ranges settles the ranges of pods and Services in the named subnet, which is
// left as it is, and proves that no other cluster has them.
func (k *clusterChecker) ranges(ctx context.Context, subnet *compute.Subnetwork) error {
	const check, field = "ranges of pods and Services", "config.spec.existing.subnetIds"
	info, ok := rangesIn(subnet, k.spec)
	if !ok {
		k.fails(check, field, fmt.Sprintf("subnet %s has no secondary ranges for them (it has %s)", subnet.Name, or(rangesText(subnet.SecondaryIpRanges), "none")),
			fmt.Sprintf("Add two that are free in the network and its peers: gcloud compute networks subnets update %s --region %s --add-secondary-ranges pods=RANGE/16,services=RANGE/20; or give podCidr and serviceCidr as they are there.", subnet.Name, k.p.region))
		return nil
	}
	if k.r.Mode != pipeline.Verify && !k.settled() {
		k.info.PodCIDR, k.info.ServiceCIDR = info.PodCIDR, info.ServiceCIDR
	}
	k.fits(subnet.IpCidrRange, info.PodCIDR, field, field)
	names, _ := namesOf(subnet, info)
	out, err := send(ctx, k.p.container.Projects.Locations.Clusters.List("projects/"+k.p.project+"/locations/-"))
	if err != nil {
		return k.unchecked(ctx, check, field, err)
	}
	for _, other := range out.Clusters {
		if owner, _ := labelMark(other.ResourceLabels); owner == k.r.Job.ID || !inSubnet(other, subnet) || other.IpAllocationPolicy == nil {
			continue
		}
		used := []string{other.IpAllocationPolicy.ClusterSecondaryRangeName, other.IpAllocationPolicy.ServicesSecondaryRangeName}
		if slices.Contains(used, names.pods) || slices.Contains(used, names.services) {
			k.fails(check, field, fmt.Sprintf("cluster %s has its addresses from the same ranges of subnet %s", other.Name, subnet.Name), "Add ranges of its own for this cluster, and give them as podCidr and serviceCidr.")
			return nil
		}
	}
	k.ok(check, "%s and %s", info.PodCIDR, info.ServiceCIDR)
	return nil
}

func inSubnet(c *container.Cluster, subnet *compute.Subnetwork) bool {
	if c.NetworkConfig != nil && c.NetworkConfig.Subnetwork != "" {
		return rel(c.NetworkConfig.Subnetwork) == rel(subnet.SelfLink)
	}
	return base(c.Subnetwork) == subnet.Name && base(c.Network) == base(subnet.Network)
}

// wayOut tells what private nodes need of a subnet to reach anything.
func (k *clusterChecker) wayOut(net existingNetwork, subnet *compute.Subnetwork) {
	const field = "config.spec.existing.subnetIds"
	if net.nat(rel(subnet.SelfLink)) == nil {
		k.warn("way out", field, fmt.Sprintf("no Cloud NAT serves subnet %s: nodes have no external addresses, so images from outside of Google Cloud cannot be pulled", subnet.Name), "Add a NAT, if nothing else leads out.")
	}
	if !subnet.PrivateIpGoogleAccess {
		k.warn("private Google access", field, "subnet "+subnet.Name+" has no private Google access; GKE turns it on for private nodes", "Turn it on yourself if the subnet is to be changed by nobody else.")
	}
}

// defaultRoute proves that the network leads out: without a default route nodes do
// not reach what they register with (failure kind J11).
func (k *clusterChecker) defaultRoute(ctx context.Context, network string) error {
	const check, field = "default route", "config.spec.existing.networkId"
	all, err := k.p.routes(ctx)
	if err != nil {
		return k.unchecked(ctx, check, field, err)
	}
	for _, x := range all {
		if rel(x.Network) == network && x.DestRange == "0.0.0.0/0" && len(x.Tags) == 0 {
			k.ok(check, "%s", x.Name)
			return nil
		}
	}
	k.fails(check, field, fmt.Sprintf("network %s has no default route, so nodes in it do not reach Google's APIs", base(network)),
		fmt.Sprintf("Add one: gcloud compute routes create default-out --network %s --destination-range 0.0.0.0/0 --next-hop-gateway default-internet-gateway.", base(network)))
	return nil
}
