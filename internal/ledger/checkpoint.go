package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// A Checkpoint is what a worker writes of a job at one time: all of it, or
// nothing if the lease does not hold.
type Checkpoint struct {
	// Job gives the engine's fields: Status, Phase, Run, VMOp, CurrentStep,
	// WaitingFor, Attempts and Error always, and Config.InfraConfig and Outputs
	// when Config and Outputs say so. No other field of it is written.
	Job     *job.Job
	Config  bool // Config.InfraConfig changed
	Outputs bool // Outputs changed

	Steps   []job.StepState // rows to insert or replace, by run, name and direction
	Events  []job.Event     // Seq, JobID and Time are the ledger's to give
	Objects []job.Object    // inventory rows to insert or replace, by kind and key
	Audit   []audit.Entry

	// Release gives the lease back. A job that is still active is then due in
	// NextIn. A checkpoint that leaves the active states releases in any case.
	Release bool
	NextIn  time.Duration
	// ClearCancel says that the request to delete was honoured.
	ClearCancel bool
}

// Checkpoint writes c under a lease and says whether the job's deletion was
// asked for. Concurrent calls share transactions: a call that comes while
// others are on their way waits for the next one, so that a fsync serves many,
// and a call that comes alone is written at once. The outcome is each call's
// own. ErrLeaseLost and ErrCancelRequested mean that nothing was written. When
// ctx ends while c is on its way, Checkpoint still waits to tell the outcome.
// While the database is away for some seconds (a restart, a failover) c is sent
// again, and written once even if only the reply was lost.
func (l *Ledger) Checkpoint(ctx context.Context, lease Lease, c Checkpoint) (cancelRequested bool, err error) {
	w, err := newWrite(lease, c)
	if err != nil {
		return false, err
	}
	if err := l.gather.submit(ctx, w); err != nil {
		return false, fmt.Errorf("job %s: checkpoint: %w", lease.JobID, err)
	}
	return w.cancelRequested, nil
}

// A write is a checkpoint made ready for the database.
type write struct {
	lease   Lease
	fields  fields
	steps   []job.StepState
	events  []job.Event
	objects []job.Object
	audit   []audit.Entry

	done            chan struct{}
	err             error
	cancelRequested bool
}

// fields are the values of the job's row, in the order of fieldNames.
type fields struct {
	id, token                  string
	status, phase              string
	run                        int64
	vmOp, step, waiting        string
	attempts                   int64
	failure, infra, outputs    *string
	clearCancel, release, park bool
	nextIn, events             int64
	final                      bool   // leaves the active states, and would lose a request to delete
	write                      string // names this write, so that it is known when it is sent again
}

// fieldNames are the placeholders of checkpointSet and checkpointFence, with
// their types on PostgreSQL.
var fieldNames = []struct{ name, pgType string }{
	{"id", "text"}, {"token", "text"}, {"status", "text"}, {"phase", "text"}, {"run", "bigint"}, {"vm_op", "text"}, {"step", "text"},
	{"waiting", "text"}, {"attempts", "bigint"}, {"failure", "text"}, {"infra", "text"}, {"outputs", "text"}, {"clear_cancel", "boolean"},
	{"release", "boolean"}, {"park", "boolean"}, {"next_in", "bigint"}, {"events", "bigint"}, {"final", "boolean"},
	{"write", "text"},
}

func (f *fields) args() []any {
	return []any{f.id, f.token, f.status, f.phase, f.run, f.vmOp, f.step, f.waiting, f.attempts, f.failure, f.infra, f.outputs,
		f.clearCancel, f.release, f.park, f.nextIn, f.events, f.final, f.write}
}

