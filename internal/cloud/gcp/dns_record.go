package gcp

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/dns/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindRecord = "dns:record"
	recordKey  = "record"

	recordTTL = 300 // seconds
)

// syncPatience is how long Cloud DNS may take to carry a change out; it commonly
// takes seconds.
const syncPatience = 10 * time.Minute

// A recordPlace is where the job's record is: a zone, by its name in the
// project, and a full name without the last dot.
type recordPlace struct{ zone, name string }

// id is the record's identity: records have none of their own, and no marks.
func (at recordPlace) id() string { return at.zone + "/" + at.name + "/A" }

// EnsureRecord makes the record that points to the load balancer's address, if
// the job names a zone.
func (p *Provider) EnsureRecord(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	b, err := p.lbSpec(r.Job)
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	if b.DNS == nil {
		infra.DNSSkipped = "no DNS zone"
		r.Note("skipped: no DNS zone")
		return nil
	}
	infra.DNSSkipped = ""
	at, err := p.recordPlace(ctx, r, b)
	if err != nil {
		return err
	}
	if r.Mode != pipeline.Verify && (infra.DNSZoneID != at.zone || infra.DNSRecord != at.name) {
		// Committed before the record is made: it carries no mark by which a
		// later worker could find it.
		infra.DNSZoneID, infra.DNSRecord = at.zone, at.name
		if err := r.Save(ctx); err != nil {
			return err
		}
	}
	if infra.LoadBalancerHost == "" && r.Mode != pipeline.Plan {
		if r.Mode == pipeline.Verify {
			return nil // the missing load balancer is drift already
		}
		return pipeline.Fatal("no-load-balancer", "the load balancer has no address that a record could point to", "Retry; if this comes again, detach and attach the load balancer.")
	}
	if _, err := r.Ensure(ctx, p.record(r, at)); err != nil {
		return err
	}
	return p.awaitSync(ctx, r, at)
}

// RemoveRecord removes the record if it still points to the job's load balancer
// alone; one that somebody has pointed elsewhere is theirs.
func (p *Provider) RemoveRecord(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	infra := r.Job.Config.InfraConfig
	at := recordPlace{infra.DNSZoneID, infra.DNSRecord}
	if rec, ok := r.Object(kindRecord, recordKey); ok && rec.ID != "" {
		zone, rest, _ := strings.Cut(rec.ID, "/")
		at = recordPlace{zone, strings.TrimSuffix(rest, "/A")}
	}
	if at.zone == "" || at.name == "" {
		return nil // it is committed before a record is made, so none was
	}
	if err := r.Remove(ctx, p.record(r, at)); err != nil {
		return err
	}
	return p.awaitSync(ctx, r, at)
}

// recordPlace resolves the zone, if that was not done before, and the full name.
func (p *Provider) recordPlace(ctx context.Context, r *pipeline.Run, b balancer) (recordPlace, error) {
	infra := r.Job.Config.InfraConfig
	if infra.DNSZoneID != "" && infra.DNSRecord != "" {
		return recordPlace{infra.DNSZoneID, infra.DNSRecord}, nil
	}
	if r.Mode == pipeline.Plan {
		return recordPlace{or(infra.DNSZoneID, "(zone)"), qualified(b.DNS.Record, domain(b.DNS.Zone))}, nil
	}
	z, err := p.recordZone(ctx, *b.DNS, b.Scheme, infra.NetworkID)
	return recordPlace{z.id, z.record}, err
}

