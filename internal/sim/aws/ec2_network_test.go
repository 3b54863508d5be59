package aws

import (
	"context"
	"slices"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	logs "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/google/go-cmp/cmp"
)

func (l *lab) vpcOf(c *ec2.Client, cidr string) string {
	return *ok(c.CreateVpc(l.Context(), &ec2.CreateVpcInput{CidrBlock: &cidr})).Vpc.VpcId
}

func (l *lab) peering(c *ec2.Client, id string) types.VpcPeeringConnection {
	return ok(c.DescribeVpcPeeringConnections(l.Context(), &ec2.DescribeVpcPeeringConnectionsInput{VpcPeeringConnectionIds: []string{id}})).VpcPeeringConnections[0]
}

// A peering across accounts and regions, from the request to the last trace of it.
func TestPeeringLifecycle(t *testing.T) {
	t.Parallel()
	l := newLab(t, atOnce)
	ctx := t.Context()
	ours, theirs, wrong := l.client, l.as("AKIAI44QH8DHBEXAMPLE", "eu-west-1"), l.as("AKIAI44QH8DHBEXAMPLE", "us-east-1")
	a, b := l.vpcOf(ours, "10.1.0.0/16"), l.vpcOf(theirs, "10.2.0.0/16")
	l.step(5 * time.Second)
	before := l.world.Snapshot()
	ask := func() (string, error) {
		out, err := ours.CreateVpcPeeringConnection(ctx, &ec2.CreateVpcPeeringConnectionInput{VpcId: &a, PeerVpcId: &b, PeerOwnerId: new("111122223333"), PeerRegion: new("eu-west-1")})
		if err != nil {
			return "", err
		}
		l.step(5 * time.Second)
		return *out.VpcPeeringConnection.VpcPeeringConnectionId, nil
	}
	id := ok(ask())
	if got := l.peering(theirs, id); got.Status.Code != types.VpcPeeringConnectionStateReasonCodePendingAcceptance || *got.RequesterVpcInfo.CidrBlock != "10.1.0.0/16" {
		t.Errorf("the accepter sees %+v", got)
	}
	table := *ok(ours.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &a})).RouteTable.RouteTableId
	ok(ours.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &table, DestinationCidrBlock: new("10.2.0.0/16"), VpcPeeringConnectionId: &id}))
	state := func() types.RouteState {
		for _, rt := range ok(ours.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{table}})).RouteTables[0].Routes {
			if awssdk.ToString(rt.VpcPeeringConnectionId) == id {
				return rt.State
			}
		}
		return "none"
	}
	if got := state(); got != types.RouteStateBlackhole {
		t.Errorf("a route to a request is %s", got)
	}
	options := func(c *ec2.Client, accepter bool) error {
		in, on := &ec2.ModifyVpcPeeringConnectionOptionsInput{VpcPeeringConnectionId: &id}, &types.PeeringConnectionOptionsRequest{AllowDnsResolutionFromRemoteVpc: new(true)}
		in.RequesterPeeringConnectionOptions = on
		if accepter {
			in.RequesterPeeringConnectionOptions, in.AccepterPeeringConnectionOptions = nil, on
		}
		return second(c.ModifyVpcPeeringConnectionOptions(ctx, in))
	}
	for _, c := range []struct {
		name, code string
		err        error
	}{
		{"a second one", "VpcPeeringConnectionAlreadyExists", second(ask())},
		{"accepted by the requester", "OperationNotPermitted", second(ours.AcceptVpcPeeringConnection(ctx, &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: &id}))},
		{"accepted in another region", "InvalidVpcPeeringConnectionID.NotFound", second(wrong.AcceptVpcPeeringConnection(ctx, &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: &id}))},
		{"deleted by the accepter before it is one", "InvalidStateTransition", second(theirs.DeleteVpcPeeringConnection(ctx, &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: &id}))},
		{"options before it is active", "OperationNotPermitted", options(ours, false)},
	} {
		if code(c.err) != c.code {
			t.Errorf("%s: %v, want %s", c.name, c.err, c.code)
		}
	}
	ok(theirs.AcceptVpcPeeringConnection(ctx, &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: &id}))
	l.step(5 * time.Second)
	if got := state(); got != types.RouteStateActive {
		t.Errorf("a route to an active peering is %s", got)
	}
	if err := options(ours, true); code(err) != "OperationNotPermitted" {
		t.Errorf("the requester set the accepter's options: %v", err)
	}
	if err := options(ours, false); err != nil {
		t.Error(err)
	}
	if err := options(theirs, true); err != nil {
		t.Error(err)
	}
	ok(theirs.DeleteVpcPeeringConnection(ctx, &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: &id}))
	if got := l.peering(ours, id); got.Status.Code != types.VpcPeeringConnectionStateReasonCodeDeleted || state() != types.RouteStateBlackhole {
		t.Errorf("after the deletion %+v, route %s", got.Status, state())
	}
	ok(ours.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: &table}))
	if d := cmp.Diff(before, l.world.Snapshot()); d != "" {
		t.Error(d)
	}
	l.step(3 * time.Hour)
	if _, err := ours.DescribeVpcPeeringConnections(ctx, &ec2.DescribeVpcPeeringConnectionsInput{VpcPeeringConnectionIds: []string{id}}); code(err) != "InvalidVpcPeeringConnectionID.NotFound" {
		t.Errorf("hours later: %v", err)
	}

	// The other ends that a request can come to.
	rejected := ok(ask())
	ok(theirs.RejectVpcPeeringConnection(ctx, &ec2.RejectVpcPeeringConnectionInput{VpcPeeringConnectionId: &rejected}))
	if _, err := ours.DeleteVpcPeeringConnection(ctx, &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: &rejected}); code(err) != "InvalidStateTransition" {
		t.Errorf("deleting a rejected request: %v", err)
	}
	expired := ok(ask())
	l.step(7*24*time.Hour + time.Minute)
	if got := l.peering(ours, expired); got.Status.Code != types.VpcPeeringConnectionStateReasonCodeExpired {
		t.Errorf("after seven days %+v", got.Status)
	}
	b = l.vpcOf(theirs, "10.1.128.0/17")
	failed := ok(ask())
	if got := l.peering(ours, failed); got.Status.Code != types.VpcPeeringConnectionStateReasonCodeFailed {
		t.Errorf("over the same range %+v", got.Status)
	}
}

