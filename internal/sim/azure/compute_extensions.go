package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

const (
	vmExtensionType  = vmType + "/extensions"
	setExtensionType = setType + "/extensions"
)

// addExtensions registers extensions. What they would do inside a machine is not simulated.
func (c *Cloud) addExtensions() {
	remove := func(retryAfter int) func(*request, *Resource) (outcome, error) {
		return func(_ *request, _ *Resource) (outcome, error) {
			return outcome{status: http.StatusAccepted, takes: 20 * time.Second, state: stateDeleting, style: asyncLocation, retryAfter: retryAfter, empty: true}, nil
		}
	}
	c.addKind(&kind{typ: vmExtensionType, service: computeService, title: "VirtualMachineExtensions", versions: computeVersions, tracked: true, noEtag: true, says: computeDialect,
		model: func() any { return &armcompute.VirtualMachineExtension{} }, patchModel: func() any { return &armcompute.VirtualMachineExtensionUpdate{} },
		put: func(_ *request, now, old *Resource) (outcome, error) {
			if m := c.guests.of(parentOf(now.ID)); m == nil || m.Power != "running" {
				return outcome{}, refuse(http.StatusConflict, "OperationNotAllowed", "Cannot modify extensions in the VM when the VM is not running.")
			}
			return putExtension(now, old, 0)
		},
		mergePatch: true, remove: remove(0), polling: computePolling, stamped: true,
		missing: func(r *request) *Error {
			return refuseARM(http.StatusNotFound, "ResourceNotFound", "The Resource '%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
				strings.TrimPrefix(r.id.String(), groupID(r.id.Subscription, r.id.Group)+"/providers/"), r.id.Group)
		}})
	c.addKind(&kind{typ: setExtensionType, service: computeService, title: "VirtualMachineScaleSetExtensions", versions: computeVersions, noEtag: true, says: computeDialect,
		model: func() any { return &armcompute.VirtualMachineScaleSetExtension{} }, patchModel: func() any { return &armcompute.VirtualMachineScaleSetExtensionUpdate{} },
		put:        func(_ *request, now, old *Resource) (outcome, error) { return putExtension(now, old, 10) },
		mergePatch: true, remove: remove(10), polling: computePolling, stamped: true, retryPoll: 37})
}

func putExtension(now, old *Resource, retryAfter int) (outcome, error) {
	p := now.Properties
	for _, name := range []string{"publisher", "type", "typeHandlerVersion"} {
		if old == nil && p.str(name) == "" {
			return outcome{}, missingParameter("virtualMachineExtension.properties." + name)
		}
	}
	delete(p, "protectedSettings")
	p.def("autoUpgradeMinorVersion", false)
	p.def("settings", map[string]any{})
	out := outcome{state: stateCreating, takes: 12 * time.Second, style: asyncHeader, retryAfter: retryAfter}
	if old != nil {
		out.state = stateUpdating
	}
	return out, nil
}
