package gcp

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/gcp/schema"
)

// A Doc is a JSON object, as it comes over the wire: numbers are float64, 64-bit integers texts.
type Doc = map[string]any

// An operation carries a request out, with the world locked, and answers the body of the answer.
type operation func(r *request) (any, error)

// An api is one version of a service as the front end knows it.
type api struct {
	service string // as faults and books call it: compute
	host    string // compute.googleapis.com: the name by which the API is enabled
	schema  *schema.API
	ops     map[string]operation // by method: networks.insert
	// How refusals look; see envelope.
	noStatus, listErrors bool
	// ownTexts: wrong enum values are refused by the service, not by Google's front end.
	ownTexts bool
	// bodyField names the request message's field that holds the body.
	bodyField func(schemaName string) string
	// claims says whether a path that several APIs have is this one's; nil means yes.
	claims func(path string) bool
	// reads says of a request that it changes nothing, whatever its method; nil means that the method tells.
	reads func(r *request) bool
	// ownPrefix: the paths of the API begin with its name.
	ownPrefix bool
	// always: the API cannot be disabled.
	always bool
	// denied is the refusal of a project that does not exist or that the caller may not use; nil means the common one.
	denied func(r *request, project string) *Error
}

// A request is one call of a method.
type request struct {
	*sim.Call
	cloud   *Cloud
	api     *api
	method  *schema.Method
	Path    map[string]string // parameters in the path
	Query   url.Values
	Body    Doc
	HTTP    *http.Request // nil when the control API makes the call
	Who     Caller
	Project Project
}

// newRequest describes a request to the core: service, operation, whether it changes anything, project and region.
func (c *Cloud) newRequest(a *api, m schema.Match, query url.Values) *request {
	r := &request{cloud: c, api: a, method: m.Method, Path: m.Values, Query: query,
		Call: &sim.Call{Cloud: cloudName, Service: a.service, Operation: m.ID, Mutating: mutating(m.Method)}}
	if p, ok := c.project(projectIn(m.Values)); ok {
		r.Project, r.Account = p, p.ID
	} else {
		r.Account = projectIn(m.Values)
	}
	r.Region = m.Values["region"]
	if z := m.Values["zone"]; z != "" {
		r.Region = regionOf(z)
	}
	for _, part := range []string{"locations", "regions"} {
		if v := segmentAfter(m.Values["name"]+"/"+m.Values["parent"], part); v != "" {
			r.Region = v
		}
	}
	return r
}

// projectIn finds the project in the parameters of a path.
func projectIn(values map[string]string) string {
	for _, n := range []string{"project", "projectId"} {
		if v := values[n]; v != "" {
			return v
		}
	}
	for _, n := range []string{"name", "parent", "resource"} {
		if v := segmentAfter(values[n], "projects"); v != "" {
			return v
		}
	}
	if v := values["resource"]; v != "" && !strings.Contains(v, "/") {
		return v
	}
	return ""
}

// segmentAfter is the part of a path that follows a collection.
func segmentAfter(path, collection string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts[:len(parts)-1] {
		if p == collection {
			return parts[i+1]
		}
	}
	return ""
}

var readVerbs = []string{"getIamPolicy", "testIamPermissions", "wait", "getHealth", "listInstances", "listManagedInstances", "listErrors", "validate"}

// mutating says whether a method changes anything.
func mutating(m *schema.Method) bool {
	verb := m.ID[strings.LastIndex(m.ID, ".")+1:]
	return m.HTTP != http.MethodGet && !slices.Contains(readVerbs, verb)
}

// paramText is the request as text, for faults to look for their match in, without what is secret in it.
func paramText(r *http.Request, body []byte) string {
	out := r.Method + " " + r.URL.Path + " " + r.URL.RawQuery + " " + string(secretFields.ReplaceAll(body, []byte(`"$1":"***"`)))
	if strings.HasSuffix(r.URL.Path, ":addVersion") {
		out = dataField.ReplaceAllString(out, `"data":"***"`)
	}
	return statementSecrets.ReplaceAllString(out, "$1 '***'")
}

// What is secret in requests: passwords in fields and in statements, and payloads.
var (
	secretFields     = regexp.MustCompile(`"(password|rootPassword)"\s*:\s*"(?:[^"\\]|\\.)*"`)
	dataField        = regexp.MustCompile(`"data"\s*:\s*"(?:[^"\\]|\\.)*"`)
	statementSecrets = regexp.MustCompile(`(?i)\b(password|identified\s+by)\s+(?:'|\\u0027)(?:[^'\\]|\\.|'')*(?:'|\\u0027)`)
)

// match is what the request was found by.
func (r *request) match() schema.Match { return schema.Match{Method: r.method, Values: r.Path} }

// host is the API's name, as Service Usage knows it.
func (r *request) host() string { return r.api.host }

// Documents.

// clone copies a document deeply.
func clone(d Doc) Doc {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // a document is JSON by construction
	}
	var out Doc
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

// normal makes a document of what was written with Go's own types.
func normal(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

// str is a text in a document; sub an object; list a list. They answer zero values for what is not there.
func str(d Doc, key string) string { s, _ := d[key].(string); return s }

func sub(d Doc, key string) Doc { m, _ := d[key].(map[string]any); return m }

func list(d Doc, key string) []any { l, _ := d[key].([]any); return l }

func truth(d Doc, key string) bool { b, _ := d[key].(bool); return b }

func num(d Doc, key string) float64 { f, _ := d[key].(float64); return f }

// docs are the objects in a list.
func docs(d Doc, key string) []Doc {
	var out []Doc
	for _, v := range list(d, key) {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// texts are the texts in a list.
func texts(d Doc, key string) []string {
	var out []string
	for _, v := range list(d, key) {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func anys[T any](in []T) []any {
	out := make([]any, 0, len(in))
	for _, v := range in {
		out = append(out, v)
	}
	return out
}

// setDefault sets a field that is not there.
func setDefault(d Doc, key string, value any) {
	if _, ok := d[key]; !ok {
		d[key] = value
	}
}

// merge applies a JSON merge patch: objects are merged, lists and values replaced, nulls remove. Patches of Google's APIs work
// so ("PATCH requests" in the guides to their APIs).
func merge(into, patch Doc) {
	for k, v := range patch {
		if v == nil {
			delete(into, k)
			continue
		}
		if p, ok := v.(map[string]any); ok {
			if old, ok := into[k].(map[string]any); ok {
				merge(old, p)
				continue
			}
		}
		into[k] = v
	}
}

// labelsOf are a document's labels.
func labelsOf(d Doc) map[string]string {
	out := map[string]string{}
	for k, v := range sub(d, "labels") {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

func keysOf[V any](m map[string]V) []string {
	keys := slices.Collect(maps.Keys(m))
	sort.Strings(keys)
	return keys
}
