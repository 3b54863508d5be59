package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// datastoreCalls are the calls of SDKs that change a datastore or what is in it, each
// with the one file that makes it: the step that creates a datastore, the teardown of
// a job that owns it, and users and databases of one that the job made. A call that is
// not here fails the test, as does one in another file. Azure, Memorystore and what
// goes as a plain request have no methods to look for: the end-to-end tests hold all
// clouds to the same by their books.
var datastoreCalls = map[string]map[string]string{
	"aws": {
		"rds.CreateDBSubnetGroup": "datastore_groups.go", "rds.DeleteDBSubnetGroup": "datastore_groups.go",
		"rds.CreateDBParameterGroup": "datastore_groups.go", "rds.ModifyDBParameterGroup": "datastore_groups.go", "rds.DeleteDBParameterGroup": "datastore_groups.go",
		"rds.CreateDBInstance": "datastore_instance.go",
		// The deletion protection that the job itself set, and what outlives the instance.
		"rds.ModifyDBInstance": "datastore_remove.go", "rds.DeleteDBInstance": "datastore_remove.go", "rds.DeleteDBInstanceAutomatedBackup": "datastore_remove.go",

		"elasticache.CreateCacheSubnetGroup": "cache.go", "elasticache.DeleteCacheSubnetGroup": "cache.go",
		"elasticache.CreateReplicationGroup": "cache.go", "elasticache.DeleteReplicationGroup": "cache_remove.go",
		"elasticache.CreateUserGroup": "cache_users.go", "elasticache.DeleteUserGroup": "cache_users.go", "elasticache.CreateUser": "cache_users.go", "elasticache.ModifyUser": "cache_users.go",
		"elasticache.DeleteUser": "cache_users.go", "elasticache.ModifyUserGroup": "cache_users.go",
	},
	"gcp": {
		"sql.Instances.Insert": "sql_instance.go", "sql.Instances.Patch": "sql.go", "sql.Instances.Delete": "sql.go",
		"sql.Instances.ExecuteSql": "sql_access.go",
	},
}

var (
	changes = regexp.MustCompile(`^(Add|Apply|Authorize|Cancel|Copy|Create|Decrease|Delete|Disable|Disassociate|Enable|Export|Failover|Increase|Migrate|Modify|Promote|Purchase|Reboot|Rebalance|Register|Remove|Reset|Restore|Revoke|Start|Stop|Switchover|Test|Upgrade)`)
	reads   = []string{"Get", "List"}
)

// TestOnlyTheStepsChangeADatastore looks for every call of the SDKs' datastore clients
// in the source of the clouds.
func TestOnlyTheStepsChangeADatastore(t *testing.T) {
	found := map[string]bool{}
	for cloud, allowed := range datastoreCalls {
		files, err := filepath.Glob("../cloud/" + cloud + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", cloud, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, call := range callsIn(t, cloud, file) {
				found[cloud+" "+call] = true
				if in := allowed[call]; in != filepath.Base(file) {
					t.Errorf("%s: %s changes a datastore, and %s", filepath.Base(file), call, map[bool]string{true: "only " + in + " may make it", false: "nothing may make it"}[in != ""])
				}
			}
		}
		for call := range allowed {
			if !found[cloud+" "+call] {
				t.Errorf("%s: nobody calls %s any more: take it out of the table", cloud, call)
			}
		}
	}
}

// callsIn are the changing calls of datastore clients in a file: for AWS by the input
// that they take, for Google Cloud by the service that they are methods of.
func callsIn(t *testing.T, cloud, file string) []string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch x := sel.X.(type) {
		case *ast.Ident: // rds.CreateDBInstanceInput
			op, input := strings.CutSuffix(sel.Sel.Name, "Input")
			if cloud == "aws" && (x.Name == "rds" || x.Name == "elasticache") && input && changes.MatchString(op) {
				out = append(out, x.Name+"."+op)
			}
		case *ast.SelectorExpr: // p.data.sql.Instances.Insert
			of, ok := x.X.(*ast.SelectorExpr)
			if cloud == "gcp" && ok && of.Sel.Name == "sql" && x.Sel.Name == "Instances" && !slices.Contains(reads, sel.Sel.Name) && !strings.HasPrefix(sel.Sel.Name, "List") {
				out = append(out, "sql.Instances."+sel.Sel.Name)
			}
		}
		return true
	})
	slices.Sort(out)
	return slices.Compact(out)
}
