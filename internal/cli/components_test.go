package cli

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

const (
	catalogueAnswer = `{"data":[
		{"name":"ingress-nginx","title":"Ingress NGINX","category":"ingress","version":"4.15.1","license":"Apache-2.0","source":"https://example.com/n","namespace":"ingress-nginx","adoptOnly":true,"reason":"archived"},
		{"name":"traefik","title":"Traefik\u001b[31m","category":"ingress","version":"41.3.0","appVersion":"v3.7.11","license":"MIT","source":"https://example.com/t","kubeVersion":">= 1.22.0-0","namespace":"traefik"}
	],"meta":{"nextCursor":null}}`
	traefikAnswer = `{"data":{"name":"traefik","title":"Traefik","description":"Ingress\u0007 controller.","category":"ingress","version":"41.3.0","license":"MIT","source":"https://example.com/t",
		"namespace":"traefik","providers":["aws","gcp"],"dependsOn":["cert-manager"],"needs":["A load balancer"],"valuesSchema":{"type":"object"}}}`
	spacesAnswer = `{"data":[{"id":"spc_1","name":"platform","provider":"aws","spaceType":"kubernetes","cloudAccountId":"default","status":"synced","config":{"region":"us-east-1","cluster":"eks-1"},
		"jobId":"job_c","createdAt":"2026-11-30T10:00:00Z"}],"meta":{"nextCursor":"spc_1"}}`
	spaceAnswer      = `{"data":{"id":"spc_1","name":"platform","provider":"aws","spaceType":"kubernetes","cloudAccountId":"default","status":"synced","config":{"region":"us-east-1","cluster":"eks-1"},"createdAt":"2026-11-30T10:00:00Z"}}`
	namespacesAnswer = `{"data":[{"name":"default","status":"Active","podSecurity":"baseline","createdAt":"2026-11-30T10:00:00Z"},{"name":"shop","status":"Terminating","createdAt":"2026-11-30T10:00:00Z"}],"meta":{"nextCursor":null}}`
	namespaceAnswer  = `{"data":{"name":"shop","status":"Active","podSecurity":"baseline","createdAt":"2026-11-30T10:00:00Z"}}`
	diffAnswer       = `{"data":[{"kind":"Secret","namespace":"traefik","name":"s","action":"update","diff":"@@ -1 +1 @@\n-a: hidden, as it was\n+a: hidden, as it will be\n"},{"kind":"ClusterRole","name":"r","action":"delete","diff":""}],"meta":{"nextCursor":null}}`
)

// withComponents is a server with a catalogue, a space and a component job.
func withComponents(t *testing.T) *fakeAPI {
	f := newFake(t)
	maps.Copy(f.answers, map[string]string{
		"GET /catalog/components": catalogueAnswer, "GET /catalog/components/traefik": traefikAnswer, "GET /spaces": spacesAnswer, "GET /spaces/platform": spaceAnswer,
		"GET /spaces/spc_1": spaceAnswer, "POST /spaces": spaceAnswer, "DELETE /spaces/spc_1": "", "GET /spaces/platform/namespaces": namespacesAnswer,
		"POST /spaces/platform/namespaces": namespaceAnswer, "POST /provisioning-jobs/job_one/diff": diffAnswer,
	})
	j := aJob(job.Completed, job.PhaseProvision)
	j.Name, j.ResourceType = "traefik-on-platform", job.Component
	f.addJob(j)
	j.ID, j.Name, j.Status = "job_new", "loki-on-platform", job.Queued
	made, err := json.Marshal(map[string]any{"data": j})
	if err != nil {
		t.Fatal(err)
	}
	f.answers["POST /provisioning-jobs/install-component"] = string(made)
	return f
}

// sentBody is the body of the last request of a kind.
func (f *fakeAPI) sentBody(what string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.bodies[what])
}

