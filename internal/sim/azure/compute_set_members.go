package azure

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// addInstances registers the instances of uniform scale sets and their interfaces.
func (c *Cloud) addInstances() {
	c.addKind(&kind{typ: instanceType, service: computeService, title: "VirtualMachineScaleSetVMs", versions: computeVersions, noEtag: true, says: computeDialect, noCreate: true,
		put: c.putInstance, remove: c.removeInstance, settled: c.vmSettled, removed: c.instanceRemoved, show: c.showInstance, guard: c.vmGuard,
		polling: computePolling, stamped: true, retryPoll: 10,
		missing: func(r *request) *Error {
			return refuse(http.StatusNotFound, "InstanceIdNotFound", "The instance %s was not found.", r.id.name())
		},
		views: map[string]func(*request, *Resource) (answer, error){
			"instanceview": func(r *request, vm *Resource) (answer, error) { return plain(c.instanceView(r, vm)), nil },
		},
		actions: map[string]func(*request, *Resource) (answer, error){
			"start": c.vmAction("start", 25*time.Second), "poweroff": c.vmAction("powerOff", 20*time.Second),
			"deallocate": c.vmAction("deallocate", 35*time.Second), "restart": c.vmAction("restart", 20*time.Second),
			"redeploy": c.vmAction("redeploy", 90*time.Second), "reimage": c.vmAction("reimage", 60*time.Second),
			"runcommand": c.runCommand,
		}})
	c.addKind(&kind{typ: instanceNICType, service: "network", title: "NetworkInterfaces", versions: networkVersions, noCreate: true, says: networkDialect,
		put: func(r *request, _, _ *Resource) (outcome, error) { return outcome{}, methodNotAllowed(r) },
		remove: func(r *request, _ *Resource) (outcome, error) {
			return outcome{}, methodNotAllowed(r)
		},
		show: func(_ *request, nic *Resource, body doc) {
			body["type"] = nicType
			body.sub("properties")["virtualMachine"] = map[string]any{"id": parentOf(nic.ID)}
			for _, cfg := range body.docs("properties.ipConfigurations") {
				cfg["etag"] = nic.Etag
			}
		}})
	const set = "/subscriptions/{subscription}/resourceGroups/{group}/providers/" + setType + "/{set}"
	c.handle(route{method: "GET", pattern: set + "/virtualMachines", service: computeService, operation: "VirtualMachineScaleSetVMs_List", kind: instanceType,
		versions: computeVersions, serve: c.listInstances})
	c.handle(route{method: "GET", pattern: set + "/networkInterfaces", service: "network",
		operation: "NetworkInterfaces_ListVirtualMachineScaleSetNetworkInterfaces", kind: instanceNICType, versions: networkVersions, serve: c.listSetNICs})
}

// listSetNICs lists the interfaces of all instances of a scale set.
func (c *Cloud) listSetNICs(r *request) (answer, error) {
	set := c.find(strings.TrimSuffix(r.path, "/"+lastOf(r.path)))
	if set == nil {
		id, _ := parseID(strings.TrimSuffix(r.path, "/"+lastOf(r.path)))
		return answer{}, notFoundARM(id)
	}
	var all []any
	for _, vm := range c.membersOf(set) {
		for _, nic := range c.nicsOf(vm) {
			if r.visible(nic, true) {
				all = append(all, c.render(r, nic))
			}
		}
	}
	return r.page(all, "$skiptoken")
}

// membersOf lists the machines of a scale set, in the order of their making.
func (c *Cloud) membersOf(set *Resource) []*Resource {
	if !flexible(set) {
		return c.children(set.ID, instanceType)
	}
	var out []*Resource
	for _, vm := range c.shelves[computeService].sorted() {
		if vm.Type == vmType && strings.EqualFold(vm.Properties.ref("virtualMachineScaleSet"), set.ID) {
			out = append(out, vm)
		}
	}
	slices.SortStableFunc(out, func(a, b *Resource) int { return a.Created.Compare(b.Created) })
	return out
}

// setOf is the scale set that a machine is in, or nil.
func (c *Cloud) setOf(vm *Resource) *Resource {
	if vm.Type == instanceType {
		return c.find(parentOf(vm.ID))
	}
	return c.find(vm.Properties.ref("virtualMachineScaleSet"))
}

