package azure

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// cachePatience is how long a cache may take to come up.
const cachePatience = 45 * time.Minute

// A managedRedis is Managed Redis as its API has it (Microsoft.Cache/redisEnterprise,
// 2025-07-01): the cluster, of which a database is a part.
type managedRedis struct {
	Location   string             `json:"location,omitempty"`
	Tags       map[string]*string `json:"tags,omitempty"`
	SKU        redisSKU           `json:"sku"`
	Zones      []string           `json:"zones,omitempty"`
	Properties redisProperties    `json:"properties"`
}

type redisSKU struct {
	Name string `json:"name"`
}

type redisProperties struct {
	HighAvailability string `json:"highAvailability,omitempty"`
	MinimumTLS       string `json:"minimumTlsVersion,omitempty"`
	Public           string `json:"publicNetworkAccess,omitempty"`

	Host      string `json:"hostName,omitempty"`
	State     string `json:"resourceState,omitempty"`
	Mode      string `json:"redundancyMode,omitempty"` // None, LR within a data centre, ZR over zones
	Endpoints []struct {
		ID         string `json:"id"`
		Properties struct {
			State struct {
				Status string `json:"status"`
			} `json:"privateLinkServiceConnectionState"`
			Endpoint struct {
				ID string `json:"id"`
			} `json:"privateEndpoint"`
		} `json:"properties"`
	} `json:"privateEndpointConnections,omitempty"`
}

// A redisDatabase is the one database of a cluster.
type redisDatabase struct {
	Properties struct {
		Protocol   string `json:"clientProtocol,omitempty"`
		Port       int    `json:"port,omitempty"`
		Clustering string `json:"clusteringPolicy,omitempty"`
		Eviction   string `json:"evictionPolicy,omitempty"`
		AccessKeys string `json:"accessKeysAuthentication,omitempty"`
		Defer      string `json:"deferUpgrade,omitempty"`

		Version string `json:"redisVersion,omitempty"`
		State   string `json:"resourceState,omitempty"`
	} `json:"properties"`
}

// A redisAssignment lets a principal of the directory use a database.
type redisAssignment struct {
	Properties struct {
		Policy string `json:"accessPolicyName"`
		User   struct {
			ObjectID string `json:"objectId"`
		} `json:"user"`
	} `json:"properties"`
}

func databaseOf(cluster string) string { return cluster + "/databases/default" }

// standbyWanted is the service's own default, and off only without any replica.
func standbyWanted(spec job.DatastoreSpec) string {
	return enabled(spec.ReplicaCount() > 0)
}

func enabled(on bool) string {
	if on {
		return "Enabled"
	}
	return "Disabled"
}

// cacheCluster is the cluster. With a replica it stands in all zones of the region.
func (p *Provider) cacheCluster(r *pipeline.Run, spec job.DatastoreSpec) pipeline.Resource {
	info := r.Job.Config.InfraConfig.Datastore
	want := managedRedis{
		Location: p.region, Tags: tagsFor(r.Job, "cache"), SKU: redisSKU{info.Class},
		Properties: redisProperties{HighAvailability: standbyWanted(spec), MinimumTLS: "1.2", Public: "Disabled"},
	}
	if zonal(r) && spec.ReplicaCount() > 0 {
		want.Zones = allZones
	}
	x := object[managedRedis]{
		p: p, r: r, kind: kindCache, key: "cache", id: p.cacheID(r),
		body: func() any { return want },
		state: func(x resource[managedRedis]) (pipeline.Status, string) {
			return cacheState(r, x.Properties.ProvisioningState)
		},
		see: func(_ context.Context, x resource[managedRedis]) ([]pipeline.Aspect, error) {
			f := x.is.Properties
			return watched(r,
				pipeline.Aspect{Name: "state", Wanted: "Succeeded", Seen: x.Properties.ProvisioningState},
				pipeline.Aspect{Name: "class", Wanted: info.Class, Seen: x.is.SKU.Name},
				pipeline.Aspect{Name: "high availability", Wanted: want.Properties.HighAvailability, Seen: f.HighAvailability},
				pipeline.Aspect{Name: "least TLS", Wanted: "1.2", Seen: f.MinimumTLS},
				pipeline.Aspect{Name: "public access", Wanted: "Disabled", Seen: f.Public}), nil
		},
	}.resource()
	x.Patience, x.Precious = cachePatience, true
	return x
}

