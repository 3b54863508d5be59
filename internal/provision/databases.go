package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/steps"
)

// Logical keeps the secrets behind logical databases and connections.
type Logical interface {
	steps.Logical
	// Secret reads one that was committed; the error is secrets.ErrNotFound if none was.
	Secret(ctx context.Context, org, id string) (string, error)
}

// A DatabaseRequest asks for a logical database in a datastore.
type DatabaseRequest struct {
	Name string `json:"name" doc:"1 to 48 of a-z, 0-9 and underscore, starting with a letter"`
}

// Presets shows what the presets of a family mean.
func (s *Service) Presets(ctx context.Context, t job.ResourceType) ([]job.Preset, error) {
	if _, err := s.viewer(ctx, access.JobView); err != nil {
		return nil, err
	}
	return job.Presets(t), nil
}

// Databases lists the logical databases of a datastore job, the oldest first.
func (s *Service) Databases(ctx context.Context, ref string) ([]job.LogicalDatabase, error) {
	j, err := s.datastore(ctx, access.DatabaseView, ref, true)
	if err != nil {
		return nil, err
	}
	return s.Ledger.Databases(ctx, j.OrgID, j.ID)
}

// Database reads one logical database, by its ID or its name.
func (s *Service) Database(ctx context.Context, ref, database string) (*job.LogicalDatabase, error) {
	j, err := s.datastore(ctx, access.DatabaseView, ref, true)
	if err != nil {
		return nil, err
	}
	return s.databaseOf(ctx, j, database)
}

func (s *Service) databaseOf(ctx context.Context, j *job.Job, ref string) (*job.LogicalDatabase, error) {
	all, err := s.Ledger.Databases(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(d job.LogicalDatabase) bool { return d.ID == ref || d.Name == ref })
	if i < 0 {
		return nil, &Refusal{Kind: NotFound, Job: j.ID, Message: fmt.Sprintf("the job %s has no such database", j.Name), Hint: "GET …/databases lists what there is."}
	}
	return &all[i], nil
}

// CreateDatabase asks for a logical database. The same name again gives the same
// database, and tries one that failed again; created is false then.
func (s *Service) CreateDatabase(ctx context.Context, ref string, r DatabaseRequest) (d *job.LogicalDatabase, created bool, err error) {
	j, err := s.datastore(ctx, access.DatabaseCreate, ref, false)
	if err != nil {
		return nil, false, err
	}
	refused := func(err error) (*job.LogicalDatabase, bool, error) {
		return nil, false, s.refused(ctx, access.DatabaseCreate, j.ID, err)
	}
	if err := takesLogical(j, "no database is made in it", true); err != nil {
		return refused(err)
	}
	if message, fix := job.DatabaseNameFault(engineOf(j), r.Name); message != "" {
		return refused(invalid(job.FieldError{Field: "name", Message: fmt.Sprintf("%.60q %s", r.Name, message), Fix: fix}))
	}
	if err := s.reachable(ctx, j); err != nil {
		return refused(err)
	}
	err = s.changeLogical(ctx, access.DatabaseCreate, j, func(ctx context.Context, tx db.Q, p access.Principal) (due bool, e audit.Entry, err error) {
		row, added, err := s.Ledger.AddDatabase(ctx, tx, p.OrgID, steps.NewDatabase(j, r.Name, p.Actor))
		if err != nil {
			return false, e, err
		}
		if created = added; row.Status == job.LogicalDeleting {
			return false, e, refuse(WrongState, "Ask again once it is gone.", "the database %s is being deleted", r.Name)
		}
		if !added && row.Status == job.LogicalFailed {
			if err := s.Ledger.AskDatabase(ctx, tx, p.OrgID, row.ID, ledger.AskAgain); err != nil {
				return false, e, err
			}
			due = true
		}
		d = &row
		return added || due, audit.Entry{ResourceType: "database", ResourceID: row.ID, Detail: map[string]any{"job": j.ID, "name": r.Name, "new": added}}, nil
	})
	if err != nil {
		return nil, false, err
	}
	d, err = s.databaseOf(ctx, j, d.ID)
	return d, created, err
}

