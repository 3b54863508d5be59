package charts

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// The media types of a chart in an OCI registry.
const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.cncf.helm.config.v1+json"
	typeContent  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// A Server serves charts. As a repository it has index.yaml and NAME-VERSION.tgz
// at any path; as a registry it has every chart at any path whose last part is
// the chart's name, tagged with its version.
type Server struct {
	mu     sync.RWMutex
	charts map[string]served // by name and version
	blobs  map[string]blob   // by digest
}

type served struct {
	Chart
	archive  []byte
	manifest []byte
}

type blob struct {
	kind string
	body []byte
}

// New is a server of some charts; [StandIns] are those of the catalogue.
func New(charts ...Chart) *Server {
	s := &Server{charts: map[string]served{}, blobs: map[string]blob{}}
	for _, c := range charts {
		s.Add(c)
	}
	return s
}

// Add serves one more chart; one of the same name and version is replaced.
func (s *Server) Add(c Chart) {
	archive := c.Archive()
	config, _ := json.Marshal(map[string]string{"name": c.Name, "version": c.Version, "apiVersion": "v2"})
	descriptor := func(kind string, body []byte) map[string]any {
		return map[string]any{"mediaType": kind, "digest": digest(body), "size": len(body)}
	}
	manifest, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest,
		"config": descriptor(typeConfig, config), "layers": []any{descriptor(typeContent, archive)},
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charts[c.Name+" "+c.Version] = served{Chart: c, archive: archive, manifest: manifest}
	s.blobs[digest(config)] = blob{typeConfig, config}
	s.blobs[digest(archive)] = blob{typeContent, archive}
	s.blobs[digest(manifest)] = blob{typeManifest, manifest}
}

// ServeHTTP answers as a repository, and below /v2/ as a registry.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "this registry is read only", http.StatusMethodNotAllowed)
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch base := path.Base(r.URL.Path); {
	case r.URL.Path == "/v2/" || strings.HasPrefix(r.URL.Path, "/v2/"):
		s.registry(w, r)
	case base == "index.yaml":
		s.index(w)
	default:
		for _, c := range s.charts {
			if base == c.Name+"-"+c.Version+".tgz" {
				write(w, r, "application/gzip", c.archive)
				return
			}
		}
		http.NotFound(w, r)
	}
}

// index is the repository's list of charts.
func (s *Server) index(w http.ResponseWriter) {
	entries := map[string][]map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(s.charts)) {
		c := s.charts[key]
		entries[c.Name] = append(entries[c.Name], map[string]any{
			"apiVersion": "v2", "name": c.Name, "version": c.Version, "appVersion": c.AppVersion, "description": c.Description,
			"digest": strings.TrimPrefix(digest(c.archive), "sha256:"),
			"urls":   []string{c.Name + "-" + c.Version + ".tgz"},
		})
	}
	w.Header().Set("Content-Type", "application/yaml")
	// JSON is YAML.
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "entries": entries})
}

// registry answers as the OCI distribution specification says, for reading.
func (s *Server) registry(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) == 1 {
		w.WriteHeader(http.StatusOK)
		return
	}
	if len(parts) < 4 {
		fault(w, "NAME_UNKNOWN", "repository name not known to registry")
		return
	}
	name, what, ref := parts[len(parts)-3], parts[len(parts)-2], parts[len(parts)-1]
	switch {
	case what == "tags" && ref == "list":
		s.tags(w, strings.Join(parts[1:len(parts)-2], "/"), name)
	case what == "manifests":
		for _, c := range s.charts {
			// A tag cannot hold a plus sign: Helm writes an underscore instead.
			if c.Name == name && (ref == strings.ReplaceAll(c.Version, "+", "_") || ref == digest(c.manifest)) {
				w.Header().Set("Docker-Content-Digest", digest(c.manifest))
				write(w, r, typeManifest, c.manifest)
				return
			}
		}
		fault(w, "MANIFEST_UNKNOWN", "manifest unknown")
	case what == "blobs":
		b, ok := s.blobs[ref]
		if !ok {
			fault(w, "BLOB_UNKNOWN", "blob unknown to registry")
			return
		}
		w.Header().Set("Docker-Content-Digest", ref)
		write(w, r, b.kind, b.body)
	default:
		fault(w, "UNSUPPORTED", "the operation is unsupported")
	}
}

func (s *Server) tags(w http.ResponseWriter, repository, name string) {
	tags := []string{}
	for _, c := range s.charts {
		if c.Name == name {
			tags = append(tags, strings.ReplaceAll(c.Version, "+", "_"))
		}
	}
	if len(tags) == 0 {
		fault(w, "NAME_UNKNOWN", "repository name not known to registry")
		return
	}
	slices.Sort(tags)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": repository, "tags": tags})
}

func write(w http.ResponseWriter, r *http.Request, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// fault says that something is not there, as registries do.
func fault(w http.ResponseWriter, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]any{"code": code, "message": message}}})
}
