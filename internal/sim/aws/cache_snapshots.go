package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"
)

func (s *cacheService) checkNewSnapshot(c *reqCtx, name string) error {
	if err := checkCacheIdentifier("SnapshotName", name, 255); err != nil {
		return err
	}
	if s.in(c.scope()).Snapshots[name] != nil {
		return fail(400, "SnapshotAlreadyExistsFault", "Snapshot with specified name already exists.")
	}
	return nil
}

// takeSnapshot records a snapshot of a replication group, taken of its last replica. Its data is not kept.
func (s *cacheService) takeSnapshot(g *CacheGroup, name, source string, tags []types.Tag) *CacheSnapshot {
	v, _ := findCacheVersion(g.engine(), g.Version)
	m := g.Members[len(g.Members)-1]
	n := &CacheSnapshot{Tags: slices.Clone(tags), Created: s.cloud.World.Now(), Snapshot: types.Snapshot{SnapshotName: &name, ARN: new(arn("elasticache", g.Region, g.Account, "snapshot:"+name)),
		ReplicationGroupId: new(g.id()), ReplicationGroupDescription: g.Group.Description, SnapshotStatus: new(statusCreating), SnapshotSource: &source, CacheNodeType: g.Group.CacheNodeType,
		Engine: new(g.engine()), EngineVersion: new(v.Full), NumNodeGroups: new(int32(1)), PreferredMaintenanceWindow: new(g.Window), Port: new(g.Port), CacheParameterGroupName: new(g.Parameters),
		CacheSubnetGroupName: new(g.SubnetGroup), VpcId: new(g.VpcID), AutoMinorVersionUpgrade: g.Group.AutoMinorVersionUpgrade, SnapshotRetentionLimit: g.Group.SnapshotRetentionLimit,
		SnapshotWindow: g.Group.SnapshotWindow, AutomaticFailover: g.Group.AutomaticFailover, DataTiering: types.DataTieringStatusDisabled, KmsKeyId: g.Group.KmsKeyId,
		NodeSnapshots: []types.NodeSnapshot{{CacheClusterId: new(m.ID), CacheNodeId: new("0001"), NodeGroupId: new("0001"), CacheNodeCreateTime: new(g.Created), CacheSize: new("")}}}}
	s.in(g.scope()).Snapshots[name] = n
	s.cloud.after(snapshotTime, "elasticache", "snapshot", g.scope().key()+"|"+name)
	return n
}

func (s *cacheService) finishSnapshot(n *CacheSnapshot) {
	if deref(n.Snapshot.SnapshotStatus) != statusCreating || n.Held {
		return
	}
	n.Snapshot.SnapshotStatus = new(statusAvailable)
	for i := range n.Snapshot.NodeSnapshots {
		n.Snapshot.NodeSnapshots[i].CacheSize, n.Snapshot.NodeSnapshots[i].SnapshotCreateTime = new("4 MB"), new(s.cloud.World.Now())
	}
}

func (s *cacheService) createSnapshot(c *reqCtx, in *elasticache.CreateSnapshotInput) (*elasticache.CreateSnapshotOutput, error) {
	if in.ReplicationGroupId == nil {
		return nil, cacheCombination("Snapshots of single cache clusters are not simulated: name a replication group.")
	}
	g, err := s.group(c, in.ReplicationGroupId)
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(deref(in.SnapshotName))
	if err := s.checkNewSnapshot(c, name); err != nil {
		return nil, err
	}
	if g.status() != statusAvailable {
		return nil, fail(400, "InvalidReplicationGroupState", "Replication group %s is not in available state.", g.id())
	}
	n := s.takeSnapshot(g, name, "manual", in.Tags)
	c.Make(*n.Snapshot.ARN)
	return &elasticache.CreateSnapshotOutput{Snapshot: new(n.Snapshot)}, nil
}

func (s *cacheService) describeSnapshots(c *reqCtx, in *elasticache.DescribeSnapshotsInput) (*elasticache.DescribeSnapshotsOutput, error) {
	all, sc, want := []types.Snapshot{}, s.in(c.scope()), strings.ToLower(deref(in.SnapshotName))
	for _, name := range sortedKeys(sc.Snapshots) {
		n := sc.Snapshots[name]
		if want != "" && want != name || in.ReplicationGroupId != nil && *in.ReplicationGroupId != deref(n.Snapshot.ReplicationGroupId) ||
			in.CacheClusterId != nil && !slices.ContainsFunc(n.Snapshot.NodeSnapshots, func(x types.NodeSnapshot) bool { return deref(x.CacheClusterId) == *in.CacheClusterId }) ||
			in.SnapshotSource != nil && (*in.SnapshotSource == "system") != (deref(n.Snapshot.SnapshotSource) == "automated") ||
			!c.visible(*n.Snapshot.ARN, n.Created, want == "", "cache-snapshot", name) {
			continue
		}
		all = append(all, n.Snapshot)
	}
	if want != "" && len(all) == 0 {
		return nil, fail(404, "SnapshotNotFoundFault", "Snapshot %s not found.", want)
	}
	n := orDefault(in.MaxRecords, 50)
	if n > 50 {
		return nil, cacheInvalid("Invalid value %d for MaxRecords. Must be between 20 and 50", n)
	}
	page, next, err := cachePage(c, all, in.Marker, &n)
	return &elasticache.DescribeSnapshotsOutput{Snapshots: page, Marker: next}, err
}

func (s *cacheService) deleteSnapshot(c *reqCtx, in *elasticache.DeleteSnapshotInput) (*elasticache.DeleteSnapshotOutput, error) {
	name := strings.ToLower(deref(in.SnapshotName))
	n := s.in(c.scope()).Snapshots[name]
	if n == nil {
		return nil, fail(404, "SnapshotNotFoundFault", "Snapshot %s not found.", name)
	}
	c.Touch(*n.Snapshot.ARN)
	if st := deref(n.Snapshot.SnapshotStatus); st != statusAvailable && st != "failed" {
		return nil, fail(400, "InvalidSnapshotState", "Snapshot %s is in state %s and cannot be deleted.", name, st)
	}
	n.Snapshot.SnapshotStatus = new(statusDeleting)
	s.cloud.after(userTime, "elasticache", "snapshot-gone", c.scope().key()+"|"+name)
	return &elasticache.DeleteSnapshotOutput{Snapshot: new(n.Snapshot)}, nil
}
