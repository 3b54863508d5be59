package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// Steps returns a job's step rows, in the order in which they were first
// written as far as their start times tell.
func (l *Ledger) Steps(ctx context.Context, org, id string) ([]job.StepState, error) {
	rows, err := l.d.Query(ctx, `SELECT run, step, direction, status, attempts, waiting_for, note, started_at, finished_at
		FROM job_steps WHERE job_id = $1 AND org_id = $2
		ORDER BY run, coalesce(started_at, finished_at, 0), coalesce(finished_at, 0), step`, id, org)
	if err != nil {
		return nil, fmt.Errorf("steps of %s: %w", id, err)
	}
	defer rows.Close()
	var steps []job.StepState
	for rows.Next() {
		var (
			s                 job.StepState
			run, attempts     int64
			dir, status       string
			started, finished *int64
		)
		if err := rows.Scan(&run, &s.Name, &dir, &status, &attempts, &s.WaitingFor, &s.Note, &started, &finished); err != nil {
			return nil, fmt.Errorf("steps of %s: %w", id, err)
		}
		s.Run, s.Attempts, s.Direction, s.Status = int(run), int(attempts), job.Direction(dir), job.StepStatus(status)
		s.StartedAt, s.FinishedAt = timePtr(started), timePtr(finished)
		steps = append(steps, s)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("steps of %s: %w", id, err)
	}
	return steps, nil
}

// maxEvents is how many events are read at once at most.
const maxEvents = 10_000

// Events returns up to limit events of a job after a sequence number, oldest
// first. Numbers start at 1 and have no gaps.
func (l *Ledger) Events(ctx context.Context, org, id string, after int64, limit int) ([]job.Event, error) {
	if limit <= 0 || limit > maxEvents {
		limit = maxEvents
	}
	rows, err := l.d.Query(ctx, `SELECT seq, time, type, step, run, attempt, message FROM job_events
		WHERE job_id = $1 AND org_id = $2 AND seq > $3 ORDER BY seq LIMIT $4`, id, org, after, limit)
	if err != nil {
		return nil, fmt.Errorf("events of %s: %w", id, err)
	}
	defer rows.Close()
	var events []job.Event
	for rows.Next() {
		var (
			e            = job.Event{JobID: id}
			at           int64
			run, attempt int64
		)
		if err := rows.Scan(&e.Seq, &at, &e.Type, &e.Step, &run, &attempt, &e.Message); err != nil {
			return nil, fmt.Errorf("events of %s: %w", id, err)
		}
		e.Time, e.Run, e.Attempt = fromMicros(at), int(run), int(attempt)
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("events of %s: %w", id, err)
	}
	return events, nil
}

// Objects returns a job's inventory, oldest first.
func (l *Ledger) Objects(ctx context.Context, org, id string) ([]job.Object, error) {
	rows, err := l.d.Query(ctx, `SELECT cloud, account, region, kind, key, cloud_id, name, step, state, generation, reason,
		created_at, intent_at, removed_at FROM inventory WHERE job_id = $1 AND org_id = $2
		ORDER BY coalesce(intent_at, created_at, removed_at, 0), coalesce(created_at, 0), kind, key`, id, org)
	if err != nil {
		return nil, fmt.Errorf("inventory of %s: %w", id, err)
	}
	defer rows.Close()
	var objs []job.Object
	for rows.Next() {
		var (
			o                        = job.Object{JobID: id}
			cloud, state             string
			generation               int64
			created, intent, removed *int64
		)
		err := rows.Scan(&cloud, &o.Account, &o.Region, &o.Kind, &o.Key, &o.ID, &o.Name, &o.Step, &state, &generation, &o.Reason,
			&created, &intent, &removed)
		if err != nil {
			return nil, fmt.Errorf("inventory of %s: %w", id, err)
		}
		o.Cloud, o.State, o.Generation = job.Provider(cloud), job.ObjectStatus(state), int(generation)
		o.CreatedAt, o.IntentAt, o.RemovedAt = timePtr(created), timePtr(intent), timePtr(removed)
		objs = append(objs, o)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("inventory of %s: %w", id, err)
	}
	return objs, nil
}

// An IdempotencyRecord says which job a request with a key made.
type IdempotencyRecord struct {
	Key       string
	BodyHash  string
	JobID     string
	CreatedAt time.Time
}

