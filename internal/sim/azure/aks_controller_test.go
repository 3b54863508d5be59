package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/sim"
)

// TestClusterController: what Services and claims make in the account, and that it goes with the cluster.
func TestClusterController(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	made := g.cluster(clusterModel())
	k, _ := kube.only(t)
	ctx := t.Context()
	web := sim.KubeService{Namespace: "shop", Name: "web", UID: "11111111-2222-4333-8444-555555555555", Ports: []int{80, 443}}
	_, ip, err := k.Cloud.EnsureLoadBalancer(ctx, web)
	if err != nil || !strings.HasPrefix(ip, "20.") {
		t.Fatalf("address %q, %v", ip, err)
	}
	if _, again, err := k.Cloud.EnsureLoadBalancer(ctx, web); err != nil || again != ip {
		t.Errorf("asked again: %q, %v", again, err)
	}
	const group = "MC_rg_shop_westus2"
	lb := must(g.networks().NewLoadBalancersClient().Get(g.ctx, group, "kubernetes", nil))(t)
	if len(lb.Properties.LoadBalancingRules) != 2 || len(lb.Properties.FrontendIPConfigurations) != 2 {
		t.Errorf("load balancer %s", text(lb))
	}
	public := must(g.networks().NewPublicIPAddressesClient().Get(g.ctx, group, "kubernetes-"+balancerName(web), nil))(t)
	if *public.Properties.IPAddress != ip || *public.Tags["k8s-azure-service"] != "shop/web" || *public.Tags["owner"] != "job_1" {
		t.Errorf("address %s", text(public))
	}
	// An internal one stands in the network, which the cluster's identity may not join yet.
	inner := sim.KubeService{Namespace: "shop", Name: "db", UID: "22222222-2222-4333-8444-555555555555", Ports: []int{5432}, Annotations: map[string]string{internalBalancer: "true"}}
	if _, _, err = k.Cloud.EnsureLoadBalancer(ctx, inner); err == nil || !strings.Contains(err.Error(), "LinkedAuthorizationFailed") {
		t.Errorf("an internal load balancer: %v", err)
	}
	g.assign(firstAssignment, groupPath("rg")+"virtualNetworks/net", role("4d97b98b-1d4f-4787-a291-c67834d212e7"), *made.Identity.PrincipalID)
	if _, ip, err = k.Cloud.EnsureLoadBalancer(ctx, inner); err != nil || !strings.HasPrefix(ip, "10.20.") {
		t.Errorf("an internal load balancer: %q %v", ip, err)
	}
	disk := sim.KubeVolume{Namespace: "shop", Name: "data", UID: "33333333-2222-4333-8444-555555555555", GiB: 20, Zone: "westus2-2", StorageClass: map[string]string{"skuName": "Premium_LRS"}}
	handle, err := k.Cloud.EnsureDisk(ctx, disk)
	if err != nil || !strings.HasSuffix(handle, "/disks/pvc-"+disk.UID) {
		t.Fatalf("disk %q %v", handle, err)
	}
	got := must(g.compute().NewDisksClient().Get(g.ctx, group, "pvc-"+disk.UID, nil))(t)
	if *got.SKU.Name != "Premium_LRS" || *got.Zones[0] != "2" || *got.Tags["kubernetes.io-created-for-pvc-name"] != "data" {
		t.Errorf("disk %s", text(got))
	}
	if ok, err := k.Cloud.DeleteLoadBalancer(ctx, inner); !ok || err != nil {
		t.Errorf("deleting: %v %v", ok, err)
	}
	_, err = g.networks().NewLoadBalancersClient().Get(g.ctx, group, "kubernetes-internal", nil)
	refused(t, err, 404, "ResourceNotFound")
	disk.Handle = handle
	if ok, err := k.Cloud.DeleteDisk(ctx, disk); !ok || err != nil {
		t.Errorf("deleting: %v %v", ok, err)
	}
	// What nobody took away goes with the cluster.
	p, err := g.containers().NewManagedClustersClient().BeginDelete(g.ctx, "rg", "shop", nil)
	done(g, p, err)
	if left := g.world.Objects(sim.ObjectFilter{Cloud: "azure", ID: "*MC_rg_shop*"}); len(left) != 0 {
		t.Errorf("left: %d objects, such as %s", len(left), left[0].ID)
	}
	if ok, err := k.Cloud.DeleteLoadBalancer(ctx, web); !ok || err != nil {
		t.Errorf("a Service of a cluster that is gone: %v %v", ok, err)
	}
}

