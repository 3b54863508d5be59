package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/spaces/configv1"
)

// over refuses a caller who may see a thing and lacks the policy over it. team is
// the team that it belongs to, ids are its own and those of what it is part of.
func over(p access.Principal, policy access.Policy, what, team string, ids ...string) error {
	if p.Over(policy).Covers(team, ids...) {
		return nil
	}
	return &access.DeniedError{Policy: policy, Actor: p.Actor, On: what}
}

// widest is the widest scope at which a principal holds a policy.
func widest(p access.Principal, policy access.Policy) (access.Scope, bool) {
	over := p.Over(policy)
	switch {
	case over.All:
		return access.Scope{Kind: access.OrgScope}, true
	case len(over.Teams) > 0:
		return access.Scope{Kind: access.TeamScope, ID: over.Teams[0]}, true
	case len(over.IDs) > 0:
		return access.Scope{Kind: access.ResourceScope, ID: over.IDs[0]}, true
	}
	return access.Scope{}, false
}

// overJob is over for a job.
func overJob(p access.Principal, policy access.Policy, j *job.Job) error {
	return over(p, policy, string(j.ResourceType)+" "+j.Name, j.TeamID, j.ID)
}

// requireOver refuses a caller who lacks the policy over a job that was found for
// the sake of another policy.
func requireOver(ctx context.Context, policy access.Policy, j *job.Job) error {
	p, err := access.Require(ctx, policy)
	if err != nil {
		return err
	}
	return overJob(p, policy, j)
}

// overAll refuses a caller who lacks the policy over the whole organisation, for
// what belongs to no team.
func overAll(p access.Principal, policy access.Policy, what string) error {
	return over(p, policy, what, "")
}

// teamFor is the team that a new thing belongs to: the one that is named, or the
// caller's only one if the caller may make such things in one team alone.
func (s *Service) teamFor(ctx context.Context, p access.Principal, policy access.Policy, ref string) (string, error) {
	may := p.Over(policy)
	if ref == "" {
		switch {
		case may.All:
			return "", nil
		case len(may.Teams) == 0:
			return "", &access.DeniedError{Policy: policy, Actor: p.Actor, On: "anything new"}
		}
		teams := slices.Compact(slices.Sorted(slices.Values(may.Teams)))
		if len(teams) > 1 {
			return "", invalid(job.FieldError{Field: "team", Message: "is missing, and you may do this in several teams", Fix: "name one of " + strings.Join(teams, ", ")})
		}
		return teams[0], nil
	}
	team, err := access.GetTeam(ctx, s.Ledger.DB(), p.OrgID, ref)
	if errors.Is(err, access.ErrNoTeam) || err == nil && !may.Covers(team.ID) && !p.Over(access.JobView).Covers(team.ID) {
		return "", invalid(job.FieldError{Field: "team", Message: fmt.Sprintf("%.60q is not a team of your organisation", ref), Fix: "GET /teams lists them; leave it out for the organisation as a whole"})
	}
	if err != nil {
		return "", err
	}
	return team.ID, over(p, policy, "team "+ref, team.ID)
}

// seenSpaces are those of the spaces that the caller may see, by the policy: a
// space belongs to the team of the job that registered it.
func (s *Service) seenSpaces(ctx context.Context, p access.Principal, policy access.Policy, all ...*configv1.Space) ([]*configv1.Space, error) {
	may := p.Over(policy)
	if may.All || len(all) == 0 {
		return all, nil
	}
	var jobs []string
	for _, sp := range all {
		if id := sp.GetJobId(); id != "" {
			jobs = append(jobs, id)
		}
	}
	teams, err := s.Ledger.TeamsOf(ctx, p.OrgID, jobs)
	if err != nil {
		return nil, err
	}
	var out []*configv1.Space
	for _, sp := range all {
		if may.Covers(teams[sp.GetJobId()], sp.GetId(), sp.GetJobId()) {
			out = append(out, sp)
		}
	}
	return out, nil
}

// overSpace finds a space for a caller: one that the caller may not see is not
// there, one without the policy over it is refused.
func (s *Service) overSpace(ctx context.Context, p access.Principal, policy access.Policy, ref string) (*configv1.Space, error) {
	got, err := s.space(ctx, p, ref)
	if err != nil {
		return nil, err
	}
	may, err := s.seenSpaces(ctx, p, policy, got)
	if err == nil && len(may) == 0 {
		err = &access.DeniedError{Policy: policy, Actor: p.Actor, On: "space " + got.GetName()}
	}
	return got, err
}

// teamOfSpace is the team of the job that registered a space; "" if none did.
func (s *Service) teamOfSpace(ctx context.Context, org string, sp *configv1.Space) (string, error) {
	teams, err := s.Ledger.TeamsOf(ctx, org, []string{sp.GetJobId()})
	return teams[sp.GetJobId()], err
}
