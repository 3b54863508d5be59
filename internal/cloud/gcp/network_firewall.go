package gcp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// iapRange is where the TCP forwarding of Identity-Aware Proxy comes from ("Using
// IAP for TCP forwarding").
const iapRange = "35.235.240.0/20"

// healthCheckRanges are where Google's health checks come from, and the proxies
// of global load balancers ("Health checks overview": probe IP ranges).
var healthCheckRanges = []string{"130.211.0.0/22", "35.191.0.0/16"}

// The priorities of the job's rules: everything is denied at a priority just
// above the implied rules', and what is needed is let in by the usual one.
const (
	priorityAllow = 1000
	priorityDeny  = 65534
)

// A firewallSpec is what a firewall rule for incoming traffic is to be.
type firewallSpec struct {
	key     string
	about   string // for a person, in the rule's description
	network string // the network's ID
	deny    bool   // everything from the sources; else what ports say is let in
	ports   []string
	sources []string // ranges

	accounts []string // service accounts of the machines it is for; none and no tags: all
	tags     []string
	priority int64 // 0: priorityDeny or priorityAllow
}

// denyIngress is the rule that spells out what the network does without any: it
// lets nothing in. A rule that somebody adds goes before it ("VPC firewall rules":
// implied rules).
func denyIngress(network string) firewallSpec {
	return firewallSpec{key: "firewall-deny", about: "Nothing comes in unless another rule lets it.", network: network, deny: true, sources: []string{"0.0.0.0/0"}}
}

// firewall is one firewall rule of the job.
func (p *Provider) firewall(r *pipeline.Run, s firewallSpec) pipeline.Resource {
	id := p.global("firewalls", name(r, s.key))
	want := &compute.Firewall{
		Name: base(id), Description: strings.TrimSpace(r.Job.MarkText(s.key) + " " + s.about), Network: s.network,
		Direction: "INGRESS", Priority: priorityAllow, SourceRanges: s.sources, TargetServiceAccounts: s.accounts, TargetTags: s.tags,
	}
	if s.deny {
		want.Priority = priorityDeny
		want.Denied = []*compute.FirewallDenied{{IPProtocol: "all"}}
	} else {
		want.Allowed = []*compute.FirewallAllowed{{IPProtocol: "tcp", Ports: s.ports}}
	}
	if s.priority != 0 {
		want.Priority = s.priority
	}
	return object[*compute.Firewall]{
		kind: p.firewalls(), key: s.key, id: id, want: want,
		see: func(_ context.Context, x *compute.Firewall) (pipeline.Seen, error) {
			if s.network == "" { // a removal knows only the object's name
				return pipeline.Seen{}, nil
			}
			return pipeline.Seen{Aspects: p.firewallAspects(r, id, want, x)}, nil
		},
	}.resource(p, r)
}

func (p *Provider) firewallAspects(r *pipeline.Run, id string, want, x *compute.Firewall) []pipeline.Aspect {
	patch := func(change *compute.Firewall) func(context.Context) error {
		return p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			return send(ctx, p.compute.Firewalls.Patch(p.project, x.Name, change))
		})
	}
	return []pipeline.Aspect{
		{Name: "network", Wanted: rel(want.Network), Seen: rel(x.Network)},
		{Name: "direction", Wanted: want.Direction, Seen: x.Direction},
		{Name: "priority", Wanted: strconv.FormatInt(want.Priority, 10), Seen: strconv.FormatInt(x.Priority, 10), Set: patch(&compute.Firewall{Priority: want.Priority})},
		{Name: "traffic", Wanted: trafficText(want), Seen: trafficText(x), Set: patch(&compute.Firewall{Allowed: want.Allowed, Denied: want.Denied})},
		{Name: "sources", Wanted: sorted(want.SourceRanges), Seen: sorted(x.SourceRanges), Set: patch(&compute.Firewall{SourceRanges: want.SourceRanges})},
		{Name: "targets", Wanted: sorted(slices.Concat(want.TargetServiceAccounts, want.TargetTags)), Seen: sorted(slices.Concat(x.TargetServiceAccounts, x.TargetTags)),
			Set: patch(&compute.Firewall{TargetServiceAccounts: want.TargetServiceAccounts, TargetTags: want.TargetTags,
				ForceSendFields: []string{"TargetServiceAccounts", "TargetTags"}})},
		{Name: "disabled", Wanted: "false", Seen: strconv.FormatBool(x.Disabled), Set: patch(&compute.Firewall{Disabled: false, ForceSendFields: []string{"Disabled"}})},
	}
}

// trafficText is what a rule lets in or keeps out.
func trafficText(x *compute.Firewall) string {
	var words []string
	for _, a := range x.Allowed {
		words = append(words, fmt.Sprintf("allow %s %s", a.IPProtocol, strings.Join(a.Ports, ",")))
	}
	for _, d := range x.Denied {
		words = append(words, fmt.Sprintf("deny %s %s", d.IPProtocol, strings.Join(d.Ports, ",")))
	}
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	slices.Sort(words)
	return strings.Join(words, "; ")
}

func sorted(words []string) string {
	return strings.Join(slices.Sorted(slices.Values(words)), ", ")
}
