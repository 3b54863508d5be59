package azure

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A serverSetting is a server parameter.
type serverSetting struct {
	name, value string
	kind        string // Boolean, Integer, Enumeration, Set, String
	allowed     string
	static      bool // takes effect with a restart
	fixed       bool // read-only
	text, docs  string
	// upTo is the last major version of PostgreSQL that has it, 0 for all.
	upTo int
}

const pgDocs = "https://www.postgresql.org/docs/current/runtime-config.html"

// postgresSettings is a choice of the parameters of PostgreSQL ("Server parameters in Azure Database for PostgreSQL").
var postgresSettings = []serverSetting{
	{name: "require_secure_transport", value: "on", kind: "Boolean", allowed: "on,off", text: "Whether client connections to the server are required to use some form of secure transport."},
	{name: "ssl_min_protocol_version", value: "TLSv1.2", kind: "Enumeration", allowed: "TLSv1.2,TLSv1.3", text: "Sets the minimum SSL/TLS protocol version to use."},
	{name: "ssl_max_protocol_version", value: "", kind: "Enumeration", allowed: ",TLSv1.2,TLSv1.3", text: "Sets the maximum SSL/TLS protocol version to use."},
	{name: "log_checkpoints", value: "on", kind: "Boolean", allowed: "on,off", text: "Logs each checkpoint."},
	{name: "log_connections", value: "on", kind: "Boolean", allowed: "on,off", text: "Logs each successful connection."},
	{name: "log_disconnections", value: "on", kind: "Boolean", allowed: "on,off", text: "Logs end of a session, including duration."},
	{name: "log_duration", value: "off", kind: "Boolean", allowed: "on,off", text: "Logs the duration of each completed SQL statement."},
	{name: "log_statement", value: "none", kind: "Enumeration", allowed: "none,ddl,mod,all", text: "Sets the type of statements logged."},
	{name: "log_min_duration_statement", value: "-1", kind: "Integer", allowed: "-1-2147483647", text: "Sets the minimum execution time above which statements will be logged."},
	{name: "log_lock_waits", value: "on", kind: "Boolean", allowed: "on,off", text: "Logs long lock waits."},
	{name: "connection_throttle.enable", value: "off", kind: "Boolean", allowed: "on,off", text: "Enables temporary connection throttling per IP for too many login failures.", upTo: 15},
	{name: "logfiles.download_enable", value: "off", kind: "Boolean", allowed: "on,off", text: "Enables or disables server logs functionality."},
	{name: "logfiles.retention_days", value: "3", kind: "Integer", allowed: "1-7", text: "Sets the retention period window in days for server logs."},
	{name: "shared_preload_libraries", value: "pg_cron,pg_stat_statements", kind: "Set", static: true, text: "Lists shared libraries to preload into server.",
		allowed: "age,anon,auto_explain,azure_storage,credcheck,pg_cron,pg_failover_slots,pg_hint_plan,pg_partman_bgw,pg_prewarm,pg_squeeze,pg_stat_statements,pgaudit,pglogical,timescaledb,wal2json"},
	{name: "pgaudit.log", value: "none", kind: "Set", allowed: "none,read,write,function,role,ddl,misc,all", text: "Specifies which classes of statements will be logged by session audit logging.",
		docs: "https://github.com/pgaudit/pgaudit/blob/master/README.md"},
	{name: "pgaudit.log_catalog", value: "on", kind: "Boolean", allowed: "on,off", text: "Specifies that session logging should be enabled in the case where all relations in a statement are in pg_catalog."},
	{name: "azure.extensions", value: "", kind: "Set", allowed: ",citext,hstore,ltree,pg_cron,pg_stat_statements,pg_trgm,pgaudit,pgcrypto,postgis,uuid-ossp,vector", text: "Specifies which extensions are allowed to be created in the server."},
	{name: "max_connections", value: "859", kind: "Integer", allowed: "25-5000", static: true, text: "Sets the maximum number of concurrent connections to the database server."},
	{name: "shared_buffers", value: "262144", kind: "Integer", allowed: "16-1073741823", static: true, text: "Sets the number of shared memory buffers used by the server."},
	{name: "max_worker_processes", value: "8", kind: "Integer", allowed: "0-262143", static: true, text: "Sets the maximum number of background processes that the system can support."},
	{name: "wal_level", value: "replica", kind: "Enumeration", allowed: "replica,logical", static: true, text: "It determines how much information is written to the WAL."},
	{name: "work_mem", value: "4096", kind: "Integer", allowed: "4096-2097151", text: "Sets the amount of memory to be used by internal sort operations and hash tables before writing to temporary disk files."},
	{name: "maintenance_work_mem", value: "99328", kind: "Integer", allowed: "1024-2097151", text: "Sets the maximum memory to be used for maintenance operations."},
	{name: "statement_timeout", value: "0", kind: "Integer", allowed: "0-2147483647", text: "Sets the maximum allowed duration (in milliseconds) of any statement."},
	{name: "idle_in_transaction_session_timeout", value: "0", kind: "Integer", allowed: "0-2147483647", text: "Sets the maximum allowed idle time between queries, when in a transaction."},
	{name: "password_encryption", value: "md5", kind: "Enumeration", allowed: "md5,scram-sha-256", text: "Determines the algorithm to use to encrypt the password."},
	{name: "timezone", value: "UTC", kind: "String", allowed: "[A-Za-z0-9/+_-]+", text: "Sets the time zone for displaying and interpreting time stamps."},
	{name: "data_directory", value: "/datadrive/pg/data", kind: "String", fixed: true, static: true, text: "Sets the server's data directory."},
	{name: "server_version", value: "", kind: "String", fixed: true, text: "Shows the server version."},
}

