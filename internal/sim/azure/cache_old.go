package azure

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/redis/armredis/v3"

	"github.com/zopday/provisioner/internal/sim"
)

// oldCacheType is Azure Cache for Redis.
const oldCacheType = "Microsoft.Cache/Redis"

var oldCacheVersions = []string{"2018-03-01", "2020-12-01", "2023-04-01", "2023-08-01", "2024-03-01", "2024-11-01"}

func (c *Cloud) addOldCaches() {
	modelled := func(version string) bool { return version == "2024-11-01" }
	c.addKind(&kind{typ: oldCacheType, service: cacheService, title: "Redis", versions: oldCacheVersions, tracked: true, noEtag: true, says: cacheDialect, name: cacheName,
		model: func() any { return &armredis.CreateParameters{} }, patchModel: func() any { return &armredis.UpdateParameters{} }, modelled: modelled, mergePatch: true,
		missing: func(r *request) *Error { return notFoundARM(r.id) },
		put:     c.putOldCache, remove: c.removeOldCache, settled: c.managedSettled, removed: c.managedRemoved, show: c.showOldCache, guard: c.oldCacheIdle, polling: oldCachePolling, pollBody: oldCacheStatus,
		deleted: http.StatusOK, reads: []string{"listkeys"},
		actions: map[string]func(*request, *Resource) (answer, error){"listkeys": c.listOldKeys},
		views:   map[string]func(*request, *Resource) (answer, error){"linkedservers": func(r *request, _ *Resource) (answer, error) { return r.page(nil, "$skiptoken") }, "patchschedules": noPatchSchedules}})
	c.addKind(&kind{typ: oldCacheType + "/firewallRules", service: cacheService, title: "FirewallRules", versions: oldCacheVersions, stateless: true, noEtag: true, says: cacheDialect,
		put: func(r *request, now, old *Resource) (outcome, error) {
			if old != nil {
				return outcome{}, nil
			}
			return outcome{header: http.Header{"Location": {r.base + versioned(now.ID, r.version)}}}, nil
		},
		settled: c.managedSettled,
		show:    func(_ *request, res *Resource, body doc) { body["name"] = lastOf(parentOf(res.ID)) + "/" + res.Name }})
	c.handle(route{method: "POST", pattern: "/subscriptions/{subscription}/providers/Microsoft.Cache/CheckNameAvailability", service: cacheService, operation: "Redis_CheckNameAvailability", kind: oldCacheType, read: true, serve: c.checkCacheName})
}

func oldCachePolling(op *Operation) (async, result string) {
	base := fmt.Sprintf("/subscriptions/%s/providers/Microsoft.Cache/locations/%s/", subscriptionOf(op.Target), url.PathEscape(displayLocation(op.Location)))
	return base + "asyncOperations/" + op.ID, base + "operationresults/" + op.ID
}

// oldCacheStatus completes a status document, which tells the caller again where it is.
func oldCacheStatus(r *request, op *Operation, h http.Header, body map[string]any) {
	async, _ := oldCachePolling(op)
	h.Set("Azure-AsyncOperation", r.base+versioned(async, op.Version))
	body["id"] = fmt.Sprintf("/subscriptions/%s/providers/Microsoft.Cache/locations/%s/asyncOperations/%s", subscriptionOf(op.Target), displayLocation(op.Location), op.ID)
	body["name"] = op.ID
	for _, name := range []string{"startTime", "endTime", "percentComplete", "properties", "error"} {
		if body[name] == nil {
			body[name] = nil
		}
	}
}

// putOldCache makes a cache, if the tenant has had one before: since April 2026 no others can ("What's new in Azure Cache for Redis").
func (c *Cloud) putOldCache(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	for _, name := range []string{"hostName", "port", "sslPort", "accessKeys", "instances", "linkedServers", "privateEndpointConnections"} {
		delete(p, name)
	}
	if full, ok := map[string]string{"": "6.0", "4": "4.0.14", "6": "6.0"}[p.str("redisVersion")]; ok && (old == nil || p.str("redisVersion") != "") {
		p["redisVersion"] = full
	}
	if old != nil {
		was := old.clone()
		inheritDoc(p, was.Properties)
		inheritDoc(now.Top, was.Top)
		if name := p.str("sku.name"); was.Properties.str("sku.name") != "Basic" && name == "Basic" {
			return outcome{}, refuseCache(http.StatusBadRequest, "BadRequest", "Invalid update request: properties.sku.name cannot be updated to Basic.")
		}
		if sameJSON(p.sub("sku"), was.Properties.sub("sku")) {
			return outcome{status: http.StatusOK}, nil
		}
		return outcome{status: http.StatusOK, state: "Scaling", takes: c.pace(6*time.Minute, 12*time.Minute, "scale "+now.ID)}, nil
	}
	switch {
	case !r.placed && !c.hasOldCache():
		return outcome{}, refuseCache(http.StatusBadRequest, "BadRequest", "Creation of new Azure Cache for Redis resources is no longer supported for new customers. Please use Azure Managed Redis.")
	case c.cacheNameTaken(r, now):
		return outcome{}, refuseCache(http.StatusConflict, "NameNotAvailable", "The name '%s' for resource of type 'Microsoft.Cache/Redis' is not available.", now.Name)
	case p.sub("sku") == nil:
		return outcome{}, refuseCache(http.StatusBadRequest, "BadRequest", "The value of the parameter properties.sku is invalid.")
	}
	p.def("enableNonSslPort", false)
	p.def("publicNetworkAccess", "Enabled")
	c.setSecret(cacheService, now.ID+"|primary", c.World.ID("", 43, keyAlphabet)+"=")
	c.setSecret(cacheService, now.ID+"|secondary", c.World.ID("", 43, keyAlphabet)+"=")
	how := asyncHeader
	if r.version < "2020" {
		how = noHeader
	}
	return outcome{state: stateCreating, style: how, takes: c.pace(8*time.Minute, 14*time.Minute, now.ID), header: http.Header{"Location": {r.base + versioned(now.ID, r.version)}}}, nil
}

