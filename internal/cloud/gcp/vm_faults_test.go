package gcp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// equalTo compares the project with how it was in the middle of a job.
func (g vmRig) equalTo(was sim.Snapshot) {
	g.Helper()
	if d := cmp.Diff(was, g.world.Snapshot()); d != "" {
		g.Errorf("the project is not as it was:\n%s", d)
	}
}

// A lack of room in one zone moves a VM to another, one everywhere is waited for,
// and in the end it is named (G4, G5, G7).
func TestVMCapacity(t *testing.T) {
	t.Parallel()
	t.Run("in one zone", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedSpec)
		before := g.world.Snapshot()
		g.fault(sim.Fault{Kind: sim.FaultCapacity, Operation: "instances.insert", Match: "us-central1-a", Count: -1})
		g.create()
		g.hit()
		for _, vm := range g.infra().VMs {
			if vm.Zone != "us-central1-b" || vm.State != job.VMReady {
				t.Errorf("VM is %+v", vm)
			}
		}
		g.teardown()
		g.equal(before)
	})
	t.Run("everywhere for a while", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedSpec)
		g.fault(sim.Fault{Kind: sim.FaultCapacity, Operation: "instances.insert", Count: -1, Seconds: 240})
		g.create()
		g.hit()
		if n := len(g.world.Objects(sim.ObjectFilter{Kind: "instance"})); n != 2 {
			t.Errorf("%d VMs, want 2", n)
		}
	})
	t.Run("everywhere for ever", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedSpec)
		before := g.world.Snapshot()
		g.fault(sim.Fault{Kind: sim.FaultCapacity, Operation: "instances.insert", Count: -1})
		_, err := g.play(job.PhaseProvision, "")
		if fatalCode(err) != "no-capacity" || !strings.Contains(err.Error(), "e2-medium") || !strings.Contains(err.Error(), "does not have enough resources") {
			t.Fatalf("verdict %v", err)
		}
		g.world.ClearFaults("")
		g.teardown()
		g.equal(before)
	})
	t.Run("in a managed group", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, groupSpec)
		g.fault(sim.Fault{Kind: sim.FaultCapacity, Count: -1})
		_, err := g.play(job.PhaseProvision, "")
		if fatalCode(err) != "no-capacity" || !strings.Contains(err.Error(), "does not have enough resources") {
			t.Fatalf("verdict %v", err)
		}
		g.world.ClearFaults("")
		g.another()
		g.create()
	})
}

// A quota is found short before anything is made, and where it runs out later
// the job says which and ends clean (G1).
func TestVMQuota(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.world.SetQuota("gcp", "compute", "INSTANCES-per-project-region", "", "", 1)
	checks := slices.DeleteFunc(g.rig.check(), func(c cloud.Check) bool { return c.Status != cloud.CheckFails })
	if len(checks) != 1 || !strings.Contains(checks[0].Message, "INSTANCES") {
		t.Errorf("checks: %+v", checks)
	}
	before := g.world.Snapshot()
	g.world.SetQuota("gcp", "compute", "INSTANCES-per-project-region", "", "", 720)
	if err := g.try(false, g.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureLaunchTemplate); err != nil {
		t.Fatal(err)
	}
	g.world.SetQuota("gcp", "compute", "INSTANCES-per-project-region", "", "", 1)
	err := g.try(false, g.p.EnsureVMs)
	if d := pipeline.Judge(err, 100); d.Problem.Code != "quota-exceeded" || !strings.Contains(d.Problem.Message, "INSTANCES") {
		t.Errorf("verdict %v", err)
	}
	g.all(true, g.gone()...)
	g.world.SetQuota("gcp", "compute", "INSTANCES-per-project-region", "", "", 720)
	g.equal(before)
}

// A bootstrap that fails is told with the end of its log, and a retry puts
// another VM in its place (M7, M11).
func TestBootstrapFailure(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultGuest, Mode: "no_egress", Match: "vm-2"})
	stopped, err := g.play(job.PhaseProvision, "")
	if fatalCode(err) != "bootstrap-failed" || stopped != "stepCreateVMs" || !strings.Contains(err.Error(), "step docker-install") || !strings.Contains(err.Error(), "end of /var/log/zopday-bootstrap.log") {
		t.Fatalf("%s: verdict %v", stopped, err)
	}
	g.hit()
	if vm := g.infra().VMs[0]; vm.State != job.VMReady {
		t.Errorf("the other VM is %+v", vm)
	}
	g.another()
	since := g.mark()
	g.create()
	if _, changes := g.calls(since); changes["instances.delete"] != 1 || changes["instances.insert"] != 1 {
		t.Errorf("the retry changed %v", changes)
	}
	for _, vm := range g.infra().VMs {
		if vm.State != job.VMReady {
			t.Errorf("VM is %+v", vm)
		}
	}
	g.teardown()
	g.equal(before)
}

// A health check that nothing answers is told with its path and port; a PATCH
// and a retry put it right, and for somebody's own service it is a warning.
func TestUnhealthyBackends(t *testing.T) {
	t.Parallel()
	t.Run("docker_nginx", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, `{"pool":{"count":2},"loadBalancer":{"plainHTTP":true,"healthCheck":{"path":"/nothing"}}}`)
		_, err := g.play(job.PhaseProvision, "")
		if fatalCode(err) != "targets-unhealthy" || !strings.Contains(err.Error(), "GET /nothing on port 80") || !strings.Contains(err.Error(), "unhealthy") {
			t.Fatalf("verdict %v", err)
		}
		g.job.Config.Spec = []byte(fixedLBSpec)
		g.another()
		g.create()
		g.asAsked()
	})
	t.Run("bare_metal", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, `{"bootstrap":"bare_metal","pool":{"count":2},"loadBalancer":{"plainHTTP":true}}`)
		before := g.world.Snapshot()
		g.create()
		if !slices.ContainsFunc(g.infra().Warnings, func(w string) bool { return strings.Contains(w, "GET /healthz on port 80") }) {
			t.Errorf("warnings: %v", g.infra().Warnings)
		}
		g.teardown()
		g.equal(before)
	})
}

