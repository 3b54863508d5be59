package lookup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

type thing struct{ id, owner, object string }

// shelf is a cloud with things on it, which counts how it is asked.
type shelf struct {
	things []thing
	lists  atomic.Int32
	ones   atomic.Int32
	gate   chan struct{} // a list waits for it, if there is one
	fail   atomic.Bool
}

var errNotThere = &pipeline.CloudError{Class: pipeline.NotFound}

func (s *shelf) kind() Kind[thing] {
	return Kind[thing]{
		Name: "thing",
		List: func(_ context.Context, owner string) ([]thing, error) {
			s.lists.Add(1)
			if s.gate != nil {
				<-s.gate
			}
			if s.fail.Load() {
				return nil, errors.New("no answer")
			}
			var out []thing
			for _, x := range s.things {
				if x.owner == owner {
					out = append(out, x)
				}
			}
			return out, nil
		},
		One: func(_ context.Context, id string) (thing, error) {
			s.ones.Add(1)
			for _, x := range s.things {
				if x.id == id {
					return x, nil
				}
			}
			return thing{}, errNotThere
		},
		ID:   func(x thing) string { return x.id },
		Mark: func(x thing) (string, string) { return x.owner, x.object },
	}
}

func run(id string, m *pipeline.Memory) *pipeline.Run {
	return pipeline.NewRun(&job.Job{ID: id}, pipeline.Verify, nil, nil, m, time.Now, 1)
}

func TestOneListForEverything(t *testing.T) {
	s := &shelf{things: []thing{{"1", "j", "a"}, {"2", "j", "b"}, {"3", "other", "a"}, {"4", "", ""}}}
	k := s.kind()
	ctx := With(t.Context(), run("j", pipeline.NewMemory()))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if x, err := k.Get(ctx, "2"); err != nil || x.object != "b" {
				t.Errorf("got %v, %v", x, err)
			}
			if found, err := k.Find(ctx, "a"); err != nil || len(found) != 1 || found[0].id != "1" {
				t.Errorf("got %v, %v", found, err)
			}
		})
	}
	wg.Wait()
	if s.lists.Load() != 1 || s.ones.Load() != 0 {
		t.Errorf("%d lists, %d single reads", s.lists.Load(), s.ones.Load())
	}
	// An object that lost its mark is not gone.
	if x, err := k.Get(ctx, "4"); err != nil || x.id != "4" {
		t.Errorf("got %v, %v", x, err)
	}
	if _, err := k.Get(ctx, "5"); !pipeline.Is(err, pipeline.NotFound) {
		t.Errorf("got %v", err)
	}
	if s.lists.Load() != 1 || s.ones.Load() != 2 {
		t.Errorf("%d lists, %d single reads", s.lists.Load(), s.ones.Load())
	}
}

func TestAViewIsOfOnePass(t *testing.T) {
	s := &shelf{things: []thing{{"1", "j", "a"}}}
	k, m := s.kind(), pipeline.NewMemory()
	for pass := range 3 {
		r := run("j", m)
		for range 2 { // two steps of one pass
			if _, err := k.Get(With(t.Context(), r), "1"); err != nil {
				t.Fatal(err)
			}
		}
		if got := int(s.lists.Load()); got != pass+1 {
			t.Fatalf("%d lists in %d passes", got, pass+1)
		}
	}
}

