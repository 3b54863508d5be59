package aws

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"sort"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// clientToken remembers what a client token made and with which arguments.
type clientToken struct {
	Args string
	ID   string
	Used time.Time
}

// tokenLife is how long a token is remembered ("Ensuring idempotency", Amazon EC2 API reference).
const tokenLife = 24 * time.Hour

// token looks a client token up: the ID that it made before, if any. The same token with other arguments is refused.
func (e *EC2) token(r *request, token string) (id string, again bool, err error) {
	if token == "" {
		return "", false, nil
	}
	if len(token) > 64 && r.Operation == "RunInstances" || len(token) > 255 {
		return "", false, refuse("InvalidParameterValue", "Value (%s) for parameter clientToken is invalid. The client token is too long.", token)
	}
	t := e.in(r.scope()).Tokens[r.Operation+" "+token]
	if t == nil || e.cloud.World.Now().Sub(t.Used) > tokenLife {
		return "", false, nil
	}
	if t.Args != argumentHash(r.Form) {
		return "", false, refuse("IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
	}
	return t.ID, true, nil
}

// remember notes what a token made.
func (e *EC2) remember(r *request, token, id string) {
	if token != "" {
		e.in(r.scope()).Tokens[r.Operation+" "+token] = &clientToken{Args: argumentHash(r.Form), ID: id, Used: e.cloud.World.Now()}
	}
}

func argumentHash(form url.Values) string {
	keys := make([]string, 0, len(form))
	for k := range form {
		if k != "Action" && k != "Version" && k != "ClientToken" && !strings.HasPrefix(k, "X-Amz-") {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	h := sha256.New()
	for _, k := range keys {
		fmt.Fprintf(h, "%s=%q\n", k, form[k])
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// later lets an object go to a state after some time.
func (e *EC2) later(sc *ec2Scope, d time.Duration, id, state string) {
	e.after(sc, d, "state", id+"|"+state)
}

func (e *EC2) after(sc *ec2Scope, d time.Duration, kind, key string) {
	e.cloud.after(d, "ec2", kind, sc.scope().key()+"|"+key)
}

// Event carries out what later and after have scheduled.
func (e *EC2) Event(kind, key string) {
	where, rest, _ := strings.Cut(key, "|")
	sc := e.st.Scopes[where]
	if sc == nil {
		return
	}
	switch kind {
	case "state":
		id, state, _ := strings.Cut(rest, "|")
		if t := sc.thingByID(id); t != nil {
			e.advance(sc, t, state)
		}
	case "nat-failed":
		e.natFailed(sc, rest)
	case "forget":
		delete(sc.Nats, rest)
		delete(sc.Instances, rest)
		delete(sc.Peerings, rest)
		delete(sc.Endpoints, rest)
	case "expire-peering":
		if p := sc.Peerings[rest]; p != nil && p.Status.Code == "pending-acceptance" {
			e.peeringState(sc, p, "expired", "")
		}
	case "endpoint-gone":
		e.endpointGone(sc, rest)
	case "guest":
		e.guestEvent(sc, rest)
	case "interface-gone":
		e.dropInterface(sc, rest)
	case "volume-gone":
		delete(sc.Volumes, rest)
	}
}

// advance moves an object on to a state that it was on its way to, unless something else has happened to it since.
func (e *EC2) advance(sc *ec2Scope, t thing, state string) {
	switch o := t.(type) {
	case *Vpc:
		if o.Status == "pending" {
			o.Status = state
		}
	case *Subnet:
		if o.Status == "pending" {
			o.Status = state
		}
	case *NatGateway:
		if o.Status == "pending" && state == "available" || o.Status == "deleting" && state == "deleted" {
			e.natState(sc, o, state, "", "")
		}
	case *VpcPeering:
		if o.Status.Code == "initiating-request" || o.Status.Code == "provisioning" && state == "active" {
			e.peeringState(sc, o, state, "")
		}
	case *VpcEndpoint:
		if o.Status == "pending" {
			o.Status = state
		}
	case *Volume:
		if o.Status == "creating" {
			o.Status = state
		}
	case *Snapshot:
		if o.Status == "pending" {
			o.Status, o.Progress = state, "100%"
		}
	case *Instance:
		e.instanceAdvance(sc, o, state)
	}
}

// SetState drives an object to a state, whatever state it is in.
func (e *EC2) SetState(id, state, code, message string) error {
	sc, t, err := e.anywhere(id)
	if err != nil {
		return err
	}
	if state == "deleted" && t.kind() != "natgateway" && t.kind() != "vpc-peering-connection" {
		return e.Remove(id)
	}
	switch o := t.(type) {
	case *Vpc:
		o.Status = textOr(state, "pending")
	case *Subnet:
		o.Status = textOr(state, "failed")
	case *NatGateway:
		e.natState(sc, o, textOr(state, "failed"), textOr(code, "InternalError"), textOr(message, "Network interface "+id+" could not be made"))
	case *VpcPeering:
		e.peeringState(sc, o, textOr(state, "failed"), message)
	case *VpcEndpoint:
		o.Status = textOr(state, "failed")
	case *FlowLog:
		o.Delivery, o.DeliveryError = textOr(state, "FAILED"), textOr(message, "Access error")
	case *Volume:
		o.Status = textOr(state, "error")
	case *Snapshot:
		o.Status = textOr(state, "error")
	case *NetworkInterface:
		o.Status = textOr(state, "available")
		if o.Status == "available" {
			o.Attachment = nil
		}
	case *Instance:
		return e.instanceForce(sc, o, textOr(state, "terminated"), code, message)
	default:
		return fmt.Errorf("state: a %s has no states", t.kind())
	}
	return nil
}

func textOr(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// clearVpc takes away what stands in a VPC.
func (e *EC2) clearVpc(sc *ec2Scope, v *Vpc) {
	for _, i := range inOrder(sc.Instances) {
		if i.VpcID == v.VpcID {
			e.removeInstance(sc, i)
		}
	}
	for _, i := range inOrder(sc.Interfaces) {
		if i.VpcID == v.VpcID {
			e.dropInterface(sc, i.InterfaceID)
		}
	}
	for _, n := range inOrder(sc.Nats) {
		if n.VpcID == v.VpcID {
			delete(sc.Nats, n.NatGatewayID)
		}
	}
	for _, s := range inOrder(sc.Subnets) {
		if s.VpcID == v.VpcID {
			sc.dropSubnet(s.SubnetID)
		}
	}
	if g := sc.gatewayOf(v.VpcID); g != nil {
		g.Attachments = nil
	}
}

// Remove takes an object away, whatever uses it.
func (e *EC2) Remove(id string) error {
	sc, t, err := e.anywhere(id)
	if err != nil {
		return err
	}
	switch o := t.(type) {
	case *Vpc:
		e.clearVpc(sc, o)
		e.dropVpc(sc, o)
	case *Subnet:
		sc.dropSubnet(id)
	case *InternetGateway:
		delete(sc.Gateways, id)
	case *NatGateway:
		for _, a := range o.Addresses {
			e.dropInterface(sc, a.InterfaceID)
		}
		delete(sc.Nats, id)
	case *Address:
		sc.unbind(o)
		delete(sc.Addresses, id)
	case *RouteTable:
		delete(sc.RouteTables, id)
	case *SecurityGroup:
		sc.dropGroup(id)
	case *SecurityGroupRule:
		delete(sc.Rules, id)
	case *NetworkInterface:
		e.dropInterface(sc, id)
	case *NetworkACL:
		delete(sc.Acls, id)
	case *LaunchTemplate:
		delete(sc.Templates, id)
	case *Instance:
		e.removeInstance(sc, o)
	case *Volume:
		delete(sc.Volumes, id)
	case *Snapshot:
		delete(sc.Snapshots, id)
	case *VpcPeering:
		delete(sc.Peerings, id)
	case *VpcEndpoint:
		e.endpointGone(sc, id)
	case *FlowLog:
		delete(sc.FlowLogs, id)
	case *KeyPair:
		delete(sc.KeyPairs, id)
	}
	return nil
}

// The codes of the quotas that EC2 enforces, as Service Quotas lists them.
const (
	quotaPeerings           = "L-7E9ECCDB"
	quotaOutstanding        = "L-DC9F7029"
	quotaInterfaceEndpoints = "L-29B6F2EB"
	quotaGatewayEndpoints   = "L-1B52E74A"
	quotaCidrs              = "L-83CA0A9D"
	quotaAcls               = "L-B4A6D682"

	quotaVpcs        = "L-F678F1CE"
	quotaSubnets     = "L-407747CB"
	quotaGateways    = "L-A4707A72"
	quotaNats        = "L-FE5A380F"
	quotaRouteTables = "L-589F43AA"
	quotaRoutes      = "L-93826ACB"
	quotaGroups      = "L-E79EC296"
	quotaRules       = "L-0EA8095F"
	quotaAddresses   = "L-0263D0A3"
	quotaVcpus       = "L-1216C47A"
	quotaSpot        = "L-34B43A08"
)

func (e *EC2) declareQuotas() {
	for _, q := range []sim.Quota{
		{Service: "vpc", Code: quotaVpcs, Name: "VPCs per Region", Default: 5},
		{Service: "vpc", Code: quotaSubnets, Name: "Subnets per VPC", Default: 200},
		{Service: "vpc", Code: quotaGateways, Name: "Internet gateways per Region", Default: 5},
		{Service: "vpc", Code: quotaNats, Name: "NAT gateways per Availability Zone", Default: 5},
		{Service: "vpc", Code: quotaRouteTables, Name: "Route tables per VPC", Default: 200},
		{Service: "vpc", Code: quotaRoutes, Name: "Routes per route table", Default: 50},
		{Service: "vpc", Code: quotaGroups, Name: "VPC security groups per Region", Default: 2500},
		{Service: "vpc", Code: quotaPeerings, Name: "Active VPC peering connections per VPC", Default: 50},
		{Service: "vpc", Code: quotaOutstanding, Name: "Outstanding VPC peering connection requests", Default: 25},
		{Service: "vpc", Code: quotaInterfaceEndpoints, Name: "Interface VPC endpoints per VPC", Default: 50},
		{Service: "vpc", Code: quotaGatewayEndpoints, Name: "Gateway VPC endpoints per Region", Default: 20},
		{Service: "vpc", Code: quotaCidrs, Name: "IPv4 CIDR blocks per VPC", Default: 5},
		{Service: "vpc", Code: quotaAcls, Name: "Network ACLs per VPC", Default: 200},
		{Service: "vpc", Code: quotaRules, Name: "Inbound or outbound rules per security group", Default: 60},
		{Service: "ec2", Code: quotaAddresses, Name: "EC2-VPC Elastic IPs", Default: 5},
		{Service: "ec2", Code: quotaVcpus, Name: "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", Default: 64},
		{Service: "ec2", Code: quotaSpot, Name: "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", Default: 64},
	} {
		q.Cloud, q.Unit, q.Adjustable = "aws", "None", true
		e.cloud.World.DefineQuota(q)
	}
}
