package provision

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// A binder puts parsed values into Go values and notes each that does not fit.
type binder struct{ errs []job.FieldError }

func (b *binder) err() error {
	if len(b.errs) == 0 {
		return nil
	}
	return invalid(b.errs...)
}

func (b *binder) add(path, message, fix string) {
	if len(b.errs) < maxFieldErrors {
		b.errs = append(b.errs, job.FieldError{Field: clip(cmp.Or(path, "body")), Message: message, Fix: fix})
	}
}

var rawType = reflect.TypeFor[json.RawMessage]()

func (b *binder) bind(v any, to reflect.Value, path string) {
	if to.Type() == rawType {
		if _, ok := v.(map[string]any); !ok {
			b.add(path, "is "+kindOf(v), "give an object")
			return
		}
		raw, err := json.Marshal(v)
		if err != nil {
			b.add(path, "cannot be kept", "simplify it")
			return
		}
		to.SetBytes(raw)
		return
	}
	if to.Kind() == reflect.Pointer {
		if v == nil {
			return
		}
		to.Set(reflect.New(to.Type().Elem()))
		b.bind(v, to.Elem(), path)
		return
	}
	if v == nil {
		b.add(path, "is null", "leave it out, or give "+wants(to.Type()))
		return
	}
	switch to.Kind() {
	case reflect.Struct:
		b.object(v, to, path)
	case reflect.Map:
		b.dict(v, to, path)
	case reflect.Slice:
		b.list(v, to, path)
	case reflect.Int, reflect.Int64:
		b.integer(v, to, path)
	case reflect.String:
		if s, ok := v.(string); ok {
			to.SetString(s)
		} else {
			b.mismatch(v, to, path)
		}
	case reflect.Bool:
		if t, ok := v.(bool); ok {
			to.SetBool(t)
		} else {
			b.mismatch(v, to, path)
		}
	default:
		panic(fmt.Sprintf("no request has a field of kind %s", to.Kind()))
	}
}

func (b *binder) mismatch(v any, to reflect.Value, path string) {
	b.add(path, "is "+kindOf(v), "give "+wants(to.Type()))
}

func (b *binder) integer(v any, to reflect.Value, path string) {
	n, ok := v.(json.Number)
	if !ok {
		b.mismatch(v, to, path)
		return
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		b.add(path, "is too large a number", "give a smaller one")
	case err != nil:
		b.add(path, fmt.Sprintf("%.24s is not a whole number", n.String()), "give a whole number, without a fraction or an exponent")
	case to.OverflowInt(i):
		b.add(path, "is too large a number", "give a smaller one")
	default:
		to.SetInt(i)
	}
}

func (b *binder) list(v any, to reflect.Value, path string) {
	s, ok := v.([]any)
	if !ok {
		b.mismatch(v, to, path)
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), len(s), len(s)))
	for i, e := range s {
		b.bind(e, to.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

func (b *binder) dict(v any, to reflect.Value, path string) {
	m, ok := v.(map[string]any)
	if !ok {
		b.mismatch(v, to, path)
		return
	}
	to.Set(reflect.MakeMapWithSize(to.Type(), len(m)))
	for _, k := range sortedKeys(m) {
		e := reflect.New(to.Type().Elem()).Elem()
		b.bind(m[k], e, join(path, k))
		to.SetMapIndex(reflect.ValueOf(k), e)
	}
}

// readOnly are the fields of a job that a reply has and a request cannot set.
var readOnly = []string{
	"id", "orgId", "status", "phase", "run", "currentStep", "waitingFor", "steps", "nextRunAt", "attempts", "cancelling", "infraConfig",
	"outputs", "error", "subjectType", "subjectId", "createdBy", "createdAt", "updatedAt", "version", "specRevision", "verdict", "objects",
}

func (b *binder) object(v any, to reflect.Value, path string) {
	m, ok := v.(map[string]any)
	if !ok {
		b.mismatch(v, to, path)
		return
	}
	fields := map[string]int{}
	var names []string
	for i := range to.NumField() {
		name, _, _ := strings.Cut(to.Type().Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields[name] = i
			names = append(names, name)
		}
	}
	for _, k := range sortedKeys(m) {
		at := join(path, k)
		i, known := fields[k]
		switch {
		case known:
			b.bind(m[k], to.Field(i), at)
		case slices.Contains(readOnly, k) && (path == "" || path == "config"):
			b.add(at, "is set by the server", "leave it out")
		default:
			b.add(at, "is not a field here", suggest(k, names))
		}
	}
}

func suggest(k string, names []string) string {
	best, dist := "", 3
	for _, n := range names {
		if d := distance(strings.ToLower(k), strings.ToLower(n)); d < dist {
			best, dist = n, d
		}
	}
	if best != "" {
		return fmt.Sprintf("use %s, or leave it out", best)
	}
	slices.Sort(names)
	return "leave it out; the fields here are " + strings.Join(names, ", ")
}

// distance is the number of edits that turn one short word into another.
func distance(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return 40
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}

func wants(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	}
	return "a string"
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case json.Number:
		return "a number"
	case bool:
		return "true or false"
	}
	return "a string"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// clip keeps a path that a caller made up from filling the answer.
func clip(path string) string {
	const most = 120
	if len(path) <= most {
		return path
	}
	return strings.ToValidUTF8(path[:most], "") + "…"
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
