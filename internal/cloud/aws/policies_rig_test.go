package aws

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/steps"
)

// ownKey and partnerKey are the access keys that the rigs' providers call with.
const (
	ownKey     = "AKIAIOSFODNN7EXAMPLE"
	partnerKey = "AKIAI44QH8DHBEXAMPLE"

	controllersKey = "test" // whom no policy is about
)

// A life is what jobs of a family do at the cloud, from end to end.
type life struct {
	family   job.ResourceType
	name     string
	readOnly bool
	// lead sets the stage, which no policy is about, and returns what is to be lived.
	lead func(t testing.TB) *lived
}

// lived is one life while it goes on.
type lived struct {
	g      vmRig
	stages []func() error
	said   []string // what was not checked, and why

	mu     sync.Mutex
	logged []string // what the provider's log says
}

// ending is how a life went.
type ending struct {
	used   []string       // actions
	at     map[string]int // how many calls went before the first one that needs an action
	calls  int
	said   []string // what people are told, beside the job or by the check
	logged []string // what the server's log says
	err    error
}

// run lives a life with the actions that are granted; nil: with every one.
func (l life) run(t testing.TB, granted []string) ending {
	t.Helper()
	v := l.lead(t)
	v.g.p.log = slog.New(v)
	w, since := v.g.world, v.g.mark()
	for _, key := range []string{ownKey, partnerKey} {
		w.SetGrants("aws", key, granted)
	}
	var out ending
	for _, stage := range v.stages {
		if out.err = stage(); out.err != nil {
			break
		}
	}
	out.at = map[string]int{}
	for _, e := range w.Books(sim.BookFilter{Cloud: "aws", Since: since}) {
		if e.Caller != ownKey && e.Caller != partnerKey {
			continue
		}
		for _, a := range e.Actions {
			if _, before := out.at[a]; !before {
				out.at[a] = out.calls
			}
		}
		out.calls++
	}
	out.used, out.said, out.logged = slices.Sorted(maps.Keys(out.at)), v.said, v.logged
	return out
}

// Enabled, Handle, WithAttrs and WithGroup make a life the handler of its provider's
// log.
func (v *lived) Enabled(context.Context, slog.Level) bool { return true }

func (v *lived) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.Value.String()
		return true
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	v.logged = append(v.logged, text)
	return nil
}

func (v *lived) WithAttrs([]slog.Attr) slog.Handler { return v }
func (v *lived) WithGroup(string) slog.Handler      { return v }

// then adds stages to a life.
func (v *lived) then(stages ...func() error) *lived {
	v.stages = append(v.stages, stages...)
	return v
}

// through is pass after pass until every step is done, as the engine does it.
func (v *lived) through(down bool, list ...step) func() error {
	return func() error {
		v.g.another()
		for _, f := range list {
			if err := v.until(down, f); err != nil {
				return err
			}
		}
		return nil
	}
}

func (v *lived) until(down bool, f step) error {
	ctx, last := anything(v.g.Context()), ""
	for attempts, passes := 0, 0; passes < 1500; passes++ {
		r := v.g.run(pipeline.Apply)
		r.Down, r.Step = down, "step"
		err := f(ctx, r)
		v.said = append(v.said, r.TakeNotes()...)
		switch d := pipeline.Judge(err, attempts); d.Action {
		case pipeline.Advance:
			return nil
		case pipeline.Stop:
			return fmt.Errorf("%w", judged{err, d.Problem})
		case pipeline.Again:
			attempts++
			fallthrough
		default:
			last = d.For
			v.g.world.Step(d.After)
		}
	}
	return fmt.Errorf("it never ends: %s", last)
}

// judged is an error with what a person reads of it.
type judged struct {
	error
	problem job.Error
}

func (j judged) Unwrap() error { return j.error }
func (j judged) Error() string { return j.problem.Message + " " + j.problem.Hint }

// phase is a phase of the job through the whole pipeline.
func (v *lived) phase(phase job.Phase, op job.VMOp) func() error {
	return func() error {
		v.g.another()
		v.g.job.Phase, v.g.job.VMOp = phase, op
		set := steps.Set{Cloud: v.g.p, Spaces: anySpace{}}
		list, dir, err := set.Current(v.g.job)
		if err != nil {
			return err
		}
		for _, s := range list {
			f := s.Ensure
			if dir == job.Down {
				f = s.Remove
			}
			if f == nil {
				continue
			}
			if err := v.until(dir == job.Down, step(f)); err != nil {
				return err
			}
		}
		return v.reported(v.g.infra().Report)
	}
}

// reported notes the controls that could not be read.
func (v *lived) reported(rows []job.Control) error {
	for _, row := range rows {
		if row.Unchecked {
			v.said = append(v.said, fmt.Sprintf("control %s not checked: %s", row.ID, row.Seen))
		}
	}
	return nil
}

