package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pgtest"
)

// load is workers that checkpoint without end and never meet an error.
type load struct {
	e      *env
	stop   chan struct{}
	wg     sync.WaitGroup
	acked  []atomic.Int64 // by job: checkpoints that were told they are written
	claims []ledger.Claimed
}

func startLoad(t *testing.T, e *env, jobs int) *load {
	t.Helper()
	l := &load{e: e, stop: make(chan struct{}), acked: make([]atomic.Int64, jobs)}
	e.register(t, "w")
	for range jobs {
		e.insert(t)
		l.claims = append(l.claims, e.claim(t, "w", ledger.ClaimOptions{DefaultTTL: time.Hour}))
	}
	for i := range jobs {
		l.wg.Go(func() { l.worker(t, i) })
	}
	return l
}

func (l *load) worker(t *testing.T, i int) {
	c := l.claims[i]
	for n := 1; ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		cp := full(c.Job, n)
		cp.Objects = nil
		if _, err := l.e.Checkpoint(l.e.ctx, c.Lease, cp); err != nil {
			t.Errorf("job %d: %v", i, err)
			return
		}
		l.acked[i].Store(int64(n))
	}
}

// recovered waits until every job has been written twice anew.
func (l *load) recovered(t *testing.T, within time.Duration) {
	t.Helper()
	start := time.Now()
	for i := range l.acked {
		from := l.acked[i].Load()
		for l.acked[i].Load() < from+2 {
			if time.Since(start) > within {
				t.Fatalf("job %d was not written for %s", i, within)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// finish ends the load and checks that all that was acknowledged is there, once.
func (l *load) finish(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	for i, c := range l.claims {
		events, err := l.e.Events(l.e.ctx, org, c.Job.ID, 0, 1<<20)
		must(t, err)
		acked := int(l.acked[i].Load())
		gapless(t, events, 2*acked)
		for n := range min(acked, len(events)/2) {
			if want := fmt.Sprintf("step%d", n+1); events[2*n].Step != want || events[2*n+1].Step != want {
				t.Fatalf("job %d: checkpoint %d of %d wrote events of %s and %s", i, n+1, acked, events[2*n].Step, events[2*n+1].Step)
			}
		}
		if steps, err := l.e.Steps(l.e.ctx, org, c.Job.ID); err != nil || len(steps) != acked {
			t.Errorf("job %d: %d steps of %d checkpoints, %v", i, len(steps), acked, err)
		}
	}
}

// The database goes away and comes back under load, in good order and without:
// workers do not even notice, and nothing is lost or written twice.
func TestDatabaseRestart(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{Fsync: true})
	l := startLoad(t, open(t, s.ServiceDatabase(t)), 12)
	l.recovered(t, 30*time.Second)
	s.Restart(t)
	l.recovered(t, 30*time.Second)
	must(t, s.Crash())
	time.Sleep(300 * time.Millisecond)
	must(t, s.Up())
	l.recovered(t, 30*time.Second)
	l.finish(t)
}

// The primary turns read-only under load and a standby is promoted (P5).
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, pgtest.Options{Fsync: true})
	database := primary.ServiceDatabase(t)
	standby := startStandby(t, primary)
	// Commits wait for the standby, as they have to where none may be lost.
	asSuperuser(t, primary.Port(), `ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`)
	hosts := fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", primary.Port(), standby)
	dsn := strings.Replace(database, fmt.Sprintf("127.0.0.1:%d", primary.Port()), hosts, 1)
	e := open(t, dsn)
	wake := ledger.New(e.d, ledger.Options{}).Wakeups(e.ctx)
	l := startLoad(t, e, 12)
	l.recovered(t, 30*time.Second)

	asSuperuser(t, primary.Port(), `ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`)
	t.Cleanup(func() { // so that the test's database can be dropped
		asSuperuser(t, primary.Port(), `ALTER SYSTEM RESET default_transaction_read_only`, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`)
		time.Sleep(500 * time.Millisecond) // the server reloads when it gets to it
	})
	before := time.Now()
	asSuperuser(t, standby, `SELECT pg_promote()`)
	l.recovered(t, time.Minute)
	t.Logf("went on after %s", time.Since(before))
	l.finish(t)

	var port int
	must(t, e.d.Writer().QueryRow(e.ctx, `SELECT inet_server_port()`).Scan(&port))
	if port != standby {
		t.Errorf("the pool is on port %d, want the new primary's %d", port, standby)
	}
	// The listener moves too, and is told so.
	for deadline := time.Now().Add(40 * time.Second); ; {
		must(t, e.Notify(e.ctx))
		if woken(wake, time.Second) && time.Since(before) > 100*time.Millisecond {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no word from the new primary")
		}
	}
}

func asSuperuser(t *testing.T, port int, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port))
	must(t, err)
	defer conn.Close(ctx)
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// startStandby copies a server and lets the copy follow it; it returns its port.
func startStandby(t *testing.T, primary *pgtest.Server) int {
	t.Helper()
	bins, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(bins) == 0 {
		t.Fatalf("no PostgreSQL binaries: %v", err)
	}
	bin := bins[len(bins)-1]
	dir, err := os.MkdirTemp("", "zopday-standby-") //nolint:usetesting // a directory that the server's own user gets at
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		must(t, err)
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		must(t, os.Chown(dir, uid, gid))
	}
	data := filepath.Join(dir, "data")
	backup := exec.Command(filepath.Join(bin, "pg_basebackup"), "-h", "127.0.0.1", "-p", strconv.Itoa(primary.Port()), "-U", "postgres",
		"-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	backup.Dir, backup.SysProcAttr = dir, &syscall.SysProcAttr{Credential: attr.Credential}
	if out, err := backup.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	must(t, free.Close())
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port))
	server.Dir, server.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true, Credential: attr.Credential}
	must(t, server.Start())
	t.Cleanup(func() {
		if err := server.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		server.Wait()
	})
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port))
		if err == nil {
			conn.Close(ctx)
			cancel()
			return port
		}
		cancel()
		if time.Now().After(deadline) {
			t.Fatalf("the standby does not answer: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
