// Package accounts keeps the cloud accounts of organisations: whose credentials a
// job works with, how they are come by, and whom they were found to belong to.
// What of them is secret is in the secret store, under the account's ID.
package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// Default is the account that the process's own identity is.
const Default = "default"

// A Level says what an account's clients may do.
type Level string

// The levels.
const (
	ReadOnly  Level = "read_only"
	ReadWrite Level = "read_write"
)

// An Account is a cloud account as people see it.
type Account struct {
	ID             string         `json:"id"`
	OrgID          string         `json:"orgId"`
	TeamID         string         `json:"teamId,omitempty" doc:"Jobs of this team alone may use it; empty: all of the organisation's"`
	Name           string         `json:"name"`
	Provider       job.Provider   `json:"provider,omitempty" doc:"Empty for default: the process's own identity, at every cloud"`
	Method         cloud.Method   `json:"method,omitempty" doc:"How its credentials are come by"`
	Level          Level          `json:"permissionLevel" enum:"read_only,read_write" doc:"read_only: its clients cannot send a call that changes anything, so that jobs of mode adopt alone can use it"`
	Reach          *job.Reach     `json:"reach,omitempty" doc:"How the provisioner gets to private endpoints there; left out: the server's own setting"`
	Settings       cloud.Settings `json:"settings"`
	Holder         string         `json:"holder,omitempty" doc:"The AWS account, project or subscription that the credentials were found to belong to. Credentials of another one are refused"`
	VerifiedAt     *time.Time     `json:"verifiedAt,omitempty"`
	Verification   *Findings      `json:"verification,omitempty" doc:"What the last POST …/verify found"`
	Revision       int64          `json:"revision"`
	CreatedBy      string         `json:"createdBy,omitempty"`
	CreatedAt      *time.Time     `json:"createdAt,omitempty"`
	UpdatedAt      *time.Time     `json:"updatedAt,omitempty"`
	HasCredentials bool           `json:"hasCredentials" doc:"Something secret is stored for it"`
	Configured     bool           `json:"configured,omitempty" doc:"It comes with the server's own configuration, and cannot be changed here"`
	Limited        bool           `json:"limited,omitempty" doc:"You may have jobs made in it and not see more of it: team, name, cloud and permission level are all that is told; what the other fields say means nothing"`
}

// Findings are what a cloud said of an account's credentials.
type Findings struct {
	At          time.Time                `json:"at"`
	OK          bool                     `json:"ok" doc:"The credentials work, belong to the holder, and lack nothing that was asked for"`
	Identity    *cloud.CallerIdentity    `json:"identity,omitempty"`
	Permissions []cloud.PermissionReport `json:"permissions,omitempty"`
	Code        string                   `json:"code,omitempty" doc:"Why it is not ok: a stable word"`
	Message     string                   `json:"message,omitempty"`
	Hint        string                   `json:"hint,omitempty"`
}

// Secrets keeps what is secret; *secrets.Store does.
type Secrets interface {
	Put(ctx context.Context, q db.Q, org, id string, plaintext []byte) error
	Get(ctx context.Context, q db.Q, org, id string) ([]byte, error)
	Delete(ctx context.Context, q db.Q, org, id string) error
}

// Options of a Store.
type Options struct {
	Secrets Secrets // nil: the secret store is closed, and accounts with secrets cannot be made or used

	// Ambient says whether jobs of an organisation may work with the process's own
	// identity. One that may could reach whatever the operator can.
	Ambient func(org string) bool

	// Configured are further accounts of the server's own configuration, which
	// every organisation that Ambient names has.
	Configured []cloud.Account
}

// A Store keeps accounts in the database.
type Store struct {
	d *db.DB
	o Options
}

// New keeps accounts in a migrated database.
func New(d *db.DB, o Options) *Store {
	if o.Ambient == nil {
		o.Ambient = func(string) bool { return false }
	}
	return &Store{d: d, o: o}
}

var _ cloud.Accounts = (*Store)(nil)

// ErrNameTaken is a name that another account of the organisation has.
var ErrNameTaken = errors.New("another cloud account has the name")

// ErrNoSecrets is an account with a secret where the secret store is closed.
var ErrNoSecrets = errors.New("the secret store is closed: start the server with a key")

// Ambient reports whether an organisation's jobs may work with the process's own identity.
func (s *Store) Ambient(org string) bool { return s.o.Ambient(org) }

