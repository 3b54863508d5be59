package gcp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/api/secretmanager/v1"
	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/databases"
)

// newRealSQL is newSQL with real servers, whose callers stand inside.
func newRealSQL(t *testing.T) *sqlRig {
	t.Helper()
	servers, err := databases.New(databases.Options{Caller: sim.KubeCaller{Inside: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Shutdown)
	g := &sqlRig{rig: newRigWith(t, Options{Databases: servers})}
	g.Service = client(g.rig, sqladmin.NewService)
	return g
}

// really steps the clock until an operation is done, and gives the servers time.
func (g *sqlRig) really(op *sqladmin.Operation, err error) {
	g.t.Helper()
	for deadline := time.Now().Add(time.Minute); err == nil && op.Status != "DONE" && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		g.world.Step(10 * time.Second)
		op, err = g.Operations.Get(testProject, op.Name).Do()
	}
	if err != nil || op.Status != "DONE" || op.Error != nil {
		g.t.Fatalf("operation: %+v, %v", op, err)
	}
}

// secret keeps a password in a regional secret, and answers its version.
func (g *sqlRig) secret(id, password string) string {
	g.t.Helper()
	secrets := client(g.rig, secretmanager.NewService).Projects.Locations.Secrets
	const parent = "projects/" + testProject + "/locations/europe-west1"
	if _, err := secrets.Create(parent, &secretmanager.Secret{}).SecretId(id).Do(); err != nil {
		g.t.Fatal(err)
	}
	v, err := secrets.AddVersion(parent+"/secrets/"+id, &secretmanager.AddSecretVersionRequest{Payload: &secretmanager.SecretPayload{Data: base64.StdEncoding.EncodeToString([]byte(password))}}).Do()
	if err != nil {
		g.t.Fatal(err)
	}
	return v.Name
}

// run runs a statement, and answers its rows as one text.
func (g *sqlRig) run(user, secret, database, statement string) string {
	g.t.Helper()
	out, err := g.Instances.ExecuteSql(testProject, "shop-db", &sqladmin.ExecuteSqlPayload{User: user, PasswordSecretVersion: secret, Database: database, SqlStatement: statement}).Do()
	if err != nil {
		g.t.Fatalf("%s: %v", statement, err)
	}
	if out.Status != nil && out.Status.Message != "" {
		return "error: " + out.Status.Message
	}
	var rows []string
	for _, row := range out.Results[0].Rows {
		for _, v := range row.Values {
			rows = append(rows, v.Value)
		}
	}
	return strings.Join(rows, ",")
}

// TestRealPostgres: an instance's endpoint leads to a real PostgreSQL server, and the control plane's users and databases are in it.
func TestRealPostgres(t *testing.T) {
	t.Parallel()
	g := newRealSQL(t)
	g.really(g.Instances.Insert(testProject, postgresInstance(g.peered("shop", 20))).Do())
	g.really(g.Databases.Insert(testProject, "shop-db", &sqladmin.Database{Name: "orders"}).Do())
	g.really(g.Users.Insert(testProject, "shop-db", &sqladmin.User{Name: "boss", Password: "pw-boss"}).Do())
	boss := g.secret("boss", "pw-boss")
	if got := g.run("boss", boss, "orders", "SELECT pg_has_role('boss', 'cloudsqlsuperuser', 'member'), rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user"); got != "true,false,true" && got != "t,f,t" {
		t.Errorf("a user that the API made: %s", got)
	}
	if got := g.run("boss", boss, "orders", "CREATE ROLE app LOGIN PASSWORD 'pw-app'; CREATE SCHEMA shop; CREATE TABLE shop.t (n int); GRANT app TO boss; GRANT ALL ON SCHEMA shop TO app; ALTER TABLE shop.t OWNER TO app"); strings.HasPrefix(got, "error: ") {
		t.Errorf("statements of a user that the API made: %s", got)
	}
	if got := g.run("boss", g.secret("wrong", "nonsense"), "orders", "SELECT 1"); !strings.Contains(got, "password authentication failed") {
		t.Errorf("a wrong password: %s", got)
	}
	time.Sleep(1100 * time.Millisecond) // the view of a server is a second old at most
	g.world.Step(time.Minute)
	users, err := g.Users.List(testProject, "shop-db").Do()
	names := ""
	for _, u := range users.Items {
		names += u.Name + " "
	}
	if err != nil || names != "postgres boss app " {
		t.Errorf("users: %s, %v", names, err)
	}
	_, err = g.Users.Delete(testProject, "shop-db").Name("app").Do()
	if err == nil || !strings.Contains(err.Error(), `role "app" cannot be dropped because some objects depend on it Details: 2 objects in database orders`) {
		t.Errorf("deletion of a user that owns something: %v", err)
	}
	g.connectsWithTLS()
}

// connectsWithTLS connects as boss to the database orders: not without TLS, with it by the authority that the API shows. A database that
// somebody is connected to is not dropped.
func (g *sqlRig) connectsWithTLS() {
	t := g.t
	t.Helper()
	in, err := g.Instances.Get(testProject, "shop-db").Do()
	if err != nil {
		t.Fatal(err)
	}
	conf, err := pgx.ParseConfig(fmt.Sprintf("postgres://boss:pw-boss@%s/orders?sslmode=disable", in.IpAddresses[0].IpAddress))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if c, err := pgx.ConnectConfig(ctx, conf); err == nil {
		_ = c.Close(ctx)
		t.Error("a connection without TLS was let in")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(in.ServerCaCert.Cert)) {
		t.Fatalf("serverCaCert: %q", in.ServerCaCert.Cert)
	}
	conf.TLSConfig = &tls.Config{RootCAs: roots, ServerName: conf.Host, MinVersion: tls.VersionTLS12}
	c, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Databases.Delete(testProject, "shop-db", "orders").Do()
	if err == nil || !strings.Contains(err.Error(), "is being accessed by other users") {
		t.Errorf("deletion of a database in use: %v", err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestRealMySQL is TestRealPostgres for MySQL, whose server is a MariaDB.
func TestRealMySQL(t *testing.T) {
	t.Parallel()
	g := newRealSQL(t)
	in := postgresInstance(g.peered("shop", 20))
	in.DatabaseVersion = "MYSQL_8_4"
	in.Settings.BackupConfiguration = &sqladmin.BackupConfiguration{Enabled: true, BinaryLogEnabled: true}
	in.Settings.DatabaseFlags = []*sqladmin.DatabaseFlags{{Name: "local_infile", Value: "off"}}
	g.really(g.Instances.Insert(testProject, in).Do())
	g.really(g.Databases.Insert(testProject, "shop-db", &sqladmin.Database{Name: "orders"}).Do())
	g.really(g.Users.Insert(testProject, "shop-db", &sqladmin.User{Name: "boss", Host: "%", Password: "pw-boss"}).Do())
	if got := g.run("boss", g.secret("boss", "pw-boss"), "", "SELECT current_user()"); got != "boss@%" {
		t.Errorf("a user that the API made: %s", got)
	}
	if got := g.run("root", g.secret("root", "s3cret-root"), "orders", "CREATE TABLE t (n int); SELECT count(*) FROM t"); got != "0" {
		t.Errorf("the administrator: %s", got)
	}
	g.really(g.Users.Delete(testProject, "shop-db").Name("boss").Host("%").Do())
	if got := g.run("boss", "projects/"+testProject+"/locations/europe-west1/secrets/boss/versions/1", "", "SELECT 1"); !strings.HasPrefix(got, "error: ") {
		t.Errorf("a user that was deleted: %s", got)
	}
}

// TestSQLRestored: servers are opened again when a saved state is taken up.
func TestSQLRestored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := func() (*sqlRig, func() error) {
		db := &fakeDatabases{servers: map[string]sim.DatabaseServer{}, stopped: map[string]bool{}}
		w := sim.New(sim.Options{Seed: 1, ConsistencyByID: -1, ConsistencyByList: -1, EmptyPages: -1})
		cloud := New(w, Options{Databases: db})
		stop, err := w.Persist(context.Background(), dir)
		if err != nil {
			t.Fatal(err)
		}
		w.Clock.Stop()
		srv := httptest.NewServer(cloud)
		t.Cleanup(srv.Close)
		g := &sqlRig{rig: &rig{t: t, world: w, cloud: cloud, url: srv.URL, token: "ya29.example"}, db: db}
		g.Service = client(g.rig, sqladmin.NewService)
		return g, stop
	}
	g, stop := begin()
	g.well(g.Instances.Insert(testProject, postgresInstance(g.peered("shop", 20))).Do())
	g.well(g.Users.Insert(testProject, "shop-db", &sqladmin.User{Name: "app", Password: "p1"}).Do())
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	g, stop = begin()
	if server := g.db.only(t); server.Password != "s3cret-root" {
		t.Errorf("server: %+v", server)
	}
	if len(g.db.calls) != 1 || g.db.calls[0] != "set user app p1 [cloudsqlsuperuser]" {
		t.Errorf("the server was told %q", g.db.calls)
	}
	if in, err := g.Instances.Get(testProject, "shop-db").Do(); err != nil || in.State != "RUNNABLE" || in.IpAddresses[0].IpAddress != "127.0.0.1:20001" {
		t.Errorf("instance: %+v, %v", in, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
