package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// network checks the range of a network to make, or the network that is named.
func (c *checker) network(ctx context.Context) ([]cloud.Check, error) {
	switch {
	case c.r.Job.Mode == job.ModeCreateInExisting:
		return c.existingChecks(ctx)
	case c.r.Mode == pipeline.Verify || c.made(kindVPC, "vpc"):
		return nil, nil
	}
	const check, field = "network range", "config.spec.network.cidr"
	if len(c.ic.Zones) > 0 {
		n := c.spec.Network
		plan, bad := cidr.Plan(cidr.For(job.AWS), cidr.Request{CIDR: n.CIDR, Secondary: n.SecondaryCIDRs, Zones: c.ic.Zones, Tiers: n.Subnets})
		if bad != nil {
			return []cloud.Check{fails(check, bad.Field, bad.Message, "Change the range or the number of zones: "+bad.Fix+".")}, nil
		}
		c.ic.NetworkPlan = plan
		private := plan.Tier(job.TierPrivate)
		most, room := c.spec.Pool.VMCount(), len(private)*hosts(netip.MustParsePrefix(private[0].CIDR))
		if c.spec.Pool.Max != nil {
			most = max(most, *c.spec.Pool.Max)
		}
		if most > room {
			return []cloud.Check{fails(check, field, fmt.Sprintf("the private subnets of %s hold %d VMs, and the pool may have %d", n.CIDR, room, most), "Use a larger range or fewer VMs.")}, nil
		}
	}
	return c.overlaps(ctx)
}

// overlaps compares the range with the VPCs of the account and with what they
// are peered with. A range that is in use by peering could never be routed to.
func (c *checker) overlaps(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "overlap with other networks", "config.spec.network.cidr"
	want, err := netip.ParsePrefix(c.spec.Network.CIDR)
	if err != nil {
		return []cloud.Check{fails(check, field, err.Error(), "Use a range such as 10.40.0.0/16.")}, nil
	}
	vpcs, err := c.allVPCs(ctx)
	if err != nil {
		if stops(ctx, err) {
			return nil, err
		}
		return []cloud.Check{unchecked(check, field, err)}, nil
	}
	var out []cloud.Check
	peerings, err := c.peerings(ctx)
	if err != nil {
		if stops(ctx, err) {
			return nil, err
		}
		out = append(out, unchecked("networks in use by peering", field, err))
	}
	peered := map[string]bool{}
	for _, pc := range peerings {
		for _, side := range []*ec2types.VpcPeeringConnectionVpcInfo{pc.RequesterVpcInfo, pc.AccepterVpcInfo} {
			if side == nil {
				continue
			}
			peered[deref(side.VpcId)] = true
			ranges := []string{deref(side.CidrBlock)}
			for _, b := range side.CidrBlockSet {
				ranges = append(ranges, deref(b.CidrBlock))
			}
			if hit := overlap(want, ranges); hit != "" {
				out = append(out, fails(check, field, fmt.Sprintf("%s overlaps %s of %s, which peering connection %s uses", want, hit, deref(side.VpcId), deref(pc.VpcPeeringConnectionId)), "Use a range that no peered network has."))
			}
		}
	}
	for _, v := range vpcs {
		owner, _ := ec2Mark(v.Tags)
		if owner == c.r.Job.ID || peered[deref(v.VpcId)] {
			continue
		}
		ranges := []string{deref(v.CidrBlock)}
		for _, b := range v.CidrBlockAssociationSet {
			ranges = append(ranges, deref(b.CidrBlock))
		}
		if hit := overlap(want, ranges); hit != "" {
			out = append(out, warns(check, field, fmt.Sprintf("%s overlaps %s of VPC %s; the two could not be peered later", want, hit, label(v.VpcId, v.Tags)), "Use another range if they shall ever be peered."))
		}
	}
	if len(out) == 0 {
		out = append(out, passes(check, "%s is not in use in %s", want, c.region))
	}
	return slices.CompactFunc(out, func(a, b cloud.Check) bool { return a == b }), nil
}

