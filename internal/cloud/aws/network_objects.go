package aws

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The creates of EC2 that take a client token are given one, and yet none of
// the resources says Tokened: a create whose answer was lost is looked up by
// its mark first, which also holds where a service ignores the token.

// vpc is the network itself. brief leaves out what only matters while it is used.
func (p *Provider) vpc(r *pipeline.Run, plan *job.NetworkPlan, brief bool) pipeline.Resource {
	o := object[ec2types.Vpc]{kind: p.vpcs(), key: "vpc", name: name(r, "", 128)}
	o.see = func(ctx context.Context, x ec2types.Vpc) (pipeline.Seen, error) {
		s := pipeline.Seen{Status: pipeline.Ready, Reason: string(x.State)}
		if x.State == ec2types.VpcStatePending {
			s.Status = pipeline.Pending
		}
		if brief || s.Status != pipeline.Ready {
			return s, nil
		}
		var err error
		s.Aspects, err = p.vpcAspects(ctx, r, aws.ToString(x.VpcId))
		s.Aspects = append(s.Aspects, pipeline.Aspect{Name: "cidr", Wanted: plan.CIDR, Seen: aws.ToString(x.CidrBlock)})
		s.Aspects = append(s.Aspects, p.secondaryRanges(x, plan.SecondaryCIDRs)...)
		return s, err
	}
	x := o.resource()
	if plan != nil {
		x.Args = []string{plan.CIDR}
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{
			CidrBlock:         aws.String(plan.CIDR),
			TagSpecifications: ec2Specs(tags(r, x.Key, x.Name), ec2types.ResourceTypeVpc),
		})
		if err != nil || out.Vpc == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.Vpc.VpcId), Status: pipeline.Pending}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.ec2.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: aws.String(id)})
		return err
	}
	x.Blockers = func(ctx context.Context, id string) (string, error) { return p.vpcBlockers(ctx, r, id) }
	return x
}

// secondaryRanges wants further ranges of the VPC; one after another, since the
// VPC takes one change of them at a time.
func (p *Provider) secondaryRanges(x ec2types.Vpc, wanted []string) []pipeline.Aspect {
	var out []pipeline.Aspect
	for _, block := range wanted {
		a := pipeline.Aspect{Name: "secondary range " + block, Lane: "ranges", Wanted: "associated", Seen: "none"}
		for _, have := range x.CidrBlockAssociationSet {
			if aws.ToString(have.CidrBlock) == block && have.CidrBlockState != nil {
				a.Seen = string(have.CidrBlockState.State)
			}
		}
		a.Set = func(ctx context.Context) error {
			if a.Seen == string(ec2types.VpcCidrBlockStateCodeAssociating) {
				return pipeline.Wait(2*time.Second, "the range %s to be associated with %s", block, aws.ToString(x.VpcId))
			}
			_, err := p.ec2.AssociateVpcCidrBlock(ctx, &ec2.AssociateVpcCidrBlockInput{VpcId: x.VpcId, CidrBlock: aws.String(block)})
			return err
		}
		out = append(out, a)
	}
	return out
}

// vpcAspects reads what a VPC has that no field of it says: its two DNS
// attributes, and the rules of the default security group that came with it.
func (p *Provider) vpcAspects(ctx context.Context, r *pipeline.Run, id string) ([]pipeline.Aspect, error) {
	var hostnames, support pipeline.Aspect
	var rules pipeline.Aspect
	err := pipeline.All(ctx,
		func(ctx context.Context) (err error) {
			hostnames, err = p.vpcAttribute(ctx, r, id, "DNS host names", ec2types.VpcAttributeNameEnableDnsHostnames)
			return err
		},
		func(ctx context.Context) (err error) {
			support, err = p.vpcAttribute(ctx, r, id, "DNS resolution", ec2types.VpcAttributeNameEnableDnsSupport)
			return err
		},
		func(ctx context.Context) (err error) { rules, err = p.defaultGroupAspect(ctx, r, id); return err },
	)
	if pipeline.Is(err, pipeline.NotFound) {
		// The VPC answered a moment ago: this says nothing of its existence.
		err = pipeline.Wait(2*time.Second, "the attributes of %s to become visible", id)
	}
	// Host names need resolution, so resolution comes first.
	return []pipeline.Aspect{support, hostnames, rules}, err
}

// unknown is what is seen of an attribute that the answer does not carry.
const unknown = "unknown"

