package aws

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/zopday/provisioner/internal/sim"
)

// metricsService is CloudWatch's metrics, as far as datastores and caches have them. It keeps nothing: a metric is computed
// for the time that is asked for (sim.Metric).
type metricsService struct {
	cloud *Cloud
	state struct{}
}

const cloudWatchPath = "/service/GraniteServiceVersion20100801/operation/"

func newMetrics(c *Cloud) *metricsService {
	s := &metricsService{cloud: c}
	c.World.Register(s)
	c.add(&api{
		service: "monitoring", protocol: cborProtocol, version: "2010-08-01",
		ops:    overCBOR(map[string]typedOp{"GetMetricData": op(s.getData), "GetMetricStatistics": op(s.getStatistics), "ListMetrics": op(s.list)}),
		encode: encodeCBOR,
		route: func(r *http.Request) (string, bool) {
			return strings.CutPrefix(r.URL.Path, cloudWatchPath)
		},
	})
	return s
}

// Cloud implements sim.Service.
func (s *metricsService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *metricsService) Name() string { return "monitoring" }

// State implements sim.Service.
func (s *metricsService) State() any { return &s.state }

// Reset implements sim.Service.
func (s *metricsService) Reset() {}

// Event implements sim.Service.
func (s *metricsService) Event(_, _ string) {}

// Objects implements sim.Service.
func (s *metricsService) Objects() []sim.Object { return nil }

// SetState implements sim.Service.
func (s *metricsService) SetState(id, _, _, _ string) error {
	return fmt.Errorf("%s: CloudWatch has no objects; set metrics with /_sim/metrics", id)
}

// Remove implements sim.Service.
func (s *metricsService) Remove(id string) error { return s.SetState(id, "", "", "") }

var queryID = regexp.MustCompile(`^[a-z][a-zA-Z0-9_]*$`)

// maxPoints is how many values one answer holds ("GetMetricData").
const maxPoints = 100800

func (s *metricsService) getData(c *reqCtx, in *cloudwatch.GetMetricDataInput) (*cloudwatch.GetMetricDataOutput, error) {
	if err := checkRange(in.StartTime, in.EndTime); err != nil {
		return nil, err
	}
	if n := len(in.MetricDataQueries); n == 0 || n > 500 {
		return nil, refuse("ValidationError", "The collection MetricDataQueries must have from 1 to 500 items.")
	}
	seen := map[string]bool{}
	all, points, fit := []types.MetricDataResult{}, 0, 0
	most := int(orDefault(in.MaxDatapoints, maxPoints))
	for _, q := range in.MetricDataQueries {
		if err := checkQuery(q, seen); err != nil {
			return nil, err
		}
		if !orDefault(q.ReturnData, true) {
			continue
		}
		m := q.MetricStat
		result := types.MetricDataResult{Id: q.Id, Label: new(orText(deref(q.Label), deref(m.Metric.MetricName))), StatusCode: types.StatusCodeComplete, Timestamps: []time.Time{}, Values: []float64{}}
		for _, p := range s.sample(c, m.Metric, *m.Period, *in.StartTime, *in.EndTime) {
			result.Timestamps, result.Values = append(result.Timestamps, p.at), append(result.Values, p.stat(*m.Stat))
		}
		if in.ScanBy != types.ScanByTimestampAscending {
			slices.Reverse(result.Timestamps)
			slices.Reverse(result.Values)
		}
		if points += len(result.Values); points <= most || len(all) == 0 {
			fit++
		}
		all = append(all, result)
	}
	page, next, err := pageOf(c, all, in.NextToken, max(fit, 1))
	if err != nil {
		return nil, refuse("InvalidNextToken", "The token is invalid.")
	}
	return &cloudwatch.GetMetricDataOutput{MetricDataResults: page, NextToken: next, Messages: []types.MessageData{}}, nil
}

func checkRange(from, to *time.Time) error {
	if from == nil || to == nil || !from.Before(*to) {
		return refuse("ValidationError", "The parameter StartTime must be less than the parameter EndTime.")
	}
	return nil
}

func checkQuery(q types.MetricDataQuery, seen map[string]bool) error {
	id := deref(q.Id)
	switch {
	case !queryID.MatchString(id):
		return refuse("ValidationError", "The value %q for parameter MetricDataQueries.Id is invalid: it must begin with a lower-case letter and contain letters, digits and underscores.", id)
	case seen[id]:
		return refuse("ValidationError", "The values for parameter id in MetricDataQueries are not unique.")
	case q.MetricStat == nil || q.MetricStat.Metric == nil:
		return refuse("ValidationError", "Metric math is not simulated: each query needs a MetricStat.")
	}
	seen[id] = true
	return checkStat(deref(q.MetricStat.Stat), deref(q.MetricStat.Period))
}

