package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/cli"
	"github.com/zopday/provisioner/internal/db"
)

// operator is whoever works on the database itself, as the audit log writes it.
const operator = "system:operator"

// onDatabase does something on the database itself, whose schema has to be that of
// this program already, unless it is an SQLite file.
func onDatabase(ctx context.Context, dsn string, do func(*db.DB) error) (err error) {
	d, err := openExisting(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	ctx = db.System(ctx)
	if d.Dialect() == db.SQLite {
		err = d.Migrate(ctx)
	} else if err = d.Current(ctx); errors.Is(err, db.ErrNotCurrent) {
		err = fmt.Errorf("%w: run zopday migrate, or start the server once", err)
	}
	if err != nil {
		return err
	}
	return do(d)
}

func createOrg(ctx context.Context, dsn, name string) (o cli.Org, secret string, err error) {
	err = onDatabase(ctx, dsn, func(d *db.DB) error {
		made, text, err := access.CreateOrg(ctx, d, name, operator)
		o, secret = cli.Org{ID: made.ID, Name: made.Name, CreatedAt: made.CreatedAt}, text
		return err
	})
	return o, secret, err
}

func listOrgs(ctx context.Context, dsn string) (out []cli.Org, err error) {
	err = onDatabase(ctx, dsn, func(d *db.DB) error {
		all, err := access.ListOrgs(ctx, d)
		for _, o := range all {
			out = append(out, cli.Org{ID: o.ID, Name: o.Name, CreatedAt: o.CreatedAt})
		}
		return err
	})
	return out, err
}

func recoverToken(ctx context.Context, dsn, org string) (name, secret string, err error) {
	err = onDatabase(ctx, dsn, func(d *db.DB) error {
		t, text, err := access.Recover(ctx, d, org, operator)
		name, secret = t.Name, text
		return err
	})
	return name, secret, err
}
