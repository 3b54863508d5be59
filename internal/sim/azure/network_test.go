package azure

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

// networks are the clients of Microsoft.Network, all of one factory.
func (g *rig) networks() *armnetwork.ClientFactory {
	cred, opt := g.arm()
	return must(armnetwork.NewClientFactory(DefaultSubscription, cred, opt))(g.t)
}

// as is a factory for another client and subscription.
func (g *rig) as(cred azcore.TokenCredential, subscription string) *armnetwork.ClientFactory {
	return must(armnetwork.NewClientFactory(subscription, cred, &arm.ClientOptions{ClientOptions: g.clientOptions(), DisableRPRegistration: true}))(g.t)
}

func groupPath(name string) string {
	return "/subscriptions/" + DefaultSubscription + "/resourceGroups/" + name + "/providers/Microsoft.Network/"
}

// vnet makes a virtual network with subnets a, b, … of the given prefixes.
func (g *rig) vnet(name, prefix string, subnets ...string) armnetwork.VirtualNetwork {
	g.t.Helper()
	v := armnetwork.VirtualNetwork{Location: new("westus2"), Properties: &armnetwork.VirtualNetworkPropertiesFormat{
		AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{&prefix}}}}
	for i, s := range subnets {
		v.Properties.Subnets = append(v.Properties.Subnets, &armnetwork.Subnet{Name: new(string(rune('a' + i))),
			Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: &s}})
	}
	p, err := g.networks().NewVirtualNetworksClient().BeginCreateOrUpdate(g.ctx, "rg", name, v, nil)
	return done(g, p, err).VirtualNetwork
}

func (g *rig) publicIP(name string, sku armnetwork.PublicIPAddressSKUName) armnetwork.PublicIPAddress {
	g.t.Helper()
	p, err := g.networks().NewPublicIPAddressesClient().BeginCreateOrUpdate(g.ctx, "rg", name, armnetwork.PublicIPAddress{Location: new("westus2"),
		SKU:        &armnetwork.PublicIPAddressSKU{Name: &sku},
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{PublicIPAllocationMethod: new(armnetwork.IPAllocationMethodStatic)}}, nil)
	return done(g, p, err).PublicIPAddress
}

