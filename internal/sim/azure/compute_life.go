package azure

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// launch lets the allocation of a machine begin.
func (c *Cloud) launch(vm *Resource, m *Guest) {
	if old := c.guests.of(vm.ID); old != nil {
		m.Launch, m.Boots = old.Launch+1, old.Boots+1
	}
	c.guests.state.Guests[key(vm.ID)] = m
	takes, what := allocateTakes, "allocate"
	if m.Doom != nil {
		takes, what = failTakes, "doom"
	}
	c.vmAfter(takes, vm, m, what)
}

func (c *Cloud) vmAfter(d time.Duration, vm *Resource, m *Guest, what string) {
	c.after(d, computeService, "vm", vm.ID+"|"+what+"|"+strconv.Itoa(m.Launch))
}

// vmEvent carries out the next part of a machine's allocation.
func (c *Cloud) vmEvent(key string) {
	parts := strings.Split(key, "|")
	vm, m := c.find(parts[0]), c.guests.of(parts[0])
	if vm == nil || m == nil || len(parts) != 3 || parts[2] != "any" && strconv.Itoa(m.Launch) != parts[2] || vm.State == stateDeleting {
		return
	}
	switch parts[1] {
	case "doom":
		c.reserve(vm)
		c.failMachine(vm, m.Doom)
	case "allocate":
		c.allocate(vm, m)
	case "ready":
		if m.Dead {
			c.vmAfter(provisionLimit-readyAfter-allocateTakes-time.Second, vm, m, "timeout")
			return
		}
		c.machineReady(vm)
	case "start", "restart", "redeploy", "powerOff", "deallocate": // of an action on a whole scale set
		c.vmSettled(&Operation{Verb: parts[1]}, vm)
	case "timeout":
		c.failMachine(vm, refuse(http.StatusConflict, "OSProvisioningTimedOut", "OS Provisioning for VM '%s' did not finish in the allotted time. The VM may still finish provisioning successfully. Please check provisioning state later. For details on how to check current provisioning state of Windows VMs, refer to https://aka.ms/WindowsVMLifecycle and Linux VMs, refer to https://aka.ms/LinuxVMLifecycle.", vm.Name))
	}
}

// allocate gives a machine its interfaces and disks, and switches it on.
func (c *Cloud) allocate(vm *Resource, m *Guest) {
	if e := c.plugIn(vm); e != nil {
		c.failMachine(vm, e)
		return
	}
	prefix := vm.Name
	if vm.Type == instanceType {
		prefix = lastOf(parentOf(vm.ID)) + "_" + vm.Name
	}
	c.attachDisks(vm, prefix)
	c.guests.boot(vm, m)
	c.vmAfter(readyAfter, vm, m, "ready")
}

// machineReady ends the provisioning of a machine well.
func (c *Cloud) machineReady(vm *Resource) {
	s := c.shelves[computeService]
	if op := s.state.Operations[vm.Operation]; op != nil {
		if op.Verb == "put" {
			op.Ends = c.World.Now()
			c.finish(s, op.ID)
		}
	} else if vm.State == stateCreating {
		vm.State = stateSucceeded
		c.touch(vm)
	}
	c.memberDone(vm, nil)
}

// failMachine ends the provisioning of a machine badly. The machine stays, in the state Failed.
func (c *Cloud) failMachine(vm *Resource, e *Error) {
	if m := c.guests.of(vm.ID); m != nil {
		m.Doom = e
	}
	s := c.shelves[computeService]
	if op := s.state.Operations[vm.Operation]; op != nil {
		op.Ends = c.World.Now()
	}
	// The machine is there: it was just found.
	_ = s.SetState(vm.ID, stateFailed, e.Code, e.Message)
	c.memberDone(vm, e)
}

// reservedFor is how long an interface stays reserved for a machine that got no host.
const reservedFor = 180 * time.Second

// reserve keeps the interfaces of a machine that got no host: for a while nobody else gets them, nor can they be deleted, which
// is what the error NicReservedForAnotherVm says.
func (c *Cloud) reserve(vm *Resource) {
	for _, nic := range c.nicsOf(vm) {
		c.guests.state.Reserved[key(nic.ID)] = Reservation{Machine: vm.ID, Until: c.World.Now().Add(reservedFor)}
	}
}

// reservedNIC refuses the use or the deletion of an interface that is reserved for another machine.
func (c *Cloud) reservedNIC(nic, machine string) *Error {
	r, ok := c.guests.state.Reserved[key(nic)]
	if !ok || strings.EqualFold(r.Machine, machine) {
		return nil
	}
	if !c.World.Now().Before(r.Until) {
		delete(c.guests.state.Reserved, key(nic))
		return nil
	}
	return refuseNetwork(http.StatusBadRequest, "NicReservedForAnotherVm", "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide another nic(s) or retry after 180 seconds. Reserved VM: %s", r.Machine)
}

