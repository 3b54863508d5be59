package gcp

import (
	"context"

	"google.golang.org/api/compute/v1"
)

// The kinds of object that a load balancer is made of. Each exists once for global
// load balancers and once for those of a region; region "" is the global one.
const (
	kindHealthCheck    = "compute:health-check"
	kindBackendService = "compute:backend-service"
	kindURLMap         = "compute:url-map"
	kindHTTPProxy      = "compute:target-http-proxy"
	kindHTTPSProxy     = "compute:target-https-proxy"
	kindTCPProxy       = "compute:target-tcp-proxy"
	kindSSLProxy       = "compute:target-ssl-proxy"
	kindSSLPolicy      = "compute:ssl-policy"
	kindForwardingRule = "compute:forwarding-rule"
)

// described is a kind whose objects carry the marks in their description.
func described[T any](name string, of func(T) (link, description string)) kind[T] {
	return kind[T]{
		name: name,
		link: func(x T) string { link, _ := of(x); return link },
		mark: func(x T) (owner, object string) {
			_, description := of(x)
			return textMark(description)
		},
		by: byText,
	}
}

// healthChecks are how backends are asked whether they are well.
func (p *Provider) healthChecks(region string) kind[*compute.HealthCheck] {
	k := described(kindHealthCheck, func(x *compute.HealthCheck) (link, description string) { return x.SelfLink, x.Description })
	if region == "" {
		api := p.compute.HealthChecks
		k.list = func(ctx context.Context, filter, token string) ([]*compute.HealthCheck, string, error) {
			out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		}
		k.get = func(ctx context.Context, id string) (*compute.HealthCheck, error) {
			return send(ctx, api.Get(projectOf(id), base(id)))
		}
		k.insert = func(ctx context.Context, request string, x *compute.HealthCheck) (*compute.Operation, error) {
			return send(ctx, api.Insert(p.project, x).RequestId(request))
		}
		k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, api.Delete(projectOf(id), base(id)))
		}
		return k
	}
	api := p.compute.RegionHealthChecks
	k.list = func(ctx context.Context, filter, token string) ([]*compute.HealthCheck, string, error) {
		out, err := send(ctx, api.List(p.project, region).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.HealthCheck, error) {
		return send(ctx, api.Get(projectOf(id), regionOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.HealthCheck) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, region, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), regionOf(id), base(id)))
	}
	return k
}

// backendServices are the groups of VMs that traffic goes to, and how.
func (p *Provider) backendServices(region string) kind[*compute.BackendService] {
	k := described(kindBackendService, func(x *compute.BackendService) (link, description string) { return x.SelfLink, x.Description })
	if region == "" {
		api := p.compute.BackendServices
		k.list = func(ctx context.Context, filter, token string) ([]*compute.BackendService, string, error) {
			out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		}
		k.get = func(ctx context.Context, id string) (*compute.BackendService, error) {
			return send(ctx, api.Get(projectOf(id), base(id)))
		}
		k.insert = func(ctx context.Context, request string, x *compute.BackendService) (*compute.Operation, error) {
			return send(ctx, api.Insert(p.project, x).RequestId(request))
		}
		k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, api.Delete(projectOf(id), base(id)))
		}
		return k
	}
	api := p.compute.RegionBackendServices
	k.list = func(ctx context.Context, filter, token string) ([]*compute.BackendService, string, error) {
		out, err := send(ctx, api.List(p.project, region).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.BackendService, error) {
		return send(ctx, api.Get(projectOf(id), regionOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.BackendService) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, region, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), regionOf(id), base(id)))
	}
	return k
}

// urlMaps say which backend service a request goes to.
func (p *Provider) urlMaps(region string) kind[*compute.UrlMap] {
	k := described(kindURLMap, func(x *compute.UrlMap) (link, description string) { return x.SelfLink, x.Description })
	if region == "" {
		api := p.compute.UrlMaps
		k.list = func(ctx context.Context, filter, token string) ([]*compute.UrlMap, string, error) {
			out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		}
		k.get = func(ctx context.Context, id string) (*compute.UrlMap, error) {
			return send(ctx, api.Get(projectOf(id), base(id)))
		}
		k.insert = func(ctx context.Context, request string, x *compute.UrlMap) (*compute.Operation, error) {
			return send(ctx, api.Insert(p.project, x).RequestId(request))
		}
		k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, api.Delete(projectOf(id), base(id)))
		}
		return k
	}
	api := p.compute.RegionUrlMaps
	k.list = func(ctx context.Context, filter, token string) ([]*compute.UrlMap, string, error) {
		out, err := send(ctx, api.List(p.project, region).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.UrlMap, error) {
		return send(ctx, api.Get(projectOf(id), regionOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.UrlMap) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, region, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), regionOf(id), base(id)))
	}
	return k
}
