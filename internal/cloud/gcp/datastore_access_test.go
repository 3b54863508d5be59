package gcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Databases and users of MySQL go over the control plane; nobody but the
// administrator is a member of cloudsqlsuperuser, and MySQL's root is gone.
func TestSQLAccess(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Datastore, job.ModeCreate, mysqlSpec)
	g.up()
	access, err := g.p.SQLAccess(t.Context(), g.job)
	if err != nil || access.Server != nil || access.Query == nil || access.SetUser == nil || access.Admin != job.DefaultAdmin {
		t.Fatalf("%+v, %v", access, err)
	}
	if c := g.p.CheckReach(g.job); c.Status != cloud.CheckOK || !strings.Contains(c.Message, "Data API") {
		t.Errorf("reach: %+v", c)
	}
	if err := access.CreateDatabase(t.Context(), "orders"); !pipeline.Is(err, pipeline.Refused) {
		t.Errorf("without a gate: %v", err)
	}
	ctx := anything(t.Context())
	for range 2 { // each may be repeated
		g.eventually("create", func() error { return access.CreateDatabase(ctx, "orders") })
		g.eventually("set user", func() error { return access.SetUser(ctx, "orders_rw", "first") })
	}
	users, err := send(t.Context(), g.p.data.sql.Users.List(testProject, g.store().Name))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, u := range users.Items {
		names[u.Name] = u.DatabaseRoles
	}
	if _, root := names["root"]; root {
		t.Error("root is there")
	}
	if roles, there := names["orders_rw"]; !there || slices.Contains(roles, "cloudsqlsuperuser") {
		t.Errorf("the user has roles %v", roles)
	}
	for range 2 {
		g.eventually("drop user", func() error { return access.DropUser(ctx, "orders_rw") })
		g.eventually("drop", func() error { return access.DropDatabase(ctx, "orders") })
	}
	g.secretless()
}

// eventually repeats what waits, as the engine does.
func (g dataRig) eventually(what string, do func() error) {
	g.Helper()
	for range 50 {
		err := do()
		if err == nil {
			return
		}
		if !pipeline.IsWait(err) {
			g.Fatalf("%s: %v", what, err)
		}
		g.world.Step(5 * time.Second)
	}
	g.Fatalf("%s: never done", what)
}

// secretless wants no password in what is kept or told.
func (g dataRig) secretless() {
	g.Helper()
	password, err := g.p.readSecret(g.Context(), g.store().SecretID)
	if err != nil || len(password) < 20 {
		g.Fatalf("the password has %d characters, %v", len(password), err)
	}
	config, err := json.Marshal(g.job)
	if err != nil || strings.Contains(string(config), password) {
		g.Errorf("the password is in the job, or it cannot be read: %v", err)
	}
	for _, e := range g.events {
		if strings.Contains(e.Message, password) {
			g.Errorf("the password is in an event: %s", e.Type)
		}
	}
}

// What only reads passes a verify; anything else asks the gates of changes.
func TestStatementsThatOnlyRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"SELECT 1": true, " select a from b; SELECT 2;": true, "SHOW DATABASES": true,
		"SET search_path TO pg_catalog; SELECT 1": true, "SET role x; SELECT 1": false,
		"CREATE ROLE x": false, "SELECT 1; DROP DATABASE x": false, "SELECT pg_terminate_backend(1)": false, "SELECT 1 INTO x": false, "": false,
	} {
		if got := readsOnly(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	g := newData(t, job.Datastore, job.ModeCreate, postgresSpec)
	g.up()
	access, err := g.p.SQLAccess(t.Context(), g.job)
	if err != nil || access.SetUser != nil {
		t.Fatalf("%+v, %v", access, err)
	}
	ctx := pipeline.WithGate(context.Background(), pipeline.ReadOnly)
	if _, err := access.Query(ctx, "postgres", "CREATE ROLE x"); !pipeline.Is(err, pipeline.Refused) {
		t.Errorf("a change in a verify: %v", err)
	}
	if _, err := access.Query(ctx, "postgres", "SELECT 1"); pipeline.Is(err, pipeline.Refused) {
		t.Errorf("a query in a verify: %v", err)
	}
}

// Every connection to a cache of Redis shares its AUTH string.
func TestCacheUsers(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Cache, job.ModeCreate, redisSpec)
	g.up()
	got, err := g.p.EnsureCacheUser(t.Context(), g.job, "shop", "unused", job.ReadWrite)
	if err != nil || !got.Shared || got.User != defaultUser || len(got.Password) < 8 || got.Password == "unused" {
		t.Errorf("%v, %v", got.Shared, err)
	}
	if err := g.p.RemoveCacheUser(t.Context(), g.job, "shop"); err != nil {
		t.Error(err)
	}
	undo := g.patch(g.store().ID, `{"authEnabled":false}`)
	if _, err := g.p.EnsureCacheUser(t.Context(), g.job, "shop", "", job.ReadWrite); err == nil {
		t.Error("a cache without AUTH gave a credential")
	}
	undo()
}
