package gcp

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
)

// The files say what the lives of a family's jobs use at the simulated Google
// Cloud. A test writes them (go test -run TestPolicies -update) and fails when they
// are not what the lives use.
//
//go:embed policies/*.json
var policyFiles embed.FS

// policyFamilies are the families that have a policy.
var policyFamilies = []job.ResourceType{job.Cluster, job.Datastore, job.Cache, job.Network, job.VM}

type policyFile struct {
	Required []string `json:"required"`
	Checks   []string `json:"checks"`
}

// policyName is the file of a policy.
func policyName(family job.ResourceType, readOnly bool) string {
	if readOnly {
		return "policies/" + string(family) + "-read-only.json"
	}
	return "policies/" + string(family) + ".json"
}

// Policies are the least that jobs need, for each family one to work with and one
// to adopt, plan and verify with.
func Policies() []cloud.Policy {
	var all []cloud.Policy
	for _, family := range policyFamilies {
		for _, readOnly := range []bool{false, true} {
			if p, ok := PolicyOf(family, readOnly); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// PolicyOf is the policy of one family; false if it has none. Its document is a
// custom role as gcloud iam roles create --file takes it ("Create and manage custom
// roles"): all of its permissions, those that only checks ask for too.
func PolicyOf(family job.ResourceType, readOnly bool) (cloud.Policy, bool) {
	text, err := policyFiles.ReadFile(policyName(family, readOnly))
	if err != nil {
		return cloud.Policy{}, false
	}
	var f policyFile
	if err := json.Unmarshal(text, &f); err != nil {
		panic(fmt.Sprintf("%s: %v", policyName(family, readOnly), err)) // a file of our own
	}
	p := cloud.Policy{Family: family, ReadOnly: readOnly, Required: f.Required, Checks: f.Checks}
	p.Document = document(p)
	return p, true
}

// customRole is a role as IAM's API and gcloud take it. A role has 3,000
// permissions at most, and 64 KB of text ("Quotas and limits", IAM).
type customRole struct {
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Stage       string   `json:"stage"`
	Permissions []string `json:"includedPermissions"`
}

func document(p cloud.Policy) []byte {
	what, may := "jobs", "make, change and remove"
	if p.ReadOnly {
		what, may = "jobs (read-only)", "adopt, plan and verify"
	}
	role := customRole{
		Title:       "ZopDay " + string(p.Family) + " " + what,
		Description: fmt.Sprintf("What ZopDay needs to %s: %s", may, purposes[p.Family]),
		Stage:       "GA",
		Permissions: slices.Sorted(slices.Values(slices.Concat(p.Required, p.Checks))),
	}
	text, err := json.MarshalIndent(role, "", "  ")
	if err != nil {
		panic(err) // texts alone
	}
	return append(text, '\n')
}

// purposes say what a family's role is for. IAM takes 256 characters of description.
var purposes = map[job.ResourceType]string{
	job.Cluster:   "GKE clusters. What is inside a cluster is reached with roles/container.admin besides.",
	job.Datastore: "Cloud SQL instances, their databases and users.",
	job.Cache:     "Memorystore instances.",
	job.Network:   "VPC networks, peerings and DNS zones.",
	job.VM:        "VMs, managed groups and their load balancers.",
}
