package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// teardown runs passes of a removal by one worker, until it is over.
func (b *bench) teardown(t *testing.T, change func(*Resource)) error {
	t.Helper()
	mem := NewMemory()
	for range 2000 {
		r := NewRun(b.j, Apply, b.book.all(), b.book, mem, func() time.Time { return b.shelf.now }, 1)
		r.Down = true
		x := b.shelf.resource(r, false)
		if change != nil {
			change(&x)
		}
		err := r.Remove(t.Context(), x)
		d := Judge(err, 0)
		if d.Action != Park && d.Action != Again {
			return err
		}
		b.shelf.now = b.shelf.now.Add(d.After)
	}
	t.Fatal("the removal never ended")
	return nil
}

func TestDeleteThatWasSwallowedIsSentAgain(t *testing.T) {
	for _, slow := range []bool{false, true} {
		b := newBench()
		if err := b.settle(t, false); err != nil {
			t.Fatal(err)
		}
		sent := 0
		err := b.teardown(t, func(x *Resource) {
			x.Slow = slow
			really := x.Delete
			x.Delete = func(ctx context.Context, id string) error {
				if sent++; sent == 1 {
					return nil
				}
				return really(ctx, id)
			}
		})
		if err != nil || len(b.shelf.things) != 0 || sent != 2 {
			t.Errorf("slow %v: %v, %d deletes, left %+v", slow, err, sent, b.shelf.things)
		}
		if got := b.book.objects["shelf:thing/one"].State; got != job.ObjectRemoved {
			t.Errorf("slow %v: the row is %s", slow, got)
		}
	}
}

func TestDeleteThatNeverWorksEndsWithAReason(t *testing.T) {
	nobody := func(context.Context, string) (string, error) { return "", nil }
	used := &CloudError{Class: Busy, Op: "delete", Message: "it is in use by address theirs", Sent: true}
	for _, c := range []struct {
		slow     bool
		blockers func(context.Context, string) (string, error)
		refused  error // what every second delete is answered with
		code     string
		says     string
	}{
		{false, nil, nil, "timed-out", "still there"},
		{true, nil, nil, "timed-out", "still there"},
		{true, nobody, nil, "timed-out", "still there"},
		{true, nobody, used, "timed-out", "in use by address theirs"},
		// Accepted each time and failed later, as at Google Cloud: the refusal
		// that would name the blocker never comes.
		{true, func(context.Context, string) (string, error) { return "firewall rule theirs uses it", nil }, nil, "blocked", "firewall rule theirs"},
	} {
		slow := c.slow
		b := newBench()
		if err := b.settle(t, false); err != nil {
			t.Fatal(err)
		}
		sent := 0
		err := b.teardown(t, func(x *Resource) {
			x.Slow, x.Blockers = slow, c.blockers
			x.Delete = func(context.Context, string) error {
				if sent++; sent%2 == 0 {
					return c.refused
				}
				return nil
			}
		})
		var fatal *FatalError
		if !errors.As(err, &fatal) || fatal.Problem.Code != c.code || !strings.Contains(fatal.Problem.Message, c.says) {
			t.Fatalf("slow %v: %v", slow, err)
		}
		if sent > 200 {
			t.Errorf("slow %v: %d deletes were sent in an hour", slow, sent)
		}
		if got := b.book.objects["shelf:thing/one"].State; got != job.ObjectCreated {
			t.Errorf("slow %v: what is still there is %s in the ledger", slow, got)
		}
	}
}

func TestWhatShowsAfterItWasGivenUpIsRemoved(t *testing.T) {
	for _, state := range []job.ObjectStatus{job.ObjectAbsent, job.ObjectRemoved} {
		b := newBench()
		b.book.objects["shelf:thing/one"] = job.Object{JobID: b.j.ID, Kind: "shelf:thing", Key: "one", ID: "t-1", State: state}
		b.shelf.things["t-5"] = &thing{id: "t-5", owner: b.j.ID, born: b.shelf.now}
		b.shelf.things["t-6"] = &thing{id: "t-6", owner: "somebody", born: b.shelf.now}
		if err := b.teardown(t, nil); err != nil {
			t.Fatal(err)
		}
		if b.shelf.things["t-5"] != nil || b.shelf.things["t-6"] == nil {
			t.Errorf("%s: left %+v", state, b.shelf.things)
		}
	}
}

