package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Scan lists everything in the project and region that carries a job's owner
// mark. It goes by the services' own lists, one kind at a time, and by nothing
// that the ledger says. Peerings, connections and DNS records carry no marks:
// they go with the network that they are in, or are found by their exact value.
func (p *Provider) Scan(ctx context.Context, owner string) ([]cloud.Leftover, []job.Unlisted, error) {
	ctx = lookup.For(ctx, owner)
	s := &scan{owner: owner, log: func(kind string, err error) {
		p.log.WarnContext(ctx, "the cloud does not list this kind", "kind", kind, "error", err)
	}}
	err := pipeline.All(ctx, append(p.vmKinds(s),
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
	)...)
	slices.SortFunc(s.left, func(a, b cloud.Leftover) int { return strings.Compare(a.Kind+" "+a.ID, b.Kind+" "+b.ID) })
	return slices.Compact(s.left), job.SortUnlisted(s.unlisted), err
}

// A scan is one look over all kinds.
type scan struct {
	owner string
	log   func(kind string, err error)

	mu       sync.Mutex
	left     []cloud.Leftover
	unlisted []job.Unlisted
}

func (s *scan) found(all ...cloud.Leftover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, all...)
}

// denied notes a kind that the credentials may not list.
func (s *scan) denied(kind string, ce *pipeline.CloudError) {
	permission := permissionIn(ce.Message)
	if permission == "" {
		permission = strings.Join(neededFor(ce.Service, ce.Op), " and ")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlisted = append(s.unlisted, job.Unlisted{Kind: kind, Permission: permission, Why: ce.Error()})
}

// sweep looks over a kind that can be listed by its mark. A kind that the
// endpoint does not have, or whose API is not enabled in the project, is passed
// over, and one that the credentials may not list is told as such; any other
// error fails the scan: what could not be looked at is not proved gone.
func sweep[T any](s *scan, k lookup.Kind[T]) func(context.Context) error {
	return func(ctx context.Context) error {
		all, err := k.List(ctx, s.owner)
		if lacksCall(err) || switchedOff(err) {
			s.log(k.Name, err)
			return nil
		}
		var ce *pipeline.CloudError
		if pipeline.Is(err, pipeline.Denied) && errors.As(err, &ce) {
			s.denied(k.Name, ce)
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
