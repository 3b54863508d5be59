package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"
)

// tagged finds the tags of a resource by its ARN. A replication group must be available for that
// (https://github.com/hashicorp/terraform-provider-aws/issues/44811).
func (s *cacheService) tagged(c *reqCtx, resource *string) (*[]types.Tag, error) {
	rest, ok := strings.CutPrefix(deref(resource), c.regionalARN("elasticache", ""))
	if !ok {
		return nil, fail(400, "InvalidARN", "The ARN %s is invalid.", deref(resource))
	}
	c.Touch(*resource)
	kind, name, _ := strings.Cut(rest, ":")
	sc := s.in(c.scope())
	switch kind {
	case "replicationgroup", "cluster":
		for _, g := range sc.Groups {
			if kind == "replicationgroup" && g.id() == name || kind == "cluster" && slices.ContainsFunc(g.Members, func(m CacheMember) bool { return m.ID == name }) {
				if g.status() != statusAvailable {
					return nil, fail(400, "InvalidReplicationGroupState", "Cluster not in available state to perform tagging operations.")
				}
				return &g.Tags, nil
			}
		}
		if kind == "cluster" {
			return nil, noCluster(name)
		}
		return nil, fail(404, "ReplicationGroupNotFoundFault", "ReplicationGroup %s not found.", name)
	case "subnetgroup":
		if g := sc.SubnetGroups[name]; g != nil {
			return &g.Tags, nil
		}
		return nil, fail(400, "CacheSubnetGroupNotFoundFault", "Cache Subnet Group %s does not exist.", name)
	case "parametergroup":
		g, err := s.parameterGroup(c, &name)
		if err != nil {
			return nil, err
		}
		return &g.Tags, nil
	case "user":
		u, err := s.user(c, &name)
		if err != nil {
			return nil, err
		}
		return &u.Tags, nil
	case "usergroup":
		g, err := s.userGroup(c, &name)
		if err != nil {
			return nil, err
		}
		return &g.Tags, nil
	case "snapshot":
		if n := sc.Snapshots[name]; n != nil {
			return &n.Tags, nil
		}
		return nil, fail(404, "SnapshotNotFoundFault", "Snapshot %s not found.", name)
	}
	return nil, fail(400, "InvalidARN", "The ARN %s is invalid.", *resource)
}

func (s *cacheService) addTags(c *reqCtx, in *elasticache.AddTagsToResourceInput) (*elasticache.AddTagsToResourceOutput, error) {
	tags, err := s.tagged(c, in.ResourceName)
	if err != nil {
		return nil, err
	}
	if err := checkCacheTags(in.Tags); err != nil {
		return nil, err
	}
	merged := slices.Clone(*tags)
	for _, t := range in.Tags {
		merged = slices.DeleteFunc(merged, func(o types.Tag) bool { return deref(o.Key) == deref(t.Key) })
		merged = append(merged, types.Tag{Key: t.Key, Value: new(deref(t.Value))})
	}
	if len(merged) > 50 {
		return nil, fail(400, "TagQuotaPerResourceExceeded", "A resource can have up to 50 tags.")
	}
	*tags = merged
	return &elasticache.AddTagsToResourceOutput{TagList: merged}, nil
}

func (s *cacheService) removeTags(c *reqCtx, in *elasticache.RemoveTagsFromResourceInput) (*elasticache.RemoveTagsFromResourceOutput, error) {
	tags, err := s.tagged(c, in.ResourceName)
	if err != nil {
		return nil, err
	}
	for _, k := range in.TagKeys {
		if !slices.ContainsFunc(*tags, func(t types.Tag) bool { return deref(t.Key) == k }) {
			return nil, fail(404, "TagNotFound", "Tag %s not found.", k)
		}
	}
	*tags = slices.DeleteFunc(*tags, func(t types.Tag) bool { return slices.Contains(in.TagKeys, deref(t.Key)) })
	return &elasticache.RemoveTagsFromResourceOutput{TagList: *tags}, nil
}

func (s *cacheService) listTags(c *reqCtx, in *elasticache.ListTagsForResourceInput) (*elasticache.ListTagsForResourceOutput, error) {
	tags, err := s.tagged(c, in.ResourceName)
	if err != nil {
		return nil, err
	}
	out := *tags
	if out == nil {
		out = []types.Tag{}
	}
	return &elasticache.ListTagsForResourceOutput{TagList: out}, nil
}
