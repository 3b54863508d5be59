package aws

import (
	"context"
	"errors"
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

// aspects is what makes an active peering usable, on each side that is reached:
// routes, and the other side's names resolved to its private addresses.
func (l link) aspects(ctx context.Context, c ec2types.VpcPeeringConnection) ([]pipeline.Aspect, error) {
	id := aws.ToString(c.VpcPeeringConnectionId)
	near, err := l.nearTables(ctx)
	if err != nil {
		return nil, err
	}
	out := []pipeline.Aspect{l.names(ctx, id, "requester", c.RequesterVpcInfo)}
	for _, t := range near {
		for _, block := range l.peerRanges(c) {
			out = append(out, l.route(ctx, l.Provider, t, block, id))
		}
	}
	if l.peer == nil || l.vpc.VpcId == nil {
		return out, nil
	}
	theirs, err := l.peer.peeringKind().One(l.far, id)
	if err != nil {
		return nil, pipeline.Unseen(err, id+" on the other side")
	}
	far, err := l.farTables()
	if err != nil {
		return nil, err
	}
	out = append(out, l.names(l.far, id, "accepter", theirs.AccepterVpcInfo))
	for _, t := range far {
		for _, block := range l.ownRanges() {
			out = append(out, l.route(l.far, l.peer, t, block, id))
		}
	}
	return out, nil
}

// nearTables are the route tables of the job's own subnets. One that does not show
// is waited for: its routes must not be forgotten.
func (l link) nearTables(ctx context.Context) ([]ec2types.RouteTable, error) {
	all, err := made(ctx, l.r, l.routeTables())
	if err != nil {
		return nil, err
	}
	for _, o := range l.r.Objects() {
		there := slices.ContainsFunc(all, func(t ec2types.RouteTable) bool { return aws.ToString(t.RouteTableId) == o.ID })
		if o.Kind == kindRouteTable && o.State == job.ObjectCreated && !there {
			return nil, visible(l.r, "route table "+o.Name, absent("EC2", "DescribeRouteTables", "route table "+o.ID))
		}
	}
	return all, nil
}

// farTables are all route tables of the peer's network.
func (l link) farTables() ([]ec2types.RouteTable, error) {
	return lookup.Once(l.far, "route tables of "+l.vpcID, func(ctx context.Context) ([]ec2types.RouteTable, error) {
		all, err := ec2Page[ec2types.RouteTable](l.peer.routeTablePage).all(ctx, filter("vpc-id", l.vpcID))
		return slices.DeleteFunc(all, func(t ec2types.RouteTable) bool { return aws.ToString(t.VpcId) != l.vpcID }), err
	})
}

// peerRanges are the ranges to route to: those that are asked for, or all of the
// peer's. Never everything (control NETA-12).
func (l link) peerRanges(c ec2types.VpcPeeringConnection) []string {
	if len(l.asked.CIDRs) > 0 {
		return l.asked.CIDRs
	}
	if l.vpc.VpcId != nil {
		return vpcRanges(l.vpc)
	}
	var out []string
	if side := c.AccepterVpcInfo; side != nil {
		for _, b := range side.CidrBlockSet {
			out = append(out, aws.ToString(b.CidrBlock))
		}
		if len(out) == 0 && side.CidrBlock != nil {
			out = []string{aws.ToString(side.CidrBlock)}
		}
	}
	return out
}

// ownRanges are what the other side routes to: the ranges of the job's own
// network, or of its part of a network that exists.
func (l link) ownRanges() []string {
	ic := l.r.Job.Config.InfraConfig
	if ic.NetworkPlan != nil {
		return append([]string{ic.NetworkPlan.CIDR}, ic.NetworkPlan.SecondaryCIDRs...)
	}
	return []string{ic.NetworkCIDR}
}

// vpcRanges are all IPv4 ranges of a VPC.
func vpcRanges(v ec2types.Vpc) []string {
	var out []string
	for _, b := range v.CidrBlockAssociationSet {
		if b.CidrBlockState == nil || b.CidrBlockState.State == ec2types.VpcCidrBlockStateCodeAssociated || b.CidrBlockState.State == ec2types.VpcCidrBlockStateCodeAssociating {
			out = append(out, aws.ToString(b.CidrBlock))
		}
	}
	if len(out) == 0 && v.CidrBlock != nil {
		out = []string{aws.ToString(v.CidrBlock)}
	}
	return out
}

// route wants one range to lead through the peering. A route that leads elsewhere
// is somebody's, and is named; one whose target is gone is replaced.
func (l link) route(ctx context.Context, side *Provider, t ec2types.RouteTable, block, id string) pipeline.Aspect {
	table := aws.ToString(t.RouteTableId)
	a := pipeline.Aspect{Name: "route to " + block + " in " + table, Wanted: id, Seen: "none", Lane: table}
	for _, rt := range t.Routes {
		if aws.ToString(rt.DestinationCidrBlock) == block {
			a.Seen = routeTarget(rt)
		}
	}
	a.Set = func(own context.Context) error {
		if side == l.Provider {
			ctx = own
		}
		switch {
		case strings.HasSuffix(a.Seen, "(gone)"):
			_, err := side.ec2.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{RouteTableId: t.RouteTableId, DestinationCidrBlock: aws.String(block), VpcPeeringConnectionId: aws.String(id)})
			return err
		case a.Seen != "none":
			return pipeline.Fatal("route-taken", fmt.Sprintf("route table %s of account %s leads %s to %s, so the peering %s cannot be routed there, and it was not touched", table, aws.ToString(t.OwnerId), block, a.Seen, id),
				"Remove that route, or name other ranges in cidrs, then retry.").On("config.spec.peerings")
		}
		_, err := side.ec2.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: t.RouteTableId, DestinationCidrBlock: aws.String(block), VpcPeeringConnectionId: aws.String(id)})
		if pipeline.Is(err, pipeline.Exists) {
			return pipeline.Wait(0, "the routes of %s, which somebody has just changed", table)
		}
		return err
	}
	return a
}

