package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// A SubjectKind says who holds a role.
type SubjectKind string

// The kinds of subjects.
const (
	SubjectToken SubjectKind = "token"
	SubjectUser  SubjectKind = "user"
	SubjectGroup SubjectKind = "group"
)

// A Subject is who holds a role. ID is a token's ID; a user's ID, verified e-mail
// address in lower case, or, for a machine, machine:issuer/subject; or a group's
// name as the issuer claims it.
type Subject struct {
	Kind SubjectKind `json:"kind" enum:"token,user,group"`
	ID   string      `json:"id" doc:"A token's ID or name; a user's ID or verified e-mail address, for a machine machine:issuer/subject; a group as the issuer names it"`
}

// An Assignment gives a role at a scope to a subject.
type Assignment struct {
	ID        string    `json:"id"`
	OrgID     string    `json:"-"`
	Subject   Subject   `json:"subject"`
	RoleID    string    `json:"roleId" doc:"The role's ID; its name, if it is built in"`
	Role      string    `json:"role" doc:"The role's name"`
	Policies  []Policy  `json:"-"` // what the role holds now
	Scope     Scope     `json:"scope"`
	CreatedBy string    `json:"createdBy"`
	CreatedAt time.Time `json:"createdAt"`
}

// Grant is what the assignment gives.
func (a Assignment) Grant() Grant {
	return Grant{Role: a.Role, Scope: a.Scope, Policies: a.Policies, Assignment: a.ID}
}

// MakesAdmin reports whether it makes an admin of its subject: one of those of whom
// [KeepAdmin] keeps the last.
func (a Assignment) MakesAdmin() bool { return a.RoleID == Admin && a.Scope.Kind == OrgScope }

const assignmentColumns = `a.id, a.org_id, a.subject_kind, a.subject, a.role, coalesce(r.name, ''), coalesce(r.policies, ''), a.scope_kind, a.scope_id, a.created_by, a.created_at`

const assignmentsFrom = ` FROM assignments a LEFT JOIN roles r ON r.org_id = a.org_id AND r.id = a.role WHERE `

func scanAssignment(row scanner) (Assignment, error) {
	var (
		a              Assignment
		kind, scope    string
		name, policies string
		created        int64
	)
	if err := row.Scan(&a.ID, &a.OrgID, &kind, &a.Subject.ID, &a.RoleID, &name, &policies, &scope, &a.Scope.ID, &a.CreatedBy, &created); err != nil {
		return a, err
	}
	a.Subject.Kind, a.Scope.Kind, a.CreatedAt = SubjectKind(kind), ScopeKind(scope), fromMicros(created)
	if name == "" {
		a.Role, a.Policies = a.RoleID, BuiltIn(a.RoleID)
		return a, nil
	}
	a.Role = name
	if err := json.Unmarshal([]byte(policies), &a.Policies); err != nil {
		return a, fmt.Errorf("role %s: %w", a.RoleID, err)
	}
	return a, nil
}

// AddAssignment stores an assignment, unless there is the very same: then that one
// is returned, and made is false.
func AddAssignment(ctx context.Context, tx db.Q, a Assignment) (got *Assignment, made bool, err error) {
	a.ID = job.NewID("asg")
	n, err := tx.Exec(ctx, `INSERT INTO assignments (id, org_id, subject_kind, subject, role, scope_kind, scope_id, created_by, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, (SELECT `+db.Now(tx.Dialect())+`)) ON CONFLICT DO NOTHING`,
		a.ID, a.OrgID, string(a.Subject.Kind), a.Subject.ID, a.RoleID, string(a.Scope.Kind), a.Scope.ID, a.CreatedBy)
	if err != nil {
		return nil, false, fmt.Errorf("assignment: %w", err)
	}
	is, err := scanAssignment(tx.QueryRow(ctx, `SELECT `+assignmentColumns+assignmentsFrom+`a.org_id = $1 AND a.subject_kind = $2 AND a.subject = $3 AND a.role = $4 AND a.scope_kind = $5 AND a.scope_id = $6`,
		a.OrgID, string(a.Subject.Kind), a.Subject.ID, a.RoleID, string(a.Scope.Kind), a.Scope.ID))
	if err != nil {
		return nil, false, fmt.Errorf("assignment: %w", err)
	}
	return &is, n > 0, nil
}

// FindAssignment reads an organisation's assignment; [ErrMissing].
func FindAssignment(ctx context.Context, q db.Q, org, id string) (*Assignment, error) {
	a, err := scanAssignment(q.QueryRow(ctx, `SELECT `+assignmentColumns+assignmentsFrom+`a.org_id = $1 AND a.id = $2`, org, id))
	if errors.Is(err, db.ErrNoRows) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("assignment: %w", err)
	}
	return &a, nil
}

// AssignmentFilter chooses assignments; what is empty does not count.
type AssignmentFilter struct {
	Subject Subject // Kind alone, or with an ID
	RoleID  string
	Scope   Scope // Kind alone, or with an ID
	After   string
	Limit   int
}

