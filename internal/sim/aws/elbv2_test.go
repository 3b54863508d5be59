package aws

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/zopday/provisioner/internal/sim"
)

// site is a VPC with a way out, where machines that serve HTTP on port 80 can stand behind a load balancer.
type site struct {
	*rig
	ec2  *ec2.Client
	elb  *elb.Client
	vars map[string]string
}

func newSite(t *testing.T, opt sim.Options) *site {
	t.Helper()
	r := newRig(t, opt)
	s := &site{rig: r, ec2: ec2.NewFromConfig(r.cfg), elb: elb.NewFromConfig(r.cfg), vars: layNetwork(t, r)}
	s.open(t, "groupLB", ec2types.IpPermission{IpProtocol: awssdk.String("tcp"), FromPort: awssdk.Int32(80), ToPort: awssdk.Int32(80), IpRanges: []ec2types.IpRange{{CidrIp: awssdk.String("0.0.0.0/0")}}})
	r.w.Step(10 * time.Second) // lists lag behind
	role := awssdk.String("web")
	c := iam.NewFromConfig(r.cfg)
	must(c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: role, AssumeRolePolicyDocument: awssdk.String(ec2Trust)}))(t)
	must(c.AttachRolePolicy(r.ctx(), &iam.AttachRolePolicyInput{RoleName: role, PolicyArn: awssdk.String(ssmCore)}))(t)
	must(c.CreateInstanceProfile(r.ctx(), &iam.CreateInstanceProfileInput{InstanceProfileName: role}))(t)
	must(c.AddRoleToInstanceProfile(r.ctx(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: role, RoleName: role}))(t)
	routes := must(s.ec2.DescribeRouteTables(r.ctx(), &ec2.DescribeRouteTablesInput{Filters: []ec2types.Filter{{Name: awssdk.String("vpc-id"), Values: []string{s.vars["vpc"]}}}}))(t)
	gws := must(s.ec2.DescribeInternetGateways(r.ctx(), &ec2.DescribeInternetGatewaysInput{Filters: []ec2types.Filter{{Name: awssdk.String("attachment.vpc-id"), Values: []string{s.vars["vpc"]}}}}))(t)
	must(s.ec2.CreateRoute(r.ctx(), &ec2.CreateRouteInput{RouteTableId: routes.RouteTables[0].RouteTableId, DestinationCidrBlock: awssdk.String("0.0.0.0/0"), GatewayId: gws.InternetGateways[0].InternetGatewayId}))(t)
	r.w.Step(30 * time.Second)
	return s
}

func (s *site) open(t *testing.T, group string, p ec2types.IpPermission) {
	t.Helper()
	must(s.ec2.AuthorizeSecurityGroupIngress(s.ctx(), &ec2.AuthorizeSecurityGroupIngressInput{GroupId: awssdk.String(s.vars[group]), IpPermissions: []ec2types.IpPermission{p}}))(t)
}

// openToLB lets the load balancer reach the machines.
func (s *site) openToLB(t *testing.T) {
	t.Helper()
	s.open(t, "groupVM", ec2types.IpPermission{IpProtocol: awssdk.String("tcp"), FromPort: awssdk.Int32(80), ToPort: awssdk.Int32(80),
		UserIdGroupPairs: []ec2types.UserIdGroupPair{{GroupId: awssdk.String(s.vars["groupLB"])}}})
}

// openFrom lets a network reach the machines.
func (s *site) openFrom(t *testing.T, cidr string) {
	t.Helper()
	s.open(t, "groupVM", ec2types.IpPermission{IpProtocol: awssdk.String("tcp"), FromPort: awssdk.Int32(80), ToPort: awssdk.Int32(80), IpRanges: []ec2types.IpRange{{CidrIp: &cidr}}})
}

const webServer = `#!/bin/bash
set -euo pipefail
apt-get update && apt-get install -y docker.io
mkdir -p /etc/web
cat >/etc/web/default.conf <<'END'
server { listen 80; location = /healthz { return 200 "ok\n"; } location = /broken { return 503; } }
END
docker run -d --name web -p 80:80 -v /etc/web:/etc/nginx/conf.d:ro nginx:1.30
`

// machine starts a machine that serves HTTP, and waits for it.
func (s *site) machine(t *testing.T, subnet string) string {
	t.Helper()
	out := must(s.ec2.RunInstances(s.ctx(), &ec2.RunInstancesInput{MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), ImageId: awssdk.String(s.vars["image"]), InstanceType: ec2types.InstanceTypeT3Micro,
		UserData: awssdk.String(base64.StdEncoding.EncodeToString([]byte(webServer))), IamInstanceProfile: &ec2types.IamInstanceProfileSpecification{Name: awssdk.String("web")},
		NetworkInterfaces: []ec2types.InstanceNetworkInterfaceSpecification{{DeviceIndex: awssdk.Int32(0), SubnetId: awssdk.String(s.vars[subnet]), Groups: []string{s.vars["groupVM"]}, AssociatePublicIpAddress: awssdk.Bool(true)}}}))(t)
	s.w.Step(5 * time.Minute)
	return *out.Instances[0].InstanceId
}