const mysqlDocs = "https://dev.mysql.com/doc/refman/8.0/en/server-system-variables.html#sysvar_"

// mysqlSettings is a choice of the parameters of MySQL ("Server parameters in Azure Database for MySQL - Flexible Server").
var mysqlSettings = []serverSetting{
	{name: "require_secure_transport", value: "ON", kind: "Enumeration", allowed: "ON,OFF", text: "Whether client connections to the server are required to use some form of secure transport."},
	{name: "tls_version", value: "TLSv1.2", kind: "Set", allowed: "TLSv1.2,TLSv1.3", static: true, text: "Which protocols the server permits for encrypted connections."},
	{name: "audit_log_enabled", value: "OFF", kind: "Enumeration", allowed: "ON,OFF", text: "Allow to audit the log."},
	{name: "audit_log_events", value: "CONNECTION", kind: "Set", allowed: "ADMIN,CONNECTION,CONNECTION_V2,DCL,DDL,DML,DML_NONSELECT,DML_SELECT,GENERAL,TABLE_ACCESS", text: "Select the events to be audited."},
	{name: "audit_log_exclude_users", value: "azure_superuser", kind: "String", allowed: "[a-zA-Z0-9_,.@-]*", text: "The users whose events are not audited."},
	{name: "error_server_log_file", value: "OFF", kind: "Enumeration", allowed: "ON,OFF", text: "Allow to write the error log to a file."},
	{name: "local_infile", value: "ON", kind: "Enumeration", allowed: "ON,OFF", text: "This variable controls server-side LOCAL capability for LOAD DATA statements."},
	{name: "aad_auth_only", value: "OFF", kind: "Enumeration", allowed: "ON,OFF", text: "Whether the server accepts Microsoft Entra authentication alone."},
	{name: "max_connections", value: "1365", kind: "Integer", allowed: "10-2731", text: "The maximum permitted number of simultaneous client connections."},
	{name: "slow_query_log", value: "OFF", kind: "Enumeration", allowed: "ON,OFF", text: "Whether the slow query log is enabled."},
	{name: "long_query_time", value: "10", kind: "Numeric", allowed: "0-31536000", text: "If a query takes longer than this many seconds, the server increments the Slow_queries status variable."},
	{name: "log_output", value: "NONE", kind: "Set", allowed: "FILE,NONE", text: "Where the slow query log goes."},
	{name: "wait_timeout", value: "28800", kind: "Integer", allowed: "60-31536000", text: "The number of seconds the server waits for activity on a noninteractive connection before closing it."},
	{name: "event_scheduler", value: "OFF", kind: "Enumeration", allowed: "ON,OFF", text: "Indicates the status of the Event Scheduler."},
	{name: "log_bin_trust_function_creators", value: "OFF", kind: "Enumeration", allowed: "ON,OFF", text: "It controls whether stored function creators can be trusted."},
	{name: "character_set_server", value: "utf8mb4", kind: "Enumeration", allowed: "ASCII,LATIN1,UTF8MB3,UTF8MB4,BINARY", text: "Use charset_name as the default server character set."},
	{name: "time_zone", value: "SYSTEM", kind: "String", allowed: "[A-Za-z0-9/+:_-]+", text: "The server time zone."},
	{name: "innodb_buffer_pool_size", value: "8589934592", kind: "Integer", allowed: "134217728-12884901888", text: "The size in bytes of the buffer pool."},
	{name: "binlog_expire_logs_seconds", value: "0", kind: "Integer", allowed: "0-4294967295", text: "The binary log expiration period in seconds."},
	{name: "innodb_buffer_pool_instances", value: "8", kind: "Integer", allowed: "1-64", static: true, text: "The number of regions that the InnoDB buffer pool is divided into."},
	{name: "performance_schema", value: "OFF", kind: "Enumeration", allowed: "ON,OFF", static: true, text: "Indicates whether the Performance Schema is enabled."},
	{name: "lower_case_table_names", value: "1", kind: "Enumeration", allowed: "1,2", fixed: true, static: true, text: "If set to 1, table names are stored in lowercase on disk and comparisons are not case sensitive."},
	{name: "version", value: "", kind: "String", fixed: true, text: "The version number for the server."},
}

