package aws

import (
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

// dbGroupName: "Must contain no more than 255 letters, numbers, periods, underscores, spaces, or hyphens. Must not be
// default" (CreateDBSubnetGroup).
var dbGroupName = regexp.MustCompile(`^[a-zA-Z0-9._ -]{1,255}$`)

func (s *rdsService) createSubnetGroup(c *reqCtx, in *rds.CreateDBSubnetGroupInput) (*rds.CreateDBSubnetGroupOutput, error) {
	name := strings.ToLower(deref(in.DBSubnetGroupName))
	sc := s.in(c.scope())
	switch {
	case !dbGroupName.MatchString(name) || name == "default":
		return nil, rdsInvalid("The parameter DBSubnetGroupName must be provided and must not be blank, be default, or contain other than alphanumeric characters, periods, underscores, spaces, or hyphens.")
	case deref(in.DBSubnetGroupDescription) == "":
		return nil, rdsInvalid("The parameter DBSubnetGroupDescription must be provided and must not be blank.")
	case sc.SubnetGroups[name] != nil:
		return nil, fail(400, "DBSubnetGroupAlreadyExists", "The DB subnet group '%s' already exists.", name)
	case len(in.SubnetIds) == 0:
		return nil, rdsInvalid("The parameter SubnetIds must be provided and must not be blank.")
	}
	if err := checkDBTags(in.Tags); err != nil {
		return nil, err
	}
	subnets, vpc, err := s.cloud.groupSubnets(c, in.SubnetIds)
	if err != nil {
		return nil, err
	}
	if float64(len(sc.SubnetGroups)) >= s.cloud.quota(c.scope(), "rds", quotaDBSubnets) {
		return nil, fail(400, "DBSubnetGroupQuotaExceeded", "Cannot create more than %d DB subnet groups", int(s.cloud.quota(c.scope(), "rds", quotaDBSubnets)))
	}
	g := &RDSSubnetGroup{Created: c.now, Tags: in.Tags, Group: types.DBSubnetGroup{DBSubnetGroupName: &name, DBSubnetGroupDescription: in.DBSubnetGroupDescription, VpcId: &vpc, SubnetGroupStatus: new("Complete"),
		Subnets: subnets, DBSubnetGroupArn: new(c.regionalARN("rds", "subgrp:"+name)), SupportedNetworkTypes: []string{"IPV4"}}}
	if len(g.zones()) < 2 {
		return nil, fail(400, "DBSubnetGroupDoesNotCoverEnoughAZs", "The DB subnet group doesn't meet Availability Zone (AZ) coverage requirement. Current AZ coverage: %s. Add subnets to cover at least 2 AZs.", strings.Join(g.zones(), ", "))
	}
	sc.SubnetGroups[name] = g
	c.Make(*g.Group.DBSubnetGroupArn)
	return &rds.CreateDBSubnetGroupOutput{DBSubnetGroup: new(g.Group)}, nil
}

// groupSubnets finds the subnets of a group, which must be in one VPC.
func (c *Cloud) groupSubnets(r *reqCtx, ids []string) (out []types.Subnet, vpc string, err error) {
	var bad []string
	for _, id := range ids {
		n, ok := c.subnet(r.scope(), id)
		if !ok {
			bad = append(bad, id)
			continue
		}
		if vpc != "" && n.VpcID != vpc {
			return nil, "", fail(400, "InvalidSubnet", "The specified subnets are not in the same VPC: %s", strings.Join(ids, ", "))
		}
		vpc = n.VpcID
		out = append(out, types.Subnet{SubnetIdentifier: &id, SubnetStatus: new("Active"), SubnetAvailabilityZone: &types.AvailabilityZone{Name: new(n.AZ)}, SubnetOutpost: &types.Outpost{}})
	}
	if len(bad) > 0 {
		return nil, "", rdsInvalid("Some input subnets in :[%s] are invalid.", strings.Join(bad, ", "))
	}
	return out, vpc, nil
}

// zones are the availability zones that a group covers, in the order of its subnets.
func (g *RDSSubnetGroup) zones() []string {
	var out []string
	for _, n := range g.Group.Subnets {
		if z := deref(n.SubnetAvailabilityZone.Name); !slices.Contains(out, z) {
			out = append(out, z)
		}
	}
	return out
}

// subnetGroupFor finds the group of a new instance. Without a name it is the default one, which RDS makes of the default VPC.
func (s *rdsService) subnetGroupFor(c *reqCtx, name string) (*RDSSubnetGroup, error) {
	name = strings.ToLower(name)
	if g := s.in(c.scope()).SubnetGroups[name]; g != nil {
		c.Touch(*g.Group.DBSubnetGroupArn)
		return g, nil
	}
	if name != "" && name != "default" {
		return nil, fail(404, "DBSubnetGroupNotFoundFault", "DB subnet group '%s' does not exist.", name)
	}
	sc := s.cloud.ec2.in(c.scope())
	g := &RDSSubnetGroup{Created: c.now, Group: types.DBSubnetGroup{DBSubnetGroupName: new("default"), DBSubnetGroupDescription: new("default"), SubnetGroupStatus: new("Complete"), SupportedNetworkTypes: []string{"IPV4"},
		DBSubnetGroupArn: new(c.regionalARN("rds", "subgrp:default"))}}
	for _, n := range inOrder(sc.Subnets) {
		if v := sc.Vpcs[n.VpcID]; v != nil && v.IsDefault {
			g.Group.VpcId = &v.VpcID
			g.Group.Subnets = append(g.Group.Subnets, types.Subnet{SubnetIdentifier: &n.SubnetID, SubnetStatus: new("Active"), SubnetAvailabilityZone: &types.AvailabilityZone{Name: &n.Zone}, SubnetOutpost: &types.Outpost{}})
		}
	}
	if len(g.zones()) < 2 {
		return nil, fail(400, "InvalidSubnet", "No default subnet detected in VPC. Please contact AWS Support to recreate the default Subnets.")
	}
	return g, nil
}

func (s *rdsService) describeSubnetGroups(c *reqCtx, in *rds.DescribeDBSubnetGroupsInput) (*rds.DescribeDBSubnetGroupsOutput, error) {
	all := []types.DBSubnetGroup{}
	sc := s.in(c.scope())
	want := strings.ToLower(deref(in.DBSubnetGroupName))
	for _, name := range sortedKeys(sc.SubnetGroups) {
		g := sc.SubnetGroups[name]
		if (want == "" || want == name) && c.visible(*g.Group.DBSubnetGroupArn, g.Created, want == "", "db-subnet-group", name, mapValues(rdsTags(g.Tags))) {
			all = append(all, g.Group)
		}
	}
	if want != "" && len(all) == 0 {
		return nil, fail(404, "DBSubnetGroupNotFoundFault", "DB subnet group '%s' does not exist.", want)
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeDBSubnetGroupsOutput{DBSubnetGroups: page, Marker: next}, err
}

func (s *rdsService) deleteSubnetGroup(c *reqCtx, in *rds.DeleteDBSubnetGroupInput) (*rds.DeleteDBSubnetGroupOutput, error) {
	name := strings.ToLower(deref(in.DBSubnetGroupName))
	sc := s.in(c.scope())
	g := sc.SubnetGroups[name]
	if g == nil {
		return nil, fail(404, "DBSubnetGroupNotFoundFault", "DB subnet group '%s' does not exist.", name)
	}
	c.Touch(*g.Group.DBSubnetGroupArn)
	for _, id := range sortedKeys(sc.Instances) {
		if u := sc.Instances[id].DB.DBSubnetGroup; u != nil && deref(u.DBSubnetGroupName) == name {
			return nil, fail(400, "InvalidDBSubnetGroupStateFault", "Cannot delete the subnet group '%s' because at least one database instance: %s is still using it.", name, id)
		}
	}
	delete(sc.SubnetGroups, name)
	return &rds.DeleteDBSubnetGroupOutput{}, nil
}
