package gcp

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var _ cloud.Pausable = (*Provider)(nil)

// Pool reads how a pool of VMs or nodes stands.
func (p *Provider) Pool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	switch ref.Kind {
	case job.PoolGCEInstances:
		return p.instancePool(ctx, ref)
	case job.PoolManagedGroup:
		return p.groupPool(ctx, ref)
	case job.PoolGKENodes:
		return p.nodePoolState(ctx, ref)
	}
	return job.PoolState{}, notPausable(ref)
}

// SetPool takes a pool one step towards the wanted state.
func (p *Provider) SetPool(ctx context.Context, r *pipeline.Run, ref job.PoolRef, have, want job.PoolState) error {
	switch ref.Kind {
	case job.PoolGCEInstances:
		return p.setInstances(ctx, r, have, want)
	case job.PoolManagedGroup:
		return p.setManaged(ctx, r, ref, have, want)
	case job.PoolGKENodes:
		return p.setNodes(ctx, r, ref, have, want)
	}
	return notPausable(ref)
}

func notPausable(ref job.PoolRef) error {
	return pipeline.Fatal("not-pausable", fmt.Sprintf("a %s is nothing that can be paused at Google Cloud", ref.Kind), "Name a VM or cluster job.")
}

// instancePool is VMs with names of their own. Stopped ones keep their disks and
// their internal addresses ("Stop or restart a Compute Engine instance").
func (p *Provider) instancePool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	found, err := p.readEach(ctx, ref.Instances)
	if err != nil {
		return job.PoolState{}, err
	}
	s := job.PoolState{Instances: map[string]job.Power{}}
	var moving []string
	for _, id := range ref.Instances {
		i := found[id]
		switch {
		case i == nil || i.Status == "DEPROVISIONING":
			s.Instances[id] = job.PowerGone
			continue
		case i.Status == "TERMINATED" || i.Status == "SUSPENDED":
			s.Instances[id] = job.PowerStopped
			continue
		case i.Status == "STOPPING" || i.Status == "SUSPENDING" || i.Status == "PENDING_STOP":
			s.Instances[id] = job.PowerStopped
		default:
			s.Instances[id] = job.PowerRunning
		}
		s.Running++
		if i.Status != "RUNNING" {
			moving = append(moving, i.Name+" is "+strings.ToLower(i.Status))
		}
	}
	s.Busy = strings.Join(moving, ", ")
	return s, nil
}

func (p *Provider) setInstances(ctx context.Context, r *pipeline.Run, have, want job.PoolState) error {
	var parts []func(context.Context) error
	api := p.compute.Instances
	for id, power := range want.Instances {
		switch {
		case power == job.PowerStopped && have.Instances[id] == job.PowerRunning:
			parts = append(parts, p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
				return send(ctx, api.Stop(projectOf(id), zoneOf(id), base(id)))
			}))
		case power == job.PowerRunning && have.Instances[id] == job.PowerStopped:
			parts = append(parts, p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
				return send(ctx, api.Start(projectOf(id), zoneOf(id), base(id)))
			}))
		}
	}
	return pipeline.All(ctx, parts...)
}

// readEach reads VMs by their IDs, whoever's they are; one that is not there is
// left out.
func (p *Provider) readEach(ctx context.Context, ids []string) (map[string]*compute.Instance, error) {
	out := map[string]*compute.Instance{}
	for _, id := range ids {
		i, err := p.instances("").get(ctx, id)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[id] = i
	}
	return out, nil
}

// managedGroupNow reads a group of a region or of a zone.
func (p *Provider) managedGroupNow(ctx context.Context, id string) (*compute.InstanceGroupManager, error) {
	if zone := zoneOf(id); zone != "" {
		return send(ctx, p.compute.InstanceGroupManagers.Get(projectOf(id), zone, base(id)))
	}
	return send(ctx, p.compute.RegionInstanceGroupManagers.Get(projectOf(id), regionOf(id), base(id)))
}

