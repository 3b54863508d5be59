package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/zopday/provisioner/internal/db"
)

// The roles of a database of ServiceDatabase.
const (
	Owner   = "zopday_owner"   // owns the tables; no superuser
	Service = "zopday_service" // has the rights that a service needs, and owns nothing
)

// template is the database that those of ServiceDatabase are copies of.
const template = "zopday_template"

// A prepared is what happened when a server's roles and template were made.
type prepared struct {
	once sync.Once
	err  error
}

// ServiceDatabase returns the DSN of a fresh, migrated database, as the role that
// a service connects as: row-level security holds it, and it owns nothing. The
// database is dropped after the test. It is on the same server as Database's.
func ServiceDatabase(t testing.TB) string {
	t.Helper()
	return sharedOr(t).ServiceDatabase(t)
}

// ServiceDatabase is the same on this server.
func (s *Server) ServiceDatabase(t testing.TB) string {
	t.Helper()
	s.service.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.service.err = s.prepareService(ctx)
	})
	if s.service.err != nil {
		t.Fatalf("service role: %v", s.service.err)
	}
	return As(t, s.database(t, " OWNER "+Owner+" TEMPLATE "+template), Service)
}

// As is a DSN with another user.
func As(t testing.TB, dsn, user string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	return u.String()
}

// Superuser is a DSN of the same database for looking at, and changing, what the
// service cannot.
func Superuser(t testing.TB, dsn string) string {
	t.Helper()
	return As(t, dsn, superuser)
}

// prepareService makes the roles, and the template as an operator would make the
// database: its owner migrates it and gives the service its rights.
func (s *Server) prepareService(ctx context.Context) error {
	for _, statement := range []string{
		"CREATE ROLE " + Owner + " LOGIN", "CREATE ROLE " + Service + " LOGIN", "CREATE DATABASE " + template + " OWNER " + Owner,
	} {
		if err := s.exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	d, err := db.Open(ctx, fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", Owner, s.port, template))
	if err != nil {
		return err
	}
	err = d.Migrate(ctx)
	if err == nil {
		err = d.Grant(ctx, Service)
	}
	return errors.Join(err, d.Close(), s.quiet(ctx))
}

// quiet waits until nobody is connected to the template any more: it cannot be
// copied before.
func (s *Server) quiet(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for {
		var n int
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = $1`, template).Scan(&n); err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
