package azure

import (
	"fmt"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

const crashSpec = `{"network":{"subnets":["private"]},"peerings":[{"networkId":"hub","resourceGroup":"theirs"}],"dnsZones":[{"name":"shop.internal"}]}`

// crashing is a rig for a job with something of everything.
func crashing(t testing.TB) *rig {
	t.Helper()
	g := newRig(t, sim.Options{}, job.Network, job.ModeCreate, crashSpec)
	g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24")
	return g
}

// Every call that changes something, taken in turn: it fails before anything
// happened, or it happens and the answer is lost. Another worker goes on. The
// end is the same objects, each once, a re-run that changes nothing, and after
// teardown the subscription as it was.
func TestCrashMatrix(t *testing.T) {
	clean := crashing(t)
	clean.up()
	_, changes := clean.calls(0)
	objects := len(clean.ours())
	since := clean.mark()
	clean.down()
	_, removals := clean.calls(since)

	yes := true
	for _, kind := range []sim.FaultKind{sim.FaultError, sim.FaultLostReply} {
		for n := range sum(changes) {
			t.Run(fmt.Sprintf("create %s %d", kind, n+1), func(t *testing.T) {
				t.Parallel()
				g := crashing(t)
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
		for n := range sum(removals) {
			t.Run(fmt.Sprintf("teardown %s %d", kind, n+1), func(t *testing.T) {
				t.Parallel()
				g := crashing(t)
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

// A teardown that begins before the create ended finds what was made, recorded
// or not.
func TestTeardownOfAnInterruptedCreate(t *testing.T) {
	yes := true
	for n := range 9 {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			g := crashing(t)
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
