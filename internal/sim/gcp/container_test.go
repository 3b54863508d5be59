package gcp

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/api/cloudkms/v1"
	"google.golang.org/api/compute/v1"
	gke "google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/sim"
)

// fakeKube notes what it is told.
type fakeKube struct {
	mu    sync.Mutex
	open  map[string]sim.KubeCluster
	nodes map[string][]sim.KubeNode
	ports int
}

func (k *fakeKube) Open(c sim.KubeCluster) sim.KubeEndpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[c.ID] = c
	k.ports++
	return sim.KubeEndpoint{Address: fmt.Sprintf("127.0.0.1:%d", 7000+k.ports), CA: k.CA()}
}

func (k *fakeKube) SetNodes(id string, nodes []sim.KubeNode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[id] = nodes
}

func (k *fakeKube) Close(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, id)
	delete(k.nodes, id)
}

func (k *fakeKube) CA() []byte { return []byte("the authority") }

// only is the one cluster that is open, with its nodes.
func (k *fakeKube) only(t *testing.T, ready func(nodes []sim.KubeNode) bool) (sim.KubeCluster, []sim.KubeNode) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		k.mu.Lock()
		for id, c := range k.open {
			if nodes := k.nodes[id]; len(k.open) == 1 && ready(nodes) {
				k.mu.Unlock()
				return c, nodes
			}
		}
		k.mu.Unlock()
	}
	t.Fatalf("clusters of the fake: %d open, nodes %v", len(k.open), k.nodes)
	return sim.KubeCluster{}, nil
}

func (k *fakeKube) none(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		k.mu.Lock()
		n := len(k.open)
		k.mu.Unlock()
		if n == 0 {
			return
		}
	}
	t.Error("a cluster's API server was not closed")
}

// gkeRig is a rig with clients of GKE and Cloud KMS, and a network of its own.
type gkeRig struct {
	*rig
	kube     *fakeKube
	clusters *gke.ProjectsLocationsClustersService
	ops      *gke.ProjectsLocationsOperationsService
	kms      *cloudkms.ProjectsLocationsKeyRingsService
}

const (
	gkeRegion   = "europe-west1"
	gkeLocation = "projects/" + testProject + "/locations/" + gkeRegion
)

func newGKE(t *testing.T, opt ...func(*sim.Options)) *gkeRig {
	t.Helper()
	kube := &fakeKube{open: map[string]sim.KubeCluster{}, nodes: map[string][]sim.KubeNode{}}
	g := newGKEOn(t, kube, opt...)
	g.kube = kube
	return g
}

// newGKEOn is newGKE with other API servers than the fake's, or none.
func newGKEOn(t *testing.T, servers sim.Kubernetes, opt ...func(*sim.Options)) *gkeRig {
	t.Helper()
	g := &gkeRig{}
	o := sim.Options{Seed: 1, ConsistencyByID: -1, ConsistencyByList: -1, EmptyPages: -1}
	for _, f := range opt {
		f(&o)
	}
	w := sim.New(o)
	w.Clock.Stop()
	cloud := New(w, Options{Kubernetes: servers})
	srv := httptest.NewServer(cloud)
	t.Cleanup(srv.Close)
	g.rig = &rig{t: t, world: w, cloud: cloud, url: srv.URL, token: "ya29.example"}
	c := client(g.rig, gke.NewService)
	g.clusters, g.ops = c.Projects.Locations.Clusters, c.Projects.Locations.Operations
	g.kms = client(g.rig, cloudkms.NewService).Projects.Locations.KeyRings
	return g
}

// finished steps the clock until an operation of GKE is done.
func (g *gkeRig) finished(op *gke.Operation, err error) *gke.Operation {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	name := "projects/" + testProject + "/locations/" + op.Zone + "/operations/" + op.Name
	for range 400 {
		if op, err = g.ops.Get(name).Do(); err != nil {
			g.t.Fatal(err)
		}
		if op.Status == "DONE" {
			return op
		}
		g.world.Step(10 * time.Second)
	}
	g.t.Fatalf("operation %s does not end: %+v", name, op)
	return nil
}

func (g *gkeRig) ok(op *gke.Operation, err error) {
	g.t.Helper()
	if op := g.finished(op, err); op.Error != nil {
		g.t.Fatalf("operation %s failed: %+v", op.OperationType, op.Error)
	}
}

// subnet makes a network with a subnetwork for a cluster.
func (g *gkeRig) subnet(name string) {
	g.t.Helper()
	c := g.compute()
	g.network(name)
	g.fine(c.Subnetworks.Insert(testProject, gkeRegion, &compute.Subnetwork{Name: name, Network: "global/networks/" + name, IpCidrRange: "10.1.0.0/20",
		SecondaryIpRanges: []*compute.SubnetworkSecondaryRange{{RangeName: "pods", IpCidrRange: "10.16.0.0/14"}, {RangeName: "services", IpCidrRange: "10.2.0.0/20"},
			{RangeName: "tiny", IpCidrRange: "10.3.0.0/26"}}}).Do())
}

