package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
)

// Options are what sign-in stands on.
type Options struct {
	Config    Config
	PublicURL string // where browsers find this server: https://, or http:// on this machine
	DB        *db.DB
	Sessions  *access.Sessions  // nil: those of DB
	Log       *slog.Logger      // nil: silence
	Now       func() time.Time  // the clock by which tokens expire; nil: the wall clock
	Transport http.RoundTripper // how issuers are asked; nil: as everybody is
}

// A SignIn signs people in and tells machines by their tokens.
type SignIn struct {
	public   string // without a slash at its end
	secure   bool   // browsers come by https
	issuers  []*issuer
	byURL    map[string]*issuer
	sessions *access.Sessions
	d        *db.DB
	log      *slog.Logger
	now      func() time.Time
	verified cache
}

// New prepares sign-in. No issuer is asked yet; that an organisation does not exist
// is found out.
func New(ctx context.Context, o Options) (*SignIn, error) {
	s := &SignIn{d: o.DB, sessions: o.Sessions, log: o.Log, now: o.Now, byURL: map[string]*issuer{}}
	if s.sessions == nil {
		s.sessions = access.NewSessions(o.DB)
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	if err := s.publicAt(o.PublicURL); err != nil {
		return nil, err
	}
	orgs, err := access.ListOrgs(ctx, o.DB)
	if err != nil {
		return nil, err
	}
	ask := client(o.Transport)
	for _, is := range o.Config.Issuers {
		n := slices.IndexFunc(orgs, func(g access.Org) bool { return g.ID == is.Organisation || g.Name == is.Organisation })
		if n < 0 {
			return nil, fmt.Errorf("--oidc-config: the issuer %s is for the organisation %q, which does not exist; make it with zopday orgs create, or name another", is.URL, is.Organisation)
		}
		i := &issuer{Issuer: is, org: orgs[n].ID, client: ask, now: s.now, log: s.log}
		s.issuers, s.byURL[is.URL] = append(s.issuers, i), i
	}
	return s, nil
}

func (s *SignIn) publicAt(at string) error {
	u, err := url.Parse(at)
	if err == nil {
		err = safeURL(at)
	}
	if err != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return fmt.Errorf("--public-url %q is not where browsers find this server; give it as in https://zopday.example.com, without a path (http:// is for this machine alone)", clip(at, 200))
	}
	s.public, s.secure = u.Scheme+"://"+u.Host, u.Scheme == "https"
	return nil
}

// PublicURL is where browsers find this server, such as https://zopday.example.com.
func (s *SignIn) PublicURL() string { return s.public }

// Secure reports whether browsers come by https.
func (s *SignIn) Secure() bool { return s.secure }

// Sweep removes the sessions and sign-ins that are over.
func (s *SignIn) Sweep(ctx context.Context) (int64, error) { return s.sessions.Sweep(ctx) }

// A Choice is an issuer that people can sign in with.
type Choice struct{ Name, URL string }

// Choices are the issuers that people can sign in with.
func (s *SignIn) Choices() []Choice {
	var out []Choice
	for _, i := range s.issuers {
		if i.ClientID != "" {
			out = append(out, Choice{i.Name, i.URL})
		}
	}
	return out
}

// A Failure is a sign-in that does not go on, in words for the person. The cause is
// for the log.
type Failure struct {
	Status int // of HTTP
	What   string
	Fix    string
	cause  error
}

func (f *Failure) Error() string { return f.What }
func (f *Failure) Unwrap() error { return f.cause }

const again = "Begin again at /auth/login."

func fail(status int, what, fix string, cause error) *Failure {
	return &Failure{Status: status, What: what, Fix: fix, cause: cause}
}

// Begin begins a sign-in with an issuer, by its name or URL. The browser goes to at,
// and holds secret until it comes back. next is the local path to go on to then.
func (s *SignIn) Begin(ctx context.Context, name, next string) (at, secret string, err error) {
	i := s.issuerNamed(name)
	if i == nil {
		return "", "", fail(http.StatusNotFound, "there is no such sign-in service here", "Choose one at /auth/login.", nil)
	}
	meta, err := i.known(ctx)
	if err != nil {
		return "", "", s.down(ctx, i, err)
	}
	secret = access.NewCookie()
	err = s.sessions.Begin(ctx, secret, access.SignIn{OrgID: i.org, Issuer: i.URL, Next: LocalPath(next)})
	if errors.Is(err, access.ErrTooMany) {
		return "", "", fail(http.StatusServiceUnavailable, err.Error(), "Try again in some minutes.", err)
	}
	if err != nil {
		return "", "", err
	}
	return s.oauth(i, meta).AuthCodeURL(derive(secret, "state"), s256(secret), nonceOf(secret)), secret, nil
}

