package aws

import (
	"encoding/json"
	"slices"
)

// attachEndpoint puts the endpoint's prefix list into route tables, and takes it out of others.
func (e *EC2) attachEndpoint(sc *ec2Scope, ep *VpcEndpoint, add, remove []string) {
	for _, id := range add {
		if t := sc.RouteTables[id]; t != nil && !slices.Contains(ep.RouteTableIDs, id) {
			ep.RouteTableIDs = append(ep.RouteTableIDs, id)
			t.Routes = append(t.Routes, Route{DestinationPrefix: ep.prefixList(), GatewayID: ep.ID, Status: "active", Origin: "CreateRoute"})
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
	ID                    string   `q:"VpcEndpointId"`
	AddRouteTableID       []string `q:"AddRouteTableId|AddRouteTableIds"`
	RemoveRouteTableID    []string `q:"RemoveRouteTableId|RemoveRouteTableIds"`
	AddSubnetID           []string `q:"AddSubnetId|AddSubnetIds"`
	RemoveSubnetID        []string `q:"RemoveSubnetId|RemoveSubnetIds"`
	AddSecurityGroupID    []string `q:"AddSecurityGroupId|AddSecurityGroupIds"`
	RemoveSecurityGroupID []string `q:"RemoveSecurityGroupId|RemoveSecurityGroupIds"`
	PrivateDNS            *bool    `q:"PrivateDnsEnabled"`
	PolicyDocument        string
	ResetPolicy           bool
}

func (e *EC2) modifyEndpoint(r *request, in modifyEndpointIn) (any, error) {
	sc := e.in(r.scope())
	ep := sc.Endpoints[in.ID]
	if ep == nil {
		return nil, noEndpoint(in.ID)
	}
	if ep.Status != "available" {
		return nil, refuse("IncorrectState", "The vpc endpoint %s is in an incorrect state (%s) for this operation", ep.ID, ep.Status)
	}
	if ep.Type == "Gateway" {
		if err := sc.mayHold(ep, in.AddRouteTableID); err != nil {
			return nil, err
		}
		e.attachEndpoint(sc, ep, in.AddRouteTableID, in.RemoveRouteTableID)
	} else if err := e.modifyInterfaceEndpoint(sc, ep, in); err != nil {
		return nil, err
	}
	if in.PolicyDocument != "" {
		if !json.Valid([]byte(in.PolicyDocument)) {
			return nil, refuse("InvalidPolicyDocument", "The policy document is not valid JSON")
		}
		ep.PolicyDocument = in.PolicyDocument
	}
	if in.ResetPolicy {
		ep.PolicyDocument = openPolicy
	}
	return returned{true}, nil
}

func (e *EC2) modifyInterfaceEndpoint(sc *ec2Scope, ep *VpcEndpoint, in modifyEndpointIn) error {
	if in.PrivateDNS != nil {
		ep.PrivateDNS = *in.PrivateDNS
	}
	if len(in.AddSecurityGroupID)+len(in.RemoveSecurityGroupID) > 0 {
		ids := in.AddSecurityGroupID
		for _, g := range ep.Groups {
			if !slices.Contains(in.RemoveSecurityGroupID, g.GroupID) {
				ids = append(ids, g.GroupID)
			}
		}
		groups, err := sc.groupRefs(ep.VpcID, ids)
		if err != nil {
			return err
		}
		ep.Groups = groups
		for _, id := range ep.InterfaceIDs {
			if n := sc.Interfaces[id]; n != nil {
				n.Groups = groups
			}
		}
	}
	for _, id := range in.RemoveSubnetID {
		for _, n := range inOrder(sc.Interfaces) {
			if n.Holder == ep.ID && n.SubnetID == id {
				ep.InterfaceIDs = slices.DeleteFunc(ep.InterfaceIDs, func(x string) bool { return x == n.InterfaceID })
				e.dropInterface(sc, n.InterfaceID)
			}
		}
		ep.SubnetIDs = slices.DeleteFunc(ep.SubnetIDs, func(x string) bool { return x == id })
	}
	return e.interfacesIn(sc, ep, in.AddSubnetID)
}

type endpointsIn struct {
	ID []string `q:"VpcEndpointId|VpcEndpointIds"`
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
		if ep.Type == "Gateway" {
			delete(sc.Endpoints, id)
			continue
		}
		// An interface endpoint goes in its own time, and its interfaces with it.
		if ep.Status != "deleting" {
			ep.Status = "deleting"
			e.after(sc, endpointGoneTime, "endpoint-gone", ep.ID)
		}
	}
	return struct {
		Unsuccessful []unsuccessful `ec2:"unsuccessful"`
	}{bad}, nil
}

// endpointGone ends the deletion of an interface endpoint.
func (e *EC2) endpointGone(sc *ec2Scope, id string) {
	if ep := sc.Endpoints[id]; ep != nil {
		for _, n := range ep.InterfaceIDs {
			e.dropInterface(sc, n)
		}
		delete(sc.Endpoints, id)
	}
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
