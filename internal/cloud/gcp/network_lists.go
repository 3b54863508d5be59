package gcp

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
)

// aggregated is every object of a kind in all places of the project, in the
// places' order.
func aggregated[T any](ctx context.Context, page func(ctx context.Context, token string) (byPlace map[string][]T, next string, err error)) ([]T, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]T, *string, error) {
		found, next, err := page(ctx, text(token))
		var out []T
		for _, place := range slices.Sorted(maps.Keys(found)) {
			out = append(out, found[place]...)
		}
		return out, &next, err
	})
}

// allSubnets are the project's subnets in every region.
func (p *Provider) allSubnets(ctx context.Context) ([]*compute.Subnetwork, error) {
	return p.subnetsOf(ctx, p.project)
}

// subnetsOf are a project's subnets in every region, read once a pass.
func (p *Provider) subnetsOf(ctx context.Context, project string) ([]*compute.Subnetwork, error) {
	return lookup.Once(ctx, "subnets of "+project, func(ctx context.Context) ([]*compute.Subnetwork, error) {
		return aggregated(ctx, func(ctx context.Context, token string) (map[string][]*compute.Subnetwork, string, error) {
			out, err := send(ctx, p.compute.Subnetworks.AggregatedList(project).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			found := map[string][]*compute.Subnetwork{}
			for place, s := range out.Items {
				found[place] = s.Subnetworks
			}
			return found, out.NextPageToken, nil
		})
	})
}

// allRouters are the project's routers in every region.
func (p *Provider) allRouters(ctx context.Context) ([]*compute.Router, error) {
	return aggregated(ctx, func(ctx context.Context, token string) (map[string][]*compute.Router, string, error) {
		out, err := send(ctx, p.compute.Routers.AggregatedList(p.project).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		found := map[string][]*compute.Router{}
		for place, s := range out.Items {
			found[place] = s.Routers
		}
		return found, out.NextPageToken, nil
	})
}

// routes are the project's routes, those that come by themselves too.
func (p *Provider) routes(ctx context.Context) ([]*compute.Route, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*compute.Route, *string, error) {
		out, err := send(ctx, p.compute.Routes.List(p.project).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.Items, &out.NextPageToken, nil
	})
}

// forwardingRulesIn are the load balancers' rules that fit, in every region.
func (p *Provider) forwardingRulesIn(ctx context.Context, fits func(*compute.ForwardingRule) bool) ([]string, error) {
	all, err := aggregated(ctx, func(ctx context.Context, token string) (map[string][]*compute.ForwardingRule, string, error) {
		out, err := send(ctx, p.compute.ForwardingRules.AggregatedList(p.project).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		found := map[string][]*compute.ForwardingRule{}
		for place, s := range out.Items {
			found[place] = s.ForwardingRules
		}
		return found, out.NextPageToken, nil
	})
	var names []string
	for _, x := range all {
		if fits(x) {
			names = append(names, "forwarding rule "+rel(x.SelfLink))
		}
	}
	return names, err
}
