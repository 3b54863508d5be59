package azure

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The names of a load balancer's parts.
const (
	poolName  = "vms"
	probeID   = "health"
	ruleNamed = "traffic"
)

func portText(port int) string { return strconv.Itoa(port) }

func port(n int) *int32 { return new(int32(n)) }

// lbOwner: parts of a load balancer have no tags; they are whose it is.
func lbOwner[T any](p *Provider, lb string) func(context.Context, resource[T]) (string, error) {
	return func(ctx context.Context, _ resource[T]) (string, error) {
		x, err := read[armnetwork.LoadBalancer](ctx, p, lb)
		return cmp.Or(x.Tags[job.MarkOwner], pipeline.Unmarked), err
	}
}

// pool is the backend pool, which has a PUT of its own.
func (p *Provider) pool(r *pipeline.Run) object[armnetwork.BackendAddressPool] {
	lb := p.balancerID(r)
	return object[armnetwork.BackendAddressPool]{
		p: p, r: r, kind: kindPool, key: "pool", id: lb + "/backendAddressPools/" + poolName,
		body: func() any {
			return armnetwork.BackendAddressPool{Properties: &armnetwork.BackendAddressPoolPropertiesFormat{}}
		},
		owner: lbOwner[armnetwork.BackendAddressPool](p, lb),
		blockers: func(ctx context.Context, id string) ([]string, error) {
			x, err := read[armnetwork.BackendAddressPool](ctx, p, id)
			var names []string
			for _, c := range value(x.is.Properties).BackendIPConfigurations {
				names = append(names, holderOf(value(c.ID)))
			}
			return names, err
		},
	}
}

// A part is a probe or a rule: it is made and removed by writing the whole load
// balancer back with it or without.
func (p *Provider) part(r *pipeline.Run, x pipeline.Resource, id string, write func(f *armnetwork.LoadBalancerPropertiesFormat, keep bool)) pipeline.Resource {
	x.Slow = false
	find := x.Find
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		found, err := find(ctx)
		if err != nil || len(found) > 0 {
			return first(found), err
		}
		return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Pending}, p.editBalancer(ctx, r, write, true)
	}
	x.Delete = func(ctx context.Context, _ string) error { return p.editBalancer(ctx, r, write, false) }
	return x
}

func first[T any](all []T) T {
	if len(all) == 0 {
		var zero T
		return zero
	}
	return all[0]
}

func (p *Provider) editBalancer(ctx context.Context, r *pipeline.Run, write func(*armnetwork.LoadBalancerPropertiesFormat, bool), keep bool) error {
	x, err := read[armnetwork.LoadBalancer](ctx, p, p.balancerID(r))
	if err != nil {
		return err
	}
	if x.is.Properties == nil {
		x.is.Properties = &armnetwork.LoadBalancerPropertiesFormat{}
	}
	write(x.is.Properties, keep)
	header := http.Header{}
	if x.Etag != "" {
		header.Set("If-Match", x.Etag)
	}
	_, op, err := put[struct{}](ctx, p, x.ID, x.is, header)
	op.remember(r, x.ID)
	return err
}

// probe asks the VMs how they are, by HTTP: what a VM answers on a port alone says
// little.
func (p *Provider) healthProbe(r *pipeline.Run, lb job.LoadBalancer) pipeline.Resource {
	id := p.balancerID(r) + "/probes/" + probeID
	wanted := &armnetwork.ProbePropertiesFormat{Protocol: new(armnetwork.ProbeProtocolHTTP), Port: port(lb.HealthCheck.Port), RequestPath: &lb.HealthCheck.Path,
		IntervalInSeconds: new(int32(5)), ProbeThreshold: new(int32(2)), NumberOfProbes: new(int32(2))}
	text := func(f *armnetwork.ProbePropertiesFormat) string {
		if f == nil {
			return "nothing"
		}
		return string(value(f.Protocol)) + " " + value(f.RequestPath) + " on port " + strconv.Itoa(int(value(f.Port)))
	}
	write := func(f *armnetwork.LoadBalancerPropertiesFormat, keep bool) {
		f.Probes = slices.DeleteFunc(f.Probes, func(x *armnetwork.Probe) bool { return same(value(x.Name), probeID) })
		if keep {
			f.Probes = append(f.Probes, &armnetwork.Probe{Name: new(probeID), Properties: wanted})
		}
	}
	o := object[armnetwork.Probe]{
		p: p, r: r, kind: kindProbe, key: "probe", id: id, owner: lbOwner[armnetwork.Probe](p, p.balancerID(r)),
		see: func(_ context.Context, x resource[armnetwork.Probe]) ([]pipeline.Aspect, error) {
			return []pipeline.Aspect{{Name: "health check", Wanted: text(wanted), Seen: text(x.is.Properties), Set: func(ctx context.Context) error {
				if err := p.editBalancer(ctx, r, write, true); err != nil {
					return err
				}
				return changed(r, "the health check")
			}}}, nil
		},
	}
	return p.part(r, o.resource(), id, write)
}

