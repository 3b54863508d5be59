package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/reconciler"
	"github.com/zopday/provisioner/internal/sim"
)

// A pool is one kind of pool at one cloud, and what somebody else does to it.
type pool struct {
	cloud  job.Provider
	family job.ResourceType
	kind   job.PoolKind
	spec   string
	meddle func(*rig, job.PoolRef) // changes a paused pool behind the product's back
	attr   string                  // how the change is called
}

const twoNodes = `{"nodePools":[{"name":"workers","min":1,"desired":2,"max":4}]}`

var pools = []pool{
	{job.AWS, job.VM, job.PoolEC2Instances, plain, func(r *rig, ref job.PoolRef) {
		r.call("ec2", "StartInstances", map[string]any{"InstanceId": []any{ref.Instances[0]}})
	}, "instance"},
	{job.AWS, job.VM, job.PoolScalingGroup, `{"pool":{"mode":"asg","min":1,"desired":2,"max":3}}`, func(r *rig, ref job.PoolRef) {
		r.call("autoscaling", "UpdateAutoScalingGroup", map[string]any{"AutoScalingGroupName": ref.ID, "MaxSize": 5})
	}, "max is 5"},
	{job.GCP, job.VM, job.PoolGCEInstances, plain, nil, ""},
	{job.GCP, job.VM, job.PoolManagedGroup, `{"pool":{"mode":"asg","min":1,"desired":2,"max":3}}`, func(r *rig, ref job.PoolRef) {
		r.call("compute", "regionInstanceGroupManagers.resize", map[string]any{"region": regions[job.GCP], "instanceGroupManager": ref.ID[strings.LastIndexByte(ref.ID, '/')+1:], "size": 1})
	}, "size is 1"},
	{job.Azure, job.VM, job.PoolScaleSet, plain, nil, ""},
	{job.Azure, job.VM, job.PoolScaleSet, `{"pool":{"mode":"asg","min":1,"desired":2,"max":3}}`, nil, ""},
	{job.AWS, job.Cluster, job.PoolEKSNodes, twoNodes, nil, ""},
	{job.GCP, job.Cluster, job.PoolGKENodes, `{"nodePools":[{"name":"workers","min":1,"desired":3,"max":6}]}`, nil, ""},
	{job.Azure, job.Cluster, job.PoolAKSNodes, twoNodes, nil, ""},
}

func (p pool) String() string {
	if p.cloud == job.Azure && strings.Contains(p.spec, "asg") {
		return string(p.kind) + " uniform"
	}
	return string(p.kind)
}

// remediate is a remediation job on a subject, queued.
func (r *rig) remediate(subject *job.Job, action job.RemediationAction, change ...func(*job.RemediationSpec)) *job.Job {
	r.t.Helper()
	spec := job.RemediationSpec{Action: action, JobID: subject.ID}
	for _, f := range change {
		f(&spec)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		r.t.Fatal(err)
	}
	r.n++
	return r.job(subject.ResourceType, fmt.Sprintf("%s-%d", strings.ReplaceAll(string(action), "_", "-"), r.n), string(raw), func(j *job.Job) {
		j.Kind, j.SubjectType, j.SubjectID = job.Remediation, subject.SubjectType, subject.SubjectID
		j.Config.InfraConfig.Remediation = &job.RemediationInfo{SubjectJob: subject.ID, SubjectName: subject.Name}
	})
}

// pools reads a subject's pools as the cloud has them, but for Azure's system pool.
func (r *rig) pools(subject *job.Job) map[string]job.PoolState {
	r.t.Helper()
	provider, err := r.clouds(&worker{r: r}).Open(r.t.Context(), subject)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]job.PoolState{}
	for _, ref := range subject.Pools() {
		s, err := provider.(cloud.Pausable).Pool(r.t.Context(), ref)
		if err != nil {
			r.t.Fatalf("pool %s: %v", ref.Name, err)
		}
		if !s.System {
			out[ref.Name] = s
		}
	}
	return out
}

var whatMoves = cmpopts.IgnoreFields(job.PoolState{}, "Busy", "Settling")