// Account is the account that a job names, with its secret. It implements
// cloud.Accounts.
func (s *Store) Account(ctx context.Context, org, id string, at job.Provider) (cloud.Account, error) {
	row, err := s.Get(ctx, s.d, org, id)
	switch {
	case err != nil:
		return cloud.Account{}, err
	case row.Provider != "" && row.Provider != at:
		return cloud.Account{}, fmt.Errorf("%w: %s is at %s, not at %s", cloud.ErrNoAccount, row.Name, row.Provider, at)
	}
	a := cloud.Account{
		ID: row.ID, OrgID: org, Name: row.Name, Provider: at, Method: row.Method, ReadOnly: row.Level == ReadOnly,
		Holder: row.Holder, Settings: row.Settings, Revision: row.Revision,
	}
	if row.Reach != nil {
		a.Reach = *row.Reach
	}
	if !row.HasCredentials {
		return a, nil
	}
	if s.o.Secrets == nil {
		return a, fmt.Errorf("cloud account %s: %w", row.Name, ErrNoSecrets)
	}
	text, err := s.o.Secrets.Get(ctx, s.d, org, row.ID)
	if err != nil {
		return a, fmt.Errorf("cloud account %s: %w", row.Name, err)
	}
	if err := json.Unmarshal(text, &a.Secret); err != nil {
		return a, fmt.Errorf("cloud account %s: its credentials cannot be read", row.Name) // never the text
	}
	return a, nil
}

// fixed are the accounts of the server's own configuration, if the organisation has them.
func (s *Store) fixed(org string) []Account {
	if !s.o.Ambient(org) {
		return nil
	}
	out := []Account{{ID: Default, OrgID: org, Name: Default, Method: cloud.MethodAmbient, Level: ReadWrite, Configured: true}}
	for _, a := range s.o.Configured {
		level := ReadWrite
		if a.ReadOnly {
			level = ReadOnly
		}
		out = append(out, Account{ID: a.ID, OrgID: org, Name: a.Name, Provider: a.Provider, Method: a.Method, Level: level, Settings: a.Settings, Configured: true})
	}
	return out
}

const columns = `id, org_id, team_id, name, provider, method, permission_level, reach, egress, settings, holder, verified_at, verification, revision, created_by, created_at, updated_at,
	EXISTS (SELECT 1 FROM secrets s WHERE s.org_id = cloud_accounts.org_id AND s.id = cloud_accounts.id)`

func scan(row db.Row) (Account, error) {
	var (
		a                              Account
		provider, method, level, reach string
		egress, settings               string
		verification                   *string
		verified                       *int64
		created, updated               int64
	)
	err := row.Scan(&a.ID, &a.OrgID, &a.TeamID, &a.Name, &provider, &method, &level, &reach, &egress, &settings, &a.Holder,
		&verified, &verification, &a.Revision, &a.CreatedBy, &created, &updated, &a.HasCredentials)
	if err != nil {
		return a, err
	}
	a.Provider, a.Method, a.Level = job.Provider(provider), cloud.Method(method), Level(level)
	a.CreatedAt, a.UpdatedAt, a.VerifiedAt = at(&created), at(&updated), at(verified)
	err = json.Unmarshal([]byte(settings), &a.Settings)
	if err == nil && reach != "" {
		a.Reach = &job.Reach{Mode: job.ReachMode(reach)}
		err = json.Unmarshal([]byte(egress), &a.Reach.EgressCIDRs)
	}
	if err == nil && verification != nil {
		err = json.Unmarshal([]byte(*verification), &a.Verification)
	}
	if err != nil {
		return a, fmt.Errorf("cloud account %s: %w", a.ID, err)
	}
	return a, nil
}

func at(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := time.UnixMicro(*us).UTC()
	return &t
}

// List lists an organisation's accounts by name, those of the server's own
// configuration first.
func (s *Store) List(ctx context.Context, org string) ([]Account, error) {
	rows, err := s.d.Query(ctx, `SELECT `+columns+` FROM cloud_accounts WHERE org_id = $1 ORDER BY name`, org)
	if err != nil {
		return nil, fmt.Errorf("cloud accounts: %w", err)
	}
	defer rows.Close()
	var own []Account
	for rows.Next() {
		a, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("cloud accounts: %w", err)
		}
		own = append(own, a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cloud accounts: %w", err)
	}
	fixed := slices.DeleteFunc(s.fixed(org), func(f Account) bool {
		return slices.ContainsFunc(own, func(a Account) bool { return a.Name == f.Name })
	})
	return append(fixed, own...), nil
}

// Get reads one of an organisation's accounts, by its ID or its name; the error
// is cloud.ErrNoAccount if there is none.
func (s *Store) Get(ctx context.Context, q db.Q, org, ref string) (*Account, error) {
	a, err := scan(q.QueryRow(ctx, `SELECT `+columns+` FROM cloud_accounts WHERE org_id = $1 AND (id = $2 OR name = $2)`, org, ref))
	if errors.Is(err, db.ErrNoRows) {
		for _, f := range s.fixed(org) {
			if f.ID == ref || f.Name == ref {
				return &f, nil
			}
		}
		return nil, fmt.Errorf("%w: %.80q", cloud.ErrNoAccount, ref)
	}
	if err != nil {
		return nil, fmt.Errorf("cloud account: %w", err)
	}
	return &a, nil
}

