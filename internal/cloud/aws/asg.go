package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindScalingGroup = "autoscaling:group"
	scalingGroupKey  = "asg"
)

// healthGrace is how long a scaling group leaves a fresh VM alone: longer than
// the bootstrap takes, or the group kills VMs that are still installing, over
// and over (failure kind K2).
const healthGrace = 15 * time.Minute

// idlePatience is how long a group that does nothing at all is waited for where
// the endpoint may be one that starts no VMs for groups.
const idlePatience = 3 * time.Minute

// groupPatience is how long a scaling group may take to bring its VMs up.
const groupPatience = 20 * time.Minute

func (p *Provider) scalingGroupPage(ctx context.Context, names []string, filters []asgtypes.Filter) ([]asgtypes.AutoScalingGroup, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]asgtypes.AutoScalingGroup, *string, error) {
		out, err := p.asg.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: names, Filters: filters, NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.AutoScalingGroups, out.NextToken, nil
	})
}

func (p *Provider) scalingGroups() lookup.Kind[asgtypes.AutoScalingGroup] {
	k := lookup.Kind[asgtypes.AutoScalingGroup]{
		Name: kindScalingGroup,
		ID:   func(g asgtypes.AutoScalingGroup) string { return aws.ToString(g.AutoScalingGroupName) },
		Mark: func(g asgtypes.AutoScalingGroup) (owner, object string) {
			for _, t := range g.Tags {
				switch aws.ToString(t.Key) {
				case job.MarkOwner:
					owner = aws.ToString(t.Value)
				case job.MarkObject:
					object = aws.ToString(t.Value)
				}
			}
			return owner, object
		},
	}
	k.List = func(ctx context.Context, owner string) ([]asgtypes.AutoScalingGroup, error) {
		all, err := p.scalingGroupPage(ctx, nil, []asgtypes.Filter{{Name: aws.String("tag:" + job.MarkOwner), Values: []string{owner}}})
		return slices.DeleteFunc(all, func(g asgtypes.AutoScalingGroup) bool {
			who, _ := k.Mark(g)
			return who != owner
		}), err
	}
	k.One = p.readScalingGroup
	return k
}

// readScalingGroup reads a group by its name, which shows earlier than its tags.
func (p *Provider) readScalingGroup(ctx context.Context, id string) (asgtypes.AutoScalingGroup, error) {
	return lookup.Once(ctx, kindScalingGroup+" "+id, func(ctx context.Context) (asgtypes.AutoScalingGroup, error) {
		found, err := p.scalingGroupPage(ctx, []string{id}, nil)
		if err != nil {
			return asgtypes.AutoScalingGroup{}, err
		}
		for _, g := range found {
			if aws.ToString(g.AutoScalingGroupName) == id {
				return g, nil
			}
		}
		return asgtypes.AutoScalingGroup{}, absent("Auto Scaling", "DescribeAutoScalingGroups", "scaling group "+id)
	})
}

// scalingGroup is the job's Auto Scaling group.
func (p *Provider) scalingGroup(r *pipeline.Run, pool job.Pool, leaving bool) pipeline.Resource {
	infra := r.Job.Config.InfraConfig
	groupName := name(r, scalingGroupKey, 255)
	kind := p.scalingGroups()
	see := func(g asgtypes.AutoScalingGroup) pipeline.Seen {
		s := pipeline.Seen{ID: kind.ID(g), Status: pipeline.Ready, Reason: aws.ToString(g.Status)}
		s.Owner, _ = kind.Mark(g)
		switch {
		case s.Reason != "": // "Delete in progress" is the only status a group has
			s.Status = pipeline.Pending
		case !leaving:
			s.Aspects = p.groupAspects(g, infra, pool)
		}
		return s
	}
	x := pipeline.Resource{Kind: kindScalingGroup, Key: scalingGroupKey, Name: groupName, Slow: true}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		g, err := p.readScalingGroup(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		return see(g), nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		g, err := p.readScalingGroup(ctx, groupName)
		if err != nil {
			return nil, pipeline.Unless(err, pipeline.NotFound)
		}
		s := see(g)
		return []pipeline.Seen{s}, intendedTagsLate(r, kindScalingGroup, scalingGroupKey, s.Owner)
	}
	marks := tags(r, scalingGroupKey, groupName)
	in := &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(groupName),
		MinSize:              size(pool.Min), MaxSize: size(pool.Max), DesiredCapacity: size(pool.Desired),
		LaunchTemplate:         &asgtypes.LaunchTemplateSpecification{LaunchTemplateId: aws.String(infra.LaunchTemplateID), Version: aws.String(templateVersion)},
		VPCZoneIdentifier:      aws.String(strings.Join(infra.PrivateSubnetIDs, ",")),
		HealthCheckType:        aws.String("EC2"), // ELB once targets are seen healthy
		HealthCheckGracePeriod: aws.Int32(int32(healthGrace.Seconds())),
		Tags: tagList(marks, func(k, v *string) asgtypes.Tag {
			return asgtypes.Tag{Key: k, Value: v, PropagateAtLaunch: aws.Bool(true), ResourceId: aws.String(groupName), ResourceType: aws.String("auto-scaling-group")}
		}),
	}
	x.Args = in
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		if _, err := p.asg.CreateAutoScalingGroup(ctx, in); err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: groupName, Owner: r.Job.ID, Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, id string) error { return p.emptyAndDelete(ctx, r, x, id) }
	return tidy(x)
}

