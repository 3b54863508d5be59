package aws

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A serviceRole is a role that a service of AWS assumes for a cluster.
type serviceRole struct {
	key, use string
	about    string
	service  string            // who assumes it
	tags     map[string]string // session tags that whoever assumes it has to bring
	policies []string          // AWS's own, by the part of their ARN after policy/
}

// The keys of a cluster's roles.
const (
	controlRoleKey = "cluster-role"
	nodeRoleKey    = "node-role"
)

// clusterRoles are the roles of a cluster, each with what it needs and nothing
// more: nodes join and pull images; network interfaces and disks are managed by the
// add-ons that do so, each by a role of its own through Pod Identity ("Amazon EKS
// cluster IAM role", "Amazon EKS node IAM role", "IAM roles for Amazon EKS add-ons").
func clusterRoles(cluster string) []serviceRole {
	roles := []serviceRole{
		{key: controlRoleKey, use: "eks", about: "Control plane", service: "eks.amazonaws.com", policies: []string{"AmazonEKSClusterPolicy"}},
		{key: nodeRoleKey, use: "node", about: "Nodes", service: "ec2.amazonaws.com", policies: []string{"AmazonEC2ContainerRegistryPullOnly", "AmazonEKSWorkerNodePolicy"}},
	}
	for _, a := range addons {
		if a.policy != "" {
			roles = append(roles, serviceRole{
				key: addonPref + a.name + "-role", use: a.use, about: "Add-on " + a.name, service: "pods.eks.amazonaws.com", policies: []string{a.policy},
				tags: map[string]string{"eks-cluster-name": cluster, "kubernetes-namespace": addonNamespace, "kubernetes-service-account": a.account},
			})
		}
	}
	return roles
}

// trust is the role's trust policy. Pod Identity hands a role to any service
// account that is associated with it: the session tags that it sets bind this one
// to its cluster and account ("Create IAM role with trust policy required by EKS Pod
// Identity", "Grant Pods access to AWS resources based on tags").
func (s serviceRole) trust() string {
	statement := map[string]any{"Effect": "Allow", "Principal": map[string]string{"Service": s.service}, "Action": "sts:AssumeRole"}
	if len(s.tags) > 0 {
		statement["Action"] = []string{"sts:AssumeRole", "sts:TagSession"}
		want := map[string]string{}
		for k, v := range s.tags {
			want["aws:RequestTag/"+k] = v
		}
		statement["Condition"] = map[string]any{"StringEquals": want}
	}
	doc, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{statement}})
	if err != nil {
		panic(err) // strings always encode
	}
	return string(doc)
}

// arns are the role's policies.
func (s serviceRole) arns(region string) []string {
	var out []string
	for _, p := range s.policies {
		out = append(out, "arn:"+partition(region)+":iam::aws:policy/"+p)
	}
	return slices.Sorted(slices.Values(out))
}

// roleARN is the ARN of one of the job's roles.
func (p *Provider) roleARN(r *pipeline.Run, roleName string) string {
	return "arn:" + partition(p.region) + ":iam::" + r.Job.Config.InfraConfig.Account + ":role/" + roleName
}

// ensureClusterIdentity makes the roles, the key of the secrets and the log group
// of a cluster. It is done when IAM shows the roles with their policies: a node
// group that starts before fails at random (failure kind D4).
func (p *Provider) ensureClusterIdentity(ctx context.Context, r *pipeline.Run) error {
	info := &r.Job.Config.InfraConfig.Cluster
	var roles []pipeline.Resource
	for _, s := range clusterRoles(clusterNameOf(r.Job)) {
		roles = append(roles, p.serviceRole(r, s))
	}
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return p.ensureKey(ctx, r) },
		func(ctx context.Context) error {
			x := p.clusterLogGroup(r)
			_, err := r.Ensure(ctx, x)
			learn(r, &info.LogGroup, x.Name)
			return err
		},
	}
	for _, x := range roles {
		parts = append(parts, func(ctx context.Context) error {
			_, err := r.Ensure(ctx, x)
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	learn(r, &info.RoleID, p.roleARN(r, roles[0].Name))
	learn(r, &info.NodeRoleID, p.roleARN(r, roles[1].Name))
	return confirm(ctx, r, append(roles, p.kmsKey(r), p.clusterLogGroup(r))...)
}

// removeClusterIdentity removes what ensureClusterIdentity made. The key goes only
// when nothing is encrypted with it any more: the cluster is gone by now.
func (p *Provider) removeClusterIdentity(ctx context.Context, r *pipeline.Run) error {
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return p.removeKey(ctx, r) },
		func(ctx context.Context) error { return r.Remove(ctx, p.clusterLogGroup(r)) },
	}
	for _, s := range clusterRoles(clusterNameOf(r.Job)) {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.serviceRole(r, s)) })
	}
	return pipeline.All(ctx, parts...)
}

