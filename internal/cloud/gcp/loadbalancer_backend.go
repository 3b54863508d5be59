package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// pollChange is how soon a change that commonly takes a second or two is looked at.
const pollChange = 2 * time.Second

// drain is how long a VM that leaves may finish what it has begun.
const drain = 30

// backendService is where the load balancer's traffic goes.
func (p *Provider) backendService(r *pipeline.Run, b balancer, groups []backendGroup) pipeline.Resource {
	id := b.id("backendServices", name(r, backendKey))
	want := &compute.BackendService{
		Name: base(id), Description: r.Job.MarkText(backendKey), LoadBalancingScheme: b.scheme,
		Protocol: "HTTP", HealthChecks: []string{b.id("healthChecks", name(r, healthCheckKey))}, TimeoutSec: 30,
		ConnectionDraining: &compute.ConnectionDraining{DrainingTimeoutSec: drain},
		LogConfig:          &compute.BackendServiceLogConfig{Enable: true, SampleRate: logSample},
	}
	if b.Type == job.LBTCP {
		want.Protocol = "TCP"
	}
	if b.scheme != schemePassthrough {
		want.PortName = portName
	}
	for _, g := range groups {
		want.Backends = append(want.Backends, b.backend(g.id))
	}
	return object[*compute.BackendService]{kind: p.backendServices(b.region), key: backendKey, id: id, want: want,
		see: func(_ context.Context, have *compute.BackendService) (pipeline.Seen, error) {
			if r.Down {
				return pipeline.Seen{}, nil
			}
			return pipeline.Seen{Aspects: p.backendAspects(r, b, id, want, have)}, nil
		},
		blockers: func(ctx context.Context, id string) (string, error) {
			x, err := p.backendServices(b.region).get(ctx, id)
			if err != nil {
				return "", pipeline.Unless(err, pipeline.NotFound)
			}
			var links []string
			for _, u := range x.UsedBy {
				links = append(links, u.Reference)
			}
			return users("the backend service", links), nil
		},
	}.resource(p, r)
}

// backend is a group as a backend service takes it. Packets that go through are
// counted as connections; proxies look at how busy the VMs are.
func (b balancer) backend(group string) *compute.Backend {
	if b.scheme == schemePassthrough {
		return &compute.Backend{Group: group, BalancingMode: "CONNECTION"}
	}
	return &compute.Backend{Group: group, BalancingMode: "UTILIZATION", MaxUtilization: 0.8, CapacityScaler: 1}
}

func (p *Provider) backendAspects(r *pipeline.Run, b balancer, id string, want, have *compute.BackendService) []pipeline.Aspect {
	patch := func(change *compute.BackendService) func(context.Context) error {
		change.Fingerprint = have.Fingerprint
		return p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			if b.region == "" {
				return send(ctx, p.compute.BackendServices.Patch(p.project, want.Name, change))
			}
			return send(ctx, p.compute.RegionBackendServices.Patch(p.project, b.region, want.Name, change))
		})
	}
	// Groups that somebody has added stay, and a verify shows them.
	wanted, there := groupsOf(want.Backends), groupsOf(have.Backends)
	all, shown := slices.Clone(have.Backends), there
	if r.Mode == pipeline.Apply {
		shown = slices.DeleteFunc(slices.Clone(wanted), func(g string) bool { return !slices.Contains(there, g) })
	}
	for _, w := range want.Backends {
		if !slices.Contains(there, rel(w.Group)) {
			all = append(all, w)
		}
	}
	out := []pipeline.Aspect{
		{Name: "groups", Wanted: sorted(wanted), Seen: sorted(shown), Set: patch(&compute.BackendService{Backends: all})},
		{Name: "health check", Wanted: relText(want.HealthChecks), Seen: relText(have.HealthChecks), Set: patch(&compute.BackendService{HealthChecks: want.HealthChecks})},
		{Name: "logging", Wanted: logText(want.LogConfig), Seen: logText(have.LogConfig), Set: patch(&compute.BackendService{LogConfig: want.LogConfig})},
		{Name: "port name", Wanted: want.PortName, Seen: have.PortName, Set: patch(&compute.BackendService{PortName: want.PortName})},
	}
	if b.scheme == schemePassthrough {
		out = out[:len(out)-1]
	}
	if r.Mode == pipeline.Verify {
		out = append(out, pipeline.Aspect{Name: "scheme and protocol", Wanted: want.LoadBalancingScheme + " " + want.Protocol, Seen: have.LoadBalancingScheme + " " + have.Protocol})
	}
	return out
}

func groupsOf(all []*compute.Backend) []string {
	var out []string
	for _, b := range all {
		out = append(out, rel(b.Group))
	}
	return out
}

func logText(c *compute.BackendServiceLogConfig) string {
	if c == nil || !c.Enable {
		return "off"
	}
	return fmt.Sprintf("%g of requests", c.SampleRate)
}

// urlMap sends every request to the backend service.
func (p *Provider) urlMap(r *pipeline.Run, b balancer) pipeline.Resource {
	want := &compute.UrlMap{DefaultService: b.id("backendServices", name(r, backendKey))}
	return p.urlMapOf(r, b, urlMapKey, want)
}

