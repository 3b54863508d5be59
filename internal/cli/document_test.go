package cli

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
)

// TestExamples: every example is a job that the server would take as it stands.
func TestExamples(t *testing.T) {
	files, err := exampleFiles("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			docs, err := (&app{}).readDocuments([]string{f}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(docs) != 1 {
				t.Fatalf("%d documents", len(docs))
			}
			b, err := docs[0].json(nil)
			if err != nil {
				t.Fatal(err)
			}
			var j job.Job
			d := json.NewDecoder(strings.NewReader(string(b)))
			d.DisallowUnknownFields()
			if err := d.Decode(&j); err != nil {
				t.Fatal(err)
			}
			j.Mode = cmp.Or(j.Mode, job.ModeCreate) // as the server takes it
			if err := j.Validate(); err != nil {
				t.Error(err)
			}
			// One spec serves every cloud, so names are unique at each alone.
			name := string(j.Provider) + " " + j.Name
			if other := names[name]; other != "" {
				t.Errorf("has the name of %s", other)
			}
			names[name] = f
			if _, err := readBeforehand(sandboxFile(f)); err != nil {
				t.Error(err)
			}
			want := string(j.ResourceType) + "-" + string(j.Provider)
			if spec, err := j.ComponentJob(); err == nil && j.ResourceType == job.Component {
				want = "component-" + spec.Component.Name + "-" + string(j.Provider)
			}
			if spec, err := j.DatastoreSpec(); err == nil && j.ResourceType == job.Datastore {
				want = "datastore-" + string(cmp.Or(spec.Engine, job.Postgres)) + "-" + string(j.Provider)
			}
			if !strings.HasPrefix(filepath.Base(f), want) {
				t.Errorf("is not named after what it holds, %s", want)
			}
		})
	}
	for _, must := range []string{"vm-aws-fixed.yaml", "vm-aws-fixed-lb.yaml", "vm-aws-asg-lb.yaml", "vm-aws-existing.yaml", "vm-aws-adopt.yaml",
		"vm-gcp-fixed-lb.yaml", "vm-gcp-mig-lb.yaml", "vm-azure-fixed-lb.yaml", "vm-azure-asg-lb.yaml"} {
		if _, err := os.Stat(filepath.Join("../../examples", must)); err != nil {
			t.Error(err)
		}
	}
}

