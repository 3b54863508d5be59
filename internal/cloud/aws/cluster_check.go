package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// noControlPlane are the IDs of the zones in which Amazon EKS places no control plane
// ("Amazon EKS networking requirements for VPC and subnets"). A subnet in one of them
// makes it refuse a cluster, long after the network was paid for (failure kind J1).
var noControlPlane = []string{"use1-az3", "usw1-az2", "cac1-az3"}

// A clusterChecker asks what a cluster job's later steps depend on.
type clusterChecker struct {
	*checker
	cluster job.ClusterSpec
	info    *job.ClusterInfo
	types   map[string]typeFacts // what is known of the pools' types
}

// clusterJob checks a cluster job.
func (c *checker) clusterJob(ctx context.Context) ([]cloud.Check, error) {
	spec, err := c.r.Job.ClusterSpec()
	if err != nil {
		return []cloud.Check{fails("request", "config.spec", err.Error(), "Put the request right.")}, nil
	}
	if c.r.Job.Mode == job.ModeAdopt {
		return c.adoptedCluster(ctx)
	}
	c.spec.Network, c.spec.Existing = spec.Network, spec.Existing
	k := &clusterChecker{checker: c, cluster: spec, info: &c.ic.Cluster, types: map[string]typeFacts{}}
	out := []cloud.Check{k.endpoint()}
	place, err := k.placePools(ctx)
	if err != nil {
		return nil, err
	}
	out = append(out, place...)
	parts := []func(context.Context) ([]cloud.Check, error){k.version, k.networks, k.serviceRange, k.clusterQuotas, k.admins}
	answers := make([][]cloud.Check, len(parts))
	var calls []func(context.Context) error
	for i, part := range parts {
		calls = append(calls, func(ctx context.Context) (err error) {
			answers[i], err = part(ctx)
			return err
		})
	}
	if err := pipeline.All(ctx, calls...); err != nil {
		return nil, err
	}
	return append(append(out, slices.Concat(answers...)...), c.names()), nil
}

// built reports whether there is a cluster already, or nothing is to be changed.
func (k *clusterChecker) built() bool {
	return k.r.Mode == pipeline.Verify || k.made(kindCluster, clusterKey)
}

// endpoint decides who reaches the API server. It is private where the provisioner
// gets to it so, and otherwise open to the provisioner's own ranges and those of the
// spec; never to everybody (control EKS-01).
func (k *clusterChecker) endpoint() cloud.Check {
	const check, field = "reach of the API server", "config.spec.endpoint"
	const choices = "Start the server with --reach direct if it runs inside of the network or has a way into it, or with --reach public:YOUR-RANGE for the range that its connections come from"
	ranges := slices.Clone(k.cluster.Endpoint.PublicCIDRs)
	switch k.reachBy.Mode {
	case job.ReachDirect:
	case job.ReachTunnel:
		return fails(check, field, "AWS has no tunnel to the API server of a private cluster", choices+".")
	default:
		if len(k.reachBy.EgressCIDRs) == 0 {
			return fails(check, field, "the API server would be private, and this server has no way to it: it does not say which range its own connections come from", choices+".")
		}
		ranges = append(ranges, k.reachBy.EgressCIDRs...)
	}
	slices.Sort(ranges)
	ranges = slices.Compact(ranges)
	if len(ranges) > mostRanges {
		return fails(check, field+".publicCidrs", fmt.Sprintf("the endpoint would be open to %d ranges, and Amazon EKS takes %d", len(ranges), mostRanges), "Name fewer or larger ranges.")
	}
	if k.r.Mode != pipeline.Verify {
		k.info.Public, k.info.PublicCIDRs = len(ranges) > 0, ranges
	}
	if len(ranges) == 0 {
		return passes(check, "private, inside of the network alone")
	}
	return passes(check, "private, and from %s over the internet", strings.Join(ranges, ", "))
}

// mostRanges is how many ranges an endpoint opens to ("Amazon EKS endpoints and quotas").
const mostRanges = 40

// version takes the version that is asked for, or EKS's default. One that is past its
// standard support costs extra and is taken on an explicit word alone.
func (k *clusterChecker) version(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "Kubernetes version", "config.spec.version"
	if k.built() {
		return nil, nil
	}
	offered, err := k.clusterVersions(ctx)
	switch {
	case err != nil && stops(ctx, err):
		return nil, err
	case err != nil:
		k.info.Version = k.cluster.Version // and EKS's default without one
		return []cloud.Check{unchecked(check, field, err)}, nil
	}
	var standard, all []string
	var chosen *kubeVersion
	for i, v := range offered {
		all = append(all, v.version)
		if v.standard {
			standard = append(standard, v.version)
		}
		if v.version == k.cluster.Version || k.cluster.Version == "" && v.preset && v.standard {
			chosen = &offered[i]
		}
	}
	if chosen == nil && k.cluster.Version == "" && len(standard) > 0 {
		// EKS's default is past its standard support: the next one is not.
		chosen = &offered[slices.IndexFunc(offered, func(v kubeVersion) bool { return v.version == standard[len(standard)-1] })]
	}
	switch {
	case chosen == nil:
		return []cloud.Check{fails(check, field, fmt.Sprintf("Amazon EKS does not offer Kubernetes %s in %s; it offers %s", or(k.cluster.Version, "in standard support"), k.region, or(strings.Join(all, ", "), "nothing")), "Name one of "+strings.Join(standard, ", ")+", or leave it out.")}, nil
	case !chosen.standard && !k.cluster.ExtendedSupport:
		return []cloud.Check{fails(check, field, fmt.Sprintf("standard support of Kubernetes %s ended on %s; extended support is billed extra", chosen.version, or(chosen.until, "a day that EKS does not say")),
			"Name one of "+strings.Join(standard, ", ")+", or set extendedSupport.")}, nil
	}
	k.info.Version, k.info.SupportUntil, k.info.Extended = chosen.version, chosen.until, !chosen.standard
	if k.info.Extended {
		return []cloud.Check{warns(check, field, fmt.Sprintf("Kubernetes %s is in extended support, which is billed extra; standard support ended on %s", chosen.version, chosen.until), "")}, nil
	}
	if soon := k.r.Now().AddDate(0, 0, 60).UTC().Format("2006-01-02"); chosen.until != "" && chosen.until < soon {
		return []cloud.Check{warns(check, field, fmt.Sprintf("standard support of Kubernetes %s ends on %s, and Amazon EKS upgrades the cluster then", chosen.version, chosen.until), "")}, nil
	}
	return []cloud.Check{passes(check, "%s, in standard support until %s", chosen.version, or(chosen.until, "a day that EKS does not say"))}, nil
}

