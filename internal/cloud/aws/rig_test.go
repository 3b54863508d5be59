package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
)

// quick is how many simulated seconds pass in a real one.
const quick = 400

// A rig runs single steps of one job against a simulated AWS, as the engine
// does: pass after pass, waiting when told so.
type rig struct {
	testing.TB
	world *sim.World
	cloud *simaws.Cloud
	url   string
	p     *Provider
	job   *job.Job

	mu      sync.Mutex
	objects map[string]job.Object
	events  []job.Event
	memory  *pipeline.Memory
}

// Record is the ledger.
func (g *rig) Record(_ context.Context, d pipeline.Delta) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range d.Objects {
		g.objects[o.Kind+"/"+o.Key] = o
	}
	g.events = append(g.events, d.Events...)
	return nil
}

// history is what the job's history tells.
func (g *rig) history() []job.Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.events)
}

func newRig(t testing.TB, o sim.Options, mode job.Mode, spec string) *rig {
	t.Helper()
	return newRigOf(t, o, job.VM, mode, spec)
}

func newRigOf(t testing.TB, o sim.Options, resource job.ResourceType, mode job.Mode, spec string) *rig {
	t.Helper()
	return newRigAt(t, o, simaws.Options{}, resource, mode, spec)
}

func newRigAt(t testing.TB, o sim.Options, with simaws.Options, resource job.ResourceType, mode job.Mode, spec string) *rig {
	t.Helper()
	if o.TimeScale == 0 {
		o.TimeScale = quick
	}
	w := sim.New(o)
	front := simaws.New(w, with)
	s := httptest.NewServer(front)
	t.Cleanup(s.Close)
	g := &rig{TB: t, world: w, cloud: front, url: s.URL, objects: map[string]job.Object{}, memory: pipeline.NewMemory()}
	g.p = at(t, s.URL, Options{Pace: pipeline.Pace(o.TimeScale)})
	g.job = &job.Job{
		ID: job.NewID("job"), OrgID: "org_1", Kind: job.Provisioning, ResourceType: resource, Provider: job.AWS, Mode: mode,
		Name: "shop-prod", CloudAccountID: "default", Region: "us-east-1", Labels: map[string]string{"team": "shop"},
		Config: job.Config{Spec: json.RawMessage(spec)},
	}
	if err := g.job.Validate(); err != nil {
		t.Fatal(err)
	}
	g.job.Config.InfraConfig.Zones = []string{"us-east-1a", "us-east-1b"}
	g.job.Config.InfraConfig.Account = "123456789012"
	return g
}

func (g *rig) run(mode pipeline.Mode) *pipeline.Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return pipeline.NewRun(g.job, mode, slices.Collect(maps.Values(g.objects)), g, g.memory, time.Now, pipeline.Pace(g.world.Options().TimeScale))
}

// another is another worker taking the job over: it remembers nothing.
func (g *rig) another() { g.memory = pipeline.NewMemory() }

type step func(context.Context, *pipeline.Run) error

// try runs steps up or down until each is done, and returns the verdict of one
// that stops.
func (g *rig) try(down bool, steps ...step) error {
	g.Helper()
	ctx := anything(g.Context())
	deadline := time.Now().Add(40 * time.Second)
	for _, f := range steps {
		for attempts := 0; ; {
			r := g.run(pipeline.Apply)
			r.Down, r.Step = down, "step"
			err := f(ctx, r)
			d := pipeline.Judge(err, attempts)
			if d.Action == pipeline.Advance {
				break
			}
			if d.Action == pipeline.Stop {
				return err
			}
			if d.Action == pipeline.Again {
				attempts++
			}
			if time.Now().After(deadline) {
				g.Fatalf("still %v\n%s", err, g.books(25))
			}
			time.Sleep(r.Pace.Real(d.After))
		}
	}
	return nil
}

func (g *rig) up() {
	g.Helper()
	if err := g.try(false, g.p.EnsureNetwork, g.p.EnsureIdentity); err != nil {
		g.Fatalf("up: %v\n%s", err, g.books(25))
	}
}

func (g *rig) down() {
	g.Helper()
	if err := g.try(true, g.p.RemoveIdentity, g.p.RemoveNetwork); err != nil {
		g.Fatalf("down: %v\n%s", err, g.books(25))
	}
}

