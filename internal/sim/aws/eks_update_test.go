package aws

import (
	"errors"
	"slices"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/zopday/provisioner/internal/sim"
)

func TestOneUpdateAtATime(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	name := awssdk.String("prod")
	open := &eks.UpdateClusterConfigInput{Name: name, ClientRequestToken: awssdk.String("open"),
		ResourcesVpcConfig: &types.VpcConfigRequest{EndpointPublicAccess: awssdk.Bool(true), PublicAccessCidrs: []string{"203.0.113.7/32"}}}
	u := must(y.eks.UpdateClusterConfig(y.ctx(), open))(t).Update
	if u.Type != types.UpdateTypeEndpointAccessUpdate || u.Status != types.UpdateStatusInProgress || y.describe(t, "prod").Status != types.ClusterStatusUpdating {
		t.Fatalf("the update: %+v", u)
	}
	if same := must(y.eks.UpdateClusterConfig(y.ctx(), open))(t).Update; *same.Id != *u.Id {
		t.Error("the same token began another update")
	}
	_, err := y.eks.UpdateClusterConfig(y.ctx(), &eks.UpdateClusterConfigInput{Name: name, DeletionProtection: awssdk.Bool(true)})
	refusalText(t, "a second one", err, "ResourceInUseException", "Cannot DeletionProtectionUpdate because cluster prod currently has update "+*u.Id+" in progress")
	_, err = y.eks.UpdateClusterConfig(y.ctx(), &eks.UpdateClusterConfigInput{Name: name, DeletionProtection: awssdk.Bool(true), Logging: &types.Logging{}})
	refusalText(t, "two kinds", err, "InvalidParameterException", "Only one type of update")
	y.w.Step(4 * time.Minute)
	if v := y.describe(t, "prod").ResourcesVpcConfig; !v.EndpointPublicAccess || !slices.Equal(v.PublicAccessCidrs, []string{"203.0.113.7/32"}) {
		t.Errorf("access: %+v", v)
	}
	open.ClientRequestToken = nil
	_, err = y.eks.UpdateClusterConfig(y.ctx(), open)
	refusalText(t, "again", err, "InvalidParameterException", "already at the desired configuration")
	must(y.eks.UpdateClusterConfig(y.ctx(), &eks.UpdateClusterConfigInput{Name: name, UpgradePolicy: &types.UpgradePolicyRequest{SupportType: types.SupportTypeExtended}}))(t)
	y.w.Step(time.Minute)
	ids := must(y.eks.ListUpdates(y.ctx(), &eks.ListUpdatesInput{Name: name}))(t).UpdateIds
	if len(ids) != 2 || ids[0] != *u.Id {
		t.Errorf("updates %v", ids)
	}
	_, err = y.eks.DescribeUpdate(y.ctx(), &eks.DescribeUpdateInput{Name: name, UpdateId: awssdk.String("00000000-0000-4000-8000-000000000001")})
	refusalText(t, "no update", err, "ResourceNotFoundException", "No update found")
}

func TestFailedUpdate(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	if _, err := y.w.AddFault(sim.Fault{Service: "eks", Operation: "UpdateClusterConfig", Kind: sim.FaultOpFailed, Code: "EniLimitReached", Message: "no more interfaces"}); err != nil {
		t.Fatal(err)
	}
	u := must(y.eks.UpdateClusterConfig(y.ctx(), &eks.UpdateClusterConfigInput{Name: awssdk.String("prod"), DeletionProtection: awssdk.Bool(true)}))(t).Update
	y.w.Step(time.Minute)
	got := must(y.eks.DescribeUpdate(y.ctx(), &eks.DescribeUpdateInput{Name: awssdk.String("prod"), UpdateId: u.Id}))(t).Update
	if got.Status != types.UpdateStatusFailed || len(got.Errors) != 1 || *got.Errors[0].ErrorMessage != "no more interfaces" {
		t.Fatalf("the update: %+v", got)
	}
	if k := y.describe(t, "prod"); k.Status != types.ClusterStatusActive || *k.DeletionProtection {
		t.Errorf("status %s, protection %v", k.Status, *k.DeletionProtection)
	}
}

func TestUpgrade(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod", func(in *eks.CreateClusterInput) { in.Version = awssdk.String("1.34") })
	y.addons(t, "prod")
	n := y.pool(t, "prod", "workers")
	if *n.Version != "1.34" {
		t.Fatalf("node version %s", *n.Version)
	}
	_, err := y.eks.UpdateClusterVersion(y.ctx(), &eks.UpdateClusterVersionInput{Name: awssdk.String("prod"), Version: awssdk.String("1.36")})
	refusalText(t, "two steps", err, "InvalidParameterException", "Unsupported Kubernetes minor version update from 1.34 to 1.36")
	must(y.eks.UpdateClusterVersion(y.ctx(), &eks.UpdateClusterVersionInput{Name: awssdk.String("prod"), Version: awssdk.String("1.35")}))(t)
	y.w.Step(9 * time.Minute)
	if v := *y.describe(t, "prod").Version; v != "1.35" {
		t.Fatalf("version %s", v)
	}
	before := y.instanceIDs(t, "workers")
	u := must(y.eks.UpdateNodegroupVersion(y.ctx(), &eks.UpdateNodegroupVersionInput{ClusterName: awssdk.String("prod"), NodegroupName: awssdk.String("workers")}))(t).Update
	if y.nodegroup(t, "prod", "workers").Status != types.NodegroupStatusUpdating {
		t.Error("the node group is not updating")
	}
	y.w.Step(15 * time.Minute)
	got := must(y.eks.DescribeUpdate(y.ctx(), &eks.DescribeUpdateInput{Name: awssdk.String("prod"), NodegroupName: awssdk.String("workers"), UpdateId: u.Id}))(t).Update
	if n = y.nodegroup(t, "prod", "workers"); got.Status != types.UpdateStatusSuccessful || *n.Version != "1.35" || n.Status != types.NodegroupStatusActive {
		t.Fatalf("update %+v, node group %+v", got, n)
	}
	for _, id := range y.instanceIDs(t, "workers") {
		if slices.Contains(before, id) {
			t.Errorf("%s was not replaced", id)
		}
	}
}

