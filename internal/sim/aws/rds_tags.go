package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

// tagged finds the tags of a resource by its ARN.
func (s *rdsService) tagged(c *reqCtx, resource *string) (*[]types.Tag, error) {
	kind, name, _ := strings.Cut(strings.TrimPrefix(deref(resource), c.regionalARN("rds", "")), ":")
	if !strings.HasPrefix(deref(resource), c.regionalARN("rds", "")) {
		return nil, rdsInvalid("Invalid resource name: %s", deref(resource))
	}
	c.Touch(*resource)
	sc := s.in(c.scope())
	switch {
	case kind == "db":
		i, err := s.instance(c, &name)
		if err != nil {
			return nil, err
		}
		return &i.DB.TagList, nil
	case kind == "subgrp" && sc.SubnetGroups[name] != nil:
		return &sc.SubnetGroups[name].Tags, nil
	case kind == "subgrp":
		return nil, fail(404, "DBSubnetGroupNotFoundFault", "DB subnet group '%s' does not exist.", name)
	case kind == "pg":
		g, err := s.parameterGroup(c, &name)
		if err != nil {
			return nil, err
		}
		return &g.Tags, nil
	case kind == "snapshot":
		n, err := s.snapshot(c, &name)
		if err != nil {
			return nil, err
		}
		return &n.Snapshot.TagList, nil
	case kind == "auto-backup":
		for _, b := range sc.Backups {
			if deref(b.Backup.DBInstanceAutomatedBackupsArn) == *resource {
				return &b.Backup.TagList, nil
			}
		}
	}
	return nil, rdsInvalid("The specified resource name does not match an RDS resource in this region: %s", *resource)
}

func (s *rdsService) addTags(c *reqCtx, in *rds.AddTagsToResourceInput) (*rds.AddTagsToResourceOutput, error) {
	tags, err := s.tagged(c, in.ResourceName)
	if err != nil {
		return nil, err
	}
	if err := checkDBTags(in.Tags); err != nil {
		return nil, err
	}
	merged := slices.Clone(*tags)
	for _, t := range in.Tags {
		merged = slices.DeleteFunc(merged, func(o types.Tag) bool { return deref(o.Key) == deref(t.Key) })
		merged = append(merged, types.Tag{Key: t.Key, Value: new(deref(t.Value))})
	}
	if len(merged) > 50 {
		return nil, rdsInvalid("A resource can have up to 50 tags.")
	}
	*tags = merged
	return &rds.AddTagsToResourceOutput{}, nil
}

func (s *rdsService) removeTags(c *reqCtx, in *rds.RemoveTagsFromResourceInput) (*rds.RemoveTagsFromResourceOutput, error) {
	tags, err := s.tagged(c, in.ResourceName)
	if err != nil {
		return nil, err
	}
	*tags = slices.DeleteFunc(*tags, func(t types.Tag) bool { return slices.Contains(in.TagKeys, deref(t.Key)) })
	return &rds.RemoveTagsFromResourceOutput{}, nil
}

func (s *rdsService) listTags(c *reqCtx, in *rds.ListTagsForResourceInput) (*rds.ListTagsForResourceOutput, error) {
	tags, err := s.tagged(c, in.ResourceName)
	if err != nil {
		return nil, err
	}
	out := *tags
	if out == nil {
		out = []types.Tag{}
	}
	return &rds.ListTagsForResourceOutput{TagList: out}, nil
}
