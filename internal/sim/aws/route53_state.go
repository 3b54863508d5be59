package aws

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/sim"
)

// R53State is everything that Route 53 keeps, by account: it is a global service.
type R53State struct {
	Accounts map[string]*R53Account
}

// R53Account is the Route 53 of one account.
type R53Account struct {
	Zones   map[string]*HostedZone
	Changes map[string]*R53Change
	// References are the caller references that were used, with the zones that they made.
	References map[string]string
}

// HostedZone is a hosted zone with its records, in the order of the API.
type HostedZone struct {
	ID, Name, Reference, Comment string
	Private                      bool
	VPCs                         []R53VPC
	NameServers                  []string
	Created                      time.Time
	Records                      []*DNSRecord
	Tags                         []Tag
}

// R53VPC is a VPC in which a private zone is seen.
type R53VPC struct{ ID, Region string }

// DNSRecord is a resource record set.
type DNSRecord struct {
	Name, Type, SetID       string
	TTL                     *int64
	Values                  []string
	Alias                   *DNSAlias
	Weight                  *int64
	Region, Failover        string
	HealthCheck             string
	Continent, Country, Sub string
	MultiValue              *bool
}

// DNSAlias is the target of an alias record.
type DNSAlias struct {
	Zone, Name string
	Evaluate   bool
}

// R53Change is a change that was asked for.
type R53Change struct {
	ID, Comment string
	Submitted   time.Time
	InSync      time.Time
	// Held keeps a change pending, whatever the time.
	Held bool
}

func (st *R53State) account(id string) *R53Account {
	a := st.Accounts[id]
	if a == nil {
		a = &R53Account{Zones: map[string]*HostedZone{}, Changes: map[string]*R53Change{}, References: map[string]string{}}
		st.Accounts[id] = a
	}
	return a
}

// key orders records as the API does: by name with its labels reversed, then by type and set identifier ("How Amazon
// Route 53 lists resource record sets", ListResourceRecordSets).
func (r *DNSRecord) key() string { return reverseName(r.Name) + "\x00" + r.Type + "\x00" + r.SetID }

func reverseName(name string) string {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	slices.Reverse(labels)
	// A parent comes before its children: the separator is smaller than every character of a label.
	return strings.Join(labels, "\x01") + "\x01"
}

// normalName is a name as Route 53 keeps it: lower case, with a dot at the end, and with escaped codes resolved.
func normalName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '\\' && i+3 < len(name) {
			var code int
			if n, err := fmt.Sscanf(name[i+1:i+4], "%03o", &code); n == 1 && err == nil && code < 256 {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(name[i])
	}
	out := strings.ToLower(b.String())
	if !strings.HasSuffix(out, ".") {
		out += "."
	}
	return out
}

// shownName is a name as the API answers it: everything but letters, digits, hyphen and underscore is an octal code, so
// that a wildcard record comes back as \052.example.com. ("DNS domain name format", Route 53 developer guide).
func shownName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, `\%03o`, c)
	}
	return b.String()
}

func (r *DNSRecord) sdk() types.ResourceRecordSet {
	out := types.ResourceRecordSet{Name: new(shownName(r.Name)), Type: types.RRType(r.Type), TTL: r.TTL, Weight: r.Weight, MultiValueAnswer: r.MultiValue,
		Region: types.ResourceRecordSetRegion(r.Region), Failover: types.ResourceRecordSetFailover(r.Failover)}
	if r.SetID != "" {
		out.SetIdentifier = &r.SetID
	}
	if r.HealthCheck != "" {
		out.HealthCheckId = &r.HealthCheck
	}
	if r.Continent != "" || r.Country != "" {
		out.GeoLocation = &types.GeoLocation{}
		if r.Continent != "" {
			out.GeoLocation.ContinentCode = &r.Continent
		}
		if r.Country != "" {
			out.GeoLocation.CountryCode = &r.Country
		}
		if r.Sub != "" {
			out.GeoLocation.SubdivisionCode = &r.Sub
		}
	}
	if r.Alias != nil {
		out.AliasTarget = &types.AliasTarget{HostedZoneId: &r.Alias.Zone, DNSName: &r.Alias.Name, EvaluateTargetHealth: r.Alias.Evaluate}
		return out
	}
	out.ResourceRecords = []types.ResourceRecord{}
	for _, v := range r.Values {
		out.ResourceRecords = append(out.ResourceRecords, types.ResourceRecord{Value: new(v)})
	}
	return out
}

