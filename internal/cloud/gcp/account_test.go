package gcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// accounts is a store of cloud accounts, by organisation and ID.
type accounts struct {
	mu  sync.Mutex
	all map[string]cloud.Account
}

func (s *accounts) Account(_ context.Context, org, id string, at job.Provider) (cloud.Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.all[org+"/"+id]
	if !ok || at != job.GCP {
		return cloud.Account{}, cloud.ErrNoAccount
	}
	return a, nil
}

func (s *accounts) put(a cloud.Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]cloud.Account{}
	}
	a.Provider, a.Revision = job.GCP, s.all[a.OrgID+"/"+a.ID].Revision+1
	s.all[a.OrgID+"/"+a.ID] = a
}

// keyOf makes a service account of a project, and a key of it.
func (g *rig) keyOf(project, name string) (email, document string) {
	g.Helper()
	email = name + "@" + project + ".iam.gserviceaccount.com"
	if !g.exists("projects/" + project + "/serviceAccounts/" + email) {
		g.invoke(project, "iam", "projects.serviceAccounts.create", map[string]any{"accountId": name})
		g.world.Step(time.Hour)
	}
	out, err := g.cloud.Invoke("iam", "projects.serviceAccounts.keys.create", project, "", map[string]any{"name": "projects/" + project + "/serviceAccounts/" + email})
	if err != nil {
		g.Fatal(err)
	}
	b, err := base64.StdEncoding.DecodeString(out.(map[string]any)["privateKeyData"].(string))
	if err != nil {
		g.Fatal(err)
	}
	var doc map[string]string
	if err := json.Unmarshal(b, &doc); err != nil {
		g.Fatal(err)
	}
	doc["token_uri"] = g.url + "/token"
	b, err = json.Marshal(doc)
	if err != nil {
		g.Fatal(err)
	}
	return email, string(b)
}

// clouds opens accounts at the rig's cloud.
func (g *rig) clouds(s cloud.Accounts) *Clouds {
	return New(Options{Accounts: s, Pace: pipeline.Pace(g.world.Options().TimeScale), LookupNS: nowhere, LoadConfig: Static(g.url, testProject, testToken)})
}

func (g *rig) open(c *Clouds, org, account string) (*Provider, error) {
	p, err := c.Open(g.Context(), &job.Job{OrgID: org, CloudAccountID: account, Region: testRegion, Provider: job.GCP})
	if err != nil {
		return nil, err
	}
	return p.(*Provider), nil
}

// lastCaller is who the books say made the last call to a service.
func (g *rig) lastCaller(service string) string {
	caller := ""
	for _, e := range g.world.Books(sim.BookFilter{Service: service}) {
		caller = e.Caller
	}
	return caller
}

// A key's account calls as that service account, in the project that is set or
// else the key's own. Clients are kept until the account changes; another
// organisation has none of it.
func TestServiceAccountKey(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{TimeScale: 1}, job.ModeCreate, `{}`)
	email, key := g.keyOf("other-project", "deployer")
	store := &accounts{}
	store.put(cloud.Account{ID: "ca_1", OrgID: "org_1", Method: cloud.MethodServiceAccountKey, Secret: cloud.Secret{Key: key}})
	c := g.clouds(store)
	p, err := g.open(c, "org_1", "ca_1")
	if err != nil {
		t.Fatal(err)
	}
	if who, err := p.Caller(t.Context()); err != nil || who != "other-project" || g.lastCaller(serviceCompute) != email {
		t.Errorf("project %s, caller %s, %v", who, g.lastCaller(serviceCompute), err)
	}
	if again, err := g.open(c, "org_1", "ca_1"); err != nil || again != p {
		t.Errorf("other clients of the same revision (%v)", err)
	}
	tokens := len(g.world.Books(sim.BookFilter{Service: "oauth2"}))
	if err := looks(t, p); err != nil || len(g.world.Books(sim.BookFilter{Service: "oauth2"})) != tokens {
		t.Errorf("the token is not kept: %v", err)
	}
	store.put(cloud.Account{ID: "ca_1", OrgID: "org_1", Method: cloud.MethodServiceAccountKey, Secret: cloud.Secret{Key: key}, Settings: cloud.Settings{Project: testProject}})
	q, err := g.open(c, "org_1", "ca_1")
	if err != nil || q == p || q.project != testProject {
		t.Fatalf("clients of an earlier revision: %+v, %v", q, err)
	}
	_, err = g.open(c, "org_2", "ca_1")
	f := fatal(err)
	if f == nil || f.Problem.Code != "no-such-account" || !strings.Contains(f.Problem.Message, "ca_1") || !errors.Is(err, cloud.ErrNoAccount) {
		t.Errorf("another organisation's: %v", err)
	}
}

