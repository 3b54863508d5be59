package components

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/zopday/provisioner/internal/job"
)

var (
	nameRE   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?$`)
	digestRE = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	wordRE   = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// The facts of a cluster that an entry's values can be taken from.
const (
	factName    = "name"
	factRegion  = "region"
	factNetwork = "network"
	factAccount = "account"
)

// add puts an entry into the catalogue, with defaults filled in; at says where
// it stands, for the error.
func (c *Catalogue) add(at string, e Entry) error {
	if e.Release == "" {
		e.Release = e.Name
	}
	faults := e.faults()
	if _, taken := c.entries[e.Name]; taken {
		faults = append(faults, fmt.Errorf("name: the catalogue has a component %s already", e.Name))
	}
	if len(faults) > 0 {
		for i := range faults {
			faults[i] = fmt.Errorf("%s: %w", at, faults[i])
		}
		return errors.Join(faults...)
	}
	c.entries[e.Name] = e
	return nil
}

// faults is everything wrong with an entry by itself.
func (e Entry) faults() (out []error) {
	bad := func(field, format string, args ...any) {
		out = append(out, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	for _, f := range []struct{ field, value string }{{"name", e.Name}, {"release", e.Release}, {"namespace", e.Namespace}} {
		if !nameRE.MatchString(f.value) {
			bad(f.field, "%.60q is not 1 to 53 of a-z, 0-9 and hyphen", f.value)
		}
	}
	if e.Title == "" {
		bad("title", "is missing")
	}
	if !wordRE.MatchString(e.Category) {
		bad("category", "%.60q is not a word of a-z, 0-9 and hyphen", e.Category)
	}
	if e.License == "" {
		bad("license", "is missing")
	}
	if _, err := url.ParseRequestURI(e.Source); err != nil {
		bad("source", "%.100q is not an address", e.Source)
	}
	if e.Version == "" {
		bad("version", "is missing: one version is pinned")
	} else if _, err := semver.NewVersion(e.Version); err != nil {
		bad("version", "%.60q is not a version", e.Version)
	}
	if _, err := semver.NewConstraint(e.KubeVersion); e.KubeVersion != "" && err != nil {
		bad("kubeVersion", "%.60q is not a range of versions", e.KubeVersion)
	}
	for i, p := range e.Providers {
		if !slices.Contains([]job.Provider{job.AWS, job.GCP, job.Azure}, p) {
			bad(fmt.Sprintf("providers[%d]", i), "%.20q is not aws, gcp or azure", p)
		}
	}
	if e.AdoptOnly != (e.Reason != "") {
		bad("reason", "is given for what is adoptOnly, and only then")
	}
	for path, fact := range e.FromCluster {
		if !slices.Contains([]string{factName, factRegion, factNetwork, factAccount}, fact) {
			bad("fromCluster."+path, "%.20q is not name, region, network or account", fact)
		}
	}
	return append(out, e.Chart.faults()...)
}

func (c Chart) faults() (out []error) {
	u, err := url.Parse(c.Repository)
	switch {
	case err != nil, u.Host == "", !slices.Contains([]string{"https", "http", "oci"}, u.Scheme):
		out = append(out, fmt.Errorf("chart.repository: %.100q is not an https:// or oci:// address", c.Repository))
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		out = append(out, errors.New("chart.repository: holds more than an address; credentials are given to the server, not here"))
	}
	if c.Name == "" || strings.ContainsAny(c.Name, "/:@ ") {
		out = append(out, fmt.Errorf("chart.name: %.60q is not a chart's name", c.Name))
	}
	if c.Digest != "" && !digestRE.MatchString(c.Digest) {
		out = append(out, fmt.Errorf("chart.digest: %.80q is not sha256: and 64 hexadecimal digits", c.Digest))
	}
	return out
}

// checkDependencies finds dependencies that the catalogue does not have, and
// circles of them.
func (c *Catalogue) checkDependencies() error {
	var faults []error
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.entries)) {
		all = append(all, name)
		for _, d := range c.entries[name].DependsOn {
			if _, ok := c.entries[d]; !ok {
				faults = append(faults, fmt.Errorf("%s: dependsOn: the catalogue has no component %s", name, d))
			}
		}
	}
	if len(faults) == 0 {
		if _, circle := levels(all, c.dependencies); circle != nil {
			faults = append(faults, fmt.Errorf("dependsOn goes in a circle: %s", strings.Join(circle, " → ")))
		}
	}
	return errors.Join(faults...)
}

func (c *Catalogue) dependencies(name string) []string { return c.entries[name].DependsOn }