func TestVirtualNetworkLife(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	v := g.vnet("net", "10.0.0.0/16", "10.0.0.0/24", "10.0.1.0/24")
	if len(v.Properties.Subnets) != 2 || *v.Properties.ProvisioningState != "Succeeded" || *v.Properties.Subnets[0].Properties.DefaultOutboundAccess {
		t.Fatalf("made %v", text(v))
	}
	subnets := g.networks().NewSubnetsClient()
	sub := func(prefix string) armnetwork.Subnet {
		return armnetwork.Subnet{Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: &prefix}}
	}
	_, err := subnets.BeginCreateOrUpdate(g.ctx, "rg", "net", "c", sub("10.0.1.128/25"), nil)
	refused(t, err, 400, "NetcfgSubnetRangesOverlap")
	_, err = subnets.BeginCreateOrUpdate(g.ctx, "rg", "net", "c", sub("10.1.0.0/24"), nil)
	refused(t, err, 400, "NetcfgSubnetRangeOutsideVnet")
	_, err = subnets.BeginCreateOrUpdate(g.ctx, "rg", "net", "c", sub("10.0.2.0/30"), nil)
	refused(t, err, 400, "NetcfgInvalidSubnet")
	p, err := subnets.BeginCreateOrUpdate(g.ctx, "rg", "net", "c", sub("10.0.2.0/24"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = subnets.BeginCreateOrUpdate(g.ctx, "rg", "net", "d", sub("10.0.3.0/24"), nil)
	refused(t, err, 409, "AnotherOperationInProgress")
	done(g, p, nil)

	// Written without its subnets, a network keeps them; with an empty list it loses them.
	nets := g.networks().NewVirtualNetworksClient()
	v.Properties.Subnets, v.Tags = nil, map[string]*string{"k": new("v")}
	w, err := nets.BeginCreateOrUpdate(g.ctx, "rg", "net", v, nil)
	if got := done(g, w, err); len(got.Properties.Subnets) != 3 {
		t.Errorf("%d subnets after a write without them", len(got.Properties.Subnets))
	}
	v.Properties.Subnets = []*armnetwork.Subnet{}
	w, err = nets.BeginCreateOrUpdate(g.ctx, "rg", "net", v, nil)
	if got := done(g, w, err); len(got.Properties.Subnets) != 0 {
		t.Errorf("%d subnets after a write with none", len(got.Properties.Subnets))
	}
	d, err := nets.BeginDelete(g.ctx, "rg", "net", nil)
	done(g, d, err)
	_, err = nets.Get(g.ctx, "rg", "net", nil)
	refused(t, err, 404, "ResourceNotFound")
}

func TestInUse(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	n := g.networks()
	nsg := func() armnetwork.SecurityGroup {
		p, err := n.NewSecurityGroupsClient().BeginCreateOrUpdate(g.ctx, "rg", "nsg", armnetwork.SecurityGroup{Location: new("westus2")}, nil)
		return done(g, p, err).SecurityGroup
	}()
	if len(nsg.Properties.DefaultSecurityRules) != 6 {
		t.Errorf("%d default rules", len(nsg.Properties.DefaultSecurityRules))
	}
	rt, err := n.NewRouteTablesClient().BeginCreateOrUpdate(g.ctx, "rg", "rt", armnetwork.RouteTable{Location: new("westus2")}, nil)
	table := done(g, rt, err)
	pip := g.publicIP("pip", armnetwork.PublicIPAddressSKUNameStandard)
	if pip.Properties.IPAddress == nil {
		t.Error("a static address without an address")
	}
	nat := func(name string, sku armnetwork.NatGatewaySKUName) (armnetwork.NatGateway, error) {
		p, err := n.NewNatGatewaysClient().BeginCreateOrUpdate(g.ctx, "rg", name, armnetwork.NatGateway{Location: new("westus2"), SKU: &armnetwork.NatGatewaySKU{Name: &sku},
			Properties: &armnetwork.NatGatewayPropertiesFormat{PublicIPAddresses: []*armnetwork.SubResource{{ID: pip.ID}}}}, nil)
		got, err := wait(g, p, err)
		return got.NatGateway, err
	}
	_, err = nat("nat2", armnetwork.NatGatewaySKUNameStandardV2)
	refused(t, err, 400, "NatGatewayAndPublicIpSkuDoNotMatch")
	gw, err := nat("nat", armnetwork.NatGatewaySKUNameStandard)
	if err != nil {
		t.Fatal(err)
	}
	_, err = nat("nat2", armnetwork.NatGatewaySKUNameStandard)
	refused(t, err, 400, "PublicIPAddressInUse")
	g.vnet("net", "10.0.0.0/16")
	sp, err := n.NewSubnetsClient().BeginCreateOrUpdate(g.ctx, "rg", "net", "a", armnetwork.Subnet{Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: new("10.0.0.0/24"),
		NatGateway: &armnetwork.SubResource{ID: gw.ID}, NetworkSecurityGroup: &armnetwork.SecurityGroup{ID: nsg.ID}, RouteTable: &armnetwork.RouteTable{ID: table.ID}}}, nil)
	subnet := done(g, sp, err)
	np, err := n.NewInterfacesClient().BeginCreateOrUpdate(g.ctx, "rg", "nic", armnetwork.Interface{Location: new("westus2"), Properties: &armnetwork.InterfacePropertiesFormat{
		IPConfigurations: []*armnetwork.InterfaceIPConfiguration{{Name: new("ip"), Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{Subnet: &armnetwork.Subnet{ID: subnet.ID}}}}}}, nil)
	if nic := done(g, np, err); *nic.Properties.IPConfigurations[0].Properties.PrivateIPAddress != "10.0.0.4" {
		t.Errorf("address %s", *nic.Properties.IPConfigurations[0].Properties.PrivateIPAddress)
	}
	_, err = n.NewSecurityGroupsClient().BeginDelete(g.ctx, "rg", "nsg", nil)
	refused(t, err, 400, "InUseNetworkSecurityGroupCannotBeDeleted")
	_, err = n.NewRouteTablesClient().BeginDelete(g.ctx, "rg", "rt", nil)
	refused(t, err, 400, "InUseRouteTableCannotBeDeleted")
	_, err = n.NewNatGatewaysClient().BeginDelete(g.ctx, "rg", "nat", nil)
	refused(t, err, 400, "InUseNatGatewayCannotBeDeleted")
	_, err = n.NewPublicIPAddressesClient().BeginDelete(g.ctx, "rg", "pip", nil)
	refused(t, err, 400, "PublicIPAddressCannotBeDeleted")
	_, err = n.NewSubnetsClient().BeginDelete(g.ctx, "rg", "net", "a", nil)
	refused(t, err, 400, "InUseSubnetCannotBeDeleted")
	_, err = n.NewVirtualNetworksClient().BeginDelete(g.ctx, "rg", "net", nil)
	refused(t, err, 400, "InUseSubnetCannotBeDeleted")
	v := must(n.NewVirtualNetworksClient().Get(g.ctx, "rg", "net", nil))(t).VirtualNetwork
	v.Properties.Subnets = []*armnetwork.Subnet{}
	_, err = n.NewVirtualNetworksClient().BeginCreateOrUpdate(g.ctx, "rg", "net", v, nil)
	refused(t, err, 400, "InUseSubnetCannotBeDeleted")
	got := must(n.NewNatGatewaysClient().Get(g.ctx, "rg", "nat", nil))(t)
	if len(got.Properties.Subnets) != 1 {
		t.Error("the gateway does not show its subnet")
	}
}

