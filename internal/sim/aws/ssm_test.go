package aws

import (
	"encoding/base64"
	"maps"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/zopday/provisioner/internal/sim"
)

func TestPublicImageParameters(t *testing.T) {
	r := newRig(t, immediate)
	c, e := ssm.NewFromConfig(r.cfg), ec2.NewFromConfig(r.cfg)
	for name, arch := range map[string]string{
		"/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id": "x86_64",
		"/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id": "arm64",
		"/aws/service/canonical/ubuntu/server/26.04/stable/current/amd64/hvm/ebs-gp3/ami-id": "x86_64",
		"/aws/service/canonical/ubuntu/server/noble/stable/current/amd64/hvm/ebs-gp3/ami-id": "x86_64",
		"/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id": "x86_64",
		"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64":              "x86_64",
		"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64":               "arm64",
	} {
		out := must(c.GetParameter(r.ctx(), &ssm.GetParameterInput{Name: &name}))(t)
		images := must(e.DescribeImages(r.ctx(), &ec2.DescribeImagesInput{ImageIds: []string{*out.Parameter.Value}}))(t)
		if len(images.Images) != 1 || string(images.Images[0].Architecture) != arch {
			t.Errorf("%s: %s is no image for %s", name, *out.Parameter.Value, arch)
		}
		if !strings.HasPrefix(*out.Parameter.ARN, "arn:aws:ssm:us-east-1::parameter/aws/service/") {
			t.Errorf("ARN %s", *out.Parameter.ARN)
		}
	}
	_, err := c.GetParameter(r.ctx(), &ssm.GetParameterInput{Name: awssdk.String("/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp3/ami-id")})
	wantCode(t, err, "ParameterNotFound")
	some := must(c.GetParameters(r.ctx(), &ssm.GetParametersInput{Names: []string{"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64", "/none"}}))(t)
	if len(some.Parameters) != 1 || len(some.InvalidParameters) != 1 {
		t.Errorf("found %d, invalid %v", len(some.Parameters), some.InvalidParameters)
	}
	n := 0
	p := ssm.NewGetParametersByPathPaginator(c, &ssm.GetParametersByPathInput{Path: awssdk.String("/aws/service/canonical/ubuntu/server/24.04"), Recursive: awssdk.Bool(true), MaxResults: awssdk.Int32(1)})
	for p.HasMorePages() {
		n += len(must(p.NextPage(r.ctx()))(t).Parameters)
	}
	if n != 2 {
		t.Errorf("%d parameters below the path, want 2", n)
	}
}

// command sends a script and waits for it.
func (s *site) command(t *testing.T, c *ssm.Client, id, script string, params map[string][]string) *ssm.GetCommandInvocationOutput {
	t.Helper()
	all := map[string][]string{"commands": {script}}
	maps.Copy(all, params)
	sent := must(c.SendCommand(s.ctx(), &ssm.SendCommandInput{DocumentName: awssdk.String("AWS-RunShellScript"), InstanceIds: []string{id}, Parameters: all}))(t)
	if sent.Command.Status != types.CommandStatusPending {
		t.Errorf("a command that was just sent is %s", sent.Command.Status)
	}
	for range 100 {
		s.w.Step(2 * time.Second)
		out := must(c.GetCommandInvocation(s.ctx(), &ssm.GetCommandInvocationInput{CommandId: sent.Command.CommandId, InstanceId: &id}))(t)
		if out.Status != types.CommandInvocationStatusPending && out.Status != types.CommandInvocationStatusInProgress {
			return out
		}
	}
	t.Fatal("the command does not end")
	return nil
}

func TestRunCommand(t *testing.T) {
	s := newSite(t, immediate)
	c := ssm.NewFromConfig(s.cfg)
	id := s.machine(t, "subnetA")
	info := must(c.DescribeInstanceInformation(s.ctx(), &ssm.DescribeInstanceInformationInput{Filters: []types.InstanceInformationStringFilter{{Key: awssdk.String("InstanceIds"), Values: []string{id}}}}))(t)
	if len(info.InstanceInformationList) != 1 || info.InstanceInformationList[0].PingStatus != types.PingStatusOnline || *info.InstanceInformationList[0].PlatformName != "Ubuntu" {
		t.Fatalf("instance information: %+v", info.InstanceInformationList)
	}
	good := s.command(t, c, id, "echo hello", nil)
	if good.Status != types.CommandInvocationStatusSuccess || good.ResponseCode != 0 || *good.StandardOutputContent != "hello\n" || *good.ExecutionStartDateTime == "" {
		t.Errorf("a good command: %+v", good)
	}
	bad := s.command(t, c, id, "echo oops >&2; exit 11", nil)
	if bad.Status != types.CommandInvocationStatusFailed || bad.ResponseCode != 11 || !strings.Contains(*bad.StandardErrorContent, "failed to run commands: exit status 11") {
		t.Errorf("a failing command: %+v", bad)
	}
	slow := s.command(t, c, id, "sleep 600", map[string][]string{"executionTimeout": {"30"}})
	if slow.Status != types.CommandInvocationStatusTimedOut || *slow.StatusDetails != "ExecutionTimedOut" {
		t.Errorf("a slow command: %s %s", slow.Status, *slow.StatusDetails)
	}
	long := s.command(t, c, id, "for i in 1 2 3 4 5 6 7 8 9 10; do printf '%03000d' 0; done", nil)
	if n := len(*long.StandardOutputContent); n != maxStdout || !strings.HasSuffix(*long.StandardOutputContent, truncationMark) {
		t.Errorf("long output: %d characters", n)
	}
	list := must(c.ListCommandInvocations(s.ctx(), &ssm.ListCommandInvocationsInput{InstanceId: &id, Details: true}))(t)
	if len(list.CommandInvocations) != 4 || len(list.CommandInvocations[0].CommandPlugins) != 1 {
		t.Errorf("invocations: %+v", list.CommandInvocations)
	}
}

