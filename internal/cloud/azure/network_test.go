package azure

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const fullSpec = `{"network":{"subnets":["public","private","database"]},"dnsZones":[{"name":"shop.internal"},{"name":"shop.example.com","visibility":"public"}]}`

func TestNetwork(t *testing.T) {
	t.Parallel()
	g := network(t, fullSpec)
	before := g.world.Snapshot()
	g.up()
	reads, changes := g.calls(0)
	want := map[string]int{
		"ResourceGroups_CreateOrUpdate": 1, "VirtualNetworks_CreateOrUpdate": 1, "Subnets_CreateOrUpdate": 3, "NetworkSecurityGroups_CreateOrUpdate": 3,
		"PublicIPAddresses_CreateOrUpdate": 1, "NatGateways_CreateOrUpdate": 1,
		"PrivateZones_CreateOrUpdate": 1, "VirtualNetworkLinks_CreateOrUpdate": 1, "Zones_CreateOrUpdate": 1,
	}
	if d := cmp.Diff(want, changes); d != "" {
		t.Errorf("more or less was changed than needed:\n%s", d)
	}
	t.Logf("create: %d changes, %d reads %v", sum(changes), sum(reads), reads)
	ic := g.job.Config.InfraConfig
	if len(ic.Subnets) != 3 || len(ic.PrivateSubnetIDs) != 1 || len(ic.DatabaseSubnetIDs) != 1 || len(ic.EgressIPs) != 1 || len(ic.NATGatewayIDs) != 1 || ic.NetworkCIDR == "" || ic.ResourceGroup == "" {
		t.Errorf("what was learned: %+v", ic)
	}
	if len(ic.DNSZones) != 2 || ic.DNSZones[1].Delegation == "" || len(ic.DNSZones[1].NameServers) == 0 {
		t.Errorf("zones: %+v", ic.DNSZones)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	g.controlsMet()

	// Another worker, from the start: nothing is changed, and little is read.
	since := g.mark()
	g.another()
	g.up()
	reads, changes = g.calls(since)
	if sum(changes) > 0 {
		t.Errorf("a second run changed %v", changes)
	}
	t.Logf("again: %d reads %v", sum(reads), reads)
	if n := sum(reads); n > 40 {
		t.Errorf("a second run read %d times: %v", n, reads)
	}
	g.down()
	g.equal(before)
}

// controlsMet reads the hardening controls back.
func (g *rig) controlsMet() {
	g.Helper()
	rows, err := g.p.Controls(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
	if err != nil {
		g.Fatal(err)
	}
	if len(rows) == 0 {
		g.Error("no controls")
	}
	for _, c := range rows {
		if !c.Met && c.ID != "NETZ-13" { // the simulation's region has no watcher unless one was made
			g.Errorf("%s %s: wanted %s, seen %s", c.ID, c.Name, c.Wanted, c.Seen)
		}
	}
}

func TestDriftIsReportedAndNotRewritten(t *testing.T) {
	t.Parallel()
	g := network(t, `{}`)
	g.up()
	subnet := g.job.Config.InfraConfig.PrivateSubnetIDs[0]
	group := g.p.securityGroupNamed(g.run(pipeline.Verify), "nsg-private").id
	for _, c := range []struct {
		attr string
		do   func()
	}{
		{"default outbound access", func() {
			plan, _ := planned(g.run(pipeline.Verify))
			g.put(subnet, map[string]any{"properties": map[string]any{
				"addressPrefix": plan.Tier(job.TierPrivate)[0].CIDR, "defaultOutboundAccess": true,
				"networkSecurityGroup": map[string]any{"id": group}, "natGateway": map[string]any{"id": g.job.Config.InfraConfig.NATGatewayIDs[0]},
			}})
		}},
		{"other rules", func() {
			g.put(group+"/securityRules/open", map[string]any{"properties": map[string]any{"priority": 200, "access": "Allow", "direction": "Inbound", "protocol": "Tcp",
				"sourceAddressPrefix": "Internet", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "22"}})
		}},
	} {
		c.do()
		since := g.mark()
		drift := g.drift()
		if !slices.ContainsFunc(drift, func(d pipeline.Drift) bool { return d.Attr == c.attr }) {
			t.Errorf("%s is not among %v", c.attr, drift)
		}
		if _, changes := g.calls(since); sum(changes) > 0 {
			t.Errorf("a verify changed %v", changes)
		}
	}
	// A run puts right what is the job's, and leaves what somebody added.
	g.another()
	g.up()
	if d := g.drift(); len(d) != 1 || d[0].Attr != "other rules" {
		t.Errorf("after a run: %v", d)
	}
}

func TestPeering(t *testing.T) {
	t.Parallel()
	g := network(t, `{"peerings":[{"networkId":"hub","resourceGroup":"theirs"}]}`)
	hub := g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24")
	before := g.world.Snapshot()
	g.up()
	infos := g.job.Config.InfraConfig.Peerings
	if len(infos) != 1 || infos[0].State != "Connected" || !same(infos[0].NetworkID, hub) || !slices.Contains(infos[0].CIDRs, "10.90.0.0/16") {
		t.Errorf("peerings: %+v", infos)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	g.controlsMet()
	since := g.mark()
	g.another()
	g.up()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("a second run changed %v", changes)
	}
	g.down()
	g.equal(before)
}

// A peer in a subscription that is not there stops the job before anything is
// made, and does not keep it from being torn down.
func TestPeerOutOfReach(t *testing.T) {
	t.Parallel()
	g := network(t, `{"peerings":[{"networkId":"/subscriptions/5c0b1f4e-0000-4000-8000-00000000dead/resourceGroups/hub/providers/`+typeVNet+`/hub"}]}`)
	before := g.world.Snapshot()
	if err := g.try(false, g.steps(false)...); err == nil {
		t.Error("it was made")
	}
	g.another()
	g.down()
	g.equal(before)
}

// A name that two networks have says nothing, and does not keep the job from
// being torn down either: not before anything is made, nor when the second one
// comes up later.
func TestPeerByANameOfTwo(t *testing.T) {
	t.Parallel()
	namesake := func(g *rig) {
		group := strings.TrimSuffix(theirs, "theirs") + "others"
		g.put(group, map[string]any{"location": "eastus2"})
		g.put(group+"/providers/"+typeVNet+"/hub", map[string]any{"location": "eastus2", "properties": map[string]any{"addressSpace": map[string]any{"addressPrefixes": []any{"10.91.0.0/16"}}}})
	}
	t.Run("from the start", func(t *testing.T) {
		t.Parallel()
		g := network(t, `{"peerings":[{"networkId":"hub"}]}`)
		g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24")
		namesake(g)
		before := g.world.Snapshot()
		if err := g.try(false, g.steps(false)...); err == nil {
			t.Error("it was made")
		}
		g.another()
		g.down()
		g.equal(before)
	})
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		g := network(t, `{"peerings":[{"networkId":"hub"}]}`)
		g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24")
		g.up()
		namesake(g)
		g.another()
		g.down()
		if left := g.world.Residue(g.job.ID); len(left) > 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

func TestInSomebodyElsesNetwork(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.Network, job.ModeCreateInExisting, `{"existing":{"networkId":"`+theirs+"/providers/"+typeVNet+`/shared"},"network":{"subnets":["private","database"]}}`)
	vnet := g.theirVNet("shared", "10.80.0.0/16", "10.80.0.0/24")
	before := g.world.Snapshot()
	g.up()
	_, changes := g.calls(0)
	if changes["VirtualNetworks_CreateOrUpdate"] > 0 {
		t.Errorf("the named network was written: %v", changes)
	}
	ic := g.job.Config.InfraConfig
	if !same(ic.NetworkID, vnet) || len(ic.Subnets) != 2 || !strings.HasPrefix(ic.Subnets[0].CIDR, "10.80.") {
		t.Errorf("what was learned: %+v", ic)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	since := g.mark()
	g.another()
	g.up()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("a second run changed %v", changes)
	}
	g.down()
	g.equal(before)
}

func TestNamedResourceGroupStays(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.Network, job.ModeCreateInExisting, `{"existing":{"networkId":"shared","resourceGroup":"theirs"},"network":{"subnets":["private"]}}`)
	g.theirVNet("shared", "10.80.0.0/16", "10.80.0.0/24")
	before := g.world.Snapshot()
	g.up()
	_, changes := g.calls(0)
	if changes["ResourceGroups_CreateOrUpdate"] > 0 {
		t.Errorf("a group was written: %v", changes)
	}
	g.down()
	g.equal(before)
}

func TestAdoptedNetwork(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.Network, job.ModeAdopt, `{"adopt":{"ids":["legacy"]}}`)
	vnet := g.theirVNet("legacy", "10.70.0.0/16", "10.70.0.0/24")
	before := g.world.Snapshot()
	if err := g.try(false, g.check, g.p.AdoptNetwork); err != nil {
		t.Fatal(err)
	}
	ic := g.job.Config.InfraConfig
	if !same(ic.NetworkID, vnet) || len(ic.Subnets) != 1 || ic.NetworkCIDR != "10.70.0.0/16" {
		t.Errorf("what was learned: %+v", ic)
	}
	if !slices.ContainsFunc(ic.Warnings, func(w string) bool { return strings.HasPrefix(w, "NETZ-01") }) {
		t.Errorf("warnings: %v", ic.Warnings)
	}
	if _, changes := g.calls(0); sum(changes) > 0 {
		t.Errorf("an adoption changed %v", changes)
	}
	g.equal(before)
}

