// Package secrets keeps secrets in the database, encrypted by envelope: each one
// with a random key of its own (AES-256-GCM), and that key wrapped by one derived
// from the installation's master key, which is in a file or the environment and
// never in the database. Organisation and ID are bound into both, so that a row
// put in another's place does not open.
package secrets

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/db"
)

// ErrNotFound is a secret that does not exist, or not in this organisation.
var ErrNotFound = errors.New("secret not found")

// ErrWrongKey is a master key that is not the one of this database.
var ErrWrongKey = errors.New("it is not the key that this database's secrets were written with; restore that key")

// checkSetting holds a value derived from the master key, which tells a wrong
// key at start instead of at the first secret that does not open.
const checkSetting = "secrets.key_check"

// A Store puts and gets secrets.
type Store struct {
	wrap  cipher.AEAD
	keyID string
}

// Open reads the master key, making one when the database is new, and refuses
// one that is not the database's.
func Open(ctx context.Context, d *db.DB, src Source) (*Store, error) {
	stored, known, err := db.Setting(ctx, d, checkSetting)
	if err != nil {
		return nil, err
	}
	k, err := src.load(!known)
	if err != nil {
		return nil, err
	}
	if !known {
		if stored, err = db.PutSettingOnce(ctx, d, checkSetting, k.check); err != nil {
			return nil, err
		}
	}
	if subtle.ConstantTimeCompare([]byte(stored), []byte(k.check)) != 1 {
		return nil, fmt.Errorf("secret key %s: %w", src.where(), ErrWrongKey)
	}
	wrap, err := aead(k.wrap)
	if err != nil {
		return nil, err
	}
	return &Store{wrap: wrap, keyID: k.check[:8]}, nil
}

func aead(k []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// bound is what a ciphertext is bound to. The lengths keep two pairs of strings
// from reading alike.
func bound(what, org, id string) []byte {
	return fmt.Appendf(nil, "zopday %s/%d:%s/%d:%s", what, len(org), org, len(id), id)
}

// Put writes a secret, or replaces it, in the caller's transaction.
func (s *Store) Put(ctx context.Context, q db.Q, org, id string, plaintext []byte) error {
	wrapped, sealed, err := s.seal(org, id, plaintext)
	if err != nil {
		return fmt.Errorf("secret %s: %w", id, err)
	}
	now := "(SELECT " + db.Now(q.Dialect()) + ")"
	_, err = q.Exec(ctx, `INSERT INTO secrets (org_id, id, key_id, wrapped_key, ciphertext, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, `+now+`, `+now+`)
		ON CONFLICT (org_id, id) DO UPDATE SET key_id = excluded.key_id, wrapped_key = excluded.wrapped_key,
			ciphertext = excluded.ciphertext, updated_at = excluded.updated_at`, org, id, s.keyID, wrapped, sealed)
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
	err = d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
		wrapped, sealed, err := s.seal(org, id, value)
		if err != nil {
			return err
		}
		now := "(SELECT " + db.Now(tx.Dialect()) + ")"
		_, err = tx.Exec(ctx, `INSERT INTO secrets (org_id, id, key_id, wrapped_key, ciphertext, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, `+now+`, `+now+`) ON CONFLICT DO NOTHING`, org, id, s.keyID, wrapped, sealed)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", id, err)
	}
	return s.Get(ctx, d.Writer(), org, id)
}

// seal encrypts a secret under a key of its own.
func (s *Store) seal(org, id string, plaintext []byte) (wrapped, sealed []byte, err error) {
	dek := make([]byte, keySize)
	rand.Read(dek)
	data, err := aead(dek)
	if err != nil {
		return nil, nil, err
	}
	return s.wrap.Seal(nil, nil, dek, bound("key", org, id)), data.Seal(nil, nil, plaintext, bound("data", org, id)), nil
}

// Get reads a secret of an organisation.
func (s *Store) Get(ctx context.Context, q db.Q, org, id string) ([]byte, error) {
	var wrapped, sealed []byte
	err := q.QueryRow(ctx, `SELECT wrapped_key, ciphertext FROM secrets WHERE org_id = $1 AND id = $2`, org, id).Scan(&wrapped, &sealed)
	if errors.Is(err, db.ErrNoRows) {
		return nil, fmt.Errorf("%s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", id, err)
	}
	dek, err := s.wrap.Open(nil, nil, wrapped, bound("key", org, id))
	if err != nil {
		return nil, fmt.Errorf("secret %s: its key does not open: the row was changed", id)
	}
	data, err := aead(dek)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", id, err)
	}
	plain, err := data.Open(nil, nil, sealed, bound("data", org, id))
	if err != nil {
		return nil, fmt.Errorf("secret %s: it does not open: the row was changed", id)
	}
	return plain, nil
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
