package gcp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// How long a peering may wait for the owner of the other network, and how long to
// become active once both halves are there.
const (
	acceptance = 7 * 24 * time.Hour
	activation = 15 * time.Minute
)

func peeringID(network, name string) string { return rel(network) + "/peerings/" + name }

// A side is one of the two halves of a peering: each network names the other,
// and routes pass once both do ("VPC Network Peering").
type side struct {
	key, name string
	from, to  string // network IDs
}

// sides are the two halves of the job's i-th peering.
func (p *Provider) sides(r *pipeline.Run, i int, peer string) (ours, theirs side) {
	use := "peering-" + strconv.Itoa(i+1)
	network, other := r.Job.Config.InfraConfig.NetworkID, p.networkID(peer)
	ours = side{key: use, name: name(r, use), from: network, to: other}
	theirs = side{key: use + "-back", name: name(r, use+"-back"), from: other, to: network}
	return ours, theirs
}

// EnsurePeerings makes both halves of each peering, one after another: a network
// takes one change of its peerings at a time. Where the other half is not ours to
// make, the job waits, and says for whom and for what.
func (p *Provider) EnsurePeerings(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	var infos []job.PeeringInfo
	var waits []error
	for i, want := range spec.Peerings {
		info, err := p.ensurePeering(ctx, r, i, want.NetworkID)
		infos = append(infos, info)
		if err != nil && info.Waiting == "" {
			return err
		}
		waits = append(waits, err)
	}
	if r.Mode == pipeline.Apply {
		if err := p.recordPeerings(ctx, r, infos); err != nil {
			return err
		}
	}
	return pipeline.Gravest(waits...)
}

func (p *Provider) recordPeerings(ctx context.Context, r *pipeline.Run, infos []job.PeeringInfo) error {
	ic := &r.Job.Config.InfraConfig
	if slices.EqualFunc(ic.Peerings, infos, func(a, b job.PeeringInfo) bool {
		return a.ID == b.ID && a.State == b.State && a.Waiting == b.Waiting && slices.Equal(a.CIDRs, b.CIDRs)
	}) {
		return nil
	}
	ic.Peerings = infos
	return r.Save(ctx)
}

// ensurePeering makes one peering. A wait for the other network's owner comes
// with an info that says so.
func (p *Provider) ensurePeering(ctx context.Context, r *pipeline.Run, i int, peer string) (job.PeeringInfo, error) {
	ours, theirs := p.sides(r, i, peer)
	info := job.PeeringInfo{NetworkID: ours.to, ID: peeringID(ours.from, ours.name), State: "INACTIVE"}
	if _, err := p.ensure(ctx, r, p.peeringHalf(r, ours)); err != nil {
		return info, err
	}
	err := p.ensureCounterpart(ctx, r, theirs)
	if pipeline.Is(err, pipeline.Denied) && projectOf(ours.to) != projectOf(ours.from) {
		info.Waiting = fmt.Sprintf("the owner of project %s has to add the other half: gcloud compute networks peerings create %s --network=%s --project=%s --peer-network=%s --peer-project=%s",
			projectOf(ours.to), theirs.name, base(ours.to), projectOf(ours.to), base(ours.from), projectOf(ours.from))
	} else if err != nil {
		return info, err
	}
	if r.Mode != pipeline.Apply {
		return info, nil
	}
	half, err := p.readHalf(ctx, ours)
	if err != nil {
		return info, err
	}
	if info.State = half.State; half.State == "ACTIVE" {
		info.Waiting = ""
		info.CIDRs, err = p.peerRanges(ctx, ours.to)
		return info, err
	}
	if info.Waiting == "" && r.WaitedFor("peering "+info.ID) > activation {
		return info, pipeline.Fatal("peering-inactive", fmt.Sprintf("peering %s stays inactive: %s", ours.name, half.StateDetails),
			"Look at both halves in the console, then retry.")
	}
	if info.Waiting == "" {
		return info, pipeline.Wait(5*time.Second, "peering %s to become active (%s)", ours.name, half.StateDetails)
	}
	if r.WaitedFor("acceptance of "+info.ID) > acceptance {
		return info, pipeline.Fatal("not-accepted", fmt.Sprintf("peering %s is still inactive: %s", ours.name, info.Waiting), "Have it done, then retry.")
	}
	return info, pipeline.Wait(30*time.Second, "peering %s: %s", ours.name, info.Waiting)
}

// peerRanges are the ranges that a peering leads to; none if they are not ours to
// read.
func (p *Provider) peerRanges(ctx context.Context, network string) ([]string, error) {
	all, err := p.subnetsOf(ctx, projectOf(network))
	if err != nil {
		return nil, pipeline.Unless(err, pipeline.Denied, pipeline.NotFound)
	}
	var out []string
	for _, s := range all {
		if rel(s.Network) == network {
			out = append(out, s.IpCidrRange)
		}
	}
	slices.Sort(out)
	return out, nil
}

// ensureCounterpart makes the other network's half, unless its owner has made
// one, under whatever name.
func (p *Provider) ensureCounterpart(ctx context.Context, r *pipeline.Run, s side) error {
	if r.Mode != pipeline.Plan && !made(r, kindPeering, s.key) {
		x, err := p.peeredNetwork(ctx, s.from)
		if err != nil {
			return err
		}
		for _, half := range x.Peerings {
			if rel(half.Network) == s.to && half.Name != s.name {
				return nil
			}
		}
	}
	_, err := p.ensure(ctx, r, p.peeringHalf(r, s))
	return err
}