// key makes a key that GKE may use.
func (g *gkeRig) key(region, id string, granted bool) string {
	g.t.Helper()
	parent := "projects/" + testProject + "/locations/" + region
	if _, err := g.kms.Get(parent + "/keyRings/shop").Do(); err != nil {
		if _, err := g.kms.Create(parent, &cloudkms.KeyRing{}).KeyRingId("shop").Do(); err != nil {
			g.t.Fatal(err)
		}
	}
	k, err := g.kms.CryptoKeys.Create(parent+"/keyRings/shop", &cloudkms.CryptoKey{Purpose: "ENCRYPT_DECRYPT", Labels: map[string]string{"job": "job_1"}}).CryptoKeyId(id).Do()
	if err != nil {
		g.t.Fatal(err)
	}
	if granted {
		_, err := g.kms.CryptoKeys.SetIamPolicy(k.Name, &cloudkms.SetIamPolicyRequest{Policy: &cloudkms.Policy{Bindings: []*cloudkms.Binding{{
			Role: "roles/cloudkms.cryptoKeyEncrypterDecrypter", Members: []string{"serviceAccount:service-123456789012@container-engine-robot.iam.gserviceaccount.com"}}}}}).Do()
		if err != nil {
			g.t.Fatal(err)
		}
	}
	return k.Name
}

// hardened is a cluster as a careful caller asks for it.
func hardened(name, key string) *gke.Cluster {
	return &gke.Cluster{
		Name: name, Network: "projects/" + testProject + "/global/networks/shop", Subnetwork: "shop", ResourceLabels: map[string]string{"job": "job_1"},
		ReleaseChannel: &gke.ReleaseChannel{Channel: "REGULAR"}, WorkloadIdentityConfig: &gke.WorkloadIdentityConfig{WorkloadPool: testProject + ".svc.id.goog"},
		IpAllocationPolicy: &gke.IPAllocationPolicy{UseIpAliases: true, ClusterSecondaryRangeName: "pods", ServicesSecondaryRangeName: "services"},
		NetworkConfig:      &gke.NetworkConfig{DatapathProvider: "ADVANCED_DATAPATH", EnableIntraNodeVisibility: true, DefaultEnablePrivateNodes: true},
		ControlPlaneEndpointsConfig: &gke.ControlPlaneEndpointsConfig{DnsEndpointConfig: &gke.DNSEndpointConfig{AllowExternalTraffic: true},
			IpEndpointsConfig: &gke.IPEndpointsConfig{Enabled: true, EnablePublicEndpoint: false, ForceSendFields: []string{"EnablePublicEndpoint"}}},
		DatabaseEncryption:            &gke.DatabaseEncryption{State: "ENCRYPTED", KeyName: key},
		AnonymousAuthenticationConfig: &gke.AnonymousAuthenticationConfig{Mode: "LIMITED"},
		RbacBindingConfig:             &gke.RBACBindingConfig{ForceSendFields: []string{"EnableInsecureBindingSystemAuthenticated", "EnableInsecureBindingSystemUnauthenticated"}},
		NodePools: []*gke.NodePool{{Name: "first", InitialNodeCount: 1, Config: &gke.NodeConfig{MachineType: "e2-standard-2", DiskSizeGb: 50,
			ShieldedInstanceConfig: &gke.ShieldedInstanceConfig{EnableSecureBoot: true, EnableIntegrityMonitoring: true},
			Taints:                 []*gke.NodeTaint{{Key: "only", Value: "web", Effect: "NO_SCHEDULE"}}, Labels: map[string]string{"tier": "web"}}}},
	}
}

func anyNodes(n int) func([]sim.KubeNode) bool {
	return func(nodes []sim.KubeNode) bool { return len(nodes) == n }
}

