package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return rec.Body.String()
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := ledger.New(d, ledger.Options{})
	for _, s := range []job.Status{job.Draft, job.Queued, job.Queued} {
		j := &job.Job{ID: job.NewID("job"), OrgID: "o", Kind: job.Provisioning, ResourceType: job.VM, Provider: job.AWS, Mode: job.ModeCreate, Name: job.NewID("n"),
			SubjectType: "vm_pool", SubjectID: job.NewID("vmp"), Status: s, Phase: job.PhaseProvision, CreatedBy: "a"}
		if err := l.Insert(t.Context(), d, j); err != nil {
			t.Fatal(err)
		}
	}
	m := NewMetrics()
	m.WatchLedger(l)
	m.Claimed("vm")
	m.LeaseLost("vm")
	m.StepEnded("vm", "stepCreateVMs", "up", "done", 3*time.Second)
	m.CloudCall("EC2", "RunInstances", "ok", 40*time.Millisecond)
	m.CloudCall("EC2", "RunInstances", "throttled", time.Millisecond)
	m.Request("GET", "/provisioning-jobs/{id}", "200", time.Millisecond)
	m.Unauthenticated()
	closed := m.StreamOpened()
	got := scrape(t, m)
	for _, want := range []string{
		`zopday_jobs{family="vm",phase="provision",status="draft"} 1`,
		`zopday_jobs{family="vm",phase="provision",status="queued"} 2`,
		`zopday_claims_total{family="vm"} 1`,
		`zopday_lease_losses_total{family="vm"} 1`,
		`zopday_step_duration_seconds_bucket{direction="up",family="vm",outcome="done",step="stepCreateVMs",le="5"} 1`,
		`zopday_step_duration_seconds_bucket{direction="up",family="vm",outcome="done",step="stepCreateVMs",le="2.5"} 0`,
		`zopday_cloud_calls_total{operation="RunInstances",outcome="ok",service="EC2"} 1`,
		`zopday_cloud_calls_total{operation="RunInstances",outcome="throttled",service="EC2"} 1`,
		`zopday_http_requests_total{method="GET",route="/provisioning-jobs/{id}",status="200"} 1`,
		`zopday_unauthenticated_requests_total 1`, `zopday_event_streams 1`, `zopday_parked_jobs 0`, `zopday_leased_jobs 0`, `zopday_workers 0`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if !strings.Contains(got, "zopday_queue_age_seconds 0.") {
		t.Error("queued jobs have no age")
	}
	closed()
	if got := scrape(t, m); !strings.Contains(got, "zopday_event_streams 0\n") {
		t.Error("a closed stream is still counted")
	}
}

// TestMetricsWithoutADatabase: the process's own numbers stay readable when the
// ledger cannot be asked.
func TestMetricsWithoutADatabase(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	m := NewMetrics()
	m.WatchLedger(ledger.New(d, ledger.Options{}))
	m.Claimed("vm")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if got := scrape(t, m); !strings.Contains(got, `zopday_claims_total{family="vm"} 1`) || strings.Contains(got, "zopday_jobs{") {
		t.Errorf("%.300s", got)
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := NewLogger(&b, slog.LevelInfo, true).With("job", "job_1").WithGroup("g")
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	log.InfoContext(ctx, "hello", "step", "s")
	log.DebugContext(ctx, "quiet")
	var rec map[string]any
	if err := json.Unmarshal(b.Bytes(), &rec); err != nil {
		t.Fatalf("%v in %s", err, b.String())
	}
	g, _ := rec["g"].(map[string]any)
	if rec["msg"] != "hello" || rec["job"] != "job_1" || g["step"] != "s" || g["trace"] != "01000000000000000000000000000000" || g["span"] != "0200000000000000" {
		t.Errorf("%s", b.String())
	}
	b.Reset()
	NewLogger(&b, slog.LevelInfo, false).Info("plain")
	if !strings.Contains(b.String(), "msg=plain") || strings.Contains(b.String(), "trace=") {
		t.Errorf("%s", b.String())
	}
}

// TestTracing exports a span to a collector on this machine. It changes the
// environment and the process's tracer, so it runs alone.
func TestTracing(t *testing.T) {
	stop, err := StartTracing(t.Context(), "v1")
	if err != nil || stop(t.Context()) != nil {
		t.Fatalf("without a collector: %v", err)
	}
	if _, end := Span(t.Context(), "nothing"); end == nil {
		t.Fatal("no end")
	}
	var got atomic.Value
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(r.URL.Path + " " + string(body))
	}))
	t.Cleanup(collector.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	stop, err = StartTracing(t.Context(), "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := Span(t.Context(), "stepCreateVMs", attribute.String("job", "job_1"))
	_, endInner := Span(ctx, "EC2 RunInstances")
	endInner(errors.New("no capacity"))
	end(nil)
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent, _ := got.Load().(string)
	for _, want := range []string{"/v1/traces ", "stepCreateVMs", "EC2 RunInstances", "no capacity", "job_1", "v1.2.3", "zopday"} {
		if !strings.Contains(sent, want) {
			t.Errorf("the collector did not get %q", want)
		}
	}
}
