package gcp

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// Each attribute that somebody changed is told by a verify, which changes
// nothing; the next run of the job sets it right, and nothing else.
func TestDrift(t *testing.T) {
	name := func(g *rig, use string) string { return g.job.ResourceName(use, 63) }
	subnet := func(change map[string]any) func(*rig) map[string]any {
		return func(g *rig) map[string]any {
			x := map[string]any{"region": testRegion, "subnetwork": name(g, "private")}
			maps.Copy(x, change)
			return x
		}
	}
	firewall := func(change map[string]any) func(*rig) map[string]any {
		return func(g *rig) map[string]any {
			x := map[string]any{"firewall": name(g, "firewall-deny")}
			maps.Copy(x, change)
			return x
		}
	}
	type change struct {
		name, operation string
		params          func(g *rig) map[string]any
		want            []pipeline.Drift
		fixed           string // the call that sets it right
	}
	for _, c := range []change{
		{"routing mode", "networks.patch", func(g *rig) map[string]any {
			return map[string]any{"network": name(g, ""), "routingConfig": map[string]any{"routingMode": "GLOBAL"}}
		}, []pipeline.Drift{{Kind: kindNetwork, Key: "network", Attr: "routing mode", Wanted: "REGIONAL", Seen: "GLOBAL"}}, "networks.patch"},
		{"private access", "subnetworks.setPrivateIpGoogleAccess", subnet(map[string]any{"privateIpGoogleAccess": false}),
			[]pipeline.Drift{{Kind: kindSubnet, Key: "private", Attr: "private Google access", Wanted: "true", Seen: "false"}}, "subnetworks.setPrivateIpGoogleAccess"},
		{"flow logs", "subnetworks.patch", subnet(map[string]any{"logConfig": map[string]any{"enable": false}}),
			[]pipeline.Drift{{Kind: kindSubnet, Key: "private", Attr: "flow logs", Wanted: "0.1 of flows, INTERVAL_15_MIN, EXCLUDE_ALL_METADATA", Seen: "off"}}, "subnetworks.patch"},
		{"the deny rule is off", "firewalls.patch", firewall(map[string]any{"disabled": true}),
			[]pipeline.Drift{{Kind: kindFirewall, Key: "firewall-deny", Attr: "disabled", Wanted: "false", Seen: "true"}}, "firewalls.patch"},
		{"the deny rule is narrower", "firewalls.patch", firewall(map[string]any{"sourceRanges": []any{"10.0.0.0/8"}}),
			[]pipeline.Drift{{Kind: kindFirewall, Key: "firewall-deny", Attr: "sources", Wanted: "0.0.0.0/0", Seen: "10.0.0.0/8"}}, "firewalls.patch"},
		{"priority", "firewalls.patch", firewall(map[string]any{"priority": 65000}),
			[]pipeline.Drift{{Kind: kindFirewall, Key: "firewall-deny", Attr: "priority", Wanted: "65534", Seen: "65000"}}, "firewalls.patch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
			g.up()
			params := c.params(g)
			if c.operation == "subnetworks.patch" {
				params["fingerprint"] = g.fingerprint("private")
			}
			g.invoke(testProject, "compute", c.operation, params)
			since := g.mark()
			if d := cmp.Diff(c.want, g.drift(), cmpopts.IgnoreFields(pipeline.Drift{}, "ID")); d != "" {
				t.Errorf("drift:\n%s", d)
			}
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("the verify changed %v", changes)
			}
			g.another()
			g.up()
			if _, changes := g.calls(since); changes[c.fixed] != 1 || sum(changes) != 1 {
				t.Errorf("set right by %v", changes)
			}
			if d := g.drift(); len(d) > 0 {
				t.Errorf("still %v", d)
			}
		})
	}
}

// What somebody changed of the NAT is told, and set right in one change that
// leaves another NAT on the router alone.
func TestDriftOfNAT(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	g.up()
	router, err := g.p.routers().get(t.Context(), g.job.Config.InfraConfig.NATGatewayIDs[0])
	if err != nil {
		t.Fatal(err)
	}
	nat := *router.Nats[0]
	g.invoke(testProject, "compute", "routers.patch", map[string]any{"region": testRegion, "router": router.Name, "nats": []any{
		map[string]any{"name": nat.Name, "natIpAllocateOption": "AUTO_ONLY", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
			"logConfig": map[string]any{"enable": false}},
	}})
	var attrs []string
	for _, d := range g.drift() {
		attrs = append(attrs, d.Attr)
	}
	if d := cmp.Diff([]string{"NAT addresses", "NAT log", "NAT ports per VM", "NAT subnets"}, attrs); d != "" {
		t.Errorf("drift:\n%s", d)
	}
	since := g.mark()
	g.another()
	g.up()
	if _, changes := g.calls(since); changes["routers.patch"] != 1 || sum(changes) != 1 {
		t.Errorf("set right by %v", changes)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("still %v", d)
	}
}

// fingerprint is what a change of a subnet has to name.
func (g *rig) fingerprint(use string) string {
	g.Helper()
	x, err := g.p.subnets().get(g.Context(), g.p.regional("subnetworks", g.job.ResourceName(use, 63)))
	if err != nil {
		g.Fatal(err)
	}
	return x.Fingerprint
}

// What is gone is told, and made again by the next run, once.
func TestLostSubnet(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none"}}`)
	g.up()
	g.invoke(testProject, "compute", "subnetworks.delete", map[string]any{"region": testRegion, "subnetwork": g.job.ResourceName("public", 63)})
	g.world.Step(2 * time.Minute)
	if d := g.drift(); len(d) != 1 || d[0].Attr != "exists" || d[0].Key != "public" {
		t.Errorf("drift: %v", d)
	}
	g.another()
	g.up()
	if n := len(g.ours()); n != 4 {
		t.Errorf("%d objects: %v", n, g.ours())
	}
}
