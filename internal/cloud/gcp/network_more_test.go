package gcp

import (
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// A plan lists what would be made, step by step, and asks nothing of it.
func TestPlan(t *testing.T) {
	t.Parallel()
	g := newFullRig(t)
	since := g.mark()
	r := g.run(pipeline.Plan)
	for _, f := range g.ups() {
		if err := f(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	reads, changes := g.calls(since)
	if sum(reads)+sum(changes) > 0 {
		t.Errorf("a plan asked %v and changed %v", reads, changes)
	}
	kinds := map[string]int{}
	for _, x := range r.Planned() {
		kinds[x.Kind]++
		if len(x.Name) > 63 || x.Name == "" {
			t.Errorf("name %q", x.Name)
		}
	}
	for kind, n := range map[string]int{kindNetwork: 1, kindSubnet: 3, kindRouter: 1, kindAddress: 1, kindFirewall: 1, kindGlobalAddress: 1, kindConnection: 1, kindPeering: 2, kindZone: 2} {
		if kinds[kind] != n {
			t.Errorf("%d of %s are planned, want %d", kinds[kind], kind, n)
		}
	}
}

// Managed services hold the connection for a while after the last one is gone:
// the teardown goes on asking, and says what it waits for (E16).
func TestServicesThatLinger(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none","privateServices":{}}}`)
	before := g.world.Snapshot()
	g.up()
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "services.connections.deleteConnection", Code: "FAILED_PRECONDITION", Count: 4,
		Message: "Failed to delete connection; Producer services (e.g. CloudSQL, Cloud Memstore, etc.) are still using this connection."})
	var said string
	ctx := anything(t.Context())
	for range 100 {
		r := g.run(pipeline.Apply)
		err := g.p.RemoveNetwork(ctx, r)
		if b := blockedBy(err); b != nil {
			said = b.By
			break
		}
		pause(r, pipeline.Judge(err, 0))
	}
	if !strings.Contains(said, "managed services of this network") {
		t.Errorf("said %q\n%s", said, g.books(20))
	}
	g.down()
	g.hit()
	g.equal(before)
}

// Somebody else's change of the connection is told.
func TestConnectionThatIsNotOursAnyMore(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none","privateServices":{}}}`)
	g.up()
	ic := g.job.Config.InfraConfig
	g.invoke(testProject, "compute", "globalAddresses.insert", map[string]any{"name": "theirs", "network": ic.NetworkID, "purpose": "VPC_PEERING", "addressType": "INTERNAL", "prefixLength": 20})
	g.invoke(testProject, "servicenetworking", "services.connections.patch", map[string]any{"name": "services/servicenetworking.googleapis.com/connections/-", "force": true,
		"network": strings.Replace(ic.NetworkID, testProject, "123456789012", 1), "reservedPeeringRanges": []any{"theirs"}})
	g.world.Step(2 * time.Minute)
	if d := g.drift(); len(d) != 1 || d[0].Attr != "owner" {
		t.Errorf("drift: %v", d)
	}
}

// The network of a VM job has a public and a private subnet, and a way out for both.
func TestNetworkOfVMs(t *testing.T) {
	t.Parallel()
	g := newRigFor(t, sim.Options{}, job.VM, job.ModeCreate, `{"pool":{"count":2}}`)
	before := g.world.Snapshot()
	if err := g.try(false, g.p.EnsureNetwork); err != nil {
		t.Fatal(err)
	}
	ic := g.job.Config.InfraConfig
	if ic.NetworkCIDR != "10.40.0.0/16" || len(ic.PrivateSubnetIDs) != 1 || len(ic.PublicSubnetIDs) != 1 || len(ic.EgressIPs) != 1 {
		t.Errorf("what was learned: %+v", ic)
	}
	if err := g.try(true, g.p.RemoveNetwork); err != nil {
		t.Fatal(err)
	}
	g.equal(before)
}

// A VM job in a network that somebody has reads it, and touches nothing.
func TestVMsInAnExistingNetwork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, subnet, says string
	}{
		{"by name", "hub-a", ""},
		{"by URL", "https://www.googleapis.com/compute/v1/projects/example-project/regions/us-central1/subnetworks/hub-a", ""},
		{"not there", "hub-b", "subnet hub-b is not in network hub"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRigFor(t, sim.Options{}, job.VM, job.ModeCreateInExisting, `{"pool":{"count":2},"existing":{"networkId":"hub","subnetIds":["`+c.subnet+`"]}}`)
			g.hub(testProject, "10.40.0.0/16")
			g.invoke(testProject, "compute", "routers.insert", map[string]any{"region": testRegion, "name": "theirs", "network": "projects/example-project/global/networks/hub",
				"nats": []any{map[string]any{"name": "all", "natIpAllocateOption": "AUTO_ONLY", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}}})
			g.world.Step(2 * time.Minute)
			before, since := g.world.Snapshot(), g.mark()
			err := g.try(false, g.p.EnsureNetwork)
			if c.says != "" {
				if f := fatal(err); f == nil || !strings.Contains(f.Problem.Message, c.says) || f.Problem.Field != "config.spec.existing" {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if ids := g.job.Config.InfraConfig.PrivateSubnetIDs; len(ids) != 1 || ids[0] != "projects/example-project/regions/us-central1/subnetworks/hub-a" {
				t.Errorf("learned %v", ids)
			}
			if ips := g.job.Config.InfraConfig.EgressIPs; len(ips) == 0 {
				t.Error("the addresses of the NAT were not learned")
			}
			if err := g.try(true, g.p.RemoveNetwork); err != nil {
				t.Fatal(err)
			}
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("changed %v", changes)
			}
			g.equal(before)
		})
	}
}

