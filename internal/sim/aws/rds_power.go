package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

func (s *rdsService) stopInstance(c *reqCtx, in *rds.StopDBInstanceInput) (*rds.StopDBInstanceOutput, error) {
	i, err := s.instance(c, in.DBInstanceIdentifier)
	if err != nil {
		return nil, err
	}
	switch {
	case i.status() != statusAvailable:
		return nil, fail(400, "InvalidDBInstanceState", "Instance %s is not in available state.", i.id())
	case len(i.DB.ReadReplicaDBInstanceIdentifiers) > 0 || i.DB.ReadReplicaSourceDBInstanceIdentifier != nil:
		return nil, fail(400, "InvalidDBInstanceState", "Cannot stop or start a read replica or a DB instance with read replicas: %s", i.id())
	}
	if in.DBSnapshotIdentifier != nil {
		name := strings.ToLower(*in.DBSnapshotIdentifier)
		if err := s.checkNewSnapshot(c, "DBSnapshotIdentifier", name); err != nil {
			return nil, err
		}
		s.takeSnapshot(i, name, "manual", nil)
	}
	i.setStatus(statusStopping)
	i.DB.AutomaticRestartTime = new(c.now.AddDate(0, 0, 7))
	c.Make(i.arn())
	s.cloud.after(dbStopTime, "rds", "stopped", i.key())
	return &rds.StopDBInstanceOutput{DBInstance: new(i.DB)}, nil
}

func (s *rdsService) startInstance(c *reqCtx, in *rds.StartDBInstanceInput) (*rds.StartDBInstanceOutput, error) {
	i, err := s.instance(c, in.DBInstanceIdentifier)
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]string{statusStopped, "inaccessible-encryption-credentials-recoverable", "incompatible-network"}, i.status()) {
		return nil, fail(400, "InvalidDBInstanceState", "Instance %s is not stopped, inaccessible-encryption-credentials-recoverable or incompatible-network, it cannot be started", i.id())
	}
	i.Held, i.DB.AutomaticRestartTime = false, nil
	i.setStatus(statusStarting)
	c.Make(i.arn())
	s.cloud.after(dbStartTime, "rds", "started", i.key())
	return &rds.StartDBInstanceOutput{DBInstance: new(i.DB)}, nil
}

func (s *rdsService) rebootInstance(c *reqCtx, in *rds.RebootDBInstanceInput) (*rds.RebootDBInstanceOutput, error) {
	i, err := s.instance(c, in.DBInstanceIdentifier)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(modifiable, i.status()) {
		return nil, fail(400, "InvalidDBInstanceState", "Instance %s is not in a state in which it can be rebooted: %s", i.id(), i.status())
	}
	if deref(in.ForceFailover) && !deref(i.DB.MultiAZ) {
		return nil, rdsCombination("Cannot force a failover of an instance that is not Multi-AZ: %s", i.id())
	}
	i.setStatus(statusRebooting)
	c.Make(i.arn())
	s.cloud.after(dbRebootTime, "rds", "rebooted", i.key())
	return &rds.RebootDBInstanceOutput{DBInstance: new(i.DB)}, nil
}

