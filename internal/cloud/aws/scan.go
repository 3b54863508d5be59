package aws

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const kindVolume = "ec2:volume"

// Scan lists everything in the account and region that carries a job's owner
// mark, what is on its way out left away. It goes by the services' own lists,
// one kind at a time, and by nothing that the ledger says. DNS records carry no
// marks: the ledger's exact value is all there is of them.
func (p *Provider) Scan(ctx context.Context, owner string) ([]cloud.Leftover, []job.Unlisted, error) {
	ctx = lookup.For(ctx, owner)
	s := &scan{p: p, owner: owner}
	err := pipeline.All(ctx, append(slices.Concat(s.networkKinds(), s.clusterKinds(), s.datastoreKinds()),
		sweep(s, p.vpcs(), func(x ec2types.Vpc) (string, bool) { return nameTag(x.Tags), true }),
		sweep(s, p.subnets(), func(x ec2types.Subnet) (string, bool) { return nameTag(x.Tags), true }),
		sweep(s, p.internetGateways(), func(x ec2types.InternetGateway) (string, bool) { return nameTag(x.Tags), true }),
		sweep(s, p.natGateways(), func(x ec2types.NatGateway) (string, bool) {
			// One that failed holds nothing, and is listed for an hour whatever is done.
			return nameTag(x.Tags), x.State == ec2types.NatGatewayStateAvailable || x.State == ec2types.NatGatewayStatePending
		}),
		sweep(s, p.addresses(), func(x ec2types.Address) (string, bool) { return nameTag(x.Tags), true }),
		sweep(s, p.routeTables(), func(x ec2types.RouteTable) (string, bool) { return nameTag(x.Tags), true }),
		sweep(s, p.securityGroups(), func(x ec2types.SecurityGroup) (string, bool) { return aws.ToString(x.GroupName), true }),
		sweep(s, p.launchTemplates(), func(x ec2types.LaunchTemplate) (string, bool) { return aws.ToString(x.LaunchTemplateName), true }),
		sweep(s, p.instances(), func(x ec2types.Instance) (string, bool) {
			state := stateOf(x)
			return nameTag(x.Tags), state != ec2types.InstanceStateNameTerminated && state != ec2types.InstanceStateNameShuttingDown
		}),
		sweep(s, p.volumes(), func(x ec2types.Volume) (string, bool) {
			return nameTag(x.Tags), x.State != ec2types.VolumeStateDeleting && x.State != ec2types.VolumeStateDeleted
		}),
		sweep(s, p.interfaces(), func(x ec2types.NetworkInterface) (string, bool) {
			return aws.ToString(x.Description), x.Status != ec2types.NetworkInterfaceStatusDetaching
		}),
		s.scalingGroups, s.loadBalancers, s.targetGroups, s.roles, s.profiles,
	)...)
	slices.SortFunc(s.left, func(a, b cloud.Leftover) int { return strings.Compare(a.Kind+" "+a.ID, b.Kind+" "+b.ID) })
	return s.left, job.SortUnlisted(s.unlisted), err
}

func (p *Provider) volumes() lookup.Kind[ec2types.Volume] {
	return ec2Kind(kindVolume, p.volumePage,
		func(x ec2types.Volume) *string { return x.VolumeId },
		func(x ec2types.Volume) []ec2types.Tag { return x.Tags })
}

func (p *Provider) interfaces() lookup.Kind[ec2types.NetworkInterface] {
	return ec2Kind(kindInterface, p.interfacePage,
		func(x ec2types.NetworkInterface) *string { return x.NetworkInterfaceId },
		func(x ec2types.NetworkInterface) []ec2types.Tag { return x.TagSet })
}

// A scan is one look over all kinds.
type scan struct {
	p     *Provider
	owner string

	mu       sync.Mutex
	left     []cloud.Leftover
	unlisted []job.Unlisted
}

func (s *scan) found(kind, id, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, cloud.Leftover{Kind: kind, ID: id, Name: name})
}

// readable is nil for a kind that the cloud does not have at all, and for one that
// the credentials may not read: that one is told as not listed. Any other error
// fails the scan: what could not be looked at is not proved gone.
func (s *scan) readable(ctx context.Context, kind string, err error) error {
	if err = plain(err); lacksCall(err) {
		s.p.log.WarnContext(ctx, "the cloud does not list this kind", "kind", kind, "error", err)
		return nil
	}
	var ce *pipeline.CloudError
	switch {
	case pipeline.Is(err, pipeline.Denied) && errors.As(err, &ce):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unlisted = append(s.unlisted, job.Unlisted{Kind: kind, Permission: missingAction(ce), Why: ce.Error()})
		return nil
	case err != nil:
		return fmt.Errorf("scan for %s: %w", kind, err)
	}
	return nil
}

// actionRE finds the action that a refusal names ("Troubleshoot access denied error
// messages", IAM user guide).
var actionRE = regexp.MustCompile(`not authorized to perform: ([a-z0-9-]+:[A-Za-z0-9]+)`)

// actionPrefixes are the services whose actions have another prefix than their name, and
// otherActions the reads of a scan whose actions have another name than the call
// ("Actions, resources, and condition keys", Service Authorization Reference).
var (
	actionPrefixes = map[string]string{"elasticloadbalancingv2": "elasticloadbalancing", "cloudwatchlogs": "logs"}
	otherActions   = map[string]string{"s3:ListBuckets": "s3:ListAllMyBuckets"}
)

