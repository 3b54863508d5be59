package aws

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"
)

func (s *cacheService) modifyGroup(c *reqCtx, in *elasticache.ModifyReplicationGroupInput) (*elasticache.ModifyReplicationGroupOutput, error) {
	g, err := s.group(c, in.ReplicationGroupId)
	if err != nil {
		return nil, err
	}
	if g.status() != statusAvailable {
		return nil, fail(400, "InvalidReplicationGroupState", "Replication group must be in available state to modify.")
	}
	if err := s.checkChange(c, g, in); err != nil {
		return nil, err
	}
	rg := &g.Group
	set(&rg.Description, in.ReplicationGroupDescription)
	set(&rg.AutoMinorVersionUpgrade, in.AutoMinorVersionUpgrade)
	set(&rg.SnapshotRetentionLimit, in.SnapshotRetentionLimit)
	set(&rg.SnapshotWindow, in.SnapshotWindow)
	if in.PreferredMaintenanceWindow != nil {
		g.Window = strings.ToLower(*in.PreferredMaintenanceWindow)
	}
	if in.CacheParameterGroupName != nil {
		g.Parameters = *in.CacheParameterGroupName
	}
	if len(in.SecurityGroupIds) > 0 {
		g.Security = slices.Clone(in.SecurityGroupIds)
		for _, m := range g.Members {
			s.cloud.setInterfaceGroups(g.scope(), m.InterfaceID, g.Security)
		}
	}
	g.Next = CacheChange{NodeType: deref(in.CacheNodeType), Version: deref(in.EngineVersion), AuthToken: deref(in.AuthToken), Failover: in.AutomaticFailoverEnabled, MultiAZ: in.MultiAZEnabled,
		AddUserGroups: in.UserGroupIdsToAdd, DropUserGroups: in.UserGroupIdsToRemove}
	if deref(in.RemoveUserGroups) {
		g.Next.DropUserGroups = slices.Clone(rg.UserGroupIds)
	}
	if len(g.Next.AddUserGroups)+len(g.Next.DropUserGroups) > 0 {
		rg.PendingModifiedValues.UserGroups = &types.UserGroupsUpdateStatus{UserGroupIdsToAdd: g.Next.AddUserGroups, UserGroupIdsToRemove: g.Next.DropUserGroups}
	}
	g.setStatus(statusModifying)
	c.Make(g.arn())
	s.cloud.after(cacheModifyTime, "elasticache", "changed", g.key())
	return &elasticache.ModifyReplicationGroupOutput{ReplicationGroup: new(g.Group)}, nil
}

// checkChange refuses a change that the group cannot have.
func (s *cacheService) checkChange(c *reqCtx, g *CacheGroup, in *elasticache.ModifyReplicationGroupInput) error {
	failover := g.Group.AutomaticFailover == types.AutomaticFailoverStatusEnabled
	if in.AutomaticFailoverEnabled != nil {
		failover = *in.AutomaticFailoverEnabled
	}
	switch {
	case in.CacheNodeType != nil && cacheNodes[*in.CacheNodeType] == 0:
		return cacheInvalid("Invalid Cache Node Type: %s.", *in.CacheNodeType)
	case failover && len(g.Members) < 2:
		return cacheInvalid("When using automatic failover, there must be at least 2 cache clusters in the replication group.")
	case deref(in.MultiAZEnabled) && !failover:
		return cacheCombination("Must have automatic failover enabled to enable Multi-AZ.")
	case deref(in.SnapshotRetentionLimit) < 0 || deref(in.SnapshotRetentionLimit) > 35:
		return cacheInvalid("SnapshotRetentionLimit must be between 0 and 35.")
	case in.AuthToken != nil && !deref(g.Group.TransitEncryptionEnabled), len(in.UserGroupIdsToAdd) > 0 && !deref(g.Group.TransitEncryptionEnabled):
		return cacheCombination("User group based access control requires encryption-in-transit to be enabled on the replication group.")
	}
	if v := deref(in.EngineVersion); v != "" {
		next, ok := findCacheVersion(orText(deref(in.Engine), g.engine()), v)
		have, _ := findCacheVersion(g.engine(), g.Version)
		if !ok {
			return cacheCombination("Cannot find version %s for %s", v, g.engine())
		}
		if next.Engine == have.Engine && slices.Index(cacheVersions, next) < slices.Index(cacheVersions, have) {
			return cacheInvalid("Downgrading the engine version from %s to %s is not supported.", have.Version, next.Version)
		}
	}
	for _, id := range in.UserGroupIdsToAdd {
		if err := s.usable(c, id, g.engine()); err != nil {
			return err
		}
	}
	for _, id := range in.UserGroupIdsToRemove {
		if !g.hasUserGroup(id) {
			return fail(404, "UserGroupNotFound", "User group %s is not associated with replication group %s.", id, g.id())
		}
	}
	if len(in.SecurityGroupIds) > 0 {
		if _, err := s.securityFor(c, in.SecurityGroupIds, g.VpcID); err != nil {
			return err
		}
	}
	if in.AuthToken != nil {
		if err := checkAuthToken(*in.AuthToken); err != nil {
			return err
		}
	}
	return checkCacheWindows(deref(in.SnapshotWindow), deref(in.PreferredMaintenanceWindow))
}