// VMs in a network of another project are refused before anything is made.
func TestVMsInANetworkOfAnotherProject(t *testing.T) {
	t.Parallel()
	g := newRigFor(t, sim.Options{}, job.VM, job.ModeCreateInExisting, `{"pool":{"count":1},"existing":{"networkId":"projects/other-project/global/networks/hub","subnetIds":["hub-a"]}}`)
	g.hub("other-project", "10.40.0.0/16")
	g.refuses("config.spec.existing.networkId", "is in project other-project, and the job is in example-project")
}

// An API that was never enabled is named, with the command that enables it; one
// that was enabled a moment ago is waited for.
func TestAPIThatIsOff(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	g.invoke(testProject, "serviceusage", "services.disable", map[string]any{"name": "projects/example-project/services/compute.googleapis.com"})
	g.world.Step(time.Minute)
	_, err := g.p.Caller(t.Context())
	if f := fatal(err); f == nil || f.Problem.Code != "api-disabled" || !strings.Contains(f.Problem.Hint, "gcloud services enable compute.googleapis.com") {
		t.Errorf("got %v", err)
	}
}

// A project without Cloud DNS holds no zones: the scan passes over them.
func TestScanWithoutDNS(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none"}}`)
	g.up()
	g.invoke(testProject, "serviceusage", "services.disable", map[string]any{"name": "projects/example-project/services/dns.googleapis.com"})
	g.world.Step(time.Minute)
	left, _, err := g.p.Scan(t.Context(), g.job.ID)
	if err != nil || len(left) != 4 {
		t.Errorf("found %v, %v", left, err)
	}
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "routers.list", Code: "forbidden", Status: 403, Message: "Required 'compute.routers.list' permission for 'projects/example-project'"})
	left, unlisted, err := g.p.Scan(t.Context(), g.job.ID)
	if err != nil || len(left) != 4 || len(unlisted) != 1 || unlisted[0].Kind != kindRouter || unlisted[0].Permission != "compute.routers.list" {
		t.Errorf("what could not be looked at is taken for gone: %v, %v, %v", left, unlisted, err)
	}
}

// A tier that is added after the network was made goes into the same range; what
// is there stays as it is.
func TestTierIsAdded(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none","secondaryRanges":[{"name":"pods"}]}}`)
	g.check()
	g.up()
	before := *g.job.Config.InfraConfig.NetworkPlan
	g.invoke(testProject, "compute", "networks.insert", map[string]any{"name": "late", "autoCreateSubnetworks": false})
	g.invoke(testProject, "compute", "subnetworks.insert", map[string]any{"region": testRegion, "name": "late", "network": "projects/example-project/global/networks/late", "ipCidrRange": before.CIDR})
	g.world.Step(2 * time.Minute)
	g.job.Config.Spec = []byte(`{"network":{"nat":"none","subnets":["public","private","database"],"secondaryRanges":[{"name":"pods"}]}}`)
	g.another()
	if bad := g.check(); len(bad) > 0 {
		t.Errorf("checks: %+v", bad)
	}
	since := g.mark()
	g.up()
	if _, changes := g.calls(since); changes["subnetworks.insert"] != 1 || sum(changes) != 1 {
		t.Errorf("changed %v", changes)
	}
	after := g.job.Config.InfraConfig.NetworkPlan
	if after.CIDR != before.CIDR || after.SecondaryRanges[0] != before.SecondaryRanges[0] || len(after.Subnets) != 3 {
		t.Errorf("the plan was %+v and is %+v", before, after)
	}
}

// A range that something else uses already can be built and never be peered with
// it: a warning, as at the other clouds.
func TestRangeInUseIsAWarning(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"cidr":"10.40.0.0/16"}}`)
	g.invoke(testProject, "compute", "networks.insert", map[string]any{"name": "theirs", "autoCreateSubnetworks": false})
	g.world.Step(2 * time.Minute)
	g.invoke(testProject, "compute", "subnetworks.insert", map[string]any{"name": "theirs", "region": testRegion, "network": "global/networks/theirs", "ipCidrRange": "10.40.0.0/20"})
	g.world.Step(2 * time.Minute)
	for _, c := range g.check() {
		if c.Name == "address plan" {
			if c.Status != cloud.CheckWarning || !strings.Contains(c.Message, "never be peered") {
				t.Errorf("got %+v", c)
			}
			return
		}
	}
	t.Error("the address plan was not checked")
}
