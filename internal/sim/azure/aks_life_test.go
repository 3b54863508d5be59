package azure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/sim"
)

// plane is the ID of the cluster shop as it was made.
const plane = "/subscriptions/" + DefaultSubscription + "/resourceGroups/rg/providers/" + clusterType + "/shop"

func TestClusterPower(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	clusters := g.containers().NewManagedClustersClient()
	g.cluster(clusterModel())
	k, _ := kube.only(t)
	p, err := clusters.BeginStop(g.ctx, "rg", "shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := must(clusters.Get(g.ctx, "rg", "shop", nil))(t); *got.Properties.ProvisioningState != "Stopping" {
		t.Errorf("state %s", *got.Properties.ProvisioningState)
	}
	done(g, p, nil)
	got := must(clusters.Get(g.ctx, "rg", "shop", nil))(t)
	if *got.Properties.PowerState.Code != armcontainerservice.CodeStopped || *got.Properties.AgentPoolProfiles[0].Count != 3 {
		t.Errorf("stopped: %s", text(got))
	}
	if _, nodes := kube.only(t); len(nodes) != 0 || k.Admits(sim.KubeCaller{Inside: true}) {
		t.Errorf("%d nodes; the API server answers %v", len(nodes), k.Admits(sim.KubeCaller{Inside: true}))
	}
	_, err = clusters.BeginStop(g.ctx, "rg", "shop", nil)
	refused(t, err, 400, "OperationNotAllowed")
	_, err = g.containers().NewAgentPoolsClient().BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", workPool(), nil)
	refused(t, err, 400, "OperationNotAllowed")
	s, err := clusters.BeginStart(g.ctx, "rg", "shop", nil)
	done(g, s, err)
	if _, nodes := kube.only(t); len(nodes) != 3 || !k.Admits(sim.KubeCaller{Inside: true}) {
		t.Errorf("%d nodes after the start", len(nodes))
	}
	_, err = clusters.BeginStart(g.ctx, "rg", "shop", nil)
	refused(t, err, 400, "OperationNotAllowed")
}

func TestClusterAbortAndCommands(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t)
	clusters := g.containers().NewManagedClustersClient()
	p, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := clusters.BeginAbortLatestOperation(g.ctx, "rg", "shop", nil)
	done(g, a, err)
	if _, err = wait(g, p, nil); err == nil {
		t.Error("an aborted operation ended well")
	}
	if got := must(clusters.Get(g.ctx, "rg", "shop", nil))(t); *got.Properties.ProvisioningState != "Canceled" {
		t.Errorf("state %s", *got.Properties.ProvisioningState)
	}
	_, err = clusters.BeginAbortLatestOperation(g.ctx, "rg", "shop", nil)
	refused(t, err, 400, "OperationNotAllowed")
	g.cluster(clusterModel())
	r, err := clusters.BeginRunCommand(g.ctx, "rg", "shop", armcontainerservice.RunCommandRequest{Command: new("kubectl get nodes")}, nil)
	if got := done(g, r, err); *got.Properties.ExitCode != 127 || !strings.Contains(*got.Properties.Logs, "not simulated") {
		t.Errorf("the command ended with %s", text(got))
	}
	m := clusterModel()
	m.Properties.APIServerAccessProfile = &armcontainerservice.ManagedClusterAPIServerAccessProfile{DisableRunCommand: new(true)}
	g.cluster(m)
	_, err = clusters.BeginRunCommand(g.ctx, "rg", "shop", armcontainerservice.RunCommandRequest{Command: new("kubectl get nodes")}, nil)
	refused(t, err, 400, "RunCommandDisabled")
}

