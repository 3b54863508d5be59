package gcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/redis/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindRedis = "redis:instance"

	// cachePatience is how long a cache may take to come up.
	cachePatience = 45 * time.Minute
)

// The tiers of Memorystore for Redis.
const (
	tierBasic    = "BASIC"
	tierStandard = "STANDARD_HA"
)

// redisServer is Memorystore for Redis.
func redisServer() server {
	return server{
		object: func(p *Provider, r *pipeline.Run, spec job.DatastoreSpec) pipeline.Resource {
			return p.cache(r, p.redisWant(r, spec))
		},
		handle: func(p *Provider, r *pipeline.Run) pipeline.Resource { return p.cache(r, nil) },
		finish: (*Provider).finishCache, guard: (*Provider).guardCache, cleanup: (*Provider).cleanupCache, controls: (*Provider).redisControls,
	}
}

// cacheID is the relative resource name of the job's cache, also of one for Valkey:
// the two services name theirs alike.
func (p *Provider) cacheID(r *pipeline.Run) string {
	return p.clusterParent() + "/instances/" + r.Job.Config.InfraConfig.Datastore.Name
}

func (p *Provider) readCache(ctx context.Context, id string) (*redis.Instance, error) {
	return lookup.Once(ctx, kindRedis+" "+id, func(ctx context.Context) (*redis.Instance, error) {
		return send(ctx, p.data.redis.Projects.Locations.Instances.Get(id))
	})
}

// caches are the instances of the region.
func (p *Provider) caches(ctx context.Context) ([]*redis.Instance, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*redis.Instance, *string, error) {
		out, err := send(ctx, p.data.redis.Projects.Locations.Instances.List(p.clusterParent()).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.Instances, &out.NextPageToken, nil
	})
}

// ownCaches is the kind for a scan.
func (p *Provider) ownCaches() lookup.Kind[*redis.Instance] {
	mark := func(x *redis.Instance) (string, string) { return labelMark(x.Labels) }
	return lookup.Kind[*redis.Instance]{
		Name: kindRedis, Mark: mark, One: p.readCache, ID: func(x *redis.Instance) string { return p.clusterParent() + "/instances/" + base(x.Name) },
		List: func(ctx context.Context, owner string) ([]*redis.Instance, error) {
			all, err := p.caches(ctx)
			return slices.DeleteFunc(all, func(x *redis.Instance) bool {
				who, _ := mark(x)
				return who != owner || x.State == "DELETING"
			}), err
		},
	}
}

// cache is the job's instance. want is nil for a removal.
func (p *Provider) cache(r *pipeline.Run, want *redis.Instance) pipeline.Resource {
	id := p.cacheID(r)
	api := p.data.redis.Projects.Locations.Instances
	return managedObject{
		kind: kindRedis, key: datastoreKey, id: id, name: base(id), args: want, patience: cachePatience, service: serviceRedis,
		read: func(ctx context.Context) (pipeline.Seen, error) {
			got, err := p.readCache(ctx, id)
			if err != nil {
				return pipeline.Seen{}, err
			}
			owner, _ := labelMark(got.Labels)
			s := redisSeen(got)
			s.ID, s.Owner = id, cmp.Or(owner, pipeline.Unmarked)
			if want != nil && r.Mode == pipeline.Verify {
				for _, x := range redisSettings {
					s.Aspects = append(s.Aspects, pipeline.Aspect{Name: x.name, Wanted: x.text(want), Seen: x.text(got)})
				}
			}
			return s, nil
		},
		create: func(ctx context.Context) (string, error) {
			op, err := send(ctx, api.Create(p.clusterParent(), want).InstanceId(base(id)))
			if err != nil {
				return "", err
			}
			return op.Name, nil
		},
		remove: func(ctx context.Context) (string, error) {
			op, err := send(ctx, api.Delete(id))
			if err != nil {
				return "", err
			}
			return op.Name, nil
		},
	}.resource(p, r)
}

