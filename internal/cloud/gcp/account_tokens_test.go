package gcp

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simgcp "github.com/zopday/provisioner/internal/sim/gcp"
)

const (
	testProvider = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/ci/providers/builds"
	testIssuer   = "https://issuer.example"
	federatedAs  = "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/ci/subject/runner"
)

// issued writes a token of another issuer into a file.
func issued(t *testing.T, file, subject string) {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	token := part(map[string]any{"alg": "RS256"}) + "." + part(map[string]any{"iss": testIssuer, "sub": subject, "aud": testProvider,
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}) + ".c2ln"
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Another issuer's token is read from its file each time, exchanged, and lets a
// service account be acted as by who may.
func TestWorkloadIdentity(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{TimeScale: 1}, job.ModeCreate, `{}`)
	if err := g.cloud.AddWorkloadProvider(simgcp.WorkloadProvider{Name: testProvider, Issuer: testIssuer}); err != nil {
		t.Fatal(err)
	}
	email, _ := g.keyOf(testProject, "deployer")
	file := filepath.Join(t.TempDir(), "token")
	issued(t, file, "runner")
	store := &accounts{}
	a := cloud.Account{ID: "ca_1", OrgID: "org_1", Method: cloud.MethodWorkloadIdentity, Settings: cloud.Settings{Project: testProject, Audience: testProvider, TokenFile: file}}
	store.put(a)
	c := g.clouds(store)
	asks := func() error {
		p, err := g.open(c, "org_1", "ca_1")
		if err != nil {
			t.Fatal(err)
		}
		return looks(t, p)
	}
	if err := asks(); err != nil || g.lastCaller(serviceCompute) != federatedAs {
		t.Errorf("as itself: %v, caller %s", err, g.lastCaller(serviceCompute))
	}
	a.Settings.ServiceAccount = email
	store.put(a)
	err := asks()
	if !pipeline.Is(err, pipeline.Expired) || !strings.Contains(err.Error(), "iam.serviceAccounts.getAccessToken") {
		t.Errorf("as an account that it may not act as: %v", err)
	}
	g.invoke(testProject, "iam", "projects.serviceAccounts.setIamPolicy", map[string]any{"resource": "projects/" + testProject + "/serviceAccounts/" + email,
		"policy": map[string]any{"bindings": []any{map[string]any{"role": "roles/iam.workloadIdentityUser", "members": []any{federatedAs}}}}})
	if err := asks(); err != nil || g.lastCaller(serviceCompute) != email || g.lastCaller(serviceIAMCredentials) != federatedAs {
		t.Errorf("as an account that it may act as: %v, caller %s through %s", err, g.lastCaller(serviceCompute), g.lastCaller(serviceIAMCredentials))
	}
	issued(t, file, "somebody")
	g.world.Step(2 * time.Hour) // both tokens are past
	if err := asks(); !pipeline.Is(err, pipeline.Expired) {
		t.Errorf("with somebody else's token in the file: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := asks(); !pipeline.Is(err, pipeline.Expired) || !strings.Contains(err.Error(), file) {
		t.Errorf("without the file: %v", err)
	}
	issued(t, file, "runner")
	if err := asks(); err != nil {
		t.Errorf("with the file again: %v", err)
	}
}

// The process's own identity acts as the service account that an account names.
func TestAmbientImpersonation(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{TimeScale: 1}, job.ModeCreate, `{}`)
	email, _ := g.keyOf("other-project", "deployer")
	store := &accounts{}
	store.put(cloud.Account{ID: "ca_1", OrgID: "org_1", Method: cloud.MethodAmbient, Settings: cloud.Settings{Project: "other-project", ServiceAccount: email}})
	p, err := g.open(g.clouds(store), "org_1", "ca_1")
	if err != nil {
		t.Fatal(err)
	}
	if who, err := p.Caller(t.Context()); err != nil || who != "other-project" || g.lastCaller(serviceCompute) != email || g.lastCaller(serviceIAMCredentials) != "user@example.com" {
		t.Errorf("%s, %v: caller %s through %s", who, err, g.lastCaller(serviceCompute), g.lastCaller(serviceIAMCredentials))
	}
}

// A token that is over earlier than it said is renewed in the middle of a job: a
// read does not notice, a change is tried again by the engine (failure kinds I1,
// I2). A key that is taken back stops the job until there is another.
func TestTokensThatExpire(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{TimeScale: 1}, job.ModeCreate, `{}`)
	_, key := g.keyOf(testProject, "deployer")
	store := &accounts{}
	a := cloud.Account{ID: "ca_1", OrgID: "org_1", Method: cloud.MethodServiceAccountKey, Secret: cloud.Secret{Key: key}, Holder: testProject}
	store.put(a)
	c := g.clouds(store)
	p, err := g.open(c, "org_1", "ca_1")
	if err != nil {
		t.Fatal(err)
	}
	if err := looks(t, p); err != nil {
		t.Fatal(err)
	}
	g.world.Step(2 * time.Hour)
	if err := looks(t, p); err != nil {
		t.Errorf("a read with a token that is over: %v", err)
	}
	if n := len(g.world.Books(sim.BookFilter{Service: "oauth2"})); n != 2 {
		t.Errorf("%d tokens were asked for", n)
	}
	g.world.Step(2 * time.Hour)
	network := func(name string) error {
		if p, err = g.open(c, "org_1", "ca_1"); err != nil { // as a job does on each pass
			return err
		}
		_, err := p.networks().insert(anything(t.Context()), requestID(name), &compute.Network{Name: name, ForceSendFields: []string{"AutoCreateSubnetworks"}})
		return err
	}
	err = network("one")
	if d := pipeline.Judge(err, 0); d.Action != pipeline.Again || !pipeline.Is(err, pipeline.Expired) {
		t.Errorf("a change with a token that is over: %v", err)
	}
	if err := network("one"); err != nil {
		t.Errorf("the same change again: %v", err)
	}
	for _, o := range g.world.Objects(sim.ObjectFilter{Kind: "service-account-key"}) {
		if _, err := g.world.RemoveObject(o.ID); err != nil {
			t.Fatal(err)
		}
	}
	g.world.Step(2 * time.Hour)
	for range 3 {
		if err = network("two"); !pipeline.Is(err, pipeline.Expired) {
			t.Errorf("with a key that was taken back: %v", err)
		}
	}
	_, a.Secret.Key = g.keyOf(testProject, "deployer")
	store.put(a)
	if err := network("two"); err != nil {
		t.Errorf("with another key: %v", err)
	}
}
