package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Logical keeps the secrets and reads the rows of logical databases and
// connections. The rows are written through the run, under its lease.
type Logical interface {
	// Rows are a job's, the deleted ones left out, the oldest first.
	Rows(ctx context.Context, org, jobID string) ([]job.LogicalDatabase, []job.Connection, error)

	// Password is the secret of an ID. The first to ask makes it and commits it,
	// and everybody who asks later gets that one: it is kept before any role has it.
	Password(ctx context.Context, org, id string) (string, error)

	// Keep puts a secret that a cloud has made.
	Keep(ctx context.Context, org, id, secret string) error

	// Forget removes a secret; one that is gone already is no error.
	Forget(ctx context.Context, org, id string) error
}

// OpenSQL opens the way to a datastore's logical databases and roles.
type OpenSQL func(ctx context.Context, access cloud.SQLAccess) (SQLServer, error)

// A SQLServer makes logical databases and roles on one datastore that the job
// made. Every method may be repeated after any crash. Errors have a
// pipeline.Class: Unavailable when the server does not answer, Denied when it lets
// the administrator do no such thing, Busy when it is in use.
type SQLServer interface {
	// Database says whether a database exists, and whether it belongs to the role.
	Database(ctx context.Context, name, owner string) (exists, ours bool, err error)

	// CreateDatabase makes a database for a role that exists, and lets nobody else
	// in; one that exists and is the role's is brought into line.
	CreateDatabase(ctx context.Context, name, owner string) error

	// DropDatabase ends what is connected to it and drops it.
	DropDatabase(ctx context.Context, name string) error

	// SetRole makes a role that may log in and nothing else, or gives it another
	// password. The password never stands in an error.
	SetRole(ctx context.Context, role, password string) error

	// Grant lets a role use a database, as far as mode says and no further.
	Grant(ctx context.Context, role, database, owner string, mode job.AccessMode) error

	// DropRole ends a role's sessions and drops it; what it made in the database
	// goes to the owner. owner is "" when the role is the owner itself.
	DropRole(ctx context.Context, role, database, owner string) error

	Close(ctx context.Context) error
}

// logicalTries is how often what is under way is tried before it is given up with
// a reason; the tries are seconds apart.
const logicalTries = 12

// logicalPatience is how long, in cloud time, something may be waited for.
const logicalPatience = time.Hour

// reachChecks asks, before anything is made, whether logical databases could be
// made later: with a private datastore that is a question of where the provisioner
// stands.
func (s Set) reachChecks(r *pipeline.Run) []cloud.Check {
	if r.Job.ResourceType != job.Datastore || !r.Job.Owns() {
		return nil
	}
	spec, err := r.Job.DatastoreSpec()
	c, ok := s.Cloud.(cloud.DatastoreFamily)
	if err != nil || len(spec.Databases) == 0 || !ok {
		return nil
	}
	return []cloud.Check{c.CheckReach(r.Job)}
}

// syncDatabases brings logical databases and connections into line with their
// rows. One that cannot be made fails alone, with its reason; a database that the
// spec asks for fails the job that is provisioned.
func (s Set) syncDatabases(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.DatastoreSpec()
	if err != nil {
		return err
	}
	switch {
	case r.Mode == pipeline.Plan:
		for _, d := range spec.Databases {
			r.AddPlanned("sql:database", d.Name, d.Name)
		}
		return nil
	case s.Logical == nil:
		if len(spec.Databases) > 0 && r.Mode == pipeline.Apply {
			return pipeline.Fatal("no-secret-store", "logical databases need the secret store, which is closed", "Give this server its key (ZOPDAY_SECRET_KEY), then retry.")
		}
		return nil
	}
	w := &logicalWork{Set: s, r: r}
	defer w.close(ctx)
	if w.databases, w.connections, err = s.Logical.Rows(ctx, r.Job.OrgID, r.Job.ID); err != nil {
		return err
	}
	if r.Mode == pipeline.Verify {
		return w.verify(ctx)
	}
	if err := w.ask(ctx, spec.Databases); err != nil {
		return err
	}
	return w.sync(ctx)
}

// logicalWork is one pass over a job's logical databases and connections.
type logicalWork struct {
	Set
	r           *pipeline.Run
	databases   []job.LogicalDatabase
	connections []job.Connection
	sql         SQLServer
	waits       []error
}

func (w *logicalWork) close(ctx context.Context) {
	if w.sql != nil {
		_ = w.sql.Close(context.WithoutCancel(ctx)) // nothing hangs on it: every statement was answered
	}
}

// server is the datastore as SQL sees it.
func (w *logicalWork) server(ctx context.Context) (SQLServer, error) {
	if w.sql != nil {
		return w.sql, nil
	}
	c, err := w.datastores(w.r.Job.Provider)
	if err != nil {
		return nil, err
	}
	access, err := c.SQLAccess(ctx, w.r.Job)
	if err != nil {
		return nil, err
	}
	w.sql, err = w.SQL(ctx, access)
	return w.sql, err
}

