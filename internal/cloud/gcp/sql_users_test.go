package gcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A slowSQL is a Cloud SQL with one user, whose operations take until they are let go.
type slowSQL struct {
	mu     sync.Mutex
	done   bool
	failed string
	sent   []string // changes
}

func (s *slowSQL) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out any
	switch {
	case strings.Contains(req.URL.Path, "/operations/"):
		op := map[string]any{"name": "op-1", "operationType": "UPDATE_USER", "status": "RUNNING"}
		if s.done {
			op["status"] = "DONE"
			if s.failed != "" {
				op["error"] = map[string]any{"errors": []any{map[string]string{"code": s.failed}}}
			}
		}
		out = op
	case req.Method == http.MethodGet:
		out = map[string]any{"items": []any{map[string]string{"name": "orders_rw", "host": "%"}}}
	default:
		what := req.Method + " " + req.URL.Query().Get("name")
		if req.URL.Query().Get("revokeExistingRoles") == "true" {
			what += " roles"
		}
		s.sent = append(s.sent, what)
		out = map[string]any{"name": fmt.Sprintf("op-%d", len(s.sent)), "operationType": "UPDATE_USER", "status": "RUNNING"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client notices
}

func (s *slowSQL) set(done bool, failed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done, s.failed = done, failed
}

func (s *slowSQL) wants(t *testing.T, after string, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if fmt.Sprint(s.sent) != fmt.Sprint(want) {
		t.Errorf("%s: sent %q, want %q", after, s.sent, want)
	}
}

// slowUsers are the users of an instance whose operations take long, in fast time.
func slowUsers(t *testing.T) (*slowSQL, sqlAccess, context.Context) {
	t.Helper()
	s := &slowSQL{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	p := at(t, server.URL, Options{Pace: 4000, LookupNS: nowhere})
	return s, sqlAccess{p: p, instance: "shop", engine: job.MySQL}, anything(t.Context())
}

// An operation on a user that outlasts a pass is waited for by the next, and what
// was sent is not sent again.
func TestUserOperationIsNotRepeated(t *testing.T) {
	t.Parallel()
	s, a, ctx := slowUsers(t)
	for range 3 {
		if err := a.setUser(ctx, "orders_rw", "first"); !pipeline.IsWait(err) {
			t.Fatalf("while its operation runs: %v", err)
		}
	}
	s.wants(t, "the password", "PUT orders_rw")
	if err := a.setUser(ctx, "orders_rw", "second"); !pipeline.IsWait(err) {
		t.Errorf("another password meanwhile: %v", err)
	}
	s.wants(t, "another password meanwhile", "PUT orders_rw")
	s.set(true, "")
	if err := a.setUser(ctx, "orders_rw", "first"); err != nil {
		t.Errorf("once it is done: %v", err)
	}
	s.wants(t, "once it is done", "PUT orders_rw", "PUT orders_rw roles")
	if err := a.setUser(ctx, "orders_rw", "second"); err != nil {
		t.Errorf("the second password: %v", err)
	}
	s.wants(t, "the second password", "PUT orders_rw", "PUT orders_rw roles", "PUT orders_rw", "PUT orders_rw roles")

	s.set(false, "")
	for range 2 {
		if err := a.dropUser(ctx, "orders_rw"); !pipeline.IsWait(err) {
			t.Errorf("while it is dropped: %v", err)
		}
	}
	s.set(true, "")
	if err := a.dropUser(ctx, "orders_rw"); err != nil {
		t.Error(err)
	}
	s.wants(t, "the drop", "PUT orders_rw", "PUT orders_rw roles", "PUT orders_rw", "PUT orders_rw roles", "DELETE orders_rw")
}

// A password whose operation runs while another is asked for is set after it.
func TestUserOperationOfAnotherPassword(t *testing.T) {
	t.Parallel()
	s, a, ctx := slowUsers(t)
	if err := a.setUser(ctx, "orders_rw", "first"); !pipeline.IsWait(err) {
		t.Fatal(err)
	}
	s.set(true, "")
	if err := a.setUser(ctx, "orders_rw", "second"); err != nil {
		t.Error(err)
	}
	s.wants(t, "the second", "PUT orders_rw", "PUT orders_rw", "PUT orders_rw roles")
}

// An operation that never ends stops the connection with the names of both; whoever
// asks again waits on and sends nothing. One that fails is told, and sent again.
func TestUserOperationThatNeverEnds(t *testing.T) {
	t.Parallel()
	s, a, ctx := slowUsers(t)
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err = a.setUser(ctx, "orders_rw", "first"); !pipeline.IsWait(err) {
			break
		}
	}
	f := fatal(err)
	if f == nil || f.Problem.Code != "timed-out" || !strings.Contains(f.Problem.Message, "orders_rw") || !strings.Contains(f.Problem.Message, "op-1") {
		t.Fatalf("the verdict is %v", err)
	}
	if err := a.setUser(ctx, "orders_rw", "first"); !pipeline.IsWait(err) {
		t.Errorf("asked again: %v", err)
	}
	s.wants(t, "asked again", "PUT orders_rw")
	s.set(true, "INTERNAL_ERROR")
	if err := a.setUser(ctx, "orders_rw", "first"); err == nil || pipeline.IsWait(err) {
		t.Errorf("a failed operation gave %v", err)
	}
	s.set(true, "")
	if err := a.setUser(ctx, "orders_rw", "first"); err != nil {
		t.Error(err)
	}
	s.wants(t, "after the failure", "PUT orders_rw", "PUT orders_rw", "PUT orders_rw roles")
}
