package api

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidc"
	"github.com/zopday/provisioner/internal/access/oidctest"
	"github.com/zopday/provisioner/internal/db"
)

const ownPage = "same-origin"

func TestSignInWithABrowser(t *testing.T) {
	t.Parallel()
	s := newSignInRig(t)
	b := s.browser()
	if a := b.do("GET", "/provisioning-jobs", ""); a.status != 401 {
		t.Fatalf("before: %d", a.status)
	}
	var cookies []string
	b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		cookies = append(cookies, r.Response.Header.Values("Set-Cookie")...)
		return nil
	}
	a := b.do("GET", "/auth/login?next=/auth-is-not-this/../provisioning-jobs", "", "Accept", "text/html")
	if a.status != 200 || !strings.Contains(string(a.body), `"data"`) {
		t.Fatalf("after the sign-in: %d %s", a.status, a.body)
	}
	var session, began string
	for _, c := range cookies {
		for _, want := range []string{"Path=/", "HttpOnly", "Secure", "SameSite=Lax"} {
			if !strings.Contains(c, want) {
				t.Errorf("%s is missing in the cookie %s", want, strings.Split(c, "=")[0])
			}
		}
		if strings.Contains(c, "Domain") || !strings.HasPrefix(c, "__Host-zopday") {
			t.Error("a cookie for other hosts, or that they could plant")
		}
		if v, ok := strings.CutPrefix(c, "__Host-zopday-signin="); ok && began == "" {
			began, _, _ = strings.Cut(v, ";")
		}
	}
	if session = b.held("__Host-zopday"); !access.GoodCookie(session) || b.held("__Host-zopday-signin") != "" || !access.GoodCookie(began) {
		t.Errorf("the browser holds a session of %d characters, and of the sign-in %q", len(session), b.held("__Host-zopday-signin"))
	}
	var me SignedIn
	b.do("GET", "/auth/session", "").into(t, &me)
	if me.Actor != "user:ada@example.com" || me.OrgID != "org1" || me.Session == nil || me.Session.Name != "Ada" || !slices.Equal(me.Session.Groups, []string{"platform"}) || me.Session.Issuer != s.issuer.URL {
		t.Errorf("who am I: %+v %+v", me, me.Session)
	}
	if a := b.do("POST", "/provisioning-jobs", vmJob("shop"), "Sec-Fetch-Site", ownPage); a.status != 201 || a.job(t).CreatedBy != "user:ada@example.com" {
		t.Errorf("an editor's job: %d %s", a.status, a.body)
	}
	if a := b.do("GET", "/roles", ""); a.status != 403 {
		t.Errorf("an editor manages roles: %d", a.status)
	}
	// Signed out, the session is gone for whoever has copied it too.
	a = b.do("POST", "/auth/logout", "", "Sec-Fetch-Site", ownPage)
	var out SignedOut
	a.into(t, &out)
	if a.status != 200 || !strings.HasPrefix(out.RedirectTo, s.issuer.URL+"/end?") || b.held("__Host-zopday") != "" {
		t.Errorf("sign-out: %d %s", a.status, a.body)
	}
	thief := s.browser()
	if a := thief.do("GET", "/auth/session", "", "Cookie", "__Host-zopday="+session); a.status != 401 {
		t.Errorf("with the session of who has signed out: %d", a.status)
	}
	if a := b.do("GET", out.RedirectTo, ""); a.status != 200 || !strings.Contains(string(a.body), "You are signed out") {
		t.Errorf("the issuer sends who signs out on to: %d %s", a.status, a.body)
	}
	if a := b.do("POST", "/auth/logout", ""); a.status != 200 {
		t.Errorf("signed out twice: %d", a.status)
	}
	for n, c := range append(s.issuer.Canaries(), session, began) {
		if strings.Contains(s.log.String(), c) {
			t.Errorf("canary %d is in the log", n)
		}
	}
	var entries []struct{ Actor, Action, Outcome string }
	var row string
	if err := s.db.QueryRow(db.System(t.Context()), `SELECT count(*) || ' ' || min(actor) FROM audit_log WHERE org_id = 'org1' AND action IN ('session:create', 'session:delete') AND outcome = 'allowed' AND request_id <> ''`).Scan(&row); err != nil || row != "2 user:ada@example.com" {
		t.Errorf("the audit log: %v %q %v", entries, row, err)
	}
}