// names wants the names of one side to resolve to private addresses on the other.
func (l link) names(ctx context.Context, id, side string, info *ec2types.VpcPeeringConnectionVpcInfo) pipeline.Aspect {
	a := pipeline.Aspect{Name: "names of the " + side, Wanted: "resolved", Seen: unknown, Lane: "names of the " + side}
	if info != nil && info.PeeringOptions != nil && info.PeeringOptions.AllowDnsResolutionFromRemoteVpc != nil {
		a.Seen = map[bool]string{true: "resolved", false: "not resolved"}[*info.PeeringOptions.AllowDnsResolutionFromRemoteVpc]
	}
	if a.Seen == unknown && l.r.Mode == pipeline.Verify {
		a.Seen = a.Wanted // what cannot be read is not drift
	}
	on := &ec2types.PeeringConnectionOptionsRequest{AllowDnsResolutionFromRemoteVpc: aws.Bool(true)}
	in := &ec2.ModifyVpcPeeringConnectionOptionsInput{VpcPeeringConnectionId: aws.String(id)}
	at := l.Provider
	if side == "accepter" {
		at, in.AccepterPeeringConnectionOptions = l.peer, on
	} else {
		in.RequesterPeeringConnectionOptions = on
	}
	a.Set = func(own context.Context) error {
		if at == l.Provider && side != "accepter" {
			ctx = own
		}
		_, err := at.ec2.ModifyVpcPeeringConnectionOptions(ctx, in)
		var ce *pipeline.CloudError
		if errors.As(err, &ce) && (ce.Class == pipeline.Invalid || strings.HasPrefix(ce.Code, "OperationNotPermitted")) {
			// A network without DNS host names has no names to resolve.
			l.r.Note("the names of the %s of %s are not resolved across it: %v", side, id, plain(err))
			return nil
		}
		return err
	}
	return a
}

// unroute takes the routes to a peering out of the peer's tables.
func (l link) unroute(ctx context.Context, id string) error {
	if l.peer == nil || l.vpc.VpcId == nil {
		return nil
	}
	far, err := l.farTables()
	if err != nil {
		return plain(err)
	}
	for _, t := range far {
		for _, rt := range t.Routes {
			if aws.ToString(rt.VpcPeeringConnectionId) != id {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			_, err := l.peer.ec2.DeleteRoute(l.far, &ec2.DeleteRouteInput{RouteTableId: t.RouteTableId, DestinationCidrBlock: rt.DestinationCidrBlock})
			if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
				return err
			}
		}
	}
	return nil
}

// routedByPeering lists where a table leads through peerings, for the report.
func routedByPeering(tables []ec2types.RouteTable) []string {
	var out []string
	for _, t := range tables {
		for _, rt := range t.Routes {
			if aws.ToString(rt.VpcPeeringConnectionId) != "" {
				out = append(out, aws.ToString(rt.DestinationCidrBlock))
			}
		}
	}
	return out
}

// peeringAsked reports whether the job asks for peerings.
func peeringAsked(j *job.Job) bool {
	spec, err := j.NetworkJob()
	return err == nil && len(spec.Peerings) > 0
}
