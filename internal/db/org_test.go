package db_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
)

// A column is one of a table that a row has to give a value.
type column struct{ name, kind string }

// tables reads the catalogue: what a row of each table has to give.
func tables(t *testing.T, super *pgx.Conn) map[string][]column {
	t.Helper()
	rows, err := super.Query(t.Context(), `SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns AS c
		JOIN information_schema.tables AS t USING (table_schema, table_name)
		WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND (c.column_name = 'org_id' OR c.is_nullable = 'NO' AND c.column_default IS NULL AND c.is_identity = 'NO')
		ORDER BY c.table_name, c.ordinal_position`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string][]column{}
	for rows.Next() {
		var table string
		var c column
		if err := rows.Scan(&table, &c.name, &c.kind); err != nil {
			t.Fatal(err)
		}
		out[table] = append(out[table], c)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("the catalogue has %d tables", len(out))
	}
	return out
}

// insert is the statement that puts a row of an organisation into a table. n makes
// rows differ.
func insert(table string, columns []column, org string, n int) string {
	var names, values []string
	for _, c := range columns {
		value := fmt.Sprint(n)
		switch {
		case c.name == "org_id" || table == "organisations" && c.name == "id":
			value = "'" + org + "'"
		case c.kind == "text":
			value = fmt.Sprintf("'%s-%d'", c.name, n)
		case c.kind == "json" || c.kind == "jsonb":
			value = "'{}'"
		case c.kind == "boolean":
			value = "true"
		case c.kind == "bytea":
			value = `'\x00'`
		case strings.HasPrefix(c.kind, "timestamp"):
			value = "now()"
		}
		names, values = append(names, `"`+c.name+`"`), append(values, value)
	}
	return fmt.Sprintf(`INSERT INTO "%s" (%s) VALUES (%s)`, table, strings.Join(names, ", "), strings.Join(values, ", "))
}

// superuser is a session that row-level security does not hold, in the database of
// a service's DSN.
func superuser(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Superuser(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func refused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501"
}

// In every table of the catalogue, whatever it is, the rows of one organisation are
// not there for another, and cannot be made, changed, moved or taken by it.
func TestNoTableCrossesOrganisations(t *testing.T) {
	t.Parallel()
	dsn := pgtest.ServiceDatabase(t)
	super, d := superuser(t, dsn), open(t, dsn)
	a, b := db.WithOrg(t.Context(), "org_a"), db.WithOrg(t.Context(), "org_b")
	for table, columns := range tables(t, super) {
		if table == "schema_migrations" {
			continue // holds no organisation's rows; see TestServiceRole
		}
		owner := "org_id"
		if table == "organisations" {
			owner = "id"
		}
		if !slices.ContainsFunc(columns, func(c column) bool { return c.name == owner }) {
			t.Errorf("%s has no %s", table, owner)
			continue
		}
		for n, org := range []string{"org_a", "org_b"} {
			if _, err := super.Exec(t.Context(), insert(table, columns, org, n)); err != nil {
				t.Fatalf("%s: %v", table, err)
			}
		}
		count := func(ctx context.Context, of string) (n int) {
			t.Helper()
			if err := d.QueryRow(ctx, `SELECT count(*) FROM "`+table+`" WHERE "`+owner+`" = $1`, of).Scan(&n); err != nil {
				t.Errorf("%s: %v", table, err)
			}
			return n
		}
		for name, c := range map[string]struct {
			ctx  context.Context
			a, b int
		}{
			"its own": {a, 1, 0}, "another's": {b, 0, 1}, "none": {t.Context(), 0, 0}, "the empty one": {db.WithOrg(t.Context(), ""), 0, 0},
			"a star as an ID": {db.WithOrg(t.Context(), "*"), 0, 0}, "the system": {db.System(t.Context()), 1, 1},
		} {
			if gotA, gotB := count(c.ctx, "org_a"), count(c.ctx, "org_b"); gotA != c.a || gotB != c.b {
				t.Errorf("%s in a context of %s: sees %d and %d rows, want %d and %d", table, name, gotA, gotB, c.a, c.b)
			}
		}
		for what, statement := range map[string]string{
			"changes":     `UPDATE "` + table + `" SET "` + owner + `" = "` + owner + `" WHERE "` + owner + `" = 'org_a'`,
			"deletes":     `DELETE FROM "` + table + `" WHERE "` + owner + `" = 'org_a'`,
			"changes all": `UPDATE "` + table + `" SET "` + columns[0].name + `" = "` + columns[0].name + `" WHERE "` + owner + `" <> 'org_b'`,
			"truncates":   `TRUNCATE "` + table + `"`,
		} {
			if n, err := d.Exec(b, statement); n != 0 || err != nil && !refused(err) {
				t.Errorf("%s: another organisation %s: %d rows, %v", table, what, n, err)
			}
		}
		if _, err := d.Exec(b, insert(table, columns, "org_a", 7)); !refused(err) {
			t.Errorf("%s: a row of another organisation is put in: %v", table, err)
		}
		if _, err := d.Exec(b, `UPDATE "`+table+`" SET "`+owner+`" = 'org_a'`); !refused(err) {
			t.Errorf("%s: a row is moved to another organisation: %v", table, err)
		}
		if _, err := d.Exec(b, `UPDATE "`+table+`" SET "`+owner+`" = 'org_a' WHERE false`); err != nil && !refused(err) {
			t.Errorf("%s: %v", table, err)
		}
		var left int
		if err := super.QueryRow(t.Context(), `SELECT count(*) FROM "`+table+`" WHERE "`+owner+`" = 'org_a'`).Scan(&left); err != nil || left != 1 {
			t.Errorf("%s: %d rows of the first organisation are left, %v", table, left, err)
		}
	}
}

// What belongs to the installation is read by every organisation and written by the
// system alone.
func TestRowsOfTheInstallation(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.ServiceDatabase(t))
	system, org := db.System(t.Context()), db.WithOrg(t.Context(), "org_a")
	if err := db.PutSetting(system, d, "k", "v"); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := db.Setting(org, d, "k"); v != "v" || !ok || err != nil {
		t.Errorf("an organisation reads %q, %t, %v", v, ok, err)
	}
	if _, ok, err := db.Setting(t.Context(), d, "k"); ok || err != nil {
		t.Errorf("a context of nobody reads a setting: %v", err)
	}
	if err := db.PutSetting(org, d, "k", "w"); !refused(err) {
		t.Errorf("an organisation writes a setting: %v", err)
	}
	if n, err := d.Exec(org, `DELETE FROM settings WHERE org_id = ''`); n != 0 || err != nil {
		t.Errorf("an organisation deletes %d settings, %v", n, err)
	}
	if err := d.Current(t.Context()); err != nil {
		t.Errorf("Current in a context of nobody: %v", err)
	}
}

