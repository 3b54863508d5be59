package aws

import "slices"

type gatewayAttachment struct {
	VpcID string `ec2:"vpcId"`
	State string `ec2:"state"`
}

// InternetGateway joins a VPC to the internet.
type InternetGateway struct {
	GatewayID   string              `ec2:"internetGatewayId"`
	OwnerID     string              `ec2:"ownerId"`
	Attachments []gatewayAttachment `ec2:"attachmentSet"`
	meta
}

func (g *InternetGateway) ident() string { return g.GatewayID }
func (g *InternetGateway) kind() string  { return "internet-gateway" }
func (g *InternetGateway) placed() place {
	for _, a := range g.Attachments {
		return place{"attached", []string{a.VpcID}, false}
	}
	return place{"detached", nil, false}
}

func (g *InternetGateway) attr(name string) ([]string, bool) {
	var out []string
	switch name {
	case "internet-gateway-id":
		return []string{g.GatewayID}, true
	case "owner-id":
		return []string{g.OwnerID}, true
	case "attachment.vpc-id":
		for _, a := range g.Attachments {
			out = append(out, a.VpcID)
		}
		return out, true
	case "attachment.state":
		for _, a := range g.Attachments {
			out = append(out, a.State)
		}
		return out, true
	}
	return nil, false
}

type tagsIn struct {
	TagSpecification []tagSpec
}

func (e *EC2) createGateway(r *request, in tagsIn) (any, error) {
	tags, err := tagsFor(in.TagSpecification, "internet-gateway")
	if err != nil {
		return nil, err
	}
	sc := e.in(r.scope())
	if len(sc.Gateways) >= int(e.cloud.quota(r.scope(), "vpc", quotaGateways)) {
		return nil, refuse("InternetGatewayLimitExceeded", "The maximum number of internet gateways has been reached.")
	}
	g := &InternetGateway{GatewayID: e.cloud.hex17("igw-"), OwnerID: r.Account, meta: e.fresh(tags)}
	sc.Gateways[g.GatewayID] = g
	r.Make(g.GatewayID)
	return struct {
		Gateway *InternetGateway `ec2:"internetGateway"`
	}{g}, nil
}

type describeGatewaysIn struct {
	GatewayID []string `q:"InternetGatewayId"`
	page
}

func (e *EC2) describeGateways(r *request, in describeGatewaysIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Gateways, in.GatewayID, in.Filter, noGateway)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	return struct {
		Gateways []*InternetGateway `ec2:"internetGatewaySet"`
		Next     string             `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

type gatewayIn struct {
	GatewayID string `q:"InternetGatewayId"`
	VpcID     string `q:"VpcId"`
}

func (sc *ec2Scope) gateway(id string) (*InternetGateway, error) {
	if id == "" {
		return nil, missing("internetGatewayId")
	}
	g := sc.Gateways[id]
	if g == nil {
		return nil, noGateway(id)
	}
	return g, nil
}

func (e *EC2) deleteGateway(r *request, in gatewayIn) (any, error) {
	sc := e.in(r.scope())
	g, err := sc.gateway(in.GatewayID)
	if err != nil {
		return nil, err
	}
	if len(g.Attachments) > 0 {
		return nil, refuse("DependencyViolation", "The internetGateway '%s' has dependencies and cannot be deleted.", g.GatewayID)
	}
	delete(sc.Gateways, g.GatewayID)
	return returned{true}, nil
}

func (e *EC2) attachGateway(r *request, in gatewayIn) (any, error) {
	sc := e.in(r.scope())
	g, err := sc.gateway(in.GatewayID)
	if err != nil {
		return nil, err
	}
	v, err := sc.vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	if len(g.Attachments) > 0 {
		return nil, refuse("Resource.AlreadyAssociated", "resource %s is already attached to network %s", g.GatewayID, g.Attachments[0].VpcID)
	}
	if sc.gatewayOf(v.VpcID) != nil {
		return nil, refuse("InvalidParameterValue", "Network %s already has an internet gateway attached", v.VpcID)
	}
	g.Attachments = []gatewayAttachment{{v.VpcID, "available"}}
	return returned{true}, nil
}

// gatewayOf is the internet gateway attached to a VPC, if any.
func (sc *ec2Scope) gatewayOf(vpcID string) *InternetGateway {
	for _, g := range sc.Gateways {
		if slices.ContainsFunc(g.Attachments, func(a gatewayAttachment) bool { return a.VpcID == vpcID }) {
			return g
		}
	}
	return nil
}

func (e *EC2) detachGateway(r *request, in gatewayIn) (any, error) {
	sc := e.in(r.scope())
	g, err := sc.gateway(in.GatewayID)
	if err != nil {
		return nil, err
	}
	v, err := sc.vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	if sc.gatewayOf(v.VpcID) != g {
		return nil, refuse("Gateway.NotAttached", "resource %s is not attached to network %s", g.GatewayID, v.VpcID)
	}
	for _, i := range sc.Interfaces {
		if i.VpcID == v.VpcID && i.Association != nil {
			return nil, refuse("DependencyViolation", "Network %s has some mapped public address(es). Please unmap those public address(es) before detaching the gateway.", v.VpcID)
		}
	}
	g.Attachments = nil
	return returned{true}, nil
}
