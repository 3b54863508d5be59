package aws

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

type dnsOptions struct {
	RecordType string `ec2:"dnsRecordIpType"`
}

type dnsEntry struct {
	Name   string `ec2:"dnsName"`
	ZoneID string `ec2:"hostedZoneId"`
}

// VpcEndpoint is a private way to a service of AWS: a gateway endpoint (S3, DynamoDB) is a target in route tables, an
// interface endpoint has a network interface in each of its subnets.
type VpcEndpoint struct {
	ID                string     `ec2:"vpcEndpointId"`
	Type              string     `ec2:"vpcEndpointType"`
	VpcID             string     `ec2:"vpcId"`
	ServiceName       string     `ec2:"serviceName"`
	Status            string     `ec2:"state"`
	PolicyDocument    string     `ec2:"policyDocument,omitempty"`
	RouteTableIDs     []string   `ec2:"routeTableIdSet"`
	SubnetIDs         []string   `ec2:"subnetIdSet"`
	Groups            []groupRef `ec2:"groupSet"`
	IPAddressType     string     `ec2:"ipAddressType"`
	DNSOptions        dnsOptions `ec2:"dnsOptions"`
	PrivateDNS        bool       `ec2:"privateDnsEnabled"`
	RequesterManaged  bool       `ec2:"requesterManaged"`
	InterfaceIDs      []string   `ec2:"networkInterfaceIdSet"`
	DNSEntries        []dnsEntry `ec2:"dnsEntrySet"`
	CreationTimestamp time.Time  `ec2:"creationTimestamp"`
	OwnerID           string     `ec2:"ownerId"`
	ServiceRegion     string     `ec2:"serviceRegion"`
	meta
}

func (v *VpcEndpoint) ident() string { return v.ID }
func (v *VpcEndpoint) kind() string  { return "vpc-endpoint" }
func (v *VpcEndpoint) placed() place {
	// What is being deleted is in the way of its subnets by its interfaces, no longer by itself.
	if v.Status == "deleting" || v.Status == "deleted" || v.Status == "failed" {
		return place{v.Status, nil, true}
	}
	return place{v.Status, append([]string{v.VpcID}, v.SubnetIDs...), false}
}

func (v *VpcEndpoint) attr(name string) ([]string, bool) {
	m := map[string]string{"vpc-endpoint-id": v.ID, "vpc-id": v.VpcID, "service-name": v.ServiceName, "vpc-endpoint-state": v.Status,
		"vpc-endpoint-type": v.Type, "service-region": v.ServiceRegion, "ip-address-type": v.IPAddressType}
	s, ok := m[name]
	return []string{s}, ok
}

type createEndpointIn struct {
	VpcID            string `q:"VpcId"`
	VpcEndpointType  string
	ServiceName      string
	PolicyDocument   string
	RouteTableID     []string `q:"RouteTableId|RouteTableIds"`
	SubnetID         []string `q:"SubnetId|SubnetIds"`
	SecurityGroupID  []string `q:"SecurityGroupId|SecurityGroupIds"`
	PrivateDNS       *bool    `q:"PrivateDnsEnabled"`
	ClientToken      string
	TagSpecification []tagSpec
}

type endpointAnswer struct {
	Endpoint *VpcEndpoint `ec2:"vpcEndpoint"`
	Token    string       `ec2:"clientToken,omitempty"`
}

// interfaceServices are those of AWS's services that can be had by an interface endpoint here.
var interfaceServices = []string{"autoscaling", "ec2", "ec2messages", "ecr.api", "ecr.dkr", "elasticloadbalancing", "kms", "logs", "monitoring", "s3", "secretsmanager", "ssm", "ssmmessages", "sts"}

// openPolicy is the policy of an endpoint that was made without one.
const openPolicy = `{"Version":"2008-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}]}`

