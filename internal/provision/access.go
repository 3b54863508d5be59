package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// changeAccess runs a change of who may do what. It holds the organisation's lock,
// so that what it checks still is so when it is committed, and it goes by what the
// caller holds at that moment, not by what the caller held when the request came.
func (s *Service) changeAccess(ctx context.Context, policy access.Policy, resource string, fn func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error)) error {
	return s.mutate(ctx, policy, resource, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		if err := access.LockOrg(ctx, tx, p.OrgID); err != nil {
			if errors.Is(err, access.ErrNoOrg) {
				err = refuse(NotFound, "Ask whoever runs this installation.", "your organisation is not there")
			}
			return audit.Entry{}, err
		}
		p, err := access.Renew(ctx, tx, p)
		if err != nil {
			return audit.Entry{}, err
		}
		if p.Over(policy).Nothing() {
			return audit.Entry{}, &access.DeniedError{Policy: policy, Actor: p.Actor}
		}
		e, err := fn(ctx, tx, p)
		return e, accessRefusal(err)
	})
}

// accessRefusal puts the errors of package access into words.
func accessRefusal(err error) error {
	switch {
	case errors.Is(err, access.ErrLastAdmin):
		return &Refusal{Kind: WrongState, Message: access.ErrLastAdmin.Error(), Hint: "Make another admin first: an assignment of the role Admin with the scope org.", Cause: err}
	case errors.Is(err, access.ErrTaken):
		return nameInUse("something else has the name")
	}
	return err
}

func nameInUse(text string) *Refusal {
	return &Refusal{Kind: NameTaken, Message: text, Hint: "Choose another name.", Fields: []job.FieldError{{Field: "name", Message: text, Fix: "choose another name"}}}
}

// missing is something of the kinds that access knows which is not there.
func missing(what, list string) *Refusal {
	return &Refusal{Kind: NotFound, Message: "there is no such " + what + " in your organisation", Hint: "GET " + list + " lists what there is."}
}

// checkName refuses what cannot be the name of a token, a role, a team, a cloud
// account or a webhook.
func checkName(name string) []job.FieldError {
	if access.GoodName(name) {
		return nil
	}
	if job.LooksLikeID(name) {
		return []job.FieldError{{Field: "name", Message: fmt.Sprintf("%q looks like an ID, and would be taken for the thing that has it", name), Fix: "choose another name"}}
	}
	return []job.FieldError{{Field: "name", Message: fmt.Sprintf("%.70q is not a name", name), Fix: access.NameRule}}
}

// A place is a scope that exists, with the team that it lies in.
type place struct {
	access.Scope
	team string
}

// within reports whether a place lies within what is covered.
func (pl place) within(v job.Visible) bool {
	switch pl.Kind {
	case access.OrgScope:
		return v.All
	case access.TeamScope:
		return v.Covers(pl.ID)
	}
	return v.Covers(pl.team, pl.ID)
}

// spaceJobs are the jobs that registered the spaces among some scopes, by the
// space's ID: asked before a transaction begins, for the registry may be elsewhere.
func (s *Service) spaceJobs(ctx context.Context, scopes ...access.Scope) (map[string]string, error) {
	out := map[string]string{}
	p, _ := access.From(ctx)
	for _, sc := range scopes {
		if sc.Kind != access.ResourceScope || !strings.HasPrefix(sc.ID, "spc_") || !refRE.MatchString(sc.ID) || p.OrgID == "" {
			continue
		}
		if s.Spaces == nil {
			continue // then there are none
		}
		sp, err := s.Spaces.Get(ctx, p.OrgID, sc.ID)
		if err != nil {
			return nil, spaceService(err)
		}
		if sp != nil && sp.GetId() == sc.ID {
			out[sc.ID] = sp.GetJobId()
		}
	}
	return out, nil
}

