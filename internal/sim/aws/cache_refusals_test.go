package aws

import (
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/sim"
)

// cacheRefusal is a change of a good request, and the code that it is refused with.
type cacheRefusal struct {
	code   string
	change func(*elasticache.CreateReplicationGroupInput)
}

func cacheRefusals() map[string]cacheRefusal {
	text, number := awssdk.String, awssdk.Int32
	return map[string]cacheRefusal{
		"identifier": {badValue, func(in *elasticache.CreateReplicationGroupInput) { in.ReplicationGroupId = text("a--b") }},
		"identifier long": {badValue, func(in *elasticache.CreateReplicationGroupInput) {
			in.ReplicationGroupId = text(strings.Repeat("a", 41))
		}},
		"engine":            {badValue, func(in *elasticache.CreateReplicationGroupInput) { in.Engine = text("dragonfly") }},
		"version":           {badCombination, func(in *elasticache.CreateReplicationGroupInput) { in.EngineVersion = text("5.0.6") }},
		"node type":         {badValue, func(in *elasticache.CreateReplicationGroupInput) { in.CacheNodeType = text("cache.t1.micro") }},
		"failover alone":    {badValue, func(in *elasticache.CreateReplicationGroupInput) { in.NumCacheClusters = number(1) }},
		"Multi-AZ alone":    {badCombination, func(in *elasticache.CreateReplicationGroupInput) { in.AutomaticFailoverEnabled = nil }},
		"too many nodes":    {badValue, func(in *elasticache.CreateReplicationGroupInput) { in.NumCacheClusters = number(7) }},
		"users without TLS": {badCombination, func(in *elasticache.CreateReplicationGroupInput) { in.TransitEncryptionEnabled = nil }},
		"token without TLS": {badCombination, func(in *elasticache.CreateReplicationGroupInput) {
			in.TransitEncryptionEnabled, in.UserGroupIds, in.AuthToken = nil, nil, text(userPassword)
		}},
		"token and users": {badCombination, func(in *elasticache.CreateReplicationGroupInput) { in.AuthToken = text(userPassword) }},
		"token short":     {badValue, func(in *elasticache.CreateReplicationGroupInput) { in.UserGroupIds, in.AuthToken = nil, text("short") }},
		"user group":      {"UserGroupNotFound", func(in *elasticache.CreateReplicationGroupInput) { in.UserGroupIds = []string{"none"} }},
		"subnet group":    {"CacheSubnetGroupNotFoundFault", func(in *elasticache.CreateReplicationGroupInput) { in.CacheSubnetGroupName = text("none") }},
		"security group": {badValue, func(in *elasticache.CreateReplicationGroupInput) {
			in.SecurityGroupIds = []string{"sg-0123456789abcdef0"}
		}},
		"parameter group": {"CacheParameterGroupNotFound", func(in *elasticache.CreateReplicationGroupInput) { in.CacheParameterGroupName = text("none") }},
		"parameter family": {badCombination, func(in *elasticache.CreateReplicationGroupInput) {
			in.CacheParameterGroupName = text("default.valkey8")
		}},
		"retention": {badValue, func(in *elasticache.CreateReplicationGroupInput) { in.SnapshotRetentionLimit = number(36) }},
		"window": {badValue, func(in *elasticache.CreateReplicationGroupInput) {
			in.PreferredMaintenanceWindow = text("sun:03:00-sun:03:30")
		}},
		"key": {"InvalidKMSKeyFault", func(in *elasticache.CreateReplicationGroupInput) { in.KmsKeyId = text("alias/none") }},
		"zone not in group": {"InvalidVPCNetworkStateFault", func(in *elasticache.CreateReplicationGroupInput) {
			in.PreferredCacheClusterAZs = []string{"us-east-1c", "us-east-1a"}
		}},
		"description": {badValue, func(in *elasticache.CreateReplicationGroupInput) { in.ReplicationGroupDescription = text("") }},
		"tag": {badValue, func(in *elasticache.CreateReplicationGroupInput) {
			in.Tags = []types.Tag{{Key: text("aws:x"), Value: text("y")}}
		}},
		"preferred and RBAC": {badCombination, func(in *elasticache.CreateReplicationGroupInput) {
			in.TransitEncryptionMode = types.TransitEncryptionModePreferred
		}},
	}
}

