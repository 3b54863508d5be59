// Package cidr plans the address ranges of networks. It is pure: it is told
// what is in use and asks nobody.
//
// A plan is the same whenever it is asked for the same: a proposal is the first
// range, in a fixed order, that nothing else uses.
package cidr

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// Rules are what one cloud takes.
type Rules struct {
	Cloud    string
	Largest  int            // prefix length of the largest network
	Smallest int            // prefix length of the smallest subnet
	Kept     int            // addresses of each subnet that the cloud keeps for itself
	Regional bool           // a subnet spans the zones of its region: one a tier
	Reserved []netip.Prefix // ranges in which nothing may lie
}

// For is the rules of a cloud.
//
//   - AWS: /16 to /28, the first four addresses and the last one are kept
//     ("VPC CIDR blocks", "Subnet CIDR blocks").
//   - GCP: subnets down to /29, four addresses kept, and ranges that no subnet
//     may have ("Subnets": "Prohibited IPv4 subnet ranges").
//   - Azure: subnets down to /29, five addresses kept, and ranges that no address
//     space may have ("Virtual network FAQ").
func For(p job.Provider) Rules {
	nowhere := prefixes("224.0.0.0/4", "127.0.0.0/8", "169.254.0.0/16", "255.255.255.255/32")
	switch p {
	case job.GCP:
		return Rules{Cloud: "Google Cloud", Largest: 8, Smallest: 29, Kept: 4, Regional: true,
			Reserved: append(nowhere, prefixes("0.0.0.0/8", "199.36.153.4/30", "199.36.153.8/30")...)}
	case job.Azure:
		return Rules{Cloud: "Azure", Largest: 8, Smallest: 29, Kept: 5, Regional: true,
			Reserved: append(nowhere, prefixes("168.63.129.16/32")...)}
	}
	return Rules{Cloud: "AWS", Largest: 16, Smallest: 28, Kept: 5, Reserved: append(nowhere, prefixes("0.0.0.0/8")...)}
}

