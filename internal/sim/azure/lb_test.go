package azure

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

func TestPublicBalancer(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	ip := g.publicIP("front", armnetwork.PublicIPAddressSKUNameStandard)
	lbs := g.networks().NewLoadBalancersClient()
	id := groupPath("rg") + "loadBalancers/lb/"
	model := func() armnetwork.LoadBalancer {
		return armnetwork.LoadBalancer{Location: new("westus2"), SKU: &armnetwork.LoadBalancerSKU{Name: new(armnetwork.LoadBalancerSKUNameStandard)},
			Properties: &armnetwork.LoadBalancerPropertiesFormat{
				FrontendIPConfigurations: []*armnetwork.FrontendIPConfiguration{{Name: new("front"), Properties: &armnetwork.FrontendIPConfigurationPropertiesFormat{PublicIPAddress: &armnetwork.PublicIPAddress{ID: ip.ID}}}},
				BackendAddressPools:      []*armnetwork.BackendAddressPool{{Name: new("pool")}},
				LoadBalancingRules: []*armnetwork.LoadBalancingRule{{Name: new("web"), Properties: &armnetwork.LoadBalancingRulePropertiesFormat{Protocol: new(armnetwork.TransportProtocolTCP),
					FrontendPort: new(int32(80)), BackendPort: new(int32(80)), DisableOutboundSnat: new(true), FrontendIPConfiguration: &armnetwork.SubResource{ID: new(id + "frontendIPConfigurations/front")},
					BackendAddressPool: &armnetwork.SubResource{ID: new(id + "backendAddressPools/pool")}}}},
				OutboundRules: []*armnetwork.OutboundRule{{Name: new("out"), Properties: &armnetwork.OutboundRulePropertiesFormat{Protocol: new(armnetwork.LoadBalancerOutboundRuleProtocolAll),
					FrontendIPConfigurations: []*armnetwork.SubResource{{ID: new(id + "frontendIPConfigurations/front")}}, BackendAddressPool: &armnetwork.SubResource{ID: new(id + "backendAddressPools/pool")}}}}}}
	}
	for name, c := range map[string]struct {
		change func(*armnetwork.LoadBalancer)
		code   string
	}{
		"basic":  {func(l *armnetwork.LoadBalancer) { l.SKU.Name = new(armnetwork.LoadBalancerSKUNameBasic) }, "BasicSkuLoadBalancerNotSupported"},
		"no sku": {func(l *armnetwork.LoadBalancer) { l.SKU = nil }, "BasicSkuLoadBalancerNotSupported"},
		"no probe": {func(l *armnetwork.LoadBalancer) {
			l.Properties.LoadBalancingRules[0].Properties.Probe = &armnetwork.SubResource{ID: new(id + "probes/none")}
		}, "InvalidResourceReference"},
		"both translate": {func(l *armnetwork.LoadBalancer) {
			l.Properties.LoadBalancingRules[0].Properties.DisableOutboundSnat = new(false)
		},
			"LoadBalancingRuleMustDisableSNATSinceSameFrontendIPConfigurationIsReferencedByOutboundRule"},
		"probe without path": {func(l *armnetwork.LoadBalancer) {
			l.Properties.Probes = []*armnetwork.Probe{{Name: new("p"), Properties: &armnetwork.ProbePropertiesFormat{Protocol: new(armnetwork.ProbeProtocolHTTP), Port: new(int32(80))}}}
		}, "ProbeRequestPathMissing"},
	} {
		m := model()
		c.change(&m)
		_, err := lbs.BeginCreateOrUpdate(g.ctx, "rg", "lb", m, nil)
		t.Log(name)
		refused(t, err, 400, c.code)
	}
	p, err := lbs.BeginCreateOrUpdate(g.ctx, "rg", "lb", model(), nil)
	lb := done(g, p, err)
	if len(lb.Properties.BackendAddressPools[0].Properties.LoadBalancingRules) != 1 || *lb.Properties.ProvisioningState != "Succeeded" {
		t.Errorf("made %s", text(lb.LoadBalancer))
	}
	// Written as it was read, it stays as it is.
	q, err := lbs.BeginCreateOrUpdate(g.ctx, "rg", "lb", lb.LoadBalancer, nil)
	if again := done(g, q, err); *again.Etag != *lb.Etag {
		t.Errorf("etag %s after %s", *again.Etag, *lb.Etag)
	}
	d, err := g.networks().NewPublicIPAddressesClient().BeginDelete(g.ctx, "rg", "front", nil)
	_, err = wait(g, d, err)
	refused(t, err, 400, "PublicIPAddressCannotBeDeleted")
	other := model()
	other.Properties.LoadBalancingRules, other.Properties.OutboundRules = nil, nil
	_, err = lbs.BeginCreateOrUpdate(g.ctx, "rg", "lb2", other, nil)
	refused(t, err, 400, "PublicIPAddressInUse")

	pools := g.networks().NewLoadBalancerBackendAddressPoolsClient()
	pp, err := pools.BeginCreateOrUpdate(g.ctx, "rg", "lb", "second", armnetwork.BackendAddressPool{}, nil)
	done(g, pp, err)
	if got := must(lbs.Get(g.ctx, "rg", "lb", nil))(t); len(got.Properties.BackendAddressPools) != 2 {
		t.Errorf("pools %s", text(got.Properties.BackendAddressPools))
	}
	pd, err := pools.BeginDelete(g.ctx, "rg", "lb", "second", nil)
	done(g, pd, err)
	_, err = pools.Get(g.ctx, "rg", "lb", "second", nil)
	refused(t, err, 404, "NotFound")
	ld, err := lbs.BeginDelete(g.ctx, "rg", "lb", nil)
	done(g, ld, err)
	d, err = g.networks().NewPublicIPAddressesClient().BeginDelete(g.ctx, "rg", "front", nil)
	done(g, d, err)
}

