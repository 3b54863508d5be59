package reconciler

import (
	"context"
	"errors"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/steps"
)

// stop fails the job with a reason.
func (p *pass) stop(ctx context.Context, problem job.Error) error {
	j := p.job
	to, err := job.Next(j.State(), job.Fail)
	if err != nil {
		return err
	}
	now := p.now()
	before := *j
	j.Status, j.Phase, j.Error, j.WaitingFor = to.Status, to.Phase, &problem, ""
	c := ledger.Checkpoint{Job: j, Config: true, Release: true, Events: []job.Event{p.event(problem.Step, "job.failed", "%s", problem.Message)}}
	if row, begun := p.rows[problem.Step]; begun {
		row.Status, row.WaitingFor, row.FinishedAt = job.StepFailed, "", &now
		p.rows[problem.Step] = row
		c.Steps = []job.StepState{row}
	}
	p.log.WarnContext(ctx, "job failed", "code", problem.Code, "step", problem.Step, "message", problem.Message)
	return p.end(ctx, before, c)
}

// yield sends a job whose deletion was asked for back to the queue, to be torn down.
func (p *pass) yield(ctx context.Context) error {
	j := p.job
	to, err := job.Next(j.State(), job.Yield)
	if err != nil {
		return err
	}
	p.r.forget(j)
	j.Status, j.Phase, j.Run, j.Attempts, j.WaitingFor, j.CurrentStep, j.Error = to.Status, to.Phase, j.Run+1, 0, "", "", nil
	return p.checkpoint(context.WithoutCancel(ctx), ledger.Checkpoint{Job: j, Config: true, Release: true, ClearCancel: true,
		Events: []job.Event{p.event("", "job.status", "stopped at a safe point; tearing down what was made")}})
}

// finish ends the run.
func (p *pass) finish(ctx context.Context, set steps.Set) error {
	if cause := context.Cause(ctx); cause != nil {
		return p.interrupted(ctx, cause)
	}
	j := p.job
	to, err := job.Next(j.State(), job.Finish)
	if err != nil {
		return err
	}
	before := *j
	j.Status, j.Phase, j.Error, j.WaitingFor, j.CurrentStep, j.Attempts = to.Status, to.Phase, nil, "", "", 0
	if j.Status != job.Cancelled {
		j.Outputs = set.Outputs(j)
	}
	p.log.InfoContext(ctx, "job done", "status", string(j.Status))
	return p.end(ctx, before, ledger.Checkpoint{Job: j, Config: true, Outputs: true, Release: true,
		Events: []job.Event{p.event("", "job.status", "%s", j.Status)}})
}

// end writes the last checkpoint of a run, with the audit entry of it. A
// request to delete that came meanwhile goes first: the job is as it was
// before, and yields.
func (p *pass) end(ctx context.Context, before job.Job, c ledger.Checkpoint) error {
	ctx = context.WithoutCancel(ctx)
	j := c.Job
	c.Audit = []audit.Entry{{Org: j.OrgID, Actor: "system:" + p.r.Worker, Action: "provisioning-job:" + string(j.Status),
		ResourceType: "provisioning-job", ResourceID: j.ID, Outcome: audit.Allowed}}
	err := p.checkpoint(ctx, c)
	if errors.Is(err, ledger.ErrCancelRequested) {
		*j = before
		return p.yield(ctx)
	}
	p.r.forget(j)
	p.r.Hooks.JobDone(j.ResourceType, j.Status)
	return err
}
