package aws

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/zopday/provisioner/internal/sim"
)

const quotaScalingGroups = "L-CDE20ADC"

func newAutoScaling(c *Cloud) *asgService {
	s := &asgService{cloud: c, state: &ASGState{}}
	c.World.DefineQuota(sim.Quota{Cloud: "aws", Service: "autoscaling", Code: quotaScalingGroups, Name: "Auto Scaling groups per region", Default: 500, Unit: "None", Adjustable: true})
	c.World.Register(s)
	c.hooks.instanceGone = append(c.hooks.instanceGone, s.instanceGone)
	c.add(&api{
		service: "autoscaling", protocol: queryProtocol, namespace: "http://autoscaling.amazonaws.com/doc/2011-01-01/", version: "2011-01-01",
		ops:    overQuery(s.operations(), "AttachLoadBalancerTargetGroups", "DetachLoadBalancerTargetGroups", "AttachTrafficSources", "DetachTrafficSources", "SetInstanceProtection"),
		encode: encodeQuery(queryXMLMillis),
	})
	return s
}

// operations is the API of Auto Scaling.
func (s *asgService) operations() map[string]typedOp {
	return map[string]typedOp{
		"CreateAutoScalingGroup": op(s.createGroup), "UpdateAutoScalingGroup": op(s.updateGroup), "DescribeAutoScalingGroups": op(s.describeGroups),
		"DeleteAutoScalingGroup": op(s.deleteGroup), "SetDesiredCapacity": op(s.setDesiredCapacity), "DescribeScalingActivities": op(s.describeActivities),
		"DescribeAutoScalingInstances": op(s.describeInstances), "TerminateInstanceInAutoScalingGroup": op(s.terminateInstance),
		"SetInstanceProtection": op(s.setInstanceProtection), "SetInstanceHealth": op(s.setInstanceHealth),
		"AttachLoadBalancerTargetGroups": op(s.attachTargetGroups), "DetachLoadBalancerTargetGroups": op(s.detachTargetGroups),
		"DescribeLoadBalancerTargetGroups": op(s.describeTargetGroups), "AttachTrafficSources": op(s.attachTrafficSources),
		"DetachTrafficSources": op(s.detachTrafficSources), "DescribeTrafficSources": op(s.describeTrafficSources),
		"DetachInstances": op(s.detachInstances), "SuspendProcesses": op(s.suspendProcesses), "ResumeProcesses": op(s.resumeProcesses),
		"CreateOrUpdateTags": op(s.createOrUpdateTags), "DescribeTags": op(s.describeTags), "DeleteTags": op(s.deleteTags),
		"StartInstanceRefresh": op(s.startRefresh), "DescribeInstanceRefreshes": op(s.describeRefreshes), "CancelInstanceRefresh": op(s.cancelRefresh),
		"DescribeAccountLimits": op(s.describeAccountLimits), "DescribePolicies": op(s.describePolicies), "DescribeLifecycleHooks": op(s.describeLifecycleHooks),
		"DescribeLaunchConfigurations": op(s.describeLaunchConfigurations), "DescribeScheduledActions": op(s.describeScheduledActions),
	}
}

func noGroupNamed(name string) error {
	return failValidation("AutoScalingGroup name not found - AutoScalingGroup '%s' not found", name)
}

// group finds a group for an operation that needs one.
func (s *asgService) group(c *reqCtx, name *string) (*ScalingGroup, error) {
	if name == nil {
		return nil, failValidation("1 validation error detected: Value null at 'autoScalingGroupName' failed to satisfy constraint: Member must not be null")
	}
	g := s.state.in(c.scope()).Groups[*name]
	if g == nil {
		return nil, noGroupNamed(*name)
	}
	c.Touch(g.Name)
	return g, nil
}

// modifiable finds a group that is to be changed.
func (s *asgService) modifiable(c *reqCtx, name *string) (*ScalingGroup, error) {
	g, err := s.group(c, name)
	if err == nil && g.Deleting {
		return nil, failValidation("The AutoScaling group may not be modified while it is pending delete")
	}
	return g, err
}

