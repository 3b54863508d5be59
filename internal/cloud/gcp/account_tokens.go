package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials/externalaccount"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iamcredentials/v1"
	"google.golang.org/api/option"

	"github.com/zopday/provisioner/internal/pipeline"
)

// The services that give out tokens, by the names under which their roots can be set.
const (
	serviceTokens         = "oauth2"
	serviceSTS            = "sts"
	serviceIAMCredentials = "iamcredentials"
)

// A mint makes a token and says how long it holds, by the cloud's clock.
type mint func(ctx context.Context) (token string, life time.Duration, err error)

// minter is a mint with what has to be forgotten when its tokens are refused;
// nil if that is nothing.
type minter struct {
	mint
	forgotten func(token string)
	from      *source
}

// held is the one source of the minter's tokens.
func (m *minter) held(pace pipeline.Pace) *source {
	if m.from == nil {
		m.from = newSource(m.mint, m.forgotten, pace)
	}
	return m.from
}

// forget makes the source begin afresh, whatever it holds: a token that was made
// of one of its own was refused.
func (m *minter) forget(string) {
	if m.from != nil {
		m.from.forgetAll()
	}
}

// source keeps a token for most of its life. One caller at a time makes a new
// one, and those who wait for it do so no longer than their own context.
type source struct {
	mint      mint
	forgotten func(token string)
	pace      pipeline.Pace

	turn  chan struct{}
	value string
	until time.Time
}

// early is how long before its end a token is not used any more, so that a
// request does not outlive it.
const early = 4 * time.Minute

func newSource(m mint, forgotten func(string), pace pipeline.Pace) *source {
	return &source{mint: m, forgotten: forgotten, pace: pace, turn: make(chan struct{}, 1)}
}

func (s *source) token(ctx context.Context) (string, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-s.turn }()
	if s.value != "" && time.Now().Before(s.until) {
		return s.value, nil
	}
	value, life, err := s.mint(ctx)
	if err != nil {
		return "", err
	}
	if value == "" {
		return "", errors.New("the answer holds no token")
	}
	s.value, s.until = value, time.Now().Add(s.pace.Real(life-min(early, life/4)))
	return value, nil
}

// forget makes the next token a new one, if the one that is held was refused.
func (s *source) forget(token string) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.value != token {
		return // somebody has renewed it already
	}
	if s.value = ""; s.forgotten != nil {
		s.forgotten(token)
	}
}

func (s *source) forgetAll() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.value = ""
}

// borrowed takes tokens that somebody else keeps: none is held here.
func borrowed(token func(context.Context) (string, error)) mint {
	return func(ctx context.Context) (string, time.Duration, error) {
		if token == nil {
			return "", 0, errors.New("no credentials are configured")
		}
		t, err := token(ctx)
		return t, 0, err
	}
}

// serviceAccountKey is what is read of a service account's key document.
type serviceAccountKey struct {
	Type     string `json:"type"`
	Project  string `json:"project_id"`
	KeyID    string `json:"private_key_id"`
	Key      string `json:"private_key"`
	Email    string `json:"client_email"`
	TokenURI string `json:"token_uri"`
	Universe string `json:"universe_domain"`
}

var serviceAccountRE = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,80}@[a-z0-9.-]+\.gserviceaccount\.com$`)

// tokenHosts are Google's own hosts that a key document may send its assertion to.
var tokenHosts = []string{"oauth2.googleapis.com", "accounts.google.com", "www.googleapis.com"}

// readKey reads a key document, which is outside input: the assertion that is
// signed with it goes to Google's own hosts or to the fixed endpoint, and nowhere
// else. Its text never appears in an error.
func readKey(document string, cfg Config) (serviceAccountKey, error) {
	var k serviceAccountKey
	if err := json.Unmarshal([]byte(document), &k); err != nil {
		return k, errors.New("the key is not a JSON document")
	}
	switch {
	case k.Type != "service_account":
		return k, fmt.Errorf("the key's type is %.40q, not service_account", k.Type)
	case k.Key == "":
		return k, errors.New("the key document has no private_key")
	case !serviceAccountRE.MatchString(k.Email):
		return k, errors.New("the key's client_email is not that of a service account")
	case k.Universe != "" && k.Universe != "googleapis.com":
		return k, fmt.Errorf("the key is for another cloud, %.80q", k.Universe)
	}
	at, err := url.Parse(or(k.TokenURI, "https://oauth2.googleapis.com/token"))
	if err != nil {
		return k, errors.New("the key's token_uri is not a URL")
	}
	if fixed := cfg.endpoint(serviceTokens); fixed != "" {
		own, err := url.Parse(fixed)
		if err != nil || at.Host != own.Host && !googles(at) {
			return k, fmt.Errorf("the key's token_uri is at %.80q, which is neither Google nor the endpoint that is set", at.Host)
		}
		k.TokenURI = fixed + "token"
		return k, nil
	}
	if !googles(at) {
		return k, fmt.Errorf("the key's token_uri is at %.80q, which is not Google", at.Host)
	}
	k.TokenURI = at.String()
	return k, nil
}

func googles(at *url.URL) bool {
	return at.Scheme == "https" && at.User == nil && slices.Contains(tokenHosts, at.Host)
}

// mint signs an assertion and changes it into a token ("Using OAuth 2.0 for Server
// to Server Applications").
func (k serviceAccountKey) mint(cfg Config) mint {
	return func(ctx context.Context) (string, time.Duration, error) {
		p, err := auth.New2LOTokenProvider(&auth.Options2LO{
			Email: k.Email, PrivateKey: []byte(k.Key), PrivateKeyID: k.KeyID, TokenURL: k.TokenURI, Scopes: []string{cloudPlatform}, Client: cfg.tokenClient(nil),
		})
		if err != nil {
			return "", 0, errors.New("the key cannot be used")
		}
		return minted(p.Token(ctx))
	}
}

func minted(t *auth.Token, err error) (string, time.Duration, error) {
	var refused *auth.Error
	switch {
	case errors.As(err, &refused):
		if a, readable := parseAnswer(refused.Body); readable {
			return "", 0, fmt.Errorf("%s (%s)", a.Message, strings.Join(a.codes(), ", "))
		}
		return "", 0, fmt.Errorf("HTTP status %d", refused.Response.StatusCode)
	case err != nil:
		return "", 0, errors.New(tokenText(err))
	}
	return t.Value, time.Until(t.Expiry), nil
}

// tokenText is why there is no token, without what the clients put around it, and
// not more of it than a person reads.
func tokenText(err error) string {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	text := err.Error()
	var ge *googleapi.Error
	if errors.As(err, &ge) && ge.Message != "" {
		text = ge.Message
	}
	return text[:min(len(text), 500)]
}

// federated is another issuer's token that is exchanged ("Workload Identity
// Federation").
type federated struct{ audience, file string }

var audienceRE = regexp.MustCompile(`^//iam\.googleapis\.com/projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$`)

