package aws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EC2's query protocol names things its own way: answers use lower camel case with …Set wrappers and <item>, requests use
// the parameter names of the API reference. So EC2 has structs of its own, which are state and answer at once: a field
// with an `ec2` tag is part of the answer, a field without is the simulation's own.

// tagless is implemented by the kinds whose answers leave the tag set out when there are no tags; the others answer an
// empty element.
type tagless interface{ taglessWhenEmpty() }

func (*Subnet) taglessWhenEmpty()        {}
func (*SecurityGroup) taglessWhenEmpty() {}
func (*Address) taglessWhenEmpty()       {}
func (*Instance) taglessWhenEmpty()      {}
func (*Volume) taglessWhenEmpty()        {}

// encodeEC2 renders the tagged fields of a struct.
func encodeEC2(out any) ([]byte, error) {
	var b bytes.Buffer
	v := reflect.ValueOf(out)
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return nil, nil
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("want a struct, not %s", v.Type())
	}
	encodeEC2Struct(&b, v)
	return b.Bytes(), nil
}

func encodeEC2Struct(b *bytes.Buffer, v reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if m, ok := asMeta(v.Field(i)); ok && len(m.Tags) == 0 && reflect.PointerTo(t).Implements(reflect.TypeFor[tagless]()) {
				continue
			}
			encodeEC2Struct(b, v.Field(i))
			continue
		}
		tag := f.Tag.Get("ec2")
		if tag == "" {
			continue
		}
		name, opt, _ := strings.Cut(tag, ",")
		if opt == "omitempty" && (v.Field(i).IsZero() || (v.Field(i).Kind() == reflect.Slice && v.Field(i).Len() == 0)) {
			continue
		}
		encodeEC2Value(b, name, v.Field(i))
	}
}

func encodeEC2Value(b *bytes.Buffer, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			encodeEC2Value(b, name, v.Elem())
		}
	case reflect.Slice:
		// "groupSet>groupId": a few lists name their members otherwise than item.
		name, member, named := strings.Cut(name, ">")
		if !named {
			member = "item"
		}
		if v.Len() == 0 {
			b.WriteString("<" + name + "/>")
			return
		}
		b.WriteString("<" + name + ">")
		for i := range v.Len() {
			encodeEC2Value(b, member, v.Index(i))
		}
		b.WriteString("</" + name + ">")
	case reflect.Struct:
		if t, ok := reflect.TypeAssert[time.Time](v); ok {
			if !t.IsZero() {
				b.WriteString("<" + name + ">" + stamp(t) + "</" + name + ">")
			}
			return
		}
		b.WriteString("<" + name + ">")
		encodeEC2Struct(b, v)
		b.WriteString("</" + name + ">")
	default:
		text := xmlText(fmt.Sprint(v.Interface()))
		if text == "" {
			b.WriteString("<" + name + "/>")
			return
		}
		b.WriteString("<" + name + ">" + text + "</" + name + ">")
	}
}

func xmlText(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer does not fail
	return b.String()
}

// params is a parameter of a query request with what lies below it.
type params struct {
	node *formNode // nil: not in the request
	name string
}

func (p params) at(name string) params {
	full := name
	if p.name != "" {
		full = p.name + "." + name
	}
	if p.node == nil {
		return params{nil, full}
	}
	return params{p.node.kids[name], full}
}

func (p params) any() bool { return p.node != nil }

// decodeEC2 fills the struct that in points at. A field's name is its `q` tag, else its Go name; after a bar stands the
// name that the SDKs have for it, where that is quite another one.
func decodeEC2(form url.Values, in any) error {
	return decodeEC2Struct(params{node: parseFormTree(form)}, reflect.ValueOf(in).Elem())
}

func decodeEC2Struct(p params, v reflect.Value) error {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := decodeEC2Struct(p, v.Field(i)); err != nil {
				return err
			}
			continue
		}
		name := f.Tag.Get("q")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		name, other, _ := strings.Cut(name, "|")
		sub := p.at(name)
		if !sub.any() && f.Type.Kind() == reflect.Slice {
			sub = p.at(name + "s") // as the SDKs name it; the control API may use those names
		}
		if !sub.any() && other != "" {
			sub = p.at(other)
		}
		if !sub.any() {
			continue
		}
		if err := decodeEC2Value(sub, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func decodeEC2Value(p params, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		n := reflect.New(v.Type().Elem())
		if err := decodeEC2Value(p, n.Elem()); err != nil {
			return err
		}
		v.Set(n)
		return nil
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			return decodeEC2Struct(p, v)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return decodeEC2List(p, v)
		}
	}
	if !p.node.set {
		return nil
	}
	return decodeEC2Scalar(p, v)
}

