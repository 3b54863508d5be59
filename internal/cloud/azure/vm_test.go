package azure

import (
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
)

func TestVMs(t *testing.T) {
	for _, c := range []struct{ name, spec string }{
		{"fixed", fixedSpec}, {"scale set", setSpec}, {"fixed with a load balancer", fixedLB}, {"scale set with a load balancer", setLB},
		{"internal load balancer", `{"pool":{"mode":"fixed","count":1},"loadBalancer":{"type":"tcp","scheme":"internal"}}`},
		{"arm64", `{"pool":{"mode":"fixed","count":1,"size":{"vcpus":2,"memoryGiB":4,"arch":"arm64"}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := vms(t, c.spec)
			before := g.world.Snapshot()
			g.up()
			reads, changes := g.calls(0)
			t.Logf("create: %d changes %v, %d reads %v", sum(changes), changes, sum(reads), reads)
			ic := g.job.Config.InfraConfig
			for _, vm := range ic.VMs {
				if vm.State != job.VMReady || vm.PrivateIP == "" || !strings.HasPrefix(g.p.ExecCommand(g.job, vm), "az vm") {
					t.Errorf("VM %+v", vm)
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
		})
	}
}
