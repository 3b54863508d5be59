package aws

import (
	"net/netip"
	"slices"
)

type attributeBool struct {
	Value bool `ec2:"value"`
}

type modifyVpcAttributeIn struct {
	VpcID                            string `q:"VpcId"`
	EnableDnsSupport                 *attributeBool
	EnableDnsHostnames               *attributeBool
	EnableNetworkAddressUsageMetrics *attributeBool
}

func (e *EC2) modifyVpcAttribute(r *request, in modifyVpcAttributeIn) (any, error) {
	v, err := e.in(r.scope()).vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	set := 0
	for _, a := range []*attributeBool{in.EnableDnsSupport, in.EnableDnsHostnames, in.EnableNetworkAddressUsageMetrics} {
		if a != nil {
			set++
		}
	}
	// "You cannot modify the DNS resolution and DNS hostnames attributes in the same request" (ModifyVpcAttribute).
	if set != 1 {
		return nil, refuse("InvalidParameterCombination", "Exactly one VPC attribute must be specified")
	}
	switch {
	case in.EnableDnsSupport != nil:
		v.DNSSupport = in.EnableDnsSupport.Value
	case in.EnableDnsHostnames != nil:
		v.DNSHostnames = in.EnableDnsHostnames.Value
	default:
		v.NetworkAddressUsageMetrics = in.EnableNetworkAddressUsageMetrics.Value
	}
	return returned{true}, nil
}

type describeVpcAttributeIn struct {
	VpcID     string `q:"VpcId"`
	Attribute string
}

func (e *EC2) describeVpcAttribute(r *request, in describeVpcAttributeIn) (any, error) {
	v, err := e.in(r.scope()).vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	out := struct {
		VpcID     string         `ec2:"vpcId"`
		Support   *attributeBool `ec2:"enableDnsSupport"`
		Hostnames *attributeBool `ec2:"enableDnsHostnames"`
		Metrics   *attributeBool `ec2:"enableNetworkAddressUsageMetrics"`
	}{VpcID: v.VpcID}
	switch in.Attribute {
	case "enableDnsSupport":
		out.Support = &attributeBool{v.DNSSupport}
	case "enableDnsHostnames":
		out.Hostnames = &attributeBool{v.DNSHostnames}
	case "enableNetworkAddressUsageMetrics":
		out.Metrics = &attributeBool{v.NetworkAddressUsageMetrics}
	case "":
		return nil, missing("attribute")
	default:
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter attribute is invalid. Unknown attribute.", in.Attribute)
	}
	return out, nil
}

type associateVpcCidrIn struct {
	VpcID     string `q:"VpcId"`
	CidrBlock string
}

func (e *EC2) associateVpcCidr(r *request, in associateVpcCidrIn) (any, error) {
	v, err := e.in(r.scope()).vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
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
	for _, b := range v.blocks() {
		if b.Overlaps(cidr) {
			return nil, refuse("InvalidParameterValue", "The CIDR '%s' conflicts with another CIDR block of the VPC", in.CidrBlock)
		}
	}
	if restricted(v, cidr) {
		return nil, refuse("InvalidVpc.Range", "The CIDR '%s' is restricted. Use a CIDR from the same private address range as the current VPC CIDR, or use a publicly-routable CIDR. For additional restrictions, see https://docs.aws.amazon.com/vpc/latest/userguide/VPC_Subnets.html", in.CidrBlock)
	}
	if most := int(e.cloud.quota(r.scope(), "vpc", quotaCidrs)); len(v.Associations) >= most {
		return nil, refuse("CidrLimitExceeded", "This network '%s' has met its maximum number of allowed CIDRs: %d", v.VpcID, most)
	}
	if err := e.routedElsewhere(r, v, cidr); err != nil {
		return nil, err
	}
	a := CidrAssociation{e.cloud.hex17("vpc-cidr-assoc-"), cidr.String(), cidrState{"associated"}}
	v.Associations = append(v.Associations, a)
	for _, t := range e.in(r.scope()).RouteTables {
		if t.VpcID == v.VpcID {
			t.Routes = append(t.Routes, Route{DestinationCidrBlock: a.CidrBlock, GatewayID: "local", Status: "active", Origin: "CreateRouteTable"})
		}
	}
	shown := a
	shown.State.State = "associating"
	return struct {
		Association CidrAssociation `ec2:"cidrBlockAssociation"`
		VpcID       string          `ec2:"vpcId"`
	}{shown, v.VpcID}, nil
}

