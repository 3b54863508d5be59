package aws

import (
	"encoding/json"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/zopday/provisioner/internal/sim"
)

// What the control API does to load balancers, targets and commands.
func TestStatesFromOutside(t *testing.T) {
	s := newSite(t, immediate)
	s.openToLB(t)
	if _, err := s.w.AddFault(sim.Fault{Service: "elasticloadbalancing", Operation: "CreateLoadBalancer", Kind: sim.FaultTransition, State: "provisioning"}); err != nil {
		t.Fatal(err)
	}
	lb, group := s.balancer(t, "/healthz")
	state := func() types.LoadBalancerStateEnum {
		return must(s.elb.DescribeLoadBalancers(s.ctx(), &elb.DescribeLoadBalancersInput{LoadBalancerArns: []string{lb}}))(t).LoadBalancers[0].State.Code
	}
	s.w.Step(time.Hour)
	if got := state(); got != types.LoadBalancerStateEnumProvisioning {
		t.Errorf("held at provisioning, but %s after an hour", got)
	}
	for _, want := range []types.LoadBalancerStateEnum{types.LoadBalancerStateEnumFailed, types.LoadBalancerStateEnumActive} {
		if _, err := s.w.SetObjectState(lb, string(want), "", "somebody said so"); err != nil {
			t.Fatal(err)
		}
		if got := state(); got != want {
			t.Errorf("state %s, want %s", got, want)
		}
	}

	one, two := s.machine(t, "subnetA"), s.machine(t, "subnetB")
	s.register(t, group, one)
	s.register(t, group, two)
	s.w.Step(time.Minute)
	if _, err := s.w.SetObjectState(group+"/"+one+":80", "unhealthy", "Target.Timeout", "Request timed out"); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.health(t, group, one); got != "unhealthy" {
		t.Errorf("the first target is %s", got)
	}
	if got, _ := s.health(t, group, two); got != "healthy" {
		t.Errorf("the second target is %s", got)
	}
	if _, err := s.w.RemoveObject(group + "/" + two + ":80"); err != nil {
		t.Fatal(err)
	}
	if got, reason := s.health(t, group, two); got != "unused" || reason != "Target.NotRegistered" {
		t.Errorf("the removed target is %s (%s)", got, reason)
	}

	c := ssm.NewFromConfig(s.cfg)
	if _, err := s.w.AddFault(sim.Fault{Service: "ssm", Operation: "SendCommand", Kind: sim.FaultTransition, State: "InProgress"}); err != nil {
		t.Fatal(err)
	}
	sent := must(c.SendCommand(s.ctx(), &ssm.SendCommandInput{DocumentName: awssdk.String("AWS-RunShellScript"), InstanceIds: []string{one}, Parameters: map[string][]string{"commands": {"true"}}}))(t)
	s.w.Step(30 * time.Minute)
	got := must(c.GetCommandInvocation(s.ctx(), &ssm.GetCommandInvocationInput{CommandId: sent.Command.CommandId, InstanceId: &one}))(t)
	if got.Status != ssmtypes.CommandInvocationStatusInProgress {
		t.Errorf("the command is %s", got.Status)
	}

	// Interfaces that stay for three quarters of an hour.
	if _, err := s.w.PatchObject(lb, json.RawMessage(`{"LingerSeconds": 2700}`)); err != nil {
		t.Fatal(err)
	}
	must(s.elb.DeleteLoadBalancer(s.ctx(), &elb.DeleteLoadBalancerInput{LoadBalancerArn: &lb}))(t)
	nics := func() int { return len(s.w.Objects(sim.ObjectFilter{Kind: "network-interface", Account: testAccount})) }
	s.w.Step(44 * time.Minute)
	before := nics()
	s.w.Step(2 * time.Minute)
	if after := nics(); after != before-2 {
		t.Errorf("%d interfaces after 44 minutes, %d after 46", before, after)
	}
}
