package aws

import (
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

const (
	maxRoleName    = 64
	maxProfileName = 128
	maxIAMTags     = 50
)

func noSuchRole(name string) error {
	return fail(404, "NoSuchEntity", "The role with name %s cannot be found.", name)
}

// role finds a role by name. A role that was made a moment ago may not be visible yet: IAM is eventually consistent
// ("Changes that I make are not always immediately visible", IAM user guide).
func (s *iamService) role(c *reqCtx, name *string) (*IAMRole, error) {
	if name == nil {
		return nil, failMissing("roleName")
	}
	r := s.state.account(c.account).Roles[strings.ToLower(*name)]
	if r == nil || !c.visible(r.ARN, r.Created, false, "role", r.Name, tagValues(r.Tags)) {
		return nil, noSuchRole(*name)
	}
	return r, nil
}

// changeable refuses changes to roles that belong to a service.
func (r *IAMRole) changeable() error {
	if r.Service == "" {
		return nil
	}
	return fail(400, "UnmodifiableEntity", "Cannot perform the operation on the protected role '%s' - this role is only modifiable by AWS", r.Name)
}

func (s *iamService) createRole(c *reqCtx, in *iam.CreateRoleInput) (*iam.CreateRoleOutput, error) {
	if err := checkIAMName("roleName", deref(in.RoleName), maxRoleName); err != nil {
		return nil, err
	}
	path := orDefault(in.Path, "/")
	if err := checkIAMPath(path); err != nil {
		return nil, err
	}
	session := orDefault(in.MaxSessionDuration, 3600)
	if session < 3600 || session > 43200 {
		return nil, failValidation("1 validation error detected: Value '%d' at 'maxSessionDuration' failed to satisfy constraint: Member must have value between 3600 and 43200, inclusive.", session)
	}
	tags, err := checkIAMTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	if len(deref(in.Description)) > 1000 {
		return nil, failValidation("1 validation error detected: Value at 'description' failed to satisfy constraint: Member must have length less than or equal to 1000")
	}
	if err := checkTrustPolicy(deref(in.AssumeRolePolicyDocument)); err != nil {
		return nil, err
	}
	if in.PermissionsBoundary != nil {
		if err := s.checkBoundary(c, in.PermissionsBoundary); err != nil {
			return nil, err
		}
	}
	a, key := s.state.account(c.account), strings.ToLower(*in.RoleName)
	if a.Roles[key] != nil {
		return nil, fail(409, "EntityAlreadyExists", "Role with name %s already exists.", *in.RoleName)
	}
	if err := s.checkQuota(c, quotaRoles, len(a.Roles), "RolesPerAccount"); err != nil {
		return nil, err
	}
	r := &IAMRole{
		Name: *in.RoleName, Path: path, ID: c.uniqueID("AROA"), ARN: c.iamARN("role" + path + *in.RoleName),
		Created: c.second(), Trust: *in.AssumeRolePolicyDocument, TrustChanged: c.now, Description: deref(in.Description),
		MaxSession: session, Boundary: deref(in.PermissionsBoundary), Tags: tags, Attached: []IAMAttachment{}, Inline: map[string]string{},
	}
	a.Roles[key] = r
	out := r.sdkRole()
	out.Tags, out.PermissionsBoundary = iamTags(r.Tags), boundaryOf(r.Boundary)
	return &iam.CreateRoleOutput{Role: &out}, nil
}

func (s *iamService) getRole(c *reqCtx, in *iam.GetRoleInput) (*iam.GetRoleOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	out := r.fullRole()
	return &iam.GetRoleOutput{Role: &out}, nil
}

func (s *iamService) listRoles(c *reqCtx, in *iam.ListRolesInput) (*iam.ListRolesOutput, error) {
	a, prefix := s.state.account(c.account), orDefault(in.PathPrefix, "/")
	all := []types.Role{}
	for _, k := range sortedKeys(a.Roles) {
		if r := a.Roles[k]; strings.HasPrefix(r.Path, prefix) && c.visible(r.ARN, r.Created, true, "role", r.Name, tagValues(r.Tags)) {
			all = append(all, r.listedRole())
		}
	}
	page, marker, err := iamPage(c, all, in.Marker, in.MaxItems)
	return &iam.ListRolesOutput{Roles: page, IsTruncated: marker != nil, Marker: marker}, err
}

func (s *iamService) updateRole(c *reqCtx, in *iam.UpdateRoleInput) (*iam.UpdateRoleOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if err := r.changeable(); err != nil {
		return nil, err
	}
	if in.Description != nil {
		r.Description = *in.Description
	}
	if in.MaxSessionDuration != nil {
		r.MaxSession = *in.MaxSessionDuration
	}
	return &iam.UpdateRoleOutput{}, nil
}

func (s *iamService) updateAssumeRolePolicy(c *reqCtx, in *iam.UpdateAssumeRolePolicyInput) (*iam.UpdateAssumeRolePolicyOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if err := r.changeable(); err != nil {
		return nil, err
	}
	if err := checkTrustPolicy(deref(in.PolicyDocument)); err != nil {
		return nil, err
	}
	r.Trust, r.TrustChanged = *in.PolicyDocument, c.now
	return &iam.UpdateAssumeRolePolicyOutput{}, nil
}

func (s *iamService) deleteRole(c *reqCtx, in *iam.DeleteRoleInput) (*iam.DeleteRoleOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if err := r.changeable(); err != nil {
		return nil, err
	}
	a, key := s.state.account(c.account), strings.ToLower(r.Name)
	for _, p := range a.Profiles {
		if p.Role == key {
			return nil, fail(409, "DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
		}
	}
	if len(r.Attached) > 0 {
		return nil, fail(409, "DeleteConflict", "Cannot delete entity, must detach all policies first.")
	}
	if len(r.Inline) > 0 {
		return nil, fail(409, "DeleteConflict", "Cannot delete entity, must delete policies first.")
	}
	delete(a.Roles, key)
	return &iam.DeleteRoleOutput{}, nil
}

func (s *iamService) tagRole(c *reqCtx, in *iam.TagRoleInput) (*iam.TagRoleOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if r.Tags, err = checkIAMTags(r.Tags, in.Tags); err != nil {
		return nil, err
	}
	return &iam.TagRoleOutput{}, nil
}

func (s *iamService) untagRole(c *reqCtx, in *iam.UntagRoleInput) (*iam.UntagRoleOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	r.Tags = dropTags(r.Tags, in.TagKeys)
	return &iam.UntagRoleOutput{}, nil
}

func (s *iamService) listRoleTags(c *reqCtx, in *iam.ListRoleTagsInput) (*iam.ListRoleTagsOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	page, marker, err := iamPage(c, iamTagList(r.Tags), in.Marker, in.MaxItems)
	return &iam.ListRoleTagsOutput{Tags: page, IsTruncated: marker != nil, Marker: marker}, err
}

// checkBoundary refuses a permissions boundary that does not exist.
func (s *iamService) checkBoundary(c *reqCtx, arn *string) error {
	if err := checkPolicyARN(arn); err != nil {
		return err
	}
	if s.policy(c, *arn) == nil {
		return fail(404, "NoSuchEntity", "Scope ARN: %s does not exist or is not attachable.", *arn)
	}
	return nil
}

// putRoleBoundary and deleteRoleBoundary set and clear a permissions boundary.
func (s *iamService) putRoleBoundary(c *reqCtx, in *iam.PutRolePermissionsBoundaryInput) (*iam.PutRolePermissionsBoundaryOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if err := s.checkBoundary(c, in.PermissionsBoundary); err != nil {
		return nil, err
	}
	r.Boundary = *in.PermissionsBoundary
	return &iam.PutRolePermissionsBoundaryOutput{}, nil
}

func (s *iamService) deleteRoleBoundary(c *reqCtx, in *iam.DeleteRolePermissionsBoundaryInput) (*iam.DeleteRolePermissionsBoundaryOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	r.Boundary = ""
	return &iam.DeleteRolePermissionsBoundaryOutput{}, nil
}

func (s *iamService) createServiceLinkedRole(c *reqCtx, in *iam.CreateServiceLinkedRoleInput) (*iam.CreateServiceLinkedRoleOutput, error) {
	service, suffix := deref(in.AWSServiceName), deref(in.CustomSuffix)
	def, ok := serviceRoles[service]
	if !ok {
		return nil, fail(400, "InvalidInput", "Service name %s is not valid for a service-linked role.", service)
	}
	if suffix != "" && !def.suffix {
		return nil, fail(400, "InvalidInput", "Custom suffix is not allowed for %s", service)
	}
	name := def.name
	if suffix != "" {
		name += "_" + suffix
	}
	a := s.state.account(c.account)
	if a.Roles[strings.ToLower(name)] != nil {
		return nil, fail(400, "InvalidInput", "Service role name %s has been taken in this account, please try a different suffix.", name)
	}
	r := s.addServiceRole(c.account, service, suffix, c.second(), c.uniqueID("AROA"))
	if in.Description != nil {
		r.Description = *in.Description
	}
	out := r.sdkRole()
	return &iam.CreateServiceLinkedRoleOutput{Role: &out}, nil
}

func (s *iamService) addServiceRole(account, service, suffix string, at time.Time, id string) *IAMRole {
	def := serviceRoles[service]
	name := def.name
	if suffix != "" {
		name += "_" + suffix
	}
	path := "/aws-service-role/" + service + "/"
	r := &IAMRole{
		Name: name, Path: path, ID: id, ARN: "arn:aws:iam::" + account + ":role" + path + name, Created: at,
		Trust:       `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"` + service + `"},"Action":"sts:AssumeRole"}]}`,
		Description: def.description, MaxSession: 3600, Service: service, Inline: map[string]string{},
		Attached: []IAMAttachment{{ARN: "arn:aws:iam::aws:policy/aws-service-role/" + def.policy, At: at}},
	}
	s.state.account(account).Roles[strings.ToLower(name)] = r
	return r
}

func (s *iamService) deleteServiceLinkedRole(c *reqCtx, in *iam.DeleteServiceLinkedRoleInput) (*iam.DeleteServiceLinkedRoleOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if r.Service == "" {
		return nil, noSuchRole(r.Name)
	}
	delete(s.state.account(c.account).Roles, strings.ToLower(r.Name))
	task := "task" + r.Path + r.Name + "/" + c.w.UUID()
	return &iam.DeleteServiceLinkedRoleOutput{DeletionTaskId: &task}, nil
}

func (s *iamService) serviceRoleDeletion(_ *reqCtx, in *iam.GetServiceLinkedRoleDeletionStatusInput) (*iam.GetServiceLinkedRoleDeletionStatusOutput, error) {
	if !strings.HasPrefix(deref(in.DeletionTaskId), "task/aws-service-role/") {
		return nil, fail(404, "NoSuchEntity", "Deletion task id %s cannot be found.", deref(in.DeletionTaskId))
	}
	return &iam.GetServiceLinkedRoleDeletionStatusOutput{Status: types.DeletionTaskStatusTypeSucceeded}, nil
}
