package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// accessPolicies are EKS's own, by what they let somebody do ("Review access policy
// permissions").
var accessPolicies = map[cloud.AccessLevel]string{
	cloud.AccessAdmin: "AmazonEKSClusterAdminPolicy", cloud.AccessEdit: "AmazonEKSEditPolicy", cloud.AccessView: "AmazonEKSViewPolicy",
}

func accessPolicy(region string, level cloud.AccessLevel) string {
	return "arn:" + partition(region) + ":eks::aws:cluster-access-policy/" + accessPolicies[level]
}

// access lets the provisioner itself and those whom the spec names administer the
// cluster: nobody else gets in, the maker of the cluster neither.
func (b *clusterBuild) access(ctx context.Context) error {
	self := "(provisioner)"
	if b.r.Mode != pipeline.Plan {
		var err error
		if self, err = b.principal(ctx); err != nil {
			return err
		}
	}
	var parts []func(context.Context) error
	for _, x := range b.accessEntries(b.r, b.spec, self) {
		parts = append(parts, func(ctx context.Context) error {
			if _, err := b.r.Ensure(ctx, x); err != nil {
				return err
			}
			// Entries are spread within seconds ("Grant IAM users access to Kubernetes with
			// EKS access entries"): the API server lets nobody in before.
			return confirmOnce(ctx, b.r, x)
		})
	}
	return pipeline.All(ctx, parts...)
}

const selfKey = accessPref + "provisioner"

// accessEntries are the entries of the provisioner and of the spec's administrators.
// Credentials of another role than the one that began get an entry of their own.
func (p *Provider) accessEntries(r *pipeline.Run, spec job.ClusterSpec, self string) []pipeline.Resource {
	key := selfKey
	if rec, ok := r.Object(kindAccessEntry, key); ok && self != "" && rec.State == job.ObjectCreated && rec.Name != self {
		key = accessPref + job.Token(self)[:8]
	}
	var out []pipeline.Resource
	if self != "" {
		out = append(out, p.accessEntry(r, key, self))
	}
	for _, admin := range spec.Admins {
		if admin != self {
			out = append(out, p.accessEntry(r, accessPref+job.Token(admin)[:8], admin))
		}
	}
	return out
}

// principal is the IAM role or user whose credentials these are, by the ARN that an
// access entry takes. It is asked for again whenever the credentials have changed.
func (p *Provider) principal(ctx context.Context) (string, error) {
	key, err := p.keyInUse(ctx)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	known := p.principals[key]
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	out, err := p.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", plain(err)
	}
	arn, err := p.principalOf(ctx, aws.ToString(out.Arn))
	if err != nil {
		return "", err
	}
	// Credentials that were renewed on the way have been answered for with another key.
	if now, err := p.keyInUse(ctx); err != nil || now != key {
		return arn, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.principals) // one key is in use at a time
	p.principals[key] = arn
	return arn, nil
}

// principalOf is the role behind a session, with its path, which the session's ARN
// leaves out; a user is itself.
func (p *Provider) principalOf(ctx context.Context, arn string) (string, error) {
	part := strings.SplitN(arn, ":", 6)
	if len(part) < 6 || part[2] != "sts" {
		return arn, nil
	}
	kind, rest, _ := strings.Cut(part[5], "/")
	roleName, _, _ := strings.Cut(rest, "/")
	if kind != "assumed-role" || roleName == "" {
		return "", pipeline.Fatal("principal-not-supported", arn+" is neither an IAM role nor an IAM user, so Amazon EKS cannot let it into a cluster", "Use credentials of a role or a user.")
	}
	role, err := p.readRole(ctx, roleName)
	if err == nil {
		return aws.ToString(role.Arn), nil
	}
	// Without leave to read the role, its path is not known; most have none.
	return "arn:" + part[1] + ":iam::" + part[4] + ":role/" + roleName, pipeline.Unless(plain(err), pipeline.Denied, pipeline.NotFound)
}

func (p *Provider) readEntry(ctx context.Context, cluster, principal string) (ekstypes.AccessEntry, error) {
	return lookup.Once(ctx, kindAccessEntry+" "+cluster+" "+principal, func(ctx context.Context) (ekstypes.AccessEntry, error) {
		out, err := p.eks.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: aws.String(cluster), PrincipalArn: aws.String(principal)})
		if err != nil {
			return ekstypes.AccessEntry{}, err
		}
		if out.AccessEntry == nil {
			return ekstypes.AccessEntry{}, absent("EKS", "DescribeAccessEntry", "the access entry of "+principal)
		}
		return *out.AccessEntry, nil
	})
}

// entryPolicies are the policies that a principal has in all of a cluster.
func (p *Provider) entryPolicies(ctx context.Context, cluster, principal string) ([]string, error) {
	return lookup.Once(ctx, "access policies "+cluster+" "+principal, func(ctx context.Context) ([]string, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ekstypes.AssociatedAccessPolicy, *string, error) {
			out, err := p.eks.ListAssociatedAccessPolicies(ctx, &eks.ListAssociatedAccessPoliciesInput{ClusterName: aws.String(cluster), PrincipalArn: aws.String(principal), NextToken: token})
			if err != nil {
				return nil, nil, err
			}
			return out.AssociatedAccessPolicies, out.NextToken, nil
		})
		var arns []string
		for _, a := range all {
			if a.AccessScope == nil || a.AccessScope.Type == ekstypes.AccessScopeTypeCluster {
				arns = append(arns, aws.ToString(a.PolicyArn))
			}
		}
		return arns, err
	})
}