func (s *SignIn) issuerNamed(name string) *issuer {
	for _, i := range s.issuers {
		if i.ClientID != "" && (i.Name == name || i.URL == name) {
			return i
		}
	}
	return nil
}

func (s *SignIn) down(ctx context.Context, i *issuer, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fail(http.StatusServiceUnavailable, "the sign-in service "+i.Name+" does not answer as it should", "Try again in a minute. The server's log says what is wrong.", cause)
}

// derive makes one of the sign-in's values of what the browser holds, so that none
// of them is stored anywhere.
func derive(secret, what string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(what)) // never fails
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Done is a sign-in that has succeeded.
type Done struct {
	Secret string // of the session, for the browser to hold
	Next   string // the local path to go on to
}

// Finish is called when the browser has come back. secret is what it has held,
// answer the query that the issuer has sent it back with, old the session that the
// browser had before, which ends; request names the request for the audit log. The
// error is a *[Failure], or one of the database.
func (s *SignIn) Finish(ctx context.Context, secret string, answer url.Values, old, request string) (Done, error) {
	// Whoever makes somebody else's browser come here does not know the state, and
	// must not end what that browser has begun.
	if !access.GoodCookie(secret) || !same(answer.Get("state"), derive(secret, "state")) {
		return Done{}, fail(http.StatusBadRequest, "this sign-in was not begun in this browser, or another one was begun since", again, nil)
	}
	for _, name := range []string{"state", "code", "iss", "error"} {
		if len(answer[name]) > 1 {
			return Done{}, fail(http.StatusBadRequest, "the sign-in service has sent "+name+" twice", again, nil)
		}
	}
	in, err := s.sessions.Take(ctx, secret)
	if errors.Is(err, access.ErrUnauthenticated) {
		return Done{}, fail(http.StatusBadRequest, "this sign-in has been finished already, or took longer than "+access.SignInWithin.String(), again, err)
	}
	if err != nil {
		return Done{}, err
	}
	i := s.byURL[in.Issuer]
	if i == nil || i.org != in.OrgID || i.ClientID == "" {
		return Done{}, fail(http.StatusBadRequest, "the sign-in service is no longer one of this server", again, nil)
	}
	c, f, err := s.exchange(ctx, i, secret, answer)
	if err != nil {
		return Done{}, err
	}
	var u access.User
	if f == nil {
		u, f = i.person(c)
	}
	if f == nil {
		var done Done
		if done, err = s.enter(ctx, i, u, old, request); err == nil {
			done.Next = LocalPath(in.Next)
			return done, nil
		}
		if !errors.Is(err, access.ErrDisabled) {
			return Done{}, err
		}
		f = fail(http.StatusForbidden, "your user has been disabled here", "Ask an admin of your organisation.", err)
	}
	return Done{}, s.refused(ctx, i, c, f, request)
}

// enter keeps the person, the new session and the audit entry, or nothing at all.
func (s *SignIn) enter(ctx context.Context, i *issuer, u access.User, old, request string) (done Done, err error) {
	err = s.d.InTx(db.WithOrg(ctx, i.org), func(ctx context.Context, tx db.Q) error {
		got, err := s.sessions.Enter(ctx, tx, u)
		if err != nil {
			return err
		}
		if access.GoodCookie(old) {
			if err := s.sessions.End(ctx, tx, i.org, old); err != nil {
				return err
			}
		}
		if done.Secret, err = s.sessions.Start(ctx, tx, got); err != nil {
			return err
		}
		detail := map[string]any{"issuer": i.URL}
		if u.Email != "" && got.Email == "" {
			detail["email"] = "not taken over: another user has the address"
			s.log.WarnContext(ctx, "another user has the e-mail address of one who signs in; the latter goes by the ID", "user", got.ID)
		}
		return audit.Append(ctx, tx, audit.Entry{
			Org: i.org, Actor: got.Actor(), Action: "session:create", ResourceType: "user", ResourceID: got.ID, Outcome: audit.Allowed, RequestID: request, Detail: detail,
		})
	})
	return done, err
}

