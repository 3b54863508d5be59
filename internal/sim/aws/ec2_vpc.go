package aws

import (
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// cidrState is the state of an association of an address block.
type cidrState struct {
	State string `ec2:"state"`
}

// CidrAssociation is an IPv4 block of a VPC.
type CidrAssociation struct {
	AssociationID string    `ec2:"associationId"`
	CidrBlock     string    `ec2:"cidrBlock"`
	State         cidrState `ec2:"cidrBlockState"`
}

// Vpc is a virtual network.
type Vpc struct {
	VpcID           string            `ec2:"vpcId"`
	OwnerID         string            `ec2:"ownerId"`
	Status          string            `ec2:"state"`
	CidrBlock       string            `ec2:"cidrBlock"`
	Associations    []CidrAssociation `ec2:"cidrBlockAssociationSet"`
	DhcpOptionsID   string            `ec2:"dhcpOptionsId"`
	InstanceTenancy string            `ec2:"instanceTenancy"`
	IsDefault       bool              `ec2:"isDefault"`
	meta

	DNSSupport, DNSHostnames, NetworkAddressUsageMetrics bool
}

func (v *Vpc) ident() string { return v.VpcID }
func (v *Vpc) kind() string  { return "vpc" }
func (v *Vpc) placed() place {
	return place{v.Status, nil, false}
}

func (v *Vpc) attr(name string) ([]string, bool) {
	switch name {
	case "vpc-id":
		return []string{v.VpcID}, true
	case "state":
		return []string{v.Status}, true
	case "cidr", "cidr-block", "cidrBlock":
		return []string{v.CidrBlock}, true
	case "cidr-block-association.cidr-block":
		var out []string
		for _, a := range v.Associations {
			out = append(out, a.CidrBlock)
		}
		return out, true
	case "cidr-block-association.association-id", "cidr-block-association.state":
		var out []string
		for _, a := range v.Associations {
			if name == "cidr-block-association.state" {
				out = append(out, a.State.State)
			} else {
				out = append(out, a.AssociationID)
			}
		}
		return out, true
	case "dhcp-options-id":
		return []string{v.DhcpOptionsID}, true
	case "is-default", "isDefault":
		return []string{strconv.FormatBool(v.IsDefault)}, true
	case "owner-id":
		return []string{v.OwnerID}, true
	}
	return nil, false
}

// blocks are the IPv4 ranges of a VPC.
func (v *Vpc) blocks() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range v.Associations {
		if p, err := netip.ParsePrefix(a.CidrBlock); err == nil && (a.State.State == "associated" || a.State.State == "associating") {
			out = append(out, p)
		}
	}
	return out
}

// parseCIDR reads an IPv4 block. EC2 masks host bits away silently ("If you specify a CIDR block that's not in its
// canonical form, we modify it", CreateVpc and CreateSubnet in the API reference).
func parseCIDR(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}, refuse("InvalidParameterValue", "Value (%s) for parameter cidrBlock is invalid. This is not a valid CIDR block.", s)
	}
	return p.Masked(), nil
}

type createVpcIn struct {
	CidrBlock        string
	InstanceTenancy  string
	TagSpecification []tagSpec
	Ipv4IpamPoolID   string `q:"Ipv4IpamPoolId"`
}

// createdVpc is the answer of CreateVpc, which has an element that DescribeVpcs leaves out.
type createdVpc struct {
	Vpc
	Ipv6 []struct{} `ec2:"ipv6CidrBlockAssociationSet"`
}

func (e *EC2) createVpc(r *request, in createVpcIn) (any, error) {
	if in.CidrBlock == "" {
		return nil, missing("cidrBlock")
	}
	cidr, err := parseCIDR(in.CidrBlock)
	if err != nil {
		return nil, err
	}
	if cidr.Bits() < 16 || cidr.Bits() > 28 {
		return nil, refuse("InvalidVpc.Range", "The CIDR '%s' is invalid.", in.CidrBlock)
	}
	switch in.InstanceTenancy {
	case "":
		in.InstanceTenancy = "default"
	case "default", "dedicated":
	default:
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter instanceTenancy is invalid.", in.InstanceTenancy)
	}
	tags, err := tagsFor(in.TagSpecification, "vpc")
	if err != nil {
		return nil, err
	}
	sc := e.in(r.scope())
	if len(sc.Vpcs) >= int(e.cloud.quota(r.scope(), "vpc", quotaVpcs)) {
		return nil, refuse("VpcLimitExceeded", "The maximum number of VPCs has been reached.")
	}
	v := &Vpc{VpcID: e.cloud.hex17("vpc-"), OwnerID: r.Account, Status: "pending", CidrBlock: cidr.String(), DhcpOptionsID: sc.DhcpOptionsID,
		InstanceTenancy: in.InstanceTenancy, DNSSupport: true, meta: e.fresh(tags)}
	v.Associations = []CidrAssociation{{e.cloud.hex17("vpc-cidr-assoc-"), cidr.String(), cidrState{"associated"}}}
	sc.Vpcs[v.VpcID] = v
	e.furnishVpc(sc, v, func(prefix string) string { return e.cloud.hex17(prefix) }, e.fresh)
	r.Make(v.VpcID)
	e.later(sc, 1500*time.Millisecond, v.VpcID, "available")
	return struct {
		Vpc createdVpc `ec2:"vpc"`
	}{createdVpc{Vpc: *v}}, nil
}

