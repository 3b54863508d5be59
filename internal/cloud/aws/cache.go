package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	ectypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

func cacheTags(marks map[string]string) []ectypes.Tag {
	return tagList(marks, func(k, v *string) ectypes.Tag { return ectypes.Tag{Key: k, Value: v} })
}

// cacheMarks are the tags of an object of ElastiCache.
func (p *Provider) cacheMarks(ctx context.Context, arn string) (map[string]string, error) {
	return lookup.Once(ctx, "tags of "+arn, func(ctx context.Context) (map[string]string, error) {
		out, err := p.cache.ListTagsForResource(ctx, &elasticache.ListTagsForResourceInput{ResourceName: aws.String(arn)})
		if err != nil {
			return nil, err
		}
		return tagMarks(out.TagList, func(t ectypes.Tag) (*string, *string) { return t.Key, t.Value }), nil
	})
}

// cacheMark is whose mark an object of ElastiCache carries.
func (p *Provider) cacheMark(ctx context.Context, arn string) (string, error) {
	marks, err := p.cacheMarks(ctx, arn)
	return eksMark(marks), err
}

func (p *Provider) readCacheSubnetGroup(ctx context.Context, group string) (ectypes.CacheSubnetGroup, error) {
	return lookup.Once(ctx, kindCacheSubnetGroup+" "+group, func(ctx context.Context) (ectypes.CacheSubnetGroup, error) {
		out, err := p.cache.DescribeCacheSubnetGroups(ctx, &elasticache.DescribeCacheSubnetGroupsInput{CacheSubnetGroupName: aws.String(group)})
		if err != nil {
			return ectypes.CacheSubnetGroup{}, err
		}
		if len(out.CacheSubnetGroups) == 0 {
			return ectypes.CacheSubnetGroup{}, absent("ElastiCache", "DescribeCacheSubnetGroups", "subnet group "+group)
		}
		return out.CacheSubnetGroups[0], nil
	})
}

// cacheSubnetGroup is the subnets that the cache's nodes stand in.
func (b *dataBuild) cacheSubnetGroup() pipeline.Resource {
	subnets := b.subnets()
	x := pipeline.Resource{Kind: kindCacheSubnetGroup, Key: subnetGroupKey, Name: name(b.r, "subnets", 200), Args: subnets}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		g, err := b.readCacheSubnetGroup(ctx, x.Name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: aws.ToString(g.ARN), Status: pipeline.Ready}
		if s.Owner, err = b.cacheMark(ctx, s.ID); err != nil || b.r.Mode != pipeline.Verify {
			return s, err
		}
		var in []string
		for _, sub := range g.Subnets {
			in = append(in, aws.ToString(sub.SubnetIdentifier))
		}
		s.Aspects = []pipeline.Aspect{{Name: "subnets", Wanted: sortedList(subnets), Seen: sortedList(in)}}
		return s, nil
	}
	x.Find = eksNamed(b.r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := b.cache.CreateCacheSubnetGroup(ctx, &elasticache.CreateCacheSubnetGroupInput{
			CacheSubnetGroupName: aws.String(x.Name), CacheSubnetGroupDescription: aws.String("Subnets of " + b.r.Job.Name), SubnetIds: subnets,
			Tags: cacheTags(tags(b.r, x.Key, x.Name)),
		})
		if err != nil || out.CacheSubnetGroup == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.CacheSubnetGroup.ARN), Owner: b.r.Job.ID, Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := b.cache.DeleteCacheSubnetGroup(ctx, &elasticache.DeleteCacheSubnetGroupInput{CacheSubnetGroupName: aws.String(x.Name)})
		return err
	}
	x.Blockers = func(ctx context.Context, _ string) (string, error) {
		all, err := b.allCacheNodes(ctx)
		var names []string
		for _, c := range all {
			if aws.ToString(c.CacheSubnetGroupName) == x.Name && aws.ToString(c.ReplicationGroupId) != b.name() {
				names = append(names, aws.ToString(c.CacheClusterId))
			}
		}
		if err != nil || len(names) == 0 {
			return "", err
		}
		return "it is in use by " + sortedList(names) + ", which this job did not make; remove them", nil
	}
	return tidy(x)
}

