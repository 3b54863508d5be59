package azure

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/monitor/armmonitor"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// metricDays is how far a recommendation looks back, and enoughSamples how many
// hourly samples it takes to say more than that they are too few: three days.
const (
	metricDays    = 14
	enoughSamples = 72
)

// What is taken for too much and for very little of a class.
const (
	busyCPU, busyMemory = 80.0, 85.0
	idleCPU, idleMemory = 25.0, 40.0
	busyStorage         = 85.0
)

// The metrics of each product ("Supported metrics for Microsoft.DBforPostgreSQL/
// flexibleServers" and its neighbours).
func metricNames(id string) map[string]string {
	if strings.Contains(strings.ToLower(id), "/providers/microsoft.cache/") {
		return map[string]string{"cpu": "percentProcessorTime", "memory": "usedmemorypercentage", "connections": "connectedclients"}
	}
	return map[string]string{"cpu": "cpu_percent", "memory": "memory_percent", "connections": "active_connections", "storage": "storage_percent"}
}

// today is the cloud's day, as far as this machine knows it.
func (p *Provider) today() string { return time.Now().UTC().Format("2006-01-02") }

// Recommend reads the metrics of the last two weeks and says which size would do.
// It only reads, and a metric that is not there is no error.
func (p *Provider) Recommend(ctx context.Context, r *pipeline.Run) ([]job.Recommendation, error) {
	ctx = view(ctx, r)
	info := r.Job.Config.InfraConfig.Datastore
	if info.ID == "" {
		return nil, nil
	}
	names := metricNames(info.ID)
	var all []job.MetricSummary
	for _, name := range []string{"cpu", "memory", "connections", "storage"} {
		if names[name] == "" {
			continue
		}
		s, err := p.metric(ctx, info.ID, name, names[name])
		if err != nil {
			if stops(ctx, err) {
				return nil, err
			}
			r.Note("metric %s was not read: %v", name, err)
			continue
		}
		all = append(all, s)
	}
	out := []job.Recommendation{p.classAdvice(ctx, info, all)}
	if !info.Engine.Cache() {
		out = append(out, storageAdvice(info, all))
	}
	return out, nil
}

// metric sums one metric up ("Metrics - List").
func (p *Provider) metric(ctx context.Context, id, name, theirs string) (job.MetricSummary, error) {
	unit := map[string]string{"connections": "count"}[name]
	if unit == "" {
		unit = "percent"
	}
	s := job.MetricSummary{Name: name, Unit: unit, Days: metricDays}
	end := time.Now().UTC().Truncate(time.Hour)
	q := url.Values{
		"metricnames": {theirs}, "interval": {"PT1H"}, "aggregation": {"Average,Maximum"},
		"timespan": {end.AddDate(0, 0, -metricDays).Format(time.RFC3339) + "/" + end.Format(time.RFC3339)},
	}
	var answer armmonitor.Response
	if err := p.get(ctx, id+"/providers/Microsoft.Insights/metrics?"+q.Encode(), &answer); err != nil {
		return s, err
	}
	var averages []float64
	for _, m := range answer.Value {
		for _, series := range value(m).Timeseries {
			for _, v := range value(series).Data {
				if v == nil || v.Average == nil {
					continue // an hour without a sample
				}
				averages = append(averages, *v.Average)
				s.Average += *v.Average
				s.Max = max(s.Max, *v.Average, value(v.Maximum))
			}
		}
	}
	if s.Samples = len(averages); s.Samples == 0 {
		return s, nil
	}
	s.Average /= float64(s.Samples)
	slices.Sort(averages)
	s.P95 = averages[(len(averages)*95+99)/100-1]
	return s, nil
}

func summary(all []job.MetricSummary, name string) (job.MetricSummary, bool) {
	i := slices.IndexFunc(all, func(s job.MetricSummary) bool { return s.Name == name && s.Samples > 0 })
	if i < 0 {
		return job.MetricSummary{}, false
	}
	return all[i], true
}

// numbers are metrics in words.
func numbers(all []job.MetricSummary) string {
	var words []string
	for _, s := range all {
		if s.Samples > 0 {
			words = append(words, fmt.Sprintf("%s %.0f on average, %.0f at the 95th percentile, %.0f at most (%s)", s.Name, s.Average, s.P95, s.Max, s.Unit))
		}
	}
	return strings.Join(words, "; ")
}

