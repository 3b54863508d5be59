package api

import (
	"net/http"
	"net/netip"
	"strings"
)

// maxHops bounds how much of a forwarding header is read, from its end.
const maxHops = 32

// client is the address that a request comes from, as far as it can be believed:
// that of the connection, or, where this is a trusted proxy's, the rightmost one in
// X-Forwarded-For that is not. What a caller writes itself stands to the left of what
// a proxy adds, so it never counts. "unix" is a Unix socket.
func (l *limits) client(r *http.Request) string {
	at, ok := parseHop(r.RemoteAddr)
	if ok && !l.trusts(at) || !ok && !l.TrustUnix {
		return callerAddress(at, ok)
	}
	// Several fields are one list (RFC 9110, section 5.3).
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for range maxHops {
		if len(hops) == 0 {
			break
		}
		next, valid := parseHop(strings.TrimSpace(hops[len(hops)-1]))
		hops = hops[:len(hops)-1]
		if !valid {
			break // what stands further left was not written by whom we know
		}
		at, ok = next, true
		if !l.trusts(at) {
			break
		}
	}
	return callerAddress(at, ok)
}

func (l *limits) trusts(a netip.Addr) bool {
	for _, p := range l.TrustedProxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// parseHop reads an address, with a port or without.
func parseHop(s string) (netip.Addr, bool) {
	if len(s) > 64 {
		return netip.Addr{}, false
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap().WithZone(""), err == nil
}

// callerAddress is what a caller is counted under: whoever has one address of IPv6
// has the 2^64 beside it too.
func callerAddress(a netip.Addr, ok bool) string {
	if !ok {
		return "unix"
	}
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// secure reports whether a request came by TLS: to us, or to a trusted proxy that
// says so.
func (l *limits) secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	at, ok := parseHop(r.RemoteAddr)
	if ok && !l.trusts(at) || !ok && !l.TrustUnix {
		return false
	}
	return strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
