package gcp

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// router is the job's Cloud Router, which carries its Cloud NAT: one for the
// region, with an address of its own, for the job's own subnets and no others.
func (p *Provider) router(r *pipeline.Run, network, address string, subnets []string) pipeline.Resource {
	const key = "router"
	id := p.regional("routers", name(r, key))
	want := &compute.Router{
		Name: base(id), Description: r.Job.MarkText(key), Network: network,
		Nats: []*compute.RouterNat{natConfig(name(r, "nat"), address, subnets)},
	}
	return object[*compute.Router]{
		kind: p.routers(), key: key, id: id, want: want,
		see: func(_ context.Context, x *compute.Router) (pipeline.Seen, error) {
			if network == "" { // a removal knows only the object's name
				return pipeline.Seen{}, nil
			}
			aspects := []pipeline.Aspect{{Name: "network", Wanted: rel(network), Seen: rel(x.Network)}}
			set := p.set(r, id, func(ctx context.Context) (*compute.Operation, error) { return p.setNAT(ctx, x, want.Nats[0]) })
			return pipeline.Seen{Aspects: append(aspects, natAspects(want.Nats[0], x.Nats, set)...)}, nil
		},
	}.resource(p, r)
}

// natConfig leaves the number of ports a machine gets at the default of 64, and
// logs what could not be translated ("Cloud NAT logging").
func natConfig(name, address string, subnets []string) *compute.RouterNat {
	nat := &compute.RouterNat{
		Name: name, Type: "PUBLIC", NatIpAllocateOption: "MANUAL_ONLY", NatIps: []string{address},
		SourceSubnetworkIpRangesToNat: "LIST_OF_SUBNETWORKS",
		LogConfig:                     &compute.RouterNatLogConfig{Enable: true, Filter: "ERRORS_ONLY"},
		MinPortsPerVm:                 64,
	}
	for _, s := range subnets {
		nat.Subnetworks = append(nat.Subnetworks, &compute.RouterNatSubnetworkToNat{Name: s, SourceIpRangesToNat: []string{"ALL_IP_RANGES"}})
	}
	return nat
}

func natAspects(want *compute.RouterNat, all []*compute.RouterNat, set func(context.Context) error) []pipeline.Aspect {
	seen := &compute.RouterNat{}
	for _, n := range all {
		if n.Name == want.Name {
			seen = n
		}
	}
	// One change of the router sets them all.
	var once sync.Once
	shared := func(ctx context.Context) (err error) {
		once.Do(func() { err = set(ctx) })
		return err
	}
	compare := func(what string, of func(*compute.RouterNat) string) pipeline.Aspect {
		return pipeline.Aspect{Name: what, Wanted: of(want), Seen: of(seen), Set: shared}
	}
	return []pipeline.Aspect{
		compare("NAT", func(n *compute.RouterNat) string { return n.Name }),
		compare("NAT addresses", func(n *compute.RouterNat) string { return n.NatIpAllocateOption + " " + relText(n.NatIps) }),
		compare("NAT subnets", natSubnets),
		compare("NAT log", natLog),
		compare("NAT ports per VM", func(n *compute.RouterNat) string { return strconv.FormatInt(n.MinPortsPerVm, 10) }),
	}
}

func natSubnets(n *compute.RouterNat) string {
	var words []string
	for _, s := range n.Subnetworks {
		words = append(words, rel(s.Name)+" "+strings.Join(s.SourceIpRangesToNat, "+"))
	}
	slices.Sort(words)
	return n.SourceSubnetworkIpRangesToNat + " " + strings.Join(words, ", ")
}

func natLog(n *compute.RouterNat) string {
	if n.LogConfig == nil || !n.LogConfig.Enable {
		return "off"
	}
	return n.LogConfig.Filter
}

func relText(links []string) string {
	var words []string
	for _, l := range links {
		words = append(words, rel(l))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// setNAT puts the job's NAT right and leaves others that somebody added alone:
// a patch replaces the whole list.
func (p *Provider) setNAT(ctx context.Context, x *compute.Router, want *compute.RouterNat) (*compute.Operation, error) {
	nats := slices.DeleteFunc(slices.Clone(x.Nats), func(n *compute.RouterNat) bool { return n.Name == want.Name })
	return send(ctx, p.compute.Routers.Patch(p.project, p.region, x.Name, &compute.Router{Nats: append(nats, want)}))
}
