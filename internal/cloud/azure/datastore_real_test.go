package azure

import (
	"bufio"
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
	"github.com/zopday/provisioner/internal/sim/databases"
)

// realStores is a rig whose datastores and caches have servers behind, reached from
// inside the network.
func realStores(t *testing.T, family job.ResourceType, spec string) (*rig, *databases.Databases) {
	t.Helper()
	d, err := databases.New(databases.Options{Caller: sim.KubeCaller{IP: netip.MustParseAddr("10.40.0.4"), Inside: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Shutdown)
	g := newRigWith(t, sim.Options{TimeScale: quick}, simazure.Options{Databases: d}, family, job.ModeCreate, spec)
	g.p.reach = job.Reach{Mode: job.ReachDirect}
	g.p.roots = append(g.p.roots, d.CA()...)
	return g, d
}

// soon waits for a server of this machine, which comes up in real time.
func soon(t *testing.T, what string, do func() error) {
	t.Helper()
	var err error
	for range 300 {
		if err = do(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s: %v", what, err)
}

func connectPostgres(ctx context.Context, access cloud.SQLAccess, database string) (*pgx.Conn, error) {
	password, err := access.Server.Password(ctx)
	if err != nil {
		return nil, err
	}
	c, err := pgx.ParseConfig("sslmode=require")
	if err != nil {
		return nil, err
	}
	c.Host, c.Port, c.User, c.Password, c.Database, c.TLSConfig, c.Fallbacks = access.Server.Host, uint16(access.Server.Port), access.Admin, password, database, access.Server.TLS, nil
	return pgx.ConnectConfig(ctx, c)
}

// The administrator gets to a real PostgreSQL with the password that is in the vault
// alone, over TLS that is verified, and only from inside the network; a database that
// the control plane made is there.
func TestSQLOnPostgres(t *testing.T) {
	t.Parallel()
	g, d := realStores(t, job.Datastore, smallPostgres)
	g.up()
	access, err := g.p.SQLAccess(t.Context(), g.job)
	if err != nil {
		t.Fatal(err)
	}
	ctx := anything(t.Context())
	soon(t, "connection", func() error {
		c, err := connectPostgres(ctx, access, "postgres")
		if err == nil {
			err = c.Close(ctx)
		}
		return err
	})
	soon(t, "database", func() error { return access.CreateDatabase(ctx, "shop") })
	soon(t, "connection to the database", func() error {
		c, err := connectPostgres(ctx, access, "shop")
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		var name string
		if err := c.QueryRow(ctx, "select current_database()").Scan(&name); err != nil || name != "shop" {
			return fmt.Errorf("it is %q: %w", name, err)
		}
		return nil
	})
	wrong := access.Server.TLS.Clone()
	wrong.ServerName = "elsewhere.example.com"
	bad := access
	bad.Server = &cloud.SQLServer{Host: access.Server.Host, Port: access.Server.Port, TLS: wrong, Password: access.Server.Password}
	if c, err := connectPostgres(ctx, bad, "postgres"); err == nil {
		_ = c.Close(ctx)
		t.Error("a server of another name was taken for it")
	}
	d.SetCaller(sim.KubeCaller{IP: netip.MustParseAddr("203.0.113.7")})
	if c, err := connectPostgres(ctx, access, "postgres"); err == nil {
		_ = c.Close(ctx)
		t.Error("it can be reached from outside of the network")
	}
	g.down()
}

// The same of MySQL.
func TestSQLOnMySQL(t *testing.T) {
	t.Parallel()
	g, _ := realStores(t, job.Datastore, `{"engine":"mysql","preset":"dev"}`)
	g.up()
	access, err := g.p.SQLAccess(t.Context(), g.job)
	if err != nil {
		t.Fatal(err)
	}
	ctx := anything(t.Context())
	soon(t, "database", func() error { return access.CreateDatabase(ctx, "shop") })
	soon(t, "connection", func() error {
		password, err := access.Server.Password(ctx)
		if err != nil {
			return err
		}
		c := mysql.NewConfig()
		c.Net, c.Addr, c.User, c.Passwd, c.DBName, c.TLS = "tcp", net.JoinHostPort(access.Server.Host, strconv.Itoa(access.Server.Port)), access.Admin, password, "shop", access.Server.TLS
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return err
		}
		db := sql.OpenDB(connector)
		defer db.Close()
		var name string
		if err := db.QueryRowContext(ctx, "select database()").Scan(&name); err != nil || name != "shop" {
			return fmt.Errorf("it is %q: %w", name, err)
		}
		return nil
	})
	g.down()
}

// A client of a real cache gets in with the key that everybody has, over TLS alone.
func TestClientOfACache(t *testing.T) {
	t.Parallel()
	g, _ := realStores(t, job.Cache, `{"preset":"dev","accessKeys":true}`)
	g.up()
	ctx := anything(t.Context())
	key, err := g.p.EnsureCacheUser(ctx, g.job, "app", "", job.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	info := g.job.Config.InfraConfig.Datastore
	roots, err := g.p.sqlRoots()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(password string) (string, error) {
		c, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}).DialContext(ctx, "tcp", net.JoinHostPort(info.Host, strconv.Itoa(info.Port)))
		if err != nil {
			return "", err
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "AUTH %s\r\nPING\r\n", password); err != nil {
			return "", err
		}
		in := bufio.NewReader(c)
		first, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(first, "+OK") {
			return first, err
		}
		return in.ReadString('\n')
	}
	soon(t, "answer", func() error {
		got, err := ask(key.Password)
		if err == nil && !strings.HasPrefix(got, "+PONG") {
			err = fmt.Errorf("it says %q", got)
		}
		return err
	})
	if got, err := ask("guess"); err != nil || strings.HasPrefix(got, "+") {
		t.Errorf("with another key it says %q, %v", got, err)
	}
	g.down()
}
