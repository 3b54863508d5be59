package aws

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

type aclEntry struct {
	Cidr     string `ec2:"cidrBlock"`
	Egress   bool   `ec2:"egress"`
	Protocol string `ec2:"protocol"`
	Action   string `ec2:"ruleAction"`
	Number   int    `ec2:"ruleNumber"`
}

type aclAssociation struct {
	ID       string `ec2:"networkAclAssociationId"`
	ACLID    string `ec2:"networkAclId"`
	SubnetID string `ec2:"subnetId"`
}

// NetworkACL is a stateless firewall of subnets. Only the default one of each VPC exists here.
type NetworkACL struct {
	ID           string           `ec2:"networkAclId"`
	VpcID        string           `ec2:"vpcId"`
	OwnerID      string           `ec2:"ownerId"`
	IsDefault    bool             `ec2:"default"`
	Entries      []aclEntry       `ec2:"entrySet"`
	Associations []aclAssociation `ec2:"associationSet"`
	meta
}

func (a *NetworkACL) ident() string { return a.ID }
func (a *NetworkACL) kind() string  { return "network-acl" }
func (a *NetworkACL) placed() place {
	return place{"", []string{a.VpcID}, false}
}

func (a *NetworkACL) attr(name string) ([]string, bool) {
	var subnets []string
	for _, as := range a.Associations {
		subnets = append(subnets, as.SubnetID)
	}
	switch name {
	case "network-acl-id", "association.network-acl-id":
		return []string{a.ID}, true
	case "vpc-id":
		return []string{a.VpcID}, true
	case "default":
		return []string{strconv.FormatBool(a.IsDefault)}, true
	case "owner-id":
		return []string{a.OwnerID}, true
	case "association.subnet-id":
		return subnets, true
	}
	return nil, false
}

type describeAclsIn struct {
	ID []string `q:"NetworkAclId"`
	page
}

func (e *EC2) describeAcls(r *request, in describeAclsIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Acls, in.ID, in.Filter, noACL)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	return struct {
		Acls []*NetworkACL `ec2:"networkAclSet"`
		Next string        `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

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

// KeyPair is an SSH key. The simulation can only be given public halves.
type KeyPair struct {
	Name        string    `ec2:"keyName"`
	ID          string    `ec2:"keyPairId"`
	Fingerprint string    `ec2:"keyFingerprint"`
	Type        string    `ec2:"keyType"`
	CreateTime  time.Time `ec2:"createTime"`
	meta
}

func (k *KeyPair) ident() string { return k.ID }
func (k *KeyPair) kind() string  { return "key-pair" }
func (k *KeyPair) placed() place {
	return place{"", nil, false}
}

func (k *KeyPair) attr(name string) ([]string, bool) {
	v := map[string]string{"key-name": k.Name, "key-pair-id": k.ID, "fingerprint": k.Fingerprint}
	s, ok := v[name]
	return []string{s}, ok
}

type importKeyIn struct {
	KeyName           string
	PublicKeyMaterial []byte
	TagSpecification  []tagSpec
}

func (e *EC2) importKey(r *request, in importKeyIn) (any, error) {
	tags, err := tagsFor(in.TagSpecification, "key-pair")
	if err != nil {
		return nil, err
	}
	sc := e.in(r.scope())
	if in.KeyName == "" {
		return nil, missing("KeyName")
	}
	if len(in.PublicKeyMaterial) == 0 {
		return nil, missing("PublicKeyMaterial")
	}
	if sc.keyPair(in.KeyName) != nil {
		return nil, refuse("InvalidKeyPair.Duplicate", "The keypair already exists")
	}
	kind := "rsa"
	if strings.Contains(string(in.PublicKeyMaterial), "ed25519") {
		kind = "ed25519"
	}
	h := e.cloud.World.Hex("", 32)
	var parts []string
	for i := 0; i < 32; i += 2 {
		parts = append(parts, h[i:i+2])
	}
	k := &KeyPair{Name: in.KeyName, ID: e.cloud.hex17("key-"), Fingerprint: strings.Join(parts, ":"), Type: kind, meta: e.fresh(tags)}
	k.CreateTime = k.Created
	sc.KeyPairs[k.ID] = k
	r.Make(k.ID)
	return struct {
		Fingerprint string `ec2:"keyFingerprint"`
		Name        string `ec2:"keyName"`
		ID          string `ec2:"keyPairId"`
		Tags        []Tag  `ec2:"tagSet"`
	}{k.Fingerprint, k.Name, k.ID, k.Tags}, nil
}

func (sc *ec2Scope) keyPair(name string) *KeyPair {
	for _, k := range sc.KeyPairs {
		if k.Name == name {
			return k
		}
	}
	return nil
}

type describeKeysIn struct {
	KeyName   []string
	KeyPairID []string `q:"KeyPairId"`
	Filter    []Filter
}

func (e *EC2) describeKeys(r *request, in describeKeysIn) (any, error) {
	sc := e.in(r.scope())
	for _, name := range in.KeyName {
		k := sc.keyPair(name)
		if k == nil {
			return nil, noKeyPair(name)
		}
		in.KeyPairID = append(in.KeyPairID, k.ID)
	}
	found, err := find(e, r, sc.KeyPairs, in.KeyPairID, in.Filter, noKeyPair)
	return struct {
		Keys []*KeyPair `ec2:"keySet"`
	}{found}, err
}

type keyIn struct {
	KeyName   string
	KeyPairID string `q:"KeyPairId"`
}

func (e *EC2) deleteKey(r *request, in keyIn) (any, error) {
	sc := e.in(r.scope())
	k := sc.KeyPairs[in.KeyPairID]
	if k == nil {
		k = sc.keyPair(in.KeyName)
	}
	out := struct {
		Return bool   `ec2:"return"`
		ID     string `ec2:"keyPairId,omitempty"`
	}{Return: true}
	// Deleting a key pair that is not there is no error ("DeleteKeyPair", Amazon EC2 API reference).
	if k != nil {
		out.ID = k.ID
		delete(sc.KeyPairs, k.ID)
	}
	return out, nil
}
