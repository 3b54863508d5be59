package azure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/privatedns/armprivatedns"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// everywhere is the location of what belongs to no region.
const everywhere = "global"

// EnsureDNSZones makes the job's zones: public ones, and private ones with a link
// to the network.
func (p *Provider) EnsureDNSZones(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	infos := make([]job.DNSZoneInfo, len(spec.DNSZones))
	var parts []func(context.Context) error
	for i, z := range spec.DNSZones {
		parts = append(parts, func(ctx context.Context) (err error) {
			infos[i], err = p.ensureZone(ctx, r, z)
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	if r.Mode != pipeline.Verify {
		r.Job.Config.InfraConfig.DNSZones = infos
	}
	return nil
}

func (p *Provider) ensureZone(ctx context.Context, r *pipeline.Run, z job.DNSZone) (job.DNSZoneInfo, error) {
	info := job.DNSZoneInfo{Name: z.Name, Visibility: z.Visibility}
	var err error
	if z.Visibility != job.ZonePublic {
		if info.ID, err = r.Ensure(ctx, p.privateZone(r, z.Name).resource()); err != nil {
			return info, err
		}
		_, err = r.Ensure(ctx, p.zoneLink(r, z.Name).resource())
		return info, err
	}
	zone := p.publicZone(r, z.Name)
	if info.ID, err = r.Ensure(ctx, zone.resource()); err != nil || r.Mode != pipeline.Apply {
		return info, err
	}
	x, err := read[armdns.Zone](ctx, p, zone.id)
	if err != nil {
		return info, pipeline.Unseen(err, "zone "+z.Name)
	}
	for _, s := range values(value(x.is.Properties).NameServers) {
		info.NameServers = append(info.NameServers, strings.TrimSuffix(s, "."))
	}
	info.Delegation = p.delegation(ctx, z.Name, info.NameServers)
	return info, nil
}

// delegation says whether the parent of a public zone delegates to it. It is
// information: the zone is made all the same.
func (p *Provider) delegation(ctx context.Context, zone string, servers []string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := p.lookupNS(ctx, zone)
	todo := fmt.Sprintf("not delegated: have the owner of the zone above %s set NS records for it to %s", zone, strings.Join(servers, ", "))
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return todo
	case err != nil:
		return "not checked: " + err.Error()
	}
	for _, ns := range found {
		if slices.ContainsFunc(servers, func(s string) bool { return strings.EqualFold(s, strings.TrimSuffix(ns.Host, ".")) }) {
			return "delegated"
		}
	}
	return todo
}

func (p *Provider) publicZone(r *pipeline.Run, name string) object[armdns.Zone] {
	return object[armdns.Zone]{
		p: p, r: r, kind: kindDNSZone, key: name, id: p.idIn(r, typeDNSZone, name), onlyIfNew: true,
		body: func() any {
			return armdns.Zone{Location: new(everywhere), Tags: tagsFor(r.Job, name), Properties: &armdns.ZoneProperties{ZoneType: new(armdns.ZoneTypePublic)}}
		},
		see: func(_ context.Context, x resource[armdns.Zone]) ([]pipeline.Aspect, error) {
			return []pipeline.Aspect{{Name: "visibility", Wanted: "Public", Seen: string(value(value(x.is.Properties).ZoneType))}}, nil
		},
		inside: func(ctx context.Context, id string) ([]string, error) {
			x, err := read[armdns.Zone](ctx, p, id)
			if err != nil {
				return nil, err
			}
			const own = 2 // SOA and NS
			return p.recordsIn(ctx, id+"/recordsets", value(value(x.is.Properties).NumberOfRecordSets)-own)
		},
	}
}

func (p *Provider) privateZone(r *pipeline.Run, name string) object[armprivatedns.PrivateZone] {
	return object[armprivatedns.PrivateZone]{
		p: p, r: r, kind: kindPrivateZone, key: name, id: p.idIn(r, typePrivateZone, name), onlyIfNew: true,
		body: func() any {
			return armprivatedns.PrivateZone{Location: new(everywhere), Tags: tagsFor(r.Job, name)}
		},
		inside: func(ctx context.Context, id string) ([]string, error) {
			x, err := read[armprivatedns.PrivateZone](ctx, p, id)
			if err != nil {
				return nil, err
			}
			const own = 1 // SOA
			records, err := p.recordsIn(ctx, id+"/ALL", value(value(x.is.Properties).NumberOfRecordSets)-own)
			if err != nil {
				return nil, err
			}
			links, err := list[meta](ctx, p, id+"/virtualNetworkLinks")
			for _, l := range links {
				records = append(records, "link "+l.Name)
			}
			return records, err
		},
	}
}

// zoneLink makes a private zone answer inside the network. Names of VMs are not
// registered in it.
func (p *Provider) zoneLink(r *pipeline.Run, zone string) object[armprivatedns.VirtualNetworkLink] {
	vnet := r.Job.Config.InfraConfig.NetworkID
	if vnet == "" {
		vnet = p.vnetID(r)
	}
	return object[armprivatedns.VirtualNetworkLink]{
		p: p, r: r, kind: kindZoneLink, key: zone, onlyIfNew: true,
		id: p.privateZone(r, zone).id + "/virtualNetworkLinks/" + r.Job.ResourceName("link", longestName),
		body: func() any {
			return armprivatedns.VirtualNetworkLink{Location: new(everywhere), Tags: tagsFor(r.Job, zone), Properties: &armprivatedns.VirtualNetworkLinkProperties{
				VirtualNetwork: &armprivatedns.SubResource{ID: &vnet}, RegistrationEnabled: new(false),
			}}
		},
		see: func(_ context.Context, x resource[armprivatedns.VirtualNetworkLink]) ([]pipeline.Aspect, error) {
			f := value(x.is.Properties)
			linked := ""
			if f.VirtualNetwork != nil {
				linked = strings.ToLower(value(f.VirtualNetwork.ID))
			}
			return []pipeline.Aspect{
				{Name: "network", Wanted: strings.ToLower(vnet), Seen: linked},
				{Name: "registration of VMs", Wanted: "off", Seen: onOff(value(f.RegistrationEnabled)), Set: func(ctx context.Context) error {
					fixed := x.is
					fixed.Properties.RegistrationEnabled = new(false)
					return p.update(ctx, r, x.meta, fixed)
				}},
			}, nil
		},
	}
}

// recordsIn names the record sets of a zone that came there after it was made:
// deleting the zone would take them along. counted is how many there are by the
// zone's own count, which does not lag behind as the list does.
func (p *Provider) recordsIn(ctx context.Context, path string, counted int64) ([]string, error) {
	all, err := list[meta](ctx, p, path)
	var names []string
	for _, x := range all {
		typ := lastName(x.Type)
		if x.Name == "@" && (strings.EqualFold(typ, "SOA") || strings.EqualFold(typ, "NS")) {
			continue
		}
		names = append(names, typ+" record "+x.Name)
	}
	if len(names) == 0 && counted > 0 {
		names = append(names, fmt.Sprintf("%d record sets", counted))
	}
	return names, err
}

// RemoveDNSZones takes the job's zones away, if nobody has put records into them.
func (p *Provider) RemoveDNSZones(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	var parts []func(context.Context) error
	for _, z := range spec.DNSZones {
		parts = append(parts, func(ctx context.Context) error {
			if z.Visibility == job.ZonePublic {
				return r.Remove(ctx, p.publicZone(r, z.Name).resource())
			}
			if err := r.Remove(ctx, p.zoneLink(r, z.Name).resource()); err != nil {
				return err
			}
			return r.Remove(ctx, p.privateZone(r, z.Name).resource())
		})
	}
	return pipeline.All(ctx, parts...)
}
