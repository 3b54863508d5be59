package azure

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

const subnetType = vnetType + "/subnets"

func (c *Cloud) addSubnets() {
	c.addKind(c.networkKind(&kind{
		typ: subnetType, model: func() any { return &armnetwork.Subnet{} },
		put: c.putSubnet, guard: c.vnetIdle,
		remove: func(_ *request, res *Resource) (outcome, error) {
			if err := c.subnetFree(res); err != nil {
				return outcome{}, err
			}
			return c.leaving(res, 10, 4*time.Second, 10*time.Second)
		},
		settled: func(_ *Operation, res *Resource) { c.settleTree(res) },
		show: func(r *request, res *Resource, body doc) {
			p := body.sub("properties")
			users := slices.DeleteFunc(c.usersAt(res.ID), func(id string) bool {
				u := c.find(id)
				return u != nil && (flexOf(u.Type) != nil || u.Type == privateEndpointType)
			})
			if len(users) > 0 {
				p["ipConfigurations"] = refList(users)
			}
			var links []any
			for _, l := range c.children(res.ID, serviceLinkType) {
				links = append(links, c.render(r, l))
			}
			if len(links) > 0 {
				p["serviceAssociationLinks"] = links
			}
			for _, d := range p.docs("delegations") {
				d["etag"] = res.Etag
			}
			if c.treeBusy(res) && res.State == stateSucceeded {
				p["provisioningState"] = stateUpdating
			}
		},
	}))
}

func (c *Cloud) putSubnet(r *request, now, old *Resource) (outcome, error) {
	for _, p := range readOnly {
		delete(now.Properties, p)
	}
	vnet := c.find(parentOf(now.ID))
	if err := c.checkPrefixes(r, now, vnet); err != nil {
		return outcome{}, err
	}
	if err := c.references(r, now, vnet.Location); err != nil {
		return outcome{}, err
	}
	limit, _ := c.World.QuotaValue("azure", "network", "SubnetsPerVirtualNetwork", subscriptionOf(now.ID), vnet.Location)
	if old == nil && float64(len(c.children(vnet.ID, subnetType))) >= limit {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "SubnetCountLimitReached", "Cannot create more than %d subnets in virtual network %s.", int(limit), vnet.ID)
	}
	if err := c.moveable(now, old); err != nil {
		return outcome{}, err
	}
	c.subnetDefaults(r, now)
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	return c.writing(now, 3, 3*time.Second, 8*time.Second)
}

// subnetDefaults fills in what a subnet has without being asked.
func (c *Cloud) subnetDefaults(r *request, now *Resource) {
	p := now.Properties
	endpointPolicies := "Disabled"
	if r.version < "2020-11-01" {
		endpointPolicies = "Enabled"
	}
	p.def("privateEndpointNetworkPolicies", endpointPolicies)
	p.def("privateLinkServiceNetworkPolicies", "Enabled")
	p.def("delegations", []any{})
	if r.version >= privateByDefault {
		p.def("defaultOutboundAccess", false)
	}
	for _, d := range p.docs("delegations") {
		d["id"] = now.ID + "/delegations/" + d.str("name")
		d["type"] = subnetType + "/delegations"
		props := d.sub("properties")
		if props == nil {
			props = doc{}
		}
		props["provisioningState"] = stateSucceeded
		props.def("actions", []any{"Microsoft.Network/virtualNetworks/subnets/join/action"})
		d["properties"] = map[string]any(props)
		delete(d, "etag")
	}
	for _, e := range p.docs("serviceEndpoints") {
		e["provisioningState"] = stateSucceeded
		e.def("locations", []any{c.locationOf(now)})
	}
}

