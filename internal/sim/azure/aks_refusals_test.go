package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/sim"
)

// A change makes a cluster that would be taken one that is refused.
type change func(*armcontainerservice.ManagedClusterProperties)

// refusedClusters are what AKS refuses to make, by the code with which it does.
var refusedClusters = []struct {
	name, code string
	status     int
	change     change
}{
	{"no DNS prefix", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.DNSPrefix = nil }},
	{"a DNS prefix of 55 characters", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.DNSPrefix = new(strings.Repeat("a", 55)) }},
	{"a DNS prefix that ends with a hyphen", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.DNSPrefix = new("shop-") }},
	{"no pool", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.AgentPoolProfiles = nil }},
	{"no system pool", "MustDefineAtLeastOneSystemPool", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.AgentPoolProfiles[0].Mode = new(armcontainerservice.AgentPoolModeUser)
	}},
	{"a version out of support", "K8sVersionNotSupported", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.KubernetesVersion = new("1.29.2") }},
	{"a version of the long-term plan", "K8sVersionNotSupported", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.KubernetesVersion = new("1.33") }},
	{"a pool ahead of its control plane", "NodePoolMcVersionIncompatible", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.AgentPoolProfiles[0].OrchestratorVersion = new("1.36.1")
	}},
	{"a pool's version out of support", "AgentPoolK8sVersionNotSupported", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.AgentPoolProfiles[0].OrchestratorVersion = new("1.20.7")
	}},
	{"services in the network", "ServiceCidrOverlapExistingSubnetsCidr", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.NetworkProfile.ServiceCidr, p.NetworkProfile.DNSServiceIP = new("10.20.0.0/16"), new("10.20.0.10")
	}},
	{"pods in the network", "PodCidrOverlapExistingSubnetsCidr", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.NetworkProfile.PodCidr = new("10.20.16.0/22") }},
	{"pods among services", "PodCidrOverlapServiceCidr", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.NetworkProfile.PodCidr = new("10.96.0.0/12") }},
	{"pods in a reserved range", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.NetworkProfile.PodCidr = new("172.31.0.0/20") }},
	{"a DNS service elsewhere", "DNSServiceIPNotInServiceCidr", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.NetworkProfile.DNSServiceIP = new("10.0.0.10")
	}},
	{"Cilium without overlay", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.NetworkProfile.NetworkPluginMode, p.NetworkProfile.NetworkDataplane, p.NetworkProfile.PodCidr = nil, new(armcontainerservice.NetworkDataplaneCilium), nil
	}},
	{"Cilium's policies without it", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.NetworkProfile.NetworkPolicy = new(armcontainerservice.NetworkPolicyCilium)
	}},
	{"a NAT gateway that is not there", "SubnetNotAssociatedWithNATGateway", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.NetworkProfile.OutboundType = new(armcontainerservice.OutboundTypeUserAssignedNATGateway)
	}},
	{"routes that are not there", "ExistingRouteTableNotAssociatedWithSubnet", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.NetworkProfile.OutboundType = new(armcontainerservice.OutboundTypeUserDefinedRouting)
	}},
	{"AKS's own gateway in another's network", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.NetworkProfile.OutboundType = new(armcontainerservice.OutboundTypeManagedNATGateway)
	}},
	{"ranges of a private cluster", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.APIServerAccessProfile = &armcontainerservice.ManagedClusterAPIServerAccessProfile{EnablePrivateCluster: new(true), AuthorizedIPRanges: []*string{new("203.0.113.7")}}
	}},
	{"private ranges", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.APIServerAccessProfile = &armcontainerservice.ManagedClusterAPIServerAccessProfile{AuthorizedIPRanges: []*string{new("10.0.0.0/8")}}
	}},
	{"no local accounts and no directory", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.AADProfile = nil }},
	{"the directory without RBAC", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) { p.EnableRBAC = new(false) }},
	{"workload identity without issuer", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.SecurityProfile = &armcontainerservice.ManagedClusterSecurityProfile{WorkloadIdentity: &armcontainerservice.ManagedClusterSecurityProfileWorkloadIdentity{Enabled: new(true)}}
	}},
	{"a cleaner that comes too often", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.SecurityProfile = &armcontainerservice.ManagedClusterSecurityProfile{ImageCleaner: &armcontainerservice.ManagedClusterSecurityProfileImageCleaner{Enabled: new(true), IntervalHours: new(int32(1))}}
	}},
	{"an add-on that was retired", "AddonNotSupported", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.AddonProfiles = map[string]*armcontainerservice.ManagedClusterAddonProfile{"httpApplicationRouting": {Enabled: new(true)}}
	}},
	{"an unknown add-on", "InvalidParameter", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.AddonProfiles = map[string]*armcontainerservice.ManagedClusterAddonProfile{"nice": {Enabled: new(true)}}
	}},
	{"the long-term plan without Premium", "InvalidSupportPlan", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.SupportPlan = new(armcontainerservice.KubernetesSupportPlanAKSLongTermSupport)
	}},
	{"another's subscription", "LinkedAuthorizationFailed", 403, func(p *armcontainerservice.ManagedClusterProperties) {
		p.AgentPoolProfiles[0].VnetSubnetID = new(strings.Replace(*p.AgentPoolProfiles[0].VnetSubnetID, DefaultSubscription, OtherSubscription, 1))
	}},
	{"a subnet that is not there", "InvalidSubnet", 400, func(p *armcontainerservice.ManagedClusterProperties) {
		p.AgentPoolProfiles[0].VnetSubnetID = new(*p.AgentPoolProfiles[0].VnetSubnetID + "x")
	}},
}

