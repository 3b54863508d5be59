package steps

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// apiServer answers lists from a table, and notes what would change something.
type apiServer struct {
	cloud.Provider
	cloud.ClusterFamily

	url string
	ca  []byte

	mu      sync.Mutex
	lists   map[string]string // path: the items, JSON
	changes []string
}

var listKinds = map[string]string{
	"persistentvolumes": "PersistentVolumeList", "persistentvolumeclaims": "PersistentVolumeClaimList", "services": "ServiceList", "nodes": "NodeList",
	"namespaces": "NamespaceList", "storageclasses": "StorageClassList", "ingresses": "IngressList", "gateways": "GatewayList",
}

func newAPIServer(t *testing.T, lists map[string]string) *apiServer {
	t.Helper()
	a := &apiServer{lists: lists}
	s := httptest.NewTLSServer(a)
	t.Cleanup(s.Close)
	a.url, a.ca = s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return a
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		a.changes = append(a.changes, r.Method+" "+r.URL.Path)
	}
	group, plural := path.Split(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/"))
	_, _ = fmt.Fprintf(w, `{"kind":"%s","apiVersion":"%s","metadata":{},"items":[%s]}`, listKinds[plural], strings.TrimSuffix(group, "/"), a.lists[r.URL.Path])
}

func (a *apiServer) set(path, items string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists[path] = items
}

func (a *apiServer) KubeAccess(context.Context, job.ClusterRef) (cloud.KubeAccess, error) {
	return cloud.KubeAccess{Server: a.url, CA: a.ca, Token: func(context.Context) (string, error) { return "token", nil }}, nil
}

func (a *apiServer) Controls(context.Context, *pipeline.Run) ([]job.Control, error) {
	return []job.Control{{ID: "AKS-03", Name: "run command", Wanted: "off", Seen: "on"}}, nil
}

// clusterJob is a cluster job at Azure with a spec.
func clusterJob(t *testing.T, spec job.ClusterSpec) *job.Job {
	t.Helper()
	j := finishedCluster()
	var err error
	if j.Config.Spec, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	c := &j.Config.InfraConfig.Cluster
	c.Endpoint, c.NodeGroup = "https://api.example.test", "zopday-nodes"
	c.NodePools = []job.NodePoolInfo{{Name: job.SystemPool, Min: 1, Desired: 2, Max: 4}, {Name: job.DefaultPool, Min: 1, Desired: 2, Max: 4}}
	return j
}

func passOf(j *job.Job, objects ...job.Object) *pipeline.Run {
	return pipeline.NewRun(j, pipeline.Apply, objects, nobody{}, nil, time.Now, 1)
}

func openTo(t *testing.T) context.Context {
	return pipeline.WithGate(t.Context(), func(context.Context, pipeline.Call) error { return nil })
}

// AKS deletes the group of its nodes with all that is in it: a volume in there that
// was to outlive the cluster stops the teardown while everything still stands.
func TestRetainedVolumesStopTheTeardownFirst(t *testing.T) {
	const volume = `{"metadata":{"name":"pv-%s"},"spec":{"persistentVolumeReclaimPolicy":"%s",%s}}`
	inGroup := `"csi":{"driver":"disk.csi.azure.com","volumeHandle":"/subscriptions/s/resourceGroups/Zopday-Nodes/providers/Microsoft.Compute/disks/d"}`
	legacy := `"azureDisk":{"diskName":"d","diskURI":"/subscriptions/s/resourceGroups/zopday-nodes/providers/Microsoft.Compute/disks/d"}`
	for name, tc := range map[string]struct {
		volume  string
		blocked bool
	}{
		"retained":           {fmt.Sprintf(volume, "a", "Retain", inGroup), true},
		"retained, in tree":  {fmt.Sprintf(volume, "a", "Retain", legacy), true},
		"deleted with claim": {fmt.Sprintf(volume, "a", "Delete", inGroup), false},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, map[string]string{
				"/api/v1/persistentvolumes": tc.volume,
				"/api/v1/services":          `{"metadata":{"name":"front","namespace":"shop"},"spec":{"type":"LoadBalancer"}}`,
			})
			err := Set{Cloud: a}.drainCluster(openTo(t), passOf(clusterJob(t, job.ClusterSpec{})))
			d := pipeline.Judge(err, 0)
			if tc.blocked && (d.Action != pipeline.Stop || d.Problem.Code != "blocked" || !strings.Contains(d.Problem.Message, "pv-a") || len(a.changes) > 0) {
				t.Errorf("%+v after %v", d, a.changes)
			}
			if !tc.blocked && (!pipeline.IsWait(err) || !slices.Contains(a.changes, "DELETE /api/v1/namespaces/shop/services/front")) {
				t.Errorf("%v after %v", err, a.changes)
			}
		})
	}
}

