package gcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/gcp/schema"
)

// maxBody is more than any request of these services may be.
const maxBody = 4 << 20

// answer is a rendered answer.
type answer struct {
	status int
	code   string
	header http.Header
	body   []byte
}

// ServeHTTP answers a request of any service.
func (c *Cloud) ServeHTTP(rw http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, hr.Body, maxBody))
	if err != nil {
		http.Error(rw, "request body too large or unreadable", http.StatusRequestEntityTooLarge)
		return
	}
	if hr.URL.Path == tokenPath {
		c.serveToken(rw, hr, body)
		return
	}
	if hr.URL.Path == tokenInfoPath {
		c.serveTokenInfo(rw, hr)
		return
	}
	if hr.URL.Path == stsPath {
		c.serveSTS(rw, hr, body)
		return
	}
	if strings.HasSuffix(hr.URL.Path, accessTokenVerb) {
		c.serveAccessToken(rw, hr, body)
		return
	}
	query := hr.URL.Query()
	a, m := c.route(hr.Method, hr.URL.Path)
	if a == nil {
		// What is not simulated still goes into the books, so that nobody wonders where a call went.
		call := &sim.Call{Cloud: cloudName, Service: firstSegment(hr.URL.Path), Operation: hr.Method + " " + hr.URL.Path, Mutating: hr.Method != http.MethodGet,
			Params: paramText(hr, body)}
		a, e := unserved(hr.Method, hr.URL.Path)
		c.serve(rw, hr, a, &request{Call: call, cloud: c}, e)
		return
	}
	r := c.newRequest(a, m, query)
	r.HTTP, r.Params = hr, paramText(hr, body)
	r.Touch(named(m)...)
	early := c.admit(r, body)
	if a.reads != nil && a.reads(r) {
		r.Mutating = false
	}
	c.serve(rw, hr, a, r, early)
}

// route finds the API and the method of a request.
func (c *Cloud) route(method, path string) (*api, schema.Match) {
	if operationMark(path) == valkeyOperations && !strings.HasPrefix(path, valkeyPrefix) {
		path = valkeyPrefix + path // the client asks for operations without its endpoint's path
	}
	path, only := c.named(path)
	for _, m := range schema.Find(method, path) {
		a := c.apis[m.API.Name+"/"+m.API.Version]
		if a != nil && a.ops[m.ID] != nil && (only == a.service || only == "" && (a.claims == nil || a.claims(path))) {
			return a, m
		}
	}
	return nil, schema.Match{}
}

// named takes the name of a service off the front of a path: an endpoint may end with it, so that paths that several services have
// are told apart, such as the lists of operations in /redis/v1/projects/p/locations/l/operations.
func (c *Cloud) named(path string) (rest, service string) {
	first := firstSegment(path)
	for _, a := range c.apis {
		if a.service == first && !a.ownPrefix {
			return strings.TrimPrefix(path, "/"+first), first
		}
	}
	return path, ""
}

// named is the object that a path is about, if it names one.
func named(m schema.Match) []string {
	if n := m.Values["name"]; strings.Contains(n, "/") {
		return []string{n}
	}
	end := strings.LastIndex(m.Path, "}")
	if end < 0 || strings.Contains(m.Path, "{+") {
		return nil
	}
	path, own := m.Path[:end+1], false
	for n, v := range m.Values {
		own = own || !slices.Contains([]string{"project", "projectId", "region", "zone", "resource"}, n)
		path = strings.ReplaceAll(path, "{"+n+"}", v)
	}
	if !own {
		return nil
	}
	if i := strings.Index(path, "projects/"); i >= 0 {
		path = path[i:]
	}
	return []string{path}
}

// admit says who calls, and why the call is refused before the service looks at it.
func (c *Cloud) admit(r *request, body []byte) *Error {
	if e := c.authenticate(r); e != nil {
		return e
	}
	if e := c.authorize(r); e != nil {
		return e
	}
	if bad := r.method.CheckParams(r.Path, r.Query); len(bad) > 0 {
		return r.api.violated(r.method, bad)
	}
	if e := r.decode(body); e != nil {
		return e
	}
	r.Actions = c.permissions(r)
	return c.missingPermission(r)
}

const signInHelp = "Expected OAuth 2 access token, login cookie or other valid authentication credential. " +
	"See https://developers.google.com/identity/sign-in/web/devconsole-project."

