package gcp

import (
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The examples say what works: each is furnished as its sandbox file says, and comes
// and goes.
func TestDatastoreExamples(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"datastore-postgres-gcp", "datastore-mysql-gcp", "datastore-postgres-gcp-existing", "datastore-postgres-gcp-adopt",
		"cache-gcp", "cache-gcp-existing", "cache-gcp-adopt",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			example := struct {
				ResourceType job.ResourceType `json:"resourceType"`
				Mode         job.Mode         `json:"mode"`
				Config       job.Config       `json:"config"`
			}{Mode: job.ModeCreate}
			read(t, name+".yaml", &example)
			g := newData(t, example.ResourceType, example.Mode, string(example.Config.Spec))
			g.furnishedBy(name + ".sandbox.yaml")
			before := g.world.Snapshot()
			for _, f := range g.findings() {
				if f.Status == cloud.CheckFails {
					t.Errorf("check: %+v", f)
				}
			}
			if example.Mode == job.ModeAdopt {
				if err := g.p.AdoptDatastore(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.run(pipeline.Apply)); err != nil {
					t.Fatal(err)
				}
				if d := g.store(); d.Host == "" || d.Class == "" || len(d.RiskNotes) < 4 {
					t.Errorf("what was learned: %+v", d)
				}
				t.Logf("risks: %q", g.store().RiskNotes)
				g.equal(before)
				return
			}
			g.up()
			if unmet := g.unmet(); len(unmet) > 0 {
				t.Errorf("not met: %v", unmet)
			}
			g.down()
			g.onlyBackup()
		})
	}
}