// allCacheNodes are all clusters of the region: the nodes of replication groups, and
// those that stand alone.
func (p *Provider) allCacheNodes(ctx context.Context) ([]ectypes.CacheCluster, error) {
	return lookup.Once(ctx, "all cache clusters", func(ctx context.Context) ([]ectypes.CacheCluster, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ectypes.CacheCluster, *string, error) {
			out, err := p.cache.DescribeCacheClusters(ctx, &elasticache.DescribeCacheClustersInput{Marker: token, ShowCacheNodeInfo: aws.Bool(true)})
			if err != nil {
				return nil, nil, err
			}
			return out.CacheClusters, out.Marker, nil
		})
	})
}

func (p *Provider) allCacheGroups(ctx context.Context) ([]ectypes.ReplicationGroup, error) {
	return lookup.Once(ctx, "all "+kindCacheGroup, func(ctx context.Context) ([]ectypes.ReplicationGroup, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ectypes.ReplicationGroup, *string, error) {
			out, err := p.cache.DescribeReplicationGroups(ctx, &elasticache.DescribeReplicationGroupsInput{Marker: token})
			if err != nil {
				return nil, nil, err
			}
			return out.ReplicationGroups, out.Marker, nil
		})
	})
}

func (p *Provider) readCacheGroup(ctx context.Context, id string) (ectypes.ReplicationGroup, error) {
	return lookup.Once(ctx, kindCacheGroup+" "+id, func(ctx context.Context) (ectypes.ReplicationGroup, error) {
		out, err := p.cache.DescribeReplicationGroups(ctx, &elasticache.DescribeReplicationGroupsInput{ReplicationGroupId: aws.String(id)})
		if err != nil {
			return ectypes.ReplicationGroup{}, err
		}
		if len(out.ReplicationGroups) == 0 {
			return ectypes.ReplicationGroup{}, absent("ElastiCache", "DescribeReplicationGroups", "replication group "+id)
		}
		return out.ReplicationGroups[0], nil
	})
}

// nodesOf are the nodes of a replication group.
func (p *Provider) nodesOf(ctx context.Context, group string) ([]ectypes.CacheCluster, error) {
	all, err := p.allCacheNodes(ctx)
	var out []ectypes.CacheCluster
	for _, c := range all {
		if aws.ToString(c.ReplicationGroupId) == group {
			out = append(out, c)
		}
	}
	return out, err
}

// groupOwner is whose mark a replication group carries. ElastiCache answers for its
// tags only while it is available ("ListTagsForResource"); its description carries the
// marks too.
func (b *dataBuild) groupOwner(ctx context.Context, g ectypes.ReplicationGroup) (string, error) {
	if owner := job.ParseMarks(aws.ToString(g.Description))[job.MarkOwner]; owner != "" {
		return owner, nil
	}
	owner, err := b.cacheMark(ctx, aws.ToString(g.ARN))
	if pipeline.Is(err, pipeline.Busy, pipeline.NotFound) {
		return "", pipeline.Wait(10*time.Second, "the tags of %s to be readable (%s)", aws.ToString(g.ReplicationGroupId), aws.ToString(g.Status))
	}
	return owner, err
}

// cacheServing are the states in which a cache answers while ElastiCache is at work.
var cacheServing = []string{"available", "modifying", "snapshotting"}

// replicationGroup is the cache: a primary with its replicas. CreateReplicationGroup
// takes no token: one whose answer was lost is found by its name and its mark.
func (b *dataBuild) replicationGroup() pipeline.Resource {
	x := pipeline.Resource{Kind: kindCacheGroup, Key: datastoreKey, Name: b.name(), Slow: true, Precious: true, Patience: 45 * time.Minute}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		g, err := b.readCacheGroup(ctx, or(arnName(id), x.Name))
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: aws.ToString(g.ARN), Status: pipeline.Pending, Reason: aws.ToString(g.Status)}
		if s.Owner, err = b.groupOwner(ctx, g); err != nil {
			return s, err
		}
		switch {
		case s.Reason == "create-failed":
			s.Status, s.Reason = pipeline.Broken, issueText(s.Reason)
		case s.Reason == "available", b.info.Host != "" && slices.Contains(cacheServing, s.Reason):
			s.Status = pipeline.Ready
		}
		if b.r.Mode == pipeline.Verify {
			s.Aspects, err = b.cacheAspects(ctx, g)
		}
		return s, err
	}
	x.Find = eksNamed(b.r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := b.cache.CreateReplicationGroup(ctx, b.cacheInput(x.Name))
		if err != nil || out.ReplicationGroup == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.ReplicationGroup.ARN), Owner: b.r.Job.ID, Status: pipeline.Pending, Reason: aws.ToString(out.ReplicationGroup.Status)}, nil
	}
	x.Delete = func(ctx context.Context, id string) error { return b.deleteCache(ctx, or(arnName(id), x.Name)) }
	return tidy(x)
}

