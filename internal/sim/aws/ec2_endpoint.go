package aws

import (
	"slices"
	"strings"
	"time"
)

type dnsOptions struct {
	RecordType string `ec2:"dnsRecordIpType"`
}

// VpcEndpoint is a private way to a service of AWS. Only gateway endpoints (S3, DynamoDB) can be made here.
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
	DNSEntries        []struct{} `ec2:"dnsEntrySet"`
	CreationTimestamp time.Time  `ec2:"creationTimestamp"`
	OwnerID           string     `ec2:"ownerId"`
	ServiceRegion     string     `ec2:"serviceRegion"`
	meta
}

func (v *VpcEndpoint) ident() string { return v.ID }
func (v *VpcEndpoint) kind() string  { return "vpc-endpoint" }
func (v *VpcEndpoint) placed() place {
	return place{v.Status, []string{v.VpcID}, false}
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
	RouteTableID     []string `q:"RouteTableId"`
	ClientToken      string
	TagSpecification []tagSpec
}

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
	gateway := in.ServiceName == "com.amazonaws."+r.Region+".s3" || in.ServiceName == "com.amazonaws."+r.Region+".dynamodb"
	if in.VpcEndpointType == "" {
		in.VpcEndpointType = "Gateway"
	}
	if !gateway {
		return nil, refuse("InvalidServiceName", "The Vpc Endpoint Service '%s' does not exist", in.ServiceName)
	}
	if in.VpcEndpointType != "Gateway" {
		return nil, refuse("UnsupportedOperation", "Interface endpoints are not offered in this account.")
	}
	type answer struct {
		Endpoint *VpcEndpoint `ec2:"vpcEndpoint"`
		Token    string       `ec2:"clientToken,omitempty"`
	}
	id, again, err := e.token(r, in.ClientToken)
	if err != nil {
		return nil, err
	}
	if ep := sc.Endpoints[id]; again && ep != nil {
		return answer{ep, in.ClientToken}, nil
	}
	ep := &VpcEndpoint{ID: e.cloud.hex17("vpce-"), Type: "Gateway", VpcID: v.VpcID, ServiceName: in.ServiceName, Status: "available", OwnerID: r.Account,
		IPAddressType: "ipv4", DNSOptions: dnsOptions{"ipv4"}, ServiceRegion: r.Region, PolicyDocument: in.PolicyDocument, meta: e.fresh(tags)}
	if ep.PolicyDocument == "" {
		ep.PolicyDocument = `{"Version":"2008-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}]}`
	}
	ep.CreationTimestamp = ep.Created.Truncate(time.Second)
	for _, id := range in.RouteTableID {
		t, err := sc.routeTable(id)
		if err != nil {
			return nil, err
		}
		if t.VpcID != v.VpcID {
			return nil, refuse("InvalidParameter", "Route table %s belongs to a different network", id)
		}
	}
	sc.Endpoints[ep.ID] = ep
	e.attachEndpoint(sc, ep, in.RouteTableID, nil)
	e.remember(r, in.ClientToken, ep.ID)
	r.Make(ep.ID)
	return answer{ep, in.ClientToken}, nil
}

// attachEndpoint puts the endpoint's prefix list into route tables, and takes it out of others.
func (e *EC2) attachEndpoint(sc *ec2Scope, ep *VpcEndpoint, add, remove []string) {
	prefix := "pl-63a5400a"
	if strings.HasSuffix(ep.ServiceName, "dynamodb") {
		prefix = "pl-02cd2c6b"
	}
	for _, id := range add {
		if t := sc.RouteTables[id]; t != nil && !slices.Contains(ep.RouteTableIDs, id) {
			ep.RouteTableIDs = append(ep.RouteTableIDs, id)
			t.Routes = append(t.Routes, Route{DestinationPrefix: prefix, GatewayID: ep.ID, Status: "active", Origin: "CreateRoute"})
		}
	}
	for _, id := range remove {
		ep.RouteTableIDs = slices.DeleteFunc(ep.RouteTableIDs, func(x string) bool { return x == id })
		if t := sc.RouteTables[id]; t != nil {
			t.Routes = slices.DeleteFunc(t.Routes, func(x Route) bool { return x.GatewayID == ep.ID })
		}
	}
}

type modifyEndpointIn struct {
	ID                 string   `q:"VpcEndpointId"`
	AddRouteTableID    []string `q:"AddRouteTableId"`
	RemoveRouteTableID []string `q:"RemoveRouteTableId"`
	PolicyDocument     string
}

func (e *EC2) modifyEndpoint(r *request, in modifyEndpointIn) (any, error) {
	sc := e.in(r.scope())
	ep := sc.Endpoints[in.ID]
	if ep == nil {
		return nil, noEndpoint(in.ID)
	}
	e.attachEndpoint(sc, ep, in.AddRouteTableID, in.RemoveRouteTableID)
	if in.PolicyDocument != "" {
		ep.PolicyDocument = in.PolicyDocument
	}
	return returned{true}, nil
}

type endpointsIn struct {
	ID []string `q:"VpcEndpointId"`
}

type unsuccessful struct {
	ResourceID string `ec2:"resourceId"`
	Error      struct {
		Code    string `ec2:"code"`
		Message string `ec2:"message"`
	} `ec2:"error"`
}

func (e *EC2) deleteEndpoints(r *request, in endpointsIn) (any, error) {
	sc := e.in(r.scope())
	var bad []unsuccessful
	for _, id := range in.ID {
		ep := sc.Endpoints[id]
		if ep == nil {
			u := unsuccessful{ResourceID: id}
			u.Error.Code, u.Error.Message = "InvalidVpcEndpoint.NotFound", "The Vpc Endpoint Id '"+id+"' does not exist"
			bad = append(bad, u)
			continue
		}
		e.attachEndpoint(sc, ep, nil, slices.Clone(ep.RouteTableIDs))
		delete(sc.Endpoints, id)
	}
	return struct {
		Unsuccessful []unsuccessful `ec2:"unsuccessful"`
	}{bad}, nil
}

type describeEndpointsIn struct {
	endpointsIn
	page
}

func (e *EC2) describeEndpoints(r *request, in describeEndpointsIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Endpoints, in.ID, in.Filter, noEndpoint)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 1, 1000)
	return struct {
		Endpoints []*VpcEndpoint `ec2:"vpcEndpointSet"`
		Next      string         `ec2:"nextToken,omitempty"`
	}{items, next}, err
}
