package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// TokenState says whether a token still works.
type TokenState string

// The states of a token.
const (
	TokenLive    TokenState = "live"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
)

// A Token is what is known of an API token. Its text is not among it: only a hash
// of that is stored. What it may do, its assignments say.
type Token struct {
	ID         string     `json:"id"`
	OrgID      string     `json:"-"`
	Name       string     `json:"name"`
	Hint       string     `json:"hint,omitempty" doc:"The first 8 characters after zop_, by which a person knows it again; absent for a token that was not made here"`
	State      TokenState `json:"state" enum:"live,expired,revoked"`
	CreatedBy  string     `json:"createdBy"`
	CreatedAt  time.Time  `json:"createdAt"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty" doc:"Absent: never"`
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty" doc:"To the minute; absent: never used"`
	RevokedAt  *time.Time `json:"revokedAt,omitempty"`
	RevokedBy  string     `json:"revokedBy,omitempty"`

	// Life is for how long the present text was made; 0: for ever. ExpiresAt says
	// until when, so both are given or neither is.
	Life time.Duration `json:"-"`
}

// tokenColumns end with whether the token has expired by the database's clock.
func tokenColumns(d db.Dialect) string {
	return `t.id, t.org_id, t.name, t.hint, t.created_by, t.created_at, t.expires_at, t.last_used_at, t.revoked_at, t.revoked_by,
		CASE WHEN t.expires_at IS NULL THEN 0 ELSE coalesce(t.life, t.expires_at - t.created_at) END,
		CASE WHEN t.expires_at IS NOT NULL AND t.expires_at <= (SELECT ` + db.Now(d) + `) THEN 1 ELSE 0 END`
}

func scanToken(row scanner) (Token, error) {
	var (
		t                        Token
		created, life, over      int64
		expires, used, revokedAt *int64
		err                      = row.Scan(&t.ID, &t.OrgID, &t.Name, &t.Hint, &t.CreatedBy, &created, &expires, &used, &revokedAt, &t.RevokedBy, &life, &over)
	)
	t.Life = time.Duration(life) * time.Microsecond
	t.CreatedAt, t.ExpiresAt, t.LastUsedAt, t.RevokedAt, t.State = fromMicros(created), timePtr(expires), timePtr(used), timePtr(revokedAt), TokenLive
	switch {
	case revokedAt != nil:
		t.State = TokenRevoked
	case over != 0:
		t.State = TokenExpired
	}
	return t, err
}

// AddToken stores a new token as the hash of its text. The error is [ErrTaken] if
// the organisation has, or had, a token of the name: a name stands in the audit
// log for one token for ever.
func AddToken(ctx context.Context, tx db.Q, t *Token, secret string) error {
	t.Hint, t.State = hintOf(secret), TokenLive
	var created int64
	err := tx.QueryRow(ctx, `INSERT INTO tokens (id, org_id, name, hash, hint, created_by, created_at, expires_at, life)
		VALUES ($1, $2, $3, $4, $5, $6, (SELECT `+db.Now(tx.Dialect())+`), $7, $8) ON CONFLICT DO NOTHING RETURNING created_at`,
		t.ID, t.OrgID, t.Name, hash(secret), t.Hint, t.CreatedBy, micros(t.ExpiresAt), t.lifeMicros()).Scan(&created)
	if errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("token %s: %w", t.Name, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("token %s: %w", t.Name, err)
	}
	t.CreatedAt = fromMicros(created)
	return nil
}

// actor is the token as the audit log writes it.
func (t *Token) actor() string { return "token:" + t.Name }

// lifeMicros is the life as it is stored; nil where it is not known, or for ever.
func (t *Token) lifeMicros() *int64 {
	if t.ExpiresAt == nil || t.Life <= 0 {
		return nil
	}
	n := t.Life.Microseconds()
	return &n
}

// FindToken reads an organisation's token by its ID or its name; [ErrMissing].
func FindToken(ctx context.Context, q db.Q, org, ref string) (*Token, error) {
	t, err := scanToken(q.QueryRow(ctx, `SELECT `+tokenColumns(q.Dialect())+` FROM tokens t WHERE t.org_id = $1 AND (t.id = $2 OR t.name = $2)
		ORDER BY CASE WHEN t.id = $2 THEN 0 ELSE 1 END LIMIT 1`, org, ref))
	if errors.Is(err, db.ErrNoRows) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	return &t, nil
}

