package cli

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	tokenAnswer = `{"data":{"id":"tok_1","name":"ci","hint":"abcdefgh","state":"live","createdBy":"ana","createdAt":"2026-11-30T10:00:00Z","expiresAt":"2027-02-28T10:00:00Z",
		"grants":[{"assignment":"asg_1","role":"Editor","scope":{"kind":"team","id":"team_1"}}]}}`
	newTokenAnswer = `{"data":{"id":"tok_1","name":"ci","hint":"abcdefgh","state":"live","createdBy":"ana","createdAt":"2026-11-30T10:00:00Z","token":"zop_secret",
		"grants":[{"assignment":"asg_1","role":"Viewer","scope":{"kind":"org"}}]}}`
	tokensAnswer      = `{"data":[{"id":"tok_1","name":"ci","hint":"abcdefgh","state":"live","createdBy":"ana","createdAt":"2026-11-30T10:00:00Z","grants":[{"role":"Viewer","scope":{"kind":"org"}}]}],"meta":{"nextCursor":"tok_1"}}`
	roleAnswer        = `{"data":{"id":"role_1","name":"runner","description":"Runs\u001b[31m","policies":["provisioning-job:retry","vm:operate"],"builtIn":false}}`
	rolesAnswer       = `{"data":[{"id":"Admin","name":"Admin","policies":["vm:operate"],"builtIn":true},{"id":"role_1","name":"runner","policies":["vm:operate"],"builtIn":false}],"meta":{"nextCursor":null}}`
	policiesAnswer    = `{"data":[{"policy":"vm:operate","description":"Attach","roles":["Admin","Editor"]}]}`
	assignmentAnswer  = `{"data":{"id":"asg_1","subject":{"kind":"group","id":"platform"},"role":"Editor","scope":{"kind":"team","id":"shop"},"createdBy":"ana","createdAt":"2026-11-30T10:00:00Z"}}`
	assignmentsAnswer = `{"data":[{"id":"asg_1","subject":{"kind":"group","id":"platform"},"role":"Editor","scope":{"kind":"team","id":"shop"},"createdBy":"ana","createdAt":"2026-11-30T10:00:00Z"}],"meta":{"nextCursor":null}}`
	teamAnswer        = `{"data":{"id":"team_1","name":"shop","createdBy":"ana","createdAt":"2026-11-30T10:00:00Z"}}`
	teamsAnswer       = `{"data":[{"id":"team_1","name":"shop","createdBy":"ana","createdAt":"2026-11-30T10:00:00Z"}],"meta":{"nextCursor":null}}`
	whoAnswer         = `{"data":{"organisation":{"id":"default","name":"default"},"actor":"token:ci","permissions":[{"policy":"vm:operate","held":[{"role":"Editor","scope":{"kind":"resource","id":"job_1"},"assignment":"asg_1"}]}]}}`
	mayAnswer         = `{"data":{"subject":"token:tok_1","works":false,"permissions":[{"policy":"vm:operate","held":[{"role":"Editor","scope":{"kind":"org"},"assignment":"asg_1"}]}]}}`
)

func withAccess(t *testing.T) *fakeAPI {
	f := newFake(t)
	maps.Copy(f.answers, map[string]string{
		"GET /tokens": tokensAnswer, "POST /tokens": newTokenAnswer, "GET /tokens/ci": tokenAnswer, "POST /tokens/ci/rotate": newTokenAnswer, "DELETE /tokens/tok_1": "",
		"GET /roles": rolesAnswer, "POST /roles": roleAnswer, "GET /roles/runner": roleAnswer, "PATCH /roles/runner": roleAnswer, "DELETE /roles/runner": `{"data":{"role":"role_1","assignmentsRemoved":3}}`,
		"GET /policies": policiesAnswer, "GET /assignments": assignmentsAnswer, "POST /assignments": assignmentAnswer, "DELETE /assignments/asg_1": "", "GET /effective-permissions": mayAnswer,
		"GET /teams": teamsAnswer, "POST /teams": teamAnswer, "PATCH /teams/shop": teamAnswer, "DELETE /teams/shop": "", "GET /whoami": whoAnswer,
	})
	return f
}

