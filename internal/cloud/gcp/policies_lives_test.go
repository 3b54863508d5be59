package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/steps"
)

// tester is who the rigs call as.
const tester = "user@example.com"

// A life is a job from its check to its teardown, with everything between that its
// family can do; or one that adopts, and only reads.
type life struct {
	name       string
	family     job.ResourceType
	mode       job.Mode
	spec       string
	furnish    func(g liveRig)        // what the spec takes for granted
	ups, downs func(g liveRig) []step // the steps that are the cloud's
	more       func(g liveRig) error  // what else changes something
	reads      func(g liveRig) error  // what else is read
	adopt      func(p *Provider) func(context.Context, *pipeline.Run) error
}

// A liveRig takes a job through a life and returns what ends it.
type liveRig struct {
	dataRig
	unread *[]string // what was not checked, and why
}

func (l life) begin(t testing.TB) liveRig {
	g := newRigFor(t, sim.Options{TimeScale: quick}, l.family, l.mode, l.spec)
	g.world.Clock.Stop()
	var err error
	if g.p, err = New(Options{Pace: quick, LookupNS: nowhere, LoadConfig: g.apart}).provider(t.Context(), ambientAccount, testRegion); err != nil {
		t.Fatal(err)
	}
	live := liveRig{dataRig{clusterRig{vmRig{g}}}, new([]string)}
	if l.furnish != nil {
		l.furnish(live)
	}
	return live
}

// apart is a configuration in which Memorystore for Redis has an endpoint of its own,
// as at Google: on one that all share, its operations are another service's.
func (g *rig) apart(ctx context.Context, account, region string) (Config, error) {
	cfg, err := Static(g.url, testProject, testToken)(ctx, account, region)
	cfg.Endpoints = map[string]string{serviceRedis: g.url + "/redis"}
	return cfg, err
}

// asks is stepValidate: a check that fails ends the life.
func (g liveRig) asks(ctx context.Context, r *pipeline.Run) error {
	if _, err := g.p.Caller(ctx); err != nil {
		return err
	}
	all, err := g.p.Check(ctx, r)
	for _, c := range all {
		switch c.Status {
		case cloud.CheckFails:
			return fmt.Errorf("check %s: %s %s", c.Name, c.Message, c.Fix)
		case cloud.CheckUnchecked:
			*g.unread = append(*g.unread, c.Name+": "+c.Message)
		}
	}
	return err
}

// looked is a verify and a report: a difference, or a control that is said not to
// hold, ends the life.
func (g liveRig) looked(ups []step) error {
	g.another()
	r := g.run(pipeline.Verify)
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	for _, f := range ups {
		if err := f(ctx, r); err != nil {
			return err
		}
	}
	if d := r.Drift(); len(d) > 0 {
		return fmt.Errorf("a verify says %+v", d)
	}
	rows, err := g.p.Controls(ctx, g.run(pipeline.Apply))
	for _, row := range rows {
		if row.Unchecked {
			*g.unread = append(*g.unread, row.ID+": "+row.Seen)
		} else if !row.Met {
			return fmt.Errorf("control %s: wanted %s, seen %s", row.ID, row.Wanted, row.Seen)
		}
	}
	return err
}

// gone is the teardown and its proof.
func (g liveRig) gone(downs []step) error {
	g.another()
	if err := g.try(true, downs...); err != nil {
		return err
	}
	left, unlisted, err := g.p.Scan(g.Context(), g.job.ID)
	if err != nil {
		return err
	}
	if had, _ := job.Unproved(g.run(pipeline.Apply).Objects(), unlisted); len(had) > 0 {
		return pipeline.Fatal("not-scanned", "not listed, and the job had it: "+job.NameUnlisted(had), "")
	}
	for _, u := range unlisted {
		*g.unread = append(*g.unread, u.Kind+" not checked: "+u.Why)
	}
	left = slices.DeleteFunc(left, func(l cloud.Leftover) bool { return steps.KeptOnPurpose(g.run(pipeline.Apply).Objects(), l) })
	if len(left) > 0 {
		return fmt.Errorf("left over: %+v", left)
	}
	return nil
}

// made is the first part of a life: what it makes is there.
func (l life) made(g liveRig) error {
	if l.adopt != nil {
		return nil
	}
	return g.try(false, append([]step{g.asks}, l.ups(g)...)...)
}

// looked at is the part of a life that changes nothing.
func (l life) looked(g liveRig) error {
	if l.adopt != nil {
		return g.adopts(l.adopt(g.p))
	}
	if err := g.asks(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.run(pipeline.Apply)); err != nil {
		return err
	}
	if err := g.looked(l.ups(g)); err != nil {
		return err
	}
	if l.reads != nil {
		return l.reads(g)
	}
	return nil
}

// live is the whole of it.
func (l life) live(g liveRig) error {
	if err := l.made(g); err != nil {
		return err
	}
	if err := l.looked(g); err != nil || l.adopt != nil {
		return err
	}
	if l.more != nil {
		if err := l.more(g); err != nil {
			return err
		}
	}
	return g.gone(l.downs(g))
}

