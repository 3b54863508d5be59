package aws

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"
)

// cacheVersion is a version of an engine that ElastiCache offers.
type cacheVersion struct {
	Engine, Version, Full, Family string // version as it is asked for, full as a node shows it
}

// cacheVersions are oldest first ("Supported engines and versions", Amazon ElastiCache user guide). Redis OSS 4 and 5 ended on
// 31 January 2026.
var cacheVersions = []cacheVersion{
	{"redis", "6.0", "6.0.5", "redis6.x"}, {"redis", "6.2", "6.2.6", "redis6.x"}, {"redis", "7.0", "7.0.7", "redis7"}, {"redis", "7.1", "7.1.0", "redis7"},
	{"valkey", "7.2", "7.2.6", "valkey7"}, {"valkey", "8.0", "8.0.1", "valkey8"}, {"valkey", "8.1", "8.1.0", "valkey8"}, {"valkey", "8.2", "8.2.0", "valkey8"},
	{"valkey", "9.0", "9.0.0", "valkey9"}, {"valkey", "9.1", "9.1.0", "valkey9"},
}

var cacheEngines = map[string]string{"redis": "Redis", "valkey": "Valkey"}

// findCacheVersion finds what a request means: a version, or a major one, which stands for its newest.
func findCacheVersion(engine, version string) (cacheVersion, bool) {
	var found cacheVersion
	for _, v := range cacheVersions {
		if v.Engine == engine && (version == "" || v.Version == version || v.Full == version || strings.HasPrefix(v.Version, strings.TrimSuffix(version, ".x")+".")) {
			found = v
		}
	}
	return found, found.Engine != ""
}

// cacheNodes are the node types with their memory in MiB ("Supported node types"). Graviton2 and later, and a few older ones.
var cacheNodes = func() map[string]int {
	out := map[string]int{"cache.t2.micro": 568, "cache.t2.small": 1587, "cache.t2.medium": 3297}
	for _, family := range []string{"t3", "t4g"} {
		out["cache."+family+".micro"], out["cache."+family+".small"], out["cache."+family+".medium"] = 512, 1403, 3164
	}
	for i, size := range []string{"large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge"} {
		times := []int{1, 2, 4, 8, 16, 24, 32}[i]
		for _, family := range []string{"m5", "m6g", "m7g"} {
			out["cache."+family+"."+size] = 6533 * times
		}
		for _, family := range []string{"r5", "r6g", "r7g"} {
			out["cache."+family+"."+size] = 13387 * times
		}
	}
	delete(out, "cache.m5.8xlarge")
	delete(out, "cache.r5.8xlarge")
	return out
}()

// nodeNames lists the node types in a stable order, the smallest of a family first.
func nodeNames() []string {
	names := sortedKeys(cacheNodes)
	slices.SortStableFunc(names, func(a, b string) int {
		x, y := strings.Split(a, ".")[1], strings.Split(b, ".")[1]
		if x != y {
			return strings.Compare(x, y)
		}
		return cacheNodes[a] - cacheNodes[b]
	})
	return names
}

func (s *cacheService) describeVersions(c *reqCtx, in *elasticache.DescribeCacheEngineVersionsInput) (*elasticache.DescribeCacheEngineVersionsOutput, error) {
	if e := deref(in.Engine); e != "" && cacheEngines[e] == "" && e != "memcached" {
		return nil, cacheInvalid("Unrecognized engine name: %s", e)
	}
	all := []types.CacheEngineVersion{}
	for i, v := range cacheVersions {
		switch {
		case in.Engine != nil && *in.Engine != v.Engine, in.EngineVersion != nil && *in.EngineVersion != v.Version && *in.EngineVersion != v.Full,
			in.CacheParameterGroupFamily != nil && *in.CacheParameterGroupFamily != v.Family:
			continue
		case deref(in.DefaultOnly) && i+1 < len(cacheVersions) && cacheVersions[i+1].Engine == v.Engine:
			continue // the newest is the default
		}
		name := cacheEngines[v.Engine]
		all = append(all, types.CacheEngineVersion{Engine: &v.Engine, EngineVersion: &v.Version, CacheParameterGroupFamily: &v.Family, CacheEngineDescription: &name,
			CacheEngineVersionDescription: new(v.Engine + " version " + v.Full)})
	}
	page, next, err := cachePage(c, all, in.Marker, in.MaxRecords)
	return &elasticache.DescribeCacheEngineVersionsOutput{CacheEngineVersions: page, Marker: next}, err
}

