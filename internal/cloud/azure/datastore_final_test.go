package azure

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const (
	plainPostgres    = `{"engine":"postgres","preset":"production"}`
	forgoingPostgres = `{"engine":"postgres","preset":"production","skipFinalSnapshot":true}`
)

// finals is how many final backups a teardown took, and what the inventory says of it.
func (g *rig) finals(since int) (int, job.Object) {
	g.Helper()
	_, changes := g.calls(since)
	return changes["Backups_CreateOrUpdate"], g.objects[flexPostgres.backup+"/"+finalKey]
}

// Whether a final backup is taken is what the spec says when the datastore is deleted,
// not what it said when it was made.
func TestFinalBackupIsDecidedAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		took          int
	}{"asked for later": {forgoingPostgres, plainPostgres, 1}, "given up later": {plainPostgres, forgoingPostgres, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := datastores(t, job.Datastore, c.before)
			g.up()
			g.job.Config.Spec = json.RawMessage(c.after)
			since := g.mark()
			g.down()
			took, rec := g.finals(since)
			if took != c.took || (rec.State == job.ObjectKept) != (took > 0) {
				t.Errorf("took %d, recorded %+v", took, rec)
			}
			if name := g.job.Config.InfraConfig.Datastore.FinalSnapshot; took > 0 && (name == "" || rec.Name != name) {
				t.Errorf("the final backup is called %q and recorded as %q", name, rec.Name)
			}
		})
	}
}

// A server that is about to settle gets its final backup once it has.
func TestFinalBackupOfAServerOnItsWay(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"Updating", "Starting"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			g := datastores(t, job.Datastore, plainPostgres)
			g.up()
			id := g.job.Config.InfraConfig.Datastore.ID
			into := func(state string) {
				if _, err := g.world.SetObjectState(id, state, "", ""); err != nil {
					t.Fatal(err)
				}
			}
			into(state)
			r := g.run(pipeline.Apply)
			r.Down = true
			since := g.mark()
			if err := g.p.RemoveDatastore(anything(t.Context()), r); !pipeline.IsWait(err) || !strings.Contains(err.Error(), "to settle ("+state) {
				t.Errorf("while it is %s: %v", state, err)
			}
			if took, _ := g.finals(since); took > 0 || !g.exists(id) {
				t.Errorf("took %d while it is %s, and the server is there: %v", took, state, g.exists(id))
			}
			into("Ready")
			g.down()
			if took, rec := g.finals(since); took != 1 || rec.State != job.ObjectKept {
				t.Errorf("took %d, recorded %+v", took, rec)
			}
		})
	}
}

// A final backup that is refused keeps the server, and says what to do; only where the
// service has none on demand are the automatic ones enough.
func TestFinalBackupRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec, code string
		status     int
		verdict    string // "": deleted all the same
		hint       string
	}{
		"no right":            {plainPostgres, "AuthorizationFailed", 403, "permission-denied", "Microsoft.DBforPostgreSQL/flexibleServers/backups/write"},
		"too many":            {plainPostgres, "MaxOnDemandBackupLimitReached", 400, "too-many-backups", "flexible-server backup list"},
		"something wrong":     {plainPostgres, "InvalidParameterValue", 400, "backup-refused", "skipFinalSnapshot"},
		"none on its tier":    {smallPostgres, "InvalidParameterValue", 400, "", ""},
		"no right, burstable": {smallPostgres, "AuthorizationFailed", 403, "permission-denied", "skipFinalSnapshot to true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := datastores(t, job.Datastore, c.spec)
			g.up()
			id := g.job.Config.InfraConfig.Datastore.ID
			if class := g.job.Config.InfraConfig.Datastore.Class; strings.HasPrefix(class, "Standard_B") != (c.spec == smallPostgres) {
				t.Fatalf("it is a %s", class)
			}
			g.fault(sim.Fault{Kind: sim.FaultError, Service: "postgresql", Operation: "Backups_CreateOrUpdate", Code: c.code, Status: c.status, Count: 1000, Message: "no backup today"})
			g.another()
			_, down := g.datastoreSteps()
			err := g.try(true, down...)
			g.hit()
			if c.verdict == "" {
				if err != nil || g.exists(id) {
					t.Fatalf("%v; the server is there: %v", err, g.exists(id))
				}
				return
			}
			if f := fatal(err); f == nil || f.Problem.Code != c.verdict || !strings.Contains(f.Problem.Hint, c.hint) || !strings.Contains(f.Problem.Message, "nothing was deleted") {
				t.Fatalf("the verdict is %v", err)
			}
			if !g.exists(id) {
				t.Fatal("the server is gone")
			}
			g.job.Config.Spec = json.RawMessage(forgoingPostgres)
			g.down()
		})
	}
}

// A server that never settles stops the teardown, and is not deleted without a backup.
func TestFinalBackupOfAServerThatNeverSettles(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, plainPostgres)
	g.up()
	r := g.run(pipeline.Apply)
	r.Down = true
	var x resource[flexible]
	x.Name, x.is.Properties.State = "shop", "Updating"
	r.Remember("since the server to settle before its final backup", time.Now().Add(-time.Hour))
	_, err := g.p.backedUp(t.Context(), r, serverDesign{}, x)
	if f := fatal(err); f == nil || f.Problem.Code != "timed-out" || f.Problem.Field != skipField || !strings.Contains(f.Problem.Message, "nothing was deleted") {
		t.Errorf("the verdict is %v", err)
	}
}

// Nobody gets the key with all rights as a credential that only reads.
func TestCacheUsersThatOnlyRead(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Cache, `{"engine":"redis","preset":"dev","accessKeys":true}`)
	g.up()
	got, err := g.p.EnsureCacheUser(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.job, "app", "", job.ReadOnly)
	if f := fatal(err); f == nil || f.Problem.Code != "not-offered" || !strings.Contains(f.Problem.Hint, "read_write") || got.Password != "" {
		t.Errorf("%v", err)
	}
}
