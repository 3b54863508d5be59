package aws

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/zopday/provisioner/internal/sim"
)

// dbInput asks for a hardened PostgreSQL instance.
func dbInput(id string) *rds.CreateDBInstanceInput {
	return &rds.CreateDBInstanceInput{DBInstanceIdentifier: &id, DBInstanceClass: awssdk.String("db.t4g.medium"), Engine: awssdk.String("postgres"), EngineVersion: awssdk.String("17.10"),
		AllocatedStorage: awssdk.Int32(20), MaxAllocatedStorage: awssdk.Int32(60), StorageType: awssdk.String("gp3"), StorageEncrypted: awssdk.Bool(true), MasterUsername: awssdk.String("zopadmin"),
		ManageMasterUserPassword: awssdk.Bool(true), DBSubnetGroupName: awssdk.String("nets"), PubliclyAccessible: awssdk.Bool(false), BackupRetentionPeriod: awssdk.Int32(7),
		CopyTagsToSnapshot: awssdk.Bool(true), EnableIAMDatabaseAuthentication: awssdk.Bool(true), EnablePerformanceInsights: awssdk.Bool(true),
		EnableCloudwatchLogsExports: []string{"postgresql", "upgrade"}, PreferredMaintenanceWindow: awssdk.String("sun:03:00-sun:04:00"), PreferredBackupWindow: awssdk.String("01:00-02:00"),
		Tags: []types.Tag{{Key: awssdk.String("owner"), Value: awssdk.String("job-1")}}}
}

func (k *stock) subnetGroup(t *testing.T, name string) {
	t.Helper()
	must(k.rds.CreateDBSubnetGroup(k.ctx(), &rds.CreateDBSubnetGroupInput{DBSubnetGroupName: &name, DBSubnetGroupDescription: awssdk.String("d"), SubnetIds: k.nets}))(t)
}

func (k *stock) db(t *testing.T, id string) types.DBInstance {
	t.Helper()
	return must(k.rds.DescribeDBInstances(k.ctx(), &rds.DescribeDBInstancesInput{DBInstanceIdentifier: &id}))(t).DBInstances[0]
}

// made makes an instance and waits until it is available.
func (k *stock) made(t *testing.T, in *rds.CreateDBInstanceInput) types.DBInstance {
	t.Helper()
	must(k.rds.CreateDBInstance(k.ctx(), in))(t)
	k.w.Step(15 * time.Minute)
	db := k.db(t, *in.DBInstanceIdentifier)
	if *db.DBInstanceStatus != statusAvailable {
		t.Fatalf("status %s", *db.DBInstanceStatus)
	}
	return db
}

func TestDBInstanceLife(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	in := dbInput("shop")
	in.VpcSecurityGroupIds = []string{k.group}
	db := must(k.rds.CreateDBInstance(k.ctx(), in))(t).DBInstance
	if *db.DBInstanceStatus != "creating" || db.Endpoint != nil || db.InstanceCreateTime != nil {
		t.Errorf("fresh: %s, endpoint %v", *db.DBInstanceStatus, db.Endpoint)
	}
	if m := db.MasterUserSecret; m == nil || *m.SecretStatus != "creating" {
		t.Fatalf("secret %+v", m)
	}
	k.w.Step(time.Minute)
	if got := k.interfaces(t, "amazon-rds"); len(got) != 1 || *got[0].Description != "RDSNetworkInterface" {
		t.Errorf("interfaces while it is being made: %+v", got)
	}
	if s := *k.db(t, "shop").MasterUserSecret.SecretStatus; s != "active" {
		t.Errorf("secret is %s", s)
	}
	var seen []string
	for range 20 {
		if s := *k.db(t, "shop").DBInstanceStatus; len(seen) == 0 || seen[len(seen)-1] != s {
			seen = append(seen, s)
		}
		k.w.Step(30 * time.Second)
	}
	if want := []string{"creating", "backing-up", "available"}; !slices.Equal(seen, want) {
		t.Errorf("statuses %v, want %v", seen, want)
	}
	got := k.db(t, "shop")
	if *got.Endpoint.Address != "127.0.0.1" || *got.Endpoint.Port != 40001 {
		t.Errorf("endpoint %+v", got.Endpoint)
	}
	server := k.noted.only(t)
	value := map[string]string{}
	secret := must(k.sec.GetSecretValue(k.ctx(), &secretsmanager.GetSecretValueInput{SecretId: got.MasterUserSecret.SecretArn}))(t)
	if err := json.Unmarshal([]byte(*secret.SecretString), &value); err != nil || value["username"] != "zopadmin" || value["password"] != server.Password || server.Password == "" {
		t.Errorf("the secret is not that of the server: %v", err)
	}
	if !server.RequireTLS || server.Engine != "postgres" || server.AdminRole != "rds_superuser" || !strings.HasSuffix(server.Names[0], ".us-east-1.rds.amazonaws.com") {
		t.Errorf("server %s, TLS %v, names %v", server.Engine, server.RequireTLS, server.Names)
	}
	if !server.Admits(sim.KubeCaller{Inside: true}) || server.Admits(sim.KubeCaller{}) {
		t.Error("a private instance admits those inside, and nobody else")
	}
	k.deleted(t)
}

