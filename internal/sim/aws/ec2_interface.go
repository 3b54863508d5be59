package aws

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

type attachment struct {
	ID                  string    `ec2:"attachmentId"`
	InstanceID          string    `ec2:"instanceId,omitempty"`
	InstanceOwnerID     string    `ec2:"instanceOwnerId,omitempty"`
	DeviceIndex         int       `ec2:"deviceIndex"`
	NetworkCardIndex    int       `ec2:"networkCardIndex"`
	Status              string    `ec2:"status"`
	AttachTime          time.Time `ec2:"attachTime"`
	DeleteOnTermination bool      `ec2:"deleteOnTermination"`
}

type association struct {
	PublicIP      string `ec2:"publicIp"`
	PublicDNSName string `ec2:"publicDnsName"`
	IPOwnerID     string `ec2:"ipOwnerId"`
	AllocationID  string `ec2:"allocationId,omitempty"`
	AssociationID string `ec2:"associationId,omitempty"`
	NatEnabled    bool   `ec2:"natEnabled,omitempty"`
}

type groupRef struct {
	GroupID   string `ec2:"groupId"`
	GroupName string `ec2:"groupName"`
}

type operator struct {
	Managed bool `ec2:"managed"`
}

// NetworkInterface is a network card: an instance's, or one that a service keeps in a subnet.
type NetworkInterface struct {
	InterfaceID      string       `ec2:"networkInterfaceId"`
	SubnetID         string       `ec2:"subnetId"`
	VpcID            string       `ec2:"vpcId"`
	Zone             string       `ec2:"availabilityZone"`
	ZoneID           string       `ec2:"availabilityZoneId"`
	Description      string       `ec2:"description"`
	OwnerID          string       `ec2:"ownerId"`
	RequesterID      string       `ec2:"requesterId,omitempty"`
	RequesterManaged bool         `ec2:"requesterManaged"`
	Status           string       `ec2:"status"`
	MacAddress       string       `ec2:"macAddress"`
	PrivateIP        string       `ec2:"privateIpAddress"`
	PrivateDNSName   string       `ec2:"privateDnsName"`
	SourceDestCheck  bool         `ec2:"sourceDestCheck"`
	Groups           []groupRef   `ec2:"groupSet"`
	Attachment       *attachment  `ec2:"attachment"`
	Association      *association `ec2:"association"`
	Ipv6             []struct{}   `ec2:"ipv6AddressesSet"`
	Type             string       `ec2:"interfaceType"`
	Operator         operator     `ec2:"operator"`
	meta

	// Holder is the ID or ARN of what the interface belongs to.
	Holder string
}

func (i *NetworkInterface) ident() string { return i.InterfaceID }
func (i *NetworkInterface) kind() string  { return "network-interface" }
func (i *NetworkInterface) placed() place {
	return place{i.Status, []string{i.VpcID, i.SubnetID, i.Holder}, false}
}

// shownInterface adds what is derived.
type shownInterface struct {
	NetworkInterface
	Addresses []interfaceAddress `ec2:"privateIpAddressesSet"`
}

type interfaceAddress struct {
	PrivateIP      string       `ec2:"privateIpAddress"`
	PrivateDNSName string       `ec2:"privateDnsName"`
	Primary        bool         `ec2:"primary"`
	Association    *association `ec2:"association"`
}

func (i *NetworkInterface) addresses() []interfaceAddress {
	return []interfaceAddress{{i.PrivateIP, i.PrivateDNSName, true, i.Association}}
}

