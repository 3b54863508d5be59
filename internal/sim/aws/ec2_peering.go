package aws

import (
	"slices"
	"time"
)

type peeringStatus struct {
	Code    string `ec2:"code"`
	Message string `ec2:"message"`
}

type peeringOptions struct {
	DNS   bool `ec2:"allowDnsResolutionFromRemoteVpc"`
	Link1 bool `ec2:"allowEgressFromLocalClassicLinkToRemoteVpc"`
	Link2 bool `ec2:"allowEgressFromLocalVpcToRemoteClassicLink"`
}

type peeringBlock struct {
	Cidr string `ec2:"cidrBlock"`
}

type peeringVpc struct {
	OwnerID string          `ec2:"ownerId"`
	VpcID   string          `ec2:"vpcId"`
	Cidr    string          `ec2:"cidrBlock,omitempty"`
	Blocks  []peeringBlock  `ec2:"cidrBlockSet,omitempty"`
	Region  string          `ec2:"region"`
	Options *peeringOptions `ec2:"peeringOptions"`
}

// VpcPeering joins two VPCs.
type VpcPeering struct {
	ID        string        `ec2:"vpcPeeringConnectionId"`
	Requester peeringVpc    `ec2:"requesterVpcInfo"`
	Accepter  peeringVpc    `ec2:"accepterVpcInfo"`
	Status    peeringStatus `ec2:"status"`
	Expires   time.Time     `ec2:"expirationTime"`
	meta
}

func (p *VpcPeering) ident() string { return p.ID }
func (p *VpcPeering) kind() string  { return "vpc-peering-connection" }
func (p *VpcPeering) placed() place {
	gone := slices.Contains([]string{"deleted", "rejected", "failed", "expired"}, p.Status.Code)
	return place{p.Status.Code, []string{p.Requester.VpcID, p.Accepter.VpcID}, gone}
}

func (p *VpcPeering) attr(name string) ([]string, bool) {
	v := map[string]string{"vpc-peering-connection-id": p.ID, "status-code": p.Status.Code, "status-message": p.Status.Message,
		"requester-vpc-info.vpc-id": p.Requester.VpcID, "requester-vpc-info.owner-id": p.Requester.OwnerID, "requester-vpc-info.cidr-block": p.Requester.Cidr,
		"accepter-vpc-info.vpc-id": p.Accepter.VpcID, "accepter-vpc-info.owner-id": p.Accepter.OwnerID, "accepter-vpc-info.cidr-block": p.Accepter.Cidr}
	s, ok := v[name]
	return []string{s}, ok
}

// peered says whether two VPCs are joined now.
func (e *EC2) peered(a, b string) bool {
	for _, sc := range e.st.Scopes {
		for _, p := range sc.Peerings {
			if p.Status.Code == "active" && (p.Requester.VpcID == a && p.Accepter.VpcID == b || p.Requester.VpcID == b && p.Accepter.VpcID == a) {
				return true
			}
		}
	}
	return false
}

type createPeeringIn struct {
	VpcID            string `q:"VpcId"`
	PeerVpcID        string `q:"PeerVpcId"`
	PeerOwnerID      string `q:"PeerOwnerId"`
	PeerRegion       string
	TagSpecification []tagSpec
}

type peeringOut struct {
	Peering VpcPeering `ec2:"vpcPeeringConnection"`
}

// How long a peering that has ended is still listed: a deleted, failed or rejected one two hours, one that expired two days
// ("VPC peering connection lifecycle", Amazon VPC peering guide).
const (
	peeringExpires      = 7 * 24 * time.Hour
	peeringGoneVisible  = 2 * time.Hour
	peeringExpiredShown = 48 * time.Hour
)

