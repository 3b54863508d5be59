package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// Each call that changes something for a datastore, once its network is there, taken in
// turn: it fails before anything happened, or it happens and the answer is lost. Another
// worker goes on. The end is the same objects, each once and all in the ledger, a re-run
// that changes nothing, and after teardown the account as it was but for one snapshot.
func TestDatastoreCrashMatrix(t *testing.T) {
	t.Parallel()
	for name, spec := range crashSpecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clean := newData(t, sim.Options{}, job.ModeCreate, spec)
			clean.all(false, clean.check, clean.p.EnsureNetwork)
			since := clean.mark()
			clean.create()
			_, changes := clean.calls(since)
			objects := len(clean.ours())
			since = clean.mark()
			clean.all(true, clean.dataGone()[:3]...)
			_, removals := clean.calls(since)
			t.Logf("%d changes %v, %d removals %v", sum(changes), changes, sum(removals), removals)
			yes := true
			for i, kind := range []sim.FaultKind{sim.FaultError, sim.FaultLostReply} {
				fault := func(n int) sim.Fault {
					return sim.Fault{Kind: kind, Mutating: &yes, After: n, Code: "InternalFailure", Status: 500}
				}
				for n := range sum(changes) {
					if !everyCall && n%2 != i {
						continue
					}
					t.Run(fmt.Sprintf("create %s %d", kind, n+1), func(t *testing.T) {
						t.Parallel()
						dataCrashUp(t, spec, fault(n), objects)
					})
				}
				for n := range sum(removals) {
					if !everyCall && n%3 != i {
						continue
					}
					t.Run(fmt.Sprintf("teardown %s %d", kind, n+1), func(t *testing.T) {
						t.Parallel()
						dataCrashDown(t, spec, fault(n))
					})
				}
			}
		})
	}
}

var crashSpecs = map[string]string{"postgres": postgresSpec, "redis": redisSpec}

func dataCrashUp(t *testing.T, spec string, f sim.Fault, objects int) {
	g := newData(t, sim.Options{}, job.ModeCreate, spec)
	g.all(false, g.check, g.p.EnsureNetwork)
	g.fault(f)
	g.until(false, g.dataSteps()...)
	g.struck(f.After)
	g.another()
	g.create()
	if got := len(g.ours()); got != objects {
		t.Errorf("%d objects carry the mark, want %d\n%s", got, objects, g.books(60))
	}
	g.inLedger()
	since := g.mark()
	g.another()
	g.create()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("a run of what is there changed %v", changes)
	}
	g.teardown()
	g.onlySnapshot()
}

func dataCrashDown(t *testing.T, spec string, f sim.Fault) {
	g := newData(t, sim.Options{}, job.ModeCreate, spec)
	g.create()
	g.another()
	g.fault(f)
	g.until(true, g.dataGone()...)
	g.struck(f.After)
	g.teardown()
	g.onlySnapshot()
}

// onlySnapshot wants the final snapshot, once, and nothing else with the job's mark.
func (g dataRig) onlySnapshot() {
	g.Helper()
	snapshots := 0
	for _, kind := range []string{kindDBSnapshot, kindCacheSnapshot} {
		if k, ok := g.kept()[kind]; ok && k.Name == g.data().FinalSnapshot {
			snapshots++
		}
	}
	if snapshots != 1 {
		g.Errorf("the ledger keeps %v", g.kept())
	}
	g.onlyKept()
}

// A teardown that begins before the create ended finds what was made, recorded or not:
// of a datastore that never came up there is no snapshot.
func TestTeardownOfAnInterruptedDatastore(t *testing.T) {
	t.Parallel()
	yes := true
	for name, spec := range crashSpecs {
		for n := range 10 {
			t.Run(fmt.Sprintf("%s %d", name, n+1), func(t *testing.T) {
				t.Parallel()
				g := newData(t, sim.Options{}, job.ModeCreate, spec)
				g.all(false, g.check, g.p.EnsureNetwork)
				g.fault(sim.Fault{Kind: sim.FaultLostReply, Mutating: &yes, After: n})
				g.until(false, g.dataSteps()...)
				g.struck(n)
				g.teardown()
				if len(g.kept()) > 0 {
					t.Logf("kept %v", g.kept())
				}
				g.onlyKept()
			})
		}
	}
}

// inLedger wants everything that the family's services hold with the mark to be there.
func (g dataRig) inLedger() {
	g.Helper()
	ids := g.ledger()
	for _, o := range g.world.Residue(g.job.ID) {
		switch {
		case strings.Contains(o.Kind, "snapshot"): // automated ones are the instance's, with its tags
		case o.Service == "rds", o.Service == "elasticache", o.Service == "logs":
			if !slices.Contains(ids, o.ID) && !slices.Contains(ids, o.ARN) && !slices.Contains(ids, o.Name) {
				g.Errorf("%s %s (%s, %s) is not in the ledger", o.Kind, o.ID, o.Name, o.ARN)
			}
		}
	}
}
