package house

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// scopedPackages are those whose SQL is looked at: all that keep rows of tenants.
var scopedPackages = []string{"ledger", "spaces", "audit", "access", "accounts", "secrets", "webhook"}

// unscoped are the functions whose statements are not of one organisation, by
// package, function and table, with the reason. All else names org_id in its WHERE,
// or joins on it: the rest of a tenant's rows is not for row-level security alone to
// hide, which SQLite does not have.
var unscoped = map[string]string{
	// Who a request is of is what these find out: by the hash of a secret that has 256 bits of chance.
	"access.Tokens.lookUp tokens":           "whose a token is, is not known before it is found",
	"access.Tokens.Session sessions":        "whose a session is, is not known before it is found",
	"access.Tokens.Leave sessions":          "by the hash of the session's own secret",
	"access.Sessions.Find sessions":         "whose a session is, is not known before it is found",
	"access.Sessions.Find users":            "joined to the session, which its secret's hash finds",
	"access.Sessions.Take sign_ins":         "by the hash of a secret of the browser that began to sign in",
	"access.Sessions.Begin sign_ins":        "counts what anybody has begun, to bound it",
	"access.Sessions.Sweep sessions":        "the system removes what is over",
	"access.Sessions.Sweep sign_ins":        "the system removes what is over",
	"access.replaceBootstrap tokens":        "the start-up looks whether the first token's text is in use",
	"access.ListOrgs organisations":         "zopday's own command on the database, and the loops of the system",
	"access.Recover organisations":          "zopday's own command on the database, for whoever runs it",
	"audit.Orgs audit_heads":                "verification and restore of the whole database",
	"audit.Orgs audit_log":                  "verification and restore of the whole database",
	"audit.Orgs organisations":              "verification and restore of the whole database",
	"access.FirstEntries organisations":     "a start looks for those that a migration made",
	"access.FirstEntries audit_heads":       "joined to the organisations that it looks for",
	"access.FirstEntries audit_log":         "joined to the organisations that it looks for",
	"access.FirstEntries tokens":            "joined to the organisations that it looks for",
	"audit.TailOf audit_log":                "of one organisation where one is named; the gauge is of all",
	"audit.unsealed audit_log":              "the sealer finds who has entries to seal",
	"secrets.StatusOf secrets":              "counts by key over the whole installation, for its operators",
	"secrets.Store.retire secrets":          "whether any secret still needs an older key",
	"secrets.secretsAfter secrets":          "a rotation rewrites the secrets of all",
	"ledger.Ledger.Stats provisioning_jobs": "numbers of the whole installation, without names",

	// The engine works for all organisations: it finds work, and writes what it holds.
	"ledger.Ledger.Claim provisioning_jobs":             "a worker takes the next job of any organisation",
	"ledger.Ledger.Renew provisioning_jobs":             "by the lease's random token",
	"ledger.Ledger.ReleaseAll provisioning_jobs":        "a worker gives back its own leases",
	"ledger.Ledger.compose provisioning_jobs":           "a checkpoint, by the lease's random token",
	"ledger.Ledger.composeBatch provisioning_jobs":      "checkpoints, by the leases' random tokens",
	"ledger.Ledger.whyFenced provisioning_jobs":         "why a checkpoint was refused: of the job that the worker held",
	"ledger.Ledger.PutObjects provisioning_jobs":        "by the lease's random token; the rows get the job's organisation",
	"ledger.Ledger.PutLogical provisioning_jobs":        "by the lease's random token",
	"ledger.Ledger.putDatabase databases":               "within PutLogical, by the job that is held",
	"ledger.Ledger.putConnection connections":           "within PutLogical, by the job that is held",
	"ledger.Ledger.WakeLogical provisioning_jobs":       "finds finished jobs of any organisation that have databases to work on",
	"ledger.Ledger.WakeLogical databases":               "within the above, joined by the job",
	"ledger.Ledger.WakeLogical connections":             "within the above, joined by the job",
	"ledger.Ledger.whoOwns inventory":                   "two organisations may share an account at a cloud: an object has one owner among all",
	"ledger.Ledger.Observable provisioning_jobs":        "an observer looks at the jobs of all",
	"ledger.Ledger.Observe provisioning_jobs":           "an observer, by ID and version as it read them",
	"ledger.Ledger.ObserveFailed provisioning_jobs":     "an observer, by ID and version as it read them",
	"ledger.Ledger.sawTheSame provisioning_jobs":        "within Observe",
	"ledger.Ledger.DueSchedules schedules":              "finds what is due in any organisation",
	"ledger.Ledger.HoldSchedule schedules":              "one that DueSchedules found, by ID and due time",
	"ledger.Ledger.EndSchedule schedules":               "one that HoldSchedule holds, by ID and due time",
	"ledger.Ledger.TakeDeliveries webhook_deliveries":   "takes what is due in any organisation",
	"ledger.Ledger.EndAttempt webhook_deliveries":       "one that TakeDeliveries holds, by ID and until when",
	"ledger.Ledger.ForgetDeliveries webhook_deliveries": "the system removes what is old",
}

