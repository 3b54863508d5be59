package aws

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	ectypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// adoptedCache finds a replication group, or a cluster that stands alone, by its ID or
// an endpoint of it.
func (p *Provider) adoptedCache(ctx context.Context, id, endpoint string) (adopted, error) {
	groups, err := p.allCacheGroups(ctx)
	if err != nil {
		return adopted{}, err
	}
	nodes, err := p.allCacheNodes(ctx)
	if err != nil {
		return adopted{}, err
	}
	var found []adopted
	var names []string
	take := func(a adopted, err error) error {
		if err == nil {
			found, names = append(found, a), append(names, a.info.Name)
		}
		return err
	}
	for _, g := range groups {
		if endpoint == "" && aws.ToString(g.ReplicationGroupId) == id || endpoint != "" && groupAnswers(g, endpoint) {
			if err := take(p.adoptGroup(ctx, g, nodes)); err != nil {
				return adopted{}, err
			}
		}
	}
	for _, n := range nodes {
		if aws.ToString(n.ReplicationGroupId) != "" && endpoint != "" {
			continue // its group is asked
		}
		alone := endpoint == "" && aws.ToString(n.CacheClusterId) == id || endpoint != "" && nodeAnswers(n, endpoint)
		if !alone {
			continue
		}
		if of := aws.ToString(n.ReplicationGroupId); of != "" {
			return adopted{}, pipeline.Fatal("not-a-cache", fmt.Sprintf("%s is a node of the replication group %s", id, of), "Adopt the group: name "+of+".").On(adoptField)
		}
		if err := take(p.adoptNode(ctx, n)); err != nil {
			return adopted{}, err
		}
	}
	switch len(found) {
	case 0:
		return adopted{}, absent("ElastiCache", "DescribeReplicationGroups", "a cache "+or(id, "with the endpoint "+endpoint))
	case 1:
		return found[0], nil
	}
	return adopted{}, severalAt(endpoint, names)
}

func groupAnswers(g ectypes.ReplicationGroup, endpoint string) bool {
	ends := []*ectypes.Endpoint{g.ConfigurationEndpoint}
	for _, n := range g.NodeGroups {
		ends = append(ends, n.PrimaryEndpoint, n.ReaderEndpoint)
		for _, m := range n.NodeGroupMembers {
			ends = append(ends, m.ReadEndpoint)
		}
	}
	return slices.ContainsFunc(ends, func(e *ectypes.Endpoint) bool { return e != nil && answersAt(endpoint, e.Address, e.Port) })
}

func nodeAnswers(c ectypes.CacheCluster, endpoint string) bool {
	return slices.ContainsFunc(c.CacheNodes, func(n ectypes.CacheNode) bool {
		return n.Endpoint != nil && answersAt(endpoint, n.Endpoint.Address, n.Endpoint.Port)
	})
}

func (p *Provider) adoptGroup(ctx context.Context, g ectypes.ReplicationGroup, all []ectypes.CacheCluster) (adopted, error) {
	a := adopted{status: aws.ToString(g.Status)}
	var nodes []ectypes.CacheCluster
	for _, n := range all {
		if aws.ToString(n.ReplicationGroupId) == aws.ToString(g.ReplicationGroupId) {
			nodes = append(nodes, n)
			a.nodes = append(a.nodes, aws.ToString(n.CacheClusterId))
			if e := aws.ToString(n.Engine); e != "" {
				a.info.Engine = job.Engine(e)
			}
		}
	}
	describeCache(&a.info, g, nodes)
	a.usable = a.status != "deleting" && a.status != "create-failed"
	err := p.placeAdopted(ctx, &a, nodes)
	a.info.RiskNotes = append(a.info.RiskNotes, cacheRisks(g.AtRestEncryptionEnabled, g.TransitEncryptionEnabled, tlsOf(g) == "required", len(g.UserGroupIds) > 0 || aws.ToBool(g.AuthTokenEnabled), g.SnapshotRetentionLimit, g.AutoMinorVersionUpgrade)...)
	if a.info.Replicas == 0 {
		a.info.RiskNotes = append(a.info.RiskNotes, "it has no replica: a failed node is an empty cache (EC-05)")
	}
	return a, err
}