// The internet's DNS is asked of the zones of Azure's own clouds alone.
func TestOwnClouds(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]bool{"": true, "https://management.azure.com/": true, "https://127.0.0.1:5093": false} {
		if got := (Config{Cloud: cloudAt(endpoint, "", "")}).own(); got != want {
			t.Errorf("%q: %v", endpoint, got)
		}
	}
	if _, err := nobodyKnows(t.Context(), "shop.example.com"); err == nil || !strings.Contains(err.Error(), "not Azure's own") {
		t.Errorf("it says %v", err)
	}
}

func TestDelegation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		found      []*net.NS
		err        error
	}{
		{"delegated", "delegated", []*net.NS{{Host: "NS1-01.azure-dns.com."}}, nil},
		{"to somebody else", "not delegated: have", []*net.NS{{Host: "ns1.example.net."}}, nil},
		{"nowhere", "not delegated: have", nil, &net.DNSError{IsNotFound: true}},
		{"no answer", "not checked: ", nil, &net.DNSError{Err: "i/o timeout", IsTimeout: true}},
	} {
		p := &Provider{lookupNS: func(context.Context, string) ([]*net.NS, error) { return c.found, c.err }}
		if got := p.delegation(t.Context(), "shop.example.com", []string{"ns1-01.azure-dns.com", "ns2-01.azure-dns.net"}); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
