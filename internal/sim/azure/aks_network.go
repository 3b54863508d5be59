package azure

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxRanges is how many ranges may be authorised ("Secure access to the API server using authorized IP address ranges").
const maxRanges = 200

// noRange is the range that lets nobody in from outside.
const noRange = "0.0.0.0/32"

// checkAccess judges who may reach the API server, and writes the ranges as the provider does.
func checkAccess(now *Resource) *Error {
	access := now.Properties.sub("apiServerAccessProfile")
	if access == nil {
		return nil
	}
	ranges := access.strs("authorizedIPRanges")
	if access.flag("enablePrivateCluster") && len(ranges) > 0 {
		return badParameter("apiServerAccessProfile", "Authorized IP ranges are not allowed for private cluster.")
	}
	if len(ranges) > maxRanges {
		return badParameter("apiServerAccessProfile.authorizedIPRanges", "The number of authorized IP ranges %d exceeds the limit of %d.", len(ranges), maxRanges)
	}
	out := []any{}
	for _, text := range ranges {
		p, ok := rangeOf(text)
		if !ok {
			return badParameter("apiServerAccessProfile.authorizedIPRanges", "The value %s of parameter apiServerAccessProfile.authorizedIPRanges is invalid. It must be an IPv4 address or a CIDR range.", text)
		}
		if text != noRange && (p.Addr().IsPrivate() || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast()) {
			return badParameter("apiServerAccessProfile.authorizedIPRanges", "The IP range %s is not valid: authorized IP ranges must be public.", text)
		}
		if !slices.Contains(out, any(p.String())) {
			out = append(out, p.String())
		}
	}
	if ranges != nil {
		access["authorizedIPRanges"] = out
	}
	if zone := access.str("privateDNSZone"); access.flag("enablePrivateCluster") {
		access.def("privateDNSZone", "system")
		if zone != "" && !strings.EqualFold(zone, "system") && !strings.EqualFold(zone, "none") && !strings.HasPrefix(zone, "/subscriptions/") {
			return badParameter("apiServerAccessProfile.privateDNSZone", "The value %s of parameter apiServerAccessProfile.privateDNSZone is invalid. It must be system, none or the ID of a private DNS zone.", zone)
		}
	} else if zone != "" {
		return badParameter("apiServerAccessProfile.privateDNSZone", "The parameter apiServerAccessProfile.privateDNSZone is allowed for private cluster only.")
	}
	return nil
}

// rangeOf reads an IPv4 address or range, without the bits behind its length.
func rangeOf(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
		return netip.PrefixFrom(a, 32), true
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// tenthOf is the address of the cluster's DNS service when nobody says another: the tenth of the service range.
func tenthOf(cidr string) string {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ""
	}
	a := p.Masked().Addr()
	for range 10 {
		a = a.Next()
	}
	return a.String()
}

// reservedForCluster are the ranges that AKS keeps for itself ("Azure CNI overlay networking: IP address planning").
var reservedForCluster = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("172.31.0.0/16"), netip.MustParsePrefix("192.0.2.0/24")}

// checkClusterNetwork judges the network profile, against the network in which the pools are too.
func (c *Cloud) checkClusterNetwork(now, old *Resource) *Error {
	if e := checkPlugin(now.Properties.sub("networkProfile")); e != nil {
		return e
	}
	if old != nil && sameJSON(now.Properties.sub("networkProfile"), old.Properties.sub("networkProfile")) {
		return nil
	}
	if e := c.checkRanges(now); e != nil {
		return e
	}
	if e := c.checkOutbound(now); e != nil {
		return e
	}
	if e := c.checkIntegration(now); e != nil {
		return e
	}
	return c.checkPrivateZone(now)
}

// checkPlugin: which plugins, modes, data planes and policies go together.
func checkPlugin(n doc) *Error {
	plugin, overlay := n.str("networkPlugin"), strings.EqualFold(n.str("networkPluginMode"), "overlay")
	cilium, policy := n.str("networkDataplane") == "cilium", n.str("networkPolicy")
	switch {
	case overlay && plugin != "azure":
		return badParameter("networkProfile.networkPluginMode", "Network plugin mode overlay is supported with network plugin azure only.")
	case cilium && plugin != "azure":
		return badParameter("networkProfile.networkDataplane", "Network dataplane cilium requires network plugin azure.")
	case cilium && !overlay && len(n.strs("podSubnetIDs")) == 0:
		return badParameter("networkProfile.networkDataplane", "Network dataplane cilium requires either network plugin mode overlay or pod subnet.")
	case cilium && policy != "cilium" && policy != "" && policy != "none":
		return badParameter("networkProfile.networkPolicy", "Network policy %s is not supported with network dataplane cilium.", policy)
	case policy == "cilium" && !cilium:
		return badParameter("networkProfile.networkPolicy", "Network policy cilium requires network dataplane cilium.")
	case policy == "azure" && plugin == "kubenet":
		return badParameter("networkProfile.networkPolicy", "Network policy azure is not supported with network plugin kubenet.")
	case plugin == "none" && policy != "" && policy != "none":
		return badParameter("networkProfile.networkPolicy", "Network policy %s is not supported with network plugin none.", policy)
	case strings.EqualFold(n.str("loadBalancerSku"), "basic"):
		return refuseCluster(http.StatusBadRequest, "BasicLoadBalancerNotSupported", "networkProfile.loadBalancerSku", "Basic Load Balancer has been retired on September 30, 2025. Use the sku standard.")
	}
	return nil
}