// plugIn makes the network interfaces that a machine only describes, and says in the machine which they are.
func (c *Cloud) plugIn(vm *Resource) *Error {
	if vm.Type == instanceType {
		return c.plugInstance(vm)
	}
	np := vm.Properties.sub("networkProfile")
	configs := np.docs("networkInterfaceConfigurations")
	if len(configs) == 0 || len(np.docs("networkInterfaces")) > 0 {
		return nil
	}
	var refs []any
	for i, cfg := range configs {
		nic, e := c.makeNIC(vm, cfg)
		if e != nil {
			return e
		}
		option := cfg.str("properties.deleteOption")
		if option == "" {
			option = "Delete"
		}
		refs = append(refs, map[string]any{"id": nic.ID, "properties": map[string]any{"primary": i == 0 || cfg.flag("properties.primary"), "deleteOption": option}})
	}
	np["networkInterfaces"] = refs
	delete(np, "networkInterfaceConfigurations")
	return nil
}

// makeNIC makes an interface from a networkInterfaceConfiguration.
func (c *Cloud) makeNIC(vm *Resource, cfg doc) (*Resource, *Error) {
	p := cfg.sub("properties").clone()
	for _, name := range []string{"primary", "deleteOption", "networkInterfaceConfiguration"} {
		delete(p, name)
	}
	for _, ip := range p.docs("ipConfigurations") {
		ip.sub("properties").def("privateIPAllocationMethod", "Dynamic")
		for _, name := range []string{"applicationGatewayBackendAddressPools", "loadBalancerInboundNatPools", "publicIPAddressConfiguration"} {
			delete(ip.sub("properties"), name)
		}
	}
	id := groupID(subscriptionOf(vm.ID), groupOf(vm.ID)) + "/providers/" + nicType + "/" + cfg.str("name") + "-" + c.World.Hex("", 8)
	r := c.background(subscriptionOf(vm.ID), "NetworkInterfaces_CreateOrUpdate")
	r.method, r.path = http.MethodPut, id
	r.id, _ = parseID(id)
	r.version = "2025-07-01"
	nic := &Resource{ID: id, Type: nicType, Name: lastOf(id), Location: vm.Location, Tags: maps.Clone(vm.Tags), Properties: p, Top: doc{}, State: stateSucceeded,
		Etag: c.kindOf(nicType).newEtag(c), Created: c.World.Now(), Changed: c.World.Now()}
	if _, err := c.kindOf(nicType).put(r, nic, nil); err != nil {
		return nil, asRefusal(err)
	}
	c.keep(nic)
	c.index.put(nic)
	return nic, nil
}

// vmAction is an operation on the power of a machine, by the name that the provider gives it.
func (c *Cloud) vmAction(name string, takes time.Duration) func(*request, *Resource) (answer, error) {
	return func(r *request, vm *Resource) (answer, error) {
		if err := c.vmGuard(r, vm.ID); err != nil {
			return answer{}, err
		}
		out, e := c.power(r, vm, name, takes)
		if e != nil {
			return answer{}, e
		}
		r.Make(vm.ID)
		vm.State = stateUpdating
		return answer{status: http.StatusAccepted, header: c.begin(r, vm, name, out)}, nil
	}
}

// power checks an operation on a machine's power and lets it begin.
func (c *Cloud) power(r *request, vm *Resource, name string, takes time.Duration) (outcome, *Error) {
	out := outcome{takes: takes, style: asyncLocation, retryAfter: 10}
	m := c.guests.of(vm.ID)
	if m == nil {
		return out, refuse(http.StatusConflict, "OperationNotAllowed", "Operation '%s' is not allowed on VM '%s' since the VM has never been allocated.", name, vm.Name)
	}
	switch name {
	case "start":
		if m.Power == "deallocated" || m.Power == "" {
			doom := c.shortage(r.Call, vm.Location, first(vm.Top.strs("zones")), vm.ID, sizeOf(vm))
			if m.Doom = doom; doom != nil {
				c.vmAfter(min(failTakes, takes-time.Second), vm, m, "doom")
				break // the machine stays off
			}
		}
		if m.Power != "running" {
			m.Power = "starting"
		}
	case "restart", "redeploy":
		if m.Power != "running" {
			return out, refuse(http.StatusConflict, "OperationNotAllowed", "The operation requires the VM to be running (or set to run).")
		}
	case "powerOff", "deallocate":
		m.Power = map[string]string{"powerOff": "stopping", "deallocate": "deallocating"}[name]
	}
	return out, nil
}

