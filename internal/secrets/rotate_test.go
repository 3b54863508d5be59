package secrets_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/secrets"
)

func put(t *testing.T, s *secrets.Store, d *db.DB, id, value string) {
	t.Helper()
	err := d.InTx(t.Context(), func(ctx context.Context, tx db.Q) error { return s.Put(ctx, tx, "o1", id, []byte(value)) })
	if err != nil {
		t.Fatal(err)
	}
}

// readable demands that every secret of n opens, by each store.
func readable(t *testing.T, d *db.DB, n int, stores ...*secrets.Store) {
	t.Helper()
	for i, s := range stores {
		for k := range n {
			id := fmt.Sprintf("s%03d", k)
			if got, err := s.Get(t.Context(), d, "o1", id); err != nil || string(got) != canary+id {
				t.Fatalf("store %d: %s is %q, %v", i, id, got, err)
			}
		}
	}
}

func status(t *testing.T, d *db.DB) secrets.Status {
	t.Helper()
	st, err := secrets.StatusOf(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestRotate(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB, dir string) {
		const n = 250
		src := secrets.Source{File: filepath.Join(dir, "k")}
		s, other := store(t, d, src), store(t, d, src)
		for k := range n {
			id := fmt.Sprintf("s%03d", k)
			put(t, s, d, id, canary+id)
		}
		before := status(t, d)
		// Somebody reads and writes all the while, with a store that knows nothing of it.
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for k := 0; ; k = (k + 1) % n {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("s%03d", k)
				if got, err := other.Get(t.Context(), d, "o1", id); err != nil || string(got) != canary+id {
					t.Errorf("while rotating: %q, %v", got, err)
					return
				}
				err := d.InTx(t.Context(), func(ctx context.Context, tx db.Q) error { return other.Put(ctx, tx, "o1", id, []byte(canary+id)) })
				if err != nil {
					t.Errorf("while rotating: %v", err)
					return
				}
			}
		})
		var rotations [3]secrets.Rotation
		var errs [3]error
		var rotators sync.WaitGroup
		for i := range rotations { // three processes at once
			rotators.Go(func() { rotations[i], errs[i] = store(t, d, src).Rotate(t.Context(), d) })
		}
		rotators.Wait()
		close(stop)
		wg.Wait()
		for i, err := range errs {
			if err != nil {
				t.Errorf("rotation %d: %v", i, err)
			}
		}
		after := status(t, d)
		if after.Key == before.Key || len(after.Keys) != 1 || after.Rotating || after.Secrets[after.Key] != n || len(after.Secrets) != 1 {
			t.Errorf("after the rotation: %+v, before: %+v", after, before)
		}
		readable(t, d, n, s, other, store(t, d, src))
		if checked, err := store(t, d, src).Check(t.Context(), d); err != nil || checked != n {
			t.Errorf("Check: %d, %v", checked, err)
		}
	})
}

// refuseUpdates makes the database refuse an update, as if the process died there.
func refuseUpdates(t *testing.T, d *db.DB, table, when string) (undo func()) {
	t.Helper()
	statements := []string{fmt.Sprintf(`CREATE TRIGGER crash BEFORE UPDATE ON %s WHEN %s BEGIN SELECT RAISE(ABORT, 'crash'); END`, table, when)}
	drop := `DROP TRIGGER crash`
	if d.Dialect() == db.Postgres {
		statements = []string{`CREATE OR REPLACE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'crash'; END $$`,
			fmt.Sprintf(`CREATE TRIGGER crash BEFORE UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION crash()`, table, when)}
		drop += " ON " + table
	}
	for _, s := range statements {
		if _, err := d.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if _, err := d.Exec(t.Context(), drop); err != nil {
			t.Fatal(err)
		}
	}
}

