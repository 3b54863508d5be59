package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	ectypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
)

// nodeTypes is how much memory for data each current node type has, in GiB, the
// smallest first ("Supported node types" and "Redis OSS node-type specific parameters",
// maxmemory, as of 2026-11-30); no API says so. Which of them a region has is asked.
var nodeTypes = []struct {
	name   string
	memory float64
}{
	{"cache.t4g.micro", 0.5}, {"cache.t4g.small", 1.37}, {"cache.t4g.medium", 3.09},
	{"cache.m7g.large", 6.38}, {"cache.m6g.large", 6.38}, {"cache.m7g.xlarge", 12.93}, {"cache.m6g.xlarge", 12.93},
	{"cache.r7g.large", 13.07}, {"cache.r6g.large", 13.07}, {"cache.m7g.2xlarge", 26.04}, {"cache.m6g.2xlarge", 26.04},
	{"cache.r7g.xlarge", 26.32}, {"cache.r6g.xlarge", 26.32}, {"cache.m7g.4xlarge", 52.26}, {"cache.r7g.2xlarge", 52.82}, {"cache.r6g.2xlarge", 52.82},
	{"cache.m7g.8xlarge", 103.68}, {"cache.r7g.4xlarge", 105.81}, {"cache.r6g.4xlarge", 105.81}, {"cache.m7g.12xlarge", 157.12},
	{"cache.r7g.8xlarge", 209.55}, {"cache.r6g.8xlarge", 209.55}, {"cache.r7g.12xlarge", 317.77}, {"cache.r6g.12xlarge", 317.77}, {"cache.r7g.16xlarge", 419.09}, {"cache.r6g.16xlarge", 419.09},
	// Older ones, which are adopted and never chosen.
	{"cache.t3.micro", 0.5}, {"cache.t3.small", 1.37}, {"cache.t3.medium", 3.09}, {"cache.m5.large", 6.38}, {"cache.m5.xlarge", 12.93}, {"cache.r5.large", 13.07}, {"cache.r5.xlarge", 26.32},
}

// nodeMemory is how much data a node type holds, in GiB; 0 if it is not known.
func nodeMemory(nodeType string) float64 {
	for _, t := range nodeTypes {
		if t.name == nodeType {
			return t.memory
		}
	}
	return 0
}

// chosen reports whether a size resolves to a node type.
func chosenFamily(nodeType string) bool {
	return strings.HasPrefix(nodeType, "cache.t4g.") || strings.Contains(nodeType, "7g.") || strings.Contains(nodeType, "6g.")
}

// cacheVersions are the versions that ElastiCache offers of an engine, the oldest first.
func (p *Provider) cacheVersions(ctx context.Context, e job.Engine) ([]engineVersion, error) {
	return lookup.Once(ctx, "versions of "+string(e), func(ctx context.Context) ([]engineVersion, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ectypes.CacheEngineVersion, *string, error) {
			out, err := p.cache.DescribeCacheEngineVersions(ctx, &elasticache.DescribeCacheEngineVersionsInput{Engine: aws.String(string(e)), Marker: token})
			if err != nil {
				return nil, nil, err
			}
			return out.CacheEngineVersions, out.Marker, nil
		})
		var out []engineVersion
		for _, v := range all {
			if aws.ToString(v.Engine) == string(e) {
				version := aws.ToString(v.EngineVersion)
				out = append(out, engineVersion{version: version, standard: currentCache(e, version)})
			}
		}
		slices.SortFunc(out, func(a, b engineVersion) int { return compareVersions(a.version, b.version) })
		return out, err
	})
}

// currentCache reports whether a version is one whose users can be told apart and that
// is not about to be upgraded by force: Valkey, or Redis OSS 7 (control EC-14; "Redis OSS
// versions end of life schedule").
func currentCache(e job.Engine, version string) bool {
	return e == job.Valkey || compareVersions(version, "7") >= 0
}

// offeredNodes are the node types that the region sells. ElastiCache lists them
// nowhere but among the offers of reservations.
func (p *Provider) offeredNodes(ctx context.Context, e job.Engine) ([]string, error) {
	return lookup.Once(ctx, "node types for "+string(e), func(ctx context.Context) ([]string, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
			out, err := p.cache.DescribeReservedCacheNodesOfferings(ctx, &elasticache.DescribeReservedCacheNodesOfferingsInput{
				ProductDescription: aws.String(string(e)), OfferingType: aws.String("No Upfront"), Duration: aws.String("1"), Marker: token,
			})
			if err != nil {
				return nil, nil, err
			}
			var names []string
			for _, o := range out.ReservedCacheNodesOfferings {
				names = append(names, aws.ToString(o.CacheNodeType))
			}
			return names, out.Marker, nil
		})
		if err == nil && len(all) == 0 && e == job.Valkey {
			return p.offeredNodes(ctx, job.Redis) // reservations are for either engine
		}
		slices.Sort(all)
		return slices.Compact(all), err
	})
}

