package gcp

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// cloudMonitoring is the simulated Cloud Monitoring: the time series of datastores and caches. What they are is said by
// [sim.World.SetMetric]; where nothing is, they are made up, the same in every run, from the creation of the object on.
type cloudMonitoring struct {
	cloud *Cloud
}

// A monitoredObject is an object that has time series.
type monitoredObject struct {
	Type    string // cloudsql_database
	Labels  Doc
	IDs     []string // by which SetMetric may call it
	Created time.Time
}

// A metricKind is a type of metric ("Google Cloud metrics").
type metricKind struct {
	name, resource, kind, value string
	base, peak                  float64 // of what is made up: so much at most more than nothing, and at the day's peak more again
	parts                       []Doc   // labels of the metric, one series for each
}

// metricKinds are the types that are simulated.
var metricKinds = []metricKind{
	{"cloudsql.googleapis.com/database/cpu/utilization", "cloudsql_database", "GAUGE", "DOUBLE", 0.3, 0.3, nil},
	{"cloudsql.googleapis.com/database/memory/utilization", "cloudsql_database", "GAUGE", "DOUBLE", 0.5, 0.1, nil},
	{"cloudsql.googleapis.com/database/disk/utilization", "cloudsql_database", "GAUGE", "DOUBLE", 0.4, 0.01, nil},
	{"cloudsql.googleapis.com/database/disk/bytes_used", "cloudsql_database", "GAUGE", "INT64", 6 << 30, 1 << 20, nil},
	{"cloudsql.googleapis.com/database/postgresql/num_backends", "cloudsql_database", "GAUGE", "INT64", 20, 20, []Doc{{"database": "postgres"}}},
	{"cloudsql.googleapis.com/database/network/connections", "cloudsql_database", "GAUGE", "INT64", 20, 20, nil},
	{"redis.googleapis.com/stats/cpu_utilization_main_thread", "redis_instance", "DELTA", "DOUBLE", 0.1, 0.1, []Doc{{"relationship": "parent", "space": "user"}, {"relationship": "parent", "space": "sys"}}},
	{"redis.googleapis.com/stats/cpu_utilization", "redis_instance", "DELTA", "DOUBLE", 0.1, 0.1, []Doc{{"relationship": "parent", "space": "user"}, {"relationship": "parent", "space": "sys"}}},
	{"redis.googleapis.com/stats/memory/usage_ratio", "redis_instance", "GAUGE", "DOUBLE", 0.5, 0.1, nil},
	{"redis.googleapis.com/stats/memory/system_memory_usage_ratio", "redis_instance", "GAUGE", "DOUBLE", 0.4, 0.1, nil},
	{"redis.googleapis.com/clients/connected", "redis_instance", "GAUGE", "INT64", 20, 20, nil},
	{"memorystore.googleapis.com/instance/cpu/maximum_utilization", "memorystore.googleapis.com/Instance", "GAUGE", "DOUBLE", 0.3, 0.3, nil},
	{"memorystore.googleapis.com/instance/memory/maximum_utilization", "memorystore.googleapis.com/Instance", "GAUGE", "DOUBLE", 0.5, 0.1, nil},
	{"memorystore.googleapis.com/instance/clients/total_connected_clients", "memorystore.googleapis.com/Instance", "GAUGE", "INT64", 20, 20, nil},
}

func newCloudMonitoring(c *Cloud) {
	s := &cloudMonitoring{cloud: c}
	c.add("monitoring/v3", &api{service: "monitoring", ops: map[string]operation{"projects.timeSeries.list": s.list}})
}

// sampledEvery is how often a point is written.
const sampledEvery = time.Minute

// mostPoints bounds an answer.
const mostPoints = 100000

// window is the time that is asked for, and how its points are put together.
type window struct {
	from, to         time.Time
	period           time.Duration // 0: points as they are
	aligner, reducer string
	headers          bool
}

func (s *cloudMonitoring) list(r *request) (any, error) {
	q := r.Query
	f, err := parseFilter(q.Get("filter"))
	if err != nil || !strings.Contains(q.Get("filter"), "metric.type") {
		return nil, badArgument("Field filter had an invalid value of %q: The provided filter must refer to a metric type.", q.Get("filter"))
	}
	win, err := readWindow(r)
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, list := range s.cloud.hooks.monitored {
		for _, o := range list(r.Project.ID) {
			for i := range metricKinds {
				k := &metricKinds[i]
				if k.resource != o.Type {
					continue
				}
				series, err := s.series(k, o, f, win)
				if err != nil {
					return nil, err
				}
				items = append(items, series...)
			}
		}
	}
	if win.reducer != "" && len(items) > 0 {
		items = []Doc{reduced(items, win.reducer)}
	}
	return r.page(items, "timeSeries", mostPoints)
}

