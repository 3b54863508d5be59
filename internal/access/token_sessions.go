package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/db"
)

// Enter opens a session for whoever has a token of ours, so that a browser holds a
// secret that ends by itself and not the token. The session can do what the token
// can, as long as it can. The error is ErrUnauthenticated for what is no token.
func (t *Tokens) Enter(ctx context.Context, bearer string) (secret string, p Principal, err error) {
	if isJWT(bearer) {
		return "", Principal{}, ErrUnauthenticated
	}
	if p, err = t.Authenticate(ctx, bearer); err != nil {
		return "", Principal{}, err
	}
	secret = NewCookie()
	now := `(SELECT ` + db.Now(t.d.Dialect()) + `)`
	_, err = t.d.Exec(system(ctx), `INSERT INTO sessions (hash, org_id, user_id, created_at, seen_at, expires_at) VALUES ($1, $2, $3, `+now+`, `+now+`, `+now+` + $4)`,
		hash(secret), p.OrgID, p.Subjects[0].ID, SessionAbsolute.Microseconds())
	if err != nil {
		return "", Principal{}, fmt.Errorf("session: %w", err)
	}
	return secret, p, nil
}

// Session is the principal of a session that Enter opened. The error is
// ErrUnauthenticated if there is none, it is over, or its token is.
func (t *Tokens) Session(ctx context.Context, secret string) (Principal, error) {
	if !GoodCookie(secret) {
		return Principal{}, ErrUnauthenticated
	}
	ctx = system(ctx)
	var org, id string
	var seen, expires, now int64
	err := t.d.QueryRow(ctx, `SELECT org_id, user_id, seen_at, expires_at, `+db.Now(t.d.Dialect())+` FROM sessions WHERE hash = $1`, hash(secret)).Scan(&org, &id, &seen, &expires, &now)
	if errors.Is(err, db.ErrNoRows) || err == nil && (now >= expires || now >= seen+SessionIdle.Microseconds()) {
		return Principal{}, ErrUnauthenticated
	}
	if err != nil {
		return Principal{}, fmt.Errorf("session: %w", err)
	}
	tok, err := scanToken(t.d.QueryRow(ctx, `SELECT `+tokenColumns(t.d.Dialect())+` FROM tokens t WHERE t.org_id = $1 AND t.id = $2`, org, id))
	if errors.Is(err, db.ErrNoRows) || err == nil && tok.State != TokenLive {
		return Principal{}, ErrUnauthenticated // also a session of a person, which is no business of ours
	}
	if err != nil {
		return Principal{}, fmt.Errorf("session: %w", err)
	}
	p, err := t.principalOf(ctx, tok)
	if err == nil && now-seen >= seenEvery.Microseconds() {
		_, err = t.d.Exec(ctx, `UPDATE sessions SET seen_at = $3 WHERE org_id = $1 AND hash = $2 AND seen_at < $3`, org, hash(secret), now)
	}
	return p, err
}

// Leave ends a session that Enter opened; one that is not there is no error.
func (t *Tokens) Leave(ctx context.Context, secret string) error {
	if !GoodCookie(secret) {
		return nil
	}
	if _, err := t.d.Exec(system(ctx), `DELETE FROM sessions WHERE hash = $1`, hash(secret)); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// Sweep removes the sessions that are over.
func (t *Tokens) Sweep(ctx context.Context) (int64, error) { return NewSessions(t.d).Sweep(ctx) }
