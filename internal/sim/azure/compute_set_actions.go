package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// chosen are the machines of a set that an action names; none or * means all of them.
func (c *Cloud) chosen(r *request, set *Resource, need bool) ([]*Resource, *Error) {
	body := doc{}
	if len(r.body) > 0 {
		var err error
		if body, err = r.input(computeDialect, func() any { return &armcompute.VirtualMachineScaleSetVMInstanceIDs{} }); err != nil {
			return nil, asRefusal(err)
		}
	}
	ids, members := body.strs("instanceIds"), c.membersOf(set)
	if need && len(ids) == 0 {
		return nil, missingParameter("instanceIds")
	}
	if len(ids) == 0 || len(ids) == 1 && ids[0] == "*" {
		return members, nil
	}
	var out []*Resource
	for _, id := range ids {
		vm := c.memberNamed(members, id)
		if vm == nil {
			return nil, invalidParameter("instanceIds", "The provided instanceId %s is not an active Virtual Machine Scale Set VM instanceId.", id)
		}
		out = append(out, vm)
	}
	return out, nil
}

func (c *Cloud) memberNamed(members []*Resource, id string) *Resource {
	for _, vm := range members {
		if strings.EqualFold(lastOf(vm.ID), id) {
			return vm
		}
	}
	return nil
}

// deleteInstances deletes machines of a set and makes it smaller by as many.
func (c *Cloud) deleteInstances(r *request, set *Resource) (answer, error) {
	if err := c.vmGuard(r, set.ID); err != nil {
		return answer{}, err
	}
	members, e := c.chosen(r, set, true)
	if e != nil {
		return answer{}, e
	}
	kept := c.keptOf(set)
	if sku := set.Top.sub("sku"); sku != nil {
		sku["capacity"] = float64(max(0, capacityOf(set)-len(members)))
	}
	for _, vm := range members {
		c.retire(set, vm, kept)
		r.Touch(vm.ID)
	}
	return c.setOperation(r, set, "delete instances", 40*time.Second), nil
}

// setOperation begins an operation on a set that its machines will have finished before long.
func (c *Cloud) setOperation(r *request, set *Resource, verb string, takes time.Duration) answer {
	r.Make(set.ID)
	set.State = stateUpdating
	return answer{status: http.StatusAccepted, header: c.begin(r, set, verb, outcome{takes: takes, style: asyncLocation, retryAfter: 10})}
}

// upgradeInstances brings machines of a uniform set up to the latest model.
func (c *Cloud) upgradeInstances(r *request, set *Resource) (answer, error) {
	if err := c.vmGuard(r, set.ID); err != nil {
		return answer{}, err
	}
	members, e := c.chosen(r, set, true)
	if e != nil {
		return answer{}, e
	}
	kept := c.keptOf(set)
	for _, vm := range members {
		c.bringUp(set, vm, kept, false)
	}
	return c.setOperation(r, set, "manualUpgrade", 60*time.Second), nil
}

// setAction does to machines of a set what the action of the same name does to one.
func (c *Cloud) setAction(name string, takes time.Duration) func(*request, *Resource) (answer, error) {
	return func(r *request, set *Resource) (answer, error) {
		if err := c.vmGuard(r, set.ID); err != nil {
			return answer{}, err
		}
		members, e := c.chosen(r, set, false)
		if e != nil {
			return answer{}, e
		}
		kept := c.keptOf(set)
		for _, vm := range members {
			if name == "reimage" {
				c.bringUp(set, vm, kept, true)
				continue
			}
			if _, e := c.power(r, vm, name, takes); e != nil {
				return answer{}, e
			}
			c.after(takes-time.Second, computeService, "vm", vm.ID+"|"+name+"|any")
			r.Touch(vm.ID)
		}
		return c.setOperation(r, set, name, takes), nil
	}
}

// listInstances lists the machines of a scale set; those of a flexible one are virtual machines, shown as instances.
func (c *Cloud) listInstances(r *request) (answer, error) {
	r.id, _ = parseID(r.path)
	parent, _ := r.id.parent()
	set := c.find(parent.String())
	if set == nil || !flexible(set) {
		return c.list(r, c.kindOf(instanceType))
	}
	var all []any
	for _, vm := range c.membersOf(set) {
		if !r.visible(vm, true) {
			continue
		}
		all = append(all, map[string]any{"id": set.ID + "/virtualMachines/" + vm.Name, "name": vm.Name, "instanceId": vm.Name, "type": instanceType,
			"location": vm.Location, "zones": vm.Top["zones"], "sku": set.Top["sku"],
			"properties": map[string]any{"provisioningState": vm.State, "vmId": vm.Properties["vmId"]}})
	}
	return r.page(all, "$skiptoken")
}
