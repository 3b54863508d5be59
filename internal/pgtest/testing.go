package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// shared is the server of a test process whose TestMain calls Main.
var shared struct {
	sync.Mutex
	allowed bool
	server  *Server
}

var databases atomic.Int64

// Main runs the tests of a package and then ends the server that they shared, if one was started.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int {
	shared.Lock()
	shared.allowed = true
	shared.Unlock()
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	shared.allowed = false
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = max(code, 1)
		}
		shared.server = nil
	}
	return code
}

// Start runs a server for one test and ends it after the test.
func Start(t testing.TB, options ...Options) *Server {
	t.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Database returns the DSN of a fresh, empty database, dropped after the test. It is on the
// server that the package's tests share if TestMain calls Main, and else on one of the test's own.
func Database(t testing.TB) string {
	t.Helper()
	return sharedOr(t).Database(t)
}

// sharedOr is the server that the package's tests share, or else one of the test's
// own.
func sharedOr(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.allowed {
		return Start(t)
	}
	if shared.server == nil {
		s, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		shared.server = s
	}
	return shared.server
}

// Database returns the DSN of a fresh, empty database on this server. It is dropped after the
// test if the server is up then.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.database(t, "")
}

// database makes a database with further options of CREATE DATABASE.
func (s *Server) database(t testing.TB, options string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+options); err != nil {
		t.Fatalf("database %s: %v", name, err)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		up := s.cmd != nil
		s.mu.Unlock()
		if !up {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.DropDatabase(ctx, name); err != nil {
			t.Errorf("database %s: %v", name, err)
		}
	})
	return s.DSN(name)
}

// Restart stops the server in good order and starts it again on the same port.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
}

// Log is what the server has written to its log so far.
func (s *Server) Log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(s.log())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
