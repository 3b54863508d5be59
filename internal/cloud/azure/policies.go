package azure

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
)

// policyFiles are the actions of each family, as the tests have found them by
// living its jobs' lives without one action after the other.
//
//go:embed policies/*.json
var policyFiles embed.FS

// policyFamilies are the families that have a policy, in the order of their names.
var policyFamilies = []job.ResourceType{job.Cache, job.Cluster, job.Datastore, job.Network, job.VM}

// A policyFile is what a file holds.
type policyFile struct {
	Required []string `json:"required"`
	Checks   []string `json:"checks"`
}

// policyName is the name of a family's file, without its ending.
func policyName(family job.ResourceType, readOnly bool) string {
	if readOnly {
		return string(family) + "-read-only"
	}
	return string(family)
}

// Policies are the least that jobs need in a subscription: for each family one
// that does everything, and one that adopts, plans and verifies. The document is
// a role definition as az role definition create takes it ("Azure custom roles"),
// with {subscriptionId} to be replaced. What is on data in a job's own vault or
// cluster is not in it: the job gives itself the role there, and takes it back.
func Policies() []cloud.Policy {
	var out []cloud.Policy
	for _, family := range policyFamilies {
		for _, readOnly := range []bool{false, true} {
			if p, ok := PolicyOf(family, readOnly); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

// PolicyOf is the policy of a family; false if it has none.
func PolicyOf(family job.ResourceType, readOnly bool) (cloud.Policy, bool) {
	text, err := policyFiles.ReadFile("policies/" + policyName(family, readOnly) + ".json")
	if err != nil {
		return cloud.Policy{}, false
	}
	var f policyFile
	if err := json.Unmarshal(text, &f); err != nil {
		panic(fmt.Sprintf("policy of %s: %v", family, err)) // a file of our own
	}
	return cloud.Policy{Family: family, ReadOnly: readOnly, Required: f.Required, Checks: f.Checks, Document: roleDefinition(family, readOnly, f)}, true
}

// A customRole is a role definition ("Azure custom roles": custom role properties).
type customRole struct {
	Name             string   `json:"Name"`
	IsCustom         bool     `json:"IsCustom"`
	Description      string   `json:"Description"`
	Actions          []string `json:"Actions"`
	NotActions       []string `json:"NotActions"`
	DataActions      []string `json:"DataActions"`
	NotDataActions   []string `json:"NotDataActions"`
	AssignableScopes []string `json:"AssignableScopes"`
}

func roleDefinition(family job.ResourceType, readOnly bool, f policyFile) []byte {
	name, what := "ZopDay "+string(family), "What jobs of the family "+string(family)+" do in the subscription."
	if readOnly {
		name, what = name+" read-only", "What adopting, planning and verifying jobs of the family "+string(family)+" read in the subscription."
	}
	if slices.Contains(f.Required, typeRole+"/write") {
		what += " It assigns roles: give it with a condition that names the roles and kinds of principals."
	}
	actions := slices.Concat(f.Required, f.Checks)
	slices.Sort(actions)
	doc, err := json.MarshalIndent(customRole{
		Name: name, IsCustom: true, Description: what, Actions: actions,
		NotActions: []string{}, DataActions: []string{}, NotDataActions: []string{}, AssignableScopes: []string{managementPrefix + "{subscriptionId}"},
	}, "", "  ")
	if err != nil {
		panic(err) // plain strings
	}
	return doc
}
