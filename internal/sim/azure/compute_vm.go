package azure

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// How long the parts of an operation on a machine take.
const (
	allocateTakes = 8 * time.Second // until a machine has a host and disks and is switched on
	failTakes     = 20 * time.Second
	deleteTakes   = 30 * time.Second
	// A machine that does not report is given up ("Troubleshoot provisioning timeout").
	provisionLimit = 20 * time.Minute
)

var vmNameRule = &nameRule{regexp.MustCompile(`^[^_\W][\w\-._]{0,78}[^\-.]$|^[^_\W]$`), `^[^_\W][\w-._]{0,79}(?<![-.])$`}

func (c *Cloud) addVM() {
	c.addKind(&kind{typ: vmType, service: computeService, versions: computeVersions, tracked: true, zonal: true, noEtag: true, says: computeDialect, name: vmNameRule,
		model: func() any { return &armcompute.VirtualMachine{} }, patchModel: func() any { return &armcompute.VirtualMachineUpdate{} },
		put: c.putVM, mergePatch: true, remove: c.removeVM, settled: c.vmSettled, removed: c.vmRemoved, show: c.showVM, guard: c.vmGuard,
		polling: computePolling, stamped: true, retryPoll: 35,
		views: map[string]func(*request, *Resource) (answer, error){
			"instanceview": func(r *request, vm *Resource) (answer, error) { return plain(c.vmView(r, vm)), nil },
		},
		actions: map[string]func(*request, *Resource) (answer, error){
			"start": c.vmAction("start", 25*time.Second), "poweroff": c.vmAction("powerOff", 20*time.Second),
			"deallocate": c.vmAction("deallocate", 35*time.Second), "restart": c.vmAction("restart", 20*time.Second),
			"redeploy": c.vmAction("redeploy", 90*time.Second), "reapply": c.vmAction("reapply", 10*time.Second),
			"runcommand": c.runCommand,
		}})
	nics := c.kindOf(nicType)
	free := nics.remove
	nics.remove = func(r *request, nic *Resource) (outcome, error) {
		if c.machineOf(nic) == nil {
			if e := c.reservedNIC(nic.ID, ""); e != nil {
				return outcome{}, e
			}
		}
		return free(r, nic)
	}
	c.handle(route{method: "GET", pattern: "/subscriptions/{subscription}/resourceGroups/{group}/providers/" + vmType, service: computeService,
		operation: "VirtualMachines_List", kind: vmType, versions: computeVersions, serve: c.listVMs})
}

// vmGuard refuses everything but a further delete while a machine is being deleted.
func (c *Cloud) vmGuard(r *request, id string) error {
	res := c.find(id)
	if res != nil && res.State == stateDeleting && r.method != http.MethodDelete {
		return refuse(http.StatusConflict, "OperationNotAllowed", "Operation '%s' is not allowed on VM '%s' since the VM is marked for deletion. You can only retry the Delete operation (or wait for an ongoing one to complete).", r.verb(), res.Name)
	}
	return nil
}

// putVM makes a machine or changes one.
func (c *Cloud) putVM(r *request, now, old *Resource) (outcome, error) {
	if e := c.assigned(now, old); e != nil {
		return outcome{}, e
	}
	if m := c.guests.of(now.ID); old != nil && m != nil && m.Power != "" {
		return c.changeVM(r, now, old, m)
	}
	if old != nil { // a machine that never got a host is tried again
		inherit(now, old, "osProfile", "storageProfile", "networkProfile", "hardwareProfile", "securityProfile")
	}
	size, image, e := c.checkVM(r, now, old)
	if e != nil {
		return outcome{}, e
	}
	doom := c.shortage(r.Call, now.Location, first(now.Top.strs("zones")), now.ID, size.Name)
	if doom != nil && doom.Code == "SkuNotAvailable" {
		return outcome{}, skuNotAvailable(r, now.ID, now.Location)
	}
	custom := ""
	if m := c.guests.of(now.ID); m != nil {
		custom = m.CustomData
	}
	c.prepareVM(r, now, size, image, custom, doom)
	if old != nil {
		delete(now.Properties, "vmId")
		delete(now.Properties, "timeCreated")
		inherit(now, old, "vmId", "timeCreated")
		return outcome{state: stateUpdating, takes: allocateTakes + provisionLimit, style: asyncHeader, retryAfter: 10}, nil
	}
	return outcome{state: stateCreating, takes: allocateTakes + provisionLimit, style: asyncHeader, retryAfter: 10}, nil
}

// first is the first of a list, or empty.
func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// inherit takes over the members that a later PUT leaves out.
func inherit(now, old *Resource, names ...string) {
	for _, n := range names {
		if now.Properties[n] == nil && old.Properties[n] != nil {
			now.Properties[n] = old.Properties[n]
		}
	}
}

