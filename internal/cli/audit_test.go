package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/client"
)

func TestAuditExport(t *testing.T) {
	f := newFake(t)
	f.answers["GET /audit-logs/export"] = "{\"id\":\"log_1\"}\n"
	c := run(t, f)
	r := c.do("audit", "export", "--format", "csv", "--outcome", "refused", "--request", "req_1", "--from", "24h")
	if r.code != 0 || r.out != "{\"id\":\"log_1\"}\n" {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"format=csv", "outcome=refused", "requestId=req_1", "from="} {
		if f.sent("GET /audit-logs/export?") != 1 || !strings.Contains(f.requests[0], want) {
			t.Errorf("%q was sent without %s", f.requests, want)
		}
	}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if r := c.do("audit", "export", "--out", path); r.code != 0 || !strings.Contains(r.err, path) {
		t.Errorf("%+v", r)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
	if r := c.do("audit", "export", "--out", path); r.code != exitUsage || !strings.Contains(r.err, "exists already") {
		t.Errorf("over a file: %+v", r)
	}
	if r := c.do("audit", "export", "--format", "xml"); r.code != exitUsage {
		t.Errorf("%+v", r)
	}
	f.refuse["GET /audit-logs/export"] = client.Problem{Code: "forbidden", Title: "Forbidden", Status: 403, Detail: "no"}
	gone := filepath.Join(t.TempDir(), "none.jsonl")
	if r := c.do("audit", "export", "--out", gone); r.code != exitNotAllowed {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("a refused export left a file: %v", err)
	}
}

func TestAuditVerify(t *testing.T) {
	f := newFake(t)
	c := run(t, f)
	for _, tc := range []struct {
		answer, out, err string
		code             int
	}{
		{`{"data":{"whole":true,"seq":2,"hash":"ab","unsealed":0}}`, "Whole: 2 entries", "", 0},
		{`{"data":{"whole":true,"seq":2,"hash":"ab","unsealed":3,"unsealedSeconds":0.5}}`, "Not sealed yet: 3, the oldest for 500ms", "", 0},
		{`{"data":{"whole":true,"seq":2,"unsealed":3,"unsealedSeconds":90,"warning":"nobody seals"}}`, "Whole", "nobody seals", 0},
		{`{"data":{"whole":false,"seq":2,"reason":"entry 2 is missing"}}`, "Broken: entry 2 is missing", "", exitUnexpected},
	} {
		f.answers["GET /audit-logs/verify"] = tc.answer
		r := c.do("audit", "verify")
		if r.code != tc.code || !strings.Contains(r.out, tc.out) || !strings.Contains(r.err, tc.err) {
			t.Errorf("%s: %+v", tc.answer, r)
		}
	}
}

func TestAuditVerifyOfADatabase(t *testing.T) {
	c := run(t, nil)
	chains := []AuditChain{
		{Org: "o1", AuditCheck: client.AuditCheck{Whole: true, Seq: 1}},
		{Org: "o2", AuditCheck: client.AuditCheck{Seq: 7, Reason: "changed"}},
		{Org: "o3", AuditCheck: client.AuditCheck{Whole: true, Warning: "stalled"}},
	}
	c.b = Backends{VerifyAudit: func(context.Context, string) ([]AuditChain, error) { return chains, nil }}
	r := c.do("audit", "verify", "--db", "x.db")
	if r.code != exitUnexpected || !strings.Contains(r.out, "o1: Whole: 1 entry") || !strings.Contains(r.out, "o2: Broken: changed") || !strings.Contains(r.err, "o3: stalled") {
		t.Errorf("%+v", r)
	}
	chains = chains[:1]
	c.env["ZOPDAY_AUDIT_DB"] = "x.db"
	if r := c.do("audit", "verify", "-o", "json"); r.code != 0 || !strings.Contains(r.out, `"orgId": "o1"`) {
		t.Errorf("%+v", r)
	}
	chains = nil
	if r := c.do("audit", "verify"); r.code != 0 || !strings.Contains(r.out, "empty") {
		t.Errorf("%+v", r)
	}
}