// adoptNode records a cluster that stands alone: an older shape, without replicas,
// users or encryption that could be had for groups.
func (p *Provider) adoptNode(ctx context.Context, n ectypes.CacheCluster) (adopted, error) {
	e := job.Engine(aws.ToString(n.Engine))
	a := adopted{status: aws.ToString(n.CacheClusterStatus), nodes: []string{aws.ToString(n.CacheClusterId)}}
	if !e.Cache() {
		return a, pipeline.Fatal("engine-not-offered", fmt.Sprintf("%s runs %s, which is neither Redis nor Valkey", aws.ToString(n.CacheClusterId), aws.ToString(n.Engine)), "Adopt a cache of one of the two.").On(adoptField)
	}
	a.info = job.DatastoreInfo{
		Name: aws.ToString(n.CacheClusterId), ID: aws.ToString(n.ARN), Engine: e, Version: aws.ToString(n.EngineVersion), Class: aws.ToString(n.CacheNodeType),
		SubnetGroup: aws.ToString(n.CacheSubnetGroupName), Encrypted: aws.ToBool(n.AtRestEncryptionEnabled), TLSRequired: aws.ToBool(n.TransitEncryptionEnabled) && n.TransitEncryptionMode != ectypes.TransitEncryptionModePreferred,
		BackupRetentionDays: int(aws.ToInt32(n.SnapshotRetentionLimit)), MemoryGiB: nodeMemory(aws.ToString(n.CacheNodeType)),
	}
	if z := aws.ToString(n.PreferredAvailabilityZone); z != "" {
		a.info.Zones = []string{z}
	}
	if len(n.CacheNodes) > 0 && n.CacheNodes[0].Endpoint != nil {
		a.info.Host, a.info.Port = aws.ToString(n.CacheNodes[0].Endpoint.Address), int(aws.ToInt32(n.CacheNodes[0].Endpoint.Port))
	}
	a.usable = a.status != "deleting" && a.status != "create-failed"
	err := p.placeAdopted(ctx, &a, []ectypes.CacheCluster{n})
	a.info.RiskNotes = append(a.info.RiskNotes, cacheRisks(n.AtRestEncryptionEnabled, n.TransitEncryptionEnabled, a.info.TLSRequired, aws.ToBool(n.AuthTokenEnabled), n.SnapshotRetentionLimit, n.AutoMinorVersionUpgrade)...)
	a.info.RiskNotes = append(a.info.RiskNotes, "it is a single node: when it fails the cache is empty (EC-05)")
	return a, err
}

// placeAdopted records where an adopted cache stands.
func (p *Provider) placeAdopted(ctx context.Context, a *adopted, nodes []ectypes.CacheCluster) error {
	for _, n := range nodes {
		for _, s := range n.SecurityGroups {
			if id := aws.ToString(s.SecurityGroupId); !slices.Contains(a.groups, id) {
				a.groups = append(a.groups, id)
			}
		}
	}
	if len(nodes) == 0 || aws.ToString(nodes[0].CacheSubnetGroupName) == "" {
		return nil
	}
	if len(a.groups) > 0 {
		a.info.SecurityGroupID = a.groups[0]
	}
	g, err := p.readCacheSubnetGroup(ctx, aws.ToString(nodes[0].CacheSubnetGroupName))
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.Denied, pipeline.NotFound)
	}
	a.network = aws.ToString(g.VpcId)
	for _, s := range g.Subnets {
		a.subnets = append(a.subnets, aws.ToString(s.SubnetIdentifier))
	}
	if aws.ToString(g.CacheSubnetGroupName) == "default" {
		a.info.RiskNotes = append(a.info.RiskNotes, "it stands in the default subnet group (EC-09)")
	}
	return nil
}

// cacheRisks is what of a cache falls short of what one of our own has.
func cacheRisks(rest, transit *bool, required, authenticated bool, days *int32, minor *bool) []string {
	var out []string
	note := func(short bool, text string) {
		if short {
			out = append(out, text)
		}
	}
	note(!aws.ToBool(rest), "data at rest is not encrypted, and cannot be in place (EC-01)")
	note(!aws.ToBool(transit), "there is no TLS (EC-02)")
	note(aws.ToBool(transit) && !required, "clients need not use TLS (EC-02)")
	note(!authenticated, "clients need not authenticate: whoever gets there is let in (EC-03)")
	note(aws.ToInt32(days) == 0, "there are no automated snapshots (EC-07)")
	note(aws.ToInt32(days) > 0 && aws.ToInt32(days) < 7, fmt.Sprintf("snapshots are kept for %d days alone (EC-07)", aws.ToInt32(days)))
	note(!aws.ToBool(minor), "minor upgrades do not happen by themselves (EC-08)")
	return out
}
