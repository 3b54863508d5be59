package gcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// The faults that real clouds show while a network is made and removed; each
// ends by itself, with the right objects once.
func TestFaultsThatPass(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name   string
		fault  sim.Fault
		world  sim.Options
		inDown bool
	}{
		{name: "a subnet's create is acknowledged and lost", fault: sim.Fault{Kind: sim.FaultSwallow, Operation: "subnetworks.insert"}},
		{name: "D1 objects show late", world: sim.Options{ConsistencyByID: 20 * time.Second, ConsistencyByList: 40 * time.Second}},
		{name: "D2 a live network vanishes from a read", fault: sim.Fault{Kind: sim.FaultHidden, Match: "network", Count: 2, After: 1}},
		{name: "D10 the API was enabled a moment ago", fault: sim.Fault{Kind: sim.FaultError, Service: "compute", Code: "accessNotConfigured", Status: 403, Seconds: 240,
			Message: "Compute Engine API has not been used in project 123456789012 before or it is disabled."}},
		{name: "H1 throttled", fault: sim.Fault{Kind: sim.FaultThrottle, Count: 40}},
		{name: "H5 reads fail", fault: sim.Fault{Kind: sim.FaultError, Mutating: &no, Count: 30, Code: "backendError", Status: 503}, inDown: true},
		{name: "H5 reads fail on the way up", fault: sim.Fault{Kind: sim.FaultError, Mutating: &no, Count: 30, Code: "backendError", Status: 503}},
		{name: "F8 empty answers", fault: sim.Fault{Kind: sim.FaultRaw, Status: 200, Body: "", Count: 20, Mutating: &no}},
		{name: "F8 a web page", fault: sim.Fault{Kind: sim.FaultRaw, Status: 403, Body: "<html><body>Forbidden</body></html>", ContentType: "text/html", Count: 2}},
		{name: "F8 half an answer", fault: sim.Fault{Kind: sim.FaultRaw, Status: 200, Body: `{"kind":"compute#networkList","items":[{"na`, Count: 3, Mutating: &no}},
		{name: "F8 an empty answer to a create", fault: sim.Fault{Kind: sim.FaultRaw, Status: 200, Body: "", Operation: "subnetworks.insert"}},
		{name: "H7 the network is not ready", fault: sim.Fault{Kind: sim.FaultError, Operation: "subnetworks.insert", Code: "resourceNotReady", Status: 400, Message: "The resource 'projects/example-project/global/networks/x' is not ready", Count: 3}},
		{name: "E a subnet is still in use", fault: sim.Fault{Kind: sim.FaultError, Operation: "subnetworks.delete", Code: "resourceInUseByAnotherResource", Status: 400, Message: "The subnetwork resource 'x' is already being used by 'y'", Count: 2}, inDown: true},
		{name: "I1 credentials refused", fault: sim.Fault{Kind: sim.FaultError, Code: "authError", Status: 401, Count: 3, After: 5}},
		{name: "Q2 empty pages", world: sim.Options{EmptyPages: 0.5, PageSize: 2}},
		{name: "A14 the same create is lost again and again", fault: sim.Fault{Kind: sim.FaultLostReply, Operation: "subnetworks.insert", Count: 3, Mutating: &yes}},
		{name: "an operation fails for the cloud's own reasons", fault: sim.Fault{Kind: sim.FaultOpFailed, Operation: "subnetworks.insert", Code: "INTERNAL_ERROR", Message: "Internal error. Please try again."}},
		{name: "an operation fails while the network goes", fault: sim.Fault{Kind: sim.FaultOpFailed, Operation: "networks.delete", Code: "INTERNAL_ERROR", Message: "Internal error. Please try again."}, inDown: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, c.world, job.ModeCreate, plainSpec)
			before := g.world.Snapshot()
			place := func() {
				if c.fault.Kind != "" {
					g.fault(c.fault)
				}
			}
			if !c.inDown {
				place()
			}
			g.up()
			if n := len(g.ours()); n != 6 {
				t.Errorf("%d objects carry the mark: %v", n, g.ours())
			}
			if d := g.drift(); len(d) > 0 {
				t.Errorf("drift: %v", d)
			}
			if c.inDown {
				place()
			}
			g.down()
			g.hit()
			g.equal(before)
		})
	}
}

