package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/reconciler"
	"github.com/zopday/provisioner/internal/remediation"
	"github.com/zopday/provisioner/internal/sim"
	simdatabases "github.com/zopday/provisioner/internal/sim/databases"
	simkube "github.com/zopday/provisioner/internal/sim/kube"
	"github.com/zopday/provisioner/internal/spaces"
	"github.com/zopday/provisioner/internal/steps"
)

const (
	org    = "org_test"
	region = "us-east-1"

	// pace is how many simulated seconds pass in a real one: a lifecycle takes
	// about a second, and a pause of the machine is still short against the
	// patience of the engine.
	pace = 300
)

// A rig is a ledger, a simulated cloud, and the workers between them.
type rig struct {
	t               testing.TB
	cloud           job.Provider
	world           *sim.World
	url             string
	d               *db.DB
	file            string // of d
	ledger          *ledger.Ledger
	spaces          *spaces.Client
	kube            *simkube.Kube
	databases       *simdatabases.Databases
	makesDatastores bool         // some job of the rig makes a datastore or a cache
	inside          bool         // the workers stand in the network of what they make
	kubeIn          string       // where it keeps what is in clusters
	keys            atomic.Value // the access key that new credentials carry
	jobID           string
	n               int // workers started

	later func() int // faults that are not placed yet
}

func newRig(t testing.TB, o sim.Options) *rig {
	t.Helper()
	return newRigAt(t, job.AWS, o)
}

// newRigAt is a rig at another cloud than AWS.
func newRigAt(t testing.TB, at job.Provider, o sim.Options) *rig {
	t.Helper()
	empty, err := migrated()
	if err != nil {
		t.Fatal(err)
	}
	return thaw(t, o, frozen{cloud: at, db: empty})
}

// frozen is a rig at rest, from which others can start.
type frozen struct {
	cloud           job.Provider
	db, world       []byte
	clusters        string // where what is in them is kept
	jobID           string
	inside          bool
	makesDatastores bool
	before          sim.Snapshot // the account before anything was made
}

// freeze ends the rig and keeps what it has come to.
func (r *rig) freeze(before sim.Snapshot) *frozen {
	r.t.Helper()
	dir := r.t.TempDir()
	stop, err := r.world.Persist(r.t.Context(), dir)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := errors.Join(stop(), r.d.Close()); err != nil {
		r.t.Fatal(err)
	}
	r.kube.Shutdown()
	r.databases.Shutdown()
	f := &frozen{cloud: r.cloud, jobID: r.jobID, inside: r.inside, makesDatastores: r.makesDatastores, before: before, clusters: r.kubeIn}
	if f.db, err = os.ReadFile(r.file); err != nil {
		r.t.Fatal(err)
	}
	if f.world, err = os.ReadFile(filepath.Join(dir, worldFile)); err != nil {
		r.t.Fatal(err)
	}
	return f
}

// worldFile is where a simulation keeps its world.
const worldFile = "world.json"