func prefixes(all ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// A Used range is one that a plan keeps clear of.
type Used struct {
	Prefix netip.Prefix
	By     string // for a person, such as "subnet apps (subnet-1)"

	// Hard: a range that overlaps it is refused, as it is with a peer or a
	// sibling subnet. Otherwise it is only avoided in a proposal, as is another
	// network of the account, with which one may want to peer one day.
	Hard bool
}

// A Request is what a network is to hold.
type Request struct {
	CIDR            string // "" for a proposal
	Secondary       []string
	Zones           []string // in the order in which subnets are spread; not used where subnets are regional
	Tiers           []string
	Ranges          []job.NamedRange     // secondary ranges of the private subnet
	Bits            map[string][]int     // prefix lengths to propose for them by name, best first; /18 by default
	PrivateServices *job.PrivateServices // nil for none
	InUse           []Used
	Within          []netip.Prefix // the ranges of a network that exists; empty for a new network
}

// ZoneKeys are the keys of the zones of a network, by their place in the job's
// list and not by the zone's own letter, which another region does not have.
var ZoneKeys = []string{"a", "b", "c"}

// Plan lays a network out. What it refuses names the field and the fix.
func Plan(rules Rules, r Request) (*job.NetworkPlan, *job.FieldError) {
	p := planner{rules: rules, Request: r, plan: &job.NetworkPlan{}}
	for _, step := range []func() *job.FieldError{p.primary, p.secondary, p.subnets, p.ranges, p.privateServices} {
		if bad := step(); bad != nil {
			return nil, bad
		}
	}
	return p.plan, nil
}

type planner struct {
	rules Rules
	Request
	plan  *job.NetworkPlan
	taken []Used // what the plan itself has given away
}

const at = "config.spec.network."

// primary settles the network's own range.
func (p *planner) primary() *job.FieldError {
	if p.CIDR == "" {
		return p.propose()
	}
	c, bad := p.asked(at+"cidr", p.CIDR)
	if bad != nil {
		return bad
	}
	if c.Bits() < p.rules.Largest {
		return refuse(at+"cidr", fmt.Sprintf("%s is a /%d, and %s takes /%d at most", c, c.Bits(), p.rules.Cloud, p.rules.Largest), "use a smaller range")
	}
	if len(p.Within) > 0 && !slices.ContainsFunc(p.Within, func(w netip.Prefix) bool { return holds(w, c) }) {
		return refuse(at+"cidr", fmt.Sprintf("%s is not within the network's ranges, %s", c, list(p.Within)), "use a part of one of them")
	}
	p.plan.CIDR = c.String()
	return nil
}

// proposals are where a new network's range is looked for, best first.
var proposals = prefixes("10.40.0.0/13", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")

// propose finds a range that nothing uses: a /16 for a new network, or else the
// largest free part of the named network that the subnets fit in.
func (p *planner) propose() *job.FieldError {
	from, sizes := proposals, []int{16, 18, 20}
	if len(p.Within) > 0 {
		from, sizes = p.Within, nil
		for bits := 16; bits <= p.rules.Smallest; bits++ {
			sizes = append(sizes, bits)
		}
	}
	for _, bits := range sizes {
		for _, space := range from {
			if len(p.Within) > 0 && bits < space.Bits()+2 {
				continue // a quarter of somebody's network at most
			}
			if c, ok := p.free(space, bits); ok && p.fits(c) {
				p.plan.CIDR = c.String()
				p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("%s proposed: %s", c, p.clear()))
				return nil
			}
		}
	}
	return refuse(at+"cidr", fmt.Sprintf("no range of /%d or larger is free in %s", sizes[len(sizes)-1], list(from)), "free one, or name a range")
}

// fits reports whether the tiers' subnets fit in a range.
func (p *planner) fits(c netip.Prefix) bool {
	for _, tier := range p.Tiers {
		if c.Bits()+p.depth(tier) > p.rules.Smallest {
			return false
		}
	}
	return true
}

// clear says what a proposal keeps clear of.
func (p *planner) clear() string {
	if len(p.InUse) == 0 {
		return "nothing else is in use"
	}
	const most = 8
	var words []string
	for i, u := range p.InUse {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(p.InUse)-most))
			break
		}
		words = append(words, u.Prefix.String()+" is used by "+u.By)
	}
	return strings.Join(words, ", ")
}

// secondary checks the network's further ranges.
func (p *planner) secondary() *job.FieldError {
	p.take(netip.MustParsePrefix(p.plan.CIDR), "the network's own range")
	for i, s := range p.Secondary {
		field := fmt.Sprintf("%ssecondaryCidrs[%d]", at, i)
		c, bad := p.asked(field, s)
		if bad != nil {
			return bad
		}
		if c.Bits() < p.rules.Largest || c.Bits() > p.rules.Smallest {
			return refuse(field, fmt.Sprintf("%s is a /%d", c, c.Bits()), fmt.Sprintf("use a /%d to /%d", p.rules.Largest, p.rules.Smallest))
		}
		p.take(c, "secondary range "+c.String())
		p.plan.SecondaryCIDRs = append(p.plan.SecondaryCIDRs, c.String())
	}
	return nil
}

// depth is by how many bits a tier's subnet is smaller than the network.
//
// By zone, one quarter of the range is the private subnet of each zone; of the
// last quarter, a sixteenth of the whole is each zone's public subnet, which
// holds nothing but NAT and load balancers, and the last sixteenth is split
// among the database subnets. The layout does not depend on the number of zones
// nor on the tiers, so another one always fits. Where subnets are regional: one
// half private, one quarter database, one eighth public.
func (p *planner) depth(tier string) int {
	zonal := map[string]int{job.TierPrivate: 2, job.TierPublic: 4, job.TierDatabase: 6}
	regional := map[string]int{job.TierPrivate: 1, job.TierDatabase: 2, job.TierPublic: 3}
	if p.rules.Regional {
		return regional[tier]
	}
	return zonal[tier]
}