func (p *Provider) vpcAttribute(ctx context.Context, r *pipeline.Run, id, title string, attr ec2types.VpcAttributeName) (pipeline.Aspect, error) {
	seen, err := lookup.Once(ctx, "vpc-attribute "+id+" "+string(attr), func(ctx context.Context) (string, error) {
		out, err := p.ec2.DescribeVpcAttribute(ctx, &ec2.DescribeVpcAttributeInput{VpcId: aws.String(id), Attribute: attr})
		if lacksCall(err) {
			return unknown, nil
		}
		if err != nil {
			return "", err
		}
		v := out.EnableDnsSupport
		if attr == ec2types.VpcAttributeNameEnableDnsHostnames {
			v = out.EnableDnsHostnames
		}
		if v == nil || v.Value == nil {
			return unknown, nil
		}
		return onOff(*v.Value), nil
	})
	if seen == unknown && r.Mode == pipeline.Verify {
		seen = "on" // what cannot be read is not drift
	}
	return pipeline.Aspect{Name: title, Wanted: "on", Seen: seen, Set: func(ctx context.Context) error {
		in := &ec2.ModifyVpcAttributeInput{VpcId: aws.String(id)}
		yes := &ec2types.AttributeBooleanValue{Value: aws.Bool(true)}
		if attr == ec2types.VpcAttributeNameEnableDnsHostnames {
			in.EnableDnsHostnames = yes
		} else {
			in.EnableDnsSupport = yes
		}
		_, err := p.ec2.ModifyVpcAttribute(ctx, in)
		if lacksCall(err) {
			p.log.WarnContext(ctx, "the cloud does not take a VPC attribute", "attribute", title, "error", err)
			return nil
		}
		return err
	}}, err
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// defaultGroupAspect wants the VPC's default security group without rules, so
// that nothing that lands in it by mistake can talk (control NETA-01).
func (p *Provider) defaultGroupAspect(ctx context.Context, r *pipeline.Run, vpcID string) (pipeline.Aspect, error) {
	groups, err := lookup.Once(ctx, "default-group "+vpcID, func(ctx context.Context) ([]ec2types.SecurityGroup, error) {
		all, err := ec2Page[ec2types.SecurityGroup](p.groupPage).all(ctx, filter("vpc-id", vpcID), filter("group-name", "default"))
		// Its rules are taken away: a filter that was not heeded must not make
		// that somebody else's group.
		return slices.DeleteFunc(all, func(g ec2types.SecurityGroup) bool {
			return aws.ToString(g.VpcId) != vpcID || aws.ToString(g.GroupName) != "default"
		}), err
	})
	a := pipeline.Aspect{Name: "rules of the default security group", Lane: "default group", Wanted: "none", Seen: "none"}
	if err != nil {
		return a, err
	}
	if len(groups) == 0 {
		if r.Mode != pipeline.Apply || r.WaitedFor("default group of "+vpcID) > r.Consistency {
			return a, nil // a cloud that gives VPCs no such group: it has no rules either
		}
		a.Seen = "group not visible"
		a.Set = func(context.Context) error {
			return pipeline.Wait(2*time.Second, "the default security group of %s to become visible", vpcID)
		}
		return a, nil
	}
	g := groups[0]
	if in, out := len(g.IpPermissions), len(g.IpPermissionsEgress); in+out > 0 {
		a.Seen = fmt.Sprintf("%d inbound, %d outbound", in, out)
	}
	a.Set = func(ctx context.Context) error {
		return pipeline.All(ctx,
			func(ctx context.Context) error {
				if len(g.IpPermissions) == 0 {
					return nil
				}
				_, err := p.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: g.GroupId, IpPermissions: g.IpPermissions})
				return pipeline.Unless(err, pipeline.NotFound)
			},
			func(ctx context.Context) error {
				if len(g.IpPermissionsEgress) == 0 {
					return nil
				}
				_, err := p.ec2.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: g.GroupId, IpPermissions: g.IpPermissionsEgress})
				return pipeline.Unless(err, pipeline.NotFound)
			})
	}
	return a, nil
}

// internetGateway is the way out of the public subnets.
func (p *Provider) internetGateway(r *pipeline.Run, vpcID string) pipeline.Resource {
	o := object[ec2types.InternetGateway]{kind: p.internetGateways(), key: "internet-gateway", name: name(r, "igw", 128)}
	o.see = func(_ context.Context, x ec2types.InternetGateway) (pipeline.Seen, error) {
		attached := "nothing"
		for _, a := range x.Attachments {
			attached = aws.ToString(a.VpcId)
		}
		return pipeline.Seen{Status: pipeline.Ready, Aspects: []pipeline.Aspect{{
			Name: "attached to", Wanted: vpcID, Seen: attached,
			Set: func(ctx context.Context) error {
				_, err := p.ec2.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: x.InternetGatewayId, VpcId: aws.String(vpcID)})
				return pipeline.Unless(err, pipeline.Exists)
			},
		}}}, nil
	}
	x := o.resource()
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{
			TagSpecifications: ec2Specs(tags(r, x.Key, x.Name), ec2types.ResourceTypeInternetGateway),
		})
		if err != nil || out.InternetGateway == nil {
			return pipeline.Seen{}, err
		}
		s, err := o.see(ctx, *out.InternetGateway)
		s.ID = aws.ToString(out.InternetGateway.InternetGatewayId)
		return s, err
	}
	x.Delete = func(ctx context.Context, id string) error {
		g, err := o.kind.Get(ctx, id)
		if err != nil {
			return err
		}
		for _, a := range g.Attachments {
			_, err := p.ec2.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: aws.String(id), VpcId: a.VpcId})
			if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
				return err
			}
		}
		_, err = p.ec2.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: aws.String(id)})
		return err
	}
	x.Blockers = func(ctx context.Context, _ string) (string, error) {
		return p.interfaceBlockers(ctx, r, "the internet gateway", filter("vpc-id", vpcID), filter("association.public-ip", "*"))
	}
	return x
}