// thaw starts a rig where another has come to.
func thaw(t testing.TB, o sim.Options, f frozen) *rig {
	t.Helper()
	ctx := t.Context()
	if o.TimeScale == 0 {
		o.TimeScale = pace
	}
	w := sim.New(o)
	kubeIn := copyOf(t, f.clusters)
	kube := startKubernetes(t, kubeIn)
	databases := startDatabases(t)
	if f.inside {
		databases.SetCaller(insider)
	}
	url := serveCloud(t, f.cloud, w, kube, databases)
	if f.world != nil {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, worldFile), f.world, 0o600); err != nil {
			t.Fatal(err)
		}
		stop, err := w.Persist(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if _, err := os.Stat("/dev/shm"); err == nil { // what is tested is the order of writes, not the disk
		if shm, err := os.MkdirTemp("/dev/shm", "zopday-e2e-"); err == nil { //nolint:usetesting // memory, not disk
			dir = shm
			t.Cleanup(func() { _ = os.RemoveAll(shm) })
		}
	}
	file := filepath.Join(dir, "zopday.db")
	if err := os.WriteFile(file, f.db, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	client, closeSpaces := spaces.BuiltIn(spaces.NewRegistry(d))
	t.Cleanup(func() { _ = closeSpaces() })
	r := &rig{t: t, cloud: f.cloud, world: w, url: url, kube: kube, kubeIn: kubeIn, databases: databases, inside: f.inside, makesDatastores: f.makesDatastores, d: d, file: file, jobID: f.jobID, ledger: ledger.New(d, ledger.Options{}), spaces: client}
	r.keys.Store("AKIAIOSFODNN7EXAMPLE")
	t.Cleanup(func() { r.checkCustomerDatabases(t) })
	return r
}

// migrated is a database without rows, made once for all rigs.
var migrated = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "zopday-e2e-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, file := context.Background(), filepath.Join(dir, "zopday.db")
	d, err := db.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.Migrate(ctx), d.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// A worker is a reconciler that can be killed: from then on nothing of it
// reaches the ledger or the cloud, as if its process were gone.
type worker struct {
	r     *rig
	name  string
	dead  atomic.Bool
	mute  atomic.Bool // its heartbeats do not arrive
	done  chan struct{}
	stop  context.CancelFunc
	write func() error // called before each ledger write; its error is a crash
	after func() error // called after each
	crash chan struct{}
	conf  func(*reconciler.Config) // changes how it is set up
}

// mortal is the ledger as a worker that can die sees it.
type mortal struct {
	*ledger.Ledger
	w *worker
}

var errDead = fmt.Errorf("this worker is dead: %w", ledger.ErrLeaseLost)

func (m mortal) Claim(ctx context.Context, name string, n int, o ledger.ClaimOptions) ([]ledger.Claimed, error) {
	if m.w.dead.Load() {
		return nil, errDead
	}
	return m.Ledger.Claim(ctx, name, n, o)
}

func (m mortal) Beat(ctx context.Context, w ledger.Worker) error {
	if m.w.dead.Load() {
		return errDead
	}
	if m.w.mute.Load() {
		return errors.New("the database does not answer")
	}
	return m.Ledger.Beat(ctx, w)
}

func (m mortal) Deregister(ctx context.Context, id string) error {
	if m.w.dead.Load() {
		return nil
	}
	return m.Ledger.Deregister(ctx, id)
}

func (m mortal) ReleaseAll(ctx context.Context, id string, l ...ledger.Lease) error {
	if m.w.dead.Load() {
		return errDead
	}
	return m.Ledger.ReleaseAll(ctx, id, l...)
}

func (m mortal) Checkpoint(ctx context.Context, l ledger.Lease, c ledger.Checkpoint) (bool, error) {
	if m.w.dead.Load() {
		return false, errDead
	}
	if f := m.w.write; f != nil {
		if err := f(); err != nil {
			return false, err
		}
	}
	cancelled, err := m.Ledger.Checkpoint(ctx, l, c)
	if f := m.w.after; f != nil && err == nil {
		if err := f(); err != nil {
			return false, err
		}
	}
	return cancelled, err
}

// kill ends the worker at once; whoever calls it from within a call of the
// worker's gets the error to return.
func (w *worker) kill() error {
	if !w.dead.Swap(true) {
		// A dead process neither deregisters nor beats; its silence is
		// shortened here from DeadAfter to nothing.
		_ = w.r.ledger.Deregister(context.WithoutCancel(w.r.t.Context()), w.name)
		w.stop()
		close(w.crash)
	}
	return errDead
}

// start runs a worker until the test ends or it is killed.
func (r *rig) start(prepare ...func(*worker)) *worker {
	r.t.Helper()
	r.n++
	w := &worker{r: r, name: fmt.Sprintf("worker-%d", r.n), done: make(chan struct{}), crash: make(chan struct{})}
	for _, p := range prepare {
		p(w)
	}
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("E2E_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("worker", w.name)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	conf := reconciler.Config{
		Ledger: mortal{r.ledger, w}, Clouds: r.clouds(w), Spaces: r.spaces, Components: r.engine(), Pausers: r.pausers(), Past: r.ledger, Log: log,
		Worker: w.name, Poll: 100 * time.Millisecond, DeadAfter: 2 * time.Second, Observe: -1, Pace: pace,
	}
	conf.Logical, conf.SQL, conf.Places = r.logical(), openSQL, r.spaces
	if w.conf != nil {
		w.conf(&conf)
	}
	rec := reconciler.New(conf)
	go func() {
		defer close(w.done)
		if err := rec.Run(ctx); err != nil && !w.dead.Load() && ctx.Err() == nil {
			r.t.Errorf("%s: %v", w.name, err)
		}
	}()
	r.t.Cleanup(func() {
		stop()
		<-w.done
	})
	return w
}

// pausers is what may be paused.
func (r *rig) pausers() *remediation.Registry {
	r.t.Helper()
	p, err := remediation.Default()
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// vm is a VM job in mode create, queued.
func (r *rig) vm(name, spec string, change ...func(*job.Job)) *job.Job {
	r.t.Helper()
	return r.job(job.VM, name, spec, change...)
}

// job is a job in mode create at the rig's cloud, queued.
func (r *rig) job(family job.ResourceType, name, spec string, change ...func(*job.Job)) *job.Job {
	r.t.Helper()
	j := &job.Job{
		ID: job.NewID("job"), OrgID: org, Kind: job.Provisioning, ResourceType: family, Provider: r.cloud, Mode: job.ModeCreate,
		Name: name, CloudAccountID: "default", Region: regions[r.cloud], SubjectType: string(family), SubjectID: job.NewID("sub"),
		Status: job.Queued, Phase: job.PhaseProvision, CreatedBy: "test", Config: job.Config{Spec: json.RawMessage(spec)},
		Labels: map[string]string{"team": "shop"},
	}
	for _, f := range change {
		f(j)
	}
	if err := j.Validate(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.ledger.Insert(r.t.Context(), r.d, j); err != nil {
		r.t.Fatal(err)
	}
	r.jobID = j.ID
	r.makesDatastores = r.makesDatastores || j.Owns() && (family == job.Datastore || family == job.Cache)
	return j
}

func (r *rig) get() *job.Job {
	r.t.Helper()
	j, err := r.ledger.Get(r.t.Context(), org, r.jobID)
	if err != nil {
		r.t.Fatal(err)
	}
	return j
}

// await waits until the job has come to rest, and demands the status.
func (r *rig) await(want job.Status) *job.Job {
	r.t.Helper()
	deadline := time.Now().Add(3 * time.Minute) // a busy machine is no failure
	for {
		j := r.get()
		if !j.State().Active() {
			if j.Status != want {
				r.t.Fatalf("the job is %s, not %s: %+v\n%s", j.State(), want, j.Error, r.history())
			}
			return j
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the job is still %s in %s, waiting for %q\n%s", j.State(), j.CurrentStep, j.WaitingFor, r.history())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// history is the last of the job's events and of the cloud's books.
func (r *rig) history() string {
	var b strings.Builder
	events, err := r.ledger.Events(context.Background(), org, r.jobID, 0, 1000)
	if err != nil {
		return err.Error()
	}
	for _, e := range events[max(0, len(events)-30):] {
		fmt.Fprintf(&b, "%s %s %s %s\n", e.Time.Format("05.000"), e.Type, e.Step, e.Message)
	}
	for _, e := range r.world.Books(sim.BookFilter{Limit: 15}) {
		fmt.Fprintf(&b, "%d %s %s %d %s %v\n", e.Seq, e.Service, e.Operation, e.Status, e.Code, e.Resources)
	}
	return b.String()
}

// move takes the job through a signal of a person, as the API does.
func (r *rig) move(sig job.Signal, op job.VMOp) {
	r.t.Helper()
	_, err := r.ledger.Change(r.t.Context(), nil, org, r.jobID, func(j *job.Job, s ledger.Standing) error {
		if sig == job.Delete && s.Leased {
			j.Cancelling = true
			return nil
		}
		to, err := job.Next(j.State(), sig)
		if err != nil {
			return err
		}
		if sig != job.Retry {
			j.Run++
		}
		if op != "" {
			j.VMOp = op
		}
		j.Status, j.Phase, j.Attempts, j.Error = to.Status, to.Phase, 0, nil
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.ledger.Notify(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// objects are the job's inventory rows that stand for something at the cloud.
func (r *rig) objects() []job.Object {
	r.t.Helper()
	all, err := r.ledger.Objects(r.t.Context(), org, r.jobID)
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(o job.Object) bool { return o.State != job.ObjectCreated })
}

// mutating are the changes that the cloud carried out since an entry of its books.
func (r *rig) mutating(since int) []sim.Entry {
	yes := true
	return r.world.Books(sim.BookFilter{Mutating: &yes, Since: since})
}

func (r *rig) lastEntry() int {
	all := r.world.Books(sim.BookFilter{Limit: 1})
	if len(all) == 0 {
		return 0
	}
	return all[0].Seq
}

// drift compares the job with the cloud, as verify does.
func (r *rig) drift() []pipeline.Drift {
	r.t.Helper()
	j := r.get()
	w := &worker{r: r}
	provider, err := r.clouds(w).Open(r.t.Context(), j)
	if err != nil {
		r.t.Fatal(err)
	}
	objs, err := r.ledger.Objects(r.t.Context(), org, j.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	d, err := steps.Set{Cloud: provider, Spaces: r.spaces, Components: r.engine(), Pausers: r.pausers(), Past: r.ledger, Logical: r.logical(), SQL: openSQL}.Drift(r.t.Context(), j, objs, pace)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}