// checked asks what a job's check asks, and fails as it does.
func (v *lived) checked(ctx context.Context, r *pipeline.Run) error {
	if _, err := v.g.p.Caller(ctx); err != nil {
		return err
	}
	all, err := v.g.p.Check(ctx, r)
	for _, c := range all {
		switch c.Status {
		case cloud.CheckFails:
			return pipeline.Fatal("invalid", c.Message, c.Fix)
		case cloud.CheckUnchecked:
			v.said = append(v.said, fmt.Sprintf("%s not checked: %s", c.Name, c.Message))
		}
	}
	return err
}

// controls reads the report.
func (v *lived) controls() error {
	rows, err := v.g.p.Controls(pipeline.WithGate(v.g.Context(), pipeline.ReadOnly), v.g.run(pipeline.Apply))
	if err != nil {
		return err
	}
	return v.reported(rows)
}

// seen compares everything with what was asked for: drift is no failure, what
// cannot be read is.
func (v *lived) seen(list ...step) func() error {
	return func() error {
		v.g.another()
		r, ctx := v.g.run(pipeline.Verify), pipeline.WithGate(v.g.Context(), pipeline.ReadOnly)
		for _, f := range list {
			if err := f(ctx, r); err != nil && !pipeline.IsWait(err) {
				return err
			}
		}
		v.said = append(v.said, r.TakeNotes()...)
		return nil
	}
}

// drifted is a verify through the whole pipeline.
func (v *lived) drifted() error {
	v.g.job.Phase, v.g.job.VMOp = job.PhaseProvision, ""
	var objects []job.Object
	for _, o := range v.g.objects {
		objects = append(objects, o)
	}
	set := steps.Set{Cloud: v.g.p, Spaces: anySpace{}}
	drift, err := set.Drift(v.g.Context(), v.g.job, objects, quick)
	for _, d := range drift {
		v.said = append(v.said, fmt.Sprintf("%s %s %s: %s", d.Kind, d.Key, d.Attr, d.Seen))
	}
	return err
}

// planned is a plan of the job as if it were new.
func (v *lived) planned() error {
	other, err := v.g.job.Clone()
	if err != nil {
		return err
	}
	other.ID, other.Name, other.Config.InfraConfig = job.NewID("job"), "another", job.InfraConfig{}
	plan, err := (steps.Set{Cloud: v.g.p, Spaces: anySpace{}}).Plan(v.g.Context(), other, quick)
	if err != nil {
		return err
	}
	for _, c := range plan.Checks {
		if c.Status == cloud.CheckUnchecked {
			v.said = append(v.said, fmt.Sprintf("%s not checked: %s", c.Name, c.Message))
		}
	}
	return nil
}

// scanned finds nothing that is left.
func (v *lived) scanned() error {
	left, unlisted, err := v.g.p.Scan(v.g.Context(), v.g.job.ID)
	if had, _ := job.Unproved(v.g.run(pipeline.Apply).Objects(), unlisted); len(had) > 0 {
		return pipeline.Fatal("not-scanned", "not listed, and the job had it: "+job.NameUnlisted(had), "")
	}
	for _, u := range unlisted {
		v.said = append(v.said, u.Kind+" not checked: "+u.Why)
	}
	if err == nil && len(left) > 0 {
		return fmt.Errorf("left over: %v", left)
	}
	return err
}

// account is what the verification of a cloud account asks.
func (v *lived) account(family job.ResourceType, readOnly bool) func() error {
	return func() error {
		who, err := v.g.p.CallerIdentity(v.g.Context())
		if err != nil {
			return err
		}
		if len(who.Regions) == 0 {
			v.said = append(v.said, "regions not checked: they cannot be listed")
		}
		report, err := v.g.p.Permissions(v.g.Context(), family, readOnly)
		if report.Unknown != "" {
			v.said = append(v.said, "permissions not checked: "+report.Unknown)
		}
		return err
	}
}

// sized brings a pool from what it is to what is wanted.
func (v *lived) sized(ref func() job.PoolRef, want func(have job.PoolState) job.PoolState) func() error {
	return func() error {
		var goal *job.PoolState
		return v.until(false, func(ctx context.Context, r *pipeline.Run) error {
			have, err := v.g.p.Pool(ctx, ref())
			if err != nil {
				return err
			}
			if goal == nil {
				w := want(have)
				goal = &w
			}
			if have.Busy != "" {
				return pipeline.Wait(30*time.Second, "the pool: %s", have.Busy)
			}
			if len(have.Differs(ref().Kind, *goal, false)) == 0 {
				return nil
			}
			if err := v.g.p.SetPool(ctx, r, ref(), have, *goal); err != nil {
				return err
			}
			return pipeline.Wait(30*time.Second, "the pool")
		})
	}
}
