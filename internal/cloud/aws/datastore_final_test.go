package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// snap takes a snapshot of the datastore, or cache, as somebody else.
func (g dataRig) snap(name string) {
	g.Helper()
	if g.job.ResourceType == job.Cache {
		g.place("elasticache", "CreateSnapshot", map[string]any{"ReplicationGroupId": g.data().Name, "SnapshotName": name})
	} else {
		g.place("rds", "CreateDBSnapshot", map[string]any{"DBInstanceIdentifier": g.data().Name, "DBSnapshotIdentifier": name})
	}
	g.world.Step(30 * time.Second) // until it shows
}

// snapshots are the snapshots of the world that are named as final ones, by name.
func (g dataRig) snapshots() map[string]sim.Object {
	out := map[string]sim.Object{}
	for _, o := range g.world.Objects(sim.ObjectFilter{All: true}) {
		if (o.Kind == "db-snapshot" || o.Kind == "cache-snapshot") && strings.Contains(o.Name, "-final") {
			out[o.Name] = o
		}
	}
	return out
}

func (g dataRig) fails(name string) {
	g.Helper()
	o := g.snapshots()[name]
	if _, err := g.world.SetObjectState(or(o.ARN, o.ID), "failed", "", ""); err != nil {
		g.Fatal(err)
	}
}

// asked is a teardown that committed under which name it asks for the final snapshot,
// and whose deletion did not come about.
func (g dataRig) asked() string {
	g.Helper()
	yes := true
	op := map[bool]string{true: "DeleteReplicationGroup", false: "DeleteDBInstance"}[g.job.ResourceType == job.Cache]
	g.another()
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: op, Mutating: &yes, Code: "AccessDenied", Status: 403, Count: 1})
	g.until(true, g.p.RemoveDatastore)
	g.hit()
	if g.data().SnapshotAskedAt == nil || g.data().FinalSnapshot == "" || len(g.snapshots()) != 0 {
		g.Fatalf("%+v, %v", g.data(), g.snapshots())
	}
	g.another()
	return g.data().FinalSnapshot
}

func bothStores(t *testing.T, f func(*testing.T, dataRig)) {
	for name, spec := range crashSpecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, sim.Options{}, job.ModeCreate, spec)
			g.create()
			f(t, g)
		})
	}
}

// A snapshot that has the final one's name before the teardown asked for it, one that
// works or one that failed, is no reason to let the data go: another is taken.
func TestFinalSnapshotOfAnotherDay(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		t.Run(fmt.Sprintf("failed %v", failed), func(t *testing.T) {
			bothStores(t, func(t *testing.T, g dataRig) {
				first := g.data().FinalSnapshot
				g.snap(first)
				if failed {
					g.fails(first)
				}
				g.world.Step(3 * 7 * 24 * time.Hour)
				g.teardown()
				want := first + "-2"
				if s := g.snapshots(); len(s) != 2 || s[want].State != "available" || g.data().FinalSnapshot != want {
					t.Errorf("the snapshots are %v, and the final one is %s", s, g.data().FinalSnapshot)
				}
				g.keeps(want)
				if !slices.ContainsFunc(g.history(), func(e job.Event) bool {
					return e.Type == "snapshot.renamed" && strings.Contains(e.Message, want)
				}) {
					t.Error("the history does not tell of the other name")
				}
			})
		})
	}
}

// keeps wants the ledger to keep these snapshots and no others.
func (g dataRig) keeps(names ...string) {
	g.Helper()
	var kept []string
	for _, o := range g.objects {
		if o.State == job.ObjectKept {
			kept = append(kept, o.Name)
		}
	}
	slices.Sort(kept)
	if !slices.Equal(kept, names) {
		g.Errorf("the ledger keeps %v, want %v", kept, names)
	}
}

// A final snapshot of this teardown that failed stops it while the data is there; when
// it has been deleted, it is taken again under its name.
func TestFinalSnapshotThatFails(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, g dataRig) {
		name := g.asked()
		g.snap(name)
		g.fails(name)
		since := g.mark()
		err := g.try(true, g.dataGone()...)
		if f := fatal(err); f == nil || f.Problem.Code != "snapshot-failed" || !strings.Contains(f.Problem.Hint, "Delete that snapshot") || !strings.Contains(f.Problem.Hint, "skipFinalSnapshot") {
			t.Errorf("the verdict is %v", err)
		}
		if _, changes := g.calls(since); sum(changes) > 0 {
			t.Errorf("it changed %v", changes)
		}
		o := g.snapshots()[name]
		if _, err := g.world.RemoveObject(or(o.ARN, o.ID)); err != nil {
			t.Fatal(err)
		}
		g.teardown()
		g.onlySnapshot()
		g.keeps(name)
	})
}

// A final snapshot of this teardown that is being taken is waited for, and then no
// second one is taken: unless what it holds is no longer what is in the datastore.
func TestFinalSnapshotTakenAlready(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, g dataRig) {
		name := g.asked()
		g.snap(name)
		now := time.Now()
		g.data().SnapshotAskedAt = &now
		since := g.mark()
		err := g.p.RemoveDatastore(anything(g.Context()), g.pass())
		if _, changes := g.calls(since); !pipeline.IsWait(err) || !strings.Contains(err.Error(), name) || sum(changes) > 0 {
			t.Errorf("while it is taken: %v, after %v", err, changes)
		}
		g.world.Step(10 * time.Minute)
		now = time.Now()
		g.teardown()
		g.onlySnapshot()
		g.keeps(name)
	})
}