// placeCache resolves version, node type and zones of a cache.
func (d *dataChecker) placeCache(ctx context.Context, zones []string) ([]cloud.Check, error) {
	if d.built() {
		return []cloud.Check{passes("version and node type", "%s %s on %s", d.data.Engine.Title(), d.info.Version, d.info.Class)}, nil
	}
	d.info.Engine = d.data.Engine
	d.settleZones(zones)
	offered, err := d.cacheVersions(ctx, d.data.Engine)
	out, err := d.cacheVersion(ctx, offered, err)
	if err != nil || d.info.Version == "" {
		return out, err
	}
	more, err := d.nodeType(ctx)
	return append(out, more...), err
}

func (d *dataChecker) cacheVersion(ctx context.Context, offered []engineVersion, err error) ([]cloud.Check, error) {
	const check, field = "version", "config.spec.version"
	asked, title := d.data.Version, d.data.Engine.Title()
	d.info.Version = ""
	switch {
	case err != nil && d.stops(ctx, err):
		return nil, err
	case err != nil:
		d.info.Version = cmp.Or(asked, map[job.Engine]string{job.Redis: "7.1", job.Valkey: "8.0"}[d.data.Engine])
		return []cloud.Check{unchecked(check, field, err)}, nil
	}
	var current, known []string
	var chosen *engineVersion
	for i, v := range offered {
		known = append(known, v.version)
		if v.standard {
			current = append(current, v.version)
		}
		if asked == "" && v.standard || asked != "" && withinVersion(asked, v.version) {
			chosen = &offered[i]
		}
	}
	waived := slices.ContainsFunc(d.data.Waive, func(w job.Waiver) bool { return w.Control == "EC-14" })
	switch {
	case chosen == nil:
		return []cloud.Check{fails(check, field, fmt.Sprintf("%s %s is not offered in %s now", title, or(asked, "in support"), d.region),
			"Name one of "+or(nearest(asked, current), nearest(asked, known))+", or leave it out for the newest.")}, nil
	case !chosen.standard && !waived:
		return []cloud.Check{fails(check, field, fmt.Sprintf("%s %s is at its end, and users of the cache cannot be told apart under it (EC-14)", title, chosen.version),
			"Name one of "+nearest(asked, current)+", or waive EC-14.")}, nil
	}
	d.info.Version = chosen.version
	return []cloud.Check{passes(check, "%s %s", title, chosen.version)}, nil
}

// nodeType takes the smallest node type that holds as much data as is asked for.
func (d *dataChecker) nodeType(ctx context.Context) ([]cloud.Check, error) {
	const check = "node type"
	sold, err := d.offeredNodes(ctx, d.data.Engine)
	if err != nil && d.stops(ctx, err) {
		return nil, err
	}
	has := func(t string) bool { return err != nil || len(sold) == 0 || slices.Contains(sold, t) }
	if t := d.data.InstanceType; t != "" {
		const field = "config.spec.instanceType"
		if !has(t) {
			return []cloud.Check{fails(check, field, fmt.Sprintf("ElastiCache does not offer %s in %s", t, d.region), "Name another, such as "+strings.Join(sold[:min(len(sold), 5)], ", ")+", or give size.memoryGiB.")}, nil
		}
		d.info.Class = t
		return d.sold(check, field, t, sold, err), nil
	}
	const field = "config.spec.size.memoryGiB"
	for _, t := range nodeTypes {
		if t.memory >= float64(d.data.Size.MemoryGiB) && chosenFamily(t.name) && has(t.name) {
			d.info.Class = t.name
			return d.sold(check, field, t.name, sold, err), nil
		}
	}
	return []cloud.Check{fails(check, field, fmt.Sprintf("no node type that ElastiCache offers in %s holds %d GiB", d.region, d.data.Size.MemoryGiB), "Ask for less, or name an instanceType.")}, nil
}

// sold is the check of a node type that was taken.
func (d *dataChecker) sold(check, field, nodeType string, sold []string, err error) []cloud.Check {
	switch {
	case err != nil:
		return []cloud.Check{unchecked(check, field, err)}
	case len(sold) == 0:
		return []cloud.Check{{Name: check, Status: cloud.CheckUnchecked, Field: field, Message: "the region does not say which node types it has; " + nodeType + " is taken"}}
	}
	return []cloud.Check{passes(check, "%s, %.4g GiB for data", nodeType, nodeMemory(nodeType))}
}

func (d *dataChecker) usedCacheNodes(ctx context.Context) (int, error) {
	all, err := d.allCacheNodes(ctx)
	n := 0
	for _, c := range all {
		if aws.ToString(c.ReplicationGroupId) != datastoreName(d.r.Job, d.info.NameTries) {
			n += int(max(aws.ToInt32(c.NumCacheNodes), 1))
		}
	}
	return n, err
}
