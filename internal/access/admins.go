package access

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// ErrLastAdmin is a change that would leave an organisation without anybody who
// could give rights again.
var ErrLastAdmin = errors.New("this would leave your organisation without an admin")

// KeepAdmin refuses the state in which a transaction has brought an organisation if
// nobody in it is an admin any more: [ErrLastAdmin]. The transaction holds the lock
// of [LockOrg], so that of two admins who remove each other one stays.
//
// An admin is whoever holds the built-in role Admin over the whole organisation and
// can come in: a token that is neither revoked nor expired. Where people can sign
// in, also a user who has done so and is not disabled, or a group in which such a
// user was at the last sign-in; nobody else is known to exist.
func KeepAdmin(ctx context.Context, tx db.Q, org string, signIn bool) error {
	var token string
	err := tx.QueryRow(ctx, `SELECT t.id FROM assignments a JOIN tokens t ON t.org_id = a.org_id AND t.id = a.subject
		WHERE a.org_id = $1 AND a.subject_kind = 'token' AND a.role = $2 AND a.scope_kind = 'org'
		AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > (SELECT `+db.Now(tx.Dialect())+`)) LIMIT 1`, org, Admin).Scan(&token)
	if err == nil {
		return nil
	}
	if !errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("admins of %s: %w", org, err)
	}
	if !signIn {
		return ErrLastAdmin
	}
	found, err := adminSignsIn(ctx, tx, org)
	if err == nil && !found {
		err = ErrLastAdmin
	}
	return err
}

// adminSignsIn reports whether one of the people who have signed in is an admin.
func adminSignsIn(ctx context.Context, tx db.Q, org string) (bool, error) {
	admins, err := ListAssignments(ctx, tx, org, job.Everything, AssignmentFilter{RoleID: Admin, Scope: Scope{Kind: OrgScope}, Limit: 100_000})
	if err != nil {
		return false, err
	}
	holds := map[Subject]bool{}
	for _, a := range admins {
		holds[a.Subject] = true
	}
	if len(holds) == 0 {
		return false, nil
	}
	people, err := gather(ctx, tx, "users", func(row scanner) ([]Subject, error) {
		var disabled bool
		return scanSubjects(row, &disabled)
	}, `SELECT id, lower(email), groups, disabled FROM users WHERE org_id = $1 AND NOT disabled`, org)
	if err != nil {
		return false, err
	}
	for _, is := range people {
		if slices.ContainsFunc(is, func(s Subject) bool { return holds[s] }) {
			return true, nil
		}
	}
	return false, nil
}
