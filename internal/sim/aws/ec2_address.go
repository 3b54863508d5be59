package aws

import "github.com/zopday/provisioner/internal/sim"

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
