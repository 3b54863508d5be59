package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// adoptNetwork checks that the network that the job points at is there.
func (c *checker) adoptNetwork(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "adopted network", "config.spec.adopt"
	named, err := adoptedNetwork(c.r.Job)
	if err != nil {
		return []cloud.Check{fails(check, field, err.Error(), "Give one network: its ID in ids, or its name.")}, nil
	}
	v, err := c.namedVPC(ctx, named)
	if bad, err := c.unnamed(err, check, field, named); err != nil || bad != nil {
		return bad, err
	}
	return []cloud.Check{passes(check, "%s, %s", label(v.VpcId, v.Tags), strings.Join(vpcRanges(v), ", "))}, nil
}

// adoptedNetwork is the ID or the name of the one network to adopt.
func adoptedNetwork(j *job.Job) (string, error) {
	spec, err := j.NetworkJob()
	if err != nil {
		return "", err
	}
	switch {
	case spec.Adopt == nil || len(spec.Adopt.IDs) == 0 && spec.Adopt.Name == "":
		return "", fmt.Errorf("the request does not say what to adopt")
	case len(spec.Adopt.IDs) > 0:
		return spec.Adopt.IDs[0], nil
	}
	return spec.Adopt.Name, nil
}

// inventory is what there is in a network.
type inventory struct {
	vpc      ec2types.Vpc
	subnets  []ec2types.Subnet
	tables   []ec2types.RouteTable
	groups   []ec2types.SecurityGroup
	nats     []ec2types.NatGateway
	peerings []ec2types.VpcPeeringConnection
	points   []ec2types.VpcEndpoint
	flows    []ec2types.FlowLog
	unread   []string // what could not be read
}

// AdoptNetwork reads the network that the job points at, and notes what is risky
// about it. It changes nothing.
func (p *Provider) AdoptNetwork(ctx context.Context, r *pipeline.Run) error {
	ctx = lookup.With(ctx, r)
	if r.Mode == pipeline.Plan {
		return nil
	}
	named, err := adoptedNetwork(r.Job)
	if err != nil {
		return err
	}
	v, err := p.namedVPC(ctx, named)
	switch {
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) && r.Mode == pipeline.Verify:
		r.AddDrift(pipeline.Drift{Kind: kindVPC, Key: "adopted", ID: r.Job.Config.InfraConfig.NetworkID, Attr: "exists", Wanted: "yes", Seen: "no"})
		return nil
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid):
		return pipeline.Fatal("network-not-found", fmt.Sprintf("the network %s that the job adopts is not there: %v", named, plain(err)), "Name a VPC that exists in "+p.region+", then retry.").On("config.spec.adopt").From(err)
	case err != nil:
		return plain(err)
	}
	if r.Mode == pipeline.Verify {
		return nil
	}
	n, err := p.inventory(ctx, v)
	if err != nil {
		return plain(err)
	}
	n.record(&r.Job.Config.InfraConfig)
	r.Job.Config.InfraConfig.Warnings = n.risks()
	return nil
}

// inventory reads all that is in a VPC. Kinds that the caller may not read are
// left out and named.
func (p *Provider) inventory(ctx context.Context, v ec2types.Vpc) (*inventory, error) {
	n := &inventory{vpc: v}
	id := aws.ToString(v.VpcId)
	in := filter("vpc-id", id)
	must := func(err error) error { return err }
	var unread [4]string
	may := func(i int, what string) func(error) error {
		return func(err error) error {
			if pipeline.Is(err, pipeline.Denied, pipeline.Invalid) {
				unread[i] = what
				return nil
			}
			return err
		}
	}
	read := func(judge func(error) error, one func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return judge(one(ctx)) }
	}
	err := pipeline.All(ctx,
		read(must, func(ctx context.Context) (err error) {
			n.subnets, err = ec2Page[ec2types.Subnet](p.subnetPage).all(ctx, in)
			return err
		}),
		read(must, func(ctx context.Context) (err error) {
			n.tables, err = ec2Page[ec2types.RouteTable](p.routeTablePage).all(ctx, in)
			return err
		}),
		read(must, func(ctx context.Context) (err error) {
			n.groups, err = ec2Page[ec2types.SecurityGroup](p.groupPage).all(ctx, in)
			return err
		}),
		read(may(0, "NAT gateways"), func(ctx context.Context) (err error) {
			n.nats, err = ec2Page[ec2types.NatGateway](p.natPage).all(ctx, in)
			return err
		}),
		read(may(1, "endpoints"), func(ctx context.Context) (err error) { n.points, err = p.endpointsBy(ctx, in); return err }),
		read(may(2, "peerings"), func(ctx context.Context) (err error) {
			n.peerings, err = ec2Page[ec2types.VpcPeeringConnection](p.peeringPage).all(ctx)
			return err
		}),
		read(may(3, "flow logs"), func(ctx context.Context) error {
			out, err := p.ec2.DescribeFlowLogs(ctx, &ec2.DescribeFlowLogsInput{Filter: []ec2types.Filter{filter("resource-id", id)}})
			if err == nil {
				n.flows = out.FlowLogs
			}
			return err
		}),
	)
	for _, what := range unread {
		if what != "" {
			n.unread = append(n.unread, what)
		}
	}
	n.peerings = slices.DeleteFunc(n.peerings, func(c ec2types.VpcPeeringConnection) bool { return !alive(c) || !joins(c, id) })
	return n, err
}

func joins(c ec2types.VpcPeeringConnection, vpcID string) bool {
	for _, side := range []*ec2types.VpcPeeringConnectionVpcInfo{c.RequesterVpcInfo, c.AccepterVpcInfo} {
		if side != nil && aws.ToString(side.VpcId) == vpcID {
			return true
		}
	}
	return false
}

