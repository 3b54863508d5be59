package azure

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRoundTrip: what was read can be written back as it is, and changes nothing: clients change resources that way.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	p := g.raw()
	net, group := groupPath("rg"), "/subscriptions/"+DefaultSubscription+"/resourceGroups/rg"
	ref := func(path string) map[string]any { return map[string]any{"id": net + path} }
	place := func(path string, body map[string]any) {
		t.Helper()
		if _, err := g.world.Invoke("azure", "", "PUT", DefaultSubscription, "", map[string]any{"id": path, "body": body}); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	props := func(p map[string]any) map[string]any {
		return map[string]any{"location": "westus2", "tags": map[string]any{"k": "v"}, "properties": p}
	}
	global := func(p map[string]any) map[string]any {
		return map[string]any{"location": "global", "properties": p}
	}
	space := func(s string) map[string]any { return map[string]any{"addressPrefixes": []any{s}} }
	place(group, map[string]any{"location": "westus2", "tags": map[string]any{"k": "v"}})
	place(net+"networkSecurityGroups/nsg", props(map[string]any{"securityRules": []any{map[string]any{"name": "web", "properties": map[string]any{"protocol": "Tcp", "access": "Allow",
		"direction": "Inbound", "priority": 100, "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRanges": []any{"80", "443"}}}}}))
	place(net+"routeTables/rt", props(map[string]any{"routes": []any{map[string]any{"name": "out", "properties": map[string]any{"addressPrefix": "0.0.0.0/0", "nextHopType": "Internet"}}}}))
	pip := props(map[string]any{"publicIPAllocationMethod": "Static"})
	pip["sku"], pip["zones"] = map[string]any{"name": "Standard"}, []any{"1"}
	place(net+"publicIPAddresses/pip", pip)
	nat := props(map[string]any{"publicIpAddresses": []any{ref("publicIPAddresses/pip")}})
	nat["sku"], nat["zones"] = map[string]any{"name": "Standard"}, []any{"1"}
	place(net+"natGateways/nat", nat)
	place(net+"virtualNetworks/a", props(map[string]any{"addressSpace": space("10.0.0.0/16"), "subnets": []any{
		map[string]any{"name": "z", "properties": map[string]any{"addressPrefix": "10.0.0.0/24", "networkSecurityGroup": ref("networkSecurityGroups/nsg"), "routeTable": ref("routeTables/rt"),
			"natGateway": ref("natGateways/nat"), "serviceEndpoints": []any{map[string]any{"service": "Microsoft.Storage"}}}},
		map[string]any{"name": "db", "properties": map[string]any{"addressPrefixes": []any{"10.0.1.0/28"}, "delegations": []any{map[string]any{"name": "d",
			"properties": map[string]any{"serviceName": "Microsoft.DBforPostgreSQL/flexibleServers"}}}}}}}))
	place(net+"virtualNetworks/b", props(map[string]any{"addressSpace": space("10.1.0.0/16")}))
	place(net+"virtualNetworks/a/virtualNetworkPeerings/to-b", map[string]any{"properties": map[string]any{"remoteVirtualNetwork": ref("virtualNetworks/b")}})
	place(net+"virtualNetworks/b/virtualNetworkPeerings/to-a", map[string]any{"properties": map[string]any{"remoteVirtualNetwork": ref("virtualNetworks/a")}})
	place(net+"networkInterfaces/nic", props(map[string]any{"ipConfigurations": []any{map[string]any{"name": "ip", "properties": map[string]any{"subnet": ref("virtualNetworks/a/subnets/z")}}}}))
	place(net+"dnsZones/example.test", global(map[string]any{}))
	place(net+"dnsZones/example.test/A/www", map[string]any{"properties": map[string]any{"TTL": 60, "ARecords": []any{map[string]any{"ipv4Address": "192.0.2.1"}}}})
	place(net+"privateDnsZones/example.internal", global(map[string]any{}))
	place(net+"privateDnsZones/example.internal/virtualNetworkLinks/link", global(map[string]any{"registrationEnabled": true, "virtualNetwork": ref("virtualNetworks/a")}))
	place(net+"privateDnsZones/example.internal/A/db", map[string]any{"properties": map[string]any{"ttl": 60, "aRecords": []any{map[string]any{"ipv4Address": "10.0.1.4"}}}})

	for _, path := range []string{group + "?api-version=2025-04-01", net + "networkSecurityGroups/nsg?api-version=2025-07-01", net + "networkSecurityGroups/nsg/securityRules/web?api-version=2025-07-01",
		net + "routeTables/rt?api-version=2025-07-01", net + "routeTables/rt/routes/out?api-version=2025-07-01", net + "publicIPAddresses/pip?api-version=2025-07-01",
		net + "natGateways/nat?api-version=2025-07-01", net + "virtualNetworks/a?api-version=2025-07-01", net + "virtualNetworks/a?api-version=2020-11-01",
		net + "virtualNetworks/a/subnets/z?api-version=2025-07-01", net + "virtualNetworks/a/subnets/db?api-version=2025-07-01",
		net + "virtualNetworks/a/virtualNetworkPeerings/to-b?api-version=2025-07-01", net + "networkInterfaces/nic?api-version=2025-07-01",
		net + "dnsZones/example.test?api-version=2018-05-01", net + "dnsZones/example.test/A/www?api-version=2018-05-01", net + "privateDnsZones/example.internal?api-version=2024-06-01",
		net + "privateDnsZones/example.internal/virtualNetworkLinks/link?api-version=2024-06-01", net + "privateDnsZones/example.internal/A/db?api-version=2024-06-01"} {
		before := p.send("GET", g.url+path, nil, nil)
		body, _ := asDoc(before.Body)
		put := p.send("PUT", g.url+path, body, nil)
		if put.Status != 200 && put.Status != 202 {
			t.Errorf("PUT %s: %d %s", path, put.Status, text(put.Body))
			continue
		}
		g.world.Step(time.Minute)
		after := p.send("GET", g.url+path, nil, nil)
		if diff := cmp.Diff(withoutEtags(before.Body), withoutEtags(after.Body)); diff != "" {
			t.Errorf("PUT %s changes what is read: %s", path, diff)
		}
	}
}

// withoutEtags is a body without what changes with every write.
func withoutEtags(v any) any {
	switch m := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range m {
			if k != "etag" {
				out[k] = withoutEtags(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(m))
		for i, e := range m {
			out[i] = withoutEtags(e)
		}
		return out
	}
	return v
}
