package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/monitoring/v3"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// metricDays is how far back a recommendation looks, an hour a sample.
const metricDays = 14

// A metric is one of Cloud Monitoring's, and how its values become those of a
// summary ("Google Cloud metrics").
type metric struct {
	name, unit, kind string
	scale            float64
	rate             bool // seconds of CPU that add up, instead of a gauge
}

var sqlMetrics = []metric{
	{name: "cpu", unit: "percent", kind: "cloudsql.googleapis.com/database/cpu/utilization", scale: 100},
	{name: "memory", unit: "percent", kind: "cloudsql.googleapis.com/database/memory/utilization", scale: 100},
	{name: "storage", unit: "GiB", kind: "cloudsql.googleapis.com/database/disk/bytes_used", scale: 1.0 / (1 << 30)},
}

var connectionMetrics = map[job.Engine]metric{
	job.Postgres: {name: "connections", unit: "count", kind: "cloudsql.googleapis.com/database/postgresql/num_backends", scale: 1},
	job.MySQL:    {name: "connections", unit: "count", kind: "cloudsql.googleapis.com/database/network/connections", scale: 1},
}

var redisMetrics = []metric{
	{name: "cpu", unit: "percent", kind: "redis.googleapis.com/stats/cpu_utilization_main_thread", scale: 100, rate: true},
	{name: "memory", unit: "percent", kind: "redis.googleapis.com/stats/memory/usage_ratio", scale: 100},
	{name: "connections", unit: "count", kind: "redis.googleapis.com/clients/connected", scale: 1},
}

var valkeyMetrics = []metric{
	{name: "cpu", unit: "percent", kind: "memorystore.googleapis.com/instance/cpu/maximum_utilization", scale: 100},
	{name: "memory", unit: "percent", kind: "memorystore.googleapis.com/instance/memory/maximum_utilization", scale: 100},
	{name: "connections", unit: "count", kind: "memorystore.googleapis.com/instance/clients/total_connected_clients", scale: 1},
}

// metricsOf are the metrics of an engine, and the filter for one server.
func (p *Provider) metricsOf(d job.DatastoreInfo) ([]metric, string) {
	switch d.Engine {
	case job.Redis:
		return redisMetrics, fmt.Sprintf("resource.labels.instance_id = %q", d.ID)
	case job.Valkey:
		return valkeyMetrics, fmt.Sprintf("resource.labels.instance_id = %q", base(d.ID))
	}
	return append(slices.Clone(sqlMetrics), connectionMetrics[d.Engine]), fmt.Sprintf("resource.labels.database_id = %q", p.project+":"+d.Name)
}

// samples are a metric's hourly values over the days.
func (p *Provider) samples(ctx context.Context, m metric, filter string, now time.Time) ([]float64, time.Duration, error) {
	aligner := "ALIGN_MEAN"
	if m.rate {
		aligner = "ALIGN_RATE"
	}
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*monitoring.TimeSeries, *string, error) {
		out, err := send(ctx, p.data.monitoring.Projects.TimeSeries.List("projects/"+p.project).
			Filter(fmt.Sprintf("metric.type = %q AND %s", m.kind, filter)).
			IntervalStartTime(now.AddDate(0, 0, -metricDays).UTC().Format(time.RFC3339)).IntervalEndTime(now.UTC().Format(time.RFC3339)).
			AggregationAlignmentPeriod("3600s").AggregationPerSeriesAligner(aligner).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.TimeSeries, &out.NextPageToken, nil
	})
	byHour := map[string]float64{} // of several series, such as one a database or a node, the sum or the greatest
	first, last := "", ""
	for _, series := range all {
		for _, pt := range series.Points {
			if pt.Value == nil || pt.Interval == nil {
				continue
			}
			v := 0.0
			switch {
			case pt.Value.DoubleValue != nil:
				v = *pt.Value.DoubleValue
			case pt.Value.Int64Value != nil:
				v = float64(*pt.Value.Int64Value)
			}
			at := pt.Interval.EndTime
			if m.unit == "count" || m.rate {
				byHour[at] += v
			} else {
				byHour[at] = max(byHour[at], v)
			}
			if first == "" || at < first {
				first = at
			}
			last = max(last, at)
		}
	}
	var out []float64
	for _, v := range byHour {
		out = append(out, v*m.scale)
	}
	slices.Sort(out)
	return out, span(first, last), err
}

