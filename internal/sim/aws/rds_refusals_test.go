package aws

import (
	"maps"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/sim"
)

// dbRefusal is a change of a good request, and the code that it is refused with.
type dbRefusal struct {
	code   string
	change func(*rds.CreateDBInstanceInput)
}

const badValue, badCombination = "InvalidParameterValue", "InvalidParameterCombination"

func withPassword(p string) func(*rds.CreateDBInstanceInput) {
	return func(in *rds.CreateDBInstanceInput) { in.ManageMasterUserPassword, in.MasterUserPassword = nil, &p }
}

// dbNameRefusals are about identifiers, users, passwords, versions and classes.
func dbNameRefusals() map[string]dbRefusal {
	text := awssdk.String
	return map[string]dbRefusal{
		"identifier":        {badValue, func(in *rds.CreateDBInstanceInput) { in.DBInstanceIdentifier = text("a--b") }},
		"identifier end":    {badValue, func(in *rds.CreateDBInstanceInput) { in.DBInstanceIdentifier = text("x-") }},
		"identifier digit":  {badValue, func(in *rds.CreateDBInstanceInput) { in.DBInstanceIdentifier = text("1x") }},
		"identifier long":   {badValue, func(in *rds.CreateDBInstanceInput) { in.DBInstanceIdentifier = text(strings.Repeat("a", 64)) }},
		"user hyphen":       {badValue, func(in *rds.CreateDBInstanceInput) { in.MasterUsername = text("rds-admin") }},
		"user admin":        {badValue, func(in *rds.CreateDBInstanceInput) { in.MasterUsername = text("admin") }},
		"user rdsadmin":     {badValue, func(in *rds.CreateDBInstanceInput) { in.MasterUsername = text("rdsadmin") }},
		"password at":       {badValue, withPassword("p@ssword1")},
		"password space":    {badValue, withPassword("a b c d e f")},
		"password cyrillic": {badValue, withPassword("парольпароль")},
		"password short":    {badValue, withPassword("short77")},
		"password long":     {badValue, withPassword(strings.Repeat("p", 129))},
		"password none":     {badValue, func(in *rds.CreateDBInstanceInput) { in.ManageMasterUserPassword = nil }},
		"password both":     {badCombination, func(in *rds.CreateDBInstanceInput) { in.MasterUserPassword = text("password-1") }},
		"engine":            {badValue, func(in *rds.CreateDBInstanceInput) { in.Engine = text("dbase") }},
		"version":           {badCombination, func(in *rds.CreateDBInstanceInput) { in.EngineVersion = text("15.3") }},
		"class":             {badCombination, func(in *rds.CreateDBInstanceInput) { in.DBInstanceClass = text("db.t1.micro") }},
	}
}

