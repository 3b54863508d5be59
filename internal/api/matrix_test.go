package api

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

var update = flag.Bool("update", false, "write the golden files anew")

// permissionsFile is the table of endpoints and roles, for people to read.
var permissionsFile = filepath.Join("..", "..", "docs", "permissions.md")

// A somebody is one row of the matrix: who asks, and with which policies.
type somebody struct {
	name   string
	secret string
	holds  []access.Policy
	known  bool
}

// everybody makes a token for each built-in role, for a role of each single policy,
// for no role at all, and some that do not work.
func (r *rig) everybody() []somebody {
	r.t.Helper()
	ctx := db.System(r.t.Context())
	past := time.Now().Add(-time.Second)
	make := func(name, role string, expires *time.Time) string {
		t, secret := access.Token{ID: job.NewID("tok"), OrgID: "org1", Name: name, CreatedBy: "test", ExpiresAt: expires}, access.NewSecret()
		err := r.db.InTx(ctx, func(ctx context.Context, tx db.Q) error {
			if err := access.AddToken(ctx, tx, &t, secret); err != nil || role == "" {
				return err
			}
			_, _, err := access.AddAssignment(ctx, tx, access.Assignment{
				OrgID: "org1", Subject: access.Subject{Kind: access.SubjectToken, ID: t.ID}, RoleID: role, Scope: access.Scope{Kind: access.OrgScope}, CreatedBy: "test",
			})
			if err == nil && name == "revoked" {
				err = access.RevokeToken(ctx, tx, "org1", t.ID, "test")
			}
			return err
		})
		if err != nil {
			r.t.Fatal(err)
		}
		return secret
	}
	out := []somebody{
		{name: "nobody"}, {name: "unknown", secret: access.NewSecret()}, {name: "expired", secret: make("expired", access.Admin, &past)}, {name: "revoked", secret: make("revoked", access.Admin, nil)},
		{name: "no role", secret: make("no-role", "", nil), known: true},
	}
	for _, role := range access.BuiltInRoles() {
		out = append(out, somebody{name: role.Name, secret: make(role.Name, role.ID, nil), holds: role.Policies, known: true})
	}
	for i, p := range access.Policies() {
		role := access.Role{OrgID: "org1", Name: fmt.Sprintf("only-%d", i), Policies: []access.Policy{p}, CreatedBy: "test"}
		if err := r.db.InTx(ctx, func(ctx context.Context, tx db.Q) error { return access.AddRole(ctx, tx, &role) }); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, somebody{name: string(p), secret: make(role.Name, role.ID, nil), holds: role.Policies, known: true})
	}
	return out
}

// ofTheInstallation are operations that concern every organisation: nobody of another
// than the first may have them, and nobody here is of the first. TestKeeping has them.
var ofTheInstallation = map[string]bool{"GET /secrets": true, "POST /secrets/rotate": true, "POST /backup": true}

// may is what an answer to somebody has to be by the policies that the operation
// declares: 401, 403, or anything else but these two.
func (who somebody) may(op string, policies []string) (want string) {
	declared := func(p access.Policy) bool { return slices.Contains(policies, string(p)) }
	switch {
	case declared(access.Public):
		return "let in"
	case !who.known:
		return "401"
	case declared(access.Authenticated):
		return "let in"
	case ofTheInstallation[op]:
		return "403"
	case !slices.ContainsFunc(who.holds, declared):
		return "403"
	}
	for _, p := range policies {
		// Which of several policies counts depends on what the request asks for, which
		// the use case knows; that has tests of its own.
		if !slices.Contains(who.holds, access.Policy(p)) {
			return "let in, or 403"
		}
	}
	return "let in"
}

// TestPermissionMatrix asks every operation of the OpenAPI document as everybody.
// New operations and new policies are in it by themselves.
func TestPermissionMatrix(t *testing.T) { onBoth(t, testPermissionMatrix) }

