package azure

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

var updatePolicies = flag.Bool("update-policies", false, "write the policies anew, from the lives of the families")

// A scope is a part of a test with an end of its own: what it has opened is closed
// then, and not only with the test.
type scope struct {
	testing.TB
	ends []func()
}

// Cleanup is called when the scope ends.
func (s *scope) Cleanup(f func()) { s.ends = append(s.ends, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.ends) {
		f()
	}
}

// atOnce are the lives that are lived at a time: they wait for the simulated cloud
// most of the time.
const atOnce = 16

// everyOf calls f for each, some at a time.
func everyOf[T any](all []T, f func(T)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, x := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(x)
		})
	}
	wg.Wait()
}

// livedWith is how a life ends for a caller that has these actions alone, nil for
// all there are; what it used, and what it said.
func (l life) livedWith(t testing.TB, actions []string) (used, said []string, err error) {
	s := &scope{TB: t}
	defer s.end()
	w := l.born(s)
	if actions != nil {
		w.world.SetGrants("azure", simazure.DefaultClientID, actions)
	}
	err = l.lived(w)
	return w.used(), w.said, err
}

// livesOf are the lives that a policy is for.
func livesOf(family job.ResourceType, readOnly bool) []life {
	all := lives
	if readOnly {
		all = append(slices.DeleteFunc(slices.Clone(lives), func(l life) bool { return !strings.HasPrefix(l.name, "adopted ") }), lookedAt...)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(l life) bool { return l.family != family })
	for i := range all {
		all[i].readOnly = readOnly
	}
	return all
}

// A policyCase is one policy with the lives that it is for, and which of them use
// each action.
type policyCase struct {
	family   job.ResourceType
	readOnly bool
	lives    []life

	mu   sync.Mutex
	uses map[string][]life
}

func (c *policyCase) String() string { return policyName(c.family, c.readOnly) }

func (c *policyCase) actions() []string { return slices.Sorted(maps.Keys(c.uses)) }

// without are all actions but one.
func (c *policyCase) without(action string) []string {
	return slices.DeleteFunc(c.actions(), func(a string) bool { return a == action })
}

// recorded lives all lives, and notes what each uses.
func recorded(t testing.TB) []*policyCase {
	t.Helper()
	var cases []*policyCase
	type one struct {
		c *policyCase
		l life
	}
	var all []one
	for _, family := range policyFamilies {
		for _, readOnly := range []bool{false, true} {
			c := &policyCase{family: family, readOnly: readOnly, lives: livesOf(family, readOnly), uses: map[string][]life{}}
			cases = append(cases, c)
			for _, l := range c.lives {
				all = append(all, one{c, l})
			}
		}
	}
	everyOf(all, func(o one) {
		used, _, err := o.l.livedWith(t, nil)
		if err != nil {
			t.Errorf("%s, with all rights: %v", o.l.name, err)
		}
		o.c.mu.Lock()
		defer o.c.mu.Unlock()
		for _, a := range used {
			o.c.uses[a] = append(o.c.uses[a], o.l)
		}
	})
	return cases
}

// TestPolicies holds the policies against the lives of their families: they are
// what those use, no more and no less.
func TestPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	cases := recorded(t)
	if t.Failed() {
		return
	}
	if *updatePolicies {
		write(t, cases)
		return
	}
	for _, c := range cases {
		p, ok := PolicyOf(c.family, c.readOnly)
		if !ok {
			t.Fatalf("%s has no policy", c)
		}
		if d := cmp.Diff(c.actions(), slices.Sorted(slices.Values(slices.Concat(p.Required, p.Checks)))); d != "" {
			t.Errorf("the policy of %s is not what its lives use; go test -run TestPolicies -update-policies writes it anew:\n%s", c, d)
		}
	}
}

// A trial is a life without one action.
type trial struct {
	c      *policyCase
	action string
	lives  []life
	checks bool // the policy says that it is only checked with
}

// needed tries lives without an action; it is needed if one of them does not end well.
func (r trial) needed(t testing.TB) (said []string, err error) {
	for _, l := range r.lives {
		_, s, err := l.livedWith(t, r.c.without(r.action))
		said = append(said, s...)
		if err != nil {
			return said, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return said, nil
}

// write finds out which of the actions are needed, and writes the policies.
func write(t *testing.T, cases []*policyCase) {
	t.Helper()
	var trials []trial
	for _, c := range cases {
		for _, a := range c.actions() {
			trials = append(trials, trial{c: c, action: a, lives: c.uses[a]})
		}
	}
	files := map[string]*policyFile{}
	var mu sync.Mutex
	everyOf(trials, func(r trial) {
		said, err := r.needed(t)
		mu.Lock()
		defer mu.Unlock()
		f := files[r.c.String()]
		if f == nil {
			f = &policyFile{Required: []string{}, Checks: []string{}}
			files[r.c.String()] = f
		}
		if err != nil {
			f.Required = append(f.Required, r.action)
			if !names(err, r.action) {
				t.Logf("%s without %s ends with an error that does not name it: %v", r.c, r.action, err)
			}
			return
		}
		f.Checks = append(f.Checks, r.action)
		if !saysSo(said, r.action) {
			t.Logf("%s without %s ends well and does not say what was not checked", r.c, r.action)
		}
	})
	for name, f := range files {
		slices.Sort(f.Required)
		slices.Sort(f.Checks)
		text, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("policies/"+name+".json", append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d required, %d checks", name, len(f.Required), len(f.Checks))
	}
}

// names reports whether an error tells a person which action to grant.
func names(err error, action string) bool {
	f := fatal(err)
	d := pipeline.Judge(err, 0)
	return f != nil && strings.Contains(strings.ToLower(d.Problem.Message+" "+d.Problem.Hint), strings.ToLower(action))
}

// saysSo reports whether somebody was told that something was not checked for want
// of an action.
func saysSo(said []string, action string) bool {
	return slices.ContainsFunc(said, func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower("'"+action+"'")) })
}

// third picks a third of the trials, the same each time; all of them with E2E_ALL.
func third(trials []trial) []trial {
	if os.Getenv("E2E_ALL") != "" {
		return trials
	}
	return slices.DeleteFunc(trials, func(r trial) bool {
		h := fnv.New32a()
		fmt.Fprint(h, r.c, r.action)
		return h.Sum32()%3 != 0
	})
}
