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

// RemoveNetwork removes what the job made: the whole network, or its own parts of
// a network that it was told to build in. Nothing else is touched.
func (p *Provider) RemoveNetwork(ctx context.Context, r *pipeline.Run) error {
	extends := r.Job.Mode == job.ModeCreateInExisting && r.Job.ResourceType == job.Network
	if r.Mode == pipeline.Plan || r.Job.Mode != job.ModeCreate && !extends {
		return nil
	}
	ctx = view(ctx, r)
	spec, plan, err := p.planned(r)
	if err != nil {
		return err
	}
	network := p.network(r)
	id := r.Job.Config.InfraConfig.NetworkID
	if rec, ok := r.Object(network.Kind, network.Key); ok && rec.ID != "" && !extends {
		id = rec.ID
	}
	remove := func(x pipeline.Resource) func(context.Context) error {
		return func(ctx context.Context) error { return r.Remove(ctx, x) }
	}
	// The router holds its NAT's address and names the subnets; the services'
	// connection holds its range and the network; and the network goes last.
	first := []func(context.Context) error{remove(p.router(r, "", "", nil))}
	if !managedFamily(r.Job) && plan.PrivateServices != "" || made(r, kindConnection, keyConnection) || made(r, kindGlobalAddress, keyServicesRange) {
		first = append(first, func(ctx context.Context) error { return p.removePrivateServices(ctx, r, id) })
	}
	var second []func(context.Context) error
	for _, key := range subnetKeys(r, plan) {
		second = append(second, remove(p.subnet(r, subnetSpec{key: key})))
	}
	if spec.NAT != job.NATNone || made(r, kindAddress, "nat-address") {
		second = append(second, remove(p.address(r, "nat-address")))
	}
	stages := [][]func(context.Context) error{first, second}
	if !extends {
		stages[0] = append(stages[0], remove(p.firewall(r, firewallSpec{key: denyIngress("").key, deny: true})))
		stages = append(stages, []func(context.Context) error{remove(network)})
	}
	for _, stage := range stages {
		if err := pipeline.All(ctx, stage...); err != nil {
			return err
		}
	}
	return nil
}

// subnetKeys are the subnets of the plan, and those of which the ledger knows
// from before the request was changed.
func subnetKeys(r *pipeline.Run, plan *job.NetworkPlan) []string {
	var keys []string
	for _, s := range plan.Subnets {
		keys = append(keys, s.Key)
	}
	for _, tier := range []string{job.TierPublic, job.TierPrivate, job.TierDatabase} {
		if !slices.Contains(keys, tier) && made(r, kindSubnet, tier) {
			keys = append(keys, tier)
		}
	}
	return keys
}

// lingering is how long something that Google put into a network may take to go
// by itself before it is named as a blocker: addresses of serverless products
// stay for hours after their last user ("Direct VPC egress": subnets cannot be
// deleted at once).
const lingering = 2 * time.Hour

