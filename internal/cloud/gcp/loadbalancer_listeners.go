package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	tlsPolicyKey = "tls"
	redirectKey  = "redirect"
)

// A front is one port that the load balancer answers on.
type front struct {
	key      string
	port     int
	tls      bool
	redirect bool
}

// fronts are the ports of a load balancer: plain HTTP if it was asked for by
// name, else HTTPS and a redirect to it; one TCP or TLS port for the others.
func (b balancer) fronts() []front {
	switch {
	case b.Type == job.LBTCP && b.Certificate != "":
		return []front{{key: "tls", port: b.Port, tls: true}}
	case b.Type == job.LBTCP:
		return []front{{key: "tcp", port: b.Port}}
	case b.Certificate != "":
		return []front{{key: "https", port: 443, tls: true}, {key: "http", port: 80, redirect: true}}
	}
	return []front{{key: "http", port: 80}}
}

// certificate is the ID of the certificate that the job names, by its name or by
// any spelling of its link.
func (b balancer) certificate() string {
	if strings.Contains(b.Certificate, "/") {
		return rel(b.Certificate)
	}
	return b.id("sslCertificates", b.Certificate)
}

// EnsureListener makes what the load balancer answers with, and is done when its
// backends are healthy.
func (p *Provider) EnsureListener(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	b, err := p.lbSpec(r.Job)
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	if b.Certificate != "" {
		if _, err := p.ensure(ctx, r, p.tlsPolicy(r, b)); err != nil {
			return err
		}
	}
	fronts := b.fronts()
	ids := make([]string, len(fronts))
	var parts []func(context.Context) error
	for i, f := range fronts {
		parts = append(parts, func(ctx context.Context) (err error) {
			ids[i], err = p.ensureFront(ctx, r, b, f)
			return err
		})
	}
	err = pipeline.All(ctx, parts...)
	if r.Mode != pipeline.Verify {
		infra.ListenerIDs = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	}
	if err != nil {
		return visible(r, "the listeners", badCertificate(err, b.Certificate))
	}
	if r.Mode == pipeline.Plan || infra.TargetGroupID == "" {
		return nil
	}
	return p.awaitHealthy(ctx, r, b)
}

func (p *Provider) ensureFront(ctx context.Context, r *pipeline.Run, b balancer, f front) (string, error) {
	if f.redirect {
		if _, err := p.ensure(ctx, r, p.redirectMap(r, b)); err != nil {
			return "", err
		}
	}
	if proxy, ok := p.proxy(r, b, f); ok {
		if _, err := p.ensure(ctx, r, proxy); err != nil {
			return "", err
		}
	}
	return p.ensure(ctx, r, p.forwardingRule(r, b, f))
}

// RemoveListener removes forwarding rules, proxies, the redirect and the TLS
// policy: each is held by the one before it.
func (p *Provider) RemoveListener(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	b, err := p.lbSpec(r.Job)
	if err != nil {
		return err
	}
	var parts []func(context.Context) error
	for _, f := range b.fronts() {
		parts = append(parts, func(ctx context.Context) error {
			if err := r.Remove(ctx, p.forwardingRule(r, b, f)); err != nil {
				return err
			}
			if proxy, ok := p.proxy(r, b, f); ok {
				if err := r.Remove(ctx, proxy); err != nil {
					return err
				}
			}
			if f.redirect {
				return r.Remove(ctx, p.redirectMap(r, b))
			}
			return nil
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	if b.Certificate == "" {
		return nil
	}
	return r.Remove(ctx, p.tlsPolicy(r, b))
}

// badCertificate names the field when the certificate is what is wrong. The
// error keeps its class beneath, so that the protocol knows that nothing was made.
func badCertificate(err error, certificate string) error {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || certificate == "" || !strings.Contains(strings.ToLower(ce.Message), "sslcertificate") || !pipeline.Is(ce, pipeline.Invalid, pipeline.NotFound) {
		return err
	}
	return pipeline.Fatal("bad-certificate", fmt.Sprintf("the load balancer cannot use certificate %s: %s", certificate, ce.Message),
		"Name a certificate of this project that is ACTIVE; the job's load balancer can be detached and attached again with it.").On("config.spec.loadBalancer.certificate").From(ce)
}

// tlsPolicy is TLS 1.2 or later with modern ciphers only ("SSL policies for SSL
// and TLS protocols").
func (p *Provider) tlsPolicy(r *pipeline.Run, b balancer) pipeline.Resource {
	id := b.id("sslPolicies", name(r, tlsPolicyKey))
	want := &compute.SslPolicy{Name: base(id), Description: r.Job.MarkText(tlsPolicyKey), Profile: "MODERN", MinTlsVersion: "TLS_1_2"}
	return object[*compute.SslPolicy]{kind: p.sslPolicies(b.region), key: tlsPolicyKey, id: id, want: want, see: func(_ context.Context, have *compute.SslPolicy) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: []pipeline.Aspect{{Name: "profile", Wanted: tlsText(want), Seen: tlsText(have), Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			change := &compute.SslPolicy{Profile: want.Profile, MinTlsVersion: want.MinTlsVersion, Fingerprint: have.Fingerprint}
			if b.region == "" {
				return send(ctx, p.compute.SslPolicies.Patch(p.project, want.Name, change))
			}
			return send(ctx, p.compute.RegionSslPolicies.Patch(p.project, b.region, want.Name, change))
		})}}}, nil
	}}.resource(p, r)
}

