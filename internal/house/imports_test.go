// Package house holds the rules of the source tree that a compiler does not know, as tests.
package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/zopday/provisioner"

// A rule says what of this module a package may import. A name that ends in /... stands for a
// package and all below it. What a package may import, its tests may too.
type rule struct {
	may   string // separated by blanks
	tests string // for the tests besides
}

// cloudRule is the same for every cloud.
var cloudRule = rule{
	may:   "internal/job internal/pipeline internal/cidr internal/cloud internal/cloud/lookup internal/cloud/vmpool internal/bootstrap",
	tests: "internal/sim/... internal/steps internal/spaces/configv1",
}

// webArea is the same for every area of the pages: the use cases, and the types that they speak in.
var webArea = rule{
	may:   "internal/web/ui internal/job internal/access internal/accounts internal/audit internal/ledger internal/cloud internal/components internal/kube internal/provision",
	tests: "internal/web/webtest",
}

// rules has every package of the module; one that is missing here fails the test, so that whoever
// adds a package decides where it stands. The order is from the inside out.
var rules = map[string]rule{
	// The domain, and what knows nothing of ours.
	"internal/job":             {},
	"internal/cidr":            {may: "internal/job"},
	"internal/bootstrap":       {may: "internal/job"},
	"internal/schedule":        {may: "internal/job"},
	"internal/db":              {tests: "internal/pgtest"},
	"internal/secrets":         {may: "internal/db internal/job", tests: "internal/pgtest"},
	"internal/secrets/kms":     {}, // keys that do not leave a cloud: the vendors' clients, and nothing of ours
	"internal/access":          {may: "internal/db internal/job internal/audit", tests: "internal/pgtest"},
	"internal/accounts":        {may: "internal/db internal/job internal/cloud", tests: "internal/pgtest internal/secrets"},
	"internal/access/oidc":     {may: "internal/access internal/audit internal/db internal/job", tests: "internal/access/oidctest internal/pgtest"},
	"internal/access/oidctest": {},
	"internal/audit":           {may: "internal/db internal/job", tests: "internal/pgtest"},
	"internal/pipeline":        {may: "internal/job"},
	"internal/webhook":         {},
	"internal/ledger":          {may: "internal/audit internal/db internal/job internal/secrets", tests: "internal/pgtest"},

	// The clouds: never each other, and never the ledger.
	"internal/cloud":        {may: "internal/job internal/pipeline"},
	"internal/cloud/lookup": {may: "internal/job internal/pipeline"},
	"internal/cloud/vmpool": {may: "internal/job internal/pipeline internal/cloud"},
	"internal/cloud/aws":    cloudRule,
	"internal/cloud/gcp":    cloudRule,
	"internal/cloud/azure":  cloudRule,

	// What a job is made of, and who carries it out.
	"internal/spaces":                          {may: "internal/db internal/job internal/pipeline internal/spaces/...", tests: "internal/pgtest"},
	"internal/spaces/configv1":                 {},
	"internal/spaces/configv1/configv1connect": {may: "internal/spaces/configv1"},
	"internal/components":                      {may: "internal/job internal/pipeline internal/cloud internal/kube", tests: "internal/sim/..."},
	"internal/kube":                            {may: "internal/job internal/pipeline internal/cloud", tests: "internal/sim/..."},
	"internal/databases":                       {may: "internal/job internal/pipeline internal/cloud", tests: "internal/sim/..."},
	"internal/remediation":                     {may: "internal/job internal/pipeline internal/cloud"},
	"internal/steps": {
		may:   "internal/job internal/pipeline internal/cloud internal/remediation internal/kube internal/spaces/... internal/secrets internal/bootstrap",
		tests: "internal/db internal/cloud/... internal/sim/...",
	},
	"internal/reconciler": {
		may:   "internal/job internal/pipeline internal/ledger internal/audit internal/cloud internal/remediation internal/steps",
		tests: "internal/db internal/spaces/... internal/sim/... internal/cloud/... internal/pgtest",
	},

	// The use cases, and the ways to them.
	"internal/provision": {
		may: "internal/job internal/pipeline internal/ledger internal/db internal/access internal/accounts internal/audit " +
			"internal/spaces/... internal/secrets internal/cloud internal/remediation internal/schedule internal/steps internal/bootstrap internal/components internal/kube internal/webhook",
		tests: "internal/sim/... internal/cloud/... internal/reconciler internal/databases internal/pgtest",
	},
	"internal/observe": {may: "internal/ledger internal/job internal/db", tests: "internal/pgtest"},
	"internal/api": {
		// db, ledger and audit for their types alone: a filter, an entry, a passing error.
		may:   "internal/job internal/provision internal/access internal/access/oidc internal/accounts internal/cloud internal/observe internal/db internal/ledger internal/audit internal/components internal/kube",
		tests: "internal/secrets internal/spaces/... internal/cloud/... internal/reconciler internal/steps internal/sim/... internal/access/oidctest internal/pgtest",
	},
	// The pages: ui is what all areas are made of; none of these knows another.
	"internal/web":         {may: "internal/web/..."},
	"internal/web/ui":      {may: "internal/job internal/access internal/provision internal/db"},
	"internal/web/home":    webArea,
	"internal/web/webtest": {},

	"internal/client": {may: "internal/job"},
	"internal/cli":    {may: "internal/job internal/client"},
	// server puts one process together out of all that it runs, but not the simulation.
	"internal/server": {
		may: "internal/job internal/pipeline internal/db internal/secrets/... internal/access/... internal/accounts internal/audit internal/ledger " +
			"internal/cloud/... internal/components internal/databases internal/remediation internal/spaces/... internal/steps internal/reconciler internal/provision internal/observe internal/api internal/web/... internal/webhook",
		tests: "internal/sim/... internal/client internal/pgtest",
	},

	// The simulated clouds know nothing of the product, so they cannot say what it hopes to hear.
	"internal/sim":                {},
	"internal/sim/guest":          {},
	"internal/sim/charts":         {},
	"internal/sim/kube":           {may: "internal/sim"},
	"internal/sim/databases":      {may: "internal/sim"},
	"internal/sim/aws":            {may: "internal/sim internal/sim/guest", tests: "internal/sim/kube internal/sim/databases"},
	"internal/sim/gcp":            {may: "internal/sim internal/sim/guest internal/sim/gcp/...", tests: "internal/sim/kube internal/sim/databases"},
	"internal/sim/gcp/schema":     {},
	"internal/sim/gcp/schema/gen": {},
	"internal/sim/azure":          {may: "internal/sim internal/sim/guest internal/sim/azure/...", tests: "internal/sim/kube internal/sim/databases"},

	// For tests alone, and the binary.
	"internal/pgtest": {may: "internal/db"},
	"internal/e2e":    {may: "internal/...", tests: "internal/... cmd/..."},
	"internal/house":  {},
	"bench":           {may: "internal/..."},
	"cmd/zopday":      {may: "internal/..."},
}

