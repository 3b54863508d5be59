// Package audit is the append-only log of everything that was done or refused.
// The entries of an organisation form a chain: each holds the hash of the one
// before it, and a head row holds the number and the hash of the last, so that
// an entry that was changed, removed, put in another place or cut off the end
// shows (see [Verify]). Entries are written in the transaction of the change
// that they speak of, so neither exists without the other.
package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// Outcome says how an action ended.
type Outcome string

// The outcomes.
const (
	Allowed Outcome = "allowed" // it was done
	Refused Outcome = "refused" // the policy said no, or the state did
	Failed  Outcome = "failed"  // it was allowed and did not work
)

// An Entry is one line of the log.
type Entry struct {
	ID           string         `json:"id"`   // log_…, minted by Append when empty
	Seq          int64          `json:"seq"`  // its place in the organisation's chain, from 1; set by Append
	Time         time.Time      `json:"time"` // the database's clock; set by Append
	Org          string         `json:"orgId"`
	Scope        string         `json:"scope,omitempty"` // what the actor's role was bound to, such as "org" or "team:…"
	Actor        string         `json:"actor"`
	Action       string         `json:"action"` // as the policies spell it, such as "provisioning-job:create"
	ResourceType string         `json:"resourceType,omitempty"`
	ResourceID   string         `json:"resourceId,omitempty"`
	Outcome      Outcome        `json:"outcome"`
	RequestID    string         `json:"requestId,omitempty"`
	Detail       map[string]any `json:"detail,omitempty"` // never a secret
	Hash         string         `json:"hash"`             // set by Append
}

// Append writes entries at the end of their organisations' chains, in the
// caller's transaction. It holds the head of the chain until that transaction
// ends, so it comes last in it. Org, Actor, Action and Outcome are required.
func Append(ctx context.Context, q db.Q, entries ...Entry) error {
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].Org == entries[0].Org {
			n++
		}
		if err := appendTo(ctx, q, entries[0].Org, entries[:n]); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		entries = entries[n:]
	}
	return nil
}

