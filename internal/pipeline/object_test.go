package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// A shelf is a cloud with one kind of object, by itself no more than a map with
// the oddities that the protocol has to live with.
type shelf struct {
	things   map[string]*thing // by ID
	next     int
	now      time.Time
	lag      time.Duration         // fresh objects are invisible for this long
	tokens   map[string]string     // honoured tokens
	creates  int                   // creates that took effect
	fail     func(op string) error // before
	loseNext bool                  // the next create takes effect and its reply is lost
}

type thing struct {
	id, owner, status string
	born              time.Time
	size              string
}

func newShelf() *shelf {
	return &shelf{things: map[string]*thing{}, tokens: map[string]string{}, now: time.Unix(1_000_000, 0)}
}

func (s *shelf) visible(t *thing) bool { return s.now.Sub(t.born) >= s.lag }

func (s *shelf) resource(r *Run, tokened bool) Resource {
	see := func(t *thing) Seen {
		st := map[string]Status{"": Ready, "pending": Pending, "failed": Broken, "gone": Gone}[t.status]
		return Seen{ID: t.id, Owner: t.owner, Status: st, Reason: t.status, Aspects: []Aspect{
			{Name: "size", Wanted: "large", Seen: t.size, Set: func(context.Context) error { t.size = "large"; return nil }},
		}}
	}
	return Resource{
		Kind: "shelf:thing", Key: "one", Name: "thing-one", Tokened: tokened, Args: map[string]string{"a": "b"},
		Get: func(_ context.Context, id string) (Seen, error) {
			if s.fail != nil {
				if err := s.fail("get"); err != nil {
					return Seen{}, err
				}
			}
			t, ok := s.things[id]
			if !ok || !s.visible(t) {
				return Seen{}, &CloudError{Class: NotFound, Sent: true, Op: "get", Code: "NotFound"}
			}
			return see(t), nil
		},
		Find: func(context.Context) ([]Seen, error) {
			var out []Seen
			for _, t := range s.things {
				if s.visible(t) {
					out = append(out, see(t))
				}
			}
			return out, nil
		},
		Create: func(_ context.Context, token string) (Seen, error) {
			if s.fail != nil {
				if err := s.fail("create"); err != nil {
					return Seen{}, err
				}
			}
			if id, ok := s.tokens[token]; ok && tokened {
				return see(s.things[id]), nil
			}
			s.next++
			s.creates++
			t := &thing{id: fmt.Sprintf("t-%d", s.next), owner: r.Job.ID, born: s.now, size: "small"}
			s.things[t.id], s.tokens[token] = t, t.id
			if s.loseNext {
				s.loseNext = false
				return Seen{}, &CloudError{Class: Unavailable, Sent: true, Op: "create", Message: "connection reset"}
			}
			return Seen{ID: t.id, Owner: t.owner, Status: Pending}, nil
		},
		Delete: func(_ context.Context, id string) error {
			delete(s.things, id)
			return nil
		},
	}
}

// book is a ledger in memory that can be made to fail.
type book struct {
	objects map[string]job.Object
	fail    func() error
}

func (b *book) Record(_ context.Context, d Delta) error {
	if b.fail != nil {
		if err := b.fail(); err != nil {
			return err
		}
	}
	for _, o := range d.Objects {
		b.objects[o.Kind+"/"+o.Key] = o
	}
	return nil
}

func (b *book) all() (out []job.Object) {
	for _, o := range b.objects {
		out = append(out, o)
	}
	return out
}

type bench struct {
	*shelf
	*book
	j *job.Job
}

func newBench() *bench {
	return &bench{shelf: newShelf(), book: &book{objects: map[string]job.Object{}}, j: &job.Job{ID: "job_1", Provider: job.AWS, Region: "r"}}
}

// run is a worker that has just taken the job up: it knows what the ledger has.
func (b *bench) run(mode Mode) *Run {
	return NewRun(b.j, mode, b.book.all(), b.book, nil, func() time.Time { return b.shelf.now }, 1)
}

