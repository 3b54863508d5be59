package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/sim"
)

const userPassword = "sixteen-characters-long"

// cacheInput asks for a hardened replication group.
func cacheInput(id string) *elasticache.CreateReplicationGroupInput {
	return &elasticache.CreateReplicationGroupInput{ReplicationGroupId: &id, ReplicationGroupDescription: awssdk.String("sessions"), Engine: awssdk.String("redis"), EngineVersion: awssdk.String("7.1"),
		CacheNodeType: awssdk.String("cache.t4g.small"), NumCacheClusters: awssdk.Int32(2), AutomaticFailoverEnabled: awssdk.Bool(true), MultiAZEnabled: awssdk.Bool(true), CacheSubnetGroupName: awssdk.String("nets"),
		AtRestEncryptionEnabled: awssdk.Bool(true), TransitEncryptionEnabled: awssdk.Bool(true), SnapshotRetentionLimit: awssdk.Int32(7), UserGroupIds: []string{"team"},
		Tags: []types.Tag{{Key: awssdk.String("owner"), Value: awssdk.String("job-1")}}}
}

// cached makes what a replication group needs beforehand: a subnet group, and a user group with a default user that is off.
func (k *stock) cached(t *testing.T) *elasticache.Client {
	t.Helper()
	c := elasticache.NewFromConfig(k.cfg)
	must(c.CreateCacheSubnetGroup(k.ctx(), &elasticache.CreateCacheSubnetGroupInput{CacheSubnetGroupName: awssdk.String("nets"), CacheSubnetGroupDescription: awssdk.String("d"), SubnetIds: k.nets}))(t)
	must(c.CreateUser(k.ctx(), &elasticache.CreateUserInput{UserId: awssdk.String("nobody"), UserName: awssdk.String("default"), Engine: awssdk.String("redis"), AccessString: awssdk.String("off ~* -@all"), NoPasswordRequired: awssdk.Bool(true)}))(t)
	must(c.CreateUserGroup(k.ctx(), &elasticache.CreateUserGroupInput{UserGroupId: awssdk.String("team"), Engine: awssdk.String("redis"), UserIds: []string{"nobody"}}))(t)
	return c
}

func group(t *testing.T, k *stock, c *elasticache.Client, id string) types.ReplicationGroup {
	t.Helper()
	return must(c.DescribeReplicationGroups(k.ctx(), &elasticache.DescribeReplicationGroupsInput{ReplicationGroupId: &id}))(t).ReplicationGroups[0]
}

func TestReplicationGroupLife(t *testing.T) {
	k := newStock(t, immediate)
	c := k.cached(t)
	_, err := c.CreateReplicationGroup(k.ctx(), cacheInput("store"))
	wantCode(t, err, "InvalidUserGroupState") // it is still being created
	k.w.Step(time.Minute)
	g := must(c.CreateReplicationGroup(k.ctx(), cacheInput("store")))(t).ReplicationGroup
	if *g.Status != "creating" || len(g.NodeGroups) != 0 || !slices.Equal(g.MemberClusters, []string{"store-001", "store-002"}) {
		t.Errorf("fresh: %s %v %v", *g.Status, g.NodeGroups, g.MemberClusters)
	}
	_, err = c.ListTagsForResource(k.ctx(), &elasticache.ListTagsForResourceInput{ResourceName: g.ARN})
	wantCode(t, err, "InvalidReplicationGroupState")
	k.w.Step(10 * time.Minute)
	made := group(t, k, c, "store")
	if *made.Status != "available" || *made.NodeGroups[0].PrimaryEndpoint.Address != "127.0.0.1" || made.TransitEncryptionMode != "required" || made.MultiAZ != "enabled" {
		t.Fatalf("made: %s %+v", *made.Status, made)
	}
	zones := map[string]bool{}
	for _, m := range made.NodeGroups[0].NodeGroupMembers {
		zones[*m.PreferredAvailabilityZone] = true
	}
	if len(zones) != 2 || len(k.interfaces(t, "amazon-elasticache")) != 2 {
		t.Errorf("zones %v, interfaces %d", zones, len(k.interfaces(t, "amazon-elasticache")))
	}
	server := k.noted.only(t)
	if server.Engine != "redis" || !server.RequireTLS || server.OpenDefault || server.Password != "" || !server.Admits(sim.KubeCaller{Inside: true}) || server.Admits(sim.KubeCaller{}) {
		t.Errorf("server %+v", server)
	}
	tags := must(c.ListTagsForResource(k.ctx(), &elasticache.ListTagsForResourceInput{ResourceName: made.ARN}))(t).TagList
	if cacheTags(tags)["owner"] != "job-1" {
		t.Errorf("tags %v", tags)
	}
	k.usersComeAndGo(t, c)
	k.cacheDeleted(t, c)
}

