package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
)

// groups are all node groups of the cluster, those of others too.
func (c *clusterReport) groups(ctx context.Context) ([]ekstypes.Nodegroup, error) {
	return lookup.Once(ctx, "node groups of "+c.name, func(ctx context.Context) ([]ekstypes.Nodegroup, error) {
		return c.p.allNodegroups(ctx, c.name)
	})
}

// each reads one thing of every node group; what is not as wanted is told with the
// group's name.
func (c *clusterReport) each(ctx context.Context, wanted string, seen func(context.Context, ekstypes.Nodegroup) (string, error)) (finding, error) {
	f := finding{wanted: wanted, met: true}
	groups, err := c.groups(ctx)
	if err != nil {
		return f, err
	}
	var values, other []string
	for _, g := range groups {
		got, err := seen(ctx, g)
		if err != nil {
			return f, err
		}
		values = append(values, got)
		if got != wanted {
			f.met = false
			other = append(other, fmt.Sprintf("%s: %s", aws.ToString(g.NodegroupName), got))
		}
	}
	f.seen = or(strings.Join(other, ", "), or(agreed(values), "no node groups"))
	f.met = f.met && len(groups) > 0
	return f, nil
}

func (c *clusterReport) nodeVersions(ctx context.Context) (finding, error) {
	k, err := c.cluster(ctx)
	if err != nil {
		return finding{wanted: "the control plane's"}, err
	}
	return c.each(ctx, aws.ToString(k.Version), func(_ context.Context, g ekstypes.Nodegroup) (string, error) { return aws.ToString(g.Version), nil })
}

// template is what a node group's machines start from.
func (c *clusterReport) template(ctx context.Context, g ekstypes.Nodegroup) (*ec2types.ResponseLaunchTemplateData, error) {
	if g.LaunchTemplate == nil || aws.ToString(g.LaunchTemplate.Id) == "" {
		return &ec2types.ResponseLaunchTemplateData{}, nil
	}
	id, version := aws.ToString(g.LaunchTemplate.Id), or(aws.ToString(g.LaunchTemplate.Version), templateVersion)
	return lookup.Once(ctx, "launch template "+id+" version "+version, func(ctx context.Context) (*ec2types.ResponseLaunchTemplateData, error) {
		out, err := c.p.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: aws.String(id), Versions: []string{version}})
		if err != nil {
			return nil, err
		}
		if len(out.LaunchTemplateVersions) == 0 || out.LaunchTemplateVersions[0].LaunchTemplateData == nil {
			return nil, absent("EC2", "DescribeLaunchTemplateVersions", "version "+version+" of launch template "+id)
		}
		return out.LaunchTemplateVersions[0].LaunchTemplateData, nil
	})
}

// ofTemplates reads one thing of every node group's launch template.
func (c *clusterReport) ofTemplates(ctx context.Context, wanted string, seen func(*ec2types.ResponseLaunchTemplateData) string) (finding, error) {
	return c.each(ctx, wanted, func(ctx context.Context, g ekstypes.Nodegroup) (string, error) {
		data, err := c.template(ctx, g)
		if err != nil {
			return "", err
		}
		return seen(data), nil
	})
}

func (c *clusterReport) metadataTokens(ctx context.Context) (finding, error) {
	return c.ofTemplates(ctx, "required", func(d *ec2types.ResponseLaunchTemplateData) string {
		if d.MetadataOptions == nil {
			return "as the account says"
		}
		return string(d.MetadataOptions.HttpTokens)
	})
}

func (c *clusterReport) metadataHops(ctx context.Context) (finding, error) {
	return c.ofTemplates(ctx, "1", func(d *ec2types.ResponseLaunchTemplateData) string {
		if d.MetadataOptions == nil || d.MetadataOptions.HttpPutResponseHopLimit == nil {
			return "as the image says"
		}
		return fmt.Sprint(*d.MetadataOptions.HttpPutResponseHopLimit)
	})
}

func (c *clusterReport) nodeDisks(ctx context.Context) (finding, error) {
	return c.ofTemplates(ctx, "yes", func(d *ec2types.ResponseLaunchTemplateData) string {
		var all []string
		for _, b := range d.BlockDeviceMappings {
			if b.Ebs != nil {
				all = append(all, yesNo(aws.ToBool(b.Ebs.Encrypted)))
			}
		}
		return or(agreed(all), "as the account says")
	})
}

func (c *clusterReport) nodeAddresses(ctx context.Context) (finding, error) {
	return c.ofTemplates(ctx, "no", func(d *ec2types.ResponseLaunchTemplateData) string {
		var all []string
		for _, n := range d.NetworkInterfaces {
			if n.AssociatePublicIpAddress != nil {
				all = append(all, yesNo(*n.AssociatePublicIpAddress))
			}
		}
		return or(agreed(all), "as the subnet says")
	})
}

func (c *clusterReport) remoteAccess(ctx context.Context) (finding, error) {
	return c.each(ctx, "none", func(_ context.Context, g ekstypes.Nodegroup) (string, error) {
		switch r := g.RemoteAccess; {
		case r == nil || aws.ToString(r.Ec2SshKey) == "" && len(r.SourceSecurityGroups) == 0:
			return "none", nil
		case len(r.SourceSecurityGroups) == 0:
			return "SSH from everywhere with key " + aws.ToString(r.Ec2SshKey), nil
		default:
			return "SSH from " + sortedList(r.SourceSecurityGroups), nil
		}
	})
}

