package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/charts"
	simgcp "github.com/zopday/provisioner/internal/sim/gcp"
	simkube "github.com/zopday/provisioner/internal/sim/kube"
)

const (
	// manyClusters are made in parallel by one process.
	manyClusters = 20
	// limitMiB is the memory that the process may take for it, at its peak.
	limitMiB = 1024
	// clusterPace is slower than pace: what runs in a cluster takes real time.
	clusterPace = 120
	// clustersWithin bounds the time that all may take, on a machine that does other things too.
	clustersWithin = 20 * time.Minute

	clusterRegion = "us-central1"
	clusterToken  = "zop_bench_clusters_0123456789abcdefghijkl"
	// cloudToken opens the simulated Google Cloud alone.
	cloudToken = "ya29.example"
)

// A clusterWorld is a simulated Google Cloud in this process. Its clusters have
// one control plane in common, which is a process of its own: neither adds to the
// memory of the provisioner.
type clusterWorld struct {
	dir    string
	binary string
	kube   *simkube.Kube
	close  []func()
	env    []string // of a provisioner that uses it
	charts string   // address
}

// clusters measures the memory that one provisioner takes for one cluster, and
// for many in parallel.
func clusters(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clustersWithin)
	defer cancel()
	dir, err := os.MkdirTemp("", "zopday-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := &clusterWorld{dir: dir}
	defer w.end()
	if err := w.start(ctx); err != nil {
		return err
	}
	if w.binary, err = build(ctx, dir); err != nil {
		return err
	}
	for _, n := range []int{1, manyClusters} {
		if err := w.measure(ctx, n); err != nil {
			return fmt.Errorf("%d clusters in parallel: %w", n, err)
		}
	}
	return nil
}

func (w *clusterWorld) start(ctx context.Context) error {
	binary, err := simkube.Binary()
	if err != nil {
		return err
	}
	if w.kube, err = simkube.New(simkube.Options{Binary: binary, Shared: true}); err != nil {
		return err
	}
	w.close = append(w.close, w.kube.Shutdown)
	ca := filepath.Join(w.dir, "kubernetes-ca.pem")
	if err := os.WriteFile(ca, w.kube.CA(), 0o600); err != nil {
		return err
	}
	world := sim.New(sim.Options{Seed: 1, TimeScale: clusterPace})
	cloud := simgcp.New(world, simgcp.Options{Kubernetes: w.kube})
	// A project's first quotas do not take so many clusters.
	for code, value := range map[string]float64{"NETWORKS-per-project": 100, "ROUTERS-per-project": 100, "FIREWALLS-per-project": 1000, "ROUTES-per-project": 1000,
		"INSTANCE_TEMPLATES-per-project": 1000, "CPUS_ALL_REGIONS-per-project": 2000, "CPUS-per-project-region": 2000, "SSD_TOTAL_GB-per-project-region": 20480,
		"STATIC_ADDRESSES-per-project-region": 200, "IN_USE_ADDRESSES-per-project-region": 500, "E2_CPUS-per-project-region": 2000} {
		if !world.SetQuota("gcp", "compute", code, "", "", value) {
			return fmt.Errorf("the simulation has no quota %s", code)
		}
	}
	endpoint, err := w.serve(ctx, cloud)
	if err != nil {
		return err
	}
	if w.charts, err = w.serve(ctx, charts.New(heavyCharts()...)); err != nil {
		return err
	}
	w.env = []string{
		"HOME=" + w.dir, "ZOPDAY_BOOTSTRAP_TOKEN=" + clusterToken,
		"ZOPDAY_GCP_ENDPOINT=" + endpoint, "GOOGLE_CLOUD_PROJECT=" + simgcp.DefaultProjects()[0].ID, "ZOPDAY_GCP_ACCESS_TOKEN=" + cloudToken, "ZOPDAY_GCP_CA_FILE=" + ca,
	}
	return nil
}

func (w *clusterWorld) serve(ctx context.Context, h http.Handler) (url string, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	w.close = append(w.close, func() { _ = s.Close() }) // nobody uses it any more
	go func() { _ = s.Serve(l) }()                      // ends when it is closed
	return "http://" + l.Addr().String(), nil
}

func (w *clusterWorld) end() {
	for _, f := range w.close {
		f()
	}
}

// heavyChart is the component whose chart is as large as the largest of the
// catalogue are, so that the memory which a chart takes is seen: kinds with
// hundreds of KiB of descriptions, and dashboards in ConfigMaps.
const (
	heavyChart     = "kube-prometheus-stack"
	kindKiB        = 500
	dashboards     = 25
	dashboardKiB   = 40
	paragraphs     = 16
	paragraphWords = 40
)

// heavyCharts are the stand-ins of the catalogue's charts, that one made large.
func heavyCharts() []charts.Chart {
	all := charts.StandIns()
	i := slices.IndexFunc(all, func(c charts.Chart) bool { return c.Name == heavyChart })
	text := prose(rand.New(rand.NewPCG(1, 1)))
	for name, body := range all[i].Files {
		if strings.HasPrefix(name, "crds/") {
			all[i].Files[name] = body + "        description: " + text(kindKiB) + "\n"
		}
	}
	var b strings.Builder
	for n := range dashboards {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-%d'}\ndata:\n  dashboard.json: %s\n", n, text(dashboardKiB))
	}
	all[i].Files["templates/dashboards.yaml"] = b.String()
	return all
}

