package job

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

var (
	zoneNameRE  = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	accountIDRE = regexp.MustCompile(`^[0-9]{12}$`)
)

// docker0 is the range that Docker takes inside the VMs by default.
var docker0 = netip.MustParsePrefix("172.17.0.0/16")

// validateVMNetwork checks the network of a VM job in mode create.
func (j *Job) validateVMNetwork(n NetworkSpec, inv *Invalid) {
	const at = "config.spec.network."
	j.validateNetwork(n, inv)
	if n.NAT == NATNone {
		inv.add(at+"nat", "VMs without egress cannot install anything", "use single or per_zone")
	}
	if !slices.Equal(n.Subnets, []string{TierPublic, TierPrivate}) {
		inv.add(at+"subnets", "the tiers of a VM job's network are public and private", "leave it out, or make the network by a job of its own and name it")
	}
	if p, err := netip.ParsePrefix(n.CIDR); err == nil && p.Overlaps(docker0) {
		inv.add(at+"cidr", n.CIDR+" overlaps 172.17.0.0/16, which Docker uses inside the VMs", "use another range")
	}
}

// validateNetworkJob checks the spec of a network job.
func (j *Job) validateNetworkJob(s NetworkJobSpec, inv *Invalid) {
	const at = "config.spec."
	if j.Mode != ModeAdopt && s.Adopt != nil {
		inv.add(at+"adopt", "is only for mode adopt", "change the mode or leave it out")
	}
	if j.Mode != ModeCreateInExisting && s.Existing != nil {
		inv.add(at+"existing", "is only for mode create_in_existing", "change the mode or leave it out")
	}
	switch j.Mode {
	case ModeAdopt:
		if s.Adopt == nil || len(s.Adopt.IDs)+min(len(s.Adopt.Name), 1) != 1 {
			inv.add(at+"adopt", "does not say what to adopt", "give one network: its ID in ids, or its name")
		}
		if len(s.Peerings)+len(s.DNSZones) > 0 {
			inv.add(at+"peerings", "an adopt job makes nothing", "leave peerings and dnsZones out")
		}
		return
	case ModeCreateInExisting:
		if s.Existing == nil || s.Existing.NetworkID == "" {
			inv.add(at+"existing.networkId", "is missing", "name the network to build in")
		}
		if len(s.Network.SecondaryCIDRs) > 0 {
			inv.add(at+"network.secondaryCidrs", "the named network is not changed", "leave it out")
		}
	}
	j.validateNetwork(s.Network, inv)
	j.validatePeerings(s.Peerings, inv)
	seen := map[string]bool{}
	for i, z := range s.DNSZones {
		field := fmt.Sprintf("%sdnsZones[%d].", at, i)
		if len(z.Name) > 253 || !zoneNameRE.MatchString(z.Name) {
			inv.add(field+"name", fmt.Sprintf("%.80q is not a zone's name", z.Name), "use one such as shop.example.com, in lower case and without a dot at the end")
		}
		if z.Visibility != ZonePrivate && z.Visibility != ZonePublic {
			inv.add(field+"visibility", fmt.Sprintf("%q is not a visibility", z.Visibility), "use private or public")
		}
		if seen[z.Name+z.Visibility] {
			inv.add(field+"name", z.Name+" is there twice", "leave one out")
		}
		seen[z.Name+z.Visibility] = true
	}
}

func (j *Job) validatePeerings(all []Peering, inv *Invalid) {
	seen := map[string]bool{}
	for i, p := range all {
		field := fmt.Sprintf("config.spec.peerings[%d].", i)
		if p.NetworkID == "" {
			inv.add(field+"networkId", "is missing", "name the network to peer with")
		}
		key := strings.Join([]string{p.NetworkID, p.Region, p.AccountID, p.CloudAccountID, p.ResourceGroup}, "|")
		if seen[key] {
			inv.add(field+"networkId", p.NetworkID+" is there twice", "leave one out")
		}
		seen[key] = true
		if p.AccountID != "" && (j.Provider != AWS || !accountIDRE.MatchString(p.AccountID)) {
			inv.add(field+"accountId", fmt.Sprintf("%q is not the number of an AWS account", p.AccountID), "use its 12 digits; at other clouds the network's ID says where it is")
		}
		if p.ResourceGroup != "" && j.Provider != Azure {
			inv.add(field+"resourceGroup", "is a thing of Azure", "leave it out")
		}
		for k, c := range p.CIDRs {
			if fault := rangeFault(c); fault != "" {
				inv.add(fmt.Sprintf("%scidrs[%d]", field, k), fault, "use one such as 10.60.0.0/16")
			}
		}
		if len(p.CIDRs) > 0 && j.Provider != AWS {
			inv.add(field+"cidrs", "this cloud routes to every subnet of a peer by itself", "leave it out")
		}
	}
}

