package reconciler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/steps"
)

// work carries one claimed job on until it waits, ends or is taken away.
// claimed is the monotonic clock's reading before the claim was sent.
func (r *Reconciler) work(ctx context.Context, c ledger.Claimed, claimed time.Time) {
	j := c.Job
	log := r.Log.With("job", j.ID, "phase", string(j.Phase), "run", j.Run)
	r.Hooks.Claimed(j.ResourceType, c.TakenFrom != "")
	if c.TakenFrom != "" {
		log.InfoContext(ctx, "took the job over from a worker that fell silent", "worker", c.TakenFrom)
	}
	// The job's own context: ended by a lost lease, a cancel or a shutdown,
	// each of which is its cause.
	jctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(errShutdown) })
	defer stop()

	h := &hold{r: r, job: j, lease: c.Lease, cancel: cancel, expires: claimed.Add(c.Lease.TTL),
		family: j.ResourceType, mode: j.Mode, tearingDown: j.Phase == job.PhaseTeardown}
	if r.take(h, claimed) {
		log.WarnContext(ctx, "this worker was silent since it claimed the job; it is given back")
		h.lose()
	}
	defer func() {
		r.mu.Lock()
		if r.held[j.ID] == h {
			delete(r.held, j.ID)
		}
		r.mu.Unlock()
	}()
	jctx = pipeline.WithGate(jctx, h.gate)
	p := &pass{hold: h, log: log, claimedAt: j.UpdatedAt, started: claimed}
	if err := p.run(jctx); err != nil {
		log.WarnContext(ctx, "the pass ended early; the job goes back to the queue", "error", err)
		select { // what went wrong may go wrong again at once
		case <-ctx.Done():
		case <-time.After(time.Second + rand.N(time.Second)):
		}
		h.giveBack(ctx)
	}
}

// A pass is one worker's go at one job.
type pass struct {
	*hold
	log       *slog.Logger
	dir       job.Direction
	rows      map[string]job.StepState // of this run and direction, by step
	claimedAt time.Time                // the database's clock at the claim
	started   time.Time                // the monotonic clock then
}

// now is the database's clock as this worker knows it: the wall clocks of two
// workers may differ by minutes, and windows of consistency must not.
func (p *pass) now() time.Time { return p.claimedAt.Add(time.Since(p.started)) }

func (p *pass) run(ctx context.Context) (err error) {
	j := p.job
	defer func() {
		if v := recover(); v != nil {
			err = p.stop(ctx, job.Error{Code: "internal", Message: fmt.Sprintf("the step panicked: %v", v), Step: j.CurrentStep,
				Hint: "This is a defect: report it with the job's events. A retry goes on where it was."})
		}
	}()
	if j.Cancelling && j.Phase != job.PhaseTeardown {
		return p.yield(ctx)
	}
	set := p.r.steps(nil)
	list, dir, err := set.Current(j)
	if err != nil {
		return p.stop(ctx, job.Error{Code: "unknown-pipeline", Message: err.Error(), Hint: "This version does not know this job; run the version that made it."})
	}
	p.dir = dir
	rctx, cancel := context.WithTimeout(ctx, ledgerPatience)
	defer cancel()
	rows, err := p.r.Ledger.Steps(rctx, j.OrgID, j.ID)
	if err != nil {
		return err
	}
	if unknown := p.progress(rows, list); unknown != "" {
		return p.stop(ctx, job.Error{Code: "unknown-step", Step: unknown,
			Message: fmt.Sprintf("the ledger has a step %q that this version does not know", unknown),
			Hint:    "Run the version that wrote it; it is not passed over, since what it made would be forgotten."})
	}
	objects, err := p.r.Ledger.Objects(rctx, j.OrgID, j.ID)
	if err != nil {
		return err
	}
	run := pipeline.NewRun(j, pipeline.Apply, objects, p.hold, p.r.memory(j, p.rows), p.now, p.r.Pace)
	run.Down = dir == job.Down
	set.Cloud, err = p.r.Clouds.Open(ctx, j)
	if err != nil {
		return p.after(ctx, run, p.first(list), "", err)
	}
	if l, ok := set.Cloud.(cloud.Limited); ok && l.ReadOnly() {
		ctx = pipeline.WithGate(ctx, nothingChanges(j))
	}
	// The steps are bound to the cloud now.
	if list, _, err = set.Current(j); err != nil {
		return err
	}
	doubted, last := run.Doubted() && !run.Down, p.lastBegun(list)
	for i, step := range list {
		if doubted && i >= last {
			run.EndDoubt() // everything before the step under way has been looked at
			doubted = false
		}
		if p.rows[step.Name].Status == job.StepDone && !p.again(step, run) && !doubted {
			continue
		}
		following := ""
		if i+1 < len(list) {
			following = list[i+1].Name
		}
		next, err := p.step(ctx, set, run, step, following)
		if err != nil || !next {
			return err
		}
	}
	return p.finish(ctx, set)
}

