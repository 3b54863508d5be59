package gcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/api/googleapi"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// transport is the boundary to one service: every request of its client passes
// here. It hands on whole, well-formed answers, and turns everything else into
// one *pipeline.CloudError.
type transport struct {
	service string
	limits  *limits
	pace    pipeline.Pace
	observe func(service, op string, mutating bool, class pipeline.Class, d time.Duration)
	config  Config
	refused *atomic.Bool // set once the credentials were
	wire    http.RoundTripper
}

// The bounds of one attempt. A create that takes longer to be answered is
// looked up, not waited for.
const (
	attemptTime = 90 * time.Second
	maxAnswer   = 64 << 20 // bytes
)

// flight is what one request knows of its own attempts.
type flight struct {
	*transport
	op       string
	mutating bool
	sent     bool // an attempt may have reached the cloud
	attempts int
	token    string // of the last attempt
	again    bool   // it was sent again for a token that was refused
}

// onlyReads is the key of a context whose requests are known to change nothing,
// such as a query that is sent by POST.
type onlyReads struct{}

// RoundTrip carries out one request: one span, one count, one classified error.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	f := &flight{transport: t}
	f.op, f.mutating = operation(t.service, req.Method, req.URL.Path)
	f.mutating = f.mutating && req.Context().Value(onlyReads{}) == nil
	ctx, span := otel.Tracer("github.com/zopday/provisioner/internal/cloud/gcp").Start(req.Context(), t.service+"."+f.op,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("rpc.system", "gcp-api"), attribute.String("rpc.service", t.service),
			attribute.String("rpc.method", f.op), attribute.Bool("zopday.mutating", f.mutating)))
	defer span.End()

	start := time.Now()
	resp, failed := f.repeat(ctx, req)
	if f.mutating && f.sent {
		lookup.Changed(ctx)
	}
	var class pipeline.Class
	if failed != nil {
		class = failed.Class
		if class == pipeline.Expired {
			t.refused.Store(true)
		}
		span.SetStatus(codes.Error, string(class))
		span.SetAttributes(attribute.String("zopday.class", string(class)), attribute.String("gcp.error_code", failed.Code))
	}
	span.SetAttributes(attribute.Int("zopday.attempts", f.attempts))
	if t.observe != nil {
		t.observe(t.service, f.op, f.mutating, class, time.Since(start))
	}
	if failed != nil {
		return nil, failed
	}
	return resp, nil
}

// repeat sends the request until it is answered, or may not be sent again.
func (f *flight) repeat(ctx context.Context, req *http.Request) (*http.Response, *pipeline.CloudError) {
	for {
		resp, failed := f.attempt(ctx, req)
		if failed == nil {
			return resp, nil
		}
		if f.renewed(failed) {
			continue
		}
		wait := backoff(f.attempts, failed)
		if ctx.Err() != nil || f.attempts >= maxAttempts || wait > maxBackoff || !repeatable(failed, f.mutating) {
			return nil, failed // a longer wait than that is the pipeline's, which holds no worker meanwhile
		}
		timer := time.NewTimer(f.pace.Real(wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, failed
		case <-timer.C:
		}
	}
}

// renewed reports whether a read that was refused for its token may be sent once
// more with a new one (failure kind I1). A change comes up instead: the job waits
// for credentials, and looks at the object before it sends anything again. Either
// way the token is not used any more.
func (f *flight) renewed(failed *pipeline.CloudError) bool {
	if failed.Class != pipeline.Expired || !failed.Sent || f.config.Renew == nil || f.token == "" {
		return false
	}
	f.config.Renew(f.token)
	again := !f.mutating && !f.again
	f.again = true
	return again
}

// attempt is one try: rate limit, credentials, gate, wire.
func (f *flight) attempt(ctx context.Context, req *http.Request) (*http.Response, *pipeline.CloudError) {
	f.attempts++
	if err := f.limits.wait(ctx, f.service); err != nil {
		return nil, f.failed(pipeline.Throttled, "no turn under the client's own rate limit: "+err.Error(), err)
	}
	if refused := f.ask(ctx); refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	out, unable := f.signed(ctx, req)
	if unable != nil {
		return nil, unable
	}
	// Once more: credentials take their time, and a process may have been
	// stopped meanwhile and outlived its lease.
	if refused := f.ask(ctx); refused != nil {
		return nil, refused
	}
	before := f.sent
	f.sent = true
	resp, err := f.wire.RoundTrip(out)
	var guarded *pipeline.CloudError
	if errors.As(err, &guarded) { // by the account's own guard: it never left
		f.sent, guarded.Sent = before, before
		return nil, guarded
	}
	if err != nil {
		if neverLeft(err) {
			f.sent = before
		}
		return nil, classifyTransport(f.service, f.op, f.sent, err)
	}
	return f.read(req, resp)
}

// signed is a copy of the request with the caller's credentials.
func (f *flight) signed(ctx context.Context, req *http.Request) (*http.Request, *pipeline.CloudError) {
	out := req.Clone(ctx)
	query := out.URL.Query()
	for name, values := range query {
		if len(values) == 1 && values[0] == "" {
			delete(query, name) // the first page has no token, and a list of everything no filter
		}
	}
	out.URL.RawQuery = query.Encode()
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, f.failed(pipeline.Invalid, "the request cannot be read again: "+err.Error(), err)
		}
		out.Body = body
	}
	if f.config.Token != nil {
		token, err := f.config.Token(ctx)
		if err != nil {
			return nil, f.failed(pipeline.Expired, "the credentials give no token: "+err.Error(), err)
		}
		f.token = token
		out.Header.Set("Authorization", "Bearer "+token)
	}
	if f.config.QuotaProject != "" {
		out.Header.Set("X-Goog-User-Project", f.config.QuotaProject)
	}
	return out, nil
}

