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

// What the ledger refuses with.
var (
	// ErrNotFound is a job that does not exist, or not in this organisation.
	ErrNotFound = errors.New("not found")
	// ErrLeaseLost is a worker's write under a lease that is not its own any
	// more: nothing was written, and the worker has to leave the job alone.
	ErrLeaseLost = errors.New("the lease on the job is lost")
	// ErrCancelRequested is a checkpoint that would have finished or failed a job
	// whose deletion was asked for meanwhile. Nothing was written; the worker
	// writes the same checkpoint with the job yielded to its teardown instead.
	ErrCancelRequested = errors.New("the job's deletion was asked for while it ran")
	// ErrLeased is a Change of what the engine owns while a worker is at work.
	ErrLeased = errors.New("a worker is at work on the job")
	// ErrConflict is an optimistic write that came too late.
	ErrConflict = errors.New("the job was changed meanwhile")
	// ErrBadCursor is a cursor that List did not hand out for this sorting.
	ErrBadCursor = errors.New("the cursor is not one of this list")
)

// NameTakenError is a name that another live job of the organisation and
// resource type has. HolderID is empty when that job came at the very same moment.
type NameTakenError struct{ HolderID string }

func (e *NameTakenError) Error() string {
	if e.HolderID == "" {
		return "the name is taken by another job"
	}
	return "the name is taken by job " + e.HolderID
}

// SubjectBusyError is a subject that another queued or running job works on.
// HolderID is empty when that job came at the very same moment.
type SubjectBusyError struct{ HolderID string }

func (e *SubjectBusyError) Error() string {
	if e.HolderID == "" {
		return "another job works on the same subject"
	}
	return "job " + e.HolderID + " works on the same subject"
}

// OwnedElsewhereError is a cloud object that the inventory has as another job's.
// JobID is empty if that job belongs to another organisation.
type OwnedElsewhereError struct {
	JobID  string
	Object job.Object // the one that was to be recorded
}

func (e *OwnedElsewhereError) Error() string {
	who := "another organisation's job"
	if e.JobID != "" {
		who = "job " + e.JobID
	}
	return fmt.Sprintf("%s %s belongs to %s", e.Object.Kind, e.Object.ID, who)
}

// A Lease is the right to write one job: it holds while its token is the one in
// the job's row and has not expired by the database's clock.
type Lease struct {
	JobID   string
	OrgID   string
	Worker  string
	Token   string
	TTL     time.Duration // as claimed; the worker fences itself by it on its own monotonic clock
	Expires time.Time     // in the database's clock, for people
}