// missingAction is the action that a refusal is about: the one that it names, or that
// of the call by its own name.
func missingAction(ce *pipeline.CloudError) string {
	if m := actionRE.FindStringSubmatch(ce.Message); m != nil {
		return m[1]
	}
	prefix := strings.ToLower(strings.ReplaceAll(ce.Service, " ", ""))
	if at, ok := actionPrefixes[prefix]; ok {
		prefix = at
	}
	action := prefix + ":" + ce.Op
	if other, ok := otherActions[action]; ok {
		return other
	}
	return action
}

// sweep looks over a kind that can be listed by tag.
func sweep[T any](s *scan, k lookup.Kind[T], look func(T) (name string, stays bool)) func(context.Context) error {
	return func(ctx context.Context) error {
		all, err := k.List(ctx, s.owner)
		if err != nil {
			return s.readable(ctx, k.Name, err)
		}
		for _, x := range all {
			name, stays := look(x)
			if owner, _ := k.Mark(x); stays && owner == s.owner {
				s.found(k.Name, k.ID(x), name)
			}
		}
		return nil
	}
}

func (s *scan) scalingGroups(ctx context.Context) error {
	k := s.p.scalingGroups()
	all, err := k.List(ctx, s.owner)
	for _, g := range all {
		if aws.ToString(g.Status) == "" { // else "Delete in progress"
			s.found(kindScalingGroup, k.ID(g), k.ID(g))
		}
	}
	return s.readable(ctx, kindScalingGroup, err)
}

// allBalancers are all of the region's load balancers: they can only be told apart
// by reading their tags.
func (p *Provider) allBalancers(ctx context.Context) ([]elbtypes.LoadBalancer, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]elbtypes.LoadBalancer, *string, error) {
		out, err := p.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.LoadBalancers, out.NextMarker, nil
	})
}

func (s *scan) loadBalancers(ctx context.Context) error {
	all, err := s.p.allBalancers(ctx)
	if err != nil {
		return s.readable(ctx, kindLoadBalancer, err)
	}
	names := map[string]string{}
	for _, l := range all {
		names[aws.ToString(l.LoadBalancerArn)] = aws.ToString(l.LoadBalancerName)
	}
	return s.byTags(ctx, kindLoadBalancer, names)
}

func (p *Provider) allTargetGroups(ctx context.Context) ([]elbtypes.TargetGroup, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]elbtypes.TargetGroup, *string, error) {
		out, err := p.elb.DescribeTargetGroups(ctx, &elb.DescribeTargetGroupsInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.TargetGroups, out.NextMarker, nil
	})
}

func (s *scan) targetGroups(ctx context.Context) error {
	all, err := s.p.allTargetGroups(ctx)
	if err != nil {
		return s.readable(ctx, kindTargetGroup, err)
	}
	names := map[string]string{}
	for _, g := range all {
		names[aws.ToString(g.TargetGroupArn)] = aws.ToString(g.TargetGroupName)
	}
	return s.byTags(ctx, kindTargetGroup, names)
}

func (s *scan) byTags(ctx context.Context, kind string, names map[string]string) error {
	if len(names) == 0 {
		return nil
	}
	var arns []string
	for arn := range names {
		arns = append(arns, arn)
	}
	slices.Sort(arns)
	owners, err := s.p.elbOwners(ctx, arns...)
	// One that is deleted between the two calls makes DescribeTags fail.
	if pipeline.Is(err, pipeline.NotFound) {
		owners = map[string]string{}
		for _, arn := range arns {
			one, err := s.p.elbOwners(ctx, arn)
			if err = pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
				return s.readable(ctx, kind, err)
			}
			owners[arn] = one[arn]
		}
	} else if err != nil {
		return s.readable(ctx, kind, err)
	}
	for _, arn := range arns {
		if owners[arn] == s.owner {
			s.found(kind, arn, names[arn])
		}
	}
	return nil
}

// suffix is the end of every name that the job derives. IAM's lists hold no
// tags, so only what is named like ours is asked for its tags.
func (s *scan) suffix() string { return nameSuffix(s.owner) }

// nameSuffix is the end of every name that a job derives.
func nameSuffix(owner string) string {
	name := (&job.Job{ID: owner, Name: "x"}).ResourceName("", 64)
	return name[strings.LastIndexByte(name, '-'):]
}

func (s *scan) roles(ctx context.Context) error {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]iamtypes.Role, *string, error) {
		out, err := s.p.iam.ListRoles(ctx, &iam.ListRolesInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.Roles, out.Marker, nil
	})
	if err != nil {
		return s.readable(ctx, kindRole, err)
	}
	for _, role := range all {
		name := aws.ToString(role.RoleName)
		if !strings.HasSuffix(name, s.suffix()) {
			continue
		}
		full, err := s.p.readRole(ctx, name)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return s.readable(ctx, kindRole, err)
		}
		if iamMark(full.Tags) == s.owner {
			s.found(kindRole, name, name)
		}
	}
	return nil
}

func (s *scan) profiles(ctx context.Context) error {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]iamtypes.InstanceProfile, *string, error) {
		out, err := s.p.iam.ListInstanceProfiles(ctx, &iam.ListInstanceProfilesInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.InstanceProfiles, out.Marker, nil
	})
	if err != nil {
		return s.readable(ctx, kindInstanceProfile, err)
	}
	for _, profile := range all {
		name := aws.ToString(profile.InstanceProfileName)
		if !strings.HasSuffix(name, s.suffix()) {
			continue
		}
		full, err := s.p.readProfile(ctx, name)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return s.readable(ctx, kindInstanceProfile, err)
		}
		if iamMark(full.Tags) == s.owner {
			s.found(kindInstanceProfile, name, name)
		}
	}
	return nil
}
