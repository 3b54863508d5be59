package gcp

import (
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// A cluster's whole life: made as asked, nothing to change on a second look, every
// control met, and after teardown the project as it was.
func TestClusterLife(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		pools      int
	}{
		{"one pool", oneClusterSpec, 1},
		{"two pools and an administrator", twoPoolsSpec, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, c.spec)
			before := g.world.Snapshot()
			for _, f := range g.findings() {
				t.Errorf("check: %+v", f)
			}
			since := g.mark()
			g.up()
			reads, changes := g.calls(since)
			t.Logf("create: %d changes %v, %d reads %v", sum(changes), changes, sum(reads), reads)
			info := g.cluster()
			if info.Version != "1.35" || info.SupportUntil == "" || info.Endpoint == "" || info.Public || len(info.NodePools) != c.pools || info.NodePools[0].State != "RUNNING" {
				t.Errorf("what was learned: %+v", info)
			}
			if d := g.differs(); len(d) > 0 {
				t.Errorf("drift at once: %+v", d)
			}
			for _, row := range g.report() {
				if !row.Met {
					t.Errorf("not met: %+v", row)
				}
			}
			since = g.mark()
			g.another()
			g.up()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			since = g.mark()
			g.down()
			reads, changes = g.calls(since)
			t.Logf("down: %d changes %v, %d reads %v", sum(changes), changes, sum(reads), reads)
			g.equal(before)
		})
	}
}