func (g *ScalingGroup) checkSize(desired *int32) error {
	switch {
	case g.Min < 0 || g.Max < 0:
		return failValidation("Min and max size must not be negative")
	case g.Max < g.Min:
		return failValidation("Max bound, %d, must be greater than or equal to min bound, %d", g.Max, g.Min)
	case desired != nil && (*desired < g.Min || *desired > g.Max):
		return failValidation("Desired capacity:%d must be between the specified min size:%d and max size:%d", *desired, g.Min, g.Max)
	}
	return nil
}

// checkTemplate resolves a launch template and refuses one that EC2 would not launch.
func (s *asgService) checkTemplate(c *reqCtx, g *ScalingGroup, spec *types.LaunchTemplateSpecification) error {
	sc := s.cloud.ec2.in(c.scope())
	t, err := sc.template(templateRef{deref(spec.LaunchTemplateId), deref(spec.LaunchTemplateName)})
	if err != nil {
		return rephrase(err)
	}
	version := orDefault(spec.Version, "$Default")
	if _, err := t.version(version); err != nil {
		return rephrase(err)
	}
	next := *g
	next.TemplateID, next.Version = t.TemplateID, version
	for _, subnet := range g.Subnets {
		req, _, err := s.launchRequest(c.scope(), &next, subnet)
		if err != nil {
			return rephrase(err)
		}
		if _, err := s.cloud.ec2.prepare(sc, req); err != nil {
			return rephrase(err)
		}
	}
	g.TemplateID, g.Version = next.TemplateID, version
	return nil
}

// rephrase turns a refusal of EC2 into one of Auto Scaling about a launch template.
func rephrase(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return failValidation("You must use a valid fully-formed launch template. %s", e.Message)
	}
	return err
}

// checkSubnets reads the list of subnets.
func (s *asgService) checkSubnets(c *reqCtx, list string) (subnets, zones []string, err error) {
	vpc := ""
	for id := range strings.SplitSeq(list, ",") {
		id = strings.TrimSpace(id)
		sub, ok := s.cloud.subnet(c.scope(), id)
		if !ok {
			return nil, nil, failValidation("The subnet ID '%s' does not exist", id)
		}
		if vpc != "" && sub.VpcID != vpc {
			return nil, nil, failValidation("All subnets must be in the same VPC")
		}
		vpc = sub.VpcID
		subnets = append(subnets, id)
		if !slices.Contains(zones, sub.AZ) {
			zones = append(zones, sub.AZ)
		}
	}
	slices.Sort(zones)
	return subnets, zones, nil
}

// defaultSubnets are the subnets of the default VPC in some zones.
func (s *asgService) defaultSubnets(c *reqCtx, zones []string) string {
	var ids []string
	for _, sub := range inOrder(s.cloud.ec2.in(c.scope()).Subnets) {
		if sub.DefaultForAz && slices.Contains(zones, sub.Zone) {
			ids = append(ids, sub.SubnetID)
		}
	}
	return strings.Join(ids, ",")
}

func (s *asgService) checkTargetGroups(c *reqCtx, arns []string) error {
	for _, a := range arns {
		if s.cloud.platform.elb.state.in(c.scope()).Groups[a] == nil {
			return failValidation("Provided Target Groups may not be valid. Please ensure they exist and try again.")
		}
	}
	return nil
}

func checkASGTags(tags []types.Tag) ([]ASGTag, error) {
	var out []ASGTag
	seen := map[string]bool{}
	for _, t := range tags {
		key, value := deref(t.Key), deref(t.Value)
		switch {
		case key == "" || len(key) > 128 || len(value) > 256:
			return nil, failValidation("1 validation error detected: Value '%s' at 'tags.1.member.key' failed to satisfy constraint: Member must have length between 1 and 128", key)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return nil, failValidation("Tag keys starting with 'aws:' are reserved for system use")
		case seen[key]:
			return nil, failValidation("Duplicate tag keys are not allowed: %s", key)
		}
		seen[key] = true
		out = append(out, ASGTag{key, value, deref(t.PropagateAtLaunch)})
	}
	if len(out) > 50 {
		return nil, fail(400, "LimitExceeded", "A maximum of 50 tags per Auto Scaling group is allowed")
	}
	return out, nil
}