// first is the name of the first step that is not done; of the last one, if all are.
func (p *pass) first(list pipeline.Pipeline) string {
	for _, s := range list {
		if p.rows[s.Name].Status != job.StepDone {
			if _, begun := p.rows[s.Name]; !begun {
				p.begin(s.Name)
			}
			return s.Name
		}
	}
	return list[len(list)-1].Name
}

// lastBegun is the place of the last step that has a row; -1 if none has.
func (p *pass) lastBegun(list pipeline.Pipeline) int {
	last := -1
	for i, s := range list {
		if _, begun := p.rows[s.Name]; begun {
			last = i
		}
	}
	return last
}

// again reports whether a step that is done runs once more: stepValidate, for a
// worker that has not run it itself since the job was taken up.
func (p *pass) again(step pipeline.Step, run *pipeline.Run) bool {
	return step.Name == steps.Validate && !run.Down && run.Recall("validated") == nil
}

// progress takes in the step rows of this run, and names one that the pipeline
// does not have.
func (p *pass) progress(rows []job.StepState, list pipeline.Pipeline) (unknown string) {
	p.rows = map[string]job.StepState{}
	for _, s := range rows {
		if s.Run != p.job.Run || s.Direction != p.dir {
			continue
		}
		if list.Index(s.Name) < 0 {
			return s.Name
		}
		p.rows[s.Name] = s
	}
	// A teardown that failed at its proof found something that the steps had
	// believed gone: on a retry they all look again.
	if p.dir == job.Down && p.rows[steps.Validate].Status == job.StepFailed {
		for name, s := range p.rows {
			if s.Status == job.StepDone {
				s.Status = job.StepRunning
				p.rows[name] = s
			}
		}
	}
	return ""
}

// step runs one step and commits its outcome; next says whether the pipeline
// goes on at once. A step costs one durable checkpoint: the one that says it is
// done also says that the next has begun.
func (p *pass) step(ctx context.Context, set steps.Set, run *pipeline.Run, step pipeline.Step, following string) (next bool, err error) {
	j := p.job
	row, begun := p.rows[step.Name]
	if j.CurrentStep != step.Name {
		j.Attempts = 0
		if row.Status == job.StepWaiting { // earlier steps were looked at again meanwhile
			j.Attempts = max(row.Attempts-1, 0)
		}
	}
	j.CurrentStep, run.Step = step.Name, step.Name
	if !begun || row.Status == job.StepFailed {
		row = p.begin(step.Name)
		if err := p.checkpoint(ctx, ledger.Checkpoint{Job: j, Steps: []job.StepState{row}, Events: []job.Event{p.event(step.Name, "step.started", "started")}}); err != nil {
			return false, err
		}
	}
	run.From = deref(row.StartedAt)
	f := step.Ensure
	if p.dir == job.Down {
		f = step.Remove
	}
	began := time.Now()
	if f != nil {
		sctx, span := otel.Tracer("zopday").Start(ctx, step.Name)
		span.SetAttributes(attribute.String("job", j.ID), attribute.String("direction", string(p.dir)), attribute.Int("attempt", j.Attempts))
		err = p.guarded(sctx, set, run, f)
		span.End()
	}
	if cause := context.Cause(ctx); cause != nil {
		return false, p.interrupted(ctx, cause)
	}
	if err == nil && step.Name == steps.Validate {
		run.Remember("validated", true)
	}
	outcome := p.after(ctx, run, step.Name, following, err)
	level := slog.LevelDebug // a step that waits says so each time it looks
	if status := p.rows[step.Name].Status; status != job.StepWaiting {
		level = slog.LevelInfo
	}
	p.log.Log(ctx, level, "step", "step", step.Name, "attempt", j.Attempts, "status", string(p.rows[step.Name].Status),
		"ms", time.Since(began).Milliseconds(), "verdict", text(err))
	return err == nil, outcome
}

