package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/provision"
)

// pageCookie holds the session of somebody who came in with a token.
const pageCookie = "zopday-token"

// A TokenDoor opens sessions for tokens; *access.Tokens is one.
type TokenDoor interface {
	Enter(ctx context.Context, bearer string) (secret string, p access.Principal, err error)
	Session(ctx context.Context, secret string) (access.Principal, error)
	Leave(ctx context.Context, secret string) error
}

// A PageHost is what the pages need of the server that they are part of: who a
// request comes from, and the ways in and out.
type PageHost struct{ s *server }

// pageRoutes mounts the pages.
func (s *server) pageRoutes() {
	if s.Pages == nil {
		return
	}
	pages := s.Pages(PageHost{s})
	s.mux.Handle(PagesPath+"/", pages)
	s.mux.HandleFunc("GET "+PagesPath, func(w http.ResponseWriter, _ *http.Request) { redirect(w, PagesPath+"/") })
	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { redirect(w, PagesPath+"/") })
}

// Caller is who a request for a page comes from. A form that another site's page has
// sent is refused.
func (h PageHost) Caller(r *http.Request) (context.Context, access.Principal, error) {
	s, ctx := h.s, r.Context()
	p, err := s.pageCaller(r)
	if err != nil {
		return ctx, p, err
	}
	if err := s.sameOrigin(r); err != nil {
		return ctx, p, err
	}
	return ctx, p, s.spend(ctx, http.Header{}, p)
}

func (s *server) pageCaller(r *http.Request) (access.Principal, error) {
	if s.SignIn != nil {
		_, p, err := s.SignIn.Session(r.Context(), s.cookie(r, sessionCookie))
		if !errors.Is(err, access.ErrUnauthenticated) {
			return p, err
		}
	}
	door, ok := s.Access.(TokenDoor)
	if !ok {
		return access.Principal{}, access.ErrUnauthenticated
	}
	return door.Session(r.Context(), s.cookie(r, pageCookie))
}

// SignInLinks are the sign-in services, and where the browser goes for each.
func (h PageHost) SignInLinks(next string) (names, links []string) {
	if h.s.SignIn == nil {
		return nil, nil
	}
	for _, c := range h.s.SignIn.Choices() {
		names = append(names, c.Name)
		links = append(links, "/auth/login?"+url.Values{"issuer": {c.Name}, "next": {next}}.Encode())
	}
	return names, links
}

// Enter opens a session for a token. The error is access.ErrUnauthenticated if it is
// none; such tries count against the address that they come from.
func (h PageHost) Enter(w http.ResponseWriter, r *http.Request, token string) error {
	s := h.s
	if err := s.sameOrigin(r); err != nil {
		return err
	}
	door, ok := s.Access.(TokenDoor)
	if !ok {
		return access.ErrUnauthenticated
	}
	secret, p, err := door.Enter(r.Context(), token)
	if err != nil {
		if errors.Is(err, access.ErrUnauthenticated) {
			s.Metrics.Unauthenticated()
			s.limits.failed(callerOfRequest(r.Context()).from)
		}
		return err
	}
	s.setCookie(w, r, pageCookie, secret, access.SessionAbsolute)
	return s.Service.SignedIn(access.With(r.Context(), p))
}

// Leave ends the browser's session, and says where its sign-in service ends its own.
func (h PageHost) Leave(w http.ResponseWriter, r *http.Request) (to string, err error) {
	s := h.s
	if err := s.sameOrigin(r); err != nil {
		return "", err
	}
	if s.SignIn != nil {
		if to, err = s.SignIn.SignOut(r.Context(), s.cookie(r, sessionCookie), provision.RequestID(r.Context())); err != nil {
			return "", err
		}
		s.setCookie(w, r, sessionCookie, "", 0)
	}
	if door, ok := s.Access.(TokenDoor); ok {
		if p, err := door.Session(r.Context(), s.cookie(r, pageCookie)); err == nil {
			if err := s.Service.SignedOut(access.With(r.Context(), p)); err != nil {
				return "", err
			}
		}
		if err := door.Leave(r.Context(), s.cookie(r, pageCookie)); err != nil {
			return "", err
		}
	}
	s.setCookie(w, r, pageCookie, "", 0)
	return to, nil
}
