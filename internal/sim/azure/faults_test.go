package azure

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/sim"
)

func (g *rig) fault(f sim.Fault) {
	g.t.Helper()
	if _, err := g.world.AddFault(f); err != nil {
		g.t.Fatal(err)
	}
}

func nsg(tags map[string]*string) armnetwork.SecurityGroup {
	return armnetwork.SecurityGroup{Location: new("westus2"), Tags: tags}
}

func TestFaultError(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.fault(sim.Fault{Kind: sim.FaultError, Service: "resources", Operation: "ResourceGroups_CreateOrUpdate", Code: "RequestDisallowedByPolicy", Status: 403, Message: "Resource 'rg' was disallowed by policy."})
	_, err := g.groups().CreateOrUpdate(g.ctx, "rg", armresources.ResourceGroup{Location: new("westus2")}, nil)
	refused(t, err, 403, "RequestDisallowedByPolicy")
	g.group("rg")
	g.fault(sim.Fault{Kind: sim.FaultThrottle, Service: "resources", RetryAfter: "7"})
	_, err = g.groups().Get(g.ctx, "rg", nil)
	re := refused(t, err, 429, "SubscriptionRequestsThrottled")
	if h := re.RawResponse.Header; h.Get("Retry-After") != "7" || h.Get("X-Ms-Ratelimit-Remaining-Subscription-Reads") != "0" {
		t.Errorf("headers %v", h)
	}
	g.fault(sim.Fault{Kind: sim.FaultRaw, Service: "resources", Status: 502, Body: "<html>", ContentType: "text/html"})
	_, err = g.groups().Get(g.ctx, "rg", nil)
	var resp *azcore.ResponseError
	if !errors.As(err, &resp) || resp.StatusCode != http.StatusBadGateway {
		t.Errorf("raw: %v", err)
	}
}

func TestFaultLostReplyAndSwallow(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.fault(sim.Fault{Kind: sim.FaultLostReply, Operation: "ResourceGroups_*", Mutating: new(true)})
	if _, err := g.groups().CreateOrUpdate(g.ctx, "rg", armresources.ResourceGroup{Location: new("westus2")}, nil); err == nil {
		t.Fatal("an answer came")
	}
	must(g.groups().Get(g.ctx, "rg", nil))(t)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultSwallow, Operation: "NetworkSecurityGroups_CreateOrUpdate"})
	if _, err := g.networks().NewSecurityGroupsClient().BeginCreateOrUpdate(g.ctx, "rg", "nsg", nsg(nil), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, g.world.Snapshot()); diff != "" {
		t.Errorf("a swallowed write changed something: %s", diff)
	}
	_, err := g.networks().NewSecurityGroupsClient().Get(g.ctx, "rg", "nsg", nil)
	refused(t, err, 404, "ResourceNotFound")
}

func TestFaultOpFailed(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "NetworkSecurityGroups_CreateOrUpdate", Code: "InternalServerError", Message: "An error occurred."})
	p, err := g.networks().NewSecurityGroupsClient().BeginCreateOrUpdate(g.ctx, "rg", "nsg", nsg(nil), nil)
	if _, err = wait(g, p, err); err == nil || !strings.Contains(err.Error(), "InternalServerError") {
		t.Errorf("the operation ends with %v", err)
	}
	got := must(g.networks().NewSecurityGroupsClient().Get(g.ctx, "rg", "nsg", nil))(t)
	if *got.Properties.ProvisioningState != "Failed" {
		t.Errorf("state %s", *got.Properties.ProvisioningState)
	}
	// Written again, it recovers.
	p, err = g.networks().NewSecurityGroupsClient().BeginCreateOrUpdate(g.ctx, "rg", "nsg", nsg(nil), nil)
	if got := done(g, p, err); *got.Properties.ProvisioningState != "Succeeded" {
		t.Errorf("state %s after a second write", *got.Properties.ProvisioningState)
	}
	g.fault(sim.Fault{Kind: sim.FaultTransition, Match: "nsg", State: "Failed"})
	if got := must(g.networks().NewSecurityGroupsClient().Get(g.ctx, "rg", "nsg", nil))(t); *got.Properties.ProvisioningState != "Failed" {
		t.Errorf("state %s after a transition", *got.Properties.ProvisioningState)
	}
}

