package aws

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// SecurityGroup is a firewall; its rules are objects of their own.
type SecurityGroup struct {
	OwnerID     string `ec2:"ownerId"`
	GroupID     string `ec2:"groupId"`
	GroupName   string `ec2:"groupName"`
	GroupArn    string `ec2:"securityGroupArn,omitempty"`
	Description string `ec2:"groupDescription"`
	VpcID       string `ec2:"vpcId"`
	meta
}

func (g *SecurityGroup) ident() string { return g.GroupID }
func (g *SecurityGroup) kind() string  { return "security-group" }
func (g *SecurityGroup) placed() place {
	return place{"", []string{g.VpcID}, false}
}

func (g *SecurityGroup) attr(name string) ([]string, bool) {
	v := map[string]string{"group-id": g.GroupID, "group-name": g.GroupName, "description": g.Description, "vpc-id": g.VpcID, "owner-id": g.OwnerID}
	s, ok := v[name]
	return []string{s}, ok
}

type referencedGroup struct {
	GroupID string `ec2:"groupId"`
	UserID  string `ec2:"userId"`
	VpcID   string `ec2:"vpcId,omitempty"`
}

// SecurityGroupRule lets some traffic in or out.
type SecurityGroupRule struct {
	RuleID       string           `ec2:"securityGroupRuleId"`
	RuleArn      string           `ec2:"securityGroupRuleArn,omitempty"`
	GroupID      string           `ec2:"groupId"`
	GroupOwnerID string           `ec2:"groupOwnerId"`
	IsEgress     bool             `ec2:"isEgress"`
	Protocol     string           `ec2:"ipProtocol"`
	FromPort     int              `ec2:"fromPort"`
	ToPort       int              `ec2:"toPort"`
	CidrIpv4     string           `ec2:"cidrIpv4,omitempty"`
	CidrIpv6     string           `ec2:"cidrIpv6,omitempty"`
	PrefixListID string           `ec2:"prefixListId,omitempty"`
	Referenced   *referencedGroup `ec2:"referencedGroupInfo"`
	Description  string           `ec2:"description,omitempty"`
	meta
}

func (r *SecurityGroupRule) ident() string { return r.RuleID }
func (r *SecurityGroupRule) kind() string  { return "security-group-rule" }
func (r *SecurityGroupRule) placed() place {
	return place{"", []string{r.GroupID}, false}
}

func (r *SecurityGroupRule) attr(name string) ([]string, bool) {
	switch name {
	case "security-group-rule-id":
		return []string{r.RuleID}, true
	case "group-id":
		return []string{r.GroupID}, true
	}
	return nil, false
}

// same says whether two rules let the same traffic through: what a group can hold only once.
func (r *SecurityGroupRule) same(o *SecurityGroupRule) bool {
	return r.GroupID == o.GroupID && r.IsEgress == o.IsEgress && r.Protocol == o.Protocol && r.FromPort == o.FromPort && r.ToPort == o.ToPort && r.peer() == o.peer()
}

func (r *SecurityGroupRule) peer() string {
	if r.Referenced != nil {
		return r.Referenced.GroupID
	}
	return r.CidrIpv4 + r.CidrIpv6 + r.PrefixListID
}

// words describes a rule as the refusal of a duplicate does.
func (r *SecurityGroupRule) words() string {
	if r.Protocol == "-1" {
		return fmt.Sprintf("peer: %s, ALL, ALLOW", r.peer())
	}
	return fmt.Sprintf("peer: %s, %s, from port: %d, to port: %d, ALLOW", r.peer(), strings.ToUpper(r.Protocol), r.FromPort, r.ToPort)
}

// A permission is some rules with the same protocol and ports, as DescribeSecurityGroups shows them.
type permission struct {
	Protocol string        `ec2:"ipProtocol"`
	FromPort *int          `ec2:"fromPort"`
	ToPort   *int          `ec2:"toPort"`
	Groups   []groupPair   `ec2:"groups"`
	Ranges   []ipRange     `ec2:"ipRanges"`
	Ranges6  []ip6Range    `ec2:"ipv6Ranges"`
	Prefixes []prefixRange `ec2:"prefixListIds"`
}

type groupPair struct {
	UserID      string `ec2:"userId"`
	GroupID     string `ec2:"groupId"`
	Description string `ec2:"description,omitempty"`
}
type ipRange struct {
	Cidr        string `ec2:"cidrIp"`
	Description string `ec2:"description,omitempty"`
}
type ip6Range struct {
	Cidr        string `ec2:"cidrIpv6"`
	Description string `ec2:"description,omitempty"`
}
type prefixRange struct {
	ID          string `ec2:"prefixListId"`
	Description string `ec2:"description,omitempty"`
}

type shownGroup struct {
	SecurityGroup
	Ingress []*permission `ec2:"ipPermissions"`
	Egress  []*permission `ec2:"ipPermissionsEgress"`
}