// cacheState is the meaning of a state. One that was up is never replaced.
func cacheState(r *pipeline.Run, state string) (pipeline.Status, string) {
	status := statusOf(state)
	if status == pipeline.Broken && (served(r.Job) || r.Down) {
		status = pipeline.Ready
	}
	return status, state
}

// cacheDatabase is the database: over TLS alone, without access keys unless they are
// asked for.
func (p *Provider) cacheDatabase(r *pipeline.Run, spec job.DatastoreSpec, cluster string) pipeline.Resource {
	var want redisDatabase
	f := &want.Properties
	f.Protocol, f.Port, f.Clustering, f.Eviction, f.AccessKeys, f.Defer = "Encrypted", cachePort, "EnterpriseCluster", "VolatileLRU", enabled(spec.AccessKeys), "NotDeferred"
	x := object[redisDatabase]{
		p: p, r: r, kind: kindCacheDB, key: "database", id: databaseOf(cluster),
		body: func() any { return want },
		owner: func(ctx context.Context, _ resource[redisDatabase]) (string, error) {
			return p.ownerOf(ctx, r, cluster)
		},
		state: func(x resource[redisDatabase]) (pipeline.Status, string) {
			return cacheState(r, x.Properties.ProvisioningState)
		},
		see: func(_ context.Context, x resource[redisDatabase]) ([]pipeline.Aspect, error) {
			is := x.is.Properties
			return watched(r,
				pipeline.Aspect{Name: "protocol", Wanted: f.Protocol, Seen: is.Protocol},
				pipeline.Aspect{Name: "access keys", Wanted: f.AccessKeys, Seen: is.AccessKeys},
				pipeline.Aspect{Name: "eviction", Wanted: f.Eviction, Seen: is.Eviction}), nil
		},
	}.resource()
	x.Patience = cachePatience
	return x
}

// cachePolicy lets one principal use the database.
func (p *Provider) cachePolicy(r *pipeline.Run, cluster, who string) object[redisAssignment] {
	var want redisAssignment
	want.Properties.Policy, want.Properties.User.ObjectID = "default", who
	return object[redisAssignment]{
		p: p, r: r, kind: kindCachePolicy, key: who, id: databaseOf(cluster) + "/accessPolicyAssignments/" + strings.ReplaceAll(who, "-", ""),
		body: func() any { return want },
		owner: func(ctx context.Context, _ resource[redisAssignment]) (string, error) {
			return p.ownerOf(ctx, r, cluster)
		},
		see: func(_ context.Context, x resource[redisAssignment]) ([]pipeline.Aspect, error) {
			return watched(r, pipeline.Aspect{Name: "principal", Wanted: who, Seen: strings.ToLower(x.is.Properties.User.ObjectID)}), nil
		},
	}
}

// endpoint is the cache's address in the network ("What is a private endpoint?").
func (p *Provider) endpoint(r *pipeline.Run, cluster string) object[armnetwork.PrivateEndpoint] {
	subnet := dataSubnet(r.Job)
	return object[armnetwork.PrivateEndpoint]{
		p: p, r: r, kind: kindEndpoint, key: "endpoint", id: p.idIn(r, typeEndpoint, r.Job.ResourceName("endpoint", longestName)), onlyIfNew: true,
		body: func() any {
			return armnetwork.PrivateEndpoint{
				Location: &p.region, Tags: tagsFor(r.Job, "endpoint"),
				Properties: &armnetwork.PrivateEndpointProperties{
					Subnet: &armnetwork.Subnet{ID: &subnet},
					PrivateLinkServiceConnections: []*armnetwork.PrivateLinkServiceConnection{{
						Name: new("cache"), Properties: &armnetwork.PrivateLinkServiceConnectionProperties{PrivateLinkServiceID: &cluster, GroupIDs: []*string{new("redisEnterprise")}},
					}},
				},
			}
		},
		see: func(_ context.Context, x resource[armnetwork.PrivateEndpoint]) ([]pipeline.Aspect, error) {
			f := value(x.is.Properties)
			state := "none"
			for _, c := range f.PrivateLinkServiceConnections {
				state = value(value(value(c.Properties).PrivateLinkServiceConnectionState).Status)
			}
			return watched(r,
				pipeline.Aspect{Name: "subnet", Wanted: strings.ToLower(subnet), Seen: strings.ToLower(value(value(f.Subnet).ID))},
				pipeline.Aspect{Name: "connection", Wanted: "Approved", Seen: state}), nil
		},
	}
}

