package aws

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	ectypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// datastoreKinds are the kinds of datastores and caches. Snapshots are not among them:
// they carry the mark because RDS copies it to them, and whoever took one, the job at
// its end or a person, wants it kept.
func (s *scan) datastoreKinds() []func(context.Context) error {
	return []func(context.Context) error{
		s.databases, s.databaseGroups, s.parameterGroups, s.instanceLogs,
		s.caches, s.cacheSubnetGroups, s.userGroups, s.cacheUsers,
	}
}

func (s *scan) databases(ctx context.Context) error {
	all, err := s.p.allInstances(ctx)
	if err != nil {
		return s.readable(ctx, kindDBInstance, err)
	}
	for _, i := range all {
		if rdsMarks(i.TagList)[job.MarkOwner] == s.owner && aws.ToString(i.DBInstanceStatus) != dbDeleting {
			s.found(kindDBInstance, aws.ToString(i.DBInstanceArn), aws.ToString(i.DBInstanceIdentifier))
		}
	}
	return nil
}

// marked goes through what is named like the job's, and asks for its tags.
func (s *scan) marked(ctx context.Context, kind, id, name string, owner func(context.Context, string) (string, error)) error {
	if !strings.HasSuffix(name, s.suffix()) {
		return nil
	}
	who, err := owner(ctx, id)
	if pipeline.Is(err, pipeline.NotFound) {
		return nil
	}
	if err != nil {
		return s.readable(ctx, kind, err)
	}
	if who == s.owner {
		s.found(kind, id, name)
	}
	return nil
}

func (s *scan) databaseGroups(ctx context.Context) error {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]rdstypes.DBSubnetGroup, *string, error) {
		out, err := s.p.rds.DescribeDBSubnetGroups(ctx, &rds.DescribeDBSubnetGroupsInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.DBSubnetGroups, out.Marker, nil
	})
	if err != nil {
		return s.readable(ctx, kindDBSubnetGroup, err)
	}
	for _, g := range all {
		if err := s.marked(ctx, kindDBSubnetGroup, aws.ToString(g.DBSubnetGroupArn), aws.ToString(g.DBSubnetGroupName), s.p.rdsMark); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) parameterGroups(ctx context.Context) error {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]rdstypes.DBParameterGroup, *string, error) {
		out, err := s.p.rds.DescribeDBParameterGroups(ctx, &rds.DescribeDBParameterGroupsInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.DBParameterGroups, out.Marker, nil
	})
	if err != nil {
		return s.readable(ctx, kindDBParameterGroup, err)
	}
	for _, g := range all {
		if err := s.marked(ctx, kindDBParameterGroup, aws.ToString(g.DBParameterGroupArn), aws.ToString(g.DBParameterGroupName), s.p.rdsMark); err != nil {
			return err
		}
	}
	return nil
}

// instanceLogs goes through the log groups of instances. One that RDS has made again
// carries no mark: its name, which has a hash of the job's ID in it, tells.
func (s *scan) instanceLogs(ctx context.Context) error {
	all, err := s.p.logGroupsNamed(ctx, instanceLogs)
	if err != nil {
		return s.readable(ctx, kindLogGroup, err)
	}
	for _, g := range all {
		groupName := aws.ToString(g.LogGroupName)
		instance, _, _ := strings.Cut(strings.TrimPrefix(groupName, instanceLogs), "/")
		if !strings.HasSuffix(instance, s.suffix()) && !strings.Contains(instance, s.suffix()+"-") {
			continue
		}
		owner, err := s.p.logGroupOwner(ctx, g)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return s.readable(ctx, kindLogGroup, err)
		}
		if owner == s.owner || owner == "" {
			s.found(kindLogGroup, groupName, groupName)
		}
	}
	return nil
}

// caches goes by the marks in their descriptions: ElastiCache does not answer for the
// tags of one that is at work on something.
func (s *scan) caches(ctx context.Context) error {
	all, err := s.p.allCacheGroups(ctx)
	if err != nil {
		return s.readable(ctx, kindCacheGroup, err)
	}
	for _, g := range all {
		id := aws.ToString(g.ReplicationGroupId)
		if aws.ToString(g.Status) == "deleting" {
			continue
		}
		if job.ParseMarks(aws.ToString(g.Description))[job.MarkOwner] == s.owner {
			s.found(kindCacheGroup, aws.ToString(g.ARN), id)
			continue
		}
		if err := s.marked(ctx, kindCacheGroup, aws.ToString(g.ARN), id, s.p.cacheMark); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) cacheSubnetGroups(ctx context.Context) error {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ectypes.CacheSubnetGroup, *string, error) {
		out, err := s.p.cache.DescribeCacheSubnetGroups(ctx, &elasticache.DescribeCacheSubnetGroupsInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.CacheSubnetGroups, out.Marker, nil
	})
	if err != nil {
		return s.readable(ctx, kindCacheSubnetGroup, err)
	}
	for _, g := range all {
		if err := s.marked(ctx, kindCacheSubnetGroup, aws.ToString(g.ARN), aws.ToString(g.CacheSubnetGroupName), s.p.cacheMark); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) userGroups(ctx context.Context) error {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ectypes.UserGroup, *string, error) {
		out, err := s.p.cache.DescribeUserGroups(ctx, &elasticache.DescribeUserGroupsInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.UserGroups, out.Marker, nil
	})
	if err != nil {
		return s.readable(ctx, kindCacheUserGroup, err)
	}
	for _, g := range all {
		if aws.ToString(g.Status) == "deleting" {
			continue
		}
		if err := s.marked(ctx, kindCacheUserGroup, aws.ToString(g.ARN), aws.ToString(g.UserGroupId), s.p.cacheMark); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) cacheUsers(ctx context.Context) error {
	users, err := s.p.markedUsers(ctx, s.owner)
	if err != nil {
		return s.readable(ctx, kindCacheUser, err)
	}
	for _, u := range users {
		if aws.ToString(u.Status) == "deleting" {
			continue
		}
		s.found(kindCacheUser, aws.ToString(u.ARN), aws.ToString(u.UserId))
	}
	return nil
}
