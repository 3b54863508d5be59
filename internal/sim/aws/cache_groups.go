package aws

import (
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"
)

// cacheSubnetName: "Must contain no more than 255 alphanumeric characters or hyphens" (CreateCacheSubnetGroup).
var cacheSubnetName = regexp.MustCompile(`^[a-zA-Z0-9-]{1,255}$`)

func (s *cacheService) createSubnetGroup(c *reqCtx, in *elasticache.CreateCacheSubnetGroupInput) (*elasticache.CreateCacheSubnetGroupOutput, error) {
	name := strings.ToLower(deref(in.CacheSubnetGroupName))
	sc := s.in(c.scope())
	switch {
	case !cacheSubnetName.MatchString(name) || name == "default":
		return nil, cacheInvalid("The parameter CacheSubnetGroupName must be provided, must not be default, and must contain only alphanumeric characters or hyphens.")
	case deref(in.CacheSubnetGroupDescription) == "":
		return nil, cacheInvalid("The parameter CacheSubnetGroupDescription must be provided and must not be blank.")
	case sc.SubnetGroups[name] != nil:
		return nil, fail(400, "CacheSubnetGroupAlreadyExists", "Cache subnet group %s already exists.", name)
	case len(in.SubnetIds) == 0:
		return nil, cacheInvalid("The parameter SubnetIds must be provided and must not be blank.")
	case len(sc.SubnetGroups) >= 150:
		return nil, fail(400, "CacheSubnetGroupQuotaExceeded", "Cannot create more than 150 cache subnet groups.")
	}
	if err := checkCacheTags(in.Tags); err != nil {
		return nil, err
	}
	g := &CacheSubnetGroup{Created: c.now, Tags: slices.Clone(in.Tags), Group: types.CacheSubnetGroup{CacheSubnetGroupName: &name, CacheSubnetGroupDescription: in.CacheSubnetGroupDescription,
		ARN: new(c.regionalARN("elasticache", "subnetgroup:"+name)), SupportedNetworkTypes: []types.NetworkType{types.NetworkTypeIpv4}}}
	for _, id := range in.SubnetIds {
		n, ok := s.cloud.subnet(c.scope(), id)
		if !ok {
			return nil, fail(400, "InvalidSubnet", "The subnet ID '%s' does not exist.", id)
		}
		if g.Group.VpcId != nil && *g.Group.VpcId != n.VpcID {
			return nil, fail(400, "InvalidSubnet", "The subnets are not in the same VPC: %s", strings.Join(in.SubnetIds, ", "))
		}
		g.Group.VpcId = &n.VpcID
		g.Group.Subnets = append(g.Group.Subnets, cacheSubnet(id, n.AZ))
	}
	sc.SubnetGroups[name] = g
	c.Make(*g.Group.ARN)
	return &elasticache.CreateCacheSubnetGroupOutput{CacheSubnetGroup: new(g.Group)}, nil
}

func cacheSubnet(id, zone string) types.Subnet {
	return types.Subnet{SubnetIdentifier: &id, SubnetAvailabilityZone: &types.AvailabilityZone{Name: &zone}, SupportedNetworkTypes: []types.NetworkType{types.NetworkTypeIpv4}}
}

// zones are the availability zones that a group covers, in the order of its subnets.
func (g *CacheSubnetGroup) zones() []string {
	var out []string
	for _, n := range g.Group.Subnets {
		if z := deref(n.SubnetAvailabilityZone.Name); !slices.Contains(out, z) {
			out = append(out, z)
		}
	}
	return out
}

// spread is the subnet of the nth node: the zones take turns.
func (g *CacheSubnetGroup) spread(n int) types.Subnet {
	zones := g.zones()
	return g.in(zones[n%len(zones)])
}

// in is the first subnet in a zone.
func (g *CacheSubnetGroup) in(zone string) types.Subnet {
	i := slices.IndexFunc(g.Group.Subnets, func(n types.Subnet) bool { return deref(n.SubnetAvailabilityZone.Name) == zone })
	return g.Group.Subnets[max(i, 0)]
}

