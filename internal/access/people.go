package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/db"
)

// A Person is a user as admins see them.
type Person struct {
	ID        string    `json:"id"`
	Actor     string    `json:"actor" doc:"As the audit log writes it"`
	Name      string    `json:"name,omitempty" doc:"What the person is called; anybody may be called so"`
	Email     string    `json:"email,omitempty" doc:"Verified by the issuer, and nobody else's in the organisation"`
	Issuer    string    `json:"issuer" doc:"Who vouches for the person"`
	Subject   string    `json:"subject" doc:"What the issuer calls the person"`
	Groups    []string  `json:"groups" doc:"Those of the last sign-in"`
	Disabled  bool      `json:"disabled" doc:"Whether the person is kept out"`
	CreatedAt time.Time `json:"createdAt" doc:"The first sign-in"`
	SeenAt    time.Time `json:"seenAt" doc:"The last sign-in"`
}

// Subjects are whose assignments the person has.
func (p Person) Subjects() []Subject {
	return User{ID: p.ID, Email: p.Email, Groups: p.Groups}.Subjects()
}

const personColumns = `id, name, email, issuer, subject, groups, disabled, created_at, seen_at`

func scanPerson(row scanner) (Person, error) {
	var (
		p             Person
		groups        string
		created, seen int64
	)
	if err := row.Scan(&p.ID, &p.Name, &p.Email, &p.Issuer, &p.Subject, &groups, &p.Disabled, &created, &seen); err != nil {
		return p, err
	}
	if err := json.Unmarshal([]byte(groups), &p.Groups); err != nil {
		return p, fmt.Errorf("groups of %s: %w", p.ID, err)
	}
	p.Actor, p.CreatedAt, p.SeenAt = User{ID: p.ID, Email: p.Email}.Actor(), fromMicros(created), fromMicros(seen)
	return p, nil
}

// ListPeople lists an organisation's users, the newest first; after is the ID of
// the last one of the page before.
func ListPeople(ctx context.Context, q db.Q, org, after string, limit int) ([]Person, error) {
	c := &clause{}
	where := "org_id = " + c.arg(org)
	if after != "" {
		where += " AND id < " + c.arg(after)
	}
	return gather(ctx, q, "users", scanPerson, `SELECT `+personColumns+` FROM users WHERE `+where+` ORDER BY id DESC LIMIT `+c.arg(int64(limit)), c.args...)
}

// FindPerson reads an organisation's user by ID; [ErrMissing].
func FindPerson(ctx context.Context, q db.Q, org, id string) (*Person, error) {
	p, err := scanPerson(q.QueryRow(ctx, `SELECT `+personColumns+` FROM users WHERE org_id = $1 AND id = $2`, org, id))
	if errors.Is(err, db.ErrNoRows) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	return &p, nil
}

// Disable keeps a user out, or lets one in again, and says how many sessions ended.
// The transaction holds the lock of [LockOrg].
func Disable(ctx context.Context, tx db.Q, org, id string, disabled bool) (ended int64, err error) {
	if _, err := tx.Exec(ctx, `UPDATE users SET disabled = $3 WHERE org_id = $1 AND id = $2`, org, id, disabled); err != nil {
		return 0, fmt.Errorf("user %s: %w", id, err)
	}
	if !disabled {
		return 0, nil
	}
	return endSessions(ctx, tx, org, id)
}