// of is a job as the ledger has it.
func (r *rig) of(id string) *job.Job {
	r.t.Helper()
	j, err := r.ledger.Get(r.t.Context(), org, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return j
}

// TestRemediation pauses a pool of every kind, and gives it back exactly.
func TestRemediation(t *testing.T) {
	for _, p := range pools {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			r := newRigAt(t, p.cloud, sim.Options{Seed: 11})
			r.start()
			id := r.job(p.family, "shop-prod", p.spec).ID
			subject := r.await(job.Completed)
			before := r.pools(subject)
			if kind := subject.Pools()[0].Kind; kind != p.kind {
				t.Fatalf("the pool is a %s", kind)
			}

			r.remediate(subject, job.ActionPause)
			paused := r.await(job.Completed)
			for name, s := range r.pools(subject) {
				if s.Running != 0 || s.Machines() != 0 {
					t.Errorf("pool %s is paused, and %d machines run: %+v", name, s.Running, s)
				}
			}
			for _, c := range paused.Config.InfraConfig.Remediation.Pools {
				if diff := cmp.Diff(before[c.Name], c.Before, whatMoves); diff != "" {
					t.Errorf("what was recorded is not how it was: %s", diff)
				}
			}
			if d := r.drift(); len(d) > 0 {
				t.Errorf("just paused, and already drifted: %+v", d)
			}
			r.jobID = id
			if d := r.drift(); len(d) == 0 {
				t.Error("the subject is paused, and its verify says that it is as asked")
			}

			r.remediate(subject, job.ActionPause)
			if j := r.await(job.Failed); j.Error.Code != "already-paused" {
				t.Errorf("paused twice: %+v", j.Error)
			}
			r.remediate(subject, job.ActionResume)
			r.await(job.Completed)
			if diff := cmp.Diff(before, r.pools(subject), whatMoves); diff != "" {
				t.Errorf("resumed, and not as it was: %s", diff)
			}
			if d := r.drift(); len(d) > 0 {
				t.Errorf("just resumed, and already drifted: %+v", d)
			}
			r.jobID = id
			if p.kind == job.PoolEC2Instances || p.kind == job.PoolGCEInstances || p.family == job.Cluster {
				r.soonAsAsked(t)
			}
			r.remediate(subject, job.ActionResume)
			if j := r.await(job.Failed); j.Error.Code != "not-paused" {
				t.Errorf("resumed twice: %+v", j.Error)
			}
			r.move(job.Delete, "")
			r.await(job.Cancelled) // it ends, and takes nothing with it
			if diff := cmp.Diff(before, r.pools(subject), whatMoves); diff != "" {
				t.Errorf("the end of a remediation job changed the pool: %s", diff)
			}
		})
	}
}

// soonAsAsked demands that the job is as asked again, once what runs on fresh
// machines has come up.
func (r *rig) soonAsAsked(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		d := r.drift()
		if len(d) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("not as asked: %+v", d)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestRemediationScaledToZero: what names machines by number is emptied, and
// restored; VMs with names are not taken away.
func TestRemediationScaledToZero(t *testing.T) {
	for _, p := range pools[:4] {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			r := newRigAt(t, p.cloud, sim.Options{Seed: 12})
			r.start()
			r.job(p.family, "shop-prod", p.spec)
			subject := r.await(job.Completed)
			before := r.pools(subject)
			r.remediate(subject, job.ActionScaleToZero)
			if subject.Pools()[0].Instances != nil {
				if j := r.await(job.Failed); j.Error.Code != "not-scalable" {
					t.Errorf("%+v", j.Error)
				}
				return
			}
			r.await(job.Completed)
			if s := r.pools(subject)["vms"]; s.Running != 0 {
				t.Errorf("%d machines run: %+v", s.Running, s)
			}
			r.remediate(subject, job.ActionRestore)
			r.await(job.Completed)
			if diff := cmp.Diff(before, r.pools(subject), whatMoves); diff != "" {
				t.Errorf("restored, and not as it was: %s", diff)
			}
		})
	}
}

