package job

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var rfc1035 = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

func TestResourceNames(t *testing.T) {
	long := strings.Repeat("a", 60)
	for _, name := range []string{"internal-api", "a", "a-", "-a", "1web", "Web_App", "internal", strings.Repeat("b", 25), strings.Repeat("b", 32), strings.Repeat("b", 33), strings.Repeat("b", 64), strings.Repeat("c", 24) + "-" + strings.Repeat("d", 20), "", "ключ"} {
		j := &Job{ID: NewID("job"), Name: name}
		for _, max := range []int{20, 30, 32, 63, 64, 128} {
			for _, use := range []string{"", "tg", "vm-1"} {
				got := j.ResourceName(use, max)
				if len(got) > max || !rfc1035.MatchString(got) || strings.HasPrefix(got, "internal-") || strings.Contains(got, "--") {
					t.Errorf("name %q, use %q, max %d: %q", name, use, max, got)
				}
				if use != "" && !strings.Contains(got, use) {
					t.Errorf("name %q: %q does not say what it is for (%s)", name, got, use)
				}
			}
		}
	}
	// Two names that differ only past the cut, and two jobs of one name.
	a := &Job{ID: NewID("job"), Name: "svc-" + long + "-one"}
	b := &Job{ID: NewID("job"), Name: "svc-" + long + "-two"}
	if a.ResourceName("role", 64) == b.ResourceName("role", 64) {
		t.Error("two long names share a derived name")
	}
	b.Name = a.Name
	if a.ResourceName("role", 64) == b.ResourceName("role", 64) {
		t.Error("two jobs of one name share a derived name")
	}
	if first := a.ResourceName("role", 64); first != a.ResourceName("role", 64) {
		t.Error("a derived name is not stable")
	}
}

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	last := ""
	for range 2000 {
		id := NewID("job")
		if seen[id] || !regexp.MustCompile(`^job_[0-9a-z]{26}$`).MatchString(id) {
			t.Fatalf("ID %q", id)
		}
		if id < last {
			t.Fatalf("IDs do not sort by time: %q after %q", id, last)
		}
		seen[id], last = true, id
	}
}

func TestTokensDependOnEveryPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.String(), 1, 5).Draw(t, "parts")
		tok := Token(parts...)
		if len(tok) != 32 || tok != Token(parts...) {
			t.Fatalf("token %q", tok)
		}
		i := rapid.IntRange(0, len(parts)-1).Draw(t, "i")
		other := append([]string(nil), parts...)
		other[i] += "x"
		if Token(other...) == tok {
			t.Fatalf("part %d does not count", i)
		}
	})
}