func overlap(want netip.Prefix, ranges []string) string {
	for _, s := range ranges {
		if p, err := netip.ParsePrefix(s); err == nil && p.Overlaps(want) {
			return s
		}
	}
	return ""
}

func (c *checker) allVPCs(ctx context.Context) ([]ec2types.Vpc, error) {
	return lookup.Once(ctx, "all VPCs", func(ctx context.Context) ([]ec2types.Vpc, error) {
		return ec2Page[ec2types.Vpc](c.vpcPage).all(ctx)
	})
}

func (c *checker) peerings(ctx context.Context) ([]ec2types.VpcPeeringConnection, error) {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ec2types.VpcPeeringConnection, *string, error) {
		out, err := c.ec2.DescribeVpcPeeringConnections(ctx, &ec2.DescribeVpcPeeringConnectionsInput{NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.VpcPeeringConnections, out.NextToken, nil
	})
	return slices.DeleteFunc(all, func(pc ec2types.VpcPeeringConnection) bool {
		if pc.Status == nil {
			return true
		}
		switch pc.Status.Code {
		case ec2types.VpcPeeringConnectionStateReasonCodeActive, ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance,
			ec2types.VpcPeeringConnectionStateReasonCodeProvisioning, ec2types.VpcPeeringConnectionStateReasonCodeInitiatingRequest:
			return false
		}
		return true
	}), err
}

// named reads the VPC and the subnets that the job names, and says what is wrong
// with the names: then the rest cannot be checked.
func (c *checker) named(ctx context.Context) (existingNetwork, []cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	named := *c.spec.Existing
	net, err := c.existing(ctx, named)
	if f := asFatal(err); f != nil {
		return net, []cloud.Check{fails(check, "config.spec.existing.networkId", f.Problem.Message, f.Problem.Hint)}, nil //nolint:nilerr // it is the check's outcome
	}
	switch {
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid):
		return net, []cloud.Check{fails(check, "config.spec.existing.networkId", fmt.Sprintf("VPC %s is not there in %s: %v", named.NetworkID, c.region, plain(err)), "Name a VPC of this account and region.")}, nil
	case err != nil:
		return net, nil, err
	}
	var out []cloud.Check
	if len(net.missing) > 0 {
		out = append(out, fails(check, field, "there is no subnet "+strings.Join(net.missing, ", ")+" in "+c.region, "Name subnets that exist."))
	}
	if len(net.elsewhere) > 0 {
		out = append(out, fails(check, field, strings.Join(net.elsewhere, ", ")+" belongs to another VPC than "+named.NetworkID, "Name subnets of one VPC."))
	}
	if _, private, _ := net.spread(); len(private) == 0 && len(out) == 0 {
		out = append(out, fails(check, field, "none of the subnets is private: each has a default route to an internet gateway", "Name a subnet whose default route leads to a NAT gateway, for the VMs."))
	}
	return net, out, nil
}

// existingChecks checks the VPC and the subnets that the job names.
func (c *checker) existingChecks(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	named := *c.spec.Existing
	net, out, err := c.named(ctx)
	if err != nil || len(out) > 0 {
		return out, err
	}
	zones, private, public := net.spread()
	if lb := c.spec.LoadBalancer; lb != nil {
		out = append(out, balancerSubnets(lb, zones, public)...)
	}
	reach, err := c.reach(ctx, net)
	if err != nil {
		return nil, err
	}
	out = append(out, reach...)
	free := 0
	for _, s := range net.subnets {
		if slices.Contains(private, s.id) {
			free += s.free
		}
	}
	if want := c.spec.Pool.VMCount(); free < want && c.r.Mode != pipeline.Verify && !c.made(kindLaunchTemplate, "vm") {
		out = append(out, fails(check, field, fmt.Sprintf("the private subnets have %d free addresses, and the pool wants %d", free, want), "Name larger subnets or fewer VMs."))
	}
	if len(out) == 0 {
		out = append(out, passes(check, "%s with %d private and %d public subnets", named.NetworkID, len(private), len(public)))
	}
	return out, nil
}

