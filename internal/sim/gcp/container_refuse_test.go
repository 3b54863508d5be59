package gcp

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"
	gke "google.golang.org/api/container/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/serviceusage/v1"

	"github.com/zopday/provisioner/internal/sim"
)

func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.subnet("shop")
	good, elsewhere, forbidden := g.key(gkeRegion, "good", true), g.key("europe-west4", "far", true), g.key(gkeRegion, "forbidden", false)
	pool := func(change func(p *gke.NodePool)) func(c *gke.Cluster) {
		return func(c *gke.Cluster) { change(c.NodePools[0]) }
	}
	for name, bad := range map[string]struct {
		change func(c *gke.Cluster)
		says   string
	}{
		"a name of 41 characters":     {func(c *gke.Cluster) { c.Name = strings.Repeat("a", 41) }, "cluster.name"},
		"a name that ends in a dash":  {func(c *gke.Cluster) { c.Name = "shop-" }, "cluster.name"},
		"no nodes at all":             {func(c *gke.Cluster) { c.NodePools = nil }, "Cluster.initial_node_count must be greater than zero."},
		"an unknown network":          {func(c *gke.Cluster) { c.Network = "nowhere" }, `Network "nowhere" does not exist.`},
		"a subnetwork of another one": {func(c *gke.Cluster) { c.Network = "default" }, `is not valid for Network "default"`},
		"no subnetwork":               {func(c *gke.Cluster) { c.Subnetwork = "" }, "custom subnet mode"},
		"a range that is not there":   {func(c *gke.Cluster) { c.IpAllocationPolicy.ClusterSecondaryRangeName = "none" }, `Pod secondary range "none" not found in network`},
		"one range for both":          {func(c *gke.Cluster) { c.IpAllocationPolicy.ServicesSecondaryRangeName = "pods" }, "should not be the same as service secondary range name"},
		"pods in too small a range":   {func(c *gke.Cluster) { c.IpAllocationPolicy.ClusterSecondaryRangeName = "tiny" }, "too small"},
		"a version that is none":      {func(c *gke.Cluster) { c.InitialClusterVersion = "1.21" }, `No valid versions with the prefix "1.21"`},
		"no channel":                  {func(c *gke.Cluster) { c.ReleaseChannel.Channel = "UNSPECIFIED" }, "release channel"},
		"a foreign workload pool":     {func(c *gke.Cluster) { c.WorkloadIdentityConfig.WorkloadPool = "else.svc.id.goog" }, "workload pool"},
		"two kinds of policies":       {func(c *gke.Cluster) { c.NetworkPolicy = &gke.NetworkPolicy{Enabled: true} }, "DatapathProvider=ADVANCED_DATAPATH"},
		"a key of another region":     {func(c *gke.Cluster) { c.DatabaseEncryption.KeyName = elsewhere }, "must be in the region of the cluster"},
		"a key that is not granted":   {func(c *gke.Cluster) { c.DatabaseEncryption.KeyName = forbidden }, "cloudkms.cryptoKeyVersions.useToEncrypt"},
		"a key that does not exist":   {func(c *gke.Cluster) { c.DatabaseEncryption.KeyName = good + "x" }, "(or it may not exist)"},
		"a range that is not one":     {func(c *gke.Cluster) { authorize(c, "10.0.0.1/8") }, "is not a valid CIDR block"},
		"a reserved label":            {func(c *gke.Cluster) { c.ResourceLabels["goog-x"] = "y" }, "reserved"},
		"an upper-case label":         {func(c *gke.Cluster) { c.ResourceLabels["Job"] = "y" }, "Label key 'Job'"},
		"an older and a newer field":  {func(c *gke.Cluster) { c.PrivateClusterConfig = &gke.PrivateClusterConfig{EnablePrivateNodes: true} }, "may not be specified together"},
		"a zone of another region":    {func(c *gke.Cluster) { c.Locations = []string{"us-central1-a"} }, "is not in the region"},
		"a topic that is missing": {func(c *gke.Cluster) {
			c.NotificationConfig = &gke.NotificationConfig{Pubsub: &gke.PubSub{Enabled: true}}
		}, "topic"},
		"Autopilot":               {func(c *gke.Cluster) { c.Autopilot = &gke.Autopilot{Enabled: true} }, "not simulated"},
		"an unknown machine type": {pool(func(p *gke.NodePool) { p.Config.MachineType = "z9-big" }), "does not exist"},
		"a type its region has not": {pool(func(p *gke.NodePool) {
			p.Config.MachineType = "t2a-standard-2"
			p.Locations = []string{"europe-west1-b"}
		}), "does not exist in zone"},
		"a disk its type cannot have":  {pool(func(p *gke.NodePool) { p.Config.MachineType, p.Config.DiskType = "n4-standard-2", "pd-ssd" }), "not compatible"},
		"an account that is not there": {pool(func(p *gke.NodePool) { p.Config.ServiceAccount = "nobody@" + testProject + ".iam.gserviceaccount.com" }), "does not exist"},
		"no upgrades in a channel":     {pool(func(p *gke.NodePool) { p.Management = &gke.NodeManagement{AutoRepair: true} }), "cannot be false when release_channel REGULAR is set"},
		"limits upside down": {pool(func(p *gke.NodePool) {
			p.Autoscaling = &gke.NodePoolAutoscaling{Enabled: true, MinNodeCount: 3, MaxNodeCount: 1}
		}), "autoscaling"},
		"a wrong image":        {pool(func(p *gke.NodePool) { p.Config.ImageType = "DEBIAN" }), "Image type"},
		"too many pods a node": {pool(func(p *gke.NodePool) { p.MaxPodsConstraint = &gke.MaxPodsConstraint{MaxPodsPerNode: 300} }), "max_pods_per_node"},
	} {
		c := hardened("shop", good)
		bad.change(c)
		_, err := g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: c}).Do()
		e := refusedAny(t, name, err, 400)
		if !strings.Contains(e.Message, bad.says) {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
	if list, err := g.clusters.List("projects/" + testProject + "/locations/-").Do(); err != nil || len(list.Clusters) != 0 {
		t.Errorf("refused clusters are there: %+v, %v", list, err)
	}
	_, err := g.clusters.Create("projects/"+testProject+"/locations/mars-north1", &gke.CreateClusterRequest{Cluster: hardened("shop", good)}).Do()
	refused(t, err, 400, "badRequest")
	big := hardened("shop", good)
	big.NodePools[0].InitialNodeCount, big.NodePools[0].Config.MachineType = 10, "e2-standard-8"
	_, err = g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: big}).Do()
	if e := refused(t, err, 403, "forbidden"); !strings.Contains(e.Message, `Insufficient regional quota to satisfy request: resource "CPUS"`) {
		t.Error(e.Message)
	}
}

