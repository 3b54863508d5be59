package aws

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A hostedZone is where a job's record goes.
type hostedZone struct {
	id, name string // without "/hostedzone/" and the last dot
	private  bool
	record   string // fully qualified, without the last dot

	reference string // what its maker called the request
}

var zoneIDRE = regexp.MustCompile(`^(/hostedzone/)?Z[A-Z0-9]{1,31}$`)

// hostedZone finds the zone for a record. A zone named by its ID is taken as
// it is. By its name, of the zones of the right kind the one with the longest
// name that the record falls under is taken, since resolvers ask that one
// (failure kind L4); two of one name are an error that lists them (L1). A record
// of an internet-facing load balancer is never put into a private zone (L2).
func (p *Provider) hostedZone(ctx context.Context, d job.DNS, scheme string) (hostedZone, error) {
	const field = "config.spec.loadBalancer.dns.zone"
	all, err := p.zones(ctx)
	if err != nil {
		return hostedZone{}, err
	}
	if zoneIDRE.MatchString(d.Zone) {
		id := strings.TrimPrefix(d.Zone, "/hostedzone/")
		i := slices.IndexFunc(all, func(z hostedZone) bool { return z.id == id })
		switch {
		case i < 0:
			return hostedZone{}, pipeline.Fatal("zone-not-found", "there is no hosted zone "+id+" in this account", "Give the ID or the name of a zone of this account.").On(field)
		case all[i].private && scheme != job.SchemeInternal:
			return hostedZone{}, pipeline.Fatal("zone-private", fmt.Sprintf("hosted zone %s (%s) is private, and the load balancer is public: nobody outside could resolve the record", id, all[i].name), "Name a public zone, or make the load balancer internal.").On(field)
		}
		z := all[i]
		z.record = qualified(d.Record, z.name)
		return z, nil
	}
	name := domain(d.Zone)
	record := qualified(d.Record, name)
	usable := slices.DeleteFunc(slices.Clone(all), func(z hostedZone) bool {
		return !within(record, z.name) || !within(z.name, name) || z.private && scheme != job.SchemeInternal
	})
	if !slices.ContainsFunc(usable, func(z hostedZone) bool { return z.name == name }) {
		return hostedZone{}, zoneMissing(all, name).On(field)
	}
	longest := slices.MaxFunc(usable, func(a, b hostedZone) int { return len(a.name) - len(b.name) }).name
	usable = slices.DeleteFunc(usable, func(z hostedZone) bool { return z.name != longest })
	if scheme == job.SchemeInternal && slices.ContainsFunc(usable, func(z hostedZone) bool { return z.private }) {
		usable = slices.DeleteFunc(usable, func(z hostedZone) bool { return !z.private })
	}
	if len(usable) > 1 {
		var ids []string
		for _, z := range usable {
			ids = append(ids, z.id)
		}
		slices.Sort(ids)
		return hostedZone{}, pipeline.Fatal("zone-ambiguous", fmt.Sprintf("%d hosted zones are named %s: %s", len(ids), longest, strings.Join(ids, ", ")), "Give the ID of the one that is meant.").On(field)
	}
	z := usable[0]
	z.record = record
	return z, nil
}

func zoneMissing(all []hostedZone, name string) *pipeline.FatalError {
	for _, z := range all {
		if z.name == name {
			return pipeline.Fatal("zone-private", fmt.Sprintf("the only hosted zone named %s is private (%s), and the load balancer is public: nobody outside could resolve the record", name, z.id), "Name a public zone, or make the load balancer internal.")
		}
	}
	return pipeline.Fatal("zone-not-found", "there is no hosted zone "+name+" in this account", "Give the ID or the name of a zone of this account, or leave dns out.")
}

// zones is every hosted zone of the account, once a pass.
func (p *Provider) zones(ctx context.Context) ([]hostedZone, error) {
	return lookup.Once(ctx, "hosted zones", func(ctx context.Context) ([]hostedZone, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, marker *string) ([]r53types.HostedZone, *string, error) {
			out, err := p.r53.ListHostedZones(ctx, &route53.ListHostedZonesInput{Marker: marker})
			if err != nil {
				return nil, nil, err
			}
			if !out.IsTruncated {
				out.NextMarker = nil
			}
			return out.HostedZones, out.NextMarker, nil
		})
		zones := make([]hostedZone, len(all))
		for i, z := range all {
			zones[i] = hostedZone{id: strings.TrimPrefix(aws.ToString(z.Id), "/hostedzone/"), name: domain(aws.ToString(z.Name)), private: z.Config != nil && z.Config.PrivateZone, reference: aws.ToString(z.CallerReference)}
		}
		return zones, err
	})
}

// recordsAt reads the record sets of one name.
func (p *Provider) recordsAt(ctx context.Context, zoneID, record string) ([]r53types.ResourceRecordSet, error) {
	return lookup.Once(ctx, "records "+zoneID+" "+record, func(ctx context.Context) ([]r53types.ResourceRecordSet, error) {
		out, err := p.r53.ListResourceRecordSets(ctx, &route53.ListResourceRecordSetsInput{
			HostedZoneId: aws.String(zoneID), StartRecordName: aws.String(record), MaxItems: aws.Int32(100),
		})
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(out.ResourceRecordSets, func(s r53types.ResourceRecordSet) bool {
			return domain(aws.ToString(s.Name)) != record
		}), nil
	})
}

// domain is a domain name as Route 53 means it: lower case, without the last
// dot, and with the asterisk that it writes as an escape.
func domain(s string) string {
	return strings.ToLower(strings.TrimSuffix(strings.ReplaceAll(s, `\052`, "*"), "."))
}

// qualified is a record's full name; @ is the zone itself.
func qualified(record, zone string) string {
	if record == "@" {
		return zone
	}
	return domain(record) + "." + zone
}

func within(name, zone string) bool { return name == zone || strings.HasSuffix(name, "."+zone) }
