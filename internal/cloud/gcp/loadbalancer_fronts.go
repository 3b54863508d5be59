package gcp

import (
	"context"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// proxyID is the ID of what a front's rule points to.
func (b balancer) proxyID(r *pipeline.Run, f front) string {
	collection := "targetHttpProxies"
	switch {
	case b.Type == job.LBTCP && f.tls:
		collection = "targetSslProxies"
	case b.Type == job.LBTCP:
		collection = "targetTcpProxies"
	case f.tls:
		collection = "targetHttpsProxies"
	}
	return b.id(collection, name(r, f.key))
}

// proxy is what ends the connections of one front; false where packets go
// through as they are.
func (p *Provider) proxy(r *pipeline.Run, b balancer, f front) (pipeline.Resource, bool) {
	id := b.proxyID(r, f)
	switch {
	case b.scheme == schemePassthrough:
		return pipeline.Resource{}, false
	case b.Type == job.LBTCP && f.tls:
		return p.sslProxy(r, b, f, id), true
	case b.Type == job.LBTCP:
		return p.tcpProxy(r, b, f, id), true
	case f.tls:
		return p.httpsProxy(r, b, f, id), true
	}
	return p.httpProxy(r, b, f, id), true
}

// aspect is one link of a proxy, compared and set.
func (p *Provider) link(r *pipeline.Run, id, about, want, have string, call func(context.Context) (*compute.Operation, error)) pipeline.Aspect {
	return pipeline.Aspect{Name: about, Wanted: rel(want), Seen: rel(have), Set: p.set(r, id, call)}
}

// front is where a front's requests go.
func (b balancer) urls(r *pipeline.Run, f front) string {
	if f.redirect {
		return b.id("urlMaps", name(r, redirectKey))
	}
	return b.id("urlMaps", name(r, urlMapKey))
}

func (p *Provider) httpProxy(r *pipeline.Run, b balancer, f front, id string) pipeline.Resource {
	want := &compute.TargetHttpProxy{Name: base(id), Description: r.Job.MarkText(f.key), UrlMap: b.urls(r, f)}
	return object[*compute.TargetHttpProxy]{kind: p.httpProxies(b.region), key: f.key, id: id, want: want, see: func(_ context.Context, have *compute.TargetHttpProxy) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: []pipeline.Aspect{p.link(r, id, "URL map", want.UrlMap, have.UrlMap, func(ctx context.Context) (*compute.Operation, error) {
			to := &compute.UrlMapReference{UrlMap: want.UrlMap}
			if b.region == "" {
				return send(ctx, p.compute.TargetHttpProxies.SetUrlMap(p.project, want.Name, to))
			}
			return send(ctx, p.compute.RegionTargetHttpProxies.SetUrlMap(p.project, b.region, want.Name, to))
		})}}, nil
	}}.resource(p, r)
}

