package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/spaces/configv1"
)

// place settles whose a new job is and which cloud account it works in: names
// become IDs. What the caller may not make there is refused. A remediation job
// belongs to its subject's team, a component job to its space's.
func (s *Service) place(ctx context.Context, policy access.Policy, r *CreateRequest, to bound) error {
	p, err := access.Require(ctx, policy)
	if err != nil {
		return err
	}
	if to.subject == nil && !to.bySpace {
		if r.Team, err = s.teamFor(ctx, p, policy, r.Team); err != nil {
			return err
		}
		return s.placeAccount(ctx, p.OrgID, r)
	}
	team := to.team
	if to.subject != nil {
		team = to.subject.TeamID
	}
	if r.Team != "" {
		if named, err := access.GetTeam(ctx, s.Ledger.DB(), p.OrgID, r.Team); err != nil || named.ID != team {
			return invalid(job.FieldError{Field: "team", Message: "is not the team of what the job is about", Fix: "leave it out: a component job belongs to its space's team, a remediation job to its subject's"})
		}
	}
	r.Team = team
	return s.placeAccount(ctx, p.OrgID, r)
}

// placeAccount settles the cloud account that a job works in, and those that its
// spec names besides.
func (s *Service) placeAccount(ctx context.Context, org string, r *CreateRequest) error {
	a, err := s.workAccount(ctx, org, r, r.CloudAccountID)
	if err != nil {
		return err
	}
	r.CloudAccountID = a.ID
	return s.placePeerings(ctx, org, r)
}

// workAccount is accountFor, for a job that makes something unless it adopts.
func (s *Service) workAccount(ctx context.Context, org string, r *CreateRequest, ref string) (*accounts.Account, error) {
	a, err := s.accountFor(ctx, org, r.Team, ref, r.Provider)
	if err == nil && a.Level == accounts.ReadOnly && r.Mode != job.ModeAdopt {
		return nil, invalid(job.FieldError{Field: "cloudAccountId", Message: fmt.Sprintf("the cloud account %s is read_only, so nothing can be made with it", a.Name), Fix: "use an account with permissionLevel read_write, or mode adopt"})
	}
	return a, err
}

// accountFor finds the cloud account that something of a team is to be made in.
// An account that another team has to itself is not there.
func (s *Service) accountFor(ctx context.Context, org, team, ref string, at job.Provider) (*accounts.Account, error) {
	if ref == "" {
		ref = accounts.Default
	}
	none := func(message string) error {
		return invalid(job.FieldError{Field: "cloudAccountId", Message: message, Fix: "GET /cloud-accounts lists those that there are; POST makes one"})
	}
	a, err := s.accountNamed(ctx, org, ref)
	switch {
	case err == nil && a.TeamID != "" && a.TeamID != team && s.seesAccount(ctx, a):
		return nil, s.anotherTeams(ctx, a, team)
	case errors.Is(err, cloud.ErrNoAccount), err == nil && a.TeamID != "" && a.TeamID != team:
		return nil, none(fmt.Sprintf("%.60q is not a cloud account of your organisation%s", ref, ofTeam(team)))
	case err != nil:
		return nil, err
	case a.Provider != "" && at != "" && a.Provider != at:
		return nil, none(fmt.Sprintf("the cloud account %s is at %s, and the job is for %s", a.Name, a.Provider, at))
	}
	return a, nil
}

// seesAccount says whether the caller may know of an account.
func (s *Service) seesAccount(ctx context.Context, a *accounts.Account) bool {
	p, known := access.From(ctx)
	return known && p.OrgID == a.OrgID && (p.Over(access.CloudAccountView).Covers(a.TeamID, a.ID) || mayUse(p, a))
}

// mayUse says whether a caller may have jobs made in an account: one of a team where
// the caller makes jobs, or one of no team, which all of them share.
func mayUse(p access.Principal, a *accounts.Account) bool {
	may := p.Over(access.JobCreate)
	return may.All || a.TeamID == "" && len(may.Teams) > 0 || may.Covers(a.TeamID)
}

// anotherTeams tells somebody who may see an account which team has it to itself.
func (s *Service) anotherTeams(ctx context.Context, a *accounts.Account, team string) error {
	has := a.TeamID
	switch t, err := access.GetTeam(ctx, s.Ledger.DB(), a.OrgID, a.TeamID); {
	case err == nil:
		has = t.Name
	case !errors.Is(err, access.ErrNoTeam):
		return err
	}
	of := "no team"
	if team != "" {
		of = "another team"
	}
	return invalid(job.FieldError{Field: "cloudAccountId", Message: fmt.Sprintf("the cloud account %s is for the team %s alone, and the job is of %s", a.Name, has, of),
		Fix: "set team to " + has + " when you make the job, or use another account"})
}

// accountNamed finds an organisation's cloud account by its ID or its name.
func (s *Service) accountNamed(ctx context.Context, org, ref string) (*accounts.Account, error) {
	if s.Accounts != nil {
		return s.Accounts.Get(ctx, s.Ledger.DB(), org, ref)
	}
	if ref != accounts.Default {
		return nil, cloud.ErrNoAccount
	}
	return &accounts.Account{ID: accounts.Default, OrgID: org, Name: accounts.Default, Level: accounts.ReadWrite, Configured: true}, nil
}

