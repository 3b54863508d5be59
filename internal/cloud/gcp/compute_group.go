package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	groupKey      = "mig"
	autoscalerKey = "autoscaler"
)

// healthGrace is how long a managed group leaves a fresh VM alone, and how long
// the autoscaler does not count it: longer than the bootstrap takes, or the group
// kills VMs that are still installing, over and over (failure kind K2).
const healthGrace = 15 * time.Minute

// groupPatience is how long a managed group may take to bring its VMs up.
const groupPatience = 20 * time.Minute

// cpuTarget is the load at which the autoscaler adds VMs: Google's own default.
const cpuTarget = 0.6

// managedGroup is the job's regional managed instance group. It replaces VMs by
// itself only when they fail: a new template takes effect in VMs that are made
// later, and zones are not evened out by deleting VMs that serve.
func (p *Provider) managedGroup(r *pipeline.Run, pool job.Pool) pipeline.Resource {
	infra := r.Job.Config.InfraConfig
	id := p.regional("instanceGroupManagers", name(r, groupKey))
	want := &compute.InstanceGroupManager{
		Name: base(id), Description: r.Job.MarkText(groupKey),
		BaseInstanceName: r.Job.ResourceName("vm", 58), // the group adds a hyphen and four characters
		InstanceTemplate: infra.LaunchTemplateID, TargetSize: int64(size(pool.Desired)),
		DistributionPolicy: &compute.DistributionPolicy{TargetShape: "EVEN", Zones: distribution(p, infra.Zones)},
		UpdatePolicy: &compute.InstanceGroupManagerUpdatePolicy{
			Type: "OPPORTUNISTIC", MinimalAction: "REPLACE", ReplacementMethod: "SUBSTITUTE", InstanceRedistributionType: "NONE",
			MaxSurge:       &compute.FixedOrPercent{Fixed: int64(len(infra.Zones))},
			MaxUnavailable: &compute.FixedOrPercent{ForceSendFields: []string{"Fixed"}},
		},
		ListManagedInstancesResults: "PAGINATED",
		ForceSendFields:             []string{"TargetSize"},
	}
	o := object[*compute.InstanceGroupManager]{kind: p.managedGroups(), key: groupKey, id: id, want: want}
	o.see = func(_ context.Context, have *compute.InstanceGroupManager) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: p.groupAspects(r, id, want, have)}, nil
	}
	x := o.resource(p, r)
	remove := x.Delete
	x.Delete = func(ctx context.Context, id string) error {
		if err := p.empty(ctx, r, x, id); err != nil {
			return err
		}
		return remove(ctx, id)
	}
	return x
}

func size(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func distribution(p *Provider, zones []string) []*compute.DistributionPolicyZoneConfiguration {
	var out []*compute.DistributionPolicyZoneConfiguration
	for _, z := range zones {
		out = append(out, &compute.DistributionPolicyZoneConfiguration{Zone: "projects/" + p.project + "/zones/" + z})
	}
	return out
}

// groupAspects compares what a group was made with. Its size is left out: that
// is the autoscaler's.
func (p *Provider) groupAspects(r *pipeline.Run, id string, want, have *compute.InstanceGroupManager) []pipeline.Aspect {
	patch := func(change *compute.InstanceGroupManager) func(context.Context) error {
		return p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			return send(ctx, p.compute.RegionInstanceGroupManagers.Patch(p.project, p.region, want.Name, change))
		})
	}
	out := []pipeline.Aspect{
		{Name: "instance template", Wanted: rel(want.InstanceTemplate), Seen: templateOf(have), Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			return send(ctx, p.compute.RegionInstanceGroupManagers.SetInstanceTemplate(p.project, p.region, want.Name,
				&compute.RegionInstanceGroupManagersSetTemplateRequest{InstanceTemplate: want.InstanceTemplate}))
		})},
	}
	if have.UpdatePolicy != nil {
		out = append(out, pipeline.Aspect{Name: "update policy", Wanted: updateText(want.UpdatePolicy), Seen: updateText(have.UpdatePolicy),
			Set: patch(&compute.InstanceGroupManager{UpdatePolicy: want.UpdatePolicy})})
	}
	if r.Mode == pipeline.Verify {
		out = append(out, pipeline.Aspect{Name: "zones", Wanted: zonesText(want.DistributionPolicy), Seen: zonesText(have.DistributionPolicy)})
	}
	return out
}

