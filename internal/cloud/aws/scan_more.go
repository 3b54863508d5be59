package aws

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// networkKinds are the kinds of the network family that can be listed by tag.
func (s *scan) networkKinds() []func(context.Context) error {
	p := s.p
	return []func(context.Context) error{
		sweep(s, p.endpointKind(), func(x ec2types.VpcEndpoint) (string, bool) {
			state := strings.ToLower(string(x.State))
			return nameTag(x.Tags), state != "deleting" && state != "deleted"
		}),
		sweep(s, p.networkACLs(), func(x ec2types.NetworkAcl) (string, bool) { return nameTag(x.Tags), true }),
		sweep(s, p.flowLogs(), func(x ec2types.FlowLog) (string, bool) { return nameTag(x.Tags), true }),
		sweep(s, p.peeringKind(), func(x ec2types.VpcPeeringConnection) (string, bool) { return nameTag(x.Tags), alive(x) }),
		s.logGroups, s.buckets, s.zones,
	}
}

// logGroups goes through all log groups of jobs by their name.
func (s *scan) logGroups(ctx context.Context) error {
	all, err := s.p.logGroupsNamed(ctx, logGroups)
	if err != nil {
		return s.readable(ctx, kindLogGroup, err)
	}
	for _, g := range all {
		name := aws.ToString(g.LogGroupName)
		if !strings.HasSuffix(name, s.suffix()) {
			continue
		}
		owner, err := s.p.logGroupOwner(ctx, g)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return s.readable(ctx, kindLogGroup, err)
		}
		if owner == s.owner {
			s.found(kindLogGroup, name, name)
		}
	}
	return nil
}

func (s *scan) buckets(ctx context.Context) error {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]s3types.Bucket, *string, error) {
		out, err := s.p.s3.ListBuckets(ctx, &s3.ListBucketsInput{ContinuationToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.Buckets, out.ContinuationToken, nil
	})
	if err != nil {
		return s.readable(ctx, kindBucket, err)
	}
	for _, found := range all {
		b := bucket{Provider: s.p, name: aws.ToString(found.Name)}
		if !strings.HasSuffix(b.name, s.suffix()) {
			continue
		}
		marks, err := b.tags(ctx)
		if pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) {
			continue // gone meanwhile, or in a region that is not the job's
		}
		if err != nil {
			return s.readable(ctx, kindBucket, err)
		}
		if marks[job.MarkOwner] == s.owner {
			s.found(kindBucket, b.name, b.name)
		}
	}
	return nil
}

func (s *scan) zones(ctx context.Context) error {
	all, err := s.p.zones(ctx)
	if err != nil {
		return s.readable(ctx, kindZone, err)
	}
	for _, z := range all {
		if zoneOwner(z.reference) == s.owner {
			s.found(kindZone, z.id, z.name)
		}
	}
	return nil
}
