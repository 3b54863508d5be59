package azure

import (
	"encoding/json"
	"strings"
)

// A doc is a JSON object, as request bodies and resources are kept. Paths into it are dotted: "addressSpace.addressPrefixes".
type doc map[string]any

// get is the value at a path, or nil.
func (d doc) get(path string) any {
	var at any = map[string]any(d)
	for p := range strings.SplitSeq(path, ".") {
		m, ok := asDoc(at)
		if !ok {
			return nil
		}
		at = m[p]
	}
	return at
}

func asDoc(v any) (doc, bool) {
	switch m := v.(type) {
	case doc:
		return m, true
	case map[string]any:
		return m, true
	}
	return nil, false
}

// str, num, flag, list, sub answer the zero value where the path leads nowhere or to something else.
func (d doc) str(path string) string {
	s, _ := d.get(path).(string)
	return s
}

func (d doc) num(path string) float64 {
	switch n := d.get(path).(type) {
	case float64:
		return n
	case int:
		return float64(n)
	}
	return 0
}

func (d doc) flag(path string) bool {
	b, _ := d.get(path).(bool)
	return b
}

func (d doc) list(path string) []any {
	switch l := d.get(path).(type) {
	case []any:
		return l
	case []string:
		out := make([]any, len(l))
		for i, s := range l {
			out[i] = s
		}
		return out
	}
	return nil
}

func (d doc) sub(path string) doc {
	m, _ := asDoc(d.get(path))
	return m
}

// docs are the objects in the list at a path.
func (d doc) docs(path string) []doc {
	var out []doc
	for _, v := range d.list(path) {
		if m, ok := asDoc(v); ok {
			out = append(out, m)
		}
	}
	return out
}

// strs are the texts in the list at a path.
func (d doc) strs(path string) []string {
	var out []string
	for _, v := range d.list(path) {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// ref is the ID in the reference at a path: {"id": …}.
func (d doc) ref(path string) string { return d.str(path + ".id") }

func (d doc) has(path string) bool { return d.get(path) != nil }

// def sets a key that is not there.
func (d doc) def(k string, v any) {
	if d[k] == nil {
		d[k] = v
	}
}

// clone is a deep copy.
func (d doc) clone() doc {
	out := doc{}
	if d == nil {
		return out
	}
	b, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(err) // a doc came from JSON or from plain values
	}
	return out
}