func (i *NetworkInterface) attr(name string) ([]string, bool) {
	var a attachment
	if i.Attachment != nil {
		a = *i.Attachment
	}
	var as association
	if i.Association != nil {
		as = *i.Association
	}
	var ids, names []string
	for _, g := range i.Groups {
		ids, names = append(ids, g.GroupID), append(names, g.GroupName)
	}
	switch name {
	case "group-id":
		return ids, true
	case "group-name":
		return names, true
	}
	v := map[string]string{"network-interface-id": i.InterfaceID, "subnet-id": i.SubnetID, "vpc-id": i.VpcID, "availability-zone": i.Zone,
		"description": i.Description, "owner-id": i.OwnerID, "requester-id": i.RequesterID, "requester-managed": strconv.FormatBool(i.RequesterManaged),
		"status": i.Status, "mac-address": i.MacAddress, "private-ip-address": i.PrivateIP, "addresses.private-ip-address": i.PrivateIP,
		"private-dns-name": i.PrivateDNSName, "source-dest-check": strconv.FormatBool(i.SourceDestCheck), "interface-type": i.Type,
		"attachment.instance-id": a.InstanceID, "attachment.attachment-id": a.ID, "attachment.status": a.Status,
		"attachment.instance-owner-id": a.InstanceOwnerID, "attachment.delete-on-termination": strconv.FormatBool(a.DeleteOnTermination),
		"attachment.device-index": strconv.Itoa(a.DeviceIndex), "association.public-ip": as.PublicIP, "association.allocation-id": as.AllocationID,
		"association.association-id": as.AssociationID, "association.ip-owner-id": as.IPOwnerID, "addresses.primary": "true"}
	s, ok := v[name]
	return []string{s}, ok
}

// newInterface puts a network interface into a subnet.
func (e *EC2) newInterface(sc *ec2Scope, s *Subnet, groups []groupRef, description, kind string) (*NetworkInterface, error) {
	ip, err := sc.takeAddress(s)
	if err != nil {
		return nil, err
	}
	mac := e.cloud.World.Hex("", 10)
	i := &NetworkInterface{InterfaceID: e.cloud.hex17("eni-"), SubnetID: s.SubnetID, VpcID: s.VpcID, Zone: s.Zone, ZoneID: s.ZoneID, Description: description,
		OwnerID: sc.Account, Status: "available", PrivateIP: ip, PrivateDNSName: privateName(ip, sc.Region), SourceDestCheck: true, Groups: groups, Type: kind,
		MacAddress: fmt.Sprintf("02:%s:%s:%s:%s:%s", mac[:2], mac[2:4], mac[4:6], mac[6:8], mac[8:]), meta: e.fresh(nil)}
	sc.Interfaces[i.InterfaceID] = i
	return i, nil
}

// dropInterface removes an interface and frees its address.
func (e *EC2) dropInterface(sc *ec2Scope, id string) {
	i := sc.Interfaces[id]
	if i == nil {
		return
	}
	for _, a := range sc.Addresses {
		if a.InterfaceID == id {
			sc.unbind(a)
		}
	}
	delete(sc.Interfaces, id)
}

type describeInterfacesIn struct {
	InterfaceID []string `q:"NetworkInterfaceId"`
	page
}

func (e *EC2) describeInterfaces(r *request, in describeInterfacesIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Interfaces, in.InterfaceID, in.Filter, noInterface)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	out := make([]shownInterface, len(items))
	for k, i := range items {
		out[k] = shownInterface{*i, i.addresses()}
	}
	return struct {
		Interfaces []shownInterface `ec2:"networkInterfaceSet"`
		Next       string           `ec2:"nextToken,omitempty"`
	}{out, next}, err
}

type createInterfaceIn struct {
	SubnetID         string `q:"SubnetId"`
	Description      string
	GroupID          []string `q:"SecurityGroupId|Groups"`
	TagSpecification []tagSpec
	ClientToken      string
}

func (e *EC2) createInterface(r *request, in createInterfaceIn) (any, error) {
	sc := e.in(r.scope())
	s, err := sc.subnet(in.SubnetID)
	if err != nil {
		return nil, err
	}
	tags, err := tagsFor(in.TagSpecification, "network-interface")
	if err != nil {
		return nil, err
	}
	groups, err := sc.groupRefs(s.VpcID, in.GroupID)
	if err != nil {
		return nil, err
	}
	i, err := e.newInterface(sc, s, groups, in.Description, "interface")
	if err != nil {
		return nil, err
	}
	i.Tags = tags
	i.RequesterID = r.Account
	r.Make(i.InterfaceID)
	shown := shownInterface{*i, i.addresses()}
	shown.Status = "pending"
	return struct {
		Interface shownInterface `ec2:"networkInterface"`
		Token     string         `ec2:"clientToken,omitempty"`
	}{shown, in.ClientToken}, nil
}

