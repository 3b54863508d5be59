package azure

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// partOf is a sub-resource that lies in its parent's properties or on the shelf by itself: a subnet, a rule, a pool. It
// answers its properties, or nil.
func (c *Cloud) partOf(id string) doc {
	if res := c.find(id); res != nil {
		return res.Properties
	}
	parsed, ok := parseID(id)
	if !ok {
		return nil
	}
	parent, nested := parsed.parent()
	if !nested {
		return nil
	}
	res := c.find(parent.String())
	if res == nil {
		return nil
	}
	list := parsed.Types[len(parsed.Types)-1]
	for name := range res.Properties {
		if strings.EqualFold(name, list) {
			for _, d := range res.Properties.docs(name) {
				if strings.EqualFold(d.str("name"), parsed.name()) {
					return d.sub("properties")
				}
			}
		}
	}
	return nil
}

// packet is what a security rule is asked about.
type packet struct {
	direction, protocol string // Inbound, Outbound; Tcp, Udp
	// source and dest are a service tag or an address; port is the destination's.
	source, dest string
	port         int
}

// implicitRules are those that every network security group ends with ("Network security groups": default security rules).
var implicitRules = []doc{
	{"priority": 65000.0, "direction": "Inbound", "access": "Allow", "protocol": "*", "sourceAddressPrefix": "VirtualNetwork", "destinationAddressPrefix": "VirtualNetwork", "destinationPortRange": "*"},
	{"priority": 65001.0, "direction": "Inbound", "access": "Allow", "protocol": "*", "sourceAddressPrefix": "AzureLoadBalancer", "destinationAddressPrefix": "*", "destinationPortRange": "*"},
	{"priority": 65000.0, "direction": "Outbound", "access": "Allow", "protocol": "*", "sourceAddressPrefix": "VirtualNetwork", "destinationAddressPrefix": "VirtualNetwork", "destinationPortRange": "*"},
	{"priority": 65001.0, "direction": "Outbound", "access": "Allow", "protocol": "*", "sourceAddressPrefix": "*", "destinationAddressPrefix": "Internet", "destinationPortRange": "*"},
}

// admits says whether a network security group lets a packet through; no group lets everything through.
func (c *Cloud) admits(nsgID string, p packet) bool {
	nsg := c.find(nsgID)
	if nsg == nil {
		return true
	}
	var rules []doc
	for _, d := range nsg.Properties.docs("securityRules") {
		rules = append(rules, d.sub("properties"))
	}
	for _, res := range c.inside(nsg.ID) {
		if strings.EqualFold(lastOf(res.Type), "securityRules") {
			rules = append(rules, res.Properties)
		}
	}
	rules = append(rules, implicitRules...)
	slices.SortStableFunc(rules, func(a, b doc) int { return int(a.num("priority") - b.num("priority")) })
	for _, r := range rules {
		if ruleFits(r, p) {
			return strings.EqualFold(r.str("access"), "Allow")
		}
	}
	return false
}

func ruleFits(r doc, p packet) bool {
	protocol := r.str("protocol")
	if !strings.EqualFold(r.str("direction"), p.direction) || protocol != "*" && !strings.EqualFold(protocol, p.protocol) {
		return false
	}
	return anyOf(r, "sourceAddressPrefix", "sourceAddressPrefixes", func(s string) bool { return addressFits(s, p.source) }) &&
		anyOf(r, "destinationAddressPrefix", "destinationAddressPrefixes", func(s string) bool { return addressFits(s, p.dest) }) &&
		anyOf(r, "destinationPortRange", "destinationPortRanges", func(s string) bool { return portFits(s, p.port) })
}

// anyOf asks for every value of a pair of members of which one holds one value and the other several. A pair that is not
// there says nothing about the packet.
func anyOf(r doc, one, many string, fits func(string) bool) bool {
	all := r.strs(many)
	if s := r.str(one); s != "" {
		all = append(all, s)
	}
	return len(all) == 0 || slices.ContainsFunc(all, fits)
}

// addressFits compares a prefix, address or service tag of a rule with a tag or address of a packet. The internet is
// everything that is neither in the network nor a tag of its own.
func addressFits(rule, at string) bool {
	if rule == "*" || strings.EqualFold(rule, at) {
		return true
	}
	if at == "AzureLoadBalancer" { // the address of the host is part of the network's tag
		return strings.EqualFold(rule, "VirtualNetwork") || rule == "168.63.129.16" || rule == "168.63.129.16/32"
	}
	addr, err := netip.ParseAddr(at)
	prefix, perr := netip.ParsePrefix(rule)
	if perr != nil {
		if a, aerr := netip.ParseAddr(rule); aerr == nil {
			prefix, perr = netip.PrefixFrom(a, a.BitLen()), nil
		}
	}
	switch {
	case err == nil && perr == nil:
		return prefix.Contains(addr)
	case err == nil && strings.EqualFold(rule, "VirtualNetwork"):
		return addr.IsPrivate()
	case err == nil && strings.EqualFold(rule, "Internet"):
		return !addr.IsPrivate()
	case perr == nil && strings.EqualFold(at, "Internet"):
		return prefix.Bits() == 0
	}
	return false
}

