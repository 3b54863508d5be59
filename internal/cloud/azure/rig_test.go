package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"regexp"
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
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// quick is how many simulated seconds pass in a real one.
const quick = 400

// certificate serves every simulation of the package: making one takes a while.
var certificate = sync.OnceValues(func() (*simazure.Certificate, error) { return simazure.NewCertificate() })

// A rig runs single steps of one job against a simulated Azure, as the engine
// does: pass after pass, waiting when told so.
type rig struct {
	testing.TB
	world *sim.World
	cloud *simazure.Cloud
	// clouds is what opened p.
	clouds *Clouds
	p      *Provider
	job    *job.Job

	lookupNS func(context.Context, string) ([]*net.NS, error)

	mu      sync.Mutex
	objects map[string]job.Object
	memory  *pipeline.Memory
	events  func(job.Event) // nil: nobody is told
}

// Record is the ledger.
func (g *rig) Record(_ context.Context, d pipeline.Delta) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range d.Objects {
		g.objects[o.Kind+"/"+o.Key] = o
	}
	for _, e := range d.Events {
		if g.events != nil {
			g.events(e)
		}
	}
	return nil
}

func newRig(t testing.TB, o sim.Options, family job.ResourceType, mode job.Mode, spec string) *rig {
	t.Helper()
	return newRigWith(t, o, simazure.Options{}, family, mode, spec)
}

func newRigWith(t testing.TB, o sim.Options, azure simazure.Options, family job.ResourceType, mode job.Mode, spec string) *rig {
	t.Helper()
	if o.TimeScale == 0 {
		o.TimeScale = quick
	}
	cert, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	w := sim.New(o)
	front := simazure.New(w, azure)
	s := httptest.NewUnstartedServer(front)
	s.TLS = cert.Config
	s.StartTLS()
	t.Cleanup(s.Close)
	g := &rig{TB: t, world: w, cloud: front, objects: map[string]job.Object{}, memory: pipeline.NewMemory()}
	g.clouds = New(Options{
		Pace:       pipeline.Pace(o.TimeScale),
		LoadConfig: Static(s.URL, cert.CA, simazure.DefaultTenant, simazure.DefaultSubscription, simazure.DefaultClientID, simazure.DefaultClientSecret),
		LookupNS: func(ctx context.Context, domain string) ([]*net.NS, error) {
			if g.lookupNS == nil {
				return nil, &net.DNSError{Err: "no such host", Name: domain, IsNotFound: true}
			}
			return g.lookupNS(ctx, domain)
		},
	})
	g.job = &job.Job{
		ID: job.NewID("job"), OrgID: "org_1", Kind: job.Provisioning, ResourceType: family, Provider: job.Azure, Mode: mode,
		Name: "shop-prod", CloudAccountID: "default", Region: "eastus2", Labels: map[string]string{"team": "shop"},
		Config: job.Config{Spec: json.RawMessage(spec)},
	}
	if err := g.job.Validate(); err != nil {
		t.Fatal(err)
	}
	if g.p, err = g.clouds.provider(t.Context(), g.job.OrgID, g.job.CloudAccountID, g.job.Region); err != nil {
		t.Fatal(err)
	}
	return g
}

// network is a rig for a network job.
func network(t testing.TB, spec string) *rig {
	t.Helper()
	return newRig(t, sim.Options{}, job.Network, job.ModeCreate, spec)
}

func (g *rig) run(mode pipeline.Mode) *pipeline.Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return pipeline.NewRun(g.job, mode, slices.Collect(maps.Values(g.objects)), g, g.memory, time.Now, pipeline.Pace(g.world.Options().TimeScale))
}

// another is another worker taking the job over: it remembers nothing.
func (g *rig) another() { g.memory = pipeline.NewMemory() }

type step func(context.Context, *pipeline.Run) error