// The same page token for ever is an error, not an endless loop (Q4).
func TestRepeatedPageToken(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{PageSize: 1}, job.ModeCreate, plainSpec)
	g.up()
	g.fault(sim.Fault{Kind: sim.FaultPage, Mode: "repeat", Operation: "subnetworks.list", Count: -1})
	g.another()
	err := g.p.EnsureNetwork(anything(t.Context()), g.run(pipeline.Apply))
	if err == nil || !strings.Contains(err.Error(), "same page token") {
		t.Errorf("got %v", err)
	}
}

// What an operation fails with is what the job says, not that the object is not
// there (G7, A7); nothing is left but what was made, and a retry goes on (G1).
func TestOperationsThatFail(t *testing.T) {
	for _, c := range []struct {
		name, operation, code, message string
		class                          pipeline.Class
	}{
		{"G1 quota", "routers.insert", "QUOTA_EXCEEDED", "Quota 'ROUTERS' exceeded. Limit: 10.0 globally.", pipeline.Quota},
		{"wrong for good", "subnetworks.insert", "INVALID_USAGE", "Requested CIDR range conflicts with another subnetwork.", pipeline.Invalid},
		{"denied", "networks.insert", "PERMISSION_DENIED", "Constraint constraints/compute.skipDefaultNetworkCreation violated.", pipeline.Denied},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
			before := g.world.Snapshot()
			g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: c.operation, Code: c.code, Message: c.message})
			err := g.try(false, g.p.EnsureNetwork)
			if !pipeline.Is(err, c.class) || !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), c.operation) {
				t.Fatalf("got %v", err)
			}
			g.hit()
			g.another()
			g.up()
			if n := len(g.ours()); n != 6 {
				t.Errorf("%d objects carry the mark after the retry: %v", n, g.ours())
			}
			g.down()
			g.equal(before)
		})
	}
}

// A worker that comes after the one that sent a create, and finds the object
// missing, reads why in the operations of the object.
func TestOperationThatFailsAfterACrash(t *testing.T) {
	t.Parallel()
	for range 10 {
		g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
		g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "networks.insert", Code: "QUOTA_EXCEEDED", Message: "Quota 'NETWORKS' exceeded. Limit: 5.0 globally."})
		err := g.p.EnsureNetwork(anything(t.Context()), g.run(pipeline.Apply))
		if pipeline.Is(err, pipeline.Quota) {
			continue // the machine is so busy that the operation had ended before the worker could die
		}
		if err == nil {
			t.Fatal("done at once")
		}
		g.another()
		g.world.Step(time.Minute)
		err = g.try(false, g.p.EnsureNetwork)
		if !pipeline.Is(err, pipeline.Quota) || !strings.Contains(err.Error(), "NETWORKS") {
			t.Fatalf("got %v", err)
		}
		return
	}
	t.Fatal("the operation ended before the first pass did, ten times")
}

// A quota that is used up is named before anything is made, and where it is hit
// all the same, what was made goes again (G1, G2).
func TestQuota(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	before := g.world.Snapshot()
	if !g.world.SetQuota("gcp", "compute", "STATIC_ADDRESSES-per-project-region", "", "", 0) {
		t.Fatal("there is no such quota")
	}
	bad := g.check()
	if len(bad) != 1 || !strings.Contains(bad[0].Message, "STATIC_ADDRESSES") {
		t.Errorf("checks: %+v", bad)
	}
	if err := g.try(false, g.p.EnsureNetwork); !pipeline.Is(err, pipeline.Quota) {
		t.Errorf("got %v", err)
	}
	g.down()
	g.equal(before)
}

// A namesake that is not ours stops the job, and stays as it is (B5).
func TestNamesake(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	name := g.job.ResourceName("", 63)
	g.invoke(testProject, "compute", "networks.insert", map[string]any{"name": name, "autoCreateSubnetworks": false})
	before := g.world.Snapshot()
	err := g.try(false, g.p.EnsureNetwork)
	if f := fatal(err); f == nil || f.Problem.Code != "name-taken" {
		t.Fatalf("got %v", err)
	}
	g.down()
	g.equal(before)
}

