package components

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// helmIndex is an index as Helm writes it: some charts with many versions, in
// whose texts stands what looks like other keys.
func helmIndex(charts, versions int) string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nentries:\n")
	for c := range charts {
		fmt.Fprintf(&b, "  chart-%d:\n", c)
		for v := range versions {
			fmt.Fprintf(&b, `  - annotations:
      links: |
        entries:
        chart-1:
        - version: 9.9.9

        # no comment
    appVersion: v0.%[2]d.1
    description: 'words: of a chart that go on
      chart-2: here'
    digest: %064[2]d
    keywords:
    - operator
    maintainers:
    - email: someone@example.com
      name: chart-%[1]d
    name: chart-%[1]d
    urls:
    - https://example.com/chart-%[1]d-%[2]d.0.0.tgz
    version: %[2]d.0.0
`, c, v)
		}
	}
	b.WriteString("generated: \"2026-01-01T00:00:00Z\"\n")
	return b.String()
}

// TestIndexOfOneChart: what is cut out of an index says the same as the whole.
func TestIndexOfOneChart(t *testing.T) {
	helm := helmIndex(12, 3)
	entries, _, _ := strings.Cut(helm, "generated:")
	for what, c := range map[string]struct {
		index string
		cut   bool
	}{
		"as Helm writes it":    {helm, true},
		"with Windows's lines": {strings.ReplaceAll(helm, "\n", "\r\n"), true},
		"with comments":        {strings.ReplaceAll(helm, "  chart-2:\n", "# of it\n\n  # its\n  chart-2:\n"), true},
		"indented further":     {strings.Replace(strings.ReplaceAll(entries, "\n", "\n  "), "\n  entries:", "\nentries:", 1), true},
		"with quoted names":    {strings.ReplaceAll(helm, "  chart-1:\n  -", "  \"chart-1\":\n  -"), true},
		"not ending in a line": {strings.TrimSuffix(entries, "\n"), true},
		"in flow style":        {`{"apiVersion": "v1", "entries": {"chart-1": [{"version": "1.0.0", "urls": ["a"]}]}}`, false},
		"of nothing":           {"apiVersion: v1\nentries: {}\n", false},
		"with an anchor":       {"apiVersion: v1\nurls: &u [x.tgz]\nentries:\n  chart-1:\n  - {version: 1.0.0, urls: *u}\n", true},
	} {
		for _, name := range []string{"chart-1", "chart-11", "chart-2", "chart", "chart-99"} {
			var doc struct {
				Entries map[string][]indexEntry `json:"entries"`
			}
			wantErr := yaml.Unmarshal([]byte(c.index), &doc)
			got, err := versionsIn([]byte(c.index), name)
			if (err != nil) != (wantErr != nil) || !reflect.DeepEqual(got, doc.Entries[name]) {
				t.Errorf("%s, %s: %v, %v; whole, it is %v, %v", what, name, got, err, doc.Entries[name], wantErr)
			}
			if cut := cutEntry([]byte(c.index), name) != nil; cut != (c.cut && len(doc.Entries[name]) > 0) {
				t.Errorf("%s, %s: cut out is %t", what, name, cut)
			}
		}
	}
}

// TestIndexTakesLittleMemory: the index of a repository with a long history does
// not take many times its size.
func TestIndexTakesLittleMemory(t *testing.T) {
	index := []byte(helmIndex(60, 300))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found, newest, err := findInIndex(index, "chart-40", "7.0.0")
	runtime.ReadMemStats(&after)
	if err != nil || found == nil || found.URLs[0] != "https://example.com/chart-40-7.0.0.tgz" || newest != "299.0.0" {
		t.Fatalf("found %v, newest %s, %v", found, newest, err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > uint64(2*len(index)) {
		t.Errorf("%d KiB were allocated for an index of %d KiB", taken>>10, len(index)>>10)
	}
}
