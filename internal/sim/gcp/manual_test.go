package gcp

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/sim"
)

// Every command of the manual's chapter on Google Cloud works, one after the other.
func TestManual(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../docs/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(b), "\n## Google Cloud\n")
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	g := newRig(t)
	commands := regexp.MustCompile(`(?s)curl '?localhost:5090(/_sim/[^\s']+)'?(?:\s+-d '(.*?)'\n|\n)`).FindAllStringSubmatch(chapter, -1)
	if len(commands) < 8 {
		t.Fatalf("the chapter has %d commands", len(commands))
	}
	for _, c := range commands {
		method := "GET"
		if c[2] != "" {
			method = "POST"
		}
		g.control(method, c[1], c[2])
	}
	faults := regexp.MustCompile(`(?m)^\{"kind".*\}$`).FindAllString(chapter, -1)
	if len(faults) < 10 {
		t.Fatalf("the chapter has %d faults", len(faults))
	}
	for _, text := range faults {
		var f sim.Fault
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		// Machines that the examples name are not there.
		if _, err := g.world.AddFault(f); err != nil && !strings.Contains(err.Error(), "no object matches") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := g.compute().Networks.Insert(testProject, newNetwork("more")).Do(); err == nil {
		t.Error("none of the faults of the manual hits")
	}
}
