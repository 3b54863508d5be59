package azure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// Faults that pass: the job goes on by itself, makes everything once, and leaves
// nothing behind.
func TestFaultsThatPass(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name  string
		fault sim.Fault
	}{
		{"throttled (H)", sim.Fault{Kind: sim.FaultThrottle, Percent: 40, Count: 30}},
		{"throttled with an hour to wait (H)", sim.Fault{Kind: sim.FaultThrottle, Operation: "NatGateways_CreateOrUpdate", RetryAfter: "30"}},
		{"a server error on reads", sim.Fault{Kind: sim.FaultError, Mutating: &no, Code: "InternalServerError", Status: 500, Count: 12, Percent: 30}},
		{"a proxy's web page (F8)", sim.Fault{Kind: sim.FaultRaw, Operation: "Subnets_Get", Status: 200, Body: "<html>blocked</html>", ContentType: "text/html", Count: 3}},
		{"an empty answer (H5)", sim.Fault{Kind: sim.FaultRaw, Operation: "NatGateways_Get", Status: 200, Body: "", Count: 3}},
		{"fresh objects not visible (D1)", sim.Fault{Kind: sim.FaultHidden, Match: "subnets", Seconds: 20}},
		{"a gateway not visible (D1)", sim.Fault{Kind: sim.FaultHidden, Match: "natGateways", Seconds: 20}},
		{"the token expires (I1)", sim.Fault{Kind: sim.FaultError, Operation: "NatGateways_Get", Code: "ExpiredAuthenticationToken", Status: 401, Count: 2}},
		{"another operation (H7)", sim.Fault{Kind: sim.FaultError, Operation: "Subnets_CreateOrUpdate", Code: "AnotherOperationInProgress", Status: 409, Count: 4}},
		{"what it refers to is not ready (H7)", sim.Fault{Kind: sim.FaultError, Operation: "VirtualNetworkPeerings_CreateOrUpdate", Code: "ReferencedResourceNotProvisioned", Status: 400, Count: 5}},
		{"outside of a network that is not settled (H11)", sim.Fault{Kind: sim.FaultError, Operation: "Subnets_CreateOrUpdate", Code: "NetcfgSubnetRangeOutsideVnet", Status: 400}},
		{"an answer that hangs", sim.Fault{Kind: sim.FaultLostReply, Mutating: &yes, Operation: "NatGateways_CreateOrUpdate"}},
		{"in use for a while (E)", sim.Fault{Kind: sim.FaultError, Operation: "Subnets_Delete", Code: "InUseSubnetCannotBeDeleted", Status: 400, Count: 3}},
		{"a delete swallowed (E11)", sim.Fault{Kind: sim.FaultSwallow, Operation: "NatGateways_Delete"}},
		{"empty pages (Q)", sim.Fault{Kind: sim.FaultPage, Mode: "empty", Operation: "*_List*", Count: 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := crashing(t)
			before := g.world.Snapshot()
			g.fault(c.fault)
			g.up()
			objects := len(g.ours())
			g.another()
			since := g.mark()
			g.up()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			if objects == 0 {
				t.Error("nothing was made")
			}
			g.down()
			g.hit()
			g.equal(before)
		})
	}
}

// An operation that was accepted and failed later is named with its error, the
// object stays, and a retry replaces it (failure kinds A7, A8, B10).
func TestOperationThatFails(t *testing.T) {
	for _, op := range []string{"NatGateways_CreateOrUpdate", "Subnets_CreateOrUpdate", "VirtualNetworks_CreateOrUpdate", "VirtualNetworkPeerings_CreateOrUpdate"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			g := crashing(t)
			before := g.world.Snapshot()
			g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: op, Seconds: 0.5, Code: "NetworkingInternalOperationError", Message: "An unexpected error occurred while processing the network profile."})
			err := g.try(false, g.steps(false)...)
			if f := fatal(err); f == nil || f.Problem.Code != "object-failed" || !strings.Contains(f.Problem.Message, "network profile") {
				t.Fatalf("%v\n%s", err, g.books(12))
			}
			g.hit()
			g.another() // a retry
			g.up()
			if d := g.drift(); len(d) > 0 {
				t.Errorf("drift: %v", d)
			}
			g.down()
			g.equal(before)
		})
	}
}

