package gcp

import (
	"os"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// The examples say what works: each is furnished as its sandbox file says, and comes
// and goes.
func TestClusterExamples(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cluster-gcp", "cluster-gcp-existing", "cluster-gcp-adopt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			example := struct {
				Mode   job.Mode   `json:"mode"`
				Config job.Config `json:"config"`
			}{Mode: job.ModeCreate}
			read(t, name+".yaml", &example)
			g := newCluster(t, sim.Options{}, example.Mode, string(example.Config.Spec))
			g.furnishedBy(name + ".sandbox.yaml")
			before := g.world.Snapshot()
			for _, f := range g.findings() {
				if f.Status == cloud.CheckFails {
					t.Errorf("check: %+v", f)
				}
			}
			if example.Mode == job.ModeAdopt {
				if err := g.p.AdoptCluster(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.run(pipeline.Apply)); err != nil {
					t.Fatal(err)
				}
				if info := g.cluster(); info.Endpoint == "" || len(info.RiskNotes) == 0 || info.NodePools[0].Desired != 2 {
					t.Errorf("what was learned: %+v", info)
				}
				g.equal(before)
				return
			}
			g.up()
			for id, row := range g.report() {
				if !row.Met {
					t.Errorf("%s: %+v", id, row)
				}
			}
			g.down()
			g.equal(before)
		})
	}
}

// read decodes one of the examples.
func read(t testing.TB, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../../../examples/" + name)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// furnishedBy makes what an example takes for granted, if anything.
func (g clusterRig) furnishedBy(name string) {
	g.Helper()
	if _, err := os.Stat("../../../examples/" + name); err != nil {
		return
	}
	var file struct {
		Objects []struct {
			Service, Operation, After string
			Params                    map[string]any
		}
	}
	read(g, name, &file)
	for _, o := range file.Objects {
		if o.After != "" {
			wait, err := time.ParseDuration(o.After)
			if err != nil {
				g.Fatal(err)
			}
			g.world.Step(wait)
			continue
		}
		g.invoke(testProject, o.Service, o.Operation, o.Params)
	}
}
