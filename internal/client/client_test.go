package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
)

const token = "zop_never-in-an-error"

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Options{Server: s.URL + "/", Token: token, UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewRefusesWhatIsNoAddress(t *testing.T) {
	for _, server := range []string{"", "127.0.0.1:5087", "ftp://x", "http://", "http://user:secret@host", "://", "localhost"} {
		_, err := New(Options{Server: server})
		if err == nil {
			t.Errorf("%q is taken", server)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows a secret: %v", server, err)
		}
	}
}

func TestProblems(t *testing.T) {
	cases := []struct {
		name, media, body string
		status            int
		detail, kind      string
		raw               bool
	}{
		{"a problem document", "application/problem+json; charset=utf-8", `{"type":"/problems/name-taken","title":"Name taken","status":409,"detail":"it has the name",` + "\n" + `"errors":[{"field":"name","message":"m","fix":"f"}]}`, 409, "it has the name", "name-taken", true},
		{"with a code", "application/problem+json", `{"type":"/problems/x","code":"quota-exceeded","title":"T"}`, 422, "T", "quota-exceeded", true},
		{"a proxy's page", "text/html", "<html>Bad gateway", 502, "the server answered 502 Bad Gateway, and not with a problem document; is something else in between?", "", false},
		{"an empty body", "", "", 500, "the server answered 500 Internal Server Error, and not with a problem document; is something else in between?", "", false},
		{"JSON of somebody else", "application/json", `{"message":"no"}`, 403, "the server answered 403 Forbidden, and not with a problem document; is something else in between?", "", false},
		{"about:blank", "application/problem+json", `{"type":"about:blank","title":"Gone"}`, 410, "Gone", "", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cl := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.media)
				w.Header().Set("X-Request-Id", "req_1")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			})
			_, _, err := cl.GetJob(t.Context(), "x")
			var p *Problem
			if !errors.As(err, &p) {
				t.Fatalf("error %v", err)
			}
			if p.Status != c.status || p.Error() != c.detail || p.Kind() != c.kind || p.RequestID != "req_1" {
				t.Errorf("%d %q kind %q request %q", p.Status, p.Error(), p.Kind(), p.RequestID)
			}
			if (p.Raw != nil) != c.raw || strings.Contains(string(p.Raw), "\n") {
				t.Errorf("raw %q", p.Raw)
			}
		})
	}
}

// TestIDsStayInTheirSegment: what a person types as an ID cannot reach another
// path or add a query.
func TestIDsStayInTheirSegment(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.RequestURI
		fmt.Fprint(w, `{"data":{}}`)
	})
	for id, want := range map[string]string{
		"job_1":         "/provisioning-jobs/job_1",
		"../audit-logs": "/provisioning-jobs/%2E%2E%2Faudit-logs",
		"a?b=c#d":       "/provisioning-jobs/a%3Fb%3Dc%23d",
		"ä b":           "/provisioning-jobs/%C3%A4%20b",
	} {
		if _, _, err := c.GetJob(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%q asks for %s, want %s", id, got, want)
		}
	}
}

// TestCreateIsRepeatedWithItsKey: a lost answer is asked for again with the
// same key; a server that is not there is not.
func TestCreateIsRepeatedWithItsKey(t *testing.T) {
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) == 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, `{"data":{"id":"job_1","name":"shop"}}`)
	})
	_, j, err := c.CreateJob(t.Context(), []byte(`{}`), "key-1")
	if err != nil || j.ID != "job_1" {
		t.Fatalf("job %q, error %v", j.ID, err)
	}
	if diff := cmp.Diff([]string{"key-1", "key-1"}, keys); diff != "" {
		t.Error(diff)
	}
	gone, err := New(Options{Server: "http://127.0.0.1:1", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, _, err = gone.CreateJob(t.Context(), []byte(`{}`), "key-2")
	var away *Unreachable
	if !errors.As(err, &away) || strings.Contains(err.Error(), token) {
		t.Errorf("error %v", err)
	}
	if time.Since(began) > 250*time.Millisecond {
		t.Error("a server that is not there was asked again")
	}
}

// TestStream: events once each and in order over three connections: one that
// drops, one that is refused for a moment, one that ends.
func TestStream(t *testing.T) {
	var resumed []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		resumed = append(resumed, r.Header.Get("Last-Event-ID"))
		event := func(seq int) {
			fmt.Fprintf(w, ": a comment\nid: %d\nevent: message\ndata: {\"seq\":%d,\ndata: \"type\":\"note\",\"message\":\"%d\"}\n\n", seq, seq, seq)
		}
		switch len(resumed) {
		case 1:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "retry: 5\n\n")
			event(1)
			event(2)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			event(2) // a server may repeat itself
			event(3)
			fmt.Fprint(w, "data: no JSON\n\nevent: end\ndata: {}\n\n")
		}
	})
	var seqs []int64
	var lost, back int
	err := c.Stream(t.Context(), "job_1", 0, StreamHandler{
		Event: func(ev job.Event) { seqs = append(seqs, ev.Seq) },
		Lost:  func(error) { lost++ }, Back: func() { back++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{1, 2, 3}, seqs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"", "2", "2"}, resumed); diff != "" {
		t.Error(diff)
	}
	if lost != 1 || back != 1 {
		t.Errorf("lost %d times, back %d times", lost, back)
	}
}

func TestStreamEnds(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	var p *Problem
	if err := c.Stream(t.Context(), "x", 0, StreamHandler{Event: func(job.Event) {}}); !errors.As(err, &p) || p.Status != 404 {
		t.Errorf("a refusal gives %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c = serve(t, func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() })
	if err := c.Stream(ctx, "x", 0, StreamHandler{Event: func(job.Event) {}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end of the context gives %v", err)
	}
}

// TestJoinedPages look like one page.
func TestJoinedPages(t *testing.T) {
	page := func(s string) *Response { return &Response{Status: 200, Header: http.Header{}, Body: []byte(s)} }
	r, err := Join([]*Response{page(`{"data":[{"id":"a"}],"meta":{"nextCursor":"x"}}`), page(`{"data":[{"id":"<b>"}],"meta":{"nextCursor":null}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(r.Body)); got != `{"data":[{"id":"a"},{"id":"<b>"}],"meta":{"nextCursor":null}}` {
		t.Error(got)
	}
}
