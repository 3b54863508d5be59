package aws

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/sim"
)

// dbPlan is what a checked request makes.
type dbPlan struct {
	version dbVersion
	class   dbClass
	subnets *RDSSubnetGroup
	groups  []string
	params  string
	zone    string
}

func (s *rdsService) createInstance(c *reqCtx, in *rds.CreateDBInstanceInput) (*rds.CreateDBInstanceOutput, error) {
	id := strings.ToLower(deref(in.DBInstanceIdentifier))
	c.Touch(c.regionalARN("rds", "db:"+id))
	for name, v := range map[string]*string{"DBInstanceIdentifier": in.DBInstanceIdentifier, "DBInstanceClass": in.DBInstanceClass, "Engine": in.Engine} {
		if deref(v) == "" {
			return nil, rdsMissing(name)
		}
	}
	if err := checkIdentifier("DBInstanceIdentifier", id, 63); err != nil {
		return nil, err
	}
	sc := s.in(c.scope())
	if sc.Instances[id] != nil || nameHeld(c, sc.Released, id) {
		return nil, fail(400, "DBInstanceAlreadyExists", "DB instance already exists")
	}
	plan, err := s.plan(c, in)
	if err != nil {
		return nil, err
	}
	for _, check := range []func() error{
		func() error { return s.checkMaster(c, in, plan.version.Engine) },
		func() error { return checkDBSettings(in, plan) },
		func() error { return s.checkDBStorage(c, in, plan) },
		func() error { return s.checkDBCapacity(c, plan, orDefault(in.AllocatedStorage, 20)) },
		func() error { return checkDBTags(in.Tags) },
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	i := s.newInstance(c, in, plan)
	sc.Instances[id] = i
	if deref(in.ManageMasterUserPassword) {
		s.manageSecret(c, i, deref(in.MasterUserSecretKmsKeyId))
	}
	c.Make(i.arn())
	s.beginCreation(i)
	return &rds.CreateDBInstanceOutput{DBInstance: new(i.DB)}, nil
}

// nameHeld says whether a fault keeps the name of something that was deleted.
func nameHeld(c *reqCtx, released map[string]time.Time, name string) bool {
	_, was := released[name]
	return was && c.w.Take(c.call, sim.FaultNameHeld, name) != nil
}

// newInstance is the instance that a request asks for, with the defaults of CreateDBInstance.
func (s *rdsService) newInstance(c *reqCtx, in *rds.CreateDBInstanceInput, p dbPlan) *RDSInstance {
	id := strings.ToLower(*in.DBInstanceIdentifier)
	multi := deref(in.MultiAZ)
	db := types.DBInstance{
		DBInstanceIdentifier: &id, DBInstanceArn: new(c.regionalARN("rds", "db:"+id)), DbiResourceId: new(c.w.ID("db-", 26, idLetters)), DBInstanceStatus: new(statusCreating),
		DBInstanceClass: in.DBInstanceClass, Engine: &p.version.Engine, EngineVersion: &p.version.Version, LicenseModel: new(dbLicenses[p.version.Engine]),
		MasterUsername: in.MasterUsername, DBName: in.DBName, AllocatedStorage: new(orDefault(in.AllocatedStorage, 20)), StorageType: new(storageType(in)),
		MaxAllocatedStorage: in.MaxAllocatedStorage, Iops: in.Iops, StorageThroughput: in.StorageThroughput, StorageEncrypted: new(deref(in.StorageEncrypted)),
		MultiAZ: &multi, PubliclyAccessible: new(s.publicByDefault(c, in.PubliclyAccessible, p)), AutoMinorVersionUpgrade: new(orDefault(in.AutoMinorVersionUpgrade, true)),
		BackupRetentionPeriod: new(orDefault(in.BackupRetentionPeriod, 1)), CopyTagsToSnapshot: new(deref(in.CopyTagsToSnapshot)), DeletionProtection: new(deref(in.DeletionProtection)),
		IAMDatabaseAuthenticationEnabled: new(deref(in.EnableIAMDatabaseAuthentication)), CACertificateIdentifier: new(orText(deref(in.CACertificateIdentifier), defaultCA)),
		PreferredBackupWindow: new(orText(deref(in.PreferredBackupWindow), "04:35-05:05")), PreferredMaintenanceWindow: new(orText(strings.ToLower(deref(in.PreferredMaintenanceWindow)), "mon:09:26-mon:09:56")),
		PerformanceInsightsEnabled: new(deref(in.EnablePerformanceInsights)), MonitoringInterval: new(deref(in.MonitoringInterval)), MonitoringRoleArn: in.MonitoringRoleArn,
		EngineLifecycleSupport: new(orText(deref(in.EngineLifecycleSupport), "open-source-rds-extended-support")), DatabaseInsightsMode: types.DatabaseInsightsMode(orText(string(in.DatabaseInsightsMode), "standard")),
		DbInstancePort: new(int32(0)), NetworkType: new("IPV4"), BackupTarget: new("region"), DedicatedLogVolume: new(deref(in.DedicatedLogVolume)),
		DBSecurityGroups: []types.DBSecurityGroupMembership{}, ReadReplicaDBInstanceIdentifiers: []string{}, DomainMemberships: []types.DomainMembership{}, AssociatedRoles: []types.DBInstanceRole{},
		TagList: in.Tags, EnabledCloudwatchLogsExports: in.EnableCloudwatchLogsExports, PendingModifiedValues: &types.PendingModifiedValues{}, CustomerOwnedIpEnabled: new(false),
		DBParameterGroups:      []types.DBParameterGroupStatus{{DBParameterGroupName: &p.params, ParameterApplyStatus: new("in-sync")}},
		OptionGroupMemberships: []types.OptionGroupMembership{{OptionGroupName: new("default:" + p.version.Engine + "-" + strings.ReplaceAll(p.version.Major, ".", "-")), Status: new("in-sync")}},
	}
	if db.TagList == nil {
		db.TagList = []types.Tag{}
	}
	group := p.subnets.Group
	db.DBSubnetGroup = &group
	for _, g := range p.groups {
		db.VpcSecurityGroups = append(db.VpcSecurityGroups, types.VpcSecurityGroupMembership{VpcSecurityGroupId: &g, Status: new("active")})
	}
	if deref(db.StorageEncrypted) {
		db.KmsKeyId = new(s.cloud.storageKey(c.scope(), deref(in.KmsKeyId), "rds"))
		db.StorageEncryptionType = types.StorageEncryptionTypeSse
		if in.KmsKeyId != nil {
			db.StorageEncryptionType = types.StorageEncryptionTypeCmk
		}
	}
	if deref(in.EnablePerformanceInsights) {
		db.PerformanceInsightsRetentionPeriod = new(orDefault(in.PerformanceInsightsRetentionPeriod, 7))
		db.PerformanceInsightsKMSKeyId = new(s.cloud.storageKey(c.scope(), deref(in.PerformanceInsightsKMSKeyId), "rds"))
	}
	if deref(db.StorageType) == "gp3" && db.Iops == nil {
		db.Iops, db.StorageThroughput = new(int32(3000)), new(int32(125))
		if *db.AllocatedStorage >= 400 {
			db.Iops, db.StorageThroughput = new(int32(12000)), new(int32(500))
		}
	}
	if !multi {
		db.AvailabilityZone = &p.zone
	}
	i := &RDSInstance{DB: db, Account: c.account, Region: c.region, Requested: c.now, MasterPassword: deref(in.MasterUserPassword),
		Host: id + "." + s.cloud.accountHash(c.scope(), "rds", 12) + "." + c.region + ".rds.amazonaws.com"}
	i.AskedPort = orDefault(in.Port, dbPorts[p.version.Engine])
	if i.MasterPassword != "" {
		i.DB.PendingModifiedValues.MasterUserPassword = new(blanked)
	}
	return i
}

func storageType(in *rds.CreateDBInstanceInput) string {
	switch {
	case deref(in.StorageType) != "":
		return *in.StorageType
	case in.Iops != nil:
		return "io1"
	}
	return "gp2"
}

// publicByDefault: without the parameter an instance is public if it is in the default VPC with an internet gateway, and
// private in a subnet group of somebody's own VPC that has none ("PubliclyAccessible", CreateDBInstance).
func (s *rdsService) publicByDefault(c *reqCtx, asked *bool, p dbPlan) bool {
	if asked != nil {
		return *asked
	}
	return deref(p.subnets.Group.DBSubnetGroupName) == "default" && s.cloud.vpcHasGateway(c.scope(), deref(p.subnets.Group.VpcId))
}

// plan finds what a request names: version, class, subnet group, security groups, parameter group, zone.
func (s *rdsService) plan(c *reqCtx, in *rds.CreateDBInstanceInput) (p dbPlan, err error) {
	engine := strings.ToLower(*in.Engine)
	if dbEngineNames[engine] == "" {
		return p, rdsInvalid("Invalid DB engine")
	}
	var ok bool
	if p.version, ok = findDBVersion(engine, deref(in.EngineVersion)); !ok {
		return p, rdsCombination("Cannot find version %s for %s", deref(in.EngineVersion), engine)
	}
	if p.class, err = s.class(c.region, *in.DBInstanceClass, p.version); err != nil {
		return p, err
	}
	if p.version.extended(c.now) && deref(in.EngineLifecycleSupport) == "open-source-rds-extended-support-disabled" {
		return p, rdsCombination("You can't create a DB instance with engine version %s because it is past its RDS end of standard support date and RDS Extended Support is disabled.", p.version.Version)
	}
	if p.params, err = s.parameterGroupFor(c, deref(in.DBParameterGroupName), p.version); err != nil {
		return p, err
	}
	if p.subnets, err = s.subnetGroupFor(c, deref(in.DBSubnetGroupName)); err != nil {
		return p, err
	}
	if p.groups, err = s.groupsFor(c, in.VpcSecurityGroupIds, deref(p.subnets.Group.VpcId)); err != nil {
		return p, err
	}
	p.zone, err = zoneOf(c, p.subnets, deref(in.AvailabilityZone), deref(in.MultiAZ))
	return p, err
}

// class finds a class that can be ordered.
func (s *rdsService) class(region, name string, v dbVersion) (dbClass, error) {
	k, ok := dbClasses[name]
	if !ok && !strings.HasPrefix(name, "db.") {
		return k, rdsInvalid("Invalid DB Instance class: %s", name)
	}
	if !ok || !k.offeredIn(region, v) {
		return k, rdsCombination("RDS does not support creating a DB instance with the following combination: DBInstanceClass=%s, Engine=%s, EngineVersion=%s, LicenseModel=%s. For supported combinations of instance class and database engine version, see the documentation.",
			name, v.Engine, v.Version, dbLicenses[v.Engine])
	}
	return k, nil
}

func (s *rdsService) groupsFor(c *reqCtx, ids []string, vpc string) ([]string, error) {
	if len(ids) == 0 {
		return []string{s.cloud.defaultGroup(c.scope(), vpc)}, nil
	}
	for _, id := range ids {
		where, ok := s.cloud.groupVPC(c.scope(), id)
		if !ok {
			return nil, rdsInvalid("Invalid security group , groupId= %s, groupName=.", id)
		}
		if where != vpc {
			return nil, fail(400, "InvalidVPCNetworkStateFault", "The DB instance and EC2 security group are in different VPCs. The DB instance is in %s and the EC2 security group is in %s", vpc, where)
		}
	}
	return slices.Clone(ids), nil
}

// zoneOf picks the zone of the primary.
func zoneOf(c *reqCtx, g *RDSSubnetGroup, asked string, multi bool) (string, error) {
	zones := g.zones()
	switch {
	case asked != "" && multi:
		return "", rdsCombination("Requesting a specific availability zone is not valid for Multi-AZ instances.")
	case asked != "" && !slices.Contains(zones, asked):
		return "", fail(400, "InvalidVPCNetworkStateFault", "Cannot create a DB instance in %s because the DB subnet group has no subnet in that Availability Zone.", asked)
	case asked != "":
		return asked, nil
	}
	return zones[int(c.w.Fraction("rds zone", c.Operation, deref(g.Group.DBSubnetGroupName))*float64(len(zones)))], nil
}

// checkDBCapacity refuses what no zone has room for, and what is above a quota.
func (s *rdsService) checkDBCapacity(c *reqCtx, p dbPlan, storage int32) error {
	total := int32(0)
	all := s.in(c.scope()).Instances
	for _, i := range all {
		total += deref(i.DB.AllocatedStorage)
	}
	if float64(len(all)) >= s.cloud.quota(c.scope(), "rds", quotaDBInstances) {
		return fail(400, "InstanceQuotaExceeded", "DB Instance quota exceeded")
	}
	if float64(total+storage) > s.cloud.quota(c.scope(), "rds", quotaDBStorage) {
		return fail(400, "StorageQuotaExceeded", "Storage quota exceeded")
	}
	if f := c.w.Take(c.call, sim.FaultCapacity, p.zone+" "+p.class.Name); f != nil {
		return fail(400, orText(f.Code, "InsufficientDBInstanceCapacity"), "%s", orText(f.Message, "Cannot create a database instance because instance type "+p.class.Name+
			" is currently not available in the availability zones of the DB subnet group. Try a different class, or try again later."))
	}
	return nil
}
