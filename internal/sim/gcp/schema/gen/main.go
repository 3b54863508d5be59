// Command gen cuts the discovery documents of the served APIs down to what the simulation needs of them: the methods in
// served.txt and the schemas that these reach. It writes apis.json.gz.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// document is a discovery document, as far as it is used.
type document struct {
	Name        string               `json:"name"`
	Version     string               `json:"version"`
	ServicePath string               `json:"servicePath"`
	RootURL     string               `json:"rootUrl"`
	Parameters  map[string]parameter `json:"parameters"`
	Resources   map[string]resource  `json:"resources"`
	Schemas     map[string]property  `json:"schemas"`
}

type resource struct {
	Methods   map[string]method   `json:"methods"`
	Resources map[string]resource `json:"resources"`
}

type method struct {
	ID         string               `json:"id"`
	HTTPMethod string               `json:"httpMethod"`
	Path       string               `json:"path"`
	FlatPath   string               `json:"flatPath"`
	Parameters map[string]parameter `json:"parameters"`
	Request    *property            `json:"request"`
	Response   *property            `json:"response"`
}

type parameter struct {
	Location string   `json:"location"`
	Required bool     `json:"required"`
	Repeated bool     `json:"repeated"`
	Type     string   `json:"type"`
	Format   string   `json:"format"`
	Pattern  string   `json:"pattern"`
	Enum     []string `json:"enum"`
}

type property struct {
	Ref         string              `json:"$ref"`
	Type        string              `json:"type"`
	Format      string              `json:"format"`
	Pattern     string              `json:"pattern"`
	Enum        []string            `json:"enum"`
	ReadOnly    bool                `json:"readOnly"`
	Items       *property           `json:"items"`
	Properties  map[string]property `json:"properties"`
	Additional  *property           `json:"additionalProperties"`
	Annotations struct {
		Required []string `json:"required"`
	} `json:"annotations"`
}

// What is written; schema.go reads it.
type (
	outAPI struct {
		Name    string                `json:"name"`
		Version string                `json:"version"`
		Base    string                `json:"base"`
		Query   map[string]outParam   `json:"query"`
		Methods map[string]*outMethod `json:"methods"`
		Schemas map[string]*outType   `json:"schemas"`
	}
	outMethod struct {
		HTTP     string              `json:"http"`
		Path     string              `json:"path"`
		Flat     string              `json:"flat,omitempty"`
		Params   map[string]outParam `json:"params,omitempty"`
		Request  string              `json:"request,omitempty"`
		Response string              `json:"response,omitempty"`
	}
	outParam struct {
		Path     bool     `json:"path,omitempty"`
		Required bool     `json:"required,omitempty"`
		Repeated bool     `json:"repeated,omitempty"`
		Type     string   `json:"type,omitempty"`
		Format   string   `json:"format,omitempty"`
		Pattern  string   `json:"pattern,omitempty"`
		Enum     []string `json:"enum,omitempty"`
	}
	outType struct {
		Ref      string              `json:"ref,omitempty"`
		Type     string              `json:"type,omitempty"`
		Format   string              `json:"format,omitempty"`
		Pattern  string              `json:"pattern,omitempty"`
		Enum     []string            `json:"enum,omitempty"`
		ReadOnly bool                `json:"readOnly,omitempty"`
		Items    *outType            `json:"items,omitempty"`
		Fields   map[string]*outType `json:"fields,omitempty"`
		Values   *outType            `json:"values,omitempty"`
		Required []string            `json:"required,omitempty"` // by the methods that insist on it
		Numbers  map[int32]string    `json:"numbers,omitempty"`  // of an enum's values, where they are known
	}
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1) //nolint:forbidigo // a program of its own
	}
}

