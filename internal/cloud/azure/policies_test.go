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

// updatePolicies writes the policies anew:
//
//	go test -run TestPolicies -update-policies ./internal/cloud/azure
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
const atOnce = 24

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
// all there are.
func (l life) livedWith(t testing.TB, actions []string) (*liver, error) {
	s := &scope{TB: t}
	defer s.end()
	w := l.born(s)
	if actions != nil {
		w.world.SetGrants("azure", simazure.DefaultClientID, actions)
	}
	return w, l.lived(w)
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
	policy   []string // both parts

	mu   sync.Mutex
	uses map[string][]life
	sent map[string]bool // the calls that change something
}

func (c *policyCase) String() string { return policyName(c.family, c.readOnly) }

func (c *policyCase) actions() []string { return slices.Sorted(maps.Keys(c.uses)) }

// without are all actions but one.
func (c *policyCase) without(action string) []string {
	return slices.DeleteFunc(c.actions(), func(a string) bool { return a == action })
}

// lived lives all lives with exactly their policies, or with all rights when the
// policies are to be written, and notes what each uses.
func lived(t testing.TB) []*policyCase {
	t.Helper()
	var cases []*policyCase
	type one struct {
		c *policyCase
		l life
	}
	var all []one
	for _, family := range policyFamilies {
		for _, readOnly := range []bool{false, true} {
			p, ok := PolicyOf(family, readOnly)
			if !ok {
				t.Fatalf("%s has no policy", family)
			}
			c := &policyCase{family: family, readOnly: readOnly, lives: livesOf(family, readOnly), uses: map[string][]life{}, sent: map[string]bool{}}
			if !*updatePolicies {
				c.policy = slices.Sorted(slices.Values(slices.Concat(p.Required, p.Checks)))
			}
			cases = append(cases, c)
			for _, l := range c.lives {
				all = append(all, one{c, l})
			}
		}
	}
	everyOf(all, func(o one) {
		w, err := o.l.livedWith(t, o.c.policy)
		if err != nil {
			t.Errorf("%s, with the policy of %s: %v", o.l.name, o.c, err)
		}
		o.c.mu.Lock()
		defer o.c.mu.Unlock()
		for _, a := range w.used() {
			o.c.uses[a] = append(o.c.uses[a], o.l)
		}
		maps.Copy(o.c.sent, w.sent)
	})
	return cases
}

// TestPolicies holds the policies against the lives of their families: with exactly
// them each life ends well; without one of what is required it does not, and the
// error says what to grant; without one of the checks it does, and somebody is told
// what was not checked.
func TestPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("it lives the lives of all families many times")
	}
	cases := lived(t)
	for _, c := range cases {
		if d := cmp.Diff(unpolled(c.policy), unpolled(c.actions())); d != "" && !*updatePolicies {
			t.Errorf("the policy of %s is not what its lives use; go test -run TestPolicies -update-policies writes it anew:\n%s", c, d)
		}
	}
	switch {
	case t.Failed():
	case *updatePolicies:
		write(t, cases)
	default:
		everyOf(third(trialsOf(cases)), func(r trial) { r.judge(t) })
		readOnlySends(t, cases)
	}
}

// A trial are the lives that use an action, without it.
type trial struct {
	c      *policyCase
	action string
}

func trialsOf(cases []*policyCase) []trial {
	var out []trial
	for _, c := range cases {
		for _, a := range c.actions() {
			out = append(out, trial{c, a})
		}
	}
	return out
}

// outcome is what is said in the lives, and how the first ends that does not end well.
func (r trial) outcome(t testing.TB) (said []string, err error) {
	for _, l := range r.c.uses[r.action] {
		w, err := l.livedWith(t, r.c.without(r.action))
		if said = append(said, w.said...); err != nil {
			return said, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return said, nil
}

// judge compares with what the policy says of the action.
func (r trial) judge(t *testing.T) {
	p, _ := PolicyOf(r.c.family, r.c.readOnly)
	said, err := r.outcome(t)
	switch checks := slices.Contains(p.Checks, r.action); {
	case checks && err != nil:
		t.Errorf("%s without %s, which is said to be a check: %v", r.c, r.action, err)
	case checks && !saysSo(said, r.action) && !polls(r.action):
		t.Errorf("%s without %s: nobody is told what was not checked", r.c, r.action)
	case !checks && err == nil:
		t.Errorf("%s without %s, which is said to be required, ends well", r.c, r.action)
	case !checks && !names(err, r.action):
		t.Errorf("%s without %s: the error does not say what to grant: %v", r.c, r.action, err)
	}
}

// write finds out which of the actions are needed, and writes the policies.
func write(t *testing.T, cases []*policyCase) {
	t.Helper()
	files := map[string]*policyFile{}
	for _, c := range cases {
		files[c.String()] = &policyFile{Required: []string{}, Checks: []string{}}
	}
	var mu sync.Mutex
	everyOf(trialsOf(cases), func(r trial) {
		said, err := r.outcome(t)
		mu.Lock()
		defer mu.Unlock()
		f := files[r.c.String()]
		if err != nil {
			f.Required = append(f.Required, r.action)
			if !names(err, r.action) {
				t.Errorf("%s without %s: the error does not say what to grant: %v", r.c, r.action, err)
			}
			return
		}
		f.Checks = append(f.Checks, r.action)
		if !saysSo(said, r.action) && !polls(r.action) {
			t.Errorf("%s without %s ends well, and nobody is told what was not checked", r.c, r.action)
		}
	})
	for _, c := range cases { // what was asked for another time stays
		f := files[c.String()]
		p, _ := PolicyOf(c.family, c.readOnly)
		for _, a := range p.Checks {
			if polls(a) && !slices.Contains(c.actions(), a) {
				f.Checks = append(f.Checks, a)
			}
		}
	}
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

// polls reports whether an action reads how far an operation is: whether one is
// asked for, and says why it failed, is a matter of moments.
func polls(action string) bool {
	return strings.Contains(strings.ToLower(action), "operation") && strings.HasSuffix(action, "/read")
}

func unpolled(actions []string) []string { return slices.DeleteFunc(slices.Clone(actions), polls) }

// names reports whether an error tells a person which action to grant.
func names(err error, action string) bool {
	d := pipeline.Judge(err, 0)
	return d.Action == pipeline.Stop && strings.Contains(strings.ToLower(d.Problem.Message+" "+d.Problem.Hint), strings.ToLower(action))
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
