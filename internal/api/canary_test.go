package api

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/provision"
)

// TestCanary looks for the text of tokens in everything that is kept or written.
func TestCanary(t *testing.T) { onBoth(t, testCanary) }

func testCanary(t *testing.T, r *rig) {
	r.withTokens()
	v := r.token(adminToken, `{"name":"canary","role":"Admin",`+orgWide+`,"expiresIn":"never"}`)
	r.do(v.Secret, "POST", "/provisioning-jobs", vmJob("shop"))
	r.do(v.Secret, "POST", "/tokens", `{"name":"`+v.Secret+`","role":"Viewer",`+orgWide+`}`) // in the wrong place
	r.do(v.Secret, "GET", "/tokens/"+v.Secret, "").fails(t, "a token for its name", 404, "not-found", "")
	r.do(v.Secret, "DELETE", "/tokens/"+v.Secret, "").fails(t, "a token for its name", 404, "not-found", "")
	r.do(viewerToken, "DELETE", "/tokens/"+v.Secret, "").fails(t, "a token for its name", 403, "forbidden", "")
	r.do(v.Secret, "POST", "/assignments", `{"subject":{"kind":"token","id":"`+v.Secret+`"},"role":"Viewer",`+orgWide+`}`)
	for _, kind := range []string{"user", "group"} {
		for _, id := range []string{v.Secret, v.Secret + "@example.com", "machine:" + v.Secret + "/x", strings.ToUpper(v.Secret)} {
			a := r.do(v.Secret, "POST", "/assignments", `{"subject":{"kind":"`+kind+`","id":"`+id+`"},"role":"Viewer",`+orgWide+`}`)
			if a.status != 422 || strings.Contains(string(a.body), v.Secret) {
				t.Errorf("%s %s is given a role: %d %s", kind, id, a.status, a.body)
			}
		}
	}
	for _, id := range []string{v.Secret, "req_" + v.Secret, "x-" + v.Secret} {
		a := r.do(v.Secret, "DELETE", "/provisioning-jobs/none", "", "X-Request-Id", id)
		if got := a.header.Get("X-Request-Id"); strings.Contains(got, v.Secret) {
			t.Errorf("the request is called %s", got)
		}
	}
	// A job, a space, an account: whatever can stand in a path.
	for _, path := range []string{"/provisioning-jobs/", "/spaces/", "/cloud-accounts/", "/teams/", "/roles/", "/assignments/", "/schedules/", "/webhooks/", "/users/"} {
		for _, method := range []string{"GET", "DELETE", "PATCH"} {
			r.do(v.Secret, method, path+v.Secret, `{}`)
		}
	}
	var next provision.NewToken
	r.do(v.Secret, "POST", "/tokens/canary/rotate", "").into(t, &next)
	r.do(v.Secret, "GET", "/provisioning-jobs", "")
	r.do(next.Secret, "DELETE", "/tokens/canary", "")
	for name, secret := range map[string]string{"made": v.Secret, "rotated": next.Secret} {
		body := secret[len(access.TokenPrefix)+8:] // the hint is meant to be there
		for table, text := range everything(t, r.db) {
			if strings.Contains(text, body) {
				t.Errorf("the table %s holds the token that was %s", table, name)
			}
		}
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, body) {
				t.Errorf("the log holds the token that was %s: %s", name, line)
			}
		}
	}
}

// everything is the content of each table of a database.
func everything(t *testing.T, d *db.DB) map[string]string {
	t.Helper()
	ctx := db.System(t.Context())
	query := `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`
	if d.Dialect() == db.Postgres {
		query = `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`
	}
	out := map[string]string{}
	for _, name := range column(t, d, query) {
		of := `SELECT name FROM pragma_table_info('` + name + `')`
		if d.Dialect() == db.Postgres {
			of = `SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = '` + name + `'`
		}
		cols := column(t, d, of)
		for i, c := range cols {
			cols[i] = `coalesce(CAST("` + c + `" AS text), '')`
		}
		rows, err := d.Query(ctx, `SELECT `+strings.Join(cols, " || ' ' || ")+` FROM "`+name+`"`)
		if err != nil {
			t.Fatal(name, err)
		}
		var b strings.Builder
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(name, err)
			}
			b.WriteString(s + "\n")
		}
		if err := rows.Close(); err != nil {
			t.Fatal(name, err)
		}
		out[name] = b.String()
	}
	if !slices.Contains(slices.Collect(maps.Keys(out)), "tokens") || !strings.Contains(out["tokens"], "canary") {
		t.Fatal("the tables are not read")
	}
	return out
}

func column(t *testing.T, d *db.DB, query string) []string {
	t.Helper()
	rows, err := d.Query(db.System(t.Context()), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}
