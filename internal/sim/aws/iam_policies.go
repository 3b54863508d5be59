package aws

import (
	"sort"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// managedPolicies are AWS managed policies by name, with the path each has in its ARN. Those of service-linked roles
// are in serviceRoles.
var managedPolicies = map[string]string{
	"AdministratorAccess": "/", "PowerUserAccess": "/", "ReadOnlyAccess": "/", "IAMFullAccess": "/", "IAMReadOnlyAccess": "/",
	"AmazonSSMManagedInstanceCore": "/", "AmazonSSMPatchAssociation": "/", "AmazonSSMFullAccess": "/", "AmazonSSMReadOnlyAccess": "/",
	"AmazonSSMDirectoryServiceAccess": "/", "AmazonSSMManagedEC2InstanceDefaultPolicy": "/", "CloudWatchAgentServerPolicy": "/",
	"CloudWatchAgentAdminPolicy": "/", "CloudWatchFullAccess": "/", "CloudWatchReadOnlyAccess": "/", "CloudWatchLogsFullAccess": "/",
	"CloudWatchLogsReadOnlyAccess": "/", "AmazonEC2FullAccess": "/", "AmazonEC2ReadOnlyAccess": "/", "AmazonVPCFullAccess": "/",
	"AmazonVPCReadOnlyAccess": "/", "AmazonS3FullAccess": "/", "AmazonS3ReadOnlyAccess": "/", "AmazonRDSFullAccess": "/",
	"AmazonRoute53FullAccess": "/", "AmazonRoute53ReadOnlyAccess": "/", "ElasticLoadBalancingFullAccess": "/",
	"ElasticLoadBalancingReadOnly": "/", "AutoScalingFullAccess": "/", "AutoScalingReadOnlyAccess": "/", "SecretsManagerReadWrite": "/",
	"AmazonEKSClusterPolicy": "/", "AmazonEKSServicePolicy": "/", "AmazonEKSWorkerNodePolicy": "/", "AmazonEKS_CNI_Policy": "/",
	"AmazonEKSVPCResourceController": "/", "AmazonEKSWorkerNodeMinimalPolicy": "/", "AmazonEKSComputePolicy": "/",
	"AmazonEKSBlockStoragePolicy": "/", "AmazonEKSLoadBalancingPolicy": "/", "AmazonEKSNetworkingPolicy": "/",
	"AmazonEC2ContainerRegistryReadOnly": "/", "AmazonEC2ContainerRegistryPullOnly": "/", "AmazonEC2ContainerRegistryPowerUser": "/",
	"AmazonEC2ContainerRegistryFullAccess": "/", "AmazonElastiCacheFullAccess": "/", "AWSCertificateManagerFullAccess": "/",
	"AWSCertificateManagerReadOnly": "/", "ServiceQuotasFullAccess": "/", "ServiceQuotasReadOnlyAccess": "/", "AlexaForBusinessFullAccess": "/",
	"AmazonEBSCSIDriverPolicy": "/service-role/", "AmazonEBSCSIDriverPolicyV2": "/service-role/", "AmazonEFSCSIDriverPolicy": "/service-role/", "AWSLambdaBasicExecutionRole": "/service-role/",
	"AWSLambdaVPCAccessExecutionRole": "/service-role/", "AmazonEC2RoleforSSM": "/service-role/", "AmazonRDSEnhancedMonitoringRole": "/service-role/",
	"AutoScalingNotificationAccessRole": "/service-role/", "AmazonECSTaskExecutionRolePolicy": "/service-role/",
	"AmazonEC2ContainerServiceforEC2Role": "/service-role/", "AWS_ConfigRole": "/service-role/",
	"Billing": "/job-function/", "NetworkAdministrator": "/job-function/", "SystemAdministrator": "/job-function/", "ViewOnlyAccess": "/job-function/",
	"SupportUser": "/job-function/", "DatabaseAdministrator": "/job-function/", "DataScientist": "/job-function/", "SecurityAudit": "/",
}

// managedSince is when the simulation says that every AWS managed policy was made.
var managedSince = time.Date(2019, 3, 15, 17, 22, 12, 0, time.UTC)

const managedDocument = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`

// policy finds a managed policy, the customer's or AWS's own.
func (s *iamService) policy(c *reqCtx, arn string) *IAMPolicy {
	if p := s.state.account(c.account).Policies[arn]; p != nil {
		return p
	}
	rest, ok := strings.CutPrefix(arn, "arn:aws:iam::aws:policy/")
	if !ok {
		return nil
	}
	rest = "/" + rest
	cut := strings.LastIndex(rest, "/") + 1
	path, name := rest[:cut], rest[cut:]
	known := managedPolicies[name] == path
	if path == "/aws-service-role/" {
		for _, r := range serviceRoles {
			known = known || r.policy == name
		}
	}
	if !known {
		return nil
	}
	return &IAMPolicy{Name: name, Path: path, ID: fixedID(c.w, "ANPA", "policy", name), ARN: arn, Document: managedDocument, Created: managedSince}
}

// checkPolicyARN refuses what is no ARN, before anything is looked up.
func checkPolicyARN(arn *string) error {
	switch {
	case arn == nil:
		return failMissing("policyArn")
	case len(*arn) < 20:
		return failValidation("1 validation error detected: Value '%s' at 'policyArn' failed to satisfy constraint: Member must have length greater than or equal to 20", *arn)
	case !arnPattern.MatchString(*arn):
		return failValidation("Invalid ARN:  Could not be parsed!")
	}
	return nil
}

func (s *iamService) attachRolePolicy(c *reqCtx, in *iam.AttachRolePolicyInput) (*iam.AttachRolePolicyOutput, error) {
	if err := checkPolicyARN(in.PolicyArn); err != nil {
		return nil, err
	}
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if err := r.changeable(); err != nil {
		return nil, err
	}
	if s.policy(c, *in.PolicyArn) == nil {
		return nil, fail(404, "NoSuchEntity", "Policy %s does not exist or is not attachable.", *in.PolicyArn)
	}
	for _, at := range r.Attached {
		if at.ARN == *in.PolicyArn {
			return &iam.AttachRolePolicyOutput{}, nil
		}
	}
	if err := s.checkQuota(c, quotaAttachments, len(r.Attached), "PoliciesPerRole"); err != nil {
		return nil, err
	}
	r.Attached = append(r.Attached, IAMAttachment{ARN: *in.PolicyArn, At: c.now})
	return &iam.AttachRolePolicyOutput{}, nil
}

func (s *iamService) detachRolePolicy(c *reqCtx, in *iam.DetachRolePolicyInput) (*iam.DetachRolePolicyOutput, error) {
	if err := checkPolicyARN(in.PolicyArn); err != nil {
		return nil, err
	}
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if err := r.changeable(); err != nil {
		return nil, err
	}
	for i, at := range r.Attached {
		if at.ARN == *in.PolicyArn {
			r.Attached = append(r.Attached[:i:i], r.Attached[i+1:]...)
			return &iam.DetachRolePolicyOutput{}, nil
		}
	}
	return nil, fail(404, "NoSuchEntity", "Policy %s was not found.", *in.PolicyArn)
}

func (s *iamService) listAttachedRolePolicies(c *reqCtx, in *iam.ListAttachedRolePoliciesInput) (*iam.ListAttachedRolePoliciesOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	all := []types.AttachedPolicy{}
	for _, at := range r.Attached {
		// A fresh attachment is listed late, like a fresh role ("Changes that I make are not always immediately
		// visible", IAM user guide).
		if p := s.policy(c, at.ARN); p != nil && strings.HasPrefix(p.Path, orDefault(in.PathPrefix, "/")) &&
			c.visible(r.ARN+"|"+at.ARN, at.At, true, "attachment", r.Name, p.Name, tagValues(r.Tags)) {
			all = append(all, types.AttachedPolicy{PolicyArn: new(at.ARN), PolicyName: new(p.Name)})
		}
	}
	page, marker, err := iamPage(c, all, in.Marker, in.MaxItems)
	return &iam.ListAttachedRolePoliciesOutput{AttachedPolicies: page, IsTruncated: marker != nil, Marker: marker}, err
}

func (s *iamService) putRolePolicy(c *reqCtx, in *iam.PutRolePolicyInput) (*iam.PutRolePolicyOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if err := checkIAMName("policyName", deref(in.PolicyName), 128); err != nil {
		return nil, err
	}
	if err := r.changeable(); err != nil {
		return nil, err
	}
	if err := checkPermissionPolicy(deref(in.PolicyDocument)); err != nil {
		return nil, err
	}
	size := len(*in.PolicyDocument)
	for name, doc := range r.Inline {
		if name != *in.PolicyName {
			size += len(doc)
		}
	}
	if size > 10240 {
		return nil, fail(409, "LimitExceeded", "Maximum policy size of 10240 bytes exceeded for role %s", r.Name)
	}
	r.Inline[*in.PolicyName] = *in.PolicyDocument
	return &iam.PutRolePolicyOutput{}, nil
}

func noSuchRolePolicy(name string) error {
	return fail(404, "NoSuchEntity", "The role policy with name %s cannot be found.", name)
}

func (s *iamService) getRolePolicy(c *reqCtx, in *iam.GetRolePolicyInput) (*iam.GetRolePolicyOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	doc, ok := r.Inline[deref(in.PolicyName)]
	if !ok {
		return nil, noSuchRolePolicy(deref(in.PolicyName))
	}
	return &iam.GetRolePolicyOutput{RoleName: &r.Name, PolicyName: in.PolicyName, PolicyDocument: encodePolicy(doc)}, nil
}

func (s *iamService) deleteRolePolicy(c *reqCtx, in *iam.DeleteRolePolicyInput) (*iam.DeleteRolePolicyOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if _, ok := r.Inline[deref(in.PolicyName)]; !ok {
		return nil, noSuchRolePolicy(deref(in.PolicyName))
	}
	delete(r.Inline, *in.PolicyName)
	return &iam.DeleteRolePolicyOutput{}, nil
}

func (s *iamService) listRolePolicies(c *reqCtx, in *iam.ListRolePoliciesInput) (*iam.ListRolePoliciesOutput, error) {
	r, err := s.role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	page, marker, err := iamPage(c, sortedKeys(r.Inline), in.Marker, in.MaxItems)
	return &iam.ListRolePoliciesOutput{PolicyNames: page, IsTruncated: marker != nil, Marker: marker}, err
}

// attachments counts what a policy is attached to.
func (a *IAMAccount) attachments(arn string) (n int32) {
	for _, r := range a.Roles {
		for _, at := range r.Attached {
			if at.ARN == arn {
				n++
			}
		}
	}
	for _, u := range a.Users {
		for _, at := range u.Attached {
			if at.ARN == arn {
				n++
			}
		}
	}
	return n
}

func (s *iamService) sdkPolicy(c *reqCtx, p *IAMPolicy) types.Policy {
	return types.Policy{
		PolicyName: &p.Name, PolicyId: &p.ID, Arn: &p.ARN, Path: &p.Path, DefaultVersionId: new("v1"),
		AttachmentCount:               new(s.state.account(c.account).attachments(p.ARN)),
		PermissionsBoundaryUsageCount: new(int32(0)), IsAttachable: true, CreateDate: &p.Created, UpdateDate: &p.Created,
	}
}

func (s *iamService) createPolicy(c *reqCtx, in *iam.CreatePolicyInput) (*iam.CreatePolicyOutput, error) {
	if err := checkIAMName("policyName", deref(in.PolicyName), 128); err != nil {
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
	if err := checkPermissionPolicy(deref(in.PolicyDocument)); err != nil {
		return nil, err
	}
	if len(*in.PolicyDocument) > 6144 {
		return nil, fail(409, "LimitExceeded", "Cannot exceed quota for PolicySize: 6144")
	}
	a, arn := s.state.account(c.account), c.iamARN("policy"+path+*in.PolicyName)
	if a.Policies[arn] != nil {
		return nil, fail(409, "EntityAlreadyExists", "A policy called %s already exists. Duplicate names are not allowed.", *in.PolicyName)
	}
	p := &IAMPolicy{Name: *in.PolicyName, Path: path, ID: c.uniqueID("ANPA"), ARN: arn, Description: deref(in.Description),
		Document: *in.PolicyDocument, Created: c.second(), Tags: tags}
	a.Policies[arn] = p
	out := s.sdkPolicy(c, p)
	out.Tags = iamTags(tags)
	return &iam.CreatePolicyOutput{Policy: &out}, nil
}

func (s *iamService) getPolicy(c *reqCtx, in *iam.GetPolicyInput) (*iam.GetPolicyOutput, error) {
	if err := checkPolicyARN(in.PolicyArn); err != nil {
		return nil, err
	}
	p := s.policy(c, *in.PolicyArn)
	if p == nil {
		return nil, fail(404, "NoSuchEntity", "Policy %s was not found.", *in.PolicyArn)
	}
	out := s.sdkPolicy(c, p)
	if p.Description != "" {
		out.Description = &p.Description
	}
	out.Tags = iamTagList(p.Tags)
	return &iam.GetPolicyOutput{Policy: &out}, nil
}

func (s *iamService) getPolicyVersion(c *reqCtx, in *iam.GetPolicyVersionInput) (*iam.GetPolicyVersionOutput, error) {
	if err := checkPolicyARN(in.PolicyArn); err != nil {
		return nil, err
	}
	p := s.policy(c, *in.PolicyArn)
	if p == nil {
		return nil, fail(404, "NoSuchEntity", "Policy %s was not found.", *in.PolicyArn)
	}
	if deref(in.VersionId) != "v1" {
		return nil, fail(404, "NoSuchEntity", "Policy %s version %s does not exist or is not attachable.", p.ARN, deref(in.VersionId))
	}
	return &iam.GetPolicyVersionOutput{PolicyVersion: &types.PolicyVersion{
		Document: encodePolicy(p.Document), VersionId: new("v1"), IsDefaultVersion: true, CreateDate: &p.Created,
	}}, nil
}

func (s *iamService) deletePolicy(c *reqCtx, in *iam.DeletePolicyInput) (*iam.DeletePolicyOutput, error) {
	if err := checkPolicyARN(in.PolicyArn); err != nil {
		return nil, err
	}
	a := s.state.account(c.account)
	if a.Policies[*in.PolicyArn] == nil {
		return nil, fail(404, "NoSuchEntity", "Policy %s was not found.", *in.PolicyArn)
	}
	if a.attachments(*in.PolicyArn) > 0 {
		return nil, fail(409, "DeleteConflict", "Cannot delete a policy attached to entities.")
	}
	delete(a.Policies, *in.PolicyArn)
	return &iam.DeletePolicyOutput{}, nil
}

func (s *iamService) listPolicies(c *reqCtx, in *iam.ListPoliciesInput) (*iam.ListPoliciesOutput, error) {
	a := s.state.account(c.account)
	var arns []string
	if in.Scope != types.PolicyScopeTypeAws {
		arns = append(arns, sortedKeys(a.Policies)...)
	}
	if in.Scope != types.PolicyScopeTypeLocal {
		var own []string
		for name, path := range managedPolicies {
			own = append(own, "arn:aws:iam::aws:policy"+path+name)
		}
		sort.Strings(own)
		arns = append(arns, own...)
	}
	all := []types.Policy{}
	for _, arn := range arns {
		p := s.policy(c, arn)
		if in.OnlyAttached && a.attachments(arn) == 0 || !strings.HasPrefix(p.Path, orDefault(in.PathPrefix, "/")) {
			continue
		}
		all = append(all, s.sdkPolicy(c, p))
	}
	page, marker, err := iamPage(c, all, in.Marker, in.MaxItems)
	return &iam.ListPoliciesOutput{Policies: page, IsTruncated: marker != nil, Marker: marker}, err
}

func (s *iamService) listPolicyVersions(c *reqCtx, in *iam.ListPolicyVersionsInput) (*iam.ListPolicyVersionsOutput, error) {
	if err := checkPolicyARN(in.PolicyArn); err != nil {
		return nil, err
	}
	p := s.policy(c, *in.PolicyArn)
	if p == nil {
		return nil, fail(404, "NoSuchEntity", "Policy %s was not found.", *in.PolicyArn)
	}
	all := []types.PolicyVersion{{VersionId: new("v1"), IsDefaultVersion: true, CreateDate: &p.Created}}
	page, marker, err := iamPage(c, all, in.Marker, in.MaxItems)
	return &iam.ListPolicyVersionsOutput{Versions: page, IsTruncated: marker != nil, Marker: marker}, err
}

func (s *iamService) listEntitiesForPolicy(c *reqCtx, in *iam.ListEntitiesForPolicyInput) (*iam.ListEntitiesForPolicyOutput, error) {
	if err := checkPolicyARN(in.PolicyArn); err != nil {
		return nil, err
	}
	if s.policy(c, *in.PolicyArn) == nil {
		return nil, fail(404, "NoSuchEntity", "Policy %s was not found.", *in.PolicyArn)
	}
	a := s.state.account(c.account)
	out := &iam.ListEntitiesForPolicyOutput{PolicyRoles: []types.PolicyRole{}, PolicyUsers: []types.PolicyUser{}, PolicyGroups: []types.PolicyGroup{}}
	carries := func(list []IAMAttachment) bool {
		for _, at := range list {
			if at.ARN == *in.PolicyArn {
				return true
			}
		}
		return false
	}
	for _, k := range sortedKeys(a.Roles) {
		if r := a.Roles[k]; carries(r.Attached) {
			out.PolicyRoles = append(out.PolicyRoles, types.PolicyRole{RoleName: &r.Name, RoleId: &r.ID})
		}
	}
	for _, k := range sortedKeys(a.Users) {
		if u := a.Users[k]; carries(u.Attached) {
			out.PolicyUsers = append(out.PolicyUsers, types.PolicyUser{UserName: &u.Name, UserId: &u.ID})
		}
	}
	return out, nil
}
