package azure

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/mysql/armmysqlflexibleservers/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/sim"
)

// The types of flexible servers.
const (
	postgresType = "Microsoft.DBforPostgreSQL/flexibleServers"
	mysqlType    = "Microsoft.DBforMySQL/flexibleServers"
)

// The states of a flexible server, beside those that both engines and the core share.
const (
	serverReady    = "Ready"
	serverStopped  = "Stopped"
	serverDisabled = "Disabled"
	serverDropping = "Dropping"
)

// A flexEngine is what is different between the two kinds of flexible servers.
type flexEngine struct {
	engine  string // as sim.Databases calls it
	title   string // PostgreSQL, as texts have it
	service string
	typ     string // of servers
	suffix  string // of host names and private zones
	port    int
	// versions are the api-versions that are accepted; modelled is that of the SDK, whose types bodies have to fit.
	versions []string
	modelled string
	// making is the state of a server that is being made.
	making string
	// smallest is the longest prefix of a delegated subnet ("Networking overview" of either engine: /28 and /29).
	smallest int
	// configOp and configRetry are how an operation on a parameter is called, and its Retry-After; childRetry that of a database.
	configOp                string
	configRetry, childRetry int
	adminRole               string
	// zoneMember is the member of properties.network with the private zone.
	zoneMember string
	system     []string // databases that are there from the beginning
	states     []string
}

func (e *flexEngine) child(name string) string { return e.typ + "/" + name }

func (e *flexEngine) namespace() string { ns, _, _ := strings.Cut(e.typ, "/"); return ns }

var flexPostgres = &flexEngine{
	engine: "postgres", title: "PostgreSQL", service: "postgresql", typ: postgresType, suffix: "postgres.database.azure.com", port: 5432,
	versions: []string{"2021-06-01", "2022-12-01", "2023-06-01-preview", "2024-08-01", "2025-08-01"}, modelled: "2025-08-01",
	making: "Provisioning", smallest: 28, configOp: "UpdateConfigurationManagementOperation", configRetry: 10, childRetry: 10, adminRole: "azure_pg_admin",
	zoneMember: "privateDnsZoneArmResourceId", system: []string{"azure_maintenance", "azure_sys", "postgres"},
	states: []string{"Disabled", "Dropping", "Inaccessible", "Provisioning", "Ready", "Restarting", "Starting", "Stopped", "Stopping", "Updating"},
}

var flexMySQL = &flexEngine{
	engine: "mysql", title: "MySQL", service: "mysql", typ: mysqlType, suffix: "mysql.database.azure.com", port: 3306,
	versions: []string{"2021-05-01", "2022-01-01", "2023-06-30", "2023-12-30", "2024-12-30"}, modelled: "2024-12-30",
	making: "Updating", smallest: 29, configOp: "UpdateServerParameterManagementOperationV2", configRetry: 15, childRetry: 15,
	zoneMember: "privateDnsZoneResourceId", system: []string{"information_schema", "mysql", "performance_schema", "sys"},
	states: []string{"Disabled", "Dropping", "Ready", "Starting", "Stopped", "Stopping", "Updating"},
}

var flexEngines = []*flexEngine{flexPostgres, flexMySQL}

// flexOf is the engine of a flexible server or of something in one, or nil.
func flexOf(typ string) *flexEngine {
	for _, e := range flexEngines {
		if typ == e.typ || strings.HasPrefix(typ, e.typ+"/") {
			return e
		}
	}
	return nil
}

// serverName: 3 to 63 of lower-case letters, digits and hyphens ("Naming rules and restrictions for Azure resources").
var serverName = &nameRule{regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`),
	"Server name must be at least 3 characters and at most 63 characters. Server name must only contain characters from 'a'-'z', '0'-'9', '-'. Server name must not start or end with '-'."}

// childName is what databases, rules and backups may be called.
var childName = &nameRule{regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`), "The name may contain letters, digits, '_', '-' and '.', up to 128 of them."}