// A namesake is somebody else's: it is refused before anything is made, and
// never touched (failure kind B5).
func TestNamesake(t *testing.T) {
	t.Parallel()
	g := network(t, `{}`)
	group := g.p.groupID(groupOf(g.job))
	g.put(group, map[string]any{"location": "eastus2", "tags": map[string]any{"who": "andy"}})
	before := g.world.Snapshot()
	for _, steps := range [][]step{g.steps(false), g.steps(false)[1:]} {
		err := g.try(false, steps...)
		if f := fatal(err); f == nil || !strings.Contains(f.Problem.Message, "somebody else's") {
			t.Errorf("%v", err)
		}
	}
	if err := g.try(true, g.steps(true)...); err != nil {
		t.Errorf("teardown: %v", err)
	}
	if _, changes := g.calls(0); sum(changes) > 0 {
		t.Errorf("changed %v", changes)
	}
	g.equal(before)
}

// What somebody makes under a name of the job's, after deleting what had it, is
// neither brought into line nor removed: IDs are names here.
func TestNameTakenOverLater(t *testing.T) {
	t.Parallel()
	g := network(t, `{}`)
	before := g.world.Snapshot()
	g.up()
	rules := g.p.idIn(g.run(pipeline.Apply), typeGroupRules, g.job.ResourceName("nsg-private", longestName))
	if !g.exists(rules) {
		t.Fatalf("no %s among %v", rules, g.ours())
	}
	g.put(rules, map[string]any{"location": "eastus2"}) // no tags: theirs
	g.world.Step(5 * time.Minute)
	g.another()
	theirs := g.world.Objects(sim.ObjectFilter{ID: rules})
	for _, down := range []bool{false, true} {
		if f := fatal(g.try(down, g.steps(down)...)); f == nil || f.Problem.Code != "not-ours" {
			t.Errorf("down %v: the verdict is %v", down, f)
		}
	}
	if d := cmp.Diff(theirs, g.world.Objects(sim.ObjectFilter{ID: rules})); d != "" {
		t.Errorf("somebody else's security group was touched:\n%s", d)
	}
	g.invoke("DELETE", rules, nil)
	g.world.Step(5 * time.Minute)
	g.another()
	g.down()
	g.equal(before)
}

// What somebody else puts into our group, network, subnet or zone is named and
// never deleted along.
func TestForeignThingsBlockATeardown(t *testing.T) {
	for _, c := range []struct {
		name, says string
		make       func(g *rig) string
	}{
		{"in the group", "networkSecurityGroups theirs (not this job's)", func(g *rig) string {
			id := g.p.groupID(groupOf(g.job)) + "/providers/" + typeGroupRules + "/theirs"
			g.put(id, map[string]any{"location": "eastus2"})
			return id
		}},
		{"in the network", "subnet theirs", func(g *rig) string {
			id := g.job.Config.InfraConfig.NetworkID + "/subnets/theirs"
			g.put(id, map[string]any{"properties": map[string]any{"addressPrefix": strings.Replace(g.job.Config.InfraConfig.NetworkCIDR, "0.0/16", "255.0/24", 1)}})
			return id
		}},
		{"in a subnet", "networkInterfaces theirs", func(g *rig) string {
			id := g.p.groupID(groupOf(g.job)) + "/providers/Microsoft.Network/networkInterfaces/theirs"
			g.put(id, map[string]any{"location": "eastus2", "properties": map[string]any{"ipConfigurations": []any{
				map[string]any{"name": "a", "properties": map[string]any{"subnet": map[string]any{"id": g.job.Config.InfraConfig.PrivateSubnetIDs[0]}}}}}})
			return id
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := network(t, `{}`)
			before := g.world.Snapshot()
			g.up()
			id := c.make(g)
			var blocked *pipeline.BlockedError
			g.until(func(err error) bool { return errors.As(err, &blocked) })
			if !strings.Contains(blocked.Error(), c.says) {
				t.Errorf("%v", blocked)
			}
			if !g.exists(id) {
				t.Fatalf("%s was deleted", id)
			}
			g.invoke("DELETE", id, nil)
			g.down()
			g.equal(before)
		})
	}
}

// until runs the teardown until a step ends as is waited for.
func (g *rig) until(ends func(error) bool) {
	g.Helper()
	for _, f := range g.steps(true) {
		for range 300 {
			r := g.run(pipeline.Apply)
			r.Down, r.Step = true, "step"
			err := f(anything(g.Context()), r)
			if err == nil {
				break
			}
			if ends(err) {
				return
			}
			pause(r, err)
		}
	}
	g.Fatalf("it never came to that\n%s", g.books(40))
}

