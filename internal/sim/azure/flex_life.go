package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// revivable is for how long the backups of a deleted server can be restored ("Restore a dropped server": five days).
const revivable = 5 * 24 * time.Hour

// A droppedServer is what is left of a deleted server.
type droppedServer struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	At       time.Time `json:"at"`
	Location string    `json:"location"`
	Top      doc       `json:"top"`
	Props    doc       `json:"props"`
	Password string    `json:"password"`
}

func (c *Cloud) droppedServers(e *flexEngine) map[string]droppedServer {
	out := map[string]droppedServer{}
	c.extra(e.service, "dropped", &out)
	return out
}

// noteDropped keeps what a deleted server can be revived from, and its name.
func (c *Cloud) noteDropped(e *flexEngine, res *Resource) {
	all := c.droppedServers(e)
	all[key(res.ID)] = droppedServer{ID: res.ID, Name: res.Name, At: c.World.Now(), Location: res.Location, Top: res.Top.clone(), Props: res.Properties.clone(), Password: c.secret(e.service, res.ID)}
	c.keepExtra(e.service, "dropped", all)
}

// nameTaken says whether somebody has a server of this name, in any subscription, or had one and its name is still held.
func (c *Cloud) nameTaken(r *request, e *flexEngine, name, id string) bool {
	for _, res := range c.shelves[e.service].state.Resources {
		if res.Type == e.typ && strings.EqualFold(res.Name, name) && !strings.EqualFold(res.ID, id) {
			return true
		}
	}
	for _, d := range c.droppedServers(e) {
		days, _ := c.World.QuotaValue("azure", e.service, "NameHoldDays", subscriptionOf(d.ID), d.Location)
		if !strings.EqualFold(d.Name, name) {
			continue
		}
		if c.World.Now().Sub(d.At) < time.Duration(days*24*float64(time.Hour)) || c.World.Take(r.Call, sim.FaultNameHeld, name) != nil {
			return true
		}
	}
	return false
}

// serverMissing is a GET of a server that is not there: ARM itself refuses, but for a moment after a deletion it still asks that of
// PostgreSQL.
func (c *Cloud) serverMissing(r *request) *Error {
	e := flexOf(r.kind.typ)
	if d, ok := c.droppedServers(e)[key(r.id.String())]; ok && e == flexPostgres && c.World.Now().Sub(d.At) < time.Minute {
		return e.notFound("", r.id.name())
	}
	return notFoundARM(r.id)
}

// copied fills in what a replica, a restored or a revived server takes over from the one it comes from.
func (c *Cloud) copied(e *flexEngine, now *Resource, mode string) error {
	id := now.Properties.str("sourceServerResourceId")
	if id == "" {
		return missingArgument("sourceServerResourceId")
	}
	source, password := c.find(id), c.secret(e.service, id)
	if source == nil {
		d, ok := c.droppedServers(e)[key(id)]
		if revives := mode == "ReviveDropped" || mode == "PointInTimeRestore" && e == flexMySQL; !ok || !revives || c.World.Now().Sub(d.At) > revivable {
			return refuse(http.StatusNotFound, "SourceServerNotFound", "The source server '%s' was not found, or no backup of it is kept any more.", id)
		}
		source, password = &Resource{ID: d.ID, Type: e.typ, Name: d.Name, Location: d.Location, Top: d.Top, Properties: d.Props, State: serverReady}, d.Password
	}
	if source.Type != e.typ {
		return badValue("sourceServerResourceId", "'%s' is no server of %s.", id, e.title)
	}
	if source.State != serverReady {
		return serverBusy(source.Name)
	}
	was := source.clone()
	for _, name := range []string{"network", "backup", "highAvailability", "replicationRole", "availabilityZone", "maintenanceWindow"} {
		delete(was.Properties, name)
	}
	inheritDoc(now.Properties, was.Properties)
	inheritDoc(now.Top, was.Top)
	if !strings.HasPrefix(mode, "PointInTime") {
		delete(now.Properties, "pointInTimeUTC")
	}
	if mode == "Replica" {
		sku, _ := e.sku(source.Top.str("sku.name"))
		switch {
		case sku.tier == "Burstable":
			return refuse(http.StatusBadRequest, "ReplicaNotSupportedForBurstable", "Read replicas are not supported for servers of the Burstable tier.")
		case len(c.replicasOf(source)) >= e.replicaLimit():
			return refuse(http.StatusBadRequest, "ReplicaCountLimitReached", "Server '%s' has %d read replicas, the most there can be.", source.Name, e.replicaLimit())
		}
		now.Properties["replicationRole"] = map[bool]string{true: "AsyncReplica", false: "Replica"}[e == flexPostgres]
	} else {
		delete(now.Properties, "sourceServerResourceId")
	}
	c.setSecret(e.service, now.ID, password)
	return nil
}

