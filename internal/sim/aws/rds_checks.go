package aws

import (
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

// The names that an engine keeps for itself ("MasterUsername", CreateDBInstance; the error names the word). postgres has
// admin among them, mysql has not (https://github.com/aws-cloudformation/cfn-lint/pull/4425).
var reservedUsers = map[string][]string{
	"postgres": {"admin", "rdsadmin", "rds_superuser", "rdsrepladmin", "rds_replication", "rds_password", "rds_iam", "all", "analyse", "analyze", "and", "any", "array", "as", "both", "case", "cast", "check",
		"collate", "column", "constraint", "create", "current_user", "default", "desc", "distinct", "do", "else", "end", "except", "false", "for", "foreign", "from", "grant", "group", "having", "in",
		"into", "limit", "not", "null", "on", "only", "or", "order", "primary", "public", "references", "select", "session_user", "table", "then", "to", "true", "union", "unique", "user", "using",
		"when", "where", "with"},
	"mysql": {"rdsadmin", "rdsrepladmin", "mysql", "sys"},
}

var (
	masterName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	databaseName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// passwordLimits are the longest passwords of the administrator ("MasterUserPassword", CreateDBInstance).
var passwordLimits = map[string]int{"mysql": 41, "postgres": 128}

// userLimits are the longest names of the administrator.
var userLimits = map[string]int{"mysql": 16, "postgres": 63}

// checkMaster refuses an administrator that the engine cannot have.
func (s *rdsService) checkMaster(c *reqCtx, in *rds.CreateDBInstanceInput, engine string) error {
	name := deref(in.MasterUsername)
	switch {
	case name == "":
		return rdsInvalid("The parameter MasterUsername must be provided and must not be blank.")
	case !masterName.MatchString(name):
		return rdsInvalid("The parameter MasterUsername is not a valid identifier. Identifiers must begin with a letter; must contain only ASCII letters, digits, and underscores.")
	case len(name) > userLimits[engine]:
		return rdsInvalid("The parameter MasterUsername is not a valid identifier because it is longer than %d characters.", userLimits[engine])
	case slices.Contains(reservedUsers[engine], strings.ToLower(name)):
		return rdsInvalid("MasterUsername %s cannot be used as it is a reserved word used by the engine", name)
	case deref(in.ManageMasterUserPassword) && in.MasterUserPassword != nil:
		return rdsCombination("You can't specify MasterUserPassword for an instance with ManageMasterUserPassword enabled.")
	case !deref(in.ManageMasterUserPassword) && in.MasterUserSecretKmsKeyId != nil:
		return rdsCombination("You can't specify MasterUserSecretKmsKeyId for an instance without ManageMasterUserPassword enabled.")
	case !deref(in.ManageMasterUserPassword):
		if err := checkMasterPassword(engine, deref(in.MasterUserPassword)); err != nil {
			return err
		}
	}
	return s.cloud.checkStorageKey(c, in.MasterUserSecretKmsKeyId)
}

func checkMasterPassword(engine, password string) error {
	const what = "The parameter MasterUserPassword is not a valid password"
	switch {
	case password == "":
		return rdsInvalid("The parameter MasterUserPassword must be provided and must not be blank.")
	case strings.ContainsAny(password, `/@" `) || strings.IndexFunc(password, func(r rune) bool { return r < 32 || r > 126 }) >= 0:
		return rdsInvalid(`%s. Only printable ASCII characters besides '/', '@', '"', ' ' may be used.`, what)
	case len(password) < 8:
		return rdsInvalid("%s because it is shorter than 8 characters.", what)
	case len(password) > passwordLimits[engine]:
		return rdsInvalid("%s because it is longer than %d characters.", what, passwordLimits[engine])
	}
	return nil
}

var (
	backupWindow      = regexp.MustCompile(`^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$`)
	maintenanceWindow = regexp.MustCompile(`^(mon|tue|wed|thu|fri|sat|sun):([01]\d|2[0-3]):[0-5]\d-(mon|tue|wed|thu|fri|sat|sun):([01]\d|2[0-3]):[0-5]\d$`)
)

// checkDBSettings refuses settings that contradict one another or the engine.
func checkDBSettings(in *rds.CreateDBInstanceInput, p dbPlan) error {
	if err := checkDBName(deref(in.DBName), p.version.Engine); err != nil {
		return err
	}
	port := orDefault(in.Port, dbPorts[p.version.Engine])
	if port < 1150 || port > 65535 {
		return rdsInvalid("Invalid endpoint port. Port must be in the range 1150-65535")
	}
	if ca := deref(in.CACertificateIdentifier); ca != "" && dbCAs[ca].IsZero() {
		return fail(404, "CertificateNotFound", "Certificate not found: %s", ca)
	}
	if life := deref(in.EngineLifecycleSupport); life != "" && life != "open-source-rds-extended-support" && life != "open-source-rds-extended-support-disabled" {
		return rdsInvalid("Invalid EngineLifecycleSupport: %s", life)
	}
	if err := checkLogTypes(in.EnableCloudwatchLogsExports, p.version); err != nil {
		return err
	}
	if err := checkWindows(deref(in.PreferredBackupWindow), deref(in.PreferredMaintenanceWindow)); err != nil {
		return err
	}
	if err := checkRetention(orDefault(in.BackupRetentionPeriod, 1)); err != nil {
		return err
	}
	if err := checkMonitoring(in.MonitoringInterval, in.MonitoringRoleArn); err != nil {
		return err
	}
	return checkInsights(deref(in.EnablePerformanceInsights), in.PerformanceInsightsRetentionPeriod, in.DatabaseInsightsMode, p)
}

func checkDBName(name, engine string) error {
	switch {
	case name == "":
		return nil
	case !databaseName.MatchString(name):
		return rdsInvalid("DBName must begin with a letter and contain only alphanumeric characters.")
	case len(name) > 63:
		return rdsInvalid("The parameter DBName is not a valid identifier because it is longer than 63 characters.")
	case engine == "postgres" && slices.Contains([]string{"rdsadmin", "template0", "template1", "db"}, strings.ToLower(name)),
		engine == "mysql" && slices.Contains([]string{"mysql", "sys", "information_schema", "performance_schema"}, strings.ToLower(name)):
		return rdsInvalid("DBName %s cannot be used. It is a reserved word for this engine", name)
	}
	return nil
}

func checkLogTypes(kinds []string, v dbVersion) error {
	for _, l := range kinds {
		if !slices.Contains(v.logTypes(), l) {
			return rdsCombination("You cannot use the log types '%s' with engine version %s %s. For supported log types, see the documentation.", l, v.Engine, v.Version)
		}
	}
	return nil
}

func checkRetention(days int32) error {
	if days < 0 || days > 35 {
		return rdsInvalid("Invalid backup retention period: %d. Retention period must be between 0 and 35", days)
	}
	return nil
}

func checkMonitoring(interval *int32, role *string) error {
	switch {
	case !slices.Contains([]int32{0, 1, 5, 10, 15, 30, 60}, deref(interval)):
		return rdsInvalid("Invalid value %d for MonitoringInterval. Valid values: 0, 1, 5, 10, 15, 30, 60", deref(interval))
	case deref(interval) > 0 && deref(role) == "":
		return rdsCombination("A MonitoringRoleARN value is required if you specify a MonitoringInterval value other than 0.")
	case deref(interval) == 0 && deref(role) != "":
		return rdsCombination("A MonitoringInterval value other than 0 is required if you specify a MonitoringRoleARN value.")
	}
	return nil
}

// checkInsights: "Database Insights: advanced needs Performance Insights and a retention of 465 days"
// ("Turning on the Advanced mode of Database Insights").
func checkInsights(on bool, retention *int32, mode types.DatabaseInsightsMode, p dbPlan) error {
	days := orDefault(retention, 7)
	switch {
	case mode != "" && !slices.Contains(mode.Values(), mode):
		return rdsInvalid("Invalid DatabaseInsightsMode: %s", mode)
	case on && !p.class.insights(p.version.Engine):
		return rdsCombination("Performance Insights not supported for this configuration.")
	case !on && retention != nil:
		return rdsCombination("To specify the PerformanceInsightsRetentionPeriod parameter, Performance Insights must be enabled.")
	case days != 7 && days != 731 && (days%31 != 0 || days < 31 || days > 23*31):
		return rdsInvalid("Invalid Performance Insights retention period. Valid values are: [7, 31, 62, 93, 124, 155, 186, 217, 248, 279, 310, 341, 372, 403, 434, 465, 496, 527, 558, 589, 620, 651, 682, 713, 731]")
	case mode == types.DatabaseInsightsModeAdvanced && (!on || days < 465):
		return rdsCombination("To enable the Advanced mode of Database Insights, enable Performance Insights and set its retention period to at least 465 days.")
	}
	return nil
}

// checkWindows: both in UTC, half an hour at least, and apart ("PreferredBackupWindow", CreateDBInstance).
func checkWindows(backup, maintenance string) error {
	maintenance = strings.ToLower(maintenance)
	if backup != "" {
		if !backupWindow.MatchString(backup) {
			return rdsInvalid("Invalid backup window format: %s. Should be specified as a range hh24:mi-hh24:mi (24H Clock UTC).", backup)
		}
		if length(minutes(backup[:5]), minutes(backup[6:]), 24*60) < 30 {
			return rdsInvalid("The backup window must be at least 30 minutes.")
		}
	}
	if maintenance == "" {
		return nil
	}
	if !maintenanceWindow.MatchString(maintenance) {
		return rdsInvalid("Invalid maintenance window format: %s. Should be specified as a range ddd:hh24:mi-ddd:hh24:mi (24H Clock UTC).", maintenance)
	}
	const week = 7 * 24 * 60
	from, to := weekMinutes(maintenance[:9]), weekMinutes(maintenance[10:])
	if n := length(from, to, week); n < 30 || n > 24*60 {
		return rdsInvalid("The maintenance window must be at least 30 minutes and at most 24 hours.")
	}
	if backup != "" {
		for day := range 7 {
			start := day*24*60 + minutes(backup[:5])
			if (start-from+week)%week < length(from, to, week) || (from-start+week)%week < length(minutes(backup[:5]), minutes(backup[6:]), 24*60) {
				return rdsInvalid("The backup window and maintenance window must not overlap.")
			}
		}
	}
	return nil
}

// minutes of a text like 04:35.
func minutes(text string) int {
	n := func(s string) int { return int(s[0]-'0')*10 + int(s[1]-'0') }
	return n(text[:2])*60 + n(text[3:5])
}

// weekMinutes of a text like mon:04:35.
func weekMinutes(text string) int {
	return slices.Index([]string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}, text[:3])*24*60 + minutes(text[4:])
}

func length(from, to, round int) int { return (to - from + round) % round }

// checkDBStorage refuses a disk that there is none of.
func (s *rdsService) checkDBStorage(c *reqCtx, in *rds.CreateDBInstanceInput, p dbPlan) error {
	engine, kind := p.version.Engine, storageType(in)
	if in.AllocatedStorage == nil {
		return rdsInvalid("The parameter AllocatedStorage must be provided and must not be blank.")
	}
	if err := checkDisk(engine, kind, *in.AllocatedStorage, in.MaxAllocatedStorage, in.Iops, in.StorageThroughput); err != nil {
		return err
	}
	if kind == "standard" && !strings.HasPrefix(p.class.Family, "t") {
		return fail(400, "StorageTypeNotSupported", "The storage type standard is not supported for the DB instance class %s.", p.class.Name)
	}
	if in.KmsKeyId != nil && !deref(in.StorageEncrypted) {
		return rdsCombination("KmsKeyId can only be specified for an encrypted DB instance: StorageEncrypted must be true.")
	}
	for _, key := range []*string{in.KmsKeyId, in.PerformanceInsightsKMSKeyId} {
		if err := s.cloud.checkStorageKey(c, key); err != nil {
			return err
		}
	}
	return nil
}

func checkDisk(engine, kind string, size int32, most, iops, throughput *int32) error {
	st, ok := findDBStorage(kind)
	switch {
	case !ok:
		return rdsInvalid("Invalid storage type: %s", kind)
	case size < st.Min || size > st.Max:
		return rdsCombination("Invalid storage size for engine name %s and storage type %s: %d", engine, kind, size)
	case most != nil && (*most > st.Max || float64(*most) < float64(size)*1.1):
		return rdsCombination("Invalid max storage size for engine name %s and storage type %s: %d", engine, kind, *most)
	case (kind == "gp2" || kind == "standard") && (iops != nil || throughput != nil):
		return rdsCombination("You can't specify IOPS or storage throughput for storage type %s.", kind)
	case kind == "gp3" && size < 400 && (iops != nil || throughput != nil):
		return rdsCombination("You can't specify IOPS or storage throughput for engine %s and a storage size less than 400.", engine)
	case (kind == "io1" || kind == "io2") && iops == nil:
		return rdsCombination("The parameter Iops must be provided for the storage type %s.", kind)
	case iops != nil && (*iops < st.MinIops || *iops > st.MaxIops):
		return rdsInvalid("Invalid iops value for engine name %s and storage type %s: %d", engine, kind, *iops)
	case throughput != nil && (*throughput < st.MinThroughput || *throughput > st.MaxThroughput):
		return rdsInvalid("Invalid storage throughput value for engine name %s and storage type %s: %d", engine, kind, *throughput)
	}
	return nil
}

// checkStorageKey refuses a key that RDS cannot use.
func (c *Cloud) checkStorageKey(r *reqCtx, ref *string) error {
	if ref == nil || strings.HasPrefix(*ref, "alias/aws/") {
		return nil
	}
	if k := c.findKey(r.scope(), *ref); k == nil || k.State != keyEnabled {
		return fail(400, "KMSKeyNotAccessibleFault", "The specified KMS key [%s] does not exist, is not enabled or you do not have permissions to access it.", *ref)
	}
	return nil
}

// findKey finds a key by ID, ARN or alias.
func (c *Cloud) findKey(in scope, ref string) *KMSKey {
	if !strings.HasPrefix(ref, "arn:") {
		if !strings.HasPrefix(ref, "alias/") {
			ref = "key/" + ref
		}
		ref = arn("kms", in.Region, in.Account, ref)
	}
	return c.platform.kms.lookup(in, ref)
}

// storageKey is the ARN of the key that something is encrypted with: the one that was asked for, or the service's own of the
// account, aws/rds and the like.
func (c *Cloud) storageKey(in scope, ref, service string) string {
	if k := c.findKey(in, ref); ref != "" && k != nil {
		return k.ARN
	}
	h := c.accountHash(in, "key "+service, 30)
	id := strings.Map(func(r rune) rune { return rune("0123456789abcdef"[int(r)%16]) }, h)
	return arn("kms", in.Region, in.Account, "key/"+id[:8]+"-"+id[8:12]+"-4"+id[12:15]+"-a"+id[15:18]+"-"+id[18:30])
}
