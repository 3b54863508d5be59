package azure

import (
	"fmt"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// What a job of each kind is crashed with: small, and with one of everything.
var crashedStores = map[string]struct {
	family job.ResourceType
	spec   string
}{
	"postgres": {job.Datastore, `{"engine":"postgres","preset":"dev"}`},
	"mysql":    {job.Datastore, `{"engine":"mysql","preset":"dev"}`},
	"redis":    {job.Cache, `{"engine":"redis","preset":"dev","principals":["` + theirAdmins + `"]}`},
}

func crashedStore(t testing.TB, name string) *rig {
	t.Helper()
	c := crashedStores[name]
	g := newRig(t, sim.Options{TimeScale: 6 * quick}, c.family, job.ModeCreate, c.spec)
	g.p.reach = job.Reach{Mode: job.ReachDirect}
	return g
}

// carriedOut counts the calls since an entry of the books that changed something: one
// that a server refused, since it was busy for a moment, comes in one run and not in
// the next.
func (g *rig) carriedOut(since int) int {
	yes, n := true, 0
	for _, e := range g.world.Books(sim.BookFilter{Since: since, Mutating: &yes, Limit: 100000}) {
		if e.Code == "" {
			n++
		}
	}
	return n
}

// Every call that changes something, taken in turn: it fails before anything
// happened, or it happens and the answer is lost. Another worker goes on. Everything
// is there once, a re-run changes nothing, and after teardown the subscription is as
// it was.
func TestDatastoreCrashes(t *testing.T) {
	yes := true
	for name := range crashedStores {
		clean := crashedStore(t, name)
		clean.up()
		changes := clean.carriedOut(0)
		objects, since := len(clean.ours()), clean.mark()
		clean.down()
		removals := clean.carriedOut(since)
		for _, kind := range []sim.FaultKind{sim.FaultError, sim.FaultLostReply} {
			for n := range changes {
				t.Run(fmt.Sprintf("%s create %s %d", name, kind, n+1), func(t *testing.T) {
					t.Parallel()
					g := crashedStore(t, name)
					before := g.world.Snapshot()
					g.fault(sim.Fault{Kind: kind, Mutating: &yes, After: n, Code: "InternalServerError", Status: 500})
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
			for n := range removals {
				t.Run(fmt.Sprintf("%s teardown %s %d", name, kind, n+1), func(t *testing.T) {
					t.Parallel()
					g := crashedStore(t, name)
					before := g.world.Snapshot()
					g.up()
					g.fault(sim.Fault{Kind: kind, Mutating: &yes, After: n, Code: "InternalServerError", Status: 500})
					g.interrupted(true)
					g.hit()
					g.equal(before)
				})
			}
		}
	}
}

// A teardown that begins before the create ended finds what was made, recorded or
// not (failure kinds A7, E13).
func TestTeardownOfAnInterruptedDatastore(t *testing.T) {
	yes := true
	for name := range crashedStores {
		for n := range 14 {
			t.Run(fmt.Sprintf("%s %d", name, n+1), func(t *testing.T) {
				t.Parallel()
				g := crashedStore(t, name)
				before := g.world.Snapshot()
				g.fault(sim.Fault{Kind: sim.FaultLostReply, Mutating: &yes, After: n})
				g.once(false)
				g.another()
				g.down()
				g.equal(before)
			})
		}
	}
}