func TestClusterLife(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	before := g.world.Snapshot()
	g.subnet("shop")
	key := g.key(gkeRegion, "secrets", true)
	op, err := g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: hardened("shop", key)}).Do()
	if err != nil || op.OperationType != "CREATE_CLUSTER" || op.Status != "RUNNING" || !strings.HasSuffix(op.TargetLink, "/v1/projects/123456789012/locations/europe-west1/clusters/shop") {
		t.Fatalf("create: %+v, %v", op, err)
	}
	name := gkeLocation + "/clusters/shop"
	c, err := g.clusters.Get(name).Do()
	if err != nil || c.Status != "PROVISIONING" || c.Endpoint != "" {
		t.Fatalf("at first: %+v, %v", c, err)
	}
	began := g.world.Clock.Now()
	g.ok(op, nil)
	if took := g.world.Clock.Now().Sub(began); took < 5*time.Minute || took > 8*time.Minute {
		t.Errorf("a cluster takes %s", took)
	}
	if c, err = g.clusters.Get(name).Do(); err != nil || c.Status != "RUNNING" || c.CurrentMasterVersion != "1.35.8-gke.1036000" || c.CurrentNodeCount != 3 || len(c.Locations) != 3 {
		t.Fatalf("cluster: %+v, %v", c, err)
	}
	kc, nodes := g.kube.only(t, anyNodes(3))
	ca, _ := base64.StdEncoding.DecodeString(c.MasterAuth.ClusterCaCertificate)
	dns := c.ControlPlaneEndpointsConfig.DnsEndpointConfig
	if kc.Version != "1.35" || dns.Endpoint != "127.0.0.1:7001" || c.Endpoint != "127.0.0.1:7001" || string(ca) != "the authority" || !dns.AllowExternalTraffic {
		t.Errorf("endpoints: %+v, %s, CA %q", dns, c.Endpoint, ca)
	}
	if c.ControlPlaneEndpointsConfig.IpEndpointsConfig.PublicEndpoint != "" || !c.PrivateClusterConfig.EnablePrivateEndpoint || c.DatabaseEncryption.CurrentState != "CURRENT_STATE_ENCRYPTED" ||
		!c.NetworkConfig.EnableIntraNodeVisibility || c.RbacBindingConfig.EnableInsecureBindingSystemAuthenticated || c.NodePools[0].Config.WorkloadMetadataConfig.Mode != "GKE_METADATA" {
		t.Errorf("hardening does not read back: %+v", c)
	}
	zones := map[string]bool{}
	for _, n := range nodes {
		zones[n.Zone] = true
		if n.Labels["cloud.google.com/gke-nodepool"] != "first" || n.Labels["tier"] != "web" || n.Arch != "amd64" || n.Type != "e2-standard-2" ||
			!slices.Equal(n.Taints, []sim.KubeTaint{{Key: "only", Value: "web", Effect: "NoSchedule"}}) || n.ProviderID != "gce://"+testProject+"/"+n.Zone+"/"+n.Name {
			t.Errorf("node: %+v", n)
		}
	}
	if len(zones) != 3 {
		t.Errorf("nodes in %v", zones)
	}

	g.ok(g.clusters.NodePools.Create(name, &gke.CreateNodePoolRequest{NodePool: &gke.NodePool{Name: "more", InitialNodeCount: 1, Locations: []string{"europe-west1-b"},
		Config: &gke.NodeConfig{MachineType: "c4a-standard-1"}}}).Do())
	_, nodes = g.kube.only(t, anyNodes(4))
	if i := slices.IndexFunc(nodes, func(n sim.KubeNode) bool { return n.Arch == "arm64" }); i < 0 || nodes[i].Taints[0].Key != "kubernetes.io/arch" {
		t.Errorf("no Arm node: %+v", nodes)
	}
	pool, err := g.clusters.NodePools.Get(name + "/nodePools/more").Do()
	if err != nil || pool.Status != "RUNNING" || len(pool.InstanceGroupUrls) != 1 || !pool.Management.AutoUpgrade || pool.Config.DiskType != "hyperdisk-balanced" {
		t.Errorf("pool: %+v, %v", pool, err)
	}
	g.ok(g.clusters.NodePools.SetSize(name+"/nodePools/more", &gke.SetNodePoolSizeRequest{NodeCount: 2}).Do())
	g.kube.only(t, anyNodes(5))
	g.ok(g.clusters.NodePools.Delete(name + "/nodePools/more").Do())
	g.kube.only(t, anyNodes(3))

	if left := kinds(g.world.Residue("job_1")); !slices.Contains(left, "cluster") || !slices.Contains(left, "instance") || !slices.Contains(left, "node-pool") {
		t.Errorf("residue of a cluster: %v", left)
	}
	g.ok(g.clusters.Delete(name).Do())
	g.kube.none(t)
	_, err = g.clusters.Get(name).Do()
	refused(t, err, 404, "notFound")
	g.fine(g.compute().Subnetworks.Delete(testProject, gkeRegion, "shop").Do())
	g.fine(g.compute().Networks.Delete(testProject, "shop").Do())
	if _, err := g.kms.CryptoKeys.CryptoKeyVersions.Destroy(key+"/cryptoKeyVersions/1", &cloudkms.DestroyCryptoKeyVersionRequest{}).Do(); err != nil {
		t.Fatal(err)
	}
	if left := g.world.Residue("job_1"); len(left) != 0 {
		t.Errorf("residue: %v", kinds(left))
	}
	after := g.world.Snapshot()
	for k := range after {
		if _, had := before[k]; !had {
			t.Errorf("left behind: %s", k)
		}
	}
}

func kinds(objects []sim.Object) []string {
	var out []string
	for _, o := range objects {
		out = append(out, o.Kind)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
