package pipeline

import (
	"errors"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// An object that an update sets to work is waited for from then on, however old it
// is: by a worker that has seen it at rest, and by one that takes the step up after a
// crash and knows when the step began.
func TestPatienceCountsFromThePresentWait(t *testing.T) {
	for _, crash := range []bool{false, true} {
		b := newBench()
		mem := NewMemory()
		begun := time.Time{}
		ensure := func() error {
			if crash {
				mem = NewMemory()
			}
			r := NewRun(b.j, Apply, b.book.all(), b.book, mem, func() time.Time { return b.shelf.now }, 1)
			r.From = begun
			r.Unsettle() // as at the start of a run
			_, err := r.Ensure(t.Context(), b.shelf.resource(r, true))
			return err
		}
		work := func(status string) {
			for _, th := range b.shelf.things {
				th.status = status
			}
		}
		pass := func(what, want string) {
			t.Helper()
			err := ensure()
			var fatal *FatalError
			got := "done"
			switch {
			case IsWait(err):
				got = "waits"
			case errors.As(err, &fatal):
				got = fatal.Problem.Code
			case err != nil:
				got = err.Error()
			}
			if got != want {
				t.Errorf("crash %t: %s: %s (%v), want %s", crash, what, got, err, want)
			}
		}
		begun = b.shelf.now
		pass("made", "done")
		created := *b.book.objects["shelf:thing/one"].CreatedAt

		b.shelf.now = b.shelf.now.Add(48 * time.Hour)
		begun = b.shelf.now
		pass("still ready, a new run", "done")
		work("pending")
		pass("an update has begun", "waits")
		b.shelf.now = b.shelf.now.Add(29 * time.Minute)
		pass("the update goes on", "waits")
		b.shelf.now = b.shelf.now.Add(2 * time.Minute)
		pass("the update takes too long", "timed-out")
		begun = b.shelf.now
		if crash { // a retry is a worker that knows nothing
			pass("a retry goes on waiting", "waits")
		}
		work("")
		pass("it has come to an end", "done")
		if o := b.book.objects["shelf:thing/one"]; !o.CreatedAt.Equal(created) || o.State != job.ObjectCreated || b.shelf.creates != 1 {
			t.Errorf("crash %t: the row is %+v after %d creates", crash, o, b.shelf.creates)
		}
	}
}

// One update after another, in one step, has the whole patience each, as long as one
// worker sees the object at rest between them.
func TestPatienceOfUpdatesInTurn(t *testing.T) {
	b := newBench()
	mem := NewMemory()
	begun := b.shelf.now
	ensure := func() error {
		r := NewRun(b.j, Apply, b.book.all(), b.book, mem, func() time.Time { return b.shelf.now }, 1)
		r.From = begun
		r.Unsettle()
		_, err := r.Ensure(t.Context(), b.shelf.resource(r, true))
		return err
	}
	_ = ensure() // made
	for i := range 3 {
		for _, th := range b.shelf.things {
			th.status = ""
		}
		if err := ensure(); err != nil {
			t.Fatalf("at rest, %d: %v", i, err)
		}
		for _, th := range b.shelf.things {
			th.status = "pending"
		}
		b.shelf.now = b.shelf.now.Add(25 * time.Minute)
		if err := ensure(); !IsWait(err) {
			t.Fatalf("update %d, after 25 minutes: %v", i, err)
		}
	}
}
