package server

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
)

// prepare opens a database and makes sure of its schema; it returns what was logged.
func prepare(t *testing.T, dsn, mode string) (string, error) {
	t.Helper()
	d, err := db.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var log bytes.Buffer
	err = prepareSchema(t.Context(), d, mode, slog.New(slog.NewTextHandler(&log, nil)))
	return log.String(), err
}

func execAs(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	d, err := db.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, s := range statements {
		if _, err := d.Exec(db.System(t.Context()), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// A service role finds a current schema and says nothing; whoever owns the tables
// migrates, and is told once.
func TestSchemaAtStart(t *testing.T) {
	t.Parallel()
	service := pgtest.ServiceDatabase(t)
	if log, err := prepare(t, service, MigrateAuto); err != nil || log != "" {
		t.Errorf("a service role: %v, and it logs %s", err, log)
	}
	for user, why := range map[string]string{pgtest.Owner: "owns the tables", "postgres": "superuser"} {
		log, err := prepare(t, pgtest.As(t, service, user), MigrateAuto)
		if err != nil || strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, why) || !strings.Contains(log, "--service-role") {
			t.Errorf("%s: %v, and it logs %s", user, err, log)
		}
	}
	if log, err := prepare(t, pgtest.Database(t), MigrateAuto); err != nil || !strings.Contains(log, "superuser") {
		t.Errorf("an empty database of a superuser: %v, %s", err, log)
	}
	if _, err := prepare(t, pgtest.Database(t), MigrateNever); !errors.Is(err, db.ErrNotCurrent) || !strings.Contains(err.Error(), "zopday migrate") {
		t.Errorf("an empty database with --migrate=false: %v", err)
	}
	lite := filepath.Join(t.TempDir(), "zopday.db")
	if _, err := prepare(t, lite, MigrateNever); !errors.Is(err, db.ErrNotCurrent) || !strings.Contains(err.Error(), "zopday migrate") {
		t.Errorf("an empty file with --migrate=false: %v", err)
	}
	if log, err := prepare(t, lite, MigrateAuto); err != nil || log != "" {
		t.Errorf("an empty file: %v, %s", err, log)
	}
}

func TestSchemaThatAServiceRoleRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ by, statement, want string }{
		"an older schema":            {pgtest.Owner, `DELETE FROM schema_migrations WHERE version_id = (SELECT max(version_id) FROM schema_migrations)`, "zopday migrate"},
		"no rights":                  {pgtest.Owner, `REVOKE ALL ON ALL TABLES IN SCHEMA public FROM ` + pgtest.Service, "--service-role " + pgtest.Service},
		"row security switched off":  {pgtest.Owner, `ALTER TABLE tokens DISABLE ROW LEVEL SECURITY`, "off for tokens"},
		"row security not forced":    {pgtest.Owner, `ALTER TABLE tokens NO FORCE ROW LEVEL SECURITY`, "off for tokens"},
		"a policy that was dropped":  {pgtest.Owner, `DROP POLICY zopday_org ON secrets`, "off for secrets"},
		"a table that nobody covers": {pgtest.Owner, `CREATE TABLE stray (org_id text)`, "off for stray"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := pgtest.ServiceDatabase(t)
			execAs(t, pgtest.As(t, service, c.by), c.statement)
			if _, err := prepare(t, service, MigrateAuto); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want it to say %q", err, c.want)
			}
		})
	}
}
