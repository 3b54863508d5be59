package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// fakeAPI answers as the server does, from a script: what the command line
// makes of the answers is tested here, not the server.
type fakeAPI struct {
	*httptest.Server
	mu       sync.Mutex
	jobs     map[string]*client.Job
	events   []job.Event
	requests []string // method and path, in order
	bodies   map[string][]byte
	token    string

	refuse    map[string]client.Problem // by method and path: answered instead
	cutStream int                       // the stream breaks off after so many events, once
	endStream bool                      // the stream ends as when a job is at rest
	explain   client.Explanation
	receipt   client.Receipt
	plan      client.Plan
	verify    client.Verification
	answers   map[string]string // by method and path: the body of a 200, or of a 204 if empty
	onDelete  func(j *client.Job)
	created   func(j *client.Job)
}

func newFake(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{jobs: map[string]*client.Job{}, refuse: map[string]client.Problem{}, bodies: map[string][]byte{}, answers: map[string]string{}, token: "zop_test-token-0123456789", endStream: true}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

// addJob puts a job there that is known by ID and name.
func (f *fakeAPI) addJob(j client.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs[j.ID] = &j
}

func (f *fakeAPI) change(id string, fn func(*client.Job)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.jobs[id])
}

func (f *fakeAPI) addEvent(ev job.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ev.Seq = int64(len(f.events) + 1)
	f.events = append(f.events, ev)
}

func (f *fakeAPI) sent(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		if strings.HasPrefix(r, what) {
			n++
		}
	}
	return n
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + r.URL.Path
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.requests = append(f.requests, what+map[bool]string{true: "?" + r.URL.RawQuery}[r.URL.RawQuery != ""])
	f.bodies[what] = body
	p, refused := f.refuse[what]
	told, known := f.answers[what]
	f.mu.Unlock()
	switch {
	case r.Header.Get("Authorization") != "Bearer "+f.token && r.URL.Path != "/readyz":
		f.problem(w, client.Problem{Type: "/problems/unauthenticated", Code: "unauthenticated", Title: "Not signed in", Status: 401, Detail: "the request carries no valid token"})
	case refused:
		f.problem(w, p)
	case known && told == "":
		w.WriteHeader(http.StatusNoContent)
	case known:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, told)
	case r.URL.Path == "/provisioning-jobs" && r.Method == http.MethodGet:
		f.mu.Lock()
		list := []client.Job{}
		for _, id := range sortedKeys(f.jobs) {
			list = append(list, *f.jobs[id])
		}
		f.mu.Unlock()
		f.answer(w, 200, map[string]any{"data": list, "meta": map[string]any{"nextCursor": nil}})
	case r.URL.Path == "/provisioning-jobs":
		f.create(w, body)
	case r.URL.Path == "/provisioning-jobs/plan":
		f.answer(w, 200, map[string]any{"data": f.plan})
	case r.URL.Path == "/readyz":
		f.answer(w, 200, map[string]any{"data": map[string]string{"status": "ok"}})
	case strings.HasPrefix(r.URL.Path, "/provisioning-jobs/"):
		id, sub, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/provisioning-jobs/"), "/")
		f.job(w, r, id, sub)
	default:
		f.problem(w, client.Problem{Type: "/problems/no-such-path", Code: "no-such-path", Title: "No such path", Status: 404, Detail: "there is nothing under " + r.URL.Path})
	}
}

func (f *fakeAPI) create(w http.ResponseWriter, body []byte) {
	var j client.Job
	if err := json.Unmarshal(body, &j); err != nil {
		f.problem(w, client.Problem{Code: "malformed", Title: "Malformed request", Status: 400, Detail: err.Error()})
		return
	}
	j.ID, j.Status, j.Phase, j.Run = "job_new", job.Queued, job.PhaseProvision, 1
	if f.created != nil {
		f.created(&j)
	}
	f.addJob(j)
	f.answer(w, 201, map[string]any{"data": j})
}

