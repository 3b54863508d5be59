package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/provision"
)

// operations reads every operation of the OpenAPI document with its policies.
func (r *rig) operations() map[string][]string {
	r.t.Helper()
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string   `json:"operationId"`
			Policy      []string `json:"x-policy"`
		}
	}
	a := r.do("", "GET", "/openapi.json", "")
	if err := json.Unmarshal(a.body, &doc); err != nil {
		r.t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		r.t.Errorf("OpenAPI %q", doc.OpenAPI)
	}
	out := map[string][]string{}
	for path, item := range doc.Paths {
		for method, op := range item {
			out[strings.ToUpper(method)+" "+path] = op.Policy
		}
	}
	return out
}

// wantPolicies is what each operation needs; a new one has to be written here.
var wantPolicies = map[string][]access.Policy{
	"POST /provisioning-jobs":             {access.JobCreate, access.ComponentInstall, access.VMOperate},
	"GET /provisioning-jobs":              {access.JobView},
	"POST /provisioning-jobs/plan":        {access.JobCreate},
	"GET /provisioning-jobs/{id}":         {access.JobView},
	"PATCH /provisioning-jobs/{id}":       {access.JobUpdate, access.VMOperate, access.ComponentInstall},
	"DELETE /provisioning-jobs/{id}":      {access.JobDelete, access.ComponentUninstall},
	"POST /provisioning-jobs/{id}/retry":  {access.JobRetry},
	"POST /provisioning-jobs/{id}/verify": {access.JobView},
	"GET /provisioning-jobs/{id}/plan":    {access.JobView},
	"GET /provisioning-jobs/{id}/events":  {access.JobView},
	"GET /provisioning-jobs/{id}/receipt": {access.JobView},
	"GET /provisioning-jobs/{id}/explain": {access.JobView},
	"GET /spaces":                         {access.SpaceView},
	"POST /spaces":                        {access.SpaceManage},
	"GET /spaces/{id}":                    {access.SpaceView},
	"DELETE /spaces/{id}":                 {access.SpaceManage},
	"GET /spaces/{id}/namespaces":         {access.SpaceView},
	"POST /spaces/{id}/namespaces":        {access.SpaceManage},
	"GET /catalog/components":             {access.ComponentView},
	"GET /catalog/components/{id}":        {access.ComponentView},
	"POST /provisioning-jobs/{id}/diff":   {access.ComponentView},

	"POST /provisioning-jobs/install-component": {access.ComponentInstall},

	"GET /catalog/presets":                                                      {access.JobView},
	"GET /provisioning-jobs/{id}/recommendations":                               {access.JobView},
	"GET /provisioning-jobs/{id}/databases":                                     {access.DatabaseView},
	"POST /provisioning-jobs/{id}/databases":                                    {access.DatabaseCreate},
	"GET /provisioning-jobs/{id}/databases/{dbID}":                              {access.DatabaseView},
	"DELETE /provisioning-jobs/{id}/databases/{dbID}":                           {access.DatabaseDelete},
	"GET /provisioning-jobs/{id}/connections":                                   {access.ConnectionView},
	"POST /provisioning-jobs/{id}/connections":                                  {access.ConnectionCreate},
	"GET /provisioning-jobs/{id}/connections/{connID}":                          {access.ConnectionView},
	"DELETE /provisioning-jobs/{id}/connections/{connID}":                       {access.ConnectionDelete},
	"POST /provisioning-jobs/{id}/connections/{connID}/rotate":                  {access.ConnectionCreate},
	"POST /provisioning-jobs/{id}/connections/{connID}/reveal":                  {access.ConnectionReveal},
	"GET /provisioning-jobs/{id}/databases/{dbID}/connections":                  {access.ConnectionView},
	"POST /provisioning-jobs/{id}/databases/{dbID}/connections":                 {access.ConnectionCreate},
	"GET /provisioning-jobs/{id}/databases/{dbID}/connections/{connID}":         {access.ConnectionView},
	"DELETE /provisioning-jobs/{id}/databases/{dbID}/connections/{connID}":      {access.ConnectionDelete},
	"POST /provisioning-jobs/{id}/databases/{dbID}/connections/{connID}/rotate": {access.ConnectionCreate},
	"POST /provisioning-jobs/{id}/databases/{dbID}/connections/{connID}/reveal": {access.ConnectionReveal},

	"GET /schedules":         {access.JobView},
	"POST /schedules":        {access.VMOperate},
	"GET /schedules/{id}":    {access.JobView},
	"PATCH /schedules/{id}":  {access.VMOperate},
	"DELETE /schedules/{id}": {access.VMOperate},

	"GET /tokens":                {access.TokenManage},
	"POST /tokens":               {access.TokenManage},
	"GET /tokens/{id}":           {access.TokenManage},
	"DELETE /tokens/{id}":        {access.TokenManage},
	"POST /tokens/{id}/rotate":   {access.TokenManage},
	"GET /roles":                 {access.RoleManage, access.TokenManage},
	"POST /roles":                {access.RoleManage},
	"GET /roles/{id}":            {access.RoleManage, access.TokenManage},
	"PATCH /roles/{id}":          {access.RoleManage},
	"DELETE /roles/{id}":         {access.RoleManage},
	"GET /assignments":           {access.RoleManage},
	"POST /assignments":          {access.RoleManage},
	"DELETE /assignments/{id}":   {access.RoleManage},
	"GET /effective-permissions": {access.RoleManage},
	"GET /policies":              {access.Authenticated},
	"GET /whoami":                {access.Authenticated},
	"GET /teams":                 {access.Authenticated},
	"GET /teams/{id}":            {access.Authenticated},
	"POST /teams":                {access.RoleManage},
	"PATCH /teams/{id}":          {access.RoleManage},
	"DELETE /teams/{id}":         {access.RoleManage},

	"GET /cloud-accounts":              {access.CloudAccountView},
	"POST /cloud-accounts":             {access.CloudAccountManage},
	"GET /cloud-accounts/{id}":         {access.CloudAccountView},
	"PATCH /cloud-accounts/{id}":       {access.CloudAccountManage},
	"DELETE /cloud-accounts/{id}":      {access.CloudAccountManage},
	"POST /cloud-accounts/{id}/verify": {access.CloudAccountManage},
	"GET /catalog/policies":            {access.CloudAccountView},

	"PUT /cloud-accounts/{id}/clusters/{region}/{name}/access":    {access.CloudAccountManage},
	"DELETE /cloud-accounts/{id}/clusters/{region}/{name}/access": {access.CloudAccountManage},

	"GET /auth/login":    {access.Public}, // TestSignIn… have these
	"GET /auth/callback": {access.Public},
	"POST /auth/logout":  {access.Public},
	"GET /auth/session":  {access.Authenticated},
	"GET /users":         {access.RoleManage},
	"GET /users/{id}":    {access.RoleManage},
	"PATCH /users/{id}":  {access.RoleManage},

	"GET /webhooks":                                      {access.WebhookView},
	"POST /webhooks":                                     {access.WebhookManage},
	"GET /webhooks/{id}":                                 {access.WebhookView},
	"PATCH /webhooks/{id}":                               {access.WebhookManage},
	"DELETE /webhooks/{id}":                              {access.WebhookManage},
	"POST /webhooks/{id}/rotate-secret":                  {access.WebhookManage},
	"POST /webhooks/{id}/test":                           {access.WebhookManage},
	"GET /webhooks/{id}/deliveries":                      {access.WebhookView},
	"POST /webhooks/{id}/deliveries/{message}/redeliver": {access.WebhookManage},

	"GET /audit-logs":        {access.AuditView},
	"GET /audit-logs/verify": {access.AuditView},
	"GET /audit-logs/export": {access.AuditView},
	"GET /secrets":           {access.TokenManage},
	"POST /secrets/rotate":   {access.TokenManage},
	"POST /backup":           {access.TokenManage},
	"GET /healthz":           {access.Public},
	"GET /readyz":            {access.Public},
	"GET /version":           {access.Public}, // these two are bounded by where the request comes from,
	"GET /metrics":           {access.Public}, // see TestTokenFromAfar
}

func TestEveryRouteHasItsPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(vmJob("shop"))
	ops := r.operations()
	for op := range wantPolicies {
		if _, ok := ops[op]; !ok {
			t.Errorf("%s is gone", op)
		}
	}
	for op, policies := range ops {
		want := wantPolicies[op]
		if got := fmt.Sprint(policies); got != fmt.Sprint(want) {
			t.Errorf("%s declares %s, want %s", op, got, want)
			continue
		}
		method, path, _ := strings.Cut(op, " ")
		path = strings.ReplaceAll(path, "{id}", v.ID)
		body := ""
		if method == "POST" || method == "PATCH" {
			body = "{}"
		}
		if want[0] == access.Public {
			// Where no sign-in is configured, its pages say so.
			right := map[string]int{"/auth/login": 404, "/auth/callback": 404}
			if a := r.do("", method, path, ""); a.status != max(200, right[path]) {
				t.Errorf("%s without a token: %d", op, a.status)
			}
			continue
		}
		for name, header := range map[string]string{"none": "", "a wrong one": "Bearer zop_wrong-token-wrong-token", "another scheme": "Basic " + adminToken} {
			a := r.do("", method, path, body, "Authorization", header)
			if a.status != 401 || a.problem(t).Code != "unauthenticated" || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with the token: %s: %d %s", op, name, a.status, a.body)
			}
		}
		viewerMay := want[0] == access.Authenticated
		if a := r.do(noneToken, method, path, body); (a.status == 403) == viewerMay || a.status == 403 && a.problem(t).Code != "forbidden" {
			t.Errorf("%s by somebody without a role: %d", op, a.status)
		}
		for _, p := range want {
			viewerMay = viewerMay || slices.Contains(access.BuiltIn(access.Viewer), p)
		}
		if a := r.do(viewerToken, method, path, body, "Accept", "application/json"); (a.status != 403) != viewerMay {
			t.Errorf("%s by a viewer: %d, allowed: %v", op, a.status, viewerMay)
		}
	}
}

