package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoDatabaseIsMadeByLookingAtIt: whoever mistypes the path of a database hears
// so. An empty one, about which everything is well, would say the opposite.
func TestNoDatabaseIsMadeByLookingAtIt(t *testing.T) {
	for _, args := range [][]string{
		{"audit", "verify"}, {"secrets", "status"}, {"secrets", "rotate"}, {"orgs", "list"}, {"orgs", "create", "acme"}, {"tokens", "recover"},
	} {
		for _, scheme := range []string{"", "sqlite:"} {
			dir := t.TempDir()
			file := filepath.Join(dir, "no-such.db")
			code, out, errs := zopday(t.Context(), t, nil, append(args, "--db", scheme+file)...)
			if code == 0 || out != "" || !strings.Contains(errs, "there is no database "+file) {
				t.Errorf("%q %s: exit code %d: %s%s", args, scheme, code, out, errs)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%q made %v, error %v", args, left, err)
			}
		}
	}
}
