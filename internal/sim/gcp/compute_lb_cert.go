package gcp

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"
)

func (e *Compute) certificateKind() *kind {
	return &kind{collection: "sslCertificates", noun: "ssl_certificate", schema: "SslCertificate",
		resources: map[string]string{"": "sslCertificates", "regions": "regionSslCertificates"}, takes: lbTakes, prepare: e.prepareCertificate,
		loose: []string{"certificate", "selfManaged", "managed"}, quota: globally("SSL_CERTIFICATES"),
		ready: func(res *Resource) {
			if sub(res.Doc, "managed") != nil {
				e.later(certificateCheck, "lb-certificate", res.Path+"|"+res.ID)
			}
		},
		setState: func(res *Resource, state, _, _ string) error {
			managed := sub(res.Doc, "managed")
			if managed == nil {
				return fmt.Errorf("a self-managed certificate has no state")
			}
			setManaged(managed, orText(state, "PROVISIONING_FAILED_PERMANENTLY"))
			return nil
		}}
}

// How long a managed certificate takes ("Use Google-managed SSL certificates": up to 60 minutes once DNS and load balancer are in
// place), and how often it is looked at.
const (
	certificateCheck = time.Minute
	certificateTakes = 15 * time.Minute
)

// prepareCertificate checks a certificate: one of its own with its key, or the domains of one that Google manages.
func (e *Compute) prepareCertificate(_ *request, path string, doc Doc) error {
	managed := sub(doc, "managed")
	if managed != nil || str(doc, "type") == "MANAGED" {
		if segmentAfter(path, "regions") != "" {
			return invalidField("resource.type", "MANAGED", "Managed certificates are not supported in regions.")
		}
		domains := texts(managed, "domains")
		if len(domains) == 0 || len(domains) > 100 {
			return invalidField("resource.managed.domains", len(domains), "A managed certificate must have between 1 and 100 domains.")
		}
		for n, d := range domains {
			if strings.HasPrefix(d, "*.") || !strings.Contains(strings.TrimSuffix(d, "."), ".") {
				return invalidField(fmt.Sprintf("resource.managed.domains[%d]", n), d, "The domain name is invalid or a wildcard.")
			}
		}
		doc["type"] = "MANAGED"
		setManaged(managed, "PROVISIONING")
		return nil
	}
	own := sub(doc, "selfManaged")
	certificate, key := orText(str(doc, "certificate"), str(own, "certificate")), orText(str(doc, "privateKey"), str(own, "privateKey"))
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		return invalidField("resource.certificate", "", "The SSL certificate could not be parsed.")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return invalidField("resource.certificate", "", "The SSL certificate could not be parsed.")
	}
	if _, err := tls.X509KeyPair([]byte(certificate), []byte(key)); err != nil {
		return invalidField("resource.privateKey", "", "The SSL key and the certificate do not match.")
	}
	delete(doc, "privateKey")
	doc["type"], doc["certificate"], doc["selfManaged"] = "SELF_MANAGED", certificate, Doc{"certificate": certificate}
	doc["expireTime"] = computeTime(parsed.NotAfter)
	var names []any
	for _, n := range parsed.DNSNames {
		names = append(names, n)
	}
	if len(names) > 0 {
		doc["subjectAlternativeNames"] = names
	}
	return nil
}

func setManaged(managed Doc, state string) {
	each := map[string]string{"PROVISIONING": "PROVISIONING", "ACTIVE": "ACTIVE"}[state]
	if each == "" {
		each = "FAILED_NOT_VISIBLE"
	}
	managed["status"] = state
	byDomain := Doc{}
	for _, d := range texts(managed, "domains") {
		byDomain[d] = each
	}
	managed["domainStatus"] = byDomain
}