// A key document is outside input: what is signed with it goes to Google or to the
// endpoint that is set, and no error shows it.
func TestKeyDocuments(t *testing.T) {
	t.Parallel()
	good := map[string]any{"type": "service_account", "client_email": "robot@shop.iam.gserviceaccount.com", "private_key": "CANARY", "project_id": "shop"}
	for name, c := range map[string]struct {
		change   map[string]any
		endpoint string
		says     string // "" is usable
		goes     string
	}{
		"as Google makes it":     {map[string]any{"token_uri": "https://oauth2.googleapis.com/token"}, "", "", "https://oauth2.googleapis.com/token"},
		"without token_uri":      {nil, "", "", "https://oauth2.googleapis.com/token"},
		"of a simulation":        {map[string]any{"token_uri": "http://localhost:5092/token"}, "http://localhost:5092", "", "http://localhost:5092/token"},
		"Google's, simulated":    {map[string]any{"token_uri": "https://oauth2.googleapis.com/token"}, "http://localhost:5092/", "", "http://localhost:5092/token"},
		"somebody's host":        {map[string]any{"token_uri": "https://evil.example/token"}, "", "evil.example", ""},
		"somebody's, simulated":  {map[string]any{"token_uri": "http://169.254.169.254/token"}, "http://localhost:5092", "169.254.169.254", ""},
		"in the clear":           {map[string]any{"token_uri": "http://oauth2.googleapis.com/token"}, "", "which is not Google", ""},
		"Google as a user":       {map[string]any{"token_uri": "https://oauth2.googleapis.com@evil.example/token"}, "", "evil.example", ""},
		"a longer name":          {map[string]any{"token_uri": "https://oauth2.googleapis.com.evil.example/token"}, "", "evil.example", ""},
		"another type":           {map[string]any{"type": "external_account"}, "", "service_account", ""},
		"another universe":       {map[string]any{"universe_domain": "example.goog"}, "", "another cloud", ""},
		"no key":                 {map[string]any{"private_key": ""}, "", "private_key", ""},
		"nobody's e-mail":        {map[string]any{"client_email": "x"}, "", "client_email", ""},
		"no text at all":         {map[string]any{"client_email": 7}, "", "not a JSON document", ""},
		"a URL that is none":     {map[string]any{"token_uri": "https://[oauth2"}, "", "token_uri", ""},
		"a port that is another": {map[string]any{"token_uri": "https://oauth2.googleapis.com:444/token"}, "", "which is not Google", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc := maps.Clone(good)
			maps.Copy(doc, c.change)
			b, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			a := cloud.Account{ID: "ca_1", Method: cloud.MethodServiceAccountKey, Secret: cloud.Secret{Key: string(b)}}
			_, err = accountConfig(Config{Endpoint: c.endpoint, Project: "operators", Token: noToken}, a, 1)
			switch f := fatal(err); {
			case c.says == "" && err == nil:
				k, err := readKey(string(b), Config{Endpoint: c.endpoint})
				if err != nil || k.TokenURI != c.goes {
					t.Errorf("goes to %s, %v", k.TokenURI, err)
				}
			case c.says == "" || f == nil || f.Problem.Code != "bad-account" || !strings.Contains(f.Problem.Message, c.says):
				t.Errorf("got %v", err)
			case strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, f.Problem), "CANARY"):
				t.Error("the error shows the key")
			}
		})
	}
}