func (e *EC2) createPeering(r *request, in createPeeringIn) (any, error) {
	sc := e.in(r.scope())
	v, err := sc.vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	if in.PeerVpcID == "" {
		return nil, missing("peerVpcId")
	}
	tags, err := tagsFor(in.TagSpecification, "vpc-peering-connection")
	if err != nil {
		return nil, err
	}
	in.PeerOwnerID, in.PeerRegion = textOr(in.PeerOwnerID, r.Account), textOr(in.PeerRegion, r.Region)
	if _, known := regions[in.PeerRegion]; !known {
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter peerRegion is invalid.", in.PeerRegion)
	}
	if err := e.mayPeer(r.scope(), v, in); err != nil {
		return nil, err
	}
	p := &VpcPeering{ID: e.cloud.hex17("pcx-"), meta: e.fresh(tags), Requester: sideOf(v, r.Region),
		Accepter: peeringVpc{OwnerID: in.PeerOwnerID, VpcID: in.PeerVpcID, Region: in.PeerRegion}}
	p.Expires = p.Created.Add(peeringExpires).Truncate(time.Second)
	p.Status = peeringStatus{"initiating-request", "Initiating Request to " + in.PeerOwnerID}
	sc.Peerings[p.ID] = p
	r.Make(p.ID)
	// Overlapping ranges and unknown peers show only in the state ("VPC peering connection lifecycle", VPC peering guide).
	peer := e.in(scope{in.PeerOwnerID, in.PeerRegion}).Vpcs[in.PeerVpcID]
	state := "pending-acceptance"
	if peer == nil || overlap(v, peer) {
		state = "failed"
	}
	e.later(sc, 2*time.Second, p.ID, state)
	e.after(sc, peeringExpires, "expire-peering", p.ID)
	return peeringOut{*p}, nil
}

// mayPeer refuses a second peering of the same two VPCs, and more than the quotas allow.
func (e *EC2) mayPeer(s scope, v *Vpc, in createPeeringIn) error {
	active, outstanding := 0, 0
	for _, sc := range e.st.Scopes {
		for _, p := range sc.Peerings {
			if p.placed().gone || p.Requester.VpcID != v.VpcID && p.Accepter.VpcID != v.VpcID {
				continue
			}
			same := p.Requester.VpcID == v.VpcID && p.Accepter.VpcID == in.PeerVpcID || p.Requester.VpcID == in.PeerVpcID && p.Accepter.VpcID == v.VpcID
			if same && v.VpcID != in.PeerVpcID {
				return refuse("VpcPeeringConnectionAlreadyExists", "A VPC peering connection %s already exists between VPC %s and VPC %s", p.ID, v.VpcID, in.PeerVpcID)
			}
			if p.Status.Code == "active" {
				active++
			} else if p.Requester.VpcID == v.VpcID {
				outstanding++
			}
		}
	}
	switch {
	case active >= int(e.cloud.quota(s, "vpc", quotaPeerings)):
		return refuse("VpcPeeringConnectionsPerVpcLimitExceeded", "The maximum number of VPC peering connections for VPC %s has been reached", v.VpcID)
	case outstanding >= int(e.cloud.quota(s, "vpc", quotaOutstanding)):
		return refuse("OutstandingVpcPeeringConnectionLimitExceeded", "The maximum number of outstanding VPC peering connections for VPC %s has been reached", v.VpcID)
	}
	return nil
}

// sideOf is a VPC as a peering shows it to its owner and, once it is accepted, to the other side.
func sideOf(v *Vpc, region string) peeringVpc {
	side := peeringVpc{OwnerID: v.OwnerID, VpcID: v.VpcID, Region: region, Cidr: v.CidrBlock, Options: &peeringOptions{}}
	for _, a := range v.Associations {
		side.Blocks = append(side.Blocks, peeringBlock{a.CidrBlock})
	}
	return side
}

func overlap(a, b *Vpc) bool {
	for _, x := range a.blocks() {
		if slices.ContainsFunc(b.blocks(), x.Overlaps) {
			return true
		}
	}
	return false
}

