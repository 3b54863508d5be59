package aws

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// This file is the REST-XML protocol for SDK structs, seen from the server: Route 53.

// xmlNode is an element of a request.
type xmlNode struct {
	name string
	text strings.Builder
	kids []*xmlNode
}

func (n *xmlNode) child(name string) *xmlNode {
	for _, k := range n.kids {
		if k.name == name {
			return k
		}
	}
	return nil
}

// parseXML reads a whole document and answers its root element.
func parseXML(body []byte) (*xmlNode, error) {
	dec := xml.NewDecoder(bytes.NewReader(body))
	var root *xmlNode
	var stack []*xmlNode
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch t := tok.(type) {
		case xml.StartElement:
			n := &xmlNode{name: t.Name.Local}
			if len(stack) > 0 {
				top := stack[len(stack)-1]
				top.kids = append(top.kids, n)
			} else if root == nil {
				root = n
			}
			stack = append(stack, n)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			if len(stack) > 0 {
				stack[len(stack)-1].text.Write(t)
			}
		}
	}
	if root == nil {
		return nil, fmt.Errorf("no element in the request body")
	}
	return root, nil
}

// decodeXML fills the SDK input struct that in points at from the children of an element.
func decodeXML(n *xmlNode, in any) error {
	return decodeXMLStruct(n, reflect.ValueOf(in).Elem(), "")
}

func decodeXMLStruct(n *xmlNode, v reflect.Value, path string) error {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "ResultMetadata" {
			continue
		}
		if kid := n.child(f.Name); kid != nil {
			if err := decodeXMLValue(kid, v.Field(i), joinPath(path, f.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func decodeXMLValue(n *xmlNode, v reflect.Value, path string) error {
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if err := decodeXMLValue(n, p.Elem(), path); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case reflect.Slice:
		out := reflect.MakeSlice(v.Type(), len(n.kids), len(n.kids))
		for i, kid := range n.kids {
			if err := decodeXMLValue(kid, out.Index(i), fmt.Sprintf("%s.%d", path, i+1)); err != nil {
				return err
			}
		}
		v.Set(out)
		return nil
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			at, err := time.Parse(time.RFC3339Nano, n.text.String())
			if err != nil {
				return &wireTypeError{path, "timestamp", n.text.String()}
			}
			v.Set(reflect.ValueOf(at))
			return nil
		}
		return decodeXMLStruct(n, v, path)
	}
	return setScalar(v, n.text.String(), path)
}

// setNamed sets the members of an SDK input struct that come in a path or a query.
func setNamed(in any, params map[string]string) error {
	v := reflect.ValueOf(in).Elem()
	for _, name := range sortedKeys(params) {
		f := v.FieldByName(name)
		if !f.IsValid() {
			continue
		}
		if f.Kind() == reflect.Pointer {
			p := reflect.New(f.Type().Elem())
			if err := setScalar(p.Elem(), params[name], name); err != nil {
				return err
			}
			f.Set(p)
			continue
		}
		if err := setScalar(f, params[name], name); err != nil {
			return err
		}
	}
	return nil
}
