package job

import (
	"fmt"
	"net/netip"
	"strings"
)

// Reach says how the provisioner gets to what it made in a cloud account:
// private by default means that it may have no route there.
type Reach struct {
	Mode ReachMode `json:"mode"`
	// EgressCIDRs are the ranges that the provisioner's own connections come
	// from. With ReachPublic an API server's endpoint opens to them alone.
	EgressCIDRs []string `json:"egressCidrs,omitempty"`
}

// ReachMode is direct, public or tunnel.
type ReachMode string

// The ways to reach what is private.
const (
	ReachDirect ReachMode = "direct" // the provisioner runs inside the network, or has a VPN into it
	ReachPublic ReachMode = "public" // over the internet, from EgressCIDRs
	ReachTunnel ReachMode = "tunnel" // through what the cloud offers: the DNS endpoint of GKE
)

// ParseReach reads direct, tunnel, public, or public with ranges, such as
// "public:203.0.113.7/32,198.51.100.0/24". Empty is public without ranges, which
// reaches nothing that is private.
func ParseReach(text string) (Reach, error) {
	mode, list, given := strings.Cut(text, ":")
	r := Reach{Mode: ReachMode(mode)}
	if mode == "" {
		r.Mode = ReachPublic
	}
	switch r.Mode {
	case ReachDirect, ReachTunnel:
		if given {
			return r, fmt.Errorf("reach %s takes no ranges", r.Mode)
		}
	case ReachPublic:
		for word := range strings.SplitSeq(list, ",") {
			if word = strings.TrimSpace(word); word == "" {
				continue
			}
			p, err := netip.ParsePrefix(word)
			if err != nil || p.Masked() != p {
				return r, fmt.Errorf("reach: %q is not an address range; write it as 203.0.113.7/32", word)
			}
			if p.Bits() == 0 {
				return r, fmt.Errorf("reach: %s is everybody; name the ranges that the provisioner's own connections come from", word)
			}
			r.EgressCIDRs = append(r.EgressCIDRs, word)
		}
	default:
		return r, fmt.Errorf("reach %q: use direct, tunnel, or public with ranges, such as public:203.0.113.7/32", text)
	}
	return r, nil
}
