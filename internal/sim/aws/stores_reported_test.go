package aws

import (
	"errors"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/smithy-go"
)

// provocations make what users have reported happen.
func (s *store) provocations(t *testing.T) map[string]func() error {
	t.Helper()
	ctx, c := s.ctx(), s.rds
	shop, nets := awssdk.String("shop"), awssdk.String("nets")
	return map[string]func() error{
		"DeleteDBSubnetGroup in use": func() error {
			_, err := c.DeleteDBSubnetGroup(ctx, &rds.DeleteDBSubnetGroupInput{DBSubnetGroupName: nets})
			return err
		},
		"StopDBInstance in another state than available": func() error {
			in := dbInput("young")
			if _, err := c.CreateDBInstance(ctx, in); err != nil {
				return err
			}
			_, err := c.StopDBInstance(ctx, &rds.StopDBInstanceInput{DBInstanceIdentifier: in.DBInstanceIdentifier})
			return err
		},
		"CreateDBSubnetGroup with unknown subnets": func() error {
			_, err := c.CreateDBSubnetGroup(ctx, &rds.CreateDBSubnetGroupInput{DBSubnetGroupName: awssdk.String("x"), DBSubnetGroupDescription: shop, SubnetIds: []string{"subnet-0aaaaaaaaaaaaaaaa"}})
			return err
		},
		"ModifyDBInstance with the subnet group it already has": func() error {
			_, err := c.ModifyDBInstance(ctx, &rds.ModifyDBInstanceInput{DBInstanceIdentifier: shop, DBSubnetGroupName: nets})
			return err
		},
		"ModifyDBInstance to another subnet group of the same VPC": func() error {
			s.subnetGroup(t, "others")
			_, err := c.ModifyDBInstance(ctx, &rds.ModifyDBInstanceInput{DBInstanceIdentifier: shop, DBSubnetGroupName: awssdk.String("others")})
			return err
		},
		"ListTagsForResource or AddTags while the group is not available": func() error {
			in := cacheInput("young")
			in.NumCacheClusters, in.AutomaticFailoverEnabled, in.MultiAZEnabled = awssdk.Int32(1), nil, nil
			g, err := s.cache.CreateReplicationGroup(ctx, in)
			if err != nil {
				return err
			}
			_, err = s.cache.ListTagsForResource(ctx, &elasticache.ListTagsForResourceInput{ResourceName: g.ReplicationGroup.ARN})
			return err
		},
		"ModifyReplicationGroup while not available": func() error {
			_, err := s.cache.ModifyReplicationGroup(ctx, &elasticache.ModifyReplicationGroupInput{ReplicationGroupId: awssdk.String("young")})
			return err
		},
		"DeleteCacheCluster of the only member of a replication group": func() error {
			s.w.Step(15 * time.Minute)
			_, err := s.cache.DeleteCacheCluster(ctx, &elasticache.DeleteCacheClusterInput{CacheClusterId: awssdk.String("young-001")})
			return err
		},
	}
}

// TestReportedRefusals provokes what users have reported of RDS and ElastiCache, and compares code and wording.
func TestReportedRefusals(t *testing.T) {
	var rec struct {
		Reports []struct{ Service, When, Code, Message, Ref string }
	}
	readRecording(t, "rds/reported.json", &rec)
	s := newStore(t)
	provoke := s.provocations(t)
	for _, r := range rec.Reports {
		f := provoke[r.When]
		if f == nil {
			t.Errorf("no way to provoke %q", r.When)
			continue
		}
		err := f()
		wantCode(t, err, r.Code)
		if want := pattern(r.Message); !want.MatchString(messageOf(err)) {
			t.Errorf("%s: message %q, want %q (%s)", r.When, messageOf(err), r.Message, r.Ref)
		}
	}
}

// messageOf is the message of a refusal.
func messageOf(err error) string {
	var refusal smithy.APIError
	if errors.As(err, &refusal) {
		return refusal.ErrorMessage()
	}
	return err.Error()
}
