package azure

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// A life is what jobs of a family ask of the cloud from their first check to the
// proof that nothing is left: one mode and shape of them.
type life struct {
	name   string
	family job.ResourceType
	mode   job.Mode
	spec   string
	// before makes what is there before, with all rights.
	before func(w *liver)
	// live is the life itself; nil is whole.
	live func(w *liver) error
	// direct: the provisioner is inside the network; datastores and caches are always reached so.
	direct bool
	// readOnly: it is lived in an account that may only read.
	readOnly bool
}

// A liver lives lives: it carries the steps out as the engine does and keeps what
// they say, but fails no test.
type liver struct {
	*rig
	ctx context.Context

	saidMu sync.Mutex
	said   []string
	sent   map[string]bool // the calls that change something: method, a space, path
	since  int
}

// Do notes what is sent.
func (n noting) Do(req *http.Request) (*http.Response, error) {
	if service, op := action(req.Method, req.URL.Path); !reads(req.Method, service, op) && !strings.HasSuffix(req.URL.Path, "/oauth2/v2.0/token") {
		n.w.saidMu.Lock()
		n.w.sent[req.Method+" "+req.URL.Path] = true
		n.w.saidMu.Unlock()
	}
	return n.Transporter.Do(req)
}

// noting is a transport that tells a liver of its calls.
type noting struct {
	policy.Transporter
	w *liver
}

func (w *liver) say(text string) {
	w.saidMu.Lock()
	defer w.saidMu.Unlock()
	w.said = append(w.said, text)
}

// A sayer takes the log.
type sayer struct{ w *liver }

// Write takes a line.
func (s sayer) Write(line []byte) (int, error) {
	s.w.say(string(line))
	return len(line), nil
}

// born is a liver of a life, with what was there before.
func (l life) born(t testing.TB) *liver {
	t.Helper()
	g := newRig(t, sim.Options{TimeScale: 3 * quick, ConsistencyByID: -1, ConsistencyByList: -1}, l.family, cmpOr(l.mode), l.spec)
	g.p.reach = fromHere
	if l.direct || l.family == job.Datastore || l.family == job.Cache {
		g.p.reach = job.Reach{Mode: job.ReachDirect}
	}
	w := &liver{rig: g, ctx: g.Context(), sent: map[string]bool{}}
	load := g.clouds.opts.LoadConfig
	g.clouds.opts.LoadConfig = func(ctx context.Context, account, region string) (Config, error) {
		c, err := load(ctx, account, region)
		c.Transport = noting{c.Transport, w}
		return c, err
	}
	g.clouds.open = map[place]*Provider{}
	reach := g.p.reach
	if err := w.reopened(); err != nil {
		t.Fatal(err)
	}
	g.p.reach = reach
	g.events = func(e job.Event) { w.say(e.Message) }
	g.p.log = slog.New(slog.NewTextHandler(sayer{w}, nil))
	g.clouds.opts.Logger = g.p.log
	if l.before != nil {
		l.before(w)
		w.world.Step(10 * time.Minute)
	}
	if l.readOnly {
		w.clouds.opts.Accounts = &book{rows: []cloud.Account{{ID: w.job.CloudAccountID, OrgID: w.job.OrgID, Name: "watcher", Provider: job.Azure, Method: cloud.MethodAmbient, ReadOnly: true, Revision: 1}}}
		if err := w.reopened(); err != nil {
			t.Fatal(err)
		}
		w.p.reach = reach
	}
	w.since, w.sent = w.mark(), map[string]bool{}
	return w
}

func cmpOr(m job.Mode) job.Mode {
	if m == "" {
		return job.ModeCreate
	}
	return m
}

func (l life) lived(w *liver) error {
	if l.live == nil {
		return w.whole()
	}
	return l.live(w)
}

// used are the actions that the life has asked for by now, those on data in the
// job's own vault left out: the job gives itself a role there.
func (w *liver) used() []string {
	return slices.DeleteFunc(w.world.ActionsUsed(sim.BookFilter{Cloud: "azure", Caller: simazure.DefaultClientID, Since: w.since}),
		func(a string) bool { return strings.HasPrefix(a, vaultProvider+"/vaults/secrets/") })
}