// settle runs passes, each by a fresh worker, until the object is there.
func (b *bench) settle(t *testing.T, tokened bool) error {
	t.Helper()
	for range 200 {
		r := b.run(Apply)
		_, err := r.Ensure(t.Context(), b.shelf.resource(r, tokened))
		var fatal *FatalError
		if err == nil || errors.As(err, &fatal) {
			return err
		}
		b.shelf.now = b.shelf.now.Add(2 * time.Second)
		for _, th := range b.shelf.things {
			if th.status == "pending" {
				th.status = ""
			}
		}
	}
	t.Fatal("the object never settled")
	return nil
}

func (b *bench) checkOne(t *testing.T) {
	t.Helper()
	if len(b.shelf.things) != 1 || b.shelf.creates != 1 {
		t.Errorf("%d things, %d creates; want one", len(b.shelf.things), b.shelf.creates)
	}
	o := b.book.objects["shelf:thing/one"]
	if th, ok := b.shelf.things[o.ID]; !ok || o.State != job.ObjectCreated || th.size != "large" {
		t.Errorf("the ledger has %+v, the cloud %+v", o, b.shelf.things)
	}
}

func TestCreateOnceWhateverIsLost(t *testing.T) {
	for _, tokened := range []bool{false, true} {
		for _, lag := range []time.Duration{0, 5 * time.Second, 30 * time.Second} {
			name := fmt.Sprintf("tokened %v, lag %s", tokened, lag)
			t.Run(name+", reply lost", func(t *testing.T) {
				b := newBench()
				b.lag, b.loseNext = lag, true
				if err := b.settle(t, tokened); err != nil {
					t.Fatal(err)
				}
				b.checkOne(t)
			})
			// The ledger fails at its nth write, once: the intent, the ID, and so on.
			for n := range 4 {
				t.Run(fmt.Sprintf("%s, write %d lost", name, n), func(t *testing.T) {
					b := newBench()
					b.lag = lag
					writes := 0
					b.book.fail = func() error {
						writes++
						if writes == n+1 {
							return errors.New("the database went away")
						}
						return nil
					}
					if err := b.settle(t, tokened); err != nil {
						t.Fatal(err)
					}
					b.checkOne(t)
				})
			}
		}
	}
}

func TestCreateRefusedIsSentAgainAtOnce(t *testing.T) {
	b := newBench()
	b.shelf.fail = func(op string) error {
		if op == "create" {
			b.shelf.fail = nil
			return &CloudError{Class: Throttled, Sent: true, Op: "create"}
		}
		return nil
	}
	r := b.run(Apply)
	if _, err := r.Ensure(t.Context(), b.shelf.resource(r, false)); !Is(err, Throttled) {
		t.Fatalf("Ensure = %v", err)
	}
	if got := b.book.objects["shelf:thing/one"].State; got != job.ObjectAbsent {
		t.Fatalf("after a create that was refused the row is %s", got)
	}
	// No window is waited out: it is known that nothing happened.
	r = b.run(Apply)
	if _, err := r.Ensure(t.Context(), b.shelf.resource(r, false)); err != nil {
		t.Fatal(err)
	}
	b.checkOne(t)
}

func TestForeignNamesakeIsNotTouched(t *testing.T) {
	b := newBench()
	b.shelf.things["t-9"] = &thing{id: "t-9", owner: "", size: "small"}
	err := b.settle(t, false)
	var fatal *FatalError
	if !errors.As(err, &fatal) || fatal.Problem.Code != "name-taken" {
		t.Fatalf("Ensure = %v", err)
	}
	r := b.run(Apply)
	if err := r.Remove(t.Context(), b.shelf.resource(r, false)); err != nil {
		t.Fatal(err)
	}
	if th := b.shelf.things["t-9"]; th == nil || th.size != "small" || b.shelf.creates != 0 {
		t.Fatalf("somebody else's thing was touched: %+v", b.shelf.things)
	}
}

