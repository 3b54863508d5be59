package provision

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/zopday/provisioner/internal/job"
)

// The limits of a document, beyond which it is an attack or a mistake.
const (
	maxDepth       = 32
	maxFieldErrors = 50
)

// Decode reads a JSON document into a request, and refuses everything that
// encoding/json would let pass or name badly: unknown and repeated fields, wrong
// types (all of them, each with its path), text that a database cannot keep,
// trailing data, documents that are nested absurdly deep.
func Decode(body []byte, into any) error {
	v, err := parse(body)
	if err != nil {
		return err
	}
	if _, ok := v.(map[string]any); !ok {
		return refuse(Malformed, "Send a JSON object.", "the body is %s, not an object", kindOf(v))
	}
	var b binder
	b.bind(v, reflect.ValueOf(into).Elem(), "")
	if p, ok := into.(interface{ parts() []job.FieldError }); ok {
		b.errs = append(b.errs, p.parts()...)
	}
	return b.err()
}

// decodeSpec binds the spec of a document that was read before.
func decodeSpec(raw json.RawMessage, into any) []job.FieldError {
	const at = "config.spec"
	v, err := parse(raw)
	if err != nil {
		return []job.FieldError{{Field: at, Message: "is not JSON", Fix: "send an object"}}
	}
	var b binder
	b.bind(v, reflect.ValueOf(into).Elem(), at)
	return b.errs
}

// parse reads one JSON document into maps, slices, strings, bools, nil and
// json.Number.
func parse(body []byte) (any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, refuse(Malformed, "Send a JSON object.", "the body is empty")
	}
	if !utf8.Valid(body) {
		return nil, refuse(Malformed, "Send JSON in UTF-8.", "the body is not UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line, col := position(body, syntax.Offset)
			return nil, refuse(Malformed, "Put the JSON right.", "the body is not JSON: line %d, column %d: %s", line, col, syntax.Error())
		}
		return nil, refuse(Malformed, "Put the JSON right.", "the body is not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var p parser
	v, err := p.value(d, "", 0)
	if err != nil {
		return nil, err
	}
	if len(p.errs) > 0 {
		return nil, invalid(p.errs...)
	}
	return v, nil
}

func position(body []byte, offset int64) (line, col int) {
	before := body[:min(max(int(offset)-1, 0), len(body))]
	line = 1 + bytes.Count(before, []byte{'\n'})
	return line, len(before) - bytes.LastIndexByte(before, '\n')
}

// A parser collects what is wrong with a document that is JSON all the same.
type parser struct{ errs []job.FieldError }

func (p *parser) add(path, message, fix string) {
	if len(p.errs) < maxFieldErrors {
		p.errs = append(p.errs, job.FieldError{Field: clip(cmp.Or(path, "body")), Message: message, Fix: fix})
	}
}

func (p *parser) value(d *json.Decoder, path string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, invalid(job.FieldError{Field: clip(cmp.Or(path, "body")), Message: fmt.Sprintf("is nested deeper than %d levels", maxDepth), Fix: "flatten it"})
	}
	t, err := d.Token()
	if err != nil {
		return nil, malformed(err)
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return p.object(d, path, depth)
		}
		return p.array(d, path, depth)
	case string:
		p.text(t, path)
	}
	return t, nil
}

func (p *parser) object(d *json.Decoder, path string, depth int) (any, error) {
	m := map[string]any{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, malformed(err)
		}
		key, _ := t.(string)
		at := join(path, key)
		p.text(key, at)
		if _, twice := m[key]; twice {
			p.add(at, "is given twice", "give it once")
		}
		if m[key], err = p.value(d, at, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return m, malformedOrNil(err)
}

func (p *parser) array(d *json.Decoder, path string, depth int) (any, error) {
	s := []any{}
	for d.More() {
		v, err := p.value(d, fmt.Sprintf("%s[%d]", path, len(s)), depth+1)
		if err != nil {
			return nil, err
		}
		s = append(s, v)
	}
	_, err := d.Token()
	return s, malformedOrNil(err)
}

// text refuses what PostgreSQL cannot store (U+0000) and what was no character
// to begin with (a lone surrogate, which encoding/json turns into U+FFFD).
func (p *parser) text(s, path string) {
	switch {
	case strings.ContainsRune(s, 0):
		p.add(path, "holds a NUL character", "remove it")
	case strings.ContainsRune(s, utf8.RuneError):
		p.add(path, "holds something that is not a character", "remove it, or pair the surrogates")
	}
}

func malformed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse(Malformed, "Send the whole document.", "the body ends too early")
	}
	return refuse(Malformed, "Put the JSON right.", "the body is not JSON: %v", err)
}

func malformedOrNil(err error) error {
	if err == nil {
		return nil
	}
	return malformed(err)
}
