package aws

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/sim"
)

// network is a VPC with a public and a private subnet and a way out.
type network struct {
	vpc, public, private, igw, nat, eip, publicTable, privateTable, group string
}

// build makes a network, up to the NAT gateway being available.
func (l *lab) build(ctx context.Context) network {
	var n network
	c := l.client
	n.vpc = *ok(c.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.0.0.0/16"), TagSpecifications: tagSpecs("vpc", "owner", "job-1")})).Vpc.VpcId
	n.public = *ok(c.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: awssdk.String("10.0.0.0/24"), AvailabilityZone: awssdk.String("us-east-1a")})).Subnet.SubnetId
	n.private = *ok(c.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: awssdk.String("10.0.1.0/24"), AvailabilityZone: awssdk.String("us-east-1a")})).Subnet.SubnetId
	n.igw = *ok(c.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
	ok(c.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: &n.igw, VpcId: &n.vpc}))
	n.publicTable = *ok(c.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &n.vpc})).RouteTable.RouteTableId
	ok(c.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &n.publicTable, DestinationCidrBlock: awssdk.String("0.0.0.0/0"), GatewayId: &n.igw}))
	ok(c.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &n.publicTable, SubnetId: &n.public}))
	n.eip = *ok(c.AllocateAddress(ctx, &ec2.AllocateAddressInput{Domain: types.DomainTypeVpc})).AllocationId
	nat := ok(c.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{SubnetId: &n.public, AllocationId: &n.eip, ClientToken: awssdk.String("nat-1")})).NatGateway
	n.nat = *nat.NatGatewayId
	if nat.State != types.NatGatewayStatePending {
		l.Errorf("NAT gateway is %s at first, want pending", nat.State)
	}
	n.privateTable = *ok(c.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &n.vpc})).RouteTable.RouteTableId
	ok(c.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &n.privateTable, DestinationCidrBlock: awssdk.String("0.0.0.0/0"), NatGatewayId: &n.nat}))
	ok(c.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &n.privateTable, SubnetId: &n.private}))
	n.group = *ok(c.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{VpcId: &n.vpc, GroupName: awssdk.String("vm"), Description: awssdk.String("machines")})).GroupId
	l.step(2 * time.Minute)
	if got := l.natState(ctx, n.nat); got != types.NatGatewayStateAvailable {
		l.Fatalf("NAT gateway is %s after two minutes, want available", got)
	}
	return n
}

func (l *lab) natState(ctx context.Context, id string) types.NatGatewayState {
	return ok(l.client.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{NatGatewayIds: []string{id}})).NatGateways[0].State
}

func (l *lab) instance(ctx context.Context, id string) types.Instance {
	return ok(l.client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})).Reservations[0].Instances[0]
}

func (l *lab) ubuntu(ctx context.Context) string {
	return *ok(l.client.DescribeImages(ctx, &ec2.DescribeImagesInput{Owners: []string{canonical}, Filters: []types.Filter{
		{Name: awssdk.String("name"), Values: []string{"ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*"}}}})).Images[0].ImageId
}

const touchSentinel = "#!/bin/sh\nset -e\napt-get update\napt-get install -y docker.io\ndocker network create web\n" +
	"docker run -d --name web --network web -p 80:80 nginx:1.30\nmkdir -p /var/lib/zopday\ntouch /var/lib/zopday/bootstrap-complete\n"

