package aws

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

// unsnappable are the statuses in which an instance cannot be deleted with a final snapshot: there is nothing that could be
// backed up ("DeleteDBInstance": failed, incompatible-restore, incompatible-network need SkipFinalSnapshot).
var unsnappable = []string{statusCreating, "failed", "incompatible-restore", "incompatible-network"}

func (s *rdsService) deleteInstance(c *reqCtx, in *rds.DeleteDBInstanceInput) (*rds.DeleteDBInstanceOutput, error) {
	i, err := s.instance(c, in.DBInstanceIdentifier)
	if err != nil {
		return nil, err
	}
	skip, final := deref(in.SkipFinalSnapshot), strings.ToLower(deref(in.FinalDBSnapshotIdentifier))
	replica := i.DB.ReadReplicaSourceDBInstanceIdentifier != nil
	switch {
	case i.status() == statusDeleting:
		return nil, fail(400, "InvalidDBInstanceState", "Instance %s is already being deleted.", i.id())
	case deref(i.DB.DeletionProtection):
		return nil, rdsCombination("Cannot delete protected DB Instance, please disable deletion protection and try again.")
	case replica && final != "":
		// https://github.com/hashicorp/terraform-provider-aws/issues/4615
		return nil, rdsCombination("FinalDBSnapshotIdentifier can not be specified when deleting a replica instance")
	case skip && final != "":
		return nil, rdsCombination("FinalDBSnapshotIdentifier can not be specified when SkipFinalSnapshot is true")
	case !skip && final == "" && !replica:
		return nil, rdsCombination("FinalDBSnapshotIdentifier is required unless SkipFinalSnapshot is specified.")
	}
	if final != "" {
		if err := s.checkFinal(c, i, final); err != nil {
			return nil, err
		}
	}
	i.Held, i.DropBackups, i.Final = false, orDefault(in.DeleteAutomatedBackups, true), final
	i.setStatus(statusDeleting)
	wait := 3*time.Minute + time.Duration(c.w.Fraction("rds delete", i.arn())*float64(2*time.Minute))
	if final != "" {
		s.takeSnapshot(i, final, "manual", nil)
		wait += snapshotTime
	}
	c.Make(i.arn())
	s.cloud.after(wait, "rds", "gone", i.key())
	return &rds.DeleteDBInstanceOutput{DBInstance: new(i.DB)}, nil
}

// checkFinal refuses a final snapshot that cannot be taken.
func (s *rdsService) checkFinal(c *reqCtx, i *RDSInstance, name string) error {
	if slices.Contains(unsnappable, i.status()) {
		return fail(400, "InvalidDBInstanceState", "Instance %s is currently %s - a final snapshot cannot be taken.", i.id(), i.status())
	}
	return s.checkNewSnapshot(c, "FinalDBSnapshotIdentifier", name)
}

// retainBackups keeps the automated backups of a deleted instance until they are as old as they may get ("Retaining automated
// backups").
func (s *rdsService) retainBackups(i *RDSInstance) {
	now := s.cloud.World.Now()
	b := s.backupOf(i)
	b.Status = new("retained")
	until := now.AddDate(0, 0, int(deref(i.DB.BackupRetentionPeriod)))
	s.in(i.scope()).Backups[deref(i.DB.DbiResourceId)] = &RDSBackup{Backup: b, Until: until}
	s.cloud.after(until.Sub(now), "rds", "backup-expired", i.key())
}

func (s *rdsService) backupExpired(key string) {
	in, id, _ := strings.Cut(key, "|")
	if sc := s.state.Scopes[in]; sc != nil {
		delete(sc.Backups, id)
	}
}

// backupOf describes the automated backups of an instance.
func (s *rdsService) backupOf(i *RDSInstance) types.DBInstanceAutomatedBackup {
	db := i.DB
	b := types.DBInstanceAutomatedBackup{
		DBInstanceArn: db.DBInstanceArn, DbiResourceId: db.DbiResourceId, Region: &i.Region, DBInstanceIdentifier: db.DBInstanceIdentifier, AllocatedStorage: db.AllocatedStorage,
		Status: new("active"), Port: new(i.AskedPort), AvailabilityZone: db.AvailabilityZone, VpcId: db.DBSubnetGroup.VpcId, InstanceCreateTime: db.InstanceCreateTime,
		MasterUsername: db.MasterUsername, Engine: db.Engine, EngineVersion: db.EngineVersion, LicenseModel: db.LicenseModel, OptionGroupName: new(deref(db.OptionGroupMemberships[0].OptionGroupName)),
		Encrypted: db.StorageEncrypted, StorageType: db.StorageType, KmsKeyId: db.KmsKeyId, IAMDatabaseAuthenticationEnabled: db.IAMDatabaseAuthenticationEnabled,
		BackupRetentionPeriod: db.BackupRetentionPeriod, BackupTarget: new("region"), TagList: db.TagList,
		DBInstanceAutomatedBackupsArn: new(arn("rds", i.Region, i.Account, "auto-backup:ab-"+strings.ToLower(strings.TrimPrefix(deref(db.DbiResourceId), "db-")))),
		RestoreWindow:                 &types.RestoreWindow{EarliestTime: db.InstanceCreateTime, LatestTime: db.LatestRestorableTime},
	}
	return b
}

