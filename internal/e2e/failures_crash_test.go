package e2e

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// at makes a worker die at the nth call of an operation: before it is carried
// out, or when it was and the answer has not left.
func (r *rig) at(w *worker, operation string, phase sim.Phase, n int64) {
	var calls atomic.Int64
	r.world.OnCall(func(p sim.Phase, c *sim.Call) error {
		if w.dead.Load() || p != phase || c.Operation != operation || calls.Add(1) != n {
			return nil
		}
		return w.kill()
	})
}

// ends takes the job from here to its completion and to nothing.
func (r *rig) ends(t *testing.T, before sim.Snapshot, done ...func(*rig, *job.Job)) {
	t.Helper()
	j := r.await(job.Completed)
	r.asAsked(t)
	for _, f := range done {
		f(r, j)
	}
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
	if t.Failed() {
		t.Log(r.history())
	}
}

// A1: the process dies in the answer of a launch, five times running.
func TestDiesInEveryLaunch(t *testing.T) {
	for name, late := range map[string]time.Duration{"shown at once": 0, "shown 30 s late": 30 * time.Second} {
		t.Run("A1 "+name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Seed: 41, ConsistencyByID: late, ConsistencyByList: late})
			before := r.world.Snapshot()
			r.vm("shop-prod", plain)
			for range 5 {
				w := r.start(func(w *worker) { r.at(w, "RunInstances", sim.After, 1) })
				r.untilCrash(w)
			}
			r.world.OnCall(nil)
			r.start()
			r.ends(t, before, launchedOnce)
		})
	}
}

// A2: the ledger's write after a launch fails, and the VM does not show by its
// tags for half a minute.
func TestLostWriteAndHiddenVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 42})
	before := r.world.Snapshot()
	r.fault(`{"kind":"hidden","match":"instance","seconds":30}`)
	var launched, failed atomic.Bool
	r.world.OnCall(func(p sim.Phase, c *sim.Call) error {
		if p == sim.After && c.Operation == "RunInstances" {
			launched.Store(true)
		}
		return nil
	})
	r.start(func(w *worker) {
		w.write = func() error {
			if launched.Load() && !failed.Swap(true) {
				return errors.New("could not serialize access due to concurrent update")
			}
			return nil
		}
	})
	r.vm("shop-prod", plain)
	r.ends(t, before, launchedOnce)
	if !failed.Load() {
		t.Error("no write was lost")
	}
}

// A5, A11, S5: a process dies before or after a create has left; the next one
// resolves the doubt by itself, whether the API knows tokens or not.
func TestDoubtIsResolved(t *testing.T) {
	for _, op := range []string{"CreateVpc", "CreateSubnet", "AllocateAddress", "CreateNatGateway", "CreateRole", "CreateLaunchTemplate", "CreateLoadBalancer", "CreateTargetGroup"} {
		for phase, name := range map[sim.Phase]string{sim.Before: "before", sim.After: "after"} {
			t.Run(fmt.Sprintf("A5 %s %s", name, op), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, sim.Options{Seed: 43})
				before := r.world.Snapshot()
				r.vm("shop-prod", fixedLB)
				w := r.start(func(w *worker) { r.at(w, op, phase, 1) })
				r.untilCrash(w)
				r.world.OnCall(nil)
				r.start()
				r.ends(t, before, launchedOnce)
			})
		}
	}
	t.Run("A11 a conflict on the second create", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, sim.Options{Seed: 44, ConsistencyByList: 40 * time.Second})
		before := r.world.Snapshot()
		r.vm("shop-prod", plain)
		w := r.start(func(w *worker) { r.at(w, "CreateSubnet", sim.After, 1) })
		r.untilCrash(w)
		r.world.OnCall(nil)
		r.fault(`{"kind":"error","operation":"CreateSubnet","code":"InvalidSubnet.Conflict","status":400,"message":"The CIDR conflicts with another subnet"}`)
		r.start()
		r.ends(t, before, launchedOnce)
	})
}

// A13: one object belongs to one job: a second row of it is refused.
func TestOneOwnerOfAnObject(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 45})
	before := r.world.Snapshot()
	r.start()
	first := r.vm("shop-prod", plain)
	r.await(job.Completed)
	vm := r.object("ec2:instance", "vm-1")
	r.vm("shop-other", plain)
	r.await(job.Completed)
	second := r.jobID
	_, err := r.d.Writer().Exec(t.Context(), `UPDATE inventory SET cloud_id = '`+vm+`' WHERE job_id = '`+second+`' AND kind = 'ec2:instance' AND key = 'vm-1'`)
	if err == nil {
		t.Error("two jobs own one instance")
	}
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.jobID = first.ID
	if n := r.live("instance"); n != 2 {
		t.Errorf("the teardown of one job left %d VMs of the other", n)
	}
	r.ends(t, before)
}