// usersComeAndGo adds a user to the group of a replication group, and takes it out again.
func (k *stock) usersComeAndGo(t *testing.T, c *elasticache.Client) {
	t.Helper()
	k.noted.took()
	must(c.CreateUser(k.ctx(), &elasticache.CreateUserInput{UserId: awssdk.String("app"), UserName: awssdk.String("app"), Engine: awssdk.String("redis"), AccessString: awssdk.String("on ~app:* +@read"), Passwords: []string{userPassword}}))(t)
	m := must(c.ModifyUserGroup(k.ctx(), &elasticache.ModifyUserGroupInput{UserGroupId: awssdk.String("team"), UserIdsToAdd: []string{"app"}}))(t)
	if *m.Status != "modifying" || !slices.Equal(m.UserIds, []string{"nobody"}) || !slices.Equal(m.PendingChanges.UserIdsToAdd, []string{"app"}) {
		t.Errorf("a user group that is being modified: %+v", m)
	}
	_, err := c.ModifyUserGroup(k.ctx(), &elasticache.ModifyUserGroupInput{UserGroupId: awssdk.String("team"), UserIdsToRemove: []string{"nobody"}})
	wantCode(t, err, "InvalidUserGroupState")
	k.w.Step(time.Minute)
	k.settle()
	if got := k.noted.took(); !slices.Equal(got, []string{"user app on ~app:* +@read"}) {
		t.Errorf("the server was told %v", got)
	}
	_, err = c.ModifyUserGroup(k.ctx(), &elasticache.ModifyUserGroupInput{UserGroupId: awssdk.String("team"), UserIdsToRemove: []string{"nobody"}})
	wantCode(t, err, "DefaultUserRequired")
	must(c.ModifyUser(k.ctx(), &elasticache.ModifyUserInput{UserId: awssdk.String("app"), Passwords: []string{userPassword + "2"}}))(t)
	k.w.Step(time.Minute)
	k.settle()
	if u := k.noted.users; len(u) != 1 || !strings.Contains(fmt.Sprint(u), userPassword+"2") {
		t.Errorf("the user has not got another password")
	}
	must(c.DeleteUser(k.ctx(), &elasticache.DeleteUserInput{UserId: awssdk.String("app")}))(t)
	k.w.Step(time.Minute)
	k.settle()
	if got := k.noted.took(); got[len(got)-1] != "drop app" {
		t.Errorf("the server was told %v", got)
	}
	_, err = c.DescribeUsers(k.ctx(), &elasticache.DescribeUsersInput{UserId: awssdk.String("app")})
	wantCode(t, err, "UserNotFound")
	_, err = c.DeleteUser(k.ctx(), &elasticache.DeleteUserInput{UserId: awssdk.String("nobody")})
	wantCode(t, err, "DefaultUserAssociatedToUserGroup")
	_, err = c.DeleteUserGroup(k.ctx(), &elasticache.DeleteUserGroupInput{UserGroupId: awssdk.String("team")})
	wantCode(t, err, "InvalidUserGroupState")
}

// settle lets what is due happen.
func (k *stock) settle() {
	k.w.Lock()
	defer k.w.Unlock()
}

func (k *stock) cacheDeleted(t *testing.T, c *elasticache.Client) {
	t.Helper()
	_, err := c.DeleteCacheSubnetGroup(k.ctx(), &elasticache.DeleteCacheSubnetGroupInput{CacheSubnetGroupName: awssdk.String("nets")})
	wantCode(t, err, "CacheSubnetGroupInUse")
	_, err = c.DeleteCacheCluster(k.ctx(), &elasticache.DeleteCacheClusterInput{CacheClusterId: awssdk.String("store-002")})
	wantCode(t, err, "InvalidCacheClusterState")
	out := must(c.DeleteReplicationGroup(k.ctx(), &elasticache.DeleteReplicationGroupInput{ReplicationGroupId: awssdk.String("store"), FinalSnapshotIdentifier: awssdk.String("store-final")}))(t)
	if *out.ReplicationGroup.Status != "deleting" {
		t.Errorf("status %s", *out.ReplicationGroup.Status)
	}
	_, err = c.DeleteReplicationGroup(k.ctx(), &elasticache.DeleteReplicationGroupInput{ReplicationGroupId: awssdk.String("store")})
	wantCode(t, err, "InvalidReplicationGroupState")
	for range 100 {
		if _, err = c.DescribeReplicationGroups(k.ctx(), &elasticache.DescribeReplicationGroupsInput{ReplicationGroupId: awssdk.String("store")}); err != nil {
			break
		}
		k.w.Step(10 * time.Second)
	}
	wantCode(t, err, "ReplicationGroupNotFoundFault")
	if len(k.interfaces(t, "amazon-elasticache")) == 0 {
		t.Error("the network interfaces went with the group; they linger")
	}
	k.w.Step(3 * time.Minute)
	if n := len(k.interfaces(t, "amazon-elasticache")); n != 0 || len(k.noted.open) != 0 {
		t.Errorf("%d interfaces or a server are left", n)
	}
	n := must(c.DescribeSnapshots(k.ctx(), &elasticache.DescribeSnapshotsInput{SnapshotName: awssdk.String("store-final")}))(t).Snapshots[0]
	if *n.SnapshotStatus != "available" || *n.SnapshotSource != "manual" {
		t.Errorf("snapshot %+v", n)
	}
	must(c.DeleteUserGroup(k.ctx(), &elasticache.DeleteUserGroupInput{UserGroupId: awssdk.String("team")}))(t)
	must(c.DeleteCacheSubnetGroup(k.ctx(), &elasticache.DeleteCacheSubnetGroupInput{CacheSubnetGroupName: awssdk.String("nets")}))(t)
	k.w.Step(time.Minute)
	must(c.DeleteUser(k.ctx(), &elasticache.DeleteUserInput{UserId: awssdk.String("nobody")}))(t)
	must(c.DeleteSnapshot(k.ctx(), &elasticache.DeleteSnapshotInput{SnapshotName: awssdk.String("store-final")}))(t)
	k.w.Step(time.Minute)
	for _, o := range k.w.Objects(sim.ObjectFilter{Service: "elasticache"}) {
		t.Errorf("left over: %s %s", o.Kind, o.ID)
	}
}
