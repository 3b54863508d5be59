package azure

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// cacheService is Microsoft.Cache, as faults and books call it.
const cacheService = "cache"

// The types of Azure Managed Redis.
const (
	managedRedisType    = "Microsoft.Cache/redisEnterprise"
	managedDatabaseType = managedRedisType + "/databases"
	accessPolicyType    = managedDatabaseType + "/accessPolicyAssignments"
)

var managedVersions = []string{"2021-03-01", "2023-07-01", "2023-11-01", "2024-10-01", "2025-04-01", managedCurrent}

// managedCurrent is the api-version from which on publicNetworkAccess has to be given.
const managedCurrent = "2025-07-01"

// managedSKUs are the sizes of Azure Managed Redis with their memory in GiB ("Azure Managed Redis pricing tiers").
var managedSKUs = map[string]float64{"Balanced_B0": 0.5, "Balanced_B1": 1, "Balanced_B3": 3, "Balanced_B5": 6, "Balanced_B10": 12, "Balanced_B20": 24, "Balanced_B50": 60, "Balanced_B100": 120,
	"Balanced_B150": 180, "Balanced_B250": 240, "Balanced_B350": 360, "Balanced_B500": 480, "Balanced_B700": 720, "Balanced_B1000": 960,
	"MemoryOptimized_M10": 12, "MemoryOptimized_M20": 24, "MemoryOptimized_M50": 60, "MemoryOptimized_M100": 120, "MemoryOptimized_M150": 175, "MemoryOptimized_M250": 235, "MemoryOptimized_M350": 360,
	"MemoryOptimized_M500": 480, "MemoryOptimized_M700": 720, "MemoryOptimized_M1000": 960, "MemoryOptimized_M1500": 1440, "MemoryOptimized_M2000": 1920,
	"ComputeOptimized_X3": 3, "ComputeOptimized_X5": 6, "ComputeOptimized_X10": 12, "ComputeOptimized_X20": 24, "ComputeOptimized_X50": 60, "ComputeOptimized_X100": 120, "ComputeOptimized_X150": 180,
	"ComputeOptimized_X250": 240, "ComputeOptimized_X350": 360, "ComputeOptimized_X500": 480, "ComputeOptimized_X700": 720,
	"FlashOptimized_A250": 256, "FlashOptimized_A500": 512, "FlashOptimized_A700": 720, "FlashOptimized_A1000": 1024, "FlashOptimized_A1500": 1455, "FlashOptimized_A2000": 1920, "FlashOptimized_A4500": 4723}

