package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pgtest"
	"github.com/zopday/provisioner/internal/provision"
	"github.com/zopday/provisioner/internal/sim/charts"
	"github.com/zopday/provisioner/internal/spaces"
	"github.com/zopday/provisioner/internal/spaces/configv1"
)

// A shop is the API with spaces and components, and no cloud behind: two spaces
// and a component job of the first organisation.
type shop struct {
	*rig
	registry        *spaces.Client
	space, vms, job string // IDs
}

func newShop(t *testing.T, dsn string) *shop {
	t.Helper()
	source := httptest.NewServer(charts.New(charts.StandIns()...))
	t.Cleanup(source.Close)
	engine, err := components.New(components.Options{Mirror: source.URL})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{}
	s.rig = newRigWith(t, dsn, func(r *rig, c *provision.Config) {
		registry, stop := spaces.BuiltIn(spaces.NewRegistry(r.db))
		t.Cleanup(func() { _ = stop() })
		s.registry, c.Spaces, c.Components = registry, registry, engine
	})
	s.space = s.addSpace("org1", "platform", job.SpaceKubernetes)
	s.vms = s.addSpace("org1", "vms", job.SpaceVM)
	v := s.ok(201, "POST", "/provisioning-jobs/install-component", `{"spaceId":"platform","component":"traefik"}`).job(t)
	s.job = v.ID
	s.set(v.ID, func(j *job.Job) {
		j.Status = job.Completed
		j.Config.InfraConfig.Components = []job.ComponentInfo{{Name: "traefik", Release: "traefik", Namespace: "traefik", Version: "41.3.0", Revision: 2, Status: "ready",
			History: []job.ComponentRevision{{Revision: 1, Version: "41.2.0", Values: json.RawMessage(`{"a":1}`)}, {Revision: 2, Version: "41.3.0"}}}}
	})
	return s
}

func (s *shop) addSpace(org, name, spaceType string) string {
	s.t.Helper()
	id, err := s.registry.Register(db.System(s.t.Context()), &configv1.Space{OrgId: org, Name: name, SubjectType: "cluster", SubjectId: job.NewID("clu"), Provider: "aws", Region: "us-east-1",
		SpaceType: spaceType, CloudAccountId: "default", Config: map[string]string{"region": "us-east-1", "cluster": "eks-1"}})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// shops runs a test on both databases.
func shops(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newShop(t, filepath.Join(t.TempDir(), "ledger.db")))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newShop(t, pgtest.ServiceDatabase(t)))
	})
}

// fill puts the shop's IDs into a path or a body.
func (s *shop) fill(text string) string {
	return strings.NewReplacer("{space}", s.space, "{vms}", s.vms, "{job}", s.job).Replace(text)
}

