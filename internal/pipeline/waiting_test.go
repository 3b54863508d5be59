package pipeline

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// A clock that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func waiting(mode Mode, pace Pace) (*Run, *clock) {
	c := &clock{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	return NewRun(&job.Job{}, mode, nil, nil, nil, c.now, pace), c
}

func TestWaitedForCountsCloudTime(t *testing.T) {
	t.Parallel()
	r, c := waiting(Apply, 60)
	if got := r.WaitedFor("a disk"); got != 0 {
		t.Errorf("at first %s", got)
	}
	c.at = c.at.Add(2 * time.Second)
	if got := r.WaitedFor("a disk"); got != 2*time.Minute {
		t.Errorf("after two seconds at pace 60: %s", got)
	}
	if got := r.WaitedFor("another"); got != 0 {
		t.Errorf("another's clock: %s", got)
	}
	r.WaitOver("a disk")
	if got := r.WaitedFor("a disk"); got != 0 {
		t.Errorf("afterwards %s", got)
	}
}

func TestAwaitKnown(t *testing.T) {
	t.Parallel()
	missing := &CloudError{Class: NotFound}
	isWait := func(err error) bool { var w *WaitError; return errors.As(err, &w) }

	r, c := waiting(Apply, 1)
	if err := r.AwaitKnown("the VMs", missing); !isWait(err) || r.Doubts() != 0 {
		t.Errorf("at once: %v, %d doubts", err, r.Doubts())
	}
	c.at = c.at.Add(3 * time.Minute)
	if err := r.AwaitKnown("the VMs", missing); !isWait(err) || r.Doubts() != 1 {
		t.Errorf("after minutes: %v, %d doubts", err, r.Doubts())
	}
	c.at = c.at.Add(8 * time.Minute)
	if err := r.AwaitKnown("the VMs", missing); isWait(err) || !Is(err, NotFound) {
		t.Errorf("past the bound: %v", err)
	}
	for _, mode := range []Mode{Plan, Verify} {
		r, _ := waiting(mode, 1)
		if err := r.AwaitKnown("the VMs", missing); isWait(err) {
			t.Errorf("mode %v waits", mode)
		}
	}
}

func TestLearnAll(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		mode             Mode
		had, found, want []string
	}{
		{"a run", Apply, []string{"a"}, []string{"b"}, []string{"b"}},
		{"a verify keeps what it compares with", Verify, []string{"a"}, []string{"b"}, []string{"a"}},
		{"a verify of a job that knew nothing", Verify, nil, []string{"b"}, []string{"b"}},
	} {
		r, _ := waiting(tc.mode, 1)
		got := tc.had
		if r.LearnAll(&got, tc.found); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestUnlessAndUnseen(t *testing.T) {
	t.Parallel()
	missing, denied := &CloudError{Class: NotFound}, &CloudError{Class: Denied}
	if err := Unless(missing, Capacity, NotFound); err != nil {
		t.Errorf("one of the classes: %v", err)
	}
	if err := Unless(denied, NotFound); !Is(err, Denied) {
		t.Errorf("another class: %v", err)
	}
	var w *WaitError
	if err := Unseen(missing, "zone a"); !errors.As(err, &w) {
		t.Errorf("not found: %v", err)
	}
	if err := Unseen(denied, "zone a"); !Is(err, Denied) || Unseen(nil, "zone a") != nil {
		t.Errorf("denied: %v", err)
	}
}
