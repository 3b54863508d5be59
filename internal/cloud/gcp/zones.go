package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/dns/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// managedZones is the kind of Cloud DNS zones. Their names are unique in the
// project, and they take labels when they are made; the list has no filter for
// them.
func (p *Provider) managedZones() lookup.Kind[*dns.ManagedZone] {
	mark := func(x *dns.ManagedZone) (string, string) { return labelMark(x.Labels) }
	return lookup.Kind[*dns.ManagedZone]{
		Name: kindZone,
		List: func(ctx context.Context, owner string) ([]*dns.ManagedZone, error) {
			all, err := p.allZones(ctx)
			return slices.DeleteFunc(slices.Clone(all), func(x *dns.ManagedZone) bool {
				who, _ := mark(x)
				return who != owner
			}), err
		},
		One: func(ctx context.Context, id string) (*dns.ManagedZone, error) {
			return send(ctx, p.dns.ManagedZones.Get(projectOf(id), base(id)))
		},
		ID:   func(x *dns.ManagedZone) string { return p.zoneID(x.Name) },
		Mark: mark,
	}
}

func (p *Provider) zoneID(name string) string {
	return "projects/" + p.project + "/managedZones/" + name
}

// allZones are the project's zones, read once a pass.
func (p *Provider) allZones(ctx context.Context) ([]*dns.ManagedZone, error) {
	return lookup.Once(ctx, "zones of "+p.project, func(ctx context.Context) ([]*dns.ManagedZone, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*dns.ManagedZone, *string, error) {
			out, err := send(ctx, p.dns.ManagedZones.List(p.project).PageToken(text(token)))
			if err != nil {
				return nil, nil, err
			}
			return out.ManagedZones, &out.NextPageToken, nil
		})
	})
}

// EnsureDNSZones makes the job's zones: private ones are answered inside the
// job's network, public ones are signed. Whether the parent of a public zone
// delegates to it is looked up and told; it is not this job's to bring about.
func (p *Provider) EnsureDNSZones(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	infos := make([]job.DNSZoneInfo, len(spec.DNSZones))
	var parts []func(context.Context) error
	for i, z := range spec.DNSZones {
		parts = append(parts, func(ctx context.Context) error {
			id, err := r.Ensure(ctx, p.zone(r, i, z))
			infos[i] = job.DNSZoneInfo{Name: z.Name, ID: id, Visibility: z.Visibility}
			return explained(err)
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil || r.Mode != pipeline.Apply {
		return err
	}
	for i := range infos {
		x, err := p.managedZones().Get(ctx, infos[i].ID)
		if err != nil {
			return visible(r, "the zone "+infos[i].Name, err)
		}
		infos[i].NameServers = x.NameServers
		if infos[i].Visibility == job.ZonePublic {
			infos[i].Delegation = p.delegation(ctx, infos[i].Name, x.NameServers)
			r.Note("%s: %s", infos[i].Name, infos[i].Delegation)
		}
	}
	r.Job.Config.InfraConfig.DNSZones = infos
	return r.Save(ctx)
}

// delegation is whether the internet finds a public zone where it is, and what to
// do if not. It never fails a job.
func (p *Provider) delegation(ctx context.Context, zone string, nameServers []string) string {
	found, err := p.lookupNS(ctx, zone+".")
	var none *net.DNSError
	if errors.As(err, &none) && none.IsNotFound {
		found, err = nil, nil
	}
	if err != nil {
		return "not checked: " + innermost(err)
	}
	fold := func(names []string) string {
		out := make([]string, len(names))
		for i, n := range names {
			out[i] = strings.ToLower(strings.TrimSuffix(n, "."))
		}
		return sorted(out)
	}
	want := fold(nameServers)
	switch got := fold(found); got {
	case want:
		return "delegated"
	case "":
		return "not delegated: add NS records for " + zone + " to its parent zone: " + want
	default:
		return "not delegated: the parent zone names " + got + "; name " + want + " instead"
	}
}

// RemoveDNSZones removes the job's zones. One that holds records which somebody
// else made is not removed: they are named.
func (p *Provider) RemoveDNSZones(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = view(ctx, r)
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	var parts []func(context.Context) error
	for i, z := range spec.DNSZones {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.zone(r, i, z)) })
	}
	return pipeline.All(ctx, parts...)
}

