package aws

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

const (
	hubSpec    = `{"network":{"subnets":["public","private","database"],"nat":"single","secondaryCidrs":["100.64.0.0/20"]},"dnsZones":[{"name":"hub.example.com","visibility":"public"},{"name":"hub.internal"}]}`
	closedSpec = `{"network":{"subnets":["private","database"],"nat":"none","zones":3,"interfaceEndpoints":["ssm"],"flowLogs":"all"}}`
	plainNet   = `{"network":{"nat":"per_zone"}}`
)

// A network job through its whole pipeline: what is asked for is there, the
// report is met, a second run and a verify change nothing, and teardown leaves
// the account as it was.
func TestNetworkJobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		subnets    int
		want       map[string]int // changes that tell the shape
		controls   []string
	}{
		{"hub with zones", hubSpec, 6, map[string]int{"CreateNatGateway": 1, "CreateRouteTable": 3, "CreateRoute": 2, "AssociateVpcCidrBlock": 1, "CreateVpcEndpoint": 2, "CreateHostedZone": 2, "CreateFlowLogs": 1},
			[]string{"NETA-01", "NETA-02", "NETA-03", "NETA-07", "NETA-09", "NETA-10", "NETA-13", "NETA-15"}},
		{"closed", closedSpec, 6, map[string]int{"CreateNatGateway": 0, "CreateInternetGateway": 0, "CreateRoute": 0, "CreateRouteTable": 2, "CreateVpcEndpoint": 5, "CreateSecurityGroup": 1},
			[]string{"NETA-02", "NETA-05", "NETA-07", "NETA-08", "NETA-10", "NETA-13", "NETA-14", "NETA-15"}},
		{"a NAT gateway a zone", plainNet, 4, map[string]int{"CreateNatGateway": 2, "CreateRouteTable": 3, "CreateRoute": 3, "AllocateAddress": 2, "CreateHostedZone": 0}, []string{"NETA-11"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newNet(t, sim.Options{}, job.ModeCreate, c.spec)
			before := g.world.Snapshot()
			g.create()
			reads, changes := g.calls(0)
			t.Logf("create: %d reads, %d changes %v", sum(reads), sum(changes), changes)
			for op, n := range c.want {
				if changes[op] != n {
					t.Errorf("%s was called %d times, want %d", op, changes[op], n)
				}
			}
			ic := g.infra()
			if len(ic.Subnets) != c.subnets || ic.NetworkPlan == nil || ic.NetworkCIDR != ic.NetworkPlan.CIDR || ic.FlowLogID == "" || len(ic.EndpointIDs) == 0 {
				t.Errorf("what was learned: %+v", ic)
			}
			var ids []string
			for _, row := range ic.Report {
				ids = append(ids, row.ID)
				if !row.Met {
					t.Errorf("control %s %s: wanted %q, seen %q", row.ID, row.Name, row.Wanted, row.Seen)
				}
			}
			for _, id := range c.controls {
				if !slices.Contains(ids, id) {
					t.Errorf("the report has no row %s: %v", id, ids)
				}
			}
			g.asAsked()
			g.another()
			since := g.mark()
			g.create()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			g.world.Step(time.Minute) // until lists show everything
			left, _, err := g.p.Scan(t.Context(), g.job.ID)
			var found []string
			for _, l := range left {
				found = append(found, l.ID)
			}
			slices.Sort(found)
			if d := cmp.Diff(g.ledger(), found); d != "" || err != nil {
				t.Errorf("a scan finds otherwise (%v):\n%s", err, d)
			}
			g.teardown()
			g.equal(before)
		})
	}
}

// The proposed range keeps clear of the account's other networks, and the plan
// says so.
func TestProposedRange(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
	g.peerNet(ownAccount, "us-east-1", "10.40.0.0/16", "theirs")
	g.create()
	plan := g.infra().NetworkPlan
	if plan.CIDR == "10.40.0.0/16" || len(plan.Notes) == 0 || !strings.Contains(plan.Notes[0], "10.40.0.0/16") {
		t.Errorf("plan %+v", plan)
	}
	g.teardown()
}

// Whatever a person changes by hand is reported by name, and put right by a run.
func TestNetworkJobDrift(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, hubSpec)
	before := g.world.Snapshot()
	g.create()
	ic := g.infra()
	var database string
	for _, o := range g.objects {
		if o.Key == "routes-database" {
			database = o.ID
		}
	}
	g.invoke("ec2", "CreateRoute", map[string]any{"RouteTableId": database, "DestinationCidrBlock": anywhere, "NatGatewayId": ic.NATGatewayIDs[0]})
	g.invoke("ec2", "ModifyVpcEndpoint", map[string]any{"VpcEndpointId": g.objects[kindEndpoint+"/endpoint-s3"].ID, "ResetPolicy": true, "RemoveRouteTableIds": []any{database}})
	g.invoke("logs", "DeleteRetentionPolicy", map[string]any{"logGroupName": g.objects[kindLogGroup+"/"+logGroupKey].ID})
	g.invoke("iam", "PutRolePolicy", map[string]any{"RoleName": g.objects[kindRole+"/"+flowRoleKey].ID, "PolicyName": flowPolicyName, "PolicyDocument": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"logs:*","Resource":"*"}]}`})
	drift, _ := g.verify()
	var got []string
	for _, d := range drift {
		if strings.HasPrefix(d.Key, "NETA") {
			continue // the report says it once more
		}
		got = append(got, d.Key+" "+d.Attr)
	}
	slices.Sort(got)
	want := []string{"endpoint-s3 policy", "endpoint-s3 route tables", "flow-log-group retention", "flow-log-role policy", "routes-database default route"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	g.another()
	g.create()
	g.asAsked()
	g.teardown()
	g.equal(before)
}