func size(n *int) *int32 {
	if n == nil {
		return aws.Int32(0)
	}
	return aws.Int32(int32(*n))
}

// groupAspects compares what a group was made with. The desired capacity is
// left out: scaling policies change it, which is what the group is for.
func (p *Provider) groupAspects(g asgtypes.AutoScalingGroup, infra job.InfraConfig, pool job.Pool) []pipeline.Aspect {
	id := aws.ToString(g.AutoScalingGroupName)
	done := false
	set := func(ctx context.Context) error { // one call puts all of them right
		if done {
			return nil
		}
		_, err := p.asg.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(id), MinSize: size(pool.Min), MaxSize: size(pool.Max),
			VPCZoneIdentifier: aws.String(strings.Join(infra.PrivateSubnetIDs, ",")),
			LaunchTemplate:    &asgtypes.LaunchTemplateSpecification{LaunchTemplateId: aws.String(infra.LaunchTemplateID), Version: aws.String(templateVersion)},
		})
		done = err == nil
		return err
	}
	template := "none"
	if g.LaunchTemplate != nil {
		template = aws.ToString(g.LaunchTemplate.LaunchTemplateId)
	}
	out := []pipeline.Aspect{
		{Name: "size", Wanted: fmt.Sprintf("min %d, max %d", *size(pool.Min), *size(pool.Max)), Seen: fmt.Sprintf("min %d, max %d", aws.ToInt32(g.MinSize), aws.ToInt32(g.MaxSize)), Set: set},
	}
	// A group has one of the three, and always its subnets: an answer without
	// them does not say.
	if g.LaunchTemplate != nil || g.LaunchConfigurationName != nil || g.MixedInstancesPolicy != nil {
		out = append(out, pipeline.Aspect{Name: "launch template", Wanted: infra.LaunchTemplateID, Seen: template, Set: set})
	}
	if subnets := aws.ToString(g.VPCZoneIdentifier); subnets != "" {
		out = append(out, pipeline.Aspect{Name: "subnets", Wanted: sortedList(infra.PrivateSubnetIDs), Seen: sortedList(strings.Split(subnets, ",")), Set: set})
	}
	return out
}

func sortedList(s []string) string {
	return strings.Join(slices.Sorted(slices.Values(s)), ", ")
}

