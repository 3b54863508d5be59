package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// An environment is one family at one cloud in one mode. (VMs on AWS, the first
// of them, have tests of their own beside these.)
type environment struct {
	cloud  job.Provider
	family job.ResourceType
	mode   job.Mode
	what   string
	spec   string
	place  func(*rig) // what exists at the cloud beforehand; nil: nothing

	// tamper changes one attribute behind the product's back, and attr is how
	// the drift that it makes is called.
	tamper func(*rig)
	attr   string
}

func (e environment) String() string {
	return strings.Join([]string{string(e.family), string(e.cloud), string(e.mode), e.what}, " ")
}

func (e environment) begin(r *rig) {
	r.job(e.family, "shop-prod", e.spec, func(j *job.Job) { j.Mode = e.mode })
}

// call does something at the cloud as somebody else would.
func (r *rig) call(service, operation string, params map[string]any) {
	r.t.Helper()
	account := map[job.Provider]string{job.AWS: "123456789012"}[r.cloud]
	if _, err := r.world.Invoke(string(r.cloud), service, operation, account, regions[r.cloud], params); err != nil {
		r.t.Fatal(err)
	}
	r.world.Step(2 * time.Minute)
}

// TestFamilies takes every environment through its whole life: made, the same
// again without a change, one attribute changed by somebody and reported but not
// rewritten, torn down, and nothing left.
func TestFamilies(t *testing.T) {
	for _, e := range environments {
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			r := newRigAt(t, e.cloud, sim.Options{Seed: 7})
			if e.place != nil {
				e.place(r)
			}
			before := r.world.Snapshot()
			since := r.lastEntry()
			r.start()
			e.begin(r)
			r.await(job.Completed)
			reads, writes := r.count(since)
			r.checkBooks(t)
			if e.family == job.Datastore && e.mode != job.ModeAdopt {
				r.checkDatabases(t)
			}
			if e.mode == job.ModeAdopt && writes > 0 {
				t.Errorf("an adopt job changed something: %+v", r.mutating(since))
			}

			since = r.lastEntry()
			r.asAsked(t)
			again, _ := r.count(since)
			t.Logf("create %d reads + %d mutating for %d objects, verify %d reads", reads, writes, len(r.objects()), again)
			if e.tamper != nil {
				r.tampered(t, e)
			}
			r.move(job.Delete, "")
			r.await(job.Cancelled)
			r.checkGone(t, before)
			if t.Failed() {
				t.Log(r.history())
			}
		})
	}
}

// tampered demands that a change behind the product's back is reported, and
// not rewritten.
func (r *rig) tampered(t *testing.T, e environment) {
	t.Helper()
	e.tamper(r)
	since := r.lastEntry()
	var seen []string
	for _, d := range r.drift() {
		seen = append(seen, fmt.Sprintf("%s %s: %s is %q, wanted %q", d.Kind, d.Key, d.Attr, d.Seen, d.Wanted))
	}
	if !slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, e.attr) }) {
		t.Errorf("drift of %q was not reported, only %q", e.attr, seen)
	}
	if m := r.mutating(since); len(m) > 0 {
		t.Errorf("a comparison changed something: %+v", m)
	}
}

// TestCrashedFamilies crashes the making and the teardown of every environment
// at a seeded sample of points, most of them mutating calls whose reply is lost
// with the worker; with E2E_ALL at every point.
func TestCrashedFamilies(t *testing.T) {
	for _, e := range environments {
		if e.mode == job.ModeAdopt {
			continue // it makes no mutating call
		}
		for _, s := range []scenario{
			{name: "create", begin: e.begin, end: job.Completed},
			{name: "teardown", setup: func(r *rig) { r.finish(func() { e.begin(r) }) }, begin: func(r *rig) { r.move(job.Delete, "") }, end: job.Cancelled},
		} {
			s.cloud, s.place = e.cloud, e.place
			t.Run(e.String()+" "+s.name, func(t *testing.T) {
				t.Parallel() // each has a world of its own, and mostly waits for it
				s.crashes(t, e.lostReplies)
			})
		}
	}
}

// lostReplies are the points of a stretch that are crashed. VM and cluster
// environments make many calls, and the packages of their clouds crash every one:
// here they are a sample.
func (e environment) lostReplies(calls, reads, writes int) []point {
	all := points(calls, reads, writes)
	if os.Getenv("E2E_ALL") != "" {
		return all
	}
	rng := rand.New(rand.NewPCG(43, 1))
	rest, every := 2, 1
	switch e.family {
	case job.VM:
		rest, every = 8, 2
	case job.Cluster: // each starts an API server of its own, twice
		rest, every = 120, 12
	case job.Datastore, job.Cache: // each starts a database server of its own
		rest, every = 80, 8
	}
	return slices.DeleteFunc(all, func(p point) bool {
		lost := p.what == "call" && p.after && p.killed
		return lost && rng.IntN(every) != 0 || !lost && rng.IntN(rest) != 0
	})
}
