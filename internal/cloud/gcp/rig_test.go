package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simgcp "github.com/zopday/provisioner/internal/sim/gcp"
)

// quick is how many simulated seconds pass in a real one.
const quick = 400

const (
	testProject = "example-project"
	testRegion  = "us-central1"
	testToken   = "ya29.example"
)

// ambientAccount is the process's own identity.
var ambientAccount = cloud.Account{ID: "default", OrgID: "org_1", Provider: job.GCP, Method: cloud.MethodAmbient}

// A rig runs single steps of one job against a simulated Google Cloud, as the
// engine does: pass after pass, waiting when told so.
type rig struct {
	testing.TB
	world *sim.World
	cloud *simgcp.Cloud
	url   string
	p     *Provider
	job   *job.Job

	mu      sync.Mutex
	objects map[string]job.Object
	events  []job.Event
	memory  *pipeline.Memory
	runs    []*pipeline.Run // every pass
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

// event is the text of the last event of a type.
func (g *rig) event(typ string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := ""
	for _, e := range g.events {
		if e.Type == typ {
			text = e.Message
		}
	}
	return text
}

// newRig is a rig for a network job.
func newRig(t testing.TB, o sim.Options, mode job.Mode, spec string) *rig {
	t.Helper()
	return newRigFor(t, o, job.Network, mode, spec)
}

func newRigFor(t testing.TB, o sim.Options, family job.ResourceType, mode job.Mode, spec string) *rig {
	t.Helper()
	if o.TimeScale == 0 {
		o.TimeScale = quick
	}
	w := sim.New(o)
	front := simgcp.New(w, simgcp.Options{})
	s := httptest.NewServer(front)
	t.Cleanup(s.Close)
	g := &rig{TB: t, world: w, cloud: front, url: s.URL, objects: map[string]job.Object{}, memory: pipeline.NewMemory()}
	g.p = at(t, s.URL, Options{Pace: pipeline.Pace(o.TimeScale), LookupNS: nowhere})
	g.job = &job.Job{
		ID: job.NewID("job"), OrgID: "org_1", Kind: job.Provisioning, ResourceType: family, Provider: job.GCP, Mode: mode,
		Name: "shop-prod", CloudAccountID: "default", Region: testRegion, Labels: map[string]string{"team": "shop"},
		Config: job.Config{Spec: json.RawMessage(spec)},
	}
	if err := g.job.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

// at is a provider that speaks to one endpoint.
func at(t testing.TB, url string, o Options) *Provider {
	t.Helper()
	o.LoadConfig = Static(url, testProject, testToken)
	p, err := New(o).provider(t.Context(), ambientAccount, testRegion)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// nowhere is a DNS in which no zone is delegated.
func nowhere(_ context.Context, zone string) ([]string, error) {
	return nil, &net.DNSError{Err: "no such host", Name: zone, IsNotFound: true}
}

// anything lets every call pass, as the engine's gate does for whom holds the lease.
func anything(ctx context.Context) context.Context {
	return pipeline.WithGate(ctx, func(context.Context, pipeline.Call) error { return nil })
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
	deadline := time.Now().Add(60 * time.Second)
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
			pause(r, d)
		}
	}
	return nil
}

func pause(r *pipeline.Run, d pipeline.Decision) { time.Sleep(r.Pace.Real(d.After)) }

// check is what stepValidate asks, with everything that does not hold.
func (g *rig) check() []cloud.Check {
	g.Helper()
	all, err := g.p.Check(anything(g.Context()), g.run(pipeline.Apply))
	if err != nil {
		g.Fatalf("check: %v\n%s", err, g.books(10))
	}
	return slices.DeleteFunc(all, func(c cloud.Check) bool { return c.Status == cloud.CheckOK })
}

func (g *rig) ups() []step { return []step{g.p.EnsureNetwork, g.p.EnsurePeerings, g.p.EnsureDNSZones} }

func (g *rig) downs() []step {
	return []step{g.p.RemoveDNSZones, g.p.RemovePeerings, g.p.RemoveNetwork}
}

func (g *rig) up() {
	g.Helper()
	if err := g.try(false, g.ups()...); err != nil {
		g.Fatalf("up: %v\n%s", err, g.books(25))
	}
}

func (g *rig) down() {
	g.Helper()
	if err := g.try(true, g.downs()...); err != nil {
		g.Fatalf("down: %v\n%s", err, g.books(25))
	}
}

// drift is what a verify finds, through clients that cannot change anything.
func (g *rig) drift() []pipeline.Drift {
	g.Helper()
	g.another()
	r := g.run(pipeline.Verify)
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	for _, f := range g.ups() {
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
	seq := 0
	for _, e := range g.world.Books(sim.BookFilter{Limit: 100000}) {
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

// equal compares the whole project with how it was.
func (g *rig) equal(before sim.Snapshot) {
	g.Helper()
	if d := cmp.Diff(before, g.world.Snapshot()); d != "" {
		g.Errorf("the project is not as it was:\n%s", d)
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

func blockedBy(err error) *pipeline.BlockedError {
	var b *pipeline.BlockedError
	errors.As(err, &b)
	return b
}

// once runs the steps until one of them meets an error that is no wait.
func (g *rig) once(down bool) {
	g.Helper()
	ctx := anything(g.Context())
	steps := g.ups()
	if down {
		steps = g.downs()
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
			pause(r, d)
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

// invoke does something at the cloud behind the job's back, in a project.
func (g *rig) invoke(project, service, op string, params map[string]any) {
	g.Helper()
	if _, err := g.cloud.Invoke(service, op, project, "", params); err != nil {
		g.Fatalf("%s: %v", op, err)
	}
}

func (g *rig) exists(id string) bool {
	return len(g.world.Objects(sim.ObjectFilter{ID: id})) > 0
}
