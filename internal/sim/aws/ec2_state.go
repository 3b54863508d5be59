package aws

import (
	"fmt"
	"sort"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// EC2 is the simulated EC2 service of all accounts and regions.
type EC2 struct {
	cloud  *Cloud
	st     ec2State
	images map[string]map[string]*Image // by region; always the same
}

type ec2State struct {
	Scopes map[string]*ec2Scope
	Seq    int
}

// ec2Scope is what EC2 holds of one account in one region.
type ec2Scope struct {
	Account, Region string
	DhcpOptionsID   string

	Vpcs        map[string]*Vpc
	Subnets     map[string]*Subnet
	Gateways    map[string]*InternetGateway
	Nats        map[string]*NatGateway
	Addresses   map[string]*Address
	RouteTables map[string]*RouteTable
	Groups      map[string]*SecurityGroup
	Rules       map[string]*SecurityGroupRule
	Interfaces  map[string]*NetworkInterface
	Acls        map[string]*NetworkACL
	Templates   map[string]*LaunchTemplate
	Instances   map[string]*Instance
	Volumes     map[string]*Volume
	Snapshots   map[string]*Snapshot
	Peerings    map[string]*VpcPeering
	Endpoints   map[string]*VpcEndpoint
	FlowLogs    map[string]*FlowLog
	KeyPairs    map[string]*KeyPair
	Defaults    accountDefaults
	Tokens      map[string]*clientToken
	Guests      map[string]*guestState // by instance
	// NextHost is, by subnet, where the search for a free address starts, so that a released one is not given out at once.
	NextHost map[string]uint32
}

func (s *ec2Scope) scope() scope { return scope{s.Account, s.Region} }

// Tag is a tag as EC2 writes it.
type Tag struct {
	Key   string `ec2:"key"`
	Value string `ec2:"value"`
}

// meta is what every object has.
type meta struct {
	Created time.Time
	Seq     int
	// Default: the cloud made it; it goes with its parent.
	Default bool
	Tags    []Tag `ec2:"tagSet"`
}

func (m *meta) head() *meta { return m }

func (m *meta) tag(key string) string {
	for _, t := range m.Tags {
		if t.Key == key {
			return t.Value
		}
	}
	return ""
}

// A thing is any EC2 object.
type thing interface {
	head() *meta
	ident() string
	kind() string
	// attr answers the values of a filter, and false for a filter that the kind does not have.
	attr(name string) ([]string, bool)
	// placed says where the object stands, for the control API.
	placed() place
}

// place is the state of an object, what contains it, and whether it only still is listed.
type place struct {
	state   string
	parents []string
	gone    bool
}

func newEC2(c *Cloud) *EC2 {
	e := &EC2{cloud: c, images: map[string]map[string]*Image{}}
	e.declareQuotas()
	c.World.Register(e)
	c.add(&api{
		service: "ec2", protocol: ec2Protocol, version: "2016-11-15",
		namespace: "http://ec2.amazonaws.com/doc/2016-11-15/",
		encode:    encodeEC2,
		ops:       e.operations(),
	})
	return e
}

// Cloud, Name, State and Reset are those of sim.Service.
func (e *EC2) Cloud() string { return "aws" }

// Name is the service's name in signatures.
func (e *EC2) Name() string { return "ec2" }

// State is the live state.
func (e *EC2) State() any { return &e.st }

// Reset starts afresh: every account has its default VPC in every region, made when first looked at.
func (e *EC2) Reset() { e.st = ec2State{Scopes: map[string]*ec2Scope{}} }

// in answers the state of a scope.
func (e *EC2) in(s scope) *ec2Scope {
	if sc := e.st.Scopes[s.key()]; sc != nil {
		if sc.FlowLogs == nil { // a state kept by an earlier version
			sc.FlowLogs = map[string]*FlowLog{}
		}
		return sc
	}
	sc := &ec2Scope{Account: s.Account, Region: s.Region,
		Vpcs: map[string]*Vpc{}, Subnets: map[string]*Subnet{}, Gateways: map[string]*InternetGateway{}, Nats: map[string]*NatGateway{},
		Addresses: map[string]*Address{}, RouteTables: map[string]*RouteTable{}, Groups: map[string]*SecurityGroup{},
		Rules: map[string]*SecurityGroupRule{}, Interfaces: map[string]*NetworkInterface{}, Acls: map[string]*NetworkACL{},
		Templates: map[string]*LaunchTemplate{}, Instances: map[string]*Instance{}, Volumes: map[string]*Volume{}, Snapshots: map[string]*Snapshot{},
		Peerings: map[string]*VpcPeering{}, Endpoints: map[string]*VpcEndpoint{}, FlowLogs: map[string]*FlowLog{}, KeyPairs: map[string]*KeyPair{},
		Tokens: map[string]*clientToken{}, Guests: map[string]*guestState{}, NextHost: map[string]uint32{},
	}
	e.st.Scopes[s.key()] = sc
	e.furnish(sc)
	return sc
}

// fresh makes the head of a new object.
func (e *EC2) fresh(tags []Tag) meta {
	e.st.Seq++
	return meta{Created: e.cloud.World.Now(), Seq: e.st.Seq, Tags: append([]Tag{}, tags...)}
}

// inOrder lists the objects of a map in the order they were made.
func inOrder[T thing](m map[string]T) []T {
	out := make([]T, 0, len(m))
	for _, o := range m {
		out = append(out, o)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].head().Seq < out[j].head().Seq })
	return out
}

func things[T thing](out []thing, m map[string]T) []thing {
	for _, o := range inOrder(m) {
		out = append(out, o)
	}
	return out
}

// all lists every object of a scope.
func (s *ec2Scope) all() []thing {
	var out []thing
	out = things(out, s.Vpcs)
	out = things(out, s.Subnets)
	out = things(out, s.Gateways)
	out = things(out, s.Nats)
	out = things(out, s.Addresses)
	out = things(out, s.RouteTables)
	out = things(out, s.Groups)
	out = things(out, s.Rules)
	out = things(out, s.Interfaces)
	out = things(out, s.Acls)
	out = things(out, s.Templates)
	out = things(out, s.Instances)
	out = things(out, s.Volumes)
	out = things(out, s.Snapshots)
	out = things(out, s.Peerings)
	out = things(out, s.Endpoints)
	out = things(out, s.FlowLogs)
	out = things(out, s.KeyPairs)
	return out
}

func (e *EC2) object(sc *ec2Scope, t thing) sim.Object {
	at := t.placed()
	h := t.head()
	tags := map[string]string{}
	for _, tag := range h.Tags {
		tags[tag.Key] = tag.Value
	}
	o := sim.Object{Account: sc.Account, Region: sc.Region, Kind: t.kind(), ID: t.ident(), Name: h.tag("Name"), State: at.state,
		ARN: arn("ec2", sc.Region, sc.Account, t.kind()+"/"+t.ident()), Tags: tags, Parents: at.parents, Default: h.Default, Gone: at.gone, Data: t}
	return o
}

// thingByID finds any object of a scope.
func (s *ec2Scope) thingByID(id string) thing {
	for _, t := range s.all() {
		if t.ident() == id {
			return t
		}
	}
	return nil
}

// anywhere finds an object in any scope.
func (e *EC2) anywhere(id string) (*ec2Scope, thing, error) {
	for _, sc := range e.st.Scopes {
		if t := sc.thingByID(id); t != nil {
			return sc, t, nil
		}
	}
	return nil, nil, fmt.Errorf("ec2: no object %q", id)
}
