package gcp

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/api/cloudresourcemanager/v3"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/dns/v1"

	"github.com/zopday/provisioner/internal/sim"
)

// Every method that is simulated has its permissions, there are none of others, and each reads as a permission does.
func TestPermissionTable(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	table := permissionTable()
	served := map[string]bool{}
	for _, a := range g.cloud.apis {
		for id := range a.ops {
			key := a.service + " " + id
			served[key] = true
			if _, ok := table[key]; !ok {
				t.Errorf("%s has no entry", key)
			}
		}
	}
	form := regexp.MustCompile(`^[a-z]+\.[a-zA-Z]+\.[a-zA-Z]+$`)
	for key, n := range table {
		if !served[key] {
			t.Errorf("%s is not simulated", key)
		}
		for _, f := range n.fields {
			if f.permission != "" {
				n.always = append(n.always, f.permission)
			}
		}
		for _, p := range n.always {
			if !form.MatchString(p) {
				t.Errorf("%s: %q is no permission", key, p)
			}
		}
	}
	if len(served) < 400 {
		t.Errorf("only %d methods", len(served))
	}
}

// A caller without a permission is refused before anything happens, in the words of the service; what the body asks for needs
// permissions too; and testIamPermissions knows.
func TestPermissionsAreAsked(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	const caller = "user@example.com"
	grant := func(actions ...string) { g.world.SetGrants("gcp", caller, append([]string{}, actions...)) }
	networks := g.compute().Networks
	net := &compute.Network{Name: "shop", ForceSendFields: []string{"AutoCreateSubnetworks"}}
	grant()
	_, err := networks.Insert(testProject, net).Do()
	e := refused(t, err, 403, "forbidden")
	if !strings.Contains(e.Message, "Required 'compute.networks.create' permission for 'projects/example-project") {
		t.Error(e.Message)
	}
	books := g.world.Books(sim.BookFilter{Operation: "networks.insert"})
	if last := books[len(books)-1]; last.Done || last.Status != 403 || !slices.Equal(last.Actions, []string{"compute.networks.create"}) {
		t.Errorf("booked as %+v", last)
	}
	grant("compute.networks.create", "compute.globalOperations.get")
	g.done(networks.Insert(testProject, net).Do())

	rule := &compute.Firewall{Name: "in", Network: "global/networks/shop", Allowed: []*compute.FirewallAllowed{{IPProtocol: "tcp"}}}
	grant("compute.firewalls.create")
	_, err = g.compute().Firewalls.Insert(testProject, rule).Do()
	if e := refused(t, err, 403, "forbidden"); !strings.Contains(e.Message, "'compute.networks.updatePolicy'") {
		t.Error(e.Message)
	}
	address := &compute.Address{Name: "inside", AddressType: "INTERNAL", Purpose: "VPC_PEERING", PrefixLength: 20, Network: "global/networks/shop"}
	grant("compute.globalAddresses.create", "compute.networks.use", "compute.globalOperations.get")
	_, err = g.compute().GlobalAddresses.Insert(testProject, address).Do()
	if e := refused(t, err, 403, "forbidden"); !strings.Contains(e.Message, "'compute.globalAddresses.createInternal'") {
		t.Error(e.Message)
	}
	grant("compute.globalAddresses.createInternal", "compute.networks.use", "compute.globalOperations.get")
	g.done(g.compute().GlobalAddresses.Insert(testProject, address).Do())
	grant("compute.globalAddresses.delete")
	_, err = g.compute().GlobalAddresses.Delete(testProject, "inside").Do()
	if e := refused(t, err, 403, "forbidden"); !strings.Contains(e.Message, "'compute.globalAddresses.deleteInternal'") {
		t.Error(e.Message)
	}

	grant("dns.managedZones.create")
	_, err = client(g, dns.NewService).ManagedZones.Create(testProject, &dns.ManagedZone{Name: "in", DnsName: "in.", Description: "x", Visibility: "private",
		PrivateVisibilityConfig: &dns.ManagedZonePrivateVisibilityConfig{Networks: []*dns.ManagedZonePrivateVisibilityConfigNetwork{{NetworkUrl: apiRoot + "projects/example-project/global/networks/shop"}}}}).Do()
	if e := refused(t, err, 403, "forbidden"); e.Message != "Forbidden" {
		t.Error(e.Message)
	}

	grant("compute.networks.*", "dns.changes.get")
	asked := []string{"compute.networks.create", "compute.firewalls.create", "dns.changes.get"}
	out, err := client(g, cloudresourcemanager.NewService).Projects.TestIamPermissions("projects/"+testProject, &cloudresourcemanager.TestIamPermissionsRequest{Permissions: asked}).
		Context(context.Background()).Do()
	if err != nil || !slices.Equal(out.Permissions, []string{"compute.networks.create", "dns.changes.get"}) {
		t.Errorf("granted %v, %v", out.Permissions, err)
	}
}