// zoneGroup keeps the cache's name in the private zone ("Azure Private Endpoint DNS
// configuration").
func (p *Provider) zoneGroup(r *pipeline.Run, endpoint, zone string) object[armnetwork.PrivateDNSZoneGroup] {
	return object[armnetwork.PrivateDNSZoneGroup]{
		p: p, r: r, kind: kindZoneGroup, key: "endpoint", id: endpoint + "/privateDnsZoneGroups/default",
		body: func() any {
			return armnetwork.PrivateDNSZoneGroup{Properties: &armnetwork.PrivateDNSZoneGroupPropertiesFormat{PrivateDNSZoneConfigs: []*armnetwork.PrivateDNSZoneConfig{{
				Name: new("redis"), Properties: &armnetwork.PrivateDNSZonePropertiesFormat{PrivateDNSZoneID: &zone},
			}}}}
		},
		owner: func(ctx context.Context, _ resource[armnetwork.PrivateDNSZoneGroup]) (string, error) {
			return p.ownerOf(ctx, r, endpoint)
		},
	}
}

// ensureCache makes the cluster with its database, lets the named principals in, and
// puts its address into the network.
func (p *Provider) ensureCache(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error {
	info := &r.Job.Config.InfraConfig.Datastore
	if rec, known := r.Object(kindCache, "cache"); r.Mode == pipeline.Apply && !(known && rec.State == job.ObjectCreated) {
		info.Host = "" // of one that is gone
	}
	id, err := p.ensureNamed(ctx, r, func() pipeline.Resource { return p.cacheCluster(r, spec) })
	if err != nil {
		return err
	}
	if r.Mode == pipeline.Plan {
		id = p.cacheID(r)
	}
	if _, err := r.Ensure(ctx, p.cacheDatabase(r, spec, id)); err != nil {
		return err
	}
	if !served(r.Job) || r.Mode != pipeline.Apply { // afterwards whom else somebody let in or shut out is theirs to say
		for _, who := range spec.Principals {
			if _, err := r.Ensure(ctx, p.cachePolicy(r, id, strings.ToLower(who)).resource()); err != nil {
				return err
			}
		}
	}
	at := p.endpoint(r, id)
	if _, err := r.Ensure(ctx, at.resource()); err != nil {
		return err
	}
	if _, err := r.Ensure(ctx, p.zoneGroup(r, at.id, info.PrivateZoneID).resource()); err != nil {
		return err
	}
	if err := p.protect(ctx, r, spec, id); err != nil || r.Mode != pipeline.Apply {
		return err
	}
	return p.learnCache(ctx, r, spec, id)
}

func (p *Provider) learnCache(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec, id string) error {
	const learned = "the cache is known"
	if served(r.Job) && r.Recall(learned) != nil {
		return nil
	}
	x, err := read[managedRedis](ctx, p, id)
	if err != nil {
		return pipeline.Unseen(err, "the cache")
	}
	db, err := read[redisDatabase](ctx, p, databaseOf(id))
	if err != nil {
		return pipeline.Unseen(err, "the cache's database")
	}
	if x.is.Properties.Host == "" {
		return pipeline.Wait(settling, "cache %s to have a name", x.Name)
	}
	info := &r.Job.Config.InfraConfig.Datastore
	is := cacheInfo(x, db)
	info.Engine, info.Name, info.ID, info.Version, info.Class, info.Port = is.Engine, is.Name, is.ID, is.Version, is.Class, is.Port
	info.Encrypted, info.TLSRequired, info.Public, info.HighAvailability, info.Replicas, info.Zones = is.Encrypted, is.TLSRequired, is.Public, is.HighAvailability, is.Replicas, is.Zones
	info.MemoryGiB, info.Host = cmp.Or(is.MemoryGiB, info.MemoryGiB), is.Host
	if spec.AccessKeys {
		info.AdminUser = "default"
	}
	r.Remember(learned, true)
	return r.Save(ctx)
}

// cacheInfo is what a cluster and its database say of themselves.
func cacheInfo(x resource[managedRedis], db resource[redisDatabase]) job.DatastoreInfo {
	f, d := x.is.Properties, db.is.Properties
	info := job.DatastoreInfo{
		Engine: job.Redis, Name: x.Name, ID: x.ID, Version: d.Version, Class: x.is.SKU.Name, Zones: x.Zones, MemoryGiB: memoryOf(x.is.SKU.Name),
		Encrypted: true, // disks always are ("Configure disk encryption for Azure Managed Redis")
		Public:    f.Public != "Disabled", TLSRequired: d.Protocol == "Encrypted", HighAvailability: f.HighAvailability == "Enabled",
	}
	if info.HighAvailability {
		info.Replicas = 1
	}
	info.Host, info.Port = hostPort(f.Host, cmp.Or(d.Port, cachePort))
	return info
}

// removeCache lifts the lock and takes everything away, what is in the network first.
func (p *Provider) removeCache(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error {
	id := p.cacheID(r)
	if err := p.unprotect(ctx, r, id); err != nil {
		return err
	}
	at := p.endpoint(r, id)
	if err := r.Remove(ctx, p.zoneGroup(r, at.id, r.Job.Config.InfraConfig.Datastore.PrivateZoneID).resource()); err != nil {
		return err
	}
	if err := r.Remove(ctx, at.resource()); err != nil {
		return err
	}
	if err := r.Remove(ctx, p.cacheDatabase(r, spec, id)); err != nil {
		return err
	}
	for _, who := range spec.Principals {
		if err := r.Forget(ctx, kindCachePolicy, strings.ToLower(who), "went with its database"); err != nil {
			return err
		}
	}
	return r.Remove(ctx, p.cacheCluster(r, spec))
}

// The sizes of Managed Redis' balanced tier with their GiB ("Azure Managed Redis
// overview": tiers and SKUs). The service has no call that lists what a region has
// before there is a cluster.
var balanced = []struct {
	name string
	gib  float64
}{
	{"Balanced_B0", 0.5}, {"Balanced_B1", 1}, {"Balanced_B3", 3}, {"Balanced_B5", 6}, {"Balanced_B10", 12}, {"Balanced_B20", 24}, {"Balanced_B50", 60},
	{"Balanced_B100", 120}, {"Balanced_B150", 180}, {"Balanced_B250", 240}, {"Balanced_B350", 360}, {"Balanced_B500", 480}, {"Balanced_B700", 720}, {"Balanced_B1000", 960},
}

// memoryOf is the memory of a SKU; 0 if it is none of the balanced tier.
func memoryOf(sku string) float64 {
	for _, b := range balanced {
		if same(b.name, sku) {
			return b.gib
		}
	}
	return 0
}

// cacheSKU is the smallest of the balanced tier that has the memory.
func cacheSKU(gib int) (string, bool) {
	for _, b := range balanced {
		if b.gib >= float64(gib) {
			return b.name, true
		}
	}
	return "", false
}

func cacheSizes() string {
	var words []string
	for _, b := range balanced {
		words = append(words, fmt.Sprintf("%s (%g GiB)", b.name, b.gib))
	}
	return strings.Join(words, ", ")
}
