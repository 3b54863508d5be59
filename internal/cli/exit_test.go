package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// TestExitCodes is the table of exit codes: every code that --help shows has a
// command that ends with it.
func TestExitCodes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte("kind: provisioning\nname: shop-prod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse := func(status int, code string) func(*fakeAPI) {
		return func(f *fakeAPI) {
			f.refuse["POST /provisioning-jobs"] = client.Problem{Type: "/problems/" + code, Code: code, Title: "No", Status: status, Detail: "not like this"}
		}
	}
	cases := []struct {
		name string
		set  func(*fakeAPI)
		env  map[string]string
		args []string
		code int
	}{
		{"list", nil, nil, []string{"jobs", "list"}, exitDone},
		{"help", nil, nil, []string{"--help"}, exitDone},
		{"completed", func(f *fakeAPI) { f.addJob(aJob(job.Completed, job.PhaseProvision)) }, nil, []string{"jobs", "watch", "shop-prod"}, exitDone},
		{"server error", refuse(500, "internal"), nil, []string{"jobs", "create", "-f", file}, exitUnexpected},
		{"unknown flag", nil, nil, []string{"jobs", "list", "--nope"}, exitUsage},
		{"unknown output", nil, nil, []string{"jobs", "list", "-o", "xml"}, exitUsage},
		{"unknown command", nil, nil, []string{"jobs", "lsit"}, exitUsage},
		{"too many arguments", nil, nil, []string{"version", "now"}, exitUsage},
		{"no job", nil, nil, []string{"jobs", "get"}, exitUsage},
		{"no file", nil, nil, []string{"jobs", "create", "-f", "/nonexistent.yaml"}, exitUsage},
		{"bad address", nil, nil, []string{"jobs", "list", "--server", "nonsense"}, exitUsage},
		{"400", refuse(400, "malformed"), nil, []string{"jobs", "create", "-f", file}, exitUsage},
		{"422", refuse(422, "invalid"), nil, []string{"jobs", "create", "-f", file}, exitUsage},
		{"413", refuse(413, "too-large"), nil, []string{"jobs", "create", "-f", file}, exitUsage},
		{"no consent", func(f *fakeAPI) {
			f.addJob(aJob(job.Completed, job.PhaseProvision))
			f.explain.Objects = []job.Object{{Kind: "ec2:vpc", Name: "shop", ID: "vpc-1", State: job.ObjectCreated}}
		}, nil, []string{"jobs", "delete", "shop-prod"}, exitUsage},
		{"job failed", func(f *fakeAPI) { f.addJob(aJob(job.Failed, job.PhaseProvision)) }, nil, []string{"jobs", "watch", "shop-prod"}, exitJobFailed},
		{"create and it fails", func(f *fakeAPI) {
			f.created = func(j *client.Job) { j.Status = job.Failed; j.Error = &job.Error{Code: "x", Message: "y"} }
		}, nil, []string{"jobs", "create", "-f", file, "--wait"}, exitJobFailed},
		{"no token", nil, map[string]string{"ZOPDAY_TOKEN": ""}, []string{"jobs", "list"}, exitNotAllowed},
		{"wrong token", nil, map[string]string{"ZOPDAY_TOKEN": "wrong"}, []string{"jobs", "list"}, exitNotAllowed},
		{"forbidden", refuse(403, "forbidden"), nil, []string{"jobs", "create", "-f", file}, exitNotAllowed},
		{"not found", nil, nil, []string{"jobs", "get", "shop-prod"}, exitNotFound},
		{"no output", func(f *fakeAPI) { f.addJob(aJob(job.Completed, job.PhaseProvision)) }, nil, []string{"jobs", "outputs", "shop-prod", "--get", "url"}, exitNotFound},
		{"409", refuse(409, "name-taken"), nil, []string{"jobs", "create", "-f", file}, exitConflict},
		{"412", refuse(412, "precondition-failed"), nil, []string{"jobs", "create", "-f", file}, exitConflict},
		{"cancel of a finished job", func(f *fakeAPI) { f.addJob(aJob(job.Completed, job.PhaseProvision)) }, nil, []string{"jobs", "cancel", "shop-prod"}, exitConflict},
		{"watch of a draft", func(f *fakeAPI) { f.addJob(aJob(job.Draft, job.PhaseProvision)) }, nil, []string{"jobs", "watch", "shop-prod"}, exitConflict},
		{"gave up", func(f *fakeAPI) { f.addJob(aJob(job.Running, job.PhaseProvision)) }, nil, []string{"jobs", "watch", "shop-prod", "--timeout", "80ms"}, exitGaveUp},
		{"cancelled elsewhere", func(f *fakeAPI) {
			f.created = func(j *client.Job) {
				go func() {
					time.Sleep(50 * time.Millisecond)
					f.change("job_new", func(j *client.Job) { j.Status, j.Phase = job.Cancelled, job.PhaseTeardown })
					f.addEvent(job.Event{Type: "job.status", Message: "cancelled"})
				}()
			}
		}, nil, []string{"jobs", "create", "-f", file, "--wait"}, exitCancelled},
		{"unreachable", nil, map[string]string{"ZOPDAY_SERVER": "http://127.0.0.1:1"}, []string{"jobs", "list"}, exitUnreachable},
		{"503", refuse(503, "unavailable"), nil, []string{"jobs", "create", "-f", file}, exitUnreachable},
		{"plan with changes", func(f *fakeAPI) { f.plan.Changes = 3 }, nil, []string{"jobs", "plan", "-f", file, "--detailed-exit-code"}, exitChanges},
		{"plan without the flag", func(f *fakeAPI) { f.plan.Changes = 3 }, nil, []string{"jobs", "plan", "-f", file}, exitDone},
		{"drift", func(f *fakeAPI) {
			f.addJob(aJob(job.Completed, job.PhaseProvision))
			f.verify.Drift = []client.Drift{{Kind: "ec2:vpc", Attr: "dns", Wanted: "on", Seen: "off"}}
		}, nil, []string{"jobs", "verify", "shop-prod"}, exitChanges},
	}
	tested := map[int]bool{exitInterrupted: true} // TestCtrlCDetaches
	for _, c := range cases {
		tested[c.code] = true
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			if c.set != nil {
				c.set(f)
			}
			r := run(t, f)
			maps.Copy(r.env, c.env)
			got := r.do(c.args...)
			if got.code != c.code {
				t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", got.code, c.code, got.out, got.err)
			}
			if c.code != exitDone && c.code != exitChanges && got.err == "" {
				t.Error("nothing was said on the standard error")
			}
		})
	}
	f := newFake(t)
	f.plan.Checks = []client.Check{{Name: "DNS zone", Status: "fails", Message: "there is none", Fix: "name one"}}
	if got := run(t, f).do("jobs", "plan", "-f", file); got.code != exitUsage || !strings.Contains(got.out, "there is none. Name one") {
		t.Errorf("a plan with a check that fails: exit code %d\n%s", got.code, got.out)
	}
	help := run(t, nil).do("--help").out
	for _, e := range exitTable {
		if !tested[e.code] {
			t.Errorf("exit code %d is in the table and in no test", e.code)
		}
		if !strings.Contains(help, fmt.Sprintf("%3d  %s", e.code, e.meaning)) {
			t.Errorf("--help does not show exit code %d", e.code)
		}
	}
}

