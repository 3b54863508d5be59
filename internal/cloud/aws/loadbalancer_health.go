package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// targetHealth is how long the targets may take to become healthy: with the
// check's interval of ten seconds and a threshold of two, minutes are plenty.
var targetHealth = vmpool.HealthWait{
	Words:    vmpool.Words{Plural: "targets", Absent: "registered"},
	Patience: 10 * time.Minute, Bare: time.Minute, Poll: 15 * time.Second,
}

// replaceLoopAfter is how long targets are unwell before their group is asked
// whether it replaces them over and over.
const replaceLoopAfter = 2 * time.Minute

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
	sick := targetHealth.Unhealthy(infra.VMs, health, infra.ScalingGroupID != "")
	if r.Mode == pipeline.Verify {
		return p.verifyHealthy(ctx, r, spec, sick)
	}
	infra.Targets = health
	if len(sick) == 0 {
		return p.trustLoadBalancer(ctx, r)
	}
	verdict := targetHealth.Await(r, lb.HealthCheck, spec.Bootstrap, sick)
	var wait *pipeline.WaitError
	if errors.As(verdict, &wait) && infra.ScalingGroupID != "" && targetHealth.Since(r) > replaceLoopAfter {
		if err := p.noReplaceLoop(ctx, r); err != nil {
			return err
		}
	}
	return verdict
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
	targetHealth.Over(r)
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
