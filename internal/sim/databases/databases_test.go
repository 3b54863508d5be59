package databases

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/sim"
)

const adminPassword = "correct-horse-9"

func postgresSpec(id string) sim.DatabaseServer {
	return sim.DatabaseServer{
		ID: id, Engine: "postgres", Admits: insideOnly, Names: []string{"db.example.internal"}, RequireTLS: true,
		Admin: "zopadmin", Password: adminPassword, AdminRole: "rds_superuser",
	}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	d := instance(t, Options{})
	spec := postgresSpec("arn:pg")
	e := d.Open(spec)
	secure := verified(t, d.CA(), "db.example.internal")

	if conn, err := pg(t.Context(), e, secure, "zopadmin", adminPassword, "postgres"); err == nil {
		conn.Close(t.Context())
		t.Fatal("somebody outside was let in")
	}
	d.SetCaller(inside)
	conn, err := pg(t.Context(), e, secure, "zopadmin", adminPassword, "postgres") // while it starts
	if err != nil {
		t.Fatal(err)
	}
	settled(t, d, spec.ID)

	// The administrator is no superuser, and makes roles and databases all the same.
	var super, createdb, createrole bool
	if err := conn.QueryRow(t.Context(), "SELECT rolsuper, rolcreatedb, rolcreaterole FROM pg_roles WHERE rolname = current_user").Scan(&super, &createdb, &createrole); err != nil || super || !createdb || !createrole {
		t.Errorf("superuser %t, createdb %t, createrole %t, %v", super, createdb, createrole, err)
	}
	for _, statement := range []string{"CREATE ROLE app LOGIN", "GRANT app TO zopadmin", "CREATE DATABASE app OWNER app"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	for _, statement := range []string{"ALTER SYSTEM SET fsync = on", "COPY (SELECT 1) TO PROGRAM 'true'", "ALTER ROLE simulator PASSWORD 'x'"} {
		if _, err := conn.Exec(t.Context(), statement); err == nil || !isState(err, "42501") {
			t.Errorf("%s: %v; want permission denied", statement, err)
		}
	}

	for name, try := range map[string]struct {
		secure         *tls.Config
		user, password string
	}{
		"without TLS":           {nil, "zopadmin", adminPassword},
		"another name":          {verified(t, d.CA(), "db.example.com"), "zopadmin", adminPassword},
		"another authority":     {&tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12}, "zopadmin", adminPassword},
		"a wrong password":      {secure, "zopadmin", "wrong"},
		"no password":           {secure, "zopadmin", ""},
		"the simulation's user": {secure, superuser, ""},
	} {
		if c, err := pg(t.Context(), e, try.secure, try.user, try.password, "postgres"); err == nil {
			c.Close(t.Context())
			t.Errorf("connected with %s", name)
		}
	}
	for _, name := range []string{"127.0.0.1", "localhost"} {
		c, err := pg(t.Context(), e, verified(t, d.CA(), name), "zopadmin", adminPassword, "postgres")
		if err != nil {
			t.Errorf("as %s: %v", name, err)
			continue
		}
		c.Close(t.Context())
	}
	t.Run("control plane", func(t *testing.T) { postgresControl(t, d, spec, e, secure) })

	// What is open ends when the caller goes outside.
	d.SetCaller(sim.KubeCaller{})
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("an open connection outlived the caller's place")
	}
	if _, err := pg(t.Context(), e, secure, "zopadmin", adminPassword, "postgres"); err == nil {
		t.Error("somebody outside was let in")
	}
}

