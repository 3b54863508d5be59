// Package audit is the append-only log of everything that was done or refused.
//
// An entry is a plain insert in the transaction of the change that it speaks of,
// so neither exists without the other, and no writer waits for another. A moment
// later a sealer (see [Seal]) gives it its place in the chain of its
// organisation: each sealed entry holds the hash of the one before it, and a head
// row holds the number and the hash of the last, so that an entry that was
// changed, removed, put in another place or cut off the end shows (see [Verify]).
// Between its insert and its sealing, a second as a rule, an entry is held by
// the table alone, which refuses that entries are changed or removed.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	ID           string         `json:"id"` // log_…, minted by Append when empty
	Seq          int64          `json:"seq,omitempty" doc:"Its place in the organisation's chain, from 1; absent until it is sealed, about a second"`
	Time         time.Time      `json:"time" doc:"When it was written, by the database's clock"`
	Org          string         `json:"orgId"`
	Scope        string         `json:"scope,omitempty" doc:"What the actor's role was bound to, such as org"`
	Actor        string         `json:"actor"`
	Action       string         `json:"action" doc:"As the policies spell it, such as provisioning-job:create"`
	ResourceType string         `json:"resourceType,omitempty"`
	ResourceID   string         `json:"resourceId,omitempty"`
	Outcome      Outcome        `json:"outcome"`
	RequestID    string         `json:"requestId,omitempty"`
	Detail       map[string]any `json:"detail,omitempty"` // never a secret
	Hash         string         `json:"hash,omitempty" doc:"SHA-256 over this entry and the hash of the one before it, in hex; absent until it is sealed"`
}

// Append writes entries in the caller's transaction. It locks nothing that
// another writer needs. Org, Actor, Action and Outcome are required.
func Append(ctx context.Context, q db.Q, entries ...Entry) error {
	for _, e := range entries {
		if err := appendOne(ctx, q, e); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

func appendOne(ctx context.Context, q db.Q, e Entry) error {
	if e.Org == "" || e.Actor == "" || e.Action == "" || e.Outcome == "" {
		return fmt.Errorf("entry of %q by %q without an organisation, actor, action or outcome", e.Action, e.Actor)
	}
	if e.ID == "" {
		e.ID = job.NewID("log")
	}
	var detail any
	if len(e.Detail) > 0 {
		text, err := marshal(e.Detail)
		if err != nil {
			return fmt.Errorf("detail of %s: %w", e.Action, err)
		}
		detail = text
	}
	_, err := q.Exec(ctx, `INSERT INTO audit_log (org_id, id, time, scope, actor, action, resource_type, resource_id, outcome, request_id, detail)
		VALUES ($1, $2, (SELECT `+db.Now(q.Dialect())+`), $3, $4, $5, $6, $7, $8, $9, $10)`,
		e.Org, e.ID, e.Scope, e.Actor, e.Action, e.ResourceType, e.ResourceID, string(e.Outcome), e.RequestID, detail)
	return err
}

// marshal is a value as JSON with nothing escaped that JSON does not want escaped.
func marshal(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// record is an entry as it is stored: the time in the database's microseconds,
// the detail in the very bytes that are hashed.
type record struct {
	Entry
	micros int64
	detail string
}

// read selects records: where is what follows WHERE.
func read(ctx context.Context, q db.Q, where string, args ...any) ([]record, error) {
	rows, err := q.Query(ctx, `SELECT org_id, coalesce(seq, 0), id, time, scope, actor, action, resource_type, resource_id, outcome, request_id,
		coalesce(CAST(detail AS text), ''), coalesce(hash, '') FROM audit_log WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	var out []record
	for rows.Next() {
		var (
			r       record
			outcome string
		)
		err := rows.Scan(&r.Org, &r.Seq, &r.ID, &r.micros, &r.Scope, &r.Actor, &r.Action, &r.ResourceType, &r.ResourceID,
			&outcome, &r.RequestID, &r.detail, &r.Hash)
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