// TestFormatsOfComponentsAndSpaces: every command that reads says the same in every format.
func TestFormatsOfComponentsAndSpaces(t *testing.T) {
	f := withComponents(t)
	for _, tc := range []struct {
		args  string
		table []string // in the table, in this order
		name  string   // of -o name
		lines int      // of -o jsonl
		path  string   // its body is -o json
	}{
		{"components list", []string{"NAME", "LICENCE", "ingress-nginx", "(not installed any more)", "traefik", "41.3.0", "v3.7.11", "MIT"}, "ingress-nginx\ntraefik\n", 2, "GET /catalog/components"},
		{"components ls --search ingress", []string{"traefik"}, "ingress-nginx\ntraefik\n", 2, "GET /catalog/components"},
		{"components get traefik", []string{"traefik  Traefik", "Ingress", "Chart", "41.3.0", "Clouds", "aws, gcp", "After", "cert-manager", "Needs", "A load balancer"}, "traefik\n", 1, "GET /catalog/components/traefik"},
		{"components diff traefik-on-platform --version 41.4.0", []string{"update Secret traefik/s", "  +a: hidden, as it will be", "delete ClusterRole r"}, "s\nr\n", 2, "POST /provisioning-jobs/job_one/diff"},
		{"spaces list", []string{"NAME", "TYPE", "platform", "kubernetes", "us-east-1", "eks-1", "synced", "spc_1", "job_c"}, "spc_1\n", 1, "GET /spaces"},
		{"spaces get platform", []string{"Name", "platform", "spc_1", "Region", "us-east-1", "Cluster", "eks-1"}, "spc_1\n", 1, "GET /spaces/platform"},
		{"spaces namespaces platform", []string{"NAME", "POD SECURITY", "default", "Active", "baseline", "shop", "Terminating"}, "default\nshop\n", 2, "GET /spaces/platform/namespaces"},
		{"spaces create-namespace platform shop", []string{"shop", "Active", "baseline"}, "shop\n", 1, "POST /spaces/platform/namespaces"},
		{"spaces register --name platform --provider aws --region us-east-1 --cluster eks-1", []string{"platform", "eks-1", "spc_1"}, "spc_1\n", 1, "POST /spaces"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := strings.Fields(tc.args)
			got := run(t, f).do(args...)
			rest := got.out
			for _, want := range tc.table {
				i := strings.Index(rest, want)
				if i < 0 {
					t.Fatalf("no %q (in this order) in\n%s%s", want, got.out, got.err)
				}
				rest = rest[i:]
			}
			if got.code != exitDone || strings.ContainsAny(got.out, "\x1b\x07") {
				t.Errorf("exit code %d, %q", got.code, got.out)
			}
			var want, have any
			if err := json.Unmarshal([]byte(f.answers[tc.path]), &want); err != nil {
				t.Fatal(err)
			}
			if got = run(t, f).do(append(args, "-o", "json")...); got.code != exitDone || json.Unmarshal([]byte(got.out), &have) != nil || cmp.Diff(want, have) != "" {
				t.Errorf("json: %d %s%s", got.code, got.out, got.err)
			}
			if got = run(t, f).do(append(args, "-o", "yaml")...); got.code != exitDone || !strings.HasPrefix(got.out, "data:\n") {
				t.Errorf("yaml: %d %s%s", got.code, got.out, got.err)
			}
			if got = run(t, f).do(append(args, "-o", "jsonl")...); got.code != exitDone || strings.Count(got.out, "\n") != tc.lines || !strings.HasPrefix(got.out, "{") {
				t.Errorf("jsonl: %d %s%s", got.code, got.out, got.err)
			}
			if got = run(t, f).do(append(args, "-o", "name")...); got.code != exitDone || got.out != tc.name {
				t.Errorf("name: %d %q%s", got.code, got.out, got.err)
			}
		})
	}
}

func TestComponentsListAsksForWhatIsWanted(t *testing.T) {
	f := withComponents(t)
	run(t, f).do("components", "list", "--search", "gateway api", "--category", "ingress", "--provider", "aws", "--kube-version", "1.36")
	if f.sent("GET /catalog/components?category=ingress&kubeVersion=1.36&provider=aws&search=gateway+api") != 1 {
		t.Errorf("%q", f.requests)
	}
	f.answers["GET /catalog/components"] = `{"data":[],"meta":{"nextCursor":null}}`
	if got := run(t, f).do("components", "list", "--search", "nothing"); got.code != exitDone || got.out != "" || !strings.Contains(got.err, "No component matches") {
		t.Errorf("%+v", got)
	}
	f.answers["GET /spaces"] = `{"data":[],"meta":{"nextCursor":null}}`
	if got := run(t, f).do("spaces", "list", "--limit", "5", "--cursor", "spc_9"); got.code != exitDone || got.out != "" || !strings.Contains(got.err, "zopday spaces register") || f.sent("GET /spaces?cursor=spc_9&limit=5") != 1 {
		t.Errorf("%+v, %q", got, f.requests)
	}
}

