package aws

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// privateDNS says how the host names of a subnet's instances are made.
type privateDNS struct {
	HostnameType string `ec2:"hostnameType"`
	ARecord      bool   `ec2:"enableResourceNameDnsARecord"`
	AAAARecord   bool   `ec2:"enableResourceNameDnsAAAARecord"`
}

// Subnet is a range of a VPC in one zone.
type Subnet struct {
	SubnetID     string `ec2:"subnetId"`
	SubnetArn    string `ec2:"subnetArn"`
	Status       string `ec2:"state"`
	OwnerID      string `ec2:"ownerId"`
	VpcID        string `ec2:"vpcId"`
	CidrBlock    string `ec2:"cidrBlock"`
	Zone         string `ec2:"availabilityZone"`
	ZoneID       string `ec2:"availabilityZoneId"`
	DefaultForAz bool   `ec2:"defaultForAz"`
	MapPublicIP  bool   `ec2:"mapPublicIpOnLaunch"`
	MapCustomer  bool   `ec2:"mapCustomerOwnedIpOnLaunch"`
	AssignIpv6   bool   `ec2:"assignIpv6AddressOnCreation"`
	Ipv6Native   bool   `ec2:"ipv6Native"`
	EnableDNS64  bool   `ec2:"enableDns64"`
	Ipv6         []struct {
		Block string `ec2:"ipv6CidrBlock"`
	} `ec2:"ipv6CidrBlockAssociationSet"`
	PrivateDNS privateDNS `ec2:"privateDnsNameOptionsOnLaunch"`
	meta
}

func (s *Subnet) ident() string { return s.SubnetID }
func (s *Subnet) kind() string  { return "subnet" }
func (s *Subnet) placed() place {
	return place{s.Status, []string{s.VpcID}, false}
}

func (s *Subnet) attr(name string) ([]string, bool) {
	switch name {
	case "subnet-id":
		return []string{s.SubnetID}, true
	case "subnet-arn":
		return []string{s.SubnetArn}, true
	case "vpc-id":
		return []string{s.VpcID}, true
	case "cidr-block", "cidr", "cidrBlock":
		return []string{s.CidrBlock}, true
	case "availability-zone", "availabilityZone":
		return []string{s.Zone}, true
	case "availability-zone-id", "availabilityZoneId":
		return []string{s.ZoneID}, true
	case "state":
		return []string{s.Status}, true
	case "default-for-az", "defaultForAz":
		return []string{strconv.FormatBool(s.DefaultForAz)}, true
	case "map-public-ip-on-launch":
		return []string{strconv.FormatBool(s.MapPublicIP)}, true
	case "owner-id":
		return []string{s.OwnerID}, true
	}
	return nil, false
}

func (s *Subnet) block() netip.Prefix {
	p, _ := netip.ParsePrefix(s.CidrBlock)
	return p
}

// describedSubnet is a subnet as it is shown, with the count of its free addresses.
type describedSubnet struct {
	Subnet
	Available int `ec2:"availableIpAddressCount"`
	Block     struct {
		Mode string `ec2:"internetGatewayBlockMode"`
	} `ec2:"blockPublicAccessStates"`
}

func (sc *ec2Scope) show(s *Subnet) describedSubnet {
	d := describedSubnet{Subnet: *s, Available: sc.freeAddresses(s)}
	d.Block.Mode = "off"
	return d
}

// freeAddresses is the size of a subnet without the five addresses that AWS keeps and those in use ("Subnet CIDR blocks",
// Amazon VPC user guide).
func (sc *ec2Scope) freeAddresses(s *Subnet) int {
	n := 1<<(32-s.block().Bits()) - 5
	for _, i := range sc.Interfaces {
		if i.SubnetID == s.SubnetID {
			n--
		}
	}
	return n
}

// takeAddress finds a free private address.
func (sc *ec2Scope) takeAddress(s *Subnet) (string, error) {
	used := map[string]bool{}
	for _, i := range sc.Interfaces {
		if i.SubnetID == s.SubnetID {
			used[i.PrivateIP] = true
		}
	}
	p := s.block()
	size := uint32(1) << (32 - p.Bits())
	base4 := p.Addr().As4()
	base := binary.BigEndian.Uint32(base4[:])
	next := sc.NextHost[s.SubnetID]
	for range size {
		host := next
		if next++; next >= size-1 {
			next = 4
		}
		sc.NextHost[s.SubnetID] = next
		if host < 4 || host >= size-1 {
			continue
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], base+host)
		if ip := netip.AddrFrom4(b).String(); !used[ip] {
			return ip, nil
		}
	}
	return "", refuse("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", s.SubnetID)
}

type createSubnetIn struct {
	VpcID              string `q:"VpcId"`
	CidrBlock          string
	AvailabilityZone   string
	AvailabilityZoneID string `q:"AvailabilityZoneId"`
	TagSpecification   []tagSpec
}

func (e *EC2) createSubnet(r *request, in createSubnetIn) (any, error) {
	sc := e.in(r.scope())
	v, err := sc.vpc(in.VpcID)
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
	tags, err := tagsFor(in.TagSpecification, "subnet")
	if err != nil {
		return nil, err
	}
	if err := sc.fits(v, cidr, in.CidrBlock); err != nil {
		return nil, err
	}
	z, err := e.zoneFor(sc.Region, in.AvailabilityZone, in.AvailabilityZoneID, v.VpcID+cidr.String())
	if err != nil {
		return nil, err
	}
	n := 0
	for _, s := range sc.Subnets {
		if s.VpcID == v.VpcID {
			n++
		}
	}
	if n >= int(e.cloud.quota(r.scope(), "vpc", quotaSubnets)) {
		return nil, refuse("SubnetLimitExceeded", "The maximum number of subnets has been reached.")
	}
	s := e.newSubnet(sc, v, e.cloud.hex17("subnet-"), cidr, z, e.fresh(tags))
	s.Status = "pending"
	r.Make(s.SubnetID)
	e.later(sc, time.Second, s.SubnetID, "available")
	shown := sc.show(s)
	shown.Status = "available" // the answer already says so, as the real one does since 2019
	return struct {
		Subnet describedSubnet `ec2:"subnet"`
	}{shown}, nil
}