// Which ranges a VPC takes beside its own ("IPv4 CIDR block association restrictions").
func TestSecondaryRanges(t *testing.T) {
	t.Parallel()
	l := newLab(t, atOnce)
	vpc := l.vpcOf(l.client, "10.1.0.0/16")
	add := func(cidr string) error {
		return second(l.client.AssociateVpcCidrBlock(t.Context(), &ec2.AssociateVpcCidrBlockInput{VpcId: &vpc, CidrBlock: &cidr}))
	}
	for _, c := range []struct{ cidr, code string }{
		{"172.16.0.0/16", "InvalidVpc.Range"}, {"192.168.0.0/20", "InvalidVpc.Range"}, {"198.19.0.0/20", "InvalidVpc.Range"}, {"10.2.0.0/15", "InvalidVpc.Range"},
		{"10.1.0.0/20", "InvalidParameterValue"}, {"100.64.0.0/16", ""}, {"10.2.0.0/16", ""}, {"10.3.0.0/16", ""}, {"10.4.0.0/16", ""}, {"10.5.0.0/16", "CidrLimitExceeded"},
	} {
		if err := add(c.cidr); code(err) != c.code {
			t.Errorf("%s: %v, want %q", c.cidr, err, c.code)
		}
	}
}

func TestInterfaceEndpoints(t *testing.T) {
	t.Parallel()
	l := newLab(t, atOnce)
	ctx, c := t.Context(), l.client
	n := l.build(ctx)
	before := l.world.Snapshot()
	in := func(service string, subnets ...string) *ec2.CreateVpcEndpointInput {
		return &ec2.CreateVpcEndpointInput{VpcId: &n.vpc, VpcEndpointType: types.VpcEndpointTypeInterface, ServiceName: new("com.amazonaws.us-east-1." + service), SubnetIds: subnets, ClientToken: new(service)}
	}
	if _, err := c.CreateVpcEndpoint(ctx, in("ssm", n.private)); code(err) != "InvalidParameter" {
		t.Errorf("private names without DNS host names: %v", err)
	}
	ok(c.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{VpcId: &n.vpc, EnableDnsHostnames: &types.AttributeBooleanValue{Value: new(true)}}))
	ep := ok(c.CreateVpcEndpoint(ctx, in("ssm", n.private))).VpcEndpoint
	if again := ok(c.CreateVpcEndpoint(ctx, in("ssm", n.private))).VpcEndpoint; *again.VpcEndpointId != *ep.VpcEndpointId {
		t.Error("the same token made a second endpoint")
	}
	for _, r := range []struct {
		name, code string
		err        error
	}{
		{"two in one zone", "DuplicateSubnetsInSameZone", second(c.CreateVpcEndpoint(ctx, in("sts", n.private, n.public)))},
		{"no such service", "InvalidServiceName", second(c.CreateVpcEndpoint(ctx, in("nothing", n.private)))},
		{"not of that type", "InvalidParameter", second(c.CreateVpcEndpoint(ctx, in("dynamodb", n.private)))},
		{"a second one under the same names", "InvalidParameter", second(c.CreateVpcEndpoint(ctx, &ec2.CreateVpcEndpointInput{VpcId: &n.vpc, VpcEndpointType: types.VpcEndpointTypeInterface, ServiceName: ep.ServiceName, SubnetIds: []string{n.public}}))},
	} {
		if code(r.err) != r.code {
			t.Errorf("%s: %v, want %s", r.name, r.err, r.code)
		}
	}
	l.step(2 * time.Minute)
	ids := []string{*ep.VpcEndpointId}
	now := ok(c.DescribeVpcEndpoints(ctx, &ec2.DescribeVpcEndpointsInput{VpcEndpointIds: ids})).VpcEndpoints[0]
	if now.State != "available" || len(now.NetworkInterfaceIds) != 1 || len(now.DnsEntries) != 2 {
		t.Errorf("endpoint %+v", now)
	}
	if _, err := c.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &now.NetworkInterfaceIds[0]}); code(err) == "" {
		t.Error("an endpoint's interface could be deleted")
	}
	ok(c.DeleteVpcEndpoints(ctx, &ec2.DeleteVpcEndpointsInput{VpcEndpointIds: ids}))
	// It lingers, and is in the way of its subnet for as long.
	ok(c.DisassociateRouteTable(ctx, &ec2.DisassociateRouteTableInput{AssociationId: l.associationOf(ctx, n.privateTable)}))
	if _, err := c.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &n.private}); code(err) != "DependencyViolation" {
		t.Errorf("deleting the subnet at once: %v", err)
	}
	l.step(time.Minute)
	ok(c.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{VpcId: &n.vpc, EnableDnsHostnames: &types.AttributeBooleanValue{Value: new(false)}}))
	ok(c.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &n.privateTable, SubnetId: &n.private}))
	if len(l.world.Snapshot()) != len(before) {
		t.Error("something of the endpoint is left")
	}
	unsuccessful := ok(c.DeleteVpcEndpoints(ctx, &ec2.DeleteVpcEndpointsInput{VpcEndpointIds: ids})).Unsuccessful
	if len(unsuccessful) != 1 || *unsuccessful[0].Error.Code != "InvalidVpcEndpoint.NotFound" {
		t.Errorf("deleting it once more: %+v", unsuccessful)
	}
}

