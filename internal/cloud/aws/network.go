package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// EnsureNetwork makes the network of a job, or reads the one that the job names.
func (p *Provider) EnsureNetwork(ctx context.Context, r *pipeline.Run) error {
	ctx = lookup.With(ctx, r)
	switch r.Job.Mode {
	case job.ModeCreate:
		return p.makeNetwork(ctx, r)
	case job.ModeCreateInExisting:
		return p.readNetwork(ctx, r)
	}
	return nil
}

// makeNetwork makes what does not depend on each other side by side:
//
//	VPC, addresses → subnets, internet gateway → NAT gateways, public routes → private routes
func (p *Provider) makeNetwork(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	zones := ic.Zones
	if len(zones) == 0 && r.Mode == pipeline.Plan {
		for _, k := range zoneKeys[:spec.Network.Zones] {
			zones = append(zones, "(zone "+k+")")
		}
	}
	plan, err := planSubnets(spec.Network.CIDR, zones)
	if err != nil {
		return pipeline.Fatal("network-plan", "the network cannot be laid out: "+err.Error(), "Change the range or the number of zones, then retry.").On("config.spec.network.cidr")
	}
	nats := natPlan(plan, spec.Network.NAT)
	addresses := make([]string, len(nats))
	parts := []func(context.Context) error{func(ctx context.Context) error {
		id, err := r.Ensure(ctx, p.vpc(r, spec.Network.CIDR, false))
		learn(r, &ic.NetworkID, id)
		return err
	}}
	for i, z := range nats {
		parts = append(parts, func(ctx context.Context) (err error) {
			addresses[i], err = r.Ensure(ctx, p.address(r, "nat-address-"+z.Key))
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	learn(r, &ic.NetworkCIDR, spec.Network.CIDR)
	gateway, err := p.makeSubnets(ctx, r, plan)
	if err != nil {
		return err
	}
	tables, err := p.makeRoutes(ctx, r, plan, nats, gateway, addresses)
	if err != nil {
		return err
	}
	if err := confirm(ctx, r, tables...); err != nil {
		return err
	}
	return p.readEgress(ctx, r, addresses)
}

// natPlan is the zones that get a NAT gateway.
func natPlan(plan []subnetPlan, nat string) []subnetPlan {
	if nat == job.NATPerZone {
		return plan
	}
	return plan[:1]
}

func (p *Provider) makeSubnets(ctx context.Context, r *pipeline.Run, plan []subnetPlan) (gateway string, err error) {
	ic := &r.Job.Config.InfraConfig
	public, private := make([]string, len(plan)), make([]string, len(plan))
	parts := []func(context.Context) error{func(ctx context.Context) (err error) {
		gateway, err = r.Ensure(ctx, p.internetGateway(r, ic.NetworkID))
		return err
	}}
	for i, z := range plan {
		parts = append(parts,
			func(ctx context.Context) (err error) {
				public[i], err = r.Ensure(ctx, p.subnet(r, "public-"+z.Key, ic.NetworkID, z.Public.String(), z.Zone))
				return err
			},
			func(ctx context.Context) (err error) {
				private[i], err = r.Ensure(ctx, p.subnet(r, "private-"+z.Key, ic.NetworkID, z.Private.String(), z.Zone))
				return err
			})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return "", err
	}
	learnAll(r, &ic.PublicSubnetIDs, public)
	learnAll(r, &ic.PrivateSubnetIDs, private)
	return gateway, nil
}

// makeRoutes makes the NAT gateways and all routes, and returns the route tables.
func (p *Provider) makeRoutes(ctx context.Context, r *pipeline.Run, plan, nats []subnetPlan, gateway string, addresses []string) ([]pipeline.Resource, error) {
	ic := &r.Job.Config.InfraConfig
	ids := make([]string, len(nats))
	public := p.routeTable(r, "routes-public", ic.NetworkID, gateway, ic.PublicSubnetIDs)
	parts := []func(context.Context) error{func(ctx context.Context) error {
		_, err := r.Ensure(ctx, public)
		return err
	}}
	for i, z := range nats {
		parts = append(parts, func(ctx context.Context) (err error) {
			ids[i], err = p.ensureNAT(ctx, r, p.natGateway(r, "nat-"+z.Key, ic.PublicSubnetIDs[i], addresses[i]))
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return nil, err
	}
	learnAll(r, &ic.NATGatewayIDs, ids)

	tables := []pipeline.Resource{public}
	parts = nil
	for i, z := range nats {
		subnets := ic.PrivateSubnetIDs
		if len(nats) == len(plan) && len(plan) > 1 {
			subnets = ic.PrivateSubnetIDs[i : i+1]
		}
		t := p.routeTable(r, "routes-private-"+z.Key, ic.NetworkID, ids[i], subnets)
		tables = append(tables, t)
		parts = append(parts, func(ctx context.Context) error {
			_, err := r.Ensure(ctx, t)
			return err
		})
	}
	return tables, pipeline.All(ctx, parts...)
}

// learnAll records what a step made, each in its place; a verify keeps what was
// recorded unless nothing is.
func learnAll(r *pipeline.Run, field *[]string, values []string) {
	if r.Mode != pipeline.Verify || len(*field) != len(values) {
		*field = values
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
			return unseen(plain(err), "elastic IP "+id)
		}
		ips[i] = aws.ToString(a.PublicIp)
	}
	r.Job.Config.InfraConfig.EgressIPs = ips
	return nil
}

// unseen turns a not-found for something that was made just now into a wait.
func unseen(err error, what string) error {
	if pipeline.Is(err, pipeline.NotFound) {
		return pipeline.Wait(2*time.Second, "%s to become visible", what)
	}
	return err
}

// confirmWaits is how long a change may take to show before it is made again:
// IAM needs several seconds ("Changes that I make are not always immediately
// visible"), and now and then a change is acknowledged and lost (failure J11).
var confirmWaits = []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 8 * time.Second}

// confirm reads objects back after they were set, and is done when the cloud
// shows every aspect as it was set. What does not show after a while is set
// again; what never shows is fatal.
func confirm(ctx context.Context, r *pipeline.Run, xs ...pipeline.Resource) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	for _, x := range xs {
		rec, ok := r.Object(x.Kind, x.Key)
		if !ok || rec.State != job.ObjectCreated {
			continue
		}
		seen, err := x.Get(ctx, rec.ID)
		if pipeline.Is(err, pipeline.NotFound) {
			r.Unsettle() // the next pass finds out whether it was made at all
		}
		if err != nil {
			return unseen(err, x.String())
		}
		for _, a := range seen.Aspects {
			if a.Seen == a.Wanted {
				continue
			}
			return unconfirmed(ctx, r, x, a)
		}
	}
	return nil
}

func unconfirmed(ctx context.Context, r *pipeline.Run, x pipeline.Resource, a pipeline.Aspect) error {
	key := fmt.Sprintf("unconfirmed %s %s %s", x.Kind, x.Key, a.Name)
	n, _ := r.Recall(key).(int)
	r.Remember(key, n+1)
	round := len(confirmWaits) + 1 // the waits, then one more try
	switch {
	case n >= 3*round:
		return pipeline.Fatal("change-lost", fmt.Sprintf("%s: the cloud acknowledges the change and does not keep it: %s is %q and should be %q", x, a.Name, a.Seen, a.Wanted),
			"Look at it in the cloud's console, then retry.")
	case n%round == round-1 && a.Set != nil:
		if err := a.Set(ctx); err != nil {
			return err
		}
	}
	return pipeline.Wait(confirmWaits[min(n%round, len(confirmWaits)-1)], "%s: %s to show as %s", x, a.Name, a.Wanted)
}
