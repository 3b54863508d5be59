package aws

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// readPrefixes are how operations are named that change nothing. AssumeRole
// only makes credentials; what they are used for is gated by itself.
var readPrefixes = []string{"Describe", "Get", "List", "Search", "Lookup", "Head", "Test", "Simulate", "Decode", "Assume"}

// isMutating reports whether an operation changes something. What is not known
// to be a read counts as a change. The sign-in services only make credentials.
func isMutating(service, op string) bool {
	switch service {
	case "SSO", "SSO OIDC", "Signin":
		return false
	}
	for _, p := range readPrefixes {
		if strings.HasPrefix(op, p) {
			return false
		}
	}
	return true
}

// flight is what one call knows of its own attempts.
type flight struct {
	service, op string
	mutating    bool
	sent        bool // an attempt may have reached the cloud
	again       bool // it was repeated with new credentials
	attempts    int
}

// ask asks the gate whether the call may go on; nil means that it may.
func (f *flight) ask(ctx context.Context) *pipeline.CloudError {
	err := pipeline.Allow(ctx, pipeline.Call{Service: f.service, Op: f.op, Mutating: f.mutating})
	if err == nil {
		return nil
	}
	return &pipeline.CloudError{Class: pipeline.Refused, Service: f.service, Op: f.op, Message: err.Error(), Sent: f.sent, Err: err}
}

type flightKey struct{}

func flightOf(ctx context.Context) *flight {
	f, _ := middleware.GetStackValue(ctx, flightKey{}).(*flight)
	return f
}

// install puts the package's middleware on the stack of every operation:
//
//	Initialize  call     one span, one count, one classified error a call
//	Finalize    attempt  inside the retry loop: rate limit, gate, what may be repeated
//	Deserialize wire     just before the request leaves and after the answer came
//	            holder   whose account the signature is of
//	            guard    below everything: what a read-only account may send
//
// p is whose clients these are; nil for the process's own, which only assume roles.
// renew has the credentials made anew, nil if that is not possible.
func (c *Clouds) install(limits *limits, p *Provider, renew func()) func(*middleware.Stack) error {
	return func(s *middleware.Stack) error {
		if err := s.Initialize.Add(middleware.InitializeMiddlewareFunc("zopday:call", c.call(p)), middleware.Before); err != nil {
			return err
		}
		attempt := middleware.FinalizeMiddlewareFunc("zopday:attempt", limits.attempt(renew))
		if _, ok := s.Finalize.Get("Retry"); ok {
			if err := s.Finalize.Insert(attempt, "Retry", middleware.After); err != nil {
				return err
			}
		} else if err := s.Finalize.Add(attempt, middleware.Before); err != nil {
			return err
		}
		if err := s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("zopday:wire", wire), middleware.After); err != nil {
			return err
		}
		if p != nil && p.account.Holder != "" {
			if err := s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("zopday:holder", p.holder), middleware.After); err != nil {
				return err
			}
		}
		if p == nil || !p.account.ReadOnly {
			return nil
		}
		return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("zopday:guard", p.guard), middleware.After)
	}
}

// call is the outermost layer. A read that is denied is told to the log, and beside
// the step that it was made for: where it was only to check something, the job goes
// on without.
func (c *Clouds) call(p *Provider) func(context.Context, middleware.InitializeInput, middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	return func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		out, md, f, err := c.observed(ctx, in, next)
		if p != nil && !f.mutating && pipeline.Is(err, pipeline.Denied) {
			p.log.WarnContext(ctx, "not checked: the credentials may not ask", "account", accountName(p.account), "error", err)
			lookup.Note(ctx, f.service+" "+f.op, "not checked: "+err.Error())
		}
		return out, md, err
	}
}

// observed is a call with its span, its count and its error's meaning.
func (c *Clouds) observed(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, *flight, error) {
	f := &flight{service: awsmiddleware.GetServiceID(ctx), op: awsmiddleware.GetOperationName(ctx)}
	f.mutating = isMutating(f.service, f.op)
	ctx = middleware.WithStackValue(ctx, flightKey{}, f)
	ctx, span := otel.Tracer("github.com/zopday/provisioner/internal/cloud/aws").Start(ctx, f.service+"."+f.op,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("rpc.system", "aws-api"), attribute.String("rpc.service", f.service),
			attribute.String("rpc.method", f.op), attribute.Bool("zopday.mutating", f.mutating)))
	defer span.End()

	start := time.Now()
	out, md, err := next.HandleInitialize(ctx, in)
	if f.mutating && f.sent {
		lookup.Changed(ctx)
	}
	var class pipeline.Class
	if fatal := asFatal(err); fatal != nil {
		class, err = pipeline.Refused, fatal
		span.SetStatus(codes.Error, fatal.Problem.Code)
	} else if err != nil {
		ce := classify(f.service, f.op, f.sent, err)
		if id, ok := awsmiddleware.GetRequestIDMetadata(md); ok && ce.RequestID == "" {
			ce.RequestID = id
		}
		class, err = ce.Class, ce
		span.SetStatus(codes.Error, string(ce.Class))
		span.SetAttributes(attribute.String("zopday.class", string(ce.Class)), attribute.String("aws.error_code", ce.Code))
	}
	span.SetAttributes(attribute.Int("zopday.attempts", f.attempts))
	if c.opts.Observe != nil {
		c.opts.Observe(f.service, f.op, f.mutating, class, time.Since(start))
	}
	return out, md, f, err
}