func (e *EC2) createEndpoint(r *request, in createEndpointIn) (any, error) {
	sc := e.in(r.scope())
	v, err := sc.vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	tags, err := tagsFor(in.TagSpecification, "vpc-endpoint")
	if err != nil {
		return nil, err
	}
	in.VpcEndpointType = textOr(in.VpcEndpointType, "Gateway")
	short, own := strings.CutPrefix(in.ServiceName, "com.amazonaws."+r.Region+".")
	asGateway := short == "s3" || short == "dynamodb"
	switch {
	case !own || !asGateway && !slices.Contains(interfaceServices, short):
		return nil, refuse("InvalidServiceName", "The Vpc Endpoint Service '%s' does not exist", in.ServiceName)
	case in.VpcEndpointType == "Gateway" && !asGateway, in.VpcEndpointType == "Interface" && !slices.Contains(interfaceServices, short):
		return nil, refuse("InvalidParameter", "Endpoint type (%s) does not match available service types ([%s]).", in.VpcEndpointType, map[bool]string{true: "Gateway", false: "Interface"}[asGateway])
	case in.VpcEndpointType != "Gateway" && in.VpcEndpointType != "Interface":
		return nil, refuse("InvalidParameter", "Endpoint type (%s) is not offered here.", in.VpcEndpointType)
	}
	if in.PolicyDocument != "" && !json.Valid([]byte(in.PolicyDocument)) {
		return nil, refuse("InvalidPolicyDocument", "The policy document is not valid JSON")
	}
	id, again, err := e.token(r, in.ClientToken)
	if err != nil {
		return nil, err
	}
	if ep := sc.Endpoints[id]; again && ep != nil {
		return endpointAnswer{ep, in.ClientToken}, nil
	}
	ep := &VpcEndpoint{ID: e.cloud.hex17("vpce-"), Type: in.VpcEndpointType, VpcID: v.VpcID, ServiceName: in.ServiceName, Status: "available", OwnerID: r.Account,
		IPAddressType: "ipv4", DNSOptions: dnsOptions{"ipv4"}, ServiceRegion: r.Region, PolicyDocument: textOr(in.PolicyDocument, openPolicy), meta: e.fresh(tags)}
	ep.CreationTimestamp = ep.Created.Truncate(time.Second)
	if ep.Type == "Gateway" {
		err = e.asGateway(sc, r.scope(), ep, in)
	} else {
		err = e.asInterface(sc, r.scope(), ep, v, in)
	}
	if err != nil {
		return nil, err
	}
	sc.Endpoints[ep.ID] = ep
	e.attachEndpoint(sc, ep, in.RouteTableID, nil)
	e.remember(r, in.ClientToken, ep.ID)
	r.Make(ep.ID)
	return endpointAnswer{ep, in.ClientToken}, nil
}

func (e *EC2) asGateway(sc *ec2Scope, s scope, ep *VpcEndpoint, in createEndpointIn) error {
	if len(in.SubnetID)+len(in.SecurityGroupID) > 0 {
		return refuse("InvalidParameter", "Subnets and security groups are not supported for Gateway endpoints")
	}
	gateways := countIn(sc.Endpoints, func(o *VpcEndpoint) bool { return o.Type == "Gateway" })
	if gateways >= int(e.cloud.quota(s, "vpc", quotaGatewayEndpoints)) {
		return refuse("VpcEndpointLimitExceeded", "The maximum number of VPC endpoints has been reached.")
	}
	return sc.mayHold(ep, in.RouteTableID)
}

// mayHold refuses route tables of another VPC, and those that have a route to the service already: "You can have multiple
// endpoint routes to different services in a route table, and … the same service in different route tables. But you can't
// have multiple endpoint routes to the same service in a single route table" ("Gateway endpoints", AWS PrivateLink guide).
func (sc *ec2Scope) mayHold(ep *VpcEndpoint, tables []string) error {
	for _, id := range tables {
		t, err := sc.routeTable(id)
		if err != nil {
			return err
		}
		if t.VpcID != ep.VpcID {
			return refuse("InvalidParameter", "Route table %s belongs to a different network", id)
		}
		if slices.ContainsFunc(t.Routes, func(rt Route) bool { return rt.DestinationPrefix == ep.prefixList() && rt.GatewayID != ep.ID }) {
			return refuse("RouteAlreadyExists", "route table %s already has a route with destination-prefix-list-id %s", id, ep.prefixList())
		}
	}
	return nil
}

func (v *VpcEndpoint) prefixList() string {
	if strings.HasSuffix(v.ServiceName, "dynamodb") {
		return "pl-02cd2c6b"
	}
	return "pl-63a5400a"
}