func (p *Provider) serviceRole(r *pipeline.Run, s serviceRole) pipeline.Resource {
	trust, arns := s.trust(), s.arns(p.region)
	x := pipeline.Resource{Kind: kindRole, Key: s.key, Name: name(r, s.use, 64)}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		got, err := p.readRole(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		seen := pipeline.Seen{ID: id, Owner: iamMark(got.Tags), Status: pipeline.Ready}
		if r.Down {
			return seen, nil
		}
		have, err := p.policiesOf(ctx, id)
		if err != nil {
			return seen, err
		}
		seen.Aspects = []pipeline.Aspect{
			{Name: "trust policy", Wanted: canonicalPolicy(trust), Seen: canonicalPolicy(aws.ToString(got.AssumeRolePolicyDocument)), Set: func(ctx context.Context) error {
				_, err := p.iam.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(id), PolicyDocument: aws.String(trust)})
				return err
			}},
			p.justThese(id, arns, have),
		}
		return seen, nil
	}
	x.Find = byName(r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.iam.CreateRole(ctx, &iam.CreateRoleInput{
			RoleName: aws.String(x.Name), AssumeRolePolicyDocument: aws.String(trust),
			Description: aws.String(s.about + " of provisioning job " + r.Job.ID), Tags: iamTags(tags(r, x.Key, x.Name)),
		})
		if err != nil || out.Role == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: x.Name, Status: pipeline.Ready, Aspects: []pipeline.Aspect{p.justThese(x.Name, arns, policies{})}}, nil
	}
	x.Delete = p.deleteRole
	x.Blockers = p.roleBlockers
	return tidy(x)
}

// policiesOf is what a role may do.
func (p *Provider) policiesOf(ctx context.Context, role string) (have policies, err error) {
	err = pipeline.All(ctx,
		func(ctx context.Context) (err error) { have.attached, err = p.attachedPolicies(ctx, role); return err },
		func(ctx context.Context) (err error) { have.inline, err = p.inlinePolicies(ctx, role); return err },
	)
	if err != nil {
		return have, pipeline.Unseen(plain(err), "the policies of role "+role)
	}
	return have, nil
}

// justThese wants the policies on a role and no others.
func (p *Provider) justThese(role string, arns []string, have policies) pipeline.Aspect {
	return pipeline.Aspect{Name: "policies", Wanted: strings.Join(arns, ", "), Seen: have.String(), Set: func(ctx context.Context) error {
		for _, arn := range subtract(arns, have.attached) {
			if _, err := p.iam.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: aws.String(role), PolicyArn: aws.String(arn)}); err != nil {
				return err
			}
		}
		if err := p.detachPolicies(ctx, role, subtract(have.attached, arns)); err != nil {
			return err
		}
		return p.deleteInline(ctx, role, have.inline)
	}}
}

// addonRole is the ARN of an add-on's role; "" for one that needs none.
func (p *Provider) addonRole(r *pipeline.Run, a addon) string {
	if a.policy == "" {
		return ""
	}
	return p.roleARN(r, name(r, a.use, 64))
}

// isCluster reports whether a job is about a cluster.
func isCluster(j *job.Job) bool { return j.ResourceType == job.Cluster }
