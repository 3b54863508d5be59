package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// A failure is something that goes wrong at real clouds, set up from outside
// through the simulation's control API. Whatever it is, the end has to be: the
// objects at the cloud are those in the ledger, the same again changes nothing,
// and a teardown gives the account back as it was.
type failure struct {
	id    string // of the case, and what happens
	spec  string // fixedLB if empty
	world sim.Options
	job   func(*job.Job)
	setup func(*rig) // what is there before the job: others' objects, quotas

	faults []string // of the create
	spare  bool     // the faults need not all be met
	alone  bool     // it is sensitive to how fast the machine is

	code  string   // the create stops with this code; "" if it comes through
	step  string   // in this step
	says  []string // what message and hint name
	then  func(*rig)
	final bool // it is not retried, but torn down from there

	done func(*rig, *job.Job) // once it has come through
	down []string             // faults of the teardown
}

// run takes a job through the case.
func (f failure) run(t *testing.T) {
	if !f.alone {
		t.Parallel()
	}
	if f.world.Seed == 0 {
		f.world.Seed = 11
	}
	r := newRig(t, f.world)
	if f.setup != nil {
		f.setup(r)
		r.world.Step(3 * time.Minute) // until it is there and shown
	}
	before := r.world.Snapshot()
	r.faultsAt(f.faults)
	spec := f.spec
	if spec == "" {
		spec = fixedLB
	}
	r.start()
	change := func(*job.Job) {}
	if f.job != nil {
		change = f.job
	}
	r.vm("shop-prod", spec, change)
	if f.code != "" {
		r.stopped(f.code, f.step, f.says...)
		r.checkBooks(t)
	}
	if f.code != "" && !f.final {
		r.allMet(f.spare)
		r.world.ClearFaults("")
		if f.then != nil {
			f.then(r)
		}
		r.move(job.Retry, "")
	}
	if !f.final {
		j := r.await(job.Completed)
		if f.code == "" {
			r.allMet(f.spare)
		}
		r.world.ClearFaults("")
		r.asAsked(t)
		if f.done != nil {
			f.done(r, j)
		}
	} else if f.then != nil {
		f.then(r)
	}
	r.world.ClearFaults("")
	r.faultsAt(f.down)
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.allMet(f.spare)
	r.checkGone(t, before)
	if calls := r.operations("CreateTags"); calls > 0 {
		t.Errorf("D7: %d objects were tagged after they had been made", calls)
	}
	if t.Failed() {
		t.Log(r.history())
	}
}

// runAll runs the cases side by side.
func runAll(t *testing.T, all []failure, change ...func(*failure)) {
	for _, f := range all {
		for _, c := range change {
			c(&f)
		}
		t.Run(f.id, f.run)
	}
}

// control sends a request to the simulation's control API.
func (r *rig) control(method, path string, body any, into any) {
	r.t.Helper()
	text, ok := body.(string)
	if !ok && body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			r.t.Fatal(err)
		}
		text = string(b)
	}
	w := httptest.NewRecorder()
	r.world.Control().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(text)))
	if w.Code != http.StatusOK {
		r.t.Fatalf("%s %s %s: status %d: %s", method, path, text, w.Code, w.Body)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// faultsAt orders faults. One that begins with the name of an operation and a
// colon is placed when that operation is first called from now on, so that how
// long it lasts is counted from there.
func (r *rig) faultsAt(texts []string) {
	r.t.Helper()
	var mu sync.Mutex
	waiting := map[string][]string{}
	for _, text := range texts {
		if op, rest, ok := strings.Cut(text, ": {"); ok && !strings.HasPrefix(text, "{") {
			waiting[op] = append(waiting[op], "{"+rest)
		} else {
			r.fault(text)
		}
	}
	r.later = func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(waiting)
	}
	if len(waiting) == 0 {
		return
	}
	r.world.OnCall(func(phase sim.Phase, c *sim.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if phase != sim.Before {
			return nil
		}
		for _, text := range waiting[c.Operation] {
			r.fault(text)
		}
		delete(waiting, c.Operation)
		return nil
	})
}

// fault orders a fault.
func (r *rig) fault(text string) string {
	r.t.Helper()
	var f sim.Fault
	r.control("POST", "/_sim/faults", text, &f)
	return f.ID
}

// allMet demands that every fault that was ordered has hit something: a case
// whose fault nothing meets shows nothing.
func (r *rig) allMet(spare bool) {
	r.t.Helper()
	if r.later != nil && r.later() > 0 && !spare {
		r.t.Error("an operation that a fault waited for was never called")
	}
	for _, f := range r.world.Faults() {
		if f.Hits == 0 && !spare {
			r.t.Errorf("the fault %s %s %s %q hit nothing", f.Kind, f.Service, f.Operation, f.Match)
		}
	}
}

