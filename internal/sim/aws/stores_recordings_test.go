package aws

import (
	"maps"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	ectypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

// The recordings of RDS and ElastiCache are some years old. What is compared is that an answer has every field that the real
// one had, with its type; AWS has added fields since, which are not held against the simulation.

// storesElsewhere are fields of recorded answers that the simulation does not answer, and why.
var storesElsewhere = map[string]string{
	".DBInstance.MonitoringRoleArn string":                           "instances with enhanced monitoring",
	".DBInstances[].MonitoringRoleArn string":                        "instances with enhanced monitoring",
	".DBInstances[].EnhancedMonitoringResourceArn string":            "instances with enhanced monitoring",
	".DBInstance.EnhancedMonitoringResourceArn string":               "instances with enhanced monitoring",
	".DBInstances[].DBClusterIdentifier string":                      "members of Aurora clusters",
	".DBInstances[].PromotionTier number":                            "members of Aurora clusters",
	".DBInstances[].SecondaryAvailabilityZone string":                "Multi-AZ instances; TestDBModification has one",
	".DBInstance.SecondaryAvailabilityZone string":                   "Multi-AZ instances; TestDBModification has one",
	".DBInstance.PendingModifiedValues.EngineVersion string":         "TestDBModification stages other values",
	".DBInstance.PendingModifiedValues.MasterUserPassword string":    "while it is being created",
	".DBInstances[].PendingModifiedValues.MasterUserPassword string": "while it is being created",
	".DBInstance.Iops number":                                        "provisioned storage",
	".DBInstances[].Iops number":                                     "provisioned storage",
	".DBInstances[].ReadReplicaDBInstanceIdentifiers[] string":       "sources of replicas",
	".DBSnapshots[].SourceRegion string":                             "copies from other regions",
	".DBSnapshots[].SourceDBSnapshotIdentifier string":               "copies",
	".ReplicationGroups[].ConfigurationEndpoint.Address string":      "cluster mode enabled",
	".ReplicationGroups[].ConfigurationEndpoint.Port number":         "cluster mode enabled",
	".ReplicationGroups[].NodeGroups[].Slots string":                 "cluster mode enabled",
	".Snapshots[].CacheClusterCreateTime string":                     "snapshots of single clusters",
	".Snapshots[].CacheClusterId string":                             "snapshots of single clusters",
	".Snapshots[].NumCacheNodes number":                              "snapshots of single clusters",
	".Snapshots[].PreferredAvailabilityZone string":                  "snapshots of single clusters",
	".Snapshot.CacheClusterCreateTime string":                        "snapshots of single clusters",
	".Snapshot.CacheClusterId string":                                "snapshots of single clusters",
	".Snapshot.NumCacheNodes number":                                 "snapshots of single clusters",
	".Snapshot.PreferredAvailabilityZone string":                     "snapshots of single clusters",
}

// store is an account with an instance, a snapshot, and a replication group.
type store struct {
	*stock
	cache *elasticache.Client
	group ectypes.ReplicationGroup
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{stock: newStock(t, immediate)}
	s.subnetGroup(t, "nets")
	in := dbInput("shop")
	in.DBName, in.StorageType, in.MaxAllocatedStorage = awssdk.String("shop"), awssdk.String("gp2"), nil
	s.made(t, in)
	must(s.rds.CreateDBParameterGroup(s.ctx(), &rds.CreateDBParameterGroupInput{DBParameterGroupName: awssdk.String("mine"), DBParameterGroupFamily: awssdk.String("postgres17"), Description: awssdk.String("d")}))(t)
	must(s.rds.CreateDBSnapshot(s.ctx(), &rds.CreateDBSnapshotInput{DBInstanceIdentifier: awssdk.String("shop"), DBSnapshotIdentifier: awssdk.String("taken"), Tags: []types.Tag{{Key: awssdk.String("a"), Value: awssdk.String("b")}}}))(t)
	s.cache = s.cached(t)
	s.w.Step(time.Minute)
	must(s.cache.CreateReplicationGroup(s.ctx(), cacheInput("store")))(t)
	s.w.Step(15 * time.Minute)
	must(s.cache.CreateSnapshot(s.ctx(), &elasticache.CreateSnapshotInput{ReplicationGroupId: awssdk.String("store"), SnapshotName: awssdk.String("kept")}))(t)
	must(s.cache.CreateUser(s.ctx(), &elasticache.CreateUserInput{UserId: awssdk.String("app"), UserName: awssdk.String("app"), Engine: awssdk.String("redis"), AccessString: awssdk.String("on ~* +@read"), Passwords: []string{userPassword}}))(t)
	s.w.Step(5 * time.Minute)
	s.group = must(s.cache.DescribeReplicationGroups(s.ctx(), &elasticache.DescribeReplicationGroupsInput{}))(t).ReplicationGroups[0]
	return s
}

// rdsAnswers call the operations of RDS.
func (s *store) rdsAnswers() map[string]func() (any, error) {
	ctx, c, shop := s.ctx(), s.rds, awssdk.String("shop")
	return map[string]func() (any, error){
		"DescribeDBInstances": func() (any, error) { return c.DescribeDBInstances(ctx, &rds.DescribeDBInstancesInput{}) },
		"CreateDBInstance": func() (any, error) {
			in := dbInput("other")
			in.AvailabilityZone, in.MasterUserPassword, in.ManageMasterUserPassword, in.DBName = awssdk.String("us-east-1a"), awssdk.String("long-enough-1"), nil, shop
			return c.CreateDBInstance(ctx, in)
		},
		"DeleteDBInstance": func() (any, error) {
			return c.DeleteDBInstance(ctx, &rds.DeleteDBInstanceInput{DBInstanceIdentifier: shop, SkipFinalSnapshot: awssdk.Bool(true)})
		},
		"ModifyDBInstance": func() (any, error) {
			return c.ModifyDBInstance(ctx, &rds.ModifyDBInstanceInput{DBInstanceIdentifier: shop, AllocatedStorage: awssdk.Int32(30), BackupRetentionPeriod: awssdk.Int32(8), DBInstanceClass: awssdk.String("db.t4g.large")})
		},
		"StopDBInstance": func() (any, error) {
			return c.StopDBInstance(ctx, &rds.StopDBInstanceInput{DBInstanceIdentifier: shop})
		},
		"StartDBInstance": func() (any, error) {
			if _, err := c.StopDBInstance(ctx, &rds.StopDBInstanceInput{DBInstanceIdentifier: shop}); err != nil {
				return nil, err
			}
			s.w.Step(10 * time.Minute)
			return c.StartDBInstance(ctx, &rds.StartDBInstanceInput{DBInstanceIdentifier: shop})
		},
	}
}

// rdsOtherAnswers call the operations on snapshots, parameters and versions.
func (s *store) rdsOtherAnswers() map[string]func() (any, error) {
	ctx, c, shop, taken := s.ctx(), s.rds, awssdk.String("shop"), awssdk.String("taken")
	return map[string]func() (any, error){
		"DescribeDBSnapshots": func() (any, error) { return c.DescribeDBSnapshots(ctx, &rds.DescribeDBSnapshotsInput{}) },
		"CreateDBSnapshot": func() (any, error) {
			return c.CreateDBSnapshot(ctx, &rds.CreateDBSnapshotInput{DBInstanceIdentifier: shop, DBSnapshotIdentifier: awssdk.String("more")})
		},
		"DeleteDBSnapshot": func() (any, error) {
			return c.DeleteDBSnapshot(ctx, &rds.DeleteDBSnapshotInput{DBSnapshotIdentifier: taken})
		},
		"DescribeDBParameterGroups": func() (any, error) {
			return c.DescribeDBParameterGroups(ctx, &rds.DescribeDBParameterGroupsInput{})
		},
		"CreateDBParameterGroup": func() (any, error) {
			return c.CreateDBParameterGroup(ctx, &rds.CreateDBParameterGroupInput{DBParameterGroupName: awssdk.String("new"), DBParameterGroupFamily: awssdk.String("mysql8.4"), Description: awssdk.String("d")})
		},
		"ModifyDBParameterGroup": func() (any, error) {
			return c.ModifyDBParameterGroup(ctx, &rds.ModifyDBParameterGroupInput{DBParameterGroupName: awssdk.String("mine"), Parameters: []types.Parameter{parameter("rds.force_ssl", "1", types.ApplyMethodImmediate)}})
		},
		"DescribeDBEngineVersions": func() (any, error) {
			return c.DescribeDBEngineVersions(ctx, &rds.DescribeDBEngineVersionsInput{Engine: awssdk.String("mysql")})
		},
		"DescribeDBSnapshotAttributes": func() (any, error) {
			if _, err := c.ModifyDBSnapshotAttribute(ctx, &rds.ModifyDBSnapshotAttributeInput{DBSnapshotIdentifier: taken, AttributeName: awssdk.String("restore"), ValuesToAdd: []string{"111122223333"}}); err != nil {
				return nil, err
			}
			return c.DescribeDBSnapshotAttributes(ctx, &rds.DescribeDBSnapshotAttributesInput{DBSnapshotIdentifier: taken})
		},
		"ModifyDBSnapshotAttribute": func() (any, error) {
			return c.ModifyDBSnapshotAttribute(ctx, &rds.ModifyDBSnapshotAttributeInput{DBSnapshotIdentifier: taken, AttributeName: awssdk.String("restore"), ValuesToAdd: []string{"111122223333"}})
		},
		"ListTagsForResource": func() (any, error) {
			return c.ListTagsForResource(ctx, &rds.ListTagsForResourceInput{ResourceName: awssdk.String("arn:aws:rds:us-east-1:" + testAccount + ":snapshot:taken")})
		},
		"DescribeDBInstances DBInstanceNotFound": func() (any, error) {
			return c.DescribeDBInstances(ctx, &rds.DescribeDBInstancesInput{DBInstanceIdentifier: awssdk.String("example")})
		},
		"DescribeDBParameterGroups DBParameterGroupNotFound": func() (any, error) {
			return c.DescribeDBParameterGroups(ctx, &rds.DescribeDBParameterGroupsInput{DBParameterGroupName: awssdk.String("pg-test")})
		},
	}
}

// cacheAnswers call the operations of ElastiCache.
func (s *store) cacheAnswers() map[string]func() (any, error) {
	ctx, c, store := s.ctx(), s.cache, awssdk.String("store")
	tag := []ectypes.Tag{{Key: awssdk.String("a"), Value: awssdk.String("b")}}
	return map[string]func() (any, error){
		"DescribeReplicationGroups": func() (any, error) {
			return c.DescribeReplicationGroups(ctx, &elasticache.DescribeReplicationGroupsInput{})
		},
		"DeleteReplicationGroup": func() (any, error) {
			return c.DeleteReplicationGroup(ctx, &elasticache.DeleteReplicationGroupInput{ReplicationGroupId: store})
		},
		"DescribeCacheClusters": func() (any, error) { return c.DescribeCacheClusters(ctx, &elasticache.DescribeCacheClustersInput{}) },
		"DescribeUsers":         func() (any, error) { return c.DescribeUsers(ctx, &elasticache.DescribeUsersInput{}) },
		"ModifyUser": func() (any, error) {
			return c.ModifyUser(ctx, &elasticache.ModifyUserInput{UserId: awssdk.String("app"), AccessString: awssdk.String("on +@all"), Passwords: []string{userPassword}})
		},
		"DescribeCacheSubnetGroups": func() (any, error) {
			return c.DescribeCacheSubnetGroups(ctx, &elasticache.DescribeCacheSubnetGroupsInput{})
		},
		"DescribeSnapshots": func() (any, error) { return c.DescribeSnapshots(ctx, &elasticache.DescribeSnapshotsInput{}) },
		"DeleteSnapshot": func() (any, error) {
			return c.DeleteSnapshot(ctx, &elasticache.DeleteSnapshotInput{SnapshotName: awssdk.String("kept")})
		},
		"ListTagsForResource": func() (any, error) {
			return c.ListTagsForResource(ctx, &elasticache.ListTagsForResourceInput{ResourceName: s.group.ARN})
		},
		"AddTagsToResource": func() (any, error) {
			return c.AddTagsToResource(ctx, &elasticache.AddTagsToResourceInput{ResourceName: s.group.ARN, Tags: tag})
		},
	}
}

func TestRecordedStores(t *testing.T) {
	used := map[string]bool{}
	for _, service := range []string{"rds", "elasticache"} {
		var rec struct{ Calls []placeboCall }
		readRecording(t, service+"/placebo.json", &rec)
		for _, call := range rec.Calls {
			t.Run(service+"/"+call.Operation+"/"+call.Scenario, func(t *testing.T) {
				s := newStore(t)
				answers := s.rdsAnswers()
				maps.Copy(answers, s.rdsOtherAnswers())
				if service == "elasticache" {
					answers = s.cacheAnswers()
				}
				if call.Status != 200 {
					want := call.Data["Error"].(map[string]any)
					_, err := answers[call.Operation+" "+want["Code"].(string)]()
					checkRefusal(t, err, call.Status, want["Code"].(string), want["Message"].(string))
					return
				}
				answer, err := answers[call.Operation]()
				if err != nil {
					t.Fatal(err)
				}
				got, want := map[string]bool{}, map[string]bool{}
				paths(document(t, answer), "", got)
				paths(call.Data, "", want)
				for _, p := range sortedKeys(want) {
					if got[p] {
						continue
					}
					if used[p] = true; storesElsewhere[p] == "" {
						t.Errorf("the real answer has%s, the simulated one has not", p)
					}
				}
			})
		}
	}
	for _, p := range sortedKeys(storesElsewhere) {
		if !used[p] {
			t.Errorf("%s is no difference", p)
		}
	}
}