func (z *HostedZone) sdk() types.HostedZone {
	out := types.HostedZone{Id: new("/hostedzone/" + z.ID), Name: new(shownName(z.Name)), CallerReference: &z.Reference,
		Config: &types.HostedZoneConfig{PrivateZone: z.Private}, ResourceRecordSetCount: new(int64(len(z.Records)))}
	if z.Comment != "" {
		out.Config.Comment = &z.Comment
	}
	return out
}

// r53Service is Amazon Route 53.
type r53Service struct {
	cloud *Cloud
	state *R53State
}

// Cloud implements sim.Service.
func (s *r53Service) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *r53Service) Name() string { return "route53" }

// State implements sim.Service.
func (s *r53Service) State() any { return s.state }

// Reset implements sim.Service.
func (s *r53Service) Reset() { s.state.Accounts = map[string]*R53Account{} }

// Event implements sim.Service; changes become INSYNC by the clock, without an event.
func (s *r53Service) Event(string, string) {}

// Objects implements sim.Service. Records are objects of their own, since people leave them behind.
func (s *r53Service) Objects() []sim.Object {
	var out []sim.Object
	for _, id := range sortedKeys(s.state.Accounts) {
		a := s.state.Accounts[id]
		for _, zid := range sortedKeys(a.Zones) {
			z := a.Zones[zid]
			out = append(out, sim.Object{Account: id, Kind: "hosted-zone", ID: z.ID, ARN: "arn:aws:route53:::hostedzone/" + z.ID, Name: z.Name,
				Tags: tagMap(z.Tags), Data: z})
			for _, r := range z.Records {
				out = append(out, sim.Object{Account: id, Kind: "record", ID: recordID(z, r), Name: r.Name, State: r.Type, Parents: []string{z.ID},
					Default: r.Name == z.Name && (r.Type == "NS" || r.Type == "SOA"), Data: r})
			}
		}
		for _, cid := range sortedKeys(a.Changes) {
			ch := a.Changes[cid]
			out = append(out, sim.Object{Account: id, Kind: "change", ID: cid, State: s.status(ch), Gone: true, Data: ch})
		}
	}
	return out
}

func recordID(z *HostedZone, r *DNSRecord) string {
	id := z.ID + "/" + r.Name + "/" + r.Type
	if r.SetID != "" {
		id += "/" + r.SetID
	}
	return id
}

func (s *r53Service) status(ch *R53Change) string {
	if ch.Held || s.cloud.World.Now().Before(ch.InSync) {
		return "PENDING"
	}
	return "INSYNC"
}

// SetState implements sim.Service: a change can be held at PENDING or let go to INSYNC.
func (s *r53Service) SetState(id, state, _, _ string) error {
	for _, a := range s.state.Accounts {
		if ch := a.Changes[id]; ch != nil {
			ch.Held, ch.InSync = state == "PENDING", s.cloud.World.Now()
			return nil
		}
	}
	return fmt.Errorf("%s: no such change; only changes have states", id)
}

// Remove implements sim.Service.
func (s *r53Service) Remove(id string) error {
	for _, a := range s.state.Accounts {
		if z := a.Zones[id]; z != nil {
			delete(a.Zones, id)
			return nil
		}
		for _, z := range a.Zones {
			for i, r := range z.Records {
				if recordID(z, r) == id {
					z.Records = slices.Delete(z.Records, i, i+1)
					return nil
				}
			}
		}
	}
	return fmt.Errorf("%s: no such hosted zone or record", id)
}