// cacheInput is everything that the cache is made with.
func (b *dataBuild) cacheInput(id string) *elasticache.CreateReplicationGroupInput {
	maintenance, backup := window(b.spec.MaintenanceWindow)
	spare := b.spec.ReplicaCount() > 0
	return &elasticache.CreateReplicationGroupInput{
		ReplicationGroupId: aws.String(id), ReplicationGroupDescription: aws.String(b.r.Job.MarkText(datastoreKey)),
		Engine: aws.String(string(b.spec.Engine)), EngineVersion: aws.String(b.info.Version), CacheNodeType: aws.String(b.info.Class),
		NumCacheClusters: aws.Int32(int32(b.spec.ReplicaCount() + 1)), AutomaticFailoverEnabled: aws.Bool(spare), MultiAZEnabled: aws.Bool(spare),
		AtRestEncryptionEnabled: aws.Bool(true), TransitEncryptionEnabled: aws.Bool(true), TransitEncryptionMode: ectypes.TransitEncryptionModeRequired,
		UserGroupIds: []string{b.info.UserGroup}, CacheSubnetGroupName: aws.String(b.info.SubnetGroup), SecurityGroupIds: []string{b.info.SecurityGroupID},
		Port: aws.Int32(int32(b.spec.Engine.Port())), AutoMinorVersionUpgrade: aws.Bool(true), PreferredMaintenanceWindow: aws.String(maintenance),
		SnapshotRetentionLimit: aws.Int32(int32(b.spec.BackupRetentionDays)), SnapshotWindow: aws.String(backup),
		Tags: cacheTags(tags(b.r, datastoreKey, id)),
	}
}

// cacheAspects is what of a cache can differ from what was asked for; none is ever set.
func (b *dataBuild) cacheAspects(ctx context.Context, g ectypes.ReplicationGroup) ([]pipeline.Aspect, error) {
	nodes, err := b.nodesOf(ctx, aws.ToString(g.ReplicationGroupId))
	if err != nil {
		return nil, err
	}
	spare := onOff(b.spec.ReplicaCount() > 0)
	out := []pipeline.Aspect{
		{Name: "node type", Wanted: b.info.Class, Seen: aws.ToString(g.CacheNodeType)},
		{Name: "nodes", Wanted: fmt.Sprint(b.spec.ReplicaCount() + 1), Seen: fmt.Sprint(len(g.MemberClusters))},
		{Name: "automatic failover", Wanted: spare, Seen: onOff(g.AutomaticFailover == ectypes.AutomaticFailoverStatusEnabled)},
		{Name: "Multi-AZ", Wanted: spare, Seen: onOff(g.MultiAZ == ectypes.MultiAZStatusEnabled)},
		{Name: "encryption", Wanted: "on", Seen: onOff(aws.ToBool(g.AtRestEncryptionEnabled))},
		{Name: "TLS", Wanted: "required", Seen: tlsOf(g)},
		{Name: "user group", Wanted: b.info.UserGroup, Seen: or(sortedList(g.UserGroupIds), "none")},
		{Name: "backup retention", Wanted: retentionText(int32(b.spec.BackupRetentionDays)), Seen: daysText(aws.ToInt32(g.SnapshotRetentionLimit))},
		{Name: "minor upgrades", Wanted: "on", Seen: onOff(aws.ToBool(g.AutoMinorVersionUpgrade))},
	}
	if e := aws.ToString(g.Engine); e != "" {
		out = append(out, pipeline.Aspect{Name: "engine", Wanted: string(b.spec.Engine), Seen: e})
	}
	major := func(v string) string { m, _, _ := strings.Cut(v, "."); return m }
	for _, n := range nodes {
		var groups []string
		for _, s := range n.SecurityGroups {
			groups = append(groups, aws.ToString(s.SecurityGroupId))
		}
		out = append(out,
			pipeline.Aspect{Name: "version of " + aws.ToString(n.CacheClusterId), Wanted: major(b.info.Version), Seen: major(aws.ToString(n.EngineVersion))},
			pipeline.Aspect{Name: "security groups of " + aws.ToString(n.CacheClusterId), Wanted: b.info.SecurityGroupID, Seen: or(sortedList(groups), "none")})
	}
	return out, nil
}

