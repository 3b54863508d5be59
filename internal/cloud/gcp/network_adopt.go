package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// AdoptNetwork reads the network that an adopt job points at into InfraConfig,
// and notes what is risky about it. Nothing of it is changed, now or later.
func (p *Provider) AdoptNetwork(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = view(ctx, r)
	named, err := adopted(r.Job)
	if err != nil {
		return err
	}
	id := p.networkID(named)
	net, err := p.existing(ctx, named)
	switch {
	case pipeline.Is(err, pipeline.NotFound) && r.Mode == pipeline.Verify:
		r.AddDrift(pipeline.Drift{Kind: kindNetwork, Key: "adopted", ID: id, Attr: "exists", Wanted: "yes", Seen: "no"})
		return nil
	case pipeline.Is(err, pipeline.NotFound):
		return pipeline.Fatal("not-found", fmt.Sprintf("the network %s does not exist", id), "Name a network of this project, or give its path.").On("config.spec.adopt").From(err)
	case err != nil:
		return err
	}
	if owner, _ := textMark(net.network.Description); owner != "" && owner != r.Job.ID {
		return pipeline.Fatal("owned", fmt.Sprintf("the network %s belongs to job %s", id, owner), "Use that job, or delete it first.").On("config.spec.adopt")
	}
	firewalls, err := p.firewalls().all(ctx, "")
	if err != nil && !pipeline.Is(err, pipeline.Denied) {
		return err
	}
	firewalls = slices.DeleteFunc(firewalls, func(f *compute.Firewall) bool { return rel(f.Network) != id })
	if r.Mode == pipeline.Verify {
		p.adoptedDrift(r, id, net)
		return nil
	}
	ic := &r.Job.Config.InfraConfig
	ic.NetworkID, ic.NetworkName, ic.NetworkCIDR = id, net.network.Name, ranges(net.subnets)
	ic.Subnets, ic.PrivateSubnetIDs = subnetInfos(net.subnets), nil
	for _, s := range net.subnets {
		if base(s.Region) == p.region && (s.Purpose == "" || s.Purpose == purposeVMs) {
			ic.PrivateSubnetIDs = append(ic.PrivateSubnetIDs, rel(s.SelfLink))
		}
	}
	ic.Peerings = nil
	for _, peering := range net.network.Peerings {
		ic.Peerings = append(ic.Peerings, job.PeeringInfo{NetworkID: rel(peering.Network), ID: peeringID(id, peering.Name), State: peering.State})
	}
	ic.NATGatewayIDs = nil
	for _, x := range net.routers {
		if len(x.Nats) > 0 {
			ic.NATGatewayIDs = append(ic.NATGatewayIDs, rel(x.SelfLink))
		}
	}
	ic.Warnings = append(ic.Warnings, p.risks(net, firewalls)...)
	return nil
}

// adopted is the network that an adopt job names.
func adopted(j *job.Job) (string, error) {
	spec, err := j.NetworkJob()
	if err != nil {
		return "", err
	}
	if spec.Adopt != nil && len(spec.Adopt.IDs) == 1 {
		return spec.Adopt.IDs[0], nil
	}
	if spec.Adopt != nil && spec.Adopt.Name != "" {
		return spec.Adopt.Name, nil
	}
	return "", pipeline.Fatal("invalid", "the job does not say what to adopt", "Name one network in spec.adopt.ids.").On("config.spec.adopt")
}

func subnetInfos(subnets []*compute.Subnetwork) []job.SubnetInfo {
	var out []job.SubnetInfo
	for _, s := range subnets {
		out = append(out, job.SubnetInfo{ID: rel(s.SelfLink), Name: s.Name, CIDR: s.IpCidrRange})
	}
	return out
}

// adoptedDrift tells what has changed of an adopted network since it was read.
func (p *Provider) adoptedDrift(r *pipeline.Run, id string, net existingNetwork) {
	was, is := map[string]string{}, map[string]string{}
	for _, s := range r.Job.Config.InfraConfig.Subnets {
		was[s.ID] = s.CIDR
	}
	for _, s := range subnetInfos(net.subnets) {
		is[s.ID] = s.CIDR
		if was[s.ID] != s.CIDR {
			r.AddDrift(pipeline.Drift{Kind: kindSubnet, Key: s.Name, ID: s.ID, Attr: "range", Wanted: was[s.ID], Seen: s.CIDR})
		}
	}
	for subnet, cidr := range was {
		if is[subnet] == "" {
			r.AddDrift(pipeline.Drift{Kind: kindSubnet, Key: base(subnet), ID: subnet, Attr: "range", Wanted: cidr, Seen: "gone"})
		}
	}
	if was := r.Job.Config.InfraConfig.NetworkID; was != id {
		r.AddDrift(pipeline.Drift{Kind: kindNetwork, Key: "adopted", ID: id, Attr: "network", Wanted: was, Seen: id})
	}
}

// risks is what a person should know of a network that somebody else made.
func (p *Provider) risks(net existingNetwork, firewalls []*compute.Firewall) []string {
	var out []string
	name := net.network.Name
	switch subnetMode(net.network) {
	case "legacy":
		out = append(out, "network "+name+" is a legacy network without subnets")
	case "auto":
		out = append(out, "network "+name+" is in auto mode: a subnet of every region is in it, with ranges that other auto networks have too")
	}
	if name == "default" {
		out = append(out, "network default has rules that let in SSH and RDP from anywhere, unless somebody removed them")
	}
	for _, f := range firewalls {
		if open := openPorts(f); open != "" {
			out = append(out, fmt.Sprintf("firewall rule %s lets in %s from anywhere", f.Name, open))
		}
	}
	for _, s := range net.subnets {
		if base(s.Region) != p.region || s.Purpose != "" && s.Purpose != purposeVMs {
			continue
		}
		if flowLogText(s.LogConfig) == "off" {
			out = append(out, "subnet "+s.Name+" has no flow logs")
		}
		if !s.PrivateIpGoogleAccess {
			out = append(out, "subnet "+s.Name+" has no private Google access: machines without an external address do not reach Google's APIs except through NAT")
		}
		if net.nat(rel(s.SelfLink)) == nil {
			out = append(out, "subnet "+s.Name+" has no Cloud NAT: machines without an external address have no way out")
		}
	}
	for _, peering := range net.network.Peerings {
		if peering.ExportCustomRoutes || peering.ImportCustomRoutes {
			out = append(out, "peering "+peering.Name+" exchanges custom routes")
		}
	}
	return out
}

// openPorts is what a rule lets in from the whole internet; "" if nothing.
func openPorts(f *compute.Firewall) string {
	if f.Disabled || f.Direction == "EGRESS" || !slices.ContainsFunc(f.SourceRanges, everybody) {
		return ""
	}
	var words []string
	for _, a := range f.Allowed {
		words = append(words, strings.TrimSpace(a.IPProtocol+" "+strings.Join(a.Ports, ",")))
	}
	return strings.Join(words, "; ")
}

func everybody(cidr string) bool { return cidr == "0.0.0.0/0" || cidr == "::/0" }
