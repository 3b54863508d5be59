package azure

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const smallPostgres = `{"engine":"postgres","preset":"dev"}`

// A name that stays taken after a deletion is given up for the next, for the server
// and the vault alike; after some the job says so (failure kinds B1, B4, B7).
func TestHeldDatastoreNames(t *testing.T) {
	for name, c := range map[string]struct {
		service string
		family  job.ResourceType
		spec    string
		kind    string
	}{
		"a server's": {"postgresql", job.Datastore, smallPostgres, flexPostgres.server},
		"a vault's":  {"keyvault", job.Datastore, smallPostgres, kindVault},
		"MySQL's":    {"mysql", job.Datastore, `{"engine":"mysql","preset":"dev"}`, flexMySQL.server},
		"a cache's":  {"cache", job.Cache, `{"engine":"redis","preset":"dev","accessKeys":true}`, kindCache},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := datastores(t, c.family, c.spec)
			before := g.world.Snapshot()
			g.up()
			first := g.job.Config.InfraConfig.Datastore.Name
			g.down()
			g.another()
			g.fault(sim.Fault{Kind: sim.FaultNameHeld, Service: c.service, Count: -1})
			g.up()
			g.hit()
			info := g.job.Config.InfraConfig.Datastore
			if info.NameTries != 1 {
				t.Errorf("tried %d further names: %+v", info.NameTries, info)
			}
			if got := lastName(info.ID); c.kind != kindVault && got != first+"-1" {
				t.Errorf("it is called %s after %s", got, first)
			}
			g.down()
			g.equal(before)
		})
	}
}

// A name that is held is seen before anything is made, where the cloud can be asked.
func TestHeldNameIsSeenBeforehand(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, smallPostgres)
	g.up()
	g.down()
	g.fault(sim.Fault{Kind: sim.FaultNameHeld, Service: "postgresql", Count: -1})
	g.objects, g.job.Config.InfraConfig = map[string]job.Object{}, job.InfraConfig{}
	g.another()
	since := g.mark()
	if err := g.try(false, g.check); err != nil {
		t.Fatal(err)
	}
	if info := g.job.Config.InfraConfig.Datastore; info.NameTries != 1 || !strings.HasSuffix(info.Name, "-1") {
		t.Errorf("resolved %+v", info)
	}
	if _, changes := g.calls(since); len(onlyChanges(changes)) > 0 {
		t.Errorf("the check changed %v", changes)
	}
}

// onlyChanges leaves out what asks by POST.
func onlyChanges(all map[string]int) map[string]int {
	out := map[string]int{}
	for op, n := range all {
		if !strings.Contains(strings.ToLower(op), "availab") {
			out[op] = n
		}
	}
	return out
}

// A lock that somebody else set stops the teardown before its first deletion, and the
// job's own is none (failure kind E19).
func TestTheirLockOnADatastore(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, smallPostgres)
	before := g.world.Snapshot()
	g.up()
	id := g.job.Config.InfraConfig.Datastore.ID
	lock := id + "/providers/" + typeLock + "/theirs"
	g.put(lock, map[string]any{"properties": map[string]any{"level": "CanNotDelete", "notes": "audit"}})
	since := g.mark()
	err := g.try(true, g.steps(true)...)
	if f := fatal(err); f == nil || f.Problem.Code != "locked" || !strings.Contains(f.Problem.Message, "theirs") {
		t.Errorf("the teardown says %v", err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("the teardown changed %v", changes)
	}
	g.invoke("DELETE", lock, nil)
	g.down()
	g.equal(before)
}

// Read replicas that somebody added are named before anything is changed (O4).
func TestReplicasOfADatastore(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, `{"engine":"postgres","instanceType":"Standard_D2ds_v5"}`)
	g.up()
	id := g.job.Config.InfraConfig.Datastore.ID
	replica := parentOf(id) + "/flexibleServers/reader"
	g.put(replica, map[string]any{"location": "eastus2", "properties": map[string]any{"createMode": "Replica", "sourceServerResourceId": id}})
	g.world.Step(30 * time.Minute)
	since := g.mark()
	err := g.try(true, g.steps(true)...)
	if f := fatal(err); f == nil || f.Problem.Code != "blocked" || !strings.Contains(f.Problem.Message, "reader") {
		t.Errorf("the teardown says %v", err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("the teardown changed %v", changes)
	}
}

