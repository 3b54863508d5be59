package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/sim"
)

func (g *rig) raw() *replayer {
	return &replayer{g: g, token: g.cloud.sign(g.url, DefaultClients()[0]), urls: map[string]string{}}
}

// code sends a request and answers status and error code.
func (p *replayer) code(method, path string, body doc) (int, string, doc) {
	p.g.t.Helper()
	got := p.send(method, p.g.url+path, body, nil)
	b, _ := asDoc(got.Body)
	if c := b.str("error.code"); c != "" {
		return got.Status, c, b
	}
	return got.Status, b.str("code"), b
}

func TestLocks(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	p := g.raw()
	group := "/subscriptions/" + DefaultSubscription + "/resourceGroups/rg"
	lock := groupPath("rg") + "virtualNetworks/net/providers/Microsoft.Authorization/locks/keep?api-version=2020-05-01"
	if status, code, _ := p.code("PUT", lock, doc{"properties": map[string]any{"level": "CanNotDelete"}}); status != 201 {
		t.Fatalf("%d %s", status, code)
	}
	for _, path := range []string{groupPath("rg") + "virtualNetworks/net?api-version=2025-07-01", groupPath("rg") + "virtualNetworks/net/subnets/a?api-version=2025-07-01", group + "?api-version=2025-04-01"} {
		if status, code, _ := p.code("DELETE", path, nil); status != 409 || code != "ScopeLocked" {
			t.Errorf("DELETE %s: %d %s", path, status, code)
		}
	}
	for scope, want := range map[string]int{group: 1, groupPath("rg") + "virtualNetworks/net": 1, "/subscriptions/" + DefaultSubscription: 1} {
		_, _, b := p.code("GET", scope+"/providers/Microsoft.Authorization/locks?api-version=2020-05-01", nil)
		if len(b.docs("value")) != want {
			t.Errorf("%d locks at %s", len(b.docs("value")), scope)
		}
	}
	if status, code, _ := p.code("PUT", group+"/providers/Microsoft.Authorization/locks/read?api-version=2020-05-01", doc{"properties": map[string]any{"level": "ReadOnly"}}); status != 201 {
		t.Fatalf("%d %s", status, code)
	}
	_, err := g.networks().NewVirtualNetworksClient().UpdateTags(g.ctx, "rg", "net", armnetwork.TagsObject{}, nil)
	refused(t, err, 409, "ScopeLocked")
	for _, l := range []string{lock, group + "/providers/Microsoft.Authorization/locks/read?api-version=2020-05-01"} {
		if status, code, _ := p.code("DELETE", l, nil); status != 200 {
			t.Errorf("DELETE %s: %d %s", l, status, code)
		}
	}
	d, err := g.groups().BeginDelete(g.ctx, "rg", nil)
	done(g, d, err)
}

func TestProviders(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	p := g.raw()
	base := "/subscriptions/" + DefaultSubscription + "/providers/Microsoft.Network"
	const v = "?api-version=2021-04-01"
	if _, _, b := p.code("POST", base+"/unregister"+v, nil); b.str("registrationState") != "Unregistering" {
		t.Errorf("unregistering: %s", text(b))
	}
	g.world.Step(time.Minute)
	net := groupPath("rg") + "virtualNetworks/net?api-version=2025-07-01"
	body := doc{"location": "westus2", "properties": map[string]any{"addressSpace": map[string]any{"addressPrefixes": []any{"10.0.0.0/16"}}}}
	if status, code, _ := p.code("PUT", net, body); status != 409 || code != "MissingSubscriptionRegistration" {
		t.Errorf("%d %s", status, code)
	}
	if _, _, b := p.code("POST", base+"/register"+v, nil); b.str("registrationState") != "Registering" {
		t.Errorf("registering: %s", text(b))
	}
	g.world.Step(time.Minute)
	if _, _, b := p.code("GET", base+v, nil); b.str("registrationState") != "Registered" || len(b.docs("resourceTypes")) < 8 {
		t.Errorf("registered: %s", text(b))
	}
	if status, code, _ := p.code("PUT", net, body); status != 201 {
		t.Errorf("%d %s", status, code)
	}
	if status, code, _ := p.code("POST", base+"/unregister"+v, nil); status != 409 {
		t.Errorf("unregistering with resources: %d %s", status, code)
	}
}

