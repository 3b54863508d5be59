package azure

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/sim"
)

// A kubeDouble is a sim.Kubernetes that keeps what it was told.
type kubeDouble struct {
	mu    sync.Mutex
	open  map[string]sim.KubeCluster
	nodes map[string][]sim.KubeNode
}

func (k *kubeDouble) Open(c sim.KubeCluster) sim.KubeEndpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[c.ID] = c
	return sim.KubeEndpoint{Address: "127.0.0.1:6443", CA: []byte("-----BEGIN CERTIFICATE-----\n")}
}

func (k *kubeDouble) SetNodes(id string, nodes []sim.KubeNode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[id] = nodes
}

func (k *kubeDouble) Close(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, id)
	delete(k.nodes, id)
}

func (k *kubeDouble) CA() []byte { return nil }

// count is how many API servers are open.
func (k *kubeDouble) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.open)
}

// only is the one cluster that is open, and its nodes.
func (k *kubeDouble) only(t *testing.T) (sim.KubeCluster, []sim.KubeNode) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.open) != 1 {
		t.Fatalf("%d API servers are open", len(k.open))
	}
	for id, c := range k.open {
		return c, k.nodes[id]
	}
	return sim.KubeCluster{}, nil
}

// kubeRig is a rig with API servers, a group and a network with subnets a and b.
func kubeRig(t *testing.T, change ...func(*sim.Options)) (*rig, *kubeDouble) {
	t.Helper()
	g := newRig(t, change...)
	k := &kubeDouble{open: map[string]sim.KubeCluster{}, nodes: map[string][]sim.KubeNode{}}
	g.cloud.opt.Kubernetes = k
	g.group("rg")
	g.vnet("net", "10.20.0.0/16", "10.20.0.0/20", "10.20.16.0/20")
	return g, k
}

func (g *rig) containers() *armcontainerservice.ClientFactory {
	cred, opt := g.arm()
	return must(armcontainerservice.NewClientFactory(DefaultSubscription, cred, opt))(g.t)
}

const subnetA = "virtualNetworks/net/subnets/a"

// systemPool is a pool of one node in subnet a.
func systemPool() *armcontainerservice.ManagedClusterAgentPoolProfile {
	return &armcontainerservice.ManagedClusterAgentPoolProfile{Name: new("system"), Mode: new(armcontainerservice.AgentPoolModeSystem), Count: new(int32(3)), VMSize: new("Standard_D2ds_v5"),
		OSType: new(armcontainerservice.OSTypeLinux), VnetSubnetID: new(groupPath("rg") + subnetA), AvailabilityZones: []*string{new("1"), new("2"), new("3")}}
}

// clusterModel is a cluster of the directory's users, whose way out is a load balancer.
func clusterModel() armcontainerservice.ManagedCluster {
	return armcontainerservice.ManagedCluster{Location: new("westus2"), Tags: map[string]*string{"owner": new("job_1")},
		Identity: &armcontainerservice.ManagedClusterIdentity{Type: new(armcontainerservice.ResourceIdentityTypeSystemAssigned)},
		Properties: &armcontainerservice.ManagedClusterProperties{DNSPrefix: new("shop"), AgentPoolProfiles: []*armcontainerservice.ManagedClusterAgentPoolProfile{systemPool()},
			NetworkProfile: &armcontainerservice.NetworkProfile{ServiceCidr: new("10.96.0.0/16"), DNSServiceIP: new("10.96.0.10"), PodCidr: new("10.244.0.0/16"),
				NetworkPlugin: new(armcontainerservice.NetworkPluginAzure), NetworkPluginMode: new(armcontainerservice.NetworkPluginModeOverlay)},
			AADProfile: &armcontainerservice.ManagedClusterAADProfile{Managed: new(true), EnableAzureRBAC: new(true)}, DisableLocalAccounts: new(true)}}
}

func (g *rig) cluster(m armcontainerservice.ManagedCluster) armcontainerservice.ManagedCluster {
	g.t.Helper()
	p, err := g.containers().NewManagedClustersClient().BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	return done(g, p, err).ManagedCluster
}

