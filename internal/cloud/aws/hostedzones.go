package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const kindZone = "route53:hosted-zone"

// EnsureDNSZones makes the job's zones, and says of each public one whether the
// internet is sent to it.
func (p *Provider) EnsureDNSZones(ctx context.Context, r *pipeline.Run) error {
	ctx = lookup.With(ctx, r)
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
	err = pipeline.All(ctx, parts...)
	if r.Mode == pipeline.Apply {
		r.Job.Config.InfraConfig.DNSZones = infos
	}
	return err
}

func (p *Provider) ensureZone(ctx context.Context, r *pipeline.Run, z job.DNSZone) (job.DNSZoneInfo, error) {
	info := job.DNSZoneInfo{Name: z.Name, Visibility: z.Visibility}
	id, err := r.Ensure(ctx, p.hostedZoneResource(r, z))
	info.ID = id
	if err != nil || r.Mode != pipeline.Apply || z.Visibility != job.ZonePublic {
		return info, err
	}
	got, err := p.readZone(ctx, id)
	if err != nil {
		return info, pipeline.Unseen(plain(err), "zone "+z.Name)
	}
	if got.DelegationSet != nil {
		info.NameServers = got.DelegationSet.NameServers
	}
	info.Delegation = p.delegation(ctx, z.Name, info.NameServers)
	return info, nil
}

// RemoveDNSZones removes the job's zones. One that holds records which others
// made stays, and they are named.
func (p *Provider) RemoveDNSZones(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = lookup.With(ctx, r)
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	zones := spec.DNSZones
	for _, o := range r.Objects() { // made before the request was changed
		visibility, name, _ := strings.Cut(strings.TrimPrefix(o.Key, "zone-"), " ")
		z := job.DNSZone{Name: name, Visibility: visibility}
		if o.Kind == kindZone && !slices.Contains(zones, z) {
			zones = append(zones, z)
		}
	}
	var parts []func(context.Context) error
	for _, z := range zones {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.hostedZoneResource(r, z)) })
	}
	return pipeline.All(ctx, parts...)
}

func zoneKey(z job.DNSZone) string { return "zone-" + z.Visibility + " " + z.Name }

// Zones take no tags in the create, so that the mark rides in the caller
// reference, which every list shows and nobody can change.
const referencePrefix = "zopday "

func reference(owner, token string) string { return referencePrefix + owner + " " + token }

// zoneOwner is whose job a caller reference names; "" for somebody else's.
func zoneOwner(ref string) string {
	rest, ours := strings.CutPrefix(ref, referencePrefix)
	owner, _, ok := strings.Cut(rest, " ")
	if !ours || !ok {
		return ""
	}
	return owner
}

func (p *Provider) readZone(ctx context.Context, id string) (*route53.GetHostedZoneOutput, error) {
	return lookup.Once(ctx, kindZone+" "+id, func(ctx context.Context) (*route53.GetHostedZoneOutput, error) {
		out, err := p.r53.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: aws.String(id)})
		if err == nil && out.HostedZone == nil {
			err = absent("Route 53", "GetHostedZone", "zone "+id)
		}
		return out, err
	})
}

// hostedZoneResource is one zone of the job.
func (p *Provider) hostedZoneResource(r *pipeline.Run, z job.DNSZone) pipeline.Resource {
	vpc := r.Job.Config.InfraConfig.NetworkID
	private := z.Visibility == job.ZonePrivate
	x := pipeline.Resource{Kind: kindZone, Key: zoneKey(z), Name: z.Name}
	if private {
		x.Args = []string{z.Name, vpc}
	} else {
		x.Args = []string{z.Name}
	}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		got, err := p.readZone(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: id, Owner: zoneOwner(aws.ToString(got.HostedZone.CallerReference)), Status: pipeline.Ready}
		if r.Down {
			return s, nil
		}
		s.Aspects, err = p.zoneTags(ctx, r, x, id)
		if private {
			s.Aspects = append(s.Aspects, p.answeredIn(id, vpc, got.VPCs))
		}
		return s, err
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		all, err := p.zones(ctx)
		if err != nil {
			return nil, err
		}
		var found []pipeline.Seen
		for _, have := range all {
			owner := zoneOwner(have.reference)
			if have.name != domain(z.Name) || have.private != private || private && owner != r.Job.ID {
				continue // private zones of one name live side by side, in different networks
			}
			found = append(found, pipeline.Seen{ID: have.id, Owner: owner, Status: pipeline.Pending})
		}
		return found, nil
	}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		in := &route53.CreateHostedZoneInput{
			Name: aws.String(z.Name), CallerReference: aws.String(reference(r.Job.ID, token)),
			HostedZoneConfig: &r53types.HostedZoneConfig{Comment: aws.String("job " + r.Job.Name), PrivateZone: private},
		}
		if private {
			in.VPC = &r53types.VPC{VPCId: aws.String(vpc), VPCRegion: r53types.VPCRegion(p.region)}
		}
		out, err := p.r53.CreateHostedZone(ctx, in)
		if codeOf(err) == "ConflictingDomainExists" {
			return pipeline.Seen{}, nameTaken(kindZone, z.Name, "a private zone of that name in "+vpc).From(err)
		}
		if err != nil || out.HostedZone == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: strings.TrimPrefix(aws.ToString(out.HostedZone.Id), "/hostedzone/"), Status: pipeline.Pending}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.r53.DeleteHostedZone(ctx, &route53.DeleteHostedZoneInput{Id: aws.String(id)})
		return err
	}
	x.Blockers = func(ctx context.Context, id string) (string, error) { return p.zoneBlockers(ctx, id, z.Name) }
	return tidy(x)
}

