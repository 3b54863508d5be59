package azure

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/zopday/provisioner/internal/sim"
)

// vm makes a machine with an interface of its own.
func (g *rig) vm(name, script string) {
	g.t.Helper()
	p, err := g.compute().NewVirtualMachinesClient().BeginCreateOrUpdate(g.ctx, "rg", name, vmModel(g.nic(name), script), nil)
	done(g, p, err)
}

func TestMachineFaults(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	vms := g.compute().NewVirtualMachinesClient()

	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Service: "compute", Operation: "VirtualMachines_CreateOrUpdate", Code: "InternalExecutionError", Message: "An internal execution error occurred."})
	p, err := vms.BeginCreateOrUpdate(g.ctx, "rg", "failed", vmModel(g.nic("nic1"), ""), nil)
	_, err = wait(g, p, err)
	if err == nil || !strings.Contains(err.Error(), "InternalExecutionError") {
		t.Errorf("op_failed: %v", err)
	}
	view := must(vms.InstanceView(g.ctx, "rg", "failed", nil))(t)
	if *view.Statuses[0].Code != "ProvisioningState/failed/InternalExecutionError" {
		t.Errorf("view %s", text(view.Statuses))
	}

	g.fault(sim.Fault{Kind: sim.FaultSwallow, Operation: "VirtualMachines_CreateOrUpdate"})
	if _, err = vms.BeginCreateOrUpdate(g.ctx, "rg", "swallowed", vmModel(g.nic("nic2"), ""), nil); err != nil {
		t.Fatal(err)
	}
	g.world.Step(time.Minute)
	_, err = vms.Get(g.ctx, "rg", "swallowed", nil)
	refused(t, err, 404, "ResourceNotFound")

	g.fault(sim.Fault{Kind: sim.FaultLostReply, Operation: "VirtualMachines_CreateOrUpdate"})
	model := vmModel(g.nic("nic3"), "")
	if _, err = vms.BeginCreateOrUpdate(g.ctx, "rg", "lost", model, nil); err == nil {
		t.Error("the reply was not lost")
	}
	p, err = vms.BeginCreateOrUpdate(g.ctx, "rg", "lost", model, nil)
	done(g, p, err)
	if disks := g.world.Objects(sim.ObjectFilter{Kind: "disks"}); len(disks) != 2 { // of lost and failed
		t.Errorf("%d disks", len(disks))
	}

	g.fault(sim.Fault{Kind: sim.FaultHidden, Match: "lost", Count: 1})
	_, err = vms.Get(g.ctx, "rg", "lost", nil)
	refused(t, err, 404, "ResourceNotFound")
	g.fault(sim.Fault{Kind: sim.FaultPage, Mode: "empty", Operation: "VirtualMachines_List"})
	pages, n := 0, 0
	for pager := vms.NewListPager("rg", nil); pager.More(); pages++ {
		n += len(must(pager.NextPage(g.ctx))(t).Value)
	}
	if pages != 2 || n != 2 {
		t.Errorf("%d machines on %d pages", n, pages)
	}

	g.fault(sim.Fault{Kind: sim.FaultTransition, Match: "lost", State: "stopped"})
	if got := must(vms.InstanceView(g.ctx, "rg", "lost", nil))(t); *got.Statuses[1].Code != "PowerState/stopped" {
		t.Errorf("statuses %s", text(got.Statuses))
	}
	g.fault(sim.Fault{Kind: sim.FaultTransition, Match: "lost", State: "deleted"})
	_, err = vms.Get(g.ctx, "rg", "lost", nil)
	refused(t, err, 404, "ResourceNotFound")
}

func TestGuestFaults(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	g.outbound("net")
	for mode, c := range map[string]struct {
		fault sim.Fault
		want  string
	}{
		"cloud_init": {sim.Fault{ExitCode: 9, Log: "E: no such package"}, "status: error"},
		"sentinel":   {sim.Fault{}, "status: running"},
		"no_egress":  {sim.Fault{}, "status: error"},
		"slow":       {sim.Fault{Seconds: 3600}, "status: running"},
	} {
		name := strings.ReplaceAll(mode, "_", "-")
		c.fault.Kind, c.fault.Mode, c.fault.Match = sim.FaultGuest, mode, name
		g.fault(c.fault)
		g.vm(name, webServer)
		g.world.Step(25 * time.Minute)
		out, err := g.run(name, "cloud-init status; ls /var/lib/app/ready")
		if err != nil || !strings.Contains(out, c.want) || !strings.Contains(out, "No such file") {
			t.Errorf("%s: %q, %v", mode, out, err)
		}
	}
	g.fault(sim.Fault{Kind: sim.FaultGuest, Mode: "agent", Match: "late", Seconds: 120})
	g.vm("late", webServer)
	vms := g.compute().NewVirtualMachinesClient()
	g.world.Step(90 * time.Second)
	if got := must(vms.InstanceView(g.ctx, "rg", "late", nil))(t); *got.VMAgent.Statuses[0].DisplayStatus != "Not Ready" {
		t.Errorf("agent %s", text(got.VMAgent))
	}
	// The command waits for the agent.
	if out, err := g.run("late", "echo here"); err != nil || !strings.Contains(out, "here") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestGroupTakesMachinesAlong(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	pool := g.balancer()
	g.vm("web", "")
	for _, mode := range []armcompute.OrchestrationMode{armcompute.OrchestrationModeUniform, armcompute.OrchestrationModeFlexible} {
		p, err := g.compute().NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(g.ctx, "rg", "set-"+strings.ToLower(string(mode)), setModel(mode, 2, pool, ""), nil)
		done(g, p, err)
	}
	p, err := g.groups().BeginDelete(g.ctx, "rg", nil)
	done(g, p, err)
	for _, o := range g.world.Objects(sim.ObjectFilter{}) {
		if strings.Contains(o.ID, "/resourceGroups/rg/") {
			t.Errorf("left: %s", o.ID)
		}
	}
	g.world.Lock()
	defer g.world.Unlock()
	if n := len(g.cloud.guests.state.Guests) + len(g.cloud.guests.state.Sets); n > 0 {
		t.Errorf("%d guests and sets are left", n)
	}
}

// TestGuestsAreData: a simulation that keeps its world in a directory writes machines as JSON and goes on from there.
func TestGuestsAreData(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	g.vm("web", "#!/bin/sh\ntouch /tmp/made\n")
	g.world.Step(3 * time.Minute)
	g.world.Lock()
	b, err := json.Marshal(g.cloud.guests.State())
	fresh := guestsState{}
	if err == nil {
		err = json.Unmarshal(b, &fresh)
	}
	g.cloud.guests.state = fresh
	g.world.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := g.run("web", "ls /tmp/made"); err != nil || !strings.Contains(out, "[stdout]\n/tmp/made") {
		t.Errorf("%q, %v", out, err)
	}
}
