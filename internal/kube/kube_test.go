package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simkube "github.com/zopday/provisioner/internal/sim/kube"
)

// rig is one cluster with a real API server.
type rig struct {
	t      *testing.T
	kube   *simkube.Kube
	access cloud.KubeAccess
	cloud  *outside

	mu     sync.Mutex
	minted int
	valid  string // the token that is taken now
}

// outside is what the cluster made outside of itself.
type outside struct {
	mu        sync.Mutex
	balancers map[string]bool
	disks     map[string]bool
	stuck     bool // nothing is let go of
}

func (o *outside) EnsureLoadBalancer(_ context.Context, s sim.KubeService) (hostname, ip string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.balancers[s.UID] = true
	return s.Name + ".example.test", "", nil
}

func (o *outside) DeleteLoadBalancer(_ context.Context, s sim.KubeService) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stuck {
		return false, nil
	}
	delete(o.balancers, s.UID)
	return true, nil
}

func (o *outside) EnsureDisk(_ context.Context, v sim.KubeVolume) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disks[v.UID] = true
	return "vol-" + v.UID, nil
}

func (o *outside) DeleteDisk(_ context.Context, v sim.KubeVolume) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.disks, v.UID)
	return true, nil
}

func (o *outside) counts() (balancers, disks int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.balancers), len(o.disks)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	binary, err := simkube.Binary()
	if err != nil {
		t.Fatal(err)
	}
	k, err := simkube.New(simkube.Options{Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Shutdown)
	r := &rig{t: t, kube: k, cloud: &outside{balancers: map[string]bool{}, disks: map[string]bool{}}}
	e := k.Open(sim.KubeCluster{
		ID: "test", Version: "1.36", Cloud: r.cloud, Admits: func(sim.KubeCaller) bool { return true },
		Authenticate: func(token string) (sim.KubeUser, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return sim.KubeUser{Name: "provisioner", Groups: []string{"system:masters"}}, token == r.valid
		},
		Objects: []sim.KubeObject{{Path: "/apis/storage.k8s.io/v1/storageclasses", JSON: []byte(`{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass",
			"metadata":{"name":"gp2","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"ebs.csi.aws.com"}`)}},
	})
	k.SetNodes("test", []sim.KubeNode{
		{Name: "node-1", Zone: "us-east-1a", Region: "us-east-1", Arch: "amd64", Labels: map[string]string{"eks.amazonaws.com/nodegroup": "workers"}},
		{Name: "node-2", Zone: "us-east-1b", Region: "us-east-1", Arch: "amd64", Labels: map[string]string{"eks.amazonaws.com/nodegroup": "workers"}},
		{Name: "node-3", Zone: "us-east-1b", Region: "us-east-1", Arch: "arm64", Labels: map[string]string{"eks.amazonaws.com/nodegroup": "arm"}, NotReady: true},
	})
	r.access = cloud.KubeAccess{Server: "https://" + e.Address, CA: e.CA, Token: func(context.Context) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.minted++
		r.valid = fmt.Sprintf("token-%d", r.minted) // the one before is stale at once
		return r.valid, nil
	}}
	return r
}

// open is a context in which everything may be done.
func (r *rig) open() context.Context {
	return pipeline.WithGate(r.t.Context(), func(context.Context, pipeline.Call) error { return nil })
}

func (r *rig) client(ctx context.Context) Interface {
	r.t.Helper()
	c, err := Client(ctx, r.access)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

type silent struct{}

func (silent) Record(context.Context, pipeline.Delta) error { return nil }

func (r *rig) run(mode pipeline.Mode) *pipeline.Run {
	return pipeline.NewRun(&job.Job{Provider: job.AWS}, mode, nil, silent{}, nil, time.Now, 1)
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) eventually(what string, f func() bool) {
	r.t.Helper()
	for end := time.Now().Add(40 * time.Second); !f(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not after 40 s", what)
		}
	}
}

// TestCluster goes through what is done with a cluster, on one API server.
func TestCluster(t *testing.T) {
	r := newRig(t)
	t.Run("calls", r.calls)
	t.Run("nodes", r.nodes)
	t.Run("baseline", r.baseline)
	t.Run("drain", r.drain)
}

func (r *rig) calls(t *testing.T) {
	ctx := r.open()
	c := r.client(ctx)
	version, err := Version(c)
	if err != nil || !strings.HasPrefix(version, "v1.") {
		t.Fatalf("version %q, %v", version, err)
	}
	before := r.minted
	if _, err := Namespaces(ctx, c); err != nil || r.minted == before {
		t.Errorf("no token was minted for the call: %v", err)
	}
	if _, err := CreateNamespace(ctx, c, "shop", map[string]string{"team": "shop"}); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateNamespace(ctx, c, "shop", nil); !pipeline.Is(err, pipeline.Exists) {
		t.Errorf("the same namespace again: %v", err)
	}
	if _, err := CreateNamespace(ctx, c, "Shop!", nil); !pipeline.Is(err, pipeline.Invalid) {
		t.Errorf("no name for a namespace: %v", err)
	}
	all, err := Namespaces(ctx, c)
	r.ok(err)
	found := ""
	for _, ns := range all {
		if ns.Name == "shop" {
			found = ns.PodSecurity + ns.Labels["team"]
		}
	}
	if found != "baselineshop" {
		t.Errorf("the namespace shows as %q", found)
	}
	// A client that may not change anything sends no mutating call.
	looking := pipeline.WithGate(t.Context(), pipeline.ReadOnly)
	_, err = CreateNamespace(looking, r.client(looking), "other", nil)
	if !pipeline.Is(err, pipeline.Refused) || !errors.Is(err, pipeline.ErrReadOnly) {
		t.Errorf("a client that only reads made a namespace: %v", err)
	}
	if _, err := r.client(ctx).CoreV1().Namespaces().Get(ctx, "other", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is there: %v", err)
	}
	// A token that is refused, and a server that is not there.
	stale := r.access
	stale.Token = func(context.Context) (string, error) { return "stale", nil }
	c, err = Client(ctx, stale)
	r.ok(err)
	if _, err := Version(c); !pipeline.Is(err, pipeline.Expired) || strings.Contains(err.Error(), "stale") {
		t.Errorf("a stale token: %v", err)
	}
	gone := r.access
	gone.Server = "https://127.0.0.1:1"
	c, err = Client(ctx, gone)
	r.ok(err)
	_, err = Version(c)
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Unavailable || ce.Sent {
		t.Errorf("a server that is not there: %#v", err)
	}
}