func span(first, last string) time.Duration {
	a, err := time.Parse(time.RFC3339Nano, first)
	b, bad := time.Parse(time.RFC3339Nano, last)
	if err != nil || bad != nil {
		return 0
	}
	return b.Sub(a) + time.Hour
}

// Recommend says which size would do, by what Cloud Monitoring has of the last 14
// days. A metric that is not there is left out.
func (p *Provider) Recommend(ctx context.Context, r *pipeline.Run) ([]job.Recommendation, error) {
	d := r.Job.Config.InfraConfig.Datastore
	metrics, filter := p.metricsOf(d)
	var found []job.MetricSummary
	for _, m := range metrics {
		values, over, err := p.samples(ctx, m, filter, r.Now())
		if pipeline.Is(err, pipeline.Denied, pipeline.Invalid, pipeline.NotFound, pipeline.Unknown) || switchedOff(err) {
			r.Note("the metric %s was not read: %v", m.name, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(values) > 0 {
			found = append(found, summary(m, values, over))
		}
	}
	out := []job.Recommendation{p.classAdvice(ctx, d, found)}
	if s, ok := metricNamed(found, "storage"); ok && d.StorageGiB > 0 {
		out = append(out, storageAdvice(d, s))
	}
	return out, nil
}

func summary(m metric, sorted []float64, over time.Duration) job.MetricSummary {
	total := 0.0
	for _, v := range sorted {
		total += v
	}
	round := func(v float64) float64 { return float64(int(v*10+0.5)) / 10 }
	at := min(len(sorted)*95/100, len(sorted)-1)
	return job.MetricSummary{
		Name: m.name, Unit: m.unit, Days: int((over + 12*time.Hour) / (24 * time.Hour)), Samples: len(sorted),
		Average: round(total / float64(len(sorted))), P95: round(sorted[at]), Max: round(sorted[len(sorted)-1]),
	}
}

func metricNamed(all []job.MetricSummary, name string) (job.MetricSummary, bool) {
	i := slices.IndexFunc(all, func(m job.MetricSummary) bool { return m.Name == name })
	if i < 0 {
		return job.MetricSummary{}, false
	}
	return all[i], true
}

// The bounds of advice, in percent of what there is: busier than busy most of the
// time is too small, and never above idle, with the next class down still below
// busy, is too large. Fewer days than enough say nothing.
const (
	busy       = 75
	idle       = 25
	enoughDays = 7
)

// classAdvice is the advice about CPU and memory.
func (p *Provider) classAdvice(ctx context.Context, d job.DatastoreInfo, all []job.MetricSummary) job.Recommendation {
	now := sizeText(d)
	out := job.Recommendation{What: "class", Advice: "keep", From: now, To: now, Metrics: all}
	cpu, hasCPU := metricNamed(all, "cpu")
	memory, hasMemory := metricNamed(all, "memory")
	days := max(cpu.Days, memory.Days)
	switch {
	case !hasCPU && !hasMemory:
		out.Reason = "Cloud Monitoring has no data of it: the data covers 0 days"
		return out
	case days < enoughDays:
		out.Reason = fmt.Sprintf("the data covers %d days, which is too few for advice", days)
		return out
	}
	out.Reason = fmt.Sprintf("over %d days: cpu p95 %g%%, at most %g%%; memory p95 %g%%, at most %g%%", days, cpu.P95, cpu.Max, memory.P95, memory.Max)
	step := 0
	switch {
	case cpu.P95 > busy || memory.P95 > 90 && d.Engine.Cache() || memory.P95 > 95:
		step = 1
	case hasCPU && hasMemory && cpu.P95 < idle && cpu.Max < busy && memory.P95 < 40:
		step = -1
	}
	to := p.nextSize(ctx, d, step)
	if step == 0 || to == "" {
		if step != 0 {
			out.Reason += "; there is no class beyond the present one"
		}
		return out
	}
	out.Advice, out.To = map[int]string{1: "larger", -1: "smaller"}[step], to
	out.Command = p.resizeCommand(d, to)
	return out
}

// sizeText is the size of a datastore as its service counts it.
func sizeText(d job.DatastoreInfo) string {
	if d.Engine == job.Redis {
		return fmt.Sprintf("%g GiB", d.MemoryGiB)
	}
	return d.Class
}

// nextSize is the next size up or down that the region offers; "" if there is none.
func (p *Provider) nextSize(ctx context.Context, d job.DatastoreInfo, step int) string {
	switch {
	case step == 0:
		return ""
	case d.Engine == job.Redis:
		gib := int(d.MemoryGiB*1.5 + 0.5)
		if step < 0 {
			gib = int(d.MemoryGiB / 2)
		}
		least := 1
		if d.Replicas > 1 {
			least = 5
		}
		if gib = min(max(gib, least), 300); gib == int(d.MemoryGiB) {
			return ""
		}
		return fmt.Sprintf("%d GiB", gib)
	case d.Engine == job.Valkey:
		at := slices.IndexFunc(valkeyNodes, func(n struct {
			name   string
			memory float64
		}) bool {
			return n.name == d.Class
		})
		if at < 0 || at+step < 0 || at+step >= len(valkeyNodes) {
			return ""
		}
		return valkeyNodes[at+step].name
	}
	return p.nextTier(ctx, d, step)
}

// nextTier is the next class of Cloud SQL: custom machines double or halve, others
// go along the list of their series.
func (p *Provider) nextTier(ctx context.Context, d job.DatastoreInfo, step int) string {
	if cpus, mib, ok := customSize(d.Class); ok {
		if step > 0 {
			cpus, mib = cpus*2, mib*2
		} else {
			cpus, mib = cpus/2, mib/2
		}
		if cpus < 1 || cpus > 96 || mib < 3840 {
			return ""
		}
		return customTier(cpus, (mib+1023)/1024)
	}
	out, err := send(ctx, p.data.sql.Tiers.List(p.project))
	if err != nil {
		return ""
	}
	series := d.Class[:max(strings.LastIndexByte(d.Class, '-'), 0)]
	best, size := "", 0
	now, _ := tierSize(d.Class, out.Items)
	for _, t := range out.Items {
		cpus, _ := tierSize(t.Tier, out.Items)
		nearer := best == "" || step > 0 && cpus < size || step < 0 && cpus > size
		if strings.HasPrefix(t.Tier, series+"-") && slices.Contains(t.Region, p.region) && (cpus-now)*step > 0 && nearer {
			best, size = t.Tier, cpus
		}
	}
	return best
}

// resizeCommand is what a person types to follow the advice.
func (p *Provider) resizeCommand(d job.DatastoreInfo, to string) string {
	switch d.Engine {
	case job.Redis:
		return fmt.Sprintf("gcloud redis instances update %s --region=%s --project=%s --size=%s", d.Name, p.region, p.project, strings.TrimSuffix(to, " GiB"))
	case job.Valkey:
		return fmt.Sprintf("gcloud memorystore instances update %s --location=%s --project=%s --node-type=%s", d.Name, p.region, p.project, strings.ToLower(strings.ReplaceAll(to, "_", "-")))
	}
	return fmt.Sprintf("gcloud sql instances patch %s --project=%s --tier=%s", d.Name, p.project, to)
}

// storageAdvice is the advice about the disk, which can grow and never shrink.
func storageAdvice(d job.DatastoreInfo, used job.MetricSummary) job.Recommendation {
	from := fmt.Sprintf("%d GiB", d.StorageGiB)
	out := job.Recommendation{What: "storage", Advice: "keep", From: from, To: from, Metrics: []job.MetricSummary{used}}
	share := 100 * used.Max / float64(d.StorageGiB)
	out.Reason = fmt.Sprintf("over %d days: at most %g GiB of %d are used (%.0f%%)", used.Days, used.Max, d.StorageGiB, share)
	switch {
	case used.Days < enoughDays:
		out.Reason = fmt.Sprintf("the data covers %d days, which is too few for advice", used.Days)
	case share > 85:
		to := max(d.StorageGiB*3/2, d.StorageGiB+10)
		out.Advice, out.To = "larger", fmt.Sprintf("%d GiB", to)
		out.Command = fmt.Sprintf("gcloud sql instances patch %s --storage-size=%d", d.Name, to)
	case share < idle:
		out.Reason += "; a disk of Cloud SQL cannot be made smaller, so it stays"
	}
	return out
}
