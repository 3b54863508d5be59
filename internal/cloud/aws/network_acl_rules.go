package aws

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/job"
)

// An aclRule is one rule of a network ACL. Of a direction's rules, the one with
// the lowest number that fits decides ("Network ACL rules").
type aclRule struct {
	number        int32
	egress, allow bool
	proto         string // as protoAll and so on
	from, to      int32  // ports, or the type and code of ICMP
	cidr          string
}

// Protocols as network ACLs number them.
const (
	protoAll  = "-1"
	protoICMP = "1"
	protoTCP  = "6"
	protoUDP  = "17"
)

// Where the rules of the inner subnets begin, by what they are for; each use has
// room for a hundred.
const (
	aclOwn     = 100 // the network's own ranges
	aclPeers   = 200 // the ranges of its peers
	aclClients = 300 // a load balancer's clients, who arrive with their own addresses
	aclShut    = 400 // what is never let in
	aclReturns = 500 // answers from the internet
	aclRoom    = 100

	// aclLast is the rule that every network ACL ends with and nobody can change:
	// it denies.
	aclLast = 32767

	ssh, rdp   = 22, 3389
	unreserved = 1024 // the first port that answers may come to

	// aclPeerRules keeps the rules within the 20 a direction that an account has
	// at first ("Amazon VPC quotas").
	aclPeerRules = 8
)

// privateBlocks are the ranges that nobody on the internet has (RFC 1918 and 6598).
var privateBlocks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
}

func (x aclRule) String() string {
	action, toward := "deny", "from"
	if x.allow {
		action = "allow"
	}
	if x.egress {
		toward = "to"
	}
	what := "protocol " + x.proto
	switch x.proto {
	case protoAll:
		what = "all"
	case protoTCP, protoUDP:
		what = map[string]string{protoTCP: "tcp", protoUDP: "udp"}[x.proto] + fmt.Sprintf(" %d", x.from)
		if x.to != x.from {
			what += fmt.Sprintf("-%d", x.to)
		}
	case protoICMP:
		what = fmt.Sprintf("icmp type %d code %d", x.from, x.to)
	}
	return fmt.Sprintf("%s %s %s %s", action, what, toward, x.cidr)
}

// at is a rule's place: its direction and its number.
func (x aclRule) at() string {
	if x.egress {
		return fmt.Sprintf("outbound rule %d", x.number)
	}
	return fmt.Sprintf("inbound rule %d", x.number)
}

func allowAll(number int32, cidr string) aclRule {
	return aclRule{number: number, allow: true, proto: protoAll, cidr: cidr}
}

// placed gives each range a rule of a group that lets it in: the one that it has
// already, or the next that is free.
func placed(group int32, ranges []string, have []aclRule) []aclRule {
	taken, at := map[int32]bool{}, map[string]int32{}
	for _, x := range have {
		if x.egress || x.number < group || x.number >= group+aclRoom {
			continue
		}
		taken[x.number] = true
		if _, twice := at[x.cidr]; !twice && x == allowAll(x.number, x.cidr) {
			at[x.cidr] = x.number
		}
	}
	var out []aclRule
	for _, cidr := range ranges {
		n, ok := at[cidr]
		if !ok {
			for n = group; taken[n]; n++ {
			}
			taken[n], at[cidr] = true, n
		}
		out = append(out, allowAll(n, cidr))
	}
	return out
}

// innerRules are what the private and database subnets let in whatever is
// attached to the network (control NETA-07): their own network, and what answers
// from the internet need, which a network ACL cannot tell from questions. Out goes
// everything; the security groups say more.
func innerRules(own []string, have []aclRule) []aclRule {
	return append(placed(aclOwn, own, have),
		aclRule{number: aclShut, proto: protoTCP, from: ssh, to: ssh, cidr: anywhere},
		aclRule{number: aclShut + 1, proto: protoTCP, from: rdp, to: rdp, cidr: anywhere},
		aclRule{number: aclReturns, allow: true, proto: protoTCP, from: unreserved, to: 65535, cidr: anywhere},
		aclRule{number: aclReturns + 1, allow: true, proto: protoUDP, from: unreserved, to: 65535, cidr: anywhere},
		// "Destination unreachable", by which a path says how large a packet may be.
		aclRule{number: aclReturns + 2, allow: true, proto: protoICMP, from: 3, to: -1, cidr: anywhere},
		aclRule{number: 100, egress: true, allow: true, proto: protoAll, cidr: anywhere},
	)
}