// TestErrorsForPrograms: with -o json an error is one RFC 9457 document on one
// line of the standard error, and the standard output stays empty.
func TestErrorsForPrograms(t *testing.T) {
	cases := []struct {
		name string
		set  func(*fakeAPI)
		args []string
		want map[string]any
	}{
		{"the server's own", nil, []string{"jobs", "get", "nothing"}, map[string]any{"code": "not-found", "status": 404.0, "requestId": "req_9f"}},
		{"usage", nil, []string{"jobs", "get"}, map[string]any{"type": "urn:zopday:problem:usage"}},
		{"a failed job", func(f *fakeAPI) { f.addJob(aJob(job.Failed, job.PhaseProvision)) }, []string{"jobs", "watch", "shop-prod"},
			map[string]any{"type": "urn:zopday:problem:job-failed", "code": "quota-exceeded", "step": "stepValidate", "jobId": "job_one"}},
		{"unreachable", nil, []string{"jobs", "list", "--server", "http://127.0.0.1:1"}, map[string]any{"type": "urn:zopday:problem:unreachable"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			if c.set != nil {
				c.set(f)
			}
			got := run(t, f).do(append(c.args, "-o", "json", "-q")...)
			if got.out != "" {
				t.Errorf("stdout is not empty: %s", got.out)
			}
			if n := strings.Count(got.err, "\n"); n != 1 {
				t.Errorf("%d lines on stderr, want 1: %s", n, got.err)
			}
			var doc map[string]any
			if err := json.Unmarshal([]byte(got.err), &doc); err != nil {
				t.Fatalf("stderr is no JSON: %v: %s", err, got.err)
			}
			for k, v := range c.want {
				if doc[k] != v {
					t.Errorf("%s is %v, want %v", k, doc[k], v)
				}
			}
			if doc["title"] == "" || doc["detail"] == "" {
				t.Errorf("title or detail is missing: %s", got.err)
			}
		})
	}
}

