package aws

import (
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

func (s *iamService) profile(c *reqCtx, name *string) (*IAMProfile, error) {
	if name == nil {
		return nil, failMissing("instanceProfileName")
	}
	p := s.state.account(c.account).Profiles[strings.ToLower(*name)]
	if p == nil || !c.visible(p.ARN, p.Created, false, "instance-profile", p.Name, tagValues(p.Tags)) {
		return nil, fail(404, "NoSuchEntity", "Instance Profile %s cannot be found.", *name)
	}
	return p, nil
}

func (s *iamService) createInstanceProfile(c *reqCtx, in *iam.CreateInstanceProfileInput) (*iam.CreateInstanceProfileOutput, error) {
	if err := checkIAMName("instanceProfileName", deref(in.InstanceProfileName), maxProfileName); err != nil {
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
	a, key := s.state.account(c.account), strings.ToLower(*in.InstanceProfileName)
	if a.Profiles[key] != nil {
		return nil, fail(409, "EntityAlreadyExists", "Instance Profile %s already exists.", *in.InstanceProfileName)
	}
	if err := s.checkQuota(c, quotaProfiles, len(a.Profiles), "InstanceProfilesPerAccount"); err != nil {
		return nil, err
	}
	p := &IAMProfile{
		Name: *in.InstanceProfileName, Path: path, ID: c.uniqueID("AIPA"), Created: c.second(), Tags: tags,
		ARN: c.iamARN("instance-profile" + path + *in.InstanceProfileName),
	}
	a.Profiles[key] = p
	out := a.sdkProfile(p)
	out.Tags = iamTags(p.Tags)
	return &iam.CreateInstanceProfileOutput{InstanceProfile: &out}, nil
}

func (s *iamService) getInstanceProfile(c *reqCtx, in *iam.GetInstanceProfileInput) (*iam.GetInstanceProfileOutput, error) {
	p, err := s.profile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	out := s.state.account(c.account).sdkProfile(p)
	out.Tags = iamTags(p.Tags)
	return &iam.GetInstanceProfileOutput{InstanceProfile: &out}, nil
}

func (s *iamService) deleteInstanceProfile(c *reqCtx, in *iam.DeleteInstanceProfileInput) (*iam.DeleteInstanceProfileOutput, error) {
	p, err := s.profile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if p.Role != "" {
		return nil, fail(409, "DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	delete(s.state.account(c.account).Profiles, strings.ToLower(p.Name))
	return &iam.DeleteInstanceProfileOutput{}, nil
}

func (s *iamService) addRoleToProfile(c *reqCtx, in *iam.AddRoleToInstanceProfileInput) (*iam.AddRoleToInstanceProfileOutput, error) {
	p, err := s.profile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if p.Role != "" {
		return nil, fail(409, "LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}
	if err := r.changeable(); err != nil {
		return nil, err
	}
	p.Role, p.RoleAt = strings.ToLower(r.Name), c.now
	return &iam.AddRoleToInstanceProfileOutput{}, nil
}

func (s *iamService) removeRoleFromProfile(c *reqCtx, in *iam.RemoveRoleFromInstanceProfileInput) (*iam.RemoveRoleFromInstanceProfileOutput, error) {
	p, err := s.profile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if in.RoleName == nil {
		return nil, failMissing("roleName")
	}
	if p.Role == "" || p.Role != strings.ToLower(*in.RoleName) {
		return nil, noSuchRole(*in.RoleName)
	}
	p.Role, p.RoleAt = "", time.Time{}
	return &iam.RemoveRoleFromInstanceProfileOutput{}, nil
}

func (s *iamService) listInstanceProfiles(c *reqCtx, in *iam.ListInstanceProfilesInput) (*iam.ListInstanceProfilesOutput, error) {
	a, prefix := s.state.account(c.account), orDefault(in.PathPrefix, "/")
	all := []types.InstanceProfile{}
	for _, k := range sortedKeys(a.Profiles) {
		if p := a.Profiles[k]; strings.HasPrefix(p.Path, prefix) && c.visible(p.ARN, p.Created, true, "instance-profile", p.Name, tagValues(p.Tags)) {
			all = append(all, a.sdkProfile(p))
		}
	}
	page, marker, err := iamPage(c, all, in.Marker, in.MaxItems)
	return &iam.ListInstanceProfilesOutput{InstanceProfiles: page, IsTruncated: marker != nil, Marker: marker}, err
}

func (s *iamService) listProfilesForRole(c *reqCtx, in *iam.ListInstanceProfilesForRoleInput) (*iam.ListInstanceProfilesForRoleOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	a := s.state.account(c.account)
	all := []types.InstanceProfile{}
	for _, k := range sortedKeys(a.Profiles) {
		if p := a.Profiles[k]; p.Role == strings.ToLower(r.Name) && c.visible(p.ARN, p.RoleAt, true, "instance-profile", p.Name, tagValues(p.Tags)) {
			all = append(all, a.sdkProfile(p))
		}
	}
	page, marker, err := iamPage(c, all, in.Marker, in.MaxItems)
	return &iam.ListInstanceProfilesForRoleOutput{InstanceProfiles: page, IsTruncated: marker != nil, Marker: marker}, err
}

func (s *iamService) tagInstanceProfile(c *reqCtx, in *iam.TagInstanceProfileInput) (*iam.TagInstanceProfileOutput, error) {
	p, err := s.profile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if p.Tags, err = checkIAMTags(p.Tags, in.Tags); err != nil {
		return nil, err
	}
	return &iam.TagInstanceProfileOutput{}, nil
}

func (s *iamService) untagInstanceProfile(c *reqCtx, in *iam.UntagInstanceProfileInput) (*iam.UntagInstanceProfileOutput, error) {
	p, err := s.profile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	p.Tags = dropTags(p.Tags, in.TagKeys)
	return &iam.UntagInstanceProfileOutput{}, nil
}

func (s *iamService) listInstanceProfileTags(c *reqCtx, in *iam.ListInstanceProfileTagsInput) (*iam.ListInstanceProfileTagsOutput, error) {
	p, err := s.profile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	page, marker, err := iamPage(c, iamTagList(p.Tags), in.Marker, in.MaxItems)
	return &iam.ListInstanceProfileTagsOutput{Tags: page, IsTruncated: marker != nil, Marker: marker}, err
}
