package databases

import (
	"crypto/tls"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/zopday/provisioner/internal/sim"
)

// What is kept is there again under the same ID and at the same port, whatever ended it.
func TestStateIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	specs := []sim.DatabaseServer{
		{ID: "pg", Engine: "postgres", Admin: "zopadmin", Password: adminPassword, AdminRole: "azure_pg_admin"},
		{ID: "my", Engine: "mysql", Admin: "zopadmin", Password: adminPassword},
		{ID: "cache", Engine: "redis", Password: adminPassword},
	}
	var ca []byte
	endpoints := map[string]sim.DatabaseEndpoint{}
	for round := range 2 {
		d, err := New(Options{StateDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Shutdown()
		if round == 1 && string(d.CA()) != string(ca) {
			t.Error("another certificate authority")
		}
		ca = d.CA()
		for _, spec := range specs {
			e := d.Open(spec)
			if was := endpoints[spec.ID]; round == 1 && e != was {
				t.Errorf("%s is at %v, and was at %v", spec.ID, e, was)
			}
			endpoints[spec.ID] = e
			if round == 0 {
				if spec.Engine != "redis" {
					d.CreateDatabase(spec.ID, "kept")
				}
				d.SetUser(spec.ID, sim.DatabaseUser{Name: "kept", Password: "pw"})
			}
			settled(t, d, spec.ID)
			databases, users, _ := d.Names(spec.ID)
			if !slices.Contains(users, "kept") || spec.Engine != "redis" && !slices.Contains(databases, "kept") {
				t.Errorf("round %d, %s: %q, %q", round, spec.ID, databases, users)
			}
		}
		d.Shutdown()
		if left := processes(t, d.temp, dir); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		if _, err := os.Stat(d.temp); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", d.temp, err)
		}
	}
}

func TestStopStartAndDeath(t *testing.T) {
	t.Parallel()
	d := instance(t, Options{})
	spec := postgresSpec("pg")
	spec.Admits = nil
	e := d.Open(spec)
	settled(t, d, spec.ID)
	secure := verified(t, d.CA(), "localhost")
	conn, err := pg(t.Context(), e, secure, "zopadmin", adminPassword, "postgres")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE t AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	d.Stop(spec.ID)
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection to a stopped server")
	}
	if _, err := pg(t.Context(), e, secure, "zopadmin", adminPassword, "postgres"); err == nil {
		t.Error("a stopped server takes connections")
	}
	if ready, err := d.Ready(spec.ID); ready || err != nil {
		t.Errorf("stopped: %t, %v", ready, err)
	}
	d.CreateDatabase(spec.ID, "later") // is carried out when it runs again
	d.Start(spec.ID)
	settled(t, d, spec.ID)
	if databases, _, _ := d.Names(spec.ID); !slices.Contains(databases, "later") {
		t.Errorf("%q", databases)
	}

	// It dies, and is there again.
	s := d.server(spec.ID)
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	<-p.done
	var n int
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var conn *pgx.Conn
		if conn, err = pg(t.Context(), e, secure, "zopadmin", adminPassword, "postgres"); err == nil {
			err = conn.QueryRow(t.Context(), "SELECT n FROM t").Scan(&n)
			conn.Close(t.Context())
		}
		if err == nil || time.Now().After(deadline) {
			break
		}
	}
	if n != 1 || err != nil {
		t.Errorf("after its death: %d, %v", n, err)
	}

	// Closed is gone, and the same ID is a new one.
	d.Close(spec.ID)
	if _, err := pg(t.Context(), e, secure, "zopadmin", adminPassword, "postgres"); err == nil {
		t.Error("a closed endpoint answers")
	}
	if _, err := d.Ready(spec.ID); !errors.Is(err, errNotOpen) {
		t.Errorf("closed: %v", err)
	}
	d.Open(spec)
	settled(t, d, spec.ID)
	if databases, _, ok := d.Names(spec.ID); !ok || slices.Contains(databases, "later") {
		t.Errorf("%q, %t", databases, ok)
	}
	d.Reset()
	if left := processes(t, d.temp); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestWithoutABinary(t *testing.T) {
	t.Parallel()
	d := instance(t, Options{})
	spec := sim.DatabaseServer{ID: "x", Engine: "oracle"}
	e := d.Open(spec)
	if ready, err := d.Ready(spec.ID); ready || !errors.Is(err, sim.ErrNoServer) {
		t.Errorf("%t, %v", ready, err)
	}
	if err := d.Down("oracle"); !errors.Is(err, sim.ErrNoServer) {
		t.Error(err)
	}
	if err := d.Down("postgres"); err != nil {
		t.Error(err)
	}
	if _, err := cache(t.Context(), e, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		t.Error("it answers")
	}
	if _, _, err := d.Query(t.Context(), spec.ID, "", "", "", "SELECT 1"); !errors.Is(err, sim.ErrNoServer) {
		t.Error(err)
	}
	if _, _, ok := d.Names(spec.ID); ok {
		t.Error("it has names")
	}
}

// No password stands where every user of the machine can read it.
func TestArgumentsHoldNoPassword(t *testing.T) {
	t.Parallel()
	d := instance(t, Options{})
	for _, engine := range []string{"postgres", "mysql", "redis"} {
		d.Open(sim.DatabaseServer{ID: engine, Engine: engine, Admin: "zopadmin", Password: adminPassword})
		settled(t, d, engine)
	}
	found := processes(t, d.temp)
	if len(found) < 3 {
		t.Errorf("processes: %q", found)
	}
	for _, p := range found {
		if strings.Contains(p, adminPassword) {
			t.Error(p)
		}
	}
}
