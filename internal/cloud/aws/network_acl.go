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

const (
	kindNetworkACL = "ec2:network-acl"

	aclKey = "network-acl-inner"
)

// guardInner gives the private and database subnets that the job makes a network
// ACL of their own. Public subnets keep the VPC's: load balancers and NAT gateways
// in them are there to be reached from the internet.
func (b *build) guardInner(ctx context.Context) error {
	subnets := slices.Concat(b.tier(job.TierPrivate), b.tier(job.TierDatabase))
	if len(subnets) == 0 {
		return nil
	}
	own := append([]string{b.plan.CIDR}, b.plan.SecondaryCIDRs...)
	if !b.own && b.r.Mode != pipeline.Plan {
		v, err := b.namedVPC(ctx, b.ic.NetworkID)
		if err := pipeline.Unless(plain(err), pipeline.NotFound, pipeline.Invalid); err != nil {
			return err
		}
		if err == nil {
			own = vpcRanges(v)
		}
	}
	b.acl = b.networkACL(b.r, b.ic.NetworkID, own, subnets)
	_, err := b.ensureExtra(ctx, b.r, b.acl)
	return err
}

func (p *Provider) networkACLPage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.NetworkAcl, *string, error) {
	out, err := p.ec2.DescribeNetworkAcls(ctx, &ec2.DescribeNetworkAclsInput{Filters: f, NetworkAclIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.NetworkAcls, out.NextToken, nil
}

func (p *Provider) networkACLs() lookup.Kind[ec2types.NetworkAcl] {
	return ec2Kind(kindNetworkACL, p.networkACLPage,
		func(x ec2types.NetworkAcl) *string { return x.NetworkAclId },
		func(x ec2types.NetworkAcl) []ec2types.Tag { return x.Tags })
}

// networkACL is the network ACL of some subnets, which lets in what innerRules
// says from the network's own ranges, its peers and a load balancer's clients.
// Rules that somebody else has added are left, and shown by a verify.
func (p *Provider) networkACL(r *pipeline.Run, vpcID string, own, subnetIDs []string) pipeline.Resource {
	o := object[ec2types.NetworkAcl]{kind: p.networkACLs(), key: aclKey, name: name(r, "inner", 128)}
	o.see = func(ctx context.Context, a ec2types.NetworkAcl) (pipeline.Seen, error) {
		s := pipeline.Seen{Status: pipeline.Ready}
		if len(subnetIDs) == 0 {
			return s, nil // it is on its way out
		}
		have := rulesOf(a)
		want := slices.Concat(innerRules(own, have), peerRules(&r.Job.Config.InfraConfig, have), attachedClients(r.Job))
		s.Aspects = p.aclRules(a, want)
		if r.Mode == pipeline.Verify {
			s.Aspects = append(s.Aspects, pipeline.Aspect{Name: "other rules", Wanted: "none", Seen: otherRules(want, have)})
		}
		guarded, err := p.guarded(ctx, r, a, vpcID, subnetIDs)
		s.Aspects = append(s.Aspects, guarded...)
		return s, err
	}
	x := o.resource()
	x.Args = []string{vpcID}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateNetworkAcl(ctx, &ec2.CreateNetworkAclInput{
			VpcId: aws.String(vpcID), ClientToken: aws.String(token),
			TagSpecifications: ec2Specs(tags(r, x.Key, x.Name), ec2types.ResourceTypeNetworkAcl),
		})
		if err != nil || out.NetworkAcl == nil {
			return pipeline.Seen{}, err
		}
		// What it lacks shows when it is read: more is asked for that, and what the
		// create has made must be recorded first.
		return pipeline.Seen{ID: aws.ToString(out.NetworkAcl.NetworkAclId), Status: pipeline.Pending}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.ec2.DeleteNetworkAcl(ctx, &ec2.DeleteNetworkAclInput{NetworkAclId: aws.String(id)})
		return err
	}
	x.Blockers = func(ctx context.Context, id string) (string, error) {
		a, err := o.kind.Get(ctx, id)
		if err != nil || len(a.Associations) == 0 {
			return "", pipeline.Unless(err, pipeline.NotFound)
		}
		var subnets []string
		for _, s := range a.Associations {
			subnets = append(subnets, aws.ToString(s.SubnetId))
		}
		return fmt.Sprintf("it still guards %s; give those subnets another network ACL, or delete them", strings.Join(subnets, ", ")), nil
	}
	return x
}

// aclRules wants rules in a network ACL, each set on its own.
func (p *Provider) aclRules(a ec2types.NetworkAcl, want []aclRule) []pipeline.Aspect {
	have := map[string]aclRule{}
	for _, x := range rulesOf(a) {
		have[x.at()] = x
	}
	var out []pipeline.Aspect
	for _, x := range want {
		old, there := have[x.at()]
		seen := "none"
		if there {
			seen = old.String()
		}
		out = append(out, pipeline.Aspect{Name: x.at(), Lane: x.at(), Wanted: x.String(), Seen: seen, Set: func(ctx context.Context) error {
			err := p.setRule(ctx, a.NetworkAclId, x, there)
			if pipeline.Is(err, pipeline.Exists) || there && pipeline.Is(err, pipeline.NotFound) {
				return pipeline.Wait(2*time.Second, "the rules of %s, which have just been changed", aws.ToString(a.NetworkAclId))
			}
			return err
		}})
	}
	return out
}

// setRule makes a rule, or another of the one that has its number.
func (p *Provider) setRule(ctx context.Context, acl *string, x aclRule, replace bool) error {
	action := ec2types.RuleActionDeny
	if x.allow {
		action = ec2types.RuleActionAllow
	}
	var ports *ec2types.PortRange
	var icmp *ec2types.IcmpTypeCode
	switch x.proto {
	case protoTCP, protoUDP:
		ports = &ec2types.PortRange{From: aws.Int32(x.from), To: aws.Int32(x.to)}
	case protoICMP:
		icmp = &ec2types.IcmpTypeCode{Type: aws.Int32(x.from), Code: aws.Int32(x.to)}
	}
	if replace {
		_, err := p.ec2.ReplaceNetworkAclEntry(ctx, &ec2.ReplaceNetworkAclEntryInput{
			NetworkAclId: acl, RuleNumber: aws.Int32(x.number), Egress: aws.Bool(x.egress), RuleAction: action,
			Protocol: aws.String(x.proto), PortRange: ports, IcmpTypeCode: icmp, CidrBlock: aws.String(x.cidr),
		})
		return err
	}
	_, err := p.ec2.CreateNetworkAclEntry(ctx, &ec2.CreateNetworkAclEntryInput{
		NetworkAclId: acl, RuleNumber: aws.Int32(x.number), Egress: aws.Bool(x.egress), RuleAction: action,
		Protocol: aws.String(x.proto), PortRange: ports, IcmpTypeCode: icmp, CidrBlock: aws.String(x.cidr),
	})
	return err
}

func otherRules(want, have []aclRule) string {
	var out []string
	for _, x := range have {
		if !slices.ContainsFunc(want, func(w aclRule) bool { return w.at() == x.at() }) {
			out = append(out, x.at()+": "+x.String())
		}
	}
	return or(strings.Join(out, ", "), "none")
}

// guarded wants subnets to use the network ACL. Every subnet has one at any time,
// first the VPC's own, so that its association is moved and never made.
func (p *Provider) guarded(ctx context.Context, r *pipeline.Run, a ec2types.NetworkAcl, vpcID string, subnetIDs []string) ([]pipeline.Aspect, error) {
	have := associations(a)
	all := have
	if r.Mode == pipeline.Apply && slices.ContainsFunc(subnetIDs, func(id string) bool { return have[id] == "" }) {
		acls, err := lookup.Once(ctx, "network ACLs of "+vpcID, func(ctx context.Context) ([]ec2types.NetworkAcl, error) {
			return ec2Page[ec2types.NetworkAcl](p.networkACLPage).all(ctx, filter("vpc-id", vpcID))
		})
		if err != nil {
			return nil, err
		}
		all = associations(acls...)
	}
	var out []pipeline.Aspect
	for _, id := range subnetIDs {
		out = append(out, pipeline.Aspect{Name: "guards " + id, Lane: id, Wanted: "yes", Seen: yesNo(have[id] != ""), Set: func(ctx context.Context) error {
			if all[id] == "" {
				return pipeline.Wait(2*time.Second, "the network ACL of %s to become visible", id)
			}
			_, err := p.ec2.ReplaceNetworkAclAssociation(ctx, &ec2.ReplaceNetworkAclAssociationInput{AssociationId: aws.String(all[id]), NetworkAclId: a.NetworkAclId})
			if pipeline.Is(err, pipeline.NotFound) {
				return pipeline.Wait(2*time.Second, "the network ACL of %s, which has just been changed", id)
			}
			return err
		}})
	}
	return out, nil
}

// associations are the IDs of network ACLs' associations, by subnet.
func associations(acls ...ec2types.NetworkAcl) map[string]string {
	out := map[string]string{}
	for _, a := range acls {
		for _, s := range a.Associations {
			out[aws.ToString(s.SubnetId)] = aws.ToString(s.NetworkAclAssociationId)
		}
	}
	return out
}

// admit adds rules to the job's network ACL, and reads them back. A job without
// one, such as one that builds in a network that exists, has nothing to add to.
func (p *Provider) admit(ctx context.Context, r *pipeline.Run, want func(have []aclRule) []aclRule) error {
	id := madeID(r, kindNetworkACL, aclKey)
	if r.Mode != pipeline.Apply || id == "" {
		return nil
	}
	differing := func() ([]pipeline.Aspect, error) {
		a, err := p.networkACLs().Get(ctx, id)
		if err != nil {
			return nil, visible(r, "the network ACL "+id, plain(err))
		}
		return slices.DeleteFunc(p.aclRules(a, want(rulesOf(a))), func(a pipeline.Aspect) bool { return a.Wanted == a.Seen }), nil
	}
	missing, err := differing()
	if err != nil || len(missing) == 0 {
		return err
	}
	var sets []func(context.Context) error
	for _, a := range missing {
		sets = append(sets, a.Set)
	}
	if err := pipeline.All(ctx, sets...); err != nil {
		return err
	}
	if missing, err = differing(); err != nil || len(missing) == 0 {
		return err
	}
	return unconfirmed(ctx, r, p.networkACL(r, "", nil, nil), missing[0])
}

// admitClients lets the clients of a load balancer in that is about to be made.
func (p *Provider) admitClients(ctx context.Context, r *pipeline.Run, lb job.LoadBalancer) error {
	rules := clientRules(lb)
	if len(rules) == 0 {
		return nil
	}
	return p.admit(ctx, r, func([]aclRule) []aclRule { return rules })
}

// shutClients takes the rules for clients back, after the load balancer went.
func (p *Provider) shutClients(ctx context.Context, r *pipeline.Run) error {
	id := madeID(r, kindNetworkACL, aclKey)
	if r.Mode != pipeline.Apply || id == "" {
		return nil
	}
	a, err := p.networkACLs().Get(ctx, id)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	for _, x := range rulesOf(a) {
		if x.egress || x.number != aclClients {
			continue
		}
		_, err := p.ec2.DeleteNetworkAclEntry(ctx, &ec2.DeleteNetworkAclEntryInput{NetworkAclId: a.NetworkAclId, RuleNumber: aws.Int32(x.number), Egress: aws.Bool(false)})
		if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
			return err
		}
	}
	return nil
}
