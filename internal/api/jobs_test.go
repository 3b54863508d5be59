package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
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
		{"a family of a later version", `{"resourceType":"cluster","provider":"aws","name":"a","region":"us-east-1","config":{"spec":{"nodes":3}}}`, 422, "invalid", []string{"resourceType"}, "cluster"},
		{"everything wrong at once", `{"resourceType":"vm","provider":"aws","name":"Bad Name","region":"us-east-1","nme":1,"config":{"spec":{"pool":{"coutn":2,"diskGiB":"x"}}}}`, 422, "invalid",
			[]string{"nme", "config.spec.pool.coutn", "config.spec.pool.diskGiB"}, "3 fields"},
		{"all values wrong", `{"resourceType":"vm","provider":"aws","name":"Bad Name","region":"us-east-1","config":{"spec":{"pool":{"count":1000,"diskGiB":1}}}}`, 422, "invalid",
			[]string{"name", "config.spec.pool.count", "config.spec.pool.diskGiB"}, ""},
		{"what the server sets", `{"id":"job_x","status":"completed","resourceType":"vm","provider":"aws","name":"a","region":"us-east-1","config":{"spec":{},"infraConfig":{}}}`, 422, "invalid",
			[]string{"config.infraConfig", "id", "status"}, ""},
		{"an unknown account", vmJob("a", `"cloudAccountId":"other"`), 422, "invalid", []string{"cloudAccountId"}, ""},
		{"a reserved label", vmJob("a", `"labels":{"zopday:owner":"me"}`), 422, "invalid", []string{"labels.zopday:owner"}, "reserved"},
		{"HTTP without TLS not asked for", `{"resourceType":"vm","provider":"aws","name":"a","region":"us-east-1","config":{"spec":{"loadBalancer":{}}}}`, 422, "invalid", []string{"config.spec.loadBalancer.certificate"}, ""},
		{"remediation is not created here", vmJob("a", `"kind":"remediation"`), 422, "invalid", []string{"kind"}, ""},
		{"an empty object", `{}`, 422, "invalid", []string{"name", "region", "resourceType"}, ""},
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

// finish leaves a job as a worker leaves one that it has built.
func (r *rig) finish(id string, lb bool) {
	r.set(id, func(j *job.Job) {
		j.Status, j.Phase = job.Completed, job.PhaseProvision
		if lb {
			j.Config.InfraConfig.LoadBalancerID = "arn:aws:elasticloadbalancing:us-east-1:1:loadbalancer/app/x/1"
			j.Config.InfraConfig.LoadBalancerHost = "x.elb.amazonaws.com"
		}
	})
}

const withLB = `{"resourceType":"vm","provider":"aws","name":"shop","region":"us-east-1","submit":true,"config":{"spec":{"loadBalancer":{"plainHTTP":true}}}}`

