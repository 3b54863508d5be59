package aws

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
)

// This file is the REST-JSON protocol for SDK structs, seen from the server (EKS): the path and the query carry some of an
// input's members, the body the others; member names are the SDK's field names with a small first letter.

// restRoutes are the operations of a REST-JSON service: method and path template, such as "GET /clusters/{name}".
type restRoutes map[string]string

// match names the operation of a request and the members that its path carries. Labels are percent-encoded: an ARN with
// slashes is one of them.
func (routes restRoutes) match(r *http.Request) (op string, labels map[string]string, ok bool) {
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for template, name := range routes {
		method, path, _ := strings.Cut(template, " /")
		if method != r.Method {
			continue
		}
		if labels, ok := matchPath(strings.Split(path, "/"), parts); ok {
			return name, labels, true
		}
	}
	return "", nil, false
}

func matchPath(template, parts []string) (map[string]string, bool) {
	if len(template) != len(parts) {
		return nil, false
	}
	labels := map[string]string{}
	for i, t := range template {
		label, isLabel := strings.CutPrefix(t, "{")
		if !isLabel {
			if t != parts[i] {
				return nil, false
			}
			continue
		}
		text, err := url.PathUnescape(parts[i])
		if err != nil || text == "" {
			return nil, false
		}
		labels[strings.TrimSuffix(label, "}")] = text
	}
	return labels, true
}

// route is the routing function of an api.
func (routes restRoutes) route(r *http.Request) (string, bool) {
	op, _, ok := routes.match(r)
	return op, ok
}

// overRESTJSON makes operations of the REST-JSON protocol from typed ones.
func overRESTJSON(routes restRoutes, ops map[string]typedOp) map[string]operation {
	out := make(map[string]operation, len(ops))
	for name, o := range ops {
		out[name] = func(r *request) (any, error) {
			in := o.input()
			if err := decodeJSON(r.Body, in); err != nil {
				return nil, refuse("SerializationException", "%s", err)
			}
			if r.HTTP != nil {
				_, labels, _ := routes.match(r.HTTP)
				if err := fillFromURL(in, labels, r.HTTP.URL.Query()); err != nil {
					return nil, refuse("SerializationException", "%s", err)
				}
			}
			return o.run(r.ctx(), in)
		}
	}
	return out
}

// fillFromURL sets the members of an SDK input struct that come in a path or a query.
func fillFromURL(in any, labels map[string]string, query url.Values) error {
	v := reflect.ValueOf(in).Elem()
	field := func(name string) reflect.Value {
		if name == "" {
			return reflect.Value{}
		}
		return v.FieldByName(strings.ToUpper(name[:1]) + name[1:])
	}
	for name, text := range labels {
		if f := field(name); f.IsValid() {
			if err := setText(f, []string{text}, name); err != nil {
				return err
			}
		}
	}
	for name, texts := range query {
		if f := field(name); f.IsValid() {
			if err := setText(f, texts, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// setText sets a scalar, or a list of scalars, from its texts.
func setText(f reflect.Value, texts []string, path string) error {
	switch f.Kind() {
	case reflect.Pointer:
		p := reflect.New(f.Type().Elem())
		if err := setScalar(p.Elem(), texts[0], path); err != nil {
			return err
		}
		f.Set(p)
		return nil
	case reflect.Slice:
		list := reflect.MakeSlice(f.Type(), len(texts), len(texts))
		for i, t := range texts {
			if err := setScalar(list.Index(i), t, fmt.Sprintf("%s.%d", path, i+1)); err != nil {
				return err
			}
		}
		f.Set(list)
		return nil
	}
	return setScalar(f, texts[0], path)
}