// What somebody makes under a name of the job's, after deleting what had it, is
// neither brought into line nor removed: IDs are names here.
func TestNameTakenOverLater(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	before := g.world.Snapshot()
	g.up()
	name := g.job.ResourceName("firewall-deny", 63)
	g.invoke(testProject, "compute", "firewalls.delete", map[string]any{"firewall": name})
	g.world.Step(2 * time.Minute)
	g.invoke(testProject, "compute", "firewalls.insert", map[string]any{"name": name, "network": g.job.Config.InfraConfig.NetworkID,
		"allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"80"}}}, "sourceRanges": []any{"192.0.2.0/24"}})
	g.world.Step(2 * time.Minute)
	g.another()
	since := g.mark()
	for _, err := range []error{g.try(false, g.ups()...), g.try(true, g.downs()...)} {
		if f := fatal(err); f == nil || f.Problem.Code != "not-ours" {
			t.Errorf("the verdict is %v", err)
		}
	}
	if _, changes := g.calls(since); changes["firewalls.delete"]+changes["firewalls.patch"]+changes["firewalls.update"] > 0 {
		t.Errorf("somebody else's rule was touched: %v", changes)
	}
	g.invoke(testProject, "compute", "firewalls.delete", map[string]any{"firewall": name})
	g.world.Step(2 * time.Minute)
	g.another()
	g.down()
	g.equal(before)
}

// What somebody else put into the job's network keeps it, is named, and is not
// touched; once it is gone, the teardown goes on (E7, E17).
func TestForeignObjectsInTheNetwork(t *testing.T) {
	for _, c := range []struct {
		name, operation, remove string
		params, named           map[string]any
		says                    string
	}{
		{"a firewall rule", "firewalls.insert", "firewalls.delete",
			map[string]any{"name": "k8s-fw-abc", "description": "made by a cluster", "allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"80"}}}, "sourceRanges": []any{"10.0.0.0/8"}}, map[string]any{"firewall": "k8s-fw-abc"},
			"firewall rule k8s-fw-abc (made by a cluster)"},
		{"a subnet", "subnetworks.insert", "subnetworks.delete",
			map[string]any{"name": "theirs", "region": "europe-west1", "ipCidrRange": "192.168.7.0/24"}, map[string]any{"region": "europe-west1", "subnetwork": "theirs"},
			"subnet projects/example-project/regions/europe-west1/subnetworks/theirs (192.168.7.0/24)"},
		{"an address", "addresses.insert", "addresses.delete",
			map[string]any{"name": "theirs", "region": testRegion, "addressType": "INTERNAL"}, map[string]any{"region": testRegion, "address": "theirs"},
			"address projects/example-project/regions/us-central1/addresses/theirs"},
		{"a route", "routes.insert", "routes.delete",
			map[string]any{"name": "theirs", "destRange": "172.20.0.0/16", "nextHopGateway": "projects/example-project/global/gateways/default-internet-gateway"}, map[string]any{"route": "theirs"},
			"route theirs (172.20.0.0/16)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
			before := g.world.Snapshot()
			g.up()
			if c.operation == "addresses.insert" {
				c.params["subnetwork"] = g.job.Config.InfraConfig.PrivateSubnetIDs[0]
			} else {
				c.params["network"] = g.job.Config.InfraConfig.NetworkID
			}
			g.invoke(testProject, "compute", c.operation, c.params)
			g.world.Step(2 * time.Minute)
			var blocked *pipeline.BlockedError
			ctx := anything(t.Context())
			for range 60 {
				r := g.run(pipeline.Apply)
				err := g.p.RemoveNetwork(ctx, r)
				if blocked = blockedBy(err); blocked != nil {
					break
				}
				pause(r, pipeline.Judge(err, 0))
			}
			if blocked == nil || !strings.Contains(blocked.By, c.says) {
				t.Fatalf("blocked by %v, want %q\n%s", blocked, c.says, g.books(20))
			}
			since := g.mark()
			g.invoke(testProject, "compute", c.remove, c.named)
			g.world.Step(2 * time.Minute)
			g.down()
			if _, changes := g.calls(since); changes[c.remove] > 0 {
				t.Errorf("the job removed it: %v", changes)
			}
			g.equal(before)
		})
	}
}

// A zone with a record that somebody made is not deleted: the record is named (L5).
func TestZoneWithForeignRecords(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none"},"dnsZones":[{"name":"shop.example.com","visibility":"public"}]}`)
	g.up()
	zone := base(g.job.Config.InfraConfig.DNSZones[0].ID)
	g.invoke(testProject, "dns", "changes.create", map[string]any{"managedZone": zone, "additions": []any{
		map[string]any{"name": "made-by-hand.shop.example.com.", "type": "TXT", "ttl": 300, "rrdatas": []any{`"hello"`}},
	}})
	g.world.Step(time.Minute)
	err := g.p.RemoveDNSZones(anything(t.Context()), g.run(pipeline.Apply))
	if b := blockedBy(err); b == nil || !strings.Contains(b.By, "TXT made-by-hand.shop.example.com.") {
		t.Errorf("got %v", err)
	}
	if !g.exists("projects/" + testProject + "/managedZones/" + zone) {
		t.Error("the zone is gone")
	}
}

// The other half of a peering that is not ours to make: the job waits, says who
// has to do what, and goes on once it is done.
func TestPeeringWithSomebodyElses(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none"},"peerings":[{"networkId":"projects/other-project/global/networks/hub"}]}`)
	g.hub("other-project", "10.200.0.0/16")
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "networks.*", Account: "other-project", Code: "forbidden", Status: 403, Count: -1,
		Message: "Required 'compute.networks.get' permission for 'projects/other-project/global/networks/hub'"})
	before := g.world.Snapshot()
	if err := g.try(false, g.p.EnsureNetwork); err != nil {
		t.Fatal(err)
	}
	var wait string
	for range 60 {
		r := g.run(pipeline.Apply)
		d := pipeline.Judge(g.p.EnsurePeerings(anything(t.Context()), r), 0)
		if d.Action == pipeline.Stop {
			t.Fatalf("stopped: %+v", d)
		}
		if wait = d.For; strings.Contains(wait, "owner of project") {
			break
		}
		pause(r, d)
	}
	if !strings.Contains(wait, "owner of project other-project") || !strings.Contains(wait, "gcloud compute networks peerings create") {
		t.Fatalf("waits for %q", wait)
	}
	if p := g.job.Config.InfraConfig.Peerings; len(p) != 1 || p[0].State != "INACTIVE" || p[0].Waiting == "" {
		t.Errorf("peerings: %+v", p)
	}
	ours := g.job.Config.InfraConfig.NetworkID
	g.invoke("other-project", "compute", "networks.addPeering", map[string]any{"network": "hub", "name": "to-shop",
		"networkPeering": map[string]any{"name": "to-shop", "network": ours, "exchangeSubnetRoutes": true}})
	if err := g.try(false, g.p.EnsurePeerings); err != nil {
		t.Fatal(err)
	}
	if p := g.job.Config.InfraConfig.Peerings; p[0].State != "ACTIVE" || p[0].Waiting != "" {
		t.Errorf("peerings: %+v", p)
	}
	g.invoke("other-project", "compute", "networks.removePeering", map[string]any{"network": "hub", "name": "to-shop"})
	g.down()
	g.equal(before)
}

