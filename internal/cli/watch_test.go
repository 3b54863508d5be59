package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func history(f *fakeAPI) {
	f.addEvent(job.Event{Time: t0, Type: "job.status", Message: "created and queued by token:bootstrap"})
	f.addEvent(job.Event{Time: t0.Add(time.Second), Type: "step.started", Step: "stepValidate"})
	f.addEvent(job.Event{Time: t0.Add(2 * time.Second), Type: "step.waiting", Step: "stepValidate", Message: "the quota"})
	f.addEvent(job.Event{Time: t0.Add(3 * time.Second), Type: "step.waiting", Step: "stepValidate", Message: "the quota"})
	f.addEvent(job.Event{Time: t0.Add(4 * time.Second), Type: "object.created", Step: "stepCreateNetwork", Message: "ec2:vpc shop is vpc-1"})
	f.addEvent(job.Event{Time: t0.Add(5 * time.Second), Type: "step.retrying", Step: "stepCreateNetwork", Attempt: 2, Message: "try 2 did not work: no \x1b[31mroom"})
}

// TestWatchInAPipe: one line a change, RFC 3339 first, repeated waits told once.
func TestWatchInAPipe(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Completed, job.PhaseProvision))
	history(f)
	got := run(t, f).do("jobs", "watch", "shop-prod")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	last := lines[len(lines)-1]
	want := []string{
		"2026-11-30T10:42:05Z created and queued by token:bootstrap",
		"2026-11-30T10:42:06Z stepValidate started",
		"2026-11-30T10:42:07Z stepValidate waiting for the quota",
		"2026-11-30T10:42:09Z ec2:vpc shop is vpc-1",
		"2026-11-30T10:42:10Z stepCreateNetwork try 2 did not work: no [31mroom",
	}
	// The object's line names its step too.
	want[3] = "2026-11-30T10:42:09Z stepCreateNetwork ec2:vpc shop is vpc-1"
	if diff := cmp.Diff(want, lines[:len(lines)-1]); diff != "" {
		t.Error(diff)
	}
	at, text, _ := strings.Cut(last, " ")
	if _, err := time.Parse(time.RFC3339, at); err != nil || text != "shop-prod ready: The sentence of the server." {
		t.Errorf("last line %q", last)
	}
	if got.err != "" {
		t.Errorf("stderr: %s", got.err)
	}
}

// TestWatchAsJSONL: an event a line with seq and type, the result last.
func TestWatchAsJSONL(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Completed, job.PhaseProvision))
	history(f)
	got := run(t, f).do("jobs", "watch", "shop-prod", "-o", "jsonl")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if len(lines) != 7 {
		t.Fatalf("%d lines, want 6 events and the result:\n%s", len(lines), got.out)
	}
	for i, l := range lines {
		var doc struct {
			Seq    int64
			Type   string
			Status string
		}
		if err := json.Unmarshal([]byte(l), &doc); err != nil {
			t.Fatalf("line %d is no JSON: %v", i+1, err)
		}
		if i < 6 && (doc.Seq != int64(i+1) || doc.Type == "" || doc.Type == "result") {
			t.Errorf("line %d is %s", i+1, l)
		}
		if i == 6 && (doc.Type != "result" || doc.Seq != 6 || doc.Status != "completed") {
			t.Errorf("last line is %s", l)
		}
	}
}

// TestWatchSurvivesALostLine: after the line dropped the stream goes on from
// the last event, without a gap and without telling anything twice.
func TestWatchSurvivesALostLine(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Running, job.PhaseProvision))
	history(f)
	f.cutStream = 3
	time.AfterFunc(200*time.Millisecond, func() {
		f.addEvent(job.Event{Time: t0.Add(6 * time.Second), Type: "job.status", Message: "completed"})
		f.change("job_one", func(j *client.Job) { j.Status = job.Completed })
	})
	got := run(t, f).do("jobs", "watch", "shop-prod", "-o", "jsonl")
	if got.code != exitDone {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	var seqs []int64
	for l := range strings.Lines(got.out) {
		var doc struct {
			Seq  int64
			Type string
		}
		if err := json.Unmarshal([]byte(l), &doc); err != nil {
			t.Fatal(err)
		}
		if doc.Type != "result" {
			seqs = append(seqs, doc.Seq)
		}
	}
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 5, 6, 7}, seqs); diff != "" {
		t.Error(diff)
	}
	if n := f.sent("GET /provisioning-jobs/job_one/events"); n != 2 {
		t.Errorf("the stream was opened %d times, want 2", n)
	}
}

// TestWatchTellsWhatItWaitsForEveryMinute drives the line sink by hand.
func TestWatchTellsWhatItWaitsForEveryMinute(t *testing.T) {
	now := t0
	var out strings.Builder
	s := &lineSink{w: &out, term: terminal{unicode: true}, now: func() time.Time { return now }}
	j := aJob(job.Running, job.PhaseProvision)
	j.Verdict.Sentence = "Waiting for the NAT gateway."
	s.event(job.Event{Time: t0, Type: "step.started", Step: "stepCreateNetwork"})
	s.state(&j)
	for range 150 {
		now = now.Add(time.Second)
		s.tick()
	}
	want := "2026-11-30T10:42:05Z stepCreateNetwork started\n" +
		"2026-11-30T10:43:05Z step 2/2: Waiting for the NAT gateway.\n" +
		"2026-11-30T10:44:05Z step 2/2: Waiting for the NAT gateway.\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestWatchOfAServerThatComesBack: a server that is away for a while is waited for.
func TestWatchOfAServerThatComesBack(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Running, job.PhaseProvision))
	f.refuse["GET /provisioning-jobs/job_one"] = client.Problem{Code: "unavailable", Title: "Not available now", Status: 503, Detail: "the database does not answer"}
	time.AfterFunc(300*time.Millisecond, func() {
		f.mu.Lock()
		delete(f.refuse, "GET /provisioning-jobs/job_one")
		f.mu.Unlock()
		f.change("job_one", func(j *client.Job) { j.Status = job.Completed })
	})
	a := &app{stdout: &syncBuffer{}, stderr: &syncBuffer{}, now: time.Now, cfg: settings{Timeout: setting{Value: "0s"}}}
	c, err := client.New(client.Options{Server: f.URL, Token: f.token})
	if err != nil {
		t.Fatal(err)
	}
	fo := &follow{app: a, api: c, id: "job_one", sink: silent{}, pause: 20 * time.Millisecond, job: aJob(job.Running, job.PhaseProvision)}
	j, err := fo.run(t.Context())
	if err != nil || j.Status != job.Completed {
		t.Errorf("job is %s, error %v", j.Status, err)
	}
}