// A retained volume in another group stays, and the inventory says so.
func TestRetainedVolumesAreKept(t *testing.T) {
	const disk = "/subscriptions/s/resourceGroups/data/providers/Microsoft.Compute/disks/d"
	a := newAPIServer(t, map[string]string{
		"/api/v1/persistentvolumes": `{"metadata":{"name":"pv-a"},"spec":{"persistentVolumeReclaimPolicy":"Retain","csi":{"volumeHandle":"` + disk + `"}}}`,
	})
	r := passOf(clusterJob(t, job.ClusterSpec{}))
	if err := (Set{Cloud: a}).drainCluster(openTo(t), r); err != nil || !r.Kept("compute:disk", disk) {
		t.Errorf("%v, kept %t", err, r.Kept("compute:disk", disk))
	}
}

// A component that cannot be uninstalled, such as one with a finalizer that nobody
// takes off, goes with its cluster after a while, and is named.
func TestStuckComponentGoesWithTheCluster(t *testing.T) {
	a := newAPIServer(t, map[string]string{})
	c := &told{stuck: &pipeline.BlockedError{What: "helm:release app", By: "the finalizer example.com/stuck"}}
	r := passOf(clusterJob(t, job.ClusterSpec{Components: []job.ComponentSpec{{Name: "app"}}}),
		job.Object{Kind: KindRelease, Key: "ns-app/app", Name: "ns-app/app", ID: "ns-app/app", State: job.ObjectCreated})
	now := time.Now()
	r.Now = func() time.Time { return now }
	set := Set{Cloud: a, Components: c}
	if err := set.drainCluster(openTo(t), r); err == nil {
		t.Fatal("the stuck release is given up at once")
	}
	now = now.Add(uninstallPatience + time.Minute)
	if err := set.drainCluster(openTo(t), r); err != nil {
		t.Fatal(err)
	}
	if o, _ := r.Object(KindRelease, "ns-app/app"); o.State != job.ObjectRemoved || !strings.Contains(strings.Join(r.TakeNotes(), "\n"), "example.com/stuck") {
		t.Errorf("the release is %s, %s", o.State, o.Reason)
	}
}