func (f *fakeAPI) job(w http.ResponseWriter, r *http.Request, ref, sub string) {
	f.mu.Lock()
	j := f.jobs[ref]
	for _, o := range f.jobs {
		if o.Name == ref {
			j = o
		}
	}
	if j == nil {
		f.mu.Unlock()
		f.problem(w, client.Problem{Type: "/problems/not-found", Code: "not-found", Title: "Not found", Status: 404, Detail: "there is no such job in your organisation", RequestID: "req_9f"})
		return
	}
	if r.Method == http.MethodDelete && f.onDelete != nil {
		f.onDelete(j)
	}
	if r.Method == http.MethodPost && sub == "retry" {
		j.Status = job.Queued
	}
	now := *j
	f.mu.Unlock()
	switch sub {
	case "":
		f.answer(w, 200, map[string]any{"data": now})
	case "retry":
		f.answer(w, 202, map[string]any{"data": now})
	case "explain":
		f.answer(w, 200, map[string]any{"data": f.explain})
	case "receipt":
		f.answer(w, 200, map[string]any{"data": f.receipt})
	case "plan":
		f.answer(w, 200, map[string]any{"data": f.plan})
	case "verify":
		f.answer(w, 200, map[string]any{"data": f.verify})
	case "events":
		f.streamEvents(w, r, now.ID)
	default:
		f.problem(w, client.Problem{Code: "no-such-path", Title: "No such path", Status: 404, Detail: "there is nothing here"})
	}
}

func (f *fakeAPI) streamEvents(w http.ResponseWriter, r *http.Request, id string) {
	if !strings.Contains(r.Header.Get("Accept"), "event-stream") {
		f.mu.Lock()
		after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
		list := []job.Event{}
		for _, ev := range f.events {
			if ev.Seq > after {
				list = append(list, ev)
			}
		}
		f.mu.Unlock()
		f.answer(w, 200, map[string]any{"data": list, "meta": map[string]any{"nextCursor": nil}})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "retry: 10\n\n")
	sent, _ := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	for {
		f.mu.Lock()
		var next []job.Event
		for _, ev := range f.events {
			if ev.Seq > sent {
				next = append(next, ev)
			}
		}
		rest := f.jobs[id].Status
		cut := f.cutStream
		f.mu.Unlock()
		for _, ev := range next {
			b, _ := json.Marshal(ev)
			fmt.Fprintf(w, "id: %d\ndata: %s\n\n", ev.Seq, b)
			sent = ev.Seq
			if cut > 0 && int(sent) == cut {
				f.mu.Lock()
				f.cutStream = 0
				f.mu.Unlock()
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler) // the line drops
			}
		}
		if ended(rest) && f.endStream {
			fmt.Fprint(w, "event: end\ndata: {}\n\n")
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (f *fakeAPI) answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (f *fakeAPI) problem(w http.ResponseWriter, p client.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// result is what one run of the command line did.
type result struct {
	code     int
	out, err string
}

// runner runs commands against a fake, with an environment of its own.
type runner struct {
	t   *testing.T
	env map[string]string
	in  string
	ctx context.Context
	b   Backends
}

func run(t *testing.T, f *fakeAPI) *runner {
	r := &runner{t: t, ctx: t.Context(), env: map[string]string{"HOME": t.TempDir(), "LANG": "C.UTF-8"}}
	if f != nil {
		r.env["ZOPDAY_SERVER"], r.env["ZOPDAY_TOKEN"] = f.URL, f.token
	}
	return r
}

func (r *runner) do(args ...string) result {
	r.t.Helper()
	var out, errs syncBuffer
	code := Main(r.ctx, args, Streams{In: strings.NewReader(r.in), Out: &out, Err: &errs}, func(k string) string { return r.env[k] }, r.b)
	return result{code, out.String(), errs.String()}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var t0 = time.Date(2026, 11, 30, 10, 42, 5, 0, time.UTC)

// aJob is a job as a server would answer it.
func aJob(status job.Status, phase job.Phase) client.Job {
	j := client.Job{Job: job.Job{
		ID: "job_one", Name: "shop-prod", Kind: job.Provisioning, ResourceType: job.VM, Provider: job.AWS, Mode: job.ModeCreate, Region: "us-east-1",
		CloudAccountID: "default", Status: status, Phase: phase, Run: 1, CreatedBy: "token:bootstrap", CreatedAt: t0, UpdatedAt: t0,
	}}
	j.Steps = []client.Step{
		{StepState: job.StepState{Run: 1, Name: "stepValidate", Direction: job.Up, Status: job.StepDone}},
		{StepState: job.StepState{Run: 1, Name: "stepCreateNetwork", Direction: job.Up, Status: job.StepPending}},
	}
	j.Verdict = client.Verdict{State: map[job.Status]string{job.Draft: "draft", job.Queued: "queued", job.Running: "running", job.Completed: "ready", job.Failed: "failed", job.Cancelled: "torn-down"}[status],
		Sentence: "The sentence of the server."}
	if status == job.Failed {
		j.Error = &job.Error{Code: "quota-exceeded", Message: "us-east-1 allows 32 vCPUs, this job needs 48", Step: "stepValidate", Hint: "ask AWS for quota L-1216C47A = 48", Request: "req-aws-1"}
	}
	return j
}
