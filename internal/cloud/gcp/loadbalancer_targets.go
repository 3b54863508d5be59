package gcp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	healthCheckKey = "check"
	backendKey     = "backend"
	urlMapKey      = "urls"
	groupPrefix    = "group-" // and a zone: the unmanaged groups
)

// portName is by which name backend services know the port of the VMs.
const portName = "app"

// logSample is the share of requests that is logged: all of them are billed by
// volume.
const logSample = 0.1

// EnsureTargetGroup makes the health check, puts the VMs into groups, and makes
// the backend service and the URL map in front of them.
func (p *Provider) EnsureTargetGroup(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	b, err := p.lbSpec(r.Job)
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	groups := p.backendGroups(r)
	parts := []func(context.Context) error{func(ctx context.Context) error {
		_, err := p.ensure(ctx, r, p.healthCheck(r, b))
		return err
	}}
	for _, g := range groups {
		if g.members == nil {
			parts = append(parts, func(ctx context.Context) error { return p.nameGroupPort(ctx, r, b) })
			continue
		}
		parts = append(parts, func(ctx context.Context) error {
			_, err := p.ensure(ctx, r, p.instanceGroup(r, b, g))
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return visible(r, "the groups of VMs", err)
	}
	id, err := p.ensure(ctx, r, p.backendService(r, b, groups))
	learn(r, &infra.TargetGroupID, id)
	if err != nil {
		return visible(r, "the backend service", err)
	}
	if b.Type == job.LBTCP {
		return nil
	}
	_, err = p.ensure(ctx, r, p.urlMap(r, b))
	return visible(r, "the URL map", err)
}

// RemoveTargetGroup removes it all again and leaves the VMs. A managed group is
// told first to heal its VMs no longer by a check that is about to go.
func (p *Provider) RemoveTargetGroup(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	b, err := p.lbSpec(r.Job)
	if err != nil {
		return err
	}
	if err := r.Remove(ctx, p.urlMap(r, b)); err != nil {
		return err
	}
	if err := r.Remove(ctx, p.backendService(r, b, nil)); err != nil {
		return err
	}
	if err := p.releaseGroup(ctx, r); err != nil {
		return err
	}
	parts := []func(context.Context) error{func(ctx context.Context) error { return r.Remove(ctx, p.healthCheck(r, b)) }}
	for _, zone := range p.groupZones(r) {
		parts = append(parts, func(ctx context.Context) error {
			return r.Remove(ctx, p.instanceGroup(r, b, backendGroup{key: groupPrefix + zone, zone: zone}))
		})
	}
	return pipeline.All(ctx, parts...)
}

// groupZones are the zones that the job has, or may have, an unmanaged group in.
func (p *Provider) groupZones(r *pipeline.Run) []string {
	zones := map[string]bool{}
	for _, o := range r.Objects() {
		if o.Kind == kindInstanceGroup {
			zones[strings.TrimPrefix(o.Key, groupPrefix)] = true
		}
	}
	for _, z := range r.Job.Config.InfraConfig.Zones {
		zones[z] = true
	}
	return slices.Sorted(maps.Keys(zones))
}

func (p *Provider) healthCheck(r *pipeline.Run, b balancer) pipeline.Resource {
	id := b.id("healthChecks", name(r, healthCheckKey))
	want := &compute.HealthCheck{
		Name: base(id), Description: r.Job.MarkText(healthCheckKey), Type: "HTTP",
		CheckIntervalSec: 10, TimeoutSec: 5, HealthyThreshold: 2, UnhealthyThreshold: 3,
		HttpHealthCheck: &compute.HTTPHealthCheck{PortSpecification: "USE_FIXED_PORT", Port: int64(b.HealthCheck.Port), RequestPath: b.HealthCheck.Path},
		LogConfig:       &compute.HealthCheckLogConfig{Enable: true}, // changes of health alone: it says why
	}
	return object[*compute.HealthCheck]{kind: p.healthChecks(b.region), key: healthCheckKey, id: id, want: want, see: func(_ context.Context, have *compute.HealthCheck) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: []pipeline.Aspect{{Name: "health check", Wanted: checkText(want), Seen: checkText(have), Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			change := &compute.HealthCheck{Type: want.Type, HttpHealthCheck: want.HttpHealthCheck, LogConfig: want.LogConfig}
			if b.region == "" {
				return send(ctx, p.compute.HealthChecks.Patch(p.project, base(id), change))
			}
			return send(ctx, p.compute.RegionHealthChecks.Patch(p.project, b.region, base(id), change))
		})}}}, nil
	}}.resource(p, r)
}

func checkText(h *compute.HealthCheck) string {
	c := h.HttpHealthCheck
	if c == nil {
		return h.Type
	}
	text := fmt.Sprintf("%s GET %s on port %d", h.Type, c.RequestPath, c.Port)
	if h.LogConfig == nil || !h.LogConfig.Enable {
		text += ", not logged"
	}
	return text
}