// drift is what a verify finds, through clients that cannot change anything.
func (g *rig) drift() []pipeline.Drift {
	g.Helper()
	g.another()
	r := g.run(pipeline.Verify)
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	for _, f := range []step{g.p.EnsureNetwork, g.p.EnsureIdentity} {
		if err := f(ctx, r); err != nil {
			g.Fatalf("verify: %v", err)
		}
	}
	return r.Drift()
}

func (g *rig) books(n int) string {
	var b strings.Builder
	for _, e := range g.world.Books(sim.BookFilter{Limit: n}) {
		fmt.Fprintf(&b, "%d %s %s %d %s %v\n", e.Seq, e.Service, e.Operation, e.Status, e.Code, e.Resources)
	}
	return b.String()
}

// calls counts what was asked of the cloud since an entry of its books.
func (g *rig) calls(since int) (reads, changes map[string]int) {
	reads, changes = map[string]int{}, map[string]int{}
	for _, e := range g.world.Books(sim.BookFilter{Since: since, Limit: 100000}) {
		if e.Mutating {
			changes[e.Operation]++
		} else {
			reads[e.Operation]++
		}
	}
	return reads, changes
}

func (g *rig) mark() int {
	all := g.world.Books(sim.BookFilter{Limit: 100000})
	seq := 0
	for _, e := range all {
		seq = max(seq, e.Seq)
	}
	return seq
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// equal compares the whole account with how it was.
func (g *rig) equal(before sim.Snapshot) {
	g.Helper()
	if d := cmp.Diff(before, g.world.Snapshot()); d != "" {
		g.Errorf("the account is not as it was:\n%s", d)
	}
	if left := g.world.Residue(g.job.ID); len(left) > 0 {
		g.Errorf("left over: %v", left)
	}
}

// ours is every object at the cloud that carries the job's mark, by ID.
func (g *rig) ours() []string {
	var ids []string
	for _, o := range g.world.Residue(g.job.ID) {
		ids = append(ids, o.ID)
	}
	slices.Sort(ids)
	return ids
}

func (g *rig) fault(f sim.Fault) {
	g.Helper()
	if _, err := g.world.AddFault(f); err != nil {
		g.Fatal(err)
	}
}

func fatal(err error) *pipeline.FatalError {
	var f *pipeline.FatalError
	errors.As(err, &f)
	return f
}

// once runs the steps until one of them meets an error that is no wait.
func (g *rig) once(down bool) {
	g.Helper()
	ctx := anything(g.Context())
	steps := []step{g.p.EnsureNetwork, g.p.EnsureIdentity}
	if down {
		steps = []step{g.p.RemoveIdentity, g.p.RemoveNetwork}
	}
	for _, f := range steps {
		for range 500 {
			r := g.run(pipeline.Apply)
			r.Down, r.Step = down, "step"
			err := f(ctx, r)
			if err == nil {
				break
			}
			d := pipeline.Judge(err, 0)
			if d.Action != pipeline.Park {
				return
			}
			time.Sleep(r.Pace.Real(d.After))
		}
	}
}

// interrupted runs the steps with one worker until something goes wrong, and
// then with another to the end.
func (g *rig) interrupted(down bool) {
	g.Helper()
	g.once(down)
	g.another()
	if down {
		g.down()
	} else {
		g.up()
	}
}

// hit proves that every fault took place: a case without its fault tests nothing.
func (g *rig) hit() {
	g.Helper()
	for _, f := range g.world.Faults() {
		if f.Hits == 0 {
			g.Errorf("the fault never happened: %+v", f)
		}
	}
}

// invoke does something at the cloud behind the job's back, and returns the ID
// of what it made.
func (g *rig) invoke(service, op string, params map[string]any) string {
	g.Helper()
	out, err := g.cloud.Invoke(service, op, "123456789012", "us-east-1", params)
	if err != nil {
		g.Fatalf("%s: %v", op, err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		g.Fatal(err)
	}
	return idRE.FindString(string(text))
}

var idRE = regexp.MustCompile(`(sg|eni|vpc|subnet|rtb|igw|nat|i|vpce|pcx|eipalloc)-[0-9a-f]{8,17}`)

func (g *rig) exists(id string) bool {
	return len(g.world.Objects(sim.ObjectFilter{ID: id})) > 0
}

func blockedBy(err error) *pipeline.BlockedError {
	var b *pipeline.BlockedError
	errors.As(err, &b)
	return b
}

func pause(r *pipeline.Run, d pipeline.Decision) { time.Sleep(r.Pace.Real(d.After)) }
