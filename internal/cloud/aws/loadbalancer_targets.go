package aws

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const targetGroupKey = "tg"

// EnsureTargetGroup makes the target group and puts the VMs in it: one by one,
// or by attaching their scaling group.
func (p *Provider) EnsureTargetGroup(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := lbSpec(r.Job)
	if err != nil {
		return err
	}
	x := p.targetGroup(r, lb, false)
	id, err := r.Ensure(ctx, x)
	learn(r, &r.Job.Config.InfraConfig.TargetGroupID, id)
	if err != nil {
		return visible(r, "the target group", err)
	}
	if r.Mode == pipeline.Plan {
		return nil
	}
	return confirm(ctx, r, x)
}

// RemoveTargetGroup takes the scaling group off the target group and removes
// it. Its listeners are gone by then, so that no target has traffic left to
// drain.
func (p *Provider) RemoveTargetGroup(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := lbSpec(r.Job)
	if err != nil {
		return err
	}
	if rec, ok := r.Object(kindTargetGroup, targetGroupKey); ok && rec.State == job.ObjectCreated {
		if err := p.detachTargets(ctx, r, rec.ID); err != nil {
			return err
		}
	}
	return r.Remove(ctx, p.targetGroup(r, lb, true))
}

// detachTargets gives the scaling group its own health check back before its
// targets go: one that still asks the load balancer would replace every VM.
func (p *Provider) detachTargets(ctx context.Context, r *pipeline.Run, arn string) error {
	rec, ok := r.Object(kindScalingGroup, scalingGroupKey)
	if !ok || rec.State != job.ObjectCreated {
		return nil
	}
	g, err := p.readScalingGroup(ctx, rec.ID)
	if pipeline.Is(err, pipeline.NotFound) {
		return nil
	}
	if err != nil {
		return plain(err)
	}
	if aws.ToString(g.HealthCheckType) != "EC2" {
		if err := p.setHealthCheck(ctx, rec.ID, "EC2"); err != nil {
			return err
		}
	}
	if !slices.Contains(attachedGroups(g), arn) {
		return nil
	}
	_, err = p.asg.DetachLoadBalancerTargetGroups(ctx, &autoscaling.DetachLoadBalancerTargetGroupsInput{
		AutoScalingGroupName: aws.String(rec.ID), TargetGroupARNs: []string{arn},
	})
	return plain(err)
}

func (p *Provider) setHealthCheck(ctx context.Context, group, kind string) error {
	_, err := p.asg.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(group), HealthCheckType: aws.String(kind), HealthCheckGracePeriod: aws.Int32(int32(healthGrace.Seconds())),
	})
	return plain(err)
}