func (e *EC2) peeringState(sc *ec2Scope, p *VpcPeering, state, message string) {
	texts := map[string]string{"pending-acceptance": "Pending Acceptance by " + p.Accepter.OwnerID, "active": "Active",
		"failed": "Failed due to incorrect VPC-ID, Account ID, or overlapping CIDR range", "provisioning": "Provisioning", "deleted": "Deleted",
		"expired": "Expired", "rejected": "Rejected"}
	p.Status = peeringStatus{state, textOr(message, texts[state])}
	switch state {
	case "deleted", "failed", "rejected":
		e.after(sc, peeringGoneVisible, "forget", p.ID)
	case "expired":
		e.after(sc, peeringExpiredShown, "forget", p.ID)
	}
}

type peeringIn struct {
	ID string `q:"VpcPeeringConnectionId"`
}

// anyPeering finds a peering from either side: the requester's account and region, or the accepter's.
func (e *EC2) anyPeering(s scope, id string) (*ec2Scope, *VpcPeering) {
	for _, sc := range e.st.Scopes {
		if p := sc.Peerings[id]; p != nil && (sc.scope() == s || p.accepter() == s) {
			return sc, p
		}
	}
	return nil, nil
}

func (p *VpcPeering) accepter() scope { return scope{p.Accepter.OwnerID, p.Accepter.Region} }

// asked finds a request that only the owner of the accepter VPC may answer, and only in that VPC's region
// ("AcceptVpcPeeringConnection": "for an inter-Region VPC peering connection request, you must accept in the Region of the
// accepter VPC").
func (e *EC2) asked(r *request, id, verb, to string, also ...string) (*ec2Scope, *VpcPeering, error) {
	if id == "" {
		return nil, nil, missing("vpcPeeringConnectionId")
	}
	sc, p := e.anyPeering(r.scope(), id)
	switch {
	case p == nil:
		return nil, nil, noPeering(id)
	case p.Accepter.OwnerID != r.Account:
		return nil, nil, refuse("OperationNotPermitted", "User %s cannot %s peering %s", r.Account, verb, p.ID)
	case p.accepter() != r.scope():
		return nil, nil, refuse("OperationNotPermitted", "Incorrect region (%s) specified for this request. VPC peering connection %s must be %sed in region %s", r.Region, p.ID, verb, p.Accepter.Region)
	case p.Status.Code != "pending-acceptance" && !slices.Contains(also, p.Status.Code):
		return nil, nil, refuse("InvalidStateTransition", "Invalid state transition for %s, attempted to transition from %s to %s", p.ID, p.Status.Code, to)
	}
	r.Make(p.ID)
	return sc, p, nil
}

func (e *EC2) acceptPeering(r *request, in peeringIn) (any, error) {
	sc, p, err := e.asked(r, in.ID, "accept", "active", "active", "provisioning")
	if err != nil {
		return nil, err
	}
	if p.Status.Code == "pending-acceptance" {
		if peer := e.in(p.accepter()).Vpcs[p.Accepter.VpcID]; peer != nil {
			p.Accepter = sideOf(peer, p.Accepter.Region)
		}
		e.peeringState(sc, p, "provisioning", "")
		e.later(sc, 2*time.Second, p.ID, "active")
	}
	shown := *p
	shown.Expires = time.Time{}
	return peeringOut{shown}, nil
}

func (e *EC2) rejectPeering(r *request, in peeringIn) (any, error) {
	sc, p, err := e.asked(r, in.ID, "reject", "rejected")
	if err != nil {
		return nil, err
	}
	e.peeringState(sc, p, "rejected", "Rejected by "+r.Account)
	return returned{true}, nil
}