func TestSet(t *testing.T) {
	base := `{"name":"shop","config":{"spec":{"pool":{"count":2},"adopt":{"ids":["i-1","i-2"]}}}}`
	cases := []struct {
		set, want, err string
	}{
		{set: "name=shop-test", want: `{"config":{"spec":{"adopt":{"ids":["i-1","i-2"]},"pool":{"count":2}}},"name":"shop-test"}`},
		{set: "pool.count=3", want: `{"config":{"spec":{"adopt":{"ids":["i-1","i-2"]},"pool":{"count":3}}},"name":"shop"}`},
		{set: "config.spec.pool.count=3", want: `{"config":{"spec":{"adopt":{"ids":["i-1","i-2"]},"pool":{"count":3}}},"name":"shop"}`},
		{set: "adopt.ids.1=i-9", want: `{"config":{"spec":{"adopt":{"ids":["i-1","i-9"]},"pool":{"count":2}}},"name":"shop"}`},
		{set: "adopt.ids=[]", want: `{"config":{"spec":{"adopt":{"ids":[]},"pool":{"count":2}}},"name":"shop"}`},
		{set: "adopt=null", want: `{"config":{"spec":{"pool":{"count":2}}},"name":"shop"}`},
		{set: "loadBalancer.dns.record=@", want: `{"config":{"spec":{"adopt":{"ids":["i-1","i-2"]},"loadBalancer":{"dns":{"record":"@"}},"pool":{"count":2}}},"name":"shop"}`},
		{set: "loadBalancer={type: http}", want: `{"config":{"spec":{"adopt":{"ids":["i-1","i-2"]},"loadBalancer":{"type":"http"},"pool":{"count":2}}},"name":"shop"}`},
		{set: "labels.team=shop", want: `{"config":{"spec":{"adopt":{"ids":["i-1","i-2"]},"pool":{"count":2}}},"labels":{"team":"shop"},"name":"shop"}`},
		{set: "team=shop", want: `{"config":{"spec":{"adopt":{"ids":["i-1","i-2"]},"pool":{"count":2}}},"name":"shop","team":"shop"}`},
		{set: "name", err: "is not key=value"},
		{set: "=3", err: "is not key=value"},
		{set: "pool..count=3", err: "an empty key"},
		{set: "name.first=x", err: "inside of a plain value"},
		{set: "adopt.ids.7=i-9", err: "not an index"},
	}
	for _, c := range cases {
		t.Run(c.set, func(t *testing.T) {
			docs, err := parseDocuments("job.json", []byte(base))
			if err != nil {
				t.Fatal(err)
			}
			err = docs[0].set(c.set)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one that says %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := docs[0].json(nil)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestFieldsOfAJob: --set knows every field of the request that makes a job; one that
// it did not know would end up in the spec.
func TestFieldsOfAJob(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../provision/requests.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "CreateRequest" {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
			if found++; !slices.Contains(topLevel, name) {
				t.Errorf("--set %s=… would go into the spec", name)
			}
		}
		return false
	})
	if found < 10 {
		t.Errorf("the request has %d fields", found)
	}
}

// TestPatchKeepsNull: in a patch, null takes a field of the job away.
func TestPatchKeepsNull(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Draft, job.PhaseProvision))
	if got := run(t, f).do("jobs", "update", "shop-prod", "--set", "loadBalancer=null", "--set", "pool.count=3"); got.code != exitDone {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	want := `{"config":{"spec":{"loadBalancer":null,"pool":{"count":3}}}}`
	if got := string(f.bodies["PATCH /provisioning-jobs/job_one"]); got != want {
		t.Errorf("body %s, want %s", got, want)
	}
}

func TestDocuments(t *testing.T) {
	cases := []struct {
		name, text string
		n          int
		err        string
	}{
		{"one", "name: a\n", 1, ""},
		{"JSON", `{"name": "a"}`, 1, ""},
		{"several", "---\nname: a\n---\n# only a comment\n---\nname: b\n", 2, ""},
		{"a dashed text inside", "name: a\nnote: |\n  x\n  --- y\n", 1, ""},
		{"a key twice", "name: a\nname: b\n", 0, "already set"},
		{"a list", "- name: a\n", 0, "holds an object"},
		{"text", "hello\n", 0, "holds an object"},
		{"empty", "\n", 0, "is empty"},
		{"broken", "name: [\n", 0, "line 1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			docs, err := parseDocuments("job.yaml", []byte(c.text))
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if len(docs) != c.n {
				t.Errorf("%d documents, want %d", len(docs), c.n)
			}
		})
	}
}