// begin is the row of a step that starts now.
func (p *pass) begin(step string) job.StepState {
	now := p.now()
	row := job.StepState{Run: p.job.Run, Name: step, Direction: p.dir, Status: job.StepRunning, Attempts: 1, StartedAt: &now}
	p.rows[step] = row
	return row
}

func (p *pass) event(step, typ, format string, args ...any) job.Event {
	return job.Event{Type: typ, Step: step, Run: p.job.Run, Attempt: p.job.Attempts, Message: fmt.Sprintf(format, args...)}
}

// guarded runs a step's function for the account in which the job began.
func (p *pass) guarded(ctx context.Context, set steps.Set, run *pipeline.Run, f pipeline.Func) error {
	if run.Down && p.job.Config.InfraConfig.Account == "" && len(run.Objects()) == 0 {
		run.Note("nothing was made")
		return nil // no step has come past the account's name, so there is nothing to ask the cloud for
	}
	if err := set.SameCaller(ctx, p.job); err != nil {
		return err
	}
	return f(ctx, run)
}

// interrupted ends a pass whose context was cancelled while a step was at work.
func (p *pass) interrupted(ctx context.Context, cause error) error {
	switch {
	case errors.Is(cause, errCancelRequested):
		return p.yield(ctx)
	case errors.Is(cause, errShutdown):
		// No attempt is spent and nothing is lost: another worker goes on.
		return p.checkpoint(context.WithoutCancel(ctx), ledger.Checkpoint{Job: p.job, Config: true, Release: true})
	}
	return pipeline.ErrLeaseLost
}

// doubtEvery is after how many tries that ended with a not-found everything that
// earlier steps have made is looked at again.
const doubtEvery = 8

// after commits what a step's verdict means for the job.
func (p *pass) after(ctx context.Context, run *pipeline.Run, step, following string, err error) error {
	ctx = context.WithoutCancel(ctx)
	if errors.Is(err, pipeline.ErrLeaseLost) {
		return pipeline.ErrLeaseLost
	}
	j := p.job
	now := p.now()
	if run.Progressed() && err != nil {
		j.Attempts = 0
	}
	d := pipeline.Judge(err, j.Attempts)
	if d.Action == pipeline.Again && pipeline.Is(err, pipeline.NotFound) && j.Attempts%doubtEvery == doubtEvery-1 {
		run.Doubt()
	}
	row := p.rows[step]
	if notes := run.TakeNotes(); len(notes) > 0 {
		row.Note = strings.Join(notes, "; ")
	}
	c := ledger.Checkpoint{Job: j, Config: true}
	switch d.Action {
	case pipeline.Stop:
		d.Problem.Step = step
		p.rows[step] = row
		return p.stop(ctx, d.Problem)
	case pipeline.Advance:
		row.Status, row.WaitingFor, row.FinishedAt = job.StepDone, "", &now
		j.WaitingFor, j.Attempts = "", 0
		c.Events = append(c.Events, p.event(step, "step.done", "%s", cmp.Or(row.Note, "done")))
		if _, begun := p.rows[following]; following != "" && !begun {
			c.Steps = append(c.Steps, p.begin(following))
			c.Events = append(c.Events, p.event(following, "step.started", "started"))
			j.CurrentStep = following
		}
	case pipeline.Park:
		if j.WaitingFor != d.For {
			c.Events = append(c.Events, p.event(step, "step.waiting", "waiting for %s", d.For))
		}
		row.Status, row.WaitingFor, j.WaitingFor = job.StepWaiting, d.For, d.For
		c.Release, c.NextIn = true, p.r.Pace.Real(d.After)
	case pipeline.Again:
		c.Events = append(c.Events, p.event(step, "step.retrying", "try %d did not work: %s", j.Attempts+1, d.For))
		j.Attempts++
		row.Status, row.Attempts = job.StepWaiting, j.Attempts+1
		row.WaitingFor = "another try: " + d.For
		j.WaitingFor = row.WaitingFor
		c.Release, c.NextIn = true, p.r.Pace.Real(d.After)
	}
	p.rows[step] = row
	c.Steps = append(c.Steps, row)
	p.r.Hooks.StepDone(j.ResourceType, step, p.dir, string(row.Status), now.Sub(deref(row.StartedAt)))
	if err := p.checkpoint(ctx, c); err != nil {
		return err
	}
	if c.Release && c.NextIn < p.r.Poll {
		time.AfterFunc(c.NextIn, p.r.poke)
	}
	return nil
}

// text is an error's words; "" if there is none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
