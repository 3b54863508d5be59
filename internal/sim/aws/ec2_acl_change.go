package aws

import (
	"cmp"
	"slices"
	"strings"
)

type createACLIn struct {
	VpcID            string `q:"VpcId"`
	ClientToken      string
	TagSpecification []tagSpec
}

type aclOut struct {
	ACL   *NetworkACL `ec2:"networkAcl"`
	Token string      `ec2:"clientToken,omitempty"`
}

// createACL makes a network ACL that lets nothing through yet ("Custom network ACLs", Amazon VPC user guide).
func (e *EC2) createACL(r *request, in createACLIn) (any, error) {
	sc := e.in(r.scope())
	v, err := sc.vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	tags, err := tagsFor(in.TagSpecification, "network-acl")
	if err != nil {
		return nil, err
	}
	id, again, err := e.token(r, in.ClientToken)
	if err != nil {
		return nil, err
	}
	if have := sc.Acls[id]; again && have != nil {
		return aclOut{have, in.ClientToken}, nil
	}
	if countIn(sc.Acls, func(a *NetworkACL) bool { return a.VpcID == v.VpcID }) >= int(e.cloud.quota(r.scope(), "vpc", quotaAcls)) {
		return nil, refuse("NetworkAclLimitExceeded", "The maximum number of network ACLs has been reached.")
	}
	acl := &NetworkACL{ID: e.cloud.hex17("acl-"), VpcID: v.VpcID, OwnerID: r.Account, meta: e.fresh(tags)}
	for _, egress := range []bool{false, true} {
		acl.Entries = append(acl.Entries, aclEntry{Cidr: "0.0.0.0/0", Egress: egress, Protocol: "-1", Action: "deny", Number: 32767})
	}
	sc.Acls[acl.ID] = acl
	e.remember(r, in.ClientToken, acl.ID)
	r.Make(acl.ID)
	return aclOut{acl, in.ClientToken}, nil
}

type aclIn struct {
	ID string `q:"NetworkAclId"`
}

func (sc *ec2Scope) acl(id string) (*NetworkACL, error) {
	if id == "" {
		return nil, missing("networkAclId")
	}
	if a := sc.Acls[id]; a != nil {
		return a, nil
	}
	return nil, noACL(id)
}

func (e *EC2) deleteACL(r *request, in aclIn) (any, error) {
	sc := e.in(r.scope())
	a, err := sc.acl(in.ID)
	if err != nil {
		return nil, err
	}
	if a.IsDefault {
		return nil, refuse("InvalidParameterValue", "cannot delete default network ACL %s", a.ID)
	}
	if len(a.Associations) > 0 {
		return nil, refuse("DependencyViolation", "The networkAcl '%s' has dependencies and cannot be deleted.", a.ID)
	}
	delete(sc.Acls, a.ID)
	return returned{true}, nil
}

type aclEntryIn struct {
	ID         string `q:"NetworkAclId"`
	CidrBlock  string
	Egress     bool
	Protocol   string
	RuleAction string
	RuleNumber int
	PortRange  *aclPorts
	Icmp       *aclIcmp `q:"Icmp|IcmpTypeCode"`
}

