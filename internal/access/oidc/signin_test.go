package oidc

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidctest"
	"github.com/zopday/provisioner/internal/db"
)

func TestSignIn(t *testing.T) { onBoth(t, testSignIn) }

func testSignIn(t *testing.T, r *rig) {
	done, err := r.tryEnter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if done.Next != "/zopday/jobs?status=failed" {
		t.Errorf("next is %q", done.Next)
	}
	s, p, err := r.signIn.Session(t.Context(), done.Secret)
	if err != nil {
		t.Fatal(err)
	}
	want := access.User{ID: s.User.ID, OrgID: access.DefaultOrg, Issuer: r.issuer.URL, Subject: "ada-1", Name: "Ada", Email: "ada@example.com", Groups: []string{"platform"}}
	if diff := cmp.Diff(want, s.User); diff != "" || !strings.HasPrefix(s.User.ID, "usr_") {
		t.Error(diff)
	}
	if p.Actor != "user:ada@example.com" || p.OrgID != access.DefaultOrg || len(p.Grants) != 1 || p.Grants[0].Role != access.Admin {
		t.Errorf("the principal is %+v", p)
	}
	if got := s.ExpiresAt.Sub(r.now()).Round(time.Minute); got != access.SessionAbsolute {
		t.Errorf("the session ends in %s", got)
	}
	// Signed in again it is the same person with a new session.
	second := r.enter()
	s2, _, err := r.signIn.Session(t.Context(), second)
	if err != nil || s2.User.ID != s.User.ID || second == done.Secret {
		t.Errorf("signed in again: %v, the same person: %v", err, s2.User.ID == s.User.ID)
	}
	at, err := r.signIn.SignOut(t.Context(), done.Secret, "req-2")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(at)
	if err != nil || u.Path != "/end" || u.Query().Get("client_id") != "zopday" || u.Query().Get("post_logout_redirect_uri") != "https://zopday.example.com/auth/signed-out" || u.Query().Has("id_token_hint") {
		t.Errorf("the issuer's end of sessions is at %q", at)
	}
	if _, _, err := r.signIn.Session(t.Context(), done.Secret); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("who has copied the session still has it after the sign-out: %v", err)
	}
	if _, _, err := r.signIn.Session(t.Context(), second); err != nil {
		t.Errorf("the other session: %v", err)
	}
	if at, err := r.signIn.SignOut(t.Context(), done.Secret, ""); at != "" || err != nil {
		t.Errorf("signed out twice: %q, %v", at, err)
	}
	got := r.audit()
	wantLog := []string{"user:ada@example.com session:create allowed", "user:ada@example.com session:create allowed", "user:ada@example.com session:delete allowed"}
	if diff := cmp.Diff(wantLog, got); diff != "" {
		t.Error(diff)
	}
	r.noCanary(done.Secret, second)
}

// audit is the organisation's entries, the oldest first.
func (r *rig) audit() []string {
	r.t.Helper()
	rows, err := r.db.Query(db.System(r.t.Context()), `SELECT actor, action, outcome FROM audit_log WHERE org_id = $1 ORDER BY id`, access.DefaultOrg)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var actor, action, outcome string
		if err := rows.Scan(&actor, &action, &outcome); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, actor+" "+action+" "+outcome)
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// noCanary looks for secrets where none may be: the log, and every table.
func (r *rig) noCanary(more ...string) {
	r.t.Helper()
	texts := map[string]string{"the log": r.log.String()}
	for _, table := range []string{"audit_log", "users", "sessions", "sign_ins", "settings"} {
		columns := map[string]string{
			"audit_log": "actor || action || resource_id || request_id || coalesce(CAST(detail AS text), '')", "users": "id || issuer || subject || name || email || groups",
			"sessions": "hash || groups", "sign_ins": "hash || next", "settings": "key || value",
		}[table]
		rows, err := r.db.Query(db.System(r.t.Context()), `SELECT `+columns+` FROM `+table)
		if err != nil {
			r.t.Fatal(err)
		}
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				r.t.Fatal(err)
			}
			texts["the table "+table] += s + "\n"
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			r.t.Fatal(err)
		}
	}
	canaries := append(r.issuer.Canaries(), more...)
	if len(canaries) < 5 {
		r.t.Fatalf("only %d canaries", len(canaries))
	}
	for where, text := range texts {
		for n, c := range canaries {
			if c != "" && strings.Contains(text, c) {
				r.t.Errorf("canary %d is in %s", n, where)
			}
		}
	}
}