// dbSettingRefusals are about storage, windows, logs, and what the instance stands in.
func dbSettingRefusals(foreignGroup string) map[string]dbRefusal {
	text, number, yes := awssdk.String, awssdk.Int32, awssdk.Bool(true)
	return map[string]dbRefusal{
		"storage small": {badCombination, func(in *rds.CreateDBInstanceInput) { in.AllocatedStorage = number(5) }},
		"storage max":   {badCombination, func(in *rds.CreateDBInstanceInput) { in.MaxAllocatedStorage = number(20) }},
		"storage type":  {badValue, func(in *rds.CreateDBInstanceInput) { in.StorageType = text("gp9") }},
		"storage iops":  {badCombination, func(in *rds.CreateDBInstanceInput) { in.Iops = number(4000) }},
		"storage magnetic": {"StorageTypeNotSupported", func(in *rds.CreateDBInstanceInput) {
			in.StorageType, in.DBInstanceClass = text("standard"), text("db.m7g.large")
		}},
		"key":             {"KMSKeyNotAccessibleFault", func(in *rds.CreateDBInstanceInput) { in.KmsKeyId = text("alias/none") }},
		"key without":     {badCombination, func(in *rds.CreateDBInstanceInput) { in.KmsKeyId, in.StorageEncrypted = text("alias/none"), nil }},
		"retention":       {badValue, func(in *rds.CreateDBInstanceInput) { in.BackupRetentionPeriod = number(36) }},
		"window":          {badValue, func(in *rds.CreateDBInstanceInput) { in.PreferredMaintenanceWindow = text("sunday") }},
		"windows overlap": {badValue, func(in *rds.CreateDBInstanceInput) { in.PreferredBackupWindow = text("03:30-04:30") }},
		"logs":            {badCombination, func(in *rds.CreateDBInstanceInput) { in.EnableCloudwatchLogsExports = []string{"slowquery"} }},
		"monitoring":      {badCombination, func(in *rds.CreateDBInstanceInput) { in.MonitoringInterval = number(60) }},
		"insights":        {badCombination, func(in *rds.CreateDBInstanceInput) { in.DatabaseInsightsMode = types.DatabaseInsightsModeAdvanced }},
		"certificate":     {"CertificateNotFound", func(in *rds.CreateDBInstanceInput) { in.CACertificateIdentifier = text("rds-ca-2019") }},
		"extended support": {badCombination, func(in *rds.CreateDBInstanceInput) {
			in.EngineVersion, in.EngineLifecycleSupport, in.DBInstanceClass = text("13.23"), text("open-source-rds-extended-support-disabled"), text("db.t4g.medium")
		}},
		"subnet group":         {"DBSubnetGroupNotFoundFault", func(in *rds.CreateDBInstanceInput) { in.DBSubnetGroupName = text("none") }},
		"security group":       {badValue, func(in *rds.CreateDBInstanceInput) { in.VpcSecurityGroupIds = []string{"sg-0123456789abcdef0"} }},
		"security group VPC":   {"InvalidVPCNetworkStateFault", func(in *rds.CreateDBInstanceInput) { in.VpcSecurityGroupIds = []string{foreignGroup} }},
		"parameter group":      {"DBParameterGroupNotFound", func(in *rds.CreateDBInstanceInput) { in.DBParameterGroupName = text("none") }},
		"parameter family":     {badCombination, func(in *rds.CreateDBInstanceInput) { in.DBParameterGroupName = text("old") }},
		"zone with Multi-AZ":   {badCombination, func(in *rds.CreateDBInstanceInput) { in.MultiAZ, in.AvailabilityZone = yes, text("us-east-1a") }},
		"zone not in group":    {"InvalidVPCNetworkStateFault", func(in *rds.CreateDBInstanceInput) { in.AvailabilityZone = text("us-east-1c") }},
		"database name":        {badValue, func(in *rds.CreateDBInstanceInput) { in.DBName = text("my-db") }},
		"port":                 {badValue, func(in *rds.CreateDBInstanceInput) { in.Port = number(80) }},
		"tag":                  {badValue, func(in *rds.CreateDBInstanceInput) { in.Tags = []types.Tag{{Key: text("aws:x"), Value: text("y")}} }},
		"mysql user too long":  {badValue, func(in *rds.CreateDBInstanceInput) { mysqlInput(in); in.MasterUsername = text("seventeen_letters") }},
		"mysql password long":  {badValue, func(in *rds.CreateDBInstanceInput) { mysqlInput(in); withPassword(strings.Repeat("p", 42))(in) }},
		"mysql insights micro": {badCombination, func(in *rds.CreateDBInstanceInput) { mysqlInput(in); in.DBInstanceClass = text("db.t4g.micro") }},
	}
}

