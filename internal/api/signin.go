package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidc"
	"github.com/zopday/provisioner/internal/provision"
)

const tagSignIn = "Sign-in"

// The cookies: who is signed in, and who is about to be. Over https their names
// begin with __Host-, so that no other host of the domain can plant one.
const (
	sessionCookie = "zopday"
	signInCookie  = "zopday-signin"
)

// sessionOperation tells a browser who it is signed in as.
const sessionOperation = "get-session"

type sessionKey struct{}

// caller is who a request comes from: the header Authorization says so, or, where
// there is none at all, a session's cookie. A browser adds the cookie by itself, so
// with it a change is taken only from our own pages.
func (s *server) caller(hc huma.Context, policy access.Policy) (context.Context, access.Principal, error) {
	ctx := hc.Context()
	r, _ := humago.Unwrap(hc)
	switch given := r.Header.Values("Authorization"); {
	case len(given) > 1:
		return ctx, access.Principal{}, access.ErrUnauthenticated
	case len(given) == 1:
		p, err := s.Access.Authenticate(ctx, access.Bearer(given[0]))
		return ctx, p, err
	case hc.Operation().OperationID == sessionOperation:
		got, p, err := s.inBrowser(r) // a token's session too, which opens nothing else of the API
		return context.WithValue(ctx, sessionKey{}, got), p, err
	case s.SignIn == nil:
		return ctx, access.Principal{}, access.ErrUnauthenticated
	}
	got, p, err := s.SignIn.Session(ctx, s.cookie(r, sessionCookie))
	if err != nil {
		return ctx, p, err
	}
	if err := s.sameOrigin(r); err != nil {
		return ctx, p, s.Service.Refuse(access.With(ctx, p), policy, hc.Param("id"), err)
	}
	return context.WithValue(ctx, sessionKey{}, got), p, nil
}

// crossOrigin goes by what browsers say of where a request comes from.
var crossOrigin = http.NewCrossOriginProtection()

// sameOrigin refuses a change that another site's page may have made a browser send.
// http.CrossOriginProtection lets a request through that says nothing of its origin,
// since no browser of today sends one. Here it is refused: what is no browser has no
// cookie to send, and an old browser that says nothing cannot be told from an attack.
func (s *server) sameOrigin(r *http.Request) error {
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.Method) {
		return nil // and none of these changes anything
	}
	site, origin := r.Header.Values("Sec-Fetch-Site"), r.Header.Values("Origin")
	ok := len(site) <= 1 && len(origin) <= 1 && crossOrigin.Check(r) == nil
	if len(site) == 0 {
		ok = len(origin) == 1 && origin[0] == s.publicURL(r)
	}
	if ok {
		return nil
	}
	return &provision.Refusal{
		Kind: provision.Forbidden, Message: "a browser has sent this from a page of another site, or does not say from where",
		Hint: "Do it on this server's own pages, in a browser of today; programs send a token in the header Authorization.",
	}
}

