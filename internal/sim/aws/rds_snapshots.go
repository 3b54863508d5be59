package aws

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

// checkNewSnapshot refuses the name of a snapshot that is about to be taken: its rules are those of an instance, but for its
// length.
func (s *rdsService) checkNewSnapshot(c *reqCtx, parameter, name string) error {
	if err := checkIdentifier(parameter, name, 255); err != nil {
		return err
	}
	sc := s.in(c.scope())
	if sc.Snapshots[name] != nil {
		return fail(400, "DBSnapshotAlreadyExists", "Cannot create the snapshot because a snapshot with the identifier %s already exists.", name)
	}
	manual := 0
	for _, n := range sc.Snapshots {
		if deref(n.Snapshot.SnapshotType) == "manual" {
			manual++
		}
	}
	if float64(manual) >= s.cloud.quota(c.scope(), "rds", quotaDBSnapshots) {
		return fail(400, "SnapshotQuotaExceeded", "Cannot create more than %d manual snapshots", int(s.cloud.quota(c.scope(), "rds", quotaDBSnapshots)))
	}
	return nil
}

// takeSnapshot records a snapshot of an instance. Its data is not kept.
func (s *rdsService) takeSnapshot(i *RDSInstance, name, kind string, tags []types.Tag) *RDSSnapshot {
	now, db := s.cloud.World.Now().Truncate(time.Second), i.DB
	if tags == nil && deref(db.CopyTagsToSnapshot) {
		tags = slices.Clone(db.TagList)
	}
	if tags == nil {
		tags = []types.Tag{}
	}
	n := &RDSSnapshot{Snapshot: types.DBSnapshot{
		DBSnapshotIdentifier: &name, DBSnapshotArn: new(arn("rds", i.Region, i.Account, "snapshot:"+name)), DBInstanceIdentifier: db.DBInstanceIdentifier, DbiResourceId: db.DbiResourceId,
		Engine: db.Engine, EngineVersion: db.EngineVersion, AllocatedStorage: db.AllocatedStorage, Status: new(statusCreating), Port: new(i.AskedPort), AvailabilityZone: db.AvailabilityZone,
		VpcId: db.DBSubnetGroup.VpcId, InstanceCreateTime: db.InstanceCreateTime, MasterUsername: db.MasterUsername, LicenseModel: db.LicenseModel, SnapshotType: &kind,
		OptionGroupName: db.OptionGroupMemberships[0].OptionGroupName, PercentProgress: new(int32(0)), StorageType: db.StorageType, Encrypted: db.StorageEncrypted, KmsKeyId: db.KmsKeyId,
		IAMDatabaseAuthenticationEnabled: db.IAMDatabaseAuthenticationEnabled, TagList: tags, SnapshotTarget: new("region"), OriginalSnapshotCreateTime: &now, Iops: db.Iops,
		StorageThroughput: db.StorageThroughput, DedicatedLogVolume: db.DedicatedLogVolume, StorageEncryptionType: db.StorageEncryptionType,
	}}
	s.in(i.scope()).Snapshots[name] = n
	s.cloud.after(snapshotTime, "rds", "snapshot", i.scope().key()+"|"+name)
	return n
}

// automatedSnapshot is the one that RDS takes of a new instance with backups.
func (s *rdsService) automatedSnapshot(i *RDSInstance) {
	name := "rds:" + i.id() + "-" + s.cloud.World.Now().Format("2006-01-02-15-04")
	n := s.takeSnapshot(i, name, "automated", nil)
	s.finishSnapshot(n)
}

func (s *rdsService) finishSnapshot(n *RDSSnapshot) {
	if deref(n.Snapshot.Status) == statusCreating && !n.Held {
		n.Snapshot.Status, n.Snapshot.PercentProgress, n.Snapshot.SnapshotCreateTime = new(statusAvailable), new(int32(100)), new(s.cloud.World.Now().Truncate(time.Second))
	}
}

func (s *rdsService) snapshotReady(key string) {
	in, name, _ := strings.Cut(key, "|")
	if sc := s.state.Scopes[in]; sc != nil && sc.Snapshots[name] != nil {
		s.finishSnapshot(sc.Snapshots[name])
	}
}

func (s *rdsService) snapshotGone(key string) {
	in, name, _ := strings.Cut(key, "|")
	if sc := s.state.Scopes[in]; sc != nil && sc.Snapshots[name] != nil && deref(sc.Snapshots[name].Snapshot.Status) == statusDeleting {
		delete(sc.Snapshots, name)
	}
}

func (s *rdsService) createSnapshot(c *reqCtx, in *rds.CreateDBSnapshotInput) (*rds.CreateDBSnapshotOutput, error) {
	i, err := s.instance(c, in.DBInstanceIdentifier)
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(deref(in.DBSnapshotIdentifier))
	if err := s.checkNewSnapshot(c, "DBSnapshotIdentifier", name); err != nil {
		return nil, err
	}
	if i.status() != statusAvailable && i.status() != "storage-optimization" {
		return nil, fail(400, "InvalidDBInstanceState", "Cannot create a snapshot because the database instance %s is not currently in the available state.", i.id())
	}
	if err := checkDBTags(in.Tags); err != nil {
		return nil, err
	}
	n := s.takeSnapshot(i, name, "manual", in.Tags)
	c.Make(deref(n.Snapshot.DBSnapshotArn))
	return &rds.CreateDBSnapshotOutput{DBSnapshot: new(n.Snapshot)}, nil
}

