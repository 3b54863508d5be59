package provision

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// A Permission is a policy that somebody holds, and through what.
type Permission struct {
	Policy access.Policy `json:"policy"`
	Held   []Through     `json:"held" doc:"Each way in which it is held, the oldest assignment first"`
}

// Through is one way in which a policy is held.
type Through struct {
	Role       string       `json:"role"`
	Scope      access.Scope `json:"scope"`
	Assignment string       `json:"assignment,omitempty" doc:"The ID of the assignment; absent: the configuration of sign-in gives it"`
}

// Permissions is what somebody may do.
type Permissions struct {
	Subject     string       `json:"subject" doc:"Who: kind and ID"`
	Resource    string       `json:"resource,omitempty" doc:"The resource that the permissions are for; absent: all of them, each where it is held"`
	Works       bool         `json:"works" doc:"Whether the subject can come in at all: false for a token that was revoked or has expired"`
	Permissions []Permission `json:"permissions"`
}

// WhoAmI is the caller, as the server sees it.
type WhoAmI struct {
	Organisation access.Org   `json:"organisation"`
	Actor        string       `json:"actor" doc:"As the audit log names the caller"`
	Permissions  []Permission `json:"permissions" doc:"What the caller may do, and through what"`
}

// permissions turns grants round: by policy, those that cover the place if there is
// one.
func permissions(grants []access.Grant, at *place) []Permission {
	held := map[access.Policy][]Through{}
	for _, g := range grants {
		if at != nil && !at.coveredBy(g.Scope) {
			continue
		}
		for _, p := range g.Policies {
			held[p] = append(held[p], Through{Role: g.Role, Scope: g.Scope, Assignment: g.Assignment})
		}
	}
	out := []Permission{}
	for p, through := range held {
		out = append(out, Permission{Policy: p, Held: through})
	}
	slices.SortFunc(out, func(a, b Permission) int { return strings.Compare(string(a.Policy), string(b.Policy)) })
	return out
}

// coveredBy reports whether a place is among what a scope is for.
func (pl place) coveredBy(sc access.Scope) bool {
	switch sc.Kind {
	case access.OrgScope:
		return true
	case access.TeamScope:
		return pl.team != "" && sc.ID == pl.team
	}
	return sc.ID == pl.ID
}

// WhoAmI says who the caller is and what the caller may do.
func (s *Service) WhoAmI(ctx context.Context) (*WhoAmI, error) {
	p, ok := access.From(ctx)
	if !ok {
		return nil, refusalOf(access.ErrUnauthenticated)
	}
	org, err := access.GetOrg(ctx, s.Ledger.DB(), p.OrgID)
	if err != nil {
		return nil, err
	}
	return &WhoAmI{Organisation: *org, Actor: p.Actor, Permissions: permissions(p.Grants, nil)}, nil
}

// EffectivePermissions is what a subject may do, of what the caller manages, and
// through which assignment; on one job, space or cloud account if one is named. A
// user's groups are those of the last sign-in.
func (s *Service) EffectivePermissions(ctx context.Context, subject, resource string) (*Permissions, error) {
	p, err := s.viewer(ctx, access.RoleManage)
	if err != nil {
		return nil, err
	}
	kind, id, ok := strings.Cut(subject, ":")
	if !ok {
		return nil, invalid(job.FieldError{Field: "subject", Message: fmt.Sprintf("%.80q names nobody", subject), Fix: "write token:<ID or name>, user:<ID or e-mail address> or group:<name>"})
	}
	scope := access.Scope{Kind: access.ResourceScope, ID: resource}
	spaces, err := s.spaceJobs(ctx, scope)
	if err != nil {
		return nil, err
	}
	q := s.Ledger.DB()
	var at *place
	if resource != "" {
		pl, err := where(ctx, q, p, access.RoleManage, "resource", &scope, spaces)
		if err != nil {
			return nil, resourceField(err)
		}
		at = &pl
	}
	out := &Permissions{Resource: resource, Works: true}
	subjects, err := s.subjects(ctx, q, p, access.Subject{Kind: access.SubjectKind(kind), ID: id}, out)
	if err != nil {
		return nil, err
	}
	all, err := access.AssignmentsOf(ctx, q, p.OrgID, subjects)
	if err != nil {
		return nil, err
	}
	var grants []access.Grant
	for _, a := range all {
		ok, err := managed(ctx, q, p, access.RoleManage, []access.Assignment{a}, nil)
		if err != nil {
			return nil, err
		}
		if ok {
			grants = append(grants, a.Grant())
		}
	}
	out.Permissions = permissions(grants, at)
	return out, nil
}

// resourceField names the field of a scope as this question has it.
func resourceField(err error) error {
	if r, ok := err.(*Refusal); ok { //nolint:errorlint // where returns it plain
		for i := range r.Fields {
			r.Fields[i].Field = "resource"
		}
		again := invalid(r.Fields...)
		r.Message, r.Hint = again.Message, again.Hint
	}
	return err
}

// subjects are all under whose names somebody holds something.
func (s *Service) subjects(ctx context.Context, q db.Q, p access.Principal, sub access.Subject, out *Permissions) ([]access.Subject, error) {
	if sub.Kind == access.SubjectToken {
		t, _, err := s.tokenOf(ctx, q, p, access.RoleManage, sub.ID)
		if err != nil {
			return nil, err
		}
		sub.ID, out.Works = t.ID, t.State == access.TokenLive
		out.Subject = "token:" + t.ID
		return []access.Subject{sub}, nil
	}
	checked, err := subjectOfRequest(ctx, q, p.OrgID, "subject", &sub)
	if err != nil {
		return nil, err
	}
	out.Subject = string(checked.Kind) + ":" + checked.ID
	if checked.Kind != access.SubjectUser {
		return []access.Subject{checked}, nil
	}
	known, enabled, err := access.UserSubjects(ctx, q, p.OrgID, checked.ID)
	if err != nil {
		return nil, err
	}
	if len(known) == 0 {
		return []access.Subject{checked}, nil
	}
	out.Works = enabled
	return known, nil
}