// TestReplicationGroupRefusals is what CreateReplicationGroup says no to, and how.
func TestReplicationGroupRefusals(t *testing.T) {
	k := newStock(t, immediate)
	c := k.cached(t)
	k.w.Step(time.Minute)
	for what, x := range cacheRefusals() {
		t.Run(what, func(t *testing.T) {
			in := cacheInput("store")
			x.change(in)
			_, err := c.CreateReplicationGroup(k.ctx(), in)
			wantCode(t, err, x.code)
		})
	}
	if _, err := k.w.AddFault(sim.Fault{Service: "elasticache", Kind: sim.FaultCapacity}); err != nil {
		t.Fatal(err)
	}
	_, err := c.CreateReplicationGroup(k.ctx(), cacheInput("store"))
	wantCode(t, err, "InsufficientCacheClusterCapacity")
	k.w.SetQuota("aws", "elasticache", quotaCacheNodes, "", "", 1)
	_, err = c.CreateReplicationGroup(k.ctx(), cacheInput("store"))
	wantCode(t, err, "NodeQuotaForCustomerExceeded")
	k.w.SetQuota("aws", "elasticache", quotaCacheNodes, "", "", 10)
	must(c.CreateReplicationGroup(k.ctx(), cacheInput("store")))(t)
	_, err = c.CreateReplicationGroup(k.ctx(), cacheInput("store"))
	wantCode(t, err, "ReplicationGroupAlreadyExists")
	_, err = c.DeleteReplicationGroup(k.ctx(), &elasticache.DeleteReplicationGroupInput{ReplicationGroupId: awssdk.String("store")})
	wantCode(t, err, "InvalidReplicationGroupState")
}

