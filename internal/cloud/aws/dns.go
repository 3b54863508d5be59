package aws

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindRecord = "route53:record"
	recordKey  = "alias"
)

// syncPatience is how long Route 53 may take to spread a change; it commonly
// takes a minute.
const syncPatience = 10 * time.Minute

// A place is where the job's record is: a zone and a full name.
type recordPlace struct{ zone, name string }

// id is the record's identity: records have none of their own, and no tags.
func (at recordPlace) id() string { return at.zone + "/" + at.name + "/A" }

// EnsureRecord makes the alias record that points to the load balancer, if the
// job names a zone.
func (p *Provider) EnsureRecord(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := lbSpec(r.Job)
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
	at, err := p.place(ctx, r, lb)
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
		return pipeline.Fatal("no-load-balancer", "the load balancer has no host name that a record could point to", "Retry; if this comes again, detach and attach the load balancer.")
	}
	if _, err := r.Ensure(ctx, p.record(r, at, false)); err != nil {
		return err
	}
	if err := p.awaitSync(ctx, r); err != nil {
		return err
	}
	return confirmOnce(ctx, r, p.record(r, at, false))
}

// RemoveRecord removes the record if it still points to the job's load
// balancer; one that somebody has pointed elsewhere is theirs.
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
	return r.Remove(ctx, p.record(r, at, true))
}

// place resolves the zone, if that was not done before, and the full name.
func (p *Provider) place(ctx context.Context, r *pipeline.Run, lb job.LoadBalancer) (recordPlace, error) {
	infra := r.Job.Config.InfraConfig
	if infra.DNSZoneID != "" && infra.DNSRecord != "" {
		return recordPlace{infra.DNSZoneID, infra.DNSRecord}, nil
	}
	if r.Mode == pipeline.Plan {
		return recordPlace{or(infra.DNSZoneID, "(zone)"), qualified(lb.DNS.Record, domain(lb.DNS.Zone))}, nil
	}
	z, err := p.hostedZone(ctx, *lb.DNS, lb.Scheme)
	return recordPlace{z.id, z.record}, err
}

// hostName is a load balancer's host name as it is compared: Route 53 puts
// "dualstack." before it.
func hostName(s string) string { return strings.TrimPrefix(domain(s), "dualstack.") }

// record is the job's alias record. Whether one is ours is told by what it
// points to: the host name of a load balancer holds the load balancer's name,
// and that holds a hash of the job.
func (p *Provider) record(r *pipeline.Run, at recordPlace, leaving bool) pipeline.Resource {
	infra := r.Job.Config.InfraConfig
	host := hostName(infra.LoadBalancerHost)
	lbName := name(r, lbKey, 32)
	ours := func(s r53types.ResourceRecordSet) bool {
		if s.Type != r53types.RRTypeA || s.AliasTarget == nil {
			return false
		}
		target := hostName(aws.ToString(s.AliasTarget.DNSName))
		return host != "" && target == host || strings.Contains(target, lbName+"-")
	}
	want := r53types.ResourceRecordSet{
		Name: aws.String(at.name), Type: r53types.RRTypeA,
		AliasTarget: &r53types.AliasTarget{DNSName: aws.String(infra.LoadBalancerHost), HostedZoneId: aws.String(infra.LoadBalancerZoneID), EvaluateTargetHealth: false},
	}
	x := pipeline.Resource{Kind: kindRecord, Key: recordKey, Name: at.name, Args: want, Tokened: true}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		all, err := p.recordsAt(ctx, at.zone, at.name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		i := slices.IndexFunc(all, func(s r53types.ResourceRecordSet) bool { return s.Type == r53types.RRTypeA })
		if i < 0 {
			return pipeline.Seen{}, absent("Route 53", "ListResourceRecordSets", "record "+at.name)
		}
		s := pipeline.Seen{ID: at.id(), Status: pipeline.Ready}
		switch {
		case leaving && !ours(all[i]):
			r.Note("the DNS record %s now points to %s and was left alone", at.name, recordText(all[i]))
			s.Status = pipeline.Gone
		case !leaving:
			a := pipeline.Aspect{Name: "alias", Wanted: host, Seen: recordText(all[i])}
			if ours(all[i]) {
				a.Set = func(ctx context.Context) error { return p.change(ctx, r, at.zone, r53types.ChangeActionUpsert, want) }
			}
			s.Aspects = []pipeline.Aspect{a}
		}
		return s, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		all, err := p.recordsAt(ctx, at.zone, at.name)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			switch {
			case ours(s):
				return []pipeline.Seen{{ID: at.id(), Owner: r.Job.ID, Status: pipeline.Pending}}, nil
			case s.Type == r53types.RRTypeA || s.Type == r53types.RRTypeCname:
				return []pipeline.Seen{{ID: string(s.Type) + " record with value " + recordText(s), Status: pipeline.Ready}}, nil
			}
		}
		return nil, nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		if err := p.change(ctx, r, at.zone, r53types.ChangeActionCreate, want); err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: at.id(), Owner: r.Job.ID, Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error { return p.deleteRecord(ctx, r, at, ours) }
	return tidy(x)
}