// pass runs steps until each is done.
func (w *liver) pass(down bool, steps ...step) error {
	deadline := time.Now().Add(90 * time.Second)
	for _, f := range steps {
		for attempts := 0; ; {
			r := w.run(pipeline.Apply)
			r.Down, r.Step = down, "step"
			err := f(anything(w.ctx), r)
			for _, n := range slices.Concat(r.TakeNotes(), w.job.Config.InfraConfig.Warnings) {
				w.say(n)
			}
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
				return fmt.Errorf("still %w", err)
			}
			time.Sleep(r.Pace.Real(d.After))
		}
	}
	return nil
}

// checked is stepValidate.
func (w *liver) checked(ctx context.Context, r *pipeline.Run) error {
	checks, err := w.p.Check(ctx, r)
	if err != nil {
		return err
	}
	for _, c := range checks {
		switch c.Status {
		case cloud.CheckFails:
			return pipeline.Fatal("invalid", c.Name+": "+c.Field+": "+c.Message, c.Fix)
		case cloud.CheckUnchecked, cloud.CheckWarning:
			w.say(string(c.Status) + ": " + c.Name + ": " + c.Message)
		}
	}
	return nil
}

func (w *liver) made() error {
	return w.pass(false, append([]step{w.checked}, w.steps(false)[1:]...)...)
}

// looked is a plan, a verify and the report of a job, through a gate that lets
// nothing change.
func (w *liver) looked() error {
	ctx := pipeline.WithGate(w.ctx, pipeline.ReadOnly)
	for _, mode := range []pipeline.Mode{pipeline.Verify, pipeline.Plan} {
		w.another()
		r := w.run(mode)
		for _, f := range append([]step{w.checked}, w.steps(false)[1:]...) {
			if err := f(ctx, r); err != nil {
				return err
			}
		}
		for _, d := range r.Drift() {
			w.say(fmt.Sprintf("drift: %+v", d))
		}
		for _, n := range r.TakeNotes() {
			w.say(n)
		}
	}
	return w.reported(ctx)
}

func (w *liver) reported(ctx context.Context) error {
	r := w.run(pipeline.Apply)
	rows, err := w.p.Controls(ctx, r)
	for _, c := range rows {
		if c.Unchecked {
			w.say("not checked: " + c.ID + " " + c.Seen)
		}
	}
	for _, n := range r.TakeNotes() {
		w.say(n)
	}
	if err != nil || w.job.ResourceType != job.VM {
		return err
	}
	if err := w.p.RefreshVMs(ctx, w.job); err != nil {
		return err
	}
	_, err = w.p.TargetHealth(ctx, w.job)
	return err
}

// ended is a teardown, and its proof.
func (w *liver) ended() error {
	w.another()
	r := w.run(pipeline.Apply)
	r.Down = true
	err := w.p.Removable(w.ctx, r)
	for _, n := range r.TakeNotes() {
		w.say(n)
	}
	if err != nil {
		return err
	}
	if err := w.pass(true, w.steps(true)...); err != nil {
		return err
	}
	left, unlisted, err := w.p.Scan(w.ctx, w.job.ID)
	if had, _ := job.Unproved(w.run(pipeline.Apply).Objects(), unlisted); len(had) > 0 {
		return pipeline.Fatal("not-scanned", "not listed, and the job had it: "+job.NameUnlisted(had), "")
	}
	for _, u := range unlisted {
		w.say(u.Kind + " not checked: " + u.Why)
	}
	if err == nil && len(left) > 0 {
		return fmt.Errorf("left: %v", left)
	}
	return err
}

func (w *liver) whole() error {
	return inTurn(w.made, w.looked, w.paused, w.ended)
}

