package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
)

// rules reads who is let in to the VMs.
func (c vmReport) rules(ctx context.Context) error {
	if !c.r.Job.Owns() || c.infra.VMSecurityGroupID == "" {
		return nil
	}
	all, err := c.p.firewalls().all(ctx, "")
	if err != nil {
		return err
	}
	var ssh, open []string
	closed := "no"
	for _, f := range all {
		if rel(f.SelfLink) == c.infra.VMSecurityGroupID && !f.Disabled && len(f.Denied) > 0 {
			closed = "yes"
		}
		if f.Disabled || !slices.Contains(f.TargetServiceAccounts, c.infra.ServiceAccount) || len(f.Allowed) == 0 {
			continue
		}
		if allows(f, 22) {
			ssh = append(ssh, f.SourceRanges...)
		}
		if slices.Contains(f.SourceRanges, "0.0.0.0/0") {
			open = append(open, f.Name)
		}
	}
	c.same("NETG-SSH", "SSH to the VMs comes from", iapRange, agreed(ssh), "CKV_GCP_2, GCP-0027, CIS GCP 3.6")
	c.same("NETG-SSH", "what no rule of the job lets in is refused", "yes", closed, "CIS GCP 3.6")
	if c.infra.TargetGroupID != "" {
		c.same("LBG-08", "rules that let everybody reach the VMs", "none", or(agreed(open), "none"), "GCP-0027, CIS GCP 3.12")
	}
	return nil
}

func (c vmReport) backend(ctx context.Context) error {
	id := c.infra.TargetGroupID
	if id == "" {
		return nil
	}
	b, err := c.p.lbSpec(c.r.Job)
	if err != nil {
		return err
	}
	x, err := c.p.backendServices(regionOf(id)).lookup().Get(ctx, id)
	if err != nil {
		return err
	}
	c.same("LBG-01", "load balancer's scheme is the one asked for", b.scheme, x.LoadBalancingScheme, "")
	logged := x.LogConfig != nil && x.LogConfig.Enable
	c.add("LBG-06", "requests are logged, in samples", fmt.Sprintf("%g of requests", logSample), logText(x.LogConfig), logged, "compute_loadbalancer_logging_enabled, CIS GCP 2.17")
	c.add("LBG-07", "backends are checked", "one check", relText(x.HealthChecks), len(x.HealthChecks) > 0, "compute_instance_group_autohealing_enabled")
	c.optIn("LBG-09", "Cloud Armor policy", or(base(x.SecurityPolicy), "none"), "CKV_GCP_73")
	c.optIn("LBG-10", "Identity-Aware Proxy before the backends", yesNo(x.Iap != nil && x.Iap.Enabled), "CIS GCP 3.12")
	c.optIn("LBG-11", "backends speak TLS", x.Protocol, "")
	return nil
}

// fronts reads what the load balancer answers with.
func (c vmReport) fronts(ctx context.Context) error {
	if len(c.infra.ListenerIDs) == 0 {
		return nil
	}
	b, err := c.p.lbSpec(c.r.Job)
	if err != nil {
		return err
	}
	var served []string
	for _, id := range c.infra.ListenerIDs {
		f, err := c.p.forwardingRules(regionOf(id)).lookup().Get(ctx, id)
		if err != nil {
			return err
		}
		served = append(served, collectionOf(rel(f.Target)))
	}
	secure := slices.ContainsFunc(served, func(s string) bool { return s == "targetHttpsProxies" || s == "targetSslProxies" })
	seen := agreed(served)
	if !secure && b.Certificate == "" {
		seen += ", as asked for by name"
	}
	if b.scheme == schemeExternal {
		c.add("LBG-02", "external traffic ends at an HTTPS or SSL proxy", "one, or asked for by name", seen, secure || b.Certificate == "", "CKV2_GCP_37, CKV2_GCP_38")
	}
	if b.Certificate == "" {
		return nil
	}
	if b.Type == job.LBHTTP {
		m, err := c.p.urlMaps(b.region).lookup().Get(ctx, b.id("urlMaps", name(c.r, redirectKey)))
		if err != nil {
			return err
		}
		c.add("LBG-03", "plain HTTP is only redirected", "redirect to HTTPS", routeText(m), m.DefaultUrlRedirect != nil && m.DefaultUrlRedirect.HttpsRedirect, "CKV2_GCP_38")
	}
	return c.tls(ctx, b)
}

// collectionOf is what a link is a link to.
func collectionOf(link string) string {
	elements := strings.Split(link, "/")
	if len(elements) < 2 {
		return "backend service"
	}
	return elements[len(elements)-2]
}

// tls reads the TLS policy that is really in use.
func (c vmReport) tls(ctx context.Context, b balancer) error {
	policy := ""
	for _, f := range b.fronts() {
		if !f.tls {
			continue
		}
		id := b.proxyID(c.r, f)
		if b.Type == job.LBTCP {
			x, err := c.p.sslProxies().lookup().Get(ctx, id)
			if err != nil {
				return err
			}
			policy = x.SslPolicy
			continue
		}
		x, err := c.p.httpsProxies(b.region).lookup().Get(ctx, id)
		if err != nil {
			return err
		}
		policy = x.SslPolicy
	}
	seen, met := "Google's default", false
	if policy != "" {
		x, err := c.p.sslPolicies(b.region).lookup().Get(ctx, rel(policy))
		if err != nil {
			return err
		}
		seen, met = tlsText(x), x.MinTlsVersion == "TLS_1_2" && (x.Profile == "MODERN" || x.Profile == "RESTRICTED") || x.MinTlsVersion == "TLS_1_3"
	}
	c.add("LBG-04", "TLS policy", "MODERN, TLS_1_2 or later", seen, met, "CKV_GCP_4, GCP-0039, CIS GCP 3.11")
	return nil
}

// certificate tells who issued the certificate, and whether it is good.
func (c vmReport) certificate(ctx context.Context) error {
	b, err := c.p.lbSpec(c.r.Job)
	if err != nil || b.Certificate == "" || len(c.infra.ListenerIDs) == 0 {
		return err
	}
	id := b.certificate()
	var got *compute.SslCertificate
	if b.region == "" {
		got, err = send(ctx, c.p.compute.SslCertificates.Get(projectOf(id), base(id)))
	} else {
		got, err = send(ctx, c.p.compute.RegionSslCertificates.Get(projectOf(id), b.region, base(id)))
	}
	if err != nil {
		return err
	}
	seen, met := "brought by its owner, ends "+got.ExpireTime, true
	if m := got.Managed; m != nil {
		seen, met = "issued by Google, "+m.Status, m.Status == "ACTIVE"
	}
	c.add("LBG-05", "certificate is Google's own and ACTIVE, or its owner's", "ACTIVE", seen, met, "CIS GKE 5.6.7")
	return nil
}
