package gcp

import (
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const (
	clusterCreate = "projects.locations.clusters.create"
	poolCreate    = "projects.locations.clusters.nodePools.create"
)

// stops runs the steps up to one that stops, and wants its code and words.
func (g clusterRig) stops(code string, words ...string) {
	g.Helper()
	err := g.try(false, g.ups()...)
	if fatalCode(err) != code {
		g.Fatalf("the verdict is %v, want %s\n%s", err, code, g.books(30))
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			g.Errorf("%q does not say %q", err, w)
		}
	}
}

// again is a person's retry: another worker, which makes what came up broken anew.
func (g clusterRig) again() {
	g.Helper()
	g.world.ClearFaults("")
	g.another()
	g.up()
}

// A cluster whose create was accepted and fails is in ERROR: the reason is told, it
// is still the job's, a retry replaces it and a teardown removes it (A7, I5, I11).
func TestClusterThatFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, message, says string
	}{
		{"with a reason", "All cluster resources were brought up, but only 0 nodes out of 3 have registered.", "only 0 nodes out of 3"},
		{"without one", " ", "CREATE_CLUSTER"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
			before := g.world.Snapshot()
			g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: clusterCreate, Count: -1, Code: "INTERNAL", Message: c.message})
			g.stops("object-failed", c.says)
			g.hit()
			first := g.world.Objects(sim.ObjectFilter{Kind: "cluster"})
			if len(first) != 1 || first[0].State != "ERROR" {
				t.Fatalf("clusters: %+v", first)
			}
			g.again()
			if len(g.world.Objects(sim.ObjectFilter{Kind: "cluster"})) != 1 || g.cluster().NodePools[0].State != "RUNNING" {
				t.Errorf("after a retry: %+v", g.cluster())
			}
			g.down()
			g.equal(before)
		})
	}
	t.Run("and is torn down", func(t *testing.T) {
		t.Parallel()
		g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
		before := g.world.Snapshot()
		g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: clusterCreate, Count: -1, Code: "INTERNAL", Message: "no luck"})
		g.stops("object-failed")
		g.down()
		g.equal(before)
	})
}

// A node pool that fails is replaced by a retry; the cluster stays.
func TestNodePoolThatFails(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: poolCreate, Count: -1, Code: "GCE_STOCKOUT", Message: "Google Compute Engine: the zone does not have enough resources available."})
	g.stops("object-failed", "node-pool arm", "enough resources")
	made := g.objects[kindCluster+"/"+clusterKey].CreatedAt
	g.again()
	if got := g.objects[kindCluster+"/"+clusterKey].CreatedAt; !got.Equal(*made) {
		t.Error("the cluster was replaced with its pool")
	}
	if g.cluster().Pool("arm").State != "RUNNING" {
		t.Errorf("the pool is %+v", g.cluster().Pool("arm"))
	}
	g.down()
	g.equal(before)
}

// An operation that is done has not always made what it should: a pool counts once
// its machines run (I5).
func TestNodesAreCounted(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	if err := g.try(false, g.ups()[:3]...); err != nil {
		t.Fatal(err)
	}
	var verdict error
	early := false
	for range 200 {
		verdict = g.p.EnsureCluster(anything(t.Context()), g.run(pipeline.Apply))
		if early {
			break
		}
		for _, o := range g.world.Objects(sim.ObjectFilter{Service: "container", Kind: "operation", All: true}) {
			if o.State == "RUNNING" {
				if _, err := g.world.SetObjectState(o.ID, "DONE", "", ""); err != nil {
					t.Fatal(err)
				}
				early = true
			}
		}
		g.world.Step(time.Second)
	}
	if d := pipeline.Judge(verdict, 0); !early || d.Action != pipeline.Park || !strings.Contains(d.For, "of 2 nodes run") {
		t.Errorf("the verdict is %v", verdict)
	}
	g.up()
}

// Somebody else's cluster of the same name is never touched, neither by the create
// nor by the teardown.
func TestForeignClusterOfTheSameName(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	g.hub(testProject, "10.80.0.0/16")
	g.theirCluster(g.job.ResourceName("", clusterNameMax))
	before := g.world.Snapshot()
	g.stops("name-taken", "does not carry this job's mark")
	g.down()
	g.equal(before)
}

