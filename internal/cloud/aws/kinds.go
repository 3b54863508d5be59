package aws

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The kinds of object as the ledger names them: service and type.
const (
	kindVPC             = "ec2:vpc"
	kindInternetGateway = "ec2:internet-gateway"
	kindSubnet          = "ec2:subnet"
	kindAddress         = "ec2:elastic-ip"
	kindNATGateway      = "ec2:nat-gateway"
	kindRouteTable      = "ec2:route-table"
	kindSecurityGroup   = "ec2:security-group"
	kindInterface       = "ec2:network-interface"
	kindRole            = "iam:role"
	kindInstanceProfile = "iam:instance-profile"
)

// ec2Page is one page of a Describe call: by filters, or by IDs.
type ec2Page[T any] func(ctx context.Context, filters []ec2types.Filter, ids []string, token *string) ([]T, *string, error)

// all is every page.
func (page ec2Page[T]) all(ctx context.Context, filters ...ec2types.Filter) ([]T, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]T, *string, error) {
		return page(ctx, filters, nil, token)
	})
}

// ec2Kind is a kind of EC2 object: listed by the owner tag, read by its ID.
func ec2Kind[T any](name string, page ec2Page[T], id func(T) *string, tags func(T) []ec2types.Tag) lookup.Kind[T] {
	return lookup.Kind[T]{
		Name: name,
		List: func(ctx context.Context, owner string) ([]T, error) {
			all, err := page.all(ctx, ownedBy(owner)...)
			// An endpoint that does not know the filter answers with everybody's.
			return slices.DeleteFunc(all, func(x T) bool {
				who, _ := ec2Mark(tags(x))
				return who != owner
			}), err
		},
		One: func(ctx context.Context, want string) (T, error) {
			found, _, err := page(ctx, nil, []string{want}, nil)
			var none T
			if err != nil {
				return none, err
			}
			for _, x := range found {
				if aws.ToString(id(x)) == want {
					return x, nil
				}
			}
			return none, absent("EC2", "Describe", name+" "+want)
		},
		ID:   func(x T) string { return aws.ToString(id(x)) },
		Mark: func(x T) (string, string) { return ec2Mark(tags(x)) },
	}
}

func (p *Provider) vpcPage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.Vpc, *string, error) {
	out, err := p.ec2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: f, VpcIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.Vpcs, out.NextToken, nil
}

func (p *Provider) vpcs() lookup.Kind[ec2types.Vpc] {
	return ec2Kind(kindVPC, p.vpcPage,
		func(x ec2types.Vpc) *string { return x.VpcId },
		func(x ec2types.Vpc) []ec2types.Tag { return x.Tags })
}

func (p *Provider) gatewayPage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.InternetGateway, *string, error) {
	out, err := p.ec2.DescribeInternetGateways(ctx, &ec2.DescribeInternetGatewaysInput{Filters: f, InternetGatewayIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.InternetGateways, out.NextToken, nil
}

func (p *Provider) internetGateways() lookup.Kind[ec2types.InternetGateway] {
	return ec2Kind(kindInternetGateway, p.gatewayPage,
		func(x ec2types.InternetGateway) *string { return x.InternetGatewayId },
		func(x ec2types.InternetGateway) []ec2types.Tag { return x.Tags })
}

func (p *Provider) subnetPage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.Subnet, *string, error) {
	out, err := p.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: f, SubnetIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.Subnets, out.NextToken, nil
}

func (p *Provider) subnets() lookup.Kind[ec2types.Subnet] {
	return ec2Kind(kindSubnet, p.subnetPage,
		func(x ec2types.Subnet) *string { return x.SubnetId },
		func(x ec2types.Subnet) []ec2types.Tag { return x.Tags })
}

// addressPage has no pages: DescribeAddresses answers all at once.
func (p *Provider) addressPage(ctx context.Context, f []ec2types.Filter, ids []string, _ *string) ([]ec2types.Address, *string, error) {
	out, err := p.ec2.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{Filters: f, AllocationIds: ids})
	if err != nil {
		return nil, nil, err
	}
	return out.Addresses, nil, nil
}