func (w federated) complete() error {
	switch {
	case !audienceRE.MatchString(w.audience):
		return fmt.Errorf("%.120q is not the full name of a provider of a workload identity pool", w.audience)
	case w.file == "":
		return errors.New("it names no file that holds the other issuer's token")
	}
	return nil
}

// maxSubjectToken is more than any issuer's token has, in bytes.
const maxSubjectToken = 64 << 10

// SubjectToken is the other issuer's token, read each time: who renews it writes
// it over.
func (w federated) SubjectToken(context.Context, *externalaccount.RequestOptions) (string, error) {
	f, err := os.Open(w.file)
	if err != nil {
		return "", fmt.Errorf("the other issuer's token: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxSubjectToken+1))
	if err != nil {
		return "", fmt.Errorf("the other issuer's token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) > maxSubjectToken {
		return "", fmt.Errorf("the file %s holds no token", w.file)
	}
	return token, nil
}

func (w federated) mint(cfg Config) mint {
	return func(ctx context.Context) (string, time.Duration, error) {
		at := or(cfg.endpoint(serviceSTS), "https://sts.googleapis.com/") + "v1/token"
		// Made anew each time: these credentials keep a token by a clock that is
		// not the cloud's.
		c, err := externalaccount.NewCredentials(&externalaccount.Options{ //nolint:gosec // names of kinds of tokens
			Audience: w.audience, SubjectTokenType: "urn:ietf:params:oauth:token-type:jwt", TokenURL: at, Scopes: []string{cloudPlatform},
			SubjectTokenProvider: w, Client: cfg.tokenClient(nil),
		})
		if err != nil {
			return "", 0, err
		}
		return minted(c.Token(ctx))
	}
}

// impersonated acts as a service account, with the tokens of somebody who may
// ("Create short-lived credentials for a service account").
func impersonated(cfg Config, email string, by *source) mint {
	return func(ctx context.Context) (string, time.Duration, error) {
		opts := []option.ClientOption{option.WithHTTPClient(cfg.tokenClient(by))}
		if at := cfg.endpoint(serviceIAMCredentials); at != "" {
			opts = append(opts, option.WithEndpoint(at))
		}
		s, err := iamcredentials.NewService(ctx, opts...)
		if err != nil {
			return "", 0, err
		}
		out, err := s.Projects.ServiceAccounts.GenerateAccessToken("projects/-/serviceAccounts/"+email,
			&iamcredentials.GenerateAccessTokenRequest{Scope: []string{cloudPlatform}, Lifetime: "3600s"}).Context(ctx).Do()
		if err != nil {
			return "", 0, fmt.Errorf("acting as %s: %s", email, tokenText(err))
		}
		ends, err := time.Parse(time.RFC3339, out.ExpireTime)
		if err != nil {
			return "", 0, fmt.Errorf("acting as %s: the end of the token cannot be read", email)
		}
		return out.AccessToken, time.Until(ends), nil
	}
}

// tokenClient asks for tokens: with a bound on the time, no redirection, and by's
// tokens if there are any.
func (c Config) tokenClient(by *source) *http.Client {
	wire := c.Wire
	if wire == nil {
		wire = tokenWire
	}
	if by != nil {
		wire = bearer{by, wire}
	}
	return &http.Client{Transport: wire, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

var tokenWire = wireTransport()

type bearer struct {
	by   *source
	wire http.RoundTripper
}

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := b.by.token(req.Context())
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.Header.Set("Authorization", "Bearer "+token)
	resp, err := b.wire.RoundTrip(out)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		b.by.forget(token)
	}
	return resp, err
}