func TestMismatchLooksBeforeItUsesANewToken(t *testing.T) {
	b := newBench()
	b.lag = 10 * time.Second
	r := b.run(Apply)
	x := b.shelf.resource(r, true)
	x.Create = func(context.Context, string) (Seen, error) {
		// Made by an earlier version of the arguments, whose reply was lost.
		b.shelf.things["t-1"] = &thing{id: "t-1", owner: b.j.ID, born: b.shelf.now, size: "large"}
		b.shelf.creates++
		return Seen{}, &CloudError{Class: Mismatch, Sent: true, Op: "create"}
	}
	if _, err := r.Ensure(t.Context(), x); !Is(err, Mismatch) {
		t.Fatal(err)
	}
	if err := b.settle(t, true); err != nil {
		t.Fatal(err)
	}
	b.checkOne(t)
}

// TestStaleReadIsNoRemoval keeps one read that does not show an object, which nobody
// has deleted, from being taken for its end: it would stay, and be billed.
func TestStaleReadIsNoRemoval(t *testing.T) {
	b := newBench()
	if err := b.settle(t, false); err != nil {
		t.Fatal(err)
	}
	b.shelf.now = b.shelf.now.Add(24 * time.Hour)
	hidden, sent := 3, 0
	err := b.teardown(t, func(x *Resource) {
		read, really := x.Get, x.Delete
		x.Get = func(ctx context.Context, id string) (Seen, error) {
			if hidden > 0 {
				hidden--
				return Seen{}, &CloudError{Class: NotFound, Sent: true, Op: "get", Code: "NotFound"}
			}
			return read(ctx, id)
		}
		x.Delete = func(ctx context.Context, id string) error {
			sent++
			return really(ctx, id)
		}
	})
	if err != nil || len(b.shelf.things) != 0 || sent != 1 {
		t.Errorf("%v, %d deletes, left %+v", err, sent, b.shelf.things)
	}
}

// TestPreciousIsNotMadeAgain stops with a reason when something that holds data
// vanishes, and leaves it in the ledger, so that a teardown still goes for it.
func TestPreciousIsNotMadeAgain(t *testing.T) {
	b := newBench()
	if err := b.settle(t, false); err != nil {
		t.Fatal(err)
	}
	clear(b.shelf.things)
	mem := NewMemory()
	var fatal *FatalError
	for range 2000 {
		r := NewRun(b.j, Apply, b.book.all(), b.book, mem, func() time.Time { return b.shelf.now }, 1)
		x := b.shelf.resource(r, false)
		x.Precious = true
		_, err := r.Ensure(t.Context(), x)
		if errors.As(err, &fatal) {
			break
		}
		if !IsWait(err) {
			t.Fatalf("%v", err)
		}
		b.shelf.now = b.shelf.now.Add(10 * time.Second)
	}
	if fatal == nil || fatal.Problem.Code != "object-lost" || b.shelf.creates != 1 {
		t.Errorf("%v, %d creates", fatal, b.shelf.creates)
	}
	if got := b.book.objects["shelf:thing/one"]; got.State != job.ObjectCreated || got.ID == "" {
		t.Errorf("the row is %+v", got)
	}
}

// TestHiddenAfterALostReplyIsNotTakenForForeign waits for what an earlier create has
// made when the cloud says that the name is taken and does not show by what.
func TestHiddenAfterALostReplyIsNotTakenForForeign(t *testing.T) {
	b := newBench()
	b.shelf.lag, b.shelf.loseNext = 5*time.Minute, true
	mem := NewMemory()
	taken := 0
	for range 2000 {
		r := NewRun(b.j, Apply, b.book.all(), b.book, mem, func() time.Time { return b.shelf.now }, 1)
		x := b.shelf.resource(r, false)
		really := x.Create
		x.Create = func(ctx context.Context, token string) (Seen, error) {
			if len(b.shelf.things) > 0 {
				taken++
				return Seen{}, &CloudError{Class: Exists, Sent: true, Op: "create", Code: "AlreadyExists"}
			}
			return really(ctx, token)
		}
		id, err := r.Ensure(t.Context(), x)
		if err == nil {
			if id != "t-1" || taken == 0 || b.shelf.creates != 1 {
				t.Errorf("took %s after %d refusals, %d creates", id, taken, b.shelf.creates)
			}
			return
		}
		if d := Judge(err, 0); d.Action != Park && d.Action != Again {
			t.Fatalf("%v after %d refusals", err, taken)
		}
		b.shelf.now = b.shelf.now.Add(10 * time.Second)
	}
	t.Fatal("it never ended")
}
