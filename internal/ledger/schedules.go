package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// ErrScheduleExists is a second schedule for one pool.
var ErrScheduleExists = errors.New("the pool has a schedule already")

const scheduleColumns = `id, org_id, subject_id, subject_name, spec, enabled, next_at, next_action, created_by, created_at, updated_at`

func scanSchedule(row scanner) (job.Schedule, error) {
	var (
		s                job.Schedule
		spec, action     string
		next             *int64
		created, updated int64
	)
	if err := row.Scan(&s.ID, &s.OrgID, &s.SubjectID, &s.SubjectName, &spec, &s.Enabled, &next, &action, &s.CreatedBy, &created, &updated); err != nil {
		return s, err
	}
	s.NextAt, s.NextAction, s.CreatedAt, s.UpdatedAt = timePtr(next), job.RemediationAction(action), fromMicros(created), fromMicros(updated)
	if err := json.Unmarshal([]byte(spec), &s.ScheduleSpec); err != nil {
		return s, fmt.Errorf("schedule %s: spec: %w", s.ID, err)
	}
	return s, nil
}

// AddSchedule writes a new schedule; ErrScheduleExists leaves the transaction usable.
func (l *Ledger) AddSchedule(ctx context.Context, q db.Q, s *job.Schedule) error {
	spec, err := jsonText(s.ScheduleSpec, false)
	if err != nil {
		return fmt.Errorf("schedule %s: %w", s.ID, err)
	}
	var created int64
	err = writable(q).QueryRow(ctx, `INSERT INTO schedules (id, org_id, job_id, subject_id, subject_name, pool, spec, enabled, next_at, next_action, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, `+l.now+`, `+l.now+`) ON CONFLICT DO NOTHING RETURNING created_at`,
		s.ID, s.OrgID, s.JobID, s.SubjectID, s.SubjectName, s.Pool, *spec, s.Enabled, micros(s.NextAt), string(s.NextAction), s.CreatedBy).Scan(&created)
	if errors.Is(err, db.ErrNoRows) {
		return ErrScheduleExists
	}
	if err != nil {
		return fmt.Errorf("schedule %s: %w", s.ID, err)
	}
	s.CreatedAt, s.UpdatedAt = fromMicros(created), fromMicros(created)
	return nil
}

// Schedule reads one schedule.
func (l *Ledger) Schedule(ctx context.Context, org, id string) (*job.Schedule, error) {
	return l.schedule(ctx, l.d, org, id, "")
}

func (l *Ledger) schedule(ctx context.Context, q db.Q, org, id, lock string) (*job.Schedule, error) {
	s, err := scanSchedule(q.QueryRow(ctx, `SELECT `+scheduleColumns+` FROM schedules WHERE org_id = $1 AND id = $2`+lock, org, id))
	if errors.Is(err, db.ErrNoRows) {
		return nil, fmt.Errorf("schedule %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", id, err)
	}
	return &s, nil
}

// Schedules lists an organisation's schedules, the newest first; of one subject, if
// one is named. after is the ID of the last one of the page before.
func (l *Ledger) Schedules(ctx context.Context, org, subjectID, after string, limit int) ([]job.Schedule, error) {
	c := conditions{}
	c.add("org_id = ?", org)
	if subjectID != "" {
		c.add("subject_id = ?", subjectID)
	}
	if after != "" {
		c.add("id < ?", after) // IDs begin with their time
	}
	c.args = append(c.args, int64(limit))
	return gather(ctx, l.d, scanSchedule, fmt.Sprintf(`SELECT `+scheduleColumns+` FROM schedules WHERE %s ORDER BY id DESC LIMIT $%d`, &c, len(c.args)), c.args...)
}

// LockSubject keeps everybody else from adding a schedule of a subject until the
// transaction ends: id is its job.
func (l *Ledger) LockSubject(ctx context.Context, tx db.Q, org, id string) error {
	_, err := l.get(ctx, tx, org, id, db.ForUpdate(tx.Dialect()))
	return err
}

// Overlapping is a schedule of a subject that acts on the pool too, nil if there is
// none: one of all pools, which pool "" stands for, acts on each.
func (l *Ledger) Overlapping(ctx context.Context, q db.Q, org, subjectID, pool string) (*job.Schedule, error) {
	s, err := scanSchedule(q.QueryRow(ctx, `SELECT `+scheduleColumns+` FROM schedules
		WHERE org_id = $1 AND subject_id = $2 AND (pool = '' OR $3 = '' OR pool = $3) ORDER BY id LIMIT 1`, org, subjectID, pool))
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("schedules of %s: %w", subjectID, err)
	}
	return &s, nil
}

// Clock is the database's time, by which due times are told whichever process looks.
func (l *Ledger) Clock(ctx context.Context, q db.Q) (time.Time, error) {
	var now int64
	if err := q.QueryRow(ctx, `SELECT `+l.now).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("the database's clock: %w", err)
	}
	return fromMicros(now), nil
}