// settings are the parameters that a server has.
func (e *flexEngine) settings(server *Resource) []serverSetting {
	all := mysqlSettings
	if e == flexPostgres {
		all = postgresSettings
	}
	var out []serverSetting
	version, _ := strconv.Atoi(server.Properties.str("version"))
	for _, s := range all {
		if s.upTo == 0 || version <= s.upTo {
			out = append(out, s)
		}
	}
	return out
}

func (e *flexEngine) setting(server *Resource, name string) (serverSetting, bool) {
	all := e.settings(server)
	i := slices.IndexFunc(all, func(s serverSetting) bool { return strings.EqualFold(s.name, name) })
	if i < 0 {
		return serverSetting{}, false
	}
	return all[i], true
}

// settingOf is the value of a parameter that holds now.
func (c *Cloud) settingOf(e *flexEngine, server *Resource, name string) string {
	if res := c.find(server.ID + "/configurations/" + name); res != nil {
		return res.Properties.str("currentValue")
	}
	s, _ := e.setting(server, name)
	return s.value
}

// fits says whether a value is one that a parameter can have.
func (s serverSetting) fits(value string) bool {
	allowed := strings.Split(s.allowed, ",")
	has := func(v string) bool {
		return slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, strings.TrimSpace(v)) })
	}
	switch s.kind {
	case "Integer", "Numeric":
		n, err := strconv.ParseFloat(value, 64)
		at := strings.LastIndex(s.allowed, "-")
		low, _ := strconv.ParseFloat(s.allowed[:at], 64)
		high, _ := strconv.ParseFloat(s.allowed[at+1:], 64)
		return err == nil && n >= low && n <= high
	case "Set":
		return !slices.ContainsFunc(strings.Split(value, ","), func(v string) bool { return !has(v) })
	case "String":
		return true
	}
	return has(value)
}

// putConfiguration sets a parameter. A static one is pending until the server is restarted.
func (c *Cloud) putConfiguration(_ *request, now, old *Resource) (outcome, error) {
	e, server := flexOf(now.Type), c.serverOf(now.ID)
	value, err := c.newValue(e, server, now.Name, now.Properties.str("value"), now.Properties.str("source"))
	if err != nil {
		return outcome{}, err
	}
	s, _ := e.setting(server, now.Name)
	now.Name = s.name
	now.Properties = doc{"value": value, "source": "user-override", "currentValue": s.value}
	if old != nil {
		now.Properties["currentValue"] = old.Properties.str("currentValue")
	}
	return c.working(e.configOp, e.configRetry, c.pace(6*time.Second, 20*time.Second, now.ID)), nil
}

// newValue judges a new value of a parameter; source system-default asks for the one it has by itself.
func (c *Cloud) newValue(e *flexEngine, server *Resource, name, value, source string) (string, error) {
	s, ok := e.setting(server, name)
	if !ok {
		return "", e.notFound("configurations", name)
	}
	if source == "system-default" {
		value = s.value
	}
	switch {
	case s.fixed:
		return "", refuse(http.StatusBadRequest, "ReadOnlyParameter", "The parameter '%s' is read-only and cannot be changed.", s.name)
	case !s.fits(value):
		return "", refuse(http.StatusBadRequest, "InvalidParameterValue", "The value '%s' is not allowed for the parameter '%s'. Allowed values are [%s].", value, s.name, s.allowed)
	}
	return value, nil
}

// configurationSettled lets a dynamic parameter take effect.
func (c *Cloud) configurationSettled(_ *Operation, res *Resource) {
	server := c.serverOf(res.ID)
	if server == nil {
		return
	}
	if s, ok := flexOf(res.Type).setting(server, res.Name); ok && !s.static {
		res.Properties["currentValue"] = res.Properties.str("value")
	}
	c.refreshServer(server)
}

// applyStatic lets all parameters take effect, as a restart does.
func (c *Cloud) applyStatic(e *flexEngine, server *Resource) {
	for _, res := range c.children(server.ID, e.child("configurations")) {
		res.Properties["currentValue"] = res.Properties.str("value")
	}
}

