package db

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations
var migrations embed.FS

// ErrNotCurrent is a database whose schema is older than the program needs.
var ErrNotCurrent = errors.New("the database's schema is older than this program needs; its migrations have to run")

// gooseOnce guards the creation of providers: goose keeps some state global.
var gooseOnce sync.Mutex

func (d *DB) provider(opts ...goose.ProviderOption) (*goose.Provider, error) {
	gooseOnce.Lock()
	defer gooseOnce.Unlock()
	dialect, dir := goose.DialectSQLite3, "migrations/sqlite"
	if d.dialect == Postgres {
		dialect, dir = goose.DialectPostgres, "migrations/postgres"
	}
	sub, err := fs.Sub(migrations, dir)
	if err != nil {
		return nil, err
	}
	opts = append(opts, goose.WithTableName("schema_migrations"), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	return goose.NewProvider(dialect, d.b.std(), sub, opts...)
}

// Migrate brings the schema up to what this program needs, and puts row-level
// security on every table on PostgreSQL. Of several processes that start at once,
// one does it and the others wait. On PostgreSQL it takes the tables' owner, unless
// there is nothing to do.
func (d *DB) Migrate(ctx context.Context) error {
	var opts []goose.ProviderOption
	if d.dialect == Postgres {
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
		if err != nil {
			return fmt.Errorf("migrations: %w", err)
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	p, err := d.provider(opts...)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	ctx = System(ctx)
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if err := d.protect(ctx); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return nil
}

// Current reports whether the database answers and its schema is what this
// program needs, or newer. It only reads.
func (d *DB) Current(ctx context.Context) error {
	p, err := d.provider()
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	sources := p.ListSources()
	want := sources[len(sources)-1].Version
	var have int64
	if err := d.Ping(ctx); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	err = d.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM schema_migrations WHERE is_applied`).Scan(&have)
	if err != nil {
		if Transient(err) {
			return fmt.Errorf("database: %w", err)
		}
		switch {
		case notGranted(err):
			return ErrNoRights
		case noTable(err):
			return fmt.Errorf("%w (it has none of its tables yet)", ErrNotCurrent)
		}
		return fmt.Errorf("%w: %w", ErrNotCurrent, err)
	}
	if have < want {
		return fmt.Errorf("%w (it is at %d of %d)", ErrNotCurrent, have, want)
	}
	return nil
}

// Version is the number of the schema's newest migration.
func (d *DB) Version(ctx context.Context) (int64, error) {
	var v int64
	if err := d.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM schema_migrations WHERE is_applied`).Scan(&v); err != nil {
		return 0, fmt.Errorf("schema: %w", err)
	}
	return v, nil
}
