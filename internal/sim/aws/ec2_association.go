package aws

import "slices"

type associateRouteTableIn struct {
	RouteTableID string `q:"RouteTableId"`
	SubnetID     string `q:"SubnetId"`
}

type associated struct {
	ID    string     `ec2:"associationId"`
	State assocState `ec2:"associationState"`
}

func (e *EC2) associateRouteTable(r *request, in associateRouteTableIn) (any, error) {
	sc := e.in(r.scope())
	t, err := sc.routeTable(in.RouteTableID)
	if err != nil {
		return nil, err
	}
	s, err := sc.subnet(in.SubnetID)
	if err != nil {
		return nil, err
	}
	if s.VpcID != t.VpcID {
		return nil, refuse("InvalidParameterValue", "Route table %s and subnet %s belong to different networks", t.RouteTableID, s.SubnetID)
	}
	for _, other := range sc.RouteTables {
		for _, a := range other.Associations {
			if a.SubnetID != s.SubnetID {
				continue
			}
			if other == t {
				return associated{a.ID, assocState{"associated"}}, nil
			}
			return nil, refuse("Resource.AlreadyAssociated", "the specified association for route table %s conflicts with an existing association", t.RouteTableID)
		}
	}
	a := RouteTableAssociation{ID: e.cloud.hex17("rtbassoc-"), RouteTableID: t.RouteTableID, SubnetID: s.SubnetID, State: assocState{"associated"}}
	t.Associations = append(t.Associations, a)
	r.Touch(a.ID)
	return associated{a.ID, assocState{"associated"}}, nil
}

func (sc *ec2Scope) association(id string) (*RouteTable, int, error) {
	for _, t := range sc.RouteTables {
		for i, a := range t.Associations {
			if a.ID == id {
				return t, i, nil
			}
		}
	}
	return nil, 0, refuse("InvalidAssociationID.NotFound", "The association ID '%s' does not exist", id)
}

func (e *EC2) disassociateRouteTable(r *request, in associationIn) (any, error) {
	t, i, err := e.in(r.scope()).association(in.AssociationID)
	if err != nil {
		return nil, err
	}
	if t.Associations[i].Main {
		return nil, refuse("InvalidParameterValue", "cannot disassociate the main route table association %s", in.AssociationID)
	}
	t.Associations = slices.Delete(t.Associations, i, i+1)
	return returned{true}, nil
}

type replaceAssociationIn struct {
	AssociationID string `q:"AssociationId"`
	RouteTableID  string `q:"RouteTableId"`
}

func (e *EC2) replaceRouteTableAssociation(r *request, in replaceAssociationIn) (any, error) {
	sc := e.in(r.scope())
	old, i, err := sc.association(in.AssociationID)
	if err != nil {
		return nil, err
	}
	t, err := sc.routeTable(in.RouteTableID)
	if err != nil {
		return nil, err
	}
	a := old.Associations[i]
	old.Associations = slices.Delete(old.Associations, i, i+1)
	a.ID, a.RouteTableID = e.cloud.hex17("rtbassoc-"), t.RouteTableID
	t.Associations = append(t.Associations, a)
	return struct {
		ID    string     `ec2:"newAssociationId"`
		State assocState `ec2:"associationState"`
	}{a.ID, a.State}, nil
}

// tableOf is the route table that holds for a subnet: its own, else the VPC's main one.
func (sc *ec2Scope) tableOf(s *Subnet) *RouteTable {
	var main *RouteTable
	for _, t := range sc.RouteTables {
		for _, a := range t.Associations {
			if a.SubnetID == s.SubnetID {
				return t
			}
			if a.Main && t.VpcID == s.VpcID {
				main = t
			}
		}
	}
	return main
}