// TestIndexLags: ARM's list of resources follows the providers at a distance.
func TestIndexLags(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(o *sim.Options) { o.ConsistencyByList = time.Hour })
	if _, err := g.groups().CreateOrUpdate(g.ctx, "rg", armresources.ResourceGroup{Location: new("westus2"), Tags: map[string]*string{"owner": new("job")}}, nil); err != nil {
		t.Fatal(err)
	}
	p, err := g.networks().NewSecurityGroupsClient().BeginCreateOrUpdate(g.ctx, "rg", "nsg", nsg(map[string]*string{"owner": new("job")}), nil)
	made := done(g, p, err)
	cred, opt := g.arm()
	list := func() []string {
		var ids []string
		client := must(armresources.NewClient(DefaultSubscription, cred, opt))(t)
		for pager := client.NewListPager(&armresources.ClientListOptions{Filter: new("tagName eq 'owner' and tagValue eq 'job'")}); pager.More(); {
			for _, r := range must(pager.NextPage(g.ctx))(t).Value {
				ids = append(ids, *r.ID)
			}
		}
		return ids
	}
	if got := list(); len(got) != 0 {
		t.Errorf("listed at once: %v", got)
	}
	must(g.networks().NewSecurityGroupsClient().Get(g.ctx, "rg", "nsg", nil))(t)
	g.world.Step(2 * time.Hour)
	if got := list(); !slices.Equal(got, []string{*made.ID}) {
		t.Errorf("listed %v", got)
	}
	d, err := g.networks().NewSecurityGroupsClient().BeginDelete(g.ctx, "rg", "nsg", nil)
	done(g, d, err)
	if got := list(); len(got) != 1 {
		t.Errorf("listed %v right after the deletion", got)
	}
	g.world.Step(2 * time.Hour)
	if got := list(); len(got) != 0 {
		t.Errorf("listed %v long after the deletion", got)
	}
	// What somebody tags from outside shows as well.
	if _, err := g.world.Invoke("azure", "network", "PUT", DefaultSubscription, "", map[string]any{"id": groupPath("rg") + "routeTables/rt", "body": map[string]any{"location": "westus2"}}); err != nil {
		t.Fatal(err)
	}
	g.world.Step(2 * time.Hour)
	if _, err := g.world.PatchObject("rt", []byte(`{"tags":{"owner":"job"}}`)); err != nil {
		t.Fatal(err)
	}
	list() // the index learns of it now
	g.world.Step(2 * time.Hour)
	if got := list(); len(got) != 1 {
		t.Errorf("listed %v after a change from outside", got)
	}
	client := must(armresources.NewClient(DefaultSubscription, cred, opt))(t)
	_, err = client.NewListPager(&armresources.ClientListOptions{Filter: new("tagName eq 'owner' and location eq 'westus2'")}).NextPage(g.ctx)
	refused(t, err, 400, "InvalidFilterInQueryString")
}

func TestSmallAndEmptyPages(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(o *sim.Options) { o.PageSize, o.EmptyPages = 2, 0.5 })
	g.group("rg")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		p, err := g.networks().NewSecurityGroupsClient().BeginCreateOrUpdate(g.ctx, "rg", name, nsg(nil), nil)
		done(g, p, err)
	}
	g.fault(sim.Fault{Kind: sim.FaultPage, Mode: "empty", Operation: "NetworkSecurityGroups_List"})
	n, pages, empty := 0, 0, 0
	for pager := g.networks().NewSecurityGroupsClient().NewListPager("rg", nil); pager.More(); pages++ {
		page := must(pager.NextPage(g.ctx))(t)
		n += len(page.Value)
		if len(page.Value) == 0 {
			empty++
		}
	}
	if n != 5 || pages < 4 || empty == 0 {
		t.Errorf("%d items on %d pages, %d of them empty", n, pages, empty)
	}
}

