package aws

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
)

// The files are IAM policies of what the lives of a family's jobs use at the
// simulated AWS. A test writes them (go test -run TestPolicies -update) and fails
// when they are not what the lives use.
//
//go:embed policies/*.json
var policyFiles embed.FS

// policyFamilies are the families that have a policy.
var policyFamilies = []job.ResourceType{job.Cluster, job.Datastore, job.Cache, job.Network, job.VM}

// maxPolicy is how many characters a managed policy may have, white space not
// counted (IAM User Guide, "IAM and AWS STS quotas, name requirements, and character
// limits"). A test holds every document to it.
const maxPolicy = 6144

// A policyDocument is an IAM policy with a statement for each list of actions.
type policyDocument struct {
	Version   string
	Statement []policyStatement
}

type policyStatement struct {
	Sid      string
	Effect   string
	Action   []string
	Resource string
}

// The statements of a document.
const (
	sidRequired = "Required"
	sidChecks   = "Checks"
)

func policyFile(family job.ResourceType, readOnly bool) string {
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

// PolicyOf is the policy of one family; false if it has none. Its document is an
// IAM policy of at most 6,144 characters without white space, as
// iam:CreatePolicy takes it. Statement Required holds what no job can do without,
// Checks what is said to be not checked without it.
func PolicyOf(family job.ResourceType, readOnly bool) (cloud.Policy, bool) {
	text, err := policyFiles.ReadFile(policyFile(family, readOnly))
	if err != nil {
		return cloud.Policy{}, false
	}
	p := cloud.Policy{Family: family, ReadOnly: readOnly, Document: text}
	var doc policyDocument
	if err := json.Unmarshal(text, &doc); err != nil {
		panic(fmt.Sprintf("%s: %v", policyFile(family, readOnly), err)) // a file of our own
	}
	for _, s := range doc.Statement {
		switch s.Sid {
		case sidRequired:
			p.Required = s.Action
		case sidChecks:
			p.Checks = s.Action
		}
	}
	return p, true
}

// documentOf is the IAM policy that allows two lists of actions. The objects that
// jobs make have names and IDs that nobody knows beforehand, so the resource is
// every one in the account.
func documentOf(required, checks []string) ([]byte, error) {
	doc := policyDocument{Version: "2012-10-17"}
	for _, s := range []policyStatement{{Sid: sidRequired, Action: required}, {Sid: sidChecks, Action: checks}} {
		if len(s.Action) > 0 {
			s.Effect, s.Resource = "Allow", "*"
			slices.Sort(s.Action)
			doc.Statement = append(doc.Statement, s)
		}
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}
