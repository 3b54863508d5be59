package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cloudazure "github.com/zopday/provisioner/internal/cloud/azure"
	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
	"github.com/zopday/provisioner/internal/reconciler"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
	"github.com/zopday/provisioner/internal/sim/charts"
	simkube "github.com/zopday/provisioner/internal/sim/kube"
	"github.com/zopday/provisioner/internal/spaces"
)

const (
	roundPace = 60

	// What nobody may ever read outside of the job's own spec.
	canaryOne = "canary-first-4f1c9a"
	canaryTwo = "canary-second-8e2b7d"
	canaryBad = "canary-misplaced-77aa01"
)

// vault is a chart that keeps a secret: in a Secret, by both of its fields, and in
// the arguments of a hook.
func vault(version string) charts.Chart {
	return charts.Chart{Name: "vault-agent", Version: version, AppVersion: "1", Description: "for tests", Files: map[string]string{
		"values.yaml": "password: \"\"\ntext: hello\nreplicas: 1\nlimit: 0\n",
		"values.schema.json": `{"type":"object","properties":{"password":{"type":"string","pattern":"^[a-z0-9-]*$"},"text":{"type":"string"},
			"replicas":{"type":"integer"},"limit":{"type":"integer","maximum":100}}}`,
		"templates/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}}\n" +
			"data: {encoded: {{ .Values.password | b64enc | quote }}}\nstringData: {password: {{ .Values.password | quote }}}\n",
		"templates/config.yaml": "{{ if eq .Values.text \"fail\" }}{{ fail (printf \"no login with %s\" .Values.password) }}{{ end }}" +
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {text: {{ .Values.text | quote }}, version: {{ .Chart.Version | quote }}}\n",
		"templates/deployment.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}}\nspec:\n  replicas: {{ .Values.replicas }}\n" +
			"  selector: {matchLabels: {app: vault}}\n  template:\n    metadata: {labels: {app: vault}}\n    spec: {containers: [{name: main, image: \"example.com/vault:1\"}]}\n",
	}}
}

// A round is the API with a worker, a simulated Azure and a cluster in it that
// somebody else made, behind a real Kubernetes API server.
type round struct {
	*rig
	world *sim.World
}

