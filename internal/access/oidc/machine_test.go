package oidc

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidctest"
	"github.com/zopday/provisioner/internal/db"
)

func TestMachine(t *testing.T) { onBoth(t, testMachine) }

func testMachine(t *testing.T, r *rig) {
	ctx := t.Context()
	p, err := r.signIn.Authenticate(ctx, r.issuer.Sign(r.machine(), nil))
	if err != nil {
		t.Fatal(err)
	}
	want := access.Of(access.DefaultOrg, "machine:test/repo:shop/main", access.Admin)
	want.Subjects = []access.Subject{{Kind: access.SubjectUser, ID: "machine:test/repo:shop/main"}, {Kind: access.SubjectGroup, ID: "platform"}}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	// An assignment counts at once, also for a token that has just been verified; and
	// without a group of the configuration there is nothing else.
	token := r.issuer.Sign(r.machine(with("groups", nil)), nil)
	if p, err := r.signIn.Authenticate(ctx, token); err != nil || len(p.Grants) != 0 {
		t.Fatalf("without groups: %v, %v", p.Grants, err)
	}
	err = r.db.InTx(db.WithOrg(ctx, access.DefaultOrg), func(ctx context.Context, tx db.Q) error {
		_, _, err := access.AddAssignment(ctx, tx, access.Assignment{OrgID: access.DefaultOrg, Subject: want.Subjects[0], RoleID: access.Viewer, Scope: access.Scope{Kind: access.OrgScope}, CreatedBy: "test"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if p, err = r.signIn.Authenticate(ctx, token); err != nil || len(p.Grants) != 1 || p.Grants[0].Role != access.Viewer {
		t.Errorf("with an assignment: %v, %v", p.Grants, err)
	}
}

// Every token that is not wholly in order is refused, and the answer does not say why.
func TestMachineRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	good := r.issuer.Sign(r.machine(), nil)
	parts := strings.Split(good, ".")
	other := oidctest.New(t)
	enc := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	mac := func(key []byte, kid string) string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: key}, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", kid))
		if err != nil {
			t.Fatal(err)
		}
		payload, _ := json.Marshal(r.machine())
		sig, err := s.Sign(payload)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := sig.CompactSerialize()
		return out
	}
	der, err := x509.MarshalPKIXPublicKey(&r.issuer.Key().Private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	jwk, _ := json.Marshal(jose.JSONWebKey{Key: &r.issuer.Key().Private.PublicKey, KeyID: "key-1"})
	mine := oidctest.NewKey(t, "key-1")
	minePublic := jose.JSONWebKey{Key: &mine.Private.PublicKey, KeyID: "key-1", Algorithm: "ES256"}
	at := func(d time.Duration) int64 { return r.now().Add(d).Unix() }
	sign := func(edit ...func(map[string]any)) string { return r.issuer.Sign(r.machine(edit...), nil) }
	head := func(name string, v any) string { return r.issuer.Sign(r.machine(), map[string]any{name: v}) }

	for name, token := range map[string]string{
		"empty": "", "dots": "..", "one part": "eyJhbGciOiJub25lIn0", "two parts": parts[0] + "." + parts[1], "four parts": good + ".x",
		"no signature":                     parts[0] + "." + parts[1] + ".",
		"padding":                          parts[0] + "=." + parts[1] + "." + parts[2],
		"a blank":                          parts[0] + ". " + parts[1] + "." + parts[2],
		"a changed signature":              parts[0] + "." + parts[1] + "." + parts[2][40:80] + parts[2][:40] + parts[2][80:],
		"changed claims":                   parts[0] + "." + enc(r.machine(with("sub", "root"))) + "." + parts[2],
		"alg none":                         enc(map[string]any{"alg": "none", "typ": "JWT"}) + "." + parts[1] + ".",
		"alg none with a signature":        enc(map[string]any{"alg": "none", "typ": "JWT", "kid": "key-1"}) + "." + parts[1] + "." + parts[2],
		"alg None":                         enc(map[string]any{"alg": "None"}) + "." + parts[1] + "." + parts[2],
		"no alg":                           enc(map[string]any{"typ": "JWT"}) + "." + parts[1] + "." + parts[2],
		"alg twice":                        base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","alg":"ES256","kid":"key-1"}`)) + "." + parts[1] + "." + parts[2],
		"alg is a list":                    enc(map[string]any{"alg": []string{"ES256"}}) + "." + parts[1] + "." + parts[2],
		"HS256 with the public key as DER": mac(der, "key-1"),
		"HS256 with the public key as JWK": mac(jwk, "key-1"),
		"HS256 with an empty kid":          mac(der, ""),
		"a key of somebody else":           oidctest.SignWith(mine, jose.ES256, r.machine(), nil),
		"an embedded key":                  oidctest.SignWith(mine, jose.ES256, r.machine(), map[string]any{"jwk": minePublic}),
		"keys from elsewhere":              oidctest.SignWith(mine, jose.ES256, r.machine(), map[string]any{"jku": other.URL + "/keys"}),
		"a certificate from elsewhere":     oidctest.SignWith(mine, jose.ES256, r.machine(), map[string]any{"x5u": other.URL + "/keys"}),
		"kid of a file":                    oidctest.SignWith(oidctest.Key{ID: "../../../../dev/null", Private: mine.Private}, jose.ES256, r.machine(), nil),
		"kid with SQL":                     oidctest.SignWith(oidctest.Key{ID: "' OR 1=1 --", Private: mine.Private}, jose.ES256, r.machine(), nil),
		"a long kid":                       oidctest.SignWith(oidctest.Key{ID: strings.Repeat("k", 5000), Private: r.issuer.Key().Private}, jose.ES256, r.machine(), nil),
		"crit":                             head("crit", []string{"exp"}),
		"crit of b64":                      head("b64", true),
		"a log-out token":                  head("typ", "logout+jwt"),
		"a proof of possession":            head("typ", "dpop+jwt"),
		"another issuer":                   other.Sign(r.machine(with("iss", other.URL)), nil),
		"another issuer's key":             other.Sign(r.machine(), nil),
		"issuer with a slash":              sign(with("iss", r.issuer.URL+"/")),
		"issuer in capitals":               sign(with("iss", strings.ToUpper(r.issuer.URL))),
		"no issuer":                        sign(with("iss", nil)),
		"issuer is a list":                 sign(with("iss", []string{r.issuer.URL})),
		"another audience":                 sign(with("aud", "https://elsewhere.example.com")),
		"audience with a slash":            sign(with("aud", audience+"/")),
		"no audience":                      sign(with("aud", nil)),
		"an empty list of audiences":       sign(with("aud", []string{})),
		"audience of people":               sign(with("aud", r.issuer.ClientID)),
		"a person's ID token":              sign(with("nonce", "n")),
		"an ID token with at_hash":         sign(with("at_hash", "n")),
		"bound to a key":                   sign(with("cnf", map[string]any{"jkt": "x"})),
		"expired":                          sign(with("exp", at(-time.Hour))),
		"just expired, beyond the skew":    sign(with("exp", at(-61*time.Second))),
		"no expiry":                        sign(with("exp", nil)),
		"expiry is a text":                 sign(with("exp", "2099-01-01")),
		"expiry is beyond numbers":         sign(with("exp", 1e300)),
		"expiry is null":                   r.issuer.Sign(map[string]any{"iss": r.issuer.URL, "sub": "x", "aud": audience, "iat": at(0), "exp": nil}, nil),
		"not yet valid, beyond the skew":   sign(with("nbf", at(62*time.Second))),
		"issued in the future":             sign(with("iat", at(62*time.Second))),
		"no time of issue":                 sign(with("iat", nil)),
		"valid for too long":               sign(with("exp", at(24*time.Hour+2*time.Second))),
		"no subject":                       sign(with("sub", nil)),
		"an empty subject":                 sign(with("sub", "")),
		"a subject with a line break":      sign(with("sub", "a\nb")),
		"a subject in other letters":       sign(with("sub", "аda")), //nolint:gosmopolitan // a Cyrillic а
		"a long subject":                   sign(with("sub", strings.Repeat("s", 256))),
		"groups are numbers":               sign(with("groups", 7)),
		"one megabyte":                     parts[0] + "." + strings.Repeat("A", 1<<20) + "." + parts[2],
		"just too long":                    strings.Repeat("A", maxToken+1),
		"a JSON serialisation":             `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"two tokens":                       good + ", Bearer " + good,
	} {
		_, err := r.signIn.Authenticate(t.Context(), token)
		if !errors.Is(err, access.ErrUnauthenticated) || err.Error() != access.ErrUnauthenticated.Error() {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, token := range map[string]string{
		"as it is": good, "no type": head("typ", ""), "an access token's type": head("typ", "application/at+jwt"),
		"several audiences":               sign(with("aud", []string{"x", audience})),
		"just expired, within the skew":   sign(with("exp", at(-58*time.Second)), with("iat", at(-time.Hour))),
		"not yet valid, within the skew":  sign(with("nbf", at(58*time.Second))),
		"issued a moment from now":        sign(with("iat", at(58*time.Second))),
		"valid for a day":                 sign(with("exp", at(24*time.Hour)), with("iat", at(0))),
		"a time with a fraction":          sign(with("exp", float64(at(time.Hour))+0.5)),
		"a header that is not understood": head("jku", other.URL+"/keys"),
	} {
		if _, err := r.signIn.Authenticate(t.Context(), token); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := other.Hits("/keys"); n != 0 {
		t.Errorf("keys that a token named were fetched %d times", n)
	}
	if strings.Contains(r.log.String(), parts[2]) {
		t.Error("the log holds a token")
	}
}

// An issuer without audiences has no machines, whatever it signs.
func TestMachineNeedsAudiences(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, func(i *Issuer) { i.Audiences = nil })
	for _, aud := range []any{audience, r.issuer.ClientID, "", nil} {
		if _, err := r.signIn.Authenticate(t.Context(), r.issuer.Sign(r.machine(with("aud", aud)), nil)); !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("audience %v: %v", aud, err)
		}
	}
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	try := func(token string) error {
		_, err := r.signIn.Authenticate(ctx, token)
		return err
	}
	old := r.issuer.Key()
	if err := try(r.issuer.Sign(r.machine(), nil)); err != nil {
		t.Fatal(err)
	}
	r.issuer.Rotate(t, "key-2")
	fresh := r.issuer.Sign(r.machine(with("jti", "1")), nil)
	if err := try(fresh); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("the keys were read again at once: %v", err)
	}
	// Guessed keys make no requests.
	for n := range 50 {
		k := oidctest.Key{ID: fmt.Sprint("guess-", n), Private: old.Private}
		if err := try(oidctest.SignWith(k, jose.ES256, r.machine(), nil)); !errors.Is(err, access.ErrUnauthenticated) {
			t.Fatal(err)
		}
	}
	if n := r.issuer.Hits("/keys"); n != 1 {
		t.Errorf("the keys were read %d times within 30 s", n)
	}
	r.pass(keysGap)
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			if err := try(r.issuer.Sign(r.machine(with("jti", n)), nil)); err != nil {
				t.Errorf("after the rotation: %v", err)
			}
		})
	}
	wg.Wait()
	if n := r.issuer.Hits("/keys"); n != 2 {
		t.Errorf("20 requests at once read the keys %d times, want 2 in all", n)
	}
	if err := try(oidctest.SignWith(old, jose.ES256, r.machine(with("jti", "late")), nil)); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("the old key still counts: %v", err)
	}
	// A key that was taken back is gone within the time that keys are fresh, also
	// for whoever names no new one.
	k2 := r.issuer.Key()
	r.issuer.Rotate(t, "key-3")
	r.pass(keysFresh + time.Second)
	if err := try(oidctest.SignWith(k2, jose.ES256, r.machine(with("jti", "later")), nil)); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("a key that was taken back still counts: %v", err)
	}
}

// A verified token is not verified again for a minute, and not believed beyond its end.
func TestVerifiedTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	short := r.issuer.Sign(r.machine(with("exp", r.now().Add(10*time.Second).Unix())), nil)
	if _, err := r.signIn.Authenticate(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	r.pass(10*time.Second + skew)
	if _, err := r.signIn.Authenticate(t.Context(), short); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("expired: %v", err)
	}
	var c cache
	for n := range 3 * maxVerified {
		c.put([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}, machine{})
	}
	if len(c.held) > maxVerified {
		t.Errorf("%d tokens are remembered", len(c.held))
	}
}

func TestIssuerDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.issuer.Set(func(s *oidctest.State) { s.Down = true })
	token := r.issuer.Sign(r.machine(), nil)
	var down *UnavailableError
	for range 10 {
		if _, err := r.signIn.Authenticate(t.Context(), token); !errors.As(err, &down) || down.Issuer != "test" {
			t.Fatalf("an issuer that is down: %v", err)
		}
	}
	if n := r.issuer.Hits("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("an issuer that is down was asked %d times in a moment", n)
	}
	var f *Failure
	if _, _, err := r.signIn.Begin(t.Context(), "test", "/"); !errors.As(err, &f) || f.Status != http.StatusServiceUnavailable || !strings.Contains(f.What, "test") {
		t.Errorf("sign-in while the issuer is down: %v", err)
	}
	r.issuer.Set(func(s *oidctest.State) { s.Down = false })
	r.pass(retryGap)
	if _, err := r.signIn.Authenticate(t.Context(), token); err != nil {
		t.Errorf("an issuer that is back: %v", err)
	}
	// Keys that are known still count for a while, and then no more.
	r.issuer.Set(func(s *oidctest.State) { s.Down = true })
	r.pass(keysFresh + time.Minute)
	if _, err := r.signIn.Authenticate(t.Context(), r.issuer.Sign(r.machine(), nil)); err != nil {
		t.Errorf("ten minutes after the issuer went down: %v", err)
	}
	r.pass(keysStale)
	if _, err := r.signIn.Authenticate(t.Context(), r.issuer.Sign(r.machine(), nil)); !errors.As(err, &down) {
		t.Errorf("an hour after the issuer went down: %v", err)
	}
}

// An issuer that answers with nonsense, too much or something unsafe is not trusted.
func TestBadIssuers(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*oidctest.State){
		"another issuer":             func(s *oidctest.State) { s.Metadata = map[string]any{"issuer": "https://elsewhere.example.com"} },
		"keys over plain HTTP":       func(s *oidctest.State) { s.Metadata = map[string]any{"jwks_uri": "http://192.0.2.1/keys"} },
		"no keys":                    func(s *oidctest.State) { s.Metadata = map[string]any{"jwks_uri": nil} },
		"a token endpoint in a file": func(s *oidctest.State) { s.Metadata = map[string]any{"token_endpoint": "file:///etc/passwd"} },
		"HMAC alone": func(s *oidctest.State) {
			s.Metadata = map[string]any{"id_token_signing_alg_values_supported": []string{"HS256", "none"}}
		},
		"too many bytes of keys": func(s *oidctest.State) {
			s.Keys = func(w http.ResponseWriter) bool {
				_, _ = w.Write([]byte(`{"keys":[` + strings.Repeat(" ", maxDocument) + `]}`))
				return true
			}
		},
		"too many keys": func(s *oidctest.State) {
			s.Keys = func(w http.ResponseWriter) bool {
				_, _ = w.Write([]byte(`{"keys":[` + strings.Repeat("{},", maxKeys) + `{}]}`))
				return true
			}
		},
		"keys are HTML": func(s *oidctest.State) {
			s.Keys = func(w http.ResponseWriter) bool { _, _ = w.Write([]byte("<html>")); return true }
		},
		"keys by a redirect": func(s *oidctest.State) {
			s.Keys = func(w http.ResponseWriter) bool {
				w.Header().Set("Location", "/.well-known/openid-configuration")
				w.WriteHeader(http.StatusFound)
				return true
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.issuer.Set(edit)
			var down *UnavailableError
			if _, err := r.signIn.Authenticate(t.Context(), r.issuer.Sign(r.machine(), nil)); !errors.As(err, &down) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A symmetric or a weak key in the published set checks nothing.
func TestWeakKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	secret := []byte("a secret of thirty-two characters")
	oct, _ := json.Marshal(jose.JSONWebKey{Key: secret, KeyID: "mac"})
	r.issuer.Set(func(s *oidctest.State) {
		s.Metadata = map[string]any{"id_token_signing_alg_values_supported": []string{"HS256", "RS256", "ES256"}}
		s.Keys = func(w http.ResponseWriter) bool {
			_, _ = fmt.Fprintf(w, `{"keys":[%s,{"kty":"RSA","kid":"weak","n":"%s","e":"AQAB"},{"kty":"strange"},3]}`, oct, base64.RawURLEncoding.EncodeToString(append([]byte{0xff}, make([]byte, 127)...)))
			return true
		}
	})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: secret}, (&jose.SignerOptions{}).WithHeader("kid", "mac"))
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(r.machine())
	sig, _ := signer.Sign(payload)
	token, _ := sig.CompactSerialize()
	if _, err := r.signIn.Authenticate(t.Context(), token); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("HS256 by a published secret: %v", err)
	}
	if err := r.signIn.issuers[0].refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	meta, err := r.signIn.issuers[0].known(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := meta.keys.find(t.Context(), "weak", jose.RS256); err == nil {
		t.Error("an RSA key of 1024 bits is used")
	}
}
