package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acm"
	acmtypes "github.com/aws/aws-sdk-go-v2/service/acm/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// loadBalancer checks the certificate and the zone that the job names.
func (c *checker) loadBalancer(ctx context.Context) ([]cloud.Check, error) {
	lb := c.spec.LoadBalancer
	if lb == nil {
		return nil, nil
	}
	var certificate, zone, clients []cloud.Check
	err := pipeline.All(ctx,
		func(ctx context.Context) (err error) {
			if lb.Certificate != "" {
				certificate, err = c.certificate(ctx, lb)
			}
			return err
		},
		func(ctx context.Context) (err error) {
			if lb.DNS != nil {
				zone, err = c.dns(ctx, lb)
			}
			return err
		},
		func(ctx context.Context) (err error) {
			clients, err = c.clients(ctx, *lb)
			return err
		},
	)
	return slices.Concat(certificate, zone, clients, c.accessLogs(*lb)), err
}

// clients looks whether the network ACLs of a network that exists let the clients of
// a public network load balancer in: they arrive at the VMs with their own
// addresses, while the health checks, which come from the network itself, succeed.
func (c *checker) clients(ctx context.Context, lb job.LoadBalancer) ([]cloud.Check, error) {
	const check, field = "the load balancer's clients", "config.spec.loadBalancer.port"
	if c.spec.Existing == nil || len(clientRules(lb)) == 0 {
		return nil, nil
	}
	net, err := c.existing(ctx, *c.spec.Existing)
	var acls []ec2types.NetworkAcl
	if err == nil {
		acls, err = ec2Page[ec2types.NetworkAcl](c.networkACLPage).all(ctx, filter("vpc-id", aws.ToString(net.vpc.VpcId)))
	}
	if err != nil && stops(ctx, err) {
		return nil, err
	}
	if err != nil {
		return []cloud.Check{unchecked(check, field, err)}, nil
	}
	var shut []string
	for _, a := range acls {
		guarded := associations(a)
		for _, s := range net.subnets {
			if !s.public && guarded[s.id] != "" && !admits(rulesOf(a), int32(lb.Port), anywhere, privateBlocks) {
				shut = append(shut, fmt.Sprintf("%s of %s", aws.ToString(a.NetworkAclId), s.id))
			}
		}
	}
	if len(shut) == 0 {
		return nil, nil
	}
	return []cloud.Check{warns(check, field, fmt.Sprintf("network ACL %s lets nobody on the internet in on TCP port %d, and a public TCP load balancer hands its clients on with their own addresses", sortedList(shut), lb.Port),
		"Open the port there, give the VMs another port (1024 or above, where the network was made by a network job), or choose type http.")}, nil
}

// accessLogs says what becomes of the logs, since teardown takes them along.
func (c *checker) accessLogs(lb job.LoadBalancer) []cloud.Check {
	if !logged(lb) {
		return nil
	}
	return []cloud.Check{passes("access logs", "kept %d days in bucket %s, encrypted and closed to the public; teardown deletes the bucket with the logs in it", logExpiryDays, logBucketName(c.r))}
}