func TestCommandRefusals(t *testing.T) {
	s := newSite(t, immediate)
	c := ssm.NewFromConfig(s.cfg)
	id := s.machine(t, "subnetA")
	send := func(change func(*ssm.SendCommandInput)) error {
		in := &ssm.SendCommandInput{DocumentName: awssdk.String("AWS-RunShellScript"), InstanceIds: []string{id}, Parameters: map[string][]string{"commands": {"true"}}}
		change(in)
		_, err := c.SendCommand(s.ctx(), in)
		return err
	}
	for _, tc := range []struct {
		name, code string
		change     func(*ssm.SendCommandInput)
	}{
		{"fine", "", func(*ssm.SendCommandInput) {}},
		{"unknown instance", "InvalidInstanceId", func(in *ssm.SendCommandInput) { in.InstanceIds = []string{"i-00000000000000000"} }},
		{"twice", "DuplicateInstanceId", func(in *ssm.SendCommandInput) { in.InstanceIds = []string{id, id} }},
		{"unknown document", "InvalidDocument", func(in *ssm.SendCommandInput) { in.DocumentName = awssdk.String("No-Such") }},
		{"unknown parameter", "InvalidParameters", func(in *ssm.SendCommandInput) { in.Parameters["x"] = []string{"y"} }},
		{"no commands", "InvalidParameters", func(in *ssm.SendCommandInput) { delete(in.Parameters, "commands") }},
		{"long comment", "ValidationException", func(in *ssm.SendCommandInput) { in.Comment = awssdk.String(strings.Repeat("x", 101)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := send(tc.change)
			if tc.code != "" {
				wantCode(t, err, tc.code)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	must(s.ec2.StopInstances(s.ctx(), &ec2.StopInstancesInput{InstanceIds: []string{id}}))(t)
	s.w.Step(time.Minute)
	wantCode(t, send(func(*ssm.SendCommandInput) {}), "InvalidInstanceId")
	_, err := c.GetCommandInvocation(s.ctx(), &ssm.GetCommandInvocationInput{CommandId: awssdk.String("00000000-0000-4000-8000-000000000000"), InstanceId: &id})
	wantCode(t, err, "InvocationDoesNotExist")
}

// A probe that waits inside of the machine for the end of its start sees it when it comes.
func TestCommandWaitsForTheBoot(t *testing.T) {
	s := newSite(t, immediate)
	c := ssm.NewFromConfig(s.cfg)
	data := base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\nsleep 150\nmkdir -p /var/lib/site\ntouch /var/lib/site/ready\n"))
	out := must(s.ec2.RunInstances(s.ctx(), &ec2.RunInstancesInput{MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), ImageId: awssdk.String(s.vars["image"]), InstanceType: ec2types.InstanceTypeT3Micro,
		UserData: &data, IamInstanceProfile: &ec2types.IamInstanceProfileSpecification{Name: awssdk.String("web")},
		NetworkInterfaces: []ec2types.InstanceNetworkInterfaceSpecification{{DeviceIndex: awssdk.Int32(0), SubnetId: awssdk.String(s.vars["subnetA"]), AssociatePublicIpAddress: awssdk.Bool(true)}}}))(t)
	id := *out.Instances[0].InstanceId
	s.w.Step(45 * time.Second)
	started := s.w.Clock.Now()
	got := s.command(t, c, id, "for i in $(seq 480); do test -e /var/lib/site/ready && exit 0; sleep 1; done; exit 11", nil)
	waited := s.w.Clock.Now().Sub(started)
	if got.Status != types.CommandInvocationStatusSuccess || waited < time.Minute || waited > 4*time.Minute {
		t.Errorf("%s (%d) after %v", got.Status, got.ResponseCode, waited)
	}
}

func TestAgentNeedsARole(t *testing.T) {
	s := newSite(t, immediate)
	c := ssm.NewFromConfig(s.cfg)
	out := must(s.ec2.RunInstances(s.ctx(), &ec2.RunInstancesInput{MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), ImageId: awssdk.String(s.vars["image"]), InstanceType: ec2types.InstanceTypeT3Micro, SubnetId: awssdk.String(s.vars["subnetA"])}))(t)
	s.w.Step(5 * time.Minute)
	info := must(c.DescribeInstanceInformation(s.ctx(), nil))(t)
	if len(info.InstanceInformationList) != 0 {
		t.Errorf("%s registered without a role", *out.Instances[0].InstanceId)
	}
	if _, err := s.w.AddFault(sim.Fault{Service: "ssm", Kind: sim.FaultThrottle}); err != nil {
		t.Fatal(err)
	}
	_, err := c.DescribeInstanceInformation(s.ctx(), nil)
	wantCode(t, err, "ThrottlingException")
}

// Targets choose machines by tag and leave out those that are not ready; a machine that goes away gets no command.
func TestCommandsByTarget(t *testing.T) {
	s := newSite(t, immediate)
	c := ssm.NewFromConfig(s.cfg)
	one, two, three := s.machine(t, "subnetA"), s.machine(t, "subnetA"), s.machine(t, "subnetB")
	must(s.ec2.CreateTags(s.ctx(), &ec2.CreateTagsInput{Resources: []string{one, two}, Tags: []ec2types.Tag{{Key: awssdk.String("role"), Value: awssdk.String("web")}}}))(t)
	if n := len(must(c.DescribeInstanceInformation(s.ctx(), nil))(t).InstanceInformationList); n != 3 {
		t.Errorf("%d machines have registered, want 3", n)
	}
	must(s.ec2.StopInstances(s.ctx(), &ec2.StopInstancesInput{InstanceIds: []string{two}}))(t)
	s.w.Step(time.Minute)
	send := func(tag string) *types.Command {
		return must(c.SendCommand(s.ctx(), &ssm.SendCommandInput{DocumentName: awssdk.String("AWS-RunShellScript"), Parameters: map[string][]string{"commands": {"hostname"}},
			Targets: []types.Target{{Key: awssdk.String("tag:role"), Values: []string{tag}}}, TimeoutSeconds: awssdk.Int32(60)}))(t).Command
	}
	if got := send("web"); got.TargetCount != 1 {
		t.Errorf("%d targets, want the one that runs", got.TargetCount)
	}
	if got := send("none"); got.TargetCount != 0 || got.Status != types.CommandStatusSuccess {
		t.Errorf("%d targets, %s, want none", got.TargetCount, got.Status)
	}
	info := must(c.DescribeInstanceInformation(s.ctx(), &ssm.DescribeInstanceInformationInput{Filters: []types.InstanceInformationStringFilter{{Key: awssdk.String("PingStatus"), Values: []string{"ConnectionLost"}}}}))(t)
	if len(info.InstanceInformationList) != 1 || *info.InstanceInformationList[0].InstanceId != two {
		t.Errorf("connection lost: %+v", info.InstanceInformationList)
	}

	// The machine stops before the command arrives.
	sent := must(c.SendCommand(s.ctx(), &ssm.SendCommandInput{DocumentName: awssdk.String("AWS-RunShellScript"), Parameters: map[string][]string{"commands": {"true"}}, InstanceIds: []string{one, three}, TimeoutSeconds: awssdk.Int32(60)}))(t).Command
	must(s.ec2.StopInstances(s.ctx(), &ec2.StopInstancesInput{InstanceIds: []string{one}}))(t)
	s.w.Step(2 * time.Minute)
	got := must(c.GetCommandInvocation(s.ctx(), &ssm.GetCommandInvocationInput{CommandId: sent.CommandId, InstanceId: &one}))(t)
	if got.Status != types.CommandInvocationStatusTimedOut || *got.StatusDetails != "DeliveryTimedOut" {
		t.Errorf("%s (%s), want TimedOut (DeliveryTimedOut)", got.Status, *got.StatusDetails)
	}
	list := must(c.ListCommands(s.ctx(), &ssm.ListCommandsInput{CommandId: sent.CommandId}))(t).Commands[0]
	if list.Status != types.CommandStatusTimedOut || list.CompletedCount != 2 || list.DeliveryTimedOutCount != 1 {
		t.Errorf("command: %s, %d completed, %d not delivered", list.Status, list.CompletedCount, list.DeliveryTimedOutCount)
	}

	slow := must(c.SendCommand(s.ctx(), &ssm.SendCommandInput{DocumentName: awssdk.String("AWS-RunShellScript"), Parameters: map[string][]string{"commands": {"sleep 600"}}, InstanceIds: []string{three}}))(t).Command
	s.w.Step(10 * time.Second)
	must(c.CancelCommand(s.ctx(), &ssm.CancelCommandInput{CommandId: slow.CommandId}))(t)
	s.w.Step(20 * time.Minute)
	if got := must(c.GetCommandInvocation(s.ctx(), &ssm.GetCommandInvocationInput{CommandId: slow.CommandId, InstanceId: &three}))(t); got.Status != types.CommandInvocationStatusCancelled {
		t.Errorf("a cancelled command is %s", got.Status)
	}
}
