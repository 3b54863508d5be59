package aws

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

type permissionIn struct {
	IpProtocol string
	FromPort   *int
	ToPort     *int
	IpRanges   []struct{ CidrIp, Description string }
	Ipv6Ranges []struct{ CidrIpv6, Description string }
	Groups     []struct {
		GroupID     string `q:"GroupId"`
		GroupName   string
		UserID      string `q:"UserId"`
		Description string
	} `q:"Groups|UserIdGroupPairs"`
	PrefixListIds []struct {
		PrefixListID string `q:"PrefixListId"`
		Description  string
	}
}

type authorizeIn struct {
	groupIn
	IpPermissions       []permissionIn
	IpProtocol          string
	FromPort            *int
	ToPort              *int
	CidrIp              string
	SecurityGroupRuleID []string `q:"SecurityGroupRuleId"`
	TagSpecification    []tagSpec
}

var protocols = map[string]string{"tcp": "tcp", "6": "tcp", "udp": "udp", "17": "udp", "icmp": "icmp", "1": "icmp", "icmpv6": "icmpv6", "58": "icmpv6", "-1": "-1", "all": "-1"}

// rules expands the permissions of a request into rules.
func (e *EC2) rules(sc *ec2Scope, g *SecurityGroup, in authorizeIn, egress bool) ([]*SecurityGroupRule, error) {
	perms := in.IpPermissions
	if in.IpProtocol != "" {
		p := permissionIn{IpProtocol: in.IpProtocol, FromPort: in.FromPort, ToPort: in.ToPort}
		if in.CidrIp != "" {
			p.IpRanges = append(p.IpRanges, struct{ CidrIp, Description string }{in.CidrIp, ""})
		}
		perms = append(perms, p)
	}
	if len(perms) == 0 {
		return nil, missing("ipPermissions")
	}
	var out []*SecurityGroupRule
	for _, p := range perms {
		base, err := p.base(g, egress)
		if err != nil {
			return nil, err
		}
		n := len(out)
		add := func(change func(*SecurityGroupRule)) {
			r := base
			change(&r)
			out = append(out, &r)
		}
		for _, x := range p.IpRanges {
			c, err := netip.ParsePrefix(x.CidrIp)
			if err != nil || !c.Addr().Is4() {
				return nil, refuse("InvalidParameterValue", "CIDR block %s is malformed", x.CidrIp)
			}
			add(func(r *SecurityGroupRule) { r.CidrIpv4, r.Description = c.Masked().String(), x.Description })
		}
		for _, x := range p.Ipv6Ranges {
			c, err := netip.ParsePrefix(x.CidrIpv6)
			if err != nil || !c.Addr().Is6() {
				return nil, refuse("InvalidParameterValue", "CIDR block %s is malformed", x.CidrIpv6)
			}
			add(func(r *SecurityGroupRule) { r.CidrIpv6, r.Description = c.Masked().String(), x.Description })
		}
		for _, x := range p.Groups {
			other, err := e.peerGroup(sc, g, x.GroupID, x.GroupName)
			if err != nil {
				return nil, err
			}
			add(func(r *SecurityGroupRule) {
				r.Referenced, r.Description = &referencedGroup{GroupID: other.GroupID, UserID: other.OwnerID}, x.Description
			})
		}
		for _, x := range p.PrefixListIds {
			add(func(r *SecurityGroupRule) { r.PrefixListID, r.Description = x.PrefixListID, x.Description })
		}
		if len(out) == n {
			return nil, missing("ipRanges")
		}
	}
	for _, r := range out {
		if !groupText.MatchString(r.Description) {
			return nil, refuse("InvalidParameterValue", "Invalid rule description. Valid descriptions are strings less than 256 characters from the following set:  a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*")
		}
	}
	return out, nil
}

func (p permissionIn) base(g *SecurityGroup, egress bool) (SecurityGroupRule, error) {
	r := SecurityGroupRule{GroupID: g.GroupID, GroupOwnerID: g.OwnerID, IsEgress: egress, FromPort: -1, ToPort: -1}
	proto, ok := protocols[strings.ToLower(p.IpProtocol)]
	if n, err := strconv.Atoi(p.IpProtocol); !ok && err == nil && n >= 0 && n <= 255 {
		proto, ok = p.IpProtocol, true
	}
	if !ok {
		return r, refuse("InvalidPermission.Malformed", "Unsupported IP protocol \"%s\"  - supported: [tcp, udp, icmp, -1]", p.IpProtocol)
	}
	r.Protocol = proto
	if proto == "tcp" || proto == "udp" {
		if p.FromPort == nil || p.ToPort == nil {
			return r, refuse("InvalidParameterValue", "Invalid value 'Must specify both from and to ports with TCP/UDP.' for portRange.")
		}
		if *p.FromPort < 0 || *p.ToPort > 65535 || *p.FromPort > *p.ToPort {
			return r, refuse("InvalidParameterValue", "Invalid TCP/UDP port range: %d - %d", *p.FromPort, *p.ToPort)
		}
	}
	if proto != "-1" && p.FromPort != nil {
		r.FromPort = *p.FromPort
	}
	if proto != "-1" && p.ToPort != nil {
		r.ToPort = *p.ToPort
	}
	return r, nil
}

// peerGroup finds the group that a rule refers to: one of the same VPC, or of a peered one.
func (e *EC2) peerGroup(sc *ec2Scope, g *SecurityGroup, id, name string) (*SecurityGroup, error) {
	for _, o := range sc.Groups {
		if o.GroupID == id || (id == "" && o.GroupName == name && o.VpcID == g.VpcID) {
			if o.VpcID == g.VpcID || e.peered(o.VpcID, g.VpcID) {
				return o, nil
			}
			return nil, refuse("InvalidGroup.NotFound", "You have specified two resources that belong to different networks.")
		}
	}
	return nil, noGroup(id)
}

