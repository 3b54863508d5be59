package db

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// maxPrepared bounds the statements that are kept parsed: lists with filters
// compose theirs, and there is no end of combinations.
const maxPrepared = 200

// prepared runs statements that SQLite has parsed before: parsing costs more
// than carrying out most of them. pgx keeps its own.
type prepared struct {
	*sql.DB
	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

func newPrepared(d *sql.DB) *prepared { return &prepared{DB: d, stmts: map[string]*sql.Stmt{}} }

// known is the parsed statement of a query; nil if it is not kept.
func (p *prepared) known(query string) *sql.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stmts[query]
}

// stmt parses a query, and keeps it if there is room; nil if there is none.
func (p *prepared) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	p.mu.Lock()
	s, full := p.stmts[query], len(p.stmts) >= maxPrepared
	p.mu.Unlock()
	if s != nil || full {
		return s, nil
	}
	s, err := p.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.stmts[query]; first != nil { // somebody else was faster
		return first, s.Close()
	}
	p.stmts[query] = s
	return s, nil
}

func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s, err := p.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return p.DB.ExecContext(ctx, query, args...)
	}
	return s.ExecContext(ctx, args...)
}

func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := p.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return p.DB.QueryContext(ctx, query, args...)
	}
	return s.QueryContext(ctx, args...)
}

func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if s, err := p.stmt(ctx, query); err == nil && s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	return p.DB.QueryRowContext(ctx, query, args...) // which meets the error again
}

// Close ends the statements before the connections.
func (p *prepared) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.stmts {
		errs = append(errs, s.Close())
	}
	clear(p.stmts)
	return errors.Join(append(errs, p.DB.Close())...)
}

// preparedTx is a transaction that runs what is parsed already. What is not
// cannot be parsed within it, since the transaction holds the one connection
// that writes: it is parsed after the transaction, for the next one.
type preparedTx struct {
	*sql.Tx
	p     *prepared
	fresh map[string]bool
}

func (t *preparedTx) known(ctx context.Context, query string) *sql.Stmt {
	s := t.p.known(query)
	if s == nil {
		t.fresh[query] = true
		return nil
	}
	return t.StmtContext(ctx, s)
}

func (t *preparedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if s := t.known(ctx, query); s != nil {
		return s.ExecContext(ctx, args...)
	}
	return t.Tx.ExecContext(ctx, query, args...)
}

func (t *preparedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s := t.known(ctx, query); s != nil {
		return s.QueryContext(ctx, args...)
	}
	return t.Tx.QueryContext(ctx, query, args...)
}

func (t *preparedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if s := t.known(ctx, query); s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	return t.Tx.QueryRowContext(ctx, query, args...)
}

// learn parses what the transaction had to run unparsed. It is only for speed:
// an error shows when the statement is run again.
func (t *preparedTx) learn(ctx context.Context) {
	for query := range t.fresh {
		if _, err := t.p.stmt(ctx, query); err != nil {
			return
		}
	}
}