func (c *checker) certificate(ctx context.Context, lb *job.LoadBalancer) ([]cloud.Check, error) {
	const check, field = "certificate", "config.spec.loadBalancer.certificate"
	parts := strings.SplitN(lb.Certificate, ":", 6)
	if len(parts) == 6 && parts[2] == "acm" && parts[3] != c.region {
		return []cloud.Check{fails(check, field, fmt.Sprintf("the certificate is in %s, and a load balancer takes only one of its own region, %s", parts[3], c.region), "Name a certificate of "+c.region+".")}, nil
	}
	if len(parts) == 6 && parts[2] != "acm" {
		return []cloud.Check{{Name: check, Status: cloud.CheckUnchecked, Field: field, Message: "a certificate of " + parts[2] + " is not looked into"}}, nil
	}
	cert, err := lookup.Once(ctx, "certificate "+lb.Certificate, func(ctx context.Context) (*acmtypes.CertificateDetail, error) {
		out, err := c.acm.DescribeCertificate(ctx, &acm.DescribeCertificateInput{CertificateArn: aws.String(lb.Certificate)})
		if err != nil {
			return nil, err
		}
		return out.Certificate, nil
	})
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return []cloud.Check{fails(check, field, lb.Certificate+" does not exist in "+c.region, "Name a certificate of this account and region.")}, nil
	case err != nil && stops(ctx, err):
		return nil, err
	case err != nil:
		return []cloud.Check{unchecked(check, field, err)}, nil
	case cert == nil:
		return []cloud.Check{{Name: check, Status: cloud.CheckUnchecked, Field: field, Message: "the answer describes no certificate"}}, nil
	case cert.Status != acmtypes.CertificateStatusIssued:
		why := string(cert.FailureReason)
		if why != "" {
			why = " (" + why + ")"
		}
		return []cloud.Check{fails(check, field, fmt.Sprintf("certificate %s is %s%s, not ISSUED", deref(cert.DomainName), cert.Status, why), "Finish its validation, or name another certificate.")}, nil
	}
	if end := cert.NotAfter; end != nil {
		switch left := end.Sub(c.r.Now()); {
		case left < 0:
			return []cloud.Check{fails(check, field, fmt.Sprintf("certificate %s ended on %s", deref(cert.DomainName), end.Format(time.DateOnly)), "Name another certificate.")}, nil
		case left < 14*24*time.Hour:
			return []cloud.Check{warns(check, field, fmt.Sprintf("certificate %s ends on %s", deref(cert.DomainName), end.Format(time.DateOnly)), "Renew it.")}, nil
		}
	}
	return []cloud.Check{passes(check, "%s is issued", deref(cert.DomainName))}, nil
}

func (c *checker) dns(ctx context.Context, lb *job.LoadBalancer) ([]cloud.Check, error) {
	const check, field = "DNS zone", "config.spec.loadBalancer.dns.zone"
	z, err := c.hostedZone(ctx, *lb.DNS, lb.Scheme)
	var fatal *pipeline.FatalError
	switch {
	case errors.As(err, &fatal):
		return []cloud.Check{fails(check, fatal.Problem.Field, fatal.Problem.Message, fatal.Problem.Hint)}, nil
	case err != nil && stops(ctx, err):
		return nil, err
	case err != nil:
		return []cloud.Check{unchecked(check, field, err)}, nil
	}
	out := []cloud.Check{passes(check, "%s (%s)", z.name, z.id)}
	if z.private && c.r.Job.Mode == job.ModeCreate {
		out = append(out, warns(check, field, fmt.Sprintf("zone %s (%s) is private; the new VPC is not one that it is associated with", z.name, z.id), "Associate the VPC with the zone afterwards to resolve the record from the VMs."))
	}
	record, err := c.recordFree(ctx, z)
	if err != nil {
		if stops(ctx, err) {
			return nil, err
		}
		return append(out, unchecked("DNS record", "config.spec.loadBalancer.dns.record", err)), nil
	}
	return append(out, record), nil
}

// recordFree refuses a name that somebody else's record has: an upsert would
// take it over silently (failure kind B5).
func (c *checker) recordFree(ctx context.Context, z hostedZone) (cloud.Check, error) {
	const check, field = "DNS record", "config.spec.loadBalancer.dns.record"
	for _, o := range c.r.Objects() {
		if strings.HasPrefix(o.Kind, "route53:") && o.State == job.ObjectCreated {
			return passes(check, "%s is this job's own", z.record), nil
		}
	}
	sets, err := c.recordsAt(ctx, z.id, z.record)
	if err != nil {
		return cloud.Check{}, err
	}
	for _, s := range sets {
		switch s.Type {
		case r53types.RRTypeA, r53types.RRTypeAaaa, r53types.RRTypeCname:
			if s.AliasTarget != nil && c.ic.LoadBalancerHost != "" && strings.HasSuffix(domain(deref(s.AliasTarget.DNSName)), domain(c.ic.LoadBalancerHost)) {
				return passes(check, "%s is this job's own", z.record), nil
			}
			return fails(check, field, fmt.Sprintf("%s has a record of type %s already, which this job did not make; it is not taken over", z.record, s.Type), "Choose another record, or remove that one."), nil
		}
	}
	return passes(check, "%s is free", z.record), nil
}
