package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

const maxDescription = 300

// A PolicyView is one policy, and who has it.
type PolicyView struct {
	Policy      access.Policy `json:"policy"`
	Description string        `json:"description"`
	Roles       []string      `json:"roles" doc:"The built-in roles that have it"`
}

// A RoleRequest asks for a role.
type RoleRequest struct {
	Name        string   `json:"name" doc:"1 to 63 of A-Z, a-z, 0-9, hyphen and underscore"`
	Description string   `json:"description,omitempty" maxLength:"300"`
	Policies    []string `json:"policies" doc:"GET /policies lists them. x:write stands for x:create, x:update and x:delete, x:read for x:view, as they are now: a policy that comes later is never added"`
}

// A RolePatch changes a role; what is left out stays.
type RolePatch struct {
	Name        *string   `json:"name,omitempty"`
	Description *string   `json:"description,omitempty" maxLength:"300"`
	Policies    *[]string `json:"policies,omitempty" doc:"All that it is to hold from now on"`
}

// A RoleRemoval is what went with a role.
type RoleRemoval struct {
	Role               string `json:"role"`
	AssignmentsRemoved int64  `json:"assignmentsRemoved" doc:"How many assignments of the role went with it"`
}

// ListPolicies lists every policy there is.
func (s *Service) ListPolicies(ctx context.Context) ([]PolicyView, error) {
	if _, ok := access.From(ctx); !ok {
		return nil, refusalOf(access.ErrUnauthenticated)
	}
	var out []PolicyView
	for _, p := range access.Policies() {
		out = append(out, PolicyView{Policy: p, Description: access.Describe(p), Roles: access.RolesWith(p)})
	}
	return out, nil
}

// ListRoles lists the built-in roles and, by name, those of the organisation's own.
func (s *Service) ListRoles(ctx context.Context, limit int, cursor string) (items []access.Role, next string, err error) {
	p, err := s.roleReader(ctx)
	if err == nil {
		err = cursorOK(cursor)
	}
	if err != nil {
		return nil, "", err
	}
	own, err := access.ListRoles(ctx, s.Ledger.DB(), p.OrgID, cursor, limit+1)
	if err != nil {
		return nil, "", err
	}
	own, next = nextPage(own, limit, func(r access.Role) string { return r.Name })
	if cursor == "" {
		items = access.BuiltInRoles()
	}
	return append(items, own...), next, nil
}

// roleReader is a caller who needs to know which roles there are.
func (s *Service) roleReader(ctx context.Context) (access.Principal, error) {
	p, err := access.Require(ctx, access.RoleManage)
	if err != nil {
		if q, other := access.Require(ctx, access.TokenManage); other == nil {
			return q, nil
		}
		return p, refusalOf(err)
	}
	return p, nil
}

// GetRole reads a role, by its ID or its name.
func (s *Service) GetRole(ctx context.Context, ref string) (*access.Role, error) {
	p, err := s.roleReader(ctx)
	if err != nil {
		return nil, err
	}
	return roleOf(ctx, s.Ledger.DB(), p.OrgID, ref)
}

func roleOf(ctx context.Context, q db.Q, org, ref string) (*access.Role, error) {
	none := missing("role", "/roles")
	if !refRE.MatchString(ref) {
		return nil, none
	}
	r, err := access.FindRole(ctx, q, org, ref)
	if errors.Is(err, access.ErrMissing) {
		return nil, none
	}
	return r, err
}

// roleNamed is a role that a field of a request names.
func roleNamed(ctx context.Context, q db.Q, org, field, ref string) (*access.Role, error) {
	r, err := roleOf(ctx, q, org, ref)
	var none *Refusal
	if errors.As(err, &none) {
		return nil, invalid(job.FieldError{Field: field, Message: fmt.Sprintf("%.80q is not a role of your organisation", ref), Fix: "use Admin, Editor, Viewer or a role of your own: GET /roles lists them"})
	}
	return r, err
}

// expand turns what a caller wrote for policies into policies.
func expand(names []string) ([]access.Policy, []job.FieldError) {
	var (
		out    []access.Policy
		faults []job.FieldError
	)
	for i, name := range names {
		got := access.Expand(name)
		if len(got) == 0 && len(faults) < maxFieldErrors {
			faults = append(faults, job.FieldError{Field: fmt.Sprintf("policies[%d]", i), Message: fmt.Sprintf("%.80q is no policy", name), Fix: likely(name)})
		}
		out = append(out, got...)
	}
	slices.Sort(out)
	return slices.Compact(out), faults
}

// likely says what a name that is no policy may have meant.
func likely(name string) string {
	type guess struct {
		policy   string
		distance int
	}
	var near []guess
	resource, _, _ := strings.Cut(name, ":")
	for _, p := range access.Policies() {
		of, _, _ := strings.Cut(string(p), ":")
		if d := distance(name, string(p)); d <= 3 || of == resource {
			near = append(near, guess{string(p), d})
		}
	}
	if len(near) == 0 {
		return "GET /policies lists them"
	}
	slices.SortStableFunc(near, func(a, b guess) int { return a.distance - b.distance })
	var names []string
	for _, g := range near[:min(3, len(near))] {
		names = append(names, g.policy)
	}
	return "did you mean " + strings.Join(names, " or ") + "? GET /policies lists them"
}

