package aws

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// A datastore is made as asked, found as it was made, and taken down to what was there
// but for its final snapshot.
func TestDatastoreLife(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"postgres": postgresSpec, "mysql": mysqlSpec, "production": productionSpec} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, sim.Options{}, job.ModeCreate, spec)
			start := time.Now()
			g.create()
			reads, changes := g.calls(0)
			t.Logf("create: %d reads %v, %d changes %v, %s", sum(reads), reads, sum(changes), changes, time.Since(start))
			d := g.data()
			if d.Name == "" || d.ID == "" || d.Host == "" || d.Port == 0 || d.Version == "" || d.Class == "" || d.SecretID == "" || d.AdminUser != job.DefaultAdmin || d.FinalSnapshot == "" {
				t.Errorf("the datastore is %+v", d)
			}
			t.Logf("%+v", *d)
			rows := g.report()
			for _, bad := range notMet(rows) {
				t.Errorf("control %s", bad)
			}
			t.Logf("%d controls: %v", len(rows), rowsNamed(rows, "RDS"))
			for _, d := range g.verify() {
				t.Errorf("drift: %+v", d)
			}
			g.another()
			since := g.mark()
			g.create()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			g.teardown()
			k, ok := g.kept()[kindDBSnapshot]
			if !ok || k.Name != d.FinalSnapshot || !strings.Contains(k.Reason, "restore-db-instance-from-db-snapshot") {
				t.Errorf("kept: %+v", g.kept())
			}
			g.onlyKept()
			if lifted := slices.ContainsFunc(g.history(), func(e job.Event) bool { return e.Type == "protection.lifted" }); !lifted {
				t.Error("the history does not tell that protection was lifted")
			}
		})
	}
}