func TestClusterLife(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	clusters := g.containers().NewManagedClustersClient()
	begun := g.world.Clock.Now()
	p, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", clusterModel(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := must(clusters.Get(g.ctx, "rg", "shop", nil))(t); *got.Properties.ProvisioningState != "Creating" || *got.Properties.AgentPoolProfiles[0].ProvisioningState != "Creating" {
		t.Errorf("at first %s, its pool %s", *got.Properties.ProvisioningState, *got.Properties.AgentPoolProfiles[0].ProvisioningState)
	}
	made := done(g, p, nil).ManagedCluster
	if took := g.world.Clock.Now().Sub(begun); took < 4*time.Minute || took > 7*time.Minute {
		t.Errorf("took %s", took)
	}
	if *made.Properties.ProvisioningState != "Succeeded" || *made.Properties.CurrentKubernetesVersion != "1.35.5" || !strings.HasSuffix(*made.Properties.Fqdn, ".hcp.westus2.azmk8s.io") || made.ETag == nil {
		t.Errorf("made %s", text(made))
	}
	// What nobody asked for is as open as AKS leaves it.
	if made.Properties.APIServerAccessProfile != nil || *made.SKU.Tier != armcontainerservice.ManagedClusterSKUTierFree || *made.Properties.OidcIssuerProfile.Enabled || *made.Properties.NetworkProfile.NetworkPolicy != "none" ||
		*made.Properties.AgentPoolProfiles[0].SecurityProfile.SSHAccess != armcontainerservice.AgentPoolSSHAccessLocalUser {
		t.Errorf("defaults: %s", text(made))
	}
	set := must(g.compute().NewVirtualMachineScaleSetsClient().NewListPager("MC_rg_shop_westus2", nil).NextPage(g.ctx))(t)
	if len(set.Value) != 1 || *set.Value[0].SKU.Capacity != 3 || *set.Value[0].Tags["aks-managed-poolName"] != "system" {
		t.Fatalf("scale sets %s", text(set.Value))
	}
	group := must(g.groups().Get(g.ctx, "MC_rg_shop_westus2", nil))(t)
	if *group.Tags["owner"] != "job_1" || !strings.EqualFold(*group.ManagedBy, *made.ID) {
		t.Errorf("the node resource group: %s", text(group))
	}
	_, nodes := kube.only(t)
	if len(nodes) != 3 || !strings.HasPrefix(nodes[0].Name, "aks-system-") || !strings.HasSuffix(nodes[0].Name, "-vmss000000") || nodes[0].Labels["kubernetes.azure.com/mode"] != "system" || nodes[0].CPUs != 2 || nodes[0].Kubelet != "v1.35.5" || !strings.HasPrefix(nodes[0].IP, "10.20.") || !strings.HasPrefix(nodes[0].Zone, "westus2-") {
		t.Fatalf("nodes %+v", nodes)
	}
	// The network is in use meanwhile.
	_, err = g.networks().NewSubnetsClient().BeginDelete(g.ctx, "rg", "net", "a", nil)
	refused(t, err, 400, "InUseSubnetCannotBeDeleted")

	cd, err := clusters.BeginDelete(g.ctx, "rg", "shop", nil)
	done(g, cd, err)
	if left := g.world.Residue("job_1"); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if kube.count() != 0 {
		t.Error("the API server is still open")
	}
	sp, err := g.networks().NewSubnetsClient().BeginDelete(g.ctx, "rg", "net", "a", nil)
	done(g, sp, err)
}

