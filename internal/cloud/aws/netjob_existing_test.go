package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const inExisting = `{"existing":{"networkId":%q},"network":{"subnets":["public","private","database"],"interfaceEndpoints":["ssm"]},"peerings":[{"networkId":"data"}],"dnsZones":[{"name":"part.internal"}]}`

// In a network that exists the job makes its own parts and changes nothing else:
// what was there is byte for byte what it was, during and after (F1, F2, F10).
func TestNetworkJobInExistingNetwork(t *testing.T) {
	t.Parallel()
	for _, byName := range []bool{false, true} {
		t.Run(fmt.Sprint("by name: ", byName), func(t *testing.T) {
			t.Parallel()
			g := newNet(t, sim.Options{}, job.ModeCreateInExisting, fmt.Sprintf(inExisting, "vpc-1"))
			n := g.theirs(anything(t.Context()))
			g.peerNet(ownAccount, "us-east-1", "10.200.0.0/16", "data")
			for _, a := range []string{"EnableDnsSupport", "EnableDnsHostnames"} {
				g.invoke("ec2", "ModifyVpcAttribute", map[string]any{"VpcId": n.vpc, a: map[string]any{"Value": true}})
			}
			named := n.vpc
			if byName {
				named = "shared"
				g.invoke("ec2", "CreateTags", map[string]any{"ResourceId": []any{n.vpc}, "Tag": []any{map[string]any{"Key": "Name", "Value": named}}})
			}
			g.job.Config.Spec = fmt.Appendf(nil, inExisting, named)
			g.world.Step(5 * time.Minute)
			before := g.world.Snapshot()
			g.create()
			now := g.world.Snapshot()
			for k, was := range before {
				// The peer's tables get the routes that were asked for, and the default
				// network ACL lists every new subnet by itself.
				if d := cmp.Diff(was, now[k]); d != "" && !strings.Contains(k, "rtb-") && !strings.Contains(k, "/acl-") {
					t.Errorf("%s was changed:\n%s", k, d)
				}
			}
			ic := g.infra()
			if ic.NetworkID != n.vpc || ic.NetworkCIDR != "10.90.0.0/16" || len(ic.Subnets) != 6 || !strings.HasPrefix(ic.NetworkPlan.CIDR, "10.90.") {
				t.Errorf("what was learned: %+v", ic)
			}
			_, changes := g.calls(0)
			if changes["CreateInternetGateway"] != 1 { // theirs alone: the network has one already
				t.Errorf("%d internet gateways were made", changes["CreateInternetGateway"])
			}
			for _, row := range ic.Report {
				if !row.Met {
					t.Errorf("control %s %s: wanted %q, seen %q", row.ID, row.Name, row.Wanted, row.Seen)
				}
			}
			g.asAsked()
			g.teardown()
			g.equal(before)
		})
	}
}

func TestNetworkJobInExistingNetworkChecks(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{ConsistencyByID: -1, ConsistencyByList: -1}, job.ModeCreateInExisting, fmt.Sprintf(inExisting, "vpc-1"))
	n := g.theirs(anything(t.Context()))
	for range 2 {
		g.peerNet(ownAccount, "us-east-1", "10.91.0.0/16", "twin")
	}
	for _, c := range []struct {
		name, spec string
		says       []string
	}{
		{"no such network", `{"existing":{"networkId":"vpc-0123456789abcdef0"}}`, []string{"vpc-0123456789abcdef0"}},
		{"two of one name", `{"existing":{"networkId":"twin"}}`, []string{"2 VPCs", "twin", "vpc-"}},
		{"outside of its range", `{"existing":{"networkId":%q},"network":{"cidr":"10.91.0.0/20"}}`, []string{"not within", "10.90.0.0/16"}},
		{"over its subnets", `{"existing":{"networkId":%q},"network":{"cidr":"10.90.0.0/20"}}`, []string{"overlap", n.privateA}},
		{"NAT without a public subnet", `{"existing":{"networkId":%q},"network":{"subnets":["private"]}}`, []string{"public subnet"}},
	} {
		spec := c.spec
		if strings.Contains(spec, "%") {
			spec = fmt.Sprintf(spec, n.vpc)
		}
		g.job.Config.Spec = []byte(spec)
		g.another()
		if got := g.checks(pipeline.Plan); !has(got, cloud.CheckFails, c.says...) {
			t.Errorf("%s: nothing says %q in\n%s", c.name, c.says, show(got))
		}
	}
}

// Adopting reads, notes what is risky, and changes nothing, also at the end.
func TestAdoptNetwork(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeAdopt, `{"adopt":{"ids":["vpc-1"]}}`)
	ctx := anything(t.Context())
	n := g.theirs(ctx)
	open, err := g.p.ec2.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{GroupName: aws.String("open"), Description: aws.String("open"), VpcId: &n.vpc})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.p.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: open.GroupId,
		IpPermissions: []ec2types.IpPermission{{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(22), ToPort: aws.Int32(22), IpRanges: []ec2types.IpRange{{CidrIp: aws.String(anywhere)}}}}}); err != nil {
		t.Fatal(err)
	}
	g.job.Config.Spec = fmt.Appendf(nil, `{"adopt":{"ids":[%q]}}`, n.vpc)
	g.world.Step(5 * time.Minute)
	before := g.world.Snapshot()
	since := g.mark()
	r := g.run(pipeline.Apply)
	if err := g.p.AdoptNetwork(pipeline.WithGate(t.Context(), pipeline.ReadOnly), r); err != nil {
		t.Fatal(err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("adopting changed %v", changes)
	}
	ic := g.infra()
	if ic.NetworkID != n.vpc || !slices.Contains(ic.PublicSubnetIDs, n.publicA) || !slices.Contains(ic.PrivateSubnetIDs, n.privateB) || !slices.Equal(ic.DatabaseSubnetIDs, []string{n.lonely}) ||
		!slices.Equal(ic.NATGatewayIDs, []string{n.nat}) || len(ic.EgressIPs) != 1 || len(ic.Subnets) != 5 {
		t.Errorf("what was learned: %+v", ic)
	}
	notes := strings.Join(ic.Warnings, "\n")
	for _, want := range []string{"NETA-01", "NETA-02", "NETA-04", *open.GroupId, "NETA-13"} {
		if !strings.Contains(notes, want) {
			t.Errorf("nothing notes %s in\n%s", want, notes)
		}
	}
	if err := g.p.RemoveNetwork(anything(t.Context()), g.run(pipeline.Apply)); err != nil {
		t.Fatal(err)
	}
	g.equal(before)
}