func authorize(c *gke.Cluster, cidr string) {
	c.ControlPlaneEndpointsConfig.IpEndpointsConfig.AuthorizedNetworksConfig = &gke.MasterAuthorizedNetworksConfig{Enabled: true, CidrBlocks: []*gke.CidrBlock{{CidrBlock: cidr}}}
}

// refusedAny is a refusal with a status, whatever its reason.
func refusedAny(t *testing.T, what string, err error, status int) *googleapi.Error {
	t.Helper()
	var e *googleapi.Error
	if !errors.As(err, &e) || e.Code != status {
		t.Fatalf("%s: %v, want HTTP %d", what, err, status)
	}
	return e
}

func TestClusterChanges(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.subnet("shop")
	key := g.key(gkeRegion, "secrets", true)
	name := gkeLocation + "/clusters/shop"
	_, err := g.clusters.Get(name).Do()
	if e := refused(t, err, 404, "notFound"); e.Message != "Not found: "+name+"." {
		t.Error(e.Message)
	}
	plain := &gke.Cluster{Name: "shop", Network: "shop", Subnetwork: "shop", InitialNodeCount: 1, NodeConfig: &gke.NodeConfig{DiskSizeGb: 20}}
	op, err := g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: plain}).Do()
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: plain}).Do()
	if e := refused(t, err, 409, "alreadyExists"); e.Message != "Already exists: "+name+"." {
		t.Error(e.Message)
	}
	_, err = g.clusters.Delete(name).Do()
	if e := refused(t, err, 400, "failedPrecondition"); e.Message != "Cluster is running incompatible operation "+op.Name+"." || !strings.Contains(e.Body, "CLUSTER_ALREADY_HAS_OPERATION") {
		t.Error(e.Body)
	}
	g.ok(op, nil)
	// What a careless caller gets: nothing of what hardens a cluster.
	c, err := g.clusters.Get(name).Do()
	if err != nil || c.AnonymousAuthenticationConfig.Mode != "ENABLED" || c.DatabaseEncryption.State != "DECRYPTED" || c.NetworkConfig.DefaultEnablePrivateNodes || c.WorkloadIdentityConfig != nil ||
		!c.RbacBindingConfig.EnableInsecureBindingSystemAuthenticated || !c.ControlPlaneEndpointsConfig.IpEndpointsConfig.EnablePublicEndpoint || c.NodeConfig.ShieldedInstanceConfig.EnableSecureBoot ||
		c.NodeConfig.ServiceAccount != "default" || c.NetworkConfig.DatapathProvider != "" || !c.ShieldedNodes.Enabled || c.NodeConfig.WorkloadMetadataConfig != nil || c.ReleaseChannel.Channel != "REGULAR" {
		t.Errorf("defaults: %+v, %v", c, err)
	}
	subnet, err := g.compute().Subnetworks.Get(testProject, gkeRegion, "shop").Do()
	if err != nil || len(subnet.SecondaryIpRanges) != 4 || c.IpAllocationPolicy.ClusterSecondaryRangeName != subnet.SecondaryIpRanges[3].RangeName || c.ServicesIpv4Cidr != "34.118.224.0/20" {
		t.Errorf("the range of pods: %+v, %v", subnet.SecondaryIpRanges, err)
	}
	subnet.SecondaryIpRanges = subnet.SecondaryIpRanges[:3]
	_, err = g.compute().Subnetworks.Patch(testProject, gkeRegion, "shop", &compute.Subnetwork{Fingerprint: subnet.Fingerprint, SecondaryIpRanges: subnet.SecondaryIpRanges}).Do()
	refused(t, err, 400, "resourceInUseByAnotherResource")

	update := func(u *gke.ClusterUpdate) { g.ok(g.clusters.Update(name, &gke.UpdateClusterRequest{Update: u}).Do()) }
	update(&gke.ClusterUpdate{DesiredAnonymousAuthenticationConfig: &gke.AnonymousAuthenticationConfig{Mode: "LIMITED"}})
	update(&gke.ClusterUpdate{DesiredIntraNodeVisibilityConfig: &gke.IntraNodeVisibilityConfig{Enabled: true}})
	update(&gke.ClusterUpdate{DesiredDatabaseEncryption: &gke.DatabaseEncryption{State: "ENCRYPTED", KeyName: key}})
	update(&gke.ClusterUpdate{DesiredControlPlaneEndpointsConfig: &gke.ControlPlaneEndpointsConfig{DnsEndpointConfig: &gke.DNSEndpointConfig{AllowExternalTraffic: true}}})
	update(&gke.ClusterUpdate{DesiredNodePoolId: "default-pool", DesiredNodePoolAutoscaling: &gke.NodePoolAutoscaling{Enabled: true, MinNodeCount: 2, MaxNodeCount: 3}})
	g.ok(g.clusters.SetMaintenancePolicy(name, &gke.SetMaintenancePolicyRequest{MaintenancePolicy: &gke.MaintenancePolicy{ResourceVersion: c.MaintenancePolicy.ResourceVersion,
		Window: &gke.MaintenanceWindow{DailyMaintenanceWindow: &gke.DailyMaintenanceWindow{StartTime: "03:00"}}}}).Do())
	g.ok(g.clusters.SetResourceLabels(name, &gke.SetLabelsRequest{LabelFingerprint: c.LabelFingerprint, ResourceLabels: map[string]string{"job": "job_2"}}).Do())
	_, err = g.clusters.SetResourceLabels(name, &gke.SetLabelsRequest{LabelFingerprint: c.LabelFingerprint, ResourceLabels: map[string]string{"job": "job_3"}}).Do()
	refused(t, err, 400, "failedPrecondition")
	_, err = g.clusters.Update(name, &gke.UpdateClusterRequest{Update: &gke.ClusterUpdate{}}).Do()
	refused(t, err, 400, "badRequest")
	_, err = g.clusters.Update(name, &gke.UpdateClusterRequest{Update: &gke.ClusterUpdate{DesiredShieldedNodes: &gke.ShieldedNodes{}, DesiredFleet: &gke.Fleet{}}}).Do()
	refused(t, err, 400, "badRequest")
	update(&gke.ClusterUpdate{DesiredMasterVersion: "1.36"})
	c, err = g.clusters.Get(name).Do()
	if err != nil || c.AnonymousAuthenticationConfig.Mode != "LIMITED" || !c.NetworkConfig.EnableIntraNodeVisibility || c.DatabaseEncryption.CurrentState != "CURRENT_STATE_ENCRYPTED" ||
		!c.ControlPlaneEndpointsConfig.DnsEndpointConfig.AllowExternalTraffic || c.ResourceLabels["job"] != "job_2" || c.MaintenancePolicy.Window.DailyMaintenanceWindow.StartTime != "03:00" ||
		!strings.HasPrefix(c.CurrentMasterVersion, "1.36.") || c.Status != "RUNNING" || c.NodePools[0].Autoscaling.MaxNodeCount != 3 {
		t.Errorf("after the updates: %+v, %v", c, err)
	}
	g.kube.only(t, anyNodes(6))
	g.ok(g.clusters.NodePools.Update(name+"/nodePools/default-pool", &gke.UpdateNodePoolRequest{NodeVersion: c.CurrentMasterVersion}).Do())
	g.ok(g.clusters.NodePools.Update(name+"/nodePools/default-pool", &gke.UpdateNodePoolRequest{Taints: &gke.NodeTaints{Taints: []*gke.NodeTaint{{Key: "a", Effect: "NO_EXECUTE"}}}}).Do())
	pool, err := g.clusters.NodePools.Get(name + "/nodePools/default-pool").Do()
	if err != nil || pool.Version != c.CurrentMasterVersion || len(pool.Config.Taints) != 1 {
		t.Errorf("after the pool's updates: %+v, %v", pool, err)
	}
}

