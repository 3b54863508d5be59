package azure

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// Every kind of call that makes or removes a part of a VM job fails once, before
// anything happened or with its answer lost; another worker goes on. Everything is
// there once, a re-run changes nothing, and nothing is left in the end.
func TestVMCrashes(t *testing.T) {
	yes := true
	for _, c := range []struct {
		op   string
		down bool
		spec string // fixedLB if not said
	}{
		{op: "UserAssignedIdentities_CreateOrUpdate"}, {op: "VirtualMachineScaleSets_CreateOrUpdate"}, {op: "VirtualMachines_CreateOrUpdate"},
		{op: "Disks_Update"}, {op: "VirtualMachineRunCommands_CreateOrUpdate"}, {op: "VirtualMachineRunCommands_Delete"},
		{op: "SecurityRules_CreateOrUpdate"}, {op: "LoadBalancers_CreateOrUpdate"}, {op: "LoadBalancerBackendAddressPools_CreateOrUpdate"},
		{op: "NetworkInterfaces_CreateOrUpdate"},
		{op: "UserAssignedIdentities_Delete", down: true}, {op: "VirtualMachineScaleSets_Delete", down: true}, {op: "VirtualMachines_Delete", down: true}, {op: "SecurityRules_Delete", down: true},
		{op: "VirtualMachineScaleSets_Update", spec: setLB}, {op: "VirtualMachineScaleSets_Manualupgrade", spec: setLB}, {op: "AutoscaleSettings_CreateOrUpdate", spec: setLB},
		{op: "AutoscaleSettings_Delete", down: true, spec: setLB}, {op: "VirtualMachineScaleSets_Update", down: true, spec: setLB},
		{op: "LoadBalancers_CreateOrUpdate", down: true}, {op: "LoadBalancers_Delete", down: true}, {op: "LoadBalancerBackendAddressPools_Delete", down: true}, {op: "NetworkInterfaces_CreateOrUpdate", down: true},
	} {
		for _, kind := range []sim.FaultKind{sim.FaultError, sim.FaultLostReply} {
			name := "up "
			if c.down {
				name = "down "
			}
			t.Run(name+c.op+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				g := vms(t, cmp.Or(c.spec, fixedLB))
				before := g.world.Snapshot()
				fault := sim.Fault{Kind: kind, Operation: c.op, Mutating: &yes, Code: "InternalServerError", Status: 500}
				if c.down {
					g.up()
					g.fault(fault)
					g.interrupted(true)
				} else {
					g.fault(fault)
					g.interrupted(false)
					since := g.mark()
					g.another()
					g.up()
					if _, changes := g.calls(since); sum(changes) > 0 {
						t.Errorf("a run of what is there changed %v", changes)
					}
					g.down()
				}
				g.hit()
				g.equal(before)
			})
		}
	}
}

// A VM for which its zone has no room goes to the next; one that was accepted and
// failed for it is replaced (failure kinds A10, G4, G8).
func TestNoRoomInAZone(t *testing.T) {
	t.Parallel()
	g := vms(t, fixedSpec)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultCapacity, Match: "eastus2-1", Count: -1})
	g.up()
	g.hit()
	for _, vm := range g.job.Config.InfraConfig.VMs {
		if vm.Zone == "1" {
			t.Errorf("%s is in the zone without room", vm.Name)
		}
	}
	g.down()
	g.equal(before)
}

// A bootstrap that fails shows the end of its log.
func TestBootstrapFails(t *testing.T) {
	t.Parallel()
	g := vms(t, fixedSpec)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultGuest, Mode: "cloud_init", Match: vmName(g.run(0), "vm-1"), ExitCode: 1, Log: "E: Unable to locate package docker-ce"})
	err := g.try(false, g.steps(false)...)
	if f := fatal(err); f == nil || f.Problem.Code != "bootstrap-failed" || !strings.Contains(f.Problem.Message, "docker-ce") {
		t.Errorf("%v", err)
	}
	g.hit()
	g.another()
	g.down()
	g.equal(before)
}