// furnishVpc makes what every VPC brings with it: a main route table, a default security group and a default network ACL
// ("Default components", Amazon VPC user guide).
func (e *EC2) furnishVpc(sc *ec2Scope, v *Vpc, newID func(prefix string) string, head func([]Tag) meta) {
	made := func() meta {
		m := head(nil)
		m.Default = true
		return m
	}
	rt := &RouteTable{RouteTableID: newID("rtb-"), VpcID: v.VpcID, OwnerID: v.OwnerID, meta: made()}
	rt.Routes = []Route{{DestinationCidrBlock: v.CidrBlock, GatewayID: "local", Status: "active", Origin: "CreateRouteTable"}}
	rt.Associations = []RouteTableAssociation{{ID: newID("rtbassoc-"), RouteTableID: rt.RouteTableID, Main: true, State: assocState{State: "associated"}}}
	sc.RouteTables[rt.RouteTableID] = rt

	g := &SecurityGroup{GroupID: newID("sg-"), GroupName: "default", Description: "default VPC security group", VpcID: v.VpcID, OwnerID: v.OwnerID, meta: made()}
	sc.Groups[g.GroupID] = g
	in := &SecurityGroupRule{RuleID: newID("sgr-"), GroupID: g.GroupID, GroupOwnerID: v.OwnerID, Protocol: "-1", FromPort: -1, ToPort: -1,
		Referenced: &referencedGroup{GroupID: g.GroupID, UserID: v.OwnerID}, meta: made()}
	out := &SecurityGroupRule{RuleID: newID("sgr-"), GroupID: g.GroupID, GroupOwnerID: v.OwnerID, IsEgress: true, Protocol: "-1", FromPort: -1, ToPort: -1,
		CidrIpv4: "0.0.0.0/0", meta: made()}
	sc.Rules[in.RuleID], sc.Rules[out.RuleID] = in, out

	acl := &NetworkACL{ID: newID("acl-"), VpcID: v.VpcID, OwnerID: v.OwnerID, IsDefault: true, meta: made()}
	for _, egress := range []bool{false, true} {
		acl.Entries = append(acl.Entries,
			aclEntry{Cidr: "0.0.0.0/0", Egress: egress, Protocol: "-1", Action: "allow", Number: 100},
			aclEntry{Cidr: "0.0.0.0/0", Egress: egress, Protocol: "-1", Action: "deny", Number: 32767})
	}
	sc.Acls[acl.ID] = acl
}

type describeVpcsIn struct {
	VpcID []string `q:"VpcId"`
	page
}

// describedVpc is a VPC as DescribeVpcs shows it.
type describedVpc struct {
	Vpc
	Block struct {
		Mode string `ec2:"internetGatewayBlockMode"`
	} `ec2:"blockPublicAccessStates"`
}

func (e *EC2) describeVpcs(r *request, in describeVpcsIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Vpcs, in.VpcID, in.Filter, noVpc)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	if err != nil {
		return nil, err
	}
	out := make([]describedVpc, len(items))
	for i, v := range items {
		out[i].Vpc = *v
		out[i].Block.Mode = "off"
	}
	return struct {
		Vpcs []describedVpc `ec2:"vpcSet"`
		Next string         `ec2:"nextToken,omitempty"`
	}{out, next}, nil
}

type vpcIn struct {
	VpcID string `q:"VpcId"`
}

// vpc finds a VPC for an operation that works on one.
func (sc *ec2Scope) vpc(id string) (*Vpc, error) {
	if id == "" {
		return nil, missing("vpcId")
	}
	v := sc.Vpcs[id]
	if v == nil {
		return nil, noVpc(id)
	}
	return v, nil
}

func (e *EC2) deleteVpc(r *request, in vpcIn) (any, error) {
	sc := e.in(r.scope())
	v, err := sc.vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	if sc.blocksVpc(v) {
		return nil, refuse("DependencyViolation", "The vpc '%s' has dependencies and cannot be deleted.", v.VpcID)
	}
	e.dropVpc(sc, v)
	return returned{true}, nil
}

// blocksVpc says whether anything stands in a VPC that does not go with it.
func (sc *ec2Scope) blocksVpc(v *Vpc) bool {
	for _, t := range sc.all() {
		switch t.kind() {
		case "security-group-rule", "vpc-peering-connection":
			continue
		case "route-table", "security-group", "network-acl":
			if t.head().Default { // it goes with the VPC
				continue
			}
		}
		if at := t.placed(); !at.gone && slices.Contains(at.parents, v.VpcID) {
			return true
		}
	}
	return false
}

// dropVpc removes a VPC with what it brought with it.
func (e *EC2) dropVpc(sc *ec2Scope, v *Vpc) {
	for id, t := range sc.RouteTables {
		if t.VpcID == v.VpcID {
			delete(sc.RouteTables, id)
		}
	}
	for id, g := range sc.Groups {
		if g.VpcID == v.VpcID {
			sc.dropGroup(id)
		}
	}
	for id, a := range sc.Acls {
		if a.VpcID == v.VpcID {
			delete(sc.Acls, id)
		}
	}
	for _, other := range e.st.Scopes {
		for _, p := range other.Peerings {
			if (p.Accepter.VpcID == v.VpcID || p.Requester.VpcID == v.VpcID) && !p.placed().gone {
				e.peeringState(other, p, "deleted", "Deleted by "+sc.Account)
			}
		}
	}
	for id, f := range sc.FlowLogs {
		if f.ResourceID == v.VpcID {
			delete(sc.FlowLogs, id)
		}
	}
	delete(sc.Vpcs, v.VpcID)
}
