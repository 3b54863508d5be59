package aws

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

func (s *asgService) describeActivities(c *reqCtx, in *autoscaling.DescribeScalingActivitiesInput) (*autoscaling.DescribeScalingActivitiesOutput, error) {
	sc, all := s.state.in(c.scope()), []types.Activity{}
	if in.AutoScalingGroupName != nil && sc.Groups[*in.AutoScalingGroupName] == nil {
		return nil, noGroupNamed(*in.AutoScalingGroupName)
	}
	for _, name := range sortedKeys(sc.Groups) {
		if in.AutoScalingGroupName != nil && *in.AutoScalingGroupName != name {
			continue
		}
		g := sc.Groups[name]
		for _, a := range g.Activities {
			if len(in.ActivityIds) == 0 || slices.Contains(in.ActivityIds, a.ID) {
				all = append(all, s.sdkActivity(g, a))
			}
		}
	}
	page, next, err := asgPage(c, all, in.NextToken, in.MaxRecords, 100, 100)
	return &autoscaling.DescribeScalingActivitiesOutput{Activities: page, NextToken: next}, err
}

func (s *asgService) describeInstances(c *reqCtx, in *autoscaling.DescribeAutoScalingInstancesInput) (*autoscaling.DescribeAutoScalingInstancesOutput, error) {
	sc, all := s.state.in(c.scope()), []types.AutoScalingInstanceDetails{}
	for _, name := range sortedKeys(sc.Groups) {
		g := sc.Groups[name]
		for _, i := range g.Instances {
			if len(in.InstanceIds) > 0 && !slices.Contains(in.InstanceIds, i.ID) || !c.visible(g.ARN+"|"+i.ID, i.Launched, true, "group-instance", g.Name, i.ID) {
				continue
			}
			// Here, unlike in DescribeAutoScalingGroups, the health status is in capital letters.
			health := map[string]string{"Healthy": "HEALTHY", "Unhealthy": "UNHEALTHY"}[i.Health]
			all = append(all, types.AutoScalingInstanceDetails{InstanceId: &i.ID, InstanceType: &i.Type, AutoScalingGroupName: &g.Name, AvailabilityZone: &i.AZ,
				LifecycleState: &i.State, HealthStatus: &health, ProtectedFromScaleIn: &i.Protected, LaunchTemplate: s.sdkTemplate(c.scope(), g, i.Version)})
		}
	}
	page, next, err := asgPage(c, all, in.NextToken, in.MaxRecords, 50, 50)
	return &autoscaling.DescribeAutoScalingInstancesOutput{AutoScalingInstances: page, NextToken: next}, err
}

// member finds the group of an instance.
func (s *asgService) member(c *reqCtx, id string) (*ScalingGroup, *ScalingInstance, error) {
	for _, g := range s.state.in(c.scope()).Groups {
		if i := g.instance(id); i != nil {
			c.Touch(g.Name, id)
			return g, i, nil
		}
	}
	return nil, nil, failValidation("Instance Id not found - No managed instance found for instance ID %s", id)
}

func (s *asgService) terminateInstance(c *reqCtx, in *autoscaling.TerminateInstanceInAutoScalingGroupInput) (*autoscaling.TerminateInstanceInAutoScalingGroupOutput, error) {
	g, i, err := s.member(c, deref(in.InstanceId))
	if err != nil {
		return nil, err
	}
	cause := fmt.Sprintf("At %s instance %s was taken out of service in response to a user request.", s.when(), i.ID)
	if deref(in.ShouldDecrementDesiredCapacity) {
		if g.Desired-1 < g.Min {
			return nil, failValidation("Currently, desiredSize equals minSize (%d). Terminating instance without replacement will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.", g.Min)
		}
		cause = fmt.Sprintf("At %s instance %s was taken out of service in response to a user request, shrinking the capacity from %d to %d.", s.when(), i.ID, g.Desired, g.Desired-1)
		g.Desired--
	}
	a := s.terminate(c.scope(), g, i, cause)
	return &autoscaling.TerminateInstanceInAutoScalingGroupOutput{Activity: new(s.sdkActivity(g, a))}, nil
}

