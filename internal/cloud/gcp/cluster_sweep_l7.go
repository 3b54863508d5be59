package gcp

import (
	"context"
	"maps"
	"regexp"
	"slices"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// newerName is what GKE calls what it makes for Ingresses, Gateways and the newer
// load balancers of Services: the second part is a hash of the cluster's UID
// ("GKE Ingress for Application Load Balancers: resource names").
var newerName = regexp.MustCompile(`^k8s[0-9]-(?:[a-z]{2,4}-)?([a-z0-9]{8})-`)

// newer removes what is named by a hash of the cluster's UID, which only the
// cluster itself could have told. Two things tell it still: firewall rules for the
// cluster's nodes, and groups of endpoints in a network of the job's own.
func (s remains) newer(ctx context.Context, rules []*compute.Firewall) error {
	groups, err := s.endpointGroups(ctx)
	if err != nil {
		return err
	}
	hashes := map[string]bool{}
	for _, f := range rules {
		if m := newerName.FindStringSubmatch(f.Name); m != nil {
			hashes[m[1]] = true
		}
	}
	for _, g := range groups {
		if m := newerName.FindStringSubmatch(g.Name); m != nil {
			hashes[m[1]] = true
		}
	}
	for _, hash := range slices.Sorted(maps.Keys(hashes)) {
		if err := s.named(ctx, hash); err != nil {
			return err
		}
	}
	var verdicts []error
	for _, g := range groups {
		id := rel(g.SelfLink)
		verdicts = append(verdicts, s.remove(ctx, "endpoint group", id, func(ctx context.Context) (*compute.Operation, error) {
			return send(ctx, s.p.compute.NetworkEndpointGroups.Delete(projectOf(id), zoneOf(id), g.Name))
		}))
	}
	return pipeline.Gravest(verdicts...)
}

// endpointGroups are the groups that controllers made in the job's own network: in
// one of somebody's they may be another cluster's.
func (s remains) endpointGroups(ctx context.Context) ([]*compute.NetworkEndpointGroup, error) {
	if s.r.Job.Mode != job.ModeCreate {
		return nil, nil
	}
	all, err := aggregated(ctx, func(ctx context.Context, token string) (map[string][]*compute.NetworkEndpointGroup, string, error) {
		out, err := send(ctx, s.p.compute.NetworkEndpointGroups.AggregatedList(s.p.project).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		found := map[string][]*compute.NetworkEndpointGroup{}
		for place, g := range out.Items {
			found[place] = g.NetworkEndpointGroups
		}
		return found, out.NextPageToken, nil
	})
	if pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) {
		return nil, nil // the endpoint does not have the kind
	}
	return slices.DeleteFunc(all, func(g *compute.NetworkEndpointGroup) bool {
		return rel(g.Network) != s.r.Job.Config.InfraConfig.NetworkID || newerName.FindString(g.Name) == ""
	}), err
}

// A sweptKind is one kind of what load balancers are made of.
type sweptKind struct {
	what   string
	ids    func(ctx context.Context) ([]string, error)
	remove func(ctx context.Context, id string) (*compute.Operation, error)
}

func sweptOf[T any](what string, k kind[T]) sweptKind {
	return sweptKind{what: what, remove: k.remove, ids: func(ctx context.Context) ([]string, error) {
		all, err := k.all(ctx, "")
		var ids []string
		for _, x := range all {
			ids = append(ids, rel(k.link(x)))
		}
		return ids, err
	}}
}

// named removes what bears the hash in its name, what leads to it first.
func (s remains) named(ctx context.Context, hash string) error {
	var kinds []sweptKind
	for _, of := range []func(region string) sweptKind{
		func(region string) sweptKind { return sweptOf("forwarding rule", s.p.forwardingRules(region)) },
		func(region string) sweptKind { return sweptOf("HTTP proxy", s.p.httpProxies(region)) },
		func(region string) sweptKind { return sweptOf("HTTPS proxy", s.p.httpsProxies(region)) },
		func(region string) sweptKind { return sweptOf("URL map", s.p.urlMaps(region)) },
		func(region string) sweptKind { return sweptOf("backend service", s.p.backendServices(region)) },
		func(region string) sweptKind { return sweptOf("health check", s.p.healthChecks(region)) },
	} {
		kinds = append(kinds, of(""), of(s.p.region))
	}
	for _, k := range kinds {
		ids, err := k.ids(ctx)
		if err != nil {
			return err
		}
		var verdicts []error
		for _, id := range ids {
			if m := newerName.FindStringSubmatch(base(id)); m == nil || m[1] != hash {
				continue
			}
			verdicts = append(verdicts, s.remove(ctx, k.what, id, func(ctx context.Context) (*compute.Operation, error) { return k.remove(ctx, id) }))
		}
		if err := pipeline.Gravest(verdicts...); err != nil {
			return err
		}
	}
	return nil
}
