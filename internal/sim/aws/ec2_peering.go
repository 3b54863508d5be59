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
	gone := p.Status.Code == "deleted" || p.Status.Code == "rejected" || p.Status.Code == "failed"
	return place{p.Status.Code, []string{p.Requester.VpcID, p.Accepter.VpcID}, gone}
}

func (p *VpcPeering) attr(name string) ([]string, bool) {
	v := map[string]string{"vpc-peering-connection-id": p.ID, "status-code": p.Status.Code, "status-message": p.Status.Message,
		"requester-vpc-info.vpc-id": p.Requester.VpcID, "requester-vpc-info.owner-id": p.Requester.OwnerID, "requester-vpc-info.cidr-block": p.Requester.Cidr,
		"accepter-vpc-info.vpc-id": p.Accepter.VpcID, "accepter-vpc-info.owner-id": p.Accepter.OwnerID, "accepter-vpc-info.cidr-block": p.Accepter.Cidr}
	s, ok := v[name]
	return []string{s}, ok
}

func (sc *ec2Scope) peered(a, b string) bool {
	for _, p := range sc.Peerings {
		if p.Status.Code == "active" && (p.Requester.VpcID == a && p.Accepter.VpcID == b || p.Requester.VpcID == b && p.Accepter.VpcID == a) {
			return true
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
	if in.PeerOwnerID == "" {
		in.PeerOwnerID = r.Account
	}
	if in.PeerRegion == "" {
		in.PeerRegion = r.Region
	}
	p := &VpcPeering{ID: e.cloud.hex17("pcx-"), meta: e.fresh(tags),
		Requester: peeringVpc{OwnerID: r.Account, VpcID: v.VpcID, Region: r.Region, Options: &peeringOptions{}},
		Accepter:  peeringVpc{OwnerID: in.PeerOwnerID, VpcID: in.PeerVpcID, Region: in.PeerRegion}}
	p.Requester.Cidr = v.CidrBlock
	for _, a := range v.Associations {
		p.Requester.Blocks = append(p.Requester.Blocks, peeringBlock{a.CidrBlock})
	}
	p.Expires = p.Created.Add(7 * 24 * time.Hour).Truncate(time.Second)
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
	return peeringOut{*p}, nil
}

func overlap(a, b *Vpc) bool {
	for _, x := range a.blocks() {
		if slices.ContainsFunc(b.blocks(), x.Overlaps) {
			return true
		}
	}
	return false
}

func (e *EC2) peeringState(p *VpcPeering, state, message string) {
	texts := map[string]string{"pending-acceptance": "Pending Acceptance by " + p.Accepter.OwnerID, "active": "Active",
		"failed": "Failed due to incorrect VPC-ID, Account ID, or overlapping CIDR range", "provisioning": "Provisioning", "deleted": "Deleted"}
	if message == "" {
		message = texts[state]
	}
	p.Status = peeringStatus{state, message}
}

type peeringIn struct {
	ID string `q:"VpcPeeringConnectionId"`
}

// anyPeering finds a peering from either side.
func (e *EC2) anyPeering(s scope, id string) (*ec2Scope, *VpcPeering) {
	for _, sc := range e.st.Scopes {
		p := sc.Peerings[id]
		if p != nil && (sc.scope() == s || (p.Accepter.OwnerID == s.Account && p.Accepter.Region == s.Region)) {
			return sc, p
		}
	}
	return nil, nil
}

func (e *EC2) acceptPeering(r *request, in peeringIn) (any, error) {
	_, p := e.anyPeering(r.scope(), in.ID)
	if p == nil {
		return nil, noPeering(in.ID)
	}
	if p.Status.Code != "pending-acceptance" && p.Status.Code != "active" {
		return nil, refuse("InvalidStateTransition", "Invalid state transition for %s, attempted to transition from %s to active", p.ID, p.Status.Code)
	}
	if peer := e.in(scope{p.Accepter.OwnerID, p.Accepter.Region}).Vpcs[p.Accepter.VpcID]; peer != nil {
		p.Accepter.Cidr, p.Accepter.Options, p.Accepter.Blocks = peer.CidrBlock, &peeringOptions{}, nil
		for _, a := range peer.Associations {
			p.Accepter.Blocks = append(p.Accepter.Blocks, peeringBlock{a.CidrBlock})
		}
	}
	e.peeringState(p, "active", "")
	shown := *p
	shown.Status = peeringStatus{"provisioning", "Provisioning"}
	shown.Expires = time.Time{}
	r.Make(p.ID)
	return peeringOut{shown}, nil
}

func (e *EC2) deletePeering(r *request, in peeringIn) (any, error) {
	sc, p := e.anyPeering(r.scope(), in.ID)
	if p == nil {
		return nil, noPeering(in.ID)
	}
	p.Status = peeringStatus{"deleted", "Deleted by " + r.Account}
	e.after(sc, 2*time.Hour, "forget", p.ID)
	return returned{true}, nil
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
