package aws

import "strconv"

type aclEntry struct {
	Cidr     string `ec2:"cidrBlock"`
	Egress   bool   `ec2:"egress"`
	Protocol string `ec2:"protocol"`
	Action   string `ec2:"ruleAction"`
	Number   int    `ec2:"ruleNumber"`

	Ports *aclPorts `ec2:"portRange"`
	Icmp  *aclIcmp  `ec2:"icmpTypeCode"`
}

type aclPorts struct {
	From int `ec2:"from"`
	To   int `ec2:"to"`
}

type aclIcmp struct {
	Code int `ec2:"code"`
	Type int `ec2:"type"`
}

type aclAssociation struct {
	ID       string `ec2:"networkAclAssociationId"`
	ACLID    string `ec2:"networkAclId"`
	SubnetID string `ec2:"subnetId"`
}

// NetworkACL is a stateless firewall of subnets.
type NetworkACL struct {
	ID           string           `ec2:"networkAclId"`
	VpcID        string           `ec2:"vpcId"`
	OwnerID      string           `ec2:"ownerId"`
	IsDefault    bool             `ec2:"default"`
	Entries      []aclEntry       `ec2:"entrySet"`
	Associations []aclAssociation `ec2:"associationSet"`
	meta
}

func (a *NetworkACL) ident() string { return a.ID }
func (a *NetworkACL) kind() string  { return "network-acl" }
func (a *NetworkACL) placed() place {
	return place{"", []string{a.VpcID}, false}
}

func (a *NetworkACL) attr(name string) ([]string, bool) {
	var subnets []string
	for _, as := range a.Associations {
		subnets = append(subnets, as.SubnetID)
	}
	switch name {
	case "network-acl-id", "association.network-acl-id":
		return []string{a.ID}, true
	case "vpc-id":
		return []string{a.VpcID}, true
	case "default":
		return []string{strconv.FormatBool(a.IsDefault)}, true
	case "owner-id":
		return []string{a.OwnerID}, true
	case "association.subnet-id":
		return subnets, true
	}
	return nil, false
}

type describeAclsIn struct {
	ID []string `q:"NetworkAclId"`
	page
}

func (e *EC2) describeAcls(r *request, in describeAclsIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Acls, in.ID, in.Filter, noACL)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	return struct {
		Acls []*NetworkACL `ec2:"networkAclSet"`
		Next string        `ec2:"nextToken,omitempty"`
	}{items, next}, err
}