// peeringHalf is one half as an object. It takes no mark: its name, which ends in
// the job's own hash, and the network it leads to say whose it is.
func (p *Provider) peeringHalf(r *pipeline.Run, s side) pipeline.Resource {
	id := peeringID(s.from, s.name)
	x := pipeline.Resource{Kind: kindPeering, Key: s.key, Name: s.name, Args: []string{s.from, s.to}, Slow: true}
	see := func(ctx context.Context) (pipeline.Seen, error) {
		half, err := p.readHalf(ctx, s)
		if err != nil {
			return pipeline.Seen{}, err
		}
		seen := pipeline.Seen{ID: id, Owner: r.Job.ID, Aspects: p.peeringAspects(r, s, half)}
		if rel(half.Network) != s.to {
			seen.Owner = "another peering of this name, with " + rel(half.Network)
		}
		return seen, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		seen, err := see(ctx)
		if err != nil {
			return nil, err
		}
		return []pipeline.Seen{seen}, nil
	}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		if u, ok := begun(r, id); ok && r.Mode == pipeline.Apply {
			done, err := p.outcome(ctx, r, id, u)
			if err != nil {
				return pipeline.Seen{}, err
			}
			if !done {
				return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Pending, Reason: u.verb + " under way"}, nil
			}
		}
		return see(ctx)
	}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		op, err := send(ctx, p.compute.Networks.AddPeering(projectOf(s.from), base(s.from), &compute.NetworksAddPeeringRequest{
			NetworkPeering: peeringConfig(s),
		}).RequestId(requestID(token)))
		if err != nil {
			return pipeline.Seen{}, err
		}
		p.await(r, id, op)
		return pipeline.Seen{ID: id, Status: pipeline.Pending}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		if err := p.pending(ctx, r, id); err != nil {
			return err
		}
		op, err := send(ctx, p.compute.Networks.RemovePeering(projectOf(s.from), base(s.from), &compute.NetworksRemovePeeringRequest{Name: s.name}))
		if err != nil {
			return err
		}
		p.await(r, id, op)
		return nil
	}
	return x
}

// peeringConfig exchanges the subnets' private routes and nothing else.
func peeringConfig(s side) *compute.NetworkPeering {
	return &compute.NetworkPeering{
		Name: s.name, Network: s.to, ExchangeSubnetRoutes: true, StackType: "IPV4_ONLY",
		ForceSendFields: []string{"ExportCustomRoutes", "ImportCustomRoutes", "ExportSubnetRoutesWithPublicIp", "ImportSubnetRoutesWithPublicIp"},
	}
}

func (p *Provider) peeringAspects(r *pipeline.Run, s side, half *compute.NetworkPeering) []pipeline.Aspect {
	set := p.set(r, peeringID(s.from, s.name), func(ctx context.Context) (*compute.Operation, error) {
		return send(ctx, p.compute.Networks.UpdatePeering(projectOf(s.from), base(s.from), &compute.NetworksUpdatePeeringRequest{NetworkPeering: peeringConfig(s)}))
	})
	return []pipeline.Aspect{
		{Name: "custom routes", Wanted: "not exchanged", Seen: exchanged(half.ExportCustomRoutes, half.ImportCustomRoutes), Set: set},
		{Name: "routes with public addresses", Wanted: "not exchanged", Seen: exchanged(half.ExportSubnetRoutesWithPublicIp, half.ImportSubnetRoutesWithPublicIp), Set: set},
	}
}

func exchanged(exported, imported bool) string {
	switch {
	case exported && imported:
		return "exchanged"
	case exported:
		return "exported"
	case imported:
		return "imported"
	}
	return "not exchanged"
}

// readHalf is a half as its network has it.
func (p *Provider) readHalf(ctx context.Context, s side) (*compute.NetworkPeering, error) {
	x, err := p.peeredNetwork(ctx, s.from)
	if err != nil {
		return nil, err
	}
	for _, half := range x.Peerings {
		if half.Name == s.name {
			return half, nil
		}
	}
	return nil, absent(serviceCompute, "networks.get", "peering "+s.name+" of "+s.from)
}

// peeredNetwork is a network with its peerings, read once a pass.
func (p *Provider) peeredNetwork(ctx context.Context, id string) (*compute.Network, error) {
	return lookup.Once(ctx, "network "+id, func(ctx context.Context) (*compute.Network, error) { return p.networks().get(ctx, id) })
}

// RemovePeerings removes the halves that the job made: the other network's first,
// while the credentials still reach it.
func (p *Provider) RemovePeerings(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = view(ctx, r)
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	if r.Job.Config.InfraConfig.NetworkID == "" {
		return nil // nothing was made to peer from
	}
	for i, want := range spec.Peerings {
		ours, theirs := p.sides(r, i, want.NetworkID)
		err := r.Remove(ctx, p.peeringHalf(r, theirs))
		if !made(r, kindPeering, theirs.key) {
			err = pipeline.Unless(err, pipeline.Denied, pipeline.NotFound) // never ours: its owner has to look after it
		}
		if err != nil {
			return err
		}
		if err := r.Remove(ctx, p.peeringHalf(r, ours)); err != nil {
			return err
		}
	}
	return nil
}
