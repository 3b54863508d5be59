package azure

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// recordOwner is the key of a record set's metadata that says whose it is: record
// sets have no tags.
const recordOwner = "zopdayowner"

// EnsureRecord makes the A record that points to the load balancer, if the job
// names a zone.
func (p *Provider) EnsureRecord(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := balancerSpec(r.Job)
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	if lb.DNS == nil {
		infra.DNSSkipped = "no DNS zone"
		r.Note("skipped: no DNS zone")
		return nil
	}
	infra.DNSSkipped = ""
	zone := infra.DNSZoneID
	if zone == "" {
		if r.Mode == pipeline.Plan {
			zone = p.idIn(r, typeDNSZone, lb.DNS.Zone)
		} else if zone, err = p.zoneNamed(ctx, lb.DNS.Zone); err != nil {
			return notThere(err, "public DNS zone "+lb.DNS.Zone, "config.spec.loadBalancer.dns.zone")
		}
	}
	full := qualified(lb.DNS.Record, lastName(zone))
	if r.Mode == pipeline.Apply && (infra.DNSZoneID != zone || infra.DNSRecord != full) {
		infra.DNSZoneID, infra.DNSRecord = zone, full
		if err := r.Save(ctx); err != nil {
			return err
		}
	}
	if infra.LoadBalancerHost == "" && r.Mode == pipeline.Apply {
		return pipeline.Fatal("no-load-balancer", "the load balancer has no address that a record could point to", "Retry; if this comes again, detach and attach the load balancer.")
	}
	_, err = r.Ensure(ctx, p.record(r, zone, full).resource())
	return err
}

// RemoveRecord removes the record if it is the job's; one that somebody else has
// made is theirs.
func (p *Provider) RemoveRecord(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	infra := r.Job.Config.InfraConfig
	if infra.DNSZoneID == "" || infra.DNSRecord == "" {
		return nil // committed before a record is made, so none was
	}
	return r.Remove(ctx, p.record(r, infra.DNSZoneID, infra.DNSRecord).resource())
}

// zoneNamed is the ID of a public zone, by its ID or its name.
func (p *Provider) zoneNamed(ctx context.Context, named string) (string, error) {
	return p.find(ctx, typeDNSZone, strings.TrimSuffix(named, "."))
}

// qualified is a record's full name in a zone.
func qualified(record, zone string) string {
	if record == "@" || record == "" {
		return zone
	}
	return record + "." + zone
}

// relative is a full name within its zone.
func relative(full, zone string) string {
	return cmp.Or(strings.TrimSuffix(strings.TrimSuffix(full, zone), "."), "@")
}

func (p *Provider) record(r *pipeline.Run, zone, full string) object[armdns.RecordSet] {
	host := r.Job.Config.InfraConfig.LoadBalancerHost
	body := func() armdns.RecordSet {
		return armdns.RecordSet{Properties: &armdns.RecordSetProperties{
			TTL: new(int64(60)), ARecords: []*armdns.ARecord{{IPv4Address: &host}}, Metadata: map[string]*string{recordOwner: &r.Job.ID},
		}}
	}
	return object[armdns.RecordSet]{
		p: p, r: r, kind: kindRecord, key: "record", id: zone + "/A/" + relative(full, lastName(zone)), onlyIfNew: true,
		body: func() any { return body() },
		owner: func(_ context.Context, x resource[armdns.RecordSet]) (string, error) {
			return cmp.Or(value(value(x.is.Properties).Metadata[recordOwner]), pipeline.Unmarked), nil
		},
		state: func(x resource[armdns.RecordSet]) (pipeline.Status, string) {
			if by := value(value(x.is.Properties).Metadata[recordOwner]); r.Down && by != r.Job.ID {
				r.Note("the DNS record %s is somebody else's by now and was left alone", full)
				return pipeline.Gone, "somebody else's"
			}
			return statusOf(x.Properties.ProvisioningState), x.Properties.ProvisioningState
		},
		see: func(_ context.Context, x resource[armdns.RecordSet]) ([]pipeline.Aspect, error) {
			var seen []string
			for _, a := range value(x.is.Properties).ARecords {
				seen = append(seen, value(a.IPv4Address))
			}
			return []pipeline.Aspect{{Name: "address", Wanted: host, Seen: sorted(seen), Set: func(ctx context.Context) error {
				return p.update(ctx, r, x.meta, body())
			}}}, nil
		},
	}
}

// recordCheck checks the zone and the name of a record before anything is made.
func (c *checker) recordCheck(ctx context.Context, dns job.DNS) (fault, fix string, err error) {
	zone, err := c.zoneNamed(ctx, dns.Zone)
	if pipeline.Is(err, pipeline.NotFound) {
		return "there is no public DNS zone " + dns.Zone + " in the subscription", "Name a zone that exists, by its name or resource ID.", nil
	}
	if err != nil {
		return "", "", err
	}
	x, err := read[armdns.RecordSet](ctx, c.Provider, c.record(c.r, zone, qualified(dns.Record, lastName(zone))).id)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return "", "", nil
	case err != nil:
		return "", "", err
	}
	if value(value(x.is.Properties).Metadata[recordOwner]) != c.r.Job.ID {
		return fmt.Sprintf("an A record %s exists already in zone %s and is somebody else's", x.Name, lastName(zone)), "Use another name, or remove the record.", nil
	}
	return "", "", nil
}
