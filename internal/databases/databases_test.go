package databases

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// ways are the ways to an engine: straight, and as a cloud's control plane does it.
func ways(t *testing.T, do func(t *testing.T, e job.Engine, access cloud.SQLAccess)) {
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			do(t, e, direct(t, e))
		})
		t.Run(string(e)+" over the control plane", func(t *testing.T) {
			t.Parallel()
			do(t, e, controlled(t, e))
		})
	}
	t.Run("postgres at Cloud SQL", func(t *testing.T) {
		t.Parallel()
		do(t, job.Postgres, cloudSQL(t))
	})
}

// A life is one database with connections of every mode.
type life struct {
	e                                   job.Engine
	s                                   *Server
	db, owner, reader, writer, migrator string
	secrets                             map[string]string
}

// as is a way in as one of its roles.
func (l *life) as(t *testing.T, role string) *link {
	t.Helper()
	return asUser(t, direct(t, l.e), role, l.secrets[role])
}

// TestLife takes a database and connections of every mode through their lives.
func TestLife(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, e job.Engine, access cloud.SQLAccess) {
		name := names(t)
		l := &life{e: e, s: open(t, access), db: name("db"), owner: name("own"), reader: name("ro"), writer: name("rw"), migrator: name("mig"), secrets: map[string]string{}}
		for _, role := range []string{l.owner, l.reader, l.writer, l.migrator} {
			l.secrets[role] = job.NewPassword()
		}
		l.begins(t)
		for _, table := range []string{"before_grants", "after_grants", "migrated"} {
			l.mayJustSo(t, table)
		}
		refused(t, "a writer makes a table", l.as(t, l.writer).runs(t.Context(), l.db, "CREATE TABLE x (n INT)"))
		refused(t, "a reader makes a table", l.as(t, l.reader).runs(t.Context(), l.db, "CREATE TABLE x (n INT)"))
		for role := range l.secrets {
			outside(t, e, l.as(t, role), role, l.db)
		}
		l.changes(t)
		l.ends(t)
	})
}

// begins makes everything.
func (l *life) begins(t *testing.T) {
	ctx := allowed(t.Context())
	if exists, ours, err := l.s.Database(ctx, l.db, l.owner); exists || ours || err != nil {
		t.Fatalf("before: %t %t %v", exists, ours, err)
	}
	must(t, l.s.SetRole(ctx, l.owner, l.secrets[l.owner]))
	must(t, l.s.CreateDatabase(ctx, l.db, l.owner))
	if exists, ours, err := l.s.Database(ctx, l.db, l.owner); !exists || !ours || err != nil {
		t.Fatalf("after: %t %t %v", exists, ours, err)
	}
	own := l.as(t, l.owner)
	must(t, own.runs(ctx, l.db, "CREATE TABLE before_grants (n INT)"))
	must(t, own.runs(ctx, l.db, "INSERT INTO before_grants VALUES (1)"))
	for role, mode := range map[string]job.AccessMode{l.reader: job.ReadOnly, l.writer: job.ReadWrite, l.migrator: job.OwnerMode} {
		must(t, l.s.SetRole(ctx, role, l.secrets[role]))
		refusedAccess(t, l.as(t, role), l.db)
		must(t, l.s.Grant(ctx, role, l.db, l.owner, mode))
	}
	must(t, own.runs(ctx, l.db, "CREATE TABLE after_grants (n INT)"))
	must(t, l.as(t, l.migrator).runs(ctx, l.db, "CREATE TABLE migrated (n INT)"))
}

