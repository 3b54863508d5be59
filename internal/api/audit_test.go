package api

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
)

// append writes entries of org1 into the audit log.
func (r *rig) append(entries ...audit.Entry) {
	r.t.Helper()
	ctx := db.System(r.t.Context())
	for i := range entries {
		e := &entries[i]
		e.Org, e.Outcome = "org1", audit.Allowed
	}
	if err := audit.Append(ctx, r.db.Writer(), entries...); err != nil {
		r.t.Fatal(err)
	}
}

func TestAuditPages(t *testing.T) { onBoth(t, testAuditPages) }

func testAuditPages(t *testing.T, r *rig) {
	for i := range 5 {
		r.append(audit.Entry{Actor: "a", Action: "b", RequestID: fmt.Sprint("request-", i)})
	}
	var seen []string
	path := "/audit-logs?limit=2&actor=a"
	for page := path; ; {
		a := r.do(viewerToken, "GET", page, "")
		var entries []audit.Entry
		a.into(t, &entries)
		for _, e := range entries {
			seen = append(seen, e.RequestID)
		}
		var doc struct {
			Meta struct{ NextCursor *string } `json:"meta"`
		}
		if err := json.Unmarshal(a.body, &doc); err != nil {
			t.Fatal(err)
		}
		if doc.Meta.NextCursor == nil {
			break
		}
		page = path + "&cursor=" + *doc.Meta.NextCursor
		r.append(audit.Entry{Actor: "a", Action: "late"})
	}
	if want := []string{"request-4", "request-3", "request-2", "request-1", "request-0"}; !slices.Equal(seen, want) {
		t.Errorf("paged through %q, want %q", seen, want)
	}
	for _, cursor := range []string{"7", "eyJ0IjoxfQ", "a.b", strings.Repeat("A", 301)} {
		if a := r.do(viewerToken, "GET", "/audit-logs?cursor="+cursor, ""); a.status != 422 {
			t.Errorf("the cursor %.20s is answered with %d", cursor, a.status)
		}
	}
	var one []audit.Entry
	if r.do(viewerToken, "GET", "/audit-logs?requestId=request-2", "").into(t, &one); len(one) != 1 {
		t.Errorf("by request: %+v", one)
	}
}

func TestAuditExport(t *testing.T) { onBoth(t, testAuditExport) }

func testAuditExport(t *testing.T, r *rig) {
	hostile := []string{"=1+1", "+1", "-1", "@SUM(A1)", "\ttab", "a,\"b\"\nc", "plain"}
	for _, h := range hostile {
		r.append(audit.Entry{Actor: "ana", Action: "x:y", ResourceID: h, Detail: map[string]any{"name": "<b>"}})
	}
	r.append(audit.Entry{Actor: "bob", Action: "x:y"})
	if _, err := audit.Seal(db.System(t.Context()), r.db); err != nil {
		t.Fatal(err)
	}
	a := r.do(viewerToken, "GET", "/audit-logs/export?actor=ana", "")
	if a.status != 200 || a.header.Get("Content-Type") != "application/x-ndjson" || !strings.Contains(a.header.Get("Content-Disposition"), "audit.jsonl") {
		t.Fatalf("%d %v", a.status, a.header)
	}
	var got []string
	for line := range strings.Lines(string(a.body)) {
		var e audit.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq == 0 || e.Hash == "" || e.Org != "org1" || e.Detail["name"] != "<b>" {
			t.Fatalf("%v: %+v in %s", err, e, line)
		}
		got = append(got, e.ResourceID)
	}
	want := slices.Clone(hostile)
	slices.Reverse(want)
	if !slices.Equal(got, want) {
		t.Errorf("exported %q, want %q", got, want)
	}

	a = r.do(viewerToken, "GET", "/audit-logs/export?format=csv&actor=ana", "")
	rows, err := csv.NewReader(bytes.NewReader(a.body)).ReadAll()
	if err != nil || len(rows) != len(hostile)+1 || !slices.Equal(rows[0], auditColumns) {
		t.Fatalf("%v: %q", err, rows)
	}
	for i, row := range rows[1:] {
		cell, text := row[8], want[i]
		if strings.ContainsAny(text[:1], "=+-@\t") {
			text = "'" + text
		}
		if cell != text || row[11] != `{"name":"<b>"}` {
			t.Errorf("a cell reads %q, want %q; detail %s", cell, text, row[11])
		}
		if _, err := time.Parse(time.RFC3339Nano, row[2]); err != nil {
			t.Error(err)
		}
	}
	if a := r.do(otherToken, "GET", "/audit-logs/export", ""); a.status != 200 || len(a.body) != 0 {
		t.Errorf("another organisation exports %d %s", a.status, a.body)
	}
	for _, q := range []string{"?format=xml", "?limit=3", "?actor=%00", "?from=1"} {
		if a := r.do(viewerToken, "GET", "/audit-logs/export"+q, ""); a.status != 422 {
			t.Errorf("%s: %d", q, a.status)
		}
	}
}

// An export that fails on its way must not look like a whole one.
func TestAuditExportIsCutOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.append(audit.Entry{Actor: "ana", Action: "x:y"})
	close(r.stop) // as when the server shuts down
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.server.URL+"/audit-logs/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+viewerToken)
	resp, err := r.server.Client().Do(req)
	if err == nil {
		_, err = new(bytes.Buffer).ReadFrom(resp.Body)
		_ = resp.Body.Close()
	}
	if err == nil {
		t.Error("an export that was cut off ended like a whole one")
	}
}

func FuzzInertCell(f *testing.F) {
	for _, s := range []string{"", "=a", "'", "\r\n", "ok", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cell string) {
		got := inertCell(cell)
		if got != "" && strings.ContainsAny(got[:1], "=+-@\t\r\n") || strings.TrimPrefix(got, "'") != strings.TrimPrefix(cell, "'") {
			t.Errorf("%q became %q", cell, got)
		}
	})
}
