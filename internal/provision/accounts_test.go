package provision

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/secrets"
)

// A teller is a cloud that says whose credentials it is asked with.
type teller struct {
	cloud.Provider
	accounts cloud.Accounts
	holder   func(a cloud.Account) string
	missing  map[job.ResourceType][]string
	unknown  map[job.ResourceType]string
	fail     error
	last     cloud.Account
}

func (c *teller) Open(ctx context.Context, j *job.Job) (cloud.Provider, error) {
	var err error
	c.last, err = c.accounts.Account(ctx, j.OrgID, j.CloudAccountID, j.Provider)
	return c, err
}

func (c *teller) CallerIdentity(context.Context) (cloud.CallerIdentity, error) {
	return cloud.CallerIdentity{Principal: "arn:" + c.last.Name, Holder: c.holder(c.last), Regions: []string{"us-east-1"}}, c.fail
}

func (c *teller) Permissions(_ context.Context, f job.ResourceType, readOnly bool) (cloud.PermissionReport, error) {
	if readOnly != c.last.ReadOnly {
		return cloud.PermissionReport{}, fmt.Errorf("asked for read only %v", readOnly)
	}
	return cloud.PermissionReport{Family: f, Missing: c.missing[f], Unknown: c.unknown[f]}, nil
}

// withAccounts gives an office an account store, and a cloud that knows of accounts alone.
func (o *office) withAccounts(t *testing.T) (*accounts.Store, *teller) {
	t.Helper()
	keep, err := secrets.Open(t.Context(), o.Ledger.DB(), secrets.Source{Text: strings.Repeat("ab", 32)})
	if err != nil {
		t.Fatal(err)
	}
	store := accounts.New(o.Ledger.DB(), accounts.Options{Secrets: keep, Ambient: func(org string) bool { return org == officeOrg }})
	tell := &teller{accounts: store, holder: func(a cloud.Account) string { return "of-" + a.Secret.AccessKeyID }, missing: map[job.ResourceType][]string{}}
	o.Accounts, o.Clouds, o.TokenDir = store, tell, t.TempDir()
	o.ctx = access.With(t.Context(), access.Of(officeOrg, "ana", access.Admin))
	return store, tell
}

const canarySecret = "wJalrXUtnFEMI/K7MDENG+CANARY+EXAMPLEKEY"

func keysOf(name string) AccountRequest {
	return AccountRequest{Name: name, Provider: job.AWS, Method: cloud.MethodStaticKeys, Level: accounts.ReadWrite,
		Credentials: AccountCredentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: canarySecret}}
}

func TestCloudAccounts(t *testing.T) { onBothDatabases(t, testCloudAccounts) }

