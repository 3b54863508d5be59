package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// existingNetwork is what the cloud says of a network that a job names. It is
// only ever read.
type existingNetwork struct {
	network *compute.Network
	subnets []*compute.Subnetwork // in every region
	routers []*compute.Router     // in the job's region
}

// networkID is the ID of a network that is named by its name, its path or its URL.
func (p *Provider) networkID(named string) string {
	if strings.Contains(named, "/") {
		return rel(named)
	}
	return p.global("networks", named)
}

// subnetID is the ID of a subnet that is named by its name, its path or its URL,
// in the project of its network.
func (p *Provider) subnetID(network, named string) string {
	if strings.Contains(named, "/") {
		return rel(named)
	}
	return "projects/" + projectOf(network) + "/regions/" + p.region + "/subnetworks/" + named
}

// existing reads a network, its subnets and its routers, once a pass.
func (p *Provider) existing(ctx context.Context, named string) (existingNetwork, error) {
	id := p.networkID(named)
	return lookup.Once(ctx, "existing "+id, func(ctx context.Context) (existingNetwork, error) {
		var net existingNetwork
		err := pipeline.All(ctx,
			func(ctx context.Context) (err error) { net.network, err = p.networks().get(ctx, id); return err },
			func(ctx context.Context) (err error) {
				all, err := p.subnetsOf(ctx, projectOf(id))
				for _, s := range all {
					if rel(s.Network) == id {
						net.subnets = append(net.subnets, s)
					}
				}
				return err
			},
			func(ctx context.Context) (err error) {
				all, err := p.routers().all(ctx, "")
				for _, x := range all {
					if rel(x.Network) == id {
						net.routers = append(net.routers, x)
					}
				}
				if projectOf(id) != p.project {
					return pipeline.Unless(err, pipeline.Denied) // of another project's network they are not ours to see
				}
				return err
			},
		)
		return net, err
	})
}

// named are the subnets that a job names, and what is wrong with the others.
func (n existingNetwork) named(p *Provider, names []string) (found []*compute.Subnetwork, faults []string) {
	network := rel(n.network.SelfLink)
	for _, s := range names {
		id := p.subnetID(network, s)
		i := slices.IndexFunc(n.subnets, func(x *compute.Subnetwork) bool { return rel(x.SelfLink) == id })
		switch {
		case i < 0:
			faults = append(faults, fmt.Sprintf("subnet %s is not in network %s", s, n.network.Name))
		case base(n.subnets[i].Region) != p.region:
			faults = append(faults, fmt.Sprintf("subnet %s is in %s, and the job is in %s", s, base(n.subnets[i].Region), p.region))
		case n.subnets[i].Purpose != "" && n.subnets[i].Purpose != purposeVMs:
			faults = append(faults, fmt.Sprintf("subnet %s is for %s, not for machines", s, n.subnets[i].Purpose))
		default:
			found = append(found, n.subnets[i])
		}
	}
	return found, faults
}

// nat is the Cloud NAT that serves a subnet; nil if none does.
func (n existingNetwork) nat(subnet string) *compute.RouterNat {
	for _, x := range n.routers {
		for _, nat := range x.Nats {
			listed := slices.ContainsFunc(nat.Subnetworks, func(s *compute.RouterNatSubnetworkToNat) bool { return rel(s.Name) == subnet })
			if nat.Type != "PRIVATE" && (listed || nat.SourceSubnetworkIpRangesToNat != "LIST_OF_SUBNETWORKS") {
				return nat
			}
		}
	}
	return nil
}

// ranges are the network's subnet ranges as one text: a VPC network has none of
// its own.
func ranges(subnets []*compute.Subnetwork) string {
	var out []string
	for _, s := range subnets {
		out = append(out, s.IpCidrRange)
	}
	return sorted(out)
}

