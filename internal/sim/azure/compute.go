package azure

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/zopday/provisioner/internal/sim"
)

// The api-versions of Microsoft.Compute that are accepted: those of the SDK and those of recorded traffic.
var (
	computeVersions = []string{"2019-12-01", "2020-06-01", "2020-12-01", "2021-03-01", "2021-07-01", "2021-11-01", "2022-03-01", "2022-11-01",
		"2023-03-01", "2023-07-01", "2023-09-01", "2024-03-01", "2024-07-01", "2024-11-01", "2025-04-01", "2026-04-01"}
	diskVersions = []string{"2020-06-30", "2020-09-30", "2020-12-01", "2022-07-02", "2023-04-02", "2024-03-02", "2025-01-02", "2026-03-02"}
	skuVersions  = []string{"2019-04-01", "2021-07-01"}
)

// addCompute registers Microsoft.Compute.
func (c *Cloud) addCompute() {
	c.guests = newGuests(c)
	s := c.newShelf(computeService)
	s.on["vm"] = c.vmEvent
	s.on["set"] = c.setEvent
	s.on["run"] = c.runEvent
	s.on["feature"] = func(name string) { c.guests.state.Features[name] = "Registered" }
	s.drive = c.driveMachine
	allow(armcompute.PossibleCachingTypesValues())
	allow(armcompute.PossibleDiskDeleteOptionTypesValues())
	allow(armcompute.PossibleDeleteOptionsValues())
	allow(armcompute.PossibleDiskCreateOptionTypesValues())
	allow(armcompute.PossibleStorageAccountTypesValues())
	allow(armcompute.PossibleSecurityTypesValues())
	allow(armcompute.PossibleLinuxVMGuestPatchModeValues())
	allow(armcompute.PossibleOrchestrationModeValues())
	allow(armcompute.PossibleUpgradeModeValues())
	allow(armcompute.PossibleNetworkAccessPolicyValues())
	allow(armcompute.PossiblePublicNetworkAccessValues())
	c.defineComputeQuotas()
	c.addVM()
	c.addScaleSet()
	c.addDisk()
	c.addRunCommands()
	c.addExtensions()
	c.addComputeCatalog()
	c.addFeatures()
}

// computeDialect is how Microsoft.Compute words what all providers refuse.
var computeDialect = func() *dialect {
	d := *armDialect
	d.absent = func(*request) *Error { return entityNotFound() }
	d.orphan = func(r *request, parent armID) *Error {
		if r.cloud.find(groupID(parent.Subscription, parent.Group)) == nil {
			return groupNotFound(parent.Group)
		}
		return parentNotFound(parent)
	}
	d.badBody = func(p bodyProblem) *Error {
		e := refuse(http.StatusBadRequest, "BadRequest", "%s", p.text)
		e.Target = p.path
		return e
	}
	d.badName = func(r *request, rule *nameRule) *Error {
		return invalidParameter("name", "The entity name '%s' is invalid according to its validation rule: %s.", r.id.name(), rule.text)
	}
	return &d
}()

func entityNotFound() *Error {
	return refuse(http.StatusNotFound, "NotFound", "The entity was not found in this Azure location.")
}

// computePolling is where operations of Microsoft.Compute are asked for: status and result differ by a parameter only.
func computePolling(op *Operation) (async, result string) {
	path := fmt.Sprintf("/subscriptions/%s/providers/Microsoft.Compute/locations/%s/operations/%s", subscriptionOf(op.Target), op.Location, op.ID)
	return path, path + "?monitor=true"
}

// quotaCode is the name of the limit of all vCPUs of a region.
const quotaCode = "cores"

func (c *Cloud) defineComputeQuotas() {
	define := func(code, name string, value int) {
		c.World.DefineQuota(sim.Quota{Cloud: "azure", Service: computeService, Code: code, Name: name, Default: float64(value), Unit: "Count", Adjustable: true})
	}
	define(quotaCode, "Total Regional vCPUs", 100)
	define("virtualMachines", "Virtual Machines", 25000)
	define("virtualMachineScaleSets", "Virtual Machine Scale Sets", 2500)
	define("lowPriorityCores", "Total Regional Low-priority vCPUs", 100)
	for _, s := range vmFamilies() {
		define(s.Family, s.FamilyName, s.quota())
	}
}

// coresUsed counts the vCPUs of a subscription in a region, all together and by family. Deallocated machines count, as does the
// capacity that a scale set was asked for ("Check vCPU quotas").
func (c *Cloud) coresUsed(subscription, location string) (total int, families map[string]int, machines, sets int) {
	families = map[string]int{}
	add := func(name string, n int) {
		if size := findSize(name); size != nil {
			total += n * size.CPUs
			families[size.Series.Family] += n * size.CPUs
		}
	}
	for _, res := range c.shelves[computeService].sorted() {
		if res.Location != location || !strings.EqualFold(subscriptionOf(res.ID), subscription) {
			continue
		}
		switch res.Type {
		case vmType:
			machines++
			add(sizeOf(res), 1)
		case setType:
			sets++
			if !flexible(res) {
				add(res.Top.str("sku.name"), int(res.Top.num("sku.capacity")))
				machines += int(res.Top.num("sku.capacity"))
			}
		}
	}
	return total, families, machines, sets
}

