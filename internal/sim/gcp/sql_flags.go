package gcp

import (
	"slices"
	"strconv"
	"strings"
)

// A sqlFlag is a database flag that can be set ("Configure database flags").
type sqlFlag struct {
	name, kind string // kind: BOOLEAN, INTEGER, FLOAT, STRING, REPEATED_STRING, NONE
	min, max   int64
	values     []string // allowed ones
	restart    bool
}

// maxInt is where flags without a limit end.
const maxInt = 1<<31 - 1

var logLevels = []string{"debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log", "fatal", "panic"}

// postgresFlags and mysqlFlags are the flags of each engine that are in use: those that benchmarks and scanners ask for, and those that people tune.
var postgresFlags = []sqlFlag{
	{name: "cloudsql.enable_auto_explain", kind: "BOOLEAN", restart: true},
	{name: "cloudsql.enable_pg_cron", kind: "BOOLEAN", restart: true},
	{name: "cloudsql.enable_pgaudit", kind: "BOOLEAN", restart: true},
	{name: "cloudsql.iam_authentication", kind: "BOOLEAN"},
	{name: "cloudsql.logical_decoding", kind: "BOOLEAN", restart: true},
	{name: "autovacuum", kind: "BOOLEAN"},
	{name: "autovacuum_max_workers", kind: "INTEGER", min: 1, max: 262143, restart: true},
	{name: "default_transaction_isolation", kind: "STRING", values: []string{"serializable", "repeatable read", "read committed", "read uncommitted"}},
	{name: "effective_cache_size", kind: "INTEGER", min: 1, max: maxInt},
	{name: "idle_in_transaction_session_timeout", kind: "INTEGER", max: maxInt},
	{name: "log_autovacuum_min_duration", kind: "INTEGER", min: -1, max: maxInt},
	{name: "log_checkpoints", kind: "BOOLEAN"},
	{name: "log_connections", kind: "BOOLEAN"},
	{name: "log_disconnections", kind: "BOOLEAN"},
	{name: "log_duration", kind: "BOOLEAN"},
	{name: "log_error_verbosity", kind: "STRING", values: []string{"terse", "default", "verbose"}},
	{name: "log_executor_stats", kind: "BOOLEAN"},
	{name: "log_hostname", kind: "BOOLEAN"},
	{name: "log_lock_waits", kind: "BOOLEAN"},
	{name: "log_min_duration_statement", kind: "INTEGER", min: -1, max: maxInt},
	{name: "log_min_error_statement", kind: "STRING", values: logLevels},
	{name: "log_min_messages", kind: "STRING", values: logLevels},
	{name: "log_parser_stats", kind: "BOOLEAN"},
	{name: "log_planner_stats", kind: "BOOLEAN"},
	{name: "log_statement", kind: "STRING", values: []string{"none", "ddl", "mod", "all"}},
	{name: "log_statement_stats", kind: "BOOLEAN"},
	{name: "log_temp_files", kind: "INTEGER", min: -1, max: maxInt},
	{name: "maintenance_work_mem", kind: "INTEGER", min: 1024, max: maxInt},
	{name: "max_connections", kind: "INTEGER", min: 14, max: 262143, restart: true},
	{name: "max_locks_per_transaction", kind: "INTEGER", min: 10, max: maxInt, restart: true},
	{name: "max_parallel_workers", kind: "INTEGER", max: 1024},
	{name: "max_replication_slots", kind: "INTEGER", min: 10, max: 262143, restart: true},
	{name: "max_wal_senders", kind: "INTEGER", min: 10, max: 262143, restart: true},
	{name: "max_worker_processes", kind: "INTEGER", min: 8, max: 262143, restart: true},
	{name: "password_encryption", kind: "STRING", values: []string{"md5", "scram-sha-256"}},
	{name: "pg_stat_statements.track", kind: "STRING", values: []string{"top", "all", "none"}},
	{name: "pgaudit.log", kind: "REPEATED_STRING"},
	{name: "random_page_cost", kind: "FLOAT", max: maxInt},
	{name: "shared_buffers", kind: "INTEGER", min: 16, max: maxInt, restart: true},
	{name: "statement_timeout", kind: "INTEGER", max: maxInt},
	{name: "timezone", kind: "STRING"},
	{name: "track_activity_query_size", kind: "INTEGER", min: 100, max: 102400, restart: true},
	{name: "wal_compression", kind: "BOOLEAN"},
	{name: "work_mem", kind: "INTEGER", min: 64, max: maxInt},
}

