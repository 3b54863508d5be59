package api

import (
	"context"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	cloudaws "github.com/zopday/provisioner/internal/cloud/aws"
	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/provision"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
	"github.com/zopday/provisioner/internal/sim/charts"
	"github.com/zopday/provisioner/internal/spaces"
	"github.com/zopday/provisioner/internal/spaces/configv1"
)

// tenants are two organisations of one installation, and everything of the first: all
// its names hold the word theirs.
type tenants struct {
	*rig
	registry *spaces.Client
	made     int                // names of nobody, so that each is new
	taken    map[named]int      // names of the first organisation that the second has now
	theirs   map[named][]string // IDs and names of the first organisation
	own      map[named]string   // of the second, by kind, where it has one
	marks    []string           // what no answer to the second may hold unless it was asked with
}

const (
	theirWord  = "zebra"  // in every name of the first organisation
	nobodyWord = "quagga" // as theirWord, of nobody
)

func newTenants(t *testing.T, dsn string) *tenants {
	t.Helper()
	w := &tenants{taken: map[named]int{}, theirs: map[named][]string{}, own: map[named]string{}}
	source := httptest.NewServer(charts.New(charts.StandIns()...))
	t.Cleanup(source.Close)
	engine, err := components.New(components.Options{Mirror: source.URL})
	if err != nil {
		t.Fatal(err)
	}
	sims := httptest.NewServer(simaws.New(sim.New(sim.Options{Seed: 7}), simaws.Options{}))
	t.Cleanup(sims.Close)
	clouds := cloudaws.New(cloudaws.Options{LoadConfig: cloudaws.Static(sims.URL, "AKIAIOSFODNN7EXAMPLE", "secret"), Reach: job.Reach{Mode: job.ReachDirect}})
	w.rig = newRigWith(t, dsn, func(r *rig, c *provision.Config) {
		registry, stop := spaces.BuiltIn(spaces.NewRegistry(r.db))
		t.Cleanup(func() { _ = stop() })
		w.registry = registry
		store, err := secrets.Open(db.System(t.Context()), r.db, secrets.Source{Text: strings.Repeat("0123456789abcdef", 4)})
		if err != nil {
			t.Fatal(err)
		}
		c.Webhooks.Secrets = store
		c.Clouds, c.Spaces, c.Components, c.Logical, c.Accounts = clouds, registry, engine, plainVault{r}, accounts.New(r.db, accounts.Options{Ambient: func(string) bool { return true }})
	})
	tokens := access.NewTokens(w.db, nil)
	t.Cleanup(tokens.Wait)
	w.api.Access = both{w.api.Access.(people), tokens}
	w.fill(adminToken, "org1", theirWord, func(k named, id, name string) {
		w.theirs[k] = append(w.theirs[k], id)
		w.marks = append(w.marks, id)
		if name != "" {
			w.theirs[k] = append(w.theirs[k], name)
		}
	})
	w.fill(otherToken, "org2", "own", func(k named, id, _ string) {
		if w.own[k] == "" {
			w.own[k] = id
		}
	})
	w.marks = append(w.marks, theirWord)
	for _, id := range w.theirs["job"] { // a job is found by the beginning of its ID too
		if strings.HasPrefix(id, "job_") {
			w.theirs["job"] = append(w.theirs["job"], id[:len(id)-3])
		}
	}
	w.theirs["actor"], w.theirs["request"] = []string{"ana"}, []string{theirWord + "-request-1"}
	w.own["account"], w.own["role"] = "default", access.Viewer
	return w
}

// fill makes two of each thing in an organisation.
func (w *tenants) fill(by, org, word string, note func(k named, id, name string)) {
	w.t.Helper()
	for _, suffix := range []string{"", "-2"} {
		vm := w.make(by, "/provisioning-jobs", vmJob(word+suffix))
		store := w.make(by, "/provisioning-jobs", `{"resourceType":"datastore","provider":"aws","mode":"create","name":"`+word+`-store`+suffix+`","region":"us-east-1",
			"config":{"spec":{"engine":"postgres"}}}`)
		for _, id := range []string{store, vm} {
			j, err := w.ledger.Change(db.System(w.t.Context()), nil, org, id, doneAs)
			if err != nil {
				w.t.Fatal(err)
			}
			note("job", id, j.Name)
			note("subject", j.SubjectID, "")
		}
		database := w.make(by, "/provisioning-jobs/"+store+"/databases", `{"name":"`+word+`data`+strings.Trim(suffix, "-")+`"}`)
		note("database", database, word+"data"+strings.Trim(suffix, "-"))
		note("connection", w.make(by, "/provisioning-jobs/"+store+"/databases/"+database+"/connections", `{"service":"`+word+`-web"}`), word+"-web")
		note("space", w.space(org, word+"-space"+suffix), word+"-space"+suffix)
		note("schedule", w.make(by, "/schedules", `{"jobId":"`+vm+`","window":{"days":["mon"],"from":"08:00","to":"20:00"},"timeZone":"UTC"}`), "")
		note("team", w.make(by, "/teams", `{"name":"`+word+`-team`+suffix+`"}`), word+"-team"+suffix)
		note("role", w.make(by, "/roles", `{"name":"`+word+`-role`+suffix+`","policies":["provisioning-job:view"]}`), word+"-role"+suffix)
		token := w.make(by, "/tokens", `{"name":"`+word+`-token`+suffix+`","role":"Viewer","scope":{"kind":"org"}}`)
		note("token", token, word+"-token"+suffix)
		note("assignment", w.make(by, "/assignments", `{"subject":{"kind":"token","id":"`+token+`"},"role":"`+word+`-role`+suffix+`","scope":{"kind":"org"}}`), "")
		for table, k := range map[string]named{"cloud_accounts": "account", "users": "user", "webhooks": "webhook"} {
			id := job.NewID(map[named]string{"account": "ca", "user": "usr", "webhook": "whk"}[k])
			name := word + "-" + string(k) + suffix
			w.row(table, id, org, name)
			note(k, id, name)
		}
		delivery := job.NewID("dlv")
		w.row("webhook_deliveries", delivery, org, "")
		note("delivery", delivery, "")
	}
}

