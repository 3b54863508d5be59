package azure

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// next is another job in the same subscription; the ledger of the one before is
// left behind.
func (g *rig) next(family job.ResourceType, mode job.Mode, spec string) {
	g.Helper()
	g.world.Step(5 * time.Minute) // what there is has been there for a while
	g.job = &job.Job{
		ID: job.NewID("job"), OrgID: "org_1", Kind: job.Provisioning, ResourceType: family, Provider: job.Azure, Mode: mode,
		Name: "shop-next", CloudAccountID: "default", Region: "eastus2", Config: job.Config{Spec: json.RawMessage(spec)},
	}
	if err := g.job.Validate(); err != nil {
		g.Fatal(err)
	}
	g.objects, g.memory = map[string]job.Object{}, pipeline.NewMemory()
}

// VMs in somebody's network: nothing of it is written, and all of it is there
// afterwards (failure kinds F1, F2, F10).
func TestVMsInANetworkOfOthers(t *testing.T) {
	t.Parallel()
	g := network(t, `{"network":{"subnets":["private"]}}`)
	g.up()
	made := g.job.Config.InfraConfig
	g.next(job.VM, job.ModeCreateInExisting, fmt.Sprintf(`{"pool":{"mode":"fixed","count":1},"existing":{"networkId":%q,"subnetIds":[%q]}}`, made.NetworkID, path.Base(made.PrivateSubnetIDs[0])))
	before := g.world.Snapshot()
	since := g.mark()
	g.up()
	_, changes := g.calls(since)
	for op := range changes {
		if strings.HasPrefix(op, "Subnets") || strings.HasPrefix(op, "VirtualNetworks") || strings.HasPrefix(op, "NatGateways") {
			t.Errorf("%s: the network of others was written", op)
		}
	}
	if ic := g.job.Config.InfraConfig; len(ic.VMs) != 1 || ic.VMs[0].State != job.VMReady || !slices.Equal(ic.EgressIPs, made.EgressIPs) {
		t.Errorf("learned %+v", ic)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	g.down()
	g.equal(before)
}

// An adoption reads, warns, and calls nothing that changes anything.
func TestAdoptedVMsAreOnlyRead(t *testing.T) {
	t.Parallel()
	g := vms(t, fixedSpec)
	g.up()
	id := g.job.Config.InfraConfig.VMs[0].InstanceID
	vm := g.read(id)
	delete(vm, "tags")
	g.put(id, vm) // as if it were nobody's
	g.next(job.VM, job.ModeAdopt, fmt.Sprintf(`{"adopt":{"ids":[%q]}}`, path.Base(id)))
	before := g.world.Snapshot()
	since := g.mark()
	if err := g.try(false, g.check, g.p.AdoptVMs); err != nil {
		t.Fatal(err)
	}
	ic := g.job.Config.InfraConfig
	if len(ic.VMs) != 1 || ic.VMs[0].State != job.VMReady || ic.VMs[0].PrivateIP == "" || ic.InstanceType == "" {
		t.Errorf("learned %+v", ic)
	}
	if err := g.p.RefreshVMs(g.Context(), g.job); err != nil {
		t.Error(err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("an adoption changed %v", changes)
	}
	g.equal(before)
}