// groupPool is a managed group, with its autoscaler if it has one.
func (p *Provider) groupPool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	g, err := p.managedGroupNow(ctx, ref.ID)
	if err != nil {
		return job.PoolState{}, err
	}
	s := job.PoolState{Desired: int(g.TargetSize)}
	a, err := p.autoscalerOf(ctx, g)
	if err != nil {
		return s, err
	}
	if a != nil && a.AutoscalingPolicy != nil {
		s.Min, s.Max, s.Autoscaling = int(a.AutoscalingPolicy.MinNumReplicas), int(a.AutoscalingPolicy.MaxNumReplicas), or(a.AutoscalingPolicy.Mode, job.AutoscalingOn)
	}
	members, err := p.membersOf(ctx, ref.ID)
	if err != nil {
		return s, err
	}
	s.Running = len(members)
	if n := serving(members); n != s.Desired || s.Running != s.Desired {
		s.Settling = fmt.Sprintf("%d VMs, %d of them running, on the way to %d", s.Running, n, s.Desired)
	}
	return s, nil
}

// autoscalerOf is the autoscaler that a group names in its status; nil if it has none.
func (p *Provider) autoscalerOf(ctx context.Context, g *compute.InstanceGroupManager) (*compute.Autoscaler, error) {
	if g.Status == nil || g.Status.Autoscaler == "" {
		return nil, nil
	}
	link := rel(g.Status.Autoscaler)
	var a *compute.Autoscaler
	var err error
	if zone := zoneOf(link); zone != "" {
		a, err = send(ctx, p.compute.Autoscalers.Get(projectOf(link), zone, base(link)))
	} else {
		a, err = send(ctx, p.compute.RegionAutoscalers.Get(projectOf(link), regionOf(link), base(link)))
	}
	if pipeline.Is(err, pipeline.NotFound) {
		return nil, nil
	}
	return a, err
}

// setManaged turns the autoscaler off before it empties the group, and on after it
// is filled: "you cannot resize a managed instance group that is autoscaled"
// ("Turn off or restrict an autoscaler").
func (p *Provider) setManaged(ctx context.Context, r *pipeline.Run, ref job.PoolRef, have, want job.PoolState) error {
	off := strings.EqualFold(have.Autoscaling, job.AutoscalingOff) || have.Autoscaling == ""
	wantsOff := strings.EqualFold(want.Autoscaling, job.AutoscalingOff) || want.Autoscaling == ""
	switch {
	case have.Autoscaling != "" && want.Autoscaling != "" && (wantsOff && !off || (off || have.Autoscaling != want.Autoscaling || have.Min != want.Min || have.Max != want.Max) && have.Desired == want.Desired):
		return p.setAutoscaler(ctx, r, ref, want)
	case !off && have.Desired != want.Desired: // it was turned on again meanwhile
		return p.setAutoscaler(ctx, r, ref, job.PoolState{Min: have.Min, Max: have.Max, Autoscaling: job.AutoscalingOff})
	case have.Desired == want.Desired:
		return nil
	}
	return p.set(r, ref.ID, func(ctx context.Context) (*compute.Operation, error) {
		if zone := zoneOf(ref.ID); zone != "" {
			return send(ctx, p.compute.InstanceGroupManagers.Resize(projectOf(ref.ID), zone, base(ref.ID), int64(want.Desired)))
		}
		return send(ctx, p.compute.RegionInstanceGroupManagers.Resize(projectOf(ref.ID), regionOf(ref.ID), base(ref.ID), int64(want.Desired)))
	})(ctx)
}

// setAutoscaler sets mode and bounds; the signals stay as they are.
func (p *Provider) setAutoscaler(ctx context.Context, r *pipeline.Run, ref job.PoolRef, want job.PoolState) error {
	g, err := p.managedGroupNow(ctx, ref.ID)
	if err != nil {
		return err
	}
	if g.Status == nil || g.Status.Autoscaler == "" {
		return pipeline.Fatal("changed-meanwhile", fmt.Sprintf("the autoscaler of %s is gone", base(ref.ID)), "Make it again, or force: true goes on without it.")
	}
	link := rel(g.Status.Autoscaler)
	change := &compute.Autoscaler{AutoscalingPolicy: &compute.AutoscalingPolicy{
		Mode: want.Autoscaling, MinNumReplicas: int64(want.Min), MaxNumReplicas: int64(want.Max), ForceSendFields: []string{"MinNumReplicas", "MaxNumReplicas"},
	}}
	return p.set(r, link, func(ctx context.Context) (*compute.Operation, error) {
		if zone := zoneOf(link); zone != "" {
			return send(ctx, p.compute.Autoscalers.Patch(projectOf(link), zone, change).Autoscaler(base(link)))
		}
		return send(ctx, p.compute.RegionAutoscalers.Patch(projectOf(link), regionOf(link), change).Autoscaler(base(link)))
	})(ctx)
}