func decodeEC2List(p params, v reflect.Value) error {
	for i, item := range p.node.indexed() {
		if item == nil { // an index with leading zeroes
			continue
		}
		n := reflect.New(v.Type().Elem()).Elem()
		if err := decodeEC2Value(params{item, fmt.Sprintf("%s.%d", p.name, i+1)}, n); err != nil {
			return err
		}
		v.Set(reflect.Append(v, n))
	}
	return nil
}

func decodeEC2Scalar(p params, v reflect.Value) error {
	s := p.node.value
	bad := refuse("InvalidParameterValue", "Value (%s) for parameter %s is invalid.", s, p.name)
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		b, err := strconv.ParseBool(strings.ToLower(s))
		if err != nil {
			return bad
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return bad
		}
		v.SetInt(n)
	case reflect.Slice:
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return bad
		}
		v.SetBytes(data)
	case reflect.Struct:
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return bad
		}
		v.Set(reflect.ValueOf(t))
	default:
		return fmt.Errorf("parameter %s: cannot decode into %s", p.name, v.Type())
	}
	return nil
}

// typed makes an operation of a function from an input struct to an answer.
func typed[In any](run func(r *request, in In) (any, error)) operation {
	return func(r *request) (any, error) {
		var in In
		if err := decodeEC2(r.Form, &in); err != nil {
			return nil, err
		}
		// The API ignores what it does not know; a person at the control API is told.
		for name := range r.Input {
			if !slices.Contains(parameters(reflect.TypeFor[In]()), name) {
				return nil, fmt.Errorf("params: %s has no parameter %q, want one of %s", r.Operation, name, strings.Join(parameters(reflect.TypeFor[In]()), ", "))
			}
		}
		return run(r, in)
	}
}

// parameters are the names that an input struct knows.
func parameters(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			out = append(out, parameters(f.Type)...)
			continue
		}
		if !f.IsExported() {
			continue
		}
		name := f.Tag.Get("q")
		if name == "" {
			name = f.Name
		}
		name, other, _ := strings.Cut(name, "|")
		out = append(out, name)
		if f.Type.Kind() == reflect.Slice {
			out = append(out, name+"s")
		}
		if other != "" {
			out = append(out, other)
		}
	}
	return out
}

// missing is the refusal of a request without a parameter it needs.
func missing(name string) *Error {
	return refuse("MissingParameter", "The request must contain the parameter %s", name)
}

// returned is the answer of operations that only say that it is done.
type returned struct {
	Return bool `ec2:"return"`
}

// asMeta reads an embedded head, which reflection does not let be read as a whole.
func asMeta(v reflect.Value) (m meta, ok bool) {
	if v.Type() != reflect.TypeFor[meta]() {
		return m, false
	}
	for i := range v.FieldByName("Tags").Len() {
		m.Tags = append(m.Tags, v.FieldByName("Tags").Index(i).Interface().(Tag))
	}
	return m, true
}

// documentEC2 renders the tagged fields of a struct as JSON, in their order and with the names of the wire: what the
// control API answers.
func documentEC2(v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return []byte("null"), nil
		}
		return documentEC2(v.Elem())
	case reflect.Slice:
		parts := make([][]byte, v.Len())
		for i := range parts {
			b, err := documentEC2(v.Index(i))
			if err != nil {
				return nil, err
			}
			parts[i] = b
		}
		return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]")), nil
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return json.Marshal(v.Interface())
		}
		parts, err := membersEC2(v)
		if err != nil {
			return nil, err
		}
		return slices.Concat([]byte("{"), bytes.Join(parts, []byte(",")), []byte("}")), nil
	}
	return json.Marshal(v.Interface())
}

func membersEC2(v reflect.Value) (parts [][]byte, err error) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, opt, _ := strings.Cut(f.Tag.Get("ec2"), ",")
		var more [][]byte
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			more, err = membersEC2(v.Field(i))
		case name != "" && (opt != "omitempty" || !v.Field(i).IsZero()):
			var b []byte
			b, err = documentEC2(v.Field(i))
			more = [][]byte{fmt.Appendf(nil, "%q:%s", name, b)}
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, more...)
	}
	return parts, nil
}