var mysqlFlags = []sqlFlag{
	{name: "character_set_server", kind: "STRING", restart: true},
	{name: "cloudsql_iam_authentication", kind: "BOOLEAN"},
	{name: "cloudsql_mysql_audit", kind: "STRING", values: []string{"OFF", "ON", "FORCE", "FORCE_PLUS_PERMANENT"}, restart: true},
	{name: "collation_server", kind: "STRING"},
	{name: "default_time_zone", kind: "STRING", restart: true},
	{name: "event_scheduler", kind: "BOOLEAN"},
	{name: "general_log", kind: "BOOLEAN"},
	{name: "innodb_buffer_pool_size", kind: "INTEGER", min: 1 << 27, max: 1 << 40},
	{name: "innodb_file_per_table", kind: "BOOLEAN"},
	{name: "innodb_lock_wait_timeout", kind: "INTEGER", min: 1, max: 1 << 30},
	{name: "interactive_timeout", kind: "INTEGER", min: 1, max: 31536000},
	{name: "local_infile", kind: "BOOLEAN"},
	{name: "log_bin_trust_function_creators", kind: "BOOLEAN"},
	{name: "log_output", kind: "REPEATED_STRING", values: []string{"TABLE", "NONE", "FILE"}},
	{name: "log_queries_not_using_indexes", kind: "BOOLEAN"},
	{name: "long_query_time", kind: "FLOAT", max: 30000000},
	{name: "lower_case_table_names", kind: "INTEGER", max: 1, restart: true},
	{name: "max_allowed_packet", kind: "INTEGER", min: 16384, max: 1 << 30},
	{name: "max_connections", kind: "INTEGER", min: 10, max: 100000},
	{name: "performance_schema", kind: "BOOLEAN", restart: true},
	{name: "skip_show_database", kind: "BOOLEAN", restart: true},
	{name: "slow_query_log", kind: "BOOLEAN"},
	{name: "sql_mode", kind: "REPEATED_STRING"},
	{name: "transaction_isolation", kind: "STRING", values: []string{"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"}, restart: true},
	{name: "wait_timeout", kind: "INTEGER", min: 1, max: 31536000},
}

// flagsOf are the flags of an instance's engine.
func (in *sqlInstance) flagsOf() []sqlFlag {
	if in.postgres() {
		return postgresFlags
	}
	return mysqlFlags
}

func flagNamed(flags []sqlFlag, name string) *sqlFlag {
	for i := range flags {
		if flags[i].name == name {
			return &flags[i]
		}
	}
	return nil
}

// allows says whether a flag can have a value.
func (f *sqlFlag) allows(value string) bool {
	switch f.kind {
	case "BOOLEAN":
		return value == "on" || value == "off"
	case "INTEGER":
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && n >= f.min && n <= f.max
	case "FLOAT":
		n, err := strconv.ParseFloat(value, 64)
		return err == nil && n >= float64(f.min) && n <= float64(f.max)
	case "REPEATED_STRING":
		for part := range strings.SplitSeq(value, ",") {
			if len(f.values) > 0 && !slices.Contains(f.values, strings.TrimSpace(part)) {
				return false
			}
		}
		return true
	}
	return len(f.values) == 0 || slices.Contains(f.values, value)
}

// checkFlags refuses flags that the engine does not have, that are there twice, or whose value is none of theirs.
func checkFlags(in, _ *sqlInstance) error {
	seen := map[string]bool{}
	for _, d := range docs(in.settings(), "databaseFlags") {
		name, value := str(d, "name"), str(d, "value")
		f := flagNamed(in.flagsOf(), name)
		switch {
		case f == nil:
			return sqlInvalid("Invalid flag name: %s is not a flag of %s.", name, in.version())
		case seen[name]:
			return sqlInvalid("Flag %s is set twice.", name)
		case !f.allows(value):
			return sqlInvalid("Invalid flag value: %s is not allowed for flag %s.", value, name)
		}
		seen[name] = true
	}
	return nil
}

// flagOn says whether a boolean flag is on.
func (in *sqlInstance) flagOn(name string) bool {
	return slices.ContainsFunc(docs(in.settings(), "databaseFlags"), func(d Doc) bool { return str(d, "name") == name && str(d, "value") == "on" })
}

// needsRestart says whether a change of flags restarts the server.
func needsRestart(old, next *sqlInstance) bool {
	value := func(in *sqlInstance, name string) string {
		for _, d := range docs(in.settings(), "databaseFlags") {
			if str(d, "name") == name {
				return str(d, "value")
			}
		}
		return ""
	}
	return slices.ContainsFunc(next.flagsOf(), func(f sqlFlag) bool { return f.restart && value(old, f.name) != value(next, f.name) })
}

// listFlags lists the flags, with the versions that each is for; or those of one version.
func (s *cloudSQL) listFlags(r *request) (any, error) {
	want := r.Query.Get("databaseVersion")
	if want != "" {
		if _, ok := sqlVersion(want); !ok {
			return nil, sqlInvalid("Database version %s is not supported.", want)
		}
	}
	var items []any
	for _, engine := range []struct {
		prefix string
		flags  []sqlFlag
	}{{"MYSQL_", mysqlFlags}, {"POSTGRES_", postgresFlags}} {
		if want != "" && !strings.HasPrefix(want, engine.prefix) {
			continue
		}
		var versions []any
		for _, v := range sqlVersions {
			if strings.HasPrefix(v.version, engine.prefix) {
				versions = append(versions, v.version)
			}
		}
		for _, f := range engine.flags {
			items = append(items, f.shown(versions))
		}
	}
	return Doc{"kind": "sql#flagsList", "items": items}, nil
}

func (f sqlFlag) shown(versions []any) Doc {
	d := Doc{"kind": "sql#flag", "name": f.name, "type": f.kind, "appliesTo": versions, "requiresRestart": f.restart, "inBeta": false, "flagScope": "SQL_FLAG_SCOPE_DATABASE"}
	if f.kind == "INTEGER" {
		d["minValue"], d["maxValue"] = strconv.FormatInt(f.min, 10), strconv.FormatInt(f.max, 10)
	}
	if len(f.values) > 0 {
		d["allowedStringValues"] = anys(f.values)
	}
	return d
}