var percentile = regexp.MustCompile(`^p(\d{1,2}(\.\d+)?|100)$`)

func checkStat(stat string, period int32) error {
	switch {
	case period < 1 || period%60 != 0 && period != 1 && period != 5 && period != 10 && period != 30:
		return refuse("ValidationError", "The parameter Period must be 1, 5, 10, 30, or a multiple of 60: %d", period)
	case !slices.Contains([]string{"Average", "Minimum", "Maximum", "Sum", "SampleCount"}, stat) && !percentile.MatchString(stat):
		return refuse("ValidationError", "The value %s for parameter Stat is not supported.", stat)
	}
	return nil
}

// point is the samples of one period.
type point struct {
	at     time.Time
	values []float64 // sorted
}

func (p point) sum() float64 {
	total := 0.0
	for _, v := range p.values {
		total += v
	}
	return total
}

func (p point) stat(name string) float64 {
	n := len(p.values)
	switch name {
	case "Minimum":
		return p.values[0]
	case "Maximum":
		return p.values[n-1]
	case "Sum":
		return p.sum()
	case "SampleCount":
		return float64(n)
	case "Average":
		return p.sum() / float64(n)
	}
	share, err := strconv.ParseFloat(strings.TrimPrefix(name, "p"), 64)
	if err != nil {
		return p.values[n-1] // checkStat has looked at it
	}
	return p.values[min(n-1, int(share/100*float64(n)))]
}

// sample looks at a metric once a minute, from when its resource was made until now. A metric of which somebody has said how it
// behaves has always done so. Values of a minute are kept for 15 days, of five for 63, of an hour for 455 ("Metrics
// retention").
func (s *metricsService) sample(c *reqCtx, m *types.Metric, period int32, from, to time.Time) []point {
	src, ok := s.source(c, m)
	if !ok {
		return nil
	}
	c.Touch(src.id)
	step := time.Duration(period) * time.Second
	kept := map[bool]int{true: 15, false: 63}[step < 5*time.Minute]
	if step >= time.Hour {
		kept = 455
	}
	var out []point
	for at := from.Truncate(step); at.Before(to); at = at.Add(step) {
		if at.Before(from) || at.Before(c.now.AddDate(0, 0, -kept)) {
			continue
		}
		p := point{at: at.UTC()}
		for t := at.Truncate(time.Minute); t.Before(at.Add(step)) && !t.After(c.now); t = t.Add(max(time.Minute, step/60)) {
			if src.said || !t.Before(src.since) {
				p.values = append(p.values, src.metric.At(t))
			}
		}
		if len(p.values) > 0 {
			slices.Sort(p.values)
			out = append(out, p)
		}
	}
	return out
}

func (s *metricsService) getStatistics(c *reqCtx, in *cloudwatch.GetMetricStatisticsInput) (*cloudwatch.GetMetricStatisticsOutput, error) {
	if err := checkRange(in.StartTime, in.EndTime); err != nil {
		return nil, err
	}
	stats := slices.Clone(in.ExtendedStatistics)
	for _, st := range in.Statistics {
		stats = append(stats, string(st))
	}
	if len(stats) == 0 {
		return nil, refuse("InvalidParameterCombination", "At least one of the parameters Statistics and ExtendedStatistics must be specified.")
	}
	for _, st := range stats {
		if err := checkStat(st, deref(in.Period)); err != nil {
			return nil, err
		}
	}
	if n := int(in.EndTime.Sub(*in.StartTime).Seconds()) / int(*in.Period); n > 1440 {
		return nil, refuse("InvalidParameterCombination", "You have requested up to %d datapoints, which exceeds the limit of 1,440. You may reduce the datapoints requested by increasing Period, or decreasing the time range.", n)
	}
	out := &cloudwatch.GetMetricStatisticsOutput{Label: in.MetricName, Datapoints: []types.Datapoint{}}
	for _, p := range s.sample(c, &types.Metric{Namespace: in.Namespace, MetricName: in.MetricName, Dimensions: in.Dimensions}, *in.Period, *in.StartTime, *in.EndTime) {
		d := types.Datapoint{Timestamp: new(p.at), Unit: types.StandardUnitNone}
		for _, st := range stats {
			v := p.stat(st)
			switch st {
			case "Average":
				d.Average = &v
			case "Minimum":
				d.Minimum = &v
			case "Maximum":
				d.Maximum = &v
			case "Sum":
				d.Sum = &v
			case "SampleCount":
				d.SampleCount = &v
			}
		}
		out.Datapoints = append(out.Datapoints, d)
	}
	return out, nil
}
