package gcp

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/spaces/configv1"
	"github.com/zopday/provisioner/internal/steps"
)

const (
	fixedSpec       = `{"pool":{"count":2}}`
	fixedLBSpec     = `{"pool":{"count":2},"loadBalancer":{"type":"http","plainHTTP":true}}`
	fixedDNSSpec    = `{"pool":{"count":2},"loadBalancer":{"type":"http","plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}}}`
	fixedTLSSpec    = `{"pool":{"count":2},"loadBalancer":{"type":"http","certificate":"shop"}}`
	internalSpec    = `{"pool":{"count":2},"loadBalancer":{"type":"http","scheme":"internal","plainHTTP":true}}`
	tcpSpec         = `{"pool":{"count":2},"loadBalancer":{"type":"tcp"}}`
	tcpInternalSpec = `{"pool":{"count":2},"loadBalancer":{"type":"tcp","scheme":"internal"}}`
	groupSpec       = `{"pool":{"mode":"asg","min":1,"desired":2,"max":4}}`
	groupLBSpec     = `{"pool":{"mode":"asg","min":2,"desired":2,"max":4},"loadBalancer":{"type":"http","plainHTTP":true}}`
)

// anySpace takes every registration.
type anySpace struct{}

func (anySpace) Register(context.Context, *configv1.Space) (string, error) { return "spc_1", nil }
func (anySpace) Deregister(context.Context, string, string) error          { return nil }

// A vmRig takes a VM job through its whole pipeline.
type vmRig struct{ *rig }

func newVMs(t testing.TB, o sim.Options, spec string) vmRig {
	t.Helper()
	return newVMsIn(t, o, job.ModeCreate, spec)
}

func newVMsIn(t testing.TB, o sim.Options, mode job.Mode, spec string) vmRig {
	t.Helper()
	o.TimeScale = quick
	g := newRigFor(t, o, job.VM, mode, spec)
	g.world.Clock.Stop()
	return vmRig{g}
}

// run is a pass by the simulated clock, which stands still but while the job
// waits: a machine that is busy makes nothing late.
func (g vmRig) run(mode pipeline.Mode) *pipeline.Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := pipeline.NewRun(g.job, mode, slices.Collect(maps.Values(g.objects)), g, g.memory, g.world.Clock.Now, 1)
	g.runs = append(g.runs, r)
	return r
}

// try runs steps up or down until each is done, and returns the verdict of one
// that stops.
func (g vmRig) try(down bool, steps ...step) error {
	g.Helper()
	ctx := anything(g.Context())
	for _, f := range steps {
		for attempts, passes := 0, 0; ; passes++ {
			r := g.run(pipeline.Apply)
			r.Down, r.Step = down, "step"
			err := f(ctx, r)
			d := pipeline.Judge(err, attempts)
			if d.Action == pipeline.Advance {
				break
			}
			if d.Action == pipeline.Stop {
				return err
			}
			if d.Action == pipeline.Again {
				attempts++
			}
			if passes > 1500 {
				g.Fatalf("still %v\n%s", err, g.books(25))
			}
			g.world.Step(d.After)
		}
	}
	return nil
}

// play runs the job's phase and returns the verdict of a step that stops.
func (g vmRig) play(phase job.Phase, op job.VMOp) (stopped string, err error) {
	g.Helper()
	g.job.Phase, g.job.VMOp = phase, op
	set := steps.Set{Cloud: g.p, Spaces: anySpace{}}
	list, dir, err := set.Current(g.job)
	if err != nil {
		g.Fatal(err)
	}
	for _, s := range list {
		f := s.Ensure
		if dir == job.Down {
			f = s.Remove
		}
		if f == nil {
			continue
		}
		if err := g.try(dir == job.Down, step(f)); err != nil {
			return s.Name, err
		}
	}
	return "", nil
}

func (g vmRig) must(phase job.Phase, op job.VMOp) {
	g.Helper()
	if step, err := g.play(phase, op); err != nil {
		g.Fatalf("%s: %v\n%s", step, err, g.books(30))
	}
}

func (g vmRig) create() { g.Helper(); g.must(job.PhaseProvision, "") }

func (g vmRig) teardown() {
	g.Helper()
	g.another()
	g.must(job.PhaseTeardown, "")
}

// verify is what the whole pipeline finds different, and how many reads it took.
func (g vmRig) verify() ([]pipeline.Drift, map[string]int) {
	g.Helper()
	g.another()
	g.job.Phase, g.job.VMOp = job.PhaseProvision, ""
	since := g.mark()
	set := steps.Set{Cloud: g.p, Spaces: anySpace{}}
	drift, err := set.Drift(g.Context(), g.job, slices.Collect(maps.Values(g.objects)), 1)
	if err != nil {
		g.Fatalf("verify: %v\n%s", err, g.books(20))
	}
	reads, changes := g.calls(since)
	if len(changes) > 0 {
		g.Errorf("a verify changed %v", changes)
	}
	return drift, reads
}