func TestRefusedMutationsAreAudited(t *testing.T) { onBoth(t, testRefusedMutationsAreAudited) }

func testRefusedMutationsAreAudited(t *testing.T, r *rig) {
	v := r.create(vmJob("shop"))
	r.do(viewerToken, "DELETE", "/provisioning-jobs/"+v.ID, "", "X-Request-Id", "my-request-1")
	r.do(adminToken, "POST", "/provisioning-jobs/"+v.ID+"/retry", "")
	r.do(adminToken, "POST", "/provisioning-jobs", `{"name":3}`)
	r.do(otherToken, "DELETE", "/provisioning-jobs/"+v.ID, "")
	var entries []struct{ Actor, Action, ResourceID, Outcome, RequestID string }
	r.do(viewerToken, "GET", "/audit-logs", "").into(t, &entries)
	got := []string{}
	for _, e := range entries {
		got = append(got, strings.Join([]string{e.Actor, e.Action, strings.Replace(e.ResourceID, v.ID, "JOB", 1), e.Outcome}, " "))
	}
	want := []string{
		"ana provisioning-job:create  refused",
		"ana provisioning-job:retry JOB refused",
		"vera provisioning-job:delete JOB refused",
		"ana provisioning-job:create JOB allowed",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("audit log:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if entries[2].RequestID != "my-request-1" {
		t.Errorf("request ID %q", entries[2].RequestID)
	}
	var check provision.AuditCheck
	if r.do(viewerToken, "GET", "/audit-logs/verify", "").into(t, &check); !check.Whole || check.Seq != 0 || check.Unsealed != 4 || check.Warning != "" {
		t.Errorf("before it is sealed the log verifies as %+v", check)
	}
	if n, err := audit.Seal(db.System(t.Context()), r.db); err != nil || n != 5 {
		t.Fatalf("%d entries sealed, %v", n, err)
	}
	if r.do(viewerToken, "GET", "/audit-logs/verify", "").into(t, &check); !check.Whole || check.Seq != 4 || check.Hash == "" || check.Unsealed != 0 {
		t.Errorf("the log does not verify: %+v", check)
	}
	unguard := `DROP TRIGGER audit_log_update`
	if r.db.Dialect() == db.Postgres {
		unguard = `ALTER TABLE audit_log DISABLE TRIGGER USER`
	}
	behind := r.behind()
	if _, err := behind.Exec(t.Context(), unguard); err != nil {
		t.Fatal(err)
	}
	if _, err := behind.Exec(t.Context(), `UPDATE audit_log SET actor = 'nobody' WHERE seq = 2 AND org_id = 'org1'`); err != nil {
		t.Fatal(err)
	}
	if r.do(viewerToken, "GET", "/audit-logs/verify", "").into(t, &check); check.Whole || check.Seq != 2 || check.Reason == "" {
		t.Errorf("a changed entry does not show: %+v", check)
	}
	// The other organisation's refusal is in its own log, and nowhere else.
	var others []struct{ Actor, Action, Outcome string }
	r.do(otherToken, "GET", "/audit-logs?outcome=refused", "").into(t, &others)
	if len(others) != 1 || others[0].Actor != "otto" {
		t.Errorf("the other organisation's log: %+v", others)
	}
}

func TestOrganisationsSeeTheirOwn(t *testing.T) { onBoth(t, testOrganisationsSeeTheirOwn) }

func testOrganisationsSeeTheirOwn(t *testing.T, r *rig) {
	v := r.create(vmJob("shop"))
	for _, path := range []string{"", "/events", "/plan", "/receipt", "/explain"} {
		for _, ref := range []string{v.ID, v.Name} {
			a := r.do(otherToken, "GET", "/provisioning-jobs/"+ref+path, "", "Accept", "application/json")
			if a.status != 404 || a.problem(t).Code != "not-found" {
				t.Errorf("GET %s%s by another organisation: %d", ref, path, a.status)
			}
		}
	}
	for _, c := range [][3]string{{"PATCH", "", `{"status":"queued"}`}, {"DELETE", "", ""}, {"POST", "/retry", ""}, {"POST", "/verify", ""}} {
		if a := r.do(otherToken, c[0], "/provisioning-jobs/"+v.ID+c[1], c[2]); a.status != 404 {
			t.Errorf("%s %s by another organisation: %d", c[0], c[1], a.status)
		}
	}
	var jobs []json.RawMessage
	r.do(otherToken, "GET", "/provisioning-jobs", "").into(t, &jobs)
	if len(jobs) != 0 {
		t.Errorf("another organisation lists %d jobs", len(jobs))
	}
	if a := r.do(otherToken, "POST", "/provisioning-jobs", vmJob("shop")); a.status != 201 {
		t.Errorf("a name is unique in its organisation alone: %d %s", a.status, a.body)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(vmJob("shop"))
	a := r.do("", "GET", "/metrics", "")
	for _, want := range []string{`zopday_jobs{family="vm",phase="provision",status="draft"} 1`, "zopday_queue_age_seconds 0", `zopday_http_requests_total{method="POST",route="/provisioning-jobs",status="201"} 1`} {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("no %s", want)
		}
	}
}

// What says much of the installation needs a token from elsewhere; what a load
// balancer and a reader of the documentation ask for does not.
func TestTokenFromAfar(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for path, open := range map[string]bool{
		"/healthz": true, "/readyz": true, "/docs": true, "/openapi.json": true, "/problems": true, "/version": false, "/metrics": false,
	} {
		if a := r.do("", "GET", path, ""); a.status != 200 {
			t.Errorf("%s from here without a token: %d", path, a.status)
		}
		for _, h := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"} {
			if a := r.do("", "GET", path, "", h, "192.0.2.1"); open && a.status != 200 || !open && a.status != 401 {
				t.Errorf("%s through a proxy (%s) without a token: %d", path, h, a.status)
			}
			if a := r.do(viewerToken, "GET", path, "", h, "192.0.2.1"); a.status != 200 {
				t.Errorf("%s through a proxy (%s) with a token: %d", path, h, a.status)
			}
		}
		if a := r.do(noneToken, "GET", path, "", "Via", "192.0.2.1"); open && a.status != 200 || !open && a.status != 403 {
			t.Errorf("%s through a proxy by somebody without a role: %d", path, a.status)
		}
	}
}