// checkRole refuses a name or a description that a role cannot have.
func checkRole(name, description string) []job.FieldError {
	fields := checkName(name)
	if slices.ContainsFunc(access.BuiltInRoles(), func(r access.Role) bool { return strings.EqualFold(r.Name, name) }) || strings.HasPrefix(name, "role_") {
		fields = append(fields, job.FieldError{Field: "name", Message: fmt.Sprintf("%q would be taken for another role", name), Fix: "choose another name"})
	}
	if len(description) > maxDescription {
		fields = append(fields, job.FieldError{Field: "description", Message: fmt.Sprintf("has more than %d characters", maxDescription), Fix: "shorten it"})
	}
	return fields
}

// CreateRole makes a role of the organisation's own. It can hold what the caller
// holds for the whole organisation.
func (s *Service) CreateRole(ctx context.Context, r RoleRequest) (*access.Role, error) {
	role := &access.Role{Name: r.Name, Description: r.Description}
	fields := checkRole(r.Name, r.Description)
	policies, faults := expand(r.Policies)
	if fields = append(fields, faults...); len(r.Policies) == 0 {
		fields = append(fields, job.FieldError{Field: "policies", Message: "is empty", Fix: "name at least one: GET /policies lists them"})
	}
	if len(fields) > 0 {
		return nil, s.refused(ctx, access.RoleManage, "", invalid(fields...))
	}
	err := s.changeAccess(ctx, access.RoleManage, "", func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		if err := overAll(p, access.RoleManage, "the whole organisation"); err != nil {
			return audit.Entry{}, err
		}
		role.OrgID, role.Policies, role.CreatedBy = p.OrgID, policies, p.Actor
		if err := mayGive(p, role, place{Scope: access.Scope{Kind: access.OrgScope}}); err != nil {
			return audit.Entry{}, err
		}
		if err := access.AddRole(ctx, tx, role); err != nil {
			return audit.Entry{}, roleTaken(err)
		}
		return audit.Entry{Action: "role:create", ResourceType: "role", ResourceID: role.ID, Detail: map[string]any{"name": role.Name, "policies": role.Policies}}, nil
	})
	if err != nil {
		return nil, err
	}
	return role, nil
}

func roleTaken(err error) error {
	if errors.Is(err, access.ErrTaken) {
		return nameInUse("another role of your organisation has the name")
	}
	return err
}

// ownRole finds a role that can be changed.
func ownRole(ctx context.Context, tx db.Q, p access.Principal, ref string) (*access.Role, error) {
	if err := overAll(p, access.RoleManage, "the whole organisation"); err != nil {
		return nil, err
	}
	role, err := roleOf(ctx, tx, p.OrgID, ref)
	if err == nil && role.BuiltIn {
		err = refuse(WrongState, "Make a role of your own with POST /roles.", "the role %s is built in, and stays as it is", role.Name)
	}
	return role, err
}

// PatchRole changes a role, for everybody who has it. What it gains, the caller has
// to hold for the whole organisation.
func (s *Service) PatchRole(ctx context.Context, ref string, r RolePatch) (*access.Role, error) {
	if r == (RolePatch{}) {
		return nil, s.refused(ctx, access.RoleManage, ref, invalid(job.FieldError{Field: "body", Message: "changes nothing", Fix: "give name, description or policies"}))
	}
	var policies []access.Policy
	if r.Policies != nil {
		var faults []job.FieldError
		if policies, faults = expand(*r.Policies); len(faults) > 0 {
			return nil, s.refused(ctx, access.RoleManage, ref, invalid(faults...))
		}
	}
	var role *access.Role
	err := s.changeAccess(ctx, access.RoleManage, ref, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		var err error
		if role, err = ownRole(ctx, tx, p, ref); err != nil {
			return audit.Entry{}, err
		}
		before := role.Policies
		if r.Name != nil {
			role.Name = *r.Name
		}
		if r.Description != nil {
			role.Description = *r.Description
		}
		if fields := checkRole(role.Name, role.Description); len(fields) > 0 {
			return audit.Entry{}, invalid(fields...)
		}
		detail := map[string]any{"name": role.Name}
		if r.Policies != nil {
			role.Policies = policies
			gained, lost := without(policies, before), without(before, policies)
			if err := mayGive(p, &access.Role{Name: role.Name, Policies: gained}, place{Scope: access.Scope{Kind: access.OrgScope}}); err != nil {
				return audit.Entry{}, err
			}
			detail["gained"], detail["lost"] = gained, lost
		}
		if err := access.UpdateRole(ctx, tx, role); err != nil {
			return audit.Entry{}, roleTaken(err)
		}
		return audit.Entry{Action: "role:update", ResourceType: "role", ResourceID: role.ID, Detail: detail}, nil
	})
	if err != nil {
		return nil, err
	}
	return role, nil
}

// without are the policies of a that b does not have; never nil.
func without(a, b []access.Policy) []access.Policy {
	out := []access.Policy{}
	for _, p := range a {
		if !slices.Contains(b, p) {
			out = append(out, p)
		}
	}
	return out
}

// DeleteRole removes a role and all its assignments.
func (s *Service) DeleteRole(ctx context.Context, ref string) (*RoleRemoval, error) {
	var gone *RoleRemoval
	err := s.changeAccess(ctx, access.RoleManage, ref, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		role, err := ownRole(ctx, tx, p, ref)
		if err != nil {
			return audit.Entry{}, err
		}
		n, err := access.DeleteRole(ctx, tx, p.OrgID, role.ID)
		if err != nil {
			return audit.Entry{}, err
		}
		gone = &RoleRemoval{Role: role.ID, AssignmentsRemoved: n}
		return audit.Entry{Action: "role:delete", ResourceType: "role", ResourceID: role.ID, Detail: map[string]any{"name": role.Name, "assignmentsRemoved": n}}, nil
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}
