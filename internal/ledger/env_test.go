package ledger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// dialects opens a fresh database of each kind.
var dialects = map[db.Dialect]func(t testing.TB) string{
	db.SQLite:   func(t testing.TB) string { return filepath.Join(t.TempDir(), "zopday.db") },
	db.Postgres: pgtest.ServiceDatabase,
}

// conform runs a test of the conformance suite on both databases.
func conform(t *testing.T, test func(t *testing.T, e *env)) {
	for _, d := range []db.Dialect{db.SQLite, db.Postgres} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			test(t, open(t, dialects[d](t)))
		})
	}
}

const org = "org_1"

// env is a migrated database with a ledger on it.
type env struct {
	*ledger.Ledger
	d   *db.DB
	ctx context.Context
	n   int
}

func open(t testing.TB, dsn string) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(db.System(context.Background()), 10*time.Minute)
	t.Cleanup(cancel)
	d, err := db.Open(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := d.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	return &env{Ledger: ledger.New(d, ledger.Options{}), d: d, ctx: ctx}
}

// job is a new job that is not in the ledger yet.
func (e *env) job(edit ...func(*job.Job)) *job.Job {
	e.n++
	j := &job.Job{
		ID: job.NewID("job"), OrgID: org, Kind: job.Provisioning, ResourceType: job.VM, Provider: job.AWS, Mode: job.ModeCreate,
		Name: fmt.Sprintf("shop-%03d", e.n), CloudAccountID: "default", Region: "us-east-1", SubjectType: "vm_pool", SubjectID: job.NewID("vmp"),
		Status: job.Queued, Phase: job.PhaseProvision, CreatedBy: "ada", Config: job.Config{Spec: []byte(`{"pool":{"count":2}}`)},
	}
	for _, f := range edit {
		f(j)
	}
	return j
}

// insert puts a new job into the ledger.
func (e *env) insert(t testing.TB, edit ...func(*job.Job)) *job.Job {
	t.Helper()
	j := e.job(edit...)
	if err := e.Insert(e.ctx, e.d, j); err != nil {
		t.Fatal(err)
	}
	return j
}

func (e *env) register(t testing.TB, workers ...string) {
	t.Helper()
	for _, w := range workers {
		if err := e.Register(e.ctx, ledger.Worker{ID: w, Host: "localhost", PID: 1}); err != nil {
			t.Fatal(err)
		}
	}
}

// claim claims one job, which has to be there.
func (e *env) claim(t testing.TB, worker string, o ...ledger.ClaimOptions) ledger.Claimed {
	t.Helper()
	cs := e.tryClaim(t, worker, o...)
	if len(cs) != 1 {
		t.Fatalf("claimed %d jobs, want 1", len(cs))
	}
	return cs[0]
}

func (e *env) tryClaim(t testing.TB, worker string, o ...ledger.ClaimOptions) []ledger.Claimed {
	t.Helper()
	cs, err := e.Claim(e.ctx, worker, 1, append(o, ledger.ClaimOptions{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func (e *env) get(t testing.TB, id string) *job.Job {
	t.Helper()
	j, err := e.Get(e.ctx, org, id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// checkpoint writes c, which has to pass.
func (e *env) checkpoint(t testing.TB, lease ledger.Lease, c ledger.Checkpoint) bool {
	t.Helper()
	cancel, err := e.Checkpoint(e.ctx, lease, c)
	if err != nil {
		t.Fatal(err)
	}
	return cancel
}

// sql changes the database behind the ledger's back.
func (e *env) sql(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := e.d.Exec(e.ctx, statement, args...); err != nil {
		t.Fatal(err)
	}
}

// silent makes a worker's last beat lie back by d.
func (e *env) silent(t testing.TB, worker string, d time.Duration) {
	t.Helper()
	e.sql(t, `UPDATE workers SET beat_at = `+e.d.Now()+` - $2 WHERE id = $1`, worker, d.Microseconds())
}

// expire makes a job's lease run out.
func (e *env) expire(t testing.TB, id string) {
	t.Helper()
	e.sql(t, `UPDATE provisioning_jobs SET lease_expires_at = `+e.d.Now()+` - 1 WHERE id = $1`, id)
}

// record is everything that the ledger holds of a job.
type record struct {
	Job     *job.Job
	Steps   []job.StepState
	Events  []job.Event
	Objects []job.Object
}

func (e *env) record(t testing.TB, id string) record {
	t.Helper()
	r := record{Job: e.get(t, id)}
	var err [3]error
	r.Steps, err[0] = e.Steps(e.ctx, org, id)
	r.Events, err[1] = e.Events(e.ctx, org, id, 0, 1000)
	r.Objects, err[2] = e.Objects(e.ctx, org, id)
	for _, err := range err {
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// full is a checkpoint that writes something everywhere.
func full(j *job.Job, n int) ledger.Checkpoint {
	at := time.Now()
	j.CurrentStep, j.Attempts = fmt.Sprintf("step%d", n), n
	j.Config.InfraConfig.NetworkID = fmt.Sprintf("vpc-%d", n)
	j.Outputs = map[string]string{"n": fmt.Sprint(n)}
	return ledger.Checkpoint{
		Job: j, Config: true, Outputs: true,
		Steps:   []job.StepState{{Run: j.Run, Name: j.CurrentStep, Direction: job.Up, Status: job.StepDone, Attempts: n, StartedAt: &at, FinishedAt: &at}},
		Events:  []job.Event{{Type: "step.started", Step: j.CurrentStep, Run: j.Run}, {Type: "step.done", Step: j.CurrentStep, Run: j.Run}},
		Objects: []job.Object{{Cloud: job.AWS, Account: "1", Region: j.Region, Kind: "ec2:vpc", Key: "vpc", ID: j.ID, State: job.ObjectCreated}},
	}
}
