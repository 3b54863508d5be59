package aws

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/smithy-go"

	"github.com/zopday/provisioner/internal/sim"
)

// refusalText checks the code of a refusal and that its message holds a text.
func refusalText(t *testing.T, what string, err error, code, text string) {
	t.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != code || !strings.Contains(api.ErrorMessage(), text) {
		t.Errorf("%s: %v, want %s with %q", what, err, code, text)
	}
}

func TestClusterRefusals(t *testing.T) {
	y := newYard(t, immediate)
	disabled := *must(y.kms.CreateKey(y.ctx(), &kms.CreateKeyInput{}))(t).KeyMetadata.Arn
	must(y.kms.DisableKey(y.ctx(), &kms.DisableKeyInput{KeyId: &disabled}))(t)
	wrongRole := y.role(t, "wrong", "ec2.amazonaws.com")
	elsewhere := *must(y.ec2.CreateVpc(y.ctx(), &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.30.0.0/16")}))(t).Vpc.VpcId
	foreign := *must(y.ec2.CreateSubnet(y.ctx(), &ec2.CreateSubnetInput{VpcId: &elsewhere, CidrBlock: awssdk.String("10.30.0.0/24"), AvailabilityZone: awssdk.String("us-east-1b")}))(t).Subnet.SubnetId
	full := *must(y.ec2.CreateSubnet(y.ctx(), &ec2.CreateSubnetInput{VpcId: &y.vpc, CidrBlock: awssdk.String("10.20.100.0/28"), AvailabilityZone: awssdk.String("us-east-1b")}))(t).Subnet.SubnetId
	for range 6 {
		must(y.ec2.CreateNetworkInterface(y.ctx(), &ec2.CreateNetworkInterfaceInput{SubnetId: &full}))(t)
	}
	for _, c := range []struct {
		what, code, text string
		change           func(*eks.CreateClusterInput)
	}{
		{"name", "InvalidParameterException", "is invalid", func(in *eks.CreateClusterInput) { in.Name = awssdk.String("-x") }},
		{"one zone", "InvalidParameterException", "at least two different AZs", func(in *eks.CreateClusterInput) {
			in.ResourcesVpcConfig.SubnetIds = []string{y.private[0], y.public[0]}
		}},
		{"no subnet", "InvalidParameterException", "does not exist", func(in *eks.CreateClusterInput) {
			in.ResourcesVpcConfig.SubnetIds = []string{y.private[0], "subnet-00000000000000000"}
		}},
		{"two VPCs", "InvalidParameterException", "same VPC", func(in *eks.CreateClusterInput) { in.ResourcesVpcConfig.SubnetIds = []string{y.private[0], foreign} }},
		{"full subnet", "InvalidParameterException", "free IP addresses", func(in *eks.CreateClusterInput) { in.ResourcesVpcConfig.SubnetIds = []string{y.private[0], full} }},
		{"no endpoint", "InvalidParameterException", "cannot be false", func(in *eks.CreateClusterInput) { in.ResourcesVpcConfig.EndpointPrivateAccess = awssdk.Bool(false) }},
		{"private range", "InvalidParameterException", "10.0.0.0/8", func(in *eks.CreateClusterInput) {
			in.ResourcesVpcConfig.EndpointPublicAccess, in.ResourcesVpcConfig.PublicAccessCidrs = awssdk.Bool(true), []string{"10.0.0.0/8", "198.51.100.0/24"}
		}},
		{"no role", "InvalidParameterException", "could not be assumed", func(in *eks.CreateClusterInput) {
			in.RoleArn = awssdk.String("arn:aws:iam::" + testAccount + ":role/nobody")
		}},
		{"trust", "InvalidParameterException", "could not be assumed", func(in *eks.CreateClusterInput) { in.RoleArn = &wrongRole }},
		{"unknown key", "InvalidParameterException", "The keyArn for encryptionConfig is invalid.", func(in *eks.CreateClusterInput) {
			in.EncryptionConfig[0].Provider.KeyArn = awssdk.String("arn:aws:kms:us-east-1:" + testAccount + ":key/00000000-0000-4000-8000-000000000001")
		}},
		{"disabled key", "InvalidParameterException", "disabled", func(in *eks.CreateClusterInput) { in.EncryptionConfig[0].Provider.KeyArn = &disabled }},
		{"old version", "InvalidParameterException", "unsupported Kubernetes version", func(in *eks.CreateClusterInput) { in.Version = awssdk.String("1.30") }},
		{"future version", "InvalidParameterException", "unsupported Kubernetes version", func(in *eks.CreateClusterInput) { in.Version = awssdk.String("1.99") }},
		{"extended support", "InvalidParameterException", "extended support", func(in *eks.CreateClusterInput) { in.Version = awssdk.String("1.33") }},
		{"Service network", "InvalidParameterException", "overlaps", func(in *eks.CreateClusterInput) {
			in.KubernetesNetworkConfig = &types.KubernetesNetworkConfigRequest{ServiceIpv4Cidr: awssdk.String("10.20.0.0/16")}
		}},
		{"log type", "InvalidParameterException", "log type", func(in *eks.CreateClusterInput) { in.Logging.ClusterLogging[0].Types = []types.LogType{"kubelet"} }},
		{"tags", "InvalidParameterException", "aws:", func(in *eks.CreateClusterInput) { in.Tags = map[string]string{"aws:x": "y"} }},
	} {
		in := y.clusterInput("refused")
		in.ClientRequestToken = nil
		c.change(in)
		_, err := y.eks.CreateCluster(y.ctx(), in)
		refusalText(t, c.what, err, c.code, c.text)
	}
	if out := must(y.eks.ListClusters(y.ctx(), &eks.ListClustersInput{}))(t); len(out.Clusters) != 0 {
		t.Errorf("refused clusters were made: %v", out.Clusters)
	}
	y.w.SetQuota("aws", "eks", quotaClusters, testAccount, "us-east-1", 0)
	_, err := y.eks.CreateCluster(y.ctx(), y.clusterInput("many"))
	refusalText(t, "quota", err, "ResourceLimitExceededException", "Cluster limit exceeded")
}

func TestUnsupportedZoneNamesTheOthers(t *testing.T) {
	y := newYard(t, immediate)
	id := *must(y.ec2.CreateSubnet(y.ctx(), &ec2.CreateSubnetInput{VpcId: &y.vpc, CidrBlock: awssdk.String("10.20.100.0/24"), AvailabilityZone: awssdk.String("us-east-1e")}))(t).Subnet.SubnetId
	in := y.clusterInput("odd")
	in.ResourcesVpcConfig.SubnetIds = []string{y.private[0], id}
	_, err := y.eks.CreateCluster(y.ctx(), in)
	var zones *types.UnsupportedAvailabilityZoneException
	if !errors.As(err, &zones) || !slices.Contains(zones.ValidZones, "us-east-1a") || slices.Contains(zones.ValidZones, "us-east-1e") || awssdk.ToString(zones.ClusterName) != "odd" {
		t.Fatalf("error %v, zones %+v", err, zones)
	}
}

func TestFreshRoleIsNotAssumableYet(t *testing.T) {
	y := newYard(t, sim.Options{EmptyPages: -1})
	fresh := y.role(t, "fresh", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
	in := y.clusterInput("soon")
	in.RoleArn = &fresh
	_, err := y.eks.CreateCluster(y.ctx(), in)
	refusalText(t, "at once", err, "InvalidParameterException", "could not be assumed")
	y.w.Step(15 * time.Second)
	must(y.eks.CreateCluster(y.ctx(), in))(t)
}

func TestClusterTokens(t *testing.T) {
	y := newYard(t, immediate)
	first := must(y.eks.CreateCluster(y.ctx(), y.clusterInput("once")))(t).Cluster
	again := must(y.eks.CreateCluster(y.ctx(), y.clusterInput("once")))(t).Cluster
	if *first.Arn != *again.Arn || !first.CreatedAt.Equal(*again.CreatedAt) {
		t.Errorf("the same token made another cluster")
	}
	other := y.clusterInput("once")
	other.Tags = map[string]string{"owner": "somebody"}
	_, err := y.eks.CreateCluster(y.ctx(), other)
	refusalText(t, "other parameters", err, "InvalidParameterException", "used before")
	other = y.clusterInput("once")
	other.ClientRequestToken = awssdk.String("another")
	_, err = y.eks.CreateCluster(y.ctx(), other)
	refusalText(t, "another token", err, "ResourceInUseException", "Cluster already exists with name: once")

	if _, err := y.w.AddFault(sim.Fault{Service: "eks", Operation: "CreateCluster", Kind: sim.FaultLostReply}); err != nil {
		t.Fatal(err)
	}
	if _, err := y.eks.CreateCluster(y.ctx(), y.clusterInput("lost")); err == nil {
		t.Fatal("the reply was not lost")
	}
	must(y.eks.CreateCluster(y.ctx(), y.clusterInput("lost")))(t)
	if out := must(y.eks.ListClusters(y.ctx(), &eks.ListClustersInput{}))(t); !slices.Equal(out.Clusters, []string{"lost", "once"}) {
		t.Errorf("clusters %v", out.Clusters)
	}
}

func TestDeletionIsRefused(t *testing.T) {
	y := newYard(t, immediate)
	_, err := y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")})
	refusalText(t, "no cluster", err, "ResourceNotFoundException", "No cluster found for name: prod.")
	must(y.eks.CreateCluster(y.ctx(), y.clusterInput("young")))(t)
	_, err = y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("young")})
	refusalText(t, "creating", err, "ResourceInUseException", "in progress")

	y.cluster(t, "prod", func(in *eks.CreateClusterInput) { in.DeletionProtection = awssdk.Bool(true) })
	_, err = y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")})
	refusalText(t, "protected", err, "InvalidRequestException", "deletion protection")
	u := must(y.eks.UpdateClusterConfig(y.ctx(), &eks.UpdateClusterConfigInput{Name: awssdk.String("prod"), DeletionProtection: awssdk.Bool(false)}))(t).Update
	_, err = y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")})
	refusalText(t, "still protected", err, "InvalidRequestException", "deletion protection")
	y.w.Step(20 * time.Second)
	if got := must(y.eks.DescribeUpdate(y.ctx(), &eks.DescribeUpdateInput{Name: awssdk.String("prod"), UpdateId: u.Id}))(t).Update; got.Status != types.UpdateStatusSuccessful {
		t.Fatalf("the update: %+v", got)
	}
	must(y.eks.UpdateClusterConfig(y.ctx(), &eks.UpdateClusterConfigInput{Name: awssdk.String("prod"), Logging: &types.Logging{ClusterLogging: []types.LogSetup{{Enabled: awssdk.Bool(false), Types: []types.LogType{"audit"}}}}}))(t)
	_, err = y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")})
	refusalText(t, "updating", err, "ResourceInUseException", "currently has an update in progress")
	y.w.Step(2 * time.Minute)
	must(y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")}))(t)
	if k := y.describe(t, "prod"); k.Status != types.ClusterStatusDeleting {
		t.Errorf("status %s", k.Status)
	}
}

func TestKeyOfAClusterGoes(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	grants := must(y.kms.ListGrants(y.ctx(), &kms.ListGrantsInput{KeyId: &y.key}))(t).Grants
	if len(grants) != 1 {
		t.Errorf("grants %+v", grants)
	}
	must(y.kms.ScheduleKeyDeletion(y.ctx(), &kms.ScheduleKeyDeletionInput{KeyId: &y.key, PendingWindowInDays: awssdk.Int32(7)}))(t)
	k := y.describe(t, "prod")
	if k.Health == nil || len(k.Health.Issues) != 1 || k.Health.Issues[0].Code != types.ClusterIssueCodeKmsKeyMarkedForDeletion {
		t.Errorf("health %+v", k.Health)
	}
}

func TestClusterFails(t *testing.T) {
	y := newYard(t, immediate)
	if _, err := y.w.AddFault(sim.Fault{Service: "eks", Operation: "CreateCluster", Kind: sim.FaultOpFailed, Code: "InsufficientFreeAddresses", Message: "no room", Seconds: 120}); err != nil {
		t.Fatal(err)
	}
	must(y.eks.CreateCluster(y.ctx(), y.clusterInput("bad")))(t)
	y.w.Step(15 * time.Minute)
	k := y.describe(t, "bad")
	if k.Status != types.ClusterStatusFailed || len(k.Health.Issues) != 1 || *k.Health.Issues[0].Message != "no room" {
		t.Fatalf("status %s, health %+v", k.Status, k.Health)
	}
	must(y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("bad")}))(t)
	y.w.Step(5 * time.Minute)
	if left := y.w.Residue("job-1"); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}
