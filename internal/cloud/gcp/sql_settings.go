package gcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/job"
)

// sqlFlags are the flags of an instance, all set when it is made: some of them
// restart it when they are changed later ("Configure database flags", and CIS
// Google Cloud Benchmark 6.1 and 6.2).
func sqlFlags(e job.Engine) []*sqladmin.DatabaseFlags {
	flags := [][2]string{
		{"cloudsql.iam_authentication", "on"}, {"cloudsql.enable_pgaudit", "on"},
		{"log_connections", "on"}, {"log_disconnections", "on"}, {"log_checkpoints", "on"}, {"log_lock_waits", "on"},
		{"log_temp_files", "0"}, {"log_min_duration_statement", "-1"}, {"log_statement", "ddl"},
		{"log_min_messages", "warning"}, {"log_min_error_statement", "error"}, {"log_error_verbosity", "default"},
	}
	if e == job.MySQL {
		flags = [][2]string{{"cloudsql_iam_authentication", "on"}, {"local_infile", "off"}}
	}
	var out []*sqladmin.DatabaseFlags
	for _, f := range flags {
		out = append(out, &sqladmin.DatabaseFlags{Name: f[0], Value: f[1]})
	}
	return out
}

// A sqlSetting is a property of an instance that hardening asks for, or that the
// job does. One table serves the report, the drift and the risks of an instance
// that is adopted.
type sqlSetting struct {
	id, name, source string
	only             job.Engine // "" for both
	text             func(*sqladmin.DatabaseInstance) string
	fine             func(wanted, seen string) bool // what else will do; nil: nothing
	asked            bool                           // the spec decides: no row unless it is asked for
}

var sqlSettings = slices.Concat([]sqlSetting{
	{id: "SQL-01", name: "public address", source: "CKV_GCP_60, GCP-0017, CIS GCP 6.7", text: func(x *sqladmin.DatabaseInstance) string {
		if ip := ipConfig(x); !ip.Ipv4Enabled && (ip.PrivateNetwork != "" || ip.PscConfig != nil && ip.PscConfig.PscEnabled) {
			return "none, private network"
		} else if !ip.Ipv4Enabled {
			return "none, and no private network"
		}
		return "on"
	}},
	{id: "SQL-02", name: "networks let in from outside", source: "CKV_GCP_11, GCP-0017, CIS GCP 6.5", text: func(x *sqladmin.DatabaseInstance) string {
		var open []string
		for _, n := range ipConfig(x).AuthorizedNetworks {
			open = append(open, n.Value)
		}
		if len(open) == 0 {
			return "none"
		}
		return sorted(open)
	}, fine: func(_, seen string) bool { return !strings.Contains(seen, "/0") }},
	{id: "SQL-03", name: "TLS", source: "GCP-0015, CIS GCP 6.4", text: func(x *sqladmin.DatabaseInstance) string { return or(ipConfig(x).SslMode, "optional") },
		fine: func(_, seen string) bool { return seen == "TRUSTED_CLIENT_CERTIFICATE_REQUIRED" }},
	{id: "SQL-05", name: "automated backups", source: "CKV_GCP_14, GCP-0024, CIS GCP 6.8", text: func(x *sqladmin.DatabaseInstance) string {
		b := backups(x)
		if !b.Enabled {
			return "off"
		}
		kept := int64(7) // Cloud SQL's own default
		if b.BackupRetentionSettings != nil && b.BackupRetentionSettings.RetainedBackups > 0 {
			kept = b.BackupRetentionSettings.RetainedBackups
		}
		return fmt.Sprintf("%d kept", kept)
	}, fine: func(_, seen string) bool { return keptBackups(seen) >= 7 }},
	{id: "SQL-06", name: "point-in-time recovery", source: "CKV2_GCP_20", text: func(x *sqladmin.DatabaseInstance) string {
		return onOff(backups(x).PointInTimeRecoveryEnabled || backups(x).BinaryLogEnabled)
	}},
	{id: "SQL-07", name: "deletion protection", source: "CIS GCP 6.9", text: func(x *sqladmin.DatabaseInstance) string { return onOff(settings(x).DeletionProtectionEnabled) }},
	{id: "SQL-08", name: "backups outlive the instance", source: "RDS.1, RDS.4 in spirit", text: func(x *sqladmin.DatabaseInstance) string {
		s := settings(x)
		return onOff(s.RetainBackupsOnDelete || s.FinalBackupConfig != nil && s.FinalBackupConfig.Enabled)
	}},
	{id: "SQL-09", name: "standby in another zone", source: "cloudsql_instance_high_availability_enabled", asked: true, text: func(x *sqladmin.DatabaseInstance) string {
		return or(settings(x).AvailabilityType, "ZONAL")
	}},
	{id: "SQL-29", name: "engine version", source: "CKV_GCP_79", text: func(x *sqladmin.DatabaseInstance) string { return x.DatabaseVersion },
		fine: func(wanted, seen string) bool { return strings.HasPrefix(seen, wanted) }},
	{name: "storage grows by itself", text: func(x *sqladmin.DatabaseInstance) string {
		s := settings(x)
		if s.StorageAutoResize == nil || *s.StorageAutoResize {
			return "up to " + strconv.FormatInt(s.StorageAutoResizeLimit, 10) + " GiB"
		}
		return "no"
	}},
	{name: "Data API", text: func(x *sqladmin.DatabaseInstance) string { return or(settings(x).DataApiAccess, "DISALLOW_DATA_API") }},
	{name: "class", text: func(x *sqladmin.DatabaseInstance) string { return settings(x).Tier }},
	{name: "maintenance window", text: func(x *sqladmin.DatabaseInstance) string {
		w := settings(x).MaintenanceWindow
		if w == nil || w.Day == 0 {
			return "any time"
		}
		return fmt.Sprintf("day %d at %d:00 UTC", w.Day, w.Hour)
	}},
	{name: "query insights", text: func(x *sqladmin.DatabaseInstance) string {
		return onOff(settings(x).InsightsConfig != nil && settings(x).InsightsConfig.QueryInsightsEnabled)
	}},
}, flagSettings)

