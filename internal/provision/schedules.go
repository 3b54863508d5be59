package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/schedule"
)

// A ScheduleRequest asks for a schedule.
type ScheduleRequest struct {
	JobID        string      `json:"jobId" doc:"ID or name of the VM or cluster job that has the pool"`
	Pool         string      `json:"pool,omitempty" doc:"Clusters: the node pool's name; by default all but Azure's system pool"`
	PauseCron    string      `json:"pauseCron,omitempty" doc:"When to pause: minute, hour, day of month, month, day of week"`
	ResumeCron   string      `json:"resumeCron,omitempty" doc:"When to resume"`
	Window       *job.Window `json:"window,omitempty" doc:"When the pool runs, instead of the two crons"`
	TimeZone     string      `json:"timeZone" doc:"IANA name, such as Europe/Berlin"`
	AllowAdopted bool        `json:"allowAdopted,omitempty" doc:"Act on a pool that its job only adopted"`
	Enabled      *bool       `json:"enabled,omitempty" doc:"true by default"`
}

func (r ScheduleRequest) spec() job.ScheduleSpec {
	return job.ScheduleSpec{JobID: r.JobID, Pool: r.Pool, PauseCron: r.PauseCron, ResumeCron: r.ResumeCron, Window: r.Window, TimeZone: r.TimeZone, AllowAdopted: r.AllowAdopted}
}

// A SchedulePatch changes a schedule. A window takes the place of the cron lines,
// and they that of the window.
type SchedulePatch struct {
	PauseCron    *string     `json:"pauseCron,omitempty"`
	ResumeCron   *string     `json:"resumeCron,omitempty"`
	Window       *job.Window `json:"window,omitempty"`
	TimeZone     *string     `json:"timeZone,omitempty"`
	AllowAdopted *bool       `json:"allowAdopted,omitempty"`
	Enabled      *bool       `json:"enabled,omitempty" doc:"false: it acts no more until it is enabled again; what is paused stays so"`
}

// A ScheduleView is a schedule as it is shown: with what it saves, and what became
// of its last due times.
type ScheduleView struct {
	job.Schedule
	Estimate Estimate          `json:"estimate"`
	Runs     []job.ScheduleRun `json:"runs" doc:"The last 20 due times, the newest first"`
}

// scheduleRuns is how many due times a schedule shows.
const scheduleRuns = 20

// CreateSchedule makes a schedule; dry shows it as it would be, and saves nothing.
func (s *Service) CreateSchedule(ctx context.Context, r ScheduleRequest, dry bool) (*ScheduleView, error) {
	p, err := access.Require(ctx, access.VMOperate)
	if err != nil {
		return nil, s.refused(ctx, access.VMOperate, "", err)
	}
	row, subject, err := s.newSchedule(ctx, p, r)
	if err != nil {
		return nil, s.refused(ctx, access.VMOperate, "", err)
	}
	if dry {
		return s.scheduleView(ctx, row, subject)
	}
	err = s.mutate(ctx, access.VMOperate, "", func(ctx context.Context, tx db.Q, _ access.Principal) (audit.Entry, error) {
		// Another request may have come in between, for other pools of the subject.
		if err := s.Ledger.LockSubject(ctx, tx, row.OrgID, row.JobID); err != nil {
			return audit.Entry{}, err
		}
		if err := s.overlaps(ctx, tx, subject, row.Pool); err != nil {
			return audit.Entry{}, err
		}
		if err := s.Ledger.AddSchedule(ctx, tx, row); err != nil {
			return audit.Entry{}, err
		}
		return audit.Entry{Action: "schedule:create", ResourceType: "schedule", ResourceID: row.ID, Detail: map[string]any{"job": row.JobID, "pool": row.Pool, "enabled": row.Enabled}}, nil
	})
	if errors.Is(err, ledger.ErrScheduleExists) {
		return nil, &Refusal{Kind: WrongState, Message: fmt.Sprintf("%s has a schedule for this pool already", row.SubjectName), Hint: "Change that one with PATCH, or delete it: GET /schedules?jobId=" + row.JobID}
	}
	if err != nil {
		return nil, err
	}
	return s.scheduleView(ctx, row, subject)
}

