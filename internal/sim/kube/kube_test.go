package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// TestCluster takes one cluster with a control plane of its own through its life.
func TestCluster(t *testing.T) {
	t.Parallel()
	k := instance(t, Options{Binary: mustBinary(t)})
	cloud := newFakeCloud()
	spec := sim.KubeCluster{ID: "arn:one", Authenticate: authenticate, Cloud: cloud, Objects: []sim.KubeObject{classObject}}
	e := k.Open(spec)
	k.SetNodes(spec.ID, testNodes)
	admin := started(t, e)

	t.Run("answers", func(t *testing.T) { testAnswers(t, e, admin) })
	t.Run("who may do what", func(t *testing.T) { testRights(t, k, e, admin) })
	t.Run("nodes", func(t *testing.T) { testNodeObjects(t, k, spec.ID, admin) })
	t.Run("deployment", func(t *testing.T) { testDeployment(t, admin) })
	t.Run("job", func(t *testing.T) { testJobs(t, admin) })
	t.Run("obstacles", func(t *testing.T) { testObstacles(t, admin) })
	t.Run("load balancer", func(t *testing.T) { testBalancer(t, admin, cloud) })
	t.Run("disk", func(t *testing.T) { testDisk(t, admin, cloud) })
	t.Run("charts", func(t *testing.T) { testCharts(t, admin) })
	t.Run("watch", func(t *testing.T) { testWatch(t, admin) })
	t.Run("admits", func(t *testing.T) { testAdmits(t, k, spec, e) })
	t.Run("faults", func(t *testing.T) { testFaults(t, k, spec.ID, e, admin) })
	t.Run("end", func(t *testing.T) { testEnd(t, k, spec.ID, admin) })
}

func testAnswers(t *testing.T, e sim.KubeEndpoint, admin *client) {
	v := get[struct{ GitVersion, Major, Minor string }](t, admin, "/version")
	if v.GitVersion != "v1.37.2" || v.Major != "1" || v.Minor != "37" {
		t.Errorf("/version: %+v", v)
	}
	// What a cloud's load balancers ask has no token.
	for _, path := range []string{"/readyz", "/healthz", "/livez", "/version"} {
		res, err := admin.http.Get("https://" + e.Address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s without a token: %d %s", path, res.StatusCode, body)
		}
	}
}

func testRights(t *testing.T, k *Kube, e sim.KubeEndpoint, admin *client) {
	err := as(t, e, "stranger").call(t.Context(), http.MethodGet, nodesPath, nil, nil)
	if !isCode(err, http.StatusUnauthorized) {
		t.Errorf("an unknown token: %v", err)
	}
	bob := as(t, e, nobodyToken)
	err = bob.call(t.Context(), http.MethodGet, nodesPath, nil, nil)
	if !isCode(err, http.StatusForbidden) || !strings.Contains(err.Error(), `User "bob" cannot list resource "nodes"`) {
		t.Errorf("a user without rights: %v", err)
	}
	// Nobody says for himself who he is.
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+e.Address+nodesPath, nil)
	r.Header.Set("Authorization", "Bearer "+nobodyToken)
	r.Header.Set("Impersonate-User", "ada")
	r.Header.Set("Impersonate-Group", "system:masters")
	res, err := bob.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("an impersonation from outside: %d", res.StatusCode)
	}

	k.ForgetRequests()
	review := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	var me struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	if err := admin.call(t.Context(), http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", []byte(review), &me); err != nil {
		t.Fatal(err)
	}
	if u := me.Status.UserInfo; u.Username != "ada" || !slices.Contains(u.Groups, "system:masters") {
		t.Errorf("the administrator is %+v", u)
	}
	if slices.ContainsFunc(k.Requests(), Request.Mutating) {
		t.Errorf("a review mutates: %+v", k.Requests())
	}

	// A token of the API server's own is one too.
	var token struct{ Status struct{ Token string } }
	eventually(t, "a service account", func() bool { return !gone(admin, "/api/v1/namespaces/default/serviceaccounts/default") })
	if err := admin.call(t.Context(), http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/default/token", []byte(`{}`), &token); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(k.Requests(), Request.Mutating) {
		t.Errorf("a token was made, and nothing mutates: %+v", k.Requests())
	}
	err = as(t, e, token.Status.Token).call(t.Context(), http.MethodGet, nodesPath, nil, nil)
	if !isCode(err, http.StatusForbidden) || !strings.Contains(err.Error(), "system:serviceaccount:default:default") {
		t.Errorf("a service account: %v", err)
	}
}

type nodeSeen struct {
	Metadata metadata
	Spec     nodeSpec
	Status   struct {
		Conditions  []struct{ Type, Status string }
		Allocatable map[string]string
		Addresses   []struct{ Type, Address string }
		NodeInfo    struct{ KubeletVersion, Architecture string }
	}
}

