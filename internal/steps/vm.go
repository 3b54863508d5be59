package steps

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// bootstrapPatience is how long a VM may take from its launch to its sentinel,
// and retryPatience how long one that took longer is asked again after a retry
// before another takes its place.
const (
	bootstrapPatience = 25 * time.Minute
	retryPatience     = 2 * time.Minute
)

// vms makes the pool and waits until every VM has seen its bootstrap through.
func (s Set) vms(ctx context.Context, r *pipeline.Run) error {
	if !r.Job.Owns() {
		if r.Mode == pipeline.Plan {
			return nil
		}
		if err := s.Cloud.AdoptVMs(ctx, r); err != nil {
			return err
		}
		return r.Save(ctx)
	}
	if err := s.Cloud.EnsureVMs(ctx, r); err != nil {
		return err
	}
	switch r.Mode {
	case pipeline.Plan:
		return nil
	case pipeline.Verify:
		for _, vm := range r.Job.Config.InfraConfig.VMs {
			if vm.State != job.VMReady {
				r.AddDrift(pipeline.Drift{Kind: "vm", Key: vm.Name, ID: vm.InstanceID, Attr: "state", Wanted: string(job.VMReady), Seen: string(vm.State)})
			}
		}
		return nil
	}
	return s.awaitBootstrap(ctx, r)
}

func (s Set) awaitBootstrap(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	var waiting []job.VMInfo
	for _, vm := range infra.VMs {
		if vm.State != job.VMReady {
			waiting = append(waiting, vm)
		}
	}
	if len(waiting) > 0 {
		probes, err := s.Cloud.Probe(ctx, r, waiting)
		if err != nil {
			return err
		}
		if err := s.learn(ctx, r, probes, spec); err != nil {
			return err
		}
	}
	infra.BootstrapNginxReady = spec.Bootstrap == job.BootstrapNginx && len(infra.VMs) > 0
	for _, vm := range infra.VMs {
		infra.BootstrapNginxReady = infra.BootstrapNginxReady && vm.BootstrapNginxReady
	}
	return r.Save(ctx)
}

// learn takes in what the probes say, and waits or fails by it.
func (s Set) learn(ctx context.Context, r *pipeline.Run, probes map[string]cloud.Probe, spec job.VMSpec) error {
	now := r.Now()
	var failed, late, pending []string
	changed := false
	for i := range r.Job.Config.InfraConfig.VMs {
		vm := &r.Job.Config.InfraConfig.VMs[i]
		p, asked := probes[vm.InstanceID]
		if vm.State == job.VMReady || !asked {
			continue
		}
		was := *vm
		switch p.State {
		case cloud.ProbeReady:
			vm.State, vm.SentinelSeenAt, vm.LastError = job.VMReady, &now, ""
			vm.BootstrapNginxReady = spec.Bootstrap == job.BootstrapNginx
		case cloud.ProbeNone:
			vm.State, vm.LastError = job.VMReady, ""
			if text := "nobody has looked whether the VMs' bootstrap ended: " + p.Detail; !slices.Contains(r.Job.Config.InfraConfig.Warnings, text) {
				r.Job.Config.InfraConfig.Warnings = append(r.Job.Config.InfraConfig.Warnings, text)
				r.Note("%s", text)
			}
		case cloud.ProbeFailed:
			replaced, err := s.replaceFailed(ctx, r, vm, 0)
			if err != nil {
				return err
			}
			if replaced {
				pending = append(pending, vm.Name+": another VM in its place")
				break
			}
			vm.State, vm.LastError = job.VMFailed, p.Detail
			failed = append(failed, vm.Name+": "+p.Detail)
		default:
			text := vm.Name + ": " + waitsFor(p)
			if vm.LaunchedAt == nil || r.Pace.Cloud(now.Sub(*vm.LaunchedAt)) <= bootstrapPatience {
				if vm.State != job.VMFailed { // a retry waits for its answer first
					vm.State = job.VMBootstrapping
				}
				pending = append(pending, text)
				break
			}
			retried := vm.State == job.VMFailed
			replaced, err := s.replaceFailed(ctx, r, vm, retryPatience)
			switch {
			case err != nil:
				return err
			case replaced:
				pending = append(pending, vm.Name+": another VM in its place")
			case retried && s.sinceRetry(r, vm) <= retryPatience:
				pending = append(pending, text)
			default:
				vm.State, vm.LastError = job.VMFailed, waitsFor(p)
				late = append(late, text)
			}
		}
		changed = changed || was.State != vm.State || was.LastError != vm.LastError
	}
	if changed {
		if err := r.Save(ctx); err != nil {
			return err
		}
	}
	then := "then retry: a VM that still has not come through is replaced."
	if r.Job.Config.InfraConfig.ScalingGroupID != "" {
		then = "then delete the VM, for which its scaling group makes another, and retry."
	}
	switch {
	case len(failed) > 0:
		return pipeline.Fatal("bootstrap-failed", "the bootstrap failed on "+strings.Join(failed, "\n"),
			"Read the end of the log above. Put right what it names (often: no egress, or a mirror that does not answer), "+then)
	case len(late) > 0:
		return pipeline.Fatal("bootstrap-timeout", fmt.Sprintf("no sentinel after %s on %s", bootstrapPatience, strings.Join(late, "; ")),
			"Check that the VM has egress and that its exec agent runs, "+then)
	case len(pending) > 0:
		return pipeline.Wait(10*time.Second, "%s", strings.Join(pending, "; "))
	}
	return nil
}

