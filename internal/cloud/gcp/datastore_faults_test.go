package gcp

import (
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// B1: the cloud holds the name of what was deleted a moment ago: another one is
// taken, and all follows it.
func TestDatastoreNameHeld(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"", "invalidState"} {
		g := newData(t, job.Datastore, job.ModeCreate, postgresSpec)
		g.up()
		first := g.store().Name
		g.down()
		g.fault(sim.Fault{Kind: sim.FaultNameHeld, Cloud: "gcp", Service: serviceSQL, Code: code, Count: -1})
		g.another()
		g.up()
		if d := g.store(); d.Name != first+"-1" || d.NameTries != 1 || d.FinalSnapshot != d.Name+"-final" {
			t.Errorf("%q: the second instance is %s after %d tries, final backup %s", code, d.Name, d.NameTries, d.FinalSnapshot)
		}
		if g.event("name.held") == "" {
			t.Errorf("%q: nobody is told of the other name", code)
		}
		g.down()
	}
}

// B5: a namesake of somebody else's is named and not touched.
func TestDatastoreNameTaken(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Datastore, job.ModeCreate, postgresSpec)
	name := g.job.ResourceName("", 63)
	g.place("sqladmin", "instances.insert", map[string]any{"name": name, "region": testRegion, "databaseVersion": "POSTGRES_18",
		"settings": map[string]any{"tier": "db-custom-2-8192", "edition": "ENTERPRISE"}})
	g.world.Step(time.Hour)
	err := g.try(false, g.ups()...)
	if f := fatal(err); f == nil || f.Problem.Code != "name-taken" {
		t.Fatalf("the verdict is %v", err)
	}
	g.down()
	if !g.exists("projects/" + testProject + "/instances/" + name) {
		t.Error("somebody else's instance is gone")
	}
}

// A7, I5: an instance whose create was accepted and failed is the job's: it is told
// with its reason, replaced by a retry, and removed by a teardown without a backup.
func TestDatastoreCreateFails(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Datastore, job.ModeCreate, postgresSpec)
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Service: serviceSQL, Operation: "instances.insert"})
	err := g.try(false, g.ups()...)
	f := fatal(err)
	if f == nil || f.Problem.Code != "object-failed" {
		t.Fatalf("the verdict is %v\n%s", err, g.books(20))
	}
	g.another()
	g.up() // a retry
	g.eachOnce()
	g.down()
	g.onlyBackup()

	g = newData(t, job.Datastore, job.ModeCreate, postgresSpec)
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Service: serviceSQL, Operation: "instances.insert"})
	if err := g.try(false, g.ups()...); err == nil {
		t.Fatal("the create did not fail")
	}
	g.down()
	if kept := g.kept(); len(kept) > 0 {
		t.Errorf("kept %v of an instance that was never up", kept)
	}
}

// O5, K7: protection that this job did not set stops the teardown before anything is
// deleted; O4: and so does a replica that somebody added.
func TestDatastoreHeldByOthers(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Datastore, job.ModeCreate, `{"engine":"postgres","deletionProtection":false}`)
	g.up()
	id := "projects/" + testProject + "/instances/" + g.store().Name
	undo := g.patch(id, `{"settings":{"deletionProtectionEnabled":true}}`)
	since := g.mark()
	g.another()
	err := g.try(true, g.downs()...)
	if f := fatal(err); f == nil || f.Problem.Code != "blocked" || !strings.Contains(f.Problem.Hint, "--no-deletion-protection") {
		t.Fatalf("the verdict is %v", err)
	}
	undo()
	undo = g.patch(id, `{"replicaNames":["reports"]}`)
	g.another()
	err = g.try(true, g.downs()...)
	if f := fatal(err); f == nil || f.Problem.Code != "blocked" || !strings.Contains(f.Problem.Message, "reports") {
		t.Fatalf("the verdict is %v", err)
	}
	undo()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("changed all the same: %v", changes)
	}
	g.down()
	g.onlyBackup()
}

