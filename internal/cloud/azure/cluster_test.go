package azure

import (
	"testing"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	g := clusters(t, clusterSpec)
	before := g.world.Snapshot()
	g.up()
	reads, changes := g.calls(0)
	t.Logf("create: %d changes %v, %d reads %v", sum(changes), changes, sum(reads), reads)
	info := g.job.Config.InfraConfig.Cluster
	if info.Endpoint == "" || info.OIDCIssuer == "" || info.Version == "" || info.SupportUntil == "" || !info.Public || info.LogGroup == "" || info.NodeGroup == "" || info.RoleID == "" || info.NodeRoleID == "" {
		t.Errorf("learned %+v", info)
	}
	for _, n := range info.NodePools {
		if n.State != "Succeeded" || n.ID == "" || n.InstanceType == "" || len(n.Zones) != 3 {
			t.Errorf("pool %+v", n)
		}
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	g.controlsMet()
	since := g.mark()
	g.another()
	g.up()
	reads, changes = g.calls(since)
	if sum(changes) > 0 {
		t.Errorf("a second run changed %v", changes)
	}
	t.Logf("again: %d reads %v", sum(reads), reads)
	since = g.mark()
	g.down()
	reads, changes = g.calls(since)
	t.Logf("down: %d changes %v, %d reads %v", sum(changes), changes, sum(reads), reads)
	g.equal(before)
}