func (e *EC2) authorize(egress bool) func(r *request, in authorizeIn) (any, error) {
	return func(r *request, in authorizeIn) (any, error) {
		sc := e.in(r.scope())
		g, err := sc.group(in.groupIn)
		if err != nil {
			return nil, err
		}
		tags, err := tagsFor(in.TagSpecification, "security-group-rule")
		if err != nil {
			return nil, err
		}
		rules, err := e.rules(sc, g, in, egress)
		if err != nil {
			return nil, err
		}
		have := sc.rulesOf(g.GroupID)
		count := 0
		for _, old := range have {
			if old.IsEgress == egress {
				count++
			}
			for _, rule := range rules {
				if rule.same(old) {
					return nil, refuse("InvalidPermission.Duplicate", "the specified rule \"%s\" already exists", rule.words())
				}
			}
		}
		for i, rule := range rules {
			if slices.ContainsFunc(rules[:i], rule.same) {
				return nil, refuse("InvalidParameterValue", "The same permission must not appear multiple times")
			}
		}
		if count+len(rules) > int(e.cloud.quota(r.scope(), "vpc", quotaRules)) {
			return nil, refuse("RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached.")
		}
		for _, rule := range rules {
			rule.RuleID, rule.meta = e.cloud.hex17("sgr-"), e.fresh(tags)
			rule.RuleArn = arn("ec2", sc.Region, sc.Account, "security-group-rule/"+rule.RuleID)
			sc.Rules[rule.RuleID] = rule
			r.Touch(rule.RuleID)
		}
		return struct {
			Return bool                 `ec2:"return"`
			Rules  []*SecurityGroupRule `ec2:"securityGroupRuleSet"`
		}{true, rules}, nil
	}
}

func (e *EC2) revoke(egress bool) func(r *request, in authorizeIn) (any, error) {
	return func(r *request, in authorizeIn) (any, error) {
		sc := e.in(r.scope())
		g, err := sc.group(in.groupIn)
		if err != nil {
			return nil, err
		}
		var gone []*SecurityGroupRule
		for _, id := range in.SecurityGroupRuleID {
			rule := sc.Rules[id]
			if rule == nil || rule.GroupID != g.GroupID || rule.IsEgress != egress {
				return nil, noRule(id)
			}
			gone = append(gone, rule)
		}
		if len(in.SecurityGroupRuleID) == 0 {
			rules, err := e.rules(sc, g, in, egress)
			if err != nil {
				return nil, err
			}
			for _, want := range rules {
				i := slices.IndexFunc(sc.rulesOf(g.GroupID), want.same)
				if i < 0 {
					return nil, refuse("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
				}
				gone = append(gone, sc.rulesOf(g.GroupID)[i])
			}
		}
		for _, rule := range gone {
			delete(sc.Rules, rule.RuleID)
		}
		return struct {
			Return  bool                 `ec2:"return"`
			Revoked []*SecurityGroupRule `ec2:"revokedSecurityGroupRuleSet"`
		}{true, gone}, nil
	}
}

type describeRulesIn struct {
	RuleID []string `q:"SecurityGroupRuleId"`
	page
}

func (e *EC2) describeRules(r *request, in describeRulesIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Rules, in.RuleID, in.Filter, noRule)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	return struct {
		Rules []*SecurityGroupRule `ec2:"securityGroupRuleSet"`
		Next  string               `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

type modifyRulesIn struct {
	GroupID           string `q:"GroupId"`
	SecurityGroupRule []struct {
		RuleID string `q:"SecurityGroupRuleId"`
		Rule   struct {
			IpProtocol        string
			FromPort          *int
			ToPort            *int
			CidrIpv4          string
			CidrIpv6          string
			PrefixListID      string `q:"PrefixListId"`
			ReferencedGroupID string `q:"ReferencedGroupId"`
			Description       string
		} `q:"SecurityGroupRule"`
	}
}

func (e *EC2) modifyRules(r *request, in modifyRulesIn) (any, error) {
	sc := e.in(r.scope())
	g, err := sc.group(groupIn{GroupID: in.GroupID})
	if err != nil {
		return nil, err
	}
	for _, u := range in.SecurityGroupRule {
		rule := sc.Rules[u.RuleID]
		if rule == nil || rule.GroupID != g.GroupID {
			return nil, noRule(u.RuleID)
		}
		base, err := permissionIn{IpProtocol: u.Rule.IpProtocol, FromPort: u.Rule.FromPort, ToPort: u.Rule.ToPort}.base(g, rule.IsEgress)
		if err != nil {
			return nil, err
		}
		base.RuleID, base.RuleArn, base.meta = rule.RuleID, rule.RuleArn, rule.meta
		base.CidrIpv4, base.CidrIpv6, base.PrefixListID, base.Description = u.Rule.CidrIpv4, u.Rule.CidrIpv6, u.Rule.PrefixListID, u.Rule.Description
		if u.Rule.ReferencedGroupID != "" {
			other, err := e.peerGroup(sc, g, u.Rule.ReferencedGroupID, "")
			if err != nil {
				return nil, err
			}
			base.Referenced = &referencedGroup{GroupID: other.GroupID, UserID: other.OwnerID}
		}
		*rule = base
	}
	return returned{true}, nil
}
