package aws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// furnish gives a fresh account what AWS gives it in every region: a default VPC with a subnet in each zone and an
// internet gateway ("Default VPCs", Amazon VPC user guide). Everything in it is derived from account and region, so that
// it is always the same, whenever the region is first looked at.
func (e *EC2) furnish(sc *ec2Scope) {
	seq, n := 0, 0
	newID := func(prefix string) string {
		n++
		return prefix + fmt.Sprintf("0%016x", uint64(e.cloud.World.Fraction("furnish", sc.Account, sc.Region, fmt.Sprint(n))*(1<<53)))
	}
	born := time.Date(2024, 3, 5, 9, 0, 0, 0, time.UTC)
	head := func([]Tag) meta {
		seq++
		return meta{Created: born, Seq: seq - 1000, Tags: []Tag{}, Default: true}
	}
	sc.DhcpOptionsID = newID("dopt-")
	v := &Vpc{VpcID: newID("vpc-"), OwnerID: sc.Account, Status: "available", CidrBlock: "172.31.0.0/16", DhcpOptionsID: sc.DhcpOptionsID,
		InstanceTenancy: "default", IsDefault: true, DNSSupport: true, DNSHostnames: true, meta: head(nil)}
	v.Associations = []CidrAssociation{{newID("vpc-cidr-assoc-"), v.CidrBlock, cidrState{"associated"}}}
	sc.Vpcs[v.VpcID] = v
	e.furnishVpc(sc, v, newID, head)
	g := &InternetGateway{GatewayID: newID("igw-"), OwnerID: sc.Account, Attachments: []gatewayAttachment{{v.VpcID, "available"}}, meta: head(nil)}
	sc.Gateways[g.GatewayID] = g
	for _, t := range sc.RouteTables {
		t.Routes = append(t.Routes, Route{DestinationCidrBlock: "0.0.0.0/0", GatewayID: g.GatewayID, Status: "active", Origin: "CreateRoute"})
	}
	for i, z := range zonesOf(sc.Region) {
		s := e.newSubnet(sc, v, newID("subnet-"), netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 31, byte(16 * i), 0}), 20), z, head(nil))
		s.DefaultForAz, s.MapPublicIP = true, true
	}
}

// pristine is what a fresh scope looks like, as text by ID.
func (e *EC2) pristine(sc *ec2Scope) map[string][]byte {
	fresh := &ec2Scope{Account: sc.Account, Region: sc.Region, Vpcs: map[string]*Vpc{}, Subnets: map[string]*Subnet{}, Gateways: map[string]*InternetGateway{},
		RouteTables: map[string]*RouteTable{}, Groups: map[string]*SecurityGroup{}, Rules: map[string]*SecurityGroupRule{}, Acls: map[string]*NetworkACL{}, NextHost: map[string]uint32{}}
	e.furnish(fresh)
	out := map[string][]byte{}
	for _, t := range fresh.all() {
		out[t.ident()] = plain(t)
	}
	return out
}

// plain is an object as text.
func plain(t thing) []byte {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // plain data always encodes
	}
	return b
}

// Objects lists everything, for residue and snapshots. What a fresh account has, as it has it, is marked pristine; what it
// has lost is listed as missing, so that a snapshot shows it.
func (e *EC2) Objects() []sim.Object {
	var out []sim.Object
	for _, k := range sortedKeys(e.st.Scopes) {
		sc := e.st.Scopes[k]
		fresh := e.pristine(sc)
		for _, t := range sc.all() {
			o := e.object(sc, t)
			if want, ok := fresh[t.ident()]; ok {
				o.Pristine = bytes.Equal(want, plain(t))
				delete(fresh, t.ident())
			}
			out = append(out, o)
		}
		if d := &sc.Defaults; *d != (accountDefaults{}) {
			out = append(out, sim.Object{Account: sc.Account, Region: sc.Region, Kind: "account-defaults", ID: "defaults/" + k, Default: true, Data: d})
		}
		for _, id := range sortedKeys(fresh) {
			out = append(out, sim.Object{Account: sc.Account, Region: sc.Region, Kind: "missing-default", ID: id, State: "deleted", Default: true,
				Data: &struct{ Missing string }{string(fresh[id])}})
		}
	}
	return out
}
