// Package db opens the one database of the provisioner, SQLite or PostgreSQL,
// behind one small interface, so that the ledger, the audit log and the secrets
// are written in one transaction by one SQL text.
//
// Times are BIGINT columns with microseconds since the epoch, taken from the
// database's own clock (see [DB.Now]): the wall clocks of workers never meet.
// Placeholders are $1, $2, … in both dialects.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Dialect says which database is spoken to.
type Dialect string

// The dialects.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
)

// ErrNoRows is what Row.Scan returns when the query found nothing.
var ErrNoRows = sql.ErrNoRows

// Q runs SQL: the database itself, or a transaction on it.
type Q interface {
	// Exec runs a statement and says how many rows it touched.
	Exec(ctx context.Context, sql string, args ...any) (int64, error)
	Query(ctx context.Context, sql string, args ...any) (Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) Row
	Dialect() Dialect
}

// Rows are the rows of a query; they have to be closed.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Row is the first row of a query; Scan returns ErrNoRows if there is none.
type Row interface {
	Scan(dest ...any) error
}

// backend is what differs between the two databases.
type backend interface {
	inTx(ctx context.Context, fn func(ctx context.Context, tx Q) error) error
	reader() Q
	writer() Q
	std() *sql.DB // for migrations
	ping(ctx context.Context) error
	close() error
}

// A DB is an open database. It is a Q itself; on SQLite its Query and QueryRow
// go to connections that can only read, so a statement that writes and returns
// rows runs in InTx or on Writer.
type DB struct {
	Q
	dialect Dialect
	b       backend
}

// Open opens the database that the DSN names: a postgres:// URL (several hosts
// allowed), or the path of an SQLite file, which is created when it is missing
// and belongs to this process until Close.
func Open(ctx context.Context, dsn string) (*DB, error) {
	var (
		d   Dialect
		b   backend
		err error
	)
	if IsPostgres(dsn) {
		d = Postgres
		b, err = openPostgres(ctx, dsn)
	} else {
		d = SQLite
		b, err = openSQLite(ctx, strings.TrimPrefix(dsn, "sqlite:"))
	}
	if err != nil {
		return nil, err
	}
	return &DB{Q: b.reader(), dialect: d, b: b}, nil
}

// IsPostgres reports whether a DSN names a PostgreSQL server.
func IsPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// Dialect says which database this is.
func (d *DB) Dialect() Dialect { return d.dialect }

// Writer is a Q outside of any transaction that may write and return rows in
// one statement.
func (d *DB) Writer() Q { return d.b.writer() }

// InTx runs fn in one transaction, which commits when fn returns nil and rolls
// back otherwise. fn must use the Q it is given, and must not call a cloud: no
// transaction spans one.
func (d *DB) InTx(ctx context.Context, fn func(ctx context.Context, tx Q) error) error {
	return d.b.inTx(ctx, fn)
}

// Ping asks whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.b.ping(ctx) }

// Close closes the database, and gives an SQLite file free.
func (d *DB) Close() error { return d.b.close() }

// Now is the SQL expression for the database's clock in microseconds since the
// epoch.
func (d *DB) Now() string { return Now(d.dialect) }

// Now is the SQL expression for the clock of a dialect. It is meant to stand in
// a sub-select, (SELECT …), where a statement compares it with an indexed
// column: PostgreSQL uses no index for a function that changes from row to row.
func Now(d Dialect) string {
	if d == Postgres {
		return "(extract(epoch from clock_timestamp())*1000000)::bigint"
	}
	return "CAST(unixepoch('subsec')*1000000 AS INTEGER)"
}

// ForUpdate is the clause that locks the rows a SELECT returns. SQLite has one
// writer at a time and needs none.
func ForUpdate(d Dialect) string {
	if d == Postgres {
		return " FOR NO KEY UPDATE"
	}
	return ""
}

// Clean is a text as both databases store it: PostgreSQL takes neither NUL nor
// what is not UTF-8, and a cloud's error message or a caller's header may hold
// either. What cannot be stored becomes U+FFFD. Arguments that are strings are
// cleaned on their way to the database.
func Clean(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// cleaned cleans the strings among the arguments of a statement.
func cleaned(args []any) []any {
	var out []any
	for i, a := range args {
		text, ok := a.(string)
		if p, isPtr := a.(*string); isPtr && p != nil {
			text, ok = *p, true
		}
		if !ok {
			continue
		}
		if c := Clean(text); c != text {
			if out == nil {
				out = slices.Clone(args)
			}
			out[i] = c
		}
	}
	if out == nil {
		return args
	}
	return out
}

// Setting reads one of the installation's settings; ok is false if it was never
// written.
func Setting(ctx context.Context, q Q, key string) (value string, ok bool, err error) {
	err = q.QueryRow(ctx, `SELECT value FROM settings WHERE org_id = '' AND key = $1`, key).Scan(&value)
	if errors.Is(err, ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("setting %s: %w", key, err)
	}
	return value, true, nil
}

// PutSetting writes one of the installation's settings.
func PutSetting(ctx context.Context, q Q, key, value string) error {
	_, err := q.Exec(ctx, `INSERT INTO settings (org_id, key, value, updated_at) VALUES ('', $1, $2, `+Now(q.Dialect())+`)
		ON CONFLICT (org_id, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`, key, value)
	if err != nil {
		return fmt.Errorf("setting %s: %w", key, err)
	}
	return nil
}

// PutSettingOnce writes a setting unless it is there already, and returns the
// value that stands, so that of two processes that start at once both see one.
func PutSettingOnce(ctx context.Context, q Q, key, value string) (string, error) {
	_, err := q.Exec(ctx, `INSERT INTO settings (org_id, key, value, updated_at) VALUES ('', $1, $2, `+Now(q.Dialect())+`)
		ON CONFLICT (org_id, key) DO NOTHING`, key, value)
	if err != nil {
		return "", fmt.Errorf("setting %s: %w", key, err)
	}
	got, _, err := Setting(ctx, q, key)
	return got, err
}
