package databases

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// controlled is the way over a control plane, as Cloud SQL has it: statements as the administrator,
// and users and databases as objects of its API. Its users are more than they should be.
func controlled(t *testing.T, e job.Engine) cloud.SQLAccess {
	t.Helper()
	d, _ := server(t, e)
	access := direct(t, e)
	access.Server = nil
	access.Query = func(ctx context.Context, database, statements string) ([][]string, error) {
		_, rows, err := d.Query(ctx, string(e), database, admin, adminPassword, statements)
		return rows, classified(err)
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

// classified is what a cloud's client makes of an error of a statement.
func classified(err error) error {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case errors.As(err, &pg):
		return &pipeline.CloudError{Class: postgresClass(pg), Service: "sqladmin", Op: "executeSql", Code: pg.Code, Message: pg.Message, Sent: true}
	case errors.As(err, &my):
		return &pipeline.CloudError{Class: mysqlClass(my), Service: "sqladmin", Op: "executeSql", Code: fmt.Sprint(my.Number), Message: my.Message, Sent: true}
	}
	return err
}
