package e2e

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

const (
	fixedLB = `{"pool":{"mode":"fixed","count":2},"loadBalancer":{"type":"http","plainHTTP":true}}`
	asgLB   = `{"pool":{"mode":"asg","min":1,"desired":2,"max":3},"loadBalancer":{"type":"http","plainHTTP":true}}`
	nlb     = `{"pool":{"mode":"fixed","count":2},"loadBalancer":{"type":"tcp","scheme":"internal"}}`
	plain   = `{"pool":{"mode":"fixed","count":2}}`
	bare    = `{"pool":{"mode":"fixed","count":1,"image":"al2023","size":{"vcpus":2,"memoryGiB":4,"arch":"arm64"}},"bootstrap":"bare_metal","network":{"zones":3,"nat":"per_zone"}}`
)

func TestLifecycle(t *testing.T) {
	for name, spec := range map[string]string{"fixed with LB": fixedLB, "asg with LB": asgLB, "internal NLB": nlb, "no LB": plain, "bare metal, arm64, three zones": bare} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Seed: 7})
			before := r.world.Snapshot()
			r.start()
			r.vm("shop-prod", spec)
			j := r.await(job.Completed)
			reads, writes := r.count(0)
			r.checkBooks(t)

			since := r.lastEntry()
			if d := r.drift(); len(d) > 0 {
				t.Errorf("just made, and already drifted: %+v", d)
			}
			if m := r.mutating(since); len(m) > 0 {
				t.Errorf("verify changed something: %+v", m)
			}
			again, _ := r.count(since)
			t.Logf("%d VMs: create %d reads + %d mutating for %d objects, verify %d reads", len(j.Config.InfraConfig.VMs), reads, writes, len(r.objects()), again)
			if again > 45 {
				t.Errorf("a re-run made %d reads, more than 45", again)
			}

			r.move(job.Delete, "")
			r.await(job.Cancelled)
			r.checkGone(t, before)
		})
	}
}

func TestAttachAndDetach(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 8})
	before := r.world.Snapshot()
	r.start()
	r.vm("shop-prod", fixedLB)
	j := r.await(job.Completed)
	vms := j.Config.InfraConfig.VMs
	for range 2 {
		r.move(job.Operate, job.DetachLB)
		j = r.await(job.Completed)
		if j.Config.InfraConfig.LoadBalancerID != "" || j.Outputs["url"] != "" {
			t.Fatalf("detached, but %+v", j.Config.InfraConfig)
		}
		if d := r.drift(); len(d) > 0 {
			t.Errorf("after detach: %+v", d)
		}
		r.move(job.Operate, job.AttachLB)
		j = r.await(job.Completed)
		if j.Config.InfraConfig.LoadBalancerID == "" || j.Outputs["url"] == "" {
			t.Fatalf("attached, but %+v", j.Config.InfraConfig)
		}
		if d := r.drift(); len(d) > 0 {
			t.Errorf("after attach: %+v", d)
		}
	}
	for i := range vms {
		if got := j.Config.InfraConfig.VMs[i]; got.InstanceID != vms[i].InstanceID {
			t.Errorf("VM %s was replaced by a vmOp: %s → %s", got.Name, vms[i].InstanceID, got.InstanceID)
		}
	}
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// A worker that was silent for longer than DeadAfter fences itself, in the midst
// of a step too. When nobody has taken the job over meanwhile, it goes on by
// itself, soon and not only when the lease ends.
func TestSilentSpellStrandsNoJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 9})
	before := r.world.Snapshot()
	w := r.start()
	var silences atomic.Int32
	r.world.OnCall(func(phase sim.Phase, c *sim.Call) error {
		first := c.Operation == "CreateRole" && silences.CompareAndSwap(0, 1) || c.Operation == "CreateLaunchTemplate" && silences.CompareAndSwap(1, 2)
		if first {
			w.mute.Store(true)
			time.Sleep(2500 * time.Millisecond) // DeadAfter is 2 s
			w.mute.Store(false)
		}
		return nil
	})
	r.vm("shop-prod", plain)
	start := time.Now()
	r.await(job.Completed)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("the job stood still for %s", took)
	}
	if n := silences.Load(); n != 2 {
		t.Fatalf("%d silences", n)
	}
	r.checkBooks(t)
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// checkBooks compares the ledger's inventory with what carries the job's mark.
func (r *rig) checkBooks(t *testing.T) {
	t.Helper()
	known := map[string]bool{}
	for _, o := range r.objects() {
		id := o.Kind + " " + o.ID
		if known[id] {
			t.Errorf("%s is in the ledger twice", id)
		}
		known[id] = true
		known[strings.ToLower(o.ID)] = true // what Resource Manager says may be spelt either way
	}
	group := r.get().Config.InfraConfig.ScalingGroupID != ""
	for _, o := range r.world.Objects(sim.ObjectFilter{Owner: r.jobID}) {
		if slices.Contains(comeAndGo, o.Kind) || group && slices.Contains(ofTheGroup, o.Kind) {
			continue
		}
		if r.ofTheCluster(o) {
			continue
		}
		if !o.Gone && !known[strings.ToLower(o.ID)] && !known[strings.ToLower(o.ARN)] && !known[strings.ToLower(o.Name)] {
			t.Errorf("%s %s (%s) carries the job's mark and is not in the ledger", o.Kind, o.ID, o.Name)
		}
	}
}

