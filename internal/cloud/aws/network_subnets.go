package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// subnet is one subnet; nothing in it gets a public address by itself.
func (p *Provider) subnet(r *pipeline.Run, key, vpcID, cidr, zone string) pipeline.Resource {
	o := object[ec2types.Subnet]{kind: p.subnets(), key: key, name: name(r, key, 128)}
	o.see = func(_ context.Context, x ec2types.Subnet) (pipeline.Seen, error) {
		s := pipeline.Seen{Status: pipeline.Ready, Reason: string(x.State)}
		switch x.State {
		case ec2types.SubnetStatePending:
			s.Status = pipeline.Pending
		case ec2types.SubnetStateFailed, ec2types.SubnetStateFailedInsufficientCapacity:
			s.Status = pipeline.Broken
		}
		s.Aspects = []pipeline.Aspect{
			{Name: "zone", Wanted: zone, Seen: aws.ToString(x.AvailabilityZone)},
			{Name: "cidr", Wanted: cidr, Seen: aws.ToString(x.CidrBlock)},
			{Name: "public address on launch", Wanted: "off", Seen: onOff(aws.ToBool(x.MapPublicIpOnLaunch)), Set: func(ctx context.Context) error {
				_, err := p.ec2.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{
					SubnetId: x.SubnetId, MapPublicIpOnLaunch: &ec2types.AttributeBooleanValue{Value: aws.Bool(false)},
				})
				return err
			}},
		}
		s.Aspects = append(s.Aspects, p.subnetRole(r, key, x)...)
		return s, nil
	}
	x := o.resource()
	x.Args = []string{vpcID, cidr, zone}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateSubnet(ctx, &ec2.CreateSubnetInput{
			VpcId: aws.String(vpcID), CidrBlock: aws.String(cidr), AvailabilityZone: aws.String(zone),
			TagSpecifications: ec2Specs(subnetTags(r, x.Key, x.Name), ec2types.ResourceTypeSubnet),
		})
		if err != nil || out.Subnet == nil {
			return pipeline.Seen{}, err
		}
		s, err := o.see(ctx, *out.Subnet)
		s.ID = aws.ToString(out.Subnet.SubnetId)
		return s, err
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.ec2.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: aws.String(id)})
		return err
	}
	x.Blockers = func(ctx context.Context, id string) (string, error) {
		return p.interfaceBlockers(ctx, r, "the subnet", filter("subnet-id", id))
	}
	return x
}

// loadBalancerRole is the tag by which a cluster's controllers know which subnets
// their load balancers go into ("Create load balancers in subnets"); "" for a subnet
// that none goes into.
func loadBalancerRole(j *job.Job, key string) string {
	switch {
	case !isCluster(j):
	case strings.HasPrefix(key, job.TierPublic+"-"):
		return "kubernetes.io/role/elb"
	case strings.HasPrefix(key, job.TierPrivate+"-"):
		return "kubernetes.io/role/internal-elb"
	}
	return ""
}

func subnetTags(r *pipeline.Run, key, name string) map[string]string {
	out := tags(r, key, name)
	if role := loadBalancerRole(r.Job, key); role != "" {
		out[role] = "1"
	}
	return out
}

// subnetRole wants the tag on a cluster's subnet.
func (p *Provider) subnetRole(r *pipeline.Run, key string, x ec2types.Subnet) []pipeline.Aspect {
	role := loadBalancerRole(r.Job, key)
	if role == "" || r.Down {
		return nil
	}
	return []pipeline.Aspect{{Name: "tag " + role, Wanted: "1", Seen: or(tagMap(x.Tags)[role], "none"), Set: func(ctx context.Context) error {
		_, err := p.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{aws.ToString(x.SubnetId)}, Tags: []ec2types.Tag{{Key: aws.String(role), Value: aws.String("1")}}})
		return err
	}}}
}

// address is the elastic IP of a NAT gateway.
func (p *Provider) address(r *pipeline.Run, key string) pipeline.Resource {
	o := object[ec2types.Address]{kind: p.addresses(), key: key, name: name(r, key, 128)}
	o.see = func(context.Context, ec2types.Address) (pipeline.Seen, error) {
		return pipeline.Seen{Status: pipeline.Ready}, nil
	}
	x := o.resource()
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.ec2.AllocateAddress(ctx, &ec2.AllocateAddressInput{
			Domain: ec2types.DomainTypeVpc, TagSpecifications: ec2Specs(tags(r, x.Key, x.Name), ec2types.ResourceTypeElasticIp),
		})
		if err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.AllocationId), Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.ec2.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: aws.String(id)})
		return err
	}
	x.Blockers = func(ctx context.Context, id string) (string, error) {
		a, err := o.kind.Get(ctx, id)
		if err != nil || a.AssociationId == nil {
			// Released, or not yet known to be free after the NAT gateway went.
			return "", pipeline.Unless(err, pipeline.NotFound)
		}
		return fmt.Sprintf("it is in use by interface %s; detach it there", aws.ToString(a.NetworkInterfaceId)), nil
	}
	return x
}

// natGateway lets the private subnets out.
func (p *Provider) natGateway(r *pipeline.Run, key, subnetID, allocationID string) pipeline.Resource {
	o := object[ec2types.NatGateway]{kind: p.natGateways(), key: key, name: name(r, key, 128)}
	o.see = func(_ context.Context, x ec2types.NatGateway) (pipeline.Seen, error) {
		s := pipeline.Seen{Reason: string(x.State)}
		switch x.State {
		case ec2types.NatGatewayStateAvailable:
			s.Status = pipeline.Ready
		case ec2types.NatGatewayStateFailed:
			s.Status = pipeline.Broken
			s.Reason = strings.Trim(aws.ToString(x.FailureCode)+": "+aws.ToString(x.FailureMessage), ": ")
			// A failed gateway holds nothing, and stays listed as failed for about
			// an hour, deleted or not ("Troubleshoot NAT gateways").
			rec, _ := r.Object(kindNATGateway, key)
			if rec.ID == aws.ToString(x.NatGatewayId) && (rec.Reason != "" || rec.State == job.ObjectRemoved) {
				s.Status = pipeline.Gone
			}
		case ec2types.NatGatewayStateDeleted:
			s.Status = pipeline.Gone
		default:
			s.Status = pipeline.Pending
		}
		if subnetID != "" && s.Status == pipeline.Ready {
			s.Aspects = []pipeline.Aspect{{Name: "subnet", Wanted: subnetID, Seen: aws.ToString(x.SubnetId)}}
		}
		return s, nil
	}
	x := o.resource()
	x.Args = []string{subnetID, allocationID}
	x.Slow = true
	find := x.Find
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		all, err := find(ctx)
		if len(all) > 1 { // one that failed before, and the one that replaced it
			all = slices.DeleteFunc(all, func(s pipeline.Seen) bool { return s.Status == pipeline.Broken })
		}
		return all, err
	}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{
			SubnetId: aws.String(subnetID), AllocationId: aws.String(allocationID), ClientToken: aws.String(token),
			ConnectivityType:  ec2types.ConnectivityTypePublic,
			TagSpecifications: ec2Specs(tags(r, x.Key, x.Name), ec2types.ResourceTypeNatgateway),
		})
		if err != nil || out.NatGateway == nil {
			return pipeline.Seen{}, err
		}
		s, err := o.see(ctx, *out.NatGateway)
		s.ID = aws.ToString(out.NatGateway.NatGatewayId)
		return s, err
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.ec2.DeleteNatGateway(ctx, &ec2.DeleteNatGatewayInput{NatGatewayId: aws.String(id)})
		return err
	}
	return x
}
