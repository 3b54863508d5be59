package aws

import (
	"encoding/xml"
	"fmt"
	"net/url"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
)

// The services whose wire names equal their SDK's member names (IAM, STS, Auto Scaling and Elastic Load Balancing v2)
// are written against the SDK's own input and output structs. This file is the AWS query protocol for such structs,
// seen from the server: form to input, output to XML. A nil field is absent from the answer; an empty, non-nil list is
// an empty element, as the real services send it ("AWS query protocol", Smithy documentation).

// formNode is one level of the dotted names of a query form: Tags.member.1.Key and the like.
type formNode struct {
	value string
	set   bool
	kids  map[string]*formNode
}

func (n *formNode) child(name string) *formNode {
	if n.kids == nil {
		n.kids = map[string]*formNode{}
	}
	k := n.kids[name]
	if k == nil {
		k = &formNode{}
		n.kids[name] = k
	}
	return k
}

// indexed returns the children with numeric names, in numeric order.
func (n *formNode) indexed() []*formNode {
	var nums []int
	for k := range n.kids {
		if i, err := strconv.Atoi(k); err == nil {
			nums = append(nums, i)
		}
	}
	sort.Ints(nums)
	out := make([]*formNode, 0, len(nums))
	for _, i := range nums {
		out = append(out, n.kids[strconv.Itoa(i)])
	}
	return out
}

func parseFormTree(form url.Values) *formNode {
	root := &formNode{}
	for key, values := range form {
		n := root
		for part := range strings.SplitSeq(key, ".") {
			n = n.child(part)
		}
		if len(values) > 0 {
			n.value, n.set = values[0], true
		}
	}
	return root
}

// wireTypeError says that a parameter cannot be read as what the operation expects.
type wireTypeError struct {
	path string
	want string
	got  string
}

func (e *wireTypeError) Error() string {
	return fmt.Sprintf("%s: %q is not a valid %s", e.path, e.got, e.want)
}

// decodeQuery fills the SDK input struct that in points at from the form of a query request. Parameters that the
// operation does not know are ignored, as the real services do.
func decodeQuery(form url.Values, in any) error {
	return decodeFormStruct(parseFormTree(form), reflect.ValueOf(in).Elem(), "")
}

func decodeFormStruct(n *formNode, v reflect.Value, path string) error {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "ResultMetadata" {
			continue
		}
		kid := n.kids[f.Name]
		if kid == nil {
			continue
		}
		if err := decodeFormValue(kid, v.Field(i), joinPath(path, f.Name)); err != nil {
			return err
		}
	}
	return nil
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func decodeFormValue(n *formNode, v reflect.Value, path string) error {
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if err := decodeFormValue(n, p.Elem(), path); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case reflect.Slice:
		return decodeFormList(n, v, path)
	case reflect.Map:
		return decodeFormMap(n, v, path)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			at, err := time.Parse(time.RFC3339Nano, n.value)
			if err != nil {
				return &wireTypeError{path, "timestamp", n.value}
			}
			v.Set(reflect.ValueOf(at))
			return nil
		}
		return decodeFormStruct(n, v, path)
	default:
		return setScalar(v, n.value, path)
	}
}

func decodeFormList(n *formNode, v reflect.Value, path string) error {
	items := n.indexed()
	if len(items) == 0 {
		for _, k := range n.kids { // member, or what the service calls an item: Tags.Tag.1, SubnetIds.SubnetIdentifier.1
			items = k.indexed()
		}
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		if err := decodeFormValue(item, out.Index(i), fmt.Sprintf("%s.member.%d", path, i+1)); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

func decodeFormMap(n *formNode, v reflect.Value, path string) error {
	out := reflect.MakeMap(v.Type())
	entries := n.kids["entry"]
	if entries == nil {
		entries = n
	}
	for _, item := range entries.indexed() {
		val := reflect.New(v.Type().Elem()).Elem()
		if kid := item.kids["value"]; kid != nil {
			if err := decodeFormValue(kid, val, path+".value"); err != nil {
				return err
			}
		}
		key := ""
		if kid := item.kids["key"]; kid != nil {
			key = kid.value
		}
		out.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), val)
	}
	v.Set(out)
	return nil
}