func TestOneMissIsNotBelieved(t *testing.T) {
	b := newBench()
	if err := b.settle(t, false); err != nil {
		t.Fatal(err)
	}
	misses := 1
	b.shelf.fail = func(op string) error {
		if op == "get" && misses > 0 {
			misses--
			return &CloudError{Class: NotFound, Sent: true, Op: "get"}
		}
		return nil
	}
	if err := b.settle(t, false); err != nil {
		t.Fatal(err)
	}
	b.checkOne(t)
}

func TestErrorIsNotAbsence(t *testing.T) {
	b := newBench()
	if err := b.settle(t, false); err != nil {
		t.Fatal(err)
	}
	b.shelf.fail = func(op string) error { return &CloudError{Class: Unavailable, Sent: true, Op: op} }
	r := b.run(Apply)
	if err := r.Remove(t.Context(), b.shelf.resource(r, false)); !Is(err, Unavailable) {
		t.Fatalf("Remove = %v", err)
	}
	if got := b.book.objects["shelf:thing/one"].State; got != job.ObjectCreated {
		t.Fatalf("a failed read made the row %s", got)
	}
}

func TestMissingForTheWholeWindowIsMadeAgain(t *testing.T) {
	b := newBench()
	if err := b.settle(t, true); err != nil {
		t.Fatal(err)
	}
	clear(b.shelf.things)
	mem := NewMemory()
	for range 100 {
		r := NewRun(b.j, Apply, b.book.all(), b.book, mem, func() time.Time { return b.shelf.now }, 1)
		if _, err := r.Ensure(t.Context(), b.shelf.resource(r, true)); err == nil {
			if b.shelf.creates != 2 || len(b.shelf.things) != 1 {
				t.Fatalf("%d creates, %d things", b.shelf.creates, len(b.shelf.things))
			}
			return
		}
		b.shelf.now = b.shelf.now.Add(3 * time.Second)
	}
	t.Fatal("never made again")
}

func TestBrokenIsKeptAndEndedIsNamed(t *testing.T) {
	for status, code := range map[string]string{"failed": "object-failed", "gone": "object-ended"} {
		b := newBench()
		b.lag = 0
		r := b.run(Apply)
		_, _ = r.Ensure(t.Context(), b.shelf.resource(r, false))
		for _, th := range b.shelf.things {
			th.status = status
		}
		err := b.settle(t, false)
		var fatal *FatalError
		if !errors.As(err, &fatal) || fatal.Problem.Code != code || fatal.Problem.Hint == "" {
			t.Fatalf("%s: Ensure = %v", status, err)
		}
		if status == "failed" && b.book.objects["shelf:thing/one"].State != job.ObjectCreated {
			t.Error("a broken object is no longer in the ledger")
		}
	}
}

func TestRetryReplacesWhatCameUpBroken(t *testing.T) {
	for name, recovers := range map[string]bool{"still broken": false, "recovered": true} {
		b := newBench()
		r := b.run(Apply)
		_, _ = r.Ensure(t.Context(), b.shelf.resource(r, true)) // made, not yet ready
		for _, th := range b.shelf.things {
			th.status = "failed"
		}
		if err := b.settle(t, true); err == nil {
			t.Fatalf("%s: a broken object passed", name)
		}
		if recovers {
			for _, th := range b.shelf.things {
				th.status = ""
			}
		}
		if err := b.settle(t, true); err != nil {
			t.Fatalf("%s: the retry: %v", name, err)
		}
		want := 2
		if recovers {
			want = 1
		}
		if b.shelf.creates != want || len(b.shelf.things) != 1 {
			t.Errorf("%s: %d creates, %d things; want %d and 1", name, b.shelf.creates, len(b.shelf.things), want)
		}
	}
}