// ask makes rows of what the spec asks for, and tries again what failed before a
// retry of the job.
func (w *logicalWork) ask(ctx context.Context, specs []job.DatabaseSpec) error {
	if w.r.Job.Phase != job.PhaseProvision {
		return nil
	}
	var changed []job.LogicalDatabase
	asked := w.r.Job.Config.InfraConfig.Datastore.Asked
	for _, d := range specs {
		at := slices.IndexFunc(w.databases, func(row job.LogicalDatabase) bool { return row.Name == d.Name })
		if at < 0 {
			if !slices.Contains(asked, d.Name) { // otherwise it was made, and somebody has deleted it since
				asked = append(asked, d.Name)
				changed = append(changed, NewDatabase(w.r.Job, d.Name, w.r.Job.CreatedBy))
			}
			continue
		}
		if row := &w.databases[at]; row.Status == job.LogicalFailed {
			row.Status, row.Error, row.Attempts = job.LogicalPending, nil, 0
			if row.Secret > 0 {
				row.Status = job.LogicalCreating // it was begun: what is there of it is ours
			}
			changed = append(changed, *row)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if err := w.r.SaveLogical(ctx, changed, nil); err != nil {
		return err
	}
	w.r.Job.Config.InfraConfig.Datastore.Asked = asked
	if err := w.r.Save(ctx); err != nil {
		return err
	}
	// Somebody may have asked for one of that name at the same moment: then that row counts.
	var err error
	w.databases, w.connections, err = w.Logical.Rows(ctx, w.r.Job.OrgID, w.r.Job.ID)
	return err
}

// NewDatabase is the row of a logical database that is asked for.
func NewDatabase(j *job.Job, name, by string) job.LogicalDatabase {
	id := job.NewID("db")
	return job.LogicalDatabase{ID: id, JobID: j.ID, Name: name, OwnerRole: job.RoleName(name, id), Status: job.LogicalPending, CreatedBy: by}
}

// sync carries out what is asked for: first what goes, then what comes.
func (w *logicalWork) sync(ctx context.Context) error {
	var failed []string
	for i := range w.connections {
		if c := &w.connections[i]; c.Status == job.LogicalDeleting {
			if err := w.connection(ctx, c, w.dropConnection); err != nil {
				return err
			}
		}
	}
	for i := range w.databases {
		d := &w.databases[i]
		switch d.Status {
		case job.LogicalDeleting:
			if err := w.database(ctx, d, w.dropDatabase, job.LogicalDeleted); err != nil {
				return err
			}
		case job.LogicalPending, job.LogicalCreating:
			if err := w.database(ctx, d, w.createDatabase, job.LogicalReady); err != nil {
				return err
			}
			if d.Status == job.LogicalFailed {
				failed = append(failed, fmt.Sprintf("database %s: %s", d.Name, d.Error.Message))
			}
		}
	}
	for i := range w.connections {
		if c := &w.connections[i]; c.Status.Due() && c.Status != job.LogicalDeleting {
			if err := w.connection(ctx, c, w.createConnection); err != nil {
				return err
			}
		}
	}
	if err := pipeline.Gravest(w.waits...); err != nil {
		return err
	}
	if len(failed) > 0 && w.r.Job.Phase == job.PhaseProvision {
		return pipeline.Fatal("database-failed", failed[0], "Put right what the reason names, then retry; or take the database out of config.spec.databases (PATCH) and retry.").On("config.spec.databases")
	}
	return nil
}

// settled says what an error means for one row: over says that nothing more is
// tried now, and problem why it failed.
func (w *logicalWork) settled(what string, attempts *int, err error) (problem *job.Error, again bool, stop error) {
	var fatal *pipeline.FatalError
	var wait *pipeline.WaitError
	switch {
	case err == nil:
		w.r.WaitOver(what)
		return nil, false, nil
	case errors.Is(err, pipeline.ErrLeaseLost), errors.Is(err, context.Canceled):
		return nil, false, err
	case errors.As(err, &wait):
		if kube.Overdue(w.r, what, logicalPatience) {
			w.r.WaitOver(what)
			return &job.Error{Code: "timed-out", Message: fmt.Sprintf("after %s still waiting for %s", logicalPatience, wait.For), Hint: "Look at it in the cloud's console, then ask for it again: it goes on where it was."}, false, nil
		}
		w.waits = append(w.waits, err)
		return nil, true, nil
	case errors.As(err, &fatal):
		p := fatal.Problem
		return &p, false, nil
	case pipeline.Is(err, pipeline.Denied, pipeline.Invalid, pipeline.Exists, pipeline.Quota):
		return &job.Error{Code: string(pipeline.ClassOf(err)), Message: err.Error(), Hint: "Put right what the message names, then ask for it again."}, false, nil
	}
	*attempts++
	if *attempts >= logicalTries {
		*attempts = 0
		return &job.Error{Code: "gave-up", Message: fmt.Sprintf("%d tries did not work; the last: %v", logicalTries, err), Hint: "Look at what the message names, then ask for it again: it goes on where it was."}, false, nil
	}
	// The server is real also where the cloud around it is simulated and faster.
	w.waits = append(w.waits, pipeline.Wait(kube.Pause(w.r.Pace, 3*time.Second), "another try of %s: %v", what, err))
	return nil, true, nil
}

// database carries one row's work out and saves how it ended.
func (w *logicalWork) database(ctx context.Context, d *job.LogicalDatabase, do func(context.Context, *job.LogicalDatabase) error, done job.LogicalStatus) error {
	d.Dropping = d.Status == job.LogicalDeleting
	problem, again, stop := w.settled("database "+d.Name, &d.Attempts, do(ctx, d))
	if stop != nil {
		return stop
	}
	switch {
	case problem != nil:
		d.Status, d.Error = job.LogicalFailed, problem
	case !again:
		d.Status, d.Error, d.Attempts = done, nil, 0
	}
	if err := w.r.SaveLogical(ctx, []job.LogicalDatabase{*d}, nil); err != nil {
		return err
	}
	return w.tell(ctx, "database "+d.Name, d.Status, problem)
}

func (w *logicalWork) tell(ctx context.Context, what string, status job.LogicalStatus, problem *job.Error) error {
	switch {
	case problem != nil:
		return w.r.Event(ctx, "database.failed", "%s failed: %s", what, problem.Message)
	case status == job.LogicalReady, status == job.LogicalDeleted:
		return w.r.Event(ctx, "database."+string(status), "%s is %s", what, status)
	}
	return nil
}

// createDatabase makes a database with its owner. The intent is committed once the
// name was seen to be free, and the password before the role has it.
func (w *logicalWork) createDatabase(ctx context.Context, d *job.LogicalDatabase) error {
	sql, err := w.server(ctx)
	if err != nil {
		return err
	}
	exists, ours, err := sql.Database(ctx, d.Name, d.OwnerRole)
	if err != nil {
		return err
	}
	if exists && !ours && d.Status == job.LogicalPending {
		return pipeline.Fatal("database-exists", fmt.Sprintf("the datastore has a database %s already, which this job did not make, so it was not touched", d.Name),
			"Choose another name, or use that database with a role that its owner makes.").On("name")
	}
	password, err := w.Logical.Password(ctx, w.r.Job.OrgID, job.SecretID(d.ID, max(d.Secret, 1)))
	if err != nil {
		return err
	}
	d.Status, d.Secret = job.LogicalCreating, max(d.Secret, 1)
	if err := w.r.SaveLogical(ctx, []job.LogicalDatabase{*d}, nil); err != nil {
		return err
	}
	if err := sql.SetRole(ctx, d.OwnerRole, password); err != nil {
		return err
	}
	return sql.CreateDatabase(ctx, d.Name, d.OwnerRole)
}

// dropDatabase drops a database that this job made, and its owner.
func (w *logicalWork) dropDatabase(ctx context.Context, d *job.LogicalDatabase) error {
	if d.Secret > 0 { // otherwise nothing of it was ever begun
		sql, err := w.server(ctx)
		if err != nil {
			return err
		}
		exists, ours, err := sql.Database(ctx, d.Name, d.OwnerRole)
		if err != nil {
			return err
		}
		if exists && !ours {
			w.r.Note("the database %s is not owned by %s, so it is somebody else's and stays as it is", d.Name, d.OwnerRole)
		}
		if exists && ours {
			if err := sql.DropDatabase(ctx, d.Name); err != nil {
				return err
			}
		}
		if err := sql.DropRole(ctx, d.OwnerRole, "", ""); err != nil {
			return err
		}
	}
	return w.Logical.Forget(ctx, w.r.Job.OrgID, job.SecretID(d.ID, max(d.Secret, 1)))
}

// verify tells which databases that should be there are not.
func (w *logicalWork) verify(ctx context.Context) error {
	for _, d := range w.databases {
		if d.Status != job.LogicalReady {
			continue
		}
		sql, err := w.server(ctx)
		if err != nil {
			w.r.Note("logical databases not looked at: %v", err)
			return nil // what cannot be reached from here is no drift
		}
		exists, ours, err := sql.Database(ctx, d.Name, d.OwnerRole)
		switch {
		case err != nil:
			return err
		case !exists:
			w.r.AddDrift(pipeline.Drift{Kind: "sql:database", Key: d.Name, Attr: "exists", Wanted: "yes", Seen: "no"})
		case !ours:
			w.r.AddDrift(pipeline.Drift{Kind: "sql:database", Key: d.Name, Attr: "owner", Wanted: d.OwnerRole, Seen: "another role"})
		}
	}
	return nil
}
