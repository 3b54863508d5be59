package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/observe"
	"github.com/zopday/provisioner/internal/provision"
)

func TestHostileBodies(t *testing.T) { onBoth(t, testHostileBodies) }

func testHostileBodies(t *testing.T, r *rig) {
	base := `{"resourceType":"vm","provider":"aws","name":"a","region":"us-east-1","config":{"spec":{"pool":%s}}}`
	for _, tc := range []struct {
		name, body string
		status     int
		code       string
		field      string
	}{
		{"nothing", " ", 400, "malformed", ""},
		{"no JSON", `{"name":`, 400, "malformed", ""},
		{"two documents", vmJob("a") + vmJob("b"), 400, "malformed", ""},
		{"trailing comma", `{"name":"a",}`, 400, "malformed", ""},
		{"a list", `[1,2]`, 400, "malformed", ""},
		{"null", `null`, 400, "malformed", ""},
		{"a string", `"x"`, 400, "malformed", ""},
		{"not UTF-8", "{\"name\":\"\xff\xfe\"}", 400, "malformed", ""},
		{"a NUL", `{"name":"a\u0000b"}`, 422, "invalid", "name"},
		{"a NUL in a key", `{"na\u0000me":"a"}`, 422, "invalid", "na\x00me"},
		{"a lone surrogate", `{"name":"\ud800"}`, 422, "invalid", "name"},
		{"a key twice", fmt.Sprintf(base, `{"count":1,"count":50}`), 422, "invalid", "config.spec.pool.count"},
		{"a top-level key twice", `{"name":"a","name":"b"}`, 422, "invalid", "name"},
		{"a huge number", fmt.Sprintf(base, `{"count":999999999999999999999999}`), 422, "invalid", "config.spec.pool.count"},
		{"an exponent", fmt.Sprintf(base, `{"count":1e400}`), 422, "invalid", "config.spec.pool.count"},
		{"a fraction", fmt.Sprintf(base, `{"count":1.5}`), 422, "invalid", "config.spec.pool.count"},
		{"a string for a number", fmt.Sprintf(base, `{"count":"2"}`), 422, "invalid", "config.spec.pool.count"},
		{"a list for an object", fmt.Sprintf(base, `[]`), 422, "invalid", "config.spec.pool"},
		{"null for an object", fmt.Sprintf(base, `null`), 422, "invalid", "config.spec.pool"},
		{"an object for a string", `{"name":{}}`, 422, "invalid", "name"},
		{"deep nesting", `{"config":{"spec":` + strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100) + `}}`, 422, "invalid", ""},
		{"very deep nesting", strings.Repeat(`[`, 200_000), 400, "malformed", ""},
		{"deep and closed", `{"a":` + strings.Repeat(`[`, 9_000) + strings.Repeat(`]`, 9_000) + `}`, 422, "invalid", ""},
		{"a long key", `{"` + strings.Repeat("k", 100_000) + `":1}`, 422, "invalid", ""},
		{"many keys", `{` + strings.TrimSuffix(strings.Repeat(`"x":1,`, 20_000), ",") + `}`, 422, "invalid", "x"},
		{"a long name", `{"resourceType":"vm","provider":"aws","region":"us-east-1","name":"` + strings.Repeat("a", 10_000) + `"}`, 422, "invalid", "name"},
		{"SQL in a name", `{"resourceType":"vm","provider":"aws","region":"us-east-1","name":"a'; DROP TABLE provisioning_jobs; --"}`, 422, "invalid", "name"},
		{"markup in a label", vmJob("a", `"labels":{"<script>":"x"}`), 422, "invalid", "labels.<script>"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := r.do(adminToken, "POST", "/provisioning-jobs", tc.body)
			p := a.problem(t)
			if a.status != tc.status || p.Code != tc.code {
				t.Fatalf("%d %.400s", a.status, a.body)
			}
			if tc.field != "" && (len(p.Errors) == 0 || p.Errors[0].Field != tc.field) {
				t.Errorf("fields %+v, want %q first", p.Errors, tc.field)
			}
			if len(a.body) > 30_000 {
				t.Errorf("the answer has %d bytes", len(a.body))
			}
		})
	}
}

func TestHostileRequests(t *testing.T) { onBoth(t, testHostileRequests) }

