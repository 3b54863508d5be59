package webhook

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Allow is what may be sent to although it is not public, and by plain HTTP: ranges
// of addresses, and hosts by their names.
type Allow struct {
	Ranges []netip.Prefix
	Hosts  []string // lower case, without a port
}

// ParseAllow reads a list of ranges such as 10.1.0.0/16, addresses and hosts.
func ParseAllow(list []string) (a Allow, err error) {
	for _, text := range list {
		text = strings.ToLower(strings.TrimSpace(text))
		if p, err := netip.ParsePrefix(text); err == nil {
			a.Ranges = append(a.Ranges, p.Masked())
			continue
		}
		if ip, err := netip.ParseAddr(text); err == nil {
			a.Ranges = append(a.Ranges, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			continue
		}
		if !plainHost(text) {
			return a, fmt.Errorf("%q is neither a range of addresses such as 10.1.0.0/16 nor the name of a host", text)
		}
		a.Hosts = append(a.Hosts, text)
	}
	return a, nil
}

func plainHost(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
	})
}

func (a Allow) host(name string) bool {
	return slices.Contains(a.Hosts, strings.ToLower(strings.TrimSuffix(name, ".")))
}

func (a Allow) address(ip netip.Addr) bool {
	return slices.ContainsFunc(a.Ranges, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// notPublic are the ranges that no receiver on the Internet has: IANA's registries of
// special-purpose addresses, and what clouds keep for themselves within public ones.
var notPublic = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's own, within every virtual network
	// Of IPv6 only 2000::/3 is handed out; of that:
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var (
	globalV6 = netip.MustParsePrefix("2000::/3")
	nat64    = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// public reports whether an address is one on the Internet. An address of IPv4 that
// is written within one of IPv6 counts as what it is.
func public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsValid() {
		return false
	}
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	if ip.Is6() && !globalV6.Contains(ip) {
		return false
	}
	return !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// maxURL is the longest address of a receiver, in bytes.
const maxURL = 2048

// Check says what is wrong with the address of a receiver; "" if it may be kept. A
// host's own addresses are looked at when a message is sent, each time.
func (a Allow) Check(raw string) (fault, fix string) {
	const use = "use an address such as https://example.com/hooks/zopday"
	if len(raw) > maxURL {
		return fmt.Sprintf("has %d bytes", len(raw)), fmt.Sprintf("use %d at most", maxURL)
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "holds a blank or a character that is not ASCII", use
	}
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		return "is not an address", use
	}
	host := strings.ToLower(u.Hostname())
	ip, iperr := netip.ParseAddr(host)
	named := a.host(host) || iperr == nil && a.address(ip.Unmap())
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !named && len(a.Ranges) == 0):
		return "does not begin with https://", "messages go by TLS alone, unless the server was started with --webhook-allow for the host"
	case u.User != nil:
		return "holds credentials", "leave them out; the receiver knows messages by their signature"
	case u.Fragment != "":
		return "has a fragment", "leave out what follows #"
	case iperr != nil && !plainHost(strings.TrimSuffix(host, ".")):
		return "has a host that is none", use
	case iperr == nil && !named && !public(ip):
		return "is not an address on the Internet", "messages go to public addresses alone, unless the server was started with --webhook-allow for this one"
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return "has a port that is none", use
		}
	}
	return "", ""
}

// Host is what of an address may be shown to whoever may not see it whole: a path or
// a query can hold a secret of the receiver's.
func Host(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "…"
	}
	shown := u.Scheme + "://" + u.Host + "/"
	if shown != raw {
		shown += "…"
	}
	return shown
}
