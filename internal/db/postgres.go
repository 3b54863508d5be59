package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// pgDB is a pool of connections to the server that can write.
type pgDB struct {
	pool      *pgxpool.Pool
	sqlDB     *sql.DB
	lastReset atomic.Int64 // monotonic nanoseconds since start
	start     time.Time
}

func openPostgres(ctx context.Context, dsn string) (*pgDB, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err) // pgx leaves the password out of it
	}
	c := cfg.ConnConfig
	// After a failover the old primary may come back read-only. A connection to
	// it is of no use, so each new one is asked whether it can write, and with
	// several hosts the next host is tried.
	if c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	c.DialFunc = dialer(c.ConnectTimeout).DialContext
	if _, set := c.RuntimeParams["application_name"]; !set {
		c.RuntimeParams["application_name"] = "zopday"
	}
	// A session that hangs in a transaction would hold its row locks for ever.
	if _, set := c.RuntimeParams["idle_in_transaction_session_timeout"]; !set {
		c.RuntimeParams["idle_in_transaction_session_timeout"] = "60000"
	}
	cfg.MaxConns = max(cfg.MaxConns, 16)
	cfg.PrepareConn = setOrg
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	p := &pgDB{pool: pool, sqlDB: stdlib.OpenDBFromPool(pool), start: time.Now()}
	p.lastReset.Store(-int64(resetEvery))
	if err := pool.Ping(ctx); err != nil {
		p.close()
		return nil, fmt.Errorf("database: %w", err)
	}
	return p, nil
}

// resetEvery bounds how often the pool is thrown away: a hundred statements
// that fail of one failover must not throw away the good connections that the
// first of them led to.
const resetEvery = time.Second

// note looks at an error on its way out. A session on a server that turned
// read-only or is going down says nothing about the rest of the pool by itself,
// but its siblings are on the same server: all of them are replaced (failure
// kind P5).
func (p *pgDB) note(err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case "25006", // read_only_sql_transaction
		"57P01", // admin_shutdown
		"57P02", // crash_shutdown
		"57P03": // cannot_connect_now
		now := int64(time.Since(p.start))
		if last := p.lastReset.Load(); now-last >= int64(resetEvery) && p.lastReset.CompareAndSwap(last, now) {
			p.pool.Reset()
		}
	}
	return err
}

func (p *pgDB) reader() Q    { return pgQ{p.pool, p, nil} }
func (p *pgDB) writer() Q    { return pgQ{p.pool, p, nil} }
func (p *pgDB) std() *sql.DB { return p.sqlDB }

func (p *pgDB) ping(ctx context.Context) error { return p.note(p.pool.Ping(ctx)) }

func (p *pgDB) inTx(ctx context.Context, fn func(ctx context.Context, tx Q) error) error {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", p.note(err))
	}
	// The rollback must reach the server also when ctx is what ended fn.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		tx.Rollback(ctx) //nolint:errcheck // a no-op after Commit
	}()
	org := orgOf(ctx)
	if err := fn(ctx, pgQ{tx, p, &org}); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", p.note(err))
	}
	return nil
}

func (p *pgDB) close() error {
	err := p.sqlDB.Close()
	p.pool.Close()
	return err
}

// pgRunner is what *pgxpool.Pool and pgx.Tx have in common.
type pgRunner interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// pgQ is a Q over pgx.
type pgQ struct {
	run pgRunner
	p   *pgDB
	org *string // of the transaction; nil outside of one
}

func (q pgQ) Dialect() Dialect { return Postgres }

// fits refuses a statement whose context is not of the transaction's organisation.
func (q pgQ) fits(ctx context.Context) error {
	if q.org != nil && orgOf(ctx) != *q.org {
		return errOrgOfTx
	}
	return nil
}

func (q pgQ) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := q.fits(ctx); err != nil {
		return 0, err
	}
	tag, err := q.run.Exec(ctx, query, cleaned(args)...)
	return tag.RowsAffected(), q.p.note(err)
}

func (q pgQ) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	if err := q.fits(ctx); err != nil {
		return nil, err
	}
	rows, err := q.run.Query(ctx, query, cleaned(args)...)
	if err != nil {
		return nil, q.p.note(err)
	}
	return pgRows{rows, q.p}, nil
}

func (q pgQ) QueryRow(ctx context.Context, query string, args ...any) Row {
	if err := q.fits(ctx); err != nil {
		return failedRow{err}
	}
	return pgRow{q.run.QueryRow(ctx, query, cleaned(args)...), q.p}
}

// failedRow is the row of a statement that was never sent.
type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

type pgRows struct {
	pgx.Rows
	p *pgDB
}

func (r pgRows) Err() error { return r.p.note(r.Rows.Err()) }

func (r pgRows) Close() error {
	r.Rows.Close()
	return r.Err()
}

type pgRow struct {
	row pgx.Row
	p   *pgDB
}

func (r pgRow) Scan(dest ...any) error {
	err := r.row.Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNoRows
	}
	return r.p.note(err)
}

// Listen waits for notifications on a channel of PostgreSQL, on a connection
// of its own, and calls each for every one, and once after it started to listen.
// It returns when the connection breaks or ctx ends, always with an error.
func (d *DB) Listen(ctx context.Context, channel string, each func()) error {
	p, ok := d.b.(*pgDB)
	if !ok {
		return errors.New("listen: not a PostgreSQL database")
	}
	cfg := p.pool.Config().ConnConfig
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	each()
	for {
		// A connection that died without a word is found by asking from time to time.
		wctx, cancel := context.WithTimeout(ctx, listenProbe)
		_, err := conn.WaitForNotification(wctx)
		cancel()
		switch {
		case err == nil:
			each()
		case ctx.Err() != nil:
			return ctx.Err()
		case pgconn.Timeout(err) && !conn.IsClosed():
			if err := stillPrimary(ctx, conn); err != nil {
				return fmt.Errorf("listen: %w", err)
			}
		default:
			return fmt.Errorf("listen: %w", err)
		}
	}
}

const listenProbe = 10 * time.Second

// stillPrimary asks whether the server that a session is on answers, and is
// still the one that takes writes: after a failover nobody notifies on the other.
func stillPrimary(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var readOnly string
	if err := conn.QueryRow(ctx, "SHOW transaction_read_only").Scan(&readOnly); err != nil {
		return err
	}
	if readOnly == "on" {
		return errors.New("the server is read-only now")
	}
	return nil
}
