package aws

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
// it stops at its proof and names the action, and one that never had any says so.
func TestScanWithoutLeave(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, `{"network":{"nat":"none"}}`)
	g.create()
	g.teardown()
	used := g.world.ActionsUsed(sim.BookFilter{Cloud: "aws", Caller: ownKey})
	set := steps.Set{Cloud: g.p}
	list, err := set.Pipeline(g.job)
	if err != nil {
		t.Fatal(err)
	}
	proof := list[list.Index(steps.Validate)].Remove
	for _, c := range []struct {
		action, kind string
		had          bool
	}{
		{"ec2:DescribeSubnets", kindSubnet, true},
		{"ec2:DescribeRouteTables", kindRouteTable, true},
		{"eks:ListClusters", kindCluster, false},
		{"kms:ListKeys", kindKey, false},
		{"s3:ListAllMyBuckets", kindBucket, false},
		{"autoscaling:DescribeAutoScalingGroups", kindScalingGroup, false},
		{"elasticloadbalancing:DescribeLoadBalancers", kindLoadBalancer, false},
		{"rds:DescribeDBInstances", kindDBInstance, false},
	} {
		g.world.SetGrants("aws", ownKey, allBut(used, c.action))
		left, unlisted, err := g.p.Scan(t.Context(), g.job.ID)
		if err != nil || len(left) > 0 || len(unlisted) != 1 || unlisted[0].Kind != c.kind || unlisted[0].Permission != c.action || !strings.Contains(unlisted[0].Why, c.action) {
			t.Errorf("without %s: left %v, not listed %+v, %v", c.action, left, unlisted, err)
		}
		r := g.run(pipeline.Apply)
		r.Down, r.Step = true, steps.Validate
		err = proof(anything(t.Context()), r)
		d, notes := pipeline.Judge(err, 0), strings.Join(r.TakeNotes(), "; ")
		switch {
		case c.had && (d.Action != pipeline.Stop || d.Problem.Code != "not-scanned" || !strings.Contains(d.Problem.Message, c.kind) || !strings.Contains(d.Problem.Hint, "Allow "+c.action+" ")):
			t.Errorf("without %s the proof ends with %+v", c.action, d)
		case !c.had && (err != nil || !strings.Contains(notes, "not scanned: "+c.kind+" (without "+c.action+")")):
			t.Errorf("without %s the proof ends with %v and says %q", c.action, err, notes)
		}
	}
	g.world.SetGrants("aws", ownKey, nil)
	r := g.run(pipeline.Apply)
	r.Down, r.Step = true, steps.Validate
	if err := proof(anything(t.Context()), r); err != nil || slices.ContainsFunc(r.TakeNotes(), func(n string) bool { return strings.Contains(n, "not scanned") }) || g.infra().NotScanned != nil {
		t.Errorf("once everything is granted: %v, %+v", err, g.infra().NotScanned)
	}
}