// flagSettings are the rows that are one flag each.
var flagSettings = []sqlSetting{
	flagSetting("SQL-11", job.Postgres, "cloudsql.iam_authentication", "CIS GCP 6.6"),
	flagSetting("SQL-11", job.MySQL, "cloudsql_iam_authentication", "CIS GCP 6.6"),
	flagSetting("SQL-13", job.MySQL, "local_infile", "CKV_GCP_50, GCP-0026, CIS GCP 6.1.3"),
	flagSetting("SQL-15", job.Postgres, "log_connections", "CKV_GCP_52, GCP-0016, CIS GCP 6.2.2"),
	flagSetting("SQL-16", job.Postgres, "log_disconnections", "CKV_GCP_53, GCP-0022, CIS GCP 6.2.3"),
	flagSetting("SQL-17", job.Postgres, "log_checkpoints", "CKV_GCP_51, GCP-0025"),
	flagSetting("SQL-18", job.Postgres, "log_lock_waits", "CKV_GCP_54, GCP-0020"),
	flagSetting("SQL-19", job.Postgres, "log_temp_files", "CKV_GCP_56, GCP-0014"),
	flagSetting("SQL-20", job.Postgres, "log_min_duration_statement", "CKV_GCP_57, GCP-0021, CIS GCP 6.2.7"),
	flagSetting("SQL-21", job.Postgres, "log_statement", "CKV_GCP_111, CIS GCP 6.2.4"),
	flagSetting("SQL-22", job.Postgres, "log_min_messages", "CKV_GCP_55, GCP-0018, CIS GCP 6.2.5"),
	flagSetting("SQL-23", job.Postgres, "log_min_error_statement", "CKV_GCP_109, CIS GCP 6.2.6"),
	flagSetting("SQL-24", job.Postgres, "log_error_verbosity", "CIS GCP 6.2.1"),
	flagSetting("SQL-25", job.Postgres, "cloudsql.enable_pgaudit", "CKV_GCP_110, CIS GCP 6.2.8"),
	{id: "SQL-26", name: "statistics of the executor, parser and planner", only: job.Postgres, source: "CKV2_GCP_14 to CKV2_GCP_17", text: func(x *sqladmin.DatabaseInstance) string {
		var on []string
		for _, f := range []string{"log_executor_stats", "log_parser_stats", "log_planner_stats", "log_statement_stats"} {
			if flag(x, f) == "on" {
				on = append(on, f)
			}
		}
		return or(sorted(on), "off")
	}},
}

func flagSetting(id string, only job.Engine, name, source string) sqlSetting {
	return sqlSetting{id: id, name: name, source: source, only: only, text: func(x *sqladmin.DatabaseInstance) string { return or(flag(x, name), "not set") }}
}

// settings, ipConfig and backups are parts of an instance, never nil.
func settings(x *sqladmin.DatabaseInstance) *sqladmin.Settings {
	if x.Settings == nil {
		return &sqladmin.Settings{}
	}
	return x.Settings
}

func ipConfig(x *sqladmin.DatabaseInstance) *sqladmin.IpConfiguration {
	if ip := settings(x).IpConfiguration; ip != nil {
		return ip
	}
	return &sqladmin.IpConfiguration{}
}

func backups(x *sqladmin.DatabaseInstance) *sqladmin.BackupConfiguration {
	if b := settings(x).BackupConfiguration; b != nil {
		return b
	}
	return &sqladmin.BackupConfiguration{}
}

func flag(x *sqladmin.DatabaseInstance, name string) string {
	for _, f := range settings(x).DatabaseFlags {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// keptBackups is how many backups the text of SQL-05 says are kept.
func keptBackups(text string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(text, " kept")) // "off" keeps none
	return n
}

// settingsFor are the settings of an engine.
func settingsFor(e job.Engine) []sqlSetting {
	return slices.DeleteFunc(slices.Clone(sqlSettings), func(s sqlSetting) bool { return s.only != "" && s.only != e })
}
