package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) {
	if os.Getenv("PGTEST_CHILD") != "" {
		s, err := New(Options{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.cmd.Process.Pid)
		time.Sleep(time.Minute)
	}
	os.Exit(Main(m))
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server may be gone by then
	return conn
}

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	var dsns []string
	t.Run("two", func(t *testing.T) {
		for range 2 {
			dsn := Database(t)
			dsns = append(dsns, dsn)
			if _, err := connect(t, dsn).Exec(t.Context(), "CREATE TABLE only_here (x int)"); err != nil {
				t.Error(err)
			}
		}
	})
	if dsns[0][:strings.LastIndexByte(dsns[0], '/')] != dsns[1][:strings.LastIndexByte(dsns[1], '/')] {
		t.Errorf("%q are not on one server", dsns)
	}
	for _, dsn := range dsns {
		if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
			t.Errorf("%s is still there after its test", dsn)
			_ = conn.Close(t.Context())
		}
	}
}

func TestStopCrashAndRestartKeepCommittedData(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Fsync: true, Settings: map[string]string{"application_name": "it's"}})
	dsn := s.Database(t)
	pid := s.cmd.Process.Pid
	conn := connect(t, dsn)
	for setting, want := range map[string]string{"fsync": "on", "listen_addresses": "127.0.0.1"} {
		var got string
		if err := conn.QueryRow(t.Context(), "SHOW "+setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", setting, got, err, want)
		}
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE n (x int); INSERT INTO n VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection outlived the crash")
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d outlived the crash", pid)
	}
	if _, err := pgx.Connect(t.Context(), dsn); err == nil {
		t.Error("a crashed server takes connections")
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	if err := s.Up(); err == nil {
		t.Error("a second Up said nothing")
	}
	s.Restart(t)
	var n int
	if err := connect(t, dsn).QueryRow(t.Context(), "SELECT x FROM n").Scan(&n); err != nil || n != 1 {
		t.Errorf("n = %d, %v", n, err)
	}
}

func TestBadSettingIsReported(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil {
		_ = s.Close()
		t.Fatal("started")
	}
	if !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("%v does not hold the server's words", err)
	}
}

// A test process that is killed leaves no server, and the next one deletes its directory.
func TestKilledProcessLeavesNothing(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), "PGTEST_CHILD=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	for deadline := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("server %d outlived the process that started it", pid)
		}
	}
	removeLeftovers()
	left, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		if strings.HasPrefix(entry.Name(), fmt.Sprintf("%s%d-", dirPrefix, child.Process.Pid)) {
			t.Errorf("%s is left", entry.Name())
		}
	}
}
