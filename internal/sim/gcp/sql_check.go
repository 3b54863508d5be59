package gcp

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sqlVersions are the versions that are offered, with the one of each that is installed ("Database versions", Cloud SQL; the
// recordings have 9.6 and 5.7 still).
var sqlVersions = []struct{ version, installed, maintenance, title string }{
	{"POSTGRES_9_6", "POSTGRES_9_6_24", "R20240514.00_12", "PostgreSQL 9.6"},
	{"POSTGRES_10", "POSTGRES_10_23", "R20250302.00_31", "PostgreSQL 10"},
	{"POSTGRES_11", "POSTGRES_11_22", "R20250302.00_31", "PostgreSQL 11"},
	{"POSTGRES_12", "POSTGRES_12_22", "R20250302.00_31", "PostgreSQL 12"},
	{"POSTGRES_13", "POSTGRES_13_23", "R20260810.00_10", "PostgreSQL 13"},
	{"POSTGRES_14", "POSTGRES_14_23", "R20260810.00_10", "PostgreSQL 14"},
	{"POSTGRES_15", "POSTGRES_15_18", "R20260810.00_10", "PostgreSQL 15"},
	{"POSTGRES_16", "POSTGRES_16_14", "R20260810.00_10", "PostgreSQL 16"},
	{"POSTGRES_17", "POSTGRES_17_10", "R20260810.00_10", "PostgreSQL 17"},
	{"POSTGRES_18", "POSTGRES_18_4", "R20260810.00_10", "PostgreSQL 18"},
	{"MYSQL_5_7", "MYSQL_5_7_44", "R20231105.01_03", "MySQL 5.7"},
	{"MYSQL_8_0", "MYSQL_8_0_41", "R20251004.01_07", "MySQL 8.0"},
	{"MYSQL_8_4", "MYSQL_8_4_7", "R20251004.01_24", "MySQL 8.4"},
	{"MYSQL_9_7", "MYSQL_9_7_0", "R20260810.00_10", "MySQL 9.7"},
}

// sqlVersion finds a version; the minor versions of MySQL 8.0 have names of their own.
func sqlVersion(name string) (at int, ok bool) {
	if strings.HasPrefix(name, "MYSQL_8_0_") {
		name = "MYSQL_8_0"
	}
	for i, v := range sqlVersions {
		if v.version == name {
			return i, true
		}
	}
	return 0, false
}

// defaultEdition is that of an instance that names none: from PostgreSQL 16 and MySQL 8.4 on Enterprise Plus ("Introduction to editions";
// hashicorp/terraform-provider-google#20498).
func defaultEdition(version string) string {
	major, _ := strconv.Atoi(strings.TrimPrefix(version, "POSTGRES_")) // 9_6 and MySQL are none
	if major >= 16 || version == "MYSQL_8_4" || strings.HasPrefix(version, "MYSQL_9") {
		return enterprisePlus
	}
	return enterprise
}

const (
	enterprise     = "ENTERPRISE"
	enterprisePlus = "ENTERPRISE_PLUS"
)

// check refuses settings that do not go together. old is nil for a new instance.
func (s *cloudSQL) check(in, old *sqlInstance) error {
	settings := in.settings()
	if settings == nil {
		return sqlInvalid("Missing parameter: settings.")
	}
	setDefault(in.Doc, "databaseVersion", "MYSQL_8_0")
	if _, ok := sqlVersion(in.version()); !ok {
		return sqlInvalid("Database version %s is not supported.", in.version())
	}
	if !regionExists(in.region()) {
		return sqlInvalid("Invalid region: %s.", in.region())
	}
	setDefault(settings, "edition", defaultEdition(in.version()))
	if str(settings, "edition") == "EDITION_UNSPECIFIED" {
		settings["edition"] = defaultEdition(in.version())
	}
	for _, f := range []func(*sqlInstance, *sqlInstance) error{checkTier, checkDisk, checkAvailability, checkBackups, checkTLS, checkAddresses, checkMaintenance, checkUserLabels, checkFlags, checkDataAPI} {
		if err := f(in, old); err != nil {
			return err
		}
	}
	return nil
}

var customTier = regexp.MustCompile(`^db-custom-(\d+)-(\d+)$`)

// checkTier holds a machine type against the edition. Custom types have one CPU or an even number up to 96, 0.9 to 6.5 GiB each in
// multiples of 256 MiB and 3.75 GiB at least ("Instance settings": machine types).
func checkTier(in, _ *sqlInstance) error {
	tier, edition := str(in.settings(), "tier"), str(in.settings(), "edition")
	if tier == "" {
		return sqlInvalid("Missing parameter: tier.")
	}
	t := fixedTier(tier)
	m := customTier.FindStringSubmatch(tier)
	if (t == nil && m == nil) || (t != nil && t.edition != edition) || (m != nil && edition == enterprisePlus) {
		if t == nil || edition == enterprisePlus {
			hint := "Use a predefined Tier like db-perf-optimized-N-* instead."
			if edition != enterprisePlus {
				hint = "Use a custom Tier like db-custom-CPU-RAM instead."
			}
			return sqlInvalid("Invalid Tier (%s) for (%s) Edition. %s Learn more at https://cloud.google.com/sql/docs/postgres/create-instance#machine-types.", tier, edition, hint)
		}
		return &Error{HTTP: 400, Reason: "invalid", Message: fmt.Sprintf("Invalid request: Invalid Tier (%s) for (%s) Edition.", tier, edition)}
	}
	if m == nil {
		return nil
	}
	cpus, _ := strconv.Atoi(m[1])
	mib, _ := strconv.Atoi(m[2])
	switch {
	case cpus != 1 && (cpus%2 != 0 || cpus < 1 || cpus > 96):
		return sqlInvalid("Invalid custom machine type %s: the number of CPUs must be 1 or an even number between 2 and 96.", tier)
	case mib%256 != 0 || mib < 3840 || float64(mib) < 0.9*1024*float64(cpus) || float64(mib) > 6.5*1024*float64(cpus):
		return sqlInvalid("Invalid custom machine type %s: memory must be a multiple of 256 MiB, at least 3.75 GiB, and between 0.9 and 6.5 GiB per CPU.", tier)
	}
	return nil
}

func checkDisk(in, old *sqlInstance) error {
	size, kind := str(in.settings(), "dataDiskSizeGb"), str(in.settings(), "dataDiskType")
	if kind == "HYPERDISK_BALANCED" && !strings.HasPrefix(str(in.settings(), "tier"), "db-c4a-") {
		return sqlInvalid("Disk type HYPERDISK_BALANCED is not supported by machine type %s.", str(in.settings(), "tier"))
	}
	if size == "" {
		return nil
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 10 || n > 65536 {
		return sqlInvalid("Disk size must be between 10 and 65536 GB, not %s.", size)
	}
	if old != nil {
		if was, _ := strconv.Atoi(str(old.settings(), "dataDiskSizeGb")); n < was {
			return sqlInvalid("Disk size cannot be decreased from %d GB to %d GB.", was, n)
		}
	}
	return nil
}

func checkAvailability(in, _ *sqlInstance) error {
	zone := str(sub(in.settings(), "locationPreference"), "zone")
	if zone != "" && (!zoneExists(zone) || regionOf(zone) != in.region()) {
		return sqlInvalid("Invalid zone %s for region %s.", zone, in.region())
	}
	b := sub(in.settings(), "backupConfiguration")
	if str(in.settings(), "availabilityType") == "REGIONAL" && str(in.Doc, "masterInstanceName") == "" && b != nil {
		pitr := truth(b, "pointInTimeRecoveryEnabled")
		if !in.postgres() {
			pitr = truth(b, "binaryLogEnabled")
		}
		if enabled, said := b["enabled"].(bool); said && (!enabled || !pitr) {
			return sqlInvalid("Regional availability requires that automated backups and point-in-time recovery are enabled.")
		}
	}
	return nil
}

// checkBackups knows the limits of "About Cloud SQL backups" and "Point-in-time recovery".
func checkBackups(in, _ *sqlInstance) error {
	b := sub(in.settings(), "backupConfiguration")
	most := 7
	if str(in.settings(), "edition") == enterprisePlus {
		most = 35
	}
	if v, ok := b["transactionLogRetentionDays"].(float64); ok && (v < 1 || int(v) > most) {
		return sqlInvalid("The number of transaction log retention days must be between 1 and %d.", most)
	}
	if v, ok := sub(b, "backupRetentionSettings")["retainedBackups"].(float64); ok && (v < 1 || v > 365) {
		return sqlInvalid("The number of retained backups must be between 1 and 365.")
	}
	if start := str(b, "startTime"); start != "" && !regexp.MustCompile(`^([01]\d|2[0-3]):[0-5]\d$`).MatchString(start) {
		return sqlInvalid("Invalid backup start time %s: it must be HH:MM.", start)
	}
	switch {
	case in.postgres() && truth(b, "binaryLogEnabled"):
		return sqlInvalid("Binary log can only be enabled for MySQL instances.")
	case !in.postgres() && truth(b, "pointInTimeRecoveryEnabled"):
		return sqlInvalid("Point in time recovery is enabled by the binary log for MySQL instances.")
	case !truth(b, "enabled") && (truth(b, "binaryLogEnabled") || truth(b, "pointInTimeRecoveryEnabled")):
		return sqlInvalid("Point in time recovery must be disabled when backup is disabled.")
	}
	f := sub(in.settings(), "finalBackupConfig")
	if v, ok := f["retentionDays"].(float64); ok && (v < 1 || v > 365) {
		return sqlInvalid("The retention of the final backup must be between 1 and 365 days.")
	}
	return nil
}

// checkTLS refuses pairs of sslMode and requireSsl that contradict one another (IpConfiguration.sslMode in the reference).
func checkTLS(in, old *sqlInstance) error {
	ip := in.ip()
	require, said := ip["requireSsl"].(bool)
	mode := str(ip, "sslMode")
	if !said || mode == "" || mode == "SSL_MODE_UNSPECIFIED" {
		return nil
	}
	if old != nil && mode != str(old.ip(), "sslMode") && require == truth(old.ip(), "requireSsl") {
		delete(ip, "requireSsl") // only the mode was changed, and it outranks
		return nil
	}
	if require != (mode == "TRUSTED_CLIENT_CERTIFICATE_REQUIRED") {
		return sqlInvalid("The value pair of ssl_mode (%s) and require_ssl (%v) conflicts.", mode, require)
	}
	return nil
}

func checkAddresses(in, _ *sqlInstance) error {
	ip := in.ip()
	for i, n := range docs(ip, "authorizedNetworks") {
		v := str(n, "value")
		_, err := netip.ParsePrefix(v)
		if _, bad := netip.ParseAddr(v); err != nil && bad != nil {
			return sqlInvalid("The CIDR range %s of authorized network %d is not valid.", v, i)
		}
	}
	public, said := ip["ipv4Enabled"].(bool)
	if said && !public && str(ip, "privateNetwork") == "" && !truth(sub(ip, "pscConfig"), "pscEnabled") {
		return sqlInvalid("At least one of Public IP, Private IP or PSC connectivity must be enabled.")
	}
	if str(ip, "allocatedIpRange") != "" && str(ip, "privateNetwork") == "" {
		return sqlInvalid("An allocated IP range needs a private network.")
	}
	return nil
}

func checkMaintenance(in, _ *sqlInstance) error {
	w := sub(in.settings(), "maintenanceWindow")
	if w == nil {
		return nil
	}
	if d := num(w, "day"); d < 0 || d > 7 {
		return sqlInvalid("Invalid maintenance window day %.0f: it must be between 1 and 7.", d)
	}
	if h := num(w, "hour"); h < 0 || h > 23 {
		return sqlInvalid("Invalid maintenance window hour %.0f: it must be between 0 and 23.", h)
	}
	return nil
}

func checkUserLabels(in, _ *sqlInstance) error {
	labels := in.labels()
	if len(labels) > 64 {
		return sqlInvalid("An instance has 64 labels at most, not %d.", len(labels))
	}
	for k, v := range labels {
		if !labelKey.MatchString(k) || !labelValue.MatchString(v) {
			return sqlInvalid("Invalid label %s=%s.", k, v)
		}
	}
	return nil
}

// checkDataAPI refuses the Data API where it is not: it is for MySQL and PostgreSQL, and every offered version has it.
func checkDataAPI(in, _ *sqlInstance) error {
	if v := str(in.settings(), "dataApiAccess"); v != "" && !slices.Contains([]string{"ALLOW_DATA_API", "DISALLOW_DATA_API", "DATA_API_ACCESS_UNSPECIFIED"}, v) {
		return sqlInvalid("Invalid Data API access %s.", v)
	}
	return nil
}
