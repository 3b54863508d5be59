package azure

import (
	"maps"
	"net/http"
	"strconv"
)

// addMember makes one more machine for a set.
func (c *Cloud) addMember(set *Resource, kept *ScaleSet) {
	zone := c.zoneOfNext(set)
	profile := set.Properties.sub("virtualMachineProfile").clone()
	vm := &Resource{Location: set.Location, Tags: maps.Clone(set.Tags), State: stateCreating, Created: c.World.Now(), Changed: c.World.Now(), Top: doc{}, Properties: doc{}}
	if zone != "" {
		vm.Top["zones"] = []any{zone}
	}
	prefix := profile.str("osProfile.computerNamePrefix")
	os := profile.sub("osProfile")
	delete(os, "computerNamePrefix")
	host := instanceHost(prefix, kept.Next)
	if flexible(set) {
		host = prefix + c.World.ID("", 6, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
		c.shapeVM(set, vm, profile)
	} else {
		c.shapeInstance(set, vm, profile, kept.Next)
	}
	kept.Next++
	os["computerName"] = host
	fillOSProfile(os, true)
	vm.Properties["osProfile"] = map[string]any(os)
	vm.Properties["vmId"] = c.World.UUID()
	ref := profile.sub("storageProfile.imageReference")
	image, version, e := findImage(ref)
	if e != nil {
		return // the profile was checked when it was given
	}
	vm.Properties.sub("storageProfile.imageReference")["exactVersion"] = version
	doom := kept.Doom
	kept.Doom = nil
	if doom == nil {
		r := c.background(subscriptionOf(set.ID), "VirtualMachineScaleSets_CreateOrUpdate")
		r.Region = set.Location
		doom = c.shortage(r.Call, set.Location, zone, set.ID, vm.ID, set.Top.str("sku.name"))
	}
	c.keep(vm)
	if vm.Type == vmType {
		c.index.put(vm)
	}
	kept.Applied[key(vm.ID)] = kept.Model
	c.launch(vm, newGuest(os, host, kept.CustomData, image, doom))
}

// shapeVM makes a machine of a flexible set: a virtual machine like any other.
func (c *Cloud) shapeVM(set, vm *Resource, profile doc) {
	vm.Type, vm.Name = vmType, set.Name+"_"+c.World.Hex("", 8)
	vm.ID = groupID(subscriptionOf(set.ID), groupOf(set.ID)) + "/providers/" + vmType + "/" + vm.Name
	if id := set.Top.sub("identity"); id != nil {
		vm.Top["identity"] = map[string]any(id.clone())
	}
	p := vm.Properties
	for _, name := range []string{"storageProfile", "networkProfile", "securityProfile", "diagnosticsProfile", "priority"} {
		if profile[name] != nil {
			p[name] = profile[name]
		}
	}
	sp := p.sub("storageProfile")
	sp.def("dataDisks", []any{})
	p["hardwareProfile"] = map[string]any{"vmSize": set.Top.str("sku.name")}
	p["virtualMachineScaleSet"] = map[string]any{"id": set.ID}
	p["timeCreated"] = stamp(c.World.Now())
}

// shapeInstance makes an instance of a uniform set.
func (c *Cloud) shapeInstance(set, vm *Resource, profile doc, n int) {
	number := strconv.Itoa(n)
	vm.Type, vm.Name, vm.ID = instanceType, set.Name+"_"+number, set.ID+"/virtualMachines/"+number
	vm.Top["instanceId"] = number
	vm.Top["sku"] = map[string]any{"name": set.Top.str("sku.name"), "tier": set.Top.str("sku.tier")}
	p := vm.Properties
	p["modelDefinitionApplied"] = "VirtualMachineScaleSet"
	p["hardwareProfile"] = map[string]any{}
	p["storageProfile"] = profile["storageProfile"]
	p.sub("storageProfile").def("dataDisks", []any{})
	for _, name := range []string{"securityProfile", "diagnosticsProfile"} {
		if profile[name] != nil {
			p[name] = profile[name]
		}
	}
	p["networkProfileConfiguration"] = map[string]any{"networkInterfaceConfigurations": profile.get("networkProfile.networkInterfaceConfigurations")}
}

// plugInstance makes the interfaces of an instance, which lie in it.
func (c *Cloud) plugInstance(vm *Resource) *Error {
	var refs []any
	for _, cfg := range vm.Properties.docs("networkProfileConfiguration.networkInterfaceConfigurations") {
		id := vm.ID + "/networkInterfaces/" + cfg.str("name")
		p := cfg.sub("properties").clone()
		p["resourceGuid"], p["nicType"], p["hostedWorkloads"] = c.World.UUID(), "Standard", []any{}
		delete(p, "disableTcpStateTracking")
		for i, ip := range p.docs("ipConfigurations") {
			ip["id"], ip["type"] = id+"/ipConfigurations/"+ip.str("name"), nicType+"/ipConfigurations"
			ips := ip.sub("properties")
			addr, err := c.takeAddress(ips.ref("subnet"), "", ip.str("id"))
			if err != nil {
				return asRefusal(err)
			}
			ips["privateIPAddress"], ips["privateIPAllocationMethod"], ips["provisioningState"] = addr, "Dynamic", stateSucceeded
			ips.def("primary", i == 0)
			delete(ips, "publicIPAddressConfiguration")
		}
		nic := &Resource{ID: id, Type: instanceNICType, Name: cfg.str("name"), Properties: p, Top: doc{}, State: stateSucceeded, Etag: c.kindOf(nicType).newEtag(c), Created: c.World.Now(), Changed: c.World.Now()}
		c.keep(nic)
		refs = append(refs, map[string]any{"id": id})
	}
	vm.Properties["networkProfile"] = map[string]any{"networkInterfaces": refs}
	return nil
}

// asRefusal is an error of a kind as the refusal that it is.
func asRefusal(err error) *Error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // kinds answer refusals as they are
		return e
	}
	return refuse(http.StatusInternalServerError, "NetworkingInternalOperationError", "An unexpected error occurred while processing the network profile of the VM. Please retry later.")
}
