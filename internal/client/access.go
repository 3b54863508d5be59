package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// A Scope is what a role is held for.
type Scope struct {
	Kind string `json:"kind"` // org, team or resource
	ID   string `json:"id,omitempty"`
}

// A Subject is who holds a role.
type Subject struct {
	Kind string `json:"kind"` // token, user or group
	ID   string `json:"id"`
}

// A Grant is a role at a scope.
type Grant struct {
	Assignment string `json:"assignment,omitempty"`
	Role       string `json:"role"`
	Scope      Scope  `json:"scope"`
}

// A Token is an API token; Secret is its text, in the answer to its creation alone.
type Token struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Hint       string     `json:"hint,omitempty"`
	State      string     `json:"state"`
	CreatedBy  string     `json:"createdBy"`
	CreatedAt  time.Time  `json:"createdAt"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty"`
	RevokedAt  *time.Time `json:"revokedAt,omitempty"`
	RevokedBy  string     `json:"revokedBy,omitempty"`
	Grants     []Grant    `json:"grants"`
	Secret     string     `json:"token,omitempty"`
}

// A Role is a set of policies under a name.
type Role struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Policies    []string `json:"policies"`
	BuiltIn     bool     `json:"builtIn"`
}

// A Policy is one thing that a role may allow.
type Policy struct {
	Policy      string   `json:"policy"`
	Description string   `json:"description"`
	Roles       []string `json:"roles"`
}

// An Assignment gives a role at a scope to a subject.
type Assignment struct {
	ID        string    `json:"id"`
	Subject   Subject   `json:"subject"`
	Role      string    `json:"role"`
	Scope     Scope     `json:"scope"`
	CreatedBy string    `json:"createdBy"`
	CreatedAt time.Time `json:"createdAt"`
}

// A Team is a part of an organisation.
type Team struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedBy string    `json:"createdBy"`
	CreatedAt time.Time `json:"createdAt"`
}

// A Permission is a policy that somebody holds, and through what.
type Permission struct {
	Policy string  `json:"policy"`
	Held   []Grant `json:"held"`
}