// addFlexibleServers registers Microsoft.DBforPostgreSQL and Microsoft.DBforMySQL.
func (c *Cloud) addFlexibleServers() {
	allow(armpostgresqlflexibleservers.PossibleSKUTierValues())
	allow(append(armpostgresqlflexibleservers.PossibleHighAvailabilityModeValues(), "Disabled")) // as answers have it
	allow(armpostgresqlflexibleservers.PossibleCreateModeValues())
	allow(armpostgresqlflexibleservers.PossibleServerPublicNetworkAccessStateValues())
	allow(armpostgresqlflexibleservers.PossibleStorageAutoGrowValues())
	allow(armpostgresqlflexibleservers.PossibleGeographicallyRedundantBackupValues())
	allow(armpostgresqlflexibleservers.PossibleMicrosoftEntraAuthValues())
	allow(armpostgresqlflexibleservers.PossiblePasswordBasedAuthValues())
	allow(armpostgresqlflexibleservers.PossiblePrincipalTypeValues())
	allow(armmysqlflexibleservers.PossibleServerSKUTierValues())
	allow(armmysqlflexibleservers.PossibleHighAvailabilityModeValues())
	allow(armmysqlflexibleservers.PossibleCreateModeValues())
	allow(armmysqlflexibleservers.PossibleEnableStatusEnumValues())
	for _, e := range flexEngines {
		c.addEngine(e)
		c.addFlexRoutes(e)
	}
}

func (c *Cloud) addEngine(e *flexEngine) {
	s := c.newShelf(e.service)
	s.fresh = func() { c.databases.forget(e.service) }
	s.restored = func() { c.databases.resume(e.service) }
	s.drive = func(res *Resource, state, code, message string) (bool, error) {
		return c.driveServer(e, res, state, code, message)
	}
	s.on["backup"], s.on["doomed"], s.on["released"] = c.backupDue, c.serverDoomed, c.subnetReleased
	for _, q := range []sim.Quota{
		{Code: "vCores", Name: "vCores of flexible servers", Default: 200},
		// Names are free again at once where the documentation knows no hold; some have been held for days all the same
		// (github.com/hashicorp/terraform-provider-azurerm/issues/16622).
		{Code: "NameHoldDays", Name: "Days for which the name of a deleted server is held", Default: 0},
	} {
		q.Cloud, q.Service, q.Unit, q.Adjustable = "azure", e.service, "Count", true
		c.World.DefineQuota(q)
	}
	models := flexModels(e)
	kindFor := func(name string, k *kind) *kind {
		k.typ, k.service, k.versions, k.noEtag, k.says = e.typ, e.service, e.versions, true, c.flexDialect(e)
		if name != "" {
			k.typ = e.child(name)
			k.stateless = true
		}
		k.model, k.patchModel = models[name], models[name+" patch"]
		if k.patchModel == nil {
			k.patchModel = k.model
		}
		k.mergePatch = true
		k.modelled = func(version string) bool { return version == e.modelled }
		k.polling, k.pollBody, k.retryAlways = c.flexPolling, flexStatus, true
		return k
	}
	c.addKind(kindFor("", &kind{title: "Servers", tracked: true, name: serverName,
		put: c.putServer, remove: c.removeServer, settled: c.serverSettled, removed: c.serverRemoved, show: c.showServer, guard: c.serverIdle, missing: c.serverMissing,
		actions: map[string]func(*request, *Resource) (answer, error){"stop": c.stopServer, "start": c.startServer, "restart": c.restartServer, "failover": c.restartServer,
			"updateconfigurations": c.batchConfigurations},
		views: map[string]func(*request, *Resource) (answer, error){"replicas": c.listReplicas}}))
	c.addKind(kindFor("databases", &kind{title: "Databases", name: childName, put: c.putDatabase, remove: c.removeDatabase, settled: c.databaseSettled, removed: c.databaseRemoved,
		guard: c.childIdle, refresh: c.refreshDatabases}))
	c.addKind(kindFor("firewallRules", &kind{title: "FirewallRules", name: childName, put: c.putFirewallRule, remove: c.removeChild("DropServerFirewallRulesManagementOperation"), guard: c.childIdle}))
	c.addKind(kindFor("configurations", &kind{title: "Configurations", put: c.putConfiguration, settled: c.configurationSettled, computed: c.defaultConfiguration, guard: c.configurationIdle,
		remove: func(r *request, _ *Resource) (outcome, error) { return outcome{}, methodNotAllowed(r) }, show: c.showConfiguration}))
	c.addKind(kindFor("administrators", &kind{title: "Administrators", put: c.putAdministrator, remove: c.removeChild("DropActiveDirectoryAdministratorManagementOperation"), guard: c.childIdle}))
	c.addKind(kindFor("backups", &kind{title: "Backups", name: childName, put: c.putBackup, remove: c.removeBackup, settled: c.backupSettled, guard: c.childIdle, noBody: true}))
	if e == flexMySQL {
		c.addKind(kindFor("backupsV2", &kind{title: "LongRunningBackups", name: childName, put: c.putBackup, settled: c.backupSettled, guard: c.childIdle, noBody: true, show: showLongBackup,
			remove: func(r *request, _ *Resource) (outcome, error) { return outcome{}, methodNotAllowed(r) }}))
	}
}