func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	clusters := g.containers().NewManagedClustersClient()
	for _, c := range refusedClusters {
		m := clusterModel()
		c.change(m.Properties)
		_, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
		if err == nil {
			t.Errorf("%s: taken", c.name)
			continue
		}
		t.Log(c.name)
		refused(t, err, c.status, c.code)
	}
	m := clusterModel()
	m.Identity = nil
	_, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	refused(t, err, 400, "InvalidParameter")
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "-shop", clusterModel(), nil)
	refused(t, err, 400, "InvalidParameter")
	g.group("resources") // MC_resources_…_westus2 is longer than 80 then
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "resources", strings.Repeat("a", 63), clusterModel(), nil)
	refused(t, err, 400, "InvalidParameter")
	if kube.count() > 0 {
		t.Errorf("%d API servers of refused clusters", kube.count())
	}
	g.world.SetQuota("azure", clusterService, "ManagedClusters", "", "", 0)
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil)
	refused(t, err, 409, "QuotaExceeded")
	raw := g.raw()
	body := doc{"location": "westus2", "properties": map[string]any{"dnsPrefix": "shop", "hardened": true}}
	got := raw.send("PUT", g.url+"/subscriptions/"+DefaultSubscription+"/resourceGroups/rg/providers/"+clusterType+"/shop?api-version="+sdkClusterVersion, body, nil)
	if got.Status != 400 || !strings.Contains(text(got.Body), "UnmarshalError") {
		t.Errorf("an unknown member: %d %s", got.Status, text(got.Body))
	}
}

// refusedPools are what AKS refuses to add.
var refusedPools = []struct {
	name, code string
	change     func(*armcontainerservice.ManagedClusterAgentPoolProfileProperties)
}{
	{"an unknown size", "BadRequest", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) { p.VMSize = new("Standard_X1") }},
	{"a size that is not sold", "BadRequest", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) { p.VMSize = new("Standard_M64s") }},
	{"a system pool of one vCPU", "SystemPoolSkuTooLow", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.VMSize, p.Mode = new("Standard_A1_v2"), new(armcontainerservice.AgentPoolModeSystem)
	}},
	{"a system pool of spot machines", "InvalidParameter", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.ScaleSetPriority, p.Mode = new(armcontainerservice.ScaleSetPrioritySpot), new(armcontainerservice.AgentPoolModeSystem)
	}},
	{"a system pool with a taint", "SystemPoolHasRestrictedTaint", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.NodeTaints, p.Mode = []*string{new("a=b:NoSchedule")}, new(armcontainerservice.AgentPoolModeSystem)
	}},
	{"a taint without an effect", "InvalidParameter", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.NodeTaints = []*string{new("a=b")}
	}},
	{"a reserved label", "InvalidParameter", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.NodeLabels = map[string]*string{"kubernetes.azure.com/mode": new("system")}
	}},
	{"limits that the count is outside of", "InvalidParameter", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.EnableAutoScaling, p.MinCount, p.MaxCount = new(true), new(int32(3)), new(int32(5))
	}},
	{"autoscaling without limits", "InvalidParameter", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) { p.EnableAutoScaling = new(true) }},
	{"a zone too many", "AvailabilityZoneNotSupported", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.AvailabilityZones = []*string{new("4")}
	}},
	{"a disk that does not fit", "VMCacheSizeTooSmall", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.OSDiskType, p.OSDiskSizeGB = new(armcontainerservice.OSDiskTypeEphemeral), new(int32(128))
	}},
	{"encryption that the size does not do", "InvalidParameter", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.EnableEncryptionAtHost, p.VMSize = new(true), new("Standard_A2_v2")
	}},
	{"too many pods", "InvalidParameter", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) { p.MaxPods = new(int32(300)) }},
	{"another network", "InvalidParameter", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) { p.VnetSubnetID = nil }},
	{"more than the quota", "ErrCode_InsufficientVCPUQuota", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) { p.Count = new(int32(60)) }},
	{"more than the subnet has", "InsufficientSubnetSize", func(p *armcontainerservice.ManagedClusterAgentPoolProfileProperties) {
		p.VnetSubnetID, p.Count = new(groupPath("rg")+"virtualNetworks/net/subnets/small"), new(int32(12))
	}},
}