// attachedGroups are the target groups of a scaling group, in either of the
// two lists that the API has for them.
func attachedGroups(g asgtypes.AutoScalingGroup) []string {
	out := slices.Clone(g.TargetGroupARNs)
	for _, s := range g.TrafficSources {
		if id := aws.ToString(s.Identifier); !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func (p *Provider) readTargetGroup(ctx context.Context, arn string) (elbtypes.TargetGroup, error) {
	return lookup.Once(ctx, kindTargetGroup+" "+arn, func(ctx context.Context) (elbtypes.TargetGroup, error) {
		out, err := p.elb.DescribeTargetGroups(ctx, &elb.DescribeTargetGroupsInput{TargetGroupArns: []string{arn}})
		if err != nil {
			return elbtypes.TargetGroup{}, err
		}
		for _, g := range out.TargetGroups {
			if aws.ToString(g.TargetGroupArn) == arn {
				return g, nil
			}
		}
		return elbtypes.TargetGroup{}, absent("Elastic Load Balancing v2", "DescribeTargetGroups", arn)
	})
}

// targetGroupInput is what a target group is made with.
func targetGroupInput(r *pipeline.Run, lb job.LoadBalancer, groupName string) *elb.CreateTargetGroupInput {
	infra := r.Job.Config.InfraConfig
	in := &elb.CreateTargetGroupInput{
		Name: aws.String(groupName), TargetType: elbtypes.TargetTypeEnumInstance, VpcId: aws.String(infra.NetworkID),
		Protocol: elbtypes.ProtocolEnumHttp, Port: aws.Int32(int32(lb.Port)),
		HealthCheckEnabled: aws.Bool(true), HealthCheckProtocol: elbtypes.ProtocolEnumHttp,
		HealthCheckPath: aws.String(lb.HealthCheck.Path), HealthCheckPort: aws.String(strconv.Itoa(lb.HealthCheck.Port)),
		HealthCheckIntervalSeconds: aws.Int32(10), HealthCheckTimeoutSeconds: aws.Int32(5),
		HealthyThresholdCount: aws.Int32(2), UnhealthyThresholdCount: aws.Int32(3),
		Tags: elbTags(tags(r, targetGroupKey, groupName)),
	}
	if lb.Type == job.LBTCP {
		in.Protocol = elbtypes.ProtocolEnumTcp
	}
	return in
}

// targetGroup is the job's target group. As for load balancers, creating it
// again with the same settings succeeds and makes nothing.
func (p *Provider) targetGroup(r *pipeline.Run, lb job.LoadBalancer, leaving bool) pipeline.Resource {
	groupName := name(r, targetGroupKey, 32)
	in := targetGroupInput(r, lb, groupName)
	seen := func(g elbtypes.TargetGroup, owner string) pipeline.Seen {
		return pipeline.Seen{ID: aws.ToString(g.TargetGroupArn), Owner: owner, Status: pipeline.Ready}
	}
	x := pipeline.Resource{Kind: kindTargetGroup, Key: targetGroupKey, Name: groupName, Args: in, Tokened: true}
	x.Get = func(ctx context.Context, arn string) (pipeline.Seen, error) {
		g, err := p.readTargetGroup(ctx, arn)
		if err != nil {
			return pipeline.Seen{}, err
		}
		owners, err := p.elbOwners(ctx, arn)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := seen(g, owners[arn])
		if leaving {
			return s, nil
		}
		if g.HealthCheckPath != nil && g.HealthCheckPort != nil { // else they are not reported
			s.Aspects = append(s.Aspects, p.healthCheckAspect(g, in))
		}
		if g.Port != nil {
			s.Aspects = append(s.Aspects, pipeline.Aspect{Name: "protocol and port",
				Wanted: fmt.Sprintf("%s %d", in.Protocol, aws.ToInt32(in.Port)), Seen: fmt.Sprintf("%s %d", g.Protocol, aws.ToInt32(g.Port))})
		}
		targets, err := p.targetsAspect(ctx, r, arn)
		if err != nil {
			return s, err
		}
		s.Aspects = append(s.Aspects, targets)
		return s, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		out, err := p.elb.DescribeTargetGroups(ctx, &elb.DescribeTargetGroupsInput{Names: []string{groupName}})
		if err != nil || len(out.TargetGroups) == 0 {
			return nil, err
		}
		owners, err := p.elbOwners(ctx, aws.ToString(out.TargetGroups[0].TargetGroupArn))
		if err != nil {
			return nil, err
		}
		s := seen(out.TargetGroups[0], owners[aws.ToString(out.TargetGroups[0].TargetGroupArn)])
		if err := intendedTagsLate(r, kindTargetGroup, targetGroupKey, s.Owner); err != nil {
			return nil, err
		}
		s.Status = pipeline.Pending // whoever takes it reads it with its targets
		return []pipeline.Seen{s}, nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.elb.CreateTargetGroup(ctx, in)
		if err != nil || len(out.TargetGroups) == 0 {
			return pipeline.Seen{}, err
		}
		s := seen(out.TargetGroups[0], r.Job.ID)
		s.Status = pipeline.Pending
		return s, nil
	}
	x.Delete = func(ctx context.Context, arn string) error {
		_, err := p.elb.DeleteTargetGroup(ctx, &elb.DeleteTargetGroupInput{TargetGroupArn: aws.String(arn)})
		return err
	}
	return tidy(lookFirst(r, x))
}

// healthCheckAspect is the one thing about a target group that can be changed.
func (p *Provider) healthCheckAspect(g elbtypes.TargetGroup, want *elb.CreateTargetGroupInput) pipeline.Aspect {
	return pipeline.Aspect{
		Name:   "health check",
		Wanted: checkText(want.HealthCheckProtocol, want.HealthCheckPath, want.HealthCheckPort),
		Seen:   checkText(g.HealthCheckProtocol, g.HealthCheckPath, g.HealthCheckPort),
		Set: func(ctx context.Context) error {
			_, err := p.elb.ModifyTargetGroup(ctx, &elb.ModifyTargetGroupInput{
				TargetGroupArn: g.TargetGroupArn, HealthCheckProtocol: want.HealthCheckProtocol,
				HealthCheckPath: want.HealthCheckPath, HealthCheckPort: want.HealthCheckPort,
			})
			return err
		},
	}
}

func checkText(protocol elbtypes.ProtocolEnum, path, port *string) string {
	return fmt.Sprintf("%s GET %s on port %s", protocol, aws.ToString(path), aws.ToString(port))
}

// targetsAspect compares who is in the group with who should be. What somebody
// else has put there is left, and shown by a verify.
func (p *Provider) targetsAspect(ctx context.Context, r *pipeline.Run, arn string) (pipeline.Aspect, error) {
	infra := r.Job.Config.InfraConfig
	if infra.ScalingGroupID != "" {
		return p.attachedAspectOf(ctx, infra.ScalingGroupID, arn)
	}
	health, err := p.health(ctx, arn)
	if err != nil {
		return pipeline.Aspect{}, err
	}
	var want, have, missing []string
	for _, vm := range infra.VMs {
		if vm.InstanceID != "" {
			want = append(want, vm.InstanceID)
		}
	}
	for _, h := range health {
		if h.Health != string(elbtypes.TargetHealthStateEnumDraining) && (r.Mode == pipeline.Verify || slices.Contains(want, h.InstanceID)) {
			have = append(have, h.InstanceID)
		}
	}
	for _, id := range want {
		if !slices.Contains(have, id) {
			missing = append(missing, id)
		}
	}
	return pipeline.Aspect{Name: "targets", Wanted: sortedList(want), Seen: sortedList(have), Set: func(ctx context.Context) error {
		var targets []elbtypes.TargetDescription
		for _, id := range missing {
			targets = append(targets, elbtypes.TargetDescription{Id: aws.String(id)})
		}
		if len(targets) == 0 {
			return nil
		}
		_, err := p.elb.RegisterTargets(ctx, &elb.RegisterTargetsInput{TargetGroupArn: aws.String(arn), Targets: targets})
		return err
	}}, nil
}

func (p *Provider) attachedAspectOf(ctx context.Context, group, arn string) (pipeline.Aspect, error) {
	g, err := p.readScalingGroup(ctx, group)
	if err != nil {
		return pipeline.Aspect{}, err
	}
	a := pipeline.Aspect{Name: "targets", Wanted: "scaling group " + group, Seen: "none", Set: func(ctx context.Context) error {
		_, err := p.asg.AttachLoadBalancerTargetGroups(ctx, &autoscaling.AttachLoadBalancerTargetGroupsInput{
			AutoScalingGroupName: aws.String(group), TargetGroupARNs: []string{arn},
		})
		if lacksCall(err) && p.foreignEndpoint() {
			return p.registerMembers(ctx, g, arn)
		}
		return err
	}}
	attached := slices.Contains(attachedGroups(g), arn)
	if !attached && p.foreignEndpoint() {
		attached, err = p.membersAreTargets(ctx, g, arn)
	}
	if attached {
		a.Seen = a.Wanted
	}
	return a, err
}

// TargetHealth says what the load balancer thinks of each VM; it only reads.
func (p *Provider) TargetHealth(ctx context.Context, j *job.Job) ([]job.TargetInfo, error) {
	if j.Config.InfraConfig.TargetGroupID == "" {
		return nil, nil
	}
	out, err := p.health(lookup.For(ctx, j.ID), j.Config.InfraConfig.TargetGroupID)
	return out, plain(err)
}

// health is every target's state, sorted by instance.
func (p *Provider) health(ctx context.Context, arn string) ([]job.TargetInfo, error) {
	return lookup.Once(ctx, "elbv2 health "+arn, func(ctx context.Context) ([]job.TargetInfo, error) {
		out, err := p.elb.DescribeTargetHealth(ctx, &elb.DescribeTargetHealthInput{TargetGroupArn: aws.String(arn)})
		if err != nil {
			return nil, err
		}
		var all []job.TargetInfo
		for _, d := range out.TargetHealthDescriptions {
			if d.Target == nil {
				continue
			}
			t := job.TargetInfo{InstanceID: aws.ToString(d.Target.Id)}
			if h := d.TargetHealth; h != nil {
				t.Health = string(h.State)
				t.Reason = strings.Trim(string(h.Reason)+": "+aws.ToString(h.Description), ": ")
			}
			all = append(all, t)
		}
		slices.SortFunc(all, func(a, b job.TargetInfo) int { return strings.Compare(a.InstanceID, b.InstanceID) })
		return all, nil
	})
}