// setEvent carries out what a scale set has put off.
func (c *Cloud) setEvent(key string) {
	parts := strings.Split(key, "|")
	if len(parts) != 3 {
		return
	}
	set := c.find(parts[0])
	switch {
	case parts[1] == "gone":
		if vm := c.find(parts[2]); vm != nil && vm.State == stateDeleting {
			c.drop(vm)
		}
		if set != nil {
			c.settleSet(set)
		}
	case set == nil || set.State == stateDeleting:
	case parts[1] == "scale":
		c.scale(set)
	case parts[1] == "repair":
		c.repair(set)
	}
}

// scale brings the number of machines to the capacity. A uniform set that may overprovisions: it makes some more, and
// deletes those that it does not need ("Overprovisioning" in the scale sets' design considerations).
func (c *Cloud) scale(set *Resource) {
	kept := c.keptOf(set)
	kept.Scaling = false
	var members []*Resource
	for _, vm := range c.membersOf(set) {
		if vm.State != stateDeleting {
			members = append(members, vm)
		}
	}
	want := capacityOf(set)
	switch more := want - len(members); {
	case more > 0:
		if set.Properties.flag("overprovision") && more > 1 {
			more += max(2, (more+4)/5)
		}
		for range more {
			c.addMember(set, kept)
		}
	case more < 0:
		for _, vm := range c.surplus(members, -more) {
			c.retire(set, vm, kept)
		}
	}
	c.settleSet(set)
}

// surplus picks the machines that go: the newest of the zone that has most ("Scale-in policy", Default).
func (c *Cloud) surplus(members []*Resource, n int) []*Resource {
	left := slices.Clone(members)
	var out []*Resource
	for range n {
		count := map[string]int{}
		for _, vm := range left {
			count[first(vm.Top.strs("zones"))]++
		}
		pick := -1
		for i, vm := range left {
			if pick < 0 || count[first(vm.Top.strs("zones"))] >= count[first(left[pick].Top.strs("zones"))] {
				pick = i
			}
		}
		out = append(out, left[pick])
		left = slices.Delete(left, pick, pick+1)
	}
	return out
}

// retire deletes a machine of a set, without making the set any smaller than it is asked to be.
func (c *Cloud) retire(set, vm *Resource, kept *ScaleSet) {
	kept.Leaving[key(vm.ID)] = true
	vm.State = stateDeleting
	c.after(25*time.Second, computeService, "set", set.ID+"|gone|"+vm.ID)
}

// zoneOfNext is the zone of a set that has the fewest machines.
func (c *Cloud) zoneOfNext(set *Resource) string {
	zones := set.Top.strs("zones")
	count := map[string]int{}
	for _, vm := range c.membersOf(set) {
		if vm.State != stateDeleting {
			count[first(vm.Top.strs("zones"))]++
		}
	}
	best := ""
	for _, z := range zones {
		if best == "" || count[z] < count[best] {
			best = z
		}
	}
	return best
}

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
	c.launch(vm, &Guest{Host: host, CustomData: kept.CustomData, Image: image.Publisher + ":" + image.Offer + ":" + image.SKU, Doom: doom})
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

// memberDone is told when the making of a machine has ended, well or badly. A uniform set has no instance where there was no
// host for one.
func (c *Cloud) memberDone(vm *Resource, e *Error) {
	set := c.setOf(vm)
	if set == nil {
		return
	}
	kept := c.keptOf(set)
	if e != nil {
		if kept.Failed == nil {
			kept.Failed = e
		}
		if m := c.guests.of(vm.ID); vm.Type == instanceType && (m == nil || m.Power == "") {
			kept.Leaving[key(vm.ID)] = true
			c.drop(vm)
		}
	}
	c.settleSet(set)
}

