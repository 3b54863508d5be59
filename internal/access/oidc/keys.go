package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
)

// How long what an issuer publishes is taken for true, and how often it is asked.
const (
	keysFresh   = 10 * time.Minute // older keys are read again before they are used
	keysStale   = time.Hour        // older ones are not used at all, whether or not the issuer answers
	keysGap     = 30 * time.Second // between two readings, however many unknown keys are named
	retryGap    = 5 * time.Second  // after one that failed
	maxKeys     = 100
	minRSA      = 2048
	maxRSA      = 8192 // a larger one costs too much to check
	maxDocument = 1 << 20
)

// A keySet is the public keys of one issuer.
type keySet struct {
	name   string // the issuer's
	url    string
	client *http.Client
	now    func() time.Time

	flight singleflight.Group
	mu     sync.Mutex
	keys   []jose.JSONWebKey
	read   time.Time // when keys were read
	tried  time.Time // when the last reading began
	err    error     // why it failed
}

// find is the keys that may have made a signature: those of that name, or of any
// where the token names none. The error is an [UnavailableError] if the issuer does
// not say which keys it has.
func (s *keySet) find(ctx context.Context, kid string, alg jose.SignatureAlgorithm) ([]jose.JSONWebKey, error) {
	found, fresh, _ := s.look(kid, alg)
	if len(found) > 0 && fresh {
		return found, nil
	}
	// One reading serves all who wait for it; it goes on when the one who began it
	// has gone.
	done := s.flight.DoChan("keys", func() (any, error) { return nil, s.refresh(context.WithoutCancel(ctx)) })
	var err error
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-done:
		err = r.Err
	}
	found, _, usable := s.look(kid, alg)
	switch {
	case !usable && err != nil:
		return nil, &UnavailableError{Issuer: s.name, err: err}
	case !usable || len(found) == 0:
		return nil, errors.New("no key of the issuer fits")
	}
	return found, nil
}

func (s *keySet) look(kid string, alg jose.SignatureAlgorithm) (found []jose.JSONWebKey, fresh, usable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := s.now().Sub(s.read)
	if s.read.IsZero() || age > keysStale {
		return nil, false, false
	}
	for _, k := range s.keys {
		if (kid == "" || k.KeyID == kid) && fits(k, alg) {
			found = append(found, k)
		}
	}
	return found, age <= keysFresh, true
}

// refresh reads the keys, unless they have just been read.
func (s *keySet) refresh(ctx context.Context) error {
	s.mu.Lock()
	gap := keysGap
	if s.err != nil {
		gap = retryGap
	}
	now := s.now()
	if !s.tried.IsZero() && now.Sub(s.tried) < gap {
		defer s.mu.Unlock()
		return s.err
	}
	s.tried = now
	s.mu.Unlock()

	keys, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.keys, s.read = keys, now // keys that are no longer published drop
	}
	return err
}

func (s *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	body, err := get(ctx, s.client, s.url)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	var doc struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, errors.New("keys: the answer is not a set of JSON Web Keys")
	}
	if len(doc.Keys) > maxKeys {
		return nil, fmt.Errorf("keys: there are %d, more than %d", len(doc.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, raw := range doc.Keys {
		// One key of a kind that is not known is no reason to take none.
		var k jose.JSONWebKey
		if json.Unmarshal(raw, &k) != nil || !k.Valid() || !k.IsPublic() {
			continue
		}
		k.Certificates, k.CertificatesURL = nil, nil
		keys = append(keys, k)
	}
	return keys, nil
}

// fits reports whether a key can have made signatures of an algorithm. The key
// decides, not the token: an RSA key never checks an HMAC.
func fits(k jose.JSONWebKey, alg jose.SignatureAlgorithm) bool {
	if k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != string(alg) {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		bits := key.N.BitLen()
		return (alg[:2] == "RS" || alg[:2] == "PS") && bits >= minRSA && bits <= maxRSA
	case *ecdsa.PublicKey:
		return key.Curve == map[jose.SignatureAlgorithm]elliptic.Curve{
			jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521(),
		}[alg]
	case ed25519.PublicKey:
		return alg == jose.EdDSA
	}
	return false
}

// verify checks a token's signature by the issuer's keys and returns what it signs.
func (s *keySet) verify(ctx context.Context, token string, algs []jose.SignatureAlgorithm) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algs)
	if err != nil {
		return nil, errors.New("the token cannot be read, or its algorithm is none that the issuer has")
	}
	if len(jws.Signatures) != 1 {
		return nil, errors.New("the token does not have one signature")
	}
	h := jws.Signatures[0].Protected
	keys, err := s.find(ctx, h.KeyID, jose.SignatureAlgorithm(h.Algorithm))
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if payload, err := jws.Verify(k.Key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("the signature is not by a key of the issuer")
}