func TestMetricsUnderAnotherName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for host, want := range map[string]int{"": 200, "localhost:5087": 200, "[::1]:5087": 200, "127.0.0.1": 200, "rebound.example.com": 401, "192.0.2.7:5087": 401} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.server.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := r.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %q: %d, want %d", host, resp.StatusCode, want)
		}
	}
}

func TestDocsNeedNoOtherHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pages := []string{"/docs", "/problems", "/docs/docs.css"}
	for k := range kinds {
		pages = append(pages, "/problems/"+string(k))
	}
	for _, path := range pages {
		a := r.do("", "GET", path, "")
		if a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
		if body := string(a.body); strings.Contains(body, "src=\"http") || strings.Contains(body, "href=\"http") || strings.Contains(body, "<script") {
			t.Errorf("%s loads something from elsewhere, or runs a script", path)
		}
	}
	page := string(r.do("", "GET", "/docs", "").body)
	for op := range wantPolicies {
		_, path, _ := strings.Cut(op, " ")
		if !strings.Contains(page, "<code>"+path+"</code>") {
			t.Errorf("/docs does not show %s", path)
		}
	}
	for _, field := range []string{"healthCheck", "instanceType", "plainHTTP", "Last-Event-ID"} {
		if !strings.Contains(page, field) {
			t.Errorf("/docs does not show %s", field)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := r.do("", "GET", path, ""); a.status != http.StatusOK {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	if a := r.do("", "GET", "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("/healthz without a database: %d", a.status)
	}
	if a := r.do("", "GET", "/readyz", ""); a.status != http.StatusServiceUnavailable || a.problem(t).Code != "unavailable" {
		t.Errorf("/readyz without a database: %d", a.status)
	}
}
