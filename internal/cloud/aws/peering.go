package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const kindPeering = "ec2:vpc-peering-connection"

// The states of a peering ("VPC peering connection lifecycle").
const (
	peeringPending  = ec2types.VpcPeeringConnectionStateReasonCodePendingAcceptance
	peeringActive   = ec2types.VpcPeeringConnectionStateReasonCodeActive
	peeringFailed   = ec2types.VpcPeeringConnectionStateReasonCodeFailed
	peeringRejected = ec2types.VpcPeeringConnectionStateReasonCodeRejected
	peeringExpired  = ec2types.VpcPeeringConnectionStateReasonCodeExpired
	peeringDeleted  = ec2types.VpcPeeringConnectionStateReasonCodeDeleted
)

// EnsurePeerings makes the job's peerings, side by side, and lets the peers into
// the subnets that are guarded.
func (p *Provider) EnsurePeerings(ctx context.Context, r *pipeline.Run) error {
	ctx = lookup.With(ctx, r)
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	infos := make([]job.PeeringInfo, len(spec.Peerings))
	var parts []func(context.Context) error
	for i, asked := range spec.Peerings {
		parts = append(parts, func(ctx context.Context) (err error) {
			infos[i], err = p.ensurePeering(ctx, r, asked)
			return err
		})
	}
	err = pipeline.All(ctx, parts...)
	if r.Mode == pipeline.Apply && !slices.EqualFunc(infos, r.Job.Config.InfraConfig.Peerings, samePeering) {
		r.Job.Config.InfraConfig.Peerings = infos
		if serr := r.Save(ctx); serr != nil && err == nil {
			err = serr
		}
	}
	if aerr := p.admit(ctx, r, func(have []aclRule) []aclRule { return peerRules(&r.Job.Config.InfraConfig, have) }); err == nil {
		err = aerr
	}
	return err
}

func samePeering(a, b job.PeeringInfo) bool {
	return a.NetworkID == b.NetworkID && a.ID == b.ID && a.State == b.State && a.Waiting == b.Waiting && slices.Equal(a.CIDRs, b.CIDRs)
}

func (p *Provider) ensurePeering(ctx context.Context, r *pipeline.Run, asked job.Peering) (job.PeeringInfo, error) {
	info := job.PeeringInfo{NetworkID: asked.NetworkID}
	l, err := p.link(ctx, r, asked)
	if err != nil {
		return info, err
	}
	x := l.resource()
	id, err := r.Ensure(ctx, x)
	if r.Mode != pipeline.Apply {
		return info, err
	}
	info.ID = or(id, madeID(r, x.Kind, x.Key))
	if info.ID == "" {
		return info, err
	}
	if c, rerr := p.peeringKind().Get(ctx, info.ID); rerr == nil && c.Status != nil {
		info.State, info.CIDRs = string(c.Status.Code), l.peerRanges(c)
		if c.Status.Code == peeringPending {
			info.Waiting = l.waiting(info.ID)
		}
	}
	return info, err
}

// RemovePeerings removes the job's peerings, with the routes to them that it put
// into the peer's tables. The job's own tables go with the network.
func (p *Provider) RemovePeerings(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = lookup.With(ctx, r)
	spec, err := r.Job.NetworkJob()
	if err != nil {
		return err
	}
	var parts []func(context.Context) error
	asked := map[string]bool{}
	for _, one := range spec.Peerings {
		asked[peeringKey(one)] = true
		parts = append(parts, func(ctx context.Context) error { return p.removePeering(ctx, r, one) })
	}
	for _, o := range r.Objects() { // made before the request was changed
		if o.Kind == kindPeering && !asked[o.Key] {
			parts = append(parts, func(ctx context.Context) error {
				l := link{Provider: p, r: r, key: o.Key}
				return r.Remove(ctx, l.resource())
			})
		}
	}
	return pipeline.All(ctx, parts...)
}

