package schema

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path, want string
		values             map[string]string
	}{
		{"POST", "/compute/v1/projects/p/global/networks", "compute/v1 networks.insert", map[string]string{"project": "p"}},
		{"GET", "/compute/v1/projects/p/regions/r/subnetworks/s", "compute/v1 subnetworks.get", map[string]string{"project": "p", "region": "r", "subnetwork": "s"}},
		{"POST", "/compute/v1/projects/p/zones/z/operations/o/wait", "compute/v1 zoneOperations.wait", map[string]string{"project": "p", "zone": "z", "operation": "o"}},
		{"DELETE", "/dns/v1/projects/p/managedZones/z/rrsets/www.example./A", "dns/v1 resourceRecordSets.delete",
			map[string]string{"project": "p", "managedZone": "z", "name": "www.example.", "type": "A"}},
		{"GET", "/v1/projects/p/serviceAccounts/a@p.iam.gserviceaccount.com", "iam/v1 projects.serviceAccounts.get",
			map[string]string{"name": "projects/p/serviceAccounts/a@p.iam.gserviceaccount.com"}},
		{"POST", "/v1/projects/p:getIamPolicy", "cloudresourcemanager/v1 projects.getIamPolicy", map[string]string{"resource": "p"}},
		{"POST", "/v3/projects/p:setIamPolicy", "cloudresourcemanager/v3 projects.setIamPolicy", map[string]string{"resource": "projects/p"}},
		{"POST", "/v1/projects/p/services/dns.googleapis.com:enable", "serviceusage/v1 services.enable", map[string]string{"name": "projects/p/services/dns.googleapis.com"}},
		{"PATCH", "/v1/services/servicenetworking.googleapis.com/connections/-", "servicenetworking/v1 services.connections.patch",
			map[string]string{"name": "services/servicenetworking.googleapis.com/connections/-"}},
		{"POST", "/compute/v1/projects/p/global/networks/n", "", nil},
		{"GET", "/compute/v1/projects//global/networks", "", nil},
		{"GET", "/", "", nil},
	} {
		found := Find(c.method, c.path)
		if c.want == "" {
			if len(found) > 0 {
				t.Errorf("%s %s is %s", c.method, c.path, found[0].ID)
			}
			continue
		}
		if len(found) == 0 {
			t.Errorf("%s %s is nothing", c.method, c.path)
			continue
		}
		m := found[0]
		if got := m.API.Name + "/" + m.API.Version + " " + m.ID; got != c.want {
			t.Errorf("%s %s is %s", c.method, c.path, got)
		}
		if diff := cmp.Diff(c.values, m.Values); diff != "" {
			t.Errorf("%s: %s", c.path, diff)
		}
	}
	if n := len(Find("GET", "/v1/operations/x")); n < 2 {
		t.Errorf("%d APIs have operations", n)
	}
}

func TestCheckRequest(t *testing.T) {
	t.Parallel()
	m := APIs()["compute/v1"].Methods["networks.insert"]
	for _, c := range []struct {
		name string
		in   map[string]any
		want string // of the first violation
		out  map[string]any
	}{
		{"fine", map[string]any{"name": "a", "mtu": 1500.0}, "", map[string]any{"name": "a", "mtu": 1500.0}},
		{"a number as a text", map[string]any{"name": "a", "mtu": "1500"}, "", map[string]any{"name": "a", "mtu": 1500.0}},
		{"output only and null", map[string]any{"name": "a", "id": "7", "description": nil}, "", map[string]any{"name": "a"}},
		{"unknown", map[string]any{"name": "a", "colour": "red"}, "resource: unknown field colour", nil},
		{"unknown, deeper", map[string]any{"name": "a", "routingConfig": map[string]any{"mode": 1.0}}, "resource.routingConfig: unknown field mode", nil},
		{"no integer", map[string]any{"name": "a", "mtu": 1.5}, "resource.mtu: wrong type", nil},
		{"no object", map[string]any{"name": "a", "routingConfig": "x"}, "resource.routingConfig: wrong type", nil},
		{"not allowed", map[string]any{"name": "a", "routingConfig": map[string]any{"routingMode": "X"}}, "resource.routingConfig.routingMode: not an allowed value", nil},
		{"no name", map[string]any{"mtu": 1500.0}, "resource.name: missing", nil},
		{"pattern", map[string]any{"name": "A"}, "resource.name: does not match the pattern", nil},
	} {
		out, bad := m.CheckRequest(c.in)
		if c.want == "" {
			if len(bad) > 0 {
				t.Errorf("%s: %v", c.name, bad)
			} else if diff := cmp.Diff(c.out, out); diff != "" {
				t.Errorf("%s: %s", c.name, diff)
			}
		} else if len(bad) == 0 || !strings.HasPrefix(bad[0].String(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, bad, c.want)
		}
	}
	patch := APIs()["compute/v1"].Methods["networks.patch"]
	if out, bad := patch.CheckRequest(map[string]any{"description": nil}); len(bad) > 0 || len(out) != 1 {
		t.Errorf("a patch loses its nulls: %v, %v", out, bad)
	}
}

func TestCheckAnswer(t *testing.T) {
	t.Parallel()
	m := APIs()["compute/v1"].Methods["networks.get"]
	if bad := m.CheckAnswer(map[string]any{"name": "a", "id": "7", "mtu": 1460.0}); len(bad) > 0 {
		t.Error(bad)
	}
	for name, doc := range map[string]map[string]any{"an ID as a number": {"id": 7.0}, "an unknown field": {"colour": "red"}, "a number as a text": {"mtu": "1460"}} {
		if bad := m.CheckAnswer(doc); len(bad) != 1 {
			t.Errorf("%s: %v", name, bad)
		}
	}
}