// settleSet ends the operation on a scale set when all its machines are there, or gone.
func (c *Cloud) settleSet(set *Resource) {
	s, kept := c.shelves[computeService], c.keptOf(set)
	op := s.state.Operations[set.Operation]
	if op == nil || op.Verb == "delete" || kept.Scaling {
		return
	}
	var ready, waiting []*Resource
	leaving := false
	for _, vm := range c.membersOf(set) {
		switch vm.State {
		case stateCreating:
			waiting = append(waiting, vm)
		case stateDeleting:
			leaving = true
		default:
			ready = append(ready, vm)
		}
	}
	want := capacityOf(set)
	switch {
	case op.Verb == "put" && len(ready) >= want && len(ready)+len(waiting) > want && set.Properties.flag("overprovision"):
		extra := append(slices.Clone(waiting), ready[want:]...)
		for _, vm := range extra {
			kept.Leaving[key(vm.ID)] = true
			c.drop(vm)
		}
	case len(waiting) > 0 || leaving:
		return
	}
	op.Ends = c.World.Now()
	if kept.Failed != nil && len(ready) < want || kept.Failed != nil && flexible(set) {
		_ = s.SetState(set.ID, stateFailed, kept.Failed.Code, kept.Failed.Message) // the set was just found
		return
	}
	c.finish(s, op.ID)
}

// leftSet makes a set smaller when somebody has deleted one of its machines.
func (c *Cloud) leftSet(vm *Resource) {
	set := c.setOf(vm)
	if set == nil {
		return
	}
	kept := c.keptOf(set)
	if kept.Leaving[key(vm.ID)] {
		delete(kept.Leaving, key(vm.ID))
	} else if sku := set.Top.sub("sku"); sku != nil && capacityOf(set) > 0 && set.State != stateDeleting {
		sku["capacity"] = float64(capacityOf(set) - 1)
	}
	delete(kept.Applied, key(vm.ID))
	delete(kept.Sick, key(vm.ID))
}

func (c *Cloud) putInstance(_ *request, now, old *Resource) (outcome, error) {
	if old == nil {
		return outcome{}, entityNotFound()
	}
	policy := now.Properties.get("protectionPolicy")
	now.Properties, now.Top, now.Tags, now.Location = old.Properties, old.Top, old.Tags, old.Location
	if policy != nil {
		now.Properties["protectionPolicy"] = policy
	}
	return outcome{state: stateUpdating, takes: 5 * time.Second, style: asyncHeader}, nil
}

func (c *Cloud) removeInstance(_ *request, _ *Resource) (outcome, error) {
	return outcome{status: http.StatusAccepted, takes: 25 * time.Second, state: stateDeleting, style: asyncLocation, retryAfter: 10, empty: true}, nil
}

// instanceRemoved takes the disks of an instance along.
func (c *Cloud) instanceRemoved(vm *Resource) {
	sp := vm.Properties.sub("storageProfile")
	for _, d := range append(sp.docs("dataDisks"), sp.sub("osDisk")) {
		if disk := c.find(d.str("managedDisk.id")); disk != nil {
			c.drop(disk)
		}
	}
	delete(c.guests.state.Guests, key(vm.ID))
	c.leftSet(vm)
}

// showInstance adds what only answers show.
func (c *Cloud) showInstance(r *request, vm *Resource, body doc) {
	set := c.setOf(vm)
	if set == nil {
		return
	}
	kept := c.keptOf(set)
	body.sub("properties")["latestModelApplied"] = kept.Applied[key(vm.ID)] == kept.Model
	if strings.Contains(strings.ToLower(r.query.Get("$expand")), "instanceview") {
		body.sub("properties")["instanceView"] = map[string]any(c.instanceView(r, vm))
	}
}

// instanceView is the instance view of a uniform set's instance; it says how the set finds its health.
func (c *Cloud) instanceView(r *request, vm *Resource) doc {
	v := c.vmView(r, vm)
	v["platformUpdateDomain"], v["platformFaultDomain"] = 0, 0
	set := c.setOf(vm)
	if set == nil {
		return v
	}
	if set.Properties.flag("singlePlacementGroup") {
		v["placementGroupId"] = c.keptOf(set).Group
	}
	if c.watched(set) {
		state := "unhealthy"
		if c.healthy(set, vm) {
			state = "healthy"
		}
		v["vmHealth"] = map[string]any{"status": status(fmt.Sprintf("HealthState/%s", state), "Info", "The VM is reporting itself as "+state+" or is known to be "+state, stamp(c.World.Now()))}
	}
	return v
}

// asRefusal is an error of a kind as the refusal that it is.
func asRefusal(err error) *Error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // kinds answer refusals as they are
		return e
	}
	return refuse(http.StatusInternalServerError, "NetworkingInternalOperationError", "An unexpected error occured while processing the network profile of the VM. Please retry later.")
}
