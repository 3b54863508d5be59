package azure

import (
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A ScaleSet is what is kept of a scale set besides its resource.
type ScaleSet struct {
	CustomData string
	// Next numbers the instances of a uniform set.
	Next int
	// Group is the placement group, of sets that have a single one.
	Group string
	// Model counts the changes of the machines' model, Applied says which one a member has.
	Model   int
	Applied map[string]int
	// Failed is the first failure of the operation under way.
	Failed *Error
	// Doom is the shortage that the next member meets.
	Doom *Error
	// Leaving are the members that a smaller capacity takes away.
	Leaving map[string]bool
	// Scaling says that the operation under way has not looked at the number of members yet.
	Scaling bool
	// Sick is since when a member has been found unhealthy.
	Sick map[string]time.Time
}

func (c *Cloud) addScaleSet() {
	c.addKind(&kind{typ: setType, service: computeService, versions: computeVersions, tracked: true, zonal: true, noEtag: true, says: computeDialect, name: vmNameRule,
		model: func() any { return &armcompute.VirtualMachineScaleSet{} }, patchModel: func() any { return &armcompute.VirtualMachineScaleSetUpdate{} },
		put: c.putSet, mergePatch: true, remove: c.removeSet, removed: c.setRemoved, guard: c.vmGuard,
		polling: computePolling, stamped: true, retryPoll: 37,
		views: map[string]func(*request, *Resource) (answer, error){
			"instanceview": func(_ *request, set *Resource) (answer, error) { return plain(c.setView(set)), nil },
			"skus":         c.setSKUs,
		},
		actions: map[string]func(*request, *Resource) (answer, error){
			"delete": c.deleteInstances, "manualupgrade": c.upgradeInstances,
			"start": c.setAction("start", 25*time.Second), "poweroff": c.setAction("powerOff", 20*time.Second),
			"deallocate": c.setAction("deallocate", 35*time.Second), "restart": c.setAction("restart", 20*time.Second),
			"redeploy": c.setAction("redeploy", 90*time.Second), "reimage": c.setAction("reimage", 60*time.Second),
		}})
	c.addInstances()
}

func flexible(set *Resource) bool {
	return strings.EqualFold(set.Properties.str("orchestrationMode"), "Flexible")
}

func capacityOf(set *Resource) int { return int(set.Top.num("sku.capacity")) }

// keptOf is the bookkeeping of a scale set.
func (c *Cloud) keptOf(set *Resource) *ScaleSet {
	k := c.guests.state.Sets[key(set.ID)]
	if k == nil {
		k = &ScaleSet{Group: c.World.UUID(), Applied: map[string]int{}, Leaving: map[string]bool{}, Sick: map[string]time.Time{}}
		c.guests.state.Sets[key(set.ID)] = k
	}
	return k
}

// putSet makes a scale set, or changes its model or capacity.
func (c *Cloud) putSet(r *request, now, old *Resource) (outcome, error) {
	if e := c.assigned(now, old); e != nil {
		return outcome{}, e
	}
	was := 0
	if old != nil {
		was = capacityOf(old)
		inheritSet(now, old)
		if e := frozenSet(now, old); e != nil {
			return outcome{}, e
		}
	}
	size, image, e := c.checkSet(r, now, old)
	if e != nil {
		return outcome{}, e
	}
	if e := c.checkQuota(r, now.Location, size, capacityOf(now)-was); e != nil {
		return outcome{}, e
	}
	var doom *Error
	if capacityOf(now) > was {
		if doom = c.shortage(r.Call, now.Location, "", now.ID, size.Name); doom != nil && doom.Code == "SkuNotAvailable" {
			return outcome{}, skuNotAvailable(r, now.ID, now.Location)
		}
	}
	kept := c.keptOf(now)
	given := secretsOf(now.Properties.sub("virtualMachineProfile.osProfile"))
	c.fillSet(r, now, size, image)
	changed := given != "" && given != kept.CustomData
	if given != "" {
		kept.CustomData = given
	}
	if old != nil && (changed || modelChanged(now, old)) {
		c.newModel(now, kept)
	}
	kept.Failed, kept.Doom, kept.Scaling = nil, doom, true
	out := outcome{state: stateCreating, takes: allocateTakes + provisionLimit + 5*time.Minute, style: asyncHeader, retryAfter: 10}
	wait := 2 * time.Second
	if old != nil {
		out.state, wait = stateUpdating, 9*time.Second
	} else if now.Properties.flag("automaticRepairsPolicy.enabled") {
		c.after(time.Minute, computeService, "set", now.ID+"|repair|")
	}
	if old != nil && now.Properties.flag("automaticRepairsPolicy.enabled") && !old.Properties.flag("automaticRepairsPolicy.enabled") {
		c.after(time.Minute, computeService, "set", now.ID+"|repair|")
	}
	c.after(wait, computeService, "set", now.ID+"|scale|")
	return out, nil
}

// inheritSet takes over what a PUT leaves out.
func inheritSet(now, old *Resource) {
	inherit(now, old, "virtualMachineProfile", "upgradePolicy", "uniqueId", "timeCreated", "orchestrationMode", "platformFaultDomainCount",
		"singlePlacementGroup", "overprovision", "doNotRunExtensionsOnOverprovisionedVMs", "automaticRepairsPolicy", "zoneBalance")
	for _, name := range []string{"sku", "zones"} {
		if now.Top[name] == nil && old.Top[name] != nil {
			now.Top[name] = old.Top[name]
		}
	}
	if sku := now.Top.sub("sku"); sku != nil {
		inheritDoc(sku, old.Top.sub("sku"))
	}
	profile, was := now.Properties.sub("virtualMachineProfile"), old.Properties.sub("virtualMachineProfile")
	for _, name := range []string{"osProfile", "storageProfile", "networkProfile", "securityProfile"} {
		if profile.sub(name) == nil && was.sub(name) != nil {
			profile[name] = map[string]any(was.sub(name))
		} else {
			inheritDoc(profile.sub(name), was.sub(name))
		}
	}
}

func frozenSet(now, old *Resource) *Error {
	for _, path := range []string{"orchestrationMode", "virtualMachineProfile.osProfile.computerNamePrefix", "virtualMachineProfile.osProfile.adminUsername"} {
		if v := now.Properties.str(path); v != "" && old.Properties.str(path) != "" && !strings.EqualFold(v, old.Properties.str(path)) {
			return notChangeable(path)
		}
	}
	for _, z := range old.Top.strs("zones") {
		if !containsText(now.Top.strs("zones"), z) {
			return notChangeable("zones")
		}
	}
	return nil
}

func containsText(list []string, s string) bool {
	for _, x := range list {
		if strings.EqualFold(x, s) {
			return true
		}
	}
	return false
}

func modelChanged(now, old *Resource) bool {
	return now.Top.str("sku.name") != old.Top.str("sku.name") ||
		!reflect.DeepEqual(now.Properties.sub("virtualMachineProfile").clone(), old.Properties.sub("virtualMachineProfile").clone())
}

// newModel notes that the model of the machines has changed. The mode Automatic brings all of them up to it at once ("Upgrade
// policy modes for Virtual Machine Scale Sets").
func (c *Cloud) newModel(now *Resource, kept *ScaleSet) {
	kept.Model++
	if flexible(now) || !strings.EqualFold(now.Properties.str("upgradePolicy.mode"), "Automatic") {
		return
	}
	for _, vm := range c.membersOf(now) {
		c.bringUp(now, vm, kept, false)
	}
}

// bringUp applies the latest model to an instance. A new image means a new system; other custom data takes effect only when
// the system is installed anew.
func (c *Cloud) bringUp(set, vm *Resource, kept *ScaleSet, reinstall bool) {
	kept.Applied[key(vm.ID)] = kept.Model
	c.rejoin(set, vm)
	m := c.guests.of(vm.ID)
	image, version, e := findImage(set.Properties.sub("virtualMachineProfile.storageProfile.imageReference"))
	if m == nil || e != nil {
		return
	}
	name := image.Publisher + ":" + image.Offer + ":" + image.SKU
	if !reinstall && name == m.Image {
		return
	}
	m.CustomData, m.Image, m.Machine = kept.CustomData, name, nil
	ref := set.Properties.sub("virtualMachineProfile.storageProfile.imageReference").clone()
	ref["exactVersion"] = version
	vm.Properties.sub("storageProfile")["imageReference"] = map[string]any(ref)
	if m.Power == "running" {
		c.guests.boot(vm, m)
	}
}

// rejoin lets the interfaces of a uniform set's instance be in the pools and behind the security group of the latest model.
func (c *Cloud) rejoin(set, vm *Resource) {
	if vm.Type != instanceType {
		return
	}
	for _, cfg := range set.Properties.docs("virtualMachineProfile.networkProfile.networkInterfaceConfigurations") {
		nic := c.find(vm.ID + "/networkInterfaces/" + cfg.str("name"))
		if nic == nil {
			continue
		}
		take(nic.Properties, cfg.sub("properties"), "networkSecurityGroup")
		for _, ip := range cfg.docs("properties.ipConfigurations") {
			for _, has := range nic.Properties.docs("ipConfigurations") {
				if has.str("name") == ip.str("name") {
					take(has.sub("properties"), ip.sub("properties"), "loadBalancerBackendAddressPools")
				}
			}
		}
		c.touch(nic)
	}
	take(vm.Properties.sub("networkProfileConfiguration"), set.Properties.sub("virtualMachineProfile.networkProfile"), "networkInterfaceConfigurations")
}

// take copies a member, or its absence.
func take(into, from doc, name string) {
	delete(into, name)
	if v, ok := from.clone()[name]; ok {
		into[name] = v
	}
}

func (c *Cloud) removeSet(_ *request, _ *Resource) (outcome, error) {
	return outcome{status: http.StatusAccepted, takes: deleteTakes, state: stateDeleting, style: asyncLocation, retryAfter: 10, empty: true}, nil
}

// setRemoved takes the machines of a flexible set along; those of a uniform one lie in it.
func (c *Cloud) setRemoved(set *Resource) {
	kept := c.keptOf(set)
	for _, vm := range c.membersOf(set) {
		kept.Leaving[key(vm.ID)] = true
		c.drop(vm)
	}
	delete(c.guests.state.Sets, key(set.ID))
}

// setView is the instance view of a scale set.
func (c *Cloud) setView(set *Resource) doc {
	counts, order := map[string]int{}, []string{}
	for _, vm := range c.membersOf(set) {
		code := "ProvisioningState/" + strings.ToLower(vm.State)
		if counts[code] == 0 {
			order = append(order, code)
		}
		counts[code]++
	}
	summary := []any{}
	for _, code := range order {
		summary = append(summary, map[string]any{"code": code, "count": counts[code]})
	}
	state := strings.ToLower(set.State)
	s := status("ProvisioningState/"+state, "Info", strings.ToUpper(state[:1])+state[1:], stamp(set.Changed))
	switch set.State {
	case stateSucceeded:
		s["displayStatus"] = "Provisioning succeeded"
	case stateFailed:
		s["level"], s["displayStatus"] = "Error", "Provisioning failed"
		if e := c.keptOf(set).Failed; e != nil {
			s["code"], s["message"] = "ProvisioningState/failed/"+e.Code, e.Message
		}
	}
	v := doc{"virtualMachine": map[string]any{"statusesSummary": summary}, "extensions": []any{}, "statuses": []any{s}}
	if set.Properties.flag("automaticRepairsPolicy.enabled") {
		v["orchestrationServices"] = []any{map[string]any{"serviceName": "AutomaticRepairs", "serviceState": "Running"}}
	}
	return v
}

// setSKUs lists the sizes that a set could be given.
func (c *Cloud) setSKUs(r *request, set *Resource) (answer, error) {
	var all []any
	for _, name := range vmSizeNames {
		if !findSize(name).Series.Restricted {
			all = append(all, map[string]any{"resourceType": setType, "sku": map[string]any{"name": name, "tier": "Standard"},
				"capacity": map[string]any{"minimum": 0, "maximum": 1000, "defaultCapacity": 1, "scaleType": "Automatic"}})
		}
	}
	r.Touch(set.ID)
	return r.page(all, "$skiptoken")
}