func TestHalfRemovedIsMadeAnew(t *testing.T) {
	b := newBench()
	if err := b.settle(t, true); err != nil {
		t.Fatal(err)
	}
	r := b.run(Apply)
	x := b.shelf.resource(r, true)
	x.Slow = true
	x.Delete = func(_ context.Context, id string) error {
		b.shelf.things[id].status = "pending"
		return nil
	}
	if err := r.Remove(t.Context(), x); err == nil {
		t.Fatal("gone at once")
	}
	clear(b.shelf.things) // the deletion goes through, and then the object is wanted again
	b.shelf.now = b.shelf.now.Add(time.Hour)
	if err := b.settle(t, true); err != nil {
		t.Fatal(err)
	}
	if b.shelf.creates != 2 || len(b.shelf.things) != 1 {
		t.Errorf("%d creates, %d things", b.shelf.creates, len(b.shelf.things))
	}
}

func TestCancelledBeforeTheCreateMakesNothing(t *testing.T) {
	b := newBench()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := b.run(Apply)
	if _, err := r.Ensure(ctx, b.shelf.resource(r, false)); !errors.Is(err, context.Canceled) {
		t.Fatalf("Ensure = %v", err)
	}
	if b.shelf.creates != 0 || len(b.book.objects) != 0 {
		t.Fatal("something was begun after the cancel")
	}
}

func TestCancelDuringTheCreateRecordsIt(t *testing.T) {
	b := newBench()
	ctx, cancel := context.WithCancel(t.Context())
	r := b.run(Apply)
	x := b.shelf.resource(r, false)
	create := x.Create
	x.Create = func(ctx context.Context, token string) (Seen, error) {
		cancel()
		if ctx.Err() != nil {
			t.Error("the cancel reached the create in flight")
		}
		return create(ctx, token)
	}
	_, _ = r.Ensure(ctx, x)
	if o := b.book.objects["shelf:thing/one"]; o.ID == "" || o.State != job.ObjectCreated {
		t.Fatalf("made and not recorded: %+v", o)
	}
}

// An object that somebody else has made under a recorded ID is not brought into
// line, and the row stays as it is.
func TestWhatIsSomebodyElsesByNowIsNotTouched(t *testing.T) {
	b := newBench()
	if err := b.settle(t, false); err != nil {
		t.Fatal(err)
	}
	for _, th := range b.shelf.things {
		th.owner, th.size = "job_2", "medium"
	}
	before := b.book.objects["shelf:thing/one"]
	r := b.run(Apply)
	_, err := r.Ensure(t.Context(), b.shelf.resource(r, false))
	var fatal *FatalError
	if !errors.As(err, &fatal) || fatal.Problem.Code != "not-ours" {
		t.Errorf("the verdict is %v", err)
	}
	for _, th := range b.shelf.things {
		if th.size != "medium" {
			t.Errorf("it was changed to %s", th.size)
		}
	}
	if after := b.book.objects["shelf:thing/one"]; after.State != before.State || after.ID != before.ID {
		t.Errorf("its row is %+v", after)
	}
}

func TestVerifyChangesNothing(t *testing.T) {
	b := newBench()
	if err := b.settle(t, false); err != nil {
		t.Fatal(err)
	}
	r := b.run(Verify)
	if _, err := r.Ensure(t.Context(), b.shelf.resource(r, false)); err != nil || len(r.Drift()) != 0 {
		t.Fatalf("%v, drift %+v", err, r.Drift())
	}
	for _, th := range b.shelf.things {
		th.size = "medium"
	}
	r = b.run(Verify)
	if _, err := r.Ensure(t.Context(), b.shelf.resource(r, false)); err != nil {
		t.Fatal(err)
	}
	d := r.Drift()
	if len(d) != 1 || d[0].Attr != "size" || d[0].Wanted != "large" || d[0].Seen != "medium" {
		t.Fatalf("drift %+v", d)
	}
	for _, th := range b.shelf.things {
		if th.size != "medium" {
			t.Fatal("verify rewrote it")
		}
	}
	clear(b.shelf.things)
	r = b.run(Verify)
	if _, err := r.Ensure(t.Context(), b.shelf.resource(r, false)); err != nil || len(r.Drift()) != 1 || b.shelf.creates != 1 {
		t.Fatalf("%v, drift %+v, %d creates", err, r.Drift(), b.shelf.creates)
	}
}