// TestCreateSendsTheFile: from a file and from the standard input, with what
// --set changes, submitted unless it is to stay a draft.
func TestCreateSendsTheFile(t *testing.T) {
	f := newFake(t)
	r := run(t, f)
	r.in = "name: from-stdin\nregion: us-east-1\n"
	got := r.do("jobs", "create", "-f", "-", "--set", "region=eu-west-1", "--draft")
	if got.code != exitDone {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	want := map[string]any{"name": "from-stdin", "region": "eu-west-1", "submit": false}
	var sent map[string]any
	if err := json.Unmarshal(f.bodies["POST /provisioning-jobs"], &sent); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
	if !strings.HasPrefix(got.out, "job_new  from-stdin") || strings.Count(got.out, "\n") != 1 {
		t.Errorf("stdout: %q", got.out)
	}
	// What to type next, and no page: there is none of a job.
	if !strings.Contains(got.err, "zopday jobs watch job_new") || strings.Contains(got.err, "/zopday") {
		t.Errorf("stderr: %s", got.err)
	}
	if got := r.do("jobs", "create", "-f", "-", "-q"); got.out != "job_new\n" || got.err != "" {
		t.Errorf("-q: stdout %q, stderr %q", got.out, got.err)
	}
	if got := r.do("jobs", "create", "-f", "-", "-o", "name"); got.out != "job_new\n" {
		t.Errorf("-o name: stdout %q", got.out)
	}
}

// fakeSim is a simulated cloud that only remembers what it was asked.
type fakeSim struct {
	Simulation
	calls []string
}

func (s *fakeSim) Call(cloud, service, operation, account, region string, params map[string]any) (json.RawMessage, error) {
	b, err := json.Marshal(params)
	s.calls = append(s.calls, strings.Join([]string{cloud, service, operation, account + region, string(b)}, " "))
	return json.RawMessage(`{"Vpc":{"VpcID":"vpc-1","Tags":["vpc-"]},"Instances":[{"ID":"i-1"},{"ID":"i-1"},{"ID":"i-2"}]}`), err
}

func (s *fakeSim) Step(d time.Duration) { s.calls = append(s.calls, "step "+d.String()) }

func TestBeforehand(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "x.sandbox.yaml"), `
objects:
  - {service: ec2, operation: CreateVpc, params: {CidrBlock: 10.0.0.0/16}, as: {vpc: vpc-, second: "i-#2"}}
  - {after: 5m}
  - {service: ec2, operation: CreateSubnet, region: eu-west-1, params: {VpcId: "${vpc}", Tags: ["a-${vpc}-${second}"]}}
set:
  existing.networkId: ${vpc}
  existing.subnetIds: ["${second}"]
`, 0o600)
	b, err := readBeforehand(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeSim{}
	d := document{body: map[string]any{"provider": "aws", "region": "us-east-1"}}
	if err := b.prepare(s, &d); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`aws ec2 CreateVpc us-east-1 {"CidrBlock":"10.0.0.0/16"}`, "step 5m0s",
		`aws ec2 CreateSubnet eu-west-1 {"Tags":["a-vpc-1-i-2"],"VpcId":"vpc-1"}`, "step 1m0s",
	}
	if diff := gocmp.Diff(want, s.calls); diff != "" {
		t.Error(diff)
	}
	spec := map[string]any{"existing": map[string]any{"networkId": "vpc-1", "subnetIds": []any{"i-2"}}}
	if diff := gocmp.Diff(map[string]any{"spec": spec}, d.body["config"]); diff != "" {
		t.Error(diff)
	}
	for text, says := range map[string]string{
		"objects: [{service: ec2, operation: X, params: {A: '${no}'}}]": "${no} is not known",
		"objects: [{service: ec2, operation: X, as: {a: lb-}}]":         "0 texts",
		"objects: [{after: soon}]":                                      "a duration",
		"objects: [{servce: ec2}]":                                      "servce",
	} {
		b, err := readBeforehand(write(t, path, text, 0o600))
		if err == nil {
			err = b.prepare(s, &d)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want one that says %q", text, err, says)
		}
	}
}

// The examples of one thing at several clouds differ in provider and region alone.
func TestOneSpecThreeClouds(t *testing.T) {
	for aws, others := range map[string][]string{
		"network-aws":          {"network-gcp", "network-azure"},
		"network-aws-existing": {"network-gcp-existing", "network-azure-existing"},
		"network-aws-peering":  {"network-gcp-peering", "network-azure-peering"},
		"vm-aws-fixed-lb":      {"vm-gcp-fixed-lb", "vm-azure-fixed-lb"},
		"vm-aws-asg-lb":        {"vm-gcp-mig-lb", "vm-azure-asg-lb"},
	} {
		read := func(name string) map[string]any {
			docs, err := (&app{}).readDocuments([]string{filepath.Join("../../examples", name+".yaml")}, nil)
			if err != nil {
				t.Fatal(err)
			}
			delete(docs[0].body, "provider")
			delete(docs[0].body, "region")
			return docs[0].body
		}
		want := read(aws)
		for _, other := range others {
			if d := gocmp.Diff(want, read(other)); d != "" {
				t.Errorf("%s and %s (-aws +other):\n%s", aws, other, d)
			}
		}
	}
}