// mayJustSo wants each role to do with a table what its mode says, whoever made it and when.
func (l *life) mayJustSo(t *testing.T, table string) {
	ctx, r, w := t.Context(), l.as(t, l.reader), l.as(t, l.writer)
	must(t, r.runs(ctx, l.db, "SELECT * FROM "+table))
	must(t, w.runs(ctx, l.db, "SELECT * FROM "+table))
	must(t, w.runs(ctx, l.db, "INSERT INTO "+table+" VALUES (2)"))
	must(t, w.runs(ctx, l.db, "UPDATE "+table+" SET n = 3"))
	must(t, w.runs(ctx, l.db, "DELETE FROM "+table))
	refused(t, "a reader inserts", r.runs(ctx, l.db, "INSERT INTO "+table+" VALUES (2)"))
	refused(t, "a reader drops", r.runs(ctx, l.db, "DROP TABLE "+table))
	refused(t, "a writer truncates", w.runs(ctx, l.db, "TRUNCATE TABLE "+table))
	refused(t, "a writer drops", w.runs(ctx, l.db, "DROP TABLE "+table))
	must(t, l.as(t, l.migrator).runs(ctx, l.db, "ALTER TABLE "+table+" ADD COLUMN more INT"))
	must(t, l.as(t, l.owner).runs(ctx, l.db, "INSERT INTO "+table+" VALUES (7, 8)"))
}

// changes: said again it is the same, narrowed it is less, rotated the old password is none.
func (l *life) changes(t *testing.T) {
	ctx := allowed(t.Context())
	must(t, l.s.CreateDatabase(ctx, l.db, l.owner))
	must(t, l.s.Grant(ctx, l.writer, l.db, l.owner, job.ReadWrite))
	must(t, l.s.Grant(ctx, l.writer, l.db, l.owner, job.ReadOnly))
	refused(t, "a writer who is a reader now", l.as(t, l.writer).runs(ctx, l.db, "INSERT INTO migrated VALUES (2)"))
	must(t, l.s.Grant(ctx, l.migrator, l.db, l.owner, job.ReadOnly))
	refused(t, "an owner who is a reader now", l.as(t, l.migrator).runs(ctx, l.db, "CREATE TABLE y (n INT)"))
	must(t, l.s.Grant(ctx, l.migrator, l.db, l.owner, job.OwnerMode))

	old := l.secrets[l.reader]
	l.secrets[l.reader] = job.NewPassword()
	must(t, l.s.SetRole(ctx, l.reader, l.secrets[l.reader]))
	must(t, l.as(t, l.reader).runs(ctx, l.db, "SELECT * FROM migrated"))
	if err := asUser(t, direct(t, l.e), l.reader, old).runs(ctx, l.db, "SELECT 1"); !pipeline.Is(err, pipeline.Expired) {
		t.Errorf("the old password: %v", err)
	}
}

// ends: sessions go with their role and their database, and what a role made stays.
func (l *life) ends(t *testing.T) {
	ctx, live, own := allowed(t.Context()), l.as(t, l.migrator), l.as(t, l.owner)
	must(t, live.runs(ctx, l.db, "SELECT 1"))
	must(t, l.s.DropRole(ctx, l.migrator, l.db, l.owner))
	if err := live.runs(ctx, l.db, "SELECT 1"); err == nil {
		t.Error("a session outlived its role")
	}
	must(t, l.s.DropRole(ctx, l.migrator, l.db, l.owner))
	must(t, own.runs(ctx, l.db, "SELECT n FROM migrated"))
	must(t, l.s.DropDatabase(ctx, l.db))
	if err := own.runs(ctx, l.db, "SELECT n FROM migrated"); err == nil {
		t.Error("a session outlived its database")
	}
	must(t, l.s.DropDatabase(ctx, l.db))
	for _, role := range []string{l.reader, l.writer} {
		must(t, l.s.DropRole(ctx, role, l.db, l.owner))
	}
	must(t, l.s.DropRole(ctx, l.owner, "", ""))
	if exists, _, err := l.s.Database(ctx, l.db, l.owner); exists || err != nil {
		t.Errorf("dropped: %t %v", exists, err)
	}
	for role := range l.secrets {
		if err := l.as(t, role).runs(ctx, maintenanceOf(l.e), "SELECT 1"); !pipeline.Is(err, pipeline.Expired) {
			t.Errorf("%s logs in: %v", role, err)
		}
	}
}

