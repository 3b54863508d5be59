package gcp

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/api/monitoring/v3"
	"google.golang.org/api/redis/v1"

	"github.com/zopday/provisioner/internal/sim"
)

func TestTimeSeries(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	g.well(g.Instances.Insert(testProject, postgresInstance(g.peered("shop", 20))).Do())
	g.world.Step(3 * 24 * time.Hour)
	series := client(g.rig, monitoring.NewService).Projects.TimeSeries
	list := func(metric, filter, aligner string) (*monitoring.ListTimeSeriesResponse, error) {
		g.world.Lock()
		now := g.world.Now()
		g.world.Unlock()
		return series.List("projects/" + testProject).Filter(`metric.type = "` + metric + `" AND ` + filter).IntervalStartTime(now.Add(-14 * 24 * time.Hour).UTC().Format(time.RFC3339)).
			IntervalEndTime(now.UTC().Format(time.RFC3339)).AggregationAlignmentPeriod("3600s").AggregationPerSeriesAligner(aligner).Do()
	}
	const cpu, ours = "cloudsql.googleapis.com/database/cpu/utilization", `resource.labels.database_id = "` + testProject + `:shop-db"`
	out, err := list(cpu, ours, "ALIGN_MEAN")
	if err != nil || len(out.TimeSeries) != 1 || len(out.TimeSeries[0].Points) < 70 || len(out.TimeSeries[0].Points) > 74 {
		t.Fatalf("an instance of three days has points of three days: %+v, %v", out, err)
	}
	if v := *out.TimeSeries[0].Points[0].Value.DoubleValue; v <= 0 || v >= 1 {
		t.Errorf("CPU utilisation %v", v)
	}
	g.world.SetMetric(sim.Metric{Cloud: "gcp", Resource: "shop-db", Name: "database/cpu/utilization", Base: 0.9, Peak: 0.9})
	out, err = list(cpu, ours, "ALIGN_MAX")
	if err != nil || len(out.TimeSeries) != 1 || len(out.TimeSeries[0].Points) != 14*24 || *out.TimeSeries[0].Points[5].Value.DoubleValue < 0.85 {
		t.Errorf("a metric that was set: %+v, %v", out, err)
	}
	if out, err = list(cpu, `resource.labels.database_id = "x:y"`, "ALIGN_MEAN"); err != nil || len(out.TimeSeries) != 0 {
		t.Errorf("series of nobody: %+v, %v", out, err)
	}
	_, err = series.List("projects/" + testProject).Filter(ours).IntervalEndTime("2026-01-01T00:00:00Z").Do()
	refused(t, err, 400, "")

	c := client(g.rig, redis.NewService).Projects.Locations.Instances
	if _, err := c.Create(redisParent, &redis.Instance{Tier: "BASIC", MemorySizeGb: 1}).InstanceId("sessions").Do(); err != nil {
		t.Fatal(err)
	}
	g.world.Step(24 * time.Hour)
	const thread, cached = "redis.googleapis.com/stats/cpu_utilization_main_thread", `resource.labels.instance_id = "` + redisParent + `/instances/sessions"`
	if _, err := list(thread, cached, "ALIGN_MEAN"); err == nil || !strings.Contains(err.Error(), "cannot be applied to metrics with kind DELTA") {
		t.Errorf("the mean of a delta: %v", err)
	}
	out, err = list(thread, cached, "ALIGN_RATE")
	if err != nil || len(out.TimeSeries) != 2 || len(out.TimeSeries[0].Points) < 22 || *out.TimeSeries[0].Points[0].Value.DoubleValue > 0.2 {
		t.Errorf("rate of a delta: %+v, %v", out, err)
	}
}
