package azure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A rule of a security group, as it is compared: what a group has beyond its
// rules are the platform's own, which deny what comes from outside of the
// network and is not the load balancer's probe ("Network security groups":
// default security rules).
type groupRule struct {
	name        string
	priority    int32
	deny        bool
	outbound    bool
	protocol    armnetwork.SecurityRuleProtocol
	source      string
	destination string // "": anything
	ports       []string
	description string
}

// noRemoteAdmin is in every group: commands go through Run Command, and nothing
// has to reach SSH or RDP, not even from inside the network.
var noRemoteAdmin = groupRule{
	name: "deny-remote-admin", priority: 4000, deny: true, protocol: armnetwork.SecurityRuleProtocolTCP, source: "*", ports: []string{"22", "3389"},
	description: "No SSH and no RDP from anywhere: commands go through Run Command",
}

func (g groupRule) properties() *armnetwork.SecurityRulePropertiesFormat {
	access := armnetwork.SecurityRuleAccessAllow
	if g.deny {
		access = armnetwork.SecurityRuleAccessDeny
	}
	direction := armnetwork.SecurityRuleDirectionInbound
	if g.outbound {
		direction = armnetwork.SecurityRuleDirectionOutbound
	}
	f := &armnetwork.SecurityRulePropertiesFormat{
		Access: &access, Direction: &direction, Priority: &g.priority, Protocol: &g.protocol,
		Description: &g.description, SourceAddressPrefix: &g.source, SourcePortRange: new("*"), DestinationAddressPrefix: new(cmp.Or(g.destination, "*")),
	}
	if len(g.ports) == 1 {
		f.DestinationPortRange = &g.ports[0]
	} else {
		f.DestinationPortRanges = to.SliceOfPtrs(g.ports...)
	}
	return f
}

// ruleText is a rule in words that compare equal when it is the same.
func ruleText(f *armnetwork.SecurityRulePropertiesFormat) string {
	if f == nil {
		return "nothing"
	}
	where := ""
	if to := sorted(both(f.DestinationAddressPrefix, f.DestinationAddressPrefixes)); to != "*" {
		where = " of " + to
	}
	return strings.ToLower(fmt.Sprintf("%d %s %s %s from %s to port %s%s", value(f.Priority), value(f.Access), value(f.Direction), value(f.Protocol),
		sorted(both(f.SourceAddressPrefix, f.SourceAddressPrefixes)), sorted(both(f.DestinationPortRange, f.DestinationPortRanges)), where))
}

// both joins a field with its plural: Azure takes either.
func both(one *string, many []*string) []string {
	out := values(many)
	if one != nil && *one != "" {
		out = append(out, *one)
	}
	return out
}

// securityGroup is the group of one subnet.
func (p *Provider) securityGroup(r *pipeline.Run, s job.SubnetPlan) object[armnetwork.SecurityGroup] {
	return p.securityGroupNamed(r, "nsg-"+s.Key, append(append(clusterRules(r, s), datastoreRules(r, s)...), noRemoteAdmin)...)
}

func (p *Provider) securityGroupNamed(r *pipeline.Run, key string, rules ...groupRule) object[armnetwork.SecurityGroup] {
	id := p.idIn(r, typeGroupRules, r.Job.ResourceName(key, longestName))
	return object[armnetwork.SecurityGroup]{
		p: p, r: r, kind: kindNSG, key: key, id: id,
		body: func() any {
			f := &armnetwork.SecurityGroupPropertiesFormat{}
			for _, g := range rules {
				f.SecurityRules = append(f.SecurityRules, &armnetwork.SecurityRule{Name: &g.name, Properties: g.properties()})
			}
			return armnetwork.SecurityGroup{Location: &p.region, Tags: tagsFor(r.Job, key), Properties: f}
		},
		see: func(_ context.Context, x resource[armnetwork.SecurityGroup]) ([]pipeline.Aspect, error) {
			return p.ruleAspects(r, id, x.is, rules), nil
		},
		blockers: func(ctx context.Context, id string) ([]string, error) {
			x, err := read[armnetwork.SecurityGroup](ctx, p, id)
			if err != nil || x.is.Properties == nil {
				return nil, err
			}
			var names []string
			for _, s := range x.is.Properties.Subnets {
				names = append(names, describe("subnet", value(s.ID)))
			}
			for _, n := range x.is.Properties.NetworkInterfaces {
				names = append(names, describe("network interface", value(n.ID)))
			}
			return names, nil
		},
	}
}

