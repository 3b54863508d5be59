package aws

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// EKSAccessEntry lets an IAM principal into a cluster.
type EKSAccessEntry struct {
	Principal, ARN, Username, Type string
	Groups                         []string
	Created, Modified              time.Time
	Tags                           map[string]string
	Policies                       []*EKSAccessPolicy
	Service                        bool // EKS made it by itself
}

// EKSAccessPolicy is an access policy that is associated with an entry.
type EKSAccessPolicy struct {
	ARN, Scope   string // cluster or namespace
	Namespaces   []string
	At, Modified time.Time
}

const accessPolicyPrefix = "arn:aws:eks::aws:cluster-access-policy/"

// accessPolicies are the access policies there are ("Review access policy permissions").
var accessPolicies = []string{"AmazonEKSAdminPolicy", "AmazonEKSAdminViewPolicy", "AmazonEKSAutoNodePolicy", "AmazonEKSBlockStorageClusterPolicy", "AmazonEKSBlockStoragePolicy",
	"AmazonEKSClusterAdminPolicy", "AmazonEKSClusterInsightsPolicy", "AmazonEKSComputeClusterPolicy", "AmazonEKSComputePolicy", "AmazonEKSEditPolicy", "AmazonEKSEventPolicy",
	"AmazonEKSHybridPolicy", "AmazonEKSLoadBalancingClusterPolicy", "AmazonEKSLoadBalancingPolicy", "AmazonEKSNetworkingClusterPolicy", "AmazonEKSNetworkingPolicy",
	"AmazonEKSSecretReaderPolicy", "AmazonEKSViewPolicy"}

// principal is the IAM principal behind an identity: the role of a session, else the identity itself.
func (s *eksService) principal(who Identity) string {
	if role := roleOfSession(who.ARN, s.cloud.platform.iam); role != "" {
		return role
	}
	return who.ARN
}

// entryARN names an access entry.
func (k *EKSCluster) entryARN(principal, uid string) string {
	parts := strings.SplitN(principal, ":", 6)
	kind, name, _ := strings.Cut(parts[len(parts)-1], "/")
	return arn("eks", k.Region, k.Account, "access-entry/"+k.Name+"/"+kind+"/"+parts[4]+"/"+name[strings.LastIndex(name, "/")+1:]+"/"+uid)
}

// addEntry makes an access entry.
func (s *eksService) addEntry(k *EKSCluster, principal, kind string) *EKSAccessEntry {
	now := s.cloud.World.Now()
	e := &EKSAccessEntry{Principal: principal, ARN: k.entryARN(principal, s.cloud.World.UUID()), Type: kind, Groups: []string{}, Created: now, Modified: now, Tags: map[string]string{},
		Policies: []*EKSAccessPolicy{}}
	switch {
	case kind != "STANDARD":
		e.Username, e.Groups = "system:node:{{EC2PrivateDNSName}}", []string{"system:nodes"}
	case strings.Contains(principal, ":role/"):
		parts := strings.SplitN(principal, ":", 6)
		e.Username = "arn:aws:sts::" + parts[4] + ":assumed-role/" + principal[strings.LastIndex(principal, "/")+1:] + "/{{SessionName}}"
	default:
		e.Username = principal
	}
	k.Entries[principal] = e
	return e
}

// firstEntries are the entries of a new cluster: that of EKS itself, and the creator's unless it was declined.
func (s *eksService) firstEntries(c *reqCtx, k *EKSCluster) {
	own := s.addEntry(k, c.iamARN("role/aws-service-role/eks.amazonaws.com/AWSServiceRoleForAmazonEKS"), "STANDARD")
	own.Service = true
	own.Policies = []*EKSAccessPolicy{{ARN: accessPolicyPrefix + "AmazonEKSClusterInsightsPolicy", Scope: "cluster", At: c.now, Modified: c.now},
		{ARN: accessPolicyPrefix + "AmazonEKSEventPolicy", Scope: "cluster", At: c.now, Modified: c.now}}
	if k.BootstrapAdmin == nil || *k.BootstrapAdmin {
		e := s.addEntry(k, k.Creator, "STANDARD")
		e.Service = true
		e.Policies = []*EKSAccessPolicy{{ARN: accessPolicyPrefix + "AmazonEKSClusterAdminPolicy", Scope: "cluster", At: c.now, Modified: c.now}}
	}
}