// vnetOf is the network in which the pools of a cluster are, if they are in one that was brought along.
func (c *Cloud) vnetOf(cluster *Resource) *Resource {
	for _, p := range c.poolsOf(cluster) {
		if subnet := p.Properties.str("vnetSubnetID"); subnet != "" {
			return c.find(parentOf(subnet))
		}
	}
	return nil
}

// checkRanges holds the ranges of services and pods against each other, the reserved ones and the network.
func (c *Cloud) checkRanges(now *Resource) *Error {
	n := now.Properties.sub("networkProfile")
	service, err := netip.ParsePrefix(n.str("serviceCidr"))
	if err != nil || !service.Addr().Is4() || service.Bits() < 12 {
		return badParameter("networkProfile.serviceCidr", "The value %s of parameter networkProfile.serviceCidr is invalid. It must be a CIDR range no larger than /12.", n.str("serviceCidr"))
	}
	dns, err := netip.ParseAddr(n.str("dnsServiceIP"))
	if err != nil || !service.Contains(dns) || dns == service.Masked().Addr() || dns == service.Masked().Addr().Next() {
		return refuseCluster(http.StatusBadRequest, "DNSServiceIPNotInServiceCidr", "networkProfile.dnsServiceIP", "The DNS service IP %s must be within the service CIDR %s, and neither its first address nor that of the Kubernetes service.", n.str("dnsServiceIP"), service)
	}
	if e := c.clearOfNetwork(now, service, "ServiceCidrOverlapExistingSubnetsCidr", "The specified service CIDR %s is conflicted with an existing subnet CIDR %s", "networkProfile.serviceCIDR"); e != nil {
		return e
	}
	if e := clearOfReserved(service, "networkProfile.serviceCidr"); e != nil || !n.has("podCidr") {
		return e
	}
	pod, err := netip.ParsePrefix(n.str("podCidr"))
	if err != nil || !pod.Addr().Is4() {
		return badParameter("networkProfile.podCidr", "The value %s of parameter networkProfile.podCidr is invalid. It must be a CIDR range.", n.str("podCidr"))
	}
	if pod.Overlaps(service) {
		return refuseCluster(http.StatusBadRequest, "PodCidrOverlapServiceCidr", "networkProfile.podCidr", "The specified pod CIDR %s is conflicted with the service CIDR %s.", pod, service)
	}
	if e := clearOfReserved(pod, "networkProfile.podCidr"); e != nil {
		return e
	}
	return c.clearOfNetwork(now, pod, "PodCidrOverlapExistingSubnetsCidr", "The specified pod CIDR %s is conflicted with an existing subnet CIDR %s", "networkProfile.podCidr")
}

func clearOfReserved(p netip.Prefix, target string) *Error {
	for _, r := range reservedForCluster {
		if p.Overlaps(r) {
			return badParameter(target, "The specified CIDR %s is conflicted with the reserved CIDR %s.", p, r)
		}
	}
	return nil
}

// clearOfNetwork refuses a range that overlaps with a subnet of the network in which the nodes are.
func (c *Cloud) clearOfNetwork(now *Resource, p netip.Prefix, code, text, target string) *Error {
	vnet := c.vnetOf(now)
	if vnet == nil {
		if own := netip.MustParsePrefix(ownSubnet); p.Overlaps(own) {
			return refuseCluster(http.StatusBadRequest, code, target, text, p, own)
		}
		return nil
	}
	for _, subnet := range c.children(vnet.ID, subnetType) {
		for _, s := range subnetPrefixes(subnet) {
			if p.Overlaps(s) {
				return refuseCluster(http.StatusBadRequest, code, target, text, p, s)
			}
		}
	}
	return nil
}

