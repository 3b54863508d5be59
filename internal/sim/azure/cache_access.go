package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// managedHost is the host name that a cluster has in the world.
func managedHost(cluster *Resource) string {
	return strings.ToLower(cluster.Name) + "." + cluster.Location + ".redis.azure.net"
}

// refreshManagedRedis makes the real server what a database is.
func (c *Cloud) refreshManagedRedis(db *Resource) {
	cluster := c.find(parentOf(db.ID))
	if cluster == nil || db.State != stateSucceeded && db.State != stateUpdating {
		return
	}
	password := ""
	if db.Properties.str("accessKeysAuthentication") == "Enabled" {
		password = c.secret(cacheService, db.ID+"|primary")
	}
	id := db.ID
	c.databases.set(cacheService, sim.DatabaseServer{ID: id, Engine: "redis", Names: []string{managedHost(cluster)}, RequireTLS: db.Properties.str("clientProtocol") == "Encrypted", Password: password,
		Admits: func(from sim.KubeCaller) bool { return c.managedAdmits(parentOf(id), from) }}, false)
}

// managedAdmits: a public cluster lets everybody in, any other those who come through a private endpoint.
func (c *Cloud) managedAdmits(id string, from sim.KubeCaller) bool {
	c.World.Lock()
	defer c.World.Unlock()
	cluster := c.find(id)
	if cluster == nil {
		return false
	}
	return cluster.Properties.str("publicNetworkAccess") == "Enabled" || from.Inside && c.endpointTo(id)
}

// managedRemoved closes what stood behind a database, and forgets its keys.
func (c *Cloud) managedRemoved(res *Resource) {
	c.databases.close(res.ID)
	for _, k := range []string{"|primary", "|secondary"} {
		c.setSecret(cacheService, res.ID+k, "")
	}
	if res.Type == managedRedisType || res.Type == oldCacheType {
		gone := map[string]time.Time{}
		c.extra(cacheService, "gone", &gone)
		gone[strings.ToLower(res.Type+" "+res.Name)] = c.World.Now()
		c.keepExtra(cacheService, "gone", gone)
	}
}

// resourceState is what a cluster or database is doing.
func resourceState(res *Resource) string {
	switch res.State {
	case stateSucceeded:
		return "Running"
	case stateFailed:
		return "CreateFailed"
	}
	return res.State
}

func (c *Cloud) showManagedRedis(r *request, res *Resource, body doc) {
	p := body.sub("properties")
	body["location"], body["kind"] = displayLocation(res.Location), "v2"
	p["resourceState"], p["redisVersion"], p["hostName"] = resourceState(res), "7.4", c.databases.endpoint(res.ID+"/databases/default").Host
	p["privateEndpointConnections"] = c.connectionsTo(res.ID)
	p["redundancyMode"] = "ZR"
	switch l, _ := findLocation(res.Location); {
	case p.str("highAvailability") == "Disabled":
		p["redundancyMode"] = "None"
	case l.zones == 0:
		p["redundancyMode"] = "LR"
	}
	if r.version < managedCurrent {
		delete(p, "publicNetworkAccess")
	}
}

func (c *Cloud) showManagedDatabase(_ *request, res *Resource, body doc) {
	p := body.sub("properties")
	p["resourceState"], p["redisVersion"] = resourceState(res), "7.4"
	if c.opt.Databases != nil && c.databases.open[key(res.ID)] != nil {
		p["port"] = c.databases.endpoint(res.ID).Port
	}
	p.def("modules", []any{})
	p.def("persistence", map[string]any{"aofEnabled": false, "rdbEnabled": false})
}

// listManagedKeys hands out the access keys, if they are of any use.
func (c *Cloud) listManagedKeys(_ *request, db *Resource) (answer, error) {
	if db.Properties.str("accessKeysAuthentication") != "Enabled" {
		return answer{}, refuseCache(http.StatusBadRequest, "BadRequest", "Access keys authentication is disabled for the database '%s'.", db.Name)
	}
	return plain(map[string]any{"primaryKey": c.secret(cacheService, db.ID+"|primary"), "secondaryKey": c.secret(cacheService, db.ID+"|secondary")}), nil
}

func (c *Cloud) regenerateManagedKey(r *request, db *Resource) (answer, error) {
	body, err := r.input(cacheDialect, nil)
	if err != nil {
		return answer{}, err
	}
	which := strings.ToLower(body.str("keyType"))
	if which != "primary" && which != "secondary" {
		return answer{}, refuseCache(http.StatusBadRequest, "InvalidRequestBody", "The value '%s' of the parameter keyType is invalid. It must be one of Primary, Secondary.", body.str("keyType"))
	}
	c.setSecret(cacheService, db.ID+"|"+which, c.World.ID("", 43, keyAlphabet)+"=")
	c.refreshManagedRedis(db)
	r.Make(db.ID)
	return c.listManagedKeys(r, db)
}

// putAccessPolicy admits an Entra identity. The one policy that there is, is called default.
func (c *Cloud) putAccessPolicy(_ *request, now, _ *Resource) (outcome, error) {
	p := now.Properties
	if err := known(p, "accessPolicyName", "user"); err != nil {
		return outcome{}, err
	}
	if p.str("accessPolicyName") != "default" {
		return outcome{}, refuseCache(http.StatusBadRequest, "InvalidRequestBody", "The value '%s' of the parameter properties.accessPolicyName is invalid. It must be default.", p.str("accessPolicyName"))
	}
	id := p.str("user.objectId")
	if !guidPattern.MatchString(id) {
		return outcome{}, refuseCache(http.StatusBadRequest, "InvalidRequestBody", "The value '%s' of the parameter properties.user.objectId is invalid.", id)
	}
	for _, other := range c.children(parentOf(now.ID), accessPolicyType) {
		if !strings.EqualFold(other.ID, now.ID) && strings.EqualFold(other.Properties.str("user.objectId"), id) {
			return outcome{}, refuseCache(http.StatusConflict, "Conflict", "The object ID '%s' has an access policy assignment already: '%s'.", id, other.Name)
		}
	}
	return c.caching(now, stateCreating, 10*time.Second, 40*time.Second), nil
}

func (c *Cloud) listConnections(r *request, res *Resource) (answer, error) {
	return r.page(c.connectionsTo(res.ID), "$skiptoken")
}

// listManagedLinks is what a private endpoint can be made to.
func listManagedLinks(r *request, res *Resource) (answer, error) {
	return r.page([]any{map[string]any{"id": res.ID + "/privateLinkResources/redisEnterprise", "name": "redisEnterprise", "type": managedRedisType + "/privateLinkResources",
		"properties": map[string]any{"groupId": "redisEnterprise", "requiredMembers": []any{"redisEnterprise"}, "requiredZoneNames": []any{managedZone}}}}, "$skiptoken")
}

// managedZone is the private zone for endpoints to Azure Managed Redis ("Azure Private Endpoint private DNS zone values").
const managedZone = "privatelink.redis.azure.net"
