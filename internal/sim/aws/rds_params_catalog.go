package aws

import "strings"

// dbParameter is a parameter of an engine ("Parameters for RDS for PostgreSQL", "Parameters for MySQL").
type dbParameter struct {
	Name, Default, Allowed string
	Type                   string // boolean, string, integer, list, float
	Static, Fixed          bool   // fixed: not modifiable
}

// parseParameters reads a table: name, type, d (dynamic), s (static) or f (fixed), allowed values, default.
func parseParameters(table string) []dbParameter {
	var out []dbParameter
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		f := strings.Split(line, "|")
		out = append(out, dbParameter{Name: f[0], Type: f[1], Static: f[2] == "s" || f[2] == "f", Fixed: f[2] == "f", Allowed: f[3], Default: f[4]})
	}
	return out
}

var postgresParameters = parseParameters(`
archive_timeout|integer|f|0-2147483647|300
auto_explain.log_min_duration|integer|d|-1-2147483647|
autovacuum|boolean|d|0,1|1
autovacuum_max_workers|integer|s|1-262143|GREATEST({DBInstanceClassMemory/64371566592},3)
autovacuum_naptime|integer|d|1-2147483|15
autovacuum_vacuum_scale_factor|float|d|0-100|0.1
checkpoint_timeout|integer|d|30-86400|300
client_encoding|string|d||UTF8
cron.database_name|string|s||
deadlock_timeout|integer|d|1-2147483647|
default_transaction_isolation|string|d|serializable,repeatable read,read committed,read uncommitted|
effective_cache_size|integer|d|1-2147483647|{DBInstanceClassMemory/16384}
hot_standby_feedback|boolean|d|0,1|
huge_pages|string|s|on,off,try|on
idle_in_transaction_session_timeout|integer|d|0-2147483647|86400000
listen_addresses|string|f||*
lock_timeout|integer|d|0-2147483647|
log_autovacuum_min_duration|integer|d|-1-2147483647|10000
log_connections|boolean|d|0,1|
log_disconnections|boolean|d|0,1|
log_lock_waits|boolean|d|0,1|
log_min_duration_statement|integer|d|-1-2147483647|
log_min_error_statement|string|d|debug5,debug4,debug3,debug2,debug1,info,notice,warning,error,log,fatal,panic|
log_rotation_age|integer|d|1-1440|60
log_statement|string|d|none,ddl,mod,all|
log_temp_files|integer|d|-1-2147483647|
maintenance_work_mem|integer|d|1024-2147483647|GREATEST({DBInstanceClassMemory*1024/63963136},65536)
max_connections|integer|s|6-262143|LEAST({DBInstanceClassMemory/9531392},5000)
max_parallel_workers|integer|d|0-1024|GREATEST({DBInstanceVCPU/2},8)
max_replication_slots|integer|s|1-262143|20
max_slot_wal_keep_size|integer|d|-1-2147483647|
max_wal_senders|integer|s|5-262143|35
max_wal_size|integer|d|2-2147483647|2048
max_worker_processes|integer|s|1-262143|GREATEST({DBInstanceVCPU*2},8)
password_encryption|string|d|md5,scram-sha-256|scram-sha-256
pg_stat_statements.track|string|d|none,top,all|
pgaudit.log|list|d|ddl,function,misc,read,role,write,none,all,-ddl,-function,-misc,-read,-role,-write|
pgaudit.role|string|d|rds_pgaudit|
port|integer|f|1150-65535|{EndPointPort}
random_page_cost|float|d|0-1.79769e+308|
rds.accepted_password_auth_method|string|d|md5+scram,scram|md5+scram
rds.allowed_extensions|list|d||*
rds.custom_dns_resolution|boolean|s|0,1|0
rds.extensions|string|f||
rds.force_admin_logging_level|string|d|disabled,debug5,debug4,debug3,debug2,debug1,info,notice,warning,error,log,fatal,panic|
rds.force_ssl|boolean|d|0,1|1
rds.log_retention_period|integer|d|1440-10080|4320
rds.logical_replication|boolean|s|0,1|0
rds.restrict_password_commands|boolean|s|0,1|
search_path|string|d||
shared_buffers|integer|s|16-1073741823|{DBInstanceClassMemory/32768}
shared_preload_libraries|list|s|auto_explain,orafce,pgaudit,pglogical,pg_bigm,pg_cron,pg_hint_plan,pg_prewarm,pg_similarity,pg_stat_statements,pg_tle,pg_transport,plprofiler,plrust|pg_stat_statements
ssl|boolean|f|0,1|1
ssl_ciphers|list|d|DHE-RSA-AES128-SHA,DHE-RSA-AES128-SHA256,DHE-RSA-AES128-GCM-SHA256,ECDHE-RSA-AES128-GCM-SHA256,ECDHE-RSA-AES256-GCM-SHA384|
ssl_min_protocol_version|string|d|TLSv1.2,TLSv1.3|TLSv1.2
statement_timeout|integer|d|0-2147483647|
synchronous_commit|string|d|local,on,off,remote_apply,remote_write|on
tcp_keepalives_idle|integer|d|0-2147483647|300
timezone|string|d||UTC
track_activity_query_size|integer|s|100-1048576|4096
track_io_timing|boolean|d|0,1|1
wal_buffers|integer|s|-1-262143|
wal_compression|boolean|d|0,1|1
wal_keep_size|integer|d|0-2147483647|2048
wal_sender_timeout|integer|d|0-3600000|30000
work_mem|integer|d|64-2147483647|
`)

