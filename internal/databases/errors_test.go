package databases

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simdatabases "github.com/zopday/provisioner/internal/sim/databases"
)

// errorOf is the class of what goes wrong when a database is asked for.
func errorOf(t *testing.T, access cloud.SQLAccess) (*pipeline.CloudError, error) {
	t.Helper()
	s, err := Open(t.Context(), access)
	must(t, err)
	defer s.Close(context.Background())
	ctx, cancel := context.WithTimeout(allowed(t.Context()), 20*time.Second)
	defer cancel()
	_, _, err = s.Database(ctx, "app", "own")
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) {
		t.Fatalf("%v is no CloudError", err)
	}
	if ce.Service != "SQL" || ce.Message == "" {
		t.Errorf("%#v", ce)
	}
	return ce, err
}

func TestErrorsOfConnections(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		good := direct(t, e)
		with := func(change func(s *cloud.SQLServer, a *cloud.SQLAccess)) cloud.SQLAccess {
			a, s := good, *good.Server
			change(&s, &a)
			a.Server = &s
			return a
		}
		closed := listenOnce(t, func(c net.Conn) { c.Close() })
		nobody := listenOnce(t, nil)
		plain := listenOnce(t, plainServer(e))
		const wrong = "Wr0ngPasswordOfTheTests"
		for name, c := range map[string]struct {
			access cloud.SQLAccess
			class  pipeline.Class
			words  string
		}{
			"a wrong password": {with(func(s *cloud.SQLServer, _ *cloud.SQLAccess) {
				s.Password = func(context.Context) (string, error) { return wrong, nil }
			}), pipeline.Expired, ""},
			"nobody there":      {with(func(s *cloud.SQLServer, _ *cloud.SQLAccess) { s.Port = nobody }), pipeline.Unavailable, "connection refused"},
			"closed at once":    {with(func(s *cloud.SQLServer, _ *cloud.SQLAccess) { s.Port = closed }), pipeline.Unavailable, "does not take connections"},
			"no TLS":            {with(func(s *cloud.SQLServer, _ *cloud.SQLAccess) { s.Port = plain }), "", "TLS"},
			"another authority": {with(func(s *cloud.SQLServer, _ *cloud.SQLAccess) { s.TLS = &tls.Config{} }), pipeline.Invalid, "not to be trusted"},
			"another name": {with(func(s *cloud.SQLServer, _ *cloud.SQLAccess) {
				s.TLS = s.TLS.Clone()
				s.TLS.ServerName = "db.example.com"
			}), pipeline.Invalid, "db.example.com"},
			"no verification": {with(func(s *cloud.SQLServer, _ *cloud.SQLAccess) { s.TLS = &tls.Config{InsecureSkipVerify: true} }), pipeline.Invalid, "not to be trusted"},
			"no secret": {with(func(s *cloud.SQLServer, _ *cloud.SQLAccess) {
				s.Password = func(context.Context) (string, error) {
					return "", &pipeline.CloudError{Class: pipeline.Denied, Service: "SQL", Op: "GetSecretValue", Message: "no"}
				}
			}), pipeline.Denied, "no"},
		} {
			ce, err := errorOf(t, c.access)
			if c.class != "" && ce.Class != c.class || ce.Sent || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.words)) {
				t.Errorf("%s, %s: %s (sent %t): %v", e, name, ce.Class, ce.Sent, err)
			}
			noSecret(t, []string{wrong, adminPassword}, chain(err))
		}
	}
}

// listenOnce is a port where somebody answers as given; nil: where nobody listens.
func listenOnce(t *testing.T, answer func(net.Conn)) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	if answer == nil {
		must(t, l.Close())
		return port
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return port
}

// plainServer speaks no TLS.
func plainServer(e job.Engine) func(net.Conn) {
	return func(c net.Conn) {
		defer c.Close()
		if e == job.Postgres {
			_, _ = c.Write([]byte("N")) // to the SSLRequest
			return
		}
		// The greeting of a server without CLIENT_SSL.
		greeting := append([]byte("\x0a8.4.0\x00\x01\x00\x00\x00saltsalt\x00\x0f\xa2\x21\x02\x00\x08\x00\x15"), make([]byte, 10)...)
		greeting = append(greeting, "saltsaltsalt\x00mysql_native_password\x00"...)
		_, _ = c.Write(append([]byte{byte(len(greeting)), 0, 0, 0}, greeting...))
		time.Sleep(50 * time.Millisecond)
	}
}