// idempotencyTTL is how long a key is remembered.
const idempotencyTTL = 24 * time.Hour

// digest is how a key is stored: a caller's text of any length and content does
// not fit an index.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// IdempotencyGet reads what a key stands for, or ErrNotFound.
func (l *Ledger) IdempotencyGet(ctx context.Context, q db.Q, org, key string) (*IdempotencyRecord, error) {
	r := IdempotencyRecord{Key: key}
	var at int64
	err := q.QueryRow(ctx, `SELECT body_hash, job_id, created_at FROM idempotency_keys
		WHERE org_id = $1 AND key = $2 AND created_at > `+l.now+` - $3`, org, digest(key), idempotencyTTL.Microseconds()).
		Scan(&r.BodyHash, &r.JobID, &at)
	if errors.Is(err, db.ErrNoRows) {
		return nil, fmt.Errorf("idempotency key: %w", ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("idempotency key: %w", err)
	}
	r.CreatedAt = fromMicros(at)
	return &r, nil
}

// IdempotencyPut takes a key for a job that is about to be inserted in the same
// transaction. It returns the record that stands: another JobID in it means that
// the key was taken before, and of two requests at once the second waits for the
// first one's transaction and then sees its record.
func (l *Ledger) IdempotencyPut(ctx context.Context, q db.Q, org, key, bodyHash, jobID string) (*IdempotencyRecord, error) {
	_, err := q.Exec(ctx, `DELETE FROM idempotency_keys WHERE org_id = $1 AND created_at <= `+l.now+` - $2`, org, idempotencyTTL.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("idempotency key: %w", err)
	}
	_, err = q.Exec(ctx, `INSERT INTO idempotency_keys (org_id, key, body_hash, job_id, created_at) VALUES ($1, $2, $3, $4, `+l.now+`)
		ON CONFLICT (org_id, key) DO NOTHING`, org, digest(key), bodyHash, jobID)
	if err != nil {
		return nil, fmt.Errorf("idempotency key: %w", err)
	}
	return l.IdempotencyGet(ctx, q, org, key)
}

// A Count is how many jobs are in one state.
type Count struct {
	ResourceType job.ResourceType
	Status       job.Status
	Phase        job.Phase
	Jobs         int64
}

// Stats is what the metrics say of the whole ledger.
type Stats struct {
	Counts   []Count
	QueueAge time.Duration // how long the job that waits longest for a worker has been due
	Parked   int64         // active jobs that wait for their time
	Leased   int64
	Workers  int64 // that beat within the last minute
}

// Stats counts the jobs of all organisations.
func (l *Ledger) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	ctx = db.System(ctx)
	rows, err := l.d.Query(ctx, `SELECT resource_type, status, phase, count(*) FROM provisioning_jobs
		GROUP BY resource_type, status, phase ORDER BY resource_type, status, phase`)
	if err != nil {
		return s, fmt.Errorf("stats: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			c                    Count
			rtype, status, phase string
		)
		if err := rows.Scan(&rtype, &status, &phase, &c.Jobs); err != nil {
			return s, fmt.Errorf("stats: %w", err)
		}
		c.ResourceType, c.Status, c.Phase = job.ResourceType(rtype), job.Status(status), job.Phase(phase)
		s.Counts = append(s.Counts, c)
	}
	if err := rows.Err(); err != nil {
		return s, fmt.Errorf("stats: %w", err)
	}
	rows.Close()
	var age int64
	err = l.d.QueryRow(ctx, `SELECT
		coalesce(max(CASE WHEN lease_token IS NULL AND next_run_at <= `+l.now+` THEN `+l.now+` - next_run_at END), 0),
		count(CASE WHEN next_run_at > `+l.now+` THEN 1 END), count(lease_token),
		(SELECT count(*) FROM workers WHERE beat_at > `+l.now+` - 60000000)
		FROM provisioning_jobs WHERE status IN ('queued', 'running')`).Scan(&age, &s.Parked, &s.Leased, &s.Workers)
	if err != nil {
		return s, fmt.Errorf("stats: %w", err)
	}
	s.QueueAge = time.Duration(age) * time.Microsecond
	return s, nil
}
