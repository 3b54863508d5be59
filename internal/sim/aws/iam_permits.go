package aws

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// managedActions are actions that AWS managed policies allow, as far as the simulated services ask for them.
var managedActions = map[string][]string{
	"AdministratorAccess": {"*"}, "PowerUserAccess": {"*"},
	"AmazonEKSClusterPolicy":    {"elasticloadbalancing:*", "ec2:CreateSecurityGroup", "ec2:DescribeSubnets", "ec2:CreateVolume"},
	"AmazonEKSWorkerNodePolicy": {"ec2:Describe*", "eks:DescribeCluster"}, "AmazonEKSWorkerNodeMinimalPolicy": {"ec2:DescribeInstances", "eks-auth:AssumeRoleForPodIdentity"},
	"AmazonEC2ContainerRegistryPullOnly": {"ecr:GetAuthorizationToken", "ecr:BatchGetImage"}, "AmazonEC2ContainerRegistryReadOnly": {"ecr:GetAuthorizationToken", "ecr:BatchGetImage"},
	"AmazonEC2ContainerRegistryPowerUser": {"ecr:*"}, "AmazonEC2ContainerRegistryFullAccess": {"ecr:*"},
	"AmazonEKS_CNI_Policy":     {"ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"},
	"AmazonEBSCSIDriverPolicy": {"ec2:CreateVolume", "ec2:DeleteVolume"}, "AmazonEBSCSIDriverPolicyV2": {"ec2:CreateVolume", "ec2:DeleteVolume"},
	"AmazonEFSCSIDriverPolicy": {"elasticfilesystem:*"}, "CloudWatchAgentServerPolicy": {"cloudwatch:PutMetricData"}, "AmazonEC2FullAccess": {"ec2:*", "elasticloadbalancing:*"},
}

// roleByARN finds a role, however fresh it is.
func (s *iamService) roleByARN(ref string) *IAMRole {
	parts := strings.SplitN(ref, ":", 6)
	if len(parts) != 6 {
		return nil
	}
	a := s.state.Accounts[parts[4]]
	if a == nil {
		return nil
	}
	if r := a.Roles[strings.ToLower(ref[strings.LastIndex(ref, "/")+1:])]; r != nil && r.ARN == ref {
		return r
	}
	return nil
}

// permits says whether the policies of a role allow an action on something; conditions and resources are not looked at. A
// fresh attachment takes a while to count.
func (s *iamService) permits(account, roleARN, action string) bool {
	r := s.roleByARN(roleARN)
	if r == nil {
		return false
	}
	var allowed []string
	for _, at := range r.Attached {
		if s.w.Now().Sub(at.At) < s.propagation(r.ARN+at.ARN)/2 {
			continue
		}
		allowed = append(allowed, managedActions[at.ARN[strings.LastIndex(at.ARN, "/")+1:]]...)
		if p := s.state.account(account).Policies[at.ARN]; p != nil {
			allowed = append(allowed, allowedActions(p.Document)...)
		}
	}
	for _, doc := range r.Inline {
		allowed = append(allowed, allowedActions(doc)...)
	}
	for _, pattern := range allowed {
		if ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(action)); err == nil && ok {
			return true
		}
	}
	return false
}

func allowedActions(doc string) []string {
	p, err := parsePolicy(doc)
	if err != nil {
		return nil
	}
	var out []string
	for _, st := range p.Statement {
		if st.Effect == "Allow" {
			out = append(out, st.Action...)
		}
	}
	return out
}

// trustsFederated says whether the trust policy lets an identity provider in.
func (r *IAMRole) trustsFederated(provider string) bool {
	p, err := parsePolicy(r.Trust)
	if err != nil {
		return false
	}
	for _, st := range p.Statement {
		var by map[string]stringList
		if st.Effect != "Allow" || json.Unmarshal(st.Principal, &by) != nil {
			continue
		}
		if slices.Contains(by["Federated"], provider) {
			return true
		}
	}
	return false
}

// roleOfSession is the ARN of the role behind an assumed-role session, empty for other identities. The session's ARN has the
// role's name without its path.
func roleOfSession(session string, s *iamService) string {
	parts := strings.SplitN(session, ":", 6)
	if len(parts) != 6 || !strings.HasPrefix(parts[5], "assumed-role/") {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(parts[5], "assumed-role/"), "/")
	if r := s.state.account(parts[4]).Roles[strings.ToLower(name)]; r != nil {
		return r.ARN
	}
	return arn("iam", "", parts[4], "role/"+name)
}
