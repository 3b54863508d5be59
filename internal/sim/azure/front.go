package azure

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// maxBody is ARM's limit ("Request size limits": 4 MB).
const maxBody = 4 << 20

// A request is a call to ARM, decoded.
type request struct {
	*sim.Call
	cloud        *Cloud
	who          Client
	http         http.Header
	method       string
	host, base   string // base: "https://127.0.0.1:5093"
	path         string // without a slash at its end
	query        url.Values
	version      string // api-version
	subscription string
	body         []byte
	correlation  string
	// kind and id are what the path names, if it is a provider's; tail is an action or view below the resource.
	kind *kind
	id   armID
	tail string
	vars map[string]string // of a route
	// scopes are what the call's Actions are on, one each.
	scopes []string
	// placed: it comes from the control API, for what was there before.
	placed bool
	// nesting: the resource at hand is written as part of the one around it.
	nesting bool
}

// An answer is what goes back.
type answer struct {
	status int
	code   string // of a refusal, for the books
	header http.Header
	body   any // nil: none
	raw    []byte
}

func (c *Cloud) newRequest(r *http.Request, body []byte) *request {
	q := r.URL.Query()
	path := "/" + strings.Trim(r.URL.Path, "/")
	// ARM collapses the doubled slashes that careless clients send.
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	req := &request{Call: &sim.Call{Cloud: "azure"}, cloud: c, http: r.Header, method: r.Method, host: r.Host, base: "https://" + r.Host, path: path,
		query: q, version: q.Get("api-version"), body: body, correlation: r.Header.Get("X-Ms-Correlation-Request-Id")}
	if req.correlation == "" {
		req.correlation = newRequestID()
	}
	req.subscription = segmentAfter(path, "subscriptions")
	req.Account = req.subscription
	req.Mutating = r.Method != http.MethodGet && r.Method != http.MethodHead
	req.Params = r.Method + " " + r.URL.RequestURI() + " " + withoutSecrets(path, body)
	return req
}

// ServeHTTP answers a request to ARM or to the authority.
func (c *Cloud) ServeHTTP(rw http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, hr.Body, maxBody))
	if err != nil {
		http.Error(rw, "request body too large or unreadable", http.StatusRequestEntityTooLarge)
		return
	}
	r := c.newRequest(hr, body)
	op, serveIt, isLogin := c.authority(r)
	vaultIt, isVault := c.vaultData(r)
	switch {
	case isVault:
		serveIt = vaultIt
	case isLogin:
		r.Service, r.Operation, r.Mutating = "login", op, false
		// Form bodies of the authority carry secrets: faults do not look into them.
		r.Params = hr.Method + " " + hr.URL.Path
	default:
		serveIt = c.resolve(r)
		r.Actions, r.scopes = c.permissionsFor(r)
	}
	var early *Error // the books want to know who called, even if that is why the call is refused
	switch {
	case isVault:
		early = c.authenticateVault(r)
	case !isLogin:
		early = c.authenticate(r)
	}
	var ans answer
	exec := func() sim.Reply {
		ans = c.execute(r, serveIt, early, isLogin)
		return sim.Reply{Status: ans.status, Code: ans.code}
	}
	refuseIt := func(f *sim.Fault) sim.Reply {
		ans = c.faulty(r, f, isLogin)
		return sim.Reply{Status: ans.status, Code: ans.code}
	}
	c.servers.sync() // of a world that was just taken up
	cut := c.World.Serve(hr.Context(), r.Call, exec, refuseIt)
	c.servers.sync() // before the caller hears of it
	if cut {
		panic(http.ErrAbortHandler)
	}
	c.send(rw, r, ans, isLogin)
}

