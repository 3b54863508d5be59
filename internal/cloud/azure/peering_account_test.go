package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// hubAccount holds the hub, in a subscription of its own.
func hubAccount(org string) cloud.Account {
	a := principalAccount(org)
	a.ID, a.Name, a.Settings.ClientID, a.Settings.Subscription = "ca_hub", "hub", watcherApp, simazure.OtherSubscription
	return a
}

// peered is a network job that peers with a hub in another account.
func peered(t testing.TB, accounts ...cloud.Account) *rig {
	t.Helper()
	g := newRig(t, sim.Options{}, job.Network, job.ModeCreate, `{"network":{"subnets":["private"]},"peerings":[{"networkId":"hub","cloudAccountId":"ca_hub"}]}`)
	both := []string{simazure.DefaultSubscription, simazure.OtherSubscription} // whoever makes a side needs the right to peer with the other
	g.cloud.SetClient(simazure.Client{ID: shopApp, Secret: shopSecret, ObjectID: "0b1ec700-0000-4000-8000-0000000000d1", Subscriptions: both})
	g.cloud.SetClient(simazure.Client{ID: watcherApp, Secret: shopSecret, ObjectID: "0b1ec700-0000-4000-8000-0000000000d2", Subscriptions: both})
	b := &book{rows: accounts}
	g.clouds.opts.Accounts, g.job.CloudAccountID = b, "ca_shop"
	const hub = "/subscriptions/" + simazure.OtherSubscription + "/resourceGroups/hub"
	for _, x := range []struct {
		id   string
		body map[string]any
	}{{hub, map[string]any{"location": "eastus2"}}, {hub + "/providers/" + typeVNet + "/hub", map[string]any{"location": "eastus2",
		"properties": map[string]any{"addressSpace": map[string]any{"addressPrefixes": []any{"10.90.0.0/16"}}}}}} {
		if _, err := g.world.Invoke("azure", serviceOf(x.id), "PUT", simazure.OtherSubscription, "", map[string]any{"id": x.id, "body": x.body}); err != nil {
			t.Fatalf("%s: %v", x.id, err)
		}
	}
	g.world.Step(5 * time.Minute)
	if err := g.reopened(); err != nil {
		t.Fatal(err)
	}
	return g
}

// The other side of a peering is made, read and removed by the account that the
// peering names.
func TestPeeringWithAnotherAccount(t *testing.T) {
	t.Parallel()
	g := peered(t, principalAccount("org_1"), hubAccount("org_1"))
	g.up()
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	g.controlsMet()
	g.down()
	by := map[string]int{}
	for _, e := range g.world.Books(sim.BookFilter{Operation: "VirtualNetworkPeerings_*", Limit: 100000}) {
		for _, id := range e.Resources {
			if strings.Contains(id, "/virtualNetworkPeerings/") {
				of := map[string]string{simazure.DefaultSubscription: shopApp, simazure.OtherSubscription: watcherApp}[segment(id, "subscriptions")]
				if e.Caller != of {
					t.Errorf("%s of %s by %s", e.Operation, id, e.Caller)
				}
				by[e.Caller]++
				break
			}
		}
	}
	if by[shopApp] == 0 || by[watcherApp] == 0 {
		t.Errorf("called by %v", by)
	}
}

// An account of another organisation holds nothing that this one could peer with.
func TestPeeringWithAnotherOrganisation(t *testing.T) {
	t.Parallel()
	g := peered(t, principalAccount("org_1"), hubAccount("org_2"))
	err := g.try(false, g.steps(false)...)
	if f := fatal(err); f == nil || !strings.Contains(err.Error(), `no cloud account "ca_hub"`) {
		t.Errorf("it ends with %v", err)
	}
	for _, e := range g.world.Books(sim.BookFilter{Caller: watcherApp}) {
		t.Errorf("%s was sent with another organisation's credentials", e.Operation)
	}
	if _, changes := g.calls(0); sum(changes) > 0 {
		t.Errorf("it changed %v", changes)
	}
	g.down()
}