// A backendGroup is a group of VMs that a backend service sends traffic to.
type backendGroup struct {
	id      string
	key     string
	zone    string
	members []string // nil: the managed group's own affair
}

// backendGroups are the managed group, or an unmanaged group in each zone that
// has VMs.
func (p *Provider) backendGroups(r *pipeline.Run) []backendGroup {
	infra := r.Job.Config.InfraConfig
	if infra.ScalingGroupID != "" {
		return []backendGroup{{id: strings.Replace(infra.ScalingGroupID, "/instanceGroupManagers/", "/instanceGroups/", 1)}}
	}
	byZone := map[string][]string{}
	for _, vm := range infra.VMs {
		if vm.Zone != "" {
			byZone[vm.Zone] = append(byZone[vm.Zone], vm.InstanceID)
		}
	}
	var out []backendGroup
	for _, zone := range slices.Sorted(maps.Keys(byZone)) {
		key := groupPrefix + zone
		out = append(out, backendGroup{id: p.zonal(zone, "instanceGroups", name(r, key)), key: key, zone: zone, members: byZone[zone]})
	}
	return out
}

// instanceGroup is the unmanaged group of the fixed VMs of one zone.
func (p *Provider) instanceGroup(r *pipeline.Run, b balancer, g backendGroup) pipeline.Resource {
	id := p.zonal(g.zone, "instanceGroups", name(r, g.key))
	infra := r.Job.Config.InfraConfig
	want := &compute.InstanceGroup{Name: base(id), Description: r.Job.MarkText(g.key), Network: infra.NetworkID, NamedPorts: namedPorts(b)}
	if len(infra.PrivateSubnetIDs) > 0 {
		want.Subnetwork = infra.PrivateSubnetIDs[0]
	}
	return object[*compute.InstanceGroup]{kind: p.instanceGroups(g.zone), key: g.key, id: id, want: want, see: func(ctx context.Context, have *compute.InstanceGroup) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		in, err := p.groupMembers(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		ports := pipeline.Aspect{Name: "named port", Wanted: portsText(want.NamedPorts), Seen: portsText(have.NamedPorts), Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			return send(ctx, p.compute.InstanceGroups.SetNamedPorts(p.project, g.zone, base(id), &compute.InstanceGroupsSetNamedPortsRequest{NamedPorts: want.NamedPorts, Fingerprint: have.Fingerprint}))
		})}
		return pipeline.Seen{Aspects: []pipeline.Aspect{ports, p.membersAspect(r, id, g.members, in)}}, nil
	}}.resource(p, r)
}

// groupMembers is who is in an unmanaged group.
func (p *Provider) groupMembers(ctx context.Context, id string) ([]string, error) {
	return lookup.Once(ctx, "members of "+id, func(ctx context.Context) ([]string, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
			call := p.compute.InstanceGroups.ListInstances(projectOf(id), zoneOf(id), base(id), &compute.InstanceGroupsListInstancesRequest{InstanceState: "ALL"})
			out, err := send(ctx, call.PageToken(text(token)))
			if err != nil {
				return nil, nil, err
			}
			var ids []string
			for _, i := range out.Items {
				ids = append(ids, rel(i.Instance))
			}
			return ids, &out.NextPageToken, nil
		})
	})
}

// membersAspect wants the VMs in their group. Who else somebody has put there is
// left, and shown by a verify.
func (p *Provider) membersAspect(r *pipeline.Run, id string, want, have []string) pipeline.Aspect {
	missing := slices.DeleteFunc(slices.Clone(want), func(vm string) bool { return slices.Contains(have, vm) })
	shown := have
	if r.Mode == pipeline.Apply {
		shown = slices.DeleteFunc(slices.Clone(want), func(vm string) bool { return slices.Contains(missing, vm) })
	}
	return pipeline.Aspect{Name: "VMs", Wanted: sorted(want), Seen: sorted(shown), Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
		in := &compute.InstanceGroupsAddInstancesRequest{}
		for _, vm := range missing {
			in.Instances = append(in.Instances, &compute.InstanceReference{Instance: vm})
		}
		return send(ctx, p.compute.InstanceGroups.AddInstances(projectOf(id), zoneOf(id), base(id), in))
	})}
}

func namedPorts(b balancer) []*compute.NamedPort {
	return []*compute.NamedPort{{Name: portName, Port: int64(b.Port)}}
}

func portsText(ports []*compute.NamedPort) string {
	var out []string
	for _, n := range ports {
		out = append(out, fmt.Sprintf("%s=%d", n.Name, n.Port))
	}
	return or(sorted(out), "none")
}
