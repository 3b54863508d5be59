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
	lost, refused := sim.FaultLostReply, sim.FaultError
	for _, c := range []struct {
		op    string
		after int
		down  bool
		kind  sim.FaultKind
	}{
		{"projects.serviceAccounts.create", 0, false, lost},
		{"projects.setIamPolicy", 0, false, lost},
		{"projects.setIamPolicy", 1, false, refused},
		{"projects.setIamPolicy", 2, false, lost},
		{"projects.locations.keyRings.create", 0, false, lost},
		{"projects.locations.keyRings.create", 0, false, refused},
		{keys + "create", 0, false, lost},
		{keys + "create", 0, false, refused},
		{keys + "setIamPolicy", 0, false, lost},
		{clusterCreate, 0, false, lost},
		{clusterCreate, 1, false, lost}, // the first is refused while the key's policy is fresh
		{clusterCreate, 1, false, refused},
		{poolCreate, 0, false, lost},
		{poolCreate, 0, false, refused},
		{"projects.locations.clusters.delete", 0, true, lost},
		{"projects.locations.clusters.delete", 0, true, refused},
		{"projects.setIamPolicy", 0, true, lost},
		{"projects.setIamPolicy", 2, true, refused},
		{"projects.serviceAccounts.delete", 0, true, lost},
		{keys + "setIamPolicy", 0, true, lost},
		{keys + "patch", 0, true, lost},
		{keys + "cryptoKeyVersions.destroy", 0, true, lost},
		{keys + "cryptoKeyVersions.destroy", 0, true, refused},
	} {
		t.Run(fmt.Sprintf("%s %d %s down=%v", c.op, c.after, c.kind, c.down), func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
			before := g.world.Snapshot()
			fault := sim.Fault{Kind: c.kind, Operation: c.op, After: c.after, Code: "backendError", Status: 503}
			if c.down {
				g.up()
				g.fault(fault)
				g.until(true, g.downs()...)
			} else {
				g.fault(fault)
				g.until(false, g.ups()...)
				g.all(false, g.ups()...)
				g.allOnce()
			}
			g.hit()
			g.down()
			g.equal(before)
		})
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