// TestFormatsOfAccess: every command that reads says the same in every format.
func TestFormatsOfAccess(t *testing.T) {
	f := withAccess(t)
	for _, tc := range []struct {
		args  string
		table []string // in the table, in this order
		path  string   // its body is -o json
	}{
		{"tokens list", []string{"NAME", "GRANTS", "ci", "live", "Viewer@org", "never", "abcdefgh", "ana", "tok_1"}, "GET /tokens"},
		{"tokens get ci", []string{"ci", "tok_1", "live", "Editor@team:team_1", "2027-02-28"}, "GET /tokens/ci"},
		{"roles list", []string{"NAME", "Admin", "built in", "runner", "own", "role_1"}, "GET /roles"},
		{"roles get runner", []string{"runner", "role_1", "Runs", "provisioning-job:retry", "vm:operate"}, "GET /roles/runner"},
		{"roles create runner --policy vm:operate", []string{"runner", "vm:operate"}, "POST /roles"},
		{"roles update runner --description x", []string{"runner"}, "PATCH /roles/runner"},
		{"roles policies", []string{"POLICY", "vm:operate", "Admin, Editor", "Attach"}, "GET /policies"},
		{"assignments list --subject group:platform --scope team:shop", []string{"SUBJECT", "group:platform", "Editor", "team:shop", "asg_1"}, "GET /assignments"},
		{"assignments create --subject group:platform --role Editor --scope team:shop", []string{"group:platform", "Editor", "team:shop"}, "POST /assignments"},
		{"assignments check token:ci", []string{"POLICY", "vm:operate", "org", "Editor asg_1"}, "GET /effective-permissions"},
		{"teams list", []string{"NAME", "shop", "team_1"}, "GET /teams"},
		{"teams create shop", []string{"shop", "team_1"}, "POST /teams"},
		{"teams rename shop bank", []string{"shop"}, "PATCH /teams/shop"},
		{"whoami", []string{"token:ci", "default", "Editor for job_1 (asg_1)", "vm:operate"}, "GET /whoami"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := strings.Fields(tc.args)
			got := run(t, f).do(args...)
			rest := got.out
			for _, want := range tc.table {
				i := strings.Index(rest, want)
				if i < 0 {
					t.Fatalf("no %q (in this order) in\n%s%s", want, got.out, got.err)
				}
				rest = rest[i:]
			}
			if got.code != exitDone || strings.ContainsAny(got.out, "\x1b\x07") {
				t.Errorf("exit code %d, %q", got.code, got.out)
			}
			var want, have any
			if err := json.Unmarshal([]byte(f.answers[tc.path]), &want); err != nil {
				t.Fatal(err)
			}
			if got = run(t, f).do(append(args, "-o", "json")...); got.code != exitDone || json.Unmarshal([]byte(got.out), &have) != nil || cmp.Diff(want, have) != "" {
				t.Errorf("json: %d %s%s", got.code, got.out, got.err)
			}
			if got = run(t, f).do(append(args, "-o", "yaml")...); got.code != exitDone || !strings.HasPrefix(got.out, "data:\n") {
				t.Errorf("yaml: %d %s%s", got.code, got.out, got.err)
			}
		})
	}
	if f.sent("GET /assignments?scopeId=shop&scopeKind=team&subject=platform&subjectKind=group") == 0 {
		t.Errorf("the filters are not sent: %q", f.requests)
	}
}

