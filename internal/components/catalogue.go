package components

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/job"
)

//go:embed catalogue/*.yaml
var files embed.FS

// An Entry is one component of the catalogue.
type Entry struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description,omitempty"`
	Category    string `json:"category" doc:"Such as ingress, security, observability, scaling, delivery, storage, data or networking"`
	Chart       Chart  `json:"chart"`
	Version     string `json:"version" doc:"Version of the chart that is installed unless another one is asked for"`
	AppVersion  string `json:"appVersion,omitempty"`
	License     string `json:"license" doc:"SPDX identifier of the software's licence"`
	Source      string `json:"source" doc:"The project's page"`
	KubeVersion string `json:"kubeVersion,omitempty" doc:"Kubernetes versions it supports, as a range such as >= 1.25.0-0"`
	Namespace   string `json:"namespace" doc:"Where it goes unless another namespace is asked for"`
	Release     string `json:"release,omitempty" doc:"Name of the Helm release; the component's by default"`

	DependsOn []string       `json:"dependsOn,omitempty" doc:"Components that are installed before it, where they are asked for too"`
	Providers []job.Provider `json:"providers,omitempty" doc:"Clouds it is for; all of them by default"`
	Needs     []string       `json:"needs,omitempty" doc:"What it wants from the cloud, for a person"`
	CRDs      bool           `json:"crds,omitempty" doc:"It brings kinds of its own along, which stay when it is removed"`
	AdoptOnly bool           `json:"adoptOnly,omitempty" doc:"It is not installed any more; one that is there can be adopted"`
	Reason    string         `json:"reason,omitempty" doc:"Why it is adoptOnly"`

	Defaults    map[string]any    `json:"defaults,omitempty" doc:"Values it is installed with unless the request sets them"`
	FromCluster map[string]string `json:"fromCluster,omitempty" doc:"Values taken from the cluster: path of the value, and one of name, region, network, account"`
}

// A Chart says where a chart comes from.
type Chart struct {
	Repository string `json:"repository" doc:"https:// address of a chart repository, or oci:// address of a registry and path"`
	Name       string `json:"name" doc:"The chart's name there"`
	Digest     string `json:"digest,omitempty" doc:"sha256: digest of the pinned version's archive; verified if given"`
}

// A Catalogue is a set of components.
type Catalogue struct {
	entries map[string]Entry
}

// Load is the built-in catalogue.
func Load() (*Catalogue, error) {
	c := &Catalogue{entries: map[string]Entry{}}
	names, err := fs.Glob(files, "catalogue/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var e Entry
		if err := yaml.UnmarshalStrict(raw, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := c.add(name, e); err != nil {
			return nil, err
		}
	}
	return c, c.checkDependencies()
}

// With is the catalogue with entries of a user's own added: a YAML or JSON
// document whose field components is a list of them. Everything wrong with it is
// reported at once, each fault with its place.
func (c *Catalogue) With(extra []byte) (*Catalogue, error) {
	var doc struct {
		Components []Entry `json:"components"`
	}
	if err := yaml.UnmarshalStrict(extra, &doc); err != nil {
		return nil, fmt.Errorf("catalogue: %s", strings.NewReplacer("error unmarshaling JSON: while decoding JSON: json: ", "",
			"error converting YAML to JSON: yaml: ", "").Replace(err.Error()))
	}
	out := &Catalogue{entries: maps.Clone(c.entries)}
	var faults []error
	for i, e := range doc.Components {
		at := fmt.Sprintf("components[%d]", i)
		if e.Name != "" {
			at += " (" + e.Name + ")"
		}
		faults = append(faults, out.add(at, e))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return out, out.checkDependencies()
}

// Get finds a component by its name.
func (c *Catalogue) Get(name string) (Entry, bool) {
	e, ok := c.entries[name]
	return e, ok
}

// A Query narrows a list of components down; empty fields do not.
type Query struct {
	Search      string       // words that all appear in its name, title, description or category
	Category    string       // exactly
	Provider    job.Provider // it is for this cloud
	KubeVersion string       // it supports this version, such as 1.35
}

// List is the components that a query asks for, by name.
func (c *Catalogue) List(q Query) []Entry {
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(c.entries)) {
		if e := c.entries[name]; e.matches(q) {
			out = append(out, e)
		}
	}
	return out
}

// Categories are the categories that have components, sorted.
func (c *Catalogue) Categories() []string {
	seen := map[string]bool{}
	for _, e := range c.entries {
		seen[e.Category] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func (e Entry) matches(q Query) bool {
	text := strings.ToLower(strings.Join([]string{e.Name, e.Title, e.Description, e.Category}, " "))
	for word := range strings.FieldsSeq(strings.ToLower(q.Search)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return (q.Category == "" || e.Category == q.Category) &&
		(q.Provider == "" || e.For(q.Provider)) &&
		(q.KubeVersion == "" || e.Supports(q.KubeVersion))
}

// For reports whether a component is for a cloud.
func (e Entry) For(p job.Provider) bool {
	return len(e.Providers) == 0 || slices.Contains(e.Providers, p)
}

// Supports reports whether a component supports a version of Kubernetes, such as
// 1.35 or v1.35.2-eks-1a2b3c4. A version that is none is not supported.
func (e Entry) Supports(kubeVersion string) bool {
	if e.KubeVersion == "" {
		return true
	}
	want, err := semver.NewConstraint(e.KubeVersion)
	if err != nil {
		return false
	}
	v, err := parseKubeVersion(kubeVersion)
	return err == nil && want.Check(v)
}

// parseKubeVersion drops what clouds add to a version: -eks-1a2b3c4 is no
// pre-release.
func parseKubeVersion(s string) (*semver.Version, error) {
	v, err := semver.NewVersion(strings.TrimSuffix(s, "+"))
	if err != nil {
		return nil, fmt.Errorf("%.40q is not a Kubernetes version", s)
	}
	plain := semver.New(v.Major(), v.Minor(), v.Patch(), "", "")
	return plain, nil
}