// zoneTags wants the job's tags on a zone, ten of which go in a call.
func (p *Provider) zoneTags(ctx context.Context, r *pipeline.Run, x pipeline.Resource, id string) ([]pipeline.Aspect, error) {
	owner, err := lookup.Once(ctx, "tags of zone "+id, func(ctx context.Context) (string, error) {
		out, err := p.r53.ListTagsForResource(ctx, &route53.ListTagsForResourceInput{ResourceType: r53types.TagResourceTypeHostedzone, ResourceId: aws.String(id)})
		if lacking(err) {
			return r.Job.ID, nil // then nobody's tags are known
		}
		if err != nil || out.ResourceTagSet == nil {
			return "", err
		}
		for _, t := range out.ResourceTagSet.Tags {
			if aws.ToString(t.Key) == job.MarkOwner {
				return aws.ToString(t.Value), nil
			}
		}
		return "none", nil
	})
	return []pipeline.Aspect{{Name: "owner mark", Wanted: r.Job.ID, Seen: owner, Lane: "tags", Set: func(ctx context.Context) error {
		marks := tags(r, x.Key, x.Name)
		for some := range slices.Chunk(slices.Sorted(maps.Keys(marks)), 10) {
			in := &route53.ChangeTagsForResourceInput{ResourceType: r53types.TagResourceTypeHostedzone, ResourceId: aws.String(id)}
			for _, k := range some {
				in.AddTags = append(in.AddTags, r53types.Tag{Key: aws.String(k), Value: aws.String(marks[k])})
			}
			if _, err := p.r53.ChangeTagsForResource(ctx, in); err != nil {
				return err
			}
		}
		return nil
	}}}, pipeline.Unseen(err, "the tags of zone "+id)
}

// answeredIn wants a private zone to be answered in the network.
func (p *Provider) answeredIn(id, vpc string, in []r53types.VPC) pipeline.Aspect {
	a := pipeline.Aspect{Name: "answered in " + vpc, Wanted: "yes", Seen: "no", Lane: "networks"}
	for _, v := range in {
		if aws.ToString(v.VPCId) == vpc {
			a.Seen = "yes"
		}
	}
	a.Set = func(ctx context.Context) error {
		_, err := p.r53.AssociateVPCWithHostedZone(ctx, &route53.AssociateVPCWithHostedZoneInput{
			HostedZoneId: aws.String(id), VPC: &r53types.VPC{VPCId: aws.String(vpc), VPCRegion: r53types.VPCRegion(p.region)},
		})
		return err
	}
	return a
}

// zoneBlockers names the records that others have made in the job's zone. They
// are never deleted with it (failure kind L5).
func (p *Provider) zoneBlockers(ctx context.Context, id, zone string) (string, error) {
	out, err := p.r53.ListResourceRecordSets(ctx, &route53.ListResourceRecordSetsInput{HostedZoneId: aws.String(id), MaxItems: aws.Int32(100)})
	if err != nil {
		return "", pipeline.Unless(err, pipeline.NotFound)
	}
	var names []string
	for _, s := range out.ResourceRecordSets {
		name := domain(aws.ToString(s.Name))
		if name == domain(zone) && (s.Type == r53types.RRTypeNs || s.Type == r53types.RRTypeSoa) {
			continue
		}
		names = append(names, fmt.Sprintf("%s %s", name, s.Type))
	}
	if len(names) == 0 {
		return "", nil
	}
	const most = 10
	text := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most || out.IsTruncated {
		text += ", and more"
	}
	return "it holds records that this job did not make: " + text + "; remove them if nobody needs them, then retry", nil
}