func portFits(rule string, port int) bool {
	if rule == "*" {
		return true
	}
	from, to, isRange := strings.Cut(rule, "-")
	if !isRange {
		to = from
	}
	lo, err := strconv.Atoi(strings.TrimSpace(from))
	hi, err2 := strconv.Atoi(strings.TrimSpace(to))
	return err == nil && err2 == nil && lo <= port && port <= hi
}

// groupsOn lists the network security groups that stand before an ipConfiguration: that of the interface and that of the
// subnet. A packet has to pass both.
func (c *Cloud) groupsOn(nic *Resource, cfg doc) []string {
	var out []string
	if g := nic.Properties.ref("networkSecurityGroup"); g != "" {
		out = append(out, g)
	}
	if g := c.partOf(cfg.ref("properties.subnet")).ref("networkSecurityGroup"); g != "" {
		out = append(out, g)
	}
	return out
}

// passes says whether a packet gets through all groups before an ipConfiguration.
func (c *Cloud) passes(nic *Resource, cfg doc, p packet) bool {
	for _, g := range c.groupsOn(nic, cfg) {
		if !c.admits(g, p) {
			return false
		}
	}
	return true
}

// machineEgress says whether packets from a machine find their way to the internet and back ("Default outbound access in
// Azure", "Use Source Network Address Translation for outbound connections").
func (c *Cloud) machineEgress(vm *Resource) bool {
	for _, nic := range c.nicsOf(vm) {
		for _, cfg := range nic.Properties.docs("ipConfigurations") {
			out := packet{direction: "Outbound", protocol: "Tcp", source: cfg.str("properties.privateIPAddress"), dest: "Internet", port: 443}
			if c.passes(nic, cfg, out) && c.leaves(cfg) {
				return true
			}
		}
	}
	return false
}

// leaves says whether an ipConfiguration has a way out: a route to an appliance, a NAT gateway, an address of its own, a load
// balancer that translates, or the default access of subnets that are not private.
func (c *Cloud) leaves(cfg doc) bool {
	subnet := c.partOf(cfg.ref("properties.subnet"))
	if hop := c.defaultHop(subnet.ref("routeTable")); hop != "" && !strings.EqualFold(hop, "Internet") {
		return !strings.EqualFold(hop, "None")
	}
	if nat := c.find(subnet.ref("natGateway")); nat != nil && (nat.State == stateSucceeded || nat.State == stateUpdating) {
		return len(nat.Properties.docs("publicIpAddresses"))+len(nat.Properties.docs("publicIpPrefixes")) > 0
	}
	if cfg.has("properties.publicIPAddress") {
		return true
	}
	pools := cfg.docs("properties.loadBalancerBackendAddressPools")
	for _, p := range pools {
		if c.translates(p.str("id")) {
			return true
		}
	}
	return len(pools) == 0 && subnet != nil && subnet["defaultOutboundAccess"] != false
}

// defaultHop is the next hop of a route table's default route, if it has one.
func (c *Cloud) defaultHop(tableID string) string {
	table := c.find(tableID)
	if table == nil {
		return ""
	}
	routes := table.Properties.docs("routes")
	for _, res := range c.inside(table.ID) {
		routes = append(routes, doc{"properties": map[string]any(res.Properties)})
	}
	for _, r := range routes {
		if r.str("properties.addressPrefix") == "0.0.0.0/0" {
			return r.str("properties.nextHopType")
		}
	}
	return ""
}

// translates says whether a public load balancer gives the members of a pool a way out: an outbound rule, or a balancing
// rule that does not switch it off.
func (c *Cloud) translates(poolID string) bool {
	lb := c.find(parentOf(poolID))
	if lb == nil {
		return false
	}
	public := func(frontends ...string) bool {
		return slices.ContainsFunc(frontends, func(id string) bool { return c.partOf(id).has("publicIPAddress") })
	}
	for _, r := range lb.Properties.docs("outboundRules") {
		var fronts []string
		for _, f := range r.docs("properties.frontendIPConfigurations") {
			fronts = append(fronts, f.str("id"))
		}
		if strings.EqualFold(r.ref("properties.backendAddressPool"), poolID) && public(fronts...) {
			return true
		}
	}
	for _, r := range lb.Properties.docs("loadBalancingRules") {
		if strings.EqualFold(r.ref("properties.backendAddressPool"), poolID) && !r.flag("properties.disableOutboundSnat") && public(r.ref("properties.frontendIPConfiguration")) {
			return true
		}
	}
	return false
}