// refused notes a sign-in that the issuer has vouched for and that was refused here.
// What fails before that is only logged: otherwise anybody could fill the audit log.
func (s *SignIn) refused(ctx context.Context, i *issuer, c claims, f *Failure, request string) error {
	if c == nil && f.Status != http.StatusForbidden {
		return f
	}
	actor := "user:unknown"
	if sub, err := c.subject(); err == nil {
		actor = "user:" + i.Name + "/" + sub
	}
	err := s.d.InTx(db.WithOrg(ctx, i.org), func(ctx context.Context, tx db.Q) error {
		return audit.Append(ctx, tx, audit.Entry{
			Org: i.org, Actor: actor, Action: "session:create", ResourceType: "user", Outcome: audit.Refused, RequestID: request,
			Detail: map[string]any{"issuer": i.URL, "reason": f.What},
		})
	})
	if err != nil {
		return errors.Join(err, f)
	}
	return f
}

// Cause is why, for the log; it holds nothing that was sent.
func (f *Failure) Cause() string {
	if f.cause == nil {
		return ""
	}
	return clip(f.cause.Error(), 300)
}

// principal is somebody with what they may do now.
func (s *SignIn) principal(ctx context.Context, i *issuer, actor string, groups []string, subjects []access.Subject) (access.Principal, error) {
	p := access.Principal{OrgID: i.org, Actor: actor, Subjects: subjects}
	var err error
	if p.Grants, err = access.Grants(db.WithOrg(ctx, i.org), s.d, i.org, subjects); err != nil {
		return access.Principal{}, err
	}
	for _, g := range groups {
		if role, ok := i.RolesByGroup[g]; ok {
			p.Grants = append(p.Grants, access.Of(i.org, actor, role).Grants...)
		}
	}
	return p, nil
}

// Session is who a browser is signed in as, by the secret that it holds. The error
// is ErrUnauthenticated, also for a person whose issuer is no longer trusted.
func (s *SignIn) Session(ctx context.Context, secret string) (access.Session, access.Principal, error) {
	got, err := s.sessions.Find(ctx, secret)
	if err != nil {
		return got, access.Principal{}, err
	}
	i := s.byURL[got.User.Issuer]
	if i == nil || i.org != got.User.OrgID || i.ClientID == "" {
		return access.Session{}, access.Principal{}, access.ErrUnauthenticated
	}
	p, err := s.principal(ctx, i, got.User.Actor(), got.User.Groups, got.User.Subjects())
	p.Session = got.Hash
	return got, p, err
}

// SignOut ends the session that a browser holds the secret of; that there is none is
// no error. at is where the issuer ends its own session, "" if it has no such place
// (OpenID Connect RP-Initiated Logout 1.0).
func (s *SignIn) SignOut(ctx context.Context, secret, request string) (at string, err error) {
	got, p, err := s.Session(ctx, secret)
	if errors.Is(err, access.ErrUnauthenticated) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	i := s.byURL[got.User.Issuer]
	err = s.d.InTx(db.WithOrg(ctx, p.OrgID), func(ctx context.Context, tx db.Q) error {
		if err := s.sessions.End(ctx, tx, p.OrgID, secret); err != nil {
			return err
		}
		return audit.Append(ctx, tx, audit.Entry{
			Org: p.OrgID, Actor: p.Actor, Action: "session:delete", ResourceType: "user", ResourceID: got.User.ID, Outcome: audit.Allowed, RequestID: request,
		})
	})
	if err != nil {
		return "", err
	}
	meta, err := i.known(ctx)
	if err != nil || meta.endSession == "" {
		return "", nil //nolint:nilerr // signed out here; an issuer that is down has been logged
	}
	u, err := url.Parse(meta.endSession)
	if err != nil {
		return "", nil //nolint:nilerr // it was parsed when it was discovered
	}
	q := u.Query()
	q.Set("client_id", i.ClientID)
	q.Set("post_logout_redirect_uri", s.public+"/auth/signed-out")
	u.RawQuery = q.Encode()
	return u.String(), nil
}
