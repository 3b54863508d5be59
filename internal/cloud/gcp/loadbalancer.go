package gcp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	lbKey        = "lb"
	lbChecksKey  = "lb-checks"
	lbClientsKey = "lb-clients"
	proxyKey     = "proxy"
)

// The load balancing schemes.
const (
	schemeExternal    = "EXTERNAL_MANAGED" // global, proxies of Google's
	schemeInternal    = "INTERNAL_MANAGED" // regional, proxies in a subnet of their own
	schemePassthrough = "INTERNAL"         // regional, packets go through as they are
)

// A balancer is which of Google's load balancers a job gets ("Cloud Load
// Balancing overview").
//
//   - http, public: the global external Application Load Balancer.
//   - http, internal: the regional internal Application Load Balancer.
//   - tcp, public: the global external proxy Network Load Balancer. As with a
//     network load balancer at AWS that has a security group, the VMs take traffic
//     from the load balancer alone and have no address, and TLS can end at it. The
//     external passthrough load balancer would keep the clients' addresses, at the
//     price of opening the VMs to the internet.
//   - tcp, internal: the internal passthrough Network Load Balancer, which keeps
//     the clients' addresses and needs no proxies.
type balancer struct {
	job.LoadBalancer
	p      *Provider
	region string // "" for global
	scheme string
}

func (p *Provider) balancer(lb job.LoadBalancer) balancer {
	b := balancer{LoadBalancer: lb, p: p, scheme: schemeExternal}
	if lb.Scheme == job.SchemeInternal {
		b.region, b.scheme = p.region, schemeInternal
		if lb.Type == job.LBTCP {
			b.scheme = schemePassthrough
		}
	}
	return b
}

// id is the ID of one of the balancer's objects, in its own scope.
func (b balancer) id(collection, name string) string {
	if b.region == "" {
		return b.p.global(collection, name)
	}
	return b.p.regional(collection, name)
}

// lbSpec is the load balancer that the job asks for; the defaults if an attach
// asked for one without saying which.
func (p *Provider) lbSpec(j *job.Job) (balancer, error) {
	spec, err := j.VMSpec()
	if err != nil {
		return balancer{}, err
	}
	if spec.LoadBalancer == nil {
		return p.balancer(job.LoadBalancer{PlainHTTP: true}.WithDefaults()), nil
	}
	return p.balancer(*spec.LoadBalancer), nil
}

// EnsureLoadBalancer reserves the address, and lets the load balancer and its
// health checks reach the VMs.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	b, err := p.lbSpec(r.Job)
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	clients, err := p.clientRanges(ctx, r, b)
	if err != nil {
		return visible(r, "the proxies' subnet", err)
	}
	var address, checks string
	parts := []func(context.Context) error{
		func(ctx context.Context) (err error) {
			address, err = p.ensure(ctx, r, p.lbAddress(r, b))
			return err
		},
		func(ctx context.Context) (err error) {
			checks, err = p.ensure(ctx, r, p.checksRule(r, b))
			return err
		},
	}
	if len(clients) > 0 {
		parts = append(parts, func(ctx context.Context) error {
			_, err := p.ensure(ctx, r, p.clientsRule(r, b, clients))
			return err
		})
	}
	err = pipeline.All(ctx, parts...)
	learn(r, &infra.LoadBalancerID, address)
	learn(r, &infra.LoadBalancerSecurityGroupID, checks)
	if err != nil {
		return visible(r, "the load balancer's address", err)
	}
	if r.Mode != pipeline.Apply || infra.LoadBalancerHost != "" {
		return nil
	}
	got, err := p.addressKind(b.region).lookup().Get(ctx, infra.LoadBalancerID)
	if err != nil {
		return visible(r, "the load balancer's address", err)
	}
	infra.LoadBalancerHost = got.Address
	return nil
}