// ask asks the gate whether the request may go on; nil means that it may.
func (f *flight) ask(ctx context.Context) *pipeline.CloudError {
	err := pipeline.Allow(ctx, pipeline.Call{Service: f.service, Op: f.op, Mutating: f.mutating})
	if err == nil {
		return nil
	}
	return f.failed(pipeline.Refused, err.Error(), err)
}

func (f *flight) failed(class pipeline.Class, message string, err error) *pipeline.CloudError {
	return &pipeline.CloudError{Class: class, Service: f.service, Op: f.op, Message: message, Sent: f.sent, Err: err}
}

// read takes the whole answer in. Refused are also answers of which a client
// would make an empty list: nothing at all, half a document, and the web page of
// something in between (failure kinds F8, H5).
func (f *flight) read(req *http.Request, resp *http.Response) (*http.Response, *pipeline.CloudError) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	_ = resp.Body.Close() // it has been read as far as it goes
	switch {
	case err != nil:
		return nil, classifyTransport(f.service, f.op, true, fmt.Errorf("reading the answer: %w", err))
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, classifyAnswer(f.service, f.op, req, resp, body)
	case resp.StatusCode == http.StatusNoContent:
	case len(body) > maxAnswer:
		return nil, f.failed(pipeline.Unavailable, fmt.Sprintf("the answer has more than %d bytes", maxAnswer), nil)
	case len(bytes.TrimSpace(body)) == 0:
		return nil, f.failed(pipeline.Unavailable, "the answer is empty", nil)
	case isPage(body):
		return nil, f.failed(pipeline.Unavailable, "the answer is a web page", nil)
	case !json.Valid(body):
		return nil, f.failed(pipeline.Unavailable, "the answer is cut off, or no JSON", nil)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	return resp, nil
}

func isPage(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
}

// A caller is one call of a generated client, ready to be sent; C is its own type.
type caller[C, T any] interface {
	Context(context.Context) C
	Do(...googleapi.CallOption) (T, error)
}

// send carries out a call of a generated client. What the client and net/http
// wrap around a classified error is taken off, so that a person reads the
// service's words once.
func send[C caller[C, T], T any](ctx context.Context, call C) (T, error) {
	out, err := call.Context(ctx).Do()
	return out, plain(err)
}

// plain is the classified error inside err; one that is none is returned as it is.
func plain(err error) error {
	var ce *pipeline.CloudError
	var fatal *pipeline.FatalError
	if errors.As(err, &fatal) || !errors.As(err, &ce) {
		return err
	}
	return ce
}
