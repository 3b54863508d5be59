package aws

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// What a person changes at the cloud is named, attribute by attribute, with
// what was asked for and what is there.
func TestVMDrift(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		change     func(context.Context, vmRig) error
		want       pipeline.Drift // without its ID
	}{
		{"group's size", groupLBSpec, func(ctx context.Context, g vmRig) error {
			_, err := g.p.asg.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String(g.infra().ScalingGroupID), MaxSize: aws.Int32(9)})
			return err
		}, pipeline.Drift{Kind: kindScalingGroup, Key: "asg", Attr: "size", Wanted: "min 1, max 4", Seen: "min 1, max 9"}},
		{"group's health check", groupLBSpec, func(_ context.Context, g vmRig) error {
			return g.p.setHealthCheck(anything(t.Context()), g.infra().ScalingGroupID, "EC2")
		}, pipeline.Drift{Kind: kindScalingGroup, Key: "asg", Attr: "health check type", Wanted: "ELB", Seen: "EC2"}},
		{"health check", fixedLBSpec, func(ctx context.Context, g vmRig) error {
			_, err := g.p.elb.ModifyTargetGroup(ctx, &elb.ModifyTargetGroupInput{TargetGroupArn: aws.String(g.infra().TargetGroupID), HealthCheckPath: aws.String("/")})
			return err
		}, pipeline.Drift{Kind: kindTargetGroup, Key: "tg", Attr: "health check", Wanted: "HTTP GET /healthz on port 80", Seen: "HTTP GET / on port 80"}},
		{"listener's port", fixedLBSpec, func(ctx context.Context, g vmRig) error {
			_, err := g.p.elb.ModifyListener(ctx, &elb.ModifyListenerInput{ListenerArn: aws.String(g.infra().ListenerIDs[0]), Port: aws.Int32(8080)})
			return err
		}, pipeline.Drift{Kind: kindListener, Key: "http", Attr: "listens on", Wanted: "HTTP 80", Seen: "HTTP 8080"}},
		{"targets", fixedLBSpec, func(ctx context.Context, g vmRig) error {
			_, err := g.p.elb.DeregisterTargets(ctx, &elb.DeregisterTargetsInput{TargetGroupArn: aws.String(g.infra().TargetGroupID),
				Targets: []elbtypes.TargetDescription{{Id: aws.String(g.infra().VMs[0].InstanceID)}}})
			return err
		}, pipeline.Drift{Kind: kindTargetGroup, Key: "tg", Attr: "targets"}},
		{"load balancer's group", fixedLBSpec, func(ctx context.Context, g vmRig) error {
			return g.p.allow(ctx, g.infra().LoadBalancerSecurityGroupID, ingress, []line{{proto: "tcp", from: 8443, to: 8443, peer: "203.0.113.0/24"}})
		}, pipeline.Drift{Kind: kindSecurityGroup, Key: "lb", Attr: "ingress", Wanted: "tcp 80 0.0.0.0/0", Seen: "tcp 80 0.0.0.0/0, tcp 8443 203.0.113.0/24"}},
		{"template", fixedSpec, func(ctx context.Context, g vmRig) error {
			_, err := g.p.ec2.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateId: aws.String(g.infra().LaunchTemplateID), SourceVersion: aws.String("1"),
				LaunchTemplateData: &ec2types.RequestLaunchTemplateData{MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: ec2types.LaunchTemplateHttpTokensStateOptional, HttpPutResponseHopLimit: aws.Int32(1)}}})
			if err != nil {
				return err
			}
			_, err = g.p.ec2.ModifyLaunchTemplate(ctx, &ec2.ModifyLaunchTemplateInput{LaunchTemplateId: aws.String(g.infra().LaunchTemplateID), DefaultVersion: aws.String("2")})
			return err
		}, pipeline.Drift{Kind: kindLaunchTemplate, Key: "vm", Attr: "instance metadata", Wanted: "tokens required, hop limit 1", Seen: "tokens optional, hop limit 1"}},
		{"instance type", fixedSpec, func(ctx context.Context, g vmRig) error {
			id := g.infra().VMs[1].InstanceID
			if _, err := g.p.ec2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}}); err != nil {
				return err
			}
			g.world.Step(5 * minute)
			if _, err := g.p.ec2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: aws.String(id), InstanceType: &ec2types.AttributeValue{Value: aws.String("t3.large")}}); err != nil {
				return err
			}
			_, err := g.p.ec2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}})
			g.world.Step(5 * minute)
			return err
		}, pipeline.Drift{Kind: kindInstance, Key: "vm-2", Attr: "instance type", Wanted: "t3.medium", Seen: "t3.large"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, c.spec)
			g.create()
			if err := c.change(anything(t.Context()), g); err != nil {
				t.Fatal(err)
			}
			g.world.Step(minute / 4)
			drift, _ := g.verify()
			var found *pipeline.Drift
			for _, d := range drift {
				if d.Kind == c.want.Kind && d.Key == c.want.Key && d.Attr == c.want.Attr {
					found = &d
				}
			}
			if found == nil {
				t.Fatalf("no such drift in %+v", drift)
			}
			if c.want.Wanted == "" {
				return // whose IDs differ from run to run
			}
			found.ID = ""
			if d := cmp.Diff(c.want, *found); d != "" {
				t.Error(d)
			}
		})
	}
}
