package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// shop is a service with one kind of object, the order: it is made pending and becomes done after a minute.
type shop struct {
	w  *World
	st shopState
}

type shopState struct{ Orders map[string]*order }

type order struct {
	ID, State string
	Created   time.Time
	Tags      map[string]string
}

func (s *shop) Cloud() string { return "test" }
func (s *shop) Name() string  { return "shop" }
func (s *shop) State() any    { return &s.st }
func (s *shop) Reset()        { s.st = shopState{Orders: map[string]*order{}} }
func (s *shop) Event(kind, key string) {
	if o := s.st.Orders[key]; o != nil && o.State == "pending" {
		o.State = kind
	}
}

func (s *shop) Objects() []Object {
	var out []Object
	for _, o := range s.st.Orders {
		out = append(out, Object{Kind: "order", ID: o.ID, State: o.State, Tags: o.Tags, Data: o, Gone: o.State == "deleted"})
	}
	slices.SortFunc(out, func(a, b Object) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (s *shop) SetState(id, state, _, _ string) error {
	if state == "" {
		state = "failed"
	}
	s.st.Orders[id].State = state
	return nil
}

func (s *shop) Remove(id string) error { delete(s.st.Orders, id); return nil }

func newShop(opt Options) *shop {
	s := &shop{w: New(opt)}
	s.w.Clock.Stop()
	s.w.Register(s)
	return s
}

// order places an order; it answers the error code of a refusal, or "cut".
func (s *shop) order(t *testing.T, id string) string {
	c := &Call{Cloud: "test", Service: "shop", Operation: "CreateOrder", Mutating: true, Params: "id=" + id}
	code := ""
	cut := s.w.Serve(t.Context(), c, func() Reply {
		s.st.Orders[id] = &order{ID: id, State: "pending", Created: s.w.Now(), Tags: map[string]string{"owner": "me"}}
		c.Make(id)
		s.w.After(time.Minute, "test", "shop", "done", id)
		return Reply{Status: 200}
	}, func(f *Fault) Reply {
		code = string(f.Kind)
		return Reply{Status: 500, Code: code}
	})
	if cut {
		return "cut"
	}
	return code
}

func (s *shop) state(id string) string {
	s.w.Lock()
	defer s.w.Unlock()
	if o := s.st.Orders[id]; o != nil {
		return o.State
	}
	return ""
}

func TestEvents(t *testing.T) {
	s := newShop(Options{})
	s.order(t, "a")
	s.w.Step(30 * time.Second)
	s.order(t, "b")
	s.w.Step(31 * time.Second)
	if a, b := s.state("a"), s.state("b"); a != "done" || b != "pending" {
		t.Errorf("after 61 s: a %s, b %s", a, b)
	}
	if at, ok := s.w.NextEvent(); !ok || at.Sub(s.w.Clock.Now()).Round(time.Second) != 29*time.Second {
		t.Errorf("next event in %v", at.Sub(s.w.Clock.Now()))
	}
}

func TestFaultCounting(t *testing.T) {
	for _, tc := range []struct {
		fault Fault
		want  string // one letter a call: e refused, . not
	}{
		{Fault{}, "e....."},
		{Fault{Count: 2}, "ee...."},
		{Fault{After: 2}, "..e..."},
		{Fault{After: 1, Count: -1}, ".eeeee"},
		{Fault{Match: "id=3"}, "...e.."},
		{Fault{Operation: "Delete*"}, "......"},
		{Fault{Operation: "*order"}, "e....."},
		{Fault{Mutating: new(bool)}, "......"},
		{Fault{Seconds: 3}, "eeee.."}, // calls are a second apart
	} {
		t.Run(fmt.Sprintf("%+v", tc.want), func(t *testing.T) {
			s := newShop(Options{})
			tc.fault.Kind = FaultError
			if _, err := s.w.AddFault(tc.fault); err != nil {
				t.Fatal(err)
			}
			got := ""
			for i := range 6 {
				if s.order(t, fmt.Sprint(i)) == "error" {
					got += "e"
				} else {
					got += "."
				}
				s.w.Step(time.Second)
			}
			if got != tc.want {
				t.Errorf("hits %s, want %s", got, tc.want)
			}
		})
	}
}

func TestPercentFollowsSeed(t *testing.T) {
	run := func(seed uint64) (hits string) {
		s := newShop(Options{Seed: seed})
		if _, err := s.w.AddFault(Fault{Kind: FaultThrottle, Percent: 80, Count: -1}); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			if s.order(t, fmt.Sprint(i)) == "" {
				hits += "."
			} else {
				hits += "t"
			}
		}
		return hits
	}
	one, again, other := run(1), run(1), run(2)
	if one != again || one == other {
		t.Error("hits do not follow the seed")
	}
	if n := strings.Count(one, "t"); n < 140 || n > 180 {
		t.Errorf("%d of 200 hit, want about 160", n)
	}
}

func TestSwallowRestores(t *testing.T) {
	s := newShop(Options{})
	s.order(t, "a")
	if _, err := s.w.AddFault(Fault{Kind: FaultSwallow}); err != nil {
		t.Fatal(err)
	}
	before := s.w.Snapshot()
	if code := s.order(t, "b"); code != "" {
		t.Errorf("a swallowed call answered %q", code)
	}
	if d := cmp.Diff(before, s.w.Snapshot()); d != "" {
		t.Errorf("it has changed something:\n%s", d)
	}
	s.w.Step(time.Hour)
	if s.state("a") != "done" {
		t.Error("the event of the call before it is lost")
	}
	if e := s.w.Books(BookFilter{Fault: "swallow"}); len(e) != 1 || e[0].Done || e[0].Status != 200 {
		t.Errorf("books: %+v", e)
	}
}

func TestOpFailedAndTransition(t *testing.T) {
	s := newShop(Options{})
	for _, f := range []Fault{{Kind: FaultOpFailed, Match: "id=a", Seconds: 10}, {Kind: FaultTransition, Operation: "CreateOrder", Match: "id=b", State: "lost"}} {
		if _, err := s.w.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	s.order(t, "a")
	s.order(t, "b")
	if a, b := s.state("a"), s.state("b"); a != "pending" || b != "lost" {
		t.Errorf("at once: a %s, b %s", a, b)
	}
	s.w.Step(10 * time.Second)
	if a := s.state("a"); a != "failed" {
		t.Errorf("after 10 s: a %s", a)
	}
	if _, err := s.w.AddFault(Fault{Kind: FaultTransition, Match: "me", State: "deleted"}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.w.Residue("me")); n != 0 {
		t.Errorf("%d orders left after all were deleted", n)
	}
}

func TestHookPhases(t *testing.T) {
	s := newShop(Options{})
	var seen []string
	s.w.OnCall(func(p Phase, c *Call) error {
		seen = append(seen, fmt.Sprintln(p, c.Operation, c.Mutating, c.Resources))
		if c.Params == "id=b" {
			return errors.New("crash")
		}
		return nil
	})
	if s.order(t, "a") != "" || s.order(t, "b") != "cut" {
		t.Error("the hook's error did not cut the call")
	}
	want := []string{"0 CreateOrder true []\n", "1 CreateOrder true [a]\n", "0 CreateOrder true []\n"}
	if d := cmp.Diff(want, seen); d != "" {
		t.Error(d)
	}
	if s.state("b") != "" {
		t.Error("a call that was cut before has happened")
	}
}

func TestClock(t *testing.T) {
	c := NewClock(1000)
	start := c.Now()
	time.Sleep(20 * time.Millisecond)
	if d := c.Now().Sub(start); d < 15*time.Second {
		t.Errorf("at a thousandfold pace 20 ms were %v", d)
	}
	c.Stop()
	at := c.Now()
	c.Step(time.Hour)
	c.Step(-time.Hour)
	if d := c.Now().Sub(at); d != time.Hour {
		t.Errorf("a step of an hour moved a stopped clock by %v", d)
	}
	c.Start()
	if c.Now().Before(at.Add(time.Hour)) {
		t.Error("time ran backwards")
	}
}

func TestDelayEndsWithCaller(t *testing.T) {
	s := newShop(Options{})
	if _, err := s.w.AddFault(Fault{Kind: FaultHang}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	c := &Call{Cloud: "test", Service: "shop", Operation: "CreateOrder", Mutating: true}
	if !s.w.Serve(ctx, c, func() Reply { t.Error("carried out"); return Reply{} }, func(*Fault) Reply { return Reply{} }) {
		t.Error("a hanging call was answered")
	}
}

// Every fault in the manual must be accepted.
func TestManualExamples(t *testing.T) {
	file, err := os.Open("../../docs/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	kinds := map[FaultKind]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), `{"kind"`) {
			continue
		}
		dec := json.NewDecoder(strings.NewReader(lines.Text()))
		dec.DisallowUnknownFields()
		var f Fault
		if err := dec.Decode(&f); err != nil {
			t.Errorf("%s: %v", lines.Text(), err)
			continue
		}
		if err := f.validate(); err != nil {
			t.Errorf("%s: %v", lines.Text(), err)
		}
		kinds[f.Kind]++
	}
	for _, k := range faultKinds {
		if kinds[k] == 0 {
			t.Errorf("the manual has no example of %s", k)
		}
	}
}

// A world that was killed goes on where it stood: objects, events to come, faults, books and random state.
func TestPersist(t *testing.T) {
	dir := t.TempDir()
	s := newShop(Options{Seed: 5})
	stop, err := s.w.Persist(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s.order(t, "a")
	if _, err := s.w.AddFault(Fault{Kind: FaultError, After: 1}); err != nil {
		t.Fatal(err)
	}
	s.w.Hex("x-", 8)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	next := s.w.Hex("x-", 8)

	again := newShop(Options{Seed: 5})
	stop, err = again.w.Persist(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	if got := again.w.Hex("x-", 8); got != next {
		t.Errorf("the next identifier is %s, want %s", got, next)
	}
	if d := cmp.Diff(s.w.Snapshot(), again.w.Snapshot()); d != "" {
		t.Errorf("objects differ:\n%s", d)
	}
	if n := len(again.w.Books(BookFilter{})); n != 1 {
		t.Errorf("%d entries in the books", n)
	}
	if got := again.order(t, "b") + again.order(t, "c"); got != "error" {
		t.Errorf("the fault has been forgotten: %q", got)
	}
	again.w.Step(time.Minute)
	if got := again.state("a"); got != "done" {
		t.Errorf("what was to happen did not: a is %s", got)
	}
}

// Many callers at once, while the control side looks on and changes things; run it with -race.
func TestConcurrentCallers(t *testing.T) {
	s := newShop(Options{})
	if _, err := s.w.AddFault(Fault{Kind: FaultError, Percent: 10, Count: -1}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.w.AddFault(Fault{Kind: FaultSwallow, Percent: 5, Count: -1}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				s.order(t, fmt.Sprintf("%d-%d", g, i))
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			s.w.Step(time.Second)
			s.w.Residue("me")
			s.w.Snapshot()
			s.w.Faults()
			s.w.Books(BookFilter{Fault: "any"})
			s.w.SetOptions(func(o *Options) { o.PageSize++ })
		}
	})
	wg.Wait()
	swallowed := len(s.w.Books(BookFilter{Fault: "swallow"}))
	refused := len(s.w.Books(BookFilter{Status: 500}))
	if n := len(s.w.Objects(ObjectFilter{})); n != 400-swallowed-refused || swallowed == 0 || refused == 0 {
		t.Errorf("%d orders of 400, %d swallowed, %d refused", n, swallowed, refused)
	}
}

func TestGlob(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"Create*", "CreateVpc", true}, {"*vpc", "CreateVpc", true}, {"Create", "CreateVpc", false}, {"*", "", true}, {"a*b*c", "aXbYc", true},
		{"a*b*c", "aXc", false}, {"ec2", "EC2", true}, {"ab*ba", "aba", false},
	} {
		if got := globMatch(tc.pattern, tc.s); got != tc.want {
			t.Errorf("globMatch(%q, %q) = %v", tc.pattern, tc.s, got)
		}
	}
}