func (p *Provider) removePeering(ctx context.Context, r *pipeline.Run, asked job.Peering) error {
	l, err := p.link(ctx, r, asked)
	if _, begun := r.Object(kindPeering, peeringKey(asked)); err != nil && !begun {
		// Nothing was ever sent for a peer that could not be told: the job failed
		// for it, and has to go all the same.
		r.Note("peering with %s was never begun: %v", asked.NetworkID, err)
		return nil
	}
	if err != nil {
		return err
	}
	x := l.resource()
	// Here too, since the other side may have deleted the peering and left the routes.
	if id := madeID(r, x.Kind, x.Key); id != "" {
		if err := l.unroute(ctx, id); err != nil {
			return err
		}
	}
	return r.Remove(ctx, x)
}

// peeringKey is a peering's place in the job.
func peeringKey(asked job.Peering) string {
	parts := []string{"peering-" + asked.NetworkID}
	for _, more := range []string{asked.CloudAccountID, asked.AccountID, asked.Region} {
		if more != "" {
			parts = append(parts, more)
		}
	}
	return strings.Join(parts, " ")
}

// A link is one peering that is asked for, and its other side. The job's network
// is always the requester.
type link struct {
	*Provider
	r     *pipeline.Run
	asked job.Peering
	key   string

	peer    *Provider // the other side; nil if its owner has to act
	far     context.Context
	vpc     ec2types.Vpc // the peer's network; zero without a peer, or if it is gone
	vpcID   string
	account string
	region  string
}

// link finds the other side of a peering.
func (p *Provider) link(ctx context.Context, r *pipeline.Run, asked job.Peering) (link, error) {
	const field = "config.spec.peerings"
	l := link{Provider: p, r: r, asked: asked, key: peeringKey(asked), vpcID: asked.NetworkID, account: asked.AccountID, region: or(asked.Region, p.region)}
	if r.Mode == pipeline.Plan {
		return l, nil
	}
	own, err := p.Caller(ctx)
	if err != nil {
		return l, err
	}
	if asked.CloudAccountID == "" && asked.AccountID != "" && asked.AccountID != own {
		if !strings.HasPrefix(asked.NetworkID, "vpc-") {
			return l, pipeline.Fatal("peer-not-named", fmt.Sprintf("%q is no VPC ID, and the names of VPCs of account %s cannot be looked up from here", asked.NetworkID, asked.AccountID), "Give the peer's VPC ID.").On(field)
		}
		return l, nil
	}
	l.peer = p
	if account := or(asked.CloudAccountID, r.Job.CloudAccountID); account != r.Job.CloudAccountID || l.region != p.region {
		if l.peer, err = p.elsewhere(ctx, account, l.region); err != nil {
			return l, pipeline.Fatal("peer-account", fmt.Sprintf("the other side of the %s cannot be opened: %v", asked, err), "Set up the cloud account "+account+", or leave cloudAccountId out and name accountId: its owner accepts then.").On(field)
		}
	}
	// A view of its own: the lists of two accounts must not be mixed up.
	l.far = lookup.For(ctx, r.Job.ID)
	account, err := l.peer.Caller(l.far)
	if err != nil {
		return l, err
	}
	if l.account != "" && l.account != account {
		return l, pipeline.Fatal("peer-account", fmt.Sprintf("the credentials of cloud account %s belong to AWS account %s, and the peering names %s", asked.CloudAccountID, account, l.account), "Put accountId right, or leave it out.").On(field)
	}
	l.account = account
	l.vpc, err = l.peer.namedVPC(l.far, asked.NetworkID)
	switch {
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) && (r.Down || r.Mode == pipeline.Verify):
		return l, nil
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid):
		return l, pipeline.Fatal("peer-not-found", fmt.Sprintf("there is no VPC %s in account %s in %s", asked.NetworkID, l.account, l.region), "Name a VPC that exists there.").On(field).From(err)
	case err != nil:
		return l, plain(err)
	}
	l.vpcID = aws.ToString(l.vpc.VpcId)
	return l, nil
}