func TestKubernetesVersions(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	clusters, pools := g.containers().NewManagedClustersClient(), g.containers().NewAgentPoolsClient()
	list := must(clusters.ListKubernetesVersions(g.ctx, "westus2", nil))(t)
	offers := map[string]*armcontainerservice.KubernetesVersion{}
	for _, v := range list.Values {
		offers[*v.Version] = v
	}
	official := func(v string) bool {
		return slices.ContainsFunc(offers[v].Capabilities.SupportPlan, func(p *armcontainerservice.KubernetesSupportPlan) bool {
			return *p == armcontainerservice.KubernetesSupportPlanKubernetesOfficial
		})
	}
	if len(offers) != 4 || offers["1.35"].IsDefault == nil || official("1.33") || !official("1.34") || !official("1.36") || len(offers["1.34"].PatchVersions) != 2 {
		t.Errorf("versions %s", text(list))
	}
	m := clusterModel()
	m.Properties.KubernetesVersion = new("1.34")
	g.cluster(m)
	profile := must(clusters.GetUpgradeProfile(g.ctx, "rg", "shop", nil))(t)
	var ups []string
	for _, u := range profile.Properties.ControlPlaneProfile.Upgrades {
		ups = append(ups, *u.KubernetesVersion)
	}
	if !slices.Equal(ups, []string{"1.35.4", "1.35.5"}) {
		t.Errorf("upgrades of 1.34.8: %v", ups)
	}
	m.Properties.KubernetesVersion = new("1.36")
	_, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	refused(t, err, 400, "OperationNotAllowed")
	m.Properties.KubernetesVersion = new("1.35")
	p, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := must(clusters.Get(g.ctx, "rg", "shop", nil))(t); *got.Properties.ProvisioningState != "Upgrading" {
		t.Errorf("state %s", *got.Properties.ProvisioningState)
	}
	got := done(g, p, nil)
	if *got.Properties.CurrentKubernetesVersion != "1.35.5" || *got.Properties.AgentPoolProfiles[0].CurrentOrchestratorVersion != "1.34.8" {
		t.Errorf("upgraded: %s, its pool %s", *got.Properties.CurrentKubernetesVersion, *got.Properties.AgentPoolProfiles[0].CurrentOrchestratorVersion)
	}
	if k, _ := kube.only(t); k.Version != "1.35.5" {
		t.Errorf("the API server is of %s", k.Version)
	}
	pool := must(pools.Get(g.ctx, "rg", "shop", "system", nil))(t).AgentPool
	pool.Properties.OrchestratorVersion = new("1.35")
	pp, err := pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "system", pool, nil)
	if got := done(g, pp, err); *got.Properties.CurrentOrchestratorVersion != "1.35.5" {
		t.Errorf("the pool is of %s", *got.Properties.CurrentOrchestratorVersion)
	}
	up := must(pools.GetUpgradeProfile(g.ctx, "rg", "shop", "system", nil))(t)
	if len(up.Properties.Upgrades) != 0 || *up.Properties.KubernetesVersion != "1.35.5" {
		t.Errorf("upgrades of the pool: %s", text(up))
	}
}

func TestMaintenance(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t)
	g.cluster(clusterModel())
	client := g.containers().NewMaintenanceConfigurationsClient()
	window := func(hours int32, s armcontainerservice.Schedule) armcontainerservice.MaintenanceConfiguration {
		return armcontainerservice.MaintenanceConfiguration{Properties: &armcontainerservice.MaintenanceConfigurationProperties{MaintenanceWindow: &armcontainerservice.MaintenanceWindow{
			DurationHours: &hours, StartTime: new("03:00"), Schedule: &s}}}
	}
	weekly := armcontainerservice.Schedule{Weekly: &armcontainerservice.WeeklySchedule{DayOfWeek: new(armcontainerservice.WeekDaySunday), IntervalWeeks: new(int32(1))}}
	daily := armcontainerservice.Schedule{Daily: &armcontainerservice.DailySchedule{IntervalDays: new(int32(1))}}
	made := must(client.CreateOrUpdate(g.ctx, "rg", "shop", autoUpgrades, window(4, weekly), nil))(t)
	if *made.Properties.MaintenanceWindow.UTCOffset != "+00:00" {
		t.Errorf("made %s", text(made))
	}
	must(client.CreateOrUpdate(g.ctx, "rg", "shop", nodeOSUpgrades, window(8, daily), nil))(t)
	for name, c := range map[string]struct {
		name string
		m    armcontainerservice.MaintenanceConfiguration
	}{"a name of one's own": {"nightly", window(4, weekly)}, "a short window": {autoUpgrades, window(2, weekly)}, "two schedules": {autoUpgrades, window(4, armcontainerservice.Schedule{Weekly: weekly.Weekly, Daily: daily.Daily})},
		"upgrades every day": {autoUpgrades, window(4, daily)}, "no time": {weeklyReleases, armcontainerservice.MaintenanceConfiguration{Properties: &armcontainerservice.MaintenanceConfigurationProperties{}}}} {
		_, err := client.CreateOrUpdate(g.ctx, "rg", "shop", c.name, c.m, nil)
		if err == nil {
			t.Errorf("%s is taken", name)
			continue
		}
		refused(t, err, 400, "InvalidParameter")
	}
	if n := len(must(client.NewListByManagedClusterPager("rg", "shop", nil).NextPage(g.ctx))(t).Value); n != 2 {
		t.Errorf("%d configurations", n)
	}
	must(client.Delete(g.ctx, "rg", "shop", autoUpgrades, nil))(t)
	_, err := client.Get(g.ctx, "rg", "shop", autoUpgrades, nil)
	refused(t, err, 404, "NotFound")
}

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

