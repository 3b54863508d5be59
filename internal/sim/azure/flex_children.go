package azure

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// charset is what a database has for a given character set and without one.
func (e *flexEngine) charset(given string) doc {
	if e == flexPostgres {
		return doc{"charset": "UTF8", "collation": "en_US.utf8"}
	}
	if given == "" || strings.EqualFold(given, "utf8mb4") {
		return doc{"charset": "utf8mb4", "collation": "utf8mb4_0900_ai_ci"}
	}
	return doc{"charset": strings.ToLower(given), "collation": strings.ToLower(given) + "_general_ci"}
}

// putDatabase makes a database over the control plane.
func (c *Cloud) putDatabase(_ *request, now, old *Resource) (outcome, error) {
	e := flexOf(now.Type)
	server := c.serverOf(now.ID)
	switch {
	case slices.ContainsFunc(e.reservedDatabases(), func(s string) bool { return strings.EqualFold(s, now.Name) }):
		return outcome{}, refuse(http.StatusBadRequest, "InvalidDatabaseName", "The database name '%s' is reserved by the system.", now.Name)
	case strings.HasSuffix(server.Properties.str("replicationRole"), "Replica"):
		return outcome{}, readOnlyRefusal(server)
	}
	defaults := e.charset(now.Properties.str("charset"))
	if collation := now.Properties.str("collation"); collation != "" {
		defaults["collation"] = collation
	}
	if old != nil && !sameJSON(old.Properties, defaults) {
		return outcome{}, refuse(http.StatusConflict, "DatabaseAlreadyExists", "The database '%s' exists already with another character set or collation.", now.Name)
	}
	now.Properties = defaults
	return c.working("UpsertServerDatabaseManagementOperation", e.childRetry, c.pace(5*time.Second, 20*time.Second, now.ID)), nil
}

func (e *flexEngine) reservedDatabases() []string {
	if e == flexPostgres {
		return append([]string{"template0", "template1"}, e.system...)
	}
	return e.system
}

// databaseSettled makes the database on the server behind.
func (c *Cloud) databaseSettled(_ *Operation, res *Resource) {
	if server := c.serverOf(res.ID); server != nil && c.opt.Databases != nil {
		c.opt.Databases.CreateDatabase(server.ID, res.Name)
		c.databases.changed(server.ID)
	}
}

func (c *Cloud) removeDatabase(_ *request, res *Resource) (outcome, error) {
	e := flexOf(res.Type)
	if slices.Contains(e.system, res.Name) {
		return outcome{}, refuse(http.StatusBadRequest, "SystemDatabaseCannotBeDropped", "The database '%s' is a system database and cannot be dropped.", res.Name)
	}
	return c.working("DropServerDatabaseManagementOperation", e.childRetry, c.pace(5*time.Second, 20*time.Second, "delete "+res.ID)), nil
}

func (c *Cloud) databaseRemoved(res *Resource) {
	server := c.serverOf(res.ID)
	if server == nil || server.State == serverDropping || c.opt.Databases == nil || slices.Contains(flexOf(res.Type).system, res.Name) {
		return
	}
	c.opt.Databases.DropDatabase(server.ID, res.Name)
	c.databases.changed(server.ID)
}

// refreshDatabases takes over what SQL has made and dropped: the control plane lists what is in the server.
func (c *Cloud) refreshDatabases(r *request) {
	parent, nested := r.id.parent()
	server := c.find(parent.String())
	if !nested || server == nil || c.opt.Databases == nil || server.State != serverReady || !c.databases.caughtUp(server.ID) {
		return
	}
	names, _, ok := c.opt.Databases.Names(server.ID)
	if ready, err := c.opt.Databases.Ready(server.ID); !ok || !ready || err != nil {
		return
	}
	e := flexOf(server.Type)
	for _, name := range names {
		id := server.ID + "/databases/" + name
		if c.find(id) == nil && !slices.Contains(e.reservedDatabases(), name) {
			c.keep(&Resource{ID: id, Type: e.child("databases"), Name: name, Top: doc{}, Properties: e.charset(""), Created: c.World.Now(), Changed: c.World.Now()})
		}
	}
	for _, db := range c.children(server.ID, e.child("databases")) {
		if !db.busy() && !db.Default && !slices.Contains(names, db.Name) {
			delete(c.shelves[e.service].state.Resources, key(db.ID)) // it is gone there already
		}
	}
}

