package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// Logical databases and connections have two owners, like a job's row: what is
// asked for (deleting, wanted, revealed) is people's, how far it is is the
// engine's. So a request to delete is never lost to a worker that just finished
// making the thing.

const (
	databaseColumns = `id, job_id, name, owner_role, status, deleting, secret, attempts, error, created_by, created_at, updated_at`

	connectionColumns = `id, job_id, database_id, service, access, space_id, namespace, secret_name, variable, role, shared, status, deleting, begun,
	secret, wanted, attempts, error, revealed_at, revealed_by, rotated_at, created_by, created_at, updated_at`

	// dueDatabase and dueConnection are the rows with something to carry out.
	dueDatabase   = `(status IN ('pending', 'creating') OR (deleting AND status <> 'deleted'))`
	dueConnection = `(status IN ('pending', 'creating') OR (deleting AND status <> 'deleted') OR (status = 'ready' AND wanted > secret))`
)

type scanner interface{ Scan(dest ...any) error }

func scanDatabase(row scanner) (job.LogicalDatabase, error) {
	var (
		d                job.LogicalDatabase
		status           string
		deleting         bool
		secret, attempts int64
		problem          *string
		created, updated int64
	)
	err := row.Scan(&d.ID, &d.JobID, &d.Name, &d.OwnerRole, &status, &deleting, &secret, &attempts, &problem, &d.CreatedBy, &created, &updated)
	if err != nil {
		return d, err
	}
	d.Status, d.Secret, d.Attempts, d.CreatedAt, d.UpdatedAt = job.LogicalStatus(status), int(secret), int(attempts), fromMicros(created), fromMicros(updated)
	if deleting && d.Status != job.LogicalDeleted {
		d.Status = job.LogicalDeleting
	}
	d.Error, err = problemOf(problem)
	return d, err
}

func scanConnection(row scanner) (job.Connection, error) {
	var (
		c                        job.Connection
		status, access           string
		deleting                 bool
		secret, wanted, attempts int64
		problem                  *string
		revealed, rotated        *int64
		created, updated         int64
	)
	err := row.Scan(&c.ID, &c.JobID, &c.DatabaseID, &c.Service, &access, &c.SpaceID, &c.Namespace, &c.SecretName, &c.Variable, &c.Role, &c.Shared, &status,
		&deleting, &c.Begun, &secret, &wanted, &attempts, &problem, &revealed, &c.RevealedBy, &rotated, &c.CreatedBy, &created, &updated)
	if err != nil {
		return c, err
	}
	c.Status, c.Access = job.LogicalStatus(status), job.AccessMode(access)
	c.Secret, c.Wanted, c.Attempts = int(secret), int(wanted), int(attempts)
	c.RevealedAt, c.RotatedAt, c.CreatedAt, c.UpdatedAt = timePtr(revealed), timePtr(rotated), fromMicros(created), fromMicros(updated)
	switch {
	case deleting && c.Status != job.LogicalDeleted:
		c.Status = job.LogicalDeleting
	case c.Status == job.LogicalReady && c.Wanted > c.Secret:
		c.Status = job.LogicalRotating
	}
	c.Error, err = problemOf(problem)
	return c, err
}

func problemOf(text *string) (*job.Error, error) {
	if text == nil || *text == "" {
		return nil, nil
	}
	var e job.Error
	if err := json.Unmarshal([]byte(*text), &e); err != nil {
		return nil, fmt.Errorf("error: %w", err)
	}
	return &e, nil
}

func problemText(e *job.Error) (*string, error) {
	if e == nil {
		return nil, nil
	}
	return jsonText(e, false)
}

// Databases are a job's logical databases, the deleted ones left out, the oldest first.
func (l *Ledger) Databases(ctx context.Context, org, jobID string) ([]job.LogicalDatabase, error) {
	return gather(ctx, l.d, scanDatabase, `SELECT `+databaseColumns+` FROM databases WHERE org_id = $1 AND job_id = $2 AND status <> 'deleted' ORDER BY created_at, id`, org, jobID)
}

// Connections are a job's connections, the deleted ones left out, the oldest first.
func (l *Ledger) Connections(ctx context.Context, org, jobID string) ([]job.Connection, error) {
	return gather(ctx, l.d, scanConnection, `SELECT `+connectionColumns+` FROM connections WHERE org_id = $1 AND job_id = $2 AND status <> 'deleted' ORDER BY created_at, id`, org, jobID)
}

