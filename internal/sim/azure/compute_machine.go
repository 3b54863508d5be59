package azure

import "strings"

// computeService is Microsoft.Compute, as faults and books call it.
const computeService = "compute"

// The types of machines and what belongs to them.
const (
	vmType           = "Microsoft.Compute/virtualMachines"
	setType          = "Microsoft.Compute/virtualMachineScaleSets"
	instanceType     = setType + "/virtualMachines"
	instanceNICType  = instanceType + "/networkInterfaces"
	diskType         = "Microsoft.Compute/disks"
	loadBalancerType = "Microsoft.Network/loadBalancers"
)

// sizeOf is the name of a machine's size. Instances of a uniform scale set have that of the set.
func sizeOf(vm *Resource) string {
	if vm.Type == instanceType {
		return vm.Top.str("sku.name")
	}
	return vm.Properties.str("hardwareProfile.vmSize")
}

// nicsOf lists the network interfaces of a machine. Those of a uniform set's instances lie in the instance.
func (c *Cloud) nicsOf(vm *Resource) []*Resource {
	if vm.Type == instanceType {
		return c.children(vm.ID, instanceNICType)
	}
	var out []*Resource
	for _, ref := range vm.Properties.docs("networkProfile.networkInterfaces") {
		if nic := c.find(ref.str("id")); nic != nil {
			out = append(out, nic)
		}
	}
	return out
}

// machineOf is the machine that an interface belongs to, or nil.
func (c *Cloud) machineOf(nic *Resource) *Resource {
	if nic.Type == instanceNICType {
		return c.find(parentOf(nic.ID))
	}
	for _, vm := range c.shelves[computeService].sorted() {
		if vm.Type != vmType {
			continue
		}
		for _, ref := range vm.Properties.docs("networkProfile.networkInterfaces") {
			if strings.EqualFold(ref.str("id"), nic.ID) {
				return vm
			}
		}
	}
	return nil
}