func (l *lab) associationOf(ctx context.Context, table string) *string {
	t := ok(l.client.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{table}})).RouteTables[0]
	return t.Associations[0].RouteTableAssociationId
}

// A flow log wants a role that the delivery service can assume, which takes a while.
func TestFlowLogs(t *testing.T) {
	t.Parallel()
	opt := atOnce
	opt.ConsistencyByList = 4 * time.Second
	l := newLab(t, opt)
	ctx := t.Context()
	cfg := awssdk.Config{Region: "us-east-1", BaseEndpoint: awssdk.String(l.url), Credentials: credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "secret", ""), RetryMaxAttempts: 1}
	groups, roles := logs.NewFromConfig(cfg), iam.NewFromConfig(cfg)
	vpc := l.vpcOf(l.client, "10.1.0.0/16")
	ok(groups.CreateLogGroup(ctx, &logs.CreateLogGroupInput{LogGroupName: new("/flows"), Tags: map[string]string{"owner": "job-1"}}))
	if _, err := groups.CreateLogGroup(ctx, &logs.CreateLogGroupInput{LogGroupName: new("/flows")}); code(err) != "ResourceAlreadyExistsException" {
		t.Errorf("a second group: %v", err)
	}
	if _, err := groups.PutRetentionPolicy(ctx, &logs.PutRetentionPolicyInput{LogGroupName: new("/flows"), RetentionInDays: awssdk.Int32(42)}); code(err) != "InvalidParameterException" {
		t.Errorf("42 days: %v", err)
	}
	ok(groups.PutRetentionPolicy(ctx, &logs.PutRetentionPolicyInput{LogGroupName: new("/flows"), RetentionInDays: awssdk.Int32(90)}))
	role := func(name, service string) string {
		return *ok(roles.CreateRole(ctx, &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: new(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"` + service + `"},"Action":"sts:AssumeRole"}]}`)})).Role.Arn
	}
	good, bad := role("flows", "vpc-flow-logs.amazonaws.com"), role("vms", "ec2.amazonaws.com")
	create := func(role, token string) (string, error) {
		out, err := l.client.CreateFlowLogs(ctx, &ec2.CreateFlowLogsInput{ResourceIds: []string{vpc}, ResourceType: types.FlowLogsResourceTypeVpc, TrafficType: types.TrafficTypeReject,
			LogGroupName: new("/flows"), DeliverLogsPermissionArn: &role, ClientToken: &token})
		if err != nil || len(out.FlowLogIds) != 1 {
			return "", err
		}
		return out.FlowLogIds[0], nil
	}
	if _, err := create(good, "a"); code(err) != "InvalidParameter" {
		t.Errorf("with a fresh role: %v", err)
	}
	l.step(time.Minute)
	if _, err := create(bad, "b"); code(err) != "InvalidParameter" {
		t.Errorf("with a role of others: %v", err)
	}
	id := ok(create(good, "a"))
	if again := ok(create(good, "a")); again != id {
		t.Errorf("the same token made %s beside %s", again, id)
	}
	if _, err := create(good, "c"); code(err) != "FlowLogAlreadyExists" {
		t.Errorf("a second one: %v", err)
	}
	l.step(time.Minute)
	got := ok(l.client.DescribeFlowLogs(ctx, &ec2.DescribeFlowLogsInput{Filter: []types.Filter{{Name: new("resource-id"), Values: []string{vpc}}}})).FlowLogs
	if len(got) != 1 || *got[0].FlowLogStatus != "ACTIVE" || *got[0].LogGroupName != "/flows" {
		t.Errorf("flow logs %+v", got)
	}
	ok(l.client.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &vpc}))
	list := ok(groups.DescribeLogGroups(ctx, &logs.DescribeLogGroupsInput{LogGroupNamePrefix: new("/flo")})).LogGroups
	if len(list) != 1 || *list[0].RetentionInDays != 90 {
		t.Errorf("log groups %+v", list)
	}
	if tags := ok(groups.ListTagsForResource(ctx, &logs.ListTagsForResourceInput{ResourceArn: list[0].LogGroupArn})).Tags; tags["owner"] != "job-1" {
		t.Errorf("tags %v", tags)
	}
	ok(groups.DeleteLogGroup(ctx, &logs.DeleteLogGroupInput{LogGroupName: new("/flows")}))
}

func TestNetworkACLs(t *testing.T) {
	t.Parallel()
	l := newLab(t, atOnce)
	ctx, c := t.Context(), l.client
	n := l.build(ctx)
	acl := *ok(c.CreateNetworkAcl(ctx, &ec2.CreateNetworkAclInput{VpcId: &n.vpc})).NetworkAcl.NetworkAclId
	entry := func(number int32) error {
		return second(c.CreateNetworkAclEntry(ctx, &ec2.CreateNetworkAclEntryInput{NetworkAclId: &acl, RuleNumber: &number, Protocol: new("6"), RuleAction: types.RuleActionAllow, Egress: new(false), CidrBlock: new("10.0.0.0/8"), PortRange: &types.PortRange{From: new(int32(443)), To: new(int32(443))}}))
	}
	if err := entry(100); err != nil {
		t.Fatal(err)
	}
	if err := entry(100); code(err) != "NetworkAclEntryAlreadyExists" {
		t.Errorf("the same number: %v", err)
	}
	if err := entry(40000); code(err) != "InvalidParameterValue" {
		t.Errorf("a number out of range: %v", err)
	}
	of := func(filter, value string) types.NetworkAcl {
		return ok(c.DescribeNetworkAcls(ctx, &ec2.DescribeNetworkAclsInput{Filters: []types.Filter{{Name: &filter, Values: []string{value}}}})).NetworkAcls[0]
	}
	old := of("association.subnet-id", n.private)
	i := slices.IndexFunc(old.Associations, func(a types.NetworkAclAssociation) bool { return *a.SubnetId == n.private })
	ok(c.ReplaceNetworkAclAssociation(ctx, &ec2.ReplaceNetworkAclAssociationInput{AssociationId: old.Associations[i].NetworkAclAssociationId, NetworkAclId: &acl}))
	if _, err := c.DeleteNetworkAcl(ctx, &ec2.DeleteNetworkAclInput{NetworkAclId: &acl}); code(err) != "DependencyViolation" {
		t.Errorf("deleting one in use: %v", err)
	}
	now := of("network-acl-id", acl)
	if len(now.Associations) != 1 || len(now.Entries) != 3 {
		t.Errorf("ACL %+v", now)
	}
	ok(c.ReplaceNetworkAclAssociation(ctx, &ec2.ReplaceNetworkAclAssociationInput{AssociationId: now.Associations[0].NetworkAclAssociationId, NetworkAclId: old.NetworkAclId}))
	ok(c.DeleteNetworkAcl(ctx, &ec2.DeleteNetworkAclInput{NetworkAclId: &acl}))
	if _, err := c.DeleteNetworkAcl(ctx, &ec2.DeleteNetworkAclInput{NetworkAclId: old.NetworkAclId}); code(err) != "InvalidParameterValue" {
		t.Errorf("deleting the default one: %v", err)
	}
}
