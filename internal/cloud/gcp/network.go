package gcp

import (
	"context"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// EnsureNetwork makes the network of a job by its plan, adds the job's own
// subnets to the network that a network job names, or reads the one that a VM
// job names.
func (p *Provider) EnsureNetwork(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
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

// makeNetwork makes what does not depend on each other side by side:
//
//	network, NAT address → subnets, deny rule, services' range → router with NAT, services' connection
func (p *Provider) makeNetwork(ctx context.Context, r *pipeline.Run) error {
	ic := &r.Job.Config.InfraConfig
	spec, plan, err := p.planned(r)
	if err != nil {
		return err
	}
	network := p.network(r)
	var address string
	parts := []func(context.Context) error{func(ctx context.Context) error {
		id, err := p.ensure(ctx, r, network)
		learn(r, &ic.NetworkID, id)
		return err
	}}
	if spec.NAT != job.NATNone {
		parts = append(parts, func(ctx context.Context) (err error) {
			address, err = p.ensure(ctx, r, p.address(r, "nat-address"))
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	learn(r, &ic.NetworkName, network.Name)
	learn(r, &ic.NetworkCIDR, plan.CIDR)
	deny := func(ctx context.Context) error {
		_, err := p.ensure(ctx, r, p.firewall(r, denyIngress(ic.NetworkID)))
		return err
	}
	if err := p.furnish(ctx, r, spec, plan, address, deny); err != nil {
		return err
	}
	return r.Save(ctx)
}

// furnish makes what goes into a network: the plan's subnets, private services
// access, and the way out. more is made beside the subnets.
func (p *Provider) furnish(ctx context.Context, r *pipeline.Run, spec job.NetworkSpec, plan *job.NetworkPlan, address string, more ...func(context.Context) error) error {
	ic := &r.Job.Config.InfraConfig
	ids := make([]string, len(plan.Subnets))
	parts := slices.Clone(more)
	for i, s := range plan.Subnets {
		parts = append(parts, func(ctx context.Context) (err error) {
			ids[i], err = p.ensure(ctx, r, p.subnet(r, plannedSubnet(ic.NetworkID, spec, plan, s)))
			return err
		})
	}
	if plan.PrivateServices != "" && !managedFamily(r.Job) { // those make it in a step of its own
		parts = append(parts, func(ctx context.Context) error {
			return p.ensurePrivateServices(ctx, r, ic.NetworkID, plan.PrivateServices)
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	p.learnSubnets(r, plan, ids)
	if spec.NAT == job.NATNone {
		return nil
	}
	id, err := p.ensure(ctx, r, p.router(r, ic.NetworkID, address, translated(plan, ids)))
	if err != nil {
		return err
	}
	r.LearnAll(&ic.NATGatewayIDs, []string{id})
	return p.learnEgress(ctx, r, address)
}

// managedFamily reports whether a job makes what Google's services run.
func managedFamily(j *job.Job) bool {
	return j.ResourceType == job.Datastore || j.ResourceType == job.Cache
}

// planned is what the job asks for and how stepValidate laid it out. A job that
// never came to that is laid out by its own words alone.
func (p *Provider) planned(r *pipeline.Run) (job.NetworkSpec, *job.NetworkPlan, error) {
	spec, err := r.Job.Network()
	if err != nil {
		return spec, nil, err
	}
	if plan := r.Job.Config.InfraConfig.NetworkPlan; plan != nil {
		return spec, plan, nil
	}
	plan, bad := cidr.Plan(cidr.For(job.GCP), cidr.Request{
		CIDR: spec.CIDR, Tiers: spec.Subnets, Ranges: spec.SecondaryRanges, PrivateServices: spec.PrivateServices,
	})
	if bad != nil {
		return spec, nil, pipeline.Fatal("network-plan", "the network cannot be laid out: "+bad.Message, bad.Fix+"; then retry.").On(bad.Field)
	}
	return spec, plan, nil
}

func plannedSubnet(network string, spec job.NetworkSpec, plan *job.NetworkPlan, s job.SubnetPlan) subnetSpec {
	out := subnetSpec{key: s.Key, network: network, cidr: s.CIDR, purpose: purposeVMs, flowLogs: spec.FlowLogs}
	if s.Tier == job.TierPrivate {
		out.ranges = plan.SecondaryRanges
	}
	return out
}

// translated are the subnets that reach the internet through NAT: machines of
// the public tier may have addresses of their own, and those of the database
// tier reach nothing outside.
func translated(plan *job.NetworkPlan, ids []string) []string {
	var out []string
	for i, s := range plan.Subnets {
		if s.Tier != job.TierDatabase {
			out = append(out, ids[i])
		}
	}
	return out
}

func (p *Provider) learnSubnets(r *pipeline.Run, plan *job.NetworkPlan, ids []string) {
	ic := &r.Job.Config.InfraConfig
	tiers := map[string][]string{}
	var infos []job.SubnetInfo
	for i, s := range plan.Subnets {
		tiers[s.Tier] = append(tiers[s.Tier], ids[i])
		infos = append(infos, job.SubnetInfo{Key: s.Key, Tier: s.Tier, ID: ids[i], Name: base(ids[i]), CIDR: s.CIDR})
	}
	r.LearnAll(&ic.PublicSubnetIDs, tiers[job.TierPublic])
	r.LearnAll(&ic.PrivateSubnetIDs, tiers[job.TierPrivate])
	r.LearnAll(&ic.DatabaseSubnetIDs, tiers[job.TierDatabase])
	if r.Job.ResourceType == job.Network && r.Mode != pipeline.Verify {
		ic.Subnets = infos
	}
}

// learnEgress records the address that the machines are seen with on the internet.
func (p *Provider) learnEgress(ctx context.Context, r *pipeline.Run, address string) error {
	ic := &r.Job.Config.InfraConfig
	if r.Mode != pipeline.Apply || len(ic.EgressIPs) > 0 {
		return nil
	}
	a, err := p.addresses().lookup().Get(ctx, address)
	if pipeline.Is(err, pipeline.NotFound) {
		return pipeline.Wait(2*time.Second, "address %s to become visible", base(address))
	}
	if err != nil {
		return err
	}
	ic.EgressIPs = []string{a.Address}
	return nil
}
