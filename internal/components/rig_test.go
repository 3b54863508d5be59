package components

import (
	"context"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/charts"
	simkube "github.com/zopday/provisioner/internal/sim/kube"
)

// One cluster with a real API server serves all tests of the package, each in
// namespaces of its own: it takes seconds to start.
var shared struct {
	once   sync.Once
	kube   *simkube.Kube
	access cloud.KubeAccess
	err    error
}

func TestMain(m *testing.M) {
	// The tests wait for the cluster more than they work.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if shared.kube != nil {
		shared.kube.Shutdown()
	}
	os.Exit(code)
}

const adminToken = "token-of-the-provisioner"

// outside gives every Service a load balancer and every claim a disk.
type outside struct{}

func (outside) EnsureLoadBalancer(_ context.Context, s sim.KubeService) (hostname, ip string, err error) {
	return s.Name + ".example.test", "", nil
}
func (outside) DeleteLoadBalancer(context.Context, sim.KubeService) (bool, error) { return true, nil }
func (outside) EnsureDisk(_ context.Context, v sim.KubeVolume) (string, error) {
	return "vol-" + v.UID, nil
}
func (outside) DeleteDisk(context.Context, sim.KubeVolume) (bool, error) { return true, nil }

func startCluster() {
	binary, err := simkube.Binary()
	if err != nil {
		shared.err = err
		return
	}
	k, err := simkube.New(simkube.Options{Binary: binary})
	if err != nil {
		shared.err = err
		return
	}
	shared.kube = k
	e := k.Open(sim.KubeCluster{
		ID: "test", Version: "1.37", Cloud: outside{}, Admits: func(sim.KubeCaller) bool { return true },
		Authenticate: func(token string) (sim.KubeUser, bool) {
			return sim.KubeUser{Name: "provisioner", Groups: []string{"system:masters"}}, token == adminToken
		},
		Objects: []sim.KubeObject{{Path: "/apis/storage.k8s.io/v1/storageclasses", JSON: []byte(`{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass",
			"metadata":{"name":"gp3","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},
			"provisioner":"ebs.csi.aws.com","volumeBindingMode":"WaitForFirstConsumer"}`)}},
	})
	k.SetNodes("test", []sim.KubeNode{
		{Name: "node-1", Zone: "us-east-1a", Region: "us-east-1", Arch: "amd64"},
		{Name: "node-2", Zone: "us-east-1b", Region: "us-east-1", Arch: "amd64"},
	})
	shared.access = accessAt("https://"+e.Address, e.CA)
}

func accessAt(server string, ca []byte) cloud.KubeAccess {
	return cloud.KubeAccess{Server: server, CA: ca, Token: func(context.Context) (string, error) { return adminToken, nil }}
}

// A world is one job with its ledger, and the cluster that it works on.
type world struct {
	t      *testing.T
	e      *Engine
	job    *job.Job
	mu     sync.Mutex
	rows   map[string]job.Object
	events []string
	mem    *pipeline.Memory
	access cloud.KubeAccess
	kube   kubernetes.Interface
}

var _ pipeline.Recorder = (*world)(nil)

func (w *world) Record(_ context.Context, d pipeline.Delta) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range d.Objects {
		w.rows[o.Kind+"/"+o.Key] = o
	}
	for _, e := range d.Events {
		w.events = append(w.events, e.Type+": "+e.Message)
	}
	return nil
}