func (e *flexEngine) replicaLimit() int {
	if e == flexPostgres {
		return 5
	}
	return 10
}

// replicasOf are the read replicas of a server.
func (c *Cloud) replicasOf(source *Resource) []*Resource {
	var out []*Resource
	for _, res := range c.shelves[flexOf(source.Type).service].sorted() {
		if res.Type == source.Type && strings.HasSuffix(res.Properties.str("replicationRole"), "Replica") && strings.EqualFold(res.Properties.str("sourceServerResourceId"), source.ID) {
			out = append(out, res)
		}
	}
	return out
}

func (c *Cloud) listReplicas(r *request, res *Resource) (answer, error) {
	var all []any
	for _, replica := range c.replicasOf(res) {
		if r.visible(replica, true) {
			all = append(all, c.render(r, replica))
		}
	}
	return r.page(all, "$skiptoken")
}

func notStarted(res *Resource) *Error {
	return refuse(http.StatusConflict, "ServerIsNotReady", "Restart or Stop Server can only be performed on Started servers. Server Name = %s, Current Server State = %s", res.Name, res.State)
}

// switchServer begins to stop, start or restart a server.
func (c *Cloud) switchServer(r *request, res *Resource, verb, state string, takes time.Duration) (answer, error) {
	if err := c.serverIdle(r, res.ID); err != nil {
		return answer{}, err
	}
	out := c.working(strings.ToUpper(verb[:1])+verb[1:]+"ServerManagementOperation", 15, takes)
	res.State = state
	c.touch(res)
	r.Make(res.ID)
	return answer{status: http.StatusAccepted, header: c.begin(r, res, verb, out), body: out.body}, nil
}

// stopServer ends the process and keeps the storage ("Stop/start a server").
func (c *Cloud) stopServer(r *request, res *Resource) (answer, error) {
	if res.State != serverReady && !res.busy() {
		return answer{}, notStarted(res)
	}
	if len(c.replicasOf(res)) > 0 || strings.HasSuffix(res.Properties.str("replicationRole"), "Replica") {
		return answer{}, refuse(http.StatusConflict, "OperationNotAllowed", "Server '%s' cannot be stopped: it takes part in replication.", res.Name)
	}
	return c.switchServer(r, res, "stop", "Stopping", c.pace(30*time.Second, 90*time.Second, "stop "+res.ID))
}

func (c *Cloud) startServer(r *request, res *Resource) (answer, error) {
	if res.State != serverStopped && !res.busy() {
		return answer{}, refuse(http.StatusConflict, "ServerIsNotStopped", "Start Server can only be performed on Stopped servers. Server Name = %s, Current Server State = %s", res.Name, res.State)
	}
	return c.switchServer(r, res, "start", "Starting", c.pace(60*time.Second, 180*time.Second, "start "+res.ID))
}

// restartServer makes static parameters take effect.
func (c *Cloud) restartServer(r *request, res *Resource) (answer, error) {
	if res.State != serverReady && !res.busy() {
		return answer{}, notStarted(res)
	}
	state := "Restarting"
	if flexOf(res.Type) == flexMySQL {
		state = stateUpdating
	}
	return c.switchServer(r, res, "restart", state, c.pace(20*time.Second, 60*time.Second, "restart "+res.ID))
}