// balancer makes a load balancer with a listener on port 80 and a target group.
func (s *site) balancer(t *testing.T, path string) (lb, group string) {
	t.Helper()
	out := must(s.elb.CreateLoadBalancer(s.ctx(), &elb.CreateLoadBalancerInput{Name: awssdk.String("web"), Subnets: []string{s.vars["subnetA"], s.vars["subnetB"]}, SecurityGroups: []string{s.vars["groupLB"]}}))(t)
	lb = *out.LoadBalancers[0].LoadBalancerArn
	if out.LoadBalancers[0].State.Code != types.LoadBalancerStateEnumProvisioning {
		t.Errorf("a new load balancer is %s", out.LoadBalancers[0].State.Code)
	}
	g := must(s.elb.CreateTargetGroup(s.ctx(), &elb.CreateTargetGroupInput{Name: awssdk.String("web"), Protocol: types.ProtocolEnumHttp, Port: awssdk.Int32(80), VpcId: awssdk.String(s.vars["vpc"]),
		HealthCheckPath: &path, HealthCheckIntervalSeconds: awssdk.Int32(10)}))(t)
	group = *g.TargetGroups[0].TargetGroupArn
	must(s.elb.CreateListener(s.ctx(), &elb.CreateListenerInput{LoadBalancerArn: &lb, Port: awssdk.Int32(80), Protocol: types.ProtocolEnumHttp,
		DefaultActions: []types.Action{{Type: types.ActionTypeEnumForward, TargetGroupArn: &group}}}))(t)
	return lb, group
}

func (s *site) register(t *testing.T, group, id string) {
	t.Helper()
	must(s.elb.RegisterTargets(s.ctx(), &elb.RegisterTargetsInput{TargetGroupArn: &group, Targets: []types.TargetDescription{{Id: &id}}}))(t)
}

func (s *site) health(t *testing.T, group, id string) (state, reason string) {
	t.Helper()
	out := must(s.elb.DescribeTargetHealth(s.ctx(), &elb.DescribeTargetHealthInput{TargetGroupArn: &group, Targets: []types.TargetDescription{{Id: &id}}}))(t)
	h := out.TargetHealthDescriptions[0].TargetHealth
	return string(h.State), string(h.Reason)
}

func TestTargetHealthFollowsTheMachine(t *testing.T) {
	s := newSite(t, immediate)
	id := s.machine(t, "subnetA")
	lb, group := s.balancer(t, "/healthz")
	want := func(state, reason string) {
		t.Helper()
		if gotState, gotReason := s.health(t, group, id); gotState != state || gotReason != reason {
			t.Errorf("health %s (%s), want %s (%s)", gotState, gotReason, state, reason)
		}
	}
	want("unused", "Target.NotRegistered")
	s.register(t, group, id)
	want("initial", "Elb.RegistrationInProgress")
	s.w.Step(3 * time.Minute)
	if b := must(s.elb.DescribeLoadBalancers(s.ctx(), &elb.DescribeLoadBalancersInput{LoadBalancerArns: []string{lb}}))(t); b.LoadBalancers[0].State.Code != types.LoadBalancerStateEnumActive {
		t.Errorf("the load balancer is %s after three minutes", b.LoadBalancers[0].State.Code)
	}
	// Nothing lets the load balancer through to the machine yet.
	want("unhealthy", "Target.Timeout")
	s.openToLB(t)
	s.w.Step(time.Minute)
	want("healthy", "")

	must(s.elb.ModifyTargetGroup(s.ctx(), &elb.ModifyTargetGroupInput{TargetGroupArn: &group, HealthCheckPath: awssdk.String("/broken")}))(t)
	s.w.Step(time.Minute)
	want("unhealthy", "Target.ResponseCodeMismatch")
	must(s.elb.ModifyTargetGroup(s.ctx(), &elb.ModifyTargetGroupInput{TargetGroupArn: &group, HealthCheckPath: awssdk.String("/healthz")}))(t)
	s.w.Step(2 * time.Minute)
	want("healthy", "")

	must(s.elb.DeregisterTargets(s.ctx(), &elb.DeregisterTargetsInput{TargetGroupArn: &group, Targets: []types.TargetDescription{{Id: &id}}}))(t)
	want("draining", "Target.DeregistrationInProgress")
	s.w.Step(301 * time.Second)
	want("unused", "Target.NotRegistered")

	s.register(t, group, id)
	s.w.Step(time.Minute)
	want("healthy", "")
	must(s.ec2.StopInstances(s.ctx(), &ec2.StopInstancesInput{InstanceIds: []string{id}}))(t)
	s.w.Step(time.Minute)
	want("unused", "Target.InvalidState")
	must(s.ec2.TerminateInstances(s.ctx(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}}))(t)
	s.w.Step(10 * time.Minute)
	want("unused", "Target.NotRegistered")
}

