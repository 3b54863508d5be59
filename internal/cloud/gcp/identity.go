package gcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	cloudresourcemanager "google.golang.org/api/cloudresourcemanager/v3"
	"google.golang.org/api/iam/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindServiceAccount = "iam:service-account"
	kindBinding        = "iam:project-binding"

	accountKey = "account"
	bindingKey = "log-writer"
)

// vmRole is the one role of the VMs' account. The exec channel itself needs none:
// OS Login and Identity-Aware Proxy look at the person who comes. The guest and
// OS Config agents write to Cloud Logging what they let in and do ("VM Manager
// troubleshooting"), and need this for it.
const vmRole = "roles/logging.logWriter"

// EnsureIdentity makes the account that the VMs run as, and grants it its role.
func (p *Provider) EnsureIdentity(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	account := p.serviceAccount(r)
	if _, err := p.ensure(ctx, r, account); err != nil {
		return err
	}
	learn(r, &r.Job.Config.InfraConfig.ServiceAccount, p.accountEmail(r))
	// The policy takes an account only once it knows of it (failure kind D8).
	if _, err := p.ensure(ctx, r, p.binding(r)); err != nil {
		return visible(r, "the role of the VMs' account", err)
	}
	return nil
}

// RemoveIdentity takes the role from the account, then deletes the account: the
// other way round the policy would keep a member that no longer exists.
func (p *Provider) RemoveIdentity(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	if err := r.Remove(ctx, p.binding(r)); err != nil {
		return err
	}
	return r.Remove(ctx, p.serviceAccount(r))
}

// accountID is the account's name in the project: 6 to 30 characters.
func accountID(j *job.Job) string { return j.ResourceName("vm", 30) }

func (p *Provider) accountEmail(r *pipeline.Run) string { return emailOf(accountID(r.Job), p.project) }

// emailOf is an account's address. Projects of a domain have it in their ID.
func emailOf(id, project string) string {
	if domain, name, ok := strings.Cut(project, ":"); ok {
		project = name + "." + domain
	}
	return id + "@" + project + ".iam.gserviceaccount.com"
}

func (p *Provider) readAccount(ctx context.Context, id string) (*iam.ServiceAccount, error) {
	return lookup.Once(ctx, kindServiceAccount+" "+id, func(ctx context.Context) (*iam.ServiceAccount, error) {
		return send(ctx, p.iam.Projects.ServiceAccounts.Get(id))
	})
}

func (p *Provider) serviceAccount(r *pipeline.Run) pipeline.Resource {
	id := "projects/" + p.project + "/serviceAccounts/" + p.accountEmail(r)
	x := pipeline.Resource{Kind: kindServiceAccount, Key: accountKey, Name: accountID(r.Job)}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		got, err := p.readAccount(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		owner, _ := textMark(got.Description)
		s := pipeline.Seen{ID: id, Owner: cmp.Or(owner, pipeline.Unmarked), Status: pipeline.Ready}
		if !r.Down {
			s.Aspects = []pipeline.Aspect{{Name: "enabled", Wanted: "yes", Seen: yesNo(!got.Disabled), Set: func(ctx context.Context) error {
				_, err := send(ctx, p.iam.Projects.ServiceAccounts.Enable(id, &iam.EnableServiceAccountRequest{}))
				return err
			}}}
		}
		return s, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) { return found(x.Get(ctx, id)) }
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		_, err := send(ctx, p.iam.Projects.ServiceAccounts.Create("projects/"+p.project, &iam.CreateServiceAccountRequest{
			AccountId:      x.Name,
			ServiceAccount: &iam.ServiceAccount{DisplayName: "VMs of " + r.Job.Name, Description: r.Job.MarkText(accountKey)},
		}))
		if err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Pending}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := send(ctx, p.iam.Projects.ServiceAccounts.Delete(id))
		return err
	}
	return x
}