// templateOf is the template that a group makes VMs from, which stands in either
// of two fields.
func templateOf(g *compute.InstanceGroupManager) string {
	if len(g.Versions) == 1 && g.Versions[0].InstanceTemplate != "" {
		return rel(g.Versions[0].InstanceTemplate)
	}
	return rel(g.InstanceTemplate)
}

func updateText(u *compute.InstanceGroupManagerUpdatePolicy) string {
	if u == nil {
		return "none"
	}
	return strings.ToLower(u.Type + ", zones evened out: " + or(u.InstanceRedistributionType, "PROACTIVE"))
}

func zonesText(d *compute.DistributionPolicy) string {
	if d == nil {
		return "none"
	}
	var out []string
	for _, z := range d.Zones {
		out = append(out, base(z.Zone))
	}
	return sorted(out)
}

// autoscaler keeps the group between its least and its most. Without any of its
// own signals it follows the CPU's load.
func (p *Provider) autoscaler(r *pipeline.Run, pool job.Pool) pipeline.Resource {
	id := p.regional("autoscalers", name(r, groupKey))
	want := &compute.Autoscaler{
		Name: base(id), Description: r.Job.MarkText(autoscalerKey), Target: p.regional("instanceGroupManagers", name(r, groupKey)),
		AutoscalingPolicy: &compute.AutoscalingPolicy{
			Mode: "ON", MinNumReplicas: int64(size(pool.Min)), MaxNumReplicas: int64(size(pool.Max)), CoolDownPeriodSec: int64(healthGrace.Seconds()),
			CpuUtilization:  &compute.AutoscalingPolicyCpuUtilization{UtilizationTarget: cpuTarget},
			ForceSendFields: []string{"MinNumReplicas"},
		},
	}
	return object[*compute.Autoscaler]{kind: p.autoscalers(), key: autoscalerKey, id: id, want: want, see: func(_ context.Context, have *compute.Autoscaler) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: []pipeline.Aspect{
			{Name: "target", Wanted: rel(want.Target), Seen: rel(have.Target)},
			{Name: "size", Wanted: rangeText(want.AutoscalingPolicy), Seen: rangeText(have.AutoscalingPolicy), Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
				change := &compute.Autoscaler{AutoscalingPolicy: &compute.AutoscalingPolicy{
					MinNumReplicas: want.AutoscalingPolicy.MinNumReplicas, MaxNumReplicas: want.AutoscalingPolicy.MaxNumReplicas, Mode: "ON",
					ForceSendFields: []string{"MinNumReplicas"},
				}}
				return send(ctx, p.compute.RegionAutoscalers.Patch(p.project, p.region, change).Autoscaler(want.Name))
			})},
		}}, nil
	}}.resource(p, r)
}

func rangeText(a *compute.AutoscalingPolicy) string {
	if a == nil {
		return "none"
	}
	return fmt.Sprintf("min %d, max %d, %s", a.MinNumReplicas, a.MaxNumReplicas, strings.ToLower(or(a.Mode, "ON")))
}

func (p *Provider) readGroup(ctx context.Context, id string) (*compute.InstanceGroupManager, error) {
	if zoneOf(id) == "" {
		return p.managedGroups().lookup().Get(ctx, id)
	}
	return lookup.Once(ctx, kindManagedGroup+" "+id, func(ctx context.Context) (*compute.InstanceGroupManager, error) {
		return send(ctx, p.compute.InstanceGroupManagers.Get(projectOf(id), zoneOf(id), base(id)))
	})
}

