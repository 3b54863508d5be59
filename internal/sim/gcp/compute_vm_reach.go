package gcp

import (
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// A packet is what firewall rules judge.
type packet struct {
	direction string       // INGRESS, EGRESS
	far       netip.Prefix // the other side
	protocol  string
	port      int
}

// admits says whether the firewall rules of a network let a packet pass at an instance: the rule of the lowest priority number
// decides, a deny before an allow; without a rule, what comes in is refused and what goes out passes ("VPC firewall rules",
// implied rules).
func (e *Compute) admits(network string, vm *Resource, p packet) bool {
	rules := e.inOrder(func(res *Resource) bool {
		return res.Collection == "firewalls" && !res.Making && !truth(res.Doc, "disabled") && orText(str(res.Doc, "direction"), "INGRESS") == p.direction &&
			e.cloud.pathOfLink(res.project(), str(res.Doc, "network")) == network
	})
	priority := func(res *Resource) float64 {
		if _, said := res.Doc["priority"]; !said {
			return 1000
		}
		return num(res.Doc, "priority")
	}
	sort.SliceStable(rules, func(i, j int) bool {
		if a, b := priority(rules[i]), priority(rules[j]); a != b {
			return a < b
		}
		return len(docs(rules[i].Doc, "denied")) > len(docs(rules[j].Doc, "denied"))
	})
	for _, rule := range rules {
		if !ruleTargets(rule.Doc, vm) || !ruleSpans(rule.Doc, p) {
			continue
		}
		if ruleNames(docs(rule.Doc, "denied"), p) {
			return false
		}
		if ruleNames(docs(rule.Doc, "allowed"), p) {
			return true
		}
	}
	return p.direction == "EGRESS"
}

// ruleTargets says whether a rule is for an instance: by network tag, by service account, or for all.
func ruleTargets(rule Doc, vm *Resource) bool {
	tags, accounts := texts(rule, "targetTags"), texts(rule, "targetServiceAccounts")
	if len(tags) == 0 && len(accounts) == 0 {
		return true
	}
	for _, t := range texts(sub(vm.Doc, "tags"), "items") {
		if slices.Contains(tags, t) {
			return true
		}
	}
	for _, sa := range docs(vm.Doc, "serviceAccounts") {
		if slices.Contains(accounts, str(sa, "email")) {
			return true
		}
	}
	return false
}

// ruleSpans says whether a rule's ranges hold all of the other side.
func ruleSpans(rule Doc, p packet) bool {
	ranges := texts(rule, "sourceRanges")
	if p.direction == "EGRESS" {
		ranges = texts(rule, "destinationRanges")
	}
	if len(ranges) == 0 {
		// A rule without ranges is for everywhere, unless it names its sources otherwise.
		return len(texts(rule, "sourceTags")) == 0 && len(texts(rule, "sourceServiceAccounts")) == 0
	}
	for _, text := range ranges {
		r, err := netip.ParsePrefix(text)
		if a, single := netip.ParseAddr(text); err != nil && single == nil {
			r, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err == nil && r.Bits() <= p.far.Bits() && r.Contains(p.far.Addr()) {
			return true
		}
	}
	return false
}

func ruleNames(specs []Doc, p packet) bool {
	for _, s := range specs {
		if proto := strings.ToLower(str(s, "IPProtocol")); proto != "all" && proto != p.protocol && !(proto == "6" && p.protocol == "tcp") {
			continue
		}
		ports := texts(s, "ports")
		if len(ports) == 0 || slices.ContainsFunc(ports, func(r string) bool { return portIn(r, p.port) }) {
			return true
		}
	}
	return false
}

// portIn says whether a port lies in a range: 80 or 8000-8080.
func portIn(text string, port int) bool {
	low, high, ok := strings.Cut(text, "-")
	if !ok {
		high = low
	}
	a, errA := strconv.Atoi(low)
	b, errB := strconv.Atoi(high)
	return errA == nil && errB == nil && a <= port && port <= b
}

// everywhere is an address out in the internet that no rule can mean by itself.
var everywhere = netip.MustParsePrefix("0.0.0.0/0")

// hasEgress says whether packets from an instance find their way to the internet and back: firewall rules let them out, a default
// route leads to the internet, and the instance has an external address or a Cloud NAT.
func (e *Compute) hasEgress(vm *Resource) bool {
	nics := docs(vm.Doc, "networkInterfaces")
	if len(nics) == 0 {
		return false
	}
	network := e.cloud.pathOfLink(vm.project(), str(nics[0], "network"))
	if !e.admits(network, vm, packet{"EGRESS", everywhere, "tcp", 443}) || !e.defaultRoute(network, vm) {
		return false
	}
	subnet := e.st.Resources[strings.TrimPrefix(str(nics[0], "subnetwork"), apiRoot)]
	return hasExternal(vm) || subnet != nil && e.natFor(subnet)
}

// defaultRoute says whether a network has a route to the internet that is for an instance.
func (e *Compute) defaultRoute(network string, vm *Resource) bool {
	routes := e.inOrder(func(res *Resource) bool {
		return res.Collection == "routes" && str(res.Doc, "destRange") == "0.0.0.0/0" && strings.HasSuffix(str(res.Doc, "nextHopGateway"), "/default-internet-gateway") &&
			e.cloud.pathOfLink(res.project(), str(res.Doc, "network")) == network
	})
	tags := texts(sub(vm.Doc, "tags"), "items")
	return slices.ContainsFunc(routes, func(res *Resource) bool {
		want := texts(res.Doc, "tags")
		return len(want) == 0 || slices.ContainsFunc(want, func(t string) bool { return slices.Contains(tags, t) })
	})
}