// space registers a space as a job does.
func (w *tenants) space(org, name string) string {
	w.t.Helper()
	id, err := w.registry.Register(w.t.Context(), &configv1.Space{OrgId: org, Name: name, SubjectType: "cluster", SubjectId: job.NewID("clu"), Provider: "aws", Region: "us-east-1",
		SpaceType: job.SpaceKubernetes, CloudAccountId: "default", Config: map[string]string{"region": "us-east-1", "cluster": name}})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// row puts a row into a table whose things cannot be made here over the API.
func (w *tenants) row(table, id, org, name string) {
	w.t.Helper()
	statement := map[string]string{
		"cloud_accounts":     `INSERT INTO cloud_accounts (id, org_id, name, provider, method, permission_level, created_by, created_at, updated_at) VALUES ($1, $2, $3, 'aws', 'ambient', 'read_only', 'x', 1, 1)`,
		"users":              `INSERT INTO users (id, org_id, issuer, subject, name, email, created_at, seen_at) VALUES ($1, $2, 'https://id.example', $3, $3, $3, 1, 1)`,
		"webhooks":           `INSERT INTO webhooks (id, org_id, name, url, events, created_by, created_at, updated_at) VALUES ($1, $2, $3, 'https://example.test/' || $3, '[]', 'x', 1, 1)`,
		"webhook_deliveries": `INSERT INTO webhook_deliveries (id, org_id, webhook_id, type, body, status, created_at, updated_at) VALUES ($1, $2, 'x', 'x', $3, 'delivered', 1, 1)`,
	}[table]
	if _, err := w.db.Exec(db.System(w.t.Context()), statement, id, org, name); err != nil {
		w.t.Fatal(err)
	}
}

// make posts a body and returns the ID of what it made.
func (w *tenants) make(by, path, body string) string {
	w.t.Helper()
	request := "own-request-1"
	if by == adminToken {
		request = theirWord + "-request-1"
	}
	a := w.do(by, "POST", path, body, "X-Request-Id", request)
	if a.status/100 != 2 {
		w.t.Fatalf("%s %s: %d %s", path, body, a.status, a.body)
	}
	var v struct{ ID string }
	a.into(w.t, &v)
	return v.ID
}

// nobodys is an ID or a name as another, which was never anybody's.
func (w *tenants) nobodys(value string) string {
	if prefix, rest, ok := strings.Cut(value, "_"); ok && len(rest) > 20 {
		return job.NewID(prefix)[:len(value)]
	}
	if strings.Contains(value, theirWord) {
		w.made++
		return strings.ReplaceAll(value, theirWord, nobodyWord+strconv.FormatInt(int64(w.made), 36)+"q")
	}
	return "nobody-" + value
}

// doneAs makes a job one that is completed, with what it needs to be paused or to take
// databases.
func doneAs(j *job.Job, _ ledger.Standing) error {
	j.Status = job.Completed
	j.Config.InfraConfig.VMs = []job.VMInfo{{Name: "vm-1", InstanceID: "i-1"}}
	j.Config.InfraConfig.InstanceType = "t3.medium"
	return nil
}

// plainVault has secrets of no secrecy.
type plainVault struct{ r *rig }

func (v plainVault) Rows(ctx context.Context, org, id string) ([]job.LogicalDatabase, []job.Connection, error) {
	ds, err := v.r.ledger.Databases(ctx, org, id)
	if err != nil {
		return nil, nil, err
	}
	cs, err := v.r.ledger.Connections(ctx, org, id)
	return ds, cs, err
}
func (plainVault) Password(context.Context, string, string) (string, error) { return "p", nil }
func (plainVault) Keep(context.Context, string, string, string) error       { return nil }
func (plainVault) Forget(context.Context, string, string) error             { return nil }
func (plainVault) Secret(context.Context, string, string) (string, error)   { return "p", nil }