func newRound(t *testing.T) *round {
	t.Helper()
	binary, err := simkube.Binary()
	if err != nil {
		t.Fatal(err)
	}
	k, err := simkube.New(simkube.Options{Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Shutdown)
	cert, err := simazure.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	w := sim.New(sim.Options{Seed: 7, TimeScale: roundPace})
	azure := httptest.NewUnstartedServer(simazure.New(w, simazure.Options{Kubernetes: k}))
	azure.TLS = cert.Config
	azure.StartTLS()
	t.Cleanup(azure.Close)
	source := httptest.NewServer(charts.New(vault("1.0.0"), vault("1.1.0")))
	t.Cleanup(source.Close)
	clouds := cloudazure.New(cloudazure.Options{Pace: roundPace, Reach: job.Reach{Mode: job.ReachPublic, EgressCIDRs: []string{"203.0.113.7/32"}},
		LoadConfig: cloudazure.Static(azure.URL, cert.CA, simazure.DefaultTenant, simazure.DefaultSubscription, simazure.DefaultClientID, simazure.DefaultClientSecret)})
	out := &round{world: w}
	out.rig = newRigWith(t, filepath.Join(t.TempDir(), "ledger.db"), func(r *rig, c *provision.Config) {
		c.Clouds, c.Pace = clouds, roundPace
		registry, stop := spaces.BuiltIn(spaces.NewRegistry(r.db))
		t.Cleanup(func() { _ = stop() })
		c.Spaces = registry
		engine := vaultEngine(t, source.URL, c.Log)
		c.Components = engine
		r.work(reconciler.Config{Ledger: r.ledger, Clouds: clouds, Spaces: registry, Components: engine, Log: c.Log, Poll: 20 * time.Millisecond, Observe: -1, Pace: roundPace})
	})
	out.cluster()
	return out
}

func vaultEngine(t *testing.T, source string, log *slog.Logger) *components.Engine {
	t.Helper()
	catalogue, err := components.Load()
	if err != nil {
		t.Fatal(err)
	}
	catalogue, err = catalogue.With(fmt.Appendf(nil, `{"components":[{"name":"vault-agent","title":"Vault agent","category":"security","chart":{"repository":%q,"name":"vault-agent"},
		"version":"1.0.0","license":"MIT","source":"https://example.com","namespace":"vault"}]}`, source))
	if err != nil {
		t.Fatal(err)
	}
	engine, err := components.New(components.Options{Catalogue: catalogue, Mirror: source, Pace: roundPace, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// work runs a worker as long as the test.
func (r *rig) work(c reconciler.Config) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- reconciler.New(c).Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	})
}

// cluster makes a cluster beside the product.
func (r *round) cluster() {
	r.t.Helper()
	const group = "/subscriptions/" + simazure.DefaultSubscription + "/resourceGroups/platform-rg"
	for _, o := range []struct {
		service, id string
		body        string
	}{
		{"resources", group, `{"location":"westeurope"}`},
		{"containerservice", group + "/providers/Microsoft.ContainerService/managedClusters/platform", `{"location":"westeurope","identity":{"type":"SystemAssigned"},
			"properties":{"dnsPrefix":"platform","aadProfile":{"managed":true,"enableAzureRBAC":true},"agentPoolProfiles":[{"name":"pool1","mode":"System","count":2,"vmSize":"Standard_D2ds_v5"}]}}`},
	} {
		var body map[string]any
		if err := json.Unmarshal([]byte(o.body), &body); err != nil {
			r.t.Fatal(err)
		}
		if _, err := r.world.Invoke("azure", o.service, "PUT", simazure.DefaultSubscription, "westeurope", map[string]any{"id": o.id, "body": body}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.world.Step(10 * time.Minute)
}

// rests waits until a job has come to rest.
func (r *rig) rests(id string, want job.Status) provision.JobView {
	r.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if v := r.do(viewerToken, "GET", "/provisioning-jobs/"+id, "").job(r.t); !v.State().Active() {
			if v.Status != want {
				r.t.Fatalf("the job is %s: %+v", v.State(), v.Error)
			}
			return v
		}
	}
	r.t.Fatal("the job does not come to rest")
	return provision.JobView{}
}

// ok sends a request that has to be taken.
func (r *rig) ok(status int, method, path, body string, header ...string) answer {
	r.t.Helper()
	a := r.do(editorToken, method, path, body, header...)
	if a.status != status {
		r.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	return a
}

func (r *rig) namespaces(space string) (names []string) {
	r.t.Helper()
	var all []struct{ Name string }
	r.ok(200, "GET", "/spaces/"+space+"/namespaces", "").into(r.t, &all)
	for _, n := range all {
		names = append(names, n.Name)
	}
	return names
}

const accessPath = "/cloud-accounts/default/clusters/westeurope/platform/access"

// TestComponentRound takes a component through its life over REST, as a user does,
// on a cluster that somebody else made; what it keeps secret is looked for
// everywhere afterwards.
func TestComponentRound(t *testing.T) {
	t.Parallel()
	r := newRound(t)
	told := "" // everything that was answered and is not a job's own spec

	// A cluster that does not know us is registered, and lets us in once it is told to.
	space := r.registerSpace()
	if a := r.do(editorToken, "GET", "/spaces/platform/namespaces", ""); a.status != 503 || a.problem(t).Code != "cloud-unavailable" {
		t.Fatalf("namespaces of a cluster that lets nobody in: %d %s", a.status, a.body)
	}
	if a := r.do(adminToken, "PUT", accessPath, `{"provider":"azure","level":"admin"}`); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.world.Step(time.Minute) // a fresh role assignment acts a little later
	if got := r.namespaces("platform"); !slices.Contains(got, "kube-system") {
		t.Fatalf("%q", got)
	}
	told += string(r.ok(201, "POST", "/spaces/"+space.ID+"/namespaces", `{"name":"shop","labels":{"team":"shop"}}`).body)
	if a := r.do(editorToken, "POST", "/spaces/platform/namespaces", `{"name":"shop"}`); a.status != 409 || a.problem(t).Code != "name-taken" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.do(editorToken, "POST", "/spaces/platform/namespaces", `{"name":"shop3","labels":{"a b":"c"}}`); a.status != 422 {
		t.Errorf("%d %s", a.status, a.body)
	}

	// Install.
	install := `{"spaceId":"platform","component":"vault-agent","values":{"password":"` + canaryOne + `","text":"one"}}`
	a := r.ok(201, "POST", "/provisioning-jobs/install-component", install, "Idempotency-Key", "round-1")
	id := a.job(t).ID
	if a.header.Get("Location") != "/provisioning-jobs/"+id || a.job(t).Name != "vault-agent-on-platform" {
		t.Errorf("%s", a.body)
	}
	if again := r.ok(200, "POST", "/provisioning-jobs/install-component", install, "Idempotency-Key", "round-1"); again.job(t).ID != id {
		t.Error("a second job")
	}
	v := r.rests("vault-agent-on-platform", job.Completed)
	c := v.Config.InfraConfig.Component("vault-agent")
	if c == nil || c.Status != "ready" || c.Version != "1.0.0" || c.Revision != 1 || len(c.History) != 1 || v.Objects != 2 || !strings.Contains(v.Outputs["component.vault-agent"], "1.0.0") {
		t.Fatalf("%+v, %d objects, %v", c, v.Objects, v.Outputs)
	}
	if got := r.namespaces("platform"); !slices.Contains(got, "vault") {
		t.Errorf("%q", got)
	}

	// Look, and change nothing.
	one := "/provisioning-jobs/" + id
	if a := r.ok(200, "POST", one+"/diff", `{}`); !strings.Contains(string(a.body), `"data":[]`) {
		t.Errorf("a fresh install differs: %s", a.body)
	}
	next := `{"component":{"version":"1.1.0","values":{"password":"` + canaryTwo + `","text":"two"}}}`
	var changes []components.Change
	a = r.ok(200, "POST", one+"/diff", `{"spec":`+next+`}`)
	a.into(t, &changes)
	told += string(a.body)
	if len(changes) != 2 || changes[0].Kind != "ConfigMap" || changes[0].Action != "update" || !strings.Contains(changes[0].Diff, "+  text: two") || changes[1].Kind != "Secret" || changes[1].Diff == "" {
		t.Errorf("%+v", changes)
	}
	a = r.ok(200, "POST", one+"/verify", "")
	told += string(a.body)
	if !strings.Contains(string(a.body), `"asAsked":true`) {
		t.Errorf("%s", a.body)
	}

	// Upgrade, and back, twice.
	r.ok(200, "PATCH", one, `{"componentOp":"upgrade","config":{"spec":`+next+`}}`)
	v = r.rests(id, job.Completed)
	if c = v.Config.InfraConfig.Component("vault-agent"); c.Version != "1.1.0" || c.Revision != 2 || len(c.History) != 2 {
		t.Fatalf("%+v", c)
	}
	r.ok(200, "PATCH", one, `{"componentOp":"rollback"}`)
	v = r.rests(id, job.Completed)
	spec, err := v.ComponentJob()
	if c = v.Config.InfraConfig.Component("vault-agent"); err != nil || c.Version != "1.0.0" || c.Revision != 3 || spec.Component.Version != "1.0.0" || !strings.Contains(string(spec.Component.Values), canaryOne) {
		t.Fatalf("%+v, %s, %v", c, v.Config.Spec, err)
	}
	if a := r.ok(200, "POST", one+"/diff", `{}`); !strings.Contains(string(a.body), `"data":[]`) {
		t.Errorf("after a rollback: %s", a.body)
	}

	told += r.failsAndRecovers(id)

	// Uninstall, forget, and nothing is left.
	if a := r.do(editorToken, "DELETE", "/spaces/platform", ""); a.status != 409 {
		t.Errorf("the space is forgotten under a component: %d", a.status)
	}
	r.ok(202, "DELETE", one, "")
	r.rests(id, job.Cancelled)
	a = r.ok(200, "GET", one+"/receipt", "")
	told += string(a.body)
	var receipt provision.Receipt
	if a.into(t, &receipt); receipt.Created != 2 || receipt.Removed != 2 || *receipt.Left != 0 || receipt.RequestedBy != "ed" || receipt.AuditID == "" {
		t.Errorf("%s", a.body)
	}
	if got := r.namespaces("platform"); slices.Contains(got, "vault") || !slices.Contains(got, "shop") {
		t.Errorf("%q", got)
	}
	r.ok(204, "DELETE", "/spaces/platform", "")
	if a := r.do(adminToken, "DELETE", accessPath+"?provider=azure", ""); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	told += string(r.ok(200, "GET", one+"/events", "", "Accept", "application/json").body) + string(r.ok(200, "GET", one+"/explain", "").body)
	r.secretsAreKept(told)
}

// registerSpace registers the cluster, twice.
func (r *round) registerSpace() provision.Space {
	r.t.Helper()
	const body = `{"name":"platform","provider":"azure","config":{"region":"westeurope","cluster":"platform"}}`
	var space, again provision.Space
	a := r.ok(201, "POST", "/spaces", body)
	a.into(r.t, &space)
	r.ok(200, "POST", "/spaces", body).into(r.t, &again)
	if space.ID == "" || again.ID != space.ID || space.Status != "synced" || a.header.Get("Location") != "/spaces/"+space.ID {
		r.t.Fatalf("%+v, %+v", space, again)
	}
	return space
}

// failsAndRecovers upgrades to what cannot be, in ways that tempt an error to tell
// a value, and goes back.
func (r *round) failsAndRecovers(id string) (told string) {
	r.t.Helper()
	one := "/provisioning-jobs/" + id
	for body, field := range map[string]string{
		`{"values":{"replicas":"` + canaryBad + `"}}`:                                           "config.spec.component.values.replicas",
		`{"values":{"password":"` + canaryBad + `!"}}`:                                          "config.spec.component.values.password",
		`{"values":{"` + canaryBad[:6] + `-x":1,"password":"` + canaryTwo + `","text":"fail"}}`: "config.spec.component.values",
	} {
		a := r.do(editorToken, "POST", one+"/diff", `{"spec":{"component":`+body+`}}`)
		if p := a.problem(r.t); a.status != 422 || len(p.Errors) == 0 || p.Errors[0].Field != field || p.Errors[0].Fix == "" {
			r.t.Errorf("diff %s: %d %s", field, a.status, a.body)
		}
		told += string(a.body)
		r.ok(200, "PATCH", one, `{"componentOp":"upgrade","config":{"spec":{"component":`+body+`}}}`)
		v := r.rests(id, job.Failed)
		if v.Error == nil || v.Error.Field != field || v.Error.Code != "invalid" || v.Error.Hint == "" || v.Error.Step != "stepValidate" {
			r.t.Errorf("%s: %+v", field, v.Error)
		}
		told += fmt.Sprintf("%+v %+v", *v.Error, v.Verdict)
		told += string(r.ok(200, "GET", one+"/explain", "").body)
		r.ok(200, "PATCH", one, `{"componentOp":"rollback"}`)
		if v = r.rests(id, job.Completed); v.Config.InfraConfig.Component("vault-agent").Version != "1.0.0" || strings.Contains(string(v.Config.Spec), canaryBad) {
			r.t.Errorf("back from %s: %s", field, v.Config.Spec)
		}
	}
	return told
}

// secretsAreKept looks for secrets in all that is kept or was told, the specs of
// jobs aside.
func (r *round) secretsAreKept(told string) {
	r.t.Helper()
	rows, err := r.db.Query(db.System(r.t.Context()), `SELECT coalesce(CAST(detail AS text), '') || resource_id FROM audit_log`)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	kept := ""
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			r.t.Fatal(err)
		}
		kept += s
	}
	if kept == "" || told == "" || r.log.String() == "" {
		r.t.Fatal("there is nothing to look through")
	}
	for where, text := range map[string]string{"log": r.log.String(), "audit log": kept, "answers": told} {
		for _, secret := range []string{canaryOne, canaryTwo, canaryBad} {
			for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
				if i := strings.Index(text, form); i >= 0 {
					r.t.Errorf("the %s tells a secret: …%s…", where, text[max(0, i-200):min(len(text), i+80)])
				}
			}
		}
		if strings.Contains(text, simazure.DefaultClientSecret) || strings.Contains(text, "Bearer ey") {
			r.t.Errorf("the %s tells a credential", where)
		}
	}
}
