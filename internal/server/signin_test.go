package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidc"
	"github.com/zopday/provisioner/internal/access/oidctest"
	"github.com/zopday/provisioner/internal/pgtest"
)

func issuers(t *testing.T, i *oidctest.Issuer, more string) *oidc.Config {
	t.Helper()
	c, err := oidc.Parse("issuers.yaml", []byte("issuers:\n- issuer: "+i.URL+"\n  name: test\n  clientId: zopday\n  clientSecretEnv: X\n  audiences: [zopday-api]\n  rolesByGroup: {platform: Admin}\n"+more),
		func(string) string { return i.Secret })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A process takes a person by a browser, a machine by its issuer's token and its own
// tokens, on both databases, and logs none of what they hold.
func TestServerSignsIn(t *testing.T) {
	for name, dsn := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "zopday.db") },
		"postgres": func(t *testing.T) string { return pgtest.ServiceDatabase(t) },
	} {
		t.Run(name, func(t *testing.T) {
			issuer := oidctest.New(t)
			issuer.Set(func(s *oidctest.State) { s.Down = true }) // which keeps nothing from starting
			log := &logBuffer{}
			s := start(t, func(c *Config) {
				c.DB, c.Workers, c.SignIn.Issuers = dsn(t), 0, issuers(t, issuer, "")
				c.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			})
			if status, body := get(t, s.URL()+"/auth/login"); status != http.StatusServiceUnavailable || !strings.Contains(body, "sign-in service test") {
				t.Errorf("while the issuer is down: %d %s", status, body)
			}
			issuer.Set(func(s *oidctest.State) { s.Down = false })
			if n := issuer.Hits("/.well-known/openid-configuration"); n != 1 {
				t.Errorf("the issuer was asked %d times before anybody signed in", n)
			}
			time.Sleep(5200 * time.Millisecond) // it is asked again five seconds after it failed

			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			ada := &http.Client{Jar: jar}
			whoami := func(c *http.Client, path string, header ...string) (int, string) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				for n := 0; n+1 < len(header); n += 2 {
					req.Header.Set(header[n], header[n+1])
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				var me struct{ Data struct{ Actor string } }
				_ = json.NewDecoder(resp.Body).Decode(&me) // no JSON: no actor
				return resp.StatusCode, me.Data.Actor
			}
			if status, actor := whoami(ada, "/auth/login?next=/whoami"); status != 200 || actor != "user:ada@example.com" {
				t.Errorf("a person: %d %q", status, actor)
			}
			now := time.Now().Unix()
			machine := issuer.Sign(map[string]any{"iss": issuer.URL, "sub": "robot", "aud": "zopday-api", "iat": now, "exp": now + 60, "groups": "platform"}, nil)
			if status, actor := whoami(http.DefaultClient, "/whoami", "Authorization", "Bearer "+machine); status != 200 || actor != "machine:test/robot" {
				t.Errorf("a machine: %d %q", status, actor)
			}
			if status, actor := whoami(http.DefaultClient, "/whoami", "Authorization", "Bearer "+token); status != 200 || actor != "token:bootstrap" {
				t.Errorf("a token: %d %q", status, actor)
			}
			if status, _ := whoami(http.DefaultClient, "/whoami", "Authorization", "Bearer "+machine+"x"); status != 401 {
				t.Errorf("a forged token: %d", status)
			}
			for n, c := range append(issuer.Canaries(), machine) {
				if strings.Contains(log.String(), c) {
					t.Errorf("canary %d is in the log", n)
				}
			}
			for _, c := range jar.Cookies(mustRequest(t, s.URL()).URL) {
				if !access.GoodCookie(c.Value) || strings.Contains(log.String(), c.Value) {
					t.Errorf("the session %s is in the log, or none", c.Name)
				}
			}
		})
	}
}

func mustRequest(t *testing.T, at string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// What of the configuration cannot work ends the start, with what to do.
func TestSignInThatCannotWork(t *testing.T) {
	issuer := oidctest.New(t)
	for says, change := range map[string]func(*Config){
		"--public-url":       func(c *Config) { c.Listen, c.Edges.InsecureBind = "0.0.0.0:0", true },
		"without a path":     func(c *Config) { c.SignIn.PublicURL = "https://zopday.example.com/zopday" },
		"zopday orgs create": func(c *Config) { c.SignIn.Issuers = issuers(t, issuer, "  organisation: nobody\n") },
	} {
		c := Config{Listen: "127.0.0.1:0", DB: filepath.Join(t.TempDir(), "zopday.db"), Token: token, SignIn: SignIn{Issuers: issuers(t, issuer, "")}}
		change(&c)
		if s, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
			if s != nil {
				_ = s.Close(t.Context())
			}
		}
	}
}
