package gcp

import (
	"fmt"
	"slices"
	"strings"
)

// proxyKinds are the target proxies: what ends the connections of clients.
func (e *Compute) proxyKinds() []*kind {
	return []*kind{
		{collection: "targetHttpProxies", noun: "targetHttpProxy", schema: "TargetHttpProxy", shortNotFound: true,
			resources: map[string]string{"": "targetHttpProxies", "regions": "regionTargetHttpProxies"}, takes: lbTakes,
			prepare: e.prepareHTTPProxy, refuseDelete: e.refuseProxyDelete("target_http_proxy"), quota: globally("TARGET_HTTP_PROXIES"), ready: e.watch},
		{collection: "targetHttpsProxies", noun: "target_https_proxy", schema: "TargetHttpsProxy",
			resources: map[string]string{"": "targetHttpsProxies", "regions": "regionTargetHttpsProxies"}, takes: lbTakes,
			prepare: e.prepareHTTPSProxy, quota: globally("TARGET_HTTPS_PROXIES"), ready: e.watch},
		{collection: "targetTcpProxies", noun: "target_tcp_proxy", schema: "TargetTcpProxy",
			resources: map[string]string{"": "targetTcpProxies", "regions": "regionTargetTcpProxies"}, takes: lbTakes,
			prepare: e.prepareStreamProxy("TCP"), quota: globally("TARGET_TCP_PROXIES"), ready: e.watch},
		{collection: "targetSslProxies", noun: "targetSslProxy", schema: "TargetSslProxy", shortNotFound: true,
			resources: map[string]string{"": "targetSslProxies"}, takes: lbTakes,
			prepare: e.prepareSSLProxy, refuseDelete: e.refuseProxyDelete("target_ssl_proxy"), ready: e.watch},
	}
}

// refuseProxyDelete words the refusal for the kinds whose "not found" calls them otherwise.
func (e *Compute) refuseProxyDelete(noun string) func(*request, *Resource) error {
	return func(_ *request, res *Resource) error {
		if user := e.userOf(res); user != "" {
			return inUse(&kind{noun: noun}, res.Path, user)
		}
		return nil
	}
}

// A proxySetter sets one field of a proxy, in a method of its own.
type proxySetter struct{ collection, resource, verb, field string }

func (e *Compute) proxyMethods(a *api) {
	for _, s := range []proxySetter{
		{"targetHttpProxies", "targetHttpProxies", "setUrlMap", "urlMap"},
		{"targetHttpProxies", "regionTargetHttpProxies", "setUrlMap", "urlMap"},
		{"targetHttpsProxies", "targetHttpsProxies", "setUrlMap", "urlMap"},
		{"targetHttpsProxies", "regionTargetHttpsProxies", "setUrlMap", "urlMap"},
		{"targetHttpsProxies", "targetHttpsProxies", "setSslCertificates", "sslCertificates"},
		{"targetHttpsProxies", "regionTargetHttpsProxies", "setSslCertificates", "sslCertificates"},
		{"targetHttpsProxies", "targetHttpsProxies", "setSslPolicy", "sslPolicy"},
		{"targetHttpsProxies", "targetHttpsProxies", "setQuicOverride", "quicOverride"},
		{"targetTcpProxies", "targetTcpProxies", "setBackendService", "service"},
		{"targetTcpProxies", "targetTcpProxies", "setProxyHeader", "proxyHeader"},
		{"targetSslProxies", "targetSslProxies", "setBackendService", "service"},
		{"targetSslProxies", "targetSslProxies", "setSslCertificates", "sslCertificates"},
		{"targetSslProxies", "targetSslProxies", "setSslPolicy", "sslPolicy"},
	} {
		a.ops[s.resource+"."+s.verb] = e.setProxy(s)
	}
	a.ops["targetHttpProxies.patch"] = e.rewrite(e.kinds["targetHttpProxies"], "patch")
	a.ops["targetHttpsProxies.patch"] = e.rewrite(e.kinds["targetHttpsProxies"], "patch")
	a.ops["regionTargetHttpsProxies.patch"] = e.rewrite(e.kinds["targetHttpsProxies"], "patch")
}

