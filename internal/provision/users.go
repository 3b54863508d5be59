package provision

import (
	"context"
	"errors"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// A UserPatch keeps a user out, or lets one in again.
type UserPatch struct {
	Disabled *bool `json:"disabled" doc:"true: the user's sessions end, and no other begins; false: the user may sign in again"`
}

// ListUsers lists the people who have signed in to the caller's organisation.
func (s *Service) ListUsers(ctx context.Context, limit int, cursor string) (items []access.Person, next string, err error) {
	p, err := s.userManager(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := cursorOK(cursor); err != nil {
		return nil, "", err
	}
	if items, err = access.ListPeople(ctx, s.Ledger.DB(), p.OrgID, cursor, limit+1); err != nil {
		return nil, "", err
	}
	items, next = nextPage(items, limit, func(u access.Person) string { return u.ID })
	return items, next, nil
}

// GetUser reads one of them by ID.
func (s *Service) GetUser(ctx context.Context, id string) (*access.Person, error) {
	p, err := s.userManager(ctx)
	if err != nil {
		return nil, err
	}
	return userOf(ctx, s.Ledger.DB(), p.OrgID, id)
}

// userManager is a caller who sees people: they are the whole organisation's.
func (s *Service) userManager(ctx context.Context) (access.Principal, error) {
	p, err := s.viewer(ctx, access.RoleManage)
	if err == nil {
		if err = overAll(p, access.RoleManage, "the whole organisation"); err != nil {
			err = refusalOf(err)
		}
	}
	return p, err
}

func userOf(ctx context.Context, q db.Q, org, id string) (*access.Person, error) {
	if !refRE.MatchString(id) {
		return nil, missing("user", "/users")
	}
	u, err := access.FindPerson(ctx, q, org, id)
	if errors.Is(err, access.ErrMissing) {
		return nil, missing("user", "/users")
	}
	return u, err
}

// PatchUser keeps a user out, or lets one in again. Who lets somebody in gives what
// that user holds, and has to hold it too. The last admin cannot be kept out.
func (s *Service) PatchUser(ctx context.Context, id string, r UserPatch) (*access.Person, error) {
	if r.Disabled == nil {
		return nil, s.refused(ctx, access.RoleManage, id, invalid(job.FieldError{Field: "disabled", Message: "is missing", Fix: "say true or false"}))
	}
	var u *access.Person
	err := s.changeAccess(ctx, access.RoleManage, id, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		if err := overAll(p, access.RoleManage, "the whole organisation"); err != nil {
			return audit.Entry{}, err
		}
		var err error
		if u, err = userOf(ctx, tx, p.OrgID, id); err != nil {
			return audit.Entry{}, err
		}
		if !*r.Disabled {
			if err := mayLetIn(ctx, tx, p, u); err != nil {
				return audit.Entry{}, err
			}
		}
		ended, err := access.Disable(ctx, tx, p.OrgID, u.ID, *r.Disabled)
		if err != nil {
			return audit.Entry{}, err
		}
		if *r.Disabled {
			if err := access.KeepAdmin(ctx, tx, p.OrgID, s.SignIn); err != nil {
				return audit.Entry{}, err
			}
		}
		u.Disabled = *r.Disabled
		return audit.Entry{Action: "user:update", ResourceType: "user", ResourceID: u.ID, Detail: map[string]any{"disabled": u.Disabled, "sessionsEnded": ended}}, nil
	})
	if err != nil {
		return nil, err
	}
	return u, nil
}

// mayLetIn refuses to let in somebody who would hold more than the caller does.
func mayLetIn(ctx context.Context, tx db.Q, p access.Principal, u *access.Person) error {
	held, err := access.Grants(ctx, tx, p.OrgID, u.Subjects())
	if err != nil {
		return err
	}
	for _, g := range held {
		team := ""
		if g.Scope.Kind == access.ResourceScope {
			if team, err = access.ResourceTeam(ctx, tx, p.OrgID, g.Scope.ID); err != nil && !errors.Is(err, access.ErrMissing) {
				return err
			}
		}
		if !p.Holds(g, team) {
			return &Refusal{Kind: Forbidden, Message: p.Actor + " cannot let this user in, for the user holds the role " + g.Role + " for " + g.Scope.String() + ", and " + p.Actor + " does not hold all of it there",
				Hint: "Ask somebody who does."}
		}
	}
	return nil
}