// nodeEntry lets the nodes of a managed node group in: EKS does that where the authentication mode knows entries.
func (s *eksService) nodeEntry(c *reqCtx, k *EKSCluster, roleARN string) {
	if k.AuthMode != "CONFIG_MAP" && k.Entries[roleARN] == nil {
		s.addEntry(k, roleARN, "EC2_LINUX").Service = true
		c.Touch(roleARN)
	}
}

// withEntries finds a cluster whose authentication mode knows access entries.
func (s *eksService) withEntries(c *reqCtx, name *string) (*EKSCluster, error) {
	k, err := s.cluster(c, name)
	if err == nil && k.AuthMode == "CONFIG_MAP" {
		return nil, invalidRequest(k.Name, "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.")
	}
	return k, err
}

func (s *eksService) entry(c *reqCtx, cluster, principal *string) (*EKSCluster, *EKSAccessEntry, error) {
	k, err := s.withEntries(c, cluster)
	if err != nil {
		return nil, nil, err
	}
	e := k.Entries[deref(principal)]
	if e == nil || !c.visible(e.ARN, e.Created, false, "access-entry", e.Principal, mapValues(e.Tags)) {
		return nil, nil, noResource(k.Name, "The specified principalArn could not be found. You can view your available access entries with 'list-access-entries'.")
	}
	c.Touch(e.ARN)
	return k, e, nil
}

