package aws

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/sim"
)

// cachePlan is what a checked request makes.
type cachePlan struct {
	version  cacheVersion
	subnets  *CacheSubnetGroup
	security []string
	params   string
	nodes    int
}

func (s *cacheService) createGroup(c *reqCtx, in *elasticache.CreateReplicationGroupInput) (*elasticache.CreateReplicationGroupOutput, error) {
	id := strings.ToLower(deref(in.ReplicationGroupId))
	c.Touch(c.regionalARN("elasticache", "replicationgroup:"+id))
	if err := checkCacheIdentifier("ReplicationGroupId", id, 40); err != nil {
		return nil, err
	}
	if sc := s.in(c.scope()); sc.Groups[id] != nil || nameHeld(c, sc.Released, id) {
		return nil, fail(400, "ReplicationGroupAlreadyExists", "Replication group %s already exists.", id)
	}
	plan, err := s.plan(c, in)
	if err != nil {
		return nil, err
	}
	for _, check := range []func(*reqCtx, *elasticache.CreateReplicationGroupInput, cachePlan) error{s.checkFailover, s.checkAccess, s.checkCacheSettings, s.checkRoom} {
		if err := check(c, in, plan); err != nil {
			return nil, err
		}
	}
	g := s.newGroup(c, in, plan)
	s.in(c.scope()).Groups[id] = g
	for _, name := range g.Group.UserGroupIds {
		s.attach(c.scope(), name, id)
	}
	c.Make(g.arn())
	s.cloud.after(dbNetworkTime, "elasticache", "network", g.key())
	s.cloud.after(s.createTime(g), "elasticache", "made", g.key())
	return &elasticache.CreateReplicationGroupOutput{ReplicationGroup: new(g.Group)}, nil
}

// plan finds what a request names.
func (s *cacheService) plan(c *reqCtx, in *elasticache.CreateReplicationGroupInput) (p cachePlan, err error) {
	engine := orText(strings.ToLower(deref(in.Engine)), "redis")
	var ok bool
	if cacheEngines[engine] == "" {
		return p, cacheInvalid("Invalid cache engine name: %s", engine)
	}
	if p.version, ok = findCacheVersion(engine, deref(in.EngineVersion)); !ok {
		return p, cacheCombination("Cannot find version %s for %s", deref(in.EngineVersion), engine)
	}
	if deref(in.ReplicationGroupDescription) == "" {
		return p, cacheInvalid("The parameter ReplicationGroupDescription must be provided and must not be blank.")
	}
	if cacheNodes[deref(in.CacheNodeType)] == 0 {
		return p, cacheInvalid("Invalid Cache Node Type: %s.", deref(in.CacheNodeType))
	}
	if p.params, err = s.parameterGroupFor(c, deref(in.CacheParameterGroupName), p.version); err != nil {
		return p, err
	}
	if p.subnets, err = s.subnetGroupFor(c, deref(in.CacheSubnetGroupName)); err != nil {
		return p, err
	}
	if p.security, err = s.securityFor(c, in.SecurityGroupIds, deref(p.subnets.Group.VpcId)); err != nil {
		return p, err
	}
	switch {
	case deref(in.NumNodeGroups) > 1 || in.ClusterMode == types.ClusterModeEnabled || len(in.NodeGroupConfiguration) > 1:
		return p, cacheInvalid("Replication groups with cluster mode enabled are not simulated.")
	case in.NumCacheClusters != nil && in.ReplicasPerNodeGroup != nil:
		return p, cacheCombination("Cannot specify both NumCacheClusters and ReplicasPerNodeGroup.")
	}
	p.nodes = int(orDefault(in.NumCacheClusters, 1))
	if in.ReplicasPerNodeGroup != nil {
		p.nodes = int(*in.ReplicasPerNodeGroup) + 1
	}
	if p.nodes < 1 || p.nodes > 6 {
		return p, cacheInvalid("NumCacheClusters must be between 1 and 6.")
	}
	return p, nil
}

func (s *cacheService) securityFor(c *reqCtx, ids []string, vpc string) ([]string, error) {
	if len(ids) == 0 {
		return []string{s.cloud.defaultGroup(c.scope(), vpc)}, nil
	}
	for _, id := range ids {
		where, ok := s.cloud.groupVPC(c.scope(), id)
		if !ok {
			return nil, cacheInvalid("The security group '%s' does not exist", id)
		}
		if where != vpc {
			return nil, fail(400, "InvalidVPCNetworkStateFault", "The replication group and the security group %s are in different VPCs: %s and %s.", id, vpc, where)
		}
	}
	return slices.Clone(ids), nil
}

