// Package ui is what all pages are made of: the frame around them, their parts, who
// looks at them, and how what goes wrong is told. Pages are rendered by the server and
// work without script; htmx adds what is live.
package ui

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/provision"
)

// Root is where the pages are.
const Root = "/zopday"

// A Page is one request for a page, and what its handler needs.
type Page struct {
	W       http.ResponseWriter
	R       *http.Request
	Caller  access.Principal // who looks
	Service *provision.Service
	Now     time.Time
	Site    Site
}

// A Site is the installation that pages belong to.
type Site struct {
	Version string
	Public  string // the server's own address, for commands that are shown, such as https://zopday.example.com
}

// Ctx is the context of the request; the caller is in it.
func (p *Page) Ctx() context.Context { return p.R.Context() }

// Can reports whether the caller holds a policy over anything.
func (p *Page) Can(policy access.Policy) bool { return !p.Caller.Over(policy).Nothing() }

// CanOver reports whether the caller holds a policy over a thing of a team; ids are
// its own and those of what it belongs to.
func (p *Page) CanOver(policy access.Policy, team string, ids ...string) bool {
	return p.Caller.Over(policy).Covers(team, ids...)
}

// WhoCan says who may do what the caller may not: for the reason beside an action
// that is switched off.
func WhoCan(policy access.Policy) string {
	return "Needs " + string(policy) + ". The roles that have it: " + strings.Join(access.RolesWith(policy), ", ") + "."
}

// Query is a parameter of the address, without blanks around it.
func (p *Page) Query(name string) string { return strings.TrimSpace(p.R.URL.Query().Get(name)) }

// Form is what a form sent. Its size is bounded before it comes here.
func (p *Page) Form() (url.Values, error) {
	if err := p.R.ParseForm(); err != nil {
		return nil, &provision.Refusal{Kind: provision.Malformed, Message: "the form could not be read", Hint: "Go back and send it again."}
	}
	return p.R.PostForm, nil
}

// Partial reports whether htmx asks for a part of the page that it shows already.
func (p *Page) Partial() bool { return p.R.Header.Get("HX-Request") == "true" }

// Redirect sends the browser to another page after something was done. where is
// below Root.
func (p *Page) Redirect(where string) error {
	http.Redirect(p.W, p.R, where, http.StatusSeeOther) //nolint:gosec // what a caller asks for goes through LocalPath first
	return nil
}

// Show renders a whole page.
func (p *Page) Show(f Frame, body templ.Component) error { return p.ShowAs(http.StatusOK, f, body) }

// ShowAs renders a whole page with a status of its own.
func (p *Page) ShowAs(status int, f Frame, body templ.Component) error {
	return p.write(status, frame(p, f, body))
}

// Part renders a part of a page, for htmx.
func (p *Page) Part(body templ.Component) error { return p.write(http.StatusOK, body) }

func (p *Page) write(status int, c templ.Component) error {
	// Rendered whole before anything is sent: a part that fails is an error page, not
	// half a page.
	var b bytes.Buffer
	if err := c.Render(p.Ctx(), &b); err != nil {
		return err
	}
	h := p.W.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding, HX-Request")
	if b.Len() < 1400 || !accepts(p.R, "gzip") {
		p.W.WriteHeader(status)
		_, _ = p.W.Write(b.Bytes()) // the caller has gone: nobody is left to tell
		return nil
	}
	h.Set("Content-Encoding", "gzip")
	p.W.WriteHeader(status)
	z := gzip.NewWriter(p.W)
	_, _ = z.Write(b.Bytes()) // likewise
	_ = z.Close()
	return nil
}

// A Handler answers one request. Its error is told on a page: what happened, to
// what, and what to do next.
type Handler func(p *Page) error

// A Mux holds the pages. Each declares the policies of which a caller needs one; a
// page without is not taken.
type Mux struct {
	mux   *http.ServeMux
	d     Deps
	pages []Declared
}

// A Declared page is a pattern with its policies.
type Declared struct {
	Method, Path string
	Policies     []access.Policy
}

// Deps is what pages stand on.
type Deps struct {
	Service *provision.Service
	// Caller says who a request comes from; the error is access.ErrUnauthenticated, or
	// a refusal of a form that another site's page has sent.
	Caller func(r *http.Request) (context.Context, access.Principal, error)
	Log    *slog.Logger
	Site   Site
	Now    func() time.Time // nil: the wall clock
	Door   Door
}

// NewMux makes a mux with the assets.
func NewMux(d Deps) *Mux {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mux{mux: http.NewServeMux(), d: d}
	m.mux.HandleFunc("GET "+Root+"/assets/{name}", serveAsset)
	m.doorRoutes()
	return m
}

// Pages lists what was declared.
func (m *Mux) Pages() []Declared { return m.pages }

// Get declares a page.
func (m *Mux) Get(path string, policies []access.Policy, h Handler) {
	m.handle(http.MethodGet, path, policies, h)
}

// Post declares what a form is sent to.
func (m *Mux) Post(path string, policies []access.Policy, h Handler) {
	m.handle(http.MethodPost, path, policies, h)
}

// Open declares a page that needs nobody, such as the one to sign in on.
func (m *Mux) Open(method, path string, h func(w http.ResponseWriter, r *http.Request)) {
	m.pages = append(m.pages, Declared{method, path, []access.Policy{access.Public}})
	m.mux.HandleFunc(method+" "+Root+path, h)
}

func (m *Mux) handle(method, path string, policies []access.Policy, h Handler) {
	if len(policies) == 0 {
		panic("page " + path + " declares no policy")
	}
	m.pages = append(m.pages, Declared{method, path, policies})
	pattern := method + " " + Root + path
	if strings.HasSuffix(path, "/") {
		pattern += "{$}"
	}
	m.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		p := m.page(w, r)
		ctx, caller, err := m.d.Caller(r)
		if errors.Is(err, access.ErrUnauthenticated) {
			m.signIn(p)
			return
		}
		if err == nil {
			p.R, p.Caller = r.WithContext(access.With(ctx, caller)), caller
			if policies[0] != access.Authenticated {
				err = m.d.Service.Permit(p.Ctx(), r.PathValue("id"), policies...)
			}
		}
		if err == nil {
			err = h(p)
		}
		if err != nil {
			m.Fail(p, err)
		}
	})
}

func (m *Mux) page(w http.ResponseWriter, r *http.Request) *Page {
	return &Page{W: w, R: r, Service: m.d.Service, Now: m.d.Now(), Site: m.d.Site}
}

// signIn sends a browser to the sign-in page, and back here afterwards; htmx is told
// to load it as a page.
func (m *Mux) signIn(p *Page) {
	next := p.R.URL.RequestURI()
	if p.R.Method != http.MethodGet {
		next = Root + "/"
	}
	to := Root + "/sign-in?next=" + url.QueryEscape(next)
	if p.Partial() {
		p.W.Header().Set("HX-Redirect", to)
		p.W.WriteHeader(http.StatusUnauthorized)
		return
	}
	http.Redirect(p.W, p.R, to, http.StatusSeeOther)
}

// ServeHTTP answers a request below Root.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := m.mux.Handler(r); pattern != "" {
		m.mux.ServeHTTP(w, r)
		return
	}
	p := m.page(w, r)
	if ctx, caller, err := m.d.Caller(r); err == nil {
		p.R, p.Caller = r.WithContext(access.With(ctx, caller)), caller
	}
	m.Fail(p, &provision.Refusal{Kind: provision.NotFound, Message: "There is no such page.", Hint: "The navigation has all there are."})
}
