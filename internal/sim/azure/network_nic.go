package azure

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

const nicType = "Microsoft.Network/networkInterfaces"

func (c *Cloud) addInterfaces() {
	c.addKind(c.networkKind(&kind{
		typ: nicType, model: func() any { return &armnetwork.Interface{} },
		put: c.putInterface, remove: c.removeInterface, show: c.showInterface,
	}))
}

// putInterface makes a network interface: at once, as the real one does.
func (c *Cloud) putInterface(r *request, now, old *Resource) (outcome, error) {
	if err := c.withinQuota(now, old, "NetworkInterfaces", "NetworkInterfaceCountLimitReached", "Cannot create more than %d network interfaces for this subscription in this region."); err != nil {
		return outcome{}, err
	}
	p := now.Properties
	for _, name := range []string{"virtualMachine", "macAddress", "primary", "resourceGuid", "hostedWorkloads", "tapConfigurations", "vnetEncryptionSupported", "defaultOutboundConnectivityEnabled"} {
		delete(p, name)
	}
	configs := p.docs("ipConfigurations")
	if len(configs) == 0 {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "NetworkInterfaceMustHaveIpConfiguration", "Network interface %s must have one or more IP configurations.", now.ID)
	}
	if err := c.references(r, now, now.Location); err != nil {
		return outcome{}, err
	}
	// The addresses that it has may be kept or given up; they are not taken by somebody else.
	if old != nil {
		c.keep(&Resource{ID: old.ID, Type: old.Type, Name: old.Name, Properties: doc{}, Top: doc{}})
	}
	for i, cfg := range configs {
		if err := c.configure(now, old, cfg, i == 0); err != nil {
			return outcome{}, err
		}
	}
	c.identify(now, old)
	p.def("dnsSettings", map[string]any{"dnsServers": []any{}, "appliedDnsServers": []any{},
		"internalDomainNameSuffix": strings.ToLower(c.World.ID("", 26, "abcdefghijklmnopqrstuvwxyz234567")) + ".ax.internal.cloudapp.net"})
	p.def("enableAcceleratedNetworking", false)
	p.def("enableIPForwarding", false)
	p.def("nicType", "Standard")
	if old != nil && old.Properties.has("macAddress") {
		p["macAddress"] = old.Properties["macAddress"]
	}
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	if old == nil {
		return outcome{}, nil
	}
	return outcome{style: asyncHeader}, nil
}

// configure completes one IP configuration of an interface.
func (c *Cloud) configure(now, old *Resource, cfg doc, first bool) error {
	name := cfg.str("name")
	if !networkName.pattern.MatchString(name) {
		return refuseNetwork(http.StatusBadRequest, "InvalidResourceName", "Resource name %s is invalid. %s", name, networkName.text)
	}
	cfg["id"], cfg["type"] = now.ID+"/ipConfigurations/"+name, nicType+"/ipConfigurations"
	delete(cfg, "etag")
	p := cfg.sub("properties")
	if p == nil {
		p = doc{}
	}
	cfg["properties"] = map[string]any(p)
	p["provisioningState"] = stateSucceeded
	p.def("privateIPAllocationMethod", "Dynamic")
	p.def("privateIPAddressVersion", "IPv4")
	p.def("primary", first)
	if id := p.ref("publicIPAddress"); id != "" {
		p["publicIPAddress"] = map[string]any{"id": id}
		if err := c.addressFree(now, id); err != nil {
			return err
		}
		if pip := c.find(id); pip != nil {
			c.assignAddress(pip)
		}
	}
	subnet := p.ref("subnet")
	if subnet == "" {
		return refuseNetwork(http.StatusBadRequest, "SubnetMissing", "IP configuration %s of network interface %s has no subnet.", name, now.ID)
	}
	p["subnet"] = map[string]any{"id": subnet}
	wanted := p.str("privateIPAddress")
	if p.str("privateIPAllocationMethod") == "Dynamic" && wanted == "" && old != nil {
		for _, was := range old.Properties.docs("ipConfigurations") {
			if strings.EqualFold(was.str("name"), name) && strings.EqualFold(was.ref("properties.subnet"), subnet) {
				wanted = was.str("properties.privateIPAddress")
			}
		}
	}
	addr, err := c.takeAddress(subnet, wanted, cfg.str("id"))
	if err != nil {
		return err
	}
	p["privateIPAddress"] = addr
	return nil
}

