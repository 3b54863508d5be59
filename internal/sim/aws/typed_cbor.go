package aws

import (
	"fmt"
	"reflect"
	"time"

	"github.com/aws/smithy-go/encoding/cbor"
)

// This file is Smithy's RPC v2 protocol with CBOR for SDK structs, seen from the server, as CloudWatch's SDK speaks it now
// ("Smithy RPC v2 CBOR protocol"): a map by the names of the members, times as seconds since the epoch with a tag.

// overCBOR makes operations of that protocol from typed ones. The control API gives its parameters as JSON.
func overCBOR(ops map[string]typedOp) map[string]operation {
	out := make(map[string]operation, len(ops))
	for name, o := range ops {
		out[name] = func(r *request) (any, error) {
			in := o.input()
			decode := decodeCBOR
			if r.HTTP == nil {
				decode = decodeJSON
			}
			if err := decode(r.Body, in); err != nil {
				return nil, refuse("SerializationException", "%s", err)
			}
			return o.run(r.ctx(), in)
		}
	}
	return out
}

// decodeCBOR fills the SDK input struct that in points at from a request body.
func decodeCBOR(body []byte, in any) error {
	if len(body) == 0 {
		return nil
	}
	v, err := cbor.Decode(body)
	if err != nil {
		return &wireTypeError{"body", "CBOR map", err.Error()}
	}
	return fromCBOR(v, reflect.ValueOf(in).Elem(), "")
}

func fromCBOR(raw cbor.Value, v reflect.Value, path string) error {
	if _, null := raw.(*cbor.Nil); null {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if err := fromCBOR(raw, p.Elem(), path); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case reflect.Slice:
		list, ok := raw.(cbor.List)
		if !ok {
			return &wireTypeError{path, "list", fmt.Sprint(raw)}
		}
		out := reflect.MakeSlice(v.Type(), len(list), len(list))
		for i, item := range list {
			if err := fromCBOR(item, out.Index(i), fmt.Sprintf("%s.%d", path, i+1)); err != nil {
				return err
			}
		}
		v.Set(out)
		return nil
	case reflect.Struct:
		return structFromCBOR(raw, v, path)
	}
	return scalarFromCBOR(raw, v, path)
}

func structFromCBOR(raw cbor.Value, v reflect.Value, path string) error {
	if v.Type() == reflect.TypeFor[time.Time]() {
		at, err := cbor.AsTime(raw)
		if err != nil {
			return &wireTypeError{path, "timestamp", err.Error()}
		}
		v.Set(reflect.ValueOf(at.UTC()))
		return nil
	}
	doc, ok := raw.(cbor.Map)
	if !ok {
		return &wireTypeError{path, "structure", fmt.Sprint(raw)}
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if item, given := doc[f.Name]; given && f.IsExported() {
			if err := fromCBOR(item, v.Field(i), joinPath(path, f.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func scalarFromCBOR(raw cbor.Value, v reflect.Value, path string) error {
	wrong := &wireTypeError{path, v.Kind().String(), fmt.Sprint(raw)}
	switch v.Kind() {
	case reflect.String:
		s, ok := raw.(cbor.String)
		if !ok {
			return wrong
		}
		v.SetString(string(s))
	case reflect.Bool:
		b, ok := raw.(cbor.Bool)
		if !ok {
			return wrong
		}
		v.SetBool(bool(b))
	case reflect.Int32, reflect.Int64:
		n, err := cbor.AsInt64(raw)
		if err != nil {
			return wrong
		}
		v.SetInt(n)
	case reflect.Float32, reflect.Float64:
		n, err := cbor.AsFloat64(raw)
		if err != nil {
			return wrong
		}
		v.SetFloat(n)
	default:
		return wrong
	}
	return nil
}

// encodeCBOR renders the SDK output struct out as a response body.
func encodeCBOR(out any) ([]byte, error) {
	v, ok := toCBOR(reflect.ValueOf(out))
	if !ok {
		v = cbor.Map{}
	}
	return cbor.Encode(v), nil
}

// toCBOR returns what goes out for v, and false where the member is absent.
func toCBOR(v reflect.Value) (cbor.Value, bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, false
		}
		return toCBOR(v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return nil, false
		}
		list := cbor.List{}
		for i := range v.Len() {
			item, _ := toCBOR(v.Index(i))
			list = append(list, item)
		}
		return list, true
	case reflect.Struct:
		if at, ok := reflect.TypeAssert[time.Time](v); ok {
			return &cbor.Tag{ID: 1, Value: cbor.Float64(float64(at.UnixMilli()) / 1000)}, true
		}
		doc := cbor.Map{}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() || f.Name == "ResultMetadata" {
				continue
			}
			if item, ok := toCBOR(v.Field(i)); ok {
				doc[f.Name] = item
			}
		}
		return doc, true
	case reflect.String:
		if v.Len() == 0 && v.Type() != reflect.TypeFor[string]() {
			return nil, false // an enumeration that is not set
		}
		return cbor.String(v.String()), true
	case reflect.Bool:
		return cbor.Bool(v.Bool()), true
	case reflect.Int32, reflect.Int64:
		if n := v.Int(); n >= 0 {
			return cbor.Uint(n), true
		}
		return cbor.NegInt(-v.Int()), true
	case reflect.Float32, reflect.Float64:
		return cbor.Float64(v.Float()), true
	}
	return nil, false
}
