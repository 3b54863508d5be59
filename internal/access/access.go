// Package access says who a request comes from and what that principal may do.
// Nothing is allowed by default: a principal without a grant that has a policy
// is refused, and so is a context without a principal.
//
// A grant is a role held at a scope: the whole organisation, one team, or one
// resource. [Require] asks whether a policy is held anywhere at all, which is
// enough to go on and look; [Principal.Over] says over what it is held, and every
// use case asks that before it shows or changes a thing.
package access

import (
	"context"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// DefaultOrg is the organisation that an installation starts with.
const DefaultOrg = "default"

// A ScopeKind says how wide a grant reaches.
type ScopeKind string

// The scopes, the widest first.
const (
	OrgScope      ScopeKind = "org"
	TeamScope     ScopeKind = "team"
	ResourceScope ScopeKind = "resource"
)

// A Scope is what a grant is for. ID is the team's or the resource's, and "" for
// the organisation.
type Scope struct {
	Kind ScopeKind `json:"kind" enum:"org,team,resource" doc:"org: the whole organisation; team: everything of one team; resource: one job, space or cloud account"`
	ID   string    `json:"id,omitempty" doc:"The team's or the resource's ID"`
}

// String is the scope as the audit log writes it, such as "org" or "team:team_…".
func (s Scope) String() string {
	if s.ID == "" {
		return string(s.Kind)
	}
	return string(s.Kind) + ":" + s.ID
}

// A Grant is a role held at a scope.
type Grant struct {
	Role     string   `json:"role"` // its name
	Scope    Scope    `json:"scope"`
	Policies []Policy `json:"policies"` // what the role holds now

	Assignment string `json:"assignment,omitempty" doc:"The ID of the assignment that gives it; absent: configuration does"`
}

// A Principal is who a request comes from.
type Principal struct {
	OrgID  string // everything it sees or makes belongs to this organisation
	Actor  string // as the audit log writes it, such as "token:bootstrap" or "user:ada@example.com"
	Grants []Grant

	// Subjects are whose assignments the grants are: a token, or a person with the
	// groups that the person is in. Empty: the grants come from no assignment.
	Subjects []Subject

	// Session is the hash of the secret of the session that a request came in with;
	// "": it came with none.
	Session string
}

// Of is a principal with built-in roles over its whole organisation.
func Of(org, actor string, roles ...string) Principal {
	p := Principal{OrgID: org, Actor: actor}
	for _, r := range roles {
		p.Grants = append(p.Grants, Grant{Role: r, Scope: Scope{Kind: OrgScope}, Policies: BuiltIn(r)})
	}
	return p
}

// System is the provisioner itself, at work for an organisation: it may do
// everything there.
func System(org, actor string) Principal { return Of(org, actor, Admin) }

// Over says over what the principal holds one of the policies.
func (p Principal) Over(anyOf ...Policy) job.Visible {
	var v job.Visible
	for _, g := range p.Grants {
		if !slices.ContainsFunc(anyOf, func(policy Policy) bool { return slices.Contains(g.Policies, policy) }) {
			continue
		}
		switch g.Scope.Kind {
		case OrgScope:
			v.All = true
		case TeamScope:
			v.Teams = append(v.Teams, g.Scope.ID)
		case ResourceScope:
			v.IDs = append(v.IDs, g.Scope.ID)
		}
	}
	return v
}

// Through is the widest scope at which the principal holds a policy over a
// resource, for the audit log; false if it does not.
func (p Principal) Through(policy Policy, team string, ids ...string) (Scope, bool) {
	best, found := Scope{}, false
	width := func(k ScopeKind) int { return slices.Index([]ScopeKind{ResourceScope, TeamScope, OrgScope}, k) }
	for _, g := range p.Grants {
		covers := g.Scope.Kind == OrgScope || g.Scope.ID != "" && (g.Scope.Kind == TeamScope && g.Scope.ID == team || g.Scope.Kind == ResourceScope && slices.Contains(ids, g.Scope.ID))
		if covers && slices.Contains(g.Policies, policy) && (!found || width(g.Scope.Kind) > width(best.Kind)) {
			best, found = g.Scope, true
		}
	}
	return best, found
}

// Holds reports whether the principal has everything of a grant over everything
// that it is for, so that nobody can give away what they do not hold. What a
// team's member holds covers that team; single resources are covered by
// themselves, and by the team that the caller of Holds says they belong to.
func (p Principal) Holds(g Grant, team string) bool {
	for _, policy := range g.Policies {
		over := p.Over(policy)
		switch {
		case over.All:
		case g.Scope.Kind == TeamScope && slices.Contains(over.Teams, g.Scope.ID):
		case g.Scope.Kind == ResourceScope && over.Covers(team, g.Scope.ID):
		default:
			return false
		}
	}
	return true
}

type principalKey struct{}

// With puts a principal into the context of its request, whose statements then see
// and write the rows of the principal's organisation alone.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(db.WithOrg(ctx, p.OrgID), principalKey{}, p)
}

// From is the principal of a context; false if the request has none.
func From(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok && p.OrgID != "" && p.Actor != ""
}

// Require returns the context's principal if it holds the policy over anything.
// The error is [ErrUnauthenticated] or a *[DeniedError].
func Require(ctx context.Context, policy Policy) (Principal, error) {
	p, ok := From(ctx)
	if !ok {
		return Principal{}, ErrUnauthenticated
	}
	if p.Over(policy).Nothing() {
		return p, &DeniedError{Policy: policy, Actor: p.Actor}
	}
	return p, nil
}

// A DeniedError is a principal that lacks a policy, altogether or over one thing.
type DeniedError struct {
	Policy Policy
	Actor  string
	On     string // what it lacks the policy over; "": anything
}

func (e *DeniedError) Error() string {
	if e.On != "" {
		return fmt.Sprintf("%s may not do this to %s: it needs the policy %s there", e.Actor, e.On, e.Policy)
	}
	return fmt.Sprintf("%s may not do this: it needs the policy %s", e.Actor, e.Policy)
}
