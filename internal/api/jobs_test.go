package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

func TestIdempotencyKey(t *testing.T) { onBoth(t, testIdempotencyKey) }

func testIdempotencyKey(t *testing.T, r *rig) {
	first := r.do(adminToken, "POST", "/provisioning-jobs", vmJob("shop"), "Idempotency-Key", "k1")
	spaced := strings.ReplaceAll(vmJob("shop"), ",", " ,\n")
	again := r.do(adminToken, "POST", "/provisioning-jobs", spaced, "Idempotency-Key", "k1")
	if first.status != 201 || again.status != 200 || first.job(t).ID != again.job(t).ID {
		t.Fatalf("%d %s, then %d %s", first.status, first.job(t).ID, again.status, again.body)
	}
	other := r.do(adminToken, "POST", "/provisioning-jobs", vmJob("shop2"), "Idempotency-Key", "k1")
	if p := other.problem(t); other.status != 409 || p.Code != "idempotency-key-used" || p.Job != first.job(t).ID {
		t.Errorf("another body: %d %s", other.status, other.body)
	}
	if a := r.do(otherToken, "POST", "/provisioning-jobs", vmJob("shop2"), "Idempotency-Key", "k1"); a.status != 201 {
		t.Errorf("another organisation's key: %d %s", a.status, a.body)
	}
	for _, bad := range []string{"with space", strings.Repeat("k", 256), "ümlaut"} {
		if a := r.do(adminToken, "POST", "/provisioning-jobs", vmJob("shop3"), "Idempotency-Key", bad); a.status != 422 {
			t.Errorf("key %.20q: %d", bad, a.status)
		}
	}
}

func TestIdempotencyKeyAtOnce(t *testing.T) { onBoth(t, testIdempotencyKeyAtOnce) }

func testIdempotencyKeyAtOnce(t *testing.T, r *rig) {
	const n = 8
	ids := make([]string, n)
	created := make([]bool, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			a := r.do(adminToken, "POST", "/provisioning-jobs", vmJob("shop", `"submit":true`), "Idempotency-Key", "one")
			ids[i], created[i] = a.job(t).ID, a.status == 201
		})
	}
	wg.Wait()
	made := 0
	for i := range n {
		if ids[i] != ids[0] {
			t.Errorf("two jobs: %s and %s", ids[0], ids[i])
		}
		if created[i] {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d answers say created", made)
	}
}

func TestNameTaken(t *testing.T) { onBoth(t, testNameTaken) }

func testNameTaken(t *testing.T, r *rig) {
	v := r.create(vmJob("shop"))
	a := r.do(adminToken, "POST", "/provisioning-jobs", vmJob("shop"))
	if p := a.problem(t); a.status != 409 || p.Code != "name-taken" || p.Job != v.ID || p.Errors[0].Field != "name" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.do(adminToken, "DELETE", "/provisioning-jobs/"+v.ID, ""); a.status != 200 || a.job(t).Status != job.Cancelled {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.create(vmJob("shop")) // a cancelled job holds no name
}

// A network job is taken at every cloud, with its defaults; what it cannot be is
// said field by field.
func TestNetworkJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for cloud, region := range map[string]string{"aws": "eu-central-1", "gcp": "europe-west3", "azure": "germanywestcentral"} {
		body := func(spec string) string {
			return fmt.Sprintf(`{"resourceType":"network","provider":%q,"name":"net-%s","region":%q,"config":{"spec":%s}}`, cloud, cloud, region, spec)
		}
		v := r.create(body(`{"network":{"subnets":["public","private","database"]},"dnsZones":[{"name":"shop.internal"}]}`))
		if v.SubjectType != "network" || !strings.HasPrefix(v.SubjectID, "net_") || v.ResourceType != job.Network {
			t.Errorf("%s: subject %s %s", cloud, v.SubjectType, v.SubjectID)
		}
		for spec, field := range map[string]string{
			`{"network":{"cidr":"10.0.0.0/8"}}`:                                     "config.spec.network.cidr",
			`{"network":{"subnets":["public","dmz"]}}`:                              "config.spec.network.subnets[1]",
			`{"network":{"zones":5}}`:                                               "config.spec.network.zones",
			`{"network":{"nat":"two"}}`:                                             "config.spec.network.nat",
			`{"peerings":[{}]}`:                                                     "config.spec.peerings[0].networkId",
			`{"dnsZones":[{"name":"Shop."}]}`:                                       "config.spec.dnsZones[0].name",
			`{"dnsZones":[{"name":"a.test","visibility":"secret"}]}`:                "config.spec.dnsZones[0].visibility",
			`{"dnsZones":[{"name":"a.test"},{"name":"a.test"}]}`:                    "config.spec.dnsZones[1].name",
			`{"existing":{"networkId":"x"}}`:                                        "config.spec.existing",
			`{"pool":{"count":2}}`:                                                  "config.spec.pool",
			`{"network":{"privateServices":{"cidr":"10.9.0.0/28"}}}`:                "config.spec.network.privateServices",
			`{"network":{"secondaryRanges":[{"name":"Pods"}],"secondaryCidrs":[]}}`: "config.spec.network.secondaryRanges",
			`{"network":{"interfaceEndpoints":["ec2"]}}`:                            "config.spec.network.interfaceEndpoints",
		} {
			a := r.do(adminToken, "POST", "/provisioning-jobs", body(spec))
			if a.status != 422 {
				t.Errorf("%s %s: %d %s", cloud, spec, a.status, a.body)
				continue
			}
			p := a.problem(t)
			if !slices.ContainsFunc(p.Errors, func(f job.FieldError) bool { return strings.HasPrefix(f.Field, field) && f.Fix != "" }) {
				t.Errorf("%s %s: %+v does not name %s", cloud, spec, p.Errors, field)
			}
		}
	}
}

