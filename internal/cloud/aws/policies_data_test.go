package aws

import (
	"context"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

func dataLives() []life {
	of := func(name, spec string) life {
		return life{familyOf(spec), name, false, func(t testing.TB) *lived {
			g := newData(t, sim.Options{}, job.ModeCreate, spec)
			g.newAccount()
			g.p = at(t, g.url, Options{Pace: quick, Reach: directReach, DatabaseRoots: testRoot(t)})
			v := &lived{g: g.vmRig}
			list := g.dataSteps()
			list[0] = v.checked
			return v.then(v.planned, v.through(false, list...), v.controls, v.seen(list[1:]...), func() error { return v.connects(g) },
				func() error { return g.dataDrift() }, v.controls, v.through(false, list...), v.through(true, g.p.Removable), v.through(true, g.dataGone()...), v.scanned, v.account(familyOf(spec), false))
		}}
	}
	adopted := func(spec string) life {
		return life{familyOf(spec), "adopted", true, func(t testing.TB) *lived {
			g := newData(t, sim.Options{}, job.ModeCreate, spec)
			g.create()
			a := g.adopting(`{"adopt":{"name":"` + g.data().Name + `"}}`)
			v := &lived{g: a.vmRig}
			return v.then(v.planned, v.through(false, v.checked, a.p.AdoptDatastore), v.seen(a.p.AdoptDatastore), func() error {
				r := a.run(pipeline.Apply)
				_, err := a.p.Recommend(pipeline.WithGate(t.Context(), pipeline.ReadOnly), r)
				v.said = append(v.said, r.TakeNotes()...)
				return err
			}, func() error { v.g = g.vmRig; return nil }, v.controls, v.seen(g.dataSteps()[1:]...), v.account(familyOf(spec), true))
		}}
	}
	return []life{
		of("PostgreSQL", productionSpec), of("MySQL without a snapshot", `{"engine":"mysql","preset":"dev","skipFinalSnapshot":true}`), adopted(postgresSpec),
		of("Valkey", valkeySpec), of("Redis without a snapshot", `{"engine":"redis","preset":"dev","skipFinalSnapshot":true}`), adopted(redisSpec),
	}
}

// dataDrift is what people do beside a datastore.
func (g dataRig) dataDrift() error {
	if g.job.ResourceType == job.Datastore {
		g.place("rds", "CreateDBSnapshot", map[string]any{"DBInstanceIdentifier": g.data().Name, "DBSnapshotIdentifier": "by-hand"})
		g.world.Step(15 * time.Minute)
	}
	return g.netDrift()
}

// connects gives a datastore's users what they need.
func (v *lived) connects(g dataRig) error {
	ctx := anything(g.Context())
	if g.job.ResourceType == job.Datastore {
		access, err := g.p.SQLAccess(ctx, g.job)
		if err != nil {
			return err
		}
		_, err = access.Server.Password(ctx)
		return err
	}
	user := job.RoleName("orders", "con_1")
	for _, password := range []string{job.NewPassword(), job.NewPassword()} {
		if err := v.until(false, func(ctx context.Context, _ *pipeline.Run) error {
			_, err := g.p.EnsureCacheUser(ctx, g.job, user, password, job.ReadWrite)
			return err
		}); err != nil {
			return err
		}
	}
	return v.until(false, func(ctx context.Context, _ *pipeline.Run) error { return g.p.RemoveCacheUser(ctx, g.job, user) })
}