func ofTeam(team string) string {
	if team == "" {
		return ""
	}
	return ", or not one that the job's team may use"
}

// accountOver finds a cloud account for a caller: one that the caller may neither
// see nor use is not there, one without the policy over it is refused.
func (s *Service) accountOver(ctx context.Context, p access.Principal, policy access.Policy, ref string) (*accounts.Account, error) {
	none := &Refusal{Kind: NotFound, Message: "there is no such cloud account in your organisation", Hint: "GET /cloud-accounts lists those that there are."}
	if !refRE.MatchString(ref) {
		return nil, none
	}
	a, err := s.accountNamed(ctx, p.OrgID, ref)
	switch {
	case errors.Is(err, cloud.ErrNoAccount), err == nil && !p.Over(access.CloudAccountView, policy).Covers(a.TeamID, a.ID) && !mayUse(p, a):
		return nil, none
	case err != nil:
		return nil, err
	}
	return a, over(p, policy, "cloud account "+a.Name, a.TeamID, a.ID)
}

// mayPutInto refuses a caller who may only look at a space, and a space in which
// nothing can be changed: what is put into it is a Secret with a service's credentials.
func (s *Service) mayPutInto(ctx context.Context, p access.Principal, sp *configv1.Space) error {
	may, err := s.seenSpaces(ctx, p, access.ComponentInstall, sp)
	if err == nil && len(may) == 0 {
		may, err = s.seenSpaces(ctx, p, access.SpaceManage, sp)
	}
	if err == nil && len(may) == 0 {
		err = &access.DeniedError{Policy: access.ComponentInstall, Actor: p.Actor, On: "space " + sp.GetName()}
	}
	if err != nil {
		return err
	}
	team, err := s.teamOfSpace(ctx, p.OrgID, sp)
	if err != nil {
		return err
	}
	return s.writable(ctx, p.OrgID, team, sp)
}

// writable refuses to change what is in a space whose cloud account is read_only.
func (s *Service) writable(ctx context.Context, org, team string, sp *configv1.Space) error {
	a, err := s.accountFor(ctx, org, team, accountOf(sp), job.Provider(sp.GetProvider()))
	if err == nil && a.Level == accounts.ReadOnly {
		err = refuse(WrongState, "Give the account permissionLevel read_write, or use another.", "the cloud account %s of the space %s is read_only", a.Name, sp.GetName())
	}
	return err
}

// A bar is why no work may begin on a job; nil: it may.
type bar struct {
	refusal *Refusal
	holds   bool // the job made something
}

// barred says whether work may begin on a job: not while its cloud account is
// read_only. It would be taken, and fail at its first change. A job that adopted is
// never barred: it changes nothing, and is only disconnected.
func (s *Service) barred(ctx context.Context, j *job.Job) (*bar, error) {
	if !j.Owns() {
		return nil, nil //nolint:nilnil // there is no bar
	}
	a, err := s.accountNamed(ctx, j.OrgID, j.CloudAccountID)
	if errors.Is(err, cloud.ErrNoAccount) || err == nil && a.Level != accounts.ReadOnly {
		return nil, nil //nolint:nilnil // there is no bar
	}
	if err != nil {
		return nil, err
	}
	objects, err := s.Ledger.Objects(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	holds := len(objects) > 0 || j.Status == job.Completed || j.Phase == job.PhaseUpdate
	return &bar{holds: holds, refusal: &Refusal{Kind: WrongState, Job: j.ID,
		Message: fmt.Sprintf("the cloud account %s of the job %s is read_only, so nothing of it can be changed or removed", a.Name, j.Name),
		Hint:    fmt.Sprintf(`Give the account permissionLevel read_write (PATCH /cloud-accounts/%s), then ask again.`, a.Name)}}, nil
}

// stops refuses a change of a job that has work begin. A teardown of what made
// nothing only looks.
func (b *bar) stops(before, after *job.Job) error {
	starts := after.State().Active() && (after.State() != before.State() || after.Run != before.Run) || after.Cancelling && !before.Cancelling
	nothing := !b.holds && (after.Cancelling || after.Phase == job.PhaseTeardown)
	if !starts || nothing || after.CloudAccountID != before.CloudAccountID {
		return nil
	}
	return b.refusal
}

// movedDraft settles the cloud account of a draft whose account or mode is changed.
func (s *Service) movedDraft(ctx context.Context, j *job.Job, r *PatchRequest) error {
	if r.CloudAccountID == nil && r.Mode == nil || j.Status != job.Draft {
		return nil
	}
	ask := CreateRequest{CloudAccountID: j.CloudAccountID, Mode: j.Mode, Team: j.TeamID, Provider: j.Provider}
	if r.CloudAccountID != nil {
		ask.CloudAccountID = *r.CloudAccountID
	}
	if r.Mode != nil {
		ask.Mode = *r.Mode
	}
	if err := s.placeAccount(ctx, j.OrgID, &ask); err != nil {
		return err
	}
	if r.CloudAccountID != nil {
		r.CloudAccountID = &ask.CloudAccountID
	}
	return nil
}