// TestSecretsAlone: the text of a token that was made is all that there is on the
// standard output, so that it can be piped, also with -o name.
func TestSecretsAlone(t *testing.T) {
	f := withAccess(t)
	for _, line := range []string{"tokens create ci --role Viewer", "tokens rotate ci --expires-in 30d", "tokens create ci --grant Viewer -o name"} {
		got := run(t, f).do(strings.Fields(line)...)
		if got.code != exitDone || got.out != "zop_secret\n" || strings.Contains(got.err, "zop_secret") || !strings.Contains(got.err, "once") {
			t.Errorf("%s: %+v", line, got)
		}
	}
	if got := run(t, f).do("tokens", "create", "ci", "--role", "Viewer", "-o", "json"); got.code != exitDone || !strings.Contains(got.out, `"token": "zop_secret"`) {
		t.Errorf("%+v", got)
	}
	run(t, f).do("tokens", "create", "ci", "--role", "Viewer", "--scope", "team:shop", "--grant", "Editor@job_1", "--expires-in", "never")
	want := `{"expiresIn":"never","grants":[{"role":"Viewer","scope":{"kind":"team","id":"shop"}},{"role":"Editor","scope":{"kind":"resource","id":"job_1"}}],"name":"ci"}`
	if got := f.sentBody("POST /tokens"); got != want {
		t.Errorf("sent %s", got)
	}
	for _, line := range []string{"tokens create ci", "tokens create ci --role Viewer --scope world", "assignments create --subject robot:x --role Viewer --scope org", "assignments create --subject token:x --role Viewer",
		"assignments list --subject x", "assignments check x", "orgs list", "tokens recover"} {
		if got := run(t, f).do(strings.Fields(line)...); got.code != exitUsage {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func TestEndsOfAccess(t *testing.T) {
	f := withAccess(t)
	for line, says := range map[string]string{
		"tokens revoke ci --yes": "revoked", "roles delete runner --yes": "3 of its assignments", "assignments delete asg_1": "Deleted", "teams delete shop --yes": "Deleted",
	} {
		if got := run(t, f).do(strings.Fields(line)...); got.code != exitDone || !strings.Contains(got.err, says) {
			t.Errorf("%s: %+v", line, got)
		}
	}
	for _, line := range []string{"tokens revoke ci", "roles delete runner", "teams delete shop"} {
		if got := run(t, f).do(strings.Fields(line)...); got.code != exitUsage || !strings.Contains(got.err, "--yes") {
			t.Errorf("%s without consent: %+v", line, got)
		}
	}
	for line, offers := range map[string]string{
		"tokens get ": "ci\t", "tokens create x --role ": "runner", "roles create x --policy ": "vm:operate", "assignments create --subject ": "token:ci", "assignments create --scope ": "team:shop",
		"assignments delete ": "asg_1", "teams rename ": "shop",
	} {
		if got := run(t, f).do(append([]string{"__complete"}, strings.Split(line, " ")...)...); !strings.Contains(got.out, offers) {
			t.Errorf("%s offers %q, not %q", line, got.out, offers)
		}
	}
}

// TestOrganisationsOnTheDatabase: without any server.
func TestOrganisationsOnTheDatabase(t *testing.T) {
	var asked []string
	back := Backends{
		CreateOrg: func(_ context.Context, dsn, name string) (Org, string, error) {
			asked = append(asked, "create "+name+" in "+dsn)
			return Org{ID: "org_1", Name: name, CreatedAt: time.Now()}, "zop_first", nil
		},
		ListOrgs: func(_ context.Context, dsn string) ([]Org, error) {
			asked = append(asked, "list "+dsn)
			return []Org{{ID: "org_1", Name: "acme"}}, nil
		},
		RecoverToken: func(_ context.Context, dsn, org string) (string, string, error) {
			asked = append(asked, "recover "+org+" in "+dsn)
			return "recovery-1", "zop_again", nil
		},
	}
	for line, out := range map[string]string{
		"orgs create acme --db x.db": "zop_first\n", "tokens recover --db x.db": "zop_again\n", "orgs list --db x.db -o name": "org_1\n",
	} {
		r := run(t, nil)
		r.b = back
		if got := r.do(strings.Fields(line)...); got.code != exitDone || got.out != out || strings.Contains(got.err, "zop_") {
			t.Errorf("%s: %+v", line, got)
		}
	}
	r := run(t, nil)
	r.b, r.env["ZOPDAY_DB"] = back, "postgres://secret@x"
	if got := r.do("orgs", "list"); got.code != exitDone || !strings.Contains(got.out, "acme") {
		t.Errorf("%+v", got)
	}
	if got := r.do("orgs", "create", "acme", "-o", "json"); got.code != exitDone || !strings.Contains(got.out, `"token": "zop_first"`) {
		t.Errorf("%+v", got)
	}
	if len(asked) != 5 || asked[3] != "list postgres://secret@x" {
		t.Errorf("%q", asked)
	}
}

// TestWhoAmIByAssignment: what is held is told once for each assignment, with the
// names of teams; and it is said when nothing is.
func TestWhoAmIByAssignment(t *testing.T) {
	f := withAccess(t)
	f.answers["GET /whoami"] = `{"data":{"organisation":{"id":"default","name":"default"},"actor":"token:ci","permissions":[
		{"policy":"vm:operate","held":[{"role":"Editor","scope":{"kind":"team","id":"team_1"},"assignment":"asg_1"},{"role":"Viewer","scope":{"kind":"org"}}]},
		{"policy":"vm:view","held":[{"role":"Editor","scope":{"kind":"team","id":"team_1"},"assignment":"asg_1"},{"role":"Own","scope":{"kind":"team","id":"team_gone"},"assignment":"asg_2"}]}]}}`
	want := `Actor         token:ci
Organisation  default (default)

Editor for the team shop (asg_1)
  vm:operate, vm:view

Viewer for the whole organisation (by the configuration of sign-in)
  vm:operate

Own for the team team_gone (asg_2)
  vm:view
`
	if got := run(t, f).do("whoami"); got.code != exitDone || got.out != want {
		t.Errorf("exit code %d: %s", got.code, cmp.Diff(want, got.out))
	}
	f.answers["GET /effective-permissions"] = `{"data":{"subject":"token:tok_1","works":true,"permissions":[]}}`
	if got := run(t, f).do("assignments", "check", "token:ci"); got.code != exitDone || !strings.Contains(got.out, "token:tok_1 holds nothing") {
		t.Errorf("exit code %d: %q", got.code, got.out)
	}
}