func TestVMOps(t *testing.T) {
	t.Parallel()
	type step struct {
		patch  string
		status int
		code   string
	}
	for _, tc := range []struct {
		name, body string
		state      func(*job.Job)
		steps      []step
		check      func(t *testing.T, v provision.JobView, a answer)
	}{
		{"attach with a default", vmJob("shop", `"submit":true`), completed, []step{{`{"vmOp":"attach_lb"}`, 200, ""}},
			func(t *testing.T, v provision.JobView, a answer) {
				if v.Status != job.Queued || v.Phase != job.PhaseUpdate || v.VMOp != job.AttachLB || v.Run != 2 || len(v.Steps) != 4 {
					t.Errorf("%s", a.body)
				}
				lb, err := v.LoadBalancer()
				if err != nil || lb == nil || !lb.PlainHTTP || lb.Scheme != job.SchemePublic {
					t.Errorf("load balancer %+v, %v", lb, err)
				}
				if !strings.Contains(string(a.body), `"warnings":["No load balancer was described`) {
					t.Errorf("no warning about plain HTTP: %s", a.body)
				}
			}},
		{"attach one's own", vmJob("shop", `"submit":true`), completed, []step{{`{"vmOp":"attach_lb","config":{"spec":{"loadBalancer":{"type":"tcp","port":8080}}}}`, 200, ""}},
			func(t *testing.T, v provision.JobView, a answer) {
				if lb, _ := v.LoadBalancer(); lb == nil || lb.Type != job.LBTCP || lb.Port != 8080 || v.SpecRevision != 2 {
					t.Errorf("%s", a.body)
				}
				if strings.Contains(string(a.body), "warnings\":[\"") {
					t.Errorf("a warning for what was asked for: %s", a.body)
				}
			}},
		{"attach twice", withLB, completed, []step{{`{"vmOp":"attach_lb"}`, 409, "wrong-state"}}, nil},
		{"attach with a bad one", vmJob("shop", `"submit":true`), completed, []step{
			{`{"vmOp":"attach_lb","config":{"spec":{"loadBalancer":{"type":"http"}}}}`, 422, "invalid"},
			{`{"vmOp":"attach_lb","config":{"spec":{"pool":{"count":9}}}}`, 422, "invalid"},
			{`{"vmOp":"attach_lb","name":"x"}`, 422, "invalid"},
			{`{"vmOp":"explode"}`, 422, "invalid"}}, nil},
		{"detach", withLB, completed, []step{{`{"vmOp":"detach_lb"}`, 200, ""}, {`{"vmOp":"attach_lb"}`, 409, "wrong-state"}},
			func(t *testing.T, v provision.JobView, a answer) {
				if v.VMOp != job.DetachLB || v.Steps[0].Name != "stepCreateDNSRecord" || v.Steps[0].Direction != job.Down {
					t.Errorf("%s", a.body)
				}
			}},
		{"detach what is not there", vmJob("shop", `"submit":true`), completed, []step{{`{"vmOp":"detach_lb"}`, 409, "wrong-state"}, {`{"vmOp":"detach_lb","config":{"spec":{}}}`, 422, "invalid"}}, nil},
		{"attach again after a detach", withLB, func(j *job.Job) {
			completed(j)
			j.Phase, j.VMOp, j.Run, j.Config.InfraConfig.LoadBalancerDetached = job.PhaseUpdate, job.DetachLB, 2, true
		}, []step{{`{"vmOp":"detach_lb"}`, 409, "wrong-state"}, {`{"vmOp":"attach_lb"}`, 200, ""}},
			func(t *testing.T, v provision.JobView, a answer) {
				if lb, _ := v.LoadBalancer(); lb == nil || v.Run != 3 || v.SpecRevision != 1 {
					t.Errorf("%s", a.body)
				}
			}},
		{"busy", vmJob("shop", `"submit":true`), func(*job.Job) {}, []step{{`{"vmOp":"attach_lb"}`, 409, "wrong-state"}}, nil},
		{"draft", vmJob("shop"), func(*job.Job) {}, []step{{`{"vmOp":"attach_lb"}`, 409, "wrong-state"}}, nil},
		{"adopted", `{"resourceType":"vm","provider":"aws","mode":"adopt","name":"shop","region":"us-east-1","submit":true,"config":{"spec":{"adopt":{"name":"asg"}}}}`,
			completed, []step{{`{"vmOp":"attach_lb"}`, 422, "invalid"}}, nil},
		{"a failed attach is retried or undone", vmJob("shop", `"submit":true`), func(j *job.Job) {
			j.Status, j.Phase, j.VMOp, j.Run = job.Failed, job.PhaseUpdate, job.AttachLB, 2
			j.Config.Spec = json.RawMessage(`{"loadBalancer":{"plainHTTP":true}}`)
		}, []step{{`{"vmOp":"attach_lb"}`, 409, "wrong-state"}, {`{"vmOp":"detach_lb"}`, 200, ""}},
			func(t *testing.T, v provision.JobView, a answer) {
				if v.VMOp != job.DetachLB || v.Run != 3 {
					t.Errorf("%s", a.body)
				}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.t = t
			v := r.create(tc.body)
			r.set(v.ID, tc.state)
			var last answer
			for _, s := range tc.steps {
				a := r.do(editorToken, "PATCH", "/provisioning-jobs/"+v.ID, s.patch)
				if a.status != s.status || s.code != "" && a.problem(t).Code != s.code {
					t.Fatalf("%s: %d %s", s.patch, a.status, a.body)
				}
				if a.status == 200 {
					last = a
				}
			}
			if tc.check != nil {
				tc.check(t, last.job(t), last)
			}
		})
	}
}

