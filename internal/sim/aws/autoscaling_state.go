package aws

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/zopday/provisioner/internal/sim"
)

// ASGState is everything that Auto Scaling keeps, by account and region.
type ASGState struct {
	Scopes map[string]*ASGScope
}

// ASGScope is Auto Scaling in one account and region; groups are keyed by name.
type ASGScope struct {
	Groups map[string]*ScalingGroup
}

// ScalingGroup is an Auto Scaling group.
type ScalingGroup struct {
	Name, ARN                   string
	Min, Max, Desired, Cooldown int32
	Zones, Subnets              []string
	TemplateID, Version         string
	HealthType                  string
	Grace                       int32
	Warmup, Lifetime            *int32
	Rebalance                   *bool
	Attached                    []*ASGTarget
	Instances                   []*ScalingInstance
	Created                     time.Time
	Tags                        []ASGTag
	Suspended                   []string
	Policies                    []string
	Protect                     bool
	Protection                  string // against deletion
	Deleting                    bool
	Force                       bool
	Activities                  []*ScalingActivity // newest first
	Refreshes                   []*ASGRefresh      // newest first
	NextLaunch                  time.Time          // no launch before, after one failed
	Failures                    int
	// Cause is why the next launch or termination happens, in the words of the activity history.
	Cause string
}

// ASGTarget is a target group that a group fills.
type ASGTarget struct {
	ARN, State string
	Since      time.Time
}

// ASGTag is a tag of a group.
type ASGTag struct {
	Key, Value string
	Propagate  bool
}

// ScalingInstance is an instance of a group.
type ScalingInstance struct {
	ID, Type, AZ, Subnet, State, Health, Version string
	Protected                                    bool
	Launched, InService                          time.Time
	Activity                                     string
	Reason                                       string // why it is unhealthy
}

// ScalingActivity is an entry of the history of a group.
type ScalingActivity struct {
	ID, Description, Cause, Status, Message, Details string
	Started, Ended                                   time.Time
	Progress                                         int32
}

// ASGRefresh is an instance refresh.
type ASGRefresh struct {
	ID, Status, Reason, Version string
	Started, Ended              time.Time
	Done, Total                 int32
	Warmup, MinHealthy          int32
	SkipMatching                bool
	Old                         []string // instances still to be replaced
	Current                     string   // instance being replaced
}

func (r *ASGRefresh) active() bool {
	return r.Status == "Pending" || r.Status == "InProgress" || r.Status == "Cancelling"
}

func (st *ASGState) in(sc scope) *ASGScope {
	s := st.Scopes[sc.key()]
	if s == nil {
		s = &ASGScope{Groups: map[string]*ScalingGroup{}}
		st.Scopes[sc.key()] = s
	}
	return s
}

func (g *ScalingGroup) instance(id string) *ScalingInstance {
	for _, i := range g.Instances {
		if i.ID == id {
			return i
		}
	}
	return nil
}

// counted are the instances that make up the capacity of the group.
func (g *ScalingGroup) counted() (out []*ScalingInstance) {
	for _, i := range g.Instances {
		if i.State == "Pending" || i.State == "InService" {
			out = append(out, i)
		}
	}
	return out
}

// busy says whether an activity is under way.
func (g *ScalingGroup) busy() bool {
	return slices.ContainsFunc(g.Activities, func(a *ScalingActivity) bool { return a.Ended.IsZero() })
}

func (g *ScalingGroup) activity(id string) *ScalingActivity {
	for _, a := range g.Activities {
		if a.ID == id {
			return a
		}
	}
	return nil
}

func (g *ScalingGroup) targetARNs() []string {
	out := []string{}
	for _, t := range g.Attached {
		if t.State != "Removing" && t.State != "Removed" {
			out = append(out, t.ARN)
		}
	}
	return out
}

func (g *ScalingGroup) tagText() string {
	var b strings.Builder
	for _, t := range g.Tags {
		b.WriteString(t.Value)
		b.WriteByte(' ')
	}
	return b.String()
}

// asgService is Amazon EC2 Auto Scaling.
type asgService struct {
	cloud *Cloud
	state *ASGState
}

// Cloud implements sim.Service.
func (s *asgService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *asgService) Name() string { return "autoscaling" }

// State implements sim.Service.
func (s *asgService) State() any { return s.state }

// Reset implements sim.Service.
func (s *asgService) Reset() { s.state.Scopes = map[string]*ASGScope{} }

// Objects implements sim.Service.
func (s *asgService) Objects() []sim.Object {
	var out []sim.Object
	for _, key := range sortedKeys(s.state.Scopes) {
		in := parseScopeKey(key)
		for _, name := range sortedKeys(s.state.Scopes[key].Groups) {
			g := s.state.Scopes[key].Groups[name]
			tags := map[string]string{}
			for _, t := range g.Tags {
				tags[t.Key] = t.Value
			}
			state := ""
			if g.Deleting {
				state = "Delete in progress"
			}
			out = append(out, sim.Object{Account: in.Account, Region: in.Region, Kind: "auto-scaling-group", ID: g.Name, ARN: g.ARN, Name: g.Name, State: state, Tags: tags, Parents: g.Subnets, Data: g})
		}
	}
	return out
}