// checkpointSet is the SET clause of a checkpoint. next_run_at, which is in an
// index, is touched only together with a release, so that a step in the midst
// of a pass is a heap-only update. The documents are written only when they
// changed; all else that people own is not in it.
const checkpointSet = `status = {status}, phase = {phase}, run = {run}, vm_op = {vm_op}, current_step = {step}, waiting_for = {waiting},
	attempts = {attempts}, error = {failure}{json}, infra_config = coalesce({infra}{json}, j.infra_config),
	outputs = coalesce({outputs}{json}, j.outputs),
	cancel_requested = j.cancel_requested AND NOT {clear_cancel},
	event_seq = j.event_seq + {events}, last_write = {write}, version = j.version + 1, updated_at = {now},
	next_run_at = CASE WHEN NOT {release} THEN j.next_run_at WHEN {park} THEN {now} + {next_in} END,
	lease_owner = CASE WHEN {release} THEN '' ELSE j.lease_owner END,
	lease_token = CASE WHEN {release} THEN NULL ELSE j.lease_token END,
	lease_expires_at = CASE WHEN {release} THEN NULL ELSE j.lease_expires_at END`

// checkpointFence is what has to hold for any of it to be written: the lease,
// no request to delete that a final checkpoint would lose, and that it was not
// written already.
const checkpointFence = `j.id = {id} AND j.lease_token = {token} AND j.lease_expires_at > {now} AND NOT ({final} AND j.cancel_requested)
	AND j.last_write <> {write}`

// statements are the SQL texts that are composed once, for the dialect.
type statements struct {
	skipLocked, newToken string
	one                  string // a checkpoint's job row
	object               string // an inventory row
	batch, batchObjects  string // PostgreSQL: many checkpoints
}

func (l *Ledger) compose() statements {
	s := statements{newToken: "lower(hex(randomblob(16)))"}
	json := ""
	if l.d.Dialect() == db.Postgres {
		s.skipLocked, s.newToken, json = " FOR NO KEY UPDATE OF j SKIP LOCKED", "gen_random_uuid()::text", "::json"
		s.batch, s.batchObjects = l.composeBatch(false), l.composeBatch(true)
	}
	pairs := []string{"{now}", l.now, "{json}", json}
	for i, f := range fieldNames {
		pairs = append(pairs, "{"+f.name+"}", "$"+strconv.Itoa(i+1))
	}
	s.one = strings.NewReplacer(pairs...).Replace(`UPDATE provisioning_jobs AS j SET ` + checkpointSet + ` WHERE ` + checkpointFence +
		` RETURNING org_id, event_seq, updated_at, cancel_requested`)
	s.object = composeObject(l.now)
	return s
}

func newWrite(lease Lease, c Checkpoint) (*write, error) {
	j := c.Job
	if j == nil || j.ID != lease.JobID {
		return nil, fmt.Errorf("job %s: a checkpoint of another job", lease.JobID)
	}
	active := j.State().Active()
	w := &write{
		lease: lease, objects: c.Objects, audit: c.Audit, events: c.Events, done: make(chan struct{}),
		fields: fields{
			id: j.ID, token: lease.Token, status: string(j.Status), phase: string(j.Phase), run: int64(j.Run), vmOp: string(j.VMOp),
			step: j.CurrentStep, waiting: j.WaitingFor, attempts: int64(j.Attempts), clearCancel: c.ClearCancel,
			release: c.Release || !active, park: active, nextIn: max(c.NextIn, 0).Microseconds(), events: int64(len(c.Events)),
			final: !active && j.Phase != job.PhaseTeardown && !c.ClearCancel, write: rand.Text(),
		},
	}
	var err error
	if w.fields.failure, err = jsonText(j.Error, j.Error == nil); err != nil {
		return nil, fmt.Errorf("job %s: error: %w", j.ID, err)
	}
	// The documents are read only when they are to be written: the parts of a
	// step that run side by side record objects while one of them fills in infraConfig.
	if c.Config {
		if w.fields.infra, err = jsonText(j.Config.InfraConfig, false); err != nil {
			return nil, fmt.Errorf("job %s: infraConfig: %w", j.ID, err)
		}
	}
	if c.Outputs {
		if w.fields.outputs, err = jsonText(j.Outputs, false); err != nil {
			return nil, fmt.Errorf("job %s: outputs: %w", j.ID, err)
		}
		if j.Outputs == nil {
			empty := "{}"
			w.fields.outputs = &empty
		}
	}
	w.steps = lastOfEach(c.Steps, func(s job.StepState) [4]string {
		return [4]string{strconv.Itoa(s.Run), s.Name, string(s.Direction)}
	})
	w.objects = lastOfEach(c.Objects, func(o job.Object) [4]string { return [4]string{o.Kind, o.Key} })
	return w, nil
}

