package aws

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/zopday/provisioner/internal/sim"
)

// metricSource is where the values of a metric come from.
type metricSource struct {
	id     string // of the resource
	metric sim.Metric
	said   bool // somebody has said how it behaves
	since  time.Time
}

// usualMetric is how a metric behaves that nobody has said anything of: base and spread, in the unit given, or as a share of
// what the resource has.
type usualMetric struct {
	name           string
	base, spread   float64
	share          string // of: memory, storage
	peaks, peakMin float64
}

// rdsMetrics are those of DB instances ("Amazon CloudWatch instance-level metrics for Amazon RDS").
var rdsMetrics = []usualMetric{
	{"CPUUtilization", 4, 10, "", 30, 8}, {"FreeableMemory", 0.35, 0.25, "memory", -0.1, 0}, {"FreeStorageSpace", 0.6, 0.3, "storage", 0, 0}, {"DatabaseConnections", 3, 12, "", 20, 4},
	{"ReadIOPS", 2, 20, "", 60, 10}, {"WriteIOPS", 4, 30, "", 80, 10}, {"ReadLatency", 0.0005, 0.001, "", 0.001, 0}, {"WriteLatency", 0.001, 0.001, "", 0.001, 0},
	{"DiskQueueDepth", 0.01, 0.1, "", 0.5, 0}, {"SwapUsage", 0, 1e6, "", 0, 0}, {"NetworkReceiveThroughput", 2000, 20000, "", 1e5, 0}, {"NetworkTransmitThroughput", 4000, 40000, "", 2e5, 0},
}

// cacheMetrics are those of cache nodes ("Metrics for Valkey and Redis OSS", "Host-level metrics").
var cacheMetrics = []usualMetric{
	{"CPUUtilization", 3, 6, "", 15, 4}, {"EngineCPUUtilization", 2, 5, "", 15, 3}, {"DatabaseMemoryUsagePercentage", 12, 30, "", 8, 2}, {"CurrConnections", 6, 20, "", 20, 4},
	{"FreeableMemory", 0.5, 0.3, "memory", -0.05, 0}, {"BytesUsedForCache", 0.1, 0.3, "memory", 0.05, 0}, {"CurrItems", 1000, 50000, "", 5000, 0}, {"CacheHits", 200, 3000, "", 4000, 0},
	{"CacheMisses", 10, 200, "", 300, 0}, {"Evictions", 0, 0, "", 0, 0}, {"ReplicationLag", 0.1, 0.5, "", 0.3, 0}, {"SwapUsage", 0, 1e6, "", 0, 0},
}

func dimension(m *types.Metric, name string) string {
	for _, d := range m.Dimensions {
		if deref(d.Name) == name {
			return deref(d.Value)
		}
	}
	return ""
}

// source finds the resource of a metric, and how the metric behaves.
func (s *metricsService) source(c *reqCtx, m *types.Metric) (metricSource, bool) {
	switch deref(m.Namespace) {
	case "AWS/RDS":
		i := s.cloud.platform.rds.in(c.scope()).Instances[strings.ToLower(dimension(m, "DBInstanceIdentifier"))]
		if i == nil || i.DB.InstanceCreateTime == nil {
			return metricSource{}, false
		}
		memory := float64(dbClasses[deref(i.DB.DBInstanceClass)].MemoryMiB) * (1 << 20)
		return s.behaviour(c, rdsMetrics, deref(m.MetricName), *i.DB.InstanceCreateTime, memory, float64(deref(i.DB.AllocatedStorage))*(1<<30), i.arn(), i.id(), deref(i.DB.DbiResourceId))
	case "AWS/ElastiCache":
		id := strings.ToLower(dimension(m, "CacheClusterId"))
		for _, g := range s.cloud.platform.cache.in(c.scope()).Groups {
			if slices.ContainsFunc(g.Members, func(n CacheMember) bool { return n.ID == id }) && len(g.Group.NodeGroups) > 0 {
				memory := float64(cacheNodes[deref(g.Group.CacheNodeType)]) * (1 << 20)
				return s.behaviour(c, cacheMetrics, deref(m.MetricName), g.Created, memory, 0, id, g.arn(), g.id())
			}
		}
	}
	return metricSource{}, false
}

// behaviour is what was said of a metric of a resource under one of its names, else what is usual.
func (s *metricsService) behaviour(c *reqCtx, usual []usualMetric, name string, since time.Time, memory, storage float64, ids ...string) (metricSource, bool) {
	for _, id := range ids {
		if m, ok := c.w.Metric("aws", id, name); ok {
			return metricSource{id: ids[0], metric: m, said: true, since: since}, true
		}
	}
	i := slices.IndexFunc(usual, func(u usualMetric) bool { return u.name == name })
	if i < 0 {
		return metricSource{}, false
	}
	u, f := usual[i], c.w.Fraction("metric", ids[0], name)
	m := sim.Metric{Base: u.base + u.spread*f}
	m.Peak = m.Base + u.peakMin + (u.peaks-u.peakMin)*f
	scale := map[string]float64{"": 1, "memory": memory, "storage": storage}[u.share]
	m.Base, m.Peak = m.Base*scale, m.Peak*scale
	return metricSource{id: ids[0], metric: m, since: since}, true
}

func (s *metricsService) list(c *reqCtx, in *cloudwatch.ListMetricsInput) (*cloudwatch.ListMetricsOutput, error) {
	all := []types.Metric{}
	add := func(namespace, dim, id string, usual []usualMetric) {
		for _, u := range usual {
			m := types.Metric{Namespace: &namespace, MetricName: &u.name, Dimensions: []types.Dimension{{Name: &dim, Value: &id}}}
			if in.Namespace != nil && *in.Namespace != namespace || in.MetricName != nil && *in.MetricName != u.name ||
				slices.ContainsFunc(in.Dimensions, func(d types.DimensionFilter) bool {
					return deref(d.Name) != dim || d.Value != nil && *d.Value != id
				}) {
				continue
			}
			all = append(all, m)
		}
	}
	dbs := s.cloud.platform.rds.in(c.scope()).Instances
	for _, id := range sortedKeys(dbs) {
		if dbs[id].DB.InstanceCreateTime != nil {
			add("AWS/RDS", "DBInstanceIdentifier", id, rdsMetrics)
		}
	}
	caches := s.cloud.platform.cache.in(c.scope()).Groups
	for _, id := range sortedKeys(caches) {
		for _, n := range caches[id].Members {
			if len(caches[id].Group.NodeGroups) > 0 {
				add("AWS/ElastiCache", "CacheClusterId", n.ID, cacheMetrics)
			}
		}
	}
	page, next, err := pageOf(c, all, in.NextToken, 500)
	if err != nil {
		return nil, refuse("InvalidParameterValue", "The token is invalid.")
	}
	return &cloudwatch.ListMetricsOutput{Metrics: page, NextToken: next}, nil
}
