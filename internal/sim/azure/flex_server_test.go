package azure

import (
	"slices"
	"strings"
	"testing"
	"time"

	pg "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/databases"
)

// ready waits until the real server behind a resource answers.
func ready(t *testing.T, servers *databases.Databases, id string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ok, err := servers.Ready(id)
		switch {
		case err != nil:
			t.Fatal(err)
		case ok:
			return
		case time.Now().After(deadline):
			t.Fatalf("%s is not ready", id)
		}
	}
}

// TestRealPostgres: what the control plane makes is in the server, what SQL makes is in the control plane, and the administrator has
// the password that was last set.
func TestRealPostgres(t *testing.T) {
	t.Parallel()
	servers := must(databases.New(databases.Options{Caller: sim.KubeCaller{Inside: true}}))(t)
	t.Cleanup(servers.Shutdown)
	g := newRig(t)
	g.cloud.opt.Databases = servers
	g.group("rg")
	made, err := g.makePG("db1")
	if err != nil {
		t.Fatal(err)
	}
	ready(t, servers, *made.ID)
	dbs := g.pg().NewDatabasesClient()
	p, err := dbs.BeginCreate(g.ctx, "rg", "db1", "orders", pg.Database{}, nil)
	done(g, p, err)
	query := func(password, statements string) (string, error) {
		_, rows, err := servers.Query(g.ctx, *made.ID, "postgres", "zopadmin", password, statements)
		var out []string
		for _, row := range rows {
			out = append(out, strings.Join(row, " "))
		}
		return strings.Join(out, ","), err
	}
	if got, err := query(testPassword, "select datname from pg_database where datname = 'orders'"); err != nil || got != "orders" {
		t.Errorf("in the server: %q %v", got, err)
	}
	if got, err := query(testPassword, "select pg_has_role('azure_pg_admin', 'member'), rolsuper from pg_roles where rolname = current_user"); err != nil || got != "t f" {
		t.Errorf("the administrator: %q %v", got, err)
	}
	if _, err := query(testPassword, "create database by_sql"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1600 * time.Millisecond) // what is in a server is looked up once a second
	var names []string
	for pages := dbs.NewListByServerPager("rg", "db1", nil); pages.More(); {
		for _, d := range must(pages.NextPage(g.ctx))(t).Value {
			names = append(names, *d.Name)
		}
	}
	if !slices.Contains(names, "by_sql") || slices.Contains(names, "template1") {
		t.Errorf("listed %v", names)
	}
	u, err := g.pg().NewServersClient().BeginUpdate(g.ctx, "rg", "db1", pg.ServerForPatch{Properties: &pg.ServerPropertiesForPatch{AdministratorLoginPassword: new("An0ther-one!")}}, nil)
	done(g, u, err)
	ready(t, servers, *made.ID)
	if _, err := query("An0ther-one!", "select 1"); err != nil {
		t.Errorf("with the new password: %v", err)
	}
	d, err := g.pg().NewServersClient().BeginDelete(g.ctx, "rg", "db1", nil)
	done(g, d, err)
	if _, err := query("An0ther-one!", "select 1"); err == nil {
		t.Error("the server answers after its deletion")
	}
}
