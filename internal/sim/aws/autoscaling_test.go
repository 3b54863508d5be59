package aws

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/zopday/provisioner/internal/sim"
)

// fleet is a site with a launch template for machines that serve HTTP.
type fleet struct {
	*site
	asg      *autoscaling.Client
	template string
}

func newFleet(t *testing.T, opt sim.Options) *fleet {
	t.Helper()
	f := &fleet{site: newSite(t, opt)}
	f.asg = autoscaling.NewFromConfig(f.cfg)
	out := must(f.ec2.CreateLaunchTemplate(f.ctx(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: awssdk.String("fleet"), LaunchTemplateData: f.data(t, webServer)}))(t)
	f.template = *out.LaunchTemplate.LaunchTemplateId
	return f
}

func (f *fleet) data(t *testing.T, script string) *ec2types.RequestLaunchTemplateData {
	t.Helper()
	return &ec2types.RequestLaunchTemplateData{ImageId: awssdk.String(f.vars["image"]), InstanceType: ec2types.InstanceTypeT3Micro,
		UserData: awssdk.String(base64.StdEncoding.EncodeToString([]byte(script))), IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: awssdk.String("web")},
		NetworkInterfaces: []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: awssdk.Int32(0), Groups: []string{f.vars["groupVM"]}, AssociatePublicIpAddress: awssdk.Bool(true)}}}
}

func (f *fleet) create(change func(*autoscaling.CreateAutoScalingGroupInput)) error {
	in := &autoscaling.CreateAutoScalingGroupInput{AutoScalingGroupName: awssdk.String("web"), MinSize: awssdk.Int32(1), MaxSize: awssdk.Int32(4), DesiredCapacity: awssdk.Int32(2),
		VPCZoneIdentifier: awssdk.String(f.vars["subnetA"] + "," + f.vars["subnetB"]), LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: &f.template, Version: awssdk.String("$Latest")},
		Tags: []types.Tag{{Key: awssdk.String("owner"), Value: awssdk.String("job-1"), PropagateAtLaunch: awssdk.Bool(true)}, {Key: awssdk.String("private"), Value: awssdk.String("x"), PropagateAtLaunch: awssdk.Bool(false)}}}
	if change != nil {
		change(in)
	}
	_, err := f.asg.CreateAutoScalingGroup(f.ctx(), in)
	return err
}

// createNamed makes another group, in one subnet.
func (f *fleet) createNamed(name, subnet string) error {
	return f.create(func(in *autoscaling.CreateAutoScalingGroupInput) {
		in.AutoScalingGroupName, in.VPCZoneIdentifier = &name, &subnet
	})
}

func (f *fleet) group(t *testing.T) *types.AutoScalingGroup {
	t.Helper()
	out := must(f.asg.DescribeAutoScalingGroups(f.ctx(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{"web"}}))(t)
	if len(out.AutoScalingGroups) == 0 {
		return nil
	}
	return &out.AutoScalingGroups[0]
}

func (f *fleet) inService(t *testing.T) (ids []string) {
	t.Helper()
	for _, i := range f.group(t).Instances {
		if i.LifecycleState == types.LifecycleStateInService {
			ids = append(ids, *i.InstanceId)
		}
	}
	return ids
}

func (f *fleet) history(t *testing.T) []types.Activity {
	t.Helper()
	return must(f.asg.DescribeScalingActivities(f.ctx(), &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: awssdk.String("web")}))(t).Activities
}

