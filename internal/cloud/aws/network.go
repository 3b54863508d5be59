package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// EnsureNetwork makes the network of a job, or reads the one that the job names.
// A network job adds its own parts to the network that it names.
func (p *Provider) EnsureNetwork(ctx context.Context, r *pipeline.Run) error {
	ctx = lookup.With(ctx, r)
	switch {
	case r.Job.Mode == job.ModeCreate, r.Job.Mode == job.ModeCreateInExisting && r.Job.ResourceType == job.Network:
		return p.makeNetwork(ctx, r)
	case r.Job.Mode == job.ModeCreateInExisting:
		return p.readNetwork(ctx, r)
	}
	return nil
}

// A build is a network as it is put together.
type build struct {
	*Provider
	r    *pipeline.Run
	ic   *job.InfraConfig
	spec job.NetworkSpec
	plan *job.NetworkPlan
	own  bool // the VPC is the job's, not one that it was told to build in

	gateway   string            // the way out of the public subnets
	subnetIDs map[string]string // by key
	addresses []string          // of the NAT gateways
	tables    []pipeline.Resource
	acl       pipeline.Resource // of the private and database subnets, once it is made
	inward    []string          // IDs of the tables without a route to an internet gateway
}

// makeNetwork makes what does not depend on each other side by side:
//
//	VPC, addresses, log group, role → subnets, internet gateway
//	→ NAT gateways, network ACL, routes of public and database subnets → routes of private subnets
//	→ endpoints, flow log
func (p *Provider) makeNetwork(ctx context.Context, r *pipeline.Run) error {
	b, err := p.newBuild(r)
	if err != nil {
		return err
	}
	for _, stage := range []func(context.Context) error{b.foundation, b.subnetsAndGateway, b.ways, b.privateWays, b.finish} {
		if err := stage(ctx); err != nil {
			return err
		}
	}
	b.learnSubnets()
	if err := confirm(ctx, r, append(b.tables, b.acl)...); err != nil {
		return err
	}
	return p.readEgress(ctx, r, b.addresses)
}

func (p *Provider) newBuild(r *pipeline.Run) (*build, error) {
	spec, err := r.Job.Network()
	if err != nil {
		return nil, err
	}
	b := &build{Provider: p, r: r, ic: &r.Job.Config.InfraConfig, spec: spec, own: r.Job.Mode == job.ModeCreate, subnetIDs: map[string]string{}}
	b.plan, err = networkPlan(r, spec)
	return b, err
}

// networkPlan is the plan that the check made before anything else was, or, where
// nothing was checked, the one that follows from the request.
func networkPlan(r *pipeline.Run, spec job.NetworkSpec) (*job.NetworkPlan, error) {
	ic := &r.Job.Config.InfraConfig
	if ic.NetworkPlan != nil {
		return ic.NetworkPlan, nil
	}
	zones := ic.Zones
	if len(zones) == 0 && r.Mode == pipeline.Plan {
		for _, k := range zoneKeys[:spec.Zones] {
			zones = append(zones, "(zone "+k+")")
		}
	}
	plan, bad := cidr.Plan(cidr.For(job.AWS), cidr.Request{CIDR: spec.CIDR, Secondary: spec.SecondaryCIDRs, Zones: zones, Tiers: spec.Subnets})
	if bad != nil {
		return nil, pipeline.Fatal("network-plan", "the network cannot be laid out: "+bad.Message, "Change the range or the number of zones, then retry: "+bad.Fix+".").On(bad.Field)
	}
	return plan, nil
}

// nats are the keys of the zones that get a NAT gateway: none without public
// subnets to put it in, or private ones to use it.
func (b *build) nats() []string {
	public, private := b.plan.Tier(job.TierPublic), b.plan.Tier(job.TierPrivate)
	if b.spec.NAT == job.NATNone || len(public) == 0 || len(private) == 0 {
		return nil
	}
	if b.spec.NAT == job.NATPerZone {
		return zoneKeys[:len(public)]
	}
	return zoneKeys[:1]
}

// foundation makes what needs nothing else.
func (b *build) foundation(ctx context.Context) error {
	nats := b.nats()
	b.addresses = make([]string, len(nats))
	parts := []func(context.Context) error{b.ensureVPC, b.logging}
	for i, z := range nats {
		parts = append(parts, func(ctx context.Context) (err error) {
			b.addresses[i], err = b.r.Ensure(ctx, b.address(b.r, "nat-address-"+z))
			return err
		})
	}
	return pipeline.All(ctx, parts...)
}

// ensureVPC makes the VPC, or finds the one that is named.
func (b *build) ensureVPC(ctx context.Context) error {
	if !b.own {
		return b.nameNetwork(ctx)
	}
	id, err := b.r.Ensure(ctx, b.vpc(b.r, b.plan, false))
	learn(b.r, &b.ic.NetworkID, id)
	learn(b.r, &b.ic.NetworkCIDR, b.plan.CIDR)
	return err
}

