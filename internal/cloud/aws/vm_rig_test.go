package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/spaces/configv1"
	"github.com/zopday/provisioner/internal/steps"
)

const (
	fixedSpec    = `{"pool":{"count":2,"instanceType":"t3.medium"}}`
	fixedLBSpec  = `{"pool":{"count":2,"instanceType":"t3.medium"},"loadBalancer":{"type":"http","plainHTTP":true}}`
	fixedDNSSpec = `{"pool":{"count":2,"instanceType":"t3.medium"},"loadBalancer":{"type":"http","plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}}}`
	nlbSpec      = `{"pool":{"count":2,"instanceType":"t3.medium"},"loadBalancer":{"type":"tcp","scheme":"internal"}}`
	groupSpec    = `{"pool":{"mode":"asg","min":1,"desired":2,"max":4,"instanceType":"t3.medium"}}`
	groupLBSpec  = `{"pool":{"mode":"asg","min":1,"desired":2,"max":4,"instanceType":"t3.medium"},"loadBalancer":{"type":"http","plainHTTP":true}}`
)

// anySpace takes every registration.
type anySpace struct{}

func (anySpace) Register(context.Context, *configv1.Space) (string, error) { return "spc_1", nil }
func (anySpace) Deregister(context.Context, string, string) error          { return nil }

// A vmRig takes a job through its whole pipeline.
type vmRig struct{ *rig }

func newVMs(t testing.TB, o sim.Options, spec string) vmRig {
	t.Helper()
	g := newRig(t, o, job.ModeCreate, spec)
	g.job.Config.InfraConfig.Zones = nil // the check resolves them
	g.world.Clock.Stop()
	return vmRig{g}
}

// run is a pass by the simulated clock, which stands still but while the job
// waits: a machine that is busy makes nothing late.
func (g vmRig) run(mode pipeline.Mode) *pipeline.Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return pipeline.NewRun(g.job, mode, slices.Collect(maps.Values(g.objects)), g, g.memory, g.world.Clock.Now, 1)
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
	var objects []job.Object
	for _, o := range g.objects {
		objects = append(objects, o)
	}
	drift, err := set.Drift(g.Context(), g.job, objects, 1)
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
	if n := sum(reads); n > 50 {
		g.Errorf("a verify took %d reads: %v", n, reads)
	}
}

func (g vmRig) infra() *job.InfraConfig { return &g.job.Config.InfraConfig }

// created is how many objects the ledger has.
func (g vmRig) created(kind string) (n int) {
	for _, o := range g.objects {
		if (kind == "" || o.Kind == kind) && o.State == job.ObjectCreated {
			n++
		}
	}
	return n
}

// place makes something of somebody else's, before or behind the product's back.
func (g vmRig) place(service, op string, params map[string]any) {
	g.Helper()
	if _, err := g.world.Invoke("aws", service, op, "123456789012", "us-east-1", params); err != nil {
		g.Fatalf("place %s: %v", op, err)
	}
}

// zoned makes a public hosted zone.
func (g vmRig) zoned(name string) string {
	g.Helper()
	out, err := g.p.r53.CreateHostedZone(anything(g.Context()), &route53.CreateHostedZoneInput{Name: &name, CallerReference: aws.String(name + fmt.Sprint(g.mark()))})
	if err != nil {
		g.Fatal(err)
	}
	g.world.Step(30 * time.Second) // until lists show it
	return strings.TrimPrefix(*out.HostedZone.Id, "/hostedzone/")
}

// built is the steps up to a load balancer and its record, without a look into
// the VMs; gone is their way back.
func (g vmRig) built() []step {
	return []step{g.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureLaunchTemplate, g.p.EnsureVMs, g.p.EnsureLoadBalancer, g.p.EnsureTargetGroup, g.p.EnsureListener, g.p.EnsureRecord}
}

func (g vmRig) gone() []step {
	return []step{g.p.RemoveRecord, g.p.RemoveListener, g.p.RemoveTargetGroup, g.p.RemoveLoadBalancer, g.p.RemoveVMs, g.p.RemoveLaunchTemplate, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

func TestVMEnvironments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		vms        int
		lb, dns    bool
	}{
		{"fixed", fixedSpec, 2, false, false},
		{"fixed with a load balancer", fixedLBSpec, 2, true, false},
		{"fixed with a record", fixedDNSSpec, 2, true, true},
		{"fixed with an internal network load balancer", nlbSpec, 2, true, false},
		{"group", groupSpec, 2, false, false},
		{"group with a load balancer", groupLBSpec, 2, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, c.spec)
			if c.dns {
				g.zoned("example.test")
			}
			before := g.world.Snapshot()
			start := time.Now()
			g.create()
			reads, changes := g.calls(0)
			t.Logf("create: %d reads %v, %d changes %v, %s", sum(reads), reads, sum(changes), changes, time.Since(start))
			// How often it looks while it waits hangs on the machine: what is caught is a doubling.
			if n := sum(reads); n > 280 {
				t.Errorf("the create took %d reads: %v", n, reads)
			}
			if got := len(g.infra().VMs); got != c.vms {
				t.Errorf("%d VMs, want %d", got, c.vms)
			}
			for _, vm := range g.infra().VMs {
				if vm.State != job.VMReady || vm.PrivateIP == "" || vm.InstanceID == "" || vm.Zone == "" {
					t.Errorf("VM is %+v", vm)
				}
			}
			if c.lb {
				if len(g.infra().Targets) != c.vms || g.infra().Targets[0].Health != cloud.HealthyTarget {
					t.Errorf("targets: %+v", g.infra().Targets)
				}
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

func fatalCode(err error) string {
	var f *pipeline.FatalError
	if errors.As(err, &f) {
		return f.Problem.Code
	}
	return ""
}

// In somebody's own network everything else is made, and the network is as it
// was, up and down (F1, F2, F10).
func TestVMsInExistingNetwork(t *testing.T) {
	t.Parallel()
	g := vmRig{freshRig(t, job.ModeCreateInExisting, existingPlaceholder)}
	n := g.theirs(anything(t.Context()))
	g.name(n, `{"plainHTTP":true}`, n.privateB, n.publicB, n.privateA, n.publicA)
	g.world.Clock.Stop()
	g.world.Step(5 * time.Minute) // until their NAT gateway is up
	before, began := g.everything(), g.world.Clock.Now()
	g.create()
	if len(g.infra().VMs) != 2 || len(g.infra().Targets) != 2 {
		t.Errorf("VMs %+v, targets %+v", g.infra().VMs, g.infra().Targets)
	}
	theirs := []string{n.vpc, n.privateA, n.privateB, n.publicA, n.publicB}
	for _, o := range g.objects {
		if slices.Contains(theirs, o.ID) {
			t.Errorf("the ledger holds %s %s, which the job did not make", o.Kind, o.ID)
		}
	}
	for _, e := range g.world.Books(sim.BookFilter{Limit: 100000}) {
		switch e.Operation {
		case "ModifyVpcAttribute", "ModifySubnetAttribute", "CreateRoute", "AssociateRouteTable", "DeleteSubnet", "DeleteVpc":
			if e.Time.After(began) {
				t.Errorf("%s changed their network", e.Operation)
			}
		}
	}
	g.asAsked()
	g.teardown()
	if d := cmp.Diff(before, g.everything()); d != "" {
		t.Error(d)
	}
}