// A VM that somebody deletes is made again, and one read that misses it is not
// believed (D2).
func TestLostVM(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedLBSpec)
	before := g.world.Snapshot()
	g.create()
	g.fault(sim.Fault{Kind: sim.FaultHidden, Match: g.infra().VMs[0].Name, Count: 1})
	since := g.mark()
	g.another()
	g.create()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("a miss changed %v", changes)
	}
	g.world.ClearFaults("")
	if _, err := g.world.RemoveObject(g.infra().VMs[1].InstanceID); err != nil {
		t.Fatal(err)
	}
	g.another()
	g.create()
	if n := len(g.world.Objects(sim.ObjectFilter{Kind: "instance"})); n != 2 {
		t.Errorf("%d VMs, want 2", n)
	}
	g.asAsked()
	g.teardown()
	g.equal(before)
}

// A namesake is never touched, and the record of somebody else never taken over
// or away (B5, L5).
func TestNamesakes(t *testing.T) {
	t.Parallel()
	t.Run("template", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedSpec)
		g.place("compute", "instanceTemplates.insert", map[string]any{"name": g.job.ResourceName(templateKey, 63), "properties": map[string]any{
			"machineType": "e2-small", "networkInterfaces": []any{map[string]any{"network": "global/networks/default"}},
			"disks": []any{map[string]any{"boot": true, "initializeParams": map[string]any{"sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"}}}}})
		before := g.world.Snapshot()
		_, err := g.play(job.PhaseProvision, "")
		if fatalCode(err) != "name-taken" {
			t.Fatalf("verdict %v", err)
		}
		g.teardown()
		g.equal(before)
	})
	t.Run("record", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedDNSSpec)
		g.furnish()
		theirs := map[string]any{"managedZone": "example-test", "name": "shop.example.test.", "type": "A", "ttl": 60, "rrdatas": []any{"203.0.113.9"}}
		g.place("dns", "resourceRecordSets.create", theirs)
		before := g.world.Snapshot()
		failed := slices.DeleteFunc(g.rig.check(), func(c cloud.Check) bool { return c.Status != cloud.CheckFails })
		if len(failed) != 1 || failed[0].Name != "DNS record" {
			t.Errorf("checks: %+v", failed)
		}
		g.infra().Account = ""
		steps := g.built()[1:]
		if err := g.try(false, steps...); fatalCode(err) != "name-taken" {
			t.Errorf("verdict %v", err)
		}
		g.all(true, g.gone()...)
		g.equal(before)
	})
	t.Run("record that was pointed elsewhere", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedDNSSpec)
		g.furnish()
		g.all(false, g.built()...)
		g.place("dns", "resourceRecordSets.patch", map[string]any{"managedZone": "example-test", "name": "shop.example.test.", "type": "A", "ttl": 60, "rrdatas": []any{"203.0.113.9"}})
		g.all(true, g.gone()...)
		if !g.exists("projects/" + testProject + "/managedZones/example-test/rrsets/shop.example.test./A") {
			t.Error("somebody's record is gone")
		}
	})
}

// The project's policy is changed by many: nobody's binding is lost when two
// write at once, nor when ours is taken away again.
func TestProjectPolicy(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "projects.setIamPolicy", Code: "ABORTED", Status: 409, Message: "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff.", Count: 2})
	if err := g.try(false, g.p.EnsureIdentity); err != nil {
		t.Fatal(err)
	}
	g.hit()
	policy, err := g.p.readPolicy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ours := 0
	for _, b := range policy.Bindings {
		if slices.ContainsFunc(b.Members, isMember("serviceAccount:"+g.infra().ServiceAccount)) {
			ours++
			if b.Role != vmRole {
				t.Errorf("the account has %s", b.Role)
			}
		}
	}
	if ours != 1 {
		t.Errorf("the account has %d roles, want 1", ours)
	}
	g.all(true, g.p.RemoveIdentity)
	g.world.Step(time.Minute)
	g.equal(before)
}

// A VM whose cloud-init fails before the bootstrap reports nothing: its console
// tells, long before anybody loses patience.
func TestSilentFailure(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.fault(sim.Fault{Kind: sim.FaultGuest, Mode: "cloud_init", Match: "vm-2", ExitCode: 99, Log: "E: the mirror does not answer"})
	began := g.world.Clock.Now()
	_, err := g.play(job.PhaseProvision, "")
	if fatalCode(err) != "bootstrap-failed" || !strings.Contains(err.Error(), "the mirror does not answer") {
		t.Fatalf("verdict %v", err)
	}
	if took := g.world.Clock.Now().Sub(began); took > 15*time.Minute {
		t.Errorf("it took %s", took)
	}
}

// Small pages, some of them empty, and a cloud that shows late what was made
// change nothing in the end (D1, F7, Q1, Q2).
func TestHardTimes(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"fixed": fixedDNSSpec, "group": groupLBSpec} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{PageSize: 5, EmptyPages: 0.3, ConsistencyByID: 10 * time.Second, ConsistencyByList: 30 * time.Second}, spec)
			g.furnish()
			before := g.world.Snapshot()
			g.create()
			if n := len(g.world.Objects(sim.ObjectFilter{Kind: "instance"})); n != 2 {
				t.Errorf("%d VMs, want 2", n)
			}
			g.another()
			since := g.mark()
			g.create()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			g.teardown()
			g.equal(before)
		})
	}
}