// ChangeSchedule locks a schedule, lets fn edit it, and writes it back. What a
// process holds of it is let go: its due time may be another one now.
func (l *Ledger) ChangeSchedule(ctx context.Context, q db.Q, org, id string, fn func(*job.Schedule) error) (*job.Schedule, error) {
	s, err := l.schedule(ctx, q, org, id, db.ForUpdate(q.Dialect()))
	if err != nil {
		return nil, err
	}
	if err := fn(s); err != nil {
		return nil, err
	}
	spec, err := jsonText(s.ScheduleSpec, false)
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", s.ID, err)
	}
	var updated int64
	err = writable(q).QueryRow(ctx, `UPDATE schedules SET spec = $3, enabled = $4, next_at = $5, next_action = $6, held_until = NULL, updated_at = `+l.now+`
		WHERE org_id = $1 AND id = $2 RETURNING updated_at`, org, id, *spec, s.Enabled, micros(s.NextAt), string(s.NextAction)).Scan(&updated)
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", id, err)
	}
	s.UpdatedAt = fromMicros(updated)
	return s, nil
}

// DeleteSchedule removes a schedule and what became of its due times.
func (l *Ledger) DeleteSchedule(ctx context.Context, q db.Q, org, id string) error {
	if _, err := q.Exec(ctx, `DELETE FROM schedule_runs WHERE org_id = $1 AND schedule_id = $2`, org, id); err != nil {
		return fmt.Errorf("schedule %s: %w", id, err)
	}
	if _, err := q.Exec(ctx, `DELETE FROM schedules WHERE org_id = $1 AND id = $2`, org, id); err != nil {
		return fmt.Errorf("schedule %s: %w", id, err)
	}
	return nil
}

// DueSchedules are schedules of all organisations that are due and that no other
// process holds, those that have been due longest first.
func (l *Ledger) DueSchedules(ctx context.Context, now time.Time, n int) ([]job.Schedule, error) {
	return gather(ctx, l.d, scanSchedule, `SELECT `+scheduleColumns+` FROM schedules
		WHERE next_at IS NOT NULL AND next_at <= $1 AND (held_until IS NULL OR held_until <= $1) ORDER BY next_at, id LIMIT $2`, now.UnixMicro(), int64(n))
}

// HoldSchedule takes a schedule's due time for this process; false: another one has it.
func (l *Ledger) HoldSchedule(ctx context.Context, s *job.Schedule, now, until time.Time) (bool, error) {
	var id string
	err := writable(l.d).QueryRow(ctx, `UPDATE schedules SET held_until = $3 WHERE id = $1 AND next_at = $2 AND (held_until IS NULL OR held_until <= $4) RETURNING id`,
		s.ID, s.NextAt.UnixMicro(), until.UnixMicro(), now.UnixMicro()).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("schedule %s: %w", s.ID, err)
	}
	return true, nil
}

// EndSchedule records what became of a due time and moves the schedule on to the
// next, in one transaction. If the schedule was changed meanwhile, only the record
// is written; first is false for a due time that has one already.
func (l *Ledger) EndSchedule(ctx context.Context, q db.Q, s *job.Schedule, run job.ScheduleRun, next *time.Time, action job.RemediationAction, enabled bool) (first bool, err error) {
	if first, err = l.AddScheduleRun(ctx, q, s, run); err != nil {
		return false, err
	}
	_, err = q.Exec(ctx, `UPDATE schedules SET next_at = $3, next_action = $4, enabled = $5, held_until = NULL WHERE id = $1 AND next_at = $2 AND updated_at = $6`,
		s.ID, s.NextAt.UnixMicro(), micros(next), string(action), enabled, s.UpdatedAt.UnixMicro())
	if err != nil {
		return first, fmt.Errorf("schedule %s: %w", s.ID, err)
	}
	return first, nil
}

// AddScheduleRun records what became of a due time; false: that is recorded already.
// A job that was made after all takes the place of a due time passed over.
func (l *Ledger) AddScheduleRun(ctx context.Context, q db.Q, s *job.Schedule, run job.ScheduleRun) (first bool, err error) {
	var at int64
	err = writable(q).QueryRow(ctx, `INSERT INTO schedule_runs (schedule_id, due_at, action, org_id, outcome, reason, job_id, missed, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, `+l.now+`)
		ON CONFLICT (schedule_id, due_at, action) DO UPDATE SET outcome = excluded.outcome, reason = excluded.reason, job_id = excluded.job_id, missed = excluded.missed, at = excluded.at
		WHERE schedule_runs.outcome = 'skipped' AND excluded.outcome = 'created' RETURNING at`,
		s.ID, run.DueAt.UnixMicro(), string(run.Action), s.OrgID, run.Outcome, run.Reason, run.JobID, int64(run.Missed)).Scan(&at)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return false, fmt.Errorf("schedule %s: %w", s.ID, err)
	}
	return err == nil, nil
}

// ScheduleRuns is what became of a schedule's last due times, the newest first.
func (l *Ledger) ScheduleRuns(ctx context.Context, org, id string, n int) ([]job.ScheduleRun, error) {
	return gather(ctx, l.d, func(row scanner) (job.ScheduleRun, error) {
		var (
			r               job.ScheduleRun
			action          string
			due, at, missed int64
		)
		err := row.Scan(&due, &action, &r.Outcome, &r.Reason, &r.JobID, &missed, &at)
		r.DueAt, r.Action, r.Missed, r.At = fromMicros(due), job.RemediationAction(action), int(missed), fromMicros(at)
		return r, err
	}, `SELECT due_at, action, outcome, reason, job_id, missed, at FROM schedule_runs WHERE org_id = $1 AND schedule_id = $2 ORDER BY due_at DESC, action LIMIT $3`, org, id, int64(n))
}
