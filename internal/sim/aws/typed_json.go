package aws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
)

// This file is the AWS JSON 1.1 protocol for SDK structs, seen from the server (Systems Manager, Service Quotas,
// Certificate Manager): member names are the SDK's field names, times are seconds since the epoch with a fraction.

// decodeJSON fills the SDK input struct that in points at from a request body. Unknown members are ignored, as the
// protocol asks; a member of a wrong type is a *wireTypeError.
func decodeJSON(body []byte, in any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return &wireTypeError{"body", "JSON object", err.Error()}
	}
	return decodeJSONStruct(doc, reflect.ValueOf(in).Elem(), "")
}

func decodeJSONStruct(doc map[string]any, v reflect.Value, path string) error {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "ResultMetadata" {
			continue
		}
		raw, ok := doc[f.Name]
		if !ok {
			// A few members of Systems Manager begin with a small letter.
			raw, ok = doc[strings.ToLower(f.Name[:1])+f.Name[1:]]
		}
		if !ok || raw == nil {
			continue
		}
		if err := decodeJSONValue(raw, v.Field(i), joinPath(path, f.Name)); err != nil {
			return err
		}
	}
	return nil
}

func decodeJSONValue(raw any, v reflect.Value, path string) error {
	wrong := func(want string) error { return &wireTypeError{path, want, fmt.Sprint(raw)} }
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if err := decodeJSONValue(raw, p.Elem(), path); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case reflect.Slice:
		return decodeJSONList(raw, v, path)
	case reflect.Map:
		doc, ok := raw.(map[string]any)
		if !ok {
			return wrong("map")
		}
		out := reflect.MakeMapWithSize(v.Type(), len(doc))
		for key, item := range doc {
			val := reflect.New(v.Type().Elem()).Elem()
			if err := decodeJSONValue(item, val, joinPath(path, key)); err != nil {
				return err
			}
			out.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), val)
		}
		v.Set(out)
		return nil
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			n, ok := raw.(json.Number)
			if !ok {
				return wrong("timestamp")
			}
			f, err := n.Float64()
			if err != nil {
				return wrong("timestamp")
			}
			sec, frac := math.Modf(f)
			v.Set(reflect.ValueOf(time.Unix(int64(sec), int64(frac*1e9)).UTC()))
			return nil
		}
		doc, ok := raw.(map[string]any)
		if !ok {
			return wrong("structure")
		}
		return decodeJSONStruct(doc, v, path)
	}
	return decodeJSONScalar(raw, v, path)
}

func decodeJSONList(raw any, v reflect.Value, path string) error {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		text, ok := raw.(string)
		if !ok {
			return &wireTypeError{path, "blob", fmt.Sprint(raw)}
		}
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return &wireTypeError{path, "blob", text}
		}
		v.SetBytes(data)
		return nil
	}
	items, ok := raw.([]any)
	if !ok {
		return &wireTypeError{path, "list", fmt.Sprint(raw)}
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		if err := decodeJSONValue(item, out.Index(i), fmt.Sprintf("%s.%d", path, i+1)); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

func decodeJSONScalar(raw any, v reflect.Value, path string) error {
	switch x := raw.(type) {
	case string:
		if v.Kind() == reflect.String {
			v.SetString(x)
			return nil
		}
	case bool:
		if v.Kind() == reflect.Bool {
			v.SetBool(x)
			return nil
		}
	case json.Number:
		if v.Kind() != reflect.String && v.Kind() != reflect.Bool {
			return setScalar(v, x.String(), path)
		}
	}
	return &wireTypeError{path, v.Kind().String(), fmt.Sprint(raw)}
}

// encodeJSON renders the SDK output struct out as a response body.
func encodeJSON(out any) ([]byte, error) {
	return marshalJSON(out, func(field string) string { return field })
}

// encodeJSONCamel is encodeJSON for the services whose members begin with a small letter (CloudWatch Logs).
func encodeJSONCamel(out any) ([]byte, error) {
	return marshalJSON(out, func(field string) string { return strings.ToLower(field[:1]) + field[1:] })
}

// jsonNaming is how a member of the SDK is called on the wire.
type jsonNaming func(field string) string

func marshalJSON(out any, naming jsonNaming) ([]byte, error) {
	v := reflect.ValueOf(out)
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return []byte("{}"), nil
		}
		v = v.Elem()
	}
	return json.Marshal(naming.structure(v))
}

func (naming jsonNaming) structure(v reflect.Value) map[string]any {
	doc := map[string]any{}
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "ResultMetadata" {
			continue
		}
		if val, ok := naming.value(v.Field(i)); ok {
			doc[naming(f.Name)] = val
		}
	}
	return doc
}

// value returns what encoding/json shall write for v, and false where the member is absent.
func (naming jsonNaming) value(v reflect.Value) (any, bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, false
		}
		return naming.value(v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return nil, false
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return base64.StdEncoding.EncodeToString(v.Bytes()), true
		}
		list := make([]any, 0, v.Len())
		for i := range v.Len() {
			item, _ := naming.value(v.Index(i))
			list = append(list, item)
		}
		return list, true
	case reflect.Map:
		if v.IsNil() {
			return nil, false
		}
		doc := make(map[string]any, v.Len())
		for _, k := range v.MapKeys() {
			item, _ := naming.value(v.MapIndex(k))
			doc[k.String()] = item
		}
		return doc, true
	case reflect.Struct:
		if at, ok := reflect.TypeAssert[time.Time](v); ok {
			return float64(at.UnixMilli()) / 1000, true
		}
		return naming.structure(v), true
	case reflect.String:
		if v.Len() == 0 && v.Type() != reflect.TypeFor[string]() {
			return nil, false // an enumeration that is not set
		}
		return v.String(), true
	default:
		return v.Interface(), true
	}
}