// checkOutbound: what each way out needs ("Customize cluster egress with outbound types in AKS").
func (c *Cloud) checkOutbound(now *Resource) *Error {
	out := now.Properties.str("networkProfile.outboundType")
	brought := c.vnetOf(now) != nil
	const target = "networkProfile.outboundType"
	if out == "managedNATGateway" && brought {
		return badParameter(target, "OutboundType managedNATGateway is not supported with a custom virtual network.")
	}
	if (out == "userAssignedNATGateway" || out == "userDefinedRouting") && !brought {
		return badParameter(target, "OutboundType %s needs a custom virtual network: parameter agentPoolProfile.vnetSubnetID is missing.", out)
	}
	for _, p := range c.poolsOf(now) {
		subnet := c.find(p.Properties.str("vnetSubnetID"))
		if subnet == nil {
			continue
		}
		switch {
		case out == "userAssignedNATGateway" && subnet.Properties.ref("natGateway") == "":
			return refuseCluster(http.StatusBadRequest, "SubnetNotAssociatedWithNATGateway", target, "The subnet %s is not associated with a NAT gateway, which is needed when the outbound type of the cluster is userAssignedNATGateway.", subnet.ID)
		case out == "userDefinedRouting" && !c.routedOut(subnet):
			return refuseCluster(http.StatusBadRequest, "ExistingRouteTableNotAssociatedWithSubnet", target, "An existing route table with a default route 0.0.0.0/0 must be associated with the subnet %s when the outbound type of the cluster is userDefinedRouting.", subnet.ID)
		}
	}
	return nil
}

// routedOut says whether the route table of a subnet has a default route.
func (c *Cloud) routedOut(subnet *Resource) bool {
	table := c.find(subnet.Properties.ref("routeTable"))
	if table == nil {
		return false
	}
	for _, route := range c.inside(table.ID) {
		if route.Properties.str("addressPrefix") == "0.0.0.0/0" {
			return true
		}
	}
	return false
}

// checkIntegration judges the subnet of an API server that stands in the network ("API server VNet integration").
func (c *Cloud) checkIntegration(now *Resource) *Error {
	access := now.Properties.sub("apiServerAccessProfile")
	id := access.str("subnetId")
	if !access.flag("enableVnetIntegration") || id == "" {
		return nil
	}
	subnet := c.find(id)
	if subnet == nil {
		return subnetMissing("apiServerAccessProfile.subnetId", id)
	}
	delegated := slices.ContainsFunc(subnet.Properties.docs("delegations"), func(d doc) bool { return strings.EqualFold(d.str("properties.serviceName"), clusterType) })
	if !delegated {
		return badParameter("apiServerAccessProfile.subnetId", "The subnet %s must be delegated to %s.", id, clusterType)
	}
	for _, p := range subnetPrefixes(subnet) {
		if p.Bits() > 28 {
			return badParameter("apiServerAccessProfile.subnetId", "The subnet %s is too small: an API server needs a /28 at least.", id)
		}
	}
	return c.checkJoin(now, subnet)
}

// checkPrivateZone judges a private DNS zone that was brought along: the cluster writes its record there.
func (c *Cloud) checkPrivateZone(now *Resource) *Error {
	id := now.Properties.str("apiServerAccessProfile.privateDNSZone")
	if !strings.HasPrefix(id, "/subscriptions/") {
		return nil
	}
	zone := c.find(id)
	if zone == nil || zone.Type != privateZoneType {
		return refuseCluster(http.StatusBadRequest, "CustomPrivateDNSZoneNotFound", "apiServerAccessProfile.privateDNSZone", "The private DNS zone %s was not found.", id)
	}
	return c.clusterMay(now, zone.ID, "Microsoft.Network/privateDnsZones/A/write", "CustomPrivateDNSZoneMissingPermissionError")
}

// clusterMay refuses what the user-assigned identity of a cluster is not allowed to do.
func (c *Cloud) clusterMay(now *Resource, scope, action, code string) *Error {
	if len(now.Top.sub("identity.userAssignedIdentities")) == 0 {
		return nil // a system-assigned identity is given its roles afterwards
	}
	for _, who := range clusterPrincipals(now) {
		if !c.permitted(who, scope, action, false) {
			return refuseCluster(http.StatusBadRequest, code, "", "Managed identity or service principal with object ID %s must be given permission to perform action %s on scope %s. Check access result not allowed for action %s.", who, action, scope, action)
		}
	}
	return nil
}

// checkJoin refuses a subnet that the cluster may not join ("Use a managed identity in AKS": Network Contributor on the subnet).
func (c *Cloud) checkJoin(now, subnet *Resource) *Error {
	return c.clusterMay(now, subnet.ID, "Microsoft.Network/virtualNetworks/subnets/join/action", "ResourceMissingPermissionError")
}

func subnetMissing(target, id string) *Error {
	return refuseCluster(http.StatusBadRequest, "InvalidSubnet", target, "The subnet %s was not found. Please make sure that it exists, and that it is in the region of the cluster.", id)
}