func noToken(context.Context) (string, error) {
	return "", errors.New("the process's own token was asked for")
}

// Accounts that cannot work are refused when they are opened, and none of them
// falls back on who the process is.
func TestAccountsThatCannotWork(t *testing.T) {
	t.Parallel()
	const provider = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/pool/providers/ci"
	for name, c := range map[string]struct {
		account cloud.Account
		says    string
	}{
		"another cloud's way":   {cloud.Account{Method: cloud.MethodAssumeRole}, "assume_role"},
		"no way":                {cloud.Account{}, "not a way"},
		"no key":                {cloud.Account{Method: cloud.MethodServiceAccountKey}, "JSON"},
		"no provider":           {cloud.Account{Method: cloud.MethodWorkloadIdentity, Settings: cloud.Settings{Project: "p", TokenFile: "/t"}}, "provider"},
		"no file":               {cloud.Account{Method: cloud.MethodWorkloadIdentity, Settings: cloud.Settings{Project: "p", Audience: provider}}, "file"},
		"no project":            {cloud.Account{Method: cloud.MethodWorkloadIdentity, Settings: cloud.Settings{Audience: provider, TokenFile: "/t"}}, "no project"},
		"nobody's address":      {cloud.Account{Method: cloud.MethodWorkloadIdentity, Settings: cloud.Settings{Project: "p", Audience: provider, TokenFile: "/t", ServiceAccount: "x/../y"}}, "service account"},
		"the same, as ambient":  {cloud.Account{Method: cloud.MethodAmbient, Settings: cloud.Settings{ServiceAccount: "x/../y"}}, "service account"},
		"an audience elsewhere": {cloud.Account{Method: cloud.MethodWorkloadIdentity, Settings: cloud.Settings{Project: "p", Audience: "https://evil.example", TokenFile: "/t"}}, "provider"},
	} {
		c.account.ID = "ca_1"
		_, err := accountConfig(Config{Project: "operators", Token: noToken}, c.account, 1)
		if f := fatal(err); f == nil || f.Problem.Code != "bad-account" || !strings.Contains(f.Problem.Message, c.says) || !strings.Contains(f.Problem.Message, "ca_1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Credentials that are used in another project than the one they were verified for
// change nothing there (failure kind F5).
func TestAnotherHolder(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{TimeScale: 1}, job.ModeCreate, `{}`)
	_, key := g.keyOf(testProject, "deployer")
	_, other := g.keyOf("other-project", "deployer")
	store := &accounts{}
	a := cloud.Account{ID: "ca_1", OrgID: "org_1", Method: cloud.MethodServiceAccountKey, Secret: cloud.Secret{Key: key}, Holder: testProject}
	store.put(a)
	c := g.clouds(store)
	p, err := g.open(c, "org_1", "ca_1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.networks().insert(anything(t.Context()), requestID("one"), &compute.Network{Name: "one", ForceSendFields: []string{"AutoCreateSubnetworks"}}); err != nil {
		t.Fatal(err)
	}
	a.Secret.Key = other // between two steps
	store.put(a)
	if p, err = g.open(c, "org_1", "ca_1"); err != nil {
		t.Fatal(err)
	}
	since := g.mark()
	_, err = p.networks().insert(anything(t.Context()), requestID("two"), &compute.Network{Name: "two", ForceSendFields: []string{"AutoCreateSubnetworks"}})
	d := pipeline.Judge(err, 0)
	if d.Action != pipeline.Stop || d.Problem.Code != "wrong-account" || !strings.Contains(d.Problem.Message, "project "+testProject) || !strings.Contains(d.Problem.Message, "project other-project") {
		t.Errorf("the job ends with %+v (%v)", d, err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("changes arrived: %v", changes)
	}
	if who, err := p.Caller(t.Context()); err != nil || who != "other-project" {
		t.Errorf("who they are can still be asked: %q, %v", who, err)
	}
}

// An account's own way to what is private goes before the server's.
func TestReachOfAccounts(t *testing.T) {
	t.Parallel()
	server := job.Reach{Mode: job.ReachPublic, EgressCIDRs: []string{"203.0.113.7/32"}}
	for _, c := range []struct {
		account cloud.Account
		want    job.Reach
	}{
		{cloud.Account{}, server},
		{cloud.Account{Reach: job.Reach{Mode: job.ReachDirect}}, job.Reach{Mode: job.ReachDirect, EgressCIDRs: server.EgressCIDRs}},
		{cloud.Account{Egress: []string{"198.51.100.0/24"}}, job.Reach{Mode: job.ReachPublic, EgressCIDRs: []string{"198.51.100.0/24"}}},
		{cloud.Account{Reach: job.Reach{Mode: job.ReachPublic}, Egress: []string{"198.51.100.0/24"}}, job.Reach{Mode: job.ReachPublic, EgressCIDRs: []string{"198.51.100.0/24"}}},
	} {
		if d := cmp.Diff(c.want, reachBy(server, c.account)); d != "" {
			t.Error(d)
		}
	}
	p, err := New(Options{LoadConfig: Static("http://127.0.0.1:1", testProject, testToken), Reach: server}).
		provider(t.Context(), cloud.Account{ID: "ca_1", Method: cloud.MethodAmbient, Reach: job.Reach{Mode: job.ReachDirect}}, testRegion)
	if err != nil || p.reach.Mode != job.ReachDirect {
		t.Errorf("%+v, %v", p, err)
	}
}

// A read whose token is refused is sent once more with a new one; a change comes
// up, and the next one has a new token (failure kinds I1, I2).
func TestRefusedTokens(t *testing.T) {
	t.Parallel()
	var asked []string
	valid := "t1"
	wire := wireFunc(func(r *http.Request) (*http.Response, error) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		asked = append(asked, r.Method+" "+token)
		if token != valid {
			return textAnswer(http.StatusUnauthorized, `{"error":{"code":401,"message":"Request had invalid authentication credentials.","status":"UNAUTHENTICATED"}}`), nil
		}
		return textAnswer(http.StatusOK, `{"name":"shop"}`), nil
	})
	n := 0
	s := newSource(func(context.Context) (string, time.Duration, error) {
		n++
		return fmt.Sprintf("t%d", n), time.Hour, nil
	}, nil, 1)
	cfg := Config{Project: testProject, Endpoint: "http://localhost", Token: s.token, Renew: s.forget, Wire: wire}
	p, err := New(Options{LoadConfig: func(context.Context, string, string) (Config, error) { return cfg, nil }}).provider(t.Context(), ambientAccount, testRegion)
	if err != nil {
		t.Fatal(err)
	}
	if err := looks(t, p); err != nil {
		t.Fatal(err)
	}
	valid = "t2"
	if err := looks(t, p); err != nil || p.refused.Load() {
		t.Errorf("a read with a token that has expired: %v", err)
	}
	valid = "t3"
	_, err = p.networks().insert(anything(t.Context()), requestID("one"), &compute.Network{Name: "one", ForceSendFields: []string{"AutoCreateSubnetworks"}})
	if !pipeline.Is(err, pipeline.Expired) || pipeline.Judge(err, 0).Action != pipeline.Again || !p.refused.Load() {
		t.Errorf("a change: %v", err)
	}
	if _, err := p.networks().insert(anything(t.Context()), requestID("one"), &compute.Network{Name: "one", ForceSendFields: []string{"AutoCreateSubnetworks"}}); err != nil {
		t.Errorf("the next change: %v", err)
	}
	valid = "never"
	if err := looks(t, p); !pipeline.Is(err, pipeline.Expired) {
		t.Errorf("a read that no token helps: %v", err)
	}
	want := []string{"GET t1", "GET t1", "GET t2", "POST t2", "POST t3", "GET t3", "GET t4"}
	if d := cmp.Diff(want, asked); d != "" {
		t.Error(d)
	}
}

// looks is a read.
func looks(t *testing.T, p *Provider) error {
	t.Helper()
	_, err := send(t.Context(), p.compute.Projects.Get(p.project))
	return err
}
