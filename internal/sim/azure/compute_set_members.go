package azure

import (
	"fmt"
	"net/http"
	"slices"
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
