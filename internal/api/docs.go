package api

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/job"
)

//go:embed docs/*.tmpl docs/docs.css
var docFiles embed.FS

var docTemplates = template.Must(template.New("").Funcs(template.FuncMap{"slug": slug}).ParseFS(docFiles, "docs/*.tmpl"))

// docRoutes serves the OpenAPI document, the page that is made of it, and a page
// for each kind of problem. All of it is built once and needs no other host.
func (s *server) docRoutes() {
	s.completeDocument()
	spec, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		panic("OpenAPI document: " + err.Error()) // a programming error: it is made of our own types
	}
	s.static("/openapi.json", "application/openapi+json", spec)
	css, err := docFiles.ReadFile("docs/docs.css")
	if err != nil {
		panic(err)
	}
	s.static("/docs/docs.css", "text/css; charset=utf-8", css)
	s.page("/docs", "docs.html.tmpl", s.reference())
	list := problemPages()
	s.page("/problems", "problems.html.tmpl", list)
	for _, p := range list {
		s.page("/problems/"+p.Code, "problem.html.tmpl", p)
	}
}

func (s *server) page(path, name string, data any) {
	var b bytes.Buffer
	if err := docTemplates.ExecuteTemplate(&b, name, data); err != nil {
		panic(path + ": " + err.Error()) // a programming error: the page depends on nothing outside
	}
	s.static(path, "text/html; charset=utf-8", b.Bytes())
}

// static serves a public document. It is the one way around route, and takes
// nothing from the request.
func (s *server) static(path, contentType string, body []byte) {
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Cache-Control", "no-cache")
		if strings.HasPrefix(contentType, "text/html") {
			h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		}
		_, _ = w.Write(body) // the caller has gone: nobody is left to tell
	})
}

// completeDocument adds what the types alone do not say.
func (s *server) completeDocument() {
	doc := s.api.OpenAPI()
	schemas := doc.Components.Schemas
	var specs []*huma.Schema
	for name, t := range map[string]reflect.Type{
		"VMSpec": reflect.TypeFor[job.VMSpec](), "NetworkJobSpec": reflect.TypeFor[job.NetworkJobSpec](),
		"ClusterSpec": reflect.TypeFor[job.ClusterSpec](), "ComponentJobSpec": reflect.TypeFor[job.ComponentJobSpec](),
		"DatastoreSpec": reflect.TypeFor[job.DatastoreSpec](),
	} {
		specs = append(specs, schemas.Schema(t, true, name))
		if s := schemas.Map()[name]; name != "ComponentJobSpec" {
			s.Required = nil // everything has a default
			s.PrecomputeMessages()
		}
	}
	slices.SortFunc(specs, func(a, b *huma.Schema) int { return strings.Compare(a.Ref, b.Ref) })
	for _, name := range []string{"ConfigRequest", "Config"} {
		if c := schemas.Map()[name]; c != nil && c.Properties["spec"] != nil {
			c.Properties["spec"] = &huma.Schema{AnyOf: specs, Description: "What is asked for, by resource type: ClusterSpec for cluster, ComponentJobSpec for component, DatastoreSpec for datastore and cache, NetworkJobSpec for network, VMSpec for vm"}
		}
	}
	for _, item := range doc.Paths {
		for _, op := range operationsOf(item) {
			// Huma adds a default answer of its own error type where no error is
			// listed; every error of ours is a Problem.
			for status, r := range op.Responses {
				if status == "default" || status[0] == '4' || status[0] == '5' {
					r.Content = map[string]*huma.MediaType{"application/problem+json": {Schema: s.schemaOf(Problem{})}}
				}
			}
			// The second success of an operation has the body of the first.
			for first, second := range alsoAnswers[op.OperationID] {
				r := *op.Responses[first]
				r.Description = second.text
				op.Responses[second.status] = &r
			}
		}
	}
}

// operationsOf are the operations of a path, in the order in which they are shown.
func operationsOf(item *huma.PathItem) []*huma.Operation {
	all := []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete}
	return slices.DeleteFunc(all, func(op *huma.Operation) bool { return op == nil })
}

// alsoAnswers are the operations that succeed in two ways, by the status of the
// one that they declare.
var alsoAnswers = map[string]map[string]struct{ status, text string }{
	"create-job": {"201": {"200", "The job that the idempotency key stands for"}},
	"delete-job": {"202": {"200", "Cancelled at once: nothing had been made"}},

	"create-database":               {"202": {"200", "The database that has the name already"}},
	"create-connection":             {"202": {"200", "The connection that the service has already"}},
	"create-connection-of-database": {"202": {"200", "The connection that the service has already"}},

	"install-component": {"201": {"200", "The job that the idempotency key stands for"}},
	"register-space":    {"201": {"200", "The space that the cluster has already"}},
}

