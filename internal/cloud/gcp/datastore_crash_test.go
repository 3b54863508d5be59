package gcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// Each change that a datastore needs beside its network, taken in turn: it fails
// before anything happened, or it happens and the answer is lost. Another worker
// goes on. The end is the same objects, each once and all in the ledger, a re-run
// that changes nothing, and after teardown nothing but one final backup.
func TestDatastoreCrashMatrix(t *testing.T) {
	t.Parallel()
	const secrets = "projects.locations.secrets."
	cases := []struct {
		spec   string
		family job.ResourceType
		ups    []string
		downs  []string
	}{
		{postgresSpec, job.Datastore,
			[]string{secrets + "create", secrets + "addVersion", "globalAddresses.insert", "services.connections.patch", "instances.insert#sqladmin", "users.insert"},
			[]string{"instances.patch", "instances.delete#sqladmin", secrets + "delete", "services.connections.deleteConnection", "globalAddresses.delete"}},
		{mysqlSpec, job.Datastore, []string{"instances.insert#sqladmin", "users.delete", "users.insert"}, []string{"instances.delete#sqladmin"}},
		{redisSpec, job.Cache, []string{"projects.locations.instances.create"}, []string{"projects.locations.instances.delete"}},
		{valkeySpec, job.Cache, []string{"projects.locations.serviceConnectionPolicies.create", "projects.locations.instances.create"},
			[]string{"projects.locations.instances.patch", "projects.locations.instances.delete", "projects.locations.serviceConnectionPolicies.delete"}},
	}
	for _, c := range cases {
		for _, kind := range []sim.FaultKind{sim.FaultLostReply, sim.FaultError} {
			for _, op := range c.ups {
				t.Run(fmt.Sprintf("%s %s %s", c.spec, op, kind), func(t *testing.T) {
					t.Parallel()
					g := newData(t, c.family, job.ModeCreate, c.spec)
					g.fault(faultOn(kind, op))
					g.until(false, g.ups()...)
					g.all(false, g.ups()...)
					g.hit()
					g.eachOnce()
					g.down()
					g.onlyBackup()
				})
			}
			for _, op := range c.downs {
				t.Run(fmt.Sprintf("down %s %s %s", c.spec, op, kind), func(t *testing.T) {
					t.Parallel()
					g := newData(t, c.family, job.ModeCreate, c.spec)
					g.up()
					g.fault(faultOn(kind, op))
					g.another()
					g.until(true, g.downs()...)
					g.down()
					g.hit()
					g.onlyBackup()
				})
			}
		}
	}
}

// faultOn is a fault of one operation, of one service where several have it.
func faultOn(kind sim.FaultKind, op string) sim.Fault {
	f := sim.Fault{Kind: kind, Operation: op, Code: "backendError", Status: 503}
	for i := range op {
		if op[i] == '#' {
			f.Operation, f.Service = op[:i], op[i+1:]
		}
	}
	return f
}

// eachOnce wants the ledger to name just what is at the cloud, and a further run to
// change nothing.
func (g dataRig) eachOnce() {
	g.Helper()
	named := map[string]bool{}
	for _, id := range g.ledger() {
		named[id] = true
	}
	for _, o := range g.world.Residue(g.job.ID) {
		if !named[o.ID] && !strings.Contains(o.ID, "/sca-auto-") { // else an endpoint that the service makes, which goes with its instance
			g.Errorf("%s is not in the ledger", o.ID)
		}
	}
	since := g.mark()
	g.all(false, g.ups()...)
	if _, changes := g.calls(since); sum(changes) > 0 {
		g.Errorf("a run of what is there changed %v", changes)
	}
}

// onlyBackup wants nothing of the job but its final backup, once.
func (g dataRig) onlyBackup() {
	g.Helper()
	want := 1
	if g.store().FinalSnapshot == "" {
		want = 0
	}
	if kept := g.kept(); len(kept) != want {
		g.Errorf("kept %v, want %d", kept, want)
	}
	if left := len(g.world.Residue(g.job.ID)); left > want {
		g.Errorf("left over: %v", g.world.Residue(g.job.ID))
	}
}

// A teardown that begins before the create has ended, or before its answer came,
// finds what was made, recorded or not; what never came up has no final backup.
func TestTeardownOfAnInterruptedDatastore(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"projects.locations.secrets.create", "instances.insert#sqladmin", "users.insert"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			g := newData(t, job.Datastore, job.ModeCreate, postgresSpec)
			g.fault(faultOn(sim.FaultLostReply, op))
			g.until(false, g.ups()...)
			g.hit()
			g.down()
			if kept := g.kept(); len(kept) > 1 {
				t.Errorf("kept %v", kept)
			}
		})
	}
}