// redisSeen is an instance's status ("Instance: State").
func redisSeen(x *redis.Instance) pipeline.Seen {
	s := pipeline.Seen{Reason: or(x.StatusMessage, x.State)}
	switch x.State {
	case "CREATING", "DELETING", "REPAIRING", "STATE_UNSPECIFIED", "":
		s.Status = pipeline.Pending
	}
	return s
}

// redisWant is the instance as the create says it.
func (p *Provider) redisWant(r *pipeline.Run, spec job.DatastoreSpec) *redis.Instance {
	infra := &r.Job.Config.InfraConfig
	d := infra.Datastore
	x := &redis.Instance{
		DisplayName: r.Job.Name, Labels: labelsFor(r.Job, datastoreKey), Tier: tierBasic, MemorySizeGb: int64(d.MemoryGiB),
		RedisVersion: redisVersionName(d.Version), AuthEnabled: true, TransitEncryptionMode: "SERVER_AUTHENTICATION",
		ConnectMode: "PRIVATE_SERVICE_ACCESS", AuthorizedNetwork: rel(infra.NetworkID), ReservedIpRange: d.SubnetGroup,
		PersistenceConfig: &redis.PersistenceConfig{PersistenceMode: "RDB", RdbSnapshotPeriod: "TWENTY_FOUR_HOURS"},
		MaintenancePolicy: &redis.MaintenancePolicy{WeeklyMaintenanceWindow: []*redis.WeeklyMaintenanceWindow{redisWindow(spec.MaintenanceWindow)}},
		ReadReplicasMode:  "READ_REPLICAS_DISABLED",
	}
	if len(infra.Zones) > 0 {
		x.LocationId = infra.Zones[0]
	}
	if n := spec.ReplicaCount(); n > 0 {
		x.Tier, x.ReplicaCount = tierStandard, 1
		if len(infra.Zones) > 1 {
			x.AlternativeLocationId = infra.Zones[1]
		}
		if n > 1 { // then they serve reads too
			x.ReplicaCount, x.ReadReplicasMode, x.AlternativeLocationId = int64(n), "READ_REPLICAS_ENABLED", ""
		}
	}
	return x
}

func redisWindow(text string) *redis.WeeklyMaintenanceWindow {
	day, hour := window(text)
	return &redis.WeeklyMaintenanceWindow{Day: weekday(day), StartTime: &redis.TimeOfDay{Hours: int64(hour), ForceSendFields: []string{"Hours"}}}
}

// weekday is a day, Monday 1 to Sunday 7, in Google's words.
func weekday(day int) string {
	return []string{"MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"}[day-1]
}

// finishCache records what the instance is.
func (p *Provider) finishCache(ctx context.Context, r *pipeline.Run, _ job.DatastoreSpec) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	x, err := p.readCache(ctx, p.cacheID(r))
	if err != nil {
		return err
	}
	learnRedis(&r.Job.Config.InfraConfig.Datastore, x)
	r.Note("Memorystore for Redis has no final snapshot and no deletion protection of its own: what is in it is gone with it")
	return r.Save(ctx)
}

// learnRedis records what an instance is.
func learnRedis(d *job.DatastoreInfo, x *redis.Instance) {
	d.Engine, d.Version = job.Redis, redisVersionText(x.RedisVersion)
	d.Name, d.ID, d.Class = base(x.Name), rel(x.Name), x.Tier
	d.Host, d.Port, d.ReaderHost = x.Host, int(x.Port), x.ReadEndpoint
	d.MemoryGiB, d.Replicas = float64(x.MemorySizeGb), int(x.ReplicaCount)
	d.HighAvailability = x.Tier == tierStandard
	if d.HighAvailability && d.Replicas == 0 {
		d.Replicas = 1
	}
	d.Zones = nil
	for _, n := range x.Nodes {
		d.Zones = append(d.Zones, n.Zone)
	}
	if len(d.Zones) == 0 && x.CurrentLocationId != "" {
		d.Zones = []string{x.CurrentLocationId}
	}
	d.Encrypted, d.TLSRequired = true, x.TransitEncryptionMode == "SERVER_AUTHENTICATION"
	var cas []string
	for _, c := range x.ServerCaCerts {
		cas = append(cas, strings.TrimSpace(c.Cert))
	}
	d.CACert = strings.Join(cas, "\n")
	d.FinalSnapshot, d.DeletionProtection = "", false
}