// configurationIdle lets one parameter be written at a time, and none for a moment after the server was made or changed
// (github.com/Azure/azure-postgresql/issues/134, github.com/hashicorp/terraform-provider-azurerm/issues/28298).
func (c *Cloud) configurationIdle(r *request, id string) error {
	if err := c.childIdle(r, id); err != nil {
		return err
	}
	server := c.serverOf(id)
	if r.version >= "2023" && c.World.Now().Sub(server.Changed) < 5*time.Second {
		return serverBusy(server.Name)
	}
	for _, other := range c.children(server.ID, flexOf(server.Type).child("configurations")) {
		if other.busy() {
			return serverBusy(server.Name)
		}
	}
	return nil
}

// defaultConfiguration is a parameter that nobody has set.
func (c *Cloud) defaultConfiguration(id string) *Resource {
	server := c.serverOf(id)
	if server == nil {
		return nil
	}
	e := flexOf(server.Type)
	s, ok := e.setting(server, lastOf(id))
	if !ok {
		return nil
	}
	return &Resource{ID: server.ID + "/configurations/" + s.name, Type: e.child("configurations"), Name: s.name, Top: doc{}, Created: server.Created, Changed: server.Created,
		Properties: doc{"value": s.value, "currentValue": s.value, "source": "system-default"}}
}

// showConfiguration completes a parameter; MySQL writes its flags as text.
func (c *Cloud) showConfiguration(_ *request, res *Resource, body doc) {
	e, server := flexOf(res.Type), c.serverOf(res.ID)
	s, _ := e.setting(server, res.Name)
	p := body.sub("properties")
	p["description"], p["defaultValue"], p["dataType"], p["allowedValues"] = s.text, s.value, s.kind, s.allowed
	p["documentationLink"] = s.docs
	pending := p.str("value") != p.str("currentValue") && s.static
	flags := map[string]bool{"isDynamicConfig": !s.static, "isReadOnly": s.fixed, "isConfigPendingRestart": pending}
	for name, on := range flags {
		p[name] = on
		if e == flexMySQL {
			p[name] = strings.ToUpper(fmt.Sprint(on)[:1]) + fmt.Sprint(on)[1:]
		}
	}
	if e == flexMySQL {
		p["documentationLink"] = mysqlDocs + s.name
		return
	}
	if s.docs == "" {
		p["documentationLink"] = pgDocs
	}
	delete(p, "currentValue")
}

// listConfigurations lists all parameters, set or not.
func (c *Cloud) listConfigurations(e *flexEngine, r *request) (answer, error) {
	server := c.find(groupID(r.subscription, r.vars["group"]) + "/providers/" + e.typ + "/" + r.vars["server"])
	if server == nil {
		id, _ := parseID(strings.TrimSuffix(r.path, "/configurations"))
		return answer{}, notFoundARM(id)
	}
	var all []any
	for _, s := range e.settings(server) {
		res := c.find(server.ID + "/configurations/" + s.name)
		if res == nil {
			res = c.defaultConfiguration(server.ID + "/configurations/" + s.name)
		}
		all = append(all, c.render(r, res))
	}
	return r.page(all, "$skiptoken")
}

// batchConfigurations sets many parameters of MySQL at once ("Configurations - Batch Update").
func (c *Cloud) batchConfigurations(r *request, server *Resource) (answer, error) {
	e := flexOf(server.Type)
	if e != flexMySQL {
		return answer{}, c.unknown(r)
	}
	body, err := r.input(c.flexDialect(e), nil)
	if err != nil {
		return answer{}, err
	}
	if err := c.configurationIdle(r, server.ID+"/configurations/all"); err != nil {
		return answer{}, err
	}
	now := c.World.Now()
	var changed []*Resource
	for _, item := range body.docs("value") {
		value, err := c.newValue(e, server, item.str("name"), item.str("properties.value"), item.str("properties.source"))
		if err != nil {
			return answer{}, err
		}
		s, _ := e.setting(server, item.str("name"))
		current := c.settingOf(e, server, s.name)
		if !s.static {
			current = value
		}
		changed = append(changed, &Resource{ID: server.ID + "/configurations/" + s.name, Type: e.child("configurations"), Name: s.name, Top: doc{}, Created: now, Changed: now,
			Properties: doc{"value": value, "currentValue": current, "source": "user-override"}})
	}
	for _, res := range changed {
		c.keep(res)
	}
	r.Make(server.ID)
	out := c.working("BatchUpdateServerParametersManagementOperation", e.configRetry, c.pace(10*time.Second, 30*time.Second, "batch "+server.ID))
	h := c.begin(r, server, "configure", out)
	server.State = stateUpdating
	return answer{status: http.StatusAccepted, header: h, body: out.body}, nil
}
