// Package oidctest is a real OpenID Connect issuer on this machine, for tests: it
// speaks discovery, authorisation with PKCE, tokens, keys and the end of sessions,
// and signs with keys of its own. A test can make it do wrong.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// An Issuer answers under URL until its test ends. Its fields may be set while nobody
// asks it anything; what is set with Set at any time.
type Issuer struct {
	URL      string
	ClientID string
	Secret   string // of the client; "": a public one

	server *httptest.Server
	mu     sync.Mutex
	keys   []Key
	state  State
	codes  map[string]grant
	hits   map[string]int
	seen   []string // what was sent and must never be seen elsewhere
}

// State is how an issuer behaves.
type State struct {
	Now      func() time.Time
	Person   map[string]any                            // claims of whoever is signed in at the issuer
	Edit     func(claims map[string]any)               // changes an ID token before it is signed
	Sign     func(i *Issuer, c map[string]any) string  // signs ID tokens; nil: as it should
	Metadata map[string]any                            // added to the metadata; nil values take away
	Answer   func(to url.Values)                       // changes what the browser is sent back with
	Down     bool                                      // answers 503 to everything
	Keys     func(w http.ResponseWriter) (served bool) // serves other keys
}

// A Key is one that the issuer signs with.
type Key struct {
	ID      string
	Private *ecdsa.PrivateKey
}

type grant struct {
	challenge, nonce, redirect string
}

// New starts an issuer.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{ClientID: "zopday", Secret: "canary-client-secret", codes: map[string]grant{}, hits: map[string]int{}}
	i.state = State{Now: time.Now, Person: map[string]any{"sub": "ada-1", "name": "Ada", "email": "Ada@Example.com", "email_verified": true, "groups": []string{"platform"}}}
	i.Rotate(t, "key-1")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.discovery)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("GET /keys", i.jwks)
	mux.HandleFunc("GET /end", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.FormValue("post_logout_redirect_uri"), http.StatusFound) //nolint:gosec // as an issuer does with an address that is registered
	})
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.hits[r.URL.Path]++
		down := i.state.Down
		i.mu.Unlock()
		if down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(i.server.Close)
	i.URL = i.server.URL
	return i
}

// Set changes how the issuer behaves.
func (i *Issuer) Set(edit func(*State)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	edit(&i.state)
}

// Rotate makes a new key the only one.
func (i *Issuer) Rotate(t testing.TB, id string) {
	t.Helper()
	k := NewKey(t, id)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = []Key{k}
}

// NewKey makes a key.
func NewKey(t testing.TB, id string) Key {
	t.Helper()
	p, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Key{ID: id, Private: p}
}

// Key is the key that the issuer signs with now.
func (i *Issuer) Key() Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[0]
}

// Hits is how often a path was asked for.
func (i *Issuer) Hits(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits[path]
}

// Canaries are the secrets of all sign-ins so far: codes, verifiers, tokens.
func (i *Issuer) Canaries() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string{i.Secret}, i.seen...)
}

// Sign makes a token of claims, with the issuer's key and a header of type JWT;
// header adds to it.
func (i *Issuer) Sign(claims map[string]any, header map[string]any) string {
	k := i.Key()
	return SignWith(k, jose.ES256, claims, header)
}

// SignWith makes a token with any key and algorithm.
func SignWith(k Key, alg jose.SignatureAlgorithm, claims, header map[string]any) string {
	opts := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", k.ID)
	for name, v := range header {
		opts = opts.WithHeader(jose.HeaderKey(name), v)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: k.Private}, opts)
	if err != nil {
		panic(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	sig, err := s.Sign(payload)
	if err != nil {
		panic(err)
	}
	out, err := sig.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return out
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	doc := map[string]any{
		"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
		"end_session_endpoint": i.URL + "/end", "id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"},
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"authorization_response_iss_parameter_supported": true,
	}
	i.mu.Lock()
	maps.Copy(doc, i.state.Metadata)
	i.mu.Unlock()
	answer(w, doc)
}

func (i *Issuer) jwks(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	keys, other := i.keys, i.state.Keys
	i.mu.Unlock()
	if other != nil && other(w) {
		return
	}
	var set jose.JSONWebKeySet
	for _, k := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: &k.Private.PublicKey, KeyID: k.ID, Algorithm: "ES256", Use: "sig"})
	}
	answer(w, set)
}

// authorize is the page at which a person would agree; here they do at once.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("response_type") != "code" || q.Get("client_id") != i.ClientID || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" ||
		q.Get("state") == "" || q.Get("nonce") == "" || !strings.Contains(" "+q.Get("scope")+" ", " openid ") {
		http.Error(w, "not a request that this issuer takes", http.StatusBadRequest)
		return
	}
	code := "canary-code-" + rand.Text()
	to := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.URL}, "session_state": {"extra"}}
	i.mu.Lock()
	i.codes[code] = grant{challenge: q.Get("code_challenge"), nonce: q.Get("nonce"), redirect: q.Get("redirect_uri")}
	i.seen = append(i.seen, code, q.Get("state"), q.Get("nonce"))
	edit := i.state.Answer
	i.mu.Unlock()
	if edit != nil {
		edit(to)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+to.Encode(), http.StatusFound) //nolint:gosec // likewise
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	refuse := func(code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": "about the code " + r.FormValue("code")})
	}
	id, secret, _ := r.BasicAuth()
	if id == "" {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	if id != i.ClientID || secret != i.Secret {
		refuse("invalid_client")
		return
	}
	verifier := r.FormValue("code_verifier")
	i.mu.Lock()
	g, ok := i.codes[r.FormValue("code")]
	delete(i.codes, r.FormValue("code"))
	i.seen = append(i.seen, verifier)
	state := i.state
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(verifier))
	if !ok || g.redirect != r.FormValue("redirect_uri") || base64.RawURLEncoding.EncodeToString(sum[:]) != g.challenge || len(verifier) < 43 {
		refuse("invalid_grant")
		return
	}
	now := state.Now()
	c := map[string]any{"iss": i.URL, "aud": i.ClientID, "nonce": g.nonce, "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	maps.Copy(c, state.Person)
	if state.Edit != nil {
		state.Edit(c)
	}
	sign := state.Sign
	if sign == nil {
		sign = func(i *Issuer, c map[string]any) string { return i.Sign(c, nil) }
	}
	idToken := sign(i, c)
	access := "canary-access-token-" + rand.Text()
	i.mu.Lock()
	i.seen = append(i.seen, idToken, access)
	i.mu.Unlock()
	answer(w, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 300, "id_token": idToken})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller has gone: nobody is left to tell
}