func recordText(s r53types.ResourceRecordSet) string {
	if s.AliasTarget != nil {
		return hostName(aws.ToString(s.AliasTarget.DNSName))
	}
	var values []string
	for _, v := range s.ResourceRecords {
		values = append(values, aws.ToString(v.Value))
	}
	return sortedList(values)
}

// change sends one change, and remembers it until it has spread.
func (p *Provider) change(ctx context.Context, r *pipeline.Run, zone string, action r53types.ChangeAction, set r53types.ResourceRecordSet) error {
	out, err := p.r53.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: aws.String(zone),
		ChangeBatch: &r53types.ChangeBatch{
			Comment: aws.String("job " + r.Job.ID),
			Changes: []r53types.Change{{Action: action, ResourceRecordSet: &set}},
		},
	})
	if err != nil {
		return err
	}
	if out.ChangeInfo != nil && out.ChangeInfo.Status == r53types.ChangeStatusPending {
		r.Remember("dns change", aws.ToString(out.ChangeInfo.Id))
	}
	return nil
}

// deleteRecord deletes exactly the record that was seen to be ours: Route 53
// refuses if it has changed since, and the next pass looks again.
func (p *Provider) deleteRecord(ctx context.Context, r *pipeline.Run, at recordPlace, ours func(r53types.ResourceRecordSet) bool) error {
	all, err := p.recordsAt(ctx, at.zone, at.name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, ours)
	if i < 0 {
		return absent("Route 53", "ListResourceRecordSets", "record "+at.name)
	}
	err = p.change(ctx, r, at.zone, r53types.ChangeActionDelete, all[i])
	var ce *pipeline.CloudError
	if errors.As(err, &ce) && ce.Code == "InvalidChangeBatch" && strings.Contains(ce.Message, "do not match") {
		return pipeline.Wait(2*time.Second, "record %s, which has just been changed by somebody", at.name)
	}
	return err
}

// awaitSync waits until all of Route 53's servers have the change.
func (p *Provider) awaitSync(ctx context.Context, r *pipeline.Run) error {
	id, _ := r.Recall("dns change").(string)
	if id == "" || r.Mode != pipeline.Apply {
		return nil
	}
	out, err := p.r53.GetChange(ctx, &route53.GetChangeInput{Id: aws.String(id)})
	if pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) {
		return nil // a cloud that does not keep its changes
	}
	if err != nil {
		return plain(err)
	}
	if out.ChangeInfo != nil && out.ChangeInfo.Status == r53types.ChangeStatusPending {
		if r.WaitedFor("dns change") < syncPatience {
			return pipeline.Wait(5*time.Second, "the DNS record to reach all of Route 53's servers")
		}
		r.Note("the DNS record was accepted, and Route 53 was still spreading it after %s", syncPatience)
	}
	r.Remember("dns change", nil)
	return nil
}
