package azure

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources/v4"

	"github.com/zopday/provisioner/internal/sim"
)

// operations are the methods and paths of everything that the simulation carries out.
func (c *Cloud) operations() [][2]string {
	var out [][2]string
	add := func(method, path string) { out = append(out, [2]string{method, path}) }
	for _, k := range c.kinds {
		at := "/subscriptions/s/resourceGroups/g"
		if k.typ == providerType || k.service == "" {
			continue // there are no such paths of their own: routes answer them
		}
		if k.typ != groupType {
			at += "/providers/" + k.namespace()
			for t := range strings.SplitSeq(k.shortType(), "/") {
				at += "/" + t + "/x"
			}
		}
		add(http.MethodGet, at)
		add(http.MethodGet, at[:strings.LastIndex(at, "/")])
		if !k.noCreate || k.remove != nil && k.typ != instanceNICType { // an instance takes its interfaces along
			add(http.MethodDelete, at)
		}
		if !k.noCreate {
			add(http.MethodPut, at)
			add(http.MethodPatch, at)
		}
		for a := range k.actions {
			add(http.MethodPost, at+"/"+a)
		}
		for v := range k.views {
			add(http.MethodGet, at+"/"+v)
		}
		if k.polling == nil && k.namespace() != "Microsoft.Network" {
			continue // it has no operations
		}
		async, result := k.pollPaths(&Operation{ID: "o", Target: at, Type: k.typ, Location: "eastus2"})
		for _, p := range []string{async, result} {
			p, _, _ = strings.Cut(p, "?")
			add(http.MethodGet, p)
		}
	}
	for _, rt := range c.routes {
		add(rt.method, rt.pattern)
	}
	return out
}

// Whatever the simulation carries out has a name in the vendor's list.
func TestEveryOperationHasAnAction(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	known := map[string]bool{}
	for _, name := range spelling {
		known[name] = true
	}
	all := g.cloud.operations()
	if len(all) < 500 {
		t.Errorf("only %d operations were found", len(all))
	}
	missing := map[string]bool{}
	for _, op := range all {
		if a := actionOf(op[0], op[1]); !known[a] && !strings.HasPrefix(a, "{namespace}/") {
			missing[a] = true
		}
	}
	for a := range missing {
		t.Errorf("%s is in no table", a)
	}
	for _, l := range linkedActions {
		if !known[l.action] {
			t.Errorf("%s is in no table", l.action)
		}
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	const group = "/subscriptions/s/resourceGroups/g"
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/subscriptions/s", "Microsoft.Resources/subscriptions/read"},
		{"GET", "/subscriptions/s/providers/Microsoft.Compute", "Microsoft.Resources/subscriptions/providers/read"},
		{"POST", "/subscriptions/s/providers/Microsoft.Compute/register", "Microsoft.Compute/register/action"},
		{"HEAD", group, "Microsoft.Resources/subscriptions/resourceGroups/read"},
		{"GET", group + "/resources", "Microsoft.Resources/subscriptions/resourceGroups/resources/read"},
		{"PATCH", group + "/providers/microsoft.network/VIRTUALNETWORKS/v", "Microsoft.Network/virtualNetworks/write"},
		{"GET", group + "/providers/Microsoft.Compute/virtualMachines", "Microsoft.Compute/virtualMachines/read"},
		{"POST", group + "/providers/Microsoft.Compute/virtualMachines/x/powerOff", "Microsoft.Compute/virtualMachines/powerOff/action"},
		{"DELETE", group + "/providers/Microsoft.Compute/virtualMachines/x/providers/Microsoft.Authorization/locks/l", "Microsoft.Authorization/locks/delete"},
		{"POST", "/subscriptions/s/providers/Microsoft.KeyVault/checkNameAvailability", "Microsoft.KeyVault/checkNameAvailability/read"},
		{"GET", "/subscriptions/s/providers/Microsoft.Features/providers/Microsoft.Compute/features/f", "Microsoft.Features/providers/features/read"},
		{"GET", group + "/providers/Microsoft.Insights/metrics", "Microsoft.Insights/metrics/read"},
	} {
		if got := actionOf(c.method, c.path); got != c.want {
			t.Errorf("%s %s is %s, want %s", c.method, c.path, got, c.want)
		}
	}
}