// WhoAmI is the caller, as the server sees it.
type WhoAmI struct {
	Organisation struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"organisation"`
	Actor       string       `json:"actor"`
	Permissions []Permission `json:"permissions"`
}

// Permissions is what somebody may do.
type Permissions struct {
	Subject     string       `json:"subject"`
	Resource    string       `json:"resource,omitempty"`
	Works       bool         `json:"works"`
	Permissions []Permission `json:"permissions"`
}

// send asks with a document as the body.
func send[T any](ctx context.Context, c *Client, method, path string, request any) (*Response, T, error) {
	body, err := json.Marshal(request)
	if err != nil {
		var none T
		return nil, none, err
	}
	return ask[T](ctx, c, method, path, body)
}

func (c *Client) remove(ctx context.Context, path string) (*Response, error) {
	return c.Do(ctx, http.MethodDelete, path, nil, nil, nil)
}

// WhoAmI says who the token belongs to, and what it may do.
func (c *Client) WhoAmI(ctx context.Context) (*Response, WhoAmI, error) {
	return ask[WhoAmI](ctx, c, http.MethodGet, "/whoami", nil)
}

// EffectivePermissions says what somebody may do: subject is kind:ID.
func (c *Client) EffectivePermissions(ctx context.Context, subject, resource string) (*Response, Permissions, error) {
	q := url.Values{"subject": {subject}}
	if resource != "" {
		q.Set("resource", resource)
	}
	var v Permissions
	r, err := c.Do(ctx, http.MethodGet, "/effective-permissions", q, nil, nil)
	if err != nil {
		return r, v, err
	}
	return r, v, r.Data(&v)
}

// ListTokens reads one page of tokens; the cursor of the next is "" at the end.
func (c *Client) ListTokens(ctx context.Context, query url.Values) (r *Response, items []Token, next string, err error) {
	return page[Token](ctx, c, "/tokens", query)
}

// GetToken reads a token, by its ID or its name.
func (c *Client) GetToken(ctx context.Context, ref string) (*Response, Token, error) {
	return ask[Token](ctx, c, http.MethodGet, "/tokens/"+escape(ref), nil)
}

// CreateToken makes a token; the answer has its text.
func (c *Client) CreateToken(ctx context.Context, request any) (*Response, Token, error) {
	return send[Token](ctx, c, http.MethodPost, "/tokens", request)
}

// RotateToken gives a token another text, which the answer has.
func (c *Client) RotateToken(ctx context.Context, ref string, request any) (*Response, Token, error) {
	return send[Token](ctx, c, http.MethodPost, "/tokens/"+escape(ref)+"/rotate", request)
}

// RevokeToken ends a token.
func (c *Client) RevokeToken(ctx context.Context, ref string) (*Response, error) {
	return c.remove(ctx, "/tokens/"+escape(ref))
}

// ListPolicies reads every policy there is.
func (c *Client) ListPolicies(ctx context.Context) (*Response, []Policy, error) {
	return ask[[]Policy](ctx, c, http.MethodGet, "/policies", nil)
}

// ListRoles reads one page of roles; the cursor of the next is "" at the end.
func (c *Client) ListRoles(ctx context.Context, query url.Values) (r *Response, items []Role, next string, err error) {
	return page[Role](ctx, c, "/roles", query)
}

// GetRole reads a role, by its ID or its name.
func (c *Client) GetRole(ctx context.Context, ref string) (*Response, Role, error) {
	return ask[Role](ctx, c, http.MethodGet, "/roles/"+escape(ref), nil)
}

// CreateRole makes a role.
func (c *Client) CreateRole(ctx context.Context, request any) (*Response, Role, error) {
	return send[Role](ctx, c, http.MethodPost, "/roles", request)
}

// PatchRole changes a role.
func (c *Client) PatchRole(ctx context.Context, ref string, change any) (*Response, Role, error) {
	return send[Role](ctx, c, http.MethodPatch, "/roles/"+escape(ref), change)
}

// DeleteRole deletes a role, and says how many assignments went with it.
func (c *Client) DeleteRole(ctx context.Context, ref string) (r *Response, assignments int64, err error) {
	var gone struct {
		AssignmentsRemoved int64 `json:"assignmentsRemoved"`
	}
	if r, err = c.remove(ctx, "/roles/"+escape(ref)); err == nil {
		err = r.Data(&gone)
	}
	return r, gone.AssignmentsRemoved, err
}

// ListAssignments reads one page of assignments; the cursor of the next is "" at the
// end.
func (c *Client) ListAssignments(ctx context.Context, query url.Values) (r *Response, items []Assignment, next string, err error) {
	return page[Assignment](ctx, c, "/assignments", query)
}

// CreateAssignment gives somebody a role.
func (c *Client) CreateAssignment(ctx context.Context, request any) (*Response, Assignment, error) {
	return send[Assignment](ctx, c, http.MethodPost, "/assignments", request)
}

// DeleteAssignment takes a role from somebody.
func (c *Client) DeleteAssignment(ctx context.Context, id string) (*Response, error) {
	return c.remove(ctx, "/assignments/"+escape(id))
}

// ListTeams reads one page of teams; the cursor of the next is "" at the end.
func (c *Client) ListTeams(ctx context.Context, query url.Values) (r *Response, items []Team, next string, err error) {
	return page[Team](ctx, c, "/teams", query)
}

// CreateTeam makes a team.
func (c *Client) CreateTeam(ctx context.Context, name string) (*Response, Team, error) {
	return send[Team](ctx, c, http.MethodPost, "/teams", map[string]string{"name": name})
}

// RenameTeam gives a team another name.
func (c *Client) RenameTeam(ctx context.Context, ref, name string) (*Response, Team, error) {
	return send[Team](ctx, c, http.MethodPatch, "/teams/"+escape(ref), map[string]string{"name": name})
}

// DeleteTeam deletes a team to which nothing belongs any more.
func (c *Client) DeleteTeam(ctx context.Context, ref string) (*Response, error) {
	return c.remove(ctx, "/teams/"+escape(ref))
}
