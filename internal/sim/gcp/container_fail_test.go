package gcp

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/cloudkms/v1"
	"google.golang.org/api/compute/v1"
	gke "google.golang.org/api/container/v1"
	"google.golang.org/api/iam/v1"

	"github.com/zopday/provisioner/internal/sim"
)

const shopCluster = gkeLocation + "/clusters/shop"

// shop makes a network, a key and a cluster in it.
func (g *gkeRig) shop(change ...func(c *gke.Cluster)) {
	g.t.Helper()
	g.subnet("shop")
	c := hardened("shop", g.key(gkeRegion, "secrets", true))
	for _, f := range change {
		f(c)
	}
	g.ok(g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: c}).Do())
}

func TestClusterCreateFails(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.subnet("shop")
	key := g.key(gkeRegion, "secrets", true)
	create := func() *gke.Operation {
		return g.finished(g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: hardened("shop", key)}).Do())
	}
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Service: "container", Operation: "projects.locations.clusters.create", Code: "INTERNAL", Message: "Internal error."})
	op := create()
	if op.Error == nil || op.Error.Code != 13 || op.StatusMessage != "Internal error." || len(op.ClusterConditions) != 1 {
		t.Errorf("operation: %+v", op)
	}
	c, err := g.clusters.Get(shopCluster).Do()
	if err != nil || c.Status != "ERROR" || c.StatusMessage != "Internal error." || c.Endpoint != "" {
		t.Fatalf("what is left of it: %+v, %v", c, err)
	}
	_, err = g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: hardened("shop", key)}).Do()
	refused(t, err, 409, "alreadyExists")
	_, err = g.clusters.NodePools.Create(shopCluster, &gke.CreateNodePoolRequest{NodePool: &gke.NodePool{Name: "more", InitialNodeCount: 1}}).Do()
	refused(t, err, 400, "failedPrecondition")
	g.ok(g.clusters.Delete(shopCluster).Do())

	g.fault(sim.Fault{Kind: sim.FaultCapacity, Service: "container", Operation: "projects.locations.clusters.create", Match: "europe-west1-c"})
	op = create()
	if op.Error == nil || op.Error.Code != 8 || op.ClusterConditions[0].Code != "GCE_STOCKOUT" || !strings.Contains(op.Error.Message, "does not have enough resources available to fulfill request: europe-west1-c") {
		t.Errorf("operation: %+v", op)
	}
	if c, err = g.clusters.Get(shopCluster).Do(); err != nil || c.Status != "ERROR" || c.Conditions[0].Code != "GCE_STOCKOUT" {
		t.Errorf("cluster: %+v, %v", c, err)
	}
	g.failed2(g.compute().Networks.Delete(testProject, "shop").Do())
	g.ok(g.clusters.Delete(shopCluster).Do())

	g.fault(sim.Fault{Kind: sim.FaultSwallow, Service: "container", Operation: "projects.locations.clusters.create"})
	if _, err := g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: hardened("shop", key)}).Do(); err != nil {
		t.Fatal(err)
	}
	_, err = g.clusters.Get(shopCluster).Do()
	refused(t, err, 404, "notFound")
	g.kube.none(t)
}

func TestNodePoolStockout(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.shop()
	g.fault(sim.Fault{Kind: sim.FaultCapacity, Service: "compute", Operation: "instances.insert", Match: "europe-west1-b", Count: -1})
	op := g.finished(g.clusters.NodePools.Create(shopCluster, &gke.CreateNodePoolRequest{NodePool: &gke.NodePool{Name: "more", InitialNodeCount: 1}}).Do())
	if op.Error == nil || op.NodepoolConditions[0].Code != "GCE_STOCKOUT" || !strings.Contains(op.Error.Message, "Not all instances running in IGM after") ||
		!strings.Contains(op.Error.Message, "Current errors: [GCE_STOCKOUT]: Instance 'gke-shop-more-") {
		t.Fatalf("operation: %+v", op)
	}
	pool, err := g.clusters.NodePools.Get(shopCluster + "/nodePools/more").Do()
	if err != nil || pool.Status != "ERROR" || pool.Conditions[0].Code != "GCE_STOCKOUT" {
		t.Errorf("pool: %+v, %v", pool, err)
	}
	if c, err := g.clusters.Get(shopCluster).Do(); err != nil || c.Status != "RUNNING" || c.CurrentNodeCount != 5 {
		t.Errorf("cluster: %+v, %v", c, err)
	}
	g.ok(g.clusters.NodePools.Delete(shopCluster + "/nodePools/more").Do())
	op, err = g.clusters.NodePools.Create(shopCluster, &gke.CreateNodePoolRequest{NodePool: &gke.NodePool{Name: "again", InitialNodeCount: 1}}).Do()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.ops.Cancel("projects/"+testProject+"/locations/"+gkeRegion+"/operations/"+op.Name, &gke.CancelOperationRequest{}).Do(); err != nil {
		t.Fatal(err)
	}
	if op = g.finished(op, nil); op.Error == nil || op.Error.Code != 1 {
		t.Errorf("cancelled: %+v", op)
	}
}

