package aws

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
)

const (
	postgresSpec   = `{"engine":"postgres"}`
	mysqlSpec      = `{"engine":"mysql","preset":"dev"}`
	productionSpec = `{"engine":"postgres","preset":"production"}`
	redisSpec      = `{"engine":"redis"}`
	valkeySpec     = `{"engine":"valkey","preset":"production"}`
)

// directReach is a provisioner that runs inside of the network.
var directReach = job.Reach{Mode: job.ReachDirect}

// A dataRig takes a datastore or cache job through its cloud steps.
type dataRig struct{ clusterRig }

// familyOf is the family of a spec's engine.
func familyOf(spec string) job.ResourceType {
	if strings.Contains(spec, `"redis"`) || strings.Contains(spec, `"valkey"`) {
		return job.Cache
	}
	return job.Datastore
}

func newData(t testing.TB, o sim.Options, mode job.Mode, spec string) dataRig {
	t.Helper()
	return newDataOf(t, o, familyOf(spec), mode, spec)
}

func newDataOf(t testing.TB, o sim.Options, resource job.ResourceType, mode job.Mode, spec string) dataRig {
	t.Helper()
	g := newRigAt(t, o, simaws.Options{}, resource, mode, spec)
	g.job.Config.InfraConfig.Zones = nil // the check resolves them
	g.p = at(t, g.url, Options{Pace: quick, Reach: directReach})
	g.world.Clock.Stop()
	return dataRig{clusterRig{vmRig{g}}}
}

// dataSteps are the cloud's steps of a datastore or cache, and their way back.
func (g dataRig) dataSteps() []step {
	return []step{g.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureSubnetGroup, g.p.EnsureDatastore}
}

func (g dataRig) dataGone() []step {
	return []step{g.p.RemoveDatastore, g.p.RemoveSubnetGroup, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

func (g dataRig) create() {
	g.Helper()
	if err := g.try(false, g.dataSteps()...); err != nil {
		g.Fatalf("create: %v\n%s", err, g.books(30))
	}
}

func (g dataRig) teardown() {
	g.Helper()
	g.another()
	if err := g.try(true, g.dataGone()...); err != nil {
		g.Fatalf("teardown: %v\n%s", err, g.books(30))
	}
	left, _, err := g.p.Scan(g.Context(), g.job.ID)
	if err != nil || len(left) > 0 {
		g.Errorf("the scan finds %v, %v", left, err)
	}
}

func (g dataRig) data() *job.DatastoreInfo { return &g.infra().Datastore }

// verify is what the cloud steps find different, by clients that change nothing.
func (g dataRig) verify() []pipeline.Drift {
	g.Helper()
	g.another()
	since := g.mark()
	r := g.run(pipeline.Verify)
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	for _, f := range g.dataSteps()[1:] {
		if err := f(ctx, r); err != nil {
			g.Fatalf("verify: %v\n%s", err, g.books(10))
		}
	}
	if _, changes := g.calls(since); len(changes) > 0 {
		g.Errorf("a verify changed %v", changes)
	}
	return r.Drift()
}

// kept are the objects that the ledger says stay on purpose, by kind.
func (g dataRig) kept() map[string]job.Object {
	out := map[string]job.Object{}
	for _, o := range g.objects {
		if o.State == job.ObjectKept {
			out[o.Kind] = o
		}
	}
	return out
}

// onlyKept wants nothing with the job's mark but what the ledger says stays.
func (g dataRig) onlyKept() {
	g.Helper()
	kept := g.kept()
	for _, o := range g.world.Residue(g.job.ID) {
		if !slices.ContainsFunc([]string{kindDBSnapshot, kindCacheSnapshot}, func(kind string) bool {
			k := kept[kind]
			return k.ID != "" && (k.ID == o.ID || k.ID == o.ARN || k.Name == o.Name || k.Name == o.ID)
		}) {
			g.Errorf("left over: %s %s (%s)", o.Kind, o.ID, o.Name)
		}
	}
}

// notMet are the controls that do not hold, or were not read.
func notMet(rows []job.Control) (bad []string) {
	for _, c := range rows {
		if !c.Met {
			bad = append(bad, c.ID+": wanted "+c.Wanted+", seen "+c.Seen)
		}
	}
	return bad
}

func rowsNamed(rows []job.Control, prefix string) (ids []string) {
	for _, c := range rows {
		if strings.HasPrefix(c.ID, prefix) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// planned is what the cloud steps would make; nothing is asked.
func (g dataRig) planned() []string {
	g.Helper()
	r := g.run(pipeline.Plan)
	for _, f := range g.dataSteps()[1:] {
		if err := f(pipeline.WithGate(context.Background(), func(context.Context, pipeline.Call) error { return errNotAsked }), r); err != nil {
			g.Fatalf("plan: %v", err)
		}
	}
	var out []string
	for _, p := range r.Planned() {
		out = append(out, p.Kind+" "+p.Key)
	}
	slices.Sort(out)
	return out
}
