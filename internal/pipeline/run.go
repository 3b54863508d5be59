package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// Mode says what a pass over the steps may do.
type Mode int

// The modes of a pass.
const (
	Apply  Mode = iota // make it so
	Verify             // compare, change nothing: differences become drift
	Plan               // ask nothing of what would be made: list it
)

// A Recorder writes to the ledger under the run's lease; after the lease is
// lost every write is refused.
type Recorder interface {
	Record(ctx context.Context, d Delta) error
}

// A Delta is what one write to the ledger carries.
type Delta struct {
	Objects []job.Object
	Events  []job.Event
	Config  bool // the job's InfraConfig changed

	Databases   []job.LogicalDatabase
	Connections []job.Connection
}

// Memory is what a worker remembers of a job between two passes of the same
// run, so that a parked step does not read again what it has just seen to be
// right. It is never needed for correctness: a crash forgets it.
type Memory struct {
	mu      sync.Mutex
	settled map[string]bool
	missing map[string]time.Time
	sound   map[string]time.Time // when an object was last seen not to be pending
	kept    map[string]any
	lost    map[string]int
	deletes map[string][2]time.Time // first and last
	refusal map[string]string       // what the cloud last said against a deletion
	gone    map[string]bool
	doubted bool
	doubts  int
}

// NewMemory is an empty memory.
func NewMemory() *Memory {
	return &Memory{settled: map[string]bool{}, missing: map[string]time.Time{}, sound: map[string]time.Time{}, lost: map[string]int{}, kept: map[string]any{},
		deletes: map[string][2]time.Time{}, refusal: map[string]string{}, gone: map[string]bool{}}
}

// A Run is one pass of a worker over one job, under one lease.
type Run struct {
	Job  *job.Job
	Mode Mode
	Step string           // the step at work
	From time.Time        // when the step at work began in this run, as its row has it; zero if not known
	Down bool             // teardown
	Now  func() time.Time // the database's clock, or as near as the worker knows it
	Pace Pace

	// Consistency is how long a cloud may hide what was made: the window in
	// which a miss is not believed.
	Consistency time.Duration

	rec    Recorder
	memory *Memory

	mu      sync.Mutex
	objects map[string]job.Object
	drift   []Drift
	planned []Planned
	notes   []string
	gained  bool
}

// NewRun starts a pass. objects is the job's inventory as the ledger has it.
func NewRun(j *job.Job, mode Mode, objects []job.Object, rec Recorder, mem *Memory, now func() time.Time, pace Pace) *Run {
	if mem == nil {
		mem = NewMemory()
	}
	r := &Run{
		Job: j, Mode: mode, Now: now, Pace: pace, Consistency: time.Minute,
		rec: rec, memory: mem, objects: map[string]job.Object{},
	}
	for _, o := range objects {
		r.objects[o.Kind+"/"+o.Key] = o
	}
	return r
}

// Save writes the job's InfraConfig under the lease, in the middle of a step.
func (r *Run) Save(ctx context.Context) error {
	if r.Mode != Apply {
		return nil
	}
	return r.rec.Record(context.WithoutCancel(ctx), Delta{Config: true})
}

// SaveLogical writes rows of logical databases and connections under the lease.
func (r *Run) SaveLogical(ctx context.Context, databases []job.LogicalDatabase, connections []job.Connection) error {
	if r.Mode != Apply {
		return nil
	}
	return r.rec.Record(context.WithoutCancel(ctx), Delta{Databases: databases, Connections: connections})
}

// Event adds a line to the job's history.
func (r *Run) Event(ctx context.Context, typ, format string, args ...any) error {
	if r.Mode != Apply {
		return nil
	}
	return r.rec.Record(context.WithoutCancel(ctx), Delta{Events: []job.Event{{Type: typ, Step: r.Step, Message: fmt.Sprintf(format, args...)}}})
}

// Progressed reports whether this pass made or removed anything: the count of
// failed tries starts afresh then.
func (r *Run) Progressed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gained
}

