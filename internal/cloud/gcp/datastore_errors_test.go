package gcp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// What the services of datastores answer, from recorded traffic and public issues,
// and what it means.
func TestClassifyDatastoreAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		service string
		status  int
		method  string
		path    string
		body    string
		class   pipeline.Class
		op      string
	}{
		{"no instance", serviceSQL, 404, "GET", "/v1/projects/p/instances/i", `{"error":{"code":404,"errors":[{"domain":"global","message":"The Cloud SQL instance does not exist.","reason":"instanceDoesNotExist"}],"message":"The Cloud SQL instance does not exist."}}`, pipeline.NotFound, "instances.get"},
		{"taken or held", serviceSQL, 409, "POST", "/v1/projects/p/instances", `{"error":{"code":409,"message":"The Cloud SQL instance already exists.","errors":[{"reason":"instanceAlreadyExists"}]}}`, pipeline.Exists, "instances.insert"},
		{"held, the other form", serviceSQL, 409, "POST", "/v1/projects/p/instances", `{"error":{"code":409,"message":"The instance or operation is not in an appropriate state to handle the request.","errors":[{"reason":"invalidState"}]}}`, pipeline.Exists, "instances.insert"},
		{"not in a state for it", serviceSQL, 409, "PATCH", "/v1/projects/p/instances/i", `{"error":{"code":409,"message":"The instance or operation is not in an appropriate state to handle the request.","errors":[{"reason":"invalidState"}]}}`, pipeline.Busy, "instances.patch"},
		{"another operation", serviceSQL, 409, "DELETE", "/v1/projects/p/instances/i", `{"error":{"code":409,"message":"Operation failed because another operation was already in progress.","errors":[{"reason":"operationInProgress"}]}}`, pipeline.Busy, "instances.delete"},
		{"tier of another edition", serviceSQL, 400, "POST", "/v1/projects/p/instances", `{"error":{"code":400,"message":"Invalid request: Invalid Tier (db-c4a-highmem-2) for (ENTERPRISE) Edition."}}`, pipeline.Invalid, "instances.insert"},
		{"a fresh connection", serviceSQL, 400, "POST", "/v1/projects/p/instances", `{"error":{"code":400,"message":"Invalid request: Incorrect Service Networking config for instance: p:i:NETWORK_NOT_PEERED.","errors":[{"reason":"invalid"}]}}`, pipeline.Busy, "instances.insert"},
		{"root stays", serviceSQL, 400, "DELETE", "/v1/projects/p/instances/i/users", `{"error":{"code":400,"errors":[{"message":"Invalid request: Error 1396: Operation DROP USER failed for 'root'@''.","reason":"invalid"}],"message":"Invalid request: Error 1396: Operation DROP USER failed for 'root'@''."}}`, pipeline.Invalid, "users.delete"},
		{"no database", serviceSQL, 404, "GET", "/v1/projects/p/instances/i/databases/d", `{"error":{"code":404,"errors":[{"reason":"notFound"}],"message":"Not Found","status":"NOT_FOUND"}}`, pipeline.NotFound, "databases.get"},
		{"database is there", serviceSQL, 400, "POST", "/v1/projects/p/instances/i/databases", `{"error":{"code":400,"message":"Invalid request: failed to create database d. Detail: pq: database \"d\" already exists.","errors":[{"reason":"invalid"}]}}`, pipeline.Exists, "databases.insert"},
		{"not up", serviceSQL, 400, "POST", "/v1/projects/p/instances/i/executeSql", `{"error":{"code":400,"message":"Invalid request: Invalid request since instance is not running.","errors":[{"reason":"invalid"}]}}`, pipeline.Busy, "instances.executeSql"},
		{"no cache", serviceRedis, 404, "GET", "/v1/projects/p/locations/l/instances/i", `{"error":{"code":404,"message":"Resource 'projects/p/locations/l/instances/i' was not found","status":"NOT_FOUND"}}`, pipeline.NotFound, "instances.get"},
		{"no secret", serviceSecrets, 404, "GET", "/v1/projects/p/locations/l/secrets/s", `{"error":{"code":404,"message":"Secret [projects/1/secrets/s] not found.","status":"NOT_FOUND"}}`, pipeline.NotFound, "secrets.get"},
		{"a web server's 404", serviceMemorystore, 404, "GET", "/memorystore/v1/projects/p/locations/l/instances/i", `<html>404</html>`, pipeline.Invalid, "instances.get"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			op, _ := operation(c.service, c.method, c.path)
			resp := httptest.NewRecorder()
			resp.Code = c.status
			req := httptest.NewRequestWithContext(t.Context(), c.method, c.path, http.NoBody)
			got := classifyAnswer(c.service, op, req, resp.Result(), []byte(c.body))
			if got.Class != c.class || op != c.op {
				t.Errorf("%s is %s (%s), want %s of %s", op, got.Class, got.Code, c.class, c.op)
			}
		})
	}
}

