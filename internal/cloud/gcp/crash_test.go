package gcp

import (
	"fmt"
	"testing"

	"github.com/zopday/provisioner/internal/sim"
)

// Every call that changes something, taken in turn: it fails before anything
// happened, or it happens and the answer is lost. Another worker goes on. The
// end is the same objects, each once, a re-run that changes nothing, and after
// teardown the project as it was.
func TestCrashMatrix(t *testing.T) {
	clean := newFullRig(t)
	before := clean.mark()
	clean.up()
	_, changes := clean.calls(before)
	objects := len(clean.ours())
	since := clean.mark()
	clean.down()
	_, removals := clean.calls(since)

	yes := true
	for _, kind := range []sim.FaultKind{sim.FaultError, sim.FaultLostReply} {
		for n := range sum(changes) {
			t.Run(fmt.Sprintf("create %s %d", kind, n+1), func(t *testing.T) {
				t.Parallel()
				g := newFullRig(t)
				before := g.world.Snapshot()
				g.fault(sim.Fault{Kind: kind, Mutating: &yes, After: n, Code: "backendError", Status: 503})
				g.interrupted(false)
				g.hit()
				if got := len(g.ours()); got != objects {
					t.Errorf("%d objects carry the mark, want %d\n%s", got, objects, g.books(40))
				}
				since := g.mark()
				g.another()
				g.up()
				if _, changes := g.calls(since); sum(changes) > 0 {
					t.Errorf("a run of what is there changed %v", changes)
				}
				g.down()
				g.equal(before)
			})
		}
		for n := range sum(removals) {
			t.Run(fmt.Sprintf("teardown %s %d", kind, n+1), func(t *testing.T) {
				t.Parallel()
				g := newFullRig(t)
				before := g.world.Snapshot()
				g.up()
				g.fault(sim.Fault{Kind: kind, Mutating: &yes, After: n, Code: "backendError", Status: 503})
				g.interrupted(true)
				g.hit()
				g.equal(before)
			})
		}
	}
}

// A teardown that begins before the create ended finds what was made, recorded
// or not.
func TestTeardownOfAnInterruptedCreate(t *testing.T) {
	yes := true
	clean := newFullRig(t)
	before := clean.mark()
	clean.up()
	_, changes := clean.calls(before)
	for n := range sum(changes) {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			g := newFullRig(t)
			before := g.world.Snapshot()
			g.fault(sim.Fault{Kind: sim.FaultLostReply, Mutating: &yes, After: n})
			g.once(false)
			g.hit()
			g.another()
			g.down()
			g.equal(before)
		})
	}
}
