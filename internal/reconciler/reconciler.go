package reconciler

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/remediation"
	"github.com/zopday/provisioner/internal/steps"
)

// Ledger is what a reconciler asks of the ledger (see ledger.Ledger).
type Ledger interface {
	Register(ctx context.Context, w ledger.Worker) error
	Beat(ctx context.Context, w ledger.Worker) error
	Deregister(ctx context.Context, id string) error
	Claim(ctx context.Context, worker string, n int, o ledger.ClaimOptions) ([]ledger.Claimed, error)
	Renew(ctx context.Context, lease ledger.Lease, ttl time.Duration) (cancelRequested bool, err error)
	Checkpoint(ctx context.Context, lease ledger.Lease, c ledger.Checkpoint) (cancelRequested bool, err error)
	ReleaseAll(ctx context.Context, worker string, leases ...ledger.Lease) error
	Steps(ctx context.Context, org, id string) ([]job.StepState, error)
	Objects(ctx context.Context, org, id string) ([]job.Object, error)
	Observable(ctx context.Context, rt job.ResourceType, every time.Duration, n int) ([]job.Job, error)
	Observe(ctx context.Context, id string, version int64, infra job.InfraConfig) error
	ObserveFailed(ctx context.Context, id string, version int64) error
	PutLogical(ctx context.Context, lease ledger.Lease, databases []job.LogicalDatabase, connections []job.Connection) error
	WakeLogical(ctx context.Context, n int) (int, error)
	Wakeups(ctx context.Context) <-chan struct{}
}

// Config is what a reconciler needs.
type Config struct {
	Ledger     Ledger
	Clouds     cloud.Opener
	Spaces     steps.Registrar
	Components steps.Components      // nil: none can be installed
	Logical    steps.Logical         // nil: no logical databases and connections
	SQL        steps.OpenSQL         // likewise
	Places     steps.Places          // where spaces are; nil: no connection is brought into one
	Pausers    *remediation.Registry // what may be paused; nil: nothing
	Past       steps.Past            // what was done to a subject before; nil: likewise
	Log        *slog.Logger
	Hooks      Hooks         // what to count; the zero value counts nothing
	Worker     string        // this process's name, unique; "" mints one
	Version    string        // this binary's, for the list of workers
	Slots      int           // jobs run side by side; 16 by default
	Poll       time.Duration // how often to look for work when nobody calls; 1 s by default
	DeadAfter  time.Duration // silence after which a worker's jobs are taken over; 10 s by default
	Observe    time.Duration // how often finished jobs are looked at, in cloud time; 1 min by default, negative never
	Pace       pipeline.Pace // simulated clouds: how much faster than real time they run
}

// Hooks are called when something worth counting happens.
type Hooks struct {
	Claimed   func(rt job.ResourceType, takenOver bool)
	StepDone  func(rt job.ResourceType, step string, dir job.Direction, outcome string, took time.Duration)
	JobDone   func(rt job.ResourceType, status job.Status)
	LeaseLost func(rt job.ResourceType)
}

// TTL is the lease's length by family: longer than the family's worst step
// between two checkpoints. Waits park the job, so a step holds its lease only
// for a burst of calls; a burst of throttled calls is the worst case.
var TTL = map[job.ResourceType]time.Duration{
	job.Cluster:   15 * time.Minute,
	job.Datastore: 10 * time.Minute,
	job.Cache:     10 * time.Minute,
	job.Network:   10 * time.Minute,
	job.VM:        10 * time.Minute,
	job.Component: 5 * time.Minute,
}

const defaultTTL = 10 * time.Minute

// ledgerPatience bounds a read of the ledger or a claim: a database that
// vanished without a word must not hold a worker up for longer.
const ledgerPatience = 10 * time.Second

// A Reconciler is one worker process's engine.
type Reconciler struct {
	Config
	self     ledger.Worker
	mu       sync.Mutex
	held     map[string]*hold // by job ID
	memories map[memoryKey]*remembered
	lastBeat time.Time // monotonic: when the last confirmed heartbeat was sent
	brokenAt time.Time // monotonic: when a silence was found to have been too long
	nudge    chan struct{}
}

