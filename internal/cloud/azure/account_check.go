package azure

import (
	"context"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var _ cloud.AccountChecker = (*Provider)(nil)

// CallerIdentity says who the credentials are, by their own token, and asks Resource
// Manager for the subscription ("Subscriptions - Get", "Subscriptions - List
// Locations"). The regions are left out where they may not be read.
func (p *Provider) CallerIdentity(ctx context.Context) (cloud.CallerIdentity, error) {
	me, err := p.whoami(ctx)
	if err != nil {
		return cloud.CallerIdentity{}, err
	}
	sub, err := p.readSubscription(ctx)
	if err != nil {
		return cloud.CallerIdentity{}, err
	}
	kind := "application"
	if me.kind != "ServicePrincipal" {
		kind = "user"
	}
	who := cloud.CallerIdentity{Principal: fmt.Sprintf("%s %s (object %s in directory %s)", kind, me.name, me.id, me.tenant), Holder: sub.SubscriptionID, Name: sub.DisplayName}
	all, err := list[location](ctx, p, managementPrefix+p.subscription+"/locations")
	if err := pipeline.Unless(err, pipeline.Denied); err != nil {
		return who, err
	}
	for _, l := range all {
		if l.Metadata.RegionType != "Logical" {
			who.Regions = append(who.Regions, l.Name)
		}
	}
	slices.Sort(who.Regions)
	return who, nil
}

// Permissions compares what the credentials may do in the whole subscription with
// the family's policy ("Permissions - List For Resource Group", at the subscription).
// Roles on a resource group alone, denials of policies and conditions do not show.
func (p *Provider) Permissions(ctx context.Context, family job.ResourceType, readOnly bool) (cloud.PermissionReport, error) {
	report := cloud.PermissionReport{Family: family}
	policy, ok := PolicyOf(family, readOnly)
	if !ok {
		report.Unknown = fmt.Sprintf("jobs of the family %s have no policy at Azure", family)
		return report, nil
	}
	grants, err := p.grants(ctx, managementPrefix+p.subscription)
	switch {
	case pipeline.Is(err, pipeline.Denied):
		report.Unknown = "the credentials may not read their own permissions: " + err.Error()
		return report, nil
	case err != nil:
		return report, err
	}
	report.Missing, report.Checks = lackingOf(grants, policy.Required), lackingOf(grants, policy.Checks)
	return report, nil
}

// grants are what the caller's roles at a scope and above give.
func (p *Provider) grants(ctx context.Context, scope string) ([]grant, error) {
	return list[grant](ctx, p, scope+"/providers/Microsoft.Authorization/permissions")
}

// lackingOf are those of the actions that no grant allows.
func lackingOf(grants []grant, actions []string) []string {
	var out []string
	for _, a := range actions {
		if !slices.ContainsFunc(grants, func(g grant) bool { return g.allows(a) }) {
			out = append(out, a)
		}
	}
	return out
}
