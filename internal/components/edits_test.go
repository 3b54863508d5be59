package components

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A script makes the second text out of the first.
func TestEdits(t *testing.T) {
	line := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(line, 0, 30).Draw(t, "a"), rapid.SliceOfN(line, 0, 30).Draw(t, "b")
		var from, to []string
		for _, e := range edits(a, b) {
			if e.a != len(from) || e.b != len(to) {
				t.Fatalf("%+v comes after %d and %d lines", e, len(from), len(to))
			}
			if e.kind != '+' {
				from = append(from, e.text)
			}
			if e.kind != '-' {
				to = append(to, e.text)
			}
		}
		if !slices.Equal(from, a) || !slices.Equal(to, b) {
			t.Fatalf("%q and %q", from, to)
		}
	})
}

func TestUnified(t *testing.T) {
	before := strings.Join(strings.Split("1234567890abcdefghij", ""), "\n") + "\n"
	after := strings.Replace(strings.Replace(before, "3\n", "three\n", 1), "i\n", "", 1)
	want := "@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+three\n 4\n 5\n 6\n@@ -16,5 +16,4 @@\n f\n g\n h\n-i\n j\n"
	if got := unified(before, after); got != want {
		t.Errorf("%s", got)
	}
	if got := unified("", "a\nb\n"); got != "@@ -1,0 +1,2 @@\n+a\n+b\n" {
		t.Errorf("%q", got)
	}
	if unified("x\n", "x\n") != "" {
		t.Error("a difference between equals")
	}
	// Too different to search for the shortest script.
	var a, b strings.Builder
	for i := range 2000 {
		a.WriteString(strings.Repeat("a", i%7) + "\n")
		b.WriteString(strings.Repeat("b", i%5+1) + "\n")
	}
	if got := strings.Count(unified(a.String(), b.String()), "\n"); got != 4001 {
		t.Errorf("%d lines", got)
	}
}
