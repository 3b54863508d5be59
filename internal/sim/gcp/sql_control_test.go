package gcp

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/sim"
)

// TestSQLControl: what stands behind the control API knows the instances: somebody else's are placed, driven and taken away.
func TestSQLControl(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	if _, err := g.cloud.Invoke("sqladmin", "instances.insert", testProject, "", map[string]any{"name": "theirs", "region": "europe-west1", "databaseVersion": "POSTGRES_17",
		"settings": map[string]any{"tier": "db-custom-2-7680", "edition": "ENTERPRISE", "userLabels": map[string]any{"team": "red"}}}); err != nil {
		t.Fatal(err)
	}
	id := "projects/" + testProject + "/instances/theirs"
	g.world.Lock()
	kinds := map[string]int{}
	for _, o := range g.cloud.sql.Objects() {
		kinds[o.Kind]++
		if o.ID == id && (o.State != "RUNNABLE" || o.Tags["team"] != "red") {
			t.Errorf("object: %+v", o)
		}
	}
	if kinds["sql-instance"] != 1 || kinds["sql-database"] != 1 || kinds["sql-user"] != 1 {
		t.Errorf("objects: %v", kinds)
	}
	if err := g.cloud.sql.SetState(id, "SUSPENDED", "", ""); err != nil {
		t.Error(err)
	}
	if err := g.cloud.sql.SetState(id, "SLEEPING", "", ""); err == nil {
		t.Error("an instance was put to sleep")
	}
	g.world.Unlock()
	_, err := g.Databases.List(testProject, "theirs").Do()
	refused(t, err, 400, "invalid")
	if len(g.db.stopped) != 1 {
		t.Error("the server of a suspended instance was not stopped")
	}
	g.world.Lock()
	if err := g.cloud.sql.SetState(id, "RUNNABLE", "", ""); err != nil {
		t.Error(err)
	}
	if err := g.cloud.sql.Remove(id); err != nil {
		t.Error(err)
	}
	g.world.Unlock()
	_, err = g.Instances.Get(testProject, "theirs").Do()
	refused(t, err, 404, "instanceDoesNotExist")
	if len(g.db.servers) != 0 {
		t.Error("the server of an instance that was taken away is still open")
	}
}

// TestSQLFaults: no capacity, an instance that is not seen yet, and a server that is not ready.
func TestSQLFaults(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	network := g.peered("shop", 20)
	if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultCapacity, Cloud: "gcp", Service: "sqladmin"}); err != nil {
		t.Fatal(err)
	}
	op := g.ends(g.Instances.Insert(testProject, postgresInstance(network)).Do())
	if op.Error == nil || op.Error.Errors[0].Code != "ZONE_RESOURCE_POOL_EXHAUSTED" || !strings.Contains(op.Error.Errors[0].Message, "does not have enough resources available") {
		t.Fatalf("an instance without capacity: %+v", op)
	}
	g.well(g.Instances.Patch(testProject, "shop-db", &sqladmin.DatabaseInstance{Settings: &sqladmin.Settings{ForceSendFields: []string{"DeletionProtectionEnabled"}}}).Do())
	g.well(g.Instances.Delete(testProject, "shop-db").Do())
	if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultHidden, Cloud: "gcp", Match: "shop-db", Seconds: 60}); err != nil {
		t.Fatal(err)
	}
	g.db.notYet = true
	op, err := g.Instances.Insert(testProject, postgresInstance(network)).Do()
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Instances.Get(testProject, "shop-db").Do()
	refused(t, err, 404, "instanceDoesNotExist")
	for range 10 {
		g.world.Step(2 * time.Minute)
	}
	if op, err = g.Operations.Get(testProject, op.Name).Do(); err != nil || op.Status != "RUNNING" {
		t.Errorf("an instance whose server is not ready: %+v, %v", op, err)
	}
	g.db.notYet = false
	g.well(op, nil)
}

// TestSQLBackups: automated ones are made daily and kept as long as the settings say; on demand; and what outlives its instance.
func TestSQLBackups(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	in := postgresInstance(g.peered("shop", 20))
	in.Settings.DeletionProtectionEnabled, in.Settings.RetainBackupsOnDelete = false, true
	in.Settings.BackupConfiguration.BackupRetentionSettings = &sqladmin.BackupRetentionSettings{RetainedBackups: 2, RetentionUnit: "COUNT"}
	in.Settings.FinalBackupConfig = &sqladmin.FinalBackupConfig{Enabled: true, RetentionDays: 3}
	g.well(g.Instances.Insert(testProject, in).Do())
	for range 5 {
		g.world.Step(24 * time.Hour)
	}
	g.well(g.BackupRuns.Insert(testProject, "shop-db", &sqladmin.BackupRun{Description: "before the change"}).Do())
	runs, err := g.BackupRuns.List(testProject, "shop-db").Do()
	if err != nil || len(runs.Items) != 3 || runs.Items[0].Type != "ON_DEMAND" || runs.Items[0].Status != "SUCCESSFUL" {
		t.Fatalf("backup runs: %+v, %v", runs, err)
	}
	g.well(g.BackupRuns.Delete(testProject, "shop-db", runs.Items[0].Id).Do())
	g.well(g.Instances.Delete(testProject, "shop-db").Do())
	count := func() map[string]int {
		t.Helper()
		list, err := g.Backups.ListBackups("projects/" + testProject).Do()
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for _, b := range list.Backups {
			kinds[b.Type]++
		}
		return kinds
	}
	if kinds := count(); kinds["FINAL"] != 1 || kinds["AUTOMATED"] != 2 {
		t.Errorf("backups of a deleted instance: %v", kinds)
	}
	g.world.Step(4 * 24 * time.Hour)
	if kinds := count(); kinds["FINAL"] != 0 {
		t.Errorf("a final backup of three days after four: %v", kinds)
	}
}
