package azure

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// poolHealth is how long the VMs may take to become healthy: with a probe every
// five seconds and a threshold of two, minutes are plenty.
var poolHealth = vmpool.HealthWait{
	Words:    vmpool.Words{Plural: "targets"},
	Patience: 10 * time.Minute, Bare: time.Minute, Poll: 15 * time.Second,
}

// A ruleHealth is what the probe of a rule says of every member of its pool
// ("Load Balancer Load Balancing Rules - Health").
type ruleHealth struct {
	Addresses []struct {
		IP     string `json:"ipAddress"`
		State  string `json:"state"`
		Reason string `json:"reason"`
	} `json:"loadBalancerBackendAddresses"`
}

// health asks for it and waits for the answer, which takes a few seconds: it is a
// read that the API carries out as an operation.
func (p *Provider) health(ctx context.Context, lb string) (ruleHealth, error) {
	var out ruleHealth
	r, err := p.request(ctx, http.MethodPost, lb+"/loadBalancingRules/"+ruleNamed+"/health", nil, nil)
	for tries := 0; err == nil && tries < 6; tries++ {
		at := r.header.Get("Location")
		if r.status == http.StatusOK {
			return out, r.into(&out)
		}
		if r.status != http.StatusAccepted || at == "" {
			break
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(p.pace.Real(2 * time.Second)):
		}
		r, err = p.request(ctx, http.MethodGet, at, nil, nil)
	}
	if err == nil {
		err = &pipeline.CloudError{Class: pipeline.Unavailable, Service: "Microsoft.Network", Op: "loadBalancers/loadBalancingRules/health/action", Message: "no answer after several tries", Sent: true}
	}
	return out, err
}

// TargetHealth says what the load balancer thinks of each VM; it only reads.
func (p *Provider) TargetHealth(ctx context.Context, j *job.Job) ([]job.TargetInfo, error) {
	infra := &j.Config.InfraConfig
	if infra.LoadBalancerID == "" {
		return nil, nil
	}
	ctx = lookup.For(ctx, j.ID)
	h, err := p.health(ctx, infra.LoadBalancerID)
	if err != nil {
		return nil, err
	}
	return targets(infra, h), nil
}

// targets are the members of a pool by the VMs that they are.
func targets(infra *job.InfraConfig, h ruleHealth) []job.TargetInfo {
	var out []job.TargetInfo
	for _, a := range h.Addresses {
		t := job.TargetInfo{InstanceID: a.IP, Health: cloud.HealthyTarget}
		if !strings.EqualFold(a.State, "Up") {
			t.Health, t.Reason = "unhealthy", a.Reason
		}
		for _, vm := range infra.VMs {
			if vm.PrivateIP == a.IP {
				t.InstanceID = vm.InstanceID
			}
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b job.TargetInfo) int { return strings.Compare(a.InstanceID, b.InstanceID) })
	return out
}

// awaitHealthy waits until the VMs take traffic.
func (p *Provider) awaitHealthy(ctx context.Context, r *pipeline.Run, lb job.LoadBalancer) error {
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	h, err := p.health(ctx, p.balancerID(r))
	if pipeline.Is(err, pipeline.NotFound) && r.Mode == pipeline.Verify {
		return nil // the missing load balancer is drift already
	}
	if err != nil {
		return err
	}
	seen := targets(infra, h)
	sick := unhealthy(infra.VMs, seen)
	if r.Mode == pipeline.Verify {
		if len(sick) > 0 && spec.Bootstrap != job.BootstrapBare {
			r.AddDrift(pipeline.Drift{Kind: kindPool, Key: "pool", ID: infra.TargetGroupID, Attr: "health", Wanted: "all healthy", Seen: strings.Join(sick, "; ")})
		}
		return nil
	}
	infra.Targets = seen
	return poolHealth.Await(r, lb.HealthCheck, spec.Bootstrap, sick)
}

// unhealthy names the VMs that do not take traffic, and why.
func unhealthy(vms []job.VMInfo, seen []job.TargetInfo) []string {
	var out []string
	for _, vm := range vms {
		i := slices.IndexFunc(seen, func(t job.TargetInfo) bool { return same(t.InstanceID, vm.InstanceID) })
		switch {
		case i < 0:
			out = append(out, vm.Name+" is not in the pool, or is off")
		case seen[i].Health != cloud.HealthyTarget:
			out = append(out, fmt.Sprintf("%s is %s (%s)", vm.Name, seen[i].Health, seen[i].Reason))
		}
	}
	return out
}
