package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A side is one of the two halves of a peering: an object of the VNet it starts
// from, that names the other one. Traffic passes once both are Connected
// ("Virtual network peering").
type side struct {
	key      string
	from, to string    // IDs of VNets
	by       *Provider // whose credentials make it
}

// sides are the two halves of the i-th peering, ours first.
func (p *Provider) sides(ctx context.Context, r *pipeline.Run, i int, peer job.Peering) ([2]side, error) {
	ours := r.Job.Config.InfraConfig.NetworkID
	if ours == "" {
		ours = p.vnetID(r)
	}
	other, err := p.holding(ctx, r.Job, peer)
	if err != nil {
		return [2]side{}, err
	}
	theirs := peer.NetworkID
	if r.Mode != pipeline.Plan || strings.HasPrefix(theirs, managementPrefix) {
		if theirs, err = other.vnetCalled(ctx, peer.NetworkID, peer.ResourceGroup); err != nil {
			return [2]side{}, err
		}
	}
	key := fmt.Sprintf("peer-%d", i+1)
	return [2]side{{key, ours, theirs, p}, {key + "-back", theirs, ours, other}}, nil
}

// holding is the account that holds a peer: another one of the job's organisation,
// if the peering names it.
func (p *Provider) holding(ctx context.Context, j *job.Job, peer job.Peering) (*Provider, error) {
	if peer.CloudAccountID == "" || peer.CloudAccountID == j.CloudAccountID {
		return p, nil
	}
	return p.clouds.provider(ctx, j.OrgID, peer.CloudAccountID, cmp.Or(peer.Region, p.region))
}

