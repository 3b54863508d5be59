package provision

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// An AssignmentRequest asks for a role at a scope for somebody.
type AssignmentRequest struct {
	Subject *access.Subject `json:"subject"`
	Role    string          `json:"role" doc:"A role's name or ID"`
	Scope   *access.Scope   `json:"scope"`
}

// An AssignmentQuery chooses assignments; what is empty does not count.
type AssignmentQuery struct {
	SubjectKind, Subject string
	Role                 string
	ScopeKind, ScopeID   string
	Limit                int
	Cursor               string
}

const maxSubject = 512

// machineRE is a machine as its principal is named: the issuer's name in the
// configuration, and the issuer's name for it.
var machineRE = regexp.MustCompile(`^machine:[A-Za-z0-9._-]{1,100}/[!-~]{1,300}$`)

var emailRE = regexp.MustCompile(`^[^@\s"(),:;<>\[\]\\]{1,64}@[A-Za-z0-9.-]{1,190}$`)

// subjectOfRequest checks who a request speaks of: a token has to exist, people and
// groups are known to their issuer alone.
func subjectOfRequest(ctx context.Context, q db.Q, org, at string, sub *access.Subject) (access.Subject, error) {
	wrong := func(field, message, fix string) (access.Subject, error) {
		return access.Subject{}, invalid(job.FieldError{Field: at + field, Message: message, Fix: fix})
	}
	if sub == nil || sub.Kind == "" && sub.ID == "" {
		return wrong("", "is missing", `give {"kind":"token","id":…}, {"kind":"user","id":…} or {"kind":"group","id":…}`)
	}
	id := sub.ID
	if id == "" || len(id) > maxSubject || strings.TrimSpace(id) != id || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return wrong(".id", "names nobody", fmt.Sprintf("use 1 to %d characters that can be printed, without blanks around them", maxSubject))
	}
	// What is kept of an assignment is shown to others, also in the audit log.
	if access.Redact(id) != id || access.Redact(strings.ToLower(id)) != strings.ToLower(id) {
		return wrong(".id", "is the text of a token", "give the token's ID (GET /tokens), and rotate it if anybody may have seen the text")
	}
	switch sub.Kind {
	case access.SubjectToken:
		if !refRE.MatchString(id) {
			return wrong(".id", "is not a token of your organisation", "GET /tokens lists them")
		}
		t, err := access.FindToken(ctx, q, org, id)
		if errors.Is(err, access.ErrMissing) || err == nil && t.State == access.TokenRevoked {
			return wrong(".id", "is not a token of your organisation that works", "GET /tokens lists them")
		}
		if err != nil {
			return access.Subject{}, err
		}
		return access.Subject{Kind: sub.Kind, ID: t.ID}, nil
	case access.SubjectUser:
		if strings.HasPrefix(id, "usr_") {
			known, err := access.UserExists(ctx, q, org, id)
			if err == nil && !known {
				return wrong(".id", "is not a user of your organisation", "give the verified e-mail address of somebody who has not signed in yet")
			}
			return *sub, err
		}
		if machineRE.MatchString(id) {
			return *sub, nil
		}
		if !emailRE.MatchString(id) {
			return wrong(".id", "names nobody", "give a user's ID (usr_…), a verified e-mail address, or machine:issuer/subject for a machine")
		}
		return access.Subject{Kind: sub.Kind, ID: strings.ToLower(id)}, nil
	case access.SubjectGroup:
		return *sub, nil
	}
	return wrong(".kind", fmt.Sprintf("%.40q is no kind of subject", sub.Kind), "use token, user or group")
}