func testHostileRequests(t *testing.T, r *rig) {
	v := r.create(vmJob("shop"))
	big := `{"name":"` + strings.Repeat("a", 1<<20) + `"}`
	for _, tc := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code                     string
	}{
		{"too large", "POST", "/provisioning-jobs", big, nil, 413, "too-large"},
		{"too large a patch", "PATCH", "/provisioning-jobs/" + v.ID, big, nil, 413, "too-large"},
		{"too large where no body is read", "POST", "/provisioning-jobs/" + v.ID + "/retry", big, nil, 413, "too-large"},
		{"YAML", "POST", "/provisioning-jobs", "name: a", []string{"Content-Type", "application/yaml"}, 415, "unsupported-media-type"},
		{"a form", "POST", "/provisioning-jobs", "name=a", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported-media-type"},
		{"no type", "POST", "/provisioning-jobs", "{}", []string{"Content-Type", ""}, 415, "unsupported-media-type"},
		{"a broken type", "POST", "/provisioning-jobs", "{}", []string{"Content-Type", "application/json; charset"}, 415, "unsupported-media-type"},
		{"another charset", "POST", "/provisioning-jobs", "{}", []string{"Content-Type", "application/json; charset=utf-16"}, 415, "unsupported-media-type"},
		{"compressed", "POST", "/provisioning-jobs", "{}", []string{"Content-Encoding", "gzip"}, 415, "unsupported-media-type"},
		{"no such path", "GET", "/provisioning-jobz", "", nil, 404, "no-such-path"},
		{"no such sub-path", "GET", "/provisioning-jobs/" + v.ID + "/secrets", "", nil, 404, "no-such-path"},
		{"a method of no use", "PUT", "/provisioning-jobs/" + v.ID, "{}", nil, 405, "method-not-allowed"},
		{"an invented method", "BREW", "/provisioning-jobs", "", nil, 405, "method-not-allowed"},
		{"DELETE of the list", "DELETE", "/provisioning-jobs", "", nil, 405, "method-not-allowed"},
		{"an ID with a NUL", "GET", "/provisioning-jobs/a%00b", "", nil, 404, "not-found"},
		{"an ID that climbs", "GET", "/provisioning-jobs/..%2f..%2fetc%2fpasswd", "", nil, 404, "not-found"},
		{"an ID of wildcards", "GET", "/provisioning-jobs/%25", "", nil, 404, "not-found"},
		{"an ID that is not UTF-8", "GET", "/provisioning-jobs/%ff%fe", "", nil, 404, "not-found"},
		{"an endless ID", "GET", "/provisioning-jobs/" + strings.Repeat("a", 5000), "", nil, 404, "not-found"},
		{"a tilde", "GET", "/provisioning-jobs/~", "", nil, 404, "not-found"},
		{"a prefix of an ID in a change", "DELETE", "/provisioning-jobs/" + v.ID[:12], "", nil, 404, "not-found"},
		{"an unknown ID", "GET", "/provisioning-jobs/" + job.NewID("job"), "", nil, 404, "not-found"},
		{"an unknown query", "GET", "/provisioning-jobs/" + v.ID + "?expand=all", "", nil, 422, "invalid"},
		{"a bad Last-Event-ID", "GET", "/provisioning-jobs/" + v.ID + "/events", "", []string{"Last-Event-ID", "x"}, 422, "invalid"},
		{"a negative after", "GET", "/provisioning-jobs/" + v.ID + "/events?after=-1", "", []string{"Accept", "application/json"}, 422, "invalid"},
		{"a limit of events", "GET", "/provisioning-jobs/" + v.ID + "/events?limit=100000", "", []string{"Accept", "application/json"}, 422, "invalid"},
		{"a bad audit cursor", "GET", "/audit-logs?cursor=x", "", nil, 422, "invalid"},
		{"a bad audit time", "GET", "/audit-logs?from=1", "", nil, 422, "invalid"},
		{"a bad audit outcome", "GET", "/audit-logs?outcome=maybe", "", nil, 422, "invalid"},
		{"a NUL in the audit log's filter", "GET", "/audit-logs?actor=%00", "", nil, 422, "invalid"},
		{"bytes that are no text in the audit log's filter", "GET", "/audit-logs?actor=%ff", "", nil, 422, "invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := r.do(adminToken, tc.method, tc.path, tc.body, tc.header...)
			if a.status != tc.status || a.problem(t).Code != tc.code {
				t.Errorf("%d %.400s", a.status, a.body)
			}
			if tc.status == 405 && a.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
	if got := r.do(adminToken, "GET", "/provisioning-jobs/"+v.ID, "").job(t); got.Version != v.Version {
		t.Error("a refused request changed the job")
	}
}

func TestEveryAnswerCarriesItsHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, path := range []string{"/healthz", "/provisioning-jobs", "/nowhere", "/docs", "/openapi.json"} {
		a := r.do(adminToken, "GET", path, "")
		for h, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := a.header.Get(h); got != want {
				t.Errorf("%s: %s is %q", path, h, got)
			}
		}
		if a.header.Get("Content-Security-Policy") == "" || !strings.HasPrefix(a.header.Get("X-Request-Id"), "req_") {
			t.Errorf("%s: headers %v", path, a.header)
		}
	}
	if got := r.do("", "GET", "/healthz", "", "X-Request-Id", "mine-1234").header.Get("X-Request-Id"); got != "mine-1234" {
		t.Errorf("a caller's request ID became %q", got)
	}
	if got := r.do("", "GET", "/healthz", "", "X-Request-Id", "evil id with spaces").header.Get("X-Request-Id"); !strings.HasPrefix(got, "req_") {
		t.Errorf("an odd request ID was taken over: %q", got)
	}
}