// checkVM judges everything that a new machine needs.
func (c *Cloud) checkVM(r *request, now, old *Resource) (*vmSize, *imageSKU, *Error) {
	p := now.Properties
	if p.str("hardwareProfile.vmSize") == "" {
		return nil, nil, missingParameter("vmSize")
	}
	size, e := offered(r, now.ID, p.str("hardwareProfile.vmSize"), now.Location)
	if e != nil {
		return nil, nil, e
	}
	if ref := p.ref("virtualMachineScaleSet"); ref != "" {
		if set := c.find(ref); set == nil || !flexible(set) {
			return nil, nil, badReference(ref, now.ID)
		}
	}
	if e := checkZones(now.ID, vmType, now.Location, now.Top.strs("zones")); e != nil {
		return nil, nil, e
	}
	if p.sub("storageProfile") == nil {
		return nil, nil, missingParameter("storageProfile")
	}
	image, _, e := findImage(p.sub("storageProfile.imageReference"))
	if e != nil {
		return nil, nil, e
	}
	if e := checkBoots(size, image); e != nil {
		return nil, nil, e
	}
	if e := c.checkSecurity(r, p.sub("securityProfile"), size, image); e != nil {
		return nil, nil, e
	}
	if old == nil || !p.has("osProfile") {
		if e := checkOSProfile(p.sub("osProfile"), "computerName"); e != nil {
			return nil, nil, e
		}
	}
	if e := c.checkStorage(now, size, image); e != nil {
		return nil, nil, e
	}
	if e := c.checkVMNetwork(now, size); e != nil {
		return nil, nil, e
	}
	more := 1
	if old != nil {
		more = 0
	}
	return size, image, c.checkQuota(r, now.Location, size, more)
}

// checkVMNetwork judges the interfaces of a new machine.
func (c *Cloud) checkVMNetwork(now *Resource, size *vmSize) *Error {
	p := now.Properties
	refs, configs := p.docs("networkProfile.networkInterfaces"), p.docs("networkProfile.networkInterfaceConfigurations")
	if len(refs)+len(configs) == 0 {
		return missingParameter("networkProfile")
	}
	if len(configs) > 0 && p.str("networkProfile.networkApiVersion") == "" {
		return missingParameter("networkProfile.networkApiVersion")
	}
	for _, ref := range refs {
		nic := c.find(ref.str("id"))
		if nic == nil || nic.Type != nicType || nic.Location != now.Location {
			return badReference(ref.str("id"), now.ID)
		}
		if owner := c.machineOf(nic); owner != nil && !strings.EqualFold(owner.ID, now.ID) {
			return nicInUse(nic, owner)
		}
		if e := c.reservedNIC(nic.ID, now.ID); e != nil {
			return e
		}
		if nic.Properties.flag("enableAcceleratedNetworking") && !size.accelerated() {
			return notAccelerated(size, nic.Name)
		}
	}
	return nil
}

func notAccelerated(size *vmSize, nic string) *Error {
	return refuse(http.StatusBadRequest, "VMSizeIsNotPermittedToEnableAcceleratedNetworking", "The virtual machine size %s is not permitted to enable accelerated networking on networkInterface(s) %s. Compatible sizes: see https://aka.ms/AcceleratedNetworking.", size.Name, nic)
}

// badReference is what Microsoft.Network says of a resource that is not there.
func badReference(id, by string) *Error {
	e := refuse(http.StatusBadRequest, "InvalidResourceReference", "Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", id, by)
	e.List = true
	return e
}

func nicInUse(nic, owner *Resource) *Error {
	e := refuse(http.StatusBadRequest, "NicInUse", "Network Interface %s is used by existing resource %s. In order to delete the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.", nic.ID, owner.ID)
	e.List = true
	return e
}

// prepareVM completes a new machine and lets its allocation begin.
func (c *Cloud) prepareVM(r *request, now *Resource, size *vmSize, image *imageSKU, custom string, doom *Error) {
	p := now.Properties
	os := p.sub("osProfile")
	host := os.str("computerName")
	if given := secretsOf(os); given != "" {
		custom = given
	}
	fillOSProfile(os, true)
	c.fillStorage(r, now, size, image)
	p.def("vmId", c.World.UUID())
	if r.version >= "2021-11-01" {
		p.def("timeCreated", stamp(c.World.Now()))
	}
	if set := c.setOf(now); set != nil && c.guests.of(now.ID) == nil {
		if sku := set.Top.sub("sku"); sku != nil {
			sku["capacity"] = float64(capacityOf(set) + 1)
		}
	}
	c.launch(now, newGuest(os, host, custom, image, doom))
}

