package aws

import (
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/zopday/provisioner/internal/sim"
)

func (y *yard) instanceIDs(t *testing.T, group string) (ids []string) {
	t.Helper()
	out := must(y.ec2.DescribeInstances(y.ctx(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{{Name: awssdk.String("tag:eks:nodegroup-name"), Values: []string{group}},
		{Name: awssdk.String("instance-state-name"), Values: []string{"running", "pending"}}}}))(t)
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			ids = append(ids, *i.InstanceId)
		}
	}
	return ids
}

// ended steps until the creation of a node group has ended, and answers it.
func (y *yard) ended(t *testing.T, cluster, name string) *types.Nodegroup {
	t.Helper()
	for range 30 {
		if n := y.nodegroup(t, cluster, name); n.Status != types.NodegroupStatusCreating {
			return n
		}
		y.w.Step(time.Minute)
	}
	t.Fatal("the creation has no end")
	return nil
}

func TestNodesDoNotJoin(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*testing.T, *yard)
		change  func(*yard, *eks.CreateNodegroupInput)
		message string
	}{
		"a private subnet has no default route": {func(t *testing.T, y *yard) {
			must(y.ec2.DeleteRoute(y.ctx(), &ec2.DeleteRouteInput{RouteTableId: &y.privateTable, DestinationCidrBlock: awssdk.String("0.0.0.0/0")}))(t)
		}, nil, "Instances failed to join the kubernetes cluster"},
		"the role lacks the worker policy": {func(t *testing.T, y *yard) {
			must(y.iam.DetachRolePolicy(y.ctx(), &iam.DetachRolePolicyInput{RoleName: awssdk.String("node"), PolicyArn: awssdk.String("arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy")}))(t)
		}, nil, "Instances failed to join the kubernetes cluster"},
		"there is no network plugin": {func(t *testing.T, y *yard) {
			must(y.eks.DeleteAddon(y.ctx(), &eks.DeleteAddonInput{ClusterName: awssdk.String("prod"), AddonName: awssdk.String("vpc-cni")}))(t)
			y.w.Step(time.Minute)
		}, nil, "Unhealthy nodes in the kubernetes cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t, immediate)
			y.cluster(t, "prod")
			y.addons(t, "prod")
			c.prepare(t, y)
			must(y.eks.CreateNodegroup(y.ctx(), y.groupInput("prod", "workers")))(t)
			n := y.ended(t, "prod", "workers")
			if n.Status != types.NodegroupStatusCreateFailed || len(n.Health.Issues) != 1 || n.Health.Issues[0].Code != types.NodegroupIssueCodeNodeCreationFailure ||
				*n.Health.Issues[0].Message != c.message || len(n.Health.Issues[0].ResourceIds) != 2 {
				t.Fatalf("status %s, issues %+v", n.Status, n.Health.Issues)
			}
			must(y.eks.DeleteNodegroup(y.ctx(), &eks.DeleteNodegroupInput{ClusterName: awssdk.String("prod"), NodegroupName: awssdk.String("workers")}))(t)
			y.w.Step(5 * time.Minute)
			if ids := y.instanceIDs(t, "workers"); len(ids) != 0 {
				t.Errorf("instances %v are left", ids)
			}
		})
	}
}

func TestNodesJoinOnlyWhereTheRouteIs(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	y.addons(t, "prod")
	// One of the two private subnets loses its association, and with it the way out (failure of one in three nodes).
	tables := must(y.ec2.DescribeRouteTables(y.ctx(), &ec2.DescribeRouteTablesInput{RouteTableIds: []string{y.privateTable}}))(t)
	for _, a := range tables.RouteTables[0].Associations {
		if *a.SubnetId == y.private[1] {
			must(y.ec2.DisassociateRouteTable(y.ctx(), &ec2.DisassociateRouteTableInput{AssociationId: a.RouteTableAssociationId}))(t)
		}
	}
	must(y.eks.CreateNodegroup(y.ctx(), y.groupInput("prod", "workers")))(t)
	n := y.ended(t, "prod", "workers")
	if n.Status != types.NodegroupStatusCreateFailed || len(n.Health.Issues[0].ResourceIds) != 1 {
		t.Fatalf("status %s, issues %+v", n.Status, n.Health.Issues)
	}
}

