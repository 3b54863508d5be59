package aws

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// IAMState is everything that IAM keeps, by account: IAM is a global service.
type IAMState struct {
	Accounts map[string]*IAMAccount
}

// IAMAccount is the IAM of one account. Roles and profiles are keyed by their names in lower case, since IAM names are
// unique without regard to case ("IAM and AWS STS quotas, name requirements, and character limits").
type IAMAccount struct {
	Roles    map[string]*IAMRole
	Profiles map[string]*IAMProfile
	Policies map[string]*IAMPolicy // customer managed ones, by ARN
	Users    map[string]*IAMUser
	// Providers are the OpenID Connect providers, by ARN.
	Providers map[string]*IAMOIDCProvider
}

// IAMRole is a role, its trust policy and its permissions.
type IAMRole struct {
	Name, Path, ID, ARN string
	Created             time.Time
	Trust               string
	TrustChanged        time.Time
	Description         string
	MaxSession          int32
	Boundary            string
	Tags                []Tag
	Attached            []IAMAttachment
	Inline              map[string]string
	Service             string // the service principal of a service-linked role
}

// IAMAttachment is a managed policy that was attached at a time.
type IAMAttachment struct {
	ARN string
	At  time.Time
}

// IAMProfile is an instance profile, which holds at most one role.
type IAMProfile struct {
	Name, Path, ID, ARN string
	Created             time.Time
	Role                string // key of the role
	RoleAt              time.Time
	Tags                []Tag
}

// IAMPolicy is a customer managed policy.
type IAMPolicy struct {
	Name, Path, ID, ARN, Description string
	Document                         string
	Created                          time.Time
	Tags                             []Tag
}

// IAMUser is a user, as far as the simulation needs one: an identity with tags.
type IAMUser struct {
	Name, Path, ID, ARN string
	Created             time.Time
	Tags                []Tag
	Attached            []IAMAttachment
	Inline              map[string]string
	Boundary            string
}

func newIAMAccount() *IAMAccount {
	return &IAMAccount{
		Roles: map[string]*IAMRole{}, Profiles: map[string]*IAMProfile{},
		Policies: map[string]*IAMPolicy{}, Users: map[string]*IAMUser{},
	}
}

func (st *IAMState) account(id string) *IAMAccount {
	a := st.Accounts[id]
	if a == nil {
		a = newIAMAccount()
		st.Accounts[id] = a
	}
	return a
}

// encodePolicy renders a policy document as the API answers it, URL-encoded after RFC 3986.
func encodePolicy(doc string) *string {
	s := strings.ReplaceAll(url.QueryEscape(doc), "+", "%20")
	return &s
}

// sdkRole renders what every answer shows of a role; callers add what only theirs shows.
func (r *IAMRole) sdkRole() types.Role {
	return types.Role{
		Path: &r.Path, RoleName: &r.Name, RoleId: &r.ID, Arn: &r.ARN, CreateDate: &r.Created,
		AssumeRolePolicyDocument: encodePolicy(r.Trust),
	}
}

// listedRole adds what ListRoles shows beyond the bare role: "IAM resource-listing operations return a subset of the
// available attributes" (ListRoles: neither tags nor the boundary nor the time of the last use).
func (r *IAMRole) listedRole() types.Role {
	out := r.sdkRole()
	out.MaxSessionDuration = &r.MaxSession
	if r.Description != "" {
		out.Description = &r.Description
	}
	return out
}

// fullRole is what GetRole shows.
func (r *IAMRole) fullRole() types.Role {
	out := r.listedRole()
	// The last use appears within hours only ("Refine permissions using last accessed information", IAM user guide).
	out.RoleLastUsed = &types.RoleLastUsed{}
	out.Tags = iamTags(r.Tags)
	out.PermissionsBoundary = boundaryOf(r.Boundary)
	return out
}

// boundaryOf renders a permissions boundary. Its type is "Policy" on the wire, whatever the API model says.
func boundaryOf(arn string) *types.AttachedPermissionsBoundary {
	if arn == "" {
		return nil
	}
	return &types.AttachedPermissionsBoundary{PermissionsBoundaryArn: &arn, PermissionsBoundaryType: "Policy"}
}

func (a *IAMAccount) sdkProfile(p *IAMProfile) types.InstanceProfile {
	out := types.InstanceProfile{
		Path: &p.Path, InstanceProfileName: &p.Name, InstanceProfileId: &p.ID, Arn: &p.ARN, CreateDate: &p.Created,
		Roles: []types.Role{},
	}
	if r := a.Roles[p.Role]; p.Role != "" && r != nil {
		out.Roles = append(out.Roles, r.sdkRole())
	}
	return out
}

// iamTags renders tags; an untagged entity shows no Tags element at all.
func iamTags(tags []Tag) []types.Tag {
	if len(tags) == 0 {
		return nil
	}
	return iamTagList(tags)
}

func iamTagList(tags []Tag) []types.Tag {
	out := make([]types.Tag, 0, len(tags))
	for _, t := range tags {
		out = append(out, types.Tag{Key: new(t.Key), Value: new(t.Value)})
	}
	return out
}

var (
	iamNamePattern = regexp.MustCompile(`^[\w+=,.@-]+$`)
	iamPathPattern = regexp.MustCompile(`^(/|/[\x21-\x7e]+/)$`)
	arnPattern     = regexp.MustCompile(`^arn:[^:\s]+:[^:\s]+:[^:\s]*:[^:\s]*:.+`)
)

