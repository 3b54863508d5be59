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

// A network job in a network that somebody has makes its own subnets and their
// way out, clear of what is there, and touches nothing else, also when it goes.
func TestExtendNetwork(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreateInExisting, `{"existing":{"networkId":"hub"},"network":{"subnets":["private"],"privateServices":{}}}`)
	g.hub(testProject, "10.40.0.0/14")
	before := g.world.Snapshot()
	if bad := g.check(); len(bad) > 0 {
		t.Fatalf("checks: %+v", bad)
	}
	since := g.mark()
	g.up()
	_, changes := g.calls(since)
	if changes["networks.insert"]+changes["networks.patch"]+changes["firewalls.insert"] > 0 || changes["subnetworks.insert"] != 1 || changes["routers.insert"] != 1 {
		t.Errorf("changed %v", changes)
	}
	ic := g.job.Config.InfraConfig
	if !strings.HasSuffix(ic.NetworkID, "/networks/hub") || !strings.HasPrefix(ic.NetworkCIDR, "10.44.") || len(ic.PrivateSubnetIDs) != 1 || len(ic.EgressIPs) != 1 {
		t.Errorf("what was learned: %+v", ic)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift: %v", d)
	}
	if bad := g.check(); len(bad) > 0 {
		t.Errorf("checks of what is there: %+v", bad)
	}
	g.down()
	g.equal(before)
}

// What cannot work in the named network is told before anything is made.
func TestExtendNetworkRefusals(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		place      func(*rig)
		field      string
		says       string
	}{
		{"no such network", `{"existing":{"networkId":"nowhere"}}`, nil, "config.spec.existing.networkId", "network nowhere does not exist"},
		{"a range that is taken", `{"existing":{"networkId":"hub"},"network":{"cidr":"10.40.0.0/20"}}`, nil, "config.spec.network.cidr", "is used by subnet hub-a of network hub"},
		{"a NAT that serves all", `{"existing":{"networkId":"hub"}}`, func(g *rig) {
			g.invoke(testProject, "compute", "routers.insert", map[string]any{"region": testRegion, "name": "theirs", "network": "projects/example-project/global/networks/hub",
				"nats": []any{map[string]any{"name": "all", "natIpAllocateOption": "AUTO_ONLY", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}}})
		}, "config.spec.network.nat", "serves every subnet"},
		{"another project's", `{"existing":{"networkId":"projects/other-project/global/networks/hub"}}`, nil, "config.spec.existing.networkId", "is in project other-project"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, sim.Options{}, job.ModeCreateInExisting, c.spec)
			g.hub(testProject, "10.40.0.0/16")
			if c.place != nil {
				c.place(g)
				g.world.Step(2 * time.Minute)
			}
			g.refuses(c.field, c.says)
		})
	}
}

// refuses proves that the checks fail by a field, with these words, and with
// what to do.
func (g *rig) refuses(field, says string) {
	g.Helper()
	bad := g.check()
	for _, b := range bad {
		if b.Status == cloud.CheckFails && b.Field == field && strings.Contains(b.Message, says) && b.Fix != "" {
			return
		}
	}
	g.Errorf("checks: %+v", bad)
}

func TestCheckRefusals(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		place      func(*rig)
		field      string
		says       string
	}{
		{"overlaps a peer", `{"network":{"cidr":"10.40.0.0/16"},"peerings":[{"networkId":"hub"}]}`, nil, "config.spec.network.cidr", "is used by subnet hub-a of network hub"},
		{"no such peer", `{"peerings":[{"networkId":"nowhere"}]}`, nil, "config.spec.peerings[0].networkId", "does not exist"},
		{"peers that overlap each other", `{"peerings":[{"networkId":"hub"},{"networkId":"projects/other-project/global/networks/hub"}]}`,
			func(g *rig) { g.hub("other-project", "10.40.128.0/20") }, "config.spec.peerings[1].networkId", "two peers of one network cannot have the same addresses"},
		{"an API that is off", `{"dnsZones":[{"name":"shop.internal"}]}`, func(g *rig) {
			g.invoke(testProject, "serviceusage", "services.disable", map[string]any{"name": "projects/example-project/services/dns.googleapis.com"})
		}, "cloudAccountId", "dns.googleapis.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, sim.Options{}, job.ModeCreate, c.spec)
			g.hub(testProject, "10.40.0.0/16")
			if c.place != nil {
				c.place(g)
			}
			g.refuses(c.field, c.says)
		})
	}
}

// An unknown region is refused by name.
func TestUnknownRegion(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	g.p.region = "us-central9"
	g.refuses("region", "us-central9 is not a region")
}

// Adopting reads, notes what is risky, and never changes anything.
func TestAdoptNetwork(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeAdopt, `{"adopt":{"ids":["hub"]}}`)
	g.hub(testProject, "10.40.0.0/16")
	g.invoke(testProject, "compute", "firewalls.insert", map[string]any{"name": "open", "network": "projects/example-project/global/networks/hub",
		"allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"22"}}}, "sourceRanges": []any{"0.0.0.0/0"}})
	g.world.Step(2 * time.Minute)
	if bad := g.check(); len(bad) > 0 {
		t.Fatalf("checks: %+v", bad)
	}
	before, since := g.world.Snapshot(), g.mark()
	ctx := pipeline.WithGate(t.Context(), pipeline.ReadOnly)
	if err := g.p.AdoptNetwork(ctx, g.run(pipeline.Apply)); err != nil {
		t.Fatal(err)
	}
	ic := g.job.Config.InfraConfig
	if !strings.HasSuffix(ic.NetworkID, "/networks/hub") || len(ic.Subnets) != 1 || ic.Subnets[0].CIDR != "10.40.0.0/16" {
		t.Errorf("what was learned: %+v", ic)
	}
	notes := strings.Join(ic.Warnings, "\n")
	for _, want := range []string{"firewall rule open lets in tcp 22 from anywhere", "subnet hub-a has no flow logs", "subnet hub-a has no private Google access", "subnet hub-a has no Cloud NAT"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note says %q:\n%s", want, notes)
		}
	}
	if err := g.p.RemoveNetwork(ctx, g.run(pipeline.Apply)); err != nil {
		t.Error(err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("changed %v", changes)
	}
	g.equal(before)

	g.invoke(testProject, "compute", "subnetworks.insert", map[string]any{"region": testRegion, "name": "new", "network": "projects/example-project/global/networks/hub", "ipCidrRange": "10.60.0.0/24"})
	g.world.Step(2 * time.Minute)
	r := g.run(pipeline.Verify)
	if err := g.p.AdoptNetwork(ctx, r); err != nil {
		t.Fatal(err)
	}
	if d := r.Drift(); len(d) != 1 || d[0].Key != "new" {
		t.Errorf("drift: %v", d)
	}
}

// Credentials that are used in another project now are refused (F5).
func TestAnotherProject(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	g.job.Config.InfraConfig.Account = "other-project"
	g.refuses("cloudAccountId", "the credentials are used in project example-project now, and this job is in other-project")
}
