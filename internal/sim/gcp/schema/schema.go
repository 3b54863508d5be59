// Package schema holds what the discovery documents of Google's APIs say about the methods that are simulated: paths,
// parameters, and the schemas of requests and answers. It finds the method of a request and checks documents.
package schema

//go:generate go run ./gen

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed apis.json.gz
var packed []byte

// An API is one version of a service.
type API struct {
	Name    string             `json:"name"`
	Version string             `json:"version"`
	Base    string             `json:"base"` // path under which its methods are
	Query   map[string]Param   `json:"query"`
	Methods map[string]*Method `json:"methods"` // by resource and verb: networks.insert
	Schemas map[string]*Type   `json:"schemas"`
}

// A Method is one call of an API.
type Method struct {
	ID       string           `json:"-"`
	API      *API             `json:"-"`
	HTTP     string           `json:"http"`
	Path     string           `json:"path"`
	Flat     string           `json:"flat"` // Path with each segment by itself; empty if Path is that already
	Params   map[string]Param `json:"params"`
	Request  string           `json:"request"`
	Response string           `json:"response"`

	segments []string
	verb     string
	literals int
}

// A Param is a parameter in the path or in the query.
type Param struct {
	Path     bool     `json:"path"`
	Required bool     `json:"required"`
	Repeated bool     `json:"repeated"`
	Type     string   `json:"type"`
	Format   string   `json:"format"`
	Pattern  string   `json:"pattern"`
	Enum     []string `json:"enum"`
}

// A Type is a schema or one of its fields.
type Type struct {
	Name     string           `json:"-"` // of a schema
	Ref      string           `json:"ref"`
	Type     string           `json:"type"`
	Format   string           `json:"format"`
	Pattern  string           `json:"pattern"`
	Enum     []string         `json:"enum"`
	ReadOnly bool             `json:"readOnly"`
	Items    *Type            `json:"items"`
	Fields   map[string]*Type `json:"fields"`
	Values   *Type            `json:"values"`   // of a map
	Required []string         `json:"required"` // the methods that insist on it
	Numbers  map[int32]string `json:"numbers"`  // an enum's values by number, which some clients send
}

// APIs are all the served APIs, by name and version: compute/v1.
var APIs = sync.OnceValue(load)

var byShape = sync.OnceValue(func() map[string][]*Method {
	index := map[string][]*Method{}
	for _, a := range APIs() {
		for _, m := range a.Methods {
			key := shape(m.HTTP, len(m.segments))
			index[key] = append(index[key], m)
		}
	}
	for _, ms := range index {
		slices.SortFunc(ms, func(a, b *Method) int {
			if a.literals != b.literals {
				return b.literals - a.literals
			}
			return strings.Compare(a.API.Name+a.API.Version+a.ID, b.API.Name+b.API.Version+b.ID)
		})
	}
	return index
})

func shape(method string, segments int) string { return fmt.Sprintf("%s %d", method, segments) }

func load() map[string]*API {
	apis := map[string]*API{}
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		err = json.NewDecoder(zr).Decode(&apis)
	}
	if err != nil {
		panic(fmt.Sprintf("schemas of the simulated APIs: %v; run go generate", err)) // the file is part of the binary
	}
	for _, a := range apis {
		for n, t := range a.Schemas {
			t.Name = n
		}
		for id, m := range a.Methods {
			m.ID, m.API = id, a
			flat := m.Flat
			if flat == "" {
				flat = m.Path
			}
			m.segments, m.verb = split(a.Base + flat)
			for _, s := range m.segments {
				if !strings.HasPrefix(s, "{") {
					m.literals++
				}
			}
		}
	}
	return apis
}

// split cuts a path into segments and the verb after the last colon, if any.
func split(path string) (segments []string, verb string) {
	segments = strings.Split(strings.TrimPrefix(path, "/"), "/")
	last := len(segments) - 1
	if i := strings.LastIndex(segments[last], ":"); i >= 0 {
		segments[last], verb = segments[last][:i], segments[last][i+1:]
	}
	return segments, verb
}

// A Match is a method that a request may be for, with the parameters in its path.
type Match struct {
	*Method
	Values map[string]string
}

// Find answers the methods whose path a request has, the most specific first. Several APIs share some paths when all are
// served by one host, as /v1/operations/….
func Find(httpMethod, path string) []Match {
	segments, verb := split(path)
	var found []Match
	for _, m := range byShape()[shape(httpMethod, len(segments))] {
		if m.verb == verb && m.fits(segments) {
			found = append(found, Match{m, m.values(path, segments)})
		}
	}
	return found
}

func (m *Method) fits(segments []string) bool {
	for i, want := range m.segments {
		if strings.HasPrefix(want, "{") {
			if segments[i] == "" {
				return false
			}
		} else if want != segments[i] {
			return false
		}
	}
	return true
}

var reserved = regexp.MustCompile(`\{\+(\w+)\}`)

// values reads the parameters. A reserved expansion, {+name}, spans segments: it is what the rest of the path leaves.
func (m *Method) values(path string, segments []string) map[string]string {
	out := map[string]string{}
	full := m.API.Base + m.Path
	if at := reserved.FindStringSubmatchIndex(full); at != nil {
		out[full[at[2]:at[3]]] = strings.TrimSuffix(strings.TrimPrefix(path, full[:at[0]]), full[at[1]:])
		return out
	}
	for i, s := range m.segments {
		if name, ok := strings.CutPrefix(s, "{"); ok {
			out[strings.TrimSuffix(name, "}")] = segments[i]
		}
	}
	return out
}

var patterns sync.Map

// Matches says whether a value matches the whole of a pattern; an empty pattern matches all.
func Matches(pattern, value string) bool {
	if pattern == "" {
		return true
	}
	re, ok := patterns.Load(pattern)
	if !ok {
		compiled, err := regexp.Compile("^(?:" + pattern + ")$")
		if err != nil {
			return true // a pattern in another dialect says nothing
		}
		re, _ = patterns.LoadOrStore(pattern, compiled)
	}
	return re.(*regexp.Regexp).MatchString(value)
}
