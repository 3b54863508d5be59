package aws

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// Users are here because identities of callers and errors about users are part of IAM's face; the simulation gives them
// no permissions of their own.

func (s *iamService) user(c *reqCtx, name *string) (*IAMUser, error) {
	if name == nil {
		return s.caller(c)
	}
	u := s.state.account(c.account).Users[strings.ToLower(*name)]
	if u == nil || !c.visible(u.ARN, u.Created, false, "user", u.Name, tagValues(u.Tags)) {
		return nil, fail(404, "NoSuchEntity", "The user with name %s cannot be found.", *name)
	}
	return u, nil
}

// caller is the user who calls, which operations without a user name are about.
func (s *iamService) caller(c *reqCtx) (*IAMUser, error) {
	who := c.caller()
	name, ok := strings.CutPrefix(who.ARN, arn("iam", "", c.account, "user/"))
	if !ok {
		return nil, failValidation("Must specify userName when calling with non-User credentials")
	}
	if u := s.state.account(c.account).Users[strings.ToLower(name)]; u != nil {
		return u, nil
	}
	// The holders of the configured access keys are there without having been made.
	return &IAMUser{Name: name, Path: "/", ID: who.UserID, ARN: who.ARN, Created: accountAge, Inline: map[string]string{}}, nil
}

func (u *IAMUser) sdkUser() types.User {
	return types.User{Path: &u.Path, UserName: &u.Name, UserId: &u.ID, Arn: &u.ARN, CreateDate: &u.Created}
}

func (s *iamService) createUser(c *reqCtx, in *iam.CreateUserInput) (*iam.CreateUserOutput, error) {
	if err := checkIAMName("userName", deref(in.UserName), 64); err != nil {
		return nil, err
	}
	path := orDefault(in.Path, "/")
	if err := checkIAMPath(path); err != nil {
		return nil, err
	}
	tags, err := checkIAMTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	a, key := s.state.account(c.account), strings.ToLower(*in.UserName)
	if a.Users[key] != nil {
		return nil, fail(409, "EntityAlreadyExists", "User with name %s already exists.", *in.UserName)
	}
	u := &IAMUser{Name: *in.UserName, Path: path, ID: c.uniqueID("AIDA"), ARN: c.iamARN("user" + path + *in.UserName), Created: c.second(), Tags: tags, Attached: []IAMAttachment{}, Inline: map[string]string{}}
	a.Users[key] = u
	u.Boundary = deref(in.PermissionsBoundary)
	out := u.sdkUser()
	out.Tags, out.PermissionsBoundary = iamTags(tags), boundaryOf(u.Boundary)
	return &iam.CreateUserOutput{User: &out}, nil
}

func (s *iamService) getUser(c *reqCtx, in *iam.GetUserInput) (*iam.GetUserOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	out := u.sdkUser()
	out.Tags, out.PermissionsBoundary = iamTags(u.Tags), boundaryOf(u.Boundary)
	return &iam.GetUserOutput{User: &out}, nil
}

func (s *iamService) deleteUser(c *reqCtx, in *iam.DeleteUserInput) (*iam.DeleteUserOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	if len(u.Attached) > 0 {
		return nil, fail(409, "DeleteConflict", "Cannot delete entity, must detach all policies first.")
	}
	if len(u.Inline) > 0 {
		return nil, fail(409, "DeleteConflict", "Cannot delete entity, must delete policies first.")
	}
	delete(s.state.account(c.account).Users, strings.ToLower(u.Name))
	return &iam.DeleteUserOutput{}, nil
}

func (s *iamService) listUsers(c *reqCtx, in *iam.ListUsersInput) (*iam.ListUsersOutput, error) {
	a, all := s.state.account(c.account), []types.User{}
	for _, k := range sortedKeys(a.Users) {
		if u := a.Users[k]; strings.HasPrefix(u.Path, orDefault(in.PathPrefix, "/")) && c.visible(u.ARN, u.Created, true, "user", u.Name) {
			all = append(all, u.sdkUser())
		}
	}
	page, marker, err := iamPage(c, all, in.Marker, in.MaxItems)
	return &iam.ListUsersOutput{Users: page, IsTruncated: marker != nil, Marker: marker}, err
}

func (s *iamService) tagUser(c *reqCtx, in *iam.TagUserInput) (*iam.TagUserOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	if u.Tags, err = checkIAMTags(u.Tags, in.Tags); err != nil {
		return nil, err
	}
	return &iam.TagUserOutput{}, nil
}

func (s *iamService) untagUser(c *reqCtx, in *iam.UntagUserInput) (*iam.UntagUserOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	u.Tags = dropTags(u.Tags, in.TagKeys)
	return &iam.UntagUserOutput{}, nil
}