// certificateEvent looks at a managed certificate: it becomes active when it has been on a proxy with a forwarding rule for a
// while.
func (e *Compute) certificateEvent(key string) {
	path, id, _ := strings.Cut(key, "|")
	res := e.st.Resources[path]
	if res == nil || res.ID != id || str(sub(res.Doc, "managed"), "status") != "PROVISIONING" {
		return
	}
	now := e.cloud.World.Now()
	switch since, err := time.Parse(time.RFC3339, res.Inner["served"]); {
	case !e.certificateServed(res):
		delete(res.Inner, "served")
	case err != nil:
		res.inner("served", now.Format(time.RFC3339))
	case now.Sub(since) >= certificateTakes:
		setManaged(sub(res.Doc, "managed"), "ACTIVE")
		res.Doc["expireTime"] = computeTime(now.Add(90 * 24 * time.Hour))
		return
	}
	e.later(certificateCheck, "lb-certificate", key)
}

// certificateServed says whether a certificate is on a proxy to which a forwarding rule leads.
func (e *Compute) certificateServed(cert *Resource) bool {
	for _, proxy := range e.inOrder(func(o *Resource) bool {
		return o.Collection == "targetHttpsProxies" || o.Collection == "targetSslProxies"
	}) {
		if !slices.Contains(e.usedBy(proxy), cert.Path) {
			continue
		}
		for _, rule := range e.ofKind(cert.project(), "forwardingRules") {
			if e.cloud.pathOfLink(rule.project(), str(rule.Doc, "target")) == proxy.Path {
				return true
			}
		}
	}
	return false
}

func (e *Compute) certificateMethods(a *api) {
	e.events["lb-certificate"] = e.certificateEvent
	for _, resource := range []string{"sslPolicies", "regionSslPolicies"} {
		a.ops[resource+".patch"] = e.rewrite(e.kinds["sslPolicies"], "patch")
	}
}

// tlsPolicyKind is the policies of what clients may speak.
func (e *Compute) tlsPolicyKind() *kind {
	return &kind{collection: "sslPolicies", noun: "ssl_policy", schema: "SslPolicy", resources: map[string]string{"": "sslPolicies", "regions": "regionSslPolicies"},
		takes: lbTakes, prepare: e.prepareTLSPolicy}
}

// cipherSuites are those of the profiles that name them in an answer ("SSL policies for SSL and TLS protocols").
var cipherSuites = map[string][]string{
	"RESTRICTED": {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"},
	"MODERN":     {"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"},
	"COMPATIBLE": {"TLS_RSA_WITH_3DES_EDE_CBC_SHA", "TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_CBC_SHA", "TLS_RSA_WITH_AES_256_GCM_SHA384"},
}

func (e *Compute) prepareTLSPolicy(_ *request, _ string, doc Doc) error {
	setDefault(doc, "profile", "COMPATIBLE")
	setDefault(doc, "minTlsVersion", "TLS_1_0")
	profile, custom := str(doc, "profile"), texts(doc, "customFeatures")
	features := slices.Clone(cipherSuites["RESTRICTED"])
	switch {
	case profile == "CUSTOM" && len(custom) == 0:
		return invalidField("resource.customFeatures", "", "At least one feature must be given with the profile CUSTOM.")
	case profile != "CUSTOM" && len(custom) > 0:
		return invalidField("resource.customFeatures", custom[0], "Features can only be given with the profile CUSTOM.")
	case str(doc, "minTlsVersion") == "TLS_1_3" && profile != "RESTRICTED":
		return invalidField("resource.minTlsVersion", "TLS_1_3", "TLS 1.3 as the minimum version needs the profile RESTRICTED.")
	case profile == "CUSTOM":
		features = custom
	case profile == "MODERN":
		features = append(features, cipherSuites["MODERN"]...)
	case profile == "COMPATIBLE":
		features = append(append(features, cipherSuites["MODERN"]...), cipherSuites["COMPATIBLE"]...)
	}
	slices.Sort(features)
	doc["enabledFeatures"] = anys(features)
	e.print(doc)
	return nil
}
