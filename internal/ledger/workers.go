package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// forgetAfter is when the row of a worker that stopped beating is removed. Its
// leases were free for others long before, and an unknown worker is a dead one.
const forgetAfter = time.Hour

// Register announces a worker; claims by a worker that is not registered are
// free for others at once. Workers that have been silent for long are forgotten.
func (l *Ledger) Register(ctx context.Context, w Worker) error {
	if err := l.Beat(ctx, w); err != nil {
		return err
	}
	if _, err := l.d.Exec(ctx, `DELETE FROM workers WHERE beat_at < `+l.now+` - $1`, forgetAfter.Microseconds()); err != nil {
		return fmt.Errorf("worker %s: %w", w.ID, err)
	}
	return nil
}

// Beat says that a worker is alive. A worker that was forgotten is known again.
func (l *Ledger) Beat(ctx context.Context, w Worker) error {
	_, err := l.d.Exec(ctx, `INSERT INTO workers (id, host, pid, version, started_at, beat_at) VALUES ($1, $2, $3, $4, `+l.now+`, `+l.now+`)
		ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at`, w.ID, w.Host, int64(w.PID), w.Version)
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.ID, err)
	}
	return nil
}

// Deregister takes a worker away; what it still holds is free for others.
func (l *Ledger) Deregister(ctx context.Context, id string) error {
	if _, err := l.d.Exec(ctx, `DELETE FROM workers WHERE id = $1`, id); err != nil {
		return fmt.Errorf("worker %s: %w", id, err)
	}
	return nil
}

// Workers lists the workers that are known, the one heard last first.
func (l *Ledger) Workers(ctx context.Context) ([]Worker, error) {
	rows, err := l.d.Query(ctx, `SELECT id, host, pid, version, started_at, beat_at FROM workers ORDER BY beat_at DESC, id`)
	if err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	defer rows.Close()
	var ws []Worker
	for rows.Next() {
		var (
			w                  Worker
			pid, started, beat int64
		)
		if err := rows.Scan(&w.ID, &w.Host, &pid, &w.Version, &started, &beat); err != nil {
			return nil, fmt.Errorf("workers: %w", err)
		}
		w.PID, w.StartedAt, w.BeatAt = int(pid), fromMicros(started), fromMicros(beat)
		ws = append(ws, w)
	}
	return ws, rows.Err()
}

// ClaimOptions say how long a lease lasts and when its holder counts as dead.
type ClaimOptions struct {
	TTL        map[job.ResourceType]time.Duration // per family, longer than its worst step
	DefaultTTL time.Duration                      // of the other families; 15 minutes if it is 0
	DeadAfter  time.Duration                      // since the last beat; 10 seconds if it is 0
}

// A Claimed is a job with the lease to work on it.
type Claimed struct {
	Job       *job.Job
	Lease     Lease
	TakenFrom string // the worker that held the job and died or let its lease run out; empty if it was free
}