// A rotation that ends at any of its transactions leaves every secret readable, by
// old processes and new ones, and the next rotation brings it to its end.
func TestRotationIsResumed(t *testing.T) {
	const n = 150
	for name, tc := range map[string]struct {
		table, when string
		keys        int
	}{
		"before the new key":         {"settings", "NEW.key = 'secrets.keyset'", 1},
		"before the first secret":    {"secrets", "NEW.id = 's000'", 2},
		"between two transactions":   {"secrets", "NEW.id = 's120'", 2},
		"before the old key is gone": {"settings", "NEW.key = 'secrets.keyset' AND length(NEW.value) < length(OLD.value)", 2},
	} {
		t.Run(name, func(t *testing.T) {
			conform(t, func(t *testing.T, d *db.DB, dir string) {
				src := secrets.Source{File: filepath.Join(dir, "k")}
				s, other := store(t, d, src), store(t, d, src)
				for k := range n {
					id := fmt.Sprintf("s%03d", k)
					put(t, s, d, id, canary+id)
				}
				undo := refuseUpdates(t, d, tc.table, tc.when)
				if _, err := s.Rotate(t.Context(), d); err == nil || !strings.Contains(err.Error(), "crash") {
					t.Fatalf("Rotate: %v", err)
				}
				undo()
				if st := status(t, d); len(st.Keys) != tc.keys || st.Rotating != (tc.keys > 1) {
					t.Errorf("after the crash: %+v", st)
				}
				readable(t, d, n, other, store(t, d, src))
				r, err := store(t, d, src).Rotate(t.Context(), d)
				if err != nil || r.Resumed != (tc.keys > 1) {
					t.Fatalf("%+v, %v", r, err)
				}
				if st := status(t, d); len(st.Keys) != 1 || st.Secrets[st.Key] != n || st.Rotating {
					t.Errorf("after the second rotation: %+v", st)
				}
				readable(t, d, n, other, s, store(t, d, src))
			})
		})
	}
}

// A secret that does not open keeps the older keys, and is named.
func TestRotationKeepsWhatDoesNotOpen(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB, dir string) {
		s := store(t, d, secrets.Source{File: filepath.Join(dir, "k")})
		put(t, s, d, "s000", canary+"s000")
		put(t, s, d, "bad", canary)
		if _, err := d.Exec(t.Context(), `UPDATE secrets SET org_id = 'o2' WHERE id = 'bad'`); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Rotate(t.Context(), d); err == nil || !strings.Contains(err.Error(), "o2/bad") || strings.Contains(err.Error(), canary) {
			t.Errorf("Rotate: %v", err)
		}
		if st := status(t, d); !st.Rotating || len(st.Keys) != 2 {
			t.Errorf("%+v", st)
		}
		if _, err := d.Exec(t.Context(), `DELETE FROM secrets WHERE id = 'bad'`); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Rotate(t.Context(), d); err != nil || !r.Resumed {
			t.Errorf("%+v, %v", r, err)
		}
		readable(t, d, 1, s)
	})
}

// What versions before the keyset wrote is read, and rewritten by a rotation.
func TestOlderSecrets(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB, dir string) {
		key := secrets.Older(t, d, map[[2]string]string{{"o1", "s000"}: canary + "s000", {"o1", "s001"}: canary + "s001"})
		wrong := secrets.Source{Text: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))}
		if _, err := secrets.Open(t.Context(), d, wrong); !errors.Is(err, secrets.ErrWrongKey) {
			t.Errorf("a wrong key: %v", err)
		}
		s := store(t, d, secrets.Source{Text: key})
		readable(t, d, 2, s)
		put(t, s, d, "s002", canary+"s002")
		if st := status(t, d); st.Secrets["older"] != 2 || st.Secrets[st.Key] != 1 {
			t.Errorf("%+v", st)
		}
		next, err := s.Rekey(t.Context(), d, secrets.Source{File: filepath.Join(dir, "new")})
		if err != nil {
			t.Fatal(err)
		}
		readable(t, d, 3, s, next, store(t, d, secrets.Source{File: filepath.Join(dir, "new")}))
		if st := status(t, d); st.Secrets["older"] != 0 || st.Secrets[st.Key] != 3 {
			t.Errorf("%+v", st)
		}
		if r, err := next.Rotate(t.Context(), d); err != nil || r.Rewritten != 3 {
			t.Errorf("%+v, %v", r, err)
		}
		readable(t, d, 3, next)
	})
}