// tierOf is what a subnet is used for, by where its default route leads.
func (n *inventory) tierOf(s ec2types.Subnet) string {
	switch target := defaultTarget(tableOf(aws.ToString(s.SubnetId), n.tables)); {
	case strings.HasPrefix(target, "igw-"):
		return job.TierPublic
	case target == "none":
		return job.TierDatabase
	}
	return job.TierPrivate
}

func (n *inventory) record(ic *job.InfraConfig) {
	ic.NetworkID, ic.NetworkName, ic.NetworkCIDR = aws.ToString(n.vpc.VpcId), nameTag(n.vpc.Tags), aws.ToString(n.vpc.CidrBlock)
	ic.Subnets, ic.PublicSubnetIDs, ic.PrivateSubnetIDs, ic.DatabaseSubnetIDs = nil, nil, nil, nil
	ic.NATGatewayIDs, ic.EgressIPs, ic.EndpointIDs, ic.Peerings, ic.Zones = nil, nil, nil, nil, nil
	slices.SortFunc(n.subnets, func(a, b ec2types.Subnet) int {
		return strings.Compare(aws.ToString(a.AvailabilityZone)+aws.ToString(a.CidrBlock), aws.ToString(b.AvailabilityZone)+aws.ToString(b.CidrBlock))
	})
	for _, s := range n.subnets {
		id, zone, tier := aws.ToString(s.SubnetId), aws.ToString(s.AvailabilityZone), n.tierOf(s)
		ic.Subnets = append(ic.Subnets, job.SubnetInfo{Tier: tier, ID: id, Name: nameTag(s.Tags), CIDR: aws.ToString(s.CidrBlock), Zone: zone})
		field := map[string]*[]string{job.TierPublic: &ic.PublicSubnetIDs, job.TierPrivate: &ic.PrivateSubnetIDs, job.TierDatabase: &ic.DatabaseSubnetIDs}[tier]
		*field = append(*field, id)
		if !slices.Contains(ic.Zones, zone) {
			ic.Zones = append(ic.Zones, zone)
		}
	}
	for _, g := range n.nats {
		if g.State != ec2types.NatGatewayStateAvailable && g.State != ec2types.NatGatewayStatePending {
			continue
		}
		ic.NATGatewayIDs = append(ic.NATGatewayIDs, aws.ToString(g.NatGatewayId))
		for _, a := range g.NatGatewayAddresses {
			if a.PublicIp != nil {
				ic.EgressIPs = append(ic.EgressIPs, aws.ToString(a.PublicIp))
			}
		}
	}
	for _, e := range n.points {
		ic.EndpointIDs = append(ic.EndpointIDs, aws.ToString(e.VpcEndpointId))
	}
	for _, c := range n.peerings {
		other := c.AccepterVpcInfo
		if other != nil && aws.ToString(other.VpcId) == ic.NetworkID {
			other = c.RequesterVpcInfo
		}
		info := job.PeeringInfo{ID: aws.ToString(c.VpcPeeringConnectionId), State: string(c.Status.Code)}
		if other != nil {
			info.NetworkID = aws.ToString(other.VpcId)
			for _, b := range other.CidrBlockSet {
				info.CIDRs = append(info.CIDRs, aws.ToString(b.CidrBlock))
			}
		}
		ic.Peerings = append(ic.Peerings, info)
	}
	if len(n.flows) > 0 {
		ic.FlowLogID = aws.ToString(n.flows[0].FlowLogId)
	}
}

// risks is what of a network falls short of what a network of our own has.
func (n *inventory) risks() []string {
	var out []string
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	id := aws.ToString(n.vpc.VpcId)
	if aws.ToBool(n.vpc.IsDefault) {
		note("%s is the default VPC of the region, in which anybody's resources land (NETA-09)", id)
	}
	for _, g := range n.groups {
		lines := linesOf(g.IpPermissions)
		if aws.ToString(g.GroupName) == "default" && len(lines)+len(g.IpPermissionsEgress) > 0 {
			note("the default security group %s has rules (NETA-01)", aws.ToString(g.GroupId))
		}
		for _, l := range lines {
			if l.opens(22) || l.opens(3389) {
				note("security group %s opens %s to the internet (NETA-04)", aws.ToString(g.GroupId), l)
			}
		}
	}
	if len(n.flows) == 0 && !slices.Contains(n.unread, "flow logs") {
		note("%s has no flow log (NETA-02)", id)
	}
	for _, s := range n.subnets {
		if aws.ToBool(s.MapPublicIpOnLaunch) {
			note("subnet %s gives public addresses on launch (NETA-03)", aws.ToString(s.SubnetId))
		}
	}
	if slices.Contains(routedByPeering(n.tables), anywhere) {
		note("a route sends everything through a peering (NETA-12)")
	}
	if missing := n.ungated(); len(missing) > 0 && !slices.Contains(n.unread, "endpoints") {
		note("private traffic to %s leaves through NAT, since there is no gateway endpoint for it (NETA-13)", strings.Join(missing, " and "))
	}
	if len(n.unread) > 0 {
		note("not looked into, for want of permission: %s", strings.Join(n.unread, ", "))
	}
	return out
}

// ungated are the services that a network has no gateway endpoint for.
func (n *inventory) ungated() []string {
	var missing []string
	for _, service := range gatewayServices {
		if !slices.ContainsFunc(n.points, func(e ec2types.VpcEndpoint) bool {
			return strings.HasSuffix(aws.ToString(e.ServiceName), "."+service) && e.VpcEndpointType == ec2types.VpcEndpointTypeGateway
		}) {
			missing = append(missing, service)
		}
	}
	return missing
}
