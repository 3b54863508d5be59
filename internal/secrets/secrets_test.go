package secrets_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
	"github.com/zopday/provisioner/internal/secrets"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func conform(t *testing.T, test func(t *testing.T, d *db.DB, dir string)) {
	for _, dialect := range []db.Dialect{db.SQLite, db.Postgres} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			dsn := filepath.Join(dir, "zopday.db")
			if dialect == db.Postgres {
				dsn = pgtest.Database(t)
			}
			d, err := db.Open(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			if err := d.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			test(t, d, dir)
		})
	}
}

func store(t *testing.T, d *db.DB, src secrets.Source) *secrets.Store {
	t.Helper()
	s, err := secrets.Open(t.Context(), d, src)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const canary = "canary-hunter2-canary"

func TestRoundTrip(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB, dir string) {
		ctx := t.Context()
		src := secrets.Source{File: filepath.Join(dir, "keys", "zopday.key")}
		s := store(t, d, src)
		for _, v := range []string{canary, "", "second"} {
			err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return s.Put(ctx, tx, "o1", "sec_1", []byte(v)) })
			if err != nil {
				t.Fatal(err)
			}
			// Another process reads it with the same file.
			got, err := store(t, d, src).Get(ctx, d, "o1", "sec_1")
			if err != nil || string(got) != v {
				t.Errorf("Get: %q, %v; want %q", got, err, v)
			}
		}
		if _, err := s.Get(ctx, d, "o2", "sec_1"); !errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("of another organisation: %v", err)
		}
		for range 2 {
			if err := s.Delete(ctx, d, "o1", "sec_1"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Get(ctx, d, "o1", "sec_1"); !errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("after Delete: %v", err)
		}
	})
}

// The database holds ciphertext only, and never the same one twice.
func TestCiphertextOnly(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB, dir string) {
		ctx := t.Context()
		key := filepath.Join(dir, "zopday.key")
		s := store(t, d, secrets.Source{File: key})
		for _, id := range []string{"a", "b"} {
			if err := s.Put(ctx, d, "o1", id, []byte(canary)); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := d.Query(ctx, `SELECT ciphertext, keyset FROM (SELECT id, ciphertext, (SELECT value FROM settings WHERE key = 'secrets.keyset') AS keyset FROM secrets) AS s ORDER BY id`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var all [][]byte
		for rows.Next() {
			var c []byte
			var keyset string
			if err := rows.Scan(&c, &keyset); err != nil {
				t.Fatal(err)
			}
			all = append(all, c, []byte(keyset))
		}
		if len(all) != 4 || bytes.Equal(all[0], all[2]) {
			t.Errorf("two secrets of one text: %x", all)
		}
		master, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(master)))
		if err != nil {
			t.Fatal(err)
		}
		if d.Dialect() == db.SQLite {
			for _, name := range []string{"zopday.db", "zopday.db-wal"} {
				file, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, file)
			}
		}
		for i, b := range all {
			if bytes.Contains(b, []byte(canary)) || bytes.Contains(b, raw) || bytes.Contains(b, bytes.TrimSpace(master)) {
				t.Errorf("part %d of the database holds a secret or the key", i)
			}
		}
	})
}

// A row that was changed, or put in another's place, does not open.
func TestRowsAreBound(t *testing.T) {
	for name, statement := range map[string]string{
		"other ID":           `UPDATE secrets SET id = 'b' WHERE id = 'a'`,
		"other organisation": `UPDATE secrets SET org_id = 'o2' WHERE id = 'a'`,
		"other ciphertext":   `UPDATE secrets SET ciphertext = (SELECT ciphertext FROM secrets WHERE id = 'c') WHERE id = 'a'`,
		"taken for an older": `UPDATE secrets SET wrapped_key = ciphertext WHERE id = 'a'`,
		"whole other row": `UPDATE secrets SET ciphertext = (SELECT ciphertext FROM secrets WHERE id = 'c'),
			wrapped_key = (SELECT wrapped_key FROM secrets WHERE id = 'c') WHERE id = 'a'`,
		"cut ciphertext": `UPDATE secrets SET ciphertext = substr(ciphertext, 1, 20) WHERE id = 'a'`,
		"no ciphertext":  `UPDATE secrets SET ciphertext = substr(ciphertext, 1, 0) WHERE id = 'a'`,
	} {
		t.Run(name, func(t *testing.T) {
			conform(t, func(t *testing.T, d *db.DB, dir string) {
				ctx := t.Context()
				s := store(t, d, secrets.Source{File: filepath.Join(dir, "k")})
				for _, id := range []string{"a", "c"} {
					if err := s.Put(ctx, d, "o1", id, []byte(canary+id)); err != nil {
						t.Fatal(err)
					}
				}
				if n, err := d.Exec(ctx, statement); err != nil || n != 1 {
					t.Fatal(n, err)
				}
				for _, at := range [][2]string{{"o1", "a"}, {"o1", "b"}, {"o2", "a"}} {
					got, err := s.Get(ctx, d, at[0], at[1])
					if err == nil {
						t.Errorf("%v opened as %q", at, got)
					} else if strings.Contains(err.Error(), canary) {
						t.Errorf("the error tells the secret: %v", err)
					}
				}
			})
		})
	}
}

func TestWrongKeyIsRefused(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB, dir string) {
		ctx := t.Context()
		file := filepath.Join(dir, "k")
		store(t, d, secrets.Source{File: file})
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key file's mode is %v, %v", info.Mode(), err)
		}
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		store(t, d, secrets.Source{Text: string(good)})
		wrong := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
		if _, err := secrets.Open(ctx, d, secrets.Source{Text: wrong, File: file}); !errors.Is(err, secrets.ErrWrongKey) || !strings.Contains(err.Error(), secrets.EnvKey) || !strings.Contains(err.Error(), "--secret-key") {
			t.Errorf("a wrong key: %v", err)
		}
		for _, text := range []string{"short", wrong + "x", strings.Repeat("z", 64)} {
			if _, err := secrets.Open(ctx, d, secrets.Source{Text: text}); err == nil || strings.Contains(err.Error(), text) {
				t.Errorf("no key at all: %v", err)
			}
		}
		if _, err := secrets.Open(ctx, d, secrets.Source{}); err == nil {
			t.Error("no source was taken")
		}
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := secrets.Open(ctx, d, secrets.Source{File: file}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a key that others can read: %v", err)
		}
		// A file that is gone is not made anew: its secrets would be lost for good.
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if _, err := secrets.Open(ctx, d, secrets.Source{File: file}); err == nil || !strings.Contains(err.Error(), "the file is gone") || !strings.Contains(err.Error(), "--secret-key") {
			t.Errorf("a key file that is gone: %v", err)
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the key file after that: %v", err)
		}
	})
}

// Processes that start at once on a new database agree on one key.
func TestFirstStartTogether(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB, dir string) {
		var (
			wg     sync.WaitGroup
			stores [6]*secrets.Store
			errs   [6]error
		)
		for i := range stores {
			wg.Go(func() {
				stores[i], errs[i] = secrets.Open(t.Context(), d, secrets.Source{File: filepath.Join(dir, "k")})
			})
		}
		wg.Wait()
		for i, err := range errs {
			if err != nil {
				t.Fatalf("process %d: %v", i, err)
			}
		}
		if err := stores[0].Put(t.Context(), d, "o", "a", []byte(canary)); err != nil {
			t.Fatal(err)
		}
		for _, s := range stores {
			if got, err := s.Get(t.Context(), d, "o", "a"); err != nil || string(got) != canary {
				t.Errorf("%q, %v", got, err)
			}
		}
	})
}