func tlsText(s *compute.SslPolicy) string { return s.Profile + ", " + s.MinTlsVersion + " or later" }

// forwardingRule binds the address and one port to what answers there.
func (p *Provider) forwardingRule(r *pipeline.Run, b balancer, f front) pipeline.Resource {
	infra := r.Job.Config.InfraConfig
	id := b.id("forwardingRules", name(r, f.key))
	want := &compute.ForwardingRule{
		Name: base(id), Description: r.Job.MarkText(f.key), LoadBalancingScheme: b.scheme, IPProtocol: "TCP", IPAddress: infra.LoadBalancerHost,
	}
	switch b.scheme {
	case schemePassthrough:
		want.Ports, want.BackendService = []string{strconv.Itoa(b.Port)}, b.id("backendServices", name(r, backendKey))
	default:
		want.PortRange, want.Target = strconv.Itoa(f.port), b.proxyID(r, f)
	}
	if b.region != "" {
		want.Network = infra.NetworkID
		if len(infra.PrivateSubnetIDs) > 0 {
			want.Subnetwork = infra.PrivateSubnetIDs[0]
		}
	} else {
		want.NetworkTier = "PREMIUM"
	}
	labels := labelsFor(r.Job, f.key)
	return object[*compute.ForwardingRule]{kind: p.forwardingRules(b.region), key: f.key, id: id, want: want, see: func(_ context.Context, have *compute.ForwardingRule) (pipeline.Seen, error) {
		if r.Down {
			return pipeline.Seen{}, nil
		}
		aspects := []pipeline.Aspect{
			{Name: "target", Wanted: rel(want.Target + want.BackendService), Seen: rel(have.Target + have.BackendService), Set: p.retarget(r, b, id, want.Target)},
			p.labelsAspect(r, id, labels, have.Labels, func(ctx context.Context, all map[string]string) (*compute.Operation, error) {
				if b.region == "" {
					return send(ctx, p.compute.GlobalForwardingRules.SetLabels(p.project, have.Name, &compute.GlobalSetLabelsRequest{Labels: all, LabelFingerprint: have.LabelFingerprint}))
				}
				return send(ctx, p.compute.ForwardingRules.SetLabels(p.project, b.region, have.Name, &compute.RegionSetLabelsRequest{Labels: all, LabelFingerprint: have.LabelFingerprint}))
			}),
		}
		if r.Mode == pipeline.Verify {
			aspects = append(aspects, pipeline.Aspect{Name: "listens on", Wanted: listensText(want), Seen: listensText(have)})
		}
		return pipeline.Seen{Aspects: aspects}, nil
	}}.resource(p, r)
}

// retarget points a rule to another proxy; a rule without one cannot be changed.
func (p *Provider) retarget(r *pipeline.Run, b balancer, id, target string) func(context.Context) error {
	if target == "" {
		return nil
	}
	return p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
		to := &compute.TargetReference{Target: target}
		if b.region == "" {
			return send(ctx, p.compute.GlobalForwardingRules.SetTarget(p.project, base(id), to))
		}
		return send(ctx, p.compute.ForwardingRules.SetTarget(p.project, b.region, base(id), to))
	})
}

// listensText is where a rule listens. A range of one port comes back as one
// that begins and ends with it.
func listensText(f *compute.ForwardingRule) string {
	from, to, ok := strings.Cut(f.PortRange, "-")
	ports := f.PortRange
	if ok && from == to {
		ports = from
	}
	return fmt.Sprintf("%s %s %s%s, %s", f.IPAddress, f.IPProtocol, ports, sorted(f.Ports), f.LoadBalancingScheme)
}
