package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/db"
)

// TokenPrefix starts every token that we make, so that a scanner for leaked
// secrets can recognise one.
const TokenPrefix = "zop_"

// BootstrapEnv names the environment variable that sets the bootstrap token.
const BootstrapEnv = "ZOPDAY_BOOTSTRAP_TOKEN"

const (
	bootstrapSetting = "access.bootstrap-token.sha256"
	bootstrapActor   = "token:bootstrap"
	minToken         = 16
	maxToken         = 512
)

// ErrUnauthenticated is a request without a valid token. It does not say
// whether the token was missing, malformed or wrong.
var ErrUnauthenticated = errors.New("the request carries no valid token")

// Bootstrap makes sure that the installation has its one bootstrap token, of
// which only the hash is kept. A token given by the environment replaces the one
// that stands. Without one, and if there is none yet, a token is made and
// returned in fresh: the caller shows it once, and it cannot be had again.
func Bootstrap(ctx context.Context, q db.Q, fromEnv string) (fresh string, err error) {
	if fromEnv != "" {
		if err := checkToken(fromEnv); err != nil {
			return "", fmt.Errorf("%s: %w", BootstrapEnv, err)
		}
		return "", db.PutSetting(ctx, q, bootstrapSetting, hash(fromEnv))
	}
	if _, ok, err := db.Setting(ctx, q, bootstrapSetting); ok || err != nil {
		return "", err
	}
	token := TokenPrefix + strings.ToLower(rand.Text()+rand.Text())
	stands, err := db.PutSettingOnce(ctx, q, bootstrapSetting, hash(token))
	if err != nil {
		return "", err
	}
	if stands != hash(token) {
		return "", nil // another process was first, and has shown its own
	}
	return token, nil
}

func checkToken(t string) error {
	if len(t) < minToken || len(t) > maxToken {
		return fmt.Errorf("the token has %d characters; use %d to %d", len(t), minToken, maxToken)
	}
	for _, r := range t {
		if r <= ' ' || r > '~' {
			return errors.New("the token has characters that a header cannot carry; use printable ASCII without spaces")
		}
	}
	return nil
}

// Tokens tells principals by their tokens.
type Tokens struct{ q db.Q }

// NewTokens reads tokens from the given database.
func NewTokens(q db.Q) *Tokens { return &Tokens{q: q} }

// Authenticate is the principal behind a bearer token, or ErrUnauthenticated.
func (t *Tokens) Authenticate(ctx context.Context, token string) (Principal, error) {
	want, ok, err := db.Setting(ctx, t.q, bootstrapSetting)
	if err != nil {
		return Principal{}, err
	}
	// Hashes of equal length are compared in constant time, so that the time
	// taken says nothing about how much of a guess was right.
	if !ok || subtle.ConstantTimeCompare([]byte(hash(token)), []byte(want)) != 1 {
		return Principal{}, ErrUnauthenticated
	}
	return Of(DefaultOrg, bootstrapActor, Admin), nil
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Bearer takes the token out of an Authorization header; "" if there is none.
func Bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