// zone is the job's i-th zone.
func (p *Provider) zone(r *pipeline.Run, i int, z job.DNSZone) pipeline.Resource {
	key := "zone-" + strconv.Itoa(i+1)
	want := p.zoneConfig(r, key, z)
	k := p.managedZones()
	see := func(x *dns.ManagedZone) pipeline.Seen {
		owner, _ := labelMark(x.Labels)
		return pipeline.Seen{ID: k.ID(x), Owner: cmp.Or(owner, pipeline.Unmarked), Aspects: p.zoneAspects(want, x)}
	}
	return pipeline.Resource{
		Kind: kindZone, Key: key, Name: want.Name, Args: want,
		Get: func(ctx context.Context, id string) (pipeline.Seen, error) {
			x, err := k.Get(ctx, id)
			if err != nil {
				return pipeline.Seen{}, err
			}
			return see(x), nil
		},
		Find: func(ctx context.Context) ([]pipeline.Seen, error) {
			all, err := p.allZones(ctx)
			var out []pipeline.Seen
			for _, x := range all {
				if _, object := labelMark(x.Labels); x.Name == want.Name || object == key && x.Labels[labelOwner] == r.Job.ID {
					out = append(out, see(x))
				}
			}
			return out, err
		},
		Create: func(ctx context.Context, _ string) (pipeline.Seen, error) {
			x, err := send(ctx, p.dns.ManagedZones.Create(p.project, want))
			if err != nil {
				return pipeline.Seen{}, err
			}
			return see(x), nil
		},
		Delete: func(ctx context.Context, id string) error {
			return plain(p.dns.ManagedZones.Delete(projectOf(id), base(id)).Context(ctx).Do())
		},
		Blockers: p.foreignRecords,
	}
}

func (p *Provider) zoneConfig(r *pipeline.Run, key string, z job.DNSZone) *dns.ManagedZone {
	want := &dns.ManagedZone{
		Name: name(r, key), DnsName: z.Name + ".", Visibility: z.Visibility, Labels: labelsFor(r.Job, key),
		Description: r.Job.MarkText(key), // the API wants one
	}
	if z.Visibility == job.ZonePublic {
		want.DnssecConfig = &dns.ManagedZoneDnsSecConfig{State: "on"} // harmless until the parent has the DS record
		return want
	}
	want.PrivateVisibilityConfig = &dns.ManagedZonePrivateVisibilityConfig{
		Networks: []*dns.ManagedZonePrivateVisibilityConfigNetwork{{NetworkUrl: p.networkURL(r.Job.Config.InfraConfig.NetworkID)}},
	}
	return want
}

// networkURL is a network as Cloud DNS wants it: in full.
func (p *Provider) networkURL(id string) string { return "https://www.googleapis.com/compute/v1/" + id }

func (p *Provider) zoneAspects(want, x *dns.ManagedZone) []pipeline.Aspect {
	patch := func(change *dns.ManagedZone) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := send(ctx, p.dns.ManagedZones.Patch(p.project, x.Name, change))
			return err
		}
	}
	aspects := []pipeline.Aspect{
		{Name: "DNS name", Wanted: want.DnsName, Seen: x.DnsName},
		{Name: "visibility", Wanted: want.Visibility, Seen: x.Visibility},
	}
	if want.Visibility == job.ZonePublic {
		return append(aspects, pipeline.Aspect{Name: "DNSSEC", Wanted: "on", Seen: dnssecState(x), Set: patch(&dns.ManagedZone{DnssecConfig: want.DnssecConfig})})
	}
	return append(aspects, pipeline.Aspect{Name: "networks", Wanted: zoneNetworks(want), Seen: zoneNetworks(x),
		Set: patch(&dns.ManagedZone{PrivateVisibilityConfig: want.PrivateVisibilityConfig})})
}

func dnssecState(x *dns.ManagedZone) string {
	if x.DnssecConfig == nil || x.DnssecConfig.State == "" {
		return "off"
	}
	return x.DnssecConfig.State
}

func zoneNetworks(x *dns.ManagedZone) string {
	var links []string
	if x.PrivateVisibilityConfig != nil {
		for _, n := range x.PrivateVisibilityConfig.Networks {
			links = append(links, n.NetworkUrl)
		}
	}
	return relText(links)
}

// foreignRecords names the records that keep a zone from being deleted: all but
// its own name servers and start of authority.
func (p *Provider) foreignRecords(ctx context.Context, id string) (string, error) {
	zone, err := send(ctx, p.dns.ManagedZones.Get(projectOf(id), base(id)))
	if err != nil {
		return "", pipeline.Unless(err, pipeline.NotFound)
	}
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*dns.ResourceRecordSet, *string, error) {
		out, err := send(ctx, p.dns.ResourceRecordSets.List(projectOf(id), base(id)).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.Rrsets, &out.NextPageToken, nil
	})
	if err != nil {
		return "", err
	}
	const most = 10
	var names []string
	for _, x := range all {
		if x.Name == zone.DnsName && (x.Type == "NS" || x.Type == "SOA") {
			continue
		}
		names = append(names, x.Type+" "+x.Name)
	}
	if len(names) == 0 {
		return "", nil
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return "the zone holds records that this job did not make: " + strings.Join(names, ", ") + "; move or delete them, then retry", nil
}