// publicURL is where browsers find this server.
func (s *server) publicURL(r *http.Request) string {
	if s.SignIn != nil {
		return s.SignIn.PublicURL()
	}
	if s.PublicURL != "" {
		return s.PublicURL
	}
	if s.limits.secure(r) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// secureSite reports whether browsers come by TLS.
func (s *server) secureSite(r *http.Request) bool {
	return strings.HasPrefix(s.publicURL(r), "https://")
}

func (s *server) cookieName(r *http.Request, name string) string {
	if s.secureSite(r) {
		return "__Host-" + name
	}
	return name
}

// cookie is the value of a cookie, "" if there is none, or more than one.
func (s *server) cookie(r *http.Request, name string) string {
	if all := r.CookiesNamed(s.cookieName(r, name)); len(all) == 1 {
		return all[0].Value
	}
	return ""
}

// setCookie gives a browser something to hold; "" takes it away.
func (s *server) setCookie(w http.ResponseWriter, r *http.Request, name, value string, age time.Duration) {
	//nolint:gosec // Secure wherever browsers come by TLS; over plain HTTP they would not send it back
	c := &http.Cookie{Name: s.cookieName(r, name), Value: value, Path: "/", MaxAge: int(age.Seconds()), HttpOnly: true, Secure: s.secureSite(r), SameSite: http.SameSiteLaxMode}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// SignedIn is who a caller is, and how long a session lasts.
type SignedIn struct {
	Actor   string       `json:"actor" doc:"As the audit log writes it"`
	OrgID   string       `json:"orgId" doc:"The caller's organisation"`
	Session *SessionView `json:"session,omitempty" doc:"Absent for a caller who sends a token"`
}

// SessionView is a session of a browser: a person's, or one that a token has opened.
type SessionView struct {
	UserID    string    `json:"userId,omitempty" doc:"The person; absent where a token has opened the session"`
	Issuer    string    `json:"issuer,omitempty" doc:"Who vouches for the person"`
	Name      string    `json:"name,omitempty" doc:"What the person is called; anybody may be called so"`
	Email     string    `json:"email,omitempty" doc:"Verified by the issuer"`
	Groups    []string  `json:"groups" doc:"Those of the last sign-in"`
	IdleAt    time.Time `json:"idleAt" doc:"When it ends without another request"`
	ExpiresAt time.Time `json:"expiresAt" doc:"When it ends in any case"`
}

// SignedOut is the end of a session.
type SignedOut struct {
	RedirectTo string `json:"redirectTo,omitempty" format:"uri" doc:"Where the issuer ends its own session; absent if it has no such place"`
}

type written struct{ Body func(huma.Context) }

// writes is an answer that a function writes itself.
func writes(fn func(w http.ResponseWriter, r *http.Request)) *written {
	return &written{func(hc huma.Context) {
		r, w := humago.Unwrap(hc)
		w.Header().Del("Content-Type")
		fn(w, r.WithContext(hc.Context()))
	}}
}

func (s *server) signInRoutes() {
	s.userRoutes()
	public := []access.Policy{access.Public}
	page := &huma.Response{Description: "A page", Content: map[string]*huma.MediaType{"text/html": {Schema: &huma.Schema{Type: huma.TypeString}}}}
	type loginIn struct {
		Issuer string `query:"issuer" maxLength:"300" doc:"The sign-in service, by name; a page to choose one if left out and there are several"`
		Next   string `query:"next" maxLength:"2000" doc:"The page of this server to go on to"`
	}
	route(s, huma.Operation{
		OperationID: "sign-in", Method: http.MethodGet, Path: "/auth/login", Tags: []string{tagSignIn}, Summary: "Sign in with a browser",
		Description: "Sends the browser to the sign-in service (OpenID Connect, authorisation code with PKCE). A browser gets what goes wrong as a page, a program as a problem document.",
		Errors:      []int{404, 503}, Responses: map[string]*huma.Response{"200": page, "303": {Description: "To the sign-in service"}},
	}, public, func(_ context.Context, in *loginIn) (*written, error) {
		return writes(func(w http.ResponseWriter, r *http.Request) { s.login(w, r, in.Issuer, in.Next) }), nil
	})
	route(s, huma.Operation{
		OperationID: "finish-sign-in", Method: http.MethodGet, Path: "/auth/callback", Tags: []string{tagSignIn}, Summary: "Where the sign-in service sends the browser back to",
		Description: "Takes the answer to a sign-in that this browser has begun, once, and opens a session.",
		Errors:      []int{401, 403, 404, 503}, Responses: map[string]*huma.Response{"303": {Description: "Signed in: to the page that was asked for"}},
		SkipValidateParams: true, // sign-in services add parameters of their own
	}, public, func(context.Context, *struct{}) (*written, error) { return writes(s.callback), nil })
	route(s, huma.Operation{
		OperationID: "sign-out", Method: http.MethodPost, Path: "/auth/logout", Tags: []string{tagSignIn}, Summary: "Sign out",
		Description: "Ends the browser's session; without one there is nothing to do. A form's answer is a redirect to where the sign-in service ends its own session.",
		Errors:      []int{403}, Responses: map[string]*huma.Response{
			"200": {Description: "Signed out", Content: map[string]*huma.MediaType{"application/json": {Schema: s.schemaOf(Data[SignedOut]{})}}},
			"303": {Description: "Signed out; for a form"},
		},
	}, public, func(context.Context, *struct{}) (*written, error) { return writes(s.logout), nil })
	type sessionOut struct{ Body Data[SignedIn] }
	route(s, huma.Operation{
		OperationID: sessionOperation, Method: http.MethodGet, Path: "/auth/session", Tags: []string{tagSignIn}, Summary: "Who am I, and for how long?",
	}, []access.Policy{access.Authenticated}, func(ctx context.Context, _ *struct{}) (*sessionOut, error) {
		p, _ := access.From(ctx) // the guard has let somebody in
		out := SignedIn{Actor: p.Actor, OrgID: p.OrgID}
		if got, ok := ctx.Value(sessionKey{}).(access.Session); ok {
			u := got.User
			out.Session = &SessionView{UserID: u.ID, Issuer: u.Issuer, Name: u.Name, Email: u.Email, Groups: append([]string{}, u.Groups...), IdleAt: got.IdleAt(), ExpiresAt: got.ExpiresAt}
		}
		return &sessionOut{Data[SignedIn]{Data: out}}, nil
	})
	s.page("/auth/signed-out", "signin.html.tmpl", signInPage{Title: "Signed out", What: "You are signed out here.", Again: true})
}

// A signInPage is what a person sees of the sign-in.
type signInPage struct {
	Title, What, Fix, RequestID string
	Choices                     []signInChoice
	Again                       bool // it can be tried again
}

type signInChoice struct{ Name, URL, Link string }

func (s *server) showPage(w http.ResponseWriter, r *http.Request, status int, p signInPage) {
	var b bytes.Buffer
	if err := docTemplates.ExecuteTemplate(&b, "signin.html.tmpl", p); err != nil {
		s.answer(w, r, s.problem(r.Context(), err))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the caller has gone: nobody is left to tell
}

// noSignIn is the page where nobody can sign in.
func (s *server) noSignIn(w http.ResponseWriter, r *http.Request) bool {
	if s.SignIn != nil && len(s.SignIn.Choices()) > 0 {
		return false
	}
	s.showProblem(w, r, "No sign-in here", newProblem(provision.NotFound, "no sign-in service is configured on this server, so people use tokens",
		"Whoever runs it can name one with --oidc-config; docs/sign-in.md says how."))
	return true
}

func (s *server) login(w http.ResponseWriter, r *http.Request, issuer, next string) {
	if s.noSignIn(w, r) {
		return
	}
	choices := s.SignIn.Choices()
	if issuer == "" && len(choices) > 1 {
		p := signInPage{Title: "Sign in", What: "Sign in with:"}
		for _, c := range choices {
			q := url.Values{"issuer": {c.Name}}
			if n := oidc.LocalPath(next); n != "/" {
				q.Set("next", n)
			}
			p.Choices = append(p.Choices, signInChoice{Name: c.Name, URL: c.URL, Link: "/auth/login?" + q.Encode()})
		}
		s.showPage(w, r, http.StatusOK, p)
		return
	}
	if issuer == "" {
		issuer = choices[0].Name
	}
	at, secret, err := s.SignIn.Begin(r.Context(), issuer, next)
	if err != nil {
		s.signInFailed(w, r, err)
		return
	}
	s.setCookie(w, r, signInCookie, secret, access.SignInWithin)
	redirect(w, at)
}

func (s *server) callback(w http.ResponseWriter, r *http.Request) {
	if s.noSignIn(w, r) {
		return
	}
	from, begun := callerOfRequest(r.Context()).from, s.cookie(r, signInCookie)
	if begun != "" && s.limits.signIns != nil {
		if left := s.limits.signIns.look(from, s.limits.now()); left.wait > 0 {
			s.Metrics.RateLimited("sign-in")
			s.showProblem(w, r, "Not signed in", tooMany("too many sign-ins from your address did not succeed", left))
			return
		}
	}
	answer, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		answer = nil // which has no state, so it is refused
	}
	done, err := s.SignIn.Finish(r.Context(), begun, answer, s.cookie(r, sessionCookie), provision.RequestID(r.Context()))
	if err != nil {
		// Without the cookie nothing was looked up: another site's page has sent the
		// browser here, or it has forgotten.
		if begun != "" {
			s.limits.signInFailed(from)
		}
		s.signInFailed(w, r, err)
		return
	}
	s.setCookie(w, r, signInCookie, "", 0)
	s.setCookie(w, r, sessionCookie, done.Secret, access.SessionAbsolute)
	redirect(w, done.Next)
}

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	to, err := s.signOut(w, r)
	if err != nil {
		s.answer(w, r, s.problem(r.Context(), err))
		return
	}
	out := SignedOut{RedirectTo: to}
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		at := out.RedirectTo
		if at == "" {
			at = "/auth/signed-out"
		}
		redirect(w, at)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = encode(w, Data[SignedOut]{Data: out}) // the caller has gone: nobody is left to tell
}

// signInFailed shows a person why the sign-in does not go on, and a program as a
// problem document.
func (s *server) signInFailed(w http.ResponseWriter, r *http.Request, err error) {
	var f *oidc.Failure
	var p *Problem
	if errors.As(err, &f) {
		s.Log.InfoContext(r.Context(), "sign-in does not go on", "request", provision.RequestID(r.Context()), "status", f.Status, "reason", f.What, "cause", access.Redact(f.Cause()))
		p = newProblem(failureKinds[f.Status], f.What, f.Fix)
		if f.Status == http.StatusUnauthorized || f.Status == http.StatusForbidden {
			s.Metrics.Unauthenticated()
		}
	} else {
		p = s.problem(r.Context(), err)
	}
	s.showProblem(w, r, "Not signed in", p)
}

var failureKinds = map[int]provision.Kind{
	http.StatusBadRequest: provision.Malformed, http.StatusUnauthorized: provision.Unauthenticated, http.StatusForbidden: provision.Forbidden,
	http.StatusNotFound: provision.NotFound, http.StatusServiceUnavailable: unavailable,
}

// showProblem answers a browser with a page, and everything else with a problem document.
func (s *server) showProblem(w http.ResponseWriter, r *http.Request, title string, p *Problem) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		s.answer(w, r, p)
		return
	}
	what := strings.ToUpper(p.Detail[:1]) + p.Detail[1:] + "."
	s.showPage(w, r, p.Status, signInPage{Title: title, What: what, Fix: p.Hint, RequestID: provision.RequestID(r.Context()), Again: p.Status != http.StatusNotFound})
}

// redirect sends a browser on with a GET.
func redirect(w http.ResponseWriter, at string) {
	w.Header().Set("Location", at)
	w.WriteHeader(http.StatusSeeOther)
}
