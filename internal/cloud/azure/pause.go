package azure

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var _ cloud.Pausable = (*Provider)(nil)

// Pool reads how a pool of VMs or nodes stands.
func (p *Provider) Pool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	switch {
	case ref.Kind == job.PoolScaleSet && ref.ID == "":
		return p.instancePool(ctx, ref)
	case ref.Kind == job.PoolScaleSet:
		return p.setPool(ctx, ref)
	case ref.Kind == job.PoolAKSNodes:
		return p.agentPool(ctx, ref)
	}
	return job.PoolState{}, notPausable(ref)
}

// SetPool takes a pool one step towards the wanted state.
func (p *Provider) SetPool(ctx context.Context, r *pipeline.Run, ref job.PoolRef, have, want job.PoolState) error {
	switch {
	case ref.Kind == job.PoolScaleSet && ref.ID == "":
		return p.setInstances(ctx, r, have, want)
	case ref.Kind == job.PoolScaleSet:
		return p.setCapacity(ctx, r, ref, have, want)
	case ref.Kind == job.PoolAKSNodes:
		return p.setAgents(ctx, r, ref, want)
	}
	return notPausable(ref)
}

func notPausable(ref job.PoolRef) error {
	return pipeline.Fatal("not-pausable", fmt.Sprintf("a %s is nothing that can be paused at Azure", ref.Kind), "Name a VM or cluster job.")
}

// instancePool is the VMs of a flexible scale set, which have names of their own.
// Only one that is deallocated costs nothing: a VM that is merely stopped does
// ("States and billing status of Azure Virtual Machines").
func (p *Provider) instancePool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	s := job.PoolState{Instances: map[string]job.Power{}}
	var moving []string
	for _, id := range ref.Instances {
		x, err := read[armcompute.VirtualMachine](ctx, p, id+withView)
		if pipeline.Is(err, pipeline.NotFound) {
			s.Instances[id] = job.PowerGone
			continue
		}
		if err != nil {
			return s, err
		}
		on := power(x.is.Properties)
		switch {
		case x.Properties.ProvisioningState == "Deleting":
			s.Instances[id] = job.PowerGone
			continue
		case on == "deallocated":
			s.Instances[id] = job.PowerStopped
		case on == "deallocating":
			s.Instances[id] = job.PowerStopped
			moving = append(moving, x.Name+" is "+on)
			s.Running++
		default: // running, starting, and stopped without being deallocated, which is billed
			s.Instances[id] = job.PowerRunning
			if on == "stopped" {
				s.Instances[id] = PowerIdle
			}
			s.Running++
		}
		if state := x.Properties.ProvisioningState; on == "starting" || on == "stopping" || state == "Updating" || state == "Creating" {
			moving = append(moving, fmt.Sprintf("%s is %s (%s)", x.Name, on, state))
		}
	}
	s.Busy = strings.Join(moving, ", ")
	return s, nil
}

// PowerIdle is a VM that is stopped and still billed.
const PowerIdle job.Power = "stopped, not deallocated"

func (p *Provider) setInstances(ctx context.Context, r *pipeline.Run, have, want job.PoolState) error {
	var parts []func(context.Context) error
	for id, wanted := range want.Instances {
		has, act := have.Instances[id], ""
		switch {
		case wanted == job.PowerStopped && (has == job.PowerRunning || has == PowerIdle):
			act = "/deallocate"
		case wanted == job.PowerRunning && (has == job.PowerStopped || has == PowerIdle):
			act = "/start"
		default:
			continue
		}
		parts = append(parts, func(ctx context.Context) error {
			_, op, err := send[struct{}](ctx, p, http.MethodPost, id+act, nil, nil)
			op.remember(r, id)
			return err
		})
	}
	return pipeline.All(ctx, parts...)
}

// setPool is a uniform scale set, with the setting that keeps its bounds.
func (p *Provider) setPool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	x, err := read[armcompute.VirtualMachineScaleSet](ctx, p, ref.ID)
	if err != nil {
		return job.PoolState{}, err
	}
	var s job.PoolState
	if x.is.SKU != nil {
		s.Desired = int(value(x.is.SKU.Capacity))
	}
	if state := x.Properties.ProvisioningState; state != "Succeeded" && state != "Failed" {
		s.Busy = fmt.Sprintf("scale set %s is %s", x.Name, strings.ToLower(state))
	}
	setting, err := p.boundsOf(ctx, ref.ID)
	if err != nil {
		return s, err
	}
	if setting != nil {
		s.Autoscaling = job.AutoscalingOff
		if on, _ := nested(setting, "properties")["enabled"].(bool); on {
			s.Autoscaling = job.AutoscalingOn
		}
		s.Min, s.Max = bounds(setting)
	}
	members, err := p.members(ctx, ref.ID)
	if err != nil {
		return s, pipeline.Unless(err, pipeline.NotFound)
	}
	s.Running = len(members)
	if s.Running != s.Desired {
		s.Settling = fmt.Sprintf("%d VMs, on the way to %d", s.Running, s.Desired)
	}
	return s, nil
}

