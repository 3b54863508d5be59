package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/provision"
)

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
	claimed, err := r.ledger.Claim(db.System(t.Context()), "w1", 1, ledger.ClaimOptions{})
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
	if _, err := r.ledger.Checkpoint(db.System(t.Context()), c.Lease, ledger.Checkpoint{Job: c.Job, Steps: rows, Config: true, Release: true}); err != nil {
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
	c, err := r.ledger.Claim(db.System(t.Context()), "w1", 1, ledger.ClaimOptions{})
	if err != nil || len(c) != 1 {
		t.Fatalf("claim: %v, %d", err, len(c))
	}
	now := time.Now()
	object := func(kind, key, step string, state job.ObjectStatus) job.Object {
		return job.Object{JobID: v.ID, Cloud: job.AWS, Account: "1", Region: "us-east-1", Kind: kind, Key: key, ID: kind + key, Name: key, Step: step, State: state, CreatedAt: &now}
	}
	j := c[0].Job
	j.Status, j.Error = job.Failed, &job.Error{Code: "timed-out", Message: "targets are unhealthy", Step: "stepCreateListener"}
	_, err = r.ledger.Checkpoint(db.System(t.Context()), c[0].Lease, ledger.Checkpoint{Job: j, Release: true,
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
	var last string
	for range 2 {
		last = r.create(vmJob("twice")).ID
		r.do(adminToken, "DELETE", "/provisioning-jobs/"+last, "")
	}
	if a := r.do(adminToken, "GET", "/provisioning-jobs/job_", ""); a.status != 409 || a.problem(t).Code != "ambiguous" || strings.Count(string(a.body), "cancelled") != 2 {
		t.Errorf("the beginning of two IDs: %d %s", a.status, a.body)
	}
	if got := r.do(adminToken, "GET", "/provisioning-jobs/twice", "").job(t); got.ID != last {
		t.Errorf("of jobs that are over, a name means the last: %s", got.ID)
	}
	if a := r.do(adminToken, "DELETE", "/provisioning-jobs/twice", ""); a.status != 409 {
		t.Errorf("a change of one of two jobs that are over: %d %s", a.status, a.body)
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
	if err := r.ledger.Register(db.System(t.Context()), ledger.Worker{ID: "w1", Host: "here"}); err != nil {
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
	if c, err := r.ledger.Claim(db.System(r.t.Context()), "w1", 1, ledger.ClaimOptions{}); err != nil || len(c) != 1 {
		r.t.Fatalf("claim: %v, %d", err, len(c))
	}
}

func (r *rig) claimLB(id string) {
	r.set(id, func(j *job.Job) { j.Config.InfraConfig.LoadBalancerID = "arn:lb" })
	r.claim(id)
}

func (r *rig) park(string) {
	c, err := r.ledger.Claim(db.System(r.t.Context()), "w1", 1, ledger.ClaimOptions{})
	if err != nil || len(c) != 1 {
		r.t.Fatalf("claim: %v, %d", err, len(c))
	}
	if _, err := r.ledger.Checkpoint(db.System(r.t.Context()), c[0].Lease, ledger.Checkpoint{Job: c[0].Job, Release: true}); err != nil {
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
