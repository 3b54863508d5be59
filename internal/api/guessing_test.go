package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
)

// TestGuessingInAForm: the form to sign in with a token is no way around the bound.
func TestGuessingInAForm(t *testing.T) {
	t.Parallel()
	r, clock := limited(t, Limits{PerAddress: 1000, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	r.withTokens()
	good := r.token(adminToken, `{"name":"form","role":"Viewer",`+orgWide+`}`).Secret
	known := r.token(adminToken, `{"name":"known","role":"Viewer",`+orgWide+`}`).Secret
	tokens := access.NewTokens(r.db, nil)
	t.Cleanup(tokens.Wait)
	r.api.Access = tokens
	r.api.mux.HandleFunc("POST "+PagesPath+"/sign-in", func(w http.ResponseWriter, req *http.Request) {
		if err := (PageHost{r.api}).Enter(w, req, req.Header.Get("X-Token")); err != nil {
			r.api.answer(w, req, r.api.problem(req.Context(), err))
		}
	})
	enter := func(token, from string) answer {
		return r.do("", "POST", PagesPath+"/sign-in", "", "X-Token", token, "X-Forwarded-For", from, "Sec-Fetch-Site", "same-origin")
	}
	if a := r.do(known, "GET", "/provisioning-jobs", "", "X-Forwarded-For", "192.0.2.1"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for i := range failureBurst {
		if a := enter(fmt.Sprintf("zop_guess-number-%d", i), "192.0.2.1"); a.status != 401 {
			t.Fatalf("guess %d: %d %s", i, a.status, a.body)
		}
	}
	for name, tc := range map[string]struct {
		token, from string
		want        int
	}{
		"another guess":                 {"zop_guess", "192.0.2.1", 429},
		"a right one, never seen there": {good, "192.0.2.1", 429},
		"one that was seen there":       {known, "192.0.2.1", 200},
		"a right one from elsewhere":    {good, "192.0.2.2", 200},
	} {
		a := enter(tc.token, tc.from)
		if a.status != tc.want || (a.header.Get("Set-Cookie") != "") != (tc.want == 200) {
			t.Errorf("%s: %d, want %d: %s", name, a.status, tc.want, a.body)
		}
		if tc.want == 429 && a.header.Get("Retry-After") != "6" {
			t.Errorf("%s: Retry-After %q", name, a.header.Get("Retry-After"))
		}
	}
	clock.t = clock.t.Add(6 * time.Second)
	if a := enter(good, "192.0.2.1"); a.status != 200 {
		t.Errorf("after six seconds: %d", a.status)
	}
}

// TestCallbacksKeepNobodyOut: any site can send the browsers of an office to the
// callback, as often as it likes. No token is refused for it, and nobody who begins to
// sign in. Answers that do not fit a sign-in that was begun are bounded by themselves.
func TestCallbacksKeepNobodyOut(t *testing.T) {
	t.Parallel()
	s := newSignInRig(t)
	s.api.limits = newLimits(Limits{PerAddress: 1000})
	token := "Bearer " + s.issuer.Sign(s.machine("watchers"), nil)
	for i := range 2 * failureBurst {
		if a := s.browser().do("GET", "/auth/callback?state=x&code=y", ""); a.status < 400 || a.status == 429 {
			t.Fatalf("callback %d of another site: %d %s", i, a.status, a.body)
		}
	}
	if a := s.browser().do("GET", "/provisioning-jobs", "", "Authorization", token); a.status != 200 {
		t.Fatalf("a good token afterwards: %d %s", a.status, a.body)
	}
	if a := s.browser().do("GET", "/auth/login", "", "Accept", "text/html"); a.status == 429 || a.status >= 500 {
		t.Fatalf("a sign-in afterwards: %d %s", a.status, a.body)
	}
	cookie := "__Host-" + signInCookie + "=" + access.NewCookie()
	last := 0
	for range failureBurst + 1 {
		last = s.browser().do("GET", "/auth/callback?state=x&code=y", "", "Cookie", cookie).status
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("guesses at a sign-in's answer are not bounded: %d", last)
	}
	if a := s.browser().do("GET", "/provisioning-jobs", "", "Authorization", "Bearer "+s.issuer.Sign(s.machine("platform"), nil)); a.status != 200 {
		t.Errorf("a good token is kept out by sign-ins that did not succeed: %d", a.status)
	}
}
