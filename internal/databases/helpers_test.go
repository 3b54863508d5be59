package databases

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simdatabases "github.com/zopday/provisioner/internal/sim/databases"
)

// The servers of all tests of this package: one of each engine.
var servers struct {
	sync.Mutex
	all *simdatabases.Databases
	at  map[job.Engine]sim.DatabaseEndpoint
}

func TestMain(m *testing.M) {
	code := m.Run()
	if servers.all != nil {
		servers.all.Shutdown()
	}
	os.Exit(code)
}

const (
	admin         = "zopadmin"
	adminPassword = "Adm1nOfTheTests000000000000"
)

var engines = []job.Engine{job.Postgres, job.MySQL}

func specOf(e job.Engine) sim.DatabaseServer {
	return sim.DatabaseServer{ID: string(e), Engine: string(e), RequireTLS: true, Admin: admin, Password: adminPassword, AdminRole: map[job.Engine]string{job.Postgres: "rds_superuser"}[e]}
}

// server is where an engine's server of all tests answers.
func server(t testing.TB, e job.Engine) (*simdatabases.Databases, sim.DatabaseEndpoint) {
	t.Helper()
	servers.Lock()
	defer servers.Unlock()
	if servers.all == nil {
		var err error
		if servers.all, err = simdatabases.New(simdatabases.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}); err != nil {
			t.Fatal(err)
		}
		servers.at = map[job.Engine]sim.DatabaseEndpoint{}
	}
	if _, ok := servers.at[e]; !ok {
		servers.at[e] = servers.all.Open(specOf(e))
		settled(t, servers.all, string(e))
	}
	return servers.all, servers.at[e]
}

func settled(t testing.TB, d *simdatabases.Databases, id string) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		ready, err := d.Ready(id)
		if err != nil {
			t.Fatal(err)
		}
		if ready {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready", id)
		}
	}
}

func trust(t testing.TB, ca []byte) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate")
	}
	return &tls.Config{RootCAs: pool}
}

// direct is the way to a server of the tests as its administrator.
func direct(t testing.TB, e job.Engine) cloud.SQLAccess {
	t.Helper()
	d, at := server(t, e)
	return cloud.SQLAccess{Engine: e, Admin: admin, Server: &cloud.SQLServer{
		Host: at.Host, Port: at.Port, TLS: trust(t, d.CA()),
		Password: func(context.Context) (string, error) { return adminPassword, nil },
	}}
}

// asUser is a way to a database as somebody else, for what he may do there.
func asUser(t testing.TB, access cloud.SQLAccess, user, password string) *link {
	t.Helper()
	s := *access.Server
	s.Password = func(context.Context) (string, error) { return password, nil }
	access.Server, access.Admin, access.Query = &s, user, nil
	l := &link{access: access, conns: map[string]conn{}}
	t.Cleanup(func() { l.close(context.Background()) })
	return l
}

// runs says a statement as a user, in a database.
func (l *link) runs(ctx context.Context, database, statement string) error {
	if l.access.Engine == job.Postgres {
		if err := l.change(allowed(ctx), "Test", database, "SET search_path TO public"); err != nil {
			return err
		}
	}
	return l.change(allowed(ctx), "Test", database, statement)
}

// allowed lets everything change.
func allowed(ctx context.Context) context.Context {
	return pipeline.WithGate(ctx, func(context.Context, pipeline.Call) error { return nil })
}

// cutAfter lets n changes through and then refuses, as a lost lease does.
func cutAfter(ctx context.Context, n int) context.Context {
	return pipeline.WithGate(ctx, func(_ context.Context, c pipeline.Call) error {
		if !c.Mutating {
			return nil
		}
		if n--; n < 0 {
			return pipeline.ErrLeaseLost
		}
		return nil
	})
}

func open(t testing.TB, access cloud.SQLAccess) *Server {
	t.Helper()
	s, err := Open(t.Context(), access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused wants a server's refusal.
func refused(t testing.TB, what string, err error) {
	t.Helper()
	if !pipeline.Is(err, pipeline.Denied) {
		t.Errorf("%s: %v; want it denied", what, err)
	}
}

// noSecret fails if any of the texts holds any of the secrets.
func noSecret(t testing.TB, secrets []string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, secret := range secrets {
			if secret != "" && strings.Contains(text, secret) {
				t.Errorf("a secret stands in %q", text)
			}
		}
	}
}

// chain is every text that an error holds.
func chain(err error) string {
	if err == nil {
		return ""
	}
	text := fmt.Sprintf("%v %+v %#v", err, err, err)
	if inner := errors.Unwrap(err); inner != nil {
		text += chain(inner)
	}
	return text
}

func pgError(code, message string) *pgconn.PgError {
	return &pgconn.PgError{Code: code, Message: message}
}

func myError(number uint16) *mysql.MySQLError { return &mysql.MySQLError{Number: number} }