// subnetGroupFor finds the group of a new replication group; without a name it is the one of the default VPC.
func (s *cacheService) subnetGroupFor(c *reqCtx, name string) (*CacheSubnetGroup, error) {
	name = orText(strings.ToLower(name), "default")
	if g := s.in(c.scope()).SubnetGroups[name]; g != nil {
		c.Touch(*g.Group.ARN)
		return g, nil
	}
	g := &CacheSubnetGroup{Created: c.now, Group: types.CacheSubnetGroup{CacheSubnetGroupName: &name}}
	sc := s.cloud.ec2.in(c.scope())
	for _, n := range inOrder(sc.Subnets) {
		if v := sc.Vpcs[n.VpcID]; name == "default" && v != nil && v.IsDefault {
			g.Group.VpcId = &v.VpcID
			g.Group.Subnets = append(g.Group.Subnets, cacheSubnet(n.SubnetID, n.Zone))
		}
	}
	if len(g.Group.Subnets) == 0 {
		return nil, fail(400, "CacheSubnetGroupNotFoundFault", "Cache Subnet Group %s does not exist.", name)
	}
	return g, nil
}

func (s *cacheService) describeSubnetGroups(c *reqCtx, in *elasticache.DescribeCacheSubnetGroupsInput) (*elasticache.DescribeCacheSubnetGroupsOutput, error) {
	want, sc := strings.ToLower(deref(in.CacheSubnetGroupName)), s.in(c.scope())
	all := []types.CacheSubnetGroup{}
	for _, name := range sortedKeys(sc.SubnetGroups) {
		g := sc.SubnetGroups[name]
		if (want == "" || want == name) && c.visible(*g.Group.ARN, g.Created, want == "", "cache-subnet-group", name, mapValues(cacheTags(g.Tags))) {
			all = append(all, g.Group)
		}
	}
	if want != "" && len(all) == 0 {
		return nil, fail(400, "CacheSubnetGroupNotFoundFault", "Cache Subnet Group %s does not exist.", want)
	}
	page, next, err := cachePage(c, all, in.Marker, in.MaxRecords)
	return &elasticache.DescribeCacheSubnetGroupsOutput{CacheSubnetGroups: page, Marker: next}, err
}

func (s *cacheService) deleteSubnetGroup(c *reqCtx, in *elasticache.DeleteCacheSubnetGroupInput) (*elasticache.DeleteCacheSubnetGroupOutput, error) {
	name, sc := strings.ToLower(deref(in.CacheSubnetGroupName)), s.in(c.scope())
	g := sc.SubnetGroups[name]
	if g == nil {
		return nil, fail(400, "CacheSubnetGroupNotFoundFault", "Cache Subnet Group %s does not exist.", name)
	}
	c.Touch(*g.Group.ARN)
	for _, u := range sc.Groups {
		if u.SubnetGroup == name {
			return nil, fail(400, "CacheSubnetGroupInUse", "Cache subnet group %s is currently in use by a cache cluster.", name)
		}
	}
	delete(sc.SubnetGroups, name)
	return &elasticache.DeleteCacheSubnetGroupOutput{}, nil
}

func (s *cacheService) describeGroups(c *reqCtx, in *elasticache.DescribeReplicationGroupsInput) (*elasticache.DescribeReplicationGroupsOutput, error) {
	if deref(in.ReplicationGroupId) != "" {
		g, err := s.group(c, in.ReplicationGroupId)
		if err != nil {
			return nil, err
		}
		return &elasticache.DescribeReplicationGroupsOutput{ReplicationGroups: []types.ReplicationGroup{g.Group}}, nil
	}
	all, sc := []types.ReplicationGroup{}, s.in(c.scope())
	for _, id := range sortedKeys(sc.Groups) {
		if g := sc.Groups[id]; c.visible(g.arn(), g.Created, true, "replication-group", id, mapValues(cacheTags(g.Tags))) {
			all = append(all, g.Group)
		}
	}
	page, next, err := cachePage(c, all, in.Marker, in.MaxRecords)
	return &elasticache.DescribeReplicationGroupsOutput{ReplicationGroups: page, Marker: next}, err
}

func noCluster(id string) error {
	return fail(404, "CacheClusterNotFound", "CacheCluster not found: %s", id)
}

// describeClusters shows the nodes of replication groups, each as a cluster of its own.
func (s *cacheService) describeClusters(c *reqCtx, in *elasticache.DescribeCacheClustersInput) (*elasticache.DescribeCacheClustersOutput, error) {
	all, sc, want := []types.CacheCluster{}, s.in(c.scope()), strings.ToLower(deref(in.CacheClusterId))
	for _, id := range sortedKeys(sc.Groups) {
		g := sc.Groups[id]
		if deref(in.ShowCacheClustersNotInReplicationGroups) || !c.visible(g.arn(), g.Created, want == "", "replication-group", id) {
			continue
		}
		for _, m := range g.Members {
			if want == "" || want == m.ID {
				all = append(all, g.cluster(m, deref(in.ShowCacheNodeInfo)))
			}
		}
	}
	if want != "" && len(all) == 0 {
		return nil, noCluster(want)
	}
	page, next, err := cachePage(c, all, in.Marker, in.MaxRecords)
	return &elasticache.DescribeCacheClustersOutput{CacheClusters: page, Marker: next}, err
}

