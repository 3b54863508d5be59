package api

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidc"
	"github.com/zopday/provisioner/internal/access/oidctest"
	"github.com/zopday/provisioner/internal/observe"
)

// A signInRig is the API with a real issuer, over TLS as browsers see it.
type signInRig struct {
	*rig
	issuer *oidctest.Issuer
	web    *httptest.Server
}

func newSignInRig(t *testing.T) *signInRig { return newSignInRigWith(t, "") }

// newSignInRigWith adds to the file of issuers, of which one is called test.
func newSignInRigWith(t *testing.T, more string) *signInRig {
	t.Helper()
	s := &signInRig{rig: newRig(t), issuer: oidctest.New(t)}
	s.web = httptest.NewUnstartedServer(nil)
	s.web.StartTLS()
	t.Cleanup(s.web.Close)
	file := "issuers:\n- issuer: " + s.issuer.URL + "\n  name: test\n  organisation: org1\n  clientId: zopday\n  clientSecretEnv: OIDC_SECRET\n" +
		"  audiences: [https://zopday.example.com]\n  rolesByGroup: {platform: Editor, watchers: Viewer}\n" + more
	conf, err := oidc.Parse("issuers.yaml", []byte(file), func(string) string { return s.issuer.Secret })
	if err != nil {
		t.Fatal(err)
	}
	signIn, err := oidc.New(t.Context(), oidc.Options{Config: *conf, PublicURL: s.web.URL, DB: s.db, Log: observe.NewLogger(s.log, slog.LevelDebug, true)})
	if err != nil {
		t.Fatal(err)
	}
	tokens := access.NewTokens(s.db, nil)
	tokens.JWT = signIn.Authenticate
	s.api = build(Deps{Service: s.service, Access: tokens, SignIn: signIn, Log: observe.NewLogger(s.log, slog.LevelDebug, true), Stop: s.stop})
	s.web.Config.Handler = s.api.outer(s.api.mux)
	return s
}

// A browser keeps cookies, follows redirects and asks for pages.
type browser struct {
	t *testing.T
	*http.Client
	rig *signInRig
}

func (s *signInRig) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	transport := s.web.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: transport.TLSClientConfig.RootCAs}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &browser{s.t, &http.Client{Jar: jar, Transport: transport}, s}
}

func (b *browser) do(method, path, body string, header ...string) answer {
	b.t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	at := path
	if strings.HasPrefix(path, "/") {
		at = b.rig.web.URL + path
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, at, rd)
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, raw}
}

// held is the value of a cookie that the browser holds.
func (b *browser) held(name string) string {
	u, _ := url.Parse(b.rig.web.URL)
	for _, c := range b.Jar.Cookies(u) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func (s *signInRig) machine(groups ...string) map[string]any {
	now := time.Now().Unix()
	return map[string]any{"iss": s.issuer.URL, "sub": "robot", "aud": "https://zopday.example.com", "iat": now, "exp": now + 600, "groups": groups}
}
