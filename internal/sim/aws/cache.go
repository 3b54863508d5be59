package aws

import (
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/sim"
)

// quotaCacheNodes is the limit of nodes ("Quotas for ElastiCache").
const quotaCacheNodes = "L-DFE45DF3"

// Limits of role-based access control ("Role-Based Access Control (RBAC)").
const (
	maxCacheUsers      = 1000
	maxCacheUserGroups = 100
	maxGroupUsers      = 100
)

func newCache(c *Cloud) *cacheService {
	s := &cacheService{cloud: c, state: &CacheState{}}
	c.World.DefineQuota(sim.Quota{Cloud: "aws", Service: "elasticache", Code: quotaCacheNodes, Name: "Nodes per Region", Default: 300, Unit: "None", Adjustable: true})
	c.World.Register(s)
	c.servers.sources = append(c.servers.sources, s.wantedServers)
	c.add(&api{
		service: "elasticache", protocol: queryProtocol, namespace: "http://elasticache.amazonaws.com/doc/2015-02-02/", version: "2015-02-02",
		ops: overQuery(s.operations(), "*"), encode: encodeSchema, around: c.servers.lockedSync, secrets: []string{"AuthToken", "Passwords"},
	})
	return s
}

// operations is the API of ElastiCache.
func (s *cacheService) operations() map[string]typedOp {
	return map[string]typedOp{
		"CreateReplicationGroup": op(s.createGroup), "DescribeReplicationGroups": op(s.describeGroups), "ModifyReplicationGroup": op(s.modifyGroup), "DeleteReplicationGroup": op(s.deleteGroup),
		"DescribeCacheClusters": op(s.describeClusters), "DeleteCacheCluster": op(s.deleteCluster), "ListAllowedNodeTypeModifications": op(s.listNodeTypes),
		"CreateCacheSubnetGroup": op(s.createSubnetGroup), "DescribeCacheSubnetGroups": op(s.describeSubnetGroups), "DeleteCacheSubnetGroup": op(s.deleteSubnetGroup),
		"CreateCacheParameterGroup": op(s.createParameterGroup), "DescribeCacheParameterGroups": op(s.describeParameterGroups), "ModifyCacheParameterGroup": op(s.modifyParameterGroup),
		"DescribeCacheParameters": op(s.describeParameters), "DeleteCacheParameterGroup": op(s.deleteParameterGroup),
		"CreateUser": op(s.createUser), "DescribeUsers": op(s.describeUsers), "ModifyUser": op(s.modifyUser), "DeleteUser": op(s.deleteUser),
		"CreateUserGroup": op(s.createUserGroup), "DescribeUserGroups": op(s.describeUserGroups), "ModifyUserGroup": op(s.modifyUserGroup), "DeleteUserGroup": op(s.deleteUserGroup),
		"DescribeCacheEngineVersions": op(s.describeVersions), "DescribeReservedCacheNodesOfferings": op(s.describeOfferings), "DescribeServiceUpdates": op(s.describeUpdates),
		"CreateSnapshot": op(s.createSnapshot), "DescribeSnapshots": op(s.describeSnapshots), "DeleteSnapshot": op(s.deleteSnapshot),
		"AddTagsToResource": op(s.addTags), "RemoveTagsFromResource": op(s.removeTags), "ListTagsForResource": op(s.listTags),
	}
}

func cacheInvalid(format string, args ...any) error {
	return fail(400, "InvalidParameterValue", format, args...)
}

func cacheCombination(format string, args ...any) error {
	return fail(400, "InvalidParameterCombination", format, args...)
}

// checkCacheIdentifier: "must contain from 1 to 40 alphanumeric characters or hyphens; the first character must be a letter; can't
// end with a hyphen or contain two consecutive hyphens" (CreateReplicationGroup).
func checkCacheIdentifier(parameter, id string, most int) error {
	if !dbIdentifier.MatchString(id) || len(id) > most {
		return cacheInvalid("The parameter %s is not a valid identifier. Identifiers must begin with a letter; must contain only ASCII letters, digits, and hyphens; must have between 1 and %d characters; and must not end with a hyphen or contain two consecutive hyphens.", parameter, most)
	}
	return nil
}

// group finds a replication group.
func (s *cacheService) group(c *reqCtx, id *string) (*CacheGroup, error) {
	name := strings.ToLower(deref(id))
	g := s.in(c.scope()).Groups[name]
	if g == nil || !c.visible(g.arn(), g.Created, false, "replication-group", name, mapValues(cacheTags(g.Tags))) {
		return nil, fail(404, "ReplicationGroupNotFoundFault", "ReplicationGroup %s not found.", name)
	}
	c.Touch(g.arn())
	return g, nil
}

// cachePage cuts a page: MaxRecords is 20 to 100.
func cachePage[T any](c *reqCtx, all []T, marker *string, most *int32) ([]T, *string, error) {
	n := int(orDefault(most, 100))
	if n < 20 || n > 100 {
		return nil, nil, cacheInvalid("Invalid value %d for MaxRecords. Must be between 20 and 100", n)
	}
	page, next, err := pageOf(c, all, marker, n)
	if err != nil {
		return nil, nil, cacheInvalid("Invalid marker: %s", deref(marker))
	}
	if page == nil {
		page = []T{}
	}
	return page, next, nil
}

func checkCacheTags(tags []types.Tag) error {
	if len(tags) > 50 {
		return fail(400, "TagQuotaPerResourceExceeded", "A resource can have up to 50 tags.")
	}
	for _, t := range tags {
		k, v := deref(t.Key), deref(t.Value)
		if k == "" || len([]rune(k)) > 128 || len([]rune(v)) > 256 || !eksTagPattern.MatchString(k) || !eksTagPattern.MatchString(v) || strings.HasPrefix(strings.ToLower(k), "aws:") {
			return cacheInvalid("Invalid tag key or value: %s", k)
		}
	}
	return nil
}

// aclRule is a part of an access string that ElastiCache takes; passwords are given apart, and reset and nopass are not
// allowed ("Specifying permissions using an access string").
var aclRule = regexp.MustCompile(`^(on|off|allkeys|resetkeys|allchannels|resetchannels|allcommands|nocommands|clearselectors|(%(R|W|RW))?~\S+|&\S+|[+-]@[a-z]+|[+-][a-zA-Z.-]+(\|[a-zA-Z-]+)?|\(.*|.*\))$`)

func checkAccessString(text string) error {
	if strings.TrimSpace(text) == "" {
		return cacheInvalid("The parameter AccessString must be provided and must not be blank.")
	}
	for rule := range strings.FieldsSeq(text) {
		if !aclRule.MatchString(rule) || rule == "reset" || rule == "nopass" {
			return cacheInvalid("Access string is invalid: %s", rule)
		}
	}
	return nil
}