// newSchedule checks everything about a schedule that needs no cloud.
func (s *Service) newSchedule(ctx context.Context, p access.Principal, r ScheduleRequest) (*job.Schedule, *job.Job, error) {
	if err := protectedName("pool", r.Pool); err != nil {
		return nil, nil, err
	}
	if r.JobID == "" {
		return nil, nil, invalid(job.FieldError{Field: "jobId", Message: "is missing", Fix: "name the VM or cluster job that has the pool"})
	}
	subject, err := s.subjectOf(ctx, p, access.VMOperate, "", r.JobID)
	if err == nil {
		err = s.actable(subject, job.RemediationSpec{Action: job.ActionPause, Pool: r.Pool, AllowAdopted: r.AllowAdopted})
	}
	if err == nil {
		err = s.overlaps(ctx, s.Ledger.DB(), subject, r.Pool)
	}
	if err != nil {
		return nil, nil, scheduleFields(err)
	}
	plan, err := schedule.Parse(r.spec())
	if err != nil {
		return nil, nil, err
	}
	row := &job.Schedule{ID: job.NewID("sch"), OrgID: p.OrgID, ScheduleSpec: r.spec(), SubjectName: subject.Name, SubjectID: subject.SubjectID, Enabled: r.Enabled == nil || *r.Enabled, CreatedBy: p.Actor}
	row.JobID = subject.ID
	now, err := s.Clock(ctx, s.Ledger.DB())
	arm(row, plan, now)
	return row, subject, err
}

// overlaps refuses a schedule for all pools beside one for a single pool: they would
// pause and resume the same machines against each other.
func (s *Service) overlaps(ctx context.Context, q db.Q, subject *job.Job, pool string) error {
	o, err := s.Ledger.Overlapping(ctx, q, subject.OrgID, subject.SubjectID, pool)
	if err != nil || o == nil {
		return err
	}
	return &Refusal{Kind: WrongState, Message: fmt.Sprintf("%s has the schedule %s for %s", subject.Name, o.ID, poolText(o.Pool)), Hint: "Change that one with PATCH /schedules/" + o.ID + ", or delete it."}
}

func poolText(pool string) string {
	if pool == "" {
		return "all of its pools"
	}
	return "its pool " + pool
}

// scheduleFields names the fields of a remediation job as a schedule has them.
func scheduleFields(err error) error {
	var r *Refusal
	if !errors.As(err, &r) {
		return err
	}
	out := *r
	out.Fields = slices.Clone(r.Fields)
	for i := range out.Fields {
		out.Fields[i].Field = strings.TrimPrefix(out.Fields[i].Field, "config.spec.")
	}
	if r.Kind == Invalid {
		again := invalid(out.Fields...)
		out.Message, out.Hint = again.Message, again.Hint
	}
	return &out
}

// arm sets when a schedule acts next.
func arm(row *job.Schedule, plan *schedule.Plan, now time.Time) {
	row.NextAt, row.NextAction = nil, ""
	if next, ok := plan.Next(now); ok && row.Enabled {
		at := next.At.UTC()
		row.NextAt, row.NextAction = &at, next.Action
	}
}

// rearm sets when a schedule that was changed acts next. A resume that is due and was
// not made yet stays due: its pool is missed. A pause that is due, and whatever is due
// of a schedule that is turned off, is passed over, with the reason for the record.
func rearm(row *job.Schedule, plan *schedule.Plan, now time.Time) (passed *job.ScheduleRun) {
	due, action := row.NextAt, row.NextAction
	if due == nil || due.After(now) {
		arm(row, plan, now)
		return nil
	}
	if row.Enabled && action == job.ActionResume {
		// What the new times would have had in between is not made up for.
		if next, ok := plan.Next(*due); ok && !next.At.After(now) {
			row.NextAt = &now
		}
		return nil
	}
	arm(row, plan, now)
	reason := "the schedule was changed before its " + string(action) + " was carried out"
	if !row.Enabled {
		reason = "the schedule was turned off before its " + string(action) + " was carried out"
	}
	return &job.ScheduleRun{DueAt: *due, Action: action, Outcome: job.RunSkipped, Reason: reason}
}

// ListSchedules lists an organisation's schedules, the newest first.
func (s *Service) ListSchedules(ctx context.Context, jobRef string, limit int, cursor string) (items []job.Schedule, next string, err error) {
	p, err := s.viewer(ctx, access.JobView)
	if err != nil {
		return nil, "", err
	}
	subject := ""
	if jobRef != "" {
		j, err := s.subjectOf(ctx, p, access.JobView, "", jobRef)
		if err != nil {
			return nil, "", scheduleFields(err)
		}
		subject = j.SubjectID
	}
	if cursor != "" && !refRE.MatchString(cursor) {
		return nil, "", refusalOf(ledger.ErrBadCursor)
	}
	items, err = s.Ledger.Schedules(ctx, p.OrgID, subject, cursor, limit+1)
	if err == nil && len(items) > limit {
		items = items[:limit]
		next = items[limit-1].ID
	}
	if err != nil {
		return nil, "", err
	}
	items, err = s.seenSchedules(ctx, p, access.JobView, items...)
	return items, next, err
}

// GetSchedule reads one schedule.
func (s *Service) GetSchedule(ctx context.Context, id string) (*ScheduleView, error) {
	p, err := s.viewer(ctx, access.JobView)
	if err != nil {
		return nil, err
	}
	row, err := s.scheduleOf(ctx, p, access.JobView, id)
	if err != nil {
		return nil, refusalOf(err)
	}
	return s.scheduleView(ctx, row, nil)
}