// TestErrorLayout: the parts of a failure in their order, the important one last.
func TestErrorLayout(t *testing.T) {
	f := newFake(t)
	j := aJob(job.Failed, job.PhaseProvision)
	j.Objects = 14
	f.addJob(j)
	got := run(t, f).do("jobs", "watch", "shop-prod")
	want := []string{
		"Error: stepValidate failed: us-east-1 allows 32 vCPUs, this job needs 48   [quota-exceeded]",
		"  Exists   14 objects, kept until you decide",
		"  Do       ask AWS for quota L-1216C47A = 48",
		"  Then     zopday jobs retry job_one",
		"  More: zopday jobs explain job_one     Request req-aws-1",
	}
	if lines := strings.Split(strings.TrimSpace(got.err), "\n"); strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("stderr:\n%s\nwant:\n%s", got.err, strings.Join(want, "\n"))
	}
}

// TestCtrlCDetaches: the job goes on, and the message says how to come back.
func TestCtrlCDetaches(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Running, job.PhaseProvision))
	ctx, cancel := context.WithCancel(t.Context())
	r := run(t, f)
	r.ctx = ctx
	time.AfterFunc(100*time.Millisecond, cancel)
	got := r.do("jobs", "watch", "shop-prod")
	if got.code != exitInterrupted {
		t.Errorf("exit code %d, want 130", got.code)
	}
	for _, want := range []string{"the job goes on", "zopday jobs watch job_one", "zopday jobs cancel job_one"} {
		if !strings.Contains(got.err, want) {
			t.Errorf("stderr lacks %q: %s", want, got.err)
		}
	}
	if f.sent("DELETE") > 0 {
		t.Error("Ctrl-C deleted the job")
	}
}

// TestCertificatesThatAreNotTrusted: what to do depends on what is wrong with one.
func TestCertificatesThatAreNotTrusted(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer srv.Close()
	r := run(t, nil)
	r.env["ZOPDAY_SERVER"], r.env["ZOPDAY_TOKEN"] = srv.URL, "zop_x"
	got := r.do("jobs", "list")
	if got.code != exitUnreachable || !strings.Contains(got.err, "SSL_CERT_FILE") || strings.Contains(got.err, "zopday serve") {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	for want, err := range map[string]error{
		"SSL_CERT_FILE":                &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		"as its certificate does":      &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: srv.Certificate(), Host: "db"}},
		"a certificate that is valid":  &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: srv.Certificate(), Reason: x509.Expired}},
		"start one with zopday serve ": errors.New("connection refused"),
	} {
		if got := whenUnreachable(&client.Unreachable{Server: "x", Err: err}); !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
}