func TestCacheUserRefusals(t *testing.T) {
	k := newStock(t, immediate)
	c := k.cached(t)
	text := awssdk.String
	user := func(change func(*elasticache.CreateUserInput)) error {
		in := &elasticache.CreateUserInput{UserId: text("app"), UserName: text("app"), Engine: text("redis"), AccessString: text("on ~* +@all"), Passwords: []string{userPassword}}
		change(in)
		_, err := c.CreateUser(k.ctx(), in)
		return err
	}
	for what, x := range map[string]struct {
		code   string
		change func(*elasticache.CreateUserInput)
	}{
		"short": {"InvalidParameterValue", func(in *elasticache.CreateUserInput) { in.Passwords = []string{"fifteen-letters"} }},
		"long":  {"InvalidParameterValue", func(in *elasticache.CreateUserInput) { in.Passwords = []string{strings.Repeat("p", 129)} }},
		"three": {"InvalidParameterValue", func(in *elasticache.CreateUserInput) {
			in.Passwords = []string{userPassword, userPassword + "2", userPassword + "3"}
		}},
		"none":              {"InvalidParameterCombination", func(in *elasticache.CreateUserInput) { in.Passwords = nil }},
		"both":              {"InvalidParameterCombination", func(in *elasticache.CreateUserInput) { in.NoPasswordRequired = awssdk.Bool(true) }},
		"password in rules": {"InvalidParameterValue", func(in *elasticache.CreateUserInput) { in.AccessString = text("on ~* +@all >hunter2") }},
		"nopass in rules":   {"InvalidParameterValue", func(in *elasticache.CreateUserInput) { in.AccessString = text("on nopass ~* +@all") }},
		"rules":             {"InvalidParameterValue", func(in *elasticache.CreateUserInput) { in.AccessString = text("on everything") }},
		"identifier":        {"InvalidParameterValue", func(in *elasticache.CreateUserInput) { in.UserId = text("1st") }},
		"engine":            {"InvalidParameterValue", func(in *elasticache.CreateUserInput) { in.Engine = text("memcached") }},
		"taken":             {"UserAlreadyExists", func(in *elasticache.CreateUserInput) { in.UserId = text("nobody") }},
		"valkey open": {"InvalidParameterCombination", func(in *elasticache.CreateUserInput) {
			in.Engine, in.Passwords, in.NoPasswordRequired = text("valkey"), nil, awssdk.Bool(true)
		}},
	} {
		if err := user(x.change); err == nil {
			t.Errorf("%s was not refused", what)
		} else {
			wantCode(t, err, x.code)
		}
	}
	if err := user(func(*elasticache.CreateUserInput) {}); err != nil {
		t.Fatal(err)
	}
	groupOf := func(id, engine string, users ...string) error {
		_, err := c.CreateUserGroup(k.ctx(), &elasticache.CreateUserGroupInput{UserGroupId: &id, Engine: &engine, UserIds: users})
		return err
	}
	wantCode(t, groupOf("g", "redis", "app"), "DefaultUserRequired")
	wantCode(t, groupOf("g", "redis", "nobody", "default"), "DuplicateUserName")
	wantCode(t, groupOf("g", "redis", "none", "nobody"), "UserNotFound")
	wantCode(t, groupOf("g", "valkey", "nobody"), "InvalidParameterValue")
	wantCode(t, groupOf("team", "redis", "nobody"), "UserGroupAlreadyExists")
	if err := groupOf("vk", "valkey", "app"); err != nil {
		t.Errorf("a group of valkey takes users of redis that have a password: %v", err)
	}
	_, err := c.DeleteUser(k.ctx(), &elasticache.DeleteUserInput{UserId: text("default")})
	wantCode(t, err, "InvalidParameterValue")
}

// TestValkeyAndOpenCaches: a cache of Valkey with a user group of its own engine, and one of Redis without any access control.
func TestValkeyAndOpenCaches(t *testing.T) {
	k := newStock(t, immediate)
	c := k.cached(t)
	text := awssdk.String
	in := cacheInput("open")
	in.UserGroupIds, in.TransitEncryptionEnabled, in.AtRestEncryptionEnabled = nil, nil, nil
	must(c.CreateReplicationGroup(k.ctx(), in))(t)
	k.w.Step(15 * time.Minute)
	g := group(t, k, c, "open")
	if s := k.noted.only(t); !s.OpenDefault || s.RequireTLS || *g.TransitEncryptionEnabled || *g.AtRestEncryptionEnabled {
		t.Errorf("a cache as the API makes it by default: %+v", s)
	}
	must(c.CreateUser(k.ctx(), &elasticache.CreateUserInput{UserId: text("vapp"), UserName: text("vapp"), Engine: text("valkey"), AccessString: text("on ~* +@all"), Passwords: []string{userPassword, userPassword + "2"}}))(t)
	must(c.CreateUserGroup(k.ctx(), &elasticache.CreateUserGroupInput{UserGroupId: text("vk"), Engine: text("valkey"), UserIds: []string{"vapp"}}))(t)
	k.w.Step(time.Minute)
	bad := cacheInput("bad")
	bad.UserGroupIds = []string{"vk"}
	_, err := c.CreateReplicationGroup(k.ctx(), bad)
	wantCode(t, err, "InvalidParameterCombination")
	v := cacheInput("val")
	v.Engine, v.EngineVersion, v.UserGroupIds = text("valkey"), text("8"), []string{"vk"}
	must(c.CreateReplicationGroup(k.ctx(), v))(t)
	k.w.Step(15 * time.Minute)
	k.settle()
	for _, u := range k.noted.users {
		if u.Name != "vapp" || u.Password != userPassword || u.Roles[1] != ">"+userPassword+"2" {
			t.Errorf("user %s with roles %v", u.Name, u.Roles)
		}
	}
	clusters := must(c.DescribeCacheClusters(k.ctx(), &elasticache.DescribeCacheClustersInput{CacheClusterId: text("val-001"), ShowCacheNodeInfo: awssdk.Bool(true)}))(t).CacheClusters
	if *clusters[0].EngineVersion != "8.2.0" || *clusters[0].CacheNodes[0].Endpoint.Address != "127.0.0.1" || *clusters[0].CacheParameterGroup.CacheParameterGroupName != "default.valkey8" {
		t.Errorf("cluster %+v", clusters[0])
	}
	must(c.ModifyReplicationGroup(k.ctx(), &elasticache.ModifyReplicationGroupInput{ReplicationGroupId: text("val"), UserGroupIdsToRemove: []string{"vk"}, ApplyImmediately: awssdk.Bool(true)}))(t)
	k.w.Step(5 * time.Minute)
	if g := group(t, k, c, "val"); *g.Status != "available" || len(g.UserGroupIds) != 0 {
		t.Errorf("after its user group was taken away: %s %v", *g.Status, g.UserGroupIds)
	}
	must(c.DeleteUserGroup(k.ctx(), &elasticache.DeleteUserGroupInput{UserGroupId: text("vk")}))(t)
}

