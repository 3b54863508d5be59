package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// delegationPatience bounds one look at the public DNS: it is information, and
// nothing waits for it.
const delegationPatience = 5 * time.Second

// delegation compares the name servers that the internet is sent to for a zone
// with those that it has. It never fails.
func (p *Provider) delegation(ctx context.Context, zone string, servers []string) string {
	switch {
	case len(servers) == 0:
		return "not checked: the cloud does not say which name servers the zone has"
	case p.resolver == nil:
		return "not checked: the endpoint is not AWS's own, so that the internet does not know its name servers"
	}
	ctx, cancel := context.WithTimeout(ctx, delegationPatience)
	defer cancel()
	found, err := p.resolver.LookupNS(ctx, zone+".")
	var dns *net.DNSError
	if err != nil && !(errors.As(err, &dns) && dns.IsNotFound) {
		return "not checked: " + err.Error()
	}
	var have []string
	for _, ns := range found {
		have = append(have, ns.Host)
	}
	want, have := canonicalHosts(servers), canonicalHosts(have)
	if slices.Equal(want, have) {
		return "delegated"
	}
	now := "nobody is sent to it"
	if len(have) > 0 {
		now = "the internet is sent to " + strings.Join(have, ", ")
	}
	return fmt.Sprintf("not delegated: %s; set these NS records for %s %s: %s", now, zone, parentOf(zone), strings.Join(want, ", "))
}

// parentOf is where a zone is delegated from.
func parentOf(zone string) string {
	_, parent, _ := strings.Cut(zone, ".")
	if !strings.Contains(parent, ".") {
		return "at the domain's registrar"
	}
	return "in the zone " + parent + ", or at the registrar if that is no zone of its own"
}

func canonicalHosts(hosts []string) []string {
	var out []string
	for _, h := range hosts {
		out = append(out, domain(h))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