func (r *rig) nodes(t *testing.T) {
	c := r.client(r.open())
	var ready map[string]int
	var lacking []string
	r.eventually("two nodes ready", func() bool {
		var err error
		ready, lacking, err = Ready(t.Context(), c, job.AWS)
		r.ok(err)
		return ready["workers"] == 2 && len(lacking) == 1
	})
	if !strings.HasPrefix(lacking[0], "node-3: ") || ready["arm"] != 0 {
		t.Errorf("what is lacking: %q, ready %v", lacking, ready)
	}
}

func (r *rig) controls(t *testing.T) map[string]job.Control {
	t.Helper()
	list, err := Controls(t.Context(), r.client(r.open()), job.AWS)
	r.ok(err)
	out := map[string]job.Control{}
	for _, c := range list {
		out[c.ID] = c
	}
	return out
}

func (r *rig) baseline(t *testing.T) {
	ctx := r.open()
	c := r.client(ctx)
	if got := r.controls(t); got["EKS-29"].Met || got["EKS-26"].Met || !got["EKS-27"].Unchecked {
		t.Fatalf("before: %v", got)
	}
	look := r.run(pipeline.Verify)
	r.ok(Baseline(ctx, look, c))
	if drift := look.Drift(); len(drift) != 2 {
		t.Errorf("a verify reports %v", drift)
	}
	for range 2 { // the same again changes nothing
		r.ok(Baseline(ctx, r.run(pipeline.Apply), c))
	}
	if got := r.controls(t); !got["EKS-29"].Met || !got["EKS-26"].Met {
		t.Errorf("after: %v", got)
	}
	look = r.run(pipeline.Verify)
	r.ok(Baseline(ctx, look, c))
	if drift := look.Drift(); len(drift) != 0 {
		t.Errorf("a verify reports %v", drift)
	}
	list, err := c.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	r.ok(err)
	for _, s := range list.Items {
		if want := s.Name == "gp3-encrypted"; (s.Annotations[defaultClass] == "true") != want {
			t.Errorf("class %s is default: %t", s.Name, !want)
		}
	}
}

// drain takes off what the workloads made outside of the cluster, a load balancer
// and a disk that a pod uses, and keeps automation from making more.
func (r *rig) drain(t *testing.T) {
	ctx := r.open()
	c := r.client(ctx)
	_, err := c.CoreV1().Services("shop").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "front"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}},
	}, metav1.CreateOptions{})
	r.ok(err)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	_, err = c.CoreV1().PersistentVolumeClaims("shop").Create(ctx, claim, metav1.CreateOptions{})
	r.ok(err)
	labels := map[string]string{"app": "db"}
	_, err = c.AppsV1().Deployments("shop").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "db", Image: "db"}},
				Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
			}},
		},
	}, metav1.CreateOptions{})
	r.ok(err)
	r.eventually("a load balancer and a disk", func() bool { b, d := r.cloud.counts(); return b == 1 && d == 1 })

	run := r.run(pipeline.Apply)
	passes := 0
	r.eventually("drained", func() bool {
		passes++
		err := Drain(ctx, run, r.access)
		if !pipeline.IsWait(err) {
			r.ok(err)
			return true
		}
		return false
	})
	if b, d := r.cloud.counts(); b != 0 || d != 0 || passes < 2 {
		t.Errorf("%d load balancers and %d disks are left after %d passes", b, d, passes)
	}
	// What automation does meanwhile is barred.
	claim.ResourceVersion = ""
	_, err = c.CoreV1().PersistentVolumeClaims("shop").Create(ctx, claim, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a new claim: %v", err)
	}

	// Controllers that never let go are waited for within a bound.
	r.cloud.mu.Lock()
	r.cloud.stuck = true
	r.cloud.mu.Unlock()
	r.ok(c.CoreV1().ResourceQuotas("shop").Delete(ctx, TeardownQuota, metav1.DeleteOptions{}))
	_, err = c.CoreV1().Services("shop").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "stuck"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	r.ok(err)
	r.eventually("the load balancer", func() bool { b, _ := r.cloud.counts(); return b == 1 })
	now := time.Now()
	run = pipeline.NewRun(&job.Job{Provider: job.AWS}, pipeline.Apply, nil, silent{}, nil, func() time.Time { return now }, 1)
	if err := Drain(ctx, run, r.access); !pipeline.IsWait(err) {
		t.Fatalf("a drain of what is stuck: %v", err)
	}
	now = now.Add(drainPatience + time.Minute)
	err = Drain(ctx, run, r.access)
	r.ok(err)
	if notes := strings.Join(run.TakeNotes(), "\n"); !strings.Contains(notes, "shop/stuck") {
		t.Errorf("the note %q does not name what is left", notes)
	}
	// What follows takes more passes: none of them waits that long again.
	r.ok(Drain(ctx, run, r.access))
	// Freed, so that the instance can end.
	r.cloud.mu.Lock()
	r.cloud.stuck = false
	r.cloud.mu.Unlock()
}