func gather[T any](ctx context.Context, q db.Q, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// AddDatabase inserts the row of a logical database that is asked for. One of that
// name that is there is returned instead, with added false: a race of two requests
// ends as one.
func (l *Ledger) AddDatabase(ctx context.Context, tx db.Q, org string, d job.LogicalDatabase) (have job.LogicalDatabase, added bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO databases (id, org_id, job_id, name, owner_role, status, secret, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, `+l.now+`, `+l.now+`) ON CONFLICT DO NOTHING`,
		d.ID, org, d.JobID, d.Name, d.OwnerRole, string(d.Status), int64(d.Secret), d.CreatedBy)
	if err != nil {
		return d, false, fmt.Errorf("database %s: %w", d.Name, err)
	}
	have, err = scanDatabase(tx.QueryRow(ctx, `SELECT `+databaseColumns+` FROM databases WHERE org_id = $1 AND job_id = $2 AND name = $3 AND status <> 'deleted'`, org, d.JobID, d.Name))
	if err != nil {
		return d, false, fmt.Errorf("database %s: %w", d.Name, err)
	}
	return have, n > 0, nil
}

// AddConnection inserts the row of a connection, as AddDatabase does.
func (l *Ledger) AddConnection(ctx context.Context, tx db.Q, org string, c job.Connection) (have job.Connection, added bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO connections (id, org_id, job_id, database_id, service, access, space_id, namespace, secret_name, variable, role, status, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, `+l.now+`, `+l.now+`) ON CONFLICT DO NOTHING`,
		c.ID, org, c.JobID, c.DatabaseID, c.Service, string(c.Access), c.SpaceID, c.Namespace, c.SecretName, c.Variable, c.Role, string(c.Status), c.CreatedBy)
	if err != nil {
		return c, false, fmt.Errorf("connection of %s: %w", c.Service, err)
	}
	have, err = scanConnection(tx.QueryRow(ctx, `SELECT `+connectionColumns+` FROM connections WHERE org_id = $1 AND job_id = $2 AND database_id = $3 AND service = $4 AND status <> 'deleted'`,
		org, c.JobID, c.DatabaseID, c.Service))
	if err != nil {
		return c, false, fmt.Errorf("connection of %s: %w", c.Service, err)
	}
	return have, n > 0, nil
}

// An Ask is what a person wants of a logical database or a connection.
type Ask int

// What can be asked.
const (
	AskDelete Ask = iota
	AskAgain      // of one that failed
	AskRotate     // of a connection: another password
	AskReveal     // of a connection: its secret has been shown
)

// AskDatabase writes what a person wants of a logical database.
func (l *Ledger) AskDatabase(ctx context.Context, tx db.Q, org, id string, ask Ask) error {
	set := `deleting = true`
	if ask == AskAgain {
		set = `status = CASE WHEN secret > 0 THEN 'creating' ELSE 'pending' END, error = NULL, attempts = 0`
	}
	return l.ask(ctx, tx, "databases", set, org, id)
}

// AskConnection writes what a person wants of a connection.
func (l *Ledger) AskConnection(ctx context.Context, tx db.Q, org, id, by string, ask Ask) error {
	switch ask {
	case AskDelete:
		return l.ask(ctx, tx, "connections", `deleting = true`, org, id)
	case AskAgain:
		return l.ask(ctx, tx, "connections", `status = CASE WHEN begun THEN 'creating' ELSE 'pending' END, error = NULL, attempts = 0`, org, id)
	case AskRotate:
		// One that is under way already is not started twice.
		return l.ask(ctx, tx, "connections", `wanted = CASE WHEN wanted > secret THEN wanted ELSE secret + 1 END, revealed_at = NULL, revealed_by = '',
			rotated_at = `+l.now+`, status = CASE WHEN status = 'failed' THEN 'creating' ELSE status END, error = NULL, attempts = 0`, org, id)
	case AskReveal:
		return l.ask(ctx, tx, "connections", `revealed_at = `+l.now+`, revealed_by = $3`, org, id, by)
	}
	return fmt.Errorf("connection %s: there is nothing like %d to be asked", id, ask)
}

func (l *Ledger) ask(ctx context.Context, tx db.Q, table, set, org, id string, more ...any) error {
	n, err := tx.Exec(ctx, `UPDATE `+table+` SET `+set+`, updated_at = `+l.now+` WHERE org_id = $1 AND id = $2 AND status <> 'deleted'`, append([]any{org, id}, more...)...)
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", table, id, err)
	}
	return nil
}

// LockConnection reads a connection and keeps others from changing it until the
// transaction ends: of two who want its secret, one gets it.
func (l *Ledger) LockConnection(ctx context.Context, tx db.Q, org, id string) (job.Connection, error) {
	c, err := scanConnection(tx.QueryRow(ctx, `SELECT `+connectionColumns+` FROM connections WHERE org_id = $1 AND id = $2`+db.ForUpdate(tx.Dialect()), org, id))
	if errors.Is(err, db.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return c, fmt.Errorf("connection %s: %w", id, err)
	}
	return c, nil
}