func (s *rdsService) describeBackups(c *reqCtx, in *rds.DescribeDBInstanceAutomatedBackupsInput) (*rds.DescribeDBInstanceAutomatedBackupsOutput, error) {
	all := []types.DBInstanceAutomatedBackup{}
	sc := s.in(c.scope())
	for _, id := range sortedKeys(sc.Instances) {
		if i := sc.Instances[id]; deref(i.DB.BackupRetentionPeriod) > 0 && i.DB.InstanceCreateTime != nil && c.visible(i.arn(), i.Requested, true, "db-instance", id) {
			all = append(all, s.backupOf(i))
		}
	}
	for _, id := range sortedKeys(sc.Backups) {
		all = append(all, sc.Backups[id].Backup)
	}
	all = slices.DeleteFunc(all, func(b types.DBInstanceAutomatedBackup) bool {
		return in.DBInstanceIdentifier != nil && !strings.EqualFold(*in.DBInstanceIdentifier, deref(b.DBInstanceIdentifier)) ||
			in.DbiResourceId != nil && *in.DbiResourceId != deref(b.DbiResourceId) ||
			in.DBInstanceAutomatedBackupsArn != nil && *in.DBInstanceAutomatedBackupsArn != deref(b.DBInstanceAutomatedBackupsArn) ||
			!filtered(in.Filters, map[string]string{"status": deref(b.Status), "db-instance-id": deref(b.DBInstanceIdentifier), "dbi-resource-id": deref(b.DbiResourceId)})
	})
	if len(all) == 0 && (in.DbiResourceId != nil || in.DBInstanceAutomatedBackupsArn != nil) {
		return nil, fail(404, "DBInstanceAutomatedBackupNotFound", "No automated backup for DB instance %s found.", deref(in.DbiResourceId)+deref(in.DBInstanceAutomatedBackupsArn))
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeDBInstanceAutomatedBackupsOutput{DBInstanceAutomatedBackups: page, Marker: next}, err
}

// filtered says whether an object has one of the values of every filter that it has the name of.
func filtered(filters []types.Filter, has map[string]string) bool {
	for _, f := range filters {
		if v, ok := has[deref(f.Name)]; ok && !slices.ContainsFunc(f.Values, func(w string) bool { return strings.EqualFold(v, w) }) {
			return false
		}
	}
	return true
}

func (s *rdsService) deleteBackup(c *reqCtx, in *rds.DeleteDBInstanceAutomatedBackupInput) (*rds.DeleteDBInstanceAutomatedBackupOutput, error) {
	sc := s.in(c.scope())
	for _, id := range sortedKeys(sc.Backups) {
		b := sc.Backups[id]
		if id == deref(in.DbiResourceId) || deref(b.Backup.DBInstanceAutomatedBackupsArn) == deref(in.DBInstanceAutomatedBackupsArn) {
			delete(sc.Backups, id)
			c.Touch(deref(b.Backup.DBInstanceAutomatedBackupsArn))
			gone := b.Backup
			gone.Status = new(statusDeleting)
			return &rds.DeleteDBInstanceAutomatedBackupOutput{DBInstanceAutomatedBackup: &gone}, nil
		}
	}
	for _, i := range sc.Instances {
		if deref(i.DB.DbiResourceId) == deref(in.DbiResourceId) {
			return nil, fail(400, "InvalidDBInstanceAutomatedBackupState", "Cannot delete the automated backup of an instance that has not been deleted.")
		}
	}
	return nil, fail(404, "DBInstanceAutomatedBackupNotFound", "No automated backup for DB instance %s found.", deref(in.DbiResourceId)+deref(in.DBInstanceAutomatedBackupsArn))
}
