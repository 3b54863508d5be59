package db_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
)

// TestConnectionsNoticeALostServer reads back what the sockets of both kinds of
// connection were given: the pool's, and those made from its configuration.
func TestConnectionsNoticeALostServer(t *testing.T) {
	d, err := db.Open(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	pool := db.PoolOf(d)
	if pool.Config().ConnConfig.ConnectTimeout <= 0 {
		t.Error("connecting has no bound")
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, ok := conn.Conn().PgConn().Conn().(*net.TCPConn); ok {
		checkSocket(t, conn.Conn().PgConn().Conn())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := pool.Config().ConnConfig.DialFunc
	c, err := dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	checkSocket(t, c)
}

func checkSocket(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for name, o := range map[string]struct{ level, option, want int }{
			"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
			"TCP_KEEPINTVL":    {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 2},
			"TCP_KEEPCNT":      {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
			"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 10_000},
		} {
			if got, err := unix.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
				t.Errorf("%s: %d, %v, want %d", name, got, err, o.want)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDialsSocketsInTheFileSystem: what is for TCP does not break them.
func TestDialsSocketsInTheFileSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := db.Dialer(time.Second).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
