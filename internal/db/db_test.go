package db_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

var dialects = map[db.Dialect]func(t testing.TB) string{
	db.SQLite:   func(t testing.TB) string { return filepath.Join(t.TempDir(), "sub dir", "zop?day#.db") },
	db.Postgres: pgtest.Database,
}

func conform(t *testing.T, test func(t *testing.T, dsn string)) {
	for _, d := range []db.Dialect{db.SQLite, db.Postgres} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			test(t, dialects[d](t))
		})
	}
}

func open(t testing.TB, dsn string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestMigrate(t *testing.T) {
	conform(t, func(t *testing.T, dsn string) {
		d := open(t, dsn)
		ctx := t.Context()
		// What to do is enough: the driver's words for it say nothing more.
		if err := d.Current(ctx); !errors.Is(err, db.ErrNotCurrent) || strings.Contains(err.Error(), "SQLSTATE") || strings.Contains(err.Error(), "no such table") {
			t.Errorf("Current of an empty database: %v", err)
		}
		// Several at once, as processes that start together.
		var (
			wg   sync.WaitGroup
			errs [3]error
		)
		for i := range errs {
			wg.Go(func() { errs[i] = d.Migrate(ctx) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		if err := d.Current(ctx); err != nil {
			t.Errorf("Current: %v", err)
		}
		if err := db.PutSetting(ctx, d, "k", "v"); err != nil {
			t.Fatal(err)
		}
		if err := d.Migrate(ctx); err != nil {
			t.Errorf("Migrate again: %v", err)
		}
		if v, ok, err := db.Setting(ctx, d, "k"); v != "v" || !ok || err != nil {
			t.Errorf("after Migrate again the setting is %q, %t, %v", v, ok, err)
		}
		// A newer program's migration is no harm, a missing one is.
		if _, err := d.Exec(ctx, `UPDATE schema_migrations SET version_id = 9999 WHERE version_id = (SELECT max(version_id) FROM schema_migrations)`); err != nil {
			t.Fatal(err)
		}
		if err := d.Current(ctx); err != nil {
			t.Errorf("Current of a newer database: %v", err)
		}
		if _, err := d.Exec(ctx, `DELETE FROM schema_migrations WHERE version_id > 0`); err != nil {
			t.Fatal(err)
		}
		if err := d.Current(ctx); !errors.Is(err, db.ErrNotCurrent) {
			t.Errorf("Current of an older database: %v", err)
		}
	})
}

// Both dialects have the same tables, columns and indexes.
func TestSchemasAreAlike(t *testing.T) {
	shape := func(dsn, columns, indexes string) (cols, idx []string) {
		d := open(t, dsn)
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		read := func(q string) (out []string) {
			rows, err := d.Query(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var s string
				if err := rows.Scan(&s); err != nil {
					t.Fatal(err)
				}
				out = append(out, s)
			}
			slices.Sort(out)
			return out
		}
		return read(columns), read(indexes)
	}
	liteCols, liteIdx := shape(dialects[db.SQLite](t),
		`SELECT m.name || '.' || c.name || CASE WHEN c."notnull" THEN ' not null' ELSE '' END FROM sqlite_master AS m, pragma_table_info(m.name) AS c
			WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name <> 'schema_migrations'`,
		`SELECT name || CASE WHEN sql LIKE '%UNIQUE%' THEN ' unique' ELSE '' END FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL`)
	pgCols, pgIdx := shape(dialects[db.Postgres](t),
		`SELECT table_name || '.' || column_name || CASE WHEN is_nullable = 'NO' THEN ' not null' ELSE '' END FROM information_schema.columns
			WHERE table_schema = 'public' AND table_name <> 'schema_migrations'`,
		`SELECT indexname || CASE WHEN indexdef LIKE '%UNIQUE%' THEN ' unique' ELSE '' END FROM pg_indexes
			WHERE schemaname = 'public' AND indexname NOT LIKE '%_pkey' AND indexname NOT LIKE '%_key'`)
	if diff := cmp.Diff(liteCols, pgCols); diff != "" {
		t.Errorf("columns (-sqlite +postgres):\n%s", diff)
	}
	if diff := cmp.Diff(liteIdx, pgIdx); diff != "" {
		t.Errorf("indexes (-sqlite +postgres):\n%s", diff)
	}
	if len(liteCols) < 50 || len(liteIdx) < 5 {
		t.Errorf("only %d columns and %d indexes were compared", len(liteCols), len(liteIdx))
	}
	// Every table says whose its rows are.
	owned := make(map[string]bool)
	for _, c := range pgCols {
		table, column, _ := strings.Cut(c, ".")
		owned[table] = owned[table] || strings.HasPrefix(column, "org_id")
	}
	for table, ok := range owned {
		if !ok && table != "organisations" { // whose ID is what the others name
			t.Errorf("%s has no org_id", table)
		}
	}
}

func TestTransactions(t *testing.T) {
	conform(t, func(t *testing.T, dsn string) {
		d := open(t, dsn)
		ctx := t.Context()
		if err := d.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
		boom := errors.New("boom")
		err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
			if err := db.PutSetting(ctx, tx, "a", "1"); err != nil {
				return err
			}
			if v, ok, err := db.Setting(ctx, tx, "a"); v != "1" || !ok || err != nil {
				t.Errorf("within the transaction: %q, %t, %v", v, ok, err)
			}
			if _, ok, err := db.Setting(ctx, d, "a"); ok || err != nil {
				t.Errorf("from outside before the commit: %t, %v", ok, err)
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Errorf("InTx: %v", err)
		}
		if _, ok, err := db.Setting(ctx, d, "a"); ok || err != nil {
			t.Errorf("after the rollback: %t, %v", ok, err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
				_ = db.PutSetting(ctx, tx, "a", "1")
				panic("boom")
			})
		}()
		if _, ok, err := db.Setting(ctx, d, "a"); ok || err != nil {
			t.Errorf("after a panic: %t, %v", ok, err)
		}
		cctx, cancel := context.WithCancel(ctx)
		err = d.InTx(cctx, func(ctx context.Context, tx db.Q) error {
			cancel()
			return db.PutSetting(ctx, tx, "a", "1")
		})
		if err == nil {
			t.Error("a transaction whose context ended committed")
		}
		if err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return db.PutSetting(ctx, tx, "a", "2") }); err != nil {
			t.Fatal(err)
		}
		if v, err := db.PutSettingOnce(ctx, d, "a", "3"); v != "2" || err != nil {
			t.Errorf("PutSettingOnce: %q, %v", v, err)
		}
		var n int
		if err := d.QueryRow(ctx, `SELECT 1 WHERE 1 = 2`).Scan(&n); !errors.Is(err, db.ErrNoRows) {
			t.Errorf("no rows: %v", err)
		}
		_, err = d.Exec(ctx, `INSERT INTO settings (org_id, key, value, updated_at) VALUES ('', 'a', '', 0)`)
		if !db.Unique(err) || db.Transient(err) {
			t.Errorf("a double key: unique %t, transient %t: %v", db.Unique(err), db.Transient(err), err)
		}
		if _, err = d.Exec(ctx, `SELECT nonsense`); db.Unique(err) || db.Transient(err) {
			t.Errorf("nonsense: %v", err)
		}
	})
}

func TestClock(t *testing.T) {
	conform(t, func(t *testing.T, dsn string) {
		d := open(t, dsn)
		var us int64
		if err := d.QueryRow(t.Context(), `SELECT `+d.Now()).Scan(&us); err != nil {
			t.Fatal(err)
		}
		if off := time.Since(time.UnixMicro(us)); off < -time.Minute || off > time.Minute {
			t.Errorf("the database's clock is %s off", off)
		}
	})
}

// The schema's queries and values agree on both: what a bool, a missing value,
// bytes and a document look like.
func TestValues(t *testing.T) {
	conform(t, func(t *testing.T, dsn string) {
		d := open(t, dsn)
		ctx := t.Context()
		if err := d.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
		blob := []byte{0, 1, 2, 255}
		if _, err := d.Exec(ctx, `INSERT INTO secrets (org_id, id, key_id, wrapped_key, ciphertext, created_at, updated_at) VALUES ('o', $1, $2, $3, $3, $4, $4)`,
			"id", "", blob, int64(1)<<60); err != nil {
			t.Fatal(err)
		}
		var (
			b   []byte
			n   *int64
			ok  bool
			big int64
		)
		err := d.QueryRow(ctx, `SELECT wrapped_key, NULL, created_at > 5, created_at FROM secrets WHERE id = $1`, "id").Scan(&b, &n, &ok, &big)
		if err != nil || !slices.Equal(b, blob) || n != nil || !ok || big != 1<<60 {
			t.Errorf("read back %v, %v, %t, %d: %v", b, n, ok, big, err)
		}
	})
}

func TestSQLiteBelongsToOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zopday.db")
	first, err := db.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second opening: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	var mode, sync string
	if err := first.Writer().QueryRow(t.Context(), `SELECT (SELECT journal_mode FROM pragma_journal_mode), (SELECT synchronous FROM pragma_synchronous)`).Scan(&mode, &sync); err != nil {
		t.Fatal(err)
	}
	if mode != "wal" || sync != "2" {
		t.Errorf("journal mode %s, synchronous %s; want wal and 2 (FULL)", mode, sync)
	}
	if _, err := first.Query(t.Context(), `CREATE TABLE t (a)`); err == nil {
		t.Error("a reader could write")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := db.Open(t.Context(), path)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	again.Close()
}

// Nothing that Open says of a wrong DSN holds its password.
func TestPasswordStaysOut(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:hunter2@127.0.0.1:1/x?connect_timeout=1",
		"postgres://u:hunter2@127.0.0.1:1/x?sslmode=nonsense",
		"postgres://u:hunter2@[::1/x",
	} {
		if _, err := db.Open(t.Context(), dsn); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

// A transaction's function that writes beside its transaction is told so,
// instead of waiting for itself.
func TestNestedWrite(t *testing.T) {
	d := open(t, dialects[db.SQLite](t))
	ctx := t.Context()
	if err := d.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
		var n int
		for name, err := range map[string]error{
			"Exec":     db.PutSetting(ctx, d, "a", "1"),
			"InTx":     d.InTx(ctx, func(context.Context, db.Q) error { return nil }),
			"QueryRow": d.Writer().QueryRow(ctx, `SELECT 1`).Scan(&n),
		} {
			if err == nil {
				t.Errorf("%s beside the transaction passed", name)
			}
		}
		if rows, err := d.Writer().Query(ctx, `SELECT 1`); err == nil {
			rows.Close()
			t.Error("Query beside the transaction passed")
		}
		return db.PutSetting(ctx, tx, "a", "2")
	})
	if err != nil {
		t.Fatal(err)
	}
	if v, _, err := db.Setting(ctx, d, "a"); v != "2" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}