func (s *rdsService) createReplica(c *reqCtx, in *rds.CreateDBInstanceReadReplicaInput) (*rds.CreateDBInstanceReadReplicaOutput, error) {
	source, err := s.instance(c, in.SourceDBInstanceIdentifier)
	if err != nil {
		return nil, err
	}
	id := strings.ToLower(deref(in.DBInstanceIdentifier))
	if err := checkIdentifier("DBInstanceIdentifier", id, 63); err != nil {
		return nil, err
	}
	switch {
	case s.in(c.scope()).Instances[id] != nil:
		return nil, fail(400, "DBInstanceAlreadyExists", "DB instance already exists")
	case source.status() != statusAvailable:
		return nil, fail(400, "InvalidDBInstanceState", "The source instance %s is not in available state.", source.id())
	case deref(source.DB.BackupRetentionPeriod) == 0:
		return nil, fail(400, "InvalidDBInstanceState", "Automated backups are not enabled for this database instance. To enable automated backups, use ModifyDBInstance to set the backup retention period to a non-zero value.")
	case float64(len(source.DB.ReadReplicaDBInstanceIdentifiers)) >= s.cloud.quota(c.scope(), "rds", quotaDBReplicas):
		return nil, fail(400, "InstanceQuotaExceeded", "The source instance %s has too many read replicas.", source.id())
	}
	version, _ := findDBVersion(source.engine(), deref(source.DB.EngineVersion))
	class, err := s.class(c.region, orText(deref(in.DBInstanceClass), deref(source.DB.DBInstanceClass)), version)
	if err != nil {
		return nil, err
	}
	plan := dbPlan{version: version, class: class, subnets: &RDSSubnetGroup{Group: *source.DB.DBSubnetGroup}, params: orText(strings.ToLower(deref(in.DBParameterGroupName)), source.parameterGroup())}
	if plan.groups, err = s.groupsFor(c, in.VpcSecurityGroupIds, deref(source.DB.DBSubnetGroup.VpcId)); err != nil {
		return nil, err
	}
	if plan.zone, err = zoneOf(c, plan.subnets, deref(in.AvailabilityZone), deref(in.MultiAZ)); err != nil {
		return nil, err
	}
	if err := s.checkDBCapacity(c, plan, deref(source.DB.AllocatedStorage)); err != nil {
		return nil, err
	}
	i := s.newInstance(c, &rds.CreateDBInstanceInput{DBInstanceIdentifier: &id, DBInstanceClass: &class.Name, AllocatedStorage: source.DB.AllocatedStorage, StorageType: source.DB.StorageType,
		StorageEncrypted: source.DB.StorageEncrypted, KmsKeyId: source.DB.KmsKeyId, MasterUsername: source.DB.MasterUsername, DBName: source.DB.DBName, BackupRetentionPeriod: new(int32(0)),
		MultiAZ: in.MultiAZ, PubliclyAccessible: new(deref(in.PubliclyAccessible)), CopyTagsToSnapshot: in.CopyTagsToSnapshot, DeletionProtection: in.DeletionProtection, Tags: in.Tags, Port: new(source.AskedPort),
		EnableCloudwatchLogsExports: in.EnableCloudwatchLogsExports, EnableIAMDatabaseAuthentication: in.EnableIAMDatabaseAuthentication, MasterUserPassword: &source.MasterPassword}, plan)
	i.DB.ReadReplicaSourceDBInstanceIdentifier, i.DB.PendingModifiedValues = new(source.id()), &types.PendingModifiedValues{}
	s.in(c.scope()).Instances[id] = i
	source.DB.ReadReplicaDBInstanceIdentifiers = append(source.DB.ReadReplicaDBInstanceIdentifiers, id)
	c.Make(i.arn())
	s.beginCreation(i)
	return &rds.CreateDBInstanceReadReplicaOutput{DBInstance: new(i.DB)}, nil
}

// forgetReplica cuts the ties of an instance that goes: its replicas become instances of their own.
func (s *rdsService) forgetReplica(i *RDSInstance) {
	for _, o := range s.in(i.scope()).Instances {
		o.DB.ReadReplicaDBInstanceIdentifiers = slices.DeleteFunc(o.DB.ReadReplicaDBInstanceIdentifiers, func(id string) bool { return id == i.id() })
		if deref(o.DB.ReadReplicaSourceDBInstanceIdentifier) == i.id() {
			o.DB.ReadReplicaSourceDBInstanceIdentifier = nil
		}
	}
}

func (s *rdsService) promoteReplica(c *reqCtx, in *rds.PromoteReadReplicaInput) (*rds.PromoteReadReplicaOutput, error) {
	i, err := s.instance(c, in.DBInstanceIdentifier)
	if err != nil {
		return nil, err
	}
	if i.DB.ReadReplicaSourceDBInstanceIdentifier == nil {
		return nil, fail(400, "InvalidDBInstanceState", "DB Instance is not a read replica: %s", i.id())
	}
	for _, o := range s.in(i.scope()).Instances {
		o.DB.ReadReplicaDBInstanceIdentifiers = slices.DeleteFunc(o.DB.ReadReplicaDBInstanceIdentifiers, func(id string) bool { return id == i.id() })
	}
	i.DB.ReadReplicaSourceDBInstanceIdentifier = nil
	i.DB.BackupRetentionPeriod = new(orDefault(in.BackupRetentionPeriod, 1))
	s.beginChange(i)
	return &rds.PromoteReadReplicaOutput{DBInstance: new(i.DB)}, nil
}