// peerRules let the peers in that the job has joined its network with. More
// ranges than there is room for are let in by the private blocks that hold them.
func peerRules(ic *job.InfraConfig, have []aclRule) []aclRule {
	ranges := peerRangesOf(ic)
	if len(ranges) > aclPeerRules {
		for i, text := range ranges {
			if block := privateBlock(text); block != "" {
				ranges[i] = block
			}
		}
		slices.Sort(ranges)
		ranges = slices.Compact(ranges)
	}
	return placed(aclPeers, ranges, have)
}

// peerRangesOf are the recorded ranges of the peers, each once.
func peerRangesOf(ic *job.InfraConfig) []string {
	var ranges []string
	for _, peer := range ic.Peerings {
		ranges = append(ranges, peer.CIDRs...)
	}
	slices.Sort(ranges)
	return slices.Compact(ranges)
}

func privateBlock(text string) string {
	for _, b := range privateBlocks {
		if covers(b, text) {
			return b.String()
		}
	}
	return ""
}

// covers reports whether a block holds a range whole.
func covers(block netip.Prefix, text string) bool {
	p, err := netip.ParsePrefix(text)
	return err == nil && p.Bits() >= block.Bits() && block.Contains(p.Addr())
}

// clientRules let the clients of a load balancer in. A network load balancer hands
// their packets on with their own addresses, so the VMs' port has to be open to
// the internet for a public one ("Target groups for your Network Load Balancers");
// its health checks come from the network itself, and so do the clients that the
// group of an internal one admits.
func clientRules(lb job.LoadBalancer) []aclRule {
	port := int32(lb.Port)
	if lb.Type != job.LBTCP || lb.Scheme != job.SchemePublic || port >= unreserved && port != rdp {
		return nil
	}
	return []aclRule{{number: aclClients, allow: true, proto: protoTCP, from: port, to: port, cidr: anywhere}}
}

// attachedClients are the client rules while a load balancer is attached.
func attachedClients(j *job.Job) []aclRule {
	lb, err := j.LoadBalancer()
	if err != nil || lb == nil || j.Config.InfraConfig.LoadBalancerID == "" {
		return nil
	}
	return clientRules(*lb)
}

// rulesOf are the rules of a network ACL, in the order in which they are tried.
func rulesOf(a ec2types.NetworkAcl) []aclRule {
	var out []aclRule
	for _, e := range a.Entries {
		x := aclRule{
			number: aws.ToInt32(e.RuleNumber), egress: aws.ToBool(e.Egress), allow: e.RuleAction == ec2types.RuleActionAllow,
			proto: aws.ToString(e.Protocol), cidr: or(aws.ToString(e.CidrBlock), aws.ToString(e.Ipv6CidrBlock)),
		}
		if x.number >= aclLast {
			continue
		}
		if e.PortRange != nil && (x.proto == protoTCP || x.proto == protoUDP) {
			x.from, x.to = aws.ToInt32(e.PortRange.From), aws.ToInt32(e.PortRange.To)
		}
		if e.IcmpTypeCode != nil && x.proto == protoICMP {
			x.from, x.to = aws.ToInt32(e.IcmpTypeCode.Type), aws.ToInt32(e.IcmpTypeCode.Code)
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b aclRule) int { return cmp.Compare(a.number, b.number) })
	return out
}

// admitted lists what the rules let in from the internet that no private subnet
// should: the administrators' ports, those of FTP, and all ports at once. Ranges
// of inside are not the internet.
func admitted(rules []aclRule, inside []netip.Prefix) []string {
	var found []string
	for _, port := range []int32{20, 21, ssh, rdp} {
		for _, world := range []string{anywhere, "::/0"} {
			if admits(rules, port, world, inside) {
				found = append(found, fmt.Sprint(port))
				break
			}
		}
	}
	for _, x := range rules {
		every := x.proto == protoAll || x.proto == protoTCP && x.from == 0 && x.to == 65535
		if every && x.allow && !x.egress && !slices.ContainsFunc(inside, func(b netip.Prefix) bool { return covers(b, x.cidr) }) {
			found = append(found, "all ports from "+x.cidr)
		}
	}
	return found
}

// admits reports whether a TCP port is open to anybody outside, of IPv4 or IPv6 as
// world says.
func admits(rules []aclRule, port int32, world string, inside []netip.Prefix) bool {
	everybody := netip.MustParsePrefix(world)
	for _, x := range rules {
		p, err := netip.ParsePrefix(x.cidr)
		fits := x.proto == protoAll || x.proto == protoTCP && x.from <= port && port <= x.to
		if x.egress || !fits || err != nil || p.Addr().Is4() != everybody.Addr().Is4() || slices.ContainsFunc(inside, func(b netip.Prefix) bool { return covers(b, x.cidr) }) {
			continue
		}
		if x.allow {
			return true
		}
		if p == everybody {
			return false
		}
	}
	return false
}
