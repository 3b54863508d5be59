package azure

import (
	"context"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// EnsureNetwork makes the network of a job, adds to the one that a network job
// names, or reads the one that a VM job names.
func (p *Provider) EnsureNetwork(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.ensureGroup(ctx, r); err != nil {
		return err
	}
	switch {
	case r.Job.Mode == job.ModeCreate:
		return p.makeNetwork(ctx, r)
	case r.Job.Mode == job.ModeCreateInExisting && r.Job.ResourceType == job.Network:
		return p.extendNetwork(ctx, r)
	case r.Job.Mode == job.ModeCreateInExisting:
		return p.readNetwork(ctx, r)
	}
	return nil
}

// ensureGroup makes the job's resource group, or sees that the named one is there.
func (p *Provider) ensureGroup(ctx context.Context, r *pipeline.Run) error {
	ic := &r.Job.Config.InfraConfig
	if ownsGroup(r.Job) {
		_, err := r.Ensure(ctx, p.group(r).resource())
		if err == nil {
			learn(r, &ic.ResourceGroup, groupOf(r.Job))
		}
		return err
	}
	name := groupOf(r.Job)
	if r.Mode != pipeline.Plan {
		if _, err := read[struct{}](ctx, p, p.groupID(name)); err != nil {
			return p.missingNamed(r, err, "resource group "+name, "config.spec.existing.resourceGroup")
		}
	}
	ic.ResourceGroup, ic.ExistingResourceGroup = name, name
	return nil
}

// missingNamed words that something which the job names is not there.
func (p *Provider) missingNamed(r *pipeline.Run, err error, what, field string) error {
	if !pipeline.Is(err, pipeline.NotFound) {
		return err
	}
	if r.Mode == pipeline.Verify {
		r.AddDrift(pipeline.Drift{Kind: "named", Key: what, Attr: "exists", Wanted: "yes", Seen: "no"})
		return nil
	}
	return pipeline.Fatal("not-found", fmt.Sprintf("the %s that the job names is not there in subscription %s: %v", what, p.subscription, err),
		"Name one that exists, or make it, then retry.").On(field).From(err)
}

// A layout is where a job's subnets go and what they need.
type layout struct {
	vnet    string // ID
	foreign bool   // the VNet is not the job's own
	plan    job.NetworkPlan
	nat     bool
}

// planned is the plan that Check has left, or the same made afresh without
// knowledge of what else is in use.
func planned(r *pipeline.Run) (job.NetworkPlan, error) {
	if plan := r.Job.Config.InfraConfig.NetworkPlan; plan != nil {
		return *plan, nil
	}
	spec, err := r.Job.Network()
	if err != nil {
		return job.NetworkPlan{}, err
	}
	plan, bad := cidr.Plan(cidr.For(job.Azure), cidr.Request{CIDR: spec.CIDR, Secondary: spec.SecondaryCIDRs, Tiers: tiers(spec)})
	if bad != nil {
		return job.NetworkPlan{}, pipeline.Fatal("network-plan", "the network cannot be laid out: "+bad.Message, bad.Fix+", then retry").On(bad.Field)
	}
	r.Job.Config.InfraConfig.NetworkPlan = plan
	return *plan, nil
}

// tiers are the tiers of subnets to make; a VM job's are fixed.
func tiers(spec job.NetworkSpec) []string {
	if len(spec.Subnets) == 0 {
		return []string{job.TierPublic, job.TierPrivate}
	}
	return spec.Subnets
}

// wantsNAT reports whether a NAT gateway is made: it lets the private subnet out.
// Machines in the public one bring addresses of their own, and the database one
// has no way out.
func wantsNAT(spec job.NetworkSpec, plan job.NetworkPlan) bool {
	return spec.NAT != job.NATNone && len(plan.Tier(job.TierPrivate)) > 0
}

// makeNetwork makes what does not depend on each other side by side:
//
//	VNet, a security group a subnet, address → NAT gateway → subnets, one after another
func (p *Provider) makeNetwork(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.Network()
	if err != nil {
		return err
	}
	plan, err := planned(r)
	if err != nil {
		return err
	}
	at := layout{vnet: p.vnetID(r), plan: plan, nat: wantsNAT(spec, plan)}
	if err := p.makeAround(ctx, r, at, func(ctx context.Context) error {
		_, err := r.Ensure(ctx, p.vnet(r, plan).resource())
		return err
	}); err != nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	learn(r, &ic.NetworkID, at.vnet)
	learn(r, &ic.NetworkName, lastName(at.vnet))
	learn(r, &ic.NetworkCIDR, plan.CIDR)
	return p.makeSubnets(ctx, r, at)
}

// makeAround makes what the subnets refer to, and what else is given.
func (p *Provider) makeAround(ctx context.Context, r *pipeline.Run, at layout, more ...func(context.Context) error) error {
	parts := slices.Clone(more)
	for _, s := range at.plan.Subnets {
		parts = append(parts, func(ctx context.Context) error {
			_, err := r.Ensure(ctx, p.securityGroup(r, s).resource())
			return err
		})
	}
	if at.nat {
		parts = append(parts, func(ctx context.Context) error { return p.makeNAT(ctx, r) })
	}
	return pipeline.All(ctx, parts...)
}

func (p *Provider) makeNAT(ctx context.Context, r *pipeline.Run) error {
	address := p.publicIP(r, "nat-ip")
	if _, err := r.Ensure(ctx, address.resource()); err != nil {
		return err
	}
	gateway := p.natGateway(r)
	if _, err := r.Ensure(ctx, gateway.resource()); err != nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	r.LearnAll(&ic.NATGatewayIDs, []string{gateway.id})
	if r.Mode != pipeline.Apply || len(ic.EgressIPs) > 0 {
		return nil
	}
	x, err := read[armnetwork.PublicIPAddress](ctx, p, address.id)
	if err != nil {
		return pipeline.Unseen(err, "the address of the NAT gateway")
	}
	if x.is.Properties != nil && x.is.Properties.IPAddress != nil {
		ic.EgressIPs = []string{*x.is.Properties.IPAddress}
	}
	return nil
}

// makeSubnets makes one subnet after another: a VNet takes one write at a time
// (AnotherOperationInProgress).
func (p *Provider) makeSubnets(ctx context.Context, r *pipeline.Run, at layout) error {
	ic := &r.Job.Config.InfraConfig
	var infos []job.SubnetInfo
	byTier := map[string][]string{}
	for _, s := range at.plan.Subnets {
		x := p.subnet(r, at, s)
		if _, err := r.Ensure(ctx, x.resource()); err != nil {
			return err
		}
		infos = append(infos, job.SubnetInfo{Key: s.Key, Tier: s.Tier, ID: x.id, Name: lastName(x.id), CIDR: s.CIDR})
		byTier[s.Tier] = append(byTier[s.Tier], x.id)
	}
	if r.Mode != pipeline.Verify {
		ic.Subnets = infos
	}
	r.LearnAll(&ic.PublicSubnetIDs, byTier[job.TierPublic])
	r.LearnAll(&ic.PrivateSubnetIDs, byTier[job.TierPrivate])
	r.LearnAll(&ic.DatabaseSubnetIDs, byTier[job.TierDatabase])
	return nil
}
