package gcp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// network lays the job's network out clear of what is in use, and records the
// plan. The ranges of a plan that something was made by stay.
func (c *checker) network(ctx context.Context) error {
	const check, field = "address plan", "config.spec.network.cidr"
	if c.spec.NAT == job.NATPerZone {
		c.warn("NAT", "config.spec.network.nat", "Cloud NAT belongs to a region and not to a zone: one serves all zones", "Say single to have it as it is.")
	}
	used, fine, err := c.inUse(ctx)
	if err != nil || !fine {
		return err
	}
	spec, begun := c.spec, c.ic.NetworkPlan != nil && c.begun()
	if begun {
		spec = pinned(spec, c.ic.NetworkPlan)
	}
	plan, bad := cidr.Plan(cidr.For(job.GCP), cidr.Request{
		CIDR: spec.CIDR, Secondary: spec.SecondaryCIDRs, Tiers: spec.Subnets, Ranges: spec.SecondaryRanges,
		Bits: c.bits, PrivateServices: spec.PrivateServices, InUse: used,
	})
	if bad != nil {
		c.fails(check, bad.Field, bad.Message, bad.Fix)
		return nil
	}
	if begun {
		plan.Notes = c.ic.NetworkPlan.Notes
	}
	if c.r.Mode != pipeline.Verify {
		c.ic.NetworkPlan = plan
	}
	switch notes := strings.Join(plan.Notes, "; "); {
	case notes == "":
		c.ok(check, "%s", plan.CIDR)
	case c.spec.CIDR == "":
		c.ok(check, "%s: %s", plan.CIDR, notes)
	default: // what was asked for overlaps something
		c.warn(check, field, plan.CIDR+": "+notes, "")
	}
	return nil
}

// pinned is a request in which what was proposed before is asked for: the ranges
// of what has been made stay, whatever else is free by now.
func pinned(spec job.NetworkSpec, plan *job.NetworkPlan) job.NetworkSpec {
	if spec.CIDR == "" {
		spec.CIDR = plan.CIDR
	}
	spec.SecondaryRanges = slices.Clone(spec.SecondaryRanges)
	for i, want := range spec.SecondaryRanges {
		for _, had := range plan.SecondaryRanges {
			if want.CIDR == "" && had.Name == want.Name {
				spec.SecondaryRanges[i].CIDR = had.CIDR
			}
		}
	}
	if spec.PrivateServices != nil && spec.PrivateServices.CIDR == "" && plan.PrivateServices != "" {
		spec.PrivateServices = &job.PrivateServices{CIDR: plan.PrivateServices}
	}
	return spec
}

// begun reports whether anything of the plan is there already.
func (c *checker) begun() bool {
	return slices.ContainsFunc(c.r.Objects(), func(o job.Object) bool {
		return (o.Kind == kindNetwork || o.Kind == kindSubnet || o.Kind == kindGlobalAddress) && (o.State == job.ObjectCreated || o.State == job.ObjectIntended)
	})
}

// inUse is what the plan has to keep clear of: hard are the ranges of the named
// network and of peers; others of the project are only avoided. False: something
// that was found out makes a plan pointless.
func (c *checker) inUse(ctx context.Context) (used []cidr.Used, fine bool, err error) {
	all, err := c.p.allSubnets(ctx)
	if err != nil {
		return nil, true, c.unchecked(ctx, "ranges in use", "", err)
	}
	for _, s := range all {
		if owner, _ := textMark(s.Description); owner != c.r.Job.ID {
			used = append(used, usedBy(s, false)...)
		}
	}
	fine = true
	if named, err := c.r.Job.Existing(); err == nil && named != nil {
		more, ok, err := c.namedNetwork(ctx, named.NetworkID)
		if err != nil {
			return nil, false, err
		}
		used, fine = append(used, more...), ok
	}
	more, ok, err := c.peers(ctx)
	return append(used, more...), fine && ok, err
}

// usedBy are the ranges of a subnet.
func usedBy(s *compute.Subnetwork, hard bool) []cidr.Used {
	by := fmt.Sprintf("subnet %s of network %s", s.Name, base(s.Network))
	var out []cidr.Used
	add := func(text, by string) {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, cidr.Used{Prefix: p, By: by, Hard: hard})
		}
	}
	add(s.IpCidrRange, by)
	for _, x := range s.SecondaryIpRanges {
		add(x.IpCidrRange, by+" (secondary range "+x.RangeName+")")
	}
	return out
}

