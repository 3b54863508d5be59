package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// ErrNoCopy is a database that is not copied by us: PostgreSQL has its own tools.
var ErrNoCopy = errors.New("a PostgreSQL database is backed up with pg_dump, see docs/backup.md")

// Copy writes the database, as it is at one moment, to a file that must not exist,
// for its owner only. Readers and writers go on meanwhile. Of PostgreSQL it is
// [ErrNoCopy].
func (d *DB) Copy(ctx context.Context, path string) (err error) {
	if d.dialect != SQLite {
		return ErrNoCopy
	}
	var from string
	if err := d.QueryRow(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&from); err != nil {
		return fmt.Errorf("copy of the database: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("copy of the database: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	defer f.Close()
	// A connection of its own: it holds up no writer, and those of the pool are for
	// statements that end soon.
	c, err := sql.Open("sqlite", "file://"+(&url.URL{Path: slashed(from)}).EscapedPath()+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return fmt.Errorf("copy of the database: %w", err)
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, `VACUUM INTO ?`, path); err != nil {
		return fmt.Errorf("copy of the database: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("copy of the database: %w", err)
	}
	return nil
}

// Whole asks SQLite whether the file is what SQLite wrote. On PostgreSQL it says yes.
func (d *DB) Whole(ctx context.Context) error {
	if d.dialect != SQLite {
		return nil
	}
	found, err := texts(ctx, d, `SELECT integrity_check FROM pragma_integrity_check LIMIT 5`)
	if err != nil {
		return fmt.Errorf("integrity of the database: %w", err)
	}
	if len(found) != 1 || found[0] != "ok" {
		return fmt.Errorf("integrity of the database: the file is damaged: %q", found)
	}
	return nil
}

// Schema is the version of the database's schema, and the one that this program
// knows. A database without a schema is at 0.
func (d *DB) Schema(ctx context.Context) (have, known int64, err error) {
	p, err := d.provider()
	if err != nil {
		return 0, 0, fmt.Errorf("migrations: %w", err)
	}
	sources := p.ListSources()
	known = sources[len(sources)-1].Version
	err = d.QueryRow(System(ctx), `SELECT coalesce(max(version_id), 0) FROM schema_migrations WHERE is_applied`).Scan(&have)
	if err != nil {
		return 0, known, fmt.Errorf("the file has no schema of ours: %w", err)
	}
	return have, known, nil
}
