package aws

import (
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"
)

// cacheParameters are those of Redis OSS and Valkey that people change most ("Valkey and Redis OSS parameters"): name, type,
// d (takes effect at once) or f (not modifiable), allowed values, default.
var cacheParameters = parseParameters(`
activedefrag|string|d|yes,no|no
active-expire-effort|integer|d|1-10|1
appendonly|string|f|yes,no|no
client-output-buffer-limit-normal-hard-limit|integer|d|0-9223372036854775807|0
cluster-enabled|string|f|yes,no|no
databases|integer|f|1-1200000|16
lazyfree-lazy-eviction|string|d|yes,no|yes
maxclients|integer|f|65000-65000|65000
maxmemory-policy|string|d|volatile-lru,allkeys-lru,volatile-lfu,allkeys-lfu,volatile-random,allkeys-random,volatile-ttl,noeviction|volatile-lru
maxmemory-samples|integer|d|1-9223372036854775807|3
notify-keyspace-events|string|d||
reserved-memory-percent|integer|d|0-100|25
slowlog-log-slower-than|integer|d|-1-9223372036854775807|10000
slowlog-max-len|integer|d|0-9223372036854775807|128
tcp-keepalive|integer|d|0-2147483647|300
timeout|integer|d|0-2147483647|0
tracking-table-max-keys|integer|d|1-100000000|1000000
`)

func cacheFamilies() []string {
	var out []string
	for _, v := range cacheVersions {
		if !slices.Contains(out, v.Family) {
			out = append(out, v.Family)
		}
	}
	return out
}

func (s *cacheService) newParameterGroup(c *reqCtx, name, family, description string) *CacheParameterGroup {
	g := &CacheParameterGroup{Created: c.now, Values: map[string]string{}, Group: types.CacheParameterGroup{CacheParameterGroupName: &name, CacheParameterGroupFamily: &family, Description: &description, IsGlobal: new(false),
		ARN: new(c.regionalARN("elasticache", "parametergroup:"+name))}}
	s.in(c.scope()).Parameters[name] = g
	return g
}

func (s *cacheService) createParameterGroup(c *reqCtx, in *elasticache.CreateCacheParameterGroupInput) (*elasticache.CreateCacheParameterGroupOutput, error) {
	name, family := strings.ToLower(deref(in.CacheParameterGroupName)), deref(in.CacheParameterGroupFamily)
	if err := checkCacheIdentifier("CacheParameterGroupName", name, 255); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains(cacheFamilies(), family):
		return nil, cacheInvalid("CacheParameterGroupFamily %s is not a valid parameter group family.", family)
	case deref(in.Description) == "":
		return nil, cacheInvalid("The parameter Description must be provided and must not be blank.")
	case s.in(c.scope()).Parameters[name] != nil:
		return nil, fail(400, "CacheParameterGroupAlreadyExists", "Cache parameter group %s already exists.", name)
	case len(s.in(c.scope()).Parameters) >= 150:
		return nil, fail(400, "CacheParameterGroupQuotaExceeded", "Cannot create more than 150 cache parameter groups.")
	}
	if err := checkCacheTags(in.Tags); err != nil {
		return nil, err
	}
	g := s.newParameterGroup(c, name, family, *in.Description)
	g.Tags = slices.Clone(in.Tags)
	c.Make(*g.Group.ARN)
	return &elasticache.CreateCacheParameterGroupOutput{CacheParameterGroup: new(g.Group)}, nil
}

func (s *cacheService) parameterGroup(c *reqCtx, ref *string) (*CacheParameterGroup, error) {
	name := strings.ToLower(deref(ref))
	g := s.in(c.scope()).Parameters[name]
	if family, ok := strings.CutPrefix(name, "default."); ok && g == nil && slices.Contains(cacheFamilies(), family) {
		g = s.newParameterGroup(c, name, family, "Default parameter group for "+family)
		g.Default = true
	}
	if g == nil {
		return nil, fail(404, "CacheParameterGroupNotFound", "CacheParameterGroup %s not found.", name)
	}
	c.Touch(*g.Group.ARN)
	return g, nil
}

// parameterGroupFor finds the group of a replication group; it must be of the version's family.
func (s *cacheService) parameterGroupFor(c *reqCtx, name string, v cacheVersion) (string, error) {
	name = orText(name, "default."+v.Family)
	g, err := s.parameterGroup(c, &name)
	if err != nil {
		return "", err
	}
	if *g.Group.CacheParameterGroupFamily != v.Family {
		return "", cacheCombination("Expected a parameter group of family %s but found one of family %s", v.Family, *g.Group.CacheParameterGroupFamily)
	}
	return *g.Group.CacheParameterGroupName, nil
}

