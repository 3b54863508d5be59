package databases

import (
	"context"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// cloudSQL is the way as Cloud SQL's instances of PostgreSQL have it: roles by statements, databases by
// the control plane.
func cloudSQL(t *testing.T) cloud.SQLAccess {
	t.Helper()
	access := controlled(t, job.Postgres)
	access.SetUser, access.DropUser = nil, nil
	return access
}

// controlled is the way over a control plane, as Cloud SQL has it: statements as the administrator,
// and users and databases as objects of its API. Its users are more than they should be.
func controlled(t *testing.T, e job.Engine) cloud.SQLAccess {
	t.Helper()
	d, _ := server(t, e)
	access := direct(t, e)
	access.Server = nil
	access.Query = func(ctx context.Context, database, statements string) ([][]string, error) {
		_, rows, err := d.Query(ctx, string(e), database, admin, adminPassword, statements)
		return rows, wordsOf(err)
	}
	do := func(ctx context.Context, change func()) error {
		if err := pipeline.Allow(ctx, pipeline.Call{Service: "sqladmin", Op: "change", Mutating: true}); err != nil {
			return err
		}
		change()
		for {
			if ready, err := d.Ready(string(e)); ready || err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	access.CreateDatabase = func(ctx context.Context, name string) error {
		return do(ctx, func() { d.CreateDatabase(string(e), name) })
	}
	access.DropDatabase = func(ctx context.Context, name string) error {
		return do(ctx, func() { d.DropDatabase(string(e), name) })
	}
	roles := []string{"rds_superuser"}
	access.SetUser = func(ctx context.Context, name, password string) error {
		return do(ctx, func() { d.SetUser(string(e), sim.DatabaseUser{Name: name, Password: password, Roles: roles}) })
	}
	access.DropUser = func(ctx context.Context, name string) error { return do(ctx, func() { d.DropUser(string(e), name) }) }
	return access
}

// wordsOf is what a control plane passes on of an engine's error: words, without the code.
func wordsOf(err error) error {
	if err == nil {
		return nil
	}
	return &pipeline.CloudError{Class: pipeline.Unknown, Service: "sqladmin", Op: "executeSql", Code: "INVALID_ARGUMENT", Message: err.Error(), Sent: true}
}

// TestWordsOfControlPlanes: what quotes a statement does not come through, and what means something
// has its class.
func TestWordsOfControlPlanes(t *testing.T) {
	t.Parallel()
	for say, want := range map[string]pipeline.Class{
		`ERROR: permission denied to alter role`: pipeline.Denied, `ERROR: role "x" cannot be dropped because some objects depend on it`: pipeline.Invalid,
		`ERROR: tuple concurrently updated`: pipeline.Busy, `ERROR: role "x" already exists`: pipeline.Exists, `database "x" does not exist`: pipeline.NotFound,
		`ERROR: syntax error at or near "hidden"`: pipeline.Invalid, `You have an error in your SQL syntax; check the manual … near 'hidden'`: pipeline.Invalid,
		`Error 1095: You are not owner of thread 7`: pipeline.Denied, `something else`: pipeline.Unknown,
	} {
		access := cloud.SQLAccess{Engine: job.Postgres, Admin: admin, Query: func(context.Context, string, string) ([][]string, error) {
			return nil, &pipeline.CloudError{Class: pipeline.Unknown, Service: "sqladmin", Op: "executeSql", Message: say, Sent: true}
		}}
		_, _, err := open(t, access).Database(t.Context(), "app", "own")
		if pipeline.ClassOf(err) != want {
			t.Errorf("%s: %v is %s, not %s", say, err, pipeline.ClassOf(err), want)
		}
		noSecret(t, []string{"hidden"}, chain(err))
	}
}

// TestControlPlaneThatIsLate is not done before a database that the control plane has
// accepted is in the server.
func TestControlPlaneThatIsLate(t *testing.T) {
	for _, e := range []job.Engine{job.Postgres, job.MySQL} {
		t.Run(string(e), func(t *testing.T) {
			ctx := allowed(t.Context())
			access := controlled(t, e)
			at := access.CreateDatabase
			access.CreateDatabase = func(ctx context.Context, name string) error {
				time.AfterFunc(600*time.Millisecond, func() { _ = at(ctx, name) }) // that it is not there shows below
				return nil
			}
			s := open(t, access)
			must(t, s.SetRole(ctx, "late_owner", job.NewPassword()))
			for range 20 {
				err := s.CreateDatabase(ctx, "late", "late_owner")
				if err == nil {
					break
				}
				if !pipeline.IsWait(err) {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if exists, ours, err := s.Database(ctx, "late", "late_owner"); !exists || !ours || err != nil {
				t.Errorf("it is done, and the database: %v, ours %v, error %v", exists, ours, err)
			}
			must(t, s.DropDatabase(ctx, "late"))
			must(t, s.DropRole(ctx, "late_owner", "", ""))
		})
	}
}
