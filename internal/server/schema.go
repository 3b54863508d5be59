package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/zopday/provisioner/internal/db"
)

// The ways in which a process goes about the schema of its database.
const (
	MigrateAuto  = "auto"  // brings it up to date where its role owns the tables
	MigrateNever = "false" // leaves that to zopday migrate
)

// prepareSchema makes sure that the database is what this program needs. A role
// that owns the tables brings the schema up to date, unless mode is MigrateNever,
// and is told once how to do better; a service role only looks.
func prepareSchema(ctx context.Context, d *db.DB, mode string, log *slog.Logger) error {
	r, err := d.Rights(ctx)
	if err != nil {
		return err
	}
	if mode != MigrateNever && r.MayMigrate() {
		if err := d.Migrate(ctx); err != nil {
			return err
		}
		if r, err = d.Rights(ctx); err != nil {
			return err
		}
	}
	if err := d.Current(ctx); err != nil {
		return oldSchema(err, d.Dialect(), r.Role)
	}
	if d.Dialect() != db.Postgres {
		return nil
	}
	if len(r.Unprotected) > 0 {
		return fmt.Errorf("row-level security is off for %s, so nothing in the database keeps organisations apart; run zopday migrate --db with the DSN of the tables' owner, which puts it on",
			strings.Join(r.Unprotected, ", "))
	}
	if why := r.Loose(); len(why) > 0 {
		log.WarnContext(ctx, "this process connects to the database as a role that could take row-level security off or pass over it: "+strings.Join(why, ", ")+
			"; make a role of its own for it, give it its rights with zopday migrate --service-role, and connect as that (docs/postgresql.md)", "role", r.Role)
	}
	return nil
}

// oldSchema says what to do about a schema that this process cannot work with.
func oldSchema(err error, d db.Dialect, role string) error {
	switch {
	case d != db.Postgres && errors.Is(err, db.ErrNotCurrent):
		return fmt.Errorf("%w: run zopday migrate with the same --db", err)
	case errors.Is(err, db.ErrNoRights):
		return fmt.Errorf("%w: run zopday migrate --db with the DSN of the tables' owner, and --service-role %s", err, role)
	case errors.Is(err, db.ErrNotCurrent):
		return fmt.Errorf("%w: run zopday migrate --db with the DSN of the tables' owner (and --service-role %s, if that has never been done)", err, role)
	}
	return err
}
