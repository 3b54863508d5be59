package aws

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// What a recommendation looks at: how many days, in steps of how long, and how much of
// them has to be there before a size is judged.
const (
	metricDays   = 14
	metricPeriod = time.Hour
	leastSamples = 3 * 24
)

// A metric is one that CloudWatch keeps of a datastore. scale turns its unit into the
// one that is shown; of says that what is kept is what is left of a whole.
type metric struct {
	name, unit, source string
	scale              float64
	whole              float64 // kept is what is free of it; 0: kept is what is used
}

// metricsOf are the metrics of a datastore ("Amazon CloudWatch metrics for Amazon RDS",
// "Metrics for Valkey and Redis OSS").
func metricsOf(info job.DatastoreInfo) []metric {
	const gib = 1 << 30
	if info.Engine.Cache() {
		return []metric{
			{name: "cpu", unit: "percent", source: "CPUUtilization", scale: 1},
			{name: "memory", unit: "percent", source: "DatabaseMemoryUsagePercentage", scale: 1},
			{name: "connections", unit: "count", source: "CurrConnections", scale: 1},
		}
	}
	out := []metric{{name: "cpu", unit: "percent", source: "CPUUtilization", scale: 1}}
	if info.MemoryGiB > 0 {
		out = append(out, metric{name: "memory", unit: "GiB", source: "FreeableMemory", scale: 1.0 / gib, whole: info.MemoryGiB})
	}
	out = append(out, metric{name: "connections", unit: "count", source: "DatabaseConnections", scale: 1})
	if info.StorageGiB > 0 {
		out = append(out, metric{name: "storage", unit: "GiB", source: "FreeStorageSpace", scale: 1.0 / gib, whole: float64(info.StorageGiB)})
	}
	return out
}

// Recommend says from the metrics of the last days which size would do. A metric that
// cannot be read makes no recommendation, and no error.
func (p *Provider) Recommend(ctx context.Context, r *pipeline.Run) ([]job.Recommendation, error) {
	ctx = lookup.With(ctx, r)
	info := r.Job.Config.InfraConfig.Datastore
	nodes, err := p.metered(ctx, info)
	if err != nil {
		return nil, plain(err)
	}
	seen, err := p.summaries(ctx, info, nodes, r.Now())
	if err != nil && stops(ctx, err) {
		return nil, plain(err)
	}
	if err != nil {
		r.Note("no metrics: %v", plain(err))
	}
	size, err := p.sizeAdvice(ctx, info, seen)
	if err != nil {
		return nil, plain(err)
	}
	out := []job.Recommendation{size}
	if !info.Engine.Cache() && info.StorageGiB > 0 {
		out = append(out, storageAdvice(info, seen))
	}
	return out, nil
}

// metered are what CloudWatch keeps metrics of: the instance, or the nodes of a cache.
func (p *Provider) metered(ctx context.Context, info job.DatastoreInfo) ([]string, error) {
	if !info.Engine.Cache() {
		return []string{info.Name}, nil
	}
	all, err := p.nodesOf(ctx, info.Name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range all {
		out = append(out, aws.ToString(n.CacheClusterId))
	}
	if len(out) == 0 {
		out = []string{info.Name} // it stands alone
	}
	return out, nil
}

// summaries reads the metrics of every node, an average and the highest value an hour,
// and sums up what the busiest node shows.
func (p *Provider) summaries(ctx context.Context, info job.DatastoreInfo, nodes []string, now time.Time) (map[string]job.MetricSummary, error) {
	space, dimension := "AWS/RDS", "DBInstanceIdentifier"
	if info.Engine.Cache() {
		space, dimension = "AWS/ElastiCache", "CacheClusterId"
	}
	wanted := metricsOf(info)
	var queries []cwtypes.MetricDataQuery
	query := func(id, source, node, stat string) {
		queries = append(queries, cwtypes.MetricDataQuery{Id: aws.String(id), ReturnData: aws.Bool(true), MetricStat: &cwtypes.MetricStat{
			Metric: &cwtypes.Metric{Namespace: aws.String(space), MetricName: aws.String(source), Dimensions: []cwtypes.Dimension{{Name: aws.String(dimension), Value: aws.String(node)}}},
			Period: aws.Int32(int32(metricPeriod.Seconds())), Stat: aws.String(stat),
		}})
	}
	for i, m := range wanted {
		high := "Maximum"
		if m.whole > 0 {
			high = "Minimum" // the least that was free is the most that was used
		}
		for j, node := range nodes {
			query(fmt.Sprintf("a%d_%d", i, j), m.source, node, "Average")
			query(fmt.Sprintf("h%d_%d", i, j), m.source, node, high)
		}
	}
	values := map[string][]float64{}
	for part := range slices.Chunk(queries, 500) {
		if err := p.readMetrics(ctx, part, now, values); err != nil {
			return nil, err
		}
	}
	out := map[string]job.MetricSummary{}
	for i, m := range wanted {
		for j := range nodes {
			s := m.summary(values[fmt.Sprintf("a%d_%d", i, j)], values[fmt.Sprintf("h%d_%d", i, j)])
			if old, ok := out[m.name]; s.Samples > 0 && (!ok || s.P95 > old.P95) {
				out[m.name] = s
			}
		}
	}
	return out, nil
}

// readMetrics adds the values of every query, from every page.
func (p *Provider) readMetrics(ctx context.Context, queries []cwtypes.MetricDataQuery, now time.Time, into map[string][]float64) error {
	results, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]cwtypes.MetricDataResult, *string, error) {
		out, err := p.metrics.GetMetricData(ctx, &cloudwatch.GetMetricDataInput{
			StartTime: aws.Time(now.AddDate(0, 0, -metricDays).UTC()), EndTime: aws.Time(now.UTC()), MetricDataQueries: queries, NextToken: token,
		})
		if err != nil {
			return nil, nil, err
		}
		return out.MetricDataResults, out.NextToken, nil
	})
	for _, x := range results {
		into[aws.ToString(x.Id)] = append(into[aws.ToString(x.Id)], x.Values...)
	}
	return err
}

// summary sums a metric up, in the unit that is shown.
func (m metric) summary(average, high []float64) job.MetricSummary {
	s := job.MetricSummary{Name: m.name, Unit: m.unit, Samples: len(average)}
	if len(average) == 0 {
		return s
	}
	s.Days = int(math.Ceil(float64(len(average)) * metricPeriod.Hours() / 24))
	used := func(v float64) float64 {
		if m.whole > 0 {
			return max(m.whole-v*m.scale, 0)
		}
		return v * m.scale
	}
	var values []float64
	for _, v := range average {
		values = append(values, used(v))
		s.Average += used(v) / float64(len(average))
	}
	slices.Sort(values)
	s.P95 = values[min(int(math.Ceil(0.95*float64(len(values))))-1, len(values)-1)]
	s.Max = values[len(values)-1]
	for _, v := range high {
		s.Max = max(s.Max, used(v))
	}
	s.Average, s.P95, s.Max = tenths(s.Average), tenths(s.P95), tenths(s.Max)
	return s
}

func tenths(v float64) float64 { return math.Round(v*10) / 10 }