// lastOfEach drops rows that a later one replaces: one statement may not write
// a row twice.
func lastOfEach[T any](rows []T, key func(T) [4]string) []T {
	if len(rows) < 2 {
		return rows
	}
	last := make(map[[4]string]int, len(rows))
	for i, r := range rows {
		last[key(r)] = i
	}
	out := make([]T, 0, len(last))
	for i, r := range rows {
		if last[key(r)] == i {
			out = append(out, r)
		}
	}
	return out
}

// apply writes one checkpoint in a transaction. What it returns besides nil,
// ErrLeaseLost and ErrCancelRequested spoils the transaction.
func (l *Ledger) apply(ctx context.Context, tx db.Q, w *write) error {
	var (
		org         string
		lastSeq, at int64
	)
	err := tx.QueryRow(ctx, l.sql.one, w.fields.args()...).Scan(&org, &lastSeq, &at, &w.cancelRequested)
	if errors.Is(err, db.ErrNoRows) {
		return l.whyFenced(ctx, tx, w)
	}
	if err != nil {
		return err
	}
	for _, s := range w.steps {
		_, err := tx.Exec(ctx, `INSERT INTO job_steps (job_id, org_id, run, step, direction, status, attempts, waiting_for, note, started_at, finished_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`+stepConflict,
			w.fields.id, org, int64(s.Run), s.Name, string(s.Direction), string(s.Status), int64(s.Attempts), s.WaitingFor, s.Note,
			micros(s.StartedAt), micros(s.FinishedAt))
		if err != nil {
			return fmt.Errorf("step %s: %w", s.Name, err)
		}
	}
	if err := insertEvents(ctx, tx, org, w.fields.id, lastSeq-w.fields.events, at, w.events); err != nil {
		return err
	}
	if err := l.upsertObjects(ctx, tx, org, w.fields.id, w.objects); err != nil {
		return err
	}
	return audit.Append(ctx, tx, w.audit...)
}

const stepConflict = ` ON CONFLICT (job_id, run, step, direction) DO UPDATE SET status = excluded.status, attempts = excluded.attempts,
	waiting_for = excluded.waiting_for, note = excluded.note, started_at = excluded.started_at, finished_at = excluded.finished_at`

// whyFenced says why a checkpoint wrote nothing: its lease is lost, the job's
// deletion was asked for, or it was written before and its reply was lost, which
// is no error.
func (l *Ledger) whyFenced(ctx context.Context, q db.Q, w *write) error {
	var (
		held, cancel bool
		last         string
	)
	err := q.QueryRow(ctx, `SELECT coalesce(lease_token = $2 AND lease_expires_at > `+l.now+`, false), cancel_requested, last_write
		FROM provisioning_jobs WHERE id = $1`, w.fields.id, w.fields.token).Scan(&held, &cancel, &last)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return ErrLeaseLost
	case err != nil:
		return err
	case last == w.fields.write:
		w.cancelRequested = cancel
		return nil
	case held && cancel && w.fields.final:
		w.cancelRequested = true
		return ErrCancelRequested
	}
	return ErrLeaseLost
}

// refused reports whether err is a checkpoint's own outcome, after which its
// neighbours in the transaction stand.
func refused(err error) bool {
	return errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrCancelRequested)
}

// writeOne writes one checkpoint in a transaction of its own.
func (l *Ledger) writeOne(ctx context.Context, w *write) {
	w.err = l.d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return l.apply(ctx, tx, w) })
	if db.Unique(w.err) {
		if err := l.whoOwns(ctx, w.lease.OrgID, w.fields.id, w.objects); err != nil {
			w.err = err
		}
	}
}

// flushSQLite writes checkpoints in one transaction, and each by itself if one
// of them spoils it.
func (l *Ledger) flushSQLite(ctx context.Context, ws []*write) {
	err := l.d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
		for _, w := range ws {
			if w.err = l.apply(ctx, tx, w); w.err != nil && !refused(w.err) {
				return w.err
			}
		}
		return nil
	})
	if err != nil {
		for _, w := range ws {
			l.writeOne(ctx, w)
		}
	}
}