// changeACLEntry creates or replaces an entry. Numbers are 1 to 32766, and one number stands for one entry a direction.
func (e *EC2) changeACLEntry(replace bool) func(r *request, in aclEntryIn) (any, error) {
	return func(r *request, in aclEntryIn) (any, error) {
		a, err := e.in(r.scope()).acl(in.ID)
		if err != nil {
			return nil, err
		}
		cidr, err := parseCIDR(in.CidrBlock)
		switch {
		case err != nil:
			return nil, err
		case in.RuleNumber < 1 || in.RuleNumber > 32766:
			return nil, refuse("InvalidParameterValue", "Value (%d) for parameter ruleNumber is invalid. Rule number must be between 1 and 32766", in.RuleNumber)
		case in.RuleAction != "allow" && in.RuleAction != "deny":
			return nil, refuse("InvalidParameterValue", "Value (%s) for parameter ruleAction is invalid.", in.RuleAction)
		case (in.Protocol == "6" || in.Protocol == "17") && in.PortRange == nil:
			return nil, missing("portRange")
		}
		entry := aclEntry{Cidr: cidr.String(), Egress: in.Egress, Protocol: in.Protocol, Action: in.RuleAction, Number: in.RuleNumber, Ports: in.PortRange, Icmp: in.Icmp}
		i := a.entry(in.RuleNumber, in.Egress)
		switch {
		case i >= 0 && !replace:
			return nil, refuse("NetworkAclEntryAlreadyExists", "The network acl entry identified by %d already exists.", in.RuleNumber)
		case i < 0 && replace:
			return nil, refuse("InvalidNetworkAclEntry.NotFound", "The network acl entry identified by %d does not exist.", in.RuleNumber)
		case i >= 0:
			a.Entries[i] = entry
		default:
			if countEntries(a, in.Egress) >= 20 {
				return nil, refuse("NetworkAclEntryLimitExceeded", "The maximum number of network acl entries has been reached.")
			}
			a.Entries = append(a.Entries, entry)
			slices.SortStableFunc(a.Entries, func(x, y aclEntry) int {
				if x.Egress != y.Egress {
					return map[bool]int{true: 1, false: -1}[x.Egress]
				}
				return cmp.Compare(x.Number, y.Number)
			})
		}
		return returned{true}, nil
	}
}

func countEntries(a *NetworkACL, egress bool) int {
	n := 0
	for _, x := range a.Entries {
		if x.Egress == egress && x.Number < 32767 {
			n++
		}
	}
	return n
}

func (a *NetworkACL) entry(number int, egress bool) int {
	return slices.IndexFunc(a.Entries, func(x aclEntry) bool { return x.Number == number && x.Egress == egress })
}

func (e *EC2) deleteACLEntry(r *request, in aclEntryIn) (any, error) {
	a, err := e.in(r.scope()).acl(in.ID)
	if err != nil {
		return nil, err
	}
	i := a.entry(in.RuleNumber, in.Egress)
	if i < 0 || in.RuleNumber > 32766 {
		return nil, refuse("InvalidNetworkAclEntry.NotFound", "The network acl entry identified by %d does not exist.", in.RuleNumber)
	}
	a.Entries = slices.Delete(a.Entries, i, i+1)
	return returned{true}, nil
}

type replaceACLIn struct {
	AssociationID string `q:"AssociationId"`
	ACLID         string `q:"NetworkAclId"`
}

// replaceACLAssociation moves a subnet to another network ACL: every subnet has exactly one.
func (e *EC2) replaceACLAssociation(r *request, in replaceACLIn) (any, error) {
	sc := e.in(r.scope())
	to, err := sc.acl(in.ACLID)
	if err != nil {
		return nil, err
	}
	for _, a := range inOrder(sc.Acls) {
		i := slices.IndexFunc(a.Associations, func(x aclAssociation) bool { return x.ID == in.AssociationID })
		if i < 0 {
			continue
		}
		if a.VpcID != to.VpcID {
			return nil, refuse("InvalidParameterValue", "network ACL %s and subnet %s belong to different networks", to.ID, a.Associations[i].SubnetID)
		}
		moved := a.Associations[i]
		a.Associations = slices.Delete(a.Associations, i, i+1)
		moved.ID, moved.ACLID = e.cloud.hex17("aclassoc-"), to.ID
		to.Associations = append(to.Associations, moved)
		return struct {
			ID string `ec2:"newAssociationId"`
		}{moved.ID}, nil
	}
	if !strings.HasPrefix(in.AssociationID, "aclassoc-") {
		return nil, refuse("InvalidAssociationId.Malformed", "Invalid id: \"%s\" (expecting \"aclassoc-...\")", in.AssociationID)
	}
	return nil, refuse("InvalidAssociationID.NotFound", "The association ID '%s' does not exist", in.AssociationID)
}