func TestGroupLaunchesAndEnds(t *testing.T) {
	f := newFleet(t, immediate)
	if err := f.create(nil); err != nil {
		t.Fatal(err)
	}
	if n := len(f.group(t).Instances); n != 0 {
		t.Errorf("%d instances at once", n)
	}
	f.w.Step(4 * time.Second)
	if g := f.group(t); len(g.Instances) != 2 || g.Instances[0].LifecycleState != types.LifecycleStatePending {
		t.Errorf("after 4 s: %+v", g.Instances)
	}
	f.w.Step(time.Minute)
	ids := f.inService(t)
	if len(ids) != 2 {
		t.Fatalf("in service after a minute: %v", ids)
	}
	zones := map[string]bool{}
	for _, i := range f.group(t).Instances {
		zones[*i.AvailabilityZone] = true
	}
	if len(zones) != 2 {
		t.Errorf("zones %v, want both", zones)
	}
	machines := must(f.ec2.DescribeInstances(f.ctx(), &ec2.DescribeInstancesInput{InstanceIds: ids}))(t)
	tags := map[string]string{}
	for _, tag := range machines.Reservations[0].Instances[0].Tags {
		tags[*tag.Key] = *tag.Value
	}
	if tags["owner"] != "job-1" || tags["aws:autoscaling:groupName"] != "web" || tags["private"] != "" {
		t.Errorf("tags of an instance: %v", tags)
	}
	for _, a := range f.history(t) {
		if a.StatusCode != types.ScalingActivityStatusCodeSuccessful || !strings.Contains(*a.Cause, "a user request created an AutoScalingGroup changing the desired capacity from 0 to 2") {
			t.Errorf("activity %s: %s", a.StatusCode, *a.Cause)
		}
	}
	must(f.asg.SetInstanceProtection(f.ctx(), &autoscaling.SetInstanceProtectionInput{AutoScalingGroupName: awssdk.String("web"), InstanceIds: ids[:1], ProtectedFromScaleIn: awssdk.Bool(true)}))(t)
	must(f.asg.SetDesiredCapacity(f.ctx(), &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: awssdk.String("web"), DesiredCapacity: awssdk.Int32(1)}))(t)
	f.w.Step(2 * time.Minute)
	if left := f.inService(t); len(left) != 1 || left[0] != ids[0] {
		t.Errorf("after scaling in: %v, want the protected %s", left, ids[0])
	}
	_, err := f.asg.SetDesiredCapacity(f.ctx(), &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: awssdk.String("web"), DesiredCapacity: awssdk.Int32(5)})
	wantCode(t, err, "ValidationError")
	must(f.asg.DeleteAutoScalingGroup(f.ctx(), &autoscaling.DeleteAutoScalingGroupInput{AutoScalingGroupName: awssdk.String("web"), ForceDelete: awssdk.Bool(true)}))(t)
	if g := f.group(t); g == nil || g.Status == nil || *g.Status != "Delete in progress" {
		t.Errorf("a group that is being deleted: %+v", g)
	}
	f.w.Step(2 * time.Minute)
	if g := f.group(t); g != nil {
		t.Error("the group is still there")
	}
	if left := f.w.Objects(sim.ObjectFilter{Kind: "instance"}); len(left) != 0 {
		t.Errorf("instances left: %+v", left)
	}
}

