package azure

import (
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// datastores is a rig for a datastore or cache job.
func datastores(t testing.TB, family job.ResourceType, spec string) *rig {
	t.Helper()
	return datastoresIn(t, family, job.ModeCreate, spec)
}

func datastoresIn(t testing.TB, family job.ResourceType, mode job.Mode, spec string) *rig {
	t.Helper()
	g := newRig(t, sim.Options{TimeScale: 3 * quick}, family, mode, spec)
	g.p.reach = job.Reach{Mode: job.ReachDirect}
	return g
}

// datastoreSteps are the steps of a datastore or cache job, in both directions.
func (g *rig) datastoreSteps() (up, down []step) {
	return []step{g.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureSubnetGroup, g.p.EnsureDatastore},
		[]step{g.p.RemoveDatastore, g.p.RemoveSubnetGroup, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

// allControlsMet fails on a control of the report that is not met.
func (g *rig) allControlsMet() {
	g.Helper()
	for _, c := range g.report() {
		if !c.Met && c.ID != "NETZ-13" {
			g.Errorf("control %+v", c)
		}
	}
}

// steady says how metrics of an object behave: the same all day.
func (g *rig) steady(id string, metrics map[string]float64) {
	g.Helper()
	for name, v := range metrics {
		g.world.SetMetric(sim.Metric{Cloud: "azure", Resource: id, Name: name, Base: v, Peak: v})
	}
}

// invokeAs does as somebody else does, on a shelf of the simulation.
func (g *rig) invokeAs(service, method, id string, body map[string]any) {
	g.Helper()
	if _, err := g.world.Invoke("azure", service, method, simazure.DefaultSubscription, "", map[string]any{"id": id, "body": body}); err != nil {
		g.Fatalf("%s %s: %v", method, id, err)
	}
}
