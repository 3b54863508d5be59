package gcp

import (
	"maps"
	"slices"
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const (
	oneClusterSpec = `{"nodePools":[{"name":"workers","min":1,"desired":2,"max":4}],"network":{"zones":2}}`
	twoPoolsSpec   = `{"nodePools":[{"name":"workers","min":2,"desired":3,"max":6,"size":{"vcpus":2,"memoryGiB":8}},
		{"name":"arm","min":1,"desired":1,"max":3,"size":{"vcpus":2,"memoryGiB":8,"arch":"arm64"},"spot":true,
		 "labels":{"tier":"batch"},"taints":[{"key":"batch","value":"yes","effect":"NoSchedule"}]}],
		"admins":["group:platform@example.com"],"network":{"zones":3}}`
)

// A clusterRig takes a cluster job through the steps that are the cloud's, by the
// simulated clock.
type clusterRig struct{ vmRig }

func newCluster(t testing.TB, o sim.Options, mode job.Mode, spec string) clusterRig {
	t.Helper()
	o.TimeScale = quick
	g := newRigFor(t, o, job.Cluster, mode, spec)
	g.world.Clock.Stop()
	return clusterRig{vmRig{g}}
}

func (g clusterRig) ups() []step {
	return []step{g.vmRig.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureCluster}
}

func (g clusterRig) downs() []step {
	return []step{g.p.RemoveCluster, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

func (g clusterRig) up() {
	g.Helper()
	if err := g.try(false, g.ups()...); err != nil {
		g.Fatalf("up: %v\n%s", err, g.books(40))
	}
}

func (g clusterRig) down() {
	g.Helper()
	g.another()
	if err := g.try(true, g.downs()...); err != nil {
		g.Fatalf("down: %v\n%s", err, g.books(40))
	}
	left, _, err := g.p.Scan(g.Context(), g.job.ID)
	if err != nil || len(left) > 0 {
		g.Errorf("the scan finds %v, %v", left, err)
	}
}

func (g clusterRig) cluster() *job.ClusterInfo { return &g.infra().Cluster }

// findings is what stepValidate is told, but for what is in order.
func (g clusterRig) findings() []cloud.Check {
	g.Helper()
	all, err := g.p.Check(anything(g.Context()), g.run(pipeline.Apply))
	if err != nil {
		g.Fatalf("check: %v\n%s", err, g.books(10))
	}
	return slices.DeleteFunc(all, func(c cloud.Check) bool { return c.Status == cloud.CheckOK })
}

// differs is what a verify finds, through clients that cannot change anything.
func (g clusterRig) differs() []pipeline.Drift {
	g.Helper()
	g.another()
	r := g.run(pipeline.Verify)
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	for _, f := range g.ups() {
		if err := f(ctx, r); err != nil {
			g.Fatalf("verify: %v", err)
		}
	}
	return r.Drift()
}

func (g clusterRig) report() map[string]job.Control {
	g.Helper()
	g.another()
	rows, err := g.p.Controls(g.Context(), g.run(pipeline.Apply))
	if err != nil {
		g.Fatal(err)
	}
	out := map[string]job.Control{}
	for _, row := range rows {
		if _, twice := out[row.ID]; twice {
			g.Errorf("row %s is there twice", row.ID)
		}
		out[row.ID] = row
	}
	return out
}

// states are the ledger's rows that stand for something at the cloud.
func (g clusterRig) ledger() map[string]string {
	out := map[string]string{}
	for k, o := range maps.All(g.objects) {
		if o.State == job.ObjectCreated {
			out[k] = o.ID
		}
	}
	return out
}