// ofTheCluster reports whether something is what a cluster's cloud makes for its
// nodes by itself: it carries the cluster's tags, and goes with it.
func (r *rig) ofTheCluster(o sim.Object) bool {
	c := r.get().Config.InfraConfig.Cluster
	if c.Name == "" {
		return false
	}
	id := strings.ToLower(o.ID)
	return strings.HasPrefix(o.Name, "gke-"+c.Name) || strings.HasPrefix(o.Name, "eks-") || r.cloud == job.AWS && slices.Contains(ofTheGroup, o.Kind) ||
		c.NodeGroup != "" && strings.Contains(id+"/", "/resourcegroups/"+strings.ToLower(c.NodeGroup)+"/")
}

// comeAndGo are the kinds that come and go with their VM or datastore, and ofTheGroup those
// that a scaling group makes by itself.
var (
	comeAndGo  = []string{"volume", "network-interface", "disk", "disks", "networkInterfaces", "sql-backup", "db-snapshot"}
	ofTheGroup = []string{"instance", "instances", "virtualMachines"}
)

// checkGone demands that the account is what it was.
func (r *rig) checkGone(t *testing.T, before sim.Snapshot) {
	t.Helper()
	kept := r.kept()
	stays := func(id string) bool {
		return slices.ContainsFunc(kept, func(k string) bool { return strings.HasSuffix(strings.ToLower(id), k) })
	}
	for _, o := range r.world.Residue(r.jobID) {
		if !stays(o.ID) && !stays(o.Name) {
			t.Errorf("left: %s %s %s", o.Kind, o.ID, o.Name)
		}
	}
	after := r.world.Snapshot()
	for id := range after {
		if stays(id) {
			delete(after, id)
		}
	}
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("the account is not what it was (-before +after):\n%s", d)
	}
	if left := r.objects(); len(left) > 0 {
		t.Errorf("the ledger still has %+v", left)
	}
}

// kept are the IDs of what a teardown leaves on purpose, in lower case.
func (r *rig) kept() []string {
	r.t.Helper()
	all, err := r.ledger.Objects(r.t.Context(), org, r.jobID)
	if err != nil {
		r.t.Fatal(err)
	}
	var ids []string
	for _, o := range all {
		if o.State == job.ObjectKept {
			ids = append(ids, strings.ToLower(o.ID))
		}
	}
	return ids
}

func (r *rig) count(since int) (reads, writes int) {
	for _, e := range r.world.Books(sim.BookFilter{Since: since}) {
		if e.Mutating {
			writes++
		} else {
			reads++
		}
	}
	return reads, writes
}