// restricted says whether a range may not be added to a VPC with the primary range that it has: neither a range of another
// of the private networks of RFC 1918, nor 198.19.0.0/16 ("IPv4 CIDR block association restrictions", Amazon VPC user guide).
// A VPC with a range of none of them takes the shared range 100.64.0.0/10 and public ones.
func restricted(v *Vpc, cidr netip.Prefix) bool {
	primary, _ := netip.ParsePrefix(v.CidrBlock)
	private := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("198.19.0.0/16")}
	for _, p := range private {
		if p.Overlaps(cidr) && !p.Overlaps(primary) {
			return true
		}
	}
	return false
}

// routedElsewhere refuses a range that a route of the VPC names already ("the CIDR block must not be the same or larger than
// a destination CIDR range in a route in any of the VPC route tables"), and one that a VPC which it is peered with has.
func (e *EC2) routedElsewhere(r *request, v *Vpc, cidr netip.Prefix) error {
	sc := e.in(r.scope())
	for _, t := range inOrder(sc.RouteTables) {
		for _, rt := range t.Routes {
			to, err := netip.ParsePrefix(rt.DestinationCidrBlock)
			if t.VpcID == v.VpcID && err == nil && to.Bits() > 0 && cidr.Overlaps(to) && cidr.Bits() <= to.Bits() {
				return refuse("InvalidParameterValue", "The CIDR '%s' conflicts with the route %s of route table %s", cidr, rt.DestinationCidrBlock, t.RouteTableID)
			}
		}
	}
	for _, other := range e.st.Scopes {
		for _, p := range other.Peerings {
			for _, side := range []peeringVpc{p.Requester, p.Accepter} {
				if !e.peered(v.VpcID, side.VpcID) {
					continue
				}
				peer := e.in(scope{side.OwnerID, side.Region}).Vpcs[side.VpcID]
				if peer != nil && slices.ContainsFunc(peer.blocks(), cidr.Overlaps) {
					return refuse("InvalidParameterValue", "The CIDR '%s' conflicts with the VPC peering connection %s", cidr, p.ID)
				}
			}
		}
	}
	return nil
}

type associationIn struct {
	AssociationID string `q:"AssociationId"`
}

func (e *EC2) disassociateVpcCidr(r *request, in associationIn) (any, error) {
	sc := e.in(r.scope())
	for _, v := range sc.Vpcs {
		for i, a := range v.Associations {
			if a.AssociationID != in.AssociationID {
				continue
			}
			if a.CidrBlock == v.CidrBlock {
				return nil, refuse("OperationNotPermitted", "The vpc CIDR block with association ID %s may not be disassociated. It is the primary IPv4 CIDR block of the VPC", a.AssociationID)
			}
			block, _ := netip.ParsePrefix(a.CidrBlock)
			for _, s := range sc.Subnets {
				if p, err := netip.ParsePrefix(s.CidrBlock); err == nil && s.VpcID == v.VpcID && block.Overlaps(p) {
					return nil, refuse("DependencyViolation", "The vpc CIDR block '%s' has subnets and cannot be disassociated", a.CidrBlock)
				}
			}
			v.Associations = append(v.Associations[:i:i], v.Associations[i+1:]...)
			a.State.State = "disassociating"
			return struct {
				Association CidrAssociation `ec2:"cidrBlockAssociation"`
				VpcID       string          `ec2:"vpcId"`
			}{a, v.VpcID}, nil
		}
	}
	return nil, refuse("InvalidVpcCidrBlockAssociationID.NotFound", "The vpc CIDR block association ID '%s' does not exist", in.AssociationID)
}
