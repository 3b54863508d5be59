package aws

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/zopday/provisioner/internal/sim"
)

// The limits of IAM, as Service Quotas lists them.
const (
	quotaRoles       = "L-FE177D64"
	quotaProfiles    = "L-6E65F664"
	quotaAttachments = "L-0DA4ABF3"
	quotaProviders   = "L-858F3967"
)

// iamService is AWS Identity and Access Management.
type iamService struct {
	cloud *Cloud
	w     *sim.World
	state *IAMState
}

func newIAM(c *Cloud) *iamService {
	s := &iamService{cloud: c, w: c.World, state: &IAMState{}}
	for _, q := range []sim.Quota{
		{Code: quotaRoles, Name: "Roles per account", Default: 1000, Adjustable: true},
		{Code: quotaProfiles, Name: "Instance profiles per account", Default: 1000, Adjustable: true},
		{Code: quotaProviders, Name: "OpenId connect providers per account", Default: 100, Adjustable: true},
		{Code: quotaAttachments, Name: "Managed policies per role", Default: 10, Adjustable: true},
	} {
		q.Cloud, q.Service, q.Unit, q.Global = "aws", "iam", "None", true
		c.World.DefineQuota(q)
	}
	c.World.Register(s)
	c.hooks.instanceProfile = s.profileAtEC2
	c.hooks.identityOf = s.identityOf
	c.add(&api{
		service: "iam", protocol: queryProtocol, namespace: "https://iam.amazonaws.com/doc/2010-05-08/", version: "2010-05-08",
		ops: overQuery(s.operations(), "UpdateRole"), encode: encodeQuery(queryXML),
	})
	return s
}

// Cloud implements sim.Service.
func (s *iamService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *iamService) Name() string { return "iam" }

// State implements sim.Service.
func (s *iamService) State() any { return s.state }

// presentRoles are the service-linked roles of an account that has been in use: the services make them by themselves
// the first time, and never take them away.
var presentRoles = []string{"autoscaling.amazonaws.com", "elasticloadbalancing.amazonaws.com", "eks.amazonaws.com", "eks-nodegroup.amazonaws.com", "rds.amazonaws.com", "elasticache.amazonaws.com", "support.amazonaws.com", "trustedadvisor.amazonaws.com"}

var accountAge = time.Date(2019, 1, 19, 23, 27, 57, 0, time.UTC)

// Reset implements sim.Service.
func (s *iamService) Reset() {
	s.state.Accounts = map[string]*IAMAccount{}
	for _, id := range s.cloud.accounts() {
		for i, svc := range presentRoles {
			s.addServiceRole(id, svc, "", accountAge, fmt.Sprintf("AROASIMULATED%08d", i+1))
		}
	}
}

// Event implements sim.Service; nothing in IAM happens by itself.
func (s *iamService) Event(string, string) {}

// Objects implements sim.Service.
func (s *iamService) Objects() []sim.Object {
	var out []sim.Object
	for _, id := range sortedKeys(s.state.Accounts) {
		a := s.state.Accounts[id]
		for _, k := range sortedKeys(a.Roles) {
			r := a.Roles[k]
			out = append(out, sim.Object{Account: id, Kind: "role", ID: r.ARN, ARN: r.ARN, Name: r.Name, Tags: tagMap(r.Tags),
				Default: r.Service != "", Pristine: r.Service != "" && r.Created.Equal(accountAge), Data: r})
		}
		for _, k := range sortedKeys(a.Profiles) {
			p := a.Profiles[k]
			out = append(out, sim.Object{Account: id, Kind: "instance-profile", ID: p.ARN, ARN: p.ARN, Name: p.Name, Tags: tagMap(p.Tags), Data: p})
		}
		for _, k := range sortedKeys(a.Policies) {
			p := a.Policies[k]
			out = append(out, sim.Object{Account: id, Kind: "policy", ID: p.ARN, ARN: p.ARN, Name: p.Name, Tags: tagMap(p.Tags), Data: p})
		}
		for _, k := range sortedKeys(a.Providers) {
			p := a.Providers[k]
			out = append(out, sim.Object{Account: id, Kind: "oidc-provider", ID: p.ARN, ARN: p.ARN, Name: p.URL, Tags: tagMap(p.Tags), Data: p})
		}
		for _, k := range sortedKeys(a.Users) {
			u := a.Users[k]
			out = append(out, sim.Object{Account: id, Kind: "user", ID: u.ARN, ARN: u.ARN, Name: u.Name, Tags: tagMap(u.Tags), Data: u})
		}
	}
	return out
}

