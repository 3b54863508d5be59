package gcp

import (
	"fmt"
	"net/netip"
	"strings"
)

// prohibited are ranges that no subnetwork may have ("Prohibited IPv4 subnet ranges", VPC).
var prohibited = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("199.36.153.4/30"), netip.MustParsePrefix("199.36.153.8/30"),
}

// readRange reads an IPv4 range as subnetworks have it: of whole CIDR form, from /4 to /29, and not prohibited.
func readRange(field, value string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(value)
	if err != nil || !p.Addr().Is4() {
		return p, invalidField(field, value, "Must be a valid IPv4 CIDR range.")
	}
	if p.Masked() != p {
		return p, invalidField(field, value, fmt.Sprintf("Invalid IPCidrRange: %s is not a network address. Did you mean %s?", value, p.Masked()))
	}
	if p.Bits() < 4 || p.Bits() > 29 {
		return p, invalidField(field, value, "The prefix length must be between 4 and 29.")
	}
	for _, no := range prohibited {
		if no.Overlaps(p) {
			return p, invalidField(field, value, fmt.Sprintf("Invalid IPCidrRange: %s conflicts with reserved IP range %s.", value, no))
		}
	}
	return p, nil
}

// A usedRange is a range in a network and what has it.
type usedRange struct {
	prefix netip.Prefix
	what   string // as a refusal calls it: existing subnetwork 'a' in region 'r'
	path   string
}

// rangesIn are the ranges of a network's subnetworks and of what is set aside for peered services.
func (e *Compute) rangesIn(network string) []usedRange {
	var out []usedRange
	add := func(cidr, what, path string) {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			out = append(out, usedRange{p, what, path})
		}
	}
	for _, s := range e.inOrder(func(o *Resource) bool { return e.networkOf(o) == network }) {
		switch s.Collection {
		case "subnetworks":
			what := fmt.Sprintf("existing subnetwork '%s' in region '%s'", s.name(), s.region())
			add(str(s.Doc, "ipCidrRange"), what, s.Path)
			for _, second := range docs(s.Doc, "secondaryIpRanges") {
				add(str(second, "ipCidrRange"), what, s.Path)
			}
		case "addresses":
			if str(s.Doc, "purpose") == "VPC_PEERING" {
				add(fmt.Sprintf("%s/%.0f", str(s.Doc, "address"), num(s.Doc, "prefixLength")), fmt.Sprintf("allocated IP range '%s'", s.name()), s.Path)
			}
		}
	}
	return out
}

// checkRanges refuses a subnetwork whose ranges are none, overlap each other or something else in the network or in a network
// that it is peered with. self is the path of the subnetwork that is being changed.
func (e *Compute) checkRanges(net *Resource, doc Doc, self string) error {
	type asked struct{ field, value string }
	want := []asked{{"resource.ipCidrRange", str(doc, "ipCidrRange")}}
	seen := map[string]bool{}
	for i, s := range docs(doc, "secondaryIpRanges") {
		name := str(s, "rangeName")
		if name == "" {
			return refuse(400, "required", "Required field 'resource.secondaryIpRanges[%d].rangeName' not specified", i)
		}
		if seen[name] {
			return invalidField(fmt.Sprintf("resource.secondaryIpRanges[%d].rangeName", i), name, "Range names must be unique within a subnetwork.")
		}
		seen[name] = true
		want = append(want, asked{fmt.Sprintf("resource.secondaryIpRanges[%d].ipCidrRange", i), str(s, "ipCidrRange")})
	}
	used := e.rangesIn(net.Path)
	for _, peer := range e.activePeers(net) {
		for _, u := range e.rangesIn(peer) {
			u.what = "IP range " + u.prefix.String() + " of the peer network '" + peer + "'"
			used = append(used, u)
		}
	}
	var own []netip.Prefix
	for _, a := range want {
		p, err := readRange(a.field, a.value)
		if err != nil {
			return err
		}
		for _, o := range own {
			if o.Overlaps(p) {
				return invalidField(a.field, a.value, fmt.Sprintf("Invalid IPCidrRange: %s conflicts with range %s of the same subnetwork.", p, o))
			}
		}
		own = append(own, p)
		for _, u := range used {
			if u.path != self && u.prefix.Overlaps(p) {
				return invalidField(a.field, a.value, fmt.Sprintf("Invalid IPCidrRange: %s conflicts with %s.", p, u.what))
			}
		}
	}
	return nil
}

// internalTaken are the internal addresses that something in a network has.
func (e *Compute) internalTaken(network string) map[string]bool {
	taken := map[string]bool{}
	inNetwork := func(project, link, subnet string) bool {
		if p := e.cloud.pathOfLink(project, link); p != "" {
			return p == network
		}
		s := e.st.Resources[e.cloud.pathOfLink(project, subnet)]
		return s != nil && e.networkOf(s) == network
	}
	for _, res := range e.st.Resources {
		switch res.Collection {
		case "instances":
			for _, nic := range docs(res.Doc, "networkInterfaces") {
				if inNetwork(res.project(), str(nic, "network"), str(nic, "subnetwork")) {
					taken[str(nic, "networkIP")] = true
				}
			}
		case "addresses", "forwardingRules":
			if inNetwork(res.project(), str(res.Doc, "network"), str(res.Doc, "subnetwork")) {
				taken[str(res.Doc, "address")], taken[str(res.Doc, "IPAddress")] = true, true
			}
		}
	}
	return taken
}

// freeInternal is the first free address of a subnetwork. The first two and the last two are never given out ("Unusable
// addresses in IPv4 subnet ranges", VPC).
func (e *Compute) freeInternal(subnet *Resource) (string, error) {
	p := netip.MustParsePrefix(str(subnet.Doc, "ipCidrRange"))
	taken := e.internalTaken(e.networkOf(subnet))
	for a := p.Addr().Next().Next(); p.Contains(a.Next().Next()); a = a.Next() {
		if !taken[a.String()] {
			return a.String(), nil
		}
	}
	return "", refuse(403, "IP_SPACE_EXHAUSTED", "IP space of '%s' is exhausted. Insufficient free IP addresses in %s.", subnet.Path, p)
}

// externalTaken says whether something has an external address.
func (e *Compute) externalTaken(ip string) bool {
	for _, res := range e.st.Resources {
		if str(res.Doc, "address") == ip || str(res.Doc, "IPAddress") == ip || res.Inner["natIP"] == ip {
			return true
		}
	}
	return false
}

// freeExternal makes up an external address.
func (e *Compute) freeExternal() string {
	w := e.cloud.World
	for {
		b := []byte(w.Hex("", 6))
		ip := fmt.Sprintf("34.%d.%d.%d", 64+hexByte(b[:2])%64, hexByte(b[2:4]), 1+hexByte(b[4:])%254)
		if !e.externalTaken(ip) {
			return ip
		}
	}
}

func hexByte(b []byte) int {
	return strings.IndexByte("0123456789abcdef", b[0])*16 + strings.IndexByte("0123456789abcdef", b[1])
}

// lastPart is what follows the last slash.
func lastPart(link string) string { return link[strings.LastIndex(link, "/")+1:] }

// text is a value as refusals show it.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	if _, ok := v.(map[string]any); ok {
		return ""
	}
	if _, ok := v.([]any); ok {
		return ""
	}
	return fmt.Sprint(v)
}