// validateNetwork checks what holds for a network of either family.
func (j *Job) validateNetwork(n NetworkSpec, inv *Invalid) {
	const at = "config.spec.network."
	if n.CIDR != "" {
		j.validateCIDR(n.CIDR, inv)
	}
	for i, c := range n.SecondaryCIDRs {
		if fault := rangeFault(c); fault != "" {
			inv.add(fmt.Sprintf("%ssecondaryCidrs[%d]", at, i), fault, "use one such as 100.64.0.0/16")
		}
	}
	if n.Zones < 2 || n.Zones > 3 {
		inv.add(at+"zones", fmt.Sprintf("is %d", n.Zones), "use 2 or 3")
	}
	if !slices.Contains([]string{NATNone, NATSingle, NATPerZone}, n.NAT) {
		inv.add(at+"nat", fmt.Sprintf("%q is not a NAT shape", n.NAT), "use none, single or per_zone")
	}
	if !slices.Contains([]string{FlowLogsRejected, FlowLogsAll, FlowLogsNone}, n.FlowLogs) {
		inv.add(at+"flowLogs", fmt.Sprintf("%q is not a way to log flows", n.FlowLogs), "use rejected, all or none")
	}
	j.validateTiers(n, inv)
	j.validateCloudOnly(n, inv)
}

func (j *Job) validateCIDR(cidr string, inv *Invalid) {
	const field = "config.spec.network.cidr"
	p, err := netip.ParsePrefix(cidr)
	switch fault := rangeFault(cidr); {
	case err == nil && p.Masked() != p:
		inv.add(field, cidr+" has host bits set", "use "+p.Masked().String())
	case fault != "":
		inv.add(field, fault, "use one such as 10.40.0.0/16")
	// A VPC takes /16 to /28; below /24 the subnets of three zones no longer
	// hold a load balancer (8 free addresses each) beside the VMs.
	case p.Bits() < 16 || p.Bits() > 24:
		inv.add(field, fmt.Sprintf("%s is a /%d", cidr, p.Bits()), "use a /16 to /24, so that the subnets of every zone fit")
	case !privateRange(p):
		inv.add(field, cidr+" is not a private range", "use a part of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10")
	}
}

func (j *Job) validateTiers(n NetworkSpec, inv *Invalid) {
	const field = "config.spec.network.subnets"
	for i, tier := range n.Subnets {
		if !slices.Contains([]string{TierPublic, TierPrivate, TierDatabase}, tier) {
			inv.add(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%q is not a tier", tier), "use public, private and database")
		}
		if slices.Contains(n.Subnets[:i], tier) {
			inv.add(fmt.Sprintf("%s[%d]", field, i), tier+" is there twice", "leave one out")
		}
	}
	if j.Provider == AWS && j.Mode == ModeCreate && n.NAT != NATNone && !slices.Contains(n.Subnets, TierPublic) {
		inv.add(field, "a NAT gateway stands in a public subnet, and there is none", "add public, or set nat: none")
	}
}

// validateCloudOnly checks the fields that only some clouds have.
func (j *Job) validateCloudOnly(n NetworkSpec, inv *Invalid) {
	const at = "config.spec.network."
	only := func(field string, given bool, clouds ...Provider) {
		if given && !slices.Contains(clouds, j.Provider) {
			inv.add(at+field, fmt.Sprintf("is not something that %s has", j.Provider), "leave it out")
		}
	}
	only("secondaryCidrs", len(n.SecondaryCIDRs) > 0, AWS, Azure)
	only("interfaceEndpoints", len(n.InterfaceEndpoints) > 0, AWS)
	only("secondaryRanges", len(n.SecondaryRanges) > 0, GCP)
	only("privateServices", n.PrivateServices != nil, GCP)
	if j.Provider == Azure && n.FlowLogs != FlowLogsNone {
		inv.add(at+"flowLogs", "VNet flow logs need a storage account, which this version does not make", "leave it out")
	}
	for i, e := range n.InterfaceEndpoints {
		if e != "ssm" {
			inv.add(fmt.Sprintf("%sinterfaceEndpoints[%d]", at, i), fmt.Sprintf("%q is not a service that an endpoint is made for", e), "use ssm")
		}
	}
	for i, r := range n.SecondaryRanges {
		if !nameRE.MatchString(r.Name) {
			inv.add(fmt.Sprintf("%ssecondaryRanges[%d].name", at, i), fmt.Sprintf("%q is not a name", r.Name), "use 1 to 63 of a-z, 0-9 and hyphen, starting with a letter")
		}
		if fault := rangeFault(r.CIDR); r.CIDR != "" && fault != "" {
			inv.add(fmt.Sprintf("%ssecondaryRanges[%d].cidr", at, i), fault, "use one such as 10.60.0.0/16, or leave it out")
		}
	}
	if s := n.PrivateServices; s != nil && s.CIDR != "" {
		if fault := rangeFault(s.CIDR); fault != "" {
			inv.add(at+"privateServices.cidr", fault, "use one such as 10.70.0.0/20, or leave it out")
		} else if p := netip.MustParsePrefix(s.CIDR); p.Bits() > 24 {
			inv.add(at+"privateServices.cidr", fmt.Sprintf("%s is a /%d", s.CIDR, p.Bits()), "use a /24 or larger")
		}
	}
}

// rangeFault says what is wrong with an IPv4 range; "" if nothing.
func rangeFault(cidr string) string {
	p, err := netip.ParsePrefix(cidr)
	switch {
	case err != nil || !p.Addr().Is4():
		return fmt.Sprintf("%.40q is not an IPv4 range", cidr)
	case p.Masked() != p:
		return cidr + " has host bits set; its range is " + p.Masked().String()
	}
	return ""
}

func privateRange(p netip.Prefix) bool {
	for _, r := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"} {
		pr := netip.MustParsePrefix(r)
		if pr.Contains(p.Addr()) && p.Bits() >= pr.Bits() {
			return true
		}
	}
	return false
}
