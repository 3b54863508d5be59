package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

// modifiable are the statuses in which an instance takes a change ("Modifying an Amazon RDS DB instance").
var modifiable = []string{statusAvailable, "storage-full", "storage-optimization", "incompatible-parameters", "incompatible-network", "failed"}

func (s *rdsService) modifyInstance(c *reqCtx, in *rds.ModifyDBInstanceInput) (*rds.ModifyDBInstanceOutput, error) {
	i, err := s.instance(c, in.DBInstanceIdentifier)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(modifiable, i.status()) {
		return nil, fail(400, "InvalidDBInstanceState", "Database instance is not in available state.")
	}
	for _, check := range []func(*reqCtx, *RDSInstance, *rds.ModifyDBInstanceInput) error{s.checkMove, s.checkResize, s.checkModified, s.checkNewPassword} {
		if err := check(c, i, in); err != nil {
			return nil, err
		}
	}
	s.changeNow(c, i, in)
	s.stage(i, in)
	c.Make(i.arn())
	if deref(in.ApplyImmediately) && i.hasPending() {
		s.beginChange(i)
	}
	return &rds.ModifyDBInstanceOutput{DBInstance: new(i.DB)}, nil
}

// beginChange starts what is pending. The answer of the request that asked for it still shows the instance available.
func (s *rdsService) beginChange(i *RDSInstance) {
	s.cloud.after(0, "rds", "changing", i.key())
	s.cloud.after(dbModifyTime, "rds", "changed", i.key())
}

func (i *RDSInstance) hasPending() bool {
	p := i.DB.PendingModifiedValues
	return p != nil && (p.AllocatedStorage != nil || p.DBInstanceClass != nil || p.EngineVersion != nil || p.MultiAZ != nil || p.StorageType != nil || p.Iops != nil || p.StorageThroughput != nil ||
		p.BackupRetentionPeriod != nil || p.CACertificateIdentifier != nil || p.MasterUserPassword != nil || p.IAMDatabaseAuthenticationEnabled != nil || p.PendingCloudwatchLogsExports != nil)
}

// checkMove refuses a move to another subnet group; only one of another VPC could be moved to, and that is not simulated.
func (s *rdsService) checkMove(c *reqCtx, i *RDSInstance, in *rds.ModifyDBInstanceInput) error {
	if in.NewDBInstanceIdentifier != nil && !strings.EqualFold(*in.NewDBInstanceIdentifier, i.id()) {
		return rdsInvalid("Renaming a DB instance is not simulated.")
	}
	if in.DBSubnetGroupName == nil {
		return nil
	}
	name := strings.ToLower(*in.DBSubnetGroupName)
	if name == deref(i.DB.DBSubnetGroup.DBSubnetGroupName) {
		return fail(400, "InvalidVPCNetworkStateFault", "The specified DB instance is already in the target DB subnet group.")
	}
	g, err := s.subnetGroupFor(c, name)
	if err != nil {
		return err
	}
	if deref(g.Group.VpcId) == deref(i.DB.DBSubnetGroup.VpcId) {
		return fail(400, "InvalidVPCNetworkStateFault", "You cannot move DB instance %s to subnet group %s. The specified DB subnet group and DB instance are in the same VPC.", i.id(), name)
	}
	return fail(400, "InvalidVPCNetworkStateFault", "You cannot move DB instance %s to subnet group %s: moves between VPCs are not simulated.", i.id(), name)
}