// nodePoolID is a node pool's resource name.
func (p *Provider) nodePoolID(ref job.PoolRef) (string, error) {
	switch {
	case strings.Contains(ref.ID, "/nodePools/"):
		return ref.ID, nil
	case ref.Cluster == nil:
		return "", notPausable(ref)
	}
	return p.clusterParent() + "/clusters/" + ref.Cluster.Name + "/nodePools/" + ref.Name, nil
}

// nodePoolState reads the size from the groups behind the pool, one a zone: the
// pool itself only says with how many nodes it began.
func (p *Provider) nodePoolState(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	var s job.PoolState
	id, err := p.nodePoolID(ref)
	if err != nil {
		return s, err
	}
	pool, err := send(ctx, p.container.Projects.Locations.Clusters.NodePools.Get(id))
	if err != nil {
		return s, err
	}
	s.Autoscaling = job.AutoscalingOff
	if a := pool.Autoscaling; a != nil && a.Enabled {
		s.Autoscaling = job.AutoscalingOn
		s.Min, s.Max = int(a.TotalMinNodeCount), int(a.TotalMaxNodeCount)
		if s.Max == 0 { // bounds by zone: what somebody else has made
			s.Min, s.Max = int(a.MinNodeCount)*len(pool.Locations), int(a.MaxNodeCount)*len(pool.Locations)
		}
	}
	s.Step = max(len(pool.Locations), 1)
	if pool.Status != "RUNNING" && pool.Status != "RUNNING_WITH_ERROR" {
		s.Busy = fmt.Sprintf("node pool %s is %s", ref.Name, strings.ToLower(pool.Status))
	}
	for _, link := range pool.InstanceGroupUrls {
		group := strings.Replace(rel(link), "/instanceGroups/", "/instanceGroupManagers/", 1)
		g, err := p.managedGroupNow(ctx, group)
		if err != nil {
			return s, err
		}
		members, err := p.membersOf(ctx, group)
		if err != nil {
			return s, err
		}
		s.Desired += int(g.TargetSize)
		s.Running += len(members)
		if serving(members) != int(g.TargetSize) || len(members) != int(g.TargetSize) {
			s.Settling = fmt.Sprintf("%d nodes in %s, on the way to %d", len(members), zoneOf(group), g.TargetSize)
		}
	}
	return s, nil
}

// setNodes turns autoscaling off before it empties a pool, and on after it is
// filled. Sizes are of one zone ("Resizing a cluster": the same in each).
func (p *Provider) setNodes(ctx context.Context, r *pipeline.Run, ref job.PoolRef, have, want job.PoolState) error {
	id, err := p.nodePoolID(ref)
	if err != nil {
		return err
	}
	api := p.container.Projects.Locations.Clusters.NodePools
	on := want.Autoscaling == job.AutoscalingOn
	scaling := func(enabled bool) error {
		a := &container.NodePoolAutoscaling{Enabled: enabled, ForceSendFields: []string{"Enabled"}}
		if enabled {
			pool, err := send(ctx, api.Get(id))
			if err != nil {
				return err
			}
			a.TotalMinNodeCount, a.TotalMaxNodeCount, a.LocationPolicy = int64(want.Min), int64(want.Max), locationPolicy(pool)
		}
		return p.setCluster(r, id, func(ctx context.Context) (*container.Operation, error) {
			return send(ctx, api.SetAutoscaling(id, &container.SetNodePoolAutoscalingRequest{Autoscaling: a}))
		})(ctx)
	}
	switch {
	case have.Autoscaling == job.AutoscalingOn && (!on || have.Desired != want.Desired):
		return scaling(false)
	case have.Desired != want.Desired:
		perZone := (want.Desired + have.Step - 1) / max(have.Step, 1)
		return p.setCluster(r, id, func(ctx context.Context) (*container.Operation, error) {
			return send(ctx, api.SetSize(id, &container.SetNodePoolSizeRequest{NodeCount: int64(perZone), ForceSendFields: []string{"NodeCount"}}))
		})(ctx)
	case on:
		return scaling(true)
	}
	return nil
}

// locationPolicy is what a pool of the job's is made with: where there is capacity
// to spare for spot nodes, and evenly for others.
func locationPolicy(pool *container.NodePool) string {
	if pool.Config != nil && (pool.Config.Spot || pool.Config.Preemptible) {
		return "ANY"
	}
	return "BALANCED"
}