// asInterface gives an endpoint its interfaces, which are requester-managed ("Access an AWS service using an interface VPC
// endpoint", AWS PrivateLink guide).
func (e *EC2) asInterface(sc *ec2Scope, s scope, ep *VpcEndpoint, v *Vpc, in createEndpointIn) error {
	if len(in.RouteTableID) > 0 {
		return refuse("InvalidParameter", "Route table IDs are only supported for Gateway type VPC Endpoint.")
	}
	mine := countIn(sc.Endpoints, func(o *VpcEndpoint) bool { return o.Type == "Interface" && o.VpcID == v.VpcID })
	if mine >= int(e.cloud.quota(s, "vpc", quotaInterfaceEndpoints)) {
		return refuse("VpcEndpointLimitExceeded", "The maximum number of VPC endpoints has been reached.")
	}
	groups, err := sc.groupRefs(v.VpcID, in.SecurityGroupID)
	if err != nil {
		return err
	}
	ep.Groups = groups
	name := strings.Split(ep.ServiceName, ".")
	host := strings.Join(name[3:], ".") + "." + s.Region + ".amazonaws.com"
	ep.PrivateDNS = in.PrivateDNS == nil || *in.PrivateDNS
	if ep.PrivateDNS {
		if !v.DNSSupport || !v.DNSHostnames {
			return refuse("InvalidParameter", "Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC attributes set to true for %s", v.VpcID)
		}
		for _, o := range sc.Endpoints {
			if o.VpcID == v.VpcID && o.ServiceName == ep.ServiceName && o.PrivateDNS && !o.placed().gone {
				return refuse("InvalidParameter", "private-dns-enabled cannot be set because there is already a conflicting DNS domain for %s in the VPC %s", host, v.VpcID)
			}
		}
	}
	if err := e.interfacesIn(sc, ep, in.SubnetID); err != nil {
		return err
	}
	ep.DNSEntries = []dnsEntry{{ep.ID + "-" + e.cloud.World.Hex("", 8) + "." + host, "Z7HUB22UULQXV"}}
	if ep.PrivateDNS {
		ep.DNSEntries = append(ep.DNSEntries, dnsEntry{host, "Z" + strings.ToUpper(e.cloud.World.Hex("", 13))})
	}
	ep.Status = "pending"
	e.later(sc, endpointTime, ep.ID, "available")
	return nil
}

// How long an interface endpoint takes to come and to go, and how long its interfaces stay after it, from what users see.
const (
	endpointTime     = 60 * time.Second
	endpointGoneTime = 40 * time.Second
)

// interfacesIn puts the endpoint's interface into more subnets, one a zone.
func (e *EC2) interfacesIn(sc *ec2Scope, ep *VpcEndpoint, subnets []string) error {
	zones := map[string]bool{}
	for _, id := range ep.SubnetIDs {
		if s := sc.Subnets[id]; s != nil {
			zones[s.Zone] = true
		}
	}
	for _, id := range subnets {
		s := sc.Subnets[id]
		switch {
		case s == nil:
			return noSubnet(id)
		case s.VpcID != ep.VpcID:
			return refuse("InvalidParameter", "Subnet %s belongs to a different network", id)
		case zones[s.Zone]:
			return refuse("DuplicateSubnetsInSameZone", "Found another VPC endpoint subnet in the availability zone of %s. VPC endpoint subnets should be in different availability zones supported by the VPC endpoint service.", id)
		}
		zones[s.Zone] = true
	}
	for _, id := range subnets {
		n, err := e.newInterface(sc, sc.Subnets[id], ep.Groups, "VPC Endpoint Interface "+ep.ID, "vpc_endpoint")
		if err != nil {
			return err
		}
		n.Status, n.RequesterManaged, n.RequesterID, n.Holder, n.Default = "in-use", true, "amazon-aws", ep.ID, true
		n.Attachment = &attachment{ID: "ela-attach-" + e.cloud.World.Hex("", 17), InstanceOwnerID: "amazon-aws", DeviceIndex: 1, Status: "attached", AttachTime: e.cloud.World.Now()}
		ep.SubnetIDs, ep.InterfaceIDs = append(ep.SubnetIDs, id), append(ep.InterfaceIDs, n.InterfaceID)
	}
	return nil
}