// checkQuota refuses more vCPUs than a subscription may have.
func (c *Cloud) checkQuota(r *request, location string, size *vmSize, more int) *Error {
	if more <= 0 {
		return nil
	}
	total, families, _, _ := c.coresUsed(r.subscription, location)
	need := more * size.CPUs
	for _, q := range []struct {
		code, text string
		used       int
	}{{quotaCode, "Total Regional Cores", total}, {size.Series.Family, size.Series.Family + " Cores", families[size.Series.Family]}} {
		limit, ok := c.World.QuotaValue("azure", computeService, q.code, r.subscription, location)
		if ok && q.used+need > int(limit) {
			return refuse(http.StatusConflict, "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved %s quota. Additional details - Deployment Model: Resource Manager, Location: %s, Current Limit: %d, Current Usage: %d, Additional Required: %d, (Minimum) New Limit Required: %d. Setup Alerts when Quota reaches threshold. Learn more at https://aka.ms/quotamonitoringalerting . Submit a request for Quota increase by specifying parameters listed in the 'Details' section for deployment to succeed. Please read more about quota limits at https://docs.microsoft.com/en-us/azure/azure-supportability/%s",
				q.text, location, int(limit), q.used, need, q.used+need, map[bool]string{true: "regional-quota-requests", false: "per-vm-quota-requests"}[q.code == quotaCode])
		}
	}
	return nil
}

// offered finds the size that a request asks for, if it is sold in the location to this subscription.
func offered(r *request, id, name, location string) (*vmSize, *Error) {
	size := findSize(name)
	if size == nil {
		return nil, invalidParameter("vmSize", "The value %s provided for the VM size is not valid. The valid sizes in the current region are: %s. Find out more on the valid VM sizes in each region at https://aka.ms/azure-regions.", name, strings.Join(vmSizeNames, ","))
	}
	if size.Series.Restricted {
		return nil, skuNotAvailable(r, id, location)
	}
	return size, nil
}

func skuNotAvailable(r *request, id, location string) *Error {
	return refuse(http.StatusConflict, "SkuNotAvailable", "The requested size for resource '%s' is currently not available in location '%s' zones '' for subscription '%s'. Please try another size or deploy to a different location or zones. See https://aka.ms/azureskunotavailable for details.", id, location, r.subscription)
}

// checkZones judges the zones of a machine or scale set.
func checkZones(id, typ, location string, zones []string) *Error {
	l, _ := findLocation(location)
	for _, z := range zones {
		n, err := strconv.Atoi(z)
		if l.zones == 0 {
			return refuse(http.StatusBadRequest, "LocationNotSupportAvailabilityZones", "The resource '%s' does not support availability zones at location '%s'.", typ+"/"+lastOf(id), location)
		}
		if err != nil || n < 1 || n > l.zones {
			return refuse(http.StatusBadRequest, "AvailabilityZoneNotSupported", "The zone(s) '%s' for resource '%s' is not supported. The supported zones for location '%s' are '1,2,3'", z, typ+"/"+lastOf(id), location)
		}
	}
	return nil
}

// shortage asks the faults of kind capacity whether there is room for a machine. What comes back is how the operation ends;
// SkuNotAvailable is refused at once instead.
func (c *Cloud) shortage(call *sim.Call, location, zone string, text ...string) *Error {
	if zone != "" {
		text = append(text, location+"-"+zone, "zone "+zone)
	}
	f := c.World.Take(call, sim.FaultCapacity, strings.Join(append(text, location), " "))
	if f == nil {
		return nil
	}
	e := refuse(http.StatusConflict, "AllocationFailed", "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance")
	if zone != "" {
		e = refuse(http.StatusConflict, "ZonalAllocationFailed", "Allocation failed. We do not have sufficient capacity for the requested VM size in this zone. Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance")
	}
	overlay(e, f)
	return e
}

// background is a request of the cloud's own, for what an operation makes by itself.
func (c *Cloud) background(subscription, operation string) *request {
	r := &request{Call: &sim.Call{Cloud: "azure", Service: computeService, Operation: operation, Account: subscription}, cloud: c, http: http.Header{},
		subscription: subscription, version: computeVersions[len(computeVersions)-1]}
	for _, cl := range c.clients() {
		if c.owns(cl, subscription) {
			r.who = cl
		}
	}
	return r
}