func (g vmRig) asAsked() {
	g.Helper()
	drift, reads := g.verify()
	for _, d := range drift {
		g.Errorf("drift: %+v", d)
	}
	if n := sum(reads); n > 60 {
		g.Errorf("a verify took %d reads: %v", n, reads)
	}
}

func (g vmRig) infra() *job.InfraConfig { return &g.job.Config.InfraConfig }

// place makes something of somebody else's, before or behind the product's back.
func (g vmRig) place(service, op string, params map[string]any) {
	g.Helper()
	g.invoke(testProject, service, op, params)
	g.world.Step(time.Minute)
}

// furnish makes what a spec takes for granted.
func (g vmRig) furnish() {
	g.Helper()
	g.place("dns", "managedZones.create", map[string]any{"name": "example-test", "dnsName": "example.test.", "description": "theirs"})
	g.place("compute", "sslCertificates.insert", map[string]any{"name": "shop", "type": "MANAGED", "managed": map[string]any{"domains": []any{"shop.example.test"}}})
	if _, err := g.world.SetObjectState("projects/"+testProject+"/global/sslCertificates/shop", "ACTIVE", "", ""); err != nil {
		g.Fatal(err)
	}
}

// check is stepValidate without its other questions.
func (g vmRig) check(ctx context.Context, r *pipeline.Run) error {
	all, err := g.p.Check(ctx, r)
	for _, c := range all {
		if c.Status == cloud.CheckFails {
			g.Errorf("check: %+v", c)
		}
	}
	return err
}

// built is the steps up to a load balancer and its record, without a look into
// the VMs; gone is their way back.
func (g vmRig) built() []step {
	return []step{g.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureLaunchTemplate, g.p.EnsureVMs, g.p.EnsureLoadBalancer, g.p.EnsureTargetGroup, g.p.EnsureListener, g.p.EnsureRecord}
}

func (g vmRig) gone() []step {
	return []step{g.p.RemoveRecord, g.p.RemoveListener, g.p.RemoveTargetGroup, g.p.RemoveLoadBalancer, g.p.RemoveVMs, g.p.RemoveLaunchTemplate, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

func fatalCode(err error) string {
	var f *pipeline.FatalError
	if errors.As(err, &f) {
		return f.Problem.Code
	}
	return ""
}

func TestVMEnvironments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		lb, dns    bool
	}{
		{"fixed", fixedSpec, false, false},
		{"fixed with a load balancer", fixedLBSpec, true, false},
		{"fixed with a record", fixedDNSSpec, true, true},
		{"fixed with a certificate", fixedTLSSpec, true, false},
		{"fixed with an internal load balancer", internalSpec, true, false},
		{"fixed with a TCP load balancer", tcpSpec, true, false},
		{"fixed with an internal TCP load balancer", tcpInternalSpec, true, false},
		{"group", groupSpec, false, false},
		{"group with a load balancer", groupLBSpec, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, c.spec)
			g.furnish()
			before := g.world.Snapshot()
			since, start := g.mark(), time.Now()
			g.create()
			reads, changes := g.calls(since)
			t.Logf("create: %d reads %v, %d changes %v, %s", sum(reads), reads, sum(changes), changes, time.Since(start))
			if n := sum(reads); n > 300 {
				t.Errorf("the create took %d reads: %v", n, reads)
			}
			if got := len(g.infra().VMs); got != 2 {
				t.Errorf("%d VMs, want 2", got)
			}
			zones := map[string]bool{}
			for _, vm := range g.infra().VMs {
				zones[vm.Zone] = true
				if vm.State != job.VMReady || vm.PrivateIP == "" || vm.InstanceID == "" || vm.SentinelSeenAt == nil || vm.ExecMode != job.ExecOSConfig {
					t.Errorf("VM is %+v", vm)
				}
			}
			if len(zones) != 2 {
				t.Errorf("the VMs are in %v", zones)
			}
			if c.lb && (len(g.infra().Targets) != 2 || g.infra().Targets[0].Health != cloud.HealthyTarget || g.infra().LoadBalancerHost == "") {
				t.Errorf("targets: %+v, host %q", g.infra().Targets, g.infra().LoadBalancerHost)
			}
			if got, want := g.infra().DNSRecord != "", c.dns; got != want {
				t.Errorf("record %q, want one: %v", g.infra().DNSRecord, want)
			}
			for _, row := range g.infra().Report {
				if !row.Met {
					t.Errorf("control %s %s: wanted %q, seen %q", row.ID, row.Name, row.Wanted, row.Seen)
				}
			}
			g.asAsked()
			g.another()
			since = g.mark()
			g.create()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			g.teardown()
			g.equal(before)
		})
	}
}
