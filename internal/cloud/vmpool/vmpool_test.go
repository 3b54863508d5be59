package vmpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const kind = "vm"

type book struct{ saved int }

func (b *book) Record(context.Context, pipeline.Delta) error {
	b.saved++
	return nil
}

// A pool is a run over a fixed pool of some VMs, with a clock that a test moves.
type pool struct {
	*pipeline.Run
	book book
	now  time.Time
}

func poolOf(t *testing.T, mode pipeline.Mode, count int, objects ...job.Object) *pool {
	t.Helper()
	spec, err := json.Marshal(map[string]any{"pool": map[string]any{"mode": "fixed", "count": count}})
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{ID: "job", Provider: job.AWS, ResourceType: job.VM}
	j.Config.Spec = spec
	p := &pool{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	p.Run = pipeline.NewRun(j, mode, objects, &p.book, nil, func() time.Time { return p.now }, 1)
	return p
}

func made(key string) job.Object {
	return job.Object{Kind: kind, Key: key, ID: "i-" + key, State: job.ObjectCreated}
}

func isWait(err error) bool { var w *pipeline.WaitError; return errors.As(err, &w) }

func TestKeys(t *testing.T) {
	t.Parallel()
	gone := made("vm-12")
	gone.State = job.ObjectRemoved
	p := poolOf(t, pipeline.Apply, 2, made("vm-10"), made("vm-1"), gone, job.Object{Kind: "disk", Key: "vm-7", State: job.ObjectCreated})
	if got, want := Keys(p.Run, kind), []string{"vm-1", "vm-2", "vm-10", "vm-12"}; !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
	if got, want := Surplus(p.Run, kind, 2), []string{"vm-10"}; !slices.Equal(got, want) {
		t.Errorf("surplus %v, want %v", got, want)
	}
}

func TestPlaceKeepsWhatStands(t *testing.T) {
	t.Parallel()
	blank := func(i int) job.VMInfo { return job.VMInfo{Name: fmt.Sprint("web-", i+1), State: job.VMPending} }
	infra := &job.InfraConfig{VMs: []job.VMInfo{{Name: "web-2", Zone: "a", InstanceID: "i-2"}, {Name: "web-9", Zone: "a"}}}
	if !Place(infra, []string{"a", "b"}, 3, blank) {
		t.Error("nothing has changed")
	}
	var got []string
	for _, vm := range infra.VMs {
		got = append(got, vm.Name+" "+vm.Zone+" "+vm.InstanceID)
	}
	if want := []string{"web-1 a ", "web-2 a i-2", "web-3 a "}; !slices.Equal(got, want) {
		t.Errorf("placed %q, want %q", got, want)
	}
	if Place(infra, []string{"a", "b"}, 3, blank) {
		t.Error("a second time changes something")
	}
	if !Place(infra, []string{"b"}, 3, blank) || infra.VMs[1].Zone != "b" {
		t.Errorf("a zone that is no longer there is kept: %+v", infra.VMs)
	}
}

// A fleet that writes down in which order it is asked.
type fleet struct {
	calls           []string
	done, moved     bool
	launch, preface error
}

func (f *fleet) Rest(context.Context) (bool, error) {
	f.calls = append(f.calls, "rest")
	return f.done, nil
}
func (f *fleet) Place() (bool, error) { f.calls = append(f.calls, "place"); return f.moved, nil }
func (f *fleet) Prepare(context.Context) error {
	f.calls = append(f.calls, "prepare")
	return f.preface
}
func (f *fleet) Launch(context.Context) error { f.calls = append(f.calls, "launch"); return f.launch }
func (f *fleet) Report(context.Context) error { f.calls = append(f.calls, "report"); return nil }

func TestEnsure(t *testing.T) {
	t.Parallel()
	booting := pipeline.Wait(time.Second, "vm-1 to boot")
	for _, tc := range []struct {
		name  string
		mode  pipeline.Mode
		f     fleet
		calls string
		saved int
		sight Sight
	}{
		{"all run", pipeline.Apply, fleet{moved: true}, "rest place prepare launch report", 1, Fresh},
		{"seen a moment ago", pipeline.Apply, fleet{done: true}, "rest", 0, Unseen},
		{"one boots", pipeline.Apply, fleet{launch: booting}, "rest place prepare launch report", 0, Unseen},
		{"the surplus stays", pipeline.Apply, fleet{preface: booting}, "rest place prepare", 0, Unseen},
		{"a plan looks at nothing", pipeline.Plan, fleet{}, "rest place prepare launch", 0, Unseen},
		{"a verify remembers nothing", pipeline.Verify, fleet{}, "rest place prepare launch report", 0, Unseen},
	} {
		p := poolOf(t, tc.mode, 1)
		err := Ensure(t.Context(), p.Run, &tc.f)
		if want := tc.f.launch != nil || tc.f.preface != nil; isWait(err) != want {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := strings.Join(tc.f.calls, " "); got != tc.calls || p.book.saved != tc.saved {
			t.Errorf("%s: %s, %d times saved", tc.name, got, p.book.saved)
		}
		if got := LastSight(p.Run, kind); got != tc.sight {
			t.Errorf("%s: sight %d, want %d", tc.name, got, tc.sight)
		}
	}
}

func TestLastSight(t *testing.T) {
	t.Parallel()
	p := poolOf(t, pipeline.Apply, 1, made("vm-1"))
	Saw(p.Run)
	if got := LastSight(p.Run, kind); got != Fresh {
		t.Errorf("at once %d", got)
	}
	p.now = p.now.Add(2 * time.Minute)
	if got := LastSight(p.Run, kind); got != Stale {
		t.Errorf("minutes later %d", got)
	}
	p.Doubt()
	if got := LastSight(p.Run, kind); got != Unseen {
		t.Errorf("after a doubt %d", got)
	}
	sick := made("vm-1")
	sick.Reason = "failed"
	p = poolOf(t, pipeline.Apply, 1, sick)
	Saw(p.Run)
	if got := LastSight(p.Run, kind); got != Unseen {
		t.Errorf("while one is replaced %d", got)
	}
	if got := LastSight(p.Run); got != Fresh {
		t.Errorf("of no kind %d", got)
	}
}

func TestMade(t *testing.T) {
	t.Parallel()
	for mode, want := range map[pipeline.Mode]job.VMState{pipeline.Apply: job.VMReady, pipeline.Verify: job.VMTerminated} {
		p := poolOf(t, mode, 2, made("vm-1"))
		p.Job.Config.InfraConfig.VMs = []job.VMInfo{{InstanceID: "i-vm-1", State: job.VMReady}, {InstanceID: "i-vm-2", State: job.VMReady}}
		var seen []string
		err := Made(p.Run, kind, func(vm *job.VMInfo, o job.Object) error {
			seen = append(seen, vm.InstanceID+"="+o.ID)
			return nil
		})
		if err != nil || !slices.Equal(seen, []string{"i-vm-1=i-vm-1"}) {
			t.Errorf("%v: %v, %v", mode, seen, err)
		}
		if got := p.Job.Config.InfraConfig.VMs[1].State; got != want {
			t.Errorf("%v: the other is %s, want %s", mode, got, want)
		}
	}
}

func TestNoRoom(t *testing.T) {
	t.Parallel()
	refusal := &pipeline.CloudError{Class: pipeline.Capacity, Message: "none left"}
	p := poolOf(t, pipeline.Apply, 1)
	if err := NoRoom(p.Run, "no room for big in here", refusal); !isWait(err) || !strings.Contains(err.Error(), "no room for big in here: ") {
		t.Errorf("at first: %v", err)
	}
	p.now = p.now.Add(CapacityPatience)
	var fatal *pipeline.FatalError
	if err := NoRoom(p.Run, "no room for big in here", refusal); !errors.As(err, &fatal) || fatal.Problem.Code != "no-capacity" {
		t.Errorf("in the end: %v", err)
	}
}

func TestUnhealthy(t *testing.T) {
	t.Parallel()
	words := Words{Plural: "targets", Absent: "registered", Short: func(id string) string { return strings.TrimPrefix(id, "x/") }}
	vms := []job.VMInfo{{InstanceID: "x/1"}, {InstanceID: "x/2"}, {InstanceID: "x/3"}}
	one := job.TargetInfo{InstanceID: "x/1", Health: cloud.HealthyTarget}
	two := job.TargetInfo{InstanceID: "x/2", Health: "unhealthy", Reason: "got 404"}
	stranger := job.TargetInfo{InstanceID: "x/9", Health: cloud.HealthyTarget}
	for _, tc := range []struct {
		name   string
		health []job.TargetInfo
		group  bool
		want   []string
	}{
		{"by name", []job.TargetInfo{one, two, stranger}, false, []string{"2 is unhealthy (got 404)", "3 is not registered yet"}},
		{"of a group the number counts", []job.TargetInfo{one, two, stranger}, true, []string{"2 is unhealthy (got 404)"}},
		{"one of a group is missing", []job.TargetInfo{one, stranger}, true, []string{"one not registered yet"}},
		{"enough of a group", []job.TargetInfo{one, two, stranger, {InstanceID: "x/8", Health: cloud.HealthyTarget}}, true, nil},
		{"nothing known", nil, false, []string{"1 is not registered yet", "2 is not registered yet", "3 is not registered yet"}},
		{"no state", []job.TargetInfo{one, {InstanceID: "x/2"}, {InstanceID: "x/3", Health: cloud.HealthyTarget}}, false, []string{"2 is in no state"}},
	} {
		if got := words.Unhealthy(vms, tc.health, tc.group); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestAwait(t *testing.T) {
	t.Parallel()
	w := HealthWait{Words: Words{Plural: "backends"}, Patience: 10 * time.Minute, Bare: time.Minute, Poll: 15 * time.Second, Hint: ", and the log tells"}
	check := job.HealthCheck{Path: "/up", Port: 81}
	const bare = job.BootstrapBare
	for _, tc := range []struct {
		name, bootstrap string
		after           time.Duration
		wait, fatal     bool
	}{
		{"at first", job.BootstrapNginx, 0, true, false},
		{"for long", job.BootstrapNginx, 9 * time.Minute, true, false},
		{"for too long", job.BootstrapNginx, 10 * time.Minute, false, true},
		{"nothing of ours, at first", bare, 0, true, false},
		{"nothing of ours", bare, time.Minute, false, false},
	} {
		p := poolOf(t, pipeline.Apply, 1)
		w.Since(p.Run)
		p.now = p.now.Add(tc.after)
		err := w.Await(p.Run, check, tc.bootstrap, []string{"1 is unhealthy"})
		var fatal *pipeline.FatalError
		if isWait(err) != tc.wait || errors.As(err, &fatal) != tc.fatal {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.fatal && !strings.Contains(fatal.Problem.Hint, "cause, and the log tells: PATCH") {
			t.Errorf("%s: hint %q", tc.name, fatal.Problem.Hint)
		}
		warned := p.Job.Config.InfraConfig.Warnings
		if want := err == nil; want != (len(warned) == 1) {
			t.Errorf("%s: warnings %q", tc.name, warned)
		}
		if err := w.Await(p.Run, check, tc.bootstrap, nil); err != nil || w.Since(p.Run) != 0 {
			t.Errorf("%s: with nobody sick %v", tc.name, err)
		}
	}
}
