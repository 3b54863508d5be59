// Package pgtest runs a real PostgreSQL server for tests and benchmarks: on loopback, on a free
// port, in a directory of its own, ended by its process ID.
//
// A package whose tests want a database each calls Main from its TestMain and Database from its
// tests; they share one server. A test that stops, crashes or restarts the server, or that needs
// fsync, starts its own with Start.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options say how a server runs.
type Options struct {
	// Fsync makes commits reach the disk. Without it tests are faster, and lose data only if the
	// machine stops.
	Fsync bool
	// Settings are further lines of postgresql.conf, such as "max_connections": "300".
	Settings map[string]string
}

// A Server is one PostgreSQL server. Its methods may be called from several goroutines, but for
// Up, Stop, Crash and Close, which take turns.
type Server struct {
	dir  string
	bin  string
	port int
	cred *syscall.Credential

	service prepared

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

const (
	superuser    = "postgres"
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	dirPrefix    = "zopday-pgtest-"
)

// New makes a fresh database cluster and starts a server on it. Close ends it.
func New(o Options) (*Server, error) {
	bin, err := binDir()
	if err != nil {
		return nil, err
	}
	removeLeftovers()
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin}
	if err := s.create(o); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// Somebody else may take the free port before the server does.
	for range 3 {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.Up(); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, s.Close())
}

// binDir finds the newest installed server; Debian keeps it off the PATH.
func binDir() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		newest := slices.MaxFunc(found, func(a, b string) int { return majorOf(a) - majorOf(b) })
		return filepath.Dir(newest), nil
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", fmt.Errorf("PostgreSQL's server is not installed: apt-get install postgresql (make test does this): %w", err)
	}
	return filepath.Dir(path), nil
}

func majorOf(path string) int {
	n, err := strconv.Atoi(strings.Split(path, "/")[4])
	if err != nil {
		return 0
	}
	return n
}

// removeLeftovers deletes the directories of processes that ended without closing their servers.
func removeLeftovers() {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.Split(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")[0])
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		_ = os.RemoveAll(dir) // another process may be at it too
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

func (s *Server) create(o Options) error {
	if os.Geteuid() == 0 {
		// The server refuses to run as root.
		u, err := user.Lookup(superuser)
		if err != nil {
			return fmt.Errorf("a user to run PostgreSQL as: %w", err)
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return err
		}
		s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(s.dir, int(uid), int(gid)); err != nil {
			return err
		}
	}
	initdb := s.command("initdb", "-D", s.data(), "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	var conf bytes.Buffer
	fsync := "off"
	if o.Fsync {
		fsync = "on"
	}
	fmt.Fprintf(&conf, "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = %s\nmax_connections = 200\n", fsync)
	for name, value := range o.Settings {
		fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(conf.Bytes())
	return errors.Join(err, f.Close())
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	// A group of its own keeps a Ctrl-C at the terminal away from it. A test process that dies
	// takes the server with it: SIGINT is the server's fast shutdown.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT, Credential: s.cred}
	return cmd
}

// Up starts a server that is not running, on the same port and data, and waits until it answers.
func (s *Server) Up() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return errors.New("the server is running")
	}
	logFile, err := os.OpenFile(s.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd := s.command("postgres", "-D", s.data(), "-p", strconv.Itoa(s.port))
	cmd.Stdout, cmd.Stderr = logFile, logFile
	done := make(chan struct{})
	started := make(chan error)
	go func() {
		// The parent whose death counts is the thread, and Go may end an idle one; a locked
		// thread lives as long as its goroutine.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended shows in the log
			close(done)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.done = cmd, done
	if err := s.ready(done); err != nil {
		return errors.Join(err, s.end(syscall.SIGQUIT))
	}
	return nil
}

func (s *Server) ready(done <-chan struct{}) error {
	deadline := time.Now().Add(startTimeout)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := s.exec(ctx, "SELECT 1")
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("PostgreSQL ended at its start: %s", s.logTail())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("PostgreSQL does not answer after %s: %w: %s", startTimeout, err, s.logTail())
		}
	}
}

func (s *Server) logTail() string {
	data, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// Stop ends the server in good order, cutting off its clients; the data stays for Up.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(syscall.SIGINT)
}

// Crash ends the server at once without a checkpoint, as a power cut does; Up then recovers.
func (s *Server) Crash() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(syscall.SIGQUIT)
}

func (s *Server) end(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	err := s.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		err = errors.Join(err, fmt.Errorf("PostgreSQL did not end within %s", stopTimeout), s.cmd.Process.Kill())
		<-s.done
	}
	s.cmd, s.done = nil, nil
	return err
}

// Close ends the server and deletes its data.
func (s *Server) Close() error {
	err := s.Crash() // the data goes away: nothing is worth a checkpoint
	rm := os.RemoveAll(s.dir)
	if errors.Is(rm, fs.ErrNotExist) {
		rm = nil
	}
	return errors.Join(err, rm)
}

// Port is the TCP port on 127.0.0.1; it stays the same over Stop and Up.
func (s *Server) Port() int { return s.port }

// DSN names a database of the server.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, s.port, database)
}

// exec runs one statement on the maintenance database.
func (s *Server) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// CreateDatabase makes a database and returns its DSN.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	if err := s.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", err
	}
	return s.DSN(name), nil
}

// DropDatabase deletes a database, cutting off whoever is still connected.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	return s.exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}