// E16: the connection is held for a while after the last instance is gone, and at
// worst for days: it is waited for, then told, and nothing is lost from the ledger.
func TestConnectionStillInUse(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Datastore, job.ModeCreate, postgresSpec)
	g.up()
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "services.connections.deleteConnection", Count: -1, Status: 400, Code: "failedPrecondition",
		Message: "Failed to delete connection; Producer services (e.g. CloudSQL, Cloud Memstore, etc.) are still using this connection."})
	g.another()
	start := g.world.Clock.Now()
	err := g.try(true, g.downs()...)
	waited := g.world.Clock.Now().Sub(start)
	f := fatal(err)
	if f == nil || f.Problem.Code != "connection-in-use" || waited < time.Hour {
		t.Fatalf("after %s the verdict is %v", waited, err)
	}
	if o := g.objects[kindGlobalAddress+"/"+keyServicesRange]; o.State != job.ObjectCreated {
		t.Errorf("the range is %s in the ledger", o.State)
	}
	g.world.ClearFaults("")
	g.down()
	g.onlyBackup()
}

// O7, C7, J2 and what else is known before anything is made.
func TestDatastoreChecks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		family     job.ResourceType
		check, say string
	}{
		{"a version that is not offered", `{"engine":"postgres","version":"99"}`, job.Datastore, "engine version", "18"},
		{"a minor version", `{"engine":"postgres","version":"17.3"}`, job.Datastore, "engine version", "17"},
		{"a class of another edition", `{"engine":"postgres","instanceType":"db-perf-optimized-N-2"}`, job.Datastore, "class", "edition"},
		{"a class against the rules", `{"engine":"mysql","instanceType":"db-custom-3-8192"}`, job.Datastore, "class", "even"},
		{"a class for Redis", `{"engine":"redis","instanceType":"M1"}`, job.Cache, "class", "GiB"},
		{"replicas of a small Redis", `{"engine":"redis","replicas":3,"size":{"memoryGiB":2}}`, job.Cache, "class", "5 GiB"},
		{"an old Valkey", `{"engine":"valkey","version":"6.2"}`, job.Cache, "engine version", "7.2"},
		{"a huge Valkey", `{"engine":"valkey","size":{"memoryGiB":500}}`, job.Cache, "class", "HIGHMEM_XLARGE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, c.family, job.ModeCreate, c.spec)
			found := false
			for _, f := range g.findings() {
				if f.Status == cloud.CheckFails {
					found = found || f.Name == c.check && strings.Contains(f.Message, c.say)
				}
			}
			if !found {
				t.Errorf("the findings are %+v", g.findings())
			}
		})
	}
}

// A network of somebody else's that is not connected to Google's services is refused
// with the commands that connect it; one that is, is used and left as it was.
func TestDatastoreInANamedNetwork(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Datastore, job.ModeCreateInExisting, `{"engine":"postgres","existing":{"networkId":"office"}}`)
	g.place("compute", "networks.insert", map[string]any{"name": "office", "autoCreateSubnetworks": false})
	g.world.Step(2 * time.Minute)
	said := ""
	for _, f := range g.findings() {
		if f.Name == "private services access" {
			said = f.Fix
		}
	}
	if !strings.Contains(said, "gcloud services vpc-peerings connect") {
		t.Fatalf("the findings are %+v", g.findings())
	}
	g.connect("office")
	g.up()
	if got := g.store().SubnetGroup; got != "office-services" {
		t.Errorf("the range is %q", got)
	}
	for id, row := range g.report() {
		if !row.Met && !row.Unchecked {
			t.Errorf("%s: %+v", id, row)
		}
	}
	g.down()
	g.onlyBackup()
}

// connect gives a network private services access, as its owner would.
func (g dataRig) connect(network string) {
	g.Helper()
	path := "projects/" + testProject + "/global/networks/" + network
	g.place("compute", "globalAddresses.insert", map[string]any{"name": network + "-services", "network": path, "addressType": "INTERNAL", "purpose": "VPC_PEERING", "prefixLength": 20, "address": "10.80.0.0"})
	g.world.Step(2 * time.Minute)
	if _, err := g.p.patchConnection(anything(g.Context()), path, network+"-services"); err != nil {
		g.Fatal(err)
	}
	g.world.Step(5 * time.Minute)
}

// An instance that fails after it was in use holds data: a retry waits and tells, and
// never replaces it; a teardown takes its final backup all the same.
func TestDatastoreThatFailsInUse(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Datastore, job.ModeCreate, postgresSpec)
	g.up()
	id := "projects/" + testProject + "/instances/" + g.store().Name
	undo := g.patch(id, `{"state":"FAILED"}`)
	since := g.mark()
	g.another()
	err := g.try(false, g.ups()...)
	if f := fatal(err); f == nil || f.Problem.Code != "timed-out" {
		t.Errorf("the verdict is %v", err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("changed %v", changes)
	}
	undo()
	g.up()
	g.down()
	g.onlyBackup()
}
