package api

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

// TestNothingIsNamedLikeAnID: wherever an ID may be given, a name may be too, so a
// name of that form would stand for another thing than the one that has the ID.
func TestNothingIsNamedLikeAnID(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, filepath.Join(t.TempDir(), "ledger.db"), func(r *rig, c *provision.Config) {
		c.Accounts = accounts.New(r.db, accounts.Options{Ambient: func(string) bool { return true }})
		c.Logical = plainVault{r}
	}).withTokens()
	store := r.create(`{"resourceType":"datastore","provider":"aws","mode":"create","name":"store","region":"us-east-1","config":{"spec":{"engine":"postgres"}}}`)
	if _, err := r.ledger.Change(db.System(t.Context()), nil, "org1", store.ID, doneAs); err != nil {
		t.Fatal(err)
	}
	for path, more := range map[string]string{
		"/teams":          ``,
		"/tokens":         `,"role":"Viewer","scope":{"kind":"org"}`,
		"/roles":          `,"policies":["provisioning-job:view"]`,
		"/cloud-accounts": `,"provider":"aws","method":"ambient","permissionLevel":"read_only"`,
		"/webhooks":       `,"url":"https://example.test/hook"`,
		"/provisioning-jobs/" + store.ID + "/databases": ``,
	} {
		for _, prefix := range []string{"team", "tok", "role", "ca", "whk", "db", "job", "x"} {
			for _, name := range []string{job.NewID(prefix), strings.ToUpper(job.NewID(prefix))} {
				a := r.do(adminToken, "POST", path, `{"name":"`+name+`"`+more+`}`)
				a.fails(t, path+" "+name, 422, "invalid", "name")
				if p := a.problem(t); len(p.Errors) == 0 || p.Errors[0].Fix == "" {
					t.Errorf("%s: no fix is said: %s", path, a.body)
				}
			}
		}
	}
	team := r.made(adminToken, "/teams", `{"name":"shop"}`)
	role := r.made(adminToken, "/roles", `{"name":"looks","policies":["provisioning-job:view"]}`)
	account := r.made(adminToken, "/cloud-accounts", `{"name":"main","provider":"aws","method":"ambient","permissionLevel":"read_only"}`)
	for _, path := range []string{"/teams/" + team, "/roles/" + role, "/cloud-accounts/" + account} {
		r.do(adminToken, "PATCH", path, `{"name":"`+job.NewID("team")+`"}`).fails(t, "rename "+path, 422, "invalid", "name")
	}
	if access.GoodName(job.NewID("org")) {
		t.Error("an organisation may be called like an ID")
	}
}