// Without the right to make locks the datastore is made all the same, with a warning,
// and the report says that the row was not looked at.
func TestNoRightToLock(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, smallPostgres)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "ManagementLocks_CreateOrUpdate", Code: "AuthorizationFailed", Status: 403, Count: -1, Message: "may not"})
	g.up()
	ic := g.job.Config.InfraConfig
	if ic.Datastore.DeletionProtection || len(ic.Warnings) != 1 || !strings.Contains(ic.Warnings[0], "no lock") {
		t.Errorf("warnings %v, %+v", ic.Warnings, ic.Datastore)
	}
	for _, c := range g.report() {
		if c.ID == "AZDB-29" && (c.Met || !c.Unchecked) {
			t.Errorf("row %+v", c)
		}
	}
	g.down()
	g.equal(before)
}

// A vault that may not be purged is left to the cloud, which says so, and the job ends.
func TestNoRightToPurge(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, smallPostgres)
	var notes []string
	g.events = func(e job.Event) { notes = append(notes, e.Message) }
	g.up()
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "Vaults_PurgeDeleted", Code: "AuthorizationFailed", Status: 403, Count: -1, Message: "may not"})
	g.down()
	if text := strings.Join(notes, "\n"); !strings.Contains(text, "may not be purged") {
		t.Errorf("nobody is told:\n%s", text)
	}
}

// A server that failed to come up stops the job with the cloud's reason; a retry
// replaces it, and a teardown takes no backup of it.
func TestFailedServer(t *testing.T) {
	for name, down := range map[string]bool{"retried": false, "torn down": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := datastores(t, job.Datastore, smallPostgres)
			before := g.world.Snapshot()
			g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "Servers_CreateOrUpdate", Seconds: 30, Code: "InternalServerError", Message: "the disk did not attach"})
			err := g.try(false, g.steps(false)...)
			if f := fatal(err); f == nil || !strings.Contains(f.Problem.Message, "the disk did not attach") {
				t.Fatalf("the job says %v", err)
			}
			g.hit()
			g.another()
			since := g.mark()
			if !down {
				g.up()
				g.allControlsMet()
			}
			g.down()
			if _, changes := g.calls(since); down && changes["Backups_CreateOrUpdate"] > 0 {
				t.Errorf("a server that never came up was backed up: %v", changes)
			}
			g.equal(before)
		})
	}
}

// What somebody changes of a server that was handed over is shown and never put back;
// a stopped one is neither started nor replaced, and what is kept of it is said.
func TestDatastoreDrift(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, smallPostgres)
	before := g.world.Snapshot()
	g.up()
	id := g.job.Config.InfraConfig.Datastore.ID
	g.turn("log_disconnections", "off")
	g.tamper(id, at("backup.backupRetentionDays", 3))
	attrs := map[string]bool{}
	for _, d := range g.drift() {
		attrs[d.Attr] = true
	}
	for _, want := range []string{"parameter log_disconnections", "backup retention in days"} {
		if !attrs[want] {
			t.Errorf("no drift of %s: %v", want, attrs)
		}
	}
	since := g.mark()
	g.another()
	g.up()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("a run changed %v", changes)
	}
	g.invoke("POST", id+"/stop", nil)
	g.world.Step(10 * time.Minute)
	g.another()
	since = g.mark()
	g.up()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("a run changed a stopped server: %v", changes)
	}
	g.another()
	g.down()
	kept := ""
	for _, o := range g.objects {
		if o.State == job.ObjectKept {
			kept += o.Reason
		}
	}
	if !strings.Contains(kept, "5 days") || !strings.Contains(kept, "revive-dropped") {
		t.Errorf("kept: %q", kept)
	}
	g.equal(before)
}

// The final backup is taken once, under the name that was chosen at the beginning, and
// the inventory says how long it is there and how it is restored (O1, O2).
func TestFinalBackup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec string
		took int
	}{{`{"engine":"mysql","size":{"vcpus":2,"memoryGiB":8}}`, 1}, {`{"engine":"mysql","preset":"dev","skipFinalSnapshot":true}`, 0}} {
		g := datastores(t, job.Datastore, c.spec)
		g.up()
		name := g.job.Config.InfraConfig.Datastore.FinalSnapshot
		if (name != "") != (c.took > 0) {
			t.Errorf("%s: the final backup is to be called %q", c.spec, name)
		}
		since := g.mark()
		g.down()
		if _, changes := g.calls(since); changes["Backups_CreateOrUpdate"] != c.took {
			t.Errorf("%s: %v", c.spec, changes)
		}
		rec, ok := g.objects[flexMySQL.backup+"/final"]
		if ok != (c.took > 0) || ok && (rec.State != job.ObjectKept || rec.Name != name || !strings.Contains(rec.Reason, "az mysql flexible-server restore")) {
			t.Errorf("%s: recorded %+v", c.spec, rec)
		}
	}
}

