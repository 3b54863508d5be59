package gcp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// mtu is Google's own default ("Maximum transmission unit"): what every VPN and
// peering passes.
const mtu = 1460

// network is the job's VPC network: in custom mode, so that it has no subnets
// but the job's, and with routes that Cloud Routers learn kept to their region.
func (p *Provider) network(r *pipeline.Run) pipeline.Resource {
	const key = "network"
	id := p.global("networks", name(r, ""))
	return object[*compute.Network]{
		kind: p.networks(), key: key, id: id,
		want: &compute.Network{
			Name: base(id), Description: r.Job.MarkText(key), Mtu: mtu,
			AutoCreateSubnetworks: false, RoutingConfig: &compute.NetworkRoutingConfig{RoutingMode: "REGIONAL"},
			ForceSendFields: []string{"AutoCreateSubnetworks"},
		},
		see: func(_ context.Context, x *compute.Network) (pipeline.Seen, error) {
			patch := func(change *compute.Network) func(context.Context) error {
				return p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
					return send(ctx, p.compute.Networks.Patch(p.project, x.Name, change))
				})
			}
			return pipeline.Seen{Aspects: []pipeline.Aspect{
				{Name: "subnet mode", Wanted: "custom", Seen: subnetMode(x)},
				{Name: "routing mode", Wanted: "REGIONAL", Seen: routingMode(x),
					Set: patch(&compute.Network{RoutingConfig: &compute.NetworkRoutingConfig{RoutingMode: "REGIONAL"}})},
				{Name: "MTU", Wanted: strconv.Itoa(mtu), Seen: strconv.FormatInt(x.Mtu, 10), Set: patch(&compute.Network{Mtu: mtu})},
			}}, nil
		},
		blockers: func(ctx context.Context, id string) (string, error) { return p.networkBlockers(ctx, r, id) },
	}.resource(p, r)
}

func subnetMode(x *compute.Network) string {
	switch {
	case x.IPv4Range != "":
		return "legacy"
	case x.AutoCreateSubnetworks:
		return "auto"
	}
	return "custom"
}

func routingMode(x *compute.Network) string {
	if x.RoutingConfig == nil {
		return ""
	}
	return x.RoutingConfig.RoutingMode
}

// The purposes of subnets that the provisioner makes.
const (
	purposeVMs   = "PRIVATE"
	purposeProxy = "REGIONAL_MANAGED_PROXY" // for the proxies of internal HTTP load balancers
)

// A subnetSpec is what a subnet is to be.
type subnetSpec struct {
	key      string
	network  string // the network's ID
	cidr     string
	purpose  string // purposeVMs or purposeProxy
	flowLogs string // as in job.NetworkSpec; not for proxies
	ranges   []job.NamedRange
}

// subnet is one subnet of the job, in its region.
func (p *Provider) subnet(r *pipeline.Run, s subnetSpec) pipeline.Resource {
	id := p.regional("subnetworks", name(r, s.key))
	want := &compute.Subnetwork{
		Name: base(id), Description: r.Job.MarkText(s.key), Network: s.network, IpCidrRange: s.cidr, Purpose: s.purpose,
	}
	if s.purpose == purposeProxy {
		want.Role = "ACTIVE"
	} else {
		want.PrivateIpGoogleAccess, want.StackType = true, "IPV4_ONLY"
		want.LogConfig = flowLogConfig(s.flowLogs)
		for _, n := range s.ranges {
			want.SecondaryIpRanges = append(want.SecondaryIpRanges, &compute.SubnetworkSecondaryRange{RangeName: n.Name, IpCidrRange: n.CIDR})
		}
	}
	return object[*compute.Subnetwork]{
		kind: p.subnets(), key: s.key, id: id, want: want,
		see: func(_ context.Context, x *compute.Subnetwork) (pipeline.Seen, error) {
			seen := pipeline.Seen{Reason: x.State, Aspects: p.subnetAspects(r, id, want, x)}
			if x.State == "DRAINING" {
				seen.Status = pipeline.Pending
			}
			return seen, nil
		},
		blockers: func(ctx context.Context, id string) (string, error) { return p.subnetBlockers(ctx, r, id) },
	}.resource(p, r)
}

