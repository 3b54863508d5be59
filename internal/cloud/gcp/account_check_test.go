package gcp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// Who the credentials are, by each way to get some; what may not be read is left
// out, and a project that may not be used is an error.
func TestCallerIdentity(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{TimeScale: 1}, job.ModeCreate, `{}`)
	email, key := g.keyOf("other-project", "deployer")
	store := &accounts{}
	store.put(cloud.Account{ID: "ca_key", OrgID: "org_1", Method: cloud.MethodServiceAccountKey, Secret: cloud.Secret{Key: key}})
	store.put(cloud.Account{ID: "ca_self", OrgID: "org_1", Method: cloud.MethodAmbient})
	store.put(cloud.Account{ID: "ca_nowhere", OrgID: "org_1", Method: cloud.MethodServiceAccountKey, Secret: cloud.Secret{Key: key}, Settings: cloud.Settings{Project: "nowhere"}})
	c := g.clouds(store)
	ask := func(account string) (cloud.CallerIdentity, error) {
		p, err := g.open(c, "org_1", account)
		if err != nil {
			t.Fatal(err)
		}
		return p.CallerIdentity(t.Context())
	}
	who, err := ask("ca_key")
	if err != nil || who.Principal != email || who.Holder != "other-project" || who.Name != "other-project" || !slices.Contains(who.Regions, testRegion) || !slices.IsSorted(who.Regions) {
		t.Errorf("by a key: %+v, %v", who, err)
	}
	if who, err = ask("ca_self"); err != nil || who.Principal != tester || who.Holder != testProject {
		t.Errorf("the process's own: %+v, %v", who, err)
	}
	g.world.SetGrants("gcp", email, []string{"compute.projects.get"})
	if who, err = ask("ca_key"); err != nil || who.Holder != "other-project" || who.Name != "" || len(who.Regions) != 0 {
		t.Errorf("of little right: %+v, %v", who, err)
	}
	g.world.SetGrants("gcp", email, []string{})
	if who, err = ask("ca_key"); !pipeline.Is(err, pipeline.Denied) || !strings.Contains(pipeline.Judge(err, 0).Problem.Hint, "compute.projects.get") {
		t.Errorf("of no right: %+v, %v", who, err)
	}
	if _, err = ask("ca_nowhere"); !pipeline.Is(err, pipeline.Denied) {
		t.Errorf("a project that is not theirs: %v", err)
	}
}

// What a family's jobs lack is told by what would happen without it.
func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{}`)
	for _, p := range Policies() {
		g.world.SetGrants("gcp", tester, slices.Concat(p.Required, p.Checks))
		if r, err := g.p.Permissions(t.Context(), p.Family, p.ReadOnly); err != nil || len(r.Missing)+len(r.Checks) > 0 || r.Unknown != "" || r.Family != p.Family {
			t.Errorf("with all: %+v, %v", r, err)
		}
		g.world.SetGrants("gcp", tester, p.Required[1:])
		r, err := g.p.Permissions(t.Context(), p.Family, p.ReadOnly)
		if err != nil || !slices.Equal(r.Missing, p.Required[:1]) || len(r.Checks) != len(p.Checks) {
			t.Errorf("without %s: %+v, %v", p.Required[0], r, err)
		}
	}
	g.world.SetGrants("gcp", tester, nil)
	if r, err := g.p.Permissions(t.Context(), job.Component, false); err != nil || r.Unknown == "" {
		t.Errorf("components: %+v, %v", r, err)
	}
	g.invoke(testProject, "serviceusage", "services.disable", map[string]any{"name": "projects/" + testProject + "/services/cloudresourcemanager.googleapis.com"})
	g.world.Step(time.Hour)
	if r, err := g.p.Permissions(t.Context(), job.VM, false); err != nil || !strings.Contains(r.Unknown, "could not be asked") {
		t.Errorf("without the API: %+v, %v", r, err)
	}
}
