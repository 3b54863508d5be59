package api

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/provision"
)

// both tells principals by the test's fixed tokens, and by those in the database.
type both struct {
	people
	*access.Tokens
}

func (b both) Authenticate(ctx context.Context, token string) (access.Principal, error) {
	if p, err := b.people.Authenticate(ctx, token); err == nil {
		return p, nil
	}
	return b.Tokens.Authenticate(ctx, token)
}

// withTokens lets tokens in that are in the database.
func (r *rig) withTokens() *rig {
	tokens := access.NewTokens(r.db, nil)
	fixed, _ := r.api.Access.(people)
	r.api.Access = both{fixed, tokens}
	r.t.Cleanup(tokens.Wait)
	return r
}

// token makes a token with the body's grants and returns it.
func (r *rig) token(by, body string) provision.NewToken {
	r.t.Helper()
	a := r.do(by, "POST", "/tokens", body)
	if a.status != 201 {
		r.t.Fatalf("token %s: %d %s", body, a.status, a.body)
	}
	var v provision.NewToken
	a.into(r.t, &v)
	return v
}

// made posts a body and returns the ID of what it made.
func (r *rig) made(by, path, body string) string {
	r.t.Helper()
	a := r.do(by, "POST", path, body)
	if a.status != 201 {
		r.t.Fatalf("%s %s: %d %s", path, body, a.status, a.body)
	}
	var v struct{ ID string }
	a.into(r.t, &v)
	return v.ID
}

// fails checks that an answer is the given refusal, which says what to do.
func (a answer) fails(t *testing.T, what string, status int, code, field string) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: %d, want %d: %.400s", what, a.status, status, a.body)
		return
	}
	p := a.problem(t)
	if p.Code != code || p.Hint == "" || field != "" && (len(p.Errors) == 0 || p.Errors[0].Field != field || p.Errors[0].Fix == "") {
		t.Errorf("%s: %s", what, a.body)
	}
}

const orgWide = `"scope":{"kind":"org"}`

func TestTokensOverREST(t *testing.T) { onBoth(t, testTokensOverREST) }

func testTokensOverREST(t *testing.T, r *rig) {
	r.withTokens()
	v := r.token(adminToken, `{"name":"ci","role":"Viewer",`+orgWide+`}`)
	if !regexp.MustCompile(access.TokenPattern).MatchString(v.Secret) || v.Hint != v.Secret[4:12] || v.State != access.TokenLive || v.CreatedBy != "ana" || len(v.Grants) != 1 {
		t.Errorf("%+v", v)
	}
	if left := time.Until(*v.ExpiresAt); left < 89*24*time.Hour || left > 90*24*time.Hour {
		t.Errorf("it ends in %v", left)
	}
	if a := r.do(v.Secret, "GET", "/provisioning-jobs", ""); a.status != 200 {
		t.Errorf("a viewer's token views: %d", a.status)
	}
	r.do(v.Secret, "POST", "/provisioning-jobs", vmJob("shop")).fails(t, "a viewer's token creates", 403, "forbidden", "")
	r.do(v.Secret, "GET", "/tokens", "").fails(t, "a viewer's token lists tokens", 403, "forbidden", "")

	for _, ref := range []string{v.ID, "ci"} {
		var got provision.TokenView
		if a := r.do(adminToken, "GET", "/tokens/"+ref, ""); strings.Contains(string(a.body), v.Secret) || strings.Contains(string(a.body), `"token"`) {
			t.Errorf("the token is shown again: %s", a.body)
		} else if a.into(t, &got); got.ID != v.ID || len(got.Grants) != 1 || got.Grants[0].Role != "Viewer" {
			t.Errorf("%s", a.body)
		}
	}
	r.do(otherToken, "GET", "/tokens/"+v.ID, "").fails(t, "another organisation", 404, "not-found", "")
	r.do(otherToken, "DELETE", "/tokens/"+v.ID, "").fails(t, "another organisation", 404, "not-found", "")

	// Another text: the old one is worth nothing.
	var again provision.NewToken
	r.do(adminToken, "POST", "/tokens/ci/rotate", "").into(t, &again)
	if a := r.do(v.Secret, "GET", "/provisioning-jobs", ""); a.status != 401 {
		t.Errorf("the old text: %d", a.status)
	}
	if a := r.do(again.Secret, "GET", "/provisioning-jobs", ""); a.status != 200 || again.ID != v.ID {
		t.Errorf("the new text: %d", a.status)
	}

	if a := r.do(adminToken, "DELETE", "/tokens/ci", ""); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.do(again.Secret, "GET", "/provisioning-jobs", "").fails(t, "a revoked token", 401, "unauthenticated", "")
	r.do(adminToken, "POST", "/tokens/ci/rotate", "{}").fails(t, "a revoked token's rotation", 409, "wrong-state", "")
	r.do(adminToken, "POST", "/tokens", `{"name":"ci","role":"Viewer",`+orgWide+`}`).fails(t, "its name", 409, "name-taken", "name")
	var got provision.TokenView
	if r.do(adminToken, "GET", "/tokens/ci", "").into(t, &got); got.State != access.TokenRevoked || got.RevokedBy != "ana" || got.RevokedAt == nil {
		t.Errorf("%+v", got)
	}
}

func TestTokenRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t).withTokens()
	const viewer = `"role":"Viewer",` + orgWide
	for body, want := range map[string]string{
		`{}`:                            "name",
		`{"name":"a b",` + viewer + `}`: "name",
		`{"name":"` + strings.Repeat("x", 64) + `",` + viewer + `}`: "name",
		`{"name":"a"}`: "role",
		`{"name":"a","role":"viewer",` + orgWide + `}`:                                            "role",
		`{"name":"a","role":"Viewer"}`:                                                            "scope",
		`{"name":"a","role":"Viewer","scope":{"kind":"world"}}`:                                   "scope.kind",
		`{"name":"a","role":"Viewer","scope":{"kind":"org","id":"org2"}}`:                         "scope.id",
		`{"name":"a","role":"Viewer","scope":{"kind":"team","id":"nobody"}}`:                      "scope.id",
		`{"name":"a","role":"Viewer","scope":{"kind":"resource","id":"job_x"}}`:                   "scope.id",
		`{"name":"a","grants":[{"role":"Viewer",` + orgWide + `},{"role":"no",` + orgWide + `}]}`: "grants[1].role",
		`{"name":"a",` + viewer + `,"grants":[{"role":"no",` + orgWide + `}]}`:                    "grants[0].role",
		`{"name":"a",` + viewer + `,"expiresIn":"90"}`:                                            "expiresIn",
		`{"name":"a",` + viewer + `,"expiresIn":"367d"}`:                                          "expiresIn",
		`{"name":"a",` + viewer + `,"expiresIn":"9999999w"}`:                                      "expiresIn",
		`{"name":"a",` + viewer + `,"expiresIn":"-1d"}`:                                           "expiresIn",
		`{"name":"a",` + viewer + `,"expiresAt":"tomorrow"}`:                                      "expiresAt",
		`{"name":"a",` + viewer + `,"expiresAt":"2020-01-01T00:00:00Z"}`:                          "expiresAt",
		`{"name":"a",` + viewer + `,"expiresAt":"9999-01-01T00:00:00Z"}`:                          "expiresAt",
		`{"name":"a",` + viewer + `,"expiresIn":"1d","expiresAt":"2020-01-01T00:00:00Z"}`:         "expiresAt",
		`{"name":"a",` + viewer + `,"hash":"x"}`:                                                  "hash",
	} {
		r.do(adminToken, "POST", "/tokens", body).fails(t, body, 422, "invalid", want)
	}
	if v := r.token(adminToken, `{"name":"a",`+viewer+`,"expiresIn":"never"}`); v.ExpiresAt != nil {
		t.Errorf("never is %v", v.ExpiresAt)
	}
	for _, in := range []string{"1m", "36h", "52w", "366d"} {
		r.token(adminToken, `{"name":"a-`+in+`",`+viewer+`,"expiresIn":"`+in+`"}`)
	}
	var page []provision.TokenView
	a := r.do(adminToken, "GET", "/tokens?limit=3", "")
	a.into(t, &page)
	var meta struct{ Meta struct{ NextCursor string } }
	if err := json.Unmarshal(a.body, &meta); err != nil || len(page) != 3 || page[0].Name != "a-366d" || meta.Meta.NextCursor == "" {
		t.Fatalf("%s", a.body)
	}
	if r.do(adminToken, "GET", "/tokens?limit=3&cursor="+meta.Meta.NextCursor, "").into(t, &page); len(page) != 2 || page[1].Name != "a" {
		t.Errorf("the second page: %+v", page)
	}
	r.do(adminToken, "GET", "/tokens?cursor=a%20b", "").fails(t, "cursor", 422, "invalid", "cursor")
}

func TestRolesOverREST(t *testing.T) { onBoth(t, testRolesOverREST) }