// TestClusterEgress: the ways out, and the private end of a cluster.
func TestClusterEgress(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t)
	subnets := g.networks().NewSubnetsClient()
	g.publicIP("out", armnetwork.PublicIPAddressSKUNameStandard)
	np, err := g.networks().NewNatGatewaysClient().BeginCreateOrUpdate(g.ctx, "rg", "nat", armnetwork.NatGateway{Location: new("westus2"), SKU: &armnetwork.NatGatewaySKU{Name: new(armnetwork.NatGatewaySKUNameStandard)},
		Properties: &armnetwork.NatGatewayPropertiesFormat{PublicIPAddresses: []*armnetwork.SubResource{{ID: new(groupPath("rg") + "publicIPAddresses/out")}}}}, nil)
	nat := done(g, np, err)
	sp, err := subnets.BeginCreateOrUpdate(g.ctx, "rg", "net", "a", armnetwork.Subnet{Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: new("10.20.0.0/20"), NatGateway: &armnetwork.SubResource{ID: nat.ID}}}, nil)
	done(g, sp, err)
	m := clusterModel()
	m.Properties.NetworkProfile.OutboundType = new(armcontainerservice.OutboundTypeUserAssignedNATGateway)
	m.Properties.APIServerAccessProfile = &armcontainerservice.ManagedClusterAPIServerAccessProfile{EnablePrivateCluster: new(true)}
	made := g.cluster(m)
	if made.Properties.NetworkProfile.LoadBalancerProfile != nil || *made.Properties.APIServerAccessProfile.PrivateDNSZone != "system" || made.Properties.Fqdn == nil {
		t.Errorf("made %s", text(made))
	}
	kinds := map[string]int{}
	for _, o := range g.world.Objects(sim.ObjectFilter{Cloud: "azure", ID: "*MC_rg_shop*"}) {
		kinds[o.Kind]++
	}
	if kinds["loadBalancers"] != 0 || kinds["privateDnsZones"] != 1 || kinds["networkInterfaces"] != 1+3 || kinds["virtualMachineScaleSets"] != 1 || kinds["userAssignedIdentities"] != 1 {
		t.Errorf("in the node resource group: %v", kinds)
	}
	p, err := g.containers().NewManagedClustersClient().BeginDelete(g.ctx, "rg", "shop", nil)
	done(g, p, err)

	// Without a network of its owner's, a cluster makes one, and with its own gateway if that is asked for.
	m = clusterModel()
	m.Properties.AgentPoolProfiles[0].VnetSubnetID = nil
	m.Properties.NetworkProfile.OutboundType = new(armcontainerservice.OutboundTypeManagedNATGateway)
	m.Properties.AddonProfiles = map[string]*armcontainerservice.ManagedClusterAddonProfile{"azureKeyvaultSecretsProvider": {Enabled: new(true)}, "azurepolicy": {Enabled: new(true)}}
	made = g.cluster(m)
	if id := made.Properties.AddonProfiles["azurepolicy"].Identity; id == nil || *made.Properties.AddonProfiles["azureKeyvaultSecretsProvider"].Config["enableSecretRotation"] != "false" {
		t.Errorf("add-ons %s", text(made.Properties.AddonProfiles))
	}
	clear(kinds)
	for _, o := range g.world.Objects(sim.ObjectFilter{Cloud: "azure", ID: "*MC_rg_shop*"}) {
		kinds[o.Kind]++
	}
	if kinds["virtualNetworks"] != 1 || kinds["natGateways"] != 1 || kinds["userAssignedIdentities"] != 3 || kinds["loadBalancers"] != 0 {
		t.Errorf("in the node resource group: %v", kinds)
	}
}

// TestClusterPlacement: an API server in a delegated subnet, a zone of one's own, and what the identity has to be allowed for it.
func TestClusterPlacement(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	clusters := g.containers().NewManagedClustersClient()
	id := must(g.identities().CreateOrUpdate(g.ctx, "rg", "plane", armmsi.Identity{Location: new("westus2")}, nil))(t)
	m := clusterModel()
	m.Identity = &armcontainerservice.ManagedClusterIdentity{Type: new(armcontainerservice.ResourceIdentityTypeUserAssigned),
		UserAssignedIdentities: map[string]*armcontainerservice.ManagedServiceIdentityUserAssignedIdentitiesValue{*id.ID: {}}}
	g.assign(firstAssignment, groupPath("rg")+"virtualNetworks/net", role("4d97b98b-1d4f-4787-a291-c67834d212e7"), *id.Properties.PrincipalID)
	b := groupPath("rg") + "virtualNetworks/net/subnets/b"
	m.Properties.APIServerAccessProfile = &armcontainerservice.ManagedClusterAPIServerAccessProfile{EnableVnetIntegration: new(true), SubnetID: &b}
	_, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	refused(t, err, 400, "InvalidParameter") // the subnet is not delegated
	sp, err := g.networks().NewSubnetsClient().BeginCreateOrUpdate(g.ctx, "rg", "net", "b", armnetwork.Subnet{Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: new("10.20.16.0/20"),
		Delegations: []*armnetwork.Delegation{{Name: new("aks"), Properties: &armnetwork.ServiceDelegationPropertiesFormat{ServiceName: new(clusterType)}}}}}, nil)
	done(g, sp, err)
	g.cluster(m)
	lb := must(g.networks().NewLoadBalancersClient().Get(g.ctx, "MC_rg_shop_westus2", "kube-apiserver", nil))(t)
	if !strings.EqualFold(*lb.Properties.FrontendIPConfigurations[0].Properties.Subnet.ID, b) {
		t.Errorf("the API server is at %s", text(lb))
	}
	dp, err := g.networks().NewSubnetsClient().BeginDelete(g.ctx, "rg", "net", "b", nil)
	if err == nil {
		done(g, dp, err)
		t.Error("the subnet of an API server is deleted")
	}
	cp, err := clusters.BeginDelete(g.ctx, "rg", "shop", nil)
	done(g, cp, err)

	zone := groupPath("rg") + "privateDnsZones/privatelink.westus2.azmk8s.io"
	m.Properties.APIServerAccessProfile = &armcontainerservice.ManagedClusterAPIServerAccessProfile{EnablePrivateCluster: new(true), PrivateDNSZone: &zone}
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	refused(t, err, 400, "CustomPrivateDNSZoneNotFound")
	if _, err := g.world.Invoke("azure", "", "PUT", DefaultSubscription, "", map[string]any{"id": zone, "body": map[string]any{"location": "global"}}); err != nil {
		t.Fatal(err)
	}
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	refused(t, err, 400, "CustomPrivateDNSZoneMissingPermissionError")
	g.assign(secondAssignment, zone, role("b12aa53e-6015-4669-85d0-8515ebb3ae7f"), *id.Properties.PrincipalID)
	g.cluster(m)

	g.world.Reset()
	for range 100 {
		if kube.count() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("an emptied world has API servers")
}