// SetState implements sim.Service. The ID is that of a group, whose instances all get the state ("Unhealthy" and
// "Healthy" set their health).
func (s *asgService) SetState(id, state, _, message string) error {
	for _, sc := range s.state.Scopes {
		g := sc.Groups[id]
		if g == nil {
			continue
		}
		for _, i := range g.Instances {
			switch state {
			case "Healthy", "Unhealthy":
				i.Health, i.Reason = state, orText(message, "a user health-check")
			case "":
				i.Health, i.Reason = "Unhealthy", orText(message, "an EC2 health check indicating it has been terminated or stopped")
			default:
				i.State = state
			}
		}
		return nil
	}
	return fmt.Errorf("%s: no such Auto Scaling group", id)
}

// Remove implements sim.Service: the group goes, its instances stay.
func (s *asgService) Remove(id string) error {
	for _, sc := range s.state.Scopes {
		if sc.Groups[id] != nil {
			delete(sc.Groups, id)
			return nil
		}
	}
	return fmt.Errorf("%s: no such Auto Scaling group", id)
}

// Event implements sim.Service: a group looks after itself every few seconds.
func (s *asgService) Event(kind, key string) {
	in, name, _ := strings.Cut(key, "|")
	sc := s.state.Scopes[in]
	if kind != "tick" || sc == nil || sc.Groups[name] == nil {
		return
	}
	g := sc.Groups[name]
	s.tick(parseScopeKey(in), sc, g)
	if sc.Groups[name] == g {
		s.cloud.after(tickTime, "autoscaling", "tick", key)
	}
}

// tickTime is how often a group looks after itself.
const tickTime = 5 * time.Second

func (s *asgService) sdkGroup(in scope, g *ScalingGroup) types.AutoScalingGroup {
	out := types.AutoScalingGroup{
		AutoScalingGroupName: &g.Name, AutoScalingGroupARN: &g.ARN, MinSize: &g.Min, MaxSize: &g.Max, DesiredCapacity: &g.Desired, DefaultCooldown: &g.Cooldown,
		AvailabilityZones: g.Zones, LoadBalancerNames: []string{}, TargetGroupARNs: g.targetARNs(), HealthCheckType: &g.HealthType, HealthCheckGracePeriod: &g.Grace,
		Instances: []types.Instance{}, CreatedTime: &g.Created, SuspendedProcesses: []types.SuspendedProcess{}, VPCZoneIdentifier: new(strings.Join(g.Subnets, ",")),
		EnabledMetrics: []types.EnabledMetric{}, Tags: []types.TagDescription{}, TerminationPolicies: g.Policies, NewInstancesProtectedFromScaleIn: new(g.Protect),
		ServiceLinkedRoleARN: new(arn("iam", "", in.Account, "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling")),
		TrafficSources:       []types.TrafficSourceIdentifier{}, MaxInstanceLifetime: g.Lifetime, DefaultInstanceWarmup: g.Warmup, CapacityRebalance: g.Rebalance,
		LaunchTemplate:                   s.sdkTemplate(in, g, g.Version),
		AvailabilityZoneDistribution:     &types.AvailabilityZoneDistribution{CapacityDistributionStrategy: types.CapacityDistributionStrategyBalancedBestEffort},
		CapacityReservationSpecification: &types.CapacityReservationSpecification{CapacityReservationPreference: types.CapacityReservationPreferenceDefault},
		DeletionProtection:               types.DeletionProtection(orText(g.Protection, "none")),
	}
	if g.Deleting {
		out.Status = new("Delete in progress")
	}
	for _, i := range g.Instances {
		out.Instances = append(out.Instances, types.Instance{InstanceId: &i.ID, InstanceType: &i.Type, AvailabilityZone: &i.AZ, LifecycleState: types.LifecycleState(i.State),
			HealthStatus: &i.Health, ProtectedFromScaleIn: &i.Protected, LaunchTemplate: s.sdkTemplate(in, g, i.Version)})
	}
	for _, t := range g.Tags {
		out.Tags = append(out.Tags, g.sdkTag(t))
	}
	for _, p := range g.Suspended {
		out.SuspendedProcesses = append(out.SuspendedProcesses, types.SuspendedProcess{ProcessName: new(p), SuspensionReason: new("User suspended at " + stamp(g.Created))})
	}
	for _, t := range out.TargetGroupARNs {
		out.TrafficSources = append(out.TrafficSources, types.TrafficSourceIdentifier{Identifier: new(t), Type: new("elbv2")})
	}
	return out
}

func (g *ScalingGroup) sdkTag(t ASGTag) types.TagDescription {
	return types.TagDescription{ResourceId: &g.Name, ResourceType: new("auto-scaling-group"), Key: new(t.Key), Value: new(t.Value), PropagateAtLaunch: new(t.Propagate)}
}

func (s *asgService) sdkTemplate(in scope, g *ScalingGroup, version string) *types.LaunchTemplateSpecification {
	out := &types.LaunchTemplateSpecification{LaunchTemplateId: new(g.TemplateID), Version: new(version)}
	if t := s.cloud.ec2.in(in).Templates[g.TemplateID]; t != nil {
		out.LaunchTemplateName = new(t.TemplateName)
	}
	return out
}

func (s *asgService) sdkActivity(g *ScalingGroup, a *ScalingActivity) types.Activity {
	out := types.Activity{ActivityId: &a.ID, AutoScalingGroupName: &g.Name, AutoScalingGroupARN: &g.ARN, Description: &a.Description, Cause: &a.Cause,
		StartTime: &a.Started, StatusCode: types.ScalingActivityStatusCode(a.Status), Progress: &a.Progress, Details: &a.Details}
	if !a.Ended.IsZero() {
		out.EndTime = &a.Ended
	}
	if a.Message != "" {
		out.StatusMessage = &a.Message
	}
	return out
}
