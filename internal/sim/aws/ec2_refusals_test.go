package aws

import (
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// tcp is a rule for one port.
func tcp(port int32, cidr string) []types.IpPermission {
	return []types.IpPermission{{IpProtocol: new("tcp"), FromPort: &port, ToPort: &port, IpRanges: []types.IpRange{{CidrIp: &cidr}}}}
}

// What the real EC2 refuses, with its codes. Each case starts from a network that works.
func TestRefusals(t *testing.T) {
	type refusal struct {
		name, code string
		call       func(ctx context.Context, l *lab, n network) error
	}
	vpc := func(cidr string) func(context.Context, *lab, network) error {
		return func(ctx context.Context, l *lab, _ network) error {
			return second(l.client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: &cidr}))
		}
	}
	subnet := func(cidr, zone string) func(context.Context, *lab, network) error {
		return func(ctx context.Context, l *lab, n network) error {
			return second(l.client.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: &cidr, AvailabilityZone: &zone}))
		}
	}
	tags := func(kv ...string) func(context.Context, *lab, network) error {
		return func(ctx context.Context, l *lab, _ network) error {
			return second(l.client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: new("10.8.0.0/16"), TagSpecifications: tagSpecs("vpc", kv...)}))
		}
	}
	var many []string
	for i := range 51 {
		many = append(many, fmt.Sprint("k", i), "v")
	}
	run := func(change func(*ec2.RunInstancesInput)) func(context.Context, *lab, network) error {
		return func(ctx context.Context, l *lab, n network) error {
			in := &ec2.RunInstancesInput{ImageId: new(l.ubuntu(ctx)), InstanceType: types.InstanceTypeT3Micro, MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), SubnetId: &n.private}
			change(in)
			return second(l.client.RunInstances(ctx, in))
		}
	}
	data := func(n int) *string {
		return new(base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n" + strings.Repeat("#", n-10))))
	}
	for _, tc := range []refusal{
		{"a VPC of /15", "InvalidVpc.Range", vpc("10.0.0.0/15")},
		{"a VPC of /29", "InvalidVpc.Range", vpc("10.0.0.0/29")},
		{"a VPC that is no CIDR", "InvalidParameterValue", vpc("10.0.0/16")},
		{"a VPC with host bits", "", vpc("10.1.2.3/16")},
		{"a subnet outside of the VPC", "InvalidSubnet.Range", subnet("10.1.0.0/24", "us-east-1a")},
		{"a subnet of /29", "InvalidSubnet.Range", subnet("10.0.9.0/29", "us-east-1a")},
		{"a subnet that is there", "InvalidSubnet.Conflict", subnet("10.0.0.128/25", "us-east-1a")},
		{"a subnet in a zone that is not", "InvalidParameterValue", subnet("10.0.9.0/24", "us-east-1z")},
		{"a subnet in a VPC that is not", "InvalidVpcID.NotFound", func(ctx context.Context, l *lab, _ network) error {
			return second(l.client.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: new("vpc-00000000000000000"), CidrBlock: new("10.0.9.0/24")}))
		}},
		{"a tag of AWS's", "InvalidParameterValue", tags("aws:x", "v")},
		{"a tag of AWS's in capitals", "InvalidParameterValue", tags("AWS:x", "v")},
		{"tags that only look like it", "", tags("aws_team", "v", "awsx", "v")},
		{"51 tags", "TagLimitExceeded", tags(many...)},
		{"50 tags", "", tags(many[:100]...)},
		{"a key of 129", "InvalidParameterValue", tags(strings.Repeat("k", 129), "v")},
		{"a value of 257", "InvalidParameterValue", tags("k", strings.Repeat("v", 257))},
		{"a value of 256 that is not ASCII", "", tags("k", strings.Repeat("я", 256))},
		{"the same key twice", "InvalidParameterValue", tags("k", "1", "k", "2")},
		{"tags for another type", "InvalidParameterValue", func(ctx context.Context, l *lab, _ network) error {
			return second(l.client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: new("10.8.0.0/16"), TagSpecifications: tagSpecs("subnet", "a", "b")}))
		}},
		{"a group that is there", "InvalidGroup.Duplicate", func(ctx context.Context, l *lab, n network) error {
			return second(l.client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{VpcId: &n.vpc, GroupName: new("vm"), Description: new("d")}))
		}},
		{"a description that is not ASCII", "InvalidParameterValue", func(ctx context.Context, l *lab, n network) error {
			return second(l.client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{VpcId: &n.vpc, GroupName: new("x"), Description: new("Lambda → Aurora")}))
		}},
		{"the same rule twice", "InvalidPermission.Duplicate", func(ctx context.Context, l *lab, n network) error {
			ok(l.client.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &n.group, IpPermissions: tcp(80, "0.0.0.0/0")}))
			return second(l.client.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &n.group, IpPermissions: tcp(80, "0.0.0.0/0")}))
		}},
		{"revoking a rule that is not there", "InvalidPermission.NotFound", func(ctx context.Context, l *lab, n network) error {
			return second(l.client.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &n.group, IpPermissions: tcp(80, "0.0.0.0/0")}))
		}},
		{"a group that another one refers to", "DependencyViolation", func(ctx context.Context, l *lab, n network) error {
			other := *ok(l.client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{VpcId: &n.vpc, GroupName: new("other"), Description: new("d")})).GroupId
			ok(l.client.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &other, IpPermissions: []types.IpPermission{
				{IpProtocol: new("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &n.group}}}}}))
			return second(l.client.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &n.group}))
		}},
		{"a second gateway", "InvalidParameterValue", func(ctx context.Context, l *lab, n network) error {
			g := *ok(l.client.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
			return second(l.client.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: &g, VpcId: &n.vpc}))
		}},
		{"a gateway attached twice", "Resource.AlreadyAssociated", func(ctx context.Context, l *lab, n network) error {
			return second(l.client.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: &n.igw, VpcId: &n.vpc}))
		}},
		{"detaching what is not attached", "Gateway.NotAttached", func(ctx context.Context, l *lab, n network) error {
			g := *ok(l.client.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
			return second(l.client.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: &g, VpcId: &n.vpc}))
		}},
		{"a subnet with another route table", "Resource.AlreadyAssociated", func(ctx context.Context, l *lab, n network) error {
			return second(l.client.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &n.publicTable, SubnetId: &n.private}))
		}},
		{"a route that is there", "RouteAlreadyExists", func(ctx context.Context, l *lab, n network) error {
			return second(l.client.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &n.privateTable, DestinationCidrBlock: new("0.0.0.0/0"), GatewayId: &n.igw}))
		}},
		{"the same route again", "", func(ctx context.Context, l *lab, n network) error {
			return second(l.client.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &n.privateTable, DestinationCidrBlock: new("0.0.0.0/0"), NatGatewayId: &n.nat}))
		}},
		{"a NAT token with another address", "IdempotentParameterMismatch", func(ctx context.Context, l *lab, n network) error {
			eip := *ok(l.client.AllocateAddress(ctx, &ec2.AllocateAddressInput{})).AllocationId
			return second(l.client.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{SubnetId: &n.public, AllocationId: &eip, ClientToken: new("nat-1")}))
		}},
		{"a NAT gateway without an address", "InvalidAllocationID.NotFound", func(ctx context.Context, l *lab, n network) error {
			return second(l.client.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{SubnetId: &n.public, AllocationId: new("eipalloc-00000000000000000")}))
		}},
		{"a sixth address", "AddressLimitExceeded", func(ctx context.Context, l *lab, _ network) error {
			for range 4 {
				ok(l.client.AllocateAddress(ctx, &ec2.AllocateAddressInput{}))
			}
			return second(l.client.AllocateAddress(ctx, &ec2.AllocateAddressInput{}))
		}},
		{"a template name that is taken", "InvalidLaunchTemplateName.AlreadyExistsException", func(ctx context.Context, l *lab, _ network) error {
			in := &ec2.CreateLaunchTemplateInput{LaunchTemplateName: new("one"), ClientToken: new("a"), LaunchTemplateData: &types.RequestLaunchTemplateData{InstanceType: "t3.micro"}}
			ok(l.client.CreateLaunchTemplate(ctx, in))
			ok(l.client.CreateLaunchTemplate(ctx, in)) // the same token makes no second one
			in.ClientToken = new("b")
			return second(l.client.CreateLaunchTemplate(ctx, in))
		}},
		{"a template with too much user data", "InvalidParameterValue", func(ctx context.Context, l *lab, _ network) error {
			return second(l.client.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: new("one"), LaunchTemplateData: &types.RequestLaunchTemplateData{UserData: data(16385)}}))
		}},
		{"16384 bytes of user data", "", run(func(in *ec2.RunInstancesInput) { in.UserData = data(16384) })},
		{"16385 bytes of user data", "InvalidParameterValue", run(func(in *ec2.RunInstancesInput) { in.UserData = data(16385) })},
		{"user data that is not base64", "InvalidUserData.Malformed", run(func(in *ec2.RunInstancesInput) { in.UserData = new("#!/bin/sh") })},
		{"an image that is not", "InvalidAMIID.NotFound", run(func(in *ec2.RunInstancesInput) { in.ImageId = new("ami-00000000000000000") })},
		{"a type that is not", "InvalidParameterValue", run(func(in *ec2.RunInstancesInput) { in.InstanceType = "t9.mega" })},
		{"a type of another architecture", "InvalidParameterValue", run(func(in *ec2.RunInstancesInput) { in.InstanceType = types.InstanceTypeT4gMicro })},
		{"a key that is not", "InvalidKeyPair.NotFound", run(func(in *ec2.RunInstancesInput) { in.KeyName = new("none") })},
		{"a disk smaller than its image", "InvalidBlockDeviceMapping", run(func(in *ec2.RunInstancesInput) {
			in.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: new("/dev/sda1"), Ebs: &types.EbsBlockDevice{VolumeSize: awssdk.Int32(4)}}}
		})},
		{"more vCPUs than allowed", "VcpuLimitExceeded", run(func(in *ec2.RunInstancesInput) { in.MinCount, in.MaxCount = awssdk.Int32(33), awssdk.Int32(33) })},
		{"an instance profile that is not", "InvalidParameterValue", run(func(in *ec2.RunInstancesInput) {
			in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: new("none")}
		})},
		{"a group of another VPC", "InvalidParameter", func(ctx context.Context, l *lab, n network) error {
			other := l.defaultGroup(ctx, *ok(l.client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: new("10.8.0.0/16")})).Vpc.VpcId)
			return run(func(in *ec2.RunInstancesInput) { in.SecurityGroupIds = []string{*other} })(ctx, l, n)
		}},
		{"a type that a zone does not offer", "Unsupported", func(ctx context.Context, l *lab, n network) error {
			s := *ok(l.client.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: new("10.0.9.0/24"), AvailabilityZone: new("us-east-1e")})).Subnet.SubnetId
			return run(func(in *ec2.RunInstancesInput) { in.SubnetId, in.InstanceType = &s, types.InstanceTypeM7iLarge })(ctx, l, n)
		}},
		{"IMDSv1 where it is forbidden", "HttpTokensEnforced", func(ctx context.Context, l *lab, n network) error {
			ok(l.client.ModifyInstanceMetadataDefaults(ctx, &ec2.ModifyInstanceMetadataDefaultsInput{HttpTokensEnforced: types.DefaultHttpTokensEnforcedStateEnabled}))
			return run(func(in *ec2.RunInstancesInput) {
				in.MetadataOptions = &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateOptional}
			})(ctx, l, n)
		}},
		{"an ID that cannot be one", "InvalidInstanceID.Malformed", func(ctx context.Context, l *lab, _ network) error {
			return second(l.client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"foobar"}}))
		}},
		{"a filter that is not", "InvalidParameterValue", func(ctx context.Context, l *lab, _ network) error {
			return second(l.client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: []types.Filter{{Name: new("colour"), Values: []string{"red"}}}}))
		}},
		{"a dry run", "DryRunOperation", func(ctx context.Context, l *lab, _ network) error {
			return second(l.client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: new("10.8.0.0/16"), DryRun: awssdk.Bool(true)}))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := context.Background()
			l := newLab(t, atOnce)
			if got := code(tc.call(ctx, l, l.build(ctx))); got != tc.code {
				t.Errorf("code %q, want %q", got, tc.code)
			}
		})
	}
}

