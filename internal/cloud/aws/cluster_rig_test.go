package aws

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
)

const (
	clusterSpec = `{"network":{"zones":3},"nodePools":[{"name":"workers","min":2,"desired":3,"max":6}]}`
	mixedSpec   = `{"network":{"zones":3},"nodePools":[
		{"name":"workers","min":2,"desired":3,"max":6},
		{"name":"arm","size":{"vcpus":2,"memoryGiB":8,"arch":"arm64"},"desired":1,"max":2,"spot":true,"os":"bottlerocket",
		 "labels":{"team":"shop"},"taints":[{"key":"arm","value":"only","effect":"NoSchedule"}]}],
		"admins":["arn:aws:iam::123456789012:role/platform"]}`
)

// publicReach is a provisioner whose connections come from one range.
var publicReach = job.Reach{Mode: job.ReachPublic, EgressCIDRs: []string{"203.0.113.0/24"}}

// A clusterRig takes a cluster job through its cloud steps.
type clusterRig struct{ vmRig }

func newCluster(t testing.TB, o sim.Options, mode job.Mode, spec string) clusterRig {
	t.Helper()
	return newClusterAt(t, o, simaws.Options{}, mode, spec)
}

func newClusterAt(t testing.TB, o sim.Options, with simaws.Options, mode job.Mode, spec string) clusterRig {
	t.Helper()
	g := newRigAt(t, o, with, job.Cluster, mode, spec)
	g.job.Config.InfraConfig.Zones = nil // the check resolves them
	g.p = at(t, g.url, Options{Pace: quick, Reach: publicReach})
	g.world.Clock.Stop()
	c := clusterRig{vmRig{g}}
	c.place("iam", "CreateRole", map[string]any{"RoleName": "platform", "AssumeRolePolicyDocument": trustPolicy})
	c.world.Step(time.Minute)
	return c
}

// built is the way up but for what is in the cluster, gone the way back.
func (g clusterRig) built() []step {
	return []step{g.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureCluster}
}

func (g clusterRig) gone() []step {
	return []step{g.p.RemoveCluster, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

func (g clusterRig) create() {
	g.Helper()
	if err := g.try(false, g.built()...); err != nil {
		g.Fatalf("create: %v\n%s", err, g.books(30))
	}
}

func (g clusterRig) teardown() {
	g.Helper()
	g.another()
	if err := g.try(true, g.gone()...); err != nil {
		g.Fatalf("teardown: %v\n%s", err, g.books(30))
	}
	left, _, err := g.p.Scan(g.Context(), g.job.ID)
	if err != nil || len(left) > 0 {
		g.Errorf("the scan finds %v, %v", left, err)
	}
}

// report is the hardening report, by a reader that cannot change anything.
func (g clusterRig) report() []job.Control {
	g.Helper()
	g.another()
	r := g.run(pipeline.Apply)
	rows, err := g.p.Controls(pipeline.WithGate(g.Context(), pipeline.ReadOnly), r)
	if err != nil {
		g.Fatalf("controls: %v\n%s", err, g.books(10))
	}
	dark := slices.ContainsFunc(rows, func(c job.Control) bool { return c.Unchecked })
	for _, n := range r.TakeNotes() {
		if !dark || !strings.HasPrefix(n, "not checked: ") { // that is said of what could not be read alone
			g.Errorf("note: %s", n)
		}
	}
	return rows
}

// verify is what the cloud steps find different.
func (g clusterRig) verify() []pipeline.Drift {
	g.Helper()
	g.another()
	since := g.mark()
	r := g.run(pipeline.Verify)
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	for _, f := range []step{g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureCluster} {
		if err := f(ctx, r); err != nil {
			g.Fatalf("verify: %v\n%s", err, g.books(10))
		}
	}
	if _, changes := g.calls(since); len(changes) > 0 {
		g.Errorf("a verify changed %v", changes)
	}
	return r.Drift()
}

func (g clusterRig) info() *job.ClusterInfo { return &g.infra().Cluster }

// plan is what the cloud steps would make; nothing is asked.
func (g clusterRig) plan() []pipeline.Planned {
	g.Helper()
	r := g.run(pipeline.Plan)
	for _, f := range []step{g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureCluster} {
		if err := f(pipeline.WithGate(context.Background(), func(context.Context, pipeline.Call) error { return errNotAsked }), r); err != nil {
			g.Fatalf("plan: %v", err)
		}
	}
	return r.Planned()
}
