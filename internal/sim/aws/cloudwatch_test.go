package aws

import (
	"math"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/zopday/provisioner/internal/sim"
)

func metricQuery(id, name, stat string, period int32) types.MetricDataQuery {
	return types.MetricDataQuery{Id: &id, MetricStat: &types.MetricStat{Period: &period, Stat: &stat, Metric: &types.Metric{Namespace: awssdk.String("AWS/RDS"), MetricName: &name,
		Dimensions: []types.Dimension{{Name: awssdk.String("DBInstanceIdentifier"), Value: awssdk.String("shop")}}}}}
}

func TestMetrics(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	k.made(t, dbInput("shop"))
	c := cloudwatch.NewFromConfig(k.cfg)
	k.w.SetMetric(sim.Metric{Cloud: "aws", Resource: "shop", Name: "CPUUtilization", Base: 10, Peak: 90, Share: 0.5})
	k.w.Step(24 * time.Hour)
	now := k.w.Clock.Now()
	in := &cloudwatch.GetMetricDataInput{StartTime: awssdk.Time(now.AddDate(0, 0, -14)), EndTime: awssdk.Time(now), MetricDataQueries: []types.MetricDataQuery{
		metricQuery("cpu", "CPUUtilization", "Average", 3600), metricQuery("p95", "CPUUtilization", "p95", 3600), metricQuery("most", "CPUUtilization", "Maximum", 86400),
		metricQuery("free", "FreeStorageSpace", "Average", 3600), metricQuery("none", "NoSuchMetric", "Average", 3600)}}
	got := map[string]types.MetricDataResult{}
	for _, r := range must(c.GetMetricData(k.ctx(), in))(t).MetricDataResults {
		got[*r.Id] = r
	}
	if n := len(got["cpu"].Values); n < 335 || n > 337 {
		t.Errorf("%d values of a metric that was said, want one an hour for 14 days", n)
	}
	sum := 0.0
	for _, v := range got["cpu"].Values {
		sum += v
	}
	if avg := sum / float64(len(got["cpu"].Values)); math.Abs(avg-50) > 5 {
		t.Errorf("average %.1f, want about 50: half of each day at 90", avg)
	}
	if m := got["most"].Values; len(m) < 14 || m[0] < 88 {
		t.Errorf("maxima %v", m)
	}
	if ts := got["cpu"].Timestamps; !ts[0].After(ts[1]) {
		t.Error("the newest value does not come first")
	}
	free := got["free"]
	if n := len(free.Values); n < 24 || n > 26 { // the hours in which it was made and asked for are partial ones
		t.Errorf("%d values of a metric of an instance that is a day old", n)
	}
	if v := free.Values[0]; v < 0.5*20*(1<<30) || v > 20*(1<<30) {
		t.Errorf("free storage %.0f of 20 GiB", v)
	}
	if r := got["none"]; len(r.Values) != 0 || r.StatusCode != types.StatusCodeComplete {
		t.Errorf("a metric that there is none of: %+v", r)
	}
}

func TestMetricsRefusalsAndList(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	k.made(t, dbInput("shop"))
	c := cloudwatch.NewFromConfig(k.cfg)
	now := k.w.Clock.Now()
	for what, q := range map[string]types.MetricDataQuery{
		"period": metricQuery("a", "CPUUtilization", "Average", 61), "stat": metricQuery("a", "CPUUtilization", "Mean", 60), "id": metricQuery("A", "CPUUtilization", "Average", 60),
	} {
		_, err := c.GetMetricData(k.ctx(), &cloudwatch.GetMetricDataInput{StartTime: awssdk.Time(now.Add(-time.Hour)), EndTime: &now, MetricDataQueries: []types.MetricDataQuery{q}})
		if err == nil {
			t.Errorf("%s was not refused", what)
			continue
		}
		wantCode(t, err, "ValidationError")
	}
	_, err := c.GetMetricData(k.ctx(), &cloudwatch.GetMetricDataInput{StartTime: &now, EndTime: awssdk.Time(now.Add(-time.Hour)), MetricDataQueries: []types.MetricDataQuery{metricQuery("a", "CPUUtilization", "Average", 60)}})
	wantCode(t, err, "ValidationError")
	list := must(c.ListMetrics(k.ctx(), &cloudwatch.ListMetricsInput{Namespace: awssdk.String("AWS/RDS"), MetricName: awssdk.String("CPUUtilization")}))(t).Metrics
	if len(list) != 1 || *list[0].Dimensions[0].Value != "shop" {
		t.Errorf("metrics %+v", list)
	}
	stats := must(c.GetMetricStatistics(k.ctx(), &cloudwatch.GetMetricStatisticsInput{Namespace: awssdk.String("AWS/RDS"), MetricName: awssdk.String("DatabaseConnections"), StartTime: awssdk.Time(now.Add(-time.Hour)),
		EndTime: &now, Period: awssdk.Int32(300), Statistics: []types.Statistic{types.StatisticMaximum}, Dimensions: []types.Dimension{{Name: awssdk.String("DBInstanceIdentifier"), Value: awssdk.String("shop")}}}))(t)
	if len(stats.Datapoints) == 0 || *stats.Datapoints[0].Maximum <= 0 || stats.Datapoints[0].Average != nil {
		t.Errorf("statistics %+v", stats.Datapoints)
	}
}

func TestMetricsThrottle(t *testing.T) {
	k := newStock(t, immediate)
	if _, err := k.w.AddFault(sim.Fault{Service: "monitoring", Kind: sim.FaultThrottle}); err != nil {
		t.Fatal(err)
	}
	_, err := cloudwatch.NewFromConfig(k.cfg).ListMetrics(k.ctx(), &cloudwatch.ListMetricsInput{})
	wantCode(t, err, "Throttling")
}
