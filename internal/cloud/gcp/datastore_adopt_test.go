package gcp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// theirs makes an instance of somebody else's, and how many more.
func (g dataRig) theirs(name string, more int) {
	g.Helper()
	for i := range more + 1 {
		n := name
		if i > 0 {
			n = fmt.Sprintf("%s-%d", name, i)
		}
		g.invoke(testProject, "sqladmin", "instances.insert", map[string]any{"name": n, "region": testRegion, "databaseVersion": "POSTGRES_16",
			"settings": map[string]any{"tier": "db-custom-4-16384", "edition": "ENTERPRISE", "ipConfiguration": map[string]any{"ipv4Enabled": true,
				"authorizedNetworks": []any{map[string]any{"value": "0.0.0.0/0"}}}}})
	}
	g.world.Step(time.Hour)
}

// An instance is found by its name, ID, self link, connection name and address, with
// or without the port, on whichever page it is; what of it is a risk is told, and it
// stays as it is.
func TestAdoptDatastore(t *testing.T) {
	t.Parallel()
	probe := newData(t, job.Datastore, job.ModeAdopt, `{"adopt":{"name":"legacy"}}`)
	probe.theirs("legacy", 0)
	all, err := probe.p.findAdopted(t.Context(), probe.job, "legacy")
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	host := all[0].info.Host
	for _, adopt := range []string{
		`{"name":"legacy"}`, `{"ids":["legacy"]}`, `{"ids":["projects/example-project/instances/legacy"]}`,
		`{"ids":["https://sqladmin.googleapis.com/sql/v1beta4/projects/example-project/instances/legacy"]}`,
		`{"ids":["example-project:us-central1:legacy"]}`, `{"endpoint":"` + host + `"}`, `{"endpoint":"` + host + `:` + fmt.Sprint(all[0].info.Port) + `"}`,
	} {
		t.Run(adopt, func(t *testing.T) {
			t.Parallel()
			g := newData(t, job.Datastore, job.ModeAdopt, `{"adopt":`+adopt+`}`)
			g.theirs("legacy", 0)
			before := g.world.Snapshot()
			for _, f := range g.findings() {
				t.Errorf("check: %+v", f)
			}
			if err := g.adopts(); err != nil {
				t.Fatal(err)
			}
			d := g.store()
			if d.Engine != job.Postgres || d.Version != "16" || d.Class != "db-custom-4-16384" || !d.Public || d.VCPUs != 4 {
				t.Errorf("what was learned: %+v", d)
			}
			risks := strings.Join(d.RiskNotes, "\n")
			for _, id := range []string{"SQL-01", "SQL-02", "SQL-03", "SQL-05", "SQL-07"} {
				if !strings.Contains(risks, id) {
					t.Errorf("%s is not among the risks:\n%s", id, risks)
				}
			}
			undo := g.patch(d.ID, `{"settings":{"tier":"db-custom-2-8192"}}`)
			r := g.run(pipeline.Verify)
			if err := g.p.AdoptDatastore(t.Context(), r); err != nil || len(r.Drift()) == 0 {
				t.Errorf("a changed class: %v, drift %v", err, r.Drift())
			}
			undo()
			g.equal(before)
		})
	}
}

// adopts is the step, through clients that cannot change anything.
func (g dataRig) adopts() error {
	return g.p.AdoptDatastore(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
}

// What cannot be adopted is said with what to do: another engine (F kinds), nothing
// there, another region, another job's.
func TestAdoptRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, spec, code, say string }{
		{"another engine", `{"engine":"mysql","adopt":{"name":"legacy"}}`, "engine-differs", "PostgreSQL"},
		{"nothing there", `{"adopt":{"name":"nothing"}}`, "not-found", "nothing"},
	} {
		g := newData(t, job.Datastore, job.ModeAdopt, c.spec)
		g.theirs("legacy", 0)
		if f := fatal(g.adopts()); f == nil || f.Problem.Code != c.code || !strings.Contains(f.Problem.Message, c.say) {
			t.Errorf("%s: the verdict is %v", c.name, f)
		}
	}
	g := newData(t, job.Datastore, job.ModeAdopt, `{"adopt":{"name":"legacy"}}`)
	g.theirs("legacy", 0)
	g.job.Region, g.p.region = "us-east1", "us-east1"
	if f := fatal(g.adopts()); f == nil || f.Problem.Code != "wrong-region" {
		t.Errorf("another region: the verdict is %v", f)
	}
}

// A busy instance gets advice to grow, an idle one to shrink, and one of which little
// is known none; nothing is changed.
func TestRecommend(t *testing.T) {
	t.Parallel()
	cpu, memory := "cloudsql.googleapis.com/database/cpu/utilization", "cloudsql.googleapis.com/database/memory/utilization"
	for _, c := range []struct {
		name        string
		cpu, memory float64
		advice, to  string
	}{
		{"busy", 0.9, 0.7, "larger", "db-custom-8-32768"},
		{"idle", 0.05, 0.2, "smaller", "db-custom-2-8192"},
		{"right", 0.5, 0.6, "keep", "db-custom-4-16384"},
	} {
		g := newData(t, job.Datastore, job.ModeAdopt, `{"adopt":{"name":"legacy"},"monitorOnly":true}`)
		g.theirs("legacy", 0)
		for kind, base := range map[string]float64{cpu: c.cpu, memory: c.memory} {
			g.world.SetMetric(sim.Metric{Cloud: "gcp", Resource: "legacy", Name: kind, Base: base, Peak: base})
		}
		if err := g.adopts(); err != nil {
			t.Fatal(err)
		}
		since := g.mark()
		all, err := g.p.Recommend(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
		if err != nil || len(all) == 0 {
			t.Fatalf("%s: %v, %v", c.name, all, err)
		}
		got := all[0]
		if got.Advice != c.advice || got.To != c.to || got.From != "db-custom-4-16384" || !strings.Contains(got.Reason, "days") {
			t.Errorf("%s: %+v", c.name, got)
		}
		if want := "gcloud sql instances patch legacy"; c.advice != "keep" && !strings.HasPrefix(got.Command, want) {
			t.Errorf("%s: the command is %q", c.name, got.Command)
		}
		if _, changes := g.calls(since); sum(changes) > 0 {
			t.Errorf("changed %v", changes)
		}
	}
	g := newData(t, job.Datastore, job.ModeAdopt, `{"adopt":{"name":"legacy"},"monitorOnly":true}`)
	g.theirs("legacy", 0) // an hour old
	if err := g.adopts(); err != nil {
		t.Fatal(err)
	}
	all, err := g.p.Recommend(t.Context(), g.run(pipeline.Apply))
	if err != nil || all[0].Advice != "keep" || !strings.Contains(all[0].Reason, "0 days") {
		t.Errorf("of a young instance: %+v, %v", all, err)
	}
}

// A cache is recommended by memory; its command is its own.
func TestRecommendCache(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Cache, job.ModeCreate, redisSpec)
	g.up()
	for kind, base := range map[string]float64{"redis.googleapis.com/stats/memory/usage_ratio": 0.95, "redis.googleapis.com/stats/cpu_utilization_main_thread": 0.02} {
		g.world.SetMetric(sim.Metric{Cloud: "gcp", Resource: g.store().Name, Name: kind, Base: base, Peak: base})
	}
	all, err := g.p.Recommend(t.Context(), g.run(pipeline.Apply))
	if err != nil || all[0].Advice != "larger" || all[0].From != "3 GiB" || all[0].To != "5 GiB" || !strings.Contains(all[0].Command, "gcloud redis instances update "+g.store().Name) {
		t.Errorf("%+v, %v", all, err)
	}
}