// entryTypes are the kinds of entries; those of nodes carry no groups and policies of the customer.
var entryTypes = []string{"STANDARD", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2", "HYBRID_LINUX", "HYPERPOD_LINUX"}

var iamPrincipal = regexp.MustCompile(`^arn:aws:iam::\d{12}:(role|user)/.+$`)

func (s *eksService) createAccessEntry(c *reqCtx, in *eks.CreateAccessEntryInput) (*eks.CreateAccessEntryOutput, error) {
	k, err := s.withEntries(c, in.ClusterName)
	if err != nil {
		return nil, err
	}
	principal, kind := deref(in.PrincipalArn), orDefault(in.Type, "STANDARD")
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Entries[principal]; old != nil {
		if old.ARN != id {
			return nil, inUse(k.Name, "The specified access entry resource is already in use on this cluster.")
		}
		return &eks.CreateAccessEntryOutput{AccessEntry: k.sdkEntry(old)}, nil
	}
	if !iamPrincipal.MatchString(principal) || !s.principalExists(c, principal) {
		return nil, invalidParameter(k.Name, "The specified principalArn is invalid: invalid principal.")
	}
	if !slices.Contains(entryTypes, kind) {
		return nil, invalidParameter(k.Name, "The specified type is invalid: %s", kind)
	}
	if kind != "STANDARD" && (len(in.KubernetesGroups) > 0 || in.Username != nil) {
		return nil, invalidParameter(k.Name, "The kubernetesGroups and username cannot be specified for the type %s", kind)
	}
	if err := checkEKSTags(k.Name, in.Tags); err != nil {
		return nil, err
	}
	if err := checkEntryNames(k, in.KubernetesGroups, in.Username); err != nil {
		return nil, err
	}
	e := s.addEntry(k, principal, kind)
	e.Tags = copyTags(in.Tags)
	if len(in.KubernetesGroups) > 0 {
		e.Groups = slices.Clone(in.KubernetesGroups)
	}
	e.Username = orDefault(in.Username, e.Username)
	s.remember(c, k.Name, in.ClientRequestToken, in, e.ARN)
	c.Make(e.ARN)
	return &eks.CreateAccessEntryOutput{AccessEntry: k.sdkEntry(e)}, nil
}

// checkEntryNames refuses names that Kubernetes keeps for itself.
func checkEntryNames(k *EKSCluster, groups []string, username *string) error {
	for _, g := range groups {
		if g == "" || strings.HasPrefix(g, "system:") || strings.HasPrefix(g, "eks:") || strings.HasPrefix(g, "aws:") || strings.HasPrefix(g, "amazon:") || strings.HasPrefix(g, "iam:") {
			return invalidParameter(k.Name, "The kubernetes group name %s is invalid, it cannot start with system:, eks:, aws:, amazon: or iam:", g)
		}
	}
	if u := deref(username); username != nil && (u == "" || strings.HasPrefix(u, "system:") || strings.HasPrefix(u, "eks:") || strings.HasPrefix(u, "aws:")) {
		return invalidParameter(k.Name, "The username %s is invalid, it cannot start with system:, eks: or aws:", u)
	}
	return nil
}

// principalExists says whether IAM knows a principal of this account by now.
func (s *eksService) principalExists(c *reqCtx, principal string) bool {
	return s.cloud.platform.kms.principalExists(c, principal)
}

func (k *EKSCluster) sdkEntry(e *EKSAccessEntry) *types.AccessEntry {
	return &types.AccessEntry{AccessEntryArn: new(e.ARN), ClusterName: new(k.Name), CreatedAt: new(e.Created), ModifiedAt: new(e.Modified), PrincipalArn: new(e.Principal),
		KubernetesGroups: slices.Clone(e.Groups), Type: new(e.Type), Username: new(e.Username), Tags: copyTags(e.Tags)}
}

func (s *eksService) describeAccessEntry(c *reqCtx, in *eks.DescribeAccessEntryInput) (*eks.DescribeAccessEntryOutput, error) {
	k, e, err := s.entry(c, in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	return &eks.DescribeAccessEntryOutput{AccessEntry: k.sdkEntry(e)}, nil
}

func (s *eksService) listAccessEntries(c *reqCtx, in *eks.ListAccessEntriesInput) (*eks.ListAccessEntriesOutput, error) {
	k, err := s.withEntries(c, in.ClusterName)
	if err != nil {
		return nil, err
	}
	all := []string{}
	for _, principal := range sortedKeys(k.Entries) {
		e := k.Entries[principal]
		carries := slices.ContainsFunc(e.Policies, func(p *EKSAccessPolicy) bool { return p.ARN == deref(in.AssociatedPolicyArn) })
		if (in.AssociatedPolicyArn == nil || carries) && c.visible(e.ARN, e.Created, true, "access-entry", principal) {
			all = append(all, principal)
		}
	}
	page, next, err := eksPage(c, all, in.NextToken, in.MaxResults)
	return &eks.ListAccessEntriesOutput{AccessEntries: page, NextToken: next}, err
}

func (s *eksService) updateAccessEntry(c *reqCtx, in *eks.UpdateAccessEntryInput) (*eks.UpdateAccessEntryOutput, error) {
	k, e, err := s.entry(c, in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	if e.Type != "STANDARD" {
		return nil, invalidRequest(k.Name, "An access entry of the type %s cannot be updated", e.Type)
	}
	if err := checkEntryNames(k, in.KubernetesGroups, in.Username); err != nil {
		return nil, err
	}
	if in.KubernetesGroups != nil {
		e.Groups = slices.Clone(in.KubernetesGroups)
	}
	e.Username, e.Modified = orDefault(in.Username, e.Username), c.now
	return &eks.UpdateAccessEntryOutput{AccessEntry: k.sdkEntry(e)}, nil
}

func (s *eksService) deleteAccessEntry(c *reqCtx, in *eks.DeleteAccessEntryInput) (*eks.DeleteAccessEntryOutput, error) {
	k, e, err := s.entry(c, in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	delete(k.Entries, e.Principal)
	return &eks.DeleteAccessEntryOutput{}, nil
}

func (s *eksService) associatePolicy(c *reqCtx, in *eks.AssociateAccessPolicyInput) (*eks.AssociateAccessPolicyOutput, error) {
	k, e, err := s.entry(c, in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	name, ok := strings.CutPrefix(deref(in.PolicyArn), accessPolicyPrefix)
	switch {
	case !ok || !slices.Contains(accessPolicies, name):
		return nil, invalidParameter(k.Name, "The specified policyArn is invalid: %s", deref(in.PolicyArn))
	case e.Type != "STANDARD":
		return nil, invalidRequest(k.Name, "Access policies cannot be associated with an access entry of the type %s", e.Type)
	case in.AccessScope == nil || in.AccessScope.Type == "":
		return nil, invalidParameter(k.Name, "The access scope can not be empty.")
	case in.AccessScope.Type == types.AccessScopeTypeCluster && len(in.AccessScope.Namespaces) > 0:
		return nil, invalidParameter(k.Name, "Namespaces cannot be given with the access scope type cluster.")
	case in.AccessScope.Type == types.AccessScopeTypeNamespace && len(in.AccessScope.Namespaces) == 0:
		return nil, invalidParameter(k.Name, "Namespaces must be given with the access scope type namespace.")
	}
	var p *EKSAccessPolicy
	for _, old := range e.Policies {
		if old.ARN == *in.PolicyArn {
			p = old
		}
	}
	if p == nil {
		p = &EKSAccessPolicy{ARN: *in.PolicyArn, At: c.now}
		e.Policies = append(e.Policies, p)
	}
	p.Scope, p.Namespaces, p.Modified = string(in.AccessScope.Type), slices.Clone(in.AccessScope.Namespaces), c.now
	return &eks.AssociateAccessPolicyOutput{ClusterName: new(k.Name), PrincipalArn: new(e.Principal), AssociatedAccessPolicy: new(p.sdk())}, nil
}

func (p *EKSAccessPolicy) sdk() types.AssociatedAccessPolicy {
	return types.AssociatedAccessPolicy{PolicyArn: new(p.ARN), AssociatedAt: new(p.At), ModifiedAt: new(p.Modified),
		AccessScope: &types.AccessScope{Type: types.AccessScopeType(p.Scope), Namespaces: append([]string{}, p.Namespaces...)}}
}

func (s *eksService) disassociatePolicy(c *reqCtx, in *eks.DisassociateAccessPolicyInput) (*eks.DisassociateAccessPolicyOutput, error) {
	k, e, err := s.entry(c, in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	before := len(e.Policies)
	e.Policies = slices.DeleteFunc(e.Policies, func(p *EKSAccessPolicy) bool { return p.ARN == deref(in.PolicyArn) })
	if len(e.Policies) == before {
		return nil, noResource(k.Name, "The specified policyArn is not associated with the access entry: %s", deref(in.PolicyArn))
	}
	return &eks.DisassociateAccessPolicyOutput{}, nil
}

func (s *eksService) listAssociatedPolicies(c *reqCtx, in *eks.ListAssociatedAccessPoliciesInput) (*eks.ListAssociatedAccessPoliciesOutput, error) {
	k, e, err := s.entry(c, in.ClusterName, in.PrincipalArn)
	if err != nil {
		return nil, err
	}
	all := []types.AssociatedAccessPolicy{}
	for _, p := range e.Policies {
		if c.visible(e.ARN+"|"+p.ARN, p.At, true, "access-policy", p.ARN) {
			all = append(all, p.sdk())
		}
	}
	page, next, err := eksPage(c, all, in.NextToken, in.MaxResults)
	return &eks.ListAssociatedAccessPoliciesOutput{ClusterName: new(k.Name), PrincipalArn: new(e.Principal), AssociatedAccessPolicies: page, NextToken: next}, err
}

func (s *eksService) listAccessPolicies(c *reqCtx, in *eks.ListAccessPoliciesInput) (*eks.ListAccessPoliciesOutput, error) {
	all := []types.AccessPolicy{}
	for _, name := range accessPolicies {
		all = append(all, types.AccessPolicy{Name: new(name), Arn: new(accessPolicyPrefix + name)})
	}
	page, next, err := eksPage(c, all, in.NextToken, in.MaxResults)
	return &eks.ListAccessPoliciesOutput{AccessPolicies: page, NextToken: next}, err
}
