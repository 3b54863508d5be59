package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A VerifyRequest says what a verification asks of a cloud.
type VerifyRequest struct {
	Provider job.Provider       `json:"provider,omitempty" enum:"aws,gcp,azure" doc:"Which cloud, for an account that is at several, such as default"`
	Region   string             `json:"region,omitempty" doc:"Where to ask; us-east-1, us-central1 or eastus, if left out"`
	Families []job.ResourceType `json:"families,omitempty" doc:"Whose permissions to look for: cluster, datastore, cache, network, vm; all of them, if left out"`
}

var verifyRegions = map[job.Provider]string{job.AWS: "us-east-1", job.GCP: "us-central1", job.Azure: "eastus"}

// families are those that have permissions of their own at a cloud.
var accountFamilies = []job.ResourceType{job.Cache, job.Cluster, job.Datastore, job.Network, job.VM}

// VerifyAccount asks the cloud whose credentials an account has, which regions
// they can use and what they lack. What is found is kept with the account; that it
// is not as it should be is no error of the request.
func (s *Service) VerifyAccount(ctx context.Context, ref string, r VerifyRequest) (*accounts.Findings, error) {
	const policy = access.CloudAccountManage
	p, err := access.Require(ctx, policy)
	if err != nil {
		return nil, s.refused(ctx, policy, ref, err)
	}
	a, err := s.accountOver(ctx, p, policy, ref)
	if err == nil {
		err = r.settle(a)
	}
	if err != nil {
		return nil, s.refused(ctx, policy, ref, err)
	}
	v, err := s.verifyAccount(ctx, a, r)
	if err != nil {
		return nil, s.refused(ctx, policy, a.ID, err)
	}
	err = s.mutate(ctx, policy, a.ID, func(ctx context.Context, tx db.Q, _ access.Principal) (audit.Entry, error) {
		e := audit.Entry{Action: "cloud-account:verify", ResourceID: a.ID, Detail: withoutEmpty(map[string]any{"name": a.Name, "ok": v.OK, "code": v.Code})}
		if a.Configured {
			return e, nil
		}
		holder := ""
		if v.Identity != nil {
			holder = v.Identity.Holder
		}
		return e, s.Accounts.Record(ctx, tx, a, *v, holder)
	})
	return v, err
}

func (r *VerifyRequest) settle(a *accounts.Account) error {
	switch {
	case r.Provider == "":
		r.Provider = a.Provider
	case a.Provider != "" && r.Provider != a.Provider:
		return invalid(job.FieldError{Field: "provider", Message: fmt.Sprintf("the account is at %s", a.Provider), Fix: "leave it out"})
	}
	if r.Provider == "" {
		return invalid(job.FieldError{Field: "provider", Message: "is missing: the account is the server's own identity at every cloud", Fix: "use aws, gcp or azure"})
	}
	if verifyRegions[r.Provider] == "" {
		return invalid(job.FieldError{Field: "provider", Message: fmt.Sprintf("%.40q is not a cloud", string(r.Provider)), Fix: "use aws, gcp or azure"})
	}
	if r.Region == "" {
		r.Region = verifyRegions[r.Provider]
	}
	if !refRE.MatchString(r.Region) {
		return invalid(job.FieldError{Field: "region", Message: fmt.Sprintf("%.40q is not a region", r.Region), Fix: "give the cloud's own name of one"})
	}
	for _, f := range r.Families {
		if !slices.Contains(accountFamilies, f) {
			return invalid(job.FieldError{Field: "families", Message: fmt.Sprintf("%.40q has no permissions of its own", string(f)), Fix: "use cache, cluster, datastore, network or vm"})
		}
	}
	if len(r.Families) == 0 {
		r.Families = accountFamilies
	}
	return nil
}

// verifyAccount asks the cloud. A cloud that does not answer, or refuses the
// credentials, is a finding; the error is only for what keeps one from asking.
func (s *Service) verifyAccount(ctx context.Context, a *accounts.Account, r VerifyRequest) (*accounts.Findings, error) {
	if s.Clouds == nil {
		return nil, refuse(CloudNotAvailable, "Ask a server that has access to clouds.", "this server has no access to any cloud")
	}
	v := &accounts.Findings{At: s.Now().UTC()}
	failed := func(err error) (*accounts.Findings, error) {
		var why *Refusal
		if !errors.As(asked(err), &why) {
			return nil, err
		}
		v.Code, v.Message, v.Hint = "cloud-not-available", why.Message, why.Hint
		var ce *pipeline.CloudError
		var fatal *pipeline.FatalError
		if errors.As(err, &ce) {
			v.Code = string(ce.Class)
		} else if errors.As(err, &fatal) {
			v.Code = fatal.Problem.Code
		}
		return v, nil
	}
	ctx = pipeline.WithGate(ctx, pipeline.ReadOnly)
	provider, err := s.Clouds.Open(ctx, &job.Job{OrgID: a.OrgID, TeamID: a.TeamID, CloudAccountID: a.ID, Provider: r.Provider, Region: r.Region})
	if err != nil {
		return failed(err)
	}
	checker, ok := provider.(cloud.AccountChecker)
	if !ok {
		return nil, refuse(WrongState, "Ask at another cloud.", "accounts of %s cannot be verified", r.Provider)
	}
	who, err := checker.CallerIdentity(ctx)
	if err != nil {
		return failed(err)
	}
	v.Identity = &who
	if a.Holder != "" && who.Holder != a.Holder {
		v.Code = "other-holder"
		v.Message = fmt.Sprintf("the credentials belong to %s, and the account %s was made for %s", who.Holder, a.Name, a.Holder)
		v.Hint = "Give it credentials of " + a.Holder + ", or make another account for " + who.Holder + "."
		return v, nil
	}
	for _, f := range r.Families {
		report, err := checker.Permissions(ctx, f, a.Level == accounts.ReadOnly)
		if err != nil {
			return failed(err)
		}
		v.Permissions = append(v.Permissions, report)
	}
	judge(v, r.Provider)
	return v, nil
}

// toAsk is what lets credentials ask a cloud for their own permissions.
var toAsk = map[job.Provider]string{
	job.AWS:   "Use a role or a user, and grant it iam:SimulatePrincipalPolicy on itself",
	job.GCP:   "Enable the Cloud Resource Manager API (cloudresourcemanager.googleapis.com) in the project, and grant the service account resourcemanager.projects.get on it",
	job.Azure: "Grant the application Microsoft.Authorization/permissions/read on the subscription",
}

// judge says what the reports of the families come to. What could not be asked is
// not known to be there: that is not ok either.
func judge(v *accounts.Findings, at job.Provider) {
	v.OK = true
	for _, report := range v.Permissions {
		switch {
		case len(report.Missing) > 0:
			v.OK, v.Code = false, "missing-permissions"
			v.Message = "the credentials lack permissions that jobs need"
			v.Hint = "Give them what permissions lists; GET /catalog/policies has the whole of it, ready to be used."
			return
		case report.Unknown != "" && v.OK:
			v.OK, v.Code = false, "permissions-unknown"
			v.Message = "the credentials work, and what they may do is not known: " + report.Unknown
			v.Hint = toAsk[at] + ", then verify again; GET /catalog/policies has the whole of what jobs need."
		}
	}
}