func (n nodeSeen) ready() bool {
	return slices.Contains(n.Status.Conditions, struct{ Type, Status string }{"Ready", "True"}) &&
		!slices.ContainsFunc(n.Spec.Taints, func(t taint) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") })
}

func testNodeObjects(t *testing.T, k *Kube, id string, admin *client) {
	node := func(name string) nodeSeen { return get[nodeSeen](t, admin, nodesPath+"/"+name) }
	nodes := func() []nodeSeen { return get[list[nodeSeen]](t, admin, nodesPath).Items }
	ready := func(n int) func() bool {
		return func() bool {
			all := nodes()
			return len(all) == n && !slices.ContainsFunc(all, func(n nodeSeen) bool { return !n.ready() })
		}
	}
	eventually(t, "both nodes are ready", ready(2), func() any { return nodes() })
	n := node("ip-10-0-1-5")
	for key, want := range map[string]string{
		"kubernetes.io/hostname": "ip-10-0-1-5", "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
		"topology.kubernetes.io/zone": "eu-west-1a", "topology.kubernetes.io/region": "eu-west-1",
		"node.kubernetes.io/instance-type": "m7g.large", "eks.amazonaws.com/nodegroup": "main",
	} {
		if n.Metadata.Labels[key] != want {
			t.Errorf("label %s is %q", key, n.Metadata.Labels[key])
		}
	}
	if a := n.Status.Allocatable; a["cpu"] != "2" || a["memory"] != "8Gi" || a["pods"] != "29" {
		t.Errorf("allocatable: %v", a)
	}
	if n.Spec.ProviderID != "aws:///eu-west-1a/i-1" || n.Status.NodeInfo.KubeletVersion != "v1.36.3-eks-1" || n.Status.Addresses[0].Address != "10.0.1.5" {
		t.Errorf("node: %+v", n)
	}
	if v := node("ip-10-0-2-6").Status.NodeInfo.KubeletVersion; v != "v1.37.2" {
		t.Errorf("kubelet of a node that says nothing: %s", v)
	}

	changed := slices.Clone(testNodes)
	changed[0].Taints = []sim.KubeTaint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}}
	changed[1].NotReady = true
	changed = append(changed, sim.KubeNode{Name: "third", Zone: "eu-west-1c"})
	k.SetNodes(id, changed)
	eventually(t, "a taint, a node that is not ready, and one more", func() bool {
		return len(nodes()) == 3 && slices.Contains(node("ip-10-0-1-5").Spec.Taints, taint{"dedicated", "db", "NoSchedule"}) && !node("ip-10-0-2-6").ready()
	}, func() any { return nodes() })
	k.SetNodes(id, testNodes)
	eventually(t, "two nodes as at first", func() bool {
		return ready(2)() && len(node("ip-10-0-1-5").Spec.Taints) == 0
	}, func() any { return nodes() })

	replaced := slices.Clone(testNodes)
	replaced[1].ProviderID = "aws:///eu-west-1b/i-3"
	before := node("ip-10-0-2-6").Metadata.UID
	k.SetNodes(id, replaced)
	eventually(t, "another machine under the old name", func() bool {
		return ready(2)() && node("ip-10-0-2-6").Metadata.UID != before
	}, func() any { return nodes() })
}

func testDeployment(t *testing.T, admin *client) {
	const path = "/apis/apps/v1/namespaces/default/deployments"
	post(t, admin, path, `{"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
		"template": `+pod("", `"app": "web"`, "Always", "")+`}}`)
	type deployment struct {
		Status struct{ AvailableReplicas, UpdatedReplicas, ReadyReplicas int }
	}
	eventually(t, "three available pods", func() bool {
		s := get[deployment](t, admin, path+"/web").Status
		return s.AvailableReplicas == 3 && s.UpdatedReplicas == 3
	})
	type podSeen struct {
		Status struct{ PodIP, HostIP, Phase string }
	}
	for _, p := range get[list[podSeen]](t, admin, "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb").Items {
		if p.Status.PodIP == "" || p.Status.HostIP == "" || p.Status.Phase != "Running" {
			t.Errorf("pod: %+v", p)
		}
	}
	remove(t, admin, path+"/web?propagationPolicy=Foreground")
	eventually(t, "the deployment and its pods are gone", func() bool {
		return gone(admin, path+"/web") && len(get[list[podSeen]](t, admin, "/api/v1/namespaces/default/pods").Items) == 0
	})
}

func testJobs(t *testing.T, admin *client) {
	const path = "/apis/batch/v1/namespaces/default/jobs"
	type job struct {
		Status struct {
			Succeeded, Failed int
			Conditions        []struct{ Type, Status string }
		}
	}
	ends := func(name, how string) func() bool {
		return func() bool {
			return slices.Contains(get[job](t, admin, path+"/"+name).Status.Conditions, struct{ Type, Status string }{how, "True"})
		}
	}
	post(t, admin, path, `{"metadata": {"name": "good"}, "spec": {"template": `+pod("", "", "Never", "")+`}}`)
	bad := strings.Replace(pod("", "", "Never", ""), `"metadata": {`, `"metadata": {"annotations": {"sandbox/exit-code": "3"}, `, 1)
	post(t, admin, path, `{"metadata": {"name": "bad"}, "spec": {"backoffLimit": 0, "template": `+bad+`}}`)
	eventually(t, "the job completes", ends("good", "Complete"), func() any { return get[job](t, admin, path+"/good") })
	eventually(t, "the job fails", ends("bad", "Failed"), func() any { return get[job](t, admin, path+"/bad") })
}