func (s *asgService) createGroup(c *reqCtx, in *autoscaling.CreateAutoScalingGroupInput) (*autoscaling.CreateAutoScalingGroupOutput, error) {
	name := deref(in.AutoScalingGroupName)
	if name == "" || len(name) > 255 || strings.Contains(name, ":") {
		return nil, failValidation("1 validation error detected: Value '%s' at 'autoScalingGroupName' failed to satisfy constraint: Member must have length between 1 and 255 and not contain a colon", name)
	}
	sc := s.state.in(c.scope())
	if old := sc.Groups[name]; old != nil {
		if old.Deleting {
			return nil, fail(400, "AlreadyExists", "AutoScalingGroup by this name already exists - A group with the name %s already exists and is pending delete.", name)
		}
		return nil, fail(400, "AlreadyExists", "AutoScalingGroup by this name already exists - A group with the name %s already exists", name)
	}
	if float64(len(sc.Groups)) >= s.cloud.quota(c.scope(), "autoscaling", quotaScalingGroups) {
		return nil, fail(400, "LimitExceeded", "You have reached your limit of %d Auto Scaling groups in this region", len(sc.Groups))
	}
	g := &ScalingGroup{Name: name, Min: deref(in.MinSize), Max: deref(in.MaxSize), Cooldown: orDefault(in.DefaultCooldown, 300), HealthType: orDefault(in.HealthCheckType, "EC2"),
		Grace: deref(in.HealthCheckGracePeriod), Warmup: in.DefaultInstanceWarmup, Lifetime: in.MaxInstanceLifetime, Rebalance: in.CapacityRebalance, Created: c.now,
		Policies: in.TerminationPolicies, Protect: deref(in.NewInstancesProtectedFromScaleIn), Protection: string(in.DeletionProtection),
		Attached: []*ASGTarget{}, Instances: []*ScalingInstance{}, Suspended: []string{}}
	if len(g.Policies) == 0 {
		g.Policies = []string{"Default"}
	}
	if in.MixedInstancesPolicy != nil {
		return nil, fail(501, "NotImplemented", "Mixed instances policies are not simulated.")
	}
	if in.LaunchTemplate == nil {
		return nil, failValidation("Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.")
	}
	if g.HealthType != "EC2" && g.HealthType != "ELB" {
		return nil, failValidation("Invalid HealthCheckType '%s'", g.HealthType)
	}
	if err := g.checkSize(in.DesiredCapacity); err != nil {
		return nil, err
	}
	g.Desired = orDefault(in.DesiredCapacity, g.Min)
	list := deref(in.VPCZoneIdentifier)
	if list == "" {
		list = s.defaultSubnets(c, in.AvailabilityZones)
	}
	if list == "" {
		return nil, failValidation("At least one Availability Zone or VPC Subnet is required.")
	}
	var err error
	if g.Subnets, g.Zones, err = s.checkSubnets(c, list); err != nil {
		return nil, err
	}
	if g.Tags, err = checkASGTags(in.Tags); err != nil {
		return nil, err
	}
	arns := slices.Clone(in.TargetGroupARNs)
	for _, t := range in.TrafficSources {
		arns = append(arns, deref(t.Identifier))
	}
	if err := s.checkTargetGroups(c, arns); err != nil {
		return nil, err
	}
	if err := s.checkTemplate(c, g, in.LaunchTemplate); err != nil {
		return nil, err
	}
	g.ARN = c.regionalARN("autoscaling", "autoScalingGroup:"+c.w.UUID()+":autoScalingGroupName/"+name)
	for _, a := range arns {
		g.Attached = append(g.Attached, &ASGTarget{ARN: a, State: "Adding", Since: c.now})
	}
	g.Cause = fmt.Sprintf("At %s a user request created an AutoScalingGroup changing the desired capacity from 0 to %d.", s.when(), g.Desired)
	sc.Groups[name] = g
	c.Make(name)
	s.cloud.after(2*time.Second, "autoscaling", "tick", c.scope().key()+"|"+name)
	return &autoscaling.CreateAutoScalingGroupOutput{}, nil
}

