package gcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// CheckReach says that statements get to an instance from everywhere: they go over
// Cloud SQL's own API, which asks IAM about every one.
func (p *Provider) CheckReach(*job.Job) cloud.Check {
	return cloud.Check{Name: "reach of the datastore", Status: cloud.CheckOK,
		Message: "statements go over the Cloud SQL Data API, which reaches private instances too"}
}

// SQLAccess is how logical databases and roles are made: statements run over
// instances.executeSql as the administrator, whose password Cloud SQL itself reads
// from the secret, so that it never passes through here.
func (p *Provider) SQLAccess(_ context.Context, j *job.Job) (cloud.SQLAccess, error) {
	d := j.Config.InfraConfig.Datastore
	switch {
	case !j.Owns() || d.Engine.Cache():
		return cloud.SQLAccess{}, pipeline.Fatal("not-ours", "logical databases are made in datastores that a job made, and in no other", "Make them by hand.")
	case d.Name == "" || d.SecretID == "":
		return cloud.SQLAccess{}, pipeline.Fatal("not-finished", "the datastore is not there yet", "Wait until its job is done, then ask again.")
	}
	a := sqlAccess{p: p, instance: d.Name, admin: d.AdminUser, secret: d.SecretID, engine: d.Engine}
	out := cloud.SQLAccess{Engine: d.Engine, Admin: d.AdminUser, Query: a.query, CreateDatabase: a.createDatabase, DropDatabase: a.dropDatabase}
	if d.Engine == job.MySQL {
		out.SetUser, out.DropUser = a.setUser, a.dropUser
	}
	return out, nil
}

// sqlAccess is one instance as its logical databases see it.
type sqlAccess struct {
	p                       *Provider
	instance, admin, secret string
	engine                  job.Engine
}

// query runs statements in a database. What only reads is sent as a read, so that
// a verify can look; everything else passes the gates of changes.
func (a sqlAccess) query(ctx context.Context, database, statements string) ([][]string, error) {
	if readsOnly(statements) {
		ctx = context.WithValue(ctx, onlyReads{}, true)
	}
	out, err := send(ctx, a.p.data.sql.Instances.ExecuteSql(a.p.project, a.instance, &sqladmin.ExecuteSqlPayload{
		Database: database, SqlStatement: statements, User: a.admin, PasswordSecretVersion: a.secret, Application: "zopday",
	}))
	if err != nil {
		return nil, statementError(err)
	}
	if failed := statusError(out.Status); failed != nil {
		return nil, failed
	}
	var rows [][]string
	for _, res := range out.Results {
		if failed := statusError(res.Status); failed != nil {
			return nil, failed
		}
		rows = nil
		for _, row := range res.Rows {
			var values []string
			for _, v := range row.Values {
				values = append(values, v.Value)
			}
			rows = append(rows, values)
		}
	}
	return rows, nil
}

// readsOnly reports whether every statement is a query. What looks like anything
// else counts as a change, also where it is none.
func readsOnly(statements string) bool {
	for s := range strings.SplitSeq(strings.TrimRight(strings.TrimSpace(statements), ";"), ";") {
		word, rest, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(s)), " ")
		if word == "SET" && rest == "SEARCH_PATH TO PG_CATALOG" {
			continue
		}
		if word != "SELECT" && word != "SHOW" || strings.Contains(rest, "PG_TERMINATE") || strings.Contains(rest, " INTO ") || strings.Contains(rest, "SET_CONFIG") {
			return false
		}
	}
	return true
}

// statusError is what the engine said against a statement; nil if nothing.
func statusError(s *sqladmin.Status) error {
	if s == nil || s.Code == 0 {
		return nil
	}
	ce := &pipeline.CloudError{Service: serviceSQL, Op: "instances.executeSql", Code: rpcCode(s.Code), Message: s.Message, Sent: true}
	ce.Class, ce.Code = classOf(ce.Op, 0, ce.Message, []string{ce.Code})
	return statementError(ce)
}

// statementError is the engine's refusal in the classes that those who send
// statements know. Only its first line is passed on: what follows quotes the
// statement.
func statementError(err error) error {
	ce, ok := err.(*pipeline.CloudError) //nolint:errorlint // send returns it bare
	if !ok {
		return err
	}
	out := *ce
	out.Message, _, _ = strings.Cut(ce.Message, "\n")
	lower := strings.ToLower(out.Message)
	switch {
	case strings.Contains(lower, "already exists"), strings.Contains(lower, "database exists"):
		out.Class = pipeline.Exists
	case strings.Contains(lower, "permission denied"), strings.Contains(lower, "access denied"), strings.Contains(lower, "must be owner"):
		out.Class = pipeline.Denied
	case strings.Contains(lower, "is being accessed by other users"):
		out.Class = pipeline.Busy
	}
	return &out
}

// createDatabase makes a database; one that is there is fine.
func (a sqlAccess) createDatabase(ctx context.Context, name string) error {
	d := &sqladmin.Database{Name: name, Instance: a.instance, Project: a.p.project}
	if a.engine == job.MySQL {
		d.Charset = "utf8mb4"
	} else {
		d.Charset = "UTF8"
	}
	op, err := send(ctx, a.p.data.sql.Databases.Insert(a.p.project, a.instance, d))
	return pipeline.Unless(a.done(ctx, "database "+name, op, err), pipeline.Exists)
}

func (a sqlAccess) dropDatabase(ctx context.Context, name string) error {
	op, err := send(ctx, a.p.data.sql.Databases.Delete(a.p.project, a.instance, name))
	return pipeline.Unless(a.done(ctx, "database "+name, op, err), pipeline.NotFound)
}

// How long an operation on a database or a user is waited for: most are done when
// they are answered.
const (
	operationLooks = 20
	operationPause = 500 * time.Millisecond
)

// done waits for an operation on a database. What is not done by then is looked at by
// a later pass, which repeats the call: what is there already is an answer too.
func (a sqlAccess) done(ctx context.Context, what string, op *sqladmin.Operation, err error) error {
	if err := a.accepted(what, err); err != nil {
		return err
	}
	ended, err := a.ended(ctx, what, op)
	if err != nil || ended {
		return err
	}
	return a.carriedOut(what)
}

// accepted is what became of sending a change.
func (a sqlAccess) accepted(what string, err error) error {
	if pipeline.Is(err, pipeline.Busy) { // a backup takes minutes
		return pipeline.Wait(5*time.Second, "another operation on instance %s to end, before %s is changed (%v)", a.instance, what, err)
	}
	return err
}

func (a sqlAccess) carriedOut(what string) error {
	return pipeline.Wait(2*time.Second, "Cloud SQL to carry out the change of %s", what)
}

// ended looks at an operation for a while: whether it is done, and what it failed with.
func (a sqlAccess) ended(ctx context.Context, what string, op *sqladmin.Operation) (bool, error) {
	for range operationLooks {
		if o := sqlOutcome(op); o.done {
			return true, o.failed
		}
		timer := time.NewTimer(a.p.pace.Real(operationPause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, fmt.Errorf("%s: %w", what, ctx.Err())
		case <-timer.C:
		}
		var err error
		if op, err = send(ctx, a.p.data.sql.Operations.Get(a.p.project, op.Name)); err != nil {
			return false, err
		}
	}
	return false, nil
}