// SetState implements sim.Service; IAM entities have no states.
func (s *iamService) SetState(id, _, _, _ string) error {
	return fmt.Errorf("%s: an IAM entity has no state", id)
}

// Remove implements sim.Service.
func (s *iamService) Remove(id string) error {
	for _, a := range s.state.Accounts {
		for k, r := range a.Roles {
			if r.ARN == id {
				delete(a.Roles, k)
				for _, p := range a.Profiles {
					if p.Role == k {
						p.Role = ""
					}
				}
				return nil
			}
		}
		for k, p := range a.Profiles {
			if p.ARN == id {
				delete(a.Profiles, k)
				return nil
			}
		}
		if a.Policies[id] != nil {
			delete(a.Policies, id)
			return nil
		}
		if a.Providers[id] != nil {
			delete(a.Providers, id)
			return nil
		}
		for k, u := range a.Users {
			if u.ARN == id {
				delete(a.Users, k)
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such IAM entity", id)
}

// operations is the API of IAM.
func (s *iamService) operations() map[string]typedOp {
	ops := map[string]typedOp{
		"CreateRole": op(s.createRole), "GetRole": op(s.getRole), "ListRoles": op(s.listRoles), "UpdateRole": op(s.updateRole),
		"DeleteRole": op(s.deleteRole), "UpdateAssumeRolePolicy": op(s.updateAssumeRolePolicy),
		"TagRole": op(s.tagRole), "UntagRole": op(s.untagRole), "ListRoleTags": op(s.listRoleTags),
		"PutRolePermissionsBoundary": op(s.putRoleBoundary), "DeleteRolePermissionsBoundary": op(s.deleteRoleBoundary),
		"CreateServiceLinkedRole": op(s.createServiceLinkedRole), "DeleteServiceLinkedRole": op(s.deleteServiceLinkedRole),
		"GetServiceLinkedRoleDeletionStatus": op(s.serviceRoleDeletion),
		"CreateInstanceProfile":              op(s.createInstanceProfile), "GetInstanceProfile": op(s.getInstanceProfile),
		"DeleteInstanceProfile": op(s.deleteInstanceProfile), "ListInstanceProfiles": op(s.listInstanceProfiles),
		"ListInstanceProfilesForRole": op(s.listProfilesForRole), "AddRoleToInstanceProfile": op(s.addRoleToProfile),
		"RemoveRoleFromInstanceProfile": op(s.removeRoleFromProfile), "TagInstanceProfile": op(s.tagInstanceProfile),
		"UntagInstanceProfile": op(s.untagInstanceProfile), "ListInstanceProfileTags": op(s.listInstanceProfileTags),
		"AttachRolePolicy": op(s.attachRolePolicy), "DetachRolePolicy": op(s.detachRolePolicy),
		"ListAttachedRolePolicies": op(s.listAttachedRolePolicies), "PutRolePolicy": op(s.putRolePolicy),
		"GetRolePolicy": op(s.getRolePolicy), "DeleteRolePolicy": op(s.deleteRolePolicy), "ListRolePolicies": op(s.listRolePolicies),
		"CreatePolicy": op(s.createPolicy), "GetPolicy": op(s.getPolicy), "GetPolicyVersion": op(s.getPolicyVersion),
		"DeletePolicy": op(s.deletePolicy), "ListPolicies": op(s.listPolicies),
		"CreateUser": op(s.createUser), "GetUser": op(s.getUser), "DeleteUser": op(s.deleteUser), "ListUsers": op(s.listUsers),
		"TagUser": op(s.tagUser), "UntagUser": op(s.untagUser), "ListUserTags": op(s.listUserTags),
		"AttachUserPolicy": op(s.attachUserPolicy), "DetachUserPolicy": op(s.detachUserPolicy),
		"ListAttachedUserPolicies": op(s.listAttachedUserPolicies), "ListAccountAliases": op(s.listAccountAliases),
		"PutUserPermissionsBoundary": op(s.putUserBoundary), "DeleteUserPermissionsBoundary": op(s.deleteUserBoundary),
		"PutUserPolicy": op(s.putUserPolicy), "GetUserPolicy": op(s.getUserPolicy), "DeleteUserPolicy": op(s.deleteUserPolicy),
		"ListUserPolicies": op(s.listUserPolicies), "ListPolicyVersions": op(s.listPolicyVersions), "ListEntitiesForPolicy": op(s.listEntitiesForPolicy),
		"SimulatePrincipalPolicy": op(s.simulatePrincipal),
	}
	maps.Copy(ops, s.providerOperations())
	return ops
}

func (s *iamService) listAccountAliases(*reqCtx, *iam.ListAccountAliasesInput) (*iam.ListAccountAliasesOutput, error) {
	return &iam.ListAccountAliasesOutput{AccountAliases: []string{}}, nil
}

// checkQuota refuses one more of what there are have already.
func (s *iamService) checkQuota(c *reqCtx, code string, have int, name string) error {
	limit, ok := c.w.QuotaValue("aws", "iam", code, c.account, c.region)
	if ok && float64(have) >= limit {
		return fail(409, "LimitExceeded", "Cannot exceed quota for %s: %d", name, int(limit))
	}
	return nil
}

// iamPage cuts a page. The default and greatest size is 100 and 1000 items ("ListRoles", IAM API reference).
func iamPage[T any](c *reqCtx, all []T, marker *string, maxItems *int32) ([]T, *string, error) {
	limit := int(orDefault(maxItems, 100))
	if limit < 1 || limit > 1000 {
		return nil, nil, failValidation("1 validation error detected: Value '%d' at 'maxItems' failed to satisfy constraint: Member must have value less than or equal to 1000", limit)
	}
	page, next, err := pageOf(c, all, marker, limit)
	if err != nil {
		return nil, nil, failValidation("Invalid Marker.")
	}
	return page, next, nil
}

var iamTagPattern = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)

// checkIAMTags merges added tags into those there are, after the rules of IAM ("Rules for tagging in IAM and AWS STS").
func checkIAMTags(have []Tag, added []types.Tag) ([]Tag, error) {
	seen := map[string]bool{}
	out := append([]Tag{}, have...)
	for i, t := range added {
		key, value := deref(t.Key), deref(t.Value)
		switch {
		case key == "":
			return nil, failValidation("1 validation error detected: Value '' at 'tags.%d.member.key' failed to satisfy constraint: Member must have length greater than or equal to 1", i+1)
		case len([]rune(key)) > 128:
			return nil, failValidation("1 validation error detected: Value '%s' at 'tags.%d.member.key' failed to satisfy constraint: Member must have length less than or equal to 128", key, i+1)
		case len([]rune(value)) > 256:
			return nil, failValidation("1 validation error detected: Value '%s' at 'tags.%d.member.value' failed to satisfy constraint: Member must have length less than or equal to 256", value, i+1)
		case !iamTagPattern.MatchString(key):
			return nil, failValidation(`1 validation error detected: Value '%s' at 'tags.%d.member.key' failed to satisfy constraint: Member must satisfy regular expression pattern: [\p{L}\p{Z}\p{N}_.:/=+\-@]+`, key, i+1)
		case !iamTagPattern.MatchString(value):
			return nil, failValidation(`1 validation error detected: Value '%s' at 'tags.%d.member.value' failed to satisfy constraint: Member must satisfy regular expression pattern: [\p{L}\p{Z}\p{N}_.:/=+\-@]*`, value, i+1)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return nil, fail(400, "InvalidInput", "Tag keys that start with 'aws:' are reserved for system use.")
		case seen[strings.ToLower(key)]:
			return nil, fail(400, "InvalidInput", "Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		}
		seen[strings.ToLower(key)] = true
		// Tag keys are case-insensitive in IAM: a key in another case replaces the old one.
		for j := range out {
			if out[j].Key != key && strings.EqualFold(out[j].Key, key) {
				out[j].Key = key
			}
		}
		out = setTag(out, key, value)
	}
	if len(out) > maxIAMTags {
		return nil, fail(409, "LimitExceeded", "The number of tags has reached the maximum limit.")
	}
	return out, nil
}

// propagation is how long a change to IAM takes to reach the other services: some seconds, the same in every run with
// the same seed. "IAM eventual consistency" has no bound; users saw 2.5 minutes
// (https://github.com/hashicorp/terraform-provider-aws/issues/27516), so faults can make it longer.
func (s *iamService) propagation(id string) time.Duration {
	d := s.w.Options().ConsistencyByList
	if d < 0 {
		return 0
	}
	if d == 0 {
		d = 4 * time.Second
	}
	return time.Duration((1 + 1.5*s.w.Fraction("iam", id)) * float64(d))
}

// profileAtEC2 finds an instance profile by name or ARN as EC2 sees it: not while it is fresh, or hidden by a fault from
// the operation ResolveInstanceProfile of this service. A role and its policies
// that have not reached EC2 yet are missing from the answer; without them the agent on the instance cannot register.
func (s *iamService) profileAtEC2(account, ref string) (InstanceProfile, bool) {
	a := s.state.Accounts[account]
	if a == nil {
		return InstanceProfile{}, false
	}
	call := &sim.Call{Cloud: "aws", Service: "iam", Operation: "ResolveInstanceProfile", Account: account}
	for _, p := range a.Profiles {
		if p.ARN != ref && !strings.EqualFold(p.Name, ref) {
			continue
		}
		if s.w.Now().Sub(p.Created) < s.propagation(p.ARN) || !s.w.Visible(call, p.ARN, p.Created, sim.ByList, p.Name+" "+tagValues(p.Tags)) {
			return InstanceProfile{}, false
		}
		out := InstanceProfile{ARN: p.ARN, ID: p.ID, Name: p.Name}
		if r := a.Roles[p.Role]; r != nil && s.w.Now().Sub(p.RoleAt) >= s.propagation(p.ARN+r.ARN)/2 {
			out.RoleARN, out.Policies = r.ARN, s.effectivePolicies(r, account)
		}
		return out, true
	}
	return InstanceProfile{}, false
}

// assumableBy says whether a service may assume a role: not while the role is fresh.
func (s *iamService) assumableBy(account, roleARN, service string) bool {
	a := s.state.Accounts[account]
	if a == nil {
		return false
	}
	call := &sim.Call{Cloud: "aws", Service: "iam", Operation: "AssumeRoleByService", Account: account}
	for _, r := range a.Roles {
		if r.ARN == roleARN {
			fresh := s.w.Now().Sub(r.Created) < s.propagation(r.ARN) || !s.w.Visible(call, r.ARN, r.Created, sim.ByList, "role "+r.Name+" "+tagValues(r.Tags))
			return !fresh && r.trusts(service, account)
		}
	}
	return false
}

// effectivePolicies are the managed policies that a role gives to instances: none if EC2 may not assume it.
func (s *iamService) effectivePolicies(r *IAMRole, account string) []string {
	if !r.trusts("ec2.amazonaws.com", account) {
		return nil
	}
	var out []string
	for _, at := range r.Attached {
		if s.w.Now().Sub(at.At) >= s.propagation(r.ARN+at.ARN)/2 {
			out = append(out, at.ARN)
		}
	}
	return out
}

// identityOf names the holder of a long-lived access key: a user, since the keys of this world are those of users.
func (s *iamService) identityOf(account, accessKey string) (Identity, bool) {
	return Identity{Account: account, AccessKey: accessKey, ARN: arn("iam", "", account, "user/operator"), UserID: fixedID(s.w, "AIDA", "user", account, accessKey)}, true
}

// fixedID makes an ID as uniqueID does, but always the same one for the same parts.
func fixedID(w *sim.World, prefix string, parts ...string) string {
	id := []byte(prefix)
	for i := range 17 {
		id = append(id, idLetters[int(w.Fraction(append(parts, strconv.Itoa(i))...)*float64(len(idLetters)))])
	}
	return string(id)
}
