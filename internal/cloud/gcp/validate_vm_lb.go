package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// loadBalancer checks what the load balancer needs: a certificate, a place for
// its proxies, and a zone for its record.
func (v *vmChecker) loadBalancer(ctx context.Context) error {
	if v.spec.LoadBalancer == nil {
		return nil
	}
	b := v.p.balancer(*v.spec.LoadBalancer)
	return v.side(ctx,
		func(ctx context.Context) error { return v.certificate(ctx, b) },
		func(ctx context.Context) error { return v.proxies(ctx, b) },
		func(ctx context.Context) error { return v.zone(ctx, b) })
}

func (v *vmChecker) certificate(ctx context.Context, b balancer) error {
	const check, field = "certificate", "config.spec.loadBalancer.certificate"
	if b.Certificate == "" {
		return nil
	}
	if b.scheme == schemePassthrough {
		v.fails(check, field, "an internal TCP load balancer hands packets on as they are, so TLS cannot end at it", "Use loadBalancer.type http, or end TLS on the VMs and leave the certificate out.")
		return nil
	}
	id := b.certificate()
	if !strings.Contains(id, "/sslCertificates/") || regionOf(id) != b.region {
		where := "a global one"
		if b.region != "" {
			where = "one of region " + b.region
		}
		v.fails(check, field, fmt.Sprintf("%s is no certificate for this load balancer, which takes %s", b.Certificate, where), "Name an SSL certificate of Compute Engine by its name or its link.")
		return nil
	}
	got, err := lookup.Once(ctx, "certificate "+id, func(ctx context.Context) (*compute.SslCertificate, error) {
		if b.region == "" {
			return send(ctx, v.p.compute.SslCertificates.Get(projectOf(id), base(id)))
		}
		return send(ctx, v.p.compute.RegionSslCertificates.Get(projectOf(id), b.region, base(id)))
	})
	if pipeline.Is(err, pipeline.NotFound) {
		v.fails(check, field, fmt.Sprintf("there is no certificate %s", id), "Name a certificate of this project.")
		return nil
	}
	if err != nil {
		return v.unchecked(ctx, check, field, err)
	}
	if m := got.Managed; m != nil && m.Status != "ACTIVE" {
		if strings.HasPrefix(m.Status, "PROVISIONING_FAILED") {
			v.fails(check, field, fmt.Sprintf("certificate %s is %s", got.Name, m.Status), "Put its domains right, or name another certificate.")
			return nil
		}
		v.warn(check, field, fmt.Sprintf("certificate %s is %s: Google issues it once its domains lead to the load balancer", got.Name, or(m.Status, "not ACTIVE")),
			"Point the domains to the load balancer's address when it is there.")
		return nil
	}
	v.ends(got)
	return nil
}

// ends looks at a certificate's last day, if it says one.
func (v *vmChecker) ends(got *compute.SslCertificate) {
	const check, field = "certificate", "config.spec.loadBalancer.certificate"
	end, err := time.Parse(time.RFC3339, got.ExpireTime)
	switch {
	case err == nil && end.Before(v.r.Now()):
		v.fails(check, field, fmt.Sprintf("certificate %s ended on %s", got.Name, end.Format(time.DateOnly)), "Name another certificate.")
	case err == nil && end.Before(v.r.Now().Add(14*24*time.Hour)):
		v.warn(check, field, fmt.Sprintf("certificate %s ends on %s", got.Name, end.Format(time.DateOnly)), "Renew it.")
	default:
		v.ok(check, "%s", got.Name)
	}
}

// proxies proves that an internal HTTP load balancer's proxies have a place.
func (v *vmChecker) proxies(ctx context.Context, b balancer) error {
	const check = "proxies' subnet"
	if b.scheme != schemeInternal {
		return nil
	}
	if v.r.Job.Mode == job.ModeCreate {
		at, err := proxyRange(or(v.ic.NetworkCIDR, v.spec.Network.CIDR))
		var fatal *pipeline.FatalError
		if errors.As(err, &fatal) {
			v.fails(check, fatal.Problem.Field, fatal.Problem.Message, fatal.Problem.Hint)
		} else if err == nil {
			v.ok(check, "%s", at)
		}
		return nil
	}
	id := v.p.networkID(v.spec.Existing.NetworkID)
	got, err := v.p.proxySubnetOf(ctx, id)
	var fatal *pipeline.FatalError
	switch {
	case err != nil:
		return v.unchecked(ctx, check, "config.spec.existing.networkId", err)
	case got.Name == "" && errors.As(noProxySubnet(id, v.p.region), &fatal):
		v.fails(check, fatal.Problem.Field, fatal.Problem.Message, fatal.Problem.Hint)
		return nil
	}
	v.ok(check, "%s, %s", got.Name, got.IpCidrRange)
	return nil
}

// zone finds the record's zone, and refuses a name that somebody else's record
// has (failure kind B5).
func (v *vmChecker) zone(ctx context.Context, b balancer) error {
	const check, field = "DNS zone", "config.spec.loadBalancer.dns.zone"
	if b.DNS == nil {
		return nil
	}
	network := v.ic.NetworkID
	if v.spec.Existing != nil {
		network = v.p.networkID(v.spec.Existing.NetworkID)
	}
	z, err := v.p.recordZone(ctx, *b.DNS, b.Scheme, network)
	var fatal *pipeline.FatalError
	if errors.As(err, &fatal) {
		v.fails(check, fatal.Problem.Field, fatal.Problem.Message, fatal.Problem.Hint)
		return nil
	}
	if err != nil {
		return v.unchecked(ctx, check, field, err)
	}
	v.ok(check, "%s (%s)", z.name, z.id)
	if z.private && !slices.Contains(z.networks, rel(network)) {
		v.warn(check, field, fmt.Sprintf("zone %s (%s) is private, and the job's network is not one that it answers in", z.id, z.name), "Attach the network to the zone afterwards to resolve the record from the VMs.")
	}
	return v.recordFree(ctx, z)
}

func (v *vmChecker) recordFree(ctx context.Context, z recordZone) error {
	const check, field = "DNS record", "config.spec.loadBalancer.dns.record"
	if made(v.r, kindRecord, recordKey) {
		v.ok(check, "%s is this job's own", z.record)
		return nil
	}
	all, err := v.p.recordsAt(ctx, recordPlace{z.id, z.record})
	if err != nil {
		return v.unchecked(ctx, check, field, err)
	}
	for _, s := range all {
		if !slices.Contains([]string{"A", "AAAA", "CNAME"}, s.Type) || v.ic.LoadBalancerHost != "" && slices.Equal(s.Rrdatas, []string{v.ic.LoadBalancerHost}) {
			continue
		}
		v.fails(check, field, fmt.Sprintf("%s has a record of type %s already, which this job did not make; it is not taken over", z.record, s.Type), "Choose another record, or remove that one.")
		return nil
	}
	v.ok(check, "%s is free", z.record)
	return nil
}
