package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/schedule"
)

// ScheduleActor is who the remediation jobs of schedules are made by.
const ScheduleActor = "system:schedule"

// How long a process has a due time for itself, how often it looks, how many it
// takes at once, and for how long a resume is asked for again while its subject is
// busy: a pool that is not resumed is missed, one that is not paused only costs. That
// is longer than the slowest pause takes, and ends when the next due time comes.
const (
	scheduleHold   = 2 * time.Minute
	scheduleBatch  = 50
	resumePatience = 6 * time.Hour
)

// RunSchedules acts on what is due. Several processes may do so at once: a due time
// is held by one of them, and the job that it makes has an idempotency key of its
// own, so that a process which dies in between is followed by one that finds the
// same job.
func (s *Service) RunSchedules(ctx context.Context) error {
	now, err := s.Clock(ctx, s.Ledger.DB())
	if err != nil {
		return err
	}
	due, err := s.Ledger.DueSchedules(ctx, now, scheduleBatch)
	if err != nil {
		return err
	}
	var errs []error
	for i := range due {
		held, err := s.Ledger.HoldSchedule(ctx, &due[i], now, now.Add(scheduleHold))
		if err == nil && held {
			err = s.runSchedule(ctx, &due[i], now)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %s: %w", due[i].ID, err))
		}
	}
	return errors.Join(errs...)
}

// scheduleKey is where the context of a due time has its schedule's ID.
type scheduleKey struct{}

func (s *Service) runSchedule(ctx context.Context, row *job.Schedule, now time.Time) error {
	ctx = context.WithValue(ctx, scheduleKey{}, row.ID)
	ctx = access.With(ctx, access.Of(row.OrgID, ScheduleActor, access.Editor))
	plan, err := schedule.Parse(row.ScheduleSpec)
	if err != nil {
		return err
	}
	due, missed := plan.Latest(schedule.Transition{At: *row.NextAt, Action: row.NextAction}, now)
	run := job.ScheduleRun{DueAt: due.At.UTC(), Action: due.Action, Missed: missed}
	enabled := row.Enabled
	request, err := requestOf(row, due)
	if err != nil {
		return err
	}
	v, _, err := s.create(ctx, access.VMOperate, request, fmt.Sprintf("%s-%s-%d", row.ID, due.Action, due.At.Unix()))
	var r *Refusal
	switch {
	case err == nil:
		run.Outcome, run.JobID = job.RunCreated, v.ID
	case !errors.As(err, &r):
		return err // the hold ends by itself, and it is tried again
	case due.Action == job.ActionResume && s.busy(ctx, row) && now.Sub(due.At) < resumePatience:
		return nil // likewise
	default:
		run.Outcome, run.Reason = job.RunSkipped, r.Error()
		enabled = enabled && !s.over(ctx, row)
	}
	return s.endSchedule(ctx, row, run, plan, enabled, now)
}

// requestOf is the remediation job that a due time asks for. It is the same
// whichever process asks.
func requestOf(row *job.Schedule, due schedule.Transition) (CreateRequest, error) {
	spec, err := canonical(job.RemediationSpec{
		Action: due.Action, JobID: row.JobID, Pool: row.Pool, AllowAdopted: row.AllowAdopted, Reason: "schedule " + row.ID + ", due " + due.At.UTC().Format(time.RFC3339),
	})
	return CreateRequest{Kind: job.Remediation, Config: ConfigRequest{Spec: spec}, Submit: true}, err
}

// busy reports whether another job is at work on a schedule's subject.
func (s *Service) busy(ctx context.Context, row *job.Schedule) bool {
	jobs, _, err := s.Ledger.List(ctx, row.OrgID, job.Everything, ledger.Filter{Subject: row.SubjectID, Status: []job.Status{job.Queued, job.Running}, Limit: 1})
	return err == nil && len(jobs) > 0
}

// over reports whether a schedule's subject is gone for good.
func (s *Service) over(ctx context.Context, row *job.Schedule) bool {
	j, err := s.Ledger.Get(ctx, row.OrgID, row.JobID)
	return err == nil && (j.Status == job.Cancelled || j.Phase == job.PhaseTeardown)
}

// endSchedule records what became of a due time, in the audit log too, and moves
// the schedule on.
func (s *Service) endSchedule(ctx context.Context, row *job.Schedule, run job.ScheduleRun, plan *schedule.Plan, enabled bool, now time.Time) error {
	next := *row
	if next.Enabled = enabled; enabled {
		if t, ok := plan.Next(now); ok {
			at := t.At.UTC()
			next.NextAt, next.NextAction = &at, t.Action
		}
	} else {
		next.NextAt, next.NextAction = nil, ""
	}
	return s.Ledger.DB().InTx(ctx, func(ctx context.Context, tx db.Q) error {
		first, err := s.Ledger.EndSchedule(ctx, tx, row, run, next.NextAt, next.NextAction, enabled)
		if err != nil || !first {
			return err
		}
		p, _ := access.From(ctx)
		detail := map[string]any{"action": string(run.Action), "dueAt": run.DueAt, "outcome": run.Outcome}
		for k, v := range map[string]string{"reason": run.Reason, "job": run.JobID} {
			if v != "" {
				detail[k] = v
			}
		}
		if run.Missed > 0 {
			detail["missed"] = run.Missed
		}
		if row.Enabled && !enabled {
			detail["disabled"] = "its subject is gone"
		}
		return audit.Append(ctx, tx, s.entry(ctx, p, audit.Entry{Action: "schedule:run", ResourceType: "schedule", ResourceID: row.ID, Detail: detail}, access.VMOperate, audit.Allowed))
	})
}