// redisVersionName is a version as Memorystore writes it.
func redisVersionName(v string) string {
	if !strings.Contains(v, ".") {
		v += ".X"
	}
	return databaseVersion(job.Redis, v)
}

// redisVersionText is REDIS_7_2 as people write it, and REDIS_6_X as 6.
func redisVersionText(v string) string {
	return strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(v, "REDIS_"), "_", "."), ".X")
}

// guardCache: nothing holds an instance of Memorystore for Redis.
func (p *Provider) guardCache(context.Context, *pipeline.Run, job.DatastoreSpec) error { return nil }

// cleanupCache: nothing of an instance of Memorystore for Redis outlives it.
func (p *Provider) cleanupCache(context.Context, *pipeline.Run, job.DatastoreSpec) error { return nil }

// redisVersions are the versions of Memorystore for Redis, the oldest first; the
// service has no list of them ("Supported versions").
var redisVersions = []string{"5.0", "6", "7.0", "7.2"}

// redisVersion settles the version, and asks whether the region has the service.
func (k *datastoreChecker) redisVersion(ctx context.Context) error {
	const check, field = "engine version", "config.spec.version"
	if k.settled() {
		k.ok(check, "Redis %s", k.info.Version)
		return nil
	}
	want := pickVersion(redisVersions, or(k.spec.Version, redisVersions[len(redisVersions)-1]))
	if !slices.Contains(redisVersions, want) {
		k.fails(check, field, fmt.Sprintf("Memorystore does not offer Redis %s; it has %s", want, nearest(redisVersions, want)), "Use one of these, leave it out, or use engine valkey.")
		return nil
	}
	k.info.Version = want
	_, err := send(ctx, k.p.data.redis.Projects.Locations.Get(k.p.clusterParent()))
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		k.fails(check, "region", fmt.Sprintf("Memorystore for Redis is not offered in %s", k.p.region), "Use another region.")
		return nil
	case err != nil:
		return k.unchecked(ctx, check, field, err)
	}
	k.ok(check, "Redis %s", want)
	return nil
}

// redisSize settles the tier and the memory ("Memorystore for Redis tiers").
func (k *datastoreChecker) redisSize() {
	const check = "class"
	if k.spec.InstanceType != "" {
		k.fails(check, "config.spec.instanceType", "Memorystore for Redis has no classes: it is sized in GiB, and replicas decide its tier", "Give size.memoryGiB (1 to 300) and replicas instead.")
		return
	}
	if k.settled() {
		k.ok(check, "%s, %g GiB", k.info.Class, k.info.MemoryGiB)
		return
	}
	n := k.spec.ReplicaCount()
	k.info.Class, k.info.MemoryGiB, k.info.Replicas = tierBasic, float64(k.spec.Size.MemoryGiB), n
	if n > 0 {
		k.info.Class = tierStandard
	}
	switch {
	case k.spec.Size.MemoryGiB > 300:
		k.fails(check, "config.spec.size.memoryGiB", fmt.Sprintf("is %d, and Memorystore for Redis goes up to 300", k.spec.Size.MemoryGiB), "Ask for less.")
	case n > 1 && k.spec.Size.MemoryGiB < 5:
		k.fails(check, "config.spec.replicas", fmt.Sprintf("%d replicas need 5 GiB of memory or more at Memorystore for Redis, and %d are asked for", n, k.spec.Size.MemoryGiB), "Use 1 replica, or 5 GiB.")
	default:
		k.ok(check, "%s, %g GiB, replicas: %d", k.info.Class, k.info.MemoryGiB, n)
	}
}