func (sc *ec2Scope) rulesOf(groupID string) []*SecurityGroupRule {
	var out []*SecurityGroupRule
	for _, r := range sc.Rules {
		if r.GroupID == groupID {
			out = append(out, r)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Seq != out[j].Seq {
			return out[i].Seq < out[j].Seq
		}
		return out[i].RuleID < out[j].RuleID
	})
	return out
}

func (sc *ec2Scope) showGroup(g *SecurityGroup) shownGroup {
	d := shownGroup{SecurityGroup: *g}
	d.GroupArn = arn("ec2", sc.Region, sc.Account, "security-group/"+g.GroupID)
	index := map[string]*permission{}
	for _, r := range sc.rulesOf(g.GroupID) {
		key := fmt.Sprint(r.IsEgress, r.Protocol, r.FromPort, r.ToPort)
		p := index[key]
		if p == nil {
			p = &permission{Protocol: r.Protocol}
			if r.Protocol != "-1" {
				from, to := r.FromPort, r.ToPort
				p.FromPort, p.ToPort = &from, &to
			}
			index[key] = p
			if r.IsEgress {
				d.Egress = append(d.Egress, p)
			} else {
				d.Ingress = append(d.Ingress, p)
			}
		}
		switch {
		case r.Referenced != nil:
			p.Groups = append(p.Groups, groupPair{r.Referenced.UserID, r.Referenced.GroupID, r.Description})
		case r.CidrIpv4 != "":
			p.Ranges = append(p.Ranges, ipRange{r.CidrIpv4, r.Description})
		case r.CidrIpv6 != "":
			p.Ranges6 = append(p.Ranges6, ip6Range{r.CidrIpv6, r.Description})
		default:
			p.Prefixes = append(p.Prefixes, prefixRange{r.PrefixListID, r.Description})
		}
	}
	return d
}

type createGroupIn struct {
	GroupName        string
	GroupDescription string `q:"GroupDescription|Description"`
	VpcID            string `q:"VpcId"`
	TagSpecification []tagSpec
}

// groupText is what names and descriptions may consist of ("CreateSecurityGroup", Amazon EC2 API reference).
var groupText = regexp.MustCompile(`^[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]*$`)

func (e *EC2) createGroup(r *request, in createGroupIn) (any, error) {
	sc := e.in(r.scope())
	switch {
	case in.GroupName == "":
		return nil, missing("groupName")
	case in.GroupDescription == "":
		return nil, missing("groupDescription")
	case len(in.GroupName) > 255 || strings.HasPrefix(in.GroupName, "sg-"):
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter groupName is invalid. Group names may not be in the format sg-*.", in.GroupName)
	case !groupText.MatchString(in.GroupName):
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter GroupName is invalid. Character sets beyond ASCII are not supported.", in.GroupName)
	case len(in.GroupDescription) > 255:
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter GroupDescription is invalid. The length exceeds the limit of 255.", in.GroupDescription)
	case !groupText.MatchString(in.GroupDescription):
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter GroupDescription is invalid. Character sets beyond ASCII are not supported.", in.GroupDescription)
	}
	if in.VpcID == "" {
		for _, v := range sc.Vpcs {
			if v.IsDefault {
				in.VpcID = v.VpcID
			}
		}
		if in.VpcID == "" {
			return nil, refuse("VPCIdNotSpecified", "No default VPC for this user")
		}
	}
	v, err := sc.vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	tags, err := tagsFor(in.TagSpecification, "security-group")
	if err != nil {
		return nil, err
	}
	if in.GroupName == "default" {
		return nil, refuse("InvalidParameterValue", "Cannot use reserved security group name: default")
	}
	for _, g := range sc.Groups {
		if g.VpcID == v.VpcID && g.GroupName == in.GroupName {
			return nil, refuse("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", in.GroupName, v.VpcID)
		}
	}
	if len(sc.Groups) >= int(e.cloud.quota(r.scope(), "vpc", quotaGroups)) {
		return nil, refuse("SecurityGroupLimitExceeded", "The maximum number of security groups has been reached.")
	}
	g := &SecurityGroup{GroupID: e.cloud.hex17("sg-"), GroupName: in.GroupName, Description: in.GroupDescription, VpcID: v.VpcID, OwnerID: r.Account, meta: e.fresh(tags)}
	sc.Groups[g.GroupID] = g
	m := e.fresh(nil)
	m.Default = true
	out := &SecurityGroupRule{RuleID: e.cloud.hex17("sgr-"), GroupID: g.GroupID, GroupOwnerID: r.Account, IsEgress: true, Protocol: "-1", FromPort: -1, ToPort: -1,
		CidrIpv4: "0.0.0.0/0", meta: m}
	sc.Rules[out.RuleID] = out
	r.Make(g.GroupID)
	return struct {
		Return  bool   `ec2:"return"`
		GroupID string `ec2:"groupId"`
		Tags    []Tag  `ec2:"tagSet,omitempty"`
		Arn     string `ec2:"securityGroupArn"`
	}{true, g.GroupID, tags, arn("ec2", r.Region, r.Account, "security-group/"+g.GroupID)}, nil
}

type describeGroupsIn struct {
	GroupID   []string `q:"GroupId"`
	GroupName []string
	page
}