func TestInstallUpgradeRollBack(t *testing.T) {
	f := withComponents(t)
	dir := t.TempDir()
	base, over := filepath.Join(dir, "base.yaml"), filepath.Join(dir, "over.yaml")
	for path, text := range map[string]string{base: "deployment: {replicas: 1, kind: Deployment}\nbig: 12345678901234567890\n", over: "deployment: {replicas: 3}\nlist: [1]\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const install, one = "POST /provisioning-jobs/install-component", "PATCH /provisioning-jobs/job_one"
	for _, tc := range []struct {
		args []string
		in   string
		what string
		body string
	}{
		{[]string{"install", "platform", "loki"}, "", install, `{"component":"loki","spaceId":"platform"}`},
		{[]string{"install", "platform", "loki", "--version", "1.0.0", "--namespace", "logs", "--release", "l", "--name", "logs", "--set", "a.b=2", "--set", "c=null", "--set", "on=true"}, "", install,
			`{"component":"loki","name":"logs","namespace":"logs","release":"l","spaceId":"platform","values":{"a":{"b":2},"c":null,"on":true},"version":"1.0.0"}`},
		{[]string{"install", "platform", "loki", "-f", base, "-f", over, "--set", "deployment.replicas=5"}, "", install,
			`{"component":"loki","spaceId":"platform","values":{"big":12345678901234567890,"deployment":{"kind":"Deployment","replicas":5},"list":[1]}}`},
		{[]string{"install", "platform", "loki", "-f", "-"}, "x: why\n", install, `{"component":"loki","spaceId":"platform","values":{"x":"why"}}`},
		{[]string{"upgrade", "traefik-on-platform", "--version", "41.4.0"}, "", one, `{"componentOp":"upgrade","config":{"spec":{"component":{"version":"41.4.0"}}}}`},
		{[]string{"upgrade", "job_one", "--set", "a=null", "--set", "name=x"}, "", one, `{"componentOp":"upgrade","config":{"spec":{"component":{"values":{"a":null,"name":"x"}}}}}`},
		{[]string{"rollback", "traefik-on-platform"}, "", one, `{"componentOp":"rollback"}`},
		{[]string{"rollback", "traefik-on-platform", "--revision", "2"}, "", one, `{"componentOp":"rollback","revision":2}`},
		{[]string{"rollback", "traefik-on-platform", "--revision", "0"}, "", one, `{"componentOp":"rollback","revision":0}`},
		{[]string{"diff", "traefik-on-platform"}, "", "POST /provisioning-jobs/job_one/diff", `{}`},
		{[]string{"diff", "traefik-on-platform", "-f", over}, "", "POST /provisioning-jobs/job_one/diff", `{"spec":{"component":{"values":{"deployment":{"replicas":3},"list":[1]}}}}`},
	} {
		r := run(t, f)
		r.in = tc.in
		if got := r.do(append([]string{"components"}, tc.args...)...); got.code != exitDone || got.out == "" {
			t.Errorf("%q: %+v", tc.args, got)
		}
		if got := f.sentBody(tc.what); got != tc.body {
			t.Errorf("%q sent\n%s\nwant\n%s", tc.args, got, tc.body)
		}
	}
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"install", "platform"}, "a space and a component"},
		{[]string{"install", "platform", "loki", "--set", "a"}, "is not key=value"},
		{[]string{"install", "platform", "loki", "-f", filepath.Join(dir, "none.yaml")}, "cannot be read"},
		{[]string{"upgrade", "traefik-on-platform"}, "nothing to change is named"},
		{[]string{"rollback", "traefik-on-platform", "--revision", "first"}, "revision"},
		{[]string{"diff"}, "a job"},
		{[]string{"get"}, "a component's name"},
	} {
		before := len(f.requests)
		if got := run(t, f).do(append([]string{"components"}, tc.args...)...); got.code != exitUsage || !strings.Contains(got.err, tc.says) || got.out != "" {
			t.Errorf("%q: %+v", tc.args, got)
		}
		for _, sent := range f.requests[before:] {
			if !strings.HasPrefix(sent, "GET ") {
				t.Errorf("%q sent %s", tc.args, sent)
			}
		}
	}
	f.answers["POST /provisioning-jobs/job_one/diff"] = `{"data":[],"meta":{"nextCursor":null}}`
	if got := run(t, f).do("components", "diff", "traefik-on-platform"); got.code != exitDone || got.out != "" || !strings.Contains(got.err, "Nothing would change") {
		t.Errorf("%+v", got)
	}
}