func TestPublicEndpointAndItsRanges(t *testing.T) {
	y := newYard(t, immediate)
	for name, c := range map[string]struct {
		cidr string
		want types.NodegroupStatus
	}{
		"open": {y.eip + "/32", types.NodegroupStatusActive}, "shut": {"198.51.100.0/24", types.NodegroupStatusCreateFailed},
	} {
		y.cluster(t, name, func(in *eks.CreateClusterInput) {
			in.ResourcesVpcConfig.EndpointPrivateAccess, in.ResourcesVpcConfig.EndpointPublicAccess = awssdk.Bool(false), awssdk.Bool(true)
			in.ResourcesVpcConfig.PublicAccessCidrs = []string{c.cidr}
		})
		y.addons(t, name)
		must(y.eks.CreateNodegroup(y.ctx(), y.groupInput(name, "workers")))(t)
		if n := y.ended(t, name, "workers"); n.Status != c.want {
			t.Errorf("%s: status %s, issues %+v", name, n.Status, n.Health.Issues)
		}
	}
}

func TestNodegroupWithoutQuota(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	y.addons(t, "prod")
	y.w.SetQuota("aws", "ec2", quotaVcpus, testAccount, "us-east-1", 2)
	must(y.eks.CreateNodegroup(y.ctx(), y.groupInput("prod", "workers")))(t)
	n := y.ended(t, "prod", "workers")
	if n.Status != types.NodegroupStatusCreateFailed || n.Health.Issues[0].Code != types.NodegroupIssueCodeAsgInstanceLaunchFailures {
		t.Fatalf("status %s, issues %+v", n.Status, n.Health.Issues)
	}
	if text := *n.Health.Issues[0].Message; !strings.Contains(text, "vCPU limit of 2") {
		t.Errorf("message %q", text)
	}
}

func TestNodegroupRefusals(t *testing.T) {
	y := newYard(t, immediate)
	in := y.groupInput("prod", "early")
	_, err := y.eks.CreateNodegroup(y.ctx(), in)
	refusalText(t, "no cluster", err, "ResourceNotFoundException", "No cluster found")
	must(y.eks.CreateCluster(y.ctx(), y.clusterInput("prod")))(t)
	_, err = y.eks.CreateNodegroup(y.ctx(), in)
	refusalText(t, "not active", err, "InvalidRequestException", "ACTIVE")
	y.w.Step(10 * time.Minute)
	template := y.template(t, &ec2types.RequestLaunchTemplateData{IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: awssdk.String("x")}})
	script := y.template(t, &ec2types.RequestLaunchTemplateData{UserData: awssdk.String("IyEvYmluL3NoCg==")})
	plain := y.template(t, &ec2types.RequestLaunchTemplateData{MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "required"}})
	for _, c := range []struct {
		what, code, text string
		change           func(*eks.CreateNodegroupInput)
	}{
		{"type", "InvalidParameterException", "instance types do not exist: [x9.huge]", func(in *eks.CreateNodegroupInput) { in.InstanceTypes = []string{"x9.huge"} }},
		{"architecture", "InvalidParameterException", "[m6g.large] is not a valid instance type for requested amiType", func(in *eks.CreateNodegroupInput) { in.InstanceTypes = []string{"m6g.large"} }},
		{"old image", "InvalidParameterException", "1.32 or earlier", func(in *eks.CreateNodegroupInput) { in.AmiType = types.AMITypesAl2X8664 }},
		{"size", "InvalidParameterException", "can't be greater than", func(in *eks.CreateNodegroupInput) { in.ScalingConfig.DesiredSize = awssdk.Int32(9) }},
		{"role", "InvalidParameterException", "cannot be found", func(in *eks.CreateNodegroupInput) {
			in.NodeRole = awssdk.String("arn:aws:iam::" + testAccount + ":role/nobody")
		}},
		{"trust", "InvalidParameterException", "ec2.amazonaws.com", func(in *eks.CreateNodegroupInput) { in.NodeRole = &y.clusterRole }},
		{"version", "InvalidParameterException", "not compatible", func(in *eks.CreateNodegroupInput) { in.Version = awssdk.String("1.36") }},
		{"label", "InvalidParameterException", "reserved prefixes", func(in *eks.CreateNodegroupInput) { in.Labels = map[string]string{"eks.amazonaws.com/x": "y"} }},
		{"profile in template", "InvalidParameterException", "instance profile", func(in *eks.CreateNodegroupInput) {
			in.LaunchTemplate = &types.LaunchTemplateSpecification{Id: &template}
		}},
		{"script in template", "InvalidRequestException", "MIME multipart", func(in *eks.CreateNodegroupInput) {
			in.LaunchTemplate = &types.LaunchTemplateSpecification{Id: &script}
		}},
		{"disk beside template", "InvalidParameterException", "Disk size must be specified within the launch template", func(in *eks.CreateNodegroupInput) {
			in.LaunchTemplate, in.DiskSize = &types.LaunchTemplateSpecification{Id: &plain}, awssdk.Int32(30)
		}},
	} {
		in := y.groupInput("prod", "refused")
		c.change(in)
		_, err := y.eks.CreateNodegroup(y.ctx(), in)
		refusalText(t, c.what, err, c.code, c.text)
	}
}