// TestErrorsOfStatements has real servers refuse.
func TestErrorsOfStatements(t *testing.T) {
	t.Parallel()
	secret := job.NewPassword()
	for _, e := range engines {
		name := names(t)
		access, ctx := direct(t, e), allowed(t.Context())
		s := open(t, access)
		owner, other, db := name("own"), name("oth"), name("db")
		must(t, s.SetRole(ctx, owner, secret))
		must(t, s.SetRole(ctx, other, job.NewPassword()))
		must(t, s.CreateDatabase(ctx, db, owner))

		// Somebody else's database is never taken.
		if err := s.CreateDatabase(ctx, db, other); !pipeline.Is(err, pipeline.Exists) {
			t.Errorf("%s: somebody else's database: %v", e, err)
		}
		if exists, ours, err := s.Database(ctx, db, other); !exists || ours || err != nil {
			t.Errorf("%s: %t %t %v", e, exists, ours, err)
		}
		// Who may nothing is told so, without the password.
		weak := access
		weak.Admin = owner
		weak.Server = &cloud.SQLServer{Host: access.Server.Host, Port: access.Server.Port, TLS: access.Server.TLS, Password: func(context.Context) (string, error) { return secret, nil }}
		fresh := job.NewPassword()
		err := open(t, weak).SetRole(ctx, name("new"), fresh)
		if !pipeline.Is(err, pipeline.Denied) {
			t.Errorf("%s: without rights: %v", e, err)
		}
		noSecret(t, []string{secret, fresh}, chain(err))
		if e == job.Postgres {
			if err := s.CreateDatabase(ctx, name("db2"), "nobody_of_that_name"); !pipeline.Is(err, pipeline.NotFound) {
				t.Errorf("an owner that is not there: %v", err)
			}
			// What depends on a role is named.
			must(t, asUser(t, access, owner, secret).runs(ctx, db, "CREATE TABLE kept (n INT)"))
			if err := s.DropRole(ctx, owner, "", ""); !pipeline.Is(err, pipeline.Invalid) || !strings.Contains(err.Error(), db) {
				t.Errorf("an owner of something: %v", err)
			}
		} else {
			must(t, s.SetRole(ctx, other, secret))
			must(t, s.Grant(ctx, other, db, owner, job.OwnerMode))
			must(t, asUser(t, access, other, secret).runs(ctx, db, "CREATE VIEW seen AS SELECT 1"))
			if err := s.DropRole(ctx, other, db, owner); !pipeline.Is(err, pipeline.Invalid) || !strings.Contains(err.Error(), "view seen") {
				t.Errorf("a definer: %v", err)
			}
			if err := asUser(t, access, other, secret).runs(ctx, db, "SELECT 1"); err == nil {
				t.Error("it still logs in")
			}
		}
	}
}

// TestStatementsAreNotQuoted: what a server says of a statement that it does not understand has
// parts of it.
func TestStatementsAreNotQuoted(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		l := asUser(t, direct(t, e), admin, adminPassword)
		err := l.change(allowed(t.Context()), "Test", maintenanceOf(e), "ALTER USER IDENTIFIED PASSWORD 'hidden-in-here' 'hidden-in-here'")
		if !pipeline.Is(err, pipeline.Invalid) {
			t.Errorf("%s: %v", e, err)
		}
		noSecret(t, []string{"hidden-in-here", "IDENTIFIED"}, chain(err))
		l.secrets = append(l.secrets, "no_such_thing_9")
		err = l.change(allowed(t.Context()), "Test", maintenanceOf(e), "SELECT no_such_thing_9")
		if err == nil {
			t.Error("no error")
		}
		noSecret(t, []string{"no_such_thing_9"}, chain(err))
	}
}

// TestServersGoAndCome: a server that is stopped is not there for now, and then it is.
func TestServersGoAndCome(t *testing.T) {
	t.Parallel()
	d, err := simdatabases.New(simdatabases.Options{})
	must(t, err)
	t.Cleanup(d.Shutdown)
	for _, e := range engines {
		spec := specOf(e)
		spec.Admits = func(from sim.KubeCaller) bool { return from.Inside }
		at := d.Open(spec)
		settled(t, d, spec.ID)
		access := direct(t, e)
		access.Server = &cloud.SQLServer{Host: at.Host, Port: at.Port, TLS: trust(t, d.CA()), Password: access.Server.Password}
		if ce, err := errorOf(t, access); ce.Class != pipeline.Unavailable || ce.Sent {
			t.Errorf("%s: from outside: %v", e, err)
		}
		d.SetCaller(sim.KubeCaller{Inside: true})
		s, ctx := open(t, access), allowed(t.Context())
		must(t, s.SetRole(ctx, "own", job.NewPassword()))
		d.Stop(spec.ID)
		err := s.SetRole(ctx, "own", job.NewPassword())
		if !pipeline.Is(err, pipeline.Unavailable) {
			t.Errorf("%s: stopped: %v", e, err)
		}
		d.Start(spec.ID)
		settled(t, d, spec.ID)
		must(t, s.SetRole(ctx, "own", job.NewPassword()))
		must(t, s.CreateDatabase(ctx, "app", "own"))
		d.SetCaller(sim.KubeCaller{})
	}
}

// TestClasses are codes whose meaning decides what is done next.
func TestClasses(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]pipeline.Class{
		"57P03": pipeline.Unavailable, "57P01": pipeline.Unavailable, "25006": pipeline.Unavailable, "53300": pipeline.Unavailable, "08006": pipeline.Unavailable,
		"28P01": pipeline.Expired, "28000": pipeline.Expired, "42501": pipeline.Denied, "55006": pipeline.Busy, "55P03": pipeline.Busy, "40P01": pipeline.Busy,
		"3D000": pipeline.NotFound, "42704": pipeline.NotFound, "42P04": pipeline.Exists, "42710": pipeline.Exists, "2BP01": pipeline.Invalid, "42601": pipeline.Invalid,
		"P0001": pipeline.Unknown,
	} {
		if got := postgresClass(pgError(code, "")); got != want {
			t.Errorf("%s is %s, not %s", code, got, want)
		}
	}
	if got := postgresClass(pgError("XX000", "tuple concurrently updated")); got != pipeline.Busy {
		t.Error(got)
	}
	for number, want := range map[uint16]pipeline.Class{
		1045: pipeline.Expired, 1044: pipeline.Denied, 1227: pipeline.Denied, 1049: pipeline.NotFound, 1007: pipeline.Exists, 1205: pipeline.Busy, 1213: pipeline.Busy,
		1040: pipeline.Unavailable, 1053: pipeline.Unavailable, 1290: pipeline.Unavailable, 1064: pipeline.Invalid, 1819: pipeline.Invalid, 4000: pipeline.Unknown,
	} {
		if got := mysqlClass(myError(number)); got != want {
			t.Errorf("%d is %s, not %s", number, got, want)
		}
	}
}