func postgresControl(t *testing.T, d *Databases, spec sim.DatabaseServer, e sim.DatabaseEndpoint, secure *tls.Config) {
	d.CreateDatabase(spec.ID, `odd "name'`)
	d.CreateDatabase(spec.ID, `odd "name'`)
	d.SetUser(spec.ID, sim.DatabaseUser{Name: "o'brien", Password: `p'w\"d`, Roles: []string{"rds_superuser"}})
	settled(t, d, spec.ID)
	databases, users, ok := d.Names(spec.ID)
	if want := []string{"app", `odd "name'`, "postgres"}; !ok || !slices.Equal(databases, want) {
		t.Errorf("databases %q, %t; want %q", databases, ok, want)
	}
	if want := []string{"app", "o'brien", "zopadmin"}; !slices.Equal(users, want) {
		t.Errorf("users %q; want %q", users, want)
	}
	c, err := pg(t.Context(), e, secure, "o'brien", `p'w\"d`, `odd "name'`)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), "CREATE TABLE t (n int); INSERT INTO t VALUES (7)"); err != nil {
		t.Error(err)
	}
	columns, rows, err := d.Query(t.Context(), spec.ID, `odd "name'`, "", "", "SELECT 1; SELECT n, NULL AS x FROM t")
	if err == nil || !isState(err, "42501") {
		t.Errorf("the administrator reads another's table: %v %v %v", columns, rows, err)
	}
	columns, rows, err = d.Query(t.Context(), spec.ID, `odd "name'`, "o'brien", `p'w\"d`, "SELECT 1; SELECT n, NULL AS x FROM t")
	if err != nil || !slices.Equal(columns, []string{"n", "x"}) || fmt.Sprint(rows) != "[[7 ]]" {
		t.Errorf("%q %q %v", columns, rows, err)
	}
	d.DropUser(spec.ID, "o'brien")
	settled(t, d, spec.ID)
	if err := c.Ping(t.Context()); err == nil {
		t.Error("a session outlived its user")
	}
	if _, rows, err := d.Query(t.Context(), spec.ID, `odd "name'`, "", "", "SELECT n FROM t"); err != nil || len(rows) != 1 {
		t.Errorf("what the user left: %v, %v", rows, err)
	}
	d.DropDatabase(spec.ID, `odd "name'`)
	d.DropDatabase(spec.ID, `odd "name'`)

	// Another password, and TLS as one likes.
	spec.Password, spec.RequireTLS = "another-1", false
	if again := d.Open(spec); again != e {
		t.Errorf("opened anew at %v, not %v", again, e)
	}
	settled(t, d, spec.ID)
	if _, err := pg(t.Context(), e, secure, "zopadmin", adminPassword, "postgres"); err == nil {
		t.Error("the old password still opens")
	}
	plain, err := pg(t.Context(), e, nil, "zopadmin", "another-1", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	plain.Close(t.Context())
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	d := instance(t, Options{Caller: inside})
	spec := sim.DatabaseServer{ID: "arn:my", Engine: "mysql", Admits: insideOnly, Names: []string{"my.example.internal"}, RequireTLS: true, Admin: "zopadmin", Password: adminPassword}
	e := d.Open(spec)
	settled(t, d, spec.ID)
	secure := verified(t, d.CA(), "my.example.internal")
	conn, err := my(t.Context(), t, e, secure, "zopadmin", adminPassword, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"CREATE DATABASE app", "CREATE USER 'app'@'%' IDENTIFIED BY 'x' REQUIRE SSL", "GRANT SELECT ON app.* TO 'app'@'%'"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	for _, statement := range []string{"SET GLOBAL max_connections = 5", "GRANT SUPER ON *.* TO 'app'@'%'", "GRANT ALL ON *.* TO 'app'@'%'", "SELECT 1 INTO OUTFILE '/tmp/x'", "SHUTDOWN"} {
		if _, err := conn.ExecContext(t.Context(), statement); err == nil {
			t.Errorf("%s: the administrator may", statement)
		}
	}
	for name, try := range map[string]struct {
		secure         *tls.Config
		user, password string
	}{
		"without TLS":      {nil, "zopadmin", adminPassword},
		"another name":     {verified(t, d.CA(), "my.example.com"), "zopadmin", adminPassword},
		"a wrong password": {secure, "zopadmin", "wrong"},
		"root":             {secure, "root", ""},
		"root without TLS": {nil, "root", ""},
		"simulator":        {secure, superuser, ""},
		"nobody":           {secure, "", ""},
	} {
		if _, err := my(t.Context(), t, e, try.secure, try.user, try.password, ""); err == nil {
			t.Errorf("connected with %s", name)
		}
	}

	d.CreateDatabase(spec.ID, "odd`na'me")
	d.SetUser(spec.ID, sim.DatabaseUser{Name: "o'brien", Password: `p'w\"d`})
	settled(t, d, spec.ID)
	if databases, users, ok := d.Names(spec.ID); !ok || !slices.Equal(databases, []string{"app", "odd`na'me"}) || !slices.Equal(users, []string{"app", "o'brien", "zopadmin"}) {
		t.Errorf("%q %q %t", databases, users, ok)
	}
	user, err := my(t.Context(), t, e, secure, "o'brien", `p'w\"d`, "")
	if err != nil {
		t.Fatal(err)
	}
	// The clouds' way to end a session.
	var thread int
	if err := user.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&thread); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("KILL %d", thread)); err == nil {
		t.Error("the administrator kills sessions without the cloud")
	}
	if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("CALL mysql.rds_kill(%d)", thread)); err != nil {
		t.Error(err)
	}
	if err := user.PingContext(t.Context()); err == nil {
		t.Error("a killed session lives")
	}
	d.DropUser(spec.ID, "o'brien")
	d.DropDatabase(spec.ID, "odd`na'me")
	columns, rows, err := d.Query(t.Context(), spec.ID, "app", "zopadmin", adminPassword, "CREATE TABLE t (n INT); INSERT INTO t VALUES (7), (NULL); SELECT n FROM t")
	if err != nil || !slices.Equal(columns, []string{"n"}) || fmt.Sprint(rows) != "[[7] []]" {
		t.Errorf("%q %q %v", columns, rows, err)
	}
	if databases, users, ok := d.Names(spec.ID); !ok || !slices.Equal(databases, []string{"app"}) || !slices.Equal(users, []string{"app", "zopadmin"}) {
		t.Errorf("%q %q %t", databases, users, ok)
	}

	d.SetCaller(sim.KubeCaller{})
	if err := conn.PingContext(t.Context()); err == nil {
		t.Error("an open connection outlived the caller's place")
	}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	d := instance(t, Options{Caller: inside})
	spec := sim.DatabaseServer{ID: "arn:cache", Engine: "redis", Admits: insideOnly, Names: []string{"cache.example.internal"}, RequireTLS: true}
	e := d.Open(spec)
	d.SetUser(spec.ID, sim.DatabaseUser{Name: "app", Password: "pw1", Roles: []string{"~app:* +@all"}})
	settled(t, d, spec.ID)
	secure := verified(t, d.CA(), "cache.example.internal")
	c, err := cache(t.Context(), e, secure)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.do("PING"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without a user: %v", err)
	}
	for _, step := range []struct{ command, want string }{
		{"AUTH app wrong", "WRONGPASS"}, {"AUTH app pw1", "OK"}, {"SET app:1 one", "OK"}, {"GET app:1", "one"},
		{"SET other 1", "NOPERM"}, {"CONFIG GET dir", "NOPERM"}, {"SHUTDOWN", "NOPERM"}, {"ACL SETUSER app +@all", "NOPERM"},
	} {
		answer, err := c.do(strings.Fields(step.command)...)
		if err != nil {
			answer = err.Error()
		}
		if !strings.HasPrefix(answer, step.want) {
			t.Errorf("%s: %s; want %s", step.command, answer, step.want)
		}
	}
	if plain, err := cache(t.Context(), e, nil); err == nil {
		if _, err := plain.do("PING"); err == nil {
			t.Error("an answer without TLS")
		}
		plain.Close()
	}
	if _, users, ok := d.Names(spec.ID); !ok || !slices.Equal(users, []string{"app", "default"}) {
		t.Errorf("users %q, %t", users, ok)
	}
	d.DropUser(spec.ID, "app")
	spec.RequireTLS, spec.Password = false, "shared"
	d.Open(spec)
	settled(t, d, spec.ID)
	if _, err := c.do("PING"); err == nil {
		t.Error("a session outlived its user")
	}
	for _, s := range []*tls.Config{nil, secure} {
		c, err := cache(t.Context(), e, s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.do("AUTH", "shared"); err != nil {
			t.Error(err)
		}
		c.Close()
	}
}