// A caller that is limited is refused as the real one is: the action that it lacks and where, also on what a body refers to. The list of
// its permissions says the same.
func TestLimitedCallers(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	cred, opts := g.arm()
	groups, err := armresources.NewResourceGroupsClient(DefaultSubscription, cred, opts)
	if err != nil {
		t.Fatal(err)
	}
	const name = "rg"
	_, err = groups.CreateOrUpdate(g.ctx, name, armresources.ResourceGroup{Location: new("westus2")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	makeGroup(g, "nsg", armnetwork.SecurityGroup{Location: new("westus2")})
	limit := func(actions ...string) { g.world.SetGrants("azure", DefaultClientID, actions) }
	limit("Microsoft.Network/virtualNetworks/*", "Microsoft.Resources/subscriptions/resourceGroups/read")
	if _, err := groups.CreateOrUpdate(g.ctx, name, armresources.ResourceGroup{Location: new("westus2")}, nil); !forbids(err, "AuthorizationFailed", "'Microsoft.Resources/subscriptions/resourceGroups/write'", "/resourcegroups/rg'") {
		t.Errorf("a write that was not granted: %v", err)
	}
	if _, err := groups.Get(g.ctx, name, nil); err != nil {
		t.Errorf("a read that was granted: %v", err)
	}
	vnet := armnetwork.VirtualNetwork{Location: new("westus2"), Properties: &armnetwork.VirtualNetworkPropertiesFormat{
		AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{new("10.0.0.0/16")}},
		Subnets: []*armnetwork.Subnet{{Name: new("a"), Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: new("10.0.0.0/24"),
			NetworkSecurityGroup: &armnetwork.SecurityGroup{ID: new("/subscriptions/" + DefaultSubscription + "/resourceGroups/rg/providers/Microsoft.Network/networkSecurityGroups/nsg")}}}}}}
	if _, err := g.networks().NewVirtualNetworksClient().BeginCreateOrUpdate(g.ctx, name, "net", vnet, nil); !forbids(err, "LinkedAuthorizationFailed", "perform action(s) 'Microsoft.Network/networkSecurityGroups/join/action'", "networkSecurityGroups/nsg") {
		t.Errorf("a reference that was not granted: %v", err)
	}
	for _, e := range g.world.Books(sim.BookFilter{Operation: "VirtualNetworks_CreateOrUpdate"}) {
		if !slices.Equal(e.Actions, []string{"Microsoft.Network/virtualNetworks/write", "Microsoft.Network/networkSecurityGroups/join/action"}) || e.Done {
			t.Errorf("the books say %+v", e)
		}
	}
	limit("Microsoft.Network/*", "Microsoft.Authorization/permissions/read", "Microsoft.KeyVault/vaults/secrets/getSecret/action")
	if _, err := g.networks().NewVirtualNetworksClient().BeginCreateOrUpdate(g.ctx, name, "net", vnet, nil); err != nil {
		t.Errorf("what was granted: %v", err)
	}
	var listed struct {
		Value []struct{ Actions, DataActions []string }
	}
	g.get("/subscriptions/"+DefaultSubscription+"/providers/Microsoft.Authorization/permissions?api-version=2022-04-01", &listed)
	if len(listed.Value) != 1 || !slices.Equal(listed.Value[0].Actions, []string{"Microsoft.Network/*", "Microsoft.Authorization/permissions/read"}) || len(listed.Value[0].DataActions) != 1 {
		t.Errorf("its permissions: %+v", listed)
	}
	g.world.SetGrants("azure", DefaultClientID, nil)
	if _, err := groups.CreateOrUpdate(g.ctx, name, armresources.ResourceGroup{Location: new("westus2")}, nil); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// makeGroup makes a security group.
func makeGroup(g *rig, name string, group armnetwork.SecurityGroup) {
	g.t.Helper()
	p, err := g.networks().NewSecurityGroupsClient().BeginCreateOrUpdate(g.ctx, "rg", name, group, nil)
	done(g, p, err)
}

// get reads a path of Resource Manager as the default client.
func (g *rig) get(path string, into any) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(g.ctx), http.MethodGet, g.url+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	who, _ := g.cloud.client(DefaultClientID)
	req.Header.Set("Authorization", "Bearer "+g.cloud.sign(g.url, who))
	resp, err := g.http.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
		g.t.Fatalf("GET %s: %d, %v", path, resp.StatusCode, err)
	}
}

func forbids(err error, code string, says ...string) bool {
	var e *azcore.ResponseError
	return errors.As(err, &e) && e.ErrorCode == code && e.StatusCode == http.StatusForbidden &&
		!slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(err.Error(), s) })
}