func (g *CacheGroup) cluster(m CacheMember, nodes bool) types.CacheCluster {
	v, _ := findCacheVersion(g.engine(), g.Version)
	out := types.CacheCluster{CacheClusterId: &m.ID, ARN: new(arn("elasticache", g.Region, g.Account, "cluster:"+m.ID)), ReplicationGroupId: new(g.id()), CacheClusterStatus: new(g.status()),
		CacheNodeType: g.Group.CacheNodeType, Engine: new(g.engine()), EngineVersion: new(v.Full), NumCacheNodes: new(int32(1)), PreferredAvailabilityZone: &m.AZ, PreferredMaintenanceWindow: new(g.Window),
		CacheSubnetGroupName: new(g.SubnetGroup), CacheParameterGroup: &types.CacheParameterGroupStatus{CacheParameterGroupName: new(g.Parameters), ParameterApplyStatus: new("in-sync"), CacheNodeIdsToReboot: []string{}},
		AutoMinorVersionUpgrade: g.Group.AutoMinorVersionUpgrade, SnapshotRetentionLimit: new(int32(0)), SnapshotWindow: g.Group.SnapshotWindow, AuthTokenEnabled: g.Group.AuthTokenEnabled,
		TransitEncryptionEnabled: g.Group.TransitEncryptionEnabled, TransitEncryptionMode: g.Group.TransitEncryptionMode, AtRestEncryptionEnabled: g.Group.AtRestEncryptionEnabled,
		CacheSecurityGroups: []types.CacheSecurityGroupMembership{}, PendingModifiedValues: &types.PendingModifiedValues{}, LogDeliveryConfigurations: []types.LogDeliveryConfiguration{},
		ClientDownloadLandingPage: new("https://console.aws.amazon.com/elasticache/home#client-download:"), ReplicationGroupLogDeliveryEnabled: new(false), NetworkType: types.NetworkTypeIpv4, IpDiscovery: types.IpDiscoveryIpv4}
	if g.status() != statusCreating {
		out.CacheClusterCreateTime = new(g.Created)
	}
	if deref(g.Group.SnapshottingClusterId) == m.ID {
		out.SnapshotRetentionLimit = g.Group.SnapshotRetentionLimit
	}
	for _, id := range g.Security {
		out.SecurityGroups = append(out.SecurityGroups, types.SecurityGroupMembership{SecurityGroupId: &id, Status: new("active")})
	}
	if nodes && len(g.Group.NodeGroups) > 0 {
		out.CacheNodes = []types.CacheNode{{CacheNodeId: new("0001"), CacheNodeStatus: new(g.status()), CacheNodeCreateTime: new(g.Created), Endpoint: g.Group.NodeGroups[0].PrimaryEndpoint,
			ParameterGroupStatus: new("in-sync"), CustomerAvailabilityZone: &m.AZ}}
	}
	return out
}

// deleteCluster refuses: a node goes with its replication group, or by a change of the number of replicas.
func (s *cacheService) deleteCluster(c *reqCtx, in *elasticache.DeleteCacheClusterInput) (*elasticache.DeleteCacheClusterOutput, error) {
	id := strings.ToLower(deref(in.CacheClusterId))
	for _, g := range s.in(c.scope()).Groups {
		i := slices.IndexFunc(g.Members, func(m CacheMember) bool { return m.ID == id })
		switch {
		case i < 0:
			continue
		case len(g.Members) == 1:
			return nil, fail(400, "InvalidCacheClusterState", "Cannot delete the cache cluster since it is the only member of a replication group. Delete the replication group instead.")
		case i == 0:
			return nil, fail(400, "InvalidCacheClusterState", "Cannot delete the cache cluster because it is the primary of the replication group %s.", g.id())
		case g.Group.AutomaticFailover == types.AutomaticFailoverStatusEnabled && len(g.Members) == 2:
			return nil, fail(400, "InvalidCacheClusterState", "Cannot delete the cache cluster because it is the only read replica for replication group %s which has autofailover enabled or pending. You can disable autofailover and then delete this cache cluster. Alternatively, to delete the entire replication group, use DeleteReplicationGroup.", g.id())
		}
		return nil, fail(400, "InvalidCacheClusterState", "Removing single replicas is not simulated.")
	}
	return nil, noCluster(id)
}