// deleted deletes the instance of TestDBInstanceLife, with a snapshot, and looks at what is left.
func (k *stock) deleted(t *testing.T) {
	t.Helper()
	secret := *k.db(t, "shop").MasterUserSecret.SecretArn
	out := must(k.rds.DeleteDBInstance(k.ctx(), &rds.DeleteDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop"), FinalDBSnapshotIdentifier: awssdk.String("shop-final")}))(t)
	if *out.DBInstance.DBInstanceStatus != "deleting" {
		t.Errorf("status %s", *out.DBInstance.DBInstanceStatus)
	}
	_, err := k.rds.DeleteDBSubnetGroup(k.ctx(), &rds.DeleteDBSubnetGroupInput{DBSubnetGroupName: awssdk.String("nets")})
	wantCode(t, err, "InvalidDBSubnetGroupStateFault")
	for range 100 {
		if _, err = k.rds.DescribeDBInstances(k.ctx(), &rds.DescribeDBInstancesInput{DBInstanceIdentifier: awssdk.String("shop")}); err != nil {
			break
		}
		k.w.Step(10 * time.Second)
	}
	wantCode(t, err, "DBInstanceNotFound")
	if len(k.interfaces(t, "amazon-rds")) != 1 {
		t.Error("the network interface went with the instance; it lingers")
	}
	_, err = k.ec2.DeleteSubnet(k.ctx(), &ec2.DeleteSubnetInput{SubnetId: k.interfaces(t, "amazon-rds")[0].SubnetId})
	wantCode(t, err, "DependencyViolation")
	k.w.Step(3 * time.Minute)
	if len(k.interfaces(t, "amazon-rds")) != 0 || len(k.noted.open) != 0 {
		t.Error("an interface or a server is left")
	}
	n := must(k.rds.DescribeDBSnapshots(k.ctx(), &rds.DescribeDBSnapshotsInput{DBSnapshotIdentifier: awssdk.String("shop-final")}))(t).DBSnapshots[0]
	if *n.Status != "available" || *n.SnapshotType != "manual" || !*n.Encrypted || rdsTags(n.TagList)["owner"] != "job-1" {
		t.Errorf("snapshot %+v", n)
	}
	_, err = k.sec.DescribeSecret(k.ctx(), &secretsmanager.DescribeSecretInput{SecretId: &secret})
	wantCode(t, err, "ResourceNotFoundException")
	groups := must(cloudwatchlogs.NewFromConfig(k.cfg).DescribeLogGroups(k.ctx(), &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: awssdk.String("/aws/rds/instance/shop/")}))(t)
	if len(groups.LogGroups) != 1 {
		t.Errorf("log groups %v: RDS leaves them behind", groups.LogGroups)
	}
	must(k.rds.DeleteDBSubnetGroup(k.ctx(), &rds.DeleteDBSubnetGroupInput{DBSubnetGroupName: awssdk.String("nets")}))(t)
	for _, o := range k.w.Residue("job-1") {
		if o.Kind != "db-snapshot" {
			t.Errorf("left over: %s %s", o.Kind, o.ID)
		}
	}
}