// emptyAndDelete takes a group to zero, waits until its VMs are gone, and then
// deletes it: the group is never deleted by force, so that every VM has ended
// when it goes.
func (p *Provider) emptyAndDelete(ctx context.Context, r *pipeline.Run, x pipeline.Resource, id string) error {
	g, err := p.readScalingGroup(ctx, id)
	if err != nil {
		return err
	}
	if aws.ToInt32(g.MinSize) > 0 || aws.ToInt32(g.MaxSize) > 0 || aws.ToInt32(g.DesiredCapacity) > 0 {
		_, err := p.asg.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(id), MinSize: aws.Int32(0), MaxSize: aws.Int32(0), DesiredCapacity: aws.Int32(0),
		})
		if err := plain(err); pipeline.Is(err, pipeline.Busy) {
			return pipeline.Wait(10*time.Second, "%s to take a change (%v)", x, err)
		} else if err != nil {
			return err
		}
	}
	if n := len(g.Instances); n > 0 {
		protected := 0
		for _, i := range g.Instances {
			if aws.ToBool(i.ProtectedFromScaleIn) {
				protected++
			}
		}
		text := fmt.Sprintf("%d VMs of %s to end", n, x)
		if protected > 0 {
			text += fmt.Sprintf("; %d of them are protected from scale-in, which this job did not ask for: lift it in the group", protected)
		}
		if r.WaitedFor("VMs to end in "+id) > groupPatience {
			return pipeline.Fatal("timed-out", fmt.Sprintf("waited %s for %s", groupPatience, text), "Look at the group's activity history in the console; retry goes on waiting.")
		}
		return pipeline.Wait(10*time.Second, "%s", text)
	}
	_, err = p.asg.DeleteAutoScalingGroup(ctx, &autoscaling.DeleteAutoScalingGroupInput{AutoScalingGroupName: aws.String(id)})
	if err := plain(err); pipeline.Is(err, pipeline.Busy) {
		return pipeline.Wait(10*time.Second, "%s to finish its scaling activities (%v)", x, err)
	}
	return err
}

// removeScalingGroup removes the group, if the job has or may have one, and
// waits for the end of the VMs that it launched.
func (p *Provider) removeScalingGroup(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.VMSpec()
	if err != nil {
		spec = job.VMSpec{}
	}
	_, known := r.Object(kindScalingGroup, scalingGroupKey)
	if !known && spec.Pool.Mode != job.PoolASG || r.Mode == pipeline.Plan {
		return nil
	}
	if err := r.Remove(ctx, p.scalingGroup(r, spec.Pool, true)); err != nil {
		return err
	}
	all, err := p.instances().Owned(ctx)
	if err != nil {
		return plain(err)
	}
	var left, orphans []string
	for _, i := range all {
		_, object := ec2Mark(i.Tags)
		state := stateOf(i)
		if object != scalingGroupKey || state == ec2types.InstanceStateNameTerminated {
			continue
		}
		left = append(left, fmt.Sprintf("%s (%s)", aws.ToString(i.InstanceId), state))
		if state != ec2types.InstanceStateNameShuttingDown {
			orphans = append(orphans, aws.ToString(i.InstanceId))
		}
	}
	if len(left) == 0 {
		return nil
	}
	return p.awaitFormerMembers(ctx, r, left, orphans)
}

// awaitFormerMembers waits for the end of VMs whose group is gone. Those that
// somebody has detached from it, or that outlived a group which was not deleted
// by this job, carry the job's mark and nobody else ends them.
func (p *Provider) awaitFormerMembers(ctx context.Context, r *pipeline.Run, left, orphans []string) error {
	const former = "VMs of the former scaling group"
	since := r.WaitedFor(former)
	if len(orphans) > 0 && since > time.Minute { // by then the group's own doing shows
		// One that is gone already makes the whole call fail: the next pass asks for the others.
		if _, err := p.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: orphans}); pipeline.Unless(plain(err), pipeline.NotFound) != nil {
			return plain(err)
		}
	}
	if since > groupPatience {
		return pipeline.Fatal("timed-out", fmt.Sprintf("VMs of the scaling group, which is gone, have not ended after %s: %s", groupPatience, strings.Join(left, ", ")),
			"Look at them in the cloud's console; retry goes on waiting.")
	}
	return pipeline.Wait(10*time.Second, "VMs of the scaling group to end: %s", strings.Join(left, ", "))
}

// removeFormerGroup removes the group of a pool that was of mode asg before the
// spec was changed.
func (p *Provider) removeFormerGroup(ctx context.Context, r *pipeline.Run) error {
	if o, ok := r.Object(kindScalingGroup, scalingGroupKey); !ok || o.State != job.ObjectCreated && o.State != job.ObjectIntended {
		return nil
	}
	if err := p.removeScalingGroup(ctx, r); err != nil {
		return err
	}
	r.Job.Config.InfraConfig.ScalingGroupID = ""
	return nil
}
