package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/observe"
	"github.com/zopday/provisioner/internal/pgtest"
	"github.com/zopday/provisioner/internal/provision"
)

// The tokens of the test's principals.
const (
	adminToken  = "zop_admin-of-the-first-organisation"
	editorToken = "zop_editor-of-the-first-organisation"
	viewerToken = "zop_viewer-of-the-first-organisation"
	otherToken  = "zop_admin-of-another-organisation"
	noneToken   = "zop_somebody-without-a-role"
)

// people tells principals by fixed tokens.
type people map[string]access.Principal

func (p people) Authenticate(_ context.Context, token string) (access.Principal, error) {
	if who, ok := p[token]; ok {
		return who, nil
	}
	return access.Principal{}, access.ErrUnauthenticated
}

// A rig is the API on a real ledger.
type rig struct {
	t       *testing.T
	dsn     string
	db      *db.DB
	ledger  *ledger.Ledger
	service *provision.Service
	server  *httptest.Server
	api     *server
	log     *lockedBuffer
	stop    chan struct{}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, filepath.Join(t.TempDir(), "ledger.db"))
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newRig(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newRigOn(t, pgtest.ServiceDatabase(t)))
	})
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func newRigOn(t *testing.T, dsn string) *rig {
	t.Helper()
	return newRigWith(t, dsn, func(*rig, *provision.Config) {})
}

// newRigWith is a rig whose use cases stand on more than a ledger.
func newRigWith(t *testing.T, dsn string, more func(*rig, *provision.Config)) *rig {
	t.Helper()
	d, err := db.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, org := range []string{"org1", "org2"} {
		if _, err := d.Exec(db.System(t.Context()), `INSERT INTO organisations (id, name, created_at) VALUES ($1, $1, 0)`, org); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, dsn: dsn, db: d, ledger: ledger.New(d, ledger.Options{}), log: &lockedBuffer{}, stop: make(chan struct{})}
	c := provision.Config{Ledger: r.ledger, Log: observe.NewLogger(r.log, slog.LevelDebug, true)}
	more(r, &c)
	r.service = provision.New(c)
	metrics := observe.NewMetrics()
	metrics.WatchLedger(r.ledger)
	r.api = build(Deps{
		Service: r.service,
		Access: people{
			adminToken:  access.Of("org1", "ana", access.Admin),
			editorToken: access.Of("org1", "ed", access.Editor),
			viewerToken: access.Of("org1", "vera", access.Viewer),
			otherToken:  access.Of("org2", "otto", access.Admin),
			noneToken:   access.Of("org1", "nob"),
		},
		Metrics: metrics, Log: observe.NewLogger(r.log, slog.LevelDebug, true),
		Ready:   func(ctx context.Context) error { return d.Ping(ctx) },
		Version: Version{Version: "v0.0.0-test", Commit: "abc"},
		Stop:    r.stop, Poll: 20 * time.Millisecond,
	})
	r.server = httptest.NewServer(r.api.outer(r.api.mux))
	t.Cleanup(r.server.Close)
	return r
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// behind is the rig's database for whoever the service's rights do not hold: on
// PostgreSQL a superuser.
func (r *rig) behind() db.Q {
	r.t.Helper()
	if r.db.Dialect() != db.Postgres {
		return r.db
	}
	d, err := db.Open(r.t.Context(), pgtest.Superuser(r.t, r.dsn))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = d.Close() })
	return d
}

// An answer is a response, read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends one request as a principal; headers are given in pairs.
func (r *rig) do(token, method, path, body string, header ...string) answer {
	r.t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, rd)
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.server.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

// into decodes what stands under "data".
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	var envelope struct{ Data json.RawMessage }
	if err := json.Unmarshal(a.body, &envelope); err != nil || envelope.Data == nil {
		t.Fatalf("status %d, no data in %s", a.status, a.body)
	}
	if err := json.Unmarshal(envelope.Data, v); err != nil {
		t.Fatal(err)
	}
}

func (a answer) job(t *testing.T) provision.JobView {
	t.Helper()
	var v provision.JobView
	a.into(t, &v)
	return v
}

// problem checks that an answer is a whole problem document and returns it.
func (a answer) problem(t *testing.T) Problem {
	t.Helper()
	var p Problem
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("status %d has content type %q: %.300s", a.status, ct, a.body)
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	if p.Status != a.status || p.Type != "/problems/"+p.Code || p.Title == "" || p.Detail == "" || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		t.Errorf("a problem document with gaps: %s", a.body)
	}
	return p
}

// vmJob is a valid request for a VM environment.
func vmJob(name string, more ...string) string {
	extra := ""
	if len(more) > 0 {
		extra = ", " + strings.Join(more, ", ")
	}
	return `{"resourceType":"vm","provider":"aws","mode":"create","name":"` + name + `","region":"us-east-1",
		"config":{"spec":{"pool":{"mode":"fixed","count":2}}}` + extra + `}`
}

// create makes a job and returns it.
func (r *rig) create(body string) provision.JobView {
	r.t.Helper()
	a := r.do(adminToken, "POST", "/provisioning-jobs", body)
	if a.status != http.StatusCreated {
		r.t.Fatalf("create: %d %s", a.status, a.body)
	}
	return a.job(r.t)
}

// set writes the engine's part of a job as a worker would have left it.
func (r *rig) set(id string, edit func(j *job.Job)) {
	r.t.Helper()
	_, err := r.ledger.Change(db.System(r.t.Context()), nil, "org1", id, func(j *job.Job, _ ledger.Standing) error {
		edit(j)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestCreateAndGet(t *testing.T) { onBoth(t, testCreateAndGet) }

func testCreateAndGet(t *testing.T, r *rig) {
	a := r.do(editorToken, "POST", "/provisioning-jobs", vmJob("shop", `"labels":{"team":"shop"}`))
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	v := a.job(t)
	if v.Status != job.Draft || v.Kind != job.Provisioning || v.CloudAccountID != "default" || v.SubjectType != "vm_pool" || !strings.HasPrefix(v.SubjectID, "vmp_") || v.CreatedBy != "ed" {
		t.Errorf("not what was asked for: %s", a.body)
	}
	if got := a.header.Get("Location"); got != "/provisioning-jobs/"+v.ID {
		t.Errorf("Location %q", got)
	}
	if a.header.Get("ETag") != `"1"` {
		t.Errorf("ETag %q", a.header.Get("ETag"))
	}
	if len(v.Steps) != 7 {
		t.Errorf("%d steps, want 7 without a load balancer", len(v.Steps))
	}
	for _, ref := range []string{v.ID, v.ID[:len(v.ID)-6], "shop"} {
		if got := r.do(viewerToken, "GET", "/provisioning-jobs/"+ref, "").job(t); got.ID != v.ID {
			t.Errorf("%s finds %s", ref, got.ID)
		}
	}
	withLB := r.create(`{"resourceType":"vm","provider":"aws","name":"shop-lb","region":"us-east-1","submit":true,"config":{"spec":{"loadBalancer":{"plainHTTP":true}}}}`)
	if withLB.Status != job.Queued || len(withLB.Steps) != 11 {
		t.Errorf("status %s with %d steps, want queued with 11", withLB.Status, len(withLB.Steps))
	}
	if withLB.Verdict.State != "queued" || withLB.Verdict.Sentence == "" {
		t.Errorf("verdict %+v", withLB.Verdict)
	}
}