// anything is the gate of a worker that holds the job.
func anything(ctx context.Context) context.Context {
	return pipeline.WithGate(ctx, func(context.Context, pipeline.Call) error { return nil })
}

// check asks what stepValidate asks, and fails on what it finds.
func (g *rig) check(ctx context.Context, r *pipeline.Run) error {
	checks, err := g.p.Check(ctx, r)
	if err != nil {
		return err
	}
	for _, c := range checks {
		if c.Status == cloud.CheckFails {
			return pipeline.Fatal("invalid", c.Name+": "+c.Field+": "+c.Message, c.Fix)
		}
	}
	return nil
}

// steps are those of the job's family, in order.
func (g *rig) steps(down bool) []step {
	up, away := []step{g.check, g.p.EnsureNetwork, g.p.EnsurePeerings, g.p.EnsureDNSZones}, []step{g.p.RemoveDNSZones, g.p.RemovePeerings, g.p.RemoveNetwork}
	switch g.job.ResourceType {
	case job.VM:
		up, away = g.vmSteps()
	case job.Cluster:
		up, away = g.clusterSteps()
	case job.Datastore, job.Cache:
		up, away = g.datastoreSteps()
	}
	if down {
		return away
	}
	return up
}

// try runs steps until each is done, and returns the verdict of one that stops.
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
				g.Fatalf("still %v\n%s", err, g.books(40))
			}
			time.Sleep(r.Pace.Real(d.After))
		}
	}
	return nil
}

func (g *rig) up() {
	g.Helper()
	if err := g.try(false, g.steps(false)...); err != nil {
		g.Fatalf("up: %v\n%s", err, g.books(40))
	}
}

func (g *rig) down() {
	g.Helper()
	if err := g.try(true, g.steps(true)...); err != nil {
		g.Fatalf("down: %v\n%s", err, g.books(40))
	}
	if left, _, err := g.p.Scan(g.Context(), g.job.ID); err != nil || len(left) > 0 {
		g.Errorf("the scan finds %v, %v", left, err)
	}
}

// drift is what a verify finds, through clients that cannot change anything.
func (g *rig) drift() []pipeline.Drift {
	g.Helper()
	g.another()
	r := g.run(pipeline.Verify)
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	for _, f := range g.steps(false) {
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

// calls counts what was asked of the cloud since an entry of its books. Tokens
// are no change of anything.
func (g *rig) calls(since int) (reads, changes map[string]int) {
	reads, changes = map[string]int{}, map[string]int{}
	for _, e := range g.world.Books(sim.BookFilter{Since: since, Limit: 100000}) {
		if e.Mutating && !strings.HasSuffix(e.Operation, "_Health") { // a read by POST
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

// version is what changes about a network in which something was made and
// removed again, although it is as it was.
var version = regexp.MustCompile(`"(etag|changed)": "[^\n]*"`)

func versionless(s sim.Snapshot) map[string]string {
	out := map[string]string{}
	for k, v := range s {
		out[k] = version.ReplaceAllString(v, "")
	}
	return out
}

// equal compares the whole subscription with how it was.
func (g *rig) equal(before sim.Snapshot) {
	g.Helper()
	if d := cmp.Diff(versionless(before), versionless(g.world.Snapshot())); d != "" {
		g.Errorf("the subscription is not as it was:\n%s", d)
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

// once runs the steps until one of them meets an error that is no wait.
func (g *rig) once(down bool) {
	g.Helper()
	ctx := anything(g.Context())
	for _, f := range g.steps(down) {
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

func (g *rig) exists(id string) bool {
	return len(g.world.Objects(sim.ObjectFilter{ID: id, All: true})) > 0
}

func fatal(err error) *pipeline.FatalError {
	var f *pipeline.FatalError
	errors.As(err, &f)
	return f
}

// pause waits as the engine does after an error.
func pause(r *pipeline.Run, err error) { time.Sleep(r.Pace.Real(pipeline.Judge(err, 0).After)) }
