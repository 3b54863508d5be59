package aws

import (
	"encoding/json"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/zopday/provisioner/internal/sim"
)

// TestStoresOfSomebodyElse: the control API makes and removes datastores behind the product's back.
func TestStoresOfSomebodyElse(t *testing.T) {
	k := newStock(t, immediate)
	c := k.cached(t)
	k.w.Step(time.Minute)
	invoke := func(service, operation, params string) {
		t.Helper()
		var in map[string]any
		if err := json.Unmarshal([]byte(params), &in); err != nil {
			t.Fatal(err)
		}
		k.w.Lock()
		defer k.w.Unlock()
		if _, err := k.cloud.Invoke(service, operation, "", "us-east-1", in); err != nil {
			t.Fatalf("%s: %v", operation, err)
		}
	}
	invoke("rds", "CreateDBSubnetGroup", `{"DBSubnetGroupName": "theirs", "DBSubnetGroupDescription": "d", "SubnetIds": ["`+k.nets[0]+`", "`+k.nets[1]+`"]}`)
	invoke("rds", "CreateDBInstance", `{"DBInstanceIdentifier": "theirs", "Engine": "mysql", "DBInstanceClass": "db.t3.small", "AllocatedStorage": 20, "MasterUsername": "root", "MasterUserPassword": "long-enough-1",
		"DBSubnetGroupName": "theirs", "Tags": [{"Key": "team", "Value": "other"}]}`)
	invoke("elasticache", "CreateReplicationGroup", `{"ReplicationGroupId": "theirs", "ReplicationGroupDescription": "d", "CacheNodeType": "cache.t4g.micro", "CacheSubnetGroupName": "nets"}`)
	invoke("secretsmanager", "CreateSecret", `{"Name": "theirs", "SecretString": "s"}`)
	k.w.Step(15 * time.Minute)
	db := k.db(t, "theirs")
	if *db.DBInstanceStatus != "available" || *db.EngineVersion != "8.4.8" || rdsTags(db.TagList)["team"] != "other" {
		t.Errorf("instance %s %s %v", *db.DBInstanceStatus, *db.EngineVersion, db.TagList)
	}
	if s := *group(t, k, c, "theirs").Status; s != "available" {
		t.Errorf("replication group %s", s)
	}
	if len(k.noted.open) != 2 {
		t.Fatalf("%d servers", len(k.noted.open))
	}
	for _, o := range k.w.Objects(sim.ObjectFilter{}) {
		if o.Name != "theirs" {
			continue
		}
		k.w.Lock()
		for _, s := range []sim.Service{k.cloud.platform.rds, k.cloud.platform.cache, k.cloud.platform.sec} {
			if s.Name() == o.Service {
				if err := s.Remove(o.ID); err != nil {
					t.Errorf("remove %s: %v", o.ID, err)
				}
			}
		}
		k.w.Unlock()
	}
	_, err := k.rds.DescribeDBInstances(k.ctx(), &rds.DescribeDBInstancesInput{DBInstanceIdentifier: awssdk.String("theirs")})
	wantCode(t, err, "DBInstanceNotFound")
	_, err = c.DescribeReplicationGroups(k.ctx(), &elasticache.DescribeReplicationGroupsInput{ReplicationGroupId: awssdk.String("theirs")})
	wantCode(t, err, "ReplicationGroupNotFoundFault")
	_, err = k.sec.GetSecretValue(k.ctx(), &secretsmanager.GetSecretValueInput{SecretId: awssdk.String("theirs")})
	wantCode(t, err, "ResourceNotFoundException")
	if len(k.noted.open) != 0 {
		t.Errorf("%d servers are left", len(k.noted.open))
	}
}