// What an answer of the issuer can have wrong, and what is said of it.
func TestSignInRefused(t *testing.T) {
	t.Parallel()
	wrong := func(edit func(c map[string]any)) func(*oidctest.State) {
		return func(s *oidctest.State) { s.Edit = edit }
	}
	for name, tc := range map[string]struct {
		issuer  func(*oidctest.State)
		browser func(secret *string, answer url.Values)
		status  int
		audited bool
	}{
		"without the cookie":      {browser: func(s *string, _ url.Values) { *s = "" }, status: 400},
		"another browser":         {browser: func(s *string, _ url.Values) { *s = access.NewCookie() }, status: 400},
		"a cookie that is none":   {browser: func(s *string, _ url.Values) { *s = "\x00../" }, status: 400},
		"another state":           {browser: func(_ *string, a url.Values) { a.Set("state", derive(access.NewCookie(), "state")) }, status: 400},
		"no state":                {browser: func(_ *string, a url.Values) { a.Del("state") }, status: 400},
		"the code twice":          {browser: func(_ *string, a url.Values) { a.Add("code", "x") }, status: 400},
		"no code":                 {browser: func(_ *string, a url.Values) { a.Del("code") }, status: 400},
		"a long code":             {browser: func(_ *string, a url.Values) { a.Set("code", strings.Repeat("c", maxCode+1)) }, status: 400},
		"another code":            {browser: func(_ *string, a url.Values) { a.Set("code", "guess") }, status: 400},
		"another issuer's answer": {browser: func(_ *string, a url.Values) { a.Set("iss", "https://evil.example.com") }, status: 400},
		"nobody's answer":         {browser: func(_ *string, a url.Values) { a.Del("iss") }, status: 400},
		"the person said no":      {browser: func(_ *string, a url.Values) { a.Del("code"); a.Set("error", "access_denied") }, status: 401},
		"an error of markup":      {browser: func(_ *string, a url.Values) { a.Set("error", "<script>") }, status: 401},
		"another nonce":           {issuer: wrong(with("nonce", "other")), status: 403, audited: true},
		"no nonce":                {issuer: wrong(with("nonce", nil)), status: 403, audited: true},
		"for another client":      {issuer: wrong(with("aud", "other")), status: 403, audited: true},
		"for two, and not said":   {issuer: wrong(with("aud", []string{"zopday", "other"})), status: 403, audited: true},
		"another authorised one":  {issuer: wrong(with("azp", "other")), status: 403, audited: true},
		"by another issuer":       {issuer: wrong(with("iss", "https://evil.example.com")), status: 403, audited: true},
		"expired":                 {issuer: wrong(with("exp", time.Now().Add(-2*time.Minute).Unix())), status: 403, audited: true},
		"not yet valid":           {issuer: wrong(with("nbf", time.Now().Add(2*time.Minute).Unix())), status: 403, audited: true},
		"issued in the future":    {issuer: wrong(with("iat", time.Now().Add(2*time.Minute).Unix())), status: 403, audited: true},
		"another access token":    {issuer: wrong(with("at_hash", "AAAAAAAAAAAAAAAAAAAAAA")), status: 403, audited: true},
		"no subject":              {issuer: wrong(with("sub", nil)), status: 403, audited: true},
		"a subject of blanks":     {issuer: wrong(with("sub", "a b")), status: 403, audited: true},
		"groups elsewhere": {issuer: wrong(func(c map[string]any) {
			delete(c, "groups")
			c["_claim_names"] = map[string]any{"groups": "src1"}
			c["_claim_sources"] = map[string]any{"src1": map[string]any{"endpoint": "http://192.0.2.1/"}}
		}), status: 403, audited: true},
		"too many groups": {issuer: wrong(with("groups", strings.Split(strings.Repeat("g,", 501), ","))), status: 403, audited: true},
		"a signature of another": {issuer: func(s *oidctest.State) {
			k := oidctest.NewKey(t, "key-1")
			s.Sign = func(_ *oidctest.Issuer, c map[string]any) string { return oidctest.SignWith(k, jose.ES256, c, nil) }
		}, status: 403, audited: true},
		"no ID token": {issuer: func(s *oidctest.State) { s.Sign = func(*oidctest.Issuer, map[string]any) string { return "" } }, status: 403, audited: true},
		"alg none": {issuer: func(s *oidctest.State) {
			s.Sign = func(i *oidctest.Issuer, c map[string]any) string {
				return "eyJhbGciOiJub25lIn0." + strings.Split(i.Sign(c, nil), ".")[1] + "."
			}
		}, status: 403, audited: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if tc.issuer != nil {
				r.issuer.Set(tc.issuer)
			}
			done, err := r.tryEnter(tc.browser)
			var f *Failure
			if !errors.As(err, &f) || f.Status != tc.status || done.Secret != "" || f.What == "" || f.Fix == "" || strings.Contains(f.What, "<") {
				t.Fatalf("%+v, %+v", f, err)
			}
			entries := r.audit()
			if tc.audited != (len(entries) == 1 && strings.HasSuffix(entries[0], " session:create refused")) || !tc.audited && len(entries) > 0 {
				t.Errorf("the audit log has %q", entries)
			}
			var n int
			if err := r.db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM users)`).Scan(&n); err != nil || n != 0 {
				t.Errorf("%d users and sessions were made, %v", n, err)
			}
			r.noCanary("canary-code-", "canary-access-token-", "canary-client-secret")
			for _, c := range r.issuer.Canaries() {
				if c != "" && strings.Contains(f.Error()+f.Fix+f.Cause(), c) {
					t.Errorf("the error holds a canary: %v (%s)", f, f.Cause())
				}
			}
		})
	}
}

// A sign-in is finished once, whoever comes first, and by its own browser within its time.
func TestSignInOnce(t *testing.T) { onBoth(t, testSignInOnce) }

func testSignInOnce(t *testing.T, r *rig) {
	ctx := t.Context()
	at, secret, err := r.signIn.Begin(ctx, r.issuer.URL, "/")
	if err != nil {
		t.Fatal(err)
	}
	answer := r.visit(at)
	// Somebody makes the browser come back with another answer: nothing is ended by it.
	forged := url.Values{"state": {"forged"}, "code": {"x"}, "iss": {r.issuer.URL}}
	if _, err := r.signIn.Finish(ctx, secret, forged, "", ""); err == nil {
		t.Fatal("a forged answer was taken")
	}
	var won int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			_, err := r.signIn.Finish(ctx, secret, answer, "", "")
			var f *Failure
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case !errors.As(err, &f) || f.Status != http.StatusBadRequest:
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("the same answer was taken %d times", won)
	}
	at, secret, err = r.signIn.Begin(ctx, "test", "/")
	if err != nil {
		t.Fatal(err)
	}
	answer = r.visit(at)
	r.pass(access.SignInWithin + time.Second)
	if _, err := r.signIn.Finish(ctx, secret, answer, "", ""); err == nil {
		t.Error("a sign-in that took too long was taken")
	}
}

// A new session has a new ID, and the browser's old one ends.
func TestSessionFixation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, planted := range []string{"x", access.NewCookie(), r.enter()} {
		at, secret, err := r.signIn.Begin(t.Context(), "test", "/")
		if err != nil {
			t.Fatal(err)
		}
		done, err := r.signIn.Finish(t.Context(), secret, r.visit(at), planted, "")
		if err != nil || done.Secret == planted {
			t.Fatalf("the session that the browser brought goes on: %v", err)
		}
		if _, _, err := r.signIn.Session(t.Context(), planted); !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("the session that the browser brought is alive: %v", err)
		}
	}
}

func TestSessionExpires(t *testing.T) { onBoth(t, testSessionExpires) }

func testSessionExpires(t *testing.T, r *rig) {
	alive := func(s string) bool {
		_, _, err := r.signIn.Session(t.Context(), s)
		if err != nil && !errors.Is(err, access.ErrUnauthenticated) {
			t.Fatal(err)
		}
		return err == nil
	}
	idle := r.enter()
	r.pass(access.SessionIdle - time.Minute)
	if !alive(idle) {
		t.Error("gone before eight hours without a request")
	}
	r.pass(access.SessionIdle - time.Minute)
	if !alive(idle) {
		t.Error("the request before did not count")
	}
	r.pass(access.SessionIdle + time.Second)
	if alive(idle) {
		t.Error("alive after eight hours without a request")
	}
	busy := r.enter()
	for range 23 {
		r.pass(7 * time.Hour)
		if !alive(busy) {
			t.Fatal("gone although it is used")
		}
	}
	r.pass(7*time.Hour + time.Minute)
	if alive(busy) {
		t.Error("alive after seven days")
	}
	kept := r.enter()
	if n, err := r.signIn.Sweep(t.Context()); err != nil || n != 2 {
		t.Errorf("swept %d, %v", n, err)
	}
	if !alive(kept) {
		t.Error("a live session was swept")
	}
	if _, _, err := r.signIn.Begin(t.Context(), "test", "/"); err != nil {
		t.Fatal(err)
	}
	r.pass(access.SignInWithin + time.Second)
	if n, err := r.signIn.Sweep(t.Context()); err != nil || n != 1 {
		t.Errorf("swept %d sign-ins, %v", n, err)
	}
}

// seen_at is written once a minute at most.
func TestSeenIsWrittenSeldom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.enter()
	at := func() (us int64) {
		if err := r.db.QueryRow(t.Context(), `SELECT seen_at FROM sessions`).Scan(&us); err != nil {
			t.Fatal(err)
		}
		return us
	}
	first := at()
	for range 5 {
		r.pass(11 * time.Second)
		if _, _, err := r.signIn.Session(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if at() != first {
		t.Error("written within a minute")
	}
	r.pass(6 * time.Second)
	if _, _, err := r.signIn.Session(t.Context(), s); err != nil || at() == first {
		t.Errorf("not written after a minute, %v", err)
	}
}