// theirCluster is a cluster of somebody's in the network hub.
func (g clusterRig) theirCluster(name string) string {
	g.Helper()
	parent := "projects/" + testProject + "/locations/" + testRegion
	g.place("container", clusterCreate, map[string]any{"parent": parent, "body": map[string]any{"cluster": map[string]any{
		"name": name, "network": "hub", "subnetwork": "hub-a", "initialNodeCount": 1, "locations": []any{"us-central1-a"}}}})
	g.world.Step(20 * time.Minute)
	return parent + "/clusters/" + name
}

// A cluster that somebody has deleted is told as drift, and does not keep a job from
// being torn down.
func TestClusterDeletedByOthers(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
	before := g.world.Snapshot()
	g.up()
	if _, err := g.world.RemoveObject(g.cluster().ID); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, d := range g.differs() {
		if d.Attr == "exists" && (d.Kind == kindCluster || d.Kind == kindNodePool) {
			found++
		}
	}
	if found != 3 {
		t.Errorf("%d of 3 missing objects are told", found)
	}
	g.down()
	g.equal(before)
}

// GKE changes a cluster by itself, and takes one change at a time: what the job wants
// waits for that, without spending its tries (E11).
func TestClusterThatIsBusy(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
	before := g.world.Snapshot()
	g.up()
	g.patch(g.cluster().ID, `{"shieldedNodes":{"enabled":false}}`)
	if _, err := g.world.SetObjectState(g.cluster().ID, "RECONCILING", "", ""); err != nil {
		t.Fatal(err)
	}
	g.another()
	err := g.p.EnsureCluster(anything(t.Context()), g.run(pipeline.Apply))
	if d := pipeline.Judge(err, 0); d.Action != pipeline.Park || !strings.Contains(d.For, "another change of") {
		t.Errorf("a change of a busy cluster: %v", err)
	}
	g.another()
	err = g.p.RemoveCluster(anything(t.Context()), g.run(pipeline.Apply))
	if d := pipeline.Judge(err, 0); d.Action != pipeline.Park || !strings.Contains(d.For, "another change of") {
		t.Errorf("the removal of a busy cluster: %v", err)
	}
	g.down()
	g.equal(before)
}

// Many fields that somebody changed are put right one after another.
func TestClusterManyChanges(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	g.up()
	g.patch(g.cluster().ID, `{"shieldedNodes":{"enabled":false},"costManagementConfig":{"enabled":false},"legacyAbac":{"enabled":true},"securityPostureConfig":{"mode":"DISABLED"},
		"anonymousAuthenticationConfig":{"mode":"ENABLED"},"networkConfig":{"enableIntraNodeVisibility":false},"releaseChannel":{"channel":"RAPID"},
		"rbacBindingConfig":{"enableInsecureBindingSystemAuthenticated":true},"loggingConfig":{"componentConfig":{"enableComponents":[]}}}`)
	if n := len(g.differs()); n != 9 {
		t.Errorf("%d differences are told, want 9", n)
	}
	g.another()
	g.up()
	if d := g.differs(); len(d) > 0 {
		t.Errorf("not put right: %v", d)
	}
}

// Node pools that others added go with the job's own cluster (E10).
func TestForeignNodePool(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	before := g.world.Snapshot()
	g.up()
	g.place("container", poolCreate, map[string]any{"parent": g.cluster().ID, "body": map[string]any{"nodePool": map[string]any{"name": "theirs", "initialNodeCount": 1}}})
	g.down()
	g.equal(before)
	if e := g.event("pools.foreign"); !strings.Contains(e, "theirs") {
		t.Errorf("the event says %q", e)
	}
}