func TestPoolLife(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	g.cluster(clusterModel())
	pools := g.containers().NewAgentPoolsClient()
	work := armcontainerservice.AgentPool{Properties: &armcontainerservice.ManagedClusterAgentPoolProfileProperties{Mode: new(armcontainerservice.AgentPoolModeUser), Count: new(int32(2)), VMSize: new("Standard_D2ps_v6"),
		VnetSubnetID: new(groupPath("rg") + subnetA), ScaleSetPriority: new(armcontainerservice.ScaleSetPrioritySpot), NodeLabels: map[string]*string{"team": new("shop")}}}
	pp, err := pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", work, nil)
	if got := done(g, pp, err); *got.Properties.ProvisioningState != "Succeeded" || *got.Properties.ScaleSetEvictionPolicy != "Delete" {
		t.Errorf("pool %s", text(got))
	}
	_, nodes := kube.only(t)
	i := slices.IndexFunc(nodes, func(n sim.KubeNode) bool { return n.Labels["agentpool"] == "work" })
	if len(nodes) != 5 || i < 0 || nodes[i].Arch != "arm64" || nodes[i].Labels["team"] != "shop" || !slices.Contains(nodes[i].Taints, sim.KubeTaint{Key: spotMark, Value: "spot", Effect: "NoSchedule"}) {
		t.Fatalf("nodes %+v", nodes)
	}
	work.Properties.Count = new(int32(1))
	pp, err = pools.BeginCreateOrUpdate(g.ctx, "rg", "shop", "work", work, nil)
	done(g, pp, err)
	if _, nodes = kube.only(t); len(nodes) != 4 {
		t.Errorf("%d nodes after scaling", len(nodes))
	}
	dp, err := pools.BeginDelete(g.ctx, "rg", "shop", "work", nil)
	done(g, dp, err)
	if _, nodes = kube.only(t); len(nodes) != 3 {
		t.Errorf("%d nodes after the pool went", len(nodes))
	}
	_, err = pools.BeginDelete(g.ctx, "rg", "shop", "system", nil)
	refused(t, err, 400, "OperationNotAllowed")
}

// clusterToken is a token for API servers.
func (g *rig) clusterToken() string {
	g.t.Helper()
	return must(g.credential(DefaultClientID, DefaultClientSecret, true).GetToken(g.ctx, policy.TokenRequestOptions{Scopes: []string{clusterAudience + "/.default"}}))(g.t).Token
}

const clusterAdminRole = "/subscriptions/" + DefaultSubscription + "/providers/Microsoft.Authorization/roleDefinitions/b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"

// assign gives a principal a role.
func (g *rig) assign(name, scope, role, who string) {
	g.t.Helper()
	_, err := g.assignments().Create(g.ctx, scope, name, armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{
		PrincipalID: &who, RoleDefinitionID: &role, PrincipalType: new(armauthorization.PrincipalTypeServicePrincipal)}}, nil)
	if err != nil {
		g.t.Fatal(err)
	}
}