func (p *Provider) addresses() lookup.Kind[ec2types.Address] {
	return ec2Kind(kindAddress, p.addressPage,
		func(x ec2types.Address) *string { return x.AllocationId },
		func(x ec2types.Address) []ec2types.Tag { return x.Tags })
}

func (p *Provider) natPage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.NatGateway, *string, error) {
	out, err := p.ec2.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{Filter: f, NatGatewayIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.NatGateways, out.NextToken, nil
}

func (p *Provider) natGateways() lookup.Kind[ec2types.NatGateway] {
	return ec2Kind(kindNATGateway, p.natPage,
		func(x ec2types.NatGateway) *string { return x.NatGatewayId },
		func(x ec2types.NatGateway) []ec2types.Tag { return x.Tags })
}

func (p *Provider) routeTablePage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.RouteTable, *string, error) {
	out, err := p.ec2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: f, RouteTableIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.RouteTables, out.NextToken, nil
}

func (p *Provider) routeTables() lookup.Kind[ec2types.RouteTable] {
	return ec2Kind(kindRouteTable, p.routeTablePage,
		func(x ec2types.RouteTable) *string { return x.RouteTableId },
		func(x ec2types.RouteTable) []ec2types.Tag { return x.Tags })
}

func (p *Provider) groupPage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.SecurityGroup, *string, error) {
	out, err := p.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: f, GroupIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.SecurityGroups, out.NextToken, nil
}

func (p *Provider) securityGroups() lookup.Kind[ec2types.SecurityGroup] {
	return ec2Kind(kindSecurityGroup, p.groupPage,
		func(x ec2types.SecurityGroup) *string { return x.GroupId },
		func(x ec2types.SecurityGroup) []ec2types.Tag { return x.Tags })
}

func (p *Provider) interfacePage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.NetworkInterface, *string, error) {
	out, err := p.ec2.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: f, NetworkInterfaceIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.NetworkInterfaces, out.NextToken, nil
}

// An object is one of a job's objects at EC2, as a pipeline.Resource without
// what each object has of its own.
type object[T any] struct {
	kind lookup.Kind[T]
	key  string
	name string
	see  func(ctx context.Context, x T) (pipeline.Seen, error) // status and aspects; ID and owner are filled in
}

// resource is the part of the protocol that is the same for every kind: read by
// ID and find by mark, both from the pass's one list.
func (o object[T]) resource() pipeline.Resource {
	seen := func(ctx context.Context, x T) (pipeline.Seen, error) {
		s, err := o.see(ctx, x)
		s.ID = o.kind.ID(x)
		s.Owner, _ = o.kind.Mark(x)
		return s, err
	}
	return pipeline.Resource{
		Kind: o.kind.Name, Key: o.key, Name: o.name,
		Get: func(ctx context.Context, id string) (pipeline.Seen, error) {
			x, err := o.kind.Get(ctx, id)
			if err != nil {
				return pipeline.Seen{}, err
			}
			return seen(ctx, x)
		},
		Find: func(ctx context.Context) ([]pipeline.Seen, error) {
			found, err := o.kind.Find(ctx, o.key)
			if err != nil {
				return nil, err
			}
			var out []pipeline.Seen
			for _, x := range found {
				s, err := seen(ctx, x)
				if err != nil {
					return nil, err
				}
				out = append(out, s)
			}
			return out, nil
		},
	}
}

// name is the name of one of the job's objects, within max characters.
func name(r *pipeline.Run, use string, max int) string { return r.Job.ResourceName(use, max) }

// tags are the tags of one of the job's objects.
func tags(r *pipeline.Run, key, name string) map[string]string { return tagsFor(r.Job, key, name) }