// where checks a scope that a caller wrote: what it names has to exist, and the
// caller has to hold the policy there. What does not exist and what the caller has
// no business with are answered alike.
func where(ctx context.Context, tx db.Q, p access.Principal, policy access.Policy, at string, sc *access.Scope, spaces map[string]string) (place, error) {
	wrong := func(field, message, fix string) error {
		return invalid(job.FieldError{Field: at + field, Message: message, Fix: fix})
	}
	if sc == nil || sc.Kind == "" {
		return place{}, wrong("", "is missing", `give {"kind":"org"}, {"kind":"team","id":…} or {"kind":"resource","id":…}`)
	}
	pl, found := place{Scope: *sc}, false
	var err error
	switch sc.Kind {
	case access.OrgScope:
		if sc.ID != "" {
			return pl, wrong(".id", "is given for a whole organisation", "leave it out: it is always your own")
		}
		return pl, overAll(p, policy, "the whole organisation")
	case access.TeamScope:
		var t *access.Team
		if t, err = teamOf(ctx, tx, p.OrgID, sc.ID); err == nil {
			pl.ID, found = t.ID, true
		}
	case access.ResourceScope:
		pl.team, found, err = resourceTeam(ctx, tx, p.OrgID, sc.ID, spaces)
	default:
		return pl, wrong(".kind", fmt.Sprintf("%.40q is no kind of scope", sc.Kind), "use org, team or resource")
	}
	var none *Refusal
	switch {
	case err != nil && !errors.As(err, &none):
		return pl, err
	case found && pl.within(p.Over(policy)):
		return pl, nil
	case sc.Kind == access.TeamScope:
		return pl, wrong(".id", fmt.Sprintf("%.80q is not a team of your organisation in which you may do this", sc.ID), "GET /teams lists them")
	}
	return pl, wrong(".id", fmt.Sprintf("%.80q is not a job, space or cloud account of your organisation in which you may do this", sc.ID), "give the whole ID of one: job_…, spc_… or ca_…")
}

// resourceTeam is the team that a resource belongs to; a space belongs to that of
// the job that registered it.
func resourceTeam(ctx context.Context, tx db.Q, org, id string, spaces map[string]string) (team string, found bool, err error) {
	if !refRE.MatchString(id) {
		return "", false, nil
	}
	ref := id
	if from, ok := spaces[id]; ok {
		if from == "" {
			return "", true, nil
		}
		ref = from
	} else if !strings.HasPrefix(id, "job_") && !strings.HasPrefix(id, "ca_") {
		return "", false, nil
	}
	team, err = access.ResourceTeam(ctx, tx, org, ref)
	if errors.Is(err, access.ErrMissing) {
		return "", ref != id, nil
	}
	return team, err == nil, err
}

// mayGive refuses to give what the caller does not hold.
func mayGive(p access.Principal, role *access.Role, pl place) error {
	var lacks []string
	for _, policy := range role.Policies {
		if !p.Holds(access.Grant{Scope: pl.Scope, Policies: []access.Policy{policy}}, pl.team) {
			lacks = append(lacks, string(policy))
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return &Refusal{
		Kind: Forbidden, Message: fmt.Sprintf("%s cannot give the role %s for %s, for it does not hold %s there", p.Actor, role.Name, pl.Scope, strings.Join(lacks, ", ")),
		Hint: "Nobody can give what they do not hold. Give a role of what you hold, or ask somebody who has the role.",
	}
}

// managed reports whether everything that some assignments give lies within what
// the caller manages. What has no assignment is for those who manage everything.
func managed(ctx context.Context, q db.Q, p access.Principal, policy access.Policy, all []access.Assignment, spaces map[string]string) (bool, error) {
	over := p.Over(policy)
	if over.All {
		return true, nil
	}
	for _, a := range all {
		pl := place{Scope: a.Scope}
		if a.Scope.Kind == access.ResourceScope {
			var err error
			if pl.team, _, err = resourceTeam(ctx, q, p.OrgID, a.Scope.ID, spaces); err != nil {
				return false, err
			}
		}
		if !pl.within(over) {
			return false, nil
		}
	}
	return len(all) > 0, nil
}

// nextPage cuts a list that was asked for with one item too many, and says where
// the page after it begins.
func nextPage[T any](items []T, limit int, id func(T) string) (page []T, next string) {
	if len(items) <= limit {
		return items, ""
	}
	return items[:limit:limit], id(items[limit-1])
}

// cursorOK refuses what cannot be a cursor of a list by ID or name.
func cursorOK(cursor string) error {
	if cursor == "" || refRE.MatchString(cursor) {
		return nil
	}
	return invalid(job.FieldError{Field: "cursor", Message: "is not a cursor of this list", Fix: "use nextCursor of the page before, or leave it out"})
}
