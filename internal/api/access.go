package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/provision"
)

const tagAccess = "Access"

// AccessID is the path parameter of one token, role or team.
type AccessID struct {
	ID string `path:"id" maxLength:"80" doc:"Its ID or its name"`
}

// AccessPage is where a list of tokens, roles, assignments or teams begins and ends.
type AccessPage struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many a page"`
	Cursor string `query:"cursor" maxLength:"80" doc:"nextCursor of the page before"`
}

// accessOut is the answer about one thing; Location is where it is found.
type accessOut[T any] struct {
	Status   int
	Location string `header:"Location" doc:"Where it is found"`
	Body     Data[T]
}

func accessAnswer[T any](status int, at string, v T) *accessOut[T] {
	return &accessOut[T]{Status: status, Location: at, Body: Data[T]{Data: v}}
}

var (
	manageTokens = []access.Policy{access.TokenManage}
	manageRoles  = []access.Policy{access.RoleManage}
	readRoles    = []access.Policy{access.RoleManage, access.TokenManage}
	anybody      = []access.Policy{access.Authenticated}
)

func (s *server) identityRoutes() {
	s.tokenRoutes()
	s.tokenChanges()
	s.roleRoutes()
	s.roleChanges()
	s.assignmentRoutes()
	s.permissionRoutes()
	s.teamRoutes()
	s.teamChanges()
}

// accessList registers a list.
func accessList[T any](s *server, op huma.Operation, policies []access.Policy, list func(context.Context, int, string) ([]T, string, error)) {
	type out struct{ Body List[T] }
	op.Method, op.Tags, op.Errors = http.MethodGet, []string{tagAccess}, []int{422}
	route(s, op, policies, func(ctx context.Context, in *AccessPage) (*out, error) {
		if err := plainText(in.Cursor); err != nil {
			return nil, err
		}
		items, next, err := list(ctx, in.Limit, in.Cursor)
		if err != nil {
			return nil, err
		}
		return &out{listOf(items, next)}, nil
	})
}