// The administrator's password is in the vault alone: not in what the job knows, not in
// its events, not in the inventory.
func TestPasswordIsNowhereElse(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, smallPostgres)
	var events []job.Event
	g.events = func(e job.Event) { events = append(events, e) }
	g.up()
	password, err := g.p.adminPassword(anything(t.Context()), g.job.Config.InfraConfig.Datastore.SecretID)
	if err != nil || len(password) < 24 {
		t.Fatalf("a password of %d characters, %v", len(password), err)
	}
	g.down()
	all, err := json.Marshal([]any{g.job, g.objects, events, g.world.Books(sim.BookFilter{Limit: 100000})})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(all), password) {
		t.Error("the password stands somewhere")
	}
}

// SQL gets to a datastore from inside of the network alone, over TLS that is verified.
func TestSQLAccess(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, smallPostgres)
	g.up()
	g.p.reach = job.Reach{Mode: job.ReachPublic}
	if check := g.p.CheckReach(g.job); check.Status != "fails" || !strings.Contains(check.Fix, "--reach direct") {
		t.Errorf("from outside: %+v", check)
	}
	if _, err := g.p.SQLAccess(t.Context(), g.job); fatal(err) == nil {
		t.Errorf("from outside: %v", err)
	}
	g.p.reach = job.Reach{Mode: job.ReachDirect}
	access, err := g.p.SQLAccess(t.Context(), g.job)
	if err != nil {
		t.Fatal(err)
	}
	info := g.job.Config.InfraConfig.Datastore
	if access.Engine != job.Postgres || access.Admin != job.DefaultAdmin || access.Server.TLS.InsecureSkipVerify || access.Server.TLS.ServerName != info.Name+".postgres.database.azure.com" || access.Server.TLS.RootCAs == nil {
		t.Errorf("access %+v, TLS %+v", access, access.Server.TLS)
	}
	ctx := anything(t.Context())
	if got, err := access.Server.Password(ctx); err != nil || got == "" {
		t.Errorf("the password: %v", err)
	}
	for range 2 { // both may be repeated
		if err := access.CreateDatabase(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
	}
	if !g.exists(info.ID + "/databases/shop") {
		t.Error("the database is not there")
	}
	if err := access.CreateDatabase(pipeline.WithGate(t.Context(), pipeline.ReadOnly), "other"); err == nil {
		t.Error("a database was made through a gate that lets nothing pass")
	}
	if access.DropDatabase != nil {
		t.Error("the lock on the server would refuse to drop a database over the control plane")
	}
}

// Without a lock, databases go over the control plane in both directions.
func TestSQLAccessWithoutALock(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, `{"engine":"mysql","preset":"dev","deletionProtection":false}`)
	g.up()
	access, err := g.p.SQLAccess(t.Context(), g.job)
	if err != nil {
		t.Fatal(err)
	}
	ctx, at := anything(t.Context()), g.job.Config.InfraConfig.Datastore.ID+"/databases/shop"
	if err := access.CreateDatabase(ctx, "shop"); err != nil || !g.exists(at) {
		t.Fatalf("the database is there: %v, %v", g.exists(at), err)
	}
	for range 2 {
		if err := access.DropDatabase(ctx, "shop"); err != nil || g.exists(at) {
			t.Fatalf("the database is there: %v, %v", g.exists(at), err)
		}
	}
}

// With access keys every client has the same one; without, a client is told whom to ask.
func TestCacheUsers(t *testing.T) {
	t.Parallel()
	for keys, spec := range map[bool]string{true: `{"engine":"redis","preset":"dev","accessKeys":true}`, false: `{"engine":"redis","preset":"dev","principals":["` + theirAdmins + `"]}`} {
		g := datastores(t, job.Cache, spec)
		g.up()
		since := g.mark()
		got, err := g.p.EnsureCacheUser(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.job, "app", "secret", job.ReadWrite)
		switch {
		case keys && (err != nil || !got.Shared || got.Password == "" || got.Password == "secret"):
			t.Errorf("with keys: shared %v, %v", got.Shared, err)
		case !keys && (fatal(err) == nil || !strings.Contains(fatal(err).Problem.Hint, "principals")):
			t.Errorf("without keys: %v", err)
		}
		if err := g.p.RemoveCacheUser(t.Context(), g.job, "app"); err != nil {
			t.Error(err)
		}
		if text := fmt.Sprint(g.world.Books(sim.BookFilter{Since: since, Limit: 1000})); keys && strings.Contains(text, got.Password) {
			t.Error("the key stands in the books")
		}
	}
}