// A whole environment comes up in its order, is refused to be taken down out of order, and leaves nothing when it is taken
// down rightly.
func TestEnvironmentLife(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, atOnce)
	before := l.world.Snapshot()
	n := l.build(ctx)
	withNetwork := l.world.Snapshot()
	c := l.client
	data := base64.StdEncoding.EncodeToString([]byte(touchSentinel))
	lt := *ok(c.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: awssdk.String("vm-template"), LaunchTemplateData: &types.RequestLaunchTemplateData{
		ImageId: awssdk.String(l.ubuntu(ctx)), InstanceType: types.InstanceTypeT3Medium, UserData: &data, SecurityGroupIds: []string{n.group},
		MetadataOptions:     &types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: types.LaunchTemplateHttpTokensStateRequired, HttpPutResponseHopLimit: awssdk.Int32(1)},
		BlockDeviceMappings: []types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: awssdk.String("/dev/sda1"), Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: awssdk.Int32(30), VolumeType: types.VolumeTypeGp3, Encrypted: awssdk.Bool(true)}}},
		TagSpecifications:   []types.LaunchTemplateTagSpecificationRequest{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: awssdk.String("from"), Value: awssdk.String("template")}}}},
	}})).LaunchTemplate.LaunchTemplateId
	run := &ec2.RunInstancesInput{LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: &lt, Version: awssdk.String("$Latest")}, MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
		SubnetId: &n.private, ClientToken: awssdk.String("vm-1"), TagSpecifications: tagSpecs("instance", "Name", "vm-1", "owner", "job-1")}
	first := ok(c.RunInstances(ctx, run)).Instances[0]
	again := ok(c.RunInstances(ctx, run)).Instances
	if len(again) != 1 || *again[0].InstanceId != *first.InstanceId {
		t.Errorf("the same client token made another instance")
	}
	other := *run
	other.SubnetId = &n.public
	if _, err := c.RunInstances(ctx, &other); code(err) != "IdempotentParameterMismatch" {
		t.Errorf("same token, other arguments: %v", err)
	}
	id := *first.InstanceId
	i := l.instance(ctx, id)
	if i.State.Name != types.InstanceStateNamePending || len(i.Tags) != 3 || i.MetadataOptions.HttpTokens != types.HttpTokensStateRequired || *i.MetadataOptions.HttpPutResponseHopLimit != 1 {
		t.Errorf("instance at first: %s, tags %v, metadata %+v", i.State.Name, i.Tags, i.MetadataOptions)
	}
	vol := ok(c.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{*i.BlockDeviceMappings[0].Ebs.VolumeId}})).Volumes[0]
	if *vol.Size != 30 || !*vol.Encrypted || vol.VolumeType != types.VolumeTypeGp3 {
		t.Errorf("root volume %+v", vol)
	}
	l.step(10 * time.Second)
	if s := l.instance(ctx, id).State.Name; s != types.InstanceStateNameRunning {
		t.Errorf("after 10 s: %s", s)
	}
	if l.listens(id) {
		t.Error("something answers before the boot is over")
	}
	l.step(time.Minute)
	if !l.listens(id) || l.run(id, "test -f /var/lib/zopday/bootstrap-complete") != 0 {
		t.Errorf("after the boot: cloud-init log:\n%s", l.guest(id).Machine.Tail("/var/log/cloud-init-output.log", 20))
	}

	// Out of order.
	for what, err := range map[string]error{
		"subnet":   second(c.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &n.private})),
		"group":    second(c.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &n.group})),
		"vpc":      second(c.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &n.vpc})),
		"igw":      second(c.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: &n.igw})),
		"detach":   second(c.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: &n.igw, VpcId: &n.vpc})),
		"table":    second(c.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: &n.privateTable})),
		"eip":      second(c.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &n.eip})),
		"nat-eip":  second(c.DisassociateAddress(ctx, &ec2.DisassociateAddressInput{AssociationId: l.address(ctx, n.eip).AssociationId})),
		"volume":   second(c.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: vol.VolumeId})),
		"eni":      second(c.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: i.NetworkInterfaces[0].NetworkInterfaceId})),
		"main-acl": second(c.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: l.defaultGroup(ctx, n.vpc)})),
	} {
		want := map[string]string{"eip": "AuthFailure", "nat-eip": "AuthFailure", "volume": "VolumeInUse", "eni": "InvalidParameterValue", "main-acl": "CannotDelete"}[what]
		if want == "" {
			want = "DependencyViolation"
		}
		if code(err) != want {
			t.Errorf("deleting the %s while it is in use: %v, want %s", what, err, want)
		}
	}

	// In order.
	ok(c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}))
	l.step(time.Minute)
	if gone := l.instance(ctx, id); gone.State.Name != types.InstanceStateNameTerminated || gone.SubnetId != nil || len(gone.BlockDeviceMappings) != 0 {
		t.Errorf("terminated instance: %+v", gone)
	}
	for key, now := range l.world.Snapshot() {
		if old, was := withNetwork[key]; was && old != now && !strings.Contains(key, "/launch-template/") {
			t.Errorf("%s differs after its instance is gone (-before +after):\n%s", key, cmp.Diff(old, now))
		}
	}
	ok(c.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: &lt}))
	ok(c.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &n.group}))
	ok(c.DeleteNatGateway(ctx, &ec2.DeleteNatGatewayInput{NatGatewayId: &n.nat}))
	if _, err := c.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &n.eip}); code(err) != "AuthFailure" {
		t.Errorf("releasing the address of a NAT gateway that is being deleted: %v", err)
	}
	l.step(2 * time.Minute)
	if got := l.natState(ctx, n.nat); got != types.NatGatewayStateDeleted {
		t.Errorf("NAT gateway is %s, want deleted", got)
	}
	ok(c.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &n.eip}))
	for _, s := range []string{n.public, n.private} {
		ok(c.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &s}))
	}
	for _, table := range []string{n.publicTable, n.privateTable} {
		ok(c.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: &table}))
	}
	ok(c.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: &n.igw, VpcId: &n.vpc}))
	ok(c.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: &n.igw}))
	ok(c.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &n.vpc}))
	if left := l.world.Residue("job-1"); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if d := cmp.Diff(before, l.world.Snapshot()); d != "" {
		t.Errorf("the account differs (-before +after):\n%s", d)
	}
	l.step(2 * time.Hour)
	if _, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}}); code(err) != "InvalidInstanceID.NotFound" {
		t.Errorf("an instance that was terminated hours ago: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func (l *lab) guest(id string) *guestState {
	l.world.Lock()
	defer l.world.Unlock()
	return l.cloud.ec2.in(scope{"123456789012", "us-east-1"}).Guests[id]
}

func (l *lab) listens(id string) bool {
	l.world.Lock()
	defer l.world.Unlock()
	sc := l.cloud.ec2.in(scope{"123456789012", "us-east-1"})
	up, _ := l.cloud.ec2.guestAnswers(sc, sc.Instances[id], 80, "/")
	return up
}

func (l *lab) run(id, script string) int {
	l.world.Lock()
	defer l.world.Unlock()
	sc := l.cloud.ec2.in(scope{"123456789012", "us-east-1"})
	_, _, exit, _ := l.cloud.ec2.guestRun(sc, sc.Instances[id], script)
	return exit
}

func (l *lab) address(ctx context.Context, id string) types.Address {
	return ok(l.client.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{AllocationIds: []string{id}})).Addresses[0]
}