func (e *EC2) describeGroups(r *request, in describeGroupsIn) (any, error) {
	sc := e.in(r.scope())
	for _, name := range in.GroupName {
		n := len(in.GroupID)
		for _, g := range sc.Groups {
			if v := sc.Vpcs[g.VpcID]; g.GroupName == name && v != nil && v.IsDefault {
				in.GroupID = append(in.GroupID, g.GroupID)
			}
		}
		if n == len(in.GroupID) {
			return nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist in default VPC", name)
		}
	}
	var plain, special []Filter
	for _, f := range in.Filter {
		if strings.HasPrefix(f.Name, "ip-permission.") || strings.HasPrefix(f.Name, "egress.ip-permission.") {
			special = append(special, f)
		} else {
			plain = append(plain, f)
		}
	}
	found, err := find(e, r, sc.Groups, in.GroupID, plain, noGroup)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(g *SecurityGroup) bool { return !sc.ruleFilters(g, special) })
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	out := make([]shownGroup, len(items))
	for i, g := range items {
		out[i] = sc.showGroup(g)
	}
	return struct {
		Groups []shownGroup `ec2:"securityGroupInfo"`
		Next   string       `ec2:"nextToken,omitempty"`
	}{out, next}, err
}

// ruleFilters applies the filters on a group's rules.
func (sc *ec2Scope) ruleFilters(g *SecurityGroup, filters []Filter) bool {
	for _, f := range filters {
		egress := strings.HasPrefix(f.Name, "egress.")
		hit := slices.ContainsFunc(sc.rulesOf(g.GroupID), func(r *SecurityGroupRule) bool {
			if r.IsEgress != egress {
				return false
			}
			v := map[string]string{"cidr": r.CidrIpv4, "ipv6-cidr": r.CidrIpv6, "protocol": r.Protocol, "from-port": strconv.Itoa(r.FromPort),
				"to-port": strconv.Itoa(r.ToPort), "prefix-list-id": r.PrefixListID}
			if r.Referenced != nil {
				v["group-id"], v["user-id"] = r.Referenced.GroupID, r.Referenced.UserID
			}
			s, ok := v[f.Name[strings.Index(f.Name, "permission.")+len("permission."):]]
			return ok && s != "" && anyMatch(f.Value, []string{s})
		})
		if !hit {
			return false
		}
	}
	return true
}

type groupIn struct {
	GroupID   string `q:"GroupId"`
	GroupName string
}

func (sc *ec2Scope) group(in groupIn) (*SecurityGroup, error) {
	if in.GroupID == "" && in.GroupName != "" {
		for _, g := range sc.Groups {
			if v := sc.Vpcs[g.VpcID]; g.GroupName == in.GroupName && v != nil && v.IsDefault {
				return g, nil
			}
		}
		return nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist in default VPC", in.GroupName)
	}
	if in.GroupID == "" {
		return nil, missing("groupName or groupId")
	}
	g := sc.Groups[in.GroupID]
	if g == nil {
		return nil, noGroup(in.GroupID)
	}
	return g, nil
}

func (e *EC2) deleteGroup(r *request, in groupIn) (any, error) {
	sc := e.in(r.scope())
	g, err := sc.group(in)
	if err != nil {
		return nil, err
	}
	if g.GroupName == "default" {
		return nil, refuse("CannotDelete", "the specified group: \"%s\" name: \"default\" cannot be deleted by a user", g.GroupID)
	}
	busy := false
	for _, i := range sc.Interfaces {
		busy = busy || slices.ContainsFunc(i.Groups, func(x groupRef) bool { return x.GroupID == g.GroupID })
	}
	for _, rule := range sc.Rules {
		busy = busy || (rule.GroupID != g.GroupID && rule.Referenced != nil && rule.Referenced.GroupID == g.GroupID)
	}
	if busy {
		return nil, refuse("DependencyViolation", "resource %s has a dependent object", g.GroupID)
	}
	sc.dropGroup(g.GroupID)
	return struct {
		Return  bool   `ec2:"return"`
		GroupID string `ec2:"groupId"`
	}{true, g.GroupID}, nil
}

func (sc *ec2Scope) dropGroup(id string) {
	delete(sc.Groups, id)
	for rid, r := range sc.Rules {
		if r.GroupID == id {
			delete(sc.Rules, rid)
		}
	}
}

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
			other, err := sc.peerGroup(g, x.GroupID, x.GroupName)
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
func (sc *ec2Scope) peerGroup(g *SecurityGroup, id, name string) (*SecurityGroup, error) {
	for _, o := range sc.Groups {
		if o.GroupID == id || (id == "" && o.GroupName == name && o.VpcID == g.VpcID) {
			if o.VpcID == g.VpcID || sc.peered(o.VpcID, g.VpcID) {
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
			other, err := sc.peerGroup(g, u.Rule.ReferencedGroupID, "")
			if err != nil {
				return nil, err
			}
			base.Referenced = &referencedGroup{GroupID: other.GroupID, UserID: other.OwnerID}
		}
		*rule = base
	}
	return returned{true}, nil
}