func (b *build) subnetsAndGateway(ctx context.Context) error {
	ids := make([]string, len(b.plan.Subnets))
	parts := []func(context.Context) error{b.ensureGateway}
	for i, s := range b.plan.Subnets {
		parts = append(parts, func(ctx context.Context) (err error) {
			ids[i], err = b.r.Ensure(ctx, b.subnet(b.r, s.Key, b.ic.NetworkID, s.CIDR, s.Zone))
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	for i, s := range b.plan.Subnets {
		b.subnetIDs[s.Key] = ids[i]
	}
	b.r.LearnAll(&b.ic.PublicSubnetIDs, b.tier(job.TierPublic))
	b.r.LearnAll(&b.ic.PrivateSubnetIDs, b.tier(job.TierPrivate))
	b.r.LearnAll(&b.ic.DatabaseSubnetIDs, b.tier(job.TierDatabase))
	return nil
}

// tier is the IDs of a tier's subnets, in the zones' order.
func (b *build) tier(tier string) []string {
	var ids []string
	for _, s := range b.plan.Tier(tier) {
		ids = append(ids, b.subnetIDs[s.Key])
	}
	return ids
}

// ways makes the NAT gateways, and the network ACL and the routes that do not
// depend on one.
func (b *build) ways(ctx context.Context) error {
	nats := b.nats()
	ids := make([]string, len(nats))
	parts := []func(context.Context) error{b.guardInner}
	if public := b.ic.PublicSubnetIDs; len(public) > 0 {
		_, table := b.table("routes-public", b.gateway, public)
		parts = append(parts, table)
	}
	if database := b.ic.DatabaseSubnetIDs; len(database) > 0 {
		// Databases reach their own network and the gateway endpoints, nothing else.
		id, table := b.table("routes-database", "", database)
		parts = append(parts, func(ctx context.Context) error {
			defer func() { b.inward = append(b.inward, *id) }()
			return table(ctx)
		})
	}
	for i, z := range nats {
		parts = append(parts, func(ctx context.Context) (err error) {
			ids[i], err = b.ensureNAT(ctx, b.r, b.natGateway(b.r, "nat-"+z, b.ic.PublicSubnetIDs[i], b.addresses[i]))
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	b.r.LearnAll(&b.ic.NATGatewayIDs, ids)
	return nil
}

// table prepares a route table; the ID is there once the table has been made.
func (b *build) table(key, target string, subnets []string) (id *string, ensure func(context.Context) error) {
	x := b.routeTable(b.r, key, b.ic.NetworkID, target, subnets)
	b.tables = append(b.tables, x)
	id = new(string)
	return id, func(ctx context.Context) (err error) {
		*id, err = b.r.Ensure(ctx, x)
		return err
	}
}

// privateWays makes the private subnets' route tables: one for each NAT gateway,
// or a single one.
func (b *build) privateWays(ctx context.Context) error {
	private := b.ic.PrivateSubnetIDs
	if len(private) == 0 {
		return nil
	}
	nats := b.nats()
	targets := make([]string, max(len(nats), 1))
	for i := range nats {
		targets[i] = b.ic.NATGatewayIDs[i]
	}
	ids := make([]*string, len(targets))
	var parts []func(context.Context) error
	for i, target := range targets {
		subnets := private
		if len(targets) > 1 {
			subnets = private[i : i+1]
		}
		id, table := b.table("routes-private-"+zoneKeys[i], target, subnets)
		ids[i] = id
		parts = append(parts, table)
	}
	err := pipeline.All(ctx, parts...)
	for _, id := range ids {
		b.inward = append(b.inward, *id)
	}
	return err
}

// finish makes what watches over the network and shortens its ways. By now IAM
// has spread the flow log's role.
func (b *build) finish(ctx context.Context) error {
	return pipeline.All(ctx, b.endpoints, b.ensureFlowLog)
}

// learnSubnets records every subnet with its place.
func (b *build) learnSubnets() {
	if b.r.Mode == pipeline.Verify || b.r.Job.ResourceType != job.Network {
		return
	}
	b.ic.Subnets = nil
	for _, s := range b.plan.Subnets {
		b.ic.Subnets = append(b.ic.Subnets, job.SubnetInfo{Key: s.Key, Tier: s.Tier, ID: b.subnetIDs[s.Key], Name: name(b.r, s.Key, 128), CIDR: s.CIDR, Zone: s.Zone})
	}
}

// ensureNAT makes a NAT gateway. One that came up failed stays, with its reason,
// while the worker that made it looks on: the job fails and a person reads why.
// Whoever begins afresh after that, and finds it failed, replaces it: a NAT
// gateway never recovers.
func (p *Provider) ensureNAT(ctx context.Context, r *pipeline.Run, x pipeline.Resource) (string, error) {
	seenKey := func(id string) string { return "looked at " + id }
	rec, ok := r.Object(x.Kind, x.Key)
	if r.Mode == pipeline.Apply && ok && rec.State == job.ObjectCreated {
		broken := rec.Reason != "" // a replacement that was not finished
		if !broken && r.Recall(seenKey(rec.ID)) == nil {
			s, err := x.Get(ctx, rec.ID)
			broken = err == nil && s.Status == pipeline.Broken
		}
		if broken {
			if err := r.Remove(ctx, x); err != nil {
				return "", err
			}
		}
	}
	id, err := r.Ensure(ctx, x)
	if rec, ok := r.Object(x.Kind, x.Key); ok && rec.State == job.ObjectCreated {
		r.Remember(seenKey(rec.ID), true)
	}
	return id, err
}

// readEgress records the addresses that the VMs are seen with on the internet.
func (p *Provider) readEgress(ctx context.Context, r *pipeline.Run, addresses []string) error {
	if r.Mode != pipeline.Apply || len(r.Job.Config.InfraConfig.EgressIPs) == len(addresses) {
		return nil
	}
	ips := make([]string, len(addresses))
	for i, id := range addresses {
		a, err := p.addresses().Get(ctx, id)
		if err != nil {
			return pipeline.Unseen(plain(err), "elastic IP "+id)
		}
		ips[i] = aws.ToString(a.PublicIp)
	}
	r.Job.Config.InfraConfig.EgressIPs = ips
	return nil
}