func (c *Cloud) authenticate(r *request) *Error {
	token, bearer := strings.CutPrefix(r.HTTP.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		token = r.Query.Get("access_token")
	}
	if token == "" {
		return refuse(401, "required", "Request is missing required authentication credential. %s", signInHelp)
	}
	who, ok := c.opt.Tokens[token]
	if !ok && c.hooks.token != nil {
		c.World.Lock()
		who, ok = c.hooks.token(token)
		c.World.Unlock()
	}
	if !ok {
		return refuse(401, "authError", "Request had invalid authentication credentials. %s", signInHelp)
	}
	r.Who, r.Caller = who, who.Email
	return nil
}

// authorize refuses projects that do not exist or are not the caller's: 403 for both, as whoever may not see a project must
// not learn whether it exists; and APIs that are not enabled.
func (c *Cloud) authorize(r *request) *Error {
	named := projectIn(r.Path)
	if named == "" || named == "-" || publicRead(r, named) {
		return nil
	}
	if r.Project.ID == "" || !r.Who.may(r.Project.ID) {
		if r.api.denied != nil {
			return r.api.denied(r, named)
		}
		return &Error{HTTP: 403, Reason: "forbidden", Message: "The caller does not have permission", Plain: true}
	}
	if !r.api.always && c.hooks.enabled != nil && !c.serviceEnabled(r.Project.ID, r.api.host) {
		return disabledService(r.api, r.Project)
	}
	return nil
}

func (c *Cloud) serviceEnabled(project, host string) bool {
	c.World.Lock()
	defer c.World.Unlock()
	return c.hooks.enabled(project, host)
}

// disabledService is the refusal of an API that is not enabled, or was so only a moment ago ("Enabling and disabling
// services", Service Usage).
func disabledService(a *api, p Project) *Error {
	link := "https://console.developers.google.com/apis/api/" + a.host + "/overview?project=" + p.Number
	return &Error{HTTP: 403, Reason: "accessNotConfigured", Status: "PERMISSION_DENIED",
		Message: fmt.Sprintf("%s has not been used in project %s before or it is disabled. Enable it by visiting %s then retry. If you enabled this API recently, "+
			"wait a few minutes for the action to propagate to our systems and retry.", serviceTitle(a.host), p.Number, link),
		Details: []any{
			Doc{"@type": "type.googleapis.com/google.rpc.Help", "links": []any{Doc{"description": "Google developers console API activation", "url": link}}},
			Doc{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED", "domain": "googleapis.com",
				"metadata": Doc{"service": a.host, "consumer": "projects/" + p.Number}},
		}}
}

// decode reads and checks the body.
func (r *request) decode(body []byte) *Error {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	var doc Doc
	if err := json.Unmarshal(body, &doc); err != nil || doc == nil {
		return &Error{HTTP: 400, Reason: "parseError", Status: "INVALID_ARGUMENT", Message: "Invalid JSON payload received. " + parseText(err)}
	}
	if r.method.Request == "" && len(doc) > 0 {
		return &Error{HTTP: 400, Reason: "badRequest", Status: "INVALID_ARGUMENT", Message: fmt.Sprintf(
			"Invalid JSON payload received. Unknown name %q: Cannot bind query parameter. Field '%[1]s' could not be found in request message.", keysOf(doc)[0])}
	}
	checked, bad := r.method.CheckRequest(doc)
	if len(bad) > 0 {
		return r.api.violated(r.method, bad)
	}
	r.Body = checked
	return nil
}

func parseText(err error) string {
	if err == nil {
		return "Root element must be a message."
	}
	return "Unexpected token.\n" + err.Error()
}

// serve takes a decoded request through the world. early is a refusal that comes before everything but the books.
func (c *Cloud) serve(rw http.ResponseWriter, hr *http.Request, a *api, r *request, early *Error) {
	var ans answer
	exec := func() sim.Reply {
		ans = c.execute(a, r, early)
		return sim.Reply{Status: ans.status, Code: ans.code}
	}
	refuseIt := func(f *sim.Fault) sim.Reply {
		ans = a.faulty(f)
		return sim.Reply{Status: ans.status, Code: ans.code}
	}
	if c.World.Serve(hr.Context(), r.Call, exec, refuseIt) {
		panic(http.ErrAbortHandler)
	}
	h := rw.Header()
	maps.Copy(h, ans.header)
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json; charset=UTF-8")
	}
	h.Set("Content-Length", strconv.Itoa(len(ans.body)))
	// The API is HTTP/1.1 and clients compare Date with their own clock.
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	rw.WriteHeader(ans.status)
	// The caller has gone away if this fails; there is nobody to tell.
	_, _ = rw.Write(ans.body)
}

