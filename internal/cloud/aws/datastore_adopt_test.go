package aws

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// adopting is the rig's world with another job, which adopts.
func (g dataRig) adopting(spec string) dataRig {
	g.Helper()
	other := &rig{TB: g.TB, world: g.world, cloud: g.cloud, url: g.url, p: g.p, objects: map[string]job.Object{}, memory: pipeline.NewMemory()}
	other.job = &job.Job{
		ID: job.NewID("job"), OrgID: "org_1", Kind: job.Provisioning, ResourceType: g.job.ResourceType, Provider: job.AWS, Mode: job.ModeAdopt,
		Name: "legacy", CloudAccountID: "default", Region: "us-east-1", Config: job.Config{Spec: json.RawMessage(spec)},
	}
	if err := other.job.Validate(); err != nil {
		g.Fatal(err)
	}
	other.job.Config.InfraConfig.Account = ownAccount
	return dataRig{clusterRig{vmRig{other}}}
}

// adopt runs an adopt job through clients that cannot change anything.
func (g dataRig) adopt() error {
	g.Helper()
	ctx := pipeline.WithGate(g.Context(), pipeline.ReadOnly)
	if err := g.check(ctx, g.run(pipeline.Apply)); err != nil {
		return err
	}
	return g.p.AdoptDatastore(ctx, g.run(pipeline.Apply))
}

// A datastore of others is adopted by its ARN, its name or its endpoint; what it falls
// short of is said, and nothing of it is changed.
func TestAdoptDatastore(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
	g.create() // something beside it, which must not be taken for it
	g.place("rds", "CreateDBInstance", map[string]any{"DBInstanceIdentifier": "orders", "Engine": "mysql", "EngineVersion": "8.4.8", "DBInstanceClass": "db.t3.medium", "AllocatedStorage": 20,
		"MasterUsername": "admin", "MasterUserPassword": "a-long-password", "PubliclyAccessible": false, "BackupRetentionPeriod": 0})
	g.world.Step(20 * time.Minute)
	i, err := g.p.readInstance(g.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := fmt.Sprintf("%s:%d", *i.Endpoint.Address, *i.Endpoint.Port)
	since := g.mark()
	for _, by := range []string{`"ids":["` + *i.DBInstanceArn + `"]`, `"name":"orders"`, `"ids":["orders"]`, `"endpoint":"` + endpoint + `"`} {
		a := g.adopting(`{"adopt":{` + by + `}}`)
		if err := a.adopt(); err != nil {
			t.Fatalf("%s: %v", by, err)
		}
		d := a.data()
		if d.Name != "orders" || d.Engine != job.MySQL || d.Version != "8.4.8" || d.Class != "db.t3.medium" || d.Host == "" || a.infra().NetworkID == "" || d.Encrypted {
			t.Errorf("%s: %+v", by, d)
		}
		notes := strings.Join(d.RiskNotes, "\n")
		for _, want := range []string{"RDS-04", "RDS-06", "RDS-07", "RDS-10", "RDS-15", "RDS-25", "RDS-26"} {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: no note of %s in\n%s", by, want, notes)
			}
		}
		a.memory = pipeline.NewMemory()
		r := a.run(pipeline.Verify)
		if err := a.p.AdoptDatastore(pipeline.WithGate(a.Context(), pipeline.ReadOnly), r); err != nil || len(r.Drift()) > 0 {
			t.Errorf("verify: %v, %v", err, r.Drift())
		}
	}
	for spec, want := range map[string]string{
		`{"adopt":{"name":"nobody"}}`:                                        "datastore-not-found",
		`{"engine":"postgres","adopt":{"name":"orders"}}`:                    "other-engine",
		`{"adopt":{"ids":["arn:aws:rds:eu-west-1:123456789012:db:orders"]}}`: "other-region",
		`{"adopt":{"endpoint":"orders.c0ffee.us-east-1.rds.amazonaws.com"}}`: "datastore-not-found",
	} {
		a := g.adopting(spec)
		if err := a.p.AdoptDatastore(a.Context(), a.run(pipeline.Apply)); fatalCode(err) != want {
			t.Errorf("%s: %v", spec, err)
		}
		all, err := a.p.Check(a.Context(), a.run(pipeline.Apply))
		if err != nil || !slices.ContainsFunc(all, func(c cloud.Check) bool { return c.Status == cloud.CheckFails }) {
			t.Errorf("%s: the check says %+v, %v", spec, all, err)
		}
	}
	if _, changes := g.calls(since); len(changes) > 0 {
		t.Errorf("adopting changed %v", changes)
	}
	if _, err := g.world.RemoveObject(*i.DBInstanceArn); err != nil {
		t.Fatal(err)
	}
	a := g.adopting(`{"adopt":{"name":"orders"}}`)
	r := a.run(pipeline.Verify)
	if err := a.p.AdoptDatastore(a.Context(), r); err != nil || len(r.Drift()) != 1 || r.Drift()[0].Attr != "exists" {
		t.Errorf("of one that is gone, a verify says %v, %v", r.Drift(), err)
	}
}