func (s *cacheService) describeParameterGroups(c *reqCtx, in *elasticache.DescribeCacheParameterGroupsInput) (*elasticache.DescribeCacheParameterGroupsOutput, error) {
	if in.CacheParameterGroupName != nil {
		g, err := s.parameterGroup(c, in.CacheParameterGroupName)
		if err != nil {
			return nil, err
		}
		return &elasticache.DescribeCacheParameterGroupsOutput{CacheParameterGroups: []types.CacheParameterGroup{g.Group}}, nil
	}
	for _, f := range cacheFamilies() {
		if _, err := s.parameterGroup(c, new("default."+f)); err != nil {
			return nil, err
		}
	}
	all, sc := []types.CacheParameterGroup{}, s.in(c.scope())
	for _, name := range sortedKeys(sc.Parameters) {
		all = append(all, sc.Parameters[name].Group)
	}
	page, next, err := cachePage(c, all, in.Marker, in.MaxRecords)
	return &elasticache.DescribeCacheParameterGroupsOutput{CacheParameterGroups: page, Marker: next}, err
}

func (s *cacheService) modifyParameterGroup(c *reqCtx, in *elasticache.ModifyCacheParameterGroupInput) (*elasticache.ModifyCacheParameterGroupOutput, error) {
	g, err := s.parameterGroup(c, in.CacheParameterGroupName)
	if err != nil {
		return nil, err
	}
	if g.Default {
		return nil, cacheInvalid("Default parameter groups can't be modified: %s", *g.Group.CacheParameterGroupName)
	}
	values := maps.Clone(g.Values)
	for _, p := range in.ParameterNameValues {
		i := slices.IndexFunc(cacheParameters, func(k dbParameter) bool { return k.Name == deref(p.ParameterName) })
		switch {
		case i < 0:
			return nil, cacheInvalid("The parameter %s doesn't exist in the family %s.", deref(p.ParameterName), *g.Group.CacheParameterGroupFamily)
		case cacheParameters[i].Fixed:
			return nil, cacheInvalid("The parameter %s cannot be modified.", deref(p.ParameterName))
		case !cacheParameters[i].allows(deref(p.ParameterValue)):
			return nil, cacheInvalid("The value %s of the parameter %s is out of range: %s", deref(p.ParameterValue), deref(p.ParameterName), cacheParameters[i].Allowed)
		}
		values[*p.ParameterName] = deref(p.ParameterValue)
	}
	g.Values = values
	return &elasticache.ModifyCacheParameterGroupOutput{CacheParameterGroupName: g.Group.CacheParameterGroupName}, nil
}

func (s *cacheService) describeParameters(c *reqCtx, in *elasticache.DescribeCacheParametersInput) (*elasticache.DescribeCacheParametersOutput, error) {
	g, err := s.parameterGroup(c, in.CacheParameterGroupName)
	if err != nil {
		return nil, err
	}
	all := []types.Parameter{}
	for _, p := range cacheParameters {
		out := types.Parameter{ParameterName: &p.Name, Description: new("The parameter " + p.Name + "."), DataType: &p.Type, IsModifiable: new(!p.Fixed), Source: new("system"), ChangeType: types.ChangeTypeImmediate,
			MinimumEngineVersion: new("6.0.0"), ParameterValue: &p.Default}
		if p.Allowed != "" {
			out.AllowedValues = &p.Allowed
		}
		if v, ok := g.Values[p.Name]; ok {
			out.ParameterValue, out.Source = &v, new("user")
		}
		if in.Source == nil || *in.Source == *out.Source {
			all = append(all, out)
		}
	}
	page, next, err := cachePage(c, all, in.Marker, in.MaxRecords)
	return &elasticache.DescribeCacheParametersOutput{Parameters: page, Marker: next}, err
}

func (s *cacheService) deleteParameterGroup(c *reqCtx, in *elasticache.DeleteCacheParameterGroupInput) (*elasticache.DeleteCacheParameterGroupOutput, error) {
	g, err := s.parameterGroup(c, in.CacheParameterGroupName)
	if err != nil {
		return nil, err
	}
	name := *g.Group.CacheParameterGroupName
	if g.Default {
		return nil, fail(400, "InvalidCacheParameterGroupState", "Default parameter groups can't be deleted: %s", name)
	}
	for _, u := range s.in(c.scope()).Groups {
		if u.Parameters == name {
			return nil, fail(400, "InvalidCacheParameterGroupState", "One or more cache clusters are still members of this parameter group %s, so the group cannot be deleted.", name)
		}
	}
	delete(s.in(c.scope()).Parameters, name)
	return &elasticache.DeleteCacheParameterGroupOutput{}, nil
}