// TestStoresAreSeenLate: fresh objects are not visible at once, to lists later than by identifier; who changes them sees them.
func TestStoresAreSeenLate(t *testing.T) {
	k := newStock(t, sim.Options{ConsistencyByID: 2 * time.Second, ConsistencyByList: 20 * time.Second, EmptyPages: -1, Seed: 7})
	k.w.Step(time.Minute)
	k.subnetGroup(t, "nets")
	must(k.rds.CreateDBInstance(k.ctx(), dbInput("shop")))(t)
	listed := func() bool {
		return len(must(k.rds.DescribeDBInstances(k.ctx(), &rds.DescribeDBInstancesInput{}))(t).DBInstances) == 1
	}
	byID := func() bool {
		_, err := k.rds.DescribeDBInstances(k.ctx(), &rds.DescribeDBInstancesInput{DBInstanceIdentifier: awssdk.String("shop")})
		return err == nil
	}
	if byID() || listed() {
		t.Error("it is seen at once")
	}
	k.w.Step(2 * time.Second)
	if !byID() {
		t.Error("it is not seen by its identifier after two seconds")
	}
	k.w.Step(20 * time.Second)
	if !listed() {
		t.Error("it is not listed after twenty seconds")
	}
}

// TestStoresPages: lists come in pages, some of them empty, and are complete all the same.
func TestStoresPages(t *testing.T) {
	k := newStock(t, sim.Options{ConsistencyByID: -1, ConsistencyByList: -1, EmptyPages: 0.4, PageSize: 2})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		k.subnetGroup(t, name)
		must(k.sec.CreateSecret(k.ctx(), &secretsmanager.CreateSecretInput{Name: &name, SecretString: awssdk.String("s")}))(t)
	}
	groups, pages := 0, 0
	p := rds.NewDescribeDBSubnetGroupsPaginator(k.rds, &rds.DescribeDBSubnetGroupsInput{})
	for p.HasMorePages() {
		groups += len(must(p.NextPage(k.ctx()))(t).DBSubnetGroups)
		pages++
	}
	secrets := 0
	q := secretsmanager.NewListSecretsPaginator(k.sec, &secretsmanager.ListSecretsInput{})
	for q.HasMorePages() {
		secrets += len(must(q.NextPage(k.ctx()))(t).SecretList)
	}
	if groups != 5 || pages < 3 || secrets != 5 {
		t.Errorf("%d groups on %d pages, %d secrets", groups, pages, secrets)
	}
	_, err := k.rds.DescribeDBSubnetGroups(k.ctx(), &rds.DescribeDBSubnetGroupsInput{MaxRecords: awssdk.Int32(5)})
	wantCode(t, err, "InvalidParameterValue")
	_, err = k.rds.DescribeDBSubnetGroups(k.ctx(), &rds.DescribeDBSubnetGroupsInput{Marker: awssdk.String("nonsense")})
	wantCode(t, err, "InvalidParameterValue")
}

// TestSecretWindow: a deleted secret holds its name until its recovery window is over.
func TestSecretWindow(t *testing.T) {
	k := newStock(t, immediate)
	name := awssdk.String("held")
	create := func() error {
		_, err := k.sec.CreateSecret(k.ctx(), &secretsmanager.CreateSecretInput{Name: name, SecretString: awssdk.String("s")})
		return err
	}
	if err := create(); err != nil {
		t.Fatal(err)
	}
	must(k.sec.DeleteSecret(k.ctx(), &secretsmanager.DeleteSecretInput{SecretId: name, RecoveryWindowInDays: awssdk.Int64(7)}))(t)
	_, err := k.sec.GetSecretValue(k.ctx(), &secretsmanager.GetSecretValueInput{SecretId: name})
	wantCode(t, err, "InvalidRequestException")
	wantCode(t, create(), "InvalidRequestException")
	if n := len(must(k.sec.ListSecrets(k.ctx(), &secretsmanager.ListSecretsInput{}))(t).SecretList); n != 0 {
		t.Errorf("%d secrets are listed", n)
	}
	k.w.Step(6 * 24 * time.Hour)
	wantCode(t, create(), "InvalidRequestException")
	k.w.Step(2 * 24 * time.Hour)
	if err := create(); err != nil {
		t.Errorf("after the window: %v", err)
	}
	_, err = k.sec.DeleteSecret(k.ctx(), &secretsmanager.DeleteSecretInput{SecretId: name, RecoveryWindowInDays: awssdk.Int64(3)})
	wantCode(t, err, "InvalidParameterException")
}
