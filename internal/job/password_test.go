package job

import (
	"net/url"
	"regexp"
	"testing"
)

// TestPasswords makes passwords that every engine's and cloud's rules take
// (failures C14, O8), and never one twice.
func TestPasswords(t *testing.T) {
	plain := regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{31}$`)
	kinds := []*regexp.Regexp{regexp.MustCompile(`[a-z]`), regexp.MustCompile(`[A-Z]`), regexp.MustCompile(`[0-9]`)}
	seen := map[string]bool{}
	for range 10_000 {
		p := NewPassword()
		if !plain.MatchString(p) || url.QueryEscape(p) != p || seen[p] {
			t.Fatalf("%q is no password, needs quoting, or came twice", p)
		}
		for _, k := range kinds {
			if !k.MatchString(p) {
				t.Fatalf("%q has none of %s", p, k)
			}
		}
		seen[p] = true
	}
}
