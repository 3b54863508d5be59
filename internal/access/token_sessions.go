package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
)

// Enter opens a session for whoever has a token of ours, so that a browser holds a
// secret that ends by itself and not the token. The session can do what the token
// can, as long as it can. request is the ID of the request, for the audit log. The
// error is ErrUnauthenticated for what is no token.
func (t *Tokens) Enter(ctx context.Context, bearer, request string) (secret string, p Principal, err error) {
	if isJWT(bearer) {
		return "", Principal{}, ErrUnauthenticated
	}
	if p, err = t.Authenticate(ctx, bearer); err != nil {
		return "", Principal{}, err
	}
	secret = NewCookie()
	p.Session = hash(secret)
	now := `(SELECT ` + db.Now(t.d.Dialect()) + `)`
	err = t.d.InTx(db.WithOrg(ctx, p.OrgID), func(ctx context.Context, tx db.Q) error {
		// Whoever rotates or revokes the token holds this lock while its sessions end:
		// one that the old text opens meanwhile must not be left over.
		if err := LockOrg(ctx, tx, p.OrgID); err != nil {
			return err
		}
		tok, err := scanToken(tx.QueryRow(ctx, `SELECT `+tokenColumns(tx.Dialect())+` FROM tokens t WHERE t.org_id = $1 AND t.hash = $2`, p.OrgID, hash(bearer)))
		if errors.Is(err, db.ErrNoRows) || err == nil && tok.State != TokenLive {
			return ErrUnauthenticated
		}
		if err != nil {
			return fmt.Errorf("token: %w", err)
		}
		_, err = tx.Exec(ctx, `INSERT INTO sessions (hash, org_id, user_id, created_at, seen_at, expires_at) VALUES ($1, $2, $3, `+now+`, `+now+`, `+now+` + $4)`,
			p.Session, p.OrgID, tok.ID, SessionAbsolute.Microseconds())
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		return sessionNote(ctx, tx, tok, "session:create", request)
	})
	if err != nil {
		return "", Principal{}, err
	}
	return secret, p, nil
}

// sessionNote is the audit entry of a token that comes in or goes out.
func sessionNote(ctx context.Context, tx db.Q, tok Token, action, request string) error {
	return audit.Append(ctx, tx, audit.Entry{
		Org: tok.OrgID, Actor: tok.actor(), Action: action, ResourceType: "session", Outcome: audit.Allowed, Scope: string(OrgScope), RequestID: request,
	})
}

// Session is the session that Enter opened, and its principal. The error is
// ErrUnauthenticated if there is none, it is over, or its token is.
func (t *Tokens) Session(ctx context.Context, secret string) (Session, Principal, error) {
	if !GoodCookie(secret) {
		return Session{}, Principal{}, ErrUnauthenticated
	}
	ctx = system(ctx)
	var org, id string
	var seen, expires, now int64
	err := t.d.QueryRow(ctx, `SELECT org_id, user_id, seen_at, expires_at, `+db.Now(t.d.Dialect())+` FROM sessions WHERE hash = $1`, hash(secret)).Scan(&org, &id, &seen, &expires, &now)
	if errors.Is(err, db.ErrNoRows) || err == nil && (now >= expires || now >= seen+SessionIdle.Microseconds()) {
		return Session{}, Principal{}, ErrUnauthenticated
	}
	if err != nil {
		return Session{}, Principal{}, fmt.Errorf("session: %w", err)
	}
	tok, err := scanToken(t.d.QueryRow(ctx, `SELECT `+tokenColumns(t.d.Dialect())+` FROM tokens t WHERE t.org_id = $1 AND t.id = $2`, org, id))
	if errors.Is(err, db.ErrNoRows) || err == nil && tok.State != TokenLive {
		return Session{}, Principal{}, ErrUnauthenticated // also a session of a person, which is no business of ours
	}
	if err != nil {
		return Session{}, Principal{}, fmt.Errorf("session: %w", err)
	}
	p, err := t.principalOf(ctx, tok)
	if err == nil && now-seen >= seenEvery.Microseconds() {
		seen = now
		_, err = t.d.Exec(ctx, `UPDATE sessions SET seen_at = $3 WHERE org_id = $1 AND hash = $2 AND seen_at < $3`, org, hash(secret), now)
	}
	if err != nil {
		return Session{}, Principal{}, err
	}
	got := Session{Hash: hash(secret), SeenAt: fromMicros(seen), ExpiresAt: fromMicros(expires)}
	if tok.ExpiresAt != nil && tok.ExpiresAt.Before(got.ExpiresAt) {
		got.ExpiresAt = *tok.ExpiresAt
	}
	p.Session = got.Hash
	return got, p, nil
}

// Leave ends a session that Enter opened, also one whose token has expired; one that
// is not there is no error. request is the ID of the request, for the audit log.
func (t *Tokens) Leave(ctx context.Context, secret, request string) error {
	if !GoodCookie(secret) {
		return nil
	}
	var org, id string
	err := t.d.QueryRow(system(ctx), `SELECT org_id, user_id FROM sessions WHERE hash = $1`, hash(secret)).Scan(&org, &id)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return t.d.InTx(db.WithOrg(ctx, org), func(ctx context.Context, tx db.Q) error {
		tok, err := FindToken(ctx, tx, org, id)
		if errors.Is(err, ErrMissing) {
			return nil // a session of a person, which is no business of ours
		}
		if err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `DELETE FROM sessions WHERE org_id = $1 AND hash = $2`, org, hash(secret))
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		if n == 0 {
			return nil // somebody else has just ended it
		}
		return sessionNote(ctx, tx, *tok, "session:delete", request)
	})
}

// Sweep removes the sessions that are over.
func (t *Tokens) Sweep(ctx context.Context) (int64, error) { return NewSessions(t.d).Sweep(ctx) }
