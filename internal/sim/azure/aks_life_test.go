package azure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"

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