// DeleteDatabase asks for the end of a logical database and what is in it. The
// name has to be repeated, and no connection may be attached.
func (s *Service) DeleteDatabase(ctx context.Context, ref, database, confirm string) (*job.LogicalDatabase, error) {
	j, err := s.datastore(ctx, access.DatabaseDelete, ref, false)
	if err != nil {
		return nil, err
	}
	d, err := s.databaseOf(ctx, j, database)
	if err == nil {
		err = takesLogical(j, "no database in it is dropped", false)
	}
	if err == nil && confirm != d.Name {
		err = &Refusal{Kind: ConfirmationNeeded, Job: j.ID, Message: fmt.Sprintf("the database %s and everything in it would be gone; only a backup of the whole datastore has it then", d.Name),
			Hint: "Repeat the request with ?confirm=" + d.Name, Fields: []job.FieldError{{Field: "confirm", Message: "is not the database's name", Fix: "add ?confirm=" + d.Name}}}
	}
	if err != nil {
		return nil, s.refused(ctx, access.DatabaseDelete, j.ID, err)
	}
	err = s.changeLogical(ctx, access.DatabaseDelete, j, func(ctx context.Context, tx db.Q, p access.Principal) (bool, audit.Entry, error) {
		attached, err := s.Ledger.Connections(ctx, p.OrgID, j.ID)
		if err != nil {
			return false, audit.Entry{}, err
		}
		var names []string
		for _, c := range attached {
			if c.DatabaseID == d.ID && c.Status != job.LogicalDeleting {
				names = append(names, c.Service)
			}
		}
		if len(names) > 0 {
			return false, audit.Entry{}, refuse(WrongState, "Delete these connections first: whoever uses them would lose the database.", "connections are attached to the database %s: %v", d.Name, names)
		}
		err = s.Ledger.AskDatabase(ctx, tx, p.OrgID, d.ID, ledger.AskDelete)
		return true, audit.Entry{ResourceType: "database", ResourceID: d.ID, Detail: map[string]any{"job": j.ID, "name": d.Name}}, err
	})
	if err != nil {
		return nil, err
	}
	return s.databaseOf(ctx, j, d.ID)
}

// datastore finds the datastore or cache job that a request is about.
func (s *Service) datastore(ctx context.Context, policy access.Policy, ref string, look bool) (*job.Job, error) {
	p, err := access.Require(ctx, policy)
	if err != nil {
		return nil, s.refused(ctx, policy, ref, err)
	}
	j, err := s.find(ctx, p, policy, ref, look)
	if err == nil && j.ResourceType != job.Datastore && j.ResourceType != job.Cache {
		err = invalid(job.FieldError{Field: "jobID", Message: fmt.Sprintf("%s is a %s job, and databases and connections belong to datastores and caches", j.Name, j.ResourceType), Fix: "name a datastore or cache job"})
	}
	if err != nil {
		return nil, s.refused(ctx, policy, ref, err)
	}
	return j, nil
}

func engineOf(j *job.Job) job.Engine {
	if e := j.Config.InfraConfig.Datastore.Engine; e != "" {
		return e
	}
	spec, err := j.DatastoreSpec()
	if err != nil {
		return ""
	}
	return spec.Engine
}

// takesLogical refuses what a datastore does not take now. In one that is adopted
// nothing is ever made: it is its owner's.
func takesLogical(j *job.Job, what string, database bool) error {
	switch {
	case !j.Owns():
		return &Refusal{Kind: CustomerDatabase, Job: j.ID, Message: fmt.Sprintf("%s was adopted, so %s: the provisioner only reads it", j.Name, what), Hint: "Whoever runs the datastore makes databases and users in it."}
	case database && j.ResourceType == job.Cache:
		return invalid(job.FieldError{Field: "jobID", Message: j.Name + " is a cache, which has no logical databases", Fix: "make a connection: POST …/connections"})
	}
	switch st := j.State(); {
	case j.Cancelling || st.Phase == job.PhaseTeardown || st.Status == job.Cancelled:
		return refuse(WrongState, "Make another datastore.", "the job %s is being torn down, or was", j.Name)
	case st.Status == job.Draft:
		return refuse(WrongState, `Submit it with PATCH {"status":"queued"}; databases may also stand in config.spec.databases.`, "the job %s is a draft: there is no datastore yet", j.Name)
	case st == job.State{Status: job.Failed, Phase: job.PhaseProvision}:
		return refuse(WrongState, "Put right what its error names and retry it, then ask again.", "the job %s failed before its datastore was finished", j.Name)
	}
	return nil
}

