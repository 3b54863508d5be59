package audit

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/db"
)

// ErrBadCursor is a cursor that List did not hand out.
var ErrBadCursor = errors.New("the cursor is not one of the audit log")

// The bounds of a page.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// A Filter chooses entries; an empty field chooses all.
type Filter struct {
	Scope, Action, Actor, ResourceType, ResourceID, RequestID string
	Outcome                                                   Outcome
	From, To                                                  time.Time // From is included, To is not
	Limit                                                     int       // 100 when it is 0, 1000 at most
	Cursor                                                    string    // next of the page before; its filters must be the same for the pages to fit
}

// cursor is the place of the last entry of a page: entries that come meanwhile,
// or are sealed, move nothing.
type cursor struct {
	Time int64  `json:"t"` // microseconds
	ID   string `json:"i"`
}

// maxCursor is far above the length of any cursor of ours.
const maxCursor = 300

func (c cursor) encode() string {
	b, _ := json.Marshal(c) // a number and a string
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(text string) (c cursor, err error) {
	if len(text) > maxCursor {
		return c, ErrBadCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return c, ErrBadCursor
	}
	// Only what encode writes, byte for byte: anything else is not from here.
	if err := json.Unmarshal(b, &c); err != nil || c.ID == "" || db.Clean(c.ID) != c.ID || c.encode() != text {
		return cursor{}, ErrBadCursor
	}
	return c, nil
}

// List returns the entries of one organisation, newest first by the time at which
// they were written. next is the Cursor of the page after, "" if there is none.
// A Cursor that List did not hand out is [ErrBadCursor].
func List(ctx context.Context, q db.Q, org string, f Filter) (entries []Entry, next string, err error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	limit = min(limit, maxLimit)
	where, args, err := f.conditions(org)
	if err != nil {
		return nil, "", err
	}
	args = append(args, limit+1)
	records, err := read(ctx, q, fmt.Sprintf("%s ORDER BY time DESC, id DESC LIMIT $%d", where, len(args)), args...)
	if err != nil {
		return nil, "", err
	}
	for i := range records {
		if len(entries) == limit {
			last := &records[i-1]
			next = cursor{last.micros, last.ID}.encode()
			break
		}
		entries = append(entries, records[i].Entry)
	}
	return entries, next, nil
}

// conditions are the filter as SQL. The organisation is always among them.
func (f *Filter) conditions(org string) (where string, args []any, err error) {
	conds := []string{"org_id = $1"}
	args = []any{org}
	add := func(cond string, v any) {
		args = append(args, v)
		conds = append(conds, fmt.Sprintf("%s $%d", cond, len(args)))
	}
	for _, c := range []struct{ column, value string }{
		{"request_id", f.RequestID}, {"resource_id", f.ResourceID}, {"actor", f.Actor}, {"action", f.Action},
		{"resource_type", f.ResourceType}, {"scope", f.Scope}, {"outcome", string(f.Outcome)},
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
	if f.Cursor != "" {
		c, err := decodeCursor(f.Cursor)
		if err != nil {
			return "", nil, err
		}
		args = append(args, c.Time, c.ID)
		conds = append(conds, fmt.Sprintf("(time, id) < ($%d, $%d)", len(args)-1, len(args)))
	}
	return strings.Join(conds, " AND "), args, nil
}

// Each hands every entry that the filter chooses to fn, newest first, holding one
// page in memory. Limit and Cursor of the filter are its own. It ends at the
// first error of fn.
func Each(ctx context.Context, q db.Q, org string, f Filter, fn func(Entry) error) error {
	f.Limit, f.Cursor = maxLimit, ""
	for {
		page, next, err := List(ctx, q, org, f)
		if err != nil {
			return err
		}
		for i := range page {
			if err := fn(page[i]); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		f.Cursor = next
	}
}