func TestVersionsFollowTheClock(t *testing.T) {
	y := newYard(t, immediate)
	def := must(y.eks.DescribeClusterVersions(y.ctx(), &eks.DescribeClusterVersionsInput{DefaultOnly: awssdk.Bool(true)}))(t).ClusterVersions
	if len(def) != 1 || !def[0].DefaultVersion || def[0].VersionStatus != types.VersionStatusStandardSupport {
		t.Fatalf("default: %+v", def)
	}
	all := must(y.eks.DescribeClusterVersions(y.ctx(), &eks.DescribeClusterVersionsInput{}))(t).ClusterVersions
	for _, v := range all {
		if status := types.VersionStatus(statusAt(*v.EndOfStandardSupportDate, *v.EndOfExtendedSupportDate, y.w.Now())); status != v.VersionStatus || status == "UNSUPPORTED" {
			t.Errorf("%s: %s, want %s", *v.ClusterVersion, v.VersionStatus, status)
		}
	}
	y.w.Step(365 * 24 * time.Hour)
	later := must(y.eks.DescribeClusterVersions(y.ctx(), &eks.DescribeClusterVersionsInput{}))(t).ClusterVersions
	if len(later) >= len(all) {
		t.Errorf("a year later %d of %d versions are supported", len(later), len(all))
	}
}

func statusAt(standard, extended, now time.Time) string {
	switch {
	case now.Before(standard):
		return "STANDARD_SUPPORT"
	case now.Before(extended):
		return "EXTENDED_SUPPORT"
	}
	return "UNSUPPORTED"
}

func TestLogGroupComesBack(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	logs := cloudwatchlogs.NewFromConfig(y.cfg)
	name := awssdk.String("/aws/eks/prod/cluster")
	exists := func() bool {
		return len(must(logs.DescribeLogGroups(y.ctx(), &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: name}))(t).LogGroups) == 1
	}
	if !exists() {
		t.Fatal("EKS did not make the log group")
	}
	must(y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")}))(t)
	must(logs.DeleteLogGroup(y.ctx(), &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: name}))(t)
	y.w.Step(30 * time.Second)
	if !exists() {
		t.Fatal("late logs did not bring the log group back")
	}
	y.w.Step(5 * time.Minute)
	must(logs.DeleteLogGroup(y.ctx(), &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: name}))(t)
	y.w.Step(time.Minute)
	if exists() {
		t.Error("the log group came back after the cluster had gone")
	}
}

func TestKeyOfALogGroup(t *testing.T) {
	y := newYard(t, immediate)
	logs, name := cloudwatchlogs.NewFromConfig(y.cfg), awssdk.String("/aws/eks/prod/cluster")
	must(logs.CreateLogGroup(y.ctx(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: name}))(t)
	_, err := logs.AssociateKmsKey(y.ctx(), &cloudwatchlogs.AssociateKmsKeyInput{LogGroupName: name, KmsKeyId: &y.key})
	refusalText(t, "a key that does not know of logs", err, "InvalidParameterException", "KMS key does not exist or is not allowed")
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + testAccount + `:root"},"Action":"kms:*","Resource":"*"},
		{"Effect":"Allow","Principal":{"Service":"logs.us-east-1.amazonaws.com"},"Action":["kms:Encrypt*","kms:Decrypt*"],"Resource":"*"}]}`
	must(y.kms.PutKeyPolicy(y.ctx(), &kms.PutKeyPolicyInput{KeyId: &y.key, Policy: &policy}))(t)
	must(logs.AssociateKmsKey(y.ctx(), &cloudwatchlogs.AssociateKmsKeyInput{LogGroupName: name, KmsKeyId: &y.key}))(t)
	if g := must(logs.DescribeLogGroups(y.ctx(), &cloudwatchlogs.DescribeLogGroupsInput{}))(t).LogGroups; len(g) != 1 || awssdk.ToString(g[0].KmsKeyId) != y.key {
		t.Errorf("log groups %+v", g)
	}
	must(logs.DisassociateKmsKey(y.ctx(), &cloudwatchlogs.DisassociateKmsKeyInput{LogGroupName: name}))(t)
}

func TestEncryptionComesLater(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod", func(in *eks.CreateClusterInput) { in.EncryptionConfig = nil })
	want := []types.EncryptionConfig{{Resources: []string{"secrets"}, Provider: &types.Provider{KeyArn: &y.key}}}
	must(y.eks.AssociateEncryptionConfig(y.ctx(), &eks.AssociateEncryptionConfigInput{ClusterName: awssdk.String("prod"), EncryptionConfig: want}))(t)
	y.w.Step(7 * time.Minute)
	if got := y.describe(t, "prod").EncryptionConfig; len(got) != 1 || *got[0].Provider.KeyArn != y.key {
		t.Fatalf("encryption %+v", got)
	}
	_, err := y.eks.AssociateEncryptionConfig(y.ctx(), &eks.AssociateEncryptionConfigInput{ClusterName: awssdk.String("prod"), EncryptionConfig: want})
	var bad *types.InvalidRequestException
	if !errors.As(err, &bad) {
		t.Errorf("a second key: %v", err)
	}
}