// hasOldCache says whether the tenant has a cache of this kind.
func (c *Cloud) hasOldCache() bool {
	for _, res := range c.shelves[cacheService].state.Resources {
		if res.Type == oldCacheType {
			return true
		}
	}
	return false
}

func (c *Cloud) oldCacheIdle(r *request, id string) error {
	if res := c.find(id); res != nil && res.busy() && r.method != http.MethodDelete {
		return refuseCache(http.StatusConflict, "Conflict", "The resource '%s' is busy processing a previous update request or is undergoing system maintenance. As such, it is currently unable to accept the update request. Please try again later.", res.Name)
	}
	return nil
}

func (c *Cloud) removeOldCache(_ *request, res *Resource) (outcome, error) {
	return outcome{status: http.StatusAccepted, state: stateDeleting, style: locationOnly, takes: c.pace(3*time.Minute, 8*time.Minute, "delete "+res.ID), empty: true}, nil
}

// showOldCache completes what a GET answers: with the keys only for who has written it.
func (c *Cloud) showOldCache(r *request, res *Resource, body doc) {
	p := body.sub("properties")
	body["location"] = displayLocation(res.Location)
	body["tags"] = tagDoc(res.Tags)
	p["accessKeys"] = nil
	if r.method == http.MethodPut {
		p["accessKeys"] = map[string]any{"primaryKey": c.secret(cacheService, res.ID+"|primary"), "secondaryKey": c.secret(cacheService, res.ID+"|secondary")}
	}
	at := c.databases.endpoint(res.ID)
	p["hostName"], p["port"], p["sslPort"], p["linkedServers"] = at.Host, 6379, 6380, []any{}
	if at != nobody {
		p["sslPort"] = at.Port
	}
	if r.version < "2020" {
		delete(p, "publicNetworkAccess")
		return
	}
	instances := []any{}
	for i := range 2 {
		first := i == 0 && res.State != stateCreating
		instances = append(instances, map[string]any{"sslPort": 15000 + i, "isMaster": first, "isPrimary": first})
	}
	p["instances"] = instances
	limits := map[string]string{"P1": "642", "P2": "1330", "C0": "2", "C1": "50", "C2": "200"}
	size := limits[p.str("sku.family")+strconv.Itoa(int(p.num("sku.capacity")))]
	cfg := p.sub("redisConfiguration")
	if cfg == nil {
		cfg = doc{}
		p["redisConfiguration"] = cfg
	}
	for _, name := range []string{"maxmemory-reserved", "maxfragmentationmemory-reserved", "maxmemory-delta"} {
		cfg[name] = size
	}
	cfg["maxclients"] = map[string]string{"P": "7500", "C": "1000"}[p.str("sku.family")]
}

// refreshOldCache makes the real server what a cache is.
func (c *Cloud) refreshOldCache(res *Resource) {
	if res.State != stateSucceeded && res.State != "Scaling" {
		return
	}
	id := res.ID
	c.databases.set(cacheService, sim.DatabaseServer{ID: id, Engine: "redis", Names: []string{strings.ToLower(res.Name) + ".redis.cache.windows.net"}, RequireTLS: !res.Properties.flag("enableNonSslPort"),
		Password: c.secret(cacheService, id+"|primary"), Admits: func(from sim.KubeCaller) bool { return c.oldCacheAdmits(id, from) }}, false)
}

func (c *Cloud) oldCacheAdmits(id string, from sim.KubeCaller) bool {
	c.World.Lock()
	defer c.World.Unlock()
	res := c.find(id)
	switch {
	case res == nil:
		return false
	case from.Inside && (c.endpointTo(id) || res.Properties.str("subnetId") != ""):
		return true
	case res.Properties.str("publicNetworkAccess") == "Disabled" || res.Properties.str("subnetId") != "":
		return false
	}
	var ranges [][2]string
	for _, rule := range c.children(id, oldCacheType+"/firewallRules") {
		ranges = append(ranges, [2]string{rule.Properties.str("startIP"), rule.Properties.str("endIP")})
	}
	return len(ranges) == 0 || admittedBy(ranges, from.IP)
}

func (c *Cloud) listOldKeys(_ *request, res *Resource) (answer, error) {
	return plain(map[string]any{"primaryKey": c.secret(cacheService, res.ID+"|primary"), "secondaryKey": c.secret(cacheService, res.ID+"|secondary")}), nil
}

func noPatchSchedules(_ *request, res *Resource) (answer, error) {
	return answer{}, refuseCache(http.StatusNotFound, "ResourceNotFound", "There are no patch schedules found for redis cache '%s'.", res.Name)
}

// checkCacheName answers 200 without a body for a name that is free, and refuses the others.
func (c *Cloud) checkCacheName(r *request) (answer, error) {
	body, err := r.input(cacheDialect, nil)
	if err != nil {
		return answer{}, err
	}
	typ := oldCacheType
	if strings.EqualFold(body.str("type"), managedRedisType) {
		typ = managedRedisType
	}
	if c.cacheNameTaken(r, &Resource{ID: "/", Type: typ, Name: body.str("name")}) {
		return answer{}, refuseCache(http.StatusConflict, "NameNotAvailable", "The name '%s' for resource of type '%s' is not available.", body.str("name"), typ)
	}
	return answer{status: http.StatusOK, header: http.Header{}}, nil
}