// prose makes text of some KiB that compresses as such files do, some ten to one:
// paragraphs that recur, and a few that do not.
func prose(r *rand.Rand) func(kib int) string {
	words := func() string {
		var b strings.Builder
		for range paragraphWords {
			fmt.Fprintf(&b, "w%x ", r.IntN(1<<12))
		}
		return b.String()
	}
	known := make([]string, paragraphs)
	for i := range known {
		known[i] = words()
	}
	return func(kib int) string {
		var b strings.Builder
		for b.Len() < kib<<10 {
			if r.IntN(50) == 0 {
				b.WriteString(words())
			} else {
				b.WriteString(known[r.IntN(paragraphs)])
			}
		}
		return b.String()
	}
}

// measure has a provisioner of its own make clusters in parallel. They are not
// torn down: in a control plane of all, a drain would reach its neighbours.
func (w *clusterWorld) measure(ctx context.Context, n int) error {
	dir, err := os.MkdirTemp(w.dir, "serve-")
	if err != nil {
		return err
	}
	p, err := start(ctx, filepath.Join(dir, "log"), w.binary, w.env, "serve", "--listen", "127.0.0.1:0", "--db", filepath.Join(dir, "zopday.db"),
		"--workers", fmt.Sprint(manyClusters), "--time-scale", fmt.Sprint(clusterPace), "--reach", "public:203.0.113.7/32", "--chart-mirror", w.charts, "--log-level", "warn")
	if err != nil {
		return err
	}
	f, err := w.make(ctx, p, n)
	if err != nil {
		return errors.Join(err, p.end(), fmt.Errorf("zopday serve said: %s", p.tail()))
	}
	if f.peak, err = p.memory("VmHWM"); err != nil {
		return errors.Join(err, p.end())
	}
	if err := p.end(); err != nil {
		return err
	}
	cpu := p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	fmt.Printf("BENCH clusters_parallel jobs=%d peak_rss_mib=%.0f limit_mib=%d idle_rss_mib=%.0f peak_sockets=%d seconds=%.0f cpu_seconds=%.0f\n",
		n, f.peak, limitMiB, f.idle, f.sockets, f.took.Seconds(), cpu.Seconds())
	if f.peak > limitMiB {
		return fmt.Errorf("%.0f MiB were resident at the peak, and %d may be", f.peak, limitMiB)
	}
	return nil
}

// clusterFigures are what one measurement saw.
type clusterFigures struct {
	idle, peak float64 // resident memory in MiB: before the jobs, and the most
	sockets    int     // the most seen
	took       time.Duration
}

// make submits the jobs and waits until all are completed.
func (w *clusterWorld) make(ctx context.Context, p *process, n int) (clusterFigures, error) {
	var f clusterFigures
	c, err := client.New(client.Options{Server: p.url, Token: clusterToken})
	if err != nil {
		return f, err
	}
	if f.idle, err = p.memory("VmRSS"); err != nil {
		return f, err
	}
	begin := time.Now()
	waiting := map[string]bool{}
	for i := range n {
		doc, err := json.Marshal(clusterJob(n, i))
		if err != nil {
			return f, err
		}
		_, j, err := c.CreateJob(ctx, doc, client.NewKey())
		if err != nil {
			return f, err
		}
		waiting[j.ID] = true
	}
	for len(waiting) > 0 {
		for id := range waiting {
			_, j, err := c.GetJob(ctx, id)
			switch {
			case err != nil:
				return f, err
			case j.Status == job.Completed:
				delete(waiting, id)
			case j.Status != job.Queued && j.Status != job.Running:
				return f, fmt.Errorf("the job %s is %s: %w", j.Name, j.Status, j.Error)
			}
		}
		held, err := p.sockets()
		if err != nil {
			return f, err
		}
		f.sockets = max(f.sockets, held)
		time.Sleep(500 * time.Millisecond)
	}
	f.took = time.Since(begin)
	return f, nil
}

// clusterJob is one of n clusters: two pools, and three components. Names of
// pools and namespaces are its own, because all clusters are in one API server.
func clusterJob(n, i int) map[string]any {
	own := fmt.Sprintf("%02d%02d", n, i)
	component := func(name string) map[string]any {
		return map[string]any{"name": name, "namespace": "bench-" + own + "-" + name, "release": name + "-" + own}
	}
	return map[string]any{
		"kind": job.Provisioning, "resourceType": job.Cluster, "provider": job.GCP, "mode": job.ModeCreate, "name": "bench-" + own,
		"region": clusterRegion, "cloudAccountId": "default", "submit": true,
		"config": map[string]any{"spec": map[string]any{
			"network": map[string]any{"zones": 2},
			"nodePools": []map[string]any{
				{"name": "w" + own, "min": 1, "desired": 2, "max": 4},
				{"name": "b" + own, "min": 1, "desired": 1, "max": 2, "size": map[string]any{"vcpus": 4, "memoryGiB": 16}},
			},
			"components": []map[string]any{component(heavyChart), component("grafana"), component("reloader")},
		}},
	}
}
