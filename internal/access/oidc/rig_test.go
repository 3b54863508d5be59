package oidc

import (
	"bytes"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidctest"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const audience = "https://zopday.example.com"

// A rig is sign-in on a real database with a real issuer. Its clock is moved by the test.
type rig struct {
	t      *testing.T
	db     *db.DB
	issuer *oidctest.Issuer
	signIn *SignIn
	log    *lockedBuffer

	mu    sync.Mutex
	ahead time.Duration
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func onBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newRig(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newRigOn(t, pgtest.ServiceDatabase(t), nil))
	})
}

func newRig(t *testing.T) *rig { return newRigOn(t, filepath.Join(t.TempDir(), "test.db"), nil) }

func newRigWith(t *testing.T, edit func(*Issuer)) *rig {
	return newRigOn(t, filepath.Join(t.TempDir(), "test.db"), edit)
}

func newRigOn(t *testing.T, dsn string, edit func(*Issuer)) *rig {
	t.Helper()
	d, err := db.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if !db.IsPostgres(dsn) {
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, db: d, issuer: oidctest.New(t), log: &lockedBuffer{}}
	r.issuer.Set(func(s *oidctest.State) { s.Now = r.now })
	sessions := access.NewSessions(d)
	sessions.Ahead = r.gone
	is := Issuer{URL: r.issuer.URL, Name: "test", ClientID: r.issuer.ClientID, Secret: Secret(r.issuer.Secret), Audiences: []string{audience},
		RolesByGroup: map[string]string{"platform": access.Admin}}
	is.defaults()
	if edit != nil {
		edit(&is)
	}
	r.signIn, err = New(t.Context(), Options{
		Config: Config{Issuers: []Issuer{is}}, PublicURL: "https://zopday.example.com", DB: d, Sessions: sessions, Now: r.now,
		Log: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) gone() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ahead
}

func (r *rig) now() time.Time { return time.Now().Add(r.gone()) }

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead += d
}

// machine is the claims of a machine's token that is in order.
func (r *rig) machine(edit ...func(map[string]any)) map[string]any {
	now := r.now()
	c := map[string]any{"iss": r.issuer.URL, "sub": "repo:shop/main", "aud": audience, "iat": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(), "groups": []string{"platform"}}
	for _, e := range edit {
		e(c)
	}
	return c
}

func with(name string, value any) func(map[string]any) {
	return func(c map[string]any) {
		if value == nil {
			delete(c, name)
			return
		}
		maps.Copy(c, map[string]any{name: value})
	}
}

// visit sends a browser to the issuer, and returns what it is sent back with.
func (r *rig) visit(at string) url.Values {
	r.t.Helper()
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Get(at)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = resp.Body.Close()
	back, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || resp.StatusCode != http.StatusFound {
		r.t.Fatalf("the issuer answers %d, %v", resp.StatusCode, err)
	}
	return back.Query()
}

// enter signs the issuer's person in, and returns the session's secret.
func (r *rig) enter() string {
	r.t.Helper()
	done, err := r.tryEnter(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return done.Secret
}

func (r *rig) tryEnter(edit func(secret *string, answer url.Values)) (Done, error) {
	r.t.Helper()
	at, secret, err := r.signIn.Begin(r.t.Context(), "test", "/zopday/jobs?status=failed")
	if err != nil {
		return Done{}, err
	}
	answer := r.visit(at)
	if edit != nil {
		edit(&secret, answer)
	}
	return r.signIn.Finish(r.t.Context(), secret, answer, "", "req-1")
}