func (y *yard) template(t *testing.T, data *ec2types.RequestLaunchTemplateData) string {
	t.Helper()
	name := "t-" + y.w.Hex("", 6)
	return *must(y.ec2.CreateLaunchTemplate(y.ctx(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: &name, LaunchTemplateData: data}))(t).LaunchTemplate.LaunchTemplateId
}

func TestTemplateOfANodegroup(t *testing.T) {
	y := newYard(t, immediate)
	k := y.cluster(t, "prod")
	y.addons(t, "prod")
	lt := y.template(t, &ec2types.RequestLaunchTemplateData{
		MetadataOptions:     &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "required", HttpPutResponseHopLimit: awssdk.Int32(1)},
		BlockDeviceMappings: []ec2types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: awssdk.String("/dev/xvda"), Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{Encrypted: awssdk.Bool(true), VolumeType: "gp3", VolumeSize: awssdk.Int32(50)}}},
		TagSpecifications:   []ec2types.LaunchTemplateTagSpecificationRequest{{ResourceType: "instance", Tags: []ec2types.Tag{{Key: awssdk.String("owner"), Value: awssdk.String("job-1")}}}},
	})
	n := y.pool(t, "prod", "workers", func(in *eks.CreateNodegroupInput) { in.LaunchTemplate = &types.LaunchTemplateSpecification{Id: &lt} })
	if n.LaunchTemplate == nil || *n.LaunchTemplate.Id != lt || *n.LaunchTemplate.Version != "1" {
		t.Errorf("template %+v", n.LaunchTemplate)
	}
	out := must(y.ec2.DescribeInstances(y.ctx(), &ec2.DescribeInstancesInput{InstanceIds: y.instanceIDs(t, "workers")}))(t)
	i := out.Reservations[0].Instances[0]
	tags := map[string]string{}
	for _, tag := range i.Tags {
		tags[*tag.Key] = *tag.Value
	}
	if *i.MetadataOptions.HttpPutResponseHopLimit != 1 || tags["owner"] != "job-1" || tags["kubernetes.io/cluster/prod"] != "owned" || *i.SecurityGroups[0].GroupId != *k.ResourcesVpcConfig.ClusterSecurityGroupId {
		t.Errorf("instance %+v", i)
	}
	volumes := must(y.ec2.DescribeVolumes(y.ctx(), &ec2.DescribeVolumesInput{VolumeIds: []string{*i.BlockDeviceMappings[0].Ebs.VolumeId}}))(t)
	if v := volumes.Volumes[0]; !*v.Encrypted || *v.Size != 50 {
		t.Errorf("volume %+v", v)
	}
}

func TestInterfacesAreLeftBehind(t *testing.T) {
	y := newYard(t, immediate)
	k := y.cluster(t, "prod")
	y.addons(t, "prod")
	y.pool(t, "prod", "workers")
	if _, err := y.w.AddFault(sim.Fault{Service: "eks", Operation: "DeleteNodegroup", Kind: sim.FaultTransition, State: "LEAK_INTERFACES"}); err != nil {
		t.Fatal(err)
	}
	must(y.eks.DeleteNodegroup(y.ctx(), &eks.DeleteNodegroupInput{ClusterName: awssdk.String("prod"), NodegroupName: awssdk.String("workers")}))(t)
	y.w.Step(5 * time.Minute)
	must(y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")}))(t)
	y.w.Step(5 * time.Minute)
	left := must(y.ec2.DescribeNetworkInterfaces(y.ctx(), &ec2.DescribeNetworkInterfacesInput{Filters: []ec2types.Filter{
		{Name: awssdk.String("tag:cluster.k8s.amazonaws.com/name"), Values: []string{"prod"}}, {Name: awssdk.String("status"), Values: []string{"available"}}}}))(t).NetworkInterfaces
	if len(left) != 2 {
		t.Fatalf("%d interfaces are left", len(left))
	}
	_, err := y.ec2.DeleteSecurityGroup(y.ctx(), &ec2.DeleteSecurityGroupInput{GroupId: k.ResourcesVpcConfig.ClusterSecurityGroupId})
	wantCode(t, err, "DependencyViolation")
	for _, n := range left {
		must(y.ec2.DeleteNetworkInterface(y.ctx(), &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: n.NetworkInterfaceId}))(t)
	}
	must(y.ec2.DeleteSecurityGroup(y.ctx(), &ec2.DeleteSecurityGroupInput{GroupId: k.ResourcesVpcConfig.ClusterSecurityGroupId}))(t)
	must(y.ec2.DeleteSubnet(y.ctx(), &ec2.DeleteSubnetInput{SubnetId: &y.private[0]}))(t)
}