// I8, E5: a worker is restarted while a step waits; the next one goes on there,
// and the steps after it are done.
func TestRestartedWhileItWaits(t *testing.T) {
	for _, at := range []string{"nat-gateway", "bootstrap", "load-balancer"} {
		t.Run("I8 "+at, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Seed: 46})
			before := r.world.Snapshot()
			w := r.start()
			r.vm("shop-prod", fixedLB)
			r.waitsFor(at)
			_ = w.kill() // the error is for calls of the worker's own
			r.start()
			r.ends(t, before, launchedOnce)
			if n := r.operations("CreateNatGateway"); n != 1 {
				t.Errorf("%d NAT gateways were asked for", n)
			}
		})
	}
}

// S1, S2: a deletion is asked for at any moment of a create. What is in flight
// is recorded, nothing new is begun, and nothing is left.
func TestCancelledAtEveryMoment(t *testing.T) {
	for n := 1; n <= 37; n += 3 {
		t.Run(fmt.Sprintf("S1 in call %d", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Seed: 47})
			before := r.world.Snapshot()
			r.vm("shop-prod", fixedLB)
			var calls atomic.Int64
			asked := make(chan struct{})
			r.world.OnCall(func(p sim.Phase, c *sim.Call) error {
				if !c.Mutating || p != sim.Before || calls.Add(1) != int64(n) {
					return nil
				}
				r.move(job.Delete, "")
				close(asked)
				time.Sleep(20 * time.Millisecond) // the request is seen while the call is in flight
				return nil
			})
			r.start()
			select {
			case <-asked:
			case <-time.After(30 * time.Second):
				t.Fatalf("it never made call %d", n)
			}
			r.await(job.Cancelled)
			r.checkGone(t, before)
		})
	}
	for i := range 12 {
		after := time.Duration(i) * 120 * time.Millisecond
		t.Run(fmt.Sprintf("S2 after %s", after), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Seed: 48})
			before := r.world.Snapshot()
			r.start()
			r.vm("shop-prod", asgLB)
			time.Sleep(after)
			r.move(job.Delete, "")
			r.await(job.Cancelled)
			r.checkGone(t, before)
		})
	}
}

// P7, P10: a worker whose lease is gone is refused, in the ledger and at the
// cloud, however late it wakes.
func TestLateWorkerIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 49})
	before := r.world.Snapshot()
	r.vm("shop-prod", plain)
	var once atomic.Bool
	held, wake := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(wake) })
	t.Cleanup(let) // before the simulation is closed, which waits for its requests
	slow := r.start()
	r.world.OnCall(func(p sim.Phase, c *sim.Call) error {
		if p == sim.After && c.Operation == "CreateInternetGateway" && !once.Swap(true) {
			// The worker falls silent in the midst of a step; its job is somebody else's.
			if err := r.ledger.Deregister(t.Context(), slow.name); err != nil {
				t.Error(err)
			}
			slow.mute.Store(true)
			close(held)
			<-wake
		}
		return nil
	})
	<-held
	time.Sleep(2500 * time.Millisecond) // DeadAfter is 2 s: it knows itself silent
	r.start()
	r.until(func(j *job.Job) bool { return j.Config.InfraConfig.LaunchTemplateID != "" }, "nobody took the job over")
	let()
	r.booked(t, "CreateInternetGateway")
	r.ends(t, before, launchedOnce)
}

// booked waits until a call that was held in flight is in the books.
func (r *rig) booked(t *testing.T, operation string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(r.world.Books(sim.BookFilter{Operation: operation})) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s was never answered", operation)
		}
	}
}

// P13: the clock of a worker's cloud is an hour off for a while; signatures are
// refused, and the job goes on when they are taken again.
func TestSkewedClock(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 50})
	before := r.world.Snapshot()
	r.fault(`{"kind":"error","code":"RequestExpired","status":400,"message":"Request has expired.","after":20,"count":8}`)
	r.fault(`{"kind":"error","service":"elasticloadbalancing","code":"SignatureDoesNotMatch","status":403,"message":"Signature expired: 20261130T100000Z is now earlier than 20261130T105500Z","count":4}`)
	r.start()
	r.vm("shop-prod", fixedLB)
	r.ends(t, before, launchedOnce)
	r.allMet(false)
}