func testPermissionMatrix(t *testing.T, r *rig) {
	r.withTokens()
	people, ops := r.everybody(), r.operations()
	asked := 0
	for _, op := range slices.Sorted(maps.Keys(ops)) {
		policies := ops[op]
		if len(policies) == 0 {
			t.Errorf("%s declares no policy", op)
			continue
		}
		method, path, _ := strings.Cut(op, " ")
		path, body := nowhere(path), ""
		if method == "POST" || method == "PATCH" || method == "PUT" {
			body = "{}"
		}
		for _, who := range people {
			a := r.do(who.secret, method, path, body, "Accept", "application/json")
			asked++
			got := "let in"
			if a.status == 401 || a.status == 403 {
				got = fmt.Sprint(a.status)
			}
			if want := who.may(op, policies); got != want && (want != "let in, or 403" || got == "401") {
				t.Errorf("%s by %s: %s, want %s: %.300s", op, who.name, got, want, a.body)
			}
			if a.status >= 500 && a.status != 503 {
				t.Errorf("%s by %s: %d %.300s", op, who.name, a.status, a.body)
			}
		}
	}
	if least := 60 * len(people); asked < least {
		t.Errorf("%d questions were asked, fewer than %d: the document is not read", asked, least)
	}
}

// nowhere puts what does not exist into a path's parameters.
func nowhere(path string) string {
	for strings.Contains(path, "{") {
		before, rest, _ := strings.Cut(path, "{")
		name, after, _ := strings.Cut(rest, "}")
		path = before + "no-such-" + strings.ToLower(name) + after
	}
	return path
}

// TestPermissionsAreDocumented keeps docs/permissions.md true; -update writes it.
func TestPermissionsAreDocumented(t *testing.T) {
	t.Parallel()
	r := newRig(t).withTokens()
	want := permissionsText(r.operations())
	if *update {
		if err := os.WriteFile(permissionsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(permissionsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/permissions.md is not what the routes declare: go test ./internal/api -run TestPermissionsAreDocumented -update writes it")
	}
}

func permissionsText(ops map[string][]string) string {
	var b strings.Builder
	b.WriteString("# Who may do what\n\nWritten by a test from what the routes declare, and kept true by it (`go test ./internal/api -run TestPermissionsAreDocumented -update`).\n" +
		"[access.md](access.md) explains roles, scopes and tokens.\n\n## Policies\n\n| policy | allows | Admin | Editor | Viewer |\n| --- | --- | --- | --- | --- |\n")
	yes := func(is bool) string {
		if is {
			return "yes"
		}
		return ""
	}
	for _, p := range access.Policies() {
		fmt.Fprintf(&b, "| `%s` | %s |", p, access.Describe(p))
		for _, role := range access.BuiltInRoles() {
			fmt.Fprintf(&b, " %s |", yes(slices.Contains(role.Policies, p)))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## Endpoints\n\nWhere several policies are named, one lets a caller in, and what the request asks for decides which one it needs.\n" +
		"A role that is held for a team or one resource counts there alone.\n\n| endpoint | needs | Admin | Editor | Viewer |\n| --- | --- | --- | --- | --- |\n")
	keys := slices.Sorted(maps.Keys(ops))
	slices.SortStableFunc(keys, func(a, b string) int {
		_, pa, _ := strings.Cut(a, " ")
		_, pb, _ := strings.Cut(b, " ")
		return strings.Compare(pa, pb)
	})
	for _, op := range keys {
		needs := ops[op]
		switch access.Policy(needs[0]) {
		case access.Public:
			fmt.Fprintf(&b, "| `%s` | nothing | yes | yes | yes |\n", op)
			continue
		case access.Authenticated:
			fmt.Fprintf(&b, "| `%s` | to be known | yes | yes | yes |\n", op)
			continue
		}
		fmt.Fprintf(&b, "| `%s` | `%s` |", op, strings.Join(needs, "`, `"))
		for _, role := range access.BuiltInRoles() {
			fmt.Fprintf(&b, " %s |", yes(slices.ContainsFunc(role.Policies, func(p access.Policy) bool { return slices.Contains(needs, string(p)) })))
		}
		b.WriteString("\n")
	}
	return b.String()
}