// accessGet registers a look at one thing.
func accessGet[T any](s *server, op huma.Operation, policies []access.Policy, get func(context.Context, string) (T, error)) {
	type out struct{ Body Data[T] }
	op.Method, op.Tags, op.Errors = http.MethodGet, []string{tagAccess}, []int{404}
	route(s, op, policies, func(ctx context.Context, in *AccessID) (*out, error) {
		v, err := get(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &out{Data[T]{Data: v}}, nil
	})
}

// accessPost registers what makes something.
func accessPost[R, T any](s *server, op huma.Operation, policies []access.Policy, at func(T) string, make func(context.Context, R) (T, int, error)) {
	type in struct {
		RawBody []byte `contentType:"application/json"`
	}
	op.Method, op.Tags, op.DefaultStatus, op.Errors = http.MethodPost, []string{tagAccess}, http.StatusCreated, []int{404, 409, 413, 415, 422}
	route(s, op, policies, func(ctx context.Context, in *in) (*accessOut[T], error) {
		var r R
		if err := s.decode(ctx, policies[0], "", in.RawBody, &r); err != nil {
			return nil, err
		}
		v, status, err := make(ctx, r)
		if err != nil {
			return nil, err
		}
		return accessAnswer(status, at(v), v), nil
	})
	bodyOf[R](s, op.Path, http.MethodPost)
}

// accessPatch registers what changes something.
func accessPatch[R, T any](s *server, op huma.Operation, policies []access.Policy, change func(context.Context, string, R) (T, error)) {
	type in struct {
		AccessID
		RawBody []byte `contentType:"application/json"`
	}
	type out struct{ Body Data[T] }
	op.Method, op.Tags, op.Errors = http.MethodPatch, []string{tagAccess}, []int{404, 409, 413, 415, 422}
	route(s, op, policies, func(ctx context.Context, in *in) (*out, error) {
		var r R
		if err := s.decode(ctx, policies[0], in.ID, in.RawBody, &r); err != nil {
			return nil, err
		}
		v, err := change(ctx, in.ID, r)
		if err != nil {
			return nil, err
		}
		return &out{Data[T]{Data: v}}, nil
	})
	bodyOf[R](s, op.Path, http.MethodPatch)
}

// accessDelete registers what ends something and leaves nothing to say.
func accessDelete(s *server, op huma.Operation, policies []access.Policy, end func(context.Context, string) error) {
	op.Method, op.Tags, op.DefaultStatus, op.Errors = http.MethodDelete, []string{tagAccess}, http.StatusNoContent, []int{404, 409}
	route(s, op, policies, func(ctx context.Context, in *AccessID) (*struct{}, error) {
		return nil, end(ctx, in.ID)
	})
}

func (s *server) tokenRoutes() {
	accessList(s, huma.Operation{
		OperationID: "list-tokens", Path: "/tokens", Summary: "List API tokens",
		Description: "Those that you manage, the newest first, also those that were revoked or have expired. No answer but that to the creation has a token's text.",
	}, manageTokens, s.Service.ListTokens)
	accessGet(s, huma.Operation{OperationID: "get-token", Path: "/tokens/{id}", Summary: "Get an API token"}, manageTokens, s.Service.GetToken)
	accessDelete(s, huma.Operation{
		OperationID: "revoke-token", Path: "/tokens/{id}", Summary: "Revoke an API token",
		Description: "At once, and for good. It stays in the list, and its name stays taken, so that the audit log stays clear.",
	}, manageTokens, s.Service.RevokeToken)
}

func (s *server) tokenChanges() {
	at := func(t *provision.NewToken) string { return "/tokens/" + t.ID }
	accessPost(s, huma.Operation{
		OperationID: "create-token", Path: "/tokens", Summary: "Make an API token",
		Description: "The answer has the token's text, which is shown this once. You can give it only what you hold yourself. It matches " + access.TokenPattern + ", and ends in a checksum.",
	}, manageTokens, at, func(ctx context.Context, r provision.TokenRequest) (*provision.NewToken, int, error) {
		v, err := s.Service.CreateToken(ctx, r)
		return v, http.StatusCreated, err
	})

	type in struct {
		AccessID
		RawBody []byte `contentType:"application/json"`
	}
	op := huma.Operation{
		OperationID: "rotate-token", Path: "/tokens/{id}/rotate", Method: http.MethodPost, Tags: []string{tagAccess}, Errors: []int{404, 409, 413, 415, 422},
		Summary: "Give an API token another text", Description: "The old text works no more. You have to hold all that the token holds. The body may be left out.",
	}
	route(s, op, manageTokens, func(ctx context.Context, in *in) (*accessOut[*provision.NewToken], error) {
		var r provision.TokenRotation
		if len(in.RawBody) > 0 {
			if err := s.decode(ctx, access.TokenManage, in.ID, in.RawBody, &r); err != nil {
				return nil, err
			}
		}
		v, err := s.Service.RotateToken(ctx, in.ID, r)
		if err != nil {
			return nil, err
		}
		return accessAnswer(http.StatusOK, at(v), v), nil
	})
	bodyOf[provision.TokenRotation](s, op.Path, http.MethodPost)
	s.api.OpenAPI().Paths[op.Path].Post.RequestBody.Required = false
}

func (s *server) roleRoutes() {
	type out struct {
		Body Data[[]provision.PolicyView]
	}
	route(s, huma.Operation{
		OperationID: "list-policies", Path: "/policies", Method: http.MethodGet, Tags: []string{tagAccess},
		Summary: "List policies", Description: "Everything that a role can allow, and which built-in roles do.",
	}, anybody, func(ctx context.Context, _ *struct{}) (*out, error) {
		all, err := s.Service.ListPolicies(ctx)
		return &out{Data[[]provision.PolicyView]{Data: all}}, err
	})
	accessList(s, huma.Operation{
		OperationID: "list-roles", Path: "/roles", Summary: "List roles", Description: "The built-in ones first, then your organisation's own by name.",
	}, readRoles, s.Service.ListRoles)
	accessGet(s, huma.Operation{OperationID: "get-role", Path: "/roles/{id}", Summary: "Get a role"}, readRoles, s.Service.GetRole)
}

func (s *server) roleChanges() {
	accessPost(s, huma.Operation{
		OperationID: "create-role", Path: "/roles", Summary: "Make a role",
		Description: "It can hold only what you hold yourself for the whole organisation.",
	}, manageRoles, func(r *access.Role) string { return "/roles/" + r.ID }, func(ctx context.Context, r provision.RoleRequest) (*access.Role, int, error) {
		v, err := s.Service.CreateRole(ctx, r)
		return v, http.StatusCreated, err
	})
	accessPatch(s, huma.Operation{
		OperationID: "patch-role", Path: "/roles/{id}", Summary: "Change a role",
		Description: "For everybody who has it, from the next request on. You have to hold what it gains. Built-in roles stay as they are.",
	}, manageRoles, s.Service.PatchRole)
	type out struct {
		Body Data[*provision.RoleRemoval]
	}
	route(s, huma.Operation{
		OperationID: "delete-role", Path: "/roles/{id}", Method: http.MethodDelete, Tags: []string{tagAccess}, Errors: []int{404, 409},
		Summary: "Delete a role", Description: "With all its assignments; the answer says how many those were.",
	}, manageRoles, func(ctx context.Context, in *AccessID) (*out, error) {
		v, err := s.Service.DeleteRole(ctx, in.ID)
		return &out{Data[*provision.RoleRemoval]{Data: v}}, err
	})
}

func (s *server) assignmentRoutes() {
	type in struct {
		AccessPage
		SubjectKind string `query:"subjectKind" enum:"token,user,group" doc:"Of tokens, users or groups alone"`
		Subject     string `query:"subject" maxLength:"512" doc:"Of one subject alone, as an assignment has it; for a token its name will do"`
		Role        string `query:"role" maxLength:"80" doc:"Of one role alone: its name or ID"`
		ScopeKind   string `query:"scopeKind" enum:"org,team,resource" doc:"At scopes of one kind alone"`
		ScopeID     string `query:"scopeId" maxLength:"80" doc:"At one team or resource alone, by its ID"`
	}
	type out struct{ Body List[access.Assignment] }
	route(s, huma.Operation{
		OperationID: "list-assignments", Path: "/assignments", Method: http.MethodGet, Tags: []string{tagAccess}, Errors: []int{404, 422},
		Summary: "List assignments", Description: "Who holds which role where, of what you manage; the newest first.",
	}, manageRoles, func(ctx context.Context, in *in) (*out, error) {
		if err := plainText(in.Cursor, in.SubjectKind, in.Subject, in.Role, in.ScopeKind, in.ScopeID); err != nil {
			return nil, err
		}
		items, next, err := s.Service.ListAssignments(ctx, provision.AssignmentQuery{
			SubjectKind: in.SubjectKind, Subject: in.Subject, Role: in.Role, ScopeKind: in.ScopeKind, ScopeID: in.ScopeID, Limit: in.Limit, Cursor: in.Cursor,
		})
		if err != nil {
			return nil, err
		}
		return &out{listOf(items, next)}, nil
	})
	accessPost(s, huma.Operation{
		OperationID: "create-assignment", Path: "/assignments", Summary: "Give somebody a role",
		Description: "For the organisation, a team or one resource. You can give only what you hold there yourself. The same again answers 200 with what there is.",
	}, manageRoles, func(a *access.Assignment) string { return "/assignments/" + a.ID }, func(ctx context.Context, r provision.AssignmentRequest) (*access.Assignment, int, error) {
		a, made, err := s.Service.CreateAssignment(ctx, r)
		if made {
			return a, http.StatusCreated, err
		}
		return a, http.StatusOK, err
	})
	accessDelete(s, huma.Operation{
		OperationID: "delete-assignment", Path: "/assignments/{id}", Summary: "Take a role from somebody",
		Description: "From the next request on. The last admin stays.",
	}, manageRoles, s.Service.DeleteAssignment)
}

func (s *server) permissionRoutes() {
	type whoOut struct {
		Body Data[*provision.WhoAmI]
	}
	route(s, huma.Operation{
		OperationID: "who-am-i", Path: "/whoami", Method: http.MethodGet, Tags: []string{tagAccess},
		Summary: "See who you are, and what you may do", Description: "Everybody may ask who is known.",
	}, anybody, func(ctx context.Context, _ *struct{}) (*whoOut, error) {
		v, err := s.Service.WhoAmI(ctx)
		return &whoOut{Data[*provision.WhoAmI]{Data: v}}, err
	})
	type in struct {
		Subject  string `query:"subject" required:"true" maxLength:"520" doc:"token:<ID or name>, user:<ID or e-mail address> or group:<name>"`
		Resource string `query:"resource" maxLength:"80" doc:"On one job, space or cloud account alone, by its ID"`
	}
	type out struct {
		Body Data[*provision.Permissions]
	}
	route(s, huma.Operation{
		OperationID: "effective-permissions", Path: "/effective-permissions", Method: http.MethodGet, Tags: []string{tagAccess}, Errors: []int{404, 422},
		Summary:     "See what somebody may do",
		Description: "And through which assignments; of what you manage. A user's groups are those of the last sign-in. What the configuration of sign-in gives to groups is not in it.",
	}, manageRoles, func(ctx context.Context, in *in) (*out, error) {
		if err := plainText(in.Subject, in.Resource); err != nil {
			return nil, err
		}
		v, err := s.Service.EffectivePermissions(ctx, in.Subject, in.Resource)
		return &out{Data[*provision.Permissions]{Data: v}}, err
	})
}

func (s *server) teamRoutes() {
	accessList(s, huma.Operation{
		OperationID: "list-teams", Path: "/teams", Summary: "List teams",
		Description: "By name: all of them if you hold anything for the whole organisation, else those in which you hold something.",
	}, anybody, s.Service.ListTeams)
	accessGet(s, huma.Operation{OperationID: "get-team", Path: "/teams/{id}", Summary: "Get a team"}, anybody, s.Service.GetTeam)
}

func (s *server) teamChanges() {
	accessPost(s, huma.Operation{OperationID: "create-team", Path: "/teams", Summary: "Make a team", Description: "Jobs and cloud accounts can belong to it, and roles be given within it."},
		manageRoles, func(t *access.Team) string { return "/teams/" + t.ID }, func(ctx context.Context, r provision.TeamRequest) (*access.Team, int, error) {
			v, err := s.Service.CreateTeam(ctx, r)
			return v, http.StatusCreated, err
		})
	accessPatch(s, huma.Operation{OperationID: "patch-team", Path: "/teams/{id}", Summary: "Give a team another name"}, manageRoles, s.Service.PatchTeam)
	accessDelete(s, huma.Operation{
		OperationID: "delete-team", Path: "/teams/{id}", Summary: "Delete a team", Description: "With the assignments at it. It must have no live job and no cloud account any more.",
	}, manageRoles, s.Service.DeleteTeam)
}