// readWindow reads interval and aggregation.
func readWindow(r *request) (window, error) {
	q := r.Query
	w := window{headers: q.Get("view") == "HEADERS", aligner: q.Get("aggregation.perSeriesAligner")}
	var err error
	if w.to, err = time.Parse(time.RFC3339, q.Get("interval.endTime")); err != nil {
		return w, badArgument("Field interval.end_time had an invalid value: it is required, in RFC 3339.")
	}
	if w.from = w.to; q.Get("interval.startTime") != "" {
		if w.from, err = time.Parse(time.RFC3339, q.Get("interval.startTime")); err != nil || w.from.After(w.to) {
			return w, badArgument("Field interval.start_time had an invalid value: it must not be later than the end time.")
		}
	}
	if w.aligner == "" || w.aligner == "ALIGN_NONE" {
		w.aligner = ""
		return w, nil
	}
	var ok bool
	if w.period, ok = duration(q.Get("aggregation.alignmentPeriod")); !ok || w.period < time.Minute {
		return w, badArgument("Field aggregation.alignment_period had an invalid value of %q: The alignment period must be at least 60 seconds.", q.Get("aggregation.alignmentPeriod"))
	}
	if w.reducer = q.Get("aggregation.crossSeriesReducer"); w.reducer == "REDUCE_NONE" {
		w.reducer = ""
	}
	return w, nil
}

// series are the time series of one type that an object has and the filter selects.
func (s *cloudMonitoring) series(k *metricKind, o monitoredObject, f filter, win window) ([]Doc, error) {
	parts := k.parts
	if len(parts) == 0 {
		parts = []Doc{{}}
	}
	var out []Doc
	for i, labels := range parts {
		d := Doc{"metric": Doc{"type": k.name, "labels": labels}, "resource": Doc{"type": o.Type, "labels": o.Labels}, "metricKind": k.kind, "valueType": k.value}
		if !f(d) {
			continue
		}
		if err := win.fits(k); err != nil {
			return nil, err
		}
		if k.kind == "DELTA" && win.aligner == "ALIGN_RATE" {
			d["metricKind"] = "GAUGE"
		}
		share := 1.0
		if len(parts) > 1 { // the first part has most of it
			share = []float64{0.7, 0.3}[i]
		}
		if points := s.points(k, o, win, share); !win.headers {
			if len(points) == 0 {
				continue
			}
			d["points"] = points
		}
		out = append(out, d)
	}
	return out, nil
}

// fits refuses an aligner that a kind of metric does not have (Aggregation.Aligner in the reference).
func (w window) fits(k *metricKind) error {
	rates := w.aligner == "ALIGN_RATE" || w.aligner == "ALIGN_DELTA"
	if w.aligner == "" || rates == (k.kind == "DELTA") {
		return nil
	}
	return badArgument("Field aggregation.perSeriesAligner had an invalid value of %q: The aligner cannot be applied to metrics with kind %s and value type %s.", w.aligner, k.kind, k.value)
}

// metric is how a metric behaves: as was said, or as is made up; and since when.
func (s *cloudMonitoring) metric(k *metricKind, o monitoredObject) (sim.Metric, time.Time) {
	short := k.name[strings.Index(k.name, "/")+1:]
	for _, id := range o.IDs {
		for _, name := range []string{k.name, short, lastPart(short)} {
			if m, ok := s.cloud.World.Metric(cloudName, id, name); ok {
				return m, time.Time{}
			}
		}
	}
	some := s.cloud.World.Fraction("metric", k.name, o.IDs[0])
	base := k.base * (0.2 + 0.8*some)
	return sim.Metric{Base: base, Peak: base + k.peak*some, Share: 0.2}, o.Created
}