type interfaceIn struct {
	InterfaceID string `q:"NetworkInterfaceId"`
}

func (e *EC2) deleteInterface(r *request, in interfaceIn) (any, error) {
	if in.InterfaceID == "" {
		return nil, missing("networkInterfaceId")
	}
	sc := e.in(r.scope())
	i := sc.Interfaces[in.InterfaceID]
	if i == nil {
		return nil, noInterface(in.InterfaceID)
	}
	if i.Attachment != nil {
		return nil, refuse("InvalidParameterValue", "Network interface '%s' is currently in use.", i.InterfaceID)
	}
	e.dropInterface(sc, i.InterfaceID)
	return returned{true}, nil
}

type detachInterfaceIn struct {
	AttachmentID string `q:"AttachmentId"`
	Force        bool
}

func (e *EC2) detachInterface(r *request, in detachInterfaceIn) (any, error) {
	sc := e.in(r.scope())
	for _, i := range sc.Interfaces {
		if i.Attachment == nil || i.Attachment.ID != in.AttachmentID {
			continue
		}
		if i.RequesterManaged {
			return nil, refuse("AuthFailure", "You do not have permission to access the specified resource.")
		}
		if i.Attachment.DeviceIndex == 0 && i.Attachment.InstanceID != "" {
			return nil, refuse("OperationNotPermitted", "The network interface at device index 0 cannot be detached.")
		}
		i.Attachment, i.Status, i.Holder = nil, "available", ""
		r.Touch(i.InterfaceID)
		return returned{true}, nil
	}
	return nil, refuse("InvalidAttachmentID.NotFound", "The attachment ID '%s' does not exist", in.AttachmentID)
}

type modifyInterfaceIn struct {
	InterfaceID     string   `q:"NetworkInterfaceId"`
	GroupID         []string `q:"SecurityGroupId|Groups"`
	Description     *attributeText
	SourceDestCheck *attributeBool
	Attachment      *struct {
		AttachmentID        string `q:"AttachmentId"`
		DeleteOnTermination bool
	}
}

type attributeText struct {
	Value string `ec2:"value"`
}

func (e *EC2) modifyInterface(r *request, in modifyInterfaceIn) (any, error) {
	sc := e.in(r.scope())
	i := sc.Interfaces[in.InterfaceID]
	if i == nil {
		return nil, noInterface(in.InterfaceID)
	}
	if len(in.GroupID) > 0 {
		groups, err := sc.groupRefs(i.VpcID, in.GroupID)
		if err != nil {
			return nil, err
		}
		i.Groups = groups
	}
	if in.Description != nil {
		i.Description = in.Description.Value
	}
	if in.SourceDestCheck != nil {
		i.SourceDestCheck = in.SourceDestCheck.Value
	}
	if in.Attachment != nil && i.Attachment != nil && i.Attachment.ID == in.Attachment.AttachmentID {
		i.Attachment.DeleteOnTermination = in.Attachment.DeleteOnTermination
	}
	return returned{true}, nil
}

// groupRefs resolves security groups for an interface; none means the VPC's default group.
func (sc *ec2Scope) groupRefs(vpcID string, ids []string) ([]groupRef, error) {
	var out []groupRef
	for _, id := range ids {
		g := sc.Groups[id]
		if g == nil {
			return nil, noGroup(id)
		}
		if g.VpcID != vpcID {
			return nil, refuse("InvalidParameter", "Security group %s and subnet belong to different networks.", id)
		}
		if !slices.ContainsFunc(out, func(r groupRef) bool { return r.GroupID == id }) {
			out = append(out, groupRef{g.GroupID, g.GroupName})
		}
	}
	if len(ids) == 0 {
		for _, g := range sc.Groups {
			if g.VpcID == vpcID && g.GroupName == "default" {
				out = append(out, groupRef{g.GroupID, g.GroupName})
			}
		}
	}
	if len(out) > 5 {
		return nil, refuse("SecurityGroupsPerInterfaceLimitExceeded", "The maximum number of security groups per interface has been reached.")
	}
	return out, nil
}
