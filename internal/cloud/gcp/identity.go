package gcp

import (
	"cmp"
	"context"
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

// EnsureIdentity makes the account that the VMs or nodes run as, and grants it its
// roles; for a cluster also the key that encrypts its secrets.
func (p *Provider) EnsureIdentity(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	switch r.Job.ResourceType {
	case job.Cluster:
		return p.ensureClusterIdentity(ctx, r)
	case job.Datastore, job.Cache:
		return p.ensureDatastoreIdentity(ctx, r)
	}
	account := p.serviceAccount(r)
	if _, err := p.ensure(ctx, r, account); err != nil {
		return err
	}
	learn(r, &r.Job.Config.InfraConfig.ServiceAccount, p.accountEmail(r))
	// The policy takes an account only once it knows of it (failure kind D8).
	if _, err := p.ensure(ctx, r, p.vmBinding(r)); err != nil {
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
	switch r.Job.ResourceType {
	case job.Cluster:
		return p.removeClusterIdentity(ctx, r)
	case job.Datastore, job.Cache:
		return p.removeDatastoreIdentity(ctx, r)
	}
	if err := r.Remove(ctx, p.vmBinding(r)); err != nil {
		return err
	}
	return r.Remove(ctx, p.serviceAccount(r))
}

// accountID is the account's name in the project: 6 to 30 characters.
func accountID(j *job.Job) string {
	if j.ResourceType == job.Cluster {
		return j.ResourceName("nodes", 30)
	}
	return j.ResourceName("vm", 30)
}

// accountTitle is what people see the account called.
func accountTitle(j *job.Job) string {
	if j.ResourceType == job.Cluster {
		return "Nodes of " + j.Name
	}
	return "VMs of " + j.Name
}

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
			ServiceAccount: &iam.ServiceAccount{DisplayName: accountTitle(r.Job), Description: r.Job.MarkText(accountKey)},
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