// takeAddress finds a free address in a subnet, or checks the wanted one, for the sub-resource by. It counts as taken as soon
// as a resource with it is kept.
func (c *Cloud) takeAddress(subnetID, wanted, by string) (string, error) {
	subnet := c.find(subnetID)
	if subnet == nil {
		return "", refuseNetwork(http.StatusBadRequest, "InvalidResourceReference",
			"Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", subnetID, by)
	}
	if wanted == "" {
		free := c.freeAddresses(subnet, 1)
		if len(free) == 0 {
			return "", refuseNetwork(http.StatusBadRequest, "SubnetIsFull",
				"Subnet %s with address prefix %s does not have enough capacity for 1 IP addresses.", subnet.Name, subnetPrefixText(subnet))
		}
		return free[0], nil
	}
	addr, err := netip.ParseAddr(wanted)
	if err != nil {
		return "", refuseNetwork(http.StatusBadRequest, "InvalidIPAddressFormat", "IP address %s of %s is invalid.", wanted, by)
	}
	for _, p := range subnetPrefixes(subnet) {
		if !p.Contains(addr) {
			continue
		}
		if reservedAddress(p, addr) {
			return "", refuseNetwork(http.StatusBadRequest, "PrivateIPAddressInReservedRange", "Private static IP address %s falls within reserved IP range of subnet prefix %s.", addr, p)
		}
		if c.usedAddresses(subnet)[addr] {
			return "", refuseNetwork(http.StatusBadRequest, "PrivateIPAddressIsAllocated", "IP configuration %s is using the private IP address %s which is already allocated to another resource.", by, addr)
		}
		return addr.String(), nil
	}
	return "", refuseNetwork(http.StatusBadRequest, "PrivateIPAddressNotInSubnet", "Private static IP address %s does not belong to the range of subnet prefix %s.", addr, subnetPrefixText(subnet))
}

func subnetPrefixText(subnet *Resource) string {
	var all []string
	for _, p := range subnetPrefixes(subnet) {
		all = append(all, p.String())
	}
	return strings.Join(all, ",")
}

// machinesOf are the machines that use an interface.
func (c *Cloud) machinesOf(nic string) []*Resource {
	var out []*Resource
	for _, u := range c.usesOf(nic) {
		if strings.HasPrefix(u.by.Type, "Microsoft.Compute/") {
			out = append(out, u.by)
		}
	}
	return out
}

func (c *Cloud) removeInterface(_ *request, res *Resource) (outcome, error) {
	for _, u := range c.usesOf(res.ID) {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "NicInUse",
			"Network Interface %s is used by existing resource %s. In order to delete the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.", res.ID, u.by.ID)
	}
	return c.leaving(res, 10, 2*time.Second, 6*time.Second)
}

// showInterface adds what Azure knows of an interface and its machine.
func (c *Cloud) showInterface(_ *request, res *Resource, body doc) {
	p := body.sub("properties")
	for _, cfg := range p.docs("ipConfigurations") {
		cfg["etag"] = res.Etag
	}
	p.def("vnetEncryptionSupported", false)
	p.def("hostedWorkloads", []any{})
	p.def("tapConfigurations", []any{})
	machines := c.machinesOf(res.ID)
	if len(machines) == 0 {
		return
	}
	p["virtualMachine"] = map[string]any{"id": machines[0].ID}
	p["primary"] = true
	if !p.has("macAddress") {
		h := strings.ToUpper(strings.ReplaceAll(res.Properties.str("resourceGuid"), "-", ""))
		if len(h) >= 6 {
			p["macAddress"] = "00-0D-3A-" + h[:2] + "-" + h[2:4] + "-" + h[4:6]
		}
	}
	for _, cfg := range machines[0].Properties.docs("networkProfile.networkInterfaces") {
		if strings.EqualFold(cfg.str("id"), res.ID) && cfg.has("properties.primary") {
			p["primary"] = cfg.flag("properties.primary")
		}
	}
}