// putFirewallRule lets a range of addresses in. A server in a network has no rules ("Firewall rules").
func (c *Cloud) putFirewallRule(_ *request, now, _ *Resource) (outcome, error) {
	server := c.serverOf(now.ID)
	first, err1 := netip.ParseAddr(now.Properties.str("startIpAddress"))
	last, err2 := netip.ParseAddr(now.Properties.str("endIpAddress"))
	switch {
	case server.Properties.str("network.delegatedSubnetResourceId") != "":
		return outcome{}, refuse(http.StatusBadRequest, "FirewallRuleNotSupportedForPrivateAccess", "Firewall rule operations cannot be requested for a private access enabled server.")
	case err1 != nil || !first.Is4():
		return outcome{}, badValue("startIpAddress", "'%s' is no IPv4 address.", now.Properties.str("startIpAddress"))
	case err2 != nil || !last.Is4() || last.Less(first):
		return outcome{}, badValue("endIpAddress", "'%s' is no IPv4 address at or after the first.", now.Properties.str("endIpAddress"))
	}
	return c.working("UpsertServerFirewallRulesManagementOperation", 60, c.pace(10*time.Second, 40*time.Second, now.ID)), nil
}

// removeChild deletes what nothing depends on.
func (c *Cloud) removeChild(operation string) func(*request, *Resource) (outcome, error) {
	return func(_ *request, res *Resource) (outcome, error) {
		return c.working(operation, 60, c.pace(8*time.Second, 30*time.Second, "delete "+res.ID)), nil
	}
}

// putAdministrator names an Entra administrator: any number of them at PostgreSQL, by object ID, if the server takes Entra at all;
// one at MySQL, called ActiveDirectory, who needs an identity of the server.
func (c *Cloud) putAdministrator(_ *request, now, _ *Resource) (outcome, error) {
	server, p := c.serverOf(now.ID), now.Properties
	if flexOf(now.Type) == flexPostgres {
		switch {
		case server.Properties.str("authConfig.activeDirectoryAuth") != "Enabled":
			return outcome{}, refuse(http.StatusBadRequest, "AadAuthIsNotEnabled", "Microsoft Entra authentication is not enabled on server '%s'.", server.Name)
		case !guidPattern.MatchString(now.Name):
			return outcome{}, badValue("objectId", "'%s' is no object ID.", now.Name)
		case p.str("principalName") == "":
			return outcome{}, missingArgument("principalName")
		case p.str("principalType") == "":
			return outcome{}, missingArgument("principalType")
		}
		p["objectId"] = now.Name
		p.def("tenantId", c.opt.Tenant)
	} else {
		switch {
		case now.Name != "ActiveDirectory":
			return outcome{}, badValue("administratorName", "The administrator is called ActiveDirectory.")
		case c.find(p.str("identityResourceId")) == nil:
			return outcome{}, badValue("identityResourceId", "The identity '%s' was not found.", p.str("identityResourceId"))
		case !attachedTo(server, p.str("identityResourceId")):
			return outcome{}, refuse(http.StatusBadRequest, "IdentityNotAttachedToServer", "The identity '%s' is not assigned to server '%s'.", p.str("identityResourceId"), server.Name)
		}
		p["identityResourceId"] = c.spelled(p.str("identityResourceId"))
	}
	return c.working("UpsertActiveDirectoryAdministratorManagementOperation", 60, c.pace(15*time.Second, 40*time.Second, now.ID)), nil
}

func attachedTo(server *Resource, identity string) bool {
	for id := range server.Top.sub("identity.userAssignedIdentities") {
		if strings.EqualFold(id, identity) {
			return true
		}
	}
	return false
}