// Claim takes up to n jobs that are due for a worker, longest due first. A job
// is claimable when it is queued or running, its next_run_at has come, and
// nobody holds it: there is no lease, or it has expired, or its worker is silent
// for DeadAfter or unknown. It is one statement, in which PostgreSQL passes over
// rows that others hold locked and looks again at each row it locks: a job that
// was finished or claimed meanwhile is not taken (failure kind P1).
func (l *Ledger) Claim(ctx context.Context, worker string, n int, o ClaimOptions) ([]Claimed, error) {
	if n <= 0 {
		return nil, nil
	}
	if o.DefaultTTL <= 0 {
		o.DefaultTTL = 15 * time.Minute
	}
	if o.DeadAfter <= 0 {
		o.DeadAfter = 10 * time.Second
	}
	args := []any{worker, n, o.DeadAfter.Microseconds(), o.DefaultTTL.Microseconds()}
	byType := make(map[string]time.Duration, len(o.TTL))
	for t, ttl := range o.TTL {
		byType[string(t)] = ttl
	}
	ttl := ""
	for _, t := range sortedKeys(byType) {
		args = append(args, t, byType[t].Microseconds())
		ttl += fmt.Sprintf(" WHEN $%d THEN CAST($%d AS bigint)", len(args)-1, len(args))
	}
	if ttl == "" {
		ttl = "CAST($4 AS bigint)"
	} else {
		ttl = "CASE resource_type" + ttl + " ELSE CAST($4 AS bigint) END"
	}
	rows, err := l.d.Writer().Query(ctx, `WITH due AS MATERIALIZED (
			SELECT j.id FROM provisioning_jobs AS j
			WHERE j.status IN ('queued', 'running') AND j.next_run_at <= `+l.now+` AND (
				j.lease_token IS NULL OR j.lease_expires_at <= `+l.now+` OR
				NOT EXISTS (SELECT 1 FROM workers AS w WHERE w.id = j.lease_owner AND w.beat_at > `+l.now+` - $3))
			ORDER BY j.next_run_at, j.id LIMIT $2`+l.sql.skipLocked+`)
		UPDATE provisioning_jobs SET status = 'running', ever_claimed = true, version = version + 1, updated_at = `+l.now+`,
			taken_from = CASE WHEN lease_token IS NULL THEN '' ELSE lease_owner END,
			lease_owner = $1, lease_token = `+l.sql.newToken+`, lease_expires_at = `+l.now+` + `+ttl+`
		WHERE id IN (SELECT id FROM due)
		RETURNING `+jobColumns+`, lease_token, lease_expires_at, lease_expires_at - updated_at, taken_from`, args...)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	defer rows.Close()
	var out []Claimed
	for rows.Next() {
		c := Claimed{Lease: Lease{Worker: worker}}
		var expires, left int64
		if c.Job, err = scanJob(rows, &c.Lease.Token, &expires, &left, &c.TakenFrom); err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
		c.Lease.JobID, c.Lease.OrgID = c.Job.ID, c.Job.OrgID
		c.Lease.Expires, c.Lease.TTL = fromMicros(expires), time.Duration(left)*time.Microsecond
		out = append(out, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return out, nil
}

// held is the condition that a lease ($1 its job, $2 its token) still holds.
func (l *Ledger) held() string {
	return `id = $1 AND lease_token = $2 AND lease_expires_at > ` + l.now
}

// Renew makes a lease last ttl from now, and says whether the job's deletion was
// asked for. ErrLeaseLost is final.
func (l *Ledger) Renew(ctx context.Context, lease Lease, ttl time.Duration) (cancelRequested bool, err error) {
	err = l.d.Writer().QueryRow(ctx, `UPDATE provisioning_jobs SET lease_expires_at = `+l.now+` + $3 WHERE `+l.held()+` RETURNING cancel_requested`,
		lease.JobID, lease.Token, ttl.Microseconds()).Scan(&cancelRequested)
	if errors.Is(err, db.ErrNoRows) {
		return false, fmt.Errorf("job %s: %w", lease.JobID, ErrLeaseLost)
	}
	if err != nil {
		return false, fmt.Errorf("job %s: renew: %w", lease.JobID, err)
	}
	return cancelRequested, nil
}

// ReleaseAll gives leases back, so that their jobs can be claimed at once and no
// attempt is spent; without leases, all that the worker holds. Leases that are
// lost already are passed over.
func (l *Ledger) ReleaseAll(ctx context.Context, worker string, leases ...Lease) error {
	const free = `UPDATE provisioning_jobs SET lease_owner = '', lease_token = NULL, lease_expires_at = NULL, version = version + 1, updated_at = `
	if len(leases) == 0 {
		_, err := l.d.Exec(ctx, free+l.now+` WHERE lease_owner = $1 AND lease_token IS NOT NULL AND status IN ('queued', 'running')`, worker)
		if err != nil {
			return fmt.Errorf("worker %s: release: %w", worker, err)
		}
		return nil
	}
	for _, lease := range leases {
		_, err := l.d.Exec(ctx, free+l.now+` WHERE id = $1 AND lease_token = $2 AND lease_owner = $3`, lease.JobID, lease.Token, worker)
		if err != nil {
			return fmt.Errorf("job %s: release: %w", lease.JobID, err)
		}
	}
	return nil
}
