package provision

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/secrets"
)

// ErrNoKey is a secret store that is closed, because no key was given.
var ErrNoKey = errors.New("the secret store is closed")

// SecretsStatus is how the secrets of the installation are kept.
type SecretsStatus = secrets.Status

// A Rotation is what a rotation of the secrets' key did.
type Rotation = secrets.Rotation

// A Keeper has the installation's keys and its database.
type Keeper interface {
	Rotate(ctx context.Context) (Rotation, error)
	Status(ctx context.Context) (SecretsStatus, error)
	// Backup is a copy of the database as it is at this moment, and its size; the
	// error is db.ErrNoCopy where the database has tools of its own for that.
	Backup(ctx context.Context) (io.ReadCloser, int64, error)
}

// operator is the caller of something that concerns the whole installation: an admin
// of the whole of its first organisation, who holds all that there is to hold there. A
// team's admin, and admins of other organisations, have a right to what is theirs alone.
func (s *Service) operator(ctx context.Context, what string) error {
	p, err := access.Require(ctx, access.TokenManage)
	if err == nil && (p.OrgID != access.DefaultOrg || !holdsAll(p)) {
		err = refuse(Forbidden, "Ask whoever runs this installation.", "this concerns every organisation of the installation, and is for whoever has the role Admin over the whole of the organisation %s", access.DefaultOrg)
	}
	if err == nil && s.Keeper == nil {
		err = refuse(NothingProvisioning, "Use the server's own command line.", "this server does not do this")
	}
	if err != nil {
		return s.refused(ctx, access.TokenManage, what, err)
	}
	return nil
}

// holdsAll reports whether a principal holds every policy over its whole organisation.
func holdsAll(p access.Principal) bool {
	return !slices.ContainsFunc(access.Policies(), func(policy access.Policy) bool { return !p.Over(policy).All })
}

// keep notes an act on the whole installation in the audit log, and carries it out:
// it spans many transactions, so what it was asked stands there even if it is cut off.
func (s *Service) keep(ctx context.Context, action string, act func(context.Context) error) error {
	if err := s.operator(ctx, action); err != nil {
		return err
	}
	err := s.mutate(ctx, access.TokenManage, "", func(context.Context, db.Q, access.Principal) (audit.Entry, error) {
		return audit.Entry{Action: action, ResourceType: "installation"}, nil
	})
	if err != nil {
		return err
	}
	if err := act(ctx); err != nil {
		return s.refused(ctx, access.TokenManage, action, keptBack(err))
	}
	return nil
}

func keptBack(err error) error {
	switch {
	case errors.Is(err, ErrNoKey):
		return &Refusal{Kind: WrongState, Message: "the secret store is closed: this server was started without a key", Hint: "Start it with " + secrets.EnvKey + " or --secret-key.", Cause: err}
	case errors.Is(err, db.ErrNoCopy):
		return &Refusal{Kind: WrongState, Message: "this server's database is PostgreSQL, which is backed up with pg_dump", Hint: "docs/backup.md has the commands.", Cause: err}
	}
	return err
}

// RotateSecrets makes a new data key and writes every secret of the installation
// anew with it.
func (s *Service) RotateSecrets(ctx context.Context) (out Rotation, err error) {
	err = s.keep(ctx, "secrets:rotate", func(ctx context.Context) error {
		var err error
		out, err = s.Keeper.Rotate(ctx)
		return err
	})
	return out, err
}

// SecretsStatus says how the secrets of the installation are kept.
func (s *Service) SecretsStatus(ctx context.Context) (SecretsStatus, error) {
	if err := s.operator(ctx, "secrets:view"); err != nil {
		return SecretsStatus{}, err
	}
	return s.Keeper.Status(ctx)
}

// Backup is a copy of the whole database, which the caller closes.
func (s *Service) Backup(ctx context.Context) (r io.ReadCloser, size int64, err error) {
	err = s.keep(ctx, "backup:create", func(ctx context.Context) error {
		var err error
		r, size, err = s.Keeper.Backup(ctx)
		return err
	})
	return r, size, err
}
