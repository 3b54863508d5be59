package aws

import (
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// refresh moves an instance refresh on: one instance at a time is ended and replaced ("Use an instance refresh to update
// instances in an Auto Scaling group").
func (s *asgService) refresh(in scope, g *ScalingGroup) {
	if len(g.Refreshes) == 0 || !g.Refreshes[0].active() {
		return
	}
	r, now := g.Refreshes[0], s.cloud.World.Now()
	settled := func() bool {
		live := g.counted()
		return len(live) >= int(g.Desired) && !slices.ContainsFunc(live, func(i *ScalingInstance) bool {
			return i.State != "InService" || i.Health != "Healthy" || !s.serving(in, g, i)
		})
	}
	switch r.Status {
	case "Cancelling":
		if r.Current == "" || settled() {
			r.Status, r.Ended = "Cancelled", now
		}
		return
	case "Pending":
		r.Status = "InProgress"
	}
	if r.Current != "" {
		if g.instance(r.Current) != nil || !settled() {
			r.Reason = "Waiting for instances to warm up before continuing. For example: " + r.Current + " is being replaced."
			return
		}
		for _, i := range g.counted() {
			if now.Sub(i.InService) < time.Duration(r.Warmup)*time.Second && i.InService.After(r.Started) {
				r.Reason = fmt.Sprintf("Waiting for instances to warm up before continuing. For example: %s is warming up.", i.ID)
				return
			}
		}
		r.Current = ""
		r.Done++
	}
	for len(r.Old) > 0 && g.instance(r.Old[0]) == nil {
		r.Old = r.Old[1:]
	}
	if len(r.Old) == 0 {
		r.Status, r.Reason, r.Ended, r.Done = "Successful", "", now, r.Total
		return
	}
	if !settled() {
		r.Reason = "Waiting for remaining instances to be available."
		return
	}
	i := g.instance(r.Old[0])
	r.Current, r.Old = i.ID, r.Old[1:]
	s.terminate(in, g, i, fmt.Sprintf("At %s an instance was taken out of service in response to instance refresh %s.", s.when(), r.ID))
	g.Cause = fmt.Sprintf("At %s an instance was launched in response to instance refresh %s.", s.when(), r.ID)
}

// serving says whether the load balancers of a group that heeds them find an instance healthy.
func (s *asgService) serving(in scope, g *ScalingGroup, i *ScalingInstance) bool {
	if g.HealthType != "ELB" {
		return true
	}
	elb := s.cloud.platform.elb
	sc := elb.state.in(in)
	for _, arn := range g.targetARNs() {
		tg := sc.Groups[arn]
		if tg == nil || len(sc.balancersOf(arn)) == 0 {
			continue
		}
		if t := tg.target(i.ID, tg.Port); t == nil || elb.health(in, sc, tg, t).State != "healthy" {
			return false
		}
	}
	return true
}

func (s *asgService) startRefresh(c *reqCtx, in *autoscaling.StartInstanceRefreshInput) (*autoscaling.StartInstanceRefreshOutput, error) {
	g, err := s.modifiable(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	if len(g.Refreshes) > 0 && g.Refreshes[0].active() {
		return nil, fail(400, "InstanceRefreshInProgress", "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh.")
	}
	if dc := in.DesiredConfiguration; dc != nil && dc.LaunchTemplate != nil {
		if err := s.checkTemplate(c, g, dc.LaunchTemplate); err != nil {
			return nil, err
		}
	}
	r := &ASGRefresh{ID: c.w.UUID(), Status: "Pending", Started: c.now, Version: s.resolve(c.scope(), g), MinHealthy: 90, Warmup: orDefault(g.Warmup, g.Grace)}
	if p := in.Preferences; p != nil {
		r.MinHealthy, r.Warmup, r.SkipMatching = orDefault(p.MinHealthyPercentage, 90), orDefault(p.InstanceWarmup, r.Warmup), deref(p.SkipMatching)
	}
	for _, i := range g.counted() {
		if !r.SkipMatching || i.Version != r.Version {
			r.Old = append(r.Old, i.ID)
		}
	}
	r.Total = int32(len(r.Old))
	g.Refreshes = slices.Insert(g.Refreshes, 0, r)
	c.Make(g.Name)
	return &autoscaling.StartInstanceRefreshOutput{InstanceRefreshId: &r.ID}, nil
}

func (s *asgService) describeRefreshes(c *reqCtx, in *autoscaling.DescribeInstanceRefreshesInput) (*autoscaling.DescribeInstanceRefreshesOutput, error) {
	g, err := s.group(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	all := []types.InstanceRefresh{}
	for _, r := range g.Refreshes {
		if len(in.InstanceRefreshIds) > 0 && !slices.Contains(in.InstanceRefreshIds, r.ID) {
			continue
		}
		done := int32(100)
		if r.Total > 0 {
			done = 100 * r.Done / r.Total
		}
		x := types.InstanceRefresh{AutoScalingGroupName: &g.Name, InstanceRefreshId: &r.ID, Status: types.InstanceRefreshStatus(r.Status), StartTime: &r.Started,
			PercentageComplete: &done, InstancesToUpdate: new(r.Total - r.Done), Strategy: types.RefreshStrategyRolling,
			Preferences: &types.RefreshPreferences{MinHealthyPercentage: &r.MinHealthy, InstanceWarmup: &r.Warmup, SkipMatching: &r.SkipMatching, AutoRollback: new(false),
				ScaleInProtectedInstances: types.ScaleInProtectedInstancesWait, StandbyInstances: types.StandbyInstancesWait}}
		if r.Reason != "" {
			x.StatusReason = &r.Reason
		}
		if !r.Ended.IsZero() {
			x.EndTime = &r.Ended
		}
		all = append(all, x)
	}
	page, next, err := asgPage(c, all, in.NextToken, in.MaxRecords, 50, 100)
	return &autoscaling.DescribeInstanceRefreshesOutput{InstanceRefreshes: page, NextToken: next}, err
}

func (s *asgService) cancelRefresh(c *reqCtx, in *autoscaling.CancelInstanceRefreshInput) (*autoscaling.CancelInstanceRefreshOutput, error) {
	g, err := s.modifiable(c, in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}
	if len(g.Refreshes) == 0 || !g.Refreshes[0].active() {
		return nil, fail(400, "ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found for Auto Scaling group %s", g.Name)
	}
	g.Refreshes[0].Status = "Cancelling"
	return &autoscaling.CancelInstanceRefreshOutput{InstanceRefreshId: &g.Refreshes[0].ID}, nil
}