// A form that signs out is sent on to the issuer, and back to a page.
func TestSignOutByForm(t *testing.T) {
	t.Parallel()
	s := newSignInRig(t)
	b := s.browser()
	b.do("GET", "/auth/login", "")
	a := b.do("POST", "/auth/logout", "", "Sec-Fetch-Site", ownPage, "Accept", "text/html")
	if a.status != 200 || !strings.Contains(string(a.body), "You are signed out") || b.held("__Host-zopday") != "" || s.issuer.Hits("/end") != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestCrossSiteRequests(t *testing.T) {
	t.Parallel()
	s := newSignInRig(t)
	b := s.browser()
	b.do("GET", "/auth/login", "")
	own := s.web.URL
	for name, tc := range map[string]struct {
		header []string
		ok     bool
	}{
		"our own page":                    {[]string{"Sec-Fetch-Site", "same-origin", "Origin", own}, true},
		"typed by the person":             {[]string{"Sec-Fetch-Site", "none"}, true},
		"our own page in an old browser":  {[]string{"Origin", own}, true},
		"another site":                    {[]string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example.com"}, false},
		"another site that says it is us": {[]string{"Sec-Fetch-Site", "cross-site", "Origin", own}, false},
		"another host of the domain":      {[]string{"Sec-Fetch-Site", "same-site", "Origin", own}, false},
		"an unknown word":                 {[]string{"Sec-Fetch-Site", "friendly", "Origin", own}, false},
		"two words":                       {[]string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Site", "cross-site"}, false},
		"another site, an old browser":    {[]string{"Origin", "https://evil.example.com"}, false},
		"from a sandboxed frame":          {[]string{"Origin", "null"}, false},
		"our host over plain HTTP":        {[]string{"Origin", strings.Replace(own, "https:", "http:", 1)}, false},
		"our host on another port":        {[]string{"Origin", own + "1"}, false},
		"nothing said":                    {nil, false},
		"the referrer alone":              {[]string{"Referer", own + "/"}, false},
		"a method in a header":            {[]string{"X-HTTP-Method-Override", "GET"}, false},
	} {
		a := b.do("POST", "/provisioning-jobs", "{}", tc.header...)
		if tc.ok && a.status != 422 || !tc.ok && (a.status != 403 || !strings.Contains(a.problem(t).Detail, "another site")) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		for _, method := range []string{"PATCH", "DELETE"} {
			if a := b.do(method, "/provisioning-jobs/none", "", tc.header...); !tc.ok && a.status != 403 || tc.ok && a.status == 403 {
				t.Errorf("%s, %s: %d", name, method, a.status)
			}
		}
		if a := b.do("GET", "/provisioning-jobs", "", tc.header...); a.status != 200 {
			t.Errorf("%s, a look: %d", name, a.status)
		}
		if a := b.do("POST", "/auth/logout", "", tc.header...); !tc.ok && a.status != 403 {
			t.Errorf("%s, sign-out: %d", name, a.status)
		} else if tc.ok {
			b.do("GET", "/auth/login", "")
		}
	}
	var n int
	if err := s.db.QueryRow(db.System(t.Context()), `SELECT count(*) FROM audit_log WHERE org_id = 'org1' AND actor = 'user:ada@example.com' AND outcome = 'refused' AND action = 'provisioning-job:create'`).Scan(&n); err != nil || n < 10 {
		t.Errorf("%d refusals are in the audit log, %v", n, err)
	}
}

// The header says who it is where there is one: a cookie beside it counts for nothing,
// and what comes by it needs no page of ours.
func TestHeaderBeforeCookie(t *testing.T) {
	t.Parallel()
	s := newSignInRig(t)
	b := s.browser()
	b.do("GET", "/auth/login", "")
	machine := s.issuer.Sign(s.machine("watchers"), nil)
	for name, tc := range map[string]struct {
		header []string
		status int
		actor  string
	}{
		"a machine's token":            {[]string{"Authorization", "Bearer " + machine}, 200, "machine:test/robot"},
		"a wrong token":                {[]string{"Authorization", "Bearer zop_wrong"}, 401, ""},
		"another scheme":               {[]string{"Authorization", "Basic YTpi"}, 401, ""},
		"an empty header":              {[]string{"Authorization", ""}, 401, ""},
		"two headers":                  {[]string{"Authorization", "Bearer " + machine, "Authorization", "Bearer " + machine}, 400, ""},
		"two headers, one empty":       {[]string{"Authorization", "", "Authorization", "Bearer " + machine}, 400, ""},
		"two tokens in one":            {[]string{"Authorization", "Bearer " + machine + ", Bearer " + machine}, 401, ""},
		"the session as a token":       {[]string{"Authorization", "Bearer " + b.held("__Host-zopday")}, 401, ""},
		"the cookie":                   {nil, 200, "user:ada@example.com"},
		"a second cookie of that name": {[]string{"Cookie", "__Host-zopday=" + access.NewCookie()}, 401, ""},
	} {
		a := b.do("GET", "/auth/session", "", tc.header...)
		if a.status != tc.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		} else if tc.actor != "" {
			var me SignedIn
			if a.into(t, &me); me.Actor != tc.actor || (me.Session == nil) == strings.HasPrefix(tc.actor, "user:") {
				t.Errorf("%s: %+v", name, me)
			}
		}
	}
	// A viewer by its token, whatever the editor's cookie could do; from no page at all.
	if a := b.do("POST", "/provisioning-jobs", vmJob("shop"), "Authorization", "Bearer "+machine); a.status != 403 || strings.Contains(a.problem(t).Detail, "another site") {
		t.Errorf("%d %s", a.status, a.body)
	}
	editor := s.issuer.Sign(s.machine("platform"), nil)
	if a := b.do("POST", "/provisioning-jobs", vmJob("shop"), "Authorization", "Bearer "+editor, "Sec-Fetch-Site", "cross-site"); a.status != 201 || a.job(t).CreatedBy != "machine:test/robot" {
		t.Errorf("%d %s", a.status, a.body)
	}
	// Without a sign-in configured, a cookie is nothing.
	plain := newRig(t)
	if a := plain.do("", "GET", "/provisioning-jobs", "", "Cookie", "zopday="+b.held("__Host-zopday")); a.status != 401 {
		t.Errorf("a cookie where nobody signs in: %d", a.status)
	}
}

func TestSignInPages(t *testing.T) {
	t.Parallel()
	plain := newRig(t)
	for _, path := range []string{"/auth/login", "/auth/callback?code=x&state=y"} {
		if a := plain.do("", "GET", path, ""); a.status != 404 || !strings.Contains(a.problem(t).Detail, "no sign-in service is configured") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		if a := plain.do("", "GET", path, "", "Accept", "text/html"); a.status != 404 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || !strings.Contains(string(a.body), "--oidc-config") {
			t.Errorf("%s as a page: %d %s", path, a.status, a.body)
		}
	}
	other := oidctest.New(t)
	s := newSignInRigWith(t, "- issuer: "+other.URL+"\n  name: second\n  organisation: org2\n  clientId: zopday\n- issuer: https://machines.example.com\n  audiences: [x]\n")
	b := s.browser()
	a := b.do("GET", "/auth/login?next=/zopday%3Fx%3D%22%3E%3Cscript%3E", "", "Accept", "text/html")
	page := string(a.body)
	if a.status != 200 || !strings.Contains(page, `href="/auth/login?issuer=second&amp;next=`) || !strings.Contains(page, `issuer=test`) || strings.Contains(page, "machines") || strings.Contains(page, "<script") {
		t.Errorf("the choice: %d %s", a.status, page)
	}
	for _, issuer := range []string{"machines.example.com", "nobody", "https://evil.example.com", "%00"} {
		if a := b.do("GET", "/auth/login?issuer="+issuer, "", "Accept", "text/html"); a.status != 404 {
			t.Errorf("with %s: %d", issuer, a.status)
		}
	}
	// What an issuer sends is shown to nobody as it is.
	for _, q := range []string{"", "error=%3Cscript%3E&state=x", "code=canary-code&state=x", "%zz", "state=x&state=y", strings.Repeat("a=b&", 90)} {
		a := b.do("GET", "/auth/callback?"+q, "", "Accept", "text/html")
		if page := string(a.body); a.status != 400 || strings.Contains(page, "<script") || strings.Contains(page, "canary") || !strings.Contains(a.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%.40s: %d %s", q, a.status, page)
		}
		if a := b.do("GET", "/auth/callback?"+q, ""); a.status != 400 || a.problem(t).Code != "malformed" {
			t.Errorf("%.40s for a program: %d %s", q, a.status, a.body)
		}
	}
	if strings.Contains(s.log.String(), "canary-code") {
		t.Error("the log has a code")
	}
	s.issuer.Set(func(st *oidctest.State) { st.Down = true })
	if a := b.do("GET", "/auth/login?issuer=test", "", "Accept", "text/html"); a.status != 503 || !strings.Contains(string(a.body), "sign-in service test does not answer") {
		t.Errorf("an issuer that is down: %d %s", a.status, a.body)
	}
	if a := b.do("GET", "/auth/session", "", "Authorization", "Bearer "+s.issuer.Sign(s.machine(), nil)); a.status != 503 || a.problem(t).Code != "unavailable" || a.header.Get("Retry-After") == "" {
		t.Errorf("a machine whose issuer is down: %d %s", a.status, a.body)
	}
}

// Wherever a sign-in is said to go on to, it stays on this server.
func TestOpenRedirects(t *testing.T) {
	t.Parallel()
	s := newSignInRig(t)
	for next, want := range map[string]string{
		"//evil.example.com": "/", `/\evil.example.com`: "/", "%2f%2fevil.example.com": "/", "javascript:alert(1)": "/", "https://evil.example.com": "/", "/auth/logout": "/",
		"/%2fevil.example.com": "/", "/docs?x=//evil": "/docs?x=//evil", "": "/",
	} {
		b := s.browser()
		last := ""
		b.CheckRedirect = func(r *http.Request, via []*http.Request) error {
			if strings.HasPrefix(via[len(via)-1].URL.Path, "/auth/callback") {
				last = r.Response.Header.Get("Location")
				return http.ErrUseLastResponse
			}
			return nil
		}
		b.do("GET", "/auth/login?next="+url.QueryEscape(next), "")
		if last != want {
			t.Errorf("%q goes on to %q, want %q", next, last, want)
		}
	}
}

// On this machine without TLS, the cookies have plain names.
func TestSignInWithoutTLS(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	issuer := oidctest.New(t)
	conf, err := oidc.Parse("f", []byte("issuers: [{issuer: '"+issuer.URL+"', organisation: org1, clientId: zopday, clientSecretEnv: X}]"), func(string) string { return issuer.Secret })
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(nil)
	web.Start()
	t.Cleanup(web.Close)
	signIn, err := oidc.New(t.Context(), oidc.Options{Config: *conf, PublicURL: web.URL, DB: r.db})
	if err != nil {
		t.Fatal(err)
	}
	web.Config.Handler = New(Deps{Service: r.service, Access: access.NewTokens(r.db, nil), SignIn: signIn})
	jar, _ := cookiejar.New(nil)
	c := &http.Client{Jar: jar}
	resp, err := c.Get(web.URL + "/auth/login?next=/auth-x/../whoami")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var me struct{ Data struct{ Actor string } }
	if err := json.NewDecoder(resp.Body).Decode(&me); err != nil || me.Data.Actor != "user:ada@example.com" {
		t.Errorf("%d, %+v, %v", resp.StatusCode, me, err)
	}
	u, _ := url.Parse(web.URL)
	if held := jar.Cookies(u); len(held) != 1 || held[0].Name != "zopday" {
		t.Errorf("cookies %v", held)
	}
}