// TestRemediationChangedMeanwhile: what somebody did to a paused pool is named and
// not overwritten, unless the request says so.
func TestRemediationChangedMeanwhile(t *testing.T) {
	for _, p := range pools {
		if p.meddle == nil {
			continue
		}
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			r := newRigAt(t, p.cloud, sim.Options{Seed: 13})
			r.start()
			r.job(p.family, "shop-prod", p.spec)
			subject := r.await(job.Completed)
			before := r.pools(subject)
			r.remediate(subject, job.ActionPause)
			r.await(job.Completed)
			p.meddle(r, subject.Pools()[0])
			since := r.lastEntry()
			if d := r.drift(); !strings.Contains(fmt.Sprint(d), strings.Fields(p.attr)[0]) {
				t.Errorf("drift of the pause does not tell of %q: %+v", p.attr, d)
			}
			r.remediate(subject, job.ActionResume)
			j := r.await(job.Failed)
			if j.Error.Code != "changed-meanwhile" || !strings.Contains(j.Error.Message, p.attr) {
				t.Errorf("%+v", j.Error)
			}
			if m := r.mutating(since); len(m) > 0 {
				t.Errorf("refused, and yet changed: %+v", m)
			}
			r.remediate(subject, job.ActionResume, func(s *job.RemediationSpec) { s.Force = true })
			r.await(job.Completed)
			if diff := cmp.Diff(before, r.pools(subject), whatMoves); diff != "" {
				t.Errorf("forced, and not as it was: %s", diff)
			}
		})
	}
}

// TestRemediationCrashes kills the worker at every mutating call of a pause and of
// a resume, before it and with its reply lost, and cuts the connection of one that
// lives on: the pool ends as it would have, and what was recorded is how it was.
func TestRemediationCrashes(t *testing.T) {
	for _, p := range pools {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			for _, action := range []job.RemediationAction{job.ActionPause, job.ActionResume} {
				p.crashes(t, action)
			}
		})
	}
}

func (p pool) crashes(t *testing.T, action job.RemediationAction) {
	r := newRigAt(t, p.cloud, sim.Options{Seed: 14})
	var subject *job.Job
	var before map[string]job.PoolState
	r.finish(func() {
		r.job(p.family, "shop-prod", p.spec)
		subject = r.await(job.Completed)
		before = r.pools(subject)
		if action == job.ActionResume {
			r.remediate(subject, job.ActionPause)
			r.await(job.Completed)
		}
	})
	start := r.freeze(r.world.Snapshot())
	measure := thaw(t, sim.Options{Seed: 14}, *start)
	since := measure.lastEntry()
	measure.start()
	measure.remediate(subject, action)
	measure.await(job.Completed)
	want := measure.pools(subject)
	calls := len(measure.mutating(since))
	if calls == 0 {
		t.Fatal("there is nothing to crash")
	}
	for n := 1; n <= calls; n++ {
		for _, at := range []point{{"call", n, false, true}, {"call", n, true, true}, {"call", n, true, false}} {
			t.Run(fmt.Sprintf("%s %s", action, at), func(t *testing.T) {
				r := thaw(t, sim.Options{Seed: 14}, *start)
				r.n = 10
				r.remediate(subject, action)
				r.untilCrash(r.start(arm(r, at)))
				r.world.OnCall(nil)
				r.start()
				j := r.await(job.Completed)
				if diff := cmp.Diff(want, r.pools(subject), whatMoves); diff != "" {
					t.Errorf("not as without the crash: %s", diff)
				}
				for _, c := range j.Config.InfraConfig.Remediation.Pools {
					if action == job.ActionPause && !cmp.Equal(before[c.Name], c.Before, whatMoves) {
						t.Errorf("what was recorded is not how it was: %s", cmp.Diff(before[c.Name], c.Before, whatMoves))
					}
				}
				if d := r.drift(); len(d) > 0 {
					t.Errorf("not as asked: %+v", d)
				}
			})
		}
	}
}

// TestRemediationHalfDone: a pause that was cancelled midway can be taken back, and
// no second pause takes its half for how the pool was.
func TestRemediationHalfDone(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 15})
	w := r.start()
	r.job(job.VM, "shop-prod", pools[1].spec)
	subject := r.await(job.Completed)
	before := r.pools(subject)
	w.stop()
	<-w.done
	r.remediate(subject, job.ActionPause)
	victim := r.start(arm(r, point{"call", 2, false, true})) // suspended, not yet empty
	r.untilCrash(victim)
	r.world.OnCall(nil)
	r.move(job.Delete, "")
	r.start()
	r.await(job.Cancelled)
	r.remediate(subject, job.ActionPause)
	if j := r.await(job.Failed); j.Error.Code != "half-done" {
		t.Errorf("%+v", j.Error)
	}
	r.remediate(subject, job.ActionResume)
	r.await(job.Completed)
	if diff := cmp.Diff(before, r.pools(subject), whatMoves); diff != "" {
		t.Errorf("resumed, and not as it was: %s", diff)
	}
}