// A connection goes from one context to the next with nothing of the one before,
// also when many share a few, transactions roll back and contexts end in between.
func TestSessionsNeverKeepAnOrganisation(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.ServiceDatabase(t))
	orgs := []string{"", "a", "b", "c"}
	for _, org := range orgs[1:] {
		if _, err := d.Exec(db.WithOrg(t.Context(), org), `INSERT INTO teams (id, org_id, name, created_by, created_at) VALUES ($1, $1, 'x', 'x', 0)`, org); err != nil {
			t.Fatal(err)
		}
	}
	boom := errors.New("boom")
	var wg sync.WaitGroup
	for w := range 40 {
		wg.Go(func() {
			for i := range 25 {
				org := orgs[(w+i)%len(orgs)]
				ctx, cancel := context.WithCancel(t.Context())
				if org != "" {
					ctx = db.WithOrg(ctx, org)
				}
				var got string
				look := func(ctx context.Context, q db.Q) error {
					return q.QueryRow(ctx, `SELECT coalesce(string_agg(id, ','), '') FROM teams`).Scan(&got)
				}
				err := look(ctx, d)
				if i%3 == 0 {
					err = d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return errors.Join(look(ctx, tx), boom) })
					if errors.Is(err, boom) && !strings.Contains(err.Error(), "\n") {
						err = nil
					}
				}
				if i%5 == 0 {
					go cancel() // perhaps while the next statement, or its setting, is on its way
					_ = look(ctx, d)
					got = org
				}
				cancel()
				if err != nil || got != org {
					t.Errorf("a context of %q sees %q, %v", org, got, err)
				}
			}
		})
	}
	wg.Wait()
}

