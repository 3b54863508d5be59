package gcp

import (
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/steps"
)

// What the credentials may not list is not proved gone: a teardown that had some of
// it stops at its proof and names the permission, and one that never had any says so.
func TestScanWithoutLeave(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none"}}`)
	g.up()
	g.another()
	g.down()
	if _, _, err := g.p.Scan(t.Context(), g.job.ID); err != nil {
		t.Fatal(err)
	}
	used := g.world.ActionsUsed(sim.BookFilter{Cloud: "gcp", Caller: tester})
	list, err := steps.Set{Cloud: g.p}.Pipeline(g.job)
	if err != nil {
		t.Fatal(err)
	}
	proof := list[list.Index(steps.Validate)].Remove
	for _, c := range []struct {
		permission, kind string
		had              bool
	}{
		{"compute.subnetworks.list", kindSubnet, true},
		{"compute.firewalls.list", kindFirewall, true},
		{"container.clusters.list", kindCluster, false},
		{"cloudsql.instances.list", kindSQL, false},
		{"compute.routers.list", kindRouter, false},
		{"secretmanager.secrets.list", kindSecret, false},
		{"iam.serviceAccounts.list", kindServiceAccount, false},
	} {
		g.world.SetGrants("gcp", tester, slices.DeleteFunc(slices.Clone(used), func(a string) bool { return a == c.permission }))
		left, unlisted, err := g.p.Scan(t.Context(), g.job.ID)
		if err != nil || len(left) > 0 || len(unlisted) != 1 || unlisted[0].Kind != c.kind || unlisted[0].Permission != c.permission {
			t.Errorf("without %s: left %v, not listed %+v, %v", c.permission, left, unlisted, err)
		}
		r := g.run(pipeline.Apply)
		r.Down, r.Step = true, steps.Validate
		err = proof(anything(t.Context()), r)
		d, notes := pipeline.Judge(err, 0), strings.Join(r.TakeNotes(), "; ")
		switch {
		case c.had && (d.Action != pipeline.Stop || d.Problem.Code != "not-scanned" || !strings.Contains(d.Problem.Message, c.kind) || !strings.Contains(d.Problem.Hint, "Allow "+c.permission+" ")):
			t.Errorf("without %s the proof ends with %+v", c.permission, d)
		case !c.had && (err != nil || !strings.Contains(notes, "not scanned: "+c.kind+" (without "+c.permission+")")):
			t.Errorf("without %s the proof ends with %v and says %q", c.permission, err, notes)
		}
	}
	g.world.SetGrants("gcp", tester, nil)
	r := g.run(pipeline.Apply)
	r.Down, r.Step = true, steps.Validate
	if err := proof(anything(t.Context()), r); err != nil || g.job.Config.InfraConfig.NotScanned != nil {
		t.Errorf("once everything is granted: %v, %+v", err, g.job.Config.InfraConfig.NotScanned)
	}
}
