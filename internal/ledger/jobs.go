package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// Insert writes a new job: a draft, or queued and due at once. It fills in
// CreatedAt, UpdatedAt, Version, SpecRevision and NextRunAt. A *NameTakenError
// or *SubjectBusyError leaves q's transaction usable.
func (l *Ledger) Insert(ctx context.Context, q db.Q, j *job.Job) error {
	labels, err := jsonText(j.Labels, false)
	if err != nil {
		return fmt.Errorf("job %s: labels: %w", j.ID, err)
	}
	if j.Labels == nil {
		*labels = "{}"
	}
	engine, err := encodeEngine(j)
	if err != nil {
		return err
	}
	if j.Run == 0 {
		j.Run = 1
	}
	if j.SpecRevision == 0 {
		j.SpecRevision = 1
	}
	var (
		created, updated int64
		next             *int64
	)
	// ON CONFLICT without a target: whichever unique index refuses, the
	// transaction goes on, so that the holder can be looked up and named.
	err = writable(q).QueryRow(ctx, `INSERT INTO provisioning_jobs
		(id, org_id, kind, resource_type, provider, mode, name, cloud_account_id, region, labels, subject_type, subject_id,
		 status, phase, run, vm_op, current_step, waiting_for, attempts, infra_config, outputs, error,
		 spec, spec_revision, cancel_requested, created_by, created_at, updated_at, next_run_at, team_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
		 $23, $24, $25, $26, `+l.now+`, `+l.now+`, CASE WHEN $27 THEN `+l.now+` END, $28)
		ON CONFLICT DO NOTHING RETURNING created_at, updated_at, next_run_at`,
		j.ID, j.OrgID, string(j.Kind), string(j.ResourceType), string(j.Provider), string(j.Mode), j.Name, j.CloudAccountID, j.Region, *labels,
		j.SubjectType, j.SubjectID, string(j.Status), string(j.Phase), int64(j.Run), string(j.VMOp), j.CurrentStep, j.WaitingFor, int64(j.Attempts),
		engine.infra, engine.outputs, engine.failure, specText(j), j.SpecRevision, j.Cancelling, j.CreatedBy, j.State().Active(), j.TeamID).Scan(&created, &updated, &next)
	if errors.Is(err, db.ErrNoRows) {
		return l.whyRefused(ctx, writable(q), j)
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", j.ID, err)
	}
	j.Version, j.CreatedAt, j.UpdatedAt, j.NextRunAt = 1, fromMicros(created), fromMicros(updated), timePtr(next)
	return nil
}

// whyRefused says which unique index a job ran into.
func (l *Ledger) whyRefused(ctx context.Context, q db.Q, j *job.Job) error {
	holder, err := l.nameHolder(ctx, q, j)
	if err != nil {
		return err
	}
	if holder != "" {
		return &NameTakenError{holder}
	}
	if holder, err = l.subjectHolder(ctx, q, j); err != nil {
		return err
	}
	if holder != "" {
		return &SubjectBusyError{holder}
	}
	return fmt.Errorf("job %s: its ID is taken", j.ID)
}

func (l *Ledger) nameHolder(ctx context.Context, q db.Q, j *job.Job) (string, error) {
	return l.holder(ctx, q, `org_id = $1 AND id <> $2 AND resource_type = $3 AND name = $4 AND status <> 'cancelled'`,
		j.OrgID, j.ID, string(j.ResourceType), j.Name)
}

func (l *Ledger) subjectHolder(ctx context.Context, q db.Q, j *job.Job) (string, error) {
	return l.holder(ctx, q, `org_id = $1 AND id <> $2 AND subject_id = $3 AND status IN ('queued', 'running')`, j.OrgID, j.ID, j.SubjectID)
}

func (l *Ledger) holder(ctx context.Context, q db.Q, where string, args ...any) (string, error) {
	var id string
	err := q.QueryRow(ctx, `SELECT id FROM provisioning_jobs WHERE `+where+` LIMIT 1`, args...).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	return id, err
}

func specText(j *job.Job) string {
	if len(j.Config.Spec) == 0 {
		return "{}"
	}
	return string(j.Config.Spec)
}

// engineJSON is the JSON columns that the engine owns.
type engineJSON struct{ infra, outputs, failure *string }

func encodeEngine(j *job.Job) (e engineJSON, err error) {
	if e.infra, err = jsonText(j.Config.InfraConfig, false); err != nil {
		return e, fmt.Errorf("job %s: infraConfig: %w", j.ID, err)
	}
	if e.outputs, err = jsonText(j.Outputs, j.Outputs == nil); err != nil {
		return e, fmt.Errorf("job %s: outputs: %w", j.ID, err)
	}
	if e.failure, err = jsonText(j.Error, j.Error == nil); err != nil {
		return e, fmt.Errorf("job %s: error: %w", j.ID, err)
	}
	return e, nil
}

// Get reads one job.
func (l *Ledger) Get(ctx context.Context, org, id string) (*job.Job, error) {
	return l.get(ctx, l.d, org, id, "")
}