// checkResize refuses a class, disk or version that the instance cannot get.
func (s *rdsService) checkResize(c *reqCtx, i *RDSInstance, in *rds.ModifyDBInstanceInput) error {
	engine := i.engine()
	version, _ := findDBVersion(engine, deref(i.DB.EngineVersion))
	if v := deref(in.EngineVersion); v != "" && v != deref(i.DB.EngineVersion) {
		next, ok := findDBVersion(engine, v)
		switch {
		case !ok:
			return rdsCombination("Cannot find version %s for %s", v, engine)
		case slices.Index(dbVersions, next) < slices.IndexFunc(dbVersions, func(d dbVersion) bool { return d.Engine == engine && d.Version == deref(i.DB.EngineVersion) }):
			return rdsCombination("Cannot upgrade %s from %s to %s", engine, deref(i.DB.EngineVersion), next.Version)
		case next.Major != version.Major && !deref(in.AllowMajorVersionUpgrade):
			return rdsCombination("The AllowMajorVersionUpgrade flag must be present when upgrading to a new major version.")
		}
		version = next
	}
	if in.DBInstanceClass != nil {
		if _, err := s.class(c.region, *in.DBInstanceClass, version); err != nil {
			return err
		}
	}
	size, kind := orDefault(in.AllocatedStorage, deref(i.DB.AllocatedStorage)), orText(deref(in.StorageType), deref(i.DB.StorageType))
	if size < deref(i.DB.AllocatedStorage) {
		return rdsInvalid("Requested storage size (%d) can not be less than the current storage size (%d).", size, deref(i.DB.AllocatedStorage))
	}
	most := in.MaxAllocatedStorage
	if most != nil && *most <= size {
		most = nil // turns autoscaling off
	}
	return checkDisk(engine, kind, size, most, in.Iops, in.StorageThroughput)
}

// checkModified refuses settings that contradict one another or the engine.
func (s *rdsService) checkModified(c *reqCtx, i *RDSInstance, in *rds.ModifyDBInstanceInput) error {
	version, _ := findDBVersion(i.engine(), orText(deref(in.EngineVersion), deref(i.DB.EngineVersion)))
	if in.DBParameterGroupName != nil {
		if _, err := s.parameterGroupFor(c, *in.DBParameterGroupName, version); err != nil {
			return err
		}
	}
	if len(in.VpcSecurityGroupIds) > 0 {
		if _, err := s.groupsFor(c, in.VpcSecurityGroupIds, deref(i.DB.DBSubnetGroup.VpcId)); err != nil {
			return err
		}
	}
	if l := in.CloudwatchLogsExportConfiguration; l != nil {
		if err := checkLogTypes(append(slices.Clone(l.EnableLogTypes), l.DisableLogTypes...), version); err != nil {
			return err
		}
	}
	if ca := deref(in.CACertificateIdentifier); ca != "" && dbCAs[ca].IsZero() {
		return fail(404, "CertificateNotFound", "Certificate not found: %s", ca)
	}
	if err := checkWindows(deref(in.PreferredBackupWindow), deref(in.PreferredMaintenanceWindow)); err != nil {
		return err
	}
	if in.MonitoringInterval != nil || in.MonitoringRoleArn != nil {
		if err := checkMonitoring(in.MonitoringInterval, in.MonitoringRoleArn); err != nil {
			return err
		}
	}
	if days := orDefault(in.BackupRetentionPeriod, 1); days == 0 && len(i.DB.ReadReplicaDBInstanceIdentifiers) > 0 {
		return rdsCombination("Backups cannot be turned off for a DB instance with read replicas.")
	}
	return checkRetention(orDefault(in.BackupRetentionPeriod, 1))
}

func (s *rdsService) checkNewPassword(c *reqCtx, i *RDSInstance, in *rds.ModifyDBInstanceInput) error {
	managed := i.DB.MasterUserSecret != nil
	switch {
	case in.MasterUserPassword != nil && (managed || deref(in.ManageMasterUserPassword)) && (in.ManageMasterUserPassword == nil || *in.ManageMasterUserPassword):
		return rdsCombination("You can't specify MasterUserPassword for an instance with ManageMasterUserPassword enabled.")
	case deref(in.RotateMasterUserPassword) && !managed:
		return rdsCombination("You can't rotate the master user password of an instance without ManageMasterUserPassword enabled.")
	case deref(in.RotateMasterUserPassword) && !deref(in.ApplyImmediately):
		return rdsCombination("You must specify ApplyImmediately to rotate the master user password.")
	case managed && in.ManageMasterUserPassword != nil && !*in.ManageMasterUserPassword && in.MasterUserPassword == nil:
		return rdsCombination("MasterUserPassword is required to turn off ManageMasterUserPassword.")
	case in.MasterUserPassword != nil:
		return checkMasterPassword(i.engine(), *in.MasterUserPassword)
	}
	return nil
}