func TestCacheCatalog(t *testing.T) {
	k := newStock(t, immediate)
	c := elasticache.NewFromConfig(k.cfg)
	d := must(c.DescribeCacheEngineVersions(k.ctx(), &elasticache.DescribeCacheEngineVersionsInput{Engine: awssdk.String("valkey"), DefaultOnly: awssdk.Bool(true)}))(t).CacheEngineVersions
	if len(d) != 1 || *d[0].EngineVersion != "9.1" || *d[0].CacheParameterGroupFamily != "valkey9" {
		t.Errorf("default %+v", d)
	}
	nodes := map[string]bool{}
	p := elasticache.NewDescribeReservedCacheNodesOfferingsPaginator(c, &elasticache.DescribeReservedCacheNodesOfferingsInput{ProductDescription: awssdk.String("redis"), OfferingType: awssdk.String("No Upfront"), Duration: awssdk.String("1")})
	for p.HasMorePages() {
		for _, o := range must(p.NextPage(k.ctx()))(t).ReservedCacheNodesOfferings {
			if nodes[*o.CacheNodeType] || *o.Duration != 31536000 {
				t.Errorf("offering %+v", o)
			}
			nodes[*o.CacheNodeType] = true
		}
	}
	if len(nodes) != len(cacheNodes) || !nodes["cache.t4g.micro"] {
		t.Errorf("%d node types of %d", len(nodes), len(cacheNodes))
	}
	params := must(c.DescribeCacheParameters(k.ctx(), &elasticache.DescribeCacheParametersInput{CacheParameterGroupName: awssdk.String("default.redis7")}))(t).Parameters
	if len(params) != len(cacheParameters) {
		t.Errorf("%d parameters", len(params))
	}
	must(c.CreateCacheParameterGroup(k.ctx(), &elasticache.CreateCacheParameterGroupInput{CacheParameterGroupName: awssdk.String("mine"), CacheParameterGroupFamily: awssdk.String("redis7"), Description: awssdk.String("d")}))(t)
	set := func(name, value string) error {
		_, err := c.ModifyCacheParameterGroup(k.ctx(), &elasticache.ModifyCacheParameterGroupInput{CacheParameterGroupName: awssdk.String("mine"), ParameterNameValues: []types.ParameterNameValue{{ParameterName: &name, ParameterValue: &value}}})
		return err
	}
	wantCode(t, set("no-such", "1"), "InvalidParameterValue")
	wantCode(t, set("maxmemory-policy", "random"), "InvalidParameterValue")
	if err := set("maxmemory-policy", "allkeys-lru"); err != nil {
		t.Error(err)
	}
}
