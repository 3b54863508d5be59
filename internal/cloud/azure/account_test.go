package azure

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// book is a store of accounts of some organisations.
type book struct {
	mu   sync.Mutex
	rows []cloud.Account
}

func (b *book) Account(_ context.Context, org, id string, at job.Provider) (cloud.Account, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.rows {
		if a.OrgID == org && a.ID == id && a.Provider == at {
			return a, nil
		}
	}
	return cloud.Account{}, cloud.ErrNoAccount
}

// set puts an account in the place of the one of its ID.
func (b *book) set(a cloud.Account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = append(slices.DeleteFunc(b.rows, func(old cloud.Account) bool { return old.OrgID == a.OrgID && old.ID == a.ID }), a)
}

const (
	shopApp    = "aaaaaaaa-0000-4000-8000-0000000000a1"
	shopSecret = "shop-secret-1"
	// watcherApp may read alone.
	watcherApp = "aaaaaaaa-0000-4000-8000-0000000000a2"
)

// principal is an account with the secret of an application.
func principalAccount(org string) cloud.Account {
	return cloud.Account{
		ID: "ca_shop", OrgID: org, Name: "shop", Provider: job.Azure, Method: cloud.MethodServicePrincipal, Revision: 1,
		Settings: cloud.Settings{Subscription: simazure.DefaultSubscription, Tenant: simazure.DefaultTenant, ClientID: shopApp},
		Secret:   cloud.Secret{ClientSecret: shopSecret},
	}
}

// withAccounts is a network rig whose job runs in an account of a store.
func withAccounts(t testing.TB, a cloud.Account) (*rig, *book) {
	t.Helper()
	g := network(t, `{"network":{"subnets":["private"]}}`)
	g.cloud.SetClient(simazure.Client{ID: shopApp, Secret: shopSecret, ObjectID: "0b1ec700-0000-4000-8000-0000000000d1", Name: "shop", Subscriptions: []string{simazure.DefaultSubscription}})
	b := &book{rows: []cloud.Account{a}}
	g.clouds.opts.Accounts = b
	g.job.CloudAccountID = a.ID
	return g, b
}

// reopened is what the engine does before each pass.
func (g *rig) reopened() error {
	g.Helper()
	p, err := g.clouds.provider(g.Context(), g.job.OrgID, g.job.CloudAccountID, g.job.Region)
	if err == nil {
		g.p = p
	}
	return err
}

// callers are who asked the cloud for anything but tokens, since an entry of the books.
func (g *rig) callers(since int) []string {
	var out []string
	for _, e := range g.world.Books(sim.BookFilter{Since: since, Limit: 100000}) {
		if e.Service != "login" && !slices.Contains(out, e.Caller) {
			out = append(out, e.Caller)
		}
	}
	return out
}

// Each method's credentials make what a job asks for, under their own name.
func TestAccountMethods(t *testing.T) {
	issuer, err := simazure.NewIssuer("https://ci.example.com")
	if err != nil {
		t.Fatal(err)
	}
	trust, err := issuer.Federation("repo:shop")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	token, err := issuer.Token("repo:shop", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := principalAccount("org_1")
	federated := principalAccount("org_1")
	federated.Method, federated.Secret, federated.Settings.TokenFile = cloud.MethodWorkloadIdentity, cloud.Secret{}, file
	federated.Settings.ClientID = watcherApp
	ambient := cloud.Account{ID: "default", OrgID: "org_1", Provider: job.Azure, Method: cloud.MethodAmbient}
	for _, c := range []struct {
		name   string
		a      cloud.Account
		caller string
	}{{"service principal", secret, shopApp}, {"workload identity", federated, watcherApp}, {"ambient", ambient, simazure.DefaultClientID}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g, _ := withAccounts(t, c.a)
			g.cloud.SetClient(simazure.Client{ID: watcherApp, ObjectID: "0b1ec700-0000-4000-8000-0000000000d2", Subscriptions: []string{simazure.DefaultSubscription}, Federated: []simazure.Federation{trust}})
			if err := g.reopened(); err != nil {
				t.Fatal(err)
			}
			g.up()
			g.down()
			if got := g.callers(0); !slices.Equal(got, []string{c.caller}) {
				t.Errorf("called by %v", got)
			}
		})
	}
}

