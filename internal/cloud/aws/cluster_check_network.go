package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// networks checks the network to make, or the one that is named, and whether it has
// addresses for the nodes and their pods (failure kind J7).
func (k *clusterChecker) networks(ctx context.Context) ([]cloud.Check, error) {
	if k.r.Job.Mode == job.ModeCreateInExisting {
		return k.existingNetwork(ctx)
	}
	out, err := k.network(ctx)
	if err != nil || k.built() || k.ic.NetworkPlan == nil {
		return out, err
	}
	room := 0
	for _, s := range k.ic.NetworkPlan.Tier(job.TierPrivate) {
		if p, err := netip.ParsePrefix(s.CIDR); err == nil {
			room += hosts(p)
		}
	}
	return append(out, k.room(room, "config.spec.network.cidr")...), nil
}

// controlPlaneAddresses is what a control plane and its upgrades take of the subnets
// ("Amazon EKS networking requirements": six in each of them).
const controlPlaneAddresses = 12

// room compares the addresses that there are with those that nodes take. Pods have
// addresses of the VPC: a node takes those of one interface more than its pods use,
// and all that its type may have when it is full (amazon-vpc-cni-k8s, "ENI and IP
// target configuration").
func (k *clusterChecker) room(free int, field string) []cloud.Check {
	const check = "addresses for nodes and pods"
	least, most := controlPlaneAddresses, controlPlaneAddresses
	for _, n := range k.info.NodePools {
		f := k.types[n.InstanceType]
		if f.interfaces == 0 {
			f.interfaces, f.addresses = 3, 10 // what a small type has
		}
		least += n.Desired * min(2, f.interfaces) * f.addresses
		most += n.Max * f.interfaces * f.addresses
	}
	switch {
	case least > free:
		return []cloud.Check{fails(check, field, fmt.Sprintf("the private subnets have %d addresses, and the pools' nodes take %d before a pod of yours runs", free, least), "Use a larger range or fewer nodes.")}
	case most > free:
		return []cloud.Check{warns(check, field, fmt.Sprintf("the private subnets have %d addresses, and the pools take up to %d when all their nodes run and are full: pods that find none do not start", free, most), "Use a larger range, or a lower max.")}
	}
	return []cloud.Check{passes(check, "%d, of which nodes and pods take %d at most", free, most)}
}

// existingNetwork checks the VPC and the subnets that the job names for a cluster.
func (k *clusterChecker) existingNetwork(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	net, out, err := k.named(ctx)
	if err != nil || len(out) > 0 {
		return out, err
	}
	zones, private, public := net.spread()
	var able, unable []string
	for _, s := range net.subnets {
		switch {
		case !slices.Contains(private, s.id):
		case slices.Contains(noControlPlane, s.zoneID):
			unable = append(unable, s.zone)
		default:
			able = append(able, s.zone)
		}
	}
	if len(able) < 2 {
		text := fmt.Sprintf("a control plane wants private subnets in two zones, and those that are named stand in %s", strings.Join(zones, ", "))
		if len(unable) > 0 {
			text += "; Amazon EKS places none in " + strings.Join(unable, ", ")
		}
		out = append(out, fails(check, field, text, "Name private subnets in two zones or more."))
	}
	more, err := k.wayOut(ctx, net, private)
	if err != nil {
		return nil, err
	}
	out = append(out, more...)
	dns, err := k.dnsOfNetwork(ctx, deref(net.vpc.VpcId))
	if err != nil {
		return nil, err
	}
	out = append(out, dns...)
	free := 0
	for _, s := range net.subnets {
		if slices.Contains(private, s.id) {
			free += s.free
		}
	}
	if !k.built() {
		out = append(out, k.room(free, field)...)
	}
	out = append(out, untagged(net, private, public)...)
	if !slices.ContainsFunc(out, func(c cloud.Check) bool { return c.Status == cloud.CheckFails }) {
		out = append(out, passes(check, "%s with %d private and %d public subnets", k.cluster.Existing.NetworkID, len(private), len(public)))
	}
	return out, nil
}