// TestDBInstanceRefusals is what CreateDBInstance says no to, and how.
func TestDBInstanceRefusals(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	other := *must(k.ec2.CreateVpc(k.ctx(), &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.30.0.0/16")}))(t).Vpc.VpcId
	foreign := *must(k.ec2.CreateSecurityGroup(k.ctx(), &ec2.CreateSecurityGroupInput{VpcId: &other, GroupName: awssdk.String("o"), Description: awssdk.String("o")}))(t).GroupId
	must(k.rds.CreateDBParameterGroup(k.ctx(), &rds.CreateDBParameterGroupInput{DBParameterGroupName: awssdk.String("old"), DBParameterGroupFamily: awssdk.String("postgres16"), Description: awssdk.String("d")}))(t)
	refusals := dbNameRefusals()
	maps.Copy(refusals, dbSettingRefusals(foreign))
	for what, x := range refusals {
		t.Run(what, func(t *testing.T) {
			in := dbInput("shop")
			x.change(in)
			_, err := k.rds.CreateDBInstance(k.ctx(), in)
			wantCode(t, err, x.code)
		})
	}
	if n := len(k.w.Objects(sim.ObjectFilter{Kind: "db-instance"})) + len(k.w.Objects(sim.ObjectFilter{Kind: "secret"})); n != 0 {
		t.Errorf("%d objects were made by refused requests", n)
	}
	in := dbInput("shop")
	mysqlInput(in)
	in.MasterUsername = awssdk.String("admin") // fine for MySQL
	must(k.rds.CreateDBInstance(k.ctx(), in))(t)
	_, err := k.rds.CreateDBInstance(k.ctx(), dbInput("SHOP"))
	wantCode(t, err, "DBInstanceAlreadyExists")
	in = dbInput("open")
	in.DBSubnetGroupName, in.PubliclyAccessible = nil, nil
	if db := must(k.rds.CreateDBInstance(k.ctx(), in))(t).DBInstance; *db.DBSubnetGroup.DBSubnetGroupName != "default" || !*db.PubliclyAccessible {
		t.Errorf("without a subnet group: %s, public %v; the default VPC has an internet gateway", *db.DBSubnetGroup.DBSubnetGroupName, *db.PubliclyAccessible)
	}
}

func mysqlInput(in *rds.CreateDBInstanceInput) {
	in.Engine, in.EngineVersion, in.EnableCloudwatchLogsExports = awssdk.String("mysql"), awssdk.String("8.4.8"), []string{"error", "slowquery"}
}

func TestDBQuotasCapacityAndHeldNames(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	fault := func(f sim.Fault) {
		t.Helper()
		if _, err := k.w.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	fault(sim.Fault{Service: "rds", Kind: sim.FaultCapacity})
	_, err := k.rds.CreateDBInstance(k.ctx(), dbInput("a"))
	wantCode(t, err, "InsufficientDBInstanceCapacity")
	k.w.SetQuota("aws", "rds", quotaDBInstances, "", "", 1)
	in := dbInput("a")
	in.BackupRetentionPeriod = awssdk.Int32(0)
	k.made(t, in)
	_, err = k.rds.CreateDBInstance(k.ctx(), dbInput("b"))
	wantCode(t, err, "InstanceQuotaExceeded")
	for _, q := range must(k.rds.DescribeAccountAttributes(k.ctx(), &rds.DescribeAccountAttributesInput{}))(t).AccountQuotas {
		if *q.AccountQuotaName == "DBInstances" && (*q.Used != 1 || *q.Max != 1) {
			t.Errorf("quota %d of %d", *q.Used, *q.Max)
		}
	}
	must(k.rds.DeleteDBInstance(k.ctx(), &rds.DeleteDBInstanceInput{DBInstanceIdentifier: awssdk.String("a"), SkipFinalSnapshot: awssdk.Bool(true)}))(t)
	k.w.Step(15 * time.Minute)
	fault(sim.Fault{Service: "rds", Operation: "CreateDBInstance", Kind: sim.FaultNameHeld})
	_, err = k.rds.CreateDBInstance(k.ctx(), dbInput("a"))
	wantCode(t, err, "DBInstanceAlreadyExists")
	must(k.rds.CreateDBInstance(k.ctx(), dbInput("a")))(t)
}

func TestDBSubnetGroupRefusals(t *testing.T) {
	k := newStock(t, immediate)
	make := func(name string, subnets ...string) error {
		_, err := k.rds.CreateDBSubnetGroup(k.ctx(), &rds.CreateDBSubnetGroupInput{DBSubnetGroupName: &name, DBSubnetGroupDescription: awssdk.String("d"), SubnetIds: subnets})
		return err
	}
	wantCode(t, make("one", k.nets[0]), "DBSubnetGroupDoesNotCoverEnoughAZs")
	wantCode(t, make("none", "subnet-0123456789abcdef0", k.nets[0]), "InvalidParameterValue")
	wantCode(t, make("default", k.nets...), "InvalidParameterValue")
	other := *must(k.ec2.CreateVpc(k.ctx(), &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.30.0.0/16")}))(t).Vpc.VpcId
	far := *must(k.ec2.CreateSubnet(k.ctx(), &ec2.CreateSubnetInput{VpcId: &other, CidrBlock: awssdk.String("10.30.0.0/24"), AvailabilityZone: awssdk.String("us-east-1b")}))(t).Subnet.SubnetId
	wantCode(t, make("two", k.nets[0], far), "InvalidSubnet")
	k.subnetGroup(t, "nets")
	wantCode(t, make("NETS", k.nets...), "DBSubnetGroupAlreadyExists")
	_, err := k.rds.DescribeDBSubnetGroups(k.ctx(), &rds.DescribeDBSubnetGroupsInput{DBSubnetGroupName: awssdk.String("none")})
	wantCode(t, err, "DBSubnetGroupNotFoundFault")
	g := must(k.rds.DescribeDBSubnetGroups(k.ctx(), &rds.DescribeDBSubnetGroupsInput{DBSubnetGroupName: awssdk.String("nets")}))(t).DBSubnetGroups[0]
	if len(g.Subnets) != 2 || *g.VpcId != k.vpc || *g.SubnetGroupStatus != "Complete" {
		t.Errorf("group %+v", g)
	}
}

// TestDBDeletionRules is what DeleteDBInstance says no to.
func TestDBDeletionRules(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	in := dbInput("shop")
	in.DeletionProtection = awssdk.Bool(true)
	must(k.rds.CreateDBInstance(k.ctx(), in))(t)
	remove := func(id string, skip bool, final string) error {
		in := &rds.DeleteDBInstanceInput{DBInstanceIdentifier: &id, SkipFinalSnapshot: &skip, DeleteAutomatedBackups: awssdk.Bool(false)}
		if final != "" {
			in.FinalDBSnapshotIdentifier = &final
		}
		_, err := k.rds.DeleteDBInstance(k.ctx(), in)
		return err
	}
	_, err := k.rds.ModifyDBInstance(k.ctx(), &rds.ModifyDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop"), DeletionProtection: awssdk.Bool(false)})
	wantCode(t, err, "InvalidDBInstanceState") // it is still being created
	k.w.Step(15 * time.Minute)
	wantCode(t, remove("shop", true, ""), "InvalidParameterCombination")
	m := must(k.rds.ModifyDBInstance(k.ctx(), &rds.ModifyDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop"), DeletionProtection: awssdk.Bool(false), ApplyImmediately: awssdk.Bool(true)}))(t)
	if *m.DBInstance.DeletionProtection || *k.db(t, "shop").DBInstanceStatus != "available" {
		t.Error("protection is lifted at once")
	}
	wantCode(t, remove("shop", false, ""), "InvalidParameterCombination")
	wantCode(t, remove("shop", true, "final"), "InvalidParameterCombination")
	wantCode(t, remove("shop", false, "a--b"), "InvalidParameterValue")
	must(k.rds.CreateDBSnapshot(k.ctx(), &rds.CreateDBSnapshotInput{DBInstanceIdentifier: awssdk.String("shop"), DBSnapshotIdentifier: awssdk.String("taken")}))(t)
	wantCode(t, remove("shop", false, "taken"), "DBSnapshotAlreadyExists")
	must(k.rds.CreateDBInstanceReadReplica(k.ctx(), &rds.CreateDBInstanceReadReplicaInput{DBInstanceIdentifier: awssdk.String("reader"), SourceDBInstanceIdentifier: awssdk.String("shop")}))(t)
	wantCode(t, remove("reader", false, "final"), "InvalidParameterCombination") // a replica takes no final snapshot
	k.w.Step(15 * time.Minute)
	if r := k.db(t, "shop").ReadReplicaDBInstanceIdentifiers; len(r) != 1 || r[0] != "reader" {
		t.Errorf("replicas %v", r)
	}
	_, err = k.rds.StopDBInstance(k.ctx(), &rds.StopDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop")})
	wantCode(t, err, "InvalidDBInstanceState")
	if err := remove("reader", false, ""); err != nil {
		t.Error(err)
	}
	if err := remove("shop", false, "final"); err != nil {
		t.Error(err)
	}
	wantCode(t, remove("shop", true, ""), "InvalidDBInstanceState")
	k.w.Step(15 * time.Minute)
	b := must(k.rds.DescribeDBInstanceAutomatedBackups(k.ctx(), &rds.DescribeDBInstanceAutomatedBackupsInput{}))(t).DBInstanceAutomatedBackups
	if len(b) != 1 || *b[0].Status != "retained" || *b[0].DBInstanceIdentifier != "shop" {
		t.Fatalf("backups %+v", b)
	}
	must(k.rds.DeleteDBInstanceAutomatedBackup(k.ctx(), &rds.DeleteDBInstanceAutomatedBackupInput{DbiResourceId: b[0].DbiResourceId}))(t)
	_, err = k.rds.DeleteDBInstanceAutomatedBackup(k.ctx(), &rds.DeleteDBInstanceAutomatedBackupInput{DbiResourceId: b[0].DbiResourceId})
	wantCode(t, err, "DBInstanceAutomatedBackupNotFound")
}

// TestDBFailures: an instance that fails cannot be snapshotted, and can be deleted.
func TestDBFailures(t *testing.T) {
	k := newStock(t, immediate)
	k.subnetGroup(t, "nets")
	if _, err := k.w.AddFault(sim.Fault{Service: "rds", Operation: "CreateDBInstance", Kind: sim.FaultOpFailed, Code: "StorageFailure", Message: "no disk"}); err != nil {
		t.Fatal(err)
	}
	must(k.rds.CreateDBInstance(k.ctx(), dbInput("shop")))(t)
	k.w.Step(15 * time.Minute)
	db := k.db(t, "shop")
	if *db.DBInstanceStatus != "failed" || len(db.StatusInfos) != 1 || !strings.Contains(*db.StatusInfos[0].Message, "no disk") || len(k.noted.open) != 0 {
		t.Errorf("status %s, infos %+v", *db.DBInstanceStatus, db.StatusInfos)
	}
	_, err := k.rds.DeleteDBInstance(k.ctx(), &rds.DeleteDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop"), FinalDBSnapshotIdentifier: awssdk.String("final")})
	wantCode(t, err, "InvalidDBInstanceState")
	must(k.rds.DeleteDBInstance(k.ctx(), &rds.DeleteDBInstanceInput{DBInstanceIdentifier: awssdk.String("shop"), SkipFinalSnapshot: awssdk.Bool(true)}))(t)
	k.w.Step(15 * time.Minute)
	_, err = k.rds.DescribeDBInstances(k.ctx(), &rds.DescribeDBInstancesInput{DBInstanceIdentifier: awssdk.String("shop")})
	wantCode(t, err, "DBInstanceNotFound")

	// A swallowed request leaves nothing, not even a server.
	if _, err := k.w.AddFault(sim.Fault{Service: "rds", Operation: "CreateDBInstance", Kind: sim.FaultSwallow}); err != nil {
		t.Fatal(err)
	}
	must(k.rds.CreateDBInstance(k.ctx(), dbInput("shop")))(t)
	k.w.Step(15 * time.Minute)
	_, err = k.rds.DescribeDBInstances(k.ctx(), &rds.DescribeDBInstancesInput{DBInstanceIdentifier: awssdk.String("shop")})
	wantCode(t, err, "DBInstanceNotFound")
	if len(k.noted.open) != 0 || len(k.w.Objects(sim.ObjectFilter{Kind: "secret"})) != 0 {
		t.Error("a swallowed request left a server or a secret")
	}
}