func TestServerConfig(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	conf, err := client(g.rig, gke.NewService).Projects.Locations.GetServerConfig(gkeLocation).Do()
	if err != nil || conf.DefaultClusterVersion != "1.35.8-gke.1036000" {
		t.Fatalf("%+v, %v", conf, err)
	}
	for _, ch := range conf.Channels {
		if ch.Channel == "REGULAR" {
			has := strings.Join(ch.ValidVersions, " ")
			if ch.DefaultVersion != "1.35.8-gke.1036000" || !strings.Contains(has, "1.36.") || strings.Contains(has, "1.34.") {
				t.Errorf("regular channel: %+v", ch)
			}
			return
		}
	}
	t.Error("no regular channel")
}

func TestKubernetesAPIsOff(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	s := client(g.rig, serviceusage.NewService)
	for _, host := range []string{"container.googleapis.com", "cloudkms.googleapis.com"} {
		if _, err := s.Services.Disable("projects/"+testProject+"/services/"+host, &serviceusage.DisableServiceRequest{}).Do(); err != nil {
			t.Fatal(err)
		}
	}
	g.world.Step(time.Minute)
	_, err := g.clusters.List(gkeLocation).Do()
	e := refusedAny(t, "clusters", err, http.StatusForbidden)
	if !strings.Contains(e.Body, `"reason": "SERVICE_DISABLED"`) || !strings.Contains(e.Message, "Kubernetes Engine API has not been used in project 123456789012 before") {
		t.Error(e.Body)
	}
	_, err = g.kms.List(gkeLocation).Do()
	e = refusedAny(t, "keys", err, http.StatusForbidden)
	if !strings.Contains(e.Body, "SERVICE_DISABLED") || !strings.Contains(e.Message, "Cloud Key Management Service (KMS) API has not been used") {
		t.Error(e.Body)
	}
	g.token = "ya29.other"
	foreign := client(g.rig, gke.NewService).Projects.Locations.Clusters
	_, err = foreign.List(gkeLocation).Do()
	if e := refused(t, err, 403, "forbidden"); !strings.Contains(e.Message, "container.clusters.list") {
		t.Error(e.Message)
	}
}

func TestClusterRanges(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	g.subnet("shop")
	key := g.key(gkeRegion, "secrets", true)
	g.ok(g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: hardened("shop", key)}).Do())
	_, err := g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: hardened("second", key)}).Do()
	if e := refused(t, err, 400, "badRequest"); !strings.Contains(e.Message, `Services secondary range "services" in subnetwork "shop" is already in use by cluster "shop"`) {
		t.Error(e.Message)
	}
	g.world.SetQuota("gcp", "container", "clusters-per-location", testProject, gkeRegion, 1)
	_, err = g.clusters.Create(gkeLocation, &gke.CreateClusterRequest{Cluster: hardened("second", key)}).Do()
	refused(t, err, 403, "quotaExceeded")
	left := g.world.Objects(sim.ObjectFilter{Cloud: "gcp", Kind: "cluster"})
	if len(left) != 1 || left[0].State != "RUNNING" || left[0].Tags["job"] != "job_1" {
		t.Errorf("objects: %+v", left)
	}
}