func TestClusterAuthentication(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	made := g.cluster(clusterModel())
	c, _ := kube.only(t)
	token := g.clusterToken()
	if u, ok := c.Authenticate(token); !ok || u.Name != DefaultClients()[0].ObjectID || len(u.Groups) != 0 {
		t.Errorf("without a role: %+v %v", u, ok)
	}
	arm := must(g.credential(DefaultClientID, DefaultClientSecret, true).GetToken(g.ctx, policy.TokenRequestOptions{Scopes: []string{"https://management.core.windows.net//.default"}}))(t).Token
	for name, bad := range map[string]string{"of Resource Manager": arm, "forged": token[:len(token)-4] + "AAAA", "none": ""} {
		if _, ok := c.Authenticate(bad); ok {
			t.Errorf("a token %s is taken", name)
		}
	}
	// Whoever owns the subscription may not do anything in the cluster for that.
	g.assign("44444444-4444-4444-8444-444444444444", subscriptionScope, role("8e3af657-a8ff-443c-a75c-2fe8c4bcb635"), DefaultClients()[0].ObjectID)
	if u, _ := c.Authenticate(token); len(u.Groups) != 0 {
		t.Errorf("as owner: %+v", u)
	}
	g.assign("55555555-5555-4555-8555-555555555555", *made.ID, clusterAdminRole, DefaultClients()[0].ObjectID)
	if u, ok := c.Authenticate(token); !ok || !slices.Equal(u.Groups, []string{"system:masters"}) {
		t.Errorf("as administrator: %+v", u)
	}
	// Lesser roles are bound to what comes nearest in Kubernetes.
	for guid, group := range map[string]string{"3498e952-d568-435e-9b2c-8d77e338d7f7": "azure:rbac-admin", "a7ffa36f-339b-4b5c-8bdf-e2c188b2c0eb": "azure:rbac-writer", "7f6c6a51-bcf8-42ba-9220-52d62157d7db": "azure:rbac-reader"} {
		must(g.assignments().Delete(g.ctx, *made.ID, "55555555-5555-4555-8555-555555555555", nil))(t)
		g.assign("55555555-5555-4555-8555-555555555555", *made.ID, role(guid), DefaultClients()[0].ObjectID)
		if u, ok := c.Authenticate(token); !ok || !slices.Equal(u.Groups, []string{group}) {
			t.Errorf("with role %s: %+v", guid, u)
		}
	}
	if len(c.Objects) != 5+3 {
		t.Errorf("%d objects come with a cluster", len(c.Objects))
	}
	// So is a member of the groups that the cluster names.
	must(g.assignments().Delete(g.ctx, *made.ID, "55555555-5555-4555-8555-555555555555", nil))(t)
	const admins = "66666666-6666-4666-8666-666666666666"
	g.cloud.opt.Clients[0].Groups = []string{admins}
	if u, _ := c.Authenticate(token); !slices.Equal(u.Groups, []string{admins}) {
		t.Errorf("a member of a group is %+v", u)
	}
	m := clusterModel()
	m.Properties.AADProfile.AdminGroupObjectIDs = []*string{new(admins)}
	g.cluster(m)
	if u, _ := c.Authenticate(token); !slices.Contains(u.Groups, "system:masters") {
		t.Errorf("a member of the administrators' group is %+v", u)
	}
}

func TestClusterCredentials(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t)
	clusters := g.containers().NewManagedClustersClient()
	g.cluster(clusterModel())
	token := g.clusterToken()
	_, err := clusters.ListClusterAdminCredentials(g.ctx, "rg", "shop", nil)
	if re := refused(t, err, 400, "BadRequest"); !strings.Contains(re.Error(), "static credential is not allowed") {
		t.Error(re)
	}
	creds := must(clusters.ListClusterUserCredentials(g.ctx, "rg", "shop", nil))(t)
	config := string(creds.Kubeconfigs[0].Value)
	if !strings.Contains(config, "server: https://127.0.0.1:6443") || !strings.Contains(config, "command: kubelogin") || !strings.Contains(config, clusterAudience) {
		t.Errorf("configuration:\n%s", config)
	}
	// A token of API servers does not open Resource Manager.
	r := g.raw()
	r.token = token
	if got := r.send("GET", g.url+subscriptionScope+"/resourcegroups?api-version=2021-04-01", nil, nil); got.Status != 401 || !strings.Contains(text(got.Body), "InvalidAuthenticationTokenAudience") {
		t.Errorf("Resource Manager answers %d %s", got.Status, text(got.Body))
	}
}

func TestClusterLocalAccounts(t *testing.T) {
	t.Parallel()
	g, kube := kubeRig(t)
	m := clusterModel()
	m.Properties.AADProfile, m.Properties.DisableLocalAccounts = nil, nil
	g.cluster(m)
	c, _ := kube.only(t)
	creds := must(g.containers().NewManagedClustersClient().ListClusterAdminCredentials(g.ctx, "rg", "shop", nil))(t)
	var config struct {
		Users []struct {
			User struct{ Token string }
		}
	}
	if err := yaml.Unmarshal(creds.Kubeconfigs[0].Value, &config); err != nil {
		t.Fatal(err)
	}
	if u, ok := c.Authenticate(config.Users[0].User.Token); !ok || !slices.Contains(u.Groups, "system:masters") {
		t.Errorf("the local administrator is %+v %v", u, ok)
	}
	if _, ok := c.Authenticate(g.clusterToken()); ok {
		t.Error("a cluster that the directory knows nothing of takes its tokens")
	}
}