// redirectMap sends every request to the same place under HTTPS.
func (p *Provider) redirectMap(r *pipeline.Run, b balancer) pipeline.Resource {
	return p.urlMapOf(r, b, redirectKey, &compute.UrlMap{DefaultUrlRedirect: &compute.HttpRedirectAction{
		HttpsRedirect: true, RedirectResponseCode: "MOVED_PERMANENTLY_DEFAULT", ForceSendFields: []string{"StripQuery"},
	}})
}

func (p *Provider) urlMapOf(r *pipeline.Run, b balancer, key string, want *compute.UrlMap) pipeline.Resource {
	id := b.id("urlMaps", name(r, key))
	want.Name, want.Description = base(id), r.Job.MarkText(key)
	return object[*compute.UrlMap]{kind: p.urlMaps(b.region), key: key, id: id, want: want, see: func(_ context.Context, have *compute.UrlMap) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: []pipeline.Aspect{{Name: "default", Wanted: routeText(want), Seen: routeText(have), Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			change := &compute.UrlMap{DefaultService: want.DefaultService, DefaultUrlRedirect: want.DefaultUrlRedirect, Fingerprint: have.Fingerprint}
			if b.region == "" {
				return send(ctx, p.compute.UrlMaps.Patch(p.project, want.Name, change))
			}
			return send(ctx, p.compute.RegionUrlMaps.Patch(p.project, b.region, want.Name, change))
		})}}}, nil
	}}.resource(p, r)
}

func routeText(m *compute.UrlMap) string {
	if d := m.DefaultUrlRedirect; d != nil {
		return fmt.Sprintf("redirect, HTTPS %s, %s", yesNo(d.HttpsRedirect), strings.ToLower(d.RedirectResponseCode))
	}
	return "to " + rel(m.DefaultService)
}

// nameGroupPort tells a managed group which port its VMs serve on. Ports that
// others have named are kept.
func (p *Provider) nameGroupPort(ctx context.Context, r *pipeline.Run, b balancer) error {
	id := r.Job.Config.InfraConfig.ScalingGroupID
	if r.Mode == pipeline.Plan {
		return nil
	}
	if err := p.pending(ctx, r, id); err != nil {
		return err
	}
	g, err := p.readGroup(ctx, id)
	if err != nil {
		if r.Mode == pipeline.Verify {
			return pipeline.Unless(err, pipeline.NotFound) // reported as drift already
		}
		return err
	}
	want := portsText(namedPorts(b))
	i := slices.IndexFunc(g.NamedPorts, func(n *compute.NamedPort) bool { return n.Name == portName })
	switch {
	case i >= 0 && portsText(g.NamedPorts[i:i+1]) == want:
		return nil
	case r.Mode == pipeline.Verify:
		r.AddDrift(pipeline.Drift{Kind: kindManagedGroup, Key: groupKey, ID: id, Attr: "named port", Wanted: want, Seen: portsText(g.NamedPorts)})
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(g.NamedPorts), func(n *compute.NamedPort) bool { return n.Name == portName })
	return p.patchGroup(ctx, r, id, &compute.InstanceGroupManager{NamedPorts: append(others, namedPorts(b)...)}, "the managed group to name its port")
}

// releaseGroup takes from a managed group what the load balancer has given it: the
// check that it heals by and the name of its port.
func (p *Provider) releaseGroup(ctx context.Context, r *pipeline.Run) error {
	rec, ok := r.Object(kindManagedGroup, groupKey)
	if !ok || rec.State != job.ObjectCreated {
		return nil
	}
	if err := p.pending(ctx, r, rec.ID); err != nil {
		return err
	}
	g, err := p.readGroup(ctx, rec.ID)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	others := slices.DeleteFunc(slices.Clone(g.NamedPorts), func(n *compute.NamedPort) bool { return n.Name == portName })
	change := &compute.InstanceGroupManager{}
	if len(others) < len(g.NamedPorts) {
		change.NamedPorts = others
		change.ForceSendFields = append(change.ForceSendFields, "NamedPorts")
	}
	if len(g.AutoHealingPolicies) > 0 {
		change.ForceSendFields = append(change.ForceSendFields, "AutoHealingPolicies")
	}
	if len(change.ForceSendFields) == 0 {
		return nil
	}
	return p.patchGroup(ctx, r, rec.ID, change, "the managed group to let go of the load balancer")
}

// patchGroup changes a managed group, and waits until the change is carried out.
// One that the cloud takes and does not keep stops the job after some tries.
func (p *Provider) patchGroup(ctx context.Context, r *pipeline.Run, id string, change *compute.InstanceGroupManager, what string) error {
	tries := "patches for " + what
	n, _ := r.Recall(tries).(int)
	if n >= setsTolerated {
		return pipeline.Fatal("change-lost", fmt.Sprintf("%s: waited for %s, and the cloud acknowledges the change and does not keep it", base(id), what),
			"Look at it in the cloud's console, then retry.")
	}
	r.Remember(tries, n+1)
	op, err := send(ctx, p.compute.RegionInstanceGroupManagers.Patch(projectOf(id), regionOf(id), base(id), change))
	if err != nil {
		return err
	}
	p.await(r, id, op)
	return pipeline.Wait(pollChange, "%s", what)
}