// A cache of others is adopted likewise, also an older one that stands alone.
func TestAdoptCache(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, redisSpec)
	g.create()
	d := *g.data()
	since := g.mark()
	for _, by := range []string{`"ids":["` + d.ID + `"]`, `"name":"` + d.Name + `"`, fmt.Sprintf(`"endpoint":"%s:%d"`, d.Host, d.Port)} {
		a := g.adopting(`{"adopt":{` + by + `}}`)
		if err := a.adopt(); err != nil {
			t.Fatalf("%s: %v", by, err)
		}
		if got := a.data(); got.Name != d.Name || got.Engine != job.Redis || !strings.HasPrefix(got.Version, "7.") || got.Class != d.Class || !got.TLSRequired || a.infra().NetworkID != g.infra().NetworkID || len(got.RiskNotes) > 0 {
			t.Errorf("%s: %+v", by, got)
		}
	}
	a := g.adopting(`{"engine":"valkey","adopt":{"name":"` + d.Name + `"}}`)
	if err := a.p.AdoptDatastore(a.Context(), a.run(pipeline.Apply)); fatalCode(err) != "other-engine" {
		t.Errorf("the verdict is %v", err)
	}
	a = g.adopting(`{"adopt":{"name":"` + d.Name + `-001"}}`)
	if err := a.p.AdoptDatastore(a.Context(), a.run(pipeline.Apply)); fatalCode(err) != "not-a-cache" {
		t.Errorf("of a node the verdict is %v", err)
	}
	if _, changes := g.calls(since); len(changes) > 0 {
		t.Errorf("adopting changed %v", changes)
	}
}

// SQL goes over a connection from inside alone, over TLS with RDS's roots, with the
// password that Secrets Manager has at that moment.
func TestSQLAccess(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
	g.create()
	g.p = at(t, g.url, Options{Pace: quick, Reach: directReach, DatabaseRoots: testRoot(t)})
	access, err := g.p.SQLAccess(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.job)
	if err != nil {
		t.Fatal(err)
	}
	s := access.Server
	if access.Engine != job.Postgres || access.Admin != job.DefaultAdmin || access.Query != nil || s == nil || s.Host != g.data().Host || s.Port != g.data().Port || s.TLS.ServerName != s.Host || s.TLS.RootCAs == nil || s.TLS.InsecureSkipVerify {
		t.Errorf("%+v %+v", access, s)
	}
	first, err := s.Password(g.Context())
	if err != nil || len(first) < 8 {
		t.Fatalf("the password: %v", err)
	}
	g.place("secretsmanager", "RotateSecret", map[string]any{"SecretId": g.data().SecretID})
	g.world.Step(5 * time.Minute)
	if second, err := s.Password(g.Context()); err != nil || second == first {
		t.Errorf("after a rotation the password is the old one (%v)", err)
	}
	text, err := json.Marshal(struct {
		Job     *job.Job
		Objects map[string]job.Object
		Events  []job.Event
	}{g.job, g.objects, g.history()})
	if err != nil || strings.Contains(string(text), first) {
		t.Error("the password stands in the job, the ledger or the history")
	}
	for _, reach := range []job.Reach{publicReach, {Mode: job.ReachTunnel}, {}} {
		p := at(t, g.url, Options{Pace: quick, Reach: reach})
		if c := p.CheckReach(g.job); c.Status != cloud.CheckFails || !strings.Contains(c.Fix, "--reach direct") {
			t.Errorf("%v: %+v", reach, c)
		}
		if _, err := p.SQLAccess(g.Context(), g.job); fatalCode(err) != "no-reach" {
			t.Errorf("%v: %v", reach, err)
		}
	}
	g.p = at(t, g.url, Options{Pace: quick, Reach: directReach, DatabaseRoots: []byte("no certificate")})
	if _, err := g.p.SQLAccess(g.Context(), g.job); fatalCode(err) != "no-database-roots" {
		t.Errorf("the verdict is %v", err)
	}
}

// testRoot is a certificate of the test's own.
func testRoot(t testing.TB) []byte {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