func (e *EC2) newSubnet(sc *ec2Scope, v *Vpc, id string, cidr netip.Prefix, z zone, m meta) *Subnet {
	s := &Subnet{SubnetID: id, Status: "available", OwnerID: sc.Account, VpcID: v.VpcID, CidrBlock: cidr.String(), Zone: z.Name, ZoneID: z.ID,
		SubnetArn: arn("ec2", sc.Region, sc.Account, "subnet/"+id), PrivateDNS: privateDNS{HostnameType: "ip-name"}, meta: m}
	sc.NextHost[id] = 4 + uint32(e.cloud.World.Fraction("host", id)*float64(int(1)<<(32-cidr.Bits())-6))
	sc.Subnets[id] = s
	for _, a := range sc.Acls {
		if a.VpcID == v.VpcID && a.IsDefault {
			a.Associations = append(a.Associations, aclAssociation{"aclassoc-" + strings.TrimPrefix(id, "subnet-"), a.ID, id})
		}
	}
	return s
}

// fits checks a subnet's block against its VPC and the subnets in it.
func (sc *ec2Scope) fits(v *Vpc, cidr netip.Prefix, text string) error {
	inside := false
	for _, b := range v.blocks() {
		inside = inside || (b.Contains(cidr.Addr()) && b.Bits() <= cidr.Bits())
	}
	if !inside || cidr.Bits() > 28 || cidr.Bits() < 16 {
		return refuse("InvalidSubnet.Range", "The CIDR '%s' is invalid.", text)
	}
	for _, s := range sc.Subnets {
		if s.VpcID == v.VpcID && s.block().Overlaps(cidr) {
			return refuse("InvalidSubnet.Conflict", "The CIDR '%s' conflicts with another subnet", text)
		}
	}
	return nil
}

type describeSubnetsIn struct {
	SubnetID []string `q:"SubnetId"`
	page
}

func (e *EC2) describeSubnets(r *request, in describeSubnetsIn) (any, error) {
	sc := e.in(r.scope())
	found, err := find(e, r, sc.Subnets, in.SubnetID, in.Filter, noSubnet)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	if err != nil {
		return nil, err
	}
	out := make([]describedSubnet, len(items))
	for i, s := range items {
		out[i] = sc.show(s)
	}
	return struct {
		Subnets []describedSubnet `ec2:"subnetSet"`
		Next    string            `ec2:"nextToken,omitempty"`
	}{out, next}, nil
}

type subnetIn struct {
	SubnetID string `q:"SubnetId"`
}

// subnet finds a subnet for an operation that works on one.
func (sc *ec2Scope) subnet(id string) (*Subnet, error) {
	if id == "" {
		return nil, missing("subnetId")
	}
	s := sc.Subnets[id]
	if s == nil {
		return nil, noSubnet(id)
	}
	return s, nil
}

func (e *EC2) deleteSubnet(r *request, in subnetIn) (any, error) {
	sc := e.in(r.scope())
	s, err := sc.subnet(in.SubnetID)
	if err != nil {
		return nil, err
	}
	for _, i := range sc.Interfaces {
		if i.SubnetID == s.SubnetID {
			return nil, refuse("DependencyViolation", "The subnet '%s' has dependencies and cannot be deleted.", s.SubnetID)
		}
	}
	sc.dropSubnet(s.SubnetID)
	return returned{true}, nil
}

func (sc *ec2Scope) dropSubnet(id string) {
	delete(sc.Subnets, id)
	delete(sc.NextHost, id)
	for _, t := range sc.RouteTables {
		kept := t.Associations[:0:0]
		for _, a := range t.Associations {
			if a.SubnetID != id {
				kept = append(kept, a)
			}
		}
		t.Associations = kept
	}
	for _, a := range sc.Acls {
		kept := a.Associations[:0:0]
		for _, as := range a.Associations {
			if as.SubnetID != id {
				kept = append(kept, as)
			}
		}
		a.Associations = kept
	}
}

type modifySubnetIn struct {
	SubnetID                    string `q:"SubnetId"`
	MapPublicIpOnLaunch         *attributeBool
	AssignIpv6AddressOnCreation *attributeBool
	EnableDns64                 *attributeBool
	ARecord                     *attributeBool `q:"EnableResourceNameDnsARecordOnLaunch"`
	AAAARecord                  *attributeBool `q:"EnableResourceNameDnsAAAARecordOnLaunch"`
	HostnameType                string         `q:"PrivateDnsHostnameTypeOnLaunch"`
}

func (e *EC2) modifySubnet(r *request, in modifySubnetIn) (any, error) {
	s, err := e.in(r.scope()).subnet(in.SubnetID)
	if err != nil {
		return nil, err
	}
	set := func(dst *bool, a *attributeBool) {
		if a != nil {
			*dst = a.Value
		}
	}
	set(&s.MapPublicIP, in.MapPublicIpOnLaunch)
	set(&s.AssignIpv6, in.AssignIpv6AddressOnCreation)
	set(&s.EnableDNS64, in.EnableDns64)
	set(&s.PrivateDNS.ARecord, in.ARecord)
	set(&s.PrivateDNS.AAAARecord, in.AAAARecord)
	if in.HostnameType != "" {
		s.PrivateDNS.HostnameType = in.HostnameType
	}
	return returned{true}, nil
}