// CreateAssignment gives somebody a role at a scope. Giving it again gives the
// assignment that there is.
func (s *Service) CreateAssignment(ctx context.Context, r AssignmentRequest) (a *access.Assignment, made bool, err error) {
	var scope access.Scope
	if r.Scope != nil {
		scope = *r.Scope
	}
	spaces, err := s.spaceJobs(ctx, scope)
	if err != nil {
		return nil, false, s.refused(ctx, access.RoleManage, "", err)
	}
	err = s.changeAccess(ctx, access.RoleManage, "", func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		role, err := roleNamed(ctx, tx, p.OrgID, "role", r.Role)
		if err != nil {
			return audit.Entry{}, err
		}
		pl, err := where(ctx, tx, p, access.RoleManage, "scope", r.Scope, spaces)
		if err != nil {
			return audit.Entry{}, err
		}
		subject, err := subjectOfRequest(ctx, tx, p.OrgID, "subject", r.Subject)
		if err != nil {
			return audit.Entry{}, err
		}
		if err := mayGive(p, role, pl); err != nil {
			return audit.Entry{}, err
		}
		a, made, err = access.AddAssignment(ctx, tx, access.Assignment{OrgID: p.OrgID, Subject: subject, RoleID: role.ID, Scope: pl.Scope, CreatedBy: p.Actor})
		if err != nil {
			return audit.Entry{}, err
		}
		return assignmentEntry("assignment:create", a), nil
	})
	return a, made, err
}

func assignmentEntry(action string, a *access.Assignment) audit.Entry {
	return audit.Entry{Action: action, ResourceType: "assignment", ResourceID: a.ID, Detail: map[string]any{
		"subject": string(a.Subject.Kind) + ":" + a.Subject.ID, "role": a.Role, "scope": a.Scope.String(),
	}}
}

// ListAssignments lists the assignments that the caller manages, the newest first.
func (s *Service) ListAssignments(ctx context.Context, f AssignmentQuery) (items []access.Assignment, next string, err error) {
	p, err := s.viewer(ctx, access.RoleManage)
	if err == nil {
		err = cursorOK(f.Cursor)
	}
	if err != nil {
		return nil, "", err
	}
	q := s.Ledger.DB()
	by := access.AssignmentFilter{
		Subject: access.Subject{Kind: access.SubjectKind(f.SubjectKind), ID: f.Subject}, RoleID: f.Role,
		Scope: access.Scope{Kind: access.ScopeKind(f.ScopeKind), ID: f.ScopeID}, After: f.Cursor, Limit: f.Limit + 1,
	}
	// Names stand for IDs here as everywhere.
	if f.Role != "" {
		role, err := roleOf(ctx, q, p.OrgID, f.Role)
		if err != nil {
			return nil, "", err
		}
		by.RoleID = role.ID
	}
	if f.SubjectKind == string(access.SubjectToken) && f.Subject != "" {
		t, _, err := s.tokenOf(ctx, q, p, access.RoleManage, f.Subject)
		if err != nil {
			return nil, "", err
		}
		by.Subject.ID = t.ID
	}
	items, err = access.ListAssignments(ctx, q, p.OrgID, p.Over(access.RoleManage), by)
	if err != nil {
		return nil, "", err
	}
	items, next = nextPage(items, f.Limit, func(a access.Assignment) string { return a.ID })
	return items, next, nil
}

// DeleteAssignment takes a role from somebody, who is without it from the next
// request on.
func (s *Service) DeleteAssignment(ctx context.Context, id string) error {
	none := missing("assignment", "/assignments")
	return s.changeAccess(ctx, access.RoleManage, id, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		if !refRE.MatchString(id) {
			return audit.Entry{}, none
		}
		a, err := access.FindAssignment(ctx, tx, p.OrgID, id)
		if errors.Is(err, access.ErrMissing) {
			return audit.Entry{}, none
		}
		if err != nil {
			return audit.Entry{}, err
		}
		ok, err := managed(ctx, tx, p, access.RoleManage, []access.Assignment{*a}, nil)
		if err == nil && !ok {
			err = none
		}
		if err != nil {
			return audit.Entry{}, err
		}
		if err := access.DeleteAssignment(ctx, tx, p.OrgID, a.ID); err != nil {
			return audit.Entry{}, err
		}
		if a.MakesAdmin() {
			if err := access.KeepAdmin(ctx, tx, p.OrgID, s.SignIn); err != nil {
				return audit.Entry{}, err
			}
		}
		return assignmentEntry("assignment:delete", a), nil
	})
}