func (p *Provider) peeringPage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.VpcPeeringConnection, *string, error) {
	out, err := p.ec2.DescribeVpcPeeringConnections(ctx, &ec2.DescribeVpcPeeringConnectionsInput{Filters: f, VpcPeeringConnectionIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.VpcPeeringConnections, out.NextToken, nil
}

func (p *Provider) peeringKind() lookup.Kind[ec2types.VpcPeeringConnection] {
	return ec2Kind(kindPeering, p.peeringPage,
		func(x ec2types.VpcPeeringConnection) *string { return x.VpcPeeringConnectionId },
		func(x ec2types.VpcPeeringConnection) []ec2types.Tag { return x.Tags })
}

// acceptance is how long a request can be accepted ("VPC peering connection
// lifecycle"), and a day.
const acceptance = 8 * 24 * time.Hour

// resource is the peering connection.
func (l link) resource() pipeline.Resource {
	o := object[ec2types.VpcPeeringConnection]{kind: l.peeringKind(), key: l.key, name: name(l.r, "peering", 128), see: l.see}
	x := o.resource()
	find := x.Find
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		all, err := find(ctx)
		// Those that came to nothing before are listed for hours.
		return slices.DeleteFunc(all, func(s pipeline.Seen) bool { return s.Status == pipeline.Broken }), err
	}
	x.Args = []string{l.r.Job.Config.InfraConfig.NetworkID, l.vpcID, l.account, l.region}
	x.Slow, x.Patience = true, acceptance
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) { return l.create(ctx, x) }
	x.Delete = func(ctx context.Context, id string) error {
		if err := l.unroute(ctx, id); err != nil {
			return err
		}
		_, err := l.ec2.DeleteVpcPeeringConnection(ctx, &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: aws.String(id)})
		return err
	}
	return tidy(x)
}

func (l link) create(ctx context.Context, x pipeline.Resource) (pipeline.Seen, error) {
	in := &ec2.CreateVpcPeeringConnectionInput{
		VpcId: aws.String(l.r.Job.Config.InfraConfig.NetworkID), PeerVpcId: aws.String(l.vpcID), PeerOwnerId: aws.String(l.account),
		TagSpecifications: ec2Specs(tags(l.r, x.Key, x.Name), ec2types.ResourceTypeVpcPeeringConnection),
	}
	if l.region != l.Provider.region {
		in.PeerRegion = aws.String(l.region)
	}
	out, err := l.ec2.CreateVpcPeeringConnection(ctx, in)
	if pipeline.Is(err, pipeline.Exists) {
		return pipeline.Seen{}, l.taken(ctx, err)
	}
	if err != nil || out.VpcPeeringConnection == nil {
		return pipeline.Seen{}, err
	}
	return pipeline.Seen{ID: aws.ToString(out.VpcPeeringConnection.VpcPeeringConnectionId), Status: pipeline.Pending}, nil
}

// taken says whose peering joins the two networks already.
func (l link) taken(ctx context.Context, exists error) error {
	for _, side := range [][2]string{{"requester", "accepter"}, {"accepter", "requester"}} {
		all, err := ec2Page[ec2types.VpcPeeringConnection](l.peeringPage).all(ctx,
			filter(side[0]+"-vpc-info.vpc-id", l.r.Job.Config.InfraConfig.NetworkID), filter(side[1]+"-vpc-info.vpc-id", l.vpcID))
		if err != nil {
			return exists
		}
		for _, c := range all {
			owner, _ := ec2Mark(c.Tags)
			if alive(c) && owner != l.r.Job.ID {
				return nameTaken(kindPeering, "between "+l.r.Job.Config.InfraConfig.NetworkID+" and "+l.vpcID, aws.ToString(c.VpcPeeringConnectionId)).From(exists)
			}
		}
	}
	return exists
}

