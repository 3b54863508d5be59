package aws

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// subnetsInside wants no way from the subnets to an internet gateway.
func (d *dataReport) subnetsInside(ctx context.Context) (finding, error) {
	i, err := d.database(ctx)
	if err != nil || i.DBSubnetGroup == nil {
		return finding{wanted: "none"}, err
	}
	var in []string
	for _, s := range i.DBSubnetGroup.Subnets {
		in = append(in, aws.ToString(s.SubnetIdentifier))
	}
	return d.wayOut(ctx, aws.ToString(i.DBSubnetGroup.VpcId), in)
}

// wayOut names the subnets whose route leads to an internet gateway.
func (d *dataReport) wayOut(ctx context.Context, vpc string, subnets []string) (finding, error) {
	f := finding{wanted: "none"}
	tables, err := lookup.Once(ctx, "routes of "+vpc, func(ctx context.Context) ([]ec2types.RouteTable, error) {
		return ec2Page[ec2types.RouteTable](d.routeTablePage).all(ctx, filter("vpc-id", vpc))
	})
	if err != nil {
		return f, err
	}
	if vpc == "" || len(subnets) == 0 || len(tables) == 0 {
		f.seen = "not in a VPC"
		return f, nil
	}
	var open []string
	for _, s := range subnets {
		for _, route := range tableOf(s, tables).Routes {
			if strings.HasPrefix(aws.ToString(route.GatewayId), "igw-") {
				open = append(open, s+" by "+aws.ToString(route.GatewayId))
			}
		}
	}
	slices.Sort(open)
	return equal("none", or(strings.Join(slices.Compact(open), ", "), "none"))
}

func (d *dataReport) clients(ctx context.Context) (finding, error) {
	i, err := d.database(ctx)
	if err != nil {
		return finding{wanted: privateClients}, err
	}
	var groups []string
	for _, g := range i.VpcSecurityGroups {
		groups = append(groups, aws.ToString(g.VpcSecurityGroupId))
	}
	return d.admits(ctx, groups)
}

const privateClients = "named groups and private ranges alone"

// admits names what groups let in beyond groups and private ranges.
func (d *dataReport) admits(ctx context.Context, groups []string) (finding, error) {
	f := finding{wanted: privateClients}
	if len(groups) == 0 {
		f.seen = "no security group"
		return f, nil
	}
	c := controls{p: d.Provider, r: d.r, infra: d.ic}
	inside := c.inside()
	var open, all []string
	for _, id := range groups {
		g, err := d.securityGroups().Get(ctx, id)
		if err != nil {
			return f, err
		}
		for _, l := range linesOf(g.IpPermissions) {
			all = append(all, l.String())
			if !l.private(inside) {
				open = append(open, id+": "+l.String())
			}
		}
	}
	f.met = len(open) == 0
	f.seen = or(agreed(open), or(agreed(all), "nobody"))
	return f, nil
}

// snapshots wants a final one, unless the spec waives it in so many words, and none of
// the instance's that is open or shared with everybody.
func (d *dataReport) snapshots(ctx context.Context) (finding, error) {
	f := finding{wanted: "final snapshot at deletion; none public or unencrypted"}
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]rdstypes.DBSnapshot, *string, error) {
		out, err := d.rds.DescribeDBSnapshots(ctx, &rds.DescribeDBSnapshotsInput{DBInstanceIdentifier: aws.String(d.name()), Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.DBSnapshots, out.Marker, nil
	})
	if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
		return f, err
	}
	var bad []string
	if d.finalSnapshot() == "" {
		bad = append(bad, "no final snapshot at deletion")
	}
	for _, s := range all {
		id := aws.ToString(s.DBSnapshotIdentifier)
		if aws.ToString(s.DBInstanceIdentifier) != d.name() {
			continue
		}
		if !aws.ToBool(s.Encrypted) {
			bad = append(bad, id+" is not encrypted")
		}
		if aws.ToString(s.SnapshotType) != "manual" {
			continue
		}
		attrs, err := d.rds.DescribeDBSnapshotAttributes(ctx, &rds.DescribeDBSnapshotAttributesInput{DBSnapshotIdentifier: aws.String(id)})
		if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
			return f, err
		}
		if err == nil && attrs.DBSnapshotAttributesResult != nil {
			for _, a := range attrs.DBSnapshotAttributesResult.DBSnapshotAttributes {
				if aws.ToString(a.AttributeName) == "restore" && slices.Contains(a.AttributeValues, "all") {
					bad = append(bad, id+" is public")
				}
			}
		}
	}
	f.met, f.seen = len(bad) == 0, or(sortedList(bad), f.wanted)
	return f, nil
}