func TestNodegroupIsChanged(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	y.addons(t, "prod")
	n := y.pool(t, "prod", "workers")
	name, group := awssdk.String("prod"), awssdk.String("workers")
	must(y.eks.UpdateNodegroupConfig(y.ctx(), &eks.UpdateNodegroupConfigInput{ClusterName: name, NodegroupName: group, ScalingConfig: &types.NodegroupScalingConfig{DesiredSize: awssdk.Int32(3)},
		Labels: &types.UpdateLabelsPayload{AddOrUpdateLabels: map[string]string{"tier": "gold"}, RemoveLabels: []string{"pool"}}, Taints: &types.UpdateTaintsPayload{RemoveTaints: n.Taints}}))(t)
	_, err := y.eks.UpdateNodegroupConfig(y.ctx(), &eks.UpdateNodegroupConfigInput{ClusterName: name, NodegroupName: group})
	refusalText(t, "at once", err, "ResourceInUseException", "in progress")
	_, err = y.eks.DeleteNodegroup(y.ctx(), &eks.DeleteNodegroupInput{ClusterName: name, NodegroupName: group})
	refusalText(t, "deleted", err, "ResourceInUseException", "UPDATING")
	y.w.Step(3 * time.Minute)
	if n = y.nodegroup(t, "prod", "workers"); n.Status != types.NodegroupStatusActive || *n.ScalingConfig.DesiredSize != 3 || len(n.Taints) != 0 || n.Labels["tier"] != "gold" || n.Labels["pool"] != "" {
		t.Errorf("node group %+v", n)
	}
	if ids := y.instanceIDs(t, "workers"); len(ids) != 3 {
		t.Errorf("%d instances", len(ids))
	}
	must(autoscaling.NewFromConfig(y.cfg).SetDesiredCapacity(y.ctx(), &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: n.Resources.AutoScalingGroups[0].Name, DesiredCapacity: awssdk.Int32(2)}))(t)
	y.w.Step(time.Minute)
	if n = y.nodegroup(t, "prod", "workers"); *n.ScalingConfig.DesiredSize != 2 {
		t.Errorf("an autoscaler's size is not seen: %+v", n.ScalingConfig)
	}
	if _, err := y.w.RemoveObject(*n.Resources.AutoScalingGroups[0].Name); err != nil {
		t.Fatal(err)
	}
	y.w.Step(time.Minute)
	if n = y.nodegroup(t, "prod", "workers"); n.Status != types.NodegroupStatusDegraded || n.Health.Issues[0].Code != types.NodegroupIssueCodeAutoScalingGroupNotFound {
		t.Errorf("status %s, issues %+v", n.Status, n.Health.Issues)
	}
}

func TestNodegroupStates(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	y.addons(t, "prod")
	if _, err := y.w.AddFault(sim.Fault{Service: "eks", Operation: "CreateNodegroup", Kind: sim.FaultOpFailed, Code: "InstanceLimitExceeded", Message: "too many"}); err != nil {
		t.Fatal(err)
	}
	must(y.eks.CreateNodegroup(y.ctx(), y.groupInput("prod", "workers")))(t)
	y.w.Step(5 * time.Minute)
	n := y.nodegroup(t, "prod", "workers")
	if n.Status != types.NodegroupStatusCreateFailed || n.Health.Issues[0].Code != types.NodegroupIssueCodeInstanceLimitExceeded {
		t.Fatalf("status %s, issues %+v", n.Status, n.Health.Issues)
	}
	must(y.eks.DeleteNodegroup(y.ctx(), &eks.DeleteNodegroupInput{ClusterName: awssdk.String("prod"), NodegroupName: awssdk.String("workers")}))(t)
	y.w.Step(5 * time.Minute)
	n = y.pool(t, "prod", "workers")
	if _, err := y.w.SetObjectState(*n.NodegroupArn, "", "AccessDenied", "the role was changed"); err != nil {
		t.Fatal(err)
	}
	if n = y.nodegroup(t, "prod", "workers"); n.Status != types.NodegroupStatusDegraded {
		t.Errorf("status %s", n.Status)
	}
	groups := must(autoscaling.NewFromConfig(y.cfg).DescribeAutoScalingGroups(y.ctx(), &autoscaling.DescribeAutoScalingGroupsInput{}))(t).AutoScalingGroups
	if len(groups) != 1 || len(groups[0].Instances) != 2 {
		t.Errorf("groups %+v", groups)
	}
	if _, err := y.w.RemoveObject(*n.NodegroupArn); err != nil {
		t.Fatal(err)
	}
	y.w.Step(2 * time.Minute)
	if ids := y.instanceIDs(t, "workers"); len(ids) != 0 {
		t.Errorf("instances %v are left", ids)
	}
}