// TestRemediationRefuses: an adopted pool, and a subject that is torn down. With
// leave, an adopted pool is paused like any other.
func TestRemediationRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 16})
	r.start()
	refused := func(subject *job.Job, code string, change ...func(*job.RemediationSpec)) {
		t.Helper()
		since := r.lastEntry()
		r.remediate(subject, job.ActionPause, change...)
		if j := r.await(job.Failed); j.Error.Code != code || j.Error.Hint == "" {
			t.Errorf("%s: %+v", code, j.Error)
		}
		if m := r.mutating(since); len(m) > 0 {
			t.Errorf("%s: refused, and yet changed: %+v", code, m)
		}
	}
	made := r.vm("shop-prod", plain).ID
	r.await(job.Completed)

	// Somebody else's VM.
	image := r.of(made).Config.InfraConfig.ImageID
	subnet := r.of(made).Config.InfraConfig.PrivateSubnetIDs[0]
	out, err := r.world.Invoke("aws", "ec2", "RunInstances", "123456789012", region, map[string]any{"ImageId": image, "InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1, "SubnetId": subnet})
	if err != nil {
		t.Fatal(err)
	}
	r.world.Step(2 * time.Minute)
	id := instanceID.FindString(fmt.Sprintf("%+v", encoded(t, out)))
	r.job(job.VM, "theirs", fmt.Sprintf(`{"adopt":{"ids":[%q]}}`, id), func(j *job.Job) { j.Mode = job.ModeAdopt })
	theirs := r.await(job.Completed)
	refused(theirs, "adopted")
	allowed := func(s *job.RemediationSpec) { s.AllowAdopted = true }
	r.remediate(theirs, job.ActionPause, allowed)
	r.await(job.Completed)
	if s := r.pools(theirs)["vms"]; s.Running != 0 {
		t.Errorf("allowed, and yet: %+v", s)
	}
	r.remediate(theirs, job.ActionResume, allowed)
	r.await(job.Completed)

	r.call("ec2", "TerminateInstances", map[string]any{"InstanceId": []any{id}}) // it would hold the subnet
	r.jobID = made
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	refused(r.of(made), "subject-gone")
}

var instanceID = regexp.MustCompile(`i-[0-9a-f]{17}`)

func encoded(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRemediationSeen: what is paused shows so in the job that made it, once the
// observer has looked; and Azure's system pool is named and never emptied.
func TestRemediationSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 17})
	r.start(func(w *worker) { w.conf = func(c *reconciler.Config) { c.Observe = time.Second } })
	made := r.vm("shop-prod", plain).ID
	subject := r.await(job.Completed)
	r.remediate(subject, job.ActionPause)
	r.await(job.Completed)
	states := func() (out []job.VMState) {
		for _, vm := range r.of(made).Config.InfraConfig.VMs {
			out = append(out, vm.State)
		}
		return out
	}
	become := func(want job.VMState) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for !slices.Equal(states(), []job.VMState{want, want}) {
			if time.Now().After(deadline) {
				t.Fatalf("the VMs show as %v, not %s", states(), want)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	become(job.VMStopped)
	r.remediate(subject, job.ActionResume)
	r.await(job.Completed)
	become(job.VMReady)
}

func TestRemediationSystemPool(t *testing.T) {
	t.Parallel()
	r := newRigAt(t, job.Azure, sim.Options{Seed: 18})
	r.start()
	r.job(job.Cluster, "shop-prod", twoNodes)
	subject := r.await(job.Completed)
	since := r.lastEntry()
	r.remediate(subject, job.ActionPause, func(s *job.RemediationSpec) { s.Pool = job.SystemPool })
	if j := r.await(job.Failed); j.Error.Code != "system-pool" || !strings.Contains(j.Error.Message, "cannot go to 0") {
		t.Errorf("%+v", j.Error)
	}
	r.remediate(subject, job.ActionPause, func(s *job.RemediationSpec) { s.Pool = "nothing" })
	if j := r.await(job.Failed); j.Error.Code != "no-such-pool" || !strings.Contains(j.Error.Hint, "workers") {
		t.Errorf("%+v", j.Error)
	}
	if m := r.mutating(since); len(m) > 0 {
		t.Errorf("refused, and yet changed: %+v", m)
	}
}