// Credentials that cannot be had make the job wait for better ones, and say which
// account it is; nothing of the secret is in the message.
func TestAccountsWithoutCredentials(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*cloud.Account)
		says   string
	}{
		"wrong secret":     {func(a *cloud.Account) { a.Secret.ClientSecret = "canary-5512" }, "7000215"},
		"no secret":        {func(a *cloud.Account) { a.Secret = cloud.Secret{} }, "no client secret"},
		"no subscription":  {func(a *cloud.Account) { a.Settings.Subscription = "shop" }, "not the ID"},
		"no application":   {func(a *cloud.Account) { a.Settings.ClientID = "aaaaaaaa-0000-4000-8000-00000000dead" }, "700016"},
		"another's method": {func(a *cloud.Account) { a.Method = cloud.MethodAssumeRole }, "no credentials of method"},
		"no token file":    {func(a *cloud.Account) { a.Method = cloud.MethodWorkloadIdentity }, "names no file"},
		"empty token file": {func(a *cloud.Account) { a.Method, a.Settings.TokenFile = cloud.MethodWorkloadIdentity, file }, "is empty"},
		"lost token file":  {func(a *cloud.Account) { a.Method, a.Settings.TokenFile = cloud.MethodWorkloadIdentity, file+"-not" }, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := principalAccount("org_1")
			c.change(&a)
			g, _ := withAccounts(t, a)
			err := g.reopened()
			if err == nil {
				_, err = g.p.Caller(t.Context())
			}
			if !pipeline.Is(err, pipeline.Expired) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// A token of another issuer is read again for each new credential, and one that has
// ended or that nobody trusts is refused.
func TestAssertions(t *testing.T) {
	t.Parallel()
	issuer, err := simazure.NewIssuer("https://ci.example.com")
	if err != nil {
		t.Fatal(err)
	}
	trust, _ := issuer.Federation("repo:shop")
	file := filepath.Join(t.TempDir(), "token")
	a := principalAccount("org_1")
	a.Method, a.Secret, a.Settings.TokenFile = cloud.MethodWorkloadIdentity, cloud.Secret{}, file
	g, _ := withAccounts(t, a)
	g.cloud.SetClient(simazure.Client{ID: shopApp, ObjectID: "0b1ec700-0000-4000-8000-0000000000d1", Subscriptions: []string{simazure.DefaultSubscription}, Federated: []simazure.Federation{trust}})
	for _, c := range []struct {
		subject string
		life    time.Duration
		says    string
	}{{"repo:other", time.Hour, "70021"}, {"repo:shop", -time.Minute, "700024"}, {"repo:shop", time.Hour, ""}} {
		token, err := issuer.Token(c.subject, c.life)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := g.reopened(); err != nil {
			t.Fatal(err)
		}
		_, err = g.p.Caller(t.Context())
		switch {
		case c.says == "" && err != nil:
			t.Errorf("a good token is refused: %v", err)
		case c.says != "" && (!pipeline.Is(err, pipeline.Expired) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), token)):
			t.Errorf("%s for %v: %v", c.subject, c.life, err)
		}
	}
}

// An account is its organisation's: the same ID elsewhere is another one, or none.
func TestAccountsOfOrganisations(t *testing.T) {
	t.Parallel()
	g, b := withAccounts(t, principalAccount("org_1"))
	j := *g.job
	j.OrgID = "org_2"
	_, err := g.clouds.Open(t.Context(), &j)
	if f := fatal(err); f == nil || f.Problem.Code != "no-cloud-account" || !errors.Is(err, cloud.ErrNoAccount) || f.Problem.Field != "cloudAccountId" {
		t.Errorf("another organisation's account: %v", err)
	}
	other := principalAccount("org_2")
	other.Settings.ClientID, other.Settings.Subscription = simazure.OtherClientID, simazure.OtherSubscription
	b.set(other)
	first, err := g.clouds.Open(t.Context(), g.job)
	if err != nil {
		t.Fatal(err)
	}
	second, err := g.clouds.Open(t.Context(), &j)
	if err != nil {
		t.Fatal(err)
	}
	if first == second || second.(*Provider).subscription != simazure.OtherSubscription || first.(*Provider).subscription != simazure.DefaultSubscription {
		t.Error("two organisations share a client")
	}
}

// A client is used while its account is as it was when it was made.
func TestAccountRevisions(t *testing.T) {
	t.Parallel()
	a := principalAccount("org_1")
	g, b := withAccounts(t, a)
	open := func() *Provider {
		t.Helper()
		if err := g.reopened(); err != nil {
			t.Fatal(err)
		}
		return g.p
	}
	first := open()
	if open() != first {
		t.Error("a client is made anew although nothing has changed")
	}
	a.Revision, a.Reach, a.Egress = 2, job.Reach{Mode: job.ReachPublic}, []string{"198.51.100.0/24"}
	b.set(a)
	second := open()
	if second == first {
		t.Error("the client of an earlier revision is still used")
	}
	if second.reach.Mode != job.ReachPublic || !slices.Equal(second.reach.EgressCIDRs, a.Egress) {
		t.Errorf("reached by %+v", second.reach)
	}
	if first.account.Secret != (cloud.Secret{}) {
		t.Error("the client keeps the secret")
	}
}