// All nodes that a pool starts with have to join; later the autoscaler may take
// some away, and a run that goes on does not wait for them.
func TestNodesMayBeScaledDown(t *testing.T) {
	node := func(pool string, n int) string {
		return fmt.Sprintf(`{"metadata":{"name":"%s-%d","labels":{"agentpool":"%s"}},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, pool, n, pool)
	}
	nodes := func(system, workers int) string {
		var out []string
		for n := range system {
			out = append(out, node(job.SystemPool, n))
		}
		for n := range workers {
			out = append(out, node(job.DefaultPool, n))
		}
		return strings.Join(out, ",")
	}
	a := newAPIServer(t, map[string]string{})
	j := clusterJob(t, job.ClusterSpec{})
	spec, err := j.ClusterSpec()
	if err != nil {
		t.Fatal(err)
	}
	access, _ := a.KubeAccess(t.Context(), job.ClusterRef{})
	client, err := kube.Client(openTo(t), access)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		system, workers int
		waits           string
	}{
		{2, 1, "pool workers: 1 of 2 nodes are Ready"}, {1, 2, ""}, {1, 1, ""}, {0, 1, "pool system: 0 of 1 nodes are Ready"},
	} {
		a.set("/api/v1/nodes", nodes(step.system, step.workers))
		err := awaitNodes(openTo(t), passOf(j), client, spec)
		if step.waits == "" && err != nil || step.waits != "" && (!pipeline.IsWait(err) || !strings.Contains(err.Error(), step.waits)) {
			t.Errorf("with %d and %d nodes: %v", step.system, step.workers, err)
		}
	}
}

// catalogue is a catalogue without dependencies, which notes what it is asked for.
type catalogue struct {
	Components
	done []string
}

func (c *catalogue) Order(specs []job.ComponentSpec) ([][]job.ComponentSpec, error) {
	return [][]job.ComponentSpec{specs}, nil
}

func (c *catalogue) Uninstall(_ context.Context, _ *pipeline.Run, _ cloud.KubeAccess, spec job.ComponentSpec) error {
	c.done = append(c.done, spec.Namespace+"/"+spec.Release)
	return nil
}

// A component that a changed spec names no more, or elsewhere, is uninstalled.
func TestDroppedComponentsAreUninstalled(t *testing.T) {
	release := func(namespace, name string, state job.ObjectStatus) job.Object {
		return job.Object{Kind: KindRelease, Key: name, Name: namespace + "/" + name, ID: namespace + "/" + name, State: state}
	}
	have := []job.Object{
		release("cert", "cert-manager", job.ObjectCreated), release("old", "loki", job.ObjectCreated), release("kargo", "keda", job.ObjectCreated),
		release("gone", "tempo", job.ObjectRemoved),
	}
	specs := []job.ComponentSpec{{Name: "cert-manager", Release: "cert-manager", Namespace: "cert"}, {Name: "loki", Release: "loki", Namespace: "new"}}
	c := &catalogue{}
	j := clusterJob(t, job.ClusterSpec{})
	j.Config.InfraConfig.Components = []job.ComponentInfo{{Name: "keda", Release: "keda", Status: "ready"}}
	if err := (Set{Components: c}).uninstallDropped(openTo(t), passOf(j, have...), cloud.KubeAccess{}, specs); err != nil {
		t.Fatal(err)
	}
	slices.Sort(c.done)
	if got := strings.Join(c.done, " "); got != "kargo/keda old/loki" || j.Config.InfraConfig.Components[0].Status != "removed" {
		t.Errorf("uninstalled %q, %+v", got, j.Config.InfraConfig.Components)
	}
}

// A waiver holds for the control that it names, and one for a control that the
// report does not have is said to do nothing.
func TestWaivers(t *testing.T) {
	a := newAPIServer(t, map[string]string{})
	j := clusterJob(t, job.ClusterSpec{Waive: []job.Waiver{{Control: "AKS-03", Reason: "jump host"}, {Control: "AKS-99", Reason: "typo"}}})
	r := passOf(j)
	if err := (Set{Cloud: a}).finalize(openTo(t), r); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(j.Config.InfraConfig.Report, func(c job.Control) bool { return c.ID == "AKS-03" })
	if i < 0 || j.Config.InfraConfig.Report[i].Waived != "jump host" {
		t.Errorf("report %+v", j.Config.InfraConfig.Report)
	}
	if notes := strings.Join(r.TakeNotes(), "\n"); !strings.Contains(notes, "AKS-99") || strings.Contains(notes, "AKS-03") {
		t.Errorf("notes %q", notes)
	}
}

// goneCluster is a cloud that has no cluster any more.
type goneCluster struct {
	cloud.Provider
	cloud.ClusterFamily
}

func (goneCluster) Caller(context.Context) (string, error) { return "123456789012", nil }

func (goneCluster) KubeAccess(context.Context, job.ClusterRef) (cloud.KubeAccess, error) {
	return cloud.KubeAccess{}, &pipeline.CloudError{Class: pipeline.NotFound, Service: "EKS", Op: "DescribeCluster", Message: "No cluster found for name: shop"}
}

// What somebody deleted is drift, not a cloud that could not be asked.
func TestVerifyOfAClusterThatIsGone(t *testing.T) {
	j := &job.Job{Kind: job.Provisioning, ResourceType: job.Component, Provider: job.AWS, Region: "us-east-1", Status: job.Completed, Phase: job.PhaseProvision}
	j.Config.Spec = json.RawMessage(`{"spaceId":"spc_1","component":{"name":"traefik"}}`)
	drift, err := Set{Cloud: goneCluster{}}.Drift(openTo(t), j, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, d := range drift {
		seen[d.Key] = d.Seen
	}
	if !strings.Contains(seen[Validate], "is gone") || !strings.Contains(seen[InstallRelease], "No cluster found") {
		t.Errorf("drift: %+v", drift)
	}
}

// What a person types to get at a GKE cluster depends on which way leads there.
func TestKubeconfigCommand(t *testing.T) {
	for _, tc := range []struct {
		endpoint string
		public   bool
		ends     string
	}{
		{"https://gke-1a2b-0123.us-east1.gke.goog", false, " --dns-endpoint"}, {"https://10.0.0.2", false, " --internal-ip"}, {"https://34.1.2.3", true, " --project p"},
	} {
		j := clusterJob(t, job.ClusterSpec{})
		j.Provider, j.Config.InfraConfig.Account = job.GCP, "p"
		j.Config.InfraConfig.Cluster.Endpoint, j.Config.InfraConfig.Cluster.Public = tc.endpoint, tc.public
		if got := kubeconfigCommand(j); !strings.HasSuffix(got, tc.ends) {
			t.Errorf("%s: %s", tc.endpoint, got)
		}
	}
}
