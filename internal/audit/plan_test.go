package audit

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
)

// TestPagesByIndex: every filter of a page, first or later, is answered from an
// index in the page's order, so that a page costs the same however long the log is.
// AUDIT_ROWS is how long it is; with more of them the times are worth reading.
func TestPagesByIndex(t *testing.T) {
	rows := 20_000
	if text := os.Getenv("AUDIT_ROWS"); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	d, err := db.Open(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	ctx := db.System(t.Context())
	if err := d.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	// Entries of a day, of two organisations; refusals, an actor and a type are rare.
	_, err = d.Exec(ctx, `INSERT INTO audit_log (org_id, id, time, scope, actor, action, resource_type, resource_id, outcome, request_id)
		SELECT 'o' || n % 2, 'log_' || lpad(n::text, 9, '0'), $2::bigint + n * 1000,
			CASE WHEN n % 1000 = 2 THEN 'team:rare' ELSE 'org' END, CASE WHEN n % 1000 = 4 THEN 'rare' ELSE 'actor-' || n % 5 END,
			CASE WHEN n % 1000 = 6 THEN 'rare:act' ELSE 'provisioning-job:create' END, CASE WHEN n % 1000 = 8 THEN 'rare' ELSE 'provisioning-job' END,
			'job_' || n % 997, CASE WHEN n % 1000 = 10 THEN 'refused' ELSE 'allowed' END, 'req_' || n
		FROM generate_series(1, $1::int) AS n`, rows, time.Now().Add(-24*time.Hour).UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Exec(ctx, `ANALYZE audit_log`); err != nil {
		t.Fatal(err)
	}
	middle := time.Now().Add(-24*time.Hour + time.Duration(rows/2)*time.Millisecond)
	for name, f := range map[string]Filter{
		"all": {}, "actor": {Actor: "rare"}, "frequent actor": {Actor: "actor-0"}, "action": {Action: "rare:act"}, "type": {ResourceType: "rare"},
		"resource": {ResourceID: "job_4"}, "outcome": {Outcome: Refused}, "request": {RequestID: "req_10"}, "scope": {Scope: "team:rare"},
		"from": {From: middle}, "to": {To: middle}, "nobody": {Actor: "nobody"}, "two": {Actor: "rare", Action: "provisioning-job:create"},
	} {
		for _, from := range []string{"", cursor{middle.UnixMicro(), "log_x"}.encode()} {
			f.Cursor = from
			plan := explain(ctx, t, d, f)
			// A sort of the few rows of a rare value is fine; one of the log, or a look at all of it, is not.
			if strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "Index") {
				t.Errorf("%s, from %q:\n%s", name, from, plan)
			}
			began := time.Now()
			got, _, err := List(ctx, d, "o0", f)
			if err != nil || len(got) == 0 && name != "nobody" && name != "request" && from == "" {
				t.Errorf("%s: %d entries, %v", name, len(got), err)
			}
			t.Logf("%s, later page %t: %d entries in %s", name, from != "", len(got), time.Since(began).Round(10*time.Microsecond))
		}
	}
}

func explain(ctx context.Context, t *testing.T, d *db.DB, f Filter) string {
	t.Helper()
	where, args, err := f.conditions("o0")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := d.Query(ctx, `EXPLAIN SELECT id FROM audit_log WHERE `+where+fmt.Sprintf(" ORDER BY time DESC, id DESC LIMIT %d", defaultLimit+1), args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// A cursor is taken as List wrote it, or not at all.
func FuzzCursor(f *testing.F) {
	f.Add(cursor{1764500000000000, "log_06h2y5zd3sr8xdqrxjjbyv5ydw"}.encode())
	f.Add(cursor{-1, "<&>"}.encode())
	f.Add("eyJ0IjoxLCJpIjoieCJ9")
	f.Add("eyJpIjoieCIsInQiOjF9")
	f.Add("")
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := decodeCursor(text)
		if err != nil {
			if c != (cursor{}) {
				t.Errorf("%q is refused and gives %+v", text, c)
			}
			return
		}
		if c.encode() != text || db.Clean(c.ID) != c.ID || c.ID == "" {
			t.Errorf("%q was taken for %+v", text, c)
		}
	})
}

// Whatever is filtered for, the organisation is always in the condition, and no
// text of a caller ever is: values go beside the SQL.
func FuzzFilter(f *testing.F) {
	f.Add("org", "a:b", "ada", "vm", "job_1", "req_1", "allowed", int64(1), int64(2), "")
	f.Add("' OR 1=1 --", "$1", "\x00", "\xff", ";", "%", "x", int64(-1), int64(1<<62), "eyJ0IjoxLCJpIjoieCJ9")
	f.Fuzz(func(t *testing.T, scope, action, actor, typ, resource, request, outcome string, from, to int64, cur string) {
		filter := Filter{Scope: scope, Action: action, Actor: actor, ResourceType: typ, ResourceID: resource, RequestID: request,
			Outcome: Outcome(outcome), From: time.UnixMicro(from), To: time.UnixMicro(to), Cursor: cur}
		where, args, err := filter.conditions("o1")
		if err != nil {
			return
		}
		if !strings.HasPrefix(where, "org_id = $1") || len(args) == 0 || args[0] != "o1" || strings.Contains(where, " OR ") {
			t.Errorf("%s with %v", where, args)
		}
		if strings.Count(where, "$") != len(args) || strings.Trim(where, "abcdefghijklmnopqrstuvwxyz_ $0123456789=<>(),AND") != "" {
			t.Errorf("%s with %d values", where, len(args))
		}
	})
}
