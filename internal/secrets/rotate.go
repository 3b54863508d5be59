package secrets

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/db"
)

// sweepBatch is how many secrets are written anew in one transaction.
const sweepBatch = 100

// swapTries bounds how often a change of the keyset is begun again because another
// process changed it first.
const swapTries = 5

var errChanged = errors.New("another process changes the keys at the same moment; run this again")

// A Rotation is what a rotation did.
type Rotation struct {
	Key       string `json:"key" doc:"The data key that every secret is written with now"`
	Rewritten int    `json:"rewritten" doc:"Secrets that were written anew"`
	Resumed   bool   `json:"resumed" doc:"A rotation that had been cut off was brought to its end"`
}

// Rotate makes a new data key, writes every secret of every organisation anew with
// it, and then takes the older keys out of the keyset. Every secret can be read at
// every moment. A rotation that was cut off is brought to its end by the next one,
// which makes no further key then. Processes that run meanwhile take the new keyset
// over by themselves.
func (s *Store) Rotate(ctx context.Context, d *db.DB) (Rotation, error) {
	ctx = db.System(ctx)
	out, err := s.begin(ctx, d)
	if err != nil {
		return out, fmt.Errorf("rotation of the secrets: %w", err)
	}
	for range swapTries {
		n, err := s.sweep(ctx, d)
		out.Rewritten += n
		if err != nil {
			return out, fmt.Errorf("rotation of the secrets: %w", err)
		}
		done, err := s.retire(ctx, d)
		if err != nil {
			return out, fmt.Errorf("rotation of the secrets: %w", err)
		}
		if done {
			return out, nil
		}
	}
	return out, fmt.Errorf("rotation of the secrets: %w", errChanged)
}

// begin makes the new key the one that secrets are written with.
func (s *Store) begin(ctx context.Context, d *db.DB) (out Rotation, err error) {
	for range swapTries {
		rec, r, err := s.standing(ctx, d)
		if err != nil {
			return out, err
		}
		if len(rec.Keys) > 1 {
			return Rotation{Key: keyName(r.primary), Resumed: true}, nil
		}
		next, err := r.withNewKey()
		if err != nil {
			return out, err
		}
		swapped, err := s.swap(ctx, d, rec, next, s.kek, nil)
		if err != nil {
			return out, err
		}
		if swapped {
			return Rotation{Key: keyName(next.primary)}, nil
		}
	}
	return out, errChanged
}

// standing is the stored keyset and what is in it.
func (s *Store) standing(ctx context.Context, d *db.DB) (record, *ring, error) {
	rec, ok, err := readRecord(ctx, d.Writer())
	if err != nil {
		return rec, nil, err
	}
	if !ok {
		return rec, nil, errors.New("there is no keyset yet")
	}
	r, err := rec.open(ctx, s.kek)
	if err == nil {
		s.ring.Store(r)
	}
	return rec, r, err
}

// swap puts a keyset in another's place, unless the stored one has changed or check
// says no. Whoever asks a KMS has done so before: no transaction spans that.
func (s *Store) swap(ctx context.Context, d *db.DB, old record, next *ring, k kek, check func(context.Context, db.Q) (bool, error)) (swapped bool, err error) {
	rec, err := next.seal(ctx, k)
	if err != nil {
		return false, err
	}
	err = d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
		if tx.Dialect() == db.Postgres {
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(keysetLock)); err != nil {
				return err
			}
		}
		if check != nil {
			if ok, err := check(ctx, tx); err != nil || !ok {
				return err
			}
		}
		n, err := tx.Exec(ctx, `UPDATE settings SET value = $3, updated_at = `+db.Now(tx.Dialect())+` WHERE org_id = '' AND key = $1 AND value = $2`,
			keysetSetting, old.text, rec.text)
		swapped = n == 1
		return err
	})
	if err != nil || !swapped {
		return false, err
	}
	s.ring.Store(next)
	return true, nil
}

// outdated chooses the secrets that are not written with a key.
const outdated = `(key_id <> $1 OR length(wrapped_key) > 0)`

// sweep writes every secret anew that is not written with the primary key.
func (s *Store) sweep(ctx context.Context, d *db.DB) (rewritten int, err error) {
	var bad []string
	org, id := "", ""
	for {
		var n, seen int
		var failed []string
		err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
			n, seen, failed = 0, 0, nil
			r, err := s.writer(ctx, tx)
			if err != nil {
				return err
			}
			rows, err := secretsAfter(ctx, tx, r.primary, org, id)
			if err != nil {
				return err
			}
			seen = len(rows)
			for _, row := range rows {
				did, err := s.rewrite(ctx, tx, r, row)
				if errors.Is(err, errUnreadable) {
					failed = append(failed, row.org+"/"+row.id)
					continue
				}
				if err != nil {
					return err
				}
				n += did
			}
			if seen > 0 {
				org, id = rows[seen-1].org, rows[seen-1].id
			}
			return nil
		})
		if err != nil {
			return rewritten, err
		}
		rewritten, bad = rewritten+n, append(bad, failed...)
		if seen < sweepBatch {
			break
		}
	}
	if len(bad) > 0 {
		return rewritten, fmt.Errorf("%d secrets do not open (the first is %s): their rows were changed; restore them from a backup or delete what they belong to, then run this again; the older keys are kept until then", len(bad), bad[0])
	}
	return rewritten, nil
}

type secretRow struct {
	org, id         string
	wrapped, sealed []byte
}