func TestClusterAdmission(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		access               *armcontainerservice.ManagedClusterAPIServerAccessProfile
		near, far, in        bool
		ranges               string
		public, privateNames bool
	}{
		"open":       {nil, true, true, true, "", true, false},
		"authorised": {&armcontainerservice.ManagedClusterAPIServerAccessProfile{AuthorizedIPRanges: []*string{new("203.0.113.7"), new("198.51.100.77/24")}}, true, false, true, "203.0.113.7/32 198.51.100.0/24", true, false},
		"nobody":     {&armcontainerservice.ManagedClusterAPIServerAccessProfile{AuthorizedIPRanges: []*string{new(noRange)}}, false, false, true, noRange, true, false},
		"private":    {&armcontainerservice.ManagedClusterAPIServerAccessProfile{EnablePrivateCluster: new(true), EnablePrivateClusterPublicFQDN: new(false)}, false, false, true, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, kube := kubeRig(t)
			m := clusterModel()
			m.Properties.APIServerAccessProfile = c.access
			made := g.cluster(m)
			k, _ := kube.only(t)
			for from, want := range map[sim.KubeCaller]bool{{IP: netip.MustParseAddr("203.0.113.7")}: c.near, {IP: netip.MustParseAddr("192.0.2.1")}: c.far, {IP: netip.MustParseAddr("192.0.2.1"), Inside: true}: c.in} {
				if got := k.Admits(from); got != want {
					t.Errorf("%+v admitted: %v", from, got)
				}
			}
			if (made.Properties.Fqdn != nil) != c.public || (made.Properties.PrivateFQDN != nil) != c.privateNames {
				t.Errorf("names %v %v", made.Properties.Fqdn, made.Properties.PrivateFQDN)
			}
			if c.ranges != "" {
				var got []string
				for _, r := range made.Properties.APIServerAccessProfile.AuthorizedIPRanges {
					got = append(got, *r)
				}
				if strings.Join(got, " ") != c.ranges {
					t.Errorf("ranges %v", got)
				}
			}
		})
	}
}

func TestClusterIdentity(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t, func(o *sim.Options) { o.ConsistencyByList = 0; o.ConsistencyByID = -1 })
	clusters := g.containers().NewManagedClustersClient()
	id := must(g.identities().CreateOrUpdate(g.ctx, "rg", "plane", armmsi.Identity{Location: new("westus2")}, nil))(t)
	m := clusterModel()
	m.Identity = &armcontainerservice.ManagedClusterIdentity{Type: new(armcontainerservice.ResourceIdentityTypeUserAssigned),
		UserAssignedIdentities: map[string]*armcontainerservice.ManagedServiceIdentityUserAssignedIdentitiesValue{*id.ID: {}}}
	_, err := clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	refused(t, err, 400, "ResourceMissingPermissionError")
	g.world.Step(time.Minute)
	g.assign(firstAssignment, groupPath("rg")+"virtualNetworks/net", role("4d97b98b-1d4f-4787-a291-c67834d212e7"), *id.Properties.PrincipalID)
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "shop", m, nil)
	refused(t, err, 400, "ResourceMissingPermissionError") // the assignment does not act yet
	g.world.Step(time.Minute)
	made := g.cluster(m)
	if u := made.Identity.UserAssignedIdentities[*id.ID]; u == nil || *u.PrincipalID != *id.Properties.PrincipalID {
		t.Errorf("identity %s", text(made.Identity))
	}
	m.Identity.UserAssignedIdentities = map[string]*armcontainerservice.ManagedServiceIdentityUserAssignedIdentitiesValue{*id.ID + "x": {}}
	_, err = clusters.BeginCreateOrUpdate(g.ctx, "rg", "other", m, nil)
	refused(t, err, 400, "FailedIdentityOperation")
}
