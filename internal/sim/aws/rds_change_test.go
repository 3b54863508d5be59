package aws

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/zopday/provisioner/internal/sim"
)

func parameter(name, value string, method types.ApplyMethod) types.Parameter {
	return types.Parameter{ParameterName: &name, ParameterValue: &value, ApplyMethod: method}
}

func (k *stock) setParameters(group string, p ...types.Parameter) error {
	_, err := k.rds.ModifyDBParameterGroup(k.ctx(), &rds.ModifyDBParameterGroupInput{DBParameterGroupName: &group, Parameters: p})
	return err
}

func TestDBParameters(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	create := func(name, family string) error {
		_, err := k.rds.CreateDBParameterGroup(k.ctx(), &rds.CreateDBParameterGroupInput{DBParameterGroupName: &name, DBParameterGroupFamily: &family, Description: awssdk.String("d")})
		return err
	}
	wantCode(t, create("mine", "postgres1"), "InvalidParameterValue")
	if err := create("mine", "postgres17"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, create("mine", "postgres17"), "DBParameterGroupAlreadyExists")
	now, later := types.ApplyMethodImmediate, types.ApplyMethodPendingReboot
	wantCode(t, k.setParameters("mine", parameter("rds.force_tls", "1", now)), "InvalidParameterValue")
	wantCode(t, k.setParameters("mine", parameter("rds.force_ssl", "2", now)), "InvalidParameterValue")
	wantCode(t, k.setParameters("mine", parameter("listen_addresses", "x", later)), "InvalidParameterValue")
	wantCode(t, k.setParameters("mine", parameter("shared_buffers", "100000", now)), "InvalidParameterCombination")
	wantCode(t, k.setParameters("default.postgres17", parameter("rds.force_ssl", "0", now)), "InvalidParameterValue")
	wantCode(t, k.setParameters("none", parameter("rds.force_ssl", "0", now)), "DBParameterGroupNotFound")
	if err := k.setParameters("mine", parameter("log_statement", "ddl", later), parameter("log_min_duration_statement", "1000", later), parameter("shared_preload_libraries", "pg_stat_statements,pgaudit", later)); err != nil {
		t.Fatal(err)
	}
	in := dbInput("shop")
	in.DBParameterGroupName = awssdk.String("mine")
	db := k.made(t, in)
	if s := *db.DBParameterGroups[0].ParameterApplyStatus; s != "in-sync" {
		t.Errorf("parameters that were set before the instance was made are %s", s)
	}
	if !k.noted.only(t).RequireTLS {
		t.Error("rds.force_ssl is on by default since PostgreSQL 15")
	}
	if err := k.setParameters("mine", parameter("shared_buffers", "100000", later)); err != nil {
		t.Fatal(err)
	}
	if s := *k.db(t, "shop").DBParameterGroups[0].ParameterApplyStatus; s != "pending-reboot" {
		t.Errorf("a static parameter of a running instance is %s", s)
	}
	must(k.rds.RebootDBInstance(k.ctx(), &rds.RebootDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop")}))(t)
	k.w.Step(5 * time.Minute)
	if s := *k.db(t, "shop").DBParameterGroups[0].ParameterApplyStatus; s != "in-sync" {
		t.Errorf("after a reboot: %s", s)
	}
	if err := k.setParameters("mine", parameter("rds.force_ssl", "0", now)); err != nil {
		t.Fatal(err)
	}
	if k.noted.only(t).RequireTLS {
		t.Error("rds.force_ssl=0 is dynamic, and the server still requires TLS")
	}
	k.parametersListed(t)
	_, err := k.rds.DeleteDBParameterGroup(k.ctx(), &rds.DeleteDBParameterGroupInput{DBParameterGroupName: awssdk.String("mine")})
	wantCode(t, err, "InvalidDBParameterGroupState")
}

func (k *stock) parametersListed(t *testing.T) {
	t.Helper()
	set := map[string]string{}
	all := 0
	p := rds.NewDescribeDBParametersPaginator(k.rds, &rds.DescribeDBParametersInput{DBParameterGroupName: awssdk.String("mine"), MaxRecords: awssdk.Int32(20)})
	for p.HasMorePages() {
		for _, x := range must(p.NextPage(k.ctx()))(t).Parameters {
			all++
			if *x.Source == "user" {
				set[*x.ParameterName] = *x.ParameterValue
			}
		}
	}
	if all != len(postgresParameters) || len(set) != 5 || set["log_statement"] != "ddl" || set["rds.force_ssl"] != "0" {
		t.Errorf("%d parameters, set %v", all, set)
	}
	user := must(k.rds.DescribeDBParameters(k.ctx(), &rds.DescribeDBParametersInput{DBParameterGroupName: awssdk.String("mine"), Source: awssdk.String("user")}))(t).Parameters
	if len(user) != 5 {
		t.Errorf("%d parameters of the user", len(user))
	}
}

func TestDBModification(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	k.made(t, dbInput("shop"))
	modify := func(in rds.ModifyDBInstanceInput) (*types.DBInstance, error) {
		in.DBInstanceIdentifier = awssdk.String("shop")
		out, err := k.rds.ModifyDBInstance(k.ctx(), &in)
		if err != nil {
			return nil, err
		}
		return out.DBInstance, nil
	}
	refused := func(code string, in rds.ModifyDBInstanceInput) {
		t.Helper()
		_, err := modify(in)
		wantCode(t, err, code)
	}
	refused("InvalidVPCNetworkStateFault", rds.ModifyDBInstanceInput{DBSubnetGroupName: awssdk.String("nets")})
	refused("InvalidParameterValue", rds.ModifyDBInstanceInput{AllocatedStorage: awssdk.Int32(10)})
	refused("InvalidParameterCombination", rds.ModifyDBInstanceInput{EngineVersion: awssdk.String("16.14")})
	refused("InvalidParameterCombination", rds.ModifyDBInstanceInput{EngineVersion: awssdk.String("18.4")})
	refused("InvalidParameterCombination", rds.ModifyDBInstanceInput{DBInstanceClass: awssdk.String("db.x99.large")})
	refused("InvalidParameterCombination", rds.ModifyDBInstanceInput{MasterUserPassword: awssdk.String("long-enough-1")})
	refused("InvalidParameterCombination", rds.ModifyDBInstanceInput{RotateMasterUserPassword: awssdk.Bool(true)})
	db, err := modify(rds.ModifyDBInstanceInput{AllocatedStorage: awssdk.Int32(30), DBInstanceClass: awssdk.String("db.t4g.large")})
	if err != nil {
		t.Fatal(err)
	}
	if *db.AllocatedStorage != 20 || *db.PendingModifiedValues.AllocatedStorage != 30 || *db.PendingModifiedValues.DBInstanceClass != "db.t4g.large" {
		t.Errorf("a change waits for the window: %d, pending %+v", *db.AllocatedStorage, db.PendingModifiedValues)
	}
	k.w.Step(time.Hour)
	if db := k.db(t, "shop"); *db.DBInstanceStatus != "available" || *db.AllocatedStorage != 20 {
		t.Error("the change did not wait")
	}
	if db, err = modify(rds.ModifyDBInstanceInput{ApplyImmediately: awssdk.Bool(true), MultiAZ: awssdk.Bool(true)}); err != nil || *db.DBInstanceStatus != "available" {
		t.Fatalf("the answer shows %v, %v", db, err)
	}
	if s := *k.db(t, "shop").DBInstanceStatus; s != "modifying" {
		t.Errorf("then it is %s", s)
	}
	refused("InvalidDBInstanceState", rds.ModifyDBInstanceInput{DeletionProtection: awssdk.Bool(true)})
	k.w.Step(5 * time.Minute)
	after := k.db(t, "shop")
	if *after.DBInstanceStatus != "available" || *after.AllocatedStorage != 30 || *after.DBInstanceClass != "db.t4g.large" || !*after.MultiAZ || after.PendingModifiedValues.AllocatedStorage != nil || len(k.interfaces(t, "amazon-rds")) != 2 {
		t.Errorf("after: %s %d %s", *after.DBInstanceStatus, *after.AllocatedStorage, *after.DBInstanceClass)
	}
}

func TestDBPasswordRotation(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	db := k.made(t, dbInput("shop"))
	id := db.MasterUserSecret.SecretArn
	password := func() string {
		value := map[string]string{}
		out := must(k.sec.GetSecretValue(k.ctx(), &secretsmanager.GetSecretValueInput{SecretId: id}))(t)
		if err := json.Unmarshal([]byte(*out.SecretString), &value); err != nil {
			t.Fatal(err)
		}
		return value["password"]
	}
	old := password()
	for what, call := range map[string]func() error{
		"delete": func() error {
			_, err := k.sec.DeleteSecret(k.ctx(), &secretsmanager.DeleteSecretInput{SecretId: id, ForceDeleteWithoutRecovery: awssdk.Bool(true)})
			return err
		},
		"put": func() error {
			_, err := k.sec.PutSecretValue(k.ctx(), &secretsmanager.PutSecretValueInput{SecretId: id, SecretString: awssdk.String("x")})
			return err
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s of a secret of RDS was not refused", what)
		} else {
			wantCode(t, err, "InvalidRequestException")
		}
	}
	d := must(k.sec.DescribeSecret(k.ctx(), &secretsmanager.DescribeSecretInput{SecretId: id}))(t)
	if *d.OwningService != "rds" || !*d.RotationEnabled || (*d.Name)[:7] != "rds!db-" {
		t.Errorf("secret %s of %s", *d.Name, *d.OwningService)
	}
	must(k.sec.RotateSecret(k.ctx(), &secretsmanager.RotateSecretInput{SecretId: id}))(t)
	if s := *k.db(t, "shop").MasterUserSecret.SecretStatus; s != "rotating" || password() != old {
		t.Errorf("status %s while it rotates", s)
	}
	k.w.Step(time.Minute)
	if s := *k.db(t, "shop").MasterUserSecret.SecretStatus; s != "active" {
		t.Errorf("status %s after it", s)
	}
	if now := password(); now == old || k.noted.only(t).Password != now {
		t.Error("the server and the secret have different passwords, or the old one")
	}
}

func TestDBStopAndStart(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	k.made(t, dbInput("shop"))
	k.noted.took()
	must(k.rds.StopDBInstance(k.ctx(), &rds.StopDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop")}))(t)
	_, err := k.rds.StopDBInstance(k.ctx(), &rds.StopDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop")})
	wantCode(t, err, "InvalidDBInstanceState")
	k.w.Step(5 * time.Minute)
	if s := *k.db(t, "shop").DBInstanceStatus; s != "stopped" {
		t.Fatalf("status %s", s)
	}
	_, err = k.rds.ModifyDBInstance(k.ctx(), &rds.ModifyDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop"), DeletionProtection: awssdk.Bool(true)})
	wantCode(t, err, "InvalidDBInstanceState")
	must(k.rds.StartDBInstance(k.ctx(), &rds.StartDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop")}))(t)
	k.w.Step(5 * time.Minute)
	if s := *k.db(t, "shop").DBInstanceStatus; s != "available" {
		t.Fatalf("status %s", s)
	}
	if got := k.noted.took(); !slices.Equal(got, []string{"stop", "start"}) {
		t.Errorf("the server was told %v", got)
	}
}

// TestPublicDB: a public instance lets in those that its security groups let in.
func TestPublicDB(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	in := dbInput("shop")
	in.PubliclyAccessible, in.VpcSecurityGroupIds = awssdk.Bool(true), []string{k.group}
	k.made(t, in)
	from := sim.KubeCaller{IP: mustAddr(t, "203.0.113.7")}
	if k.noted.only(t).Admits(from) {
		t.Error("no rule lets the caller in")
	}
	must(k.ec2.AuthorizeSecurityGroupIngress(k.ctx(), &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &k.group, IpPermissions: []ec2types.IpPermission{
		{IpProtocol: awssdk.String("tcp"), FromPort: awssdk.Int32(5432), ToPort: awssdk.Int32(5432), IpRanges: []ec2types.IpRange{{CidrIp: awssdk.String("203.0.113.0/24")}}}}}))(t)
	if !k.noted.only(t).Admits(from) || k.noted.only(t).Admits(sim.KubeCaller{IP: mustAddr(t, "198.51.100.1")}) {
		t.Error("the rule lets in 203.0.113.0/24 alone")
	}
}

func TestDBCatalog(t *testing.T) {
	k := newStock(t, immediate)
	versions := must(k.rds.DescribeDBEngineVersions(k.ctx(), &rds.DescribeDBEngineVersionsInput{Engine: awssdk.String("postgres")}))(t).DBEngineVersions
	has := func(v string) bool {
		return slices.ContainsFunc(versions, func(x types.DBEngineVersion) bool { return *x.EngineVersion == v })
	}
	if !has("18.4") || !has("17.10") || has("15.3") {
		t.Error("offered are the newest, and 15.3 is gone")
	}
	if d := must(k.rds.DescribeDBEngineVersions(k.ctx(), &rds.DescribeDBEngineVersionsInput{Engine: awssdk.String("mysql"), DefaultOnly: awssdk.Bool(true)}))(t).DBEngineVersions; len(d) != 1 || *d[0].EngineVersion != "8.4.8" {
		t.Errorf("defaults %+v", d)
	}
	m := must(k.rds.DescribeDBMajorEngineVersions(k.ctx(), &rds.DescribeDBMajorEngineVersionsInput{Engine: awssdk.String("mysql"), MajorEngineVersion: awssdk.String("8.0")}))(t).DBMajorEngineVersions
	if len(m) != 1 || m[0].SupportedEngineLifecycles[0].LifecycleSupportEndDate.Format("2006-01-02") != "2026-07-31" {
		t.Errorf("life of MySQL 8.0: %+v", m)
	}
	rows, multi := 0, 0
	classes := map[string]bool{}
	p := rds.NewDescribeOrderableDBInstanceOptionsPaginator(k.rds, &rds.DescribeOrderableDBInstanceOptionsInput{Engine: awssdk.String("postgres"), EngineVersion: awssdk.String("17.10")})
	for p.HasMorePages() {
		for _, o := range must(p.NextPage(k.ctx()))(t).OrderableDBInstanceOptions {
			rows++
			classes[*o.DBInstanceClass] = true
			if *o.MultiAZCapable && len(o.AvailabilityZones) > 2 {
				multi++
			}
		}
	}
	if rows < 200 || !classes["db.t4g.micro"] || !classes["db.m8g.large"] || multi != rows {
		t.Errorf("%d options, %d of them Multi-AZ", rows, multi)
	}
	for _, o := range must(k.rds.DescribeOrderableDBInstanceOptions(k.ctx(), &rds.DescribeOrderableDBInstanceOptionsInput{Engine: awssdk.String("postgres"), EngineVersion: awssdk.String("13.23"), DBInstanceClass: awssdk.String("db.m8g.large")}))(t).OrderableDBInstanceOptions {
		t.Errorf("an old version has the newest class: %s", *o.DBInstanceClass)
	}
	_, err := k.rds.DescribeOrderableDBInstanceOptions(k.ctx(), &rds.DescribeOrderableDBInstanceOptionsInput{Engine: awssdk.String("dbase")})
	wantCode(t, err, "InvalidParameterValue")
	if c := must(k.rds.DescribeCertificates(k.ctx(), &rds.DescribeCertificatesInput{}))(t); len(c.Certificates) != 3 || *c.DefaultCertificateForNewLaunches != "rds-ca-rsa2048-g1" {
		t.Errorf("certificates %+v", c)
	}
}