func (a *api) refusal(e *Error) answer {
	code := e.Reason
	if code == "" {
		code = e.status()
	}
	return answer{status: e.HTTP, code: code, header: http.Header{}, body: a.envelope(e)}
}

func (c *Cloud) execute(a *api, r *request, early *Error) answer {
	if early != nil {
		return a.refusal(early)
	}
	out, err := a.ops[r.Operation](r)
	if err == nil {
		var b []byte
		if b, err = r.render(out); err == nil {
			return answer{status: http.StatusOK, header: http.Header{}, body: b}
		}
	}
	return a.refusal(asError(a, r, err))
}

// render checks an answer against the schema and writes it.
func (r *request) render(out any) ([]byte, error) {
	doc := normal(out)
	if bad := r.method.CheckAnswer(doc); len(bad) > 0 {
		return nil, fmt.Errorf("answer against its schema: %v", bad)
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	return append(b, '\n'), err
}

// asError makes a refusal of an error; one that is no *Error is a mistake in the simulation.
func asError(a *api, r *request, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	slog.Error("simulated GCP", "service", a.service, "operation", r.Operation, "error", err)
	return refuse(500, "backendError", "Internal error encountered.")
}

// faulty renders a fault of kind error, throttle or raw.
func (a *api) faulty(f *sim.Fault) answer {
	var ans answer
	if f.Kind == sim.FaultRaw {
		ans = answer{status: f.Status, code: f.Code, header: http.Header{}, body: []byte(f.Body)}
		if ans.status == 0 {
			ans.status = http.StatusOK
		}
	} else {
		ans = a.refusal(a.faultError(f))
	}
	if f.ContentType != "" {
		ans.header.Set("Content-Type", f.ContentType)
	}
	if f.RetryAfter != "" {
		ans.header.Set("Retry-After", f.RetryAfter)
	}
	return ans
}

// Invoke carries out a method for the control API: no token, no books, no faults. Params are the parameters in path and
// query and, as "body", the request's body; fields of the body may also stand beside the parameters.
func (c *Cloud) Invoke(service, op, account, region string, params map[string]any) (any, error) {
	a, m := c.method(service, op)
	if a == nil {
		return nil, fmt.Errorf("operation: no simulated operation %q of service %q", op, service)
	}
	if account == "" {
		account = c.opt.Projects[0].ID
	}
	p, ok := c.project(account)
	if !ok {
		return nil, fmt.Errorf("account: no project %q", account)
	}
	values, query, body := map[string]string{}, url.Values{}, Doc{}
	if region != "" {
		filled := Doc{"region": region}
		maps.Copy(filled, params)
		params = filled
	}
	for n, v := range params {
		param, known := m.Params[n]
		switch {
		case n == "body":
			body, _ = normal(v).(map[string]any)
		case known && param.Path:
			values[n] = fmt.Sprint(v)
		case known:
			query.Set(n, fmt.Sprint(v))
		case n != "region":
			body[n] = normal(v)
		}
	}
	defaultPath(m, p.ID, values)
	r := c.newRequest(a, schema.Match{Method: m, Values: values}, query)
	r.Who = Caller{Email: "someone@example.com"}
	for n, mp := range m.Params {
		if mp.Path && values[n] == "" {
			return nil, fmt.Errorf("params: %s needs %s", op, n)
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	if e := r.decode(raw); e != nil {
		return nil, e
	}
	out, err := a.ops[op](r)
	return normal(out), err
}

// defaultPath fills in the project where the parameters leave it out.
func defaultPath(m *schema.Method, project string, values map[string]string) {
	for _, n := range []string{"project", "projectId", "name", "parent", "resource"} {
		mp, ok := m.Params[n]
		if !ok || !mp.Path || values[n] != "" {
			continue
		}
		switch {
		case schema.Matches(mp.Pattern, "projects/"+project) && mp.Pattern != "" && n != "project":
			values[n] = "projects/" + project
		case mp.Pattern == "" || n == "project":
			values[n] = project
		}
	}
}

func (c *Cloud) method(service, op string) (*api, *schema.Method) {
	for _, key := range keysOf(c.apis) {
		if a := c.apis[key]; a.service == service && a.ops[op] != nil {
			return a, a.schema.Methods[op]
		}
	}
	return nil, nil
}
