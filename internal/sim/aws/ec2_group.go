package aws

import (
	"fmt"
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
	if sc.groupInUse(g.GroupID) {
		return nil, refuse("DependencyViolation", "resource %s has a dependent object", g.GroupID)
	}
	sc.dropGroup(g.GroupID)
	return struct {
		Return  bool   `ec2:"return"`
		GroupID string `ec2:"groupId"`
	}{true, g.GroupID}, nil
}

// groupInUse says whether an interface has a group, or a rule of another group refers to it.
func (sc *ec2Scope) groupInUse(id string) bool {
	for _, i := range sc.Interfaces {
		if slices.ContainsFunc(i.Groups, func(x groupRef) bool { return x.GroupID == id }) {
			return true
		}
	}
	for _, rule := range sc.Rules {
		if rule.GroupID != id && rule.Referenced != nil && rule.Referenced.GroupID == id {
			return true
		}
	}
	return false
}

func (sc *ec2Scope) dropGroup(id string) {
	delete(sc.Groups, id)
	for rid, r := range sc.Rules {
		if r.GroupID == id {
			delete(sc.Rules, rid)
		}
	}
}