// record is the job's A record. Whether one is ours is told by its value: the
// address that the job's load balancer has, and nothing else beside it.
func (p *Provider) record(r *pipeline.Run, at recordPlace) pipeline.Resource {
	address := r.Job.Config.InfraConfig.LoadBalancerHost
	ours := func(s *dns.ResourceRecordSet) bool {
		return s.Type == "A" && address != "" && slices.Equal(s.Rrdatas, []string{address})
	}
	want := &dns.ResourceRecordSet{Name: at.name + ".", Type: "A", Ttl: recordTTL, Rrdatas: []string{address}}
	x := pipeline.Resource{Kind: kindRecord, Key: recordKey, Name: at.name, Args: want}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		all, err := p.recordsAt(ctx, at)
		if err != nil {
			return pipeline.Seen{}, err
		}
		i := slices.IndexFunc(all, func(s *dns.ResourceRecordSet) bool { return s.Type == "A" })
		if i < 0 {
			return pipeline.Seen{}, absent(serviceDNS, "resourceRecordSets.list", "record "+at.name)
		}
		s := pipeline.Seen{ID: at.id(), Status: pipeline.Ready}
		have := all[i]
		switch {
		case r.Down && !ours(have):
			r.Note("the DNS record %s now points to %s and was left alone", at.name, recordText(have))
			s.Status = pipeline.Gone
		case !r.Down:
			// A value that somebody has set is told and left.
			value := pipeline.Aspect{Name: "value", Wanted: address, Seen: recordText(have)}
			s.Aspects = []pipeline.Aspect{value}
		}
		return s, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		all, err := p.recordsAt(ctx, at)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			switch {
			case ours(s):
				return []pipeline.Seen{{ID: at.id(), Owner: r.Job.ID, Status: pipeline.Ready}}, nil
			case s.Type == "A" || s.Type == "CNAME":
				return []pipeline.Seen{{ID: s.Type + " record with value " + recordText(s), Status: pipeline.Ready}}, nil
			}
		}
		return nil, nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		if err := p.changeRecords(ctx, r, at, &dns.Change{Additions: []*dns.ResourceRecordSet{want}}); err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: at.id(), Owner: r.Job.ID, Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error { return p.deleteRecord(ctx, r, at, ours) }
	return x
}

func recordText(s *dns.ResourceRecordSet) string { return sorted(s.Rrdatas) }

// recordsAt reads the record sets of one name.
func (p *Provider) recordsAt(ctx context.Context, at recordPlace) ([]*dns.ResourceRecordSet, error) {
	return lookup.Once(ctx, "records "+at.id(), func(ctx context.Context) ([]*dns.ResourceRecordSet, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*dns.ResourceRecordSet, *string, error) {
			out, err := send(ctx, p.dns.ResourceRecordSets.List(p.project, at.zone).Name(at.name+".").PageToken(text(token)))
			if err != nil {
				return nil, nil, err
			}
			return out.Rrsets, &out.NextPageToken, nil
		})
		// Not every endpoint heeds the name.
		return slices.DeleteFunc(all, func(s *dns.ResourceRecordSet) bool { return domain(s.Name) != at.name }), err
	})
}

// changeRecords sends one change, which Cloud DNS takes whole or not at all, and
// remembers it until it is carried out.
func (p *Provider) changeRecords(ctx context.Context, r *pipeline.Run, at recordPlace, change *dns.Change) error {
	out, err := send(ctx, p.dns.Changes.Create(p.project, at.zone, change))
	if err != nil {
		return err
	}
	if out.Status == "pending" {
		r.Remember("dns change", out.Id)
	}
	return nil
}

// deleteRecord deletes exactly the record that was seen to be ours: Cloud DNS
// refuses if it has changed since, and the next pass looks again.
func (p *Provider) deleteRecord(ctx context.Context, r *pipeline.Run, at recordPlace, ours func(*dns.ResourceRecordSet) bool) error {
	all, err := p.recordsAt(ctx, at)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, ours)
	if i < 0 {
		return absent(serviceDNS, "resourceRecordSets.list", "record "+at.name)
	}
	s := all[i]
	exact := &dns.ResourceRecordSet{Name: s.Name, Type: s.Type, Ttl: s.Ttl, Rrdatas: s.Rrdatas}
	return p.changeRecords(ctx, r, at, &dns.Change{Deletions: []*dns.ResourceRecordSet{exact}})
}

// awaitSync waits until the zone's name servers have the change.
func (p *Provider) awaitSync(ctx context.Context, r *pipeline.Run, at recordPlace) error {
	id, _ := r.Recall("dns change").(string)
	if id == "" || r.Mode != pipeline.Apply {
		return nil
	}
	out, err := send(ctx, p.dns.Changes.Get(p.project, at.zone, id))
	if err != nil && !pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) { // a cloud that does not keep its changes
		return err
	}
	if err == nil && out.Status == "pending" {
		if r.WaitedFor("dns change") < syncPatience {
			return pipeline.Wait(2*time.Second, "the DNS record to reach all of the zone's name servers")
		}
		r.Note("the change of the DNS record was accepted, and Cloud DNS was still carrying it out after %s", syncPatience)
	}
	r.WaitOver("dns change")
	r.Remember("dns change", nil)
	return nil
}

// A recordZone is where a job's record goes.
type recordZone struct {
	id, name string // the zone's name in the project, and its domain without the last dot
	private  bool
	networks []string
	record   string // fully qualified, without the last dot
}

