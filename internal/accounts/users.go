package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// Brief is what of an account is told to somebody who may have jobs made in it and
// may not see it.
func (a *Account) Brief() Account {
	return Account{ID: a.ID, OrgID: a.OrgID, TeamID: a.TeamID, Name: a.Name, Provider: a.Provider, Level: a.Level, Configured: a.Configured, Limited: true}
}

// Lock is Get by the account's ID, for a change: until the transaction ends nothing
// else changes the account, and nothing new comes to stand on it.
func (s *Store) Lock(ctx context.Context, tx db.Q, org, id string) (*Account, error) {
	a, err := scan(tx.QueryRow(ctx, `SELECT `+columns+` FROM cloud_accounts WHERE org_id = $1 AND id = $2`+db.ForUpdate(tx.Dialect()), org, id))
	if errors.Is(err, db.ErrNoRows) {
		return nil, fmt.Errorf("%w: %.80q", cloud.ErrNoAccount, id)
	}
	if err != nil {
		return nil, fmt.Errorf("cloud account: %w", err)
	}
	return &a, nil
}

// Hold keeps an account from being deleted or changed until the transaction ends,
// for something that is about to stand on it; the error is cloud.ErrNoAccount if
// the account is gone.
func (s *Store) Hold(ctx context.Context, tx db.Q, org, id string) error {
	share := "" // SQLite has one writer at a time
	if tx.Dialect() == db.Postgres {
		share = " FOR SHARE"
	}
	var found string
	err := tx.QueryRow(ctx, `SELECT id FROM cloud_accounts WHERE org_id = $1 AND id = $2`+share, org, id).Scan(&found)
	switch {
	case errors.Is(err, db.ErrNoRows):
		if slices.ContainsFunc(s.fixed(org), func(f Account) bool { return f.ID == id }) {
			return nil
		}
		return fmt.Errorf("%w: %.80q", cloud.ErrNoAccount, id)
	case err != nil:
		return fmt.Errorf("cloud account %s: %w", id, err)
	}
	return nil
}

// Users are the IDs of what stands on an account, at most n of them: jobs that still
// stand for something and work in it, network jobs that peer through it, and spaces
// that no such job keeps, as those of clusters that were registered by hand.
func (s *Store) Users(ctx context.Context, q db.Q, a *Account, n int) ([]string, error) {
	ids, err := usersBy(ctx, q, a, `SELECT id FROM provisioning_jobs WHERE org_id = $1 AND cloud_account_id = $2 AND status <> 'cancelled' ORDER BY id LIMIT $3`, n)
	if err != nil {
		return nil, err
	}
	peers, err := peersThrough(ctx, q, a)
	if err != nil {
		return nil, err
	}
	spaces, err := usersBy(ctx, q, a, `SELECT id FROM spaces WHERE org_id = $1 AND cloud_account_id = $2 AND NOT EXISTS
		(SELECT 1 FROM provisioning_jobs j WHERE j.org_id = spaces.org_id AND j.id = spaces.job_id AND j.status <> 'cancelled') ORDER BY id LIMIT $3`, n)
	if err != nil {
		return nil, err
	}
	ids = append(append(ids, peers...), spaces...)
	return ids[:min(n, len(ids))], nil
}

func usersBy(ctx context.Context, q db.Q, a *Account, statement string, n int) ([]string, error) {
	rows, err := q.Query(ctx, statement, a.OrgID, a.ID, n)
	if err != nil {
		return nil, fmt.Errorf("users of cloud account %s: %w", a.Name, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("users of cloud account %s: %w", a.Name, err)
		}
		out = append(out, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("users of cloud account %s: %w", a.Name, err)
	}
	return out, nil
}

// peersThrough are the network jobs of other accounts whose peerings name this one.
func peersThrough(ctx context.Context, q db.Q, a *Account) ([]string, error) {
	rows, err := q.Query(ctx, `SELECT id, CAST(spec AS text) FROM provisioning_jobs WHERE org_id = $1 AND resource_type = 'network' AND status <> 'cancelled'
		AND cloud_account_id <> $2 AND CAST(spec AS text) LIKE '%"cloudAccountId"%' ORDER BY id`, a.OrgID, a.ID)
	if err != nil {
		return nil, fmt.Errorf("peerings through cloud account %s: %w", a.Name, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id, text string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, fmt.Errorf("peerings through cloud account %s: %w", a.Name, err)
		}
		var spec job.NetworkJobSpec
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			return nil, fmt.Errorf("spec of job %s: %w", id, err)
		}
		if slices.ContainsFunc(spec.Peerings, func(p job.Peering) bool { return p.CloudAccountID == a.ID || p.CloudAccountID == a.Name }) {
			out = append(out, id)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("peerings through cloud account %s: %w", a.Name, err)
	}
	return out, nil
}