// vmSettled is what an operation on a machine has come to.
func (c *Cloud) vmSettled(op *Operation, vm *Resource) {
	m := c.guests.of(vm.ID)
	if m == nil {
		return
	}
	switch op.Verb {
	case "start":
		if m.Power == "starting" {
			c.guests.boot(vm, m)
		}
	case "restart", "redeploy":
		c.guests.boot(vm, m)
	case "reimage":
		m.Machine = nil
		c.guests.boot(vm, m)
	case "powerOff":
		c.guests.stop(m, "stopped")
	case "deallocate":
		c.guests.stop(m, "deallocated")
	}
}

// driveMachine puts the power of a machine into a state from outside; what else can happen to a resource is left to the core.
func (c *Cloud) driveMachine(res *Resource, state, code, message string) (bool, error) {
	m := c.guests.of(res.ID)
	if m == nil {
		return false, nil
	}
	switch state {
	case "running":
		c.guests.boot(res, m)
	case "stopped", "deallocated":
		c.guests.stop(m, state)
	case "", stateFailed:
		m.Doom = &Error{Status: http.StatusConflict, Code: code, Message: message}
		return false, nil
	case "Unhealthy", "Healthy":
		m.NoHealth = state == "Unhealthy"
	default:
		return false, nil
	}
	return true, nil
}

// showVM adds what a GET asks for beyond the model.
func (c *Cloud) showVM(r *request, vm *Resource, body doc) {
	if strings.Contains(strings.ToLower(r.query.Get("$expand")), "instanceview") {
		body.sub("properties")["instanceView"] = map[string]any(c.vmView(r, vm))
	}
	var ext []any
	for _, x := range c.children(vm.ID, vmExtensionType) {
		ext = append(ext, c.render(r, x))
	}
	if len(ext) > 0 {
		body["resources"] = ext
	}
}

// vmView is the instance view of a machine.
func (c *Cloud) vmView(_ *request, vm *Resource) doc {
	now := stamp(c.World.Now())
	m := c.guests.of(vm.ID)
	v := doc{"statuses": c.machineStatuses(vm, m), "disks": []any{}}
	if m == nil || m.Power == "" {
		return v
	}
	v["hyperVGeneration"] = "V1"
	for _, i := range imageSKUs {
		if i.Publisher+":"+i.Offer+":"+i.SKU == m.Image {
			v["hyperVGeneration"] = i.Gen
		}
	}
	if name := vm.Properties.str("storageProfile.osDisk.name"); name != "" {
		v["disks"] = []any{map[string]any{"name": name, "statuses": []any{status("ProvisioningState/succeeded", "Info", "Provisioning succeeded", now)}}}
	}
	if m.Power != "running" {
		return v
	}
	v["vmAgent"] = map[string]any(c.agentView(m))
	if c.guests.agentReady(m) {
		v["computerName"], v["osName"], v["osVersion"] = m.Host, m.Machine.Distro, m.Machine.Release
	}
	return v
}

func status(code, level, display, at string) map[string]any {
	s := map[string]any{"code": code, "level": level, "displayStatus": display}
	if at != "" {
		s["time"] = at
	}
	return s
}

// agentView is what the platform knows of the Linux agent ("Azure Linux VM Agent overview").
func (c *Cloud) agentView(m *Guest) doc {
	now := stamp(c.World.Now())
	if c.guests.agentReady(m) {
		s := status("ProvisioningState/succeeded", "Info", "Ready", now)
		s["message"] = "Guest Agent is running"
		return doc{"vmAgentVersion": "2.15.0.1", "statuses": []any{s}, "extensionHandlers": []any{}}
	}
	s := status("ProvisioningState/Unavailable", "Warning", "Not Ready", now)
	s["message"] = "VM status blob is found but not yet populated."
	if m.Registered {
		s["message"] = "VM Agent is unresponsive."
	}
	return doc{"vmAgentVersion": "Unknown", "statuses": []any{s}}
}

// machineStatuses are the two lines that say how a machine is.
func (c *Cloud) machineStatuses(vm *Resource, m *Guest) []any {
	state := strings.ToLower(vm.State)
	s := status("ProvisioningState/"+state, "Info", strings.ToUpper(state[:1])+state[1:], "")
	switch vm.State {
	case stateSucceeded:
		s["displayStatus"], s["time"] = "Provisioning succeeded", stamp(vm.Changed)
	case stateFailed:
		s["level"], s["displayStatus"], s["time"] = "Error", "Provisioning failed", stamp(vm.Changed)
		if m != nil && m.Doom != nil {
			s["code"], s["message"] = fmt.Sprintf("ProvisioningState/failed/%s", m.Doom.Code), m.Doom.Message
		}
	}
	out := []any{s}
	if m != nil && m.Power != "" {
		out = append(out, status("PowerState/"+m.Power, "Info", "VM "+m.Power, ""))
	}
	return out
}
