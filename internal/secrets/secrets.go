// Package secrets keeps secrets in the database, encrypted by envelope: each one
// by a data key (Tink AEAD, AES-256-GCM), the data keys in a keyset, and the keyset
// by a key that is in a file, the environment or a KMS, and never in the database.
// Organisation and ID are bound into each ciphertext, so that a row put in another's
// place does not open.
//
// A rotation (see [Store.Rotate]) makes a new data key and writes every secret anew
// with it; [Store.Rekey] puts the keyset under another key. Processes that run
// meanwhile find the new keyset by themselves.
package secrets

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/zopday/provisioner/internal/db"
)

// ErrNotFound is a secret that does not exist, or not in this organisation.
var ErrNotFound = errors.New("secret not found")

// A Store puts and gets secrets.
type Store struct {
	kek  kek
	ring atomic.Pointer[ring]
}

// Format shows which key the store has and never a key.
func (s *Store) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.text()) }

// LogValue is the same for structured logs.
func (s *Store) LogValue() slog.Value { return slog.StringValue(s.text()) }

// MarshalJSON is the same for JSON.
func (s *Store) MarshalJSON() ([]byte, error) { return json.Marshal(s.text()) }

func (s *Store) text() string {
	if s == nil {
		return "secrets.Store(closed)"
	}
	return "secrets.Store(" + s.kek.id + ")"
}

// Open reads the key, making one when the database is new, and refuses one that is
// not the database's ([ErrWrongKey]): it would be found at the first secret that
// does not open otherwise.
func Open(ctx context.Context, d *db.DB, src Source) (*Store, error) {
	ctx = db.System(ctx)
	rec, known, err := readRecord(ctx, d)
	if err != nil {
		return nil, err
	}
	check, older, err := db.Setting(ctx, d, checkSetting)
	if err != nil {
		return nil, err
	}
	want := rec.KEK
	if !known && older {
		want = localPrefix + check[:min(8, len(check))]
	}
	k, err := src.load(ctx, want == "", want)
	if err != nil {
		return nil, err
	}
	if !known {
		if older && subtle.ConstantTimeCompare([]byte(check), []byte(k.check)) != 1 {
			return nil, &wrongKeyError{want: want, have: k.id, from: k.from}
		}
		if rec, err = firstKeyset(ctx, d, k); err != nil {
			return nil, err
		}
	}
	r, err := rec.open(ctx, k)
	if err != nil {
		return nil, err
	}
	s := &Store{kek: k}
	s.ring.Store(r)
	return s, nil
}

// firstKeyset makes the installation's keyset. Of processes that start at once all
// get the first one's.
func firstKeyset(ctx context.Context, d *db.DB, k kek) (record, error) {
	r, err := newKeyset()
	if err != nil {
		return record{}, err
	}
	rec, err := r.seal(ctx, k)
	if err != nil {
		return record{}, err
	}
	if _, err := db.PutSettingOnce(ctx, d.Writer(), keysetSetting, rec.text); err != nil {
		return record{}, err
	}
	rec, ok, err := readRecord(ctx, d.Writer())
	if err == nil && !ok {
		err = errors.New("the keyset that was just written is not there")
	}
	return rec, err
}

// Refresh takes over the keyset if another process has changed it.
func (s *Store) Refresh(ctx context.Context, q db.Q) error {
	_, err := s.current(ctx, q)
	return err
}

// current is the keyset as it stands in the database. As long as its data keys are
// the ones that are known, it is not opened: under another key encryption key the
// secrets are the same.
func (s *Store) current(ctx context.Context, q db.Q) (*ring, error) {
	rec, ok, err := readRecord(ctx, q)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("the keyset of this database's secrets is gone; restore the database from its backup")
	}
	have := s.ring.Load()
	if have.primary == rec.Primary && len(have.keys) == len(rec.Keys) {
		return have, nil
	}
	r, err := rec.open(ctx, s.kek)
	if err != nil {
		return nil, err
	}
	s.ring.Store(r)
	return r, nil
}

