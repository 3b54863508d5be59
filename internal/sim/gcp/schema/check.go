package schema

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// A Fault says what is wrong with a value.
type Fault int

// What can be wrong.
const (
	Unknown  Fault = iota // no such field
	BadType               // of another type
	BadEnum               // none of the allowed values
	Missing               // required, not there
	Mismatch              // does not match the pattern
)

// A Violation is one thing that is wrong with a document.
type Violation struct {
	Fault Fault
	Field string // path of the field, or of the object that holds an unknown one
	Name  string // of an unknown field
	Value any
	Type  *Type
}

func (v Violation) String() string {
	what := map[Fault]string{Unknown: "unknown field " + v.Name, BadType: "wrong type", BadEnum: "not an allowed value", Missing: "missing",
		Mismatch: "does not match the pattern"}[v.Fault]
	return fmt.Sprintf("%s: %s (%v)", v.Field, what, v.Value)
}

// Resolve follows a reference.
func (a *API) Resolve(t *Type) *Type {
	if t.Ref != "" {
		return a.Schemas[t.Ref]
	}
	return t
}

// CheckRequest checks a body against the method's request schema, and answers it as the service understands it: without
// output-only fields and, unless it is a patch, without nulls; 64-bit numbers as strings.
func (m *Method) CheckRequest(body map[string]any) (map[string]any, []Violation) {
	if m.Request == "" {
		return body, nil
	}
	c := checker{api: m.API, method: m, request: true}
	out := c.value(m.API.Schemas[m.Request], body, "resource")
	doc, _ := out.(map[string]any)
	return doc, c.bad
}

// CheckAnswer checks an answer of the method.
func (m *Method) CheckAnswer(body any) []Violation {
	if m.Response == "" {
		return nil
	}
	c := checker{api: m.API, method: m}
	c.value(m.API.Schemas[m.Response], body, m.Response)
	return c.bad
}

// CheckDoc checks a document against a schema by name, as an answer.
func (a *API) CheckDoc(name string, doc any) []Violation {
	c := checker{api: a}
	c.value(a.Schemas[name], doc, name)
	return c.bad
}

type checker struct {
	api     *API
	method  *Method
	request bool
	bad     []Violation
}

func (c *checker) report(f Fault, field, name string, v any, t *Type) {
	c.bad = append(c.bad, Violation{f, field, name, v, t})
}

// value checks one value and answers it normalised.
func (c *checker) value(t *Type, v any, path string) any {
	t = c.api.Resolve(t)
	if t == nil {
		return v
	}
	switch t.Type {
	case "object":
		m, ok := v.(map[string]any)
		if !ok {
			c.report(BadType, path, "", v, t)
			return nil
		}
		return c.object(t, m, path)
	case "array":
		list, ok := v.([]any)
		if !ok {
			c.report(BadType, path, "", v, t)
			return nil
		}
		out := make([]any, 0, len(list))
		for i, item := range list {
			out = append(out, c.value(t.Items, item, fmt.Sprintf("%s[%d]", path, i)))
		}
		return out
	case "any", "":
		return v
	}
	return c.scalar(t, v, path)
}

func (c *checker) object(t *Type, m map[string]any, path string) map[string]any {
	out := make(map[string]any, len(m))
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		field, known := t.Fields[k]
		switch {
		case !known && t.Values != nil:
			out[k] = c.value(t.Values, m[k], path+"."+k)
		case !known:
			// A schema without fields and values is free-form, but for the empty message.
			if len(t.Fields) == 0 && t.Name != "Empty" && t.Name != "" {
				out[k] = m[k]
				continue
			}
			c.report(Unknown, path, k, m[k], t)
		case m[k] == nil && c.request && !field.ReadOnly && c.method.HTTP == "PATCH":
			out[k] = nil // a patch removes the field
		case m[k] == nil && c.request, field.ReadOnly && c.request:
		default:
			out[k] = c.value(field, m[k], path+"."+k)
		}
	}
	if c.request && c.method.HTTP != "PATCH" {
		c.required(t, out, path)
	}
	return out
}

// optional are fields that the documents call required although the service has a default ("Method: routes.insert") or they may
// stand elsewhere in the request ("Method: networks.addPeering").
var optional = []string{"Route.priority", "NetworksAddPeeringRequest.name"}

