package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// ask makes the job ask for a peering.
func (g vmRig) ask(format string, args ...any) {
	g.job.Config.Spec = fmt.Appendf(nil, `{"network":{"cidr":"10.50.0.0/16"},"peerings":[`+format+`]}`, args...)
}

// With the peer's credentials a peering is made, accepted, routed and resolved on
// both sides, wherever the peer is; and nothing of it is left on either.
func TestPeerings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, account, region, spec string }{
		{"same account", ownAccount, "us-east-1", `{"networkId":%q}`},
		{"by name", ownAccount, "us-east-1", `{"networkId":"data"}`},
		{"another region", ownAccount, "eu-west-1", `{"networkId":%q,"region":"eu-west-1"}`},
		{"another account", partnerAccount, "us-east-1", `{"networkId":%q,"cloudAccountId":"partner"}`},
		{"another account and region", partnerAccount, "eu-west-1", `{"networkId":%q,"cloudAccountId":"partner","region":"eu-west-1"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
			vpc := g.peerNet(c.account, c.region, "10.90.0.0/16", "data")
			if strings.Contains(c.spec, "%") {
				g.ask(c.spec, vpc)
			} else {
				g.ask(c.spec)
			}
			before := g.world.Snapshot()
			g.create()
			info := g.infra().Peerings
			if len(info) != 1 || info[0].State != "active" || info[0].Waiting != "" || !slices.Equal(info[0].CIDRs, []string{"10.90.0.0/16"}) {
				t.Fatalf("peerings %+v", info)
			}
			id := info[0].ID
			if d := cmp.Diff([]string{id, id}, g.routesTo(g.in(c.account, c.region), vpc, "10.50.0.0/16")); d != "" {
				t.Errorf("routes on the peer's side:\n%s", d)
			}
			if got := g.routesTo(g.p, g.infra().NetworkID, "10.90.0.0/16"); len(got) != 2 || got[0] != id || got[1] != id {
				t.Errorf("routes on this side: %v", got)
			}
			out, err := g.in(c.account, c.region).ec2.DescribeVpcPeeringConnections(t.Context(), &ec2.DescribeVpcPeeringConnectionsInput{VpcPeeringConnectionIds: []string{id}})
			if err != nil {
				t.Fatal(err)
			}
			pc := out.VpcPeeringConnections[0]
			if !aws.ToBool(pc.AccepterVpcInfo.PeeringOptions.AllowDnsResolutionFromRemoteVpc) || !aws.ToBool(pc.RequesterVpcInfo.PeeringOptions.AllowDnsResolutionFromRemoteVpc) {
				t.Error("names are not resolved on both sides")
			}
			g.asAsked()
			g.another()
			since := g.mark()
			g.create()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			g.teardown()
			g.equal(before)
		})
	}
}

// Without the peer's credentials the job waits, and says who has to accept and
// how; once that is done it goes on.
func TestPeeringThatSomebodyHasToAccept(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
	vpc := g.peerNet(partnerAccount, "us-east-1", "10.90.0.0/16", "data")
	g.ask(`{"networkId":%q,"accountId":%q,"cidrs":["10.90.0.0/17"]}`, vpc, partnerAccount)
	before := g.world.Snapshot()
	if err := g.try(false, g.check, g.p.EnsureNetwork); err != nil {
		t.Fatal(err)
	}
	err := g.stuck(g.p.EnsurePeerings, 2*time.Hour)
	info := g.infra().Peerings[0]
	for _, word := range []string{partnerAccount, "aws ec2 accept-vpc-peering-connection --vpc-peering-connection-id " + info.ID + " --region us-east-1", "10.50.0.0/16"} {
		if err == nil || !strings.Contains(err.Error(), word) || !strings.Contains(info.Waiting, word) {
			t.Errorf("%v (%q) does not say %q", err, info.Waiting, word)
		}
	}
	reads, _ := g.calls(0)
	if n := reads["DescribeVpcPeeringConnections"]; n > 120 {
		t.Errorf("two hours of waiting took %d reads", n)
	}
	if _, err := g.in(partnerAccount, "us-east-1").ec2.AcceptVpcPeeringConnection(anything(t.Context()), &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: &info.ID}); err != nil {
		t.Fatal(err)
	}
	g.create()
	if info := g.infra().Peerings[0]; info.State != "active" || info.Waiting != "" {
		t.Errorf("peering %+v", info)
	}
	if got := g.routesTo(g.p, g.infra().NetworkID, "10.90.0.0/17"); len(got) != 2 {
		t.Errorf("routes %v", got)
	}
	g.asAsked()
	g.teardown()
	g.equal(before)
}

// A request that comes to nothing stops the job with the reason, and a retry
// makes another (J4).
func TestPeeringsThatComeToNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(g vmRig, id string)
		says string
	}{
		{"rejected", func(g vmRig, id string) {
			if _, err := g.in(partnerAccount, "us-east-1").ec2.RejectVpcPeeringConnection(anything(g.Context()), &ec2.RejectVpcPeeringConnectionInput{VpcPeeringConnectionId: &id}); err != nil {
				g.Fatal(err)
			}
		}, "rejected by account " + partnerAccount},
		{"expired", func(g vmRig, _ string) { g.world.Step(8 * 24 * time.Hour) }, "within seven days"},
		{"failed", func(g vmRig, id string) {
			g.fault(sim.Fault{Kind: sim.FaultTransition, Match: id, State: "failed"})
			g.world.Step(time.Second)
		}, "overlapping CIDR range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
			vpc := g.peerNet(partnerAccount, "us-east-1", "10.90.0.0/16", "data")
			g.ask(`{"networkId":%q,"accountId":%q}`, vpc, partnerAccount)
			before := g.world.Snapshot()
			if err := g.try(false, g.check, g.p.EnsureNetwork); err != nil {
				t.Fatal(err)
			}
			_ = g.stuck(g.p.EnsurePeerings, time.Minute)
			first := g.infra().Peerings[0].ID
			c.end(g, first)
			err := g.stuck(g.p.EnsurePeerings, time.Hour)
			if f := fatal(err); f == nil || f.Problem.Code != "object-failed" || !strings.Contains(f.Problem.Message, c.says) {
				t.Fatalf("got %v", err)
			}
			g.another() // a person retries
			_ = g.stuck(g.p.EnsurePeerings, time.Minute)
			second := g.infra().Peerings[0]
			if second.ID == first || second.State != "pending-acceptance" {
				t.Errorf("the retry has %+v, the first was %s", second, first)
			}
			g.teardown()
			g.equal(before)
		})
	}
}

// What stands in a peering's way is said before anything is made, or named and
// not touched. It does not keep the job from being torn down.
func TestPeeringsThatCannotBe(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{ConsistencyByID: -1, ConsistencyByList: -1}, job.ModeCreate, plainNet)
	vpc := g.peerNet(ownAccount, "us-east-1", "10.50.128.0/17", "data")
	g.peerNet(ownAccount, "us-east-1", "10.91.0.0/16", "twin")
	g.peerNet(ownAccount, "us-east-1", "10.92.0.0/16", "twin")
	for _, c := range []struct {
		name, spec string
		says       []string
	}{
		{"overlap", fmt.Sprintf(`{"networkId":%q}`, vpc), []string{"10.50.0.0/16 overlaps 10.50.128.0/17", vpc}},
		{"no such peer", `{"networkId":"vpc-0123456789abcdef0"}`, []string{"vpc-0123456789abcdef0", "config.spec.peerings[0]"}},
		{"no such name", `{"networkId":"nobody"}`, []string{"nobody"}},
		{"a name of two", `{"networkId":"twin"}`, []string{"2 VPCs", "twin"}},
		{"a name across accounts", fmt.Sprintf(`{"networkId":"data","accountId":%q}`, partnerAccount), []string{"no VPC ID"}},
		{"no credentials", fmt.Sprintf(`{"networkId":%q,"cloudAccountId":"stranger"}`, vpc), []string{"stranger"}},
		{"another account than said", fmt.Sprintf(`{"networkId":%q,"cloudAccountId":"partner","accountId":%q}`, vpc, ownAccount), []string{partnerAccount, "accountId"}},
	} {
		g.ask("%s", c.spec)
		g.another()
		if got := g.checks(pipeline.Plan); !has(got, cloud.CheckFails, c.says...) {
			t.Errorf("%s: nothing says %q in\n%s", c.name, c.says, show(got))
		}
		if err := g.p.RemovePeerings(anything(t.Context()), g.run(pipeline.Apply)); err != nil {
			t.Errorf("%s: teardown: %v", c.name, err)
		}
	}
}

// A route of the peer's that leads elsewhere is named and left alone (F-class).
func TestPeeringOverATakenRoute(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
	vpc := g.peerNet(partnerAccount, "us-east-1", "10.90.0.0/16", "data")
	g.ask(`{"networkId":%q,"cloudAccountId":"partner"}`, vpc)
	p, ctx := g.in(partnerAccount, "us-east-1"), anything(t.Context())
	igw, err := p.ec2.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ec2.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: igw.InternetGateway.InternetGatewayId, VpcId: &vpc}); err != nil {
		t.Fatal(err)
	}
	tables, err := p.ec2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{})
	if err != nil {
		t.Fatal(err)
	}
	table := ""
	for _, rt := range tables.RouteTables {
		if aws.ToString(rt.VpcId) == vpc && !isMainTable(rt) {
			table = aws.ToString(rt.RouteTableId)
		}
	}
	if _, err := p.ec2.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &table, DestinationCidrBlock: aws.String("10.50.0.0/16"), GatewayId: igw.InternetGateway.InternetGatewayId}); err != nil {
		t.Fatal(err)
	}
	before := g.world.Snapshot()
	err = g.try(false, g.netSteps()...)
	if f := fatal(err); f == nil || f.Problem.Code != "route-taken" || !strings.Contains(f.Problem.Message, table) {
		t.Fatalf("got %v", err)
	}
	g.teardown()
	g.equal(before)
}
