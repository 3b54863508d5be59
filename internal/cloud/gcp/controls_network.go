package gcp

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
)

// network reads back the network that the job made; one that it only builds in is
// its owner's.
func (c *controls) network(ctx context.Context) error {
	if c.r.Job.Mode != job.ModeCreate || c.infra.NetworkID == "" {
		return nil
	}
	x, err := c.p.networks().lookup().Get(ctx, c.infra.NetworkID)
	if err != nil {
		return err
	}
	mode := subnetMode(x)
	c.same("NETG-01", "network is in custom mode", "custom", mode, "GCP-0010, CIS GCP 3.1")
	c.add("NETG-02", "network is no legacy network", "no", yesNo(mode == "legacy"), mode != "legacy", "CKV2_GCP_2, CIS GCP 3.2")
	return nil
}

// subnets reads back the job's own subnets.
func (c *controls) subnets(ctx context.Context) error {
	all, err := c.p.subnets().lookup().Owned(ctx)
	if err != nil {
		return err
	}
	var access, logs []string
	for _, s := range all {
		if s.Purpose == purposeProxy {
			continue
		}
		access = append(access, strconv.FormatBool(s.PrivateIpGoogleAccess))
		logs = append(logs, flowLogText(s.LogConfig))
	}
	if len(access) == 0 {
		return nil
	}
	c.same("NETG-03", "subnets reach Google's APIs privately", "true", agreed(access), "CKV_GCP_74, GCP-0075")
	if c.spec.FlowLogs != job.FlowLogsNone {
		c.same("NETG-05", "subnets log their flows", flowLogText(flowLogConfig(c.spec.FlowLogs)), agreed(logs), "GCP-0029, CIS GCP 3.10")
	}
	return nil
}

// firewalls reads back every rule of the network that the job made, whoever added
// it since.
func (c *controls) firewalls(ctx context.Context) error {
	if c.r.Job.Mode != job.ModeCreate || c.infra.NetworkID == "" {
		return nil
	}
	all, err := c.p.firewalls().all(ctx, "")
	if err != nil {
		return err
	}
	var ssh, rdp, wide, world, defaults, admin []string
	for _, f := range all {
		if rel(f.Network) != c.infra.NetworkID || f.Disabled || f.Direction == "EGRESS" || c.madeByCluster(f) {
			continue
		}
		if strings.HasPrefix(f.Name, "default-") {
			defaults = append(defaults, f.Name)
		}
		for _, a := range f.Allowed {
			if (opensPort(a, 22) || opensPort(a, 3389)) && sorted(f.SourceRanges) != iapRange {
				admin = append(admin, f.Name)
			}
			if openPorts(f) == "" {
				continue
			}
			if opensPort(a, 22) {
				ssh = append(ssh, f.Name)
			}
			if opensPort(a, 3389) {
				rdp = append(rdp, f.Name)
			}
			if len(a.Ports) == 0 || strings.Contains(strings.Join(a.Ports, ","), "-") {
				wide = append(wide, f.Name)
			}
			world = append(world, f.Name)
		}
	}
	none := func(id, name string, seen []string, source string) {
		c.same(id, name, "none", cmp.Or(agreed(seen), "none"), source)
	}
	none("NETG-06", "rules that open 22 to the internet", ssh, "GCP-0071, CIS GCP 3.6")
	none("NETG-07", "rules that open 3389 to the internet", rdp, "GCP-0070, CIS GCP 3.7")
	none("NETG-08", "rules that open all ports or ranges of them to the internet", wide, "CKV2_GCP_12, GCP-0072")
	none("NETG-09", "rules that let the internet in", world, "GCP-0027, CKV_GCP_75")
	none("NETG-10", "default rules", defaults, "GCP-0073, CKV2_GCP_18")
	none("NETG-12", "rules that open admin ports to others than Identity-Aware Proxy", admin, "CIS GCP 3.12")
	return nil
}

// opensPort reports whether what a rule allows includes a TCP port.
func opensPort(a *compute.FirewallAllowed, port int) bool {
	if a.IPProtocol != "all" && a.IPProtocol != "tcp" && a.IPProtocol != "6" {
		return false
	}
	if len(a.Ports) == 0 {
		return true
	}
	for _, p := range a.Ports {
		from, to, isRange := strings.Cut(p, "-")
		if !isRange {
			to = from
		}
		low, err1 := strconv.Atoi(from)
		high, err2 := strconv.Atoi(to)
		if err1 == nil && err2 == nil && low <= port && port <= high {
			return true
		}
	}
	return false
}

// nat reads back how the job's NAT logs.
func (c *controls) nat(ctx context.Context) error {
	all, err := c.p.routers().lookup().Owned(ctx)
	if err != nil {
		return err
	}
	var logs []string
	for _, x := range all {
		for _, n := range x.Nats {
			logs = append(logs, natLog(n))
		}
	}
	if len(logs) > 0 {
		c.same("NETG-19", "NAT logs what it cannot translate", "ERRORS_ONLY", agreed(logs), "Cloud NAT logging")
	}
	return nil
}

// peerings reads back the network's own halves.
func (c *controls) peerings(ctx context.Context) error {
	if c.r.Job.ResourceType != job.Network || len(c.infra.Peerings) == 0 {
		return nil
	}
	spec, err := c.r.Job.NetworkJob()
	if err != nil {
		return err
	}
	var seen []string
	for i, want := range spec.Peerings {
		ours, _ := c.p.sides(c.r, i, want.NetworkID)
		half, err := c.p.readHalf(ctx, ours)
		if err != nil {
			return err
		}
		for _, a := range c.p.peeringAspects(c.r, ours, half) {
			seen = append(seen, a.Seen)
		}
	}
	c.same("NETG-18", "peerings exchange custom routes or public addresses", "not exchanged", agreed(seen), "CIS AWS 6.6")
	return nil
}

// zones reads back how the job's public zones are signed.
func (c *controls) zones(ctx context.Context) error {
	if c.r.Job.ResourceType != job.Network || len(c.infra.DNSZones) == 0 {
		return nil
	}
	all, err := c.p.managedZones().Owned(ctx)
	if err != nil {
		return err
	}
	var states, algorithms []string
	for _, x := range all {
		if x.Visibility != job.ZonePublic {
			continue
		}
		states = append(states, dnssecState(x))
		if x.DnssecConfig != nil {
			for _, k := range x.DnssecConfig.DefaultKeySpecs {
				algorithms = append(algorithms, k.Algorithm)
			}
		}
	}
	if len(states) > 0 {
		c.same("NETG-13", "public zones are signed", "on", agreed(states), "CKV_GCP_16, CIS GCP 3.3")
		weak := strings.Contains(agreed(algorithms), "rsasha1")
		c.add("NETG-14", "keys of public zones", "none with rsasha1", cmp.Or(agreed(algorithms), "none yet"), !weak, "CKV_GCP_17, CIS GCP 3.4")
	}
	return nil
}