func (s *rdsService) snapshot(c *reqCtx, id *string) (*RDSSnapshot, error) {
	name := strings.ToLower(strings.TrimPrefix(deref(id), c.regionalARN("rds", "snapshot:")))
	n := s.in(c.scope()).Snapshots[name]
	if n == nil {
		return nil, fail(404, "DBSnapshotNotFound", "DBSnapshot %s not found.", name)
	}
	c.Touch(deref(n.Snapshot.DBSnapshotArn))
	return n, nil
}

func (s *rdsService) describeSnapshots(c *reqCtx, in *rds.DescribeDBSnapshotsInput) (*rds.DescribeDBSnapshotsOutput, error) {
	all := []types.DBSnapshot{}
	if in.DBSnapshotIdentifier != nil {
		n, err := s.snapshot(c, in.DBSnapshotIdentifier)
		if err != nil {
			return nil, err
		}
		return &rds.DescribeDBSnapshotsOutput{DBSnapshots: []types.DBSnapshot{n.Snapshot}}, nil
	}
	sc := s.in(c.scope())
	for _, name := range sortedKeys(sc.Snapshots) {
		n := sc.Snapshots[name].Snapshot
		if !c.visible(*n.DBSnapshotArn, deref(n.OriginalSnapshotCreateTime), true, "db-snapshot", name) ||
			in.DBInstanceIdentifier != nil && !strings.EqualFold(*in.DBInstanceIdentifier, deref(n.DBInstanceIdentifier)) ||
			in.DbiResourceId != nil && *in.DbiResourceId != deref(n.DbiResourceId) ||
			in.SnapshotType != nil && *in.SnapshotType != deref(n.SnapshotType) ||
			!filtered(in.Filters, map[string]string{"db-instance-id": deref(n.DBInstanceIdentifier), "db-snapshot-id": name, "snapshot-type": deref(n.SnapshotType),
				"engine": deref(n.Engine), "dbi-resource-id": deref(n.DbiResourceId)}) {
			continue
		}
		all = append(all, n)
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeDBSnapshotsOutput{DBSnapshots: page, Marker: next}, err
}

func (s *rdsService) deleteSnapshot(c *reqCtx, in *rds.DeleteDBSnapshotInput) (*rds.DeleteDBSnapshotOutput, error) {
	n, err := s.snapshot(c, in.DBSnapshotIdentifier)
	if err != nil {
		return nil, err
	}
	switch {
	case deref(n.Snapshot.SnapshotType) != "manual":
		return nil, rdsInvalid("The parameter DBSnapshotIdentifier is not a valid identifier. Identifiers must begin with a letter; must contain only ASCII letters, digits, and hyphens; and must not end with a hyphen or contain two consecutive hyphens.")
	case deref(n.Snapshot.Status) != statusAvailable && deref(n.Snapshot.Status) != "failed":
		return nil, fail(400, "InvalidDBSnapshotState", "Cannot delete the snapshot because it is not currently in the available or failed state.")
	}
	shown := n.Snapshot // the answer still shows it available, as recorded
	n.Snapshot.Status = new(statusDeleting)
	s.cloud.after(5*time.Second, "rds", "snapshot-gone", c.scope().key()+"|"+*n.Snapshot.DBSnapshotIdentifier)
	return &rds.DeleteDBSnapshotOutput{DBSnapshot: &shown}, nil
}

func (n *RDSSnapshot) attributes() *types.DBSnapshotAttributesResult {
	values := slices.Clone(n.Shared)
	if values == nil {
		values = []string{}
	}
	return &types.DBSnapshotAttributesResult{DBSnapshotIdentifier: n.Snapshot.DBSnapshotIdentifier,
		DBSnapshotAttributes: []types.DBSnapshotAttribute{{AttributeName: new("restore"), AttributeValues: values}}}
}

func (s *rdsService) describeSnapshotAttributes(c *reqCtx, in *rds.DescribeDBSnapshotAttributesInput) (*rds.DescribeDBSnapshotAttributesOutput, error) {
	n, err := s.snapshot(c, in.DBSnapshotIdentifier)
	if err != nil {
		return nil, err
	}
	return &rds.DescribeDBSnapshotAttributesOutput{DBSnapshotAttributesResult: n.attributes()}, nil
}

func (s *rdsService) modifySnapshotAttribute(c *reqCtx, in *rds.ModifyDBSnapshotAttributeInput) (*rds.ModifyDBSnapshotAttributeOutput, error) {
	n, err := s.snapshot(c, in.DBSnapshotIdentifier)
	if err != nil {
		return nil, err
	}
	if deref(in.AttributeName) != "restore" {
		return nil, rdsInvalid("Invalid attribute name: %s", deref(in.AttributeName))
	}
	if deref(n.Snapshot.Encrypted) && slices.Contains(in.ValuesToAdd, "all") {
		return nil, rdsInvalid("Encrypted snapshots can't be made public.")
	}
	n.Shared = slices.DeleteFunc(n.Shared, func(v string) bool {
		return slices.Contains(in.ValuesToRemove, v) || slices.Contains(in.ValuesToAdd, v)
	})
	n.Shared = append(n.Shared, in.ValuesToAdd...)
	return &rds.ModifyDBSnapshotAttributeOutput{DBSnapshotAttributesResult: n.attributes()}, nil
}