func TestNodesThatDoNotJoin(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.subnet("shop")
	g.fine(g.compute().Firewalls.Insert(testProject, &compute.Firewall{Name: "closed", Network: "global/networks/shop", Direction: "EGRESS", Priority: 900,
		Denied: []*compute.FirewallDenied{{IPProtocol: "all"}}, DestinationRanges: []string{"0.0.0.0/0"}}).Do())
	op := g.finished(g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: hardened("shop", g.key(gkeRegion, "secrets", true))}).Do())
	if op.Error == nil || !strings.Contains(op.Error.Message, "All cluster resources were brought up, but: only 0 nodes out of 3 have registered") {
		t.Errorf("operation: %+v", op)
	}
	g.kube.only(t, anyNodes(0))
}

func TestNodeAccounts(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	s := client(g.rig, iam.NewService)
	sa, err := s.Projects.ServiceAccounts.Create("projects/"+testProject, &iam.CreateServiceAccountRequest{AccountId: "shop-nodes"}).Do()
	if err != nil {
		t.Fatal(err)
	}
	g.shop(func(c *gke.Cluster) { c.NodePools[0].Config.ServiceAccount = sa.Email })
	c, err := g.clusters.Get(shopCluster).Do()
	if err != nil || c.Status != "RUNNING" || len(c.Conditions) != 1 || c.Conditions[0].Code != "NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS" {
		t.Errorf("an account without roles: %+v, %v", c, err)
	}
	if _, err := s.Projects.ServiceAccounts.Delete(sa.Name).Do(); err != nil {
		t.Fatal(err)
	}
	if c, err = g.clusters.Get(shopCluster).Do(); err != nil || len(c.Conditions) != 1 || c.Conditions[0].Code != "GKE_SERVICE_ACCOUNT_DELETED" {
		t.Errorf("a deleted account: %+v, %v", c, err)
	}
	if _, err := g.kms.CryptoKeys.CryptoKeyVersions.Destroy(gkeLocation+"/keyRings/shop/cryptoKeys/secrets/cryptoKeyVersions/1", &cloudkms.DestroyCryptoKeyVersionRequest{}).Do(); err != nil {
		t.Fatal(err)
	}
	if c, err = g.clusters.Get(shopCluster).Do(); err != nil || len(c.Conditions) != 2 || c.Conditions[1].Code != "CLOUD_KMS_KEY_ERROR" {
		t.Errorf("a key that goes: %+v, %v", c, err)
	}
}

func TestClusterFromOutside(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.shop()
	if _, err := g.world.SetObjectState(shopCluster, "RECONCILING", "", ""); err != nil {
		t.Fatal(err)
	}
	_, err := g.clusters.NodePools.Create(shopCluster, &gke.CreateNodePoolRequest{NodePool: &gke.NodePool{Name: "more", InitialNodeCount: 1}}).Do()
	if e := refused(t, err, 400, "failedPrecondition"); !strings.Contains(e.Message, "Cluster is running incompatible operation operation-") {
		t.Error(e.Message)
	}
	g.world.Step(7 * time.Minute)
	if c, err := g.clusters.Get(shopCluster).Do(); err != nil || c.Status != "RUNNING" {
		t.Errorf("after the upgrade: %+v, %v", c, err)
	}
	for id, want := range map[string]string{shopCluster: "DEGRADED", shopCluster + "/nodePools/first": "ERROR"} {
		if _, err := g.world.SetObjectState(id, want, "GCE_QUOTA_EXCEEDED", "no more"); err != nil {
			t.Fatal(err)
		}
	}
	c, err := g.clusters.Get(shopCluster).Do()
	if err != nil || c.Status != "DEGRADED" || c.Conditions[0].Code != "GCE_QUOTA_EXCEEDED" || c.NodePools[0].Status != "ERROR" || c.NodePools[0].Conditions[0].Message != "no more" {
		t.Errorf("driven: %+v, %v", c, err)
	}
	if _, err := g.world.SetObjectState(shopCluster, "SOMEHOW", "", ""); err == nil {
		t.Error("a state that is none was taken")
	}
	if _, err := g.world.RemoveObject(shopCluster); err != nil {
		t.Fatal(err)
	}
	g.kube.none(t)
	g.fine(g.compute().Subnetworks.Delete(testProject, gkeRegion, "shop").Do())
	// The control API makes clusters, too, and does not wait.
	g.subnet("other")
	g.world.Lock()
	_, err = g.cloud.Invoke("container", "projects.locations.clusters.create", testProject, "", map[string]any{"parent": gkeLocation,
		"cluster": map[string]any{"name": "theirs", "network": "other", "subnetwork": "other", "initialNodeCount": 1}})
	g.world.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := g.clusters.Get(gkeLocation + "/clusters/theirs").Do(); err != nil || c.Status != "RUNNING" {
		t.Errorf("made from outside: %+v, %v", c, err)
	}
}

