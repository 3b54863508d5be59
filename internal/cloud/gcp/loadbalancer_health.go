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
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// healthPatience is how long the backends may take to become healthy. A fresh
// global load balancer takes minutes until its proxies everywhere know of it
// ("Troubleshoot external Application Load Balancer issues").
const (
	healthPatience     = 15 * time.Minute
	bareHealthPatience = 2 * time.Minute
)

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
	sick := unhealthy(infra.VMs, health, infra.ScalingGroupID != "")
	if r.Mode == pipeline.Verify {
		return p.verifyHealthy(ctx, r, spec, b, sick)
	}
	infra.Targets = health
	if len(sick) == 0 {
		r.WaitOver("healthy targets")
		return p.healByCheck(ctx, r, b)
	}
	why := fmt.Sprintf("%s; the check is GET %s on port %d", strings.Join(sick, "; "), b.HealthCheck.Path, b.HealthCheck.Port)
	text := fmt.Sprintf("%d of %d backends are not healthy: %s", len(sick), max(len(infra.VMs), len(sick)), why)
	since := r.WaitedFor("healthy targets")
	switch {
	case spec.Bootstrap == job.BootstrapBare && since >= bareHealthPatience:
		// Nothing of ours answers there: that is for the user's own service.
		if !slices.Contains(infra.Warnings, text) {
			infra.Warnings = append(infra.Warnings, text)
		}
		r.Note("%s", text)
		return nil
	case since >= healthPatience:
		return pipeline.Fatal("targets-unhealthy", text,
			"A path or port on which the service does not answer is the most common cause, and the health check's log says what it got: PATCH config.spec.loadBalancer.healthCheck, or put the service right, then retry.").On("config.spec.loadBalancer.healthCheck")
	}
	return pipeline.Wait(min(max(since/4, 5*time.Second), 20*time.Second), "%d more backends to become healthy: %s", len(sick), why)
}

// unhealthy names the VMs that do not take traffic, and why. Of a managed group
// only the number counts, since its members come and go.
func unhealthy(vms []job.VMInfo, health []job.TargetInfo, group bool) []string {
	var out []string
	healthy := 0
	of := map[string]job.TargetInfo{}
	for _, h := range health {
		of[h.InstanceID] = h
		if h.Health == cloud.HealthyTarget {
			healthy++
		}
	}
	if group {
		if healthy >= len(vms) {
			return nil
		}
		for _, h := range health {
			if h.Health != cloud.HealthyTarget {
				out = append(out, healthText(h))
			}
		}
		for range max(len(vms)-healthy-len(out), 0) {
			out = append(out, "one not in the load balancer yet")
		}
		return out
	}
	for _, vm := range vms {
		h, ok := of[vm.InstanceID]
		switch {
		case !ok:
			out = append(out, base(vm.InstanceID)+" is not in the load balancer yet")
		case h.Health != cloud.HealthyTarget:
			out = append(out, healthText(h))
		}
	}
	return out
}

func healthText(h job.TargetInfo) string {
	s := base(h.InstanceID) + " is " + or(h.Health, "in no state")
	if h.Reason != "" {
		s += " (" + h.Reason + ")"
	}
	return s
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