var automaticName = regexp.MustCompile(`^backup_\d+$`)

// putBackup takes a backup on demand ("Backup and restore": up to seven of PostgreSQL, fifty of MySQL).
func (c *Cloud) putBackup(_ *request, now, old *Resource) (outcome, error) {
	e, server := flexOf(now.Type), c.serverOf(now.ID)
	if old != nil {
		return outcome{}, refuse(http.StatusConflict, "BackupAlreadyExists", "The backup '%s' of server '%s' exists already.", now.Name, server.Name)
	}
	most, taken := 7, 0
	if e == flexMySQL {
		most = 50
	}
	for _, b := range c.children(server.ID, now.Type) {
		if !automaticName.MatchString(b.Name) {
			taken++
			if b.busy() {
				return outcome{}, serverBusy(server.Name)
			}
		}
	}
	switch {
	case taken >= most:
		return outcome{}, refuse(http.StatusBadRequest, "MaxOnDemandBackupLimitReached", "Server '%s' has %d backups on demand, the most there can be.", server.Name, most)
	case automaticName.MatchString(now.Name):
		return outcome{}, badValue("backupName", "Names of automatic backups cannot be used.")
	case strings.HasSuffix(server.Properties.str("replicationRole"), "Replica"):
		return outcome{}, readOnlyRefusal(server)
	}
	now.Properties = doc{"backupType": "Customer On-Demand", "source": "Full"}
	if e == flexMySQL {
		now.Properties["backupType"] = "FULL"
	}
	if now.Type == mysqlType+"/backups" { // it has no operation; backupsV2 has
		now.Properties["completedTime"] = stamp(c.World.Now())
		return outcome{status: http.StatusOK}, nil
	}
	return c.working("CreateOnDemandBackupManagementOperation", e.childRetry, c.pace(60*time.Second, 180*time.Second, now.ID)), nil
}

func (c *Cloud) backupSettled(_ *Operation, res *Resource) {
	res.Properties["completedTime"] = stamp(c.World.Now())
}

func showLongBackup(_ *request, res *Resource, body doc) {
	p := body.sub("properties")
	p["backupNameV2"], p["provisioningState"] = res.Name, stateSucceeded
	if res.busy() {
		p["provisioningState"] = stateCreating
	}
}

func (c *Cloud) removeBackup(r *request, res *Resource) (outcome, error) {
	if flexOf(res.Type) == flexMySQL {
		return outcome{}, methodNotAllowed(r)
	}
	if automaticName.MatchString(res.Name) {
		return outcome{}, refuse(http.StatusBadRequest, "AutomaticBackupCannotBeDeleted", "The backup '%s' is automatic and cannot be deleted.", res.Name)
	}
	return c.working("DeleteOnDemandBackupManagementOperation", 15, c.pace(10*time.Second, 40*time.Second, "delete "+res.ID)), nil
}

// backupDue takes the backup of a day, and lets go of those that are older than they are kept.
func (c *Cloud) backupDue(id string) {
	res := c.find(id)
	if res == nil || flexOf(res.Type) == nil {
		return
	}
	e, now := flexOf(res.Type), c.World.Now()
	c.after(24*time.Hour, e.service, "backup", id)
	keep := time.Duration(res.Properties.num("backup.backupRetentionDays")) * 24 * time.Hour
	for _, b := range c.children(res.ID, e.child("backups")) {
		if automaticName.MatchString(b.Name) && now.Sub(b.Created) > keep {
			c.drop(b)
		}
	}
	if res.State != serverReady {
		return
	}
	name := "backup_" + strconv.FormatInt(now.UnixNano()/100, 10)
	kind := "Full"
	if e == flexMySQL {
		kind = "FULL"
	}
	c.keep(&Resource{ID: res.ID + "/backups/" + name, Type: e.child("backups"), Name: name, Top: doc{}, Created: now, Changed: now, Default: true,
		Properties: doc{"backupType": kind, "source": "Automatic", "completedTime": stamp(now)}})
}
