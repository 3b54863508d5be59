package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// backendHealth is how long the backends may take to become healthy. A fresh
// global load balancer takes minutes until its proxies everywhere know of it
// ("Troubleshoot external Application Load Balancer issues").
var backendHealth = vmpool.HealthWait{
	Words:    vmpool.Words{Plural: "backends", Absent: "in the load balancer", Short: base},
	Patience: 15 * time.Minute, Bare: 2 * time.Minute, Poll: 20 * time.Second,
	Hint: ", and the health check's log says what it got",
}

// TargetHealth says what the load balancer thinks of each VM; it only reads.
func (p *Provider) TargetHealth(ctx context.Context, j *job.Job) ([]job.TargetInfo, error) {
	id := j.Config.InfraConfig.TargetGroupID
	if id == "" {
		return nil, nil
	}
	return p.health(lookup.For(ctx, j.ID), id)
}

// health is every backend's state, sorted by VM. It is asked for group by group.
func (p *Provider) health(ctx context.Context, id string) ([]job.TargetInfo, error) {
	return lookup.Once(ctx, "health of "+id, func(ctx context.Context) ([]job.TargetInfo, error) {
		service, err := p.backendServices(regionOf(id)).lookup().Get(ctx, id)
		if err != nil {
			return nil, err
		}
		answers := make([]*compute.BackendServiceGroupHealth, len(service.Backends))
		var parts []func(context.Context) error
		for i, b := range service.Backends {
			parts = append(parts, func(ctx context.Context) (err error) {
				group := &compute.ResourceGroupReference{Group: b.Group}
				if region := regionOf(id); region != "" {
					answers[i], err = send(ctx, p.compute.RegionBackendServices.GetHealth(projectOf(id), region, base(id), group))
					return err
				}
				answers[i], err = send(ctx, p.compute.BackendServices.GetHealth(projectOf(id), base(id), group))
				return err
			})
		}
		if err := pipeline.All(ctx, parts...); err != nil {
			return nil, err
		}
		var all []job.TargetInfo
		for _, a := range answers {
			for _, s := range a.HealthStatus {
				all = append(all, targetOf(s))
			}
		}
		slices.SortFunc(all, func(a, b job.TargetInfo) int { return strings.Compare(a.InstanceID, b.InstanceID) })
		return slices.CompactFunc(all, func(a, b job.TargetInfo) bool { return a.InstanceID == b.InstanceID }), nil
	})
}

// targetOf is one backend's state. HEALTHY is the word that the rest of the
// program knows in lower case.
func targetOf(s *compute.HealthStatus) job.TargetInfo {
	t := job.TargetInfo{InstanceID: rel(s.Instance), Health: strings.ToLower(s.HealthState)}
	if t.Health != cloud.HealthyTarget && s.IpAddress != "" {
		t.Reason = fmt.Sprintf("at %s:%d", s.IpAddress, s.Port)
	}
	return t
}

// awaitHealthy waits until the backends take traffic.
func (p *Provider) awaitHealthy(ctx context.Context, r *pipeline.Run, b balancer) error {
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	health, err := p.health(ctx, infra.TargetGroupID)
	if pipeline.Is(err, pipeline.NotFound) && r.Mode == pipeline.Verify {
		return nil // the missing backend service is drift already
	}
	if err != nil {
		return err
	}
	sick := backendHealth.Unhealthy(infra.VMs, health, infra.ScalingGroupID != "")
	if r.Mode == pipeline.Verify {
		return p.verifyHealthy(ctx, r, spec, b, sick)
	}
	infra.Targets = health
	if len(sick) == 0 {
		backendHealth.Over(r)
		return p.healByCheck(ctx, r, b)
	}
	return backendHealth.Await(r, b.HealthCheck, spec.Bootstrap, sick)
}

// healByCheck lets the managed group replace what the load balancer finds unwell
// (failure kind K5), now that its backends were seen to be well: earlier, a wrong
// health check would have it replace VMs in a loop (K2).
func (p *Provider) healByCheck(ctx context.Context, r *pipeline.Run, b balancer) error {
	id := r.Job.Config.InfraConfig.ScalingGroupID
	if id == "" {
		return nil
	}
	if err := p.pending(ctx, r, id); err != nil {
		return err
	}
	g, err := p.readGroup(ctx, id)
	if err != nil {
		return err
	}
	want := b.id("healthChecks", name(r, healthCheckKey))
	if healingText(g) == want {
		return nil
	}
	return p.patchGroup(ctx, r, id, &compute.InstanceGroupManager{AutoHealingPolicies: []*compute.InstanceGroupManagerAutoHealingPolicy{
		{HealthCheck: want, InitialDelaySec: int64(healthGrace.Seconds())},
	}}, "the managed group to heal by the health check")
}

func healingText(g *compute.InstanceGroupManager) string {
	if len(g.AutoHealingPolicies) == 0 {
		return "none"
	}
	return or(rel(g.AutoHealingPolicies[0].HealthCheck), "none")
}

// verifyHealthy reports what awaitHealthy would wait for or set.
func (p *Provider) verifyHealthy(ctx context.Context, r *pipeline.Run, spec job.VMSpec, b balancer, sick []string) error {
	infra := r.Job.Config.InfraConfig
	if spec.Bootstrap == job.BootstrapBare {
		return nil
	}
	if len(sick) > 0 {
		r.AddDrift(pipeline.Drift{Kind: kindBackendService, Key: backendKey, ID: infra.TargetGroupID, Attr: "health", Wanted: cloud.HealthyTarget, Seen: strings.Join(sick, "; ")})
	}
	if infra.ScalingGroupID == "" || len(sick) > 0 {
		return nil
	}
	g, err := p.readGroup(ctx, infra.ScalingGroupID)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	if want, seen := b.id("healthChecks", name(r, healthCheckKey)), healingText(g); want != seen {
		r.AddDrift(pipeline.Drift{Kind: kindManagedGroup, Key: groupKey, ID: infra.ScalingGroupID, Attr: "healing", Wanted: want, Seen: seen})
	}
	return nil
}
