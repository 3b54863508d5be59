package gcp

import (
	"bytes"
	"encoding/json"
	goflag "flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

var updatePolicies = goflag.Bool("update-policies", false, "write the policies anew, from the lives of the families")

// lived is what became of a life.
type lived struct {
	err    error
	unread []string
	used   map[string]int // permissions, and how many calls went before the first that needed them
}

func (g liveRig) outcome(err error, since int, caller string) lived {
	for _, r := range g.runs {
		*g.unread = append(*g.unread, unreadIn(r.TakeNotes())...)
	}
	o := lived{err: err, unread: *g.unread, used: map[string]int{}}
	for n, e := range g.world.Books(sim.BookFilter{Since: since, Caller: caller}) {
		for _, a := range e.Actions {
			if _, known := o.used[a]; !known {
				o.used[a] = n
			}
		}
	}
	return o
}

// run is the whole life of a caller with permissions; nil: with all.
func (l life) run(t testing.TB, grants []string) lived {
	g := l.begin(t)
	g.world.SetGrants("gcp", tester, grants)
	since := g.mark()
	return g.outcome(l.live(g), since, tester)
}

// asked is the check that a life begins with, of a caller with permissions.
func (l life) asked(t testing.TB, grants []string) error {
	g := l.begin(t)
	g.world.SetGrants("gcp", tester, append([]string{}, grants...))
	return g.asks(anything(g.Context()), g.run(pipeline.Apply))
}

// watched is a life that somebody else has made, looked at by a read-only account
// with permissions. It can be looked at again: nothing changes by it.
func (l life) watched(t testing.TB) func(grants []string) lived {
	g := l.begin(t)
	if err := l.made(g); err != nil {
		t.Fatalf("%s: %v", l.name, err)
	}
	email, key := g.keyOf(testProject, "watcher")
	made, err := json.Marshal(g.job.Config)
	if err != nil {
		t.Fatal(err)
	}
	return func(grants []string) lived {
		*g.unread = nil
		g.job.Config = job.Config{}
		if err := json.Unmarshal(made, &g.job.Config); err != nil {
			t.Fatal(err)
		}
		store := &accounts{}
		store.put(cloud.Account{ID: "ca_look", OrgID: "org_1", Method: cloud.MethodServiceAccountKey, ReadOnly: true, Secret: cloud.Secret{Key: key}})
		c := New(Options{Accounts: store, Pace: quick, LookupNS: nowhere, LoadConfig: g.apart})
		if g.p, err = g.open(c, "org_1", "ca_look"); err != nil {
			t.Fatal(err)
		}
		g.another()
		g.world.SetGrants("gcp", email, grants)
		since := g.mark()
		return g.outcome(l.looked(g), since, email)
	}
}

func livesOf(family job.ResourceType) []life {
	return slices.DeleteFunc(lives(), func(l life) bool { return l.family != family })
}

// everyPolicy runs a test for each policy.
func everyPolicy(t *testing.T, test func(t *testing.T, family job.ResourceType, readOnly bool)) {
	t.Helper()
	for _, family := range policyFamilies {
		for _, readOnly := range []bool{false, true} {
			name := string(family)
			if readOnly {
				name += " read-only"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, family, readOnly)
			})
		}
	}
}

// Each family's lives pass with exactly the permissions of its policy, and need them
// all: without any one of the required ones a life ends, and says which it is;
// without one of the others it goes on and says what was not checked.
func TestPolicies(t *testing.T) {
	t.Parallel()
	everyPolicy(t, func(t *testing.T, family job.ResourceType, readOnly bool) {
		if *updatePolicies {
			writePolicy(t, family, readOnly)
			return
		}
		p, ok := PolicyOf(family, readOnly)
		if !ok || len(p.Required) == 0 {
			t.Fatal("there is no policy: go test -run TestPolicies -update-policies")
		}
		all := slices.Concat(p.Required, p.Checks)
		b := newBench(t, family, readOnly, all)
		if d := cmp.Diff(slices.Sorted(slices.Values(all)), b.needs(t)); d != "" {
			t.Errorf("the lives need other permissions; write them anew with -update-policies:\n%s", d)
		}
		for _, a := range all {
			if !chosen(a) {
				continue
			}
			t.Run(a, func(t *testing.T) {
				required, outcomes := b.without(t, all, a)
				switch {
				case required != slices.Contains(p.Required, a):
					t.Errorf("required: %t; %s", required, b.told(outcomes))
				case required && !names(outcomes[len(outcomes)-1].err, a):
					t.Errorf("the error does not name it: %s", b.told(outcomes))
				case !required && !tells(outcomes):
					t.Error("nothing says what was not checked")
				}
			})
		}
	})
}

// tells reports whether anything says what was not checked, besides what it always
// says.
func tells(outcomes []lived) bool {
	return slices.ContainsFunc(outcomes, func(o lived) bool {
		return slices.ContainsFunc(o.unread, func(u string) bool { return !strings.HasPrefix(u, "MS-04") })
	})
}

// chosen picks a third of the permissions, the same each time; all of them with E2E_ALL.
func chosen(permission string) bool {
	if os.Getenv("E2E_ALL") != "" {
		return true
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(permission))
	return h.Sum32()%3 == 0
}