func run() error {
	dir, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/api").Output()
	if err != nil {
		return fmt.Errorf("find google.golang.org/api: %w", err)
	}
	f, err := os.Open("served.txt")
	if err != nil {
		return err
	}
	defer f.Close()
	docs, apis := map[string]*document{}, map[string]*outAPI{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		words := strings.Fields(sc.Text())
		if len(words) < 3 || words[0] == "#" {
			continue
		}
		where := words[0]
		if docs[where] == nil {
			if docs[where], err = read(strings.TrimSpace(string(dir)), where); err != nil {
				return err
			}
			apis[where] = begin(docs[where])
		}
		if err := serve(docs[where], apis[where], words[1], words[2:]); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	apis["memorystore/v1"] = memorystore()
	var b bytes.Buffer
	zw, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := errors.Join(json.NewEncoder(zw).Encode(apis), zw.Close()); err != nil {
		return err
	}
	return os.WriteFile("apis.json.gz", b.Bytes(), 0o644) //nolint:gosec // a file of the repository
}

func read(module, where string) (*document, error) {
	name, _, _ := strings.Cut(where, "/")
	b, err := os.ReadFile(filepath.Join(module, filepath.FromSlash(where), name+"-api.json"))
	if err != nil {
		return nil, err
	}
	d := &document{}
	return d, json.Unmarshal(b, d)
}

func begin(d *document) *outAPI {
	a := &outAPI{Name: d.Name, Version: d.Version, Base: "/" + d.ServicePath, Query: map[string]outParam{},
		Methods: map[string]*outMethod{}, Schemas: map[string]*outType{}}
	for n, p := range d.Parameters {
		a.Query[n] = param(p)
	}
	return a
}

// serve takes the methods of a resource over, with the schemas that they need.
func serve(d *document, a *outAPI, name string, methods []string) error {
	r, found := resource{Resources: d.Resources}, false
	for part := range strings.SplitSeq(name, ".") {
		if r, found = r.Resources[part]; !found {
			return fmt.Errorf("no resource %s", name)
		}
	}
	for _, m := range methods {
		in, ok := r.Methods[m]
		if !ok {
			return fmt.Errorf("%s has no method %s", name, m)
		}
		out := &outMethod{HTTP: in.HTTPMethod, Path: in.Path, Params: map[string]outParam{}}
		if in.FlatPath != in.Path {
			out.Flat = in.FlatPath
		}
		for n, p := range in.Parameters {
			out.Params[n] = param(p)
		}
		for _, ref := range []struct {
			from *property
			to   *string
		}{{in.Request, &out.Request}, {in.Response, &out.Response}} {
			if ref.from != nil {
				*ref.to = ref.from.Ref
				take(d, a, ref.from.Ref)
			}
		}
		a.Methods[name+"."+m] = out
	}
	return nil
}

// take copies a schema and all that it refers to.
func take(d *document, a *outAPI, name string) {
	if a.Schemas[name] != nil {
		return
	}
	a.Schemas[name] = &outType{} // so that a schema that refers to itself ends here
	p := d.Schemas[name]
	*a.Schemas[name] = *convert(d, a, &p)
}

func convert(d *document, a *outAPI, p *property) *outType {
	t := &outType{Ref: p.Ref, Type: p.Type, Format: p.Format, Pattern: p.Pattern, Enum: p.Enum, ReadOnly: p.ReadOnly}
	slices.Sort(t.Enum)
	for _, r := range p.Annotations.Required {
		t.Required = append(t.Required, strings.TrimPrefix(r, d.Name+"."))
	}
	if p.Ref != "" {
		take(d, a, p.Ref)
	}
	if p.Items != nil {
		t.Items = convert(d, a, p.Items)
	}
	if p.Additional != nil {
		t.Values = convert(d, a, p.Additional)
	}
	for n := range p.Properties {
		if t.Fields == nil {
			t.Fields = map[string]*outType{}
		}
		field := p.Properties[n]
		t.Fields[n] = convert(d, a, &field)
	}
	return t
}

func param(p parameter) outParam {
	return outParam{Path: p.Location == "path", Required: p.Required, Repeated: p.Repeated, Type: p.Type, Format: p.Format, Pattern: p.Pattern, Enum: p.Enum}
}