// addFlexRoutes answers what a location offers, and whether a name is free.
func (c *Cloud) addFlexRoutes(e *flexEngine) {
	base := "/subscriptions/{subscription}/providers/" + e.namespace()
	add := func(method, path, operation string, f func(*flexEngine, *request) (answer, error)) {
		c.handle(route{method: method, pattern: path, service: e.service, operation: operation, kind: e.typ, versions: e.versions, read: true,
			serve: func(r *request) (answer, error) { return f(e, r) }})
	}
	for _, at := range []string{"/checkNameAvailability", "/locations/{location}/checkNameAvailability"} {
		add("POST", base+at, "CheckNameAvailability_Execute", c.checkServerName)
	}
	add("GET", base+"/locations/{location}/capabilities", "LocationBasedCapabilities_List", c.listCapabilities)
	add("GET", base+"/locations/{location}/capabilitySets", "LocationBasedCapabilitySet_List", c.listCapabilities)
	add("GET", base+"/locations/{location}/capabilitySets/{set}", "LocationBasedCapabilitySet_Get", c.getCapabilities)
	add("GET", base+"/locations/{location}/resourceType/flexibleServers/usages", "QuotaUsages_List", c.listServerUsages)
	add("POST", base+"/locations/{location}/checkVirtualNetworkSubnetUsage", "CheckVirtualNetworkSubnetUsage_Execute", c.subnetUsage)
	for _, method := range []string{"GET", "POST"} {
		add(method, "/providers/"+e.namespace()+"/getPrivateDnsZoneSuffix", "GetPrivateDnsZoneSuffix_Execute", func(e *flexEngine, _ *request) (answer, error) {
			if e == flexMySQL {
				return plain(map[string]any{"privateDnsZoneSuffix": "private." + e.suffix}), nil
			}
			return plain("private." + e.suffix), nil
		})
	}
	add("GET", "/subscriptions/{subscription}/resourceGroups/{group}/providers/"+e.typ+"/{server}/configurations", "Configurations_ListByServer", c.listConfigurations)
}

// checkServerName says whether a name is free, in the whole cloud.
func (c *Cloud) checkServerName(e *flexEngine, r *request) (answer, error) {
	body, err := r.input(armDialect, nil)
	if err != nil {
		return answer{}, err
	}
	name := body.str("name")
	out := map[string]any{"name": name, "type": e.typ, "nameAvailable": true, "message": "", "reason": ""}
	switch {
	case !serverName.pattern.MatchString(name):
		out["nameAvailable"], out["reason"], out["message"] = false, "Invalid", serverName.text
	case c.nameTaken(r, e, name, ""):
		out["nameAvailable"], out["reason"], out["message"] = false, "AlreadyExists", "Specified server name is already used."
	}
	return plain(out), nil
}

// subnetUsage says how many addresses servers take in the subnets of a network.
func (c *Cloud) subnetUsage(e *flexEngine, r *request) (answer, error) {
	body, err := r.input(armDialect, nil)
	if err != nil {
		return answer{}, err
	}
	vnet := c.find(body.str("virtualNetworkArmResourceId"))
	if vnet == nil {
		return answer{}, refuse(http.StatusBadRequest, "VNetNotFound", "The virtual network '%s' was not found.", body.str("virtualNetworkArmResourceId"))
	}
	usages := []any{}
	for _, subnet := range c.children(vnet.ID, subnetType) {
		used := 0
		for _, id := range c.usersAt(subnet.ID, e.typ) {
			used += addressesOf(c.find(id))
		}
		usages = append(usages, map[string]any{"subnetName": subnet.Name, "usage": used})
	}
	return plain(map[string]any{"location": vnet.Location, "subscriptionId": r.subscription, "delegatedSubnetsUsage": usages}), nil
}

// listServerUsages answers the quota of a location.
func (c *Cloud) listServerUsages(e *flexEngine, r *request) (answer, error) {
	limit, _ := c.World.QuotaValue("azure", e.service, "vCores", r.subscription, r.Region)
	all := []any{map[string]any{"id": r.path + "/vCores", "name": map[string]any{"value": "vCores", "localizedValue": "vCores"}, "unit": "Count", "limit": int(limit), "currentValue": c.vCores(e, r.subscription, r.Region)}}
	return r.page(all, "$skiptoken")
}