// servicesCandidates are ranges for the Services, the two of EKS's own first.
var servicesCandidates = []string{"172.20.0.0/16", "10.100.0.0/16", "172.24.0.0/16", "10.96.0.0/16", "172.28.0.0/16", "192.168.128.0/17"}

// serviceRange takes a range for the Services that the network and its peers do not
// have: a Service's address would be routed there (failure kind J8).
func (k *clusterChecker) serviceRange(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "range of the Services", "config.spec.serviceCidr"
	if k.built() {
		return nil, nil
	}
	used, err := k.usedRanges(ctx)
	if err != nil {
		if stops(ctx, err) || pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) || asFatal(err) != nil {
			return nil, pipeline.Unless(err, pipeline.NotFound, pipeline.Invalid) // the check of the network says so
		}
		return []cloud.Check{unchecked(check, field, err)}, nil
	}
	candidates := servicesCandidates
	if k.cluster.ServiceCIDR != "" {
		candidates = []string{k.cluster.ServiceCIDR}
	}
	var hits []string
	for _, text := range candidates {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return []cloud.Check{fails(check, field, err.Error(), "Use one such as 172.20.0.0/16, or leave it out.")}, nil
		}
		if hit := overlap(p, used); hit != "" {
			hits = append(hits, text+" overlaps "+hit)
			continue
		}
		k.info.ServiceCIDR = text
		return []cloud.Check{passes(check, "%s, free of %s", text, strings.Join(used, ", "))}, nil
	}
	return []cloud.Check{fails(check, field, "no range is free for the Services: "+strings.Join(hits, "; "), "Name a private /12 to /24 that neither the network nor a peer of it has.")}, nil
}

// usedRanges are the ranges of the network and of its peers.
func (k *clusterChecker) usedRanges(ctx context.Context) ([]string, error) {
	if k.r.Job.Mode == job.ModeCreate {
		n := k.cluster.Network
		return append([]string{n.CIDR}, n.SecondaryCIDRs...), nil
	}
	net, err := k.existing(ctx, *k.cluster.Existing)
	if err != nil {
		return nil, err
	}
	used := vpcRanges(net.vpc)
	peerings, err := k.peerings(ctx)
	for _, c := range peerings {
		if !joins(c, aws.ToString(net.vpc.VpcId)) {
			continue
		}
		if a, r := c.AccepterVpcInfo, c.RequesterVpcInfo; a != nil && r != nil {
			for _, b := range slices.Concat(a.CidrBlockSet, r.CidrBlockSet) {
				used = append(used, aws.ToString(b.CidrBlock))
			}
		}
	}
	slices.Sort(used)
	return slices.Compact(used), pipeline.Unless(err, pipeline.Denied, pipeline.Invalid)
}

// admins looks whether the roles that are to administer the cluster exist: EKS takes
// no entry for one that does not.
func (k *clusterChecker) admins(ctx context.Context) ([]cloud.Check, error) {
	const check = "administrators"
	var out []cloud.Check
	for i, arn := range k.cluster.Admins {
		part := strings.SplitN(arn, ":", 6)
		if len(part) < 6 || part[4] != k.ic.Account || !strings.HasPrefix(part[5], "role/") {
			continue // what is not a role of this account cannot be looked up from here
		}
		_, err := k.readRole(ctx, part[5][strings.LastIndexByte(part[5], '/')+1:])
		field := fmt.Sprintf("config.spec.admins[%d]", i)
		switch {
		case err == nil:
		case stops(ctx, err):
			return nil, err
		case pipeline.Is(err, pipeline.NotFound):
			out = append(out, fails(check, field, "there is no role "+arn, "Name a role that exists, with its path."))
		default:
			out = append(out, unchecked(check, field, err))
		}
	}
	return out, nil
}

// adoptedCluster checks that the cluster that the job points at is there.
func (c *checker) adoptedCluster(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "adopted cluster", "config.spec.adopt"
	clusterName, err := adoptedCluster(c.r.Job)
	if err != nil {
		return []cloud.Check{fails(check, field, err.Error(), "Give the cluster's name.")}, nil
	}
	found, err := c.readCluster(ctx, clusterName)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return []cloud.Check{fails(check, field+".name", fmt.Sprintf("there is no cluster %s in %s", clusterName, c.region), "Name a cluster of this account and region.")}, nil
	case err != nil:
		return nil, err
	}
	return []cloud.Check{passes(check, "%s, Kubernetes %s, %s", clusterName, aws.ToString(found.Version), found.Status)}, nil
}

// clusterNames are the names of the region's clusters.
func (p *Provider) clusterNames(ctx context.Context) ([]string, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
		out, err := p.eks.ListClusters(ctx, &eks.ListClustersInput{NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.Clusters, out.NextToken, nil
	})
}
