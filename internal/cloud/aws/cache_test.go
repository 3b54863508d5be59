package aws

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// A cache is made as asked, found as it was made, and taken down to what was there but
// for its final snapshot.
func TestCacheLife(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"redis": redisSpec, "valkey": valkeySpec, "one node": `{"engine":"redis","preset":"dev"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, sim.Options{}, job.ModeCreate, spec)
			start := time.Now()
			g.create()
			reads, changes := g.calls(0)
			t.Logf("create: %d reads %v, %d changes %v, %s", sum(reads), reads, sum(changes), changes, time.Since(start))
			d := g.data()
			if d.Name == "" || d.ID == "" || d.Host == "" || d.Port == 0 || d.Version == "" || d.Class == "" || d.UserGroup == "" || !d.TLSRequired || !d.Encrypted || d.MemoryGiB == 0 {
				t.Errorf("the cache is %+v", d)
			}
			t.Logf("%+v", *d)
			rows := g.report()
			for _, bad := range notMet(rows) {
				t.Errorf("control %s", bad)
			}
			t.Logf("%d controls: %v", len(rows), rowsNamed(rows, "EC"))
			for _, d := range g.verify() {
				t.Errorf("drift: %+v", d)
			}
			g.another()
			since := g.mark()
			g.create()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			g.teardown()
			if k, ok := g.kept()[kindCacheSnapshot]; !ok || k.Name != d.FinalSnapshot || !strings.Contains(k.Reason, "create-replication-group") {
				t.Errorf("kept: %+v", g.kept())
			}
			g.onlySnapshot()
		})
	}
}

// A plan lists what a create makes, and asks nothing.
func TestDatastorePlan(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{postgresSpec, redisSpec} {
		g := newData(t, sim.Options{}, job.ModeCreate, spec)
		planned := g.planned()
		g.create()
		var made []string
		for _, o := range g.objects {
			made = append(made, o.Kind+" "+o.Key)
		}
		slices.Sort(made)
		if !slices.Equal(planned, made) {
			t.Errorf("planned %v\nmade    %v", planned, made)
		}
	}
}

// settle repeats what waits until it is done.
func (g dataRig) settle(do func() error) {
	g.Helper()
	for range 200 {
		err := do()
		if err == nil {
			return
		}
		d := pipeline.Judge(err, 0)
		if d.Action == pipeline.Stop {
			g.Fatalf("%v\n%s", err, g.books(10))
		}
		g.world.Step(d.After)
	}
	g.Fatalf("it is never done\n%s", g.books(10))
}

// Users of connections come, get another password, and go; the teardown takes those
// that are left.
func TestCacheUsers(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{redisSpec, valkeySpec} {
		g := newData(t, sim.Options{}, job.ModeCreate, spec)
		g.create()
		ctx := anything(g.Context())
		user := job.RoleName("orders", "con_1")
		give := func(user, password string, mode job.AccessMode) cloud.CacheCredential {
			var got cloud.CacheCredential
			g.settle(func() (err error) {
				got, err = g.p.EnsureCacheUser(ctx, g.job, user, password, mode)
				return err
			})
			return got
		}
		first, second := job.NewPassword(), job.NewPassword()
		if got := give(user, first, job.ReadWrite); got.User != user || got.Password != first || got.Shared {
			t.Errorf("the credential is %+v", got)
		}
		since := g.mark()
		give(user, second, job.ReadOnly)
		if _, changes := g.calls(since); changes["ModifyUser"] != 1 || len(changes) > 1 {
			t.Errorf("another password took %v", changes)
		}
		u, err := g.p.readCacheUser(g.Context(), cacheUserID(g.job, user))
		if err != nil || !strings.Contains(*u.AccessString, "+@read") || strings.Contains(*u.AccessString, "+@all") {
			t.Errorf("the user is %+v, %v", u, err)
		}
		for _, bad := range notMet(g.report()) {
			t.Errorf("with a user: %s", bad)
		}
		other := job.RoleName("reports", "con_2")
		give(other, job.NewPassword(), job.OwnerMode)
		g.settle(func() error { return g.p.RemoveCacheUser(ctx, g.job, user) })
		g.settle(func() error { return g.p.RemoveCacheUser(ctx, g.job, user) })
		if _, err := g.p.readCacheUser(g.Context(), cacheUserID(g.job, user)); !pipeline.Is(err, pipeline.NotFound) {
			t.Errorf("the user is there still: %v", err)
		}
		g.teardown()
		g.onlySnapshot()
	}
}

func (g dataRig) cacheFlips() []flip {
	g.Helper()
	group, user := g.id(kindCacheGroup, datastoreKey), g.id(kindCacheUser, defaultUserKey)
	change := func(id string, f func(map[string]any)) func() func() {
		return func() func() { return g.tamper(id, f) }
	}
	return []flip{
		{"EC-01", change(group, inside("AtRestEncryptionEnabled", false)), nil},
		{"EC-02", change(group, inside("TransitEncryptionMode", "preferred")), nil},
		{"EC-03", change(group, inside("UserGroupIds", []any{})), []string{"EC-04"}},
		{"EC-04", change(user, inside("AccessString", "on ~* +@all")), nil},
		{"EC-05", change(group, inside("AutomaticFailover", "disabled")), nil},
		{"EC-06", change(group, inside("MultiAZ", "disabled")), nil},
		{"EC-07", change(group, inside("SnapshotRetentionLimit", 1)), nil},
		{"EC-08", change(group, inside("AutoMinorVersionUpgrade", false)), nil},
		{"EC-10", g.wayOut(), []string{"NETA-10"}},
		{"EC-11", g.admit(g.data().SecurityGroupID, anywhere, g.data().Engine.Port()), []string{"NETA-05"}},
	}
}

// inside sets a field wherever it stands.
func inside(field string, v any) func(map[string]any) {
	var set func(any)
	set = func(x any) {
		switch x := x.(type) {
		case map[string]any:
			for k := range x {
				if k == field {
					x[k] = v
				} else {
					set(x[k])
				}
			}
		case []any:
			for _, y := range x {
				set(y)
			}
		}
	}
	return func(m map[string]any) { set(m) }
}

// Each control that somebody turns over at ElastiCache makes its row fall, and no other
// but those that follow from it.
func TestCacheControls(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, `{"engine":"redis","preset":"production"}`)
	g.create()
	for _, c := range g.report() {
		if !c.Met || c.Unchecked || c.Wanted == "" || c.Seen == "" || c.Source == "" || c.Name == "" {
			t.Errorf("%+v", c)
		}
	}
	for i, c := range g.cacheFlips() {
		undo := c.flip()
		want := slices.Sorted(slices.Values(append([]string{c.id}, c.with...)))
		if got := unmet(g.report()); !slices.Equal(got, want) {
			t.Errorf("%d: flipped %s, and %v do not hold, want %v", i, c.id, got, want)
		}
		undo()
	}
}

// What a cache cannot be is refused before anything is made.
func TestCacheChecks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spec, field, says string }{
		"a version at its end":   {`{"engine":"redis","version":"6.2"}`, "config.spec.version", "EC-14"},
		"a version nobody has":   {`{"engine":"valkey","version":"42"}`, "config.spec.version", "42 is not offered"},
		"a node type nobody has": {`{"engine":"redis","instanceType":"cache.x9.huge"}`, "config.spec.instanceType", "cache.x9.huge"},
		"more memory than any":   {`{"engine":"redis","size":{"memoryGiB":4000}}`, "config.spec.size.memoryGiB", "4000 GiB"},
	} {
		g := newData(t, sim.Options{}, job.ModeCreate, c.spec)
		if bad := g.checksOf(cloud.CheckFails); !slices.ContainsFunc(bad, func(x cloud.Check) bool {
			return x.Field == c.field && strings.Contains(x.Message, c.says) && x.Fix != ""
		}) {
			t.Errorf("%s: the checks that fail are %+v", name, bad)
		}
	}
	for spec, want := range map[string]string{`{"engine":"redis"}`: "7.", `{"engine":"valkey"}`: "9.", `{"engine":"valkey","version":"8"}`: "8."} {
		g := newData(t, sim.Options{}, job.ModeCreate, spec)
		if bad := g.checksOf(cloud.CheckFails); len(bad) > 0 || !strings.HasPrefix(g.data().Version, want) {
			t.Errorf("%s resolves to %q, %+v", spec, g.data().Version, bad)
		}
	}
}