func (s *cacheService) checkFailover(_ *reqCtx, in *elasticache.CreateReplicationGroupInput, p cachePlan) error {
	switch {
	case deref(in.AutomaticFailoverEnabled) && p.nodes < 2:
		return cacheInvalid("When using automatic failover, there must be at least 2 cache clusters in the replication group.")
	case deref(in.MultiAZEnabled) && !deref(in.AutomaticFailoverEnabled):
		return cacheCombination("Must have automatic failover enabled to enable Multi-AZ.")
	case deref(in.MultiAZEnabled) && len(p.subnets.zones()) < 2:
		return cacheInvalid("Multi-AZ needs a cache subnet group with subnets in at least two Availability Zones.")
	case deref(in.AutomaticFailoverEnabled) && strings.HasPrefix(deref(in.CacheNodeType), "cache.t2."):
		return cacheCombination("Automatic failover is not supported for the node type %s with cluster mode disabled.", deref(in.CacheNodeType))
	}
	for _, z := range in.PreferredCacheClusterAZs {
		if !slices.Contains(p.subnets.zones(), z) {
			return fail(400, "InvalidVPCNetworkStateFault", "The cache subnet group has no subnet in the Availability Zone %s.", z)
		}
	}
	return nil
}

// encryptedAtRest: "AtRestEncryptionEnabled" is true by default for Valkey, and false for Redis OSS (CreateReplicationGroup).
func encryptedAtRest(in *elasticache.CreateReplicationGroupInput, engine string) bool {
	return orDefault(in.AtRestEncryptionEnabled, engine == "valkey")
}

// checkAccess refuses access control that the group cannot have ("Role-Based Access Control", "Authenticating with AUTH").
func (s *cacheService) checkAccess(c *reqCtx, in *elasticache.CreateReplicationGroupInput, p cachePlan) error {
	tls := deref(in.TransitEncryptionEnabled)
	switch {
	case in.AuthToken != nil && !tls:
		return cacheCombination("The AUTH token is only supported when encryption-in-transit is enabled.")
	case len(in.UserGroupIds) > 0 && !tls:
		return cacheCombination("User group based access control requires encryption-in-transit to be enabled on the replication group.")
	case in.AuthToken != nil && len(in.UserGroupIds) > 0:
		return cacheCombination("User group based access control can't be used together with an AUTH token.")
	case in.TransitEncryptionMode != "" && !tls:
		return cacheCombination("TransitEncryptionMode can only be set when TransitEncryptionEnabled is true.")
	case in.TransitEncryptionMode == types.TransitEncryptionModePreferred && (in.AuthToken != nil || len(in.UserGroupIds) > 0):
		return cacheCombination("Access control requires the transit encryption mode required.")
	case in.AuthToken != nil:
		return checkAuthToken(*in.AuthToken)
	case in.KmsKeyId != nil && !encryptedAtRest(in, p.version.Engine):
		return cacheCombination("KmsKeyId can only be specified when encryption at rest is enabled.")
	case len(in.UserGroupIds) > 1:
		return cacheInvalid("A replication group can have one user group.")
	}
	for _, name := range in.UserGroupIds {
		if err := s.usable(c, name, p.version.Engine); err != nil {
			return err
		}
	}
	return nil
}

// checkAuthToken: 16 to 128 printable characters, of the special ones only a few.
func checkAuthToken(token string) error {
	if len(token) < 16 || len(token) > 128 || strings.IndexFunc(token, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("!&#$^<>-", r))
	}) >= 0 {
		return cacheInvalid("Invalid AuthToken provided.")
	}
	return nil
}

func (s *cacheService) checkCacheSettings(c *reqCtx, in *elasticache.CreateReplicationGroupInput, _ cachePlan) error {
	if in.KmsKeyId != nil {
		if k := s.cloud.findKey(c.scope(), *in.KmsKeyId); k == nil || k.State != keyEnabled {
			return fail(400, "InvalidKMSKeyFault", "The KMS key supplied is not valid: %s", *in.KmsKeyId)
		}
	}
	if n := deref(in.SnapshotRetentionLimit); n < 0 || n > 35 {
		return cacheInvalid("SnapshotRetentionLimit must be between 0 and 35.")
	}
	if p := orDefault(in.Port, 6379); p < 1 || p > 65535 {
		return cacheInvalid("The port number %d is invalid.", p)
	}
	if err := checkCacheWindows(deref(in.SnapshotWindow), deref(in.PreferredMaintenanceWindow)); err != nil {
		return err
	}
	return checkCacheTags(in.Tags)
}

// checkCacheWindows has the formats of RDS, but an hour as the least length.
func checkCacheWindows(snapshot, maintenance string) error {
	maintenance = strings.ToLower(maintenance)
	switch {
	case snapshot != "" && !backupWindow.MatchString(snapshot):
		return cacheInvalid("Invalid snapshot window format: %s. Should be specified as a range hh24:mi-hh24:mi (24H Clock UTC).", snapshot)
	case snapshot != "" && length(minutes(snapshot[:5]), minutes(snapshot[6:]), 24*60) < 60:
		return cacheInvalid("The snapshot window must be at least 60 minutes.")
	case maintenance != "" && !maintenanceWindow.MatchString(maintenance):
		return cacheInvalid("Invalid maintenance window format: %s. Should be specified as a range ddd:hh24:mi-ddd:hh24:mi (24H Clock UTC).", maintenance)
	case maintenance != "" && length(weekMinutes(maintenance[:9]), weekMinutes(maintenance[10:]), 7*24*60) < 60:
		return cacheInvalid("The maintenance window must be at least 60 minutes.")
	}
	return nil
}

