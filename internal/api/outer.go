package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/observe"
	"github.com/zopday/provisioner/internal/provision"
)

// answerWithin bounds how long an answer may take; plans and verifications ask
// a cloud and get longer. Event streams set their own deadlines.
const (
	answerWithin = 30 * time.Second
	cloudWithin  = 3 * time.Minute
)

// outer wraps the routes in what every request gets: an ID, security headers, a
// deadline, a bound on the body, an answer to a panic, a log line and a count.
func (s *server) outer(next *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		id := requestID(r)
		path := clip(r.URL.EscapedPath(), 200)
		who := &caller{from: s.limits.client(r)}
		ctx := context.WithValue(provision.WithRequestID(observe.Remote(r.Context(), r.Header), id), pathKey{}, path)
		ctx = context.WithValue(ctx, callerKey{}, who)
		header := w.Header()
		header.Set("X-Request-Id", id)
		secureHeaders(header, r.URL.Path, s.limits.secure(r))

		rec := &recorder{ResponseWriter: w}
		_, pattern := next.Handler(r)
		_, name, _ := strings.Cut(pattern, " ")
		ctx, end := observe.Span(ctx, "http "+method(r)+" "+name, observe.Request(id))
		within := timeFor(r, name)
		stream := within == 0
		if !stream {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, within)
			defer cancel()
			// Not every writer has deadlines (a test's recorder has none).
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within + 10*time.Second))
		}
		r = r.WithContext(ctx)
		defer func() {
			if v := recover(); v != nil {
				if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(v)
				}
				s.Log.ErrorContext(ctx, "request panicked", "request", id, "method", r.Method, "route", name, "panic", access.Redact(fmt.Sprint(v)), "stack", string(debug.Stack()))
				if rec.status == 0 {
					s.answer(rec, r, newProblem(internal, "something went wrong here", "The request ID finds it in the server's log."))
				}
			}
			end(nil)
			s.limits.answered(r, who, rec.status)
			s.note(r, rec, name, time.Since(started), stream)
		}()
		if p := s.admit(rec, r, who); p != nil {
			s.answer(rec, r, p)
			return
		}
		if pattern == "" {
			s.unrouted(rec, r)
			return
		}
		p, done := s.readBody(rec, r)
		defer done()
		if p != nil {
			s.answer(rec, r, p)
			return
		}
		next.ServeHTTP(rec, r)
	})
}

// timeFor is how long the answer of a route may take; 0 for a stream of events.
func timeFor(r *http.Request, route string) time.Duration {
	page := isPage(r.URL.Path)
	switch {
	case strings.HasSuffix(route, "/events") && !wantsJSON(r), page && strings.HasSuffix(r.URL.Path, "/events"):
		return 0
	case route == "/secrets/rotate", route == "/backup":
		return cloudWithin // these take as long as the database is large
	case page, strings.HasSuffix(route, "/plan"), strings.HasSuffix(route, "/verify"), strings.HasSuffix(route, "/receipt"):
		return cloudWithin
	}
	return answerWithin
}

var requestIDRE = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// requestID takes over a caller's name for the request, if it is a plain one. It is
// kept in logs and in the audit log, so nothing is taken that may be a token.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if requestIDRE.MatchString(id) && !strings.Contains(strings.ToLower(id), access.TokenPrefix) && id != access.Bearer(r.Header.Get("Authorization")) {
		return id
	}
	return job.NewID("req")
}

// unrouted answers a path that does not exist, or does not take the method.
func (s *server) unrouted(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = m
		if _, pattern := s.mux.Handler(probe); pattern != "" {
			allowed = append(allowed, m)
			if m == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	if len(allowed) == 0 {
		s.answer(w, r, newProblem(noSuchPath, "there is nothing under "+clip(r.URL.Path, 120), "/docs lists the paths."))
		return
	}
	p := newProblem(methodNotAllowed, "this path does not take "+clip(r.Method, 20), "Use one of "+strings.Join(allowed, ", ")+".")
	p.header = http.Header{"Allow": {strings.Join(allowed, ", ")}}
	s.answer(w, r, p)
}

func (s *server) answer(w http.ResponseWriter, r *http.Request, p *Problem) {
	about, _ := r.Context().Value(pathKey{}).(string)
	p.RequestID, p.Instance = provision.RequestID(r.Context()), about
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = encode(w, p) // the caller has gone: nobody is left to tell
}

// note writes the log line and the numbers of an answered request. Neither the
// query nor a header is written: both may hold what nobody should read.
func (s *server) note(r *http.Request, rec *recorder, route string, took time.Duration, stream bool) {
	status := rec.status
	if status == 0 {
		status = http.StatusOK
	}
	method := method(r)
	if !stream {
		s.Metrics.Request(method, cmp.Or(route, "none"), strconv.Itoa(status), took)
	}
	if route == "/healthz" || route == "/readyz" || route == "/metrics" {
		return
	}
	s.Log.InfoContext(r.Context(), "request", "request", provision.RequestID(r.Context()), "method", method, "path", access.Redact(clip(r.URL.Path, 200)),
		"status", status, "ms", took.Milliseconds(), "bytes", rec.written, "peer", peer(r), "client", callerOfRequest(r.Context()).from)
}

// method is a request's method as logs and numbers write it: callers can invent as
// many as they like.
func method(r *http.Request) string {
	if len(r.Method) > 10 || strings.ToUpper(r.Method) != r.Method {
		return "other"
	}
	return r.Method
}

func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// A recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status  int
	written int64
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.written += int64(n)
	return n, err
}

// Unwrap lets an http.ResponseController reach the writer beneath.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