// deletePeering: "Either the owner of the requester VPC or the owner of the accepter VPC can delete the VPC peering
// connection if it's in the active state. The owner of the requester VPC can delete [one] in the pending-acceptance state.
// You cannot delete [one] that's in the failed or rejected state" (DeleteVpcPeeringConnection).
func (e *EC2) deletePeering(r *request, in peeringIn) (any, error) {
	if in.ID == "" {
		return nil, missing("vpcPeeringConnectionId")
	}
	sc, p := e.anyPeering(r.scope(), in.ID)
	if p == nil {
		return nil, noPeering(in.ID)
	}
	switch p.Status.Code {
	case "active", "provisioning":
	case "pending-acceptance", "initiating-request":
		if p.Requester.OwnerID != r.Account {
			return nil, refuse("InvalidStateTransition", "Invalid state transition for %s, attempted to transition from %s to deleting", p.ID, p.Status.Code)
		}
	case "deleted":
		return returned{true}, nil
	default:
		return nil, refuse("InvalidStateTransition", "Invalid state transition for %s, attempted to transition from %s to deleting", p.ID, p.Status.Code)
	}
	e.peeringState(sc, p, "deleted", "Deleted by "+r.Account)
	return returned{true}, nil
}

type peeringOptionsIn struct {
	DNS *bool `q:"AllowDnsResolutionFromRemoteVpc"`
}

type modifyPeeringIn struct {
	ID        string            `q:"VpcPeeringConnectionId"`
	Requester *peeringOptionsIn `q:"RequesterPeeringConnectionOptions"`
	Accepter  *peeringOptionsIn `q:"AccepterPeeringConnectionOptions"`
}

// modifyPeering: each side sets its own options, in its own region, once the peering is active
// ("ModifyVpcPeeringConnectionOptions").
func (e *EC2) modifyPeering(r *request, in modifyPeeringIn) (any, error) {
	_, p := e.anyPeering(r.scope(), in.ID)
	if p == nil {
		return nil, noPeering(in.ID)
	}
	if p.Status.Code != "active" {
		return nil, refuse("OperationNotPermitted", "Peering %s is not active. Peering options can be added only to active peerings.", p.ID)
	}
	type shown struct {
		DNS bool `ec2:"allowDnsResolutionFromRemoteVpc"`
	}
	var out struct {
		Accepter  *shown `ec2:"accepterPeeringConnectionOptions"`
		Requester *shown `ec2:"requesterPeeringConnectionOptions"`
	}
	for _, side := range []struct {
		in   *peeringOptionsIn
		of   *peeringVpc
		out  **shown
		name string
	}{{in.Requester, &p.Requester, &out.Requester, "requester"}, {in.Accepter, &p.Accepter, &out.Accepter, "accepter"}} {
		if side.in == nil {
			continue
		}
		if (scope{side.of.OwnerID, side.of.Region}) != r.scope() {
			return nil, refuse("OperationNotPermitted", "User %s cannot modify the %s options of peering %s in region %s", r.Account, side.name, p.ID, r.Region)
		}
		if side.in.DNS != nil {
			side.of.Options.DNS = *side.in.DNS
		}
		*side.out = &shown{side.of.Options.DNS}
	}
	r.Touch(p.ID)
	return out, nil
}

type describePeeringsIn struct {
	ID []string `q:"VpcPeeringConnectionId"`
	page
}

func (e *EC2) describePeerings(r *request, in describePeeringsIn) (any, error) {
	mine := map[string]*VpcPeering{}
	for _, sc := range e.st.Scopes {
		for id, p := range sc.Peerings {
			if _, q := e.anyPeering(r.scope(), id); q == p {
				mine[id] = p
			}
		}
	}
	found, err := find(e, r, mine, in.ID, in.Filter, noPeering)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	out := make([]VpcPeering, len(items))
	for i, p := range items {
		out[i] = *p
		if p.Status.Code == "active" {
			out[i].Expires = time.Time{}
		}
	}
	return struct {
		Peerings []VpcPeering `ec2:"vpcPeeringConnectionSet"`
		Next     string       `ec2:"nextToken,omitempty"`
	}{out, next}, err
}
