package aws

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// exampleText is an example as JSON; nil if there is none of that name.
func exampleText(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("../../../examples/" + name)
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// furnish makes what an example takes for granted, as its sandbox file says.
func (g dataRig) furnish(name string) {
	g.Helper()
	text := exampleText(g, name)
	if text == nil {
		return
	}
	var file struct {
		Objects []struct {
			Service, Operation, After string
			Params                    map[string]any
			As                        map[string]string
		}
		Set map[string]any
	}
	if err := json.Unmarshal(text, &file); err != nil {
		g.Fatal(err)
	}
	known := map[string]string{}
	fill := func(v any) (out any) {
		b, err := json.Marshal(v)
		if err != nil {
			g.Fatal(err)
		}
		b = []byte(os.Expand(string(b), func(k string) string { return known[k] }))
		if err := json.Unmarshal(b, &out); err != nil {
			g.Fatal(err)
		}
		return out
	}
	for _, o := range file.Objects {
		if o.After != "" {
			d, err := time.ParseDuration(o.After)
			if err != nil {
				g.Fatal(err)
			}
			g.world.Step(d)
			continue
		}
		params, _ := fill(o.Params).(map[string]any)
		if len(o.As) == 0 {
			g.place(o.Service, o.Operation, params)
			continue
		}
		for k := range o.As {
			known[k] = g.made(o.Service, o.Operation, params, o.As[k])
		}
	}
	var spec map[string]any
	if err := json.Unmarshal(g.job.Config.Spec, &spec); err != nil {
		g.Fatal(err)
	}
	if named, ok := spec["existing"].(map[string]any); ok {
		named["networkId"], named["subnetIds"] = fill(file.Set["existing.networkId"]), fill(file.Set["existing.subnetIds"])
	}
	b, err := json.Marshal(spec)
	if err != nil {
		g.Fatal(err)
	}
	g.job.Config.Spec = b
}

// The examples say what works: each is furnished as its sandbox file says, and comes
// and goes.
func TestDatastoreExamples(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"datastore-postgres-aws", "datastore-mysql-aws", "datastore-postgres-aws-existing", "datastore-postgres-aws-adopt", "cache-aws", "cache-aws-existing", "cache-aws-adopt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var example struct {
				Mode         job.Mode         `json:"mode"`
				ResourceType job.ResourceType `json:"resourceType"`
				Config       job.Config       `json:"config"`
			}
			if err := json.Unmarshal(exampleText(t, name+".yaml"), &example); err != nil {
				t.Fatal(err)
			}
			g := newDataOf(t, sim.Options{}, example.ResourceType, example.Mode, string(example.Config.Spec))
			g.furnish(name + ".sandbox.yaml")
			if bad := g.checksOf(cloud.CheckFails); len(bad) > 0 {
				t.Errorf("%+v", bad)
			}
			if example.Mode == job.ModeAdopt {
				if err := g.p.AdoptDatastore(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.run(pipeline.Apply)); err != nil {
					t.Fatal(err)
				}
				if d := g.data(); d.Host == "" || len(d.RiskNotes) == 0 {
					t.Errorf("%+v", d)
				}
				return
			}
			g.create()
			for _, bad := range notMet(g.report()) {
				t.Error(bad)
			}
			g.teardown()
			g.onlySnapshot()
		})
	}
}
