package azure

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// A bodyProblem is why a body does not fit a model.
type bodyProblem struct {
	path string
	// member is the name of an unknown member; empty for a wrong type or value.
	member string
	text   string
}

// enums are the allowed values of the SDKs' text types. Every simulation of a process fills them, with the same.
var enums sync.Map // of reflect.Type to []string

// allow registers the values of an enum type, as the SDK's Possible…Values functions list them.
func allow[T ~string](values []T) {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	enums.Store(reflect.TypeFor[T](), all)
}

// checkBody holds a body against a type of an SDK. The SDK's own decoder skips what it does not know, so a member is unknown
// if it is lost when the decoded value is written again.
func checkBody(raw []byte, body doc, model any) (bodyProblem, bool) {
	if err := json.Unmarshal(raw, model); err != nil {
		return typeProblem(err), true
	}
	again, err := json.Marshal(model)
	if err != nil {
		return bodyProblem{text: err.Error()}, true
	}
	var kept any
	if err := json.Unmarshal(again, &kept); err != nil {
		return bodyProblem{text: err.Error()}, true
	}
	if p, bad := lostMember(map[string]any(body), kept, "", raw); bad {
		return p, true
	}
	return badEnum(reflect.ValueOf(model), "")
}

func typeProblem(err error) bodyProblem {
	var te *json.UnmarshalTypeError
	path := ""
	// The SDKs wrap errors as `struct field X: …` a level at a time.
	for part := range strings.SplitSeq(err.Error(), "struct field ") {
		if name, _, ok := strings.Cut(part, ":"); ok && !strings.Contains(name, " ") && name != "" {
			path += "." + strings.ToLower(name[:1]) + name[1:]
		}
	}
	path = strings.TrimPrefix(path, ".")
	text := fmt.Sprintf("Error converting value. Path '%s'.", path)
	if errors.As(err, &te) {
		text = fmt.Sprintf("Error converting value of JSON type %s to type '%s'. Path '%s'.", te.Value, te.Type, path)
	}
	return bodyProblem{path: path, text: text}
}

// answered are members that providers answer, and so take back, though the SDK does not know them.
var answered = []string{"routeServiceVips", "sku.tier"}

// lostMember finds a member of given that is not in kept.
func lostMember(given, kept any, path string, raw []byte) (bodyProblem, bool) {
	switch g := given.(type) {
	case map[string]any:
		k, _ := kept.(map[string]any)
		for _, name := range sortedKeys(g) {
			at := strings.TrimPrefix(path+"."+name, ".")
			if g[name] == nil || slices.Contains(answered, at) || slices.Contains(answered, name) {
				continue
			}
			v, ok := k[name]
			if !ok {
				return bodyProblem{path: at, member: name, text: fmt.Sprintf("Could not find member '%s' on object. Path '%s', line 1, position %d.", name, at,
					bytes.Index(raw, []byte(`"`+name+`"`))+len(name)+3)}, true
			}
			if p, bad := lostMember(g[name], v, at, raw); bad {
				return p, true
			}
		}
	case []any:
		k, _ := kept.([]any)
		for i, e := range g {
			var other any
			if i < len(k) {
				other = k[i]
			}
			if p, bad := lostMember(e, other, fmt.Sprintf("%s[%d]", path, i), raw); bad {
				return p, true
			}
		}
	}
	return bodyProblem{}, false
}

// badEnum finds a text that is none of its type's values. Values compare without case.
func badEnum(v reflect.Value, path string) (bodyProblem, bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return badEnum(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if p, bad := badEnum(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); bad {
				return p, bad
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			if p, bad := badEnum(v.Field(i), strings.TrimPrefix(path+"."+strings.ToLower(f.Name[:1])+f.Name[1:], ".")); bad {
				return p, bad
			}
		}
	case reflect.String:
		values, ok := enums.Load(v.Type())
		allowed, _ := values.([]string)
		given := v.String()
		if ok && !slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, given) }) {
			return bodyProblem{path: path, text: fmt.Sprintf("Error converting value \"%s\" to type '%s'. Path '%s'.", given, v.Type().Name(), path)}, true
		}
	}
	return bodyProblem{}, false
}