// Insert saves a new account in the caller's transaction.
func (s *Store) Insert(ctx context.Context, tx db.Q, a *Account, secret cloud.Secret) error {
	settings, reach, egress, err := documents(a)
	if err != nil {
		return err
	}
	now := "(SELECT " + db.Now(tx.Dialect()) + ")"
	n, err := tx.Exec(ctx, `INSERT INTO cloud_accounts (id, org_id, team_id, name, provider, method, permission_level, reach, egress, settings, revision, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1, $11, `+now+`, `+now+`) ON CONFLICT DO NOTHING`,
		a.ID, a.OrgID, a.TeamID, a.Name, string(a.Provider), string(a.Method), string(a.Level), reach, egress, settings, a.CreatedBy)
	if err != nil {
		return fmt.Errorf("cloud account %s: %w", a.Name, err)
	}
	if n == 0 {
		return ErrNameTaken
	}
	return s.putSecret(ctx, tx, a, secret)
}

// Update writes a changed account in the caller's transaction; secret replaces
// what is stored unless it is nil. Clients of the old one are not used any more.
func (s *Store) Update(ctx context.Context, tx db.Q, a *Account, secret *cloud.Secret) error {
	settings, reach, egress, err := documents(a)
	if err != nil {
		return err
	}
	now := "(SELECT " + db.Now(tx.Dialect()) + ")"
	n, err := tx.Exec(ctx, `UPDATE cloud_accounts SET name = $3, method = $4, permission_level = $5, reach = $6, egress = $7, settings = $8, holder = $9,
		revision = revision + 1, updated_at = `+now+` WHERE org_id = $1 AND id = $2 AND revision = $10`,
		a.OrgID, a.ID, a.Name, string(a.Method), string(a.Level), reach, egress, settings, a.Holder, a.Revision)
	switch {
	case db.Unique(err):
		return ErrNameTaken
	case err != nil:
		return fmt.Errorf("cloud account %s: %w", a.Name, err)
	case n == 0:
		return ErrChanged
	}
	a.Revision++
	if secret == nil {
		return nil
	}
	return s.putSecret(ctx, tx, a, *secret)
}

// ErrChanged is a write that came too late.
var ErrChanged = errors.New("the cloud account was changed at the same moment")

// Record saves what a verification of a revision found, and whose the credentials are.
func (s *Store) Record(ctx context.Context, tx db.Q, a *Account, v Findings, holder string) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cloud account %s: %w", a.Name, err)
	}
	now := "(SELECT " + db.Now(tx.Dialect()) + ")"
	_, err = tx.Exec(ctx, `UPDATE cloud_accounts SET verification = $4, verified_at = `+now+`, holder = CASE WHEN holder = '' THEN $5 ELSE holder END,
		revision = revision + CASE WHEN holder = '' AND $5 <> '' THEN 1 ELSE 0 END
		WHERE org_id = $1 AND id = $2 AND revision = $3`, a.OrgID, a.ID, a.Revision, string(text), holder)
	if err != nil {
		return fmt.Errorf("cloud account %s: %w", a.Name, err)
	}
	return nil
}

// Delete removes an account and its secret.
func (s *Store) Delete(ctx context.Context, tx db.Q, a *Account) error {
	if _, err := tx.Exec(ctx, `DELETE FROM cloud_accounts WHERE org_id = $1 AND id = $2`, a.OrgID, a.ID); err != nil {
		return fmt.Errorf("cloud account %s: %w", a.Name, err)
	}
	if !a.HasCredentials || s.o.Secrets == nil {
		return nil
	}
	return s.o.Secrets.Delete(ctx, tx, a.OrgID, a.ID)
}

func (s *Store) putSecret(ctx context.Context, tx db.Q, a *Account, secret cloud.Secret) error {
	if secret == (cloud.Secret{}) {
		if a.HasCredentials && s.o.Secrets != nil {
			a.HasCredentials = false
			return s.o.Secrets.Delete(ctx, tx, a.OrgID, a.ID)
		}
		return nil
	}
	if s.o.Secrets == nil {
		return ErrNoSecrets
	}
	text, err := json.Marshal(secret) //nolint:gosec // the text goes to the secret store, which encrypts it
	if err != nil {
		return fmt.Errorf("cloud account %s: credentials: %w", a.Name, err)
	}
	a.HasCredentials = true
	return s.o.Secrets.Put(ctx, tx, a.OrgID, a.ID, text)
}

func documents(a *Account) (settings, reach, egress string, err error) {
	one, err := json.Marshal(a.Settings)
	if err != nil {
		return "", "", "", fmt.Errorf("cloud account %s: settings: %w", a.Name, err)
	}
	ranges := []string{}
	if a.Reach != nil {
		reach = string(a.Reach.Mode)
		ranges = append(ranges, a.Reach.EgressCIDRs...)
	}
	two, err := json.Marshal(ranges)
	if err != nil {
		return "", "", "", fmt.Errorf("cloud account %s: egress: %w", a.Name, err)
	}
	return string(one), reach, string(two), nil
}
