package aws

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// theirs is a network that somebody else made.
type theirs struct {
	vpc                        string
	privateA, privateB, lonely string // lonely has no way out
	publicA, publicB           string
	nat                        string
}

func (g *rig) theirs(ctx context.Context) theirs {
	g.Helper()
	n := theirs{vpc: g.vpc(ctx, "10.90.0.0/16")}
	subnet := func(i int, zone string) string {
		out, err := g.p.ec2.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: aws.String(fmt.Sprintf("10.90.%d.0/24", i)), AvailabilityZone: aws.String("us-east-1" + zone)})
		if err != nil {
			g.Fatal(err)
		}
		return *out.Subnet.SubnetId
	}
	n.privateA, n.privateB, n.lonely, n.publicA, n.publicB = subnet(1, "a"), subnet(2, "b"), subnet(3, "a"), subnet(4, "a"), subnet(5, "b")
	igw, err := g.p.ec2.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})
	if err != nil {
		g.Fatal(err)
	}
	gateway := igw.InternetGateway.InternetGatewayId
	if _, err := g.p.ec2.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: gateway, VpcId: &n.vpc}); err != nil {
		g.Fatal(err)
	}
	ip, err := g.p.ec2.AllocateAddress(ctx, &ec2.AllocateAddressInput{Domain: ec2types.DomainTypeVpc})
	if err != nil {
		g.Fatal(err)
	}
	nat, err := g.p.ec2.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{SubnetId: &n.publicA, AllocationId: ip.AllocationId})
	if err != nil {
		g.Fatal(err)
	}
	n.nat = *nat.NatGateway.NatGatewayId
	table := func(in ec2.CreateRouteInput, subnets ...string) {
		t, err := g.p.ec2.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &n.vpc})
		if err != nil {
			g.Fatal(err)
		}
		in.RouteTableId, in.DestinationCidrBlock = t.RouteTable.RouteTableId, aws.String(anywhere)
		if _, err := g.p.ec2.CreateRoute(ctx, &in); err != nil {
			g.Fatal(err)
		}
		for _, s := range subnets {
			if _, err := g.p.ec2.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: t.RouteTable.RouteTableId, SubnetId: &s}); err != nil {
				g.Fatal(err)
			}
		}
	}
	table(ec2.CreateRouteInput{GatewayId: gateway}, n.publicA, n.publicB)
	table(ec2.CreateRouteInput{NatGatewayId: &n.nat}, n.privateA, n.privateB)
	return n
}

func (g *rig) name(n theirs, lb string, subnets ...string) {
	spec := fmt.Sprintf(`{"existing":{"networkId":%q,"subnetIds":["%s"]}`, n.vpc, strings.Join(subnets, `","`))
	if lb != "" {
		spec += `,"loadBalancer":` + lb
	}
	g.job.Config.Spec = []byte(spec + "}")
}

const existingPlaceholder = `{"existing":{"networkId":"vpc-1","subnetIds":["subnet-1"]}}`

// A named network is read, recorded, and never changed, up or down (F1, F2).
func TestExistingNetwork(t *testing.T) {
	g := freshRig(t, job.ModeCreateInExisting, existingPlaceholder)
	ctx := anything(t.Context())
	n := g.theirs(ctx)
	g.name(n, `{"plainHTTP":true}`, n.privateB, n.publicB, n.privateA, n.publicA)
	if got := g.checks(pipeline.Apply); has(got, cloud.CheckFails, "") {
		t.Fatalf("got\n%s", show(got))
	}
	if z := g.job.Config.InfraConfig.Zones; z != nil {
		t.Errorf("the check chose zones %v in a network that has its own", z)
	}
	before := g.world.Snapshot()
	since := g.mark()
	g.up()
	_, changes := g.calls(since)
	if d := cmp.Diff(map[string]int{"CreateRole": 1, "AttachRolePolicy": 1, "CreateInstanceProfile": 1, "AddRoleToInstanceProfile": 1}, changes); d != "" {
		t.Error(d)
	}
	ic := g.job.Config.InfraConfig
	want := job.InfraConfig{
		NetworkID: n.vpc, NetworkCIDR: "10.90.0.0/16", Zones: []string{"us-east-1b", "us-east-1a"},
		PrivateSubnetIDs: []string{n.privateB, n.privateA}, PublicSubnetIDs: []string{n.publicB, n.publicA},
	}
	got := job.InfraConfig{NetworkID: ic.NetworkID, NetworkCIDR: ic.NetworkCIDR, Zones: ic.Zones, PrivateSubnetIDs: ic.PrivateSubnetIDs, PublicSubnetIDs: ic.PublicSubnetIDs}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(ic.EgressIPs) != 1 {
		t.Errorf("egress %v", ic.EgressIPs)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift %v", d)
	}
	g.down()
	g.equal(before)
}

