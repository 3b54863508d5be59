package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What the API says in requests, the command line says in commands.
func TestHintsSpeakInCommands(t *testing.T) {
	for hint, want := range map[string]string{
		"GET …/plan lists what the teardown takes. Repeat the request with ?confirm=shop": "zopday jobs plan JOB lists what the teardown takes. Repeat the command with --confirm shop",
		"GET /provisioning-jobs lists what there is.":                                     "zopday jobs list shows what there is.",
		"Retry it, or tear it down with DELETE.":                                          "Retry it, or tear it down with zopday jobs delete JOB.",
		"Change what the message names (PATCH the job), then retry.":                      "Change what the message names (zopday jobs update JOB), then retry.",
		"GET /spaces lists what there is.":                                                "zopday spaces list shows what there is.",
		"use the ID of one from GET /spaces":                                              "use the ID of one from zopday spaces list",
		"name one of type kubernetes: GET /spaces":                                        "name one of type kubernetes: zopday spaces list",
		"register the cluster as a space: POST /spaces":                                   "register the cluster as a space: zopday spaces register",
		"GET /catalog/components lists what there is.":                                    "zopday components list shows what there is.",
		"use a name from GET /catalog/components":                                         "use a name from zopday components list",
		`Send it with {"componentOp":"upgrade"}.`:                                         "Send it with zopday components upgrade JOB.",
		"GET /cloud-accounts lists those that there are; POST makes one":                  "zopday accounts list shows those that there are; zopday accounts add makes one",
		"GET /teams lists them; leave it out for the organisation as a whole":             "zopday teams list shows them; leave it out for the organisation as a whole",
		"Make a new one with POST /tokens.":                                               "Make a new one with zopday tokens create.",
		"GET /assignments lists what there is.":                                           "zopday assignments list shows what there is.",
		`Switch it on with PATCH {"enabled":true} first.`:                                 "Switch it on with zopday webhooks enable WEBHOOK first.",
		"GET /webhooks/whk_1/deliveries lists what there is.":                             "zopday webhooks deliveries whk_1 shows what there is.",
		"use POST and DELETE /provisioning-jobs/job_1/databases":                          "use zopday databases create and delete for job_1",
		"Use the whole ID.":                                                               "Use the whole ID.",
	} {
		if got := asCommands.Replace(hint); got != want {
			t.Errorf("%q became %q", hint, got)
		}
	}
}

// request is how a hint of the API speaks of a request.
var request = regexp.MustCompile(`\b(GET|POST|PATCH|PUT|DELETE)\b`)

// TestEveryHintSpeaksInCommands reads what the use cases say, and finds requests for
// which there is no command.
func TestEveryHintSpeaksInCommands(t *testing.T) {
	found := 0
	for _, dir := range []string{"../provision", "../access", "../accounts", "../job"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") || filepath.Base(f) == "explain.go" {
				continue // explain.go gives commands and requests side by side
			}
			file, err := parser.ParseFile(token.NewFileSet(), f, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range spoken(file) {
				if strings.Contains(text, "DELETE FROM") || strings.Contains(text, "GET /users") || !request.MatchString(text) {
					continue // SQL, and people, who are managed over REST alone
				}
				found++
				if got := asCommands.Replace(text); request.MatchString(got) {
					t.Errorf("%s: %q", f, got)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d hints speak of requests", found)
	}
}

// spoken are the texts of a package, put together where they are made of parts, with
// x1 in the place of what is known at run time alone.
func spoken(root ast.Node) (out []string) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Field:
			return x.Tag == nil
		case *ast.FuncDecl:
			return x.Name.Name != "missing" // its parts are at its callers
		case *ast.CallExpr:
			if f, ok := x.Fun.(*ast.Ident); ok && f.Name == "missing" && len(x.Args) == 2 {
				out = append(out, "GET "+folded(x.Args[1])+" lists what there is.")
			}
		case *ast.BinaryExpr, *ast.BasicLit:
			if text := folded(x.(ast.Expr)); text != "x1" {
				out = append(out, text)
				return false
			}
		}
		return true
	})
	return out
}

func folded(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(x.Value); x.Kind == token.STRING && err == nil {
			return s
		}
	case *ast.BinaryExpr:
		if l, r := folded(x.X), folded(x.Y); x.Op == token.ADD && l+r != "x1x1" {
			return l + r
		}
	}
	return "x1"
}
