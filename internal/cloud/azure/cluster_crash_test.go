package azure

import (
	"fmt"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// clusterCalls are the calls that make and remove what a cluster job has beyond its
// network, with how often each is sent.
var clusterCalls = []struct {
	op       string
	up, down int
}{
	{"UserAssignedIdentities_CreateOrUpdate", 2, 0}, {"Workspaces_CreateOrUpdate", 1, 0}, {"RoleAssignments_CreateOrUpdate", 4, 0},
	{"ManagedClusters_CreateOrUpdate", 1, 0}, {"AgentPools_CreateOrUpdate", 1, 0}, {"MaintenanceConfigurations_CreateOrUpdate", 2, 0}, {"DiagnosticSettings_CreateOrUpdate", 1, 0},
	{"DiagnosticSettings_Delete", 0, 1}, {"RoleAssignments_Delete", 0, 4}, {"ManagedClusters_Delete", 0, 1}, {"UserAssignedIdentities_Delete", 0, 2}, {"Workspaces_Delete", 0, 1},
}

// crashCluster is a rig for a small cluster with an administrator.
func crashCluster(t testing.TB) *rig {
	t.Helper()
	g := newRig(t, sim.Options{TimeScale: 5 * quick}, job.Cluster, job.ModeCreate, `{"network":{"zones":3},"admins":["`+theirAdmins+`"],"nodePools":[{"name":"workers","min":1,"desired":1,"max":2}]}`)
	g.p.reach = fromHere
	return g
}

// Every call that makes or removes a part of a cluster job, taken in turn: it fails
// before anything happened, or it happens and the answer is lost. Another worker
// goes on. Everything is there once, a re-run changes nothing, and after teardown the
// subscription is as it was.
func TestClusterCrashes(t *testing.T) {
	yes := true
	for _, c := range clusterCalls {
		for n := range c.up + c.down {
			for _, kind := range []sim.FaultKind{sim.FaultError, sim.FaultLostReply} {
				t.Run(fmt.Sprintf("%s %d %s", c.op, n+1, kind), func(t *testing.T) {
					t.Parallel()
					g := crashCluster(t)
					before := g.world.Snapshot()
					fault := sim.Fault{Kind: kind, Operation: c.op, After: n, Mutating: &yes, Code: "InternalServerError", Status: 500}
					if c.down > 0 {
						g.up()
						g.fault(fault)
						g.interrupted(true)
						g.hit()
						g.equal(before)
						return
					}
					g.fault(fault)
					g.interrupted(false)
					g.hit()
					since := g.mark()
					g.another()
					g.up()
					if _, changes := g.calls(since); sum(changes) > 0 {
						t.Errorf("a run of what is there changed %v", changes)
					}
					g.down()
					g.equal(before)
				})
			}
		}
	}
}

// A teardown that begins before the create ended finds what was made, recorded or
// not (failure kinds A7, E13).
func TestTeardownOfAnInterruptedCluster(t *testing.T) {
	yes := true
	for _, c := range clusterCalls {
		if c.up == 0 {
			continue
		}
		t.Run(c.op, func(t *testing.T) {
			t.Parallel()
			g := crashCluster(t)
			before := g.world.Snapshot()
			g.fault(sim.Fault{Kind: sim.FaultLostReply, Operation: c.op, After: c.up - 1, Mutating: &yes})
			g.once(false)
			g.hit()
			g.another()
			g.down()
			g.equal(before)
		})
	}
}