// writer is the keyset for a write in a transaction, which nobody changes until the
// transaction ends. SQLite has one writer at a time and needs no lock.
func (s *Store) writer(ctx context.Context, q db.Q) (*ring, error) {
	if q.Dialect() == db.Postgres {
		if _, err := q.Exec(ctx, `SELECT pg_advisory_xact_lock_shared($1)`, int64(keysetLock)); err != nil {
			return nil, err
		}
	}
	return s.current(ctx, q)
}

const insertSecret = `INSERT INTO secrets (org_id, id, key_id, wrapped_key, ciphertext, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, %[1]s, %[1]s) ON CONFLICT ` //nolint:gosec // SQL with placeholders, no credential

// Put writes a secret, or replaces it, in the caller's transaction.
func (s *Store) Put(ctx context.Context, q db.Q, org, id string, plaintext []byte) error {
	return s.put(ctx, q, org, id, plaintext, `(org_id, id) DO UPDATE SET key_id = excluded.key_id, wrapped_key = excluded.wrapped_key,
		ciphertext = excluded.ciphertext, updated_at = excluded.updated_at`)
}

func (s *Store) put(ctx context.Context, q db.Q, org, id string, plaintext []byte, conflict string) error {
	r, err := s.writer(ctx, q)
	if err != nil {
		return fmt.Errorf("secret %s: %w", id, err)
	}
	sealed, err := r.aead.Encrypt(plaintext, bound("secret", org, id))
	if err != nil {
		return fmt.Errorf("secret %s: %w", id, err)
	}
	_, err = q.Exec(ctx, fmt.Sprintf(insertSecret, "(SELECT "+db.Now(q.Dialect())+")")+conflict, org, id, keyName(r.primary), []byte{}, sealed)
	if err != nil {
		return fmt.Errorf("secret %s: %w", id, err)
	}
	return nil
}

// Once is the secret of an ID: the first caller's value is committed, and every
// caller gets that one.
func (s *Store) Once(ctx context.Context, d *db.DB, org, id string, value []byte) ([]byte, error) {
	have, err := s.Get(ctx, d, org, id)
	if !errors.Is(err, ErrNotFound) {
		return have, err
	}
	err = d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return s.put(ctx, tx, org, id, value, `DO NOTHING`) })
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, d.Writer(), org, id)
}

// getTries is how often a secret is read again because its key is not known: a
// rotation may finish between the reading of the row and that of the keyset.
const getTries = 3

// Get reads a secret of an organisation.
func (s *Store) Get(ctx context.Context, q db.Q, org, id string) ([]byte, error) {
	for try := 1; ; try++ {
		var wrapped, sealed []byte
		err := q.QueryRow(ctx, `SELECT wrapped_key, ciphertext FROM secrets WHERE org_id = $1 AND id = $2`, org, id).Scan(&wrapped, &sealed)
		if errors.Is(err, db.ErrNoRows) {
			return nil, fmt.Errorf("%s: %w", id, ErrNotFound)
		}
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", id, err)
		}
		plain, unknown, err := s.open(org, id, wrapped, sealed)
		if unknown && try < getTries {
			if err := s.Refresh(ctx, q); err != nil {
				return nil, fmt.Errorf("secret %s: %w", id, err)
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", id, err)
		}
		return plain, nil
	}
}

// open decrypts a row. unknown says that its data key is none of the known ones.
func (s *Store) open(org, id string, wrapped, sealed []byte) (plain []byte, unknown bool, err error) {
	if len(wrapped) > 0 {
		plain, err = s.kek.openLegacy(org, id, wrapped, sealed)
		return plain, false, err
	}
	r := s.ring.Load()
	plain, err = r.aead.Decrypt(sealed, bound("secret", org, id))
	if err == nil {
		return plain, false, nil
	}
	key, ok := keyOf(sealed)
	return nil, ok && !r.keys[key], errors.New("it does not open: the row was changed")
}

// Delete removes a secret; one that is gone already is no error.
func (s *Store) Delete(ctx context.Context, q db.Q, org, id string) error {
	return Remove(ctx, q, org, id)
}

// Remove removes a secret without the key, which nothing but reading it needs.
func Remove(ctx context.Context, q db.Q, org, id string) error {
	if _, err := q.Exec(ctx, `DELETE FROM secrets WHERE org_id = $1 AND id = $2`, org, id); err != nil {
		return fmt.Errorf("secret %s: %w", id, err)
	}
	return nil
}
