package oidc

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Bounds on what is looked at before anything is verified.
const (
	maxToken  = 16 << 10
	maxHeader = 4 << 10
	maxKeyID  = 256
)

// algorithms are the signatures that are taken, if an issuer says that it makes
// them. All are of key pairs: with HMAC the published key would be the secret.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// A front is what an unverified token says of itself: enough to find the issuer
// whose keys prove it, and nothing that is believed before.
type front struct {
	alg    jose.SignatureAlgorithm
	kid    string
	typ    string // lower case, without application/
	issuer string
}

// readFront looks at a token without believing it. Headers by which a token would
// bring a key or a place of keys along (jwk, jku, x5c, x5u) are not even read, and one
// that makes an extension critical (RFC 7515, section 4.1.11) is refused, since
// none is known here.
func readFront(token string) (front, error) {
	var f front
	if len(token) > maxToken {
		return f, fmt.Errorf("the token has %d bytes, more than %d", len(token), maxToken)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return f, errors.New("the token is not three parts with dots between")
	}
	if len(parts[0]) > maxHeader {
		return f, fmt.Errorf("the token's header has %d bytes, more than %d", len(parts[0]), maxHeader)
	}
	header, err := object(parts[0])
	if err != nil {
		return f, fmt.Errorf("header: %w", err)
	}
	for _, name := range []string{"crit", "b64", "enc", "zip"} {
		if _, there := header[name]; there {
			return f, fmt.Errorf("the header has %s, which is not taken", name)
		}
	}
	var alg string
	if err := errors.Join(text(header, "alg", &alg), text(header, "kid", &f.kid), text(header, "typ", &f.typ)); err != nil {
		return f, err
	}
	if f.alg = jose.SignatureAlgorithm(alg); !slices.Contains(algorithms, f.alg) {
		return f, fmt.Errorf("the algorithm %q is not taken", clip(alg, 20))
	}
	if len(f.kid) > maxKeyID {
		return f, fmt.Errorf("the key's name has %d bytes, more than %d", len(f.kid), maxKeyID)
	}
	f.typ = strings.TrimPrefix(strings.ToLower(f.typ), "application/")
	claims, err := object(parts[1])
	if err != nil {
		return f, fmt.Errorf("claims: %w", err)
	}
	if err := text(claims, "iss", &f.issuer); err != nil {
		return f, err
	}
	if _, err := base64.RawURLEncoding.Strict().DecodeString(parts[2]); err != nil {
		return f, errors.New("the signature is not base64url")
	}
	return f, nil
}

// object decodes a part of a token that is a JSON object. Names are told apart by
// case, as the standard has it.
func object(part string) (map[string]json.RawMessage, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return nil, errors.New("not base64url")
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil || m == nil {
		return nil, errors.New("not a JSON object")
	}
	return m, nil
}

// text reads a member that is a string; one that is missing leaves "".
func text(m map[string]json.RawMessage, name string, into *string) error {
	raw, ok := m[name]
	if !ok {
		return nil
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return fmt.Errorf("%s is not a string", name)
	}
	*into = *s
	return nil
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
