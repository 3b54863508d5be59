package aws

import (
	"fmt"
	"os"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// everyCall has the crash matrix take every call both ways; without it, as in the
// common test run, they take turns and every third call goes without.
var everyCall = os.Getenv("E2E_ALL") != ""

// Each call that changes something for a cluster, once its network is there, taken in
// turn: it fails before anything happened, or it happens and the answer is lost.
// Another worker goes on. The end is the same objects, each once and all in the
// ledger, a re-run that changes nothing, and after teardown the account as it was.
func TestClusterCrashMatrix(t *testing.T) {
	t.Parallel()
	clean := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	clean.all(false, clean.check, clean.p.EnsureNetwork)
	since := clean.mark()
	clean.create()
	_, changes := clean.calls(since)
	objects := len(clean.ours())
	since = clean.mark()
	clean.all(true, clean.p.RemoveCluster, clean.p.RemoveIdentity)
	_, removals := clean.calls(since)
	t.Logf("%d changes %v, %d removals %v", sum(changes), changes, sum(removals), removals)

	yes := true
	for i, kind := range []sim.FaultKind{sim.FaultError, sim.FaultLostReply} {
		fault := func(n int) sim.Fault {
			return sim.Fault{Kind: kind, Mutating: &yes, After: n, Code: "InternalFailure", Status: 500}
		}
		for n := range sum(changes) {
			if !everyCall && n%3 != i {
				continue
			}
			t.Run(fmt.Sprintf("create %s %d", kind, n+1), func(t *testing.T) {
				t.Parallel()
				crashUp(t, fault(n), objects)
			})
		}
		for n := range sum(removals) {
			if !everyCall && n%3 != i {
				continue
			}
			t.Run(fmt.Sprintf("teardown %s %d", kind, n+1), func(t *testing.T) {
				t.Parallel()
				crashDown(t, fault(n))
			})
		}
	}
}

func crashUp(t *testing.T, f sim.Fault, objects int) {
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	before := g.world.Snapshot()
	g.all(false, g.check, g.p.EnsureNetwork)
	g.fault(f)
	g.until(false, g.built()...)
	g.struck(f.After)
	g.another()
	g.create()
	if got := len(g.ours()); got != objects {
		t.Errorf("%d objects carry the mark, want %d\n%s", got, objects, g.books(60))
	}
	g.accounted()
	since := g.mark()
	g.another()
	g.create()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("a run of what is there changed %v", changes)
	}
	g.teardown()
	g.equal(before)
}

func crashDown(t *testing.T, f sim.Fault) {
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	before := g.world.Snapshot()
	g.create()
	g.another()
	g.fault(f)
	g.until(true, g.gone()...)
	g.struck(f.After)
	g.teardown()
	g.equal(before)
}

// A teardown that begins before the create ended finds what was made, recorded or not.
func TestTeardownOfAnInterruptedCluster(t *testing.T) {
	t.Parallel()
	yes := true
	for n := 0; n < 25; n += 3 {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
			before := g.world.Snapshot()
			g.all(false, g.check, g.p.EnsureNetwork)
			g.fault(sim.Fault{Kind: sim.FaultLostReply, Mutating: &yes, After: n})
			g.until(false, g.built()...)
			g.hit()
			g.teardown()
			g.equal(before)
		})
	}
}

// struck skips a case whose call was not made this time: how often a policy is
// attached again, until IAM shows it, differs from run to run.
func (g clusterRig) struck(n int) {
	g.Helper()
	if f := g.world.Faults()[0]; f.Hits == 0 {
		g.Skipf("this run made %d calls, and not call %d", f.Seen, n+1)
	}
}

// accounted wants everything of EKS, KMS and CloudWatch Logs that carries the mark to
// be in the ledger, but for what EKS makes with an add-on.
func (g clusterRig) accounted() {
	g.Helper()
	ledger := map[string]bool{}
	for _, o := range g.objects {
		if o.State == job.ObjectCreated {
			ledger[o.ID] = true
		}
	}
	for _, o := range g.world.Residue(g.job.ID) {
		switch o.Kind {
		case "cluster", "nodegroup", "addon", "access-entry", "key", "alias", "log-group", "oidc-provider", "launch-template":
			if !ledger[o.ID] && !ledger[o.Name] && !ledger[o.ARN] {
				g.Errorf("%s %s (%s) is not in the ledger", o.Kind, o.ID, o.Name)
			}
		}
	}
}