func (l *lab) defaultGroup(ctx context.Context, vpc string) *string {
	return ok(l.client.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{
		{Name: awssdk.String("vpc-id"), Values: []string{vpc}}, {Name: awssdk.String("group-name"), Values: []string{"default"}}}})).SecurityGroups[0].GroupId
}

// An instance without a way out at boot never finishes, even if the route comes later.
func TestNoEgressAtBoot(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, atOnce)
	n := l.build(ctx)
	ok(l.client.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: &n.privateTable, DestinationCidrBlock: awssdk.String("0.0.0.0/0")}))
	id := *ok(l.client.RunInstances(ctx, &ec2.RunInstancesInput{ImageId: awssdk.String(l.ubuntu(ctx)), InstanceType: types.InstanceTypeT3Micro, MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
		SubnetId: &n.private, UserData: awssdk.String(base64.StdEncoding.EncodeToString([]byte(touchSentinel)))})).Instances[0].InstanceId
	l.step(30 * time.Second)
	ok(l.client.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &n.privateTable, DestinationCidrBlock: awssdk.String("0.0.0.0/0"), NatGatewayId: &n.nat}))
	l.step(time.Hour)
	if l.run(id, "test -f /var/lib/zopday/bootstrap-complete") == 0 {
		t.Error("the sentinel appeared although the boot had no way out")
	}
	if out := l.guest(id).Machine.Run("cloud-init status", l.env()).Stdout; !strings.Contains(out, "error") {
		t.Errorf("cloud-init status: %q, want error", out)
	}
}

// Guest faults: each stops the boot in its own way.
func TestGuestFaults(t *testing.T) {
	for mode, want := range map[string]struct {
		sentinel, listens bool
		status            string
	}{
		"":           {true, true, "done"},
		"health":     {true, false, "done"},
		"cloud_init": {false, false, "error"},
		"sentinel":   {false, false, "running"},
		"boot":       {false, false, ""},
		"slow":       {false, false, "running"},
	} {
		t.Run("mode "+mode, func(t *testing.T) {
			ctx := context.Background()
			l := newLab(t, atOnce)
			n := l.build(ctx)
			if mode != "" {
				f := sim.Fault{Kind: sim.FaultGuest, Mode: mode, Match: "broken", Log: "E: everything is broken"}
				if mode == "slow" {
					f.Seconds = 7200
				}
				ok(l.world.AddFault(f))
			}
			id := *ok(l.client.RunInstances(ctx, &ec2.RunInstancesInput{ImageId: awssdk.String(l.ubuntu(ctx)), InstanceType: types.InstanceTypeT3Micro, MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
				SubnetId: &n.private, UserData: awssdk.String(base64.StdEncoding.EncodeToString([]byte(touchSentinel))), TagSpecifications: tagSpecs("instance", "Name", "broken")})).Instances[0].InstanceId
			l.step(10 * time.Minute)
			if got := l.run(id, "test -f /var/lib/zopday/bootstrap-complete") == 0; got != want.sentinel {
				t.Errorf("sentinel %v, want %v", got, want.sentinel)
			}
			if got := l.listens(id); got != want.listens {
				t.Errorf("listens %v, want %v", got, want.listens)
			}
			if want.status != "" {
				if out := l.guest(id).Machine.Run("cloud-init status", l.env()).Stdout; !strings.Contains(out, want.status) {
					t.Errorf("cloud-init status %q, want %s", out, want.status)
				}
			}
			if mode == "cloud_init" && !strings.Contains(l.guest(id).Machine.Tail("/var/log/cloud-init-output.log", 5), "everything is broken") {
				t.Error("the log does not end as the fault says")
			}
		})
	}
}