// New prepares a reconciler; Run starts it.
func New(c Config) *Reconciler {
	if c.Worker == "" {
		c.Worker = job.NewID("wrk")
	}
	if c.Slots == 0 {
		c.Slots = 16
	}
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	if c.DeadAfter == 0 {
		c.DeadAfter = 10 * time.Second
	}
	if c.Observe == 0 {
		c.Observe = time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Hooks = c.Hooks.orNothing()
	host, _ := os.Hostname() // for people alone: an unknown one is no harm
	self := ledger.Worker{ID: c.Worker, Host: host, PID: os.Getpid(), Version: c.Version}
	return &Reconciler{Config: c, self: self, held: map[string]*hold{}, memories: map[memoryKey]*remembered{}, nudge: make(chan struct{}, 1)}
}

func (h Hooks) orNothing() Hooks {
	if h.Claimed == nil {
		h.Claimed = func(job.ResourceType, bool) {}
	}
	if h.StepDone == nil {
		h.StepDone = func(job.ResourceType, string, job.Direction, string, time.Duration) {}
	}
	if h.JobDone == nil {
		h.JobDone = func(job.ResourceType, job.Status) {}
	}
	if h.LeaseLost == nil {
		h.LeaseLost = func(job.ResourceType) {}
	}
	return h
}

// Run claims and carries out jobs until the context ends; then it lets every
// step come to a safe point and hands the leases back. A database that is away
// is waited for.
func (r *Reconciler) Run(ctx context.Context) error {
	if err := r.register(ctx); err != nil {
		return err
	}
	// The heart beats on while steps come to their safe point after ctx has ended.
	beatCtx, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBeating()
	var background, jobs sync.WaitGroup
	background.Go(func() { r.beatLoop(beatCtx) })
	background.Go(func() { r.wakeLoop(ctx) })
	if r.Observe > 0 {
		background.Go(func() { r.observeLoop(ctx) })
	}
	if r.Logical != nil {
		background.Go(func() { r.logicalLoop(ctx) })
	}
	slots := make(chan struct{}, r.Slots)
	for ctx.Err() == nil {
		free := r.Slots - len(slots)
		if free > 0 {
			before := time.Now()
			claimed, err := r.claim(ctx, free)
			if err != nil && ctx.Err() == nil {
				r.Log.WarnContext(ctx, "claiming jobs", "error", err)
			}
			for _, c := range claimed {
				slots <- struct{}{}
				jobs.Go(func() {
					defer func() { <-slots; r.poke() }()
					r.work(ctx, c, before)
				})
			}
			if len(claimed) == free {
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-r.nudge:
		case <-time.After(r.Poll):
		}
	}
	jobs.Wait()
	stopBeating()
	background.Wait()
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return r.Ledger.Deregister(bye, r.Worker)
}

func (r *Reconciler) register(ctx context.Context) error {
	start := time.Now()
	if err := r.Ledger.Register(ctx, r.self); err != nil {
		return err
	}
	r.setBeat(start)
	return nil
}

func (r *Reconciler) claim(ctx context.Context, n int) ([]ledger.Claimed, error) {
	if !r.alive(time.Now()) {
		return nil, nil // silent for too long: what would be claimed now might be taken over at once
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerPatience)
	defer cancel()
	return r.Ledger.Claim(ctx, r.Worker, n, ledger.ClaimOptions{TTL: TTL, DefaultTTL: defaultTTL, DeadAfter: r.DeadAfter})
}

// beatLoop tells the database that this worker lives, five times within
// DeadAfter so that a lost beat or three do no harm, and asks whether any held
// job is to be cancelled.
func (r *Reconciler) beatLoop(ctx context.Context) {
	tick := time.NewTicker(r.DeadAfter / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		start := time.Now()
		bctx, cancel := context.WithTimeout(ctx, r.DeadAfter/2)
		err := r.Ledger.Beat(bctx, r.self)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				r.Log.WarnContext(ctx, "heartbeat", "error", err)
			}
			continue
		}
		if !r.alive(start) {
			// The silence before this beat was long enough for others to have
			// taken the jobs over: what was held then is no longer trusted.
			r.loseAll()
		}
		r.setBeat(start)
		r.renewHeld(ctx)
		r.sweep()
	}
}