// alive reports whether a peering is in force or on its way.
func alive(c ec2types.VpcPeeringConnection) bool {
	return c.Status != nil && !slices.Contains([]ec2types.VpcPeeringConnectionStateReasonCode{peeringFailed, peeringRejected, peeringExpired, peeringDeleted}, c.Status.Code)
}

// see is where a peering stands. One that came to nothing cannot be deleted, and
// is gone as soon as a person knows why.
func (l link) see(ctx context.Context, c ec2types.VpcPeeringConnection) (pipeline.Seen, error) {
	id := aws.ToString(c.VpcPeeringConnectionId)
	if c.Status == nil {
		return pipeline.Seen{Status: pipeline.Pending, Reason: "state not known"}, nil
	}
	s := pipeline.Seen{Status: pipeline.Pending, Reason: string(c.Status.Code)}
	switch code := c.Status.Code; code {
	case peeringActive:
		s.Status = pipeline.Ready
		if l.r.Down {
			return s, nil
		}
		var err error
		s.Aspects, err = l.aspects(ctx, c)
		return s, err
	case peeringPending:
		if l.r.Down {
			s.Status = pipeline.Ready
			return s, nil
		}
		return l.awaited(c, s)
	case peeringFailed, peeringRejected, peeringExpired:
		s.Status = pipeline.Broken
		s.Reason = l.reason(c)
		if rec, _ := l.r.Object(kindPeering, l.key); l.r.Down || rec.ID == id && (rec.Reason != "" || rec.State == job.ObjectRemoved) {
			s.Status = pipeline.Gone
		}
	case peeringDeleted:
		s.Status = pipeline.Gone
		s.Reason = or(aws.ToString(c.Status.Message), "deleted")
	}
	return s, nil
}

// reason is why a peering came to nothing, in words that say what to do.
func (l link) reason(c ec2types.VpcPeeringConnection) string {
	said := aws.ToString(c.Status.Message)
	switch c.Status.Code {
	case peeringExpired:
		return fmt.Sprintf("expired: nobody in account %s accepted it within seven days", l.account)
	case peeringRejected:
		return fmt.Sprintf("rejected by account %s (%s)", l.account, said)
	}
	return said
}

// awaited is a request that the other side has not accepted yet: by its
// credentials if they are here, or else by its owner, who is told how.
func (l link) awaited(c ec2types.VpcPeeringConnection, s pipeline.Seen) (pipeline.Seen, error) {
	id := aws.ToString(c.VpcPeeringConnectionId)
	if l.peer == nil {
		if l.r.Mode != pipeline.Apply {
			return s, nil
		}
		after := 15 * time.Second
		if since := l.r.WaitedFor("acceptance of " + id); since > 10*time.Minute {
			after = min(since/10, 5*time.Minute)
		}
		return s, pipeline.Wait(after, "%s", l.waiting(id))
	}
	s.Status = pipeline.Ready
	s.Aspects = []pipeline.Aspect{{Name: "accepted", Wanted: "yes", Seen: "no", Set: func(context.Context) error {
		_, err := l.peer.ec2.AcceptVpcPeeringConnection(l.far, &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: aws.String(id)})
		if err := pipeline.Unless(err, pipeline.NotFound); err != nil { // not to be seen there yet
			return err
		}
		lookup.Changed(l.far)
		return pipeline.Wait(3*time.Second, "%s to become active", id)
	}}}
	return s, nil
}

// waiting says who has to accept a request, and how.
func (l link) waiting(id string) string {
	return fmt.Sprintf("account %s to accept %s within seven days: aws ec2 accept-vpc-peering-connection --vpc-peering-connection-id %s --region %s; it also has to route %s through %s",
		l.account, id, id, l.region, strings.Join(l.ownRanges(), ", "), id)
}