// What is read while something changes answers those who asked before, and
// nobody after.
func TestChanged(t *testing.T) {
	s := &shelf{things: []thing{{"1", "j", "a"}}, gate: make(chan struct{})}
	k := s.kind()
	ctx := With(t.Context(), run("j", pipeline.NewMemory()))
	before := make(chan error)
	go func() {
		_, err := k.Owned(ctx)
		before <- err
	}()
	for s.lists.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	Changed(ctx)
	after := make(chan []thing)
	go func() {
		all, _ := k.Owned(ctx)
		after <- all
	}()
	for s.lists.Load() == 1 {
		time.Sleep(time.Millisecond)
	}
	close(s.gate)
	if err := <-before; err != nil {
		t.Error(err)
	}
	if len(<-after) != 1 || s.lists.Load() != 2 {
		t.Errorf("%d lists", s.lists.Load())
	}
	_, _ = k.Owned(ctx)
	if s.lists.Load() != 2 {
		t.Error("the read after the change was not kept")
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	s := &shelf{things: []thing{{"1", "j", "a"}}}
	k := s.kind()
	ctx := With(t.Context(), run("j", pipeline.NewMemory()))
	s.fail.Store(true)
	if _, err := k.Get(ctx, "1"); err == nil {
		t.Fatal("an error was taken for an answer")
	}
	s.fail.Store(false)
	if _, err := k.Get(ctx, "1"); err != nil {
		t.Fatal(err)
	}
}

// One who gives up does not take the others' answer away.
func TestCancelledReader(t *testing.T) {
	release := make(chan struct{})
	var calls atomic.Int32
	read := func(ctx context.Context) (int, error) {
		if calls.Add(1) == 1 {
			close(release)
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return 7, nil
	}
	ctx := With(t.Context(), run("j", pipeline.NewMemory()))
	first, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = Once(first, "x", read)
	}()
	<-release
	answer := make(chan int)
	go func() {
		n, err := Once(ctx, "x", read)
		if err != nil {
			t.Error(err)
		}
		answer <- n
	}()
	cancel()
	if n := <-answer; n != 7 {
		t.Errorf("got %d", n)
	}
	<-done
}

func TestPages(t *testing.T) {
	token := func(s string) *string { return &s }
	pages := map[string]struct {
		items []int
		next  *string
	}{"": {nil, token("b")}, "b": {[]int{1, 2}, token("c")}, "c": {nil, token("d")}, "d": {[]int{3}, token("")}}
	got, err := Pages(t.Context(), func(_ context.Context, tok *string) ([]int, *string, error) {
		at := ""
		if tok != nil {
			at = *tok
		}
		return pages[at].items, pages[at].next, nil
	})
	if err != nil || len(got) != 3 {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = Pages(t.Context(), func(context.Context, *string) ([]int, *string, error) { return []int{1}, token("same"), nil })
	if err == nil || !strings.Contains(err.Error(), "same page token") {
		t.Errorf("got %v", err)
	}
	n := 0
	_, err = Pages(t.Context(), func(context.Context, *string) ([]int, *string, error) {
		n++
		return nil, token(strings.Repeat("x", n)), nil
	})
	if err == nil || n != maxPages {
		t.Errorf("got %v after %d pages", err, n)
	}
}

func TestWithoutARun(t *testing.T) {
	s := &shelf{things: []thing{{"1", "j", "a"}}}
	if _, err := s.kind().Get(t.Context(), "1"); err == nil {
		t.Error("a read without a run was answered")
	}
	if x, err := s.kind().Get(For(t.Context(), "j"), "1"); err != nil || x.id != "1" {
		t.Errorf("got %v, %v", x, err)
	}
}

// What is learnt on the way is noted once a pass for each step, in a view of its
// own too; outside of a run nobody is told.
func TestNotesOnTheWay(t *testing.T) {
	Note(t.Context(), "a", "nobody hears it")
	Note(For(t.Context(), "job_1"), "a", "nobody hears it")
	r := pipeline.NewRun(&job.Job{ID: "job_1"}, pipeline.Apply, nil, nil, nil, time.Now, 1)
	r.Step = "network"
	ctx := With(t.Context(), r)
	for _, ctx := range []context.Context{ctx, ctx, For(ctx, "job_2")} {
		Note(ctx, "a", "a not checked")
		Note(ctx, "b", "b not checked")
	}
	if got := r.TakeNotes(); !slices.Equal(got, []string{"a not checked", "b not checked"}) {
		t.Errorf("the first step has the notes %q", got)
	}
	r.Step = "identity"
	Note(ctx, "a", "a not checked")
	if got := r.TakeNotes(); !slices.Equal(got, []string{"a not checked"}) {
		t.Errorf("the second step has the notes %q", got)
	}
}
