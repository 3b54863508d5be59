package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// computedByServer are the properties that a flexible server computes; bodies that were read before carry them.
var computedByServer = []string{"state", "fullyQualifiedDomainName", "minorVersion", "fullVersion", "privateEndpointConnections", "replicaCapacity", "provisioningState", "replica"}

// putServer makes a flexible server, or changes one.
func (c *Cloud) putServer(r *request, now, old *Resource) (outcome, error) {
	e := flexOf(now.Type)
	p := now.Properties
	dropNulls(map[string]any(p))
	dropNulls(map[string]any(now.Top))
	for _, name := range computedByServer {
		delete(p, name)
	}
	password := p.str("administratorLoginPassword")
	delete(p, "administratorLoginPassword")
	mode := p.str("createMode")
	delete(p, "createMode")
	if old == nil {
		if err := c.newServer(r, e, now, mode, password); err != nil {
			return outcome{}, err
		}
	} else if err := c.changedServer(e, now, old, password); err != nil {
		return outcome{}, err
	}
	if err := c.checkServer(e, now, old); err != nil {
		return outcome{}, err
	}
	if err := c.checkServerNetwork(e, now, old); err != nil {
		return outcome{}, err
	}
	if old == nil {
		if err := c.serverQuota(r, e, now); err != nil {
			return outcome{}, err
		}
	}
	if password != "" {
		c.setSecret(e.service, now.ID, password)
	}
	out := c.working("UpsertServerManagementOperationV2", 60, c.serverTakes(now, old))
	out.state = stateUpdating
	if old != nil && old.State == serverDisabled {
		out.state, out.takes = e.making, c.serverTakes(now, nil)
	}
	if old == nil {
		out.state = e.making
		if doomed := e.doom(now); doomed != nil {
			// The operation would last longer; the event ends it.
			c.World.After(time.Minute, "azure", e.service, "doomed", key(now.ID))
		}
	}
	return out, nil
}

// serverTakes is how long it takes to make or change a server: minutes, and longer with a standby.
func (c *Cloud) serverTakes(now, old *Resource) time.Duration {
	ha := now.Properties.str("highAvailability.mode")
	standby := ha != "" && ha != "Disabled"
	if old != nil {
		if was := old.Properties.str("highAvailability.mode"); was != ha {
			return c.pace(6*time.Minute, 10*time.Minute, "standby "+now.ID)
		}
		if old.Top.str("sku.name") != now.Top.str("sku.name") {
			return c.pace(3*time.Minute, 6*time.Minute, "scale "+now.ID)
		}
		return c.pace(30*time.Second, 90*time.Second, "update "+now.ID)
	}
	takes := c.pace(4*time.Minute, 8*time.Minute, now.ID)
	if standby {
		takes += c.pace(4*time.Minute, 7*time.Minute, "standby "+now.ID)
	}
	return takes
}

// doom is why a server cannot become one though its request is accepted: a private zone that is called as the server would be
// (github.com/hashicorp/terraform-provider-azurerm/issues/24549), or that is none of the engine's.
func (e *flexEngine) doom(res *Resource) *Error {
	zone := strings.ToLower(lastOf(res.Properties.str("network." + e.zoneMember)))
	switch {
	case zone == "":
		return nil
	case zone == res.Name+"."+e.suffix:
		return refuse(http.StatusBadRequest, "PrivateDnsZoneNameNotValid", "The private DNS zone name '%s' is not valid: it must not be the name of the server followed by '%s'.", zone, e.suffix)
	case zone != e.suffix && !strings.HasSuffix(zone, "."+e.suffix) && zone != "privatelink."+e.suffix:
		return refuse(http.StatusBadRequest, "PrivateDnsZoneNameNotValid", "The private DNS zone name '%s' is not valid: it must end with '%s'.", zone, e.suffix)
	}
	return nil
}

// serverDoomed ends the making of a server that cannot be: nothing of it is left.
func (c *Cloud) serverDoomed(id string) {
	res := c.find(id)
	if res == nil {
		return
	}
	e := flexOf(res.Type)
	why := e.doom(res)
	if op := c.shelves[e.service].state.Operations[res.Operation]; op != nil && why != nil {
		op.Status, op.Error = statusFailed, why
		res.State = serverDisabled
		c.drop(res)
	}
}

// serverSettled ends the making or changing of a server.
func (c *Cloud) serverSettled(op *Operation, res *Resource) {
	e := flexOf(res.Type)
	made := !res.Properties.has("availabilityZone") || len(c.children(res.ID, e.child("databases"))) == 0
	switch op.Verb {
	case "stop":
		res.State = serverStopped
	default:
		res.State = serverReady
	}
	if op.Verb == "restart" || op.Verb == "start" {
		c.applyStatic(e, res)
	}
	if made {
		c.firstTime(e, res)
	}
	c.refreshServer(res)
}