// reachable refuses a logical database that could not be made from where this
// server stands, before anything is written.
func (s *Service) reachable(ctx context.Context, j *job.Job) error {
	if s.Logical == nil {
		return &Refusal{Kind: CloudNotAvailable, Message: "the secret store of this server is closed, and a password has to be kept before a role gets it", Hint: "Start the server with its key (ZOPDAY_SECRET_KEY), then ask again."}
	}
	if j.ResourceType == job.Cache {
		return nil
	}
	set, err := s.set(ctx, j)
	if err != nil {
		return err
	}
	c, ok := set.Cloud.(cloud.DatastoreFamily)
	if !ok {
		return refuse(CloudNotAvailable, "Make the datastore at another cloud.", "datastores are not offered at %s", j.Provider)
	}
	check := c.CheckReach(j)
	if check.Status != cloud.CheckFails {
		return nil
	}
	return &Refusal{Kind: Invalid, Message: check.Message, Hint: check.Fix, Job: j.ID, Fields: []job.FieldError{{Field: "jobID", Message: check.Message, Fix: check.Fix}}}
}

// changeLogical runs one change of logical databases or connections with the job's
// row locked, and starts the operation that carries it out. On a job that is at
// work already the row is taken up by that run, or by the next.
func (s *Service) changeLogical(ctx context.Context, policy access.Policy, j *job.Job, fn func(ctx context.Context, tx db.Q, p access.Principal) (due bool, e audit.Entry, err error)) error {
	held, err := s.barred(ctx, j)
	if err != nil {
		return s.refused(ctx, policy, j.ID, err)
	}
	var out *job.Job
	err = s.mutate(ctx, policy, j.ID, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		var entry audit.Entry
		var err error
		out, err = s.Ledger.Change(ctx, tx, p.OrgID, j.ID, func(j *job.Job, _ ledger.Standing) error {
			// What the request was checked against may have changed meanwhile.
			if err := takesLogical(j, "nothing in it is changed", false); err != nil {
				return err
			}
			due, e, err := fn(ctx, tx, p)
			entry = e
			var busy *job.TransitionError
			if err != nil || !due {
				return err
			}
			if held != nil {
				return held.refusal
			}
			if err := ledger.BeginLogical(j); !errors.As(err, &busy) {
				return err
			}
			return nil
		})
		return entry, err
	})
	if err != nil {
		return err
	}
	s.wake(ctx, out)
	return nil
}

// notReady says that something is not there yet.
func notReady(what string, status job.LogicalStatus, problem *job.Error) error {
	if problem != nil {
		return refuse(WrongState, "Ask for it again, which tries again, or delete it.", "%s failed: %s", what, problem.Message)
	}
	return refuse(WrongState, "Wait until it is ready, then ask again.", "%s is %s", what, status)
}

// Recommendations says which size a datastore or cache should have, from the
// cloud's metrics. Nothing of it is ever applied.
func (s *Service) Recommendations(ctx context.Context, ref string) ([]job.Recommendation, error) {
	j, err := s.datastore(ctx, access.JobView, ref, true)
	if err != nil {
		return nil, err
	}
	if j.Config.InfraConfig.Datastore.ID == "" || j.Status == job.Cancelled {
		return nil, refuse(WrongState, "Ask again once it is completed.", "the job %s has no datastore: it is %s", j.Name, j.Status)
	}
	set, err := s.set(ctx, j)
	if err != nil {
		return nil, err
	}
	out, err := set.Recommend(ctx, j, s.Pace)
	if err != nil {
		return nil, asked(err)
	}
	return out, nil
}
