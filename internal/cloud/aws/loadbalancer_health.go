package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// healthPatience is how long the targets may take to become healthy: with the
// check's interval of ten seconds and a threshold of two, minutes are plenty.
const (
	healthPatience     = 10 * time.Minute
	bareHealthPatience = time.Minute
)

// awaitHealthy waits until the targets take traffic. They are counted in the
// target group, by ID: other lists of health lag behind it (failure kind K1).
func (p *Provider) awaitHealthy(ctx context.Context, r *pipeline.Run, lb job.LoadBalancer) error {
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	health, err := p.health(ctx, infra.TargetGroupID)
	if pipeline.Is(err, pipeline.NotFound) && r.Mode == pipeline.Verify {
		return nil // the missing target group is drift already
	}
	if err != nil {
		return plain(err)
	}
	sick := unhealthy(infra.VMs, health, infra.ScalingGroupID != "")
	if r.Mode == pipeline.Verify {
		return p.verifyHealthy(ctx, r, spec, sick)
	}
	infra.Targets = health
	if len(sick) == 0 {
		return p.trustLoadBalancer(ctx, r)
	}
	why := fmt.Sprintf("%s; the check is GET %s on port %d", strings.Join(sick, "; "), lb.HealthCheck.Path, lb.HealthCheck.Port)
	text := fmt.Sprintf("%d of %d targets are not healthy: %s", len(sick), max(len(infra.VMs), len(sick)), why)
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
			"A path or port on which the service does not answer is the most common cause: PATCH config.spec.loadBalancer.healthCheck, or put the service right, then retry.").On("config.spec.loadBalancer.healthCheck")
	}
	if infra.ScalingGroupID != "" && since > 2*time.Minute {
		if err := p.noReplaceLoop(ctx, r); err != nil {
			return err
		}
	}
	return pipeline.Wait(min(max(since/4, 5*time.Second), 15*time.Second), "%d more targets to become healthy: %s", len(sick), why)
}

// unhealthy names the VMs that do not take traffic, and why. Of a scaling
// group only the number counts, since its members come and go.
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
			out = append(out, "one not registered yet")
		}
		return out
	}
	for _, vm := range vms {
		h, ok := of[vm.InstanceID]
		switch {
		case !ok:
			out = append(out, vm.InstanceID+" is not registered")
		case h.Health != cloud.HealthyTarget:
			out = append(out, healthText(h))
		}
	}
	return out
}

func healthText(h job.TargetInfo) string {
	s := h.InstanceID + " is " + or(h.Health, "in no state")
	if h.Reason != "" {
		s += " (" + h.Reason + ")"
	}
	return s
}

func (p *Provider) noReplaceLoop(ctx context.Context, r *pipeline.Run) error {
	infra := r.Job.Config.InfraConfig
	acts, err := p.activities(ctx, infra.ScalingGroupID)
	if err != nil {
		return err
	}
	if n := replacements(acts); n >= max(3, 2*len(infra.VMs)) {
		return pipeline.Fatal("replace-loop", fmt.Sprintf("scaling group %s has replaced %d VMs that failed their health check: %s", infra.ScalingGroupID, n, lastCause(acts)),
			"The VMs do not pass the health check in time. Look at one of them, put right what it runs or the health check, then retry.")
	}
	return nil
}

// trustLoadBalancer lets the scaling group replace what the load balancer finds
// unwell (failure kind K5), now that its targets were seen to be well: earlier,
// a wrong health check would have it replace VMs in a loop.
func (p *Provider) trustLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	r.WaitOver("healthy targets")
	group := r.Job.Config.InfraConfig.ScalingGroupID
	if group == "" {
		return nil
	}
	g, err := p.readScalingGroup(ctx, group)
	if err != nil {
		return plain(err)
	}
	if aws.ToString(g.HealthCheckType) == "ELB" {
		return nil
	}
	return p.setHealthCheck(ctx, group, "ELB")
}

// verifyHealthy reports what awaitHealthy would wait for or set.
func (p *Provider) verifyHealthy(ctx context.Context, r *pipeline.Run, spec job.VMSpec, sick []string) error {
	infra := r.Job.Config.InfraConfig
	if len(sick) > 0 && spec.Bootstrap != job.BootstrapBare {
		r.AddDrift(pipeline.Drift{Kind: kindTargetGroup, Key: targetGroupKey, ID: infra.TargetGroupID, Attr: "health", Wanted: "healthy", Seen: strings.Join(sick, "; ")})
	}
	if infra.ScalingGroupID == "" || len(sick) > 0 {
		return nil
	}
	g, err := p.readScalingGroup(ctx, infra.ScalingGroupID)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	if kind := aws.ToString(g.HealthCheckType); kind != "" && kind != "ELB" && spec.Bootstrap != job.BootstrapBare {
		r.AddDrift(pipeline.Drift{Kind: kindScalingGroup, Key: scalingGroupKey, ID: infra.ScalingGroupID, Attr: "health check type", Wanted: "ELB", Seen: kind})
	}
	return nil
}