// GetIn reads one job in a transaction.
func (l *Ledger) GetIn(ctx context.Context, q db.Q, org, id string) (*job.Job, error) {
	return l.get(ctx, q, org, id, "")
}

func (l *Ledger) get(ctx context.Context, q db.Q, org, id, lock string, more ...any) (*job.Job, error) {
	columns := jobColumns
	if len(more) > 0 {
		columns += l.standingColumns()
	}
	j, err := scanJob(q.QueryRow(ctx, `SELECT `+columns+` FROM provisioning_jobs WHERE org_id = $1 AND id = $2`+lock, org, id), more...)
	if errors.Is(err, db.ErrNoRows) {
		return nil, fmt.Errorf("job %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", id, err)
	}
	return j, nil
}

func (l *Ledger) standingColumns() string {
	return `, coalesce(lease_token IS NOT NULL AND lease_expires_at > ` + l.now + `, false), ever_claimed, lease_owner, coalesce(lease_expires_at, 0), taken_from`
}

func (s *Standing) dest(expires *int64) []any {
	return []any{&s.Leased, &s.EverClaimed, &s.Worker, expires, &s.TakenFrom}
}

func (s *Standing) settle(expires int64) {
	if !s.Leased {
		s.Worker, s.TakenFrom = "", ""
		return
	}
	s.Expires = fromMicros(expires)
}

// Standing says who holds a job.
func (l *Ledger) Standing(ctx context.Context, org, id string) (Standing, error) {
	var (
		s       Standing
		expires int64
	)
	if _, err := l.get(ctx, l.d, org, id, "", s.dest(&expires)...); err != nil {
		return Standing{}, err
	}
	s.settle(expires)
	return s, nil
}

// resolveLimit is how many jobs an ambiguous reference brings back.
const resolveLimit = "20"

// Resolve finds the jobs that a person may mean: by ID, by name (live ones, or
// else cancelled ones, newest first), or by the beginning of an ID, with or
// without its prefix. More than one is for the person to tell apart; none is
// ErrNotFound. Jobs that the caller may not see do not count.
func (l *Ledger) Resolve(ctx context.Context, org string, see job.Visible, ref string) ([]job.Job, error) {
	for _, try := range []struct {
		where string
		args  []any
	}{
		{`id = $2`, []any{ref}},
		{`name = $2 AND status <> 'cancelled'`, []any{ref}},
		{`name = $2`, []any{ref}},
		{`(id >= $2 AND id < $3 OR id >= $4 AND id < $5)`, []any{ref, ref + "~", "job_" + ref, "job_" + ref + "~"}},
	} {
		if ref == "" {
			break
		}
		c := conditions{where: []string{"org_id = $1", try.where}, args: append([]any{org}, try.args...)}
		c.see(see)
		jobs, err := l.selectJobs(ctx, c.String()+` ORDER BY created_at DESC, id DESC LIMIT `+resolveLimit, c.args...)
		if err != nil || len(jobs) > 0 {
			return jobs, err
		}
	}
	return nil, fmt.Errorf("job %q: %w", ref, ErrNotFound)
}

func (l *Ledger) selectJobs(ctx context.Context, where string, args ...any) ([]job.Job, error) {
	rows, err := l.d.Query(ctx, `SELECT `+jobColumns+` FROM provisioning_jobs WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	defer rows.Close()
	var jobs []job.Job
	for rows.Next() {
		j, err := scanJob(rows)
		if err != nil {
			return nil, fmt.Errorf("jobs: %w", err)
		}
		jobs = append(jobs, *j)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return jobs, nil
}

// AddEvents appends to a job's history, with the next numbers and the
// database's time. q is a transaction.
func (l *Ledger) AddEvents(ctx context.Context, q db.Q, org, id string, events ...job.Event) error {
	if len(events) == 0 {
		return nil
	}
	return l.inTx(ctx, q, func(ctx context.Context, tx db.Q) error {
		var last, now int64
		err := tx.QueryRow(ctx, `UPDATE provisioning_jobs SET event_seq = event_seq + $3 WHERE org_id = $1 AND id = $2 RETURNING event_seq, `+l.now,
			org, id, int64(len(events))).Scan(&last, &now)
		if errors.Is(err, db.ErrNoRows) {
			return fmt.Errorf("job %s: %w", id, ErrNotFound)
		}
		if err != nil {
			return fmt.Errorf("job %s: events: %w", id, err)
		}
		return insertEvents(ctx, tx, org, id, last-int64(len(events)), now, events)
	})
}

func insertEvents(ctx context.Context, tx db.Q, org, id string, seq, now int64, events []job.Event) error {
	for i, e := range events {
		_, err := tx.Exec(ctx, `INSERT INTO job_events (job_id, seq, org_id, time, type, step, run, attempt, message)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			id, seq+int64(i)+1, org, now, e.Type, e.Step, int64(e.Run), int64(e.Attempt), e.Message)
		if err != nil {
			return fmt.Errorf("job %s: event %s: %w", id, e.Type, err)
		}
	}
	return nil
}