// TestEveryStatementIsOfOneOrganisation reads the SQL of the packages that keep rows
// of tenants.
func TestEveryStatementIsOfOneOrganisation(t *testing.T) {
	tables := tenantTables(t)
	found, statements := map[string]string{}, 0
	for _, pkg := range scopedPackages {
		src := readSource(t, filepath.Join("..", pkg))
		for _, st := range src.statements() {
			statements++
			for _, table := range unscopedTables(st.text, tables) {
				found[pkg+"."+st.in+" "+table] = st.text
			}
		}
	}
	if statements < 150 {
		t.Errorf("only %d statements were found: the test does not read the source any more", statements)
	}
	for _, where := range slices.Sorted(maps.Keys(found)) {
		if unscoped[where] == "" {
			t.Errorf("%s: the statement does not name the organisation whose rows it reads or writes: add org_id to its WHERE, or say here why it needs none\n\t%s", where, found[where])
		}
	}
	for _, where := range slices.Sorted(maps.Keys(unscoped)) {
		if _, ok := found[where]; !ok {
			t.Errorf("%s: there is no such statement any more: take it out of the table", where)
		}
	}
}

// tenantTables are the tables that the migrations make.
func tenantTables(t *testing.T) map[string]bool {
	t.Helper()
	tables := map[string]bool{}
	files, err := filepath.Glob("../db/migrations/postgres/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations, error %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a file of this repository
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?i)CREATE TABLE (?:IF NOT EXISTS )?(\w+)`).FindAllStringSubmatch(string(text), -1) {
			tables[m[1]] = true
		}
	}
	for _, known := range []string{"provisioning_jobs", "tokens", "secrets", "audit_log"} {
		if !tables[known] {
			t.Fatalf("the migrations make no table %s: they are not read right", known)
		}
	}
	delete(tables, "workers") // the installation's own
	return tables
}

// TestUnscopedStatementsAreFound: what the test above has to find, and what not.
func TestUnscopedStatementsAreFound(t *testing.T) {
	tables := map[string]bool{"jobs": true, "tokens": true, "roles": true, "organisations": true}
	for text, want := range map[string]string{
		"SELECT id FROM jobs WHERE id = $1":                                                                                 "jobs",
		"SELECT id FROM jobs":                                                                                               "jobs",
		"SELECT org_id FROM jobs WHERE id = $1 ORDER BY org_id":                                                             "jobs",
		"SELECT id FROM jobs WHERE org_id = $1 AND id = $2":                                                                 "",
		"SELECT id FROM jobs WHERE org_id = $1 OR id = $2":                                                                  "jobs",
		"SELECT id FROM jobs WHERE (org_id = $1 OR id = $2)":                                                                "jobs",
		"SELECT id FROM jobs WHERE org_id <> $1":                                                                            "jobs",
		"SELECT id FROM jobs WHERE org_id = org_id":                                                                         "jobs",
		"UPDATE jobs SET org_id = $1 WHERE id = $2":                                                                         "jobs",
		"UPDATE jobs SET name = $3 WHERE org_id = $1 AND id = $2 RETURNING id":                                              "",
		"DELETE FROM jobs WHERE id = $1":                                                                                    "jobs",
		"SELECT j.id FROM jobs j JOIN tokens t ON t.org_id = j.org_id WHERE j.org_id = $1":                                  "",
		"SELECT j.id FROM jobs j JOIN tokens t ON t.id = j.id WHERE j.org_id = $1":                                          "tokens",
		"SELECT j.id FROM jobs j JOIN tokens t ON t.org_id = j.org_id WHERE j.id = $1":                                      "jobs tokens",
		"SELECT j.id FROM jobs j, tokens t WHERE j.org_id = $1":                                                             "tokens",
		"SELECT id FROM jobs WHERE org_id = $1 UNION SELECT id FROM tokens WHERE id = $1":                                   "tokens",
		"SELECT id FROM jobs WHERE org_id = $1 AND id IN (SELECT id FROM tokens)":                                           "tokens",
		"SELECT id FROM jobs j WHERE j.org_id = $1 AND EXISTS (SELECT 1 FROM roles r WHERE r.org_id = j.org_id)":            "",
		"WITH d AS (UPDATE jobs AS j SET a = 1 FROM unnest($1) AS i (id) WHERE j.id = i.id RETURNING j.id) SELECT 1 FROM d": "jobs",
		"INSERT INTO jobs (id) SELECT id FROM tokens WHERE id = $1":                                                         "tokens",
		"INSERT INTO jobs (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET id = excluded.id":                                 "",
		"SELECT name FROM organisations WHERE id = $1":                                                                      "",
		"SELECT name FROM organisations":                                                                                    "organisations",
	} {
		if got := strings.Join(unscopedTables(text, tables), " "); got != want {
			t.Errorf("%s\n\tfinds %q, and should find %q", text, got, want)
		}
	}
}

// TestTheSourceIsRead: statements that a package puts together of parts.
func TestTheSourceIsRead(t *testing.T) {
	dir := t.TempDir()
	const source = "package sample\n" + `
const columns = "id, name"
const from = " FROM jobs WHERE "
var held = "UPDATE jobs SET held = true WHERE id = $1"
func plain(q Q, org string) { q.Query("SELECT "+columns+" FROM jobs WHERE org_id = $1", org) }
func Plainly(q Q, id string) { q.Query("SELECT "+columns+" FROM jobs WHERE id = $1", id) }
func (s *Store) helper(q Q, where string) { q.Query("SELECT "+columns+from+where) }
func (s *Store) Scoped(q Q) { s.helper(q, "org_id = $1 AND id = $2") }
func (s *Store) Wide(q Q) { s.helper(q, "id = $2") }
func Sometimes(q Q, org string) {
	c := conditions{}
	if org != "" { c.add("org_id = ?", org) }
	q.Query(fmt.Sprintf("SELECT id FROM jobs WHERE %s", &c))
}
func always(q Q, org string) {
	c := conditions{}
	c.add("org_id = ?", org)
	if org != "" { c.add("id = ?", org) }
	q.Query(fmt.Sprintf("SELECT id FROM jobs WHERE %s", &c))
}
func parts(q Q, org string) {
	c := &clause{}
	where := "org_id = " + c.arg(org)
	where += " AND id = 3"
	q.Query("SELECT id FROM jobs WHERE "+where)
}
func table(q Q, name string) { q.Exec("DELETE FROM "+name+" WHERE id = $1") }
func Which(q Q) { table(q, "jobs") }
`
	if err := os.WriteFile(filepath.Join(dir, "sample.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, st := range readSource(t, dir).statements() {
		for _, table := range unscopedTables(st.text, map[string]bool{"jobs": true}) {
			got = append(got, st.in+" "+table)
		}
	}
	slices.Sort(got)
	want := []string{"Plainly jobs", "Sometimes jobs", "Store.Wide jobs", "Which jobs", "held jobs"}
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("found %q, and should find %q", got, want)
	}
}