func TestInterfacesOfALoadBalancerLinger(t *testing.T) {
	s := newSite(t, immediate)
	lb, group := s.balancer(t, "/")
	_, err := s.elb.DeleteTargetGroup(s.ctx(), &elb.DeleteTargetGroupInput{TargetGroupArn: &group})
	wantCode(t, err, "ResourceInUse")
	nics := func() []ec2types.NetworkInterface {
		return must(s.ec2.DescribeNetworkInterfaces(s.ctx(), &ec2.DescribeNetworkInterfacesInput{Filters: []ec2types.Filter{{Name: awssdk.String("description"), Values: []string{"ELB app/web/*"}}}}))(t).NetworkInterfaces
	}
	if n := nics(); len(n) != 2 || !*n[0].RequesterManaged || *n[0].RequesterId != "amazon-elb" {
		t.Fatalf("interfaces: %+v", n)
	}
	must(s.elb.DeleteLoadBalancer(s.ctx(), &elb.DeleteLoadBalancerInput{LoadBalancerArn: &lb}))(t)
	_, err = s.ec2.DeleteSubnet(s.ctx(), &ec2.DeleteSubnetInput{SubnetId: awssdk.String(s.vars["subnetA"])})
	wantCode(t, err, "DependencyViolation")
	_, err = s.ec2.DeleteSecurityGroup(s.ctx(), &ec2.DeleteSecurityGroupInput{GroupId: awssdk.String(s.vars["groupLB"])})
	wantCode(t, err, "DependencyViolation")
	s.w.Step(time.Minute)
	if n := nics(); len(n) != 0 {
		t.Errorf("%d interfaces are left a minute after the deletion", len(n))
	}
	must(s.ec2.DeleteSubnet(s.ctx(), &ec2.DeleteSubnetInput{SubnetId: awssdk.String(s.vars["subnetA"])}))(t)
	must(s.elb.DeleteTargetGroup(s.ctx(), &elb.DeleteTargetGroupInput{TargetGroupArn: &group}))(t)
	if left := s.w.Objects(sim.ObjectFilter{Service: "elasticloadbalancing"}); len(left) != 0 {
		t.Errorf("left over: %+v", left)
	}
}

func TestLoadBalancerRefusals(t *testing.T) {
	s := newSite(t, immediate)
	create := func(change func(*elb.CreateLoadBalancerInput)) error {
		in := &elb.CreateLoadBalancerInput{Name: awssdk.String("web"), Subnets: []string{s.vars["subnetA"], s.vars["subnetB"]}, SecurityGroups: []string{s.vars["groupLB"]}}
		change(in)
		_, err := s.elb.CreateLoadBalancer(s.ctx(), in)
		return err
	}
	name := func(n string) func(*elb.CreateLoadBalancerInput) {
		return func(in *elb.CreateLoadBalancerInput) { in.Name = &n }
	}
	for _, tc := range []struct {
		name, code string
		change     func(*elb.CreateLoadBalancerInput)
	}{
		{"33 characters", "ValidationError", name(strings.Repeat("a", 33))},
		{"leading hyphen", "ValidationError", name("-a")},
		{"trailing hyphen", "ValidationError", name("a-")},
		{"reserved prefix", "ValidationError", name("internal-api")},
		{"underscore", "ValidationError", name("a_b")},
		{"one zone", "ValidationError", func(in *elb.CreateLoadBalancerInput) { in.Subnets = in.Subnets[:1] }},
		{"one zone twice", "InvalidConfigurationRequest", func(in *elb.CreateLoadBalancerInput) { in.Subnets = []string{in.Subnets[0], in.Subnets[0]} }},
		{"no such subnet", "SubnetNotFound", func(in *elb.CreateLoadBalancerInput) { in.Subnets = []string{"subnet-00000000000000000"} }},
		{"no such group", "InvalidSecurityGroup", func(in *elb.CreateLoadBalancerInput) { in.SecurityGroups = []string{"sg-00000000000000000"} }},
		{"reserved tag", "ValidationError", func(in *elb.CreateLoadBalancerInput) {
			in.Tags = []types.Tag{{Key: awssdk.String("aws:x"), Value: awssdk.String("y")}}
		}},
		{"32 characters", "", name(strings.Repeat("a", 32))},
		{"the same again", "", name(strings.Repeat("a", 32))},
		{"the same name and other settings", "DuplicateLoadBalancerName", func(in *elb.CreateLoadBalancerInput) {
			in.Name, in.Scheme = awssdk.String(strings.Repeat("a", 32)), types.LoadBalancerSchemeEnumInternal
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := create(tc.change)
			if tc.code != "" {
				wantCode(t, err, tc.code)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	if n := len(s.w.Objects(sim.ObjectFilter{Kind: "load-balancer"})); n != 1 {
		t.Errorf("%d load balancers, want 1", n)
	}
	s.w.SetQuota("aws", "elasticloadbalancing", quotaALBs, "", "", 1)
	wantCode(t, create(name("another")), "TooManyLoadBalancers")
}