func (s *cacheService) checkRoom(c *reqCtx, in *elasticache.CreateReplicationGroupInput, p cachePlan) error {
	nodes := p.nodes
	for _, g := range s.in(c.scope()).Groups {
		nodes += len(g.Members)
	}
	if float64(nodes) > s.cloud.quota(c.scope(), "elasticache", quotaCacheNodes) {
		return fail(400, "NodeQuotaForCustomerExceeded", "This request would exceed your node quota of %d.", int(s.cloud.quota(c.scope(), "elasticache", quotaCacheNodes)))
	}
	if f := c.w.Take(c.call, sim.FaultCapacity, deref(in.CacheNodeType)+" "+strings.Join(p.subnets.zones(), " ")); f != nil {
		return fail(400, orText(f.Code, "InsufficientCacheClusterCapacity"), "%s", orText(f.Message, "The requested cache node type is not available in the specified Availability Zone."))
	}
	return nil
}

func onOff(on bool) string {
	if on {
		return "enabled"
	}
	return "disabled"
}

// newGroup is the replication group that a request asks for.
func (s *cacheService) newGroup(c *reqCtx, in *elasticache.CreateReplicationGroupInput, p cachePlan) *CacheGroup {
	id := strings.ToLower(*in.ReplicationGroupId)
	rg := types.ReplicationGroup{
		ReplicationGroupId: &id, ARN: new(c.regionalARN("elasticache", "replicationgroup:"+id)), Description: in.ReplicationGroupDescription, Status: new(statusCreating), Engine: &p.version.Engine,
		CacheNodeType: in.CacheNodeType, AutomaticFailover: types.AutomaticFailoverStatus(onOff(deref(in.AutomaticFailoverEnabled))), MultiAZ: types.MultiAZStatus(onOff(deref(in.MultiAZEnabled))),
		AtRestEncryptionEnabled: new(encryptedAtRest(in, p.version.Engine)), TransitEncryptionEnabled: new(deref(in.TransitEncryptionEnabled)), AuthTokenEnabled: new(in.AuthToken != nil),
		SnapshotRetentionLimit: new(deref(in.SnapshotRetentionLimit)), SnapshotWindow: new(orText(deref(in.SnapshotWindow), "08:00-09:00")), AutoMinorVersionUpgrade: new(orDefault(in.AutoMinorVersionUpgrade, true)),
		ClusterEnabled: new(false), ClusterMode: types.ClusterModeDisabled, DataTiering: types.DataTieringStatusDisabled, NetworkType: types.NetworkTypeIpv4, IpDiscovery: types.IpDiscoveryIpv4,
		GlobalReplicationGroupInfo: &types.GlobalReplicationGroupInfo{}, PendingModifiedValues: &types.ReplicationGroupPendingModifiedValues{}, LogDeliveryConfigurations: []types.LogDeliveryConfiguration{},
		UserGroupIds: slices.Clone(in.UserGroupIds), ReplicationGroupCreateTime: new(c.now), MemberClusters: []string{},
	}
	if deref(rg.TransitEncryptionEnabled) {
		rg.TransitEncryptionMode = types.TransitEncryptionMode(orText(string(in.TransitEncryptionMode), "required"))
	}
	if in.KmsKeyId != nil {
		rg.KmsKeyId = new(s.cloud.storageKey(c.scope(), *in.KmsKeyId, "elasticache"))
	}
	g := &CacheGroup{Group: rg, Account: c.account, Region: c.region, UID: c.w.Hex("", 16), Created: c.now, Version: p.version.Version, Parameters: p.params, SubnetGroup: deref(p.subnets.Group.CacheSubnetGroupName),
		VpcID: deref(p.subnets.Group.VpcId), Security: p.security, Window: orText(strings.ToLower(deref(in.PreferredMaintenanceWindow)), "fri:10:00-fri:11:00"), Port: orDefault(in.Port, 6379),
		Host: "master." + id + "." + s.cloud.accountHash(c.scope(), "elasticache", 6) + "." + regions[c.region].zonePrefix + ".cache.amazonaws.com", AuthToken: deref(in.AuthToken), Tags: slices.Clone(in.Tags)}
	for n := range p.nodes {
		sub := p.subnets.spread(n)
		if n < len(in.PreferredCacheClusterAZs) {
			sub = p.subnets.in(in.PreferredCacheClusterAZs[n])
		}
		g.Members = append(g.Members, CacheMember{ID: fmt.Sprintf("%s-%03d", id, n+1), AZ: deref(sub.SubnetAvailabilityZone.Name), SubnetID: deref(sub.SubnetIdentifier)})
		g.Group.MemberClusters = append(g.Group.MemberClusters, g.Members[n].ID)
	}
	return g
}