// TestInstallKeys: a key of one's own is taken, and what is refused says how to go on.
func TestInstallKeys(t *testing.T) {
	f := withComponents(t)
	if got := run(t, f).do("components", "install", "platform", "loki", "--idempotency-key", "mine", "-q"); got.code != exitDone || got.out != "job_new\n" {
		t.Errorf("%+v", got)
	}
	if got := run(t, f).do("components", "install", "platform", "loki"); !strings.Contains(got.err, "zopday jobs watch job_new") {
		t.Errorf("%+v", got)
	}
	f.refuse["POST /provisioning-jobs/install-component"] = client.Problem{Code: "not-found", Title: "Not found", Status: 404, Detail: "there is no such space in your organisation", Hint: "GET /spaces lists what there is.",
		Errors: []client.FieldError{{Field: "spaceId", Message: "there is no such space", Fix: "use the ID of one from GET /spaces"}}}
	if got := run(t, f).do("components", "install", "nothing", "loki"); got.code != exitNotFound || got.out != "" || !strings.Contains(got.err, "no such space") {
		t.Errorf("%+v", got)
	}
	f.refuse["POST /provisioning-jobs/install-component"] = client.Problem{Code: "invalid", Title: "Invalid request", Status: 422, Detail: "component: there is none"}
	if got := run(t, f).do("components", "install", "platform", "nothing", "-o", "json"); got.code != exitUsage || got.out != "" || !strings.Contains(got.err, `"code":"invalid"`) {
		t.Errorf("%+v", got)
	}
}

func TestSpacesForget(t *testing.T) {
	f := withComponents(t)
	if got := run(t, f).do("spaces", "forget", "platform"); got.code != exitUsage || !strings.Contains(got.err, "--yes") || !strings.Contains(got.err, "eks-1 in us-east-1 runs on untouched") || f.sent("DELETE") != 0 {
		t.Errorf("%+v", got)
	}
	if got := run(t, f).do("spaces", "forget", "platform", "--yes"); got.code != exitDone || got.out != "" || !strings.Contains(got.err, "platform is forgotten") || f.sent("DELETE /spaces/spc_1") != 1 {
		t.Errorf("%+v, %q", got, f.requests)
	}
	f.refuse["DELETE /spaces/spc_1"] = client.Problem{Code: "wrong-state", Title: "Wrong state", Status: 409, Detail: "the space has components: traefik-on-platform", Hint: "Delete these jobs first."}
	if got := run(t, f).do("spaces", "forget", "spc_1", "--yes"); got.code != exitConflict || !strings.Contains(got.err, "traefik-on-platform") {
		t.Errorf("%+v", got)
	}
	if got := run(t, f).do("spaces", "forget", "nothing", "--yes"); got.code != exitNotFound {
		t.Errorf("%+v", got)
	}
}

func TestSpacesRegister(t *testing.T) {
	f := withComponents(t)
	run(t, f).do("spaces", "register", "--name", "ours", "--provider", "azure", "--region", "westeurope", "--cluster", "aks-1", "--resource-group", "rg", "--cloud-account", "default")
	if got, want := f.sentBody("POST /spaces"), `{"cloudAccountId":"default","config":{"cluster":"aks-1","region":"westeurope","resourceGroup":"rg"},"name":"ours","provider":"azure"}`; got != want {
		t.Errorf("sent %s", got)
	}
	run(t, f).do("spaces", "create-namespace", "platform", "shop")
	if got := f.sentBody("POST /spaces/platform/namespaces"); got != `{"name":"shop"}` {
		t.Errorf("sent %s", got)
	}
}

