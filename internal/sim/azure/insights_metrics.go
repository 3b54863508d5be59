package azure

import (
	"net/http"
	"strings"
	"time"
)

// A metricOf is a metric of a type of resources. Base and spread are what it is where nobody has said otherwise.
type metricOf struct {
	name, unit   string
	base, spread float64
}

// metricsOf are the metrics of the types that are simulated ("Supported metrics with Azure Monitor").
var metricsOf = map[string][]metricOf{
	key(postgresType): {{"cpu_percent", "Percent", 12, 30}, {"memory_percent", "Percent", 35, 30}, {"active_connections", "Count", 8, 40}, {"storage_percent", "Percent", 10, 40},
		{"storage_used", "Bytes", 4e9, 2e10}, {"iops", "Count", 40, 200}, {"network_bytes_egress", "Bytes", 1e6, 1e7}, {"is_db_alive", "Count", 1, 0}},
	key(mysqlType): {{"cpu_percent", "Percent", 12, 30}, {"memory_percent", "Percent", 35, 30}, {"active_connections", "Count", 8, 40}, {"storage_percent", "Percent", 10, 40},
		{"storage_used", "Bytes", 4e9, 2e10}, {"io_consumption_percent", "Percent", 5, 20}, {"network_bytes_egress", "Bytes", 1e6, 1e7}},
	key(managedRedisType): {{"percentProcessorTime", "Percent", 6, 20}, {"usedmemorypercentage", "Percent", 20, 40}, {"usedmemory", "Bytes", 1e8, 4e8}, {"connectedclients", "Count", 10, 40},
		{"operationsPerSecond", "Count", 200, 900}, {"cacheRead", "BytesPerSecond", 1e5, 1e6}},
	key(oldCacheType): {{"percentProcessorTime", "Percent", 6, 20}, {"usedmemorypercentage", "Percent", 20, 40}, {"usedmemory", "Bytes", 1e8, 4e8}, {"connectedclients", "Count", 10, 40},
		{"serverLoad", "Percent", 8, 20}},
}

// metricGrains are the intervals that can be asked for.
var metricGrains = map[string]time.Duration{"PT1M": time.Minute, "PT5M": 5 * time.Minute, "PT15M": 15 * time.Minute, "PT30M": 30 * time.Minute, "PT1H": time.Hour, "PT6H": 6 * time.Hour, "PT12H": 12 * time.Hour, "P1D": 24 * time.Hour}

// addMetrics answers what metrics datastores and caches have; lb_insights answers the metrics.
func (c *Cloud) addMetrics() {
	c.handle(route{method: "GET", pattern: "/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}/{type}/{name}/providers/Microsoft.Insights/metricDefinitions", service: "insights",
		operation: "MetricDefinitions_List", versions: metricVersions, serve: c.listMetricDefinitions})
}

// metricScope is the resource whose metrics are asked for.
func (c *Cloud) metricScope(r *request) (*Resource, []metricOf, error) {
	at := strings.LastIndex(strings.ToLower(r.path), "/providers/microsoft.insights/")
	id, _ := parseID(r.path[:at])
	res := c.find(r.path[:at])
	if res == nil {
		return nil, nil, notFoundARM(id)
	}
	r.Touch(res.ID)
	r.Region = res.Location
	all := metricsOf[key(res.Type)]
	if all == nil {
		return nil, nil, refuse(http.StatusBadRequest, "BadRequest", "Resource type: %s is not supported for metrics.", strings.ToLower(res.Type))
	}
	return res, all, nil
}