// angry panics when it is asked who somebody is.
type angry struct{ with any }

func (a angry) Authenticate(context.Context, string) (access.Principal, error) { panic(a.with) }

// broken cannot say who somebody is.
type broken struct{ err error }

func (b broken) Authenticate(context.Context, string) (access.Principal, error) {
	return access.Principal{}, b.err
}

func TestFailuresTellNothing(t *testing.T) {
	t.Parallel()
	const canary = "secret-detail-of-the-inside"
	for name, auth := range map[string]Authenticator{"a panic": angry{canary}, "an error": broken{errors.New(canary)}} {
		t.Run(name, func(t *testing.T) {
			log := &lockedBuffer{}
			h := New(Deps{Service: provision.New(provision.Config{}), Access: auth, Log: observe.NewLogger(log, nil, true)})
			rec := httptest.NewRecorder()
			req := httptest.NewRequest(http.MethodGet, "/provisioning-jobs", nil)
			req.Header.Set("Authorization", "Bearer x")
			h.ServeHTTP(rec, req)
			a := answer{rec.Code, rec.Header(), rec.Body.Bytes()}
			p := a.problem(t)
			if a.status != 500 || p.Code != "internal" || strings.Contains(string(a.body), canary) {
				t.Errorf("%d %s", a.status, a.body)
			}
			if !strings.Contains(log.String(), canary) || !strings.Contains(log.String(), p.RequestID) {
				t.Errorf("the log does not lead to the cause: %s", log.String())
			}
		})
	}
}

// TestNoTokenIsEverWritten sends tokens, good and bad, in every place where a
// request can carry one by design, and looks for them in all that is kept.
func TestNoTokenIsEverWritten(t *testing.T) {
	t.Parallel()
	const wrong = "zop_canary-canary-canary-canary"
	r := newRig(t)
	v := r.create(vmJob("shop"))
	answers := ""
	for op := range r.operations() {
		method, path, _ := strings.Cut(op, " ")
		path = strings.ReplaceAll(path, "{id}", v.ID)
		for _, token := range []string{adminToken, wrong} {
			answers += string(r.do(token, method, path, "{}", "Accept", "application/json").body)
		}
	}
	r.do("", "GET", "/provisioning-jobs", "", "Authorization", "Basic "+wrong)
	rows, err := r.db.Query(db.System(t.Context()), `SELECT actor || action || resource_id || outcome || coalesce(CAST(detail AS text), '') FROM audit_log`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	kept, n := "", 0
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		kept += s
		n++
	}
	if n == 0 || r.log.String() == "" {
		t.Fatal("nothing was kept to look through")
	}
	for _, token := range []string{adminToken, wrong, "canary-canary"} {
		for where, text := range map[string]string{"log": r.log.String(), "audit log": kept, "answers": answers} {
			if strings.Contains(text, token) {
				t.Errorf("a token is in the %s", where)
			}
		}
	}
}

// TestSlowBodies sends a body that never ends its promise.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /provisioning-jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"na", adminToken)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", resp.StatusCode)
	}
	s := Server("", nil)
	if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 {
		t.Error("the server waits for ever for something")
	}
}