func TestExistingNetworkChecks(t *testing.T) {
	g := freshRig(t, job.ModeCreateInExisting, existingPlaceholder)
	ctx := anything(t.Context())
	n := g.theirs(ctx)
	other, err := g.p.ec2.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: aws.String(g.vpc(ctx, "10.91.0.0/16")), CidrBlock: aws.String("10.91.0.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	const field = "config.spec.existing.subnetIds"
	for _, c := range []struct {
		name    string
		vpc     string
		lb      string
		subnets []string
		status  cloud.CheckStatus
		says    []string
	}{
		{"no such VPC", "vpc-0123456789abcdef0", "", []string{n.privateA}, cloud.CheckFails, []string{"vpc-0123456789abcdef0", "config.spec.existing.networkId"}},
		{"no such subnet", n.vpc, "", []string{n.privateA, "subnet-0123456789abcdef0"}, cloud.CheckFails, []string{"subnet-0123456789abcdef0", field}},
		{"a subnet of another VPC", n.vpc, "", []string{*other.Subnet.SubnetId}, cloud.CheckFails, []string{"another VPC", *other.Subnet.SubnetId}},
		{"only public subnets", n.vpc, "", []string{n.publicA, n.publicB}, cloud.CheckFails, []string{"none of the subnets is private"}},
		{"M13 no way out", n.vpc, "", []string{n.lonely}, cloud.CheckFails, []string{n.lonely, "Systems Manager", "ssmmessages"}},
		{"one public subnet for a public load balancer", n.vpc, `{"plainHTTP":true}`, []string{n.privateA, n.publicA}, cloud.CheckFails, []string{"2 zones", field}},
		{"one zone for an internal load balancer", n.vpc, `{"plainHTTP":true,"scheme":"internal"}`, []string{n.privateA, n.lonely}, cloud.CheckFails, []string{"2 zones"}},
		{"one public subnet will do for TCP", n.vpc, `{"type":"tcp"}`, []string{n.privateA, n.publicA}, cloud.CheckOK, []string{"existing network"}},
		{"fine", n.vpc, "", []string{n.privateA}, cloud.CheckOK, []string{"existing network", "1 private"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := n
			m.vpc = c.vpc
			g.name(m, c.lb, c.subnets...)
			g.another()
			if got := g.checks(pipeline.Plan); !has(got, c.status, c.says...) || c.status == cloud.CheckOK && has(got, cloud.CheckFails) {
				t.Errorf("nothing says %q in\n%s", c.says, show(got))
			}
		})
	}
}

// Endpoints for Systems Manager make up for a missing way out.
func TestExistingNetworkWithEndpoints(t *testing.T) {
	g := freshRig(t, job.ModeCreateInExisting, existingPlaceholder)
	ctx := anything(t.Context())
	n := g.theirs(ctx)
	var items strings.Builder
	for _, s := range []string{"ssm", "ssmmessages", "ec2messages"} {
		fmt.Fprintf(&items, "<item><vpcEndpointId>vpce-1</vpcEndpointId><serviceName>com.amazonaws.us-east-1.%s</serviceName><state>available</state></item>", s)
	}
	g.fault(sim.Fault{Kind: sim.FaultRaw, Operation: "DescribeVpcEndpoints", Status: 200, ContentType: "text/xml", Body: `<DescribeVpcEndpointsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><vpcEndpointSet>` + items.String() + `</vpcEndpointSet></DescribeVpcEndpointsResponse>`})
	g.name(n, "", n.lonely)
	if got := g.checks(pipeline.Plan); has(got, cloud.CheckFails) || !has(got, cloud.CheckWarning, "endpoints", n.lonely) {
		t.Errorf("got\n%s", show(got))
	}
}

func TestAdoptChecks(t *testing.T) {
	g := freshRig(t, job.ModeAdopt, `{"adopt":{"ids":["i-0123456789abcdef0"]}}`)
	if got := g.checks(pipeline.Apply); !has(got, cloud.CheckFails, "i-0123456789abcdef0", "config.spec.adopt") {
		t.Errorf("got\n%s", show(got))
	}
	g.job.Config.Spec = []byte(`{"adopt":{"name":"nobody"}}`)
	g.another()
	if got := g.checks(pipeline.Apply); !has(got, cloud.CheckFails, "nobody", "config.spec.adopt") {
		t.Errorf("got\n%s", show(got))
	}
}
