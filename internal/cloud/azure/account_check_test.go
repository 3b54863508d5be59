package azure

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// Verifying an account says who it is and what its jobs would lack, as the cloud has it.
func TestAccountChecks(t *testing.T) {
	t.Parallel()
	g, _ := withAccounts(t, principalAccount("org_1"))
	if err := g.reopened(); err != nil {
		t.Fatal(err)
	}
	who, err := g.p.CallerIdentity(t.Context())
	if err != nil || who.Holder != simazure.DefaultSubscription || who.Name == "" || !strings.Contains(who.Principal, shopApp) || !strings.Contains(who.Principal, simazure.DefaultTenant) || !slices.Contains(who.Regions, "eastus2") || !slices.IsSorted(who.Regions) {
		t.Errorf("it is %+v, %v", who, err)
	}
	for _, family := range policyFamilies {
		for _, readOnly := range []bool{false, true} {
			p, _ := PolicyOf(family, readOnly)
			ask := func(what string, missing, checks []string, unknown bool, grants ...string) {
				t.Helper()
				g.world.SetGrants("azure", shopApp, grants)
				got, err := g.p.Permissions(t.Context(), family, readOnly)
				if err != nil || got.Family != family || !slices.Equal(got.Missing, missing) || !slices.Equal(got.Checks, checks) || (got.Unknown != "") != unknown {
					t.Errorf("%s, %s, read only %v: %+v, %v", what, family, readOnly, got, err)
				}
			}
			const list = "Microsoft.Authorization/permissions/read"
			all := slices.Concat(p.Required, p.Checks)
			ask("everything", nil, nil, false, "*")
			ask("the policy", nil, nil, false, append(slices.Clone(all), list)...)
			ask("without one", p.Required[:1], nil, false, append(slices.Clone(all[1:]), list)...)
			ask("nothing that can be asked", nil, nil, true, "Microsoft.Network/*")
			last := p.Checks[len(p.Checks)-1]
			if last != list {
				ask("without a check", nil, []string{last}, false, append(slices.Clone(all[:len(all)-1]), list)...)
			}
		}
	}
	if got, err := g.p.Permissions(t.Context(), job.Component, false); err != nil || got.Unknown == "" {
		t.Errorf("a family without a policy: %+v, %v", got, err)
	}
}

// Each policy is a role that Azure takes: sorted names of its own providers, each
// once, a read-only one of reads alone.
func TestPolicyDocuments(t *testing.T) {
	t.Parallel()
	all := Policies()
	if len(all) != 2*len(policyFamilies) {
		t.Fatalf("%d policies", len(all))
	}
	for _, p := range all {
		var role customRole
		if err := json.Unmarshal(p.Document, &role); err != nil {
			t.Fatal(err)
		}
		if len(p.Required) == 0 || len(role.Actions) != len(p.Required)+len(p.Checks) || !slices.IsSorted(role.Actions) || len(slices.Compact(slices.Clone(role.Actions))) != len(role.Actions) {
			t.Errorf("%s: %+v", p.Family, role)
		}
		if !role.IsCustom || role.Name == "" || len(role.Name) > 512 || len(role.Description) > 2048 || !slices.Equal(role.AssignableScopes, []string{"/subscriptions/{subscriptionId}"}) {
			t.Errorf("%s: %+v", p.Family, role)
		}
		for _, a := range role.Actions {
			if strings.Contains(a, "*") || p.ReadOnly && !strings.HasSuffix(a, "/read") && !slices.ContainsFunc(readByPost, func(known string) bool { return same(known, a) }) {
				t.Errorf("%s, read only %v: %s", p.Family, p.ReadOnly, a)
			}
		}
	}
}