// setScalar parses the text of one scalar parameter.
func setScalar(v reflect.Value, text, path string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return &wireTypeError{path, "Boolean", text}
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return &wireTypeError{path, "Integer", text}
		}
		v.SetInt(i)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return &wireTypeError{path, "Double", text}
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("%s: unsupported kind %s", path, v.Kind())
	}
	return nil
}

// xmlNaming says how a list's items are named on the wire. The query services call every item "member"; REST-XML
// services name them after the item.
type xmlNaming struct {
	item func(field string) string
	time string
}

var queryXML = xmlNaming{item: func(string) string { return "member" }, time: "2006-01-02T15:04:05Z"}

// queryXMLMillis is for the services that answer times with milliseconds (Auto Scaling, Elastic Load Balancing).
var queryXMLMillis = xmlNaming{item: queryXML.item, time: "2006-01-02T15:04:05.000Z"}

// encodeXMLFields appends the fields of the SDK struct out to b, each as an element of its own.
func encodeXMLFields(b *strings.Builder, out any, naming xmlNaming) {
	v := reflect.ValueOf(out)
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	encodeXMLStruct(b, v, naming)
}

func encodeXMLStruct(b *strings.Builder, v reflect.Value, naming xmlNaming) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "ResultMetadata" {
			continue
		}
		encodeXMLValue(b, f.Name, v.Field(i), naming)
	}
}

func encodeXMLValue(b *strings.Builder, name string, v reflect.Value, naming xmlNaming) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			encodeXMLValue(b, name, v.Elem(), naming)
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		if v.Len() == 0 {
			b.WriteString("<" + name + "/>")
			return
		}
		b.WriteString("<" + name + ">")
		for i := range v.Len() {
			encodeXMLValue(b, naming.item(name), v.Index(i), naming)
		}
		b.WriteString("</" + name + ">")
	case reflect.Struct:
		if at, ok := reflect.TypeAssert[time.Time](v); ok {
			writeXMLText(b, name, at.UTC().Format(naming.time))
			return
		}
		b.WriteString("<" + name + ">")
		encodeXMLStruct(b, v, naming)
		b.WriteString("</" + name + ">")
	case reflect.String:
		// The SDK's enumerations are no pointers: an empty one stands for an absent member. A plain string was either
		// behind a pointer or is an item of a list, so it is present even when empty.
		if v.Len() > 0 || v.Type() == reflect.TypeFor[string]() {
			writeXMLText(b, name, v.String())
		}
	case reflect.Bool:
		writeXMLText(b, name, strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int32, reflect.Int64:
		writeXMLText(b, name, strconv.FormatInt(v.Int(), 10))
	case reflect.Float32, reflect.Float64:
		writeXMLText(b, name, strconv.FormatFloat(v.Float(), 'f', -1, 64))
	case reflect.Map:
		encodeXMLMap(b, name, v, naming)
	}
}

func encodeXMLMap(b *strings.Builder, name string, v reflect.Value, naming xmlNaming) {
	if v.IsNil() {
		return
	}
	keys := v.MapKeys()
	sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	b.WriteString("<" + name + ">")
	for _, k := range keys {
		b.WriteString("<entry>")
		writeXMLText(b, "key", k.String())
		encodeXMLValue(b, "value", v.MapIndex(k), naming)
		b.WriteString("</entry>")
	}
	b.WriteString("</" + name + ">")
}

func writeXMLText(b *strings.Builder, name, text string) {
	if text == "" {
		b.WriteString("<" + name + "/>")
		return
	}
	b.WriteString("<" + name + ">")
	_ = xml.EscapeText(b, []byte(text)) // a strings.Builder does not fail
	b.WriteString("</" + name + ">")
}
