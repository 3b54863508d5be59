package aws

import (
	"net/netip"
	"slices"
	"strconv"
)

// Route is a line of a route table.
type Route struct {
	DestinationCidrBlock string `ec2:"destinationCidrBlock,omitempty"`
	DestinationIpv6      string `ec2:"destinationIpv6CidrBlock,omitempty"`
	DestinationPrefix    string `ec2:"destinationPrefixListId,omitempty"`
	GatewayID            string `ec2:"gatewayId,omitempty"`
	NatGatewayID         string `ec2:"natGatewayId,omitempty"`
	InterfaceID          string `ec2:"networkInterfaceId,omitempty"`
	InstanceID           string `ec2:"instanceId,omitempty"`
	InstanceOwnerID      string `ec2:"instanceOwnerId,omitempty"`
	PeeringID            string `ec2:"vpcPeeringConnectionId,omitempty"`
	Status               string `ec2:"state"`
	Origin               string `ec2:"origin"`
}

type assocState struct {
	State string `ec2:"state"`
}

// RouteTableAssociation ties a route table to a subnet, or makes it a VPC's main one.
type RouteTableAssociation struct {
	ID           string     `ec2:"routeTableAssociationId"`
	RouteTableID string     `ec2:"routeTableId"`
	SubnetID     string     `ec2:"subnetId,omitempty"`
	GatewayID    string     `ec2:"gatewayId,omitempty"`
	Main         bool       `ec2:"main"`
	State        assocState `ec2:"associationState"`
}

// RouteTable holds the routes of some subnets.
type RouteTable struct {
	RouteTableID string                  `ec2:"routeTableId"`
	VpcID        string                  `ec2:"vpcId"`
	OwnerID      string                  `ec2:"ownerId"`
	Routes       []Route                 `ec2:"routeSet"`
	Associations []RouteTableAssociation `ec2:"associationSet"`
	Propagating  []struct {
		GatewayID string `ec2:"gatewayId"`
	} `ec2:"propagatingVgwSet"`
	meta
}

func (t *RouteTable) ident() string { return t.RouteTableID }
func (t *RouteTable) kind() string  { return "route-table" }
func (t *RouteTable) placed() place {
	return place{"", []string{t.VpcID}, false}
}

func (t *RouteTable) attr(name string) ([]string, bool) {
	var out []string
	each := func(f func(RouteTableAssociation) string) ([]string, bool) {
		for _, a := range t.Associations {
			if s := f(a); s != "" {
				out = append(out, s)
			}
		}
		return out, true
	}
	route := func(f func(Route) string) ([]string, bool) {
		for _, r := range t.Routes {
			if s := f(r); s != "" {
				out = append(out, s)
			}
		}
		return out, true
	}
	switch name {
	case "route-table-id":
		return []string{t.RouteTableID}, true
	case "vpc-id":
		return []string{t.VpcID}, true
	case "owner-id":
		return []string{t.OwnerID}, true
	case "association.main":
		return each(func(a RouteTableAssociation) string { return strconv.FormatBool(a.Main) })
	case "association.subnet-id":
		return each(func(a RouteTableAssociation) string { return a.SubnetID })
	case "association.gateway-id":
		return each(func(a RouteTableAssociation) string { return a.GatewayID })
	case "association.route-table-association-id":
		return each(func(a RouteTableAssociation) string { return a.ID })
	case "association.route-table-id":
		return each(func(a RouteTableAssociation) string { return a.RouteTableID })
	case "route.destination-cidr-block":
		return route(func(r Route) string { return r.DestinationCidrBlock })
	case "route.destination-prefix-list-id":
		return route(func(r Route) string { return r.DestinationPrefix })
	case "route.gateway-id":
		return route(func(r Route) string { return r.GatewayID })
	case "route.nat-gateway-id":
		return route(func(r Route) string { return r.NatGatewayID })
	case "route.instance-id":
		return route(func(r Route) string { return r.InstanceID })
	case "route.vpc-peering-connection-id":
		return route(func(r Route) string { return r.PeeringID })
	case "route.state":
		return route(func(r Route) string { return r.Status })
	case "route.origin":
		return route(func(r Route) string { return r.Origin })
	}
	return nil, false
}

type createRouteTableIn struct {
	VpcID            string `q:"VpcId"`
	TagSpecification []tagSpec
	ClientToken      string
}

func (e *EC2) createRouteTable(r *request, in createRouteTableIn) (any, error) {
	sc := e.in(r.scope())
	v, err := sc.vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	tags, err := tagsFor(in.TagSpecification, "route-table")
	if err != nil {
		return nil, err
	}
	id, again, err := e.token(r, in.ClientToken)
	if err != nil {
		return nil, err
	}
	t := sc.RouteTables[id]
	if !again || t == nil {
		if n := countIn(sc.RouteTables, func(t *RouteTable) bool { return t.VpcID == v.VpcID }); n >= int(e.cloud.quota(r.scope(), "vpc", quotaRouteTables)) {
			return nil, refuse("RouteTableLimitExceeded", "The maximum number of route tables has been reached.")
		}
		t = &RouteTable{RouteTableID: e.cloud.hex17("rtb-"), VpcID: v.VpcID, OwnerID: r.Account, meta: e.fresh(tags)}
		for _, a := range v.Associations {
			t.Routes = append(t.Routes, Route{DestinationCidrBlock: a.CidrBlock, GatewayID: "local", Status: "active", Origin: "CreateRouteTable"})
		}
		sc.RouteTables[t.RouteTableID] = t
		e.remember(r, in.ClientToken, t.RouteTableID)
	}
	r.Make(t.RouteTableID)
	return struct {
		Table *RouteTable `ec2:"routeTable"`
		Token string      `ec2:"clientToken,omitempty"`
	}{t, in.ClientToken}, nil
}

