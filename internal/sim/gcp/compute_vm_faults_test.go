package gcp

import (
	"encoding/json"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/sim"
)

func (g *rig) status(name string) string {
	g.t.Helper()
	i, err := g.compute().Instances.Get(testProject, testZone, name).Do()
	if err != nil {
		g.t.Fatal(err)
	}
	return i.Status
}

func TestFaultsOfInstances(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	s := g.compute()

	// A reply that is lost: the same request ID finds the operation again, and there is one instance.
	g.fault(sim.Fault{Kind: sim.FaultLostReply, Operation: "instances.insert"})
	const id = "6f1c2e9a-0000-4000-8000-000000000009"
	if _, err := s.Instances.Insert(testProject, testZone, vm("web-1")).RequestId(id).Do(); err == nil {
		t.Fatal("the reply was not lost")
	}
	g.fine(s.Instances.Insert(testProject, testZone, vm("web-1")).RequestId(id).Do())
	if n := len(g.world.Objects(sim.ObjectFilter{Kind: "instance"})); n != 1 {
		t.Errorf("%d instances", n)
	}

	// Accepted, never done.
	g.fault(sim.Fault{Kind: sim.FaultSwallow, Operation: "instances.insert"})
	if _, err := s.Instances.Insert(testProject, testZone, vm("web-2")).Do(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Instances.Get(testProject, testZone, "web-2").Do()
	refused(t, err, 404, "notFound")

	// Hidden from reads for a while.
	g.fault(sim.Fault{Kind: sim.FaultHidden, Match: "web-1", Seconds: 60})
	_, err = s.Instances.Get(testProject, testZone, "web-1").Do()
	refused(t, err, 404, "notFound")
	g.world.Step(2 * time.Minute)
	if got := g.status("web-1"); got != "RUNNING" {
		t.Errorf("status %s", got)
	}

	// Operations that fail leave the instance as it was.
	for verb, do := range map[string]func() (*compute.Operation, error){
		"instances.stop":   func() (*compute.Operation, error) { return s.Instances.Stop(testProject, testZone, "web-1").Do() },
		"instances.delete": func() (*compute.Operation, error) { return s.Instances.Delete(testProject, testZone, "web-1").Do() },
		"instances.setTags": func() (*compute.Operation, error) {
			i, err := s.Instances.Get(testProject, testZone, "web-1").Do()
			if err != nil {
				return nil, err
			}
			return s.Instances.SetTags(testProject, testZone, "web-1", &compute.Tags{Fingerprint: i.Tags.Fingerprint}).Do()
		},
	} {
		g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: verb, Code: "INTERNAL_ERROR", Message: "Internal error."})
		op := g.done(do())
		if op.Error == nil || op.Error.Errors[0].Code != "INTERNAL_ERROR" || g.status("web-1") != "RUNNING" {
			t.Errorf("%s: %+v, status %s", verb, op.Error, g.status("web-1"))
		}
	}

	// Somebody stops the machine; somebody takes it away.
	g.fault(sim.Fault{Kind: sim.FaultTransition, Match: "web-1", State: "TERMINATED"})
	if got := g.status("web-1"); got != "TERMINATED" {
		t.Errorf("status %s after the transition", got)
	}
	g.fine(s.Instances.Start(testProject, testZone, "web-1").Do())
	if _, err := g.world.RemoveObject("projects/example-project/zones/us-central1-a/instances/web-1"); err != nil {
		t.Fatal(err)
	}
	if left := g.world.Objects(sim.ObjectFilter{Kind: "disk"}); len(left) != 0 {
		t.Errorf("%d disks left", len(left))
	}
}

func TestPagesOfInstances(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(o *sim.Options) { o.PageSize = 2; o.EmptyPages = 0.5 })
	g.vpc("10.40.0.0/24", true)
	s := g.compute()
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		g.fine(s.Instances.Insert(testProject, testZone, vm(n)).Do())
	}
	seen := map[string]int{}
	err := s.Instances.List(testProject, testZone).Pages(t.Context(), func(l *compute.InstanceList) error {
		for _, i := range l.Items {
			seen[i.Name]++
		}
		return nil
	})
	if err != nil || len(seen) != 5 {
		t.Errorf("seen %v, %v", seen, err)
	}
	g.fault(sim.Fault{Kind: sim.FaultPage, Mode: "empty", Operation: "instances.list"})
	l, err := s.Instances.List(testProject, testZone).Do()
	if err != nil || len(l.Items) != 0 || l.NextPageToken == "" {
		t.Errorf("empty page: %+v, %v", l, err)
	}
}

// The whole state, with machines in the middle of their boot, survives being written and read.
func TestStateIsPlain(t *testing.T) {
	t.Parallel()
	g := managedGroupRig(t)
	g.pool(2)
	g.world.Step(30 * time.Second)
	g.world.Lock()
	defer g.world.Unlock()
	before, err := json.Marshal(g.cloud.compute.State())
	if err != nil {
		t.Fatal(err)
	}
	var again computeState
	if err := json.Unmarshal(before, &again); err != nil {
		t.Fatal(err)
	}
	after, err := json.Marshal(&again)
	if err != nil || string(before) != string(after) {
		t.Errorf("the state changes when it is written and read: %v", err)
	}
	if len(again.VM.Guests) != 2 || len(again.VM.Groups) != 1 {
		t.Errorf("%d guests, %d groups", len(again.VM.Guests), len(again.VM.Groups))
	}
}

// A group may fail to show an instance that it has.
func TestHiddenGroupInstance(t *testing.T) {
	t.Parallel()
	g := managedGroupRig(t)
	g.pool(2)
	g.settle()
	g.fault(sim.Fault{Kind: sim.FaultHidden, Match: "group-instance", Operation: "regionInstanceGroupManagers.listManagedInstances", Count: 1})
	if got := g.managed(); len(got) != 0 {
		t.Errorf("%d instances shown", len(got))
	}
	if got := g.managed(); len(got) != 2 {
		t.Errorf("%d instances shown by the second read", len(got))
	}
}
