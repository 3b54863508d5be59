package gcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
)

// Whether a final backup is taken is what the spec says when the datastore is deleted,
// not what it said when it was made.
func TestFinalBackupIsDecidedAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		backup        bool
	}{
		"asked for later":    {`{"engine":"postgres","skipFinalSnapshot":true}`, `{"engine":"postgres","skipFinalSnapshot":false}`, true},
		"given up later":     {`{"engine":"postgres"}`, `{"engine":"postgres","skipFinalSnapshot":true}`, false},
		"asked for all time": {`{"engine":"postgres"}`, `{"engine":"postgres"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, job.Datastore, job.ModeCreate, c.before)
			g.up()
			g.job.Config.Spec = json.RawMessage(c.after)
			g.down()
			name := g.store().FinalSnapshot
			if c.backup && name != g.store().Name+"-final" {
				t.Errorf("the final backup is called %q", name)
			}
			if kept := g.kept(); len(kept) != map[bool]int{true: 1}[c.backup] || c.backup && kept[name] == "" {
				t.Errorf("kept %v, and the final backup is %q", kept, name)
			}
			if c.backup {
				g.onlyBackup()
			} else if left := g.world.Residue(g.job.ID); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

// Nobody gets a credential with all rights as one that only reads, and where there is
// none an empty password is not handed out as one.
func TestCacheUsersNotOffered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec, change string
		mode         job.AccessMode
		says, hint   string
	}{
		"redis, to read":        {redisSpec, "", job.ReadOnly, "one AUTH string", "read_write"},
		"valkey":                {valkeySpec, "", job.ReadWrite, "MS-04", "without a password"},
		"valkey, to read":       {valkeySpec, "", job.ReadOnly, "MS-04", "without a password"},
		"valkey, let in by IAM": {valkeySpec, `{"authorizationMode":"IAM_AUTH"}`, job.ReadWrite, "principals of IAM", "roles/memorystore.dbConnectionUser"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, job.Cache, job.ModeCreate, c.spec)
			g.up()
			if c.change != "" {
				defer g.patch(g.store().ID, c.change)()
			}
			got, err := g.p.EnsureCacheUser(t.Context(), g.job, "shop", "unused", c.mode)
			f := fatal(err)
			if f == nil || f.Problem.Code != "not-offered" || !strings.Contains(f.Problem.Message, c.says) || !strings.Contains(f.Problem.Hint, c.hint) {
				t.Errorf("%v (%+v)", err, f)
			}
			if got.User != "" || got.Password != "" {
				t.Errorf("gave a credential of %q", got.User)
			}
		})
	}
}