func countIn[T any](m map[string]T, ok func(T) bool) int {
	n := 0
	for _, o := range m {
		if ok(o) {
			n++
		}
	}
	return n
}

type describeRouteTablesIn struct {
	RouteTableID []string `q:"RouteTableId"`
	page
}

func (e *EC2) describeRouteTables(r *request, in describeRouteTablesIn) (any, error) {
	sc := e.in(r.scope())
	e.refreshRoutes(sc)
	found, err := find(e, r, sc.RouteTables, in.RouteTableID, in.Filter, noRouteTable)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 100)
	return struct {
		Tables []*RouteTable `ec2:"routeTableSet"`
		Next   string        `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

// refreshRoutes marks routes whose target is gone as blackholes ("Route tables", Amazon VPC user guide).
func (e *EC2) refreshRoutes(sc *ec2Scope) {
	for _, t := range sc.RouteTables {
		for i := range t.Routes {
			t.Routes[i].Status = e.routeStatus(sc, t.Routes[i])
		}
	}
}

func (e *EC2) routeStatus(sc *ec2Scope, r Route) string {
	alive := true
	switch {
	case r.NatGatewayID != "":
		n := sc.Nats[r.NatGatewayID]
		alive = n != nil && (n.Status == "available" || n.Status == "pending")
	case r.PeeringID != "":
		_, p := e.anyPeering(sc.scope(), r.PeeringID)
		alive = p != nil && p.Status.Code == "active"
	case r.InterfaceID != "":
		alive = sc.Interfaces[r.InterfaceID] != nil
	case r.InstanceID != "":
		i := sc.Instances[r.InstanceID]
		alive = i != nil && i.Status.Name == "running"
	case r.GatewayID == "local":
	case len(r.GatewayID) > 4 && r.GatewayID[:4] == "igw-":
		g := sc.Gateways[r.GatewayID]
		alive = g != nil && len(g.Attachments) > 0
	}
	if alive {
		return "active"
	}
	return "blackhole"
}

// mayRoute says whether a route may lead to a peering: a request that is not accepted yet will do, and the route is a
// blackhole until then ("Update your route tables for a VPC peering connection", Amazon VPC peering guide).
func (e *EC2) mayRoute(sc *ec2Scope, t *RouteTable, peering string) error {
	_, p := e.anyPeering(sc.scope(), peering)
	switch {
	case p == nil || p.placed().gone:
		return noPeering(peering)
	case p.Requester.VpcID != t.VpcID && p.Accepter.VpcID != t.VpcID:
		return refuse("InvalidParameterValue", "route table %s and VPC peering connection %s belong to different networks", t.RouteTableID, peering)
	}
	return nil
}

type routeTableIn struct {
	RouteTableID string `q:"RouteTableId"`
}

func (sc *ec2Scope) routeTable(id string) (*RouteTable, error) {
	if id == "" {
		return nil, missing("routeTableId")
	}
	t := sc.RouteTables[id]
	if t == nil {
		return nil, noRouteTable(id)
	}
	return t, nil
}

func (e *EC2) deleteRouteTable(r *request, in routeTableIn) (any, error) {
	sc := e.in(r.scope())
	t, err := sc.routeTable(in.RouteTableID)
	if err != nil {
		return nil, err
	}
	if len(t.Associations) > 0 {
		return nil, refuse("DependencyViolation", "The routeTable '%s' has dependencies and cannot be deleted.", t.RouteTableID)
	}
	delete(sc.RouteTables, t.RouteTableID)
	for _, ep := range sc.Endpoints {
		ep.RouteTableIDs = slices.DeleteFunc(ep.RouteTableIDs, func(id string) bool { return id == t.RouteTableID })
	}
	return returned{true}, nil
}

type routeIn struct {
	RouteTableID             string `q:"RouteTableId"`
	DestinationCidrBlock     string
	DestinationIpv6CidrBlock string
	DestinationPrefixListID  string `q:"DestinationPrefixListId"`
	GatewayID                string `q:"GatewayId"`
	NatGatewayID             string `q:"NatGatewayId"`
	InstanceID               string `q:"InstanceId"`
	NetworkInterfaceID       string `q:"NetworkInterfaceId"`
	VpcPeeringConnectionID   string `q:"VpcPeeringConnectionId"`
}

func (in routeIn) destination() string {
	return in.DestinationCidrBlock + in.DestinationIpv6CidrBlock + in.DestinationPrefixListID
}

func (r Route) destination() string {
	return r.DestinationCidrBlock + r.DestinationIpv6 + r.DestinationPrefix
}

// route makes the route that a request asks for.
func (e *EC2) route(sc *ec2Scope, t *RouteTable, in routeIn) (Route, error) {
	rt := Route{DestinationCidrBlock: in.DestinationCidrBlock, DestinationIpv6: in.DestinationIpv6CidrBlock, DestinationPrefix: in.DestinationPrefixListID,
		GatewayID: in.GatewayID, NatGatewayID: in.NatGatewayID, InstanceID: in.InstanceID, InterfaceID: in.NetworkInterfaceID,
		PeeringID: in.VpcPeeringConnectionID, Origin: "CreateRoute"}
	if in.destination() == "" {
		return rt, missing("destinationCidrBlock")
	}
	if in.DestinationCidrBlock != "" {
		p, err := netip.ParsePrefix(in.DestinationCidrBlock)
		if err != nil {
			return rt, refuse("InvalidParameterValue", "Value (%s) for parameter destinationCidrBlock is invalid. This is not a valid CIDR block.", in.DestinationCidrBlock)
		}
		rt.DestinationCidrBlock = p.Masked().String()
	}
	switch {
	case in.NatGatewayID != "":
		n := sc.Nats[in.NatGatewayID]
		if n == nil || n.Status == "deleted" || n.Status == "failed" {
			return rt, refuse("InvalidNatGatewayID.NotFound", "The natGateway ID '%s' does not exist", in.NatGatewayID)
		}
		if n.VpcID != t.VpcID {
			return rt, refuse("InvalidParameterValue", "route table %s and NAT gateway %s belong to different networks", t.RouteTableID, n.NatGatewayID)
		}
	case in.GatewayID != "":
		g := sc.Gateways[in.GatewayID]
		if g == nil {
			return rt, refuse("InvalidGatewayID.NotFound", "The gateway ID '%s' does not exist", in.GatewayID)
		}
		if !slices.ContainsFunc(g.Attachments, func(a gatewayAttachment) bool { return a.VpcID == t.VpcID }) {
			return rt, refuse("InvalidParameterValue", "route table %s and network gateway %s belong to different networks", t.RouteTableID, in.GatewayID)
		}
	case in.InstanceID != "":
		if sc.Instances[in.InstanceID] == nil {
			return rt, noInstance(in.InstanceID)
		}
	case in.NetworkInterfaceID != "":
		if sc.Interfaces[in.NetworkInterfaceID] == nil {
			return rt, noInterface(in.NetworkInterfaceID)
		}
	case in.VpcPeeringConnectionID != "":
		if err := e.mayRoute(sc, t, in.VpcPeeringConnectionID); err != nil {
			return rt, err
		}
	default:
		return rt, missing("gatewayId")
	}
	rt.Status = e.routeStatus(sc, rt)
	return rt, nil
}

func (e *EC2) createRoute(r *request, in routeIn) (any, error) {
	sc := e.in(r.scope())
	t, err := sc.routeTable(in.RouteTableID)
	if err != nil {
		return nil, err
	}
	rt, err := e.route(sc, t, in)
	if err != nil {
		return nil, err
	}
	for _, have := range t.Routes {
		if have.destination() != rt.destination() {
			continue
		}
		// The same route once more is no error; another target for the same destination is.
		rt.Status = have.Status
		if have == rt {
			return returned{true}, nil
		}
		return nil, refuse("RouteAlreadyExists", "The route identified by %s already exists.", rt.destination())
	}
	if len(t.Routes) >= int(e.cloud.quota(r.scope(), "vpc", quotaRoutes)) {
		return nil, refuse("RouteLimitExceeded", "The maximum number of routes has been reached.")
	}
	t.Routes = append([]Route{rt}, t.Routes...)
	return returned{true}, nil
}

func (e *EC2) replaceRoute(r *request, in routeIn) (any, error) {
	sc := e.in(r.scope())
	t, err := sc.routeTable(in.RouteTableID)
	if err != nil {
		return nil, err
	}
	rt, err := e.route(sc, t, in)
	if err != nil {
		return nil, err
	}
	for i, have := range t.Routes {
		if have.destination() == rt.destination() {
			t.Routes[i] = rt
			return returned{true}, nil
		}
	}
	return nil, refuse("InvalidRoute.NotFound", "There is no route defined for '%s' in the route table. Use CreateRoute instead.", in.destination())
}

func (e *EC2) deleteRoute(r *request, in routeIn) (any, error) {
	sc := e.in(r.scope())
	t, err := sc.routeTable(in.RouteTableID)
	if err != nil {
		return nil, err
	}
	for i, have := range t.Routes {
		if have.destination() != in.destination() {
			continue
		}
		if have.GatewayID == "local" {
			return nil, refuse("InvalidParameterValue", "cannot remove local route %s in route table %s", in.destination(), t.RouteTableID)
		}
		t.Routes = slices.Delete(t.Routes, i, i+1)
		return returned{true}, nil
	}
	return nil, refuse("InvalidRoute.NotFound", "no route with destination-cidr-block %s in route table %s", in.destination(), t.RouteTableID)
}
