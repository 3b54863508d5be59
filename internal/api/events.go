package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

const (
	// maxStreams bounds the event streams that are open at once: each looks at
	// the ledger several times a second.
	maxStreams = 500
	// heartbeat is how often a quiet stream sends a comment, so that a dead line
	// is told from a quiet one, and proxies do not cut it.
	heartbeat = 15 * time.Second
	// streamPage is how many events are read at once.
	streamPage = 500
	// askAnew is how often a stream asks again who its reader is and what the reader
	// may see: a token that was revoked, a role that was taken away, a person who was
	// shut out.
	askAnew = 3 * time.Second
	// streamLife bounds a stream: whoever still reads comes back with Last-Event-ID,
	// and passes the bounds on requests anew.
	streamLife = time.Hour
)

// eventsIn is the query of a job's events.
type eventsIn struct {
	JobID
	After  int64  `query:"after" minimum:"0" doc:"Only events with a higher number"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"200" doc:"Events a page, where the answer is JSON"`
	LastID string `header:"Last-Event-ID" doc:"Where a stream that broke off goes on; wins over after"`
	Accept string `header:"Accept" hidden:"true"`
}

// eventsOut is a page of events, or a stream.
type eventsOut struct {
	Body func(huma.Context)
}

func (s *server) eventRoutes() {
	route(s, huma.Operation{
		OperationID: "job-events", Method: http.MethodGet, Path: "/provisioning-jobs/{id}/events", Tags: []string{tagJobs},
		Summary: "Follow a job's history",
		Description: "Server-sent events: id is the event's number, data its JSON; Last-Event-ID resumes without a gap. A quiet stream sends a comment every 15 s. " +
			"When the job is at rest, an event named \"end\" with its status and verdict comes last, and the stream closes. " +
			"It closes without one after an hour, and within seconds of the caller losing sight of the job: come back with Last-Event-ID. " +
			"With Accept: application/json the answer is a page of the same events; nextCursor is the next page's after.",
		Errors: []int{404, 409, 422},
		Responses: map[string]*huma.Response{"200": {
			Description: "The events",
			Content: map[string]*huma.MediaType{
				"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}},
				"application/json":  {Schema: s.schemaOf(List[job.Event]{})},
			},
		}},
	}, []access.Policy{access.JobView}, func(ctx context.Context, in *eventsIn) (*eventsOut, error) {
		if in.LastID != "" {
			n, err := strconv.ParseInt(in.LastID, 10, 64)
			if err != nil || n < 0 {
				return nil, badField("Last-Event-ID", "is not the number of an event", "send the id of the last event that you have, or leave it out")
			}
			in.After = n
		}
		if acceptsJSON(in.Accept) {
			return s.eventPage(ctx, in)
		}
		// Refusals come before the stream begins, which then names the job whole.
		j, _, err := s.Service.Events(ctx, in.ID, in.After, 1)
		if err != nil {
			return nil, err
		}
		in.ID = j.ID
		done, p := s.openStream(ctx)
		if p != nil {
			return nil, p
		}
		return &eventsOut{func(hc huma.Context) {
			defer done()
			defer s.Metrics.StreamOpened()()
			r, w := humago.Unwrap(hc)
			s.stream(ctx, r, w, in, func() (access.Principal, error) {
				_, p, err := s.caller(hc, access.JobView)
				return p, err
			})
		}}, nil
	})
}

// openStream takes one of the event streams that the server, and the caller, may
// have open; the function gives it back.
func (s *server) openStream(ctx context.Context) (done func(), p *Problem) {
	who, _ := access.From(ctx)
	mine, ok := s.limits.openStream(who)
	what := "your token has as many event streams open as it may"
	if ok {
		select {
		case s.streams <- struct{}{}:
			return func() { <-s.streams; mine() }, nil
		default:
			mine()
			what = "this server has as many event streams open as it takes"
		}
	}
	s.Metrics.RateLimited("streams")
	p = newProblem(tooManyStreams, what, "Ask for application/json and poll, or try again later.")
	p.header = http.Header{"Retry-After": {"30"}}
	return nil, p
}

func wantsJSON(r *http.Request) bool { return acceptsJSON(r.Header.Get("Accept")) }