// TestClusterGuards: locks, registration, and requests that are swallowed.
func TestClusterGuards(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	clusters := g.containers().NewManagedClustersClient()
	raw := g.raw()
	registration := func(verb string) {
		raw.send("POST", g.url+subscriptionScope+"/providers/Microsoft.ContainerService/"+verb+"?api-version=2021-04-01", nil, nil)
		g.world.Step(time.Minute)
	}
	registration("unregister")
	_, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil)
	refused(t, err, 409, "MissingSubscriptionRegistration")
	registration("register")
	g.fault(sim.Fault{Kind: sim.FaultSwallow, Service: clusterService})
	if _, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err = clusters.Get(g.ctx, "rg", "shop", nil); err == nil || kube.count() != 0 {
		t.Errorf("a cluster that was swallowed is there: %v, %d API servers", err, kube.count())
	}
	g.cluster(clusterModel())
	lock := func(method, scope string) {
		t.Helper()
		body := doc{"properties": map[string]any{"level": "CanNotDelete"}}
		if got := raw.send(method, g.url+scope+"/providers/"+lockType+"/keep?api-version=2020-05-01", body, nil); got.Status > 201 {
			t.Fatalf("%s lock: %d %s", method, got.Status, text(got.Body))
		}
	}
	lock("PUT", plane)
	_, err = clusters.BeginDelete(g.ctx, "rg", "shop", nil)
	refused(t, err, 409, "ScopeLocked")
	lock("DELETE", plane)
	// A lock on the node resource group is found out late, and leaves the cluster Failed.
	group := subscriptionScope + "/resourceGroups/MC_rg_shop_westus2"
	lock("PUT", group)
	p, err := clusters.BeginDelete(g.ctx, "rg", "shop", nil)
	if _, err = wait(g, p, err); err == nil || !strings.Contains(err.Error(), "DeleteResourceGroupError") {
		t.Errorf("the delete ended with %v", err)
	}
	lock("DELETE", group)
	// Deleting its group takes a cluster along, and with it what it made elsewhere.
	sets := g.world.Objects(sim.ObjectFilter{Cloud: "azure", Kind: "virtualMachineScaleSets"})
	if len(sets) != 1 {
		t.Fatalf("%d scale sets", len(sets))
	}
	gp, err := g.groups().BeginDelete(g.ctx, "rg", nil)
	done(g, gp, err)
	if left := g.world.Objects(sim.ObjectFilter{Cloud: "azure", ID: "*_shop_*"}); len(left) != 0 || kube.count() != 0 {
		t.Errorf("left: %d objects, %d API servers", len(left), kube.count())
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

// role is the ID of a built-in role.
func role(guid string) string {
	return subscriptionScope + "/providers/Microsoft.Authorization/roleDefinitions/" + guid
}

// TestClusterQuota: what was asked for counts before its machines are there.
func TestClusterQuota(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t)
	g.world.SetQuota("azure", computeService, quotaCode, "", "", 10)
	m := clusterModel()
	m.Properties.AgentPoolProfiles = append(m.Properties.AgentPoolProfiles, systemPool())
	m.Properties.AgentPoolProfiles[1].Name = new("work")
	clusters := g.containers().NewManagedClustersClient()
	_, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil) // three and three machines of two vCPUs
	refused(t, err, 400, "ErrCode_InsufficientVCPUQuota")
	g.world.SetQuota("azure", computeService, quotaCode, "", "", 12)
	p, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A limit that falls meanwhile is found out late.
	g.world.SetQuota("azure", computeService, quotaCode, "", "", 8)
	if _, err = wait(g, p, nil); err == nil || !strings.Contains(err.Error(), "OperationNotAllowed") {
		t.Errorf("the operation ended with %v", err)
	}
	got := must(clusters.Get(g.ctx, "rg", "shop", nil))(t)
	if *got.Properties.ProvisioningState != "Failed" {
		t.Errorf("the cluster is %s", *got.Properties.ProvisioningState)
	}
	g.world.SetQuota("azure", computeService, quotaCode, "", "", 12)
	if again := g.cluster(m); *again.Properties.AgentPoolProfiles[1].ProvisioningState != "Succeeded" {
		t.Errorf("mended: %s", text(again))
	}
}

