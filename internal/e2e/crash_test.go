package e2e

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pgtest"
	"github.com/zopday/provisioner/internal/sim"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The rigs mostly wait for simulated clouds: more of them than processors.
	if f := flag.Lookup("test.parallel"); f != nil && os.Getenv("E2E_PARALLEL") == "" {
		_ = f.Value.Set("8")
	}
	os.Exit(pgtest.Main(m))
}

// A scenario is a stretch of a job's life that is crashed at every point.
type scenario struct {
	name  string
	setup func(*rig) // before the stretch, without crashes; once for all points. nil: nothing
	begin func(*rig) // sets the stretch off
	end   job.Status

	cloud job.Provider // "" is AWS
	place func(*rig)   // what exists at the cloud beforehand; nil: nothing
}

func finished(spec string, ops ...job.VMOp) func(*rig) {
	return func(r *rig) {
		r.finish(func() { r.vm("shop-prod", spec) }, ops...)
	}
}

// finish brings a job to its end and lets the worker go.
func (r *rig) finish(begin func(), ops ...job.VMOp) {
	r.t.Helper()
	w := r.start()
	begin()
	r.await(job.Completed)
	for _, op := range ops {
		r.move(job.Operate, op)
		r.await(job.Completed)
	}
	w.stop()
	<-w.done
}

var scenarios = []scenario{
	{name: "create fixed", begin: func(r *rig) { r.vm("shop-prod", fixedLB) }, end: job.Completed},
	{name: "create asg", begin: func(r *rig) { r.vm("shop-prod", asgLB) }, end: job.Completed},
	{name: "attach", setup: finished(fixedLB, job.DetachLB), begin: func(r *rig) { r.move(job.Operate, job.AttachLB) }, end: job.Completed},
	{name: "detach", setup: finished(fixedLB), begin: func(r *rig) { r.move(job.Operate, job.DetachLB) }, end: job.Completed},
	{name: "teardown fixed", setup: finished(fixedLB), begin: func(r *rig) { r.move(job.Delete, "") }, end: job.Cancelled},
	{name: "teardown asg", setup: finished(asgLB), begin: func(r *rig) { r.move(job.Delete, "") }, end: job.Cancelled},
}

// A point is where a worker dies.
type point struct {
	what   string // "call" (mutating), "read" or "write" (of the ledger)
	n      int    // the nth of them in the stretch
	after  bool   // the effect happens and the reply is lost
	killed bool   // the worker dies; otherwise it only sees the error
}

func (p point) String() string {
	s := fmt.Sprintf("%s %d", p.what, p.n)
	if p.after {
		s += " reply lost"
	} else {
		s += " fails"
	}
	if !p.killed {
		s += ", worker lives"
	}
	return s
}

// arm makes a worker die, or see an error, at the point.
func arm(r *rig, p point) func(*worker) {
	return func(w *worker) {
		var calls, writes atomic.Int64
		hit := func() error {
			if p.killed {
				return w.kill()
			}
			return errors.New("the connection was cut")
		}
		r.world.OnCall(func(phase sim.Phase, c *sim.Call) error {
			if w.dead.Load() || (p.what == "call") != c.Mutating || p.what == "write" {
				return nil
			}
			if phase == sim.Before {
				if n := calls.Add(1); n == int64(p.n) && !p.after {
					return hit()
				}
				return nil
			}
			if p.after && calls.Load() == int64(p.n) && calls.CompareAndSwap(int64(p.n), int64(p.n)+1_000_000) {
				return hit()
			}
			return nil
		})
		if p.what != "write" {
			return
		}
		w.write = func() error {
			if n := writes.Add(1); n == int64(p.n) && !p.after {
				return hit()
			}
			return nil
		}
		w.after = func() error {
			if p.after && writes.Load() == int64(p.n) && writes.CompareAndSwap(int64(p.n), int64(p.n)+1_000_000) {
				return hit()
			}
			return nil
		}
	}
}

