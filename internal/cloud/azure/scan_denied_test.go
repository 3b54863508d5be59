package azure

import (
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
	"github.com/zopday/provisioner/internal/steps"
)

// What the credentials may not list is not proved gone: a teardown that had some of
// it stops at its proof and names the action, and one that never had any says so.
func TestScanWithoutLeave(t *testing.T) {
	t.Parallel()
	g := network(t, `{"network":{"nat":"none"}}`)
	g.up()
	g.another()
	g.down()
	used := g.world.ActionsUsed(sim.BookFilter{Cloud: "azure", Caller: simazure.DefaultClientID})
	list, err := steps.Set{Cloud: g.p}.Pipeline(g.job)
	if err != nil {
		t.Fatal(err)
	}
	proof := list[list.Index(steps.Validate)].Remove
	for _, c := range []struct {
		action, had, never string
	}{
		{"Microsoft.Resources/subscriptions/resources/read", kindVNet, kindCluster},
		{"Microsoft.Resources/subscriptions/resourceGroups/read", kindGroup, ""},
		{"Microsoft.Authorization/roleAssignments/read", "", kindRole},
	} {
		without := slices.DeleteFunc(slices.Clone(used), func(a string) bool { return strings.EqualFold(a, c.action) })
		if len(without) == len(used) {
			t.Errorf("%s is not asked for: %v", c.action, used)
		}
		g.world.SetGrants("azure", simazure.DefaultClientID, without)
		left, unlisted, err := g.p.Scan(t.Context(), g.job.ID)
		for _, kind := range []string{c.had, c.never} {
			if kind != "" && !slices.ContainsFunc(unlisted, func(u job.Unlisted) bool { return u.Kind == kind && strings.EqualFold(u.Permission, c.action) }) {
				t.Errorf("without %s: %s is not among %+v", c.action, kind, unlisted)
			}
		}
		if err != nil || len(left) > 0 {
			t.Errorf("without %s: left %v, %v", c.action, left, err)
		}
		r := g.run(pipeline.Apply)
		r.Down, r.Step = true, steps.Validate
		err = proof(anything(t.Context()), r)
		d, notes := pipeline.Judge(err, 0), strings.Join(r.TakeNotes(), "; ")
		switch {
		case c.had != "" && (d.Action != pipeline.Stop || d.Problem.Code != "not-scanned" || !strings.Contains(d.Problem.Message, c.had) || !strings.Contains(strings.ToLower(d.Problem.Hint), strings.ToLower("Allow "+c.action+" "))):
			t.Errorf("without %s the proof ends with %+v", c.action, d)
		case c.had == "" && (err != nil || !strings.Contains(notes, "not scanned: "+c.never+" (without ")):
			t.Errorf("without %s the proof ends with %v and says %q", c.action, err, notes)
		}
	}
	g.world.SetGrants("azure", simazure.DefaultClientID, nil)
	r := g.run(pipeline.Apply)
	r.Down, r.Step = true, steps.Validate
	if err := proof(anything(t.Context()), r); err != nil || g.job.Config.InfraConfig.NotScanned != nil {
		t.Errorf("once everything is granted: %v, %+v", err, g.job.Config.InfraConfig.NotScanned)
	}
}