// namedNetwork reads what is in the network that the job builds in: its subnets,
// what its routes lead to (peers' ranges too), and the ranges that are set aside
// for services.
func (c *checker) namedNetwork(ctx context.Context, named string) ([]cidr.Used, bool, error) {
	const check, field = "named network", "config.spec.existing.networkId"
	id := c.p.networkID(named)
	if projectOf(id) != c.p.project {
		c.fails(check, field, fmt.Sprintf("%s is in project %s, and the job is in %s", named, projectOf(id), c.p.project), "Make the job in the project that holds the network.")
		return nil, false, nil
	}
	net, err := c.p.existing(ctx, named)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		c.fails(check, field, fmt.Sprintf("network %s does not exist in project %s", named, c.p.project), "Name a network that exists.")
		return nil, false, nil
	case err != nil:
		return nil, true, c.unchecked(ctx, check, field, err)
	case subnetMode(net.network) == "legacy":
		c.fails(check, field, fmt.Sprintf("%s is a legacy network, which has no subnets", named), "Name a VPC network.")
		return nil, false, nil
	}
	fine := c.sharedNAT(net) && c.connected(ctx, id)
	var used []cidr.Used
	for _, s := range net.subnets {
		if owner, _ := textMark(s.Description); owner != c.r.Job.ID {
			used = append(used, usedBy(s, true)...)
		}
	}
	routes, err := c.p.routes(ctx)
	if err != nil {
		return used, fine, c.unchecked(ctx, "routes of the named network", field, err)
	}
	for _, x := range routes {
		p, err := netip.ParsePrefix(x.DestRange)
		if err != nil || p.Bits() == 0 || rel(x.Network) != id || x.NextHopNetwork != "" {
			continue
		}
		by := "route " + x.Name
		if x.NextHopPeering != "" {
			by = "peering " + x.NextHopPeering
		}
		used = append(used, cidr.Used{Prefix: p, By: by, Hard: true})
	}
	more, err := c.setAside(ctx, id)
	if fine {
		c.ok(check, "%s with %d subnets, %s mode", net.network.Name, len(net.subnets), subnetMode(net.network))
	}
	return append(used, more...), fine, err
}

// setAside are the ranges of a network that are reserved for services.
func (c *checker) setAside(ctx context.Context, network string) ([]cidr.Used, error) {
	all, err := c.p.globalAddresses().all(ctx, "")
	if err != nil {
		return nil, c.unchecked(ctx, "ranges set aside for services", "", err)
	}
	var used []cidr.Used
	for _, a := range all {
		if owner, _ := textMark(a.Description); rel(a.Network) != network || owner == c.r.Job.ID {
			continue
		}
		if p, err := netip.ParsePrefix(fmt.Sprintf("%s/%d", a.Address, a.PrefixLength)); err == nil {
			used = append(used, cidr.Used{Prefix: p, By: "address range " + a.Name, Hard: true})
		}
	}
	return used, nil
}

// sharedNAT refuses a second NAT where one serves every subnet of the network.
func (c *checker) sharedNAT(net existingNetwork) bool {
	if c.spec.NAT == job.NATNone {
		return true
	}
	for _, x := range net.routers {
		if owner, _ := textMark(x.Description); owner == c.r.Job.ID {
			continue
		}
		for _, nat := range x.Nats {
			if nat.Type != "PRIVATE" && nat.SourceSubnetworkIpRangesToNat != "LIST_OF_SUBNETWORKS" {
				c.fails("NAT", "config.spec.network.nat", fmt.Sprintf("NAT %s of router %s serves every subnet of the network already", nat.Name, x.Name), "Say none: the new subnets have their way out by it.")
				return false
			}
		}
	}
	return true
}

// connected refuses private services access where the network has it already: a
// network has one connection, and it is somebody else's.
func (c *checker) connected(ctx context.Context, network string) bool {
	if c.spec.PrivateServices == nil || made(c.r, kindConnection, keyConnection) {
		return true
	}
	all, err := c.p.connections(ctx, network)
	if err != nil || len(all) == 0 || slices.Contains(all[0].ReservedPeeringRanges, name(c.r, keyServicesRange)) {
		return true // what cannot be read is for the step to say
	}
	c.fails("private services access", "config.spec.network.privateServices",
		fmt.Sprintf("network %s has it already, with the ranges %s", base(network), sorted(all[0].ReservedPeeringRanges)), "Leave it out: managed services use what is there.")
	return false
}

// peers reads the networks that the job peers with: their ranges must overlap
// neither with the job's nor with each other's.
func (c *checker) peers(ctx context.Context) (used []cidr.Used, fine bool, err error) {
	fine = true
	for i, want := range c.job.Peerings {
		check, field := want.String(), fmt.Sprintf("config.spec.peerings[%d].networkId", i)
		id := c.p.networkID(want.NetworkID)
		_, err := c.p.networks().get(ctx, id)
		switch {
		case id == c.ic.NetworkID || c.r.Job.Mode == job.ModeCreate && id == c.p.global("networks", name(c.r, "")):
			c.fails(check, field, "the peer is the job's own network", "Name another network.")
			fine = false
			continue
		case pipeline.Is(err, pipeline.NotFound):
			c.fails(check, field, fmt.Sprintf("network %s does not exist", id), "Name a network that exists; one of another project by its path projects/P/global/networks/N.")
			fine = false
			continue
		case err != nil:
			if err := c.unchecked(ctx, check, field, err); err != nil {
				return nil, false, err
			}
			c.warn(check, field, fmt.Sprintf("network %s cannot be read, so its owner has to add the other half of the peering, and its ranges were not compared", id), "")
			continue
		}
		subnets, err := c.p.subnetsOf(ctx, projectOf(id))
		if err != nil {
			if err := c.unchecked(ctx, check, field, err); err != nil {
				return nil, false, err
			}
			continue
		}
		var theirs []cidr.Used
		for _, s := range subnets {
			if rel(s.Network) == id {
				theirs = append(theirs, usedBy(s, true)...)
			}
		}
		if clash := clashes(used, theirs); clash != "" {
			c.fails(check, field, clash+": two peers of one network cannot have the same addresses", "Peer with one of them.")
			fine = false
		}
		used = append(used, theirs...)
		c.ok(check, "%s, %d ranges", id, len(theirs))
	}
	return used, fine, nil
}

