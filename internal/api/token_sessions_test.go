package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/provision"
)

// A rotation that does not say until when keeps the token's own length of life,
// however often and whenever it happens.
func TestRotationKeepsTheLife(t *testing.T) { onBoth(t, testRotationKeepsTheLife) }

func testRotationKeepsTheLife(t *testing.T, r *rig) {
	r.withTokens()
	const day = 24 * time.Hour
	rotate := func(name, body string, want time.Duration) {
		t.Helper()
		var v provision.NewToken
		r.do(adminToken, "POST", "/tokens/"+name+"/rotate", body).into(t, &v)
		if v.ExpiresAt == nil {
			t.Fatalf("%s never ends", name)
		}
		if left := time.Until(*v.ExpiresAt); left > want || left < want-10*time.Minute {
			t.Errorf("%s ends in %s, want %s", name, left, want)
		}
	}
	older := func(name string, by time.Duration) {
		t.Helper()
		if _, err := r.db.Exec(db.System(t.Context()), `UPDATE tokens SET created_at = created_at - $1, expires_at = expires_at - $1 WHERE name = $2`, by.Microseconds(), name); err != nil {
			t.Fatal(err)
		}
	}
	r.token(adminToken, `{"name":"month","role":"Viewer","expiresIn":"30d",`+orgWide+`}`)
	for range 3 {
		older("month", 20*day)
		rotate("month", "", 30*day)
	}
	older("month", 40*day) // it has expired
	rotate("month", "", 30*day)
	rotate("month", `{"expiresIn":"2h"}`, 2*time.Hour)
	rotate("month", "", 2*time.Hour)
	r.token(adminToken, `{"name":"usual","role":"Viewer",`+orgWide+`}`)
	rotate("usual", "", 90*day)

	// From before lives were written down, and rotated so often that it seems to be for years.
	if _, err := r.db.Exec(db.System(t.Context()), `UPDATE tokens SET life = NULL, created_at = 1 WHERE name = 'usual'`); err != nil {
		t.Fatal(err)
	}
	rotate("usual", "", 366*day)

	r.token(adminToken, `{"name":"ever","role":"Viewer","expiresIn":"never",`+orgWide+`}`)
	var v provision.NewToken
	if r.do(adminToken, "POST", "/tokens/ever/rotate", "").into(t, &v); v.ExpiresAt != nil {
		t.Errorf("a token for ever ends at %s", v.ExpiresAt)
	}
}

// What a token beyond the caller's team holds is asked in vain: the answers are those
// for a token that there is not.
func TestNoQuestionFindsTokensBeyondATeam(t *testing.T) {
	t.Parallel()
	r := newRig(t).withTokens()
	r.made(adminToken, "/teams", `{"name":"shop"}`)
	root := r.token(adminToken, `{"name":"root","role":"Admin",`+orgWide+`}`)
	lead := r.token(adminToken, `{"name":"lead","role":"Admin","scope":{"kind":"team","id":"shop"}}`).Secret
	mine := r.token(lead, `{"name":"mine","role":"Editor","scope":{"kind":"team","id":"shop"}}`)
	ask := func(ref string) map[string]answer {
		return map[string]answer{
			"the token":   r.do(lead, "GET", "/tokens/"+ref, ""),
			"assignments": r.do(lead, "GET", "/assignments?subjectKind=token&subject="+ref, ""),
			"permissions": r.do(lead, "GET", "/effective-permissions?subject=token:"+ref, ""),
		}
	}
	nobody := ask("nobody")
	for _, ref := range []string{root.ID, root.Name} {
		for what, a := range ask(ref) {
			a.fails(t, what+" of "+ref, 404, "not-found", "")
			if got, want := a.problem(t), nobody[what].problem(t); got.Detail != want.Detail || got.Hint != want.Hint || want.Status != 404 {
				t.Errorf("%s of %s: %q; of nobody: %q", what, ref, got.Detail, want.Detail)
			}
		}
	}
	for _, ref := range []string{mine.ID, mine.Name} {
		for what, a := range ask(ref) {
			if a.status != 200 {
				t.Errorf("%s of the team's own %s: %d %s", what, ref, a.status, a.body)
			}
		}
	}
	// Over the whole organisation, managing roles is enough to ask what a token holds.
	r.made(adminToken, "/roles", `{"name":"roles","policies":["role:manage"]}`)
	keeper := r.token(adminToken, `{"name":"keeper","role":"roles",`+orgWide+`}`).Secret
	for _, path := range []string{"/assignments?subjectKind=token&subject=root", "/effective-permissions?subject=token:root"} {
		if a := r.do(keeper, "GET", path, ""); a.status != 200 {
			t.Errorf("%s by who manages all roles: %d %s", path, a.status, a.body)
		}
	}
}

// enter opens a token's session, as the page to sign in on does.
func (s *signInRig) enter(b *browser, token string) {
	s.t.Helper()
	if a := b.do("POST", "/zopday/sign-in-here", "", "X-Token", token, "Sec-Fetch-Site", ownPage); a.status != 204 {
		s.t.Fatalf("no way in: %d %s", a.status, a.body)
	}
}

