package provision

import (
	"context"
	"errors"
	"slices"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// A TeamRequest makes a team, or gives one another name.
type TeamRequest struct {
	Name string `json:"name" doc:"1 to 63 of A-Z, a-z, 0-9, hyphen and underscore"`
}

// seenTeams are the teams that a caller sees: all of them who holds anything for the
// whole organisation, else those at which the caller holds something.
func seenTeams(p access.Principal) job.Visible {
	var v job.Visible
	for _, g := range p.Grants {
		switch {
		case len(g.Policies) == 0:
		case g.Scope.Kind == access.OrgScope:
			v.All = true
		case g.Scope.Kind == access.TeamScope:
			v.Teams = append(v.Teams, g.Scope.ID)
		}
	}
	slices.Sort(v.Teams)
	v.Teams = slices.Compact(v.Teams)
	return v
}

// ListTeams lists the teams that the caller sees, by name.
func (s *Service) ListTeams(ctx context.Context, limit int, cursor string) (items []access.Team, next string, err error) {
	p, ok := access.From(ctx)
	if !ok {
		return nil, "", refusalOf(access.ErrUnauthenticated)
	}
	if err := cursorOK(cursor); err != nil {
		return nil, "", err
	}
	items, err = access.ListTeams(ctx, s.Ledger.DB(), p.OrgID, seenTeams(p), cursor, limit+1)
	if err != nil {
		return nil, "", err
	}
	items, next = nextPage(items, limit, func(t access.Team) string { return t.Name })
	return items, next, nil
}

// GetTeam reads a team that the caller sees, by its ID or its name.
func (s *Service) GetTeam(ctx context.Context, ref string) (*access.Team, error) {
	p, ok := access.From(ctx)
	if !ok {
		return nil, refusalOf(access.ErrUnauthenticated)
	}
	t, err := teamOf(ctx, s.Ledger.DB(), p.OrgID, ref)
	if err == nil && !seenTeams(p).Covers(t.ID) {
		return nil, missing("team", "/teams")
	}
	return t, err
}

func teamOf(ctx context.Context, q db.Q, org, ref string) (*access.Team, error) {
	if !refRE.MatchString(ref) {
		return nil, missing("team", "/teams")
	}
	t, err := access.GetTeam(ctx, q, org, ref)
	if errors.Is(err, access.ErrNoTeam) {
		return nil, missing("team", "/teams")
	}
	return t, err
}

// CreateTeam makes a team.
func (s *Service) CreateTeam(ctx context.Context, r TeamRequest) (*access.Team, error) {
	if fields := checkName(r.Name); len(fields) > 0 {
		return nil, s.refused(ctx, access.RoleManage, "", invalid(fields...))
	}
	t := &access.Team{Name: r.Name}
	err := s.changeAccess(ctx, access.RoleManage, "", func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		if err := overAll(p, access.RoleManage, "the whole organisation"); err != nil {
			return audit.Entry{}, err
		}
		t.OrgID, t.CreatedBy = p.OrgID, p.Actor
		if err := access.AddTeam(ctx, tx, t); err != nil {
			return audit.Entry{}, teamTaken(err)
		}
		return audit.Entry{Action: "team:create", ResourceType: "team", ResourceID: t.ID, Detail: map[string]any{"name": t.Name}}, nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

func teamTaken(err error) error {
	if errors.Is(err, access.ErrTaken) {
		return nameInUse("another team of your organisation has the name")
	}
	return err
}

// PatchTeam gives a team another name.
func (s *Service) PatchTeam(ctx context.Context, ref string, r TeamRequest) (*access.Team, error) {
	if fields := checkName(r.Name); len(fields) > 0 {
		return nil, s.refused(ctx, access.RoleManage, ref, invalid(fields...))
	}
	var t *access.Team
	err := s.changeTeam(ctx, ref, func(ctx context.Context, tx db.Q, p access.Principal, is *access.Team) (audit.Entry, error) {
		before := is.Name
		if err := access.RenameTeam(ctx, tx, p.OrgID, is.ID, r.Name); err != nil {
			return audit.Entry{}, teamTaken(err)
		}
		is.Name, t = r.Name, is
		return audit.Entry{Action: "team:update", Detail: map[string]any{"name": r.Name, "before": before}}, nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// DeleteTeam removes a team to which nothing belongs any more, with the assignments
// at it.
func (s *Service) DeleteTeam(ctx context.Context, ref string) error {
	return s.changeTeam(ctx, ref, func(ctx context.Context, tx db.Q, p access.Principal, t *access.Team) (audit.Entry, error) {
		use, err := access.UseOf(ctx, tx, p.OrgID, t.ID)
		if err != nil {
			return audit.Entry{}, err
		}
		if use != (access.TeamUse{}) {
			return audit.Entry{}, refuse(WrongState, "Tear its jobs down and delete its cloud accounts first.", "the team %s still has %d jobs and %d cloud accounts", t.Name, use.Jobs, use.Accounts)
		}
		n, err := access.DeleteTeam(ctx, tx, p.OrgID, t.ID)
		if err != nil {
			return audit.Entry{}, err
		}
		return audit.Entry{Action: "team:delete", Detail: map[string]any{"name": t.Name, "assignmentsRemoved": n}}, nil
	})
}

func (s *Service) changeTeam(ctx context.Context, ref string, fn func(ctx context.Context, tx db.Q, p access.Principal, t *access.Team) (audit.Entry, error)) error {
	return s.changeAccess(ctx, access.RoleManage, ref, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		if err := overAll(p, access.RoleManage, "the whole organisation"); err != nil {
			return audit.Entry{}, err
		}
		t, err := teamOf(ctx, tx, p.OrgID, ref)
		if err != nil {
			return audit.Entry{}, err
		}
		e, err := fn(ctx, tx, p, t)
		e.ResourceType, e.ResourceID = "team", t.ID
		return e, err
	})
}
