package aws

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// subnetPlan is the place of one zone's subnets in a network.
type subnetPlan struct {
	Key     string // "a", "b", "c": part of the objects' keys
	Zone    string
	Public  netip.Prefix
	Private netip.Prefix
}

// zoneKeys are the keys of the zones of a network, by their place in the job's
// list and not by the zone's own letter, which another region does not have.
var zoneKeys = []string{"a", "b", "c"}

// planSubnets lays a network out: one quarter of the range for the private
// subnet of each zone, and a sixteenth, from the last quarter, for its public
// one, which holds nothing but the NAT gateway and the load balancer. The
// layout does not depend on the number of zones, so a third one always fits.
// AWS takes subnets of /16 to /28, and a load balancer wants 8 free addresses.
func planSubnets(cidr string, zones []string) ([]subnetPlan, error) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil || !p.Addr().Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 range", cidr)
	}
	if p != p.Masked() {
		return nil, fmt.Errorf("%s has host bits set", cidr)
	}
	if p.Bits() < 16 || p.Bits() > 24 {
		return nil, fmt.Errorf("%s is a /%d: a /16 to /24 holds the subnets of every zone", cidr, p.Bits())
	}
	if len(zones) < 1 || len(zones) > len(zoneKeys) {
		return nil, fmt.Errorf("%d zones, and the layout holds 1 to %d", len(zones), len(zoneKeys))
	}
	out := make([]subnetPlan, len(zones))
	last := part(p, 2, 3)
	for i, z := range zones {
		out[i] = subnetPlan{Key: zoneKeys[i], Zone: z, Private: part(p, 2, i), Public: part(last, 2, i)}
	}
	return out, nil
}

// part is the i-th of 2^bits equal parts of a range.
func part(p netip.Prefix, bits, i int) netip.Prefix {
	a := p.Addr().As4()
	n := binary.BigEndian.Uint32(a[:]) + uint32(i)<<(32-p.Bits()-bits)
	binary.BigEndian.PutUint32(a[:], n)
	return netip.PrefixFrom(netip.AddrFrom4(a), p.Bits()+bits)
}

// hosts is how many addresses of a subnet can be given to machines: AWS keeps
// the first four and the last one ("Subnet CIDR blocks").
func hosts(p netip.Prefix) int { return 1<<(32-p.Bits()) - 5 }