// A transaction is of one organisation, and a statement of another within it is
// refused before it is sent.
func TestTransactionsAreOfOneOrganisation(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.ServiceDatabase(t))
	a := db.WithOrg(t.Context(), "a")
	err := d.InTx(a, func(ctx context.Context, tx db.Q) error {
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM teams`).Scan(&n); err != nil {
			t.Error(err)
		}
		for _, other := range []context.Context{db.WithOrg(ctx, "b"), db.System(ctx), context.Background()} {
			if err := tx.QueryRow(other, `SELECT count(*) FROM teams`).Scan(&n); err == nil {
				t.Error("a row of another organisation was asked for")
			}
			if _, err := tx.Exec(other, `DELETE FROM teams`); err == nil {
				t.Error("a statement of another organisation was sent")
			}
			if rows, err := tx.Query(other, `SELECT count(*) FROM teams`); err == nil {
				rows.Close()
				t.Error("a query of another organisation was sent")
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A service role has what it needs and no more; who owns the tables is told apart.
func TestServiceRole(t *testing.T) {
	t.Parallel()
	dsn := pgtest.ServiceDatabase(t)
	d := open(t, dsn)
	ctx := db.System(t.Context())
	r, err := d.Rights(ctx)
	if err != nil || r.MayMigrate() || len(r.Loose()) > 0 || !r.Migrated || len(r.Unprotected) > 0 || r.Role != pgtest.Service {
		t.Errorf("rights %+v: %v", r, err)
	}
	if err := d.Migrate(ctx); err != nil {
		t.Errorf("Migrate with nothing to do: %v", err)
	}
	for _, statement := range []string{
		`CREATE TABLE mine (a int)`, `ALTER TABLE tokens DISABLE ROW LEVEL SECURITY`, `DROP TABLE tokens`, `DROP POLICY zopday_org ON tokens`,
		`TRUNCATE provisioning_jobs`, `SELECT zopday_protect()`, `DELETE FROM audit_log`, `UPDATE audit_log SET actor = 'x'`, `DELETE FROM audit_heads`,
		`DELETE FROM organisations`, `DELETE FROM schema_migrations`, `INSERT INTO schema_migrations (version_id, is_applied) VALUES (99, true)`,
		`CREATE TRIGGER t BEFORE INSERT ON tokens FOR EACH ROW EXECUTE FUNCTION audit_log_guard()`, `SET ROLE ` + pgtest.Owner,
	} {
		if _, err := d.Exec(ctx, statement); !refused(err) {
			t.Errorf("%s: %v", statement, err)
		}
	}
	for user, want := range map[string]string{pgtest.Owner: "it owns the tables", "postgres": "it is a superuser"} {
		r, err := open(t, pgtest.As(t, dsn, user)).Rights(ctx)
		if err != nil || !r.MayMigrate() || !slices.Contains(r.Loose(), want) {
			t.Errorf("rights of %s: %+v, %v: %v", user, r, r.Loose(), err)
		}
	}
	// The owner is held by row-level security too.
	var n int
	if err := open(t, pgtest.As(t, dsn, pgtest.Owner)).QueryRow(t.Context(), `SELECT count(*) FROM organisations`).Scan(&n); err != nil || n != 0 {
		t.Errorf("the owner sees %d organisations in a context of nobody: %v", n, err)
	}
}

// A table that a later migration adds is protected and granted by the next run.
func TestLaterTables(t *testing.T) {
	t.Parallel()
	dsn := pgtest.ServiceDatabase(t)
	owner, service, super := open(t, pgtest.As(t, dsn, pgtest.Owner)), open(t, dsn), superuser(t, dsn)
	ctx := db.System(t.Context())
	if _, err := owner.Exec(ctx, `CREATE TABLE later (id text PRIMARY KEY, org_id text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	if r, err := service.Rights(ctx); err != nil || !slices.Equal(r.Unprotected, []string{"later"}) {
		t.Errorf("unprotected: %v, %v", r.Unprotected, err)
	}
	if err := owner.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	roles, err := owner.ServiceRoles(ctx)
	if err != nil || !slices.Equal(roles, []string{pgtest.Service}) {
		t.Fatalf("service roles %v, %v", roles, err)
	}
	if err := owner.Grant(ctx, roles[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := super.Exec(t.Context(), `INSERT INTO later VALUES ('1', 'a'), ('2', 'b')`); err != nil {
		t.Fatal(err)
	}
	var seen string
	if err := service.QueryRow(db.WithOrg(t.Context(), "a"), `SELECT string_agg(id, ',') FROM later`).Scan(&seen); err != nil || seen != "1" {
		t.Errorf("of the later table an organisation sees %q, %v", seen, err)
	}
	// One that does not say whose its rows are is refused.
	if _, err := owner.Exec(ctx, `CREATE TABLE nobodys (id text PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	if err := owner.Migrate(ctx); err == nil || !strings.Contains(err.Error(), "nobodys") {
		t.Errorf("a table without an organisation: %v", err)
	}
}

func TestGrantRefuses(t *testing.T) {
	t.Parallel()
	dsn := pgtest.ServiceDatabase(t)
	owner := open(t, pgtest.As(t, dsn, pgtest.Owner))
	for role, want := range map[string]string{
		"no such role": "CREATE ROLE", "postgres": "NOBYPASSRLS", pgtest.Owner: "owns the tables",
	} {
		if err := owner.Grant(t.Context(), role); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %s", role, err, want)
		}
	}
	if err := open(t, dsn).Grant(t.Context(), pgtest.Service); err == nil {
		t.Error("a service role gives itself rights")
	}
	if err := open(t, dialects[db.SQLite](t)).Grant(t.Context(), "x"); err == nil {
		t.Error("a role on SQLite")
	}
}
