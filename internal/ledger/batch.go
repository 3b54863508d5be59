package ledger

import (
	"context"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// column is a column of an unnest: its name and PostgreSQL type.
type column = struct{ name, pgType string }

var stepNames = []column{
	{"job_id", "text"}, {"run", "bigint"}, {"step", "text"}, {"direction", "text"}, {"status", "text"}, {"attempts", "bigint"},
	{"waiting_for", "text"}, {"note", "text"}, {"started_at", "bigint"}, {"finished_at", "bigint"},
}

var eventNames = []column{
	{"job_id", "text"}, {"ord", "bigint"}, {"type", "text"}, {"step", "text"}, {"run", "bigint"}, {"attempt", "bigint"}, {"message", "text"},
}

// composeBatch is the statement that writes many checkpoints on PostgreSQL: the
// job rows whose fence holds, and the companions of those rows alone. It is one
// statement, so it is its own transaction, and one round trip.
func (l *Ledger) composeBatch(objects bool) string {
	n := 0
	unnest := func(alias string, cols []column) string {
		var arrays, names []string
		for _, c := range cols {
			n++
			arrays = append(arrays, "$"+strconv.Itoa(n)+"::"+c.pgType+"[]")
			names = append(names, c.name)
		}
		return "unnest(" + strings.Join(arrays, ", ") + ") AS " + alias + "(" + strings.Join(names, ", ") + ")"
	}
	pairs := []string{"{now}", l.now, "{json}", "::json"}
	for _, f := range fieldNames {
		pairs = append(pairs, "{"+f.name+"}", "i."+f.name)
	}
	// The jobs' unnest comes first in the text, so that its rows, which are in
	// the order of their IDs, drive the updates.
	text := `WITH done AS (UPDATE provisioning_jobs AS j SET ` + checkpointSet + ` FROM ` + unnest("i", fieldNames) + ` WHERE ` + checkpointFence + `
		RETURNING j.id, j.org_id, j.event_seq - i.events AS seq, j.updated_at, j.cancel_requested),
	steps AS (INSERT INTO job_steps (job_id, org_id, run, step, direction, status, attempts, waiting_for, note, started_at, finished_at)
		SELECT d.id, d.org_id, s.run, s.step, s.direction, s.status, s.attempts, s.waiting_for, s.note, s.started_at, s.finished_at
		FROM ` + unnest("s", stepNames) + ` JOIN done AS d ON d.id = s.job_id` + stepConflict + `),
	events AS (INSERT INTO job_events (job_id, seq, org_id, time, type, step, run, attempt, message)
		SELECT d.id, d.seq + e.ord, d.org_id, d.updated_at, e.type, e.step, e.run, e.attempt, e.message
		FROM ` + unnest("e", eventNames) + ` JOIN done AS d ON d.id = e.job_id)`
	if objects {
		for _, f := range objectNames {
			pairs = append(pairs, "{o."+f.name+"}", "o."+f.name)
		}
		pairs = append(pairs, "{o.org_id}", "d.org_id")
		values := strings.NewReplacer("{now}", "d.updated_at", "{", "{o.").Replace(objectValues)
		text += `, objects AS (` + objectInto + ` SELECT ` + values + ` FROM ` + unnest("o", objectNames) + ` JOIN done AS d ON d.id = o.job_id` + objectConflict + `)`
	}
	return strings.NewReplacer(pairs...).Replace(text + ` SELECT id, cancel_requested FROM done`)
}

// flushPostgres writes checkpoints in one statement, and each by itself if one
// of them spoils it. Those with audit entries are always written by themselves:
// the lock on the head of an audit chain is taken last and not shared.
func (l *Ledger) flushPostgres(ctx context.Context, ws []*write) {
	var batch, single []*write
	for _, w := range ws {
		if len(w.audit) > 0 {
			single = append(single, w)
		} else {
			batch = append(batch, w)
		}
	}
	if len(batch) > 0 {
		err := l.writeBatch(ctx, batch)
		switch {
		case err == nil:
		case db.Transient(err) && !deadlock(err):
			// The server is away; to ask it once a checkpoint would only take longer.
			for _, w := range batch {
				w.err = err
			}
		default:
			single = append(single, batch...)
		}
	}
	side(single, func(w *write) { l.writeOne(ctx, w) })
}

func (l *Ledger) writeBatch(ctx context.Context, ws []*write) error {
	jobs, steps, events, objects := newArrays(fieldNames, len(ws)), newArrays(stepNames, len(ws)), newArrays(eventNames, len(ws)), newArrays(objectNames, 0)
	byID := make(map[string]*write, len(ws))
	for _, w := range ws {
		byID[w.fields.id] = w
		jobs.add(w.fields.args()...)
		for i := range w.steps {
			steps.add(stepArgs(w.fields.id, &w.steps[i])...)
		}
		for i, e := range w.events {
			events.add(w.fields.id, int64(i+1), e.Type, e.Step, int64(e.Run), int64(e.Attempt), e.Message)
		}
		for i := range w.objects {
			objects.add(objectArgs(w.fields.id, &w.objects[i])...)
		}
	}
	args := append(append(jobs.args(), steps.args()...), events.args()...)
	text := l.sql.batch
	if objects.rows > 0 {
		text, args = l.sql.batchObjects, append(args, objects.args()...)
	}
	rows, err := l.d.Writer().Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			id     string
			cancel bool
		)
		if err := rows.Scan(&id, &cancel); err != nil {
			return err
		}
		byID[id].cancelRequested = cancel
		delete(byID, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	rows.Close()
	for _, w := range byID {
		w.err = l.whyFenced(ctx, l.d, w)
	}
	return nil
}

func stepArgs(id string, s *job.StepState) []any {
	return []any{id, int64(s.Run), s.Name, string(s.Direction), string(s.Status), int64(s.Attempts), s.WaitingFor, s.Note,
		micros(s.StartedAt), micros(s.FinishedAt)}
}
