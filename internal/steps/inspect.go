package steps

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// nobody is the recorder of a pass that changes nothing.
type nobody struct{}

func (nobody) Record(context.Context, pipeline.Delta) error { return nil }

// Drift compares a finished job with the cloud, step by step, through clients
// that refuse to change anything. An empty answer means: as asked.
func (s Set) Drift(ctx context.Context, j *job.Job, objects []job.Object, pace pipeline.Pace) ([]pipeline.Drift, error) {
	r, p, err := s.pass(j, pipeline.Verify, objects, pace)
	if err != nil {
		return nil, err
	}
	ctx = pipeline.WithGate(ctx, pipeline.ReadOnly)
	for _, step := range p {
		r.Step = step.Name
		err := step.Ensure(ctx, r)
		var wait *pipeline.WaitError
		var fatal *pipeline.FatalError
		switch {
		case err == nil:
		case errors.As(err, &wait):
			r.AddDrift(pipeline.Drift{Kind: "step", Key: step.Name, Attr: "state", Wanted: "done", Seen: "waiting for " + wait.For})
		case errors.As(err, &fatal):
			r.AddDrift(pipeline.Drift{Kind: "step", Key: step.Name, Attr: "state", Wanted: "done", Seen: fatal.Problem.Message})
		case pipeline.Is(err, pipeline.NotFound):
			// What the step looks into is gone, such as the cluster around the releases.
			r.AddDrift(pipeline.Drift{Kind: "step", Key: step.Name, Attr: "state", Wanted: "done", Seen: err.Error()})
		default:
			return nil, err
		}
	}
	return r.Drift(), nil
}

// A Plan is what a job would do.
type Plan struct {
	Steps    []PlannedStep      `json:"steps"`
	Objects  []pipeline.Planned `json:"objects"`
	Checks   []cloud.Check      `json:"checks"`
	Teardown []string           `json:"teardown"` // what a teardown will take, in its order

	Resolved job.InfraConfig `json:"-"` // what the checks found: zones, image, instance type
}

// A PlannedStep is one step of a plan.
type PlannedStep struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

// Plan runs the checks against the cloud now, and lists what the steps would
// make, without asking the cloud about any of it. The job is not changed.
func (s Set) Plan(ctx context.Context, j *job.Job, pace pipeline.Pace) (*Plan, error) {
	r, p, err := s.pass(j, pipeline.Plan, nil, pace)
	if err != nil {
		return nil, err
	}
	ctx = pipeline.WithGate(ctx, pipeline.ReadOnly)
	var plan Plan
	plan.Checks, err = s.checks(ctx, r)
	if err != nil {
		return nil, err
	}
	plan.Resolved = r.Job.Config.InfraConfig
	for _, step := range p {
		plan.Steps = append(plan.Steps, PlannedStep{step.Name, step.Title})
		if step.Name == Validate {
			continue
		}
		r.Step = step.Name
		if err := step.Ensure(ctx, r); err != nil {
			return nil, err
		}
	}
	plan.Objects = r.Planned()
	byStep := map[string][]pipeline.Planned{}
	for _, o := range plan.Objects {
		byStep[o.Step] = append(byStep[o.Step], o)
	}
	for _, step := range p.Reversed() {
		for _, o := range slices.Backward(byStep[step.Name]) {
			plan.Teardown = append(plan.Teardown, o.Kind+" "+o.Name)
		}
	}
	return &plan, nil
}

// checks asks the cloud; one that cannot be reached is a check that could not
// be made, not a plan that fails.
func (s Set) checks(ctx context.Context, r *pipeline.Run) ([]cloud.Check, error) {
	account, err := s.Cloud.Caller(ctx)
	if err == nil && r.Job.Config.InfraConfig.Account == "" {
		r.Job.Config.InfraConfig.Account = account
	}
	if err == nil {
		var checks []cloud.Check
		if checks, err = s.questions(ctx, r); err == nil {
			return checks, nil
		}
	}
	if ctx.Err() != nil {
		return nil, err
	}
	return []cloud.Check{{
		Name: "cloud account", Status: cloud.CheckUnchecked, Field: "cloudAccountId",
		Message: "the cloud could not be asked: " + err.Error(), Fix: "Put the credentials right; everything else is checked before anything is made.",
	}}, nil
}

// questions are what a plan asks before anything is made.
func (s Set) questions(ctx context.Context, r *pipeline.Run) ([]cloud.Check, error) {
	if r.Job.Kind == job.Remediation {
		return s.remediationChecks(ctx, r), ctx.Err()
	}
	if r.Job.ResourceType == job.Component {
		checks, _ := s.componentChecks(ctx, r) // what could not be asked stands in them
		return checks, ctx.Err()
	}
	checks, err := s.Cloud.Check(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Job.ResourceType == job.Cluster {
		more, _ := s.componentChecks(ctx, r)
		checks = append(checks, more...)
	}
	return append(checks, s.reachChecks(r)...), ctx.Err()
}

// pass is a run over a copy of the job that can change nothing.
func (s Set) pass(j *job.Job, mode pipeline.Mode, objects []job.Object, pace pipeline.Pace) (*pipeline.Run, pipeline.Pipeline, error) {
	c, err := j.Clone()
	if err != nil {
		return nil, nil, err
	}
	c.Phase = job.PhaseProvision
	p, _, err := s.Current(c)
	if err != nil {
		return nil, nil, err
	}
	return pipeline.NewRun(c, mode, objects, nobody{}, nil, time.Now, pace), p, nil
}

// Observe refreshes the VM states and the target health of a finished job. It
// only reads.
func (s Set) Observe(ctx context.Context, j *job.Job, now time.Time) error {
	ctx = pipeline.WithGate(ctx, pipeline.ReadOnly)
	if err := s.Cloud.RefreshVMs(ctx, j); err != nil {
		return err
	}
	infra := &j.Config.InfraConfig
	if infra.TargetGroupID != "" {
		targets, err := s.Cloud.TargetHealth(ctx, j)
		if err != nil {
			return err
		}
		infra.Targets = targets
	}
	infra.ObservedAt = &now
	return nil
}

// Recommend says which size a datastore or cache should have, from the cloud's
// metrics of the last 14 days. It only reads.
func (s Set) Recommend(ctx context.Context, j *job.Job, pace pipeline.Pace) ([]job.Recommendation, error) {
	c, err := s.datastores(j.Provider)
	if err != nil {
		return nil, err
	}
	r, _, err := s.pass(j, pipeline.Verify, nil, pace)
	if err != nil {
		return nil, err
	}
	return c.Recommend(pipeline.WithGate(ctx, pipeline.ReadOnly), r)
}