func (p *Provider) subnetAspects(r *pipeline.Run, id string, want, x *compute.Subnetwork) []pipeline.Aspect {
	aspects := []pipeline.Aspect{
		{Name: "network", Wanted: rel(want.Network), Seen: rel(x.Network)},
		{Name: "range", Wanted: want.IpCidrRange, Seen: x.IpCidrRange},
		{Name: "purpose", Wanted: want.Purpose, Seen: x.Purpose},
	}
	if want.Network == "" { // a removal knows only the object's name
		return nil
	}
	if want.Purpose == purposeProxy {
		return append(aspects, pipeline.Aspect{Name: "role", Wanted: want.Role, Seen: x.Role})
	}
	patch := func(change *compute.Subnetwork) func(context.Context) error {
		return p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			change.Fingerprint = x.Fingerprint
			return send(ctx, p.compute.Subnetworks.Patch(p.project, p.region, x.Name, change))
		})
	}
	return append(aspects,
		pipeline.Aspect{Name: "private Google access", Wanted: "true", Seen: strconv.FormatBool(x.PrivateIpGoogleAccess), Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			return send(ctx, p.compute.Subnetworks.SetPrivateIpGoogleAccess(p.project, p.region, x.Name,
				&compute.SubnetworksSetPrivateIpGoogleAccessRequest{PrivateIpGoogleAccess: true}))
		})},
		pipeline.Aspect{Name: "flow logs", Wanted: flowLogText(want.LogConfig), Seen: flowLogText(x.LogConfig), Set: patch(&compute.Subnetwork{LogConfig: want.LogConfig})},
		pipeline.Aspect{Name: "secondary ranges", Wanted: rangesText(want.SecondaryIpRanges), Seen: rangesText(x.SecondaryIpRanges),
			Set: patch(&compute.Subnetwork{SecondaryIpRanges: want.SecondaryIpRanges, ForceSendFields: []string{"SecondaryIpRanges"}})},
	)
}

// flowLogConfig is how a subnet's flows are logged. The cheap form takes one
// connection in ten, adds up a quarter of an hour, and leaves the metadata out:
// volume is what is billed ("VPC Flow Logs").
func flowLogConfig(how string) *compute.SubnetworkLogConfig {
	switch how {
	case job.FlowLogsAll:
		return &compute.SubnetworkLogConfig{Enable: true, AggregationInterval: "INTERVAL_5_SEC", FlowSampling: 1, Metadata: "INCLUDE_ALL_METADATA"}
	case job.FlowLogsNone:
		return &compute.SubnetworkLogConfig{Enable: false, ForceSendFields: []string{"Enable"}}
	}
	return &compute.SubnetworkLogConfig{Enable: true, AggregationInterval: "INTERVAL_15_MIN", FlowSampling: 0.1, Metadata: "EXCLUDE_ALL_METADATA"}
}

func flowLogText(c *compute.SubnetworkLogConfig) string {
	if c == nil || !c.Enable {
		return "off"
	}
	return fmt.Sprintf("%.3g of flows, %s, %s", c.FlowSampling, c.AggregationInterval, c.Metadata)
}

func rangesText(all []*compute.SubnetworkSecondaryRange) string {
	var words []string
	for _, s := range all {
		words = append(words, s.RangeName+"="+s.IpCidrRange)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// address is a static external address in the job's region.
func (p *Provider) address(r *pipeline.Run, key string) pipeline.Resource {
	id := p.regional("addresses", name(r, key))
	return object[*compute.Address]{
		kind: p.addresses(), key: key, id: id,
		want: &compute.Address{Name: base(id), Description: r.Job.MarkText(key), AddressType: "EXTERNAL", NetworkTier: "PREMIUM"},
		see:  func(_ context.Context, x *compute.Address) (pipeline.Seen, error) { return addressSeen(x), nil },
		blockers: func(ctx context.Context, id string) (string, error) {
			x, err := p.addresses().get(ctx, id)
			if err != nil {
				return "", pipeline.Unless(err, pipeline.NotFound)
			}
			return users("the address", x.Users), nil
		},
	}.resource(p, r)
}

func addressSeen(x *compute.Address) pipeline.Seen {
	if x.Status == "RESERVING" {
		return pipeline.Seen{Status: pipeline.Pending, Reason: x.Status}
	}
	return pipeline.Seen{Reason: x.Status}
}

// users says what uses an object; "" if nothing does.
func users(what string, links []string) string {
	var names []string
	for _, l := range links {
		names = append(names, rel(l))
	}
	if len(names) == 0 {
		return ""
	}
	return what + " is used by " + strings.Join(names, ", ") + "; remove or change what uses it"
}
