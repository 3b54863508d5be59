package gcp

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const plainSpec = `{}`

func TestNetwork(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		changes    map[string]int
	}{
		{"public and private", plainSpec, map[string]int{
			"networks.insert": 1, "addresses.insert": 1, "subnetworks.insert": 2, "firewalls.insert": 1, "routers.insert": 1,
		}},
		{"three tiers without a way out", `{"network":{"cidr":"10.50.0.0/20","subnets":["public","private","database"],"nat":"none","flowLogs":"all",
			"secondaryRanges":[{"name":"pods"},{"name":"services","cidr":"10.60.0.0/20"}]}}`, map[string]int{
			"networks.insert": 1, "subnetworks.insert": 3, "firewalls.insert": 1,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, sim.Options{}, job.ModeCreate, c.spec)
			before := g.world.Snapshot()
			if bad := g.check(); len(bad) > 0 {
				t.Errorf("checks: %+v", bad)
			}
			since := g.mark()
			g.up()
			reads, changes := g.calls(since)
			if d := cmp.Diff(c.changes, changes); d != "" {
				t.Errorf("more or less was changed than needed:\n%s", d)
			}
			t.Logf("create: %d changes, %d reads %v", sum(changes), sum(reads), reads)
			if n := sum(reads); n > 60 {
				t.Errorf("%d reads: %v", n, reads)
			}
			ic := g.job.Config.InfraConfig
			if len(ic.PrivateSubnetIDs) != 1 || len(ic.PublicSubnetIDs) != 1 || len(ic.EgressIPs) != len(ic.NATGatewayIDs) || ic.NetworkID == "" {
				t.Errorf("what was learned: %+v", ic)
			}
			if d := g.drift(); len(d) > 0 {
				t.Errorf("drift at once: %v", d)
			}
			report, err := g.p.Controls(t.Context(), g.run(pipeline.Apply))
			if err != nil {
				t.Fatal(err)
			}
			if len(report) < 10 {
				t.Errorf("%d controls: %+v", len(report), report)
			}
			for _, c := range report {
				if !c.Met {
					t.Errorf("not met: %+v", c)
				}
			}
			if left, _, err := g.p.Scan(t.Context(), g.job.ID); err != nil || len(left) != sum(changes) {
				t.Errorf("the scan finds %v, %v", left, err)
			}

			// Another worker, from the start: nothing is changed, and little is read.
			since = g.mark()
			g.another()
			g.up()
			reads, changes = g.calls(since)
			if sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			t.Logf("again: %d reads %v", sum(reads), reads)
			if n := sum(reads); n > 10 {
				t.Errorf("a second run read %d times: %v", n, reads)
			}
			since = g.mark()
			g.down()
			reads, changes = g.calls(since)
			t.Logf("down: %d changes, %d reads %v", sum(changes), sum(reads), reads)
			g.equal(before)
		})
	}
}