// fewDays says that the data covers too little to go by.
func fewDays(samples int) string {
	return fmt.Sprintf("the metrics cover %.1f days of %d, which is too little to go by", float64(samples)/24, metricDays)
}

// classAdvice says whether the class fits.
func (p *Provider) classAdvice(ctx context.Context, info job.DatastoreInfo, all []job.MetricSummary) job.Recommendation {
	out := job.Recommendation{What: "class", Advice: "keep", From: info.Class, To: info.Class, Metrics: all}
	cpu, hasCPU := summary(all, "cpu")
	memory, hasMemory := summary(all, "memory")
	if few := min(cpu.Samples, memory.Samples); !hasCPU || !hasMemory || few < enoughSamples {
		out.Reason = fewDays(few)
		return out
	}
	said := fmt.Sprintf("over %d days %s", metricDays, numbers(all))
	step := 0
	switch {
	case cpu.P95 > busyCPU || memory.P95 > busyMemory:
		step = 1
	case cpu.P95 < idleCPU && memory.P95 < idleMemory:
		step = -1
	}
	if step == 0 {
		out.Reason = said + ": it fits"
		return out
	}
	to := p.neighbour(ctx, info, step)
	word := map[int]string{1: "larger", -1: "smaller"}[step]
	if to == "" {
		out.Reason = fmt.Sprintf("%s: a %s one would fit better, and none is offered", said, word)
		return out
	}
	out.Advice, out.To, out.Reason = word, to, said+": a "+word+" one would do"
	out.Command = resizing(info, to)
	return out
}

// neighbour is the next class up or down of what the region offers.
func (p *Provider) neighbour(ctx context.Context, info job.DatastoreInfo, step int) string {
	var names []string
	switch {
	case strings.Contains(strings.ToLower(info.ID), "/providers/"+strings.ToLower(typeOldCache)+"/"):
		return "" // its successor is another product
	case info.Engine.Cache():
		for _, b := range balanced {
			names = append(names, b.name)
		}
	default:
		o, err := p.offers(ctx, flavourOf(info.Engine))
		if err != nil {
			return ""
		}
		now, ok := o.class(info.Class)
		if !ok {
			return ""
		}
		for _, c := range o.classes { // of the same series, by its size
			if c.tier == now.tier && familyOf(c.name) == familyOf(now.name) && (!info.HighAvailability || c.standby) {
				names = append(names, c.name)
			}
		}
	}
	i := slices.IndexFunc(names, func(n string) bool { return same(n, info.Class) })
	if i < 0 || i+step < 0 || i+step >= len(names) {
		return ""
	}
	return names[i+step]
}

// resizing is the cloud's own command for another class.
func resizing(info job.DatastoreInfo, to string) string {
	group := segment(info.ID, "resourceGroups")
	if info.Engine.Cache() {
		return fmt.Sprintf("az redisenterprise update --resource-group %s --cluster-name %s --sku %s", group, info.Name, to)
	}
	f := flavourOf(info.Engine)
	return fmt.Sprintf("az %s flexible-server update --resource-group %s --name %s --tier %s --sku-name %s", f.az, group, info.Name, f.tierOfClass(to), to)
}

// storageAdvice says whether the disk will do. It never shrinks.
func storageAdvice(info job.DatastoreInfo, all []job.MetricSummary) job.Recommendation {
	size := fmt.Sprintf("%d GiB", info.StorageGiB)
	out := job.Recommendation{What: "storage", Advice: "keep", From: size, To: size}
	used, ok := summary(all, "storage")
	switch {
	case !ok || used.Samples < enoughSamples:
		out.Reason = fewDays(used.Samples)
	case used.Max > busyStorage:
		to := 2 * info.StorageGiB
		out.Advice, out.To = "larger", fmt.Sprintf("%d GiB", to)
		out.Reason = fmt.Sprintf("up to %.0f percent of %s were in use over %d days", used.Max, size, metricDays)
		out.Command = fmt.Sprintf("az %s flexible-server update --resource-group %s --name %s --storage-size %d", flavourOf(info.Engine).az, segment(info.ID, "resourceGroups"), info.Name, to)
	default:
		out.Reason = fmt.Sprintf("at most %.0f percent of %s were in use over %d days, and a disk never shrinks", used.Max, size, metricDays)
	}
	return out
}