// With the gate on, a VM job at Azure is taken.
func TestFeatureGate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const body = `{"resourceType":"vm","provider":"azure","name":"a","region":"westeurope","config":{"spec":{"pool":{"count":1}}}}`
	if a := r.do(adminToken, "POST", "/provisioning-jobs", body); a.status != 422 || a.problem(t).Code != "invalid" {
		t.Fatalf("the gate is off: %d %s", a.status, a.body)
	}
	r.service.Gates = job.Gates{job.AzureVMSS: true}
	if v := r.create(body); v.Provider != job.Azure {
		t.Errorf("%+v", v)
	}
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, tc := range []struct {
		name, body string
		status     int
		code       string
		fields     []string
		says       string
	}{
		{"azure VMs are in preview", `{"resourceType":"vm","provider":"azure","name":"a","region":"westeurope","config":{"spec":{"pool":{}}}}`, 422, "invalid", []string{"provider"}, "preview"},
		{"a family of a later version", `{"resourceType":"queue","provider":"aws","name":"a","region":"us-east-1","config":{"spec":{"nodes":3}}}`, 422, "invalid", []string{"resourceType"}, "queue"},
		{"everything wrong at once", `{"resourceType":"vm","provider":"aws","name":"Bad Name","region":"us-east-1","nme":1,"config":{"spec":{"pool":{"coutn":2,"diskGiB":"x"}}}}`, 422, "invalid",
			[]string{"nme", "config.spec.pool.coutn", "config.spec.pool.diskGiB"}, "3 fields"},
		{"all values wrong", `{"resourceType":"vm","provider":"aws","name":"Bad Name","region":"us-east-1","config":{"spec":{"pool":{"count":1000,"diskGiB":1}}}}`, 422, "invalid",
			[]string{"name", "config.spec.pool.count", "config.spec.pool.diskGiB"}, ""},
		{"what the server sets", `{"id":"job_x","status":"completed","resourceType":"vm","provider":"aws","name":"a","region":"us-east-1","config":{"spec":{},"infraConfig":{}}}`, 422, "invalid",
			[]string{"config.infraConfig", "id", "status"}, ""},
		{"an unknown account", vmJob("a", `"cloudAccountId":"other"`), 422, "invalid", []string{"cloudAccountId"}, ""},
		{"a reserved label", vmJob("a", `"labels":{"zopday:owner":"me"}`), 422, "invalid", []string{"labels.zopday:owner"}, "reserved"},
		{"HTTP without TLS not asked for", `{"resourceType":"vm","provider":"aws","name":"a","region":"us-east-1","config":{"spec":{"loadBalancer":{}}}}`, 422, "invalid", []string{"config.spec.loadBalancer.certificate"}, ""},
		{"a remediation with the spec of VMs", vmJob("a", `"kind":"remediation"`), 422, "invalid", []string{"config.spec.pool"}, ""},
		{"an empty object", `{}`, 422, "invalid", []string{"name", "provider", "region", "resourceType"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := r.do(adminToken, "POST", "/provisioning-jobs", tc.body)
			p := a.problem(t)
			if a.status != tc.status || p.Code != tc.code || !strings.Contains(string(a.body), tc.says) {
				t.Fatalf("%d %s", a.status, a.body)
			}
			var fields []string
			for _, f := range p.Errors {
				fields = append(fields, f.Field)
				if f.Message == "" || f.Fix == "" {
					t.Errorf("%s has no message or no fix", f.Field)
				}
			}
			slices.Sort(fields)
			slices.Sort(tc.fields)
			if diff := cmp.Diff(tc.fields, fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
	var jobs []json.RawMessage
	if r.do(adminToken, "GET", "/provisioning-jobs", "").into(t, &jobs); len(jobs) != 0 {
		t.Errorf("%d jobs were made all the same", len(jobs))
	}
}

func TestDraftIsEditedAndSubmitted(t *testing.T) { onBoth(t, testDraftIsEditedAndSubmitted) }

func testDraftIsEditedAndSubmitted(t *testing.T, r *rig) {
	v := r.create(vmJob("shop"))
	path := "/provisioning-jobs/" + v.ID
	a := r.do(adminToken, "PATCH", path, `{"name":"shop2","labels":{"a":"b"},"config":{"spec":{"pool":{"count":3},"bootstrap":"bare_metal"}}}`, "If-Match", `"1"`)
	got := a.job(t)
	if a.status != 200 || got.Name != "shop2" || got.SpecRevision != 2 || a.header.Get("ETag") != `"2"` {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if want := `{"bootstrap":"bare_metal","pool":{"count":3,"mode":"fixed"}}`; string(got.Config.Spec) != want {
		t.Errorf("spec %s, want %s", got.Config.Spec, want)
	}
	if a := r.do(adminToken, "PATCH", path, `{"name":"shop3"}`, "If-Match", `"1"`); a.status != 412 || a.problem(t).Code != "precondition-failed" {
		t.Errorf("an old revision: %d", a.status)
	}
	for _, m := range []string{`W/"2"`, `2`, `"x"`} {
		if a := r.do(adminToken, "PATCH", path, `{"name":"shop3"}`, "If-Match", m); a.status != 412 {
			t.Errorf("If-Match %s: %d", m, a.status)
		}
	}
	if a := r.do(adminToken, "PATCH", path, `{"config":{"spec":{"pool":{"count":0,"mode":"nope"}}}}`); a.status != 422 {
		t.Errorf("a bad edit: %d", a.status)
	}
	if a := r.do(adminToken, "PATCH", path, `{"config":{"spec":{"bootstrap":null}}}`); string(a.job(t).Config.Spec) != `{"pool":{"count":3,"mode":"fixed"}}` {
		t.Errorf("null does not remove: %s", a.body)
	}
	r.create(vmJob("taken"))
	if a := r.do(adminToken, "PATCH", path, `{"name":"taken"}`); a.status != 409 || a.problem(t).Code != "name-taken" {
		t.Errorf("a name that is taken: %d %s", a.status, a.body)
	}
	if a := r.do(adminToken, "PATCH", path, `{}`); a.status != 422 {
		t.Errorf("an empty patch: %d", a.status)
	}
	if a := r.do(adminToken, "PATCH", path, `{"status":"completed"}`); a.status != 422 {
		t.Errorf("a status that cannot be set: %d", a.status)
	}
	if a := r.do(adminToken, "PATCH", path, `{"status":"queued"}`, "If-Match", "*"); a.status != 200 || a.job(t).Status != job.Queued {
		t.Fatalf("submit: %d %s", a.status, a.body)
	}
	if a := r.do(adminToken, "PATCH", path, `{"status":"queued"}`); a.status != 409 || a.problem(t).Code != "wrong-state" {
		t.Errorf("submitted twice: %d", a.status)
	}
	if a := r.do(adminToken, "PATCH", path, `{"name":"late"}`); a.status != 409 {
		t.Errorf("an edit of a queued job: %d", a.status)
	}
}

func TestDatastoresAreNeverChanged(t *testing.T) { onBoth(t, testDatastoresAreNeverChanged) }

func testDatastoresAreNeverChanged(t *testing.T, r *rig) {
	j := &job.Job{
		ID: job.NewID("job"), OrgID: "org1", Kind: job.Provisioning, ResourceType: job.Datastore, Provider: job.AWS, Mode: job.ModeCreate, Name: "orders",
		CloudAccountID: "default", Region: "us-east-1", SubjectType: "datastore", SubjectID: job.NewID("dst"), Status: job.Completed, Phase: job.PhaseProvision,
		Config: job.Config{Spec: json.RawMessage(`{"engine":"postgres","tier":"small"}`)}, CreatedBy: "ana",
	}
	if err := r.ledger.Insert(db.System(t.Context()), r.db, j); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"tier", "class", "storage", "version", "replicas", "flags"} {
		a := r.do(adminToken, "PATCH", "/provisioning-jobs/"+j.ID, `{"config":{"spec":{"`+field+`":"x"}}}`)
		p := a.problem(t)
		if a.status != 422 || p.Code != "customer-database" || p.Errors[0].Field != "config.spec."+field || !strings.Contains(p.Hint, "aws rds modify-db-instance") {
			t.Errorf("%s: %d %s", field, a.status, a.body)
		}
	}
}

func TestList(t *testing.T) { onBoth(t, testList) }

func testList(t *testing.T, r *rig) {
	for i := range 5 {
		r.create(vmJob(fmt.Sprintf("job-%d", i), fmt.Sprintf(`"labels":{"team":"t%d","env":"dev"}`, i%2), fmt.Sprintf(`"submit":%v`, i%2 == 0)))
	}
	list := func(query string) (names []string, next string) {
		t.Helper()
		a := r.do(viewerToken, "GET", "/provisioning-jobs?"+query, "")
		var body struct {
			Data []struct {
				Name    string
				Verdict provision.Verdict
			}
			Meta struct{ NextCursor *string }
		}
		if err := json.Unmarshal(a.body, &body); err != nil || a.status != 200 {
			t.Fatalf("%s: %d %s", query, a.status, a.body)
		}
		for _, j := range body.Data {
			names = append(names, j.Name)
			if j.Verdict.Sentence == "" {
				t.Errorf("%s has no verdict", j.Name)
			}
		}
		if body.Meta.NextCursor != nil {
			next = *body.Meta.NextCursor
		}
		return names, next
	}
	for query, want := range map[string][]string{
		"sort=name":              {"job-0", "job-1", "job-2", "job-3", "job-4"},
		"sort=-name&limit=2":     {"job-4", "job-3"},
		"status=draft&sort=name": {"job-1", "job-3"},
		"status=draft&status=queued&sort=name&limit=3": {"job-0", "job-1", "job-2"},
		"label=team%3Dt1&sort=name":                    {"job-1", "job-3"},
		"label=team%3Dt1&label=env%3Dprod":             nil,
		"name=JOB-3":                                   {"job-3"},
		"provider=gcp":                                 nil,
		"subjectType=vm_pool&sort=name&limit=1":        {"job-0"},
		"subjectType=cluster":                          nil,
		"subjectType=vm_pool&resourceType=cluster":     nil,
		"mode=create&kind=provisioning&name=job-1":     {"job-1"},
		"phase=teardown":                               nil,
		"createdFrom=2020-01-01T00:00:00Z&name=job-2":  {"job-2"},
		"createdTo=2020-01-01T00:00:00Z":               nil,
		"subjectId=vmp_none":                           nil,
		"name=%25":                                     nil,
		"status=draft&phase=provision&resourceType=vm&sort=-createdAt&limit=1": {"job-3"},
	} {
		if got, _ := list(query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	var all []string
	cursor := ""
	for range 10 {
		names, next := list("sort=name&limit=2&cursor=" + cursor)
		all = append(all, names...)
		if cursor = next; cursor == "" {
			break
		}
	}
	if want := []string{"job-0", "job-1", "job-2", "job-3", "job-4"}; !slices.Equal(all, want) {
		t.Errorf("page by page: %v", all)
	}
	_, next := list("sort=name&limit=2")
	for _, bad := range []string{
		"limit=0", "limit=501", "limit=x", "limit=-1", "sort=color", "status=ready", "cursor=%21%21", "cursor=" + next + "&sort=-createdAt", "createdFrom=yesterday",
		"label=team", "label=%3Dx", "label=a%3Db&label=a%3Dc", "unknown=1", "subjectType=nope", "name=%00", "name=%ff", "phase=x",
	} {
		a := r.do(viewerToken, "GET", "/provisioning-jobs?"+bad, "")
		if a.status != http.StatusUnprocessableEntity || a.problem(t).Code != "invalid" || len(a.problem(t).Errors) == 0 {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
}