func TestNotProvisionedYet(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	n := g.networks()
	_, err := n.NewPublicIPAddressesClient().BeginCreateOrUpdate(g.ctx, "rg", "pip", armnetwork.PublicIPAddress{Location: new("westus2"),
		SKU:        &armnetwork.PublicIPAddressSKU{Name: new(armnetwork.PublicIPAddressSKUNameStandardV2)},
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{PublicIPAllocationMethod: new(armnetwork.IPAllocationMethodStatic)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.NewNatGatewaysClient().BeginCreateOrUpdate(g.ctx, "rg", "nat", armnetwork.NatGateway{Location: new("westus2"), SKU: &armnetwork.NatGatewaySKU{Name: new(armnetwork.NatGatewaySKUNameStandardV2)},
		Properties: &armnetwork.NatGatewayPropertiesFormat{PublicIPAddresses: []*armnetwork.SubResource{{ID: new(groupPath("rg") + "publicIPAddresses/pip")}}}}, nil)
	refused(t, err, 429, "RetryableError")
	g.world.Step(10 * time.Second)
	_, err = n.NewNatGatewaysClient().BeginCreateOrUpdate(g.ctx, "rg", "nat", armnetwork.NatGateway{Location: new("westus2"),
		Properties: &armnetwork.NatGatewayPropertiesFormat{PublicIPAddresses: []*armnetwork.SubResource{{ID: new(groupPath("rg") + "publicIPAddresses/none")}}}}, nil)
	refused(t, err, 400, "InvalidResourceReference")

	// What is being deleted is not written any more.
	d, err := n.NewPublicIPAddressesClient().BeginDelete(g.ctx, "rg", "pip", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.NewPublicIPAddressesClient().BeginCreateOrUpdate(g.ctx, "rg", "pip", armnetwork.PublicIPAddress{Location: new("westus2"),
		SKU:        &armnetwork.PublicIPAddressSKU{Name: new(armnetwork.PublicIPAddressSKUNameStandardV2)},
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{PublicIPAllocationMethod: new(armnetwork.IPAllocationMethodStatic)}}, nil)
	refused(t, err, 429, "RetryableError")
	done(g, d, nil)
}

func TestPeering(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("a", "10.0.0.0/16")
	g.vnet("b", "10.1.0.0/16")
	g.vnet("over", "10.0.0.0/8")
	peerings := g.networks().NewVirtualNetworkPeeringsClient()
	peer := func(from, to string) (armnetwork.VirtualNetworkPeering, error) {
		p, err := peerings.BeginCreateOrUpdate(g.ctx, "rg", from, "to-"+to, armnetwork.VirtualNetworkPeering{Properties: &armnetwork.VirtualNetworkPeeringPropertiesFormat{
			RemoteVirtualNetwork: &armnetwork.SubResource{ID: new(groupPath("rg") + "virtualNetworks/" + to)}}}, nil)
		got, err := wait(g, p, err)
		return got.VirtualNetworkPeering, err
	}
	state := func(from, to string) armnetwork.VirtualNetworkPeeringState {
		t.Helper()
		return *must(peerings.Get(g.ctx, "rg", from, "to-"+to, nil))(t).Properties.PeeringState
	}
	_, err := peer("a", "over")
	refused(t, err, 400, "VnetAddressSpacesOverlap")
	if got := must(peer("a", "b"))(t); *got.Properties.PeeringState != "Initiated" {
		t.Errorf("one side alone is %s", *got.Properties.PeeringState)
	}
	must(peer("b", "a"))(t)
	if state("a", "b") != "Connected" || state("b", "a") != "Connected" {
		t.Errorf("both sides are %s and %s", state("a", "b"), state("b", "a"))
	}
	p, err := peerings.BeginDelete(g.ctx, "rg", "a", "to-b", nil)
	done(g, p, err)
	if state("b", "a") != "Disconnected" {
		t.Errorf("the side that is left is %s", state("b", "a"))
	}
	_, err = peer("a", "b")
	refused(t, err, 400, "RemotePeeringIsDisconnected")
	must(peer("b", "a"))(t)
	must(peer("a", "b"))(t)
	if state("b", "a") != "Connected" {
		t.Errorf("made again, the peering is %s", state("b", "a"))
	}

	// A network of a subscription that the caller may not use.
	_, err = peerings.BeginCreateOrUpdate(g.ctx, "rg", "a", "x", armnetwork.VirtualNetworkPeering{Properties: &armnetwork.VirtualNetworkPeeringPropertiesFormat{
		RemoteVirtualNetwork: &armnetwork.SubResource{ID: new("/subscriptions/" + OtherSubscription + "/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/x")}}}, nil)
	refused(t, err, 403, "LinkedAuthorizationFailed")
	_, err = g.as(g.credential(DefaultClientID, DefaultClientSecret, true), OtherSubscription).NewVirtualNetworksClient().Get(g.ctx, "rg", "x", nil)
	refused(t, err, 403, "AuthorizationFailed")
}

func TestSecurityRules(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	p, err := g.networks().NewSecurityGroupsClient().BeginCreateOrUpdate(g.ctx, "rg", "nsg", armnetwork.SecurityGroup{Location: new("westus2")}, nil)
	done(g, p, err)
	rules := g.networks().NewSecurityRulesClient()
	rule := func(name string, change func(*armnetwork.SecurityRulePropertiesFormat)) error {
		props := &armnetwork.SecurityRulePropertiesFormat{Access: new(armnetwork.SecurityRuleAccessAllow), Direction: new(armnetwork.SecurityRuleDirectionInbound),
			Protocol: new(armnetwork.SecurityRuleProtocolTCP), Priority: new(int32(100)), SourceAddressPrefix: new("*"), SourcePortRange: new("*"),
			DestinationAddressPrefix: new("*"), DestinationPortRange: new("80")}
		if change != nil {
			change(props)
		}
		p, err := rules.BeginCreateOrUpdate(g.ctx, "rg", "nsg", name, armnetwork.SecurityRule{Properties: props}, nil)
		_, err = wait(g, p, err)
		return err
	}
	if err := rule("one", nil); err != nil {
		t.Fatal(err)
	}
	for code, change := range map[string]func(*armnetwork.SecurityRulePropertiesFormat){
		"SecurityRuleConflict":             nil,
		"SecurityRuleInvalidPriority":      func(p *armnetwork.SecurityRulePropertiesFormat) { p.Priority = new(int32(99)) },
		"SecurityRuleInvalidPortRange":     func(p *armnetwork.SecurityRulePropertiesFormat) { p.DestinationPortRange = new("70000") },
		"SecurityRuleInvalidAddressPrefix": func(p *armnetwork.SecurityRulePropertiesFormat) { p.SourceAddressPrefix = new("10.0.0/8") },
		"InvalidRequestFormat": func(p *armnetwork.SecurityRulePropertiesFormat) {
			p.Access = new(armnetwork.SecurityRuleAccess("Maybe"))
		},
	} {
		refused(t, rule("two", change), 400, code)
	}
	if _, err := rules.Get(g.ctx, "rg", "nsg", "two", nil); err == nil {
		t.Error("a refused rule is there")
	}
}