// listMetrics samples metrics ("Metrics - List"). There are no values of before the resource was made, nor of more than 93 days ago.
func (c *Cloud) listMetrics(r *request) (answer, error) {
	res, all, err := c.metricScope(r)
	if err != nil {
		return answer{}, err
	}
	grain, ok := metricGrains[r.query.Get("interval")]
	if interval := r.query.Get("interval"); interval == "" {
		grain = time.Minute
	} else if !ok {
		return answer{}, refuse(http.StatusBadRequest, "BadRequest", "Detected invalid time grain input value: '%s'. Supported time grains are: 00:01:00,00:05:00,00:15:00,00:30:00,01:00:00,06:00:00,12:00:00,1.00:00:00", interval)
	}
	now := c.World.Now()
	from, to := now.Add(-time.Hour), now
	if span := r.query.Get("timespan"); span != "" {
		first, last, _ := strings.Cut(span, "/")
		t1, err1 := time.Parse(time.RFC3339, first)
		t2, err2 := time.Parse(time.RFC3339, last)
		if err1 != nil || err2 != nil || !t1.Before(t2) {
			return answer{}, refuse(http.StatusBadRequest, "BadRequest", "Invalid time interval input: %s. The format is start/end in ISO 8601, with the start before the end.", span)
		}
		from, to = t1, t2
	}
	if to.Sub(from) > 93*24*time.Hour {
		return answer{}, refuse(http.StatusBadRequest, "BadRequest", "Query timespan exceeds the retention of 93 days.")
	}
	wanted := strings.Split(r.query.Get("metricnames"), ",")
	if r.query.Get("metricnames") == "" {
		wanted = []string{all[0].name}
	}
	values := []any{}
	for _, name := range wanted {
		m, ok := findMetric(all, name)
		if !ok {
			return answer{}, refuse(http.StatusBadRequest, "BadRequest", "Failed to find metric configuration for provider: %s, resource Type: %s, metric: %s, Valid metrics: %s", res.Type[:strings.Index(res.Type, "/")], lastOf(res.Type), strings.TrimSpace(name), metricNames(all))
		}
		values = append(values, map[string]any{"id": res.ID + "/providers/Microsoft.Insights/metrics/" + m.name, "type": "Microsoft.Insights/metrics", "name": map[string]any{"value": m.name, "localizedValue": m.name},
			"displayDescription": m.name, "unit": m.unit, "errorCode": "Success", "timeseries": []any{map[string]any{"metadatavalues": []any{}, "data": c.samples(res, m, from, to, grain, r.query.Get("aggregation"))}}})
	}
	return plain(map[string]any{"cost": 0, "timespan": from.UTC().Format(time.RFC3339) + "/" + to.UTC().Format(time.RFC3339), "interval": r.query.Get("interval"), "namespace": res.Type, "resourceregion": res.Location, "value": values}), nil
}

func findMetric(all []metricOf, name string) (metricOf, bool) {
	for _, m := range all {
		if strings.EqualFold(m.name, strings.TrimSpace(name)) {
			return m, true
		}
	}
	return metricOf{}, false
}

func metricNames(all []metricOf) string {
	var names []string
	for _, m := range all {
		names = append(names, m.name)
	}
	return strings.Join(names, ",")
}

// samples are the values of a metric, one an interval: what was said of it, or a modest load that depends on the resource.
func (c *Cloud) samples(res *Resource, m metricOf, from, to time.Time, grain time.Duration, aggregations string) []any {
	said, ok := c.World.Metric("azure", res.ID, m.name)
	if !ok {
		said.Base = m.base + m.spread*0.5*c.World.Fraction("metric", res.ID, m.name)
		said.Peak = said.Base + m.spread*0.5
	}
	if aggregations == "" {
		aggregations = "Average"
	}
	out := []any{}
	for at := from.Truncate(grain); at.Before(to); at = at.Add(grain) {
		point := map[string]any{"timeStamp": at.UTC().Format(time.RFC3339)}
		if !ok && at.Before(res.Created.Truncate(grain)) || at.After(c.World.Now()) {
			out = append(out, point)
			continue
		}
		sum, low, high, n := 0.0, 0.0, 0.0, 0
		for t := at; t.Before(at.Add(grain)) && n < 60; t = t.Add(max(time.Minute, grain/60)) {
			v := said.At(t)
			if n == 0 || v < low {
				low = v
			}
			high, sum, n = max(high, v), sum+v, n+1
		}
		for a := range strings.SplitSeq(strings.ToLower(aggregations), ",") {
			switch strings.TrimSpace(a) {
			case "average":
				point["average"] = sum / float64(n)
			case "maximum":
				point["maximum"] = high
			case "minimum":
				point["minimum"] = low
			case "total":
				point["total"] = sum
			case "count":
				point["count"] = float64(n)
			}
		}
		out = append(out, point)
	}
	return out
}

func (c *Cloud) listMetricDefinitions(r *request) (answer, error) {
	res, all, err := c.metricScope(r)
	if err != nil {
		return answer{}, err
	}
	values := []any{}
	for _, m := range all {
		grains := []any{}
		for _, g := range []string{"PT1M", "PT5M", "PT15M", "PT30M", "PT1H", "PT6H", "PT12H", "P1D"} {
			grains = append(grains, map[string]any{"timeGrain": g, "retention": "P93D"})
		}
		values = append(values, map[string]any{"id": res.ID + "/providers/microsoft.insights/metricdefinitions/" + m.name, "resourceId": res.ID, "namespace": res.Type, "unit": m.unit, "primaryAggregationType": "Average",
			"supportedAggregationTypes": []any{"Average", "Minimum", "Maximum", "Total", "Count"}, "metricAvailabilities": grains, "name": map[string]any{"value": m.name, "localizedValue": m.name}})
	}
	return plain(map[string]any{"value": values}), nil
}