// readNetwork records the network that a VM job names, and changes nothing.
func (p *Provider) readNetwork(ctx context.Context, r *pipeline.Run) error {
	ic := &r.Job.Config.InfraConfig
	named, err := r.Job.Existing()
	if err != nil {
		return err
	}
	id := p.networkID(named.NetworkID)
	names := named.SubnetIDs
	if len(names) == 0 {
		names = slices.Clone(ic.PrivateSubnetIDs) // those that stepValidate found
	}
	if r.Mode == pipeline.Plan {
		ic.NetworkID = id
		for _, s := range named.SubnetIDs {
			if len(ic.PrivateSubnetIDs) < len(named.SubnetIDs) {
				ic.PrivateSubnetIDs = append(ic.PrivateSubnetIDs, p.subnetID(id, s))
			}
		}
		return nil
	}
	net, err := p.existing(ctx, named.NetworkID)
	var subnets []*compute.Subnetwork
	var faults []string
	if err == nil {
		subnets, faults = net.named(p, names)
	}
	if pipeline.Is(err, pipeline.NotFound) {
		faults, err = []string{err.Error()}, nil
	}
	switch {
	case err != nil:
		return err
	case len(faults) > 0 && r.Mode == pipeline.Verify:
		r.AddDrift(pipeline.Drift{Kind: kindNetwork, Key: "existing", ID: id, Attr: "exists", Wanted: "yes", Seen: strings.Join(faults, "; ")})
		return nil
	case len(faults) > 0:
		return pipeline.Fatal("network-not-found", "what the job builds in is not as it says: "+strings.Join(faults, "; "),
			"Name a network and subnets that exist in "+p.region+", then retry.").On("config.spec.existing")
	case r.Mode == pipeline.Verify:
		return nil
	}
	ic.NetworkID, ic.NetworkName, ic.NetworkCIDR = id, net.network.Name, ranges(subnets)
	ic.PrivateSubnetIDs = nil
	for _, s := range subnets {
		ic.PrivateSubnetIDs = append(ic.PrivateSubnetIDs, rel(s.SelfLink))
	}
	if ic.EgressIPs, err = p.existingEgress(ctx, net, subnets); err != nil {
		return err
	}
	return r.Save(ctx)
}

// existingEgress are the addresses that machines of the subnets are seen with on
// the internet; a caller that may not read them goes on without.
func (p *Provider) existingEgress(ctx context.Context, net existingNetwork, subnets []*compute.Subnetwork) ([]string, error) {
	var out []string
	for _, x := range net.routers {
		serves := slices.ContainsFunc(subnets, func(s *compute.Subnetwork) bool {
			nat := net.nat(rel(s.SelfLink))
			return nat != nil && slices.Contains(x.Nats, nat)
		})
		if !serves {
			continue
		}
		id := rel(x.SelfLink)
		status, err := send(ctx, p.compute.Routers.GetRouterStatus(projectOf(id), regionOf(id), x.Name))
		if err != nil {
			return nil, pipeline.Unless(err, pipeline.Denied, pipeline.NotFound, pipeline.Invalid)
		}
		if status.Result == nil {
			continue
		}
		for _, nat := range status.Result.NatStatus {
			out = append(out, slices.Concat(nat.AutoAllocatedNatIps, nat.UserAllocatedNatIps)...)
		}
	}
	return out, nil
}

// extendNetwork makes a network job's own subnets, and their way out, in the
// network that it names. The network itself and what else is in it stay as they
// are: so no rule is made that would hold for others.
func (p *Provider) extendNetwork(ctx context.Context, r *pipeline.Run) error {
	ic := &r.Job.Config.InfraConfig
	named, err := r.Job.Existing()
	if err != nil {
		return err
	}
	spec, plan, err := p.planned(r)
	if err != nil {
		return err
	}
	id := p.networkID(named.NetworkID)
	if r.Mode != pipeline.Plan {
		x, err := p.networks().get(ctx, id)
		if pipeline.Is(err, pipeline.NotFound) {
			if r.Mode == pipeline.Verify {
				r.AddDrift(pipeline.Drift{Kind: kindNetwork, Key: "existing", ID: id, Attr: "exists", Wanted: "yes", Seen: "no"})
				return nil
			}
			return pipeline.Fatal("network-not-found", fmt.Sprintf("the network %s that the job names is not there", named.NetworkID),
				"Name a network that exists, then retry.").On("config.spec.existing.networkId").From(err)
		}
		if err != nil {
			return err
		}
		learn(r, &ic.NetworkName, x.Name)
	}
	learn(r, &ic.NetworkID, id)
	learn(r, &ic.NetworkCIDR, plan.CIDR)
	var address string
	if spec.NAT != job.NATNone {
		if address, err = p.ensure(ctx, r, p.address(r, "nat-address")); err != nil {
			return err
		}
	}
	if err := p.furnish(ctx, r, spec, plan, address); err != nil {
		return err
	}
	return r.Save(ctx)
}