// TestDeleteShowsWhatGoesAlong: who deletes a cluster sees which components go.
func TestDeleteShowsWhatGoesAlong(t *testing.T) {
	f := newFake(t)
	c := aJob(job.Completed, job.PhaseProvision)
	c.ID, c.Name, c.ResourceType = "job_c", "platform", job.Cluster
	c.Config.InfraConfig.Cluster.Name = "eks-1"
	f.explain.Objects = []job.Object{{Kind: "eks:cluster", Name: "eks-1", ID: "eks-1", State: job.ObjectCreated}}
	on := aJob(job.Completed, job.PhaseProvision)
	on.ID, on.Name, on.ResourceType = "job_on", "traefik-on-platform", job.Component
	on.Config.InfraConfig.Cluster.Name = "eks-1"
	off := on
	off.ID, off.Name, off.Config.InfraConfig.Cluster.Name = "job_off", "loki-on-other", "eks-2"
	over := on
	over.ID, over.Name, over.Status = "job_over", "keda-on-platform", job.Cancelled
	for _, j := range []client.Job{c, on, off, over} {
		f.addJob(j)
	}
	for _, args := range [][]string{{"jobs", "delete", "platform", "--dry-run"}, {"jobs", "delete", "platform"}} {
		got := run(t, f).do(args...)
		text := got.out + got.err
		if !strings.Contains(text, "traefik-on-platform") || !strings.Contains(text, "eks:cluster") || strings.Contains(text, "loki-on-other") || strings.Contains(text, "keda-on-platform") || f.sent("DELETE") != 0 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if f.sent("GET /provisioning-jobs?limit=200&provider=aws&resourceType=component") == 0 {
		t.Errorf("%q", f.requests)
	}
}

func TestHelpAndCompletionOfComponentsAndSpaces(t *testing.T) {
	f := withComponents(t)
	for args, texts := range map[string][]string{
		"components":         {"list", "get", "install", "upgrade", "rollback", "diff"},
		"components install": {"SPACE COMPONENT", "--version", "--namespace", "--release", "--values", "--set", "--idempotency-key", "--wait", "zopday jobs delete uninstalls", "Examples:"},
		"components upgrade": {"JOB", "--version", "--set", "--wait", "Examples:"}, "components rollback": {"--revision", "--wait"}, "components diff": {"--version", "--values"},
		"spaces":          {"list", "get", "register", "forget", "namespaces", "create-namespace"},
		"spaces register": {"--name", "--provider", "--region", "--cluster", "--resource-group", "--cloud-account", "Examples:"}, "spaces forget": {"SPACE", "--yes"},
		"serve": {"--reach", "--catalogue", "--chart-mirror", "--config-service"},
	} {
		got := run(t, nil).do(append(strings.Fields(args), "--help")...)
		for _, text := range texts {
			if got.code != exitDone || !strings.Contains(got.out, text) {
				t.Errorf("%s --help: no %q in\n%s%s", args, text, got.out, got.err)
			}
		}
	}
	for args, want := range map[string][]string{
		"components get":                   {"traefik\t", "ingress-nginx"},
		"components install":               {"platform\tkubernetes eks-1", "spc_1"},
		"components install platform":      {"traefik"},
		"components upgrade":               {"traefik-on-platform", "job_one"},
		"spaces forget":                    {"platform"},
		"spaces namespaces":                {"platform"},
		"components list --provider":       {"aws", "gcp", "azure"},
		"spaces register --provider":       {"azure"},
		"components install platform loki": nil,
		"spaces create-namespace platform": nil,
	} {
		got := run(t, f).do(append(append([]string{"__complete"}, strings.Fields(args)...), "")...)
		for _, text := range want {
			if !strings.Contains(got.out, text) {
				t.Errorf("%s: %q is not offered: %s", args, text, got.out)
			}
		}
		if want == nil && !strings.HasPrefix(got.out, ":") {
			t.Errorf("%s: something is offered: %s", args, got.out)
		}
	}
	r := run(t, nil)
	r.env["ZOPDAY_SERVER"] = "http://127.0.0.1:1"
	for _, args := range [][]string{{"components", "get", ""}, {"spaces", "forget", ""}, {"components", "install", "x", ""}} {
		if got := r.do(append([]string{"__complete"}, args...)...); got.code != exitDone || strings.Contains(got.out+got.err, "refused") {
			t.Errorf("%q without a server: %+v", args, got)
		}
	}
}