// A kms is a key that is somewhere else.
type kms struct {
	tink.AEAD
	err error
}

func (k *kms) EncryptWithContext(_ context.Context, p, ad []byte) ([]byte, error) {
	if k.err != nil {
		return nil, k.err
	}
	return k.Encrypt(p, ad)
}

func (k *kms) DecryptWithContext(_ context.Context, c, ad []byte) ([]byte, error) {
	if k.err != nil {
		return nil, k.err
	}
	return k.Decrypt(c, ad)
}

func TestRekey(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB, dir string) {
		gcm, err := subtle.NewAESGCM(bytes.Repeat([]byte{9}, 32))
		if err != nil {
			t.Fatal(err)
		}
		far := &kms{AEAD: gcm}
		open := func(context.Context, string) (tink.AEADWithContext, error) { return far, nil }
		file := secrets.Source{File: filepath.Join(dir, "k")}
		remote := secrets.Source{Text: "aws-kms://arn:aws:kms:eu-west-1:1:key/a", Name: "--secret-key", KMS: open}
		s := store(t, d, file)
		put(t, s, d, "s000", canary+"s000")
		first := status(t, d)
		if _, err := s.Rekey(t.Context(), d, file); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("the same key: %v", err)
		}
		far.err = errors.New("AccessDeniedException: no")
		if _, err := s.Rekey(t.Context(), d, remote); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
			t.Errorf("a KMS that refuses: %v", err)
		}
		readable(t, d, 1, s, store(t, d, file))
		far.err = nil
		next, err := s.Rekey(t.Context(), d, remote)
		if err != nil {
			t.Fatal(err)
		}
		readable(t, d, 1, s, next, store(t, d, remote))
		if st := status(t, d); st.KEK != remote.Text || st.Key != first.Key {
			t.Errorf("%+v", st)
		}
		// A process that has not been started again goes on reading and writing.
		put(t, s, d, "s001", canary+"s001")
		readable(t, d, 2, s, next)
		_, err = secrets.Open(t.Context(), d, file)
		if !errors.Is(err, secrets.ErrWrongKey) || !strings.Contains(err.Error(), remote.Text) || !strings.Contains(err.Error(), first.KEK) || !strings.Contains(err.Error(), file.File) {
			t.Errorf("the old key: %v", err)
		}
		far.err = errors.New("timeout")
		if _, err := secrets.Open(t.Context(), d, remote); err == nil || errors.Is(err, secrets.ErrWrongKey) || !strings.Contains(err.Error(), "timeout") {
			t.Errorf("a KMS that does not answer: %v", err)
		}
		if _, err := secrets.Open(t.Context(), d, secrets.Source{Text: remote.Text}); err == nil {
			t.Error("a URI was taken without a KMS")
		}
	})
}

// Neither a key nor a secret is in anything that is printed of them.
func TestNothingIsPrinted(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB, dir string) {
		key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xa5}, 32))
		raw := fmt.Sprintf("%d", bytes.Repeat([]byte{0xa5}, 32))
		src := secrets.Source{Text: key, File: filepath.Join(dir, "k")}
		s := store(t, d, src)
		put(t, s, d, "s000", canary)
		var out strings.Builder
		for _, v := range []any{s, src, &src, struct{ S *secrets.Store }{s}, status(t, d)} {
			fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d\n", v, v, v, v, v, v, v)
			b, err := json.Marshal(v)
			if err != nil {
				t.Error(err)
			}
			out.Write(b)
			for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
				_ = h.Handle(t.Context(), func() slog.Record {
					r := slog.NewRecord(time.Time{}, slog.LevelInfo, "x", 0)
					r.Add("v", v)
					return r
				}())
			}
		}
		for _, secret := range []string{key, strings.Trim(raw, "[]"), strings.Repeat("a5", 32), strings.Repeat("0xa5, ", 8), canary} {
			if strings.Contains(strings.ToLower(out.String()), strings.ToLower(secret)) {
				t.Errorf("%q was printed:\n%s", secret, out.String())
			}
		}
	})
}
