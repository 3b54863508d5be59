package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	cloudresourcemanager "google.golang.org/api/cloudresourcemanager/v3"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A projectGrant is that the project's policy gives a member a role.
type projectGrant struct {
	key    string // its place in the job
	role   string
	member string // such as serviceAccount:name@project.iam.gserviceaccount.com

	// cluster is the ID of the one cluster that the grant holds for; "": for the
	// whole project.
	cluster string
}

// about is the member without its kind, for a person.
func (g projectGrant) about() string {
	_, name, _ := strings.Cut(g.member, ":")
	return or(name, g.member)
}

// condition is what limits the grant; nil if nothing does. Permissions on what is
// in a cluster are checked against the cluster's name or one below it ("Resource
// attributes for IAM Conditions").
func (g projectGrant) condition() *cloudresourcemanager.Expr {
	if g.cluster == "" {
		return nil
	}
	return &cloudresourcemanager.Expr{Title: "cluster " + base(g.cluster), Expression: onlyCluster(g.cluster)}
}

func onlyCluster(id string) string {
	return fmt.Sprintf("resource.name == %q || resource.name.startsWith(%q)", id, id+"/")
}

// fits reports whether a binding is the grant's: of its role, and limited as it is.
func (g projectGrant) fits(b *cloudresourcemanager.Binding) bool {
	if b.Role != g.role {
		return false
	}
	c := g.condition()
	return c == nil && b.Condition == nil || c != nil && b.Condition != nil && b.Condition.Expression == c.Expression
}

// vmBinding is the one role of the VMs' account.
func (p *Provider) vmBinding(r *pipeline.Run) pipeline.Resource {
	return p.binding(r, projectGrant{key: bindingKey, role: vmRole, member: "serviceAccount:" + p.accountEmail(r)})
}

// binding is a grant of the job in the project's policy. It has neither an ID of
// Google's nor marks: the account's address or the cluster's name, which hold a
// hash of the job, tell that it is ours.
func (p *Provider) binding(r *pipeline.Run, g projectGrant) pipeline.Resource {
	id := "projects/" + p.project + "/iamBindings/" + g.role + "/" + g.member
	if g.cluster != "" {
		id += "/" + base(g.cluster)
	}
	x := pipeline.Resource{Kind: kindBinding, Key: g.key, Name: g.role + " of " + g.about()}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		policy, err := lookup.Once(ctx, "policy of the project", p.readPolicy)
		if err != nil {
			return pipeline.Seen{}, err
		}
		for _, b := range policy.Bindings {
			if g.fits(b) && slices.ContainsFunc(b.Members, isMember(g.member)) {
				return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Ready}, nil
			}
		}
		return pipeline.Seen{}, absent(serviceCRM, "projects.getIamPolicy", x.Name)
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) { return found(x.Get(ctx, id)) }
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		err := p.changePolicy(ctx, func(policy *cloudresourcemanager.Policy) bool { return grant(policy, g) })
		return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Ready}, err
	}
	x.Delete = func(ctx context.Context, _ string) error {
		return p.changePolicy(ctx, func(policy *cloudresourcemanager.Policy) bool { return revoke(policy, g) })
	}
	return x
}

// isMember reports whether a member of a binding is the one that is meant, or
// what is left of it once it was deleted.
func isMember(meant string) func(string) bool {
	return func(member string) bool {
		return member == meant || strings.HasPrefix(member, "deleted:"+meant+"?")
	}
}

// grant adds a member to the binding of a role; false if it is there.
func grant(policy *cloudresourcemanager.Policy, g projectGrant) bool {
	for _, b := range policy.Bindings {
		if g.fits(b) {
			if slices.Contains(b.Members, g.member) {
				return false
			}
			b.Members = append(b.Members, g.member)
			return true
		}
	}
	b := &cloudresourcemanager.Binding{Role: g.role, Members: []string{g.member}, Condition: g.condition()}
	if b.Condition != nil {
		policy.Version = policyVersion
	}
	policy.Bindings = append(policy.Bindings, b)
	return true
}

// revoke takes a member off the bindings of a role, and with the last member the
// binding; false if it was in none.
func revoke(policy *cloudresourcemanager.Policy, g projectGrant) bool {
	changed := false
	for _, b := range policy.Bindings {
		if g.fits(b) && slices.ContainsFunc(b.Members, isMember(g.member)) {
			b.Members = slices.DeleteFunc(b.Members, isMember(g.member))
			changed = true
		}
	}
	policy.Bindings = slices.DeleteFunc(policy.Bindings, func(b *cloudresourcemanager.Binding) bool {
		return g.fits(b) && len(b.Members) == 0
	})
	return changed
}

// changePolicy reads the project's policy, changes it and writes it back. The
// etag makes Google refuse if somebody else has changed it meanwhile, and then
// the whole is done again: nobody else's binding is ever lost.
func (p *Provider) changePolicy(ctx context.Context, edit func(*cloudresourcemanager.Policy) bool) error {
	const tries = 4
	for try := 1; ; try++ {
		policy, err := p.readPolicy(ctx)
		if err != nil {
			return err
		}
		if policy.Etag == "" {
			return fmt.Errorf("the policy of project %s came without an etag, so it cannot be changed safely", p.project)
		}
		if !edit(policy) {
			return nil
		}
		_, err = send(ctx, p.crm.Projects.SetIamPolicy("projects/"+p.project, &cloudresourcemanager.SetIamPolicyRequest{Policy: policy}))
		if err == nil || try == tries || !pipeline.Is(err, pipeline.Busy) {
			return err
		}
	}
}
