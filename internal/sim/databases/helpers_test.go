package databases

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/zopday/provisioner/internal/sim"
)

var inside = sim.KubeCaller{Inside: true}

func insideOnly(from sim.KubeCaller) bool { return from.Inside }

func instance(t *testing.T, o Options) *Databases {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Shutdown)
	return d
}

// settled waits until a datastore has done what was asked for.
func settled(t *testing.T, d *Databases, id string) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ready, err := d.Ready(id)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if ready {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready", id)
		}
	}
}

func verified(t *testing.T, ca []byte, name string) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate")
	}
	return &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12}
}

// pg connects; a nil config is without TLS.
func pg(ctx context.Context, e sim.DatabaseEndpoint, secure *tls.Config, user, password, database string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig("sslmode=disable connect_timeout=20")
	if err != nil {
		return nil, err
	}
	c.Host, c.Port, c.User, c.Password, c.Database, c.TLSConfig = e.Host, uint16(e.Port), user, password, database, secure
	return pgx.ConnectConfig(ctx, c)
}

// my connects likewise.
func my(ctx context.Context, t *testing.T, e sim.DatabaseEndpoint, secure *tls.Config, user, password, database string) (*sql.Conn, error) {
	t.Helper()
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName, c.TLS = "tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)), user, password, database, secure
	c.Logger, c.Timeout = &mysql.NopLogger{}, 20*time.Second
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db.Conn(ctx)
}

// A cacheClient is a small client of Redis.
type cacheClient struct {
	net.Conn
	in *bufio.Reader
}

func cache(ctx context.Context, e sim.DatabaseEndpoint, secure *tls.Config) (*cacheClient, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)))
	if err != nil {
		return nil, err
	}
	if secure != nil {
		s := tls.Client(conn, secure)
		if err := s.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		conn = s
	}
	return &cacheClient{conn, bufio.NewReader(conn)}, nil
}

func (c *cacheClient) do(words ...string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, encode(words)); err != nil {
		return "", err
	}
	answer, err := decode(c.in)
	return strings.Join(answer, " "), err
}

// processes are those whose arguments or folder name one of the instance's folders.
func processes(t *testing.T, dirs ...string) []string {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, proc := range found {
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline")) // gone by now, or not ours
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		for _, dir := range dirs {
			if strings.Contains(string(cmdline), dir) || strings.HasPrefix(cwd, dir) {
				out = append(out, fmt.Sprintf("%s %q in %s", proc, cmdline, cwd))
				break
			}
		}
	}
	return out
}
