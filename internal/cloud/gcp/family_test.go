package gcp

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// fullSpec has everything that a network job can ask for.
const fullSpec = `{"network":{"subnets":["public","private","database"],"secondaryRanges":[{"name":"pods"}],"privateServices":{}},
	"peerings":[{"networkId":"hub"}],
	"dnsZones":[{"name":"shop.example.com","visibility":"public"},{"name":"shop.internal"}]}`

// hub is somebody else's network, with a subnet.
func (g *rig) hub(project, cidr string) {
	g.Helper()
	g.invoke(project, "compute", "networks.insert", map[string]any{"name": "hub", "autoCreateSubnetworks": false})
	g.invoke(project, "compute", "subnetworks.insert", map[string]any{
		"region": testRegion, "name": "hub-a", "network": "projects/" + project + "/global/networks/hub", "ipCidrRange": cidr,
	})
	g.world.Step(2 * time.Minute) // it has been there for a while
}

func newFullRig(t testing.TB) *rig {
	t.Helper()
	g := newRig(t, sim.Options{}, job.ModeCreate, fullSpec)
	g.hub(testProject, "10.40.0.0/16")
	if bad := g.check(); len(bad) > 0 {
		t.Fatalf("checks: %+v", bad)
	}
	return g
}

func TestEverythingThatANetworkJobCanAskFor(t *testing.T) {
	t.Parallel()
	g := newFullRig(t)
	before := g.world.Snapshot()
	since := g.mark()
	g.up()
	_, changes := g.calls(since)
	want := map[string]int{
		"networks.insert": 1, "addresses.insert": 1, "subnetworks.insert": 3, "firewalls.insert": 1, "routers.insert": 1,
		"globalAddresses.insert": 1, "services.connections.patch": 1, "networks.addPeering": 2, "managedZones.create": 2,
	}
	if d := cmp.Diff(want, changes); d != "" {
		t.Errorf("more or less was changed than needed:\n%s", d)
	}
	ic := g.job.Config.InfraConfig
	if len(ic.Peerings) != 1 || ic.Peerings[0].State != "ACTIVE" || len(ic.Peerings[0].CIDRs) != 1 || ic.Peerings[0].Waiting != "" {
		t.Errorf("peerings: %+v", ic.Peerings)
	}
	if len(ic.DNSZones) != 2 || len(ic.DNSZones[0].NameServers) == 0 || !strings.HasPrefix(ic.DNSZones[0].Delegation, "not delegated: add NS records") || ic.DNSZones[1].Delegation != "" {
		t.Errorf("zones: %+v", ic.DNSZones)
	}
	if strings.HasPrefix(ic.NetworkCIDR, "10.40.") || ic.NetworkPlan.PrivateServices == "" {
		t.Errorf("the plan does not keep clear of the peer: %+v", ic.NetworkPlan)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	report, err := g.p.Controls(t.Context(), g.run(pipeline.Apply))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"NETG-01", "NETG-03", "NETG-05", "NETG-09", "NETG-13", "NETG-18", "NETG-19"} {
		i := slices.IndexFunc(report, func(c job.Control) bool { return c.ID == id })
		if i < 0 || !report[i].Met {
			t.Errorf("%s is not met: %+v", id, report)
		}
	}
	since = g.mark()
	g.another()
	g.up()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("a second run changed %v", changes)
	}
	if bad := g.check(); len(bad) > 0 {
		t.Errorf("checks of what is there: %+v", bad)
	}
	g.down()
	g.equal(before)
}

// What the parent zone says is information: it never fails the job.
// Of the zones of another endpoint the internet's DNS is not even asked.
func TestDelegationElsewhere(t *testing.T) {
	t.Parallel()
	p, err := newProvider(Config{Project: testProject, Endpoint: "http://127.0.0.1:1"}, Options{}, newLimits(1), ambientAccount, testRegion)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.delegation(t.Context(), "shop.example.com", []string{"ns-cloud-a1.googledomains.com."}); !strings.HasPrefix(got, "not checked: the endpoint is not Google Cloud's own") {
		t.Errorf("it says %q", got)
	}
}

func TestDelegation(t *testing.T) {
	t.Parallel()
	ours := []string{"ns-cloud-a1.googledomains.com.", "ns-cloud-a2.googledomains.com."}
	for _, c := range []struct {
		name  string
		found []string
		err   error
		want  string
	}{
		{"delegated", []string{"NS-cloud-a2.googledomains.com", "ns-cloud-a1.googledomains.com."}, nil, "delegated"},
		{"to others", []string{"ns1.example.net."}, nil, "not delegated: the parent zone names ns1.example.net"},
		{"not at all", nil, nil, "not delegated: add NS records for shop.example.com"},
		{"no answer", nil, context.DeadlineExceeded, "not checked: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := &Provider{lookupNS: func(context.Context, string) ([]string, error) { return c.found, c.err }}
			if got := p.delegation(t.Context(), "shop.example.com", ours); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q…", got, c.want)
			}
		})
	}
}