// nodeServices are what a node has to reach to join and to pull images ("Deploy
// private clusters with limited internet access").
var nodeServices = []string{"ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "s3", "sts"}

// wayOut wants a default route for every private subnet, or endpoints for what nodes
// need: nodes in a subnet without never join (failure kind J11).
func (k *clusterChecker) wayOut(ctx context.Context, net existingNetwork, private []string) ([]cloud.Check, error) {
	const check, field = "way out of the private subnets", "config.spec.existing.subnetIds"
	var without, unknown []string
	for _, s := range net.subnets {
		switch {
		case !slices.Contains(private, s.id) || strings.HasPrefix(s.route, "nat-") && !strings.HasSuffix(s.route, "(gone)"):
		case s.route == "none" || strings.HasSuffix(s.route, "(gone)"):
			without = append(without, s.id)
		default:
			unknown = append(unknown, fmt.Sprintf("%s (through %s)", s.id, s.route))
		}
	}
	var out []cloud.Check
	if len(unknown) > 0 {
		out = append(out, warns(check, field, "whether these subnets reach the internet cannot be seen from here: "+strings.Join(unknown, ", "), ""))
	}
	if len(without) == 0 {
		return out, nil
	}
	missing, err := k.missingEndpoints(ctx, deref(net.vpc.VpcId), nodeServices)
	switch {
	case err != nil && stops(ctx, err):
		return nil, err
	case err != nil:
		return append(out, unchecked(check, field, err)), nil
	case len(missing) > 0:
		return append(out, fails(check, field, fmt.Sprintf("%s has no default route to a NAT gateway, and the VPC has no endpoint for %s, so nodes there never join", strings.Join(without, ", "), strings.Join(missing, ", ")),
			"Give the subnets a default route to a NAT gateway, or the VPC endpoints for "+strings.Join(nodeServices, ", ")+".")), nil
	}
	return append(out, warns(check, field, strings.Join(without, ", ")+" reaches AWS through endpoints, but not the internet: images come from Amazon ECR or a mirror inside alone", "")), nil
}

// dnsOfNetwork wants names to resolve: a private endpoint has its address by a name
// inside of the VPC ("Cluster API server endpoint").
func (k *clusterChecker) dnsOfNetwork(ctx context.Context, vpc string) ([]cloud.Check, error) {
	const check, field = "DNS of the network", "config.spec.existing.networkId"
	for _, a := range []struct {
		title string
		name  ec2types.VpcAttributeName
	}{{"DNS host names", ec2types.VpcAttributeNameEnableDnsHostnames}, {"DNS resolution", ec2types.VpcAttributeNameEnableDnsSupport}} {
		got, err := k.vpcAttribute(ctx, k.r, vpc, a.title, a.name)
		switch {
		case err != nil && stops(ctx, err):
			return nil, err
		case err != nil:
			return []cloud.Check{unchecked(check, field, err)}, nil
		case got.Seen == "off":
			return []cloud.Check{fails(check, field, a.title+" are off in "+vpc+", so that the name of the API server does not resolve to its private address", "Switch DNS host names and DNS resolution of the VPC on.")}, nil
		}
	}
	return nil, nil
}

// untagged warns of subnets into which controllers do not put load balancers by
// themselves. They are somebody else's, so the job does not tag them.
func untagged(net existingNetwork, private, public []string) []cloud.Check {
	var without []string
	for _, s := range net.subnets {
		role := ""
		switch {
		case slices.Contains(private, s.id):
			role = "kubernetes.io/role/internal-elb"
		case slices.Contains(public, s.id):
			role = "kubernetes.io/role/elb"
		}
		if _, ok := s.tags[role]; role != "" && !ok {
			without = append(without, s.id+" ("+role+"=1)")
		}
	}
	if len(without) == 0 {
		return nil
	}
	return []cloud.Check{warns("subnet tags for load balancers", "config.spec.existing.subnetIds",
		"a Service of type LoadBalancer finds its subnets by tags, and these have none: "+strings.Join(without, ", "), "Tag them, or name the subnets in the Services' annotations.")}
}

// clusterQuotas compares what the job will draw with what is left.
func (k *clusterChecker) clusterQuotas(ctx context.Context) ([]cloud.Check, error) {
	if k.r.Mode == pipeline.Verify {
		return nil, nil
	}
	limits := k.networkLimits()
	if !k.built() {
		limits = append(limits, limit{
			name: "cluster quota", field: "region", service: "eks", code: "L-1194D53C", want: 1, used: k.usedClusters,
			fix: "Ask AWS for more EKS clusters in the region, or remove one.",
		})
	}
	demand, spot := k.poolLimits()
	for _, l := range []limit{demand, spot} {
		if l.most > 0 {
			limits = append(limits, l)
		}
	}
	out, err := k.compareAll(ctx, limits)
	for _, n := range k.info.NodePools {
		if n.InstanceType != "" && !standard(n.InstanceType) {
			out = append(out, cloud.Check{Name: "vCPU quota", Status: cloud.CheckUnchecked, Field: "config.spec.nodePools", Message: "it is not known which quota " + n.InstanceType + " draws on"})
		}
	}
	return out, err
}

// poolLimits are the vCPUs of the pools that are not there yet, on demand and spot.
func (k *clusterChecker) poolLimits() (demand, spot limit) {
	const field = "config.spec.nodePools"
	demand = limit{name: "vCPU quota", field: field, service: "ec2", code: "L-1216C47A", used: k.usedVCPUs, fix: "Ask AWS for more vCPUs of on-demand standard instances, or use fewer or smaller nodes."}
	spot = limit{name: "spot vCPU quota", field: field, service: "ec2", code: "L-34B43A08", used: k.usedSpotVCPUs, fix: "Ask AWS for more vCPUs of standard spot instances, or use fewer or smaller nodes."}
	for _, n := range k.info.NodePools {
		if !standard(n.InstanceType) || k.made(kindNodegroup, poolPrefix+n.Name) {
			continue
		}
		into := &demand
		if n.Spot {
			into = &spot
		}
		into.want += n.Desired * k.types[n.InstanceType].vcpus
		into.most += n.Max * k.types[n.InstanceType].vcpus
	}
	return demand, spot
}

func (k *clusterChecker) usedClusters(ctx context.Context) (int, error) {
	names, err := k.clusterNames(ctx)
	return len(slices.DeleteFunc(names, func(n string) bool { return n == clusterNameOf(k.r.Job) })), err
}