// tlsOf is whether clients have to use TLS.
func tlsOf(g ectypes.ReplicationGroup) string {
	if !aws.ToBool(g.TransitEncryptionEnabled) {
		return "off"
	}
	return or(string(g.TransitEncryptionMode), "required") // the mode is newer than TLS itself
}

// recordCache keeps what ElastiCache says of the cache that was made.
func (b *dataBuild) recordCache(ctx context.Context, id string) error {
	const recorded = "cache recorded"
	if b.r.Recall(recorded) != nil {
		return nil
	}
	g, err := b.readCacheGroup(ctx, id)
	if err != nil {
		return pipeline.Unseen(plain(err), "cache "+id)
	}
	nodes, err := b.nodesOf(ctx, id)
	if err != nil {
		return plain(err)
	}
	asked := b.info.Version
	describeCache(b.info, g, nodes)
	if withinVersion(asked, b.info.Version) {
		b.info.Version = asked // nodes have a part more than ElastiCache takes
	}
	if b.info.Host == "" {
		return pipeline.Wait(5*time.Second, "the endpoint of %s to be known", id)
	}
	b.r.Remember(recorded, true)
	return b.r.Save(ctx)
}

// describeCache records a replication group, of the job or adopted.
func describeCache(into *job.DatastoreInfo, g ectypes.ReplicationGroup, nodes []ectypes.CacheCluster) {
	into.Name, into.ID, into.Class = aws.ToString(g.ReplicationGroupId), aws.ToString(g.ARN), aws.ToString(g.CacheNodeType)
	into.Engine = job.Engine(cmp.Or(aws.ToString(g.Engine), string(into.Engine), string(job.Redis)))
	into.Replicas, into.HighAvailability = max(len(g.MemberClusters)-1, 0), g.MultiAZ == ectypes.MultiAZStatusEnabled
	into.Encrypted, into.TLSRequired = aws.ToBool(g.AtRestEncryptionEnabled), tlsOf(g) == "required"
	into.BackupRetentionDays = int(aws.ToInt32(g.SnapshotRetentionLimit))
	endpoint := g.ConfigurationEndpoint
	if len(g.NodeGroups) > 0 {
		n := g.NodeGroups[0]
		if n.PrimaryEndpoint != nil {
			endpoint = n.PrimaryEndpoint
		}
		if n.ReaderEndpoint != nil && into.Replicas > 0 {
			into.ReaderHost = aws.ToString(n.ReaderEndpoint.Address)
		}
	}
	if endpoint != nil {
		into.Host, into.Port = aws.ToString(endpoint.Address), int(aws.ToInt32(endpoint.Port))
	}
	if len(g.UserGroupIds) > 0 {
		into.UserGroup = g.UserGroupIds[0]
	}
	into.Zones = nil
	for _, n := range nodes {
		into.Version = aws.ToString(n.EngineVersion)
		into.SubnetGroup = aws.ToString(n.CacheSubnetGroupName)
		if z := aws.ToString(n.PreferredAvailabilityZone); z != "" && !slices.Contains(into.Zones, z) {
			into.Zones = append(into.Zones, z)
		}
		if len(n.SecurityGroups) > 0 {
			into.SecurityGroupID = aws.ToString(n.SecurityGroups[0].SecurityGroupId)
		}
	}
	slices.Sort(into.Zones)
	into.MemoryGiB = nodeMemory(into.Class)
}