// acceptsJSON reports whether a caller wants JSON rather than a stream, which is
// what */* gets.
func acceptsJSON(accept string) bool {
	return strings.Contains(accept, "json") && !strings.Contains(accept, "text/event-stream")
}

func (s *server) eventPage(ctx context.Context, in *eventsIn) (*eventsOut, error) {
	_, events, err := s.Service.Events(ctx, in.ID, in.After, in.Limit+1)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(events) > in.Limit {
		events = events[:in.Limit]
		next = strconv.FormatInt(events[in.Limit-1].Seq, 10)
	}
	return &eventsOut{func(hc huma.Context) {
		hc.SetHeader("Content-Type", "application/json")
		_ = encode(hc.BodyWriter(), listOf(events, next)) // the caller has gone: nobody is left to tell
	}}, nil
}

// stream sends events until the job is at rest, the caller goes or may not see the
// job any more, the server stops, or an hour is over. caller says who reads now.
func (s *server) stream(ctx context.Context, r *http.Request, w http.ResponseWriter, in *eventsIn, caller func() (access.Principal, error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.Context(), cancel)()
	out := &eventStream{w: w, rc: http.NewResponseController(w)}
	out.begin()
	if r.Method == http.MethodHead {
		return // it asks for the headers alone
	}
	out.send("retry: 2000\n\n")
	reader, begun := ctx, time.Now()
	after, quiet, asked := in.After, begun, begun
	for out.err == nil && time.Since(begun) < s.streamLife {
		var err error
		if time.Since(asked) >= s.askAnew {
			var p access.Principal
			p, err = caller()
			reader, asked = access.With(ctx, p), time.Now()
		}
		var j *job.Job
		var events []job.Event
		if err == nil {
			j, events, err = s.Service.Events(reader, in.ID, after, streamPage)
		}
		if err != nil {
			// The caller is none any more, the job cannot be seen any more, or the
			// database is away for a moment. The line is dropped; the caller comes
			// back and is told.
			if ctx.Err() == nil {
				s.Log.WarnContext(ctx, "event stream ended", "request", provision.RequestID(ctx), "error", err)
			}
			return
		}
		for _, e := range events {
			out.event(e)
			after, quiet = e.Seq, time.Now()
		}
		if len(events) == streamPage {
			continue
		}
		// The job was read before its events, so whatever it wrote on its way to
		// rest has been sent by now.
		if !j.State().Active() && j.Status != job.Draft {
			out.end(j, s.Service.Now())
			return
		}
		if time.Since(quiet) >= heartbeat {
			out.send(": still here\n\n")
			quiet = time.Now()
		}
		if !s.pause(ctx, time.Since(quiet)) {
			return
		}
	}
}

// pause waits until a stream looks at the ledger again, less often when it has been
// quiet for a while; false if the stream is over.
func (s *server) pause(ctx context.Context, quiet time.Duration) bool {
	wait := s.Poll
	if quiet > 5*time.Second {
		wait *= 3
	}
	select {
	case <-ctx.Done():
		return false
	case <-s.Stop:
		return false
	case <-time.After(wait):
		return true
	}
}

// An eventStream writes server-sent events and remembers the first failure.
type eventStream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	err error
}

// begin sends the headers.
func (e *eventStream) begin() {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	e.w.WriteHeader(http.StatusOK)
}

// event sends one event of a job.
func (e *eventStream) event(ev job.Event) {
	data, err := json.Marshal(ev)
	if err != nil {
		e.err = err
		return
	}
	e.send(fmt.Sprintf("id: %d\ndata: %s\n\n", ev.Seq, data))
}

// send writes and flushes, with a deadline for a caller who does not read.
func (e *eventStream) send(text string) {
	if e.err != nil {
		return
	}
	_ = e.rc.SetWriteDeadline(time.Now().Add(2 * heartbeat)) // not every writer has deadlines
	if _, e.err = e.w.Write([]byte(text)); e.err == nil {
		e.err = e.rc.Flush()
	}
}

func (e *eventStream) end(j *job.Job, now time.Time) {
	data, err := json.Marshal(map[string]any{
		"jobId": j.ID, "status": j.Status, "phase": j.Phase, "verdict": provision.VerdictOf(j, now), "error": j.Error,
	})
	if err == nil {
		e.send(fmt.Sprintf("event: end\ndata: %s\n\n", data))
	}
}