// A cluster on which somebody has put a hold is not deleted.
func TestClusterOnHold(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	g.up()
	undo := g.patch(g.cluster().ID, `{"resourceLabels":{"zopday-delete-guard":"audit"}}`)
	if d := g.differs(); len(d) > 0 {
		t.Errorf("a hold is told as drift: %v", d)
	}
	since := g.mark()
	g.another()
	if err := g.p.Removable(t.Context(), g.run(pipeline.Apply)); fatalCode(err) != "protected" {
		t.Errorf("before anything is drained: %v", err)
	}
	if err := g.try(true, g.downs()...); fatalCode(err) != "protected" || !strings.Contains(err.Error(), "audit") {
		t.Errorf("the verdict is %v", err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("changed %v", changes)
	}
	undo()
	if err := g.p.Removable(t.Context(), g.run(pipeline.Apply)); err != nil {
		t.Errorf("without a hold: %v", err)
	}
	g.down()
	if e := g.event("protection.lifted"); e == "" {
		t.Error("nothing says that the guard was lifted")
	}
}

// What the controllers of a cluster left behind is removed by its marks, and what
// other clusters left in the same network is not (E2, E4, E17).
func TestClusterSweep(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	before := g.world.Snapshot()
	g.up()
	g.leftBehind("a1", g.cluster().Name)
	g.leftBehind("b2", "their-cluster")
	g.ingress("x1y2z3w4", g.cluster().Name)
	g.ingress("q9q9q9q9", "their-cluster")
	g.another()
	err := g.try(true, g.p.RemoveCluster)
	if err != nil {
		t.Fatalf("%v\n%s", err, g.books(20))
	}
	for _, o := range g.world.Objects(sim.ObjectFilter{}) {
		if strings.HasSuffix(o.ID, "a1") || strings.Contains(o.ID, "x1y2z3w4") {
			t.Errorf("%s is left", o.ID)
		}
	}
	theirs := 0
	for _, o := range g.world.Objects(sim.ObjectFilter{}) {
		if strings.HasSuffix(o.ID, "b2") || strings.Contains(o.ID, "q9q9q9q9") {
			theirs++
		}
	}
	if theirs != 11 {
		t.Errorf("of another cluster's %d are left, want 11", theirs)
	}
	if e := g.event("leftover.removed"); e == "" {
		t.Error("no event tells of the removals")
	}
	// The network cannot go before those are gone, and the job says what holds it.
	err = g.try(true, g.p.RemoveIdentity, g.p.RemoveNetwork)
	if fatalCode(err) == "" && blockedBy(err) == nil || !strings.Contains(err.Error(), "k8s-fw-b2") {
		t.Errorf("the network's removal: %v", err)
	}
	for _, o := range g.world.Objects(sim.ObjectFilter{}) {
		if strings.HasSuffix(o.ID, "b2") || strings.Contains(o.ID, "q9q9q9q9") {
			if _, err := g.world.RemoveObject(o.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.down()
	g.equal(before)
}

// ingress is what an Ingress of a cluster leaves in the project, named by a hash of
// the cluster's UID.
func (g clusterRig) ingress(hash, cluster string) {
	g.Helper()
	global := "projects/" + testProject + "/global/"
	name := func(kind string) string { return "k8s2-" + kind + hash + "-default-web-0a1b2c3d" }
	insert := func(op string, params map[string]any) { g.invoke(testProject, "compute", op, params) }
	insert("healthChecks.insert", map[string]any{"name": name(""), "type": "HTTP", "httpHealthCheck": map[string]any{"port": 80}})
	insert("backendServices.insert", map[string]any{"name": name(""), "loadBalancingScheme": "EXTERNAL", "protocol": "HTTP", "healthChecks": []any{global + "healthChecks/" + name("")}})
	insert("urlMaps.insert", map[string]any{"name": name("um-"), "defaultService": global + "backendServices/" + name("")})
	insert("targetHttpProxies.insert", map[string]any{"name": name("tp-"), "urlMap": global + "urlMaps/" + name("um-")})
	insert("globalForwardingRules.insert", map[string]any{"name": name("fr-"), "loadBalancingScheme": "EXTERNAL", "portRange": "80", "target": global + "targetHttpProxies/" + name("tp-")})
	insert("firewalls.insert", map[string]any{"name": name("fw-"), "network": g.infra().NetworkID, "sourceRanges": []any{"130.211.0.0/22"},
		"targetTags": []any{"gke-" + cluster + "-0a1b2c3d-node"}, "allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"80"}}}})
	g.world.Step(time.Minute)
}

// leftBehind is what a Service and a claim of a cluster leave in the project.
func (g clusterRig) leftBehind(name, cluster string) {
	g.Helper()
	const about = `{"kubernetes.io/service-name":"default/web"}`
	region := "projects/" + testProject + "/regions/" + testRegion
	insert := func(op string, params map[string]any) { g.invoke(testProject, "compute", op, params) }
	insert("firewalls.insert", map[string]any{"name": serviceFirewall + name, "network": g.infra().NetworkID, "description": about, "sourceRanges": []any{"0.0.0.0/0"},
		"targetTags": []any{"gke-" + cluster + "-0a1b2c3d-node"}, "allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"80"}}}})
	insert("regionHealthChecks.insert", map[string]any{"region": testRegion, "name": name, "type": "HTTP", "httpHealthCheck": map[string]any{"port": 10256}})
	insert("regionBackendServices.insert", map[string]any{"region": testRegion, "name": name, "description": about, "loadBalancingScheme": "EXTERNAL", "protocol": "TCP",
		"healthChecks": []any{region + "/healthChecks/" + name}})
	insert("forwardingRules.insert", map[string]any{"region": testRegion, "name": name, "description": about, "loadBalancingScheme": "EXTERNAL", "IPProtocol": "TCP", "ports": []any{"80"},
		"backendService": region + "/backendServices/" + name})
	insert("disks.insert", map[string]any{"zone": "us-central1-a", "name": "pvc-" + name, "sizeGb": "10",
		"labels": map[string]any{labelClusterName: cluster, labelClusterLocation: testRegion}})
	g.world.Step(time.Minute)
}

// What Kubernetes Engine refuses with means what it says, and not what its code says
// elsewhere.
func TestClusterErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op, message string
		status      int
		codes       []string
		want        pipeline.Class
	}{
		{"clusters.create", `Cloud KMS key "k" cannot be used by service-1@container-engine-robot.iam.gserviceaccount.com: Permission 'cloudkms.cryptoKeyVersions.useToEncrypt' denied on resource 'k' (or it may not exist).`,
			400, []string{"failedPrecondition", "FAILED_PRECONDITION"}, pipeline.NotFound},
		{"clusters.create", `Service account "nodes@p.iam.gserviceaccount.com" does not exist.`, 400, []string{"badRequest", "INVALID_ARGUMENT"}, pipeline.NotFound},
		{"clusters.create", `Network "shop" does not exist.`, 400, []string{"badRequest"}, pipeline.NotFound},
		{"nodePools.create", `Machine type with name "e9-standard-2" does not exist in zone "us-central1-a".`, 400, []string{"badRequest"}, pipeline.Invalid},
		{"clusters.create", `Insufficient regional quota to satisfy request: resource "CPUS": request requires '9.0' and is short '1.0'.`, 403, []string{"forbidden", "PERMISSION_DENIED"}, pipeline.Quota},
		{"clusters.update", "Cluster is running incompatible operation operation-1.", 400, []string{"CLUSTER_ALREADY_HAS_OPERATION", "failedPrecondition"}, pipeline.Busy},
		{"clusters.create", "Already exists: projects/p/locations/l/clusters/c.", 409, []string{"alreadyExists", "ALREADY_EXISTS"}, pipeline.Exists},
		{"clusters.get", "Not found: projects/p/locations/l/clusters/c.", 404, []string{"notFound", "NOT_FOUND"}, pipeline.NotFound},
		{"clusters.insert", "Google Compute Engine: no room", 0, []string{"GCE_STOCKOUT", "RESOURCE_EXHAUSTED"}, pipeline.Capacity},
		{"clusters.insert", "Google Compute Engine: too many", 0, []string{"GCE_QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED"}, pipeline.Quota},
		{"clusters.get", `Required "container.clusters.get" permission(s) for "projects/p".`, 403, []string{"forbidden"}, pipeline.Denied},
	} {
		if got, _ := classOf(c.op, c.status, c.message, c.codes); got != c.want {
			t.Errorf("%s: %.60s is %s, want %s", c.op, c.message, got, c.want)
		}
	}
}
