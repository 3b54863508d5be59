package gcp

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// apiRoot is how Compute Engine writes links, whatever host it is reached by.
const apiRoot = "https://www.googleapis.com/compute/v1/"

// selfLink is the link of a path.
func selfLink(path string) string { return apiRoot + path }

// roots are the ways in which a link may begin.
var roots = []string{apiRoot, "https://compute.googleapis.com/compute/v1/", "https://www.googleapis.com/compute/beta/", "https://compute.googleapis.com/compute/beta/",
	"//compute.googleapis.com/", "compute/v1/", "/compute/v1/"}

// pathOfLink reads a link to an object, full or partial (projects/…, global/…, regions/…), as a path with the project's ID. It
// answers nothing for a text that is no link.
func (c *Cloud) pathOfLink(project, link string) string {
	for _, root := range roots {
		if rest, ok := strings.CutPrefix(link, root); ok {
			link = rest
			break
		}
	}
	link = strings.TrimPrefix(link, "/")
	first, rest, _ := strings.Cut(link, "/")
	switch first {
	case "projects":
		name, tail, ok := strings.Cut(rest, "/")
		if !ok {
			return ""
		}
		if p, known := c.project(name); known {
			name = p.ID
		}
		return "projects/" + name + "/" + tail
	case "global", "regions", "zones":
		if rest != "" {
			return "projects/" + project + "/" + link
		}
	}
	return ""
}

func scopeOf(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) > 3 && parts[2] != "global" {
		return parts[2] + "/" + parts[3]
	}
	return "global"
}

// linksIn are the paths of everything that a document links to, but for its own place and the fields in loose.
func (e *Compute) linksIn(project string, doc Doc, loose []string) []string {
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch x := v.(type) {
		case map[string]any:
			for _, k := range keysOf(x) {
				walk(x[k])
			}
		case []any:
			for _, item := range x {
				walk(item)
			}
		case string:
			if p := e.cloud.pathOfLink(project, x); p != "" {
				out = append(out, p)
			}
		}
	}
	for _, k := range keysOf(doc) {
		if k != "selfLink" && k != "selfLinkWithId" && k != "region" && k != "zone" && k != "description" && k != "labels" && !slices.Contains(loose, k) {
			walk(doc[k])
		}
	}
	return out
}

// checkReferences refuses a document that links to what does not exist or is still being made.
func (e *Compute) checkReferences(k *kind, path string, doc Doc) error {
	project := segmentAfter(path, "projects")
	for _, p := range e.linksIn(project, doc, k.loose) {
		other := e.kinds[collectionOf(p)]
		if other == nil {
			continue
		}
		res := e.st.Resources[p]
		if res == nil {
			return other.notFound(p)
		}
		if res.Making || res.Dropping {
			return notReady(p)
		}
	}
	return nil
}

// collectionOf is the collection in a path of an object.
func collectionOf(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2]
}

// link finds the object that a field links to; the field may hold a full or a partial link.
func (e *Compute) link(project, field, value, collection string) (*Resource, error) {
	k := e.kinds[collection]
	path := e.cloud.pathOfLink(project, value)
	if path == "" {
		return nil, invalidField(field, value, "The URL is malformed.")
	}
	if collectionOf(path) != collection {
		return nil, invalidField(field, value, "The URL is malformed. Must be a valid "+strings.ReplaceAll(k.noun, "_", " ")+" URL.")
	}
	res := e.st.Resources[path]
	if res == nil {
		return nil, k.notFound(path)
	}
	if res.Making || res.Dropping {
		return nil, notReady(path)
	}
	return res, nil
}

// fingerprint is a short hash of a value, as Google's APIs use for optimistic locking.
func fingerprint(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a document is JSON by construction
	}
	sum := sha256.Sum256(b)
	return base64.URLEncoding.EncodeToString(sum[:8])
}

var (
	labelKey   = regexp.MustCompile(`^[\p{Ll}\p{Lo}][\p{Ll}\p{Lo}\p{N}_-]{0,62}$`)
	labelValue = regexp.MustCompile(`^[\p{Ll}\p{Lo}\p{N}_-]{0,63}$`)
)

// checkLabels refuses labels that are none ("Requirements for labels", Resource Manager): at most 64, in lower case.
func checkLabels(doc Doc) error {
	labels := labelsOf(doc)
	if len(labels) > 64 {
		return refuse(400, "invalid", "Invalid value for field 'resource.labels': ''. Labels may not have more than 64 entries.")
	}
	keys := keysOf(labels)
	sort.Strings(keys)
	for _, k := range keys {
		if !labelKey.MatchString(k) {
			return refuse(400, "invalid", "Invalid value for field 'resource.labels': ''. Label key '%s' violates format constraints. The key must start with a lowercase character, "+
				"can only contain lowercase letters, numeric characters, underscores and dashes. The key can be at most 63 characters long. International characters are allowed.", k)
		}
		if !labelValue.MatchString(labels[k]) {
			return refuse(400, "invalid", "Invalid value for field 'resource.labels': ''. Label value '%s' violates format constraints. The value can only contain lowercase letters, "+
				"numeric characters, underscores and dashes. The value can be at most 63 characters long. International characters are allowed.", labels[k])
		}
	}
	return nil
}