// measure runs a stretch without crashes and counts what can be crashed.
func (s scenario) measure(t *testing.T, start *frozen) (calls, reads, writes int) {
	r, _ := s.rig(t, 1, start)
	since := r.lastEntry()
	var n atomic.Int64
	s.begin(r)
	r.start(func(w *worker) { w.write = func() error { n.Add(1); return nil } })
	r.await(s.end)
	reads, calls = r.count(since)
	return calls, reads, int(n.Load())
}

// TestCrashMatrix loses the reply of mutating calls of every stretch together with
// the worker, and fails calls, ledger writes and reads, and lets another worker go
// on: at a seeded sample, since the cloud's own package crashes every call, and
// with E2E_ALL, as make chaos sets it, at every point. The end must be as if nothing had happened: each
// object once, each in the ledger, nothing to change, and nothing left after
// the teardown.
func TestCrashMatrix(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { s.crashes(t, points) })
	}
}

// crashes crashes the stretch at every point that pick chooses.
func (s scenario) crashes(t *testing.T, pick func(calls, reads, writes int) []point) {
	var start *frozen
	if s.setup != nil {
		r, before := s.rig(t, 1, nil)
		s.setup(r)
		start = r.freeze(before)
	}
	calls, reads, writes := s.measure(t, start)
	t.Logf("%d mutating calls, %d reads, %d ledger writes", calls, reads, writes)
	if calls == 0 || writes == 0 {
		t.Fatal("there is nothing to crash")
	}
	for _, p := range pick(calls, reads, writes) {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			s.crash(t, p, start)
		})
	}
}

func points(calls, reads, writes int) []point {
	var ps []point
	rng := rand.New(rand.NewPCG(42, 1))
	all := os.Getenv("E2E_ALL") != ""
	pick := func(one int) bool { return all || rng.IntN(one) == 0 }
	for _, after := range []bool{false, true} {
		for n := 1; n <= calls; n++ {
			if after && pick(2) || !after && pick(5) {
				ps = append(ps, point{"call", n, after, true})
			}
			if pick(12) {
				ps = append(ps, point{"call", n, after, false})
			}
		}
		for n := 1; n <= writes; n++ {
			if pick(10) {
				ps = append(ps, point{"write", n, after, true})
			}
		}
		for n := 1; n <= reads; n++ {
			if pick(60) {
				ps = append(ps, point{"read", n, after, n%2 == 0})
			}
		}
	}
	return ps
}

// rig is where the stretch begins, and the account as it was before anything
// was made. Every crash of a create happens in a world of its own seed.
func (s scenario) rig(t *testing.T, seed int, start *frozen) (*rig, sim.Snapshot) {
	if start != nil {
		return thaw(t, sim.Options{Seed: 1}, *start), start.before
	}
	r := newRigAt(t, cmp.Or(s.cloud, job.AWS), sim.Options{Seed: uint64(seed)})
	if s.place != nil {
		s.place(r)
	}
	return r, r.world.Snapshot()
}

func (s scenario) crash(t *testing.T, p point, start *frozen) {
	r, before := s.rig(t, p.n, start)
	s.begin(r)
	victim := r.start(arm(r, p))
	r.untilCrash(victim)
	r.world.OnCall(nil)
	r.start()
	r.await(s.end)
	if s.end == job.Completed {
		r.checkBooks(t)
		since := r.lastEntry()
		if d := r.drift(); len(d) > 0 {
			t.Errorf("not as asked: %+v", d)
		}
		if m := r.mutating(since); len(m) > 0 {
			t.Errorf("the same again changed something: %+v", m)
		}
		r.move(job.Delete, "")
		r.await(job.Cancelled)
	}
	r.checkGone(t, before)
	if t.Failed() {
		t.Log(r.history())
	}
}

// untilCrash waits until the worker has died, or has come through.
func (r *rig) untilCrash(w *worker) {
	r.t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		select {
		case <-w.crash:
			return
		case <-deadline:
			r.t.Fatalf("the job neither crashed nor ended\n%s", r.history())
		case <-time.After(10 * time.Millisecond):
			if !r.get().State().Active() {
				w.stop()
				<-w.done
				return
			}
		}
	}
}
