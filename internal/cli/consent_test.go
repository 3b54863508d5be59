package cli

import (
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// TestConsent: what is lost decides what has to be said, without a terminal
// the flag is needed and named, and a refusal sends nothing.
func TestConsent(t *testing.T) {
	made := func(f *fakeAPI) {
		f.explain.Objects = []job.Object{{Kind: "ec2:vpc", Name: "shop-vpc", ID: "vpc-1", State: job.ObjectCreated}, {Kind: "ec2:instance", Name: "shop-1", ID: "i-1", State: job.ObjectCreated}}
	}
	cases := []struct {
		name    string
		status  job.Status
		mode    job.Mode
		set     func(*fakeAPI)
		args    []string
		code    int
		deletes int
		says    []string
	}{
		{"made, no flag", job.Completed, job.ModeCreate, made, []string{"delete"}, exitUsage, 0, []string{"deleted      ec2:instance  shop-1  i-1", "add --confirm shop-prod", "nothing was changed"}},
		{"made, --yes is not enough", job.Completed, job.ModeCreate, made, []string{"delete", "--yes"}, exitUsage, 0, []string{"--confirm shop-prod"}},
		{"made, wrong name", job.Completed, job.ModeCreate, made, []string{"delete", "--confirm", "shop-test"}, exitUsage, 0, []string{"is not the name"}},
		{"made, right name", job.Completed, job.ModeCreate, made, []string{"delete", "--confirm", "shop-prod"}, exitDone, 1, []string{"deleted      ec2:vpc"}},
		{"nothing made, no flag", job.Queued, job.ModeCreate, nil, []string{"cancel"}, exitUsage, 0, []string{"add --yes"}},
		{"nothing made, --yes", job.Queued, job.ModeCreate, nil, []string{"cancel", "--yes"}, exitDone, 1, nil},
		{"draft", job.Draft, job.ModeCreate, nil, []string{"delete"}, exitDone, 1, nil},
		{"adopted, no flag", job.Completed, job.ModeAdopt, nil, []string{"delete"}, exitUsage, 0, []string{"disconnect shop-prod", "runs on untouched", "add --yes"}},
		{"adopted, --yes", job.Completed, job.ModeAdopt, nil, []string{"delete", "--yes"}, exitDone, 1, nil},
		{"over already", job.Cancelled, job.ModeCreate, nil, []string{"delete"}, exitConflict, 0, []string{"jobs receipt job_one"}},
		{"dry run", job.Completed, job.ModeCreate, made, []string{"delete", "--dry-run"}, exitDone, 0, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			j := aJob(c.status, job.PhaseProvision)
			j.Mode = c.mode
			f.addJob(j)
			if c.set != nil {
				c.set(f)
			}
			f.onDelete = func(j *client.Job) { j.Status, j.Phase = job.Cancelled, job.PhaseTeardown }
			got := run(t, f).do(append([]string{"jobs", c.args[0], "shop-prod"}, c.args[1:]...)...)
			if got.code != c.code {
				t.Errorf("exit code %d, want %d: %s", got.code, c.code, got.err)
			}
			if n := f.sent("DELETE"); n != c.deletes {
				t.Errorf("%d DELETE requests, want %d", n, c.deletes)
			}
			for _, s := range c.says {
				if !strings.Contains(got.err, s) {
					t.Errorf("stderr lacks %q:\n%s", s, got.err)
				}
			}
		})
	}
}

// TestConfirmIsSentOnlyWithConsent: the server lifts a deletion protection by
// the name; it is passed on only where a person gave it.
func TestConfirmIsSentOnlyWithConsent(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Queued, job.PhaseProvision))
	run(t, f).do("jobs", "cancel", "shop-prod", "--yes")
	if f.sent("DELETE /provisioning-jobs/job_one?confirm=") > 0 {
		t.Error("the name was sent without having been given")
	}
	f.explain.Objects = []job.Object{{Kind: "ec2:vpc", State: job.ObjectCreated}}
	run(t, f).do("jobs", "delete", "shop-prod", "--confirm", "shop-prod")
	if f.sent("DELETE /provisioning-jobs/job_one?confirm=shop-prod") != 1 {
		t.Errorf("the name was not sent: %v", f.requests)
	}
}

// TestDetachAsks: taking a load balancer off is level 2.
func TestDetachAsks(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Completed, job.PhaseProvision))
	if got := run(t, f).do("vm", "detach-lb", "shop-prod"); got.code != exitUsage || !strings.Contains(got.err, "add --yes") || f.sent("PATCH") > 0 {
		t.Errorf("exit code %d, %d patches: %s", got.code, f.sent("PATCH"), got.err)
	}
	if got := run(t, f).do("jobs", "vm-op", "shop-prod", "detach_lb", "--yes"); got.code != exitDone || string(f.bodies["PATCH /provisioning-jobs/job_one"]) != `{"vmOp":"detach_lb"}` {
		t.Errorf("exit code %d, body %s: %s", got.code, f.bodies["PATCH /provisioning-jobs/job_one"], got.err)
	}
	if got := run(t, f).do("vm", "attach-lb", "shop-prod", "--set", "type=tcp", "--set", "healthCheck.port=8080"); got.code != exitDone {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	want := `{"config":{"spec":{"loadBalancer":{"healthCheck":{"port":8080},"type":"tcp"}}},"vmOp":"attach_lb"}`
	if b := string(f.bodies["PATCH /provisioning-jobs/job_one"]); b != want {
		t.Errorf("body %s, want %s", b, want)
	}
}
