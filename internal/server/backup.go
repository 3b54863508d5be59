package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/provision"
	"github.com/zopday/provisioner/internal/secrets"
)

// keeper is what the use cases ask of the installation's keys and database.
type keeper struct {
	db      *db.DB
	secrets *secrets.Store // nil while the store is closed
}

// Rotate makes a new data key and writes every secret anew with it.
func (k keeper) Rotate(ctx context.Context) (secrets.Rotation, error) {
	if k.secrets == nil {
		return secrets.Rotation{}, provision.ErrNoKey
	}
	return k.secrets.Rotate(ctx, k.db)
}

// Status says how the secrets are kept.
func (k keeper) Status(ctx context.Context) (secrets.Status, error) {
	return secrets.StatusOf(ctx, k.db)
}

// Backup is a copy of the database as it is at this moment, which whoever closes it
// removes. Of PostgreSQL it is db.ErrNoCopy.
func (k keeper) Backup(ctx context.Context) (io.ReadCloser, int64, error) {
	dir, err := os.MkdirTemp("", "zopday-backup-")
	if err != nil {
		return nil, 0, err
	}
	path := filepath.Join(dir, "zopday.db")
	f, size, err := func() (*os.File, int64, error) {
		if err := k.db.Copy(ctx, path); err != nil {
			return nil, 0, err
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		return f, info.Size(), nil
	}()
	if err != nil {
		return nil, 0, errors.Join(err, os.RemoveAll(dir))
	}
	return copied{f, dir}, size, nil
}

type copied struct {
	*os.File
	dir string
}

func (c copied) Close() error { return errors.Join(c.File.Close(), os.RemoveAll(c.dir)) }

// Backup copies an SQLite file that no server has open to a file that must not exist.
func Backup(ctx context.Context, dsn, out string) error {
	if db.IsPostgres(dsn) {
		return db.ErrNoCopy
	}
	if _, err := os.Stat(strings.TrimPrefix(dsn, "sqlite:")); err != nil {
		return err // opening it would make one
	}
	d, err := db.Open(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(d.Copy(ctx, out), d.Close())
}

// A Restored is what was found in a backup.
type Restored struct {
	Schema  int64 `json:"schema"`  // version of the schema
	Entries int64 `json:"entries"` // of the audit log, sealed
	Secrets int   `json:"secrets"` // all of which open
}

// RestoreOptions say what is restored where.
type RestoreOptions struct {
	In, DB string
	Key    secrets.Source
	NoKey  bool // the key is not here: whether the secrets open is not looked at
}

// Restore puts a backup in the place of a database that must not exist, after it has
// looked at the backup: whole file, known schema, whole audit log, secrets that open
// with the key. Nothing is left when one of these fails.
func Restore(ctx context.Context, o RestoreOptions) (out Restored, err error) {
	if db.IsPostgres(o.DB) {
		return out, errors.New("a PostgreSQL database is restored with pg_restore, see docs/backup.md")
	}
	path := strings.TrimPrefix(o.DB, "sqlite:")
	for _, there := range []string{path, path + "-wal", path + "-shm"} {
		if _, err := os.Stat(there); !errors.Is(err, fs.ErrNotExist) {
			return out, fmt.Errorf("%s exists: a restore replaces nothing; move it away first, or name another --db", there)
		}
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".zopday-restore-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tmp := filepath.Join(dir, "zopday.db")
	if err := copyFile(o.In, tmp); err != nil {
		return out, err
	}
	d, err := db.Open(ctx, tmp)
	if err != nil {
		return out, fmt.Errorf("%s: %w", o.In, err)
	}
	out, err = inspect(db.System(ctx), d, o)
	if err = errors.Join(err, d.Close()); err != nil {
		return out, fmt.Errorf("%s is not restored: %w", o.In, err)
	}
	// Closed, it is one file: what was beside it has been taken in.
	return out, os.Rename(tmp, path)
}

// inspect looks at a backup, and notes in its audit log that it was restored.
func inspect(ctx context.Context, d *db.DB, o RestoreOptions) (out Restored, err error) {
	if err := d.Whole(ctx); err != nil {
		return out, err
	}
	have, known, err := d.Schema(ctx)
	if err != nil {
		return out, err
	}
	if out.Schema = have; have > known {
		return out, fmt.Errorf("its schema is at %d, and this program knows %d: it was written by a newer version; restore it with that one", have, known)
	}
	if err := d.Migrate(ctx); err != nil {
		return out, err
	}
	orgs, err := audit.Orgs(ctx, d)
	if err != nil {
		return out, err
	}
	for _, org := range orgs {
		r, err := audit.Check(ctx, d, org)
		if err != nil {
			return out, err
		}
		out.Entries += r.Seq
	}
	st, err := secrets.StatusOf(ctx, d)
	if err != nil {
		return out, err
	}
	if !o.NoKey && (st.KEK != "" || len(st.Secrets) > 0) {
		s, err := secrets.Open(ctx, d, o.Key)
		if err != nil {
			return out, err
		}
		if out.Secrets, err = s.Check(ctx, d); err != nil {
			return out, err
		}
	}
	return out, NoteKeeping(ctx, d, "backup:restore")
}

// NoteKeeping writes into the audit log what somebody who has the database itself
// does to it. A server that starts later seals the entry.
func NoteKeeping(ctx context.Context, d *db.DB, action string) error {
	return audit.Append(ctx, d.Writer(), audit.Entry{Org: access.DefaultOrg, Actor: "system:command-line", Action: action, ResourceType: "installation", Outcome: audit.Allowed})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