func TestFinalSnapshotGrownOld(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, g dataRig) {
		name := g.asked()
		g.snap(name)
		g.world.Step(24 * time.Hour)
		day := time.Now().Add(-pipeline.Pace(quick).Real(24 * time.Hour))
		g.data().SnapshotAskedAt = &day
		g.teardown()
		if s := g.snapshots(); len(s) != 2 || g.data().FinalSnapshot != name+"-2" {
			t.Errorf("the snapshots are %v, and the final one is %s", s, g.data().FinalSnapshot)
		}
		g.keeps(name, name+"-2")
	})
}

// A snapshot that shows only when the deletion is refused for its name is not taken for
// one of this teardown.
func TestFinalSnapshotThatShowsLate(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, g dataRig) {
		name := g.data().FinalSnapshot
		g.snap(name)
		g.world.Step(time.Hour)
		op, code := "DescribeDBSnapshots", "DBSnapshotNotFound"
		if g.job.ResourceType == job.Cache {
			op, code = "DescribeSnapshots", "SnapshotNotFoundFault"
		}
		g.fault(sim.Fault{Kind: sim.FaultError, Operation: op, Code: code, Status: 404, Count: 1})
		g.teardown()
		g.hit()
		if s := g.snapshots(); len(s) != 2 || g.data().FinalSnapshot != name+"-2" {
			t.Errorf("the snapshots are %v, and the final one is %s", s, g.data().FinalSnapshot)
		}
		g.keeps(name + "-2")
	})
}

// pass is one pass of a teardown.
func (g dataRig) pass() *pipeline.Run {
	r := g.run(pipeline.Apply)
	r.Down, r.Step = true, "step"
	return r
}

// A deletion whose reply was lost goes on: there is one snapshot, under its name.
func TestFinalSnapshotOfALostDeletion(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, g dataRig) {
		op := map[bool]string{true: "DeleteReplicationGroup", false: "DeleteDBInstance"}[g.job.ResourceType == job.Cache]
		first := g.data().FinalSnapshot
		g.snap(first)
		g.world.Step(time.Hour)
		g.fault(sim.Fault{Kind: sim.FaultLostReply, Operation: op, Count: 1})
		g.until(true, g.dataGone()...)
		g.hit()
		g.teardown()
		if s := g.snapshots(); len(s) != 2 {
			t.Errorf("the snapshots are %v", s)
		}
		g.keeps(first + "-2")
	})
}

// A user whose create was answered, or not, and who does not show yet is waited for: the
// second create is refused, and that is no failure.
func TestCacheUserThatShowsLate(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		g := newData(t, sim.Options{}, job.ModeCreate, redisSpec)
		g.create()
		user, password := job.RoleName("orders", "con_1"), job.NewPassword()
		if lost {
			g.fault(sim.Fault{Kind: sim.FaultLostReply, Operation: "CreateUser", Count: 1})
		}
		g.fault(sim.Fault{Kind: sim.FaultError, Operation: "DescribeUsers", Code: "UserNotFound", Status: 404, Count: 4})
		var err error
		for range 100 {
			ctx, cancel := context.WithTimeout(g.Context(), 20*time.Second)
			_, err = g.p.EnsureCacheUser(anything(ctx), g.job, user, password, job.ReadWrite)
			cancel()
			if err == nil || !pipeline.IsWait(err) && !pipeline.Is(err, pipeline.Unavailable, pipeline.Unknown) {
				break
			}
			g.world.Step(5 * time.Second)
		}
		g.hit()
		if err != nil {
			t.Fatalf("lost %v: %v\n%s", lost, err, g.books(20))
		}
		_, changes := g.calls(0)
		if changes["CreateUser"] < 3 { // the default user, the create, and one that was refused
			t.Errorf("lost %v: nothing was made twice: %v", lost, changes)
		}
	}
}

// deaf is a ledger that does not take the job's InfraConfig.
type deaf struct{ *rig }

func (d deaf) Record(ctx context.Context, delta pipeline.Delta) error {
	if delta.Config {
		return errors.New("the lease is lost")
	}
	return d.rig.Record(ctx, delta)
}

// The deletion is not sent before the ledger has the name that it asks for.
func TestFinalSnapshotIsCommittedFirst(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, g dataRig) {
		first := g.data().FinalSnapshot
		g.snap(first)
		since := g.mark()
		r := pipeline.NewRun(g.job, pipeline.Apply, slices.Collect(maps.Values(g.objects)), deaf{g.rig}, nil, time.Now, quick)
		r.Down, r.Step = true, "step"
		err := g.p.RemoveDatastore(anything(g.Context()), r)
		if _, changes := g.calls(since); err == nil || !strings.Contains(err.Error(), "lease") || sum(changes) > 0 {
			t.Errorf("the verdict is %v, after %v", err, changes)
		}
		if d := g.data(); d.SnapshotAskedAt != nil || d.FinalSnapshot != first {
			t.Errorf("the job has %+v, which the ledger has not", d)
		}
	})
}

// Where the final snapshot failed, somebody can say that the data may go.
func TestFinalSnapshotGivenUp(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, g dataRig) {
		name := g.asked()
		g.snap(name)
		g.fails(name)
		if err := g.try(true, g.p.RemoveDatastore); fatalCode(err) != "snapshot-failed" {
			t.Fatalf("the verdict is %v", err)
		}
		g.job.Config.Spec = json.RawMessage(strings.Replace(string(g.job.Config.Spec), "{", `{"skipFinalSnapshot":true,`, 1))
		g.teardown()
		g.keeps()
	})
}