// The load balancer comes and goes, and the VMs never notice.
func TestAttachAndDetach(t *testing.T) {
	t.Parallel()
	g := vms(t, fixedLB)
	before := g.world.Snapshot()
	up, down := g.steps(false), g.steps(true)
	if err := g.try(false, up[:5]...); err != nil {
		t.Fatal(err)
	}
	launched := map[string]*time.Time{}
	for _, vm := range g.job.Config.InfraConfig.VMs {
		launched[vm.InstanceID] = vm.LaunchedAt
	}
	for range 2 {
		since := g.mark()
		if err := g.try(false, up[5:]...); err != nil {
			t.Fatalf("attach: %v", err)
		}
		health, err := g.p.TargetHealth(anything(g.Context()), g.job)
		if err != nil || len(health) != 2 || health[0].Health != "healthy" {
			t.Errorf("health %v, %v", health, err)
		}
		if err := g.try(true, down[:4]...); err != nil {
			t.Fatalf("detach: %v", err)
		}
		g.job.Config.InfraConfig.ForgetLoadBalancer()
		_, changes := g.calls(since)
		for op, n := range changes {
			if strings.HasPrefix(op, "VirtualMachine") {
				t.Errorf("%s %d times", op, n)
			}
		}
	}
	if err := g.p.RefreshVMs(g.Context(), g.job); err != nil {
		t.Fatal(err)
	}
	for _, vm := range g.job.Config.InfraConfig.VMs {
		if vm.State != job.VMReady || launched[vm.InstanceID] == nil {
			t.Errorf("%+v", vm)
		}
	}
	g.down()
	g.equal(before)
}

func TestRecord(t *testing.T) {
	t.Parallel()
	g := vms(t, `{"pool":{"mode":"fixed","count":1},"loadBalancer":{"type":"http","plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}}}`)
	zone := theirs + "/providers/" + typeDNSZone + "/example.test"
	g.put(theirs, map[string]any{"location": "eastus2"})
	g.put(zone, map[string]any{"location": "global"})
	g.world.Step(5 * time.Minute)
	before := g.world.Snapshot()
	g.up()
	if ic := g.job.Config.InfraConfig; ic.DNSRecord != "shop.example.test" || !g.exists(zone+"/A/shop") {
		t.Errorf("record %q", ic.DNSRecord)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	g.down()
	g.equal(before)
}

// A record that somebody has pointed elsewhere is theirs: a teardown leaves it.
func TestRecordOfSomebodyElse(t *testing.T) {
	t.Parallel()
	g := vms(t, `{"pool":{"mode":"fixed","count":1},"loadBalancer":{"type":"http","plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}}}`)
	zone := theirs + "/providers/" + typeDNSZone + "/example.test"
	g.put(theirs, map[string]any{"location": "eastus2"})
	g.put(zone, map[string]any{"location": "global"})
	g.world.Step(5 * time.Minute)
	g.up()
	g.put(zone+"/A/shop", map[string]any{"properties": map[string]any{"TTL": 300, "metadata": map[string]any{}, "ARecords": []any{map[string]any{"ipv4Address": "192.0.2.1"}}}})
	g.another()
	if f := fatal(g.try(false, g.p.EnsureRecord)); f == nil || f.Problem.Code != "not-ours" {
		t.Errorf("a run takes it over: %v", f)
	}
	g.down()
	if !g.exists(zone + "/A/shop") {
		t.Error("the teardown took somebody else's record along")
	}
}

func TestAdoptedVMs(t *testing.T) {
	t.Parallel()
	g := vms(t, fixedSpec)
	g.up()
	g.job.Labels = nil
	id := g.job.Config.InfraConfig.VMs[0].InstanceID
	g.world.Step(5 * time.Minute)
	other := *g.job
	other.ID, other.Mode = job.NewID("job"), job.ModeAdopt
	other.Config = job.Config{Spec: []byte(`{"adopt":{"ids":["` + id + `"]}}`)}
	mine := g.job
	g.job = &other
	err := g.try(false, g.p.AdoptVMs)
	if f := fatal(err); f == nil || f.Problem.Code != "owned-by-another-job" {
		t.Errorf("%v", err)
	}
	g.job = mine
}