// RemoveLoadBalancer closes the VMs to the load balancer again and releases its
// address.
func (p *Provider) RemoveLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	b, err := p.lbSpec(r.Job)
	if err != nil {
		return err
	}
	err = pipeline.All(ctx,
		func(ctx context.Context) error { return r.Remove(ctx, p.lbAddress(r, b)) },
		func(ctx context.Context) error { return r.Remove(ctx, p.checksRule(r, b)) },
		func(ctx context.Context) error { return r.Remove(ctx, p.clientsRule(r, b, nil)) })
	if err != nil {
		return err
	}
	return r.Remove(ctx, p.proxySubnet(r, ""))
}

func (p *Provider) addressKind(region string) kind[*compute.Address] {
	if region == "" {
		return p.globalAddresses()
	}
	return p.addresses()
}

// lbAddress is the address that the load balancer answers on. It outlives the
// forwarding rules, so that a record which points to it stays right.
func (p *Provider) lbAddress(r *pipeline.Run, b balancer) pipeline.Resource {
	id := b.id("addresses", name(r, lbKey))
	want := &compute.Address{Name: base(id), Description: r.Job.MarkText(lbKey), AddressType: "EXTERNAL", IpVersion: "IPV4"}
	if b.region != "" {
		want.AddressType, want.IpVersion = "INTERNAL", ""
		want.Purpose = "GCE_ENDPOINT"
		if b.scheme == schemeInternal {
			want.Purpose = "SHARED_LOADBALANCER_VIP" // two rules stand on it, for 443 and 80
		}
		if subnets := r.Job.Config.InfraConfig.PrivateSubnetIDs; len(subnets) > 0 {
			want.Subnetwork = subnets[0]
		}
	}
	labels := labelsFor(r.Job, lbKey)
	return object[*compute.Address]{kind: p.addressKind(b.region), key: lbKey, id: id, want: want,
		see: func(_ context.Context, x *compute.Address) (pipeline.Seen, error) {
			s := addressSeen(x)
			if r.Down || s.Status != pipeline.Ready {
				return s, nil
			}
			s.Aspects = []pipeline.Aspect{p.labelsAspect(r, id, labels, x.Labels, func(ctx context.Context, all map[string]string) (*compute.Operation, error) {
				if b.region == "" {
					return send(ctx, p.compute.GlobalAddresses.SetLabels(p.project, x.Name, &compute.GlobalSetLabelsRequest{Labels: all, LabelFingerprint: x.LabelFingerprint}))
				}
				return send(ctx, p.compute.Addresses.SetLabels(p.project, b.region, x.Name, &compute.RegionSetLabelsRequest{Labels: all, LabelFingerprint: x.LabelFingerprint}))
			})}
			return s, nil
		},
		blockers: func(ctx context.Context, id string) (string, error) {
			x, err := p.addressKind(b.region).get(ctx, id)
			if err != nil {
				return "", pipeline.Unless(err, pipeline.NotFound)
			}
			return users("the address", x.Users), nil
		},
	}.resource(p, r)
}

// checksRule lets Google's health checks reach the VMs, and the proxies of global
// load balancers, which come from the same ranges. Without it every backend is
// unhealthy (failure kind K4).
func (p *Provider) checksRule(r *pipeline.Run, b balancer) pipeline.Resource {
	ports := []int{b.HealthCheck.Port}
	if b.region == "" {
		ports = append(ports, b.Port)
	}
	s := p.vmRule(r, lbChecksKey, allowPriority, healthCheckRanges, ports...)
	s.about = "Health checks of the load balancer, and its traffic if it is a global one."
	return p.firewall(r, s)
}

// clientsRule lets in the traffic of a regional load balancer: of its proxies, or
// of the clients themselves where there are none.
func (p *Provider) clientsRule(r *pipeline.Run, b balancer, from []string) pipeline.Resource {
	s := p.vmRule(r, lbClientsKey, allowPriority, from, b.Port)
	s.about = "Traffic of the internal load balancer."
	return p.firewall(r, s)
}