func testCloudAccounts(t *testing.T, o *office) {
	store, tell := o.withAccounts(t)
	a, err := o.CreateAccount(o.ctx, keysOf("prod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(a.ID, "ca_") || !a.HasCredentials || a.Revision != 1 || a.Holder != "" {
		t.Errorf("%+v", a)
	}
	// What is secret is in the secret store alone.
	for what, v := range map[string]any{"the account": a, "a request": keysOf("x").Credentials.secret()} {
		for _, text := range []string{fmt.Sprintf("%v %+v %#v", v, v, v)} {
			if strings.Contains(text, canarySecret) {
				t.Errorf("%s prints its secret", what)
			}
		}
	}
	if doc, err := json.Marshal(a); err != nil || strings.Contains(string(doc), canarySecret) {
		t.Errorf("the account shows its secret: %v", err)
	}
	full, err := store.Account(t.Context(), officeOrg, a.ID, job.AWS)
	if err != nil || full.Secret.SecretAccessKey != canarySecret || full.ReadOnly {
		t.Errorf("%v, %v", full, err)
	}
	if _, err := store.Account(t.Context(), officeOrg, a.ID, job.GCP); err == nil {
		t.Error("an account of AWS opens Google Cloud")
	}
	if _, err := store.Account(t.Context(), "org2", a.ID, job.AWS); err == nil {
		t.Error("another organisation opens it")
	}

	// A verification says whose it is; from then on it is theirs alone.
	v, err := o.VerifyAccount(o.ctx, "prod", VerifyRequest{})
	if err != nil || !v.OK || v.Identity.Holder != "of-AKIAIOSFODNN7EXAMPLE" || len(v.Permissions) != 5 {
		t.Fatalf("%+v, %v", v, err)
	}
	a, err = o.GetAccount(o.ctx, "prod")
	if err != nil || a.Holder != v.Identity.Holder || a.Revision != 2 || a.Verification == nil || !a.Verification.OK {
		t.Errorf("%+v, %v", a, err)
	}
	o.finished(job.VM, "shop", func(j *job.Job) { j.CloudAccountID = a.ID })
	other := AccountCredentials{AccessKeyID: "AKIAI44QH8DHBEXAMPLE", SecretAccessKey: canarySecret}
	if a, err = o.PatchAccount(o.ctx, "prod", AccountPatch{Credentials: &other}); err != nil || a.Holder == "" {
		t.Fatalf("while a job stands on it, it stays whose it was: %+v, %v", a, err)
	}
	if v, err = o.VerifyAccount(o.ctx, "prod", VerifyRequest{Families: []job.ResourceType{job.VM}}); err != nil || v.OK || v.Code != "other-holder" || v.Hint == "" {
		t.Errorf("%+v, %v", v, err)
	}
	r, ok := refusalIn(o.DeleteAccount(o.ctx, "prod"))
	if !ok || r.Kind != WrongState || !strings.Contains(r.Message, "job_") {
		t.Errorf("%+v", r)
	}
	// Without jobs it may become another's.
	if _, err := o.Ledger.DB().Exec(t.Context(), `UPDATE provisioning_jobs SET status = 'cancelled' WHERE cloud_account_id = $1`, a.ID); err != nil {
		t.Fatal(err)
	}
	if a, err = o.PatchAccount(o.ctx, "prod", AccountPatch{Credentials: &other}); err != nil || a.Holder != "" {
		t.Errorf("%+v, %v", a, err)
	}
	// What the cloud does not say is not taken for granted, and what is known to be
	// missing is said first.
	tell.unknown = map[job.ResourceType]string{job.Cluster: "the caller may not ask", job.VM: "the caller may not ask"}
	if v, err = o.VerifyAccount(o.ctx, "prod", VerifyRequest{}); err != nil || v.OK || v.Code != "permissions-unknown" || len(v.Permissions) != 5 ||
		!strings.Contains(v.Message, "the caller may not ask") || !strings.Contains(v.Hint, "iam:SimulatePrincipalPolicy") {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err = o.VerifyAccount(o.ctx, "prod", VerifyRequest{Families: []job.ResourceType{job.Cache}}); err != nil || !v.OK || v.Code != "" {
		t.Errorf("%+v, %v", v, err)
	}
	tell.unknown[job.VM] = ""
	tell.missing[job.VM] = []string{"ec2:RunInstances"}
	if v, err = o.VerifyAccount(o.ctx, "prod", VerifyRequest{}); err != nil || v.OK || v.Code != "missing-permissions" {
		t.Errorf("%+v, %v", v, err)
	}
	tell.fail = &pipeline.CloudError{Class: pipeline.Expired, Service: "STS", Op: "GetCallerIdentity", Message: "the key is not known"}
	if v, err = o.VerifyAccount(o.ctx, "prod", VerifyRequest{}); err != nil || v.OK || v.Code != string(pipeline.Expired) || v.Message == "" {
		t.Errorf("%+v, %v", v, err)
	}
	if err := o.DeleteAccount(o.ctx, "prod"); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := o.Ledger.DB().QueryRow(t.Context(), `SELECT count(*) FROM secrets WHERE id = $1`, a.ID).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d secrets are left, %v", left, err)
	}
	all, err := o.ListAccounts(o.ctx)
	if err != nil || len(all) != 1 || all[0].ID != accounts.Default {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestUnknownPermissions: each cloud has a hint that says what to grant.
func TestUnknownPermissions(t *testing.T) {
	t.Parallel()
	for at, want := range map[job.Provider]string{
		job.AWS: "iam:SimulatePrincipalPolicy", job.GCP: "resourcemanager.projects.get", job.Azure: "Microsoft.Authorization/permissions/read",
	} {
		v := &accounts.Findings{Permissions: []cloud.PermissionReport{{Family: job.VM, Unknown: "nobody says"}, {Family: job.Cache}}}
		if judge(v, at); v.OK || v.Code != "permissions-unknown" || !strings.Contains(v.Hint, want) {
			t.Errorf("%s: %+v", at, v)
		}
	}
	v := &accounts.Findings{Permissions: []cloud.PermissionReport{{Family: job.VM, Checks: []string{"ec2:DescribeRegions"}}}}
	if judge(v, job.AWS); !v.OK || v.Code != "" {
		t.Errorf("%+v", v)
	}
}

func TestCloudAccountsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t, filepath.Join(t.TempDir(), "zopday.db"))
	o.withAccounts(t)
	if err := os.WriteFile(filepath.Join(o.TokenDir, "token"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(o.TokenDir, "link")); err != nil {
		t.Fatal(err)
	}
	federated := func(file string) AccountRequest {
		return AccountRequest{Name: "wif", Provider: job.GCP, Method: cloud.MethodWorkloadIdentity, Level: accounts.ReadOnly, Settings: cloud.Settings{
			Project: "my-project", Audience: "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q", TokenFile: file}}
	}
	if _, err := o.CreateAccount(o.ctx, federated(filepath.Join(o.TokenDir, "token"))); err != nil {
		t.Error(err)
	}
	key := `{"type":"service_account","project_id":"my-project","client_email":"z@my-project.iam.gserviceaccount.com","private_key":"` + canarySecret + `"}`
	change := func(r AccountRequest, f func(*AccountRequest)) AccountRequest { f(&r); return r }
	for name, tc := range map[string]struct {
		r      AccountRequest
		fields string
	}{
		"no level":        {change(keysOf("a"), func(r *AccountRequest) { r.Level = "" }), "permissionLevel"},
		"no name":         {keysOf(""), "name"},
		"default":         {keysOf("default"), "name"},
		"another's ID":    {keysOf("ca_x"), "name"},
		"no cloud":        {change(keysOf("a"), func(r *AccountRequest) { r.Provider = "ibm" }), "provider"},
		"a foreign way":   {change(keysOf("a"), func(r *AccountRequest) { r.Provider = job.GCP }), "method"},
		"no secret":       {change(keysOf("a"), func(r *AccountRequest) { r.Credentials.SecretAccessKey = "" }), "credentials.secretAccessKey"},
		"a foreign field": {change(keysOf("a"), func(r *AccountRequest) { r.Credentials.ClientSecret = canarySecret }), "credentials.clientSecret"},
		"a shape":         {change(keysOf("a"), func(r *AccountRequest) { r.Credentials.SecretAccessKey = canarySecret + "\n" }), "credentials.secretAccessKey"},
		"reach":           {change(keysOf("a"), func(r *AccountRequest) { r.Reach = "public:0.0.0.0/0" }), "reach"},
		"own external ID": {AccountRequest{Name: "a", Provider: job.AWS, Method: cloud.MethodAssumeRole, Level: accounts.ReadWrite, Settings: cloud.Settings{RoleARN: "arn:aws:iam::123456789012:role/z", ExternalID: "mine"}}, "settings.externalId"},
		"outside":         {federated("/etc/passwd"), "settings.tokenFile"},
		"dots":            {federated(o.TokenDir + "/../../etc/passwd"), "settings.tokenFile"},
		"a link":          {federated(filepath.Join(o.TokenDir, "link")), "settings.tokenFile"},
		"the directory":   {federated(o.TokenDir), "settings.tokenFile"},
		"no key":          {AccountRequest{Name: "a", Provider: job.GCP, Method: cloud.MethodServiceAccountKey, Level: accounts.ReadOnly, Credentials: AccountCredentials{Key: `{"type":"authorized_user"}`}}, "credentials.key"},
		"another's key":   {AccountRequest{Name: "a", Provider: job.GCP, Method: cloud.MethodServiceAccountKey, Level: accounts.ReadOnly, Settings: cloud.Settings{ServiceAccount: "y@b.c"}, Credentials: AccountCredentials{Key: key}}, "settings.serviceAccount"},
	} {
		_, err := o.CreateAccount(o.ctx, tc.r)
		r, ok := refusalIn(err)
		if !ok || r.Kind != Invalid || len(r.Fields) == 0 || r.Fields[0].Field != tc.fields {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Contains(fmt.Sprint(r.Message, r.Fields, r.Hint), canarySecret) {
			t.Errorf("%s: the refusal repeats the secret", name)
		}
	}
	// The server's own identity is not every organisation's.
	elsewhere := access.With(t.Context(), access.Of("org2", "otto", access.Admin))
	_, err := o.CreateAccount(elsewhere, AccountRequest{Name: "a", Provider: job.AWS, Method: cloud.MethodAmbient, Level: accounts.ReadWrite})
	if r, ok := refusalIn(err); !ok || r.Fields[0].Field != "method" {
		t.Errorf("%v", err)
	}
	_, _, err = o.Create(elsewhere, vmRequest("x", ""), "")
	if r, ok := refusalIn(err); !ok || r.Fields[0].Field != "cloudAccountId" {
		t.Errorf("%v", err)
	}
	// Nor is it a team's to take.
	team := access.With(t.Context(), access.Principal{OrgID: officeOrg, Actor: "eve", Grants: []access.Grant{{Role: access.Admin, Scope: access.Scope{Kind: access.TeamScope, ID: "team_x"}, Policies: access.BuiltIn(access.Admin)}}})
	_, err = o.CreateAccount(team, AccountRequest{Name: "evil", Provider: job.AWS, Method: cloud.MethodAmbient, Level: accounts.ReadWrite})
	if r, ok := refusalIn(err); !ok || r.Kind != Forbidden {
		t.Errorf("a team's admin takes the server's own identity: %v", err)
	}
	// One organisation does not use another's token files.
	for file, ok := range map[string]bool{"token": false, "org2/token": true, "org1/token": false} {
		path := filepath.Join(o.TokenDir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := federated(path)
		r.Name = "wif-" + strings.ReplaceAll(file, "/", "-")
		_, err := o.CreateAccount(elsewhere, r)
		if refused, no := refusalIn(err); ok != (err == nil) || no && refused.Fields[0].Field != "settings.tokenFile" {
			t.Errorf("%s: %v", file, err)
		}
	}
	// The provisioner makes the external ID, and keeps it.
	a, err := o.CreateAccount(elsewhere, AccountRequest{Name: "role", Provider: job.AWS, Method: cloud.MethodAssumeRole, Level: accounts.ReadWrite, Settings: cloud.Settings{RoleARN: "arn:aws:iam::123456789012:role/z"}})
	if err != nil || !strings.HasPrefix(a.Settings.ExternalID, "zopday-") || len(a.Settings.ExternalID) < 30 {
		t.Fatalf("%+v, %v", a, err)
	}
	external := a.Settings.ExternalID
	a, err = o.PatchAccount(elsewhere, "role", AccountPatch{Settings: &cloud.Settings{RoleARN: "arn:aws:iam::123456789012:role/y"}})
	if err != nil || a.Settings.ExternalID != external || a.Settings.RoleARN != "arn:aws:iam::123456789012:role/y" {
		t.Errorf("%+v, %v", a, err)
	}
	_, err = o.PatchAccount(elsewhere, "role", AccountPatch{Settings: &cloud.Settings{RoleARN: "arn:aws:iam::123456789012:role/y", ExternalID: "zopday-" + strings.Repeat("a", 26)}})
	if r, ok := refusalIn(err); !ok || r.Fields[0].Field != "settings.externalId" {
		t.Errorf("an external ID of one's own: %v", err)
	}
}

// TestJobsAndAccounts: a job works in an account that its organisation and team may
// use, at its own cloud; a read_only one takes adopt jobs alone.
func TestJobsAndAccounts(t *testing.T) {
	t.Parallel()
	o := newOffice(t, filepath.Join(t.TempDir(), "zopday.db"))
	o.withAccounts(t)
	team := job.NewID("team")
	if _, err := o.Ledger.DB().Exec(t.Context(), `INSERT INTO teams (id, org_id, name, created_by, created_at) VALUES ($1, $2, 'shop', 'ana', 1)`, team, officeOrg); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for name, change := range map[string]func(*AccountRequest){
		"all": func(*AccountRequest) {}, "shop-only": func(r *AccountRequest) { r.Team = "shop" }, "look": func(r *AccountRequest) { r.Level = accounts.ReadOnly },
	} {
		r := keysOf(name)
		change(&r)
		a, err := o.CreateAccount(o.ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = a.ID
	}
	try := func(account, team string, change ...func(*CreateRequest)) (string, error) {
		r := vmRequest("j"+fmt.Sprint(len(ids)), team)
		ids[r.Name] = ""
		r.CloudAccountID = account
		for _, f := range change {
			f(&r)
		}
		v, _, err := o.Create(o.ctx, r, "")
		if err != nil {
			return "", err
		}
		return v.CloudAccountID, nil
	}
	adopt := func(r *CreateRequest) {
		r.Mode, r.Config.Spec = job.ModeAdopt, json.RawMessage(`{"adopt":{"ids":["i-0123456789abcdef0"]}}`)
	}
	google := func(r *CreateRequest) { r.Provider, r.Region = job.GCP, "us-central1" }
	for name, tc := range map[string]struct {
		account, team, want string
		change              []func(*CreateRequest)
	}{
		"default":               {"", "", "default", nil},
		"by name":               {"all", "", ids["all"], nil},
		"by ID, of a team":      {ids["all"], "shop", ids["all"], nil},
		"the team's own":        {"shop-only", "shop", ids["shop-only"], nil},
		"another team's":        {"shop-only", "", "", nil},
		"nobody's":              {"none", "", "", nil},
		"of another cloud":      {"all", "", "", []func(*CreateRequest){google}},
		"read only":             {"look", "", "", nil},
		"read only, for a look": {"look", "", ids["look"], []func(*CreateRequest){adopt}},
	} {
		got, err := try(tc.account, tc.team, tc.change...)
		if tc.want == "" {
			if r, ok := refusalIn(err); !ok || r.Kind != Invalid || r.Fields[0].Field != "cloudAccountId" {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || got != tc.want {
			t.Errorf("%s: account %s, %v; want %s", name, got, err, tc.want)
		}
	}
	// A draft does not get by a change what it could not be made with.
	v, _, err := o.Create(o.ctx, vmRequest("draft", ""), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range []string{"look", "shop-only", "none"} {
		_, _, err := o.Patch(o.ctx, v.ID, PatchRequest{CloudAccountID: &account}, nil)
		if r, ok := refusalIn(err); !ok || r.Fields[0].Field != "cloudAccountId" {
			t.Errorf("a draft moves to %s: %v", account, err)
		}
	}
	all := "all"
	if v, _, err = o.Patch(o.ctx, v.ID, PatchRequest{CloudAccountID: &all}, nil); err != nil || v.CloudAccountID != ids["all"] {
		t.Errorf("%v", err)
	}
}
