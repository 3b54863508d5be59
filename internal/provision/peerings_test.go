package provision

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/spaces"
	"github.com/zopday/provisioner/internal/spaces/configv1"
)

// twoTeams gives an office the teams shop and bank, an account of each, one of no
// team, one that only reads and one at another cloud. It returns their IDs by name.
func (o *office) twoTeams(t *testing.T) map[string]string {
	t.Helper()
	o.withAccounts(t)
	ids := map[string]string{}
	for _, name := range []string{"shop", "bank"} {
		ids[name] = job.NewID("team")
		if _, err := o.Ledger.DB().Exec(t.Context(), `INSERT INTO teams (id, org_id, name, created_by, created_at) VALUES ($1, $2, $3, 'ana', 1)`, ids[name], officeOrg, name); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(*AccountRequest){
		"all": func(*AccountRequest) {}, "shops": func(r *AccountRequest) { r.Team = "shop" }, "banks": func(r *AccountRequest) { r.Team = "bank" },
		"look": func(r *AccountRequest) { r.Level = accounts.ReadOnly },
		"google": func(r *AccountRequest) {
			r.Provider, r.Method, r.Credentials = job.GCP, cloud.MethodServiceAccountKey, AccountCredentials{Key: `{"type":"service_account","project_id":"my-project","client_email":"z@my-project.iam.gserviceaccount.com","private_key":"x"}`}
		},
	} {
		r := keysOf(name)
		change(&r)
		a, err := o.CreateAccount(o.ctx, r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ids[name] = a.ID
	}
	return ids
}

// editorOf is an editor in one team alone.
func editorOf(t *testing.T, team string) context.Context {
	t.Helper()
	return access.With(t.Context(), access.Principal{OrgID: officeOrg, Actor: "ed", Grants: []access.Grant{
		{Role: access.Editor, Scope: access.Scope{Kind: access.TeamScope, ID: team}, Policies: access.BuiltIn(access.Editor)},
	}})
}

func networkRequest(name string, through ...string) CreateRequest {
	peers := make([]string, len(through))
	for i, account := range through {
		peers[i] = fmt.Sprintf(`{"networkId":"vpc-%d","cloudAccountId":%q}`, i, account)
	}
	return CreateRequest{ResourceType: job.Network, Provider: job.AWS, Mode: job.ModeCreate, Name: name, Region: "us-east-1",
		Config: ConfigRequest{Spec: json.RawMessage(`{"peerings":[` + strings.Join(peers, ",") + `]}`)}}
}

func faultOf(err error) string {
	if r, ok := refusalIn(err); ok && r.Kind == Invalid && len(r.Fields) > 0 {
		return r.Fields[0].Field
	}
	return fmt.Sprint(err)
}

// TestPeeringsInOthersAccounts: the account of a peering's other side is looked up as
// the job's own is, wherever a spec comes in.
func TestPeeringsInOthersAccounts(t *testing.T) {
	t.Parallel()
	o := newOffice(t, filepath.Join(t.TempDir(), "zopday.db"))
	ids := o.twoTeams(t)
	ed := editorOf(t, ids["shop"])
	const first, second = "config.spec.peerings[0].cloudAccountId", "config.spec.peerings[1].cloudAccountId"

	v, created, err := o.Create(ed, networkRequest("peered", "shops", "all", "default"), "")
	if err != nil || !created {
		t.Fatal(err)
	}
	through := func(v *JobView) (out []string) {
		var spec job.NetworkJobSpec
		if err := json.Unmarshal(v.Config.Spec, &spec); err != nil {
			t.Fatal(err)
		}
		for _, p := range spec.Peerings {
			out = append(out, p.CloudAccountID)
		}
		return out
	}
	if got, want := through(v), []string{ids["shops"], ids["all"], "default"}; !slices.Equal(got, want) {
		t.Errorf("peerings through %v, want %v", got, want)
	}
	for name, account := range map[string]string{
		"another team's": "banks", "another team's by ID": ids["banks"], "nobody's": "none", "one that only reads": "look", "one at another cloud": "google",
	} {
		for i, want := range []string{first, second} {
			list := []string{"all", "all"}
			list[i] = account
			r := networkRequest("x", list...)
			if _, _, err := o.Create(ed, r, ""); faultOf(err) != want {
				t.Errorf("a job that peers through %s account: %v, want %s", name, faultOf(err), want)
			}
			if _, err := o.PlanRequest(ed, r); faultOf(err) != want {
				t.Errorf("a plan that peers through %s account: %v, want %s", name, faultOf(err), want)
			}
			if _, _, err := o.Patch(ed, v.ID, PatchRequest{Config: &r.Config}, nil); faultOf(err) != want {
				t.Errorf("a change that peers through %s account: %v, want %s", name, faultOf(err), want)
			}
		}
	}
	// A field that Go would read all the same is none.
	odd := networkRequest("odd", "banks")
	odd.Config.Spec = json.RawMessage(strings.Replace(string(odd.Config.Spec), "cloudAccountId", "CloudAccountID", 1))
	if _, _, err := o.Create(ed, odd, ""); faultOf(err) != "config.spec.peerings[0].CloudAccountID" {
		t.Errorf("%v", err)
	}
	r := networkRequest("x", "all")
	v, _, err = o.Patch(ed, v.ID, PatchRequest{Config: &r.Config}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := through(v); !slices.Equal(got, []string{ids["all"]}) {
		t.Errorf("peerings through %v after a change", got)
	}
}

// TestAccountsInSpecs: every place in a spec that names a cloud account is one that
// placePeerings looks at.
func TestAccountsInSpecs(t *testing.T) {
	t.Parallel()
	var found []string
	var walk func(at string, of reflect.Type, seen []reflect.Type)
	walk = func(at string, of reflect.Type, seen []reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || slices.Contains(seen, of) {
			return
		}
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if strings.Contains(strings.ToLower(name), "cloudaccount") {
				found = append(found, at+name)
			}
			walk(at+name+".", of.Field(i).Type, append(seen, of))
		}
	}
	for _, spec := range []any{job.VMSpec{}, job.NetworkJobSpec{}, job.ClusterSpec{}, job.DatastoreSpec{}, job.ComponentJobSpec{}, job.RemediationSpec{}} {
		walk(strings.TrimPrefix(fmt.Sprintf("%T ", spec), "job."), reflect.TypeOf(spec), nil)
	}
	if want := []string{"NetworkJobSpec peerings.cloudAccountId"}; !slices.Equal(found, want) {
		t.Errorf("%q name cloud accounts, and %q are looked at", found, want)
	}
}

func TestUsersOfAccounts(t *testing.T) { onBothDatabases(t, testUsersOfAccounts) }

func testUsersOfAccounts(t *testing.T, o *office) {
	o.withAccounts(t)
	a, err := o.CreateAccount(o.ctx, keysOf("far"))
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := o.Create(o.ctx, networkRequest("peered", "far"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.Create(o.ctx, networkRequest("other", "default"), ""); err != nil {
		t.Fatal(err)
	}
	refused := func(by string) {
		t.Helper()
		r, ok := refusalIn(o.DeleteAccount(o.ctx, "far"))
		if !ok || r.Kind != WrongState || !strings.HasSuffix(r.Message, "by "+by) {
			t.Errorf("%+v, want it in use by %s", r, by)
		}
	}
	refused(v.ID)
	registry, stop := spaces.BuiltIn(spaces.NewRegistry(o.Ledger.DB()))
	defer func() { _ = stop() }()
	space := func(name, jobID string) string {
		id, err := registry.Register(t.Context(), &configv1.Space{OrgId: officeOrg, Name: name, SubjectType: "cluster", SubjectId: job.NewID("clu"), Provider: "aws", Region: "us-east-1",
			SpaceType: job.SpaceKubernetes, CloudAccountId: a.ID, JobId: jobID, Config: map[string]string{"region": "us-east-1", "cluster": name}})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	id := space("by-hand", "")
	refused(v.ID + ", " + id)
	if _, err := o.Ledger.DB().Exec(t.Context(), `UPDATE provisioning_jobs SET status = 'cancelled' WHERE id = $1`, v.ID); err != nil {
		t.Fatal(err)
	}
	refused(id)
	if _, err := o.Ledger.DB().Exec(t.Context(), `DELETE FROM spaces WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if err := o.DeleteAccount(o.ctx, "far"); err != nil {
		t.Errorf("nothing stands on it: %v", err)
	}
}

func TestAccountDeletedAtTheSameMoment(t *testing.T) {
	onBothDatabases(t, testAccountDeletedAtTheSameMoment)
}

func testAccountDeletedAtTheSameMoment(t *testing.T, o *office) {
	store, _ := o.withAccounts(t)
	// between runs one transaction and, before it is committed, begins the other act,
	// which has to wait for it.
	between := func(tx func(ctx context.Context, tx db.Q) error, other func() error) error {
		t.Helper()
		done := make(chan error, 1)
		err := o.Ledger.DB().InTx(o.ctx, func(ctx context.Context, q db.Q) error {
			if err := tx(ctx, q); err != nil {
				return err
			}
			go func() { done <- other() }()
			time.Sleep(300 * time.Millisecond)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return <-done
	}
	for name, tc := range map[string]struct {
		field string
		make  func(account string) error
	}{
		"a job in it": {"cloudAccountId", func(account string) error {
			r := vmRequest("inside", "")
			r.CloudAccountID = account
			_, _, err := o.Create(o.ctx, r, "")
			return err
		}},
		"a job that peers through it": {"config.spec.peerings", func(account string) error {
			_, _, err := o.Create(o.ctx, networkRequest("peers", account), "")
			return err
		}},
		"a draft that moves into it": {"cloudAccountId", func(account string) error {
			_, _, err := o.Patch(o.ctx, "draft", PatchRequest{CloudAccountID: &account}, nil)
			return err
		}},
	} {
		if strings.HasPrefix(name, "a draft") {
			if _, _, err := o.Create(o.ctx, vmRequest("draft", ""), ""); err != nil {
				t.Fatal(err)
			}
		}
		a, err := o.CreateAccount(o.ctx, keysOf("gone"))
		if err != nil {
			t.Fatal(err)
		}
		err = between(func(ctx context.Context, tx db.Q) error {
			locked, err := store.Lock(ctx, tx, officeOrg, a.ID)
			if err != nil {
				return err
			}
			return store.Delete(ctx, tx, locked)
		}, func() error { return tc.make(a.ID) })
		if faultOf(err) != tc.field {
			t.Errorf("%s while it is deleted: %v", name, err)
		}
	}
	// The other way round: the job is there first.
	a, err := o.CreateAccount(o.ctx, keysOf("kept"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := o.newJob(networkRequest("first"))
	if err != nil {
		t.Fatal(err)
	}
	j.ID, j.OrgID, j.CreatedBy, j.CloudAccountID, j.SubjectType, j.SubjectID = job.NewID("job"), officeOrg, "ana", a.ID, "network", job.NewID("net")
	err = between(func(ctx context.Context, tx db.Q) error {
		_, err := o.insert(ctx, tx, j, false)
		return err
	}, func() error { return o.DeleteAccount(o.ctx, "kept") })
	if r, ok := refusalIn(err); !ok || r.Kind != WrongState || !strings.Contains(r.Message, j.ID) {
		t.Errorf("the account is deleted while a job is made in it: %v", err)
	}
}

// TestAccountOfAnotherTeam: somebody who may see an account is told whose it is.
func TestAccountOfAnotherTeam(t *testing.T) {
	t.Parallel()
	o := newOffice(t, filepath.Join(t.TempDir(), "zopday.db"))
	ids := o.twoTeams(t)
	in := func(team, account string) CreateRequest {
		r := vmRequest("x", team)
		r.CloudAccountID = account
		return r
	}
	_, _, err := o.Create(o.ctx, in("", "banks"), "")
	if r, ok := refusalIn(err); !ok || !strings.Contains(r.Message, "for the team bank alone") || !strings.Contains(r.Hint, "set team to bank") {
		t.Errorf("%v", err)
	}
	_, _, err = o.Create(editorOf(t, ids["shop"]), in("", "banks"), "")
	if r, ok := refusalIn(err); !ok || !strings.Contains(r.Message, "is not a cloud account of your organisation") || strings.Contains(fmt.Sprint(r, r.Hint), "bank alone") {
		t.Errorf("somebody who may not see it: %v", err)
	}
}

// TestReplayOutlivesWhatItNamed: a request that was carried out is answered as it was,
// whatever has become of its team and its account.
func TestReplayOutlivesWhatItNamed(t *testing.T) {
	t.Parallel()
	o := newOffice(t, filepath.Join(t.TempDir(), "zopday.db"))
	ids := o.twoTeams(t)
	r := vmRequest("x", "shop")
	r.CloudAccountID = "shops"
	first, created, err := o.Create(o.ctx, r, "key-1")
	if err != nil || !created {
		t.Fatal(err)
	}
	for _, statement := range []string{`DELETE FROM teams WHERE id = $1`, `DELETE FROM cloud_accounts WHERE team_id = $1`} {
		if _, err := o.Ledger.DB().Exec(t.Context(), statement, ids["shop"]); err != nil {
			t.Fatal(err)
		}
	}
	again, created, err := o.Create(o.ctx, r, "key-1")
	if err != nil || created || again.ID != first.ID {
		t.Errorf("created %v, %v", created, err)
	}
	if _, _, err := o.Create(o.ctx, r, "key-2"); faultOf(err) != "team" {
		t.Errorf("a new key: %v", err)
	}
}

// TestAccountsOneMayUse: somebody in a team sees what of the accounts of no team it
// takes to choose one, and nothing of another team's.
func TestAccountsOneMayUse(t *testing.T) {
	t.Parallel()
	o := newOffice(t, filepath.Join(t.TempDir(), "zopday.db"))
	ids := o.twoTeams(t)
	if _, err := o.VerifyAccount(o.ctx, "all", VerifyRequest{Families: []job.ResourceType{job.VM}}); err != nil {
		t.Fatal(err)
	}
	ed := editorOf(t, ids["shop"])
	list, err := o.ListAccounts(ed)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range list {
		names = append(names, a.Name)
		if a.Limited != (a.Name != "shops") {
			t.Errorf("%s: limited %v", a.Name, a.Limited)
		}
		got, err := o.GetAccount(ed, a.Name)
		if err != nil || !reflect.DeepEqual(*got, a) {
			t.Errorf("%+v, %v, and in the list %+v", got, err, a)
		}
	}
	if want := []string{"default", "all", "google", "look", "shops"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	got, err := o.GetAccount(ed, "all")
	if want := (accounts.Account{ID: ids["all"], OrgID: officeOrg, Name: "all", Provider: job.AWS, Level: accounts.ReadWrite, Limited: true}); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := o.GetAccount(ed, "banks"); err == nil {
		t.Error("another team's account is there")
	}
	viewer := access.With(t.Context(), access.Principal{OrgID: officeOrg, Actor: "vi", Grants: []access.Grant{
		{Role: access.Viewer, Scope: access.Scope{Kind: access.TeamScope, ID: ids["shop"]}, Policies: access.BuiltIn(access.Viewer)},
	}})
	if list, err = o.ListAccounts(viewer); err != nil || len(list) != 1 || list[0].Name != "shops" {
		t.Errorf("somebody who makes no jobs sees %+v, %v", list, err)
	}
	if _, err := o.PatchAccount(ed, "all", AccountPatch{}); err == nil {
		t.Error("an editor changes an account of no team")
	}
}
