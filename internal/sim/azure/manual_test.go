package azure

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every command of the manual's chapter on Azure works, one after the other.
func TestManual(t *testing.T) {
	t.Parallel()
	_, chapter, _ := strings.Cut(string(must(os.ReadFile("../../../docs/simulation.md"))(t)), "\n## Azure\n")
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	g := newRig(t)
	// The chapter speaks of two machines that are there.
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	for _, name := range []string{"web-1", "web-2"} {
		p, err := g.compute().NewVirtualMachinesClient().BeginCreateOrUpdate(g.ctx, "rg", name, vmModel(g.nic("nic-of-"+name), "#!/bin/sh\n"), nil)
		done(g, p, err)
	}
	control := g.world.Control()
	call := func(method, path, body string) {
		rec := httptest.NewRecorder()
		control.ServeHTTP(rec, httptest.NewRequestWithContext(g.ctx, method, path, strings.NewReader(body)))
		if rec.Code != http.StatusOK {
			t.Errorf("%s %s %s: %d %s", method, path, body, rec.Code, rec.Body)
		}
	}
	commands := regexp.MustCompile(`(?s)curl '?localhost:5090(/_sim/[^\s']+)'?(?:\s+-d '(.*?)'\n|\n)`).FindAllStringSubmatch(chapter, -1)
	if len(commands) < 11 {
		t.Fatalf("the chapter has %d commands", len(commands))
	}
	for _, c := range commands {
		method := http.MethodGet
		if c[2] != "" {
			method = http.MethodPost
		}
		call(method, c[1], c[2])
	}
	faults := regexp.MustCompile(`(?m)^\{"kind".*\}$`).FindAllString(chapter, -1)
	if len(faults) < 12 {
		t.Fatalf("the chapter has %d faults", len(faults))
	}
	for _, f := range faults {
		call(http.MethodPost, "/_sim/faults", f)
	}
	if _, err := g.groups().Get(g.ctx, "theirs", nil); err == nil {
		t.Error("none of the faults of the manual hits")
	}
	for _, id := range []string{DefaultTenant, DefaultSubscription, OtherSubscription, DefaultClientID, OtherClientID, DefaultClientSecret, CAFile} {
		if !strings.Contains(chapter, id) {
			t.Errorf("the chapter does not name %s", id)
		}
	}
}