var zoneNameRE = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// recordZone finds the zone for a record. A zone named by its own name or number
// is taken as it is. By its domain, of the zones of the right kind the one with
// the longest domain that the record falls under is taken, since resolvers ask
// that one (failure kind L4); two of one domain are an error that lists them (L1).
// A record of a public load balancer is never put into a private zone, nor one of
// an internal load balancer into a private zone of other networks (L2).
func (p *Provider) recordZone(ctx context.Context, d job.DNS, scheme, network string) (recordZone, error) {
	const field = "config.spec.loadBalancer.dns.zone"
	all, err := p.recordZones(ctx)
	if err != nil {
		return recordZone{}, err
	}
	if i := slices.IndexFunc(all, func(z recordZone) bool { return z.id == d.Zone && zoneNameRE.MatchString(d.Zone) }); i >= 0 {
		z := all[i]
		if z.private && scheme != job.SchemeInternal {
			return z, pipeline.Fatal("zone-private", fmt.Sprintf("zone %s (%s) is private, and the load balancer is public: nobody outside could resolve the record", z.id, z.name), "Name a public zone, or make the load balancer internal.").On(field)
		}
		z.record = qualified(d.Record, z.name)
		return z, nil
	}
	name := domain(d.Zone)
	record := qualified(d.Record, name)
	usable := slices.DeleteFunc(slices.Clone(all), func(z recordZone) bool {
		return !within(record, z.name) || !within(z.name, name) || z.private && (scheme != job.SchemeInternal || network != "" && !slices.Contains(z.networks, rel(network)))
	})
	if !slices.ContainsFunc(usable, func(z recordZone) bool { return z.name == name }) {
		return recordZone{}, recordZoneMissing(all, name).On(field)
	}
	longest := slices.MaxFunc(usable, func(a, b recordZone) int { return len(a.name) - len(b.name) }).name
	usable = slices.DeleteFunc(usable, func(z recordZone) bool { return z.name != longest })
	if scheme == job.SchemeInternal && slices.ContainsFunc(usable, func(z recordZone) bool { return z.private }) {
		usable = slices.DeleteFunc(usable, func(z recordZone) bool { return !z.private })
	}
	if len(usable) > 1 {
		var ids []string
		for _, z := range usable {
			ids = append(ids, z.id)
		}
		return recordZone{}, pipeline.Fatal("zone-ambiguous", fmt.Sprintf("%d zones are for %s: %s", len(ids), longest, sorted(ids)), "Give the name of the one that is meant, as it is called in the project.").On(field)
	}
	z := usable[0]
	z.record = record
	return z, nil
}

func recordZoneMissing(all []recordZone, name string) *pipeline.FatalError {
	for _, z := range all {
		if z.name == name {
			return pipeline.Fatal("zone-private", fmt.Sprintf("the only zone for %s is private (%s), and who asks for the load balancer could not resolve a record in it", name, z.id), "Name another zone, or attach this one to the network of an internal load balancer.")
		}
	}
	return pipeline.Fatal("zone-not-found", "there is no DNS zone "+name+" in this project", "Give the name or the domain of a zone of this project, or leave dns out.")
}

// recordZones is every zone of the project, once a pass. Zones that hand their
// questions on hold no records.
func (p *Provider) recordZones(ctx context.Context) ([]recordZone, error) {
	return lookup.Once(ctx, "zones for records", func(ctx context.Context) ([]recordZone, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*dns.ManagedZone, *string, error) {
			out, err := send(ctx, p.dns.ManagedZones.List(p.project).PageToken(text(token)))
			if err != nil {
				return nil, nil, err
			}
			return out.ManagedZones, &out.NextPageToken, nil
		})
		var zones []recordZone
		for _, z := range all {
			if z.ForwardingConfig != nil || z.PeeringConfig != nil {
				continue
			}
			zone := recordZone{id: or(z.Name, strconv.FormatUint(z.Id, 10)), name: domain(z.DnsName), private: z.Visibility == "private"}
			if v := z.PrivateVisibilityConfig; v != nil {
				for _, n := range v.Networks {
					zone.networks = append(zone.networks, rel(n.NetworkUrl))
				}
			}
			zones = append(zones, zone)
		}
		return zones, err
	})
}

// domain is a domain name as it is compared: lower case, without the last dot.
func domain(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// qualified is a record's full name; @ is the zone itself.
func qualified(record, zone string) string {
	if record == "@" {
		return zone
	}
	return domain(record) + "." + zone
}

func within(name, zone string) bool { return name == zone || strings.HasSuffix(name, "."+zone) }
