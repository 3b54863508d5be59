package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // registers the driver
)

// sqliteDB is one file: one connection that writes, several that read.
type sqliteDB struct {
	w, r *prepared
	lock io.Closer
}

const sqliteReaders = 4

func openSQLite(ctx context.Context, path string) (_ *sqliteDB, err error) {
	if path == "" {
		return nil, errors.New("database: the path is empty")
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	s := &sqliteDB{lock: lock}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// The file holds what everybody made in the clouds: for its owner only.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	f.Close()

	pragmas := "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"
	uri := "file://" + (&url.URL{Path: slashed(path)}).EscapedPath() + "?" + pragmas
	// A transaction that reads and then writes has to hold the write lock from
	// its start: WAL does not let a reader upgrade over somebody else's commit.
	w, err := sql.Open("sqlite", uri+"&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	s.w = newPrepared(w)
	s.w.SetMaxOpenConns(1)
	r, err := sql.Open("sqlite", uri+"&_query_only=1")
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	s.r = newPrepared(r)
	s.r.SetMaxOpenConns(sqliteReaders)
	s.r.SetMaxIdleConns(sqliteReaders)
	if err := s.w.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	return s, nil
}

// slashed is a path as a file URL wants it, also where paths start with a drive.
func slashed(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path
}

func (s *sqliteDB) reader() Q    { return splitQ{w: stdQ{outside{s.w}, SQLite}, r: stdQ{s.r, SQLite}} }
func (s *sqliteDB) writer() Q    { return stdQ{outside{s.w}, SQLite} }
func (s *sqliteDB) std() *sql.DB { return s.w.DB }

func (s *sqliteDB) ping(ctx context.Context) error { return s.r.PingContext(ctx) }

func (s *sqliteDB) inTx(ctx context.Context, fn func(ctx context.Context, tx Q) error) error {
	if within(ctx) {
		return errNested
	}
	tx, err := s.w.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // a no-op after Commit
	run := &preparedTx{Tx: tx, p: s.w, fresh: map[string]bool{}}
	if err := fn(context.WithValue(ctx, inTxKey{}, true), stdQ{run, SQLite}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	run.learn(ctx)
	return nil
}

func (s *sqliteDB) close() error {
	var errs []error
	if s.r != nil {
		errs = append(errs, s.r.Close())
	}
	if s.w != nil {
		errs = append(errs, s.w.Close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// There is one connection that writes. A transaction's function that asks for it
// once more, instead of using the Q that it was given, would wait for itself.
var errNested = errors.New("a write beside the transaction that is under way: use the transaction's own Q")

type inTxKey struct{}

func within(ctx context.Context) bool { return ctx.Value(inTxKey{}) != nil }

// outside is the writer for whoever is not within a transaction.
type outside struct{ *prepared }

func (o outside) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if within(ctx) {
		return nil, errNested
	}
	return o.prepared.ExecContext(ctx, query, args...)
}

func (o outside) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if within(ctx) {
		return nil, errNested
	}
	return o.prepared.QueryContext(ctx, query, args...)
}

func (o outside) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if within(ctx) {
		// A Row's error cannot be set from outside: an ended context does it.
		ended, cancel := context.WithCancelCause(ctx)
		cancel(errNested)
		ctx = ended
	}
	return o.prepared.QueryRowContext(ctx, query, args...)
}

// runner is what the database and a transaction have in common.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// stdQ is a Q over database/sql.
type stdQ struct {
	run     runner
	dialect Dialect
}

func (q stdQ) Dialect() Dialect { return q.dialect }

func (q stdQ) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := q.run.ExecContext(ctx, query, cleaned(args)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (q stdQ) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := q.run.QueryContext(ctx, query, cleaned(args)...) //nolint:rowserrcheck // whoever reads them does
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (q stdQ) QueryRow(ctx context.Context, query string, args ...any) Row {
	return q.run.QueryRowContext(ctx, query, cleaned(args)...)
}

// splitQ sends statements to the writer and queries to the readers.
type splitQ struct{ w, r stdQ }

func (q splitQ) Dialect() Dialect { return SQLite }

func (q splitQ) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return q.w.Exec(ctx, query, args...)
}

func (q splitQ) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	return q.r.Query(ctx, query, args...)
}

func (q splitQ) QueryRow(ctx context.Context, query string, args ...any) Row {
	return q.r.QueryRow(ctx, query, args...)
}