var mysqlParameters = parseParameters(`
allow-suspicious-udfs|boolean|f|0,1|
authentication_policy|string|s||
autocommit|boolean|d|0,1|
basedir|string|f||/rdsdbbin/mysql
binlog_format|string|d|ROW,STATEMENT,MIXED|MIXED
binlog_row_image|string|d|full,minimal,noblob|
bind_address|string|f||*
character_set_client|string|d|big5,latin2,latin1,ascii,utf8,ucs2,utf8mb4,utf16,utf32,binary|
character_set_server|string|d|big5,latin2,latin1,ascii,utf8,ucs2,utf8mb4,utf16,utf32,binary|
collation_server|string|d||
connect_timeout|integer|d|2-31536000|
default_storage_engine|string|f||InnoDB
event_scheduler|string|d|ON,OFF|
general_log|boolean|d|0,1|
gtid-mode|string|d|OFF,OFF_PERMISSIVE,ON_PERMISSIVE,ON|OFF_PERMISSIVE
enforce_gtid_consistency|string|d|OFF,WARN,ON|
explicit_defaults_for_timestamp|boolean|d|0,1|1
group_concat_max_len|integer|d|4-18446744073709547520|
innodb_buffer_pool_size|integer|d|5242880-18446744073709547520|{DBInstanceClassMemory*3/4}
innodb_file_per_table|boolean|d|0,1|1
innodb_flush_log_at_trx_commit|integer|d|0-2|1
innodb_flush_method|string|f||O_DIRECT
innodb_lock_wait_timeout|integer|d|1-1073741824|
innodb_print_all_deadlocks|boolean|d|0,1|
innodb_redo_log_capacity|integer|d|8388608-137438953472|2147483648
interactive_timeout|integer|d|1-31536000|
local_infile|boolean|d|0,1|
lock_wait_timeout|integer|d|1-31536000|
log_bin_trust_function_creators|boolean|d|0,1|
log_error_verbosity|integer|d|1-3|
log_output|string|d|TABLE,FILE,NONE|TABLE
log_queries_not_using_indexes|boolean|d|0,1|
long_query_time|float|d|0-31536000|
lower_case_table_names|integer|s|0,1|
max_allowed_packet|integer|d|1024-1073741824|
max_connect_errors|integer|d|1-9223372036854775807|
max_connections|integer|d|1-100000|{DBInstanceClassMemory/12582880}
max_execution_time|integer|d|0-4294967295|
mysqlx|string|f||
net_read_timeout|integer|d|1-31536000|
net_write_timeout|integer|d|1-31536000|
performance_schema|boolean|s|0,1|0
port|integer|f|1150-65535|{EndPointPort}
read_only|string|d|0,1,{TrueIfReplica}|{TrueIfReplica}
require_secure_transport|boolean|d|0,1|0
secure_file_priv|string|f||/tmp
skip_name_resolve|boolean|s|0,1|
skip-slave-start|boolean|f|0,1|1
slow_query_log|boolean|d|0,1|
sql_mode|string|d||
sync_binlog|integer|d|0-18446744073709547520|1
thread_stack|integer|s|131072-18446744073709547520|262144
time_zone|string|d||
tls_version|string|s|TLSv1.2,TLSv1.3,TLSv1.2+TLSv1.3|
transaction_isolation|string|d|READ-UNCOMMITTED,READ-COMMITTED,REPEATABLE-READ,SERIALIZABLE|
wait_timeout|integer|d|1-31536000|
`)

// dbFamilies are the parameter group families, by name.
var dbFamilies = func() map[string]dbVersion {
	out := map[string]dbVersion{}
	for _, v := range dbVersions {
		out[v.family()] = v
	}
	return out
}()

// familyParameters are the parameters of a family. rds.force_ssl is on by default since PostgreSQL 15 ("Requiring an SSL
// connection to a PostgreSQL DB instance").
func familyParameters(family string) []dbParameter {
	v := dbFamilies[family]
	if v.Engine == "mysql" {
		return mysqlParameters
	}
	out := append([]dbParameter(nil), postgresParameters...)
	for i := range out {
		if out[i].Name == "rds.force_ssl" && (v.Major == "13" || v.Major == "14") {
			out[i].Default = "0"
		}
		if out[i].Name == "password_encryption" && v.Major == "13" {
			out[i].Default = "md5"
		}
	}
	return out
}

func familyParameter(family, name string) (dbParameter, bool) {
	for _, p := range familyParameters(family) {
		if p.Name == name {
			return p, true
		}
	}
	return dbParameter{}, false
}
