package azure

import (
	"net/http"
	"strings"
)

// maxMembers is how many machines a scale set can have ("Azure subscription and service limits").
const maxMembers = 1000

// checkSet judges a scale set. A flexible one may be without a profile: machines are then attached by hand.
func (c *Cloud) checkSet(r *request, now, old *Resource) (*vmSize, *imageSKU, *Error) {
	p := now.Properties
	if flexible(now) && !p.has("virtualMachineProfile") {
		if !p.has("platformFaultDomainCount") {
			return nil, nil, missingParameter("platformFaultDomainCount")
		}
		return findSize("Standard_D2s_v5"), nil, nil
	}
	if now.Top.str("sku.name") == "" {
		return nil, nil, missingParameter("sku.name")
	}
	if !now.Top.has("sku.capacity") {
		return nil, nil, missingParameter("sku.capacity")
	}
	if n := capacityOf(now); n < 0 || n > maxMembers {
		return nil, nil, invalidParameter("sku.capacity", "The value of parameter sku.capacity is invalid. It must be between 0 and %d.", maxMembers)
	}
	size, e := offered(r, now.ID, now.Top.str("sku.name"), now.Location)
	if e != nil {
		return nil, nil, e
	}
	if e := checkZones(now.ID, setType, now.Location, now.Top.strs("zones")); e != nil {
		return nil, nil, e
	}
	if e := checkOrchestration(now); e != nil {
		return nil, nil, e
	}
	image, e := c.checkProfile(r, now, old, size)
	if e != nil {
		return nil, nil, e
	}
	return size, image, c.checkHealth(now)
}

// checkOrchestration: what each of the two modes asks for ("Orchestration modes for Virtual Machine Scale Sets").
func checkOrchestration(now *Resource) *Error {
	p := now.Properties
	if !flexible(now) {
		if p.str("upgradePolicy.mode") == "" {
			return missingParameter("upgradePolicy")
		}
		return nil
	}
	switch {
	case !p.has("platformFaultDomainCount"):
		return missingParameter("platformFaultDomainCount")
	case p.flag("singlePlacementGroup"):
		return invalidParameter("singlePlacementGroup", "The value 'True' of parameter 'singlePlacementGroup' is not allowed. For Virtual Machine Scale Sets with orchestrationMode 'Flexible', the allowed values are: False.")
	case p.flag("overprovision"):
		return invalidParameter("overprovision", "The parameter 'overprovision' is not supported for Virtual Machine Scale Sets with orchestrationMode 'Flexible'.")
	case p.str("virtualMachineProfile.networkProfile.networkApiVersion") == "":
		return missingParameter("virtualMachineProfile.networkProfile.networkApiVersion")
	case len(now.Top.strs("zones")) > 0 && p.num("platformFaultDomainCount") > 1:
		return invalidParameter("platformFaultDomainCount", "The value %v of parameter 'platformFaultDomainCount' is not allowed for a zonal Virtual Machine Scale Set with orchestrationMode 'Flexible'. Allowed values are: 1.", p.num("platformFaultDomainCount"))
	}
	return nil
}

func (c *Cloud) checkProfile(r *request, now, old *Resource, size *vmSize) (*imageSKU, *Error) {
	profile := now.Properties.sub("virtualMachineProfile")
	if profile == nil {
		return nil, missingParameter("virtualMachineProfile")
	}
	if profile.sub("storageProfile") == nil {
		return nil, missingParameter("storageProfile")
	}
	image, _, e := findImage(profile.sub("storageProfile.imageReference"))
	if e != nil {
		return nil, e
	}
	if e := checkBoots(size, image); e != nil {
		return nil, e
	}
	if e := c.checkSecurity(r, profile.sub("securityProfile"), size, image); e != nil {
		return nil, e
	}
	if old == nil {
		if e := checkOSProfile(profile.sub("osProfile"), "computerNamePrefix"); e != nil {
			return nil, e
		}
	} else if e := checkCustomData(profile.str("osProfile.customData")); e != nil {
		return nil, e
	}
	if e := checkOSDisk(profile.sub("storageProfile.osDisk"), size, image); e != nil {
		return nil, e
	}
	return image, c.checkConfigs(now, size)
}

// checkConfigs judges the interface configurations of a scale set, and that everything they refer to is there.
func (c *Cloud) checkConfigs(now *Resource, size *vmSize) *Error {
	configs := now.Properties.docs("virtualMachineProfile.networkProfile.networkInterfaceConfigurations")
	if len(configs) == 0 {
		return missingParameter("networkProfile")
	}
	for _, cfg := range configs {
		if cfg.flag("properties.enableAcceleratedNetworking") && !size.accelerated() {
			return notAccelerated(size, cfg.str("name"))
		}
		refs := []string{cfg.ref("properties.networkSecurityGroup")}
		ips := cfg.docs("properties.ipConfigurations")
		if len(ips) == 0 {
			return missingParameter("ipConfigurations")
		}
		for _, ip := range ips {
			if ip.ref("properties.subnet") == "" {
				return missingParameter("subnet")
			}
			refs = append(refs, ip.ref("properties.subnet"))
			for _, list := range []string{"loadBalancerBackendAddressPools", "loadBalancerInboundNatPools"} {
				for _, ref := range ip.docs("properties." + list) {
					refs = append(refs, ref.str("id"))
				}
			}
		}
		for _, ref := range refs {
			if ref != "" && !c.reachable(ref, now.Location) {
				return badReference(ref, now.ID)
			}
		}
	}
	return nil
}