// subnetPrefixes are the address prefixes of a subnet, however they were given.
func subnetPrefixes(res *Resource) []netip.Prefix {
	given := res.Properties.strs("addressPrefixes")
	if one := res.Properties.str("addressPrefix"); one != "" {
		given = append(given, one)
	}
	var out []netip.Prefix
	for _, g := range given {
		if p, err := netip.ParsePrefix(g); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// checkPrefixes holds the addresses of a subnet against its virtual network and the other subnets ("Azure Virtual Network
// FAQ": /29 is the smallest IPv4 subnet, /64 the only size of an IPv6 subnet).
func (c *Cloud) checkPrefixes(r *request, now, vnet *Resource) error {
	given := now.Properties.strs("addressPrefixes")
	if one := now.Properties.str("addressPrefix"); one != "" {
		given = append(given, one)
	}
	if len(given) == 0 {
		return refuseNetwork(http.StatusBadRequest, "MissingAddressPrefix", "Subnet %s has no address prefix.", now.ID)
	}
	for _, g := range given {
		p, err := netip.ParsePrefix(g)
		switch {
		case err != nil:
			return refuseNetwork(http.StatusBadRequest, "InvalidAddressPrefixFormat", "Address prefix %s of resource %s is not formatted correctly. It should follow CIDR notation, for example 10.0.0.0/24.", g, now.ID)
		case p.Masked() != p:
			return refuseNetwork(http.StatusBadRequest, "InvalidCIDRNotation", "The address prefix %s in resource %s has an invalid CIDR notation. For the given prefix length, the address prefix should be %s.", g, now.ID, p.Masked())
		case p.Addr().Is4() && p.Bits() > 29, p.Addr().Is6() && p.Bits() != 64:
			return refuseNetwork(http.StatusBadRequest, "NetcfgInvalidSubnet", "Subnet '%s' is not valid in virtual network '%s'.", now.Name, vnet.Name)
		}
	}
	prefixes, err := addressSpace(vnet)
	if err != nil {
		return err
	}
	if err := c.fitsIn(now, vnet, prefixes); err != nil || r.nesting {
		return err // the virtual network looks at all of its subnets in the end
	}
	return c.clearOfOthers(now, vnet)
}

// clearOfOthers refuses a subnet that overlaps with another one of its virtual network.
func (c *Cloud) clearOfOthers(now, vnet *Resource) error {
	for _, other := range c.children(vnet.ID, subnetType) {
		if strings.EqualFold(other.ID, now.ID) {
			continue
		}
		for _, p := range subnetPrefixes(now) {
			if slices.ContainsFunc(subnetPrefixes(other), p.Overlaps) {
				return refuseNetwork(http.StatusBadRequest, "NetcfgSubnetRangesOverlap",
					"Subnet '%s' is not valid because its IP address range overlaps with that of an existing subnet in virtual network '%s'.", now.Name, vnet.Name)
			}
		}
	}
	return nil
}

func (c *Cloud) fitsIn(subnet, vnet *Resource, space []netip.Prefix) error {
	for _, p := range subnetPrefixes(subnet) {
		if !slices.ContainsFunc(space, func(s netip.Prefix) bool { return s.Bits() <= p.Bits() && s.Contains(p.Addr()) }) {
			return refuseNetwork(http.StatusBadRequest, "NetcfgSubnetRangeOutsideVnet",
				"Subnet '%s' is not valid because its IP address range is outside the IP address range of virtual network '%s'.", subnet.Name, vnet.Name)
		}
	}
	return nil
}

// moveable refuses changes that what is in the subnet does not allow.
func (c *Cloud) moveable(now, old *Resource) error {
	if old == nil || slices.Equal(subnetPrefixes(now), subnetPrefixes(old)) && len(now.Properties.docs("delegations")) >= len(old.Properties.docs("delegations")) {
		return nil
	}
	users := c.usersAt(old.ID)
	if len(users) == 0 {
		return nil
	}
	if !slices.Equal(subnetPrefixes(now), subnetPrefixes(old)) {
		return refuseNetwork(http.StatusBadRequest, "InUseSubnetCannotBeUpdated", "Subnet %s is in use and cannot be updated.", old.Name)
	}
	return refuseNetwork(http.StatusBadRequest, "SubnetMissingRequiredDelegation", "Subnet %s requires its delegations since it is in use by %s.", old.ID, users[0])
}

// subnetFree refuses the deletion of a subnet that something is in.
func (c *Cloud) subnetFree(res *Resource) error {
	users := c.usersAt(res.ID)
	for _, l := range c.children(res.ID, serviceLinkType) {
		users = append(users, l.ID)
	}
	if len(users) > 0 {
		return refuseNetwork(http.StatusBadRequest, "InUseSubnetCannotBeDeleted",
			"Subnet %s is in use by %s and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.", res.Name, users[0])
	}
	return nil
}

// reservedAddress: Azure keeps the first four addresses of a subnet and the last ("Azure Virtual Network FAQ").
func reservedAddress(p netip.Prefix, a netip.Addr) bool {
	first := p.Masked().Addr()
	for range 4 {
		if a == first {
			return true
		}
		first = first.Next()
	}
	return !p.Contains(a.Next())
}

// usedAddresses are those that somebody has in a subnet.
func (c *Cloud) usedAddresses(subnet *Resource) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	c.each(func(res *Resource) { collectAddresses(map[string]any(res.Properties), subnet.ID, used) })
	return used
}

// collectAddresses finds the objects that name the subnet and a private address.
func collectAddresses(v any, subnet string, used map[netip.Addr]bool) {
	switch m := v.(type) {
	case []any:
		for _, e := range m {
			collectAddresses(e, subnet, used)
		}
	case doc:
		collectAddresses(map[string]any(m), subnet, used)
	case map[string]any:
		if d := doc(m); strings.EqualFold(d.ref("subnet"), subnet) {
			for _, name := range []string{"privateIPAddress", "privateIpAddress"} {
				if a, err := netip.ParseAddr(d.str(name)); err == nil {
					used[a] = true
				}
			}
		}
		for _, e := range m {
			collectAddresses(e, subnet, used)
		}
	}
}

// freeAddresses are the first n free addresses of a subnet.
func (c *Cloud) freeAddresses(subnet *Resource, n int) []string {
	used := c.usedAddresses(subnet)
	var out []string
	for _, p := range subnetPrefixes(subnet) {
		for a := p.Addr(); p.Contains(a) && len(out) < n; a = a.Next() {
			if a.Is4() && !used[a] && !reservedAddress(p, a) {
				out = append(out, a.String())
			}
		}
	}
	return out
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data
	}
	return string(b)
}
