package azure

import (
	"context"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
)

// A grant is what a role gives at a scope ("Permissions").
type grant struct {
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions"`
}

// permissions asks what the credentials may do in the subscription, and compares
// it with what the steps do. Azure has no dry run; conditions and denials of
// policies show when they refuse.
func (c *checker) permissions(ctx context.Context) ([]cloud.Check, error) {
	const check = "permissions"
	if c.Provider.account.ReadOnly {
		return nil, nil // nothing that is asked for here could be sent
	}
	scope := managementPrefix + c.subscription
	if !ownsGroup(c.r.Job) {
		scope = c.groupID(groupOf(c.r.Job))
	}
	grants, err := c.grants(ctx, scope)
	if err != nil {
		return c.or(ctx, check, "", err)
	}
	if missing := lackingOf(grants, c.actions()); len(missing) > 0 {
		fix := "Give them a role with these actions, such as Contributor, there."
		if slices.Contains(missing, typeRole+"/write") {
			fix = "Give them roles with these actions there, such as Contributor with Role Based Access Control Administrator."
		}
		return []cloud.Check{fails(check, "cloudAccountId", "the credentials may not "+strings.Join(missing, ", "), fix)}, nil
	}
	return []cloud.Check{passes(check, "%d actions", len(c.actions()))}, nil
}

func (g grant) allows(action string) bool {
	covers := func(pattern string) bool { // a star between two slashes may stand for nothing
		pattern, action := strings.ToLower(pattern), strings.ToLower(action)
		return matches(pattern, action) || matches(strings.ReplaceAll(pattern, "/*/", "/"), action)
	}
	return slices.ContainsFunc(g.Actions, covers) && !slices.ContainsFunc(g.NotActions, covers)
}

// actions are what the steps of a job of its shape change, as roles name it: of
// what its family's policy asks for.
func (c *checker) actions() []string {
	types := []string{typeGroupRules, typePublicIP, typeNAT, typeVNet + "/subnets"}
	if c.r.Job.Mode == job.ModeCreate {
		types = append(types, typeVNet)
	}
	spec, err := c.r.Job.NetworkJob()
	if c.r.Job.ResourceType == job.Network && err == nil {
		if len(spec.Peerings) > 0 {
			types = append(types, typeVNet+"/virtualNetworkPeerings")
		}
		for _, z := range spec.DNSZones {
			if z.Visibility == job.ZonePublic {
				types = append(types, typeDNSZone)
			} else {
				types = append(types, typePrivateZone, typePrivateZone+"/virtualNetworkLinks")
			}
		}
	}
	if c.r.Job.ResourceType == job.VM {
		types = append(types, typeScaleSet, typeVM, typeIdentity, typeBalancer)
	}
	if c.r.Job.ResourceType == job.Datastore || c.r.Job.ResourceType == job.Cache {
		types = c.storeTypes()
	}
	if c.r.Job.ResourceType == job.Cluster {
		types = append(types, typeIdentity, typeWorkspace, typeDiagnostic, typeRole, typeCluster, typeCluster+"/agentPools", typeCluster+"/maintenanceConfigurations")
	}
	slices.Sort(types)
	var out []string
	for _, t := range slices.Compact(types) {
		out = append(out, t+"/write", t+"/delete")
	}
	if ownsGroup(c.r.Job) {
		out = append(out, "Microsoft.Resources/subscriptions/resourceGroups/write", "Microsoft.Resources/subscriptions/resourceGroups/delete")
	}
	if c.r.Job.ResourceType == job.VM {
		out = append(out, typeVM+"/runCommands/write", typeScaleSet+"/virtualMachines/runCommands/write")
	}
	if c.r.Job.ResourceType == job.Cluster {
		out = append(out, typeCluster+"/listClusterUserCredential/action", typeIdentity+"/assign/action")
	}
	policy, _ := PolicyOf(c.r.Job.ResourceType, false)
	return slices.DeleteFunc(out, func(a string) bool {
		return !slices.ContainsFunc(policy.Required, func(needed string) bool { return same(needed, a) })
	})
}
