package server

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/secrets"
)

// TestBackupAndRestore: what a running process wrote comes back with its key, and a
// backup that is not what it should be leaves nothing.
func TestBackupAndRestore(t *testing.T) {
	dir := t.TempDir()
	key := secrets.Source{File: filepath.Join(dir, "key")}
	d, err := db.Open(t.Context(), filepath.Join(dir, "zopday.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	ctx := db.System(t.Context())
	if err := d.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := secrets.Open(ctx, d, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(ctx, d.Writer(), access.DefaultOrg, "a", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := audit.Append(ctx, d.Writer(), audit.Entry{Org: access.DefaultOrg, Actor: "a", Action: "b:c", Outcome: audit.Allowed}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := audit.Seal(ctx, d); err != nil {
		t.Fatal(err)
	}
	file, size, err := keeper{db: d, secrets: s}.Backup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(file)
	if err != nil || int64(len(content)) != size || file.Close() != nil || bytes.Contains(content, []byte("secret\x00")) {
		t.Fatalf("%d of %d bytes, %v", len(content), size, err)
	}
	in := filepath.Join(dir, "backup.db")
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(in, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(content)
	to := filepath.Join(dir, "restored.db")
	got, err := Restore(ctx, RestoreOptions{In: in, DB: to, Key: key})
	if err != nil || got.Entries != 3 || got.Secrets != 1 || got.Schema == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	again, err := db.Open(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := secrets.Open(ctx, again, key); err != nil {
		t.Error(err)
	} else if v, err := s.Get(ctx, again, access.DefaultOrg, "a"); err != nil || string(v) != "secret" {
		t.Errorf("%q, %v", v, err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}

	refused := func(name, says string, o RestoreOptions) {
		t.Helper()
		_, err := Restore(ctx, o)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
		if o.DB != to {
			if _, err := os.Stat(o.DB); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: something is left: %v", name, err)
			}
		}
	}
	other := filepath.Join(dir, "other.db")
	refused("over a database", "replaces nothing", RestoreOptions{In: in, DB: to, Key: key})
	refused("a wrong key", "not the key", RestoreOptions{In: in, DB: other, Key: secrets.Source{Text: strings.Repeat("ab", 32)}})
	refused("a key that is gone", "the file is gone", RestoreOptions{In: in, DB: other, Key: secrets.Source{File: filepath.Join(dir, "nokey")}})
	refused("to PostgreSQL", "pg_restore", RestoreOptions{In: in, DB: "postgres://x/y"})
	torn := bytes.Clone(content)
	copy(torn[len(torn)/2:], make([]byte, 20_000))
	write(torn)
	refused("a damaged file", "", RestoreOptions{In: in, DB: other, Key: key})
	write([]byte("no database"))
	refused("no database", "", RestoreOptions{In: in, DB: other, Key: key})

	write(content)
	tamper := func(statements ...string) {
		t.Helper()
		d, err := db.Open(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range statements {
			if _, err := d.Exec(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	tamper(`DROP TRIGGER audit_log_update`, `UPDATE audit_log SET actor = 'eve' WHERE seq = 2`)
	refused("a changed audit log", "broken at entry 2", RestoreOptions{In: in, DB: other, Key: key})
	write(content)
	tamper(`DROP TRIGGER audit_log_delete`, `DROP TRIGGER audit_heads_delete`, `DELETE FROM audit_log`, `DELETE FROM audit_heads`, `UPDATE organisations SET created_at = 0`)
	refused("no audit log", "broken at entry 1", RestoreOptions{In: in, DB: other, Key: key})
	write(content)
	tamper(`DELETE FROM organisations`)
	refused("an audit log of nobody", "no such organisation", RestoreOptions{In: in, DB: other, Key: key})
	write(content)
	tamper(`UPDATE schema_migrations SET version_id = 9999 WHERE version_id = (SELECT max(version_id) FROM schema_migrations)`)
	refused("a newer schema", "newer version", RestoreOptions{In: in, DB: other, Key: key})
}
