package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// existingNetwork is what the cloud says of the network that a
// create_in_existing job names. It is only ever read.
type existingNetwork struct {
	vpc       ec2types.Vpc
	subnets   []existingSubnet // in the order in which the job names them
	missing   []string         // subnets that do not exist
	elsewhere []string         // subnets of other VPCs
}

type existingSubnet struct {
	id, zone, zoneID string
	cidr             string
	free             int
	public           bool   // its default route leads to an internet gateway
	route            string // where its default route leads; "none" without one
	tags             map[string]string
}

// existing reads the named VPC and subnets, once a pass.
func (p *Provider) existing(ctx context.Context, named job.Existing) (existingNetwork, error) {
	return lookup.Once(ctx, "existing "+named.NetworkID, func(ctx context.Context) (existingNetwork, error) {
		var net existingNetwork
		var subnets []ec2types.Subnet
		var tables []ec2types.RouteTable
		var err error
		if net.vpc, err = p.namedVPC(ctx, named.NetworkID); err != nil {
			return net, err
		}
		vpcID := aws.ToString(net.vpc.VpcId)
		inVPC := filter("vpc-id", vpcID)
		err = pipeline.All(ctx,
			func(ctx context.Context) (err error) {
				// By filter and not by ID: one that is missing must not hide the others.
				subnets, err = ec2Page[ec2types.Subnet](p.subnetPage).all(ctx, filter("subnet-id", named.SubnetIDs...))
				return err
			},
			func(ctx context.Context) (err error) {
				tables, err = ec2Page[ec2types.RouteTable](p.routeTablePage).all(ctx, inVPC)
				tables = slices.DeleteFunc(tables, func(t ec2types.RouteTable) bool { return aws.ToString(t.VpcId) != vpcID })
				return err
			},
		)
		if err != nil {
			return net, err
		}
		byID := map[string]ec2types.Subnet{}
		for _, s := range subnets {
			byID[aws.ToString(s.SubnetId)] = s
		}
		for _, id := range named.SubnetIDs {
			s, ok := byID[id]
			switch {
			case !ok:
				net.missing = append(net.missing, id)
			case aws.ToString(s.VpcId) != vpcID:
				net.elsewhere = append(net.elsewhere, id)
			default:
				route := defaultTarget(tableOf(id, tables))
				net.subnets = append(net.subnets, existingSubnet{
					id: id, zone: aws.ToString(s.AvailabilityZone), zoneID: aws.ToString(s.AvailabilityZoneId), cidr: aws.ToString(s.CidrBlock),
					free: int(aws.ToInt32(s.AvailableIpAddressCount)), route: route, public: strings.HasPrefix(route, "igw-"), tags: tagMap(s.Tags),
				})
			}
		}
		return net, nil
	})
}

// tableOf is the route table of a subnet: the one associated with it, or else
// the VPC's main one.
func tableOf(subnetID string, tables []ec2types.RouteTable) ec2types.RouteTable {
	var main ec2types.RouteTable
	for _, t := range tables {
		for _, a := range t.Associations {
			if aws.ToString(a.SubnetId) == subnetID {
				return t
			}
			if aws.ToBool(a.Main) {
				main = t
			}
		}
	}
	return main
}

// spread is one private and one public subnet a zone, in the order of the
// private ones; a zone without a public subnet has "" there.
func (n existingNetwork) spread() (zones, private, public []string) {
	publicIn := map[string]string{}
	for _, s := range n.subnets {
		if s.public && publicIn[s.zone] == "" {
			publicIn[s.zone] = s.id
		}
	}
	for _, s := range n.subnets {
		if !s.public && !slices.Contains(zones, s.zone) {
			zones, private = append(zones, s.zone), append(private, s.id)
		}
	}
	for _, z := range zones {
		if publicIn[z] != "" {
			public = append(public, publicIn[z])
			delete(publicIn, z)
		}
	}
	// Public subnets of zones without VMs still take a load balancer.
	for _, s := range n.subnets {
		if publicIn[s.zone] == s.id {
			public = append(public, s.id)
		}
	}
	return zones, private, public
}

// readNetwork records the network that the job names, and changes nothing.
func (p *Provider) readNetwork(ctx context.Context, r *pipeline.Run) error {
	named, err := r.Job.Existing()
	if err != nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	if r.Mode == pipeline.Plan {
		ic.NetworkID = named.NetworkID
		if len(ic.PrivateSubnetIDs) == 0 {
			ic.PrivateSubnetIDs = named.SubnetIDs
		}
		return nil
	}
	net, err := p.existing(ctx, *named)
	if err == nil && len(net.missing)+len(net.elsewhere) > 0 {
		err = absent("EC2", "DescribeSubnets", strings.Join(slices.Concat(net.missing, net.elsewhere), ", ")+" in "+named.NetworkID)
	}
	if pipeline.Is(err, pipeline.NotFound) {
		if r.Mode == pipeline.Verify {
			r.AddDrift(pipeline.Drift{Kind: kindVPC, Key: "existing", ID: named.NetworkID, Attr: "exists", Wanted: "yes", Seen: plain(err).Error()})
			return nil
		}
		return pipeline.Fatal("network-not-found", fmt.Sprintf("the network %s or a subnet that the job names is not there: %v", named.NetworkID, plain(err)),
			"Name a network and subnets that exist in "+p.region+", then retry.").On("config.spec.existing").From(err)
	}
	if err != nil {
		return plain(err)
	}
	zones, private, public := net.spread()
	if len(private) == 0 {
		return pipeline.Fatal("no-private-subnet", "none of the subnets that the job names is private: each has a default route to an internet gateway",
			"Name a subnet whose default route leads to a NAT gateway, then retry.").On("config.spec.existing.subnetIds")
	}
	if r.Mode == pipeline.Verify {
		for i, id := range ic.PrivateSubnetIDs {
			if !slices.Contains(private, id) {
				r.AddDrift(pipeline.Drift{Kind: kindSubnet, Key: "existing-" + zoneLetter(i), ID: id, Attr: "private", Wanted: "yes", Seen: "no"})
			}
		}
		return nil
	}
	ic.NetworkID, ic.NetworkCIDR = aws.ToString(net.vpc.VpcId), aws.ToString(net.vpc.CidrBlock)
	ic.Zones, ic.PrivateSubnetIDs, ic.PublicSubnetIDs = zones, private, public
	return p.readExistingEgress(ctx, r, net)
}

func zoneLetter(i int) string { return string(rune('a' + i)) }

// readExistingEgress records the NAT gateways that the private subnets use; a
// caller that may not see them goes on without.
func (p *Provider) readExistingEgress(ctx context.Context, r *pipeline.Run, net existingNetwork) error {
	var ids []string
	for _, s := range net.subnets {
		if strings.HasPrefix(s.route, "nat-") && !slices.Contains(ids, s.route) {
			ids = append(ids, s.route)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	out, err := p.ec2.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{NatGatewayIds: ids})
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.Denied, pipeline.NotFound, pipeline.Invalid)
	}
	ic := &r.Job.Config.InfraConfig
	ic.EgressIPs = nil
	for _, n := range out.NatGateways {
		for _, a := range n.NatGatewayAddresses {
			if a.PublicIp != nil {
				ic.EgressIPs = append(ic.EgressIPs, aws.ToString(a.PublicIp))
			}
		}
	}
	return nil
}