func inTurn(parts ...func() error) error {
	for _, f := range parts {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// paused stops the job's pools, and starts them again.
func (w *liver) paused() error {
	for _, ref := range w.job.Pools() {
		before, err := w.p.Pool(w.ctx, ref)
		if err != nil {
			return err
		}
		if before.System {
			continue
		}
		for _, want := range []job.PoolState{before.Stopped(ref.Kind, job.ActionPause), before} {
			err := w.pass(false, func(ctx context.Context, r *pipeline.Run) error {
				have, err := w.p.Pool(ctx, ref)
				if err != nil {
					return err
				}
				if have.Busy == "" && len(have.Differs(ref.Kind, want, true)) == 0 {
					return nil
				}
				if have.Busy == "" {
					if err := w.p.SetPool(ctx, r, ref, have, want); err != nil {
						return err
					}
				}
				return pipeline.Wait(5*time.Second, "pool %s: %+v", ref.Name, have)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// reattached takes the load balancer off, and makes it anew.
func (w *liver) reattached() error {
	return inTurn(func() error {
		return w.pass(true, w.p.RemoveRecord, w.p.RemoveListener, w.p.RemoveTargetGroup, w.p.RemoveLoadBalancer)
	}, func() error {
		return w.pass(false, w.p.EnsureLoadBalancer, w.p.EnsureTargetGroup, w.p.EnsureListener, w.p.EnsureRecord)
	})
}

// admitted lets somebody into the job's cluster, and out again.
func (w *liver) admitted() error {
	ref := w.clusterRef()
	ctx := anything(w.ctx)
	if _, err := w.p.KubeAccess(ctx, ref); err != nil {
		return err
	}
	if err := w.p.GrantAccess(ctx, ref, cloud.AccessGrant{Level: cloud.AccessView}); err != nil {
		return err
	}
	if err := w.p.RevokeAccess(ctx, ref, ""); err != nil {
		return err
	}
	ref.ResourceGroup = "" // as a person names it
	_, err := w.p.KubeAccess(ctx, ref)
	return err
}

// adopted is the life of a job that adopts, with what its family has of it.
func (w *liver) adopted() error {
	adopt := map[job.ResourceType]step{job.Network: w.p.AdoptNetwork, job.VM: w.p.AdoptVMs, job.Cluster: w.p.AdoptCluster, job.Datastore: w.p.AdoptDatastore, job.Cache: w.p.AdoptDatastore}[w.job.ResourceType]
	if err := w.pass(false, w.checked, adopt); err != nil {
		return err
	}
	ic := w.job.Config.InfraConfig
	for _, n := range slices.Concat(ic.Warnings, ic.Cluster.RiskNotes, ic.Datastore.RiskNotes) {
		w.say(n)
	}
	ctx := pipeline.WithGate(w.ctx, pipeline.ReadOnly)
	r := w.run(pipeline.Verify)
	if err := inTurn(func() error { return w.checked(ctx, r) }, func() error { return adopt(ctx, r) }, func() error { return w.reported(ctx) }); err != nil {
		return err
	}
	switch w.job.ResourceType {
	case job.Cluster:
		_, err := w.p.KubeAccess(ctx, job.ClusterRef{Region: w.job.Region, Name: ic.Cluster.Name, ResourceGroup: ic.ResourceGroup})
		return err
	case job.Datastore, job.Cache:
		r := w.run(pipeline.Apply)
		_, err := w.p.Recommend(ctx, r)
		for _, n := range r.TakeNotes() {
			w.say(n)
		}
		return err
	}
	return nil
}

// theirHub is a network to peer with.
func theirHub(w *liver) { w.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24") }

// theirNetwork is a network of another job, in which the life's own job then builds:
// VNET, PRIVATE and DATABASE of its spec are that network and its subnets.
func theirNetwork(family job.ResourceType, spec string) func(w *liver) {
	return func(w *liver) {
		w.next(job.Network, job.ModeCreate, `{"network":{"subnets":["public","private","database"]}}`)
		if err := w.pass(false, w.steps(false)[1:]...); err != nil {
			w.Fatal(err)
		}
		made := w.job.Config.InfraConfig
		w.next(family, job.ModeCreateInExisting, strings.NewReplacer("VNET", made.NetworkID, "PRIVATE", path.Base(made.PrivateSubnetIDs[0]), "DATABASE", path.Base(made.DatabaseSubnetIDs[0])).Replace(spec))
	}
}