// setProxy sets one field of a proxy. An empty TLS policy takes it away.
func (e *Compute) setProxy(s proxySetter) operation {
	return func(r *request) (any, error) {
		k := e.kinds[s.collection]
		res, err := e.change(r, k)
		if err != nil {
			return nil, err
		}
		doc := clone(res.Doc)
		if v, said := r.Body[s.field]; said && v != "" {
			doc[s.field] = v
		} else {
			delete(doc, s.field)
			if v, ok := r.Body["service"]; ok && s.field == "service" {
				doc["service"] = v
			}
		}
		if err := k.prepare(r, res.Path, doc); err != nil {
			return nil, err
		}
		return e.start(r, change{Type: s.verb, Target: res, Takes: k.duration("patch"), Action: "lb-replace", Doc: doc}), nil
	}
}

// reference checks a field of a proxy that links to something of its own scope, and writes the link in full.
func (e *Compute) reference(r *request, path string, doc Doc, field, collection string) (*Resource, error) {
	link := str(doc, field)
	if link == "" {
		return nil, refuse(400, "required", "Required field 'resource.%s' not specified", field)
	}
	res, err := e.link(r.Project.ID, "resource."+field, link, collection)
	if err != nil {
		return nil, err
	}
	if res.scope() != scopeOf(path) {
		return nil, invalidField("resource."+field, link, "The resource must be in the same scope.")
	}
	doc[field] = selfLink(res.Path)
	return res, nil
}

func (e *Compute) prepareHTTPProxy(r *request, path string, doc Doc) error {
	if _, err := e.reference(r, path, doc, "urlMap", "urlMaps"); err != nil {
		return err
	}
	e.print(doc)
	return nil
}

func (e *Compute) prepareHTTPSProxy(r *request, path string, doc Doc) error {
	if _, err := e.reference(r, path, doc, "urlMap", "urlMaps"); err != nil {
		return err
	}
	setDefault(doc, "quicOverride", "NONE")
	setDefault(doc, "tlsEarlyData", "DISABLED")
	if err := e.prepareTLS(r, path, doc); err != nil {
		return err
	}
	e.print(doc)
	return nil
}

// prepareTLS checks certificates, 1 to 15 of them, and the TLS policy ("SSL certificates overview", limits).
func (e *Compute) prepareTLS(r *request, path string, doc Doc) error {
	links := texts(doc, "sslCertificates")
	if str(doc, "certificateMap") == "" && (len(links) == 0 || len(links) > 15) {
		return invalidField("resource.sslCertificates", len(links), "A proxy must have between 1 and 15 SSL certificates.")
	}
	var full []any
	for n, link := range links {
		cert, err := e.link(r.Project.ID, fmt.Sprintf("resource.sslCertificates[%d]", n), link, "sslCertificates")
		if err != nil {
			return err
		}
		if cert.scope() != scopeOf(path) {
			return invalidField(fmt.Sprintf("resource.sslCertificates[%d]", n), link, "The SSL certificate must be in the same scope as the proxy.")
		}
		full = append(full, selfLink(cert.Path))
	}
	if len(full) > 0 {
		doc["sslCertificates"] = full
	}
	if str(doc, "sslPolicy") != "" {
		if _, err := e.reference(r, path, doc, "sslPolicy", "sslPolicies"); err != nil {
			return err
		}
	}
	return nil
}

// prepareStreamProxy checks a proxy that passes streams on to a backend service of one of some protocols.
func (e *Compute) prepareStreamProxy(protocols ...string) func(*request, string, Doc) error {
	return func(r *request, path string, doc Doc) error {
		service, err := e.reference(r, path, doc, "service", "backendServices")
		if err != nil {
			return err
		}
		if p := str(service.Doc, "protocol"); !slices.Contains(protocols, p) {
			return invalidField("resource.service", str(doc, "service"), fmt.Sprintf("The protocol of the backend service must be %s, not %s.", strings.Join(protocols, " or "), p))
		}
		setDefault(doc, "proxyHeader", "NONE")
		return nil
	}
}

func (e *Compute) prepareSSLProxy(r *request, path string, doc Doc) error {
	if err := e.prepareStreamProxy("SSL", "TCP")(r, path, doc); err != nil {
		return err
	}
	return e.prepareTLS(r, path, doc)
}