func TestGroupRefusals(t *testing.T) {
	f := newFleet(t, immediate)
	for _, tc := range []struct {
		name, code string
		change     func(*autoscaling.CreateAutoScalingGroupInput)
	}{
		{"desired above the maximum", "ValidationError", func(in *autoscaling.CreateAutoScalingGroupInput) { in.DesiredCapacity = awssdk.Int32(9) }},
		{"no such subnet", "ValidationError", func(in *autoscaling.CreateAutoScalingGroupInput) {
			in.VPCZoneIdentifier = awssdk.String("subnet-00000000000000000")
		}},
		{"no such template", "ValidationError", func(in *autoscaling.CreateAutoScalingGroupInput) {
			in.LaunchTemplate = &types.LaunchTemplateSpecification{LaunchTemplateId: awssdk.String("lt-00000000000000000")}
		}},
		{"no such target group", "ValidationError", func(in *autoscaling.CreateAutoScalingGroupInput) {
			in.TargetGroupARNs = []string{"arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/x/0000000000000000"}
		}},
		{"reserved tag", "ValidationError", func(in *autoscaling.CreateAutoScalingGroupInput) { in.Tags[0].Key = awssdk.String("AWS:x") }},
		{"fine", "", func(*autoscaling.CreateAutoScalingGroupInput) {}},
		{"again", "AlreadyExists", func(*autoscaling.CreateAutoScalingGroupInput) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := f.create(tc.change)
			if tc.code != "" {
				wantCode(t, err, tc.code)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGroupWithAFreshProfile(t *testing.T) {
	f := newFleet(t, sim.Options{})
	must(iam.NewFromConfig(f.cfg).CreateInstanceProfile(f.ctx(), &iam.CreateInstanceProfileInput{InstanceProfileName: awssdk.String("fresh")}))(t)
	data := f.data(t, webServer)
	data.IamInstanceProfile.Name = awssdk.String("fresh")
	must(f.ec2.CreateLaunchTemplateVersion(f.ctx(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateId: &f.template, LaunchTemplateData: data}))(t)
	err := f.create(nil)
	wantCode(t, err, "ValidationError")
	if want := "You must use a valid fully-formed launch template. Value (fresh) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q in it", err, want)
	}
	f.w.Step(30 * time.Second)
	if err := f.create(nil); err != nil {
		t.Error(err)
	}
}

func TestNoCapacityShowsInTheHistory(t *testing.T) {
	f := newFleet(t, immediate)
	if _, err := f.w.AddFault(sim.Fault{Cloud: "aws", Kind: sim.FaultCapacity, Match: "us-east-1a", Count: -1}); err != nil {
		t.Fatal(err)
	}
	if err := f.create(func(in *autoscaling.CreateAutoScalingGroupInput) {
		in.VPCZoneIdentifier, in.DesiredCapacity = awssdk.String(f.vars["subnetA"]), awssdk.Int32(1)
	}); err != nil {
		t.Fatal(err)
	}
	f.w.Step(time.Minute)
	if ids := f.inService(t); len(ids) != 0 {
		t.Errorf("in service without capacity: %v", ids)
	}
	h := f.history(t)
	if len(h) == 0 || h[0].StatusCode != types.ScalingActivityStatusCodeFailed || !strings.Contains(*h[0].StatusMessage, "We currently do not have sufficient t3.micro capacity") {
		t.Fatalf("history: %+v", h)
	}
	if len(h) > 5 {
		t.Errorf("%d launches were tried within a minute", len(h))
	}
	f.w.ClearFaults("")
	f.w.Step(5 * time.Minute)
	if ids := f.inService(t); len(ids) != 1 {
		t.Errorf("in service after the capacity came back: %v", ids)
	}
	// With two zones, the other one takes the machine at once.
	if _, err := f.w.AddFault(sim.Fault{Cloud: "aws", Kind: sim.FaultCapacity, Match: "us-east-1b", Count: -1}); err != nil {
		t.Fatal(err)
	}
	must(f.asg.UpdateAutoScalingGroup(f.ctx(), &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: awssdk.String("web"), DesiredCapacity: awssdk.Int32(3), VPCZoneIdentifier: awssdk.String(f.vars["subnetA"] + "," + f.vars["subnetB"])}))(t)
	f.w.Step(time.Minute)
	if ids := f.inService(t); len(ids) != 3 {
		t.Errorf("in service with one zone without capacity: %v", ids)
	}
}

func TestGroupBehindALoadBalancer(t *testing.T) {
	f := newFleet(t, immediate)
	f.openToLB(t)
	_, group := f.balancer(t, "/healthz")
	if err := f.create(func(in *autoscaling.CreateAutoScalingGroupInput) {
		in.HealthCheckType, in.HealthCheckGracePeriod = awssdk.String("ELB"), awssdk.Int32(300)
	}); err != nil {
		t.Fatal(err)
	}
	name := awssdk.String("web")
	must(f.asg.AttachLoadBalancerTargetGroups(f.ctx(), &autoscaling.AttachLoadBalancerTargetGroupsInput{AutoScalingGroupName: name, TargetGroupARNs: []string{group}}))(t)
	state := func() string {
		return *must(f.asg.DescribeLoadBalancerTargetGroups(f.ctx(), &autoscaling.DescribeLoadBalancerTargetGroupsInput{AutoScalingGroupName: name}))(t).LoadBalancerTargetGroups[0].State
	}
	if got := state(); got != "Adding" {
		t.Errorf("state %s, want Adding", got)
	}
	f.w.Step(8 * time.Minute)
	if got := state(); got != "InService" {
		t.Errorf("state %s, want InService", got)
	}
	ids := f.inService(t)
	for _, id := range ids {
		if got, reason := f.health(t, group, id); got != "healthy" {
			t.Errorf("%s is %s (%s)", id, got, reason)
		}
	}
	// The application dies on all machines: the group replaces them, one grace period after the other.
	if _, err := f.w.SetObjectState(group, "unhealthy", "Target.FailedHealthChecks", "Health checks failed"); err != nil {
		t.Fatal(err)
	}
	f.w.Step(6 * time.Second)
	causes := ""
	for _, a := range f.history(t) {
		causes += *a.Cause
	}
	if !strings.Contains(causes, "in response to an ELB system health check failure") {
		t.Errorf("causes: %s", causes)
	}
	f.w.Step(10 * time.Minute)
	fresh := f.inService(t)
	if len(fresh) != 2 || fresh[0] == ids[0] || fresh[0] == ids[1] {
		t.Errorf("in service %v, before %v", fresh, ids)
	}
	must(f.asg.DetachLoadBalancerTargetGroups(f.ctx(), &autoscaling.DetachLoadBalancerTargetGroupsInput{AutoScalingGroupName: name, TargetGroupARNs: []string{group}}))(t)
	if got, _ := f.health(t, group, fresh[0]); got != "draining" {
		t.Errorf("after detaching: %s", got)
	}
}

// Machines that need longer to start than the grace period are killed in a loop, as they are in AWS.
func TestShortGracePeriodMakesALoop(t *testing.T) {
	f := newFleet(t, immediate)
	f.openToLB(t)
	_, group := f.balancer(t, "/healthz")
	data := f.data(t, strings.Replace(webServer, "set -euo pipefail", "sleep 300", 1))
	must(f.ec2.CreateLaunchTemplateVersion(f.ctx(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateId: &f.template, LaunchTemplateData: data}))(t)
	if err := f.create(func(in *autoscaling.CreateAutoScalingGroupInput) {
		in.HealthCheckType, in.HealthCheckGracePeriod, in.TargetGroupARNs, in.DesiredCapacity = awssdk.String("ELB"), awssdk.Int32(60), []string{group}, awssdk.Int32(1)
	}); err != nil {
		t.Fatal(err)
	}
	f.w.Step(20 * time.Minute)
	n := 0
	for _, a := range f.history(t) {
		if strings.HasPrefix(*a.Description, "Terminating EC2 instance") {
			n++
		}
	}
	if n < 4 {
		t.Errorf("%d machines were ended in 20 minutes, want a loop", n)
	}
}

func TestTerminatedInstanceIsReplaced(t *testing.T) {
	f := newFleet(t, immediate)
	if err := f.create(nil); err != nil {
		t.Fatal(err)
	}
	f.w.Step(time.Minute)
	ids := f.inService(t)
	must(f.ec2.TerminateInstances(f.ctx(), &ec2.TerminateInstancesInput{InstanceIds: ids[:1]}))(t)
	f.w.Step(2 * time.Minute)
	now := f.inService(t)
	if len(now) != 2 || now[0] == ids[0] || now[1] == ids[0] {
		t.Errorf("in service %v, ended %s", now, ids[0])
	}
	must(f.asg.TerminateInstanceInAutoScalingGroup(f.ctx(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{InstanceId: &now[0], ShouldDecrementDesiredCapacity: awssdk.Bool(true)}))(t)
	f.w.Step(2 * time.Minute)
	if g := f.group(t); *g.DesiredCapacity != 1 || len(g.Instances) != 1 {
		t.Errorf("desired %d with %d instances, want 1 and 1", *g.DesiredCapacity, len(g.Instances))
	}
}

func TestInstanceRefresh(t *testing.T) {
	f := newFleet(t, immediate)
	if err := f.create(nil); err != nil {
		t.Fatal(err)
	}
	f.w.Step(time.Minute)
	before := fmt.Sprint(f.inService(t))
	must(f.ec2.CreateLaunchTemplateVersion(f.ctx(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateId: &f.template, LaunchTemplateData: f.data(t, webServer+"# two\n")}))(t)
	name := awssdk.String("web")
	must(f.asg.StartInstanceRefresh(f.ctx(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: name, Preferences: &types.RefreshPreferences{InstanceWarmup: awssdk.Int32(10)}}))(t)
	_, err := f.asg.StartInstanceRefresh(f.ctx(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: name})
	wantCode(t, err, "InstanceRefreshInProgress")
	least := 2
	for range 60 {
		f.w.Step(5 * time.Second)
		least = min(least, len(f.inService(t)))
	}
	out := must(f.asg.DescribeInstanceRefreshes(f.ctx(), &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: name}))(t).InstanceRefreshes[0]
	if out.Status != types.InstanceRefreshStatusSuccessful || *out.PercentageComplete != 100 {
		t.Errorf("refresh: %s, %d%%, %v", out.Status, *out.PercentageComplete, out.StatusReason)
	}
	if least != 1 {
		t.Errorf("at least %d were in service throughout, want 1: one is replaced after the other", least)
	}
	if now := fmt.Sprint(f.inService(t)); now == before {
		t.Errorf("nothing was replaced: %s", now)
	}
	for _, i := range f.group(t).Instances {
		if *i.LaunchTemplate.Version != "2" {
			t.Errorf("version %s of the template, want 2", *i.LaunchTemplate.Version)
		}
	}
}

// A group that looks at its machines through EC2 only does not mind a dead application; one that asks the load balancer
// does.
func TestDeadApplication(t *testing.T) {
	f := newFleet(t, immediate)
	f.openToLB(t)
	_, group := f.balancer(t, "/healthz")
	if _, err := f.w.AddFault(sim.Fault{Kind: sim.FaultGuest, Mode: "health", Count: 1}); err != nil {
		t.Fatal(err)
	}
	if err := f.create(func(in *autoscaling.CreateAutoScalingGroupInput) {
		in.DesiredCapacity, in.TargetGroupARNs, in.HealthCheckGracePeriod = awssdk.Int32(1), []string{group}, awssdk.Int32(120)
	}); err != nil {
		t.Fatal(err)
	}
	f.w.Step(20 * time.Minute)
	dead := f.inService(t)
	if len(dead) != 1 || len(f.history(t)) != 1 {
		t.Fatalf("in service %v after %d activities, want the one machine for good", dead, len(f.history(t)))
	}
	if state, reason := f.health(t, group, dead[0]); state != "unhealthy" || reason != "Target.FailedHealthChecks" {
		t.Errorf("the target is %s (%s)", state, reason)
	}
	must(f.asg.UpdateAutoScalingGroup(f.ctx(), &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: awssdk.String("web"), HealthCheckType: awssdk.String("ELB"), HealthCheckGracePeriod: awssdk.Int32(300)}))(t)
	f.w.Step(10 * time.Minute)
	now := f.inService(t)
	if len(now) != 1 || now[0] == dead[0] {
		t.Fatalf("in service %v, want another than %s", now, dead[0])
	}
	if state, reason := f.health(t, group, now[0]); state != "healthy" {
		t.Errorf("the new target is %s (%s)", state, reason)
	}
}
