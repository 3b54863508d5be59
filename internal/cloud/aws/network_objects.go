package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
func (p *Provider) vpc(r *pipeline.Run, cidr string, brief bool) pipeline.Resource {
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
		s.Aspects = append(s.Aspects, pipeline.Aspect{Name: "cidr", Wanted: cidr, Seen: aws.ToString(x.CidrBlock)})
		return s, err
	}
	x := o.resource()
	x.Args = []string{cidr}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{
			CidrBlock:         aws.String(cidr),
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
		if r.Mode != pipeline.Apply || waited(r, "default group of "+vpcID) > r.Consistency {
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
				return unless(err, pipeline.NotFound)
			},
			func(ctx context.Context) error {
				if len(g.IpPermissionsEgress) == 0 {
					return nil
				}
				_, err := p.ec2.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: g.GroupId, IpPermissions: g.IpPermissionsEgress})
				return unless(err, pipeline.NotFound)
			})
	}
	return a, nil
}

// unless drops an error of one of the classes: what was asked for is so already.
func unless(err error, classes ...pipeline.Class) error {
	if pipeline.Is(err, classes...) {
		return nil
	}
	return err
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
				return unless(err, pipeline.Exists)
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
			if err := unless(err, pipeline.NotFound); err != nil {
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
		return s, nil
	}
	x := o.resource()
	x.Args = []string{vpcID, cidr, zone}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateSubnet(ctx, &ec2.CreateSubnetInput{
			VpcId: aws.String(vpcID), CidrBlock: aws.String(cidr), AvailabilityZone: aws.String(zone),
			TagSpecifications: ec2Specs(tags(r, x.Key, x.Name), ec2types.ResourceTypeSubnet),
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
			return "", unless(err, pipeline.NotFound)
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