// A token that is refused before the end that it says it has is had anew: reads go
// on with it at once, a call that changes something comes up and is made again by
// the job. The job ends well (failure kinds I1, I2).
func TestTokensThatEndEarly(t *testing.T) {
	t.Parallel()
	g, _ := withAccounts(t, principalAccount("org_1"))
	g.cloud.SetClient(simazure.Client{ID: shopApp, Secret: shopSecret, ObjectID: "0b1ec700-0000-4000-8000-0000000000d1", Subscriptions: []string{simazure.DefaultSubscription}, TokenLife: 40 * time.Second})
	before := g.world.Snapshot()
	if err := g.reopened(); err != nil {
		t.Fatal(err)
	}
	yes := true
	g.fault(sim.Fault{Kind: sim.FaultError, Service: "network", Mutating: &yes, After: 2, Code: "ExpiredAuthenticationToken", Status: 401})
	g.up()
	g.down()
	g.hit()
	tokens, ended, changed := 0, 0, 0
	for _, e := range g.world.Books(sim.BookFilter{Caller: shopApp, Limit: 100000}) {
		switch {
		case e.Service == "login" && e.Status == 200:
			tokens++
		case e.Code == "ExpiredAuthenticationToken":
			ended++
			if e.Mutating {
				changed++
			}
		}
	}
	t.Logf("%d tokens, %d refused, %d of them with a change", tokens, ended, changed)
	if tokens < 3 || ended < 2 || changed == 0 {
		t.Errorf("only %d tokens, and %d were refused: nothing was tested", tokens, ended)
	}
	g.equal(before)
}

// Credentials that cannot be renewed end as such, after one more try.
func TestSecretThatIsRevoked(t *testing.T) {
	t.Parallel()
	g, _ := withAccounts(t, principalAccount("org_1"))
	if err := g.reopened(); err != nil {
		t.Fatal(err)
	}
	who := simazure.Client{ID: shopApp, Secret: shopSecret, ObjectID: "0b1ec700-0000-4000-8000-0000000000d1", Subscriptions: []string{simazure.DefaultSubscription}, TokenLife: time.Second}
	g.cloud.SetClient(who)
	if _, err := g.p.Caller(t.Context()); err != nil {
		t.Fatal(err)
	}
	who.Secret = "another-secret"
	g.cloud.SetClient(who)
	g.world.Step(time.Hour)
	_, err := g.p.readSubscription(t.Context())
	if !pipeline.Is(err, pipeline.Expired) || !strings.Contains(err.Error(), "7000215") {
		t.Errorf("it ends with %v", err)
	}
	if !g.p.refused.Load() {
		t.Error("the next pass would use the same client")
	}
}

// Credentials that are another subscription's by now read, and change nothing (failure
// kind F5): the refusal names both.
func TestCredentialsOfAnotherSubscription(t *testing.T) {
	t.Parallel()
	a := cloud.Account{ID: "default", OrgID: "org_1", Name: "prod", Provider: job.Azure, Method: cloud.MethodAmbient, Holder: simazure.DefaultSubscription, Revision: 1}
	g, _ := withAccounts(t, a)
	if err := g.reopened(); err != nil {
		t.Fatal(err)
	}
	if err := g.try(false, g.check, g.p.EnsureNetwork); err != nil {
		t.Fatal(err)
	}
	// Between two steps the process is given other credentials.
	load := g.clouds.opts.LoadConfig
	g.clouds.opts.LoadConfig = func(ctx context.Context, account, region string) (Config, error) {
		c, err := load(ctx, account, region)
		if err != nil {
			return c, err
		}
		c.Subscription = simazure.OtherSubscription
		c.Credential, err = c.credential(cloud.Account{Method: cloud.MethodServicePrincipal, Secret: cloud.Secret{ClientSecret: simazure.DefaultClientSecret},
			Settings: cloud.Settings{Tenant: simazure.DefaultTenant, ClientID: simazure.OtherClientID}})
		return c, err
	}
	g.clouds.open = map[place]*Provider{} // an hour has passed
	since := g.mark()
	if err := g.reopened(); err != nil {
		t.Fatal(err)
	}
	g.another()
	g.objects = map[string]job.Object{}
	err := g.try(false, g.p.EnsureNetwork)
	f := fatal(err)
	if f == nil || f.Problem.Code != codeHolder || !strings.Contains(err.Error(), simazure.DefaultSubscription) || !strings.Contains(err.Error(), simazure.OtherSubscription) {
		t.Errorf("it ends with %v", err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("arrived: %v", changes)
	}
	if got := g.callers(since); !slices.Equal(got, []string{simazure.OtherClientID}) {
		t.Errorf("called by %v", got)
	}
}
