package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/db"
)

// UserExists reports whether an organisation has a user of the ID.
func UserExists(ctx context.Context, q db.Q, org, id string) (bool, error) {
	var n int64
	if err := q.QueryRow(ctx, `SELECT count(*) FROM users WHERE org_id = $1 AND id = $2`, org, id).Scan(&n); err != nil {
		return false, fmt.Errorf("user: %w", err)
	}
	return n > 0, nil
}

// UserSubjects are all under whose names a user holds something: the user, the
// user's e-mail address, and the groups of the last sign-in. ref is an ID or an
// e-mail address in lower case; no user is no error, and no subjects.
func UserSubjects(ctx context.Context, q db.Q, org, ref string) (subjects []Subject, enabled bool, err error) {
	people, err := gather(ctx, q, "users", func(row scanner) ([]Subject, error) {
		var (
			disabled bool
			s, err   = scanSubjects(row, &disabled)
		)
		enabled = enabled || !disabled
		return s, err
	}, `SELECT id, lower(email), groups, disabled FROM users WHERE org_id = $1 AND (id = $2 OR lower(email) = $2)`, org, ref)
	for _, s := range people {
		subjects = append(subjects, s...)
	}
	return subjects, enabled, err
}

// scanSubjects reads id, e-mail address, groups and disabled.
func scanSubjects(row scanner, disabled *bool) ([]Subject, error) {
	var id, email, groups string
	if err := row.Scan(&id, &email, &groups, disabled); err != nil {
		return nil, err
	}
	is := []Subject{{SubjectUser, id}}
	if email != "" {
		is = append(is, Subject{SubjectUser, email})
	}
	var names []string
	if err := json.Unmarshal([]byte(groups), &names); err != nil {
		return nil, fmt.Errorf("groups of %s: %w", id, err)
	}
	for _, g := range names {
		is = append(is, Subject{SubjectGroup, g})
	}
	return is, nil
}

// GetOrg reads an organisation by its ID; [ErrNoOrg].
func GetOrg(ctx context.Context, q db.Q, id string) (*Org, error) {
	var (
		o       Org
		created int64
	)
	err := q.QueryRow(ctx, `SELECT id, name, created_at FROM organisations WHERE id = $1`, id).Scan(&o.ID, &o.Name, &created)
	if errors.Is(err, db.ErrNoRows) {
		return nil, ErrNoOrg
	}
	if err != nil {
		return nil, fmt.Errorf("organisation: %w", err)
	}
	o.CreatedAt = fromMicros(created)
	return &o, nil
}