func TestRemoveFindsWhatTheLedgerNeverHeardOf(t *testing.T) {
	b := newBench()
	b.shelf.things["t-7"] = &thing{id: "t-7", owner: b.j.ID, born: b.shelf.now}
	r := b.run(Apply)
	if err := r.Remove(t.Context(), b.shelf.resource(r, false)); err != nil {
		t.Fatal(err)
	}
	if len(b.shelf.things) != 0 || b.book.objects["shelf:thing/one"].State != job.ObjectRemoved {
		t.Fatalf("left %+v, ledger %+v", b.shelf.things, b.book.objects)
	}
}

func TestRemoveWaitsForACreateThatMayStillShow(t *testing.T) {
	b := newBench()
	b.lag, b.loseNext = 20*time.Second, true
	r := b.run(Apply)
	if _, err := r.Ensure(t.Context(), b.shelf.resource(r, false)); err == nil {
		t.Fatal("the reply was not lost")
	}
	for range 100 {
		r := b.run(Apply)
		err := r.Remove(t.Context(), b.shelf.resource(r, false))
		if err == nil {
			break
		}
		b.shelf.now = b.shelf.now.Add(2 * time.Second)
	}
	if len(b.shelf.things) != 0 {
		t.Fatalf("left behind: %+v", b.shelf.things)
	}
}

func TestAttachAfterDetachTakesANewToken(t *testing.T) {
	b := newBench()
	if err := b.settle(t, true); err != nil {
		t.Fatal(err)
	}
	r := b.run(Apply)
	if err := r.Remove(t.Context(), b.shelf.resource(r, true)); err != nil {
		t.Fatal(err)
	}
	b.shelf.now = b.shelf.now.Add(time.Hour)
	if err := b.settle(t, true); err != nil {
		t.Fatal(err)
	}
	if b.shelf.creates != 2 || len(b.shelf.tokens) != 2 {
		t.Fatalf("%d creates with %d tokens", b.shelf.creates, len(b.shelf.tokens))
	}
}

func TestLostAgainAndAgainStops(t *testing.T) {
	b := newBench()
	if err := b.settle(t, true); err != nil {
		t.Fatal(err)
	}
	mem := NewMemory()
	for range 1000 {
		clear(b.shelf.things) // what is made is taken away at once
		r := NewRun(b.j, Apply, b.book.all(), b.book, mem, func() time.Time { return b.shelf.now }, 1)
		r.Unsettle()
		_, err := r.Ensure(t.Context(), b.shelf.resource(r, true))
		var fatal *FatalError
		if errors.As(err, &fatal) {
			if fatal.Problem.Code != "object-lost" || fatal.Problem.Hint == "" || b.shelf.creates != tolerated+1 {
				t.Errorf("after %d creates: %+v", b.shelf.creates, fatal.Problem)
			}
			return
		}
		b.shelf.now = b.shelf.now.Add(5 * time.Second)
	}
	t.Fatalf("made %d times without an end", b.shelf.creates)
}

func TestCondemnedIsReplaced(t *testing.T) {
	b := newBench()
	if err := b.settle(t, true); err != nil {
		t.Fatal(err)
	}
	was := b.book.objects["shelf:thing/one"].ID
	if found, err := b.run(Apply).Condemn(t.Context(), "of somebody else", "why not"); found || err != nil {
		t.Errorf("condemned what is not the job's: %v, %v", found, err)
	}
	if found, err := b.run(Apply).Condemn(t.Context(), was, "its inside is broken"); !found || err != nil {
		t.Fatalf("Condemn = %v, %v", found, err)
	}
	if err := b.settle(t, true); err != nil {
		t.Fatal(err)
	}
	if now := b.book.objects["shelf:thing/one"].ID; now == was || len(b.shelf.things) != 1 || b.shelf.creates != 2 {
		t.Errorf("%s → %s, %d things, %d creates", was, now, len(b.shelf.things), b.shelf.creates)
	}
}