func TestSubscriptionViews(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	p := g.raw()
	sub := "/subscriptions/" + DefaultSubscription
	for path, want := range map[string]string{
		"/subscriptions?api-version=2022-12-01":                                                                      DefaultSubscription,
		sub + "?api-version=2022-12-01":                                                                              `"Enabled"`,
		sub + "/locations?api-version=2022-12-01":                                                                    `"physicalZone":"westus2-az`,
		sub + "/resourcegroups?api-version=2025-04-01":                                                               "resourceGroups/rg",
		sub + "/providers/Microsoft.Network/locations/westus2/usages?api-version=2025-07-01":                         `"currentValue":1`,
		sub + "/providers/Microsoft.Network/networkWatchers?api-version=2025-07-01":                                  "NetworkWatcher_westus2",
		sub + "/providers/Microsoft.Authorization/permissions?api-version=2022-04-01":                                `"actions":["*"]`,
		groupPath("rg") + "virtualNetworks/net/CheckIPAddressAvailability?ipAddress=10.0.0.1&api-version=2025-07-01": `"available":false`,
		groupPath("rg") + "virtualNetworks/net/CheckIPAddressAvailability?ipAddress=10.0.0.9&api-version=2025-07-01": `"available":true`,
		"/" + DefaultTenant + "/v2.0/.well-known/openid-configuration":                                               "token_endpoint",
		"/common/discovery/instance?authorization_endpoint=https%3A%2F%2Fx%2Ft%2F&api-version=1.1":                   "tenant_discovery_endpoint",
	} {
		got := p.send("GET", g.url+path, nil, nil)
		if got.Status != 200 || !strings.Contains(text(got.Body), want) {
			t.Errorf("GET %s: %d %s", path, got.Status, text(got.Body))
		}
	}
	g.world.SetQuota("azure", "network", "VirtualNetworks", "", "westus2", 1)
	_, err := g.networks().NewVirtualNetworksClient().BeginCreateOrUpdate(g.ctx, "rg", "more", armnetwork.VirtualNetwork{Location: new("westus2"),
		Properties: &armnetwork.VirtualNetworkPropertiesFormat{AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{new("10.1.0.0/16")}}}}, nil)
	refused(t, err, 400, "VirtualNetworkCountLimitReached")
}

// TestGroupCascade: a group goes with all that is in it, unless something outside holds a part of it.
func TestGroupCascade(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.group("other")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	np, err := g.networks().NewInterfacesClient().BeginCreateOrUpdate(g.ctx, "other", "nic", armnetwork.Interface{Location: new("westus2"), Properties: &armnetwork.InterfacePropertiesFormat{
		IPConfigurations: []*armnetwork.InterfaceIPConfiguration{{Name: new("ip"), Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{Subnet: &armnetwork.Subnet{ID: new(groupPath("rg") + "virtualNetworks/net/subnets/a")}}}}}}, nil)
	done(g, np, err)
	d, err := g.groups().BeginDelete(g.ctx, "rg", nil)
	if _, err = wait(g, d, err); err == nil || !strings.Contains(err.Error(), "ResourceGroupDeletionBlocked") {
		t.Errorf("deleting a group that somebody uses: %v", err)
	}
	if got := must(g.groups().Get(g.ctx, "rg", nil))(t); *got.Properties.ProvisioningState != "Succeeded" {
		t.Errorf("the group is %s", *got.Properties.ProvisioningState)
	}
	n, err := g.networks().NewInterfacesClient().BeginDelete(g.ctx, "other", "nic", nil)
	done(g, n, err)
	d, err = g.groups().BeginDelete(g.ctx, "rg", nil)
	done(g, d, err)
	if left := g.world.Objects(sim.ObjectFilter{Cloud: "azure", ID: "*/resourceGroups/rg*"}); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestControl: somebody else's object is placed, changed and taken away behind the product's back.
func TestControl(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	group := "/subscriptions/" + DefaultSubscription + "/resourceGroups/theirs"
	for _, in := range []struct {
		op   string
		id   string
		body map[string]any
	}{
		{"ResourceGroups_CreateOrUpdate", group, map[string]any{"location": "westus2"}},
		{"PUT", groupPath("theirs") + "virtualNetworks/net", map[string]any{"location": "westus2", "tags": map[string]any{"owner": "them"},
			"properties": map[string]any{"addressSpace": map[string]any{"addressPrefixes": []any{"10.40.0.0/16"}}}}},
	} {
		if _, err := g.world.Invoke("azure", "", in.op, DefaultSubscription, "", map[string]any{"id": in.id, "body": in.body}); err != nil {
			t.Fatal(err)
		}
	}
	id := groupPath("theirs") + "virtualNetworks/net"
	if got := must(g.networks().NewVirtualNetworksClient().Get(g.ctx, "theirs", "net", nil))(t); *got.Properties.ProvisioningState != "Succeeded" {
		t.Errorf("placed: %s", *got.Properties.ProvisioningState)
	}
	if left := g.world.Residue("them"); len(left) != 1 || left[0].ID != id {
		t.Errorf("residue %v", left)
	}
	if _, err := g.world.PatchObject(id, []byte(`{"tags":{"owner":"somebody"}}`)); err != nil {
		t.Fatal(err)
	}
	if got := must(g.networks().NewVirtualNetworksClient().Get(g.ctx, "theirs", "net", nil))(t); *got.Tags["owner"] != "somebody" {
		t.Errorf("tags %v", text(got.Tags))
	}
	if _, err := g.world.RemoveObject(id); err != nil {
		t.Fatal(err)
	}
	_, err := g.networks().NewVirtualNetworksClient().Get(g.ctx, "theirs", "net", nil)
	refused(t, err, 404, "ResourceNotFound")
	books := g.world.Books(sim.BookFilter{Cloud: "azure", Operation: "VirtualNetworks_Get"})
	if len(books) != 3 || books[2].Status != 404 || books[2].Code != "ResourceNotFound" || books[2].Caller != DefaultClientID {
		t.Errorf("books %+v", books)
	}
}