func TestRecordsOfSomebodyBlockAZone(t *testing.T) {
	t.Parallel()
	g := network(t, `{"dnsZones":[{"name":"shop.example.com","visibility":"public"}]}`)
	before := g.world.Snapshot()
	g.up()
	id := g.job.Config.InfraConfig.DNSZones[0].ID + "/A/www"
	g.put(id, map[string]any{"properties": map[string]any{"TTL": 300, "ARecords": []any{map[string]any{"ipv4Address": "192.0.2.1"}}}})
	g.world.Step(5 * time.Minute)
	var blocked *pipeline.BlockedError
	g.until(func(err error) bool { return errors.As(err, &blocked) })
	if !strings.Contains(blocked.Error(), "A record www") {
		t.Errorf("%v", blocked)
	}
	g.invoke("DELETE", id, nil)
	g.down()
	g.equal(before)
}

// A lock on one of the objects stops the teardown before its first delete
// (failure kind E19).
func TestLock(t *testing.T) {
	t.Parallel()
	g := crashing(t)
	before := g.world.Snapshot()
	g.up()
	id := g.job.Config.InfraConfig.NATGatewayIDs[0] + locksPath + "/keep"
	g.put(id, map[string]any{"properties": map[string]any{"level": "CanNotDelete"}})
	since := g.mark()
	err := g.try(true, g.steps(true)...)
	if f := fatal(err); f == nil || f.Problem.Code != "locked" || !strings.Contains(f.Problem.Message, "keep") {
		t.Errorf("%v", err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("before the lock was seen: %v", changes)
	}
	g.invoke("DELETE", id, nil)
	g.down()
	g.equal(before)
}

// A subscription that lacks what the job needs is told before anything is made.
func TestChecks(t *testing.T) {
	for _, c := range []struct {
		name, spec, region, says string
		prepare                  func(g *rig)
	}{
		{name: "quota", says: "Public IP Addresses", prepare: func(g *rig) {
			if !g.world.SetQuota("azure", "network", "PublicIPAddresses", "", "", 0) {
				g.Fatal("no such quota")
			}
		}},
		{name: "region", region: "mars", says: "not a region"},
		{name: "range of a peer", spec: `{"network":{"cidr":"10.90.0.0/16"},"peerings":[{"networkId":"hub"}]}`, says: "peer hub", prepare: func(g *rig) { g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24") }},
		{name: "no such peer", spec: `{"peerings":[{"networkId":"nowhere"}]}`, says: "nowhere is not there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			spec := c.spec
			if spec == "" {
				spec = `{}`
			}
			g := network(t, spec)
			if c.region != "" {
				g.job.Region, g.p.region = c.region, c.region
			}
			if c.prepare != nil {
				c.prepare(g)
			}
			err := g.try(false, g.check)
			if f := fatal(err); f == nil || !strings.Contains(f.Problem.Message, c.says) {
				t.Errorf("%v", err)
			}
			if _, changes := g.calls(0); sum(changes) > 0 {
				t.Errorf("changed %v", changes)
			}
		})
	}
}

// Proposals keep clear of the subscription's other networks.
func TestProposal(t *testing.T) {
	t.Parallel()
	g := network(t, `{}`)
	g.theirVNet("one", "10.40.0.0/16", "10.40.0.0/24")
	if err := g.try(false, g.check); err != nil {
		t.Fatal(err)
	}
	if got := g.job.Config.InfraConfig.NetworkPlan.CIDR; got != "10.41.0.0/16" {
		t.Errorf("proposed %s", got)
	}
}

// Without a gate nothing that changes something leaves the process.
func TestGate(t *testing.T) {
	t.Parallel()
	g := network(t, `{}`)
	r := g.run(pipeline.Apply)
	err := g.p.EnsureNetwork(context.Background(), r)
	if !pipeline.Is(err, pipeline.Refused) {
		t.Errorf("%v", err)
	}
	if _, changes := g.calls(0); sum(changes) > 0 {
		t.Errorf("changed %v", changes)
	}
	rec, _ := r.Object(kindGroup, "group")
	if rec.State != job.ObjectAbsent {
		t.Errorf("the ledger has %s", rec.State)
	}
}
