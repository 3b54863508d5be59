package aws

import (
	"strings"
	"time"
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