// accessEntry lets one principal administer the cluster.
func (p *Provider) accessEntry(r *pipeline.Run, key, principal string) pipeline.Resource {
	cluster := clusterNameOf(r.Job)
	policy := accessPolicy(p.region, cloud.AccessAdmin)
	x := pipeline.Resource{Kind: kindAccessEntry, Key: key, Name: principal, Args: []string{cluster, principal}, Tokened: true}
	may := func(have []string) pipeline.Aspect {
		a := pipeline.Aspect{Name: "policy", Wanted: policy, Seen: or(sortedList(have), "none"), Set: func(ctx context.Context) error {
			return p.associate(ctx, cluster, principal, policy)
		}}
		if slices.Contains(have, policy) {
			a.Seen = policy // others besides take nothing away
		}
		return a
	}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		e, err := p.readEntry(ctx, cluster, principal)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: aws.ToString(e.AccessEntryArn), Owner: eksMark(e.Tags), Status: pipeline.Ready}
		if r.Down {
			return s, nil
		}
		have, err := p.entryPolicies(ctx, cluster, principal)
		s.Aspects = []pipeline.Aspect{may(have)}
		return s, err
	}
	x.Find = eksNamed(r, x)
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		out, err := p.eks.CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{
			ClusterName: aws.String(cluster), PrincipalArn: aws.String(principal), ClientRequestToken: aws.String(token), Tags: tags(r, key, cluster),
		})
		if err != nil || out.AccessEntry == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.AccessEntry.AccessEntryArn), Owner: r.Job.ID, Status: pipeline.Ready, Aspects: []pipeline.Aspect{may(nil)}}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := p.eks.DeleteAccessEntry(ctx, &eks.DeleteAccessEntryInput{ClusterName: aws.String(cluster), PrincipalArn: aws.String(principal)})
		return err
	}
	return tidy(x)
}

func (p *Provider) associate(ctx context.Context, cluster, principal, policy string) error {
	_, err := p.eks.AssociateAccessPolicy(ctx, &eks.AssociateAccessPolicyInput{
		ClusterName: aws.String(cluster), PrincipalArn: aws.String(principal), PolicyArn: aws.String(policy), AccessScope: &ekstypes.AccessScope{Type: ekstypes.AccessScopeTypeCluster},
	})
	return err
}

// grantMark is on access entries that GrantAccess made, so that RevokeAccess deletes
// no entry that somebody else did.
const grantMark = job.MarkPrefix + "access"

// GrantAccess lets a principal use a cluster: an access entry with the one of EKS's
// policies that fits the level, and none of the others of its kind. Whatever else
// the principal may do there stays.
func (p *Provider) GrantAccess(ctx context.Context, ref job.ClusterRef, g cloud.AccessGrant) error {
	if err := p.here(ref); err != nil {
		return err
	}
	if accessPolicies[g.Level] == "" {
		return &pipeline.CloudError{Class: pipeline.Invalid, Service: "EKS", Op: "CreateAccessEntry", Message: fmt.Sprintf("%q is no level of access", g.Level)}
	}
	principal := g.Principal
	if principal == "" {
		var err error
		if principal, err = p.principal(ctx); err != nil {
			return err
		}
	}
	_, err := p.eks.CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{
		ClusterName: aws.String(ref.Name), PrincipalArn: aws.String(principal), Tags: map[string]string{grantMark: string(g.Level)},
	})
	if err := pipeline.Unless(plain(err), pipeline.Exists); err != nil {
		return err
	}
	if err := p.associate(ctx, ref.Name, principal, accessPolicy(p.region, g.Level)); err != nil {
		return plain(err)
	}
	return p.dissociate(ctx, ref.Name, principal, g.Level)
}

// dissociate takes the policies of all other levels away.
func (p *Provider) dissociate(ctx context.Context, cluster, principal string, keep cloud.AccessLevel) error {
	have, err := p.entryPolicies(ctx, cluster, principal)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	for level := range accessPolicies {
		arn := accessPolicy(p.region, level)
		if level == keep || !slices.Contains(have, arn) {
			continue
		}
		_, err := p.eks.DisassociateAccessPolicy(ctx, &eks.DisassociateAccessPolicyInput{ClusterName: aws.String(cluster), PrincipalArn: aws.String(principal), PolicyArn: aws.String(arn)})
		if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
			return err
		}
	}
	return nil
}

// RevokeAccess takes back what GrantAccess gave; the provisioner's own if no
// principal is named.
func (p *Provider) RevokeAccess(ctx context.Context, ref job.ClusterRef, principal string) error {
	if err := p.here(ref); err != nil {
		return err
	}
	if principal == "" {
		var err error
		if principal, err = p.principal(ctx); err != nil {
			return err
		}
	}
	e, err := p.readEntry(ctx, ref.Name, principal)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	if e.Tags[grantMark] == "" {
		return p.dissociate(ctx, ref.Name, principal, "")
	}
	_, err = p.eks.DeleteAccessEntry(ctx, &eks.DeleteAccessEntryInput{ClusterName: aws.String(ref.Name), PrincipalArn: aws.String(principal)})
	return pipeline.Unless(plain(err), pipeline.NotFound)
}

// here refuses a cluster of another region than the clients'.
func (p *Provider) here(ref job.ClusterRef) error {
	if ref.Region != "" && ref.Region != p.region {
		return &pipeline.CloudError{Class: pipeline.Invalid, Service: "EKS", Op: "DescribeCluster", Message: fmt.Sprintf("cluster %s is in %s, and these are the clients of %s", ref.Name, ref.Region, p.region)}
	}
	return nil
}