// Note is shown beside the step, such as "skipped: no DNS zone".
func (r *Run) Note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// TakeNotes returns the notes of the step that has just run, and forgets them.
func (r *Run) TakeNotes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.notes
	r.notes = nil
	return n
}

// Object is the inventory row of an object; false if there is none.
func (r *Run) Object(kind, key string) (job.Object, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.objects[kind+"/"+key]
	return o, ok
}

// Objects is the job's inventory, sorted by kind and key.
func (r *Run) Objects() []job.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]job.Object, 0, len(r.objects))
	for _, k := range slices.Sorted(maps.Keys(r.objects)) {
		out = append(out, r.objects[k])
	}
	return out
}

// put writes inventory rows under the lease, and keeps them once written.
func (r *Run) put(ctx context.Context, ev []job.Event, objs ...job.Object) error {
	if err := r.rec.Record(context.WithoutCancel(ctx), Delta{Objects: objs, Events: ev}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objs {
		r.objects[o.Kind+"/"+o.Key] = o
		r.gained = r.gained || o.State == job.ObjectCreated || o.State == job.ObjectRemoved
	}
	return nil
}

// Remember keeps a value for later passes of the same run on this worker.
func (r *Run) Remember(key string, v any) {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	r.memory.kept[key] = v
}

// Recall is what Remember kept; nil if nothing is.
func (r *Run) Recall(key string) any {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.memory.kept[key]
}

// Unsettle forgets what was seen to be right, so that this and later passes read
// it again.
func (r *Run) Unsettle() {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	clear(r.memory.settled)
}

// Doubt makes the next pass look at everything that earlier steps have made:
// the cloud does not know something that a step builds on. A create can be
// acknowledged and lost, and what was made can be deleted by somebody.
func (r *Run) Doubt() {
	r.Unsettle()
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	r.memory.doubted = true
	r.memory.doubts++
}

// Doubts is how often this run has doubted: what was seen to be right before
// the last time no longer counts.
func (r *Run) Doubts() int {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.memory.doubts
}

// Doubted reports whether an earlier pass has doubted.
func (r *Run) Doubted() bool {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.memory.doubted
}

// EndDoubt ends the doubt: everything has been looked at again.
func (r *Run) EndDoubt() {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	r.memory.doubted = false
}

// A Drift is one attribute that is not as asked.
type Drift struct {
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	ID     string `json:"id,omitempty"`
	Attr   string `json:"attribute"`
	Wanted string `json:"wanted"`
	Seen   string `json:"seen"`
}

// AddDrift reports a difference that a verify found.
func (r *Run) AddDrift(d ...Drift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drift = append(r.drift, d...)
}

// Drift is what a verify found, sorted.
func (r *Run) Drift() []Drift {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.drift)
	slices.SortStableFunc(out, func(a, b Drift) int {
		return cmpStrings(a.Kind, b.Kind, a.Key, b.Key, a.Attr, b.Attr)
	})
	return out
}

// A Planned is one object that a plan would make.
type Planned struct {
	Step string `json:"step"`
	Kind string `json:"kind"`
	Key  string `json:"key"`
	Name string `json:"name"`
}

// AddPlanned lists something that a plan would make and that is no object of a
// cloud, such as a logical database.
func (r *Run) AddPlanned(kind, key, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.planned = append(r.planned, Planned{Step: r.Step, Kind: kind, Key: key, Name: name})
}

// Planned is what a plan would make, in the steps' order.
func (r *Run) Planned() []Planned {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.planned)
}

func cmpStrings(pairs ...string) int {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] != pairs[i+1] {
			if pairs[i] < pairs[i+1] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// Pace is how many seconds of cloud time pass in a real one: 1 for the real
// clouds, more for simulated ones.
type Pace float64

// Real turns a duration of cloud time into real time.
func (p Pace) Real(d time.Duration) time.Duration {
	if p <= 0 || p == 1 {
		return d
	}
	return time.Duration(float64(d) / float64(p))
}

// Cloud turns a duration of real time into cloud time.
func (p Pace) Cloud(d time.Duration) time.Duration {
	if p <= 0 || p == 1 {
		return d
	}
	return time.Duration(float64(d) * float64(p))
}