func clashes(a, b []cidr.Used) string {
	for _, x := range a {
		for _, y := range b {
			if x.Prefix.Overlaps(y.Prefix) {
				return fmt.Sprintf("%s (%s) overlaps %s (%s)", x.Prefix, x.By, y.Prefix, y.By)
			}
		}
	}
	return ""
}

// namedSubnets proves that what a VM job builds in is there.
func (c *checker) namedSubnets(ctx context.Context) error {
	const check, field = "named network", "config.spec.existing"
	named, err := c.r.Job.Existing()
	if err != nil {
		return err
	}
	if id := c.p.networkID(named.NetworkID); projectOf(id) != c.p.project {
		// The VMs' firewall rules would have to be made there.
		c.fails(check, field+".networkId", fmt.Sprintf("%s is in project %s, and the job is in %s", named.NetworkID, projectOf(id), c.p.project), "Make the job in the project that holds the network.")
		return nil
	}
	net, err := c.p.existing(ctx, named.NetworkID)
	if pipeline.Is(err, pipeline.NotFound) {
		c.fails(check, field+".networkId", fmt.Sprintf("network %s does not exist in project %s", named.NetworkID, c.p.project), "Name a network that exists.")
		return nil
	}
	if err != nil {
		return c.unchecked(ctx, check, field, err)
	}
	subnets, faults := net.named(c.p, named.SubnetIDs)
	for _, f := range faults {
		c.fails(check, field+".subnetIds", f, "Name subnets of that network in "+c.p.region+".")
	}
	for _, s := range subnets {
		if net.nat(rel(s.SelfLink)) == nil {
			c.warn("way out", field+".subnetIds", fmt.Sprintf("no Cloud NAT serves subnet %s: machines without a way out cannot install anything", s.Name), "Add a NAT, if nothing else leads out.")
		}
		if !s.PrivateIpGoogleAccess {
			c.warn("private Google access", field+".subnetIds", "subnet "+s.Name+" has no private Google access", "Turn it on, so that machines reach Google's APIs without the internet.")
		}
	}
	if len(faults) == 0 {
		c.ok(check, "%s with %d named subnets", net.network.Name, len(subnets))
	}
	return nil
}

// adoptedNetwork proves that what the job points at is there.
func (c *checker) adoptedNetwork(ctx context.Context) error {
	const check, field = "adopted network", "config.spec.adopt"
	named, err := adopted(c.r.Job)
	if err != nil {
		c.fails(check, field, err.Error(), "Name one network in ids.")
		return nil
	}
	x, err := c.p.networks().get(ctx, c.p.networkID(named))
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		c.fails(check, field, fmt.Sprintf("network %s does not exist in project %s", named, c.p.project), "Name a network that exists.")
	case err != nil && pipeline.Is(err, pipeline.Denied):
		c.fails(check, field, err.Error(), "Allow these credentials to read it.")
	case err != nil:
		return err
	default:
		c.ok(check, "%s", rel(x.SelfLink))
	}
	return nil
}

// zones looks for zones of the same name: which of them answers is a matter of
// who asks whom (failure kinds L1, L2).
func (c *checker) zones(ctx context.Context) error {
	const check = "DNS zones"
	if len(c.job.DNSZones) == 0 {
		return nil
	}
	all, err := c.p.allZones(ctx)
	if err != nil {
		return c.unchecked(ctx, check, "config.spec.dnsZones", err)
	}
	network := c.ic.NetworkID
	if named, err := c.r.Job.Existing(); err == nil && named != nil {
		network = c.p.networkID(named.NetworkID)
	}
	for i, want := range c.job.DNSZones {
		field := fmt.Sprintf("config.spec.dnsZones[%d].name", i)
		for _, x := range all {
			if owner, _ := labelMark(x.Labels); owner == c.r.Job.ID || x.DnsName != want.Name+"." || x.Visibility != want.Visibility {
				continue
			}
			if want.Visibility == job.ZonePublic {
				c.warn(check, field, fmt.Sprintf("zone %s of this project has the name %s too: the parent decides which of the two the internet sees", x.Name, want.Name), "Remove one of them.")
			} else if network != "" && strings.Contains(zoneNetworks(x)+",", network+",") {
				c.fails(check, field, fmt.Sprintf("zone %s answers for %s in this network already", x.Name, want.Name), "Choose another name.")
			}
		}
	}
	c.ok(check, "%d to make", len(c.job.DNSZones))
	return nil
}