// names reports whether a job that ends with an error tells a person of a permission.
func names(err error, permission string) bool {
	p := pipeline.Judge(err, 1<<20).Problem
	return strings.Contains(err.Error()+" "+p.Message+" "+p.Hint, permission)
}

// A bench is the lives of a policy with what each of them needs.
type bench struct {
	readOnly bool
	lives    []life
	trials   []func(testing.TB) func([]string) lived
	used     []map[string]int
}

// newBench runs each life once with permissions; nil: with all.
func newBench(t testing.TB, family job.ResourceType, readOnly bool, grants []string) *bench {
	b := &bench{readOnly: readOnly, lives: livesOf(family)}
	for _, l := range b.lives {
		trial := func(t testing.TB) func([]string) lived {
			return func(grants []string) lived { return l.run(t, grants) }
		}
		if readOnly {
			same := l.watched(t)
			trial = func(testing.TB) func([]string) lived { return same }
		}
		o := trial(t)(grants)
		if o.err != nil || tells([]lived{o}) {
			t.Fatalf("%s: %v, unread %q", l.name, o.err, o.unread)
		}
		b.trials, b.used = append(b.trials, trial), append(b.used, o.used)
	}
	return b
}

// asksFor finds what a check asks for in a refusal.
var asksFor = regexp.MustCompile(`credentials lack, in project [a-z-]+: ([a-zA-Z., ]+?) Grant`)

// needs are the permissions that the lives use, and those that stepValidate insists
// on because a job may come to need them, such as after a crash.
func (b *bench) needs(t testing.TB) []string {
	all := map[string]bool{}
	for i, used := range b.used {
		for range 4 { // checks of several parts of a job
			if b.readOnly {
				break // its check only says that it is
			}
			err := b.lives[i].asked(t, slices.Collect(maps.Keys(used)))
			if err == nil {
				break
			}
			m := asksFor.FindStringSubmatch(err.Error())
			if m == nil {
				t.Errorf("%s, with what it uses: %v", b.lives[i].name, err)
				break
			}
			for p := range strings.SplitSeq(m[1], ", ") {
				used[p] = 0
			}
		}
		for a := range used {
			all[a] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// without runs the lives that use a permission without it, those first that come to
// it soonest, until one ends early: then it is required.
func (b *bench) without(t testing.TB, all []string, permission string) (required bool, outcomes []lived) {
	var order []int
	for i, used := range b.used {
		if _, uses := used[permission]; uses {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(x, y int) int { return b.used[x][permission] - b.used[y][permission] })
	grants := slices.DeleteFunc(slices.Clone(all), func(a string) bool { return a == permission })
	for _, i := range order {
		o := b.trials[i](t)(append([]string{}, grants...))
		outcomes = append(outcomes, o)
		if o.err != nil {
			return true, outcomes
		}
	}
	return false, outcomes
}

func (b *bench) told(outcomes []lived) string {
	var out []string
	for _, o := range outcomes {
		out = append(out, fmt.Sprintf("%v, unread %q", o.err, o.unread))
	}
	return strings.Join(out, "; ")
}

// writePolicy finds out what a family needs, and which of it only checks ask for.
func writePolicy(t *testing.T, family job.ResourceType, readOnly bool) {
	b := newBench(t, family, readOnly, nil)
	grants := b.needs(t)
	f := policyFile{Required: []string{}, Checks: []string{}}
	var mu sync.Mutex
	for _, a := range grants {
		t.Run(a, func(t *testing.T) {
			required, outcomes := b.without(t, grants, a)
			mu.Lock()
			defer mu.Unlock()
			if required {
				f.Required = append(f.Required, a)
				if err := outcomes[len(outcomes)-1].err; !names(err, a) {
					t.Errorf("not named: %v", err)
				}
				return
			}
			f.Checks = append(f.Checks, a)
			t.Logf("only a check: %s", b.told(outcomes))
		})
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = os.WriteFile(policyName(family, readOnly), append(text, '\n'), 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}

// A policy's document is a role that IAM takes.
func TestPolicyDocuments(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{}`)
	if got := len(Policies()); got != 2*len(policyFamilies) {
		t.Errorf("%d policies", got)
	}
	for i, p := range Policies() {
		var role customRole
		d := json.NewDecoder(bytes.NewReader(p.Document))
		d.DisallowUnknownFields()
		if err := d.Decode(&role); err != nil || len(role.Description) > 256 || len(role.Permissions) == 0 || len(role.Permissions) > 3000 || role.Stage != "GA" {
			t.Errorf("%s: %+v, %v", p.Family, role, err)
		}
		g.invoke(testProject, "iam", "projects.roles.create", map[string]any{"body": map[string]any{"roleId": fmt.Sprintf("policy_%d", i), "role": json.RawMessage(p.Document)}})
		if p.ReadOnly {
			for _, a := range slices.Concat(p.Required, p.Checks) {
				verb := a[strings.LastIndex(a, ".")+1:]
				if !slices.ContainsFunc([]string{"get", "list", "access"}, func(read string) bool { return strings.HasPrefix(verb, read) }) {
					t.Errorf("the read-only policy of %s has %s", p.Family, a)
				}
			}
		}
	}
	if _, ok := PolicyOf(job.Component, false); ok {
		t.Error("components have a policy")
	}
}
