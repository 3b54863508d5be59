package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Scan lists everything in the project and region that carries a job's owner
// mark. It goes by the services' own lists, one kind at a time, and by nothing
// that the ledger says. Peerings, connections and DNS records carry no marks:
// they go with the network that they are in, or are found by their exact value.
func (p *Provider) Scan(ctx context.Context, owner string) ([]cloud.Leftover, error) {
	ctx = lookup.For(ctx, owner)
	s := &scan{owner: owner, log: func(kind string, err error) {
		p.log.WarnContext(ctx, "the cloud does not list this kind", "kind", kind, "error", err)
	}}
	err := pipeline.All(ctx,
		sweep(s, p.networks().lookup()),
		sweep(s, p.subnets().lookup()),
		sweep(s, p.routers().lookup()),
		sweep(s, p.firewalls().lookup()),
		sweep(s, p.addresses().lookup()),
		sweep(s, p.globalAddresses().lookup()),
		sweep(s, p.managedZones()),
		sweep(s, p.clusters()),
		sweep(s, p.keys()),
		sweep(s, p.adminSecrets()),
		sweep(s, p.ownInstances()),
		sweep(s, p.ownBackups()),
		sweep(s, p.ownCaches()),
		sweep(s, p.ownValkeys()),
		func(ctx context.Context) error {
			more, err := p.scanVM(ctx, owner)
			s.found(more...)
			return err
		},
	)
	slices.SortFunc(s.left, func(a, b cloud.Leftover) int { return strings.Compare(a.Kind+" "+a.ID, b.Kind+" "+b.ID) })
	return slices.Compact(s.left), err
}

// A scan is one look over all kinds.
type scan struct {
	owner string
	log   func(kind string, err error)

	mu   sync.Mutex
	left []cloud.Leftover
}

func (s *scan) found(all ...cloud.Leftover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, all...)
}

// sweep looks over a kind that can be listed by its mark. A kind that the
// endpoint does not have, or whose API is not enabled in the project, is passed
// over; any other error fails the scan: what could not be looked at is not
// proved gone.
func sweep[T any](s *scan, k lookup.Kind[T]) func(context.Context) error {
	return func(ctx context.Context) error {
		all, err := k.List(ctx, s.owner)
		if lacksCall(err) || switchedOff(err) {
			s.log(k.Name, err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("scan for %s: %w", k.Name, err)
		}
		for _, x := range all {
			id := k.ID(x)
			s.found(cloud.Leftover{Kind: k.Name, ID: id, Name: base(id)})
		}
		return nil
	}
}
