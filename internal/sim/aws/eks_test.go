package aws

import (
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/zopday/provisioner/internal/sim"
)

const trustOf = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"SERVICE"},"Action":["sts:AssumeRole","sts:TagSession"]}]}`

// yard is an account with a network that a cluster can stand in, and roles for it.
type yard struct {
	*rig
	eks                    *eks.Client
	ec2                    *ec2.Client
	iam                    *iam.Client
	kms                    *kms.Client
	vpc, gateway, nat, eip string
	public, private        []string // in the zones a and b
	privateTable           string
	clusterRole, nodeRole  string
	podRole, key           string
}

func newYard(t *testing.T, opt sim.Options) *yard { return newYardWith(t, opt, Options{}) }

func newYardWith(t *testing.T, opt sim.Options, cloud Options) *yard {
	t.Helper()
	y := &yard{rig: newRigWith(t, opt, cloud)}
	y.eks, y.ec2, y.iam, y.kms = eks.NewFromConfig(y.cfg), ec2.NewFromConfig(y.cfg), iam.NewFromConfig(y.cfg), kms.NewFromConfig(y.cfg)
	y.layVPC(t)
	y.clusterRole = y.role(t, "cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
	y.nodeRole = y.role(t, "node", "ec2.amazonaws.com", "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
	y.podRole = y.role(t, "pods", "pods.eks.amazonaws.com", "AmazonEKS_CNI_Policy", "service-role/AmazonEBSCSIDriverPolicyV2")
	k := must(y.kms.CreateKey(y.ctx(), &kms.CreateKeyInput{}))(t)
	y.key = *k.KeyMetadata.Arn
	y.w.Step(2 * time.Minute) // the NAT gateway comes up, and IAM spreads
	return y
}

// layVPC makes two public and two private subnets, with a NAT gateway for the private ones.
func (y *yard) layVPC(t *testing.T) {
	t.Helper()
	ctx := y.ctx()
	y.vpc = *must(y.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.20.0.0/16")}))(t).Vpc.VpcId
	y.gateway = *must(y.ec2.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{}))(t).InternetGateway.InternetGatewayId
	must(y.ec2.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: &y.gateway, VpcId: &y.vpc}))(t)
	for i, cidr := range []string{"10.20.0.0/24", "10.20.1.0/24", "10.20.16.0/20", "10.20.32.0/20"} {
		zone := "us-east-1" + []string{"a", "b"}[i%2]
		id := *must(y.ec2.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &y.vpc, CidrBlock: &cidr, AvailabilityZone: &zone}))(t).Subnet.SubnetId
		if i < 2 {
			y.public = append(y.public, id)
		} else {
			y.private = append(y.private, id)
		}
	}
	y.w.Step(10 * time.Second) // all of it is visible by now
	for role, subnets := range map[string][]string{"kubernetes.io/role/elb": y.public, "kubernetes.io/role/internal-elb": y.private} {
		must(y.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: subnets, Tags: []ec2types.Tag{{Key: &role, Value: awssdk.String("1")}}}))(t)
	}
	a := must(y.ec2.AllocateAddress(ctx, &ec2.AllocateAddressInput{Domain: ec2types.DomainTypeVpc}))(t)
	y.eip = *a.PublicIp
	y.nat = *must(y.ec2.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{SubnetId: &y.public[0], AllocationId: a.AllocationId}))(t).NatGateway.NatGatewayId
	y.table(t, y.public, &ec2.CreateRouteInput{GatewayId: &y.gateway})
	y.privateTable = y.table(t, y.private, &ec2.CreateRouteInput{NatGatewayId: &y.nat})
}

// table gives subnets a route table with a default route.
func (y *yard) table(t *testing.T, subnets []string, route *ec2.CreateRouteInput) string {
	t.Helper()
	id := must(y.ec2.CreateRouteTable(y.ctx(), &ec2.CreateRouteTableInput{VpcId: &y.vpc}))(t).RouteTable.RouteTableId
	route.RouteTableId, route.DestinationCidrBlock = id, awssdk.String("0.0.0.0/0")
	must(y.ec2.CreateRoute(y.ctx(), route))(t)
	for _, s := range subnets {
		must(y.ec2.AssociateRouteTable(y.ctx(), &ec2.AssociateRouteTableInput{RouteTableId: id, SubnetId: &s}))(t)
	}
	return *id
}

func (y *yard) role(t *testing.T, name, service string, policies ...string) string {
	t.Helper()
	doc := strings.ReplaceAll(trustOf, "SERVICE", service)
	r := must(y.iam.CreateRole(y.ctx(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &doc}))(t)
	for _, p := range policies {
		must(y.iam.AttachRolePolicy(y.ctx(), &iam.AttachRolePolicyInput{RoleName: &name, PolicyArn: awssdk.String("arn:aws:iam::aws:policy/" + p)}))(t)
	}
	return *r.Role.Arn
}

// clusterInput asks for a hardened cluster.
func (y *yard) clusterInput(name string) *eks.CreateClusterInput {
	return &eks.CreateClusterInput{Name: &name, RoleArn: &y.clusterRole, ClientRequestToken: awssdk.String("token-" + name), DeletionProtection: awssdk.Bool(false),
		ResourcesVpcConfig: &types.VpcConfigRequest{SubnetIds: y.private, EndpointPrivateAccess: awssdk.Bool(true), EndpointPublicAccess: awssdk.Bool(false)},
		Logging:            &types.Logging{ClusterLogging: []types.LogSetup{{Enabled: awssdk.Bool(true), Types: types.LogType("").Values()}}},
		EncryptionConfig:   []types.EncryptionConfig{{Resources: []string{"secrets"}, Provider: &types.Provider{KeyArn: &y.key}}},
		AccessConfig:       &types.CreateAccessConfigRequest{AuthenticationMode: types.AuthenticationModeApi, BootstrapClusterCreatorAdminPermissions: awssdk.Bool(false)},
		UpgradePolicy:      &types.UpgradePolicyRequest{SupportType: types.SupportTypeStandard}, BootstrapSelfManagedAddons: awssdk.Bool(false),
		Tags: map[string]string{"owner": "job-1"}}
}

// cluster makes a cluster and waits until it is active.
func (y *yard) cluster(t *testing.T, name string, change ...func(*eks.CreateClusterInput)) *types.Cluster {
	t.Helper()
	in := y.clusterInput(name)
	for _, f := range change {
		f(in)
	}
	must(y.eks.CreateCluster(y.ctx(), in))(t)
	y.w.Step(10 * time.Minute)
	k := y.describe(t, name)
	if k.Status != types.ClusterStatusActive {
		t.Fatalf("status %s, issues %+v", k.Status, k.Health)
	}
	return k
}

func (y *yard) describe(t *testing.T, name string) *types.Cluster {
	t.Helper()
	return must(y.eks.DescribeCluster(y.ctx(), &eks.DescribeClusterInput{Name: &name}))(t).Cluster
}

// addons makes the add-ons without which no node is ready.
func (y *yard) addons(t *testing.T, cluster string) {
	t.Helper()
	must(y.eks.CreateAddon(y.ctx(), &eks.CreateAddonInput{ClusterName: &cluster, AddonName: awssdk.String("eks-pod-identity-agent")}))(t)
	must(y.eks.CreateAddon(y.ctx(), &eks.CreateAddonInput{ClusterName: &cluster, AddonName: awssdk.String("vpc-cni"), ConfigurationValues: awssdk.String(`{"enableNetworkPolicy":"true"}`),
		PodIdentityAssociations: []types.AddonPodIdentityAssociations{{ServiceAccount: awssdk.String("aws-node"), RoleArn: &y.podRole}}}))(t)
}

func (y *yard) groupInput(cluster, name string) *eks.CreateNodegroupInput {
	return &eks.CreateNodegroupInput{ClusterName: &cluster, NodegroupName: &name, NodeRole: &y.nodeRole, Subnets: y.private, AmiType: types.AMITypesAl2023X8664Standard,
		InstanceTypes: []string{"m6i.large"}, ScalingConfig: &types.NodegroupScalingConfig{MinSize: awssdk.Int32(1), MaxSize: awssdk.Int32(3), DesiredSize: awssdk.Int32(2)},
		Labels: map[string]string{"pool": name}, Taints: []types.Taint{{Key: awssdk.String("dedicated"), Value: awssdk.String("x"), Effect: types.TaintEffectNoSchedule}},
		Tags: map[string]string{"owner": "job-1"}}
}

func (y *yard) nodegroup(t *testing.T, cluster, name string) *types.Nodegroup {
	t.Helper()
	return must(y.eks.DescribeNodegroup(y.ctx(), &eks.DescribeNodegroupInput{ClusterName: &cluster, NodegroupName: &name}))(t).Nodegroup
}

// pool makes a node group and waits until it is active.
func (y *yard) pool(t *testing.T, cluster, name string, change ...func(*eks.CreateNodegroupInput)) *types.Nodegroup {
	t.Helper()
	in := y.groupInput(cluster, name)
	for _, f := range change {
		f(in)
	}
	must(y.eks.CreateNodegroup(y.ctx(), in))(t)
	y.w.Step(4 * time.Minute)
	n := y.nodegroup(t, cluster, name)
	if n.Status != types.NodegroupStatusActive {
		t.Fatalf("status %s, issues %+v", n.Status, n.Health.Issues)
	}
	return n
}

func TestClusterLife(t *testing.T) {
	y := newYard(t, immediate)
	before := y.w.Snapshot()
	made := must(y.eks.CreateCluster(y.ctx(), y.clusterInput("prod")))(t).Cluster
	if made.Status != types.ClusterStatusCreating || made.Endpoint != nil || made.CertificateAuthority.Data != nil {
		t.Fatalf("a new cluster: %+v", made)
	}
	y.w.Step(2 * time.Minute)
	if _, err := y.ec2.DeleteSubnet(y.ctx(), &ec2.DeleteSubnetInput{SubnetId: &y.private[0]}); err == nil {
		t.Fatal("a subnet with an interface of the control plane was deleted")
	}
	y.w.Step(8 * time.Minute)
	k := y.describe(t, "prod")
	if k.Status != types.ClusterStatusActive || !strings.HasPrefix(*k.Endpoint, "https://") || k.CertificateAuthority.Data == nil || k.Identity == nil || *k.Version != "1.35" {
		t.Fatalf("an active cluster: %+v", k)
	}
	if v := k.ResourcesVpcConfig; v.EndpointPublicAccess || !v.EndpointPrivateAccess || v.ClusterSecurityGroupId == nil || *v.VpcId != y.vpc {
		t.Fatalf("its network: %+v", v)
	}
	if *k.EncryptionConfig[0].Provider.KeyArn != y.key || k.AccessConfig.AuthenticationMode != types.AuthenticationModeApi || k.UpgradePolicy.SupportType != types.SupportTypeStandard ||
		len(k.Logging.ClusterLogging) != 1 || len(k.Logging.ClusterLogging[0].Types) != 5 {
		t.Fatalf("its settings: %+v", k)
	}
	y.addons(t, "prod")
	n := y.pool(t, "prod", "workers")
	y.checkInstances(t, n)

	if _, err := y.iam.DeleteRole(y.ctx(), &iam.DeleteRoleInput{RoleName: awssdk.String("node")}); err == nil {
		t.Fatal("the role of the nodes was deleted under them")
	}
	_, err := y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")})
	wantCode(t, err, "ResourceInUseException")
	must(y.eks.DeleteNodegroup(y.ctx(), &eks.DeleteNodegroupInput{ClusterName: awssdk.String("prod"), NodegroupName: n.NodegroupName}))(t)
	y.w.Step(4 * time.Minute)
	_, err = y.eks.DescribeNodegroup(y.ctx(), &eks.DescribeNodegroupInput{ClusterName: awssdk.String("prod"), NodegroupName: n.NodegroupName})
	wantCode(t, err, "ResourceNotFoundException")
	must(y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")}))(t)
	y.w.Step(5 * time.Minute)
	_, err = y.eks.DescribeCluster(y.ctx(), &eks.DescribeClusterInput{Name: awssdk.String("prod")})
	wantCode(t, err, "ResourceNotFoundException")
	y.w.Step(2 * time.Hour) // terminated instances are forgotten
	after := y.w.Snapshot()
	delete(after, "aws/logs/"+testAccount+"/us-east-1/log-group//aws/eks/prod/cluster")
	for key := range after {
		if before[key] == "" && !strings.Contains(key, "AWSServiceRole") {
			t.Errorf("left behind: %s", key)
		}
	}
}

// checkInstances looks at what stands behind a node group.
func (y *yard) checkInstances(t *testing.T, n *types.Nodegroup) {
	t.Helper()
	out := must(y.ec2.DescribeInstances(y.ctx(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{{Name: awssdk.String("tag:eks:nodegroup-name"), Values: []string{*n.NodegroupName}}}}))(t)
	count := 0
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			count++
			if i.MetadataOptions.HttpTokens != ec2types.HttpTokensStateRequired || i.IamInstanceProfile == nil || *i.VpcId != y.vpc {
				t.Errorf("a node: %+v", i)
			}
		}
	}
	if count != 2 || len(n.Resources.AutoScalingGroups) != 1 {
		t.Fatalf("%d instances, resources %+v", count, n.Resources)
	}
}
