package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// A document is one job file, or one part of a file with several.
type document struct {
	from string // where it came from, for messages
	path string // the file; "" for the standard input
	body map[string]any
}

// maxFile bounds a job file: the server takes no more in a body either.
const maxFile = 1 << 20

// topLevel are the fields of a job that a file may set; a --set key that
// begins with none of them is relative to config.spec.
var topLevel = []string{"kind", "resourceType", "provider", "mode", "name", "team", "cloudAccountId", "region", "labels", "config", "subjectId", "submit"}

// readDocuments reads job files, in YAML or JSON; "-" is the standard input.
func (a *app) readDocuments(files, sets []string) ([]document, error) {
	if len(files) == 0 {
		return nil, &usageError{msg: "no job file is named", hint: "give one with -f FILE, or - for the standard input"}
	}
	var docs []document
	stdin := false
	for _, f := range files {
		var b []byte
		var err error
		if f == "-" {
			if stdin {
				return nil, usagef("the standard input is named twice")
			}
			stdin = true
			b, err = io.ReadAll(io.LimitReader(a.in, maxFile+1))
		} else {
			b, err = readFile(f)
		}
		if err != nil {
			return nil, &usageError{msg: fmt.Sprintf("%s cannot be read: %v", f, pathless(err))}
		}
		if len(b) > maxFile {
			return nil, usagef("%s is larger than %d KiB; a job file is not", f, maxFile>>10)
		}
		got, err := parseDocuments(f, b)
		if err != nil {
			return nil, err
		}
		docs = append(docs, got...)
	}
	for i := range docs {
		for _, s := range sets {
			if err := docs[i].set(s); err != nil {
				return nil, err
			}
		}
	}
	return docs, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// pathless is an error of the file system without the path, which the message
// names already.
func pathless(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func parseDocuments(from string, b []byte) ([]document, error) {
	name := from
	if from == "-" {
		name = "standard input"
	}
	var docs []document
	for i, part := range splitYAML(b) {
		if len(bytes.TrimSpace(part)) == 0 {
			continue
		}
		where := name
		if i > 0 {
			where = fmt.Sprintf("%s, document %d", name, i+1)
		}
		// Strict: a key that is given twice is a mistake that would go unseen.
		raw, err := yaml.YAMLToJSONStrict(part)
		if err != nil {
			return nil, &usageError{msg: fmt.Sprintf("%s: %s", where, yamlProblem(err))}
		}
		if string(raw) == "null" {
			continue // only comments
		}
		d := document{from: where}
		if from != "-" {
			d.path = filepath.Clean(from)
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(&d.body); err != nil || d.body == nil {
			return nil, usagef("%s: a job file holds an object with kind, resourceType, provider, name, region and config", where)
		}
		docs = append(docs, d)
	}
	if len(docs) == 0 {
		return nil, usagef("%s is empty", name)
	}
	return docs, nil
}

// splitYAML cuts a stream at its document markers.
func splitYAML(b []byte) [][]byte {
	var parts [][]byte
	start := 0
	for at := 0; at < len(b); {
		end := bytes.IndexByte(b[at:], '\n')
		if end < 0 {
			end = len(b) - at
		}
		if l := bytes.TrimRight(b[at:at+end], " \t\r"); string(l) == "---" {
			parts = append(parts, b[start:at])
			start = min(at+end+1, len(b))
		}
		at += end + 1
	}
	return append(parts, b[start:])
}

// json is the document as the API takes it.
func (d document) json(extra map[string]any) ([]byte, error) {
	out := map[string]any{}
	maps.Copy(out, d.body)
	maps.Copy(out, extra)
	return json.Marshal(out)
}

// inSpec is where a --set key belongs that is no field of a job.
var inSpec = []string{"config", "spec"}

// set carries out one --set on a job file.
func (d *document) set(expr string) error { return d.assign(expr, inSpec, false) }

// assign puts a value, read as YAML, at a path of keys and list indexes. A path
// that starts with no field of a job is one under prefix. null takes a field
// away, or with keepNull is kept: in a patch it takes a field of the job away.
func (d *document) assign(expr string, prefix []string, keepNull bool) error {
	path, value, ok := strings.Cut(expr, "=")
	if !ok || path == "" {
		return &usageError{msg: fmt.Sprintf("--set %s is not key=value", expr), hint: "such as --set pool.count=3 or --set name=shop-test"}
	}
	keys := strings.Split(path, ".")
	if slices.Contains(keys, "") {
		return usagef("--set %s: an empty key", expr)
	}
	if len(prefix) > 0 && !slices.Contains(topLevel, keys[0]) {
		keys = append(slices.Clone(prefix), keys...)
	}
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		v = value // such as "@", which is no YAML and means itself
	}
	got, err := put(d.body, keys, v, keepNull)
	if err != nil {
		return &usageError{msg: fmt.Sprintf("--set %s: %v", expr, err)}
	}
	d.body = got.(map[string]any)
	return nil
}

// put sets a value deep inside of maps and lists, making maps on the way.
func put(in any, keys []string, v any, keepNull bool) (any, error) {
	if len(keys) == 0 {
		return v, nil
	}
	k := keys[0]
	switch at := in.(type) {
	case nil:
		return put(map[string]any{}, keys, v, keepNull)
	case map[string]any:
		sub, err := put(at[k], keys[1:], v, keepNull)
		if err != nil {
			return nil, err
		}
		if sub == nil && !keepNull {
			delete(at, k)
		} else {
			at[k] = sub
		}
		return at, nil
	case []any:
		i, err := strconv.Atoi(k)
		if err != nil || i < 0 || i > len(at) {
			return nil, fmt.Errorf("%q is not an index of a list of %d", k, len(at))
		}
		if i == len(at) {
			at = append(at, nil)
		}
		at[i], err = put(at[i], keys[1:], v, keepNull)
		return at, err
	}
	return nil, fmt.Errorf("%q is inside of a plain value", k)
}

// text is a field of the document that is a string.
func (d document) text(key string) string {
	s, _ := d.body[key].(string)
	return s
}
