package aws

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/pipeline"
)

// lingering is how long an interface that a service keeps may take to go
// before it is somebody else's and named as a blocker. Load balancers and
// managed services take up to three quarters of an hour (failure kind E5).
const lingering = time.Hour

// interfaceBlockers explains a dependency violation by the network interfaces
// that are still there. Ours, if nothing uses them any more, are deleted; those
// that a service is about to take away are waited for; the rest are named.
func (p *Provider) interfaceBlockers(ctx context.Context, r *pipeline.Run, what string, filters ...ec2types.Filter) (string, error) {
	found, err := ec2Page[ec2types.NetworkInterface](p.interfacePage).all(ctx, filters...)
	if err != nil {
		return "", err
	}
	var foreign, waits []string
	for _, n := range found {
		id := aws.ToString(n.NetworkInterfaceId)
		owner, _ := ec2Mark(n.TagSet)
		switch {
		case n.Status == ec2types.NetworkInterfaceStatusAvailable && owner == r.Job.ID:
			_, err := p.ec2.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: n.NetworkInterfaceId})
			if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
				return "", err
			}
			waits = append(waits, describeInterface(n))
		case p.goesByItself(r, n):
			waits = append(waits, describeInterface(n))
		case n.Status == ec2types.NetworkInterfaceStatusAvailable:
			foreign = append(foreign, describeInterface(n)+", which nothing uses and which carries no mark of this job; delete "+id)
		case n.Attachment != nil && aws.ToString(n.Attachment.InstanceId) != "":
			foreign = append(foreign, fmt.Sprintf("%s of instance %s; move or terminate that instance", describeInterface(n), aws.ToString(n.Attachment.InstanceId)))
		default:
			foreign = append(foreign, describeInterface(n)+"; remove what it belongs to")
		}
	}
	switch {
	case len(foreign) > 0:
		return what + " holds " + strings.Join(foreign, "; and "), nil
	case len(waits) > 0:
		return "", pipeline.Wait(10*time.Second, "%s to go", strings.Join(waits, ", "))
	}
	return "", nil
}

func describeInterface(n ec2types.NetworkInterface) string {
	s := "interface " + aws.ToString(n.NetworkInterfaceId)
	var about []string
	if d := aws.ToString(n.Description); d != "" {
		about = append(about, d)
	}
	if by := aws.ToString(n.RequesterId); by != "" {
		about = append(about, "made by "+by)
	} else if by := aws.ToString(n.OwnerId); by != "" {
		about = append(about, "account "+by)
	}
	if len(about) > 0 {
		s += " (" + strings.Join(about, ", ") + ")"
	}
	return s
}

// goesByItself reports whether an interface is on its way out: a service or a
// terminated instance of ours gives it back without being asked.
func (p *Provider) goesByItself(r *pipeline.Run, n ec2types.NetworkInterface) bool {
	owner, _ := ec2Mark(n.TagSet)
	ours := owner == r.Job.ID
	if n.Attachment != nil && n.Attachment.Status == ec2types.AttachmentStatusDetaching {
		ours = true
	}
	if !ours && !aws.ToBool(n.RequesterManaged) && n.Status != ec2types.NetworkInterfaceStatusDetaching {
		return false
	}
	key := "lingering " + aws.ToString(n.NetworkInterfaceId)
	since, ok := r.Recall(key).(time.Time)
	if !ok {
		since = r.Now()
		r.Remember(key, since)
	}
	return r.Pace.Cloud(r.Now().Sub(since)) < lingering
}

// vpcBlockers names what else is in the VPC.
func (p *Provider) vpcBlockers(ctx context.Context, r *pipeline.Run, id string) (string, error) {
	in := filter("vpc-id", id)
	// Interfaces first: those that go by themselves are waited for.
	blocked, err := p.interfaceBlockers(ctx, r, "the VPC", in)
	if err != nil {
		return "", err
	}
	var names []string
	if blocked != "" {
		names = append(names, strings.TrimPrefix(blocked, "the VPC holds "))
	}
	subnets, err := ec2Page[ec2types.Subnet](p.subnetPage).all(ctx, in)
	if err != nil {
		return "", err
	}
	for _, s := range subnets {
		names = append(names, "subnet "+label(s.SubnetId, s.Tags))
	}
	groups, err := ec2Page[ec2types.SecurityGroup](p.groupPage).all(ctx, in)
	if err != nil {
		return "", err
	}
	for _, g := range groups {
		if aws.ToString(g.GroupName) != "default" {
			names = append(names, fmt.Sprintf("security group %s (%s)", aws.ToString(g.GroupId), aws.ToString(g.GroupName)))
		}
	}
	tables, err := ec2Page[ec2types.RouteTable](p.routeTablePage).all(ctx, in)
	if err != nil {
		return "", err
	}
	for _, t := range tables {
		if !isMainTable(t) {
			names = append(names, "route table "+label(t.RouteTableId, t.Tags))
		}
	}
	gateways, err := ec2Page[ec2types.InternetGateway](p.gatewayPage).all(ctx, filter("attachment.vpc-id", id))
	if err != nil {
		return "", err
	}
	for _, g := range gateways {
		names = append(names, "internet gateway "+label(g.InternetGatewayId, g.Tags))
	}
	more, err := p.rarerBlockers(ctx, id)
	if err != nil {
		return "", err
	}
	names = append(names, more...)
	if len(names) == 0 {
		return "", nil
	}
	return "the VPC holds " + strings.Join(names, ", ") + ", which this job did not make; remove it, then retry", nil
}

// rarerBlockers names endpoints and peering connections. Where they cannot be
// listed, nothing is said of them.
func (p *Provider) rarerBlockers(ctx context.Context, id string) ([]string, error) {
	var names []string
	endpoints, err := p.ec2.DescribeVpcEndpoints(ctx, &ec2.DescribeVpcEndpointsInput{Filters: []ec2types.Filter{filter("vpc-id", id)}})
	switch {
	case err == nil:
		for _, e := range endpoints.VpcEndpoints {
			names = append(names, fmt.Sprintf("endpoint %s (%s)", aws.ToString(e.VpcEndpointId), aws.ToString(e.ServiceName)))
		}
	case ctx.Err() != nil:
		return nil, err
	}
	peerings, err := p.ec2.DescribeVpcPeeringConnections(ctx, &ec2.DescribeVpcPeeringConnectionsInput{Filters: []ec2types.Filter{filter("requester-vpc-info.vpc-id", id)}})
	switch {
	case err == nil:
		for _, c := range peerings.VpcPeeringConnections {
			if c.Status != nil && c.Status.Code == ec2types.VpcPeeringConnectionStateReasonCodeActive {
				names = append(names, "peering connection "+label(c.VpcPeeringConnectionId, c.Tags))
			}
		}
	case ctx.Err() != nil:
		return nil, err
	}
	return names, nil
}

func isMainTable(t ec2types.RouteTable) bool {
	for _, a := range t.Associations {
		if aws.ToBool(a.Main) {
			return true
		}
	}
	return false
}

// label is an ID with the name that a person gave.
func label(id *string, tags []ec2types.Tag) string {
	for _, t := range tags {
		if aws.ToString(t.Key) == "Name" && aws.ToString(t.Value) != "" {
			return fmt.Sprintf("%s (%s)", aws.ToString(id), aws.ToString(t.Value))
		}
	}
	return aws.ToString(id)
}