// ListAssignments lists those of an organisation's assignments that are for nothing
// beyond what is seen, the newest first.
func ListAssignments(ctx context.Context, q db.Q, org string, see job.Visible, f AssignmentFilter) ([]Assignment, error) {
	c := &clause{}
	where := []string{"a.org_id = " + c.arg(org)}
	for _, by := range []struct{ column, value string }{
		{"subject_kind", string(f.Subject.Kind)}, {"subject", f.Subject.ID}, {"role", f.RoleID}, {"scope_kind", string(f.Scope.Kind)}, {"scope_id", f.Scope.ID},
	} {
		if by.value != "" {
			where = append(where, "a."+by.column+" = "+c.arg(by.value))
		}
	}
	if f.After != "" {
		where = append(where, "a.id < "+c.arg(f.After))
	}
	if !see.All {
		where = append(where, c.within(see))
	}
	return gather(ctx, q, "assignments", scanAssignment, `SELECT `+assignmentColumns+assignmentsFrom+strings.Join(where, " AND ")+` ORDER BY a.id DESC LIMIT `+c.arg(int64(f.Limit)), c.args...)
}

// AssignmentsOf are all assignments of some of an organisation's subjects, the
// oldest first.
func AssignmentsOf(ctx context.Context, q db.Q, org string, subjects []Subject) ([]Assignment, error) {
	byKind := map[SubjectKind][]string{}
	for _, s := range subjects {
		if s.ID != "" && !slices.Contains(byKind[s.Kind], s.ID) {
			byKind[s.Kind] = append(byKind[s.Kind], s.ID)
		}
	}
	var out []Assignment
	for _, kind := range []SubjectKind{SubjectToken, SubjectUser, SubjectGroup} {
		// A person may be in a thousand groups; a statement takes so many arguments.
		for ids := range slices.Chunk(byKind[kind], 500) {
			c := &clause{}
			where := "a.org_id = " + c.arg(org) + " AND a.subject_kind = " + c.arg(string(kind)) + " AND a.subject IN " + c.list(ids)
			some, err := gather(ctx, q, "assignments", scanAssignment, `SELECT `+assignmentColumns+assignmentsFrom+where+` ORDER BY a.id`, c.args...)
			if err != nil {
				return nil, err
			}
			out = append(out, some...)
		}
	}
	return out, nil
}

// Grants is what some of an organisation's subjects hold together: a token, or a
// person with the groups that the person is in.
func Grants(ctx context.Context, q db.Q, org string, subjects []Subject) ([]Grant, error) {
	all, err := AssignmentsOf(ctx, q, org, subjects)
	if err != nil {
		return nil, err
	}
	var out []Grant
	for _, a := range all {
		out = append(out, a.Grant())
	}
	return out, nil
}

// DeleteAssignment takes a role from a subject.
func DeleteAssignment(ctx context.Context, tx db.Q, org, id string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM assignments WHERE org_id = $1 AND id = $2`, org, id); err != nil {
		return fmt.Errorf("assignment %s: %w", id, err)
	}
	return nil
}

// Renew looks again at what a principal holds, within a transaction that holds the
// lock of [LockOrg]: what was taken away since the request was let in is gone, and
// a token that was revoked or has expired, a user who was disabled and a session that
// has ended are [ErrUnauthenticated]. Grants that come from no assignment stay as
// they are.
func Renew(ctx context.Context, tx db.Q, p Principal) (Principal, error) {
	if len(p.Subjects) == 0 {
		return p, nil
	}
	if err := stillIn(ctx, tx, p); err != nil {
		return Principal{}, err
	}
	fresh, err := Grants(ctx, tx, p.OrgID, p.Subjects)
	if err != nil {
		return Principal{}, err
	}
	for _, g := range p.Grants {
		if g.Assignment == "" {
			fresh = append(fresh, g)
		}
	}
	p.Grants = fresh
	return p, nil
}

// stillIn refuses a principal who could not come in any more.
func stillIn(ctx context.Context, tx db.Q, p Principal) error {
	for _, s := range p.Subjects {
		out := false
		var err error
		switch {
		case s.Kind == SubjectToken:
			var t *Token
			t, err = FindToken(ctx, tx, p.OrgID, s.ID)
			out = err == nil && t.State != TokenLive
		case s.Kind == SubjectUser && strings.HasPrefix(s.ID, "usr_"): // otherwise an address, or a machine
			var u *Person
			u, err = FindPerson(ctx, tx, p.OrgID, s.ID)
			out = err == nil && u.Disabled
		}
		if out || errors.Is(err, ErrMissing) {
			return ErrUnauthenticated
		}
		if err != nil {
			return err
		}
	}
	if p.Session == "" {
		return nil
	}
	var n int64
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM sessions WHERE org_id = $1 AND hash = $2`, p.OrgID, p.Session).Scan(&n); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if n == 0 {
		return ErrUnauthenticated
	}
	return nil
}
