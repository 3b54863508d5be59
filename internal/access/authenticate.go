package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/db"
)

// ErrUnauthenticated is a request without a valid token. It does not say whether
// the token was missing, malformed, unknown, expired or revoked.
var ErrUnauthenticated = errors.New("the request carries no valid token")

// usedEvery is how often the use of a token is written down.
const usedEvery = time.Minute

// Tokens tells principals by what they send in the header Authorization.
type Tokens struct {
	// JWT tells the principal behind a JSON web token; nil: none is taken. Its
	// errors are as those of Authenticate.
	JWT func(ctx context.Context, bearer string) (Principal, error)

	d   *db.DB
	log *slog.Logger

	mu      sync.Mutex
	writing map[string]bool // tokens whose use is being written down
	work    sync.WaitGroup
}

// NewTokens looks tokens up in the given database; log may be nil.
func NewTokens(d *db.DB, log *slog.Logger) *Tokens {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Tokens{d: d, log: log, writing: map[string]bool{}}
}

// Authenticate is the principal behind a bearer token, or [ErrUnauthenticated]:
// by the token's form, one of ours or a JSON web token. Every call looks the token
// up, so that one that was revoked, or a role that was taken away, is so at once
// and in every process.
func (t *Tokens) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	switch {
	case bearer == "":
		return Principal{}, ErrUnauthenticated
	case isJWT(bearer):
		if t.JWT == nil {
			return Principal{}, ErrUnauthenticated
		}
		return t.JWT(ctx, bearer)
	case len(bearer) > maxToken, tokenRE.MatchString(bearer) && !Genuine(bearer):
		return Principal{}, ErrUnauthenticated // the checksum spares the database a look
	}
	return t.lookUp(system(ctx), bearer)
}

// lookUp finds a token by its hash, in an index. How long that takes may depend on
// how much of the hash is that of another token; since nobody can choose the hash
// of a guess, it says nothing of how much of the guess was right, and nothing has
// to be compared in constant time.
func (t *Tokens) lookUp(ctx context.Context, bearer string) (Principal, error) {
	tok, err := scanToken(t.d.QueryRow(ctx, `SELECT `+tokenColumns(t.d.Dialect())+` FROM tokens t WHERE t.hash = $1`, hash(bearer)))
	if errors.Is(err, db.ErrNoRows) || err == nil && tok.State != TokenLive {
		return Principal{}, ErrUnauthenticated
	}
	if err != nil {
		return Principal{}, fmt.Errorf("token: %w", err)
	}
	p, err := t.principalOf(ctx, tok)
	if err != nil {
		return Principal{}, err
	}
	t.used(ctx, tok)
	return p, nil
}

// principalOf is who a token is, and what it may do now.
func (t *Tokens) principalOf(ctx context.Context, tok Token) (Principal, error) {
	p := Principal{OrgID: tok.OrgID, Actor: tok.actor(), Subjects: []Subject{{SubjectToken, tok.ID}}}
	var err error
	if p.Grants, err = Grants(ctx, t.d, p.OrgID, p.Subjects); err != nil {
		return Principal{}, err
	}
	return p, nil
}

// used writes down that a token was used, once a minute at most, beside the
// request, which does not wait for it.
func (t *Tokens) used(ctx context.Context, tok Token) {
	if tok.LastUsedAt != nil && time.Since(*tok.LastUsedAt) < usedEvery {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writing[tok.ID] {
		return
	}
	t.writing[tok.ID] = true
	t.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		now := `(SELECT ` + db.Now(t.d.Dialect()) + `)`
		_, err := t.d.Exec(ctx, `UPDATE tokens SET last_used_at = `+now+` WHERE org_id = $1 AND id = $2 AND (last_used_at IS NULL OR last_used_at <= `+now+` - $3)`,
			tok.OrgID, tok.ID, usedEvery.Microseconds())
		if err != nil {
			t.log.DebugContext(ctx, "the use of a token could not be written down", "token", tok.ID, "error", err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.writing, tok.ID)
	})
}

// Wait returns when all uses so far are written down.
func (t *Tokens) Wait() { t.work.Wait() }