// A Worker is one process that claims jobs.
type Worker struct {
	ID        string    `json:"id"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	BeatAt    time.Time `json:"beatAt"`
}

// Standing is how a job stands towards workers.
type Standing struct {
	Leased      bool // a worker holds it, dead or alive, and its lease has not expired
	EverClaimed bool // a worker held it at some time, so something may exist at the cloud
	Worker      string
	Expires     time.Time // of the lease
	TakenFrom   string    // the dead worker that the lease was taken over from
}

// Options are the ledger's knobs; zero values are good.
type Options struct {
	MaxFlights int // checkpoint transactions in flight at most; 4 on PostgreSQL, always 1 on SQLite
	MaxBatch   int // checkpoints in one transaction at most; 128
}

// A Ledger is the table provisioning_jobs and its companions.
type Ledger struct {
	d      *db.DB
	now    string // the SQL expression of the database's clock, evaluated once a statement
	gather *gatherer
	wake   *broadcaster
	sql    statements
}

// New makes a ledger on a migrated database.
func New(d *db.DB, o Options) *Ledger {
	l := &Ledger{d: d, now: "(SELECT " + d.Now() + ")", wake: newBroadcaster()}
	l.sql = l.compose()
	if o.MaxBatch <= 0 {
		o.MaxBatch = 128
	}
	if o.MaxFlights <= 0 {
		o.MaxFlights = 4
	}
	flush := l.flushPostgres
	if d.Dialect() == db.SQLite {
		o.MaxFlights, flush = 1, l.flushSQLite
	}
	l.gather = newGatherer(o.MaxFlights, o.MaxBatch, flush)
	return l
}

// DB is the database that the ledger is on, for transactions that span the
// ledger, the audit log and the secrets.
func (l *Ledger) DB() *db.DB { return l.d }

// writable is a Q that takes statements which write and return rows.
func writable(q db.Q) db.Q {
	if d, ok := q.(*db.DB); ok {
		return d.Writer()
	}
	return q
}

// inTx runs fn in the caller's transaction, or in one of its own if q is nil or
// the database itself.
func (l *Ledger) inTx(ctx context.Context, q db.Q, fn func(ctx context.Context, tx db.Q) error) error {
	if q == nil {
		return l.d.InTx(ctx, fn)
	}
	if d, ok := q.(*db.DB); ok {
		return d.InTx(ctx, fn)
	}
	return fn(ctx, q)
}

// jobColumns is what scanJob reads, in its order.
const jobColumns = `id, org_id, team_id, kind, resource_type, provider, mode, name, cloud_account_id, region, labels, subject_type, subject_id,
	status, phase, run, vm_op, current_step, waiting_for, next_run_at, attempts, cancel_requested,
	spec, infra_config, outputs, error, created_by, created_at, updated_at, version, spec_revision, observed_at`

// scanJob reads the columns of jobColumns and whatever follows them.
func scanJob(row db.Row, more ...any) (*job.Job, error) {
	var (
		j                            job.Job
		kind, rtype, provider, mode  string
		status, phase, vmOp          string
		labels, spec, infra          []byte
		outputs, failure             []byte
		nextRun, observed            *int64
		createdAt, updatedAt         int64
		run, attempts                int64
		version, specRevision        int64
		cancelling                   bool
		subjectType, subjectID, name string
	)
	dest := []any{&j.ID, &j.OrgID, &j.TeamID, &kind, &rtype, &provider, &mode, &name, &j.CloudAccountID, &j.Region, &labels, &subjectType, &subjectID,
		&status, &phase, &run, &vmOp, &j.CurrentStep, &j.WaitingFor, &nextRun, &attempts, &cancelling,
		&spec, &infra, &outputs, &failure, &j.CreatedBy, &createdAt, &updatedAt, &version, &specRevision, &observed}
	if err := row.Scan(append(dest, more...)...); err != nil {
		return nil, err
	}
	j.Kind, j.ResourceType, j.Provider, j.Mode = job.Kind(kind), job.ResourceType(rtype), job.Provider(provider), job.Mode(mode)
	j.Status, j.Phase, j.VMOp = job.Status(status), job.Phase(phase), job.VMOp(vmOp)
	j.Name, j.SubjectType, j.SubjectID = name, subjectType, subjectID
	j.Run, j.Attempts, j.Version, j.SpecRevision, j.Cancelling = int(run), int(attempts), version, specRevision, cancelling
	j.CreatedAt, j.UpdatedAt, j.NextRunAt = fromMicros(createdAt), fromMicros(updatedAt), timePtr(nextRun)
	j.Config.Spec = json.RawMessage(spec)
	for _, part := range []struct {
		what string
		text []byte
		into any
	}{
		{"labels", labels, &j.Labels}, {"infra_config", infra, &j.Config.InfraConfig}, {"outputs", outputs, &j.Outputs}, {"error", failure, &j.Error},
	} {
		if len(part.text) == 0 {
			continue
		}
		if err := json.Unmarshal(part.text, part.into); err != nil {
			return nil, fmt.Errorf("job %s: %s: %w", j.ID, part.what, err)
		}
	}
	if len(j.Labels) == 0 {
		j.Labels = nil
	}
	// An observation that saw nothing new writes only the column.
	if at, infra := timePtr(observed), &j.Config.InfraConfig; at != nil && infra.ObservedAt != nil && at.After(*infra.ObservedAt) {
		infra.ObservedAt = at
	}
	return &j, nil
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

func timePtr(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := fromMicros(*us)
	return &t
}

func micros(t *time.Time) *int64 {
	if t == nil || t.IsZero() {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// jsonText is v as JSON, and nil for what is empty.
func jsonText(v any, empty bool) (*string, error) {
	if empty {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s := string(b)
	return &s, nil
}