// points are the points of a series, the newest first.
func (s *cloudMonitoring) points(k *metricKind, o monitoredObject, win window, share float64) []any {
	m, since := s.metric(k, o)
	from, step := win.from, sampledEvery
	if win.period > 0 {
		step = win.period
	}
	if since.After(from) {
		from = since
	}
	to := win.to
	if now := s.cloud.World.Now(); to.After(now) {
		to = now
	}
	var out []any
	for at := to; at.After(from) && len(out) < mostPoints; at = at.Add(-step) {
		v := aligned(m, at, win) * share
		if k.kind == "DELTA" && win.aligner != "ALIGN_RATE" {
			v *= step.Seconds()
		}
		begin := at
		if k.kind == "DELTA" {
			begin = at.Add(-step)
		}
		value := Doc{"doubleValue": v}
		if k.value == "INT64" && !strings.Contains(win.aligner, "MEAN") && !strings.Contains(win.aligner, "PERCENTILE") {
			value = Doc{"int64Value": strconv.FormatInt(int64(math.Round(v)), 10)}
		}
		out = append(out, Doc{"interval": Doc{"startTime": begin.UTC().Format(time.RFC3339), "endTime": at.UTC().Format(time.RFC3339)}, "value": value})
	}
	return out
}

// aligned is the value of a metric over the period that ends at a time.
func aligned(m sim.Metric, at time.Time, win window) float64 {
	if win.period == 0 {
		return m.At(at)
	}
	const n = 12
	var values []float64
	sum := 0.0
	for i := range n {
		v := m.At(at.Add(-win.period * time.Duration(i) / n))
		values, sum = append(values, v), sum+v
	}
	slices.Sort(values)
	switch {
	case strings.HasSuffix(win.aligner, "MAX") || strings.HasSuffix(win.aligner, "PERCENTILE_99"):
		return values[n-1]
	case strings.HasSuffix(win.aligner, "MIN"):
		return values[0]
	case strings.HasSuffix(win.aligner, "PERCENTILE_95"):
		return values[n*95/100]
	case strings.HasSuffix(win.aligner, "PERCENTILE_50"):
		return values[n/2]
	case strings.HasSuffix(win.aligner, "COUNT"):
		return math.Floor(win.period.Seconds() / sampledEvery.Seconds())
	}
	return sum / n
}

// reduced is one series of several: the points at each time put together.
func reduced(all []Doc, reducer string) Doc {
	at := map[string][]float64{}
	for _, d := range all {
		for _, p := range docs(d, "points") {
			value := sub(p, "value")
			v := num(value, "doubleValue")
			if n, err := strconv.ParseFloat(str(value, "int64Value"), 64); err == nil {
				v = n
			}
			end := str(sub(p, "interval"), "endTime")
			at[end] = append(at[end], v)
		}
	}
	var points []any
	for _, end := range slices.Backward(keysOf(at)) {
		values, sum := at[end], 0.0
		for _, v := range values {
			sum += v
		}
		switch reducer {
		case "REDUCE_MAX":
			sum = slices.Max(values)
		case "REDUCE_MIN":
			sum = slices.Min(values)
		case "REDUCE_MEAN":
			sum /= float64(len(values))
		}
		points = append(points, Doc{"interval": Doc{"startTime": end, "endTime": end}, "value": Doc{"doubleValue": sum}})
	}
	first := all[0]
	return Doc{"metric": Doc{"type": str(sub(first, "metric"), "type")}, "resource": Doc{"type": str(sub(first, "resource"), "type")}, "metricKind": "GAUGE", "valueType": "DOUBLE", "points": points}
}

// monitored are the instances of Cloud SQL as their time series name them.
func (s *cloudSQL) monitored(project string) []monitoredObject {
	var out []monitoredObject
	for _, in := range s.inOrder(project) {
		if in.state() == sqlCreating {
			continue
		}
		out = append(out, monitoredObject{Type: "cloudsql_database", Created: in.Created, IDs: []string{in.Path, in.name(), project + ":" + in.name()},
			Labels: Doc{"project_id": project, "region": in.region(), "database_id": project + ":" + in.name()}})
	}
	return out
}

func (s *memorystoreRedis) monitored(project string) []monitoredObject {
	var out []monitoredObject
	for _, in := range s.inOrder("projects/" + project + "/") {
		if in.state() == "CREATING" {
			continue
		}
		out = append(out, monitoredObject{Type: "redis_instance", Created: in.Created, IDs: []string{in.Name, lastPart(in.Name)},
			Labels: Doc{"project_id": project, "region": segmentAfter(in.Name, "locations"), "instance_id": in.Name, "node_id": "node-0"}})
	}
	return out
}
