package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/db"
)

// sealBatch bounds the entries that one transaction seals: on SQLite it holds up
// every other writer while it lasts.
const sealBatch = 500

// sealLock is the advisory lock of PostgreSQL that a sealing transaction holds:
// of several processes one seals.
const sealLock = 0x7a6f706461750001

// Seal gives every committed entry that has none its place in the chain of its
// organisation, in the order in which they were written, and returns how many
// these were. Each transaction is short and of bounded size. Where another process
// is sealing at the same moment, Seal leaves the work to it.
func Seal(ctx context.Context, d *db.DB) (sealed int, err error) {
	orgs, err := unsealed(ctx, d)
	if err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	for _, org := range orgs {
		for {
			var n int
			err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
				var err error
				n, err = sealSome(ctx, tx, org)
				return err
			})
			if err != nil {
				return sealed, fmt.Errorf("audit: sealing the log of %s: %w", org, err)
			}
			sealed += n
			if n < sealBatch {
				break
			}
		}
	}
	return sealed, nil
}

// unsealed lists the organisations that have entries outside of their chains.
func unsealed(ctx context.Context, q db.Q) (orgs []string, err error) {
	rows, err := q.Query(ctx, `SELECT DISTINCT org_id FROM audit_log WHERE seq IS NULL ORDER BY org_id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var org string
		if err := rows.Scan(&org); err != nil {
			return nil, err
		}
		orgs = append(orgs, org)
	}
	return orgs, rows.Err()
}

// sealSome seals up to sealBatch entries of an organisation; 0 if there are none,
// or another process is at it.
func sealSome(ctx context.Context, tx db.Q, org string) (int, error) {
	if tx.Dialect() == db.Postgres {
		var mine bool
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, int64(sealLock)).Scan(&mine); err != nil || !mine {
			return 0, err
		}
	}
	head, err := lockHead(ctx, tx, org)
	if err != nil {
		return 0, err
	}
	records, err := read(ctx, tx, `org_id = $1 AND seq IS NULL ORDER BY time, id LIMIT $2`, org, sealBatch)
	if err != nil || len(records) == 0 {
		return 0, err
	}
	links := make([]link, len(records))
	for i := range records {
		r := &records[i]
		r.Seq = head.Seq + 1
		links[i] = link{id: r.ID, seq: r.Seq, prev: head.Hash, hash: r.hash(head.Hash)}
		head = Head{links[i].seq, links[i].hash}
	}
	if err := writeLinks(ctx, tx, org, links); err != nil {
		return 0, err
	}
	n, err := tx.Exec(ctx, `UPDATE audit_heads SET seq = $2, hash = $3 WHERE org_id = $1`, org, head.Seq, head.Hash)
	if err == nil && n != 1 {
		err = errors.New("the head of the chain is gone")
	}
	return len(records), err
}

// lockHead reads the end of a chain, which nobody else moves until the
// transaction ends.
func lockHead(ctx context.Context, tx db.Q, org string) (h Head, err error) {
	_, err = tx.Exec(ctx, `INSERT INTO audit_heads (org_id, seq, hash) VALUES ($1, 0, '') ON CONFLICT (org_id) DO NOTHING`, org)
	if err != nil {
		return h, err
	}
	err = tx.QueryRow(ctx, `SELECT seq, hash FROM audit_heads WHERE org_id = $1`+db.ForUpdate(tx.Dialect()), org).Scan(&h.Seq, &h.Hash)
	return h, err
}

// A link is what sealing adds to an entry.
type link struct {
	id         string
	seq        int64
	prev, hash string
}

func writeLinks(ctx context.Context, tx db.Q, org string, links []link) error {
	written := int64(0)
	if tx.Dialect() == db.Postgres {
		ids, seqs, prevs, hashes := make([]string, len(links)), make([]int64, len(links)), make([]string, len(links)), make([]string, len(links))
		for i, l := range links {
			ids[i], seqs[i], prevs[i], hashes[i] = l.id, l.seq, l.prev, l.hash
		}
		n, err := tx.Exec(ctx, `UPDATE audit_log AS a SET seq = l.seq, prev_hash = l.prev, hash = l.hash
			FROM unnest($2::text[], $3::bigint[], $4::text[], $5::text[]) AS l (id, seq, prev, hash)
			WHERE a.org_id = $1 AND a.id = l.id AND a.seq IS NULL`, org, ids, seqs, prevs, hashes)
		if err != nil {
			return err
		}
		written = n
	} else {
		for _, l := range links {
			n, err := tx.Exec(ctx, `UPDATE audit_log SET seq = $3, prev_hash = $4, hash = $5 WHERE org_id = $1 AND id = $2 AND seq IS NULL`,
				org, l.id, l.seq, l.prev, l.hash)
			if err != nil {
				return err
			}
			written += n
		}
	}
	if written != int64(len(links)) {
		return fmt.Errorf("%d of %d entries took their place", written, len(links))
	}
	return nil
}

// hash chains the record to the one before it. The record is written as a JSON
// array, whose form leaves no choice of order, spacing or presence.
func (r *record) hash(prev string) string {
	text, err := marshal([]any{r.Org, r.Seq, r.ID, r.micros, r.Scope, r.Actor, r.Action, r.ResourceType, r.ResourceID, r.Outcome, r.RequestID, r.detail})
	if err != nil {
		panic(err) // strings and integers only
	}
	sum := sha256.Sum256([]byte(prev + "\n" + text))
	return hex.EncodeToString(sum[:])
}
