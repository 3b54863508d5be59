package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/reconciler"
	"github.com/zopday/provisioner/internal/sim"
)

// A worker that is told to stop lets the step come to a safe point and gives
// the lease back; the next one goes on at once, and no attempt is spent.
func TestShutdownHandsTheLeaseBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 11})
	before := r.world.Snapshot()
	w := r.start()
	r.world.OnCall(func(phase sim.Phase, c *sim.Call) error {
		if phase == sim.Before && c.Operation == "CreateNatGateway" {
			w.stop() // in the midst of a create, which is not cut off
		}
		return nil
	})
	r.vm("shop-prod", plain)
	select {
	case <-w.done:
	case <-time.After(30 * time.Second):
		t.Fatal("the worker did not stop")
	}
	j := r.get()
	st, err := r.ledger.Standing(t.Context(), org, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if st.Leased || j.Attempts != 0 || !j.State().Active() {
		t.Fatalf("after the shutdown: leased %v, %d attempts, %s", st.Leased, j.Attempts, j.State())
	}
	r.object("ec2:nat-gateway", "nat-a") // the create in flight is in the ledger
	r.world.OnCall(nil)
	r.start()
	r.await(job.Completed)
	r.checkBooks(t)
	for _, e := range r.events() {
		if e.Type == "step.retrying" {
			t.Errorf("the shutdown cost a try: %s", e.Message)
		}
	}
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// The observer keeps the VM states and the target health of a finished job
// current, and only reads.
func TestObserverFollowsTheCloud(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 12})
	r.start(func(w *worker) { w.conf = func(c *reconciler.Config) { c.Observe = time.Minute } })
	r.vm("shop-prod", fixedLB)
	j := r.await(job.Completed)
	since := r.lastEntry()
	gone := j.Config.InfraConfig.VMs[0]
	if _, err := r.world.Invoke("aws", "ec2", "StopInstances", "", region, map[string]any{"InstanceId": []any{gone.InstanceID}}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		infra := r.get().Config.InfraConfig
		unhealthy := false
		for _, target := range infra.Targets {
			unhealthy = unhealthy || target.InstanceID == gone.InstanceID && target.Health != cloud.HealthyTarget
		}
		if infra.VM(gone.Name).State == job.VMStopped && unhealthy {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not noticed: %+v, %+v", infra.VMs, infra.Targets)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, e := range r.mutating(since) {
		if e.Operation != "StopInstances" {
			t.Errorf("the observer changed something: %s", e.Operation)
		}
	}
}

// panicky is a cloud whose identity step has a defect.
type panicky struct{ cloud.Provider }

func (panicky) EnsureIdentity(context.Context, *pipeline.Run) error { panic("a nil map") }

type openPanicky struct{ cloud.Opener }

func (o openPanicky) Open(ctx context.Context, j *job.Job) (cloud.Provider, error) {
	p, err := o.Opener.Open(ctx, j)
	return panicky{p}, err
}

// A defect in a step fails the job with a reason, and neither the worker nor
// the jobs beside it; a version without the defect goes on from there.
func TestPanicFailsTheJobAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 13})
	before := r.world.Snapshot()
	w := r.start(func(w *worker) {
		w.conf = func(c *reconciler.Config) { c.Clouds = openPanicky{c.Clouds} }
	})
	r.vm("shop-prod", plain)
	j := r.await(job.Failed)
	if j.Error.Code != "internal" || j.Error.Step != "stepCreateIAM" || !strings.Contains(j.Error.Message, "a nil map") || j.Error.Hint == "" {
		t.Fatalf("the job says %+v", j.Error)
	}
	w.stop()
	<-w.done
	r.start()
	r.move(job.Retry, "")
	r.await(job.Completed)
	r.checkBooks(t)
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// A job that never came past its credentials has made nothing: it can be deleted
// without them.
func TestDeleteWithoutCredentials(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 15})
	r.keys.Store("AKIANOBODYSKEYEXAMPL")
	r.start()
	r.vm("shop-prod", plain)
	for r.get().Attempts == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	if m := r.mutating(0); len(m) > 0 {
		t.Errorf("something was sent: %+v", m)
	}
}

// Swallowed deletes: accepted by the cloud, never carried out. The teardown is
// done only when they are; and when they never are, it says so in bounded time.
func TestSwallowedDeletes(t *testing.T) {
	for _, op := range []string{"DeleteVpc", "DeleteSubnet", "ReleaseAddress", "DeleteRole", "DeleteNatGateway", "DeleteLaunchTemplate", "TerminateInstances"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Seed: 14})
			before := r.world.Snapshot()
			r.start()
			r.vm("shop-prod", plain)
			r.await(job.Completed)
			r.swallow(t, op, 1)
			r.move(job.Delete, "")
			r.await(job.Cancelled)
			r.checkGone(t, before)
		})
	}
}

func (r *rig) swallow(t *testing.T, op string, count int) {
	t.Helper()
	if _, err := r.world.AddFault(sim.Fault{Cloud: "aws", Operation: op, Kind: sim.FaultSwallow, Count: count}); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) events() []job.Event {
	r.t.Helper()
	all, err := r.ledger.Events(context.Background(), org, r.jobID, 0, 10_000)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}