func testRolesOverREST(t *testing.T, r *rig) {
	r.withTokens()
	a := r.do(adminToken, "POST", "/roles", `{"name":"runner","description":"Runs","policies":["provisioning-job:write","vm:operate","provisioning-job:read"]}`)
	var role access.Role
	if a.into(t, &role); a.status != 201 || fmt.Sprint(role.Policies) != "[provisioning-job:create provisioning-job:delete provisioning-job:update provisioning-job:view vm:operate]" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a.header.Get("Location") != "/roles/"+role.ID {
		t.Errorf("Location %q", a.header.Get("Location"))
	}
	for body, want := range map[string]string{
		`{"name":"runner","policies":["vm:operate"]}`: "name-taken name",
		`{"name":"admin","policies":["vm:operate"]}`:  "invalid name",
		`{"name":"x","policies":[]}`:                  "invalid policies",
		`{"name":"x","policies":["vm:operat"]}`:       "invalid policies[0]",
		`{"name":"x","policies":["public"]}`:          "invalid policies[0]",
		`{"name":"x","policies":["vm:operate","*"]}`:  "invalid policies[1]",
	} {
		code, field, _ := strings.Cut(want, " ")
		r.do(adminToken, "POST", "/roles", body).fails(t, body, map[string]int{"invalid": 422, "name-taken": 409}[code], code, field)
	}
	if p := r.do(adminToken, "POST", "/roles", `{"name":"x","policies":["vm:operat"]}`).problem(t); !strings.Contains(p.Errors[0].Fix, "vm:operate") {
		t.Errorf("no suggestion: %+v", p)
	}
	tok := r.token(adminToken, `{"name":"ci","role":"runner",`+orgWide+`}`)
	job := r.create(vmJob("shop"))
	if a := r.do(tok.Secret, "DELETE", "/provisioning-jobs/"+job.ID, ""); a.status >= 400 {
		t.Errorf("runner deletes: %d %s", a.status, a.body)
	}
	if a := r.do(adminToken, "PATCH", "/roles/runner", `{"policies":["provisioning-job:read"]}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.do(tok.Secret, "POST", "/provisioning-jobs", vmJob("shop2")).fails(t, "after the change", 403, "forbidden", "")
	r.do(adminToken, "PATCH", "/roles/Viewer", `{"name":"x"}`).fails(t, "a built-in role", 409, "wrong-state", "")
	r.do(adminToken, "DELETE", "/roles/Admin", "").fails(t, "a built-in role", 409, "wrong-state", "")
	r.do(adminToken, "PATCH", "/roles/runner", `{}`).fails(t, "nothing", 422, "invalid", "body")
	r.do(otherToken, "GET", "/roles/"+role.ID, "").fails(t, "another organisation", 404, "not-found", "")
	r.do(otherToken, "POST", "/tokens", `{"name":"x","role":"`+role.ID+`",`+orgWide+`}`).fails(t, "another organisation's role", 422, "invalid", "role")

	var gone provision.RoleRemoval
	if r.do(adminToken, "DELETE", "/roles/runner", "").into(t, &gone); gone.AssignmentsRemoved != 1 {
		t.Errorf("%+v", gone)
	}
	r.do(tok.Secret, "GET", "/provisioning-jobs", "").fails(t, "after the role's end", 403, "forbidden", "")
	r.do(adminToken, "GET", "/roles/runner", "").fails(t, "the role", 404, "not-found", "")

	var roles []access.Role
	if r.do(adminToken, "GET", "/roles", "").into(t, &roles); len(roles) != 3 || !roles[0].BuiltIn {
		t.Errorf("%+v", roles)
	}
	var policies []provision.PolicyView
	if r.do(noneToken, "GET", "/policies", "").into(t, &policies); len(policies) != len(access.Policies()) || slices.ContainsFunc(policies, func(p provision.PolicyView) bool { return p.Description == "" || len(p.Roles) == 0 }) {
		t.Errorf("%+v", policies)
	}
}

func TestTeamsAndAssignments(t *testing.T) { onBoth(t, testTeamsAndAssignments) }

func testTeamsAndAssignments(t *testing.T, r *rig) {
	r.withTokens()
	team := r.made(adminToken, "/teams", `{"name":"shop"}`)
	other := r.made(adminToken, "/teams", `{"name":"bank"}`)
	r.do(adminToken, "POST", "/teams", `{"name":"shop"}`).fails(t, "the name again", 409, "name-taken", "name")
	tok := r.token(adminToken, `{"name":"ci","role":"Viewer","scope":{"kind":"team","id":"shop"}}`)
	var seen []access.Team
	if r.do(tok.Secret, "GET", "/teams", "").into(t, &seen); len(seen) != 1 || seen[0].ID != team {
		t.Errorf("%+v", seen)
	}
	r.do(tok.Secret, "GET", "/teams/"+other, "").fails(t, "a team that is not seen", 404, "not-found", "")
	r.do(tok.Secret, "POST", "/teams", `{"name":"x"}`).fails(t, "a viewer makes a team", 403, "forbidden", "")
	r.do(otherToken, "GET", "/teams/"+team, "").fails(t, "another organisation", 404, "not-found", "")
	if r.do(otherToken, "GET", "/teams", "").into(t, &seen); len(seen) != 0 {
		t.Errorf("another organisation sees %+v", seen)
	}

	v := r.create(vmJob("web"))
	if _, err := r.db.Exec(db.System(t.Context()), `UPDATE provisioning_jobs SET team_id = $1 WHERE id = $2`, team, v.ID); err != nil {
		t.Fatal(err)
	}
	assign := func(subject, role, scope string) string {
		return `{"subject":` + subject + `,"role":"` + role + `","scope":` + scope + `}`
	}
	ofToken, onJob := `{"kind":"token","id":"ci"}`, `{"kind":"resource","id":"`+v.ID+`"}`
	id := r.made(adminToken, "/assignments", assign(ofToken, "Editor", onJob))
	if a := r.do(adminToken, "POST", "/assignments", assign(ofToken, "Editor", onJob)); a.status != 200 {
		t.Errorf("the same again: %d", a.status)
	}
	for body, field := range map[string]string{
		`{}`: "role",
		assign(`{"kind":"token","id":"no"}`, "Viewer", `{"kind":"org"}`):        "subject.id",
		assign(`{"kind":"robot","id":"ci"}`, "Viewer", `{"kind":"org"}`):        "subject.kind",
		assign(`{"kind":"user","id":"ada"}`, "Viewer", `{"kind":"org"}`):        "subject.id",
		assign(`{"kind":"user","id":"usr_nobody"}`, "Viewer", `{"kind":"org"}`): "subject.id",
		assign(`{"kind":"group","id":" a"}`, "Viewer", `{"kind":"org"}`):        "subject.id",
		assign(ofToken, "Viewer", `{"kind":"resource","id":"spc_none"}`):        "scope.id",
		assign(ofToken, "Viewer", `{"kind":"resource","id":"`+team+`"}`):        "scope.id",
	} {
		r.do(adminToken, "POST", "/assignments", body).fails(t, body, 422, "invalid", field)
	}
	r.do(otherToken, "POST", "/assignments", assign(`{"kind":"group","id":"x"}`, "Viewer", onJob)).fails(t, "another organisation's job", 422, "invalid", "scope.id")
	r.do(otherToken, "DELETE", "/assignments/"+id, "").fails(t, "another organisation's assignment", 404, "not-found", "")
	for _, sub := range []string{`{"kind":"user","id":"Ada@Example.com"}`, `{"kind":"group","id":"Platform Team"}`, `{"kind":"user","id":"machine:github/repo:acme/shop"}`} {
		r.made(adminToken, "/assignments", assign(sub, "Viewer", `{"kind":"team","id":"bank"}`))
	}
	for query, want := range map[string]int{
		"": 5, "?subjectKind=token": 2, "?subjectKind=token&subject=ci&role=Editor": 1, "?scopeKind=team": 4, "?scopeKind=team&scopeId=" + team: 1,
		"?subjectKind=user&subject=ada@example.com": 1, "?role=Admin": 0,
	} {
		var all []access.Assignment
		if r.do(adminToken, "GET", "/assignments"+query, "").into(t, &all); len(all) != want {
			t.Errorf("%q lists %d, want %d", query, len(all), want)
		}
	}

	var may provision.Permissions
	r.do(adminToken, "GET", "/effective-permissions?subject=token:ci&resource="+v.ID, "").into(t, &may)
	held := map[access.Policy]int{}
	for _, p := range may.Permissions {
		held[p.Policy] = len(p.Held)
	}
	if held[access.JobDelete] != 1 || held[access.JobView] != 2 || !may.Works || held[access.RoleManage] != 0 {
		t.Errorf("%+v", may)
	}
	r.do(tok.Secret, "GET", "/effective-permissions?subject=token:ci", "").fails(t, "a viewer asks", 403, "forbidden", "")
	r.do(adminToken, "GET", "/effective-permissions?subject=ci", "").fails(t, "no kind", 422, "invalid", "subject")
	r.do(otherToken, "GET", "/effective-permissions?subject=token:"+tok.ID, "").fails(t, "another organisation", 404, "not-found", "")
	var who provision.WhoAmI
	if r.do(tok.Secret, "GET", "/whoami", "").into(t, &who); who.Organisation.ID != "org1" || who.Actor != "token:ci" || len(who.Permissions) == 0 || who.Permissions[0].Held[0].Assignment == "" {
		t.Errorf("%+v", who)
	}

	r.do(adminToken, "DELETE", "/teams/shop", "").fails(t, "a team with a job", 409, "wrong-state", "")
	if a := r.do(adminToken, "PATCH", "/teams/bank", `{"name":"vault"}`); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.do(adminToken, "DELETE", "/teams/vault", ""); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.do(adminToken, "DELETE", "/assignments/"+id, ""); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	var all []access.Assignment
	if r.do(adminToken, "GET", "/assignments", "").into(t, &all); len(all) != 1 {
		t.Errorf("%d assignments are left, want the one at the team shop", len(all))
	}
}