func (s *asgService) updateGroup(c *reqCtx, in *autoscaling.UpdateAutoScalingGroupInput) (*autoscaling.UpdateAutoScalingGroupOutput, error) {
	g, err := s.modifiable(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	next := *g
	next.Min, next.Max = orDefault(in.MinSize, g.Min), orDefault(in.MaxSize, g.Max)
	if err := next.checkSize(in.DesiredCapacity); err != nil {
		return nil, err
	}
	// A desired capacity outside of the new bounds follows them ("UpdateAutoScalingGroup").
	next.Desired = orDefault(in.DesiredCapacity, min(max(g.Desired, next.Min), next.Max))
	next.Cooldown, next.HealthType = orDefault(in.DefaultCooldown, g.Cooldown), orDefault(in.HealthCheckType, g.HealthType)
	next.Grace, next.Protect = orDefault(in.HealthCheckGracePeriod, g.Grace), orDefault(in.NewInstancesProtectedFromScaleIn, g.Protect)
	if in.DefaultInstanceWarmup != nil {
		next.Warmup = in.DefaultInstanceWarmup
	}
	if in.MaxInstanceLifetime != nil {
		next.Lifetime = in.MaxInstanceLifetime
	}
	if in.CapacityRebalance != nil {
		next.Rebalance = in.CapacityRebalance
	}
	if len(in.TerminationPolicies) > 0 {
		next.Policies = in.TerminationPolicies
	}
	if in.DeletionProtection != "" {
		next.Protection = string(in.DeletionProtection)
	}
	if deref(in.VPCZoneIdentifier) != "" {
		if next.Subnets, next.Zones, err = s.checkSubnets(c, *in.VPCZoneIdentifier); err != nil {
			return nil, err
		}
	}
	if in.LaunchTemplate != nil {
		if err := s.checkTemplate(c, &next, in.LaunchTemplate); err != nil {
			return nil, err
		}
	}
	if next.Desired != g.Desired {
		next.Cause = fmt.Sprintf("At %s a user request update of AutoScalingGroup constraints to min: %d, max: %d, desired: %d changing the desired capacity from %d to %d.",
			s.when(), next.Min, next.Max, next.Desired, g.Desired, next.Desired)
		next.NextLaunch = time.Time{}
	}
	*g = next
	return &autoscaling.UpdateAutoScalingGroupOutput{}, nil
}

func (s *asgService) setDesiredCapacity(c *reqCtx, in *autoscaling.SetDesiredCapacityInput) (*autoscaling.SetDesiredCapacityOutput, error) {
	g, err := s.modifiable(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	want := deref(in.DesiredCapacity)
	if want > g.Max {
		return nil, failValidation("New SetDesiredCapacity value %d is above max value %d for the AutoScalingGroup.", want, g.Max)
	}
	if want < g.Min {
		return nil, failValidation("New SetDesiredCapacity value %d is below min value %d for the AutoScalingGroup.", want, g.Min)
	}
	if deref(in.HonorCooldown) && g.busy() {
		return nil, fail(400, "ScalingActivityInProgress", "Scaling activity %s is in progress and blocks this action", g.Activities[0].ID)
	}
	if want != g.Desired {
		g.Cause = fmt.Sprintf("At %s a user request explicitly set group desired capacity changing the desired capacity from %d to %d.", s.when(), g.Desired, want)
		g.Desired, g.NextLaunch = want, time.Time{}
	}
	return &autoscaling.SetDesiredCapacityOutput{}, nil
}

// deleteGroup begins the end of a group.
func (s *asgService) deleteGroup(c *reqCtx, in *autoscaling.DeleteAutoScalingGroupInput) (*autoscaling.DeleteAutoScalingGroupOutput, error) {
	g, err := s.group(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	force := deref(in.ForceDelete)
	switch {
	case g.Deleting && !force:
		return nil, fail(400, "ScalingActivityInProgress", "You cannot delete an AutoScalingGroup while there are scaling activities in progress for that group.")
	case g.Protection == "prevent-all-deletion" || g.Protection == "prevent-force-deletion" && force:
		return nil, failValidation("The AutoScalingGroup %s cannot be deleted because deletion protection is enabled", g.Name)
	case !force && len(g.Instances) > 0:
		return nil, fail(400, "ResourceInUse", "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) still in the group.")
	case !force && g.busy():
		return nil, fail(400, "ScalingActivityInProgress", "You cannot delete an AutoScalingGroup while there are scaling activities in progress for that group.")
	}
	if !g.Deleting {
		g.Deleting, g.Force, g.Desired, g.Min = true, force, 0, 0
		for _, i := range slices.Clone(g.Instances) {
			s.terminate(c.scope(), g, i, fmt.Sprintf("At %s a user request force deleted the AutoScalingGroup, changing the desired capacity to 0.", s.when()))
		}
		c.Make(g.Name)
	}
	return &autoscaling.DeleteAutoScalingGroupOutput{}, nil
}

// asgFilter says whether a group passes the filters of DescribeAutoScalingGroups.
func asgFilter(g *ScalingGroup, filters []types.Filter) (bool, error) {
	for _, f := range filters {
		name := deref(f.Name)
		match := func(ok func(ASGTag) bool) bool { return slices.ContainsFunc(g.Tags, ok) }
		var ok bool
		switch {
		case name == "tag-key":
			ok = match(func(t ASGTag) bool { return slices.Contains(f.Values, t.Key) })
		case name == "tag-value":
			ok = match(func(t ASGTag) bool { return slices.Contains(f.Values, t.Value) })
		case strings.HasPrefix(name, "tag:"):
			ok = match(func(t ASGTag) bool { return t.Key == name[4:] && slices.Contains(f.Values, t.Value) })
		default:
			return false, failValidation("Filter type %s is not correct. Allowed Filter types are: tag-key, tag-value, tag:", name)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

// describeGroups lists groups; names that do not exist are left out without an error.
func (s *asgService) describeGroups(c *reqCtx, in *autoscaling.DescribeAutoScalingGroupsInput) (*autoscaling.DescribeAutoScalingGroupsOutput, error) {
	sc, all := s.state.in(c.scope()), []types.AutoScalingGroup{}
	for _, name := range sortedKeys(sc.Groups) {
		g := sc.Groups[name]
		named := slices.Contains(in.AutoScalingGroupNames, name)
		if len(in.AutoScalingGroupNames) > 0 && !named {
			continue
		}
		ok, err := asgFilter(g, in.Filters)
		if err != nil {
			return nil, err
		}
		if ok && c.visible(g.ARN, g.Created, !named, "auto-scaling-group", g.Name, g.tagText()) {
			c.Touch(name)
			out := s.sdkGroup(c.scope(), g)
			// The list of instances lags behind those that were launched a moment ago
			// (https://github.com/hashicorp/terraform-provider-aws/issues/4893).
			out.Instances = slices.DeleteFunc(out.Instances, func(i types.Instance) bool {
				return !c.visible(g.ARN+"|"+*i.InstanceId, g.instance(*i.InstanceId).Launched, true, "group-instance", g.Name, *i.InstanceId)
			})
			all = append(all, out)
		}
	}
	page, next, err := asgPage(c, all, in.NextToken, in.MaxRecords, 50, 100)
	return &autoscaling.DescribeAutoScalingGroupsOutput{AutoScalingGroups: page, NextToken: next}, err
}

// asgPage cuts a page.
func asgPage[T any](c *reqCtx, all []T, token *string, size *int32, def, most int) ([]T, *string, error) {
	limit := int(orDefault(size, int32(def)))
	if limit < 1 || limit > most {
		return nil, nil, failValidation("1 validation error detected: Value '%d' at 'maxRecords' failed to satisfy constraint: Member must have value less than or equal to %d", limit, most)
	}
	page, next, err := pageOf(c, all, token, limit)
	if err != nil {
		return nil, nil, fail(400, "InvalidNextToken", "The token '%s' is invalid.", deref(token))
	}
	return page, next, nil
}
