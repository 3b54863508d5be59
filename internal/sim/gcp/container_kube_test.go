package gcp

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/api/cloudresourcemanager/v3"
	gke "google.golang.org/api/container/v1"
	"google.golang.org/api/iam/v1"

	"github.com/zopday/provisioner/internal/sim"
)

func TestEndpointsAdmit(t *testing.T) {
	t.Parallel()
	outside, office := sim.KubeCaller{IP: netip.MustParseAddr("203.0.113.7")}, sim.KubeCaller{IP: netip.MustParseAddr("198.51.100.9")}
	inside := sim.KubeCaller{IP: netip.MustParseAddr("10.1.0.9"), Inside: true}
	for name, c := range map[string]struct {
		dns, public bool
		authorized  []any // nil: not enabled
		want        []bool
	}{
		"closed":                  {false, false, nil, []bool{false, false, true}},
		"by the DNS endpoint":     {true, false, nil, []bool{true, true, true}},
		"open":                    {false, true, nil, []bool{true, true, true}},
		"to the office alone":     {false, true, []any{Doc{"cidrBlock": "198.51.100.0/24"}}, []bool{false, true, true}},
		"to nobody":               {false, true, []any{}, []bool{false, false, true}},
		"private with authorised": {false, false, []any{Doc{"cidrBlock": "198.51.100.0/24"}}, []bool{false, false, true}},
	} {
		ip := Doc{"enabled": true, "enablePublicEndpoint": c.public, "authorizedNetworksConfig": Doc{"enabled": c.authorized != nil, "cidrBlocks": c.authorized}}
		cl := &cluster{Doc: Doc{"controlPlaneEndpointsConfig": Doc{"dnsEndpointConfig": Doc{"allowExternalTraffic": c.dns}, "ipEndpointsConfig": ip}}}
		got := []bool{admits(cl, outside), admits(cl, office), admits(cl, inside)}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: outside, office, inside: %v, want %v", name, got, c.want)
		}
	}
}

func TestEndpointsFollowUpdates(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.shop()
	kc, _ := g.kube.only(t, anyNodes(3))
	outside := sim.KubeCaller{IP: netip.MustParseAddr("203.0.113.7")}
	if !kc.Admits(outside) {
		t.Error("the DNS endpoint lets nobody in")
	}
	g.ok(g.clusters.Update(shopCluster, &gke.UpdateClusterRequest{Update: &gke.ClusterUpdate{DesiredControlPlaneEndpointsConfig: &gke.ControlPlaneEndpointsConfig{
		DnsEndpointConfig: &gke.DNSEndpointConfig{ForceSendFields: []string{"AllowExternalTraffic"}}}}}).Do())
	if kc.Admits(outside) || !kc.Admits(sim.KubeCaller{IP: outside.IP, Inside: true}) {
		t.Error("a closed endpoint does not tell inside from outside")
	}
}

func TestTokensOfClusters(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.shop()
	kc, _ := g.kube.only(t, anyNodes(3))
	admin := func(token string) (known, master bool) {
		user, ok := kc.Authenticate(token)
		return ok, slices.Contains(user.Groups, "system:masters")
	}
	if ok, master := admin("ya29.example"); !ok || !master {
		t.Errorf("the owner: %t, %t", ok, master)
	}
	for _, token := range []string{"", "made up", "ya29.other"} {
		if ok, _ := admin(token); ok {
			t.Errorf("the token %q was taken", token)
		}
	}
	account, err := client(g.rig, iam.NewService).Projects.ServiceAccounts.Create("projects/"+testProject, &iam.CreateServiceAccountRequest{AccountId: "shop-deploy"}).Do()
	if err != nil {
		t.Fatal(err)
	}
	// A token as the token endpoint gives out; that is tested elsewhere.
	give := func(token string, expires time.Time) {
		g.world.Lock()
		defer g.world.Unlock()
		g.cloud.tokens.st.Tokens[hashed(token)] = &accessToken{Email: account.Email, Project: testProject, Expires: expires}
	}
	give("ya29.c.fresh", g.world.Clock.Now().Add(time.Hour))
	give("ya29.c.old", g.world.Clock.Now().Add(-time.Second))
	if ok, master := admin("ya29.c.fresh"); !ok || master {
		t.Errorf("a service account without roles: %t, %t", ok, master)
	}
	if ok, _ := admin("ya29.c.old"); ok {
		t.Error("an expired token was taken")
	}
	projects := client(g.rig, cloudresourcemanager.NewService).Projects
	policy, err := projects.GetIamPolicy("projects/"+testProject, &cloudresourcemanager.GetIamPolicyRequest{}).Do()
	if err != nil {
		t.Fatal(err)
	}
	policy.Bindings = append(policy.Bindings, &cloudresourcemanager.Binding{Role: "roles/container.admin", Members: []string{"serviceAccount:" + account.Email}})
	if _, err := projects.SetIamPolicy("projects/"+testProject, &cloudresourcemanager.SetIamPolicyRequest{Policy: policy}).Do(); err != nil {
		t.Fatal(err)
	}
	if ok, master := admin("ya29.c.fresh"); !ok || !master {
		t.Errorf("an administrator of clusters: %t, %t", ok, master)
	}
}

// TestClusterWithoutServer: a simulation without API servers serves the API of GKE all the same.
func TestClusterWithoutServer(t *testing.T) {
	t.Parallel()
	g := newGKEOn(t, nil)
	g.shop(func(c *gke.Cluster) { c.ControlPlaneEndpointsConfig.IpEndpointsConfig.EnablePublicEndpoint = true })
	c, err := g.clusters.Get(shopCluster).Do()
	if err != nil || c.MasterAuth.ClusterCaCertificate == "" || netip.MustParseAddr(c.Endpoint).IsPrivate() {
		t.Fatalf("cluster: %+v, %v", c, err)
	}
	private := netip.MustParseAddr(c.PrivateClusterConfig.PrivateEndpoint)
	if !netip.MustParsePrefix("10.1.0.0/20").Contains(private) || c.ControlPlaneEndpointsConfig.DnsEndpointConfig.Endpoint == "" {
		t.Errorf("endpoints: %+v", c.ControlPlaneEndpointsConfig)
	}
}

// TestClusterKept: clusters outlive the process, their API servers do not, and are opened again.
func TestClusterKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := newGKE(t)
	stop, err := g.world.Persist(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	g.shop()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	again := newGKE(t)
	stop, err = again.world.Persist(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() }) // the folder goes with the test
	if c, err := again.clusters.Get(shopCluster).Do(); err != nil || c.Status != "RUNNING" || c.CurrentNodeCount != 3 || c.Endpoint == "" {
		t.Fatalf("kept: %+v, %v", c, err)
	}
	again.kube.only(t, anyNodes(3))
	again.ok(again.clusters.NodePools.SetSize(shopCluster+"/nodePools/first", &gke.SetNodePoolSizeRequest{NodeCount: 2}).Do())
	again.kube.only(t, anyNodes(6))
	again.ok(again.clusters.Delete(shopCluster).Do())
	again.kube.none(t)
}