func (r *Reconciler) setBeat(t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastBeat = t
}

// alive reports whether, at a moment of the monotonic clock, the last confirmed
// heartbeat is young enough that nobody takes this worker's jobs over.
func (r *Reconciler) alive(at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return at.Sub(r.lastBeat) < r.DeadAfter
}

// wakeLoop claims at once when somebody says that there is work.
func (r *Reconciler) wakeLoop(ctx context.Context) {
	words := r.Ledger.Wakeups(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-words:
			r.poke()
			r.renewHeld(ctx)
		}
	}
}

func (r *Reconciler) poke() {
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// A memoryKey names one run of one job.
type memoryKey struct {
	job string
	run int
}

// remembered is the memory of a run, and when each of its steps was begun as
// this worker knew it: a step that was begun anew since has been retried, maybe
// by another worker, and then nothing that is remembered holds any more.
type remembered struct {
	*pipeline.Memory
	used  time.Time
	begun map[string]time.Time
}

// memoryAge is how long the memory of a run that this worker no longer works on
// is kept: another worker may have taken the job over.
const memoryAge = time.Hour

// memory is what this worker remembers of a job's run.
func (r *Reconciler) memory(j *job.Job, rows map[string]job.StepState) *pipeline.Memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := memoryKey{j.ID, j.Run}
	m := r.memories[key]
	if m == nil || m.stale(rows) {
		m = &remembered{Memory: pipeline.NewMemory(), begun: map[string]time.Time{}}
		r.memories[key] = m
	}
	for name, row := range rows {
		if row.Status != job.StepFailed { // which is about to be begun anew
			m.begun[name] = deref(row.StartedAt).Truncate(time.Microsecond)
		}
	}
	m.used = time.Now()
	return m.Memory
}

// stale reports whether a step has failed, or was begun anew, since.
func (m *remembered) stale(rows map[string]job.StepState) bool {
	for name, row := range rows {
		was, known := m.begun[name]
		if row.Status == job.StepFailed || known && !was.Equal(deref(row.StartedAt).Truncate(time.Microsecond)) {
			return true
		}
	}
	return false
}

// forget drops it: at the end of a run, and after a failure, so that a retry
// looks at everything afresh.
func (r *Reconciler) forget(j *job.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, memoryKey{j.ID, j.Run})
}

// sweep drops the memory of runs that went elsewhere.
func (r *Reconciler) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.memories, func(_ memoryKey, m *remembered) bool { return time.Since(m.used) > memoryAge })
}

// logicalLoop takes up what was asked of logical databases while their job's last
// run was just ending.
func (r *Reconciler) logicalLoop(ctx context.Context) {
	tick := time.NewTicker(2 * r.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		started, err := r.Ledger.WakeLogical(ctx, logicalBatch)
		if err != nil && ctx.Err() == nil {
			r.Log.WarnContext(ctx, "looking for logical databases to carry out", "error", err)
		}
		if started > 0 {
			r.poke()
		}
	}
}

// logicalBatch is how many jobs one round takes up.
const logicalBatch = 50

// steps are the steps over a cloud, with everything that they need beside it.
func (r *Reconciler) steps(provider cloud.Provider) steps.Set {
	return steps.Set{Cloud: provider, Spaces: r.Spaces, Components: r.Components, Logical: r.Logical, SQL: r.SQL, Places: r.Places, Clouds: r.Clouds, Pausers: r.Pausers, Past: r.Past}
}
