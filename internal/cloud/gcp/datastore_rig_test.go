package gcp

import (
	"maps"
	"slices"
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/steps"
)

const (
	postgresSpec   = `{"engine":"postgres"}`
	mysqlSpec      = `{"engine":"mysql","preset":"dev"}`
	productionSpec = `{"engine":"postgres","preset":"production","version":"17"}`
	redisSpec      = `{"engine":"redis"}`
	redisThreeSpec = `{"engine":"redis","preset":"production"}`
	valkeySpec     = `{"engine":"valkey"}`
)

// A dataRig takes a datastore or cache job through the steps that are the cloud's,
// by the simulated clock.
type dataRig struct{ clusterRig }

func newData(t testing.TB, family job.ResourceType, mode job.Mode, spec string) dataRig {
	t.Helper()
	g := newRigFor(t, sim.Options{TimeScale: quick}, family, mode, spec)
	g.world.Clock.Stop()
	return dataRig{clusterRig{vmRig{g}}}
}

func (g dataRig) ups() []step {
	return []step{g.vmRig.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureSubnetGroup, g.p.EnsureDatastore}
}

func (g dataRig) downs() []step {
	return []step{g.p.RemoveDatastore, g.p.RemoveSubnetGroup, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

func (g dataRig) up() {
	g.Helper()
	if err := g.try(false, g.ups()...); err != nil {
		g.Fatalf("up: %v\n%s", err, g.books(40))
	}
}

func (g dataRig) down() {
	g.Helper()
	g.another()
	if err := g.try(true, g.downs()...); err != nil {
		g.Fatalf("down: %v\n%s", err, g.books(40))
	}
	left, _, err := g.p.Scan(g.Context(), g.job.ID)
	left = slices.DeleteFunc(left, func(l cloud.Leftover) bool { return steps.KeptOnPurpose(slices.Collect(maps.Values(g.objects)), l) })
	if err != nil || len(left) > 0 {
		g.Errorf("the scan finds %v, %v", left, err)
	}
}

func (g dataRig) store() *job.DatastoreInfo { return &g.infra().Datastore }

// differs is what a verify finds, through clients that cannot change anything.
func (g dataRig) differs() []string {
	g.Helper()
	g.another()
	return verified(g.clusterRig, g.ups())
}

// kept are the objects that a teardown leaves on purpose, by name.
func (g dataRig) kept() map[string]string {
	out := map[string]string{}
	for _, o := range g.objects {
		if o.State == job.ObjectKept {
			out[o.Name] = o.ID
		}
	}
	return out
}