// EnsurePeerings makes both sides of every peering and waits until they are
// connected. The peer's side is made with the credentials of the account that the
// peering names, or with the job's own, in whichever subscription the peer's ID
// names; whoever makes a side needs the right to peer with the other one, too.
func (p *Provider) EnsurePeerings(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	var infos []job.PeeringInfo
	for i, peer := range spec.Peerings {
		info, err := p.ensurePeering(ctx, r, i, peer)
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	if r.Mode != pipeline.Verify {
		r.Job.Config.InfraConfig.Peerings = infos
	}
	return nil
}

func (p *Provider) ensurePeering(ctx context.Context, r *pipeline.Run, i int, peer job.Peering) (job.PeeringInfo, error) {
	halves, err := p.sides(ctx, r, i, peer)
	if err != nil {
		return job.PeeringInfo{}, p.missingPeer(r, err, i, peer)
	}
	info := job.PeeringInfo{NetworkID: halves[0].to}
	// A VNet takes one write at a time, and both sides write to both.
	for _, half := range halves {
		id, err := r.Ensure(ctx, half.by.peering(r, half).resource())
		if pipeline.Is(err, pipeline.NotFound) {
			return info, p.missingPeer(r, err, i, peer)
		}
		if err != nil {
			return info, err
		}
		if half == halves[0] {
			info.ID = id
		}
	}
	if r.Mode == pipeline.Plan {
		return info, nil
	}
	for _, half := range halves {
		state, ranges, err := p.peeringState(ctx, r, half)
		if err != nil {
			return info, err
		}
		if half == halves[0] {
			info.State, info.CIDRs = state, ranges
		}
		if state != string(armnetwork.VirtualNetworkPeeringStateConnected) && r.Mode == pipeline.Apply {
			return info, p.unconnected(r, half, state)
		}
	}
	return info, nil
}

// unconnected waits for a side to connect, for a while.
func (p *Provider) unconnected(r *pipeline.Run, half side, state string) error {
	r.Unsettle() // the next pass looks at both sides afresh
	if r.WaitedFor("peering "+half.key) > r.Consistency*10 {
		return pipeline.Fatal("peering-not-connected", fmt.Sprintf("the peering from %s to %s stays %s", lastName(half.from), lastName(half.to), state),
			"Look at both sides in the portal, then retry.")
	}
	return pipeline.Wait(settling, "the peering from %s to %s to be connected (%s)", lastName(half.from), lastName(half.to), state)
}

func (p *Provider) peeringState(ctx context.Context, r *pipeline.Run, half side) (state string, ranges []string, err error) {
	x, err := read[armnetwork.VirtualNetworkPeering](ctx, half.by, half.by.peering(r, half).id)
	if pipeline.Is(err, pipeline.NotFound) {
		return "not there", nil, nil
	}
	info := peeringInfo(x.is)
	return info.State, info.CIDRs, err
}

func (p *Provider) missingPeer(r *pipeline.Run, err error, i int, peer job.Peering) error {
	if !pipeline.Is(err, pipeline.NotFound) || r.Mode != pipeline.Apply {
		return err
	}
	return pipeline.Fatal("peer-not-found", fmt.Sprintf("the network %s to peer with is not there, or these credentials do not see it: %v", peer.NetworkID, err),
		"Name a network that exists, by its resource ID if it is in another subscription, then retry.").On(fmt.Sprintf("config.spec.peerings[%d].networkId", i)).From(err)
}

// peering is one side.
func (p *Provider) peering(r *pipeline.Run, half side) object[armnetwork.VirtualNetworkPeering] {
	wanted := "off"
	return object[armnetwork.VirtualNetworkPeering]{
		p: p, r: r, kind: kindPeering, key: half.key, id: half.from + "/virtualNetworkPeerings/" + r.Job.ResourceName(half.key, longestName),
		body: func() any {
			return armnetwork.VirtualNetworkPeering{Properties: &armnetwork.VirtualNetworkPeeringPropertiesFormat{
				RemoteVirtualNetwork: &armnetwork.SubResource{ID: &half.to}, AllowVirtualNetworkAccess: new(true),
				AllowForwardedTraffic: new(false), AllowGatewayTransit: new(false), UseRemoteGateways: new(false),
			}}
		},
		see: func(_ context.Context, x resource[armnetwork.VirtualNetworkPeering]) ([]pipeline.Aspect, error) {
			f := value(x.is.Properties)
			fix := func(ctx context.Context) error {
				fixed := x.is
				fixed.Properties.AllowVirtualNetworkAccess = new(true)
				fixed.Properties.AllowForwardedTraffic, fixed.Properties.AllowGatewayTransit, fixed.Properties.UseRemoteGateways = new(false), new(false), new(false)
				return p.update(ctx, r, x.meta, fixed)
			}
			aspects := []pipeline.Aspect{
				{Name: "access", Wanted: "on", Seen: onOff(value(f.AllowVirtualNetworkAccess)), Set: fix},
				{Name: "forwarded traffic", Wanted: wanted, Seen: onOff(value(f.AllowForwardedTraffic)), Set: fix},
				{Name: "gateway transit", Wanted: wanted, Seen: onOff(value(f.AllowGatewayTransit)), Set: fix},
				{Name: "remote gateways", Wanted: wanted, Seen: onOff(value(f.UseRemoteGateways)), Set: fix},
			}
			return append(aspects, watched(r, pipeline.Aspect{Name: "state", Wanted: "Connected", Seen: string(value(f.PeeringState))})...), nil
		},
		// A peering has no tags: it is the job's if it has the exact name and leads
		// to the network that it should lead to.
		owner: func(_ context.Context, x resource[armnetwork.VirtualNetworkPeering]) (string, error) {
			f := value(x.is.Properties)
			switch remote := value(value(f.RemoteVirtualNetwork).ID); {
			case half.to == "": // the peer is gone, and the name is all that there is to go by
				return "", nil
			case same(remote, half.to):
				return r.Job.ID, nil
			default:
				return "another peering of this name, with " + remote, nil
			}
		},
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// RemovePeerings takes both sides of every peering away. A peer that is gone has
// taken its side along.
func (p *Provider) RemovePeerings(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	for i, peer := range spec.Peerings {
		halves, err := p.sides(ctx, r, i, peer)
		// What a peer's name does not say, or says of several, the ledger knows: nothing
		// was made before the name was clear.
		if unclear := (*pipeline.FatalError)(nil); pipeline.Is(err, pipeline.NotFound) || errors.As(err, &unclear) {
			halves, err = p.recordedSides(r, i), nil
		}
		if err != nil {
			return err
		}
		for _, half := range halves {
			if half.from == "" {
				continue
			}
			err := r.Remove(ctx, half.by.peering(r, half).resource())
			if _, begun := r.Object(kindPeering, half.key); !begun && outOfReach(err) {
				r.Note("peering %s was never begun, and its network cannot be read: %v", half.key, err)
				err = nil
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// outOfReach is what the network of a peer is when its subscription is not there
// or not open to these credentials.
func outOfReach(err error) bool {
	var fatal *pipeline.FatalError
	return pipeline.Is(err, pipeline.Denied, pipeline.NotFound) || errors.As(err, &fatal) && fatal.Problem.Code == codeNoSubscription
}

// recordedSides are the sides of a peering whose peer is not to be found by its
// name, as the ledger has them.
func (p *Provider) recordedSides(r *pipeline.Run, i int) [2]side {
	var halves [2]side
	for n, key := range []string{fmt.Sprintf("peer-%d", i+1), fmt.Sprintf("peer-%d-back", i+1)} {
		if rec, ok := r.Object(kindPeering, key); ok && rec.ID != "" {
			halves[n] = side{key: key, from: parentOf(rec.ID), by: p}
		}
	}
	return halves
}