// ListTokens lists an organisation's tokens, the newest first, from after the one
// whose ID is given. Who does not see the whole organisation sees the tokens that
// hold nothing beyond what is seen.
func ListTokens(ctx context.Context, q db.Q, org string, see job.Visible, after string, limit int) ([]Token, error) {
	c := &clause{}
	where := "t.org_id = " + c.arg(org)
	if after != "" {
		where += " AND t.id < " + c.arg(after) // IDs begin with their time
	}
	if !see.All {
		const of = `SELECT 1 FROM assignments a WHERE a.org_id = t.org_id AND a.subject_kind = 'token' AND a.subject = t.id`
		where += " AND EXISTS (" + of + ") AND NOT EXISTS (" + of + " AND NOT " + c.within(see) + ")"
	}
	return gather(ctx, q, "tokens", scanToken, `SELECT `+tokenColumns(q.Dialect())+` FROM tokens t WHERE `+where+` ORDER BY t.id DESC LIMIT `+c.arg(int64(limit)), c.args...)
}

// RevokeToken ends a token, for all processes at once: each of them looks a token
// up for every request. The sessions that it opened end with it. Revoking it again
// changes nothing.
func RevokeToken(ctx context.Context, tx db.Q, org, id, by string) error {
	_, err := tx.Exec(ctx, `UPDATE tokens SET revoked_at = (SELECT `+db.Now(tx.Dialect())+`), revoked_by = $3 WHERE org_id = $1 AND id = $2 AND revoked_at IS NULL`, org, id, by)
	if err != nil {
		return fmt.Errorf("token %s: %w", id, err)
	}
	_, err = endSessions(ctx, tx, org, id)
	return err
}

// endSessions ends all sessions of a user, or all that a token opened, and says how
// many there were.
func endSessions(ctx context.Context, tx db.Q, org, of string) (int64, error) {
	n, err := tx.Exec(ctx, `DELETE FROM sessions WHERE org_id = $1 AND user_id = $2`, org, of)
	if err != nil {
		return 0, fmt.Errorf("sessions of %s: %w", of, err)
	}
	return n, nil
}

// RotateToken gives a token another text and another end. The old text is worth
// nothing from then on, and neither are the sessions that were opened with it.
func RotateToken(ctx context.Context, tx db.Q, t *Token, secret string) error {
	t.Hint, t.LastUsedAt, t.State = hintOf(secret), nil, TokenLive
	_, err := tx.Exec(ctx, `UPDATE tokens SET hash = $3, hint = $4, expires_at = $5, life = $6, last_used_at = NULL WHERE org_id = $1 AND id = $2`,
		t.OrgID, t.ID, hash(secret), t.Hint, micros(t.ExpiresAt), t.lifeMicros())
	if err != nil {
		return fmt.Errorf("token %s: %w", t.Name, err)
	}
	_, err = endSessions(ctx, tx, t.OrgID, t.ID)
	return err
}

// A clause collects the arguments of a statement that is put together.
type clause struct{ args []any }

// arg adds an argument and returns its placeholder.
func (c *clause) arg(v any) string {
	c.args = append(c.args, v)
	return fmt.Sprintf("$%d", len(c.args))
}

func (c *clause) list(values []string) string {
	marks := make([]string, len(values))
	for i, v := range values {
		marks[i] = c.arg(v)
	}
	return "(" + strings.Join(marks, ", ") + ")"
}

// within is the condition that the assignment a is for nothing beyond what is
// seen: a team, a single resource, or a job or cloud account of a team.
func (c *clause) within(see job.Visible) string {
	either := []string{"1 = 0"}
	if len(see.Teams) > 0 {
		teams := c.list(see.Teams)
		either = append(either, "a.scope_kind = 'team' AND a.scope_id IN "+teams,
			"a.scope_kind = 'resource' AND EXISTS (SELECT 1 FROM provisioning_jobs j WHERE j.org_id = a.org_id AND j.id = a.scope_id AND j.team_id IN "+teams+")",
			"a.scope_kind = 'resource' AND EXISTS (SELECT 1 FROM cloud_accounts n WHERE n.org_id = a.org_id AND n.id = a.scope_id AND n.team_id IN "+teams+")")
	}
	if len(see.IDs) > 0 {
		either = append(either, "a.scope_kind = 'resource' AND a.scope_id IN "+c.list(see.IDs))
	}
	return "(" + strings.Join(either, " OR ") + ")"
}