func (p *planner) subnets() *job.FieldError {
	c := netip.MustParsePrefix(p.plan.CIDR)
	if !p.rules.Regional && (len(p.Zones) < 1 || len(p.Zones) > len(ZoneKeys)) {
		return refuse(at+"zones", fmt.Sprintf("there are %d zones, and the layout holds 1 to %d", len(p.Zones), len(ZoneKeys)), "use 2 or 3")
	}
	for _, tier := range []string{job.TierPublic, job.TierPrivate, job.TierDatabase} {
		if !slices.Contains(p.Tiers, tier) {
			continue
		}
		if bits := c.Bits() + p.depth(tier); bits > p.rules.Smallest {
			return refuse(at+"cidr", fmt.Sprintf("%s is too small: its %s subnets would be /%d, and %s takes /%d at least", c, tier, bits, p.rules.Cloud, p.rules.Smallest),
				fmt.Sprintf("use a /%d or larger", p.rules.Smallest-p.depth(tier)))
		}
		for _, s := range p.tier(c, tier) {
			// The range as a whole was found free; the parts of a range that was
			// asked for within a network may meet subnets that are there.
			if u, ok := overlap(netip.MustParsePrefix(s.CIDR), p.InUse, true); ok {
				return refuse(at+"cidr", fmt.Sprintf("subnet %s (%s) would overlap %s, which is used by %s", s.Key, s.CIDR, u.Prefix, u.By), "use another range")
			}
			p.plan.Subnets = append(p.plan.Subnets, s)
		}
	}
	return nil
}

func (p *planner) tier(c netip.Prefix, tier string) []job.SubnetPlan {
	if p.rules.Regional {
		place := map[string]int{job.TierPrivate: 0, job.TierDatabase: 2, job.TierPublic: 6}
		return []job.SubnetPlan{{Key: tier, Tier: tier, CIDR: Part(c, p.depth(tier), place[tier]).String()}}
	}
	var out []job.SubnetPlan
	last := Part(c, 2, 3)
	for i, z := range p.Zones {
		s := job.SubnetPlan{Key: tier + "-" + ZoneKeys[i], Tier: tier, Zone: z}
		switch tier {
		case job.TierPrivate:
			s.CIDR = Part(c, 2, i).String()
		case job.TierPublic:
			s.CIDR = Part(last, 2, i).String()
		case job.TierDatabase:
			s.CIDR = Part(Part(last, 2, 3), 2, i).String()
		}
		out = append(out, s)
	}
	return out
}

// ranges settles the private subnet's secondary ranges.
func (p *planner) ranges() *job.FieldError {
	for i, r := range p.Ranges {
		field := fmt.Sprintf("%ssecondaryRanges[%d]", at, i)
		if slices.ContainsFunc(p.plan.SecondaryRanges, func(o job.NamedRange) bool { return o.Name == r.Name }) {
			return refuse(field+".name", r.Name+" is there twice", "choose another name")
		}
		bits := p.Bits[r.Name]
		if len(bits) == 0 {
			bits = []int{18}
		}
		c, bad := p.place(field+".cidr", r.CIDR, bits...)
		if bad != nil {
			return bad
		}
		if c.Bits() > p.rules.Smallest {
			return refuse(field+".cidr", fmt.Sprintf("%s is a /%d", c, c.Bits()), fmt.Sprintf("use a /%d or larger", p.rules.Smallest))
		}
		p.take(c, "secondary range "+r.Name)
		p.plan.SecondaryRanges = append(p.plan.SecondaryRanges, job.NamedRange{Name: r.Name, CIDR: c.String()})
	}
	return nil
}

func (p *planner) privateServices() *job.FieldError {
	if p.PrivateServices == nil {
		return nil
	}
	c, bad := p.place(at+"privateServices.cidr", p.PrivateServices.CIDR, 20)
	if bad != nil {
		return bad
	}
	p.take(c, "private services access")
	p.plan.PrivateServices = c.String()
	return nil
}

// place takes a range that was asked for, or proposes one of the first size that
// is free.
func (p *planner) place(field, asked string, sizes ...int) (netip.Prefix, *job.FieldError) {
	if asked != "" {
		return p.asked(field, asked)
	}
	for _, bits := range sizes {
		for _, space := range proposals {
			if c, ok := p.free(space, bits); ok {
				return c, nil
			}
		}
	}
	return netip.Prefix{}, refuse(field, fmt.Sprintf("no /%d is free", sizes[len(sizes)-1]), "name a range")
}

