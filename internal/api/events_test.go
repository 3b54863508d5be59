package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// A message is one server-sent event.
type message struct{ id, event, data string }

// follow opens an event stream; messages arrive on the channel, which is closed
// when the server ends the stream.
func (r *rig) follow(ctx context.Context, id string, header ...string) <-chan message {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.server.URL+"/provisioning-jobs/"+id+"/events", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+viewerToken)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.server.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || ct != "text/event-stream" {
		r.t.Fatalf("%d %s", resp.StatusCode, ct)
	}
	return read(resp.Body)
}

// read reads the messages of a stream.
func read(body io.ReadCloser) <-chan message {
	out := make(chan message, 100)
	go func() {
		defer close(out)
		defer body.Close()
		var m message
		for s := bufio.NewScanner(body); s.Scan(); {
			switch k, v, _ := strings.Cut(s.Text(), ": "); k {
			case "id":
				m.id = v
			case "event":
				m.event = v
			case "data":
				m.data = v
			case "":
				if m.data != "" {
					out <- m
				}
				m = message{}
			}
		}
	}()
	return out
}

func next(t *testing.T, ch <-chan message) (message, bool) {
	t.Helper()
	select {
	case m, ok := <-ch:
		return m, ok
	case <-time.After(10 * time.Second):
		t.Fatal("the stream is silent")
	}
	return message{}, false
}

func (r *rig) event(id, text string) {
	r.t.Helper()
	if err := r.ledger.AddEvents(db.System(r.t.Context()), nil, "org1", id, job.Event{Type: "note", Run: 1, Message: text}); err != nil {
		r.t.Fatal(err)
	}
}

func TestEventStream(t *testing.T) { onBoth(t, testEventStream) }

func testEventStream(t *testing.T, r *rig) {
	v := r.create(vmJob("shop", `"submit":true`))
	ch := r.follow(t.Context(), v.ID)
	m, _ := next(t, ch)
	var e job.Event
	if err := json.Unmarshal([]byte(m.data), &e); err != nil || m.id != "1" || e.Seq != 1 || e.Type != "job.status" || m.event != "" {
		t.Fatalf("%+v, %v", m, err)
	}
	for i := range 5 {
		r.event(v.ID, "line "+strconv.Itoa(i))
	}
	for i := range 5 {
		m, _ := next(t, ch)
		if err := json.Unmarshal([]byte(m.data), &e); err != nil || e.Message != "line "+strconv.Itoa(i) || e.Seq != int64(i+2) {
			t.Fatalf("message %d: %+v", i, m)
		}
	}
	// Another reader goes on where it was: nothing twice, nothing lost.
	resumed := r.follow(t.Context(), v.ID, "Last-Event-ID", "4")
	if m, _ := next(t, resumed); m.id != "5" {
		t.Errorf("resumed at %s", m.id)
	}
	r.event(v.ID, "the last line\nhas a break")
	r.finish(v.ID, false)
	last := message{}
	for {
		m, ok := next(t, ch)
		if !ok {
			break
		}
		last = m
	}
	if last.event != "end" || !strings.Contains(last.data, `"status":"completed"`) || !strings.Contains(last.data, `"state":"ready"`) {
		t.Errorf("the stream ended with %+v", last)
	}
	// A job at rest: everything, then the end.
	n := 0
	for m := range r.follow(t.Context(), v.ID) {
		n++
		last = m
	}
	if n != 8 || last.event != "end" {
		t.Errorf("%d messages, the last %+v", n, last)
	}
}

func TestHeadOfAnEventStreamEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(vmJob("shop"))
	if a := r.do(viewerToken, "HEAD", "/provisioning-jobs/"+v.ID+"/events", ""); a.status != http.StatusOK || len(a.body) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestEventStreamEndsWithTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(vmJob("shop"))
	ch := r.follow(t.Context(), v.ID)
	next(t, ch)
	close(r.stop)
	if m, ok := next(t, ch); ok {
		t.Errorf("a message after the stop: %+v", m)
	}
}

func TestEventStreamsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(vmJob("shop"))
	ctx, cancel := context.WithCancel(t.Context())
	for range 20 {
		next(t, r.follow(ctx, v.ID))
	}
	metric := func() string {
		for line := range strings.Lines(string(r.do("", "GET", "/metrics", "").body)) {
			if n, ok := strings.CutPrefix(line, "zopday_event_streams "); ok {
				return strings.TrimSpace(n)
			}
		}
		return ""
	}
	if got := metric(); got != "20" {
		t.Errorf("%s streams counted", got)
	}
	cancel()
	deadline := time.Now().Add(10 * time.Second)
	for metric() != "0" && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if got := metric(); got != "0" {
		t.Errorf("%s streams left after their readers went", got)
	}
}

func TestEventPages(t *testing.T) { onBoth(t, testEventPages) }

func testEventPages(t *testing.T, r *rig) {
	v := r.create(vmJob("shop"))
	for i := range 6 {
		r.event(v.ID, strconv.Itoa(i))
	}
	var seqs []int64
	after := "0"
	for range 10 {
		a := r.do(viewerToken, "GET", "/provisioning-jobs/"+v.ID+"/events?limit=3&after="+after, "", "Accept", "application/json")
		var page struct {
			Data []job.Event
			Meta struct{ NextCursor *string }
		}
		if err := json.Unmarshal(a.body, &page); err != nil || a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		for _, e := range page.Data {
			seqs = append(seqs, e.Seq)
		}
		if page.Meta.NextCursor == nil {
			break
		}
		after = *page.Meta.NextCursor
	}
	if len(seqs) != 7 || seqs[0] != 1 || seqs[6] != 7 {
		t.Errorf("events %v", seqs)
	}
}
