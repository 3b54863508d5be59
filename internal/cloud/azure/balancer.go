package azure

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// frontName is the one frontend of a load balancer.
const frontName = "front"

// balancerSpec is the load balancer that the job asks for, or asked for when it is
// taken off.
func balancerSpec(j *job.Job) (job.LoadBalancer, error) {
	spec, err := j.VMSpec()
	if err != nil || spec.LoadBalancer == nil {
		return job.LoadBalancer{}.WithDefaults(), err
	}
	return *spec.LoadBalancer, nil
}

func (p *Provider) balancerID(r *pipeline.Run) string {
	return p.idIn(r, typeBalancer, r.Job.ResourceName("lb", longestName))
}

// EnsureLoadBalancer makes the load balancer with its frontend, and lets its
// traffic into the VMs' security groups: a Standard load balancer passes packets
// on with the sender's address.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := balancerSpec(r.Job)
	if err != nil {
		return err
	}
	var parts []func(context.Context) error
	for key, group := range p.admitting(r) {
		parts = append(parts, func(ctx context.Context) error {
			_, err := r.Ensure(ctx, p.inRule(r, key, group, trafficRule(lb)).resource())
			return err
		})
	}
	parts = append(parts, func(ctx context.Context) error {
		if lb.Scheme == job.SchemePublic {
			if _, err := r.Ensure(ctx, p.publicIP(r, "lb-ip").resource()); err != nil {
				return err
			}
		}
		_, err := r.Ensure(ctx, p.balancer(r, lb).resource())
		return err
	})
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	learn(r, &infra.LoadBalancerID, p.balancerID(r))
	if r.Mode != pipeline.Apply || infra.LoadBalancerHost != "" {
		return nil
	}
	infra.LoadBalancerHost, err = p.frontAddress(ctx, r, lb)
	return err
}

// admitting are the security groups that the load balancer's traffic passes: the
// VMs' own, and that of their subnet if the job made it.
func (p *Provider) admitting(r *pipeline.Run) map[string]string {
	groups := map[string]string{"lb-vm": p.vmGroup(r).id}
	if r.Job.Mode == job.ModeCreate {
		groups["lb-private"] = p.securityGroup(r, job.SubnetPlan{Key: job.TierPrivate}).id
	}
	return groups
}

func trafficRule(lb job.LoadBalancer) groupRule {
	from := "Internet"
	if lb.Scheme == job.SchemeInternal {
		from = "VirtualNetwork"
	}
	return groupRule{name: "allow-load-balancer", priority: 200, protocol: armnetwork.SecurityRuleProtocolTCP, source: from, ports: []string{portText(lb.Port)},
		description: "What the load balancer passes on to the VMs"}
}

// vmGroup is the security group of the VMs themselves: what the platform's own
// rules leave open, without SSH.
func (p *Provider) vmGroup(r *pipeline.Run) object[armnetwork.SecurityGroup] {
	return p.securityGroupNamed(r, "nsg-vm", noRemoteAdmin)
}

func (p *Provider) balancer(r *pipeline.Run, lb job.LoadBalancer) object[armnetwork.LoadBalancer] {
	front := &armnetwork.FrontendIPConfiguration{Name: new(frontName), Properties: &armnetwork.FrontendIPConfigurationPropertiesFormat{}}
	if lb.Scheme == job.SchemePublic {
		front.Properties.PublicIPAddress = &armnetwork.PublicIPAddress{ID: new(p.publicIP(r, "lb-ip").id)}
	} else {
		front.Zones = zonesIf(r)
		front.Properties.PrivateIPAllocationMethod = new(armnetwork.IPAllocationMethodDynamic)
		if ids := r.Job.Config.InfraConfig.PrivateSubnetIDs; len(ids) > 0 {
			front.Properties.Subnet = &armnetwork.Subnet{ID: &ids[0]}
		}
	}
	return object[armnetwork.LoadBalancer]{
		p: p, r: r, kind: kindBalancer, key: "lb", id: p.balancerID(r),
		body: func() any {
			return armnetwork.LoadBalancer{
				Location: &p.region, Tags: tagsFor(r.Job, "lb"),
				SKU:        &armnetwork.LoadBalancerSKU{Name: new(armnetwork.LoadBalancerSKUNameStandard), Tier: new(armnetwork.LoadBalancerSKUTierRegional)},
				Properties: &armnetwork.LoadBalancerPropertiesFormat{FrontendIPConfigurations: []*armnetwork.FrontendIPConfiguration{front}},
			}
		},
		see: func(_ context.Context, x resource[armnetwork.LoadBalancer]) ([]pipeline.Aspect, error) {
			return watched(r, pipeline.Aspect{Name: "scheme", Wanted: lb.Scheme, Seen: schemeOf(x.is)}), nil
		},
		inside: func(ctx context.Context, id string) ([]string, error) { return p.partsOf(ctx, id) },
	}
}

func schemeOf(x armnetwork.LoadBalancer) string {
	for _, f := range value(x.Properties).FrontendIPConfigurations {
		if f.Properties != nil && f.Properties.PublicIPAddress != nil {
			return job.SchemePublic
		}
	}
	return job.SchemeInternal
}

// partsOf names what a load balancer still serves: deleting it would take that
// along.
func (p *Provider) partsOf(ctx context.Context, id string) ([]string, error) {
	x, err := read[armnetwork.LoadBalancer](ctx, p, id)
	if err != nil {
		return nil, err
	}
	f := value(x.is.Properties)
	var names []string
	for _, rule := range f.LoadBalancingRules {
		names = append(names, "rule "+value(rule.Name))
	}
	for _, rule := range f.InboundNatRules {
		names = append(names, "inbound NAT rule "+value(rule.Name))
	}
	for _, pool := range f.BackendAddressPools {
		names = append(names, "backend pool "+value(pool.Name))
	}
	return names, nil
}

// frontAddress is the address that the load balancer answers at.
func (p *Provider) frontAddress(ctx context.Context, r *pipeline.Run, lb job.LoadBalancer) (string, error) {
	if lb.Scheme == job.SchemePublic {
		x, err := read[armnetwork.PublicIPAddress](ctx, p, p.publicIP(r, "lb-ip").id)
		if err != nil {
			return "", pipeline.Unseen(err, "the load balancer's address")
		}
		return value(value(x.is.Properties).IPAddress), nil
	}
	x, err := read[armnetwork.LoadBalancer](ctx, p, p.balancerID(r))
	if err != nil {
		return "", pipeline.Unseen(err, "the load balancer")
	}
	for _, f := range value(x.is.Properties).FrontendIPConfigurations {
		if f.Properties != nil && f.Properties.PrivateIPAddress != nil {
			return *f.Properties.PrivateIPAddress, nil
		}
	}
	return "", nil
}

// RemoveLoadBalancer takes the load balancer, its address and its rules away.
func (p *Provider) RemoveLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	lb, err := balancerSpec(r.Job)
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{func(ctx context.Context) error {
		if err := r.Remove(ctx, p.balancer(r, lb).resource()); err != nil {
			return err
		}
		return r.Remove(ctx, p.publicIP(r, "lb-ip").resource())
	}}
	for key, group := range p.admitting(r) {
		parts = append(parts, func(ctx context.Context) error {
			return r.Remove(ctx, p.inRule(r, key, group, trafficRule(lb)).resource())
		})
	}
	return pipeline.All(ctx, parts...)
}