// frontPort is the port at which the load balancer listens.
func frontPort(lb job.LoadBalancer) int {
	if lb.Type == job.LBTCP {
		return lb.Port
	}
	return 80
}

// rule passes traffic on. The VMs' own way out stays the NAT gateway: no source
// translation by the load balancer (control LBZ-06).
func (p *Provider) rule(r *pipeline.Run, lb job.LoadBalancer) pipeline.Resource {
	at := p.balancerID(r)
	id := at + "/loadBalancingRules/" + ruleNamed
	wanted := &armnetwork.LoadBalancingRulePropertiesFormat{
		FrontendIPConfiguration: &armnetwork.SubResource{ID: new(at + "/frontendIPConfigurations/" + frontName)},
		BackendAddressPool:      &armnetwork.SubResource{ID: new(at + "/backendAddressPools/" + poolName)},
		Probe:                   &armnetwork.SubResource{ID: new(at + "/probes/" + probeID)},
		Protocol:                new(armnetwork.TransportProtocolTCP), FrontendPort: port(frontPort(lb)), BackendPort: port(lb.Port),
		DisableOutboundSnat: new(true), EnableTCPReset: new(true), IdleTimeoutInMinutes: new(int32(4)),
	}
	text := func(f *armnetwork.LoadBalancingRulePropertiesFormat) string {
		if f == nil {
			return "nothing"
		}
		return strconv.Itoa(int(value(f.FrontendPort))) + " to " + strconv.Itoa(int(value(f.BackendPort))) + ", outbound SNAT " + onOff(!value(f.DisableOutboundSnat))
	}
	write := func(f *armnetwork.LoadBalancerPropertiesFormat, keep bool) {
		f.LoadBalancingRules = slices.DeleteFunc(f.LoadBalancingRules, func(x *armnetwork.LoadBalancingRule) bool { return same(value(x.Name), ruleNamed) })
		if keep {
			f.LoadBalancingRules = append(f.LoadBalancingRules, &armnetwork.LoadBalancingRule{Name: new(ruleNamed), Properties: wanted})
		}
	}
	o := object[armnetwork.LoadBalancingRule]{
		p: p, r: r, kind: kindLBRule, key: "rule", id: id, owner: lbOwner[armnetwork.LoadBalancingRule](p, at),
		see: func(_ context.Context, x resource[armnetwork.LoadBalancingRule]) ([]pipeline.Aspect, error) {
			return []pipeline.Aspect{{Name: "ports", Wanted: text(wanted), Seen: text(x.is.Properties), Set: func(ctx context.Context) error {
				if err := p.editBalancer(ctx, r, write, true); err != nil {
					return err
				}
				return changed(r, "the load balancer's rule")
			}}}, nil
		},
	}
	return p.part(r, o.resource(), id, write)
}

// EnsureTargetGroup makes the backend pool and the probe, and puts the VMs into
// the pool.
func (p *Provider) EnsureTargetGroup(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := balancerSpec(r.Job)
	if err != nil {
		return err
	}
	pool := p.pool(r)
	if _, err := r.Ensure(ctx, pool.resource()); err != nil {
		return err
	}
	if _, err := r.Ensure(ctx, p.healthProbe(r, lb)); err != nil {
		return err
	}
	learn(r, &r.Job.Config.InfraConfig.TargetGroupID, pool.id)
	if r.Mode == pipeline.Plan {
		return nil
	}
	return p.membership(ctx, r, pool.id, true)
}

// RemoveTargetGroup takes the VMs out of the pool, and the pool and the probe
// away; the VMs go on running.
func (p *Provider) RemoveTargetGroup(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	lb, err := balancerSpec(r.Job)
	if err != nil {
		return err
	}
	pool := p.pool(r)
	if r.Mode == pipeline.Apply {
		if err := p.membership(ctx, r, pool.id, false); err != nil {
			return err
		}
	}
	// Both are parts of one document: one is written after the other.
	if err := r.Remove(ctx, p.healthProbe(r, lb)); err != nil {
		return err
	}
	return r.Remove(ctx, pool.resource())
}

// EnsureListener makes the rule, and waits until the VMs take traffic.
func (p *Provider) EnsureListener(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := balancerSpec(r.Job)
	if err != nil {
		return err
	}
	id, err := r.Ensure(ctx, p.rule(r, lb))
	if err != nil {
		return err
	}
	r.LearnAll(&r.Job.Config.InfraConfig.ListenerIDs, []string{id})
	if r.Mode == pipeline.Plan {
		return nil
	}
	return p.awaitHealthy(ctx, r, lb)
}

// RemoveListener takes the rule away.
func (p *Provider) RemoveListener(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	lb, err := balancerSpec(r.Job)
	if err != nil {
		return err
	}
	return r.Remove(ctx, p.rule(r, lb))
}