func (c *checker) required(t *Type, m map[string]any, path string) {
	names := make([]string, 0, len(t.Fields))
	for n := range t.Fields {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		f := t.Fields[n]
		if !slices.Contains(f.Required, c.method.ID) || slices.Contains(optional, t.Name+"."+n) {
			continue
		}
		if v, ok := m[n]; !ok || v == "" {
			c.report(Missing, path+"."+n, "", nil, f)
		}
	}
}

func (c *checker) scalar(t *Type, v any, path string) any {
	switch t.Type {
	case "boolean":
		if s, ok := v.(string); ok && c.request && (s == "true" || s == "false") {
			return s == "true"
		}
		if _, ok := v.(bool); !ok {
			c.report(BadType, path, "", v, t)
		}
	case "integer", "number":
		return c.number(t, v, path)
	case "string":
		return c.text(t, v, path)
	}
	return v
}

func (c *checker) number(t *Type, v any, path string) any {
	if s, ok := v.(string); ok && c.request {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			c.report(BadType, path, "", v, t)
			return v
		}
		v = f
	}
	f, ok := v.(float64)
	if !ok || (t.Type == "integer" && (f != math.Trunc(f) || (t.Format == "uint32" && f < 0) || math.Abs(f) > math.MaxUint32)) {
		c.report(BadType, path, "", v, t)
	}
	return v
}

func (c *checker) text(t *Type, v any, path string) any {
	if f, ok := v.(float64); ok && c.request && (t.Format == "int64" || t.Format == "uint64") && f == math.Trunc(f) {
		v = strconv.FormatFloat(f, 'f', 0, 64)
	}
	if f, ok := v.(float64); ok && c.request && t.Numbers[int32(f)] != "" {
		v = t.Numbers[int32(f)]
	}
	s, ok := v.(string)
	if !ok {
		c.report(BadType, path, "", v, t)
		return v
	}
	switch {
	case s == "" && c.request: // an empty text is a text that was not given
	case (t.Format == "int64" || t.Format == "uint64") && !integral(s):
		c.report(BadType, path, "", v, t)
	case len(t.Enum) > 0 && !slices.Contains(t.Enum, s):
		c.report(BadEnum, path, "", v, t)
	case c.request && !Matches(t.Pattern, s):
		c.report(Mismatch, path, "", v, t)
	}
	return s
}

func integral(s string) bool {
	if _, err := strconv.ParseInt(s, 10, 64); err == nil {
		return true
	}
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

// CheckParams checks the parameters of a request: those in its path and its query.
func (m *Method) CheckParams(path map[string]string, query map[string][]string) []Violation {
	var bad []Violation
	for _, n := range sortedKeys(path) {
		if p := m.Params[n]; !Matches(p.Pattern, path[n]) {
			bad = append(bad, Violation{Mismatch, n, "", path[n], &Type{Pattern: p.Pattern}})
		}
	}
	for _, n := range sortedKeys(query) {
		p, ok := m.Params[n]
		if !ok || p.Path {
			if p, ok = m.API.Query[n]; !ok && !strings.HasPrefix(n, "$") {
				bad = append(bad, Violation{Unknown, "", n, query[n][0], nil})
				continue
			}
		}
		for _, v := range query[n] {
			if f, ok := badParam(p, v); ok {
				bad = append(bad, Violation{f, n, "", v, &Type{Type: p.Type, Format: p.Format, Enum: p.Enum, Pattern: p.Pattern}})
			}
		}
	}
	for _, n := range sortedKeys(m.Params) {
		if p := m.Params[n]; p.Required && !p.Path && len(query[n]) == 0 {
			bad = append(bad, Violation{Missing, n, "", nil, nil})
		}
	}
	return bad
}

func badParam(p Param, v string) (Fault, bool) {
	switch p.Type {
	case "integer":
		if _, err := strconv.ParseInt(v, 10, 64); err != nil {
			return BadType, true
		}
	case "boolean":
		if _, err := strconv.ParseBool(v); err != nil {
			return BadType, true
		}
	}
	if len(p.Enum) > 0 && !slices.Contains(p.Enum, v) {
		return BadEnum, true
	}
	return 0, false
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