// flexModels are the SDK's types of request bodies, by the last segment of the type.
func flexModels(e *flexEngine) map[string]func() any {
	if e == flexPostgres {
		return map[string]func() any{
			"":               func() any { return &armpostgresqlflexibleservers.Server{} },
			" patch":         func() any { return &armpostgresqlflexibleservers.ServerForPatch{} },
			"databases":      func() any { return &armpostgresqlflexibleservers.Database{} },
			"firewallRules":  func() any { return &armpostgresqlflexibleservers.FirewallRule{} },
			"configurations": func() any { return &armpostgresqlflexibleservers.Configuration{} },
			"administrators": func() any { return &armpostgresqlflexibleservers.AdministratorMicrosoftEntra{} },
		}
	}
	return map[string]func() any{
		"":               func() any { return &armmysqlflexibleservers.Server{} },
		" patch":         func() any { return &armmysqlflexibleservers.ServerForUpdate{} },
		"databases":      func() any { return &armmysqlflexibleservers.Database{} },
		"firewallRules":  func() any { return &armmysqlflexibleservers.FirewallRule{} },
		"configurations": func() any { return &armmysqlflexibleservers.Configuration{} },
		"administrators": func() any { return &armmysqlflexibleservers.AzureADAdministrator{} },
	}
}

// flexPolling is where operations are asked for. Deletes of servers name the location as people do.
func (c *Cloud) flexPolling(op *Operation) (async, result string) {
	place := op.Location
	if flexOf(op.Type).typ == op.Type && op.Verb == "delete" {
		place = url.PathEscape(displayLocation(place))
	}
	base := fmt.Sprintf("/subscriptions/%s/providers/%s/locations/%s/", subscriptionOf(op.Target), flexOf(op.Type).namespace(), place)
	return base + "azureAsyncOperation/" + op.ID, base + "operationResults/" + op.ID
}

// flexStatus completes the status document of an operation.
func flexStatus(_ *request, op *Operation, _ http.Header, body map[string]any) {
	body["name"], body["startTime"] = op.ID, op.Started.UTC().Format("2006-01-02T15:04:05.000Z")
}

// displayLocation is a location as people read it.
func displayLocation(name string) string {
	if l, ok := findLocation(name); ok {
		return l.display
	}
	return name
}

// working is how flexible servers answer every write: with 202, and with the name of the operation.
func (c *Cloud) working(operation string, retryAfter int, takes time.Duration) outcome {
	return outcome{status: http.StatusAccepted, style: asyncLocation, retryAfter: retryAfter, takes: takes,
		body: map[string]any{"operation": operation, "startTime": c.World.Now().UTC().Format("2006-01-02T15:04:05.000Z")}}
}