// attempt is one try inside the SDK's retry loop.
func (l *limits) attempt(renew func()) func(context.Context, middleware.FinalizeInput, middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
	return func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		return l.try(ctx, in, next, renew)
	}
}

func (l *limits) try(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler, renew func()) (middleware.FinalizeOutput, middleware.Metadata, error) {
	f := flightOf(ctx)
	if f == nil {
		return middleware.FinalizeOutput{}, middleware.Metadata{}, errors.New("the call did not pass the client's middleware")
	}
	if err := l.wait(ctx, f.service); err != nil {
		return middleware.FinalizeOutput{}, middleware.Metadata{}, &attemptError{err: &pipeline.CloudError{
			Class: pipeline.Throttled, Service: f.service, Op: f.op, Message: "no turn under the client's own rate limit: " + err.Error(), Sent: f.sent, Err: err,
		}}
	}
	if refused := f.ask(ctx); refused != nil {
		return middleware.FinalizeOutput{}, middleware.Metadata{}, &attemptError{err: refused}
	}
	f.attempts++
	before := f.sent
	out, md, err := next.HandleFinalize(ctx, in)
	if err == nil {
		return out, md, nil
	}
	ce := classify(f.service, f.op, f.sent, err)
	if !ce.Sent && !before {
		f.sent = false // the connection was never made, and no earlier attempt left either
	}
	// A longer wait than the SDK's own is the pipeline's, which holds no worker meanwhile.
	retry := (repeatable(ce, f.mutating) || f.renewed(ce, renew)) && ce.RetryAfter <= maxBackoff
	return out, md, &attemptError{err: ce, retry: retry, after: ce.RetryAfter}
}

// repeatable reports whether the SDK may send the same call again. A read may
// always be repeated when the cloud faltered; a change only if the answer
// proves that nothing happened.
func repeatable(ce *pipeline.CloudError, mutating bool) bool {
	if errors.Is(ce.Err, context.Canceled) {
		return false
	}
	switch ce.Class {
	case pipeline.Throttled:
		return true
	case pipeline.Unavailable:
		return !mutating || !ce.Sent
	}
	return false
}

// attemptError carries an attempt's error past the SDK's retry loop, with the
// decision made where it was known what kind of call it is.
type attemptError struct {
	err   *pipeline.CloudError
	retry bool
	after time.Duration
}

func (e *attemptError) Error() string { return e.err.Error() }
func (e *attemptError) Unwrap() error { return e.err }

// wire is the innermost layer: from here on the request may reach the cloud. The
// gate is asked once more: new credentials and the signature come after the first
// time, and a slow provider of them, or a process that was stopped meanwhile, may
// have outlived the lease. Refused are also answers of which the SDK would make an
// empty list: nothing at all, and the web page of something in between (failure
// kinds F8, H5).
func wire(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	f := flightOf(ctx)
	if f != nil {
		if refused := f.ask(ctx); refused != nil {
			return middleware.DeserializeOutput{}, middleware.Metadata{}, refused
		}
		f.sent = true
	}
	out, md, err := next.HandleDeserialize(ctx, in)
	if err != nil {
		return out, md, err
	}
	resp, ok := out.RawResponse.(*smithyhttp.Response)
	if !ok || resp.StatusCode < 200 || resp.StatusCode > 299 {
		return out, md, nil
	}
	if f != nil && wordless(f.service, f.op) {
		return out, md, nil
	}
	if err := peek(resp.Response); err != nil {
		return out, md, &smithyhttp.ResponseError{Response: resp, Err: err}
	}
	return out, md, nil
}

// wordless reports whether the answer to an operation has no body by rights: what
// S3, CloudWatch Logs and KMS are told to change they confirm by the status alone,
// as EKS does for tags and access entries, and a HEAD has none anyway.
func wordless(service, op string) bool {
	switch service {
	case "S3":
		return strings.HasPrefix(op, "Head") || isMutating(service, op)
	case "CloudWatch Logs", "KMS":
		return isMutating(service, op)
	case "EKS":
		return op == "TagResource" || op == "UntagResource" || op == "DeleteAccessEntry" || op == "DisassociateAccessPolicy"
	case "Route 53":
		return op == "ChangeTagsForResource" // an element without content, or nothing at all
	}
	return false
}

// peek looks at the front of a body without taking it away.
func peek(resp *http.Response) error {
	if resp.Body == nil {
		return errEmpty
	}
	buffered := bufio.NewReaderSize(resp.Body, 512)
	front, err := buffered.Peek(256)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{buffered, resp.Body}
	if err != nil && err != io.EOF {
		return fmt.Errorf("reading the answer: %w", err)
	}
	text := bytes.ToLower(bytes.TrimSpace(front))
	switch {
	case len(text) == 0:
		return errEmpty
	case bytes.HasPrefix(text, []byte("<!doctype html")), bytes.HasPrefix(text, []byte("<html")):
		return errMarkup
	}
	return nil
}
