package gcp

import (
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// verified is what a verify of steps finds, in words.
func verified(g clusterRig, steps []step) []string {
	g.Helper()
	r := g.run(pipeline.Verify)
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	for _, f := range steps {
		if err := f(ctx, r); err != nil {
			g.Fatalf("verify: %v", err)
		}
	}
	var out []string
	for _, d := range r.Drift() {
		out = append(out, d.Kind+" "+d.Attr+": "+d.Seen+", not "+d.Wanted)
	}
	return out
}

// A datastore's whole life: made as asked, nothing to change on a second look, every
// control met, and after teardown nothing but the final backup.
func TestDatastoreLife(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec     string
		family         job.ResourceType
		version, class string
		backup         bool
	}{
		{"postgres", postgresSpec, job.Datastore, "18", "db-custom-2-8192", true},
		{"production", productionSpec, job.Datastore, "17", "db-custom-4-16384", true},
		{"mysql", mysqlSpec, job.Datastore, "8.4", "db-custom-2-4096", true},
		{"without a backup", `{"engine":"postgres","skipFinalSnapshot":true,"deletionProtection":false}`, job.Datastore, "18", "db-custom-2-8192", false},
		{"redis", redisSpec, job.Cache, "7.2", tierStandard, false},
		{"redis with two replicas", redisThreeSpec, job.Cache, "7.2", tierStandard, false},
		{"valkey", valkeySpec, job.Cache, "9.0", "STANDARD_SMALL", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, c.family, job.ModeCreate, c.spec)
			for _, f := range g.findings() {
				if f.Status != cloud.CheckWarning {
					t.Errorf("check: %+v", f)
				}
			}
			since := g.mark()
			g.up()
			reads, changes := g.calls(since)
			t.Logf("create: %d changes %v, %d reads %v", sum(changes), changes, sum(reads), reads)
			if d := g.store(); d.Version != c.version || d.Class != c.class || d.Host == "" || d.Port == 0 || d.Public || !d.TLSRequired || d.ID == "" {
				t.Errorf("what was learned: %+v", d)
			}
			if d := g.differs(); len(d) > 0 {
				t.Errorf("drift at once: %v", d)
			}
			for _, row := range g.report() {
				if !row.Met && !row.Unchecked && !(row.ID == "SQL-07" && !c.backup) {
					t.Errorf("not met: %+v", row)
				}
			}
			since = g.mark()
			g.another()
			g.up()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			name := g.store().FinalSnapshot
			g.down()
			if _, there := g.kept()[name]; there != c.backup {
				t.Errorf("kept %v, and the final backup is %q", g.kept(), name)
			}
			if left := g.world.Residue(g.job.ID); len(left) > 0 && !c.backup {
				t.Errorf("left over: %v", left)
			}
		})
	}
}