// subnetBlockers names what has an address in a subnet: machines, load balancers
// and reserved addresses. What goes by itself is waited for.
func (p *Provider) subnetBlockers(ctx context.Context, r *pipeline.Run, id string) (string, error) {
	var names []string
	machines, err := p.instancesIn(ctx, func(n *compute.NetworkInterface) bool { return rel(n.Subnetwork) == id })
	if err != nil {
		return "", err
	}
	names = append(names, machines...)
	rules, err := p.forwardingRulesIn(ctx, func(x *compute.ForwardingRule) bool { return rel(x.Subnetwork) == id })
	if err != nil {
		return "", err
	}
	names = append(names, rules...)
	all, err := aggregated(ctx, func(ctx context.Context, token string) (map[string][]*compute.Address, string, error) {
		out, err := send(ctx, p.compute.Addresses.AggregatedList(p.project).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		found := map[string][]*compute.Address{}
		for place, s := range out.Items {
			found[place] = s.Addresses
		}
		return found, out.NextPageToken, nil
	})
	if err != nil {
		return "", err
	}
	for _, a := range all {
		switch {
		case rel(a.Subnetwork) != id:
		case a.Purpose == "SERVERLESS" && r.WaitedFor("lingering "+a.SelfLink) < lingering:
			return "", pipeline.Wait(30*time.Second, "address %s of a serverless product to be given back", a.Name)
		default:
			names = append(names, "address "+rel(a.SelfLink))
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return "the subnet holds " + strings.Join(names, ", ") + ", which this job did not make; remove it, then retry", nil
}

// networkBlockers names what is left in the job's network that is not the job's.
func (p *Provider) networkBlockers(ctx context.Context, r *pipeline.Run, id string) (string, error) {
	var names []string
	looks := []func(context.Context, *pipeline.Run, string) ([]string, error){p.firewallsIn, p.subnetsIn, p.routersIn, p.routesIn, p.peeringsOf}
	for _, look := range looks {
		found, err := look(ctx, r, id)
		if err != nil {
			return "", err
		}
		names = append(names, found...)
	}
	machines, err := p.instancesIn(ctx, func(n *compute.NetworkInterface) bool { return rel(n.Network) == id })
	if err != nil {
		return "", err
	}
	if names = append(names, machines...); len(names) == 0 {
		return "", nil
	}
	return "the network holds " + strings.Join(names, ", ") + ", which this job did not make; remove it, then retry", nil
}

func (p *Provider) firewallsIn(ctx context.Context, r *pipeline.Run, network string) ([]string, error) {
	all, err := p.firewalls().all(ctx, "")
	var names []string
	for _, x := range all {
		if owner, _ := textMark(x.Description); rel(x.Network) == network && owner != r.Job.ID {
			names = append(names, fmt.Sprintf("firewall rule %s%s", x.Name, about(x.Description)))
		}
	}
	return names, err
}

// subnetsIn are the network's subnets in every region.
func (p *Provider) subnetsIn(ctx context.Context, r *pipeline.Run, network string) ([]string, error) {
	all, err := p.allSubnets(ctx)
	var names []string
	for _, x := range all {
		if owner, _ := textMark(x.Description); rel(x.Network) == network && owner != r.Job.ID {
			names = append(names, fmt.Sprintf("subnet %s (%s)", rel(x.SelfLink), x.IpCidrRange))
		}
	}
	return names, err
}

func (p *Provider) routersIn(ctx context.Context, r *pipeline.Run, network string) ([]string, error) {
	all, err := p.allRouters(ctx)
	var names []string
	for _, x := range all {
		if owner, _ := textMark(x.Description); rel(x.Network) == network && owner != r.Job.ID {
			names = append(names, "router "+rel(x.SelfLink))
		}
	}
	return names, err
}

// routesIn are the routes that somebody added: those of subnets, of peers and to
// the internet come and go with what they belong to.
func (p *Provider) routesIn(ctx context.Context, _ *pipeline.Run, network string) ([]string, error) {
	all, err := p.routes(ctx)
	var names []string
	for _, x := range all {
		byItself := x.NextHopNetwork != "" || x.NextHopPeering != "" || base(x.NextHopGateway) == "default-internet-gateway" && strings.HasPrefix(x.Name, "default-route-")
		if rel(x.Network) == network && !byItself {
			names = append(names, fmt.Sprintf("route %s (%s)", x.Name, x.DestRange))
		}
	}
	return names, err
}

func (p *Provider) peeringsOf(ctx context.Context, _ *pipeline.Run, network string) ([]string, error) {
	x, err := p.networks().get(ctx, network)
	if err != nil {
		return nil, pipeline.Unless(err, pipeline.NotFound)
	}
	var names []string
	for _, peering := range x.Peerings {
		names = append(names, fmt.Sprintf("peering %s with %s", peering.Name, rel(peering.Network)))
	}
	return names, nil
}

// instancesIn are the machines with an interface that fits.
func (p *Provider) instancesIn(ctx context.Context, fits func(*compute.NetworkInterface) bool) ([]string, error) {
	all, err := aggregated(ctx, func(ctx context.Context, token string) (map[string][]*compute.Instance, string, error) {
		out, err := send(ctx, p.compute.Instances.AggregatedList(p.project).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		found := map[string][]*compute.Instance{}
		for place, s := range out.Items {
			found[place] = s.Instances
		}
		return found, out.NextPageToken, nil
	})
	var names []string
	for _, x := range all {
		if slices.ContainsFunc(x.NetworkInterfaces, fits) {
			names = append(names, "instance "+rel(x.SelfLink))
		}
	}
	return names, err
}

// about is what a person wrote on something, in brackets.
func about(description string) string {
	if description == "" {
		return ""
	}
	return fmt.Sprintf(" (%.80s)", description)
}
