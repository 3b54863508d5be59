package aws

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// namedVPC finds a VPC by its ID or by its Name tag. Two of one name are an
// error that lists them: the wrong one must not be built in.
func (p *Provider) namedVPC(ctx context.Context, named string) (ec2types.Vpc, error) {
	return lookup.Once(ctx, "VPC named "+named, func(ctx context.Context) (ec2types.Vpc, error) {
		if strings.HasPrefix(named, "vpc-") {
			return p.vpcs().One(ctx, named)
		}
		all, err := ec2Page[ec2types.Vpc](p.vpcPage).all(ctx, filter("tag:Name", named))
		if err != nil {
			return ec2types.Vpc{}, err
		}
		var found []ec2types.Vpc
		var ids []string
		for _, v := range all {
			if nameTag(v.Tags) == named { // not every endpoint heeds the filter
				found, ids = append(found, v), append(ids, aws.ToString(v.VpcId))
			}
		}
		switch len(found) {
		case 0:
			return ec2types.Vpc{}, absent("EC2", "DescribeVpcs", "a VPC named "+named)
		case 1:
			return found[0], nil
		}
		return ec2types.Vpc{}, pipeline.Fatal("network-ambiguous", fmt.Sprintf("%d VPCs in %s are named %s: %s", len(found), p.region, named, sortedList(ids)), "Give the ID of the one that is meant.")
	})
}

// nameNetwork records the VPC that the job builds in. Nothing of it is changed.
func (b *build) nameNetwork(ctx context.Context) error {
	const field = "config.spec.existing.networkId"
	existing, err := b.r.Job.Existing()
	if err != nil {
		return err
	}
	if existing == nil {
		return pipeline.Fatal("no-network", "the request names no network to build in", "Name one.").On(field)
	}
	if b.r.Mode == pipeline.Plan {
		learn(b.r, &b.ic.NetworkID, existing.NetworkID)
		return nil
	}
	v, err := b.namedVPC(ctx, or(b.ic.NetworkID, existing.NetworkID))
	switch {
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) && b.r.Mode == pipeline.Verify:
		b.r.AddDrift(pipeline.Drift{Kind: kindVPC, Key: "existing", ID: b.ic.NetworkID, Attr: "exists", Wanted: "yes", Seen: "no"})
		return nil
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid):
		return pipeline.Fatal("network-not-found", fmt.Sprintf("the network %s that the job names is not there: %v", existing.NetworkID, plain(err)),
			"Name a VPC that exists in "+b.region+", then retry.").On(field).From(err)
	case err != nil:
		return plain(err)
	}
	learn(b.r, &b.ic.NetworkID, aws.ToString(v.VpcId))
	learn(b.r, &b.ic.NetworkName, nameTag(v.Tags))
	learn(b.r, &b.ic.NetworkCIDR, aws.ToString(v.CidrBlock))
	return nil
}

// ensureGateway settles the way out of the public subnets: the job's own internet
// gateway, or the one that a named network has already. A VPC takes one only.
func (b *build) ensureGateway(ctx context.Context) error {
	if len(b.plan.Tier(job.TierPublic)) == 0 {
		return nil
	}
	if !b.own && b.r.Mode != pipeline.Plan {
		theirs, err := b.gatewayOf(ctx, b.ic.NetworkID)
		if err != nil {
			return plain(err)
		}
		if theirs != "" {
			b.gateway = theirs
			return nil
		}
	}
	id, err := b.r.Ensure(ctx, b.internetGateway(b.r, b.ic.NetworkID))
	b.gateway = id
	return err
}

// gatewayOf is the internet gateway of a VPC, if it has one that the run's job
// did not make.
func (p *Provider) gatewayOf(ctx context.Context, vpcID string) (string, error) {
	ours, err := p.internetGateways().Owned(ctx)
	if err != nil {
		return "", err
	}
	mine := map[string]bool{}
	for _, g := range ours {
		mine[aws.ToString(g.InternetGatewayId)] = true
	}
	return lookup.Once(ctx, "gateway of "+vpcID, func(ctx context.Context) (string, error) {
		all, err := ec2Page[ec2types.InternetGateway](p.gatewayPage).all(ctx, filter("attachment.vpc-id", vpcID))
		if err != nil {
			return "", err
		}
		for _, g := range all {
			for _, a := range g.Attachments {
				if id := aws.ToString(g.InternetGatewayId); aws.ToString(a.VpcId) == vpcID && !mine[id] {
					return id, nil
				}
			}
		}
		return "", nil
	})
}
