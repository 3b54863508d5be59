package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// networkJob asks everything that a network job's steps depend on, and lays the
// network out.
func (c *checker) networkJob(ctx context.Context) ([]cloud.Check, error) {
	spec, err := c.r.Job.NetworkJob()
	if err != nil {
		return []cloud.Check{fails("request", "config.spec", err.Error(), "Put the request right.")}, nil
	}
	c.spec = job.VMSpec{Network: spec.Network, Existing: spec.Existing}
	zones, err := c.networkZones(ctx)
	if err != nil || failed(zones) {
		return zones, err
	}
	links, peers, err := c.peers(ctx, spec.Peerings)
	if err != nil {
		return nil, err
	}
	plan, err := c.layout(ctx, links)
	if err != nil {
		return nil, err
	}
	out := slices.Concat(zones, peers, plan)
	parts := []func(context.Context) ([]cloud.Check, error){c.networkQuotas,
		func(ctx context.Context) ([]cloud.Check, error) { return c.dnsZones(ctx, spec.DNSZones) },
	}
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

func failed(checks []cloud.Check) bool {
	return slices.ContainsFunc(checks, func(k cloud.Check) bool { return k.Status == cloud.CheckFails })
}

// networkZones settles the zones that the subnets are spread over.
func (c *checker) networkZones(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Mode == pipeline.Verify || c.zonesKept() {
		return []cloud.Check{passes("zones", "%s", strings.Join(c.ic.Zones, ", "))}, nil
	}
	zones, bad, err := c.availableZones(ctx)
	if err != nil || bad != nil {
		return bad, err
	}
	if want := c.spec.Network.Zones; len(zones) < want {
		return []cloud.Check{fails("zones", "config.spec.network.zones", fmt.Sprintf("%s has %d zones that this account can use (%s), and the job wants %d", c.region, len(zones), strings.Join(zones, ", "), want), "Ask for fewer zones, or another region.")}, nil
	}
	c.ic.Zones = slices.Clone(zones[:c.spec.Network.Zones])
	return []cloud.Check{passes("zones", "%s", strings.Join(c.ic.Zones, ", "))}, nil
}

// layout plans the ranges around what is in use: siblings in a named network and
// peers must not be overlapped, other networks of the account had better not be.
func (c *checker) layout(ctx context.Context, links []link) ([]cloud.Check, error) {
	const check, field = "network plan", "config.spec.network.cidr"
	if c.r.Mode == pipeline.Verify || c.zonesKept() || c.made(kindVPC, "vpc") {
		return nil, nil
	}
	n := c.spec.Network
	request := cidr.Request{CIDR: n.CIDR, Secondary: n.SecondaryCIDRs, Zones: c.ic.Zones, Tiers: n.Subnets}
	named := ""
	if c.r.Job.Mode == job.ModeCreateInExisting {
		bad, err := c.inside(ctx, &request)
		if err != nil || bad != nil {
			return bad, err
		}
		named = c.ic.NetworkID
	}
	for _, l := range links {
		for _, block := range vpcRanges(l.vpc) {
			if p, err := netip.ParsePrefix(block); err == nil {
				request.InUse = append(request.InUse, cidr.Used{Prefix: p, By: "peer " + label(l.vpc.VpcId, l.vpc.Tags), Hard: true})
			}
		}
	}
	var out []cloud.Check
	others, err := c.allVPCs(ctx)
	if err != nil && stops(ctx, err) {
		return nil, err
	}
	if err != nil {
		out = append(out, unchecked("other networks of the account", field, err))
	}
	for _, v := range others {
		owner, _ := ec2Mark(v.Tags)
		if owner == c.r.Job.ID || named != "" { // in a named network there is no choice but its ranges
			continue
		}
		for _, block := range vpcRanges(v) {
			if p, err := netip.ParsePrefix(block); err == nil {
				request.InUse = append(request.InUse, cidr.Used{Prefix: p, By: "VPC " + label(v.VpcId, v.Tags)})
			}
		}
	}
	plan, bad := cidr.Plan(cidr.For(job.AWS), request)
	if bad != nil {
		return append(out, fails(check, bad.Field, bad.Message, capital(bad.Fix)+".")), nil
	}
	c.ic.NetworkPlan = plan
	for _, note := range plan.Notes {
		if strings.Contains(note, "never be peered") {
			out = append(out, warns("overlap with other networks", field, note, "Use another range if they shall ever be peered."))
		}
	}
	return append(out, passes(check, "%s with %d subnets", plan.CIDR, len(plan.Subnets))), nil
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// inside finds the named network, and what of it is taken.
func (c *checker) inside(ctx context.Context, request *cidr.Request) ([]cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.networkId"
	if c.spec.Existing == nil {
		return []cloud.Check{fails(check, field, "the request names no network to build in", "Name one.")}, nil
	}
	v, err := c.namedVPC(ctx, c.spec.Existing.NetworkID)
	if bad, err := c.unnamed(err, check, field, c.spec.Existing.NetworkID); err != nil || bad != nil {
		return bad, err
	}
	c.ic.NetworkID, c.ic.NetworkName, c.ic.NetworkCIDR = deref(v.VpcId), nameTag(v.Tags), deref(v.CidrBlock)
	for _, block := range vpcRanges(v) {
		if p, err := netip.ParsePrefix(block); err == nil {
			request.Within = append(request.Within, p)
		}
	}
	subnets, err := ec2Page[ec2types.Subnet](c.subnetPage).all(ctx, filter("vpc-id", c.ic.NetworkID))
	if err != nil {
		return nil, err
	}
	for _, s := range subnets {
		owner, _ := ec2Mark(s.Tags)
		if p, err := netip.ParsePrefix(deref(s.CidrBlock)); err == nil && owner != c.r.Job.ID && deref(s.VpcId) == c.ic.NetworkID {
			request.InUse = append(request.InUse, cidr.Used{Prefix: p, By: "subnet " + label(s.SubnetId, s.Tags), Hard: true})
		}
	}
	n := c.spec.Network
	if n.NAT != job.NATNone && slices.Contains(n.Subnets, job.TierPrivate) && !slices.Contains(n.Subnets, job.TierPublic) {
		return []cloud.Check{fails(check, "config.spec.network.nat", "a NAT gateway stands in a public subnet of the job, and none is asked for", "Add public to subnets, or set nat: none.")}, nil
	}
	return c.endpointsTaken(ctx)
}

// endpointsTaken refuses interface endpoints whose private names the network has already.
func (c *checker) endpointsTaken(ctx context.Context) ([]cloud.Check, error) {
	services := askedEndpoints(c.spec.Network)
	if len(services) == 0 {
		return nil, nil
	}
	missing, err := c.missingEndpoints(ctx, c.ic.NetworkID, managerServices)
	if err != nil {
		return nil, pipeline.Unless(err, pipeline.Denied)
	}
	for _, s := range services {
		if !slices.Contains(missing, s) && !c.made(kindEndpoint, endpointGateway+s) {
			return []cloud.Check{fails("interface endpoints", "config.spec.network.interfaceEndpoints", fmt.Sprintf("%s has an endpoint for %s already, and its private names can only lead to one", c.ic.NetworkID, s), "Leave interfaceEndpoints out, and use the one that is there.")}, nil
		}
	}
	return nil, nil
}

// unnamed turns what a lookup by ID or name ended with into a check.
func (c *checker) unnamed(err error, check, field, named string) ([]cloud.Check, error) {
	if f := asFatal(err); f != nil {
		return []cloud.Check{fails(check, field, f.Problem.Message, f.Problem.Hint)}, nil //nolint:nilerr // it is the check's outcome
	}
	if pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) {
		return []cloud.Check{fails(check, field, fmt.Sprintf("there is no VPC %s in %s", named, c.region), "Name a VPC of this account and region, by its ID or its Name tag.")}, nil
	}
	return nil, err
}

// peers looks at the other side of every peering.
func (c *checker) peers(ctx context.Context, all []job.Peering) ([]link, []cloud.Check, error) {
	var links []link
	var out []cloud.Check
	for i, asked := range all {
		check, field := asked.String(), fmt.Sprintf("config.spec.peerings[%d]", i)
		l, err := c.linkForCheck(ctx, asked)
		switch f := asFatal(err); {
		case f != nil:
			out = append(out, fails(check, field, f.Problem.Message, f.Problem.Hint))
		case err != nil && (ctx.Err() != nil || pipeline.Is(err, pipeline.Refused, pipeline.Unavailable, pipeline.Throttled)):
			return nil, nil, err
		case err != nil:
			out = append(out, fails(check, field, plain(err).Error(), "Allow the credentials of the other side to describe it."))
		case l.peer == nil:
			out = append(out, warns(check, field, fmt.Sprintf("%s belongs to account %s: the job waits until its owner accepts, and cannot see whether the ranges overlap", asked.NetworkID, l.account), "Name its cloud account in cloudAccountId to have it accepted from here."))
		case l.vpcID == c.ic.NetworkID:
			out = append(out, fails(check, field, "a network cannot be peered with itself", "Name another network."))
		default:
			links = append(links, l)
			out = append(out, c.outsideOf(check, field, asked, l)...)
		}
	}
	return links, out, nil
}

// linkForCheck finds the other side as a step would, whatever mode the run has.
func (c *checker) linkForCheck(ctx context.Context, asked job.Peering) (link, error) {
	mode := c.r.Mode
	c.r.Mode = pipeline.Apply
	defer func() { c.r.Mode = mode }()
	return c.link(ctx, c.r, asked)
}

// outsideOf says which of the ranges to route to the peer does not have.
func (c *checker) outsideOf(check, field string, asked job.Peering, l link) []cloud.Check {
	for i, block := range asked.CIDRs {
		want, err := netip.ParsePrefix(block)
		inside := err == nil && slices.ContainsFunc(vpcRanges(l.vpc), func(s string) bool {
			have, err := netip.ParsePrefix(s)
			return err == nil && have.Bits() <= want.Bits() && have.Contains(want.Addr())
		})
		if !inside {
			return []cloud.Check{warns(check, fmt.Sprintf("%s.cidrs[%d]", field, i), fmt.Sprintf("%s is no part of %s, which has %s", block, l.vpcID, strings.Join(vpcRanges(l.vpc), ", ")), "Name ranges that the peer has.")}
		}
	}
	return []cloud.Check{passes(check, "%s of account %s in %s", label(l.vpc.VpcId, l.vpc.Tags), l.account, l.region)}
}

// dnsZones looks for zones that would stand in the way of the job's.
func (c *checker) dnsZones(ctx context.Context, wanted []job.DNSZone) ([]cloud.Check, error) {
	if len(wanted) == 0 || c.r.Mode == pipeline.Verify {
		return nil, nil
	}
	const check = "DNS zones"
	all, err := c.zones(ctx)
	if err != nil {
		if stops(ctx, err) {
			return nil, err
		}
		return []cloud.Check{unchecked(check, "config.spec.dnsZones", err)}, nil
	}
	var out []cloud.Check
	for i, z := range wanted {
		for _, have := range all {
			if z.Visibility == job.ZonePublic && !have.private && have.name == domain(z.Name) && zoneOwner(have.reference) != c.r.Job.ID {
				out = append(out, fails(check, fmt.Sprintf("config.spec.dnsZones[%d].name", i), fmt.Sprintf("this account has a public zone %s already (%s), and the internet is sent to one only", z.Name, have.id), "Use that one, or remove it."))
			}
		}
	}
	if len(out) == 0 {
		out = append(out, passes(check, "%d to make, no name is taken", len(wanted)))
	}
	return out, nil
}