func TestSpacesAndComponentsOfOthers(t *testing.T) {
	shops(t, func(t *testing.T, s *shop) {
		before := string(s.do(adminToken, "GET", "/provisioning-jobs/"+s.job, "").body) + string(s.do(adminToken, "GET", "/spaces", "").body)
		for _, c := range [][3]string{
			{"GET", "/spaces/{space}", ""}, {"GET", "/spaces/platform", ""}, {"DELETE", "/spaces/{space}", ""}, {"DELETE", "/spaces/platform", ""},
			{"GET", "/spaces/{space}/namespaces", ""}, {"GET", "/spaces/platform/namespaces", ""}, {"POST", "/spaces/{space}/namespaces", `{"name":"x"}`},
			{"POST", "/provisioning-jobs/install-component", `{"spaceId":"{space}","component":"loki"}`},
			{"POST", "/provisioning-jobs/install-component", `{"spaceId":"platform","component":"loki"}`},
			{"POST", "/provisioning-jobs", `{"resourceType":"component","config":{"spec":{"spaceId":"{space}","component":{"name":"loki"}}}}`},
			{"POST", "/provisioning-jobs/plan", `{"resourceType":"component","config":{"spec":{"spaceId":"{space}","component":{"name":"loki"}}}}`},
			{"PATCH", "/provisioning-jobs/{job}", `{"componentOp":"rollback"}`},
			{"PATCH", "/provisioning-jobs/traefik-on-platform", `{"componentOp":"upgrade","config":{"spec":{"component":{"version":"1.0.0"}}}}`},
			{"POST", "/provisioning-jobs/{job}/diff", `{}`}, {"POST", "/provisioning-jobs/traefik-on-platform/diff", `{}`},
			{"DELETE", "/provisioning-jobs/{job}", ""}, {"GET", "/provisioning-jobs/{job}/receipt", ""}, {"POST", "/provisioning-jobs/{job}/verify", ""},
		} {
			a := s.do(otherToken, c[0], s.fill(c[1]), s.fill(c[2]))
			if a.status != 404 || a.problem(t).Code != "not-found" {
				t.Errorf("%s %s by another organisation: %d %s", c[0], c[1], a.status, a.body)
			}
		}
		var none []json.RawMessage
		if s.do(otherToken, "GET", "/spaces", "").into(t, &none); len(none) != 0 {
			t.Errorf("another organisation lists %s", none)
		}
		if after := string(s.do(adminToken, "GET", "/provisioning-jobs/"+s.job, "").body) + string(s.do(adminToken, "GET", "/spaces", "").body); after != before {
			t.Errorf("another organisation changed something:\n%s\n%s", before, after)
		}
		// A name is an organisation's own.
		s.addSpace("org2", "platform", job.SpaceKubernetes)
		if a := s.do(otherToken, "POST", "/provisioning-jobs/install-component", `{"spaceId":"platform","component":"traefik"}`); a.status != 201 || a.job(t).OrgID != "org2" {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// hostileBodies are no request of anything.
var hostileBodies = map[string]string{
	"nothing": " ", "no JSON": `{"name":`, "a list": `[1,2]`, "null": `null`, "a string": `"x"`, "trailing": `{} {}`, "not UTF-8": "{\"name\":\"\xff\xfe\"}",
	"a NUL": `{"name":"a\u0000b"}`, "a lone surrogate": `{"name":"\ud800"}`, "a key twice": `{"name":"a","name":"b"}`, "unknown": `{"nonsense":1}`,
	"numbers": `{"name":1,"spaceId":2,"component":3,"provider":4,"spec":5,"componentOp":6}`, "nulls": `{"name":null,"spaceId":null,"provider":null,"spec":null}`,
	"lists":         `{"name":[],"spaceId":[],"config":[],"spec":[],"labels":[],"values":[]}`,
	"deep":          `{"values":` + strings.Repeat(`{"a":`, 40) + `1` + strings.Repeat(`}`, 40) + `,"spec":{"component":{"values":` + strings.Repeat(`{"a":`, 40) + `1` + strings.Repeat(`}`, 40) + `}}}`,
	"SQL":           `{"name":"x'; DROP TABLE spaces; --","spaceId":"' OR 1=1 --","component":"'","provider":"aws' --"}`,
	"a path":        `{"name":"../../etc","spaceId":"../..","component":"../x","provider":"aws/..","config":{"region":"../..","cluster":"%2e%2e"}}`,
	"a huge number": `{"revision":99999999999999999999,"componentOp":"rollback"}`, "a long key": `{"` + strings.Repeat("k", 50_000) + `":1}`,
}

func TestHostileBodiesOfComponentsAndSpaces(t *testing.T) {
	shops(t, func(t *testing.T, s *shop) {
		for _, at := range []string{
			"POST /spaces", "POST /spaces/{space}/namespaces", "POST /provisioning-jobs/install-component", "POST /provisioning-jobs/{job}/diff",
			"PATCH /provisioning-jobs/{job}", "PUT /cloud-accounts/default/clusters/us-east-1/eks-1/access",
		} {
			method, path, _ := strings.Cut(s.fill(at), " ")
			for name, body := range hostileBodies {
				a := s.do(adminToken, method, path, body)
				p := a.problem(t)
				if a.status != 400 && a.status != 422 && a.status != 404 || p.Detail == "" || a.status == 422 && len(p.Errors) == 0 || len(a.body) > 30_000 {
					t.Errorf("%s with %s: %d %.300s", at, name, a.status, a.body)
				}
				for _, f := range p.Errors {
					if f.Field == "" || f.Fix == "" {
						t.Errorf("%s with %s: %+v", at, name, f)
					}
				}
			}
			big := `{"name":"` + strings.Repeat("a", 1<<20) + `"}`
			if a := s.do(adminToken, method, path, big); a.status != 413 || a.problem(t).Code != "too-large" {
				t.Errorf("%s with too much: %d", at, a.status)
			}
			if a := s.do(adminToken, method, path, "name: x", "Content-Type", "application/yaml"); a.status != 415 {
				t.Errorf("%s with YAML: %d", at, a.status)
			}
		}
		var jobs, all []json.RawMessage
		s.do(adminToken, "GET", "/provisioning-jobs", "").into(t, &jobs)
		s.do(adminToken, "GET", "/spaces", "").into(t, &all)
		if len(jobs) != 1 || len(all) != 2 || s.do(adminToken, "GET", "/provisioning-jobs/"+s.job, "").job(t).SpecRevision != 1 {
			t.Errorf("%d jobs and %d spaces are left, or the job was changed", len(jobs), len(all))
		}
	})
}

func TestHostileRequestsOfComponentsAndSpaces(t *testing.T) {
	shops(t, func(t *testing.T, s *shop) {
		for _, tc := range []struct {
			name, method, path, body string
			status                   int
			code, field              string
		}{
			{"an unknown query", "GET", "/spaces?expand=1", "", 422, "invalid", "expand"},
			{"an unknown query of a space", "GET", "/spaces/{space}?full=1", "", 422, "invalid", "full"},
			{"an unknown query of a forget", "DELETE", "/spaces/{vms}?confirm=vms", "", 422, "invalid", "confirm"},
			{"an unknown query of namespaces", "GET", "/spaces/{space}/namespaces?limit=1", "", 422, "invalid", "limit"},
			{"an unknown query of the catalogue", "GET", "/catalog/components?q=x", "", 422, "invalid", "q"},
			{"an unknown query of a component", "GET", "/catalog/components/traefik?version=1", "", 422, "invalid", "version"},
			{"an unknown query of an install", "POST", "/provisioning-jobs/install-component?wait=1", "{}", 422, "invalid", "wait"},
			{"an unknown query of a diff", "POST", "/provisioning-jobs/{job}/diff?x=1", "{}", 422, "invalid", "x"},
			{"no limit", "GET", "/spaces?limit=0", "", 422, "invalid", "limit"},
			{"too high a limit", "GET", "/spaces?limit=501", "", 422, "invalid", "limit"},
			{"a limit of words", "GET", "/spaces?limit=all", "", 422, "invalid", "limit"},
			{"a cursor of nowhere", "GET", "/spaces?cursor=zzz", "", 422, "invalid", "cursor"},
			{"a cursor of another list", "GET", "/spaces?cursor={job}", "", 422, "invalid", "cursor"},
			{"a NUL in a cursor", "GET", "/spaces?cursor=%00", "", 422, "invalid", ""},
			{"an endless cursor", "GET", "/spaces?cursor=" + strings.Repeat("a", 300), "", 422, "invalid", "cursor"},
			{"a NUL in a search", "GET", "/catalog/components?search=%00", "", 422, "invalid", ""},
			{"a search that is no text", "GET", "/catalog/components?search=%ff", "", 422, "invalid", ""},
			{"an endless search", "GET", "/catalog/components?search=" + strings.Repeat("a", 101), "", 422, "invalid", "search"},
			{"another cloud", "GET", "/catalog/components?provider=oracle", "", 422, "invalid", "provider"},
			{"no version", "GET", "/catalog/components?kubeVersion=newest", "", 422, "invalid", "kubeVersion"},
			{"a space's ID with a NUL", "GET", "/spaces/a%00b", "", 404, "not-found", ""},
			{"a space's ID that climbs", "GET", "/spaces/..%2f..%2fetc", "", 404, "not-found", ""},
			{"a space's ID of wildcards", "GET", "/spaces/%25", "", 404, "not-found", ""},
			{"a space's endless ID", "DELETE", "/spaces/" + strings.Repeat("a", 5000), "", 404, "not-found", ""},
			{"the beginning of a space's ID", "GET", "/spaces/spc_0", "", 404, "not-found", ""},
			{"a component that is no text", "GET", "/catalog/components/%ff%fe", "", 404, "not-found", ""},
			{"a component that climbs", "GET", "/catalog/components/..%2ftraefik", "", 404, "not-found", ""},
			{"namespaces of VMs", "GET", "/spaces/{vms}/namespaces", "", 409, "wrong-state", ""},
			{"a diff of nothing", "POST", "/provisioning-jobs/job_none/diff", "{}", 404, "not-found", ""},
			{"access without a cloud", "DELETE", "/cloud-accounts/default/clusters/us-east-1/eks-1/access", "", 422, "invalid", "provider"},
			{"access at another cloud", "DELETE", "/cloud-accounts/default/clusters/us-east-1/eks-1/access?provider=oracle", "", 422, "invalid", "provider"},
			{"access of a principal with a NUL", "DELETE", "/cloud-accounts/default/clusters/us-east-1/eks-1/access?provider=aws&principal=%00", "", 422, "invalid", ""},
			{"access in another account", "PUT", "/cloud-accounts/theirs/clusters/us-east-1/eks-1/access", `{"provider":"aws"}`, 404, "not-found", ""},
			{"access in a region that climbs", "PUT", "/cloud-accounts/default/clusters/..%2f../eks-1/access", `{"provider":"aws"}`, 422, "invalid", "region"},
			{"access without a level", "PUT", "/cloud-accounts/default/clusters/us-east-1/eks-1/access", `{"provider":"aws","level":"root"}`, 422, "invalid", "level"},
			{"PUT of a space", "PUT", "/spaces/{space}", "{}", 405, "method-not-allowed", ""},
			{"DELETE of the catalogue", "DELETE", "/catalog/components", "", 405, "method-not-allowed", ""},
			{"GET of access", "GET", "/cloud-accounts/default/clusters/us-east-1/eks-1/access", "", 405, "method-not-allowed", ""},
			{"below the catalogue", "GET", "/catalog/components/traefik/values", "", 404, "no-such-path", ""},
		} {
			t.Run(tc.name, func(t *testing.T) {
				a := s.do(adminToken, tc.method, s.fill(tc.path), tc.body)
				p := a.problem(t)
				if a.status != tc.status || p.Code != tc.code {
					t.Fatalf("%d %.400s", a.status, a.body)
				}
				if tc.field != "" && (len(p.Errors) == 0 || p.Errors[0].Field != tc.field) {
					t.Errorf("fields %+v, want %q", p.Errors, tc.field)
				}
			})
		}
		if a := s.do(adminToken, "PATCH", "/provisioning-jobs/"+s.job, `{"componentOp":"rollback"}`, "If-Match", `"7"`); a.status != 412 {
			t.Errorf("a stale rollback: %d", a.status)
		}
		if a := s.do(adminToken, "PATCH", "/provisioning-jobs/"+s.job, `{"componentOp":"rollback"}`, "If-Match", `"1"`); a.status != 200 || a.header.Get("ETag") != `"2"` {
			t.Errorf("a rollback: %d %s", a.status, a.body)
		}
		// Without a cloud, what asks one says so.
		for _, c := range [][3]string{
			{"POST", "/spaces", `{"name":"x","provider":"aws","config":{"region":"us-east-1","cluster":"eks-1"}}`}, {"GET", "/spaces/{space}/namespaces", ""},
			{"PUT", "/cloud-accounts/default/clusters/us-east-1/eks-1/access", `{"provider":"aws"}`}, {"POST", "/provisioning-jobs/{job}/diff", "{}"},
		} {
			if a := s.do(adminToken, c[0], s.fill(c[1]), c[2]); a.status != 503 || a.problem(t).Code != "cloud-unavailable" || a.problem(t).Hint == "" {
				t.Errorf("%s %s without a cloud: %d %s", c[0], c[1], a.status, a.body)
			}
		}
	})
}

func TestComponentAnswersAreAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	s := newShop(t, filepath.Join(t.TempDir(), "ledger.db"))
	call := func(method, template, path, body string, header ...string) {
		t.Helper()
		s.conform(method, template, s.do(adminToken, method, s.fill(path), s.fill(body), append(header, "Accept", "application/json")...))
	}
	const install, spacesPath, one, spaceOne, access = "/provisioning-jobs/install-component", "/spaces", "/provisioning-jobs/{id}", "/spaces/{id}", "/cloud-accounts/{id}/clusters/{region}/{name}/access"
	call("POST", install, install, `{"spaceId":"{space}","component":"loki"}`, "Idempotency-Key", "k")
	call("POST", install, install, `{"spaceId":"{space}","component":"loki"}`, "Idempotency-Key", "k")
	call("POST", install, install, `{"spaceId":"{space}","component":"loki"}`)
	call("POST", install, install, `{"spaceId":"nothing","component":"loki"}`)
	call("POST", install, install, `{`)
	call("GET", spacesPath, spacesPath, "")
	call("GET", spacesPath, spacesPath+"?limit=1", "")
	call("GET", spacesPath, spacesPath+"?cursor=x", "")
	call("POST", spacesPath, spacesPath, `{"name":"x","provider":"aws","config":{"region":"us-east-1","cluster":"eks-1"}}`)
	call("POST", spacesPath, spacesPath, `{}`)
	call("GET", spaceOne, "/spaces/{space}", "")
	call("GET", spaceOne, "/spaces/nothing", "")
	call("DELETE", spaceOne, "/spaces/{space}", "")
	call("DELETE", spaceOne, "/spaces/{vms}", "")
	call("GET", spaceOne+"/namespaces", "/spaces/{space}/namespaces", "")
	call("POST", spaceOne+"/namespaces", "/spaces/{space}/namespaces", `{"name":"Bad"}`)
	call("GET", "/catalog/components", "/catalog/components", "")
	call("GET", "/catalog/components", "/catalog/components?kubeVersion=x", "")
	for _, name := range []string{"traefik", "karpenter", "ingress-nginx", "nothing"} {
		call("GET", "/catalog/components/{id}", "/catalog/components/"+name, "")
	}
	call("GET", one, "/provisioning-jobs/{job}", "")
	call("GET", one+"/explain", "/provisioning-jobs/{job}/explain", "")
	call("POST", one+"/diff", "/provisioning-jobs/{job}/diff", `{}`)
	call("PATCH", one, "/provisioning-jobs/{job}", `{"componentOp":"rollback"}`)
	call("DELETE", one, "/provisioning-jobs/{job}", "")
	call("PUT", access, "/cloud-accounts/default/clusters/us-east-1/eks-1/access", `{"provider":"aws"}`)
	call("PUT", access, "/cloud-accounts/default/clusters/us-east-1/eks-1/access", `{"level":"x"}`)
	call("DELETE", access, "/cloud-accounts/default/clusters/us-east-1/eks-1/access?provider=aws", "")
}

// TestDocumentIsWhole: every operation says who may, what it answers, and what is
// wrong in the one form that errors have; every parameter of a path is there.
func TestDocumentIsWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	doc := r.api.api.OpenAPI()
	ids := map[string]string{}
	for path, item := range doc.Paths {
		for _, op := range operationsOf(item) {
			at := op.Method + " " + path
			if was := ids[op.OperationID]; was != "" || op.OperationID == "" || op.Summary == "" || len(op.Tags) != 1 || op.Extensions[policyKey] == nil {
				t.Errorf("%s: ID %q (also %s), summary %q, tags %q", at, op.OperationID, was, op.Summary, op.Tags)
			}
			ids[op.OperationID] = at
			for part := range strings.SplitSeq(path, "/") {
				name := strings.Trim(part, "{}")
				found := name == part
				for _, p := range op.Parameters {
					found = found || p.In == "path" && p.Name == name && p.Required && p.Description != ""
				}
				if !found {
					t.Errorf("%s: the parameter %s is not described", at, name)
				}
			}
			good := 0
			for status, resp := range op.Responses {
				switch {
				case status[0] == '2', status == "303":
					good++
				case resp.Content["application/problem+json"] == nil || len(resp.Content) != 1:
					t.Errorf("%s: the answer %s is no problem document", at, status)
				}
			}
			if good == 0 {
				t.Errorf("%s: no answer is a success", at)
			}
			takes := slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, op.Method)
			if op.RequestBody != nil && !takes || op.Method == http.MethodPut && op.RequestBody == nil {
				t.Errorf("%s: body %v", at, op.RequestBody)
			}
		}
	}
	schemas := doc.Components.Schemas.Map()
	for name, required := range map[string]string{
		"InstallRequest": "[spaceId component]", "ComponentJobSpec": "[spaceId component]", "SpaceRequest": "[name provider config]", "SpaceConfig": "[region cluster]",
		"AccessRequest": "[provider]", "NamespaceRequest": "[name]", "ClusterSpec": "[]",
	} {
		if s := schemas[name]; s == nil || fmt.Sprint(s.Required) != required {
			t.Errorf("%s: %+v", name, s)
		}
	}
	page := string(r.do("", "GET", "/docs", "").body)
	for _, text := range []string{"grant-cluster-access", "nodePools", "componentOp", "install-component", "waive"} {
		if !strings.Contains(page, text) {
			t.Errorf("/docs does not show %s", text)
		}
	}
}