// Rights that are missing in the job's own project are not waited for: nobody else
// has to do anything there.
func TestPeeringWithoutRights(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none"},"peerings":[{"networkId":"hub"}]}`)
	g.hub(testProject, "10.200.0.0/16")
	if err := g.try(false, g.p.EnsureNetwork); err != nil {
		t.Fatal(err)
	}
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "networks.addPeering", After: 1, Code: "forbidden", Status: 403, Count: -1,
		Message: "Required 'compute.networks.addPeering' permission for 'projects/example-project/global/networks/hub'"})
	var fatal *pipeline.FatalError
	if err := g.try(false, g.p.EnsurePeerings); !errors.As(err, &fatal) || fatal.Problem.Code != "permission-denied" {
		t.Errorf("the verdict is %v", err)
	}
	if !made(g.run(pipeline.Apply), kindPeering, "peering-1") {
		t.Error("the job's own half was not made")
	}
}

// A cancel in the middle of a create leaves everything recorded or absent (S1, S2).
func TestCancelledCreate(t *testing.T) {
	for n := range 12 { // the gate is asked twice a call
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
			before := g.world.Snapshot()
			g.cancelledAt(n)
			g.another()
			g.down()
			g.equal(before)
		})
	}
}

// cancelledAt makes the network with a context that ends at the n-th create.
func (g *rig) cancelledAt(n int) {
	g.Helper()
	ctx, cancel := context.WithCancel(g.Context())
	defer cancel()
	ctx = pipeline.WithGate(ctx, func(_ context.Context, c pipeline.Call) error {
		if c.Mutating {
			if n--; n < 0 {
				cancel()
			}
		}
		return nil
	})
	for range 500 {
		r := g.run(pipeline.Apply)
		err := g.p.EnsureNetwork(ctx, r)
		if ctx.Err() != nil {
			return
		}
		d := pipeline.Judge(err, 0)
		if d.Action == pipeline.Advance || d.Action == pipeline.Stop {
			g.Fatalf("not cancelled: %v", err)
		}
		pause(r, d)
	}
}