// flexDialect words what both engines refuse.
func (c *Cloud) flexDialect(e *flexEngine) *dialect {
	d := *armDialect
	d.absent = func(r *request) *Error {
		if lastOf(r.id.typ()) == "firewallRules" {
			return refuse(http.StatusNotFound, "ResourceNotFound", "The specified resource %s was not found.", r.id.name())
		}
		return e.notFound(strings.Join(r.id.Types[1:], "/"), r.id.name())
	}
	d.orphan = func(_ *request, parent armID) *Error { return notFoundARM(parent) }
	d.badName = func(r *request, rule *nameRule) *Error {
		if len(r.id.Types) == 1 {
			return refuse(http.StatusBadRequest, "InvalidServerName", "Server name '%s' is not valid. %s", r.id.name(), rule.text)
		}
		return refuse(http.StatusBadRequest, "InvalidParameterValue", "Invalid value given for parameter %sName. %s", strings.TrimSuffix(r.id.Types[1], "s"), rule.text)
	}
	d.badBody = func(p bodyProblem) *Error {
		return refuse(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid and could not be deserialized: '%s'.", p.text)
	}
	return &d
}

// notFound is the refusal of the provider itself.
func (e *flexEngine) notFound(child, name string) *Error {
	typ := e.typ
	if child != "" {
		typ = e.child(child)
	}
	return refuse(http.StatusNotFound, "ResourceNotFound", "The requested resource of type '%s' with name '%s' was not found.", typ, name)
}

// badValue is how both engines refuse the value of a parameter.
func badValue(parameter, format string, args ...any) *Error {
	return refuse(http.StatusBadRequest, "InvalidParameterValue", "Invalid value given for parameter %s. Specify a valid parameter value. %s", parameter, fmt.Sprintf(format, args...))
}

// serverOf is the flexible server that a child lies in.
func (c *Cloud) serverOf(id string) *Resource { return c.find(parentOf(id)) }

// serverIdle refuses a write while an operation is at work on a server.
func (c *Cloud) serverIdle(_ *request, id string) error {
	if res := c.find(id); res != nil && res.busy() {
		return serverBusy(res.Name)
	}
	return nil
}

func serverBusy(name string) *Error {
	return refuse(http.StatusConflict, "ServerIsBusy", "Cannot complete operation while server '%s' is busy processing another operation. Try again later.", name)
}

// childIdle refuses a write of something in a server while an operation is at work on either, or the server does not run.
func (c *Cloud) childIdle(r *request, id string) error {
	server := c.serverOf(id)
	if err := c.serverIdle(r, server.ID); err != nil {
		return err
	}
	if server.State != serverReady {
		return refuse(http.StatusConflict, "ServerIsNotReady", "The operation can only be performed on Started servers. Server Name = %s, Current Server State = %s", server.Name, server.State)
	}
	if res := c.find(id); res != nil && res.busy() || c.mixing(r, server, id) {
		return serverBusy(server.Name)
	}
	return nil
}

// mixing says whether PostgreSQL would have to write a parameter and something else of a server side by side, which it has not done
// since 2023 (github.com/Azure-Samples/acme-fitness-store/pull/185, github.com/Azure/bicep-registry-modules/issues/4289).
func (c *Cloud) mixing(r *request, server *Resource, id string) bool {
	e := flexOf(server.Type)
	if e != flexPostgres || r.version < "2023" {
		return false
	}
	parameter := strings.Contains(key(id), "/configurations/")
	for _, name := range []string{"configurations", "databases", "firewallRules", "administrators"} {
		if (name == "configurations") == parameter {
			continue
		}
		for _, other := range c.children(server.ID, e.child(name)) {
			if other.busy() {
				return true
			}
		}
	}
	return false
}