func TestSpotNodegroup(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	y.addons(t, "prod")
	y.w.SetQuota("aws", "ec2", quotaVcpus, testAccount, "us-east-1", 0)
	n := y.pool(t, "prod", "workers", func(in *eks.CreateNodegroupInput) { in.CapacityType = types.CapacityTypesSpot })
	out := must(y.ec2.DescribeInstances(y.ctx(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{{Name: awssdk.String("instance-lifecycle"), Values: []string{"spot"}}}}))(t)
	if n.CapacityType != types.CapacityTypesSpot || len(out.Reservations) != 2 {
		t.Errorf("%d Spot Instances", len(out.Reservations))
	}
	y.w.SetQuota("aws", "ec2", quotaSpot, testAccount, "us-east-1", 2)
	must(y.eks.CreateNodegroup(y.ctx(), func() *eks.CreateNodegroupInput {
		in := y.groupInput("prod", "more")
		in.CapacityType = types.CapacityTypesSpot
		return in
	}()))(t)
	if n = y.ended(t, "prod", "more"); n.Status != types.NodegroupStatusCreateFailed || !strings.Contains(*n.Health.Issues[0].Message, "Max spot instance count exceeded") {
		t.Errorf("status %s, issues %+v", n.Status, n.Health.Issues)
	}
}

func TestNodegroupWithoutCapacity(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	y.addons(t, "prod")
	if _, err := y.w.AddFault(sim.Fault{Service: "autoscaling", Operation: "Launch", Kind: sim.FaultCapacity, Match: "m6i.large", Count: -1}); err != nil {
		t.Fatal(err)
	}
	must(y.eks.CreateNodegroup(y.ctx(), y.groupInput("prod", "workers")))(t)
	n := y.ended(t, "prod", "workers")
	if n.Status != types.NodegroupStatusCreateFailed || !strings.Contains(*n.Health.Issues[0].Message, "Could not launch On-Demand Instances. We currently do not have sufficient m6i.large capacity") {
		t.Errorf("status %s, issues %+v", n.Status, n.Health.Issues)
	}
}

// TestNamesAreUsedAgain: what was scheduled for a cluster or node group does not concern the next one of its name.
func TestNamesAreUsedAgain(t *testing.T) {
	y := newYard(t, immediate)
	must(y.eks.CreateCluster(y.ctx(), y.clusterInput("prod")))(t)
	if _, err := y.w.SetObjectState("prod", "FAILED", "InternalFailure", "no luck"); err != nil {
		t.Fatal(err)
	}
	must(y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")}))(t)
	y.w.Step(5 * time.Minute)
	again := y.clusterInput("prod")
	again.ClientRequestToken = awssdk.String("second")
	must(y.eks.CreateCluster(y.ctx(), again))(t)
	y.w.Step(6 * time.Minute) // the first one would be active by now
	if k := y.describe(t, "prod"); k.Status != types.ClusterStatusCreating {
		t.Fatalf("status %s", k.Status)
	}
	y.w.Step(4 * time.Minute)
	y.addons(t, "prod")
	for range 2 {
		y.pool(t, "prod", "workers")
		must(y.eks.DeleteNodegroup(y.ctx(), &eks.DeleteNodegroupInput{ClusterName: awssdk.String("prod"), NodegroupName: awssdk.String("workers")}))(t)
		y.w.Step(4 * time.Minute)
	}
}

// TestNothingHappensByItself: a cluster that nobody touches stays as it is, so that it can be compared.
func TestNothingHappensByItself(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	y.addons(t, "prod")
	y.pool(t, "prod", "workers")
	y.w.Step(5 * time.Minute)
	before := y.w.Snapshot()
	y.w.Step(3 * time.Hour)
	for key, now := range y.w.Snapshot() {
		if before[key] != now {
			t.Errorf("%s was\n%s\nand is\n%s", key, before[key], now)
		}
	}
}
