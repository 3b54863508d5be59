package e2e

import (
	"sync/atomic"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// What earlier steps have made is deleted by somebody while the job builds on it:
// the job finds out by itself and makes it again.
func TestDeletedBehindOurBack(t *testing.T) {
	for _, c := range []struct{ name, kind, key, when, spec string }{
		{"the launch template before the launch", "ec2:launch-template", "vm", "RunInstances", plain},
		{"the launch template before the group", "ec2:launch-template", "vm", "CreateAutoScalingGroup", asgLB},
		{"the role's profile before the launch", "iam:instance-profile", "instance-profile", "RunInstances", plain},
		{"a VM before its target group", "ec2:instance", "vm-1", "CreateTargetGroup", fixedLB},
		{"the target group before its listener", "elbv2:target-group", "tg", "CreateListener", fixedLB},
		{"an elastic IP before its NAT gateway", "ec2:elastic-ip", "nat-address-a", "CreateNatGateway", plain},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Seed: 71})
			before := r.world.Snapshot()
			var once, deleted atomic.Bool
			r.world.OnCall(func(p sim.Phase, call *sim.Call) error {
				if p == sim.Before && call.Operation == c.when && !once.Swap(true) {
					for _, o := range r.objects() {
						if o.Kind == c.kind && o.Key == c.key {
							deleted.Store(true)
							_, err := r.world.RemoveObject(o.ID)
							return err
						}
					}
				}
				return nil
			})
			r.start()
			r.vm("shop-prod", c.spec)
			r.ends(t, before, twoVMs)
			if !deleted.Load() {
				t.Error("nothing was deleted")
			}
		})
	}
}

// I5, K2: members of a scaling group end while it comes up; the group launches
// others, and the job is done with as many as were asked for.
func TestGroupMembersEndMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 72})
	before := r.world.Snapshot()
	var ended atomic.Int64
	r.world.OnCall(func(p sim.Phase, call *sim.Call) error {
		if p != sim.After || call.Operation != "SendCommand" || ended.Add(1) != 1 {
			return nil
		}
		for _, o := range r.world.Objects(sim.ObjectFilter{Owner: r.jobID, Kind: "instance"}) {
			if _, err := r.world.SetObjectState(o.ID, "terminated", "Client.UserInitiatedShutdown", "somebody ended it"); err != nil {
				return err
			}
		}
		return nil
	})
	r.start()
	r.vm("shop-prod", asgLB)
	r.ends(t, before, twoVMs)
	if ended.Load() == 0 {
		t.Error("no member ended")
	}
}

// H10: the state says ready and the call is refused as busy, twice.
func TestReadyAndRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 73})
	before := r.world.Snapshot()
	r.fault(`{"kind":"error","operation":"RunInstances","code":"IncorrectState","status":400,"message":"not in a state for it","count":2}`)
	r.fault(`{"kind":"error","operation":"CreateListener","code":"ResourceInUse","status":400,"message":"in use","count":2}`)
	r.fault(`{"kind":"error","operation":"CreateInstanceProfile","code":"ConcurrentModification","status":409,"message":"being changed","count":2}`)
	r.start()
	r.vm("shop-prod", fixedLB)
	r.ends(t, before, func(r *rig, j *job.Job) { launchedOnce(r, j) })
	r.allMet(false)
}
