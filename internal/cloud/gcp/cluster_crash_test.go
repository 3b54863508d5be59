package gcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// Each change that a cluster needs beside its network, taken in turn: it fails
// before anything happened, or it happens and the answer is lost. Another worker
// goes on. The end is the same objects, each once and all in the ledger, a re-run
// that changes nothing, and after teardown the project as it was.
func TestClusterCrashMatrix(t *testing.T) {
	t.Parallel()
	const keys = "projects.locations.keyRings.cryptoKeys."
	ups := map[string]int{ // and how often it is called
		"projects.serviceAccounts.create": 1, "projects.setIamPolicy": 3, "projects.locations.keyRings.create": 1, keys + "create": 1, keys + "setIamPolicy": 1,
		"projects.locations.clusters.create": 1, "projects.locations.clusters.nodePools.create": 1,
	}
	downs := map[string]int{
		"projects.locations.clusters.delete": 1, "projects.setIamPolicy": 3, "projects.serviceAccounts.delete": 1,
		keys + "setIamPolicy": 1, keys + "patch": 1, keys + "cryptoKeyVersions.destroy": 1,
	}
	for _, kind := range []sim.FaultKind{sim.FaultError, sim.FaultLostReply} {
		for op, times := range ups {
			for n := range times {
				t.Run(fmt.Sprintf("%s %s %d", op, kind, n+1), func(t *testing.T) {
					t.Parallel()
					g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
					before := g.world.Snapshot()
					g.fault(sim.Fault{Kind: kind, Operation: op, After: n, Code: "backendError", Status: 503})
					g.until(false, g.ups()...)
					g.all(false, g.ups()...)
					g.hit()
					g.allOnce()
					g.down()
					g.equal(before)
				})
			}
		}
		for op, times := range downs {
			for n := range times {
				t.Run(fmt.Sprintf("down %s %s %d", op, kind, n+1), func(t *testing.T) {
					t.Parallel()
					g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
					before := g.world.Snapshot()
					g.up()
					g.fault(sim.Fault{Kind: kind, Operation: op, After: n, Code: "backendError", Status: 503})
					g.until(true, g.downs()...)
					g.hit()
					g.down()
					g.equal(before)
				})
			}
		}
	}
}

// A teardown that begins before the create has ended, or before its answer came,
// finds what was made, recorded or not.
func TestTeardownOfAnInterruptedCluster(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"projects.locations.keyRings.cryptoKeys.create", "projects.locations.clusters.create", "projects.locations.clusters.nodePools.create"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
			before := g.world.Snapshot()
			g.fault(sim.Fault{Kind: sim.FaultLostReply, Operation: op})
			g.until(false, g.ups()...)
			g.hit()
			g.down()
			g.equal(before)
		})
	}
}

// allOnce wants the ledger to name just what is at the cloud, and a further run to
// change nothing.
func (g clusterRig) allOnce() {
	g.Helper()
	there := map[string]bool{}
	ledger := g.ledger()
	for _, o := range g.world.Residue(g.job.ID) {
		if !strings.HasPrefix(base(o.ID), "gke-") { // else the cluster's own, which comes and goes with it
			there[o.ID] = true
		}
	}
	named := map[string]bool{}
	for _, id := range ledger {
		named[id] = true
	}
	for id := range there {
		if !named[id] {
			g.Errorf("%s is not in the ledger", id)
		}
	}
	clusters := g.world.Objects(sim.ObjectFilter{Kind: "cluster"})
	pools := g.world.Objects(sim.ObjectFilter{Kind: "node-pool"})
	if len(clusters) != 1 || len(pools) != 2 {
		g.Errorf("%d clusters and %d node pools, want 1 and 2", len(clusters), len(pools))
	}
	since := g.mark()
	g.all(false, g.ups()...)
	if _, changes := g.calls(since); sum(changes) > 0 {
		g.Errorf("a run of what is there changed %v", changes)
	}
}