// networkUps and the others are the steps that are the cloud's.
func networkUps(g liveRig) []step {
	return []step{g.p.EnsureNetwork, g.p.EnsurePeerings, g.p.EnsureDNSZones}
}

func networkDowns(g liveRig) []step {
	return []step{g.p.RemoveDNSZones, g.p.RemovePeerings, g.p.RemoveNetwork}
}

func clusterUps(g liveRig) []step {
	return []step{g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureCluster}
}

func clusterDowns(g liveRig) []step {
	return []step{g.p.RemoveCluster, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

func dataUps(g liveRig) []step {
	return []step{g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureSubnetGroup, g.p.EnsureDatastore}
}

func dataDowns(g liveRig) []step {
	return []step{g.p.RemoveDatastore, g.p.RemoveSubnetGroup, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

func vmUps(g liveRig) []step {
	all := []step{g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureLaunchTemplate, g.p.EnsureVMs, g.probed}
	return append(all, g.lbUps()...)
}

func (g liveRig) lbUps() []step {
	if lb, err := g.job.LoadBalancer(); err != nil || lb == nil {
		return nil
	}
	return []step{g.p.EnsureLoadBalancer, g.p.EnsureTargetGroup, g.p.EnsureListener, g.p.EnsureRecord}
}

func vmDowns(g liveRig) []step {
	return []step{g.p.RemoveRecord, g.p.RemoveListener, g.p.RemoveTargetGroup, g.p.RemoveLoadBalancer, g.p.RemoveVMs, g.p.RemoveLaunchTemplate, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

// probed waits for the bootstrap, as the step does that looks into VMs.
func (g liveRig) probed(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	if err := g.p.RefreshVMs(ctx, g.job); err != nil {
		return err
	}
	all, err := g.p.Probe(ctx, r, g.infra().VMs)
	if err != nil {
		return err
	}
	for id, probe := range all {
		switch probe.State {
		case cloud.ProbeReady:
		case cloud.ProbeFailed:
			return pipeline.Fatal("bootstrap", probe.Detail, "")
		case cloud.ProbeNone:
			*g.unread = append(*g.unread, "bootstrap of "+base(id)+": "+probe.Detail)
		default:
			if r.WaitedFor("the bootstrap") > time.Hour {
				return pipeline.Fatal("bootstrap-timeout", fmt.Sprintf("no answer from %s: %s", base(id), probe.Detail), "")
			}
			return pipeline.Wait(10*time.Second, "the bootstrap of %s (%s)", base(id), probe.Detail)
		}
	}
	return nil
}

// pausedAndBack empties a pool and fills it again.
func (g liveRig) pausedAndBack(ref job.PoolRef) error {
	was, err := g.p.Pool(g.Context(), ref)
	if err != nil {
		return err
	}
	off := job.PoolState{Min: was.Min, Max: was.Max}
	if was.Autoscaling != "" {
		off.Autoscaling = job.AutoscalingOff
	}
	if len(was.Instances) > 0 {
		off = job.PoolState{Instances: map[string]job.Power{}}
		for id := range was.Instances {
			off.Instances[id] = job.PowerStopped
		}
	}
	for _, want := range []job.PoolState{off, was} {
		err := g.try(false, func(ctx context.Context, r *pipeline.Run) error {
			have, err := g.p.Pool(ctx, ref)
			if err != nil {
				return err
			}
			if have.Busy != "" || have.Settling != "" {
				return pipeline.Wait(10*time.Second, "%s%s", have.Busy, have.Settling)
			}
			same := have.Desired == want.Desired && (want.Autoscaling == "" || strings.EqualFold(have.Autoscaling, want.Autoscaling))
			for id, power := range want.Instances {
				same = same && have.Instances[id] == power
			}
			if same {
				return nil
			}
			if err := g.p.SetPool(ctx, r, ref, have, want); err != nil {
				return err
			}
			return pipeline.Wait(10*time.Second, "the pool")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// adopts reads what an adopt job points at, and reads it again.
func (g liveRig) adopts(read func(context.Context, *pipeline.Run) error) error {
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	if err := g.asks(ctx, g.run(pipeline.Apply)); err != nil {
		return err
	}
	for _, mode := range []pipeline.Mode{pipeline.Apply, pipeline.Verify} {
		r := g.run(mode)
		if err := read(ctx, r); err != nil {
			return err
		}
		if d := r.Drift(); len(d) > 0 {
			return fmt.Errorf("a verify says %+v", d)
		}
	}
	*g.unread = append(*g.unread, unreadIn(g.infra().Warnings, g.infra().Datastore.RiskNotes, g.infra().Cluster.RiskNotes)...)
	return nil
}

// unreadIn are the notes that say that something was not read.
func unreadIn(lists ...[]string) []string {
	return slices.DeleteFunc(slices.Concat(lists...), func(n string) bool {
		return !strings.Contains(n, "not read") && !strings.Contains(n, "not checked") && !strings.Contains(n, "could not")
	})
}

// again repeats what waits, as the engine does.
func (g liveRig) again(do func(ctx context.Context) error) error {
	return g.try(false, func(ctx context.Context, _ *pipeline.Run) error { return do(ctx) })
}