func TestHidden(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.fault(sim.Fault{Kind: sim.FaultHidden, Match: "rg", Count: 1})
	_, err := g.groups().Get(g.ctx, "rg", nil)
	refused(t, err, 404, "ResourceGroupNotFound")
	must(g.groups().Get(g.ctx, "rg", nil))(t)
}

// TestStrictBodies: what the real service would not understand is refused.
func TestStrictBodies(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	p := &replayer{g: g, token: g.cloud.sign(g.url, DefaultClients()[0]), urls: map[string]string{}}
	vnet := g.url + groupPath("rg") + "virtualNetworks/net?api-version=2025-07-01"
	for name, body := range map[string]doc{
		"an unknown member":         {"location": "westus2", "properties": map[string]any{"addressSpace": map[string]any{"addressPrefixes": []any{"10.0.0.0/16"}}, "colour": "red"}},
		"an unknown member outside": {"location": "westus2", "colour": "red", "properties": map[string]any{"addressSpace": map[string]any{"addressPrefixes": []any{"10.0.0.0/16"}}}},
		"a wrong type":              {"location": "westus2", "properties": map[string]any{"addressSpace": map[string]any{"addressPrefixes": []any{"10.0.0.0/16"}}, "enableDdosProtection": "yes"}},
		"a list for an object":      {"location": "westus2", "properties": map[string]any{"addressSpace": []any{}}},
	} {
		got := p.send("PUT", vnet, body, nil)
		b, _ := asDoc(got.Body)
		if got.Status != 400 || b.str("error.code") != "InvalidRequestFormat" || len(b.docs("error.details")) != 1 {
			t.Errorf("%s: %d %s", name, got.Status, text(got.Body))
		}
	}
	for target, code := range map[string]string{
		strings.Replace(vnet, "?api-version=2025-07-01", "", 1):                              "MissingApiVersionParameter",
		strings.Replace(vnet, "2025-07-01", "2031-01-01", 1):                                 "NoRegisteredProviderFound",
		g.url + "/subscriptions/" + DefaultSubscription + "?api-version=":                    "MissingApiVersionParameter",
		g.url + groupPath("rg") + "virtualNetwork/net?api-version=2025-07-01":                "InvalidResourceType",
		strings.Replace(vnet, "Microsoft.Network", "Microsoft.Nothing", 1):                   "InvalidResourceNamespace",
		g.url + "/subscriptions/00000000-0000-4000-8000-000000000009?api-version=2022-12-01": "SubscriptionNotFound",
	} {
		got := p.send("GET", target, nil, nil)
		if b, _ := asDoc(got.Body); b.str("error.code") != code {
			t.Errorf("GET %s: %d %s, want %s", target, got.Status, text(got.Body), code)
		}
	}
	p.token = "nonsense"
	if got := p.send("GET", vnet, nil, nil); got.Status != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", got.Status)
	}
}

// TestKeptOnDisk: a world that is kept in a directory goes on where it stood, operations under way included.
func TestKeptOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := newRig(t)
	stop, err := first.world.Persist(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	first.group("rg")
	first.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	if _, err := first.networks().NewSecurityGroupsClient().BeginCreateOrUpdate(first.ctx, "rg", "nsg", nsg(nil), nil); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	second := newRig(t)
	if stop, err = second.world.Persist(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	if diff := cmp.Diff(first.world.Snapshot(), second.world.Snapshot()); diff != "" {
		t.Error(diff)
	}
	second.world.Step(time.Minute)
	if got := must(second.networks().NewSecurityGroupsClient().Get(second.ctx, "rg", "nsg", nil))(t); *got.Properties.ProvisioningState != "Succeeded" {
		t.Errorf("state %s", *got.Properties.ProvisioningState)
	}
}

func TestKeepCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := must(KeepCertificate(dir))(t)
	second := must(KeepCertificate(dir))(t)
	if string(first.CA) != string(second.CA) || len(second.Config.Certificates) != 1 {
		t.Error("a second start has another CA")
	}
}