// describeOfferings lists what nodes can be reserved: the one API that tells which node types a region has.
func (s *cacheService) describeOfferings(c *reqCtx, in *elasticache.DescribeReservedCacheNodesOfferingsInput) (*elasticache.DescribeReservedCacheNodesOfferingsOutput, error) {
	years := map[string]int32{"1": 31536000, "3": 94608000, "31536000": 31536000, "94608000": 94608000}
	if d := deref(in.Duration); d != "" && years[d] == 0 {
		return nil, cacheInvalid("Invalid duration: %s", d)
	}
	all := []types.ReservedCacheNodesOffering{}
	for _, node := range nodeNames() {
		if in.CacheNodeType != nil && *in.CacheNodeType != "" && *in.CacheNodeType != node {
			continue
		}
		for _, product := range []string{"redis", "valkey"} {
			for _, kind := range []string{"No Upfront", "Partial Upfront", "All Upfront"} {
				for _, seconds := range []int32{31536000, 94608000} {
					if p := deref(in.ProductDescription); p != "" && p != product {
						continue
					}
					if k := deref(in.OfferingType); k != "" && k != kind {
						continue
					}
					if d := deref(in.Duration); d != "" && years[d] != seconds {
						continue
					}
					all = append(all, s.offering(c, node, product, kind, seconds))
				}
			}
		}
	}
	page, next, err := cachePage(c, all, in.Marker, in.MaxRecords)
	return &elasticache.DescribeReservedCacheNodesOfferingsOutput{ReservedCacheNodesOfferings: page, Marker: next}, err
}

func (s *cacheService) offering(c *reqCtx, node, product, kind string, seconds int32) types.ReservedCacheNodesOffering {
	hourly := float64(cacheNodes[node]) / 65000 // about what a node costs an hour
	out := types.ReservedCacheNodesOffering{CacheNodeType: &node, ProductDescription: &product, OfferingType: &kind, Duration: &seconds, UsagePrice: new(0.0), FixedPrice: new(0.0),
		ReservedCacheNodesOfferingId: new(strings.ToLower(s.cloud.accountHash(c.scope(), node+product+kind+strconv.Itoa(int(seconds)), 32))), RecurringCharges: []types.RecurringCharge{}}
	if kind != "All Upfront" {
		out.RecurringCharges = append(out.RecurringCharges, types.RecurringCharge{RecurringChargeFrequency: new("Hourly"), RecurringChargeAmount: new(hourly)})
	}
	if kind != "No Upfront" {
		out.FixedPrice = new(hourly * float64(seconds) / 7200)
	}
	return out
}

func (s *cacheService) listNodeTypes(c *reqCtx, in *elasticache.ListAllowedNodeTypeModificationsInput) (*elasticache.ListAllowedNodeTypeModificationsOutput, error) {
	var g *CacheGroup
	if in.CacheClusterId != nil {
		for _, o := range s.in(c.scope()).Groups {
			if slices.ContainsFunc(o.Members, func(m CacheMember) bool { return m.ID == *in.CacheClusterId }) {
				g = o
			}
		}
		if g == nil {
			return nil, noCluster(*in.CacheClusterId)
		}
	} else {
		var err error
		if g, err = s.group(c, in.ReplicationGroupId); err != nil {
			return nil, err
		}
	}
	out := &elasticache.ListAllowedNodeTypeModificationsOutput{ScaleUpModifications: []string{}, ScaleDownModifications: []string{}}
	for _, n := range nodeNames() {
		switch have := cacheNodes[deref(g.Group.CacheNodeType)]; {
		case n == deref(g.Group.CacheNodeType):
		case cacheNodes[n] >= have:
			out.ScaleUpModifications = append(out.ScaleUpModifications, n)
		default:
			out.ScaleDownModifications = append(out.ScaleDownModifications, n)
		}
	}
	return out, nil
}

func (s *cacheService) describeUpdates(_ *reqCtx, _ *elasticache.DescribeServiceUpdatesInput) (*elasticache.DescribeServiceUpdatesOutput, error) {
	return &elasticache.DescribeServiceUpdatesOutput{ServiceUpdates: []types.ServiceUpdate{}, Marker: new("")}, nil
}