// A docPage is the reference as the template wants it.
type docPage struct {
	Title, Version, Description string
	Groups                      []docGroup
	Schemas                     []docSchema
}

type docGroup struct {
	Name string
	Ops  []docOp
}

type docOp struct {
	ID, Method, Path, Summary, Description, Policy, Body string
	Params                                               []docField
	Answers                                              []docAnswer
}

type docField struct {
	Name, Where, Type, Ref, Doc string
	Required                    bool
}

type docAnswer struct{ Status, Text, Type, Ref string }

type docSchema struct {
	Name, Doc string
	Fields    []docField
}

func (s *server) reference() docPage {
	doc := s.api.OpenAPI()
	p := docPage{Title: doc.Info.Title, Version: doc.Info.Version, Description: doc.Info.Description}
	groups := map[string]*docGroup{}
	var order []string
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		item := doc.Paths[path]
		for _, op := range operationsOf(item) {
			tag := "Other"
			if len(op.Tags) > 0 {
				tag = op.Tags[0]
			}
			if groups[tag] == nil {
				groups[tag] = &docGroup{Name: tag}
				order = append(order, tag)
			}
			groups[tag].Ops = append(groups[tag].Ops, s.docOp(path, op))
		}
	}
	slices.SortStableFunc(order, func(a, b string) int {
		rank := func(s string) int {
			return max(slices.Index([]string{tagJobs, tagDatabases, tagComponents, tagSpaces, tagClusters, "Audit", "Operation"}, s), 0)
		}
		return rank(a) - rank(b)
	})
	for _, tag := range order {
		p.Groups = append(p.Groups, *groups[tag])
	}
	schemas := doc.Components.Schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		p.Schemas = append(p.Schemas, docSchemaOf(name, schemas[name]))
	}
	return p
}

func (s *server) docOp(path string, op *huma.Operation) docOp {
	d := docOp{ID: op.OperationID, Method: op.Method, Path: path, Summary: op.Summary, Description: op.Description, Policy: policyText(op)}
	for _, p := range op.Parameters {
		typ, ref := typeOf(p.Schema)
		d.Params = append(d.Params, docField{Name: p.Name, Where: p.In, Type: typ, Ref: ref, Doc: p.Description, Required: p.Required})
	}
	if op.RequestBody != nil && op.RequestBody.Content["application/json"] != nil {
		_, d.Body = typeOf(op.RequestBody.Content["application/json"].Schema)
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		r := op.Responses[status]
		a := docAnswer{Status: status, Text: r.Description}
		for _, ct := range slices.Sorted(maps.Keys(r.Content)) {
			a.Type, a.Ref = typeOf(r.Content[ct].Schema)
		}
		d.Answers = append(d.Answers, a)
	}
	return d
}

func policyText(op *huma.Operation) string {
	return strings.Trim(fmt.Sprint(op.Extensions[policyKey]), "[]")
}

func docSchemaOf(name string, schema *huma.Schema) docSchema {
	d := docSchema{Name: name, Doc: schema.Description}
	for _, field := range slices.Sorted(maps.Keys(schema.Properties)) {
		f := schema.Properties[field]
		typ, ref := typeOf(f)
		d.Fields = append(d.Fields, docField{Name: field, Type: typ, Ref: ref, Doc: f.Description, Required: slices.Contains(schema.Required, field)})
	}
	return d
}

// typeOf is a schema's type in words, and the schema that it refers to.
func typeOf(s *huma.Schema) (text, ref string) {
	switch {
	case s == nil:
		return "", ""
	case s.Ref != "":
		name := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		return name, name
	case s.Type == huma.TypeArray:
		text, ref = typeOf(s.Items)
		return "list of " + text, ref
	case s.Type == huma.TypeObject:
		if inner, ok := s.AdditionalProperties.(*huma.Schema); ok {
			text, ref = typeOf(inner)
			return "map of " + text, ref
		}
		return "object", ""
	case len(s.Enum) > 0:
		words := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			words[i] = fmt.Sprint(e)
		}
		return "one of " + strings.Join(words, ", "), ""
	case s.Format != "":
		return s.Type + " (" + s.Format + ")", ""
	case s.Type == "":
		return "any", ""
	}
	return s.Type, ""
}

func slug(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, s)
}

// A problemPage explains one kind of problem.
type problemPage struct {
	Code, Title, Help string
	Status            int
}

func problemPages() []problemPage {
	var out []problemPage
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		out = append(out, problemPage{Code: string(k), Title: kinds[k].title, Help: kinds[k].help, Status: kinds[k].status})
	}
	return out
}