func secretsAfter(ctx context.Context, tx db.Q, primary uint32, org, id string) (out []secretRow, err error) {
	rows, err := tx.Query(ctx, `SELECT org_id, id, wrapped_key, ciphertext FROM secrets WHERE `+outdated+` AND (org_id, id) > ($2, $3) ORDER BY org_id, id LIMIT $4`,
		keyName(primary), org, id, sweepBatch)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r secretRow
		if err := rows.Scan(&r.org, &r.id, &r.wrapped, &r.sealed); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

var errUnreadable = errors.New("it does not open")

// rewrite writes one secret with the primary key; 0 if somebody else has changed or
// removed it meanwhile.
func (s *Store) rewrite(ctx context.Context, tx db.Q, r *ring, row secretRow) (int, error) {
	plain, _, err := s.open(row.org, row.id, row.wrapped, row.sealed)
	if err != nil {
		return 0, errUnreadable
	}
	sealed, err := r.aead.Encrypt(plain, bound("secret", row.org, row.id))
	clear(plain)
	if err != nil {
		return 0, err
	}
	n, err := tx.Exec(ctx, `UPDATE secrets SET key_id = $3, wrapped_key = $4, ciphertext = $5 WHERE org_id = $1 AND id = $2 AND ciphertext = $6`,
		row.org, row.id, keyName(r.primary), []byte{}, sealed, row.sealed)
	return int(n), err
}

// retire takes the older keys out of the keyset once no secret needs them.
func (s *Store) retire(ctx context.Context, d *db.DB) (done bool, err error) {
	rec, r, err := s.standing(ctx, d)
	if err != nil {
		return false, err
	}
	if len(rec.Keys) == 1 {
		return true, nil // another process was first
	}
	next, err := r.primaryOnly()
	if err != nil {
		return false, err
	}
	return s.swap(ctx, d, rec, next, s.kek, func(ctx context.Context, tx db.Q) (bool, error) {
		var left int
		err := tx.QueryRow(ctx, `SELECT count(*) FROM secrets WHERE `+outdated, keyName(r.primary)).Scan(&left)
		return left == 0, err
	})
}

// Rekey puts the keyset under another key, and returns the store under that one. The
// secrets stay as they are, but for those of older versions, which are written anew
// first. Once it returns, the database needs the new key: processes that run go on
// until they start again. A key file that does not exist is made.
func (s *Store) Rekey(ctx context.Context, d *db.DB, to Source) (*Store, error) {
	ctx = db.System(ctx)
	k, err := to.load(ctx, true, "")
	if err != nil {
		return nil, err
	}
	if _, err := s.sweep(ctx, d); err != nil {
		return nil, fmt.Errorf("new key: %w", err)
	}
	for range swapTries {
		rec, r, err := s.standing(ctx, d)
		if err != nil {
			return nil, err
		}
		if k.id == rec.KEK {
			return nil, fmt.Errorf("secret key %s: it is %s, the key that the secrets are under already", k.from, k.id)
		}
		swapped, err := s.swap(ctx, d, rec, r, k, nil)
		if err != nil {
			return nil, err
		}
		if swapped {
			next := &Store{kek: k}
			next.ring.Store(r)
			return next, nil
		}
	}
	return nil, errChanged
}

// A Status is how the secrets of a database are kept. Nothing in it is secret.
type Status struct {
	KEK      string         `json:"kek" doc:"The key that the keyset is encrypted with: local and a part of its check value, or the URI of a key in a KMS"`
	Key      string         `json:"key" doc:"The data key that new secrets are written with"`
	Keys     []string       `json:"keys" doc:"All data keys; more than one while a rotation is under way"`
	Secrets  map[string]int `json:"secrets" doc:"Secrets by data key; older is what a rotation has still to rewrite from the format of earlier versions"`
	Rotating bool           `json:"rotating" doc:"A rotation was begun and has not come to its end; rotate again to finish it"`
}

// StatusOf says how the secrets of a database are kept. It needs no key.
func StatusOf(ctx context.Context, d *db.DB) (Status, error) {
	ctx = db.System(ctx)
	rec, ok, err := readRecord(ctx, d)
	if err != nil {
		return Status{}, err
	}
	out := Status{Keys: []string{}, Secrets: map[string]int{}}
	if ok {
		out.KEK, out.Key, out.Rotating = rec.KEK, keyName(rec.Primary), len(rec.Keys) > 1
		for _, k := range rec.Keys {
			out.Keys = append(out.Keys, keyName(k))
		}
		slices.Sort(out.Keys)
	}
	rows, err := d.Query(ctx, `SELECT CASE WHEN length(wrapped_key) > 0 THEN 'older' ELSE key_id END AS kind, count(*) FROM secrets GROUP BY 1 ORDER BY 1`)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			kind string
			n    int
		)
		if err := rows.Scan(&kind, &n); err != nil {
			return out, err
		}
		out.Secrets[kind] = n
	}
	return out, rows.Err()
}

// Check opens every secret and says which do not: of a database that was restored,
// whether the key is the right one and every row is whole.
func (s *Store) Check(ctx context.Context, d *db.DB) (checked int, err error) {
	ctx = db.System(ctx)
	org, id := "", ""
	for {
		rows, err := secretsAfter(ctx, d, 0, org, id)
		if err != nil {
			return checked, err
		}
		for _, r := range rows {
			plain, _, err := s.open(r.org, r.id, r.wrapped, r.sealed)
			if err != nil {
				return checked, fmt.Errorf("secret %s of %s: %w", r.id, r.org, err)
			}
			clear(plain)
			checked++
			org, id = r.org, r.id
		}
		if len(rows) < sweepBatch {
			return checked, nil
		}
	}
}