// empty takes a group to no VMs and waits until they are gone, so that every VM
// has ended when the group goes.
func (p *Provider) empty(ctx context.Context, r *pipeline.Run, x pipeline.Resource, id string) error {
	if err := p.pending(ctx, r, id); err != nil {
		return err
	}
	g, err := p.readGroup(ctx, id)
	if err != nil {
		return err
	}
	if r.WaitedFor("VMs to end in "+id) > groupPatience {
		return pipeline.Fatal("timed-out", fmt.Sprintf("%s still has VMs %s after it was told to end them", x, groupPatience),
			"Look at the group's errors in the console; retry asks again.")
	}
	if g.TargetSize > 0 {
		op, err := send(ctx, p.compute.RegionInstanceGroupManagers.Resize(projectOf(id), regionOf(id), base(id), 0))
		if err != nil {
			return err
		}
		p.await(r, id, op)
		return pipeline.Wait(2*time.Second, "%s to be emptied", x)
	}
	members, err := p.membersOf(ctx, id)
	if err != nil {
		return err
	}
	if n := len(members); n > 0 {
		return pipeline.Wait(10*time.Second, "%d VMs of %s to end", n, x)
	}
	r.WaitOver("VMs to end in " + id)
	return nil
}

// removeGroup removes autoscaler and group, if the job has or may have them: the
// autoscaler first, which would fill the group again. What is left of its VMs
// then, because somebody took them out of the group, carries the job's mark and
// nobody else ends it.
func (p *Provider) removeGroup(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.VMSpec()
	if err != nil {
		spec = job.VMSpec{}
	}
	_, known := r.Object(kindManagedGroup, groupKey)
	if !known && spec.Pool.Mode != job.PoolASG || r.Mode == pipeline.Plan {
		return nil
	}
	if err := r.Remove(ctx, p.autoscaler(r, spec.Pool)); err != nil {
		return err
	}
	if err := r.Remove(ctx, p.managedGroup(r, spec.Pool)); err != nil {
		return err
	}
	return p.removeFormerMembers(ctx, r)
}

func (p *Provider) removeFormerMembers(ctx context.Context, r *pipeline.Run) error {
	all, err := p.instances("").lookup().Find(ctx, "vm")
	if err != nil || len(all) == 0 {
		return err
	}
	const former = "VMs of the former managed group"
	var left []string
	for _, i := range all {
		left = append(left, fmt.Sprintf("%s (%s)", i.Name, strings.ToLower(i.Status)))
		if slices.Contains([]string{"STOPPING", "DEPROVISIONING"}, i.Status) || r.WaitedFor(former) < time.Minute {
			continue // by then the group's own doing shows
		}
		id := rel(i.SelfLink)
		if _, begun := begun(r, id); begun {
			continue
		}
		op, err := p.instances("").remove(ctx, id)
		if pipeline.Unless(err, pipeline.NotFound) != nil {
			return err
		}
		p.await(r, id, op)
	}
	slices.Sort(left)
	if since := r.WaitedFor(former); since > groupPatience {
		return pipeline.Fatal("timed-out", fmt.Sprintf("VMs of the managed group, which is gone, have not ended after %s: %s", groupPatience, strings.Join(left, ", ")),
			"Look at them in the cloud's console; retry goes on waiting.")
	}
	return pipeline.Wait(10*time.Second, "VMs of the managed group to end: %s", strings.Join(left, ", "))
}

// removeFormerGroup removes the group of a pool that was of mode asg before the
// spec was changed.
func (p *Provider) removeFormerGroup(ctx context.Context, r *pipeline.Run) error {
	if o, ok := r.Object(kindManagedGroup, groupKey); !ok || o.State != job.ObjectCreated && o.State != job.ObjectIntended {
		return nil
	}
	if err := p.removeGroup(ctx, r); err != nil {
		return err
	}
	r.Job.Config.InfraConfig.ScalingGroupID = ""
	return nil
}