func (c *clusterReport) nodePolicies(ctx context.Context) (finding, error) {
	var wanted string
	for _, s := range clusterRoles(c.name) {
		if s.key == nodeRoleKey {
			wanted = strings.Join(s.arns(c.p.region), ", ")
		}
	}
	return c.each(ctx, wanted, func(ctx context.Context, g ekstypes.Nodegroup) (string, error) {
		role := aws.ToString(g.NodeRole)
		have, err := c.p.policiesOf(ctx, role[strings.LastIndexByte(role, '/')+1:])
		return have.String(), err
	})
}

func (c *clusterReport) images(ctx context.Context) (finding, error) {
	f, err := c.each(ctx, "", func(_ context.Context, g ekstypes.Nodegroup) (string, error) { return string(g.AmiType), nil })
	f.wanted = "Amazon Linux 2023 or Bottlerocket"
	if err != nil {
		return f, err
	}
	groups, err := c.groups(ctx)
	f.met = len(groups) > 0 && !slices.ContainsFunc(groups, func(g ekstypes.Nodegroup) bool {
		return !strings.HasPrefix(string(g.AmiType), "AL2023_") && !strings.HasPrefix(string(g.AmiType), "BOTTLEROCKET_")
	})
	return f, err
}

// subnetsOf reads subnets by their IDs, whoever made them.
func (c *clusterReport) subnetsOf(ctx context.Context, ids []string) ([]ec2types.Subnet, error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) == 0 {
		return nil, nil
	}
	return lookup.Once(ctx, "subnets "+strings.Join(ids, " "), func(ctx context.Context) ([]ec2types.Subnet, error) {
		return ec2Page[ec2types.Subnet](c.p.subnetPage).all(ctx, filter("subnet-id", ids...))
	})
}

func (c *clusterReport) nodeSubnets(ctx context.Context) (finding, error) {
	f := finding{wanted: "no"}
	groups, err := c.groups(ctx)
	if err != nil {
		return f, err
	}
	var ids []string
	for _, g := range groups {
		ids = append(ids, g.Subnets...)
	}
	subnets, err := c.subnetsOf(ctx, ids)
	if err != nil || len(subnets) == 0 {
		return f, err
	}
	vpc := aws.ToString(subnets[0].VpcId)
	tables, err := lookup.Once(ctx, "route tables of "+vpc, func(ctx context.Context) ([]ec2types.RouteTable, error) {
		return ec2Page[ec2types.RouteTable](c.p.routeTablePage).all(ctx, filter("vpc-id", vpc))
	})
	if err != nil {
		return f, err
	}
	var open []string
	for _, s := range subnets {
		id := aws.ToString(s.SubnetId)
		if target := defaultTarget(tableOf(id, tables)); strings.HasPrefix(target, "igw-") {
			open = append(open, id+" leads to "+target)
		}
		if aws.ToBool(s.MapPublicIpOnLaunch) {
			open = append(open, id+" gives public addresses")
		}
	}
	return equal("no", or(sortedList(open), "no"))
}

func (c *clusterReport) zones(ctx context.Context) (finding, error) {
	f := finding{wanted: "2 or more each"}
	k, err := c.cluster(ctx)
	if err != nil || k.ResourcesVpcConfig == nil {
		return f, err
	}
	groups, err := c.groups(ctx)
	if err != nil {
		return f, err
	}
	var nodes []string
	for _, g := range groups {
		nodes = append(nodes, g.Subnets...)
	}
	f.met = true
	for _, part := range []struct {
		name string
		ids  []string
	}{{"control plane", k.ResourcesVpcConfig.SubnetIds}, {"nodes", nodes}} {
		subnets, err := c.subnetsOf(ctx, part.ids)
		if err != nil {
			return f, err
		}
		var in []string
		for _, s := range subnets {
			in = append(in, aws.ToString(s.AvailabilityZone))
		}
		in = slices.Compact(slices.Sorted(slices.Values(in)))
		f.met = f.met && len(in) >= 2
		f.seen += fmt.Sprintf("%s in %s; ", part.name, or(strings.Join(in, ", "), "none"))
	}
	f.seen = strings.TrimSuffix(f.seen, "; ")
	return f, nil
}

// worldIngress looks at the groups of the control plane and of the nodes.
func (c *clusterReport) worldIngress(ctx context.Context) (finding, error) {
	f := finding{wanted: "none"}
	k, err := c.cluster(ctx)
	if err != nil || k.ResourcesVpcConfig == nil {
		return f, err
	}
	ids := append([]string{aws.ToString(k.ResourcesVpcConfig.ClusterSecurityGroupId)}, k.ResourcesVpcConfig.SecurityGroupIds...)
	groups, err := c.groups(ctx)
	if err != nil {
		return f, err
	}
	for _, g := range groups {
		data, err := c.template(ctx, g)
		if err != nil {
			return f, err
		}
		ids = append(ids, data.SecurityGroupIds...)
		for _, n := range data.NetworkInterfaces {
			ids = append(ids, n.Groups...)
		}
	}
	ids = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(ids))), func(id string) bool { return id == "" })
	all, err := lookup.Once(ctx, "groups "+strings.Join(ids, " "), func(ctx context.Context) ([]ec2types.SecurityGroup, error) {
		return ec2Page[ec2types.SecurityGroup](c.p.groupPage).all(ctx, filter("group-id", ids...))
	})
	if err != nil {
		return f, err
	}
	var open []string
	for _, g := range all {
		for _, l := range linesOf(g.IpPermissions) {
			if l.peer == anywhere || l.peer == "::/0" {
				open = append(open, aws.ToString(g.GroupId)+": "+l.String())
			}
		}
	}
	return equal("none", or(sortedList(open), "none"))
}