func (c *Cloud) send(rw http.ResponseWriter, r *request, ans answer, isLogin bool) {
	h := rw.Header()
	maps.Copy(h, ans.header)
	payload := ans.raw
	if ans.body != nil {
		b, err := json.Marshal(ans.body)
		if err != nil {
			slog.Error("simulated Azure", "operation", r.Operation, "error", err)
			http.Error(rw, "an answer that is no JSON", http.StatusInternalServerError)
			return
		}
		payload = b
	}
	if len(payload) > 0 && h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json; charset=utf-8")
	}
	h.Set("X-Ms-Request-Id", newRequestID())
	if !isLogin {
		h.Set("X-Ms-Correlation-Request-Id", r.correlation)
		h.Set("X-Ms-Routing-Request-Id", "WESTUS2:"+c.World.Clock.Now().UTC().Format("20060102T150405Z")+":"+r.correlation)
		for name, left := range map[string]string{"Reads": "11999", "Writes": "1199", "Deletes": "14999"} {
			if (name == "Reads") == !r.Mutating && (name == "Deletes") == (r.method == http.MethodDelete) && h.Get("X-Ms-Ratelimit-Remaining-Subscription-"+name) == "" {
				h.Set("X-Ms-Ratelimit-Remaining-Subscription-"+name, left)
			}
		}
	}
	h.Set("Cache-Control", "no-cache")
	if ans.status != http.StatusNoContent && ans.status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(payload)))
	}
	rw.WriteHeader(ans.status)
	// The caller has gone away if this fails; there is nobody to tell.
	_, _ = rw.Write(payload)
}

func (c *Cloud) execute(r *request, serveIt func() (answer, error), early *Error, isLogin bool) answer {
	var ans answer
	var err error
	switch {
	case early != nil:
		err = early
	case isLogin:
		ans, err = serveIt()
	default:
		ans, err = c.admitted(r, serveIt)
	}
	if err == nil {
		return ans
	}
	var login *loginError
	if errors.As(err, &login) {
		return login.answer(r)
	}
	var e *Error
	if !errors.As(err, &e) {
		slog.Error("simulated Azure", "service", r.Service, "operation", r.Operation, "error", err)
		e = refuse(http.StatusInternalServerError, "InternalServerError", "An error occurred.")
	}
	return e.answer()
}