// outside names code of others that only some packages may import, tests aside.
var outside = map[string]string{
	// The simulations take the shapes of messages from the SDKs.
	"github.com/aws/":           "internal/cloud/aws internal/sim/aws internal/secrets/kms",
	"google.golang.org/api/":    "internal/cloud/gcp internal/sim/gcp internal/secrets/kms",
	"github.com/Azure/":         "internal/cloud/azure internal/sim/azure internal/secrets/kms",
	"github.com/jackc/pgx/":     "internal/db internal/ledger internal/pgtest internal/databases internal/sim/databases",
	"github.com/go-sql-driver/": "internal/databases internal/sim/databases",
	"github.com/robfig/cron/":   "internal/schedule",
	"github.com/spf13/cobra":    "internal/cli cmd/zopday",
	"github.com/danielgtaylor":  "internal/api",
	"mvdan.cc/sh/":              "internal/bootstrap internal/sim/...",
	"k8s.io/":                   "internal/kube internal/components internal/sim/kube",
	"helm.sh/":                  "internal/components",
	"github.com/a-h/templ":      "internal/web/...",
	"github.com/chromedp/":      "internal/web/webtest",
	"testing":                   "internal/pgtest internal/e2e internal/access/oidctest internal/web/webtest",
}

type listed struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Error        *struct{ Err string }
}

func list(t *testing.T) []listed {
	t.Helper()
	// A passed test's result is cached until a file that it looked at changes, and what a command
	// looks at does not count: so every Go file is looked at here.
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports,Error", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	var packages []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// covers reports whether a list of package names has one.
func covers(names, name string) bool {
	return slices.ContainsFunc(strings.Fields(names), func(n string) bool {
		base, tree := strings.CutSuffix(n, "/...")
		return name == base || tree && strings.HasPrefix(name, base+"/")
	})
}

func violations(p listed) []string {
	name := strings.TrimPrefix(p.ImportPath, module+"/")
	r, known := rules[name]
	if !known {
		return []string{name + " is not in the table of this test"}
	}
	var found []string
	check := func(imports []string, may, what string) {
		for _, path := range imports {
			if to, ours := strings.CutPrefix(path, module+"/"); ours && to != name && !covers(may, to) {
				found = append(found, name+what+" imports "+to)
			}
		}
	}
	check(p.Imports, r.may, "")
	check(p.TestImports, r.may+" "+r.tests, " (test)")
	check(p.XTestImports, r.may+" "+r.tests, " (test)")
	for prefix, users := range outside {
		for _, path := range p.Imports {
			if strings.HasPrefix(path, prefix) && !covers(users, name) {
				found = append(found, name+" imports "+path+", which is for "+users)
			}
		}
	}
	return found
}

func TestImports(t *testing.T) {
	packages := list(t)
	if len(packages) < 10 {
		t.Fatalf("go list found %d packages", len(packages))
	}
	for _, p := range packages {
		if p.Error != nil {
			t.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
		for _, v := range violations(p) {
			t.Error(v)
		}
	}
}

// The rule must be able to say no.
func TestImportsRefuses(t *testing.T) {
	at := func(name string) string { return module + "/" + name }
	for _, tc := range []struct {
		name string
		p    listed
		want int
	}{
		{"an unknown package", listed{ImportPath: at("internal/util")}, 1},
		{"the simulation knows the domain", listed{ImportPath: at("internal/sim/aws"), Imports: []string{at("internal/job")}}, 1},
		{"so do its tests", listed{ImportPath: at("internal/sim"), TestImports: []string{at("internal/job")}}, 1},
		{"a cloud knows the ledger", listed{ImportPath: at("internal/cloud/aws"), XTestImports: []string{at("internal/ledger")}}, 1},
		{"the product knows the simulation", listed{ImportPath: at("internal/steps"), Imports: []string{at("internal/sim/aws")}}, 1},
		{"its tests may", listed{ImportPath: at("internal/steps"), TestImports: []string{at("internal/sim/aws")}}, 0},
		{"itself, from outside tests", listed{ImportPath: at("internal/job"), XTestImports: []string{at("internal/job")}}, 0},
		{"an SDK beyond its package", listed{ImportPath: at("internal/steps"), Imports: []string{"github.com/aws/aws-sdk-go-v2/aws"}}, 1},
		{"the standard library", listed{ImportPath: at("internal/job"), Imports: []string{"strings"}}, 0},
	} {
		if got := violations(tc.p); len(got) != tc.want {
			t.Errorf("%s: %q, want %d", tc.name, got, tc.want)
		}
	}
}
