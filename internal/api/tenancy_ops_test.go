package api

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An operation is one of the OpenAPI document.
type operation struct {
	name, method, path string
	policy             []string
	query              []string
	fields             []string // of its body, at every depth
	body               bool
}

// operationsOf reads the document.
func (w *tenants) operationsOf() []operation {
	w.t.Helper()
	type schema struct {
		Ref        string                     `json:"$ref"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Policy      []string                    `json:"x-policy"`
			Parameters  []struct{ Name, In string } `json:"parameters"`
			RequestBody *struct {
				Content map[string]struct{ Schema json.RawMessage }
			} `json:"requestBody"`
		}
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(w.do("", "GET", "/openapi.json", "").body, &doc); err != nil {
		w.t.Fatal(err)
	}
	var fields func(raw json.RawMessage, seen []string) []string
	fields = func(raw json.RawMessage, seen []string) (out []string) {
		var any map[string]json.RawMessage
		if json.Unmarshal(raw, &any) != nil {
			return nil
		}
		var s schema
		_ = json.Unmarshal(raw, &s) // of what is no schema there is nothing to read
		if name := strings.TrimPrefix(s.Ref, "#/components/schemas/"); s.Ref != "" && !slices.Contains(seen, name) {
			out = append(out, fields(doc.Components.Schemas[name], append(slices.Clone(seen), name))...)
		}
		for name, p := range s.Properties {
			out = append(append(out, name), fields(p, seen)...)
		}
		for _, k := range []string{"items", "additionalProperties"} {
			out = append(out, fields(any[k], seen)...)
		}
		for _, k := range []string{"oneOf", "anyOf", "allOf"} {
			var list []json.RawMessage
			_ = json.Unmarshal(any[k], &list)
			for _, one := range list {
				out = append(out, fields(one, seen)...)
			}
		}
		return out
	}
	var ops []operation
	for path, item := range doc.Paths {
		for method, o := range item {
			op := operation{name: strings.ToUpper(method) + " " + path, method: strings.ToUpper(method), path: path, policy: o.Policy}
			for _, p := range o.Parameters {
				if p.In == "query" {
					op.query = append(op.query, p.Name)
				}
			}
			if o.RequestBody != nil {
				op.body = true
				for _, c := range o.RequestBody.Content {
					op.fields = append(op.fields, fields(c.Schema, nil)...)
				}
			}
			slices.Sort(op.fields)
			op.fields = slices.Compact(op.fields)
			ops = append(ops, op)
		}
	}
	slices.SortFunc(ops, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	if len(ops) < 60 {
		w.t.Fatalf("the document has %d operations", len(ops))
	}
	return ops
}

// fixtures fails for an operation that the walk does not know how to try.
func (op operation) fixtures(t *testing.T) {
	t.Helper()
	for _, q := range op.query {
		if _, ok := queryKinds[q]; !ok {
			t.Errorf("%s: queryKinds does not say what the parameter %s names", op.name, q)
		}
	}
	if op.body && len(bodies[op.name]) == 0 {
		t.Errorf("%s: bodies has none for it", op.name)
	}
	sent := strings.Join(bodies[op.name], " ")
	for _, f := range op.fields {
		if reference.MatchString(f) && !ofClouds[f] && !strings.Contains(sent, `"`+f+`":`) {
			t.Errorf("%s: no body of it has the field %s, which may name something of another organisation", op.name, f)
		}
	}
}

// params are the parts of a path that are filled in, with their kinds.
func (op operation) params(t *testing.T) (names []string, kinds []named) {
	t.Helper()
	parts := strings.Split(strings.Trim(op.path, "/"), "/")
	for i, p := range parts {
		if !strings.HasPrefix(p, "{") {
			continue
		}
		k, ok := pathKinds[parts[i-1]]
		if !ok {
			t.Errorf("%s: pathKinds does not say what %s/%s names", op.name, parts[i-1], p)
		}
		names, kinds = append(names, p), append(kinds, k)
	}
	return names, kinds
}

// withQuery adds what the operation needs, and more.
func withQuery(op operation, path string, more ...string) string {
	q := append([]string{needed[op.name]}, more...)
	q = slices.DeleteFunc(q, func(s string) bool { return s == "" })
	if len(q) == 0 {
		return path
	}
	return path + "?" + strings.Join(q, "&")
}

// pathAttempts are those with something of the first organisation in the path: each
// parameter alone, the others being the second organisation's own, and several.
func (w *tenants) pathAttempts(op operation) (out []attempt) {
	names, kinds := op.params(w.t)
	body := ""
	if op.body && len(bodies[op.name]) > 0 {
		body = w.filled(bodies[op.name][0])
	}
	for mask := 1; mask < 1<<len(names); mask++ {
		choices := [][][2]string{}
		ok := true
		for i, k := range kinds {
			switch {
			case mask&(1<<i) != 0 && (k == "" || len(w.theirs[k]) == 0):
				ok = false
			case mask&(1<<i) != 0:
				var c [][2]string
				for _, v := range w.theirs[k] {
					c = append(c, [2]string{v, w.nobodys(v)})
				}
				choices = append(choices, c)
			default:
				own := w.own[k]
				if own == "" {
					own = "anything"
				}
				choices = append(choices, [][2]string{{own, own}})
			}
		}
		if !ok {
			continue
		}
		for n := range choices {
			// One after another in the place n; the first one in the others.
			if mask&(1<<n) == 0 {
				continue
			}
			for _, pair := range choices[n] {
				a := attempt{method: op.method, inPath: true, theirs: request{op.path, body}, nobody: request{op.path, body}}
				for i, name := range names {
					p := choices[i][0]
					if i == n {
						p = pair
					}
					a.theirs.path = strings.Replace(a.theirs.path, name, url.PathEscape(p[0]), 1)
					a.nobody.path = strings.Replace(a.nobody.path, name, url.PathEscape(p[1]), 1)
					if p[0] != p[1] {
						a.pairs = append(a.pairs, p)
					}
				}
				a.theirs.path, a.nobody.path = withQuery(op, a.theirs.path), withQuery(op, a.nobody.path)
				out = append(out, a)
			}
		}
	}
	return out
}

// ownPath is the operation's path with the second organisation's own things.
func (w *tenants) ownPath(op operation) string {
	names, kinds := op.params(w.t)
	path := op.path
	for i, name := range names {
		own := w.own[kinds[i]]
		if own == "" {
			own = "anything"
		}
		path = strings.Replace(path, name, own, 1)
	}
	return path
}

// filled is a body with the second organisation's own things.
func (w *tenants) filled(body string) string {
	return placeholder.ReplaceAllStringFunc(body, func(p string) string {
		k, nameOnly := strings.CutSuffix(strings.Trim(p, "{}"), ":name")
		if nameOnly {
			return "own-other-" + k
		}
		return w.own[named(k)]
	})
}

var placeholder = regexp.MustCompile(`\{[a-z]+(:name)?\}`)

// bodyAttempts are those with something of the first organisation in the body.
func (w *tenants) bodyAttempts(op operation) (out []attempt) {
	for _, body := range bodies[op.name] {
		for _, p := range placeholder.FindAllString(body, -1) {
			k, nameOnly := strings.CutSuffix(strings.Trim(p, "{}"), ":name")
			if nameOnly {
				continue
			}
			if len(w.theirs[named(k)]) == 0 {
				w.t.Errorf("%s: there is nothing of the first organisation for %s", op.name, p)
			}
			for _, v := range w.theirs[named(k)] {
				out = append(out, w.inBody(op, body, p, v))
			}
		}
	}
	return out
}

// nameAttempts give things of the second organisation the names that those of the
// first one have. Each name is taken once, since the second one has it then.
func (w *tenants) nameAttempts(op operation) (out []attempt) {
	for _, body := range bodies[op.name] {
		for _, p := range placeholder.FindAllString(body, -1) {
			k, nameOnly := strings.CutSuffix(strings.Trim(p, "{}"), ":name")
			if !nameOnly {
				continue
			}
			var names []string
			for _, v := range w.theirs[named(k)] {
				if strings.Contains(v, theirWord) {
					names = append(names, v)
				}
			}
			if w.taken[named(k)] >= len(names) {
				w.t.Errorf("%s: the first organisation has too few names for %s", op.name, p)
				continue
			}
			out = append(out, w.inBody(op, body, p, names[w.taken[named(k)]]))
			w.taken[named(k)]++
		}
	}
	return out
}

// inBody puts a value of the first organisation, and one of nobody, into a body.
func (w *tenants) inBody(op operation, body, place, v string) attempt {
	pair := [2]string{v, w.nobodys(v)}
	path := withQuery(op, w.ownPath(op))
	return attempt{
		method: op.method, pairs: [][2]string{pair},
		theirs: request{path, w.filled(strings.Replace(body, place, v, 1))}, nobody: request{path, w.filled(strings.Replace(body, place, pair[1], 1))},
	}
}

// queryAttempts are those with something of the first organisation in the query.
func (w *tenants) queryAttempts(op operation) (out []attempt) {
	for _, q := range op.query {
		k := queryKinds[q]
		if k == "" || k == "cursor" { // cursors: see cursors
			continue
		}
		for _, v := range w.theirs[k] {
			pair := [2]string{v, w.nobodys(v)}
			prefix := ""
			if op.path == "/effective-permissions" && q == "subject" {
				prefix = "token:"
			}
			at := func(value string) request {
				path := w.ownPath(op)
				if prefix == "" {
					path = withQuery(op, path)
				}
				sep := "?"
				if strings.Contains(path, "?") {
					sep = "&"
				}
				return request{path + sep + q + "=" + url.QueryEscape(prefix+value), ""}
			}
			out = append(out, attempt{method: op.method, pairs: [][2]string{pair}, theirs: at(v), nobody: at(pair[1])})
		}
	}
	return out
}