// admitted carries out a request of a known caller, if it may make it.
func (c *Cloud) admitted(r *request, serveIt func() (answer, error)) (answer, error) {
	if r.version == "" {
		return answer{}, refuseARM(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	if e := c.authorize(r); e != nil {
		return answer{}, e
	}
	if !strings.HasPrefix(r.path, vaultPrefix) {
		if e := c.granted(r, r.scopes); e != nil {
			return answer{}, e
		}
	}
	if serveIt == nil {
		return answer{}, c.unknown(r)
	}
	return serveIt()
}

// resolve says what a request asks for: its service and operation, and who answers it.
func (c *Cloud) resolve(r *request) func() (answer, error) {
	c.World.Lock()
	defer c.World.Unlock()
	return c.resolveLocked(r)
}

func (c *Cloud) resolveLocked(r *request) func() (answer, error) {
	r.Service, r.Operation = "resources", r.method+" "+r.path
	if op, s, result, ok := c.isPoll(r); ok && r.method == http.MethodGet {
		r.Operation = "Operations_Get"
		if s != nil {
			r.Service = s.name
		}
		return func() (answer, error) { return c.poll(r, op, result) }
	}
	for i := range c.routes {
		if rt := &c.routes[i]; rt.match(r) {
			r.Service, r.Operation, r.Region = rt.service, rt.operation, normalLocation(r.vars["location"])
			if rt.kind != "" {
				r.kind = c.kindOf(rt.kind)
			}
			r.Mutating = r.Mutating && !rt.read
			return func() (answer, error) {
				if len(rt.versions) > 0 && !slices.Contains(rt.versions, r.version) {
					return answer{}, invalidVersion(r.version, rt.versions)
				}
				return rt.serve(r)
			}
		}
	}
	return c.resolveKind(r)
}

// resolveKind resolves a path of a resource, a collection, or an action or view below a resource.
func (c *Cloud) resolveKind(r *request) func() (answer, error) {
	id, ok := parseID(r.path)
	if !ok {
		return nil
	}
	k := c.kindOf(id.typ())
	if k == nil && !id.item() && len(id.Types) > 1 {
		parent, _ := id.parent()
		if k = c.kindOf(parent.typ()); k != nil {
			r.tail = strings.ToLower(id.Types[len(id.Types)-1])
			id = parent
		}
	}
	if k == nil {
		return nil
	}
	r.id, r.kind, r.Service = id, k, k.service
	r.Operation = k.title + "_" + r.verb()
	r.Mutating = r.Mutating && !slices.Contains(k.reads, r.tail)
	if res := c.find(r.id.prefix()); res != nil {
		r.Region = res.Location
	}
	if id.item() {
		if res := c.find(id.String()); res != nil && res.Location != "" {
			r.Region = res.Location
		}
	}
	return func() (answer, error) {
		if !slices.Contains(k.versions, r.version) {
			return answer{}, noProvider(r, k)
		}
		if r.tail != "" {
			return c.below(r, k)
		}
		return c.resource(r, k)
	}
}

// verb is the second half of an operation's name.
func (r *request) verb() string {
	if r.tail != "" {
		return strings.ToUpper(r.tail[:1]) + r.tail[1:]
	}
	switch {
	case r.method == http.MethodPut:
		return "CreateOrUpdate"
	case r.method == http.MethodPatch:
		return "Update"
	case r.method == http.MethodDelete:
		return "Delete"
	case r.method == http.MethodHead:
		return "CheckExistence"
	case r.id.item():
		return "Get"
	case r.id.Group == "" && r.id.Scope == "":
		return "ListAll"
	}
	return "List"
}

// below carries out an action or a view of a resource.
func (c *Cloud) below(r *request, k *kind) (answer, error) {
	table := k.actions
	if r.method == http.MethodGet {
		table = k.views
	}
	f := table[r.tail]
	if f == nil {
		return answer{}, c.unknown(r)
	}
	if err := c.enclosing(r, k); err != nil {
		return answer{}, err
	}
	res := c.find(r.id.String())
	if res == nil {
		return answer{}, c.missing(r, k)
	}
	r.Touch(res.ID)
	if r.method == http.MethodPost {
		if err := c.writable(r, k); err != nil {
			return answer{}, err
		}
	}
	return f(r, res)
}

func invalidVersion(given string, versions []string) *Error {
	return refuseARM(http.StatusBadRequest, "InvalidApiVersionParameter", "The api-version '%s' is invalid. The supported versions are '%s'.", given, strings.Join(versions, ","))
}

// noProvider is ARM's refusal of an api-version that a type does not have.
func noProvider(r *request, k *kind) *Error {
	where := ""
	if r.Region != "" {
		where = "location '" + r.Region + "' and "
	}
	places := strings.Join(locationNames(), ", ")
	if k.global {
		places = "global"
	}
	return refuseARM(http.StatusBadRequest, "NoRegisteredProviderFound",
		"No registered resource provider found for %sAPI version '%s' for type '%s'. The supported api-versions are '%s'. The supported locations are '%s'.",
		where, r.version, k.shortType(), strings.Join(k.versions, ", "), places)
}

// unknown is ARM's refusal of a path that leads nowhere.
func (c *Cloud) unknown(r *request) *Error {
	id, ok := parseID(r.path)
	if !ok {
		return refuseARM(http.StatusNotFound, "NotFound", "No route of the simulated Azure matches %s %s.", r.method, r.path)
	}
	for _, k := range c.kinds {
		if strings.EqualFold(k.namespace(), id.Namespace) {
			return refuseARM(http.StatusNotFound, "InvalidResourceType",
				"The resource type '%s' could not be found in the namespace '%s' for api version '%s'. The supported api-versions are '%s'.",
				strings.Join(id.Types, "/"), id.Namespace, r.version, strings.Join(k.versions, ","))
		}
	}
	return refuseARM(http.StatusNotFound, "InvalidResourceNamespace", "The resource namespace '%s' is invalid.", id.Namespace)
}