// workPool is a pool of one node in subnet a.
func workPool() armcontainerservice.AgentPool {
	return armcontainerservice.AgentPool{Properties: &armcontainerservice.ManagedClusterAgentPoolProfileProperties{Mode: new(armcontainerservice.AgentPoolModeUser), Count: new(int32(1)),
		VMSize: new("Standard_D2s_v5"), VnetSubnetID: new(groupPath("rg") + subnetA)}}
}

func TestPoolRefusals(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t)
	p, err := g.networks().NewSubnetsClient().BeginCreateOrUpdate(g.ctx, "rg", "net", "small", armnetwork.Subnet{Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: new("10.20.32.0/28")}}, nil)
	done(g, p, err)
	g.cluster(clusterModel())
	pools := g.containers().NewAgentPoolsClient()
	for _, c := range refusedPools {
		m := workPool()
		c.change(m.Properties)
		_, err := pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", m, nil)
		if err == nil {
			t.Errorf("%s: taken", c.name)
			continue
		}
		t.Log(c.name)
		refused(t, err, 400, c.code)
	}
	_, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "Work-Pool", workPool(), nil)
	refused(t, err, 400, "InvalidParameter")
	_, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "none", "work", workPool(), nil)
	refused(t, err, 404, "ParentResourceNotFound")
	_, err = pools.Get(g.ctx, "rg", "shop", "work", nil)
	refused(t, err, 404, "NotFound")
	g.world.SetQuota("azure", "features", hostEncryption, "", "", 0)
	m := workPool()
	m.Properties.EnableEncryptionAtHost = new(true)
	_, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", m, nil)
	refused(t, err, 400, "SubscriptionNotEnabledEncryptionAtHost")
	// What is fixed stays as it is.
	pp, err := pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", workPool(), nil)
	done(g, pp, err)
	m = workPool()
	m.Properties.VMSize = new("Standard_D4s_v5")
	_, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", m, nil)
	refused(t, err, 400, "PropertyChangeNotAllowed")
	whole := clusterModel()
	whole.Properties.DNSPrefix = new("other")
	_, err = g.containers().NewManagedClustersClient().BeginCreateOrUpdate(g.ctx, "rg", "shop", whole, nil)
	refused(t, err, 400, "PropertyChangeNotAllowed")
	whole = clusterModel()
	more := systemPool()
	more.Name = new("more")
	whole.Properties.AgentPoolProfiles = append(whole.Properties.AgentPoolProfiles, more)
	_, err = g.containers().NewManagedClustersClient().BeginCreateOrUpdate(g.ctx, "rg", "shop", whole, nil)
	refused(t, err, 400, "BadRequest")
}

// TestClusterOperations: one operation at a time, and etags.
func TestClusterOperations(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t)
	clusters, pools := g.containers().NewManagedClustersClient(), g.containers().NewAgentPoolsClient()
	p, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil)
	refused(t, err, 409, "OperationNotAllowed")
	_, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", workPool(), nil)
	refused(t, err, 409, "OperationNotAllowed")
	made := done(g, p, nil)
	pp, err := pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", workPool(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", workPool(), nil)
	refused(t, err, 409, "OperationNotAllowed")
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil)
	refused(t, err, 409, "OperationNotAllowed")
	other, err := pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "other", workPool(), nil) // pools are written side by side
	done(g, other, err)
	pool := done(g, pp, nil)
	if pool.Properties.ETag == nil || made.ETag == nil {
		t.Fatalf("etags %v %v", made.ETag, pool.Properties.ETag)
	}
	_, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", workPool(), &armcontainerservice.AgentPoolsClientBeginCreateOrUpdateOptions{IfMatch: new("outdated")})
	refused(t, err, 412, "EtagMismatch")
	_, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", workPool(), &armcontainerservice.AgentPoolsClientBeginCreateOrUpdateOptions{IfNoneMatch: new("*")})
	refused(t, err, 412, "EtagMismatch")
	now := must(clusters.Get(g.ctx, "rg", "shop", nil))(t)
	up, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), &armcontainerservice.ManagedClustersClientBeginCreateOrUpdateOptions{IfMatch: now.ETag})
	if got := done(g, up, err); *got.ETag == *now.ETag || len(got.Properties.AgentPoolProfiles) != 3 {
		t.Errorf("updated %s", text(got))
	}
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), &armcontainerservice.ManagedClustersClientBeginCreateOrUpdateOptions{IfMatch: now.ETag})
	refused(t, err, 412, "EtagMismatch")
	tags, err := clusters.BeginUpdateTags(g.ctx, "rg", "shop", armcontainerservice.TagsObject{Tags: map[string]*string{"owner": new("job_2")}}, nil)
	if got := done(g, tags, err); *got.Tags["owner"] != "job_2" {
		t.Errorf("tags %v", got.Tags)
	}
	if group := must(g.groups().Get(g.ctx, "MC_rg_shop_westus2", nil))(t); *group.Tags["owner"] != "job_2" {
		t.Errorf("the node resource group's tags %v", text(group.Tags))
	}
}

