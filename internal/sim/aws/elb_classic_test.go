package aws

import (
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	classic "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
)

func TestClassicLoadBalancers(t *testing.T) {
	r := newRig(t, immediate)
	net := layNetwork(t, r)
	c := classic.NewFromConfig(r.cfg)
	name, subnet, group := awssdk.String("legacy"), net["subnetA"], net["groupLB"]
	in := &classic.CreateLoadBalancerInput{LoadBalancerName: name, Subnets: []string{subnet}, SecurityGroups: []string{group},
		Listeners: []types.Listener{{Protocol: awssdk.String("tcp"), LoadBalancerPort: 80, InstancePort: awssdk.Int32(30080)}},
		Tags:      []types.Tag{{Key: awssdk.String("kubernetes.io/cluster/prod"), Value: awssdk.String("owned")}}}
	must(c.CreateLoadBalancer(r.ctx(), in))(t)
	_, err := c.CreateLoadBalancer(r.ctx(), in)
	wantCode(t, err, "DuplicateLoadBalancerName")
	all := must(c.DescribeLoadBalancers(r.ctx(), &classic.DescribeLoadBalancersInput{}))(t).LoadBalancerDescriptions
	if len(all) != 1 || *all[0].VPCId != net["vpc"] || all[0].ListenerDescriptions[0].Listener.LoadBalancerPort != 80 {
		t.Fatalf("balancers %+v", all)
	}
	if v2 := must(elb.NewFromConfig(r.cfg).DescribeLoadBalancers(r.ctx(), &elb.DescribeLoadBalancersInput{}))(t).LoadBalancers; len(v2) != 0 {
		t.Errorf("the newer API lists it: %+v", v2)
	}
	tags := must(c.DescribeTags(r.ctx(), &classic.DescribeTagsInput{LoadBalancerNames: []string{"legacy"}}))(t).TagDescriptions
	if len(tags) != 1 || len(tags[0].Tags) != 1 || *tags[0].Tags[0].Value != "owned" {
		t.Errorf("tags %+v", tags)
	}
	_, err = c.DescribeTags(r.ctx(), &classic.DescribeTagsInput{LoadBalancerNames: []string{"none"}})
	wantCode(t, err, "LoadBalancerNotFound")
	must(c.DeleteLoadBalancer(r.ctx(), &classic.DeleteLoadBalancerInput{LoadBalancerName: name}))(t)
	must(c.DeleteLoadBalancer(r.ctx(), &classic.DeleteLoadBalancerInput{LoadBalancerName: name}))(t)
	network := ec2.NewFromConfig(r.cfg)
	_, err = network.DeleteSecurityGroup(r.ctx(), &ec2.DeleteSecurityGroupInput{GroupId: &group})
	wantCode(t, err, "DependencyViolation")
	r.w.Step(time.Minute)
	must(network.DeleteSecurityGroup(r.ctx(), &ec2.DeleteSecurityGroupInput{GroupId: &group}))(t)
}