func TestClusterContainment(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.shop()
	c := g.compute()
	_, err := c.Subnetworks.Delete(testProject, gkeRegion, "shop").Do()
	refused(t, err, 400, "resourceInUseByAnotherResource")
	g.failed2(c.Networks.Delete(testProject, "shop").Do())
	rules, err := c.Firewalls.List(testProject).Do()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rules.Items {
		if strings.HasPrefix(r.Name, "gke-shop-") {
			names = append(names, r.Name[strings.LastIndex(r.Name, "-")+1:])
		}
	}
	slices.Sort(names)
	if strings.Join(names, " ") != "all exkubelet inkubelet vms" {
		t.Errorf("firewall rules: %v", names)
	}
	vms, err := c.Instances.AggregatedList(testProject).Filter("labels.goog-k8s-cluster-name=shop").Do()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, scope := range vms.Items {
		for _, vm := range scope.Instances {
			n++
			if len(vm.NetworkInterfaces[0].AccessConfigs) != 0 || vm.Labels["job"] != "job_1" || vm.Labels["goog-k8s-node-pool-name"] != "first" || !vm.ShieldedInstanceConfig.EnableSecureBoot {
				t.Errorf("a private node: %+v", vm)
			}
		}
	}
	if n != 3 {
		t.Errorf("%d instances", n)
	}
	kc, _ := g.kube.only(t, anyNodes(3))
	svc := sim.KubeService{Namespace: "web", Name: "front", UID: "0a1b2c3d-1111-2222-3333-444455556666", Ports: []int{80, 443}}
	_, ip, err := kc.Cloud.EnsureLoadBalancer(context.Background(), svc)
	if err != nil || netip.MustParseAddr(ip).IsPrivate() {
		t.Fatalf("load balancer: %s, %v", ip, err)
	}
	if _, again, err := kc.Cloud.EnsureLoadBalancer(context.Background(), svc); err != nil || again != ip {
		t.Errorf("a second time: %s, %v", again, err)
	}
	rule, err := c.ForwardingRules.Get(testProject, gkeRegion, "a0a1b2c3d111122223333444455556666"[:32]).Do()
	if err != nil || rule.Description != `{"kubernetes.io/service-name":"web/front"}` || rule.LoadBalancingScheme != "EXTERNAL" || !slices.Equal(rule.Ports, []string{"80", "443"}) {
		t.Errorf("forwarding rule: %+v, %v", rule, err)
	}
	inside := sim.KubeService{Namespace: "web", Name: "inside", UID: "1a1b2c3d-1111-2222-3333-444455556666", Ports: []int{80}, Annotations: map[string]string{"networking.gke.io/load-balancer-type": "Internal"}}
	if _, ip, err := kc.Cloud.EnsureLoadBalancer(context.Background(), inside); err != nil || !strings.HasPrefix(ip, "10.1.") {
		t.Errorf("internal load balancer: %s, %v", ip, err)
	}
	if done, err := kc.Cloud.DeleteLoadBalancer(context.Background(), inside); err != nil || !done {
		t.Errorf("deletion of a load balancer: %v, %v", done, err)
	}
	disk := sim.KubeVolume{Namespace: "web", Name: "data", UID: "2a1b2c3d-1111-2222-3333-444455556666", GiB: 20, Zone: "europe-west1-c", StorageClass: map[string]string{"type": "pd-ssd"}}
	handle, err := kc.Cloud.EnsureDisk(context.Background(), disk)
	if err != nil || handle != "projects/"+testProject+"/zones/europe-west1-c/disks/pvc-"+disk.UID {
		t.Fatalf("disk: %s, %v", handle, err)
	}

	// Deleted without draining, a cluster leaves behind what its controllers made; a firewall rule of those blocks the network.
	g.ok(g.clusters.Delete(shopCluster).Do())
	g.fine(c.Subnetworks.Delete(testProject, gkeRegion, "shop").Do())
	if text := g.failed2(c.Networks.Delete(testProject, "shop").Do()); !strings.Contains(text, "k8s-") {
		t.Error(text)
	}
	left := g.world.Objects(sim.ObjectFilter{Cloud: "gcp", Service: "compute", Kind: "disk"})
	if len(left) != 1 || left[0].Tags["goog-k8s-cluster-name"] != "shop" || left[0].Tags["job"] != "job_1" {
		t.Errorf("disks left: %+v", left)
	}
	if _, err := kc.Cloud.EnsureDisk(context.Background(), disk); err == nil {
		t.Error("a cluster that is gone made a disk")
	}
}

func TestStorageClasses(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.shop()
	kc, _ := g.kube.only(t, anyNodes(3))
	var byDefault []string
	for _, o := range kc.Objects {
		var class struct {
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
			Parameters map[string]string
		}
		if err := json.Unmarshal(o.JSON, &class); err != nil || o.Path != "/apis/storage.k8s.io/v1/storageclasses" {
			t.Fatalf("%s: %v", o.Path, err)
		}
		if class.Metadata.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			byDefault = append(byDefault, class.Metadata.Name+" "+class.Parameters["type"])
		}
	}
	if len(kc.Objects) != 3 || !slices.Equal(byDefault, []string{"standard-rwo pd-balanced"}) {
		t.Errorf("%d storage classes, by default %v", len(kc.Objects), byDefault)
	}
}