// reachable says whether something that is referred to exists in a location, be it a resource or a part of one.
func (c *Cloud) reachable(id, location string) bool {
	if c.find(id) == nil && c.partOf(id) == nil {
		return false
	}
	for at := id; at != ""; at = parentOf(at) {
		if res := c.find(at); res != nil && res.Location != "" {
			return res.Location == location
		}
		if _, ok := parseID(at); !ok {
			break
		}
	}
	return true
}

// checkHealth judges what a set is to be told of its members' health: repairs and automatic upgrades need a probe or the
// health extension ("Automatic instance repairs for Azure Virtual Machine Scale Sets").
func (c *Cloud) checkHealth(now *Resource) *Error {
	p := now.Properties
	probe := p.ref("virtualMachineProfile.networkProfile.healthProbe")
	if probe != "" {
		if c.partOf(probe) == nil {
			return badReference(probe, now.ID)
		}
		if !c.probeServes(probe, now) {
			return refuse(http.StatusBadRequest, "CannotUseInactiveHealthProbe", "VM scale set %s cannot use probe %s as a HealthProbe because load balancing rules that send traffic to this scale set IPs do not use this probe. Ensure that load balancing rules that use this probe send traffic to this scale set IPs.", now.ID, probe)
		}
	}
	extension := healthExtension(now) != nil
	if p.flag("automaticRepairsPolicy.enabled") && probe == "" && !extension {
		return refuse(http.StatusBadRequest, "BadRequest", "Automatic repairs not supported for the Virtual Machine Scale Set '%s' because a health probe or health extension was not provided for the Virtual Machine Scale Set.", now.ID)
	}
	if p.flag("upgradePolicy.automaticOSUpgradePolicy.enableAutomaticOSUpgrade") && probe == "" && !extension {
		return refuse(http.StatusBadRequest, "BadRequest", "Automatic OS Upgrade is not supported for this Virtual Machine Scale Set because a health probe or health extension was not specified.")
	}
	return nil
}

// healthExtension is the application health extension in a set's profile, or nil.
func healthExtension(set *Resource) doc {
	for _, x := range set.Properties.docs("virtualMachineProfile.extensionProfile.extensions") {
		if strings.EqualFold(x.str("properties.publisher"), "Microsoft.ManagedServices") && strings.EqualFold(x.str("properties.type"), "ApplicationHealthLinux") {
			return x.sub("properties")
		}
	}
	return nil
}

// probeServes says whether a rule that uses a probe sends traffic to the set.
func (c *Cloud) probeServes(probe string, set *Resource) bool {
	lb := c.find(parentOf(probe))
	if lb == nil {
		return false
	}
	for _, rule := range lb.Properties.docs("loadBalancingRules") {
		if !strings.EqualFold(rule.ref("properties.probe"), probe) {
			continue
		}
		pools := []string{rule.ref("properties.backendAddressPool")}
		for _, b := range rule.docs("properties.backendAddressPools") {
			pools = append(pools, b.str("id"))
		}
		for _, cfg := range set.Properties.docs("virtualMachineProfile.networkProfile.networkInterfaceConfigurations") {
			for _, ip := range cfg.docs("properties.ipConfigurations") {
				for _, ref := range ip.docs("properties.loadBalancerBackendAddressPools") {
					if containsText(pools, ref.str("id")) {
						return true
					}
				}
			}
		}
	}
	return false
}

// fillSet adds what a scale set shows though nobody said it.
func (c *Cloud) fillSet(r *request, now *Resource, size *vmSize, image *imageSKU) {
	p := now.Properties
	p.def("orchestrationMode", "Uniform")
	p.def("singlePlacementGroup", !flexible(now) && len(now.Top.strs("zones")) < 2)
	p.def("uniqueId", c.World.UUID())
	if r.version >= "2021-11-01" {
		p.def("timeCreated", stamp(c.World.Now()))
	}
	if !flexible(now) {
		p.def("overprovision", true)
		p.def("doNotRunExtensionsOnOverprovisionedVMs", false)
	}
	if now.Top.sub("sku") != nil {
		now.Top.sub("sku").def("tier", "Standard")
	}
	if p.flag("automaticRepairsPolicy.enabled") {
		p.sub("automaticRepairsPolicy").def("gracePeriod", "PT10M")
		p.sub("automaticRepairsPolicy").def("repairAction", "Replace")
	}
	if image == nil {
		return
	}
	profile := p.sub("virtualMachineProfile")
	fillOSProfile(profile.sub("osProfile"), false)
	sp := profile.sub("storageProfile")
	if sp.sub("osDisk") == nil {
		sp["osDisk"] = map[string]any{}
	}
	fillOSDisk(sp.sub("osDisk"), size, image, "None")
	if flexible(now) {
		sp.sub("osDisk").def("deleteOption", "Delete")
	}
	for i, cfg := range profile.docs("networkProfile.networkInterfaceConfigurations") {
		np := cfg.sub("properties")
		np.def("primary", i == 0)
		np.def("enableAcceleratedNetworking", false)
		np.def("disableTcpStateTracking", false)
		np.def("dnsSettings", map[string]any{"dnsServers": []any{}})
		np.def("enableIPForwarding", false)
		for _, ip := range np.docs("ipConfigurations") {
			ip.sub("properties").def("privateIPAddressVersion", "IPv4")
		}
	}
	for _, x := range profile.docs("extensionProfile.extensions") {
		if x.sub("properties") != nil {
			delete(x.sub("properties"), "protectedSettings")
			x.sub("properties").def("autoUpgradeMinorVersion", false)
			x.sub("properties").def("settings", map[string]any{})
		}
	}
}