// boundsOf is the autoscale setting of a scale set, whole; nil if there is none.
func (p *Provider) boundsOf(ctx context.Context, set string) (map[string]any, error) {
	all, err := list[map[string]any](ctx, p, p.groupID(segment(set, "resourceGroups"))+"/providers/"+typeAutoscale)
	if err != nil {
		return nil, pipeline.Unless(err, pipeline.NotFound)
	}
	for _, x := range all {
		if target, _ := nested(x, "properties")["targetResourceUri"].(string); same(target, set) {
			return x, nil
		}
	}
	return nil, nil
}

func nested(doc map[string]any, key string) map[string]any {
	m, _ := doc[key].(map[string]any)
	return m
}

// bounds are the least and most of a setting's first profile.
func bounds(setting map[string]any) (low, high int) {
	profiles, _ := nested(setting, "properties")["profiles"].([]any)
	if len(profiles) == 0 {
		return 0, 0
	}
	profile, _ := profiles[0].(map[string]any)
	c := nested(profile, "capacity")
	low, _ = strconv.Atoi(fmt.Sprint(c["minimum"]))
	high, _ = strconv.Atoi(fmt.Sprint(c["maximum"]))
	return low, high
}

// setCapacity turns the setting off before it empties a set, and on after it is
// filled: an enabled one brings the least of its profile back.
func (p *Provider) setCapacity(ctx context.Context, r *pipeline.Run, ref job.PoolRef, have, want job.PoolState) error {
	wanted := want.Autoscaling
	if have.Desired != want.Desired && want.Autoscaling != "" {
		wanted = job.AutoscalingOff // until the set is filled
	}
	if have.Autoscaling != "" && have.Autoscaling != wanted {
		return p.switchBounds(ctx, ref, wanted == job.AutoscalingOn)
	}
	if have.Desired == want.Desired {
		return nil
	}
	_, op, err := send[struct{}](ctx, p, http.MethodPatch, ref.ID, armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: new(int64(want.Desired))}}, nil)
	op.remember(r, ref.ID)
	return err
}

// switchBounds turns a set's autoscale setting on or off, and leaves the rest of it
// as it is.
func (p *Provider) switchBounds(ctx context.Context, ref job.PoolRef, on bool) error {
	setting, err := p.boundsOf(ctx, ref.ID)
	if err != nil || setting == nil {
		return err
	}
	id, _ := setting["id"].(string)
	props := nested(setting, "properties")
	props["enabled"] = on
	body := map[string]any{"location": setting["location"], "tags": setting["tags"], "properties": props}
	_, _, err = put[struct{}](ctx, p, id, body, nil)
	return err
}

// agentPoolID is the ID of a cluster's pool of nodes.
func (p *Provider) agentPoolID(ctx context.Context, ref job.PoolRef) (string, error) {
	switch {
	case strings.Contains(strings.ToLower(ref.ID), "/agentpools/"):
		return ref.ID, nil
	case ref.Cluster == nil:
		return "", notPausable(ref)
	}
	cluster, err := p.clusterNamed(ctx, ref.Cluster.Name, ref.Cluster.ResourceGroup)
	return cluster + "/agentPools/" + ref.Name, err
}

func (p *Provider) agentPool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	var s job.PoolState
	id, err := p.agentPoolID(ctx, ref)
	if err != nil {
		return s, err
	}
	x, err := read[aks.AgentPool](ctx, p, id)
	if err != nil {
		return s, err
	}
	f := value(x.is.Properties)
	s.Desired, s.Running, s.Autoscaling = int(value(f.Count)), int(value(f.Count)), job.AutoscalingOff
	s.System = value(f.Mode) == aks.AgentPoolModeSystem
	if value(f.EnableAutoScaling) {
		s.Autoscaling, s.Min, s.Max = job.AutoscalingOn, int(value(f.MinCount)), int(value(f.MaxCount))
	}
	if state := x.Properties.ProvisioningState; state != "Succeeded" && state != "Failed" {
		s.Busy = fmt.Sprintf("node pool %s is %s", ref.Name, strings.ToLower(state))
	}
	return s, nil
}

// setAgents writes a pool back as it was read, but for its size and its
// autoscaling: "user node pools can be scaled to 0", by hand while autoscaling is
// off ("Manually scale nodes in AKS").
func (p *Provider) setAgents(ctx context.Context, r *pipeline.Run, ref job.PoolRef, want job.PoolState) error {
	id, err := p.agentPoolID(ctx, ref)
	if err != nil {
		return err
	}
	x, err := read[aks.AgentPool](ctx, p, id)
	if err != nil {
		return err
	}
	f := value(x.is.Properties)
	tag := value(f.ETag)
	f.ProvisioningState, f.CurrentOrchestratorVersion, f.ETag, f.Status, f.PowerState = nil, nil, nil, nil, nil
	f.Count, f.EnableAutoScaling, f.MinCount, f.MaxCount = new(int32(want.Desired)), new(false), nil, nil
	if want.Autoscaling == job.AutoscalingOn {
		f.EnableAutoScaling, f.MinCount, f.MaxCount = new(true), new(int32(want.Min)), new(int32(want.Max))
	}
	header := http.Header{}
	if tag != "" {
		header.Set("If-Match", tag) // somebody else's change since is not overwritten
	}
	_, op, err := put[struct{}](ctx, p, id, aks.AgentPool{Properties: &f}, header)
	op.remember(r, id)
	if pipeline.Is(err, pipeline.Busy) {
		return pipeline.Wait(10*time.Second, "node pool %s to take a change (%v)", ref.Name, err)
	}
	return err
}