func (p *Provider) httpsProxy(r *pipeline.Run, b balancer, f front, id string) pipeline.Resource {
	want := &compute.TargetHttpsProxy{
		Name: base(id), Description: r.Job.MarkText(f.key), UrlMap: b.urls(r, f),
		SslCertificates: []string{b.certificate()}, SslPolicy: b.id("sslPolicies", name(r, tlsPolicyKey)),
	}
	return object[*compute.TargetHttpsProxy]{kind: p.httpsProxies(b.region), key: f.key, id: id, want: want, see: func(_ context.Context, have *compute.TargetHttpsProxy) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: []pipeline.Aspect{
			p.link(r, id, "URL map", want.UrlMap, have.UrlMap, func(ctx context.Context) (*compute.Operation, error) {
				to := &compute.UrlMapReference{UrlMap: want.UrlMap}
				if b.region == "" {
					return send(ctx, p.compute.TargetHttpsProxies.SetUrlMap(p.project, want.Name, to))
				}
				return send(ctx, p.compute.RegionTargetHttpsProxies.SetUrlMap(p.project, b.region, want.Name, to))
			}),
			p.link(r, id, "certificate", want.SslCertificates[0], relText(have.SslCertificates), func(ctx context.Context) (*compute.Operation, error) {
				if b.region == "" {
					return send(ctx, p.compute.TargetHttpsProxies.SetSslCertificates(p.project, want.Name, &compute.TargetHttpsProxiesSetSslCertificatesRequest{SslCertificates: want.SslCertificates}))
				}
				return send(ctx, p.compute.RegionTargetHttpsProxies.SetSslCertificates(p.project, b.region, want.Name, &compute.RegionTargetHttpsProxiesSetSslCertificatesRequest{SslCertificates: want.SslCertificates}))
			}),
			p.link(r, id, "TLS policy", want.SslPolicy, have.SslPolicy, func(ctx context.Context) (*compute.Operation, error) {
				if b.region == "" {
					return send(ctx, p.compute.TargetHttpsProxies.SetSslPolicy(p.project, want.Name, &compute.SslPolicyReference{SslPolicy: want.SslPolicy}))
				}
				return send(ctx, p.compute.RegionTargetHttpsProxies.Patch(p.project, b.region, want.Name, &compute.TargetHttpsProxy{SslPolicy: want.SslPolicy, Fingerprint: have.Fingerprint}))
			}),
		}}, nil
	}}.resource(p, r)
}

func (p *Provider) tcpProxy(r *pipeline.Run, b balancer, f front, id string) pipeline.Resource {
	want := &compute.TargetTcpProxy{Name: base(id), Description: r.Job.MarkText(f.key), Service: b.id("backendServices", name(r, backendKey)), ProxyHeader: "NONE"}
	return object[*compute.TargetTcpProxy]{kind: p.tcpProxies(), key: f.key, id: id, want: want, see: func(_ context.Context, have *compute.TargetTcpProxy) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: []pipeline.Aspect{p.link(r, id, "backend service", want.Service, have.Service, func(ctx context.Context) (*compute.Operation, error) {
			return send(ctx, p.compute.TargetTcpProxies.SetBackendService(p.project, want.Name, &compute.TargetTcpProxiesSetBackendServiceRequest{Service: want.Service}))
		})}}, nil
	}}.resource(p, r)
}

func (p *Provider) sslProxy(r *pipeline.Run, b balancer, f front, id string) pipeline.Resource {
	want := &compute.TargetSslProxy{
		Name: base(id), Description: r.Job.MarkText(f.key), Service: b.id("backendServices", name(r, backendKey)), ProxyHeader: "NONE",
		SslCertificates: []string{b.certificate()}, SslPolicy: b.id("sslPolicies", name(r, tlsPolicyKey)),
	}
	return object[*compute.TargetSslProxy]{kind: p.sslProxies(), key: f.key, id: id, want: want, see: func(_ context.Context, have *compute.TargetSslProxy) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: []pipeline.Aspect{
			p.link(r, id, "backend service", want.Service, have.Service, func(ctx context.Context) (*compute.Operation, error) {
				return send(ctx, p.compute.TargetSslProxies.SetBackendService(p.project, want.Name, &compute.TargetSslProxiesSetBackendServiceRequest{Service: want.Service}))
			}),
			p.link(r, id, "certificate", want.SslCertificates[0], relText(have.SslCertificates), func(ctx context.Context) (*compute.Operation, error) {
				return send(ctx, p.compute.TargetSslProxies.SetSslCertificates(p.project, want.Name, &compute.TargetSslProxiesSetSslCertificatesRequest{SslCertificates: want.SslCertificates}))
			}),
			p.link(r, id, "TLS policy", want.SslPolicy, have.SslPolicy, func(ctx context.Context) (*compute.Operation, error) {
				return send(ctx, p.compute.TargetSslProxies.SetSslPolicy(p.project, want.Name, &compute.SslPolicyReference{SslPolicy: want.SslPolicy}))
			}),
		}}, nil
	}}.resource(p, r)
}