func completed(j *job.Job) { j.Status, j.Phase = job.Completed, job.PhaseProvision }

func TestHealthCheckChangesAfterTheFact(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(withLB)
	r.finish(v.ID, true)
	path := "/provisioning-jobs/" + v.ID
	for _, bad := range []string{
		`{"config":{"spec":{"loadBalancer":{"scheme":"internal"}}}}`, `{"config":{"spec":{"pool":{"count":5}}}}`,
		`{"config":{"spec":{"loadBalancer":null}}}`, `{"config":{"spec":{"loadBalancer":{"healthCheck":{"path":"no slash"}}}}}`,
	} {
		if a := r.do(adminToken, "PATCH", path, bad); a.status != 422 {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
	a := r.do(adminToken, "PATCH", path, `{"config":{"spec":{"loadBalancer":{"healthCheck":{"path":"/up"}}}}}`)
	got := a.job(t)
	if a.status != 200 || got.Status != job.Queued || got.Phase != job.PhaseUpdate || got.VMOp != job.AttachLB || got.Run != 2 || got.SpecRevision != 2 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestFailedJobsTakeWhatNoFinishedStepUsed(t *testing.T) {
	onBoth(t, testFailedJobsTakeWhatNoFinishedStepUsed)
}

func testFailedJobsTakeWhatNoFinishedStepUsed(t *testing.T, r *rig) {
	v := r.create(withLB)
	// The network, the identity and the launch template are done; the VMs failed.
	claimed, err := r.ledger.Claim(t.Context(), "w1", 1, ledger.ClaimOptions{})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claim: %v, %d", err, len(claimed))
	}
	c := claimed[0]
	var rows []job.StepState
	for _, name := range []string{"stepValidate", "stepCreateNetwork", "stepCreateIAM", "stepCreateLaunchTemplate"} {
		rows = append(rows, job.StepState{Run: 1, Name: name, Direction: job.Up, Status: job.StepDone})
	}
	rows = append(rows, job.StepState{Run: 1, Name: "stepCreateVMs", Direction: job.Up, Status: job.StepFailed})
	c.Job.Status, c.Job.Error = job.Failed, &job.Error{Code: "quota-exceeded", Message: "the account allows 5 vCPUs", Step: "stepCreateVMs"}
	if _, err := r.ledger.Checkpoint(t.Context(), c.Lease, ledger.Checkpoint{Job: c.Job, Steps: rows, Config: true, Release: true}); err != nil {
		t.Fatal(err)
	}
	path := "/provisioning-jobs/" + v.ID
	for patch, status := range map[string]int{
		`{"config":{"spec":{"network":{"cidr":"10.50.0.0/16"}}}}`:  422,
		`{"config":{"spec":{"pool":{"instanceType":"t3.small"}}}}`: 422,
		`{"config":{"spec":{"bootstrap":"bare_metal"}}}`:           422,
		`{"name":"other"}`:                                                         409,
		`{"config":{"spec":{"pool":{"count":1}}}}`:                                 200,
		`{"config":{"spec":{"loadBalancer":{"scheme":"internal"}}}}`:               200,
		`{"config":{"spec":{"loadBalancer":{"healthCheck":{"path":"/healthz"}}}}}`: 200,
	} {
		a := r.do(adminToken, "PATCH", path, patch)
		if a.status != status {
			t.Errorf("%s: %d, want %d: %s", patch, a.status, status, a.body)
		}
		if status == 200 && a.job(t).Status != job.Failed {
			t.Errorf("an edit moved the job: %s", a.body)
		}
	}
	a := r.do(adminToken, "POST", path+"/retry", "")
	got := a.job(t)
	if a.status != 202 || got.Status != job.Queued || got.Error != nil || got.Run != 1 || got.Steps[1].Status != job.StepDone {
		t.Errorf("retry: %d %s", a.status, a.body)
	}
	if a := r.do(adminToken, "POST", path+"/retry", ""); a.status != 409 {
		t.Errorf("a retry of a queued job: %d", a.status)
	}
}

// TestFailedJobKeepsWhatExists: a pool of which some VMs exist may grow, and a
// health check may change though the target group has it already.
func TestFailedJobKeepsWhatExists(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(withLB)
	c, err := r.ledger.Claim(t.Context(), "w1", 1, ledger.ClaimOptions{})
	if err != nil || len(c) != 1 {
		t.Fatalf("claim: %v, %d", err, len(c))
	}
	now := time.Now()
	object := func(kind, key, step string, state job.ObjectStatus) job.Object {
		return job.Object{JobID: v.ID, Cloud: job.AWS, Account: "1", Region: "us-east-1", Kind: kind, Key: key, ID: kind + key, Name: key, Step: step, State: state, CreatedAt: &now}
	}
	j := c[0].Job
	j.Status, j.Error = job.Failed, &job.Error{Code: "timed-out", Message: "targets are unhealthy", Step: "stepCreateListener"}
	_, err = r.ledger.Checkpoint(t.Context(), c[0].Lease, ledger.Checkpoint{Job: j, Release: true,
		Steps: []job.StepState{
			{Run: 1, Name: "stepCreateVMs", Direction: job.Up, Status: job.StepFailed},
			{Run: 1, Name: "stepCreateTargetGroup", Direction: job.Up, Status: job.StepDone},
		},
		Objects: []job.Object{
			object("ec2:instance", "vm-1", "stepCreateVMs", job.ObjectCreated), object("ec2:instance", "vm-2", "stepCreateVMs", job.ObjectIntended),
			object("ec2:subnet", "a", "stepCreateNetwork", job.ObjectRemoved),
		}})
	if err != nil {
		t.Fatal(err)
	}
	path := "/provisioning-jobs/" + v.ID
	for _, tc := range []struct {
		patch  string
		status int
		says   string
		run    int
	}{
		{`{"config":{"spec":{"pool":{"count":1}}}}`, 422, "2 VMs exist already", 1},
		{`{"config":{"spec":{"pool":{"mode":"asg"}}}}`, 422, "stepCreateVMs has used it", 1},
		{`{"config":{"spec":{"pool":{"count":3}}}}`, 200, "", 1},
		{`{"config":{"spec":{"loadBalancer":{"healthCheck":{"path":"/up"}}}}}`, 200, "", 2},
	} {
		a := r.do(adminToken, "PATCH", path, tc.patch)
		if a.status != tc.status || !strings.Contains(string(a.body), tc.says) {
			t.Errorf("%s: %d %s", tc.patch, a.status, a.body)
		}
		if got := r.do(adminToken, "GET", path, "").job(t); got.Run != tc.run || got.Status != job.Failed {
			t.Errorf("%s: run %d, %s", tc.patch, got.Run, got.Status)
		}
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 2 {
		v := r.create(vmJob("twice"))
		r.do(adminToken, "DELETE", "/provisioning-jobs/"+v.ID, "")
	}
	for _, ref := range []string{"twice", "job_"} {
		if a := r.do(adminToken, "GET", "/provisioning-jobs/"+ref, ""); a.status != 409 || a.problem(t).Code != "ambiguous" || strings.Count(string(a.body), "cancelled") != 2 {
			t.Errorf("%s: %d %s", ref, a.status, a.body)
		}
	}
	live := r.create(vmJob("twice"))
	if got := r.do(adminToken, "GET", "/provisioning-jobs/twice", "").job(t); got.ID != live.ID {
		t.Errorf("a name means the live job: %s", got.ID)
	}
	if a := r.do(adminToken, "DELETE", "/provisioning-jobs/twice", ""); a.status != 200 || a.job(t).ID != live.ID {
		t.Errorf("a change by name: %d %s", a.status, a.body)
	}
}

func TestExplainNamesTheWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(vmJob("shop", `"submit":true`))
	if err := r.ledger.Register(t.Context(), ledger.Worker{ID: "w1", Host: "here"}); err != nil {
		t.Fatal(err)
	}
	r.claim(v.ID)
	var x provision.Explanation
	r.do(viewerToken, "GET", "/provisioning-jobs/"+v.ID+"/explain", "").into(t, &x)
	if x.Worker == nil || x.Worker.ID != "w1" || x.Worker.LastSign == nil || x.Verdict.State != "running" || x.Next[0].What != "Watch it" {
		t.Errorf("%+v", x)
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body string
		before     func(r *rig, id string)
		query      string
		status     int
		code       string
		want       job.State
		run        int
		cancelling bool
	}{
		{"a draft", vmJob("shop"), nil, "", 200, "", job.State{Status: job.Cancelled, Phase: job.PhaseProvision}, 1, false},
		{"queued and never claimed", vmJob("shop", `"submit":true`), nil, "", 200, "", job.State{Status: job.Cancelled, Phase: job.PhaseProvision}, 1, false},
		{"at work behind a load balancer, confirmed", withLB, (*rig).claimLB, "?confirm=shop", 202, "", job.State{Status: job.Running, Phase: job.PhaseProvision}, 1, true},
		{"at work", vmJob("shop", `"submit":true`), (*rig).claim, "", 202, "", job.State{Status: job.Running, Phase: job.PhaseProvision}, 1, true},
		{"parked", vmJob("shop", `"submit":true`), (*rig).park, "", 202, "", job.State{Status: job.Queued, Phase: job.PhaseTeardown}, 2, false},
		{"finished without a load balancer", vmJob("shop", `"submit":true`), (*rig).built, "", 202, "", job.State{Status: job.Queued, Phase: job.PhaseTeardown}, 2, false},
		{"finished with a load balancer, not confirmed", withLB, (*rig).builtLB, "", 409, "confirmation-needed", job.State{Status: job.Completed, Phase: job.PhaseProvision}, 1, false},
		{"confirmed with another name", withLB, (*rig).builtLB, "?confirm=shoq", 409, "confirmation-needed", job.State{Status: job.Completed, Phase: job.PhaseProvision}, 1, false},
		{"confirmed", withLB, (*rig).builtLB, "?confirm=shop", 202, "", job.State{Status: job.Queued, Phase: job.PhaseTeardown}, 2, false},
		{"a failed teardown goes on in its run", vmJob("shop", `"submit":true`), (*rig).failedTeardown, "", 202, "", job.State{Status: job.Queued, Phase: job.PhaseTeardown}, 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			v := r.create(tc.body)
			if tc.before != nil {
				tc.before(r, v.ID)
			}
			a := r.do(adminToken, "DELETE", "/provisioning-jobs/"+v.ID+tc.query, "")
			if a.status != tc.status || tc.code != "" && a.problem(t).Code != tc.code {
				t.Fatalf("%d %s", a.status, a.body)
			}
			got := r.do(adminToken, "GET", "/provisioning-jobs/"+v.ID, "").job(t)
			if got.State() != tc.want || got.Run != tc.run || got.Cancelling != tc.cancelling {
				t.Errorf("now %s, run %d, cancelling %v", got.State(), got.Run, got.Cancelling)
			}
			if tc.status == 202 {
				// Asked for again, it changes nothing more.
				if b := r.do(adminToken, "DELETE", "/provisioning-jobs/"+v.ID, ""); b.status != 202 {
					t.Errorf("again: %d %s", b.status, b.body)
				}
				if again := r.do(adminToken, "GET", "/provisioning-jobs/"+v.ID, "").job(t); again.Run != tc.run || again.State() != tc.want {
					t.Errorf("asked again it moved to %s, run %d", again.State(), again.Run)
				}
			}
		})
	}
}

func (r *rig) claim(string) {
	if c, err := r.ledger.Claim(r.t.Context(), "w1", 1, ledger.ClaimOptions{}); err != nil || len(c) != 1 {
		r.t.Fatalf("claim: %v, %d", err, len(c))
	}
}

func (r *rig) claimLB(id string) {
	r.set(id, func(j *job.Job) { j.Config.InfraConfig.LoadBalancerID = "arn:lb" })
	r.claim(id)
}

func (r *rig) park(string) {
	c, err := r.ledger.Claim(r.t.Context(), "w1", 1, ledger.ClaimOptions{})
	if err != nil || len(c) != 1 {
		r.t.Fatalf("claim: %v, %d", err, len(c))
	}
	if _, err := r.ledger.Checkpoint(r.t.Context(), c[0].Lease, ledger.Checkpoint{Job: c[0].Job, Release: true}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) built(id string) {
	r.park(id)
	r.finish(id, false)
}

func (r *rig) builtLB(id string) {
	r.park(id)
	r.finish(id, true)
}

func (r *rig) failedTeardown(id string) {
	r.park(id)
	r.set(id, func(j *job.Job) { j.Status, j.Phase, j.Run = job.Failed, job.PhaseTeardown, 2 })
}

func TestCancelledIsTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(vmJob("shop"))
	path := "/provisioning-jobs/" + v.ID
	r.do(adminToken, "DELETE", path, "")
	for _, c := range [][3]string{{"DELETE", "", ""}, {"POST", "/retry", ""}, {"PATCH", "", `{"status":"queued"}`}, {"PATCH", "", `{"vmOp":"attach_lb"}`}, {"PATCH", "", `{"name":"x"}`}, {"POST", "/verify", ""}} {
		if a := r.do(adminToken, c[0], path+c[1], c[2]); a.status != 409 || a.problem(t).Code != "wrong-state" {
			t.Errorf("%s%s %s: %d %s", c[0], c[1], c[2], a.status, a.body)
		}
	}
	var receipt provision.Receipt
	r.do(adminToken, "GET", path+"/receipt", "").into(t, &receipt)
	if !receipt.Final || receipt.Created != 0 || receipt.Left == nil || *receipt.Left != 0 || receipt.RequestedBy != "ana" {
		t.Errorf("receipt %+v", receipt)
	}
}

func TestDatastoresAreNeverChanged(t *testing.T) { onBoth(t, testDatastoresAreNeverChanged) }

func testDatastoresAreNeverChanged(t *testing.T, r *rig) {
	j := &job.Job{
		ID: job.NewID("job"), OrgID: "org1", Kind: job.Provisioning, ResourceType: job.Datastore, Provider: job.AWS, Mode: job.ModeCreate, Name: "orders",
		CloudAccountID: "default", Region: "us-east-1", SubjectType: "datastore", SubjectID: job.NewID("dst"), Status: job.Completed, Phase: job.PhaseProvision,
		Config: job.Config{Spec: json.RawMessage(`{"engine":"postgres","tier":"small"}`)}, CreatedBy: "ana",
	}
	if err := r.ledger.Insert(t.Context(), r.db, j); err != nil {
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
