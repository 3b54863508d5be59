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
}

// TestLife takes a database and connections of every mode through their lives.
func TestLife(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, e job.Engine, access cloud.SQLAccess) {
		ctx, s := allowed(t.Context()), open(t, access)
		name := names(t)
		db, owner, reader, writer, migrator := name("db"), name("own"), name("ro"), name("rw"), name("mig")
		secret := map[string]string{}
		for _, role := range []string{owner, reader, writer, migrator} {
			secret[role] = job.NewPassword()
		}
		connect := func(role string) *link { return asUser(t, direct(t, e), role, secret[role]) }

		if exists, ours, err := s.Database(ctx, db, owner); exists || ours || err != nil {
			t.Fatalf("before: %t %t %v", exists, ours, err)
		}
		must(t, s.SetRole(ctx, owner, secret[owner]))
		must(t, s.CreateDatabase(ctx, db, owner))
		if exists, ours, err := s.Database(ctx, db, owner); !exists || !ours || err != nil {
			t.Fatalf("after: %t %t %v", exists, ours, err)
		}
		own := connect(owner)
		must(t, own.runs(ctx, db, "CREATE TABLE before_grants (n INT)"))
		must(t, own.runs(ctx, db, "INSERT INTO before_grants VALUES (1)"))
		for role, mode := range map[string]job.AccessMode{reader: job.ReadOnly, writer: job.ReadWrite, migrator: job.OwnerMode} {
			must(t, s.SetRole(ctx, role, secret[role]))
			refusedAccess(t, connect(role), db)
			must(t, s.Grant(ctx, role, db, owner, mode))
		}
		must(t, own.runs(ctx, db, "CREATE TABLE after_grants (n INT)"))
		must(t, connect(migrator).runs(ctx, db, "CREATE TABLE migrated (n INT)"))
		for _, table := range []string{"before_grants", "after_grants", "migrated"} {
			r, w, m := connect(reader), connect(writer), connect(migrator)
			must(t, r.runs(ctx, db, "SELECT * FROM "+table))
			must(t, w.runs(ctx, db, "SELECT * FROM "+table))
			must(t, w.runs(ctx, db, "INSERT INTO "+table+" VALUES (2)"))
			must(t, w.runs(ctx, db, "UPDATE "+table+" SET n = 3"))
			must(t, w.runs(ctx, db, "DELETE FROM "+table))
			refused(t, "a reader inserts", r.runs(ctx, db, "INSERT INTO "+table+" VALUES (2)"))
			refused(t, "a reader drops", r.runs(ctx, db, "DROP TABLE "+table))
			refused(t, "a writer truncates", w.runs(ctx, db, "TRUNCATE TABLE "+table))
			refused(t, "a writer drops", w.runs(ctx, db, "DROP TABLE "+table))
			must(t, m.runs(ctx, db, "ALTER TABLE "+table+" ADD COLUMN more INT"))
			must(t, own.runs(ctx, db, "INSERT INTO "+table+" VALUES (7, 8)"))
		}
		refused(t, "a writer makes a table", connect(writer).runs(ctx, db, "CREATE TABLE x (n INT)"))
		refused(t, "a reader makes a table", connect(reader).runs(ctx, db, "CREATE TABLE x (n INT)"))
		for _, role := range []string{owner, reader, writer, migrator} {
			outside(t, e, connect(role), role, db)
		}

		// Said again it is the same; narrowed, it is less.
		must(t, s.CreateDatabase(ctx, db, owner))
		must(t, s.Grant(ctx, writer, db, owner, job.ReadWrite))
		must(t, s.Grant(ctx, writer, db, owner, job.ReadOnly))
		refused(t, "a writer who is a reader now", connect(writer).runs(ctx, db, "INSERT INTO migrated VALUES (2)"))
		must(t, s.Grant(ctx, migrator, db, owner, job.ReadOnly))
		refused(t, "an owner who is a reader now", connect(migrator).runs(ctx, db, "CREATE TABLE y (n INT)"))
		must(t, s.Grant(ctx, migrator, db, owner, job.OwnerMode))

		// Rotated: the old password is none.
		old := secret[reader]
		secret[reader] = job.NewPassword()
		must(t, s.SetRole(ctx, reader, secret[reader]))
		must(t, connect(reader).runs(ctx, db, "SELECT * FROM migrated"))
		if err := asUser(t, direct(t, e), reader, old).runs(ctx, db, "SELECT 1"); !pipeline.Is(err, pipeline.Expired) {
			t.Errorf("the old password: %v", err)
		}

		// A dropped role's sessions end, and what it made stays.
		live := connect(migrator)
		must(t, live.runs(ctx, db, "SELECT 1"))
		must(t, s.DropRole(ctx, migrator, db, owner))
		if err := live.runs(ctx, db, "SELECT 1"); err == nil {
			t.Error("a session outlived its role")
		}
		must(t, s.DropRole(ctx, migrator, db, owner))
		must(t, own.runs(ctx, db, "SELECT n FROM migrated"))

		// A database goes with whoever is connected.
		must(t, s.DropDatabase(ctx, db))
		if err := own.runs(ctx, db, "SELECT n FROM migrated"); err == nil {
			t.Error("a session outlived its database")
		}
		must(t, s.DropDatabase(ctx, db))
		for _, role := range []string{reader, writer} {
			must(t, s.DropRole(ctx, role, db, owner))
		}
		must(t, s.DropRole(ctx, owner, "", ""))
		if exists, _, err := s.Database(ctx, db, owner); exists || err != nil {
			t.Errorf("dropped: %t %v", exists, err)
		}
		for role, password := range secret {
			if err := asUser(t, direct(t, e), role, password).runs(ctx, maintenanceOf(e), "SELECT 1"); !pipeline.Is(err, pipeline.Expired) {
				t.Errorf("%s logs in: %v", role, err)
			}
		}
	})
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
