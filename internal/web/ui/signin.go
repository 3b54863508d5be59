package ui

import (
	"errors"
	"net/http"
	"strings"

	"github.com/zopday/provisioner/internal/access"
)

// A Door is how somebody comes in and goes out.
type Door struct {
	// Choices are the sign-in services: a name, and where the browser goes.
	Choices func(next string) []Link
	// Enter opens a session for a token, in the answer's cookie. The error is
	// access.ErrUnauthenticated if the token is not one.
	Enter func(w http.ResponseWriter, r *http.Request, token string) error
	// Leave ends the session, and says where the browser goes then; "": the sign-in page.
	Leave func(w http.ResponseWriter, r *http.Request) (to string, err error)
}

// doorRoutes are the pages to sign in and out on.
func (m *Mux) doorRoutes() {
	m.Open(http.MethodGet, "/sign-in", func(w http.ResponseWriter, r *http.Request) {
		p := m.page(w, r)
		if _, _, err := m.d.Caller(r); err == nil {
			_ = p.Redirect(LocalPath(p.Query("next")))
			return
		}
		m.showDoor(p, http.StatusOK, LocalPath(p.Query("next")), "")
	})
	m.Open(http.MethodPost, "/sign-in", func(w http.ResponseWriter, r *http.Request) {
		p := m.page(w, r)
		form, err := p.Form()
		if err != nil {
			m.Fail(p, err)
			return
		}
		next := LocalPath(form.Get("next"))
		switch err := m.d.Door.Enter(w, r, strings.TrimSpace(form.Get("token"))); {
		case err == nil:
			_ = p.Redirect(next)
		case isUnauthenticated(err):
			m.showDoor(p, http.StatusUnauthorized, next, "This is not a token that works here. It may have been revoked, or have expired; the first part of it, zop_, belongs to it.")
		default:
			m.Fail(p, err)
		}
	})
	m.Open(http.MethodPost, "/sign-out", func(w http.ResponseWriter, r *http.Request) {
		p := m.page(w, r)
		to, err := m.d.Door.Leave(w, r)
		if err != nil {
			m.Fail(p, err)
			return
		}
		if to == "" {
			to = Root + "/sign-in"
		}
		_ = p.Redirect(to)
	})
}

func (m *Mux) showDoor(p *Page, status int, next, wrong string) {
	var choices []Link
	if m.d.Door.Choices != nil {
		choices = m.d.Door.Choices(next)
	}
	if err := p.ShowAs(status, Frame{Title: "Sign in", Error: wrong != ""}, signInForm(choices, next, wrong)); err != nil {
		m.Fail(p, err)
	}
}

func isUnauthenticated(err error) bool {
	return errors.Is(err, access.ErrUnauthenticated)
}

// LocalPath is where to go on to after something: a page below Root, or else the home page.
func LocalPath(next string) string {
	if strings.HasPrefix(next, Root+"/") && !strings.ContainsAny(next, "\\\r\n\t") && !strings.Contains(next, "//") && !strings.Contains(next, "..") {
		return next
	}
	return Root + "/"
}