// balancerSubnets wants two zones for a load balancer: an application load balancer
// takes no less ("Subnets for your load balancer").
func balancerSubnets(lb *job.LoadBalancer, zones, public []string) []cloud.Check {
	const check, field = "subnets for the load balancer", "config.spec.existing.subnetIds"
	need := 2
	if lb.Type == job.LBTCP {
		need = 1
	}
	if lb.Scheme == job.SchemePublic && len(public) < need {
		return []cloud.Check{fails(check, field, fmt.Sprintf("a public %s load balancer wants public subnets in %d zones, and %d are named", lb.Type, need, len(public)), "Name public subnets in other zones too, or make the load balancer internal.")}
	}
	if lb.Scheme == job.SchemeInternal && len(zones) < need {
		return []cloud.Check{fails(check, field, fmt.Sprintf("an internal %s load balancer wants private subnets in %d zones, and %d are named", lb.Type, need, len(zones)), "Name private subnets in other zones too.")}
	}
	return nil
}

// reach wants a way from the private subnets to Systems Manager: without one
// the agent never registers (failure kind M13).
func (c *checker) reach(ctx context.Context, net existingNetwork) ([]cloud.Check, error) {
	const check, field = "way out of the private subnets", "config.spec.existing.subnetIds"
	var without, unknown []string
	for _, s := range net.subnets {
		switch {
		case s.public || strings.HasPrefix(s.route, "nat-") && !strings.HasSuffix(s.route, "(gone)"):
		case s.route == "none" || strings.HasSuffix(s.route, "(gone)"):
			without = append(without, s.id)
		default:
			unknown = append(unknown, fmt.Sprintf("%s (through %s)", s.id, s.route))
		}
	}
	var out []cloud.Check
	if len(unknown) > 0 {
		out = append(out, warns(check, field, "whether these subnets reach the internet and Systems Manager cannot be seen from here: "+strings.Join(unknown, ", "), ""))
	}
	if len(without) == 0 {
		return out, nil
	}
	missing, err := c.missingEndpoints(ctx, deref(net.vpc.VpcId), managerServices)
	switch {
	case err != nil && stops(ctx, err):
		return nil, err
	case err != nil:
		out = append(out, unchecked(check, field, err))
	case len(missing) > 0:
		out = append(out, fails(check, field, fmt.Sprintf("%s has no default route to a NAT gateway, and the VPC has no endpoint for %s, so Systems Manager never sees the VMs", strings.Join(without, ", "), strings.Join(missing, ", ")),
			"Give the subnets a default route to a NAT gateway, or the VPC interface endpoints for ssm, ssmmessages and ec2messages."))
	default:
		out = append(out, warns(check, field, strings.Join(without, ", ")+" reaches Systems Manager through endpoints, but not the internet: Docker can only be installed from a mirror inside", ""))
	}
	return out, nil
}

// endpointsBy lists endpoints by filters.
func (p *Provider) endpointsBy(ctx context.Context, filters ...ec2types.Filter) ([]ec2types.VpcEndpoint, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ec2types.VpcEndpoint, *string, error) {
		out, err := p.ec2.DescribeVpcEndpoints(ctx, &ec2.DescribeVpcEndpointsInput{Filters: filters, NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.VpcEndpoints, out.NextToken, nil
	})
}

// managerServices are what the Systems Manager agent calls.
var managerServices = []string{"ssm", "ssmmessages", "ec2messages"}

// missingEndpoints are the services that a VPC has no endpoint for.
func (c *checker) missingEndpoints(ctx context.Context, vpcID string, services []string) ([]string, error) {
	all, err := c.endpointsBy(ctx, filter("vpc-id", vpcID))
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, want := range services {
		if !slices.ContainsFunc(all, func(e ec2types.VpcEndpoint) bool {
			return strings.HasSuffix(deref(e.ServiceName), "."+want) && strings.EqualFold(string(e.State), "available")
		}) {
			missing = append(missing, want)
		}
	}
	return missing, nil
}