// checkIAMName refuses a missing, too long or ill-formed name, in the words of the service.
func checkIAMName(field, value string, limit int) error {
	switch {
	case value == "":
		return failValidation("1 validation error detected: Value '' at '%s' failed to satisfy constraint: Member must have length greater than or equal to 1", field)
	case len(value) > limit:
		return failValidation("1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must have length less than or equal to %d", value, field, limit)
	case !iamNamePattern.MatchString(value):
		return failValidation("The specified value for %s is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_-", field)
	}
	return nil
}

func checkIAMPath(path string) error {
	if !iamPathPattern.MatchString(path) || len(path) > 512 {
		return failValidation("The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.")
	}
	return nil
}

// policyDoc is the part of a policy document that the simulation looks at.
type policyDoc struct {
	Version   string
	Statement statementList
}

type policyStatement struct {
	Effect    string
	Action    stringList
	Principal json.RawMessage
	Resource  json.RawMessage
	Condition map[string]map[string]stringList
}

// statementList reads one statement or a list of them.
type statementList []policyStatement

// UnmarshalJSON reads one statement or a list of them.
func (l *statementList) UnmarshalJSON(b []byte) error {
	var one policyStatement
	if err := json.Unmarshal(b, &one); err == nil {
		*l = statementList{one}
		return nil
	}
	var many []policyStatement
	if err := json.Unmarshal(b, &many); err != nil {
		return err
	}
	*l = many
	return nil
}

// stringList reads one string or a list of them.
type stringList []string

// UnmarshalJSON reads one string or a list of them.
func (l *stringList) UnmarshalJSON(b []byte) error {
	var one string
	if err := json.Unmarshal(b, &one); err == nil {
		*l = stringList{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(b, &many); err != nil {
		return err
	}
	*l = many
	return nil
}

func parsePolicy(doc string) (policyDoc, error) {
	var p policyDoc
	if !json.Valid([]byte(doc)) {
		return p, fail(400, "MalformedPolicyDocument", "This policy contains invalid Json")
	}
	if err := json.Unmarshal([]byte(doc), &p); err != nil || len(p.Statement) == 0 {
		return p, fail(400, "MalformedPolicyDocument", "Syntax errors in policy.")
	}
	for _, st := range p.Statement {
		if st.Effect != "Allow" && st.Effect != "Deny" {
			return p, fail(400, "MalformedPolicyDocument", "Syntax errors in policy.")
		}
	}
	return p, nil
}

// checkTrustPolicy refuses what is no trust policy.
func checkTrustPolicy(doc string) error {
	p, err := parsePolicy(doc)
	if err != nil {
		return err
	}
	for _, st := range p.Statement {
		switch {
		case len(st.Resource) > 0:
			return fail(400, "MalformedPolicyDocument", "Has prohibited field Resource")
		case len(st.Principal) == 0:
			return fail(400, "MalformedPolicyDocument", "Missing required field Principal")
		case len(st.Action) == 0:
			return fail(400, "MalformedPolicyDocument", "Missing required field Action")
		}
		for _, act := range st.Action {
			if !strings.HasPrefix(act, "sts:") && act != "*" {
				return fail(400, "MalformedPolicyDocument", "AssumeRole policy may only specify STS AssumeRole actions.")
			}
		}
	}
	return nil
}

// checkPermissionPolicy refuses what is no identity-based policy.
func checkPermissionPolicy(doc string) error {
	p, err := parsePolicy(doc)
	if err != nil {
		return err
	}
	for _, st := range p.Statement {
		switch {
		case len(st.Principal) > 0:
			return fail(400, "MalformedPolicyDocument", "Policy document should not specify a principal.")
		case len(st.Resource) == 0:
			return fail(400, "MalformedPolicyDocument", "Policy statement must contain resources.")
		case len(st.Action) == 0:
			return fail(400, "MalformedPolicyDocument", "Policy statement must contain actions.")
		}
	}
	return nil
}

// trusts says whether the trust policy lets the service of that name assume the role.
func (r *IAMRole) trusts(service, account string) bool {
	return r.trustsUnder(service, "", account, nil)
}

// trustsUnder says whether the trust policy lets a principal assume the role: the service of that name, or the AWS
// principal with that ARN (or its whole account). keys are the request's condition keys; nil: conditions are not
// looked at.
func (r *IAMRole) trustsUnder(service, principalARN, account string, keys map[string]string) bool {
	p, err := parsePolicy(r.Trust)
	if err != nil {
		return false
	}
	for _, st := range p.Statement {
		if st.Effect != "Allow" || keys != nil && !st.holds(keys) {
			continue
		}
		var any string
		if json.Unmarshal(st.Principal, &any) == nil && any == "*" {
			return true
		}
		var by map[string]stringList
		if json.Unmarshal(st.Principal, &by) != nil {
			continue
		}
		for _, s := range by["Service"] {
			if service != "" && s == service {
				return true
			}
		}
		for _, s := range by["AWS"] {
			if principalARN == "" {
				continue
			}
			if s == "*" || s == account || s == principalARN || s == fmt.Sprintf("arn:aws:iam::%s:root", account) {
				return true
			}
		}
	}
	return false
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