// clientRanges are where a regional load balancer's traffic comes from.
func (p *Provider) clientRanges(ctx context.Context, r *pipeline.Run, b balancer) ([]string, error) {
	switch b.scheme {
	case schemeInternal:
		return p.proxies(ctx, r)
	case schemePassthrough:
		return strings.FieldsFunc(r.Job.Config.InfraConfig.NetworkCIDR, func(c rune) bool { return c == ',' || c == ' ' }), nil
	}
	return nil, nil
}

// proxies is the range of the region's proxies in the network. A network has one
// such subnet in a region at work: one that is there already is used, and one of
// the job's own is made where there is none.
func (p *Provider) proxies(ctx context.Context, r *pipeline.Run) ([]string, error) {
	infra := r.Job.Config.InfraConfig
	if _, ours := r.Object(kindSubnet, proxyKey); !ours && r.Mode != pipeline.Plan {
		theirs, err := p.proxySubnetOf(ctx, infra.NetworkID)
		if err != nil {
			return nil, err
		}
		if owner, _ := textMark(theirs.Description); theirs.Name != "" && owner != r.Job.ID {
			return []string{theirs.IpCidrRange}, nil
		}
	}
	if r.Job.Mode != job.ModeCreate {
		return nil, noProxySubnet(infra.NetworkID, p.region)
	}
	at, err := proxyRange(infra.NetworkCIDR)
	if err != nil && r.Mode != pipeline.Plan {
		return nil, err
	}
	_, err = p.ensure(ctx, r, p.proxySubnet(r, at))
	return []string{at}, err
}

func noProxySubnet(network, region string) error {
	return pipeline.Fatal("no-proxy-subnet", fmt.Sprintf("network %s has no subnet for the proxies of internal HTTP load balancers in %s, and the job does not add one to a network that is not its own", base(network), region),
		"Make one there (purpose REGIONAL_MANAGED_PROXY, role ACTIVE, /26 or larger), or use loadBalancer.type tcp.").On("config.spec.existing.networkId")
}

// proxySubnetOf is the proxies' subnet of a network in the region; one without a
// name if there is none.
func (p *Provider) proxySubnetOf(ctx context.Context, network string) (*compute.Subnetwork, error) {
	all, err := lookup.Once(ctx, "subnets of the region", func(ctx context.Context) ([]*compute.Subnetwork, error) { return p.subnets().all(ctx, "") })
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(s *compute.Subnetwork) bool {
		return s.Purpose == purposeProxy && s.Role != "BACKUP" && rel(s.Network) == rel(network)
	})
	if i < 0 {
		return &compute.Subnetwork{}, nil
	}
	return all[i], nil
}

func (p *Provider) proxySubnet(r *pipeline.Run, at string) pipeline.Resource {
	s := subnetSpec{key: proxyKey, purpose: purposeProxy, cidr: at}
	if !r.Down {
		s.network = r.Job.Config.InfraConfig.NetworkID
	}
	return p.subnet(r, s)
}

// proxyRange is the proxies' part of a network that the job makes: of its last
// eighth, which its subnets leave free, as much as Google recommends ("Proxy-only
// subnets": /23, and no less than /26).
func proxyRange(network string) (string, error) {
	whole, err := netip.ParsePrefix(network)
	if err != nil {
		return "", fmt.Errorf("range of the network: %w", err)
	}
	eighth := cidr.Part(whole, 3, 7)
	if eighth.Bits() > 26 {
		return "", pipeline.Fatal("network-too-small", fmt.Sprintf("%s leaves %s for the proxies of an internal HTTP load balancer, which need a /26", network, eighth),
			"Use a /23 or larger for network.cidr, or loadBalancer.type tcp.").On("config.spec.network.cidr")
	}
	return cidr.Part(eighth, max(23-eighth.Bits(), 0), 0).String(), nil
}