// Done does not mean that it worked: an operation's error has the class that the
// same refusal would have.
func TestSQLOperationError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body  string
		class pipeline.Class
		op    string
	}{
		{`{"name":"o","status":"DONE","operationType":"CREATE","error":{"errors":[{"code":"INTERNAL_ERROR","message":"Failed to create subnetwork. Couldn't find free blocks in allocated IP ranges."}]}}`, pipeline.Quota, "instances.insert"},
		{`{"name":"o","status":"DONE","operationType":"CREATE_USER","error":{"errors":[{"code":"ERROR_RDBMS","message":"user already exists"}]}}`, pipeline.Exists, "users.insert"},
		{`{"name":"o","status":"DONE","operationType":"DELETE_DATABASE","error":{"errors":[{"code":"INTERNAL_ERROR"}]}}`, pipeline.Unavailable, "databases.delete"},
	} {
		op := new(sqladmin.Operation)
		if err := json.Unmarshal([]byte(c.body), op); err != nil {
			t.Fatal(err)
		}
		err := sqlOperationError(op)
		ce, ok := err.(*pipeline.CloudError) //nolint:errorlint // it is bare
		if !ok || ce.Class != c.class || ce.Op != c.op || ce.Message == "" {
			t.Errorf("%s: %+v", c.body, err)
		}
	}
}

// What goes wrong at a cloud on an ordinary day, and is waited out: throttling,
// objects that show late, deletes that never happen, pages that are empty (failure
// kinds D, H, I, Q).
func TestDatastoreOrdinaryTrouble(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		down  bool
		fault sim.Fault
	}{
		{"throttled", false, sim.Fault{Kind: sim.FaultThrottle, Service: serviceSQL, Count: 4}},
		{"secrets throttled", false, sim.Fault{Kind: sim.FaultThrottle, Service: serviceSecrets, Count: 3}},
		{"reads fail", false, sim.Fault{Kind: sim.FaultError, Service: serviceSQL, Operation: "instances.get", Count: 3, Status: 503, Code: "backendError"}},
		{"an answer that is no answer", false, sim.Fault{Kind: sim.FaultRaw, Service: serviceSQL, Operation: "operations.get", Status: 200, Body: "<html>"}},
		{"a delete that never happens", true, sim.Fault{Kind: sim.FaultSwallow, Service: serviceSQL, Operation: "instances.delete"}},
		{"a delete that fails", true, sim.Fault{Kind: sim.FaultError, Service: serviceSQL, Operation: "instances.delete", Status: 409, Code: "operationInProgress", Count: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, job.Datastore, job.ModeCreate, postgresSpec)
			if c.down {
				g.up()
			}
			g.fault(c.fault)
			if !c.down {
				g.up()
				g.eachOnce()
			}
			g.down()
			g.hit()
			g.onlyBackup()
		})
	}
}

// An adopted instance is found behind empty pages too.
func TestAdoptBehindEmptyPages(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Datastore, job.ModeAdopt, `{"adopt":{"name":"legacy-2"}}`)
	g.theirs("legacy", 3)
	g.fault(sim.Fault{Kind: sim.FaultPage, Mode: "empty", Service: serviceSQL, Operation: "instances.list"})
	if err := g.adopts(); err != nil || g.store().Name != "legacy-2" {
		t.Errorf("%+v, %v", g.store(), err)
	}
	g.hit()
}

// What the caller may not read is unchecked, and the job goes on with what it knows.
func TestDatastoreChecksDenied(t *testing.T) {
	t.Parallel()
	g := newData(t, job.Datastore, job.ModeCreate, postgresSpec)
	for _, op := range []string{"flags.list", "tiers.list"} {
		g.fault(sim.Fault{Kind: sim.FaultError, Service: serviceSQL, Operation: op, Status: 403, Code: "forbidden", Count: -1})
	}
	unchecked := 0
	for _, f := range g.findings() {
		if f.Status == cloud.CheckFails {
			t.Errorf("check: %+v", f)
		}
		if f.Status == cloud.CheckUnchecked {
			unchecked++
		}
	}
	if d := g.store(); unchecked != 2 || d.Version != "18" || d.Class != "db-custom-2-8192" {
		t.Errorf("%d unchecked; %+v", unchecked, d)
	}
	g.world.ClearFaults("")
	g.world.Step(time.Minute)
	g.up()
	g.down()
}