func newTokenDoor(t *testing.T) *signInRig {
	t.Helper()
	s := newSignInRig(t)
	s.api.mux.HandleFunc("POST /zopday/sign-in-here", func(w http.ResponseWriter, r *http.Request) {
		if err := (PageHost{s.api}).Enter(w, r, r.Header.Get("X-Token")); err != nil {
			s.api.answer(w, r, s.api.problem(r.Context(), err))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return s
}

// A session of a token is known to /auth/session, and ends at /auth/logout as any does.
func TestTokenSessionOverREST(t *testing.T) {
	t.Parallel()
	s := newTokenDoor(t)
	tok := s.token(adminToken, `{"name":"ops","role":"Admin","expiresIn":"2h",`+orgWide+`}`)
	b := s.browser()
	s.enter(b, tok.Secret)
	held := b.held("__Host-zopday-token")
	var me SignedIn
	a := b.do("GET", "/auth/session", "")
	a.into(t, &me)
	if me.Actor != "token:ops" || me.OrgID != "org1" || me.Session == nil || me.Session.UserID != "" || !me.Session.IdleAt.After(time.Now()) || !me.Session.ExpiresAt.Equal(*tok.ExpiresAt) {
		t.Errorf("the session: %s", a.body)
	}
	if a := b.do("GET", "/provisioning-jobs", ""); a.status != 401 {
		t.Errorf("the pages' session opens the API: %d", a.status)
	}
	for _, header := range [][]string{nil, {"Sec-Fetch-Site", "cross-site"}} {
		if a := b.do("POST", "/auth/logout", "", header...); a.status != 403 {
			t.Errorf("another site signs out (%v): %d", header, a.status)
		}
	}
	if a := b.do("GET", "/auth/session", ""); a.status != 200 {
		t.Errorf("after another site's try: %d", a.status)
	}
	thief := s.browser()
	if a := thief.do("GET", "/auth/session", "", "Cookie", "__Host-zopday-token="+held); a.status != 200 {
		t.Errorf("with the cookie: %d", a.status)
	}
	if a := b.do("POST", "/auth/logout", "", "Sec-Fetch-Site", ownPage); a.status != 200 || b.held("__Host-zopday-token") != "" {
		t.Errorf("sign-out: %d %s", a.status, a.body)
	}
	if a := thief.do("GET", "/auth/session", "", "Cookie", "__Host-zopday-token="+held); a.status != 401 {
		t.Errorf("with the session of who has signed out: %d", a.status)
	}
	var noted string
	if err := s.db.QueryRow(db.System(t.Context()), `SELECT group_concat(action, ' ') FROM (SELECT action FROM audit_log WHERE org_id = 'org1' AND actor = 'token:ops' AND resource_type = 'session' AND request_id <> '' ORDER BY time, id)`).Scan(&noted); err != nil || noted != "session:create session:delete" {
		t.Errorf("the audit log: %q, %v", noted, err)
	}

	// Whoever has both sessions leaves both.
	s.enter(b, tok.Secret)
	b.do("GET", "/auth/login", "")
	if a := b.do("POST", "/auth/logout", "", "Sec-Fetch-Site", ownPage); a.status != 200 || !strings.Contains(string(a.body), "/end?") {
		t.Errorf("sign-out of both: %d %s", a.status, a.body)
	}
	if b.held("__Host-zopday-token") != "" || b.held("__Host-zopday") != "" {
		t.Error("a cookie is left")
	}
	var n int
	if err := s.db.QueryRow(db.System(t.Context()), `SELECT count(*) FROM sessions`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d sessions are left, %v", n, err)
	}
}

// A token's rotation and its end are those of its sessions too.
func TestTokenSessionsEndOverREST(t *testing.T) {
	t.Parallel()
	s := newTokenDoor(t)
	text := s.token(adminToken, `{"name":"ops","role":"Viewer",`+orgWide+`}`).Secret
	for _, end := range []struct{ method, path string }{{"POST", "/tokens/ops/rotate"}, {"DELETE", "/tokens/ops"}} {
		b := s.browser()
		s.enter(b, text)
		a := s.do(adminToken, end.method, end.path, "")
		if a.status/100 != 2 {
			t.Fatalf("%s: %d %s", end.path, a.status, a.body)
		}
		if got := b.do("GET", "/auth/session", ""); got.status != 401 {
			t.Errorf("after %s %s: %d", end.method, end.path, got.status)
		}
		var n int
		if err := s.db.QueryRow(db.System(t.Context()), `SELECT count(*) FROM sessions`).Scan(&n); err != nil || n != 0 {
			t.Errorf("after %s %s: %d sessions, %v", end.method, end.path, n, err)
		}
		if end.method == "POST" {
			var v provision.NewToken
			a.into(t, &v)
			text = v.Secret
		}
	}
	var _ TokenDoor = (*access.Tokens)(nil)
}