// PutLogical writes the engine's part of rows under a lease; what a spec asks for
// is inserted. ErrLeaseLost means that nothing was written.
func (l *Ledger) PutLogical(ctx context.Context, lease Lease, databases []job.LogicalDatabase, connections []job.Connection) error {
	err := l.d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
		var org string
		err := tx.QueryRow(ctx, `SELECT org_id FROM provisioning_jobs WHERE `+l.held()+db.ForUpdate(tx.Dialect()), lease.JobID, lease.Token).Scan(&org)
		if errors.Is(err, db.ErrNoRows) {
			return ErrLeaseLost
		}
		if err != nil {
			return err
		}
		for _, d := range databases {
			if err := l.putDatabase(ctx, tx, org, d); err != nil {
				return fmt.Errorf("database %s: %w", d.Name, err)
			}
		}
		for _, c := range connections {
			if err := l.putConnection(ctx, tx, org, c); err != nil {
				return fmt.Errorf("connection %s: %w", c.ID, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("job %s: %w", lease.JobID, err)
	}
	return nil
}

// unasked forgets the request for a deletion that was carried out, or that failed:
// it is asked for no more until somebody asks again.
const unasked = `deleting = CASE WHEN $2 IN ('deleted', 'failed') AND $7 THEN false ELSE deleting END`

// engineStatus is the engine's word for a row: what people asked for is not its to
// write.
func engineStatus(s job.LogicalStatus) string {
	switch s {
	case job.LogicalDeleting, job.LogicalRotating:
		return "" // people's words: the row keeps its own
	}
	return string(s)
}

func (l *Ledger) putDatabase(ctx context.Context, tx db.Q, org string, d job.LogicalDatabase) error {
	problem, err := problemText(d.Error)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `UPDATE databases SET status = CASE WHEN $2 = '' THEN status ELSE $2 END, `+unasked+`, secret = $3, attempts = $4, error = $5, updated_at = `+l.now+`
		WHERE id = $1 AND job_id = $6`, d.ID, engineStatus(d.Status), int64(d.Secret), int64(d.Attempts), problem, d.JobID, d.Dropping)
	if err != nil || n > 0 {
		return err
	}
	_, _, err = l.AddDatabase(ctx, tx, org, d)
	return err
}

func (l *Ledger) putConnection(ctx context.Context, tx db.Q, _ string, c job.Connection) error {
	problem, err := problemText(c.Error)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE connections SET status = CASE WHEN $2 = '' THEN status ELSE $2 END, `+unasked+`, secret = $3, attempts = $4, error = $5,
		role = $8, shared = $9, begun = $10, updated_at = `+l.now+` WHERE id = $1 AND job_id = $6`,
		c.ID, engineStatus(c.Status), int64(c.Secret), int64(c.Attempts), problem, c.JobID, c.Dropping, c.Role, c.Shared, c.Begun)
	return err
}

// WakeLogical starts the operation on logical databases of up to n finished jobs
// that have some of it to carry out: what was asked for while the job's last run
// was just ending.
func (l *Ledger) WakeLogical(ctx context.Context, n int) (started int, err error) {
	type due struct{ org, id string }
	jobs, err := gather(ctx, l.d, func(row scanner) (due, error) {
		var d due
		err := row.Scan(&d.org, &d.id)
		return d, err
	}, `SELECT j.org_id, j.id FROM provisioning_jobs j WHERE j.status = 'completed' AND j.id IN
		(SELECT job_id FROM databases WHERE `+dueDatabase+` UNION SELECT job_id FROM connections WHERE `+dueConnection+`) ORDER BY j.id LIMIT $1`, n)
	if err != nil {
		return 0, fmt.Errorf("logical databases to carry out: %w", err)
	}
	for _, d := range jobs {
		_, err := l.Change(ctx, nil, d.org, d.id, func(j *job.Job, _ Standing) error { return BeginLogical(j) })
		var refused *job.TransitionError
		switch {
		case err == nil:
			started++
		case errors.As(err, &refused), errors.Is(err, ErrLeased), errors.Is(err, ErrNotFound):
		default:
			var busy *SubjectBusyError
			if !errors.As(err, &busy) {
				return started, err
			}
		}
	}
	return started, nil
}

// BeginLogical moves a finished job into the operation on its logical databases.
func BeginLogical(j *job.Job) error {
	to, err := job.Next(j.State(), job.Operate)
	if err != nil {
		return err
	}
	j.Status, j.Phase, j.VMOp = to.Status, to.Phase, job.SyncDatabases
	j.Run, j.CurrentStep, j.Attempts, j.WaitingFor, j.Error, j.NextRunAt = j.Run+1, "", 0, "", nil, nil
	return nil
}
