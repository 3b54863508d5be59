package aws

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/pipeline"
)

const anywhere = "0.0.0.0/0"

// routeTable is a route table for some subnets, with a default route to the
// target, an internet gateway or a NAT gateway; with none if the target is "".
func (p *Provider) routeTable(r *pipeline.Run, key, vpcID, target string, subnetIDs []string) pipeline.Resource {
	o := object[ec2types.RouteTable]{kind: p.routeTables(), key: key, name: name(r, key, 128)}
	o.see = func(_ context.Context, x ec2types.RouteTable) (pipeline.Seen, error) {
		s := pipeline.Seen{Status: pipeline.Ready}
		switch {
		case len(subnetIDs) == 0:
			return s, nil // it is on its way out
		case target == "":
			s.Aspects = append(s.Aspects, p.noDefaultRoute(x))
		default:
			s.Aspects = append(s.Aspects, p.defaultRoute(x, target))
		}
		for _, id := range subnetIDs {
			s.Aspects = append(s.Aspects, p.association(x, vpcID, id))
		}
		return s, nil
	}
	x := o.resource()
	x.Args = []string{vpcID}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{
			VpcId: aws.String(vpcID), ClientToken: aws.String(token),
			TagSpecifications: ec2Specs(tags(r, x.Key, x.Name), ec2types.ResourceTypeRouteTable),
		})
		if err != nil || out.RouteTable == nil {
			return pipeline.Seen{}, err
		}
		s, err := o.see(ctx, *out.RouteTable)
		s.ID = aws.ToString(out.RouteTable.RouteTableId)
		return s, err
	}
	x.Delete = func(ctx context.Context, id string) error {
		del := func() error {
			_, err := p.ec2.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: aws.String(id)})
			return err
		}
		err := del()
		if pipeline.Is(err, pipeline.Busy) {
			// The deletion of a subnet takes its association along, at AWS at
			// once, elsewhere late or never.
			freed, ferr := p.disassociate(ctx, r, id)
			if ferr != nil || !freed {
				return cmp.Or(ferr, err)
			}
			err = del()
		}
		return err
	}
	x.Blockers = func(ctx context.Context, id string) (string, error) {
		t, err := o.kind.Get(ctx, id)
		if err != nil {
			return "", pipeline.Unless(err, pipeline.NotFound)
		}
		var subnets []string
		for _, a := range t.Associations {
			if a.SubnetId != nil {
				subnets = append(subnets, aws.ToString(a.SubnetId))
			}
		}
		if len(subnets) == 0 {
			return "", nil
		}
		return fmt.Sprintf("it still routes for %s; give those subnets another route table, or delete them", strings.Join(subnets, ", ")), nil
	}
	return x
}

// disassociate takes our own subnets off a route table, gone or not.
func (p *Provider) disassociate(ctx context.Context, r *pipeline.Run, tableID string) (freed bool, err error) {
	ours := map[string]bool{}
	for _, o := range r.Objects() {
		if o.Kind == kindSubnet && o.ID != "" {
			ours[o.ID] = true
		}
	}
	t, err := p.routeTables().Get(ctx, tableID)
	if err != nil {
		return false, pipeline.Unless(err, pipeline.NotFound)
	}
	for _, a := range t.Associations {
		if !ours[aws.ToString(a.SubnetId)] {
			continue
		}
		_, err := p.ec2.DisassociateRouteTable(ctx, &ec2.DisassociateRouteTableInput{AssociationId: a.RouteTableAssociationId})
		if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
			return freed, err
		}
		freed = true
	}
	return freed, nil
}

// routeTarget is where a route leads, and whether that still exists.
func routeTarget(rt ec2types.Route) string {
	for _, id := range []*string{rt.NatGatewayId, rt.GatewayId, rt.TransitGatewayId, rt.NetworkInterfaceId, rt.VpcPeeringConnectionId, rt.InstanceId, rt.EgressOnlyInternetGatewayId, rt.LocalGatewayId, rt.CarrierGatewayId} {
		if aws.ToString(id) != "" {
			if rt.State == ec2types.RouteStateBlackhole {
				return aws.ToString(id) + " (gone)"
			}
			return aws.ToString(id)
		}
	}
	return "none"
}

// defaultTarget is where a table's default route leads; "none" without one.
func defaultTarget(t ec2types.RouteTable) string {
	for _, rt := range t.Routes {
		if aws.ToString(rt.DestinationCidrBlock) == anywhere {
			return routeTarget(rt)
		}
	}
	return "none"
}

func (p *Provider) defaultRoute(t ec2types.RouteTable, target string) pipeline.Aspect {
	seen := defaultTarget(t)
	var gateway, nat *string
	if strings.HasPrefix(target, "nat-") {
		nat = aws.String(target)
	} else {
		gateway = aws.String(target)
	}
	replace := func(ctx context.Context) error {
		_, err := p.ec2.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{
			RouteTableId: t.RouteTableId, DestinationCidrBlock: aws.String(anywhere), GatewayId: gateway, NatGatewayId: nat,
		})
		return err
	}
	return pipeline.Aspect{Name: "default route", Lane: "route", Wanted: target, Seen: seen, Set: func(ctx context.Context) error {
		if seen != "none" {
			return replace(ctx)
		}
		_, err := p.ec2.CreateRoute(ctx, &ec2.CreateRouteInput{
			RouteTableId: t.RouteTableId, DestinationCidrBlock: aws.String(anywhere), GatewayId: gateway, NatGatewayId: nat,
		})
		if pipeline.Is(err, pipeline.Exists) {
			return replace(ctx)
		}
		return err
	}}
}

// noDefaultRoute wants a table that leads nowhere else.
func (p *Provider) noDefaultRoute(t ec2types.RouteTable) pipeline.Aspect {
	return pipeline.Aspect{Name: "default route", Lane: "route", Wanted: "none", Seen: defaultTarget(t), Set: func(ctx context.Context) error {
		_, err := p.ec2.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: t.RouteTableId, DestinationCidrBlock: aws.String(anywhere)})
		return pipeline.Unless(err, pipeline.NotFound)
	}}
}

// association wants a subnet to use the table.
func (p *Provider) association(t ec2types.RouteTable, vpcID, subnetID string) pipeline.Aspect {
	a := pipeline.Aspect{Name: "used by " + subnetID, Lane: subnetID, Wanted: "yes", Seen: "no"}
	for _, have := range t.Associations {
		if aws.ToString(have.SubnetId) == subnetID {
			a.Seen = "yes"
		}
	}
	a.Set = func(ctx context.Context) error {
		_, err := p.ec2.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: t.RouteTableId, SubnetId: aws.String(subnetID)})
		if !pipeline.Is(err, pipeline.Exists) {
			return err
		}
		// Another table of the VPC has the subnet: take it over.
		tables, lerr := ec2Page[ec2types.RouteTable](p.routeTablePage).all(ctx, filter("vpc-id", vpcID), filter("association.subnet-id", subnetID))
		if lerr != nil {
			return lerr
		}
		for _, other := range tables {
			for _, have := range other.Associations {
				if aws.ToString(have.SubnetId) != subnetID || aws.ToString(other.RouteTableId) == aws.ToString(t.RouteTableId) {
					continue
				}
				_, err := p.ec2.ReplaceRouteTableAssociation(ctx, &ec2.ReplaceRouteTableAssociationInput{AssociationId: have.RouteTableAssociationId, RouteTableId: t.RouteTableId})
				return err
			}
		}
		return nil
	}
	return a
}
