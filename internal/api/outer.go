package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
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
		ctx := context.WithValue(provision.WithRequestID(r.Context(), id), pathKey{}, path)
		header := w.Header()
		header.Set("X-Request-Id", id)
		secure(header, r)

		rec := &recorder{ResponseWriter: w}
		_, pattern := next.Handler(r)
		_, name, _ := strings.Cut(pattern, " ")
		ctx, end := observe.Span(ctx, "http "+r.Method+" "+name)
		stream := strings.HasSuffix(name, "/events") && !wantsJSON(r)
		if !stream {
			within := answerWithin
			if strings.HasSuffix(name, "/plan") || strings.HasSuffix(name, "/verify") || strings.HasSuffix(name, "/receipt") {
				within = cloudWithin
			}
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
				s.Log.ErrorContext(ctx, "request panicked", "request", id, "method", r.Method, "route", name, "panic", v, "stack", string(debug.Stack()))
				if rec.status == 0 {
					s.answer(rec, r, newProblem(internal, "something went wrong here", "The request ID finds it in the server's log."))
				}
			}
			end(nil)
			s.note(r, rec, name, time.Since(started), stream)
		}()
		if pattern == "" {
			s.unrouted(rec, r)
			return
		}
		if p := s.readBody(rec, r); p != nil {
			s.answer(rec, r, p)
			return
		}
		next.ServeHTTP(rec, r)
	})
}

var requestIDRE = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// requestID takes over a caller's name for the request, if it is a plain one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); requestIDRE.MatchString(id) {
		return id
	}
	return job.NewID("req")
}

func secure(h http.Header, r *http.Request) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// readBody bounds a request's body and reads it whole, so that a refusal can be
// answered before anything is done.
func (s *server) readBody(w http.ResponseWriter, r *http.Request) *Problem {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if r.ContentLength > maxBody {
		return newProblem(tooLarge, "the body is larger than 1 MiB", "Send a smaller document.")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return newProblem(tooLarge, "the body is larger than 1 MiB", "Send a smaller document.")
	case err != nil:
		return newProblem(provision.Malformed, "the body could not be read to its end", "Send the whole body, in good time.")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if len(body) == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return newProblem(unsupportedMedia, "the body is encoded, and the server takes it plain alone", "Send it without Content-Encoding.")
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || (media != "application/json" && media != "application/merge-patch+json") || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return newProblem(unsupportedMedia, "the body is not said to be application/json", "Send the header Content-Type: application/json.")
	}
	return nil
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
	method := r.Method
	if len(method) > 10 || strings.ToUpper(method) != method {
		method = "other"
	}
	if !stream {
		s.Metrics.Request(method, cmp.Or(route, "none"), strconv.Itoa(status), took)
	}
	if route == "/healthz" || route == "/readyz" || route == "/metrics" {
		return
	}
	s.Log.InfoContext(r.Context(), "request", "request", provision.RequestID(r.Context()), "method", method, "path", access.Redact(clip(r.URL.Path, 200)),
		"status", status, "ms", took.Milliseconds(), "bytes", rec.written, "peer", peer(r))
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