func (s *iamService) listUserTags(c *reqCtx, in *iam.ListUserTagsInput) (*iam.ListUserTagsOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	page, marker, err := iamPage(c, iamTagList(u.Tags), in.Marker, in.MaxItems)
	return &iam.ListUserTagsOutput{Tags: page, IsTruncated: marker != nil, Marker: marker}, err
}

func (s *iamService) attachUserPolicy(c *reqCtx, in *iam.AttachUserPolicyInput) (*iam.AttachUserPolicyOutput, error) {
	if err := checkPolicyARN(in.PolicyArn); err != nil {
		return nil, err
	}
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	if s.policy(c, *in.PolicyArn) == nil {
		return nil, fail(404, "NoSuchEntity", "Policy %s does not exist or is not attachable.", *in.PolicyArn)
	}
	for _, at := range u.Attached {
		if at.ARN == *in.PolicyArn {
			return &iam.AttachUserPolicyOutput{}, nil
		}
	}
	u.Attached = append(u.Attached, IAMAttachment{ARN: *in.PolicyArn, At: c.now})
	return &iam.AttachUserPolicyOutput{}, nil
}

func (s *iamService) detachUserPolicy(c *reqCtx, in *iam.DetachUserPolicyInput) (*iam.DetachUserPolicyOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	for i, at := range u.Attached {
		if at.ARN == deref(in.PolicyArn) {
			u.Attached = append(u.Attached[:i:i], u.Attached[i+1:]...)
			return &iam.DetachUserPolicyOutput{}, nil
		}
	}
	return nil, fail(404, "NoSuchEntity", "Policy %s was not found.", deref(in.PolicyArn))
}

func (s *iamService) listAttachedUserPolicies(c *reqCtx, in *iam.ListAttachedUserPoliciesInput) (*iam.ListAttachedUserPoliciesOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	all := []types.AttachedPolicy{}
	for _, at := range u.Attached {
		all = append(all, types.AttachedPolicy{PolicyArn: new(at.ARN), PolicyName: new(at.ARN[strings.LastIndex(at.ARN, "/")+1:])})
	}
	page, marker, err := iamPage(c, all, in.Marker, in.MaxItems)
	return &iam.ListAttachedUserPoliciesOutput{AttachedPolicies: page, IsTruncated: marker != nil, Marker: marker}, err
}

func noSuchUserPolicy(name string) error {
	return fail(404, "NoSuchEntity", "The user policy with name %s cannot be found.", name)
}

func (s *iamService) putUserPolicy(c *reqCtx, in *iam.PutUserPolicyInput) (*iam.PutUserPolicyOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	if err := checkIAMName("policyName", deref(in.PolicyName), 128); err != nil {
		return nil, err
	}
	if err := checkPermissionPolicy(deref(in.PolicyDocument)); err != nil {
		return nil, err
	}
	u.Inline[*in.PolicyName] = *in.PolicyDocument
	return &iam.PutUserPolicyOutput{}, nil
}

func (s *iamService) getUserPolicy(c *reqCtx, in *iam.GetUserPolicyInput) (*iam.GetUserPolicyOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	doc, ok := u.Inline[deref(in.PolicyName)]
	if !ok {
		return nil, noSuchUserPolicy(deref(in.PolicyName))
	}
	return &iam.GetUserPolicyOutput{UserName: &u.Name, PolicyName: in.PolicyName, PolicyDocument: encodePolicy(doc)}, nil
}

func (s *iamService) deleteUserPolicy(c *reqCtx, in *iam.DeleteUserPolicyInput) (*iam.DeleteUserPolicyOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	if _, ok := u.Inline[deref(in.PolicyName)]; !ok {
		return nil, noSuchUserPolicy(deref(in.PolicyName))
	}
	delete(u.Inline, *in.PolicyName)
	return &iam.DeleteUserPolicyOutput{}, nil
}

func (s *iamService) listUserPolicies(c *reqCtx, in *iam.ListUserPoliciesInput) (*iam.ListUserPoliciesOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	page, marker, err := iamPage(c, sortedKeys(u.Inline), in.Marker, in.MaxItems)
	return &iam.ListUserPoliciesOutput{PolicyNames: page, IsTruncated: marker != nil, Marker: marker}, err
}

func (s *iamService) putUserBoundary(c *reqCtx, in *iam.PutUserPermissionsBoundaryInput) (*iam.PutUserPermissionsBoundaryOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	if err := s.checkBoundary(c, in.PermissionsBoundary); err != nil {
		return nil, err
	}
	u.Boundary = *in.PermissionsBoundary
	return &iam.PutUserPermissionsBoundaryOutput{}, nil
}

func (s *iamService) deleteUserBoundary(c *reqCtx, in *iam.DeleteUserPermissionsBoundaryInput) (*iam.DeleteUserPermissionsBoundaryOutput, error) {
	u, err := s.user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	u.Boundary = ""
	return &iam.DeleteUserPermissionsBoundaryOutput{}, nil
}
