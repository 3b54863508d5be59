package gcp

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/api/redis/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A redisSetting is a property of an instance: one table for the report, the drift
// and the risks of one that is adopted.
type redisSetting struct {
	id, name, source string
	asked            bool // the spec decides
	text             func(*redis.Instance) string
}

var redisSettings = []redisSetting{
	{id: "MS-01", name: "AUTH", source: "CKV_GCP_95", text: func(x *redis.Instance) string { return onOff(x.AuthEnabled) }},
	{id: "MS-02", name: "TLS", source: "CKV_GCP_97", text: func(x *redis.Instance) string { return or(x.TransitEncryptionMode, "DISABLED") }},
	{id: "MS-05", name: "reached by", source: "Memorystore: networking", text: func(x *redis.Instance) string { return or(x.ConnectMode, "DIRECT_PEERING") }},
	{id: "MS-07", name: "network is neither the default one nor a legacy one", source: "GCP-0010, CKV2_GCP_2, CIS GCP 3.1", text: func(x *redis.Instance) string {
		return yesNo(base(x.AuthorizedNetwork) != "default" && x.AuthorizedNetwork != "")
	}},
	{id: "MS-08", name: "replica in another zone", source: "ElastiCache.3 in spirit", asked: true, text: func(x *redis.Instance) string { return or(x.Tier, tierBasic) }},
	{id: "MS-10", name: "persistence", source: "ElastiCache.1 in spirit", text: func(x *redis.Instance) string {
		if x.PersistenceConfig == nil {
			return "DISABLED"
		}
		return or(x.PersistenceConfig.PersistenceMode, "DISABLED")
	}},
	{id: "MS-11", name: "maintenance window", source: "Memorystore: maintenance policy", text: func(x *redis.Instance) string {
		if x.MaintenancePolicy == nil || len(x.MaintenancePolicy.WeeklyMaintenanceWindow) == 0 {
			return "none"
		}
		w := x.MaintenancePolicy.WeeklyMaintenanceWindow[0]
		hour := int64(0)
		if w.StartTime != nil {
			hour = w.StartTime.Hours
		}
		return fmt.Sprintf("%s at %d:00 UTC", w.Day, hour)
	}},
	{id: "MS-13", name: "engine version", source: "ElastiCache.2 in spirit", text: func(x *redis.Instance) string { return x.RedisVersion }},
	{name: "memory", text: func(x *redis.Instance) string { return strconv.FormatInt(x.MemorySizeGb, 10) + " GiB" }},
	{name: "replicas", text: func(x *redis.Instance) string { return strconv.FormatInt(x.ReplicaCount, 10) }},
}

// redisControls is the report on an instance.
func (p *Provider) redisControls(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) ([]job.Control, error) {
	x, err := p.readCache(ctx, p.cacheID(r))
	unable := pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.NotFound)
	if err != nil && !unable {
		return nil, fmt.Errorf("read back the cache: %w", err)
	}
	c := controls{p: p, r: r, infra: &r.Job.Config.InfraConfig}
	want := p.redisWant(r, spec)
	for _, s := range redisSettings {
		switch {
		case s.id == "" || s.asked && !spec.HA():
		case unable:
			c.rows = append(c.rows, unread(s.id, s.name, err))
		case s.id == "MS-11":
			c.add(s.id, s.name, "a weekly window", s.text(x), s.text(x) != "none", s.source)
		default:
			c.same(s.id, s.name, s.text(want), s.text(x), s.source)
		}
	}
	return c.rows, nil
}
