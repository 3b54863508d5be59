package gcp

import (
	"context"

	"google.golang.org/api/compute/v1"
)

// httpProxies end HTTP connections.
func (p *Provider) httpProxies(region string) kind[*compute.TargetHttpProxy] {
	k := described(kindHTTPProxy, func(x *compute.TargetHttpProxy) (link, description string) { return x.SelfLink, x.Description })
	if region == "" {
		api := p.compute.TargetHttpProxies
		k.list = func(ctx context.Context, filter, token string) ([]*compute.TargetHttpProxy, string, error) {
			out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		}
		k.get = func(ctx context.Context, id string) (*compute.TargetHttpProxy, error) {
			return send(ctx, api.Get(projectOf(id), base(id)))
		}
		k.insert = func(ctx context.Context, request string, x *compute.TargetHttpProxy) (*compute.Operation, error) {
			return send(ctx, api.Insert(p.project, x).RequestId(request))
		}
		k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, api.Delete(projectOf(id), base(id)))
		}
		return k
	}
	api := p.compute.RegionTargetHttpProxies
	k.list = func(ctx context.Context, filter, token string) ([]*compute.TargetHttpProxy, string, error) {
		out, err := send(ctx, api.List(p.project, region).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.TargetHttpProxy, error) {
		return send(ctx, api.Get(projectOf(id), regionOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.TargetHttpProxy) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, region, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), regionOf(id), base(id)))
	}
	return k
}

// httpsProxies end HTTPS connections.
func (p *Provider) httpsProxies(region string) kind[*compute.TargetHttpsProxy] {
	k := described(kindHTTPSProxy, func(x *compute.TargetHttpsProxy) (link, description string) { return x.SelfLink, x.Description })
	if region == "" {
		api := p.compute.TargetHttpsProxies
		k.list = func(ctx context.Context, filter, token string) ([]*compute.TargetHttpsProxy, string, error) {
			out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		}
		k.get = func(ctx context.Context, id string) (*compute.TargetHttpsProxy, error) {
			return send(ctx, api.Get(projectOf(id), base(id)))
		}
		k.insert = func(ctx context.Context, request string, x *compute.TargetHttpsProxy) (*compute.Operation, error) {
			return send(ctx, api.Insert(p.project, x).RequestId(request))
		}
		k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, api.Delete(projectOf(id), base(id)))
		}
		return k
	}
	api := p.compute.RegionTargetHttpsProxies
	k.list = func(ctx context.Context, filter, token string) ([]*compute.TargetHttpsProxy, string, error) {
		out, err := send(ctx, api.List(p.project, region).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.TargetHttpsProxy, error) {
		return send(ctx, api.Get(projectOf(id), regionOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.TargetHttpsProxy) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, region, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), regionOf(id), base(id)))
	}
	return k
}

// tcpProxies end TCP connections.
func (p *Provider) tcpProxies() kind[*compute.TargetTcpProxy] {
	k := described(kindTCPProxy, func(x *compute.TargetTcpProxy) (link, description string) { return x.SelfLink, x.Description })
	api := p.compute.TargetTcpProxies
	k.list = func(ctx context.Context, filter, token string) ([]*compute.TargetTcpProxy, string, error) {
		out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.TargetTcpProxy, error) {
		return send(ctx, api.Get(projectOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.TargetTcpProxy) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), base(id)))
	}
	return k
}

// sslProxies end TLS connections.
func (p *Provider) sslProxies() kind[*compute.TargetSslProxy] {
	k := described(kindSSLProxy, func(x *compute.TargetSslProxy) (link, description string) { return x.SelfLink, x.Description })
	api := p.compute.TargetSslProxies
	k.list = func(ctx context.Context, filter, token string) ([]*compute.TargetSslProxy, string, error) {
		out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.TargetSslProxy, error) {
		return send(ctx, api.Get(projectOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.TargetSslProxy) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), base(id)))
	}
	return k
}

// sslPolicies say which versions and ciphers of TLS are spoken.
func (p *Provider) sslPolicies(region string) kind[*compute.SslPolicy] {
	k := described(kindSSLPolicy, func(x *compute.SslPolicy) (link, description string) { return x.SelfLink, x.Description })
	if region == "" {
		api := p.compute.SslPolicies
		k.list = func(ctx context.Context, filter, token string) ([]*compute.SslPolicy, string, error) {
			out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		}
		k.get = func(ctx context.Context, id string) (*compute.SslPolicy, error) {
			return send(ctx, api.Get(projectOf(id), base(id)))
		}
		k.insert = func(ctx context.Context, request string, x *compute.SslPolicy) (*compute.Operation, error) {
			return send(ctx, api.Insert(p.project, x).RequestId(request))
		}
		k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, api.Delete(projectOf(id), base(id)))
		}
		return k
	}
	api := p.compute.RegionSslPolicies
	k.list = func(ctx context.Context, filter, token string) ([]*compute.SslPolicy, string, error) {
		out, err := send(ctx, api.List(p.project, region).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.SslPolicy, error) {
		return send(ctx, api.Get(projectOf(id), regionOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.SslPolicy) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, region, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), regionOf(id), base(id)))
	}
	return k
}

// forwardingRules bind an address and a port to a proxy, or to a backend service.
func (p *Provider) forwardingRules(region string) kind[*compute.ForwardingRule] {
	k := described(kindForwardingRule, func(x *compute.ForwardingRule) (link, description string) { return x.SelfLink, x.Description })
	if region == "" {
		api := p.compute.GlobalForwardingRules
		k.list = func(ctx context.Context, filter, token string) ([]*compute.ForwardingRule, string, error) {
			out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		}
		k.get = func(ctx context.Context, id string) (*compute.ForwardingRule, error) {
			return send(ctx, api.Get(projectOf(id), base(id)))
		}
		k.insert = func(ctx context.Context, request string, x *compute.ForwardingRule) (*compute.Operation, error) {
			return send(ctx, api.Insert(p.project, x).RequestId(request))
		}
		k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, api.Delete(projectOf(id), base(id)))
		}
		return k
	}
	api := p.compute.ForwardingRules
	k.list = func(ctx context.Context, filter, token string) ([]*compute.ForwardingRule, string, error) {
		out, err := send(ctx, api.List(p.project, region).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.ForwardingRule, error) {
		return send(ctx, api.Get(projectOf(id), regionOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.ForwardingRule) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, region, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), regionOf(id), base(id)))
	}
	return k
}