// theirs carries out a call of somebody else in the same account, and returns
// the answer.
func (r *rig) theirs(service, operation string, params map[string]any) map[string]any {
	r.t.Helper()
	var out map[string]any
	r.control("POST", "/_sim/objects", map[string]any{"action": "call", "cloud": "aws", "service": service, "operation": operation,
		"account": "123456789012", "region": region, "params": params}, &out)
	return out
}

// pick follows names and takes the first of every list.
func pick(v any, path ...string) string {
	for _, p := range path {
		if m, ok := v.(map[string]any); ok {
			v = m[p]
		}
		for {
			l, ok := v.([]any)
			if !ok || len(l) == 0 {
				break
			}
			v = l[0]
		}
	}
	s, _ := v.(string) // "" for what is not there: the caller's next call says so
	return s
}

// meddle changes an object behind the job's back.
func (r *rig) meddle(action, id string, more map[string]any) {
	r.t.Helper()
	body := map[string]any{"action": action, "id": id}
	maps.Copy(body, more)
	r.control("POST", "/_sim/objects", body, nil)
}

// quota sets a quota of the account.
func (r *rig) quota(service, code string, value int) {
	r.t.Helper()
	r.control("POST", "/_sim/quotas", map[string]any{"cloud": "aws", "service": service, "code": code, "value": value}, nil)
}

// operations counts the calls of an operation, refused ones as well.
func (r *rig) operations(name string) int { return len(r.world.Books(sim.BookFilter{Operation: name})) }

// untouched demands that nobody has changed an object since an entry of the books.
func (r *rig) untouched(since int, ids ...string) {
	r.t.Helper()
	yes := true
	for _, id := range ids {
		for _, e := range r.world.Books(sim.BookFilter{Resource: id, Mutating: &yes, Since: since}) {
			r.t.Errorf("%s of somebody else was named by %s", id, e.Operation)
		}
	}
}

// stopped waits for the job to fail, and demands a reason that a person can act on.
func (r *rig) stopped(code, step string, says ...string) *job.Job {
	r.t.Helper()
	j := r.await(job.Failed)
	e := j.Error
	if e == nil {
		r.t.Fatal("failed without a reason")
	}
	if e.Code != code || step != "" && e.Step != step {
		r.t.Errorf("stopped with %s in %s, not %s in %s: %s", e.Code, e.Step, code, step, e.Message)
	}
	if e.Hint == "" || e.Message == "" || e.Step == "" {
		r.t.Errorf("no message, hint or step: %+v", e)
	}
	for _, s := range says {
		if !strings.Contains(e.Message+" "+e.Hint+" "+e.Field, s) {
			r.t.Errorf("the reason does not name %q: %s — %s (%s)", s, e.Message, e.Hint, e.Field)
		}
	}
	return j
}

// waitsFor waits until the job says that it waits for something.
func (r *rig) waitsFor(parts ...string) *job.Job {
	r.t.Helper()
	return r.until(func(j *job.Job) bool {
		for _, p := range parts {
			if !strings.Contains(j.WaitingFor, p) {
				return false
			}
		}
		return true
	}, "it never waited for "+strings.Join(parts, ", "))
}

// until waits until the job, which has to stay at work, is as wanted.
func (r *rig) until(ok func(*job.Job) bool, otherwise string) *job.Job {
	r.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		j := r.get()
		if ok(j) {
			return j
		}
		if !j.State().Active() || time.Now().After(deadline) {
			r.t.Fatalf("%s; the job is %s in %s, waiting for %q: %+v\n%s", otherwise, j.State(), j.CurrentStep, j.WaitingFor, j.Error, r.history())
		}
		time.Sleep(3 * time.Millisecond)
	}
}

// asAsked demands that everything is in the ledger and as the job asks, and
// that the same again changes nothing.
func (r *rig) asAsked(t *testing.T) {
	t.Helper()
	r.checkBooks(t)
	since := r.lastEntry()
	if d := r.drift(); len(d) > 0 {
		t.Errorf("not as asked: %+v", d)
	}
	if m := r.mutating(since); len(m) > 0 {
		t.Errorf("the same again changed something: %+v", m)
	}
}

// object is the ID of an object of the job.
func (r *rig) object(kind, key string) string {
	r.t.Helper()
	for _, o := range r.objects() {
		if o.Kind == kind && o.Key == key {
			return o.ID
		}
	}
	r.t.Fatalf("the ledger has no %s %s", kind, key)
	return ""
}

// live counts the objects of a kind that carry the job's mark and exist.
func (r *rig) live(kind string) int {
	return len(r.world.Objects(sim.ObjectFilter{Owner: r.jobID, Kind: kind}))
}

// paged is a world of small pages, none of them empty.
var paged = sim.Options{Seed: 12, PageSize: 1, EmptyPages: -1}