// ruleAspects compares the rules that the job made one by one; what else there
// is in the group is shown by a verify and left alone by a run.
func (p *Provider) ruleAspects(r *pipeline.Run, id string, x armnetwork.SecurityGroup, rules []groupRule) []pipeline.Aspect {
	var aspects []pipeline.Aspect
	var there []*armnetwork.SecurityRule
	if x.Properties != nil {
		there = x.Properties.SecurityRules
	}
	for _, g := range rules {
		seen := "nothing"
		for _, have := range there {
			if same(value(have.Name), g.name) {
				seen = ruleText(have.Properties)
			}
		}
		aspects = append(aspects, pipeline.Aspect{Name: "rule " + g.name, Wanted: ruleText(g.properties()), Seen: seen, Set: func(ctx context.Context) error {
			if err := p.putRule(ctx, r, id, g); err != nil {
				return err
			}
			return changed(r, "rule "+g.name)
		}})
	}
	var others []string
	for _, have := range there {
		name := value(have.Name)
		known := slices.ContainsFunc(rules, func(g groupRule) bool { return same(g.name, name) }) || p.madeRule(r, id, name)
		if !known {
			others = append(others, name+": "+ruleText(have.Properties))
		}
	}
	if len(others) == 0 {
		others = []string{"none"}
	}
	return append(aspects, watched(r, pipeline.Aspect{Name: "other rules", Wanted: "none", Seen: strings.Join(others, "; ")})...)
}

// madeRule reports whether the job has made a rule in the group as an object of
// its own.
func (p *Provider) madeRule(r *pipeline.Run, groupID, name string) bool {
	return slices.ContainsFunc(r.Objects(), func(o job.Object) bool {
		return o.Kind == kindRule && o.State == job.ObjectCreated && same(o.ID, groupID+"/securityRules/"+name)
	})
}

func (p *Provider) putRule(ctx context.Context, r *pipeline.Run, groupID string, g groupRule) error {
	at := groupID + "/securityRules/" + g.name
	_, op, err := put[struct{}](ctx, p, at, armnetwork.SecurityRule{Name: &g.name, Properties: g.properties()}, nil)
	op.remember(r, at)
	return err
}

// inRule is one rule as an object of its own, in a group that the job made.
func (p *Provider) inRule(r *pipeline.Run, key, groupID string, g groupRule) object[armnetwork.SecurityRule] {
	return object[armnetwork.SecurityRule]{
		p: p, r: r, kind: kindRule, key: key, id: groupID + "/securityRules/" + g.name,
		body: func() any { return armnetwork.SecurityRule{Properties: g.properties()} },
		see: func(_ context.Context, x resource[armnetwork.SecurityRule]) ([]pipeline.Aspect, error) {
			return []pipeline.Aspect{{Name: "rule", Wanted: ruleText(g.properties()), Seen: ruleText(x.is.Properties), Set: func(ctx context.Context) error {
				if err := p.putRule(ctx, r, groupID, g); err != nil {
					return err
				}
				return changed(r, "rule "+g.name)
			}}}, nil
		},
		owner: func(ctx context.Context, _ resource[armnetwork.SecurityRule]) (string, error) {
			parent, err := read[armnetwork.SecurityGroup](ctx, p, groupID)
			return cmp.Or(parent.Tags[job.MarkOwner], pipeline.Unmarked), err
		},
	}
}