// TestClusterBehindTheBack: somebody else's cluster is placed from outside, and a world that is taken up again opens its API servers.
func TestClusterBehindTheBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, kube := kubeRig(t)
	stop := must(g.world.Persist(t.Context(), dir))(t)
	body := map[string]any{"location": "westus2", "identity": map[string]any{"type": "SystemAssigned"}, "tags": map[string]any{"owner": "them"}, "properties": map[string]any{"dnsPrefix": "theirs",
		"agentPoolProfiles": []any{map[string]any{"name": "system", "mode": "System", "count": 2, "vmSize": "Standard_D2s_v5", "vnetSubnetID": groupPath("rg") + subnetA}}}}
	body["properties"].(map[string]any)["networkProfile"] = map[string]any{"serviceCidr": "10.96.0.0/16"}
	if _, err := g.world.Invoke("azure", clusterService, "PUT", DefaultSubscription, "", map[string]any{"id": plane, "body": body}); err != nil {
		t.Fatal(err)
	}
	got := must(g.containers().NewManagedClustersClient().Get(g.ctx, "rg", "shop", nil))(t)
	if *got.Properties.ProvisioningState != "Succeeded" || *got.Properties.NetworkProfile.DNSServiceIP != "10.96.0.10" {
		t.Errorf("placed: %s", text(got))
	}
	g.world.Step(3 * time.Minute)
	must(g.groups().Get(g.ctx, "MC_rg_shop_westus2", nil))(t)
	if _, nodes := kube.only(t); len(nodes) != 2 {
		t.Errorf("%d nodes", len(nodes))
	}
	if left := g.world.Residue("them"); !slices.ContainsFunc(left, func(o sim.Object) bool { return o.ID == plane }) {
		t.Errorf("residue without the cluster: %d objects", len(left))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	again := newRig(t)
	later := &kubeDouble{open: map[string]sim.KubeCluster{}, nodes: map[string][]sim.KubeNode{}}
	again.cloud.opt.Kubernetes = later
	stop = must(again.world.Persist(t.Context(), dir))(t)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	creds := must(again.containers().NewManagedClustersClient().ListClusterAdminCredentials(again.ctx, "rg", "shop", nil))(t)
	if !strings.Contains(string(creds.Kubeconfigs[0].Value), "https://127.0.0.1:6443") {
		t.Errorf("configuration\n%s", creds.Kubeconfigs[0].Value)
	}
	if _, nodes := later.only(t); len(nodes) != 2 {
		t.Errorf("%d nodes of the world that was taken up again", len(nodes))
	}
}
