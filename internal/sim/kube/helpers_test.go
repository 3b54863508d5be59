package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// mustBinary fails the test where there is no control plane: a test that was not run proves nothing.
func mustBinary(t *testing.T) string {
	t.Helper()
	path, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func instance(t *testing.T, o Options) *Kube {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	k, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Shutdown)
	return k
}

// The tokens that the clusters of these tests know.
const (
	adminToken  = "token-of-the-administrator"
	nobodyToken = "token-of-one-without-rights"
)

func authenticate(token string) (sim.KubeUser, bool) {
	switch token {
	case adminToken:
		return sim.KubeUser{Name: "ada", Groups: []string{"system:masters"}}, true
	case nobodyToken:
		return sim.KubeUser{Name: "bob", Groups: []string{"readers"}}, true
	}
	return sim.KubeUser{}, false
}

// as is a client of an endpoint with a token.
func as(t *testing.T, e sim.KubeEndpoint, token string) *client {
	t.Helper()
	c, err := newClient(announcement{Server: "https://" + e.Address, CA: string(e.CA), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// started is an administrator's client of an API server that answers, however busy the machine is.
func started(t *testing.T, e sim.KubeEndpoint) *client {
	t.Helper()
	c := as(t, e, adminToken)
	awaitReady(t, c)
	return c
}

func awaitReady(t *testing.T, c *client) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = c.call(t.Context(), http.MethodGet, "/readyz", nil, nil); err == nil {
			return
		}
	}
	t.Fatalf("the API server does not start: %v", err)
}

func get[T any](t *testing.T, c *client, path string) T {
	t.Helper()
	var out T
	if err := c.call(t.Context(), http.MethodGet, path, nil, &out); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return out
}

func post(t *testing.T, c *client, path, object string) {
	t.Helper()
	if err := c.call(t.Context(), http.MethodPost, path, []byte(object), nil); err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
}

func remove(t *testing.T, c *client, path string) {
	t.Helper()
	if err := c.call(t.Context(), http.MethodDelete, path, nil, nil); err != nil {
		t.Fatalf("DELETE %s: %v", path, err)
	}
}

func gone(c *client, path string) bool {
	return isCode(c.call(context.Background(), http.MethodGet, path, nil, nil), http.StatusNotFound)
}

// eventually waits until something holds; detail is asked when it never does.
func eventually(t *testing.T, what string, holds func() bool, detail ...func() any) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			for _, d := range detail {
				b, _ := json.MarshalIndent(d(), "", "  ")
				t.Logf("%s", b)
			}
			t.Fatalf("never: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A fakeCloud makes load balancers and disks on the second call, and needs two to delete them.
type fakeCloud struct {
	mu        sync.Mutex
	balancers map[string]sim.KubeService // by UID
	disks     map[string]sim.KubeVolume
	calls     map[string]int
	refuse    error
}

func newFakeCloud() *fakeCloud {
	return &fakeCloud{balancers: map[string]sim.KubeService{}, disks: map[string]sim.KubeVolume{}, calls: map[string]int{}}
}

func (f *fakeCloud) first(key string) bool {
	f.calls[key]++
	return f.calls[key] == 1
}

func (f *fakeCloud) EnsureLoadBalancer(_ context.Context, s sim.KubeService) (string, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return "", "", f.refuse
	}
	f.balancers[s.UID] = s
	if f.first("ensure " + s.UID) {
		return "", "", nil
	}
	return s.Name + ".elb.example.test", "", nil
}

func (f *fakeCloud) DeleteLoadBalancer(_ context.Context, s sim.KubeService) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first("delete " + s.UID) {
		return false, nil
	}
	delete(f.balancers, s.UID)
	return true, nil
}

func (f *fakeCloud) EnsureDisk(_ context.Context, v sim.KubeVolume) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disks[v.UID] = v
	if f.first("ensure " + v.UID) {
		return "", nil
	}
	return "disk-" + v.UID, nil
}

func (f *fakeCloud) DeleteDisk(_ context.Context, v sim.KubeVolume) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.Handle != "disk-"+v.UID {
		return false, fmt.Errorf("handle %q of the disk of claim %q", v.Handle, v.UID)
	}
	if f.first("delete " + v.UID) {
		return false, nil
	}
	delete(f.disks, v.UID)
	return true, nil
}

func (f *fakeCloud) count() (balancers, disks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.balancers), len(f.disks)
}

func (f *fakeCloud) disk() (v sim.KubeVolume) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v = range f.disks {
	}
	return v
}

func (f *fakeCloud) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

var testNodes = []sim.KubeNode{
	{
		Name: "ip-10-0-1-5", Zone: "eu-west-1a", Region: "eu-west-1", Arch: "arm64", Type: "m7g.large", CPUs: 2, MemoryMiB: 8192, Pods: 29,
		ProviderID: "aws:///eu-west-1a/i-1", Labels: map[string]string{"eks.amazonaws.com/nodegroup": "main"}, IP: "10.0.1.5", Kubelet: "v1.36.3-eks-1",
	},
	{Name: "ip-10-0-2-6", Zone: "eu-west-1b", Region: "eu-west-1", Arch: "arm64", Type: "m7g.large", ProviderID: "aws:///eu-west-1b/i-2"},
}

var classObject = sim.KubeObject{Path: classesPath, JSON: []byte(`{
	"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "ebs.csi.aws.com", "parameters": {"type": "gp3"},
	"volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete",
	"metadata": {"name": "gp3", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}`)}

func pod(name, labels, restart, volumes string) string {
	return strings.NewReplacer("NAME", name, "LABELS", labels, "RESTART", restart, "VOLUMES", volumes).Replace(`{
		"metadata": {"name": "NAME", "labels": {LABELS}}, "spec": {"restartPolicy": "RESTART", "volumes": [VOLUMES],
		"initContainers": [{"name": "first", "image": "example.test/first:1"}],
		"containers": [{"name": "main", "image": "example.test/main:1", "resources": {"requests": {"cpu": "100m"}}}]}}`)
}