// accounts are the service accounts of the project.
func (p *Provider) accounts() lookup.Kind[*iam.ServiceAccount] {
	mark := func(a *iam.ServiceAccount) (string, string) { return textMark(a.Description) }
	return lookup.Kind[*iam.ServiceAccount]{
		Name: kindServiceAccount, One: p.readAccount, Mark: mark,
		ID: func(a *iam.ServiceAccount) string { return a.Name },
		List: func(ctx context.Context, owner string) ([]*iam.ServiceAccount, error) {
			all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*iam.ServiceAccount, *string, error) {
				out, err := send(ctx, p.iam.Projects.ServiceAccounts.List("projects/"+p.project).PageSize(100).PageToken(text(token)))
				if err != nil {
					return nil, nil, err
				}
				return out.Accounts, &out.NextPageToken, nil
			})
			return slices.DeleteFunc(all, func(a *iam.ServiceAccount) bool {
				who, _ := mark(a)
				return who != owner
			}), err
		},
	}
}

// found is what a look-up by name answers: what is there, ours or not, or nothing.
func found(s pipeline.Seen, err error) ([]pipeline.Seen, error) {
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []pipeline.Seen{s}, nil
}

// policyVersion is the one that shows conditions; read in an older one and
// written back, a policy would lose them ("Policy versions").
const policyVersion = 3

func (p *Provider) readPolicy(ctx context.Context) (*cloudresourcemanager.Policy, error) {
	return send(ctx, p.crm.Projects.GetIamPolicy("projects/"+p.project, &cloudresourcemanager.GetIamPolicyRequest{
		Options: &cloudresourcemanager.GetPolicyOptions{RequestedPolicyVersion: policyVersion},
	}))
}

// binding is that the project's policy gives the VMs' account its role. It has
// neither an ID of Google's nor marks: the account's address, which holds a hash
// of the job, tells that it is ours.
func (p *Provider) binding(r *pipeline.Run) pipeline.Resource {
	email := p.accountEmail(r)
	id := "projects/" + p.project + "/iamBindings/" + vmRole + "/serviceAccount:" + email
	x := pipeline.Resource{Kind: kindBinding, Key: bindingKey, Name: vmRole + " of " + email}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		policy, err := lookup.Once(ctx, "policy of the project", p.readPolicy)
		if err != nil {
			return pipeline.Seen{}, err
		}
		for _, b := range policy.Bindings {
			if b.Role == vmRole && b.Condition == nil && slices.ContainsFunc(b.Members, isMember(email)) {
				return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Ready}, nil
			}
		}
		return pipeline.Seen{}, absent(serviceCRM, "projects.getIamPolicy", x.Name)
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) { return found(x.Get(ctx, id)) }
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		err := p.changePolicy(ctx, func(policy *cloudresourcemanager.Policy) bool { return grant(policy, vmRole, "serviceAccount:"+email) })
		return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Ready}, err
	}
	x.Delete = func(ctx context.Context, _ string) error {
		return p.changePolicy(ctx, func(policy *cloudresourcemanager.Policy) bool { return revoke(policy, vmRole, isMember(email)) })
	}
	return x
}

// isMember reports whether a member of a binding is an account, or what is left
// of it once it was deleted.
func isMember(email string) func(string) bool {
	return func(member string) bool {
		return member == "serviceAccount:"+email || strings.HasPrefix(member, "deleted:serviceAccount:"+email+"?")
	}
}

// grant adds a member to a role's unconditional binding; false if it is there.
func grant(policy *cloudresourcemanager.Policy, role, member string) bool {
	for _, b := range policy.Bindings {
		if b.Role == role && b.Condition == nil {
			if slices.Contains(b.Members, member) {
				return false
			}
			b.Members = append(b.Members, member)
			return true
		}
	}
	policy.Bindings = append(policy.Bindings, &cloudresourcemanager.Binding{Role: role, Members: []string{member}})
	return true
}

// revoke takes a member off a role's unconditional bindings, and with the last
// member the binding; false if it was in none.
func revoke(policy *cloudresourcemanager.Policy, role string, member func(string) bool) bool {
	changed := false
	for _, b := range policy.Bindings {
		if b.Role == role && b.Condition == nil && slices.ContainsFunc(b.Members, member) {
			b.Members = slices.DeleteFunc(b.Members, member)
			changed = true
		}
	}
	policy.Bindings = slices.DeleteFunc(policy.Bindings, func(b *cloudresourcemanager.Binding) bool {
		return b.Role == role && b.Condition == nil && len(b.Members) == 0
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