// changeNow changes what takes effect at once, whether or not that was asked for ("Settings for DB instances").
func (s *rdsService) changeNow(c *reqCtx, i *RDSInstance, in *rds.ModifyDBInstanceInput) {
	db := &i.DB
	set(&db.DeletionProtection, in.DeletionProtection)
	set(&db.CopyTagsToSnapshot, in.CopyTagsToSnapshot)
	set(&db.AutoMinorVersionUpgrade, in.AutoMinorVersionUpgrade)
	set(&db.PubliclyAccessible, in.PubliclyAccessible)
	set(&db.PreferredBackupWindow, in.PreferredBackupWindow)
	set(&db.PreferredMaintenanceWindow, in.PreferredMaintenanceWindow)
	set(&db.MonitoringInterval, in.MonitoringInterval)
	set(&db.MonitoringRoleArn, in.MonitoringRoleArn)
	set(&db.EngineLifecycleSupport, in.EngineLifecycleSupport)
	if in.DatabaseInsightsMode != "" {
		db.DatabaseInsightsMode = in.DatabaseInsightsMode
	}
	if on := in.EnablePerformanceInsights; on != nil {
		db.PerformanceInsightsEnabled, db.PerformanceInsightsRetentionPeriod, db.PerformanceInsightsKMSKeyId = on, nil, nil
		if *on {
			db.PerformanceInsightsRetentionPeriod = new(orDefault(in.PerformanceInsightsRetentionPeriod, 7))
			db.PerformanceInsightsKMSKeyId = new(s.cloud.storageKey(c.scope(), deref(in.PerformanceInsightsKMSKeyId), "rds"))
		}
	}
	if most := in.MaxAllocatedStorage; most != nil {
		db.MaxAllocatedStorage = most
		if *most <= deref(db.AllocatedStorage) {
			db.MaxAllocatedStorage = nil
		}
	}
	if ids := in.VpcSecurityGroupIds; len(ids) > 0 {
		db.VpcSecurityGroups = nil
		for _, g := range ids {
			db.VpcSecurityGroups = append(db.VpcSecurityGroups, types.VpcSecurityGroupMembership{VpcSecurityGroupId: &g, Status: new("active")})
		}
		for _, n := range i.Interfaces {
			s.cloud.setInterfaceGroups(i.scope(), n, ids)
		}
	}
	if name := strings.ToLower(deref(in.DBParameterGroupName)); name != "" && name != i.parameterGroup() {
		db.DBParameterGroups = []types.DBParameterGroupStatus{{DBParameterGroupName: &name, ParameterApplyStatus: new("pending-reboot")}}
	}
	if on := in.ManageMasterUserPassword; on != nil && *on && db.MasterUserSecret == nil {
		s.manageSecret(c, i, deref(in.MasterUserSecretKmsKeyId))
		s.cloud.after(dbSecretTime, "rds", "secret", i.key())
	} else if on != nil && !*on {
		s.dropSecret(i)
		db.MasterUserSecret = nil
	}
}

// set changes a value if one is given.
func set[T any](to **T, v *T) {
	if v != nil {
		*to = v
	}
}