// TestClusterFailures: what goes wrong after it was accepted leaves a cluster that can be mended or deleted.
func TestClusterFailures(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t)
	clusters := g.containers().NewManagedClustersClient()
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Service: clusterService, Operation: "ManagedClusters_CreateOrUpdate", Code: "ReconcileVNetError", Message: "reconcile vnet failed", Seconds: 90})
	p, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil)
	if _, err = wait(g, p, err); err == nil || !strings.Contains(err.Error(), "ReconcileVNetError") {
		t.Errorf("the operation ended with %v", err)
	}
	if got := must(clusters.Get(g.ctx, "rg", "shop", nil))(t); *got.Properties.ProvisioningState != "Failed" || *got.Properties.AgentPoolProfiles[0].ProvisioningState != "Failed" {
		t.Errorf("afterwards %s", text(got))
	}
	if got := must(g.groups().Get(g.ctx, "MC_rg_shop_westus2", nil))(t); got.Name == nil {
		t.Error("the node resource group did not stay")
	}
	g.cluster(clusterModel())

	// No host for the machines of a pool.
	g.fault(sim.Fault{Kind: sim.FaultCapacity, Service: clusterService, Operation: "AgentPools_CreateOrUpdate"})
	pools := g.containers().NewAgentPoolsClient()
	pp, err := pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", workPool(), nil)
	if _, err = wait(g, pp, err); err == nil || !strings.Contains(err.Error(), "AllocationFailed") {
		t.Errorf("the pool ended with %v", err)
	}
	if got := must(pools.Get(g.ctx, "rg", "shop", "work", nil))(t); *got.Properties.ProvisioningState != "Failed" {
		t.Errorf("the pool is %s", *got.Properties.ProvisioningState)
	}
	pp, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", workPool(), nil)
	done(g, pp, err)
	g.fault(sim.Fault{Kind: sim.FaultCapacity, Code: "SkuNotAvailable", Service: clusterService})
	_, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "more", workPool(), nil)
	refused(t, err, 400, "SkuNotAvailable")

	if _, err := g.world.SetObjectState(*must(clusters.Get(g.ctx, "rg", "shop", nil))(t).ID, "", "", ""); err == nil {
		t.Error("an ID in another spelling is found")
	}
	id := "/subscriptions/" + DefaultSubscription + "/resourceGroups/rg/providers/" + clusterType + "/shop"
	if _, err := g.world.SetObjectState(id, "Failed", "Broken", "broken"); err != nil {
		t.Fatal(err)
	}
	dp, err := clusters.BeginDelete(g.ctx, "rg", "shop", nil)
	done(g, dp, err)
	if left := g.world.Objects(sim.ObjectFilter{Cloud: "azure", ID: "*MC_rg_shop*"}); len(left) != 0 {
		t.Errorf("left: %d objects, such as %s", len(left), left[0].ID)
	}
}

// TestClusterDeletePreempts: a delete does not wait for what is under way, and a second one joins the first.
func TestClusterDeletePreempts(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	clusters := g.containers().NewManagedClustersClient()
	p, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.world.Step(2 * time.Minute)
	_, err = clusters.BeginDelete(g.ctx, "rg", "shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	g.world.Step(2 * time.Minute)
	begun := g.world.Clock.Now()
	again, err := clusters.BeginDelete(g.ctx, "rg", "shop", nil)
	done(g, again, err)
	if took := g.world.Clock.Now().Sub(begun); took > 3*time.Minute {
		t.Errorf("the second delete began anew: %s", took)
	}
	_, err = clusters.Get(g.ctx, "rg", "shop", nil)
	refused(t, err, 404, "ResourceNotFound")
	if _, err := p.Poll(g.ctx); err != nil {
		t.Fatal(err)
	}
	_, err = p.Result(g.ctx) // its operation ended well, and the cluster is not there
	refused(t, err, 404, "ResourceNotFound")
	if kube.count() != 0 {
		t.Error("an API server is left")
	}
}