var cacheName = &nameRule{regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`), "The name must be 1 to 60 letters, digits and hyphens, without a hyphen at either end and without two in a row."}

// addCaches registers Microsoft.Cache.
func (c *Cloud) addCaches() {
	s := c.newShelf(cacheService)
	s.fresh = func() { c.databases.forget(cacheService) }
	s.restored = func() { c.databases.resume(cacheService) }
	s.drive, s.on["starved"] = c.driveCache, c.cacheStarved
	c.World.DefineQuota(sim.Quota{Cloud: "azure", Service: cacheService, Code: "ManagedRedis", Name: "Azure Managed Redis instances", Default: 100, Unit: "Count", Adjustable: true})
	managed := func(k *kind) *kind {
		k.service, k.versions, k.noEtag, k.says, k.polling, k.pollBody, k.mergePatch = cacheService, managedVersions, true, cacheDialect, managedPolling, managedStatus, true
		return k
	}
	c.addKind(managed(&kind{typ: managedRedisType, title: "RedisEnterprise", tracked: true, name: cacheName, zonal: true,
		put: c.putManagedRedis, remove: c.removeManagedRedis, settled: c.managedSettled, removed: c.managedRemoved, show: c.showManagedRedis, guard: c.managedIdle,
		views: map[string]func(*request, *Resource) (answer, error){"privateendpointconnections": c.listConnections, "privatelinkresources": listManagedLinks}}))
	c.addKind(managed(&kind{typ: managedDatabaseType, title: "Databases", put: c.putManagedDatabase, remove: c.removeManagedDatabase, settled: c.managedSettled, removed: c.managedRemoved,
		show: c.showManagedDatabase, guard: c.managedIdle, reads: []string{"listkeys"},
		actions: map[string]func(*request, *Resource) (answer, error){"listkeys": c.listManagedKeys, "regeneratekey": c.regenerateManagedKey}}))
	c.addKind(managed(&kind{typ: accessPolicyType, title: "AccessPolicyAssignments", put: c.putAccessPolicy, guard: c.managedIdle,
		remove: func(_ *request, res *Resource) (outcome, error) {
			return outcome{status: http.StatusAccepted, state: stateDeleting, style: asyncLocation, takes: c.pace(8*time.Second, 25*time.Second, "delete "+res.ID), empty: true}, nil
		}}))
	c.addOldCaches()
}

// cacheDialect words what Microsoft.Cache refuses.
var cacheDialect = func() *dialect {
	d := *armDialect
	d.badName = func(r *request, rule *nameRule) *Error {
		return refuseCache(http.StatusBadRequest, "InvalidResourceName", "The resource name '%s' is not valid. %s", r.id.name(), rule.text)
	}
	d.absent = func(*request) *Error {
		return refuseCache(http.StatusNotFound, "ResourceNotFound", "A requested resource could not be found. It may already have been deleted.")
	}
	d.orphan = func(_ *request, parent armID) *Error { return notFoundARM(parent) }
	return &d
}()

// refuseCache is a refusal with the IDs and the empty target that Microsoft.Cache always sends.
func refuseCache(status int, code, format string, args ...any) *Error {
	e := refuse(status, code, "%s\r\nRequestID=%s", fmt.Sprintf(format, args...), newRequestID())
	e.Extra = map[string]any{"target": nil}
	return e
}

func managedPolling(op *Operation) (async, result string) {
	base := fmt.Sprintf("/subscriptions/%s/providers/Microsoft.Cache/locations/%s/", subscriptionOf(op.Target), op.Location)
	return base + "operationsStatus/" + op.ID, base + "operationsStatus/" + op.ID + "/operationResults/" + op.ID
}

// managedStatus completes a status document. One of a failed operation says nothing of why (github.com/Azure/azure-sdk-for-net/issues/30766).
func managedStatus(_ *request, op *Operation, _ http.Header, body map[string]any) {
	async, _ := managedPolling(op)
	body["id"], body["name"], body["startTime"] = async, op.ID, stamp(op.Started)
	if op.Status != statusInProgress {
		body["endTime"] = stamp(op.Ends)
	}
}

// known refuses members that a body has and the type has not.
func known(p doc, names ...string) error {
	for _, name := range sortedKeys(p) {
		if !slices.Contains(names, name) {
			return refuseCache(http.StatusBadRequest, "InvalidRequestBody", "The value of the parameter properties is invalid: unknown member '%s'.", name)
		}
	}
	return nil
}

// oneOf refuses a value that is none of those.
func oneOf(p doc, name string, values ...string) error {
	given := p.str(name)
	if given == "" {
		return nil
	}
	for _, v := range values {
		if strings.EqualFold(v, given) {
			p[name] = v
			return nil
		}
	}
	return refuseCache(http.StatusBadRequest, "InvalidRequestBody", "The value '%s' of the parameter properties.%s is invalid. It must be one of %s.", given, name, strings.Join(values, ", "))
}

// putManagedRedis makes a cluster of Azure Managed Redis, or changes one.
func (c *Cloud) putManagedRedis(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	for _, name := range []string{"hostName", "redisVersion", "resourceState", "privateEndpointConnections", "redundancyMode"} {
		delete(p, name)
	}
	if old != nil {
		was := old.clone()
		inheritDoc(p, was.Properties)
		inheritDoc(now.Top, was.Top)
	} else if err := c.newManagedRedis(r, now); err != nil {
		return outcome{}, err
	}
	if err := known(p, "encryption", "minimumTlsVersion", "highAvailability", "publicNetworkAccess", "maintenanceConfiguration"); err != nil {
		return outcome{}, err
	}
	for name, values := range map[string][]string{"minimumTlsVersion": {"1.0", "1.1", "1.2"}, "highAvailability": {"Enabled", "Disabled"}, "publicNetworkAccess": {"Enabled", "Disabled"}} {
		if err := oneOf(p, name, values...); err != nil {
			return outcome{}, err
		}
	}
	p.def("minimumTlsVersion", "1.2")
	p.def("highAvailability", "Enabled")
	if old != nil {
		if old.State == stateFailed {
			return c.caching(now, stateCreating, 4*time.Minute, 9*time.Minute), nil
		}
		if unchanged(now, old) {
			return outcome{status: http.StatusOK, idle: true}, nil
		}
		return c.caching(now, stateUpdating, 60*time.Second, 180*time.Second), nil
	}
	return c.caching(now, stateCreating, 4*time.Minute, 9*time.Minute), nil
}

// caching is how Azure Managed Redis answers a PUT.
func (c *Cloud) caching(now *Resource, state string, from, to time.Duration) outcome {
	out := outcome{state: state, style: asyncHeader, takes: c.pace(from, to, state+" "+now.ID)}
	if state == stateUpdating {
		out.status = http.StatusOK
	}
	return out
}

func (c *Cloud) newManagedRedis(r *request, now *Resource) error {
	sku := now.Top.str("sku.name")
	switch {
	case len(now.Name) > 60:
		return refuseCache(http.StatusBadRequest, "InvalidResourceName", "The resource name '%s' is not valid. %s", now.Name, cacheName.text)
	case strings.HasPrefix(sku, "Enterprise"):
		return refuseCache(http.StatusBadRequest, "BadRequest", "Creation of new Azure Cache for Redis Enterprise resources is no longer supported. Azure Cache for Redis Enterprise is being retired. Please use Azure Managed Redis.")
	case managedSKUs[sku] == 0:
		return refuseCache(http.StatusBadRequest, "InvalidRequestBody", "The value '%s' of the parameter sku.name is invalid.", sku)
	case r.version >= managedCurrent && now.Properties.str("publicNetworkAccess") == "":
		return refuseCache(http.StatusBadRequest, "InvalidRequestBody", "The parameter properties.publicNetworkAccess is required.")
	case c.cacheNameTaken(r, now):
		return refuseCache(http.StatusConflict, "NameNotAvailable", "The name '%s' for resource of type '%s' is not available.", now.Name, now.Type)
	}
	n := 0
	for _, res := range c.shelves[cacheService].state.Resources {
		if res.Type == managedRedisType && strings.EqualFold(subscriptionOf(res.ID), r.subscription) && res.Location == now.Location {
			n++
		}
	}
	if limit, _ := c.World.QuotaValue("azure", cacheService, "ManagedRedis", r.subscription, now.Location); float64(n) >= limit {
		return refuseCache(http.StatusConflict, "QuotaExceeded", "The subscription has reached its limit of %d instances of Azure Managed Redis in %s.", int(limit), now.Location)
	}
	// A cluster is accepted, and found to have no room only then (the cluster stays, Failed).
	if c.World.Take(r.Call, sim.FaultCapacity, now.Location+" "+sku) != nil {
		c.after(40*time.Second, cacheService, "starved", key(now.ID))
	}
	return nil
}

// cacheNameTaken: names of caches are host names, and unique in a region.
func (c *Cloud) cacheNameTaken(r *request, now *Resource) bool {
	for _, res := range c.shelves[cacheService].state.Resources {
		if res.Type == now.Type && strings.EqualFold(res.Name, now.Name) && !strings.EqualFold(res.ID, now.ID) && (now.Type == oldCacheType || res.Location == now.Location) {
			return true
		}
	}
	gone := map[string]time.Time{}
	c.extra(cacheService, "gone", &gone)
	_, was := gone[strings.ToLower(now.Type+" "+now.Name)]
	return was && c.World.Take(r.Call, sim.FaultNameHeld, now.Name) != nil
}

func (c *Cloud) cacheStarved(id string) {
	if res := c.find(id); res != nil && res.State == stateCreating {
		// It is there.
		_ = c.shelves[cacheService].SetState(res.ID, stateFailed, "InsufficientCapacity", "There is not enough capacity in the region for what was asked. Try another region or another size.")
	}
}

// driveCache puts a cache into a state from outside: the states of the core, and of resourceState.
func (c *Cloud) driveCache(res *Resource, state, _, _ string) (bool, error) {
	if state == "Running" {
		res.State, res.Operation = stateSucceeded, ""
		c.touch(res)
		c.refreshDatastore(res)
		return true, nil
	}
	return false, nil
}

// managedIdle refuses a write while something is at work on a cluster or on what is in it.
func (c *Cloud) managedIdle(r *request, id string) error {
	for at := id; strings.Contains(key(at), "/redisenterprise/"); at = parentOf(at) {
		res := c.find(at)
		if res == nil {
			continue
		}
		if res.busy() {
			return refuseCache(http.StatusConflict, "Conflict", "The resource '%s' is busy processing another operation (%s). Try again later.", res.Name, res.State)
		}
		if res.State == stateFailed && at != id && r.method != http.MethodDelete {
			return refuseCache(http.StatusConflict, "Conflict", "The resource '%s' is in the state Failed.", res.Name)
		}
	}
	return nil
}

func (c *Cloud) removeManagedRedis(_ *request, res *Resource) (outcome, error) {
	return outcome{status: http.StatusAccepted, state: stateDeleting, style: asyncLocation, takes: c.pace(2*time.Minute, 5*time.Minute, "delete "+res.ID), empty: true}, nil
}

// putManagedDatabase makes the database of a cluster: there is one, and it is called default.
func (c *Cloud) putManagedDatabase(_ *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	delete(p, "resourceState")
	delete(p, "redisVersion")
	if old != nil {
		was := old.clone()
		inheritDoc(p, was.Properties)
		for _, name := range []string{"clusteringPolicy", "port"} {
			if fmt.Sprint(p[name]) != fmt.Sprint(was.Properties[name]) {
				return outcome{}, refuseCache(http.StatusBadRequest, "InvalidRequestBody", "The parameter properties.%s cannot be changed.", name)
			}
		}
	}
	if now.Name != "default" {
		return outcome{}, refuseCache(http.StatusBadRequest, "InvalidResourceName", "The name of the database must be 'default', not '%s'.", now.Name)
	}
	if err := known(p, "accessKeysAuthentication", "clientProtocol", "clusteringPolicy", "deferUpgrade", "evictionPolicy", "geoReplication", "modules", "persistence", "port"); err != nil {
		return outcome{}, err
	}
	for name, values := range map[string][]string{"accessKeysAuthentication": {"Disabled", "Enabled"}, "clientProtocol": {"Encrypted", "Plaintext"}, "clusteringPolicy": {"OSSCluster", "EnterpriseCluster", "NoCluster"},
		"deferUpgrade": {"NotDeferred", "Deferred"}, "evictionPolicy": {"VolatileLRU", "AllKeysLFU", "AllKeysLRU", "AllKeysRandom", "VolatileRandom", "VolatileTTL", "VolatileLFU", "NoEviction"}} {
		if err := oneOf(p, name, values...); err != nil {
			return outcome{}, err
		}
		p.def(name, values[0])
	}
	p.def("port", 10000)
	if port := p.num("port"); port != 10000 {
		return outcome{}, refuseCache(http.StatusBadRequest, "InvalidRequestBody", "The value '%d' of the parameter properties.port is invalid. It must be 10000.", int(port))
	}
	if old != nil {
		if old.State != stateFailed && unchanged(now, old) {
			return outcome{status: http.StatusOK, idle: true}, nil
		}
		return c.caching(now, stateUpdating, 30*time.Second, 90*time.Second), nil
	}
	c.setSecret(cacheService, now.ID+"|primary", c.World.ID("", 43, keyAlphabet)+"=")
	c.setSecret(cacheService, now.ID+"|secondary", c.World.ID("", 43, keyAlphabet)+"=")
	return c.caching(now, stateCreating, 90*time.Second, 240*time.Second), nil
}

const keyAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

func (c *Cloud) removeManagedDatabase(_ *request, res *Resource) (outcome, error) {
	return outcome{status: http.StatusAccepted, state: stateDeleting, style: asyncLocation, takes: c.pace(40*time.Second, 120*time.Second, "delete "+res.ID), empty: true}, nil
}

func (c *Cloud) managedSettled(_ *Operation, res *Resource) { c.refreshDatastore(res) }
