package aws

import (
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

type natAddress struct {
	AllocationID  string `ec2:"allocationId,omitempty"`
	AssociationID string `ec2:"associationId,omitempty"`
	PrivateIP     string `ec2:"privateIp,omitempty"`
	PublicIP      string `ec2:"publicIp,omitempty"`
	InterfaceID   string `ec2:"networkInterfaceId,omitempty"`
	Primary       bool   `ec2:"isPrimary"`
	Status        string `ec2:"status"`
}

// NatGateway gives private subnets a way out.
type NatGateway struct {
	NatGatewayID   string       `ec2:"natGatewayId"`
	SubnetID       string       `ec2:"subnetId,omitempty"`
	VpcID          string       `ec2:"vpcId"`
	Status         string       `ec2:"state"`
	CreateTime     time.Time    `ec2:"createTime"`
	DeleteTime     time.Time    `ec2:"deleteTime"`
	FailureCode    string       `ec2:"failureCode,omitempty"`
	FailureMessage string       `ec2:"failureMessage,omitempty"`
	Addresses      []natAddress `ec2:"natGatewayAddressSet"`
	Connectivity   string       `ec2:"connectivityType"`
	Availability   string       `ec2:"availabilityMode,omitempty"`
	meta
}

func (n *NatGateway) ident() string { return n.NatGatewayID }
func (n *NatGateway) kind() string  { return "natgateway" }
func (n *NatGateway) placed() place {
	if n.Status == "deleted" || n.Status == "failed" {
		return place{n.Status, nil, true}
	}
	return place{n.Status, []string{n.VpcID, n.SubnetID}, false}
}

func (n *NatGateway) attr(name string) ([]string, bool) {
	switch name {
	case "nat-gateway-id":
		return []string{n.NatGatewayID}, true
	case "state":
		return []string{n.Status}, true
	case "subnet-id":
		return []string{n.SubnetID}, true
	case "vpc-id":
		return []string{n.VpcID}, true
	}
	return nil, false
}

// How long a NAT gateway takes, from what users report: one to two minutes to become available, about one to go.
const (
	natCreateTime = 90 * time.Second
	natDeleteTime = 60 * time.Second
	// A deleted or failed gateway stays visible for about an hour ("Delete a NAT gateway", Amazon VPC user guide).
	goneVisible = time.Hour
)

type createNatIn struct {
	SubnetID         string `q:"SubnetId"`
	VpcID            string `q:"VpcId"`
	AllocationID     string `q:"AllocationId"`
	ConnectivityType string
	AvailabilityMode string
	ClientToken      string
	TagSpecification []tagSpec
}

func (e *EC2) createNat(r *request, in createNatIn) (any, error) {
	if in.AvailabilityMode == "regional" {
		return nil, refuse("UnsupportedOperation", "Regional NAT gateways are not offered in this account.")
	}
	sc := e.in(r.scope())
	s, err := sc.subnet(in.SubnetID)
	if err != nil {
		return nil, err
	}
	tags, err := tagsFor(in.TagSpecification, "natgateway")
	if err != nil {
		return nil, err
	}
	type answer struct {
		Token string      `ec2:"clientToken,omitempty"`
		Nat   *NatGateway `ec2:"natGateway"`
	}
	id, again, err := e.token(r, in.ClientToken)
	if err != nil {
		return nil, err
	}
	if n := sc.Nats[id]; again && n != nil {
		r.Touch(id)
		return answer{in.ClientToken, n}, nil
	}
	if in.ConnectivityType == "" {
		in.ConnectivityType = "public"
	}
	if in.ConnectivityType == "public" && in.AllocationID == "" {
		return nil, missing("AllocationId")
	}
	eip := sc.Addresses[in.AllocationID]
	if in.ConnectivityType == "public" && eip == nil {
		return nil, refuse("InvalidAllocationID.NotFound", "The allocation ID '%s' does not exist", in.AllocationID)
	}
	busy := countIn(sc.Nats, func(n *NatGateway) bool {
		return !n.placed().gone && sc.Subnets[n.SubnetID] != nil && sc.Subnets[n.SubnetID].Zone == s.Zone
	})
	if busy >= int(e.cloud.quota(r.scope(), "vpc", quotaNats)) {
		return nil, refuse("NatGatewayLimitExceeded", "Performing this operation would exceed the limit of %d NAT gateways", busy)
	}
	n := &NatGateway{NatGatewayID: e.cloud.hex17("nat-"), SubnetID: s.SubnetID, VpcID: s.VpcID, Status: "pending", Connectivity: in.ConnectivityType,
		Availability: "zonal", meta: e.fresh(tags)}
	n.CreateTime = n.Created.Truncate(time.Second)
	n.Addresses = []natAddress{{AllocationID: in.AllocationID, Primary: true, Status: "associating"}}
	sc.Nats[n.NatGatewayID] = n
	e.remember(r, in.ClientToken, n.NatGatewayID)
	r.Make(n.NatGatewayID)
	// What the gateway lacks shows only later, in its state ("Troubleshoot NAT gateways", Amazon VPC user guide).
	switch {
	case eip != nil && (eip.AssociationID != "" || eip.InterfaceID != ""):
		e.after(sc, 5*time.Second, "nat-failed", n.NatGatewayID+"|Resource.AlreadyAssociated|Elastic IP address ["+eip.AllocationID+"] is already associated")
	case in.ConnectivityType == "public" && sc.gatewayOf(s.VpcID) == nil:
		e.after(sc, 5*time.Second, "nat-failed", n.NatGatewayID+"|Gateway.NotAttached|Network "+s.VpcID+" has no Internet gateway attached")
	default:
		if err := e.wireNat(sc, n, s, eip); err != nil {
			delete(sc.Nats, n.NatGatewayID)
			return nil, err
		}
		e.later(sc, natCreateTime, n.NatGatewayID, "available")
	}
	return answer{in.ClientToken, n}, nil
}

// wireNat gives a gateway its network interface and address.
func (e *EC2) wireNat(sc *ec2Scope, n *NatGateway, s *Subnet, eip *Address) error {
	i, err := e.newInterface(sc, s, nil, "Interface for NAT Gateway "+n.NatGatewayID, "nat_gateway")
	if err != nil {
		return err
	}
	i.RequesterManaged, i.RequesterID = true, "amazon-elb"
	i.SourceDestCheck = false
	i.Attachment = &attachment{ID: e.cloud.hex17("ela-attach-"), InstanceOwnerID: "amazon-aws", DeviceIndex: 1, Status: "attached", AttachTime: i.Created.Truncate(time.Second)}
	i.Status = "in-use"
	i.Holder = n.NatGatewayID
	a := &n.Addresses[0]
	a.InterfaceID, a.PrivateIP = i.InterfaceID, i.PrivateIP
	if eip != nil {
		e.bind(eip, i)
		a.PublicIP, a.AssociationID = eip.PublicIP, eip.AssociationID
	}
	return nil
}

type describeNatsIn struct {
	NatGatewayID []string `q:"NatGatewayId"`
	page
}

func (e *EC2) describeNats(r *request, in describeNatsIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Nats, in.NatGatewayID, in.Filter, noNat)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	return struct {
		Nats []*NatGateway `ec2:"natGatewaySet"`
		Next string        `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

type natIn struct {
	NatGatewayID string `q:"NatGatewayId"`
}

func (e *EC2) deleteNat(r *request, in natIn) (any, error) {
	if in.NatGatewayID == "" {
		return nil, missing("natGatewayId")
	}
	sc := e.in(r.scope())
	n := sc.Nats[in.NatGatewayID]
	if n == nil {
		return nil, noNat(in.NatGatewayID)
	}
	if !n.placed().gone && n.Status != "deleting" {
		n.Status = "deleting"
		r.Make(n.NatGatewayID)
		e.later(sc, natDeleteTime, n.NatGatewayID, "deleted")
	}
	return struct {
		NatGatewayID string `ec2:"natGatewayId"`
	}{n.NatGatewayID}, nil
}

// natState moves a gateway on.
func (e *EC2) natState(sc *ec2Scope, n *NatGateway, state, code, message string) {
	n.Status = state
	switch state {
	case "available":
		for i := range n.Addresses {
			n.Addresses[i].Status = "succeeded"
		}
	case "deleted", "failed":
		if state == "failed" {
			n.FailureCode, n.FailureMessage = code, message
		}
		n.DeleteTime = e.cloud.World.Now().Truncate(time.Second)
		for i := range n.Addresses {
			a := &n.Addresses[i]
			e.dropInterface(sc, a.InterfaceID)
			if state == "failed" {
				a.Status = "failed"
			}
		}
		e.after(sc, goneVisible, "forget", n.NatGatewayID)
	}
}

func (e *EC2) natFailed(sc *ec2Scope, key string) {
	parts := strings.SplitN(key, "|", 3)
	if n := sc.Nats[parts[0]]; n != nil && n.Status == "pending" {
		e.natState(sc, n, "failed", parts[1], parts[2])
	}
}

// Address is an elastic IP address.
type Address struct {
	PublicIP         string `ec2:"publicIp"`
	AllocationID     string `ec2:"allocationId"`
	AssociationID    string `ec2:"associationId,omitempty"`
	Domain           string `ec2:"domain"`
	InstanceID       string `ec2:"instanceId,omitempty"`
	InterfaceID      string `ec2:"networkInterfaceId,omitempty"`
	InterfaceOwnerID string `ec2:"networkInterfaceOwnerId,omitempty"`
	PrivateIP        string `ec2:"privateIpAddress,omitempty"`
	PublicIpv4Pool   string `ec2:"publicIpv4Pool"`
	BorderGroup      string `ec2:"networkBorderGroup"`
	meta

	OwnerID string
}

func (a *Address) ident() string { return a.AllocationID }
func (a *Address) kind() string  { return "elastic-ip" }
func (a *Address) placed() place {
	return place{"", []string{a.InterfaceID}, false}
}

func (a *Address) attr(name string) ([]string, bool) {
	v := map[string]string{"allocation-id": a.AllocationID, "association-id": a.AssociationID, "domain": a.Domain, "instance-id": a.InstanceID,
		"network-interface-id": a.InterfaceID, "network-interface-owner-id": a.InterfaceOwnerID, "private-ip-address": a.PrivateIP,
		"public-ip": a.PublicIP, "network-border-group": a.BorderGroup}
	s, ok := v[name]
	return []string{s}, ok
}

// bind associates an address with an interface.
func (e *EC2) bind(a *Address, i *NetworkInterface) {
	a.AssociationID = e.cloud.hex17("eipassoc-")
	a.InterfaceID, a.InterfaceOwnerID, a.PrivateIP = i.InterfaceID, i.OwnerID, i.PrivateIP
	if i.Attachment != nil {
		a.InstanceID = i.Attachment.InstanceID
	}
	i.Association = &association{PublicIP: a.PublicIP, IPOwnerID: a.OwnerID, AllocationID: a.AllocationID, AssociationID: a.AssociationID, NatEnabled: true}
}

func (sc *ec2Scope) unbind(a *Address) {
	if i := sc.Interfaces[a.InterfaceID]; i != nil {
		i.Association = nil
	}
	a.AssociationID, a.InterfaceID, a.InterfaceOwnerID, a.PrivateIP, a.InstanceID = "", "", "", "", ""
}

type allocateIn struct {
	Domain             string
	TagSpecification   []tagSpec
	PublicIpv4Pool     string
	NetworkBorderGroup string
}

func (e *EC2) allocateAddress(r *request, in allocateIn) (any, error) {
	tags, err := tagsFor(in.TagSpecification, "elastic-ip")
	if err != nil {
		return nil, err
	}
	sc := e.in(r.scope())
	if len(sc.Addresses) >= int(e.cloud.quota(r.scope(), "ec2", quotaAddresses)) {
		return nil, refuse("AddressLimitExceeded", "The maximum number of addresses has been reached.")
	}
	a := &Address{PublicIP: e.publicIP(), AllocationID: e.cloud.hex17("eipalloc-"), Domain: "vpc", PublicIpv4Pool: "amazon",
		BorderGroup: r.Region, OwnerID: r.Account, meta: e.fresh(tags)}
	sc.Addresses[a.AllocationID] = a
	r.Make(a.AllocationID)
	return struct {
		PublicIP     string `ec2:"publicIp"`
		AllocationID string `ec2:"allocationId"`
		Pool         string `ec2:"publicIpv4Pool"`
		BorderGroup  string `ec2:"networkBorderGroup"`
		Domain       string `ec2:"domain"`
	}{a.PublicIP, a.AllocationID, a.PublicIpv4Pool, a.BorderGroup, a.Domain}, nil
}

type describeAddressesIn struct {
	AllocationID []string `q:"AllocationId"`
	PublicIP     []string `q:"PublicIp"`
	Filter       []Filter
}

func (e *EC2) describeAddresses(r *request, in describeAddressesIn) (any, error) {
	sc := e.in(r.scope())
	for _, ip := range in.PublicIP {
		n := len(in.AllocationID)
		for _, a := range sc.Addresses {
			if a.PublicIP == ip {
				in.AllocationID = append(in.AllocationID, a.AllocationID)
			}
		}
		if len(in.AllocationID) == n {
			return nil, refuse("InvalidAddress.NotFound", "Address '%s' not found.", ip)
		}
	}
	found, err := find(e, r, sc.Addresses, in.AllocationID, in.Filter, noAllocation)
	return struct {
		Addresses []*Address `ec2:"addressesSet"`
	}{found}, err
}

type releaseIn struct {
	AllocationID string `q:"AllocationId"`
	PublicIP     string `q:"PublicIp"`
}

func (e *EC2) releaseAddress(r *request, in releaseIn) (any, error) {
	if in.AllocationID == "" {
		if in.PublicIP == "" {
			return nil, missing("AllocationId")
		}
		return nil, refuse("InvalidParameterValue", "You must specify an allocation id when releasing a VPC elastic IP address")
	}
	sc := e.in(r.scope())
	a := sc.Addresses[in.AllocationID]
	if a == nil {
		return nil, noAllocation(in.AllocationID)
	}
	if a.AssociationID != "" {
		// The address of a NAT gateway or load balancer is refused as if it were somebody else's, for minutes after the gateway's deletion
		// ("AuthFailure when releasing the elastic IP", eformat/sno-for-100 issue 9).
		if i := sc.Interfaces[a.InterfaceID]; i != nil && i.RequesterManaged {
			return nil, refuse("AuthFailure", "You do not have permission to access the specified resource.")
		}
		return nil, refuse("InvalidIPAddress.InUse", "Address %s is in use.", a.PublicIP)
	}
	delete(sc.Addresses, a.AllocationID)
	return returned{true}, nil
}

type associateAddressIn struct {
	AllocationID string `q:"AllocationId"`
	InstanceID   string `q:"InstanceId"`
	InterfaceID  string `q:"NetworkInterfaceId"`
	Reassociate  bool   `q:"AllowReassociation"`
}

func (e *EC2) associateAddress(r *request, in associateAddressIn) (any, error) {
	sc := e.in(r.scope())
	a := sc.Addresses[in.AllocationID]
	if a == nil {
		return nil, noAllocation(in.AllocationID)
	}
	i := sc.Interfaces[in.InterfaceID]
	if in.InstanceID != "" {
		inst := sc.Instances[in.InstanceID]
		if inst == nil {
			return nil, noInstance(in.InstanceID)
		}
		if inst.Status.Name != "running" && inst.Status.Name != "stopped" {
			return nil, refuse("InvalidInstanceID", "The pending instance '%s' is not in a valid state for this operation.", in.InstanceID)
		}
		i = sc.primary(inst)
	}
	if i == nil {
		return nil, noInterface(in.InterfaceID)
	}
	if a.AssociationID != "" && !in.Reassociate {
		return nil, refuse("Resource.AlreadyAssociated", "resource %s is already associated with associate-id %s", a.AllocationID, a.AssociationID)
	}
	sc.unbind(a)
	e.bind(a, i)
	return struct {
		Return bool   `ec2:"return"`
		ID     string `ec2:"associationId"`
	}{true, a.AssociationID}, nil
}

func (e *EC2) disassociateAddress(r *request, in associationIn) (any, error) {
	sc := e.in(r.scope())
	for _, a := range sc.Addresses {
		if a.AssociationID != in.AssociationID || in.AssociationID == "" {
			continue
		}
		if i := sc.Interfaces[a.InterfaceID]; i != nil && i.RequesterManaged {
			return nil, refuse("AuthFailure", "You do not have permission to access the specified resource.")
		}
		sc.unbind(a)
		return returned{true}, nil
	}
	return nil, refuse("InvalidAssociationID.NotFound", "The association ID '%s' does not exist", in.AssociationID)
}

// consistency of the interface with the simulation's core
var _ sim.Service = (*EC2)(nil)
