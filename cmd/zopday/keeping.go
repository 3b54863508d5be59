package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/zopday/provisioner/internal/cli"
	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/server"
)

// keepingOn opens a database that exists, and closes it after fn.
func keepingOn(ctx context.Context, dsn string, fn func(context.Context, *db.DB) error) error {
	d, err := openExisting(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(fn(db.System(ctx), d), d.Close())
}

// openExisting opens a database that exists: opening an SQLite file that does not
// would make an empty one, about which everything is well.
func openExisting(ctx context.Context, dsn string) (*db.DB, error) {
	if !db.IsPostgres(dsn) {
		path := strings.TrimPrefix(dsn, "sqlite:")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no database %s: say with --db where it is: %w", path, fs.ErrNotExist)
		} else if err != nil {
			return nil, fmt.Errorf("database: %w", err)
		}
	}
	return db.Open(ctx, dsn)
}

func secretsStatus(ctx context.Context, dsn string) (out client.SecretsStatus, err error) {
	err = keepingOn(ctx, dsn, func(ctx context.Context, d *db.DB) error {
		st, err := secrets.StatusOf(ctx, d)
		out = client.SecretsStatus(st)
		return err
	})
	return out, err
}

func rotateSecrets(ctx context.Context, dsn, key string) (out client.Rotation, err error) {
	err = keepingOn(ctx, dsn, func(ctx context.Context, d *db.DB) error {
		s, err := secrets.Open(ctx, d, server.KeySource(dsn, key))
		if err != nil {
			return err
		}
		if err := server.NoteKeeping(ctx, d, "secrets:rotate"); err != nil {
			return err
		}
		r, err := s.Rotate(ctx, d)
		out = client.Rotation(r)
		return err
	})
	return out, err
}

func rekeySecrets(ctx context.Context, dsn, key, newKey string) (out client.SecretsStatus, err error) {
	err = keepingOn(ctx, dsn, func(ctx context.Context, d *db.DB) error {
		s, err := secrets.Open(ctx, d, server.KeySource(dsn, key))
		if err != nil {
			return err
		}
		to := server.GivenKey(newKey)
		to.Name = "--new-key"
		if err := server.NoteKeeping(ctx, d, "secrets:rekey"); err != nil {
			return err
		}
		if _, err := s.Rekey(ctx, d, to); err != nil {
			return err
		}
		st, err := secrets.StatusOf(ctx, d)
		out = client.SecretsStatus(st)
		return err
	})
	return out, err
}

func restore(ctx context.Context, o cli.RestoreOptions) (cli.Restored, error) {
	r, err := server.Restore(ctx, server.RestoreOptions{In: o.In, DB: o.DB, Key: server.KeySource(o.DB, o.SecretKey), NoKey: o.NoKey})
	return cli.Restored(r), err
}