// replaceFailed puts another VM in the place of one whose bootstrap had failed
// before this retry and which is still no better: cloud-init runs once, so that
// only a new VM sees what was put right. One of a scaling group is the group's.
func (s Set) replaceFailed(ctx context.Context, r *pipeline.Run, vm *job.VMInfo, patience time.Duration) (bool, error) {
	if vm.State != job.VMFailed || s.sinceRetry(r, vm) < patience {
		return false, nil
	}
	return r.Condemn(ctx, vm.InstanceID, cmp.Or(vm.LastError, "its bootstrap failed"))
}

// sinceRetry is for how long this run has been looking at a failed VM.
func (s Set) sinceRetry(r *pipeline.Run, vm *job.VMInfo) time.Duration {
	key := "failed VM " + vm.InstanceID
	since, ok := r.Recall(key).(time.Time)
	if !ok {
		since = r.Now()
		r.Remember(key, since)
	}
	return r.Pace.Cloud(r.Now().Sub(since))
}

func waitsFor(p cloud.Probe) string {
	what := map[cloud.ProbeState]string{
		cloud.ProbeUnknown: "an answer from the VM",
		cloud.ProbeNoAgent: "the exec agent to register",
		cloud.ProbeRunning: "the bootstrap to finish",
	}[p.State]
	if p.Detail != "" {
		what += " (" + p.Detail + ")"
	}
	return what
}

func (s Set) removeVMs(ctx context.Context, r *pipeline.Run) error {
	if err := s.Cloud.RemoveVMs(ctx, r); err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	for i := range infra.VMs {
		infra.VMs[i].State = job.VMTerminated
		infra.VMs[i].BootstrapNginxReady = false
	}
	infra.BootstrapNginxReady = false
	return r.Save(ctx)
}

func (s Set) ensureLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Apply {
		r.Job.Config.InfraConfig.LoadBalancerDetached = false
	}
	return s.Cloud.EnsureLoadBalancer(ctx, r)
}

func (s Set) removeLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	if err := s.Cloud.RemoveLoadBalancer(ctx, r); err != nil {
		return err
	}
	r.Job.Config.InfraConfig.ForgetLoadBalancer()
	r.Job.Config.InfraConfig.LoadBalancerDetached = true
	return r.Save(ctx)
}

// Outputs is what a finished job tells its user.
func (s Set) Outputs(j *job.Job) map[string]string {
	infra := j.Config.InfraConfig
	out := map[string]string{}
	set := func(k, v string) {
		if v != "" {
			out[k] = v
		}
	}
	if j.Kind == job.Remediation {
		remediationOutputs(j, set)
		return out
	}
	if j.ResourceType != job.Component { // it knows its cluster's network, and has none
		set("networkId", infra.NetworkID)
	}
	switch j.ResourceType {
	case job.Network:
		networkOutputs(infra, set)
	case job.Cluster:
		clusterOutputs(j, set)
	case job.Component:
		for _, info := range infra.Components {
			componentOutputs(info, set)
		}
		return out
	case job.Datastore, job.Cache:
		datastoreOutputs(j, set)
		return out
	}
	set("egressIps", strings.Join(infra.EgressIPs, ", "))
	set("scalingGroup", infra.ScalingGroupID)
	set("spaceId", infra.SpaceID)
	for _, vm := range infra.VMs {
		if vm.InstanceID != "" && vm.State != job.VMTerminated {
			set("exec."+vm.Name, s.Cloud.ExecCommand(j, vm))
		}
	}
	if infra.LoadBalancerHost != "" {
		set("loadBalancerHost", infra.LoadBalancerHost)
		set("dnsRecord", infra.DNSRecord)
		host := infra.LoadBalancerHost
		if infra.DNSRecord != "" {
			host = infra.DNSRecord
		}
		if lb, err := j.LoadBalancer(); err == nil && lb != nil {
			set("url", lb.URL(host))
		}
	}
	return out
}
