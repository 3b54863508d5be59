package aws

import (
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// metered sets what CloudWatch keeps of a resource for the last weeks.
func (g dataRig) metered(resource string, values map[string][2]float64) {
	for name, v := range values {
		g.world.SetMetric(sim.Metric{Cloud: "aws", Resource: resource, Name: name, Base: v[0], Peak: v[1]})
	}
}

// advice is the recommendations of a monitor-only job, by what they are about.
func (g dataRig) advice() map[string]job.Recommendation {
	g.Helper()
	since := g.mark()
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	if err := g.p.AdoptDatastore(ctx, g.run(pipeline.Apply)); err != nil {
		g.Fatal(err)
	}
	all, err := g.p.Recommend(ctx, g.run(pipeline.Apply))
	if err != nil {
		g.Fatal(err)
	}
	if _, changes := g.calls(since); len(changes) > 0 {
		g.Errorf("a recommendation changed %v", changes)
	}
	out := map[string]job.Recommendation{}
	for _, r := range all {
		if r.Reason == "" || r.From == "" || r.To == "" || (r.Advice == "keep") != (r.Command == "") || (r.Advice == "keep") != (r.From == r.To) {
			g.Errorf("%+v", r)
		}
		out[r.What] = r
	}
	return out
}

// What a datastore uses decides which size is recommended, with the numbers and the
// cloud's own command; nothing is applied.
func TestRecommendDatastore(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	g := newData(t, sim.Options{}, job.ModeCreate, `{"engine":"postgres","instanceType":"db.m7g.xlarge","storageGiB":100}`)
	g.create()
	name := g.data().Name
	a := g.adopting(`{"monitorOnly":true,"adopt":{"name":"` + name + `"}}`)
	if got := a.advice(); got["class"].Advice != "keep" || !strings.Contains(got["class"].Reason, "covers") {
		t.Errorf("of a fresh one: %+v", got)
	}
	for title, c := range map[string]struct {
		values              map[string][2]float64
		advice, to, storage string
	}{
		"busy":  {map[string][2]float64{"CPUUtilization": {91, 97}, "FreeableMemory": {6 * gib, 5 * gib}, "DatabaseConnections": {200, 300}, "FreeStorageSpace": {40 * gib, 40 * gib}}, "larger", "db.m7g.2xlarge", "keep"},
		"idle":  {map[string][2]float64{"CPUUtilization": {3, 9}, "FreeableMemory": {13 * gib, 12 * gib}, "DatabaseConnections": {4, 9}, "FreeStorageSpace": {60 * gib, 60 * gib}}, "smaller", "db.m7g.large", "keep"},
		"right": {map[string][2]float64{"CPUUtilization": {45, 65}, "FreeableMemory": {6 * gib, 5 * gib}, "DatabaseConnections": {40, 90}, "FreeStorageSpace": {5 * gib, 4 * gib}}, "keep", "db.m7g.xlarge", "larger"},
	} {
		g.metered(name, c.values)
		got := a.advice()
		if r := got["class"]; r.Advice != c.advice || r.To != c.to || !strings.Contains(r.Reason, "14 days") || len(r.Metrics) < 3 {
			t.Errorf("%s: %+v", title, r)
		}
		if r := got["class"]; r.Command != "" && (!strings.HasPrefix(r.Command, "aws rds modify-db-instance") || !strings.Contains(r.Command, r.To)) {
			t.Errorf("%s: %s", title, r.Command)
		}
		if r := got["storage"]; r.Advice != c.storage || r.Advice == "larger" && r.To != "150 GiB" {
			t.Errorf("%s: %+v", title, r)
		}
	}
	g.fault(sim.Fault{Kind: sim.FaultError, Service: "monitoring", Operation: "GetMetricData", Code: "AccessDenied", Status: 403, Count: 100})
	if got := a.advice(); got["class"].Advice != "keep" {
		t.Errorf("without metrics: %+v", got)
	}
	g.hit()
}

// A cache is judged by its busiest node.
func TestRecommendCache(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, `{"engine":"redis","instanceType":"cache.m7g.large"}`)
	g.create()
	name := g.data().Name
	a := g.adopting(`{"monitorOnly":true,"adopt":{"name":"` + name + `"}}`)
	for title, c := range map[string]struct {
		values     map[string][2]float64
		advice, to string
	}{
		"full": {map[string][2]float64{"CPUUtilization": {20, 30}, "DatabaseMemoryUsagePercentage": {92, 95}, "CurrConnections": {20, 30}}, "larger", "cache.m7g.xlarge"},
		"idle": {map[string][2]float64{"CPUUtilization": {2, 4}, "DatabaseMemoryUsagePercentage": {12, 15}, "CurrConnections": {2, 3}}, "smaller", "cache.t4g.medium"},
	} {
		g.metered(name+"-001", c.values)
		g.metered(name+"-002", map[string][2]float64{"CPUUtilization": {1, 2}, "DatabaseMemoryUsagePercentage": {5, 5}, "CurrConnections": {1, 1}})
		r := a.advice()["class"]
		if r.Advice != c.advice || r.To != c.to || r.Command == "" || !strings.HasPrefix(r.Command, "aws elasticache modify-replication-group") {
			t.Errorf("%s: %+v", title, r)
		}
	}
}
