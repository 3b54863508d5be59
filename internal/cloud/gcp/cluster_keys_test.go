package gcp

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// A plan lists just what a run makes, and asks for nothing of it.
func TestClusterPlan(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
	g.findings()
	since := g.mark()
	r := g.run(pipeline.Plan)
	for _, f := range g.ups()[1:] {
		if err := f(pipeline.WithGate(t.Context(), pipeline.ReadOnly), r); err != nil {
			t.Fatal(err)
		}
	}
	if reads, changes := g.calls(since); sum(reads)+sum(changes) > 0 {
		t.Errorf("a plan asked %v and changed %v", reads, changes)
	}
	var planned, made []string
	for _, o := range r.Planned() {
		planned = append(planned, o.Kind+"/"+o.Key)
	}
	g.up()
	for key := range g.ledger() {
		made = append(made, key)
	}
	slices.Sort(planned)
	slices.Sort(made)
	if d := cmp.Diff(planned, made); d != "" {
		t.Errorf("planned and made differ:\n%s", d)
	}
}

// What somebody did to the key of a cluster's secrets is told, and put right as far as
// that can be. A key that was destroyed stops the job; its name can never be given to
// another, so a retry gives the same key new material.
func TestSecretsKey(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	before := g.world.Snapshot()
	if err := g.try(false, g.ups()[:3]...); err != nil {
		t.Fatal(err)
	}
	key := g.cluster().KMSKeyID
	version := key + "/cryptoKeyVersions/1"
	told := func(want ...string) {
		t.Helper()
		g.another()
		r := g.run(pipeline.Verify)
		if err := g.p.EnsureIdentity(pipeline.WithGate(t.Context(), pipeline.ReadOnly), r); err != nil {
			t.Fatal(err)
		}
		var attrs []string
		for _, d := range r.Drift() {
			attrs = append(attrs, d.Attr)
		}
		if !slices.Equal(attrs, want) {
			t.Errorf("told is %v, want %v", attrs, want)
		}
	}
	right := func() {
		t.Helper()
		g.another()
		if err := g.try(false, g.p.EnsureIdentity); err != nil {
			t.Fatal(err)
		}
		told()
	}
	told()
	g.place("cloudkms", "projects.locations.keyRings.cryptoKeys.patch", map[string]any{"name": key, "updateMask": "rotationPeriod,nextRotationTime", "body": map[string]any{}})
	told("rotation")
	right()
	g.place("cloudkms", "projects.locations.keyRings.cryptoKeys.cryptoKeyVersions.patch", map[string]any{"name": version, "updateMask": "state", "state": "DISABLED"})
	told("primary version")
	right()
	g.place("cloudkms", "projects.locations.keyRings.cryptoKeys.setIamPolicy", map[string]any{"resource": key, "body": map[string]any{"policy": map[string]any{}}})
	told("exists")
	right()

	g.place("cloudkms", "projects.locations.keyRings.cryptoKeys.cryptoKeyVersions.destroy", map[string]any{"name": version})
	told("exists")
	g.another()
	if err := g.try(false, g.p.EnsureIdentity); fatalCode(err) != "object-ended" {
		t.Errorf("the verdict on a destroyed key is %v", err)
	}
	right()
	g.up() // the cluster takes it
	g.down()
	g.equal(before)
}
