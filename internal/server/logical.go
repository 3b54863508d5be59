package server

import (
	"context"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/databases"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/steps"
)

// openSQL opens the way to a datastore's logical databases.
func openSQL(ctx context.Context, access cloud.SQLAccess) (steps.SQLServer, error) {
	s, err := databases.Open(ctx, access)
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return s, nil
}

// logical keeps the rows of logical databases and connections in the ledger, and
// what they authenticate with in the secret store.
type logical struct {
	ledger  *ledger.Ledger
	db      *db.DB
	secrets *secrets.Store // nil: it is closed, and nothing can be kept
}

// errClosed is what is said of a secret while the store is closed.
func errClosed() error {
	return pipeline.Fatal("no-secret-store", "the secret store of this server is closed, and a password has to be kept before a role gets it",
		"Start every process with the key of its database (ZOPDAY_SECRET_KEY), then ask for it again.")
}

func (l logical) Rows(ctx context.Context, org, jobID string) ([]job.LogicalDatabase, []job.Connection, error) {
	databases, err := l.ledger.Databases(ctx, org, jobID)
	if err != nil {
		return nil, nil, err
	}
	connections, err := l.ledger.Connections(ctx, org, jobID)
	return databases, connections, err
}

func (l logical) Password(ctx context.Context, org, id string) (string, error) {
	if l.secrets == nil {
		return "", errClosed()
	}
	got, err := l.secrets.Once(ctx, l.db, org, id, []byte(job.NewPassword()))
	return string(got), err
}

func (l logical) Keep(ctx context.Context, org, id, secret string) error {
	if l.secrets == nil {
		return errClosed()
	}
	return l.db.InTx(ctx, func(ctx context.Context, tx db.Q) error { return l.secrets.Put(ctx, tx, org, id, []byte(secret)) })
}

func (l logical) Forget(ctx context.Context, org, id string) error {
	return l.db.InTx(ctx, func(ctx context.Context, tx db.Q) error { return secrets.Remove(ctx, tx, org, id) })
}

func (l logical) Secret(ctx context.Context, org, id string) (string, error) {
	got, err := l.secrets.Get(ctx, l.db, org, id)
	return string(got), err
}