// asked checks a range that a person gave.
func (p *planner) asked(field, s string) (netip.Prefix, *job.FieldError) {
	c, err := netip.ParsePrefix(s)
	switch {
	case err != nil || !c.Addr().Is4():
		return c, refuse(field, fmt.Sprintf("%.40q is not an IPv4 range", s), "use one such as 10.40.0.0/16")
	case c != c.Masked():
		return c, refuse(field, s+" has host bits set", "use "+c.Masked().String())
	}
	for _, r := range p.rules.Reserved {
		if c.Overlaps(r) {
			return c, refuse(field, fmt.Sprintf("%s overlaps %s, which %s reserves", c, r, p.rules.Cloud), "use another range")
		}
	}
	if u, ok := overlap(c, p.taken, false); ok {
		return c, refuse(field, fmt.Sprintf("%s overlaps %s, which is %s", c, u.Prefix, u.By), "use another range")
	}
	if u, ok := overlap(c, p.InUse, true); ok {
		return c, refuse(field, fmt.Sprintf("%s overlaps %s, which is used by %s", c, u.Prefix, u.By), "use another range")
	}
	if u, ok := overlap(c, p.InUse, false); ok {
		p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("%s overlaps %s, which is used by %s: the two can never be peered", c, u.Prefix, u.By))
	}
	return c, nil
}

func (p *planner) take(c netip.Prefix, as string) {
	p.taken = append(p.taken, Used{Prefix: c, By: as, Hard: true})
}

// docker0 is the range that Docker takes on every host by default: it is never
// proposed, since a host there cannot reach what has its addresses.
var docker0 = netip.MustParsePrefix("172.17.0.0/16")

// free is the first free range of a size in a space.
func (p *planner) free(space netip.Prefix, bits int) (netip.Prefix, bool) {
	if bits < space.Bits() {
		return netip.Prefix{}, false
	}
	avoid := slices.Concat(p.InUse, p.taken, []Used{{Prefix: docker0}})
	for _, r := range p.rules.Reserved {
		avoid = append(avoid, Used{Prefix: r})
	}
	for i := 0; i < 1<<(bits-space.Bits()); {
		c := Part(space, bits-space.Bits(), i)
		u, taken := overlap(c, avoid, false)
		if !taken {
			return c, true
		}
		// What overlaps may span many parts: go on behind it.
		i += max(1, 1<<max(bits-u.Prefix.Bits(), 0)-i%(1<<max(bits-u.Prefix.Bits(), 0)))
	}
	return netip.Prefix{}, false
}

// Free is the first range of a size in the spaces, in their order, that meets
// nothing that is in use and nothing that the cloud reserves; false if there is
// none. It serves ranges beside a network, such as those of a cluster's pods.
func Free(rules Rules, spaces []netip.Prefix, bits int, inUse []Used) (netip.Prefix, bool) {
	p := planner{rules: rules, Request: Request{InUse: inUse}}
	for _, space := range spaces {
		if c, ok := p.free(space, bits); ok {
			return c, true
		}
	}
	return netip.Prefix{}, false
}

func overlap(c netip.Prefix, all []Used, hard bool) (Used, bool) {
	for _, u := range all {
		if (u.Hard || !hard) && c.Overlaps(u.Prefix) {
			return u, true
		}
	}
	return Used{}, false
}

func holds(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// Part is the i-th of 2^bits equal parts of a range.
func Part(p netip.Prefix, bits, i int) netip.Prefix {
	a := p.Addr().As4()
	n := binary.BigEndian.Uint32(a[:]) + uint32(i)<<(32-p.Bits()-bits) // i < 2^bits, and p.Bits()+bits <= 32
	binary.BigEndian.PutUint32(a[:], n)
	return netip.PrefixFrom(netip.AddrFrom4(a), p.Bits()+bits)
}

func list(all []netip.Prefix) string {
	var words []string
	for _, p := range all {
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
}

func refuse(field, message, fix string) *job.FieldError {
	return &job.FieldError{Field: field, Message: message, Fix: fix}
}