func appendTo(ctx context.Context, q db.Q, org string, entries []Entry) error {
	_, err := q.Exec(ctx, `INSERT INTO audit_heads (org_id, seq, hash) VALUES ($1, 0, '') ON CONFLICT (org_id) DO NOTHING`, org)
	if err != nil {
		return err
	}
	var (
		seq, now int64
		prev     string
	)
	err = q.QueryRow(ctx, `SELECT seq, hash, `+db.Now(q.Dialect())+` FROM audit_heads WHERE org_id = $1`+db.ForUpdate(q.Dialect()), org).
		Scan(&seq, &prev, &now)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Org == "" || e.Actor == "" || e.Action == "" || e.Outcome == "" {
			return fmt.Errorf("entry of %q by %q without an organisation, actor, action or outcome", e.Action, e.Actor)
		}
		if e.ID == "" {
			e.ID = job.NewID("log")
		}
		// What is hashed must be what is stored.
		for _, text := range []*string{&e.ID, &e.Scope, &e.Actor, &e.Action, &e.ResourceType, &e.ResourceID, &e.RequestID} {
			*text = db.Clean(*text)
		}
		seq++
		r := record{Entry: e, micros: now}
		r.Seq = seq
		if len(e.Detail) > 0 {
			if r.detail, err = marshal(e.Detail); err != nil {
				return fmt.Errorf("detail of %s: %w", e.Action, err)
			}
		}
		hash := r.hash(prev)
		_, err := q.Exec(ctx, `INSERT INTO audit_log (org_id, seq, id, time, scope, actor, action, resource_type, resource_id, outcome, request_id, detail, prev_hash, hash)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
			e.Org, r.Seq, e.ID, r.micros, e.Scope, e.Actor, e.Action, e.ResourceType, e.ResourceID, string(e.Outcome), e.RequestID, nullable(r.detail), prev, hash)
		if err != nil {
			return err
		}
		prev = hash
	}
	_, err = q.Exec(ctx, `UPDATE audit_heads SET seq = $2, hash = $3 WHERE org_id = $1`, org, seq, prev)
	return err
}

// record is an entry as it is stored: the time in the database's microseconds,
// the detail in the very bytes that were hashed.
type record struct {
	Entry
	micros int64
	detail string
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

func marshal(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// A Filter chooses entries; an empty field chooses all.
type Filter struct {
	Scope, Action, Actor, ResourceType, ResourceID string
	Outcome                                        Outcome
	From, To                                       time.Time // From is included, To is not
	Limit                                          int       // 100 when it is 0, 1000 at most
	Before                                         int64     // only entries before this Seq: the next page
}

// List returns the entries of one organisation, newest first. next is the
// Before of the next page, 0 if there is none.
func List(ctx context.Context, q db.Q, org string, f Filter) (entries []Entry, next int64, err error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	where, args := []string{"org_id = $1"}, []any{org}
	add := func(cond string, v any) {
		args = append(args, v)
		where = append(where, fmt.Sprintf("%s $%d", cond, len(args)))
	}
	for _, c := range []struct{ column, value string }{
		{"scope", f.Scope}, {"action", f.Action}, {"actor", f.Actor}, {"resource_type", f.ResourceType},
		{"resource_id", f.ResourceID}, {"outcome", string(f.Outcome)},
	} {
		if c.value != "" {
			add(c.column+" =", c.value)
		}
	}
	if !f.From.IsZero() {
		add("time >=", f.From.UnixMicro())
	}
	if !f.To.IsZero() {
		add("time <", f.To.UnixMicro())
	}
	if f.Before > 0 {
		add("seq <", f.Before)
	}
	add("1=1 ORDER BY seq DESC LIMIT", limit+1)
	records, err := read(ctx, q, strings.Join(where, " AND "), args...)
	if err != nil {
		return nil, 0, err
	}
	for _, r := range records {
		if len(entries) == limit {
			next = entries[limit-1].Seq
			break
		}
		entries = append(entries, r.Entry)
	}
	return entries, next, nil
}

func read(ctx context.Context, q db.Q, where string, args ...any) ([]record, error) {
	rows, err := q.Query(ctx, `SELECT org_id, seq, id, time, scope, actor, action, resource_type, resource_id, outcome, request_id,
		coalesce(CAST(detail AS text), ''), prev_hash, hash FROM audit_log WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	var out []record
	for rows.Next() {
		var (
			r       record
			outcome string
			prev    string
		)
		err := rows.Scan(&r.Org, &r.Seq, &r.ID, &r.micros, &r.Scope, &r.Actor, &r.Action, &r.ResourceType, &r.ResourceID,
			&outcome, &r.RequestID, &r.detail, &prev, &r.Hash)
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		r.Outcome, r.Time = Outcome(outcome), time.UnixMicro(r.micros).UTC()
		if r.detail != "" {
			// A detail that is no JSON any more was tampered with: it is shown as
			// it is, and Verify says the rest.
			if err := json.Unmarshal([]byte(r.detail), &r.Detail); err != nil {
				r.Detail = map[string]any{"unreadable": r.detail}
			}
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return out, nil
}

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

// verifyPage is how many entries Verify holds in memory at once.
const verifyPage = 1000

// Verify walks the whole chain of an organisation and returns its head. A chain
// that was tampered with is a *BrokenError.
func Verify(ctx context.Context, d *db.DB, org string) (head Head, err error) {
	// One transaction, so that an entry written meanwhile is not taken for a break.
	err = d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
		err := tx.QueryRow(ctx, `SELECT seq, hash FROM audit_heads WHERE org_id = $1`+db.ForUpdate(tx.Dialect()), org).Scan(&head.Seq, &head.Hash)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return fmt.Errorf("audit: %w", err)
		}
		return walk(ctx, tx, org, head)
	})
	return head, err
}

func walk(ctx context.Context, q db.Q, org string, head Head) error {
	var last Head
	after := int64(math.MinInt64) // an entry before the first is a forged one
	for {
		page, err := read(ctx, q, `org_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`, org, after, verifyPage)
		if err != nil {
			return err
		}
		for i := range page {
			r := &page[i]
			switch {
			case r.Seq != last.Seq+1:
				return &BrokenError{org, last.Seq + 1, fmt.Sprintf("it is missing: entry %d stands in its place", r.Seq)}
			case r.hash(last.Hash) != r.Hash:
				return &BrokenError{org, r.Seq, "it does not have the hash that its content and the entry before it give"}
			}
			last = Head{r.Seq, r.Hash}
			after = r.Seq
		}
		if len(page) < verifyPage {
			break
		}
	}
	switch {
	case last.Seq < head.Seq:
		return &BrokenError{org, last.Seq + 1, fmt.Sprintf("it is missing: the log ends before entry %d", head.Seq)}
	case last != head:
		return &BrokenError{org, last.Seq, "the head of the log speaks of another last entry"}
	}
	return nil
}