// stage notes what takes effect in the maintenance window, or soon with ApplyImmediately.
func (s *rdsService) stage(i *RDSInstance, in *rds.ModifyDBInstanceInput) {
	if i.DB.PendingModifiedValues == nil {
		i.DB.PendingModifiedValues = &types.PendingModifiedValues{}
	}
	p := i.DB.PendingModifiedValues
	differ(&p.AllocatedStorage, in.AllocatedStorage, i.DB.AllocatedStorage)
	differ(&p.DBInstanceClass, in.DBInstanceClass, i.DB.DBInstanceClass)
	if v, ok := findDBVersion(i.engine(), deref(in.EngineVersion)); ok && deref(in.EngineVersion) != "" {
		differ(&p.EngineVersion, &v.Version, i.DB.EngineVersion)
	}
	differ(&p.MultiAZ, in.MultiAZ, i.DB.MultiAZ)
	differ(&p.StorageType, in.StorageType, i.DB.StorageType)
	differ(&p.Iops, in.Iops, i.DB.Iops)
	differ(&p.StorageThroughput, in.StorageThroughput, i.DB.StorageThroughput)
	differ(&p.BackupRetentionPeriod, in.BackupRetentionPeriod, i.DB.BackupRetentionPeriod)
	differ(&p.CACertificateIdentifier, in.CACertificateIdentifier, i.DB.CACertificateIdentifier)
	differ(&p.IAMDatabaseAuthenticationEnabled, in.EnableIAMDatabaseAuthentication, i.DB.IAMDatabaseAuthenticationEnabled)
	later := in.MasterUserPassword != nil // the password and the logs do not wait for the window
	if in.MasterUserPassword != nil {
		i.NewPassword, p.MasterUserPassword = *in.MasterUserPassword, new(blanked)
	}
	if deref(in.RotateMasterUserPassword) {
		s.rotateNow(i)
	}
	if l := in.CloudwatchLogsExportConfiguration; l != nil {
		p.PendingCloudwatchLogsExports = &types.PendingCloudwatchLogsExports{LogTypesToEnable: l.EnableLogTypes, LogTypesToDisable: l.DisableLogTypes}
		later = true
	}
	if later && !deref(in.ApplyImmediately) {
		s.cloud.after(dbModifyTime, "rds", "soon", i.key())
	}
}

// differ notes a value that differs from the one that there is.
func differ[T comparable](to **T, want, have *T) {
	if want != nil && (have == nil || *want != *have) {
		*to = want
	}
}

// applyPending carries out what is pending.
func (s *rdsService) applyPending(i *RDSInstance) {
	s.applySoon(i)
	p, db := i.DB.PendingModifiedValues, &i.DB
	set(&db.AllocatedStorage, p.AllocatedStorage)
	set(&db.DBInstanceClass, p.DBInstanceClass)
	set(&db.EngineVersion, p.EngineVersion)
	set(&db.StorageType, p.StorageType)
	set(&db.Iops, p.Iops)
	set(&db.StorageThroughput, p.StorageThroughput)
	set(&db.BackupRetentionPeriod, p.BackupRetentionPeriod)
	set(&db.IAMDatabaseAuthenticationEnabled, p.IAMDatabaseAuthenticationEnabled)
	if p.CACertificateIdentifier != nil {
		db.CACertificateIdentifier, db.CertificateDetails = p.CACertificateIdentifier, nil
	}
	if p.MultiAZ != nil && *p.MultiAZ != deref(db.MultiAZ) {
		db.MultiAZ = p.MultiAZ
		for _, n := range i.Interfaces {
			s.cloud.ec2.dropInterface(s.cloud.ec2.in(i.scope()), n)
		}
		i.Interfaces, db.SecondaryAvailabilityZone = nil, nil
		s.putInterfaces(i)
	}
	db.PendingModifiedValues = &types.PendingModifiedValues{}
	s.becomeAvailable(i)
}

// applySoon carries out what does not wait for the maintenance window: a new password and log exports.
func (s *rdsService) applySoon(i *RDSInstance) {
	p := i.DB.PendingModifiedValues
	if i.NewPassword != "" {
		i.MasterPassword, i.NewPassword, p.MasterUserPassword = i.NewPassword, "", nil
	}
	if l := p.PendingCloudwatchLogsExports; l != nil {
		on := slices.DeleteFunc(slices.Clone(i.DB.EnabledCloudwatchLogsExports), func(k string) bool { return slices.Contains(l.LogTypesToDisable, k) })
		for _, k := range l.LogTypesToEnable {
			if !slices.Contains(on, k) {
				on = append(on, k)
			}
		}
		i.DB.EnabledCloudwatchLogsExports, p.PendingCloudwatchLogsExports = on, nil
		s.deliverLogs(i)
	}
}

// rotateNow rotates the managed password, as RotateSecret does.
func (s *rdsService) rotateNow(i *RDSInstance) {
	if x := s.cloud.platform.sec.byARN(deref(i.DB.MasterUserSecret.SecretArn)); x != nil {
		s.cloud.platform.sec.beginRotation(x, s.cloud.World.UUID())
	}
}