// applyChange carries out what a modification asked for.
func (s *cacheService) applyChange(g *CacheGroup) {
	n, rg := g.Next, &g.Group
	if n.NodeType != "" {
		rg.CacheNodeType = &n.NodeType
	}
	if v, ok := findCacheVersion(g.engine(), n.Version); ok && n.Version != "" {
		g.Version = v.Version
	}
	if n.AuthToken != "" {
		g.AuthToken, rg.AuthTokenEnabled = n.AuthToken, new(true)
	}
	if n.Failover != nil {
		rg.AutomaticFailover = types.AutomaticFailoverStatus(onOff(*n.Failover))
	}
	if n.MultiAZ != nil {
		rg.MultiAZ = types.MultiAZStatus(onOff(*n.MultiAZ))
	}
	for _, id := range n.DropUserGroups {
		rg.UserGroupIds = slices.DeleteFunc(rg.UserGroupIds, func(have string) bool { return have == id })
		s.detach(g.scope(), id, g.id())
	}
	for _, id := range n.AddUserGroups {
		rg.UserGroupIds = append(rg.UserGroupIds, id)
		s.attach(g.scope(), id, g.id())
	}
	g.Next, rg.PendingModifiedValues = CacheChange{}, &types.ReplicationGroupPendingModifiedValues{}
}

func (s *cacheService) deleteGroup(c *reqCtx, in *elasticache.DeleteReplicationGroupInput) (*elasticache.DeleteReplicationGroupOutput, error) {
	g, err := s.group(c, in.ReplicationGroupId)
	if err != nil {
		return nil, err
	}
	final := strings.ToLower(deref(in.FinalSnapshotIdentifier))
	switch {
	case g.status() == statusDeleting:
		return nil, fail(400, "InvalidReplicationGroupState", "Replication group %s has status deleting which is not valid for deletion.", g.id())
	case g.status() == statusCreating || g.status() == statusModifying || g.status() == "snapshotting":
		return nil, fail(400, "InvalidReplicationGroupState", "Replication group %s has status %s which is not valid for deletion.", g.id(), g.status())
	case deref(in.RetainPrimaryCluster):
		return nil, cacheInvalid("RetainPrimaryCluster is not simulated.")
	case final != "" && g.status() == "create-failed":
		return nil, fail(400, "InvalidReplicationGroupState", "Replication group %s has status create-failed: a final snapshot cannot be taken.", g.id())
	}
	wait := 3*time.Minute + time.Duration(c.w.Fraction("cache delete", g.arn())*float64(2*time.Minute))
	if final != "" {
		if err := s.checkNewSnapshot(c, final); err != nil {
			return nil, err
		}
		s.takeSnapshot(g, final, "manual", g.Tags)
		wait += snapshotTime
	}
	g.Held = false
	g.setStatus(statusDeleting)
	c.Make(g.arn())
	s.cloud.after(wait, "elasticache", "gone", g.key())
	shown := g.Group
	shown.MemberClusters, shown.NodeGroups = nil, nil // as recorded: a group on its way out shows neither
	g.Group.NodeGroups, g.Group.MemberClusters = nil, nil
	return &elasticache.DeleteReplicationGroupOutput{ReplicationGroup: &shown}, nil
}
