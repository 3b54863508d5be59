// Package vmpool is what a pool of VMs has in common at every cloud: how the VMs
// of a fixed pool are called and spread over zones, in which order a pass goes
// about them, and how it waits until a load balancer finds them healthy.
package vmpool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// How long a pool is tried again when no zone has room for it (failure kinds G4,
// G5, G8), and how often VMs that run are looked at while they boot.
const (
	CapacityPatience = 10 * time.Minute
	lookAgain        = time.Minute
)

// Key is the key of the i-th VM of a fixed pool, counted from 0.
func Key(i int) string { return fmt.Sprintf("vm-%d", i+1) }

func number(key string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(key, "vm-"))
	if err != nil {
		return 0
	}
	return n
}

// Keys are the keys of a fixed pool's VMs, which are objects of the kind: those
// that the spec asks for, and those that an earlier spec asked for.
func Keys(r *pipeline.Run, kind string) []string {
	keys := map[string]bool{}
	for _, o := range r.Objects() {
		if o.Kind == kind {
			keys[o.Key] = true
		}
	}
	if spec, err := r.Job.VMSpec(); err == nil && spec.Pool.Mode == job.PoolFixed {
		for i := range spec.Pool.Count {
			keys[Key(i)] = true
		}
	}
	return slices.SortedFunc(maps.Keys(keys), func(a, b string) int { return number(a) - number(b) })
}

// Surplus are the VMs that the spec no longer asks for.
func Surplus(r *pipeline.Run, kind string, count int) []string {
	return slices.DeleteFunc(Keys(r, kind), func(key string) bool {
		o, _ := r.Object(kind, key)
		return number(key) <= count || o.State != job.ObjectCreated && o.State != job.ObjectIntended
	})
}

// A Fleet is how a cloud goes about the VMs of a fixed pool in one pass.
type Fleet interface {
	// Rest passes over a pool that was seen running a moment ago; false if there
	// is something to do.
	Rest(ctx context.Context) (done bool, err error)

	// Place gives every VM a name and a zone, and says whether that is news.
	Place() (changed bool, err error)

	// Prepare makes what the VMs are put into, and removes what an earlier shape
	// of the pool has made.
	Prepare(ctx context.Context) error

	// Launch makes the VMs side by side.
	Launch(ctx context.Context) error

	// Report brings InfraConfig.VMs up to what the pass has seen.
	Report(ctx context.Context) error
}

// Ensure makes a fleet's VMs by name, spread over the zones. Where each of them is to be
// is committed before anything is made: a worker that crashes is followed by one
// that asks for the same.
func Ensure(ctx context.Context, r *pipeline.Run, f Fleet) error {
	if done, err := f.Rest(ctx); done || err != nil {
		return err
	}
	moved, err := f.Place()
	if err != nil {
		return err
	}
	if moved {
		if err := r.Save(ctx); err != nil {
			return err
		}
	}
	if err := f.Prepare(ctx); err != nil {
		return err
	}
	verdict := f.Launch(ctx)
	if r.Mode == pipeline.Plan {
		return verdict
	}
	if verdict = pipeline.Gravest(verdict, f.Report(ctx)); verdict == nil {
		Saw(r)
	}
	return verdict
}

// Place gives every VM of a fixed pool a name and a zone, keeping those that have
// one. blank is the i-th VM before anything is known of it but its name. It
// reports whether a name or a zone has changed.
func Place(infra *job.InfraConfig, zones []string, count int, blank func(i int) job.VMInfo) (changed bool) {
	vms := make([]job.VMInfo, 0, count)
	for i := range count {
		vm := blank(i)
		if had := infra.VM(vm.Name); had != nil {
			vm = *had
		}
		if len(zones) > 0 && !slices.Contains(zones, vm.Zone) {
			vm.Zone = zones[i%len(zones)]
		}
		vms = append(vms, vm)
	}
	changed = !slices.EqualFunc(vms, infra.VMs, func(a, b job.VMInfo) bool { return a.Name == b.Name && a.Zone == b.Zone })
	infra.VMs = vms
	return changed
}

// NoSubnet is the verdict on a network in which no VM can stand.
func NoSubnet() error {
	return pipeline.Fatal("no-subnet", "the network has no private subnet to put VMs in",
		"Retry from the network's step on, or name subnets in spec.existing.subnetIds.")
}

// Made calls see for each VM of a fixed pool that was made, with its record. One
// that was not is gone, if a verify had expected it.
func Made(r *pipeline.Run, kind string, see func(*job.VMInfo, job.Object) error) error {
	infra := &r.Job.Config.InfraConfig
	for i := range infra.VMs {
		vm := &infra.VMs[i]
		rec, ok := r.Object(kind, Key(i))
		if !ok || rec.State != job.ObjectCreated {
			if r.Mode == pipeline.Verify && vm.InstanceID != "" {
				vm.State = job.VMTerminated
			}
			continue
		}
		if err := see(vm, rec); err != nil {
			return err
		}
	}
	return nil
}

// NoRoom waits for room, for a bounded time. Text says for what there is none, and
// where.
func NoRoom(r *pipeline.Run, text string, refusal error) error {
	text = fmt.Sprintf("%s: %v", text, refusal)
	if r.WaitedFor("capacity") < CapacityPatience {
		return pipeline.Wait(20*time.Second, "%s", text)
	}
	return pipeline.Fatal("no-capacity", fmt.Sprintf("%s; tried for %s", text, CapacityPatience),
		"Retry later, or tear the job down and make it with another instanceType or in another region.").From(refusal)
}

// A Sight is what a worker remembers of a pool. The step is run again every few
// seconds while the VMs boot, and need not look at all of them each time.
type Sight int

// What is remembered.
const (
	Unseen Sight = iota // nothing that counts
	Fresh               // it ran as it should less than a minute ago
	Stale               // it ran as it should, a while ago
)

// LastSight is what this worker remembers. A doubt makes it forget, and so does an
// object of one of the kinds that is being replaced. A plan and a verify look
// for themselves.
func LastSight(r *pipeline.Run, kinds ...string) Sight {
	seen, ok := r.Recall(sightKey(r)).(time.Time)
	if !ok || r.Mode != pipeline.Apply {
		return Unseen
	}
	for _, o := range r.Objects() {
		if slices.Contains(kinds, o.Kind) && o.State == job.ObjectCreated && o.Reason != "" {
			return Unseen // it is being replaced
		}
	}
	if r.Pace.Cloud(r.Now().Sub(seen)) < lookAgain {
		return Fresh
	}
	return Stale
}

// Saw remembers that the pool runs as it should.
func Saw(r *pipeline.Run) {
	if r.Mode == pipeline.Apply {
		r.Remember(sightKey(r), r.Now())
	}
}

func sightKey(r *pipeline.Run) string { return fmt.Sprintf("pool seen after %d doubts", r.Doubts()) }