func testObstacles(t *testing.T, admin *client) {
	const path = "/api/v1/namespaces/default/pods"
	type podSeen struct {
		Status struct {
			Phase             string
			ContainerStatuses []struct {
				RestartCount int
				State        struct {
					Waiting struct{ Reason, Message string }
				}
			}
		}
	}
	waits := func(name, reason string) func() bool {
		return func() bool {
			s := get[podSeen](t, admin, path+"/"+name).Status.ContainerStatuses
			return len(s) == 1 && s[0].State.Waiting.Reason == reason
		}
	}
	post(t, admin, path, pod("secretive", "", "Always", `{"name": "v", "secret": {"secretName": "later"}}`))
	post(t, admin, path, strings.Replace(pod("nowhere", "", "Always", ""), "example.test/main", "registry.invalid/main", 1))
	post(t, admin, path, strings.Replace(pod("crashes", "", "Always", ""), `"labels"`, `"annotations": {"sandbox/exit-code": "1"}, "labels"`, 1))
	eventually(t, "a pod waits for its secret", waits("secretive", "ContainerCreating"))
	eventually(t, "a pod's image is nowhere", waits("nowhere", "ImagePullBackOff"))
	eventually(t, "a pod crashes in a loop", waits("crashes", "CrashLoopBackOff"))
	post(t, admin, "/api/v1/namespaces/default/secrets", `{"metadata": {"name": "later"}}`)
	eventually(t, "the pod has its secret", func() bool { return get[podSeen](t, admin, path+"/secretive").Status.Phase == "Running" })
	for _, name := range []string{"secretive", "nowhere", "crashes"} {
		remove(t, admin, path+"/"+name)
		eventually(t, name+" is gone", func() bool { return gone(admin, path+"/"+name) })
	}
}

func testWatch(t *testing.T, admin *client) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	res, err := admin.open(ctx, http.MethodGet, "/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dseen", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	post(t, admin, "/api/v1/namespaces/default/configmaps", `{"metadata": {"name": "seen"}}`)
	events := json.NewDecoder(res.Body)
	for _, want := range []string{"ADDED", "DELETED"} {
		var e struct{ Type string }
		// The event comes while the stream is open, not when it ends.
		if err := events.Decode(&e); err != nil || e.Type != want {
			t.Fatalf("event %q, want %q: %v", e.Type, want, err)
		}
		if want == "ADDED" {
			remove(t, admin, "/api/v1/namespaces/default/configmaps/seen")
		}
	}
}

func testAdmits(t *testing.T, k *Kube, spec sim.KubeCluster, e sim.KubeEndpoint) {
	admin := as(t, e, adminToken)
	_ = get[any](t, admin, "/version")
	spec.Admits = func(from sim.KubeCaller) bool { return from.Inside }
	k.Open(spec)
	refused := func() bool {
		err := admin.call(t.Context(), http.MethodGet, "/version", nil, nil)
		var s *status
		return err != nil && !errors.As(err, &s)
	}
	eventually(t, "a private endpoint closes connections from outside", refused)
	k.SetCaller(sim.KubeCaller{Inside: true})
	_ = get[any](t, admin, "/version")
	k.SetCaller(sim.KubeCaller{})
	if !refused() {
		t.Error("the connection from inside serves one who is outside again")
	}
	k.SetCaller(sim.KubeCaller{Inside: true})
}

func testFaults(t *testing.T, k *Kube, id string, e sim.KubeEndpoint, admin *client) {
	k.Hold(id, true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := admin.call(ctx, http.MethodGet, "/version", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a held request: %v", err)
	}
	answered := make(chan error)
	go func() { answered <- as(t, e, adminToken).call(t.Context(), http.MethodGet, "/version", nil, nil) }()
	time.Sleep(100 * time.Millisecond)
	k.Hold(id, false)
	if err := <-answered; err != nil {
		t.Errorf("a request that was let go on: %v", err)
	}

	post(t, admin, "/api/v1/namespaces/default/configmaps", `{"metadata": {"name": "kept"}}`)
	k.Stop(id)
	err := admin.call(t.Context(), http.MethodGet, "/version", nil, nil)
	var s *status
	if err == nil || errors.As(err, &s) {
		t.Errorf("a stopped API server: %v", err)
	}
	k.Start(id)
	awaitReady(t, admin)
	_ = get[any](t, admin, "/api/v1/namespaces/default/configmaps/kept")
}

func testEnd(t *testing.T, k *Kube, id string, admin *client) {
	b := k.cluster(id).backend
	pid, dir := b.run.process.cmd.Process.Pid, b.dir
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	k.Close(id)
	if err := admin.call(t.Context(), http.MethodGet, "/version", nil, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a closed endpoint: %v", err)
	}
	eventually(t, "the process is gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	eventually(t, "its folder is gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}
