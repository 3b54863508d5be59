package audit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/zopday/provisioner/internal/db"
)

// A BrokenError is a chain that is not as it was written.
type BrokenError struct {
	Org    string
	Seq    int64 // the first entry that does not fit
	Reason string
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("the audit log of %s is broken at entry %d: %s", e.Org, e.Seq, e.Reason)
}

// A Head is the end of a chain. Kept elsewhere, it shows later that the log was
// not rewritten as a whole: the entry with its number must still have its hash.
type Head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// StalledAfter is how old an unsealed entry may be before a sealer has to be
// presumed stopped.
const StalledAfter = time.Minute

// A Tail is what of a log is not sealed yet.
type Tail struct {
	Unsealed int64         // entries
	Oldest   time.Duration // age of the oldest of them, by the database's clock
}

// Stalled reports whether entries wait for longer than a sealer that runs takes.
func (t Tail) Stalled() bool { return t.Oldest > StalledAfter }

// A Report is a chain that was found whole, and what is outside of it.
type Report struct {
	Head
	Tail
}

// verifyPage is how many entries Verify holds in memory at once.
const verifyPage = 1000

// Verify walks the whole chain of an organisation. It reads only, and holds up
// neither writers nor sealers. A chain that was tampered with is a *BrokenError.
// What has not been sealed yet is counted and cannot be shown to be whole.
func Verify(ctx context.Context, d *db.DB, org string) (Report, error) {
	last, err := walk(ctx, d, org)
	if err != nil {
		return Report{}, err
	}
	tail, err := TailOf(ctx, d, org)
	return Report{Head: last, Tail: tail}, err
}

// NewFor is for how long an organisation may have no log: making one writes the first
// entry, and so does the start of a server for one that a migration made.
const NewFor = time.Minute

// Check is Verify, and whether the log goes with its organisation: one that exists has
// a log, and a log is of one that exists. So it shows when a whole log is gone, with
// its head, or the organisation with its name.
func Check(ctx context.Context, d *db.DB, org string) (Report, error) {
	r, err := Verify(ctx, d, org)
	if err != nil {
		return r, err
	}
	var made, now int64
	err = d.QueryRow(ctx, `SELECT created_at, (SELECT `+db.Now(d.Dialect())+`) FROM organisations WHERE id = $1`, org).Scan(&made, &now)
	empty := r.Seq == 0 && r.Unsealed == 0
	switch {
	case errors.Is(err, db.ErrNoRows):
		return r, &BrokenError{org, max(1, r.Seq), "there is no such organisation"}
	case err != nil:
		return r, fmt.Errorf("audit: %w", err)
	case empty && time.Duration(now-made)*time.Microsecond > NewFor:
		return r, &BrokenError{org, 1, "it is missing: the organisation exists, and every one has an entry from its first minute on"}
	}
	return r, nil
}

// Orgs lists the organisations that exist, and those that have a log.
func Orgs(ctx context.Context, q db.Q) (orgs []string, err error) {
	rows, err := q.Query(ctx, `SELECT org_id FROM audit_heads UNION SELECT DISTINCT org_id FROM audit_log UNION SELECT id FROM organisations ORDER BY org_id`)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var org string
		if err := rows.Scan(&org); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		orgs = append(orgs, org)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return orgs, nil
}

// TailOf is what of an organisation's log is not sealed yet; "" stands for all
// organisations together.
func TailOf(ctx context.Context, q db.Q, org string) (t Tail, err error) {
	where, args := "", []any{}
	if org != "" {
		where, args = " AND org_id = $1", append(args, org)
	}
	var micros int64
	err = q.QueryRow(ctx, `SELECT count(*), coalesce((SELECT `+db.Now(q.Dialect())+`) - min(time), 0) FROM audit_log WHERE seq IS NULL`+where, args...).
		Scan(&t.Unsealed, &micros)
	if err != nil {
		return t, fmt.Errorf("audit: %w", err)
	}
	t.Oldest = max(0, time.Duration(micros)*time.Microsecond)
	return t, nil
}

func walk(ctx context.Context, q db.Q, org string) (last Head, err error) {
	after := int64(math.MinInt64) // an entry before the first is a forged one
	for {
		page, err := read(ctx, q, `org_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`, org, after, verifyPage)
		if err != nil {
			return last, err
		}
		for i := range page {
			r := &page[i]
			switch {
			case r.Seq != last.Seq+1:
				return last, &BrokenError{org, last.Seq + 1, fmt.Sprintf("it is missing: entry %d stands in its place", r.Seq)}
			case r.hash(last.Hash) != r.Hash:
				return last, &BrokenError{org, r.Seq, "it does not have the hash that its content and the entry before it give"}
			}
			last = Head{r.Seq, r.Hash}
			after = r.Seq
		}
		if len(page) == verifyPage {
			continue
		}
		if more, err := atEnd(ctx, q, org, last); err != nil || !more {
			return last, err
		}
	}
}

// atEnd compares the last entry of a walk with the head. More is true if entries
// were sealed meanwhile. Head and last entry are read in one statement, so that a
// sealer at work is not taken for a break.
func atEnd(ctx context.Context, q db.Q, org string, last Head) (more bool, err error) {
	var (
		head Head
		end  int64
	)
	err = q.QueryRow(ctx, `SELECT coalesce(h.seq, 0), coalesce(h.hash, ''), coalesce((SELECT max(seq) FROM audit_log WHERE org_id = $1 AND seq IS NOT NULL), 0)
		FROM (SELECT 1 AS one) AS o LEFT JOIN audit_heads AS h ON h.org_id = $1`, org).Scan(&head.Seq, &head.Hash, &end)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return false, fmt.Errorf("audit: no answer about the head of %s", org)
	case err != nil:
		return false, fmt.Errorf("audit: %w", err)
	case end > last.Seq:
		return true, nil
	case last.Seq < head.Seq:
		return false, &BrokenError{org, last.Seq + 1, fmt.Sprintf("it is missing: the log ends before entry %d", head.Seq)}
	case last != head:
		return false, &BrokenError{org, last.Seq, "the head of the log speaks of another last entry"}
	}
	return false, nil
}