// firstTime gives a new server what every one has: its zone, the databases of the system, a first backup soon.
func (c *Cloud) firstTime(e *flexEngine, res *Resource) {
	now := c.World.Now()
	for _, name := range e.system {
		c.keep(&Resource{ID: res.ID + "/databases/" + name, Type: e.child("databases"), Name: name, Created: now, Changed: now, Default: true, Top: doc{}, Properties: e.charset("")})
	}
	c.occupy(e, res)
	c.after(10*time.Minute, e.service, "backup", key(res.ID))
}

// refreshServer makes the real server what the resource is.
func (c *Cloud) refreshServer(res *Resource) {
	e := flexOf(res.Type)
	switch res.State {
	case serverReady, stateUpdating, serverStopped, "Stopping", "Starting", "Restarting":
	default:
		return
	}
	if len(c.children(res.ID, e.child("databases"))) == 0 {
		return // MySQL's are Updating while they are made
	}
	id := res.ID
	names := []string{res.Name + "." + e.suffix}
	if e == flexPostgres {
		names = append(names, "*."+e.suffix)
	}
	c.databases.set(e.service, sim.DatabaseServer{ID: id, Engine: e.engine, Names: names, Admin: res.Properties.str("administratorLogin"), Password: c.secret(e.service, id),
		AdminRole: e.adminRole, RequireTLS: strings.EqualFold(c.settingOf(e, res, "require_secure_transport"), "on"),
		Admits: func(from sim.KubeCaller) bool { return c.serverAdmits(id, from) }}, res.State == serverStopped || res.State == "Starting")
}

// serverAdmits says whether a connection gets to a server: into a network from inside alone, to a public one by its firewall rules
// ("Firewall rules in Azure Database for PostgreSQL": 0.0.0.0 to 0.0.0.0 lets in whatever runs in Azure).
func (c *Cloud) serverAdmits(id string, from sim.KubeCaller) bool {
	c.World.Lock()
	defer c.World.Unlock()
	res := c.find(id)
	if res == nil {
		return false
	}
	e := flexOf(res.Type)
	if res.Properties.str("network.delegatedSubnetResourceId") != "" || c.endpointTo(id) {
		if from.Inside {
			return true
		}
	}
	if !strings.EqualFold(res.Properties.str("network.publicNetworkAccess"), "Enabled") {
		return false
	}
	var ranges [][2]string
	for _, rule := range c.children(id, e.child("firewallRules")) {
		ranges = append(ranges, [2]string{rule.Properties.str("startIpAddress"), rule.Properties.str("endIpAddress")})
	}
	return admittedBy(ranges, from.IP)
}

// removeServer deletes a server, whatever is in it. One of PostgreSQL that has replicas stays ("Manage read replicas": a primary
// can be deleted only once all its replicas are); those of MySQL go on alone.
func (c *Cloud) removeServer(_ *request, res *Resource) (outcome, error) {
	e := flexOf(res.Type)
	if replicas := c.replicasOf(res); len(replicas) > 0 && e == flexPostgres {
		return outcome{}, refuse(http.StatusConflict, "OperationNotAllowed", "Server '%s' has read replicas ('%s') and cannot be deleted. Delete the replicas first.", res.Name, replicas[0].Name)
	}
	out := c.working("DropServerManagementOperation", 15, c.pace(60*time.Second, 150*time.Second, "delete "+res.ID))
	out.state = serverDropping
	return out, nil
}

// serverRemoved closes what stood behind a server, keeps what it can be revived from, and gives back its place in the network
// after a while.
func (c *Cloud) serverRemoved(res *Resource) {
	e := flexOf(res.Type)
	c.databases.close(res.ID)
	for _, replica := range c.replicasOf(res) {
		replica.Properties["replicationRole"] = "None"
		delete(replica.Properties, "sourceServerResourceId")
	}
	if res.State != serverDisabled && res.State != flexPostgres.making { // it was one
		c.noteDropped(e, res)
	}
	c.setSecret(e.service, res.ID, "")
	c.vacate(e, res)
}

// driveServer puts a server into a state from outside.
func (c *Cloud) driveServer(e *flexEngine, res *Resource, state, code, message string) (bool, error) {
	if res.Type != e.typ {
		return false, nil
	}
	op := c.shelves[e.service].state.Operations[res.Operation]
	if state == "" || state == stateFailed {
		if op == nil {
			res.State = serverDisabled
			c.touch(res)
			return true, nil
		}
		if code == "" {
			code, message = "InternalServerError", "An unexpected error occured while processing the request. Tracking ID: '"+c.World.UUID()+"'" //nolint:misspell // the cloud's own spelling
		}
		op.Status, op.Error = statusFailed, &Error{Status: http.StatusInternalServerError, Code: code, Message: message}
		res.State, res.Operation = serverReady, ""
		if len(c.children(res.ID, e.child("databases"))) == 0 {
			res.State = serverDisabled
		}
		c.touch(res)
		return true, nil
	}
	for _, known := range e.states {
		if strings.EqualFold(known, state) {
			res.State = known
			if op != nil {
				op.Status, res.Operation = statusSucceeded, ""
			}
			c.touch(res)
			c.refreshServer(res)
			return true, nil
		}
	}
	return true, badValue("state", "A server of %s knows %s.", e.title, strings.Join(e.states, ", "))
}