// changeVM carries out a PUT or PATCH on a machine that exists.
func (c *Cloud) changeVM(r *request, now, old *Resource, m *Guest) (outcome, error) {
	inherit(now, old, "osProfile", "storageProfile", "networkProfile", "hardwareProfile", "securityProfile", "diagnosticsProfile", "virtualMachineScaleSet")
	was, p := old.Properties, now.Properties
	if given := secretsOf(p.sub("osProfile")); given != "" && given != m.CustomData {
		return outcome{}, notChangeable("osProfile.customData")
	}
	for _, path := range []string{"osProfile.computerName", "osProfile.adminUsername", "storageProfile.imageReference.publisher", "storageProfile.imageReference.offer",
		"storageProfile.imageReference.sku", "virtualMachineScaleSet.id", "priority"} {
		if p.str(path) != "" && !strings.EqualFold(p.str(path), was.str(path)) {
			return outcome{}, notChangeable(path)
		}
	}
	if z := now.Top.strs("zones"); len(z) > 0 && first(z) != first(old.Top.strs("zones")) {
		return outcome{}, notChangeable("zones")
	}
	size, e := offered(r, now.ID, p.str("hardwareProfile.vmSize"), now.Location)
	if e != nil {
		return outcome{}, e
	}
	resized := !strings.EqualFold(size.Name, sizeOf(old))
	if resized {
		if e := c.checkQuota(r, now.Location, size, 1); e != nil {
			return outcome{}, e
		}
	}
	if e := c.checkVMNetwork(now, size); e != nil {
		return outcome{}, e
	}
	inheritDoc(p.sub("osProfile"), was.sub("osProfile"))
	inheritDoc(p.sub("storageProfile.osDisk"), was.sub("storageProfile.osDisk"))
	inheritDoc(p.sub("storageProfile.imageReference"), was.sub("storageProfile.imageReference"))
	p.sub("storageProfile").def("osDisk", was.get("storageProfile.osDisk"))
	p.sub("storageProfile").def("dataDisks", []any{})
	inherit(now, old, "vmId", "timeCreated")
	if resized && m.Power == "running" {
		c.guests.boot(now, m)
	}
	return outcome{state: stateUpdating, takes: 10 * time.Second, style: asyncHeader}, nil
}

// inheritDoc fills the members of an object that a PUT left out.
func inheritDoc(now, old doc) {
	if now == nil {
		return
	}
	for k, v := range old {
		now.def(k, v)
	}
}

func notChangeable(path string) *Error {
	e := refuse(http.StatusConflict, "PropertyChangeNotAllowed", "Changing property '%s' is not allowed.", path)
	e.Target = path
	return e
}

func (c *Cloud) removeVM(_ *request, _ *Resource) (outcome, error) {
	return outcome{status: http.StatusAccepted, takes: deleteTakes, state: stateDeleting, style: asyncLocation, retryAfter: 10, empty: true}, nil
}

// vmRemoved takes along what was to go with the machine ("Delete a VM and attached resources"), and tells its scale set.
func (c *Cloud) vmRemoved(vm *Resource) {
	p := vm.Properties
	var gone []string
	for _, ref := range p.docs("networkProfile.networkInterfaces") {
		if strings.EqualFold(ref.str("properties.deleteOption"), "Delete") {
			gone = append(gone, ref.str("id"))
		}
	}
	for _, d := range append(p.docs("storageProfile.dataDisks"), p.sub("storageProfile.osDisk")) {
		if strings.EqualFold(d.str("deleteOption"), "Delete") {
			gone = append(gone, d.str("managedDisk.id"))
		} else if disk := c.find(d.str("managedDisk.id")); disk != nil {
			freeDisk(disk)
		}
	}
	for _, id := range gone {
		if res := c.find(id); res != nil {
			c.drop(res)
		}
	}
	delete(c.guests.state.Guests, key(vm.ID))
	c.leftSet(vm)
}

// listVMs lists the machines of a group; the only filter is by scale set.
func (c *Cloud) listVMs(r *request) (answer, error) {
	id, _ := parseID(r.path)
	r.id = id
	if err := c.enclosing(r, c.kindOf(vmType)); err != nil {
		return answer{}, err
	}
	set := between(r.query.Get("$filter"), "'virtualMachineScaleSet/id' eq '", "'")
	var all []any
	for _, vm := range c.shelves[computeService].sorted() {
		inSet := set == "" || strings.EqualFold(vm.Properties.ref("virtualMachineScaleSet"), set)
		if vm.Type == vmType && strings.HasPrefix(key(vm.ID), key(id.prefix())+"/") && inSet && r.visible(vm, true) {
			all = append(all, c.render(r, vm))
		}
	}
	return r.page(all, "$skiptoken")
}
