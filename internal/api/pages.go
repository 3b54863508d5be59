package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/provision"
)

// pageCookie holds the session of somebody who came in with a token.
const pageCookie = "zopday-token"

// A TokenDoor opens sessions for tokens; *access.Tokens is one.
type TokenDoor interface {
	Enter(ctx context.Context, bearer, request string) (secret string, p access.Principal, err error)
	Session(ctx context.Context, secret string) (access.Session, access.Principal, error)
	Leave(ctx context.Context, secret, request string) error
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
	_, p, err := s.inBrowser(r)
	if err != nil {
		return ctx, p, err
	}
	if err := s.sameOrigin(r); err != nil {
		return ctx, p, err
	}
	return ctx, p, s.spend(ctx, http.Header{}, p)
}

// inBrowser is the session of a browser: of a person, or of a token.
func (s *server) inBrowser(r *http.Request) (access.Session, access.Principal, error) {
	if s.SignIn != nil {
		got, p, err := s.SignIn.Session(r.Context(), s.cookie(r, sessionCookie))
		if !errors.Is(err, access.ErrUnauthenticated) {
			return got, p, err
		}
	}
	door, ok := s.Access.(TokenDoor)
	if !ok {
		return access.Session{}, access.Principal{}, access.ErrUnauthenticated
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
// none; such tries count against the address that they come from, and after too many
// the error is a refusal with the status 429.
func (h PageHost) Enter(w http.ResponseWriter, r *http.Request, token string) error {
	s := h.s
	if err := s.sameOrigin(r); err != nil {
		return err
	}
	door, ok := s.Access.(TokenDoor)
	if !ok {
		return access.ErrUnauthenticated
	}
	from := callerOfRequest(r.Context()).from
	if left, ok := s.limits.guess(from, token); !ok {
		s.Metrics.RateLimited("sign-in")
		w.Header().Set("Retry-After", strconv.Itoa(left.seconds(left.wait)))
		return &provision.Refusal{Kind: tooManyRequests, Message: "your address has sent too many tokens that are not valid", Hint: "Wait a minute, then try again."}
	}
	secret, _, err := door.Enter(r.Context(), token, provision.RequestID(r.Context()))
	if err != nil {
		if errors.Is(err, access.ErrUnauthenticated) {
			s.Metrics.Unauthenticated()
			s.limits.failed(from)
		}
		return err
	}
	s.setCookie(w, r, pageCookie, secret, access.SessionAbsolute)
	return nil
}

// Leave ends the browser's session, and says where its sign-in service ends its own.
func (h PageHost) Leave(w http.ResponseWriter, r *http.Request) (to string, err error) {
	if err := h.s.sameOrigin(r); err != nil {
		return "", err
	}
	return h.s.signOut(w, r)
}

// signOut is the one way out: it ends what sessions the browser has, a person's and a
// token's, and takes their cookies away. to is where the sign-in service ends its own
// session, "" if it has no such place. There being no session is no error.
func (s *server) signOut(w http.ResponseWriter, r *http.Request) (to string, err error) {
	person, token := s.cookie(r, sessionCookie), s.cookie(r, pageCookie)
	if person != "" || token != "" {
		if err := s.sameOrigin(r); err != nil {
			return "", err
		}
	}
	request := provision.RequestID(r.Context())
	if s.SignIn != nil {
		if to, err = s.SignIn.SignOut(r.Context(), person, request); err != nil {
			return "", err
		}
		s.setCookie(w, r, sessionCookie, "", 0)
	}
	if door, ok := s.Access.(TokenDoor); ok {
		if err := door.Leave(r.Context(), token, request); err != nil {
			return "", err
		}
		s.setCookie(w, r, pageCookie, "", 0)
	}
	return to, nil
}