func newWorld(t *testing.T, served ...charts.Chart) *world {
	t.Helper()
	shared.once.Do(startCluster)
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	srv := serve(t, charts.New(served...))
	var extra strings.Builder
	extra.WriteString("components:\n")
	seen := map[string]bool{}
	for _, c := range served {
		if _, known := load(t).Get(c.Name); !seen[c.Name] && !known {
			fmt.Fprintf(&extra, "- {name: %s, title: T, category: test, chart: {repository: %q, name: %s}, version: %s, license: MIT, source: \"https://example.com\", namespace: %s}\n",
				c.Name, srv.URL, c.Name, c.Version, c.Name)
		}
		seen[c.Name] = true
	}
	c, err := load(t).With([]byte(extra.String()))
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Catalogue: c, Mirror: srv.URL, Pace: 60})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, e: e, rows: map[string]job.Object{}, mem: pipeline.NewMemory(), access: shared.access,
		job: &job.Job{ID: job.NewID("job"), Provider: job.AWS, Region: "us-east-1"}}
	w.kube, err = kubernetes.NewForConfig(&rest.Config{Host: shared.access.Server, BearerToken: adminToken, TLSClientConfig: rest.TLSClientConfig{CAData: shared.access.CA}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// other is another job on the same cluster and catalogue.
func (w *world) other() *world {
	return &world{t: w.t, e: w.e, rows: map[string]job.Object{}, mem: pipeline.NewMemory(), access: w.access, kube: w.kube,
		job: &job.Job{ID: job.NewID("job"), Provider: job.AWS, Region: "us-east-1"}}
}

func (w *world) run(mode pipeline.Mode) *pipeline.Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	var rows []job.Object
	for _, o := range w.rows {
		rows = append(rows, o)
	}
	r := pipeline.NewRun(w.job, mode, rows, w, w.mem, time.Now, 60)
	r.Step = "test"
	return r
}

func open(t *testing.T) context.Context {
	return pipeline.WithGate(t.Context(), func(context.Context, pipeline.Call) error { return nil })
}

// pass runs passes until something other than a wait comes out.
func (w *world) pass(what string, once func(ctx context.Context, r *pipeline.Run) error) error {
	w.t.Helper()
	last := ""
	for until := time.Now().Add(40 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		err := once(open(w.t), w.run(pipeline.Apply))
		var wait *pipeline.WaitError
		if !errors.As(err, &wait) {
			return err
		}
		last = err.Error()
	}
	return fmt.Errorf("%s never came to an end: %s", what, last)
}

func (w *world) resolve(spec job.ComponentSpec) *Resolved {
	w.t.Helper()
	x, err := w.e.Resolve(w.t.Context(), spec, "1.37", w.job.Provider)
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

// install makes a component so in passes, each by a worker that has just taken the job up.
func (w *world) install(x *Resolved) (info job.ComponentInfo, err error) {
	w.t.Helper()
	err = w.pass("install", func(ctx context.Context, r *pipeline.Run) error {
		var err error
		info, err = w.e.Ensure(ctx, r, w.access, x)
		return err
	})
	return info, err
}

func (w *world) mustInstall(x *Resolved) job.ComponentInfo {
	w.t.Helper()
	info, err := w.install(x)
	if err != nil {
		w.t.Fatalf("install %s: %v", x.Place.ID(), err)
	}
	return info
}

func (w *world) remove(at Place) error {
	w.t.Helper()
	return w.pass("remove", func(ctx context.Context, r *pipeline.Run) error { return w.e.Remove(ctx, r, w.access, at) })
}

// forget is a worker's death: what it remembered is gone.
func (w *world) forget() { w.mem = pipeline.NewMemory() }

// sound checks that a release is in place once, as asked, and the ledger knows it.
func (w *world) sound(x *Resolved) {
	w.t.Helper()
	r := w.run(pipeline.Verify)
	if _, err := w.e.Ensure(open(w.t), r, w.access, x); err != nil {
		w.t.Errorf("verify: %v", err)
	}
	for _, d := range r.Drift() {
		w.t.Errorf("drift of %s: %s is %q, not %q", d.Key, d.Attr, d.Seen, d.Wanted)
	}
	deployed := 0
	history, err := w.e.History(w.t.Context(), w.access, x.Place)
	if err != nil {
		w.t.Error(err)
	}
	for _, h := range history {
		if h.Status == "deployed" {
			deployed++
		}
		if strings.HasPrefix(h.Status, "pending") {
			w.t.Errorf("revision %d is still %s", h.Number, h.Status)
		}
	}
	if deployed != 1 || len(history) == 0 || history[0].Status != "deployed" {
		w.t.Errorf("history: %+v", history)
	}
	if o := w.rows[KindRelease+"/"+x.Place.Release]; o.State != job.ObjectCreated || o.ID != x.Place.ID() || o.Reason != "" {
		w.t.Errorf("row: %+v", o)
	}
}

// nothingLeft checks that a namespace is gone, or has nothing of a release.
func (w *world) nothingLeft(x *Resolved) {
	w.t.Helper()
	left, err := w.e.contents(w.t.Context(), w.access, x.Place.Namespace)
	if err != nil && !pipeline.Is(err, pipeline.NotFound) {
		w.t.Fatal(err)
	}
	for _, l := range left {
		w.t.Errorf("left behind: %s", l)
	}
	for _, o := range w.rows {
		if o.State != job.ObjectRemoved && o.State != job.ObjectAbsent {
			w.t.Errorf("row: %+v", o)
		}
	}
	if _, err := w.kube.CoreV1().Namespaces().Get(w.t.Context(), x.Place.Namespace, metav1.GetOptions{}); err == nil {
		w.t.Errorf("the namespace %s is still there", x.Place.Namespace)
	}
}

func (w *world) happened(event string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.events, func(e string) bool { return strings.HasPrefix(e, event) })
}

// A wire is a connection to the API server that can be cut: from the nth
// mutating request on nothing gets through any more, as if the worker had died.
type wire struct {
	mu     sync.Mutex
	n      int  // mutating requests so far
	dieAt  int  // 0: never
	after  bool // the last one still takes effect, and its reply is lost
	dead   bool // nothing gets through
	seen   []string
	spoil  func(r *http.Request) bool // answers 404 instead
	access cloud.KubeAccess
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{}
	target, err := url.Parse(shared.access.Server)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{Host: shared.access.Server, TLSClientConfig: rest.TLSClientConfig{CAData: shared.access.CA}})
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.serve(proxy, rw, r) }))
	t.Cleanup(srv.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	w.access = accessAt(srv.URL, ca)
	return w
}

func (w *wire) serve(proxy http.Handler, rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	mutating := r.Method != http.MethodGet && r.Method != http.MethodHead
	lose := false
	if mutating && !w.dead {
		w.n++
		w.seen = append(w.seen, r.Method+" "+r.URL.Path)
		if w.n == w.dieAt {
			w.dead = true
			lose = w.after
		}
	}
	dead, spoil := w.dead, w.spoil
	w.mu.Unlock()
	switch {
	case lose:
		proxy.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case dead:
		http.Error(rw, "dead", http.StatusServiceUnavailable)
	case spoil != nil && spoil(r):
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusNotFound)
		fmt.Fprint(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	default:
		proxy.ServeHTTP(rw, r)
	}
}