func (s *asgService) detachInstances(c *reqCtx, in *autoscaling.DetachInstancesInput) (*autoscaling.DetachInstancesOutput, error) {
	g, err := s.modifiable(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	out := &autoscaling.DetachInstancesOutput{Activities: []types.Activity{}}
	for _, id := range in.InstanceIds {
		if g.instance(id) == nil {
			return nil, failValidation("The instance %s is not part of Auto Scaling group %s.", id, g.Name)
		}
	}
	if n := int32(len(in.InstanceIds)); deref(in.ShouldDecrementDesiredCapacity) && g.Desired-n < g.Min {
		return nil, failValidation("AutoScalingGroup %s has min-size=%d, max-size=%d, and desired-size=%d. To place into standby %d instance, please update the AutoScalingGroup sizes appropriately.", g.Name, g.Min, g.Max, g.Desired, n)
	}
	for _, id := range in.InstanceIds {
		i := g.instance(id)
		cause := fmt.Sprintf("At %s instance %s was detached in response to a user request.", s.when(), id)
		if deref(in.ShouldDecrementDesiredCapacity) {
			cause = fmt.Sprintf("At %s instance %s was detached in response to a user request, shrinking the capacity from %d to %d.", s.when(), id, g.Desired, g.Desired-1)
			g.Desired--
		}
		a := s.begin(g, "Detaching EC2 instance: "+id, cause, map[string]string{"Subnet ID": i.Subnet, "Availability Zone": i.AZ})
		out.Activities = append(out.Activities, s.sdkActivity(g, a))
		s.end(a, "Successful", "")
		s.deregister(c.scope(), g, i)
		s.remove(g, i)
	}
	return out, nil
}

func (s *asgService) setInstanceProtection(c *reqCtx, in *autoscaling.SetInstanceProtectionInput) (*autoscaling.SetInstanceProtectionOutput, error) {
	g, err := s.modifiable(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	for _, id := range in.InstanceIds {
		i := g.instance(id)
		if i == nil {
			return nil, failValidation("The instance %s is not part of Auto Scaling group %s.", id, g.Name)
		}
		if i.State != "InService" && i.State != "EnteringStandby" && i.State != "Standby" {
			return nil, failValidation("The instance %s is not in InService or EnteringStandby or Standby.", id)
		}
	}
	for _, id := range in.InstanceIds {
		g.instance(id).Protected = deref(in.ProtectedFromScaleIn)
	}
	return &autoscaling.SetInstanceProtectionOutput{}, nil
}

func (s *asgService) setInstanceHealth(c *reqCtx, in *autoscaling.SetInstanceHealthInput) (*autoscaling.SetInstanceHealthOutput, error) {
	_, i, err := s.member(c, deref(in.InstanceId))
	if err != nil {
		return nil, err
	}
	if h := deref(in.HealthStatus); h != "Healthy" && h != "Unhealthy" {
		return nil, failValidation("Valid instance health states are: [Healthy, Unhealthy].")
	}
	i.Health, i.Reason = *in.HealthStatus, "a user health-check"
	return &autoscaling.SetInstanceHealthOutput{}, nil
}

// attachARNs adds target groups; attaching one twice changes nothing.
func (s *asgService) attachARNs(c *reqCtx, name *string, arns []string) error {
	g, err := s.modifiable(c, name)
	if err != nil {
		return err
	}
	if err := s.checkTargetGroups(c, arns); err != nil {
		return err
	}
	for _, a := range arns {
		if slices.Contains(g.targetARNs(), a) {
			continue
		}
		g.Attached = slices.DeleteFunc(g.Attached, func(t *ASGTarget) bool { return t.ARN == a })
		g.Attached = append(g.Attached, &ASGTarget{ARN: a, State: "Adding", Since: c.now})
	}
	for _, i := range g.Instances {
		if i.State == "InService" {
			s.register(c.scope(), g, i)
		}
	}
	return nil
}

func (s *asgService) detachARNs(c *reqCtx, name *string, arns []string) error {
	g, err := s.modifiable(c, name)
	if err != nil {
		return err
	}
	sc := s.cloud.platform.elb.state.in(c.scope())
	for _, a := range arns {
		if !slices.Contains(g.targetARNs(), a) {
			return failValidation("Trying to remove Target Groups that are not part of the group")
		}
		for _, i := range g.Instances {
			s.leave(c.scope(), sc, a, i.ID)
		}
		for _, t := range g.Attached {
			if t.ARN == a {
				t.State, t.Since = "Removing", c.now
			}
		}
	}
	return nil
}

func (s *asgService) attachTargetGroups(c *reqCtx, in *autoscaling.AttachLoadBalancerTargetGroupsInput) (*autoscaling.AttachLoadBalancerTargetGroupsOutput, error) {
	return &autoscaling.AttachLoadBalancerTargetGroupsOutput{}, s.attachARNs(c, in.AutoScalingGroupName, in.TargetGroupARNs)
}

func (s *asgService) detachTargetGroups(c *reqCtx, in *autoscaling.DetachLoadBalancerTargetGroupsInput) (*autoscaling.DetachLoadBalancerTargetGroupsOutput, error) {
	return &autoscaling.DetachLoadBalancerTargetGroupsOutput{}, s.detachARNs(c, in.AutoScalingGroupName, in.TargetGroupARNs)
}

func (s *asgService) attachTrafficSources(c *reqCtx, in *autoscaling.AttachTrafficSourcesInput) (*autoscaling.AttachTrafficSourcesOutput, error) {
	return &autoscaling.AttachTrafficSourcesOutput{}, s.attachARNs(c, in.AutoScalingGroupName, sourceIDs(in.TrafficSources))
}

func (s *asgService) detachTrafficSources(c *reqCtx, in *autoscaling.DetachTrafficSourcesInput) (*autoscaling.DetachTrafficSourcesOutput, error) {
	return &autoscaling.DetachTrafficSourcesOutput{}, s.detachARNs(c, in.AutoScalingGroupName, sourceIDs(in.TrafficSources))
}

func sourceIDs(in []types.TrafficSourceIdentifier) (out []string) {
	for _, t := range in {
		out = append(out, deref(t.Identifier))
	}
	return out
}

func (s *asgService) describeTargetGroups(c *reqCtx, in *autoscaling.DescribeLoadBalancerTargetGroupsInput) (*autoscaling.DescribeLoadBalancerTargetGroupsOutput, error) {
	g, err := s.group(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	all := []types.LoadBalancerTargetGroupState{}
	for _, t := range g.Attached {
		all = append(all, types.LoadBalancerTargetGroupState{LoadBalancerTargetGroupARN: &t.ARN, State: &t.State})
	}
	page, next, err := asgPage(c, all, in.NextToken, in.MaxRecords, 100, 100)
	return &autoscaling.DescribeLoadBalancerTargetGroupsOutput{LoadBalancerTargetGroups: page, NextToken: next}, err
}

func (s *asgService) describeTrafficSources(c *reqCtx, in *autoscaling.DescribeTrafficSourcesInput) (*autoscaling.DescribeTrafficSourcesOutput, error) {
	g, err := s.group(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	all := []types.TrafficSourceState{}
	for _, t := range g.Attached {
		all = append(all, types.TrafficSourceState{Identifier: &t.ARN, State: &t.State, Type: new("elbv2")})
	}
	page, next, err := asgPage(c, all, in.NextToken, in.MaxRecords, 50, 50)
	return &autoscaling.DescribeTrafficSourcesOutput{TrafficSources: page, NextToken: next}, err
}

var scalingProcesses = []string{"AddToLoadBalancer", "AlarmNotification", "AZRebalance", "HealthCheck", "InstanceRefresh", "Launch", "ReplaceUnhealthy", "ScheduledActions", "Terminate"}

func (s *asgService) processes(c *reqCtx, name *string, list []string) (*ScalingGroup, []string, error) {
	g, err := s.modifiable(c, name)
	if err != nil {
		return nil, nil, err
	}
	if len(list) == 0 {
		return g, scalingProcesses, nil
	}
	for _, p := range list {
		if !slices.Contains(scalingProcesses, p) {
			return nil, nil, failValidation("%s is not a valid scaling process", p)
		}
	}
	return g, list, nil
}

func (s *asgService) suspendProcesses(c *reqCtx, in *autoscaling.SuspendProcessesInput) (*autoscaling.SuspendProcessesOutput, error) {
	g, list, err := s.processes(c, in.AutoScalingGroupName, in.ScalingProcesses)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if !g.suspended(p) {
			g.Suspended = append(g.Suspended, p)
		}
	}
	return &autoscaling.SuspendProcessesOutput{}, nil
}

func (s *asgService) resumeProcesses(c *reqCtx, in *autoscaling.ResumeProcessesInput) (*autoscaling.ResumeProcessesOutput, error) {
	g, list, err := s.processes(c, in.AutoScalingGroupName, in.ScalingProcesses)
	if err != nil {
		return nil, err
	}
	g.Suspended = slices.DeleteFunc(g.Suspended, func(p string) bool { return slices.Contains(list, p) })
	return &autoscaling.ResumeProcessesOutput{}, nil
}

func (s *asgService) createOrUpdateTags(c *reqCtx, in *autoscaling.CreateOrUpdateTagsInput) (*autoscaling.CreateOrUpdateTagsOutput, error) {
	for _, t := range in.Tags {
		g, err := s.modifiable(c, t.ResourceId)
		if err != nil {
			return nil, err
		}
		checked, err := checkASGTags([]types.Tag{t})
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(g.Tags, func(x ASGTag) bool { return x.Key == checked[0].Key }); i >= 0 {
			g.Tags[i] = checked[0]
			continue
		}
		if len(g.Tags) >= 50 {
			return nil, fail(400, "LimitExceeded", "A maximum of 50 tags per Auto Scaling group is allowed")
		}
		g.Tags = append(g.Tags, checked[0])
	}
	return &autoscaling.CreateOrUpdateTagsOutput{}, nil
}

func (s *asgService) deleteTags(c *reqCtx, in *autoscaling.DeleteTagsInput) (*autoscaling.DeleteTagsOutput, error) {
	for _, t := range in.Tags {
		g, err := s.modifiable(c, t.ResourceId)
		if err != nil {
			return nil, err
		}
		g.Tags = slices.DeleteFunc(g.Tags, func(x ASGTag) bool { return x.Key == deref(t.Key) })
	}
	return &autoscaling.DeleteTagsOutput{}, nil
}

func (s *asgService) describeTags(c *reqCtx, in *autoscaling.DescribeTagsInput) (*autoscaling.DescribeTagsOutput, error) {
	sc, all := s.state.in(c.scope()), []types.TagDescription{}
	for _, name := range sortedKeys(sc.Groups) {
		g := sc.Groups[name]
		if !c.visible(g.ARN, g.Created, true, "auto-scaling-group", g.Name, g.tagText()) {
			continue
		}
		for _, t := range g.Tags {
			keep := true
			for _, f := range in.Filters {
				value := map[string]string{"auto-scaling-group": g.Name, "key": t.Key, "value": t.Value, "propagate-at-launch": strconv.FormatBool(t.Propagate)}
				keep = keep && slices.Contains(f.Values, value[deref(f.Name)])
			}
			if keep {
				all = append(all, g.sdkTag(t))
			}
		}
	}
	page, next, err := asgPage(c, all, in.NextToken, in.MaxRecords, 50, 100)
	return &autoscaling.DescribeTagsOutput{Tags: page, NextToken: next}, err
}

func (s *asgService) describeAccountLimits(c *reqCtx, _ *autoscaling.DescribeAccountLimitsInput) (*autoscaling.DescribeAccountLimitsOutput, error) {
	return &autoscaling.DescribeAccountLimitsOutput{
		MaxNumberOfAutoScalingGroups: new(int32(s.cloud.quota(c.scope(), "autoscaling", quotaScalingGroups))), MaxNumberOfLaunchConfigurations: new(int32(200)),
		NumberOfAutoScalingGroups: new(int32(len(s.state.in(c.scope()).Groups))), NumberOfLaunchConfigurations: new(int32(0)),
	}, nil
}

// The simulation has no scaling policies, lifecycle hooks, launch configurations and scheduled actions: their lists are
// empty, as in an account without any.

func (s *asgService) describePolicies(*reqCtx, *autoscaling.DescribePoliciesInput) (*autoscaling.DescribePoliciesOutput, error) {
	return &autoscaling.DescribePoliciesOutput{ScalingPolicies: []types.ScalingPolicy{}}, nil
}

func (s *asgService) describeLifecycleHooks(c *reqCtx, in *autoscaling.DescribeLifecycleHooksInput) (*autoscaling.DescribeLifecycleHooksOutput, error) {
	if _, err := s.group(c, in.AutoScalingGroupName); err != nil {
		return nil, err
	}
	return &autoscaling.DescribeLifecycleHooksOutput{LifecycleHooks: []types.LifecycleHook{}}, nil
}

func (s *asgService) describeLaunchConfigurations(*reqCtx, *autoscaling.DescribeLaunchConfigurationsInput) (*autoscaling.DescribeLaunchConfigurationsOutput, error) {
	return &autoscaling.DescribeLaunchConfigurationsOutput{LaunchConfigurations: []types.LaunchConfiguration{}}, nil
}

func (s *asgService) describeScheduledActions(*reqCtx, *autoscaling.DescribeScheduledActionsInput) (*autoscaling.DescribeScheduledActionsOutput, error) {
	return &autoscaling.DescribeScheduledActionsOutput{ScheduledUpdateGroupActions: []types.ScheduledUpdateGroupAction{}}, nil
}