func maintenanceOf(e job.Engine) string {
	if e == job.Postgres {
		return maintenance
	}
	return ""
}

// names makes names that no other test has.
func names(t *testing.T) func(string) string {
	base := strings.ToLower(fmt.Sprintf("%x", hashOf(t.Name())))
	return func(s string) string { return s + "_" + base }
}

func hashOf(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}

// refusedAccess wants a role to find no way into a database.
func refusedAccess(t *testing.T, l *link, db string) {
	t.Helper()
	if err := l.runs(t.Context(), db, "SELECT 1"); !pipeline.Is(err, pipeline.Denied) {
		t.Errorf("in %s without a grant: %v", db, err)
	}
}

// outside wants a role to have nothing outside its database.
func outside(t *testing.T, e job.Engine, l *link, role, db string) {
	t.Helper()
	statements := []string{"CREATE DATABASE elsewhere"}
	if e == job.Postgres {
		statements = append(statements, "CREATE ROLE elsewhere", "ALTER ROLE "+role+" CREATEDB", "GRANT rds_superuser TO "+role, "GRANT "+admin+" TO "+role, "SET ROLE "+admin)
	} else {
		statements = append(statements, "CREATE USER elsewhere", "SELECT * FROM mysql.global_priv", "GRANT SELECT ON `"+db+"`.* TO '"+admin+"'@'%'", "CREATE TABLE "+strings.Replace(db, "_", "x", 1)+".t (n INT)")
	}
	for _, statement := range statements {
		refused(t, role+": "+statement, l.runs(t.Context(), db, statement))
	}
}

// TestCrashAnywhere cuts every method after each of its statements, and says it again.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, e job.Engine, access cloud.SQLAccess) {
		name := names(t)
		db, owner, role := name("db"), name("own"), name("c")
		ownerSecret, secret := job.NewPassword(), job.NewPassword()
		for _, mode := range []job.AccessMode{job.ReadOnly, job.ReadWrite, job.OwnerMode} {
			cuts := 0
			again := func(what string, do func(s *Server, n int) error) {
				t.Helper()
				for n := 0; ; n++ {
					s, err := Open(t.Context(), access)
					must(t, err)
					err = do(s, n)
					must(t, s.Close(t.Context()))
					if err == nil {
						cuts += n
						return
					}
					if !errors.Is(err, pipeline.ErrLeaseLost) {
						t.Fatalf("%s, cut after %d: %v", what, n, err)
					}
				}
			}
			ctx := t.Context()
			again("SetRole", func(s *Server, n int) error { return s.SetRole(cutAfter(ctx, n), owner, ownerSecret) })
			again("CreateDatabase", func(s *Server, n int) error { return s.CreateDatabase(cutAfter(ctx, n), db, owner) })
			must(t, asUser(t, direct(t, e), owner, ownerSecret).runs(ctx, db, "CREATE TABLE t (n INT)"))
			again("SetRole", func(s *Server, n int) error { return s.SetRole(cutAfter(ctx, n), role, secret) })
			again("Grant", func(s *Server, n int) error { return s.Grant(cutAfter(ctx, n), role, db, owner, mode) })
			user := asUser(t, direct(t, e), role, secret)
			must(t, user.runs(ctx, db, "SELECT * FROM t"))
			if err := user.runs(ctx, db, "INSERT INTO t VALUES (1)"); (err == nil) != (mode != job.ReadOnly) {
				t.Errorf("%s inserts: %v", mode, err)
			}
			again("DropRole", func(s *Server, n int) error { return s.DropRole(cutAfter(ctx, n), role, db, owner) })
			again("DropDatabase", func(s *Server, n int) error { return s.DropDatabase(cutAfter(ctx, n), db) })
			again("DropRole", func(s *Server, n int) error { return s.DropRole(cutAfter(ctx, n), owner, "", "") })
			if cuts < 8 {
				t.Errorf("only %d cuts", cuts)
			}
		}
	})
}