// scheduleOf finds a schedule for a caller. It is its job's team's.
func (s *Service) scheduleOf(ctx context.Context, p access.Principal, policy access.Policy, id string) (*job.Schedule, error) {
	missing := &Refusal{Kind: NotFound, Message: "there is no such schedule in your organisation", Hint: "GET /schedules lists what there is."}
	if !refRE.MatchString(id) {
		return nil, missing
	}
	row, err := s.Ledger.Schedule(ctx, p.OrgID, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	teams, err := s.Ledger.TeamsOf(ctx, p.OrgID, []string{row.JobID})
	if err != nil {
		return nil, err
	}
	if !p.Over(access.JobView, policy).Covers(teams[row.JobID], row.ID, row.JobID) {
		return nil, missing
	}
	return row, over(p, policy, "schedule "+row.ID, teams[row.JobID], row.ID, row.JobID)
}

// seenSchedules are those of the schedules that the caller may see.
func (s *Service) seenSchedules(ctx context.Context, p access.Principal, policy access.Policy, all ...job.Schedule) ([]job.Schedule, error) {
	may := p.Over(policy)
	if may.All {
		return all, nil
	}
	jobs := make([]string, len(all))
	for i, row := range all {
		jobs[i] = row.JobID
	}
	teams, err := s.Ledger.TeamsOf(ctx, p.OrgID, jobs)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(row job.Schedule) bool { return !may.Covers(teams[row.JobID], row.ID, row.JobID) }), nil
}

// scheduleView adds what is shown beside a schedule; subject is its job, if known.
func (s *Service) scheduleView(ctx context.Context, row *job.Schedule, subject *job.Job) (*ScheduleView, error) {
	v := &ScheduleView{Schedule: *row}
	var err error
	if v.Runs, err = s.Ledger.ScheduleRuns(ctx, row.OrgID, row.ID, scheduleRuns); err != nil {
		return nil, err
	}
	if subject == nil {
		if subject, err = s.Ledger.Get(ctx, row.OrgID, row.JobID); err != nil {
			return nil, err
		}
	}
	v.Estimate, err = estimateOf(row, subject)
	return v, err
}

// PatchSchedule changes a schedule.
func (s *Service) PatchSchedule(ctx context.Context, id string, r SchedulePatch) (*ScheduleView, error) {
	var row *job.Schedule
	err := s.changeSchedule(ctx, id, "schedule:update", func(ctx context.Context, tx db.Q, p access.Principal) (err error) {
		var passed *job.ScheduleRun
		row, err = s.Ledger.ChangeSchedule(ctx, tx, p.OrgID, id, func(row *job.Schedule) error {
			if r == (SchedulePatch{}) {
				return invalid(job.FieldError{Field: "body", Message: "changes nothing", Fix: "give the fields to change"})
			}
			r.apply(row)
			plan, err := schedule.Parse(row.ScheduleSpec)
			if err != nil {
				return err
			}
			now, err := s.Clock(ctx, tx)
			if err == nil {
				passed = rearm(row, plan, now)
			}
			return err
		})
		if err == nil && passed != nil {
			_, err = s.Ledger.AddScheduleRun(ctx, tx, row, *passed)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.scheduleView(ctx, row, nil)
}

func (r SchedulePatch) apply(row *job.Schedule) {
	if r.PauseCron != nil || r.ResumeCron != nil {
		row.Window = r.Window
	}
	if r.Window != nil {
		row.Window = r.Window
		if r.PauseCron == nil && r.ResumeCron == nil {
			row.PauseCron, row.ResumeCron = "", ""
		}
	}
	for _, f := range []struct{ from, to *string }{{r.PauseCron, &row.PauseCron}, {r.ResumeCron, &row.ResumeCron}, {r.TimeZone, &row.TimeZone}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if r.AllowAdopted != nil {
		row.AllowAdopted = *r.AllowAdopted
	}
	if r.Enabled != nil {
		row.Enabled = *r.Enabled
	}
}

// DeleteSchedule ends a schedule. What it paused stays paused until it is resumed.
func (s *Service) DeleteSchedule(ctx context.Context, id string) error {
	return s.changeSchedule(ctx, id, "schedule:delete", func(ctx context.Context, tx db.Q, p access.Principal) error {
		return s.Ledger.DeleteSchedule(ctx, tx, p.OrgID, id)
	})
}

func (s *Service) changeSchedule(ctx context.Context, id, action string, fn func(ctx context.Context, tx db.Q, p access.Principal) error) error {
	p, err := access.Require(ctx, access.VMOperate)
	if err == nil {
		_, err = s.scheduleOf(ctx, p, access.VMOperate, id)
	}
	if err != nil {
		return s.refused(ctx, access.VMOperate, id, err)
	}
	return s.mutate(ctx, access.VMOperate, id, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		return audit.Entry{Action: action, ResourceType: "schedule", ResourceID: id}, fn(ctx, tx, p)
	})
}