func TestBackendHealth(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	g.outbound("net")
	pool := g.balancer()
	nics := g.networks().NewInterfacesClient()
	g.nic("nic1")
	n := must(nics.Get(g.ctx, "rg", "nic1", nil))(t).Interface
	n.Properties.IPConfigurations[0].Properties.LoadBalancerBackendAddressPools = []*armnetwork.BackendAddressPool{{ID: &pool}}
	np, err := nics.BeginCreateOrUpdate(g.ctx, "rg", "nic1", n, nil)
	done(g, np, err)
	vms := g.compute().NewVirtualMachinesClient()
	vp, err := vms.BeginCreateOrUpdate(g.ctx, "rg", "web", vmModel(*n.ID, webServer), nil)
	done(g, vp, err)
	g.world.Step(5 * time.Minute)
	if h := g.health(); *h.Up != 1 || *h.LoadBalancerBackendAddresses[0].IPAddress != *n.Properties.IPConfigurations[0].Properties.PrivateIPAddress {
		t.Fatalf("health %s", text(h))
	}
	if got := g.availability(); got != 100 {
		t.Errorf("availability %v", got)
	}

	// A security group that lets nothing in lets no probe in either; the platform's own rules would.
	rules := []*armnetwork.SecurityRule{{Name: new("deny"), Properties: &armnetwork.SecurityRulePropertiesFormat{Access: new(armnetwork.SecurityRuleAccessDeny), Direction: new(armnetwork.SecurityRuleDirectionInbound),
		Priority: new(int32(200)), Protocol: new(armnetwork.SecurityRuleProtocolAsterisk), SourceAddressPrefix: new("*"), SourcePortRange: new("*"), DestinationAddressPrefix: new("*"), DestinationPortRange: new("*")}}}
	guard := func(rules []*armnetwork.SecurityRule) {
		t.Helper()
		p, err := g.networks().NewSecurityGroupsClient().BeginCreateOrUpdate(g.ctx, "rg", "nsg", armnetwork.SecurityGroup{Location: new("westus2"),
			Properties: &armnetwork.SecurityGroupPropertiesFormat{SecurityRules: rules}}, nil)
		nsg := done(g, p, err)
		n := must(nics.Get(g.ctx, "rg", "nic1", nil))(t).Interface
		n.Properties.NetworkSecurityGroup = &armnetwork.SecurityGroup{ID: nsg.ID}
		q, err := nics.BeginCreateOrUpdate(g.ctx, "rg", "nic1", n, nil)
		done(g, q, err)
	}
	guard(nil)
	if h := g.health(); *h.Up != 1 {
		t.Errorf("with the platform's rules: %s", text(h))
	}
	guard(rules)
	if h := g.health(); *h.Up != 0 || *h.LoadBalancerBackendAddresses[0].Reason != "Down_Probe_HttpEndpointUnreachable" {
		t.Errorf("with a deny rule: %s", text(h))
	}
	if got := g.availability(); got != 0 {
		t.Errorf("availability %v", got)
	}
	allow := *rules[0]
	allow.Name, allow.Properties = new("probe"), &armnetwork.SecurityRulePropertiesFormat{Access: new(armnetwork.SecurityRuleAccessAllow), Direction: new(armnetwork.SecurityRuleDirectionInbound),
		Priority: new(int32(100)), Protocol: new(armnetwork.SecurityRuleProtocolTCP), SourceAddressPrefix: new("AzureLoadBalancer"), SourcePortRange: new("*"), DestinationAddressPrefix: new("*"), DestinationPortRange: new("80")}
	guard(append(rules, &allow))
	if h := g.health(); *h.Up != 1 {
		t.Errorf("with the probe let in: %s", text(h))
	}
	if _, err := g.run("web", "rm -f /var/www/html/healthz"); err != nil {
		t.Fatal(err)
	}
	if h := g.health(); *h.Down != 1 || *h.LoadBalancerBackendAddresses[0].Reason != "Down_Probe_HttpStatusCodeError" {
		t.Errorf("without the page: %s", text(h))
	}
	// A machine that is off has no health at all, and the load balancer may go while interfaces are in its pool.
	op, err := vms.BeginPowerOff(g.ctx, "rg", "web", &armcompute.VirtualMachinesClientBeginPowerOffOptions{})
	done(g, op, err)
	if h := g.health(); *h.Up+*h.Down != 0 {
		t.Errorf("off: %s", text(h))
	}
	ld, err := g.networks().NewLoadBalancersClient().BeginDelete(g.ctx, "rg", "lb", nil)
	done(g, ld, err)
	if n := must(nics.Get(g.ctx, "rg", "nic1", nil))(t); len(n.Properties.IPConfigurations[0].Properties.LoadBalancerBackendAddressPools) != 0 {
		t.Errorf("interface %s", text(n.Interface))
	}
}

// availability is the metric Health Probe Status of the load balancer, as Azure Monitor answers it.
func (g *rig) availability() float64 {
	g.t.Helper()
	q := url.Values{"api-version": {"2023-10-01"}, "metricnames": {"DipAvailability"}, "aggregation": {"Average"}}
	req := must(http.NewRequestWithContext(g.ctx, http.MethodGet, g.url+groupPath("rg")+"loadBalancers/lb/providers/Microsoft.Insights/metrics?"+q.Encode(), nil))(g.t)
	req.Header.Set("Authorization", "Bearer "+g.cloud.sign(g.url, DefaultClients()[0]))
	resp := must(g.http.Do(req))(g.t)
	defer func() { _ = resp.Body.Close() }()
	var body struct {
		Value []struct {
			Name       struct{ Value string }
			Timeseries []struct {
				Data []struct{ Average float64 }
			}
		}
	}
	raw := must(io.ReadAll(resp.Body))(g.t)
	if err := json.Unmarshal(raw, &body); err != nil || resp.StatusCode != http.StatusOK || len(body.Value) != 1 {
		g.t.Fatalf("metrics: %d %s", resp.StatusCode, raw)
	}
	return body.Value[0].Timeseries[0].Data[0].Average
}