// Refusals as users have reported them in public issues, with their wording.
func TestReportedWording(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, atOnce)
	n := l.build(ctx)
	id := *ok(l.client.RunInstances(ctx, &ec2.RunInstancesInput{ImageId: new(l.ubuntu(ctx)), InstanceType: "t3.micro", MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), SubnetId: &n.private})).Instances[0].InstanceId
	l.step(10 * time.Second)
	for _, tc := range []struct {
		ref, code, wording string
		err                error
	}{
		{"terraform-aws-modules/terraform-aws-vpc#540", "DependencyViolation", `The vpc 'vpc-\w+' has dependencies and cannot be deleted\.`,
			second(l.client.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &n.vpc}))},
		{"terraform-aws-modules/terraform-aws-vpc#1081", "DependencyViolation", `The subnet 'subnet-\w+' has dependencies and cannot be deleted\.`,
			second(l.client.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &n.private}))},
		{"dspace-group/dspace-reference-architecture-aws#16", "DependencyViolation", `Network vpc-\w+ has some mapped public address\(es\)\. Please unmap those public address\(es\) before detaching the gateway\.`,
			second(l.client.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: &n.igw, VpcId: &n.vpc}))},
		{"hashicorp/terraform-provider-aws#49846", "InvalidVpcID.NotFound", `The vpc ID 'vpc-\w+' does not exist`,
			second(l.client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{VpcId: new("vpc-00000000000000000"), GroupName: new("g"), Description: new("d")}))},
		{"hashicorp/terraform-provider-aws#27516", "InvalidParameterValue", `Value \(vm\) for parameter iamInstanceProfile\.name is invalid\. Invalid IAM Instance Profile name`,
			second(l.client.RunInstances(ctx, &ec2.RunInstancesInput{ImageId: new(l.ubuntu(ctx)), InstanceType: "t3.micro", MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), SubnetId: &n.private,
				IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: new("vm")}}))},
		{"botocore's parser fixtures", "InvalidInstanceID.Malformed", `Invalid id: "foobar"`,
			second(l.client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{"foobar"}}))},
	} {
		if got := code(tc.err); got != tc.code || !regexp.MustCompile(tc.wording).MatchString(fmt.Sprint(tc.err)) {
			t.Errorf("%s: %v, want %s: %s", tc.ref, tc.err, tc.code, tc.wording)
		}
	}
	if s := l.instance(ctx, id).State.Name; s != types.InstanceStateNameRunning {
		t.Errorf("a refused terminate has changed an instance to %s", s)
	}
}
